/* tune/: what the time allows, and what is done when it, or the caller, ends the search. */
#include "tuning.h"

#include "base/clock.h"

typedef struct calls {
    int n, enough_at;
} calls;

static int seen_enough(void *ctx)
{
    calls *c = ctx;
    return ++c->n >= c->enough_at;
}

static void the_best_so_far_is_built_when_that_is_enough(void **state)
{
    (void)state;
    pair p = make_pair();
    calls c = {.enough_at = 1};
    wo_tune_options o = quick();
    o.max_time_s = 60;
    o.fixed = 0;
    o.enough = seen_enough;
    o.enough_ctx = &c;
    wo_index *index = NULL;
    wo_curve curve = {.struct_size = sizeof curve};
    /* At once, before FULL is measured: there is nothing to build. */
    assert_int_equal(wo_index_tune(p.s.layer, p.log, p.tune, &o, &index, NULL), WO_ERR_CANCELLED);
    assert_null(index);
    size_t rows = 0;
    for (int when = 40; when <= 160; when += 40) { /* later and later: more and more is tried, and nothing after that */
        c = (calls){.enough_at = when};
        index = tune(&p, p.tune, &o);
        assert_int_equal(c.n, when); /* it is not asked again */
        assert_int_equal(wo_index_curve(index, &curve), 1);
        assert_true(curve.rows >= rows && curve.chosen < curve.rows);
        assert_int_equal(at(&curve, curve.chosen, WOI_CURVE_MET), 1);
        /* Whoever is left with FULL had the screen tried at least. */
        bool screened = false;
        for (size_t i = 0; i < curve.rows; i++) screened |= at(&curve, i, WOI_CURVE_METHOD) == WO_METHOD_SCREEN;
        assert_true(screened || index->options.method != WO_METHOD_FULL);
        rows = curve.rows;
        wo_index_free(index);
    }
    free_pair(&p);
}

/* Whether a later value of the same dial stands for it. */
static bool is_superseded(const wo_curve *curve, size_t row)
{
    const double *own = curve->values + row * curve->columns;
    for (size_t i = row + 1; i < curve->rows && woi_curve_same(own, curve->values + i * curve->columns); i++)
        if (at(curve, i, WOI_CURVE_MET) == 1) return true;
    return false;
}

/* Whoever looks at the curve finds no setting that reached the goal, and was noticeably faster than what was chosen. */
static void assert_none_was_dropped(const wo_curve *curve, int when)
{
    const double own = at(curve, curve->chosen, WOI_CURVE_US);
    for (size_t i = 0; i < curve->rows; i++)
        if (at(curve, i, WOI_CURVE_MET) == 1 && at(curve, i, WOI_CURVE_METHOD) != WO_METHOD_FULL &&
            !is_superseded(curve, i) && at(curve, i, WOI_CURVE_US) < 0.98 * own)
            fail_msg("stopped at call %d: row %zu took %g us, the chosen one, %zu, %g us", when, i,
                     at(curve, i, WOI_CURVE_US), curve->chosen, own);
}

/* Stopped wherever it asks, also between two values of a dial. Neither the last build nor the planner measures again
 * what has rows in f32 by name and is built from the log that it was tuned on. */
static void what_was_measured_before_a_stop_counts(void **state)
{
    (void)state;
    enum { FIRST = 150, LAST = 900, STEP = 41 }; /* a row takes about 60 calls */
    pair p = make_pair();
    wo_tune_options o = quick();
    calls c;
    o.max_time_s = 60;
    o.fixed |= WO_FIX_WEIGHTS;
    o.target = o.target5 = 0.5;
    built.weights = WO_WEIGHTS_F32;
    o.enough = seen_enough;
    o.enough_ctx = &c;
    for (int when = FIRST; when < LAST; when += STEP) {
        c = (calls){.enough_at = when};
        wo_index *index = tune(&p, p.tune, &o);
        wo_curve curve = {.struct_size = sizeof curve};
        assert_int_equal(wo_index_curve(index, &curve), 1);
        assert_true(c.n == when && curve.chosen < curve.rows);
        assert_none_was_dropped(&curve, when);
        wo_index_free(index);
    }
    free_pair(&p);
}

static void the_time_is_held_with_the_last_build(void **state)
{
    (void)state;
    double rows[2][WOI_CURVE_COLUMNS] = {{0}}, learn_s[2] = {0};
    wo_log log = {.n = 4000000};
    woi_tune t = {.log = &log, .rows = rows[0], .learn_s = learn_s, .n_rows = 2, .best = 1, .threads = 1};
    t.route_s = 1000; /* of the router that was learned last, which is not that of the best */
    t.o.max_time_s = 100;
    t.start = woi_now_s() - 30;
    t.train.n = 1000000;
    rows[0][WOI_CURVE_METHOD] = WO_METHOD_FULL;
    rows[0][WOI_CURVE_US] = 1000;
    rows[1][WOI_CURVE_METHOD] = WO_METHOD_EVIDENCE;
    assert_false(woi_tune_is_late(&t, 0.85));
    assert_true(woi_tune_is_late(&t, 0.25));
    rows[1][WOI_CURVE_US] = 30;
    learn_s[1] = 4; /* four times as many queries: 16 s, and for the planner 3.4 s of FULL and 0.6 of the index */
    assert_false(woi_tune_is_late(&t, 0.85) || woi_tune_must_stop(&t));
    t.start -= 49;
    assert_false(woi_tune_is_late(&t, 0.85) || woi_tune_must_stop(&t));
    assert_true(woi_tune_fits_log(&t));
    t.start -= 2;
    assert_true(woi_tune_is_late(&t, 0.85));
    assert_true(woi_tune_must_stop(&t) && t.stopped);
    assert_true(woi_tune_fits_log(&t)); /* what was kept for it */
    t.start -= 5;
    assert_false(woi_tune_fits_log(&t)); /* then from what was learned from */
    t.train_is_log = true;
    assert_true(woi_tune_fits_log(&t));
    /* Of a small time too a third is kept for the whole log. */
    t.train_is_log = t.stopped = false;
    t.o.max_time_s = 5;
    learn_s[1] = 0.35; /* 1.4 s from all of it, the planner's 0.04 */
    rows[0][WOI_CURVE_US] = 10;
    rows[1][WOI_CURVE_US] = 0.3;
    t.start = woi_now_s() - 3.2;
    assert_false(woi_tune_must_stop(&t));
    t.start -= 0.4;
    assert_true(woi_tune_must_stop(&t) && woi_tune_fits_log(&t));
    t.stopped = false;
    /* What takes next to nothing is built from all of it, however late. */
    t.start -= 100;
    assert_false(woi_tune_fits_log(&t));
    learn_s[1] = 0.1;
    assert_true(woi_tune_fits_log(&t));
    t.start += 100;
    t.o.max_time_s = 100;
    learn_s[1] = 4;
    /* FULL's answers to what the index keeps, and to what log Z is learned from: 50 s. */
    t.ask_s = 1e-3;
    t.start = woi_now_s() - 40;
    assert_false(woi_tune_must_stop(&t));
    t.build.partition = 1;
    assert_true(woi_tune_must_stop(&t));
    t.stopped = false;
    t.build.partition = 0;
    t.build.keep = 50000;
    assert_true(woi_tune_must_stop(&t));
    t.build.keep = 0;
    /* Nothing is an answer yet, not even FULL: a search goes on. */
    t.stopped = false;
    t.best = WOI_NO_ROW;
    t.start -= 1000;
    assert_false(woi_tune_must_stop(&t));
    /* Queries to judge by: 15% of the time. */
    t.ask_s = 1e-3;
    assert_int_equal(woi_tune_most_judged(&t), 12288);
    t.ask_s = 1;
    assert_int_equal(woi_tune_most_judged(&t), 4096);
}

static void what_only_full_can_meet_is_answered_at_once(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    wo_curve curve = {.struct_size = sizeof curve};
    o.max_time_s = 60;
    o.target = 1;
    o.fixed = WO_FIX_PRIOR; /* none */
    wo_index *index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(curve.rows <= 2); /* FULL, and the screen */
    wo_index_free(index);
    free_pair(&p);
    scene s = make_scene(5, 4, 400, true, 3);
    wo_log *log = NULL;
    assert_int_equal(wo_log_wrap(s.q, s.n, 4, s.indptr, s.labels, &log, NULL), WO_OK);
    wo_tune_defaults(&o, sizeof o);
    assert_int_equal(wo_index_tune(s.layer, log, NULL, &o, &index, NULL), WO_OK);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(curve.rows <= 2);
    wo_index_free(index);
    wo_log_free(log);
    free_scene(&s);
}

/* A planner that had nothing but what scores every class to look at is soon done. */
static void the_planner_does_not_take_long_where_nothing_was_searched(void **state)
{
    (void)state;
    double rows[3 * WOI_CURVE_COLUMNS] = {0};
    woi_tune t = {.rows = rows, .start = woi_now_s()};
    t.o.max_time_s = 600;
    woi_row(&t, 0)[WOI_CURVE_METHOD] = WO_METHOD_FULL;
    woi_row(&t, 1)[WOI_CURVE_METHOD] = WO_METHOD_SCREEN;
    woi_row(&t, 2)[WOI_CURVE_METHOD] = WO_METHOD_EVIDENCE;
    t.n_rows = 2;
    assert_int_equal(woi_plan_rounds(&t, 0.1), 2);
    assert_int_equal(woi_plan_rounds(&t, 0.9), 1);
    assert_int_equal(woi_plan_rounds(&t, 4), 0);
    t.n_rows = 3;
    assert_int_equal(woi_plan_rounds(&t, 4), 9);
    t.o.max_time_s = 10;
    assert_int_equal(woi_plan_rounds(&t, 4), 2);
    t.start -= 20;
    assert_int_equal(woi_plan_rounds(&t, 4), 0);
}

/* Of a search that found nothing but FULL, the screen is the last that is tried: time is kept for it, and more where it
 * is timed in large batches. */
static void time_is_kept_for_the_screen(void **state)
{
    (void)state;
    double row[WOI_CURVE_COLUMNS] = {[WOI_CURVE_METHOD] = WO_METHOD_FULL, [WOI_CURVE_US] = 100};
    wo_log log = {.n = 1000};
    woi_tune t = {.log = &log, .rows = row, .n_rows = 1, .best = 0, .threads = 1};
    t.o.max_time_s = 20;
    t.start = woi_now_s() - 17;
    t.o.batch = 1; /* 10,000 queries in a quarter of FULL's time, and for the planner 20,000, and 3,400 of FULL */
    assert_false(woi_tune_is_late(&t, 1));
    t.o.batch = 1024; /* 102,400 of them: 2.6 s */
    assert_true(woi_tune_is_late(&t, 1));
    t.o.fixed = WO_FIX_METHOD; /* there is no screen */
    assert_false(woi_tune_is_late(&t, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_so_far_is_built_when_that_is_enough),
        cmocka_unit_test(what_was_measured_before_a_stop_counts),
        cmocka_unit_test(the_time_is_held_with_the_last_build),
        cmocka_unit_test(time_is_kept_for_the_screen),
        cmocka_unit_test(what_only_full_can_meet_is_answered_at_once),
        cmocka_unit_test(the_planner_does_not_take_long_where_nothing_was_searched),
    };
    return cmocka_run_group_tests_name("tune_time", tests, scratch_setup, scratch_teardown);
}
