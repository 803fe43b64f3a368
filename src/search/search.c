/* Searching: calls are read and checked, and cells, FULL or the screen answer them.
 *
 *   wo_search_run -> answer_all -> woi_answer_by_cells    search_cells.c
 *                               -> woi_answer_by_screen   search_all.c
 *                               -> woi_answer_by_full     search_all.c */
#include "search/search.h"

#include "base/error.h"
#include "base/sized.h"
#include "search/routed.h"

#include <inttypes.h>

enum { STATS_BYTES_0_1 = 16 }; /* what 0 means for ever: the size that stats had in version 0.1 */

static wo_status answer_all(woi_task *t, wo_by by, wo_error *err)
{
    const wo_index *index = t->s->index;
    /* A probability among all classes is another number than one among the candidates: what is relative to a sum is
     * answered by the same in every batch. */
    const bool planned =
        by == WO_BY_PLANNER && !woi_wants_sum(t) && woi_batches_have(index->full, t->n) && index->rows.w;
    if (by == WO_BY_FULL || planned || index->options.method == WO_METHOD_FULL)
        return woi_answer_by_full(t, 0, t->n, err);
    if (index->options.method == WO_METHOD_SCREEN) return woi_answer_by_screen(t, err);
    woi_answer_by_cells(t);
    wo_status status = WO_OK;
    for (size_t i = 0; t->exact_fallback && !status && i < t->n; i++) /* few; each is read once more by all threads */
        if (t->ids[i * t->k] == WOI_LEFT) status = woi_answer_by_full(t, i, 1, err);
    if (!t->exact_fallback && woi_screen_helps(t)) woi_answer_left_by_screen(t);
    return status;
}

/* Rows become classes. */
static wo_status answer_call(woi_task *t, wo_by by, wo_error *err)
{
    const wo_status status = answer_all(t, by, err);
    if (!status) woi_shard_name_rows(&t->s->index->shard, t->ids, t->n * t->k);
    return status;
}

/* ---- Calls ------------------------------------------------------------------------------------------------- */

static woi_task begin(wo_searcher *s, const float *queries, size_t n, uint32_t probes)
{
    return (woi_task){.s = s,
                      .queries = queries,
                      .n = n,
                      .probes = probes,
                      .wider_probes = woi_wider_probes(s->index, probes),
                      .cells_each = woi_cells_opened(s->index, probes),
                      .forbidden = s->index->n_removed ? s->forbidden : NULL,
                      .n_forbidden = s->index->n_removed,
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

/* What a shard cannot be asked. */
static wo_status check_shard(const wo_index *index, const wo_search_call *c, wo_error *err)
{
    if (!index->shard.count || !c->logit_bias) return WO_OK;
    return woi_fail_option(err, WO_ERR_UNSUPPORTED, "logit_bias",
                           "logit_bias is not for an index of a shard, which has %zu of %zu classes", index->rows.m,
                           index->shard.m);
}

/* `what` is the option, and its word in a sentence. */
static wo_status check_id(const char *what, int32_t id, size_t m, wo_error *err)
{
    if (id >= 0 && (size_t)id < m) return WO_OK;
    return woi_fail_option(err, WO_ERR_ARGUMENT, what, "%s class %" PRId32 " is not one of the %zu classes", what, id,
                           m);
}

static wo_status check_there(const char *what, const int32_t *ids, size_t n, wo_error *err)
{
    if (!n || ids) return WO_OK;
    return woi_fail_option(err, WO_ERR_ARGUMENT, what, "%zu %s classes are at NULL", n, what);
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

/* ---- Lists of classes ---------------------------------------------------------------------------------------
 *
 * A list is read once, before the first answer is written, and kept as rows in memory of the searcher's own: it may lie
 * where the answers go, and what was checked is what is used, and undone. */

static wo_status forbid(const wo_search_call *c, woi_task *t, wo_error *err)
{
    wo_searcher *s = t->s;
    const wo_index *index = s->index;
    const size_t m = index->rows.m, whole = woi_shard_whole(&index->shard, m);
    for (size_t i = 0; i < c->n_forbidden; i++) {
        const int32_t id = c->forbidden[i];
        const wo_status status = check_id("forbidden", id, whole, err);
        if (status) return status;
        const int32_t row = woi_shard_row(&index->shard, m, id);
        if (row < 0 || s->forbidden[row]) continue; /* another shard's, given twice, or removed */
        s->forbidden[row] = WOI_FORBIDDEN;
        s->marked[s->n_marked++] = row;
    }
    t->n_forbidden += s->n_marked;
    if (s->n_marked) t->forbidden = s->forbidden;
    return WO_OK;
}

static void allow_again(wo_searcher *s)
{
    for (size_t i = 0; i < s->n_marked; i++) s->forbidden[s->marked[i]] = 0;
    s->n_marked = 0;
}

/* After those that are forbidden, which are never candidates. */
static wo_status demand(const wo_search_call *c, woi_task *t, wo_error *err)
{
    wo_searcher *s = t->s;
    const wo_index *index = s->index;
    const size_t m = index->rows.m, whole = woi_shard_whole(&index->shard, m);
    wo_status status = WO_OK;
    size_t n = 0;
    for (size_t i = 0; i < c->n_mandatory; i++) {
        const int32_t id = c->mandatory[i];
        if ((status = check_id("mandatory", id, whole, err))) break;
        const int32_t row = woi_shard_row(&index->shard, m, id);
        if (row < 0 || s->forbidden[row]) continue; /* another shard's, given twice, or never answered */
        s->forbidden[row] = WOI_DEMANDED;
        s->mandatory[n++] = row;
    }
    for (size_t i = 0; i < n; i++) s->forbidden[s->mandatory[i]] = 0;
    t->mandatory = s->mandatory;
    t->n_mandatory = n;
    return status;
}

/* Whatever comes of it, allow_again is to follow. */
static wo_status read_lists(const wo_search_call *c, woi_task *t, wo_error *err)
{
    const wo_status status = forbid(c, t, err);
    return status ? status : demand(c, t, err);
}

/* Completes a task by the rest of a call, all but its lists of classes. */
static wo_status read_call(const wo_search_call *c, woi_task *t, wo_error *err)
{
    const wo_index *index = t->s->index;
    wo_status status;
    if ((status = woi_check_range("by", c->by, WO_BY_PLANNER, WO_BY_FULL, err)) ||
        (status = woi_check_range("score", c->score, WO_SCORES_LOGITS, WO_SCORES_LOGPROB, err)) ||
        (status = check_shard(index, c, err)) ||
        (status = check_there("forbidden", c->forbidden, c->n_forbidden, err)) ||
        (status = check_there("mandatory", c->mandatory, c->n_mandatory, err)))
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
    if (c->exact_fallback && !index->rows.w) return woi_no_rows(err);
    if (c->score == WO_SCORES_LOGPROB && (status = check_log_z(index, c, err))) return status;
    if (c->log_sums && c->score != WO_SCORES_LOGITS)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "log_sums", "log_sums are wanted, but scores are no logits");
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
    t->bias = c->logit_bias;
    t->log_sums = c->log_sums;
    if (c->no_prior) t->prior = 0;
    const bool older = index->partition.numbers && index->options.mix < 0; /* a file's: they have the prior */
    if (c->score == WO_SCORES_LOGPROB && !older) {
        t->prior = 0;
        t->mixed = index->partition.numbers && index->options.mix > 0 && !c->no_prior;
    }
    return WO_OK;
}

wo_status wo_search_run(wo_searcher *s, const wo_search_call *call, wo_error *err)
{
    return woi_search_routed(s, call, NULL, err);
}

/* Such a call as a task, without its queries. */
static wo_status take_shape(wo_searcher *s, const wo_search_call *call, woi_task *t, wo_error *err)
{
    wo_search_call c = {.struct_size = sizeof c};
    wo_status status = woi_sized_take(&c, sizeof c, call, "search call", err);
    *t = begin(s, NULL, 0, c.probes ? c.probes : s->index->options.probes);
    if (status || (status = read_call(&c, t, err))) return status;
    status = read_lists(&c, t, err);
    allow_again(s); /* which cells are opened does not depend on them */
    return status;
}

wo_status woi_search_words(wo_searcher *s, const wo_search_call *call, size_t *words, wo_error *err)
{
    const wo_index *index = s->index;
    woi_task t;
    const wo_status status = take_shape(s, call, &t, err);
    const bool routed = (index->tree.A || index->hash.K) && (call->by != WO_BY_FULL || t.prior > 0);
    *words = !status && routed ? woi_route_words(&t) : 0;
    return status;
}

wo_status woi_search_route(wo_searcher *s, const wo_search_call *call, uint32_t *routes, wo_error *err)
{
    woi_task t;
    const wo_status status = take_shape(s, call, &t, err);
    if (status) return status;
    t.queries = call->queries;
    t.n = call->n;
    woi_route_all(&t, routes);
    return WO_OK;
}

wo_status woi_search_routed(wo_searcher *s, const wo_search_call *call, const uint32_t *routes, wo_error *err)
{
    wo_search_call c = {.struct_size = sizeof c};
    wo_status status = woi_sized_take(&c, sizeof c, call, "search call", err);
    if (!status) status = check_places(c.n, c.k, c.queries, c.ids, c.scores, err);
    if (status) return status;
    woi_task t = begin(s, c.queries, c.n, c.probes ? c.probes : s->index->options.probes);
    t.routes = routes;
    if ((status = read_call(&c, &t, err))) return status;
    status = read_lists(&c, &t, err);
    if (!status) status = answer_call(&t, c.by, err);
    allow_again(s);
    return status;
}

wo_status wo_search(wo_searcher *s, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                    wo_error *err)
{
    const wo_status status = check_places(n, k, queries, ids, scores, err);
    if (status) return status;
    woi_task t = begin(s, queries, n, s->index->options.probes);
    t.k = k;
    t.ids = ids;
    t.scores = scores;
    return answer_call(&t, WO_BY_PLANNER, err);
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
    if (status || !c.n) return status;
    woi_task t = begin(s, c.queries, 0, s->index->options.probes);
    if ((status = read_call(&c, &t, err))) return status;
    status = read_lists(&c, &t, err);
    for (size_t first = 0; !status && first < c.n; first += PIECE) {
        t.queries = c.queries + first * s->index->rows.d;
        t.n = c.n - first < PIECE ? c.n - first : PIECE;
        t.stats = c.stats ? (char *)c.stats + first * t.stats_bytes : NULL;
        t.log_z = log_z + first;
        status = answer_all(&t, c.by, err);
    }
    allow_again(s);
    return status;
}

void woi_search_see(wo_searcher *s, const float *queries, size_t n, const woi_seen *seen)
{
    woi_task t = begin(s, queries, n, s->index->options.probes);
    t.seen = *seen;
    woi_answer_by_cells(&t);
}

void woi_search_see_labels(wo_searcher *s, const float *queries, size_t n, const woi_labels_seen *seen)
{
    woi_task t = begin(s, queries, n, s->index->options.probes);
    t.prior = 0;
    t.labels_seen = *seen;
    woi_answer_by_cells(&t);
}

/* All that are not forbidden. */
static size_t list_all(const woi_task *t, int32_t *ids, size_t capacity)
{
    size_t n = 0;
    for (size_t j = 0; j < t->s->index->rows.m; j++) {
        if (t->forbidden && t->forbidden[j]) continue;
        if (n < capacity) ids[n] = (int32_t)j;
        n++;
    }
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
    woi_task t = begin(s, c.queries, 1, c.probes ? c.probes : s->index->options.probes);
    if ((status = read_call(&c, &t, err))) return status;
    if ((status = read_lists(&c, &t, err))) {
        allow_again(s);
        return status;
    }
    const bool all = s->index->options.method == WO_METHOD_FULL ||
                     (s->index->options.method == WO_METHOD_SCREEN && !woi_has_screen(&t));
    if (c.by == WO_BY_FULL || all)
        *n_candidates = list_all(&t, ids, capacity);
    else if (!s->index->cells.n || !woi_list_by_cells(&t, ids, capacity, n_candidates))
        *n_candidates = woi_list_by_screen(&t, ids, capacity);
    woi_shard_name_rows(&s->index->shard, ids, *n_candidates < capacity ? *n_candidates : capacity);
    allow_again(s);
    return WO_OK;
}

wo_status wo_score(wo_searcher *s, const float *query, const int32_t *ids, size_t n, float *logits, wo_error *err)
{
    const wo_index *index = s->index;
    if (n && (!query || !logits))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "query or logits are NULL");
    if (index->shard.count)
        return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "",
                              "given classes are not scored by an index of a shard");
    wo_status status = check_there("given", ids, n, err);
    for (size_t i = 0; !status && i < n; i++) status = check_id("given", ids[i], index->rows.m, err);
    if (status) woi_error_option(err, WO_ABOUT_OPTION, "ids");
    if (status || !n) return status;
    for (size_t i = 0; index->n_removed && i < n; i++)
        if (woi_is_removed(index, ids[i]))
            return woi_fail_option(err, WO_ERR_ARGUMENT, "ids", "given class %" PRId32 " was removed from the index",
                                   ids[i]);
    if (index->rows.w)
        s->kernels->gather_f32(query, index->rows.w, ids, n, index->rows.d, index->rows.d, logits);
    else
        s->kernels->gather_bf16(query, index->small.bf16, ids, n, index->rows.d, index->rows.d, logits);
    woi_add_bias(index, NULL, ids, n, logits);
    return WO_OK;
}
