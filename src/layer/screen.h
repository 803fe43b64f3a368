/* All rows of a layer in int8, and the few of them that are best for a query.
 *
 *   score = b + (scale of the query) * (scale of the row) * (sum of products of bytes)
 *
 * The sum is exact, so that a query has the same scores in every batch. The classes with the best scores are
 * candidates: whoever asked scores them exactly. A quarter of the bytes and of the multiplications of the exact layer.
 * One scale for all of a row presumes columns of about one size, in rows and in queries: see woi_held_judge.
 *
 *   rows (panels, fours, 16, 4)   16 classes side by side, four coordinates at a time, 128 added: see woi_tile_i8 */
#ifndef WOI_LAYER_SCREEN_H
#define WOI_LAYER_SCREEN_H

#include "layer/exact.h"

enum { WOI_MOST_KEPT = 4096 }; /* candidates of a query */

/* rows NULL: none. */
typedef struct woi_screen {
    size_t m, d;
    uint8_t *rows;
    float *scales; /* (16 panels), 0 behind the last class */
} woi_screen;

static inline size_t woi_screen_fours(size_t d)
{
    return (d + 3) / 4;
}

static inline size_t woi_screen_panels(size_t m)
{
    return (m + WOI_I8_COLUMNS - 1) / WOI_I8_COLUMNS;
}

/* Fails without memory, and where d is more than WOI_MAX_I8. */
wo_status woi_screen_make(const woi_dense *rows, int threads, woi_screen *screen, wo_error *err);
void woi_screen_free(woi_screen *screen); /* and zeroed again */

/* For m classes of d numbers, all zeros; and those of another put to their places in it: its class i becomes
 * classes[i]. So screens are joined as they are, without rows in more bits. */
wo_status woi_screen_create(size_t m, size_t d, woi_screen *screen, wo_error *err);
void woi_screen_spread(const woi_screen *from, const int32_t *classes, woi_screen *to);

/* How many candidates find the k best: 9/8 k + 11. Of 34,651 test queries of Debian, EURLEX57K and WikiText-2, 9/8 k +
 * 3 found all of the best 1 and 5, and all but one of 1.7 million of the best 50; 9/8 k alone lost 0.5 to 4% of the
 * best 1 and 5. */
size_t woi_screen_kept(size_t k);

/* Query i has these n candidates, in no particular order; ids NULL: it is not finite. Called once for each query, from
 * the threads of the call: `worker` is 0 to threads - 1. */
typedef void (*woi_screened_fn)(void *ctx, int worker, size_t i, const int32_t *ids, size_t n);

typedef struct woi_screen_call {
    const woi_screen *screen;
    const float *b;    /* (m), or NULL */
    woi_adjust adjust; /* zeros: nothing */
    const float *q;    /* (n, d) */
    size_t n, keep;    /* keep: 1 to WOI_MOST_KEPT candidates each, fewer where there are fewer classes */
    int threads;       /* 1 or more; one query never starts a thread. The answer does not depend on it. */
    void *scratch;     /* woi_screen_scratch(d, threads) bytes, aligned to WOI_ALIGN */
    woi_screened_fn found;
    void *ctx;
} woi_screen_call;

/* Allocates nothing, and cannot fail. */
void woi_screen_run(const woi_kernels *kernels, const woi_screen_call *call);

/* About 1 KiB for each of d, and 3.2 MiB for each thread; what a call does not need of it is not touched. */
size_t woi_screen_scratch(size_t d, int threads);

#endif
