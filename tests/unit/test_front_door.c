/* What wideout.h promises of callers of another version, and of calls that differ from the last one. */
#include "engine.h"

#include "search/searcher.h"

/* ---- Structs of other sizes -------------------------------------------------------------------------------- */

/* A caller whose struct ends in the middle: what it lacks has its default. */
static void older_options_are_served(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(40, 6, 120, true, 3);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE), kept = {.struct_size = sizeof kept};
    o.struct_size = offsetof(wo_build_options, lambda);
    o.lambda = NAN; /* behind the end: not looked at */
    o.seed = 99;
    wo_index *index = NULL;
    if (wo_index_build(s.layer, s.log, &o, &index, &err)) fail_msg("%s", err.text);
    assert_int_equal(wo_index_options(index, &kept), WO_OK);
    assert_true(kept.lambda == 0.1 && kept.seed == 1 && kept.K == o.K && kept.L == o.L);
    assert_int_equal(kept.struct_size, sizeof kept);
    wo_index_free(index);
    /* Options that end before the method: evidence. */
    o.struct_size = offsetof(wo_build_options, method);
    if (wo_index_build(s.layer, s.log, &o, &index, &err)) fail_msg("%s", err.text);
    assert_int_equal(index->options.method, WO_METHOD_EVIDENCE);
    wo_index_free(index);
    if (wo_index_build(s.layer, s.log, NULL, &index, &err)) fail_msg("%s", err.text);
    assert_int_equal(index->options.method, WO_METHOD_EVIDENCE);
    wo_index_free(index);
    free_scene(&s);
}

/* Callers from before there was a prior: none is built for them, and an index that has one is searched with it. */
static void older_callers_know_no_prior(void **state)
{
    (void)state;
    enum { N = 120, K = 3 };
    wo_error err;
    scene s = make_scene(40, 6, N, true, 3);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    o.prior = 1;
    wo_index *index = build(&s, &o), *older = NULL;
    o.cap = 1;
    o.focus = NAN;
    o.struct_size = offsetof(wo_build_options, cap);
    if (wo_index_build(s.layer, s.log, &o, &older, &err)) fail_msg("%s", err.text);
    assert_true(older->options.prior == 0 && older->options.cap == 0 && older->options.focus == 0);
    assert_null(older->cells.shares);
    asker *with = create(index, NULL), *without = create(older, NULL);
    int32_t ids[3][N * K];
    float scores[3][N * K];
    wo_search_call call = call_for(with, s.q, N, K, (answers){ids[0], scores[0], NULL});
    call.no_prior = 1;
    call.struct_size = offsetof(wo_search_call, no_prior); /* behind the end: not looked at */
    assert_int_equal(wo_search_run(with->searcher, &call, &err), WO_OK);
    assert_int_equal(ask(with, s.q, N, K, (answers){ids[1], scores[1], NULL}, &err), WO_OK);
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    call.struct_size = sizeof call;
    assert_int_equal(wo_search_run(with->searcher, &call, &err), WO_OK);
    assert_int_equal(ask(without, s.q, N, K, (answers){ids[2], scores[2], NULL}, &err), WO_OK);
    assert_memory_equal(ids[0], ids[2], sizeof ids[0]);
    assert_memory_equal(scores[0], scores[2], sizeof scores[0]);
    assert_memory_not_equal(scores[0], scores[1], sizeof scores[0]);
    free_asker(with);
    free_asker(without);
    wo_index_free(index);
    wo_index_free(older);
    free_scene(&s);
}

/* A caller whose struct goes on: fine as long as that is zero. */
static void newer_options_are_served_where_they_ask_for_nothing_new(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(40, 6, 120, true, 3);
    struct {
        wo_searcher_options now;
        uint64_t later;
    } newer = {.now = {.struct_size = sizeof newer, .threads = 1}};
    wo_index *index = NULL;
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    index = build(&s, &o);
    wo_searcher *searcher = NULL;
    assert_int_equal(wo_searcher_create(index, &newer.now, &searcher, &err), WO_OK);
    wo_searcher_free(searcher);
    newer.later = 1;
    assert_int_equal(wo_searcher_create(index, &newer.now, &searcher, &err), WO_ERR_UNSUPPORTED);
    assert_null(searcher);
    assert_non_null(strstr(err.text, "the searcher options have 32 bytes, and byte 24 is not 0"));
    wo_index_free(index);
    free_scene(&s);
}

/* One process, which has what it brings. */
static wo_status stay(void *ctx, void *data, size_t bytes, int root, wo_error *err)
{
    (void)ctx, (void)data, (void)bytes, (void)root, (void)err;
    return WO_OK;
}

static wo_status bring_own(void *ctx, const void *data, const size_t *bytes, void *all, wo_error *err)
{
    (void)ctx, (void)err;
    memmove(all, data, bytes[0]);
    return WO_OK;
}

static wo_status sum_f32(void *ctx, float *data, size_t n, wo_error *err)
{
    (void)ctx, (void)data, (void)n, (void)err;
    return WO_OK;
}

static wo_status sum_f64(void *ctx, double *data, size_t n, wo_error *err)
{
    (void)ctx, (void)data, (void)n, (void)err;
    return WO_OK;
}

static wo_collective alone(void)
{
    return (wo_collective){sizeof(wo_collective), 0, 1, NULL, stay, bring_own, sum_f32, sum_f64};
}

/* The calls of several processes are a struct of a caller too. */
static void collectives_are_taken_as_options_are(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(40, 6, 120, true, 3);
    struct {
        wo_collective now;
        uint64_t later;
    } given[6];
    static const char *const sentences[] = {"the collective calls have a struct_size of 0: it is not set",
                                            "the collective calls have 64 bytes, and byte 56 is not 0",
                                            "rank 1 of 1 processes is none",
                                            "rank -1 of 1 processes is none",
                                            "rank 0 of 0 processes is none",
                                            "a call of the collective calls is NULL"};
    for (int i = 0; i < 6; i++) {
        memset(&given[i], 0, sizeof given[i]);
        given[i].now = alone();
    }
    given[0].now.struct_size = 0;
    given[1].now.struct_size = sizeof given[1];
    given[1].later = 1;
    given[2].now.rank = 1;
    given[3].now.rank = -1;
    given[4].now.size = 0;
    given[5].now.sum_f64 = NULL;
    int32_t id = 0;
    float score = 1;
    const wo_answers best = {.struct_size = sizeof best, .n = 1, .k = 1, .ids = &id, .scores = &score};
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o), *other = NULL;
    for (int i = 0; i < 6; i++) {
        o.together = &given[i].now;
        assert_true(wo_index_build(s.layer, s.log, &o, &other, &err));
        assert_int_equal(err.about, WO_ABOUT_OPTION);
        assert_memory_equal(err.text, sentences[i], strlen(sentences[i]));
        assert_true(wo_merge_best(o.together, &best, &err));
        assert_memory_equal(err.text, sentences[i], strlen(sentences[i]));
        assert_true(wo_index_save_together(index, "/nowhere/index", o.together, &err));
        assert_memory_equal(err.text, sentences[i], strlen(sentences[i]));
    }
    const wo_collective one = alone();
    o.together = &one;
    assert_int_equal(wo_merge_best(&one, &best, &err), WO_OK);
    if (wo_index_build(s.layer, s.log, &o, &other, &err)) fail_msg("%s", err.text);
    assert_null(other->options.together);
    wo_index_free(other);
    wo_index_free(index);
    free_scene(&s);
}

/* What a later version may use is not passed over. */
static void reserved_fields_are_zero(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(40, 6, 120, true, 3);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o), *other = NULL;
    wo_layer *layer = NULL;
    wo_searcher *searcher = NULL;
    const wo_layer_options lo = {.struct_size = sizeof lo, .reserved = 1};
    const wo_open_options oo = {.struct_size = sizeof oo, .reserved = 1};
    const wo_searcher_options so = {.struct_size = sizeof so, .reserved = 1};
    wo_tune_options to;
    wo_tune_defaults(&to, sizeof to);
    to.reserved = 1;
    assert_int_equal(wo_layer_open("none", &lo, &layer, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_index_open("none", &oo, &other, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_searcher_create(index, &so, &searcher, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_index_tune(s.layer, s.log, s.log, &to, &other, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "reserved is 1, expected 0 to 0");
    /* A size that was never set is found before the work. */
    wo_eval_result r = {.struct_size = (size_t)-1};
    assert_int_equal(wo_evaluate(index, NULL, s.log, NULL, &r, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "struct_size of the result is not set");
    /* What a stride of 0 means never changes. */
    assert_int_equal(sizeof(wo_query_stats), 16);
    assert_int_equal(sizeof(wo_eval_timing), 72);
    wo_index_free(index);
    free_scene(&s);
}

/* Defaults and results fill what the caller has, and nothing behind it. */
static void results_fill_what_there_is_room_for(void **state)
{
    (void)state;
    scene s = make_scene(40, 6, 120, true, 3);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    wo_index_info whole = {.struct_size = sizeof whole};
    assert_int_equal(wo_index_describe(index, &whole), WO_OK);
    for (size_t bytes = sizeof(size_t); bytes <= sizeof whole + 32; bytes += 8) {
        unsigned char room_for[sizeof whole + 40];
        memset(room_for, 0xab, sizeof room_for);
        memcpy(room_for, &bytes, sizeof bytes);
        wo_index_info *info = (void *)room_for;
        assert_int_equal(wo_index_describe(index, info), WO_OK);
        const size_t known = bytes < sizeof whole ? bytes : sizeof whole;
        assert_int_equal(info->struct_size, bytes);
        assert_memory_equal(room_for + sizeof bytes, (char *)&whole + sizeof bytes, known - sizeof bytes);
        for (size_t i = known; i < bytes; i++) assert_int_equal(room_for[i], 0);
        for (size_t i = bytes; i < sizeof room_for; i++) assert_int_equal(room_for[i], 0xab);
    }
    wo_index_info unset = {0};
    assert_int_equal(wo_index_describe(index, &unset), WO_ERR_ARGUMENT);
    /* What is not there has no room: a status, not a signal. */
    assert_int_equal(wo_index_describe(index, NULL), WO_ERR_ARGUMENT);
    assert_int_equal(wo_index_options(index, NULL), WO_ERR_ARGUMENT);
    assert_int_equal(wo_layer_describe(s.layer, NULL), WO_ERR_ARGUMENT);
    assert_int_equal(wo_evaluate(index, NULL, s.log, NULL, NULL, NULL), WO_ERR_ARGUMENT);
    assert_int_equal(wo_index_check_layer(index, s.layer, 1, NULL, NULL), WO_ERR_ARGUMENT);
    assert_int_equal(wo_cpu_query(NULL, NULL), WO_ERR_ARGUMENT);
    assert_int_equal(wo_cpu_measure(NULL, NULL), WO_ERR_ARGUMENT);
    unsigned char small[sizeof(wo_build_options)];
    memset(small, 0xab, sizeof small);
    wo_build_defaults(WO_METHOD_LSS, (void *)small, offsetof(wo_build_options, lambda));
    assert_int_equal(((wo_build_options *)(void *)small)->K, 4);
    assert_int_equal(small[offsetof(wo_build_options, lambda)], 0xab);
    wo_index_free(index);
    free_scene(&s);
}

/* Stats lie as far apart as the caller says. */
static void stats_have_a_stride(void **state)
{
    (void)state;
    enum { N = 200, K = 3 };
    wo_error err;
    scene s = make_scene(40, 6, N, true, 3);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    asker *searcher = create(index, NULL);
    int32_t ids[N * K];
    float scores[N * K];
    wo_query_stats plain[N];
    assert_int_equal(ask_stats(searcher, s.q, N, K, (answers){ids, scores, plain}, &err), WO_OK);
    for (size_t stride = 8; stride <= 24; stride += 4)
        for (int by = WO_BY_CELLS; by <= WO_BY_FULL; by++) {
            unsigned char apart[N * 24 + 8];
            memset(apart, 0xab, sizeof apart);
            wo_search_call call = call_of(searcher, s.q, N);
            call.k = K;
            call.ids = ids;
            call.scores = scores;
            call.stats = (void *)apart;
            call.stats_bytes = stride;
            call.by = (wo_by)by;
            assert_int_equal(wo_search_run(searcher->searcher, &call, &err), WO_OK);
            for (size_t i = 0; i < N; i++) {
                wo_query_stats got = {0};
                memcpy(&got, apart + i * stride, stride < sizeof got ? stride : sizeof got);
                if (by == WO_BY_CELLS) assert_memory_equal(&got, &plain[i], stride < sizeof got ? stride : sizeof got);
                if (by == WO_BY_FULL && stride >= 12) assert_int_equal(got.candidates, 40);
            }
            assert_int_equal(apart[N * stride], 0xab);
        }
    free_asker(searcher);
    wo_index_free(index);
    free_scene(&s);
}

/* N threads with a searcher each hold N workers, not N times N. */
static void a_searcher_has_one_thread_unless_told(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(40, 6, 120, true, 3);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    wo_searcher_options so;
    wo_searcher_defaults(&so, sizeof so);
    assert_int_equal(so.threads, 1);
    for (int i = 0; i < 3; i++) {
        wo_searcher *searcher = NULL;
        so.threads = i == 2 ? 3 : 1;
        assert_int_equal(wo_searcher_create(index, i ? &so : NULL, &searcher, &err), WO_OK);
        assert_int_equal(searcher->threads, i == 2 ? 3 : 1);
        wo_searcher_free(searcher);
    }
    wo_index_free(index);
    free_scene(&s);
}

/* ---- Calls ------------------------------------------------------------------------------------------------- */

/* An index whose planner gives some batches to FULL: asked for the cells, a query has one answer in every batch. */
static void the_cells_answer_alike_in_every_batch(void **state)
{
    (void)state;
    enum { N = 300, K = 4 };
    wo_error err;
    scene s = make_scene(80, 7, N, true, 9);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    o.lambda = 1; /* few candidates: FULL answers otherwise */
    wo_index *index = build(&s, &o);
    index->full = (woi_batches){8, 0};
    asker *searcher = create(index, NULL);
    int32_t one[N * K], ids[N * K];
    float one_scores[N * K], scores[N * K];
    wo_query_stats stats[N];
    for (size_t i = 0; i < N; i++)
        assert_int_equal(ask(searcher, s.q + i * s.d, 1, K, (answers){one + i * K, one_scores + i * K, NULL}, &err),
                         WO_OK);
    wo_search_call call = call_of(searcher, s.q, N);
    call.k = K;
    call.ids = ids;
    call.scores = scores;
    call.stats = stats;
    assert_int_equal(wo_search_run(searcher->searcher, &call, &err), WO_OK);
    assert_int_equal(stats[0].exact, 1);
    assert_true(memcmp(ids, one, sizeof ids) != 0);
    call.by = WO_BY_CELLS;
    assert_int_equal(wo_search_run(searcher->searcher, &call, &err), WO_OK);
    assert_int_equal(stats[0].exact, 0);
    assert_memory_equal(ids, one, sizeof ids);
    assert_memory_equal(scores, one_scores, sizeof scores);
    call.by = (wo_by)3;
    assert_int_equal(wo_search_run(searcher->searcher, &call, &err), WO_ERR_ARGUMENT);
    free_asker(searcher);
    wo_index_free(index);
    free_scene(&s);
}

/* Probes change from call to call, up to what the searcher has room for. */
static void probes_are_a_call_s(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(50, 6, 100, true, 4);
    for (int tree = 0; tree < 2; tree++) {
        const int method = tree ? EVIDENCE_BY_TREE : WO_METHOD_EVIDENCE;
        const wo_build_options o = small_options(method);
        wo_index *index = build(&s, &o);
        const wo_searcher_options so = {.struct_size = sizeof so, .threads = 1, .max_probes = 6};
        wo_searcher *searcher = NULL;
        assert_int_equal(wo_searcher_create(index, &so, &searcher, &err), WO_OK);
        for (uint32_t turn = 0; turn < 40; turn++) {
            const uint32_t probes = turn % 7; /* 0: one, its own */
            asker *own = create(index, &(asked){.probes = probes});
            int32_t ids[100 * 2], expected[100 * 2];
            float scores[100 * 2], expected_scores[100 * 2];
            wo_search_call call = {.struct_size = sizeof call,
                                   .queries = s.q,
                                   .n = 100,
                                   .k = 2,
                                   .ids = ids,
                                   .scores = scores,
                                   .probes = probes};
            assert_int_equal(wo_search_run(searcher, &call, &err), WO_OK);
            assert_int_equal(ask(own, s.q, 100, 2, (answers){expected, expected_scores, NULL}, &err), WO_OK);
            assert_memory_equal(ids, expected, sizeof ids);
            call.probes = 7;
            assert_int_equal(wo_search_run(searcher, &call, &err), WO_ERR_ARGUMENT);
            assert_string_equal(err.text, "7 probes are more than the 6 that the searcher was made for");
            free_asker(own);
        }
        int32_t id;
        float score;
        const int32_t many[1] = {0};
        const wo_search_call demanding = {.struct_size = sizeof demanding,
                                          .queries = s.q,
                                          .n = 1,
                                          .k = 1,
                                          .ids = &id,
                                          .scores = &score,
                                          .mandatory = many,
                                          .n_mandatory = 1};
        assert_int_equal(wo_search_run(searcher, &demanding, &err), WO_ERR_ARGUMENT);
        assert_string_equal(err.text, "1 mandatory classes are more than the 0 that the searcher was made for");
        wo_searcher_free(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

static void scores_of_given_classes(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(50, 6, 100, true, 4);
    for (int weights = WO_WEIGHTS_F32; weights <= WO_WEIGHTS_INT8; weights++) {
        wo_build_options o = small_options(WO_METHOD_EVIDENCE);
        o.weights = (wo_weights)weights;
        wo_index *index = build(&s, &o);
        wo_searcher *searcher = NULL;
        assert_int_equal(wo_searcher_create(index, NULL, &searcher, &err), WO_OK);
        int32_t ids[50];
        float logits[50];
        for (int32_t i = 0; i < 50; i++) ids[i] = 49 - i;
        for (size_t i = 0; i < s.n; i++) {
            assert_int_equal(wo_score(searcher, s.q + i * s.d, ids, 50, logits, &err), WO_OK);
            for (size_t j = 0; j < 50; j++) assert_true((double)logits[j] == logit(&s, s.q + i * s.d, 49 - j));
        }
        ids[7] = 50;
        assert_int_equal(wo_score(searcher, s.q, ids, 50, logits, &err), WO_ERR_ARGUMENT);
        assert_string_equal(err.text, "given class 50 is not one of the 50 classes");
        assert_int_equal(wo_score(searcher, NULL, NULL, 0, NULL, &err), WO_OK);
        wo_searcher_free(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

static void the_version_is_a_number_too(void **state)
{
    (void)state;
    char text[32];
    const unsigned v = wo_version_number();
    assert_int_equal(v, WO_VERSION);
    snprintf(text, sizeof text, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    assert_string_equal(text, wo_version());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_options_are_served),
        cmocka_unit_test(older_callers_know_no_prior),
        cmocka_unit_test(newer_options_are_served_where_they_ask_for_nothing_new),
        cmocka_unit_test(collectives_are_taken_as_options_are),
        cmocka_unit_test(reserved_fields_are_zero),
        cmocka_unit_test(results_fill_what_there_is_room_for),
        cmocka_unit_test(stats_have_a_stride),
        cmocka_unit_test(a_searcher_has_one_thread_unless_told),
        cmocka_unit_test(the_cells_answer_alike_in_every_batch),
        cmocka_unit_test(probes_are_a_call_s),
        cmocka_unit_test(scores_of_given_classes),
        cmocka_unit_test(the_version_is_a_number_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
