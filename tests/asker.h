/* A searcher together with what it is asked every time: masks, probes, scores. Searches then read as one call. */
#ifndef WO_ASKER_H
#define WO_ASKER_H

#include "wideout.h"

#include <stdlib.h>

/* All zero: all cores, and no wishes. */
typedef struct asked {
    int threads;
    uint32_t probes;
    wo_scores scores;
    int exact_fallback;
    const int32_t *forbidden, *mandatory;
    size_t n_forbidden, n_mandatory;
    const float *logit_bias;
    int no_prior;
} asked;

typedef struct asker {
    wo_searcher *searcher;
    asked o;
} asker;

static inline wo_status try_create(const wo_index *index, const asked *o, asker **made, wo_error *err)
{
    *made = calloc(1, sizeof **made);
    if (o) (*made)->o = *o;
    const wo_searcher_options so = {.struct_size = sizeof so,
                                    .threads = (*made)->o.threads,
                                    .max_probes = (*made)->o.probes,
                                    .max_mandatory = (uint32_t)(*made)->o.n_mandatory};
    const wo_status status = wo_searcher_create(index, &so, &(*made)->searcher, err);
    if (!status) return WO_OK;
    free(*made);
    *made = NULL;
    return status;
}

static inline void free_asker(asker *a)
{
    if (a) wo_searcher_free(a->searcher);
    free(a);
}

static inline wo_search_call call_of(const asker *a, const float *queries, size_t n)
{
    return (wo_search_call){.struct_size = sizeof(wo_search_call),
                            .queries = queries,
                            .n = n,
                            .score = a->o.scores,
                            .probes = a->o.probes,
                            .exact_fallback = a->o.exact_fallback,
                            .forbidden = a->o.forbidden,
                            .mandatory = a->o.mandatory,
                            .n_forbidden = a->o.n_forbidden,
                            .n_mandatory = a->o.n_mandatory,
                            .logit_bias = a->o.logit_bias,
                            .no_prior = a->o.no_prior};
}

/* Where they go: ids and scores (n, k), stats (n) or NULL. */
typedef struct answers {
    int32_t *ids;
    float *scores;
    wo_query_stats *stats;
} answers;

static inline wo_search_call call_for(const asker *a, const float *q, size_t n, size_t k, answers to)
{
    wo_search_call call = call_of(a, q, n);
    call.k = k;
    call.ids = to.ids;
    call.scores = to.scores;
    call.stats = to.stats;
    return call;
}

static inline wo_status ask_stats(asker *a, const float *q, size_t n, size_t k, answers to, wo_error *err)
{
    const wo_search_call call = call_for(a, q, n, k, to);
    return wo_search_run(a->searcher, &call, err);
}

/* Without wishes by wo_search, which is to be the same. */
static inline wo_status ask(asker *a, const float *q, size_t n, size_t k, answers to, wo_error *err)
{
    const asked *o = &a->o;
    if (!o->probes && !o->scores && !o->exact_fallback && !o->n_forbidden && !o->n_mandatory && !o->logit_bias &&
        !o->no_prior)
        return wo_search(a->searcher, q, n, k, to.ids, to.scores, err);
    return ask_stats(a, q, n, k, to, err);
}

static inline wo_status ask_exact(asker *a, const float *q, size_t n, size_t k, answers to, wo_error *err)
{
    wo_search_call call = call_for(a, q, n, k, to);
    call.by = WO_BY_FULL;
    return wo_search_run(a->searcher, &call, err);
}

static inline wo_status ask_candidates(asker *a, const float *q, int32_t *ids, size_t capacity, size_t *n,
                                       wo_error *err)
{
    const wo_search_call call = call_of(a, q, 1);
    return wo_search_candidates(a->searcher, &call, ids, capacity, n, err);
}

#endif
