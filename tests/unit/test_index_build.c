/* build/: what an index is built from, and what is refused. */
#include "engine.h"

#include "build/build.h"

/* ---- What queries needed ----------------------------------------------------------------------------------- */

/* Labels once each, FULL's k best, and 2 for what is both. */
static void needs_are_labels_and_best_classes(void **state)
{
    (void)state;
    wo_error err;
    static const uint32_t ks[] = {1, 5, 100};
    for (uint64_t turn = 0; turn < 18; turn++) {
        scene s = make_scene(30, 5, turn % 2 ? 40 : 4500, turn % 3 == 0, 70 + turn); /* more than a chunk of 4,096 */
        const wo_source source = (wo_source)(1 + turn % 3);
        const uint32_t k = ks[turn / 3 % 3];
        woi_sparse needs;
        const woi_dense rows = {s.m, s.d, s.w, s.b};
        assert_int_equal(
            woi_needs_of(&(woi_needs_call){.rows = &rows, .log = s.log, .source = source, .k = k, .threads = 2}, &needs,
                         &err),
            WO_OK);
        assert_int_equal(needs.n, s.n);
        assert_int_equal(needs.indptr[0], 0);
        for (size_t i = 0; i < s.n; i++) {
            float weight[30] = {0};
            int32_t best[100];
            double scores[100];
            for (int64_t at = s.indptr[i]; source & WO_SOURCE_LABELS && at < s.indptr[i + 1]; at++)
                weight[s.labels[at]] = 1;
            if (source & WO_SOURCE_TOP) brute_force(&s, s.q + i * s.d, &(rules){0}, k, best, scores);
            for (uint32_t at = 0; source & WO_SOURCE_TOP && at < k && at < s.m; at++) weight[best[at]] += 1;
            int64_t at = needs.indptr[i];
            for (int32_t j = 0; j < 30; j++)
                if (weight[j] > 0) {
                    assert_int_equal(needs.ids[at], j);
                    assert_true(needs.weights[at++] == weight[j]);
                }
            assert_int_equal(at, needs.indptr[i + 1]);
        }
        woi_sparse_free(&needs);
        free_scene(&s);
    }
}

/* Logits that overflow both ways are no numbers, and no class is among the best. */
static void queries_without_a_best_class_need_their_labels(void **state)
{
    (void)state;
    wo_error err;
    static const float w[] = {3e38F, -3e38F, -3e38F, 3e38F, 2e38F, -3e38F}, q[] = {3e38F, 3e38F, 0, 0};
    const woi_dense rows = {3, 2, w, NULL};
    wo_log *log = NULL;
    assert_int_equal(wo_log_wrap(q, 2, 2, (const int64_t[]){0, 1, 2}, (const int32_t[]){2, 1}, &log, &err), WO_OK);
    woi_sparse needs;
    assert_int_equal(
        woi_needs_of(&(woi_needs_call){.rows = &rows, .log = log, .source = WO_SOURCE_BOTH, .k = 2, .threads = 1},
                     &needs, &err),
        WO_OK);
    assert_int_equal(needs.indptr[1], 1);
    assert_int_equal(needs.ids[0], 2);
    assert_int_equal(needs.indptr[2], 3); /* all 0: classes 0 and 1, the label twice */
    assert_int_equal(needs.ids[2], 1);
    assert_true(needs.weights[0] == 1 && needs.weights[1] == 1 && needs.weights[2] == 2);
    woi_sparse_free(&needs);
    wo_log_free(log);
}

static void logs_without_labels_serve(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(30, 5, 100, true, 13);
    wo_log *bare = NULL;
    wo_index *index = NULL;
    assert_int_equal(wo_log_wrap(s.q, s.n, s.d, NULL, NULL, &bare, &err), WO_OK);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    assert_int_equal(wo_index_build(s.layer, bare, &o, &index, &err), WO_OK); /* both: what there is */
    wo_index_free(index);
    o.source = WO_SOURCE_LABELS;
    assert_int_equal(wo_index_build(s.layer, bare, &o, &index, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text,
                        "the log has no labels, and nothing else was to be used: FULL's top-k can be the source");
    assert_null(index);
    o = small_options(WO_METHOD_POPULAR);
    o.source_k = 1;
    o.n_popular = 4;
    assert_int_equal(wo_index_build(s.layer, bare, &o, &index, &err), WO_OK);
    /* The four classes that are the best most often. */
    size_t count[30] = {0};
    for (size_t i = 0; i < s.n; i++) {
        int32_t best;
        double score;
        brute_force(&s, s.q + i * s.d, &(rules){0}, 1, &best, &score);
        count[best]++;
    }
    for (int32_t j = 0; j < 30; j++) {
        size_t before = 0;
        bool there = false;
        for (int32_t other = 0; other < 30; other++)
            before += count[other] > count[j] || (count[other] == count[j] && other < j);
        for (uint32_t at = 0; at < 4; at++) there |= index->cells.ids[at] == j;
        assert_int_equal(there, before < 4);
    }
    wo_index_free(index);
    wo_log_free(bare);
    free_scene(&s);
}

/* Cells of an evidence index hold what its training queries needed: with lambda at most 1 and no thin cells, every
 * label of a query with that label alone is a candidate of it. */
static void training_queries_find_their_labels(void **state)
{
    (void)state;
    wo_error err;
    for (int turn = 0; turn < 2; turn++) {
        const int method = turn ? EVIDENCE_BY_TREE : WO_METHOD_EVIDENCE;
        scene s = make_scene(40, 5, 200, true, 14);
        wo_build_options o = small_options(method);
        o.lambda = 0;
        o.thin = 0;
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        for (size_t i = 0; i < s.n; i++) {
            int32_t ids[40];
            size_t n;
            assert_int_equal(ask_candidates(searcher, s.q + i * s.d, ids, 40, &n, &err), WO_OK);
            for (int64_t at = s.indptr[i]; at < s.indptr[i + 1]; at++) {
                bool there = false;
                for (size_t j = 0; j < n; j++) there |= ids[j] == s.labels[at];
                assert_true(there);
            }
        }
        free_asker(searcher);
        wo_index_free(index);
        free_scene(&s);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------- */

/* Of a tree with spread, the r-th nearest leaf gets 1 / sqrt(r) of a query: the shares that cells keep, summed anew. */
static void farther_leaves_get_less_of_a_query(void **state)
{
    (void)state;
    enum { M = 40, SPREAD = 3, EACH = 1 + SPREAD };
    wo_error err;
    wo_index *index = NULL;
    scene s = make_scene(M, 5, 200, true, 15);
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    o.source = WO_SOURCE_LABELS;
    o.lambda = o.thin = 0;
    o.prior = 1;
    o.spread = SPREAD;
    assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_OK);
    uint32_t *of = room(s.n * EACH, sizeof *of);
    assert_int_equal(woi_tree_file(&index->tree, s.q, s.n, 1, &(woi_filing){EACH, of}, &err), WO_OK);
    size_t compared = 0;
    for (uint32_t c = 0; c < index->cells.n; c++) {
        double evidence[M] = {0}, whole_parts = 0;
        for (size_t i = 0; i < s.n; i++)
            for (uint32_t r = 0; r < EACH; r++) {
                if (of[i * EACH + r] != c) continue;
                bool seen[M] = {false};
                whole_parts += 1 / sqrt(r + 1);
                for (int64_t at = s.indptr[i]; at < s.indptr[i + 1]; at++) {
                    if (!seen[s.labels[at]]) evidence[s.labels[at]] += 1 / sqrt(r + 1);
                    seen[s.labels[at]] = true;
                }
            }
        for (uint32_t at = index->cells.offsets[c]; at < index->cells.offsets[c + 1]; at++, compared++)
            assert_true(fabs(from_bf16(index->cells.shares[at]) * whole_parts / evidence[index->cells.ids[at]] - 1) <
                        0.005);
    }
    assert_true(compared > M);
    free(of);
    wo_index_free(index);
    free_scene(&s);
}

static int too_late(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    fail_msg("%s before it is known that %s", stage, (const char *)ctx);
    return 1;
}

/* Before anything that takes long, and is told of. */
static void refuse(const scene *s, const wo_log *log, const wo_build_options *given, const char *sentence)
{
    wo_index *index = (wo_index *)s; /* must become NULL */
    wo_error err = {0};
    wo_build_options own = *given, *o = &own;
    own.progress = (wo_progress){too_late, (void *)(uintptr_t)sentence};
    const wo_status status = wo_index_build(s->layer, log, o, &index, &err);
    if (status != WO_ERR_ARGUMENT || strcmp(err.text, sentence) != 0)
        fail_msg("status %d, \"%s\", expected \"%s\"", status, err.text, sentence);
    assert_null(index);
    assert_int_equal(wo_index_build(s->layer, log, o, &index, NULL), WO_ERR_ARGUMENT);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(10, 3, 20, true, 15);
    wo_build_options o;
#define REFUSED(method, member, value, sentence) \
    do {                                         \
        o = small_options(method);               \
        o.member = (value);                      \
        refuse(&s, s.log, &o, sentence);         \
    } while (0)
    REFUSED(WO_METHOD_FULL, method, (wo_method)6, "6 is no method");
    REFUSED(WO_METHOD_FULL, method, (wo_method)-1, "-1 is no method");
    REFUSED(WO_METHOD_SLIDE, K, 0, "K is 0, expected 1 to 24");
    REFUSED(WO_METHOD_SLIDE, K, 25, "K is 25, expected 1 to 24");
    REFUSED(WO_METHOD_EVIDENCE, L, 0, "L is 0, expected 1 to 256");
    REFUSED(WO_METHOD_EVIDENCE, L, 257, "L is 257, expected 1 to 256");
    REFUSED(WO_METHOD_SLIDE, probes, 0, "probes is 0, expected 1 to 64");
    REFUSED(WO_METHOD_SLIDE, probes, 65, "probes is 65, expected 1 to 64");
    REFUSED(WO_METHOD_SLIDE, probes, 9, "probes is 9, more than the 8 cells of a table");
    REFUSED(WO_METHOD_EVIDENCE, lambda, -0.5, "lambda is -0.5, expected 0 to 2");
    REFUSED(WO_METHOD_EVIDENCE, lambda, 2.5, "lambda is 2.5, expected 0 to 2");
    REFUSED(WO_METHOD_EVIDENCE, source_k, 0, "source_k is 0, expected 1 to 1000");
    REFUSED(WO_METHOD_EVIDENCE, source_k, 1001, "source_k is 1001, expected 1 to 1000");
    REFUSED(WO_METHOD_POPULAR, source_k, 0, "source_k is 0, expected 1 to 1000");
    REFUSED(WO_METHOD_EVIDENCE, source, (wo_source)0, "source is 0, expected 1 to 3");
    REFUSED(WO_METHOD_EVIDENCE, source, (wo_source)4, "source is 4, expected 1 to 3");
    REFUSED(WO_METHOD_EVIDENCE, learner, (wo_learner)3, "learner is 3, expected 0 to 1");
    REFUSED(WO_METHOD_EVIDENCE, rate, 0, "rate is 0, expected 1e-09 to 1000");
    REFUSED(WO_METHOD_EVIDENCE, rate, INFINITY, "rate is inf, expected 1e-09 to 1000");
    REFUSED(WO_METHOD_EVIDENCE, batch, 0, "batch is 0, expected 1 to 1048576");
    REFUSED(WO_METHOD_LSS, loss, (wo_loss)7, "loss is 7, expected 0 to 1");
    REFUSED(WO_METHOD_LSS, init, (wo_init)2, "init is 2, expected 0 to 1");
    REFUSED(WO_METHOD_LSS, optimiser, (wo_optimiser)2, "optimiser is 2, expected 0 to 1");
    REFUSED(WO_METHOD_POPULAR, n_popular, 0, "popular is 0, expected 1 to 2147483647");
    REFUSED(EVIDENCE_BY_TREE, probes, 0, "probes is 0, expected 1 to 64");
    REFUSED(EVIDENCE_BY_TREE, probes, 65, "probes is 65, expected 1 to 64");
    REFUSED(EVIDENCE_BY_TREE, beam, 0, "beam is 0, expected 1 to 64");
    REFUSED(EVIDENCE_BY_TREE, beam, 65, "beam is 65, expected 1 to 64");
    REFUSED(EVIDENCE_BY_TREE, nodes, 1040, "nodes is 1040, expected 0 to 1024");
    REFUSED(EVIDENCE_BY_TREE, leaves, UINT32_MAX, "leaves is 4294967295, expected 0 to 65536");
    REFUSED(EVIDENCE_BY_TREE, prior, 2.25, "prior is 2.25, expected 0 to 2");
    REFUSED(EVIDENCE_BY_TREE, prior, NAN, "prior is nan, expected 0 to 2");
    REFUSED(WO_METHOD_EVIDENCE, prior, -1, "prior is -1, expected 0 to 2");
    REFUSED(WO_METHOD_LSS, prior, 1, "prior is 1, but method lss counts no evidence");
    REFUSED(EVIDENCE_BY_TREE, focus, -1, "focus is -1, expected 0 to 10000");
    REFUSED(EVIDENCE_BY_TREE, cap, UINT32_MAX, "cap is 4294967295, expected 0 to 2147483647");
    REFUSED(EVIDENCE_BY_TREE, route_d, 2, "route_d is 2, expected a multiple of 16, or all 3");
    REFUSED(EVIDENCE_BY_TREE, lambda, 2.5, "lambda is 2.5, expected 0 to 2");
    REFUSED(EVIDENCE_BY_TREE, source_k, 0, "source_k is 0, expected 1 to 1000");
    REFUSED(EVIDENCE_BY_TREE, router, (wo_router)2, "router is 2, expected 0 to 1");
    REFUSED(WO_METHOD_FULL, weights, WO_WEIGHTS_INT8,
            "weights is int8, but method full answers with f32 rows: f32 or none");
    REFUSED(WO_METHOD_SCREEN, weights, WO_WEIGHTS_BF16,
            "weights is bf16, but method screen answers with f32 rows: f32 or none");
    REFUSED(WO_METHOD_POPULAR, fallback, 3, "fallback is 3, but method popular counts no evidence");
    REFUSED(WO_METHOD_FULL, weights, (wo_weights)5, "weights is 5, expected 0 to 4");
    REFUSED(WO_METHOD_FULL, threads, -1, "threads is -1, expected 0 to 1024");
    REFUSED(WO_METHOD_FULL, threads, 1025, "threads is 1025, expected 0 to 1024");
    /* What a method does not use is still written into a file, by its name. */
    REFUSED(WO_METHOD_FULL, source, (wo_source)77, "source is 77, expected 1 to 3");
    REFUSED(WO_METHOD_LSS, router, (wo_router)77, "router is 77, expected 0 to 1");
    REFUSED(WO_METHOD_SLIDE, learner, (wo_learner)77, "learner is 77, expected 0 to 1");
    REFUSED(WO_METHOD_POPULAR, loss, (wo_loss)77, "loss is 77, expected 0 to 1");
    REFUSED(WO_METHOD_EVIDENCE, init, (wo_init)77, "init is 77, expected 0 to 1");
    REFUSED(WO_METHOD_SLIDE, optimiser, (wo_optimiser)77, "optimiser is 77, expected 0 to 1");
#undef REFUSED
    o = small_options(WO_METHOD_EVIDENCE);
    o.lambda = NAN;
    wo_index *index = NULL;
    assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, NULL), WO_ERR_ARGUMENT);
    o = small_options(EVIDENCE_BY_TREE); /* what a tree does not use may be any number */
    o.K = o.L = o.batch = 0;
    o.rate = -1;
    wo_index_free(build(&s, &o));
    o.rate = NAN; /* which would be saved, and then refused */
    refuse(&s, s.log, &o, "rate is nan, expected 1e-09 to 1000");
    o = small_options(WO_METHOD_SLIDE);
    o.K = 24;
    o.L = 17;
    refuse(&s, s.log, &o, "17 tables of 16777216 cells are too many: at most 2^28 in all");
    o = small_options(WO_METHOD_SLIDE);
    o.struct_size = 7;
    refuse(&s, s.log, &o, "the build options have a struct_size of 7: it is not set");
    free_scene(&s);
}

static void logs_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(10, 3, 20, true, 16), wider = make_scene(10, 4, 20, true, 16),
          larger = make_scene(40, 3, 20, true, 16);
    for (int method = WO_METHOD_FULL; method <= EVIDENCE_BY_TREE; method++) {
        const wo_build_options o = small_options(method);
        refuse(&s, wider.log, &o, "the log's queries have 4 numbers, the layer's rows 3");
        larger.labels[0] = 39;
        wo_log *log = NULL;
        assert_int_equal(wo_log_wrap(larger.q, 20, 3, larger.indptr, larger.labels, &log, &err), WO_OK);
        char beyond[80];
        size_t query = 0;
        while (larger.indptr[query + 1] == 0) query++;
        snprintf(beyond, sizeof beyond, "query %zu has label 39, the layer 10 classes", query);
        refuse(&s, log, &o, beyond);
        wo_log_free(log);
        if (method == WO_METHOD_FULL || method == WO_METHOD_SLIDE || method == WO_METHOD_SCREEN) continue;
        char sentence[128];
        snprintf(sentence, sizeof sentence, "method %s is built from a log of queries, none was given",
                 woi_method_name(o.method));
        refuse(&s, NULL, &o, sentence);
        static const int64_t nothing[1];
        static const int32_t none[1];
        assert_int_equal(wo_log_wrap(NULL, 0, 3, nothing, none, &log, &err), WO_OK);
        refuse(&s, log, &o, "the log has no queries");
        wo_log_free(log);
        s.q[7] = INFINITY;
        refuse(&s, s.log, &o, "query 2 of the log has inf at place 1");
        s.q[7] = NAN;
        wo_index *index = NULL;
        assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_ERR_ARGUMENT);
        s.q[7] = 1;
    }
    free_scene(&s);
    free_scene(&wider);
    free_scene(&larger);
}

static void refuse_log(const float *q, size_t n, size_t d, const int64_t *indptr, const int32_t *labels,
                       const char *sentence)
{
    wo_log *log = (wo_log *)&log;
    wo_error err = {0};
    assert_int_equal(wo_log_wrap(q, n, d, indptr, labels, &log, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, sentence);
    assert_null(log);
}

static void arrays_that_are_no_log_are_refused(void **state)
{
    (void)state;
    static const float q[6];
    static const int32_t labels[] = {4, -1, 2};
    refuse_log(q, 2, 0, NULL, NULL, "2 queries of 0 numbers are no log");
    refuse_log(NULL, 2, 3, NULL, NULL, "2 queries of 3 numbers are no log");
    refuse_log(q, SIZE_MAX / 2, 3, NULL, NULL, "9223372036854775807 queries of 3 numbers are no log");
    refuse_log(q, 2, 3, (const int64_t[]){0, 1, 1}, NULL, "labels and their indptr go together");
    refuse_log(q, 2, 3, NULL, labels, "labels and their indptr go together");
    refuse_log(q, 2, 3, (const int64_t[]){1, 1, 1}, labels, "indptr starts at 1, not at 0");
    refuse_log(q, 2, 3, (const int64_t[]){0, 1, 0}, labels, "indptr falls from 1 to 0 at query 1");
    refuse_log(q, 2, 3, (const int64_t[]){0, 1, 3}, labels, "label -1 at place 1 is negative");
    wo_log *log = NULL;
    assert_int_equal(wo_log_wrap(q, 2, 3, (const int64_t[]){0, 1, 1}, labels, &log, NULL), WO_OK);
    assert_int_equal(wo_log_n(log), 2);
    assert_int_equal(wo_log_d(log), 3);
    assert_ptr_equal(wo_log_queries(log), q);
    wo_log_free(log);
    wo_log_free(NULL);
}

static void refuse_searcher(const wo_index *index, const asked *o, const char *sentence)
{
    asker *searcher = (asker *)&searcher;
    wo_error err = {0};
    assert_int_equal(try_create(index, o, &searcher, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, sentence);
    assert_null(searcher);
}

/* Refused, and the searcher answers as before. */
static void refuse_call(const wo_index *index, asked o, const char *sentence)
{
    wo_error err = {0};
    int32_t id;
    float score;
    const float q[3] = {1, 2, 3};
    asker *searcher = create(index, &o);
    wo_query_stats stats;
    assert_int_equal(ask_stats(searcher, q, 1, 1, (answers){&id, &score, &stats}, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, sentence);
    assert_int_equal(wo_search(searcher->searcher, q, 1, 1, &id, &score, &err), WO_OK);
    free_asker(searcher);
}

static void searchers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(10, 3, 20, true, 17);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    asked so = {0};
    so.probes = 9;
    refuse_searcher(index, &so, "9 probes are too many: at most 64, and the 8 cells of a table");
    so.probes = 8;
    asker *searcher = create(index, &so);
    int32_t ids[2];
    float scores[2];
    wo_query_stats stats;
    assert_int_equal(ask_stats(searcher, s.q, 1, 1, (answers){ids, scores, &stats}, &err), WO_OK);
    assert_int_equal(stats.cells, 16);
    assert_int_equal(ask(searcher, s.q, 1, 0, (answers){ids, scores, NULL}, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "k is 0: at least one answer must be asked for");
    assert_int_equal(ask_exact(searcher, s.q, 1, 0, (answers){ids, scores, NULL}, &err), WO_ERR_ARGUMENT);
    assert_int_equal(ask(searcher, NULL, 1, 1, (answers){ids, scores, NULL}, &err), WO_ERR_ARGUMENT);
    assert_int_equal(ask(searcher, s.q, 1, 1, (answers){NULL, scores, NULL}, &err), WO_ERR_ARGUMENT);
    assert_int_equal(ask_exact(searcher, s.q, 1, 1, (answers){ids, NULL, NULL}, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "queries, ids or scores are NULL");
    assert_int_equal(ask(searcher, NULL, 0, 1, (answers){NULL, NULL, NULL}, &err), WO_OK);
    free_asker(searcher);
    free_asker(NULL);
    wo_index_free(NULL);
    refuse_call(index, (asked){.forbidden = (const int32_t[]){3, 10}, .n_forbidden = 2},
                "forbidden class 10 is not one of the 10 classes");
    refuse_call(index, (asked){.n_forbidden = 2}, "2 forbidden classes are at NULL");
    refuse_call(index, (asked){.mandatory = (const int32_t[]){-1}, .n_mandatory = 1},
                "mandatory class -1 is not one of the 10 classes");
    refuse_call(index, (asked){.logit_bias = (const float[]){0, 0, -INFINITY, 0, 0, 0, 0, 0, 0, 0}},
                "the logit bias of some class is not finite: forbid a class instead");
    refuse_call(index, (asked){.scores = (wo_scores)3}, "score is 3, expected 0 to 2");
    so.threads = 1025;
    refuse_searcher(index, &so, "threads is 1025, expected 0 to 1024");
    so.threads = 1;
    wo_index_free(index);
    const wo_build_options tree = small_options(EVIDENCE_BY_TREE);
    index = build(&s, &tree);
    so.probes = 65;
    refuse_searcher(index, &so, "65 probes are too many: at most 64");
    so.probes = 64;
    searcher = create(index, &so);
    assert_int_equal(ask_stats(searcher, s.q, 1, 1, (answers){ids, scores, &stats}, &err), WO_OK);
    assert_true(stats.cells >= 1 && stats.cells <= 20); /* no more leaves than queries */
    free_asker(searcher);
    wo_index_free(index);
    free_scene(&s);
}

/* One class, one dimension, one query. */
static void smallest_layers_work(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(1, 1, 1, false, 18);
    for (int method = WO_METHOD_FULL; method <= EVIDENCE_BY_TREE; method++) {
        if (method == WO_METHOD_LSS) continue;
        wo_build_options o = small_options(method);
        o.probes = 1U << o.K;
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        const float q = 2;
        int32_t ids[3];
        float scores[3];
        assert_int_equal(ask(searcher, &q, 1, 3, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_int_equal(ids[0], 0);
        assert_true(scores[0] == 2 * s.w[0]);
        assert_true(ids[1] == -1 && ids[2] == -1 && scores[2] == -INFINITY);
        free_asker(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

static int stop_later(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)stage;
    assert_true(total == 0 || done <= total);
    return --*(int *)ctx < 0;
}

static void building_can_be_stopped(void **state)
{
    (void)state;
    wo_error err;
    for (int turn = 0; turn < 2; turn++) {
        const int method = turn ? EVIDENCE_BY_TREE : WO_METHOD_EVIDENCE;
        scene s = make_scene(30, 4, 100, true, 19);
        wo_build_options o = small_options(method);
        int stops = 0;
        for (;; stops++) {
            int left = stops;
            wo_index *index = NULL;
            o.progress = (wo_progress){stop_later, &left};
            const wo_status status = wo_index_build(s.layer, s.log, &o, &index, &err);
            if (status == WO_OK) {
                wo_build_options kept = {.struct_size = sizeof kept};
                wo_index_options(index, &kept);
                assert_null(kept.progress.fn);
                wo_index_free(index);
                break;
            }
            assert_int_equal(status, WO_ERR_CANCELLED);
            assert_null(index);
        }
        assert_true(stops >= 5);
        free_scene(&s);
    }
}

static void indexes_describe_themselves(void **state)
{
    (void)state;
    scene s = make_scene(30, 4, 100, true, 21);
    wo_build_options o = small_options(WO_METHOD_SLIDE);
    o.threads = 2;
    wo_index *index = build(&s, &o);
    wo_index_info info = {.struct_size = sizeof info};
    wo_index_describe(index, &info);
    assert_int_equal(info.method, WO_METHOD_SLIDE);
    assert_string_equal(info.method_name, "slide");
    assert_int_equal(info.m, 30);
    assert_int_equal(info.d, 4);
    assert_int_equal(info.n_cells, 16);
    assert_int_equal(info.n_entries, 60);
    wo_build_options kept = {.struct_size = sizeof kept};
    assert_int_equal(wo_index_options(index, &kept), WO_OK);
    assert_int_equal(kept.threads, 0);
    assert_int_equal(wo_index_m(index), 30);
    assert_int_equal(wo_index_d(index), 4);
    uint64_t empty = 0, largest = 0;
    for (uint32_t c = 0; c < 16; c++) {
        const uint32_t size = index->cells.offsets[c + 1] - index->cells.offsets[c];
        empty += !size;
        if (size > largest) largest = size;
    }
    assert_int_equal(info.n_empty, empty);
    assert_int_equal(info.largest, largest);
    assert_int_equal(info.index_bytes, 16 * 6 * sizeof(float) + 17 * sizeof(uint32_t) + 60 * sizeof(int32_t));
    size_t bytes;
    wo_trace trace = {.struct_size = sizeof trace};
    assert_false(info.has_names);
    assert_null(wo_index_label(index, 0, &bytes));
    assert_null(wo_index_label(index, -1, &bytes));
    assert_int_equal(wo_index_trace(index, &trace), 0);
    wo_index_free(index);
    o = small_options(EVIDENCE_BY_TREE);
    index = build(&s, &o);
    wo_index_describe(index, &info);
    assert_true(info.n_cells >= 256 && info.n_cells % 16 == 0); /* each node's leaves are rounded up */
    assert_int_equal(wo_index_options(index, &kept), WO_OK);
    assert_true(kept.nodes == 16 && kept.leaves == 16 && kept.route_d == 4);
    assert_int_equal(info.index_bytes,
                     (16 + info.n_cells) * (4 + 8) + 4 * (17 + 2 * info.n_cells + 1 + info.n_entries));
    wo_index_free(index);
    o = small_options(WO_METHOD_FULL);
    index = build(&s, &o);
    wo_index_describe(index, &info);
    assert_int_equal(info.n_cells + info.n_entries + info.index_bytes, 0);
    wo_index_free(index);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(needs_are_labels_and_best_classes),
        cmocka_unit_test(queries_without_a_best_class_need_their_labels),
        cmocka_unit_test(logs_without_labels_serve),
        cmocka_unit_test(training_queries_find_their_labels),
        cmocka_unit_test(farther_leaves_get_less_of_a_query),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(logs_that_do_not_fit_are_refused),
        cmocka_unit_test(arrays_that_are_no_log_are_refused),
        cmocka_unit_test(searchers_that_cannot_be_are_refused),
        cmocka_unit_test(smallest_layers_work),
        cmocka_unit_test(building_can_be_stopped),
        cmocka_unit_test(indexes_describe_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
