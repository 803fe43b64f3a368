/* tune/: the tuner: that its goals are reached, what is fixed is kept, and a file keeps its curve. Times are
 * whatever they are: nothing here depends on them but which setting wins. */
#include "tuning.h"

#include "index/options.h"

static void assert_goal_is_reached(const pair *p, const wo_index *index, double target)
{
    wo_eval_options eo;
    wo_eval_result r = {.struct_size = sizeof r};
    wo_error err;
    wo_eval_defaults(&eo, sizeof eo);
    eo.skip_timing = 1;
    eo.threads = 1;
    assert_int_equal(wo_evaluate(index, NULL, p->tune, &eo, &r, &err), WO_OK);
    assert_true(r.p_at_1 >= target * r.full_p_at_1);
}

/* The options that it names give the same index. */
static void assert_named_is_the_same(const pair *p, const wo_index *index)
{
    wo_build_options named = index->options;
    wo_index *again = NULL;
    wo_error err;
    named.threads = 1;
    if (wo_index_build(p->s.layer, p->log, &named, &again, &err)) fail_msg("%s", err.text);
    assert_int_equal(again->cells.n, index->cells.n);
    assert_memory_equal(again->cells.offsets, index->cells.offsets, (index->cells.n + 1) * sizeof(uint32_t));
    assert_memory_equal(again->cells.ids, index->cells.ids, index->cells.offsets[index->cells.n] * sizeof(int32_t));
    wo_index_free(again);
}

/* Bisection: what it kept reaches the goal, the next cheaper value that it tried does not. */
static void the_dial_stops_at_the_goal(void **state)
{
    (void)state;
    pair p = make_pair();
    const wo_tune_options o = quick();
    wo_index *index = tune(&p, p.tune, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_int_equal(curve.rows, 8); /* the last is FULL, to compare with */
    assert_int_equal(at(&curve, 7, WOI_CURVE_METHOD), WO_METHOD_FULL);
    assert_int_equal(curve.columns, WOI_CURVE_COLUMNS);
    assert_int_equal(curve.n, N_TUNE);
    const double chosen = at(&curve, curve.chosen, WOI_CURVE_LAMBDA);
    double cheaper = 2, last_classes = 0;
    for (size_t i = 0; i < curve.rows - 1; i++) {
        const double lambda = at(&curve, i, WOI_CURVE_LAMBDA);
        assert_true((at(&curve, i, WOI_CURVE_MET) == 1) == (lambda <= chosen));
        assert_true((at(&curve, i, WOI_CURVE_CHOSEN) == 1) == (i == curve.chosen));
        if (lambda > chosen) cheaper = fmin(cheaper, lambda);
        for (size_t j = 0; j < i; j++)
            assert_true((lambda - at(&curve, j, WOI_CURVE_LAMBDA)) *
                            (at(&curve, i, WOI_CURVE_CLASSES) - at(&curve, j, WOI_CURVE_CLASSES)) <=
                        0);
        last_classes = at(&curve, i, WOI_CURVE_CLASSES);
    }
    assert_true(last_classes >= 1 && cheaper > chosen && (cheaper == 2 || cheaper < 1.1 * chosen));
    assert_true(index->options.lambda == chosen);
    assert_goal_is_reached(&p, index, o.target);
    /* Lambda has as many digits as are printed. */
    char digits[32];
    snprintf(digits, sizeof digits, "%.4g", chosen);
    assert_true(strtod(digits, NULL) == chosen);
    assert_named_is_the_same(&p, index);
    char text[128], shorter[12];
    const size_t length = wo_curve_text(&curve, curve.chosen, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "evidence tree 16x16 r=8 beam=2 probes=2 lambda="));
    assert_int_equal(wo_curve_text(&curve, curve.chosen, shorter, sizeof shorter), length);
    assert_int_equal(wo_curve_text(&curve, curve.rows, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_string_equal(shorter, "evidence tr");
    wo_index_free(index);
    free_pair(&p);
}

/* A tree of rows is learned by what queries need too, and anew for another source. */
static void a_tree_of_rows_is_tuned(void **state)
{
    (void)state;
    pair p = make_pair();
    for (int labels = 0; labels < 2; labels++) {
        wo_tune_options o = quick();
        built.rows = 1;
        built.source = labels ? WO_SOURCE_LABELS : WO_SOURCE_BOTH;
        wo_index *index = tune(&p, p.tune, &o);
        assert_int_equal(index->options.rows, 1);
        assert_named_is_the_same(&p, index);
        wo_index_free(index);
    }
    wo_build_options o = *quick().build;
    woi_tune t = {.layer = p.s.layer, .from = p.log, .threads = 1};
    wo_index *apart = NULL;
    wo_error err;
    o.rows = 1;
    o.source = WO_SOURCE_TOP;
    assert_int_equal(woi_tune_route(&t, p.log, &o, &err), WO_OK);
    o.source = WO_SOURCE_LABELS;
    assert_int_equal(woi_tune_route(&t, p.log, &o, &err), WO_OK);
    assert_int_equal(wo_index_build(p.s.layer, p.log, &o, &apart, &err), WO_OK);
    assert_memory_equal(t.bench->tree.leaves, apart->tree.leaves, woi_tree_n_cells(&apart->tree) * D);
    wo_index_free(apart);
    woi_tune_bench_free(&t);
    for (int i = 0; i < 2; i++) woi_sparse_free(&t.needs[i]);
    free_pair(&p);
}

static void everything_is_tuned_by_default(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    o.fixed = WO_FIX_PROBES | WO_FIX_FALLBACK;
    o.max_time_s = 30; /* more than it takes, also under a sanitizer: both routers must get their turn */
    wo_index *index = tune(&p, p.tune, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    bool tree = false, hash = false;
    assert_int_equal(at(&curve, 0, WOI_CURVE_METHOD), WO_METHOD_FULL);
    for (size_t i = 0; i < curve.rows; i++) {
        tree |= at(&curve, i, WOI_CURVE_METHOD) == WO_METHOD_EVIDENCE && at(&curve, i, WOI_CURVE_ROUTER) == 1;
        hash |= at(&curve, i, WOI_CURVE_METHOD) == WO_METHOD_EVIDENCE && at(&curve, i, WOI_CURVE_ROUTER) == 0;
    }
    assert_true(tree && hash);
    assert_int_equal(at(&curve, curve.chosen, WOI_CURVE_MET), 1);
    assert_goal_is_reached(&p, index, o.target);
    assert_true(index->options.threads == 0 && !index->options.progress.fn);
    wo_index_free(index);
    /* No hits show all of FULL's: every class is scored. */
    o.target = 1;
    o.max_time_s = 0.001;
    index = tune(&p, p.tune, &o);
    assert_true(index->options.method == WO_METHOD_FULL || index->options.method == WO_METHOD_SCREEN);
    wo_index_free(index);
    free_pair(&p);
}

/* FULL answers with f32 rows, whatever was asked for. */
static void full_serves_alone(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    wo_error err;
    int32_t id;
    float score;
    built.weights = WO_WEIGHTS_INT8;
    o.fixed = WO_FIX_WEIGHTS;
    o.target = 1; /* what scores every class has it */
    wo_index *index = tune(&p, p.tune, &o), *opened = NULL;
    assert_true(index->options.method == WO_METHOD_FULL || index->options.method == WO_METHOD_SCREEN);
    assert_int_equal(wo_index_save(index, scratch("full"), &err), WO_OK);
    if (wo_index_open(scratch("full"), NULL, &opened, &err)) fail_msg("%s", err.text);
    asker *searcher = create(opened, NULL);
    if (ask(searcher, p.s.q, 1, 1, (answers){&id, &score, NULL}, &err)) fail_msg("%s", err.text);
    free_asker(searcher);
    wo_index_free(opened);
    wo_index_free(index);
    free_pair(&p);
}

/* More than the tuner builds from: the winner is built from all of it, and its row has the figures of that. */
static void a_long_log_is_judged_again(void **state)
{
    (void)state;
    enum { LONG = 700000 + N };
    static const wo_method methods[] = {WO_METHOD_EVIDENCE, WO_METHOD_POPULAR};
    pair p = make_pair();
    wo_error err;
    float *q = room((size_t)LONG * D, sizeof *q);
    int64_t *indptr = room(LONG + 1, sizeof *indptr);
    int32_t *labels = room(LONG, sizeof *labels);
    for (size_t i = 0; i < LONG; i++) {
        memcpy(q + i * D, p.s.q + i % N * D, D * sizeof *q);
        labels[i] = p.s.labels[i % N];
        indptr[i + 1] = (int64_t)i + 1;
    }
    wo_log_free(p.log);
    assert_int_equal(wo_log_wrap(q, LONG, D, indptr, labels, &p.log, &err), WO_OK);
    for (size_t i = 0; i < 2; i++) {
        wo_tune_options o = quick();
        wo_curve curve = {.struct_size = sizeof curve};
        built.method = methods[i];
        if (methods[i] == WO_METHOD_POPULAR) {
            o.fixed = WO_FIX_METHOD;
            o.target = o.target5 = 0.5;
        }
        wo_index *index = tune(&p, p.tune, &o);
        wo_eval_options eo;
        wo_eval_result r = {.struct_size = sizeof r};
        wo_eval_defaults(&eo, sizeof eo);
        eo.skip_timing = 1;
        index->full.from = 0; /* the row is of the cells, whoever answers large batches */
        assert_int_equal(wo_index_curve(index, &curve), 1);
        assert_int_equal(wo_evaluate(index, NULL, p.tune, &eo, &r, &err), WO_OK);
        assert_float_equal(at(&curve, curve.chosen, WOI_CURVE_CLASSES), r.sample_size, 1e-9);
        assert_float_equal(at(&curve, curve.chosen, WOI_CURVE_P1), r.p_at_1, 1e-9);
        assert_int_equal(at(&curve, curve.chosen, WOI_CURVE_MET), 1);
        wo_index_free(index);
    }
    free(q);
    free(indptr);
    free(labels);
    free_pair(&p);
}

/* From the wide start more cells and more nodes, until there are no more; not where they are fixed. */
static void widening_ends(void **state)
{
    (void)state;
    wo_tune_options o;
    wo_tune_defaults(&o, sizeof o);
    for (int fixed = 0; fixed < 2; fixed++) {
        woi_tune t = {.o = o, .build = woi_build_defaults(WO_METHOD_EVIDENCE), .train = {.n = 1000, .d = D}};
        t.o.fixed = fixed ? WO_FIX_PROBES | WO_FIX_BEAM : 0;
        t.best = WOI_NO_ROW;
        woi_place place = woi_space_start(&t, WOI_TREE, true);
        wo_build_options before = woi_space_options(&t, &place);
        int steps = 0;
        for (; woi_space_widen(&t.o, &place); steps++) {
            const wo_build_options after = woi_space_options(&t, &place);
            assert_true(after.probes >= before.probes && after.beam >= before.beam);
            assert_true(after.probes > before.probes || after.beam > before.beam);
            assert_true(after.nodes == before.nodes && after.route_d == before.route_d);
            before = after;
        }
        assert_true(fixed ? steps == 0 : steps > 0);
        assert_true(fixed || (before.probes == 64 && before.beam == 16));
    }
}

/* Small cells: as many leaves as queries allow, as long as learning them takes seconds. */
static void starts_go_by_the_log(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1000, 90000, 100000, 300000, 1000000, 100000000};
    static const uint64_t queries_a_leaf[] = {3, 3, 3, 6, 12, 48, 48};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int wide = 0; wide < 2; wide++) {
            woi_tune t = {.build = woi_build_defaults(WO_METHOD_EVIDENCE), .train = {.n = sizes[i], .d = D}};
            t.best = WOI_NO_ROW;
            const woi_place place = woi_space_start(&t, WOI_LABELS, wide);
            const wo_build_options o = woi_space_options(&t, &place);
            uint32_t nodes = 0, leaves = 0;
            woi_tree_fan_outs(sizes[i], (uint32_t)queries_a_leaf[i], &nodes, &leaves);
            assert_int_equal(o.nodes, nodes);
            assert_int_equal(o.leaves, leaves);
        }
}

/* Rows are in bf16, then in int8 where that can be, then in f32; not where they are fixed. */
static void rows_get_better(void **state)
{
    (void)state;
    wo_tune_options o;
    wo_tune_defaults(&o, sizeof o);
    const woi_place place = woi_space_start(&(woi_tune){0}, WOI_TREE, false);
    for (int turn = 0; turn < 3; turn++) {
        wo_layer layer = {.dense = {.m = 2, .d = turn == 1 ? WOI_MAX_I8 + 1 : D}};
        woi_tune t = {.layer = &layer,
                      .o = o,
                      .build = woi_build_defaults(WO_METHOD_EVIDENCE),
                      .train = {.n = 1000, .d = layer.dense.d},
                      .best = WOI_NO_ROW};
        t.o.fixed = turn == 2 ? WO_FIX_WEIGHTS : 0;
        static const wo_weights expected[3][3] = {{WO_WEIGHTS_BF16, WO_WEIGHTS_INT8, WO_WEIGHTS_F32},
                                                  {WO_WEIGHTS_BF16, WO_WEIGHTS_F32, WO_WEIGHTS_F32},
                                                  {WO_WEIGHTS_F32, WO_WEIGHTS_F32, WO_WEIGHTS_F32}};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(woi_space_options(&t, &place).weights, expected[turn][i]);
            assert_int_equal(woi_space_refine(&t), turn == 0 ? i < 2 : turn == 1 ? i == 0 : 0);
        }
    }
}

/* A tree that is kept for another beam and other probes is the one that is learned for them. */
static void another_reach_is_as_if_learned(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_error err;
    wo_index *indexes[2];
    woi_routed routed[2];
    for (uint32_t i = 0; i < 2; i++) {
        wo_build_options o = *quick().build;
        o.beam = i ? 2 : 7;
        o.probes = i ? 3 : 1;
        assert_int_equal(woi_index_begin(p.s.layer, &o, &indexes[i], &err), WO_OK);
        assert_int_equal(woi_evidence_route(p.log, NULL, indexes[i], &routed[i], &err), WO_OK);
    }
    assert_int_not_equal(memcmp(routed[0].of, routed[1].of, N * sizeof(uint32_t)), 0);
    assert_true(indexes[0]->tree.margin != indexes[1]->tree.margin);
    assert_int_equal(woi_evidence_set_reach(p.log, &indexes[1]->options, indexes[0], &routed[0], &err), WO_OK);
    assert_true(indexes[0]->options.beam == 2 && indexes[0]->options.probes == 3);
    assert_true(indexes[0]->tree.margin == indexes[1]->tree.margin);
    indexes[0]->tree.margin = -1; /* other probes alone */
    assert_int_equal(woi_evidence_set_reach(p.log, &indexes[1]->options, indexes[0], &routed[0], &err), WO_OK);
    assert_true(indexes[0]->tree.margin == indexes[1]->tree.margin);
    assert_memory_equal(routed[0].of, routed[1].of, N * sizeof(uint32_t));
    wo_build_options spread = indexes[0]->options; /* and in more leaves, of which the first is the same */
    spread.spread = 2;
    assert_int_equal(woi_evidence_set_reach(p.log, &spread, indexes[0], &routed[0], &err), WO_OK);
    assert_true(indexes[0]->options.spread == 2 && routed[0].each == 3 && routed[1].each == 1);
    for (size_t i = 0; i < N; i++) assert_int_equal(routed[0].of[3 * i], routed[1].of[i]);
    assert_memory_equal(indexes[0]->tree.leaves, indexes[1]->tree.leaves, 16 * 16 * D);
    for (int i = 0; i < 2; i++) {
        woi_routed_free(&routed[i]);
        wo_index_free(indexes[i]);
    }
    free_pair(&p);
}

/* Four large cells in each table: no query has so little evidence that a fallback changes anything, and one look at
 * each says so. */
static void a_fallback_that_nobody_uses_is_not_taken(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    o.max_time_s = 60;
    built.router = WO_ROUTER_HASH;
    built.K = built.L = 2;
    o.fixed = WO_FIX_K | WO_FIX_L | WO_FIX_WEIGHTS | WO_FIX_PROBES;
    wo_index *index = tune(&p, p.tune, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    size_t tried = 0;
    for (size_t i = 0; i < curve.rows; i++) tried += at(&curve, i, WOI_CURVE_FALLBACK) > 0;
    assert_int_equal(tried, 3);
    assert_int_equal(index->options.fallback, 0);
    wo_index_free(index);
    free_pair(&p);
}

static void too_late(void *ctx, const wo_curve *goal)
{
    (void)ctx, (void)goal;
    fail_msg("FULL was asked");
}

static void what_is_fixed_is_kept(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    wo_curve curve = {.struct_size = sizeof curve};
    o.max_time_s = 0.5;
    built.router = WO_ROUTER_HASH; /* implied by K and L, as the method is */
    built.K = 3;
    built.L = 5;
    o.fixed = WO_FIX_K | WO_FIX_L | WO_FIX_WEIGHTS | WO_FIX_FALLBACK;
    wo_index *index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_int_equal(at(&curve, curve.rows - 1, WOI_CURVE_METHOD), WO_METHOD_FULL); /* to compare with */
    for (size_t i = 0; i < curve.rows - 1; i++)
        assert_true(at(&curve, i, WOI_CURVE_METHOD) == WO_METHOD_EVIDENCE && at(&curve, i, WOI_CURVE_K) == 3 &&
                    at(&curve, i, WOI_CURVE_L) == 5 && at(&curve, i, WOI_CURVE_WEIGHTS) == 0 &&
                    at(&curve, i, WOI_CURVE_FALLBACK) == 0);
    wo_index_free(index);

    o = quick();
    o.max_time_s = 2;
    built.lambda = 0.004;
    built.probes = 3;
    built.beam = 3;
    built.route_d = 16;
    o.fixed |=
        WO_FIX_LAMBDA | WO_FIX_PROBES | WO_FIX_BEAM | WO_FIX_ROUTE_D | WO_FIX_FALLBACK | WO_FIX_WEIGHTS | WO_FIX_SPREAD;
    index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_int_equal(curve.rows, 2); /* and FULL */
    assert_true(index->options.lambda == 0.004 && index->options.probes == 3 && index->options.beam == 3);
    wo_index_free(index);
    wo_error err;
    o.early = too_late;
    built.route_d = 2;
    assert_int_equal(wo_index_tune(p.s.layer, p.log, p.tune, &o, &index, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "route_d is 2, expected a multiple of 16, or all 8");

    static const wo_method methods[] = {WO_METHOD_POPULAR, WO_METHOD_SLIDE, WO_METHOD_LSS};
    for (size_t i = 0; i < 3; i++) {
        wo_tune_defaults(&o, sizeof o);
        o.build = &built;
        built = small_options(methods[i]);
        o.fixed = WO_FIX_METHOD;
        o.target = 0.5;
        o.target5 = 0.5;
        o.max_time_s = 0.3;
        index = tune(&p, p.tune, &o);
        assert_int_equal(index->options.method, methods[i]);
        wo_index_free(index);
    }
    built = small_options(WO_METHOD_POPULAR);
    built.n_popular = 2;
    o.fixed |= WO_FIX_POPULAR;
    o.target = 0.995;
    refused(&p, p.tune, &o, WO_ERR_UNSUPPORTED, "popular reached 0.");
    o.target_agree = 0.99;
    refused(&p, p.tune, &o, WO_ERR_UNSUPPORTED, "of FULL's answers for sure, not 0.99: log more queries");
    free_pair(&p);
}

static void goals_without_labels(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_curve curve = {.struct_size = sizeof curve};
    wo_tune_options o = quick();
    o.target_agree = 0.9;
    o.k = 7;
    wo_index *index = tune(&p, p.bare, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(at(&curve, curve.chosen, WOI_CURVE_SURE_AGREEMENT) >= 0.9 &&
                at(&curve, curve.chosen, WOI_CURVE_AGREEMENT) > 0.9);
    assert_true(isnan(at(&curve, 0, WOI_CURVE_P1)) && isnan(at(&curve, 0, WOI_CURVE_SURE_P5)));
    assert_int_equal(index->options.source_k, 7); /* what is asked for must be known */
    assert_true(curve.target == 0 && curve.target_agree == 0.9 && curve.k == 7);
    wo_index_free(index);

    /* A goal by labels, where there are none, or all lists of them are empty: the curve says what it became. */
    const int64_t none[N_TUNE + 1] = {0};
    wo_log *empty = NULL;
    assert_int_equal(wo_log_wrap(wo_log_queries(p.bare), N_TUNE, D, none, p.s.labels, &empty, NULL), WO_OK);
    const wo_log *const without[] = {p.bare, empty};
    for (int i = 0; i < 2; i++) {
        o = quick();
        o.target = 0.9;
        index = tune(&p, without[i], &o);
        assert_int_equal(wo_index_curve(index, &curve), 1);
        assert_true(curve.target == 0 && curve.target5 == 0 && curve.target_agree == 0.9 && curve.labelled == 0);
        wo_index_free(index);
    }
    wo_log_free(empty);

    /* The other direction: all the quality that a time allows. */
    wo_tune_defaults(&o, sizeof o);
    wo_build_defaults(WO_METHOD_EVIDENCE, &built, sizeof built);
    o.build = &built;
    built.threads = 1;
    o.target_us = 1e6;
    o.max_time_s = 5;
    index = tune(&p, p.bare, &o);
    assert_true(index->options.method == WO_METHOD_FULL || index->options.method == WO_METHOD_SCREEN);
    wo_index_free(index);
    o = quick();
    o.target_us = 1e6;
    index = tune(&p, p.tune, &o);
    assert_true(index->options.lambda < 0.0022); /* as many classes as there may be */
    wo_index_free(index);
    o.target_us = 1e-6;
    refused(&p, p.tune, &o, WO_ERR_UNSUPPORTED,
            "nothing answers within 1e-06 us a query: the fastest of 7 settings took");
    o.anyway = 1;
    index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(curve.target_us == 1e-6 && at(&curve, curve.chosen, WOI_CURVE_MET) == 0);
    for (size_t i = 0; i < curve.rows; i++)
        assert_true(at(&curve, i, WOI_CURVE_METHOD) == WO_METHOD_FULL ||
                    at(&curve, i, WOI_CURVE_US) >= at(&curve, curve.chosen, WOI_CURVE_US));
    wo_index_free(index);
    free_pair(&p);
}

/* Hits of thirty queries cannot show 99.5%; agreement on queries of the log can, and the curve says so. */
static void few_hits_are_told(void **state)
{
    (void)state;
    enum { FEW = 30 };
    pair p = make_pair();
    wo_error err;
    wo_log *few = NULL;
    const float *rest = p.s.q + (size_t)N * D;
    assert_int_equal(wo_log_wrap(rest, FEW, D, p.s.indptr, p.s.labels + N, &few, &err), WO_OK);
    wo_tune_options o = quick();
    o.fixed = WO_FIX_METHOD; /* or FULL, of so few classes, is faster */
    o.target = 0.995;
    o.target5 = 0.99;
    wo_index *index = tune(&p, few, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_int_equal(curve.proof, WO_PROOF_AGREEMENT);
    assert_true(curve.labelled == FEW && curve.n == FEW && curve.needed > FEW);
    assert_true(at(&curve, curve.chosen, WOI_CURVE_MET) == 1 &&
                at(&curve, curve.chosen, WOI_CURVE_METHOD) != WO_METHOD_FULL);
    assert_true(curve.provable == WO_PROOF_AGREEMENT && curve.held_out == N / 10);
    wo_index_free(index);
    /* As many hits are no proof where few are held out: thirty of 300. */
    wo_log *all = p.log;
    assert_int_equal(wo_log_wrap(p.s.q, 300, D, p.s.indptr, p.s.labels, &p.log, &err), WO_OK);
    o = quick();
    o.target = 0.995;
    o.target5 = 0.99;
    refused(&p, few, &o, WO_ERR_UNSUPPORTED, "evidence reached 0.");
    wo_log_free(p.log);
    p.log = all;
    /* Many show it by hits. */
    o = quick();
    o.fixed = WO_FIX_METHOD;
    o.target = 0.9;
    o.target5 = 0.5;
    index = tune(&p, p.tune, &o);
    assert_true(wo_index_curve(index, &curve) && curve.proof == WO_PROOF_HITS && curve.needed == 0);
    wo_index_free(index);
    wo_log_free(few);
    free_pair(&p);
}

/* Of fifty answers most differ from FULL's, so that agreement shows nothing; the first is FULL's. Hits on queries of
 * the log show it where they are many, and do not where they are thirty, though none is missing. */
static void hits_of_other_queries_show_it_with_confidence(void **state)
{
    (void)state;
    enum { FEW = 30 };
    pair p = make_pair();
    wo_error err;
    wo_log *few = NULL;
    wo_index *index = NULL;
    assert_int_equal(wo_log_wrap(wo_log_queries(p.tune), FEW, D, p.s.indptr, p.s.labels + N, &few, &err), WO_OK);
    woi_tune t = {.layer = p.s.layer, .log = p.log, .threads = 1, .judged = *few, .few_hits = true};
    t.o = quick();
    t.o.target = 0.9;
    t.o.target5 = 0;
    t.o.k = 50;
    built = small_options(WO_METHOD_POPULAR);
    built.n_popular = 39;
    assert_int_equal(wo_index_build(p.s.layer, p.log, &built, &index, &err), WO_OK);
    const woi_judge_call call = {.rows = &p.s.layer->dense, .log = &t.judged, .k = 50, .threads = 1};
    assert_int_equal(woi_judge_make(&call, &t.judge, &err), WO_OK);
    for (int many = 0; many < 2; many++) {
        double row[WOI_CURVE_COLUMNS] = {0};
        t.held = many ? *p.tune : *few;
        woi_judge_call held = call;
        held.log = &t.held;
        assert_int_equal(woi_judge_make(&held, &t.held_judge, &err), WO_OK);
        assert_int_equal(woi_tune_measure(&t, index, row, &err), WO_OK);
        assert_true(row[WOI_CURVE_SURE_AGREEMENT] < 0.8);
        assert_true(row[WOI_CURVE_P1] == 1);
        assert_true(row[WOI_CURVE_MET] == many);
        woi_judge_free(&t.held_judge);
    }
    woi_judge_free(&t.judge);
    wo_index_free(index);
    wo_log_free(few);
    free_pair(&p);
}

/* One query, and few to build from: that nothing shows the goal is known at once. */
static void what_cannot_be_shown_is_not_looked_for(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_error err;
    wo_log *one = NULL, *all = p.log;
    assert_int_equal(wo_log_wrap(p.s.q + (size_t)N * D, 1, D, p.s.indptr, p.s.labels + N, &one, &err), WO_OK);
    assert_int_equal(wo_log_wrap(p.s.q, 150, D, p.s.indptr, p.s.labels, &p.log, &err), WO_OK);
    wo_tune_options o = quick();
    o.fixed = 0;
    o.max_time_s = 60;
    wo_index *index = tune(&p, one, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_int_equal(curve.provable, WO_PROOF_ALL_EQUAL);
    assert_int_equal(curve.rows, 2); /* FULL, and the screen */
    wo_index_free(index);
    built.weights = WO_WEIGHTS_NONE; /* FULL alone: it says what would show more */
    index = tune(&p, one, &o);
    assert_true(wo_index_curve(index, &curve) && index->options.method == WO_METHOD_FULL);
    assert_true(curve.proof == WO_PROOF_NONE && curve.needed > 100);
    wo_index_free(index);
    wo_log_free(p.log);
    wo_log_free(one);
    p.log = all;
    free_pair(&p);
}

/* Small cells know few of so many classes, and are fast: FULL has more. */
static void what_is_best_is_no_worse_than_full(void **state)
{
    (void)state;
    pair p = make_pair_of(20000);
    wo_tune_options o = quick();
    wo_curve curve = {.struct_size = sizeof curve};
    o.fixed = 0;
    o.target = 1.2;
    wo_index *index = tune(&p, p.tune, &o);
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(at(&curve, curve.chosen, WOI_CURVE_MET) == 0 && curve.proof == WO_PROOF_NONE);
    double least = 1;
    for (size_t i = 0; i < curve.rows; i++) least = fmin(least, at(&curve, i, WOI_CURVE_P1));
    assert_true(least < 0.995 && at(&curve, curve.chosen, WOI_CURVE_P1) > 0.998); /* FULL has 1 */
    wo_index_free(index);
    /* Where the method is fixed, FULL is no answer. */
    o.fixed = WO_FIX_METHOD;
    index = tune(&p, p.tune, &o);
    assert_int_equal(index->options.method, WO_METHOD_EVIDENCE);
    wo_index_free(index);
    free_pair(&p);
}

/* FULL has every label: no index is better, so that the best is what is found, and the curve says that it falls short.
 */
static void a_target_beyond_full_gives_the_best(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    o.fixed = 0;
    o.target = 1.2;
    o.target5 = 0;
    wo_index *index = tune(&p, p.tune, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_true(curve.target == 1.2 && curve.target_us == 0 && curve.proof == WO_PROOF_NONE);
    assert_true(at(&curve, curve.chosen, WOI_CURVE_MET) == 0);
    wo_index_free(index);
    o.target = 0.995;
    o.target_us = INFINITY; /* a tenth of FULL's time */
    index = tune(&p, p.tune, &o);
    assert_true(wo_index_curve(index, &curve) && isfinite(curve.target_us) && curve.target_us > 0);
    wo_index_free(index);
    free_pair(&p);
}

static void a_part_of_the_log_is_held_out(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    o.target = 0.9;
    wo_index *index = tune(&p, NULL, &o);
    wo_curve curve = {.struct_size = sizeof curve};
    assert_int_equal(wo_index_curve(index, &curve), 1);
    assert_int_equal(curve.n, N / 10);
    /* Built from all of the log. */
    wo_build_options named = index->options;
    named.threads = 1;
    wo_index *whole = NULL;
    wo_error err;
    assert_int_equal(wo_index_build(p.s.layer, p.log, &named, &whole, &err), WO_OK);
    assert_int_equal(whole->cells.offsets[whole->cells.n], index->cells.offsets[index->cells.n]);
    wo_index_free(whole);
    wo_index_free(index);
    wo_log *few = NULL;
    assert_int_equal(wo_log_wrap(p.s.q, 19, D, p.s.indptr, p.s.labels, &few, &err), WO_OK);
    wo_log *kept = p.log;
    p.log = few;
    o.fixed = 0; /* too few to hold some out: all are judged and built from */
    wo_index *shown = tune(&p, NULL, &o);
    assert_true(wo_index_curve(shown, &curve) && curve.n == 19);
    wo_index_free(shown);
    p.log = kept;
    wo_log_free(few);
    free_pair(&p);
}

/* Two classes of one dimension: FULL has next to nothing to do, and no tree is as fast in a batch. */
static void batches_of_a_tiny_layer_are_left_to_full(void **state)
{
    (void)state;
    static const float w[] = {1, -1};
    enum { TINY = 2000 };
    static float q[TINY];
    static int64_t indptr[TINY + 1];
    static int32_t labels[TINY];
    for (size_t i = 0; i < TINY; i++) {
        q[i] = (float)i - TINY / 2 + 0.5F;
        labels[i] = q[i] < 0;
        indptr[i + 1] = (int64_t)i + 1;
    }
    wo_layer *layer;
    wo_log *log;
    wo_index *index;
    wo_error err;
    wo_index_info info = {.struct_size = sizeof info};
    assert_int_equal(wo_layer_wrap(w, NULL, 2, 1, &layer, &err), WO_OK);
    assert_int_equal(wo_log_wrap(q, TINY, 1, indptr, labels, &log, &err), WO_OK);
    wo_tune_options o = quick();
    built.beam = built.probes = 8;
    o.fixed |= WO_FIX_PROBES;
    if (wo_index_tune(layer, log, log, &o, &index, &err)) fail_msg("%s", err.text);
    wo_index_describe(index, &info);
    assert_true(info.method == WO_METHOD_EVIDENCE && info.full_from >= 1 && info.full_from <= 1024);
    assert_int_equal(index->options.weights, WO_WEIGHTS_F32); /* which FULL needs, and the tuner would not have taken */
    asker *searcher;
    assert_int_equal(try_create(index, NULL, &searcher, &err), WO_OK);
    static wo_query_stats stats[1024];
    static int32_t ids[1024];
    static float scores[1024];
    assert_int_equal(ask_stats(searcher, q, info.full_from, 1, (answers){ids, scores, stats}, &err), WO_OK);
    for (size_t i = 0; i < info.full_from; i++) assert_true(stats[i].exact && ids[i] == labels[i]);
    free_asker(searcher);
    wo_index_free(index);
    /* A target beyond FULL, which has every label, is not reached by measuring again for f32 rows. */
    o.target = 1.02;
    o.target5 = 0;
    wo_curve curve = {.struct_size = sizeof curve};
    if (wo_index_tune(layer, log, log, &o, &index, &err)) fail_msg("%s", err.text);
    assert_true(wo_index_curve(index, &curve) && at(&curve, curve.chosen, WOI_CURVE_MET) == 0);
    wo_index_free(index);
    /* Where fewer bits are asked for by name, they answer alone. */
    o = quick();
    built.beam = built.probes = 8;
    o.fixed |= WO_FIX_PROBES;
    o.fixed |= WO_FIX_WEIGHTS;
    built.weights = WO_WEIGHTS_BF16;
    if (wo_index_tune(layer, log, log, &o, &index, &err)) fail_msg("%s", err.text);
    wo_index_describe(index, &info);
    assert_true(index->options.weights == WO_WEIGHTS_BF16 && info.full_from == 0);
    wo_index_free(index);
    built.weights = WO_WEIGHTS_INT8; /* which has f32 beside it */
    if (wo_index_tune(layer, log, log, &o, &index, &err)) fail_msg("%s", err.text);
    wo_index_describe(index, &info);
    assert_true(index->options.weights == WO_WEIGHTS_INT8 && info.full_from >= 1);
    wo_index_free(index);
    /* So few classes are all popular. */
    o = quick();
    built.method = WO_METHOD_POPULAR;
    o.fixed = WO_FIX_METHOD;
    if (wo_index_tune(layer, log, log, &o, &index, &err)) fail_msg("%s", err.text);
    assert_true(index->options.method == WO_METHOD_POPULAR && index->options.n_popular == 2);
    wo_index_free(index);
    wo_layer_free(layer);
    wo_log_free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dial_stops_at_the_goal),
        cmocka_unit_test(a_tree_of_rows_is_tuned),
        cmocka_unit_test(everything_is_tuned_by_default),
        cmocka_unit_test(full_serves_alone),
        cmocka_unit_test(a_long_log_is_judged_again),
        cmocka_unit_test(widening_ends),
        cmocka_unit_test(starts_go_by_the_log),
        cmocka_unit_test(rows_get_better),
        cmocka_unit_test(another_reach_is_as_if_learned),
        cmocka_unit_test(a_fallback_that_nobody_uses_is_not_taken),
        cmocka_unit_test(what_is_fixed_is_kept),
        cmocka_unit_test(goals_without_labels),
        cmocka_unit_test(a_part_of_the_log_is_held_out),
        cmocka_unit_test(few_hits_are_told),
        cmocka_unit_test(a_target_beyond_full_gives_the_best),
        cmocka_unit_test(hits_of_other_queries_show_it_with_confidence),
        cmocka_unit_test(what_cannot_be_shown_is_not_looked_for),
        cmocka_unit_test(what_is_best_is_no_worse_than_full),
        cmocka_unit_test(batches_of_a_tiny_layer_are_left_to_full),
    };
    return cmocka_run_group_tests_name("tune", tests, scratch_setup, scratch_teardown);
}
