/* layer/: the exact layer against sums in double. */
#include "testing.h"

#include "base/rng.h"
#include "layer/exact.h"

#include <math.h>
#include <stdbool.h>

/* A layer, queries, and room for answers; `whole`: small whole numbers, whose sums are exact in any order and full of
 * ties. */
typedef struct scene {
    woi_dense layer;
    float *w, *b, *q, *scores;
    int32_t *ids;
    size_t n, k;
} scene;

static float *values(size_t n, uint64_t stream, bool whole)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = whole ? (float)woi_rng_below(5, stream, i, 5) - 2 : woi_rng_normal(5, stream, i);
    return x;
}

static scene make_scene(size_t m, size_t d, size_t n, size_t k, bool bias, bool whole)
{
    scene s = {.w = values(m * d, 1, whole), .q = values(n * d, 3, whole), .n = n, .k = k};
    if (bias) s.b = values(m, 2, whole);
    s.layer = (woi_dense){m, d, s.w, s.b};
    s.scores = malloc((n * k + 1) * sizeof *s.scores);
    s.ids = malloc((n * k + 1) * sizeof *s.ids);
    assert_true(s.scores && s.ids);
    for (size_t i = 0; i <= n * k; i++) s.ids[i] = -77; /* the last one must stay */
    return s;
}

static void free_scene(scene *s)
{
    free(s->w);
    free(s->b);
    free(s->q);
    free(s->scores);
    free(s->ids);
}

static void answer(scene *s, int threads)
{
    wo_error err;
    if (woi_exact_topk(&s->layer, s->q, s->n, s->k, threads, s->ids, s->scores, &err)) fail_msg("%s", err.text);
    assert_int_equal(s->ids[s->n * s->k], -77);
}

static double logit(const scene *s, size_t query, size_t class)
{
    double sum = s->b ? (double)s->b[class] : 0;
    for (size_t j = 0; j < s->layer.d; j++)
        sum += (double)s->w[class * s->layer.d + j] * (double)s->q[query * s->layer.d + j];
    return sum;
}

/* The best k by trying every class, k times; equal logits to the lower id. */
static void assert_exactly(const scene *s)
{
    const size_t m = s->layer.m;
    double *logits = malloc(m * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < s->n; i++) {
        const int32_t *ids = s->ids + i * s->k;
        const float *scores = s->scores + i * s->k;
        for (size_t j = 0; j < m; j++) logits[j] = logit(s, i, j);
        for (size_t k = 0; k < s->k; k++) {
            size_t best = m;
            for (size_t j = 0; j < m; j++)
                if (!isnan(logits[j]) && (best == m || logits[j] > logits[best])) best = j;
            if (best == m) {
                assert_int_equal(ids[k], -1);
                assert_true(isinf(scores[k]) && scores[k] < 0);
                continue;
            }
            if (ids[k] != (int32_t)best || (double)scores[k] != logits[best])
                fail_msg("m %zu d %zu n %zu k %zu: query %zu, place %zu: %d %g, expected %zu %g", m, s->layer.d, s->n,
                         s->k, i, k, ids[k], (double)scores[k], best, logits[best]);
            logits[best] = NAN; /* taken */
        }
    }
    free(logits);
}

/* Blocks of 512 classes and tiles of 256 queries, whole and not; more answers than classes; ties everywhere. */
static void ties_go_to_the_lower_id(void **state)
{
    (void)state;
    static const size_t shapes[][4] = {
        /* m, d, n, k */
        {1, 1, 1, 1},    {1, 3, 2, 4},     {3, 17, 1, 7},    {511, 16, 5, 5}, {512, 16, 5, 5},
        {513, 16, 5, 5}, {1300, 9, 3, 40}, {1025, 33, 1, 5}, {40, 4, 255, 3}, {40, 4, 256, 3},
        {40, 4, 257, 3}, {700, 5, 600, 5}, {5, 2, 513, 9},   {2, 64, 300, 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int bias = 0; bias < 2; bias++) {
            scene s = make_scene(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], bias, true);
            answer(&s, 2);
            assert_exactly(&s);
            free_scene(&s);
        }
}

/* All logits equal: the first k ids, in order. */
static void equal_classes_come_in_order(void **state)
{
    (void)state;
    scene s = make_scene(1200, 8, 300, 6, false, true);
    memset(s.q, 0, 300 * 8 * sizeof *s.q);
    answer(&s, 0);
    for (size_t i = 0; i < 300 * 6; i++) assert_int_equal(s.ids[i], i % 6);
    free_scene(&s);
}

/* Real numbers: every score near the double sum, falling, and nothing left out that is clearly better. */
static void real_logits_are_near_those_in_double(void **state)
{
    (void)state;
    scene s = make_scene(1100, 130, 270, 5, true, false);
    const double near = 1e-4; /* of sums of 130 products of about 1 */
    answer(&s, 1);
    for (size_t i = 0; i < s.n; i++) {
        const int32_t *ids = s.ids + i * 5;
        const float *scores = s.scores + i * 5;
        for (size_t k = 0; k < 5; k++) {
            assert_true(ids[k] >= 0 && ids[k] < 1100);
            assert_true(fabs((double)scores[k] - logit(&s, i, (size_t)ids[k])) < near);
            if (k) assert_true(scores[k] <= scores[k - 1]);
        }
        for (size_t j = 0; j < s.layer.m; j++) {
            bool taken = false;
            for (size_t k = 0; k < 5; k++) taken |= ids[k] == (int32_t)j;
            assert_true(taken || logit(&s, i, j) < (double)scores[4] + near);
        }
    }
    free_scene(&s);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    scene one = make_scene(1700, 50, 900, 10, true, false), two = make_scene(1700, 50, 900, 10, true, false);
    answer(&one, 1);
    answer(&two, 2);
    assert_memory_equal(one.ids, two.ids, 900 * 10 * sizeof *one.ids);
    assert_memory_equal(one.scores, two.scores, 900 * 10 * sizeof *one.scores);
    answer(&two, 0);
    assert_memory_equal(one.scores, two.scores, 900 * 10 * sizeof *one.scores);
    free_scene(&one);
    free_scene(&two);
}

static void no_query_is_no_work(void **state)
{
    (void)state;
    scene s = make_scene(10, 3, 0, 5, true, true);
    answer(&s, 2);
    free_scene(&s);
}

/* Memory full of NaN: what was there before must not reach the logits. */
static void *dirty_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory) memset(memory, 0xff, bytes);
    return memory;
}

static void dirty_release(void *ctx, void *memory)
{
    (void)ctx;
    free(memory);
}

static void scratch_memory_may_be_dirty(void **state)
{
    (void)state;
    static const size_t queries[] = {1, 2, 257}; /* 257: a tile of one query */
    assert_int_equal(wo_allocator_set(&(wo_allocator){dirty_alloc, dirty_release, NULL}), WO_OK);
    for (size_t i = 0; i < 3; i++) {
        scene s = make_scene(600, 20, queries[i], 5, true, true);
        answer(&s, 1);
        assert_exactly(&s);
        free_scene(&s);
    }
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

/* NaN is never an answer, infinity may be. */
static void odd_values_are_ordered(void **state)
{
    (void)state;
    scene s = make_scene(4, 2, 2, 4, true, true);
    s.b[0] = NAN;
    s.b[1] = -INFINITY;
    s.b[2] = INFINITY;
    answer(&s, 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(s.ids[4 * i], 2);
        assert_int_equal(s.ids[4 * i + 1], 3);
        assert_int_equal(s.ids[4 * i + 2], 1);
        assert_int_equal(s.ids[4 * i + 3], -1);
    }
    free_scene(&s);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    scene s = make_scene(4, 2, 2, 2, true, true);
    wo_error err;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_left = 0;
    assert_int_equal(woi_exact_topk(&s.layer, s.q, 2, 2, 1, s.ids, s.scores, &err), WO_ERR_MEMORY);
    allocations_left = -1;
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(equal_classes_come_in_order),
        cmocka_unit_test(real_logits_are_near_those_in_double),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(no_query_is_no_work),
        cmocka_unit_test(scratch_memory_may_be_dirty),
        cmocka_unit_test(odd_values_are_ordered),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
