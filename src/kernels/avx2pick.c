/* The pick of AVX2, in three ways:
 *
 *   up to 8 answers of 64 scores   all scores in registers; a round finds one answer
 *   up to MOST_KEPT answers        those that may be among the best are kept, then placed by counting
 *   more, or many equal scores     a heap
 *
 * The rounds compare scores as integers: a maximum of floats takes four cycles, a minimum of integers one, and a round
 * waits for several of them. 5 of 64 at 4.3 GB/s so (Xeon of 2023), where AVX-512's rounds over floats give 3.5. */
#include "kernels/topk.h"
#include "kernels/x86.h"

#include <string.h>

enum {
    FEW = 128,      /* scores that are placed by counting */
    MOST_KEPT = 48, /* answers */
};

WOI_INLINE __m256i first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

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
    const __m256i there = first_lanes(n);
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

/* Eight scores from i on, with what is beyond n as NaN. */
WOI_INLINE __m256 load_scores(const float *scores, size_t i, size_t n)
{
    if (i + 8 <= n) return _mm256_loadu_ps(scores + i);
    const __m256i there = first_lanes(i < n ? n - i : 0);
    return _mm256_blendv_ps(_mm256_set1_ps(NAN), _mm256_maskload_ps(scores + i, there), _mm256_castsi256_ps(there));
}

/* The k-th best of what 8 * vectors lanes have as their best: there are k scores as good. */
WOI_INLINE __m256 find_bar(size_t vectors, const float *scores, size_t n, size_t k)
{
    __m256 most[8];
    __m256i better[8];
    float each[64];
    WOI_EACH(v, vectors) {
        most[v] = _mm256_set1_ps(-INFINITY);
        better[v] = _mm256_setzero_si256();
    }
    size_t i = 0;
    for (; i + 8 * vectors <= n; i += 8 * vectors)
        WOI_EACH(v, vectors) most[v] = _mm256_max_ps(_mm256_loadu_ps(scores + i + 8 * v), most[v]); /* no NaN */
    WOI_EACH(v, vectors)
        if (i + 8 * v < n) most[v] = _mm256_max_ps(load_scores(scores, i + 8 * v, n), most[v]);
    WOI_EACH(v, vectors) _mm256_storeu_ps(each + 8 * v, most[v]);
    for (size_t j = 0; j < 8 * vectors; j++) {
        const __m256 other = _mm256_broadcast_ss(each + j);
        WOI_EACH(v, vectors)
            better[v] = _mm256_sub_epi32(better[v], _mm256_castps_si256(_mm256_cmp_ps(most[v], other, _CMP_LT_OQ)));
    }
    __m256 least = _mm256_set1_ps(INFINITY);
    WOI_EACH(v, vectors) {
        const __m256 among = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)k), better[v]));
        least = _mm256_min_ps(least, _mm256_blendv_ps(_mm256_set1_ps(INFINITY), most[v], among));
    }
    least = _mm256_min_ps(least, _mm256_permute2f128_ps(least, least, 1));
    least = _mm256_min_ps(least, _mm256_permute_ps(least, 0x4e));
    return _mm256_min_ps(least, _mm256_permute_ps(least, 0xb1));
}

/* Puts the scores from the bar on, and their ids, into `kept`; returns how many there are, or more than FEW. */
WOI_INLINE size_t keep_good(const float *scores, const int32_t *ids, size_t n, __m256 bar, float *kept,
                            int32_t *kept_ids)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n && n_kept <= FEW; i += 64) {
        uint64_t good = 0;
        for (size_t v = 0; v < 8 && i + 8 * v < n; v++)
            good |= (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(load_scores(scores, i + 8 * v, n), bar, _CMP_GE_OQ))
                    << 8 * v;
        for (; good; good &= good - 1, n_kept++) {
            const size_t at = i + (size_t)__builtin_ctzll(good);
            kept[n_kept] = scores[at];
            kept_ids[n_kept] = ids ? ids[at] : (int32_t)at;
        }
    }
    return n_kept;
}

/* Sorts up to 8 * vectors scores by counting, for each, those that come before it; the k best go out. */
WOI_INLINE void place_good(size_t vectors, const float *kept, const int32_t *kept_ids, size_t n, size_t k, float *best,
                           int32_t *best_ids)
{
    int32_t place[FEW], sorted_ids[FEW];
    float sorted[FEW];
    for (size_t i = 0; i < n; i += 8 * vectors) {
        __m256 x[4];
        __m256i id[4], before[4];
        WOI_EACH(v, vectors) {
            x[v] = _mm256_loadu_ps(kept + i + 8 * v);
            id[v] = _mm256_loadu_si256((const void *)(kept_ids + i + 8 * v));
            before[v] = _mm256_setzero_si256();
        }
        for (size_t j = 0; j < n; j++) {
            const __m256 other = _mm256_broadcast_ss(kept + j);
            const __m256i other_id = _mm256_set1_epi32(kept_ids[j]);
            WOI_EACH(v, vectors) {
                const __m256 equal = _mm256_cmp_ps(x[v], other, _CMP_EQ_OQ);
                const __m256 higher = _mm256_castsi256_ps(_mm256_cmpgt_epi32(id[v], other_id));
                const __m256 later = _mm256_or_ps(_mm256_cmp_ps(x[v], other, _CMP_LT_OQ), _mm256_and_ps(equal, higher));
                before[v] = _mm256_sub_epi32(before[v], _mm256_castps_si256(later));
            }
        }
        WOI_EACH(v, vectors) _mm256_storeu_si256((void *)(place + i + 8 * v), before[v]);
    }
    for (size_t i = 0; i < n; i++) { /* no two have the same place */
        sorted[place[i]] = kept[i];
        sorted_ids[place[i]] = kept_ids[i];
    }
    memcpy(best, sorted, (n < k ? n : k) * sizeof *best);
    memcpy(best_ids, sorted_ids, (n < k ? n : k) * sizeof *best_ids);
}

/* The best among those that may be; false, and nothing done, where these are more than FEW. */
WOI_INLINE bool pick_kept(const float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids,
                          size_t *found)
{
    float kept[FEW + 64];
    int32_t kept_ids[FEW + 64];
    const __m256 bar = k <= 12   ? find_bar(2, scores, n, k)
                       : k <= 24 ? find_bar(4, scores, n, k)
                                 : find_bar(8, scores, n, k);
    const size_t n_kept = keep_good(scores, ids, n, bar, kept, kept_ids);
    if (n_kept > FEW) return false;
    *found = n_kept < k ? n_kept : k;
    if (n_kept <= 8)
        place_good(1, kept, kept_ids, n_kept, k, best, best_ids);
    else if (n_kept <= 16)
        place_good(2, kept, kept_ids, n_kept, k, best, best_ids);
    else
        place_good(4, kept, kept_ids, n_kept, k, best, best_ids);
    return true;
}

size_t woi_pick_avx2(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    size_t found;
    if (n <= 64 && k <= 8)
        found = pick_few(scores, ids, n, k, best, best_ids);
    else if (k > MOST_KEPT || !pick_kept(scores, ids, n, k, best, best_ids, &found))
        found = woi_topk_pick(scores, ids, n, k, best, best_ids);
    woi_pick_end(found, k, best, best_ids);
    return found;
}

/* ---- sift -------------------------------------------------------------------------------------------------- */

/* Most scores are below the bar: 32 a step, and only those that are not are looked at one by one. */
size_t woi_sift_avx2(const float *scores, const int32_t *ids, int32_t first_id, size_t n, float bar, float *kept,
                     int32_t *kept_ids)
{
    const __m256 wanted = _mm256_set1_ps(bar);
    size_t found = 0, i = 0;
    for (; i < n; i += 32) {
        uint32_t good = 0;
        if (n - i >= 32)
            WOI_EACH(v, 4)
                good |=
                    (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores + i + 8 * v), wanted, _CMP_GE_OQ))
                    << 8 * v;
        else
            for (size_t j = i; j < n; j++) good |= (uint32_t)(scores[j] >= bar) << (j - i);
        if (!kept) {
            found += (size_t)__builtin_popcount(good);
            continue;
        }
        for (; good; good &= good - 1) {
            const size_t at = i + (size_t)__builtin_ctz(good);
            kept[found] = scores[at];
            kept_ids[found++] = ids ? ids[at] : first_id + (int32_t)at;
        }
    }
    return found;
}
