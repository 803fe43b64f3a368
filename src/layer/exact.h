/* The exact layer: logits = W q + b for every class, and the best k of them. */
#ifndef WOI_LAYER_EXACT_H
#define WOI_LAYER_EXACT_H

#include "kernels/kernels.h"

/* W (m, d) and b (m) in memory; b may be NULL. Borrowed. */
typedef struct woi_dense {
    size_t m, d;
    const float *w, *b;
} woi_dense;

/* The k best classes of each of n queries (n, d): ids and logits (n, k), best first, ties to the lower id, padded with
 * -1 and -INFINITY. Blocked GEMM with a fused top-k, never an (n, m) buffer. The answer does not depend on `threads`.
 */
wo_status woi_exact_topk(const woi_dense *layer, const float *q, size_t n, size_t k, int threads, int32_t *ids,
                         float *scores, wo_error *err);

#endif
