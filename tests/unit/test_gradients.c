/* net/: the gradient of every layer against finite differences, and the same result whatever the threads. */
#include "testing.h"

#include "base/rng.h"
#include "net/bag.h"
#include "net/lstm.h"
#include "net/softmax.h"

#include <math.h>

enum { M = 1300, D = 12, N = 9 }; /* three blocks of classes, the last one partial */

static const woi_adam_step look = {.beta1 = 0, .beta2 = 0.5f, .rate = 0, .root_scale = 1, .epsilon = 1e-8f};

static float *random_floats(size_t n, uint64_t stream, float size)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = size * woi_rng_normal(11, stream, i);
    return x;
}

static float *zeros(size_t n)
{
    float *x = calloc(n, sizeof *x);
    assert_non_null(x);
    return x;
}

/* |slope - expected| within 1e-3 of the larger, or of the noise that rounding of the loss leaves: of the LSTM,
 * 4.6e-7 of the loss at most, on any instruction set. */
static void assert_slope(double slope, double expected, double noise)
{
    double most = fmax(fabs(slope), fabs(expected));
    if (fabs(slope - expected) > 1e-3 * most + noise) fail_msg("slope %.8g, gradient %.8g", slope, expected);
}

/* Moves x along a random direction and compares the change of loss() with the gradient: in every direction of a few,
 * and in single coordinates. */
static void check_gradient(float *x, const float *gradient, size_t n, double (*loss)(void *), void *ctx)
{
    float *before = malloc(n * sizeof *before), *direction = malloc(n * sizeof *direction);
    memcpy(before, x, n * sizeof *x);
    for (uint64_t trial = 0; trial < 8; trial++) {
        double expected = 0, length = 0;
        for (size_t i = 0; i < n; i++) {
            direction[i] = trial < 4 ? woi_rng_normal(12, trial, i) : 0;
            if (trial >= 4) direction[i] = i == woi_rng_below(12, trial, 0, n);
            length += (double)direction[i] * (double)direction[i];
        }
        const double step = 2e-2 / sqrt(length);
        for (size_t i = 0; i < n; i++) expected += (double)gradient[i] * (double)direction[i];
        double side[2];
        for (int s = 0; s < 2; s++) {
            for (size_t i = 0; i < n; i++) x[i] = before[i] + (float)((s ? 1 : -1) * step) * direction[i];
            side[s] = loss(ctx);
        }
        memcpy(x, before, n * sizeof *x);
        assert_slope((side[1] - side[0]) / (2 * step), expected, 8e-7 * (fabs(side[0]) + 1) / (2 * step));
    }
    free(before);
    free(direction);
}

/* ---- The wide layer ---------------------------------------------------------------------------------------- */

typedef struct wide_case {
    woi_wide wide;
    woi_softmax *softmax;
    float *q, *dq, weights[N], shares[3 * N];
    int64_t indptr[N + 1];
    int32_t ids[3 * N];
    woi_targets targets;
} wide_case;

static void wide_create(wide_case *c, size_t sampled, int threads, bool weighted)
{
    static uint32_t frequency[M];
    wo_error err;
    memset(c, 0, sizeof *c);
    c->wide = (woi_wide){
        M, D, random_floats(M * D, 1, 0.5f), zeros(M * D), zeros(M * D), random_floats(M, 2, 0.5f), zeros(M), zeros(M)};
    c->q = random_floats(N * D, 3, 1);
    c->dq = zeros(N * D);
    for (int i = 0; i < N; i++) {
        c->indptr[i + 1] = c->indptr[i] + i % 4; /* some rows have no label */
        c->weights[i] = 1 + (float)i;
        for (int64_t j = c->indptr[i]; j < c->indptr[i + 1]; j++) {
            c->ids[j] = (int32_t)(400 * (j - c->indptr[i]) + 7 * i);
            c->shares[j] = i % 4 == 1 ? 1 : i % 4 == 2 ? (j % 2 ? 0.25f : 0.75f) : 1.0f / 3;
        }
    }
    for (int i = 0; i < N; i++) /* shares of a pair must sum to 1 whatever the parity */
        if (i % 4 == 2) {
            c->shares[c->indptr[i]] = 0.25f;
            c->shares[c->indptr[i] + 1] = 0.75f;
        }
    c->targets = (woi_targets){c->indptr, c->ids, weighted ? c->shares : NULL, weighted ? c->weights : NULL};
    for (int i = 0; i < M; i++) frequency[i] = (uint32_t)(M / (i + 1));
    assert_int_equal(
        woi_softmax_create(M, &(woi_sampling){sampled, frequency, 5}, (woi_workers){threads, NULL}, &c->softmax, &err),
        WO_OK);
}

static void wide_free(wide_case *c)
{
    float *const owned[] = {c->wide.w, c->wide.w_m, c->wide.w_v, c->wide.b, c->wide.b_m, c->wide.b_v, c->q, c->dq};
    for (size_t i = 0; i < 8; i++) free(owned[i]);
    woi_softmax_free(c->softmax);
}

static double wide_loss(void *ctx)
{
    wide_case *c = ctx;
    double loss;
    wo_error err;
    const woi_step step = {c->q, N, &c->targets, 3, &look, c->dq, &loss, NULL};
    assert_int_equal(woi_softmax_step(c->softmax, &c->wide, &step, &err), WO_OK);
    return loss;
}

/* The definition, in double, one logit after the other. */
static void the_loss_is_cross_entropy(void **state)
{
    (void)state;
    for (int weighted = 0; weighted < 2; weighted++) {
        wide_case c;
        wide_create(&c, 0, 2, weighted);
        double expected = 0, total = 0;
        for (size_t i = 0; i < N; i++) {
            double sum = 0, weight = weighted ? (double)c.weights[i] : 1, z[M];
            for (size_t j = 0; j < M; j++) {
                z[j] = c.wide.b[j];
                for (size_t k = 0; k < D; k++) z[j] += (double)c.q[i * D + k] * (double)c.wide.w[j * D + k];
                sum += exp(z[j]);
            }
            double loss = log(sum);
            for (int64_t j = c.indptr[i]; j < c.indptr[i + 1]; j++)
                loss -= z[c.ids[j]] * (weighted ? (double)c.shares[j] : 1.0 / (double)(c.indptr[i + 1] - c.indptr[i]));
            expected += weight * loss;
            total += weight;
        }
        assert_float_equal(wide_loss(&c), expected / total, 1e-5);
        wide_free(&c);
    }
}

static void wide_gradients(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* exact, exact with weights, sampled */
        wide_case c;
        wide_create(&c, kind == 2 ? 300 : 0, 2, kind == 1);
        wide_loss(&c);
        float *dw = malloc(M * D * sizeof *dw), *db = malloc(M * sizeof *db), dq[N * D];
        memcpy(dw, c.wide.w_m, M * D * sizeof *dw);
        memcpy(db, c.wide.b_m, M * sizeof *db);
        memcpy(dq, c.dq, sizeof dq);
        check_gradient(c.wide.w, dw, M * D, wide_loss, &c);
        check_gradient(c.wide.b, db, M, wide_loss, &c);
        check_gradient(c.q, dq, N * D, wide_loss, &c);
        free(dw);
        free(db);
        wide_free(&c);
    }
}

/* A step whose update waits for the norm gives what the fused one gives; threads change nothing. */
static void steps_agree(void **state)
{
    (void)state;
    const woi_adam_step adam = {.beta1 = 0.9f, .beta2 = 0.999f, .rate = 0.01f, .root_scale = 1, .epsilon = 1e-8f};
    for (size_t sampled = 0; sampled <= 300; sampled += 300) {
        wide_case c[3];
        for (int i = 0; i < 3; i++) {
            wo_error err;
            wide_create(&c[i], sampled, i == 0 ? 1 : 2, true);
            for (uint64_t number = 0; number < 3; number++) {
                double loss, square = 0;
                const woi_adam_step *at_once = i < 2 ? &adam : NULL;
                const woi_step step = {c[i].q, N, &c[i].targets, number, at_once, c[i].dq, &loss, &square};
                assert_int_equal(woi_softmax_step(c[i].softmax, &c[i].wide, &step, &err), WO_OK);
                if (i == 2) {
                    assert_true(square > 0);
                    woi_softmax_apply(c[i].softmax, &c[i].wide, 1, &adam);
                }
            }
        }
        for (int i = 1; i < 3; i++) {
            if (memcmp(c[0].wide.w, c[i].wide.w, M * D * sizeof(float))) fail_msg("case %d, %zu samples", i, sampled);
            assert_memory_equal(c[0].wide.b_v, c[i].wide.b_v, M * sizeof(float));
            assert_memory_equal(c[0].dq, c[i].dq, N * D * sizeof(float));
        }
        for (int i = 0; i < 3; i++) wide_free(&c[i]);
    }
}

/* With every class drawn many times, the sampled loss comes near the exact one. */
static void sampling_is_corrected(void **state)
{
    (void)state;
    wide_case exact, sampled;
    wide_create(&exact, 0, 1, true);
    wide_create(&sampled, 40000, 1, true);
    assert_true(fabs(wide_loss(&exact) - wide_loss(&sampled)) < 0.02);
    wide_free(&exact);
    wide_free(&sampled);
}

/* ---- The bag ----------------------------------------------------------------------------------------------- */

enum { FEATURES = 40, ROWS = 6 };

typedef struct bag_case {
    woi_bag bag;
    woi_bag_trainer *trainer;
    woi_bag_rows rows;
    int64_t indptr[ROWS + 1];
    int32_t features[ROWS * 5];
    float values[ROWS * 5], q[ROWS * D], *direction;
} bag_case;

/* A loss that is linear in q: its gradient in q is `direction`. */
static double bag_loss(void *ctx)
{
    bag_case *c = ctx;
    wo_error err;
    double loss = 0;
    assert_int_equal(woi_bag_train_forward(c->trainer, &c->rows, 4, c->q, &err), WO_OK);
    for (int i = 0; i < ROWS * D; i++) loss += (double)c->q[i] * (double)c->direction[i];
    return loss;
}

static void bag_gradients(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        bag_case c = {0};
        wo_error err;
        const woi_bag_input input = {kind & 1, kind & 2, kind & 4};
        c.bag = (woi_bag){FEATURES, D, random_floats(FEATURES * D, 4, 1), zeros(FEATURES * D), zeros(FEATURES * D)};
        for (int i = 0; i < ROWS; i++) {
            c.indptr[i + 1] = c.indptr[i] + i;
            for (int64_t j = c.indptr[i]; j < c.indptr[i + 1]; j++) {
                c.features[j] = (int32_t)((j * 7 + i) % FEATURES);
                c.values[j] = 1 + (float)(j % 3);
            }
        }
        c.rows = (woi_bag_rows){ROWS, c.indptr, c.features, c.values};
        c.direction = random_floats(ROWS * D, 5, 1);
        assert_int_equal(
            woi_bag_trainer_create(&c.bag, &(woi_bag_options){.input = input, .dropout = 0.3, .seed = 8, .threads = 2},
                                   &c.trainer, &err),
            WO_OK);
        bag_loss(&c);
        int dropped = 0;
        for (int i = D; i < ROWS * D; i++) dropped += c.q[i] == 0;
        assert_true(dropped > 5 && dropped < ROWS * D - 5);
        float dq[ROWS * D];
        double square, sum = 0;
        memcpy(dq, c.direction, sizeof dq);
        assert_int_equal(woi_bag_train_backward(c.trainer, &c.rows, dq, &square, &err), WO_OK);
        woi_bag_train_apply(c.trainer, 1, &look);
        for (int i = 0; i < FEATURES * D; i++) sum += (double)c.bag.e_m[i] * (double)c.bag.e_m[i];
        assert_float_equal(square, sum, 1e-4 * sum);
        check_gradient(c.bag.e, c.bag.e_m, FEATURES * D, bag_loss, &c);

        /* Without dropout, training and the trained network compute the same. */
        woi_bag_trainer_free(c.trainer);
        assert_int_equal(woi_bag_trainer_create(&c.bag, &(woi_bag_options){.input = input, .seed = 8, .threads = 2},
                                                &c.trainer, &err),
                         WO_OK);
        bag_loss(&c);
        woi_bag_forward(&c.bag, &input, &c.rows, 1, dq);
        for (int i = 0; i < ROWS * D; i++) assert_float_equal(dq[i], c.q[i], 1e-6);
        woi_bag_trainer_free(c.trainer);
        free(c.bag.e);
        free(c.bag.e_m);
        free(c.bag.e_v);
        free(c.direction);
    }
}

/* Three steps, each with one other feature: every row against Adam over the whole gradient; lazily, only the batch's
 * rows move. */
static void rows_of_other_batches(void **state)
{
    (void)state;
    enum { WORDS = 5 };
    const woi_adam_step adam = {.beta1 = 0.9f, .beta2 = 0.999f, .rate = 0.1f, .root_scale = 1, .epsilon = 1e-8f};
    for (int every_row = 0; every_row < 2; every_row++) {
        wo_error err;
        const woi_bag_input linear = {0};
        const woi_bag bag = {WORDS, D, random_floats(WORDS * D, 4, 1), zeros(WORDS * D), zeros(WORDS * D)};
        float *w = random_floats(WORDS * D, 4, 1), *m = zeros(WORDS * D), *v = zeros(WORDS * D);
        woi_bag_trainer *trainer;
        assert_int_equal(woi_bag_trainer_create(
                             &bag, &(woi_bag_options){.input = linear, .every_row = every_row, .seed = 8, .threads = 2},
                             &trainer, &err),
                         WO_OK);
        for (int step = 0; step < 3; step++) {
            const int64_t indptr[] = {0, 1};
            const int32_t word = step + 1;
            const float one = 1;
            const woi_bag_rows rows = {1, indptr, &word, &one};
            float q[D], *dq = random_floats(D, 40 + (uint64_t)step, 1), whole[WORDS * D] = {0};
            memcpy(whole + word * D, dq, sizeof q);
            assert_int_equal(woi_bag_train_forward(trainer, &rows, (uint64_t)step, q, &err), WO_OK);
            assert_int_equal(woi_bag_train_backward(trainer, &rows, dq, NULL, &err), WO_OK);
            woi_bag_train_apply(trainer, 1, &adam);
            for (int i = every_row ? 0 : word * D; i < (every_row ? WORDS * D : (word + 1) * D); i++) {
                m[i] = adam.beta1 * m[i] + (1 - adam.beta1) * whole[i];
                v[i] = adam.beta2 * v[i] + (1 - adam.beta2) * whole[i] * whole[i];
                w[i] -= adam.rate * m[i] / (sqrtf(v[i]) + adam.epsilon);
            }
            for (int i = 0; i < WORDS * D; i++) assert_float_equal(bag.e[i], w[i], 1e-4);
            free(dq);
        }
        woi_bag_trainer_free(trainer);
        float *const owned[] = {bag.e, bag.e_m, bag.e_v, w, m, v};
        for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) free(owned[i]);
    }
}

/* ---- The LSTM ---------------------------------------------------------------------------------------------- */

enum { STEPS = 5, SEQUENCES = 3, ALL = STEPS * SEQUENCES * D };

typedef struct lstm_case {
    float *w[2][4]; /* w_ih, w_hh, b_ih, b_hh of each layer */
    woi_lstm lstm;
    woi_lstm_slice *slice;
    float *x, *direction, out[ALL];
    double dropout;
} lstm_case;

static double lstm_loss(void *ctx)
{
    lstm_case *c = ctx;
    double loss = 0;
    woi_lstm_slice_reset(c->slice);
    woi_lstm_forward(&c->lstm, c->slice, STEPS, c->x, &(woi_lstm_dropout){c->dropout, 3, 1}, c->out);
    for (int i = 0; i < ALL; i++) loss += (double)c->out[i] * (double)c->direction[i];
    return loss;
}

static void lstm_create(lstm_case *c, double dropout)
{
    wo_error err;
    memset(c, 0, sizeof *c);
    c->dropout = dropout;
    c->lstm.d = D;
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < 4; i++)
            c->w[l][i] = random_floats(4 * D * (i < 2 ? D : 1), (uint64_t)(20 + 4 * l + i), 0.4f);
        c->lstm.w_ih[l] = c->w[l][0];
        c->lstm.w_hh[l] = c->w[l][1];
        c->lstm.b_ih[l] = c->w[l][2];
        c->lstm.b_hh[l] = c->w[l][3];
    }
    c->x = random_floats(ALL, 30, 1);
    c->direction = random_floats(ALL, 31, 1);
    assert_int_equal(woi_lstm_slice_create(D, STEPS, SEQUENCES, &c->slice, &err), WO_OK);
}

static void lstm_free(lstm_case *c)
{
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < 4; i++) free(c->w[l][i]);
    free(c->x);
    free(c->direction);
    woi_lstm_slice_free(c->slice);
}

static void lstm_gradients(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        lstm_case c;
        lstm_create(&c, kind ? 0.4 : 0);
        float *g[2][3], dx[ALL];
        woi_lstm_gradient gradient;
        for (int l = 0; l < 2; l++) {
            gradient.w_ih[l] = g[l][0] = zeros(4 * D * D);
            gradient.w_hh[l] = g[l][1] = zeros(4 * D * D);
            gradient.b[l] = g[l][2] = zeros(4 * D);
        }
        lstm_loss(&c);
        woi_lstm_backward(&c.lstm, c.slice, c.direction, dx, &gradient);
        for (int l = 0; l < 2; l++) {
            for (int i = 0; i < 2; i++) check_gradient(c.w[l][i], g[l][i], 4 * D * D, lstm_loss, &c);
            check_gradient(c.w[l][2], g[l][2], 4 * D, lstm_loss, &c);
            check_gradient(c.w[l][3], g[l][2], 4 * D, lstm_loss, &c);
            for (int i = 0; i < 3; i++) free(g[l][i]);
        }
        check_gradient(c.x, dx, ALL, lstm_loss, &c);
        lstm_free(&c);
    }
}

/* The formulas of the header, written out, over two calls with the state carried. */
static void lstm_follows_its_equations(void **state)
{
    (void)state;
    lstm_case c;
    lstm_create(&c, 0);
    double h[2][D] = {{0}}, cell[2][D] = {{0}};
    woi_lstm_slice_reset(c.slice);
    woi_lstm_forward(&c.lstm, c.slice, 2, c.x, NULL, c.out);
    woi_lstm_forward(&c.lstm, c.slice, STEPS - 2, c.x + 2 * SEQUENCES * D, NULL, c.out + 2 * SEQUENCES * D);
    for (int t = 0; t < STEPS; t++) {
        double in[D];
        const int at = (t * SEQUENCES + 1) * D; /* the second sequence */
        for (int j = 0; j < D; j++) in[j] = (double)c.x[at + j];
        for (int l = 0; l < 2; l++) {
            double z[4 * D];
            for (int j = 0; j < 4 * D; j++) {
                z[j] = (double)c.w[l][2][j] + (double)c.w[l][3][j];
                for (int k = 0; k < D; k++)
                    z[j] += (double)c.w[l][0][j * D + k] * in[k] + (double)c.w[l][1][j * D + k] * h[l][k];
            }
            for (int j = 0; j < D; j++) {
                double i = 1 / (1 + exp(-z[j])), f = 1 / (1 + exp(-z[D + j])), o = 1 / (1 + exp(-z[3 * D + j]));
                cell[l][j] = f * cell[l][j] + i * tanh(z[2 * D + j]);
                in[j] = o * tanh(cell[l][j]);
            }
            memcpy(h[l], in, sizeof in);
        }
        for (int j = 0; j < D; j++) assert_float_equal(c.out[at + j], in[j], 1e-5);
    }
    lstm_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_is_cross_entropy),
        cmocka_unit_test(wide_gradients),
        cmocka_unit_test(steps_agree),
        cmocka_unit_test(sampling_is_corrected),
        cmocka_unit_test(bag_gradients),
        cmocka_unit_test(rows_of_other_batches),
        cmocka_unit_test(lstm_gradients),
        cmocka_unit_test(lstm_follows_its_equations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
