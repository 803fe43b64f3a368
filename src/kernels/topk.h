/* The k best so far: the heap under woi_topk, inline because every topk_scan pushes into it, and a list in order.
 *
 *   entry i has children 2i+1 and 2i+2, neither of them worse than i; entry 0 is the worst of the k best. */
#ifndef WOI_KERNELS_TOPK_H
#define WOI_KERNELS_TOPK_H

#include "kernels/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Whether (score a, id i) is worse than (score b, id j): the total order of all results. */
static inline bool woi_topk_worse(float a, int32_t i, float b, int32_t j)
{
    return a < b || (a == b && i > j);
}

static inline void woi_topk_put(woi_topk *top, size_t at, float score, int32_t id)
{
    top->scores[at] = score;
    top->ids[at] = id;
}

/* Puts (score, id) in place of entry 0 of a heap of n >= 1 entries. */
static inline void woi_topk_replace(woi_topk *top, size_t n, float score, int32_t id)
{
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n &&
            woi_topk_worse(top->scores[child + 1], top->ids[child + 1], top->scores[child], top->ids[child]))
            child++;
        if (!woi_topk_worse(top->scores[child], top->ids[child], score, id)) break;
        woi_topk_put(top, at, top->scores[child], top->ids[child]);
    }
    woi_topk_put(top, at, score, id);
}

/* Takes (score, id) if it is among the k best so far. NaN is never taken. */
static inline void woi_topk_push(woi_topk *top, float score, int32_t id)
{
    if (isnan(score)) return;
    if (top->n == top->k) {
        if (woi_topk_worse(top->scores[0], top->ids[0], score, id)) woi_topk_replace(top, top->n, score, id);
        return;
    }
    size_t at = top->n++;
    for (size_t up; at > 0; at = up) {
        up = (at - 1) / 2;
        if (!woi_topk_worse(score, id, top->scores[up], top->ids[up])) break;
        woi_topk_put(top, at, top->scores[up], top->ids[up]);
    }
    woi_topk_put(top, at, score, id);
}

/* The same for a list in order, best first, which stays so: for a few that come late. */
static inline void woi_topk_insert(woi_topk *list, float score, int32_t id)
{
    size_t at = list->n;
    if (isnan(score)) return;
    while (at > 0 && woi_topk_worse(list->scores[at - 1], list->ids[at - 1], score, id)) at--;
    if (at == list->k) return;
    if (list->n < list->k) list->n++;
    memmove(list->ids + at + 1, list->ids + at, (list->n - at - 1) * sizeof *list->ids);
    memmove(list->scores + at + 1, list->scores + at, (list->n - at - 1) * sizeof *list->scores);
    woi_topk_put(list, at, score, id);
}

/* What no class has a place of. */
static inline void woi_topk_pad(woi_topk *list)
{
    for (size_t i = list->n; i < list->k; i++) woi_topk_put(list, i, -INFINITY, -1);
}

/* `pick` by the heap. */
static inline size_t woi_topk_pick(const float *scores, const int32_t *ids, size_t n, size_t k, float *best,
                                   int32_t *best_ids)
{
    woi_topk top = {k, 0, best, best_ids};
    for (size_t i = 0; i < n; i++)
        if (top.n < k || !(scores[i] < best[0])) woi_topk_push(&top, scores[i], ids ? ids[i] : (int32_t)i);
    woi_topk_finish(&top);
    return top.n;
}

/* nextafterf(x, INFINITY) for what is not NaN, without the call. */
static inline float woi_next_up(float x)
{
    uint32_t word;
    if (x == 0) x = 0; /* not -0, whose neighbour this is not */
    if (x == INFINITY) return x;
    memcpy(&word, &x, sizeof word);
    word += x < 0 ? UINT32_MAX : 1;
    memcpy(&x, &word, sizeof x);
    return x;
}

/* The filter in front of a full heap: whatever has an id of at least `next_id` and fails score >= bar would be refused
 * by woi_topk_push. A score equal to the worst can only enter with a lower id, so once the ids have passed the worst
 * one's, the bar moves up by one step: without that a long run of equal scores is pushed one by one. */
static inline float woi_topk_bar(const woi_topk *top, int64_t next_id)
{
    return next_id > top->ids[0] ? woi_next_up(top->scores[0]) : top->scores[0];
}

#endif
