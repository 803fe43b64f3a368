/* A range of places for each process, and its results for all: see wo_collective. */
#ifndef WOI_BASE_RANGES_H
#define WOI_BASE_RANGES_H

#include "base/team.h"
#include "wideout.h"

typedef struct woi_range {
    size_t first, end;
} woi_range;

/* The places of 0 .. n-1 that are this process's: all of them where `together` is NULL. */
static inline woi_range woi_range_own(const wo_collective *together, size_t n)
{
    if (!together) return (woi_range){0, n};
    const size_t size = (size_t)together->size, rank = (size_t)together->rank;
    return (woi_range){woi_part_start(rank, size, n), woi_part_start(rank + 1, size, n)};
}

/* `data` has n places of `bytes` each, and those of the own range are filled: then all are. */
wo_status woi_range_gather(const wo_collective *together, void *data, size_t n, size_t bytes, wo_error *err);

/* woi_team_ranges over the own range. */
void woi_range_run(const wo_collective *together, int threads, size_t n, size_t at_once, woi_range_fn fn, void *ctx);

#endif
