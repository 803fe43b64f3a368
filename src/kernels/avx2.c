/* The kernels for AVX2 with FMA. A row's end is its last whole vector, read again with the lanes already done cleared;
 * rows shorter than a vector are copied. */
#include "kernels/kernels.h"
#include "kernels/topk.h"
#include "kernels/x86.h"

#include <string.h>

#define pick_avx2 woi_pick_avx2 /* avx2pick.c */
#define sift_avx2 woi_sift_avx2
#define tile_i8_avx2 woi_tile_i8_avx2 /* avx2tile8.c */
#define tile_avx2 woi_tile_avx2       /* avx2tile.c */
#define interleave_avx2 woi_interleave_avx2
#define sum_f32_avx2 woi_sum_f32_avx2
#define multiply_adds_avx2 woi_multiply_adds_avx2

/* 32 bytes from keep_bytes + n keep the last n of a vector; eight lanes from keep_lanes + 8 - n the first n. */
static const int8_t keep_bytes[64] = {[32] = -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                      -1,        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
static const int32_t keep_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

WOI_INLINE __m256i first_lanes(size_t n)
{
    return _mm256_loadu_si256((const void *)(keep_lanes + 8 - n));
}

/* ---- dot and gather, f32 and bf16 -------------------------------------------------------------------------- */

/* Both types are read 32 bytes at a time: 8 floats, or 16 halves, which are 8 words with an odd element above an even
 * one. Shifted up, a word is the even element as a float; with its lower half cleared, the odd one. The query is taken
 * apart to match. Widening the halves in order instead goes through the one port of shuffles: of a query of Debian's
 * tuned index gather_bf16 then takes 0.17 us, and 0.15 so (perf's shares). */
typedef struct query {
    __m256 even, odd; /* f32: even alone, holding 8 elements in order */
} query;

WOI_INLINE query take_apart(__m256 low, __m256 high)
{
    const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)); /* their middle pairs swapped */
    const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
    return (query){_mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)),
                   _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))};
}

WOI_INLINE query load_query(bool bf16, const float *q)
{
    const __m256 low = _mm256_loadu_ps(q);
    return bf16 ? take_apart(low, _mm256_loadu_ps(q + 8)) : (query){low, low};
}

WOI_INLINE __m256i load_row(const void *row, size_t bytes)
{
    return _mm256_loadu_si256((const void *)((const char *)row + bytes));
}

/* The last d % 8 floats or d % 16 halves, the other lanes 0. */
WOI_INLINE __m256i load_row_end(bool bf16, const void *row, size_t d)
{
    const size_t size = bf16 ? 2 : 4, bytes = d * size;
    if (bytes >= 32) return _mm256_and_si256(load_row(row, bytes - 32), load_row(keep_bytes, bytes % 32));
    if (!bf16) return _mm256_maskload_epi32(row, first_lanes(d));
    uint16_t copy[16] = {0};
    for (size_t j = 0; j < d; j++) copy[j] = ((const uint16_t *)row)[j];
    return load_row(copy, 0);
}

WOI_INLINE query load_query_end(bool bf16, const float *q, size_t d)
{
    if (!bf16) {
        const __m256 all = _mm256_castsi256_ps(load_row_end(false, q, d));
        return (query){all, all};
    }
    float copy[16] = {0}; /* where load_row_end has them */
    const size_t rest = d % 16, at = d < 16 ? 0 : 16 - rest;
    for (size_t j = 0; j < rest; j++) copy[at + j] = q[d - rest + j];
    return load_query(true, copy);
}

WOI_INLINE __m256 add_products(bool bf16, __m256 acc, query x, __m256i row)
{
    if (!bf16) return _mm256_fmadd_ps(x.even, _mm256_castsi256_ps(row), acc);
    acc = _mm256_fmadd_ps(x.even, _mm256_castsi256_ps(_mm256_slli_epi32(row, 16)), acc);
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    return _mm256_fmadd_ps(x.odd, _mm256_castsi256_ps(_mm256_and_si256(row, upper)), acc);
}

WOI_INLINE void store_sums(float *out, size_t n, __m256 sums)
{
    if (n == WOI_BLOCK)
        _mm256_storeu_ps(out, sums);
    else
        _mm256_maskstore_ps(out, first_lanes(n), sums);
}

/* Rows alone (side 1), in four pieces, or all eight of a block side by side (side 8), a line of 64 bytes of each in
 * turn. The first `head` vectors' worth of the query are loaded once; rows have at least as many. */
WOI_INLINE void rows_float(size_t side, size_t head, bool bf16, const float *q, woi_rows r, size_t d, float *out)
{
    const size_t each = bf16 ? 16 : 8, pieces = side == 1 ? 4 : 2, vectors = d / each;
    const query x_end = load_query_end(bf16, q, d);
    query x[16];
    WOI_EACH(k, head) x[k] = load_query(bf16, q + k * each);
    __m256 sums[WOI_BLOCK] = {_mm256_setzero_ps()};
    for (size_t i = 0; i < r.n; i += WOI_BLOCK) {
        const size_t here = r.n - i < WOI_BLOCK ? r.n - i : WOI_BLOCK;
        if (side == 8) woi_prefetch(&r, i, NULL);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const void *row[WOI_BLOCK];
            __m256 acc[WOI_BLOCK];
            WOI_EACH(s, side) row[s] = woi_row(side == 8, &r, i + b + s);
            WOI_EACH(k, WOI_BLOCK) acc[k] = _mm256_setzero_ps();
            WOI_EACH(k, head) acc[k % 4] = add_products(bf16, acc[k % 4], x[k], load_row(row[0], 32 * k));
            size_t v = head;
            for (; v + pieces <= vectors; v += pieces) {
                query now[4];
                WOI_EACH(k, pieces) now[k] = load_query(bf16, q + (v + k) * each);
                WOI_EACH(s, side)
                    WOI_EACH(k, pieces) {
                        const size_t a = side == 1 ? k : s;
                        acc[a] = add_products(bf16, acc[a], now[k], load_row(row[s], 32 * (v + k)));
                    }
            }
            for (; v < vectors; v++) {
                const query now = load_query(bf16, q + v * each);
                WOI_EACH(s, side) acc[s] = add_products(bf16, acc[s], now, load_row(row[s], 32 * v));
            }
            if (d % each)
                WOI_EACH(s, side) acc[s] = add_products(bf16, acc[s], x_end, load_row_end(bf16, row[s], d));
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
    if (bf16 && d >= 256) /* more than the registers hold, but taken apart once: 38 GFLOP/s in L1, 31 in every row */
        rows_float(1, 16, bf16, q, r, d, out);
    else if (bf16 && d >= 128)
        rows_float(1, 8, bf16, q, r, d, out);
    else if (d >= 64)
        rows_float(1, bf16 ? 4 : 8, bf16, q, r, d, out);
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
    if (d >= 16)
        return _mm256_cvtepi8_epi16(_mm_and_si128(load_bytes(p + d - 16), load_bytes(keep_bytes + 16 + d % 16)));
    int8_t copy[16] = {0};
    for (size_t j = 0; j < d; j++) copy[j] = p[j];
    return load_i8(copy);
}

/* Products are summed in pairs, of which none exceeds 2 * 128 * 128. */
WOI_INLINE __m256i add_products_i8(__m256i acc, __m256i x, __m256i y)
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
                        acc[a] = add_products_i8(acc[a], load_i8(q + at), load_i8(row[s] + at));
                    }
            for (; j < whole; j += 16)
                WOI_EACH(s, side) acc[s] = add_products_i8(acc[s], load_i8(q + j), load_i8(row[s] + j));
            if (whole < d)
                WOI_EACH(s, side) acc[s] = add_products_i8(acc[s], q_end, load_i8_end(row[s], d));
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

/* Up to eight floats, the other lanes 0. */
WOI_INLINE __m256 load_some(const float *x, size_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes(n));
}

static float quantise_avx2(const float *x, size_t d, int8_t *out)
{
    /* Without their signs, floats have the order of their bits as integers, with what is not finite at the top. */
    const __m256i no_sign = _mm256_set1_epi32(INT32_MAX);
    __m256i most = _mm256_setzero_si256();
    for (size_t j = 0; j < d; j += 8)
        most = _mm256_max_epu32(most, _mm256_and_si256(no_sign, _mm256_castps_si256(load_some(x + j, d - j))));
    most = _mm256_max_epu32(most, _mm256_permute2x128_si256(most, most, 1));
    most = _mm256_max_epu32(most, _mm256_shuffle_epi32(most, 0x4e));
    most = _mm256_max_epu32(most, _mm256_shuffle_epi32(most, 0xb1));
    const float top = _mm256_cvtss_f32(_mm256_castsi256_ps(most));
    const bool finite = _mm256_cvtsi256_si32(most) < 0x7f800000, zero = !finite || top < 1e-30F;
    if (zero) {
        memset(out, 0, d);
        return finite ? 0 : NAN;
    }
    const __m256 over = _mm256_set1_ps(127 / top);
    size_t j = 0;
    for (; j + 32 <= d; j += 32) {
        __m256i words[4];
        WOI_EACH(k, 4) words[k] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + j + 8 * k), over));
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(words[0], words[1]),
                                                 _mm256_packs_epi32(words[2], words[3])); /* in fours, out of order */
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256((void *)(out + j), _mm256_permutevar8x32_epi32(bytes, order));
    }
    for (; j < d; j += 8) {
        const __m256i words = _mm256_cvtps_epi32(_mm256_mul_ps(load_some(x + j, d - j), over));
        const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        int8_t bytes[8];
        _mm_storel_epi64((void *)bytes, _mm_packs_epi16(halves, halves));
        memcpy(out + j, bytes, d - j < 8 ? d - j : 8);
    }
    return top / 127;
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

/* Up to eight fours of a point, the rest 0. */
WOI_INLINE __m256i load_fours(const int8_t *x, size_t fours)
{
    if (fours >= 8) return _mm256_loadu_si256((const void *)x);
    return _mm256_maskload_epi32((const void *)x, first_lanes(fours));
}

/* 128 times the sum of x: what the 128 in each of the planes' bytes adds. */
WOI_INLINE int32_t excess_of(const int8_t *x, size_t fours)
{
    const __m256i flip = _mm256_set1_epi8(-128);
    __m256i sums = _mm256_setzero_si256(); /* of x + 128 */
    for (size_t j = 0; j < fours; j += 8) {
        const __m256i bytes = _mm256_xor_si256(load_fours(x + 4 * j, fours - j), flip);
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
    }
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const int32_t sum = _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two)));
    return 128 * (sum - 128 * 32 * (int32_t)((fours + 7) / 8));
}

/* Eight fours of a point, each byte as 16 high + low with both in -8..8. A plane's byte is at most 255, so a pair of
 * products with either is at most 4,080 and eight such pairs are added in 16 bits: two multiplications and two
 * additions make 32 products, and nothing is done to the planes. 98 Gop/s in L1 (Xeon of 2023); planes widened to 16
 * bits for sums in 32 take six instructions and give 36. */
typedef struct split {
    int32_t high[8], low[8];
} split;

WOI_INLINE split split_fours(__m256i x)
{
    const __m256i nibble = _mm256_set1_epi8(15), eight = _mm256_set1_epi8(8);
    const __m256i up = _mm256_and_si256(_mm256_srli_epi16(x, 3), _mm256_set1_epi8(1)); /* where low is negative */
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble), low = _mm256_and_si256(x, nibble);
    split s;
    _mm256_storeu_si256((void *)s.high, _mm256_add_epi8(_mm256_sub_epi8(_mm256_xor_si256(high, eight), eight), up));
    _mm256_storeu_si256((void *)s.low, _mm256_sub_epi8(_mm256_xor_si256(low, eight), eight));
    return s;
}

/* One point on 8 * vectors planes, from z on. */
WOI_INLINE void project_i8_block(size_t vectors, const int8_t *x, float x_scale, int32_t excess, const uint8_t *planes,
                                 const float *scales, const float *offsets, size_t fours, size_t stride, float *z)
{
    __m256i acc[4];
    WOI_EACH(v, vectors) acc[v] = _mm256_set1_epi32(-excess);
    for (size_t j = 0; j < fours; j += 8) {
        const split part = split_fours(load_fours(x + 4 * j, fours - j));
        const size_t here = fours - j < 8 ? fours - j : 8;
        __m256i high[4], low[4];
        WOI_EACH(v, vectors) high[v] = low[v] = _mm256_setzero_si256();
        for (size_t c = 0; c < here; c++) {
            const __m256i by_high = _mm256_set1_epi32(part.high[c]), by_low = _mm256_set1_epi32(part.low[c]);
            WOI_EACH(v, vectors) {
                const __m256i plane = _mm256_loadu_si256((const void *)(planes + ((j + c) * stride + 8 * v) * 4));
                high[v] = _mm256_add_epi16(high[v], _mm256_maddubs_epi16(plane, by_high));
                low[v] = _mm256_add_epi16(low[v], _mm256_maddubs_epi16(plane, by_low));
            }
        }
        WOI_EACH(v, vectors) {
            acc[v] = _mm256_add_epi32(acc[v], _mm256_madd_epi16(high[v], _mm256_set1_epi16(16)));
            acc[v] = _mm256_add_epi32(acc[v], _mm256_madd_epi16(low[v], _mm256_set1_epi16(1)));
        }
    }
    WOI_EACH(v, vectors) {
        const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + 8 * v), _mm256_set1_ps(x_scale));
        _mm256_storeu_ps(z + 8 * v,
                         _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[v]), scale, _mm256_loadu_ps(offsets + 8 * v)));
    }
}

static void project_i8_avx2(const int8_t *x, const float *x_scales, size_t n, const uint8_t *planes,
                            const float *scales, const float *offsets, size_t fours, size_t n_planes, size_t stride,
                            float *z)
{
    for (size_t i = 0; i < n; i++, x += 4 * fours, z += n_planes) {
        const int32_t excess = excess_of(x, fours);
#define BLOCK(vectors)                                        \
    for (; p + 8 * (vectors) <= n_planes; p += 8 * (vectors)) \
    project_i8_block(vectors, x, x_scales[i], excess, planes + 4 * p, scales + p, offsets + p, fours, stride, z + p)
        size_t p = 0;
        BLOCK(4);
        BLOCK(2);
#undef BLOCK
    }
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

/* ---- logarithm --------------------------------------------------------------------------------------------- */

WOI_INLINE __m256 log_ps(__m256 y)
{
    const __m256 one = _mm256_set1_ps(1);
    const __m256i bits = _mm256_castps_si256(y);
    const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(WOI_ROOT_HALF_BITS)), 23);
    const __m256 f = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
    const __m256 s = _mm256_div_ps(_mm256_sub_ps(f, one), _mm256_add_ps(f, one)), t = _mm256_mul_ps(s, s);
    __m256 p = _mm256_fmadd_ps(t, _mm256_set1_ps(2.0f / 9), _mm256_set1_ps(2.0f / 7));
    p = _mm256_fmadd_ps(t, p, _mm256_set1_ps(2.0f / 5));
    p = _mm256_fmadd_ps(t, p, _mm256_set1_ps(2.0f / 3));
    p = _mm256_fmadd_ps(t, p, _mm256_set1_ps(2));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(e), _mm256_set1_ps(WOI_LN2), _mm256_mul_ps(s, p));
}

static void scaled_log_avx2(float *x, size_t n, float over, float scale)
{
    for (size_t i = 0; i < n; i += 8) {
        const __m256i mask = first_lanes(n - i < 8 ? n - i : 8);
        const __m256 y = _mm256_fmadd_ps(_mm256_maskload_ps(x + i, mask), _mm256_set1_ps(over), _mm256_set1_ps(1));
        _mm256_maskstore_ps(x + i, mask, _mm256_mul_ps(log_ps(y), _mm256_set1_ps(scale)));
    }
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
