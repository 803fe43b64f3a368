/* search/search*.c, layer/exact.c: scores that are probabilities, and scores that are no numbers. */
#include "engine.h"

enum { K = 5, MOST = 72 };

/* ---- One meaning ------------------------------------------------------------------------------------------- */

/* FULL would answer batches of four and more: its probabilities are other numbers, so it does not. */
static void softmax_is_the_same_in_every_batch(void **state)
{
    (void)state;
    static const int methods[] = {WO_METHOD_POPULAR, WO_METHOD_SLIDE, WO_METHOD_EVIDENCE, EVIDENCE_BY_TREE};
    scene s = make_scene(90, 6, 40, true, 4);
    for (size_t turn = 0; turn < 8; turn++) {
        wo_build_options o = small_options(methods[turn % 4]);
        o.lambda = 0.5;
        o.n_popular = 20;
        if (turn >= 4 && o.method == WO_METHOD_EVIDENCE) o.prior = 1;
        wo_index *index = build(&s, &o);
        index->full = (woi_batches){4, 0};
        asker *a = create(index, &(asked){.scores = WO_SCORES_SOFTMAX, .threads = 2});
        int32_t ids[40 * K], one[K];
        float scores[40 * K], single[K];
        wo_query_stats stats[40];
        wo_error err;
        assert_int_equal(ask_stats(a, s.q, s.n, K, (answers){ids, scores, stats}, &err), WO_OK);
        size_t fewer = 0;
        for (size_t i = 0; i < s.n; i++) {
            assert_int_equal(ask(a, s.q + i * s.d, 1, K, (answers){one, single, NULL}, &err), WO_OK);
            assert_memory_equal(one, ids + i * K, sizeof one);
            assert_memory_equal(single, scores + i * K, sizeof single);
            assert_int_equal(stats[i].exact, 0);
            fewer += stats[i].candidates < s.m;
        }
        assert_true(fewer > 0); /* so that FULL would have said something else */
        free_asker(a);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* ---- Large logits ------------------------------------------------------------------------------------------ */

/* A layer of one dimension: the logits of a query are itself times the weights. */
static wo_index *one_dimension(const float *w, size_t m, wo_method method, wo_layer **layer)
{
    wo_index *index = NULL;
    wo_error err;
    wo_build_options o;
    wo_build_defaults(method, &o, sizeof o);
    if (method == WO_METHOD_SLIDE) o.K = 1;
    o.probes = method == WO_METHOD_SLIDE ? 2 : 1; /* every cell */
    if (wo_layer_wrap(w, NULL, m, 1, layer, &err)) fail_msg("%s", err.text);
    if (wo_index_build(*layer, NULL, &o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static wo_search_call scoring(const float *q, size_t n, wo_scores score, wo_by by)
{
    static int32_t ids[4 * MOST];
    static float scores[4 * MOST];
    static wo_query_stats stats[4];
    return (wo_search_call){.struct_size = sizeof(wo_search_call),
                            .queries = q,
                            .n = n,
                            .k = MOST,
                            .ids = ids,
                            .scores = scores,
                            .stats = stats,
                            .by = by,
                            .score = score};
}

/* Equal logits have equal probabilities, whatever they are, and these sum to 1. */
static void probabilities_of_large_logits_sum_to_one(void **state)
{
    (void)state;
    static const float logits[] = {0, 1, 1e3F, 1e5F, 1e7F, 3e37F, -1e7F};
    float w[MOST];
    for (size_t j = 0; j < MOST; j++) w[j] = 1;
    for (int turn = 0; turn < 2; turn++) {
        wo_layer *layer = NULL;
        wo_index *index = one_dimension(w, MOST, turn ? WO_METHOD_SLIDE : WO_METHOD_FULL, &layer);
        wo_searcher *s = NULL;
        wo_error err;
        assert_int_equal(wo_searcher_create(index, NULL, &s, &err), WO_OK);
        for (size_t i = 0; i < sizeof logits / sizeof *logits; i++)
            for (int log = 0; log < 1 + !turn; log++) {
                const wo_search_call c =
                    scoring(&logits[i], 1, log ? WO_SCORES_LOGPROB : WO_SCORES_SOFTMAX, WO_BY_PLANNER);
                assert_int_equal(wo_search_run(s, &c, &err), WO_OK);
                double sum = 0;
                for (size_t j = 0; j < MOST; j++) sum += log ? exp((double)c.scores[j]) : (double)c.scores[j];
                if (!(fabs(sum - 1) < 1e-5)) fail_msg("of %g: %.9g", (double)logits[i], sum);
            }
        wo_searcher_free(s);
        wo_index_free(index);
        wo_layer_free(layer);
    }
}

/* A product that is beyond a float is the query's fault: it has no answer and a status, whoever answers and whatever
 * the scores are; the others are answered. */
static void scores_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    static const float queries[] = {1, 100, -1, 0};
    static const wo_method methods[] = {WO_METHOD_FULL, WO_METHOD_SLIDE, WO_METHOD_SCREEN};
    float w[MOST];
    for (size_t j = 0; j < MOST; j++) w[j] = j % 2 ? 1e38F : (float)j;
    for (size_t turn = 0; turn < 3 * 3 * 2; turn++) {
        wo_layer *layer = NULL;
        const wo_method method = methods[turn % 3];
        const wo_scores score = (wo_scores)(turn / 3 % 3);
        wo_index *index = one_dimension(w, MOST, method, &layer);
        wo_searcher *s = NULL;
        wo_error err;
        wo_search_call c = scoring(queries, 4, score, turn / 9 ? WO_BY_FULL : WO_BY_PLANNER);
        c.k = K;
        assert_int_equal(wo_searcher_create(index, NULL, &s, &err), WO_OK);
        const wo_status status = wo_search_run(s, &c, &err);
        if (score == WO_SCORES_LOGPROB && method != WO_METHOD_FULL && !(turn / 9)) {
            assert_int_equal(status, WO_ERR_UNSUPPORTED); /* no partition */
        } else {
            assert_int_equal(status, WO_OK);
            for (size_t i = 0; i < 4; i++) {
                assert_int_equal(c.stats[i].status, i == 1 ? WO_ERR_ARGUMENT : WO_OK);
                for (size_t j = 0; j < K; j++) {
                    assert_int_equal(c.ids[i * K + j] < 0, i == 1);
                    assert_int_equal(isfinite(c.scores[i * K + j]), i != 1 || score == WO_SCORES_SOFTMAX);
                }
            }
        }
        float log_z[4];
        c.by = WO_BY_FULL;
        assert_int_equal(wo_log_partition(s, &c, log_z, &err), WO_OK);
        assert_true(isnan(log_z[1]) && isfinite(log_z[0]) && isfinite(log_z[3]));
        wo_searcher_free(s);
        wo_index_free(index);
        wo_layer_free(layer);
    }
}

/* ---- What is refused before building ----------------------------------------------------------------------- */

/* Logits that are all infinity less infinity are no numbers, and no answer: not a query that found nothing. */
static void scores_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    static const wo_method methods[] = {WO_METHOD_FULL, WO_METHOD_SLIDE, WO_METHOD_SCREEN};
    const float q[] = {3e38F, 3e38F, 1, 0};
    float w[2 * MOST];
    for (size_t j = 0; j < MOST; j++) {
        w[2 * j] = 1e30F;
        w[2 * j + 1] = -1e30F;
    }
    for (size_t turn = 0; turn < 3; turn++) {
        wo_layer *layer = NULL;
        wo_index *index = NULL;
        wo_searcher *s = NULL;
        wo_error err;
        wo_build_options o;
        wo_build_defaults(methods[turn], &o, sizeof o);
        o.K = 1; /* and every cell of slide's */
        o.probes = methods[turn] == WO_METHOD_SLIDE ? 2 : 1;
        assert_int_equal(wo_layer_wrap(w, NULL, MOST, 2, &layer, &err), WO_OK);
        assert_int_equal(wo_index_build(layer, NULL, &o, &index, &err), WO_OK);
        assert_int_equal(wo_searcher_create(index, NULL, &s, &err), WO_OK);
        wo_search_call c = scoring(q, 2, WO_SCORES_LOGITS, WO_BY_PLANNER);
        c.k = K;
        assert_int_equal(wo_search_run(s, &c, &err), WO_OK);
        assert_int_equal(c.stats[0].status, WO_ERR_ARGUMENT);
        assert_int_equal(c.ids[0], -1);
        assert_int_equal(c.stats[1].status, WO_OK);
        wo_searcher_free(s);
        wo_index_free(index);
        wo_layer_free(layer);
    }
}

static void options_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    static const size_t places[] = {offsetof(wo_build_options, t1),     offsetof(wo_build_options, t2),
                                    offsetof(wo_build_options, lambda), offsetof(wo_build_options, rate),
                                    offsetof(wo_build_options, prior),  offsetof(wo_build_options, focus)};
    static const char *const names[] = {"t1", "t2", "lambda", "rate", "prior", "focus"};
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    scene s = make_scene(10, 3, 20, true, 3);
    for (int method = WO_METHOD_FULL; method <= WO_METHOD_SCREEN; method++) /* also where it is not used: it is saved */
        for (size_t i = 0; i < 6 * 3; i++) {
            wo_build_options o;
            wo_index *index = NULL;
            wo_error err;
            wo_build_defaults((wo_method)method, &o, sizeof o);
            memcpy((char *)&o + places[i / 3], &bad[i % 3], sizeof(double));
            assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_ERR_ARGUMENT);
            assert_null(index);
            assert_string_equal(err.option, names[i / 3]);
            assert_int_equal(wo_build_check(&o, &err), WO_ERR_ARGUMENT);
        }
    free_scene(&s);
}

/* What is built is saved, and what is saved is opened, also from queries that say nothing or too much. */
static void what_is_built_can_be_opened(void **state)
{
    (void)state;
    static const float lengths[] = {0, 1e-40F, 1e19F, 1e38F};
    for (size_t turn = 0; turn < 4 * 3; turn++) {
        scene s = make_scene(40, 5, 60, true, turn);
        for (size_t i = 0; i < s.n * s.d; i++) s.q[i] = lengths[turn / 3] * (s.q[i] / 6);
        wo_build_options o = small_options(turn % 3 ? EVIDENCE_BY_TREE : WO_METHOD_EVIDENCE);
        wo_index *index = NULL, *again = NULL;
        wo_error err;
        o.partition = turn % 3 == 2;
        if (!wo_index_build(s.layer, s.log, &o, &index, &err)) {
            assert_int_equal(wo_index_save(index, scratch("index"), &err), WO_OK);
            if (wo_index_open(scratch("index"), NULL, &again, &err)) fail_msg("turn %zu: %s", turn, err.text);
        } else {
            if (!o.partition) fail_msg("turn %zu: %s", turn, err.text); /* log Z, of logits that are too large */
        }
        wo_index_free(index);
        wo_index_free(again);
        free_scene(&s);
    }
}

static void weights_that_bf16_cannot_hold_are_refused(void **state)
{
    (void)state;
    static const float fits[] = {0x1.fep127F, -0x1.fep127F, 0x1.fefffep127F}, beyond[] = {0x1.ffp127F, -3.4e38F};
    scene s = make_scene(12, 3, 20, true, 3);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    for (size_t i = 0; i < 5; i++) {
        wo_index *index = NULL;
        wo_error err;
        s.w[7 * 3 + 2] = i < 3 ? fits[i] : beyond[i - 3];
        o.weights = WO_WEIGHTS_BF16;
        assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), i < 3 ? WO_OK : WO_ERR_ARGUMENT);
        if (i >= 3) {
            assert_string_equal(err.option, "weights");
            assert_non_null(strstr(err.text, "weight 2 of class 7 is "));
        }
        wo_index_free(index);
        o.weights = WO_WEIGHTS_F32;
        assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_OK);
        wo_index_free(index);
    }
    const wo_log_writer_options lo = {.struct_size = sizeof lo, .d = 3, .bf16 = 1};
    wo_log_writer *writer = NULL;
    wo_error err;
    const float q[] = {1, 2, 3, 4, 3.4e38F, 6};
    assert_int_equal(wo_log_writer_create(scratch("log"), &lo, &writer, &err), WO_OK);
    assert_int_equal(wo_log_append(writer, q, 1, NULL, NULL, &err), WO_OK);
    assert_int_equal(wo_log_append(writer, q, 2, NULL, NULL, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "query 2 has 3.4e+38 at place 1, which bf16 would make infinite");
    assert_int_equal(wo_log_finish(writer, &err), WO_OK); /* nothing of it was added */
    wo_log_writer_free(writer);
    free_scene(&s);
}

/* The tuner, which would take bf16 rows first, does without. */
static void the_tuner_does_without_bf16_where_it_must(void **state)
{
    (void)state;
    scene s = make_scene(60, 4, 200, true, 8);
    s.w[7 * 4 + 2] = 0x1.ffp127F;
    for (size_t i = 0; i < s.n; i++) s.q[i * 4 + 2] = 0; /* nobody meets it */
    wo_tune_options t;
    wo_build_options kept = {.struct_size = sizeof kept};
    wo_index *index = NULL;
    wo_error err;
    wo_tune_defaults(&t, sizeof t);
    t.target_agree = 0.5;
    t.max_time_s = 1;
    if (wo_index_tune(s.layer, s.log, s.log, &t, &index, &err)) fail_msg("%s", err.text);
    assert_int_equal(wo_index_options(index, &kept), WO_OK);
    assert_int_not_equal(kept.weights, WO_WEIGHTS_BF16);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    size_t column = 0;
    while (column < curve.columns && strcmp(curve.names[column], "weights") != 0) column++;
    assert_true(column < curve.columns);
    for (size_t i = 0; i < curve.rows; i++)
        assert_true(curve.values[i * curve.columns + column] != (double)WO_WEIGHTS_BF16);
    wo_index_free(index);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_is_the_same_in_every_batch),
        cmocka_unit_test(probabilities_of_large_logits_sum_to_one),
        cmocka_unit_test(scores_that_are_not_finite_are_refused),
        cmocka_unit_test(scores_that_are_no_numbers_are_refused),
        cmocka_unit_test(options_that_are_no_numbers_are_refused),
        cmocka_unit_test(what_is_built_can_be_opened),
        cmocka_unit_test(weights_that_bf16_cannot_hold_are_refused),
        cmocka_unit_test(the_tuner_does_without_bf16_where_it_must),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
