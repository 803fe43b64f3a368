/* The i8 kernels for AVX-512 with VNNI: 64 products a step.
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products to each 32-bit lane. A row with its top bits
 * flipped is row + 128 as unsigned, and sum q (row + 128) - 128 sum q = sum q row. Every row therefore starts from
 * -128 sum q, lane by lane; what overflows on the way is modulo 2^32 and comes back. */
#include "kernels/kernels.h"
#include "kernels/x86.h"

WOI_INLINE __m512i load(const int8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

/* Rows alone (side 1), in four pieces, or all eight of a block side by side (side 8), as in avx512.c. */
WOI_INLINE void rows_i8(size_t side, const int8_t *q, float q_scale, woi_rows r, const float *scales, size_t d,
                        float *out)
{
    const size_t pieces = side == 1 ? 4 : 1, whole = d & ~(size_t)63;
    const __mmask64 end = (1ull << d % 64) - 1;
    const __m512i zero = _mm512_setzero_si512(), flip = _mm512_set1_epi8(-128);
    const __m512i q_end = _mm512_maskz_loadu_epi8(end, q + whole);
    __m512i start = _mm512_dpbusd_epi32(zero, flip, q_end);
    for (size_t j = 0; j < whole; j += 64) start = _mm512_dpbusd_epi32(start, flip, load(q + j));
    start = _mm512_sub_epi32(zero, start);

    __m256i sums[WOI_BLOCK] = {_mm256_setzero_si256()};
    float scale[WOI_BLOCK] = {0};
    for (size_t i = 0; i < r.n; i += WOI_BLOCK) {
        const size_t here = r.n - i < WOI_BLOCK ? r.n - i : WOI_BLOCK;
        if (side == 8) woi_prefetch(&r, i, scales);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const int8_t *row[WOI_BLOCK];
            __m512i acc[WOI_BLOCK];
            WOI_EACH(s, side) {
                row[s] = woi_row(side == 8, &r, i + b + s);
                scale[b + s] = scales[woi_row_id(side == 8, &r, i + b + s)];
            }
            WOI_EACH(k, side * pieces) acc[k] = k < side ? start : zero;
            size_t j = 0;
            for (; j + 64 * pieces <= d; j += 64 * pieces)
                WOI_EACH(k, pieces) {
                    const __m512i qj = load(q + j + 64 * k);
                    WOI_EACH(s, side)
                        acc[s + k] =
                            _mm512_dpbusd_epi32(acc[s + k], _mm512_xor_si512(load(row[s] + j + 64 * k), flip), qj);
                }
            for (; j < whole; j += 64)
                acc[0] = _mm512_dpbusd_epi32(acc[0], _mm512_xor_si512(load(row[0] + j), flip), load(q + j));
            if (end)
                WOI_EACH(s, side) {
                    const __m512i row_end = _mm512_maskz_loadu_epi8(end, row[s] + whole);
                    acc[s] = _mm512_dpbusd_epi32(acc[s], _mm512_xor_si512(row_end, flip), q_end);
                }
            if (side == 1)
                acc[0] = _mm512_add_epi32(_mm512_add_epi32(acc[0], acc[1]), _mm512_add_epi32(acc[2], acc[3]));
            WOI_EACH(s, side)
                sums[b + s] = _mm256_add_epi32(_mm512_castsi512_si256(acc[s]), _mm512_extracti64x4_epi64(acc[s], 1));
        }
        _mm256_mask_storeu_ps(out + i, (__mmask8)((1u << here) - 1), woi_scaled_sums(sums, scale, q_scale));
    }
}

static void dot_i8_avx512vnni(const int8_t *q, float q_scale, const int8_t *rows, const float *scales, size_t n,
                              size_t d, size_t stride, float *out)
{
    rows_i8(1, q, q_scale, (woi_rows){rows, NULL, n, d, stride, 0}, scales, d, out);
}

static void gather_i8_avx512vnni(const int8_t *q, float q_scale, const int8_t *rows, const float *scales,
                                 const int32_t *ids, size_t n, size_t d, size_t stride, float *out)
{
    rows_i8(8, q, q_scale, (woi_rows){rows, ids, n, d, stride, 0}, scales, d, out);
}

void woi_kernels_use_avx512vnni(woi_kernels *table)
{
    WOI_USE(table, dot_i8, avx512vnni);
    WOI_USE(table, gather_i8, avx512vnni);
}
