/* A wide layer whose rows are spread over the processes of a job, by the calls of a wo_collective.
 *
 *   class c is row c / size of rank c % size
 *
 * Frequent classes often have the low ids; so every rank has as many of them. `ranks` is NULL where one process has all
 * rows: then nothing is exchanged. All ranks make these calls, in the same order. */
#ifndef WOI_NET_RANKS_H
#define WOI_NET_RANKS_H

#include "wideout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which rows this process has: class first + i * stride is its row i. */
typedef struct woi_portion {
    size_t first, stride, n;
} woi_portion;

woi_portion woi_portion_of(const wo_collective *ranks, size_t m);

/* The row of a class, or -1 where it is another process's. */
static inline int32_t woi_portion_row(const woi_portion *share, int32_t class)
{
    return (size_t) class % share->stride == share->first ? (int32_t)((size_t) class / share->stride) : -1;
}

/* Whether this process writes what there is once. */
static inline bool woi_ranks_first(const wo_collective *ranks)
{
    return !ranks || ranks->rank == 0;
}

/* Fails on all ranks where `status` is a failure on one: with the sentence of the lowest such rank, and its *place, a
 * number that the caller has a meaning for (NULL: none). Allocates nothing. */
wo_status woi_ranks_agree(const wo_collective *ranks, wo_status status, int *place, wo_error *err);

/* Fails on all ranks where `number` is not the same everywhere: "rank 2 DIFFERS". */
wo_status woi_ranks_same(const wo_collective *ranks, uint64_t number, const char *differs, wo_error *err);

/* Whether `yes` holds on every rank. */
wo_status woi_ranks_all(const wo_collective *ranks, bool yes, bool *all, wo_error *err);

/* Rows by class, gathered: `own` (share n, width) of each rank to (m, width), handed to `take` in order, some rows at a
 * time, on rank 0 alone. Memory is bounded whatever m is. A failure of `take` does not leave the others waiting: it is
 * returned at the end, on rank 0. */
typedef struct woi_spread {
    const float *own;
    size_t m, width;
    wo_status (*take)(void *ctx, const float *rows, size_t n_floats, wo_error *err);
    void *ctx;
} woi_spread;

wo_status woi_ranks_collect(const wo_collective *ranks, const woi_spread *spread, wo_error *err);

#endif
