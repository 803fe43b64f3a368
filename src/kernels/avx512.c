/* The kernels for AVX-512 (F, BW, DQ, VL). Ends of rows are masked loads, which do not touch the lanes left out. */
#include "kernels/kernels.h"
#include "kernels/topk.h"
#include "kernels/x86.h"

/* The first n of 16 lanes. */
WOI_INLINE __mmask16 lanes(size_t n)
{
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff);
}

WOI_INLINE __m256 fold_ps(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

WOI_INLINE __m256i fold_epi32(__m512i v)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}

/* ---- dot and gather, f32 and bf16 -------------------------------------------------------------------------- */

/* 16 elements from `at` as floats. */
WOI_INLINE __m512 load_row(bool bf16, const void *row, size_t at)
{
    if (!bf16) return _mm512_loadu_ps((const float *)row + at);
    __m256i half = _mm256_loadu_si256((const void *)((const uint16_t *)row + at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

WOI_INLINE __m512 load_row_end(bool bf16, const void *row, size_t at, __mmask16 mask)
{
    if (!bf16) return _mm512_maskz_loadu_ps(mask, (const float *)row + at);
    __m256i half = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)row + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Rows alone (side 1) or side by side (side 4). The first 16 * head elements of the query stay in registers;
 * d >= 16 * head. */
WOI_INLINE void rows_float(size_t side, size_t head, bool bf16, const float *q, woi_rows r, size_t d, float *out)
{
    const size_t pieces = WOI_ACCS / side, whole = d & ~(size_t)15;
    const __mmask16 end = lanes(d - whole);
    const __m512 x_end = _mm512_maskz_loadu_ps(end, q + whole);
    __m512 x[16];
    WOI_UNROLL for (size_t k = 0; k < head; k++) x[k] = _mm512_loadu_ps(q + 16 * k);
    __m256 sums[WOI_ACCS] = {_mm256_setzero_ps()};
    for (size_t i = 0; i < r.n; i += WOI_ACCS) {
        const size_t here = r.n - i < WOI_ACCS ? r.n - i : WOI_ACCS;
        woi_prefetch(&r, i, NULL);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const void *row[WOI_ACCS];
            __m512 acc[WOI_ACCS];
            WOI_UNROLL for (size_t s = 0; s < side; s++) row[s] = woi_row(&r, i + b + s);
            WOI_UNROLL for (size_t k = 0; k < WOI_ACCS; k++) acc[k] = _mm512_setzero_ps();
            WOI_UNROLL for (size_t k = 0; k < head; k++)
                acc[k % 4] = _mm512_fmadd_ps(x[k], load_row(bf16, row[0], 16 * k), acc[k % 4]);
            if (16 * head < d) {
                size_t j = 16 * head;
                for (; j + 16 * pieces <= d; j += 16 * pieces)
                    WOI_UNROLL for (size_t k = 0; k < pieces; k++) {
                        const __m512 xj = _mm512_loadu_ps(q + j + 16 * k);
                        WOI_UNROLL for (size_t s = 0; s < side; s++)
                            acc[s + k] = _mm512_fmadd_ps(xj, load_row(bf16, row[s], j + 16 * k), acc[s + k]);
                    }
                for (; j < whole; j += 16)
                    acc[0] = _mm512_fmadd_ps(_mm512_loadu_ps(q + j), load_row(bf16, row[0], j), acc[0]);
                if (end)
                    WOI_UNROLL for (size_t s = 0; s < side; s++)
                        acc[s] = _mm512_fmadd_ps(x_end, load_row_end(bf16, row[s], whole, end), acc[s]);
            }
            if (side == 1) acc[0] = _mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3]));
            WOI_UNROLL for (size_t s = 0; s < side; s++) sums[b + s] = fold_ps(acc[s]);
        }
        _mm_mask_storeu_ps(out + i, (__mmask8)lanes(here), woi_sums_ps(sums));
    }
}

WOI_INLINE void dot_float(bool bf16, const float *q, const void *rows, size_t n, size_t d, size_t stride, float *out)
{
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
    const woi_rows r = {rows, NULL, n, d * size, stride * size, 0};
    if (d >= 256)
        rows_float(1, 16, bf16, q, r, d, out);
    else if (d >= 128)
        rows_float(1, 8, bf16, q, r, d, out);
    else if (d >= 64)
        rows_float(1, 4, bf16, q, r, d, out);
    else
        rows_float(1, 0, bf16, q, r, d, out);
}

static void dot_f32_avx512(const float *q, const float *rows, size_t n, size_t d, size_t stride, float *out)
{
    dot_float(false, q, rows, n, d, stride, out);
}

static void dot_bf16_avx512(const float *q, const uint16_t *rows, size_t n, size_t d, size_t stride, float *out)
{
    dot_float(true, q, rows, n, d, stride, out);
}

static void gather_f32_avx512(const float *q, const float *rows, const int32_t *ids, size_t n, size_t d, size_t stride,
                              float *out)
{
    rows_float(4, 0, false, q, (woi_rows){rows, ids, n, 4 * d, 4 * stride, 0}, d, out);
}

static void gather_bf16_avx512(const float *q, const uint16_t *rows, const int32_t *ids, size_t n, size_t d,
                               size_t stride, float *out)
{
    rows_float(4, 0, true, q, (woi_rows){rows, ids, n, 2 * d, 2 * stride, 0}, d, out);
}

/* ---- dot and gather, i8 ------------------------------------------------------------------------------------ */

/* 32 bytes as 16-bit integers. */
WOI_INLINE __m512i load_i8(const int8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
}

WOI_INLINE __m512i load_i8_end(const int8_t *p, __mmask32 mask)
{
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, p));
}

/* Products are summed in pairs, of which none exceeds 2 * 128 * 128. */
WOI_INLINE __m512i add_products(__m512i acc, __m512i x, __m512i y)
{
    return _mm512_add_epi32(acc, _mm512_madd_epi16(x, y));
}

/* See rows_float. */
WOI_INLINE void rows_i8(size_t side, const int8_t *q, float q_scale, woi_rows r, const float *scales, size_t d,
                        float *out)
{
    const size_t pieces = WOI_ACCS / side, whole = d & ~(size_t)31;
    const __mmask32 end = (__mmask32)((1ull << d % 32) - 1);
    const __m512i q_end = load_i8_end(q + whole, end);
    __m256i sums[WOI_ACCS] = {_mm256_setzero_si256()};
    float scale[WOI_ACCS] = {0};
    for (size_t i = 0; i < r.n; i += WOI_ACCS) {
        const size_t here = r.n - i < WOI_ACCS ? r.n - i : WOI_ACCS;
        woi_prefetch(&r, i, scales);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const int8_t *row[WOI_ACCS];
            __m512i acc[WOI_ACCS];
            WOI_UNROLL for (size_t s = 0; s < side; s++) {
                row[s] = woi_row(&r, i + b + s);
                scale[b + s] = scales[woi_row_id(&r, i + b + s)];
            }
            WOI_UNROLL for (size_t k = 0; k < WOI_ACCS; k++) acc[k] = _mm512_setzero_si512();
            size_t j = 0;
            for (; j + 32 * pieces <= d; j += 32 * pieces)
                WOI_UNROLL for (size_t k = 0; k < pieces; k++) {
                    const __m512i qj = load_i8(q + j + 32 * k);
                    WOI_UNROLL for (size_t s = 0; s < side; s++)
                        acc[s + k] = add_products(acc[s + k], qj, load_i8(row[s] + j + 32 * k));
                }
            for (; j < whole; j += 32) acc[0] = add_products(acc[0], load_i8(q + j), load_i8(row[0] + j));
            if (end)
                WOI_UNROLL for (size_t s = 0; s < side; s++)
                    acc[s] = add_products(acc[s], q_end, load_i8_end(row[s] + whole, end));
            if (side == 1)
                acc[0] = _mm512_add_epi32(_mm512_add_epi32(acc[0], acc[1]), _mm512_add_epi32(acc[2], acc[3]));
            WOI_UNROLL for (size_t s = 0; s < side; s++) sums[b + s] = fold_epi32(acc[s]);
        }
        _mm_mask_storeu_ps(out + i, (__mmask8)lanes(here), woi_scaled_sums(sums, scale, q_scale));
    }
}

static void dot_i8_avx512(const int8_t *q, float q_scale, const int8_t *rows, const float *scales, size_t n, size_t d,
                          size_t stride, float *out)
{
    rows_i8(1, q, q_scale, (woi_rows){rows, NULL, n, d, stride, 0}, scales, d, out);
}

static void gather_i8_avx512(const int8_t *q, float q_scale, const int8_t *rows, const float *scales,
                             const int32_t *ids, size_t n, size_t d, size_t stride, float *out)
{
    rows_i8(4, q, q_scale, (woi_rows){rows, ids, n, d, stride, 0}, scales, d, out);
}

/* ---- project ----------------------------------------------------------------------------------------------- */

/* 16 * vectors planes; coordinates go in turn to `chains` accumulators each, so that vectors * chains >= 8 of them hide
 * the latency of the multiply-add. */
WOI_INLINE void project_block(size_t vectors, size_t chains, const float *x, const float *planes, const float *offsets,
                              size_t d, size_t n_planes, float *z, uint16_t *bits)
{
    __m512 acc[16];
    WOI_UNROLL for (size_t v = 0; v < vectors; v++) acc[v] = _mm512_loadu_ps(offsets + 16 * v);
    WOI_UNROLL for (size_t v = vectors; v < vectors * chains; v++) acc[v] = _mm512_setzero_ps();
    size_t j = 0;
    for (; j + chains <= d; j += chains)
        WOI_UNROLL for (size_t c = 0; c < chains; c++) {
            const __m512 coordinate = _mm512_set1_ps(x[j + c]);
            const float *row = planes + (j + c) * n_planes;
            WOI_UNROLL for (size_t v = 0; v < vectors; v++)
                acc[c * vectors + v] = _mm512_fmadd_ps(coordinate, _mm512_loadu_ps(row + 16 * v), acc[c * vectors + v]);
        }
    for (; j < d; j++)
        WOI_UNROLL for (size_t v = 0; v < vectors; v++)
            acc[v] = _mm512_fmadd_ps(_mm512_set1_ps(x[j]), _mm512_loadu_ps(planes + j * n_planes + 16 * v), acc[v]);
    WOI_UNROLL for (size_t v = 0; v < vectors; v++) {
        WOI_UNROLL for (size_t c = 1; c < chains; c++) acc[v] = _mm512_add_ps(acc[v], acc[c * vectors + v]);
        _mm512_storeu_ps(z + 16 * v, acc[v]);
        bits[v] = _mm512_cmp_ps_mask(acc[v], _mm512_setzero_ps(), _CMP_GT_OQ);
    }
}

static void project_avx512(const float *x, const float *planes, const float *offsets, size_t d, size_t n_planes,
                           float *z, uint16_t *bits)
{
    size_t p = 0;
    for (; p + 256 <= n_planes; p += 256)
        project_block(16, 1, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
    for (; p + 64 <= n_planes; p += 64)
        project_block(4, 4, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
    for (; p < n_planes; p += 16)
        project_block(1, 8, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
}

/* ---- top-k, maximum ---------------------------------------------------------------------------------------- */

static void topk_scan_avx512(const float *scores, size_t n, int32_t first_id, woi_topk *top)
{
    size_t i = 0;
    for (; i < n && top->n < top->k; i++) woi_topk_push(top, scores[i], first_id + (int32_t)i);
    if (i == n) return;
    __m512 bar = _mm512_set1_ps(woi_topk_bar(top, first_id + (int64_t)i));
    while (i < n) {
        /* 64 scores a step while there are as many; NaN fails the ordered comparison. */
        const size_t step = n - i >= 64 ? 64 : n - i >= 16 ? 16 : n - i;
        uint64_t hits = 0;
        if (step == 64)
            WOI_UNROLL for (size_t k = 0; k < 4; k++)
                hits |= (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(scores + i + 16 * k), bar, _CMP_GE_OQ) << 16 * k;
        else
            hits = _mm512_mask_cmp_ps_mask(lanes(step), _mm512_maskz_loadu_ps(lanes(step), scores + i), bar, _CMP_GE_OQ);
        if (hits) {
            for (; hits; hits &= hits - 1) {
                const size_t at = i + (size_t)__builtin_ctzll(hits);
                woi_topk_push(top, scores[at], first_id + (int32_t)at);
            }
            bar = _mm512_set1_ps(woi_topk_bar(top, first_id + (int64_t)(i + step)));
        }
        i += step;
    }
}

static float max_f32_avx512(const float *x, size_t n)
{
    /* max_ps returns its second operand when either is NaN: x first, and NaNs are passed over. */
    __m512 most[4];
    WOI_UNROLL for (size_t k = 0; k < 4; k++) most[k] = _mm512_set1_ps(-INFINITY);
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        WOI_UNROLL for (size_t k = 0; k < 4; k++) most[k] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * k), most[k]);
    for (; i < n; i += 16) {
        const __mmask16 mask = lanes(n - i);
        most[0] = _mm512_mask_max_ps(most[0], mask, _mm512_maskz_loadu_ps(mask, x + i), most[0]);
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3])));
}

/* ---- exponential ------------------------------------------------------------------------------------------- */

WOI_INLINE __m512 exp_ps(__m512 t)
{
    /* min and max return their second operand when either is NaN: t, and NaN goes through. */
    t = _mm512_max_ps(_mm512_set1_ps(WOI_EXP_LOW), _mm512_min_ps(_mm512_set1_ps(WOI_EXP_HIGH), t));
    const __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(t, _mm512_set1_ps(WOI_LOG2_E)), 8 /* nearest, quiet */);
    __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(WOI_LN2_HIGH), t);
    r = _mm512_fnmadd_ps(k, _mm512_set1_ps(WOI_LN2_LOW), r);
    __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(WOI_EXP_C6), _mm512_set1_ps(WOI_EXP_C5));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(WOI_EXP_C4));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(WOI_EXP_C3));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(WOI_EXP_C2));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(1));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, k);
}

static double exp_sum_avx512(const float *x, size_t n, float shift, float *out)
{
    const __m512 by = _mm512_set1_ps(shift);
    double sum = 0;
    for (size_t i = 0; i < n;) {
        const size_t stop = n - i < WOI_EXP_CHUNK ? n : i + WOI_EXP_CHUNK;
        __m512 acc[4];
        WOI_UNROLL for (size_t k = 0; k < 4; k++) acc[k] = _mm512_setzero_ps();
        for (; i + 64 <= stop; i += 64)
            WOI_UNROLL for (size_t k = 0; k < 4; k++) {
                const __m512 e = exp_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i + 16 * k), by));
                if (out) _mm512_storeu_ps(out + i + 16 * k, e);
                acc[k] = _mm512_add_ps(acc[k], e);
            }
        for (; i < stop; i += 16) {
            const __mmask16 mask = lanes(stop - i);
            const __m512 e = exp_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), by));
            if (out) _mm512_mask_storeu_ps(out + i, mask, e);
            acc[0] = _mm512_mask_add_ps(acc[0], mask, acc[0], e);
        }
        acc[0] = _mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3]));
        sum += _mm512_reduce_add_pd(_mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(acc[0])),
                                                  _mm512_cvtps_pd(_mm512_extractf32x8_ps(acc[0], 1))));
    }
    return sum;
}

/* ---- Adam -------------------------------------------------------------------------------------------------- */

static void adam_avx512(float *w, float *m, float *v, const float *g, size_t n, const woi_adam_step *step)
{
    const __m512 beta1 = _mm512_set1_ps(step->beta1), rest1 = _mm512_set1_ps(1 - step->beta1);
    const __m512 beta2 = _mm512_set1_ps(step->beta2), rest2 = _mm512_set1_ps(1 - step->beta2);
    const __m512 rate = _mm512_set1_ps(step->rate), root_scale = _mm512_set1_ps(step->root_scale);
    const __m512 epsilon = _mm512_set1_ps(step->epsilon);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 mask = lanes(n - i);
        const __m512 gi = _mm512_maskz_loadu_ps(mask, g + i);
        const __m512 mi = _mm512_fmadd_ps(beta1, _mm512_maskz_loadu_ps(mask, m + i), _mm512_mul_ps(rest1, gi));
        const __m512 vi = _mm512_fmadd_ps(beta2, _mm512_maskz_loadu_ps(mask, v + i),
                                          _mm512_mul_ps(rest2, _mm512_mul_ps(gi, gi)));
        const __m512 below = _mm512_fmadd_ps(_mm512_sqrt_ps(vi), root_scale, epsilon);
        const __m512 change = _mm512_div_ps(_mm512_mul_ps(rate, mi), below);
        _mm512_mask_storeu_ps(m + i, mask, mi);
        _mm512_mask_storeu_ps(v + i, mask, vi);
        _mm512_mask_storeu_ps(w + i, mask, _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, w + i), change));
    }
}

void woi_kernels_use_avx512(woi_kernels *table)
{
#define WOI_KERNEL(ret, name, params) WOI_USE(table, name, avx512);
#include "kernels/kernels.def"
#undef WOI_KERNEL
}
