/* tune/: what is best, and by what: hits where there are labels, whatever FULL finds of them. */
#include "tuning.h"

/* Queries of which all are nothing, so that FULL goes by biases alone, and one label, which it never finds. */
static pair make_blind_pair(void)
{
    pair p = make_pair();
    int32_t last = 0;
    for (int32_t c = 1; c < M; c++)
        if (p.s.b[c] <= p.s.b[last]) last = c;
    memset(p.s.q, 0, p.s.n * D * sizeof *p.s.q);
    for (size_t i = 0; i < p.s.n; i++) p.s.labels[i] = last;
    return p;
}

/* FULL agrees with itself in all, and has not a hit; cells of labels have one at every query. */
static void hits_decide_where_full_has_none(void **state)
{
    (void)state;
    pair p = make_blind_pair();
    wo_curve curve = {.struct_size = sizeof curve};
    wo_tune_options o = quick();
    o.fixed = WO_FIX_PROBES | WO_FIX_FALLBACK;
    o.max_time_s = 30; /* more than it takes */
    o.target_us = 1e6;
    wo_index *index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(at(&curve, 0, WOI_CURVE_METHOD) == WO_METHOD_FULL && at(&curve, 0, WOI_CURVE_P5) == 0);
    assert_true(at(&curve, curve.chosen, WOI_CURVE_P1) == 1 && at(&curve, curve.chosen, WOI_CURVE_AGREEMENT) < 1);
    wo_index_free(index);
    /* Beyond FULL too, and for sure. */
    o.target_us = 0;
    o.target = 1.2;
    index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(curve.target == 1.2 && curve.proof == WO_PROOF_HITS && at(&curve, curve.chosen, WOI_CURVE_P1) == 1);
    wo_index_free(index);
    /* Every index has any share of nothing: below 1 FULL's own answers are the goal. */
    o.target = 0.995;
    index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(curve.target == 0 && curve.target_agree == 0.99 && curve.labelled == N_TUNE);
    wo_index_free(index);
    free_pair(&p);
}

/* Where the start is too slow, fewer cells are looked at and opened, and never more. */
static void what_is_too_slow_is_narrowed(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_curve curve = {.struct_size = sizeof curve};
    wo_tune_options o = quick();
    o.fixed = WO_FIX_METHOD | WO_FIX_ROUTER | WO_FIX_TREE;
    o.max_time_s = 30; /* more than it takes */
    o.target_us = 1e-6;
    o.anyway = 1;
    wo_index *index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    bool wide = false, narrow = false;
    for (size_t i = 0; i < curve.rows; i++) {
        if (at(&curve, i, WOI_CURVE_METHOD) != WO_METHOD_EVIDENCE) continue;
        wide |= at(&curve, i, WOI_CURVE_PROBES) > 2 || at(&curve, i, WOI_CURVE_BEAM) > 4;
        narrow |= at(&curve, i, WOI_CURVE_PROBES) == 1 && at(&curve, i, WOI_CURVE_BEAM) == 1;
    }
    assert_true(narrow && !wide);
    wo_index_free(index);
    free_pair(&p);
}

/* What a row is worth beside FULL, which is worth 1. */
static void quality_is_hits_before_agreement(void **state)
{
    (void)state;
    static const struct {
        double full[2], row[3], quality;
    } cases[] = {
        {{0.5, 0.2}, {0.5, 0.1, 0.3}, 0.75}, {{0, 0}, {0, 0, 0.3}, 0.3},   {{0, 0}, {0.25, 0.05, 0.3}, 1.15},
        {{0, 0.1}, {0, 0, 0.3}, 0.95},       {{0, 0.1}, {0, 0.1, 0.3}, 1}, {{0, 0}, {NAN, NAN, 0.3}, 0.3},
        {{0.5, 0.2}, {0, 0, 1}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double row[WOI_CURVE_COLUMNS] = {0};
        woi_tune t = {.full = {cases[i].full[0], cases[i].full[1]}};
        memcpy(row + WOI_CURVE_P1, cases[i].row, sizeof cases[i].row);
        assert_true(fabs(woi_quality(&t, row) - cases[i].quality) < 1e-12);
        t.o.target_agree = 0.9;
        assert_true(woi_quality(&t, row) == cases[i].row[2]);
    }
}

typedef struct told {
    int times;
    wo_curve goal;
} told;

static void note_early(void *ctx, const wo_curve *goal)
{
    told *t = ctx;
    t->times++;
    t->goal = *goal;
}

/* Once, before the search: what these queries can show, by what, and how many would show it by hits. */
static void what_can_be_shown_is_said_before_the_search(void **state)
{
    (void)state;
    enum { FEW = 30 };
    pair p = make_pair();
    wo_error err;
    wo_log *few = NULL;
    told early = {0};
    const float *rest = p.s.q + (size_t)N * D;
    assert_int_equal(wo_log_wrap(rest, FEW, D, p.s.indptr, p.s.labels + N, &few, &err), WO_OK);
    wo_tune_options o = quick();
    o.fixed = 0;
    o.early = note_early;
    o.early_ctx = &early;
    o.target = 0.995;
    o.target5 = 0.99;
    wo_index *index = tune(&p, few, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(early.times == 1 && early.goal.rows == 0 && early.goal.struct_size == sizeof curve);
    assert_true(early.goal.target == 0.995 && early.goal.target5 == 0.99 && early.goal.n == FEW);
    assert_true(early.goal.labelled == FEW && early.goal.held_out == N / 10);
    assert_true(early.goal.provable == WO_PROOF_AGREEMENT && early.goal.proof == WO_PROOF_NONE);
    assert_true(early.goal.needed > FEW && early.goal.needed == curve.needed);
    wo_index_free(index);
    /* Without labels it is another goal. */
    index = tune(&p, p.bare, &o);
    assert_true(early.times == 2 && early.goal.target == 0 && early.goal.target_agree == 0.99);
    wo_index_free(index);
    o.target_us = 1e6;
    index = tune(&p, p.tune, &o);
    assert_true(early.times == 3 && early.goal.target == 0 && early.goal.target_us == 1e6);
    wo_index_free(index);
    wo_log_free(few);
    free_pair(&p);
}

/* Of 400 pairs in which FULL has 200 hits, and the index misses 20 and has 10 others: a share of 0.95, and an error
 * that the counts alone give. */
static void a_share_has_an_error(void **state)
{
    (void)state;
    static const size_t steps[] = {37, 7}; /* each stretch has its part of all; neighbours are alike */
    const double plain = sqrt(10 + 20 * 0.95 * 0.95 + 180 * 0.05 * 0.05) / 200;
    assert_true(isnan(woi_pairs_error(&(woi_pairs){.unit = 1})));
    for (int alike = 0; alike < 2; alike++) {
        woi_pairs p = {.unit = 1};
        for (size_t i = 0; i < 400; i++) {
            const size_t place = i * steps[alike] % 400;
            woi_pairs_add(&p, i * WOI_STRETCHES / 400, place < 180 || place >= 390, place < 200);
        }
        const double times = woi_pairs_error(&p) / plain;
        assert_true(fabs(p.h / p.f - 0.95) < 1e-12);
        assert_true(alike ? times > 1.5 && times < 1.6 : times > 1 && times < 1.02);
    }
    /* FULL's own hits alone: it may miss one yet. */
    woi_pairs same = {.unit = 1};
    for (size_t i = 0; i < 100; i++) woi_pairs_add(&same, i % WOI_STRETCHES, 1, 1);
    assert_true(fabs(woi_pairs_error(&same) - 1.0 / 101) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_decide_where_full_has_none),
        cmocka_unit_test(what_is_too_slow_is_narrowed),
        cmocka_unit_test(quality_is_hits_before_agreement),
        cmocka_unit_test(what_can_be_shown_is_said_before_the_search),
        cmocka_unit_test(a_share_has_an_error),
    };
    return cmocka_run_group_tests_name("tune_best", tests, scratch_setup, scratch_teardown);
}
