/* Threads for loops: a pool for the whole process, whose idle threads sleep.
 *
 *   woi_team_for(threads, n_parts, fn, ctx)            fn(ctx, worker, part) for every part 0 .. n_parts-1
 *   woi_team_ranges(threads, n, at_once, fn, ctx)      fn(ctx, worker, first, end) for pieces of 0 .. n-1
 *
 * Parts are handed out in rising order to whoever is free. The caller works too, as worker 0; the others are 1 to
 * threads-1, each number held by one thread at a time, so that scratch memory can go by worker. What is computed must
 * not depend on which worker takes a part.
 *
 * A thread that waits gives its processor away to whoever has work, and sleeps after 20 us: OpenMP's spin at barriers
 * (batches beside one busy process: 8 to 35 us a query with them, 0.5 so). Threads are made when they are first
 * asked for and stay. Where one cannot be had, the work is done by fewer. Calls may come from any thread, several at
 * once, and from within a part. A process may fork at any time, but not from within a part; the child begins with an
 * empty pool. */
#ifndef WOI_BASE_TEAM_H
#define WOI_BASE_TEAM_H

#include <stddef.h>

enum { WOI_MAX_THREADS = 1024 };

typedef void (*woi_part_fn)(void *ctx, int worker, size_t part);
typedef void (*woi_range_fn)(void *ctx, int worker, size_t first, size_t end);

/* Returns when all parts are done. threads below 2, or a single part: all on the calling thread, and no lock is taken.
 */
void woi_team_for(int threads, size_t n_parts, woi_part_fn fn, void *ctx);

/* The same for items that are too small to be handed out one by one: `at_once` of them, the last time perhaps fewer. */
void woi_team_ranges(int threads, size_t n, size_t at_once, woi_range_fn fn, void *ctx);

/* How many threads `asked` means: itself, or, below 1, as many as there are processors for the calling thread. */
int woi_team_threads(int asked);

/* Where part `part` of `n_parts` nearly equal ones of 0 .. n-1 begins; the next one's beginning is its end. */
static inline size_t woi_part_start(size_t part, size_t n_parts, size_t n)
{
    return n / n_parts * part + (n % n_parts * part) / n_parts;
}

#endif
