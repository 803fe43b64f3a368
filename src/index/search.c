/* Searching: Algorithm 2. A query opens its cells, their neurons are united, scored exactly, and the best k kept.
 *
 *   wo_searcher
 *     workers (threads)    one for each thread of a batch: scratch that no other thread touches
 *       seen (m)           a neuron is in the union when its byte equals `epoch`, so that nothing is cleared between
 *                          queries but once in 255
 *       ids, logits        the union and its scores
 *       cells              those that the queries of a block open
 *     forbidden (m)        1: never answered; NULL where nothing is
 *     bias (m)             added to the logits; NULL
 *
 * Nothing is allocated after creation. */
#include "index/index.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    BLOCK = 32,       /* queries that are routed together, while the router is in the cache; then scored */
    WIDE_BLOCK = 512, /* the same for a tree of which queries look at many nodes, and share them */
    MIN_SHARE = 64,   /* queries that a thread must have to be worth waking */
    RESCORED = 5,     /* of an int8 screen the best 9/8 k + RESCORED are scored exactly */
    SCREENED = 256,   /* at most so many */
    LISTED = 256,     /* ids of a list that are asked for ahead; the processor follows a longer one by itself */
    FOR_FULL = -2,    /* the first id of a query that is left to FULL */
};

typedef struct worker {
    uint8_t *seen;
    uint8_t epoch;
    int32_t *ids;
    float *logits;
    void *route_scratch;
    uint32_t *cells;              /* (block, most_cells): those of each query of the block */
    uint32_t *wider;              /* (most_cells times WO_WIDER): of a query with little evidence */
    uint32_t n_cells[WIDE_BLOCK]; /* 0: the query is not finite */
    int8_t *q8;                   /* (d): a query in int8 */
} worker;

struct wo_searcher {
    const wo_index *index;
    const woi_kernels *kernels;
    int threads;
    uint32_t probes;
    wo_scores scores;
    uint8_t *forbidden;
    size_t n_forbidden; /* distinct */
    float *bias;
    int32_t *mandatory;
    size_t n_mandatory;
    worker *workers;
    uint32_t wider_probes;
    bool exact_fallback;
    size_t block;      /* queries that are routed together */
    size_t most_cells; /* that one query opens, unless it opens more */
    void *exact_scratch;
};

static wo_status no_rows(wo_error *err)
{
    return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                    "has no f32 rows to answer exactly with: give the layer too (--layer)");
}

void wo_searcher_defaults(wo_searcher_options *options)
{
    *options = (wo_searcher_options){.struct_size = sizeof *options};
}

static wo_status check_ids(const char *what, const int32_t *ids, size_t n, size_t m, wo_error *err)
{
    if (n && !ids) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "%zu %s classes are at NULL", n, what);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= m)
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "%s class %" PRId32 " is not one of the %zu classes",
                            what, ids[i], m);
    return WO_OK;
}

static wo_status copy_masks(wo_searcher *s, const wo_searcher_options *o, wo_error *err)
{
    const size_t m = s->index->rows.m;
    wo_status status = check_ids("forbidden", o->forbidden, o->n_forbidden, m, err);
    if (!status) status = check_ids("mandatory", o->mandatory, o->n_mandatory, m, err);
    if (status) return status;
    if (o->n_forbidden) {
        if (!(s->forbidden = woi_alloc_zero(m, 1, err))) return WO_ERR_MEMORY;
        for (size_t i = 0; i < o->n_forbidden; i++) {
            s->n_forbidden += !s->forbidden[o->forbidden[i]];
            s->forbidden[o->forbidden[i]] = 1;
        }
    }
    if (o->n_mandatory) {
        if (!(s->mandatory = woi_alloc(o->n_mandatory, sizeof *s->mandatory, err))) return WO_ERR_MEMORY;
        memcpy(s->mandatory, o->mandatory, o->n_mandatory * sizeof *s->mandatory);
        s->n_mandatory = o->n_mandatory;
    }
    if (o->logit_bias) {
        for (size_t j = 0; j < m; j++)
            if (!isfinite(o->logit_bias[j]))
                return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                                "the logit bias of class %zu is %g: forbid a class "
                                "instead",
                                j, (double)o->logit_bias[j]);
        if (!(s->bias = woi_alloc(m, sizeof *s->bias, err))) return WO_ERR_MEMORY;
        memcpy(s->bias, o->logit_bias, m * sizeof *s->bias);
    }
    return WO_OK;
}

/* At most. */
static size_t cells_opened(const wo_index *index, uint32_t probes)
{
    return index->hash.K ? (size_t)index->hash.L * probes : index->tree.A ? probes : index->cells.n;
}

static size_t route_scratch(const wo_searcher *s)
{
    const wo_index *index = s->index;
    if (!index->tree.A) return woi_hash_scratch(&index->hash, s->block) * sizeof(float);
    const size_t many = woi_tree_scratch(&index->tree, s->block, s->probes);
    const size_t one = woi_tree_scratch(&index->tree, 1, s->wider_probes);
    return many > one ? many : one;
}

static wo_status create_workers(wo_searcher *s, wo_error *err)
{
    const wo_index *index = s->index;
    const size_t m = index->rows.m, n_cells = s->most_cells = cells_opened(index, s->probes);
    const size_t most = cells_opened(index, s->wider_probes);
    s->block = index->tree.beam >= WOI_WIDE_BEAM ? WIDE_BLOCK : BLOCK;
    size_t room = most * index->largest + s->n_mandatory;
    if (room > m) room = m;
    if (!(s->workers = woi_alloc_zero((size_t)s->threads, sizeof *s->workers, err))) return WO_ERR_MEMORY;
    if (index->options.method == WO_METHOD_FULL) return WO_OK;
    for (int t = 0; t < s->threads; t++) {
        worker *w = &s->workers[t];
        w->seen = woi_alloc_zero(m, 1, err);
        w->ids = woi_alloc(room + 1, sizeof *w->ids, err); /* one past: see unite */
        w->logits = woi_alloc(room, sizeof *w->logits, err);
        w->cells = woi_alloc_zero(s->block * n_cells, sizeof *w->cells, err);
        w->wider = woi_alloc(most, sizeof *w->wider, err);
        w->q8 = woi_alloc(index->rows.d, 1, err);
        w->route_scratch = woi_alloc_zero(1, route_scratch(s), err);
        if (!w->seen || !w->ids || !w->logits || !w->cells || !w->wider || !w->q8 || !w->route_scratch)
            return WO_ERR_MEMORY;
    }
    return WO_OK;
}

wo_status wo_searcher_create(const wo_index *index, const wo_searcher_options *options, wo_searcher **searcher,
                             wo_error *err)
{
    *searcher = NULL;
    wo_searcher_options o;
    wo_searcher_defaults(&o);
    if (options) {
        if (options->struct_size != sizeof o)
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                            "searcher options of %zu bytes, expected %zu: start "
                            "from wo_searcher_defaults",
                            options->struct_size, sizeof o);
        o = *options;
    }
    wo_status status = woi_check_range("threads", o.threads, 0, WOI_MAX_THREADS, err);
    if (!status) status = woi_check_range("scores", o.scores, WO_SCORES_LOGITS, WO_SCORES_SOFTMAX, err);
    if (status) return status;
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const uint32_t probes = o.probes ? o.probes : index->options.probes;
    if (o.exact_fallback && !index->rows.w) return no_rows(err);
    if (index->tree.A && probes > WOI_MAX_LEAVES)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "%" PRIu32 " probes are too many: at most %d", probes,
                        WOI_MAX_LEAVES);
    if (index->hash.K && (probes > WOI_MAX_PROBES || probes > 1U << index->hash.K))
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "%" PRIu32 " probes are too many: at most %d, and the %u "
                        "cells of a table",
                        probes, WOI_MAX_PROBES, 1U << index->hash.K);
    wo_searcher *s = woi_alloc_zero(1, sizeof *s, err);
    if (!s) return WO_ERR_MEMORY;
    s->index = index;
    s->kernels = kernels;
    s->threads = o.threads < 1 ? omp_get_max_threads() : o.threads;
    s->probes = s->wider_probes = probes;
    if (index->options.fallback) { /* as far as there are cells to open */
        uint32_t most = index->tree.A ? WOI_MAX_LEAVES : WOI_MAX_PROBES;
        if (index->hash.K && most > 1U << index->hash.K) most = 1U << index->hash.K;
        s->wider_probes = probes * WO_WIDER < most ? probes * WO_WIDER : most;
    }
    s->exact_fallback = o.exact_fallback;
    s->scores = o.scores;
    status = copy_masks(s, &o, err);
    if (!status) status = create_workers(s, err);
    if (!status && !(s->exact_scratch = woi_alloc(woi_exact_scratch(s->threads), 1, err))) status = WO_ERR_MEMORY;
    if (status) {
        wo_searcher_free(s);
        return status;
    }
    *searcher = s;
    return WO_OK;
}

void wo_searcher_free(wo_searcher *s)
{
    if (!s) return;
    for (int t = 0; s->workers && t < s->threads; t++) {
        woi_free(s->workers[t].seen);
        woi_free(s->workers[t].ids);
        woi_free(s->workers[t].logits);
        woi_free(s->workers[t].cells);
        woi_free(s->workers[t].wider);
        woi_free(s->workers[t].q8);
        woi_free(s->workers[t].route_scratch);
    }
    woi_free(s->workers);
    woi_free(s->forbidden);
    woi_free(s->bias);
    woi_free(s->mandatory);
    woi_free(s->exact_scratch);
    woi_free(s);
}

/* ---- One query --------------------------------------------------------------------------------------------- */

/* The cells of n queries, up to s->block: cells (n, cells_opened(probes)); n_cells 0 where the query is not finite. */
static void route(const wo_searcher *s, worker *w, const float *q, size_t n, uint32_t probes, uint32_t *cells,
                  uint32_t *n_cells)
{
    const wo_index *index = s->index;
    if (index->tree.A) {
        const float margin = probes > index->options.probes ? INFINITY : index->tree.margin; /* learned for so many */
        woi_tree_route(&index->tree, s->kernels, q, n, probes, margin, w->route_scratch, cells, n_cells);
    } else if (index->hash.K) {
        woi_hash_route(&index->hash, s->kernels, q, n, probes, w->route_scratch, cells, n_cells);
    } else {
        const size_t all = index->cells.n;
        for (size_t i = 0; i < n; i++) {
            n_cells[i] = woi_all_finite(q + i * index->rows.d, index->rows.d) ? (uint32_t)all : 0;
            for (size_t c = 0; c < all; c++) cells[i * all + c] = (uint32_t)c;
        }
    }
}

/* Whether the cells had fewer training queries than the index asks for. */
static bool knows_little(const wo_index *index, const uint32_t *opened, size_t n_cells)
{
    uint64_t queries = 0;
    for (size_t c = 0; c < n_cells; c++) queries += index->cells.queries[opened[c]];
    return queries < index->options.fallback;
}

static void new_epoch(worker *w, size_t m)
{
    if (++w->epoch) return;
    memset(w->seen, 0, m);
    w->epoch = 1;
}

/* The distinct neurons of the cells; returns how many. */
static size_t unite(const wo_searcher *s, worker *w, const uint32_t *opened, size_t n_cells, const int32_t **candidates)
{
    const woi_cells *cells = &s->index->cells;
    if (n_cells == 1 && !s->n_mandatory && !s->forbidden) { /* there is nothing to unite */
        *candidates = cells->ids + cells->offsets[*opened];
        return cells->offsets[*opened + 1] - cells->offsets[*opened];
    }
    new_epoch(w, s->index->rows.m);
    uint8_t *seen = w->seen;
    const uint8_t epoch = w->epoch;
    int32_t *ids = w->ids;
    size_t n = 0;
    for (size_t c = 0; c < n_cells; c++) {
        const int32_t *from = cells->ids + cells->offsets[opened[c]], *end = cells->ids + cells->offsets[opened[c] + 1];
        for (; from < end; from++) {
            ids[n] = *from; /* written always, kept when new: no branch to guess */
            n += seen[*from] != epoch;
            seen[*from] = epoch;
        }
    }
    for (size_t i = 0; i < s->n_mandatory; i++) {
        if (seen[s->mandatory[i]] != epoch) ids[n++] = s->mandatory[i];
        seen[s->mandatory[i]] = epoch;
    }
    if (s->forbidden) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (!s->forbidden[ids[i]]) ids[kept++] = ids[i];
        n = kept;
    }
    *candidates = ids;
    return n;
}

static void add_bias(const wo_searcher *s, const int32_t *ids, size_t n, float *logits)
{
    const float *b = s->index->rows.b;
    if (b)
        for (size_t i = 0; i < n; i++) logits[i] += b[ids[i]];
    if (s->bias)
        for (size_t i = 0; i < n; i++) logits[i] += s->bias[ids[i]];
}

/* The logits of some classes: in bf16 where the index is built for it, else exact. */
static void score(const wo_searcher *s, const float *q, const int32_t *ids, size_t n, float *logits)
{
    const wo_index *index = s->index;
    const size_t d = index->rows.d;
    if (index->small.bf16)
        s->kernels->gather_bf16(q, index->small.bf16, ids, n, d, d, logits);
    else
        s->kernels->gather_f32(q, index->rows.w, ids, n, d, d, logits);
    add_bias(s, ids, n, logits);
}

/* Of many candidates those that int8 rows find best, in w->ids; returns how many. */
static size_t screen(const wo_searcher *s, worker *w, const float *q, size_t k, const int32_t **candidates, size_t n)
{
    const wo_index *index = s->index;
    const size_t d = index->rows.d, keep = k + k / 8 + RESCORED;
    if (!index->small.i8 || n <= 2 * keep || keep > SCREENED || s->scores == WO_SCORES_SOFTMAX)
        return n; /* softmax is over all of them */
    const float scale = s->kernels->quantise(q, d, w->q8);
    if (scale == 0) return n; /* too small for int8, which would tell no rows apart */
    s->kernels->gather_i8(w->q8, scale, index->small.i8, index->small.scales, *candidates, n, d, d, w->logits);
    add_bias(s, *candidates, n, w->logits);
    float kept_scores[SCREENED];
    int32_t kept[SCREENED];
    n = s->kernels->pick(w->logits, *candidates, n, keep, kept_scores, kept);
    memcpy(w->ids, kept, n * sizeof *kept);
    *candidates = w->ids;
    return n;
}

/* The logarithm of the sum of exp(logits). A row that is not a number has no part in it, as it has none in answers. */
static double log_sum(const woi_kernels *kernels, const float *logits, size_t n)
{
    float shift = kernels->max_f32(logits, n);
    double sum = kernels->exp_sum(logits, n, shift, NULL);
    if (isnan(sum)) {
        shift = -INFINITY;
        for (size_t i = 0; i < n; i++) shift = fmaxf(shift, logits[i]);
        sum = 0;
        for (size_t i = 0; i < n; i++)
            if (!isnan(logits[i])) sum += exp((double)logits[i] - (double)shift);
    }
    return sum == 0 ? -INFINITY : (double)shift + log(sum);
}

static void pad(const wo_searcher *s, size_t k, int32_t *ids, float *scores)
{
    for (size_t i = 0; i < k; i++) {
        ids[i] = -1;
        scores[i] = s->scores == WO_SCORES_SOFTMAX ? 0 : -INFINITY;
    }
}

static void answer(const wo_searcher *s, worker *w, const float *q, const uint32_t *opened, uint32_t n_cells, size_t k,
                   int32_t *ids, float *scores, wo_query_stats *stats)
{
    const wo_index *index = s->index;
    wo_query_stats about = {.cells = n_cells};
    if (!n_cells) {
        pad(s, k, ids, scores);
        if (stats) *stats = (wo_query_stats){.status = WO_ERR_ARGUMENT};
        return;
    }
    if (index->options.fallback && knows_little(index, opened, n_cells)) {
        if (s->exact_fallback) {
            ids[0] = FOR_FULL;
            return;
        }
        if (s->wider_probes > s->probes) {
            route(s, w, q, 1, s->wider_probes, w->wider, &about.cells);
            opened = w->wider;
            about.wider = 1;
        }
    }
    const int32_t *candidates;
    about.candidates = (uint32_t)unite(s, w, opened, about.cells, &candidates);
    const size_t n = screen(s, w, q, k, &candidates, about.candidates);
    score(s, q, candidates, n, w->logits);
    const double whole = s->scores == WO_SCORES_SOFTMAX ? log_sum(s->kernels, w->logits, n) : 0;
    const size_t found = s->kernels->pick(w->logits, candidates, n, k, scores, ids);
    if (s->scores == WO_SCORES_SOFTMAX)
        for (size_t i = 0; i < k; i++) scores[i] = i < found ? (float)exp((double)scores[i] - whole) : 0;
    if (stats) *stats = about;
}

/* ---- Calls ------------------------------------------------------------------------------------------------- */

static wo_status check_call(const float *queries, size_t n, size_t k, const int32_t *ids, const float *scores,
                            wo_error *err)
{
    if (k < 1) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "k is 0: at least one answer must be asked for");
    if (n && (!queries || !ids || !scores))
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "queries, ids or scores are NULL");
    return WO_OK;
}

/* In pieces, because softmax needs a number for each query beside the answer. */
static wo_status exact(wo_searcher *s, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                       wo_query_stats *stats, wo_error *err)
{
    enum { PIECE = 1024 };
    const woi_dense *rows = &s->index->rows;
    const woi_adjust adjust = {s->forbidden, s->bias};
    if (!rows->w) return no_rows(err);
    const bool softmax = s->scores == WO_SCORES_SOFTMAX;
    for (size_t first = 0; first < n; first += PIECE) {
        const size_t count = n - first < PIECE ? n - first : PIECE;
        const float *q = queries + first * rows->d;
        float lse[PIECE];
        const wo_status status = woi_exact_topk(rows, &adjust, q, count, k, s->threads, s->exact_scratch,
                                                ids + first * k, scores + first * k, softmax ? lse : NULL, err);
        if (status) return status;
        for (size_t i = 0; softmax && i < count; i++)
            for (size_t j = 0; j < k; j++) {
                float *score = &scores[(first + i) * k + j];
                *score = ids[(first + i) * k + j] < 0 ? 0 : expf(*score - lse[i]);
            }
        for (size_t i = 0; stats && i < count; i++)
            stats[first + i] = woi_all_finite(q + i * rows->d, rows->d)
                                   ? (wo_query_stats){.candidates = (uint32_t)(rows->m - s->n_forbidden), .exact = 1}
                                   : (wo_query_stats){.status = WO_ERR_ARGUMENT};
    }
    return WO_OK;
}

wo_status wo_search_exact(wo_searcher *s, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                          wo_error *err)
{
    const wo_status status = check_call(queries, n, k, ids, scores, err);
    return status ? status : exact(s, queries, n, k, ids, scores, NULL, err);
}

/* Up to s->block queries. */
static void answer_block(const wo_searcher *s, worker *w, const float *queries, size_t n, size_t k, int32_t *ids,
                         float *scores, wo_query_stats *stats)
{
    const size_t d = s->index->rows.d;
    const woi_cells *cells = &s->index->cells;
    route(s, w, queries, n, s->probes, w->cells, w->n_cells);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < w->n_cells[i]; c++) __builtin_prefetch(&cells->offsets[w->cells[i * s->most_cells + c]]);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n) /* the lists of the next query come while this one is scored */
            for (size_t c = 0; c < w->n_cells[i + 1]; c++) {
                const uint32_t *list = &cells->offsets[w->cells[(i + 1) * s->most_cells + c]];
                const uint32_t end = list[1] - list[0] < LISTED ? list[1] : list[0] + LISTED;
                for (uint32_t at = list[0]; at < end; at += 16) __builtin_prefetch(cells->ids + at);
            }
        answer(s, w, queries + i * d, w->cells + i * s->most_cells, w->n_cells[i], k, ids + i * k, scores + i * k,
               stats ? stats + i : NULL);
    }
}

static void answer_by_cells(wo_searcher *s, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                            wo_query_stats *stats)
{
    int threads = s->threads;
    if (n / MIN_SHARE < (size_t)threads) threads = n < 2 * MIN_SHARE ? 1 : (int)(n / MIN_SHARE);
    const size_t d = s->index->rows.d, share = n / (size_t)threads + 1;
    const size_t block = share < s->block ? share : s->block, n_blocks = (n + block - 1) / block;
    if (threads == 1) { /* without OpenMP: its smallest region costs half of what a query does */
        for (size_t first = 0; first < n; first += block)
            answer_block(s, &s->workers[0], queries + first * d, n - first < block ? n - first : block, k,
                         ids + first * k, scores + first * k, stats ? stats + first : NULL);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t first = b * block, count = n - first < block ? n - first : block;
        answer_block(s, &s->workers[omp_get_thread_num()], queries + first * d, count, k, ids + first * k,
                     scores + first * k, stats ? stats + first : NULL);
    }
}

wo_status wo_search_stats(wo_searcher *s, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                          wo_query_stats *stats, wo_error *err)
{
    const wo_index *index = s->index;
    wo_status status = check_call(queries, n, k, ids, scores, err);
    if (status) return status;
    if ((woi_batches_have(index->full, n) && index->rows.w) || index->options.method == WO_METHOD_FULL)
        return exact(s, queries, n, k, ids, scores, stats, err);
    answer_by_cells(s, queries, n, k, ids, scores, stats);
    for (size_t i = 0; s->exact_fallback && !status && i < n; i++) /* few; each is read once more by all threads */
        if (ids[i * k] == FOR_FULL)
            status =
                exact(s, queries + i * index->rows.d, 1, k, ids + i * k, scores + i * k, stats ? stats + i : NULL, err);
    return status;
}

wo_status wo_search(wo_searcher *s, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                    wo_error *err)
{
    return wo_search_stats(s, queries, n, k, ids, scores, NULL, err);
}

wo_status wo_search_candidates(wo_searcher *s, const float *query, int32_t *ids, size_t capacity, size_t *n_candidates,
                               wo_error *err)
{
    *n_candidates = 0;
    if (!woi_all_finite(query, s->index->rows.d))
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the query is not finite");
    if (s->index->options.method == WO_METHOD_FULL) {
        for (size_t j = 0; j < s->index->rows.m; j++)
            if (!s->forbidden || !s->forbidden[j]) {
                if (*n_candidates < capacity) ids[*n_candidates] = (int32_t)j;
                ++*n_candidates;
            }
        return WO_OK;
    }
    worker *w = &s->workers[0];
    const int32_t *candidates;
    const uint32_t *opened = w->cells;
    route(s, w, query, 1, s->probes, w->cells, w->n_cells);
    if (s->index->options.fallback && knows_little(s->index, opened, *w->n_cells)) {
        route(s, w, query, 1, s->wider_probes, w->wider, w->n_cells);
        opened = w->wider;
    }
    const size_t n = unite(s, w, opened, *w->n_cells, &candidates);
    if (capacity) memcpy(ids, candidates, (n < capacity ? n : capacity) * sizeof *ids);
    *n_candidates = n;
    return WO_OK;
}
