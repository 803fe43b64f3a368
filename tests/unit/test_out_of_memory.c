/* Every allocation of every file operation made to fail in turn, jansson's included: each time the operation must say
 * so, and give back all that it had taken. */
#include "failing_json.h"

#include "net/net.h"
#include "store/store.h"
#include "text/npz.h"

#include <jansson.h>
#include <stdbool.h>

typedef wo_status (*operation)(wo_error *err);

/* Fails the 1st, 2nd, ... allocation until the operation gets through; returns how many that took. */
static long fail_each(operation run)
{
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    json_set_alloc_funcs(json_alloc, json_release);
    long n = 0;
    for (;; n++) {
        assert_true(n < 10000);
        wo_error err = {0};
        allocations_left = n;
        allocations_alive = 0;
        jansson_failed = false;
        wo_status status = run(&err);
        allocations_left = -1;
        assert_int_equal(allocations_alive, 0);
        if (status == WO_OK) break;
        /* jansson's parser calls a failed allocation inside a string a syntax error: it cannot be told apart. */
        if (jansson_failed && status == WO_ERR_FORMAT) continue;
        if (status != WO_ERR_MEMORY) fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        assert_non_null(strstr(err.text, "memory"));
    }
    json_set_alloc_funcs(malloc, free);
    wo_allocator_set(NULL);
    return n;
}

static wo_status write_file(wo_error *err)
{
    static const float data[12];
    woi_st_writer *writer = NULL;
    wo_status status = woi_st_create(scratch("made"), "log", &writer, err);
    if (!status) status = woi_st_set_meta(writer, "key", "value", err);
    if (!status) status = woi_st_declare(writer, "first", WOI_F32, 2, (uint64_t[]){3, 1}, err);
    if (!status) status = woi_st_declare(writer, "second", WOI_F32, 2, (uint64_t[]){3, 3}, err);
    if (!status) status = woi_st_append(writer, data, sizeof data, err);
    if (!status) status = woi_st_finish(writer, err);
    woi_st_writer_free(writer);
    return status;
}

static wo_status read_file(wo_error *err)
{
    woi_st *st = NULL;
    wo_status status = woi_st_open(scratch("made"), &st, err);
    if (!status) status = woi_st_verify(st, NULL, err);
    woi_st_free(st);
    return status;
}

static wo_status read_shards(wo_error *err)
{
    woi_st *st = NULL;
    wo_status status = woi_st_open(scratch("index.json"), &st, err);
    woi_st_free(st);
    return status;
}

static wo_status load_text(wo_error *err)
{
    woi_xc_data data;
    wo_status status = woi_xc_load(scratch("rows.txt"), &(woi_xc_options){.lenient = true}, NULL, &data, err);
    if (!status) {
        assert_int_equal(data.n, 3);
        woi_xc_data_free(&data);
    }
    return status;
}

/* Raw examples: the format that is tried, and the network. */
static woi_network *network;
static woi_raw raw;

static const char *in_memory; /* NULL: the examples are in a file */

static wo_status take_examples(wo_error *err)
{
    woi_examples *examples = NULL;
    bool more = true;
    const woi_examples_options o = {.raw = raw, .base = WOI_XC_ZERO_BASED, .threads = 1};
    wo_status status = in_memory ? woi_examples_open_memory(network, in_memory, strlen(in_memory), &o, &examples, err)
                                 : woi_examples_open(network, scratch("examples"), &o, &examples, err);
    while (!status && more) {
        woi_example_batch batch;
        status = woi_examples_next(examples, &batch, &more, err);
    }
    woi_examples_free(examples);
    return status;
}

static void writing(void **state)
{
    (void)state;
    assert_true(fail_each(write_file) > 20);
    char command[160];
    snprintf(command, sizeof command, "test -z \"$(ls %s | grep tmp)\"", scratch_folder);
    assert_int_equal(system(command), 0);
}

static void reading(void **state)
{
    (void)state;
    wo_error err;
    assert_int_equal(write_file(&err), WO_OK);
    assert_true(fail_each(read_file) > 20);
}

static void reading_shards(void **state)
{
    (void)state;
    wo_error err;
    assert_int_equal(write_file(&err), WO_OK);
    scratch_text("index.json", "{\"weight_map\":{\"first\":\"made\",\"second\":\"made\"}}");
    assert_true(fail_each(read_shards) > 20);
}

static void loading_text(void **state)
{
    (void)state;
    scratch_text("rows.txt", "3 9 9\n5,1,1 7:1 2:1 2:3\n0 1:1\n 8:1\n");
    assert_true(fail_each(load_text) >= 10);
}

static void reading_examples(void **state)
{
    (void)state;
    static const struct {
        woi_arch arch;
        woi_raw raw;
        const char *text;
    } cases[] = {
        {WOI_ARCH_XC, WOI_RAW_XC, "0 1:1 0:2\n\n2:1\n"},
        {WOI_ARCH_XC, WOI_RAW_AUTO, "Package: desc:a\nDescription: a b\n\n\nPackage: b\n"},
        {WOI_ARCH_XC, WOI_RAW_AUTO, "A, b\nb c\n"},
        {WOI_ARCH_W2V, WOI_RAW_TEXT, "desc:a\n"},
        {WOI_ARCH_LM, WOI_RAW_TEXT, "desc:a desc:b\ndesc:b\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool xc = cases[i].arch == WOI_ARCH_XC;
        raw = cases[i].raw;
        scratch_text("examples", cases[i].text);
        assert_int_equal(
            woi_network_create(
                &(woi_network_plan){.arch = cases[i].arch, .m = 3, .d = 2, .n_inputs = 3, .trained = true, .seed = 1},
                &network, NULL),
            WO_OK);
        for (int name = 0; name < 3; name++)
            assert_int_equal(woi_names_append(xc ? &network->features : &network->labels,
                                              (const char *[]){"desc:a", "desc:b", "desc:c"}[name], 6, NULL),
                             WO_OK);
        if (xc) snprintf(network->extractor, sizeof network->extractor, "deb822");
        assert_true(fail_each(take_examples) >= 5);
        in_memory = cases[i].text;
        assert_true(fail_each(take_examples) >= 5);
        in_memory = NULL;
        woi_network_free(network);
    }
}

/* Other people's files, and a log of a text by fastText's model. */
static wo_status read_others(wo_error *err)
{
    static const char model[] = "tests/golden/fasttext-ngrams.bin", text[] = "tests/golden/fasttext-text.txt";
    woi_network *net = NULL;
    woi_queries *queries = NULL;
    woi_examples *examples = NULL;
    woi_query_batch batch;
    woi_example_batch raw_batch;
    wo_layer *bin = NULL, *gguf = NULL;
    woi_label_lists csr = {0}, table = {0};
    bool more;
    wo_status status;
    if ((status = woi_network_open(model, &net, err)) ||
        (status = woi_queries_open(net, text, &(woi_queries_options){.threads = 1}, &queries, err)) ||
        (status = woi_queries_next(queries, &batch, &more, err)) ||
        (status = woi_examples_open(net, text, &(woi_examples_options){.threads = 1}, &examples, err)))
        goto done;
    /* Lines before one that fails are handed out first. */
    for (more = true; !status && more;) status = woi_examples_next(examples, &raw_batch, &more, err);
    if (status || (status = wo_layer_open(model, NULL, &bin, err)) ||
        (status = wo_layer_open("tests/golden/model.gguf", NULL, &gguf, err)) ||
        (status = woi_npz_labels("tests/golden/labels-csr.npz", &csr, err)))
        goto done;
    status = woi_npz_labels("tests/golden/labels-table.npz", &table, err);
done:
    woi_examples_free(examples);
    woi_queries_free(queries);
    woi_network_free(net);
    wo_layer_free(bin);
    wo_layer_free(gguf);
    woi_label_lists_free(&csr);
    woi_label_lists_free(&table);
    return status;
}

static void reading_others(void **state)
{
    (void)state;
    assert_true(fail_each(read_others) >= 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing),      cmocka_unit_test(reading),          cmocka_unit_test(reading_shards),
        cmocka_unit_test(loading_text), cmocka_unit_test(reading_examples), cmocka_unit_test(reading_others),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
