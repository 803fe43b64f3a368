/* One training step of the wide layer, blocked so that memory is touched as little as exactness allows.
 *
 * Pass 1, for each block of 512 classes: logits by GEMM into the batch's buffer, and at once, while the block is in
 * cache, each row's largest logit M, exp(z - M) in place, and their sum S. Then log sum exp of a row is log sum over
 * blocks of S exp(M). Pass 2, for each block: p - y from the stored exponentials, dW = (p - y)^T Q, dQ += (p - y) W,
 * and Adam on the block's rows while they are in cache.
 *
 *   buffer: block after block, each (n, width):   [ n x 512 | n x 512 | ... | n x rest ]
 *
 * The (n, m) buffer is written once and read once; W is read twice and written once. Blocks belong to 32 fixed parts,
 * each with its own sum for dQ, so that the order of additions does not depend on the threads.
 *
 * Sampled softmax runs the same code on a small layer gathered from the rows that the step needs: the batch's labels
 * and N classes drawn in proportion to frequency. A drawn class stands for count / (N q) classes like it, so its logit
 * gets log(count / (N q)) (Jean et al. 2015); a row's own labels count as themselves, other rows' labels not at all. */
#include "net/softmax.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/rng.h"
#include "layer/blas.h"

#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, TILE = 256, N_PARTS = 32 };

typedef struct target {
    int32_t row, column; /* column within its block */
    float share;         /* times the row's weight over the sum of weights */
    float logit;
} target;

struct woi_softmax {
    const woi_kernels *kernels;
    int threads;
    float *buffer, *block_max, *block_sum, *dq_parts, *dw, *db;
    size_t buffer_room, block_max_room, block_sum_room, dq_parts_room, dw_room, db_room;
    double *lse;
    size_t lse_room;
    float *kept_w, *kept_b; /* the gradient of a step without Adam, (m, d) and (m) */
    size_t kept_w_room, kept_b_room;
    double part_square[N_PARTS]; /* its sum of squares */
    target *targets;             /* by block, then by row */
    size_t *starts;              /* where each block's targets begin */
    size_t targets_room, starts_room;

    size_t n_sampled; /* 0: exact */
    uint64_t seed;
    size_t m;
    uint64_t *cumulative; /* of frequency + 1, m + 1 */
    int32_t *drawn, *chosen, *columns;
    float *offset; /* log(count / (N q)) of the chosen ones; -INFINITY for those that are only labels */
    float *rows;   /* w, w_m, w_v of the chosen ones */
    float *biases; /* b, b_m, b_v */
    size_t n_chosen;
    size_t chosen_room, columns_room, offset_room, rows_room, biases_room, drawn_room;
};

/* ---- The two passes ---------------------------------------------------------------------------------------- */

/* What one step works on. */
typedef struct batch {
    woi_softmax *s;
    woi_wide *wide;
    const float *offset; /* added to the logits of all but a row's own labels; NULL: exact softmax */
    const float *q;
    const float *weights; /* of rows; NULL: 1 */
    double total_weight;
    size_t n, n_blocks;
    const woi_adam_step *adam;
} batch;

static size_t width_of(const batch *t, size_t block)
{
    size_t left = t->wide->m - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* One row of a block: z + b, with the targets' own logits kept; then the exponentials. */
static void forward_row(const batch *t, size_t block, size_t row, float *z, target **next, const target *end)
{
    const size_t width = width_of(t, block), index = block * t->n + row;
    const float *b = t->wide->b + block * BLOCK;
    target *first = *next, *own = first;
    for (; own < end && (size_t)own->row == row; own++) own->logit = z[own->column] + b[own->column];
    if (t->offset) {
#pragma omp simd
        for (size_t j = 0; j < width; j++) z[j] += b[j] + t->offset[block * BLOCK + j];
        for (target *o = first; o < own; o++) z[o->column] = o->logit;
    } else {
#pragma omp simd
        for (size_t j = 0; j < width; j++) z[j] += b[j];
    }
    *next = own;
    float largest = t->s->kernels->max_f32(z, width);
    if (largest == -INFINITY) largest = 0; /* nothing of this block counts for this row: its exponentials are all 0 */
    t->s->block_max[index] = largest;
    t->s->block_sum[index] = (float)t->s->kernels->exp_sum(z, width, largest, z);
}

static void forward_block(const batch *t, size_t block)
{
    const size_t width = width_of(t, block), d = t->wide->d;
    float *z = t->s->buffer + t->n * block * BLOCK;
    target *next = t->s->targets + t->s->starts[block], *end = t->s->targets + t->s->starts[block + 1];
    for (size_t first = 0; first < t->n; first += TILE) {
        size_t rows = t->n - first < TILE ? t->n - first : TILE;
        woi_gemm_nt(rows, width, d, t->q + first * d, d, t->wide->w + block * BLOCK * d, d, 0, z + first * width,
                    width);
        for (size_t i = first; i < first + rows; i++) forward_row(t, block, i, z + i * width, &next, end);
    }
}

static double row_weight(const batch *t, size_t row)
{
    if (!t->weights) return 1.0 / t->total_weight;
    return t->weights[row] > 0 ? (double)t->weights[row] / t->total_weight : 0; /* perhaps none of them counts */
}

/* log sum exp of every row, and the loss. */
static double combine(const batch *t)
{
    const woi_softmax *s = t->s;
    double loss = 0;
    for (size_t i = 0; i < t->n; i++) {
        double largest = -INFINITY, sum = 0;
        for (size_t block = 0; block < t->n_blocks; block++)
            if (s->block_sum[block * t->n + i] > 0 && s->block_max[block * t->n + i] > largest)
                largest = s->block_max[block * t->n + i];
        for (size_t block = 0; block < t->n_blocks; block++)
            sum += s->block_sum[block * t->n + i] * exp((double)s->block_max[block * t->n + i] - largest);
        /* cppcheck-suppress invalidFunctionArg ; some block has a logit, so sum > 0 */
        s->lse[i] = largest + log(sum);
        loss += s->lse[i] * row_weight(t, i);
    }
    for (size_t i = 0; i < s->starts[t->n_blocks]; i++)
        loss -= (double)s->targets[i].share * (double)s->targets[i].logit;
    return loss;
}

/* The rows first .. first + rows of a block, from exponentials to p - y (times the row's weight); db summed up. */
static void backward_rows(const batch *t, size_t block, size_t first, size_t rows, float *z, float *db, target **next,
                          const target *end)
{
    const size_t width = width_of(t, block);
    for (size_t i = first; i < first + rows; i++) {
        float *row = z + i * width;
        float factor = (float)(exp((double)t->s->block_max[block * t->n + i] - t->s->lse[i]) * row_weight(t, i));
#pragma omp simd
        for (size_t j = 0; j < width; j++) row[j] *= factor;
        for (; *next < end && (size_t)(*next)->row == i; ++*next) row[(*next)->column] -= (*next)->share;
#pragma omp simd
        for (size_t j = 0; j < width; j++) db[j] += row[j];
    }
}

static double sum_of_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static void update_rows(const woi_softmax *s, woi_wide *wide, size_t at, size_t n, const float *dw, const float *db,
                        const woi_adam_step *adam)
{
    const size_t d = wide->d;
    s->kernels->adam(wide->w + at * d, wide->w_m + at * d, wide->w_v + at * d, dw, n * d, adam);
    s->kernels->adam(wide->b + at, wide->b_m + at, wide->b_v + at, db, n, adam);
}

/* `dw` and `db` are room for one block's gradient, used where it is not kept. */
static void backward_part(const batch *t, size_t part, float *dw, float *db)
{
    woi_softmax *s = t->s;
    const size_t d = t->wide->d, from = part * t->n_blocks / N_PARTS, to = (part + 1) * t->n_blocks / N_PARTS;
    float *dq = s->dq_parts + part * t->n * d;
    if (from == to) memset(dq, 0, t->n * d * sizeof *dq);
    s->part_square[part] = 0;
    for (size_t block = from; block < to; block++) {
        const size_t width = width_of(t, block), at = block * BLOCK;
        float *z = s->buffer + t->n * at, *w = t->wide->w + at * d;
        target *next = s->targets + s->starts[block], *end = s->targets + s->starts[block + 1];
        if (!t->adam) {
            dw = s->kept_w + at * d;
            db = s->kept_b + at;
        }
        memset(db, 0, width * sizeof *db);
        for (size_t first = 0; first < t->n; first += TILE) {
            size_t rows = t->n - first < TILE ? t->n - first : TILE;
            backward_rows(t, block, first, rows, z, db, &next, end);
            woi_gemm_tn(width, d, rows, z + first * width, width, t->q + first * d, d, first > 0, dw, d);
            woi_gemm_nn(rows, d, width, z + first * width, width, w, d, block > from, dq + first * d, d);
        }
        if (t->adam)
            update_rows(s, t->wide, at, width, dw, db, t->adam);
        else
            s->part_square[part] += sum_of_squares(dw, width * d) + sum_of_squares(db, width);
    }
}

/* Targets by block: a counting sort that keeps the rows' order. */
static wo_status sort_targets(batch *t, const woi_targets *given, const int32_t *columns, wo_error *err)
{
    woi_softmax *s = t->s;
    const int64_t start = given->indptr[0];
    const size_t count = (size_t)(given->indptr[t->n] - start);
    wo_status status;
    if ((status = woi_grow(&s->targets, &s->targets_room, 0, count, sizeof *s->targets, err)) ||
        (status = woi_grow(&s->starts, &s->starts_room, 0, t->n_blocks + 2, sizeof *s->starts, err)))
        return status;
    memset(s->starts, 0, (t->n_blocks + 2) * sizeof *s->starts);
    for (size_t i = 0; i < count; i++) s->starts[columns[i] / BLOCK + 2]++;
    for (size_t block = 2; block < t->n_blocks + 2; block++) s->starts[block] += s->starts[block - 1];
    for (size_t row = 0; row < t->n; row++) {
        const int64_t from = given->indptr[row], to = given->indptr[row + 1];
        for (int64_t i = from; i < to; i++) {
            double share = given->shares ? (double)given->shares[i] : 1.0 / (double)(to - from);
            s->targets[s->starts[columns[i - start] / BLOCK + 1]++] =
                (target){(int32_t)row, columns[i - start] % BLOCK, (float)(share * row_weight(t, row)), 0};
        }
    }
    return WO_OK;
}

static wo_status make_room(const batch *t, wo_error *err)
{
    woi_softmax *s = t->s;
    const size_t n = t->n, d = t->wide->d, per_block = t->n_blocks * n;
    wo_status status;
    if ((status = woi_grow(&s->buffer, &s->buffer_room, 0, n * t->wide->m, sizeof(float), err)) ||
        (status = woi_grow(&s->block_max, &s->block_max_room, 0, per_block, sizeof(float), err)) ||
        (status = woi_grow(&s->block_sum, &s->block_sum_room, 0, per_block, sizeof(float), err)) ||
        (status = woi_grow(&s->dq_parts, &s->dq_parts_room, 0, N_PARTS * n * d, sizeof(float), err)) ||
        (status = woi_grow(&s->dw, &s->dw_room, 0, (size_t)s->threads * BLOCK * d, sizeof(float), err)) ||
        (status = woi_grow(&s->db, &s->db_room, 0, (size_t)s->threads * BLOCK, sizeof(float), err)) ||
        (status = woi_grow(&s->lse, &s->lse_room, 0, n, sizeof(double), err)))
        return status;
    if (t->adam) return WO_OK;
    status = woi_grow(&s->kept_w, &s->kept_w_room, 0, t->wide->m * d, sizeof(float), err);
    return status ? status : woi_grow(&s->kept_b, &s->kept_b_room, 0, t->wide->m, sizeof(float), err);
}

/* `columns`: the class of every target, as a row of `wide`. */
static wo_status run_step(batch *t, const woi_targets *given, const int32_t *columns, float *dq, double *loss,
                          wo_error *err)
{
    woi_softmax *s = t->s;
    const size_t d = t->wide->d;
    t->n_blocks = (t->wide->m + BLOCK - 1) / BLOCK;
    t->total_weight = t->weights ? 0 : (double)t->n;
    for (size_t i = 0; t->weights && i < t->n; i++) t->total_weight += (double)t->weights[i];
    wo_status status = make_room(t, err);
    if (!status) status = sort_targets(t, given, columns, err);
    if (status) return status;
    const int before = woi_blas_single();
#pragma omp parallel for num_threads(s->threads) schedule(dynamic)
    for (size_t block = 0; block < t->n_blocks; block++) forward_block(t, block);
    *loss = combine(t);
#pragma omp parallel for num_threads(s->threads) schedule(dynamic)
    for (size_t part = 0; part < N_PARTS; part++) {
        size_t thread = (size_t)omp_get_thread_num();
        backward_part(t, part, s->dw + thread * BLOCK * d, s->db + thread * BLOCK);
    }
    woi_blas_restore(before);
#pragma omp parallel for num_threads(s->threads)
    for (size_t row = 0; row < t->n; row++)
        for (size_t j = row * d; j < (row + 1) * d; j++) {
            float sum = 0;
            for (size_t part = 0; part < N_PARTS; part++) sum += s->dq_parts[part * t->n * d + j];
            dq[j] = sum;
        }
    return WO_OK;
}

/* ---- Sampling ---------------------------------------------------------------------------------------------- */

/* The class whose stretch of the cumulative frequencies holds `point`. */
static int32_t class_at(const woi_softmax *s, uint64_t point)
{
    size_t low = 0, high = s->m;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->cumulative[middle] <= point)
            low = middle;
        else
            high = middle;
    }
    return (int32_t)low;
}

static size_t place_of(const int32_t *sorted, size_t n, int32_t id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sorted[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Draws the step's classes and joins them with the labels: chosen[] rising, with their offsets. */
static wo_status choose(woi_softmax *s, const int32_t *labels, size_t n_labels, uint64_t step, wo_error *err)
{
    const size_t most = s->n_sampled + n_labels;
    wo_status status;
    if ((status = woi_grow(&s->drawn, &s->drawn_room, 0, s->n_sampled, sizeof(int32_t), err)) ||
        (status = woi_grow(&s->chosen, &s->chosen_room, 0, most, sizeof(int32_t), err)) ||
        (status = woi_grow(&s->offset, &s->offset_room, 0, most, sizeof(float), err)))
        return status;
    const uint64_t total = s->cumulative[s->m];
    for (size_t i = 0; i < s->n_sampled; i++) s->drawn[i] = class_at(s, woi_rng_below(s->seed, step, i, total));
    woi_ids_sort(s->drawn, s->n_sampled);
    memcpy(s->chosen, s->drawn, s->n_sampled * sizeof *s->chosen);
    memcpy(s->chosen + s->n_sampled, labels, n_labels * sizeof *s->chosen);
    woi_ids_sort(s->chosen, most);
    size_t n = 0, at = 0;
    for (size_t i = 0; i < most; i++) {
        if (n > 0 && s->chosen[i] == s->chosen[n - 1]) continue;
        const int32_t id = s->chosen[i];
        size_t count = 0;
        for (; at < s->n_sampled && s->drawn[at] == id; at++) count++;
        double share = (double)(s->cumulative[id + 1] - s->cumulative[id]) / (double)total;
        s->offset[n] = count ? (float)log((double)count / ((double)s->n_sampled * share)) : -INFINITY;
        s->chosen[n++] = id;
    }
    s->n_chosen = n;
    return WO_OK;
}

static woi_wide small_layer(const woi_softmax *s, size_t d)
{
    const size_t u = s->n_chosen;
    return (woi_wide){u, d, s->rows, s->rows + u * d, s->rows + 2 * u * d, s->biases, s->biases + u, s->biases + 2 * u};
}

/* Copies the chosen rows into a small layer, or back. */
static void copy_rows(const woi_softmax *s, woi_wide *wide, woi_wide *small, bool back)
{
    float *const large[] = {wide->w, wide->w_m, wide->w_v}, *const compact[] = {small->w, small->w_m, small->w_v};
    float *const large_b[] = {wide->b, wide->b_m, wide->b_v}, *const compact_b[] = {small->b, small->b_m, small->b_v};
    const size_t d = wide->d, bytes = d * sizeof(float);
#pragma omp parallel for num_threads(s->threads)
    for (size_t i = 0; i < small->m; i++)
        for (int kind = 0; kind < 3; kind++) {
            size_t id = (size_t)s->chosen[i];
            float *there = large[kind] + id * d, *here = compact[kind] + i * d;
            memcpy(back ? there : here, back ? here : there, bytes);
            if (back)
                large_b[kind][id] = compact_b[kind][i];
            else
                compact_b[kind][i] = large_b[kind][id];
        }
}

static wo_status run_sampled(const batch *t, const woi_targets *given, uint64_t step, float *dq, double *loss,
                             wo_error *err)
{
    woi_softmax *s = t->s;
    woi_wide *wide = t->wide;
    const int32_t *labels = given->ids + given->indptr[0];
    const size_t n_labels = (size_t)(given->indptr[t->n] - given->indptr[0]), d = wide->d;
    wo_status status = choose(s, labels, n_labels, step, err);
    if (status) return status;
    const size_t u = s->n_chosen;
    if ((status = woi_grow(&s->rows, &s->rows_room, 0, 3 * u * d, sizeof(float), err)) ||
        (status = woi_grow(&s->biases, &s->biases_room, 0, 3 * u, sizeof(float), err)) ||
        (status = woi_grow(&s->columns, &s->columns_room, 0, n_labels, sizeof(int32_t), err)))
        return status;
    woi_wide small = small_layer(s, d);
    copy_rows(s, wide, &small, false);
    for (size_t i = 0; i < n_labels; i++) s->columns[i] = (int32_t)place_of(s->chosen, u, labels[i]);
    batch inner = *t;
    inner.wide = &small;
    inner.offset = s->offset;
    status = run_step(&inner, given, s->columns, dq, loss, err);
    if (!status && t->adam) copy_rows(s, wide, &small, true);
    return status;
}

/* ---- Outside ----------------------------------------------------------------------------------------------- */

wo_status woi_softmax_create(size_t m, size_t sampled, const uint32_t *frequency, uint64_t seed, int threads,
                             woi_softmax **result, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    woi_softmax *s = woi_alloc_zero(1, sizeof *s, err);
    if (!s) return WO_ERR_MEMORY;
    s->kernels = kernels;
    s->threads = threads > 0 ? threads : omp_get_max_threads();
    s->seed = seed;
    s->m = m;
    s->n_sampled = sampled;
    if (sampled) {
        if (!(s->cumulative = woi_alloc(m + 1, sizeof *s->cumulative, err))) {
            woi_softmax_free(s);
            return WO_ERR_MEMORY;
        }
        s->cumulative[0] = 0;
        for (size_t i = 0; i < m; i++) s->cumulative[i + 1] = s->cumulative[i] + frequency[i] + 1;
    }
    *result = s;
    return WO_OK;
}

void woi_softmax_free(woi_softmax *s)
{
    if (!s) return;
    void *const owned[] = {s->buffer,  s->block_max, s->block_sum, s->dq_parts, s->dw,         s->db,
                           s->lse,     s->targets,   s->starts,    s->drawn,    s->cumulative, s->chosen,
                           s->columns, s->offset,    s->rows,      s->biases,   s->kept_w,     s->kept_b};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(s);
}

wo_status woi_softmax_step(woi_softmax *s, woi_wide *wide, const float *q, size_t n, const woi_targets *targets,
                           uint64_t step, const woi_adam_step *adam, float *dq, double *loss, double *square,
                           wo_error *err)
{
    batch t = {.s = s, .wide = wide, .q = q, .n = n, .weights = targets->weights, .adam = adam};
    wo_status status = s->n_sampled ? run_sampled(&t, targets, step, dq, loss, err)
                                    : run_step(&t, targets, targets->ids + targets->indptr[0], dq, loss, err);
    if (status || adam) return status;
    *square = 0;
    for (int part = 0; part < N_PARTS; part++) *square += s->part_square[part];
    return WO_OK;
}

void woi_softmax_apply(woi_softmax *s, woi_wide *wide, float scale, const woi_adam_step *adam)
{
    woi_wide small = small_layer(s, wide->d), *layer = s->n_sampled ? &small : wide;
    const size_t n_blocks = (layer->m + BLOCK - 1) / BLOCK, d = layer->d;
#pragma omp parallel for num_threads(s->threads)
    for (size_t block = 0; block < n_blocks; block++) {
        const size_t at = block * BLOCK, n = layer->m - at < BLOCK ? layer->m - at : BLOCK;
        float *dw = s->kept_w + at * d, *db = s->kept_b + at;
        for (size_t i = 0; scale != 1 && i < n * d; i++) dw[i] *= scale;
        for (size_t i = 0; scale != 1 && i < n; i++) db[i] *= scale;
        update_rows(s, layer, at, n, dw, db, adam);
    }
    if (s->n_sampled) copy_rows(s, wide, &small, true);
}
