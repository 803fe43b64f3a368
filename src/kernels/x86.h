/* What the AVX2 and AVX-512 files share: the order in which rows are read, prefetching, the reduction of four rows, the
 * constants of the exponential. Included by those files only, each compiled with its own instruction set.
 *
 * A dot kernel has four accumulators: four rows side by side, or one row alone in four pieces.
 *
 *   dot      one row after the other, the start of the query in registers. Rows side by side would share each load of
 *            the query, but break up the order of the addresses, and the processor's prefetcher gives up: eight rows of
 *            512 bytes side by side read memory at 10 GB/s on a Zen 4 that reads 31 in order.
 *   gather   four rows side by side. Here that prefetcher only harms, by running on past the end of each row: one row
 *            after the other gives 14 GB/s (512 bytes each, random in 256 MiB), four side by side 29. */
#ifndef WOI_KERNELS_X86_H
#define WOI_KERNELS_X86_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WOI_INLINE static inline __attribute__((always_inline))
#define WOI_UNROLL _Pragma("GCC unroll 16") /* keeps arrays of vectors in registers at -O2 */

enum {
    WOI_ACCS = 4,         /* accumulators, and rows reduced together */
    WOI_AHEAD = 28,       /* rows that a gather prefetches ahead: 24 to 32 reach 29 GB/s, 16 reach 26, 8 reach 19 */
    WOI_PREFETCH = 4096,  /* bytes of each, at most: longer rows are left to the processor's prefetcher */
    WOI_NEXT_PAGES = 8192 /* bytes ahead of a dot's row, see woi_row */
};

/* The rows of one call: consecutive, or named by ids. */
typedef struct woi_rows {
    const void *rows;
    const int32_t *ids; /* NULL: consecutive */
    size_t n, row_bytes, stride_bytes;
    size_t prefetched; /* of a gather: rows already asked for */
} woi_rows;

/* The row that place i means; beyond the end, the last. */
WOI_INLINE size_t woi_row_id(const woi_rows *r, size_t i)
{
    const size_t at = i < r->n ? i : r->n - 1;
    return r->ids ? (size_t)r->ids[at] : at;
}

/* Row i, and a prefetch of what follows it, into the second-level cache (T1): into the first, it is slower than none,
 * as there are too few places to wait in (a gather then stops at 9.5 GB/s). For a dot, one line two pages ahead is
 * enough: it brings in the page's address and starts the processor's prefetcher there (31 GB/s become 33.5). */
WOI_INLINE const void *woi_row(const woi_rows *r, size_t i)
{
    const char *row = (const char *)r->rows + woi_row_id(r, i) * r->stride_bytes;
    if (!r->ids) _mm_prefetch((const char *)((uintptr_t)row + WOI_NEXT_PAGES), _MM_HINT_T1);
    return row;
}

/* Asks for the rows up to WOI_AHEAD after place i, and for their scales where there are any. */
WOI_INLINE void woi_prefetch(woi_rows *r, size_t i, const float *scales)
{
    if (!r->ids) return;
    const size_t bytes = r->row_bytes < WOI_PREFETCH ? r->row_bytes : WOI_PREFETCH;
    for (; r->prefetched < r->n && r->prefetched < i + WOI_AHEAD; r->prefetched++) {
        const size_t id = (size_t)r->ids[r->prefetched];
        const char *row = (const char *)r->rows + id * r->stride_bytes;
        for (const char *line = row - (uintptr_t)row % 64; line < row + bytes; line += 64)
            _mm_prefetch(line, _MM_HINT_T1);
        if (scales) _mm_prefetch((const char *)(scales + id), _MM_HINT_T1);
    }
}

/* Lane r of the result is the sum over v[r]. */
WOI_INLINE __m128 woi_sums_ps(const __m256 v[4])
{
    const __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

/* The same for integers, with the scales that kernels.h defines, in its order of operations. */
WOI_INLINE __m128 woi_scaled_sums(const __m256i v[4], const float scale[4], float q_scale)
{
    const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return _mm_mul_ps(_mm_cvtepi32_ps(sum), _mm_mul_ps(_mm_loadu_ps(scale), _mm_set1_ps(q_scale)));
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

#endif
