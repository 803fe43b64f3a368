/* Searching: Algorithm 2. A query opens its cells, their classes are united, scored exactly, and the best k kept.
 *
 *   wo_search_run -> answer_by_cells -> answer_block -> route, then for each query: unite -> screen -> score -> pick
 *                 -> answer_by_screen -> rescore        an index that screens all classes in int8
 *                 -> answer_by_full                     batches and queries that FULL answers */
#include "index/partition.h"

#include "base/error.h"
#include "base/sized.h"
#include "base/team.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    MIN_SHARE = 64,       /* queries that a thread must have to be worth waking; two with 48 each are as fast as one */
    RESCORED = 5,         /* of an int8 screen the best 9/8 k + RESCORED are scored exactly */
    SCREENED = 256,       /* at most so many */
    LISTED = 256,         /* ids of a list that are asked for ahead; the processor follows a longer one by itself */
    STATS_BYTES_0_1 = 16, /* what 0 means for ever: the size that stats had in version 0.1 */
    FOR_FULL = -2,        /* the first id of a query that is left to FULL */
};

/* A call, checked and completed. */
typedef struct task {
    wo_searcher *s;
    const float *queries;
    size_t n, k;
    int32_t *ids;
    float *scores;
    char *stats; /* NULL: none wanted */
    size_t stats_bytes;
    uint32_t probes, wider_probes;
    size_t cells_each; /* room for a query's cells */
    wo_scores score;
    bool exact_fallback;
    const uint8_t *forbidden; /* (m), or NULL: nothing is */
    size_t n_forbidden;       /* distinct */
    const int32_t *mandatory;
    size_t n_mandatory;
    const float *bias;
    double prior;  /* 0: none */
    float *log_z;  /* (n), or NULL: not wanted */
    woi_seen seen; /* what learning log Z wants to know; zeros: nothing */
} task;

static bool wants_log_z(const task *t)
{
    return t->score == WO_SCORES_LOGPROB || t->log_z;
}

/* Scores are relative to a sum over classes, so that none may be left out. */
static bool wants_sum(const task *t)
{
    return t->score == WO_SCORES_SOFTMAX || wants_log_z(t) || t->seen.of_candidates;
}

static void tell(const task *t, size_t i, wo_query_stats about)
{
    if (!t->stats) return;
    char *to = t->stats + i * t->stats_bytes;
    if (t->stats_bytes > sizeof about) memset(to + sizeof about, 0, t->stats_bytes - sizeof about);
    memcpy(to, &about, t->stats_bytes < sizeof about ? t->stats_bytes : sizeof about);
}

/* ---- One query --------------------------------------------------------------------------------------------- */

/* The cells of queries, up to a block: cells (n, woi_cells_opened(probes)). Scratch and margin are filled in here. */
static void route(const task *t, const woi_worker *w, woi_routing *asked)
{
    const wo_index *index = t->s->index;
    asked->scratch = w->route_scratch;
    if (index->tree.A) {
        asked->margin = asked->probes > index->options.probes ? INFINITY : index->tree.margin; /* learned for so many */
        woi_tree_route(&index->tree, t->s->kernels, asked);
    } else if (index->hash.K) {
        woi_hash_route(&index->hash, t->s->kernels, asked);
    } else {
        const size_t all = index->cells.n, d = index->rows.d;
        for (size_t i = 0; i < asked->n; i++) {
            asked->n_cells[i] = woi_all_finite(asked->q + i * d, d) ? (uint32_t)all : 0;
            for (size_t c = 0; c < all; c++) asked->cells[i * all + c] = (uint32_t)c;
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

static void new_epoch(woi_worker *w, size_t m)
{
    if (++w->epoch) return;
    memset(w->seen, 0, m);
    w->epoch = 1;
}

/* The distinct classes of the cells; returns how many. */
static size_t unite(const task *t, woi_worker *w, woi_opened given, const int32_t **candidates)
{
    const uint32_t *opened = given.cells;
    const size_t n_cells = given.n;
    const woi_cells *cells = &t->s->index->cells;
    if (n_cells == 1 && !t->n_mandatory && !t->forbidden) { /* there is nothing to unite */
        *candidates = cells->ids + cells->offsets[*opened];
        return cells->offsets[*opened + 1] - cells->offsets[*opened];
    }
    new_epoch(w, t->s->index->rows.m);
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
    for (size_t i = 0; i < t->n_mandatory; i++) {
        if (seen[t->mandatory[i]] != epoch) ids[n++] = t->mandatory[i];
        seen[t->mandatory[i]] = epoch;
    }
    if (t->forbidden) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (!t->forbidden[ids[i]]) ids[kept++] = ids[i];
        n = kept;
    }
    *candidates = ids;
    return n;
}

/* The same with what the prior adds, in w->ids and w->extra. */
static size_t unite_with_prior(const task *t, woi_worker *w, woi_opened opened, const int32_t **candidates)
{
    size_t n = woi_prior_unite(t->s->index, w, opened);
    for (size_t i = 0; i < t->n_mandatory; i++) n = woi_prior_add(w, t->mandatory[i], n);
    if (t->forbidden) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            w->ids[kept] = w->ids[i];
            w->extra[kept] = w->extra[i];
            kept += !t->forbidden[w->ids[i]];
        }
        n = kept;
    }
    woi_prior_scale(t->prior, w->extra, n);
    *candidates = w->ids;
    return n;
}

static void add_bias(const wo_index *index, const float *more, const int32_t *ids, size_t n, float *logits)
{
    const float *b = index->rows.b;
    if (b)
        for (size_t i = 0; i < n; i++) logits[i] += b[ids[i]];
    if (more)
        for (size_t i = 0; i < n; i++) logits[i] += more[ids[i]];
}

/* What the prior adds, where there is one. */
static void add_extra(const task *t, const woi_worker *w, size_t n, float *logits)
{
    if (t->prior > 0)
        for (size_t i = 0; i < n; i++) logits[i] += w->extra[i];
}

/* The logits of some classes: in bf16 where the index is built for it, else exact. */
static void score(const task *t, const woi_worker *w, const float *q, const int32_t *ids, size_t n)
{
    float *logits = w->logits;
    const wo_index *index = t->s->index;
    const size_t d = index->rows.d;
    if (index->small.bf16)
        t->s->kernels->gather_bf16(q, index->small.bf16, ids, n, d, d, logits);
    else
        t->s->kernels->gather_f32(q, index->rows.w, ids, n, d, d, logits);
    add_bias(index, t->bias, ids, n, logits);
}

/* Of many candidates those that int8 rows find best, in w->ids; returns how many. */
static size_t screen(const task *t, woi_worker *w, const float *q, const int32_t **candidates, size_t n)
{
    const wo_index *index = t->s->index;
    const woi_kernels *kernels = t->s->kernels;
    const size_t d = index->rows.d, keep = t->k + t->k / 8 + RESCORED;
    if (!index->small.i8 || n <= 2 * keep || keep > SCREENED || wants_sum(t)) return n;
    const float scale = kernels->quantise(q, d, w->q8);
    if (scale == 0) return n; /* too small for int8, which would tell no rows apart */
    kernels->gather_i8(w->q8, scale, index->small.i8, index->small.scales, *candidates, n, d, d, w->logits);
    add_bias(index, t->bias, *candidates, n, w->logits);
    add_extra(t, w, n, w->logits);
    float kept_scores[SCREENED], extra[SCREENED];
    int32_t kept[SCREENED], ids[SCREENED] = {0};
    n = kernels->pick(w->logits, NULL, n, keep, kept_scores, kept);
    for (size_t i = 0; i < n; i++) ids[i] = (*candidates)[kept[i]];
    for (size_t i = 0; t->prior > 0 && i < n; i++) extra[i] = w->extra[kept[i]];
    if (t->prior > 0) memcpy(w->extra, extra, n * sizeof *extra);
    memcpy(w->ids, ids, n * sizeof *ids);
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

static void pad(const task *t, int32_t *ids, float *scores)
{
    for (size_t i = 0; i < t->k; i++) {
        ids[i] = -1;
        scores[i] = t->score == WO_SCORES_SOFTMAX ? 0 : -INFINITY;
    }
}

/* Whether nearer cells count more. */
static bool wants_scores(const task *t)
{
    return t->prior > 0 && t->s->index->tree.A && t->s->index->options.focus > 0;
}

/* WO_WIDER times as many cells of a query, as far as there are more; w->wider. */
static woi_opened widen(const task *t, woi_worker *w, const float *q, woi_opened opened)
{
    if (t->wider_probes <= t->probes) return opened;
    woi_opened more = {.cells = w->wider, .scores = wants_scores(t) ? w->wider_scores : NULL};
    woi_routing asked = {.q = q,
                         .n = 1,
                         .probes = t->wider_probes,
                         .cells = w->wider,
                         .n_cells = &more.n,
                         .scores = wants_scores(t) ? w->wider_scores : NULL};
    route(t, w, &asked);
    return more;
}

/* The scores of n candidates, in place of their logits, and what they are relative to: *whole, 0 for logits. */
static void complete(const task *t, woi_worker *w, const float *q, woi_opened opened, size_t n, double *whole)
{
    const woi_kernels *kernels = t->s->kernels;
    *whole = wants_sum(t) ? log_sum(kernels, w->logits, n) : 0;
    double tail = -INFINITY;
    if (wants_log_z(t)) tail = woi_partition_tail(t->s, q, opened, *whole);
    add_extra(t, w, n, w->logits);
    if (wants_sum(t) && t->prior > 0) *whole = log_sum(kernels, w->logits, n);
    if (wants_sum(t)) *whole = woi_log_add(*whole, tail);
}

/* Query i of the call, which opens these cells. */
static void answer(const task *t, woi_worker *w, size_t i, woi_opened opened)
{
    const wo_index *index = t->s->index;
    const float *q = t->queries + i * index->rows.d;
    int32_t *ids = t->ids + i * t->k;
    float *scores = t->scores + i * t->k;
    wo_query_stats about = {.cells = opened.n};
    if (!opened.n) {
        pad(t, ids, scores);
        if (t->log_z) t->log_z[i] = NAN;
        tell(t, i, (wo_query_stats){.status = WO_ERR_ARGUMENT});
        return;
    }
    if (index->options.fallback && knows_little(index, opened.cells, opened.n)) {
        if (t->exact_fallback) {
            ids[0] = FOR_FULL;
            return;
        }
        opened = widen(t, w, q, opened);
        about.cells = opened.n;
        about.wider = opened.cells == w->wider;
    }
    const int32_t *candidates = NULL;
    about.candidates = (uint32_t)(t->prior > 0 ? unite_with_prior : unite)(t, w, opened, &candidates);
    const size_t n = screen(t, w, q, &candidates, about.candidates);
    double whole;
    score(t, w, q, candidates, n);
    if (t->seen.of_candidates) {
        woi_partition_see(&t->seen, i, opened, log_sum(t->s->kernels, w->logits, n));
        return;
    }
    complete(t, w, q, opened, n, &whole);
    if (t->log_z) t->log_z[i] = (float)whole;
    const size_t found = t->s->kernels->pick(w->logits, candidates, n, t->k, scores, ids);
    if (t->score == WO_SCORES_SOFTMAX)
        for (size_t j = 0; j < t->k; j++) scores[j] = j < found ? (float)exp((double)scores[j] - whole) : 0;
    if (t->score == WO_SCORES_LOGPROB)
        for (size_t j = 0; j < found; j++) scores[j] = (float)((double)scores[j] - whole);
    tell(t, i, about);
}

/* ---- Batches ----------------------------------------------------------------------------------------------- */

/* The cells of n queries, at most a block of them. */
static woi_routing route_block(const task *t, woi_worker *w, const float *q, size_t n)
{
    woi_routing asked = {.q = q,
                         .n = n,
                         .probes = t->probes,
                         .cells = w->cells,
                         .n_cells = w->n_cells,
                         .scores = wants_scores(t) ? w->cell_scores : NULL};
    route(t, w, &asked);
    return asked;
}

static woi_opened opened_by(const task *t, const woi_worker *w, const woi_routing *asked, size_t i)
{
    const size_t at = i * t->cells_each;
    return (woi_opened){w->cells + at, w->n_cells[i], asked->scores ? asked->scores + at : NULL};
}

/* Queries first .. end-1 of the call, at most a block of them. */
static void answer_block(void *call, int worker, size_t first, size_t end)
{
    const task *t = call;
    woi_worker *w = &t->s->workers[worker];
    const woi_cells *cells = &t->s->index->cells;
    const size_t n = end - first;
    const float *q = t->queries + first * t->s->index->rows.d;
    const woi_routing asked = route_block(t, w, q, n);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < w->n_cells[i]; c++) __builtin_prefetch(&cells->offsets[w->cells[i * t->cells_each + c]]);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n) /* the lists of the next query come while this one is scored */
            for (size_t c = 0; c < w->n_cells[i + 1]; c++) {
                const uint32_t *list = &cells->offsets[w->cells[(i + 1) * t->cells_each + c]];
                const uint32_t last = list[1] - list[0] < LISTED ? list[1] : list[0] + LISTED;
                for (uint32_t at = list[0]; at < last; at += 16) __builtin_prefetch(cells->ids + at);
            }
        answer(t, w, first + i, opened_by(t, w, &asked, i));
    }
}

static void answer_by_cells(task *t)
{
    const size_t block = t->s->block, most = t->n / MIN_SHARE;
    const size_t threads = most < (size_t)t->s->threads ? most : (size_t)t->s->threads;
    const size_t share = threads > 1 ? t->n / threads + 1 : block;
    woi_team_ranges((int)threads, t->n, share < block ? share : block, answer_block, t);
}

static wo_status no_rows(wo_error *err)
{
    return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "layer",
                          "the index has no f32 rows to answer exactly with: the layer has them");
}

/* A class into the n best so far, best first, of equal ones the lower id first; returns the new n, at most k. */
static size_t insert(int32_t id, float score, int32_t *ids, float *scores, size_t n, size_t k)
{
    if (isnan(score)) return n;
    size_t at = n;
    while (at > 0 && (score > scores[at - 1] || (score == scores[at - 1] && id < ids[at - 1]))) at--;
    if (at == k) return n;
    if (n < k) n++;
    memmove(ids + at + 1, ids + at, (n - at - 1) * sizeof *ids);
    memmove(scores + at + 1, scores + at, (n - at - 1) * sizeof *scores);
    ids[at] = id;
    scores[at] = score;
    return n;
}

/* FULL's answers to a piece of the call's queries. */
typedef struct piece {
    const task *t;
    size_t first;
    float *lse; /* NULL: not wanted */
} piece;

/* The prior into FULL's answers. What it adds is never negative, so that of the classes that get nothing those among
 * the k best are among FULL's k best: only the candidates of the cells are to be scored. */
static void add_prior(const piece *p, woi_worker *w, size_t i, woi_opened opened)
{
    const task *t = p->t;
    const wo_index *index = t->s->index;
    const size_t k = t->k, d = index->rows.d;
    int32_t *ids = t->ids + (p->first + i) * k;
    float *scores = t->scores + (p->first + i) * k;
    const int32_t *candidates;
    const float *q = t->queries + (p->first + i) * d;
    if (index->options.fallback && knows_little(index, opened.cells, opened.n)) opened = widen(t, w, q, opened);
    const size_t n = unite_with_prior(t, w, opened, &candidates);
    t->s->kernels->gather_f32(q, index->rows.w, candidates, n, d, d, w->logits);
    add_bias(index, t->bias, candidates, n, w->logits);
    double more = 0; /* of the sum of exp(score), in parts of what it was */
    for (size_t c = 0; p->lse && c < n; c++)
        if (!isnan(w->logits[c])) more += exp((double)w->logits[c] - (double)p->lse[i]) * expm1((double)w->extra[c]);
    if (p->lse) p->lse[i] = (float)((double)p->lse[i] + log1p(more));
    size_t kept = 0;
    for (size_t j = 0; j < k && ids[j] >= 0; j++) {
        const uint32_t spot = w->spots[ids[j]];
        if (spot >= w->first_spot && spot < w->next_spot) continue;
        ids[kept] = ids[j];
        scores[kept++] = scores[j];
    }
    for (size_t c = 0; c < n; c++) kept = insert(candidates[c], w->logits[c] + w->extra[c], ids, scores, kept, k);
    for (; kept < k; kept++) {
        ids[kept] = -1;
        scores[kept] = -INFINITY;
    }
}

static void add_prior_block(void *own, int worker, size_t first, size_t end)
{
    const piece *p = own;
    const task *t = p->t;
    woi_worker *w = &t->s->workers[worker];
    const woi_routing asked = route_block(t, w, t->queries + (p->first + first) * t->s->index->rows.d, end - first);
    for (size_t i = 0; i < asked.n; i++)
        if (w->n_cells[i]) add_prior(p, w, first + i, opened_by(t, w, &asked, i));
}

/* Queries first .. first + n of the call. In pieces, because softmax needs a number for each query beside the answer.
 */
static wo_status answer_by_full(const task *t, size_t first, size_t n, wo_error *err)
{
    enum { PIECE = 1024 };
    const woi_dense *rows = &t->s->index->rows;
    const woi_adjust adjust = {t->forbidden, t->bias};
    if (!rows->w) return no_rows(err);
    const bool softmax = t->score == WO_SCORES_SOFTMAX, sums = wants_sum(t);
    for (const size_t end = first + n; first < end; first += PIECE) {
        const size_t count = end - first < PIECE ? end - first : PIECE, k = t->k;
        const float *q = t->queries + first * rows->d;
        float lse[PIECE];
        const woi_exact_call call = {.layer = rows,
                                     .adjust = adjust,
                                     .q = q,
                                     .n = count,
                                     .k = k,
                                     .threads = t->s->threads,
                                     .scratch = t->s->exact_scratch,
                                     .ids = t->ids + first * k,
                                     .scores = t->scores + first * k,
                                     .lse = sums ? lse : NULL};
        const wo_status status = woi_exact_topk(&call, err);
        if (status) return status;
        if (t->prior > 0)
            woi_team_ranges(t->s->threads, count, t->s->block, add_prior_block, &(piece){t, first, sums ? lse : NULL});
        for (size_t i = 0; sums && i < count; i++) {
            if (t->log_z) t->log_z[first + i] = lse[i];
            for (size_t j = 0; j < k; j++) {
                float *score = &t->scores[(first + i) * k + j];
                const bool there = t->ids[(first + i) * k + j] >= 0;
                if (softmax) *score = there ? expf(*score - lse[i]) : 0;
                if (t->score == WO_SCORES_LOGPROB && there) *score -= lse[i];
            }
        }
        for (size_t i = 0; t->stats && i < count; i++)
            tell(t, first + i,
                 woi_all_finite(q + i * rows->d, rows->d)
                     ? (wo_query_stats){.candidates = (uint32_t)(rows->m - t->n_forbidden), .exact = 1}
                     : (wo_query_stats){.status = WO_ERR_ARGUMENT});
    }
    return WO_OK;
}

/* ---- All classes in int8 ----------------------------------------------------------------------------------- */

/* Whether it is of use: there is one, and many more classes than would be scored exactly. */
static bool has_screen(const task *t)
{
    const size_t keep = woi_screen_kept(t->k), m = t->s->index->rows.m;
    return t->s->index->screen.rows && keep <= WOI_MOST_KEPT && keep < m / 2;
}

static woi_screen_call screen_call(task *t, woi_screened_fn found, void *ctx)
{
    const wo_index *index = t->s->index;
    return (woi_screen_call){.screen = &index->screen,
                             .b = index->rows.b,
                             .adjust = {t->forbidden, t->bias},
                             .q = t->queries,
                             .n = t->n,
                             .keep = woi_screen_kept(t->k),
                             .threads = t->s->threads,
                             .scratch = t->s->screen_scratch,
                             .found = found,
                             .ctx = ctx};
}

/* Candidates of the screen, and what is mandatory, into w->ids; returns how many. */
static size_t with_mandatory(const task *t, woi_worker *w, const int32_t *ids, size_t n)
{
    memcpy(w->ids, ids, n * sizeof *ids);
    if (!t->n_mandatory) return n;
    new_epoch(w, t->s->index->rows.m);
    for (size_t i = 0; i < n; i++) w->seen[ids[i]] = w->epoch;
    for (size_t i = 0; i < t->n_mandatory; i++) {
        const int32_t id = t->mandatory[i];
        if (w->seen[id] != w->epoch && !(t->forbidden && t->forbidden[id])) w->ids[n++] = id;
        w->seen[id] = w->epoch;
    }
    return n;
}

static void rescore(void *call, int worker, size_t i, const int32_t *screened, size_t n)
{
    const task *t = call;
    woi_worker *w = &t->s->workers[worker];
    int32_t *ids = t->ids + i * t->k;
    float *scores = t->scores + i * t->k;
    if (!screened) {
        pad(t, ids, scores);
        tell(t, i, (wo_query_stats){.status = WO_ERR_ARGUMENT});
        return;
    }
    n = with_mandatory(t, w, screened, n);
    score(t, w, t->queries + i * t->s->index->rows.d, w->ids, n);
    t->s->kernels->pick(w->logits, w->ids, n, t->k, scores, ids);
    tell(t, i, (wo_query_stats){.candidates = (uint32_t)n});
}

static wo_status answer_by_screen(task *t, wo_error *err)
{
    if (!has_screen(t) || t->score == WO_SCORES_SOFTMAX) return answer_by_full(t, 0, t->n, err);
    const woi_screen_call call = screen_call(t, rescore, t);
    woi_screen_run(t->s->kernels, &call);
    return WO_OK;
}

static wo_status answer_all(task *t, wo_by by, wo_error *err)
{
    const wo_index *index = t->s->index;
    const bool planned = by == WO_BY_PLANNER && !wants_log_z(t) && woi_batches_have(index->full, t->n) && index->rows.w;
    if (by == WO_BY_FULL || planned || index->options.method == WO_METHOD_FULL) return answer_by_full(t, 0, t->n, err);
    if (index->options.method == WO_METHOD_SCREEN) return answer_by_screen(t, err);
    answer_by_cells(t);
    wo_status status = WO_OK;
    for (size_t i = 0; t->exact_fallback && !status && i < t->n; i++) /* few; each is read once more by all threads */
        if (t->ids[i * t->k] == FOR_FULL) status = answer_by_full(t, i, 1, err);
    return status;
}

/* ---- Calls ------------------------------------------------------------------------------------------------- */

static task begin(wo_searcher *s, const float *queries, size_t n, uint32_t probes)
{
    return (task){.s = s,
                  .queries = queries,
                  .n = n,
                  .probes = probes,
                  .wider_probes = woi_wider_probes(s->index, probes),
                  .cells_each = woi_cells_opened(s->index, probes),
                  .prior = s->index->options.prior};
}

static wo_status check_places(size_t n, size_t k, const void *queries, const void *ids, const void *scores,
                              wo_error *err)
{
    if (k < 1) return woi_fail_option(err, WO_ERR_ARGUMENT, "k", "k is 0: at least one answer must be asked for");
    if (n && (!queries || !ids || !scores))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "queries, ids or scores are NULL");
    return WO_OK;
}

/* `what` is the option, and its word in a sentence. */
static wo_status check_ids(const char *what, const int32_t *ids, size_t n, size_t m, wo_error *err)
{
    if (n && !ids) return woi_fail_option(err, WO_ERR_ARGUMENT, what, "%zu %s classes are at NULL", n, what);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= m)
            return woi_fail_option(err, WO_ERR_ARGUMENT, what, "%s class %" PRId32 " is not one of the %zu classes",
                                   what, ids[i], m);
    return WO_OK;
}

/* Whether log Z is that of the call: what was learned, or FULL's. */
static wo_status check_log_z(const wo_index *index, const wo_search_call *c, wo_error *err)
{
    if (c->by == WO_BY_FULL || index->options.method == WO_METHOD_FULL) return WO_OK;
    if (!index->partition.numbers)
        return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "partition",
                              "the index knows no log Z, which probabilities need: it was built without a partition");
    const char *changed = c->n_forbidden                                    ? "forbidden"
                          : c->n_mandatory                                  ? "mandatory"
                          : c->logit_bias                                   ? "logit_bias"
                          : c->probes && c->probes != index->options.probes ? "probes"
                                                                            : NULL;
    if (!changed) return WO_OK;
    return woi_fail_option(err, WO_ERR_ARGUMENT, changed,
                           "%s does not go with log Z, which was learned without: FULL has the exact one", changed);
}

/* Completes a task by the rest of a call, all but where answers go; nothing is marked as forbidden yet. */
static wo_status read_call(const wo_search_call *c, task *t, wo_error *err)
{
    const wo_index *index = t->s->index;
    wo_status status;
    if ((status = woi_check_range("by", c->by, WO_BY_PLANNER, WO_BY_FULL, err)) ||
        (status = woi_check_range("score", c->score, WO_SCORES_LOGITS, WO_SCORES_LOGPROB, err)) ||
        (status = check_ids("forbidden", c->forbidden, c->n_forbidden, index->rows.m, err)) ||
        (status = check_ids("mandatory", c->mandatory, c->n_mandatory, index->rows.m, err)))
        return status;
    if (c->probes > t->s->max_probes) {
        if ((status = woi_probes_check(index, c->probes, err))) return status;
        return woi_fail_option(err, WO_ERR_ARGUMENT, "probes",
                               "%" PRIu32 " probes are more than the %" PRIu32 " that the searcher was made for",
                               c->probes, t->s->max_probes);
    }
    if (c->n_mandatory > t->s->max_mandatory)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "mandatory",
                               "%zu mandatory classes are more than the %" PRIu32 " that the searcher was made for",
                               c->n_mandatory, t->s->max_mandatory);
    if (c->exact_fallback && !index->rows.w) return no_rows(err);
    if (c->score == WO_SCORES_LOGPROB && (status = check_log_z(index, c, err))) return status;
    if (c->logit_bias && !woi_all_finite(c->logit_bias, index->rows.m))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "logit_bias",
                               "the logit bias of some class is not finite: forbid a class instead");
    t->k = c->k;
    t->ids = c->ids;
    t->scores = c->scores;
    t->stats = (char *)c->stats;
    t->stats_bytes = c->stats_bytes ? c->stats_bytes : STATS_BYTES_0_1;
    t->score = c->score;
    t->exact_fallback = c->exact_fallback;
    t->mandatory = c->mandatory;
    t->n_mandatory = c->n_mandatory;
    t->bias = c->logit_bias;
    if (c->no_prior) t->prior = 0;
    return WO_OK;
}

static void forbid(const wo_search_call *c, task *t)
{
    for (size_t i = 0; i < c->n_forbidden; i++) {
        t->n_forbidden += !t->s->forbidden[c->forbidden[i]];
        t->s->forbidden[c->forbidden[i]] = 1;
    }
    if (c->n_forbidden) t->forbidden = t->s->forbidden;
}

static void allow_again(const wo_search_call *c, const task *t)
{
    for (size_t i = 0; i < c->n_forbidden; i++) t->s->forbidden[c->forbidden[i]] = 0;
}

wo_status wo_search_run(wo_searcher *s, const wo_search_call *call, wo_error *err)
{
    wo_search_call c = {.struct_size = sizeof c};
    wo_status status = woi_sized_take(&c, sizeof c, call, "search call", err);
    if (!status) status = check_places(c.n, c.k, c.queries, c.ids, c.scores, err);
    if (status) return status;
    task t = begin(s, c.queries, c.n, c.probes ? c.probes : s->index->options.probes);
    if ((status = read_call(&c, &t, err))) return status;
    forbid(&c, &t);
    status = answer_all(&t, c.by, err);
    allow_again(&c, &t);
    return status;
}

wo_status wo_search(wo_searcher *s, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                    wo_error *err)
{
    const wo_status status = check_places(n, k, queries, ids, scores, err);
    if (status) return status;
    task t = begin(s, queries, n, s->index->options.probes);
    t.k = k;
    t.ids = ids;
    t.scores = scores;
    return answer_all(&t, WO_BY_PLANNER, err);
}

wo_status wo_log_partition(wo_searcher *s, const wo_search_call *call, float *log_z, wo_error *err)
{
    enum { PIECE = 1024 };
    int32_t ids[PIECE];
    float scores[PIECE];
    wo_search_call c = {.struct_size = sizeof c};
    wo_status status = woi_sized_take(&c, sizeof c, call, "search call", err);
    c.k = 1; /* answers are not wanted, but those of a few queries are in nobody's way */
    c.ids = ids;
    c.scores = scores;
    c.score = WO_SCORES_LOGPROB;
    if (!status) status = check_places(c.n, c.k, c.queries, log_z, scores, err);
    const size_t n = c.n, d = s->index->rows.d;
    for (size_t first = 0; !status && first < n; first += PIECE) {
        c.n = n - first < PIECE ? n - first : PIECE;
        task t = begin(s, c.queries + first * d, c.n, s->index->options.probes);
        if ((status = read_call(&c, &t, err))) break;
        t.stats = t.stats ? t.stats + first * t.stats_bytes : NULL;
        t.log_z = log_z + first;
        forbid(&c, &t);
        status = answer_all(&t, c.by, err);
        allow_again(&c, &t);
    }
    return status;
}

void woi_search_see(wo_searcher *s, const float *queries, size_t n, const woi_seen *seen)
{
    task t = begin(s, queries, n, s->index->options.probes);
    t.seen = *seen;
    answer_by_cells(&t);
}

/* All that are not forbidden. */
static size_t list_all(const task *t, int32_t *ids, size_t capacity)
{
    size_t n = 0;
    for (size_t j = 0; j < t->s->index->rows.m; j++) {
        if (t->forbidden && t->forbidden[j]) continue;
        if (n < capacity) ids[n] = (int32_t)j;
        n++;
    }
    return n;
}

/* The candidates of a call's only query go here. */
typedef struct listing {
    const task *t;
    int32_t *ids;
    size_t capacity, n;
} listing;

static void list_screened(void *ctx, int worker, size_t i, const int32_t *screened, size_t n)
{
    listing *l = ctx;
    woi_worker *w = &l->t->s->workers[worker];
    (void)i;
    l->n = with_mandatory(l->t, w, screened, n);
    if (l->capacity) memcpy(l->ids, w->ids, (l->n < l->capacity ? l->n : l->capacity) * sizeof *l->ids);
}

static size_t list_candidates(task *t, int32_t *ids, size_t capacity)
{
    if (t->s->index->screen.rows) {
        listing l = {t, ids, capacity, 0};
        const woi_screen_call call = screen_call(t, list_screened, &l);
        woi_screen_run(t->s->kernels, &call);
        return l.n;
    }
    const wo_index *index = t->s->index;
    woi_worker *w = &t->s->workers[0];
    const int32_t *candidates;
    const uint32_t *opened = w->cells;
    woi_routing asked = {.q = t->queries, .n = 1, .probes = t->probes, .cells = w->cells, .n_cells = w->n_cells};
    route(t, w, &asked);
    if (index->options.fallback && knows_little(index, opened, *w->n_cells)) {
        asked.probes = t->wider_probes;
        opened = asked.cells = w->wider;
        route(t, w, &asked);
    }
    const size_t n = unite(t, w, (woi_opened){opened, *w->n_cells, NULL}, &candidates);
    if (capacity) memcpy(ids, candidates, (n < capacity ? n : capacity) * sizeof *ids);
    return n;
}

wo_status wo_search_candidates(wo_searcher *s, const wo_search_call *call, int32_t *ids, size_t capacity,
                               size_t *n_candidates, wo_error *err)
{
    *n_candidates = 0;
    wo_search_call c = {.struct_size = sizeof c};
    wo_status status = woi_sized_take(&c, sizeof c, call, "search call", err);
    if (status) return status;
    if (c.n != 1 || !c.queries)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "the call has %zu queries, expected 1", c.n);
    if (!woi_all_finite(c.queries, s->index->rows.d))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "the query is not finite");
    task t = begin(s, c.queries, 1, c.probes ? c.probes : s->index->options.probes);
    if ((status = read_call(&c, &t, err))) return status;
    forbid(&c, &t);
    const bool all =
        s->index->options.method == WO_METHOD_FULL || (s->index->options.method == WO_METHOD_SCREEN && !has_screen(&t));
    *n_candidates = c.by == WO_BY_FULL || all ? list_all(&t, ids, capacity) : list_candidates(&t, ids, capacity);
    allow_again(&c, &t);
    return WO_OK;
}

wo_status wo_score(wo_searcher *s, const float *query, const int32_t *ids, size_t n, float *logits, wo_error *err)
{
    const wo_index *index = s->index;
    if (n && (!query || !logits))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "query or logits are NULL");
    const wo_status status = check_ids("given", ids, n, index->rows.m, err);
    if (status) woi_error_option(err, WO_ABOUT_OPTION, "ids");
    if (status || !n) return status;
    if (index->rows.w)
        s->kernels->gather_f32(query, index->rows.w, ids, n, index->rows.d, index->rows.d, logits);
    else
        s->kernels->gather_bf16(query, index->small.bf16, ids, n, index->rows.d, index->rows.d, logits);
    add_bias(index, NULL, ids, n, logits);
    return WO_OK;
}
