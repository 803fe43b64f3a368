/* The kernels for AVX2 with FMA. A row's end is its last whole vector, read again with the lanes already done cleared;
 * rows shorter than a vector are copied. */
#include "kernels/kernels.h"
#include "kernels/topk.h"
#include "kernels/x86.h"

#define tile_avx2 woi_tile_avx2 /* avx2tile.c */
#define interleave_avx2 woi_interleave_avx2
#define sum_f32_avx2 woi_sum_f32_avx2
#define multiply_adds_avx2 woi_multiply_adds_avx2

/* Eight lanes from keep_lanes + n keep the last n of a vector, from keep_lanes + 16 - n the first n; 16 bytes from
 * keep_bytes + n the last n. */
static const int32_t keep_lanes[24] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
static const int8_t keep_bytes[32] = {0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
                                      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

WOI_INLINE __m256i last_lanes(size_t n)
{
    return _mm256_loadu_si256((const void *)(keep_lanes + n));
}

WOI_INLINE __m256i first_lanes(size_t n)
{
    return _mm256_loadu_si256((const void *)(keep_lanes + 16 - n));
}

/* ---- dot and gather, f32 and bf16 -------------------------------------------------------------------------- */

WOI_INLINE __m256 widen_bf16(__m128i half)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* 8 elements from `at` as floats. */
WOI_INLINE __m256 load_row(bool bf16, const void *row, size_t at)
{
    if (!bf16) return _mm256_loadu_ps((const float *)row + at);
    return widen_bf16(_mm_loadu_si128((const void *)((const uint16_t *)row + at)));
}

/* The last d % 8 elements, the other lanes 0. */
WOI_INLINE __m256 load_row_end(bool bf16, const void *row, size_t d)
{
    if (d >= 8) return _mm256_and_ps(load_row(bf16, row, d - 8), _mm256_castsi256_ps(last_lanes(d % 8)));
    if (!bf16) return _mm256_maskload_ps(row, first_lanes(d));
    uint16_t copy[8] = {0};
    for (size_t j = 0; j < d; j++) copy[j] = ((const uint16_t *)row)[j];
    return widen_bf16(_mm_loadu_si128((const void *)copy));
}

WOI_INLINE void store_sums(float *out, size_t n, __m256 sums)
{
    if (n == WOI_BLOCK)
        _mm256_storeu_ps(out, sums);
    else
        _mm256_maskstore_ps(out, first_lanes(n), sums);
}

/* Rows alone (side 1), in four pieces, or all eight of a block side by side (side 8), a line of 64 bytes of each in
 * turn. The first 8 * head elements of the query stay in registers; d >= 8 * head. */
WOI_INLINE void rows_float(size_t side, size_t head, bool bf16, const float *q, woi_rows r, size_t d, float *out)
{
    const size_t pieces = side == 1 || bf16 ? 4 : 2, whole = d & ~(size_t)7;
    const __m256 x_end = load_row_end(false, q, d);
    __m256 x[8];
    WOI_EACH(k, head) x[k] = _mm256_loadu_ps(q + 8 * k);
    __m256 sums[WOI_BLOCK] = {_mm256_setzero_ps()};
    for (size_t i = 0; i < r.n; i += WOI_BLOCK) {
        const size_t here = r.n - i < WOI_BLOCK ? r.n - i : WOI_BLOCK;
        if (side == 8) woi_prefetch(&r, i, NULL);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const void *row[WOI_BLOCK];
            __m256 acc[WOI_BLOCK];
            WOI_EACH(s, side) row[s] = woi_row(side == 8, &r, i + b + s);
            WOI_EACH(k, WOI_BLOCK) acc[k] = _mm256_setzero_ps();
            WOI_EACH(k, head) acc[k % 4] = _mm256_fmadd_ps(x[k], load_row(bf16, row[0], 8 * k), acc[k % 4]);
            size_t j = 8 * head;
            for (; j + 8 * pieces <= d; j += 8 * pieces)
                WOI_EACH(s, side)
                    WOI_EACH(k, pieces) {
                        const size_t a = side == 1 ? k : s, at = j + 8 * k;
                        acc[a] = _mm256_fmadd_ps(_mm256_loadu_ps(q + at), load_row(bf16, row[s], at), acc[a]);
                    }
            for (; j < whole; j += 8)
                WOI_EACH(s, side) acc[s] = _mm256_fmadd_ps(_mm256_loadu_ps(q + j), load_row(bf16, row[s], j), acc[s]);
            if (whole < d)
                WOI_EACH(s, side) acc[s] = _mm256_fmadd_ps(x_end, load_row_end(bf16, row[s], d), acc[s]);
            if (side == 1) acc[0] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
            WOI_EACH(s, side) sums[b + s] = acc[s];
        }
        store_sums(out + i, here, woi_sums_ps(sums));
    }
}

WOI_INLINE void dot_float(bool bf16, const float *q, const void *rows, size_t n, size_t d, size_t stride, float *out)
{
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
    const woi_rows r = {rows, NULL, n, d * size, stride * size, 0};
    if (d >= 64)
        rows_float(1, 8, bf16, q, r, d, out);
    else
        rows_float(1, 0, bf16, q, r, d, out);
}

static void dot_f32_avx2(const float *q, const float *rows, size_t n, size_t d, size_t stride, float *out)
{
    dot_float(false, q, rows, n, d, stride, out);
}

static void dot_bf16_avx2(const float *q, const uint16_t *rows, size_t n, size_t d, size_t stride, float *out)
{
    dot_float(true, q, rows, n, d, stride, out);
}

static void gather_f32_avx2(const float *q, const float *rows, const int32_t *ids, size_t n, size_t d, size_t stride,
                            float *out)
{
    rows_float(8, 0, false, q, (woi_rows){rows, ids, n, 4 * d, 4 * stride, 0}, d, out);
}

static void gather_bf16_avx2(const float *q, const uint16_t *rows, const int32_t *ids, size_t n, size_t d,
                             size_t stride, float *out)
{
    rows_float(8, 0, true, q, (woi_rows){rows, ids, n, 2 * d, 2 * stride, 0}, d, out);
}

/* ---- dot and gather, i8 ------------------------------------------------------------------------------------ */

WOI_INLINE __m128i load_bytes(const int8_t *p)
{
    return _mm_loadu_si128((const void *)p);
}

/* 16 bytes as 16-bit integers. */
WOI_INLINE __m256i load_i8(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(load_bytes(p));
}

/* The last d % 16 bytes, the other lanes 0. */
WOI_INLINE __m256i load_i8_end(const int8_t *p, size_t d)
{
    if (d >= 16) return _mm256_cvtepi8_epi16(_mm_and_si128(load_bytes(p + d - 16), load_bytes(keep_bytes + d % 16)));
    int8_t copy[16] = {0};
    for (size_t j = 0; j < d; j++) copy[j] = p[j];
    return load_i8(copy);
}

/* Products are summed in pairs, of which none exceeds 2 * 128 * 128. */
WOI_INLINE __m256i add_products(__m256i acc, __m256i x, __m256i y)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(x, y));
}

/* See rows_float. */
WOI_INLINE void rows_i8(size_t side, const int8_t *q, float q_scale, woi_rows r, const float *scales, size_t d,
                        float *out)
{
    const size_t whole = d & ~(size_t)15;
    const __m256i q_end = load_i8_end(q, d);
    __m256i sums[WOI_BLOCK] = {_mm256_setzero_si256()};
    float scale[WOI_BLOCK] = {0};
    for (size_t i = 0; i < r.n; i += WOI_BLOCK) {
        const size_t here = r.n - i < WOI_BLOCK ? r.n - i : WOI_BLOCK;
        if (side == 8) woi_prefetch(&r, i, scales);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const int8_t *row[WOI_BLOCK];
            __m256i acc[WOI_BLOCK];
            WOI_EACH(s, side) {
                row[s] = woi_row(side == 8, &r, i + b + s);
                scale[b + s] = scales[woi_row_id(side == 8, &r, i + b + s)];
            }
            WOI_EACH(k, WOI_BLOCK) acc[k] = _mm256_setzero_si256();
            size_t j = 0;
            for (; j + 64 <= d; j += 64)
                WOI_EACH(s, side)
                    WOI_EACH(k, 4) {
                        const size_t a = side == 1 ? k : s, at = j + 16 * k;
                        acc[a] = add_products(acc[a], load_i8(q + at), load_i8(row[s] + at));
                    }
            for (; j < whole; j += 16)
                WOI_EACH(s, side) acc[s] = add_products(acc[s], load_i8(q + j), load_i8(row[s] + j));
            if (whole < d)
                WOI_EACH(s, side) acc[s] = add_products(acc[s], q_end, load_i8_end(row[s], d));
            if (side == 1)
                acc[0] = _mm256_add_epi32(_mm256_add_epi32(acc[0], acc[1]), _mm256_add_epi32(acc[2], acc[3]));
            WOI_EACH(s, side) sums[b + s] = acc[s];
        }
        store_sums(out + i, here, woi_scaled_sums(sums, scale, q_scale));
    }
}

static void dot_i8_avx2(const int8_t *q, float q_scale, const int8_t *rows, const float *scales, size_t n, size_t d,
                        size_t stride, float *out)
{
    rows_i8(1, q, q_scale, (woi_rows){rows, NULL, n, d, stride, 0}, scales, d, out);
}

static void gather_i8_avx2(const int8_t *q, float q_scale, const int8_t *rows, const float *scales, const int32_t *ids,
                           size_t n, size_t d, size_t stride, float *out)
{
    rows_i8(8, q, q_scale, (woi_rows){rows, ids, n, d, stride, 0}, scales, d, out);
}

/* ---- quantise ---------------------------------------------------------------------------------------------- */

static float quantise_avx2(const float *x, size_t d, int8_t *out)
{
    /* Without their signs, floats have the order of their bits as integers, with what is not finite at the top. */
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    size_t j = 0;
    for (; j + 8 <= d; j += 8)
        most = _mm256_max_epu32(most, _mm256_and_si256(no_sign, _mm256_loadu_si256((const void *)(x + j))));
    float lane[8], top = 0;
    bool finite = true;
    _mm256_storeu_si256((void *)lane, most);
    for (size_t k = 0; k < 8; k++) {
        finite &= isfinite(lane[k]) != 0;
        top = fmaxf(top, lane[k]);
    }
    for (; j < d; j++) {
        finite &= isfinite(x[j]) != 0;
        top = fmaxf(top, fabsf(x[j]));
    }
    const bool zero = !finite || top < 1e-30F;
    const float over = zero ? 0 : 127 / top;
    for (j = 0; !zero && j + 8 <= d; j += 8) {
        const __m256i words = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + j), _mm256_set1_ps(over)));
        const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storel_epi64((void *)(out + j), _mm_packs_epi16(halves, halves));
    }
    for (j = zero ? 0 : j; j < d; j++) out[j] = zero ? 0 : (int8_t)lrintf(x[j] * over);
    return !finite ? NAN : zero ? 0 : top / 127;
}

/* ---- project ----------------------------------------------------------------------------------------------- */

/* 8 * vectors planes; coordinates go in turn to `chains` accumulators each, so that vectors * chains = 8 of them hide
 * the latency of the multiply-add. */
WOI_INLINE void project_block(size_t vectors, size_t chains, const float *x, const float *planes, const float *offsets,
                              size_t d, size_t n_planes, float *z, uint16_t *bits)
{
    __m256 acc[8];
    WOI_EACH(a, vectors * chains) acc[a] = a < vectors ? _mm256_loadu_ps(offsets + 8 * a) : _mm256_setzero_ps();
    size_t j = 0;
    for (; j + chains <= d; j += chains)
        WOI_EACH(c, chains) {
            const __m256 coordinate = _mm256_broadcast_ss(x + j + c);
            const float *row = planes + (j + c) * n_planes;
            WOI_EACH(v, vectors)
                acc[c * vectors + v] = _mm256_fmadd_ps(coordinate, _mm256_loadu_ps(row + 8 * v), acc[c * vectors + v]);
        }
    for (; j < d; j++)
        WOI_EACH(v, vectors) {
            const __m256 row = _mm256_loadu_ps(planes + j * n_planes + 8 * v);
            acc[v] = _mm256_fmadd_ps(_mm256_broadcast_ss(x + j), row, acc[v]);
        }
    unsigned positive[8];
    WOI_EACH(v, vectors) {
        WOI_EACH(c, chains - 1) acc[v] = _mm256_add_ps(acc[v], acc[(c + 1) * vectors + v]);
        _mm256_storeu_ps(z + 8 * v, acc[v]);
        positive[v] = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(acc[v], _mm256_setzero_ps(), _CMP_GT_OQ));
    }
    WOI_EACH(b, vectors / 2) bits[b] = (uint16_t)(positive[2 * b] | positive[2 * b + 1] << 8);
}

static void project_avx2(const float *x, size_t n, const float *planes, const float *offsets, size_t d, size_t n_planes,
                         float *z, uint16_t *bits)
{
    for (size_t i = 0; i < n; i++, x += d, z += n_planes, bits += n_planes / 16) {
        size_t p = 0;
        for (; p + 64 <= n_planes; p += 64)
            project_block(8, 1, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
        for (; p < n_planes; p += 16)
            project_block(2, 4, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
    }
}

/* Four coordinates of 8 planes, as words: the even two and the odd two of each plane are pairs of 16-bit integers,
 * which meet the same pair of the point. */
WOI_INLINE __m256i add_fours(__m256i acc, __m256i planes, int32_t even, int32_t odd)
{
    const __m256i low = _mm256_and_si256(planes, _mm256_set1_epi32(0x00ff00ff));
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(low, _mm256_set1_epi32(even)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_srli_epi16(planes, 8), _mm256_set1_epi32(odd)));
}

WOI_INLINE void project_i8_point(const int8_t *x, float x_scale, const uint8_t *planes, const float *scales,
                                 const float *offsets, size_t fours, size_t n_planes, size_t stride, float *z)
{
    const __m256i excess = _mm256_set1_epi32(woi_excess(x, fours));
    for (size_t p = 0; p < n_planes; p += 8) {
        __m256i acc = _mm256_setzero_si256();
        for (size_t j = 0; j < fours; j++)
            acc = add_fours(acc, _mm256_loadu_si256((const void *)(planes + (j * stride + p) * 4)),
                            woi_pair(x[4 * j], x[4 * j + 2]), woi_pair(x[4 * j + 1], x[4 * j + 3]));
        const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + p), _mm256_set1_ps(x_scale));
        _mm256_storeu_ps(z + p, _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(acc, excess)), scale,
                                                _mm256_loadu_ps(offsets + p)));
    }
}

static void project_i8_avx2(const int8_t *x, const float *x_scales, size_t n, const uint8_t *planes,
                            const float *scales, const float *offsets, size_t fours, size_t n_planes, size_t stride,
                            float *z)
{
    for (size_t i = 0; i < n; i++)
        project_i8_point(x + i * 4 * fours, x_scales[i], planes, scales, offsets, fours, n_planes, stride,
                         z + i * n_planes);
}

/* ---- top-k, maximum ---------------------------------------------------------------------------------------- */

static void topk_scan_avx2(const float *scores, size_t n, int32_t first_id, woi_topk *top)
{
    size_t i = 0;
    for (; i < n && top->n < top->k; i++) woi_topk_push(top, scores[i], first_id + (int32_t)i);
    if (i == n) return;
    __m256 bar = _mm256_set1_ps(woi_topk_bar(top, first_id + (int64_t)i));
    for (; i + 32 <= n; i += 32) {
        uint32_t hits = 0; /* NaN fails the ordered comparison */
        WOI_EACH(k, 4)
            hits |= (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores + i + 8 * k), bar, _CMP_GE_OQ))
                    << 8 * k;
        if (!hits) continue;
        for (; hits; hits &= hits - 1) {
            const size_t at = i + (size_t)__builtin_ctz(hits);
            woi_topk_push(top, scores[at], first_id + (int32_t)at);
        }
        bar = _mm256_set1_ps(woi_topk_bar(top, first_id + (int64_t)i + 32));
    }
    for (; i < n; i++) woi_topk_push(top, scores[i], first_id + (int32_t)i);
}

static float max_f32_avx2(const float *x, size_t n)
{
    /* max_ps returns its second operand when either is NaN: x first, and NaNs are passed over. */
    __m256 most[4];
    WOI_EACH(k, 4) most[k] = _mm256_set1_ps(-INFINITY);
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        WOI_EACH(k, 4) most[k] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * k), most[k]);
    float lane[8];
    _mm256_storeu_ps(lane, _mm256_max_ps(_mm256_max_ps(most[0], most[1]), _mm256_max_ps(most[2], most[3])));
    float best = lane[0];
    for (size_t k = 1; k < 8; k++)
        if (lane[k] > best) best = lane[k];
    for (; i < n; i++)
        if (x[i] > best) best = x[i];
    return best;
}

static size_t pick_avx2(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    /* A round an answer: faster than a heap where answers are few, alone and beside the scores (Zen 4: 1.5 times at 4
     * of 128, as fast at 8 of 96, 0.8 times at 20 of 272). */
    enum { MOST = 8, SCORES_EACH = 12 };
    if (k > MOST || k * SCORES_EACH > n) return woi_topk_pick(scores, ids, n, k, best, best_ids);
    size_t found = 0;
    for (; found < k; found++) {
        const float top = max_f32_avx2(scores, n);
        const __m256 wanted = _mm256_set1_ps(top);
        size_t at = n, i = 0;
        for (; i + 8 <= n; i += 8) {
            const uint64_t hits =
                (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores + i), wanted, _CMP_EQ_OQ));
            if (!hits) continue;
            const size_t here = i + woi_lowest_id(hits, ids ? ids + i : NULL);
            if (at == n || (ids && ids[here] < ids[at])) at = here;
        }
        for (; i < n; i++)
            if (scores[i] == top && (at == n || (ids && ids[i] < ids[at]))) at = i;
        if (at == n) break;
        best[found] = top;
        best_ids[found] = ids ? ids[at] : (int32_t)at;
        scores[at] = NAN; /* which no comparison finds */
    }
    woi_pick_end(found, k, best, best_ids);
    return found;
}

/* ---- exponential ------------------------------------------------------------------------------------------- */

/* 2^k for -126 <= k <= 127. */
WOI_INLINE __m256 power_of_two(__m256i k)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
}

WOI_INLINE __m256 exp_ps(__m256 t)
{
    /* min and max return their second operand when either is NaN: t, and NaN goes through. */
    t = _mm256_max_ps(_mm256_set1_ps(WOI_EXP_LOW), _mm256_min_ps(_mm256_set1_ps(WOI_EXP_HIGH), t));
    const __m256 k = _mm256_round_ps(_mm256_mul_ps(t, _mm256_set1_ps(WOI_LOG2_E)), 8 /* nearest, quiet */);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(WOI_LN2_HIGH), t);
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(WOI_LN2_LOW), r);
    __m256 p = _mm256_fmadd_ps(r, _mm256_set1_ps(WOI_EXP_C6), _mm256_set1_ps(WOI_EXP_C5));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(WOI_EXP_C4));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(WOI_EXP_C3));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(WOI_EXP_C2));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(1));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(1));
    /* k goes from -150 to 128, beyond the exponents of normal floats: two factors, of which only the last rounds. */
    const __m256i both = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(both, 1);
    return _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(half)), power_of_two(_mm256_sub_epi32(both, half)));
}

static double exp_sum_avx2(const float *x, size_t n, float shift, float *out)
{
    const __m256 by = _mm256_set1_ps(shift);
    double sum = 0;
    for (size_t i = 0; i < n;) {
        const size_t stop = n - i < WOI_EXP_CHUNK ? n : i + WOI_EXP_CHUNK;
        __m256 acc[4];
        WOI_EACH(k, 4) acc[k] = _mm256_setzero_ps();
        for (; i + 32 <= stop; i += 32)
            WOI_EACH(k, 4) {
                const __m256 e = exp_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * k), by));
                if (out) _mm256_storeu_ps(out + i + 8 * k, e);
                acc[k] = _mm256_add_ps(acc[k], e);
            }
        for (; i < stop; i += 8) {
            const __m256i mask = first_lanes(stop - i < 8 ? stop - i : 8);
            const __m256 e = exp_ps(_mm256_sub_ps(_mm256_maskload_ps(x + i, mask), by));
            if (out) _mm256_maskstore_ps(out + i, mask, e);
            acc[0] = _mm256_add_ps(acc[0], _mm256_and_ps(e, _mm256_castsi256_ps(mask)));
        }
        acc[0] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
        const __m256d fours = _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(acc[0])),
                                            _mm256_cvtps_pd(_mm256_extractf128_ps(acc[0], 1)));
        const __m128d twos = _mm_add_pd(_mm256_castpd256_pd128(fours), _mm256_extractf128_pd(fours, 1));
        sum += _mm_cvtsd_f64(_mm_hadd_pd(twos, twos));
    }
    return sum;
}

/* ---- Adam -------------------------------------------------------------------------------------------------- */

/* 8 parameters; fewer where a mask is given. Masked stores are slow on AMD, so only the end uses them. */
WOI_INLINE void adam_8(float *w, float *m, float *v, const float *g, const __m256i *mask, const woi_adam_step *step)
{
#define LOAD(p) (mask ? _mm256_maskload_ps(p, *mask) : _mm256_loadu_ps(p))
#define STORE(p, x) (mask ? _mm256_maskstore_ps(p, *mask, x) : _mm256_storeu_ps(p, x))
    const __m256 gi = LOAD(g);
    const __m256 mi =
        _mm256_fmadd_ps(_mm256_set1_ps(step->beta1), LOAD(m), _mm256_mul_ps(_mm256_set1_ps(1 - step->beta1), gi));
    const __m256 vi = _mm256_fmadd_ps(_mm256_set1_ps(step->beta2), LOAD(v),
                                      _mm256_mul_ps(_mm256_set1_ps(1 - step->beta2), _mm256_mul_ps(gi, gi)));
    const __m256 below =
        _mm256_fmadd_ps(_mm256_sqrt_ps(vi), _mm256_set1_ps(step->root_scale), _mm256_set1_ps(step->epsilon));
    const __m256 change = _mm256_div_ps(_mm256_mul_ps(_mm256_set1_ps(step->rate), mi), below);
    STORE(m, mi);
    STORE(v, vi);
    STORE(w, _mm256_sub_ps(LOAD(w), change));
#undef LOAD
#undef STORE
}

static void adam_avx2(float *w, float *m, float *v, const float *g, size_t n, const woi_adam_step *step)
{
    const woi_adam_step s = *step; /* a copy, which the stores to w, m and v cannot alias */
    size_t i = 0;
    for (; i + 8 <= n; i += 8) adam_8(w + i, m + i, v + i, g + i, NULL, &s);
    const __m256i rest = first_lanes(n - i);
    if (i < n) adam_8(w + i, m + i, v + i, g + i, &rest, &s);
}

void woi_kernels_use_avx2(woi_kernels *table)
{
#define WOI_KERNEL(ret, name, params) WOI_USE(table, name, avx2);
#include "kernels/kernels.def"
#undef WOI_KERNEL
    woi_tile_sizes_avx2(table);
}
