/* tests/golden: files of version 0.1.0. They are opened and written again with the same bytes; and they are rewritten
 * as later versions might, with their checksums made anew. What they answer is compared in tests/cli/golden.sh. */
#include "testing.h"

#include "index/index.h"
#include "net/net.h"
#include "net/network.h"
#include "text/tokens.h"

#include <math.h>
#include <stdbool.h>

#define GOLDEN(name) "tests/golden/" name ".safetensors"

static const char *const indexes[] = {
    GOLDEN("index-full"),          GOLDEN("index-popular"),       GOLDEN("index-slide"),    GOLDEN("index-lss"),
    GOLDEN("index-evidence-hash"), GOLDEN("index-evidence-tree"), GOLDEN("index-bf16"),     GOLDEN("index-int8"),
    GOLDEN("index-int8-bf16"),     GOLDEN("index-none"),          GOLDEN("index-names"),    GOLDEN("index-tuned"),
    GOLDEN("index-screen"),        GOLDEN("index-prior"),         GOLDEN("index-fallback"), GOLDEN("index-partition"),
    GOLDEN("index-mixture"),       GOLDEN("index-updated"),       GOLDEN("index-rows"),     GOLDEN("shard-index")};
static const char *const networks[] = {GOLDEN("network-xc"), GOLDEN("network-w2v"), GOLDEN("network-lm")};
enum { N_INDEXES = sizeof indexes / sizeof *indexes, N_NETWORKS = sizeof networks / sizeof *networks };

static wo_layer *layer; /* of the indexes */

static int open_the_layer(void **state)
{
    return scratch_setup(state) || wo_layer_open(GOLDEN("layer"), NULL, &layer, NULL);
}

static int close_the_layer(void **state)
{
    wo_layer_free(layer);
    return scratch_teardown(state);
}

static wo_index *open_index(const char *path)
{
    wo_index *index = NULL;
    wo_error err;
    const bool bare = strstr(path, "none");
    const wo_open_options o = {.struct_size = sizeof o, .layer = bare ? layer : NULL};
    if (wo_index_open(path, &o, &index, &err)) fail_msg("%s: %s", path, err.text);
    return index;
}

static woi_st *open_st(const char *path)
{
    woi_st *st = NULL;
    wo_error err;
    if (woi_st_open(path, &st, &err)) fail_msg("%s: %s", path, err.text);
    return st;
}

static void assert_same_file(const char *a, const char *b)
{
    size_t n, other;
    char *left = slurp(a, &n), *right = slurp(b, &other);
    if (n != other || memcmp(left, right, n) != 0) fail_msg("%s and %s differ", a, b);
    free(left);
    free(right);
}

/* A line of metadata; value NULL: it is left out. */
typedef struct line {
    const char *key, *value;
} line;

/* Writes a file again with other lines, checksums and all; with `more`, a tensor of a later version too. */
static const char *resign(const char *from, const line *lines, size_t n_lines, bool more)
{
    static const uint64_t shape[] = {3};
    static const float three[] = {1, 2, NAN};
    const char *to = scratch(strstr(from, "none") ? "none" : "resigned"), *key, *value;
    wo_error err;
    woi_st *st = open_st(from);
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_create(to, woi_st_kind(st), &writer, &err), WO_OK);
    for (void *cursor = NULL; woi_st_meta_next(st, &cursor, &key, &value);) {
        bool other = strncmp(key, "xxh3.", 5) == 0;
        for (size_t i = 0; i < n_lines; i++) other |= strcmp(key, lines[i].key) == 0;
        if (!other) assert_int_equal(woi_st_set_meta(writer, key, value, &err), WO_OK);
    }
    for (size_t i = 0; i < n_lines; i++)
        if (lines[i].value) assert_int_equal(woi_st_set_meta(writer, lines[i].key, lines[i].value, &err), WO_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
            const woi_tensor *t = woi_st_tensor(st, i);
            if (strncmp(t->name, "padding.", 8) == 0) continue;
            assert_int_equal(pass ? woi_st_append(writer, t->data, t->bytes, &err)
                                  : woi_st_declare(writer, t->name, t->dtype, t->n_dims, t->shape, &err),
                             WO_OK);
        }
        if (more)
            assert_int_equal(pass ? woi_st_append(writer, three, sizeof three, &err)
                                  : woi_st_declare(writer, "later.thing", WOI_F32, 1, shape, &err),
                             WO_OK);
    }
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    woi_st_free(st);
    return to;
}

/* Whether `again` is what this version makes of a golden file: the same but for the version that wrote it. */
static void assert_written_again(const char *golden, const char *again)
{
    assert_same_file(resign(golden, &(line){"wideout.version", wo_version()}, 1, false), again);
    if (strcmp(wo_version(), "0.1.0") == 0) assert_same_file(golden, again);
}

/* ---- The same bytes ---------------------------------------------------------------------------------------- */

static void indexes_are_written_as_they_were(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_INDEXES; i++) {
        wo_error err;
        wo_index *index = open_index(indexes[i]);
        assert_int_equal(wo_index_save(index, scratch("again"), &err), WO_OK);
        assert_written_again(indexes[i], scratch("again"));
        wo_index_free(index);
    }
}

/* The second of two shards: what it answers are its own classes, by the scores of the whole layer. */
static void a_shard_answers_for_its_classes(void **state)
{
    (void)state;
    enum { N = 32, K = 5 };
    wo_error err;
    wo_layer *part = NULL;
    wo_log *log = NULL;
    wo_searcher *searcher = NULL;
    wo_index *index = open_index(GOLDEN("shard-index"));
    wo_index_info info = {.struct_size = sizeof info};
    assert_int_equal(wo_layer_open(GOLDEN("shard-layer"), NULL, &part, &err), WO_OK);
    assert_true(part->shard.number == 1 && part->shard.count == 2 && part->checksum == layer->checksum);
    assert_int_equal(wo_index_describe(index, &info), WO_OK);
    assert_true(info.shard == 1 && info.n_shards == 2 && info.m == 32 && info.m_whole == 64);
    assert_int_equal(wo_log_open(GOLDEN("log"), &log, &err), WO_OK);
    assert_int_equal(wo_searcher_create(index, NULL, &searcher, &err), WO_OK);
    int32_t ids[N * K];
    float scores[N * K];
    assert_int_equal(wo_search(searcher, log->queries, N, K, ids, scores, &err), WO_OK);
    size_t found = 0;
    for (size_t i = 0; i < N * K; i++) {
        if (ids[i] < 0) continue;
        found++;
        assert_int_equal(ids[i] % 2, 1); /* classes were dealt out in turn */
        const float *q = log->queries + i / K * log->d, *w = layer->dense.w + (size_t)ids[i] * log->d;
        double logit = layer->dense.b ? (double)layer->dense.b[ids[i]] : 0;
        for (size_t j = 0; j < log->d; j++) logit += (double)q[j] * (double)w[j];
        assert_true(fabs(logit - (double)scores[i]) < 1e-4 * (1 + fabs(logit)));
    }
    assert_true(found > N * K / 2);
    wo_searcher_free(searcher);
    wo_log_free(log);
    wo_index_free(index);
    wo_layer_free(part);
}

static void networks_are_written_as_they_were(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NETWORKS; i++) {
        wo_error err;
        woi_network *net = NULL;
        woi_meta record[16];
        size_t n = 0;
        const char *key, *value;
        woi_st *st = open_st(networks[i]);
        for (void *cursor = NULL; woi_st_meta_next(st, &cursor, &key, &value);) {
            if (strncmp(key, "train.", 6) != 0) continue;
            assert_true(n < 16);
            record[n].key = key;
            snprintf(record[n++].value, sizeof record->value, "%s", value);
        }
        if (woi_network_open(networks[i], &net, &err)) fail_msg("%s", err.text);
        assert_int_equal(woi_network_save(net, scratch("again"), record, n, &err), WO_OK);
        assert_written_again(networks[i], scratch("again"));
        woi_network_free(net);
        woi_st_free(st);
    }
}

/* A checkpoint goes into a network of its shape that can be trained. */
static wo_status load_checkpoint(const char *path, woi_network *net, uint64_t *done, double *loss, wo_error *err)
{
    woi_st *st = NULL;
    wo_status status = woi_st_open(path, &st, err);
    if (!status) status = woi_checkpoint_load(net, path, woi_st_meta(st, "fingerprint"), done, loss, err);
    woi_st_free(st);
    return status;
}

static woi_network *trainable(void)
{
    woi_network *net = NULL;
    wo_error err;
    if (woi_network_create(
            &(woi_network_plan){.arch = WOI_ARCH_XC, .m = 10, .d = 8, .n_inputs = 12, .trained = true, .seed = 1}, &net,
            &err))
        fail_msg("%s", err.text);
    return net;
}

static void the_checkpoint_is_written_as_it_was(void **state)
{
    (void)state;
    wo_error err;
    uint64_t done = 0;
    double loss = NAN;
    woi_network *net = trainable();
    woi_st *st = open_st(GOLDEN("checkpoint"));
    if (load_checkpoint(GOLDEN("checkpoint"), net, &done, &loss, &err)) fail_msg("%s", err.text);
    assert_true(done > 0 && isfinite(loss));
    assert_int_equal(woi_checkpoint_save(net, scratch("again"), woi_st_meta(st, "fingerprint"), done, loss, &err),
                     WO_OK);
    assert_written_again(GOLDEN("checkpoint"), scratch("again"));
    woi_st_free(st);
    woi_network_free(net);
}

static void logs_layers_and_tokens(void **state)
{
    (void)state;
    wo_error err;
    wo_log *log = NULL;
    woi_tokens tokens = {0};
    assert_int_equal(wo_layer_m(layer), 64);
    assert_int_equal(wo_layer_d(layer), 16);
    assert_true(layer->checksum == UINT64_C(0x0c8f2a37243f5bf8));
    assert_int_equal(wo_log_open(GOLDEN("log"), &log, &err), WO_OK);
    assert_true(wo_log_n(log) == 32 && wo_log_d(log) == 16 && log->max_label < 64);
    wo_log_free(log);
    assert_int_equal(wo_log_open(GOLDEN("log-bf16"), &log, &err), WO_OK);
    assert_true(wo_log_n(log) == 20 && wo_log_d(log) == 8 && log->file.queries->dtype == WOI_BF16);
    wo_log_free(log);
    assert_int_equal(woi_tokens_open(GOLDEN("tokens"), &tokens, &err), WO_OK);
    assert_int_equal(tokens.n, 32);
    assert_int_equal(tokens.words.n, 25);
    woi_tokens_close(&tokens);
}

/* ---- Other versions ---------------------------------------------------------------------------------------- */

/* Opens a file as what it was. */
static wo_status open_any(const char *path, const char *was, wo_error *err)
{
    wo_layer *other = NULL;
    wo_log *log = NULL;
    wo_index *index = NULL;
    woi_network *net = NULL;
    woi_tokens tokens = {0};
    wo_status status;
    if (strstr(was, "index")) {
        const wo_open_options o = {.struct_size = sizeof o, .layer = strstr(was, "none") ? layer : NULL};
        status = wo_index_open(path, &o, &index, err);
    } else if (strstr(was, "network")) {
        status = woi_network_open(path, &net, err);
    } else if (strstr(was, "checkpoint")) {
        uint64_t done;
        double loss;
        net = trainable();
        status = load_checkpoint(path, net, &done, &loss, err);
    } else if (strstr(was, "tokens")) {
        status = woi_tokens_open(path, &tokens, err);
    } else if (strstr(was, "log")) {
        status = wo_log_open(path, &log, err);
    } else {
        status = wo_layer_open(path, NULL, &other, err);
    }
    wo_layer_free(other);
    wo_log_free(log);
    wo_index_free(index);
    woi_network_free(net);
    woi_tokens_close(&tokens);
    return status;
}

static const char *const all[] = {GOLDEN("layer"),       GOLDEN("log"),        GOLDEN("log-bf16"), GOLDEN("network-xc"),
                                  GOLDEN("network-w2v"), GOLDEN("network-lm"), GOLDEN("tokens"),   GOLDEN("checkpoint"),
                                  GOLDEN("index-lss"),   GOLDEN("index-tuned")};
enum { N_ALL = sizeof all / sizeof *all };

static void a_later_minor_version_opens(void **state)
{
    (void)state;
    static const char *const formats[] = {"1", "1.0", "1.7", "1.1000"};
    for (size_t i = 0; i < N_ALL; i++)
        for (size_t f = 0; f < 4; f++) {
            const line lines[] = {{"wideout.format", formats[f]}, {"wideout.version", "0.99.0"}, {"wideout.needs", ""},
                                  {"later.note", "hello"},        {"index.colour", "blue"},      {"tune.mood", "good"}};
            wo_error err;
            const char *path = resign(all[i], lines, 6, true);
            if (open_any(path, all[i], &err)) fail_msg("%s, format %s: %s", all[i], formats[f], err.text);
        }
}

static void refuse(const char *path, const char *was, const char *sentence)
{
    wo_error err = {0};
    assert_int_equal(open_any(path, was, &err), WO_ERR_UNSUPPORTED);
    assert_string_equal(err.text, sentence);
}

static void another_major_version_is_refused(void **state)
{
    (void)state;
    static const char *const formats[] = {"2", "2.1", "10", "0", "1.", "1.x", "1.2.3", "11", "", " 1", "1 "};
    for (size_t i = 0; i < N_ALL; i++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
            char sentence[192];
            snprintf(sentence, sizeof sentence,
                     "the file was written in format '%s', this version of wideout reads format 1", formats[f]);
            refuse(resign(all[i], &(line){"wideout.format", formats[f]}, 1, false), all[i], sentence);
        }
}

static void what_a_file_needs_must_be_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ALL; i++) {
        char sentence[192];
        const line lines[] = {{"wideout.needs", "sparse-rows,shards"}, {"wideout.version", "0.7.1"}};
        snprintf(sentence, sizeof sentence,
                 "the file was written by wideout 0.7.1 and needs 'sparse-rows', which version %s does not have",
                 wo_version());
        refuse(resign(all[i], lines, 2, false), all[i], sentence);
    }
}

/* An index of a version that did not have the option yet: as if it had its default. */
static void an_older_index_has_defaults(void **state)
{
    (void)state;
    wo_error err;
    for (size_t i = 0; i < N_INDEXES; i++) {
        if (strstr(indexes[i], "tree") || strstr(indexes[i], "prior") || strstr(indexes[i], "fallback"))
            continue; /* made with a threshold */
        const line lines[] = {{"index.fallback", NULL}, {"index.thin", NULL}, {"index.trace_points", NULL}};
        wo_index *index = open_index(resign(indexes[i], lines, 3, false));
        assert_true(index->options.fallback == 0 && index->options.thin == 16 && index->options.trace_points == 50);
        assert_int_equal(wo_index_save(index, scratch("again"), &err), WO_OK); /* which has them all */
        assert_written_again(indexes[i], scratch("again"));
        wo_index_free(index);
    }
}

/* Before lss kept its best step it kept the last one, and its trace did not say so. */
static void an_older_lss_kept_its_last_step(void **state)
{
    (void)state;
    wo_index *index = open_index(GOLDEN("index-lss"));
    wo_trace trace = {.struct_size = sizeof trace};
    assert_true(index->options.last_step == 1 && index->options.max_classes == 0);
    assert_true(wo_index_trace(index, &trace));
    assert_int_equal(trace.columns, WOI_TRACE_FIRST_COLUMNS);
    assert_string_equal(trace.names[trace.columns - 1], "entropy");
    assert_true(trace.values[(trace.rows - 1) * trace.columns] == index->options.iterations);
    wo_index_free(index);
    index = open_index(GOLDEN("index-slide"));
    assert_int_equal(index->options.last_step, 0); /* which has no steps */
    wo_index_free(index);
}

/* What a later version's index says beyond ours is kept, and it is searched as ours is. */
static void a_later_index_is_kept_as_it_is(void **state)
{
    (void)state;
    enum { K = 5 };
    const line lines[] = {{"wideout.format", "1.4"}, {"index.colour", "blue"}, {"tune.mood", "good"}};
    wo_error err;
    wo_log *log = NULL;
    int32_t ids[2][32 * K];
    float scores[2][32 * K];
    assert_int_equal(wo_log_open(GOLDEN("log"), &log, &err), WO_OK);
    wo_index *both[] = {open_index(GOLDEN("index-tuned")), open_index(resign(GOLDEN("index-tuned"), lines, 3, true))};
    for (int i = 0; i < 2; i++) {
        wo_searcher *searcher = NULL;
        assert_int_equal(wo_searcher_create(both[i], NULL, &searcher, &err), WO_OK);
        assert_int_equal(wo_search(searcher, wo_log_queries(log), 32, K, ids[i], scores[i], &err), WO_OK);
        wo_searcher_free(searcher);
    }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    assert_int_equal(wo_index_save(both[1], scratch("again"), &err), WO_OK);
    woi_st *st = open_st(scratch("again"));
    assert_string_equal(woi_st_meta(st, "index.colour"), "blue");
    assert_string_equal(woi_st_meta(st, "tune.mood"), "good");
    assert_string_equal(woi_st_meta(st, "wideout.format"), "1"); /* as this version writes */
    woi_st_free(st);
    for (int i = 0; i < 2; i++) wo_index_free(both[i]);
    wo_log_free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_answers_for_its_classes),
        cmocka_unit_test(indexes_are_written_as_they_were),
        cmocka_unit_test(networks_are_written_as_they_were),
        cmocka_unit_test(the_checkpoint_is_written_as_it_was),
        cmocka_unit_test(logs_layers_and_tokens),
        cmocka_unit_test(a_later_minor_version_opens),
        cmocka_unit_test(another_major_version_is_refused),
        cmocka_unit_test(what_a_file_needs_must_be_there),
        cmocka_unit_test(an_older_index_has_defaults),
        cmocka_unit_test(a_later_index_is_kept_as_it_is),
        cmocka_unit_test(an_older_lss_kept_its_last_step),
    };
    return cmocka_run_group_tests(tests, open_the_layer, close_the_layer);
}
