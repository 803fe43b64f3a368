/* route/: cells of queries and neurons against projections in double, probes against all cells of a table. */
#include "testing.h"

#include "base/rng.h"
#include "route/hash.h"

#include <math.h>
#include <stdbool.h>

static const double CLOSE = 1e-4; /* a projection that is nearer to its plane may fall on either side */

static float *normals(size_t n, uint64_t stream)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = woi_rng_normal(17, stream, i);
    return x;
}

/* Random planes, offsets and bias planes; zeros beyond K L. */
static woi_hash make_hash(uint32_t K, uint32_t L, size_t d, bool with_neurons)
{
    woi_hash hash;
    wo_error err;
    assert_int_equal(woi_hash_create(K, L, d, with_neurons, &hash, &err), WO_OK);
    const size_t planes = (size_t)K * L;
    assert_true(hash.n_planes % 16 == 0 && hash.n_planes >= planes && hash.n_planes < planes + 16);
    for (size_t p = 0; p < planes; p++) {
        for (size_t j = 0; j < d; j++) hash.planes[j * hash.n_planes + p] = woi_rng_normal(17, 1, j * planes + p);
        hash.offsets[p] = woi_rng_normal(17, 2, p);
        if (with_neurons) hash.bias_planes[p] = woi_rng_normal(17, 3, p);
    }
    return hash;
}

/* One query; false when it is not finite. */
static bool hash_query(const woi_hash *hash, const woi_kernels *kernels, const float *q, uint32_t probes,
                       float *scratch, uint32_t *cells)
{
    uint32_t n;
    woi_hash_route(hash, kernels, &(woi_routing){q, 1, probes, cells, &n, NULL, scratch, 0, NULL});
    assert_true(n == 0 || n == hash->L * probes);
    return n > 0;
}

static double projection(const woi_hash *hash, const float *x, double b, size_t plane)
{
    double z = (double)hash->offsets[plane] + (hash->bias_planes ? b * (double)hash->bias_planes[plane] : 0);
    for (size_t j = 0; j < hash->d; j++) z += (double)x[j] * (double)hash->planes[j * hash->n_planes + plane];
    return z;
}

/* The cell of x in table l; false when a projection is too close to tell. */
static bool naive_cell(const woi_hash *hash, const float *x, double b, uint32_t l, uint32_t *cell)
{
    *cell = l << hash->K;
    for (uint32_t k = 0; k < hash->K; k++) {
        const double z = projection(hash, x, b, (size_t)l * hash->K + k);
        if (fabs(z) < CLOSE) return false;
        if (z > 0) *cell += 1U << k;
    }
    return true;
}

/* (K, L): products on, before and behind multiples of 16; tables that start within a byte; the largest K. */
static const uint32_t shapes[][2] = {{1, 1},  {1, 15}, {1, 16}, {1, 17}, {1, 256}, {2, 8},  {3, 5},   {3, 11}, {4, 4},
                                     {5, 13}, {7, 9},  {8, 2},  {10, 4}, {12, 21}, {15, 1}, {16, 1},  {17, 1}, {23, 7},
                                     {24, 1}, {24, 2}, {24, 3}, {24, 8}, {13, 5},  {9, 16}, {11, 100}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void cells_match_projections_in_double(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 2, 7, 16, 33, 130};
    enum { N = 23 };
    wo_error err;
    size_t told = 0, all = 0;
    for (size_t s = 0; s < N_SHAPES; s++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            const uint32_t K = shapes[s][0], L = shapes[s][1];
            const size_t d = dims[i];
            if (L > 20 && d > 16) continue; /* nothing new, and most of the time */
            woi_hash hash = make_hash(K, L, d, true);
            assert_int_equal(woi_hash_n_cells(&hash), (size_t)L << K);
            float *x = normals(N * d, 4), *b = normals(N, 5);
            uint32_t *of_queries = malloc(N * L * sizeof *of_queries), *of_neurons = malloc(N * L * sizeof *of_neurons),
                     *of_unbiased = malloc(N * L * sizeof *of_neurons);
            assert_int_equal(woi_hash_queries(&hash, x, N, 1, of_queries, &err), WO_OK);
            assert_int_equal(woi_hash_neurons(&hash, &(woi_neurons){N, x, b}, 1, of_neurons, &err), WO_OK);
            assert_int_equal(woi_hash_neurons(&hash, &(woi_neurons){N, x, NULL}, 1, of_unbiased, &err), WO_OK);
            assert_memory_equal(of_queries, of_unbiased, N * L * sizeof *of_queries); /* [q, 0] and [w, 0] */
            for (size_t row = 0; row < N; row++)
                for (uint32_t l = 0; l < L; l++) {
                    uint32_t cell;
                    all += 2;
                    if (naive_cell(&hash, x + row * d, 0, l, &cell)) {
                        told++;
                        if (of_queries[row * L + l] != cell)
                            fail_msg("K %u L %u d %zu: query %zu, table %u: %u, expected %u", K, L, d, row, l,
                                     of_queries[row * L + l], cell);
                    }
                    if (naive_cell(&hash, x + row * d, (double)b[row], l, &cell)) {
                        told++;
                        if (of_neurons[row * L + l] != cell)
                            fail_msg("K %u L %u d %zu: neuron %zu, table %u: %u, expected %u", K, L, d, row, l,
                                     of_neurons[row * L + l], cell);
                    }
                }
            free(x);
            free(b);
            free(of_queries);
            free(of_neurons);
            free(of_unbiased);
            woi_hash_free(&hash);
        }
    assert_true(told > all / 100 * 99);
}

/* One query at a time, on every instruction set: its own cells are those of a batch, whatever lies in the scratch. */
static void one_query_equals_a_batch(void **state)
{
    (void)state;
    enum { N = 11 };
    static const size_t d = 37;
    wo_error err;
    const woi_kernels *kernels = woi_kernels_get(&err);
    assert_non_null(kernels);
    float *x = normals(N * d, 6);
    for (size_t s = 0; s < N_SHAPES; s++) {
        const uint32_t K = shapes[s][0], L = shapes[s][1];
        woi_hash hash = make_hash(K, L, d, false);
        const size_t room = woi_hash_scratch(&hash, 1);
        float *scratch = malloc(room * sizeof *scratch);
        uint32_t *batch = malloc(N * L * sizeof *batch), *one = malloc(L * sizeof *one);
        assert_int_equal(woi_hash_queries(&hash, x, N, 1, batch, &err), WO_OK);
        for (size_t i = 0; i < N; i++) {
            memset(scratch, 0xff, room * sizeof *scratch);
            assert_true(hash_query(&hash, kernels, x + i * d, 1, scratch, one));
            assert_memory_equal(one, batch + i * L, L * sizeof *one);
            for (int level = WOI_LEVEL_REF; level < WOI_N_LEVELS; level++) {
                woi_kernels table;
                if (!woi_kernels_at((woi_level)level, 0, &table)) continue;
                assert_true(hash_query(&hash, &table, x + i * d, 1, scratch, one));
                for (uint32_t l = 0; l < L; l++) {
                    uint32_t cell;
                    if (naive_cell(&hash, x + i * d, 0, l, &cell)) assert_int_equal(one[l], cell);
                }
            }
        }
        free(scratch);
        free(batch);
        free(one);
        woi_hash_free(&hash);
    }
    free(x);
}

/* What it costs to reach each cell of a table from z: the sum of |z| over the planes between. Rising, by qsort. */
static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cost_of(const double *z, uint32_t K, uint32_t flips)
{
    double cost = 0;
    for (uint32_t k = 0; k < K; k++)
        if (flips >> k & 1) cost += fabs(z[k]);
    return cost;
}

/* The probes of each table of one query: own cell first, distinct, and of all 2^K the cheapest, cheapest first. Equal
 * costs may come in any order, so the costs are compared, not the cells; `near` is the rounding of a cost. */
static void assert_probes(const woi_hash *hash, const float *q, uint32_t probes, const uint32_t *cells, double near)
{
    const uint32_t K = hash->K, n = 1U << K;
    double *costs = malloc(n * sizeof *costs), z[WOI_MAX_BITS];
    bool *met = malloc(n * sizeof *met);
    for (uint32_t l = 0; l < hash->L; l++) {
        const uint32_t *own = cells + (size_t)l * probes;
        for (uint32_t k = 0; k < K; k++) z[k] = projection(hash, q, 0, (size_t)l * K + k);
        for (uint32_t c = 0; c < n; c++) costs[c] = cost_of(z, K, c);
        qsort(costs, n, sizeof *costs, by_value);
        memset(met, 0, n * sizeof *met);
        uint32_t first;
        if (naive_cell(hash, q, 0, l, &first)) assert_int_equal(own[0], first);
        for (uint32_t p = 0; p < probes; p++) {
            assert_int_equal(own[p] >> K, l);
            const uint32_t flips = own[p] ^ own[0];
            assert_false(met[flips]);
            met[flips] = true;
            if (fabs(cost_of(z, K, flips) - costs[p]) > near)
                fail_msg("K %u, probe %u of %u: costs %g, expected %g", K, p, probes, cost_of(z, K, flips), costs[p]);
        }
    }
    free(costs);
    free(met);
}

static void probe_all(const woi_hash *hash, const float *x, size_t n, double near)
{
    wo_error err;
    const woi_kernels *kernels = woi_kernels_get(&err);
    float *scratch = malloc(woi_hash_scratch(hash, 1) * sizeof *scratch);
    const uint32_t all = 1U << hash->K, most = all < WOI_MAX_PROBES ? all : WOI_MAX_PROBES;
    uint32_t *cells = malloc((size_t)hash->L * most * sizeof *cells);
    for (uint32_t probes = 1; probes <= most; probes += 1 + probes / 9)
        for (size_t i = 0; i < n; i++) {
            assert_true(hash_query(hash, kernels, x + i * hash->d, probes, scratch, cells));
            assert_probes(hash, x + i * hash->d, probes, cells, near);
        }
    for (size_t i = 0; i < n; i++) { /* the largest number in any case */
        assert_true(hash_query(hash, kernels, x + i * hash->d, most, scratch, cells));
        assert_probes(hash, x + i * hash->d, most, cells, near);
    }
    free(scratch);
    free(cells);
}

static void probes_are_the_cheapest_cells(void **state)
{
    (void)state;
    enum { N = 4 };
    static const uint32_t bits[] = {1, 2, 3, 4, 5, 6, 7, 8, 11};
    static const size_t d = 9;
    float *x = normals(N * d, 7);
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        for (uint32_t L = 1; L <= 4; L += 3) {
            woi_hash hash = make_hash(bits[i], L, d, false);
            probe_all(&hash, x, N, 1e-4);
            woi_hash_free(&hash);
        }
    free(x);
}

/* Margins that are equal, or zero: every cell still comes once. The projections are whole numbers, so costs are exact.
 */
static void equal_margins_give_every_cell_once(void **state)
{
    (void)state;
    static const float q[] = {0, 1, 2, -1, 3};
    for (uint32_t K = 1; K <= 6; K++) {
        woi_hash hash = make_hash(K, 3, 1, false);
        for (size_t p = 0; p < (size_t)3 * K; p++) {
            hash.planes[p] = (float)(p % 2);
            hash.offsets[p] = p < K ? 0 : (float)(p % 3) - 1;
        }
        probe_all(&hash, q, 5, 0);
        woi_hash_free(&hash);
    }
}

/* All 24 bits, all 64 probes. A set of s planes has 2^s - 1 cheaper ones in it, so none of the 64 cheapest has more
 * than 6: these are all that must be tried. */
static void largest_tables_can_be_probed(void **state)
{
    (void)state;
    enum { K = 24, L = 1, D = 40, PROBES = WOI_MAX_PROBES };
    wo_error err;
    woi_hash hash = make_hash(K, L, D, false);
    float *x = normals(D, 8), *scratch = malloc(woi_hash_scratch(&hash, 1) * sizeof *scratch);
    uint32_t cells[L * PROBES];
    assert_true(hash_query(&hash, woi_kernels_get(&err), x, PROBES, scratch, cells));
    const size_t room = 1 + 24 + 276 + 2024 + 10626 + 42504 + 134596;
    double *costs = malloc(room * sizeof *costs), z[K];
    for (uint32_t l = 0; l < L; l++) {
        const uint32_t *own = cells + l * PROBES;
        for (uint32_t k = 0; k < K; k++) z[k] = projection(&hash, x, 0, (size_t)l * K + k);
        size_t n = 0;
        costs[n++] = 0;
        for (uint32_t size = 1; size <= 6; size++) /* all codes with so many bits: Gosper's next one */
            for (uint32_t c = (1U << size) - 1; c < 1U << K;) {
                costs[n++] = cost_of(z, K, c);
                const uint32_t low = c & -c, ripple = c + low;
                c = ripple | ((c ^ ripple) >> 2) / low;
            }
        assert_int_equal(n, room);
        qsort(costs, n, sizeof *costs, by_value);
        for (uint32_t p = 0; p < PROBES; p++) {
            assert_int_equal(own[p] >> K, l);
            assert_true(fabs(cost_of(z, K, own[p] ^ own[0]) - costs[p]) < 1e-4);
            for (uint32_t other = 0; other < p; other++) assert_int_not_equal(own[p], own[other]);
        }
    }
    free(costs);
    free(scratch);
    free(x);
    woi_hash_free(&hash);
}

static void queries_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    enum { D = 19, N = 3 * D, L = 5, K = 4 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    wo_error err;
    const woi_kernels *kernels = woi_kernels_get(&err);
    woi_hash hash = make_hash(K, L, D, true), even = make_hash(K, L, D, false);
    for (size_t p = 0; p < hash.n_planes; p += 2) /* the first plane too: all zeros */
        for (size_t j = 0; j < D; j++) even.planes[j * even.n_planes + p] = 0;
    const woi_hash *both[] = {&hash, &even};
    for (int h = 0; h < 2; h++) {
        float *x = normals((N + 2) * D, 9), *good = normals((N + 2) * D, 9);
        float *scratch = malloc(woi_hash_scratch(&hash, 1) * sizeof *scratch);
        uint32_t cells[(N + 2) * L], expected[(N + 2) * L], one[L * 7];
        for (size_t i = 0; i < N; i++) x[(i + 1) * D + i % D] = bad[i / D];
        assert_int_equal(woi_hash_queries(both[h], x, N + 2, 2, cells, &err), WO_OK);
        assert_int_equal(woi_hash_queries(both[h], good, N + 2, 2, expected, &err), WO_OK);
        for (size_t i = 0; i < N; i++) {
            for (uint32_t l = 0; l < L; l++) assert_int_equal(cells[(i + 1) * L + l], UINT32_MAX);
            assert_false(hash_query(both[h], kernels, x + (i + 1) * D, 1, scratch, one));
            assert_false(hash_query(both[h], kernels, x + (i + 1) * D, 7, scratch, one));
        }
        assert_memory_equal(cells, expected, L * sizeof *cells);
        assert_memory_equal(cells + (N + 1) * L, expected + (N + 1) * L, L * sizeof *cells);
        free(x);
        free(good);
        free(scratch);
    }
    woi_hash_free(&hash);
    woi_hash_free(&even);
}

/* Finite numbers whose projections overflow are queries like others: cells in their tables, each once. */
static void huge_queries_have_cells(void **state)
{
    (void)state;
    enum { D = 8, L = 3, K = 6 };
    wo_error err;
    woi_hash hash = make_hash(K, L, D, false);
    float *scratch = malloc(woi_hash_scratch(&hash, 1) * sizeof *scratch);
    for (int turn = 0; turn < 20; turn++) {
        float q[D];
        uint32_t cells[L * 64], own[L];
        for (size_t j = 0; j < D; j++) q[j] = 3e38F * (woi_rng_uniform(17, 10, (uint64_t)turn * D + j) - 0.5F) * 2;
        assert_true(hash_query(&hash, woi_kernels_get(&err), q, 64, scratch, cells));
        assert_int_equal(woi_hash_queries(&hash, q, 1, 1, own, &err), WO_OK);
        for (uint32_t l = 0; l < L; l++) {
            bool met[64] = {false};
            assert_int_equal(cells[l * 64], own[l]);
            for (uint32_t p = 0; p < 64; p++) {
                assert_int_equal(cells[l * 64 + p] >> K, l);
                assert_false(met[cells[l * 64 + p] & 63]);
                met[cells[l * 64 + p] & 63] = true;
            }
        }
    }
    free(scratch);
    woi_hash_free(&hash);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    enum { N = 1003, D = 21, L = 7 };
    wo_error err;
    woi_hash hash = make_hash(5, L, D, true);
    float *x = normals(N * D, 11), *b = normals(N, 12);
    x[500 * D] = NAN;
    uint32_t *one = malloc(N * L * sizeof *one), *more = malloc(N * L * sizeof *more);
    for (int neurons = 0; neurons < 2; neurons++)
        for (int threads = 1; threads <= 4; threads++) {
            uint32_t *to = threads == 1 ? one : more;
            const int asked = threads == 4 ? 0 : threads;
            assert_int_equal(neurons ? woi_hash_neurons(&hash, &(woi_neurons){N, x, b}, asked, to, &err)
                                     : woi_hash_queries(&hash, x, N, asked, to, &err),
                             WO_OK);
            assert_memory_equal(one, to, N * L * sizeof *one);
        }
    free(x);
    free(b);
    free(one);
    free(more);
    woi_hash_free(&hash);
}

static void no_rows_are_no_work(void **state)
{
    (void)state;
    wo_error err;
    woi_hash hash = make_hash(3, 2, 4, true);
    assert_int_equal(woi_hash_queries(&hash, NULL, 0, 2, NULL, &err), WO_OK);
    assert_int_equal(woi_hash_neurons(&hash, &(woi_neurons){0}, 0, NULL, &err), WO_OK);
    woi_hash_free(&hash);
    woi_hash_free(&hash); /* a freed one is fine */
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    wo_error err;
    woi_hash hash;
    static const float x[4];
    uint32_t cells[2];
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    for (long n = 0; n < 3; n++) {
        allocations_left = n;
        assert_int_equal(woi_hash_create(3, 2, 4, true, &hash, &err), WO_ERR_MEMORY);
        assert_int_equal(allocations_alive, 0);
        assert_null(hash.planes);
    }
    allocations_left = 3;
    assert_int_equal(woi_hash_create(3, 2, 4, true, &hash, &err), WO_OK);
    assert_int_equal(woi_hash_queries(&hash, x, 1, 1, cells, &err), WO_ERR_MEMORY);
    allocations_left = -1;
    woi_hash_free(&hash);
    assert_int_equal(allocations_alive, 0);
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_match_projections_in_double),
        cmocka_unit_test(one_query_equals_a_batch),
        cmocka_unit_test(probes_are_the_cheapest_cells),
        cmocka_unit_test(equal_margins_give_every_cell_once),
        cmocka_unit_test(largest_tables_can_be_probed),
        cmocka_unit_test(queries_that_are_not_finite_are_refused),
        cmocka_unit_test(huge_queries_have_cells),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(no_rows_are_no_work),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
