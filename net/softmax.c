/* One training step of the wide layer, blocked so that memory is touched as little as exactness allows.
 *
 * Pass 1, for each block of 512 classes: logits by woi_gemm into the batch's buffer, and at once, while the block is in
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
 * gets log(count / (N q)) (Jean et al. 2015); a row's own labels count as themselves, other rows' labels not at all.
 *
 * Where the rows are spread over processes, each goes through these passes with its own. Between them the ranks gather
 * each row's M and S, so that log sum exp is that of the whole layer, and after them they add up dQ. */
#include "net/softmax.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "kernels/gemm.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, TILE = 256, N_PARTS = 32, ROWS = 16 /* that one thread takes at a time */ };

typedef struct target {
    int32_t row, column; /* column within its block */
    float share;         /* times the row's weight over the sum of weights */
    float logit;
} target;

/* A part of log sum exp: the largest logit, and the sum of exp(logit - largest). */
typedef struct log_part {
    double largest, sum;
} log_part;

struct woi_softmax {
    const woi_kernels *kernels;
    int threads;
    const wo_collective *ranks;
    woi_portion share;  /* of the m classes */
    log_part *exchange; /* (n + 1) of this rank's, then those of all: a part a row, and the targets' logits as `sum` */
    size_t *exchange_bytes;
    size_t exchange_room;
    float *buffer, *block_max, *block_sum, *dq_parts;
    size_t buffer_room, block_max_room, block_sum_room, dq_parts_room;
    float *q_panels; /* q as dW's products want it, tile after tile */
    float *own;      /* a thread's: woi_gemm's scratch, dW and db of a block */
    size_t q_panels_room, own_room;
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
    float *dq;
} batch;

/* The columns of q's panels. */
static size_t padded_d(const batch *t)
{
    return woi_gemm_packed(t->s->kernels, t->wide->d, 1);
}

/* A thread's floats, whole cache lines. */
static size_t own_size(const batch *t)
{
    return (WOI_GEMM_SCRATCH + BLOCK * (t->wide->d + 1) + 15) / 16 * 16;
}

static size_t part_start(const batch *t, size_t part)
{
    return part * t->n_blocks / N_PARTS;
}

static size_t width_of(const batch *t, size_t block)
{
    size_t left = t->wide->m - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* The loops over a row go in sixteens, which is what it takes for gcc to use vectors at -O2. */
static void add_offsets(float *restrict z, const float *restrict offset, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++) z[i + j] += offset[i + j];
    for (; i < n; i++) z[i] += offset[i];
}

/* row *= factor; sum += row */
static void scale_and_sum(float *restrict row, float factor, float *restrict sum, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++) {
            row[i + j] *= factor;
            sum[i + j] += row[i + j];
        }
    for (; i < n; i++) sum[i] += row[i] *= factor;
}

/* One row of a block: the targets' own logits are kept; then the exponentials. */
static void forward_row(const batch *t, size_t block, size_t row, float *z, target **next, const target *end)
{
    const size_t width = width_of(t, block), index = block * t->n + row;
    target *first = *next, *own = first;
    for (; own < end && (size_t)own->row == row; own++) own->logit = z[own->column];
    if (t->offset) {
        add_offsets(z, t->offset + block * BLOCK, width);
        for (target *o = first; o < own; o++) z[o->column] = o->logit;
    }
    *next = own;
    float largest = t->s->kernels->max_f32(z, width);
    if (largest == -INFINITY) largest = 0; /* nothing of this block counts for this row: its exponentials are all 0 */
    t->s->block_max[index] = largest;
    t->s->block_sum[index] = (float)t->s->kernels->exp_sum(z, width, largest, z);
}

static float *own_memory(const batch *t, int worker)
{
    return t->s->own + (size_t)worker * own_size(t);
}

static size_t tile_rows(const batch *t, size_t first)
{
    return t->n - first < TILE ? t->n - first : TILE;
}

static void forward_block(void *ctx, int worker, size_t block)
{
    const batch *t = ctx;
    const size_t width = width_of(t, block), d = t->wide->d;
    float *z = t->s->buffer + t->n * block * BLOCK;
    target *next = t->s->targets + t->s->starts[block], *end = t->s->targets + t->s->starts[block + 1];
    for (size_t first = 0; first < t->n; first += TILE) {
        const size_t rows = tile_rows(t, first);
        const woi_product logits = {.n = rows,
                                    .m = width,
                                    .k = d,
                                    .a = {t->q + first * d, d, WOI_BY_ROWS},
                                    .b = {t->wide->w + block * BLOCK * d, d, WOI_BY_ROWS},
                                    .c = z + first * width,
                                    .ldc = width,
                                    .start = t->wide->b + block * BLOCK};
        woi_gemm(t->s->kernels, &logits, own_memory(t, worker));
        for (size_t i = first; i < first + rows; i++) forward_row(t, block, i, z + i * width, &next, end);
    }
}

static double row_weight(const batch *t, size_t row)
{
    if (!t->weights) return 1.0 / t->total_weight;
    return t->weights[row] > 0 ? (double)t->weights[row] / t->total_weight : 0; /* perhaps none of them counts */
}

/* log sum exp of some rows, or what this process has of it. */
static void combine_rows(void *ctx, int worker, size_t part)
{
    const batch *t = ctx;
    const woi_softmax *s = t->s;
    (void)worker;
    for (size_t i = part * ROWS; i < t->n && i < (part + 1) * ROWS; i++) {
        double largest = -INFINITY, sum = 0;
        for (size_t block = 0; block < t->n_blocks; block++)
            if (s->block_sum[block * t->n + i] > 0 && s->block_max[block * t->n + i] > largest)
                largest = s->block_max[block * t->n + i];
        for (size_t block = 0; block < t->n_blocks; block++) /* with ranks perhaps no block of this one counts */
            if (s->block_sum[block * t->n + i] != 0)
                sum += s->block_sum[block * t->n + i] * exp((double)s->block_max[block * t->n + i] - largest);
        if (s->ranks)
            s->exchange[i] = (log_part){largest, sum};
        else
            /* cppcheck-suppress invalidFunctionArg ; some block has a logit, so sum > 0 */
            s->lse[i] = largest + log(sum);
    }
}

/* `loss` less the targets' logits by their shares. */
static double less_targets(const batch *t, double loss)
{
    const woi_softmax *s = t->s;
    for (size_t i = 0; i < s->starts[t->n_blocks]; i++)
        loss -= (double)s->targets[i].share * (double)s->targets[i].logit;
    return loss;
}

static double loss_of(const batch *t)
{
    double loss = 0;
    for (size_t i = 0; i < t->n; i++) loss += t->s->lse[i] * row_weight(t, i);
    return less_targets(t, loss);
}

/* The ranks' parts, one rank after the other, each (n + 1). Ranks are added in their order, so that all of them have
 * the same sums. A part without classes has no largest logit, and its sum is 0. */
static wo_status combine_ranks(const batch *t, double *loss, wo_error *err)
{
    const woi_softmax *s = t->s;
    const size_t size = (size_t)s->ranks->size, each = t->n + 1;
    const log_part *all = s->exchange + each;
    s->exchange[t->n] = (log_part){0, less_targets(t, 0)};
    for (size_t r = 0; r < size; r++) s->exchange_bytes[r] = each * sizeof *all;
    wo_status status = s->ranks->gather(s->ranks->ctx, s->exchange, s->exchange_bytes, s->exchange + each, err);
    if (status) return status;
    *loss = 0;
    for (size_t i = 0; i < t->n; i++) {
        double largest = -INFINITY, sum = 0;
        for (size_t r = 0; r < size; r++)
            if (all[r * each + i].largest > largest) largest = all[r * each + i].largest;
        for (size_t r = 0; r < size; r++)
            if (all[r * each + i].sum != 0) sum += all[r * each + i].sum * exp(all[r * each + i].largest - largest);
        /* cppcheck-suppress invalidFunctionArg ; some rank has a logit, so sum > 0 */
        s->lse[i] = largest + log(sum);
        *loss += s->lse[i] * row_weight(t, i);
    }
    for (size_t r = 0; r < size; r++) *loss += all[r * each + t->n].sum;
    return WO_OK;
}

/* The rows of a tile of a block, from exponentials to p - y (times the row's weight); db summed up. */
static void backward_rows(const batch *t, size_t block, size_t first, float *db, target **next)
{
    const size_t width = width_of(t, block), rows = tile_rows(t, first);
    float *z = t->s->buffer + t->n * block * BLOCK;
    const target *end = t->s->targets + t->s->starts[block + 1];
    for (size_t i = first; i < first + rows; i++) {
        float *row = z + i * width;
        float factor = (float)(exp((double)t->s->block_max[block * t->n + i] - t->s->lse[i]) * row_weight(t, i));
        scale_and_sum(row, factor, db, width);
        for (; *next < end && (size_t)(*next)->row == i; ++*next) {
            row[(*next)->column] -= (*next)->share;
            db[(*next)->column] -= (*next)->share;
        }
    }
}

static double sum_of_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* The gradient of n rows of the layer, from row `at` on: w (n, d), b (n). */
typedef struct rows_gradient {
    size_t at, n;
    const float *w, *b;
} rows_gradient;

static void update_rows(const woi_softmax *s, woi_wide *wide, const rows_gradient *g, const woi_adam_step *adam)
{
    const size_t d = wide->d, at = g->at;
    s->kernels->adam(wide->w + at * d, wide->w_m + at * d, wide->w_v + at * d, g->w, g->n * d, adam);
    s->kernels->adam(wide->b + at, wide->b_m + at, wide->b_v + at, g->b, g->n, adam);
}

/* dW of a block, and what it adds to its part's dQ, from a tile of rows. */
static void multiply_back(const batch *t, size_t part, size_t block, size_t first, float *dw, float *scratch)
{
    const woi_softmax *s = t->s;
    const size_t d = t->wide->d, width = width_of(t, block), rows = tile_rows(t, first);
    const float *z = s->buffer + t->n * block * BLOCK + first * width;
    const woi_product to_w = {.n = width,
                              .m = d,
                              .k = rows,
                              .a = {z, width, WOI_BY_DEPTH},
                              .b = {s->q_panels + first * padded_d(t), 0, WOI_IN_PANELS},
                              .c = dw,
                              .ldc = d,
                              .add = first > 0};
    const woi_product to_q = {.n = rows,
                              .m = d,
                              .k = width,
                              .a = {z, width, WOI_BY_ROWS},
                              .b = {t->wide->w + block * BLOCK * d, d, WOI_BY_DEPTH},
                              .c = s->dq_parts + (part * t->n + first) * d,
                              .ldc = d,
                              .add = block > part_start(t, part)};
    woi_gemm(s->kernels, &to_w, scratch);
    woi_gemm(s->kernels, &to_q, scratch);
}

static void backward_part(void *ctx, int worker, size_t part)
{
    const batch *t = ctx;
    woi_softmax *s = t->s;
    const size_t d = t->wide->d, from = part_start(t, part), to = part_start(t, part + 1);
    float *scratch = own_memory(t, worker), *dw = scratch + WOI_GEMM_SCRATCH, *db = dw + BLOCK * d;
    float *dq = s->dq_parts + part * t->n * d;
    if (from == to) memset(dq, 0, t->n * d * sizeof *dq);
    s->part_square[part] = 0;
    for (size_t block = from; block < to; block++) {
        const size_t width = width_of(t, block), at = block * BLOCK;
        target *next = s->targets + s->starts[block];
        if (!t->adam) {
            dw = s->kept_w + at * d;
            db = s->kept_b + at;
        }
        memset(db, 0, width * sizeof *db);
        for (size_t first = 0; first < t->n; first += TILE) {
            backward_rows(t, block, first, db, &next);
            multiply_back(t, part, block, first, dw, scratch);
        }
        if (t->adam)
            update_rows(s, t->wide, &(rows_gradient){at, width, dw, db}, t->adam);
        else
            s->part_square[part] += sum_of_squares(dw, width * d) + sum_of_squares(db, width);
    }
}

/* dQ of some rows out of the parts'. */
static void add_parts(void *ctx, int worker, size_t rows)
{
    const batch *t = ctx;
    const size_t d = t->wide->d, end = (rows + 1) * ROWS < t->n ? (rows + 1) * ROWS : t->n;
    (void)worker;
    for (size_t j = rows * ROWS * d; j < end * d; j++) {
        float sum = 0;
        for (size_t part = 0; part < N_PARTS; part++) sum += t->s->dq_parts[part * t->n * d + j];
        t->dq[j] = sum;
    }
}

/* Targets by block: a counting sort that keeps the rows' order. Those of other processes are left out. */
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
    for (size_t i = 0; i < count; i++)
        if (columns[i] >= 0) s->starts[columns[i] / BLOCK + 2]++;
    for (size_t block = 2; block < t->n_blocks + 2; block++) s->starts[block] += s->starts[block - 1];
    for (size_t row = 0; row < t->n; row++) {
        const int64_t from = given->indptr[row], to = given->indptr[row + 1];
        for (int64_t i = from; i < to; i++) {
            if (columns[i - start] < 0) continue;
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
        (status = woi_grow(&s->own, &s->own_room, 0, (size_t)s->threads * own_size(t), sizeof(float), err)) ||
        (status = woi_grow(&s->q_panels, &s->q_panels_room, 0, n * padded_d(t), sizeof(float), err)) ||
        (status = woi_grow(&s->lse, &s->lse_room, 0, n, sizeof(double), err)))
        return status;
    if (s->ranks && (status = woi_grow(&s->exchange, &s->exchange_room, 0, (n + 1) * ((size_t)s->ranks->size + 1),
                                       sizeof *s->exchange, err)))
        return status;
    if (t->adam) return WO_OK;
    status = woi_grow(&s->kept_w, &s->kept_w_room, 0, t->wide->m * d, sizeof(float), err);
    return status ? status : woi_grow(&s->kept_b, &s->kept_b_room, 0, t->wide->m, sizeof(float), err);
}

/* `columns`: the class of every target, as a row of `wide`; -1: another process has it. */
static wo_status run_step(batch *t, const woi_targets *given, const int32_t *columns, double *loss, wo_error *err)
{
    woi_softmax *s = t->s;
    const size_t d = t->wide->d, n_runs = (t->n + ROWS - 1) / ROWS;
    t->n_blocks = (t->wide->m + BLOCK - 1) / BLOCK;
    t->total_weight = t->weights ? 0 : (double)t->n;
    for (size_t i = 0; t->weights && i < t->n; i++) t->total_weight += (double)t->weights[i];
    wo_status status = make_room(t, err);
    if (!status) status = sort_targets(t, given, columns, err);
    if (status) return status;
    woi_team_for(s->threads, t->n_blocks, forward_block, t);
    woi_team_for(s->threads, n_runs, combine_rows, t);
    if (!s->ranks)
        *loss = loss_of(t);
    else if ((status = combine_ranks(t, loss, err)))
        return status;
    for (size_t first = 0; first < t->n; first += TILE)
        woi_gemm_pack(s->kernels, &(woi_operand){t->q + first * d, d, WOI_BY_DEPTH}, d, tile_rows(t, first),
                      s->q_panels + first * padded_d(t));
    woi_team_for(s->threads, N_PARTS, backward_part, t);
    woi_team_for(s->threads, n_runs, add_parts, t);
    return s->ranks ? s->ranks->sum_f32(s->ranks->ctx, t->dq, t->n * d, err) : WO_OK;
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

/* Draws the step's classes and joins them with the labels: the rows of those that this process has in chosen[], rising,
 * with their offsets. All processes draw the same classes. */
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
        const int32_t id = s->chosen[i], row = woi_portion_row(&s->share, id);
        size_t count = 0;
        for (; at < s->n_sampled && s->drawn[at] == id; at++) count++;
        if (row < 0 || (n > 0 && row == s->chosen[n - 1])) continue;
        double share = (double)(s->cumulative[id + 1] - s->cumulative[id]) / (double)total;
        s->offset[n] = count ? (float)log((double)count / ((double)s->n_sampled * share)) : -INFINITY;
        s->chosen[n++] = row;
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
typedef struct copying {
    const woi_softmax *s;
    woi_wide *wide, *small;
    bool back;
} copying;

static void copy_part(void *ctx, int worker, size_t part)
{
    const copying *c = ctx;
    woi_wide *wide = c->wide, *small = c->small;
    float *const large[] = {wide->w, wide->w_m, wide->w_v}, *const compact[] = {small->w, small->w_m, small->w_v};
    float *const large_b[] = {wide->b, wide->b_m, wide->b_v}, *const compact_b[] = {small->b, small->b_m, small->b_v};
    const size_t d = wide->d, bytes = d * sizeof(float);
    (void)worker;
    for (size_t i = part * BLOCK; i < small->m && i < (part + 1) * BLOCK; i++)
        for (int kind = 0; kind < 3; kind++) {
            const size_t id = (size_t)c->s->chosen[i];
            float *there = large[kind] + id * d, *here = compact[kind] + i * d;
            memcpy(c->back ? there : here, c->back ? here : there, bytes);
            if (c->back)
                large_b[kind][id] = compact_b[kind][i];
            else
                compact_b[kind][i] = large_b[kind][id];
        }
}

static void copy_rows(const woi_softmax *s, woi_wide *wide, woi_wide *small, bool back)
{
    copying c = {s, wide, small, back};
    woi_team_for(s->threads, (small->m + BLOCK - 1) / BLOCK, copy_part, &c);
}

/* Every target as a row of this process, or -1. */
static wo_status own_columns(woi_softmax *s, const int32_t *labels, size_t n, wo_error *err)
{
    wo_status status = woi_grow(&s->columns, &s->columns_room, 0, n, sizeof *s->columns, err);
    for (size_t i = 0; !status && i < n; i++) s->columns[i] = woi_portion_row(&s->share, labels[i]);
    return status;
}

static wo_status run_exact(batch *t, const woi_targets *given, double *loss, wo_error *err)
{
    woi_softmax *s = t->s;
    const int32_t *labels = given->ids + given->indptr[0];
    if (!s->ranks) return run_step(t, given, labels, loss, err);
    wo_status status = own_columns(s, labels, (size_t)(given->indptr[t->n] - given->indptr[0]), err);
    return status ? status : run_step(t, given, s->columns, loss, err);
}

static wo_status run_sampled(const batch *t, const woi_targets *given, uint64_t step, double *loss, wo_error *err)
{
    woi_softmax *s = t->s;
    woi_wide *wide = t->wide;
    const int32_t *labels = given->ids + given->indptr[0];
    const size_t n_labels = (size_t)(given->indptr[t->n] - given->indptr[0]), d = wide->d;
    wo_status status = choose(s, labels, n_labels, step, err);
    if (status) return status;
    const size_t u = s->n_chosen;
    /* + 1: a process may have none of them */
    if ((status = woi_grow(&s->rows, &s->rows_room, 0, 3 * u * d + 1, sizeof(float), err)) ||
        (status = woi_grow(&s->biases, &s->biases_room, 0, 3 * u + 1, sizeof(float), err)) ||
        (status = own_columns(s, labels, n_labels, err)))
        return status;
    woi_wide small = small_layer(s, d);
    copy_rows(s, wide, &small, false);
    for (size_t i = 0; i < n_labels; i++)
        if (s->columns[i] >= 0) s->columns[i] = (int32_t)place_of(s->chosen, u, s->columns[i]);
    batch inner = *t;
    inner.wide = &small;
    inner.offset = s->offset;
    status = run_step(&inner, given, s->columns, loss, err);
    if (!status && t->adam) copy_rows(s, wide, &small, true);
    return status;
}

/* ---- Outside ----------------------------------------------------------------------------------------------- */

wo_status woi_softmax_create(size_t m, const woi_sampling *sampling, woi_workers workers, woi_softmax **result,
                             wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    woi_softmax *s = woi_alloc_zero(1, sizeof *s, err);
    if (!s) return WO_ERR_MEMORY;
    s->kernels = kernels;
    s->threads = woi_team_threads(workers.threads);
    s->ranks = workers.ranks;
    s->share = woi_portion_of(workers.ranks, m);
    s->seed = sampling->seed;
    s->m = m;
    s->n_sampled = sampling->n;
    if ((sampling->n && !(s->cumulative = woi_alloc(m + 1, sizeof *s->cumulative, err))) ||
        (s->ranks && !(s->exchange_bytes = woi_alloc(s->share.stride, sizeof *s->exchange_bytes, err)))) {
        woi_softmax_free(s);
        return WO_ERR_MEMORY;
    }
    if (sampling->n) s->cumulative[0] = 0;
    for (size_t i = 0; sampling->n && i < m; i++) s->cumulative[i + 1] = s->cumulative[i] + sampling->frequency[i] + 1;
    *result = s;
    return WO_OK;
}

void woi_softmax_free(woi_softmax *s)
{
    if (!s) return;
    void *const owned[] = {s->buffer,     s->block_max, s->block_sum, s->dq_parts, s->q_panels,
                           s->own,        s->lse,       s->targets,   s->starts,   s->drawn,
                           s->cumulative, s->chosen,    s->columns,   s->offset,   s->rows,
                           s->biases,     s->kept_w,    s->kept_b,    s->exchange, s->exchange_bytes};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(s);
}

wo_status woi_softmax_step(woi_softmax *s, woi_wide *wide, const woi_step *step, wo_error *err)
{
    const woi_targets *targets = step->targets;
    batch t = {.s = s,
               .wide = wide,
               .q = step->q,
               .n = step->n,
               .weights = targets->weights,
               .adam = step->adam,
               .dq = step->dq};
    wo_status status = s->n_sampled ? run_sampled(&t, targets, step->number, step->loss, err)
                                    : run_exact(&t, targets, step->loss, err);
    if (status || step->adam) return status;
    *step->square = 0;
    for (int part = 0; part < N_PARTS; part++) *step->square += s->part_square[part];
    return s->ranks ? s->ranks->sum_f64(s->ranks->ctx, step->square, 1, err) : WO_OK;
}

typedef struct applying {
    const woi_softmax *s;
    woi_wide *layer;
    float scale;
    const woi_adam_step *adam;
} applying;

static void apply_block(void *ctx, int worker, size_t block)
{
    const applying *a = ctx;
    const size_t d = a->layer->d, at = block * BLOCK, n = a->layer->m - at < BLOCK ? a->layer->m - at : BLOCK;
    float *dw = a->s->kept_w + at * d, *db = a->s->kept_b + at;
    (void)worker;
    for (size_t i = 0; a->scale != 1 && i < n * d; i++) dw[i] *= a->scale;
    for (size_t i = 0; a->scale != 1 && i < n; i++) db[i] *= a->scale;
    update_rows(a->s, a->layer, &(rows_gradient){at, n, dw, db}, a->adam);
}

void woi_softmax_apply(woi_softmax *s, woi_wide *wide, float scale, const woi_adam_step *adam)
{
    woi_wide small = small_layer(s, wide->d), *layer = s->n_sampled ? &small : wide;
    applying a = {s, layer, scale, adam};
    woi_team_for(s->threads, (layer->m + BLOCK - 1) / BLOCK, apply_block, &a);
    if (s->n_sampled) copy_rows(s, wide, &small, true);
}
