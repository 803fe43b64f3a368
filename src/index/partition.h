/* log Z, the logarithm of the sum of exp(score) over all m classes, from the candidates alone:
 *
 *   Z    = sum over the candidates of exp(score) + exp(tail)
 *   tail = intercept + of_length |q| + of_candidates log(sum over the candidates of exp(logit))
 *          + mean over the opened cells of of_cell
 *
 * The tail stands for the classes that are not candidates. It is a matter of logits: what a prior adds, it adds to
 * candidates alone, so that one tail serves scores with the prior and without. It is learned from FULL's log Z on a
 * sample of the log's queries, as they search (partition.c). */
#ifndef WOI_INDEX_PARTITION_H
#define WOI_INDEX_PARTITION_H

#include "index/prior.h"

/* log(exp(a) + exp(b)) */
double woi_log_add(double a, double b);

/* |q| */
double woi_partition_length(const woi_kernels *kernels, const float *q, size_t d);

/* The tail of a query that opens these cells, whose candidates' log sum is of_candidates; -INFINITY: there are none. */
double woi_partition_tail(const wo_index *index, woi_opened opened, double length, double of_candidates);

/* What searches see of queries: (n), and (n, room) of the cells that they open. */
typedef struct woi_seen {
    double *of_candidates; /* NULL: nothing is to be seen */
    uint32_t *n_cells, *cells;
    size_t room;
} woi_seen;

/* search.c: n queries as they search. */
void woi_search_see(wo_searcher *searcher, const float *queries, size_t n, const woi_seen *seen);
/* Query i. */
void woi_partition_see(const woi_seen *seen, size_t i, woi_opened opened, double of_candidates);

/* Learns index->partition from a log. The index is finished; its rows are f32. */
wo_status woi_partition_learn(wo_index *index, const wo_log *log, const wo_progress *progress, int threads,
                              wo_error *err);

#endif
