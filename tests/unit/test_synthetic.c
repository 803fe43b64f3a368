/* net/: made-up layers and data: the power law, the vectors, what the exact layer makes of them, the text. */
#include "testing.h"

#include "net/synthetic.h"
#include "store/log.h"
#include "text/xc.h"

#include <math.h>

static woi_synthetic make(uint64_t m, uint64_t d, double exponent, bool layer)
{
    woi_synthetic s = {.m = m, .d = d, .n = {2000, 200, 200}, .exponent = exponent, .seed = 7, .threads = 1};
    assert_int_equal(woi_synthetic_init(&s, layer, NULL), WO_OK);
    return s;
}

static void labels_follow_the_power_law(void **state)
{
    (void)state;
    static const double exponents[] = {0, 0.5, 1, 1.0000001, 2};
    for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
        enum { M = 3000, N = 200000 };
        static uint32_t uses[M];
        memset(uses, 0, sizeof uses);
        woi_synthetic s = make(M, 2, exponents[e], false);
        double sum = 0;
        for (uint64_t j = 0; j < M; j++) sum += exp(woi_synthetic_log_probability(&s, j));
        assert_true(fabs(sum - 1) < 1e-6);
        for (uint64_t i = 0; i < N; i++) uses[woi_synthetic_label(&s, 0, i)]++;
        static const uint64_t checked[] = {0, 1, 10, 100, 1500, M - 1};
        for (size_t i = 0; i < sizeof checked / sizeof *checked; i++) {
            double expected = N * exp(woi_synthetic_log_probability(&s, checked[i]));
            assert_true(fabs(uses[checked[i]] - expected) < 5 * sqrt(expected) + 5);
        }
    }
    woi_synthetic s = make(INT32_MAX, 2, 1, false); /* every class can come */
    uint64_t largest = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t label = woi_synthetic_label(&s, 0, i);
        if (label > largest) largest = label;
    }
    assert_true(largest > INT32_MAX / 2 && largest < INT32_MAX);
}

static double dot(const float *a, const float *b, uint64_t d)
{
    double sum = 0;
    for (uint64_t k = 0; k < d; k++) sum += (double)a[k] * b[k];
    return sum;
}

/* P@1 of the exact layer is what the help promises. */
static void the_layer_answers_its_queries(void **state)
{
    (void)state;
    enum { M = 4000, D = 32, N = 200 };
    woi_synthetic s = make(M, D, 1, true);
    float *weights = malloc(sizeof(float) * M * D), query[D];
    assert_non_null(weights);
    for (uint64_t j = 0; j < M; j++) {
        woi_synthetic_weight(&s, j, weights + j * D);
        double norm = sqrt(dot(weights + j * D, weights + j * D, D)) * s.sigma * s.sigma;
        assert_true(fabs(norm - 1) < 1e-5);
    }
    int hits = 0;
    for (uint64_t i = 0; i < N; i++) {
        woi_synthetic_query(&s, 2, i, query);
        uint64_t best = 0;
        double best_logit = -INFINITY;
        for (uint64_t j = 0; j < M; j++) {
            double logit = dot(weights + j * D, query, D) + woi_synthetic_log_probability(&s, j);
            if (logit > best_logit) best_logit = logit, best = j;
        }
        hits += best == woi_synthetic_label(&s, 2, i);
    }
    assert_in_range(hits, N * 6 / 10, N * 9 / 10);
    free(weights);
    woi_synthetic_free(&s);
}

static void files_hold_the_rows(void **state)
{
    (void)state;
    enum { M = 9001, D = 6 };
    woi_synthetic s = make(M, D, 1, true);
    woi_st_writer *writer = NULL;
    woi_st *st = NULL;
    float row[D];
    assert_int_equal(woi_synthetic_layer(&s, scratch("layer"), NULL, &writer, NULL), WO_OK);
    assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
    woi_st_writer_free(writer);
    assert_int_equal(woi_st_open(scratch("layer"), &st, NULL), WO_OK);
    assert_string_equal(woi_st_kind(st), "layer");
    const woi_tensor *weight = woi_st_find(st, "weight"), *bias = woi_st_find(st, "bias");
    assert_int_equal(weight->shape[0], M);
    assert_int_equal(weight->shape[1], D);
    woi_synthetic_weight(&s, 8500, row);
    assert_memory_equal((const float *)weight->data + 8500 * D, row, sizeof row);
    assert_true(((const float *)bias->data)[8500] == (float)woi_synthetic_log_probability(&s, 8500));
    woi_st_free(st);

    woi_log log;
    assert_int_equal(woi_synthetic_log(&s, 1, scratch("log"), NULL, &writer, NULL), WO_OK);
    assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
    woi_st_writer_free(writer);
    assert_int_equal(woi_log_open(scratch("log"), &log, NULL), WO_OK);
    assert_int_equal(log.n, 200);
    assert_int_equal(log.d, D);
    assert_true(log.max_label < M);
    woi_synthetic_query(&s, 1, 77, row);
    assert_memory_equal((const float *)log.queries->data + 77 * D, row, sizeof row);
    assert_int_equal(log.labels[log.indptr[77]], woi_synthetic_label(&s, 1, 77));
    woi_log_close(&log);
    woi_synthetic_free(&s);
}

/* Shard r of 3 has classes r, r + 3, ..., and each query's label is in one shard. */
static void shards_are_the_whole(void **state)
{
    (void)state;
    enum { M = 9001, D = 6, SHARDS = 3 };
    woi_synthetic s = make(M, D, 1, true);
    size_t rows = 0, labels = 0;
    s.shards = SHARDS;
    for (s.shard = 0; s.shard < SHARDS; s.shard++) {
        woi_st_writer *writer = NULL;
        woi_st *st = NULL;
        assert_int_equal(woi_synthetic_layer(&s, scratch("part"), NULL, &writer, NULL), WO_OK);
        assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
        woi_st_writer_free(writer);
        assert_int_equal(woi_st_open(scratch("part"), &st, NULL), WO_OK);
        const woi_tensor *weight = woi_st_find(st, "weight"), *bias = woi_st_find(st, "bias");
        rows += weight->shape[0];
        for (uint64_t i = 0; i < weight->shape[0]; i += 700) {
            float row[D];
            woi_synthetic_weight(&s, s.shard + i * SHARDS, row);
            assert_memory_equal((const float *)weight->data + i * D, row, sizeof row);
            assert_true(((const float *)bias->data)[i] ==
                        (float)woi_synthetic_log_probability(&s, s.shard + i * SHARDS));
        }
        woi_st_free(st);

        woi_log log;
        assert_int_equal(woi_synthetic_log(&s, 1, scratch("part.log"), NULL, &writer, NULL), WO_OK);
        assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
        woi_st_writer_free(writer);
        assert_int_equal(woi_log_open(scratch("part.log"), &log, NULL), WO_OK);
        assert_int_equal(log.n, 200);
        for (size_t i = 0; i < log.n; i++) {
            const uint64_t label = woi_synthetic_label(&s, 1, i);
            assert_int_equal(log.indptr[i + 1] - log.indptr[i], label % SHARDS == s.shard);
            if (label % SHARDS == s.shard) assert_int_equal(log.labels[log.indptr[i]], label / SHARDS);
        }
        labels += (size_t)log.indptr[log.n];
        woi_log_close(&log);
    }
    assert_int_equal(rows, M);
    assert_int_equal(labels, 200);
    woi_synthetic_free(&s);
}

static void text_is_canonical_and_rows_of_a_class_are_alike(void **state)
{
    (void)state;
    woi_synthetic s = make(50, 2, 1, false);
    woi_outfile *out = NULL;
    woi_xc_data data;
    assert_int_equal(woi_outfile_create(scratch("rows.txt"), &out, NULL), WO_OK);
    assert_int_equal(woi_synthetic_text(&s, 0, out, NULL, NULL), WO_OK);
    assert_int_equal(woi_outfile_commit(out, NULL), WO_OK);
    woi_outfile_free(out);
    assert_int_equal(woi_xc_load(scratch("rows.txt"), &(woi_xc_options){0}, NULL, &data, NULL), WO_OK);
    assert_int_equal(data.n, 2000);
    assert_int_equal(data.n_labels, 50);
    assert_int_equal(data.n_features, s.n_features);
    /* Neighbouring rows share words when they share the label, hardly otherwise. */
    double shared[2] = {0, 0}, pairs[2] = {0, 0};
    for (uint64_t i = 0; i + 1 < data.n; i++) {
        int alike = data.labels[i] == data.labels[i + 1];
        int64_t a = data.feature_indptr[i], b = data.feature_indptr[i + 1], end = data.feature_indptr[i + 2];
        for (int64_t middle = b; a < middle && b < end;) {
            shared[alike] += data.features[a] == data.features[b];
            if (data.features[a] <= data.features[b])
                a++;
            else
                b++;
        }
        pairs[alike]++;
    }
    assert_true(shared[1] / pairs[1] > 4 && shared[0] / pairs[0] < 1);
    woi_xc_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_follow_the_power_law),
        cmocka_unit_test(the_layer_answers_its_queries),
        cmocka_unit_test(files_hold_the_rows),
        cmocka_unit_test(shards_are_the_whole),
        cmocka_unit_test(text_is_canonical_and_rows_of_a_class_are_alike),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
