/* Sparse rows: row i has ids[indptr[i] .. indptr[i+1]), distinct and ascending, with these weights.
 *
 * Here mostly what queries needed: row i the classes of query i, weight 1 for a label, 1 for a place in FULL's top-k, 2
 * for both. Of a counted log a row stands for several queries: a label then weighs as many of them as had it, a place
 * in FULL's top-k as many as there are. */
#ifndef WOI_BASE_SPARSE_H
#define WOI_BASE_SPARSE_H

#include "base/mem.h"

typedef struct woi_sparse {
    size_t n;        /* rows */
    int64_t *indptr; /* n + 1 */
    int32_t *ids;
    float *weights;
    float *times; /* n: queries that row i stands for; NULL: each for one */
} woi_sparse;

static inline void woi_sparse_free(woi_sparse *rows) /* and zeroed again */
{
    woi_free(rows->indptr);
    woi_free(rows->ids);
    woi_free(rows->weights);
    woi_free(rows->times);
    *rows = (woi_sparse){0};
}

#endif
