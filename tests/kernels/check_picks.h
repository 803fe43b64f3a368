/* Kernels that pick the best: sift, topk_scan, pick. */
#ifndef WO_CHECK_PICKS_H
#define WO_CHECK_PICKS_H

#include "guarded.h"

/* ---- sift -------------------------------------------------------------------------------------------------- */

static void try_sift(const woi_kernels *k, size_t n, float bar, bool with_ids)
{
    enum { FIRST = 7000 };
    float *scores = put(0, n * sizeof *scores, 0, 4), wanted[400];
    int32_t *ids = with_ids ? put(1, n * sizeof *ids, 0, 4) : NULL, wanted_ids[400];
    size_t want = 0;
    for (size_t i = 0; i < n; i++) {
        scores[i] = random_u32() % 16 ? (float)((int)(random_u32() % 9) - 4) : random_u32() % 2 ? NAN : -INFINITY;
        if (ids) ids[i] = (int32_t)(random_u32() % 1000);
        if (!(scores[i] >= bar)) continue;
        wanted[want] = scores[i];
        wanted_ids[want++] = ids ? ids[i] : FIRST + (int32_t)i;
    }
    /* Room for exactly those that there are. */
    float *kept = put(2, want * sizeof *kept, 0, 4);
    int32_t *kept_ids = put(3, want * sizeof *kept_ids, 0, 4);
    CHECK(k->sift(scores, ids, FIRST, n, bar, NULL, NULL) == want, "%zu from %g: counts otherwise", n, (double)bar);
    for (int in_place = 0; in_place < 1 + with_ids; in_place++) {
        float *to = in_place ? scores : kept;
        int32_t *to_ids = in_place ? ids : kept_ids;
        const size_t got = k->sift(scores, ids, FIRST, n, bar, to, to_ids);
        CHECK(got == want, "%zu from %g: %zu, not %zu", n, (double)bar, got, want);
        CHECK(!memcmp(to, wanted, want * sizeof *to) && !memcmp(to_ids, wanted_ids, want * sizeof *to_ids),
              "%zu from %g: other scores or ids, in place %d", n, (double)bar, in_place);
    }
}

static void test_sift(const woi_kernels *k)
{
    static const float bars[] = {-INFINITY, -4, 0, 3.5F, 4, INFINITY, NAN};
    for (size_t n = 0; n <= 400; n += n < 140 ? 1 : 13)
        for (size_t b = 0; b < sizeof bars / sizeof *bars; b++) {
            try_sift(k, n, bars[b], false);
            try_sift(k, n, bars[b], true);
        }
}

/* ---- topk_scan --------------------------------------------------------------------------------------------- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int best_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* How scores are drawn: all different, few values (ties everywhere), one value, rising, and with NaN and infinities. */
enum { DISTINCT, TIES, CONSTANT, RISING, SPECIAL, N_DRAWS };

static float draw_score(int draw, size_t i)
{
    static const float special[] = {INFINITY, -INFINITY, 0.0f, -0.0f, FLT_MAX, -FLT_MAX, 0x1p-149f, -0x1p-149f};
    switch (draw) {
    case DISTINCT: return random_float();
    case TIES: return (float)(random_u32() % 5) - 2;
    case CONSTANT: return -1.5f;
    case RISING: return (float)i;
    default: return random_u32() % 3 ? special[random_u32() % 8] : NAN;
    }
}

/* n scores in n_scans pieces, offered in a random order of pieces. */
static void try_topk(const woi_kernels *k, int draw, size_t n, size_t top_k, size_t n_scans)
{
    enum { MOST = 2048, FIRST = 1000 };
    static float all[MOST];
    static scored want[MOST + 512];
    assert_true(n <= MOST && top_k <= 512 && n_scans <= 16);
    size_t n_want = 0;
    for (size_t i = 0; i < n; i++) {
        all[i] = draw_score(draw, i);
        if (!isnan(all[i])) want[n_want++] = (scored){all[i], FIRST + (int32_t)i};
    }
    qsort(want, n_want, sizeof *want, best_first);
    for (; n_want < top_k; n_want++) want[n_want] = (scored){-INFINITY, -1};

    woi_topk top = {top_k, 0, put(1, top_k * sizeof(float), 0, 4), put(2, top_k * sizeof(int32_t), 0, 4)};
    size_t order[16];
    for (size_t s = 0; s < n_scans; s++) {
        const size_t other = random_u32() % (s + 1);
        order[s] = order[other];
        order[other] = s;
    }
    for (size_t s = 0; s < n_scans; s++) {
        const size_t from = order[s] * n / n_scans, to = (order[s] + 1) * n / n_scans;
        const size_t bytes = (to - from) * sizeof(float), place = bytes ? random_u32() % 17 : 0;
        float *piece = put(0, bytes, place, sizeof(float));
        memcpy(piece, all + from, bytes);
        k->topk_scan(piece, to - from, FIRST + (int32_t)from, &top);
    }
    woi_topk_finish(&top);
    for (size_t i = 0; i < top_k; i++)
        CHECK(top.ids[i] == want[i].id && top.scores[i] == want[i].score,
              "draw %d n %zu k %zu scans %zu: place %zu is (%g, %d), not (%g, %d)", draw, n, top_k, n_scans, i,
              (double)top.scores[i], top.ids[i], (double)want[i].score, want[i].id);
}

static void test_topk_scan(const woi_kernels *k)
{
    const size_t top_ks[] = {1, 2, 5, 10, 33, 100, 512};
    for (int draw = 0; draw < N_DRAWS; draw++)
        for (size_t c = 0; c < sizeof top_ks / sizeof *top_ks; c++) {
            for (size_t n = 0; n <= 200; n++) try_topk(k, draw, n, top_ks[c], 1 + n % 3);
            for (size_t n_scans = 1; n_scans <= 16; n_scans++) try_topk(k, draw, 2000 + n_scans, top_ks[c], n_scans);
        }
}

/* ---- pick -------------------------------------------------------------------------------------------------- */

/* Ids in a random order, or none. */
static void try_pick(const woi_kernels *k, int draw, size_t n, size_t top_k, bool with_ids)
{
    enum { MOST = 20000 };
    static scored want[MOST + 512];
    static int32_t shuffled[MOST];
    assert_true(n <= MOST && top_k <= 512);
    float *scores = put(0, n * sizeof *scores, random_u32() % 17, 4), *best = put(1, top_k * sizeof *best, 0, 4);
    int32_t *ids = put(2, n * sizeof *ids, random_u32() % 17, 4), *best_ids = put(3, top_k * sizeof *best_ids, 0, 4);
    size_t n_want = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t other = random_u32() % (i + 1);
        shuffled[i] = shuffled[other];
        shuffled[other] = 7 + (int32_t)i;
    }
    for (size_t i = 0; i < n; i++) {
        scores[i] = draw_score(draw, i);
        ids[i] = shuffled[i];
        if (!isnan(scores[i])) want[n_want++] = (scored){scores[i], with_ids ? ids[i] : (int32_t)i};
    }
    qsort(want, n_want, sizeof *want, best_first);
    const size_t found = k->pick(scores, with_ids ? ids : NULL, n, top_k, best, best_ids);
    CHECK(found == (n_want < top_k ? n_want : top_k), "draw %d n %zu k %zu: %zu found", draw, n, top_k, found);
    for (; n_want < top_k; n_want++) want[n_want] = (scored){-INFINITY, -1};
    for (size_t i = 0; i < top_k; i++)
        CHECK(best_ids[i] == want[i].id && best[i] == want[i].score,
              "draw %d n %zu k %zu: place %zu is (%g, %d), not (%g, %d)", draw, n, top_k, i, (double)best[i],
              best_ids[i], (double)want[i].score, want[i].id);
}

static void test_pick(const woi_kernels *k)
{
    const size_t top_ks[] = {1, 2, 3, 5, 8, 9, 16, 20, 33, 48, 100};
    for (int draw = 0; draw < N_DRAWS; draw++)
        for (size_t c = 0; c < sizeof top_ks / sizeof *top_ks; c++)
            for (size_t n = 0; n <= 300; n += n < 70 ? 1 : 23) {
                try_pick(k, draw, n, top_ks[c], true);
                try_pick(k, draw, n, top_ks[c], false);
            }
    for (int draw = 0; draw < N_DRAWS; draw++)
        for (int with_ids = 0; with_ids < 2; with_ids++) {
            try_pick(k, draw, 1543, 64, with_ids);
            try_pick(k, draw, 16384, 8, with_ids);
        }
}

#endif
