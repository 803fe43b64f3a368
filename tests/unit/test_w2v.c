/* net/: the targets that training draws for the word network are, on average, the counted contexts. */
#include "testing.h"

#include "net/trainer.h"

#include <math.h>

enum { D = 5, MOST = 16 }; /* dimensions, words */

/* 26 times "a", but once "z", which has no other neighbour. */
static const char text[] =
    "a z a b c a b d a e a b a c f a b a a g b c a d e f g a b a h i a c a a d b e a c a a b a a d a";

static const woi_adam_step look = {.beta1 = 0, .beta2 = 0.5f, .rate = 0, .root_scale = 1, .epsilon = 1e-8f};

/* The gradient of the whole objective, for W, b and E in turn. */
typedef struct gradient {
    double w[MOST * D], b[MOST], e[MOST * D];
} gradient;

static void write_tokens(woi_tokens *tokens)
{
    wo_error err;
    woi_corpus corpus = {0};
    woi_st_writer *writer = NULL;
    if (woi_corpus_read(&corpus, scratch_text("text", text), WOI_EOS_OFF, NULL, &err) ||
        woi_corpus_finish(&corpus, WOI_EOS_OFF, 1, &err) ||
        woi_corpus_write(&corpus, 0, 1, scratch("tokens"), &writer, &err) || woi_st_finish(writer, &err) ||
        woi_tokens_open(scratch("tokens"), tokens, &err))
        fail_msg("%s", err.text);
    woi_st_writer_free(writer);
    woi_corpus_free(&corpus);
}

/* By definition: every pair of neighbours counted, every word weighted by its count. */
static void count_gradient(const woi_tokens *tokens, const woi_network *net, gradient *g)
{
    const size_t m = net->m;
    const float *e = net->params[0].w, *w = net->params[1].w, *b = net->params[2].w;
    double near[MOST][MOST] = {{0}}, labels[MOST] = {0}, count[MOST] = {0}, total = 0;
    const int64_t n = (int64_t)tokens->n, reach = (int64_t)net->window;
    for (int64_t i = 0; i < n; i++) {
        count[tokens->ids[i]]++;
        for (int64_t j = i - reach; j <= i + reach; j++) {
            if (j < 0 || j >= n || j == i || !net->is_label[tokens->ids[j]]) continue;
            near[tokens->ids[i]][tokens->ids[j]]++;
            labels[tokens->ids[i]]++;
        }
    }
    for (size_t i = 0; i < m; i++) total += labels[i] > 0 ? count[i] : 0;
    memset(g, 0, sizeof *g);
    for (size_t i = 0; i < m; i++) {
        double z[MOST], sum = 0;
        for (size_t j = 0; j < m; j++) {
            z[j] = b[j];
            for (size_t k = 0; k < D; k++) z[j] += fmax(e[i * D + k], 0) * (double)w[j * D + k];
            sum += exp(z[j]);
        }
        for (size_t j = 0; labels[i] > 0 && j < m; j++) {
            const double dz = count[i] / total * (exp(z[j]) / sum - near[i][j] / labels[i]);
            g->b[j] += dz;
            for (size_t k = 0; k < D; k++) {
                g->w[j * D + k] += dz * fmax(e[i * D + k], 0);
                g->e[i * D + k] += e[i * D + k] > 0 ? dz * (double)w[j * D + k] : 0;
            }
        }
    }
}

static void assert_near(const char *what, const double *sum, double steps, const double *expected, size_t n)
{
    double error = 0, length = 0;
    for (size_t i = 0; i < n; i++) {
        error += (sum[i] / steps - expected[i]) * (sum[i] / steps - expected[i]);
        length += expected[i] * expected[i];
    }
    if (!(sqrt(error / length) < 0.01)) fail_msg("%s: off by %.4f of its length", what, sqrt(error / length));
}

/* A batch that holds the epoch's visits has the weights of all words; steps differ in what they draw. */
static void drawn_targets_have_the_counted_gradient(void **state)
{
    (void)state;
    enum { STEPS = 1000 };
    woi_tokens tokens;
    write_tokens(&tokens);
    for (uint64_t drop = 0; drop < 2; drop++) {
        woi_train_options o = woi_train_defaults(WOI_ARCH_W2V);
        woi_trainer trainer;
        wo_error err;
        const char *at;
        gradient expected, sum = {{0}, {0}, {0}};
        o.train = scratch("tokens");
        o.d = D;
        o.batch = 100;
        o.window = drop ? 1 : 3;
        o.drop_top = drop;
        o.threads = 1;
        if (woi_trainer_w2v(&o, &trainer, &at, &err)) fail_msg("%s", err.text);
        const woi_param *p = trainer.net->params;
        assert_int_equal(trainer.steps_per_epoch, 1);
        assert_true(trainer.net->m < MOST);
        for (size_t i = 0; i < p[0].n; i++) { /* none is cut off by the ReLU for good; some are for now */
            assert_true(p[0].w[i] >= 0);
            if (i % 7 == 0) p[0].w[i] -= 0.2f;
        }
        for (size_t i = 0; i < p[2].n; i++) p[2].w[i] *= 0.5f; /* so that there is something to learn */
        count_gradient(&tokens, trainer.net, &expected);
        assert_int_equal(trainer.begin_epoch(trainer.self, 1, &err), WO_OK);
        for (uint64_t step = 0; step < STEPS; step++) {
            double loss;
            size_t examples;
            assert_int_equal(trainer.step(trainer.self, &(woi_turn){0, step, &look}, &loss, &examples, &err), WO_OK);
            for (size_t i = 0; i < p[0].n; i++) sum.e[i] += (double)p[0].m[i];
            for (size_t i = 0; i < p[1].n; i++) sum.w[i] += (double)p[1].m[i];
            for (size_t i = 0; i < p[2].n; i++) sum.b[i] += (double)p[2].m[i];
        }
        assert_near("W", sum.w, STEPS, expected.w, p[1].n);
        assert_near("b", sum.b, STEPS, expected.b, p[2].n);
        assert_near("E", sum.e, STEPS, expected.e, p[0].n);
        trainer.free(trainer.self);
        woi_network_free(trainer.net);
    }
    woi_tokens_close(&tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_targets_have_the_counted_gradient),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
