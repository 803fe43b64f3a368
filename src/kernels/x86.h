/* What the AVX2 and AVX-512 files share: the reduction of eight rows, masks. Included by those files only, each
 * compiled with its own instruction set. */
#ifndef WOI_KERNELS_X86_H
#define WOI_KERNELS_X86_H

#include "kernels/simd.h"

#include <immintrin.h>

/* Of project_i8: two coordinates as 16-bit integers in one word; and what the 128 in each of the planes' adds to a sum.
 */
WOI_INLINE int32_t woi_pair(int8_t low, int8_t high)
{
    return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16);
}

WOI_INLINE int32_t woi_excess(const int8_t *x, size_t fours)
{
    int32_t sum = 0;
    for (size_t j = 0; j < 4 * fours; j++) sum += x[j];
    return 128 * sum;
}

/* A mask of AVX-512: the first n of 16 lanes. */
WOI_INLINE uint16_t woi_lanes(size_t n)
{
    return (uint16_t)(n < 16 ? (1u << n) - 1 : 0xffff);
}

/* avx2pick.c and avx512pick.c */
size_t woi_pick_avx2(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids);
size_t woi_pick_avx512(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids);

size_t woi_sift_avx2(const float *scores, const int32_t *ids, int32_t first_id, size_t n, float bar, float *kept,
                     int32_t *kept_ids);
size_t woi_sift_avx512(const float *scores, const int32_t *ids, int32_t first_id, size_t n, float bar, float *kept,
                       int32_t *kept_ids);

/* avx2tile8.c: AVX-512 without VNNI has it too */
void woi_tile_i8_avx2(const woi_tile_i8 *t);

/* avx2tile.c, avx512tile.c */
void woi_tile_avx2(const woi_tile *t);
void woi_tile_avx512(const woi_tile *t);
void woi_interleave_avx2(const float *rows, size_t n, size_t k, size_t stride, size_t width, float *out);
void woi_interleave_avx512(const float *rows, size_t n, size_t k, size_t stride, size_t width, float *out);
float woi_sum_f32_avx2(const float *x, size_t n);
float woi_sum_f32_avx512(const float *x, size_t n);
size_t woi_multiply_adds_avx2(size_t steps);
size_t woi_multiply_adds_avx512(size_t steps);
void woi_tile_sizes_avx2(woi_kernels *table);
void woi_tile_sizes_avx512(woi_kernels *table);

/* Lane r of the result is the sum over v[r]. */
WOI_INLINE __m256 woi_sums_ps(const __m256 v[WOI_BLOCK])
{
    const __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

/* The same for integers, with the scales that kernels.h defines, in its order of operations. */
WOI_INLINE __m256 woi_scaled_sums(const __m256i v[WOI_BLOCK], const float scale[WOI_BLOCK], float q_scale)
{
    const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    const __m256i sums =
        _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(_mm256_loadu_ps(scale), _mm256_set1_ps(q_scale)));
}

#endif
