/* Searching by cells: Algorithm 2. A query opens its cells, their classes are united, scored exactly, and the best k
 * kept.
 *
 *   woi_answer_by_cells -> answer_block -> route, then for each query: unite -> screen -> score -> pick
 *   woi_route_all       -> record_block -> route alone; a call with these records (task.routes) recalls the cells */
#include "search/search.h"

#include "base/team.h"

#include <stdlib.h>

enum {
    MIN_SHARE = 64, /* queries that a thread must have to be worth waking; two with 48 each are as fast as one */
    RESCORED = 5,   /* of an int8 screen the best 9/8 k + RESCORED are scored exactly */
    SCREENED = 256, /* at most so many */
    LISTED = 256,   /* ids of a list that are asked for ahead; the processor follows a longer one by itself */
    MANY = 1 << 22, /* numbers in the rows: in int8 more than the second-level cache has */
};

/* ---- One query --------------------------------------------------------------------------------------------- */

/* The cells of queries, up to a block: cells (n, woi_cells_opened(probes)). Scratch and margin are filled in here. */
static void route(const woi_task *t, const woi_worker *w, woi_routing *asked)
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

/* The distinct classes of the cells, and more; returns how many. */
static size_t unite(const woi_task *t, woi_worker *w, woi_opened given, woi_more more, const int32_t **candidates)
{
    const uint32_t *opened = given.cells;
    const size_t n_cells = given.n;
    const woi_cells *cells = &t->s->index->cells;
    if (n_cells == 1 && !more.n && !t->n_mandatory && !woi_is_masked(t)) { /* there is nothing to unite */
        *candidates = cells->ids + cells->offsets[*opened];
        return cells->offsets[*opened + 1] - cells->offsets[*opened];
    }
    woi_new_epoch(w, t->s->index->rows.m);
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
    const woi_more lists[] = {more, {t->mandatory, t->n_mandatory}};
    for (size_t list = 0; list < 2; list++)
        for (size_t i = 0; i < lists[list].n; i++) {
            const int32_t id = lists[list].ids[i];
            if (seen[id] != epoch) ids[n++] = id;
            seen[id] = epoch;
        }
    if (woi_is_masked(t)) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (!t->forbidden[ids[i]]) ids[kept++] = ids[i];
        n = kept;
    }
    *candidates = ids;
    return n;
}

/* The same with their shares, or what the prior makes of them, in w->ids and w->extra. */
static size_t unite_with_shares(const woi_task *t, woi_worker *w, woi_opened opened, woi_more more,
                                const int32_t **candidates)
{
    size_t n = woi_prior_unite(t->s->index, w, opened);
    for (size_t i = 0; i < more.n; i++) n = woi_prior_add(w, more.ids[i], n);
    for (size_t i = 0; i < t->n_mandatory; i++) n = woi_prior_add(w, t->mandatory[i], n);
    if (woi_is_masked(t)) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            w->ids[kept] = w->ids[i];
            w->extra[kept] = w->extra[i];
            kept += !t->forbidden[w->ids[i]];
        }
        n = kept;
    }
    if (t->prior > 0) t->s->kernels->scaled_log(w->extra, n, (float)(1 / WO_PRIOR_FLOOR), (float)t->prior);
    *candidates = w->ids;
    return n;
}

void woi_add_bias(const wo_index *index, const float *more, const int32_t *ids, size_t n, float *logits)
{
    const float *b = index->rows.b;
    if (b)
        for (size_t i = 0; i < n; i++) logits[i] += b[ids[i]];
    if (more)
        for (size_t i = 0; i < n; i++) logits[i] += more[ids[i]];
}

/* What the prior adds, where there is one. */
static void add_extra(const woi_task *t, const woi_worker *w, size_t n, float *logits)
{
    if (t->prior > 0)
        for (size_t i = 0; i < n; i++) logits[i] += w->extra[i];
}

/* The logits of some classes: in bf16 where the index is built for it, else exact. */
void woi_score_some(const woi_task *t, const woi_worker *w, const float *q, const int32_t *ids, size_t n)
{
    float *logits = w->logits;
    const wo_index *index = t->s->index;
    const size_t d = index->rows.d;
    if (index->small.bf16)
        t->s->kernels->gather_bf16(q, index->small.bf16, ids, n, d, d, logits);
    else
        t->s->kernels->gather_f32(q, index->rows.w, ids, n, d, d, logits);
    woi_add_bias(index, t->bias, ids, n, logits);
}

/* Of many candidates those that int8 rows find best, in w->ids; returns how many. */
static size_t screen(const woi_task *t, woi_worker *w, const float *q, const int32_t **candidates, size_t n)
{
    const wo_index *index = t->s->index;
    const woi_kernels *kernels = t->s->kernels;
    const size_t d = index->rows.d, keep = t->k + t->k / 8 + RESCORED;
    if (!index->small.i8 || n <= 2 * keep || keep > SCREENED || woi_wants_sum(t)) return n;
    const float scale = kernels->quantise(q, d, w->q8);
    if (scale == 0) return n; /* too small for int8, which would tell no rows apart */
    kernels->gather_i8(w->q8, scale, index->small.i8, index->small.scales, *candidates, n, d, d, w->logits);
    const float *biases = index->cells.biases;
    if (biases && *candidates != w->ids) { /* a cell as it is, with all that lies beside it */
        biases += *candidates - index->cells.ids;
        for (size_t i = 0; i < n; i++) w->logits[i] += biases[i];
        for (size_t i = 0; t->bias && i < n; i++) w->logits[i] += t->bias[(*candidates)[i]];
    } else {
        woi_add_bias(index, t->bias, *candidates, n, w->logits);
    }
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
static woi_log_sum log_sum(const woi_kernels *kernels, const float *logits, size_t n)
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
    return sum == 0 ? (woi_log_sum){-INFINITY, 0} : (woi_log_sum){(double)shift, log(sum)};
}

/* Whether nearer cells count more. */
static bool wants_scores(const woi_task *t)
{
    return woi_wants_shares(t) && t->s->index->tree.A && t->s->index->options.focus > 0;
}

/* WO_WIDER times as many cells of a query, as far as there are more; w->wider. */
static woi_opened widen(const woi_task *t, woi_worker *w, const float *q)
{
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

/* The scores of n candidates, in place of their logits, and what they are relative to: zeros for logits. */
static woi_log_sum complete(const woi_task *t, woi_worker *w, const float *q, woi_opened opened, size_t n)
{
    const woi_kernels *kernels = t->s->kernels;
    woi_log_sum whole = {0};
    double tail = -INFINITY;
    if (woi_wants_sum(t)) whole = log_sum(kernels, w->logits, n);
    if (woi_wants_log_z(t)) tail = woi_partition_tail(t->s, q, opened, woi_log_sum_whole(whole));
    add_extra(t, w, n, w->logits);
    if (woi_wants_sum(t) && t->prior > 0) whole = log_sum(kernels, w->logits, n);
    if (whole.most == -INFINITY) return (woi_log_sum){tail, 0}; /* no candidates: the tail is all there is */
    if (woi_wants_log_z(t)) whole.rest = woi_log_add(whole.rest, tail - whole.most);
    return whole;
}

/* Query i of the call by these cells, and more. */
static void answer_from(const woi_task *t, woi_worker *w, size_t i, woi_opened opened, woi_more more, bool wider)
{
    const float *q = t->queries + i * t->s->index->rows.d;
    const int32_t *candidates = NULL;
    const size_t all = (woi_wants_shares(t) ? unite_with_shares : unite)(t, w, opened, more, &candidates);
    if (t->labels_seen.labels) {
        woi_mixture_see(&t->labels_seen, i, w, all);
        return;
    }
    const size_t n = screen(t, w, q, &candidates, all);
    woi_score_some(t, w, q, candidates, n);
    if (t->seen.of_candidates) {
        woi_partition_see(&t->seen, i, opened, woi_log_sum_whole(log_sum(t->s->kernels, w->logits, n)));
        return;
    }
    woi_log_sum whole = complete(t, w, q, opened, n);
    double log_z = woi_log_sum_whole(whole);
    if (t->mixed && isfinite(log_z)) { /* the scores are probabilities now, relative to nothing */
        log_z -= woi_mixture_apply(t->s, whole, w->extra, w->logits, n);
        whole = (woi_log_sum){0};
    }
    if (t->log_z) t->log_z[i] = (float)log_z;
    woi_tell_sum(t, i, whole);
    t->s->kernels->pick(w->logits, candidates, n, t->k, t->scores + i * t->k, t->ids + i * t->k);
    if (woi_refuse_infinite(t, i, n, whole)) return;
    woi_relate(t, i, whole);
    woi_tell(t, i, (wo_query_stats){.cells = opened.n, .candidates = (uint32_t)all, .wider = wider});
}

/* Query i of the call, which opens these cells. */
static void answer(const woi_task *t, woi_worker *w, size_t i, woi_opened opened)
{
    const wo_index *index = t->s->index;
    bool wider = false;
    if (!opened.n) {
        woi_refuse(t, i);
        return;
    }
    if (index->options.fallback && knows_little(index, opened.cells, opened.n)) {
        if (t->exact_fallback || woi_screen_helps(t)) {
            t->ids[i * t->k] = WOI_LEFT;
            return;
        }
        wider = t->wider_probes > t->probes;
        if (wider) opened = widen(t, w, t->queries + i * index->rows.d);
    }
    answer_from(t, w, i, opened, (woi_more){0}, wider);
}

void woi_answer_with(const woi_task *t, woi_worker *w, size_t i, woi_more more)
{
    answer_from(t, w, i, widen(t, w, t->queries + i * t->s->index->rows.d), more, true);
}

/* ---- Batches ----------------------------------------------------------------------------------------------- */

size_t woi_route_words(const woi_task *t)
{
    return 1 + t->cells_each * (wants_scores(t) ? 2 : 1);
}

/* The same as routing, from records of n queries. */
static void recall_cells(const woi_task *t, woi_worker *w, const uint32_t *record, size_t n)
{
    const size_t each = t->cells_each, words = woi_route_words(t);
    for (size_t i = 0; i < n; i++, record += words) {
        w->n_cells[i] = record[0];
        memcpy(w->cells + i * each, record + 1, each * sizeof *w->cells);
        if (words > 1 + each) memcpy(w->cell_scores + i * each, record + 1 + each, each * sizeof *w->cell_scores);
    }
}

/* The cells of n queries, at most a block of them. */
woi_routing woi_open_cells(const woi_task *t, woi_worker *w, const float *q, size_t n)
{
    woi_routing asked = {.q = q,
                         .n = n,
                         .probes = t->probes,
                         .cells = w->cells,
                         .n_cells = w->n_cells,
                         .scores = wants_scores(t) ? w->cell_scores : NULL};
    if (t->routes)
        recall_cells(t, w, t->routes + (size_t)(q - t->queries) / t->s->index->rows.d * woi_route_words(t), n);
    else
        route(t, w, &asked);
    return asked;
}

woi_opened woi_opened_by(const woi_task *t, const woi_worker *w, const woi_routing *asked, size_t i)
{
    const size_t at = i * t->cells_each;
    return (woi_opened){w->cells + at, w->n_cells[i], asked->scores ? asked->scores + at : NULL};
}

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The order in which n queries of a block are answered: by their first cell where rows are many, so that the rows of a
 * cell are read once for all of them. Of 10^7 classes that is a tenth of the time; small layers lie in the caches. */
static void put_in_order(const woi_task *t, const woi_worker *w, size_t n, uint32_t *order)
{
    uint64_t keys[WOI_WIDE_BLOCK]; /* cell, then query */
    const wo_index *index = t->s->index;
    const bool many = n > 1 && index->rows.m * index->rows.d >= MANY;
    for (size_t i = 0; i < n; i++)
        keys[i] = (many && w->n_cells[i] ? (uint64_t)w->cells[i * t->cells_each] << 32 : 0) | i;
    if (many) qsort(keys, n, sizeof *keys, by_key);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)keys[i];
}

/* Queries first .. end-1 of the call, at most a block of them. */
static void answer_block(void *call, int worker, size_t first, size_t end)
{
    const woi_task *t = call;
    woi_worker *w = &t->s->workers[worker];
    const woi_cells *cells = &t->s->index->cells;
    const size_t n = end - first;
    const float *q = t->queries + first * t->s->index->rows.d;
    const woi_routing asked = woi_open_cells(t, w, q, n);
    uint32_t order[WOI_WIDE_BLOCK];
    put_in_order(t, w, n, order);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < w->n_cells[i]; c++) __builtin_prefetch(&cells->offsets[w->cells[i * t->cells_each + c]]);
    for (size_t place = 0; place < n; place++) {
        const size_t i = order[place];
        if (place + 1 < n) { /* the lists of the next query come while this one is scored */
            const size_t next = order[place + 1];
            for (size_t c = 0; c < w->n_cells[next]; c++) {
                const uint32_t *list = &cells->offsets[w->cells[next * t->cells_each + c]];
                const uint32_t last = list[1] - list[0] < LISTED ? list[1] : list[0] + LISTED;
                for (uint32_t at = list[0]; at < last; at += 16) __builtin_prefetch(cells->ids + at);
                for (uint32_t at = list[0]; cells->shares && at < last; at += 32)
                    __builtin_prefetch(cells->shares + at);
            }
        }
        answer(t, w, first + i, woi_opened_by(t, w, &asked, i));
    }
}

/* Over the queries of the call, at most a block of them at once. */
static void run_blocks(const woi_task *t, woi_range_fn fn, void *ctx)
{
    const size_t block = t->s->block, most = t->n / MIN_SHARE;
    const size_t threads = most < (size_t)t->s->threads ? most : (size_t)t->s->threads;
    const size_t share = threads > 1 ? t->n / threads + 1 : block;
    woi_team_ranges((int)threads, t->n, share < block ? share : block, fn, ctx);
}

void woi_answer_by_cells(woi_task *t)
{
    run_blocks(t, answer_block, t);
}

typedef struct recording {
    const woi_task *t;
    uint32_t *routes;
} recording;

static void record_block(void *ctx, int worker, size_t first, size_t end)
{
    const recording *r = ctx;
    const woi_task *t = r->t;
    woi_worker *w = &t->s->workers[worker];
    const size_t each = t->cells_each, words = woi_route_words(t);
    const woi_routing asked = woi_open_cells(t, w, t->queries + first * t->s->index->rows.d, end - first);
    uint32_t *record = r->routes + first * words;
    for (size_t i = 0; i < asked.n; i++, record += words) {
        record[0] = w->n_cells[i];
        memcpy(record + 1, w->cells + i * each, each * sizeof *w->cells);
        if (asked.scores) memcpy(record + 1 + each, asked.scores + i * each, each * sizeof *asked.scores);
    }
}

void woi_route_all(const woi_task *t, uint32_t *routes)
{
    run_blocks(t, record_block, &(recording){t, routes});
}

size_t woi_prior_candidates(const woi_task *t, woi_worker *w, const float *q, woi_opened opened)
{
    const wo_index *index = t->s->index;
    const int32_t *candidates;
    if (index->options.fallback && knows_little(index, opened.cells, opened.n)) opened = widen(t, w, q);
    return unite_with_shares(t, w, opened, (woi_more){0}, &candidates);
}

size_t woi_candidates_with(const woi_task *t, woi_worker *w, const float *q, woi_more more, const int32_t **candidates)
{
    return unite(t, w, widen(t, w, q), more, candidates);
}

bool woi_list_by_cells(const woi_task *t, int32_t *ids, size_t capacity, size_t *n)
{
    const wo_index *index = t->s->index;
    woi_worker *w = &t->s->workers[0];
    const int32_t *candidates;
    const woi_routing asked = woi_open_cells(t, w, t->queries, 1);
    woi_opened opened = woi_opened_by(t, w, &asked, 0);
    if (index->options.fallback && knows_little(index, opened.cells, opened.n)) {
        if (woi_screen_helps(t)) return false;
        opened = widen(t, w, t->queries);
    }
    *n = unite(t, w, opened, (woi_more){0}, &candidates);
    if (capacity) memcpy(ids, candidates, (*n < capacity ? *n : capacity) * sizeof *ids);
    return true;
}
