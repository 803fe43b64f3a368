/* Using and choosing the mixture: see mixture.h.
 *
 * With p the network's probability of a label, by the exact log Z, and s its share, a label's log likelihood is
 *
 *   log p + log(1 + mix * a),   a = s / p - mass
 *
 * The sum over all labels is concave in the mix, and its slope, the sum of a / (1 + mix * a), falls: its zero is found
 * by bisection. A sum that gains no more than chance would is no gain. */
#include "index/mixture.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/progress.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 1024,  /* queries that FULL is asked at a time */
    HALVINGS = 40, /* of the range of the mix */
};
/* Nats that the sum must gain. Of labels that shares say nothing about it gains 3 or more once in 140 times: twice the
 * gain is a chi square with one degree of freedom, where the slope at 0 is above 0. */
static const double NOTICED = 3;

/* ---- Using it ---------------------------------------------------------------------------------------------- */

/* Of shares as they are. */
typedef struct part {
    double mass, scale;
} part;

static part part_of(const float *shares, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)shares[i];
    return sum > 1 ? (part){1, 1 / sum} : (part){sum, 1};
}

double woi_mixture_apply(const wo_searcher *searcher, woi_log_sum log_z, float *shares, float *logits, size_t n)
{
    /* exp(-log p) is a float's for all that a share can be added to: below this a class has its share alone. */
    static const float least = -60;
    const double mix = searcher->index->options.mix;
    const part whole = part_of(shares, n);
    const double rest = log1p(-mix * whole.mass);
    float odds[64];
    for (size_t first = 0; first < n; first += 64) {
        const size_t count = n - first < 64 ? n - first : 64;
        float *log_p = logits + first, *gain = shares + first;
        for (size_t i = 0; i < count; i++) {
            log_p[i] = (float)(woi_relative(log_p[i], log_z) + rest);
            if (gain[i] > 0 && log_p[i] < least) log_p[i] = least;
            odds[i] = gain[i] > 0 ? -log_p[i] : 0;
        }
        searcher->kernels->exp_sum(odds, count, 0, odds);
        for (size_t i = 0; i < count; i++) gain[i] = gain[i] > 0 ? gain[i] * odds[i] : 0;
        searcher->kernels->scaled_log(gain, count, (float)(mix * whole.scale), 1);
        for (size_t i = 0; i < count; i++) log_p[i] += gain[i];
    }
    return rest;
}

/* ---- Choosing it ------------------------------------------------------------------------------------------- */

void woi_mixture_see(const woi_labels_seen *seen, size_t i, const woi_worker *w, size_t n)
{
    const part whole = part_of(w->extra, n);
    for (size_t at = seen->starts[i]; at < seen->starts[i + 1]; at++) {
        const uint32_t spot = w->spots[seen->labels[at]];
        const bool held = spot >= w->first_spot && spot < w->next_spot;
        seen->shares[at] = held ? (float)whole.scale * w->extra[spot - w->first_spot] : 0;
        seen->mass[at] = (float)whole.mass;
    }
}

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
