/* The reference kernels: plain C, one simple loop each. They define what the others compute (kernels.h says it in
 * words) and run on every machine. Speed is left to the files of the instruction sets. */
#include "base/bf16.h"
#include "kernels/kernels.h"
#include "kernels/topk.h"

#include <math.h>
#include <string.h>

static float row_f32(const float *q, const float *row, size_t d)
{
    float sum = 0;
    for (size_t j = 0; j < d; j++) sum += q[j] * row[j];
    return sum;
}

static float row_bf16(const float *q, const uint16_t *row, size_t d)
{
    float sum = 0;
    for (size_t j = 0; j < d; j++) sum += q[j] * woi_bf16_to_f32(row[j]);
    return sum;
}

static float row_i8(const int8_t *q, const int8_t *row, size_t d)
{
    int32_t sum = 0;
    for (size_t j = 0; j < d; j++) sum += q[j] * row[j];
    return (float)sum;
}

static void dot_f32_ref(const float *q, const float *rows, size_t n, size_t d, size_t stride, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = row_f32(q, rows + i * stride, d);
}

static void dot_bf16_ref(const float *q, const uint16_t *rows, size_t n, size_t d, size_t stride, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = row_bf16(q, rows + i * stride, d);
}

static void dot_i8_ref(const int8_t *q, float q_scale, const int8_t *rows, const float *scales, size_t n, size_t d,
                       size_t stride, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = row_i8(q, rows + i * stride, d) * (scales[i] * q_scale);
}

static void gather_f32_ref(const float *q, const float *rows, const int32_t *ids, size_t n, size_t d, size_t stride,
                           float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = row_f32(q, rows + (size_t)ids[i] * stride, d);
}

static void gather_bf16_ref(const float *q, const uint16_t *rows, const int32_t *ids, size_t n, size_t d, size_t stride,
                            float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = row_bf16(q, rows + (size_t)ids[i] * stride, d);
}

static void gather_i8_ref(const int8_t *q, float q_scale, const int8_t *rows, const float *scales, const int32_t *ids,
                          size_t n, size_t d, size_t stride, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = row_i8(q, rows + (size_t)ids[i] * stride, d) * (scales[ids[i]] * q_scale);
}

static float quantise_ref(const float *x, size_t d, int8_t *out)
{
    float most = 0;
    bool finite = true;
    for (size_t j = 0; j < d; j++) {
        most = fmaxf(most, fabsf(x[j]));
        finite &= isfinite(x[j]) != 0;
    }
    const bool zero = !finite || most < 1e-30F;
    for (size_t j = 0; j < d; j++) out[j] = zero ? 0 : (int8_t)lrintf(x[j] * (127 / most));
    return !finite ? NAN : zero ? 0 : most / 127;
}

static void project_ref(const float *x, size_t n, const float *planes, const float *offsets, size_t d, size_t n_planes,
                        float *z, uint16_t *bits)
{
    for (size_t i = 0; i < n; i++, x += d, z += n_planes, bits += n_planes / 16) {
        memcpy(z, offsets, n_planes * sizeof *z);
        for (size_t j = 0; j < d; j++)
            for (size_t p = 0; p < n_planes; p++) z[p] += x[j] * planes[j * n_planes + p];
        for (size_t b = 0; b < n_planes / 16; b++) {
            unsigned word = 0;
            for (unsigned p = 0; p < 16; p++) word |= (unsigned)(z[16 * b + p] > 0) << p;
            bits[b] = (uint16_t)word;
        }
    }
}

static void project_i8_ref(const int8_t *x, const float *x_scales, size_t n, const uint8_t *planes, const float *scales,
                           const float *offsets, size_t fours, size_t n_planes, size_t stride, float *z)
{
    for (size_t i = 0; i < n; i++, x += 4 * fours, z += n_planes)
        for (size_t p = 0; p < n_planes; p++) {
            int32_t sum = 0;
            for (size_t j = 0; j < 4 * fours; j++) sum += x[j] * ((int)planes[(j / 4 * stride + p) * 4 + j % 4] - 128);
            z[p] = fmaf((float)sum, x_scales[i] * scales[p], offsets[p]);
        }
}

enum { TILE_ROWS = 4, TILE_COLUMNS = 8 };

/* Sums in an array of fixed size, which a compiler keeps in whatever vectors it has. */
static void tile_ref(const woi_tile *t)
{
    float sums[TILE_ROWS][TILE_COLUMNS] = {{0}};
    for (size_t r = 0; r < t->rows; r++)
        memcpy(sums[r], t->start ? t->start : t->c + r * t->stride, t->columns * sizeof(float));
    for (size_t p = 0; p < t->k; p++)
        for (size_t r = 0; r < TILE_ROWS; r++)
            for (size_t j = 0; j < TILE_COLUMNS; j++)
                sums[r][j] += t->a[p * t->a_step + r] * t->b[p * TILE_COLUMNS + j];
    for (size_t r = 0; r < t->rows; r++) memcpy(t->c + r * t->stride, sums[r], t->columns * sizeof(float));
}

static void interleave_ref(const float *rows, size_t n, size_t k, size_t stride, size_t width, float *out)
{
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i < width; i++) out[p * width + i] = i < n ? rows[i * stride + p] : 0;
}

static void tile_i8_ref(const woi_tile_i8 *t)
{
    for (size_t r = 0; r < t->rows; r++)
        for (size_t j = 0; j < WOI_I8_COLUMNS * t->panels; j++) {
            const uint8_t *b = t->b + (j / WOI_I8_COLUMNS * t->fours * WOI_I8_COLUMNS + j % WOI_I8_COLUMNS) * 4;
            int32_t sum = 0;
            for (size_t i = 0; i < t->fours; i++)
                for (size_t x = 0; x < 4; x++)
                    sum += t->a[(WOI_I8_ROWS * i + r) * 4 + x] * ((int)b[i * WOI_I8_COLUMNS * 4 + x] - 128);
            t->c[r * t->stride + j] = fmaf((float)sum, t->a_scales[r] * t->b_scales[j], t->start[j]);
        }
}

static size_t sift_ref(const float *scores, const int32_t *ids, int32_t first_id, size_t n, float bar, float *kept,
                       int32_t *kept_ids)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(scores[i] >= bar)) continue;
        if (kept) {
            kept[found] = scores[i];
            kept_ids[found] = ids ? ids[i] : first_id + (int32_t)i;
        }
        found++;
    }
    return found;
}

static size_t pick_ref(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    return woi_topk_pick(scores, ids, n, k, best, best_ids);
}

static void topk_scan_ref(const float *scores, size_t n, int32_t first_id, woi_topk *top)
{
    for (size_t i = 0; i < n; i++) woi_topk_push(top, scores[i], first_id + (int32_t)i);
}

static float sum_f32_ref(const float *x, size_t n)
{
    float sum[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t lane = 0; lane < 8; lane++) sum[lane] += x[i + lane];
    for (; i < n; i++) sum[0] += x[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* x may be anything at each step, as far as the compiler knows, so that no step is left out. */
static size_t multiply_adds_ref(size_t steps)
{
    enum { CHAINS = 32 };
    volatile float half = 0.5F, result = 0;
    float sums[CHAINS];
    for (size_t c = 0; c < CHAINS; c++) sums[c] = half; /* one by one: equal chains would become one */
    for (size_t s = 0; s < steps; s++) {
        const float x = half;
        for (size_t c = 0; c < CHAINS; c++) sums[c] = sums[c] * x + x;
    }
    for (size_t c = 0; c < CHAINS; c++) result = result + sums[c];
    return steps * CHAINS;
}

static float max_f32_ref(const float *x, size_t n)
{
    float most = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    return most;
}

static double exp_sum_ref(const float *x, size_t n, float shift, float *out)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float e = expf(x[i] - shift);
        if (out) out[i] = e;
        sum += e;
    }
    return sum;
}

static void scaled_log_ref(float *x, size_t n, float over, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = scale * logf(1 + over * x[i]);
}

static void adam_ref(float *w, float *m, float *v, const float *g, size_t n, const woi_adam_step *step)
{
    const float rest1 = 1 - step->beta1, rest2 = 1 - step->beta2;
    for (size_t i = 0; i < n; i++) {
        m[i] = step->beta1 * m[i] + rest1 * g[i];
        v[i] = step->beta2 * v[i] + rest2 * (g[i] * g[i]);
        w[i] -= step->rate * m[i] / (sqrtf(v[i]) * step->root_scale + step->epsilon);
    }
}

void woi_kernels_use_ref(woi_kernels *table)
{
#define WOI_KERNEL(ret, name, params) WOI_USE(table, name, ref);
#include "kernels/kernels.def"
#undef WOI_KERNEL
    table->tile_rows = TILE_ROWS;
    table->tile_columns = TILE_COLUMNS;
}
