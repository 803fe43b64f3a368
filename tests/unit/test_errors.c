/* What every kind of failure says that it is about: wo_error's fields, call by call. */
#include "engine.h"

#include "base/error.h"
#include "store/store.h"

static void values_are_pinned(void **state)
{
    (void)state;
    const wo_about in_order[] = {WO_ABOUT_NONE,     WO_ABOUT_OPTION, WO_ABOUT_LAYER, WO_ABOUT_BIAS,   WO_ABOUT_LOG,
                                 WO_ABOUT_TUNE_LOG, WO_ABOUT_INDEX,  WO_ABOUT_QUERY, WO_ABOUT_OUTPUT, WO_ABOUT_LABELS};
    for (int i = 0; i < 10; i++) assert_int_equal(in_order[i], i);
    assert_int_equal(sizeof(wo_error), 320);
    assert_int_equal(offsetof(wo_error, text), 48);
}

static void every_field_is_set(void **state)
{
    (void)state;
    static const unsigned char zeros[sizeof((wo_error *)0)->reserved];
    wo_error err;
    memset(&err, 'x', sizeof err);
    assert_int_equal(woi_fail(&err, WO_ERR_FORMAT, 7, "one"), WO_ERR_FORMAT);
    assert_int_equal(err.about, WO_ABOUT_NONE);
    assert_string_equal(err.option, "");
    assert_memory_equal(err.reserved, zeros, sizeof zeros);

    /* The inner one knows better. */
    assert_int_equal(woi_about(&err, WO_ABOUT_BIAS, WO_ERR_FORMAT), WO_ERR_FORMAT);
    assert_int_equal(woi_about(&err, WO_ABOUT_LAYER, WO_ERR_FORMAT), WO_ERR_FORMAT);
    assert_int_equal(err.about, WO_ABOUT_BIAS);
    assert_int_equal(err.offset, 7);
    assert_int_equal(woi_about(NULL, WO_ABOUT_BIAS, WO_ERR_IO), WO_ERR_IO);

    assert_int_equal(woi_fail_option(&err, WO_ERR_ARGUMENT, "lambda", "lambda is %d", 3), WO_ERR_ARGUMENT);
    assert_int_equal(err.about, WO_ABOUT_OPTION);
    assert_string_equal(err.option, "lambda");
    assert_string_equal(err.text, "lambda is 3");
    woi_error_prefix(&err, "outer");
    assert_string_equal(err.option, "lambda");
    assert_int_equal(woi_fail_option(NULL, WO_ERR_ARGUMENT, "lambda", "lambda is %d", 3), WO_ERR_ARGUMENT);
    assert_int_equal(woi_fail(&err, WO_ERR_FORMAT, 7, "one, not %s", err.text), WO_ERR_FORMAT);
    assert_string_equal(err.text, "one, not outer: lambda is 3");
    assert_string_equal(err.option, "");
    woi_error_option(&err, WO_ABOUT_OPTION, "a name of an option that is far too long");
    assert_int_equal(strlen(err.option), sizeof err.option - 1);

    /* A success says nothing. */
    err.about = WO_ABOUT_NONE;
    assert_int_equal(woi_about(&err, WO_ABOUT_LOG, WO_OK), WO_OK);
    assert_int_equal(err.about, WO_ABOUT_NONE);
}

/* A call that must fail, about this. */
#define ABOUT(call, expected, name)                                                                           \
    do {                                                                                                      \
        wo_error err;                                                                                         \
        memset(&err, 'x', sizeof err);                                                                        \
        const wo_status got = (call);                                                                         \
        if (got == WO_OK) fail_msg("%s succeeded", #call);                                                    \
        if (err.status != got || err.about != (expected) || strcmp(err.option, (name)) != 0)                  \
            fail_msg("%s: status %d, about %d, option '%s': %s", #call, (int)got, (int)err.about, err.option, \
                     err.text);                                                                               \
    } while (0)

/* An array (3, 2) of 4 bytes a number. */
static void write_npy(const char *name, const char *type, const void *numbers, size_t bytes)
{
    char npy[128 + 24] = "\x93NUMPY\x01\x00\x76\x00";
    const int length = snprintf(npy + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (3, 2), }", type);
    memset(npy + 10 + length, ' ', 118 - (size_t)length);
    npy[127] = '\n';
    memcpy(npy + 128, numbers, bytes);
    scratch_write(name, npy, 128 + bytes);
}

static void layers(void **state)
{
    (void)state;
    wo_layer *layer = NULL;
    const float w[] = {1, 2, 3, 4, 5, 6}, bad[] = {1, NAN};
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_create(scratch("layer"), "layer", &writer, NULL), WO_OK);
    assert_int_equal(woi_st_declare(writer, "rows", WOI_F32, 2, (uint64_t[]){3, 2}, NULL), WO_OK);
    assert_int_equal(woi_st_append(writer, w, sizeof w, NULL), WO_OK);
    assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
    woi_st_writer_free(writer);
    write_npy("w.npy", "<f4", w, sizeof w);

    wo_layer_options o = {.struct_size = sizeof o};
    ABOUT(wo_layer_open(scratch("none"), &o, &layer, &err), WO_ABOUT_LAYER, "");
    ABOUT(wo_layer_open(scratch("layer"), &o, &layer, &err), WO_ABOUT_LAYER, "weight_name");
    o.weight_name = "rows";
    ABOUT(wo_layer_open(scratch("w.npy"), &o, &layer, &err), WO_ABOUT_LAYER, "weight_name");
    o.bias_name = "none";
    ABOUT(wo_layer_open(scratch("layer"), &o, &layer, &err), WO_ABOUT_LAYER, "bias_name");
    o = (wo_layer_options){.struct_size = sizeof o, .bias_path = scratch("w.npy")};
    ABOUT(wo_layer_open(scratch("layer"), &o, &layer, &err), WO_ABOUT_LAYER, "bias_path");
    ABOUT(wo_layer_open(scratch("w.npy"), &o, &layer, &err), WO_ABOUT_BIAS, "");
    o.bias_path = scratch("none");
    ABOUT(wo_layer_open(scratch("w.npy"), &o, &layer, &err), WO_ABOUT_BIAS, "");
    ABOUT(wo_layer_wrap(bad, NULL, 1, 2, &layer, &err), WO_ABOUT_LAYER, "");
    ABOUT(wo_layer_wrap(w, NULL, 0, 2, &layer, &err), WO_ABOUT_LAYER, "");
    assert_null(layer);
}

static void logs(void **state)
{
    (void)state;
    wo_log *log = NULL;
    const float q[4] = {0};
    ABOUT(wo_log_open(scratch("none"), &log, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_log_open(scratch_text("text", "no log"), &log, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_log_wrap(q, 2, 0, NULL, NULL, &log, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_log_wrap(q, 2, 2, (int64_t[]){0, 2, 1}, (int32_t[]){0, 0}, &log, &err), WO_ABOUT_LOG, "");
    assert_null(log);
}

static void labels(void **state)
{
    (void)state;
    const float q[] = {1, 2, 3, 4, 5, 6};
    const int32_t ids[] = {0, 1, 2, -1, 3, -1};
    wo_log *log = NULL;
    wo_layer *layer = NULL;
    wo_index *index = NULL;
    write_npy("q.npy", "<f4", q, sizeof q);
    write_npy("labels.npy", "<i4", ids, sizeof ids);
    ABOUT(wo_log_open_labelled(scratch("q.npy"), scratch("none"), &log, &err), WO_ABOUT_LABELS, "");
    ABOUT(wo_log_open_labelled(scratch("q.npy"), scratch("q.npy"), &log, &err), WO_ABOUT_LABELS, "");
    ABOUT(wo_log_open_labelled("tests/golden/log.safetensors", scratch("labels.npy"), &log, &err), WO_ABOUT_LABELS, "");
    ABOUT(wo_log_open_labelled(scratch("none"), scratch("labels.npy"), &log, &err), WO_ABOUT_LOG, "");
    assert_null(log);
    /* A label that is no class of the layer; of the log that is judged on, the option says so. */
    assert_int_equal(wo_log_open_labelled(scratch("q.npy"), scratch("labels.npy"), &log, NULL), WO_OK);
    assert_int_equal(wo_layer_wrap(q, NULL, 3, 2, &layer, NULL), WO_OK);
    wo_build_options o;
    wo_tune_options t;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    wo_tune_defaults(&t, sizeof t);
    wo_log *good = NULL;
    assert_int_equal(wo_log_wrap(q, 3, 2, NULL, NULL, &good, NULL), WO_OK);
    ABOUT(wo_index_build(layer, log, &o, &index, &err), WO_ABOUT_LABELS, "");
    ABOUT(wo_index_tune(layer, good, log, &t, &index, &err), WO_ABOUT_LABELS, "tune_log");
    wo_log_free(good);
    wo_log_free(log);
    wo_layer_free(layer);
}

static void building(void **state)
{
    (void)state;
    scene s = make_scene(10, 3, 60, true, 1), wider = make_scene(10, 4, 60, true, 1);
    wo_log *bare = NULL, *few = NULL, *none = NULL;
    wo_index *index = NULL;
    assert_int_equal(wo_log_wrap(s.q, 60, 3, NULL, NULL, &bare, NULL), WO_OK);
    assert_int_equal(wo_log_wrap(s.q, 5, 3, s.indptr, s.labels, &few, NULL), WO_OK);
    assert_int_equal(wo_log_wrap(s.q, 0, 3, NULL, NULL, &none, NULL), WO_OK);
    wo_build_options o;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    ABOUT(wo_index_build(s.layer, NULL, &o, &index, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_index_build(s.layer, wider.log, &o, &index, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_index_build(s.layer, none, &o, &index, &err), WO_ABOUT_LOG, "");
    o.source = WO_SOURCE_LABELS;
    ABOUT(wo_index_build(s.layer, bare, &o, &index, &err), WO_ABOUT_LOG, "source");
    o.lambda = 3;
    ABOUT(wo_index_build(s.layer, s.log, &o, &index, &err), WO_ABOUT_OPTION, "lambda");
    wo_build_defaults(WO_METHOD_LSS, &o, sizeof o);
    ABOUT(wo_index_build(s.layer, bare, &o, &index, &err), WO_ABOUT_LOG, "");

    wo_tune_options t;
    wo_tune_defaults(&t, sizeof t);
    ABOUT(wo_index_tune(s.layer, NULL, s.log, &t, &index, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_index_tune(s.layer, wider.log, s.log, &t, &index, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_index_tune(s.layer, s.log, wider.log, &t, &index, &err), WO_ABOUT_TUNE_LOG, "");
    ABOUT(wo_index_tune(s.layer, s.log, none, &t, &index, &err), WO_ABOUT_TUNE_LOG, "");
    t.target = 2.5;
    ABOUT(wo_index_tune(s.layer, s.log, NULL, &t, &index, &err), WO_ABOUT_OPTION, "target");
    wo_tune_defaults(&t, sizeof t);
    t.target_us = 1e-9; /* nothing is as fast: nobody's fault */
    t.max_time_s = 0;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    o.threads = 1;
    t.build = &o;
    ABOUT(wo_index_tune(s.layer, s.log, s.log, &t, &index, &err), WO_ABOUT_NONE, "");
    assert_null(index);
    wo_log_free(bare);
    wo_log_free(few);
    wo_log_free(none);
    free_scene(&s);
    free_scene(&wider);
}

static void indexes(void **state)
{
    (void)state;
    scene s = make_scene(10, 3, 60, true, 1), other = make_scene(10, 3, 60, true, 2),
          wider = make_scene(10, 4, 9, true, 1);
    wo_build_options o;
    wo_index *index = NULL, *again = NULL;
    wo_build_defaults(WO_METHOD_SLIDE, &o, sizeof o);
    o.K = 3;
    o.L = 2;
    o.weights = WO_WEIGHTS_NONE;
    assert_int_equal(wo_index_build(s.layer, NULL, &o, &index, NULL), WO_OK);
    assert_int_equal(wo_index_save(index, scratch("index"), NULL), WO_OK);
    ABOUT(wo_index_save(index, scratch("no/index"), &err), WO_ABOUT_OUTPUT, "");
    ABOUT(wo_index_save(index, scratch_folder, &err), WO_ABOUT_OUTPUT, "");
    ABOUT(wo_index_open(scratch("none"), NULL, &again, &err), WO_ABOUT_INDEX, "");
    ABOUT(wo_index_open(scratch("layer"), NULL, &again, &err), WO_ABOUT_INDEX, "");
    ABOUT(wo_index_open(scratch("index"), NULL, &again, &err), WO_ABOUT_INDEX, "layer");
    const wo_open_options oo = {.struct_size = sizeof oo, .layer = other.layer};
    ABOUT(wo_index_open(scratch("index"), &oo, &again, &err), WO_ABOUT_LAYER, "");

    wo_searcher *searcher = NULL;
    wo_searcher_options so;
    wo_searcher_defaults(&so, sizeof so);
    so.max_probes = 99;
    ABOUT(wo_searcher_create(index, &so, &searcher, &err), WO_ABOUT_OPTION, "probes");
    assert_null(searcher);
    assert_int_equal(wo_searcher_create(index, NULL, &searcher, NULL), WO_OK);
    int32_t ids[1];
    float scores[1];
    size_t n;
    wo_search_call c = {.struct_size = sizeof c, .queries = s.q, .n = 1, .k = 1, .ids = ids, .scores = scores};
    c.forbidden = (int32_t[]){10};
    c.n_forbidden = 1;
    ABOUT(wo_search_run(searcher, &c, &err), WO_ABOUT_OPTION, "forbidden");
    c.n_forbidden = 0;
    c.logit_bias = (float[10]){INFINITY};
    ABOUT(wo_search_run(searcher, &c, &err), WO_ABOUT_OPTION, "logit_bias");
    c.logit_bias = NULL;
    c.probes = 2;
    ABOUT(wo_search_run(searcher, &c, &err), WO_ABOUT_OPTION, "probes");
    c.probes = 0;
    c.struct_size = 0;
    ABOUT(wo_search_run(searcher, &c, &err), WO_ABOUT_OPTION, "struct_size");
    c.struct_size = sizeof c;
    c.queries = (float[]){NAN, 0, 0};
    ABOUT(wo_search_candidates(searcher, &c, ids, 1, &n, &err), WO_ABOUT_QUERY, "");
    ABOUT(wo_search(searcher, s.q, 1, 0, ids, scores, &err), WO_ABOUT_OPTION, "k");
    ABOUT(wo_search(searcher, NULL, 1, 1, ids, scores, &err), WO_ABOUT_QUERY, "");
    ABOUT(wo_score(searcher, s.q, (int32_t[]){-1}, 1, scores, &err), WO_ABOUT_OPTION, "ids");
    wo_searcher_free(searcher);

    wo_eval_options eo;
    wo_eval_result r = {.struct_size = sizeof r};
    wo_eval_defaults(&eo, sizeof eo);
    eo.skip_timing = 1;
    ABOUT(wo_evaluate(index, NULL, wider.log, &eo, &r, &err), WO_ABOUT_LOG, "");
    ABOUT(wo_evaluate(index, other.layer, s.log, &eo, &r, &err), WO_ABOUT_LAYER, "");
    eo.threads = -1;
    ABOUT(wo_evaluate(index, NULL, s.log, &eo, &r, &err), WO_ABOUT_OPTION, "threads");
    wo_index_free(index);

    /* Rows in bf16 alone cannot answer exactly. */
    o.weights = WO_WEIGHTS_BF16;
    assert_int_equal(wo_index_build(s.layer, NULL, &o, &index, NULL), WO_OK);
    assert_int_equal(wo_index_save(index, scratch("bf16"), NULL), WO_OK);
    wo_index_free(index);
    assert_int_equal(wo_index_open(scratch("bf16"), NULL, &index, NULL), WO_OK);
    assert_int_equal(wo_searcher_create(index, NULL, &searcher, NULL), WO_OK);
    c.queries = s.q;
    c.by = WO_BY_FULL;
    ABOUT(wo_search_run(searcher, &c, &err), WO_ABOUT_INDEX, "layer");
    c.by = WO_BY_PLANNER;
    c.exact_fallback = 1;
    ABOUT(wo_search_run(searcher, &c, &err), WO_ABOUT_INDEX, "layer");
    wo_searcher_free(searcher);
    wo_index_free(index);
    free_scene(&s);
    free_scene(&other);
    free_scene(&wider);
}

/* Build options have the names of the table, by which wo_build_set knows them, not those of their fields. */
static void build_options(void **state)
{
    (void)state;
    wo_build_options o;
    wo_build_defaults(WO_METHOD_POPULAR, &o, sizeof o);
    o.n_popular = 0;
    ABOUT(wo_build_check(&o, &err), WO_ABOUT_OPTION, "popular");
    assert_int_equal(wo_build_set(&o, "popular", "1", NULL), WO_OK);
    assert_int_equal(o.n_popular, 1);
    wo_build_defaults(WO_METHOD_LSS, &o, sizeof o);
    o.last_step = 1;
    assert_int_equal(wo_build_set(&o, "max_neurons", "5", NULL), WO_OK);
    assert_int_equal(o.max_classes, 5);
    ABOUT(wo_build_check(&o, &err), WO_ABOUT_OPTION, "max_neurons");
}

/* A bias was forgotten only where the index may have one. */
static void other_layers(void **state)
{
    (void)state;
    scene biased = make_scene(10, 3, 60, true, 1), plain = make_scene(10, 3, 60, false, 1);
    scene other = make_scene(10, 3, 60, false, 2);
    const wo_open_options oo = {.struct_size = sizeof oo, .layer = other.layer};
    wo_eval_options eo;
    wo_eval_result r = {.struct_size = sizeof r};
    wo_eval_defaults(&eo, sizeof eo);
    eo.skip_timing = 1;
    const struct {
        const scene *of;
        wo_weights weights;
        const char *opened, *judged;
    } cases[] = {
        {&biased, WO_WEIGHTS_F32, "bias", "bias"}, {&biased, WO_WEIGHTS_NONE, "bias", "bias"},
        {&plain, WO_WEIGHTS_F32, "", ""},          {&plain, WO_WEIGHTS_BF16, "", ""},
        {&plain, WO_WEIGHTS_NONE, "bias", ""}, /* its file does not say whether it has one */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wo_build_options o;
        wo_index *index = NULL, *again = NULL;
        wo_build_defaults(WO_METHOD_SLIDE, &o, sizeof o);
        o.weights = cases[i].weights;
        assert_int_equal(wo_index_build(cases[i].of->layer, NULL, &o, &index, NULL), WO_OK);
        assert_int_equal(wo_index_save(index, scratch("index"), NULL), WO_OK);
        ABOUT(wo_index_open(scratch("index"), &oo, &again, &err), WO_ABOUT_LAYER, cases[i].opened);
        ABOUT(wo_evaluate(index, other.layer, other.log, &eo, &r, &err), WO_ABOUT_LAYER, cases[i].judged);
        wo_index_free(index);
    }
    free_scene(&biased);
    free_scene(&plain);
    free_scene(&other);
}

static void memory(void **state)
{
    (void)state;
    wo_layer *layer = NULL;
    const float w[] = {1, 2};
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_left = 0;
    ABOUT(wo_layer_wrap(w, NULL, 1, 2, &layer, &err), WO_ABOUT_NONE, "");
    allocations_left = -1;
    wo_allocator_set(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_pinned),
        cmocka_unit_test(every_field_is_set),
        cmocka_unit_test(layers),
        cmocka_unit_test(logs),
        cmocka_unit_test(labels),
        cmocka_unit_test(building),
        cmocka_unit_test(indexes),
        cmocka_unit_test(build_options),
        cmocka_unit_test(other_layers),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
