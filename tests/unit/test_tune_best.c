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
    o.fixed = 0;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_decide_where_full_has_none),
        cmocka_unit_test(quality_is_hits_before_agreement),
    };
    return cmocka_run_group_tests_name("tune_best", tests, scratch_setup, scratch_teardown);
}
