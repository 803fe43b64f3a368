/* The tile of AVX-512: 8 x 48 sums in 24 of the 32 registers, three for B's vectors, the rest for what A spreads over
 * its lanes. A tile with at most 32 or 16 columns takes two vectors a row, or one. */
#include "kernels/kernels.h"
#include "kernels/x86.h"

/* B streams from the second-level cache: 96% of the peak with the prefetch (Emerald Rapids), 89% without. */
enum { ROWS = 8, COLUMNS = 48, AHEAD = 8 };

WOI_INLINE void multiply(size_t vectors, const woi_tile *t, bool whole)
{
    __m512 sums[ROWS][3];
    __mmask16 lanes[3];
    WOI_EACH(v, vectors) lanes[v] = woi_lanes(t->columns > 16 * v ? t->columns - 16 * v : 0);
    WOI_EACH(r, ROWS) {
        const float *from = t->start ? t->start : t->c + r * t->stride;
        WOI_EACH(v, vectors)
            sums[r][v] = whole         ? _mm512_loadu_ps(from + 16 * v)
                         : r < t->rows ? _mm512_maskz_loadu_ps(lanes[v], from + 16 * v)
                                       : _mm512_setzero_ps();
    }
    const float *a = t->a, *b = t->b;
    for (size_t p = 0; p < t->k; p++, a += t->a_step, b += COLUMNS) {
        __m512 row[3];
        WOI_EACH(v, vectors) {
            row[v] = _mm512_loadu_ps(b + 16 * v);
            _mm_prefetch((const char *)(b + AHEAD * COLUMNS + 16 * v), _MM_HINT_T0);
        }
        WOI_EACH(r, ROWS) {
            const __m512 x = _mm512_set1_ps(a[r]);
            WOI_EACH(v, vectors) sums[r][v] = _mm512_fmadd_ps(x, row[v], sums[r][v]);
        }
    }
    WOI_EACH(r, ROWS) {
        float *to = t->c + r * t->stride;
        if (!whole && r >= t->rows) break;
        WOI_EACH(v, vectors) {
            if (whole)
                _mm512_storeu_ps(to + 16 * v, sums[r][v]);
            else
                _mm512_mask_storeu_ps(to + 16 * v, lanes[v], sums[r][v]);
        }
    }
}

void woi_tile_avx512(const woi_tile *t)
{
    if (t->rows == ROWS && t->columns == COLUMNS)
        multiply(3, t, true);
    else if (t->columns > 32)
        multiply(3, t, false);
    else if (t->columns > 16)
        multiply(2, t, false);
    else
        multiply(1, t, false);
}

void woi_tile_sizes_avx512(woi_kernels *table)
{
    table->tile_rows = ROWS;
    table->tile_columns = COLUMNS;
}

/* ---- Panels ------------------------------------------------------------------------------------------------ */

/* Sixteen rows, four steps: register r holds rows r, r + 4, r + 8 and r + 12, each in a quarter of its own, and is
 * transposed within. */
WOI_INLINE void interleave_16x4(const float *rows, size_t stride, size_t width, float *out)
{
    __m512 x[4];
    WOI_EACH(r, 4) {
        x[r] = _mm512_castps128_ps512(_mm_loadu_ps(rows + r * stride));
        x[r] = _mm512_insertf32x4(x[r], _mm_loadu_ps(rows + (r + 4) * stride), 1);
        x[r] = _mm512_insertf32x4(x[r], _mm_loadu_ps(rows + (r + 8) * stride), 2);
        x[r] = _mm512_insertf32x4(x[r], _mm_loadu_ps(rows + (r + 12) * stride), 3);
    }
    const __m512 a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
    const __m512 c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
    _mm512_storeu_ps(out, _mm512_shuffle_ps(a, c, 0x44));
    _mm512_storeu_ps(out + width, _mm512_shuffle_ps(a, c, 0xee));
    _mm512_storeu_ps(out + 2 * width, _mm512_shuffle_ps(b, d, 0x44));
    _mm512_storeu_ps(out + 3 * width, _mm512_shuffle_ps(b, d, 0xee));
}

/* What is not a whole sixteen of rows is left to AVX2, which has eights. */
void woi_interleave_avx512(const float *rows, size_t n, size_t k, size_t stride, size_t width, float *out)
{
    if (width % 16 || n < width) {
        woi_interleave_avx2(rows, n, k, stride, width, out);
        return;
    }
    for (size_t i = 0; i < n; i += 16) {
        size_t p = 0;
        for (; p + 4 <= k; p += 4) interleave_16x4(rows + i * stride + p, stride, width, out + p * width + i);
        for (; p < k; p++)
            for (size_t r = i; r < i + 16; r++) out[p * width + r] = rows[r * stride + p];
    }
}

/* ---- What the machine can do at most ----------------------------------------------------------------------- */

float woi_sum_f32_avx512(const float *x, size_t n)
{
    __m512 sums[8];
    size_t i = 0;
    WOI_EACH(v, 8) sums[v] = _mm512_setzero_ps();
    for (; i + 128 <= n; i += 128)
        WOI_EACH(v, 8) sums[v] = _mm512_add_ps(sums[v], _mm512_loadu_ps(x + i + 16 * v));
    WOI_EACH(v, 7) sums[0] = _mm512_add_ps(sums[0], sums[v + 1]);
    float sum = _mm512_reduce_add_ps(sums[0]);
    for (; i < n; i++) sum += x[i];
    return sum;
}

/* The empty asm in the loop keeps each step. */
size_t woi_multiply_adds_avx512(size_t steps)
{
    enum { CHAINS = 12 };
    __m512 sums[CHAINS], x = _mm512_set1_ps(0.5f);
    WOI_EACH(c, CHAINS) {
        sums[c] = x;
        __asm__ volatile("" : "+v"(sums[c])); /* or the compiler sees that the chains are equal, and keeps one */
    }
    for (size_t s = 0; s < steps; s++) {
        WOI_EACH(c, CHAINS) sums[c] = _mm512_fmadd_ps(x, x, sums[c]);
        __asm__ volatile("" : "+v"(x));
    }
    WOI_EACH(c, CHAINS) __asm__ volatile("" ::"v"(sums[c]));
    return steps * CHAINS * 16;
}
