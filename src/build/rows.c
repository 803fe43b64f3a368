/* Classes where their rows lead: see rows.h. */
#include "build/rows.h"

#include "base/error.h"
#include "base/progress.h"
#include "base/rng.h"
#include "index/together.h"
#include "kernels/gemm.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    PAIRS = 1 << 16,          /* queries that A is learned from, at most */
    ROWS_AT_ONCE = 256,       /* that a thread takes */
    ROWS_A_LEAF = 32,         /* that centres are learned from, at most, */
    MOST_ROWS = 1 << 19,      /* or so many */
    PARTS = 64,               /* reports of progress */
    STREAM_ROWS = 0x726f7773, /* of the seed */
};
static const double ridge = 1e-3; /* of the mean square of a coordinate of rows: they may lie in fewer dimensions */

void woi_expected_free(woi_expected *e)
{
    woi_free(e->turn);
    woi_free(e->axes);
    woi_free(e->shift);
    *e = (woi_expected){0};
}

void woi_placed_free(woi_placed *placed)
{
    woi_free(placed->of);
    woi_free(placed->weights);
    *placed = (woi_placed){0};
}

/* ---- Learning A and a -------------------------------------------------------------------------------------- */

/* Least squares: rows y (n, r + 1), which end with 1, and points x (n, r), each pair with a weight. */
typedef struct squares {
    size_t n, r;
    const float *y, *x, *weights;
    double *left;  /* (r + 1, r + 1): the sum of y y^T */
    double *right; /* (r + 1, r): the sum of y x^T, then what solves it */
} squares;

static void add_row(void *own, int worker, size_t a)
{
    const squares *s = own;
    const size_t r = s->r;
    double *left = s->left + a * (r + 1), *right = s->right + a * r;
    (void)worker;
    memset(left, 0, (r + 1) * sizeof *left);
    memset(right, 0, r * sizeof *right);
    for (size_t i = 0; i < s->n; i++) {
        const float *y = s->y + i * (r + 1), *x = s->x + i * r;
        const double weight = (double)s->weights[i] * (double)y[a];
        for (size_t b = 0; b <= a; b++) left[b] += weight * (double)y[b];
        for (size_t b = 0; b < r; b++) right[b] += weight * (double)x[b];
    }
}

/* One column of the right side, by the triangle L of L L^T = left. */
static void solve_column(void *own, int worker, size_t column)
{
    const squares *s = own;
    const size_t n = s->r + 1, r = s->r;
    double *x = s->right + column;
    (void)worker;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) x[i * r] -= s->left[i * n + j] * x[j * r];
        x[i * r] /= s->left[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t j = i + 1; j < n; j++) x[i * r] -= s->left[j * n + i] * x[j * r];
        x[i * r] /= s->left[i * n + i];
    }
}

static void solve(squares *s, int threads)
{
    const size_t r = s->r, n = r + 1;
    double *left = s->left, trace = 0;
    woi_team_for(threads, n, add_row, s);
    for (size_t i = 0; i < r; i++) trace += left[i * n + i];
    const double more = trace > 0 ? ridge * trace / (double)r : 1;
    for (size_t i = 0; i < n; i++) left[i * n + i] += i < r ? more : DBL_MIN;
    for (size_t i = 0; i < n; i++) /* Cholesky */
        for (size_t j = 0; j <= i; j++) {
            double sum = left[i * n + j];
            for (size_t k = 0; k < j; k++) sum -= left[i * n + k] * left[j * n + k];
            left[i * n + j] = i == j ? sqrt(fmax(sum, DBL_MIN)) : sum / left[j * n + j];
        }
    woi_team_for(threads, r, solve_column, s);
}

/* What pairs are made by. */
typedef struct pairing {
    const wo_index *index;
    const wo_log *log;
    const woi_sparse *needs;
    const woi_kernels *kernels;
    const float *axes;
    size_t n;               /* queries that are used */
    float *y, *x, *weights; /* (n, r + 1), (n, r), (n) */
    double *lengths;        /* (n) */
    uint8_t *own;           /* (n): whether the class is one of this process */
    float *product;         /* (threads, WOI_GEMM_SCRATCH) */
    char *scratch;          /* (threads, each) */
    size_t each;
} pairing;

/* Pair i is of one query, and of the class that it needed most: of equal ones the first, of none weight 0. The row of
 * another process's class is left zero. */
static void make_pairs(void *own, int worker, size_t first, size_t end)
{
    const pairing *p = own;
    const wo_index *index = p->index;
    const size_t d = index->rows.d, r = index->tree.r;
    for (size_t i = first; i < end; i++) {
        const size_t query = woi_part_start(i, p->n, p->log->n);
        float *y = p->y + i * (r + 1), most = 0;
        int32_t id = -1;
        for (int64_t at = p->needs->indptr[query]; at < p->needs->indptr[query + 1]; at++) {
            if (!(p->needs->weights[at] > most)) continue;
            most = p->needs->weights[at];
            id = p->needs->ids[at];
        }
        const int32_t row = id < 0 ? -1 : woi_shard_row(&index->shard, index->rows.m, id);
        p->own[i] = row >= 0;
        const float *q = p->log->queries + query * d;
        double square = 0;
        for (size_t j = 0; j < d; j++) square += (double)q[j] * (double)q[j];
        p->lengths[i] = sqrt(square);
        p->weights[i] =
            id >= 0 && woi_tree_turn(&index->tree, p->kernels, q, p->scratch + (size_t)worker * p->each, p->x + i * r);
        memset(y, 0, (r + 1) * sizeof *y);
        if (p->weights[i] == 0) {
            memset(p->x + i * r, 0, r * sizeof *p->x);
            continue;
        }
        y[r] = 1;
        if (row < 0) continue;
        woi_gemm(p->kernels,
                 &(woi_product){.n = 1,
                                .m = r,
                                .k = d,
                                .a = {index->rows.w + (size_t)row * d, d, WOI_BY_ROWS},
                                .b = {p->axes, d, WOI_BY_ROWS},
                                .c = y,
                                .ldc = r},
                 p->product + (size_t)worker * WOI_GEMM_SCRATCH);
    }
}

/* Records of places, in one list of each process: what each has of so many floats a place, for all. */
typedef struct spread {
    size_t n, floats;
    const uint8_t *own; /* (n): whether the place is this process's */
    float *to;          /* (n, stride): the first `floats` of each place */
    size_t stride;
} spread;

static wo_status hand_round(const wo_collective *together, const spread *s, wo_error *err)
{
    if (!together || together->size == 1) return WO_OK;
    const size_t words = 1 + s->floats;
    size_t n_own = 0, at = 0, bytes = 0;
    for (size_t i = 0; i < s->n; i++) n_own += s->own[i];
    uint32_t *list = woi_alloc(n_own, words * sizeof *list, err), *all = NULL;
    wo_status status = list ? WO_OK : WO_ERR_MEMORY;
    for (size_t i = 0; list && i < s->n; i++) {
        if (!s->own[i]) continue;
        list[at] = (uint32_t)i;
        memcpy(list + at + 1, s->to + i * s->stride, s->floats * sizeof *s->to);
        at += words;
    }
    if (!status) status = woi_together_lists(together, list, n_own * words * sizeof *list, (void **)&all, &bytes, err);
    for (at = 0; !status && at + words <= bytes / sizeof *all; at += words)
        if (all[at] < s->n) memcpy(s->to + all[at] * s->stride, all + at + 1, s->floats * sizeof *s->to);
    woi_free(list);
    woi_free(all);
    return status;
}

/* turn = A axes, A being the transpose of what was solved. */
static void combine(const squares *s, woi_expected *e)
{
    const size_t d = e->d, r = e->r;
    for (size_t a = 0; a < r; a++) {
        for (size_t j = 0; j < d; j++) {
            double sum = 0;
            for (size_t b = 0; b < r; b++) sum += s->right[b * r + a] * (double)e->axes[b * d + j];
            e->turn[a * d + j] = (float)sum;
        }
        e->shift[a] = (float)s->right[r * r + a];
    }
}

wo_status woi_expected_learn(const wo_index *index, const wo_log *log, const woi_sparse *needs, woi_expected *e,
                             wo_error *err)
{
    const size_t d = index->rows.d, r = index->tree.r, n = log->n < PAIRS ? log->n : PAIRS;
    const int threads = woi_team_threads(index->options.threads);
    *e = (woi_expected){.d = d,
                        .r = r,
                        .turn = woi_alloc(r, d * sizeof(float), err),
                        .axes = woi_alloc(r, d * sizeof(float), err),
                        .shift = woi_alloc(r, sizeof(float), err)};
    pairing p = {.index = index,
                 .log = log,
                 .needs = needs,
                 .kernels = woi_kernels_get(err),
                 .axes = e->axes,
                 .n = n,
                 .y = woi_alloc(n, (r + 1) * sizeof(float), err),
                 .x = woi_alloc(n, r * sizeof(float), err),
                 .weights = woi_alloc(n, sizeof(float), err),
                 .lengths = woi_alloc(n, sizeof(double), err),
                 .own = woi_alloc(n, 1, err),
                 .product = woi_alloc((size_t)threads, WOI_GEMM_SCRATCH * sizeof(float), err),
                 .each = (woi_tree_scratch(&index->tree, 1, 1) + WOI_ALIGN - 1) / WOI_ALIGN * WOI_ALIGN};
    p.scratch = woi_alloc((size_t)threads, p.each, err);
    squares s = {n,
                 r,
                 p.y,
                 p.x,
                 p.weights,
                 woi_alloc(r + 1, (r + 1) * sizeof(double), err),
                 woi_alloc(r + 1, r * sizeof(double), err)};
    const bool there = e->turn && e->axes && e->shift && p.kernels && p.y && p.x && p.weights && p.lengths && p.own &&
                       p.product && p.scratch && s.left && s.right;
    wo_status status = there ? WO_OK : WO_ERR_MEMORY;
    if (there) {
        woi_tree_axes(&index->tree, e->axes);
        woi_team_ranges(threads, n, ROWS_AT_ONCE, make_pairs, &p);
        status = hand_round(index->options.together, &(spread){n, r, p.own, p.y, r + 1}, err);
    }
    if (!status) {
        double length = 0;
        for (size_t i = 0; i < n; i++) length += p.lengths[i];
        e->length = (float)(length / (double)n);
        solve(&s, threads);
        combine(&s, e);
    }
    void *const owned[] = {p.y, p.x, p.weights, p.lengths, p.own, p.product, p.scratch, s.left, s.right};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
    if (status) woi_expected_free(e);
    return status;
}

/* ---- Points ------------------------------------------------------------------------------------------------ */

void woi_expect(const woi_kernels *kernels, const woi_expected *e, const woi_expecting *call)
{
    const size_t d = e->d, r = e->r, n = call->n;
    woi_product product = {.n = n,
                           .m = r,
                           .k = d,
                           .a = {call->w, d, WOI_BY_ROWS},
                           .b = {e->turn, d, WOI_BY_ROWS},
                           .c = call->points,
                           .ldc = r,
                           .start = e->shift};
    woi_gemm(kernels, &product, call->product);
    if (!call->weights) return;
    product.b.x = e->axes;
    product.c = call->z;
    product.start = NULL;
    woi_gemm(kernels, &product, call->product);
    for (size_t i = 0; i < n; i++) {
        double dot = 0;
        for (size_t j = 0; j < r; j++)
            dot += (double)call->z[i * r + j] * ((double)call->points[i * r + j] + (double)e->shift[j]);
        call->weights[i] = (float)((double)e->length / 2 * dot + (call->b ? (double)call->b[i] : 0));
    }
}

/* What threads do with rows. */
typedef struct placing {
    const wo_index *index;
    const woi_expected *e;
    const woi_kernels *kernels;
    woi_placed *to;
    size_t first, n;                    /* rows of this part; or of the sample */
    float *sample;                      /* (n, r), or NULL: rows are placed */
    uint8_t *own;                       /* (n): whether the sampled class is one of this process */
    float *rows, *points, *z, *product; /* of each thread */
    char *scratch;
    size_t each;
} placing;

static void placing_free(placing *p)
{
    void *const owned[] = {p->rows, p->points, p->z, p->product, p->scratch};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
}

static wo_status placing_make(const wo_index *index, const woi_expected *e, placing *p, wo_error *err)
{
    const size_t threads = (size_t)woi_team_threads(index->options.threads), n = threads * ROWS_AT_ONCE;
    *p = (placing){.index = index,
                   .e = e,
                   .kernels = woi_kernels_get(err),
                   .rows = woi_alloc(n, e->d * sizeof(float), err),
                   .points = woi_alloc(n, e->r * sizeof(float), err),
                   .z = woi_alloc(n, e->r * sizeof(float), err),
                   .product = woi_alloc(threads, WOI_GEMM_SCRATCH * sizeof(float), err)};
    return p->kernels && p->rows && p->points && p->z && p->product ? WO_OK : WO_ERR_MEMORY;
}

/* Of classes that are drawn by their numbers in the whole layer, the rows that are here. */
static void sample_range(void *own, int worker, size_t first, size_t end)
{
    const placing *p = own;
    const wo_index *index = p->index;
    const size_t d = p->e->d, r = p->e->r, m = woi_shard_whole(&index->shard, index->rows.m);
    float *rows = p->rows + (size_t)worker * ROWS_AT_ONCE * d, *points = p->points + (size_t)worker * ROWS_AT_ONCE * r;
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        const size_t low = woi_part_start(i, p->n, m), high = woi_part_start(i + 1, p->n, m);
        const size_t id = low + (size_t)woi_rng_below(index->options.seed, STREAM_ROWS, i, high - low);
        const int32_t row = woi_shard_row(&index->shard, index->rows.m, (int32_t)id);
        p->own[i] = row >= 0;
        if (row >= 0) memcpy(rows + n++ * d, index->rows.w + (size_t)row * d, d * sizeof *rows);
    }
    woi_expect(p->kernels, p->e,
               &(woi_expecting){
                   .w = rows, .n = n, .points = points, .product = p->product + (size_t)worker * WOI_GEMM_SCRATCH});
    for (size_t i = first; i < end; i++) {
        if (!p->own[i]) continue;
        memcpy(p->sample + i * r, points, r * sizeof *points);
        points += r;
    }
}

wo_status woi_rows_learn(wo_index *index, const woi_expected *e, const woi_tree_options *options, wo_error *err)
{
    const size_t m = woi_shard_whole(&index->shard, index->rows.m), leaves = (size_t)options->nodes * options->leaves;
    const size_t wanted = leaves < MOST_ROWS / ROWS_A_LEAF ? leaves * ROWS_A_LEAF : MOST_ROWS;
    placing p;
    wo_status status = placing_make(index, e, &p, err);
    p.n = wanted < m ? wanted : m;
    p.sample = woi_alloc(p.n, e->r * sizeof *p.sample, err);
    p.own = woi_alloc(p.n, 1, err);
    if (!p.sample || !p.own) status = WO_ERR_MEMORY;
    if (!status) woi_team_ranges(woi_team_threads(options->threads), p.n, ROWS_AT_ONCE, sample_range, &p);
    if (!status) status = hand_round(options->together, &(spread){p.n, e->r, p.own, p.sample, e->r}, err);
    if (!status) status = woi_tree_learn_points(p.sample, p.n, options, &index->tree, err);
    woi_free(p.sample);
    woi_free(p.own);
    placing_free(&p);
    return status;
}

/* Rows first .. end of a part. */
static void place_range(void *own, int worker, size_t from, size_t to)
{
    const placing *p = own;
    const wo_index *index = p->index;
    const size_t first = p->first + from, n = to - from, r = p->e->r, thread = (size_t)worker;
    float *points = p->points + thread * ROWS_AT_ONCE * r;
    uint32_t found[ROWS_AT_ONCE] = {0}, each = p->to->each, *of = p->to->of + first * each;
    woi_expect(p->kernels, p->e,
               &(woi_expecting){.w = index->rows.w + first * p->e->d,
                                .b = index->rows.b ? index->rows.b + first : NULL,
                                .n = n,
                                .points = points,
                                .weights = p->to->weights + first,
                                .z = p->z + thread * ROWS_AT_ONCE * r,
                                .product = p->product + thread * WOI_GEMM_SCRATCH});
    woi_tree_route(&index->tree, p->kernels,
                   &(woi_routing){.x = points,
                                  .n = n,
                                  .probes = each,
                                  .cells = of,
                                  .n_cells = found,
                                  .scratch = p->scratch + thread * p->each,
                                  .margin = INFINITY});
    for (size_t i = 0; i < n; i++)
        for (uint32_t l = found[i]; l < each; l++) of[i * each + l] = UINT32_MAX;
}

wo_status woi_rows_place(const wo_index *index, const woi_expected *e, woi_placed *placed, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const size_t m = index->rows.m;
    const int threads = woi_team_threads(o->threads);
    placing p;
    woi_placed_free(placed);
    *placed = (woi_placed){o->rows, woi_alloc(m, o->rows * sizeof *placed->of, err),
                           woi_alloc(m, sizeof *placed->weights, err)};
    wo_status status = placing_make(index, e, &p, err);
    p.to = placed;
    p.each = (woi_tree_scratch(&index->tree, ROWS_AT_ONCE, o->rows) + WOI_ALIGN - 1) / WOI_ALIGN * WOI_ALIGN;
    p.scratch = woi_alloc((size_t)threads, p.each, err);
    if (!placed->of || !placed->weights || !p.scratch) status = WO_ERR_MEMORY;
    for (size_t part = 0; !status && part < PARTS; part++) {
        p.first = woi_part_start(part, PARTS, m);
        p.n = woi_part_start(part + 1, PARTS, m) - p.first;
        status = woi_progress(&o->progress, "placing rows", p.first, m, err);
        if (!status) woi_team_ranges(threads, p.n, ROWS_AT_ONCE, place_range, &p);
    }
    placing_free(&p);
    if (status) woi_placed_free(placed);
    return status;
}
