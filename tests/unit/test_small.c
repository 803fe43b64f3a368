/* Rows in fewer bits, queries that an index knows little about, and batches that FULL answers faster. */
#include "engine.h"

#include <unistd.h>

static void search_all(const scene *s, asker *searcher, size_t k, int32_t *ids, float *scores, wo_query_stats *stats)
{
    wo_error err;
    if (ask_stats(searcher, s->q, s->n, k, (answers){ids, scores, stats}, &err)) fail_msg("%s", err.text);
}

/* The index itself, or what its file holds. */
static wo_index *through_a_file(const wo_index *index, const wo_layer *layer)
{
    const char *path = scratch("small");
    wo_error err;
    wo_index *opened = NULL;
    const wo_open_options oo = {.struct_size = sizeof oo, .layer = layer};
    if (wo_index_save(index, path, &err) || wo_index_open(path, &oo, &opened, &err)) fail_msg("%s", err.text);
    return opened;
}

/* Small whole numbers are exact in bf16; the int8 screen keeps more than are asked for, and these are scored exactly.
 */
static void small_rows_find_the_same(void **state)
{
    (void)state;
    static const int methods[] = {WO_METHOD_POPULAR, WO_METHOD_SLIDE, WO_METHOD_EVIDENCE, EVIDENCE_BY_TREE};
    static const size_t ks[] = {1, 3, 40, 200};
    for (uint64_t turn = 0; turn < 24; turn++) {
        scene s = make_scene(90, 5 + turn, 60, turn % 2, turn);
        wo_build_options o = small_options(methods[turn % 4]);
        o.probes = 2;
        o.lambda = 0.01;
        o.n_popular = 80;
        wo_index *full = build(&s, &o);
        static const wo_weights precisions[] = {WO_WEIGHTS_BF16, WO_WEIGHTS_INT8, WO_WEIGHTS_INT8_BF16};
        o.weights = precisions[turn / 4 % 3];
        wo_index *built = build(&s, &o), *opened = through_a_file(built, NULL);
        assert_true(isnan(full->same_best) && isnan(opened->same_best));
        assert_true(built->same_best == 1 || o.weights != WO_WEIGHTS_BF16);
        asker *exact = create(full, NULL), *searchers[] = {create(built, NULL), create(opened, NULL)};
        for (size_t i = 0; i < 4; i++) {
            const size_t k = ks[i], n = s.n * k;
            int32_t *ids = room(n, sizeof *ids), *own = room(n, sizeof *own);
            float *scores = room(n, sizeof *scores), *own_scores = room(n, sizeof *own_scores);
            search_all(&s, exact, k, ids, scores, NULL);
            for (int which = 0; which < 2; which++) {
                search_all(&s, searchers[which], k, own, own_scores, NULL);
                /* Of equal logits the screen may keep others. */
                assert_memory_equal(own_scores, scores, n * sizeof *scores);
                if (o.weights == WO_WEIGHTS_BF16) assert_memory_equal(own, ids, n * sizeof *ids);
                for (size_t at = 0; at < n; at++)
                    if (own[at] >= 0)
                        assert_true((double)own_scores[at] == logit(&s, s.q + at / k * s.d, (size_t)own[at]));
            }
            free(ids);
            free(own);
            free(scores);
            free(own_scores);
        }
        wo_error err;
        int32_t id;
        float score;
        assert_int_equal(
            ask_exact(searchers[1], s.q, 1, 1, (answers){&id, &score, NULL}, &err), /* int8 is beside f32 */
            o.weights == WO_WEIGHTS_INT8 ? WO_OK : WO_ERR_UNSUPPORTED);
        for (int which = 0; which < 2; which++) free_asker(searchers[which]);
        free_asker(exact);
        wo_index_free(opened);
        wo_index_free(built);
        wo_index_free(full);
        free_scene(&s);
    }
}

/* Weights of any size: the best answers hardly change, and logits only by the rounding of the rows. */
static void rounding_is_small(void **state)
{
    (void)state;
    enum { K = 5 };
    scene s = make_scene(400, 40, 200, true, 5);
    for (size_t i = 0; i < s.m * s.d; i++) s.w[i] = woi_rng_normal(5, 9, i);
    wo_build_options o = small_options(WO_METHOD_POPULAR);
    o.n_popular = 400;
    static const wo_weights precisions[] = {WO_WEIGHTS_BF16, WO_WEIGHTS_INT8, WO_WEIGHTS_INT8_BF16};
    for (size_t which = 0; which < 3; which++) {
        const wo_weights weights = o.weights = precisions[which];
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        int32_t ids[200 * K];
        float scores[200 * K];
        search_all(&s, searcher, K, ids, scores, NULL);
        size_t same = 0;
        for (size_t i = 0; i < s.n; i++) {
            int32_t expected[K];
            double logits[K];
            brute_force(&s, s.q + i * s.d, &(rules){0}, K, expected, logits);
            same += ids[i * K] == expected[0];
            double size = 0;
            for (size_t j = 0; j < s.d; j++) size += fabs((double)s.q[i * s.d + j]) * 4;
            const double close = weights == WO_WEIGHTS_INT8 ? 0x1p-22 : 0x1p-8;
            for (size_t at = 0; at < K; at++) /* int8 decides which, f32 or bf16 how much */
                if (weights == WO_WEIGHTS_BF16 || ids[i * K + at] == expected[at])
                    assert_true(fabs((double)scores[i * K + at] - logits[at]) < close * size);
        }
        assert_true(same > s.n * 95 / 100);
        wo_index_info info = {.struct_size = sizeof info};
        wo_index_describe(index, &info);
        assert_true(info.same_best == (double)same / (double)s.n && info.same_five > 0.95);
        assert_true(weights == WO_WEIGHTS_INT8 || info.same_five < 1);
        free_asker(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* Rows near the smallest numbers that a float has: int8 still tells them apart, in cells and in a screen. */
static void tiny_rows_are_told_apart(void **state)
{
    (void)state;
    enum { M = 400 };
    static const float sizes[] = {1, 1e-31F, 1e-36F, 1e-37F};
    scene s = make_scene(M, 40, 200, false, 5);
    wo_build_options o;
    for (size_t turn = 0; turn < 2 * sizeof sizes / sizeof *sizes; turn++) {
        for (size_t i = 0; i < s.m * s.d; i++) s.w[i] = sizes[turn / 2] * woi_rng_normal(5, 9, i);
        for (size_t i = 0; turn == 0 && i < s.n * s.d; i++) s.q[i] /= 20; /* lengths near 1 */
        if (turn % 2 == 0) {
            o = small_options(WO_METHOD_POPULAR);
            o.n_popular = M;
            o.weights = WO_WEIGHTS_INT8;
        } else {
            wo_build_defaults(WO_METHOD_SCREEN, &o, sizeof o);
        }
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        int32_t ids[200];
        float scores[200];
        search_all(&s, searcher, 1, ids, scores, NULL);
        size_t same = 0;
        for (size_t i = 0; i < s.n; i++) {
            int32_t expected;
            double best;
            brute_force(&s, s.q + i * s.d, &(rules){0}, 1, &expected, &best);
            same += ids[i] == expected;
        }
        if (same <= s.n * 95 / 100) fail_msg("rows of %g: %zu of %zu", (double)sizes[turn / 2], same, s.n);
        free_asker(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

static void without_f32_rows_there_is_no_full(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(30, 6, 40, true, 6);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    o.weights = WO_WEIGHTS_BF16;
    o.fallback = 5;
    wo_index *index = build(&s, &o), *alone = through_a_file(index, NULL), *with = through_a_file(index, s.layer);
    asked so = {0};
    int32_t id;
    float score;
    asker *searcher = create(alone, &so);
    assert_int_equal(ask(searcher, s.q, 1, 1, (answers){&id, &score, NULL}, &err), WO_OK);
    assert_int_equal(ask_exact(searcher, s.q, 1, 1, (answers){&id, &score, NULL}, &err), WO_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no f32 rows"));
    free_asker(searcher);
    so.exact_fallback = 1;
    searcher = create(alone, &so);
    assert_int_equal(ask(searcher, s.q, 1, 1, (answers){&id, &score, NULL}, &err), WO_ERR_UNSUPPORTED);
    free_asker(searcher);
    alone->full.from = 1; /* what cannot be is passed over */
    so.exact_fallback = 0;
    searcher = create(alone, &so);
    wo_query_stats stats;
    assert_int_equal(ask_stats(searcher, s.q, 1, 1, (answers){&id, &score, &stats}, &err), WO_OK);
    assert_int_equal(stats.exact, 0);
    free_asker(searcher);
    searcher = create(with, NULL);
    assert_int_equal(ask_exact(searcher, s.q, 1, 1, (answers){&id, &score, NULL}, &err), WO_OK);
    free_asker(searcher);
    wo_index_free(index);
    wo_index_free(alone);
    wo_index_free(with);
    free_scene(&s);
}

/* The training queries of the cells that a query opens, by asking for the cells of all of them. */
static void little_evidence_opens_more(void **state)
{
    (void)state;
    for (int tree = 0; tree < 2; tree++) {
        scene s = make_scene(60, 8, 150, true, 7 + (uint64_t)tree);
        wo_build_options o = small_options(tree ? EVIDENCE_BY_TREE : WO_METHOD_EVIDENCE);
        o.beam = 4;
        o.lambda = 0.3;
        o.thin = 0;
        wo_index *plain = build(&s, &o);
        o.fallback = tree ? 2 : 40; /* some of the cells have fewer */
        wo_index *careful = build(&s, &o), *opened = through_a_file(careful, NULL);
        assert_memory_equal(opened->cells.queries, careful->cells.queries, careful->cells.n * sizeof(uint32_t));
        uint64_t held = 0;
        for (size_t c = 0; c < careful->cells.n; c++) held += careful->cells.queries[c];
        assert_int_equal(held, s.n * (tree ? 1 : o.L));
        asker *narrow = create(plain, NULL), *own = create(opened, NULL);
        asked so = {0};
        so.exact_fallback = 1;
        asker *exact = create(careful, &so);
        enum { K = 3, N = 150 };
        int32_t ids[N * K], own_ids[N * K], exact_ids[N * K], full_ids[N * K];
        float scores[N * K], own_scores[N * K], exact_scores[N * K], full_scores[N * K];
        wo_query_stats stats[N], own_stats[N], exact_stats[N];
        wo_error err;
        search_all(&s, narrow, K, ids, scores, stats);
        search_all(&s, own, K, own_ids, own_scores, own_stats);
        search_all(&s, exact, K, exact_ids, exact_scores, exact_stats);
        assert_int_equal(ask_exact(narrow, s.q, s.n, K, (answers){full_ids, full_scores, NULL}, &err), WO_OK);
        size_t n_wider = 0;
        for (size_t i = 0; i < s.n; i++) {
            assert_int_equal(stats[i].wider + stats[i].exact, 0);
            n_wider += own_stats[i].wider;
            const bool wider = own_stats[i].wider;
            assert_true(wider ? own_stats[i].cells >= stats[i].cells && own_stats[i].candidates >= stats[i].candidates
                              : own_stats[i].cells == stats[i].cells && own_stats[i].candidates == stats[i].candidates);
            assert_int_equal(exact_stats[i].exact, wider);
            const size_t at = i * K, bytes = K * sizeof *ids;
            if (!wider) assert_memory_equal(own_ids + at, ids + at, bytes);
            assert_memory_equal(exact_ids + at, wider ? full_ids + at : ids + at, bytes);
            assert_memory_equal(exact_scores + at, wider ? full_scores + at : scores + at, bytes);
            int32_t candidates[60];
            size_t n;
            assert_int_equal(ask_candidates(own, s.q + i * s.d, candidates, 60, &n, &err), WO_OK);
            assert_int_equal(n, own_stats[i].candidates);
        }
        assert_true(n_wider > 0 && n_wider < s.n);
        free_asker(narrow);
        free_asker(own);
        free_asker(exact);
        wo_index_free(plain);
        wo_index_free(careful);
        wo_index_free(opened);
        free_scene(&s);
    }
}

/* As many training queries as it takes, counted by hand: a cell of three queries, a threshold of three and of four. */
static void the_threshold_is_a_number_of_queries(void **state)
{
    (void)state;
    wo_error err;
    const float w[] = {1, 0, 0, 1}, q[] = {1, 0, 1, 0, 1, 0};
    wo_layer *layer;
    wo_log *log;
    assert_int_equal(wo_layer_wrap(w, NULL, 2, 2, &layer, &err), WO_OK);
    assert_int_equal(wo_log_wrap(q, 3, 2, NULL, NULL, &log, &err), WO_OK);
    for (uint32_t fallback = 2; fallback <= 5; fallback++) {
        wo_build_options o;
        wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
        o.K = 2;
        o.L = 1;
        o.learner = WO_LEARNER_NONE;
        o.source = WO_SOURCE_TOP;
        o.source_k = 1;
        o.fallback = fallback;
        wo_index *index;
        if (wo_index_build(layer, log, &o, &index, &err)) fail_msg("%s", err.text);
        asker *searcher = create(index, NULL);
        int32_t id;
        float score;
        wo_query_stats stats;
        assert_int_equal(ask_stats(searcher, q, 1, 1, (answers){&id, &score, &stats}, &err), WO_OK);
        assert_int_equal(stats.wider, fallback > 3);
        assert_int_equal(stats.cells, fallback > 3 ? 4 : 1);
        free_asker(searcher);
        wo_index_free(index);
    }
    wo_layer_free(layer);
    wo_log_free(log);
}

/* Four times the probes, or all cells of a table; with all of them open already there is nothing to widen. */
static void wider_ends_with_the_cells(void **state)
{
    (void)state;
    scene s = make_scene(40, 6, 50, true, 12);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    o.K = 3;
    o.L = 1;
    o.fallback = 1000;
    wo_index *index = build(&s, &o);
    for (uint32_t probes = 1; probes <= 8; probes++) {
        asked so = {0};
        so.probes = probes;
        asker *searcher = create(index, &so);
        int32_t ids[50];
        float scores[50];
        wo_query_stats stats[50];
        search_all(&s, searcher, 1, ids, scores, stats);
        for (size_t i = 0; i < s.n; i++) {
            assert_int_equal(stats[i].wider, probes < 8);
            assert_int_equal(stats[i].cells, 4 * probes < 8 ? 4 * probes : 8);
        }
        free_asker(searcher);
    }
    wo_index_free(index);
    free_scene(&s);
}

/* int8 has no scale for them. */
static void tiny_queries_are_not_screened(void **state)
{
    (void)state;
    scene s = make_scene(90, 6, 60, false, 13);
    for (size_t i = 0; i < s.n * s.d; i++) s.q[i] *= 0x1p-110f;
    wo_build_options o = small_options(WO_METHOD_POPULAR);
    o.n_popular = 90;
    o.weights = WO_WEIGHTS_INT8;
    wo_index *index = build(&s, &o);
    asker *searcher = create(index, NULL);
    int32_t ids[60];
    float scores[60];
    search_all(&s, searcher, 1, ids, scores, NULL);
    for (size_t i = 0; i < s.n; i++) {
        int32_t expected;
        double logit;
        brute_force(&s, s.q + i * s.d, &(rules){0}, 1, &expected, &logit);
        assert_true((double)scores[i] == logit);
    }
    free_asker(searcher);
    wo_index_free(index);
    free_scene(&s);
}

/* Sums of more products do not fit in int32. */
static void long_rows_are_not_for_int8(void **state)
{
    (void)state;
    enum { LONG = WOI_MAX_I8 + 1 };
    wo_error err;
    wo_layer *layer;
    wo_log *log;
    wo_index *index;
    float *w = room(LONG, sizeof *w);
    w[0] = 1;
    assert_int_equal(wo_layer_wrap(w, NULL, 1, LONG, &layer, &err), WO_OK);
    assert_int_equal(wo_log_wrap(w, 1, LONG, NULL, NULL, &log, &err), WO_OK);
    wo_build_options o = small_options(WO_METHOD_POPULAR);
    o.weights = WO_WEIGHTS_INT8;
    assert_int_equal(wo_index_build(layer, log, &o, &index, &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "131072 numbers are too long for int8: at most 131071"));
    o = small_options(EVIDENCE_BY_TREE);
    assert_int_equal(wo_index_build(layer, log, &o, &index, &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "131072 numbers are too long for a tree: at most 131071"));
    wo_layer_free(layer);
    wo_log_free(log);
    free(w);
}

/* The quality of the batches that are asked for: FULL's, or that of the cells. */
static void evaluation_asks_whom_the_planner_says(void **state)
{
    (void)state;
    scene s = make_scene(40, 6, 150, true, 8);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    index->full = (woi_batches){8, 100};
    static const uint32_t batches[] = {1, 7, 8, 100, 101, 1024};
    for (size_t i = 0; i < 6; i++) {
        wo_eval_options eo;
        wo_eval_result r = {.struct_size = sizeof r};
        wo_error err;
        wo_eval_defaults(&eo, sizeof eo);
        eo.skip_timing = 1;
        eo.batch = batches[i];
        assert_int_equal(wo_evaluate(index, NULL, s.log, &eo, &r, &err), WO_OK);
        const bool full = batches[i] >= 8 && batches[i] <= 100;
        assert_true(r.exact_share == full);
        assert_true((r.sample_size == 40) == full);
    }
    wo_index_free(index);
    free_scene(&s);
}

static void batches_that_full_is_faster_at_are_its(void **state)
{
    (void)state;
    scene s = make_scene(40, 6, 50, true, 8);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    index->full = (woi_batches){3, 4};
    wo_index_info info = {.struct_size = sizeof info};
    wo_index_describe(index, &info);
    assert_true(info.full_from == 3 && info.full_to == 4);
    asker *searcher = create(index, NULL);
    for (size_t n = 1; n <= 5; n++) {
        int32_t ids[10], full[10];
        float scores[10], full_scores[10];
        wo_query_stats stats[5];
        wo_error err;
        assert_int_equal(ask_stats(searcher, s.q, n, 2, (answers){ids, scores, stats}, &err), WO_OK);
        assert_int_equal(ask_exact(searcher, s.q, n, 2, (answers){full, full_scores, NULL}, &err), WO_OK);
        for (size_t i = 0; i < n; i++) assert_int_equal(stats[i].exact, n == 3 || n == 4);
        if (n == 3 || n == 4) assert_memory_equal(ids, full, 2 * n * sizeof *ids);
    }
    free_asker(searcher);
    wo_index_free(index);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_rows_find_the_same),
        cmocka_unit_test(rounding_is_small),
        cmocka_unit_test(tiny_rows_are_told_apart),
        cmocka_unit_test(without_f32_rows_there_is_no_full),
        cmocka_unit_test(little_evidence_opens_more),
        cmocka_unit_test(the_threshold_is_a_number_of_queries),
        cmocka_unit_test(wider_ends_with_the_cells),
        cmocka_unit_test(tiny_queries_are_not_screened),
        cmocka_unit_test(long_rows_are_not_for_int8),
        cmocka_unit_test(evaluation_asks_whom_the_planner_says),
        cmocka_unit_test(batches_that_full_is_faster_at_are_its),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
