/* The pick of AVX2, in three ways:
 *
 *   up to 8 answers of 64 scores   all scores in registers; a round finds one answer
 *   up to MOST_KEPT answers        those that may be among the best are kept, then placed by counting
 *   more, or many equal scores     a heap
 *
 * Scores are compared as integers: a maximum of floats takes four cycles, a minimum of integers one, and a round waits
 * for four of them. */
#include "kernels/topk.h"
#include "kernels/x86.h"

/* The order of scores reversed, as unsigned integers: the best has the least key. Both zeros have the same. NaN has all
 * bits set, and so has a lane without a score. */
WOI_INLINE __m256i keys_of(__m256 x)
{
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i bits = _mm256_castps_si256(_mm256_add_ps(x, _mm256_setzero_ps())); /* -0 becomes 0 */
    const __m256i turn = _mm256_andnot_si256(_mm256_srai_epi32(bits, 31), _mm256_set1_epi32(INT32_MAX));
    return _mm256_or_si256(_mm256_xor_si256(bits, turn), nan);
}

/* Eight scores, or n where those are fewer. */
WOI_INLINE __m256i load_keys(const float *scores, size_t n)
{
    if (n >= 8) return keys_of(_mm256_loadu_ps(scores));
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), numbers);
    const __m256i absent = _mm256_xor_si256(there, _mm256_set1_epi32(-1));
    return _mm256_or_si256(keys_of(_mm256_maskload_ps(scores, there)), absent);
}

/* In every lane, the least of all. */
WOI_INLINE __m256i least_of(__m256i x)
{
    x = _mm256_min_epu32(x, _mm256_permute2x128_si256(x, x, 1));
    x = _mm256_min_epu32(x, _mm256_shuffle_epi32(x, 0x4e));
    return _mm256_min_epu32(x, _mm256_shuffle_epi32(x, 0xb1));
}

WOI_INLINE uint64_t bits_of(__m256i lanes)
{
    return (uint64_t)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

/* Up to 8 * vectors scores, in registers. A round takes all that are equal to the best left. */
WOI_INLINE size_t pick_block(size_t vectors, const float *scores, const int32_t *ids, size_t n, size_t k, float *best,
                             int32_t *best_ids)
{
    __m256i x[8];
    uint64_t absent = 0;
    WOI_EACH(v, vectors) {
        x[v] = load_keys(scores + 8 * v, v + 1 < vectors ? 8 : n - 8 * v);
        absent |= bits_of(_mm256_cmpeq_epi32(x[v], _mm256_set1_epi32(-1))) << 8 * v;
    }
    const size_t n_there = 8 * vectors - (size_t)__builtin_popcountll(absent), wanted = n_there < k ? n_there : k;
    for (size_t found = 0; found < wanted;) {
        __m256i least[8];
        WOI_EACH(v, vectors) least[v] = x[v];
        WOI_EACH(v, 4)
            if (v + 4 < vectors) least[v] = _mm256_min_epu32(least[v], least[v + 4]);
        WOI_EACH(v, 2)
            if (v + 2 < vectors) least[v] = _mm256_min_epu32(least[v], least[v + 2]);
        if (vectors > 1) least[0] = _mm256_min_epu32(least[0], least[1]);
        least[0] = least_of(least[0]);
        uint64_t hits = 0;
        WOI_EACH(v, vectors) {
            const __m256i hit = _mm256_cmpeq_epi32(x[v], least[0]);
            hits |= bits_of(hit) << 8 * v;
            x[v] = _mm256_or_si256(x[v], hit);
        }
        for (; hits && found < wanted; found++) { /* one, nearly always */
            const size_t at = woi_lowest_id(hits, ids);
            hits &= ~((uint64_t)1 << at);
            best[found] = scores[at];
            best_ids[found] = ids ? ids[at] : (int32_t)at;
        }
    }
    return wanted;
}

WOI_INLINE size_t pick_few(const float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    switch ((n + 7) / 8) {
    case 0: return 0;
    case 1: return pick_block(1, scores, ids, n, k, best, best_ids);
    case 2: return pick_block(2, scores, ids, n, k, best, best_ids);
    case 3: return pick_block(3, scores, ids, n, k, best, best_ids);
    case 4: return pick_block(4, scores, ids, n, k, best, best_ids);
    case 5: return pick_block(5, scores, ids, n, k, best, best_ids);
    case 6: return pick_block(6, scores, ids, n, k, best, best_ids);
    case 7: return pick_block(7, scores, ids, n, k, best, best_ids);
    default: return pick_block(8, scores, ids, n, k, best, best_ids);
    }
}

size_t woi_pick_avx2(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    size_t found;
    if (n <= 64 && k <= 8)
        found = pick_few(scores, ids, n, k, best, best_ids);
    else
        found = woi_topk_pick(scores, ids, n, k, best, best_ids);
    woi_pick_end(found, k, best, best_ids);
    return found;
}
