/* net/reader: a language model word by word, beside the equations of the LSTM written out. */
#include "networks.h"

/* One step of the two layers, in double. */
static void naive_step(const woi_network *net, int32_t word, double h[2][D], double c[2][D])
{
    const woi_lstm lstm = woi_network_lstm(net);
    double x[D];
    for (size_t j = 0; j < D; j++) x[j] = (double)net->params[0].w[(size_t)word * D + j];
    for (int l = 0; l < 2; l++) {
        double sums[4 * D], next[D];
        for (size_t g = 0; g < 4 * D; g++) {
            sums[g] = (double)lstm.b_ih[l][g] + (double)lstm.b_hh[l][g];
            for (size_t j = 0; j < D; j++)
                sums[g] += (double)lstm.w_ih[l][g * D + j] * x[j] + (double)lstm.w_hh[l][g * D + j] * h[l][j];
        }
        for (size_t j = 0; j < D; j++) {
            const double i = 1 / (1 + exp(-sums[j])), f = 1 / (1 + exp(-sums[D + j])),
                         o = 1 / (1 + exp(-sums[3 * D + j]));
            c[l][j] = f * c[l][j] + i * tanh(sums[2 * D + j]);
            next[j] = o * tanh(c[l][j]);
        }
        memcpy(h[l], next, sizeof next);
        memcpy(x, next, sizeof next);
    }
}

static void a_word_at_a_time(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_LM, false);
    woi_reader *reader = NULL;
    wo_error err;
    assert_int_equal(woi_reader_create(net, &reader, &err), WO_OK);
    for (int again = 0; again < 2; again++) { /* from the start, the same */
        double h[2][D] = {{0}}, c[2][D] = {{0}};
        woi_reader_reset(reader);
        for (uint64_t i = 0; i < 60; i++) {
            const int32_t word = (int32_t)woi_rng_below(9, 0, i, M);
            const float *query = woi_reader_take(reader, word);
            naive_step(net, word, h, c);
            for (size_t j = 0; j < D; j++) assert_float_equal((double)query[j], h[1][j], 1e-4);
        }
    }
    woi_reader_free(reader);
    woi_network_free(net);
}

static void texts_are_words(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_LM, false);
    woi_reader *reader = NULL;
    wo_error err;
    const float *query;
    size_t n;
    float first[D];
    assert_int_equal(woi_reader_create(net, &reader, &err), WO_OK);
    assert_int_equal(woi_reader_read(reader, " w3\tw20 \n w1 ", &query, &n, &err), WO_OK);
    assert_int_equal(n, 3);
    memcpy(first, query, sizeof first);
    woi_reader_reset(reader);
    (void)woi_reader_take(reader, 3);
    (void)woi_reader_take(reader, 20);
    assert_memory_equal(woi_reader_take(reader, 1), first, sizeof first);
    assert_int_equal(woi_reader_read(reader, " \n", &query, &n, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "has no words");
    assert_int_equal(woi_reader_read(reader, "w1 \xff", &query, &n, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "is not UTF-8");
    assert_int_equal(woi_reader_read(reader, "w1 strange", &query, &n, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "the word 'strange' is not in the network's vocabulary, which has no <unk>");
    woi_reader_free(reader);
    woi_reader_free(NULL);
    woi_network_free(net);
}

static void other_networks_are_refused(void **state)
{
    (void)state;
    woi_reader *reader = NULL;
    wo_error err;
    woi_network *net = make_network(WOI_ARCH_W2V, false);
    assert_int_equal(woi_reader_create(net, &reader, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "is a network of kind w2v, expected a language model (lm)");
    assert_null(reader);
    woi_network_free(net);
    net = make_network(WOI_ARCH_LM, false);
    woi_names_free(&net->labels);
    assert_int_equal(woi_reader_create(net, &reader, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "has no vocabulary: it cannot read words");
    woi_network_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_at_a_time),
        cmocka_unit_test(texts_are_words),
        cmocka_unit_test(other_networks_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
