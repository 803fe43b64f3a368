/* The tile of AVX2: 6 x 16 sums in 12 of the 16 registers, two for B's vectors, one for what A spreads over its lanes.
 * A tile with at most 8 columns takes one vector a row. */
#include "kernels/kernels.h"
#include "kernels/x86.h"

enum { ROWS = 6, COLUMNS = 16, AHEAD = 8 /* steps of B that are prefetched: it streams from the second-level cache */ };

/* The first n lanes of eight. */
WOI_INLINE __m256i first_lanes(size_t n)
{
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), place);
}

WOI_INLINE void multiply(size_t vectors, const woi_tile *t, bool whole)
{
    __m256 sums[ROWS][2];
    __m256i lanes[2];
    WOI_EACH(v, vectors) lanes[v] = first_lanes(t->columns > 8 * v ? t->columns - 8 * v : 0);
    WOI_EACH(r, ROWS) {
        const float *from = t->start ? t->start : t->c + r * t->stride;
        WOI_EACH(v, vectors)
            sums[r][v] = whole         ? _mm256_loadu_ps(from + 8 * v)
                         : r < t->rows ? _mm256_maskload_ps(from + 8 * v, lanes[v])
                                       : _mm256_setzero_ps();
    }
    const float *a = t->a, *b = t->b;
    for (size_t p = 0; p < t->k; p++, a += t->a_step, b += COLUMNS) {
        __m256 row[2];
        WOI_EACH(v, vectors) row[v] = _mm256_loadu_ps(b + 8 * v);
        _mm_prefetch((const char *)(b + AHEAD * COLUMNS), _MM_HINT_T0);
        WOI_EACH(r, ROWS) {
            const __m256 x = _mm256_broadcast_ss(a + r);
            WOI_EACH(v, vectors) sums[r][v] = _mm256_fmadd_ps(x, row[v], sums[r][v]);
        }
    }
    WOI_EACH(r, ROWS) {
        float *to = t->c + r * t->stride;
        if (!whole && r >= t->rows) break;
        WOI_EACH(v, vectors) {
            if (whole)
                _mm256_storeu_ps(to + 8 * v, sums[r][v]);
            else
                _mm256_maskstore_ps(to + 8 * v, lanes[v], sums[r][v]);
        }
    }
}

void woi_tile_avx2(const woi_tile *t)
{
    if (t->rows == ROWS && t->columns == COLUMNS)
        multiply(2, t, true);
    else if (t->columns > 8)
        multiply(2, t, false);
    else
        multiply(1, t, false);
}

void woi_tile_sizes_avx2(woi_kernels *table)
{
    table->tile_rows = ROWS;
    table->tile_columns = COLUMNS;
}

/* ---- Panels ------------------------------------------------------------------------------------------------ */

/* Eight rows, four steps: register r holds rows r and r + 4, each in a half of its own, and is transposed within. */
WOI_INLINE void interleave_8x4(const float *rows, size_t stride, size_t width, float *out)
{
    __m256 x[4];
    WOI_EACH(r, 4)
        x[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(rows + r * stride)),
                                    _mm_loadu_ps(rows + (r + 4) * stride), 1);
    const __m256 a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
    const __m256 c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
    _mm256_storeu_ps(out, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(out + width, _mm256_shuffle_ps(a, c, 0xee));
    _mm256_storeu_ps(out + 2 * width, _mm256_shuffle_ps(b, d, 0x44));
    _mm256_storeu_ps(out + 3 * width, _mm256_shuffle_ps(b, d, 0xee));
}

void woi_interleave_avx2(const float *rows, size_t n, size_t k, size_t stride, size_t width, float *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        size_t p = 0;
        for (; p + 4 <= k; p += 4) interleave_8x4(rows + i * stride + p, stride, width, out + p * width + i);
        for (; p < k; p++)
            for (size_t r = i; r < i + 8; r++) out[p * width + r] = rows[r * stride + p];
    }
    for (; i < width; i++)
        for (size_t p = 0; p < k; p++) out[p * width + i] = i < n ? rows[i * stride + p] : 0;
}

/* ---- What the machine can do at most ----------------------------------------------------------------------- */

float woi_sum_f32_avx2(const float *x, size_t n)
{
    __m256 sums[8];
    size_t i = 0;
    WOI_EACH(v, 8) sums[v] = _mm256_setzero_ps();
    for (; i + 64 <= n; i += 64)
        WOI_EACH(v, 8) sums[v] = _mm256_add_ps(sums[v], _mm256_loadu_ps(x + i + 8 * v));
    WOI_EACH(v, 7) sums[0] = _mm256_add_ps(sums[0], sums[v + 1]);
    float lane[8];
    _mm256_storeu_ps(lane, sums[0]);
    for (; i < n; i++) lane[0] += x[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* The empty asm in the loop keeps each step. */
size_t woi_multiply_adds_avx2(size_t steps)
{
    enum { CHAINS = 12 };
    __m256 sums[CHAINS], x = _mm256_set1_ps(0.5f);
    WOI_EACH(c, CHAINS) {
        sums[c] = x;
        __asm__ volatile("" : "+v"(sums[c])); /* or the compiler sees that the chains are equal, and keeps one */
    }
    for (size_t s = 0; s < steps; s++) {
        WOI_EACH(c, CHAINS) sums[c] = _mm256_fmadd_ps(x, x, sums[c]);
        __asm__ volatile("" : "+v"(x));
    }
    WOI_EACH(c, CHAINS) __asm__ volatile("" ::"v"(sums[c]));
    return steps * CHAINS * 8;
}
