/* net/: what queries, evaluation and embedding make of data, against slow and obvious code in double; training where
 * there is nothing to learn from, or no memory. */
#include "networks.h"

#include "store/log.h"

/* ---- Queries, slowly --------------------------------------------------------------------------------------- */

/* Everything that a network should make of a file. */
typedef struct expectation {
    size_t n;
    double *q;           /* (n, D) */
    unsigned char *have; /* (n, M): whether a class is a label */
} expectation;

static expectation expect(size_t n)
{
    expectation e = {n, calloc(n * D + 1, sizeof *e.q), calloc(n * M + 1, 1)};
    assert_true(e.q && e.have);
    return e;
}

static void free_expectation(expectation *e)
{
    free(e->q);
    free(e->have);
}

enum { ROWS = 2300, TOKENS = 2500 }; /* both over two chunks of 1024 */

/* Text with rows of 0 to 4 features and 0 to 3 labels, and what the network makes of it. */
static expectation write_rows(const woi_network *net)
{
    expectation e = expect(ROWS);
    FILE *file = fopen(scratch("data"), "w");
    assert_non_null(file);
    fprintf(file, "%d %d %d\n", ROWS, FEATURES, M);
    for (size_t i = 0; i < ROWS; i++) {
        double square = 0, x[FEATURES] = {0}, *q = e.q + i * D;
        const uint64_t n_labels = woi_rng_below(7, 1, i, 4), n_features = woi_rng_below(7, 2, i, 5);
        for (uint64_t j = 0; j < n_labels; j++) e.have[i * M + woi_rng_below(7, 10 + j, i, M)] = 1;
        for (uint64_t j = 0; j < n_features; j++) {
            const uint64_t value = 1 + woi_rng_below(7, 30 + j, i, 9);
            x[woi_rng_below(7, 20 + j, i, FEATURES)] = (double)value;
        }
        const char *gap = "";
        for (int label = 0; label < M; label++)
            if (e.have[i * M + (size_t)label]) fprintf(file, "%s%d", gap, label), gap = ",";
        if (!*gap) fputs(" ", file);
        gap = *gap ? " " : "";
        for (int f = 0; f < FEATURES; f++)
            if (x[f] > 0) fprintf(file, "%s%d:%g", gap, f, x[f]), gap = " ";
        if (n_features == 0 && *gap) fputs(" ", file);
        fputs("\n", file);
        for (size_t f = 0; f < FEATURES; f++) {
            x[f] = net->input.log1p ? log1p(x[f]) : x[f];
            square += x[f] * x[f];
            for (size_t j = 0; j < D; j++) q[j] += x[f] * (double)net->params[0].w[f * D + j];
        }
        for (size_t j = 0; j < D; j++) {
            if (net->input.l2 && square > 0) q[j] /= sqrt(square);
            q[j] = fmax(q[j], 0);
        }
    }
    assert_int_equal(fclose(file), 0);
    return e;
}

static int32_t tokens[TOKENS];

/* A token file whose vocabulary is the network's in another order, with one word more that the network calls "<unk>":
 * here w1. tokens[] are the network's ids, of which n go into the file. */
static void write_tokens(woi_network *net, size_t n)
{
    woi_names words = {0};
    int32_t ids[TOKENS];
    char name[32];
    for (int i = M - 1; i >= 0; i--) {
        snprintf(name, sizeof name, "w%d", i);
        assert_int_equal(woi_names_append(&words, i == 1 ? "strange" : name, i == 1 ? 7 : strlen(name), NULL), WO_OK);
    }
    for (size_t i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)(woi_rng_uniform(8, 1, i) * woi_rng_uniform(8, 2, i) * M);
        ids[i] = M - 1 - tokens[i];
    }
    woi_names_free(&net->labels);
    for (int i = 0; i < M; i++) {
        snprintf(name, sizeof name, "w%d", i);
        assert_int_equal(woi_names_append(&net->labels, i == 1 ? "<unk>" : name, i == 1 ? 5 : strlen(name), NULL),
                         WO_OK);
    }
    write_token_file(ids, n, &words);
    woi_names_free(&words);
}

static expectation expect_words(const woi_network *net)
{
    expectation e = expect(TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        for (size_t j = 0; j < D; j++)
            e.q[(size_t)i * D + j] = fmax((double)net->params[0].w[(size_t)tokens[i] * D + j], 0);
        for (int at = i - (int)net->window; at <= i + (int)net->window; at++)
            if (at != i && at >= 0 && at < TOKENS && net->is_label[tokens[at]])
                e.have[(size_t)i * M + (size_t)tokens[at]] = 1;
    }
    return e;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static expectation expect_lstm(const woi_network *net, size_t next)
{
    expectation e = expect(TOKENS - next);
    const woi_lstm lstm = woi_network_lstm(net);
    double h[WOI_LSTM_DEPTH][D] = {{0}}, c[WOI_LSTM_DEPTH][D] = {{0}};
    for (size_t i = 0; i < e.n; i++) {
        double x[D];
        for (size_t j = 0; j < D; j++) x[j] = (double)net->params[0].w[(size_t)tokens[i] * D + j];
        for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
            double gate[4 * D];
            for (size_t g = 0; g < 4 * D; g++) {
                gate[g] = (double)lstm.b_ih[l][g] + (double)lstm.b_hh[l][g];
                for (size_t j = 0; j < D; j++)
                    gate[g] += (double)lstm.w_ih[l][g * D + j] * x[j] + (double)lstm.w_hh[l][g * D + j] * h[l][j];
            }
            for (size_t j = 0; j < D; j++) {
                c[l][j] = sigmoid(gate[D + j]) * c[l][j] + sigmoid(gate[j]) * tanh(gate[2 * D + j]);
                h[l][j] = sigmoid(gate[3 * D + j]) * tanh(c[l][j]);
            }
            memcpy(x, h[l], sizeof x);
        }
        memcpy(e.q + i * D, x, sizeof x);
        for (size_t j = 1; j <= next; j++) e.have[i * M + (size_t)tokens[i + j]] = 1;
    }
    return e;
}

/* The file "data" and what should come of it. */
static expectation make_data(woi_network *net, size_t next)
{
    if (net->arch == WOI_ARCH_XC) return write_rows(net);
    write_tokens(net, TOKENS);
    return net->arch == WOI_ARCH_W2V ? expect_words(net) : expect_lstm(net, next);
}

static bool same_query(const expectation *e, size_t i, const float *q)
{
    for (size_t j = 0; q && j < D; j++)
        if (fabs((double)q[j] - e->q[i * D + j]) > 1e-4) return false;
    return true;
}

static bool same_labels(const expectation *e, size_t i, const int32_t *labels, int64_t n)
{
    int64_t at = 0;
    for (int32_t class = 0; class < M; class ++)
        if (e->have[i * M + (size_t) class] && (at == n || labels[at++] != class)) return false;
    return at == n;
}

/* Reads all batches: each query must be the next of the expected ones, or, of a sample, a later one. `places` receives
 * which they were (unless NULL). */
static size_t read_all(woi_queries *queries, const expectation *e, bool sample, size_t *places)
{
    size_t taken = 0, at = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        wo_error err;
        if (woi_queries_next(queries, &batch, &more, &err)) fail_msg("%s", err.text);
        assert_int_equal(batch.indptr[0], 0);
        for (size_t i = 0; i < batch.n; i++, at++, taken++) {
            const float *q = batch.q + i * D;
            const int32_t *labels = batch.labels + batch.indptr[i];
            const int64_t n = batch.indptr[i + 1] - batch.indptr[i];
            while (sample && at < e->n && !(same_query(e, at, q) && same_labels(e, at, labels, n))) at++;
            assert_true(at < e->n);
            if (!same_query(e, at, q)) fail_msg("query %zu is another", at);
            if (!same_labels(e, at, labels, n)) fail_msg("the labels of query %zu are others", at);
            if (places) places[taken] = at;
        }
    }
    return taken;
}

static void check_queries(woi_arch arch, size_t next)
{
    woi_network *net = make_network(arch, false);
    expectation e = make_data(net, next);
    woi_queries *queries = NULL;
    wo_error err;
    for (int threads = 1; threads < 3; threads++) {
        const woi_queries_options all = {.next = next, .seed = 1, .threads = threads};
        if (woi_queries_open(net, scratch("data"), &all, &queries, &err)) fail_msg("%s", err.text);
        assert_int_equal(woi_queries_n(queries), e.n);
        assert_int_equal(read_all(queries, &e, false, NULL), e.n);
        assert_int_equal(woi_queries_rewind(queries, &err), WO_OK);
        assert_int_equal(read_all(queries, &e, false, NULL), e.n);
        woi_queries_free(queries);
    }
    size_t first[300], again[300], other[300];
    woi_queries_options some = {.max_queries = 300, .next = next, .seed = 1, .threads = 2};
    if (woi_queries_open(net, scratch("data"), &some, &queries, &err)) fail_msg("%s", err.text);
    assert_int_equal(woi_queries_n(queries), 300);
    assert_int_equal(read_all(queries, &e, true, first), 300);
    assert_int_equal(woi_queries_rewind(queries, &err), WO_OK);
    assert_int_equal(read_all(queries, &e, true, again), 300);
    woi_queries_free(queries);
    assert_memory_equal(first, again, sizeof first);
    some.seed = 2;
    if (woi_queries_open(net, scratch("data"), &some, &queries, &err)) fail_msg("%s", err.text);
    assert_int_equal(read_all(queries, &e, true, other), 300);
    assert_memory_not_equal(first, other, sizeof first);
    woi_queries_free(queries);
    free_expectation(&e);
    woi_network_free(net);
}

static void bag_queries(void **state)
{
    (void)state;
    check_queries(WOI_ARCH_XC, 0);
}

static void word_queries(void **state)
{
    (void)state;
    check_queries(WOI_ARCH_W2V, 0);
}

static void lstm_queries(void **state)
{
    (void)state;
    check_queries(WOI_ARCH_LM, 1);
    check_queries(WOI_ARCH_LM, 4);
}

/* Chunks of 1024 words carry the state on: one long run gives the same. */
static void chunks_carry_the_state(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_LM, false);
    write_tokens(net, TOKENS);
    woi_queries *queries = NULL;
    woi_lstm_slice *slice = NULL;
    const woi_lstm lstm = woi_network_lstm(net);
    float *x = malloc(TOKENS * D * sizeof *x), *hidden = malloc(TOKENS * D * sizeof *hidden);
    assert_true(x && hidden);
    for (size_t i = 0; i < TOKENS * D; i++) x[i] = net->params[0].w[(size_t)tokens[i / D] * D + i % D];
    assert_int_equal(woi_lstm_slice_create(D, TOKENS, 1, &slice, NULL), WO_OK);
    woi_lstm_forward(&lstm, slice, TOKENS, x, NULL, hidden);
    assert_int_equal(woi_queries_open(net, scratch("data"), &(woi_queries_options){.threads = 1}, &queries, NULL),
                     WO_OK);
    size_t at = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        assert_int_equal(woi_queries_next(queries, &batch, &more, NULL), WO_OK);
        for (size_t i = 0; i < batch.n * D; i++, at++) assert_true(fabsf(batch.q[i] - hidden[at]) < 1e-5f);
    }
    assert_int_equal(at, (TOKENS - 1) * D);
    woi_queries_free(queries);
    woi_lstm_slice_free(slice);
    free(x);
    free(hidden);
    woi_network_free(net);
}

static void refuse_data(const woi_network *net, const char *sentence)
{
    woi_precision precision;
    wo_error err;
    assert_int_equal(woi_evaluate(net, scratch("data"), &(woi_queries_options){.threads = 1}, NULL, &precision, &err),
                     WO_ERR_FORMAT);
    assert_begins(err.text, sentence);
}

static void data_must_fit_the_network(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, false);
    scratch_text("data", "1 31 24\n0 1:1\n");
    refuse_data(net, "has 24 labels, the network 23");
    scratch_text("data", "1 32 23\n0 1:1\n");
    refuse_data(net, "has 32 features, the network 31");
    scratch_text("data", "1 30 22\n0 1:1\n");
    refuse_data(net, "is of other data than the network: it has 30 features and 22 labels, the network 31 and 23");
    scratch_text("data", "1 3\n1:1\n");
    refuse_data(net, "is one half of the two-file form");
    scratch_text("data", "2 31 23\n0 1:1\n1 3:-1\n");
    refuse_data(net, "row 2: feature 3 has the value -1, which is no count, and the network takes log1p");
    scratch_text("data", "2 31 23\n0 1:1\n1 3:-1\n");
    net->input.log1p = false;
    woi_precision precision;
    assert_int_equal(woi_evaluate(net, scratch("data"), &(woi_queries_options){0}, NULL, &precision, NULL), WO_OK);
    assert_int_equal(precision.n, 2);
    scratch_text("data", "3 31 23\n0 1:1\n");
    refuse_data(net, "ends after 1 rows, the header says 3");
    scratch_text("data", "1 31 23\n0 1:1\n0 1:1\n");
    refuse_data(net, "");
    woi_network_free(net);

    net = make_network(WOI_ARCH_LM, false);
    refuse_data(net, "");
    write_tokens(net, TOKENS);
    woi_names_free(&net->labels);
    add_names(&net->labels, "w", M);
    refuse_data(net, "the word 'strange' is not in the network's vocabulary, which has no <unk>");
    woi_queries *queries = NULL;
    wo_error err;
    write_tokens(net, TOKENS);
    assert_int_equal(woi_queries_open(net, scratch("data"), &(woi_queries_options){.next = TOKENS}, &queries, &err),
                     WO_ERR_FORMAT);
    assert_string_equal(err.text, "has 2500 words, expected more than 2500");
    assert_null(queries);
    woi_network_free(net);
}

/* ---- Files that change ------------------------------------------------------------------------------------- */

/* All labels of a stream, added up, with the number of queries in front: -1 where it fails. */
static int64_t read_through(woi_queries *queries, wo_error *err)
{
    int64_t sum = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        if (woi_queries_next(queries, &batch, &more, err)) return -1;
        sum += (int64_t)batch.n * 1000000;
        for (int64_t i = 0; i < batch.indptr[batch.n]; i++) sum += batch.labels[i];
    }
    return sum;
}

/* A file without a header is read twice. Another one that takes its name between is not read at all; one that is
 * written over is noticed, whatever it says now, and no id of it is an address. */
static void a_file_that_changes_between_passes(void **state)
{
    (void)state;
    static const char text[] = "0,3 0:1 2:1\n1 1:1\n3 0:2\n";
    static const char *const others[] = {"0,3 0:1 999999:1\n1 1:1\n3 0:2\n",
                                         "0,999999 0:1 2:1\n1 1:1\n3 0:2\n",
                                         "0,3 0:1 2:1\n1 1:1\n",
                                         "0,3 0:1 2:1\n1 1:1\n3 0:2\n3 0:2\n",
                                         "3 1000000 1000000\n0,3 0:1 999999:1\n1 1:1\n3 0:2\n",
                                         "3 4\n0:1\n1:1\n2:1\n"};
    woi_network *net = make_network(WOI_ARCH_XC, false);
    const woi_queries_options options = {.xc.lenient = true, .threads = 1};
    wo_error err;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            woi_queries *queries = NULL;
            scratch_text("data", text);
            if (woi_queries_open(net, scratch("data"), &options, &queries, &err)) fail_msg("%s", err.text);
            assert_int_equal(woi_queries_n(queries), 3);
            assert_int_equal(read_through(queries, &err), 3000007);
            if (in_place) {
                scratch_text("data", others[i]);
            } else {
                scratch_text("other", others[i]);
                assert_int_equal(rename(scratch("other"), scratch("data")), 0);
            }
            err = (wo_error){0};
            const wo_status status = woi_queries_rewind(queries, &err);
            const int64_t sum = status ? -1 : read_through(queries, &err);
            assert_int_equal(sum, in_place ? -1 : 3000007);
            if (in_place)
                assert_string_equal(err.text, "changed while it was read: run it again when the file is at rest");
            woi_queries_free(queries);
        }
    woi_network_free(net);
}

static void tokens_that_change_are_those_of_the_start(void **state)
{
    (void)state;
    for (int arch = WOI_ARCH_W2V; arch <= WOI_ARCH_LM; arch++) {
        woi_network *net = make_network((woi_arch)arch, false);
        woi_queries *queries = NULL;
        wo_error err;
        write_tokens(net, TOKENS);
        if (woi_queries_open(net, scratch("data"), &(woi_queries_options){.threads = 1}, &queries, &err))
            fail_msg("%s", err.text);
        const int64_t sum = read_through(queries, &err);
        FILE *file = fopen(scratch("data"), "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        const long bytes = ftell(file);
        assert_int_equal(fseek(file, 1000, SEEK_SET), 0); /* somewhere in the ids */
        for (long i = 1000; i < bytes; i++) fputc(0x7f, file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(woi_queries_rewind(queries, &err), WO_OK);
        assert_int_equal(read_through(queries, &err), sum);
        woi_queries_free(queries);
        woi_network_free(net);
    }
}

/* ---- Precision and logs ------------------------------------------------------------------------------------ */

/* The best five of a row of logits, by looking through all of them five times. */
static woi_precision count_by_hand(const woi_network *net, const expectation *e)
{
    const woi_dense layer = woi_network_output(net);
    woi_precision p = {.n = e->n};
    double first = 0, hits = 0;
    for (size_t i = 0; i < e->n; i++) {
        double logits[M];
        p.unlabelled += memchr(e->have + i * M, 1, M) == NULL;
        for (size_t j = 0; j < M; j++) {
            logits[j] = (double)layer.b[j];
            for (size_t k = 0; k < D; k++) logits[j] += (double)layer.w[j * D + k] * e->q[i * D + k];
        }
        for (int k = 0; k < 5; k++) {
            size_t best = 0;
            for (size_t j = 1; j < M; j++)
                if (logits[j] > logits[best]) best = j;
            hits += e->have[i * M + best];
            first += k == 0 && e->have[i * M + best];
            logits[best] = -INFINITY;
        }
    }
    p.p_at_1 = first / (double)(p.n - p.unlabelled);
    p.p_at_5 = hits / (double)(p.n - p.unlabelled) / 5;
    return p;
}

static void precision_is_that_counted_by_hand(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++)
        for (size_t next = 1; next < 4; next += 2) {
            woi_network *net = make_network((woi_arch)arch, false);
            expectation e = make_data(net, next);
            const woi_precision expected = count_by_hand(net, &e);
            woi_precision got;
            wo_error err;
            const woi_queries_options options = {.next = next, .seed = 1, .threads = 2};
            if (woi_evaluate(net, scratch("data"), &options, NULL, &got, &err)) fail_msg("%s", err.text);
            assert_int_equal(got.n, expected.n);
            assert_int_equal(got.unlabelled, expected.unlabelled);
            assert_true(expected.p_at_5 > 0.01);
            assert_true(arch != WOI_ARCH_XC || expected.unlabelled > 100);
            assert_true(fabs(got.p_at_1 - expected.p_at_1) < 1e-9);
            assert_true(fabs(got.p_at_5 - expected.p_at_5) < 1e-9);
            free_expectation(&e);
            woi_network_free(net);
        }
}

static void check_log(woi_arch arch, woi_dtype dtype, uint64_t max_queries)
{
    woi_network *net = make_network(arch, false);
    expectation e = make_data(net, 1);
    const woi_queries_options options = {.max_queries = max_queries, .seed = 1, .threads = 2};
    woi_precision with_log, alone;
    woi_queries *queries = NULL;
    woi_log log;
    wo_error err;
    woi_embedded made;
    const woi_embed_options to = {.path = scratch("log"), .bf16 = dtype == WOI_BF16, .score = true};
    if (woi_embed(net, scratch("data"), &options, &to, &made, &err)) fail_msg("%s", err.text);
    const uint64_t n = made.n;
    with_log = made.precision;
    assert_int_equal(woi_evaluate(net, scratch("data"), &options, NULL, &alone, &err), WO_OK);
    assert_int_equal(with_log.n, alone.n);
    assert_int_equal(with_log.unlabelled, alone.unlabelled);
    assert_true(with_log.p_at_1 == alone.p_at_1 && with_log.p_at_5 == alone.p_at_5);
    if (woi_log_open(scratch("log"), &log, &err)) fail_msg("%s", err.text);
    assert_int_equal(log.n, max_queries ? max_queries : e.n);
    assert_int_equal(log.n, n);
    assert_int_equal(log.d, D);
    assert_int_equal(log.queries->dtype, dtype);
    assert_true(log.max_label < M);
    assert_string_equal(woi_st_meta(log.st, "arch"), woi_arch_name(arch));
    assert_int_equal(woi_queries_open(net, scratch("data"), &options, &queries, &err), WO_OK);
    size_t row = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        assert_int_equal(woi_queries_next(queries, &batch, &more, &err), WO_OK);
        for (size_t i = 0; i < batch.n; i++, row++) {
            const int64_t labels = batch.indptr[i + 1] - batch.indptr[i];
            assert_int_equal(labels, log.indptr[row + 1] - log.indptr[row]);
            for (int64_t j = 0; j < labels; j++)
                assert_int_equal(batch.labels[batch.indptr[i] + j], log.labels[log.indptr[row] + j]);
            if (dtype == WOI_F32)
                assert_memory_equal(batch.q + i * D, (const float *)log.queries->data + row * D, D * sizeof(float));
            for (size_t j = 0; dtype == WOI_BF16 && j < D; j++)
                assert_int_equal(woi_f32_to_bf16(batch.q[i * D + j]),
                                 ((const uint16_t *)log.queries->data)[row * D + j]);
        }
    }
    assert_int_equal(row, n);
    woi_queries_free(queries);
    woi_log_close(&log);
    free_expectation(&e);
    woi_network_free(net);
}

static void logs_hold_the_queries(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        check_log((woi_arch)arch, WOI_F32, 0);
        check_log((woi_arch)arch, WOI_BF16, 0);
        check_log((woi_arch)arch, WOI_F32, 77);
    }
}

static void a_stopped_embedding_keeps_the_old_log(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, false);
    expectation e = make_data(net, 1);
    woi_embedded made;
    wo_error err;
    scratch_text("log", "old");
    char stage[] = "embedding";
    const woi_queries_options one = {.threads = 1};
    const wo_progress stop = {stop_in, stage};
    woi_embed_options to = {.path = scratch("log"), .progress = &stop};
    assert_int_equal(woi_embed(net, scratch("data"), &one, &to, &made, &err), WO_ERR_CANCELLED);
    assert_non_null(strstr(err.text, stage));
    size_t bytes;
    char *text = slurp(scratch("log"), &bytes);
    assert_string_equal(text, "old");
    free(text);
    to.progress = NULL;
    assert_int_equal(woi_embed(net, scratch("no such data"), &one, &to, &made, &err), WO_ERR_IO);
    assert_int_equal(err.about, WO_ABOUT_NONE);
    to.path = scratch("no such folder/log");
    assert_int_equal(woi_embed(net, scratch("data"), &one, &to, &made, &err), WO_ERR_IO);
    assert_int_equal(err.about, WO_ABOUT_OUTPUT);
    free_expectation(&e);
    woi_network_free(net);
}

static void distinct_is_for_word_networks(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        if (arch == WOI_ARCH_W2V) continue;
        woi_network *net = make_network((woi_arch)arch, false);
        expectation e = make_data(net, 1);
        woi_queries *queries = NULL;
        wo_error err;
        char sentence[128];
        snprintf(sentence, sizeof sentence, "is a network of kind %s, expected w2v, whose queries are single words",
                 woi_arch_name((woi_arch)arch));
        assert_int_equal(
            woi_queries_open(net, scratch("data"), &(woi_queries_options){.distinct = true}, &queries, &err),
            WO_ERR_ARGUMENT);
        assert_null(queries);
        assert_string_equal(err.text, sentence);
        free_expectation(&e);
        woi_network_free(net);
    }
}

/* ---- Training -------------------------------------------------------------------------------------------- */

static woi_arch trained_arch;
static bool trained_auto; /* with --epochs auto */

static wo_status embed_all(wo_error *err)
{
    woi_network *net = NULL;
    woi_embedded made;
    wo_status status = woi_network_open(scratch("net"), &net, err);
    if (!status)
        status = woi_embed(net, scratch("data"), &(woi_queries_options){.max_queries = 20, .threads = 1},
                           &(woi_embed_options){.path = scratch("log"), .bf16 = true, .score = true}, &made, err);
    woi_network_free(net);
    return status;
}

static wo_status embed_words(wo_error *err)
{
    woi_network *net = NULL;
    woi_embedded made;
    wo_status status = woi_network_open(scratch("net"), &net, err);
    if (!status)
        status = woi_embed(net, scratch("data"), &(woi_queries_options){.threads = 1, .distinct = true},
                           &(woi_embed_options){.path = scratch("log"), .bf16 = true}, &made, err);
    woi_network_free(net);
    return status;
}

static wo_status train_all(wo_error *err)
{
    woi_train_options o = woi_train_defaults(trained_arch);
    char train[256], output[256];
    snprintf(train, sizeof train, "%s/data", scratch_folder);
    snprintf(output, sizeof output, "%s/net", scratch_folder);
    o.train = o.valid = o.test = train;
    o.output = output;
    o.d = 4;
    o.epochs = 1;
    o.batch = 20;
    o.steps = 2;
    o.threads = 1;
    o.sampled = trained_arch == WOI_ARCH_W2V ? 0 : 10;
    o.auto_epochs = trained_auto;
    woi_train_result result;
    const char *at;
    wo_status status = woi_train(trained_arch, &o, (woi_train_watch){0}, &result, &at, err);
    if (!status) woi_train_result_free(&result);
    return status;
}

/* Files that no command writes, but that someone might hand over. */
static void nothing_to_learn_from(void **state)
{
    (void)state;
    static const int32_t zeros[3];
    woi_names words = {0};
    wo_error err;
    assert_int_equal(woi_names_append(&words, "only", 4, NULL), WO_OK);
    for (int arch = WOI_ARCH_W2V; arch <= WOI_ARCH_LM; arch++) {
        trained_arch = (woi_arch)arch;
        write_token_file(zeros, 3, &words);
        assert_int_equal(train_all(&err), WO_ERR_FORMAT);
        assert_string_equal(err.text, "has a vocabulary of 1 words, expected 2 or more");
    }
    assert_int_equal(woi_names_append(&words, "other", 5, NULL), WO_OK);
    for (int arch = WOI_ARCH_W2V; arch <= WOI_ARCH_LM; arch++)
        for (size_t n = 0; n < 2; n++) {
            char sentence[96];
            trained_arch = (woi_arch)arch;
            write_token_file(zeros, n, &words);
            assert_int_equal(train_all(&err), WO_ERR_FORMAT);
            snprintf(sentence, sizeof sentence, "has %zu words, expected %s", n,
                     arch == WOI_ARCH_LM ? "more than the batch of 20" : "2 or more");
            assert_string_equal(err.text, sentence);
        }
    woi_names_free(&words);
}

/* Fails the 1st, 2nd, ... allocation until the operation gets through. */
static void fail_each(wo_status (*operation)(wo_error *))
{
    long n = 0;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    for (wo_status status = WO_ERR_MEMORY; status; n++) {
        wo_error err = {0};
        assert_true(n < 5000);
        allocations_left = n;
        allocations_alive = 0;
        status = operation(&err);
        allocations_left = -1;
        assert_int_equal(allocations_alive, 0);
        if (status && status != WO_ERR_MEMORY) fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        if (status) assert_non_null(strstr(err.text, "memory"));
    }
    assert_true(n > 20);
    wo_allocator_set(NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        woi_network *net = make_network((woi_arch)arch, false);
        if (arch == WOI_ARCH_XC)
            scratch_text("data", "3 31 23\n0,5 1:1 30:2\n22 3:1\n 4:1\n");
        else
            write_tokens(net, 60);
        save_network(net, "net");
        trained_arch = (woi_arch)arch;
        fail_each(embed_all);
        if (arch == WOI_ARCH_W2V) fail_each(embed_words);
        fail_each(train_all);
        trained_auto = arch == WOI_ARCH_XC;
        if (trained_auto) fail_each(train_all);
        trained_auto = false;
        woi_network_free(net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bag_queries),
        cmocka_unit_test(word_queries),
        cmocka_unit_test(lstm_queries),
        cmocka_unit_test(chunks_carry_the_state),
        cmocka_unit_test(data_must_fit_the_network),
        cmocka_unit_test(a_file_that_changes_between_passes),
        cmocka_unit_test(tokens_that_change_are_those_of_the_start),
        cmocka_unit_test(precision_is_that_counted_by_hand),
        cmocka_unit_test(logs_hold_the_queries),
        cmocka_unit_test(a_stopped_embedding_keeps_the_old_log),
        cmocka_unit_test(distinct_is_for_word_networks),
        cmocka_unit_test(nothing_to_learn_from),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
