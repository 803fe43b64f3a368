/* The i8 kernels for AVX-512 with VNNI: 64 products a step.
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products to each 32-bit lane. A row with its top bits
 * flipped is row + 128 as unsigned, and sum q (row + 128) - 128 sum q = sum q row. Every row therefore starts from
 * -128 sum q, lane by lane; what overflows on the way is modulo 2^32 and comes back. */
#include "kernels/kernels.h"
#include "kernels/x86.h"

#include <string.h>

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

/* What the 128 that the planes have already adds to a sum: 128 times the sum of x. */
WOI_INLINE __m512i excess_of(const int8_t *x, size_t fours)
{
    __m512i sum = _mm512_setzero_si512();
    for (size_t j = 0; j < 4 * fours; j += 64) {
        const size_t rest = 4 * fours - j;
        const __mmask64 mask = rest < 64 ? (1ull << rest) - 1 : ~0ull;
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8((char)128), _mm512_maskz_loadu_epi8(mask, x + j));
    }
    return _mm512_set1_epi32(_mm512_reduce_add_epi32(sum));
}

/* One four of `points` points on 16 * vectors planes. */
WOI_INLINE void add_four(size_t points, size_t vectors, const int8_t *x, size_t fours, const uint8_t *planes,
                         __m512i acc[2][8], size_t first)
{
    __m512i point[2];
    WOI_EACH(i, points) {
        int32_t four;
        memcpy(&four, x + i * 4 * fours, sizeof four);
        point[i] = _mm512_set1_epi32(four);
    }
    WOI_EACH(v, vectors) {
        const __m512i plane = _mm512_loadu_si512((const void *)(planes + 64 * v));
        WOI_EACH(i, points) acc[i][first + v] = _mm512_dpbusd_epi32(acc[i][first + v], plane, point[i]);
    }
}

/* `points` of them on 16 * vectors planes. Fours go in turn to `chains` accumulators, so that points * vectors * chains
 * >= 4 of them hide the latency. Two points share the loads of the planes. */
WOI_INLINE void project_i8_block(size_t points, size_t vectors, size_t chains, const int8_t *x, const float *x_scales,
                                 const __m512i *excess, const uint8_t *planes, const float *scales,
                                 const float *offsets, size_t fours, size_t n_planes, size_t stride, float *z)
{
    __m512i acc[2][8];
    WOI_EACH(i, points)
        WOI_EACH(a, vectors * chains) acc[i][a] = _mm512_setzero_si512();
    size_t j = 0;
    for (; j + chains <= fours; j += chains)
        WOI_EACH(c, chains)
            add_four(points, vectors, x + (j + c) * 4, fours, planes + (j + c) * stride * 4, acc, c * vectors);
    for (; j < fours; j++) add_four(points, vectors, x + j * 4, fours, planes + j * stride * 4, acc, 0);
    WOI_EACH(i, points)
        WOI_EACH(v, vectors) {
            WOI_EACH(c, chains - 1) acc[i][v] = _mm512_add_epi32(acc[i][v], acc[i][(c + 1) * vectors + v]);
            const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + 16 * v), _mm512_set1_ps(x_scales[i]));
            const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(acc[i][v], excess[i]));
            _mm512_storeu_ps(z + i * n_planes + 16 * v, _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(offsets + 16 * v)));
        }
}

WOI_INLINE void project_i8_points(size_t points, const int8_t *x, const float *x_scales, const uint8_t *planes,
                                  const float *scales, const float *offsets, size_t fours, size_t n_planes,
                                  size_t stride, float *z)
{
    __m512i excess[2];
    WOI_EACH(i, points) excess[i] = excess_of(x + i * 4 * fours, fours);
#define BLOCK(vectors, chains)                                                                                     \
    for (; p + 16 * (vectors) <= n_planes; p += 16 * (vectors))                                                    \
    project_i8_block(points, vectors, chains, x, x_scales, excess, planes + 4 * p, scales + p, offsets + p, fours, \
                     n_planes, stride, z + p)
    size_t p = 0;
    BLOCK(8, 1);
    BLOCK(6, 1);
    BLOCK(4, 2);
    BLOCK(3, 2);
    BLOCK(2, 4);
    BLOCK(1, 8);
#undef BLOCK
}

static void project_i8_avx512vnni(const int8_t *x, const float *x_scales, size_t n, const uint8_t *planes,
                                  const float *scales, const float *offsets, size_t fours, size_t n_planes,
                                  size_t stride, float *z)
{
    size_t i = 0;
    for (; i + 2 <= n; i += 2)
        project_i8_points(2, x + i * 4 * fours, x_scales + i, planes, scales, offsets, fours, n_planes, stride,
                          z + i * n_planes);
    for (; i < n; i++)
        project_i8_points(1, x + i * 4 * fours, x_scales + i, planes, scales, offsets, fours, n_planes, stride,
                          z + i * n_planes);
}

/* ---- tile -------------------------------------------------------------------------------------------------- */

/* The sums of 16 classes with query r, scaled, and where they belong. They began at -128 times the sum of the query. */
WOI_INLINE void store_scores(const woi_tile_i8 *t, size_t r, size_t panel, __m512i sums)
{
    const size_t at = WOI_I8_COLUMNS * panel;
    const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(t->a_scales[r]), _mm512_loadu_ps(t->b_scales + at));
    _mm512_storeu_ps(t->c + r * t->stride + at,
                     _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, _mm512_loadu_ps(t->start + at)));
}

WOI_INLINE __m512i spread_four(const int8_t *a)
{
    int32_t four;
    memcpy(&four, a, sizeof four);
    return _mm512_set1_epi32(four);
}

/* `rows` queries with `vectors` panels of classes side by side, from `panel` on: 8 x 3 sums fill 24 of 32 registers. */
WOI_INLINE void tile_panels(size_t rows, size_t vectors, const woi_tile_i8 *t, size_t panel)
{
    enum { AHEAD = 512 }; /* bytes */
    const size_t apart = t->fours * 64;
    const uint8_t *b = t->b + panel * apart;
    const int8_t *a = t->a;
    __m512i sums[8][3];
    WOI_EACH(r, rows)
        WOI_EACH(v, vectors) sums[r][v] = _mm512_set1_epi32(r < t->rows ? -128 * t->a_sums[r] : 0);
    for (size_t i = 0; i < t->fours; i++, a += 4 * WOI_I8_ROWS, b += 64) {
        __m512i classes[3];
        WOI_EACH(v, vectors) {
            classes[v] = _mm512_loadu_si512((const void *)(b + v * apart));
            _mm_prefetch((const char *)((uintptr_t)b + v * apart + AHEAD), _MM_HINT_T0);
        }
        WOI_EACH(r, rows) {
            const __m512i x = spread_four(a + 4 * r);
            WOI_EACH(v, vectors) sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], classes[v], x);
        }
    }
    WOI_EACH(r, rows)
        if (r < t->rows)
            WOI_EACH(v, vectors) store_scores(t, r, panel + v, sums[r][v]);
}

/* One query reads memory in its order, as dot_i8 does, fours in turn to four sums. */
WOI_INLINE void tile_one(const woi_tile_i8 *t)
{
    enum { CHAINS = 4 };
    const uint8_t *b = t->b;
    for (size_t panel = 0; panel < t->panels; panel++) {
        __m512i sums[CHAINS];
        WOI_EACH(c, CHAINS) sums[c] = c ? _mm512_setzero_si512() : _mm512_set1_epi32(-128 * t->a_sums[0]);
        size_t i = 0;
        for (; i + CHAINS <= t->fours; i += CHAINS, b += 64 * CHAINS) {
            woi_ask((const char *)((uintptr_t)b + WOI_NEXT_PAGES));
            WOI_EACH(c, CHAINS)
                sums[c] = _mm512_dpbusd_epi32(sums[c], _mm512_loadu_si512((const void *)(b + 64 * c)),
                                              spread_four(t->a + (i + c) * 4 * WOI_I8_ROWS));
        }
        for (; i < t->fours; i++, b += 64)
            sums[0] = _mm512_dpbusd_epi32(sums[0], _mm512_loadu_si512((const void *)b),
                                          spread_four(t->a + i * 4 * WOI_I8_ROWS));
        const __m512i all = _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
        store_scores(t, 0, panel, all);
    }
}

static void tile_i8_avx512vnni(const woi_tile_i8 *t)
{
#define BLOCKS(rows)                                                   \
    do {                                                               \
        size_t p = 0;                                                  \
        for (; p + 3 <= t->panels; p += 3) tile_panels(rows, 3, t, p); \
        for (; p < t->panels; p++) tile_panels(rows, 1, t, p);         \
    } while (0)
    if (t->rows == 1)
        tile_one(t);
    else if (t->rows == 2)
        BLOCKS(2);
    else if (t->rows <= 4)
        BLOCKS(4);
    else
        BLOCKS(8);
#undef BLOCKS
}

void woi_kernels_use_avx512vnni(woi_kernels *table)
{
    WOI_USE(table, dot_i8, avx512vnni);
    WOI_USE(table, gather_i8, avx512vnni);
    WOI_USE(table, project_i8, avx512vnni);
    WOI_USE(table, tile_i8, avx512vnni);
}
