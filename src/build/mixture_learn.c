/* Choosing the mixture: see search/mixture.h.
 *
 * With p the network's probability of a label, by the exact log Z, and s its share, a label's log likelihood is
 *
 *   log p + log(1 + mix * a),   a = s / p - mass
 *
 * The sum over all labels is concave in the mix, and its slope, the sum of a / (1 + mix * a), falls: its zero is found
 * by bisection. A sum that gains no more than chance would is no gain. */
#include "build/mixture_learn.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/progress.h"
#include "search/search.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 1024,  /* queries that FULL is asked at a time */
    HALVINGS = 40, /* of the range of the mix */
};
/* Nats that the sum must gain. Of labels that shares say nothing about it gains 3 or more once in 140 times: twice the
 * gain is a chi square with one degree of freedom, where the slope at 0 is above 0. */
static const double NOTICED = 3;

/* What is asked, a chunk at a time, and what comes of it. */
typedef struct choice {
    const wo_index *index;
    const woi_mixture_call *call;
    wo_searcher *searcher;
    size_t n_labels; /* that count */
    double *a;       /* (n_labels): see above */
    float *q;        /* (CHUNK, d) */
    int32_t *labels; /* of a chunk, */
    float *shares, *mass;
    size_t starts[CHUNK + 1];
    woi_log_sum lse[CHUNK];
    int32_t ids[CHUNK];
    float scores[CHUNK];
} choice;

static size_t query_of(const woi_mixture_call *call, size_t i)
{
    return call->picks ? call->picks[i] : i;
}

static wo_status ask(choice *c, size_t first, wo_error *err)
{
    const wo_log *log = c->call->log;
    const size_t d = log->d, n = c->call->n - first < CHUNK ? c->call->n - first : CHUNK;
    c->starts[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t query = query_of(c->call, first + i);
        memcpy(c->q + i * d, log->queries + query * d, d * sizeof *c->q);
        c->starts[i + 1] = c->starts[i] + woi_labels_of(log->indptr, log->labels, query, c->labels + c->starts[i]);
    }
    const woi_exact_call call = {.layer = &c->index->rows,
                                 .q = c->q,
                                 .n = n,
                                 .k = 1,
                                 .threads = c->searcher->threads,
                                 .ids = c->ids,
                                 .scores = c->scores,
                                 .lse = c->lse};
    wo_status status = woi_exact_topk(&call, err);
    if (status) return status;
    memset(c->shares, 0, c->starts[n] * sizeof *c->shares);
    memset(c->mass, 0, c->starts[n] * sizeof *c->mass);
    woi_search_see_labels(c->searcher, c->q, n, &(woi_labels_seen){c->starts, c->labels, c->shares, c->mass});
    for (size_t i = 0; !status && i < n; i++)
        for (size_t at = c->starts[i]; !status && at < c->starts[i + 1]; at++) {
            float logit;
            status = wo_score(c->searcher, c->q + i * d, &c->labels[at], 1, &logit, err);
            const double log_p = woi_relative(logit, c->lse[i]);
            if (isfinite(log_p)) /* as far as a double goes */
                c->a[c->n_labels++] = fmin((double)c->shares[at] * exp(-log_p), 1e300) - (double)c->mass[at];
        }
    return status;
}

static double slope(const choice *c, double mix)
{
    double sum = 0;
    for (size_t i = 0; i < c->n_labels; i++) sum += c->a[i] / (1 + mix * c->a[i]);
    return sum;
}

static double gain(const choice *c, double mix)
{
    double sum = 0;
    for (size_t i = 0; i < c->n_labels; i++) sum += log1p(mix * c->a[i]);
    return sum;
}

static double most_likely(const choice *c)
{
    double low = 0, high = WOI_MOST_MIX;
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        if (slope(c, middle) > 0)
            low = middle;
        else
            high = middle;
    }
    const double mix = round(low * 1e4) / 1e4;
    return gain(c, mix) > NOTICED ? mix : 0;
}

wo_status woi_mixture_choose(const wo_index *index, const woi_mixture_call *call, double *mix, wo_error *err)
{
    const wo_log *log = call->log;
    size_t n_labels = 0, most = 0;
    *mix = 0;
    for (size_t i = 0; log->indptr && i < call->n; i++) {
        const size_t query = query_of(call, i), own = (size_t)(log->indptr[query + 1] - log->indptr[query]);
        n_labels += own;
        if (own > most) most = own;
    }
    if (!n_labels) return WO_OK;
    choice *c = woi_alloc_zero(1, sizeof *c, err);
    if (!c) return WO_ERR_MEMORY;
    const size_t chunk = call->n < CHUNK ? call->n : CHUNK;
    c->index = index;
    c->call = call;
    c->a = woi_alloc(n_labels, sizeof *c->a, err);
    c->q = woi_alloc(chunk * log->d, sizeof *c->q, err);
    c->labels = woi_alloc(chunk * most, sizeof *c->labels, err);
    c->shares = woi_alloc(chunk * most, sizeof *c->shares, err);
    c->mass = woi_alloc(chunk * most, sizeof *c->mass, err);
    wo_status status = c->a && c->q && c->labels && c->shares && c->mass ? WO_OK : WO_ERR_MEMORY;
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = call->threads};
    if (!status) status = wo_searcher_create(index, &so, &c->searcher, err);
    for (size_t first = 0; !status && first < call->n; first += CHUNK) {
        status = woi_progress(call->progress, "choosing the mixture", first, call->n, err);
        if (!status) status = ask(c, first, err);
    }
    if (!status) *mix = most_likely(c);
    wo_searcher_free(c->searcher);
    woi_free(c->a);
    woi_free(c->q);
    woi_free(c->labels);
    woi_free(c->shares);
    woi_free(c->mass);
    woi_free(c);
    return status;
}
