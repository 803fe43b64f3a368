/* The tile of NEON: 8 x 12 sums in 24 of the 32 registers, three for B's vectors, two for A's, whose lanes are
 * multiplied one by one. A tile with fewer rows or columns is computed whole, in a copy. */
#include "kernels/neon.h"

enum { ROWS = 8, COLUMNS = 12, VECTORS = COLUMNS / 4 };

static void multiply(const woi_tile *t)
{
    float32x4_t sums[ROWS][VECTORS];
    WOI_EACH(r, ROWS)
        WOI_EACH(v, VECTORS) sums[r][v] = vld1q_f32((t->start ? t->start : t->c + r * t->stride) + 4 * v);
    const float *a = t->a, *b = t->b;
    for (size_t p = 0; p < t->k; p++, a += t->a_step, b += COLUMNS) {
        const float32x4_t x[2] = {vld1q_f32(a), vld1q_f32(a + 4)};
        float32x4_t row[VECTORS];
        WOI_EACH(v, VECTORS) row[v] = vld1q_f32(b + 4 * v);
/* A lane's number is a constant of the instruction. */
#define ADD(r) \
    WOI_EACH(v, VECTORS) sums[r][v] = vfmaq_laneq_f32(sums[r][v], row[v], x[(r) / 4], (r) % 4)
        ADD(0);
        ADD(1);
        ADD(2);
        ADD(3);
        ADD(4);
        ADD(5);
        ADD(6);
        ADD(7);
#undef ADD
    }
    WOI_EACH(r, ROWS)
        WOI_EACH(v, VECTORS) vst1q_f32(t->c + r * t->stride + 4 * v, sums[r][v]);
}

static void tile_neon(const woi_tile *t)
{
    if (t->rows == ROWS && t->columns == COLUMNS) {
        multiply(t);
        return;
    }
    float copy[ROWS * COLUMNS] = {0};
    const size_t bytes = t->columns * sizeof *copy;
    woi_tile whole = *t;
    whole.start = NULL;
    whole.c = copy;
    whole.stride = COLUMNS;
    for (size_t r = 0; r < t->rows; r++) memcpy(copy + r * COLUMNS, t->start ? t->start : t->c + r * t->stride, bytes);
    multiply(&whole);
    for (size_t r = 0; r < t->rows; r++) memcpy(t->c + r * t->stride, copy + r * COLUMNS, bytes);
}

/* ---- Panels ------------------------------------------------------------------------------------------------ */

/* Four rows, four steps. */
WOI_INLINE void interleave_4x4(const float *rows, size_t stride, size_t width, float *out)
{
    float32x4_t x[4];
    float64x2_t pair[4];
    WOI_EACH(r, 4) x[r] = vld1q_f32(rows + r * stride);
    WOI_EACH(h, 2) {
        pair[2 * h] = vreinterpretq_f64_f32(vtrn1q_f32(x[2 * h], x[2 * h + 1]));     /* steps 0 and 2 of two rows */
        pair[2 * h + 1] = vreinterpretq_f64_f32(vtrn2q_f32(x[2 * h], x[2 * h + 1])); /* steps 1 and 3 */
    }
    WOI_EACH(s, 2) {
        vst1q_f32(out + s * width, vreinterpretq_f32_f64(vzip1q_f64(pair[s], pair[s + 2])));
        vst1q_f32(out + (s + 2) * width, vreinterpretq_f32_f64(vzip2q_f64(pair[s], pair[s + 2])));
    }
}

static void interleave_neon(const float *rows, size_t n, size_t k, size_t stride, size_t width, float *out)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        size_t p = 0;
        for (; p + 4 <= k; p += 4) interleave_4x4(rows + i * stride + p, stride, width, out + p * width + i);
        for (; p < k; p++)
            for (size_t r = i; r < i + 4; r++) out[p * width + r] = rows[r * stride + p];
    }
    for (; i < width; i++)
        for (size_t p = 0; p < k; p++) out[p * width + i] = i < n ? rows[i * stride + p] : 0;
}

/* ---- What the machine can do at most ----------------------------------------------------------------------- */

static float sum_f32_neon(const float *x, size_t n)
{
    float32x4_t sums[8];
    size_t i = 0;
    WOI_EACH(v, 8) sums[v] = vdupq_n_f32(0);
    for (; i + 32 <= n; i += 32)
        WOI_EACH(v, 8) sums[v] = vaddq_f32(sums[v], vld1q_f32(x + i + 4 * v));
    WOI_EACH(v, 7) sums[0] = vaddq_f32(sums[0], sums[v + 1]);
    float sum = vaddvq_f32(sums[0]);
    for (; i < n; i++) sum += x[i];
    return sum;
}

/* The empty asm keeps each step. */
static size_t multiply_adds_neon(size_t steps)
{
    enum { CHAINS = 16 };
    float32x4_t sums[CHAINS], x = vdupq_n_f32(0.5f);
    WOI_EACH(c, CHAINS) sums[c] = x;
    for (size_t s = 0; s < steps; s++) {
        WOI_EACH(c, CHAINS) sums[c] = vfmaq_f32(sums[c], x, x);
        __asm__ volatile("" : "+w"(x));
    }
    WOI_EACH(c, CHAINS) __asm__ volatile("" ::"w"(sums[c]));
    return steps * CHAINS * 4;
}

void woi_use_tile_neon(woi_kernels *table)
{
    WOI_USE(table, tile, neon);
    WOI_USE(table, interleave, neon);
    WOI_USE(table, sum_f32, neon);
    WOI_USE(table, multiply_adds, neon);
    table->tile_rows = ROWS;
    table->tile_columns = COLUMNS;
}
