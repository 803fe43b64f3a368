/* Kernels over one array: sum_f32, multiply_adds, max_f32, exp_sum, scaled_log, adam. */
#ifndef WO_CHECK_SUMS_H
#define WO_CHECK_SUMS_H

#include "guarded.h"

#include <time.h>

/* ---- sum_f32 and multiply_adds ----------------------------------------------------------------------------- */

static void test_sum_f32(const woi_kernels *k)
{
    for (size_t n = 0; n <= 330; n++)
        for (size_t place = 0; place < 17; place++) {
            float *x = put(0, n * sizeof *x, place, sizeof *x);
            double want = 0, size = 0;
            fill_floats(x, n);
            for (size_t i = 0; i < n; i++) {
                want += (double)x[i];
                size += fabs((double)x[i]);
            }
            const float got = k->sum_f32(x, n);
            CHECK(within((double)got, want, (double)(n + 8) * 0x1p-24 * size), "n %zu place %zu: %.9g, not %.9g", n,
                  place, (double)got, want);
        }
}

/* The count grows with the steps; a processor does no more than 64 of them in a tenth of a nanosecond. */
static void test_multiply_adds(const woi_kernels *k)
{
    const size_t one = k->multiply_adds(1), steps = 200000;
    struct timespec start, end;
    CHECK(k->multiply_adds(0) == 0 && one > 0, "0 steps: %zu, 1 step: %zu", k->multiply_adds(0), one);
    clock_gettime(CLOCK_MONOTONIC, &start);
    const size_t done = k->multiply_adds(steps);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double ns = 1e9 * (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec);
    CHECK(done == steps * one, "%zu steps: %zu", steps, done);
    CHECK((double)done / ns < 640, "%zu multiply-adds in %.0f ns: steps are left out", done, ns);
}

/* ---- max_f32 ----------------------------------------------------------------------------------------------- */

static void test_max_f32(const woi_kernels *k)
{
    for (size_t n = 0; n <= 330; n++)
        for (size_t place = 0; place < 17; place++) {
            float *x = put(0, n * sizeof *x, place, sizeof *x), want = -INFINITY;
            /* Negative alone, so that a lane outside the argument would win; NaNs; now and then an infinity. */
            for (size_t i = 0; i < n; i++) x[i] = random_u32() % 8 ? -1 - fabsf(random_float()) : NAN;
            if (n && place == 3) x[random_u32() % n] = INFINITY;
            if (place == 5)
                for (size_t i = 0; i < n; i++) x[i] = i % 2 ? -INFINITY : NAN;
            for (size_t i = 0; i < n; i++) want = fmaxf(want, x[i]);
            const float got = k->max_f32(x, n);
            CHECK(got == want, "n %zu place %zu: %.9g, not %.9g", n, place, (double)got, (double)want);
        }
    for (size_t n = 1; n <= 150; n++)
        for (size_t at = 0; at < n; at++) {
            float *x = put(0, n * sizeof *x, 0, sizeof *x);
            for (size_t i = 0; i < n; i++) x[i] = i == at ? 2 : 1;
            CHECK(k->max_f32(x, n) == 2, "n %zu: misses the one at %zu", n, at);
        }
}

/* ---- exp_sum ----------------------------------------------------------------------------------------------- */

/* 2 units in the last place of the correctly rounded result; below FLT_MIN also 0. */
static bool good_exp(float got, float t)
{
    const float want = (float)exp((double)t);
    if (isnan(t)) return isnan(got);
    if (want < FLT_MIN && got == 0) return true;
    return llabs(place_of(got) - place_of(want)) <= 2;
}

static void try_exp_sweep(const woi_kernels *k)
{
    enum { BATCH = 4096, STEP = 61 };
    static float x[BATCH], e[BATCH];
    const uint32_t most = 0x42d20000; /* 105: beyond both ends of what is finite and non-zero */
    for (uint32_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
        for (uint32_t from = 0; from < most; from += BATCH * STEP) {
            for (uint32_t i = 0; i < BATCH; i++) x[i] = from_bits(sign | (from + i * STEP));
            k->exp_sum(x, BATCH, 0, e);
            for (size_t i = 0; i < BATCH; i++)
                CHECK(good_exp(e[i], x[i]), "exp(%a) is %a, not %a", (double)x[i], (double)e[i], exp((double)x[i]));
        }
        if (sign) break;
    }
}

static void try_exp_special(const woi_kernels *k)
{
    const float x[] = {0.0f,      -0.0f,     INFINITY, -INFINITY,  NAN,        FLT_MAX,   -FLT_MAX,
                       88.72283f, 88.72284f, 89.5f,    -87.33654f, -87.33655f, -103.0f,   -103.97f,
                       -103.98f,  -104.5f,   -1e30f,   1e30f,      0x1p-149f,  -0x1p-149f};
    enum { N = sizeof x / sizeof *x };
    for (size_t at = 0; at < 20; at++) { /* in every lane */
        float padded[20 + N] = {0}, e[20 + N];
        memcpy(padded + at, x, sizeof x);
        const double sum = k->exp_sum(padded, at + N, 0, e);
        CHECK(isnan(sum), "a sum with NaN is %g", sum);
        for (size_t i = 0; i < N; i++)
            CHECK(good_exp(e[at + i], x[i]), "exp(%g) is %g", (double)x[i], (double)e[at + i]);
        CHECK(e[at] == 1 && isinf(e[at + 2]) && e[at + 3] == 0, "exp of 0, inf, -inf: %g %g %g", (double)e[at],
              (double)e[at + 2], (double)e[at + 3]);
        CHECK(isinf(k->exp_sum(padded, at + 3, 0, NULL)), "a sum with infinity is not infinite, at %zu", at);
    }
}

/* Partial sums in float of at most 64 positive terms a lane, 8 more to join them, 2 ulp each: 80 * 2^-24. */
static void try_exp_sum(const woi_kernels *k, size_t n, size_t place, float shift)
{
    float *x = put(0, n * sizeof *x, place, sizeof *x), *e = put(1, n * sizeof *e, place, sizeof *e);
    double want = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = 20 * random_float();
        e[i] = NAN;
        want += exp((double)(x[i] - shift));
    }
    const double sum = k->exp_sum(x, n, shift, e), alone = k->exp_sum(x, n, shift, NULL);
    CHECK(fabs(sum - want) <= 80 * 0x1p-24 * want, "n %zu place %zu: sum %.17g, not %.17g", n, place, sum, want);
    CHECK(sum == alone, "n %zu: sum %.17g, but %.17g without out", n, sum, alone);
    for (size_t i = 0; i < n; i++)
        CHECK(good_exp(e[i], x[i] - shift), "n %zu place %zu: exp(%g) is %g", n, place, (double)(x[i] - shift),
              (double)e[i]);
    CHECK(k->exp_sum(x, n, shift, x) == sum, "n %zu: another sum in place", n);
    CHECK(n == 0 || memcmp(x, e, n * sizeof *x) == 0, "n %zu: other values in place", n);
}

static void test_exp_sum(const woi_kernels *k)
{
    for (size_t n = 0; n <= 140; n++)
        for (size_t place = 0; place < 17; place++) try_exp_sum(k, n, place, place % 2 ? 19.5f : 0);
    for (size_t n = 4090; n <= 4100; n++) try_exp_sum(k, n, 0, 3);
    try_exp_special(k);
    try_exp_sweep(k);

    /* Where a float sum would stand still at 2^24. */
    const size_t n = 40 * 1000 * 1000;
    float *x = mmap(NULL, n * sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(x, MAP_FAILED);
    const double sum = k->exp_sum(x, n, 0, NULL);
    CHECK(fabs(sum - (double)n) <= 80 * 0x1p-24 * (double)n, "%zu ones sum to %.17g", n, sum);
    munmap(x, n * sizeof *x);
}

/* ---- scaled_log -------------------------------------------------------------------------------------------- */

static void test_scaled_log(const woi_kernels *k)
{
    for (size_t n = 0; n <= 70; n++)
        for (size_t place = 0; place < 17; place++) {
            float *x = put(0, n * sizeof *x, place, sizeof *x), before[70];
            for (size_t i = 0; i < n; i++) before[i] = x[i] = i % 7 ? expf(12 * random_float()) : 0;
            k->scaled_log(x, n, 1024, 0.5f);
            for (size_t i = 0; i < n; i++) {
                const double want = log(1 + 1024 * (double)before[i]) / 2;
                CHECK(fabs((double)x[i] - want) <= 5e-7 + 2e-7 * want,
                      "n %zu place %zu: 1/2 log(1 + 1024 * %g) is %.9g, not %.9g", n, place, (double)before[i],
                      (double)x[i], want);
            }
        }
    enum { BATCH = 4096, STEP = 127 };
    static float x[BATCH];
    for (uint32_t from = 0; from < 0x7e000000u - BATCH * STEP; from += BATCH * STEP) { /* any share, and far beyond */
        for (uint32_t i = 0; i < BATCH; i++) x[i] = from_bits(from + i * STEP);
        k->scaled_log(x, BATCH, 1, 1);
        for (uint32_t i = 0; i < BATCH; i++) {
            const double y = (double)from_bits(from + i * STEP), want = log1p(y);
            CHECK(fabs((double)x[i] - want) <= 1e-6 + 2e-7 * want && (y > 0 || x[i] == 0),
                  "log(1 + %g) is %.9g, not %.9g", y, (double)x[i], want);
        }
    }
}

/* ---- adam -------------------------------------------------------------------------------------------------- */

static void try_adam(const woi_kernels *k, size_t n, size_t place)
{
    enum { MOST = 200 };
    const woi_adam_step s = {0.9f, 0.999f, 0.01f, 3.5f, 1e-8f};
    const double ulp = 0x1p-24;
    float *array[4], before[4][MOST];
    assert_true(n <= MOST);
    for (int a = 0; a < 4; a++) {
        array[a] = put(a, n * sizeof(float), place, sizeof(float));
        fill_floats(array[a], n);
        if (a == 2)
            for (size_t i = 0; i < n; i++) array[a][i] = fabsf(array[a][i]);
        if (n) memcpy(before[a], array[a], n * sizeof(float));
    }
    const float *w = array[0], *m = array[1], *v = array[2], *g = before[3];
    k->adam(array[0], array[1], array[2], array[3], n, &s);
    for (size_t i = 0; i < n; i++) {
        const double m1 = (double)s.beta1 * (double)before[1][i], m2 = (1 - (double)s.beta1) * (double)g[i];
        const double v1 = (double)s.beta2 * (double)before[2][i];
        const double v2 = (1 - (double)s.beta2) * (double)g[i] * (double)g[i];
        CHECK(within((double)m[i], m1 + m2, 4 * ulp * (fabs(m1) + fabs(m2))), "n %zu place %zu: m[%zu]", n, place, i);
        CHECK(within((double)v[i], v1 + v2, 4 * ulp * (v1 + v2)), "n %zu place %zu: v[%zu]", n, place, i);
        const double change =
            (double)s.rate * (double)m[i] / (sqrt((double)v[i]) * (double)s.root_scale + (double)s.epsilon);
        CHECK(
            within((double)w[i], (double)before[0][i] - change, 8 * ulp * fabs(change) + 2 * ulp * fabs((double)w[i])),
            "n %zu place %zu: w[%zu] is %.9g", n, place, i, (double)w[i]);
        CHECK(array[3][i] == g[i], "n %zu: g[%zu] was written", n, i);
    }
}

static void test_adam(const woi_kernels *k)
{
    for (size_t n = 0; n <= 130; n++)
        for (size_t place = 0; place < 17; place++) try_adam(k, n, place);
}

#endif
