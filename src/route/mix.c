/* The mix learner: see mix.h. */
#include "route/mix.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/progress.h"
#include "base/ranges.h"
#include "base/rng.h"
#include "base/team.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sharpness and smoothing are those of the experiments that the learner comes from; a bound of 1/256 on p(c|q) leaves
 * the objective unchanged to three digits. */
#define SHARPNESS 10.0F /* s */
#define SMOOTHING 20.0F /* a */
enum {
    RE_ESTIMATE = 50,   /* steps between two estimates of N */
    ESTIMATE_ROOM = 64, /* cells of a query that N counts: those with p >= 1/64 */
    SOFT_ROOM = 256,    /* and that a gradient looks at: p >= 1/256 */
    BLOCK = 128,        /* queries whose gradients are summed on their own, so that threads do not matter */
};

/* Random streams: the sample, the planes of table l, the picks of table l. */
enum { STREAM_SAMPLE = 1000, STREAM_PLANES = 2000, STREAM_PICKS = 3000 };

/* ---- The sample -------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* `take` of n places, ascending: Floyd's sampling would need a set, a partial shuffle needs n places; n is a log's. */
static wo_status choose(size_t n, size_t take, uint64_t seed, size_t **chosen, wo_error *err)
{
    size_t *places = woi_alloc(n, sizeof *places, err);
    if (!places) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) places[i] = i;
    if (take < n) {
        for (size_t i = 0; i < take; i++) {
            const size_t other = i + woi_rng_below(seed, STREAM_SAMPLE, i, n - i), kept = places[i];
            places[i] = places[other];
            places[other] = kept;
        }
        qsort(places, take, sizeof *places, by_place);
    }
    *chosen = places;
    return WO_OK;
}

static void centre(const float *q, const size_t *chosen, woi_mix_sample *sample)
{
    const size_t n = sample->n, d = sample->d;
    double spread = 0;
    for (size_t j = 0; j < d; j++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += q[chosen[i] * d + j];
        sample->mean[j] = (float)(n ? sum / (double)n : 0);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < d; j++) {
            const float x = q[chosen[i] * d + j] - sample->mean[j];
            sample->x[i * d + j] = x;
            spread += (double)x * x;
        }
    sample->scale = spread > 0 ? (float)sqrt((double)n / spread) : 1;
    for (size_t i = 0; i < n * d; i++) sample->x[i] *= sample->scale;
}

/* columns and share from rows. */
static void transpose(woi_mix_sample *sample)
{
    woi_sparse *rows = &sample->rows, *columns = &sample->columns;
    double total = 0;
    memset(columns->indptr, 0, (sample->n_ids + 1) * sizeof *columns->indptr);
    for (int64_t at = 0; at < rows->indptr[rows->n]; at++) columns->indptr[rows->ids[at] + 1]++;
    for (size_t y = 0; y < sample->n_ids; y++) columns->indptr[y + 1] += columns->indptr[y];
    memset(sample->share, 0, sample->n_ids * sizeof *sample->share);
    for (size_t i = rows->n; i-- > 0;)
        for (int64_t at = rows->indptr[i]; at < rows->indptr[i + 1]; at++) {
            const int32_t y = rows->ids[at];
            const int64_t to = --columns->indptr[y + 1];
            columns->ids[to] = (int32_t)i;
            columns->weights[to] = rows->weights[at];
            sample->share[y] += rows->weights[at];
            total += rows->weights[at];
        }
    /* Filling from the back moved every end to its start: one place down. */
    memmove(columns->indptr, columns->indptr + 1, sample->n_ids * sizeof *columns->indptr);
    columns->indptr[sample->n_ids] = rows->indptr[rows->n];
    for (size_t y = 0; y < sample->n_ids; y++) sample->share[y] /= (float)(total > 0 ? total : 1);
}

wo_status woi_mix_sample_make(const float *q, size_t d, const woi_sparse *needs, const woi_mix_options *options,
                              woi_mix_sample *sample, wo_error *err)
{
    const size_t n = needs->n < options->max_queries ? needs->n : options->max_queries;
    *sample = (woi_mix_sample){.n = n, .d = d, .rows.n = n};
    size_t *chosen = NULL;
    int32_t *known = NULL;
    wo_status status = choose(needs->n, n, options->seed, &chosen, err);
    if (status) return status;
    size_t pairs = 0;
    for (size_t i = 0; i < n; i++) pairs += (size_t)(needs->indptr[chosen[i] + 1] - needs->indptr[chosen[i]]);
    woi_sparse *rows = &sample->rows, *columns = &sample->columns;
    sample->x = woi_alloc(n * d, sizeof *sample->x, err);
    sample->mean = woi_alloc(d, sizeof *sample->mean, err);
    rows->indptr = woi_alloc(n + 1, sizeof *rows->indptr, err);
    rows->ids = woi_alloc(pairs, sizeof *rows->ids, err);
    rows->weights = woi_alloc(pairs, sizeof *rows->weights, err);
    columns->ids = woi_alloc(pairs, sizeof *columns->ids, err);
    columns->weights = woi_alloc(pairs, sizeof *columns->weights, err);
    known = woi_alloc(pairs, sizeof *known, err);
    status = WO_ERR_MEMORY;
    if (!sample->x || !sample->mean || !rows->indptr || !rows->ids || !rows->weights || !columns->ids ||
        !columns->weights || !known)
        goto done;
    int64_t used = 0;
    rows->indptr[0] = 0;
    for (size_t i = 0; i < n; i++) {
        for (int64_t at = needs->indptr[chosen[i]]; at < needs->indptr[chosen[i] + 1]; at++, used++) {
            known[used] = rows->ids[used] = needs->ids[at];
            rows->weights[used] = needs->weights[at];
        }
        rows->indptr[i + 1] = used;
    }
    woi_ids_sort(known, pairs);
    for (size_t i = 0; i < pairs; i++)
        if (i == 0 || known[i] != known[i - 1]) known[sample->n_ids++] = known[i];
    for (size_t i = 0; i < pairs; i++) {
        const int32_t *at = woi_ids_find(known, sample->n_ids, rows->ids[i]);
        rows->ids[i] = (int32_t)(at - known);
    }
    columns->n = sample->n_ids;
    columns->indptr = woi_alloc(sample->n_ids + 1, sizeof *columns->indptr, err);
    sample->share = woi_alloc(sample->n_ids, sizeof *sample->share, err);
    if (!columns->indptr || !sample->share) goto done;
    transpose(sample);
    centre(q, chosen, sample);
    status = WO_OK;
done:
    if (status) woi_mix_sample_free(sample);
    woi_free(chosen);
    woi_free(known);
    return status;
}

void woi_mix_sample_free(woi_mix_sample *sample)
{
    woi_free(sample->x);
    woi_free(sample->mean);
    woi_free(sample->share);
    woi_sparse_free(&sample->rows);
    woi_sparse_free(&sample->columns);
    *sample = (woi_mix_sample){0};
}

/* ---- One table --------------------------------------------------------------------------------------------- */

wo_status woi_mix_table_create(const woi_mix_sample *sample, uint32_t K, uint64_t seed, uint64_t stream,
                               woi_mix_table *table, wo_error *err)
{
    const size_t width = ((size_t)K + 15) / 16 * 16, n_cells = (size_t)1 << K, d = sample->d;
    *table = (woi_mix_table){.K = K, .d = d, .width = width};
    table->theta = woi_alloc_zero((d + 1) * width, sizeof *table->theta, err);
    table->inverse = woi_alloc(n_cells, sizeof *table->inverse, err);
    table->start = woi_alloc(sample->n_ids, sizeof *table->start, err);
    table->count = woi_alloc_zero(sample->n_ids, sizeof *table->count, err);
    table->soft_cell = woi_alloc(sample->n * ESTIMATE_ROOM, sizeof *table->soft_cell, err);
    table->soft_p = woi_alloc(sample->n * ESTIMATE_ROOM, sizeof *table->soft_p, err);
    table->soft_n = woi_alloc(sample->n, sizeof *table->soft_n, err);
    if (!table->theta || !table->inverse || !table->start || !table->count || !table->soft_cell || !table->soft_p ||
        !table->soft_n) {
        woi_mix_table_free(table);
        return WO_ERR_MEMORY;
    }
    for (size_t j = 0; j < d; j++)
        for (uint32_t k = 0; k < K; k++) table->theta[j * width + k] = woi_rng_normal(seed, stream, j * K + k);
    for (size_t c = 0; c < n_cells; c++) table->inverse[c] = 1 / SMOOTHING;
    return WO_OK;
}

void woi_mix_table_free(woi_mix_table *table)
{
    woi_free(table->theta);
    woi_free(table->inverse);
    woi_free(table->start);
    woi_free(table->count);
    woi_free(table->cell);
    woi_free(table->mass);
    woi_free(table->soft_cell);
    woi_free(table->soft_p);
    woi_free(table->soft_n);
    *table = (woi_mix_table){0};
}

/* Cells of a query. */
typedef struct softs {
    uint32_t cell[SOFT_ROOM];
    float p[SOFT_ROOM];
} softs;

/* The soft bits of a query x, then its cells with p of at least `bound` (and so at most 1/bound of them). Returns how
 * many. */
static uint32_t soften(const woi_kernels *kernels, const woi_mix_table *table, const float *x, float bound,
                       float sigma[WOI_MAX_BITS], softs *out)
{
    softs spare;
    float z[2 * WOI_MAX_BITS];
    uint16_t bits[WOI_MAX_BITS];
    kernels->project(x, 1, table->theta, table->theta + table->d * table->width, table->d, table->width, z, bits);
    softs *from = out, *to = &spare;
    from->cell[0] = 0;
    from->p[0] = 1;
    uint32_t n = 1;
    for (uint32_t k = 0; k < table->K; k++) {
        sigma[k] = 1 / (1 + expf(-SHARPNESS * z[k]));
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n; i++) {
            const float on = from->p[i] * sigma[k], off = from->p[i] - on;
            if (off >= bound) {
                to->cell[kept] = from->cell[i];
                to->p[kept++] = off;
            }
            if (on >= bound) {
                to->cell[kept] = from->cell[i] | 1U << k;
                to->p[kept++] = on;
            }
        }
        softs *swap = from;
        from = to;
        to = swap;
        n = kept;
    }
    if (from != out) {
        memcpy(out->cell, from->cell, n * sizeof *out->cell);
        memcpy(out->p, from->p, n * sizeof *out->p);
    }
    return n;
}

/* What estimating shares between threads. */
typedef struct estimating {
    const woi_kernels *kernels;
    const woi_mix_sample *sample;
    woi_mix_table *table;
    float *dense;      /* (threads, 2^K) zeros */
    uint32_t *touched; /* (threads, 2^K) */
} estimating;

static void soften_range(void *own, int worker, size_t first, size_t end)
{
    const estimating *e = own;
    const woi_mix_sample *sample = e->sample;
    woi_mix_table *table = e->table;
    (void)worker;
    for (size_t i = first; i < end; i++) {
        softs out;
        float sigma[WOI_MAX_BITS];
        const uint32_t n = soften(e->kernels, table, sample->x + i * sample->d, 1.0F / ESTIMATE_ROOM, sigma, &out);
        table->soft_n[i] = n;
        memcpy(table->soft_cell + i * ESTIMATE_ROOM, out.cell, n * sizeof *out.cell);
        memcpy(table->soft_p + i * ESTIMATE_ROOM, out.p, n * sizeof *out.p);
    }
}

static int by_cell(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The list of class y: sums in `dense` (2^K zeros, left as zeros), the cells with something in them in `touched`. */
static void estimate_one(const woi_mix_sample *sample, woi_mix_table *table, size_t y, float *dense, uint32_t *touched)
{
    const woi_sparse *columns = &sample->columns;
    uint32_t n = 0;
    for (int64_t at = columns->indptr[y]; at < columns->indptr[y + 1]; at++) {
        const size_t base = (size_t)columns->ids[at] * ESTIMATE_ROOM;
        for (uint32_t s = 0; s < table->soft_n[columns->ids[at]]; s++) {
            const uint32_t cell = table->soft_cell[base + s];
            if (dense[cell] == 0) touched[n++] = cell;
            dense[cell] += columns->weights[at] * table->soft_p[base + s];
        }
    }
    qsort(touched, n, sizeof *touched, by_cell);
    for (uint32_t i = 0; i < n; i++) {
        table->cell[table->start[y] + i] = touched[i];
        table->mass[table->start[y] + i] = dense[touched[i]];
        dense[touched[i]] = 0;
    }
    table->count[y] = n;
}

static void estimate_range(void *own, int worker, size_t first, size_t end)
{
    const estimating *e = own;
    const size_t own_cells = (size_t)worker << e->table->K;
    for (size_t y = first; y < end; y++)
        estimate_one(e->sample, e->table, y, e->dense + own_cells, e->touched + own_cells);
}

wo_status woi_mix_estimate(const woi_mix_sample *sample, woi_mix_table *table, int threads, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const size_t n_cells = (size_t)1 << table->K;
    enum { QUERIES_AT_ONCE = 256, CLASSES_AT_ONCE = 64 };
    threads = woi_team_threads(threads);
    estimating e = {.kernels = kernels, .sample = sample, .table = table};
    woi_team_ranges(threads, sample->n, QUERIES_AT_ONCE, soften_range, &e);
    /* A list is never longer than the soft cells of its queries, nor than the table. */
    size_t room = 0;
    for (size_t y = 0; y < sample->n_ids; y++) {
        size_t most = 0;
        for (int64_t at = sample->columns.indptr[y]; at < sample->columns.indptr[y + 1]; at++)
            most += table->soft_n[sample->columns.ids[at]];
        table->start[y] = (int64_t)room;
        room += most < n_cells ? most : n_cells;
    }
    if (room > table->room) {
        woi_free(table->cell);
        woi_free(table->mass);
        table->room = room + room / 4;
        table->cell = woi_alloc(table->room, sizeof *table->cell, err);
        table->mass = woi_alloc(table->room, sizeof *table->mass, err);
        if (!table->cell || !table->mass) return WO_ERR_MEMORY;
    }
    float *dense = e.dense = woi_alloc_zero((size_t)threads * n_cells, sizeof *dense, err);
    uint32_t *touched = e.touched = woi_alloc((size_t)threads * n_cells, sizeof *touched, err);
    double *totals = woi_alloc_zero(n_cells, sizeof *totals, err);
    const bool there = dense && touched && totals;
    if (there) {
        woi_team_ranges(threads, sample->n_ids, CLASSES_AT_ONCE, estimate_range, &e);
        for (size_t i = 0; i < sample->n; i++) {
            double weight = 0;
            for (int64_t at = sample->rows.indptr[i]; at < sample->rows.indptr[i + 1]; at++)
                weight += sample->rows.weights[at];
            for (uint32_t s = 0; s < table->soft_n[i]; s++)
                totals[table->soft_cell[i * ESTIMATE_ROOM + s]] += weight * table->soft_p[i * ESTIMATE_ROOM + s];
        }
        for (size_t c = 0; c < n_cells; c++) table->inverse[c] = (float)(1 / (totals[c] + SMOOTHING));
    }
    woi_free(dense);
    woi_free(touched);
    woi_free(totals);
    return there ? WO_OK : WO_ERR_MEMORY;
}

/* ---- The gradient ------------------------------------------------------------------------------------------ */

/* Where `cell` lies in the list of class y, or -1. */
static int64_t find_cell(const woi_mix_table *table, size_t y, uint32_t cell)
{
    if (!table->count[y]) return -1; /* and perhaps no list at all */
    const uint32_t *list = table->cell + table->start[y];
    uint32_t low = 0, high = table->count[y];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (list[middle] < cell)
            low = middle + 1;
        else
            high = middle;
    }
    return low < table->count[y] && list[low] == cell ? table->start[y] + low : -1;
}

typedef struct summing {
    const woi_kernels *kernels;
    const woi_mix_sample *sample;
    const woi_mix_table *table;
    const size_t *picks;
    float *parts; /* by block of picks: the gradient, */
    double *sums; /* objective and weight */
} summing;

/* One query: adds to the objective and the weight of its block, and gives the derivative by z. */
static void differentiate(const summing *all, size_t i, double sums[2], float dz[WOI_MAX_BITS])
{
    const woi_mix_sample *sample = all->sample;
    const woi_mix_table *table = all->table;
    softs soft;
    float sigma[WOI_MAX_BITS], part[SOFT_ROOM], pull[SOFT_ROOM];
    const uint32_t n = soften(all->kernels, table, sample->x + i * sample->d, 1.0F / SOFT_ROOM, sigma, &soft);
    float background = 0, background_pull = 0, total = 0;
    for (uint32_t s = 0; s < n; s++) {
        background += soft.p[s] * SMOOTHING * table->inverse[soft.cell[s]];
        pull[s] = 0;
    }
    for (int64_t at = sample->rows.indptr[i]; at < sample->rows.indptr[i + 1]; at++) {
        const size_t y = (size_t)sample->rows.ids[at];
        float sum = sample->share[y] * background;
        for (uint32_t s = 0; s < n; s++) {
            const int64_t place = find_cell(table, y, soft.cell[s]);
            part[s] = place < 0 ? 0 : soft.p[s] * table->mass[place] * table->inverse[soft.cell[s]];
            sum += part[s];
        }
        if (!(sum > 0)) continue;
        const float w = sample->rows.weights[at];
        for (uint32_t s = 0; s < n; s++) pull[s] += w * part[s] / sum;
        background_pull += w * sample->share[y] / sum;
        sums[0] += w * logf(sum);
        total += w;
    }
    for (uint32_t k = 0; k < table->K; k++) dz[k] = -total * sigma[k];
    for (uint32_t s = 0; s < n; s++) {
        const float r = pull[s] + background_pull * soft.p[s] * SMOOTHING * table->inverse[soft.cell[s]];
        for (uint32_t k = 0; k < table->K; k++)
            if (soft.cell[s] >> k & 1) dz[k] += r;
    }
    for (uint32_t k = 0; k < table->K; k++) dz[k] *= SHARPNESS;
    sums[1] += total;
}

static void sum_block(void *own, int worker, size_t first, size_t end)
{
    const summing *s = own;
    const size_t d = s->sample->d, width = s->table->width, b = first / BLOCK;
    float *part = s->parts + b * (d + 1) * width;
    (void)worker;
    for (size_t at = first; at < end; at++) {
        float dz[2 * WOI_MAX_BITS] = {0};
        const float *x = s->sample->x + s->picks[at] * d;
        differentiate(s, s->picks[at], &s->sums[2 * b], dz);
        for (size_t j = 0; j < d; j++)
            for (size_t k = 0; k < width; k++) part[j * width + k] += x[j] * dz[k];
        for (size_t k = 0; k < width; k++) part[d * width + k] += dz[k];
    }
}

wo_status woi_mix_gradient(const woi_mix_sample *sample, const woi_mix_table *table, const woi_mix_batch *batch,
                           double *objective, float *gradient, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const size_t size = (sample->d + 1) * table->width, n_blocks = (batch->n + BLOCK - 1) / BLOCK;
    float *parts = woi_alloc_zero(n_blocks * size, sizeof *parts, err);
    double *sums = woi_alloc_zero(2 * n_blocks, sizeof *sums, err);
    const bool there = parts && sums;
    if (there) {
        woi_team_ranges(batch->threads, batch->n, BLOCK, sum_block,
                        &(summing){kernels, sample, table, batch->picks, parts, sums});
        double total = 0, weight = 0;
        memset(gradient, 0, size * sizeof *gradient);
        for (size_t b = 0; b < n_blocks; b++) {
            total += sums[2 * b];
            weight += sums[2 * b + 1];
            for (size_t i = 0; i < size; i++) gradient[i] += parts[b * size + i];
        }
        const float over = (float)(weight > 0 ? 1 / weight : 0);
        for (size_t i = 0; i < size; i++) gradient[i] *= over;
        *objective = weight > 0 ? total / weight : 0;
    }
    woi_free(parts);
    woi_free(sums);
    return there ? WO_OK : WO_ERR_MEMORY;
}

/* ---- Learning ---------------------------------------------------------------------------------------------- */

/* What all tables are learned by. */
typedef struct learning {
    const woi_mix_sample *sample;
    const woi_mix_options *options;
    uint32_t L;
    const wo_progress *progress;
} learning;

/* Table l. */
static wo_status learn_table(const learning *all, uint32_t l, woi_mix_table *table, wo_error *err)
{
    const woi_mix_sample *sample = all->sample;
    const woi_mix_options *options = all->options;
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const size_t size = (sample->d + 1) * table->width;
    const double beta1 = 0.9, beta2 = 0.999;
    float *gradient = woi_alloc(size, sizeof *gradient, err), *moments = woi_alloc_zero(2 * size, sizeof *moments, err);
    size_t *picks = woi_alloc(options->batch, sizeof *picks, err);
    const woi_mix_batch batch = {.picks = picks, .n = options->batch, .threads = options->threads};
    wo_status status = gradient && moments && picks ? WO_OK : WO_ERR_MEMORY;
    for (uint32_t step = 0; !status && step < options->steps; step++) {
        double objective;
        if (step % RE_ESTIMATE == 0) {
            if ((status = woi_progress(all->progress, "learning hyperplanes", (uint64_t)l * options->steps + step,
                                       (uint64_t)all->L * options->steps, err)) ||
                (status = woi_mix_estimate(sample, table, options->threads, err)))
                break;
        }
        for (size_t i = 0; i < options->batch; i++)
            picks[i] = woi_rng_below(options->seed, STREAM_PICKS + l, (uint64_t)step * options->batch + i, sample->n);
        status = woi_mix_gradient(sample, table, &batch, &objective, gradient, err);
        if (status) break;
        for (size_t i = 0; i < size; i++) gradient[i] = -gradient[i]; /* Adam descends */
        const woi_adam_step adam = {(float)beta1, (float)beta2, (float)(options->rate / (1 - pow(beta1, step + 1))),
                                    (float)(1 / sqrt(1 - pow(beta2, step + 1))), 1e-8F};
        kernels->adam(table->theta, moments, moments + size, gradient, size, &adam);
    }
    woi_free(gradient);
    woi_free(moments);
    woi_free(picks);
    return status;
}

/* The table with its centring and scaling folded in: to (d + 1, K), the last row offsets. */
static void fold(const woi_mix_sample *sample, const woi_mix_table *table, float *to)
{
    const size_t d = sample->d, width = table->width, K = table->K;
    for (uint32_t k = 0; k < K; k++) {
        double offset = table->theta[d * width + k];
        for (size_t j = 0; j < d; j++) {
            const float t = table->theta[j * width + k] * sample->scale;
            to[j * K + k] = t;
            offset -= (double)t * sample->mean[j];
        }
        to[d * K + k] = (float)offset;
    }
}

/* Puts a folded table among the others. */
static void place(const float *folded, uint32_t l, woi_hash *hash)
{
    const size_t d = hash->d, K = hash->K, first = l * K;
    for (size_t j = 0; j < d; j++)
        memcpy(hash->planes + j * hash->n_planes + first, folded + j * K, K * sizeof *folded);
    memcpy(hash->offsets + first, folded + d * K, K * sizeof *folded);
}

wo_status woi_mix_learn(const float *q, const woi_sparse *needs, const woi_mix_options *options,
                        const wo_progress *progress, woi_hash *hash, wo_error *err)
{
    woi_mix_options o = *options;
    o.threads = woi_team_threads(o.threads);
    woi_mix_sample sample;
    wo_status status = woi_mix_sample_make(q, hash->d, needs, &o, &sample, err);
    if (status) return status;
    if (sample.n == 0) o.steps = 0;
    const learning all = {.sample = &sample, .options = &o, .L = hash->L, .progress = progress};
    const size_t each = (hash->d + 1) * hash->K;
    float *folded = woi_alloc(hash->L * each, sizeof *folded, err);
    if (!folded) status = WO_ERR_MEMORY;
    const woi_range own = woi_range_own(o.together, hash->L); /* tables know nothing of each other */
    for (uint32_t l = (uint32_t)own.first; !status && l < own.end; l++) {
        woi_mix_table table;
        status = woi_mix_table_create(&sample, hash->K, o.seed, STREAM_PLANES + l, &table, err);
        if (status) break;
        status = learn_table(&all, l, &table, err);
        if (!status) fold(&sample, &table, folded + l * each);
        woi_mix_table_free(&table);
    }
    if (!status) status = woi_range_gather(o.together, folded, hash->L, each * sizeof *folded, err);
    for (uint32_t l = 0; !status && l < hash->L; l++) place(folded + l * each, l, hash);
    woi_free(folded);
    woi_mix_sample_free(&sample);
    return status;
}
