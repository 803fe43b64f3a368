/* log Z, the logarithm of the sum of exp(score) over all m classes, from the candidates alone:
 *
 *   Z    = sum over the candidates of exp(score) + exp(tail)
 *   tail = intercept + of_length |q| + of_candidates log(sum over the candidates of exp(logit))
 *          + direction . q + mean over the opened cells of of_cell
 *
 * The tail stands for the classes that are not candidates. It costs a query what one more candidate does (direction:
 * WikiText-2 with 22 candidates: error 0.141 nats without it, 0.107 with it). It is a matter of logits: what a prior
 * adds, it adds to candidates alone, so that one tail serves scores with the prior and without. It is learned from
 * FULL's log Z on a sample of the log's queries, as they search (build/partition_learn.c). */
#ifndef WOI_SEARCH_PARTITION_H
#define WOI_SEARCH_PARTITION_H

#include "search/prior.h"

/* log(exp(a) + exp(b)) */
double woi_log_add(double a, double b);

/* |q| */
double woi_length_of(const woi_kernels *kernels, const float *q, size_t d);

/* The tail of a query q that opens these cells. of_candidates: their candidates' log sum; -INFINITY: there are none. */
double woi_partition_tail(const wo_searcher *searcher, const float *q, woi_opened opened, double of_candidates);

/* What searches see of queries: (n), and (n, room) of the cells that they open. */
typedef struct woi_seen {
    double *of_candidates; /* NULL: nothing is to be seen */
    uint32_t *n_cells, *cells;
    size_t room;
} woi_seen;

/* Query i. */
void woi_partition_see(const woi_seen *seen, size_t i, woi_opened opened, double of_candidates);

#endif
