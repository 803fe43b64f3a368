/* dot_i8, gather_i8 and project_i8 for NEON: the body of neon.c, which has widening multiplications, and of neondot.c,
 * which defines WOI_NEON_DOT and has the dot-product instructions. */
#ifndef WOI_KERNELS_NEON_I8_H
#define WOI_KERNELS_NEON_I8_H

#include "kernels/neon.h"

#if defined(WOI_NEON_DOT)
#define WOI_I8(kernel) kernel##_neondot
#else
#define WOI_I8(kernel) kernel##_neon
#endif

/* ---- dot and gather ---------------------------------------------------------------------------------------- */

/* Adds the 16 products, spread over the lanes. One product fits in 16 bits, two of -128 * -128 do not. */
WOI_INLINE int32x4_t add_products(int32x4_t acc, int8x16_t x, int8x16_t y)
{
#if defined(WOI_NEON_DOT)
    return vdotq_s32(acc, x, y);
#else
    acc = vpadalq_s16(acc, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
    return vpadalq_s16(acc, vmull_high_s8(x, y));
#endif
}

/* The last d % 16 bytes, the other lanes 0. */
WOI_INLINE int8x16_t load_i8_end(const int8_t *p, size_t d)
{
    static const int8_t keep[32] = {0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
                                    -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    if (d >= 16) return vandq_s8(vld1q_s8(p + d - 16), vld1q_s8(keep + d % 16)); /* from keep + n: the last n lanes */
    int8_t copy[16] = {0};
    memcpy(copy, p, d);
    return vld1q_s8(copy);
}

/* Rows alone (side 1), in four pieces, or all eight of a block side by side (side 8), a line of 64 bytes of each in
 * turn. */
WOI_INLINE void rows_i8(size_t side, const int8_t *q, float q_scale, woi_rows r, const float *scales, size_t d,
                        float *out)
{
    const size_t whole = d & ~(size_t)15;
    const int8x16_t q_end = load_i8_end(q, d);
    int32x4_t sums[WOI_BLOCK];
    float scale[WOI_BLOCK] = {0};
    WOI_EACH(k, WOI_BLOCK) sums[k] = vdupq_n_s32(0);
    for (size_t i = 0; i < r.n; i += WOI_BLOCK) {
        const size_t here = r.n - i < WOI_BLOCK ? r.n - i : WOI_BLOCK;
        if (side == 8) woi_prefetch(&r, i, scales);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const int8_t *row[WOI_BLOCK];
            int32x4_t acc[WOI_BLOCK];
            WOI_EACH(s, side) {
                row[s] = woi_row(side == 8, &r, i + b + s);
                scale[b + s] = scales[woi_row_id(side == 8, &r, i + b + s)];
            }
            WOI_EACH(k, WOI_BLOCK) acc[k] = vdupq_n_s32(0);
            size_t j = 0;
            for (; j + 64 <= d; j += 64) {
                int8x16_t x[4];
                WOI_EACH(k, 4) x[k] = vld1q_s8(q + j + 16 * k);
                WOI_EACH(s, side)
                    WOI_EACH(k, 4) {
                        const size_t a = side == 1 ? k : s;
                        acc[a] = add_products(acc[a], x[k], vld1q_s8(row[s] + j + 16 * k));
                    }
            }
            for (; j < whole; j += 16)
                WOI_EACH(s, side) acc[s] = add_products(acc[s], vld1q_s8(q + j), vld1q_s8(row[s] + j));
            if (whole < d)
                WOI_EACH(s, side) acc[s] = add_products(acc[s], q_end, load_i8_end(row[s], d));
            if (side == 1) acc[0] = vaddq_s32(vaddq_s32(acc[0], acc[1]), vaddq_s32(acc[2], acc[3]));
            WOI_EACH(s, side) sums[b + s] = acc[s];
        }
        /* In kernels.h's order of operations. */
        const float32x4_t low = vmulq_n_f32(vld1q_f32(scale), q_scale),
                          high = vmulq_n_f32(vld1q_f32(scale + 4), q_scale);
        woi_store_sums(out + i, here, vmulq_f32(vcvtq_f32_s32(woi_sums_s32(sums)), low),
                       vmulq_f32(vcvtq_f32_s32(woi_sums_s32(sums + 4)), high));
    }
}

static void WOI_I8(dot_i8)(const int8_t *q, float q_scale, const int8_t *rows, const float *scales, size_t n, size_t d,
                           size_t stride, float *out)
{
    rows_i8(1, q, q_scale, (woi_rows){rows, NULL, n, d, stride, 0}, scales, d, out);
}

static void WOI_I8(gather_i8)(const int8_t *q, float q_scale, const int8_t *rows, const float *scales,
                              const int32_t *ids, size_t n, size_t d, size_t stride, float *out)
{
    rows_i8(8, q, q_scale, (woi_rows){rows, ids, n, d, stride, 0}, scales, d, out);
}

/* ---- project ----------------------------------------------------------------------------------------------- */

/* The sums of four planes: a lane each, or two that are added at the end. MOST_POINTS of them on 16 planes fill 16
 * registers. */
#if defined(WOI_NEON_DOT)
enum { SUMS = 1, MOST_POINTS = 4 };
#else
enum { SUMS = 2, MOST_POINTS = 2 };
#endif
typedef struct four_planes {
    int32x4_t sum[SUMS];
} four_planes;

/* Adds four coordinates of four planes times those of a point, which `four` has four times. */
WOI_INLINE four_planes add_four(four_planes acc, int8x16_t planes, int8x16_t four)
{
#if defined(WOI_NEON_DOT)
    acc.sum[0] = vdotq_s32(acc.sum[0], planes, four);
#else
    acc.sum[0] = vpadalq_s16(acc.sum[0], vmull_s8(vget_low_s8(planes), vget_low_s8(four)));
    acc.sum[1] = vpadalq_s16(acc.sum[1], vmull_high_s8(planes, four));
#endif
    return acc;
}

WOI_INLINE int32x4_t total(four_planes acc)
{
    return SUMS == 1 ? acc.sum[0] : vpaddq_s32(acc.sum[0], acc.sum[SUMS - 1]);
}

/* `points` of them, points * vectors * SUMS <= 16, on 4 * vectors planes. Points side by side share the loads of the
 * planes, and the flip of the top bit, which takes the 128 off. */
WOI_INLINE void project_i8_block(size_t points, size_t vectors, const int8_t *x, const float *x_scales,
                                 const uint8_t *planes, const float *scales, const float *offsets, size_t fours,
                                 size_t n_planes, size_t stride, float *z)
{
    four_planes acc[16];
    WOI_EACH(a, points * vectors)
        WOI_EACH(s, SUMS) acc[a].sum[s] = vdupq_n_s32(0);
    for (size_t j = 0; j < fours; j++) {
        int8x16_t four[MOST_POINTS];
        WOI_EACH(i, points) {
            int32_t word;
            memcpy(&word, x + (i * fours + j) * 4, sizeof word);
            four[i] = vreinterpretq_s8_s32(vdupq_n_s32(word));
        }
        WOI_EACH(v, vectors) {
            const uint8x16_t stored = vld1q_u8(planes + j * stride * 4 + 16 * v);
            const int8x16_t plane = vreinterpretq_s8_u8(veorq_u8(stored, vdupq_n_u8(128)));
            WOI_EACH(i, points) acc[i * vectors + v] = add_four(acc[i * vectors + v], plane, four[i]);
        }
    }
    WOI_EACH(i, points)
        WOI_EACH(v, vectors) {
            const float32x4_t scale = vmulq_n_f32(vld1q_f32(scales + 4 * v), x_scales[i]);
            const float32x4_t sum = vcvtq_f32_s32(total(acc[i * vectors + v]));
            vst1q_f32(z + i * n_planes + 4 * v, vfmaq_f32(vld1q_f32(offsets + 4 * v), sum, scale));
        }
}

static void WOI_I8(project_i8)(const int8_t *x, const float *x_scales, size_t n, const uint8_t *planes,
                               const float *scales, const float *offsets, size_t fours, size_t n_planes, size_t stride,
                               float *z)
{
    size_t i = 0;
#define BLOCK(points, vectors)                                                                                         \
    for (; p + 4 * (vectors) <= n_planes; p += 4 * (vectors))                                                          \
    project_i8_block(points, vectors, x + i * 4 * fours, x_scales + i, planes + 4 * p, scales + p, offsets + p, fours, \
                     n_planes, stride, z + i * n_planes + p)
    for (; i + MOST_POINTS <= n; i += MOST_POINTS) {
        size_t p = 0;
        BLOCK(MOST_POINTS, 4);
    }
    for (; i < n; i++) {
        size_t p = 0;
        BLOCK(1, 8);
        BLOCK(1, 4);
    }
#undef BLOCK
}

/* ---- tile -------------------------------------------------------------------------------------------------- */

/* `rows` queries from `first` on, rows * 4 * SUMS <= 16, with a panel of classes. */
WOI_INLINE void tile_panel(size_t rows, const woi_tile_i8 *t, size_t first, size_t panel)
{
    four_planes acc[16];
    const uint8_t *b = t->b + panel * t->fours * 64;
    const int8_t *a = t->a + first * 4;
    WOI_EACH(s, rows * 4)
        WOI_EACH(h, SUMS) acc[s].sum[h] = vdupq_n_s32(0);
    for (size_t i = 0; i < t->fours; i++, a += 4 * WOI_I8_ROWS, b += 64) {
        int8x16_t classes[4];
        WOI_EACH(v, 4) classes[v] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(b + 16 * v), vdupq_n_u8(128)));
        WOI_EACH(r, rows) {
            int32_t word;
            memcpy(&word, a + 4 * r, sizeof word);
            const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(word));
            WOI_EACH(v, 4) acc[r * 4 + v] = add_four(acc[r * 4 + v], classes[v], four);
        }
    }
    const float *scales = t->b_scales + 16 * panel, *start = t->start + 16 * panel;
    WOI_EACH(r, rows)
        WOI_EACH(v, 4) {
            const float32x4_t scale = vmulq_n_f32(vld1q_f32(scales + 4 * v), t->a_scales[first + r]);
            const float32x4_t sum = vcvtq_f32_s32(total(acc[r * 4 + v]));
            vst1q_f32(t->c + (first + r) * t->stride + 16 * panel + 4 * v,
                      vfmaq_f32(vld1q_f32(start + 4 * v), sum, scale));
        }
}

static void WOI_I8(tile_i8)(const woi_tile_i8 *t)
{
    for (size_t panel = 0; panel < t->panels; panel++) {
        size_t r = 0;
        for (; r + MOST_POINTS <= t->rows; r += MOST_POINTS) tile_panel(MOST_POINTS, t, r, panel);
        for (; r < t->rows; r++) tile_panel(1, t, r, panel);
    }
}

#endif
