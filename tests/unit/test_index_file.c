/* index/save.c, open.c, metadata.c: what is saved is what is opened. What is refused is in test_index_hostile.c. */
#include "failing_json.h"
#include "index_files.h"

#include "base/mem.h"
#include "index/options.h"

#include <jansson.h>
#include <locale.h>

static void saving_and_opening_changes_nothing(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (size_t turn = 0; turn < 4 * N_METHODS; turn++) {
        const size_t d = turn / N_METHODS < 2 ? 5 : 20; /* a tree of 16 coordinates: without a basis, then with one */
        scene s = make_scene(30 + turn, d, 60, turn / 4 % 2, 200 + turn);
        const bool named = turn / 8 % 2;
        if (named) name_classes(&s);
        wo_build_options o = small_options(methods[turn % N_METHODS]);
        o.lambda = 0.1 + 1e-17 + (double)turn / 13; /* no short decimals */
        o.t1 = 1.0 / 3;
        o.t2 = 1e-300;
        o.probes = 2;
        o.seed = UINT64_MAX - turn;
        if (o.method == WO_METHOD_EVIDENCE && turn / N_METHODS % 2) {
            o.prior = 1.0 / 7;
            o.focus = 3 + 1e-15;
            o.cap = 9;
        }
        wo_index *index = build(&s, &o);
        save(index, scratch("first"));
        wo_index *again = open_index(scratch("first"), turn % 2 ? s.layer : NULL);
        save(again, scratch("second"));
        assert_same_file(scratch("first"), scratch("second"));
        assert_same_answers(&s, index, again);
        wo_index_info info = {.struct_size = sizeof info}, other = info;
        wo_build_options kept = {.struct_size = sizeof kept};
        wo_index_describe(index, &info);
        wo_index_describe(again, &other);
        assert_int_equal(wo_index_options(again, &kept), WO_OK);
        assert_true(info.method == other.method && info.m == other.m && info.d == other.d);
        assert_true(info.n_cells == other.n_cells && info.n_entries == other.n_entries);
        assert_true(info.n_empty == other.n_empty && info.largest == other.largest);
        assert_true(info.index_bytes == other.index_bytes && info.has_names == other.has_names);
        assert_true(info.checksum == 0 && other.checksum != 0 && other.checksum != last); /* what was built has none */
        last = other.checksum;
        assert_true(kept.lambda == o.lambda && kept.t1 == o.t1 && kept.t2 == o.t2);
        assert_true(kept.seed == o.seed && kept.K == o.K && kept.source == o.source);
        assert_true(kept.router == o.router && kept.beam == o.beam);
        assert_true(kept.nodes == o.nodes && kept.leaves == o.leaves);
        assert_true(kept.prior == o.prior && kept.cap == o.cap);
        assert_true(kept.focus == (o.router == WO_ROUTER_TREE ? o.focus : 0)); /* not used: not kept */
        assert_int_equal(kept.route_d, o.router == WO_ROUTER_TREE && d < 16 ? d : o.route_d);
        assert_int_equal(info.has_names, named);
        size_t bytes = 0;
        const char *name = wo_index_label(again, 7, &bytes);
        if (named) {
            assert_int_equal(bytes, strlen("class 49"));
            assert_memory_equal(name, "class 49", bytes);
        } else {
            assert_null(name);
        }
        assert_null(wo_index_label(again, (int32_t)s.m, &bytes));
        save(again, scratch("first")); /* over the file that it is mapped from */
        assert_same_answers(&s, index, again);
        assert_same_file(scratch("first"), scratch("second"));
        wo_index_free(index);
        wo_index_free(again);
        free_scene(&s);
    }
}

/* What lies in an index does not depend on the threads that build it, nor on which build it is. */
static void one_seed_gives_one_file(void **state)
{
    (void)state;
    scene s = make_scene(80, 20, 300, true, 3);
    for (size_t turn = 0; turn <= N_METHODS; turn++) {
        wo_build_options o = small_options(turn < N_METHODS ? methods[turn] : EVIDENCE_BY_TREE);
        o.K = 4;
        if (turn == N_METHODS) o.nodes = o.leaves = o.route_d = 0; /* chosen from the data */
        for (o.threads = 0; o.threads <= 2; o.threads++) {
            wo_index *index = build(&s, &o);
            save(index, scratch(o.threads ? "other" : "first"));
            if (o.threads) assert_same_file(scratch("first"), scratch("other"));
            wo_index_free(index);
        }
        o.seed++;
        wo_index *index = build(&s, &o);
        save(index, scratch("other"));
        size_t n, m;
        char *a = slurp(scratch("first"), &n), *b = slurp(scratch("other"), &m);
        assert_true(n != m || memcmp(a, b, n) != 0);
        free(a);
        free(b);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* The file's numbers are written with a point whatever the locale says; where there is none with a comma, nothing is
 * shown. */
static void the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8", "pl_PL.UTF-8"};
    scene s = make_scene(10, 3, 20, true, 3);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    save(index, scratch("point"));
    bool found = false;
    for (size_t i = 0; !found && i < sizeof commas / sizeof *commas; i++) found = setlocale(LC_ALL, commas[i]);
    save(index, scratch("comma"));
    wo_index *again = open_index(scratch("point"), NULL);
    setlocale(LC_ALL, "C");
    assert_same_file(scratch("point"), scratch("comma"));
    wo_index_free(again);
    wo_index_free(index);
    free_scene(&s);
}

static void an_index_without_rows_needs_its_layer(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(30, 5, 60, true, 5), other = make_scene(30, 5, 60, true, 6),
          larger = make_scene(31, 5, 60, true, 5);
    for (size_t turn = 0; turn < 2 * N_METHODS; turn++) {
        wo_build_options o = small_options(methods[turn / 2]);
        o.weights = turn % 2 ? WO_WEIGHTS_NONE : WO_WEIGHTS_F32;
        wo_index *index = build(&s, &o);
        save(index, scratch("bare"));
        size_t bytes;
        free(slurp(scratch("bare"), &bytes));
        if (methods[turn / 2] != EVIDENCE_BY_TREE) assert_true(turn % 2 == 0 || bytes < 4096 + 128 * (5 + 17));
        if (turn % 2) refuse(scratch("bare"), NULL, WO_ERR_ARGUMENT, "the index has no rows");
        refuse(scratch("bare"), other.layer, WO_ERR_ARGUMENT, "the layer is not the one that the index was built for");
        refuse(scratch("bare"), larger.layer, WO_ERR_ARGUMENT, "the layer is not the one that the index was built for");
        wo_index *again = open_index(scratch("bare"), s.layer);
        assert_same_answers(&s, index, again);
        save(again, scratch("again"));
        assert_same_file(scratch("bare"), scratch("again"));
        wo_index_free(index);
        wo_index_free(again);
        /* The rows inside are a layer like any other. */
        wo_layer *layer = NULL;
        const wo_status status = wo_layer_open(scratch("bare"), NULL, &layer, &err);
        assert_int_equal(status, turn % 2 ? WO_ERR_FORMAT : WO_OK);
        if (turn % 2) continue;
        again = open_index(scratch("bare"), layer); /* the same checksum */
        wo_index_free(again);
        wo_layer_free(layer);
    }
    free_scene(&s);
    free_scene(&other);
    free_scene(&larger);
}

static void an_index_with_nothing_in_its_cells_is_an_index(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(10, 3, 20, true, 7);
    memset(s.indptr, 0, 21 * sizeof *s.indptr);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    o.source = WO_SOURCE_LABELS;
    wo_index *index = build(&s, &o);
    save(index, scratch("empty"));
    wo_index *again = open_index(scratch("empty"), NULL);
    wo_index_info info = {.struct_size = sizeof info};
    wo_index_describe(again, &info);
    assert_int_equal(info.n_entries, 0);
    assert_int_equal(info.n_empty, 16);
    asker *searcher = create(again, NULL);
    int32_t id;
    float score;
    wo_query_stats stats;
    assert_int_equal(ask_stats(searcher, s.q, 1, 1, (answers){&id, &score, &stats}, &err), WO_OK);
    assert_int_equal(id, -1);
    assert_int_equal(stats.candidates, 0);
    assert_int_equal(stats.status, WO_OK);
    free_asker(searcher);
    wo_index_free(again);
    wo_index_free(index);
    free_scene(&s);
}

/* ---- Other versions ---------------------------------------------------------------------------------------- */

/* A file that lacks an option was written before there was one, and has its default. */
static void an_absent_option_has_its_default(void **state)
{
    (void)state;
    scene s = make_scene(40, 5, 60, true, 10);
    for (size_t i = 0; i < N_METHODS; i++) {
        wo_build_options o = small_options(methods[i]), defaults;
        wo_build_defaults(o.method, &defaults, sizeof defaults);
        for (const woi_option *option = woi_options + 1; option->name; option++) {
            char key[40], text[40], expected[40];
            snprintf(key, sizeof key, "index.%s", option->name);
            /* What the tensors follow from is as the default says. */
            wo_build_options now = o;
            if (option->words || strchr("KL", option->name[0]))
                woi_option_set_value(option, woi_option_value(option, &defaults), &now);
            if (now.router != o.router || (now.method != WO_METHOD_EVIDENCE && now.learner != o.learner)) continue;
            wo_index *index = build(&s, &now);
            save(index, scratch("whole"));
            wo_index_free(index);
            if (strstr("nodes leaves route_d", option->name) && o.router == WO_ROUTER_TREE) {
                refuse(rewrite(scratch("whole"), &(edit){.name = key, .drop = true}), NULL, WO_ERR_FORMAT,
                       "the tree has");
                continue;
            }
            wo_index *opened = open_index(rewrite(scratch("whole"), &(edit){.name = key, .drop = true}), NULL);
            wo_build_get(&opened->options, option->name, text, sizeof text);
            wo_build_options without = defaults; /* what indexes did before there was the option */
            if (option->late && woi_option_used(option, &now)) woi_option_set_value(option, option->missing, &without);
            wo_build_get(&without, option->name, expected, sizeof expected);
            assert_string_equal(text, expected);
            wo_index_free(opened);
        }
    }
    free_scene(&s);
}

/* A later version's lines are kept; its words are not understood, and the sentence says so. */
static void lines_of_a_later_version_are_kept(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(20, 5, 60, true, 10);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o);
    save(index, scratch("whole"));
    wo_index *opened =
        open_index(rewrite(scratch("whole"), &(edit){.name = "index.colour", .text = "blue", .add = true}), NULL);
    assert_same_answers(&s, index, opened);
    save(opened, scratch("again"));
    woi_st *st = NULL;
    assert_int_equal(woi_st_open(scratch("again"), &st, &err), WO_OK);
    assert_string_equal(woi_st_meta(st, "index.colour"), "blue");
    woi_st_free(st);
    wo_index_free(opened);
    opened = open_index(rewrite(scratch("whole"), &(edit){.name = "tune.mood", .text = "x", .add = true}), NULL);
    save(opened, scratch("again"));
    assert_int_equal(woi_st_open(scratch("again"), &st, &err), WO_OK);
    assert_string_equal(woi_st_meta(st, "tune.mood"), "x");
    woi_st_free(st);
    wo_index_free(opened);
    char sentence[192];
    snprintf(sentence, sizeof sentence,
             "'index.router' is \"graph\", which wideout %s does not know: the file was written by wideout 7.8.9",
             wo_version());
    rewritten_by = "7.8.9";
    refuse(rewrite(scratch("whole"), &(edit){.name = "index.router", .text = "graph"}), NULL, WO_ERR_FORMAT, sentence);
    refuse(rewrite(scratch("whole"), &(edit){.name = "index.K", .text = "25"}), NULL, WO_ERR_FORMAT,
           "written by wideout 7.8.9: K is 25, expected 1 to 24");
    rewritten_by = NULL;
    wo_index_free(index);
    free_scene(&s);
}

/* Columns that a later version put behind ours are left out; an older version's fewer stay as they are; still fewer are
 * no table of ours. */
static void tables_may_have_other_columns(void **state)
{
    (void)state;
    enum { WIDE = WOI_TRACE_COLUMNS + 3, OLD = WOI_TRACE_FIRST_COLUMNS, NARROW = OLD - 1 };
    scene s = make_scene(20, 5, 60, true, 10);
    const wo_build_options o = small_options(WO_METHOD_LSS);
    wo_index *index = build(&s, &o);
    wo_trace trace = {.struct_size = sizeof trace}, other = trace;
    assert_true(wo_index_trace(index, &trace));
    save(index, scratch("whole"));
    double *wide = room(trace.rows * WIDE, sizeof *wide);
    for (size_t i = 0; i < trace.rows * WIDE; i++)
        wide[i] = i % WIDE < trace.columns ? trace.values[i / WIDE * trace.columns + i % WIDE] : -7;
    wo_index *opened = open_index(
        rewrite(scratch("whole"),
                &(edit){.name = "trace", .dtype = WOI_F64, .n_dims = 2, .shape = {trace.rows, WIDE}, .data = wide}),
        NULL);
    assert_true(wo_index_trace(opened, &other));
    assert_int_equal(other.rows, trace.rows);
    assert_int_equal(other.columns, trace.columns);
    assert_memory_equal(other.values, trace.values, trace.rows * trace.columns * sizeof *wide);
    save(opened, scratch("again"));
    assert_same_file(scratch("whole"), scratch("again"));
    wo_index_free(opened);
    for (size_t i = 0; i < trace.rows * OLD; i++) wide[i] = trace.values[i / OLD * trace.columns + i % OLD];
    const char *old =
        rewrite(scratch("whole"),
                &(edit){.name = "trace", .dtype = WOI_F64, .n_dims = 2, .shape = {trace.rows, OLD}, .data = wide});
    opened = open_index(old, NULL);
    assert_true(wo_index_trace(opened, &other));
    assert_true(other.rows == trace.rows && other.columns == OLD);
    assert_memory_equal(other.values, wide, trace.rows * OLD * sizeof *wide);
    save(opened, scratch("again"));
    assert_same_file(old, scratch("again"));
    refuse(rewrite(scratch("whole"),
                   &(edit){.name = "trace", .dtype = WOI_F64, .n_dims = 2, .shape = {trace.rows, NARROW}}),
           NULL, WO_ERR_FORMAT, "'trace' is no table of 9 columns of F64");
    refuse(
        rewrite(scratch("whole"), &(edit){.name = "trace", .dtype = WOI_F32, .n_dims = 2, .shape = {trace.rows, WIDE}}),
        NULL, WO_ERR_FORMAT, "'trace' is no table of 9 columns of F64");
    free(wide);
    wo_index_free(opened);
    wo_index_free(index);
    free_scene(&s);
}

/* ---- What is verified -------------------------------------------------------------------------------------- */

static wo_status read_as(const char *path, wo_verify verify, const wo_progress *progress, wo_index **index,
                         wo_error *err)
{
    const wo_open_options o = {
        .struct_size = sizeof o, .verify = verify, .progress = progress ? *progress : (wo_progress){0}};
    return wo_index_open(path, &o, index, err);
}

/* One byte of each tensor is changed in turn. */
static void what_is_verified_is_the_callers_choice(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(20, 5, 60, true, 10);
    name_classes(&s);
    const wo_build_options o = small_options(WO_METHOD_LSS);
    wo_index *index = build(&s, &o), *opened;
    save(index, scratch("whole"));
    size_t bytes, n_used = 0;
    char *data = slurp(scratch("whole"), &bytes);
    woi_st *st = NULL;
    assert_int_equal(woi_st_open(scratch("whole"), &st, &err), WO_OK);
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        const bool used = strcmp(t->name, "trace") != 0 && strncmp(t->name, "padding.", 8) != 0;
        const bool bounded = strncmp(t->name, "cells.", 6) == 0 || strncmp(t->name, "names.", 6) == 0;
        n_used += used;
        data[t->offset + t->bytes - 1] ^= (char)0x80;
        const char *path = scratch_write("changed", data, bytes);
        data[t->offset + t->bytes - 1] ^= (char)0x80;
        assert_int_equal(read_as(path, WO_VERIFY_ALL, NULL, &opened, &err), WO_ERR_CHECKSUM);
        assert_null(opened);
        assert_int_equal(read_as(path, WO_VERIFY_USED, NULL, &opened, &err), used ? WO_ERR_CHECKSUM : WO_OK);
        wo_index_free(opened);
        /* Whoever trusts a file is safe all the same: what a search relies on is looked at. */
        assert_int_equal(read_as(path, WO_VERIFY_NONE, NULL, &opened, &err), bounded ? WO_ERR_FORMAT : WO_OK);
        wo_index_free(opened);
    }
    assert_true(n_used >= 8);
    woi_st_free(st);
    for (int verify = WO_VERIFY_ALL; verify <= WO_VERIFY_NONE; verify++) {
        assert_int_equal(read_as(scratch("whole"), (wo_verify)verify, NULL, &opened, &err), WO_OK);
        assert_same_answers(&s, index, opened);
        wo_index_free(opened);
    }
    free(data);
    wo_index_free(index);
    free_scene(&s);
}

static int count_reports(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    assert_string_equal(stage, "verifying");
    assert_true(done <= total);
    return ++*(int *)ctx == 3; /* and that is enough */
}

static void opening_can_be_stopped(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(20, 5, 60, true, 10);
    const wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    wo_index *index = build(&s, &o), *opened;
    save(index, scratch("whole"));
    for (int verify = WO_VERIFY_ALL; verify <= WO_VERIFY_NONE; verify++) {
        int reports = 0;
        const wo_progress progress = {count_reports, &reports};
        assert_int_equal(read_as(scratch("whole"), (wo_verify)verify, &progress, &opened, &err),
                         verify == WO_VERIFY_NONE ? WO_OK : WO_ERR_CANCELLED);
        wo_index_free(opened);
    }
    wo_index_free(index);
    free_scene(&s);
}

/* The same file in memory; it must stay, and is not freed. */
static void an_index_in_memory_is_an_index(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(20, 5, 60, true, 10);
    name_classes(&s);
    const wo_build_options o = small_options(EVIDENCE_BY_TREE);
    wo_index *index = build(&s, &o), *opened = NULL;
    save(index, scratch("whole"));
    size_t bytes;
    char *data = slurp(scratch("whole"), &bytes); /* malloc aligns to 16 */
    woi_st *st = NULL;
    assert_int_equal(wo_index_open_memory(data, bytes, NULL, &opened, &err), WO_OK);
    assert_same_answers(&s, index, opened);
    save(opened, scratch("again"));
    assert_same_file(scratch("whole"), scratch("again"));
    wo_index_free(opened);
    assert_int_equal(wo_index_open_memory(data, bytes - 1, NULL, &opened, &err), WO_ERR_FORMAT);
    assert_null(opened);
    assert_int_equal(woi_st_open_memory(data + 1, bytes - 1, &st, &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "multiple of 8 bytes"));
    assert_int_equal(woi_st_open_memory(NULL, 0, &st, &err), WO_ERR_ARGUMENT);
    for (size_t length = 0; length < bytes; length += 61) { /* cut short */
        assert_true(woi_st_open_memory(data, length, &st, &err) != WO_OK);
        assert_null(st);
    }
    free(data);
    wo_index_free(index);
    free_scene(&s);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static const scene *failing_scene;
static int failing_method;
static wo_index *failing_index;

static wo_build_options failing_options(void)
{
    wo_build_options o = small_options(failing_method);
    if (o.method == WO_METHOD_EVIDENCE) {
        o.prior = 1;
        o.fallback = 1000;
        o.fallback_by = WO_FALLBACK_SCREEN;
    }
    if (failing_method == EVIDENCE_BY_TREE) o.rows = 2;
    return o;
}

static wo_status build_and_search(wo_error *err)
{
    const scene *s = failing_scene;
    wo_layer *layer = NULL;
    wo_log *log = NULL;
    wo_index *index = NULL;
    asker *searcher = NULL;
    asked so = {0};
    float bias[12] = {0}, scores[6];
    int32_t ids[6];
    so.threads = 1;
    so.forbidden = (const int32_t[]){1};
    so.mandatory = (const int32_t[]){2};
    so.n_forbidden = so.n_mandatory = 1;
    so.logit_bias = bias;
    wo_build_options o = failing_options();
    o.iterations = 1;
    wo_status status = wo_layer_wrap(s->w, s->b, s->m, s->d, &layer, err);
    if (!status) status = woi_names_copy(&s->layer->labels, &layer->labels, err);
    if (!status) status = wo_log_wrap(s->q, s->n, s->d, s->indptr, s->labels, &log, err);
    if (!status) status = wo_index_build(layer, log, &o, &index, err);
    if (!status) status = try_create(index, &so, &searcher, err);
    if (!status) status = ask(searcher, s->q, 2, 3, (answers){ids, scores, NULL}, err);
    free_asker(searcher);
    wo_index_free(index);
    wo_log_free(log);
    wo_layer_free(layer);
    return status;
}

static wo_status save_again(wo_error *err)
{
    return wo_index_save(failing_index, scratch("made"), err);
}

static wo_status open_and_search(wo_error *err)
{
    wo_index *index = NULL;
    asker *searcher = NULL;
    float scores[6];
    int32_t ids[6];
    wo_status status = wo_index_open(scratch("made"), NULL, &index, err);
    if (!status) status = try_create(index, NULL, &searcher, err);
    if (!status) status = ask(searcher, failing_scene->q, 2, 3, (answers){ids, scores, NULL}, err);
    free_asker(searcher);
    wo_index_free(index);
    return status;
}

/* Fails the 1st, 2nd, ... allocation until the operation gets through; returns how many that took. */
static long fail_each(wo_status (*run)(wo_error *))
{
    for (long n = 0;; n++) {
        wo_error err = {0};
        assert_true(n < 10000);
        const long before = allocations_alive;
        allocations_left = n;
        jansson_failed = false;
        const wo_status status = run(&err);
        allocations_left = -1;
        if (allocations_alive != before) fail_msg("allocation %ld: %ld are left", n, allocations_alive - before);
        if (status == WO_OK) return n;
        /* jansson's parser calls a failed allocation inside a string a syntax error. */
        if (jansson_failed && status == WO_ERR_FORMAT) continue;
        if (status != WO_ERR_MEMORY) fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        assert_non_null(strstr(err.text, "memory"));
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    json_set_alloc_funcs(json_alloc, json_release);
    allocations_left = -1;
    allocations_alive = 0;
    scene s = make_scene(12, 20, 10, true, 2); /* 20 coordinates: the tree has a basis */
    name_classes(&s);
    failing_scene = &s;
    for (size_t i = 0; i < N_METHODS; i++) {
        failing_method = methods[i];
        const wo_build_options o = failing_options();
        failing_index = build(&s, &o);
        assert_true(fail_each(build_and_search) > 10);
        assert_true(fail_each(save_again) > 50);
        assert_true(fail_each(open_and_search) > 50);
        wo_index_free(failing_index);
    }
    free_scene(&s);
    assert_int_equal(allocations_alive, 0);
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    char command[160];
    snprintf(command, sizeof command, "test -z \"$(ls %s | grep tmp)\"", scratch_folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_and_opening_changes_nothing),
        cmocka_unit_test(one_seed_gives_one_file),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(an_index_without_rows_needs_its_layer),
        cmocka_unit_test(an_index_with_nothing_in_its_cells_is_an_index),
        cmocka_unit_test(an_absent_option_has_its_default),
        cmocka_unit_test(lines_of_a_later_version_are_kept),
        cmocka_unit_test(tables_may_have_other_columns),
        cmocka_unit_test(what_is_verified_is_the_callers_choice),
        cmocka_unit_test(opening_can_be_stopped),
        cmocka_unit_test(an_index_in_memory_is_an_index),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
