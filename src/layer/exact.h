/* The exact layer: logits = W q + b for every class, and the best k of them. */
#ifndef WOI_LAYER_EXACT_H
#define WOI_LAYER_EXACT_H

#include "base/finite.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdbool.h>

/* W (m, d) and b (m) in memory; b may be NULL. Borrowed. */
typedef struct woi_dense {
    size_t m, d;
    const float *w, *b;
} woi_dense;

/* What a caller changes about the logits, as if it were a part of b. Both are (m) or NULL. Borrowed. */
typedef struct woi_adjust {
    const uint8_t *forbidden; /* not 0: the class is never answered, and not counted in lse */
    const float *logit_bias;  /* added to the logits */
} woi_adjust;

/* The logarithm of a sum of exponentials: most + rest, the largest exponent and what the others add. Apart, because a
 * sum of the two forgets the small one: of logits of 1e7 in a float, of 1e17 in a double. */
typedef struct woi_log_sum {
    double most, rest;
} woi_log_sum;

static inline double woi_log_sum_whole(woi_log_sum sum)
{
    return sum.most + sum.rest;
}

/* The logarithm of a probability. */
static inline double woi_relative(float score, woi_log_sum sum)
{
    return (double)score - sum.most - sum.rest;
}

/* One call: the k best classes of each of n queries (n, d). */
typedef struct woi_exact_call {
    const woi_dense *layer;
    woi_adjust adjust; /* zeros: nothing */
    const float *q;
    size_t n, k;
    int threads;   /* below 1: all cores; one query never starts a thread. The answer does not depend on it. */
    void *scratch; /* woi_exact_scratch(d, threads) bytes, aligned to WOI_ALIGN, for threads of 1 or more; with NULL it
                      is allocated, and with it nothing is */
    int32_t *ids;  /* (n, k), best first, ties to the lower id, padded with -1 */
    float *scores; /* (n, k): logits, padded with -INFINITY */
    woi_log_sum *lse; /* (n), or NULL: of exp(logit) over all allowed classes */
} woi_exact_call;

/* A query that is not finite gets ids -1 and lse NAN; the others are answered. Fails only without memory, for a layer
 * that is too large, or where there are no kernels (see woi_kernels_get). From any thread. */
wo_status woi_exact_topk(const woi_exact_call *call, wo_error *err);

/* Answers (n, k) of FULL as a search gives them: where a score is infinite, that query has none. */
static inline void woi_drop_infinite(int32_t *ids, const float *scores, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++, ids += k, scores += k) {
        bool finite = true;
        for (size_t j = 0; finite && j < k && ids[j] >= 0; j++) finite = isfinite(scores[j]);
        for (size_t j = 0; !finite && j < k; j++) ids[j] = -1;
    }
}

/* About 1 MiB, 6 KiB for each of d, and 2 MiB for each thread; what a call does not need of it is not touched. */
size_t woi_exact_scratch(size_t d, int threads);

#endif
