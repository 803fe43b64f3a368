/* net/: the queries of a word network, each distinct word once. */
#include "networks.h"

#include "store/log.h"

enum { WORDS = 2500, LENGTH = 6000 }; /* words that occur: fewer, but over one chunk of 1024 */

static int32_t ids[LENGTH]; /* the tokens, words of the file */

/* The network's word at a position. */
static int32_t word_at(size_t position)
{
    const int32_t word = WORDS - 1 - ids[position];
    return word % 50 == 1 ? 1 : word;
}

/* A word network, and a token file with its words in another order: every 50th unknown to it and so <unk>, word 1. */
static woi_network *make_words(bool occurs[WORDS])
{
    woi_network *net = NULL;
    woi_names words = {0};
    assert_int_equal(woi_network_create(
                         &(woi_network_plan){.arch = WOI_ARCH_W2V, .m = WORDS, .d = D, .n_inputs = WORDS}, &net, NULL),
                     WO_OK);
    for (size_t i = 0; i < net->params[0].n; i++) net->params[0].w[i] = woi_rng_normal(4, 0, i);
    net->window = 4;
    for (int i = 0; i < WORDS; i++) {
        char name[32];
        snprintf(name, sizeof name, i == 1 ? "<unk>" : "w%d", i);
        assert_int_equal(woi_names_append(&net->labels, name, strlen(name), NULL), WO_OK);
        snprintf(name, sizeof name, "%s%d", (WORDS - 1 - i) % 50 == 1 ? "odd" : "w", WORDS - 1 - i);
        assert_int_equal(woi_names_append(&words, name, strlen(name), NULL), WO_OK);
    }
    memset(occurs, 0, WORDS * sizeof *occurs);
    for (size_t i = 0; i < LENGTH; i++) {
        const double u = woi_rng_uniform(8, 1, i);
        const int32_t word = (int32_t)(u * u * u * WORDS);
        ids[i] = WORDS - 1 - word;
        occurs[word % 50 == 1 ? 1 : word] = true;
    }
    write_token_file(ids, LENGTH, &words);
    woi_names_free(&words);
    return net;
}

static woi_queries *open_words(const woi_network *net, const woi_queries_options *options)
{
    woi_queries *queries = NULL;
    wo_error err;
    if (woi_queries_open(net, scratch("data"), options, &queries, &err)) fail_msg("%s", err.text);
    return queries;
}

/* All the queries of a stream, (n, D), n as it said before; the caller frees them. */
static float *collect(woi_queries *queries)
{
    const size_t n = (size_t)woi_queries_n(queries);
    float *q = malloc(n * D * sizeof *q);
    assert_non_null(q);
    size_t row = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        assert_int_equal(woi_queries_next(queries, &batch, &more, NULL), WO_OK);
        assert_true(row + batch.n <= n);
        memcpy(q + row * D, batch.q, batch.n * D * sizeof *q);
        assert_true((batch.indptr[batch.n] > 0) == (batch.n > 0));
        row += batch.n;
    }
    assert_int_equal(row, n);
    return q;
}

static void each_distinct_word_once(void **state)
{
    (void)state;
    static bool occurs[WORDS];
    woi_network *net = make_words(occurs);
    woi_queries *queries = open_words(net, &(woi_queries_options){.max_queries = LENGTH, .threads = 1});
    float *positions = collect(queries);
    woi_queries_free(queries);
    for (int threads = 1; threads < 3; threads++) {
        queries = open_words(net, &(woi_queries_options){.distinct = true, .threads = threads});
        float *q = collect(queries);
        size_t row = 0;
        for (size_t word = 0; word < WORDS; word++) {
            if (!occurs[word]) continue;
            const float *w = net->params[0].w + word * D;
            for (size_t j = 0; j < D; j++) assert_true(q[row * D + j] == fmaxf(w[j], 0));
            size_t at = 0;
            while (at < LENGTH && memcmp(positions + at * D, q + row * D, D * sizeof *q) != 0) at++;
            if (at == LENGTH) fail_msg("word %zu is no position's, bit by bit", word);
            row++;
        }
        assert_int_equal(row, woi_queries_n(queries));
        assert_true(row > 1024 && row < WORDS - 100);
        assert_int_equal(woi_queries_rewind(queries, NULL), WO_OK);
        float *again = collect(queries);
        assert_memory_equal(q, again, row * D * sizeof *q);
        free(again);
        free(q);
        woi_queries_free(queries);
    }
    free(positions);
    woi_network_free(net);
}

static void distinct_words_are_sampled(void **state)
{
    (void)state;
    static bool occurs[WORDS];
    woi_network *net = make_words(occurs);
    float *samples[3];
    for (size_t i = 0; i < 3; i++) {
        const woi_queries_options some = {.max_queries = 300, .seed = i / 2 + 1, .distinct = true};
        woi_queries *queries = open_words(net, &some);
        assert_int_equal(woi_queries_n(queries), 300);
        samples[i] = collect(queries);
        woi_queries_free(queries);
    }
    assert_memory_equal(samples[0], samples[1], 300 * D * sizeof(float));
    assert_memory_not_equal(samples[0], samples[2], 300 * D * sizeof(float));
    for (size_t i = 0; i < 3; i++) free(samples[i]);
    woi_network_free(net);
}

static void logs_of_distinct_words_have_labels(void **state)
{
    (void)state;
    static bool occurs[WORDS];
    woi_network *net = make_words(occurs);
    const woi_queries_options options = {.distinct = true, .threads = 1};
    woi_queries *queries = open_words(net, &options);
    float *q = collect(queries);
    wo_error err;
    woi_embedded made;
    for (woi_dtype dtype = WOI_F32;; dtype = WOI_BF16) {
        woi_log log;
        const woi_embed_options to = {.path = scratch("log"), .bf16 = dtype == WOI_BF16};
        if (woi_embed(net, scratch("data"), &options, &to, &made, &err)) fail_msg("%s", err.text);
        const uint64_t n = made.n;
        if (woi_log_open(scratch("log"), &log, &err)) fail_msg("%s", err.text);
        assert_int_equal(n, woi_queries_n(queries));
        assert_int_equal(log.n, n);
        assert_int_equal(log.d, D);
        assert_int_equal(log.queries->dtype, dtype);
        assert_true(log.indptr && log.labels && log.max_label > 0 && log.counts && log.label_counts);
        assert_string_equal(woi_st_meta(log.st, "arch"), "w2v");
        if (dtype == WOI_F32) assert_memory_equal(log.queries->data, q, n * D * sizeof *q);
        for (size_t i = 0; dtype == WOI_BF16 && i < n * D; i++)
            assert_int_equal(((const uint16_t *)log.queries->data)[i], woi_f32_to_bf16(q[i]));
        woi_log_close(&log);
        if (dtype == WOI_BF16) break;
    }
    scratch_text("log", "old");
    char stage[] = "embedding";
    const wo_progress stop = {stop_in, stage};
    const woi_embed_options stopped = {.path = scratch("log"), .progress = &stop};
    assert_int_equal(woi_embed(net, scratch("data"), &options, &stopped, &made, &err), WO_ERR_CANCELLED);
    size_t bytes;
    char *text = slurp(scratch("log"), &bytes);
    assert_string_equal(text, "old");
    free(text);
    free(q);
    woi_queries_free(queries);
    woi_network_free(net);
}

/* The words in most windows around a word's places, 256 of them, with in how many they are. */
static void distinct_words_are_counted(void **state)
{
    (void)state;
    enum { MOST = 256 };
    static bool occurs[WORDS];
    static uint32_t near[WORDS][WORDS], places[WORDS];
    woi_network *net = make_words(occurs);
    memset(near, 0, sizeof near);
    memset(places, 0, sizeof places);
    for (size_t i = 0; i < LENGTH; i++) {
        bool seen[WORDS] = {false};
        places[word_at(i)]++;
        for (size_t j = i > 4 ? i - 4 : 0; j < LENGTH && j <= i + 4; j++) {
            if (j == i || seen[word_at(j)]) continue;
            near[word_at(i)][word_at(j)]++;
            seen[word_at(j)] = true;
        }
    }
    woi_queries *queries = open_words(net, &(woi_queries_options){.distinct = true, .threads = 1});
    size_t whole = 0, cut = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        assert_int_equal(woi_queries_next(queries, &batch, &more, NULL), WO_OK);
        for (size_t row = 0; row < batch.n; row++) {
            const int32_t word = batch.words[row];
            assert_int_equal(batch.counts[row], places[word]);
            size_t at = (size_t)batch.indptr[row];
            const size_t end = (size_t)batch.indptr[row + 1];
            uint32_t all = 0;
            for (size_t i = 0; i < WORDS; i++) all += near[word][i] > 0;
            assert_int_equal(end - at, all < MOST ? all : MOST);
            all <= MOST ? whole++ : cut++;
            for (int32_t i = 0; i < WORDS; i++) {
                if (at < end && batch.labels[at] == i) {
                    assert_int_equal(batch.label_counts[at++], near[word][i]);
                    continue;
                }
                size_t before = 0; /* labels that are as frequent, of equal ones those with a lower id */
                for (int32_t j = 0; near[word][i] && j < WORDS; j++)
                    before += near[word][j] > near[word][i] || (near[word][j] == near[word][i] && j < i);
                assert_true(near[word][i] == 0 || before >= MOST);
            }
            assert_int_equal(at, end);
        }
    }
    assert_true(whole > 1000 && cut > 3);
    woi_queries_free(queries);
    woi_network_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_distinct_word_once),
        cmocka_unit_test(distinct_words_are_sampled),
        cmocka_unit_test(logs_of_distinct_words_have_labels),
        cmocka_unit_test(distinct_words_are_counted),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
