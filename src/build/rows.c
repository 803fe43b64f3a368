/* Classes where their rows lead: see rows.h. */
#include "build/rows.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/progress.h"
#include "base/rng.h"
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
    float *product;         /* (threads, WOI_GEMM_SCRATCH) */
    char *scratch;          /* (threads, each) */
    size_t each;
} pairing;

/* Pair i is of one query, and of the class that it needed most: of equal ones the first, of none that is here weight 0.
 */
static void make_pairs(void *own, int worker, size_t first, size_t end)
{
    const pairing *p = own;
    const wo_index *index = p->index;
    const size_t d = index->rows.d, r = index->tree.r;
    for (size_t i = first; i < end; i++) {
        const size_t query = woi_part_start(i, p->n, p->log->n);
        float *y = p->y + i * (r + 1), most = 0;
        int32_t row = -1;
        for (int64_t at = p->needs->indptr[query]; at < p->needs->indptr[query + 1]; at++) {
            const int32_t here = woi_shard_row(&index->shard, index->rows.m, p->needs->ids[at]);
            if (here < 0 || !(p->needs->weights[at] > most)) continue;
            most = p->needs->weights[at];
            row = here;
        }
        const float *q = p->log->queries + query * d;
        double square = 0;
        for (size_t j = 0; j < d; j++) square += (double)q[j] * (double)q[j];
        p->lengths[i] = sqrt(square);
        p->weights[i] =
            row >= 0 && woi_tree_turn(&index->tree, p->kernels, q, p->scratch + (size_t)worker * p->each, p->x + i * r);
        memset(y, 0, (r + 1) * sizeof *y);
        if (p->weights[i] == 0) {
            memset(p->x + i * r, 0, r * sizeof *p->x);
            continue;
        }
        y[r] = 1;
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
    const bool there = e->turn && e->axes && e->shift && p.kernels && p.y && p.x && p.weights && p.lengths &&
                       p.product && p.scratch && s.left && s.right;
    if (there) {
        woi_tree_axes(&index->tree, e->axes);
        woi_team_ranges(threads, n, ROWS_AT_ONCE, make_pairs, &p);
        double length = 0;
        for (size_t i = 0; i < n; i++) length += p.lengths[i];
        e->length = (float)(length / (double)n);
        solve(&s, threads);
        combine(&s, e);
    }
    void *const owned[] = {p.y, p.x, p.weights, p.lengths, p.product, p.scratch, s.left, s.right};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
    if (!there) woi_expected_free(e);
    return there ? WO_OK : WO_ERR_MEMORY;
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

static void sample_range(void *own, int worker, size_t first, size_t end)
{
    const placing *p = own;
    const wo_index *index = p->index;
    const size_t d = p->e->d, m = index->rows.m;
    float *rows = p->rows + (size_t)worker * ROWS_AT_ONCE * d;
    for (size_t i = first; i < end; i++) {
        const size_t low = woi_part_start(i, p->n, m), high = woi_part_start(i + 1, p->n, m);
        const size_t row = low + (size_t)woi_rng_below(index->options.seed, STREAM_ROWS, i, high - low);
        memcpy(rows + (i - first) * d, index->rows.w + row * d, d * sizeof *rows);
    }
    woi_expect(p->kernels, p->e,
               &(woi_expecting){.w = rows,
                                .n = end - first,
                                .points = p->sample + first * p->e->r,
                                .product = p->product + (size_t)worker * WOI_GEMM_SCRATCH});
}

wo_status woi_rows_learn(wo_index *index, const woi_expected *e, const woi_tree_options *options, wo_error *err)
{
    const size_t m = index->rows.m, leaves = (size_t)options->nodes * options->leaves;
    const size_t wanted = leaves < MOST_ROWS / ROWS_A_LEAF ? leaves * ROWS_A_LEAF : MOST_ROWS;
    placing p;
    wo_status status = placing_make(index, e, &p, err);
    p.n = wanted < m ? wanted : m;
    p.sample = woi_alloc(p.n, e->r * sizeof *p.sample, err);
    if (!p.sample) status = WO_ERR_MEMORY;
    if (!status) woi_team_ranges(woi_team_threads(options->threads), p.n, ROWS_AT_ONCE, sample_range, &p);
    if (!status) status = woi_tree_learn_points(p.sample, p.n, options, &index->tree, err);
    woi_free(p.sample);
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

/* ---- Cells ------------------------------------------------------------------------------------------------- */

/* The rows of each cell: cell c has members[starts[c] .. starts[c+1]). A cell of the result begins at bounds[c], with
 * room for all that it may hold, until they are moved together. */
typedef struct joining {
    const woi_placed *placed;
    uint32_t cap;
    woi_cells *cells;
    uint32_t *starts;
    int32_t *members;
    uint64_t *bounds;
    uint32_t *sizes;
    int32_t *ids;
    uint16_t *shares; /* NULL: none are kept */
    woi_need *needs;  /* (most members of a cell) of each thread */
    int32_t *chosen;
    size_t most;
} joining;

static void join_cell(void *ctx, int worker, size_t c)
{
    const joining *j = ctx;
    const woi_cells *cells = j->cells;
    const int32_t *own = cells->ids + cells->offsets[c];
    const uint16_t *shares = cells->shares ? cells->shares + cells->offsets[c] : NULL;
    const size_t n_own = cells->offsets[c + 1] - cells->offsets[c];
    woi_need *needs = j->needs + (size_t)worker * j->most;
    int32_t *chosen = j->chosen + (size_t)worker * j->most;
    size_t n = 0;
    for (uint32_t at = j->starts[c]; at < j->starts[c + 1]; at++) {
        const int32_t row = j->members[at];
        if (!woi_ids_find(own, n_own, row)) needs[n++] = (woi_need){j->placed->weights[row], row};
    }
    const woi_evidence_options rule = {.lambda = -INFINITY, .cap = j->cap ? j->cap - (uint32_t)n_own : 0};
    n = j->cap && n_own >= j->cap ? 0 : woi_evidence_choose(needs, n, 1, &rule, chosen);
    int32_t *ids = j->ids + j->bounds[c];
    uint16_t *to = j->shares ? j->shares + j->bounds[c] : NULL;
    for (size_t i = 0, k = 0; i < n_own || k < n;) {
        const bool mine = k == n || (i < n_own && own[i] < chosen[k]);
        if (to) *to++ = shares && mine ? shares[i] : 0;
        *ids++ = mine ? own[i++] : chosen[k++];
    }
    j->sizes[c] = (uint32_t)(n_own + n);
}

/* A counting sort, and the bounds. */
static wo_status group(joining *j, size_t m, wo_error *err)
{
    const size_t n_cells = j->cells->n, n = m * j->placed->each;
    const uint32_t *of = j->placed->of;
    if (n > UINT32_MAX)
        return woi_fail_option(err, WO_ERR_UNSUPPORTED, "rows", "%zu rows in %u cells each are too many", m,
                               j->placed->each);
    j->starts = woi_alloc_zero(n_cells + 1, sizeof *j->starts, err);
    j->members = woi_alloc(n, sizeof *j->members, err);
    j->bounds = woi_alloc(n_cells + 1, sizeof *j->bounds, err);
    if (!j->starts || !j->members || !j->bounds) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (of[i] != UINT32_MAX) j->starts[of[i]]++;
    for (size_t c = 1; c <= n_cells; c++) j->starts[c] += j->starts[c - 1];
    for (size_t i = n; i-- > 0;)
        if (of[i] != UINT32_MAX) j->members[--j->starts[of[i]]] = (int32_t)(i / j->placed->each);
    j->bounds[0] = 0;
    for (size_t c = 0; c < n_cells; c++) {
        const size_t rows = j->starts[c + 1] - j->starts[c], own = j->cells->offsets[c + 1] - j->cells->offsets[c];
        const size_t room = !j->cap ? rows : own >= j->cap ? 0 : rows < j->cap - own ? rows : j->cap - own;
        if (rows > j->most) j->most = rows;
        j->bounds[c + 1] = j->bounds[c] + own + room;
    }
    if (j->bounds[n_cells] > UINT32_MAX)
        return woi_fail_option(err, WO_ERR_UNSUPPORTED, "rows",
                               "the cells would hold %llu classes, at most %u are possible: lower rows or cap",
                               (unsigned long long)j->bounds[n_cells], UINT32_MAX);
    return WO_OK;
}

wo_status woi_rows_join(const woi_placed *placed, size_t m, const wo_build_options *o, woi_cells *cells, wo_error *err)
{
    const size_t threads = (size_t)woi_team_threads(o->threads);
    joining j = {.placed = placed, .cap = o->cap, .cells = cells};
    wo_status status = group(&j, m, err);
    if (!status) {
        const size_t room = j.bounds[cells->n];
        j.sizes = woi_alloc(cells->n, sizeof *j.sizes, err);
        j.ids = woi_alloc(room, sizeof *j.ids, err);
        if (cells->shares) j.shares = woi_alloc(room, sizeof *j.shares, err);
        j.needs = woi_alloc(threads * j.most, sizeof *j.needs, err);
        j.chosen = woi_alloc(threads * j.most, sizeof *j.chosen, err);
        if (!j.sizes || !j.ids || (cells->shares && !j.shares) || !j.needs || !j.chosen) status = WO_ERR_MEMORY;
    }
    if (!status) {
        woi_team_for((int)threads, cells->n, join_cell, &j);
        uint32_t n = 0;
        for (size_t c = 0; c < cells->n; c++) {
            memmove(j.ids + n, j.ids + j.bounds[c], j.sizes[c] * sizeof *j.ids);
            if (j.shares) memmove(j.shares + n, j.shares + j.bounds[c], j.sizes[c] * sizeof *j.shares);
            cells->offsets[c] = n;
            n += j.sizes[c];
        }
        cells->offsets[cells->n] = n;
        woi_free(cells->ids);
        woi_free(cells->shares);
        cells->ids = j.ids;
        cells->shares = j.shares;
    } else {
        woi_free(j.ids);
        woi_free(j.shares);
    }
    void *const owned[] = {j.starts, j.members, j.bounds, j.sizes, j.needs, j.chosen};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
    return status;
}
