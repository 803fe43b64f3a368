/* The pick of AVX-512, in four ways:
 *
 *   all of 32 scores or fewer      placed by counting those that are higher; equal ones, which are rare, as below
 *   few answers of few scores      all scores in registers; a round finds one answer
 *   up to MOST_KEPT answers        those that may be among the best are kept, then placed by counting
 *   more, or many equal scores     rounds over pieces of 64 scores; a heap where there are too many
 *
 * Rounds and heaps wait, at every answer, for the one before; keeping and counting do not. */
#include "kernels/topk.h"
#include "kernels/x86.h"

enum {
    FEW = 128,          /* scores that are placed by counting */
    ROUNDS = 300,       /* answers times scores: up to so many, rounds are faster than keeping and counting */
    MOST_KEPT = 48,     /* answers */
    MOST_NOTED = 16384, /* scores: of pieces of 64 the best are noted */
};

/* Up to 16 * vectors scores, in registers. What is taken becomes NaN, which no comparison finds. */
WOI_INLINE size_t pick_block(size_t vectors, const float *scores, const int32_t *ids, size_t n, size_t k, float *best,
                             int32_t *best_ids)
{
    const __m512 nan = _mm512_set1_ps(NAN);
    __m512 x[8];
    WOI_EACH(v, vectors)
        x[v] = v + 1 < vectors ? _mm512_loadu_ps(scores + 16 * v)
                               : _mm512_mask_loadu_ps(nan, woi_lanes(n - 16 * v), scores + 16 * v);
    for (size_t found = 0; found < k; found++) {
        __m512 most = _mm512_set1_ps(-INFINITY);
        WOI_EACH(v, vectors) most = _mm512_max_ps(x[v], most); /* NaNs are passed over, as in max_f32 */
        const float top = _mm512_reduce_max_ps(most);
        uint64_t hits[2] = {0, 0};
        WOI_EACH(v, vectors)
            hits[v / 4] |= (uint64_t)_mm512_cmp_ps_mask(x[v], _mm512_set1_ps(top), _CMP_EQ_OQ) << 16 * (v % 4);
        if (!(hits[0] | hits[1])) return found;
        size_t at = hits[0] ? woi_lowest_id(hits[0], ids) : 64 + woi_lowest_id(hits[1], ids ? ids + 64 : NULL);
        if (ids && hits[0] && hits[1]) {
            const size_t other = 64 + woi_lowest_id(hits[1], ids + 64);
            if (ids[other] < ids[at]) at = other;
        }
        best[found] = top;
        best_ids[found] = ids ? ids[at] : (int32_t)at;
        WOI_EACH(v, vectors) {
            const uint64_t taken = at / 64 == v / 4 ? (uint64_t)1 << at % 64 : 0;
            x[v] = _mm512_mask_mov_ps(x[v], (__mmask16)(taken >> 16 * (v % 4)), nan);
        }
    }
    return k;
}

/* The best of a piece of up to 64 scores, lane by lane; NaNs are passed over. */
WOI_INLINE __m512 best_of_piece(const float *scores, size_t n)
{
    __m512 most = _mm512_set1_ps(-INFINITY);
    for (size_t i = 0; i < n && i < 64; i += 16)
        most = _mm512_mask_max_ps(most, woi_lanes(n - i), _mm512_maskz_loadu_ps(woi_lanes(n - i), scores + i), most);
    return most;
}

/* Any number: pieces of 64, of which each has its best noted, so that an answer costs one piece and the notes. */
WOI_INLINE size_t pick_pieces(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    __m512 notes[MOST_NOTED / 64];
    const size_t n_pieces = (n + 63) / 64;
    if (!n) return 0;
    for (size_t p = 0; p < n_pieces; p++) notes[p] = best_of_piece(scores + 64 * p, n - 64 * p);
    for (size_t found = 0; found < k; found++) {
        __m512 most = notes[0];
        for (size_t p = 1; p < n_pieces; p++) most = _mm512_max_ps(most, notes[p]);
        const float top = _mm512_reduce_max_ps(most);
        const __m512 wanted = _mm512_set1_ps(top);
        size_t at = n;
        for (size_t p = 0; p < n_pieces && (ids || at == n); p++) {
            if (!_mm512_cmp_ps_mask(notes[p], wanted, _CMP_EQ_OQ)) continue;
            uint64_t hits = 0; /* none where nothing but NaN is left */
            for (size_t i = 0; i < 64 && 64 * p + i < n; i += 16) {
                const __mmask16 mask = woi_lanes(n - 64 * p - i);
                const __m512 x = _mm512_maskz_loadu_ps(mask, scores + 64 * p + i);
                hits |= (uint64_t)_mm512_mask_cmp_ps_mask(mask, x, wanted, _CMP_EQ_OQ) << i;
            }
            if (!hits) continue;
            const size_t here = 64 * p + woi_lowest_id(hits, ids ? ids + 64 * p : NULL);
            if (at == n || ids[here] < ids[at]) at = here;
        }
        if (at == n) return found;
        best[found] = top;
        best_ids[found] = ids ? ids[at] : (int32_t)at;
        scores[at] = NAN;
        notes[at / 64] = best_of_piece(scores + at / 64 * 64, n - at / 64 * 64);
    }
    return k;
}

/* The k-th best of what 16 * vectors lanes have as their best: there are k scores as good. */
WOI_INLINE __m512 find_bar(size_t vectors, const float *scores, size_t n, size_t k)
{
    __m512 most[4];
    __m512i better[4];
    float each[64];
    WOI_EACH(v, vectors) {
        most[v] = _mm512_set1_ps(-INFINITY);
        better[v] = _mm512_setzero_si512();
    }
    for (size_t i = 0; i < n; i += 16 * vectors)
        WOI_EACH(v, vectors)
            if (i + 16 * v < n) { /* NaNs are passed over, as in max_f32 */
                const __mmask16 mask = woi_lanes(n - i - 16 * v);
                const __m512 x = _mm512_maskz_loadu_ps(mask, scores + i + 16 * v);
                most[v] = _mm512_mask_max_ps(most[v], mask, x, most[v]);
            }
    WOI_EACH(v, vectors) _mm512_storeu_ps(each + 16 * v, most[v]);
    for (size_t j = 0; j < 16 * vectors; j++) {
        const __m512 other = _mm512_set1_ps(each[j]);
        WOI_EACH(v, vectors)
            better[v] = _mm512_mask_sub_epi32(better[v], _mm512_cmp_ps_mask(most[v], other, _CMP_LT_OQ), better[v],
                                              _mm512_set1_epi32(-1));
    }
    __m512 least = _mm512_set1_ps(INFINITY);
    WOI_EACH(v, vectors) {
        const __mmask16 among = _mm512_cmplt_epi32_mask(better[v], _mm512_set1_epi32((int)k));
        least = _mm512_mask_min_ps(least, among, least, most[v]);
    }
    return _mm512_set1_ps(_mm512_reduce_min_ps(least));
}

/* Puts the scores from the bar on, and their ids, into `kept`; returns how many there are, or more than FEW. */
WOI_INLINE size_t keep_good(const float *scores, const int32_t *ids, size_t n, __m512 bar, float *kept,
                            int32_t *kept_ids)
{
    const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t n_kept = 0;
    for (size_t i = 0; i < n && n_kept <= FEW; i += 16) {
        const __mmask16 mask = woi_lanes(n - i);
        const __m512 x = _mm512_maskz_loadu_ps(mask, scores + i);
        const __m512i id =
            ids ? _mm512_maskz_loadu_epi32(mask, ids + i) : _mm512_add_epi32(numbers, _mm512_set1_epi32((int)i));
        const __mmask16 good = _mm512_mask_cmp_ps_mask(mask, x, bar, _CMP_GE_OQ); /* no NaN */
        _mm512_storeu_ps(kept + n_kept, _mm512_maskz_compress_ps(good, x));
        _mm512_storeu_si512((void *)(kept_ids + n_kept), _mm512_maskz_compress_epi32(good, id));
        n_kept += (size_t)__builtin_popcount(good);
    }
    return n_kept;
}

/* Sorts up to 16 * vectors scores by counting, for each, those that come before it; the k best go out. */
WOI_INLINE void place_good(size_t vectors, const float *kept, const int32_t *kept_ids, size_t n, size_t k, float *best,
                           int32_t *best_ids)
{
    __m512 x[8];
    __m512i id[8], before[8];
    WOI_EACH(v, vectors) {
        const __mmask16 mask = n > 16 * v ? woi_lanes(n - 16 * v) : 0;
        x[v] = _mm512_maskz_loadu_ps(mask, kept + 16 * v);
        id[v] = _mm512_maskz_loadu_epi32(mask, kept_ids + 16 * v);
        before[v] = _mm512_setzero_si512();
    }
    for (size_t j = 0; j < n; j++) {
        const __m512 other = _mm512_set1_ps(kept[j]);
        const __m512i other_id = _mm512_set1_epi32(kept_ids[j]);
        WOI_EACH(v, vectors) {
            const __mmask16 equal = _mm512_cmp_ps_mask(x[v], other, _CMP_EQ_OQ);
            const __mmask16 later =
                _mm512_cmp_ps_mask(x[v], other, _CMP_LT_OQ) | _mm512_mask_cmpgt_epi32_mask(equal, id[v], other_id);
            before[v] = _mm512_mask_sub_epi32(before[v], later, before[v], _mm512_set1_epi32(-1));
        }
    }
    WOI_EACH(v, vectors) { /* no two have the same place */
        const __mmask16 out =
            _mm512_mask_cmplt_epi32_mask(n > 16 * v ? woi_lanes(n - 16 * v) : 0, before[v], _mm512_set1_epi32((int)k));
        _mm512_mask_i32scatter_ps(best, out, before[v], x[v], 4);
        _mm512_mask_i32scatter_epi32(best_ids, out, before[v], id[v], 4);
    }
}

/* The best among those that may be; false, and nothing done, where these are more than FEW. */
WOI_INLINE bool pick_kept(const float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids,
                          size_t *found)
{
    float kept[FEW + 32];
    int32_t kept_ids[FEW + 32];
    const __m512 bar = k <= 8    ? find_bar(1, scores, n, k)
                       : k <= 16 ? find_bar(2, scores, n, k)
                                 : find_bar(4, scores, n, k);
    const size_t n_kept = keep_good(scores, ids, n, bar, kept, kept_ids);
    if (n_kept > FEW) return false;
    *found = n_kept < k ? n_kept : k;
    if (n_kept <= 16)
        place_good(1, kept, kept_ids, n_kept, k, best, best_ids);
    else if (n_kept <= 32)
        place_good(2, kept, kept_ids, n_kept, k, best, best_ids);
    else if (n_kept <= 64)
        place_good(4, kept, kept_ids, n_kept, k, best, best_ids);
    else
        place_good(8, kept, kept_ids, n_kept, k, best, best_ids);
    return true;
}

/* Up to 16 * vectors scores, all different: each goes where the number of higher ones says. Returns false, and leaves
 * nothing that counts, where two are equal or one is NaN. */
WOI_INLINE bool place_all(size_t vectors, const float *scores, const int32_t *ids, size_t n, size_t k, float *best,
                          int32_t *best_ids)
{
    const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i minus_one = _mm512_set1_epi32(-1);
    __m512 x[2];
    __m512i higher[2][2];
    __mmask16 there[2];
    WOI_EACH(v, vectors) {
        there[v] = n > 16 * v ? woi_lanes(n - 16 * v) : 0;
        x[v] = _mm512_maskz_loadu_ps(there[v], scores + 16 * v);
        higher[v][0] = higher[v][1] = _mm512_setzero_si512();
    }
    for (size_t j = 0; j < n; j++) {
        const __m512 other = _mm512_set1_ps(scores[j]);
        WOI_EACH(v, vectors)
            higher[v][j % 2] = _mm512_mask_sub_epi32(higher[v][j % 2], _mm512_cmp_ps_mask(x[v], other, _CMP_LT_OQ),
                                                     higher[v][j % 2], minus_one);
    }
    __m512i sum = _mm512_setzero_si512();
    WOI_EACH(v, vectors) {
        const __m512i place = _mm512_add_epi32(higher[v][0], higher[v][1]);
        const __mmask16 out = _mm512_mask_cmplt_epi32_mask(there[v], place, _mm512_set1_epi32((int)k));
        const __m512i id = ids ? _mm512_maskz_loadu_epi32(there[v], ids + 16 * v)
                               : _mm512_add_epi32(numbers, _mm512_set1_epi32((int)(16 * v)));
        _mm512_mask_i32scatter_ps(best, out, place, x[v], 4);
        _mm512_mask_i32scatter_epi32(best_ids, out, place, id, 4);
        sum = _mm512_mask_add_epi32(sum, there[v], sum, place);
    }
    return (size_t)_mm512_reduce_add_epi32(sum) == n * (n - 1) / 2; /* 0, 1, ... n - 1 */
}

WOI_INLINE size_t pick_few(const float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    switch ((n + 15) / 16) {
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

size_t woi_pick_avx512(float *scores, const int32_t *ids, size_t n, size_t k, float *best, int32_t *best_ids)
{
    size_t found;
    if (n > 1 && n <= 32 &&
        (n <= 16 ? place_all(1, scores, ids, n, k, best, best_ids) : place_all(2, scores, ids, n, k, best, best_ids)))
        found = n < k ? n : k;
    else if (n <= 128 && (k <= 2 || k * n <= ROUNDS))
        found = pick_few(scores, ids, n, k, best, best_ids);
    else if (k < 3 || k > MOST_KEPT || !pick_kept(scores, ids, n, k, best, best_ids, &found))
        found = n <= MOST_NOTED ? pick_pieces(scores, ids, n, k, best, best_ids)
                                : woi_topk_pick(scores, ids, n, k, best, best_ids);
    woi_pick_end(found, k, best, best_ids);
    return found;
}

/* ---- sift -------------------------------------------------------------------------------------------------- */

/* Sixteen scores, of which `good` are kept from place `found` on: never beyond what was read. */
WOI_INLINE void keep_16(const float *scores, const int32_t *ids, int32_t first_id, __mmask16 good, float *kept,
                        int32_t *kept_ids)
{
    const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 x = _mm512_maskz_loadu_ps(good, scores);
    const __m512i id =
        ids ? _mm512_maskz_loadu_epi32(good, ids) : _mm512_add_epi32(numbers, _mm512_set1_epi32(first_id));
    const __mmask16 there = woi_lanes((size_t)__builtin_popcount(good));
    _mm512_mask_storeu_ps(kept, there, _mm512_maskz_compress_ps(good, x));
    _mm512_mask_storeu_epi32(kept_ids, there, _mm512_maskz_compress_epi32(good, id));
}

/* Most scores are below the bar: 64 a step. */
size_t woi_sift_avx512(const float *scores, const int32_t *ids, int32_t first_id, size_t n, float bar, float *kept,
                       int32_t *kept_ids)
{
    const __m512 wanted = _mm512_set1_ps(bar);
    size_t found = 0;
    for (size_t i = 0; i < n; i += 64) {
        uint64_t good = 0;
        if (n - i >= 64)
            WOI_EACH(v, 4)
                good |= (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(scores + i + 16 * v), wanted, _CMP_GE_OQ)
                        << 16 * v;
        else
            for (size_t j = 0; i + j < n; j += 16) {
                const __mmask16 mask = woi_lanes(n - i - j);
                good |= (uint64_t)_mm512_mask_cmp_ps_mask(mask, _mm512_maskz_loadu_ps(mask, scores + i + j), wanted,
                                                          _CMP_GE_OQ)
                        << j;
            }
        if (!kept) {
            found += (size_t)__builtin_popcountll(good);
            continue;
        }
        if (!good) continue;
        WOI_EACH(v, 4) { /* no branch for each sixteen: most have none, and which ones cannot be guessed */
            const size_t at = i + 16 * v;
            const __mmask16 here = (__mmask16)(good >> 16 * v);
            keep_16(scores + at, ids ? ids + at : NULL, first_id + (int32_t)at, here, kept + found, kept_ids + found);
            found += (size_t)__builtin_popcount(here);
        }
    }
    return found;
}
