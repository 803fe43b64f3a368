/* What the files of all instruction sets share: the order in which rows are read, prefetching, the end of a pick, the
 * constants of the exponential. Nothing here belongs to one processor; the figures were measured on x86-64.
 *
 * Eight rows make a block, whose sums are reduced together.
 *
 * A dot goes through a block one row after the other, the start of the query in registers. Rows side by side would
 * share each load of the query, but break up the order of the addresses, on which the processor's prefetcher depends:
 * eight rows of 512 bytes side by side read memory at 10 GB/s on a Zen 4 that reads 31 in order.
 *
 * A gather takes eight rows side by side. One row after the other gives 11 GB/s (512 bytes each, random in 256 MiB),
 * four side by side 19, eight 21.5; presumably that prefetcher, given order, runs on past the end of each row. */
#ifndef WOI_KERNELS_SIMD_H
#define WOI_KERNELS_SIMD_H

#include "kernels/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WOI_INLINE static inline __attribute__((always_inline))

/* for (i = 0; i < n; i++), unrolled, so that arrays of vectors stay in registers at -O2. clang honours gcc's pragma
 * too, but after it has settled what lives in memory: dot_f32 in L1 then falls from 70 to 19 GFLOP/s. */
#if defined(__clang__)
#define WOI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WOI_UNROLL _Pragma("GCC unroll 16")
#endif
#define WOI_EACH(i, n) WOI_UNROLL for (size_t i = 0; i < (n); i++)

enum {
    WOI_BLOCK = 8,    /* rows */
    WOI_AHEAD = 32,   /* rows that a gather prefetches ahead: 24 to 64 give 21.5 GB/s, 16 give 20, 8 give 12 */
    WOI_WHOLE = 1024, /* bytes of the longest row prefetched whole: 19 GB/s so, 16 if only its first 512 bytes are */
    WOI_PART = 512,   /* bytes of a longer one: rows of 4 KiB give 25 GB/s so, 15 if prefetched whole */
    WOI_NEXT_PAGES = 8192 /* bytes ahead of a dot's row, see woi_row */
};

/* The rows of one call: consecutive for a dot, named by ids for a gather. */
typedef struct woi_rows {
    const void *rows;
    const int32_t *ids;
    size_t n, row_bytes, stride_bytes;
    size_t prefetched; /* of a gather: rows already asked for */
} woi_rows;

/* The row that place i means; beyond the end, the last. */
WOI_INLINE size_t woi_row_id(bool gather, const woi_rows *r, size_t i)
{
    const size_t at = i < r->n ? i : r->n - 1;
    return gather ? (size_t)r->ids[at] : at;
}

/* Asks for the line at `p`, into the second-level cache. */
WOI_INLINE void woi_ask(const char *p)
{
    __builtin_prefetch(p, 0, 2);
}

/* Row i. Prefetches go to the second-level cache (T1): they bring a gather from 8.5 to 22 GB/s, prefetches into the
 * first only to 9.5. A dot asks for two lines, two pages ahead. Of 25 GB/s that can be read (d = 128), clang's code
 * gets 14.5 with none, 17.6 with one, 21 with two; gcc's gets all 25 with one or two, and 20 with every line. */
WOI_INLINE const void *woi_row(bool gather, const woi_rows *r, size_t i)
{
    const char *row = (const char *)r->rows + woi_row_id(gather, r, i) * r->stride_bytes;
    if (!gather) {
        const uintptr_t ahead = (uintptr_t)row + WOI_NEXT_PAGES;
        woi_ask((const char *)ahead);
        woi_ask((const char *)(ahead + r->row_bytes / 2));
    }
    return row;
}

/* Of a gather that is about to read row i: asks for the rows before i + WOI_AHEAD, and for their scales where there are
 * any. */
WOI_INLINE void woi_prefetch(woi_rows *r, size_t i, const float *scales)
{
    const size_t bytes = r->row_bytes <= WOI_WHOLE ? r->row_bytes : WOI_PART;
    for (; r->prefetched < r->n && r->prefetched < i + WOI_AHEAD; r->prefetched++) {
        const size_t id = (size_t)r->ids[r->prefetched];
        const char *row = (const char *)r->rows + id * r->stride_bytes;
        for (const char *line = row - (uintptr_t)row % 64; line < row + bytes; line += 64) woi_ask(line);
        if (scales) woi_ask((const char *)(scales + id));
    }
}

/* Of the places that `hits` has a bit for: the first, or the one with the lowest id. There is one, nearly always. */
WOI_INLINE size_t woi_lowest_id(uint64_t hits, const int32_t *ids)
{
    size_t at = (size_t)__builtin_ctzll(hits);
    if (ids)
        for (hits &= hits - 1; hits; hits &= hits - 1)
            if (ids[__builtin_ctzll(hits)] < ids[at]) at = (size_t)__builtin_ctzll(hits);
    return at;
}

WOI_INLINE void woi_pick_end(size_t found, size_t k, float *best, int32_t *best_ids)
{
    for (; found < k; found++) {
        best[found] = -INFINITY;
        best_ids[found] = -1;
    }
}

/* exp(t) = 2^k exp(r), k = round(t / ln 2), |r| <= ln 2 / 2. exp(r) is 1 + r + c2 r^2 + ... + c6 r^6, the coefficients
 * by Remez' algorithm: relative error 2^-28.3, so that rounding decides. Below WOI_EXP_LOW the result rounds to 0;
 * above WOI_EXP_HIGH it overflows. */
#define WOI_EXP_LOW -104.0f
#define WOI_EXP_HIGH 89.0f
#define WOI_LOG2_E 0x1.715476p+0f
#define WOI_LN2_HIGH 0x1.62e43p-1f
#define WOI_LN2_LOW -0x1.05c61p-29f
#define WOI_EXP_C2 0x1.fffffcp-2f
#define WOI_EXP_C3 0x1.555492p-3f
#define WOI_EXP_C4 0x1.5558f2p-5f
#define WOI_EXP_C5 0x1.1239e2p-7f
#define WOI_EXP_C6 0x1.6a2434p-10f

/* Values summed in float before they go into the double: 4 x 16 lanes take 64 each, so that the error of the sum stays
 * near 64 * 2^-24 whatever n is. */
enum { WOI_EXP_CHUNK = 4096 };

/* log(y) = e ln 2 + log(f), y = 2^e f, f from sqrt(1/2) to sqrt(2). log(f) is twice the inverse hyperbolic tangent of s
 * = (f - 1) / (f + 1), |s| < 0.172: 2 s (1 + s^2/3 + s^4/5 + s^6/7 + s^8/9), what is left out is below 1e-9. */
#define WOI_ROOT_HALF_BITS 0x3f3504f3 /* sqrt(1/2), the bits of a float */
#define WOI_LN2 0x1.62e43p-1f

#endif
