/* The kernels for NEON, which every 64-bit Arm processor has. A row's end is its last whole vector, read
 * again with the lanes already done cleared; rows shorter than a vector are copied. */
#include "kernels/neon.h"
#include "kernels/kernels.h"
#include "kernels/neon_i8.h"
#include "kernels/topk.h"

/* ---- dot and gather, f32 and bf16 -------------------------------------------------------------------------- */

/* 4 elements from `at` as floats. */
WOI_INLINE float32x4_t load_row(bool bf16, const void *row, size_t at)
{
    if (!bf16) return vld1q_f32((const float *)row + at);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)row + at), 16));
}

/* The last d % 4 elements, the other lanes 0. */
WOI_INLINE float32x4_t load_row_end(bool bf16, const void *row, size_t d)
{
    static const uint32_t keep[8] = {0, 0, 0, 0, ~0u, ~0u, ~0u, ~0u}; /* from keep + n: the last n lanes */
    if (d >= 4) {
        const float32x4_t last = load_row(bf16, row, d - 4);
        return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(last), vld1q_u32(keep + d % 4)));
    }
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
    float copy[4] = {0};
    memcpy(copy, row, d * size);
    return load_row(bf16, copy, 0);
}

/* Rows alone (side 1), in eight pieces, or all eight of a block side by side (side 8), a line of 64 bytes of each in
 * turn. The first 4 * head elements of the query stay in registers; d >= 4 * head. */
WOI_INLINE void rows_float(size_t side, size_t head, bool bf16, const float *q, woi_rows r, size_t d, float *out)
{
    const size_t pieces = side == 1 || bf16 ? 8 : 4, whole = d & ~(size_t)3;
    const float32x4_t x_end = load_row_end(false, q, d);
    float32x4_t x[16], sums[WOI_BLOCK];
    WOI_EACH(k, head) x[k] = vld1q_f32(q + 4 * k);
    WOI_EACH(k, WOI_BLOCK) sums[k] = vdupq_n_f32(0);
    for (size_t i = 0; i < r.n; i += WOI_BLOCK) {
        const size_t here = r.n - i < WOI_BLOCK ? r.n - i : WOI_BLOCK;
        if (side == 8) woi_prefetch(&r, i, NULL);
        for (size_t b = 0; b < (side == 1 ? here : 1); b++) {
            const void *row[WOI_BLOCK];
            float32x4_t acc[WOI_BLOCK];
            WOI_EACH(s, side) row[s] = woi_row(side == 8, &r, i + b + s);
            WOI_EACH(k, WOI_BLOCK) acc[k] = vdupq_n_f32(0);
            WOI_EACH(k, head) acc[k % 8] = vfmaq_f32(acc[k % 8], x[k], load_row(bf16, row[0], 4 * k));
            size_t j = 4 * head;
            for (; j + 4 * pieces <= d; j += 4 * pieces)
                WOI_EACH(s, side)
                    WOI_EACH(k, pieces) {
                        const size_t a = side == 1 ? k : s, at = j + 4 * k;
                        acc[a] = vfmaq_f32(acc[a], vld1q_f32(q + at), load_row(bf16, row[s], at));
                    }
            for (; j < whole; j += 4)
                WOI_EACH(s, side) acc[s] = vfmaq_f32(acc[s], vld1q_f32(q + j), load_row(bf16, row[s], j));
            if (whole < d)
                WOI_EACH(s, side) acc[s] = vfmaq_f32(acc[s], x_end, load_row_end(bf16, row[s], d));
            if (side == 1) {
                WOI_EACH(k, 4) acc[k] = vaddq_f32(acc[k], acc[k + 4]);
                acc[0] = vaddq_f32(vaddq_f32(acc[0], acc[1]), vaddq_f32(acc[2], acc[3]));
            }
            WOI_EACH(s, side) sums[b + s] = acc[s];
        }
        woi_store_sums(out + i, here, woi_sums_f32(sums), woi_sums_f32(sums + 4));
    }
}

WOI_INLINE void dot_float(bool bf16, const float *q, const void *rows, size_t n, size_t d, size_t stride, float *out)
{
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
    const woi_rows r = {rows, NULL, n, d * size, stride * size, 0};
    if (d >= 64)
        rows_float(1, 16, bf16, q, r, d, out);
    else
        rows_float(1, 0, bf16, q, r, d, out);
}

static void dot_f32_neon(const float *q, const float *rows, size_t n, size_t d, size_t stride, float *out)
{
    dot_float(false, q, rows, n, d, stride, out);
}

static void dot_bf16_neon(const float *q, const uint16_t *rows, size_t n, size_t d, size_t stride, float *out)
{
    dot_float(true, q, rows, n, d, stride, out);
}

static void gather_f32_neon(const float *q, const float *rows, const int32_t *ids, size_t n, size_t d, size_t stride,
                            float *out)
{
    rows_float(8, 0, false, q, (woi_rows){rows, ids, n, 4 * d, 4 * stride, 0}, d, out);
}

static void gather_bf16_neon(const float *q, const uint16_t *rows, const int32_t *ids, size_t n, size_t d,
                             size_t stride, float *out)
{
    rows_float(8, 0, true, q, (woi_rows){rows, ids, n, 2 * d, 2 * stride, 0}, d, out);
}

/* ---- quantise ---------------------------------------------------------------------------------------------- */

static float quantise_neon(const float *x, size_t d, int8_t *out)
{
    /* Without their signs, floats have the order of their bits as integers, with what is not finite at the top. */
    const uint32x4_t no_sign = vdupq_n_u32(0x7fffffff);
    uint32x4_t all = vandq_u32(no_sign, vreinterpretq_u32_f32(load_row_end(false, x, d)));
    for (size_t j = 0; j + 4 <= d; j += 4)
        all = vmaxq_u32(all, vandq_u32(no_sign, vreinterpretq_u32_f32(vld1q_f32(x + j))));
    const uint32_t bits = vmaxvq_u32(all);
    float most;
    memcpy(&most, &bits, sizeof most);
    const bool finite = bits < 0x7f800000, zero = !finite || most < 1e-30F;
    const float over = zero ? 0 : 127 / most;
    size_t j = 0;
    for (; !zero && j + 8 <= d; j += 8) {
        const int32x4_t low = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + j), over));
        const int32x4_t high = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + j + 4), over));
        vst1_s8(out + j, vqmovn_s16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high))));
    }
    for (; j < d; j++) out[j] = zero ? 0 : (int8_t)lrintf(x[j] * over);
    return !finite ? NAN : zero ? 0 : most / 127;
}

/* ---- project ----------------------------------------------------------------------------------------------- */

/* 4 * vectors planes; coordinates go in turn to `chains` accumulators each, so that vectors * chains = 16 of them hide
 * the latency of the multiply-add. */
WOI_INLINE void project_block(size_t vectors, size_t chains, const float *x, const float *planes, const float *offsets,
                              size_t d, size_t n_planes, float *z, uint16_t *bits)
{
    static const uint32_t place[4] = {1, 2, 4, 8};
    float32x4_t acc[16];
    WOI_EACH(a, vectors * chains) acc[a] = a < vectors ? vld1q_f32(offsets + 4 * a) : vdupq_n_f32(0);
    size_t j = 0;
    for (; j + chains <= d; j += chains)
        WOI_EACH(c, chains) {
            const float *row = planes + (j + c) * n_planes;
            WOI_EACH(v, vectors)
                acc[c * vectors + v] = vfmaq_n_f32(acc[c * vectors + v], vld1q_f32(row + 4 * v), x[j + c]);
        }
    for (; j < d; j++)
        WOI_EACH(v, vectors) acc[v] = vfmaq_n_f32(acc[v], vld1q_f32(planes + j * n_planes + 4 * v), x[j]);
    uint32_t positive[16];
    WOI_EACH(v, vectors) {
        WOI_EACH(c, chains - 1) acc[v] = vaddq_f32(acc[v], acc[(c + 1) * vectors + v]);
        vst1q_f32(z + 4 * v, acc[v]);
        positive[v] = vaddvq_u32(vandq_u32(vcgtzq_f32(acc[v]), vld1q_u32(place)));
    }
    WOI_EACH(b, vectors / 4)
        bits[b] = (uint16_t)(positive[4 * b] | positive[4 * b + 1] << 4 | positive[4 * b + 2] << 8 |
                             positive[4 * b + 3] << 12);
}

static void project_neon(const float *x, size_t n, const float *planes, const float *offsets, size_t d, size_t n_planes,
                         float *z, uint16_t *bits)
{
    for (size_t i = 0; i < n; i++, x += d, z += n_planes, bits += n_planes / 16) {
        size_t p = 0;
        for (; p + 64 <= n_planes; p += 64)
            project_block(16, 1, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
        for (; p < n_planes; p += 16)
            project_block(4, 4, x, planes + p, offsets + p, d, n_planes, z + p, bits + p / 16);
    }
}

/* ---- top-k, maximum ---------------------------------------------------------------------------------------- */

/* Which of 16 scores reach the bar: four bits each, the first lowest. NaN does not. */
WOI_INLINE uint64_t hits_of_16(const float *scores, float bar)
{
    uint16x8_t half[2];
    WOI_EACH(h, 2) {
        const uint32x4_t low = vcgeq_f32(vld1q_f32(scores + 8 * h), vdupq_n_f32(bar));
        const uint32x4_t high = vcgeq_f32(vld1q_f32(scores + 8 * h + 4), vdupq_n_f32(bar));
        half[h] = vcombine_u16(vmovn_u32(low), vmovn_u32(high));
    }
    const uint8x16_t bytes = vcombine_u8(vmovn_u16(half[0]), vmovn_u16(half[1]));
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(bytes), 4)), 0);
}

/* The place of the first hit, which is taken out. */
WOI_INLINE size_t next_hit(uint64_t *hits)
{
    const int bit = __builtin_ctzll(*hits);
    *hits &= ~((uint64_t)15 << bit);
    return (size_t)bit / 4;
}

static void topk_scan_neon(const float *scores, size_t n, int32_t first_id, woi_topk *top)
{
    size_t i = 0;
    for (; i < n && top->n < top->k; i++) woi_topk_push(top, scores[i], first_id + (int32_t)i);
    if (i == n) return;
    float bar = woi_topk_bar(top, first_id + (int64_t)i);
    for (; i + 16 <= n; i += 16) {
        uint64_t hits = hits_of_16(scores + i, bar);
        if (!hits) continue;
        while (hits) {
            const size_t at = i + next_hit(&hits);
            woi_topk_push(top, scores[at], first_id + (int32_t)at);
        }
        bar = woi_topk_bar(top, first_id + (int64_t)i + 16);
    }
    for (; i < n; i++) woi_topk_push(top, scores[i], first_id + (int32_t)i);
}

static size_t sift_neon(const float *scores, const int32_t *ids, int32_t first_id, size_t n, float bar, float *kept,
                        int32_t *kept_ids)
{
    size_t found = 0, i = 0;
#define KEEP(at)                                                              \
    do {                                                                      \
        if (kept) kept[found] = scores[at];                                   \
        if (kept) kept_ids[found] = ids ? ids[at] : first_id + (int32_t)(at); \
        found++;                                                              \
    } while (0)
    for (; i + 16 <= n; i += 16)
        for (uint64_t hits = hits_of_16(scores + i, bar); hits;) {
            const size_t at = i + next_hit(&hits);
            KEEP(at);
        }
    for (; i < n; i++)
        if (scores[i] >= bar) KEEP(i);
#undef KEEP
    return found;
}

/* The heap of woi_topk_pick behind a filter. Ids come in any order, so that whatever equals the worst is offered. */
static size_t pick_neon(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    woi_topk top = {k, 0, best, best_ids};
    size_t i = 0;
    if (k > 0) {
        for (; i < n && top.n < k; i++) woi_topk_push(&top, scores[i], ids ? ids[i] : (int32_t)i);
        for (; i + 16 <= n; i += 16)
            for (uint64_t hits = hits_of_16(scores + i, best[0]); hits;) {
                const size_t at = i + next_hit(&hits);
                woi_topk_push(&top, scores[at], ids ? ids[at] : (int32_t)at);
            }
        for (; i < n; i++) woi_topk_push(&top, scores[i], ids ? ids[i] : (int32_t)i);
    }
    woi_topk_finish(&top);
    return top.n;
}

static float max_f32_neon(const float *x, size_t n)
{
    float32x4_t most[4];
    WOI_EACH(k, 4) most[k] = vdupq_n_f32(-INFINITY);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        WOI_EACH(k, 4) {
            const float32x4_t here = vld1q_f32(x + i + 4 * k);
            most[k] = vbslq_f32(vcgtq_f32(here, most[k]), here, most[k]); /* NaN is not greater */
        }
    float best = vmaxvq_f32(vmaxq_f32(vmaxq_f32(most[0], most[1]), vmaxq_f32(most[2], most[3])));
    for (; i < n; i++)
        if (x[i] > best) best = x[i];
    return best;
}

/* ---- exponential ------------------------------------------------------------------------------------------- */

/* 2^k for -126 <= k <= 127. */
WOI_INLINE float32x4_t power_of_two(int32x4_t k)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k, vdupq_n_s32(127)), 23));
}

WOI_INLINE float32x4_t exp_f32(float32x4_t t)
{
    t = vmaxq_f32(vdupq_n_f32(WOI_EXP_LOW), vminq_f32(vdupq_n_f32(WOI_EXP_HIGH), t)); /* NaN goes through */
    const float32x4_t k = vrndnq_f32(vmulq_n_f32(t, WOI_LOG2_E));
    float32x4_t r = vfmsq_n_f32(t, k, WOI_LN2_HIGH);
    r = vfmsq_n_f32(r, k, WOI_LN2_LOW);
    float32x4_t p = vfmaq_n_f32(vdupq_n_f32(WOI_EXP_C5), r, WOI_EXP_C6);
    p = vfmaq_f32(vdupq_n_f32(WOI_EXP_C4), r, p);
    p = vfmaq_f32(vdupq_n_f32(WOI_EXP_C3), r, p);
    p = vfmaq_f32(vdupq_n_f32(WOI_EXP_C2), r, p);
    p = vfmaq_f32(vdupq_n_f32(1), r, p);
    p = vfmaq_f32(vdupq_n_f32(1), r, p);
    /* k goes from -150 to 128, beyond the exponents of normal floats: two factors, of which only the last rounds. */
    const int32x4_t both = vcvtnq_s32_f32(k), half = vshrq_n_s32(both, 1);
    return vmulq_f32(vmulq_f32(p, power_of_two(half)), power_of_two(vsubq_s32(both, half)));
}

static double exp_sum_neon(const float *x, size_t n, float shift, float *out)
{
    const float32x4_t by = vdupq_n_f32(shift);
    double sum = 0;
    for (size_t i = 0; i < n;) {
        const size_t stop = n - i < WOI_EXP_CHUNK ? n : i + WOI_EXP_CHUNK;
        float32x4_t acc[4];
        WOI_EACH(k, 4) acc[k] = vdupq_n_f32(0);
        for (; i + 16 <= stop; i += 16)
            WOI_EACH(k, 4) {
                const float32x4_t e = exp_f32(vsubq_f32(vld1q_f32(x + i + 4 * k), by));
                if (out) vst1q_f32(out + i + 4 * k, e);
                acc[k] = vaddq_f32(acc[k], e);
            }
        for (; i < stop; i += 4) {
            const size_t here = stop - i < 4 ? stop - i : 4;
            float lane[4] = {0}, kept[4] = {0};
            memcpy(lane, x + i, here * sizeof *lane);
            vst1q_f32(lane, exp_f32(vsubq_f32(vld1q_f32(lane), by)));
            if (out) memcpy(out + i, lane, here * sizeof *lane);
            memcpy(kept, lane, here * sizeof *lane);
            acc[0] = vaddq_f32(acc[0], vld1q_f32(kept));
        }
        const float32x4_t all = vaddq_f32(vaddq_f32(acc[0], acc[1]), vaddq_f32(acc[2], acc[3]));
        sum += vaddvq_f64(vaddq_f64(vcvt_f64_f32(vget_low_f32(all)), vcvt_high_f64_f32(all)));
    }
    return sum;
}

/* ---- logarithm --------------------------------------------------------------------------------------------- */

WOI_INLINE float32x4_t log_f32(float32x4_t y)
{
    const float32x4_t one = vdupq_n_f32(1);
    const int32x4_t bits = vreinterpretq_s32_f32(y);
    const int32x4_t e = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(WOI_ROOT_HALF_BITS)), 23);
    const float32x4_t f = vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(e, 23)));
    const float32x4_t s = vdivq_f32(vsubq_f32(f, one), vaddq_f32(f, one)), t = vmulq_f32(s, s);
    float32x4_t p = vfmaq_n_f32(vdupq_n_f32(2.0f / 7), t, 2.0f / 9);
    p = vfmaq_f32(vdupq_n_f32(2.0f / 5), t, p);
    p = vfmaq_f32(vdupq_n_f32(2.0f / 3), t, p);
    p = vfmaq_f32(vdupq_n_f32(2), t, p);
    return vfmaq_n_f32(vmulq_f32(s, p), vcvtq_f32_s32(e), WOI_LN2);
}

static void scaled_log_neon(float *x, size_t n, float over, float scale)
{
    for (size_t i = 0; i < n; i += 4) {
        const size_t here = n - i < 4 ? n - i : 4;
        float lane[4] = {0};
        memcpy(lane, x + i, here * sizeof *lane);
        const float32x4_t y = vfmaq_n_f32(vdupq_n_f32(1), vld1q_f32(lane), over);
        vst1q_f32(lane, vmulq_n_f32(log_f32(y), scale));
        memcpy(x + i, lane, here * sizeof *lane);
    }
}

/* ---- Adam -------------------------------------------------------------------------------------------------- */

WOI_INLINE void adam_4(float *w, float *m, float *v, const float *g, const woi_adam_step *step)
{
    const float32x4_t gi = vld1q_f32(g);
    const float32x4_t mi = vfmaq_n_f32(vmulq_n_f32(gi, 1 - step->beta1), vld1q_f32(m), step->beta1);
    const float32x4_t vi = vfmaq_n_f32(vmulq_n_f32(vmulq_f32(gi, gi), 1 - step->beta2), vld1q_f32(v), step->beta2);
    const float32x4_t below = vfmaq_n_f32(vdupq_n_f32(step->epsilon), vsqrtq_f32(vi), step->root_scale);
    vst1q_f32(m, mi);
    vst1q_f32(v, vi);
    vst1q_f32(w, vsubq_f32(vld1q_f32(w), vdivq_f32(vmulq_n_f32(mi, step->rate), below)));
}

static void adam_neon(float *w, float *m, float *v, const float *g, size_t n, const woi_adam_step *step)
{
    const woi_adam_step s = *step; /* a copy, which the stores to w, m and v cannot alias */
    size_t i = 0;
    for (; i + 4 <= n; i += 4) adam_4(w + i, m + i, v + i, g + i, &s);
    if (i == n) return;
    float end[4][4] = {{0}};
    const size_t bytes = (n - i) * sizeof *w;
    memcpy(end[0], w + i, bytes);
    memcpy(end[1], m + i, bytes);
    memcpy(end[2], v + i, bytes);
    memcpy(end[3], g + i, bytes);
    adam_4(end[0], end[1], end[2], end[3], &s);
    memcpy(w + i, end[0], bytes);
    memcpy(m + i, end[1], bytes);
    memcpy(v + i, end[2], bytes);
}

void woi_kernels_use_neon(woi_kernels *table)
{
    WOI_USE(table, dot_f32, neon);
    WOI_USE(table, dot_bf16, neon);
    WOI_USE(table, dot_i8, neon);
    WOI_USE(table, gather_f32, neon);
    WOI_USE(table, gather_bf16, neon);
    WOI_USE(table, gather_i8, neon);
    WOI_USE(table, quantise, neon);
    WOI_USE(table, project, neon);
    WOI_USE(table, project_i8, neon);
    WOI_USE(table, tile_i8, neon);
    woi_use_tile_neon(table);
    WOI_USE(table, sift, neon);
    WOI_USE(table, topk_scan, neon);
    WOI_USE(table, pick, neon);
    WOI_USE(table, max_f32, neon);
    WOI_USE(table, exp_sum, neon);
    WOI_USE(table, scaled_log, neon);
    WOI_USE(table, adam, neon);
}
