/* The int8 tile of AVX2: up to 4 queries x 16 classes, 8 sums in registers.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds pairs in 16 bits: |b| times a with b's sign. 2 * 128 * 127
 * fits in 16 bits, where 255 * 127 would not. That is why queries have no -128, whose sign cannot be turned. */
#include "kernels/kernels.h"
#include "kernels/x86.h"

#include <string.h>

/* Queries first .. first + rows of a panel, with one panel of classes. */
WOI_INLINE void multiply(size_t rows, const woi_tile_i8 *t, size_t first, size_t panel)
{
    const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
    const uint8_t *b = t->b + panel * t->fours * 64;
    const int8_t *a = t->a + first * 4;
    __m256i sums[4][2];
    WOI_EACH(r, rows)
        WOI_EACH(v, 2) sums[r][v] = _mm256_setzero_si256();
    for (size_t i = 0; i < t->fours; i++, a += 4 * WOI_I8_ROWS, b += 64) {
        __m256i row[2], size[2];
        WOI_EACH(v, 2) {
            row[v] = _mm256_xor_si256(_mm256_loadu_si256((const void *)(b + 32 * v)), flip);
            size[v] = _mm256_abs_epi8(row[v]);
        }
        _mm_prefetch((const char *)((uintptr_t)b + 1024), _MM_HINT_T0);
        WOI_EACH(r, rows) {
            int32_t four;
            memcpy(&four, a + 4 * r, sizeof four);
            const __m256i x = _mm256_set1_epi32(four);
            WOI_EACH(v, 2) {
                const __m256i pairs = _mm256_maddubs_epi16(size[v], _mm256_sign_epi8(x, row[v]));
                sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(pairs, ones));
            }
        }
    }
    const float *scales = t->b_scales + 16 * panel, *start = t->start + 16 * panel;
    for (size_t r = 0; r < rows && first + r < t->rows; r++)
        for (size_t v = 0; v < 2; v++) {
            const __m256 scale = _mm256_mul_ps(_mm256_set1_ps(t->a_scales[first + r]), _mm256_loadu_ps(scales + 8 * v));
            _mm256_storeu_ps(t->c + (first + r) * t->stride + 16 * panel + 8 * v,
                             _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][v]), scale, _mm256_loadu_ps(start + 8 * v)));
        }
}

void woi_tile_i8_avx2(const woi_tile_i8 *t)
{
    for (size_t panel = 0; panel < t->panels; panel++)
        for (size_t r = 0; r < t->rows; r += 4) {
            const size_t left = t->rows - r;
            if (left > 2)
                multiply(4, t, r, panel);
            else if (left == 2)
                multiply(2, t, r, panel);
            else
                multiply(1, t, r, panel);
        }
}
