/* Shared by the tests of probabilities: a layer, a log of queries and others to test on, an index, a searcher. Who
 * includes it says how large they are: M classes, D dimensions, N queries in the log, TEST others, at most LABELS each.
 */
#ifndef WOI_TESTS_PLANTED_H
#define WOI_TESTS_PLANTED_H

#include "testing.h"

#include "index/index.h"

#include <math.h>

/* The last TEST queries are not in the log. */
typedef struct planted {
    float w[M * D], b[M], q[(N + TEST) * D];
    int64_t indptr[N + TEST + 1];
    int32_t labels[(N + TEST) * LABELS];
    wo_layer *layer;
    wo_log *log, *test;
} planted;

static inline double logit_of(const planted *p, const float *q, size_t id)
{
    double sum = (double)p->b[id];
    for (size_t j = 0; j < D; j++) sum += (double)q[j] * (double)p->w[id * D + j];
    return sum;
}

static inline double exact_log_z(const planted *p, const float *q)
{
    double sum = 0;
    for (size_t c = 0; c < M; c++) sum += exp(logit_of(p, q, c));
    return log(sum);
}

/* When weights, queries and labels, n_labels each, are there. */
static inline void take_root(planted *p, size_t n_labels)
{
    wo_error err;
    for (size_t i = 0; i <= N + TEST; i++) p->indptr[i] = (int64_t)(i * n_labels);
    if (wo_layer_wrap(p->w, p->b, M, D, &p->layer, &err) ||
        wo_log_wrap(p->q, N, D, p->indptr, p->labels, &p->log, &err) ||
        wo_log_wrap(p->q + N * D, TEST, D, p->indptr, p->labels + N * n_labels, &p->test, &err))
        fail_msg("%s", err.text);
}

static inline void uproot(planted *p)
{
    wo_log_free(p->log);
    wo_log_free(p->test);
    wo_layer_free(p->layer);
    free(p);
}

/* Two tables of 2^K cells, or 64 leaves of which two are opened; with probabilities. */
static inline wo_build_options small_options(wo_router router, uint32_t bits)
{
    wo_build_options o;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    o.router = router;
    o.K = bits;
    o.L = 2;
    o.nodes = 4;
    o.leaves = 16;
    o.probes = 2;
    o.iterations = 20;
    o.partition = 1;
    return o;
}

static inline wo_index *make(const planted *p, const wo_build_options *o)
{
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(p->layer, p->log, o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static inline wo_searcher *searcher_of(const wo_index *index)
{
    wo_searcher *s = NULL;
    wo_error err;
    if (wo_searcher_create(index, NULL, &s, &err)) fail_msg("%s", err.text);
    return s;
}

#endif
