/* route/kmeans: starts that lie apart find every cluster that lies apart; the same bits for any number of threads. */
#include "naive_tree.h"

#include "route/kmeans.h"

enum { K = 60, EACH = 20, N = K * EACH, R = 8 };

/* Point i is of cluster i % K. */
static float *make_points(void)
{
    float *centres = normals((size_t)K * R, 1), *x = normals((size_t)N * R, 2);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < R; j++) x[i * R + j] = 20 * centres[i % K * R + j] + 0.1F * x[i * R + j];
    free(centres);
    return x;
}

static void learn(const float *x, bool apart, int threads, float *at)
{
    float offsets[K];
    uint32_t of[N];
    wo_error err;
    woi_bench benches[2];
    for (int t = 0; t < 2; t++) assert_int_equal(woi_bench_make(R, &benches[t], &err), WO_OK);
    const woi_points points = {x, NULL, N, of};
    const woi_lloyd rounds = {
        .rounds = 1, .seed = 3, .stream = 4, .apart = apart, .threads = threads, .benches = benches};
    const woi_centres centres = {R, K, at, offsets};
    assert_int_equal(woi_learn_centres(woi_kernels_get(&err), &points, &rounds, &centres, &err), WO_OK);
    for (int t = 0; t < 2; t++) woi_bench_free(&benches[t]);
}

/* Clusters with a centre nearer than 1: centres of two clusters are farther apart than that. */
static size_t clusters_found(const float *x, const float *at)
{
    size_t found = 0;
    for (size_t cluster = 0; cluster < K; cluster++) {
        bool near = false;
        for (size_t c = 0; c < K; c++) {
            double square = 0;
            for (size_t j = 0; j < R; j++) square += pow((double)(x[cluster * R + j] - at[c * R + j]), 2);
            near |= square < 1;
        }
        found += near;
    }
    return found;
}

static void every_cluster_has_a_centre(void **state)
{
    (void)state;
    float at[K * R], again[K * R], *x = make_points();
    learn(x, true, 1, at);
    learn(x, true, 2, again);
    assert_memory_equal(again, at, sizeof at);
    assert_int_equal(clusters_found(x, at), K);
    learn(x, false, 1, at);
    assert_true(clusters_found(x, at) < K); /* what it is for */
    free(x);
}

/* Fewer points that differ than centres. */
static void equal_points(void **state)
{
    (void)state;
    float at[K * R], *x = make_points();
    for (size_t i = 3; i < N; i++) memcpy(x + i * R, x + i % 3 * R, R * sizeof *x);
    learn(x, true, 1, at);
    for (size_t i = 0; i < (size_t)K * R; i++) assert_true(isfinite(at[i]));
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cluster_has_a_centre), cmocka_unit_test(equal_points)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
