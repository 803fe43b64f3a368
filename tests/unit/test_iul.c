/* route/iul: the Index Update Loss against its definition, its gradient against finite differences, the steps. */
#include "testing.h"

#include "base/rng.h"
#include "route/iul.h"

#include <math.h>

enum { K = 4, L = 3, D = 10, M = 40, N = 30, PAIRS = 90 };

typedef struct iul_case {
    float q[N * D], w[M * D], b[M], q_scale[N], x_scale[M];
    woi_iul_pair positive[PAIRS], negative[PAIRS];
    woi_iul_data data;
    woi_iul iul;
} iul_case;

static void fill(float *x, size_t n, uint64_t stream, float size)
{
    for (size_t i = 0; i < n; i++) x[i] = size * woi_rng_normal(21, stream, i);
}

static void make(iul_case *c, wo_loss loss, wo_optimiser optimiser, int threads)
{
    wo_error err;
    fill(c->q, N * D, 1, 3);
    fill(c->w, M * D, 2, 0.5f);
    fill(c->b, M, 3, 0.2f);
    for (uint64_t i = 0; i < PAIRS; i++) {
        c->positive[i] = (woi_iul_pair){(uint32_t)woi_rng_below(22, 1, i, N), (int32_t)woi_rng_below(22, 2, i, M)};
        c->negative[i] = (woi_iul_pair){(uint32_t)woi_rng_below(22, 3, i, N), (int32_t)woi_rng_below(22, 4, i, M)};
    }
    woi_iul_query_scale(c->q, N, D, c->q_scale);
    const float s = woi_iul_neuron_scale(c->w, c->b, M, D, c->x_scale);
    c->data = (woi_iul_data){c->q, c->q_scale, c->w, c->b, c->x_scale, s};
    const woi_iul_options options = {K, L, D, loss, optimiser, 0.01, threads};
    assert_int_equal(woi_iul_create(&options, &c->iul, &err), WO_OK);
    for (size_t j = 0; j <= D; j++)
        for (size_t p = 0; p < (size_t)K * L; p++) c->iul.theta[j * c->iul.n_planes + p] = woi_rng_normal(23, j, p);
}

static double gradient(iul_case *c, size_t n_positive, size_t n_negative)
{
    const double loss = woi_iul_gradient(&c->iul, &c->data, c->positive, n_positive, c->negative, n_negative);
    return loss;
}

/* The definition, in double. */
static double pair_slowly(const iul_case *c, woi_iul_pair pair, bool positive, double move, const float *direction)
{
    const float *q = c->q + pair.query * D, *w = c->w + pair.neuron * D;
    const double scaled_b = (double)c->data.bias_scale * (double)c->b[pair.neuron];
    double q_square = 0, w_square = scaled_b * scaled_b, loss = 0;
    for (int j = 0; j < D; j++) {
        q_square += (double)q[j] * (double)q[j];
        w_square += (double)w[j] * (double)w[j];
    }
    for (int l = 0; l < L; l++) {
        double agreement = 0;
        for (int k = 0; k < K; k++) {
            double zq = 0, zw = 0;
            for (int j = 0; j <= D; j++) {
                const size_t at = (size_t)j * c->iul.n_planes + (size_t)(l * K + k);
                const double theta = (double)c->iul.theta[at] + move * (direction ? (double)direction[at] : 0);
                zq += theta * (j < D ? (double)q[j] : 0);
                zw += theta * (j < D ? (double)w[j] : scaled_b);
            }
            agreement += tanh(zq / sqrt(q_square)) * tanh(zw / sqrt(w_square));
        }
        const double s = c->iul.options.loss == WO_LOSS_PAPER ? agreement : 3 * (agreement - K + 1);
        const double sigma = 1 / (1 + exp(-s));
        loss -= log(positive ? sigma : 1 - sigma);
    }
    return loss;
}

static double loss_slowly(const iul_case *c, size_t n_positive, size_t n_negative, double move, const float *direction)
{
    double loss = 0;
    for (size_t i = 0; i < n_positive; i++) loss += pair_slowly(c, c->positive[i], true, move, direction);
    for (size_t i = 0; i < n_negative; i++) loss += pair_slowly(c, c->negative[i], false, move, direction);
    return loss;
}

static void the_loss_is_its_definition(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{PAIRS, PAIRS}, {1, 1}, {0, 5}, {7, 0}, {0, 0}};
    for (int loss = 0; loss < 2; loss++) {
        iul_case c;
        make(&c, loss ? WO_LOSS_MARGIN : WO_LOSS_PAPER, WO_OPTIMISER_ADAM, 2);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const double expected = loss_slowly(&c, sizes[i][0], sizes[i][1], 0, NULL);
            assert_true(fabs(gradient(&c, sizes[i][0], sizes[i][1]) - expected) <= 1e-5 * expected);
        }
        woi_iul_free(&c.iul);
    }
}

/* Along random directions and single coordinates; the differences are taken of the slow loss, so that the only noise is
 * that of the gradient. */
static void the_gradient_is_the_slope(void **state)
{
    (void)state;
    for (int loss = 0; loss < 2; loss++) {
        iul_case c;
        make(&c, loss ? WO_LOSS_MARGIN : WO_LOSS_PAPER, WO_OPTIMISER_ADAM, 2);
        gradient(&c, PAIRS, PAIRS - 13);
        const size_t size = (D + 1) * c.iul.n_planes;
        float *direction = calloc(size, sizeof *direction);
        for (uint64_t trial = 0; trial < 40; trial++) {
            double expected = 0;
            memset(direction, 0, size * sizeof *direction);
            for (size_t j = 0; j <= D; j++)
                for (size_t p = 0; p < (size_t)K * L; p++)
                    direction[j * c.iul.n_planes + p] =
                        trial < 8 ? woi_rng_normal(24, trial, j * K * L + p)
                                  : (float)(j * K * L + p == woi_rng_below(24, trial, 0, (D + 1) * K * L));
            for (size_t i = 0; i < size; i++) expected += (double)c.iul.gradient[i] * (double)direction[i];
            const double step = 1e-4, up = loss_slowly(&c, PAIRS, PAIRS - 13, step, direction),
                         down = loss_slowly(&c, PAIRS, PAIRS - 13, -step, direction);
            const double slope = (up - down) / (2 * step);
            if (fabs(slope - expected) > 1e-3 * fmax(fabs(slope), fabs(expected)) + 1e-4)
                fail_msg("slope %.8g, gradient %.8g", slope, expected);
        }
        free(direction);
        woi_iul_free(&c.iul);
    }
}

/* Codes far from 0: log(1 - sigma) of a large agreement must not be log(0), nor a gradient NaN. */
static void large_planes_stay_finite(void **state)
{
    (void)state;
    for (int loss = 0; loss < 2; loss++) {
        iul_case c;
        make(&c, loss ? WO_LOSS_MARGIN : WO_LOSS_PAPER, WO_OPTIMISER_ADAM, 1);
        for (size_t i = 0; i < (D + 1) * c.iul.n_planes; i++) c.iul.theta[i] *= 1e6f;
        assert_true(isfinite(gradient(&c, PAIRS, PAIRS)));
        for (size_t i = 0; i < (D + 1) * c.iul.n_planes; i++) assert_true(isfinite(c.iul.gradient[i]));
        woi_iul_free(&c.iul);
    }
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    iul_case one, many;
    make(&one, WO_LOSS_PAPER, WO_OPTIMISER_ADAM, 1);
    make(&many, WO_LOSS_PAPER, WO_OPTIMISER_ADAM, 3);
    for (int step = 0; step < 3; step++) {
        assert_true(gradient(&one, PAIRS, PAIRS) == gradient(&many, PAIRS, PAIRS));
        woi_iul_step(&one.iul, 2 * PAIRS);
        woi_iul_step(&many.iul, 2 * PAIRS);
    }
    assert_memory_equal(one.iul.theta, many.iul.theta, (D + 1) * one.iul.n_planes * sizeof *one.iul.theta);
    woi_iul_free(&one.iul);
    woi_iul_free(&many.iul);
}

static void steps_lower_the_loss(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        iul_case c;
        make(&c, i % 2 ? WO_LOSS_MARGIN : WO_LOSS_PAPER, i / 2 ? WO_OPTIMISER_SGD : WO_OPTIMISER_ADAM, 1);
        const double before = gradient(&c, PAIRS, PAIRS);
        for (int step = 0; step < 50; step++) {
            gradient(&c, PAIRS, PAIRS);
            woi_iul_step(&c.iul, 2 * PAIRS);
        }
        assert_true(gradient(&c, PAIRS, PAIRS) < before);
        for (size_t j = 0; j <= D; j++) /* what pads the planes stays out of it */
            for (size_t p = (size_t)K * L; p < c.iul.n_planes; p++)
                assert_true(c.iul.theta[j * c.iul.n_planes + p] == 0);
        woi_iul_free(&c.iul);
    }
}

static void plain_descent_is_rate_times_mean(void **state)
{
    (void)state;
    iul_case c;
    make(&c, WO_LOSS_PAPER, WO_OPTIMISER_SGD, 1);
    gradient(&c, PAIRS, PAIRS);
    const float theta = c.iul.theta[3], slope = c.iul.gradient[3];
    woi_iul_step(&c.iul, 2 * PAIRS);
    assert_true(fabsf(c.iul.theta[3] - (theta - 0.01f * slope / (2 * PAIRS))) < 1e-7f);
    woi_iul_free(&c.iul);
}

/* Unit length and the bias' scale change no sign: a neuron's cell is that of the scaled vector. */
static void planes_hash_as_theta_does(void **state)
{
    (void)state;
    iul_case c;
    wo_error err;
    make(&c, WO_LOSS_PAPER, WO_OPTIMISER_ADAM, 1);
    woi_hash hash;
    assert_int_equal(woi_hash_create(K, L, D, true, &hash, &err), WO_OK);
    woi_iul_planes(&c.iul, c.data.bias_scale, &hash);
    uint32_t cells[M * L];
    assert_int_equal(woi_hash_neurons(&hash, &(woi_neurons){M, c.w, c.b}, 1, cells, &err), WO_OK);
    for (int i = 0; i < M; i++)
        for (int l = 0; l < L; l++) {
            uint32_t code = 0;
            for (int k = 0; k < K; k++) {
                double z = 0;
                for (int j = 0; j <= D; j++) {
                    const double x = j < D ? (double)c.w[i * D + j] : (double)c.data.bias_scale * (double)c.b[i];
                    z += (double)c.iul.theta[(size_t)j * c.iul.n_planes + (size_t)(l * K + k)] * x;
                }
                code |= (uint32_t)(z > 0) << k;
            }
            assert_int_equal(cells[i * L + l], (uint32_t)l << K | code);
        }
    float *kept = malloc((D + 1) * c.iul.n_planes * sizeof *kept);
    memcpy(kept, c.iul.theta, (D + 1) * c.iul.n_planes * sizeof *kept);
    woi_iul_start(&c.iul, c.data.bias_scale, &hash);
    for (size_t i = 0; i < (D + 1) * c.iul.n_planes; i++) assert_true(fabsf(kept[i] - c.iul.theta[i]) < 1e-6f);
    free(kept);
    woi_hash_free(&hash);
    woi_iul_free(&c.iul);
}

static void scales_of_zeros(void **state)
{
    (void)state;
    const float zeros[6] = {0};
    const float one_row[6] = {0, 0, 0, 3, 0, 4};
    float scale[2];
    woi_iul_query_scale(one_row, 2, 3, scale);
    assert_true(scale[0] == 0 && fabsf(scale[1] - 0.2f) < 1e-7f);
    assert_true(woi_iul_neuron_scale(one_row, NULL, 2, 3, scale) == 1);
    assert_true(scale[0] == 0 && fabsf(scale[1] - 0.2f) < 1e-7f);
    assert_true(woi_iul_neuron_scale(zeros, one_row + 2, 2, 3, scale) == 1);
    assert_true(woi_iul_neuron_scale(one_row, zeros, 2, 3, scale) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_is_its_definition), cmocka_unit_test(the_gradient_is_the_slope),
        cmocka_unit_test(large_planes_stay_finite),   cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(steps_lower_the_loss),       cmocka_unit_test(plain_descent_is_rate_times_mean),
        cmocka_unit_test(planes_hash_as_theta_does),  cmocka_unit_test(scales_of_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
