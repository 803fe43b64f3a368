/* judge/compare: what the tuner says about an index's quality, by hand values. */
#include "engine.h"

#include "tune/tune.h"

/* Adds n queries of a kind, spread over the log. */
static void spread(woi_pairs *p, size_t n, double h, double f)
{
    for (size_t i = 0; i < n; i++) woi_pairs_add(p, i % WOI_STRETCHES, h, f);
}

static void margins_are_those_of_the_definition(void **state)
{
    (void)state;
    /* 99 queries that both get right, and the one that is added: mean 0.09, sd 0.1 */
    woi_pairs same = {.unit = 1};
    spread(&same, 99, 1, 1);
    assert_float_equal(woi_pairs_margin(&same, 0.9), 0.09 - 2.58 * 0.01, 1e-6);
    /* 1,000 queries, FULL right at 800, the index at 790 of them and at 4 others; t = 1: x = -1 at 10 and at the one
     * that is added, +1 at 4 */
    woi_pairs some = {.unit = 1};
    spread(&some, 790, 1, 1);
    spread(&some, 10, 0, 1);
    spread(&some, 4, 1, 0);
    spread(&some, 196, 0, 0);
    const double mean = -7.0 / 1001, sd = sqrt((15 - 1001 * mean * mean) / 1000);
    assert_float_equal(woi_pairs_margin(&some, 1), mean - 2.58 * sd / sqrt(1001), 1e-6);
    const double share = woi_pairs_share(&some);
    assert_true(share > 0.97 && share < 0.99);
    assert_true(woi_pairs_margin(&some, share) >= 0 && woi_pairs_margin(&some, share + 1e-6) < 0);
    /* One answer of five is a fifth. */
    woi_pairs five = {.unit = 0.2};
    spread(&five, 99, 1, 1);
    assert_true(woi_pairs_margin(&five, 0.9) > woi_pairs_margin(&same, 0.9));
}

/* 64 misses of 32,000, two in each stretch or all of them in one: an article that the index knows nothing about. */
static void misses_side_by_side_count_for_more(void **state)
{
    (void)state;
    woi_pairs apart = {.unit = 1}, together = {.unit = 1};
    spread(&apart, 64, 0, 1);
    for (int i = 0; i < 64; i++) woi_pairs_add(&together, 7, 0, 1);
    for (int i = 0; i < 936; i++) woi_pairs_add(&together, 7, 1, 1);
    for (int i = 0; i < 31000; i++) woi_pairs_add(&together, (size_t)i / 1000 + (i >= 7000), 1, 1);
    spread(&apart, 31936, 1, 1);
    const double mean = -65.0 / 32001, sd = sqrt((65 - 32001 * mean * mean) / 32000);
    assert_float_equal(woi_pairs_margin(&apart, 1), mean - 2.58 * sd / sqrt(32001), 1e-9);
    const double sum = 62 * 62 + 31 * 2 * 2, error = sqrt(sum * 32 / 31) / 32000; /* two misses each were expected */
    assert_float_equal(woi_pairs_margin(&together, 1), mean - 2.744 * error, 1e-9);
}

/* Labels in two stretches of the log alone, and an index that is as good as FULL. */
static void stretches_without_labels_are_no_misses(void **state)
{
    (void)state;
    woi_pairs everywhere = {.unit = 1}, here = {.unit = 1};
    spread(&everywhere, 3200, 1, 1);
    for (int i = 0; i < 3200; i++) woi_pairs_add(&here, i % 5 == 0, 1, 1);
    assert_true(woi_pairs_share(&here) == woi_pairs_share(&everywhere) && woi_pairs_share(&here) > 0.998);
}

/* A log of one class, which FULL hardly knows: 200 hits where FULL has 2 are more than any share that is asked for. */
static void more_than_full_is_for_sure(void **state)
{
    (void)state;
    woi_pairs p = {.unit = 1};
    for (int i = 0; i < 200; i++) woi_pairs_add(&p, (size_t)i * WOI_STRETCHES / 200, 1, i == 3 || i == 90);
    assert_true(woi_pairs_margin(&p, 1) > 0.3 && woi_pairs_share(&p) > 1.99);
    /* Half as many hits as the best is not made better by where FULL's lie. */
    woi_pairs half = {.unit = 1};
    for (int i = 0; i < 200; i++) woi_pairs_add(&half, (size_t)i * WOI_STRETCHES / 200, i % 2, i == 3 || i == 90);
    assert_true(woi_pairs_margin(&half, 1) > 0 && woi_pairs_margin(&half, 1) < woi_pairs_margin(&p, 1));
}

/* The rule of three: without a difference among n queries, differences of 3 / n cannot be ruled out. */
static void few_queries_show_little(void **state)
{
    (void)state;
    static const size_t ns[] = {100, 300, 1000, 10000};
    for (size_t i = 0; i < 4; i++) {
        woi_pairs p = {.unit = 1};
        spread(&p, ns[i], 1, 1);
        const double n = (double)ns[i];
        assert_true(woi_pairs_share(&p) < 1 - 2 / n && woi_pairs_share(&p) > 1 - 3.8 / n);
    }
    const woi_pairs none = {.unit = 1};
    assert_true(isnan(woi_pairs_share(&none)) && woi_pairs_margin(&none, 0.5) < 0);
}

/* Rows that int8 cannot tell apart, so that it keeps the lowest ids: 6 of them for one answer, 10 for five. The best,
 * 8, is among those for five. */
static void an_index_is_judged_as_it_will_answer(void **state)
{
    (void)state;
    enum { ROWS = 60, BEST = 8 };
    float w[2 * ROWS];
    const float q[] = {0, 1};
    const int64_t indptr[] = {0, 1};
    const int32_t label = BEST;
    for (int i = 0; i < ROWS; i++) {
        w[2 * i] = 1000;
        w[2 * i + 1] = i == BEST ? 3 : 0.001F * (float)i;
    }
    wo_layer *layer;
    wo_log *log;
    wo_index *index;
    wo_error err;
    assert_int_equal(wo_layer_wrap(w, NULL, ROWS, 2, &layer, &err), WO_OK);
    assert_int_equal(wo_log_wrap(q, 1, 2, indptr, &label, &log, &err), WO_OK);
    wo_build_options o;
    wo_build_defaults(WO_METHOD_POPULAR, &o, sizeof o);
    o.n_popular = ROWS;
    o.weights = WO_WEIGHTS_INT8;
    if (wo_index_build(layer, log, &o, &index, &err)) fail_msg("%s", err.text);
    for (size_t k = 1; k <= 5; k += 4) {
        woi_judge judge;
        woi_judged judged;
        assert_int_equal(
            woi_judge_make(&(woi_judge_call){.rows = &layer->dense, .log = log, .k = k, .threads = 1}, &judge, &err),
            WO_OK);
        assert_int_equal(woi_judge_index(&judge, index, &judged, &err), WO_OK);
        assert_true(judged.of[WOI_AT_1].h == (k == 5) && judged.of[WOI_AT_1].f == 1);
        assert_true(judged.of[WOI_AT_5].h == 1.0 / 5);
        assert_true(k == 5 || judged.of[WOI_AGREE].h == 0);
        woi_judge_free(&judge);
        /* The same of the index where FULL is not asked. */
        assert_int_equal(woi_judge_make(&(woi_judge_call){.log = log, .k = k, .threads = 1}, &judge, &err), WO_OK);
        assert_int_equal(woi_judge_index(&judge, index, &judged, &err), WO_OK);
        assert_true(judged.of[WOI_AT_1].h == (k == 5) && judged.of[WOI_AT_5].h == 1.0 / 5);
        assert_true(judged.of[WOI_AT_1].f == 0 && judged.of[WOI_AT_5].f == 0 && judged.of[WOI_AGREE].n == 0);
        woi_judge_free(&judge);
    }
    assert_true(index->same_five == 0.2); /* the best; the others that int8 keeps are none of FULL's */
    index->full = (woi_batches){1, 0};    /* which says nothing about the tables */
    index->same_five = 1;
    assert_int_equal(woi_index_complete(index, log, &err), WO_OK);
    assert_true(index->same_five == 0.2);
    wo_index_free(index);
    wo_log_free(log);
    wo_layer_free(layer);
}

/* A query whose logits are infinite has no answers, of FULL's neither, and says nothing about agreement. */
static void infinite_scores_are_no_answers(void **state)
{
    (void)state;
    const float w[] = {2, 1, 3}, q[] = {3e38F, 1};
    const int64_t indptr[] = {0, 1, 2};
    const int32_t labels[] = {0, 2};
    wo_layer *layer;
    wo_log *log;
    wo_error err;
    woi_judge judge;
    woi_judged judged;
    assert_int_equal(wo_layer_wrap(w, NULL, 3, 1, &layer, &err), WO_OK);
    assert_int_equal(wo_log_wrap(q, 2, 1, indptr, labels, &log, &err), WO_OK);
    const woi_judge_call call = {.rows = &layer->dense, .log = log, .k = 3, .threads = 1};
    assert_int_equal(woi_judge_make(&call, &judge, &err), WO_OK);
    assert_int_equal(woi_judge_index(&judge, NULL, &judged, &err), WO_OK);
    assert_true(judged.of[WOI_AT_1].n == 2 && judged.of[WOI_AT_1].f == 1);
    assert_int_equal(judged.of[WOI_AGREE].n, 1);
    woi_judge_free(&judge);
    wo_log_free(log);
    wo_layer_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(margins_are_those_of_the_definition),
        cmocka_unit_test(misses_side_by_side_count_for_more),
        cmocka_unit_test(stretches_without_labels_are_no_misses),
        cmocka_unit_test(few_queries_show_little),
        cmocka_unit_test(more_than_full_is_for_sure),
        cmocka_unit_test(an_index_is_judged_as_it_will_answer),
        cmocka_unit_test(infinite_scores_are_no_answers),
    };
    return cmocka_run_group_tests_name("judge", tests, NULL, NULL);
}
