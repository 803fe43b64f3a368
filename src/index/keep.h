/* Training queries that stay in an index, so that rows can be added and changed without its log.
 *
 *   queries (n, d)   drawn by the seed, evenly over the log; in bf16, and it is these rounded ones that count
 *   bars (n)         the source_k-th best logit of each by FULL
 *
 * A row serves a query when it is among the source_k best there: when its logit reaches the bar. Such a row belongs
 * into the cells of that query. Which these are, the router says: it does not change. */
#ifndef WOI_INDEX_KEEP_H
#define WOI_INDEX_KEEP_H

#include "index/index.h"

void woi_keep_free(woi_keep *kept); /* and zeroed again */

/* Every number of a query is finite, and every bar is one or -INFINITY. */
wo_status woi_keep_check(const woi_keep *kept, size_t d, wo_error *err);

/* Queries at[0 .. n), or, with NULL, first .. first + n, as floats (n, d). */
void woi_keep_read(const woi_keep *kept, size_t d, const uint32_t *at, size_t first, size_t n, float *q);

/* The bar of a query whose k best logits these are, best first. */
static inline float woi_keep_bar(const int32_t *ids, const float *scores, size_t k)
{
    return ids[k - 1] >= 0 ? scores[k - 1] : -INFINITY;
}

/* The cells that kept queries are filed in: of a tree the 1 + spread nearest of those that a search looks at, of
 * hyperplanes their own in each table. The first is one that a search opens. */
typedef struct woi_keep_cells {
    uint32_t each;
    uint32_t *of; /* (n, each); UINT32_MAX: none */
} woi_keep_cells;

wo_status woi_keep_route(const wo_index *index, int threads, woi_keep_cells *cells, wo_error *err);

/* The index's rows as floats: its own, or, in *copy, what its bf16 rows are. */
wo_status woi_index_floats(const wo_index *index, woi_dense *rows, float **copy, wo_error *err);

#endif
