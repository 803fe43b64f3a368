/* The kernels for AVX-512 (F, BW, DQ, VL). Ends of rows are masked loads, which do not touch the lanes left out. */
#include "kernels/kernels.h"
#include "kernels/topk.h"
#include "kernels/x86.h"

#define pick_avx512 woi_pick_avx512 /* avx512pick.c */
#define sift_avx512 woi_sift_avx512
#define tile_i8_avx512 woi_tile_i8_avx2 /* avx2tile8.c: without VNNI there is nothing to gain */
#define tile_avx512 woi_tile_avx512     /* avx512tile.c */
#define interleave_avx512 woi_interleave_avx512
#define sum_f32_avx512 woi_sum_f32_avx512
#define multiply_adds_avx512 woi_multiply_adds_avx512

WOI_INLINE __m256 fold_ps(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

WOI_INLINE __m256i fold_epi32(__m512i v)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}

/* ---- dot and gather, f32 and bf16 -------------------------------------------------------------------------- */

/* Both types are read a line of 64 bytes at a time: 16 floats, or 32 halves, which are 16 words with an odd element
 * above an even one. Shifted up, a word is the even element as a float; with its lower half cleared, the odd one. The
 * query is taken apart to match, once for all rows where it stays in registers. */
typedef struct query {
    __m512 even, odd; /* f32: even alone, holding 16 elements in order */
} query;

WOI_INLINE query load_query(bool bf16, const float *q, size_t n)
{
    const __m512 low = _mm512_maskz_loadu_ps(woi_lanes(n), q);
    if (!bf16) return (query){low, low};
    const __m512 high = n > 16 ? _mm512_maskz_loadu_ps(woi_lanes(n - 16), q + 16) : _mm512_setzero_ps();
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return (query){_mm512_permutex2var_ps(low, even, high),
                   _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high)};
}

WOI_INLINE __m512i load_line(const char *row, size_t line)
{
    return _mm512_loadu_si512((const void *)(row + 64 * line));
}

/* The first n elements of a line. */
WOI_INLINE __m512i load_line_end(bool bf16, const char *row, size_t line, size_t n)
{
    return bf16 ? _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), row + 64 * line)
                : _mm512_maskz_loadu_epi32(woi_lanes(n), row + 64 * line);
}

WOI_INLINE __m512 add_products(bool bf16, __m512 acc, query x, __m512i line)
{
    if (!bf16) return _mm512_fmadd_ps(x.even, _mm512_castsi512_ps(line), acc);
    acc = _mm512_fmadd_ps(x.even, _mm512_castsi512_ps(_mm512_slli_epi32(line, 16)), acc);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_fmadd_ps(x.odd, _mm512_castsi512_ps(_mm512_and_si512(line, upper)), acc);
}

/* Rows alone (side 1), in four pieces, or all eight of a block side by side (side 8). The first `head` lines' worth of
 * the query stay in registers; rows have at least as many. */
WOI_INLINE void rows_float(size_t side, size_t head, bool bf16, const float *q, woi_rows r, size_t d, float *out)
{
    const size_t per_line = bf16 ? 32 : 16, pieces = side == 1 ? 4 : 1;
    const size_t whole = d / per_line, rest = d % per_line;
    query x[16], x_rest = load_query(bf16, q + whole * per_line, rest);
    WOI_EACH(k, head) x[k] = load_query(bf16, q + k * per_line, per_line);
    __m256 sums[WOI_BLOCK] = {_mm256_setzero_ps()};
    for (size_t i = 0; i < r.n; i += WOI_BLOCK) {
        const size_t here = r.n - i < WOI_BLOCK ? r.n - i : WOI_BLOCK;
        if (side == 8) woi_prefetch(&r, i, NULL);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const char *row[WOI_BLOCK];
            __m512 acc[WOI_BLOCK];
            WOI_EACH(s, side) row[s] = woi_row(side == 8, &r, i + b + s);
            WOI_EACH(k, side * pieces) acc[k] = _mm512_setzero_ps();
            WOI_EACH(k, head) acc[k % 4] = add_products(bf16, acc[k % 4], x[k], load_line(row[0], k));
            if (head * per_line < d) {
                size_t line = head;
                for (; line + pieces <= whole; line += pieces)
                    WOI_EACH(k, pieces) {
                        const query now = load_query(bf16, q + (line + k) * per_line, per_line);
                        WOI_EACH(s, side) acc[s + k] = add_products(bf16, acc[s + k], now, load_line(row[s], line + k));
                    }
                for (; line < whole; line++)
                    acc[0] = add_products(bf16, acc[0], load_query(bf16, q + line * per_line, per_line),
                                          load_line(row[0], line));
                if (rest)
                    WOI_EACH(s, side)
                        acc[s] = add_products(bf16, acc[s], x_rest, load_line_end(bf16, row[s], whole, rest));
            }
            if (side == 1) acc[0] = _mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3]));
            WOI_EACH(s, side) sums[b + s] = fold_ps(acc[s]);
        }
        _mm256_mask_storeu_ps(out + i, (__mmask8)woi_lanes(here), woi_sums_ps(sums));
    }
}

WOI_INLINE void dot_float(bool bf16, const float *q, const void *rows, size_t n, size_t d, size_t stride, float *out)
{
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float), more = bf16 ? 1 : 2;
    const woi_rows r = {rows, NULL, n, d * size, stride * size, 0};
    if (d >= 256) /* 16 registers, whatever the type */
        rows_float(1, 8 * more, bf16, q, r, d, out);
    else if (d >= 128)
        rows_float(1, 4 * more, bf16, q, r, d, out);
    else if (d >= 64)
        rows_float(1, 2 * more, bf16, q, r, d, out);
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
    rows_float(8, 0, false, q, (woi_rows){rows, ids, n, 4 * d, 4 * stride, 0}, d, out);
}

static void gather_bf16_avx512(const float *q, const uint16_t *rows, const int32_t *ids, size_t n, size_t d,
                               size_t stride, float *out)
{
    rows_float(8, 0, true, q, (woi_rows){rows, ids, n, 2 * d, 2 * stride, 0}, d, out);
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
WOI_INLINE __m512i add_products_i8(__m512i acc, __m512i x, __m512i y)
{
    return _mm512_add_epi32(acc, _mm512_madd_epi16(x, y));
}

/* See rows_float. */
WOI_INLINE void rows_i8(size_t side, const int8_t *q, float q_scale, woi_rows r, const float *scales, size_t d,
                        float *out)
{
    const size_t pieces = side == 1 ? 4 : 1, whole = d & ~(size_t)31;
    const __mmask32 end = (__mmask32)((1ull << d % 32) - 1);
    const __m512i q_end = load_i8_end(q + whole, end);
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
            WOI_EACH(k, side * pieces) acc[k] = _mm512_setzero_si512();
            size_t j = 0;
            for (; j + 32 * pieces <= d; j += 32 * pieces)
                WOI_EACH(k, pieces) {
                    const __m512i qj = load_i8(q + j + 32 * k);
                    WOI_EACH(s, side) acc[s + k] = add_products_i8(acc[s + k], qj, load_i8(row[s] + j + 32 * k));
                }
            for (; j < whole; j += 32) acc[0] = add_products_i8(acc[0], load_i8(q + j), load_i8(row[0] + j));
            if (end)
                WOI_EACH(s, side) acc[s] = add_products_i8(acc[s], q_end, load_i8_end(row[s] + whole, end));
            if (side == 1)
                acc[0] = _mm512_add_epi32(_mm512_add_epi32(acc[0], acc[1]), _mm512_add_epi32(acc[2], acc[3]));
            WOI_EACH(s, side) sums[b + s] = fold_epi32(acc[s]);
        }
        _mm256_mask_storeu_ps(out + i, (__mmask8)woi_lanes(here), woi_scaled_sums(sums, scale, q_scale));
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
    rows_i8(8, q, q_scale, (woi_rows){rows, ids, n, d, stride, 0}, scales, d, out);
}

/* ---- quantise ---------------------------------------------------------------------------------------------- */

static float quantise_avx512(const float *x, size_t d, int8_t *out)
{
    /* Without their signs, floats have the order of their bits as integers, with what is not finite at the top. */
    __m512i most = _mm512_setzero_si512();
    for (size_t j = 0; j < d; j += 16) {
        const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(woi_lanes(d - j), x + j));
        most = _mm512_max_epu32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
    }
    const uint32_t bits = _mm512_reduce_max_epu32(most);
    const float top = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits)));
    const bool finite = bits < 0x7f800000, zero = !finite || top < 1e-30F;
    const __m512 over = _mm512_set1_ps(zero ? 0 : 127 / top);
    for (size_t j = 0; j < d; j += 16) {
        const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(woi_lanes(d - j), x + j), over);
        const __m512i codes = zero ? _mm512_setzero_si512() : _mm512_cvtps_epi32(scaled);
        _mm_mask_storeu_epi8(out + j, woi_lanes(d - j), _mm512_cvtsepi32_epi8(codes));
    }
    return !finite ? NAN : zero ? 0 : top / 127;
}

/* ---- project ----------------------------------------------------------------------------------------------- */

/* One point on 16 * vectors planes. Coordinates go in turn to `chains` accumulators, so that vectors * chains >= 6 of
 * them hide the latency of the multiply-add. */
WOI_INLINE void project_block(size_t vectors, size_t chains, const float *x, const float *planes, const float *offsets,
                              size_t d, size_t n_planes, float *z, uint16_t *bits)
{
    __m512 acc[8];
    WOI_EACH(a, vectors * chains) acc[a] = a < vectors ? _mm512_loadu_ps(offsets + 16 * a) : _mm512_setzero_ps();
    size_t j = 0;
    for (; j + chains <= d; j += chains)
        WOI_EACH(c, chains) {
            const float *row = planes + (j + c) * n_planes;
            const __m512 coordinate = _mm512_set1_ps(x[j + c]);
            WOI_EACH(v, vectors) {
                __m512 *to = &acc[c * vectors + v];
                *to = _mm512_fmadd_ps(coordinate, _mm512_loadu_ps(row + 16 * v), *to);
            }
        }
    for (; j < d; j++)
        WOI_EACH(v, vectors) {
            const __m512 row = _mm512_loadu_ps(planes + j * n_planes + 16 * v);
            acc[v] = _mm512_fmadd_ps(_mm512_set1_ps(x[j]), row, acc[v]);
        }
    WOI_EACH(v, vectors) {
        WOI_EACH(c, chains - 1) acc[v] = _mm512_add_ps(acc[v], acc[(c + 1) * vectors + v]);
        _mm512_storeu_ps(z + 16 * v, acc[v]);
        bits[v] = _mm512_cmp_ps_mask(acc[v], _mm512_setzero_ps(), _CMP_GT_OQ);
    }
}

static void project_avx512(const float *x, size_t n, const float *planes, const float *offsets, size_t d,
                           size_t n_planes, float *z, uint16_t *bits)
{
    for (size_t i = 0; i < n; i++, x += d, z += n_planes, bits += n_planes / 16) {
        size_t p = 0;
        for (; p + 128 <= n_planes; p += 128)
            project_block(8, 1, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
        if (p + 64 <= n_planes) {
            project_block(4, 2, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
            p += 64;
        }
        switch (n_planes - p) {
        case 48: project_block(3, 2, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16); break;
        case 32: project_block(2, 4, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16); break;
        case 16: project_block(1, 8, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16); break;
        default: break;
        }
    }
}

/* Four coordinates of 16 planes, as words: the even two and the odd two of each plane are pairs of 16-bit integers,
 * which meet the same pair of the point. */
WOI_INLINE __m512i add_fours(__m512i acc, __m512i planes, int32_t even, int32_t odd)
{
    const __m512i low = _mm512_and_si512(planes, _mm512_set1_epi32(0x00ff00ff));
    acc = _mm512_add_epi32(acc, _mm512_madd_epi16(low, _mm512_set1_epi32(even)));
    return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_srli_epi16(planes, 8), _mm512_set1_epi32(odd)));
}

WOI_INLINE void project_i8_point(const int8_t *x, float x_scale, const uint8_t *planes, const float *scales,
                                 const float *offsets, size_t fours, size_t n_planes, size_t stride, float *z)
{
    const __m512i excess = _mm512_set1_epi32(woi_excess(x, fours));
    for (size_t p = 0; p < n_planes; p += 16) {
        __m512i acc = _mm512_setzero_si512();
        for (size_t j = 0; j < fours; j++)
            acc = add_fours(acc, _mm512_loadu_si512((const void *)(planes + (j * stride + p) * 4)),
                            woi_pair(x[4 * j], x[4 * j + 2]), woi_pair(x[4 * j + 1], x[4 * j + 3]));
        const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + p), _mm512_set1_ps(x_scale));
        _mm512_storeu_ps(z + p, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(acc, excess)), scale,
                                                _mm512_loadu_ps(offsets + p)));
    }
}

static void project_i8_avx512(const int8_t *x, const float *x_scales, size_t n, const uint8_t *planes,
                              const float *scales, const float *offsets, size_t fours, size_t n_planes, size_t stride,
                              float *z)
{
    for (size_t i = 0; i < n; i++)
        project_i8_point(x + i * 4 * fours, x_scales[i], planes, scales, offsets, fours, n_planes, stride,
                         z + i * n_planes);
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
            WOI_EACH(k, 4)
                hits |= (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(scores + i + 16 * k), bar, _CMP_GE_OQ) << 16 * k;
        else
            hits = _mm512_mask_cmp_ps_mask(woi_lanes(step), _mm512_maskz_loadu_ps(woi_lanes(step), scores + i), bar,
                                           _CMP_GE_OQ);
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
    WOI_EACH(k, 4) most[k] = _mm512_set1_ps(-INFINITY);
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        WOI_EACH(k, 4) most[k] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * k), most[k]);
    for (; i < n; i += 16) {
        const __mmask16 mask = woi_lanes(n - i);
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
        WOI_EACH(k, 4) acc[k] = _mm512_setzero_ps();
        for (; i + 64 <= stop; i += 64)
            WOI_EACH(k, 4) {
                const __m512 e = exp_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i + 16 * k), by));
                if (out) _mm512_storeu_ps(out + i + 16 * k, e);
                acc[k] = _mm512_add_ps(acc[k], e);
            }
        for (; i < stop; i += 16) {
            const __mmask16 mask = woi_lanes(stop - i);
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

/* ---- logarithm --------------------------------------------------------------------------------------------- */

WOI_INLINE __m512 log_ps(__m512 y)
{
    const __m512 one = _mm512_set1_ps(1);
    const __m512i bits = _mm512_castps_si512(y);
    const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(WOI_ROOT_HALF_BITS)), 23);
    const __m512 f = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(e, 23)));
    const __m512 s = _mm512_div_ps(_mm512_sub_ps(f, one), _mm512_add_ps(f, one)), t = _mm512_mul_ps(s, s);
    __m512 p = _mm512_fmadd_ps(t, _mm512_set1_ps(2.0f / 9), _mm512_set1_ps(2.0f / 7));
    p = _mm512_fmadd_ps(t, p, _mm512_set1_ps(2.0f / 5));
    p = _mm512_fmadd_ps(t, p, _mm512_set1_ps(2.0f / 3));
    p = _mm512_fmadd_ps(t, p, _mm512_set1_ps(2));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(e), _mm512_set1_ps(WOI_LN2), _mm512_mul_ps(s, p));
}

static void scaled_log_avx512(float *x, size_t n, float over, float scale)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 mask = woi_lanes(n - i);
        const __m512 y = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_set1_ps(over), _mm512_set1_ps(1));
        _mm512_mask_storeu_ps(x + i, mask, _mm512_mul_ps(log_ps(y), _mm512_set1_ps(scale)));
    }
}

/* ---- Adam -------------------------------------------------------------------------------------------------- */

static void adam_avx512(float *w, float *m, float *v, const float *g, size_t n, const woi_adam_step *step)
{
    const __m512 beta1 = _mm512_set1_ps(step->beta1), rest1 = _mm512_set1_ps(1 - step->beta1);
    const __m512 beta2 = _mm512_set1_ps(step->beta2), rest2 = _mm512_set1_ps(1 - step->beta2);
    const __m512 rate = _mm512_set1_ps(step->rate), root_scale = _mm512_set1_ps(step->root_scale);
    const __m512 epsilon = _mm512_set1_ps(step->epsilon);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 mask = woi_lanes(n - i);
        const __m512 gi = _mm512_maskz_loadu_ps(mask, g + i);
        const __m512 mi = _mm512_fmadd_ps(beta1, _mm512_maskz_loadu_ps(mask, m + i), _mm512_mul_ps(rest1, gi));
        const __m512 vi =
            _mm512_fmadd_ps(beta2, _mm512_maskz_loadu_ps(mask, v + i), _mm512_mul_ps(rest2, _mm512_mul_ps(gi, gi)));
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
    table->path[WOI_K_tile_i8] = "avx2";
    woi_tile_sizes_avx512(table);
}
