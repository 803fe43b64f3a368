/* layer/: the exact layer against sums in double. */
#include "testing.h"

#include "base/mem.h"
#include "base/rng.h"
#include "layer/exact.h"

#include <math.h>
#include <stdbool.h>

/* A layer, queries, and room for answers; `whole`: small whole numbers, whose sums are exact in any order and full of
 * ties. */
typedef struct scene {
    woi_dense layer;
    woi_adjust adjust; /* borrowed */
    float *w, *b, *q, *scores;
    int32_t *ids;
    size_t n, k;
    woi_log_sum *lse; /* NULL: not asked for */
    void *scratch;    /* NULL: allocated inside */
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
    free(s->lse);
    free(s->scratch);
}

static void want_lse(scene *s)
{
    s->lse = malloc((s->n + 1) * sizeof *s->lse);
    assert_non_null(s->lse);
    s->lse[s->n].most = -77; /* must stay */
}

static void bring_scratch(scene *s, int threads)
{
    const size_t bytes = (woi_exact_scratch(s->layer.d, threads) + WOI_ALIGN - 1) / WOI_ALIGN * WOI_ALIGN;
    s->scratch = aligned_alloc(WOI_ALIGN, bytes);
    assert_non_null(s->scratch);
    memset(s->scratch, 0xff, bytes); /* NaN: what was there before must not reach the answers */
}

static void answer(scene *s, int threads)
{
    wo_error err;
    const woi_exact_call call = {.layer = &s->layer,
                                 .adjust = s->adjust,
                                 .q = s->q,
                                 .n = s->n,
                                 .k = s->k,
                                 .threads = threads,
                                 .scratch = s->scratch,
                                 .ids = s->ids,
                                 .scores = s->scores,
                                 .lse = s->lse};
    if (woi_exact_topk(&call, &err)) fail_msg("%s", err.text);
    assert_int_equal(s->ids[s->n * s->k], -77);
    if (s->lse) assert_true(s->lse[s->n].most == -77);
}

static bool allowed(const scene *s, size_t class)
{
    return !s->adjust.forbidden || !s->adjust.forbidden[class];
}

static double logit(const scene *s, size_t query, size_t class)
{
    double sum = s->b ? (double)s->b[class] : 0;
    if (s->adjust.logit_bias) sum += (double)s->adjust.logit_bias[class];
    for (size_t j = 0; j < s->layer.d; j++)
        sum += (double)s->w[class * s->layer.d + j] * (double)s->q[query * s->layer.d + j];
    return sum;
}

static bool is_finite(const scene *s, size_t query)
{
    for (size_t j = 0; j < s->layer.d; j++)
        if (!isfinite(s->q[query * s->layer.d + j])) return false;
    return true;
}

static void assert_lse(const scene *s, size_t query, const double *logits)
{
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j < s->layer.m; j++)
        if (allowed(s, j)) max = fmax(max, logits[j]);
    for (size_t j = 0; j < s->layer.m; j++)
        if (allowed(s, j)) sum += exp(logits[j] - max);
    const double expected = max + log(sum);
    if (isinf(max))
        assert_true(woi_log_sum_whole(s->lse[query]) == -INFINITY);
    else if (!(fabs(woi_log_sum_whole(s->lse[query]) - expected) <= 2e-6 * (fabs(expected) + 10)))
        fail_msg("lse of query %zu: %.9g, expected %.9g", query, woi_log_sum_whole(s->lse[query]), expected);
}

/* The best k by trying every class, k times; equal logits to the lower id. */
static void assert_exactly(const scene *s)
{
    const size_t m = s->layer.m;
    double *logits = malloc((m ? m : 1) * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < s->n; i++) {
        const int32_t *ids = s->ids + i * s->k;
        const float *scores = s->scores + i * s->k;
        const bool finite = is_finite(s, i);
        for (size_t j = 0; j < m; j++) logits[j] = logit(s, i, j);
        if (s->lse && finite) assert_lse(s, i, logits);
        if (s->lse && !finite) assert_true(isnan(woi_log_sum_whole(s->lse[i])));
        for (size_t j = 0; j < m; j++)
            if (!finite || !allowed(s, j)) logits[j] = NAN;
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

/* Blocks of classes and tiles of 1,024 queries, whole and not; dot_f32 and tiles;
 * more answers than classes; ties everywhere. */
static void ties_go_to_the_lower_id(void **state)
{
    (void)state;
    static const size_t shapes[][4] = {
        /* m, d, n, k */
        {1, 1, 1, 1},    {1, 3, 2, 4},     {3, 17, 1, 7},    {255, 16, 5, 5},   {256, 16, 5, 5},  {257, 16, 5, 5},
        {513, 16, 1, 5}, {1300, 9, 3, 40}, {1025, 33, 1, 5}, {40, 4, 64, 3},    {40, 4, 65, 3},   {700, 5, 66, 5},
        {5, 2, 1023, 9}, {2, 64, 1024, 2}, {40, 3, 1025, 3}, {300, 2, 2100, 2}, {17, 700, 70, 3}, {600, 5, 200, 5},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int bias = 0; bias < 2; bias++) {
            scene s = make_scene(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], bias, true);
            answer(&s, 2);
            assert_exactly(&s);
            free_scene(&s);
        }
}

/* More answers than the heaps of a tile have room for: smaller tiles, and then threads that share them. */
static void many_answers(void **state)
{
    (void)state;
    static const size_t shapes[][4] = {{300, 6, 520, 128}, {300, 6, 520, 129}, {700, 6, 520, 600}, {140, 3, 2, 70000}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int threads = 1; threads <= 3; threads++) {
            scene s = make_scene(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], true, true);
            bring_scratch(&s, threads);
            want_lse(&s);
            answer(&s, threads);
            assert_exactly(&s);
            free_scene(&s);
        }
}

/* Also where all classes are forbidden, or more than leave k. */
static void masks_and_biases_count(void **state)
{
    (void)state;
    static const size_t shapes[][4] = {{1, 2, 1, 2}, {600, 7, 1, 5}, {600, 7, 9, 5}, {600, 7, 100, 5}, {30, 3, 70, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int how = 0; how < 12; how++) {
            scene s = make_scene(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], how % 2, true);
            const size_t m = shapes[i][0];
            uint8_t *forbidden = malloc(m);
            float *more = values(m, 9, true);
            assert_non_null(forbidden);
            for (size_t c = 0; c < m; c++) forbidden[c] = how / 4 == 2 || woi_rng_below(1, 1, c, 3) == 0 ? 200 : 0;
            if (how / 4) s.adjust.forbidden = forbidden;
            if (how / 2 % 2) s.adjust.logit_bias = more;
            want_lse(&s);
            answer(&s, 2);
            assert_exactly(&s);
            free(forbidden);
            free(more);
            free_scene(&s);
        }
}

/* They get no answer; their neighbours get theirs. */
static void queries_that_are_not_finite(void **state)
{
    (void)state;
    static const size_t queries[] = {1, 2, 64, 65, 300};
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
        for (size_t at = 0; at < 19; at += 6) {
            scene s = make_scene(400, 19, queries[i], 3, true, true);
            for (size_t query = 0; query < s.n; query += 3) s.q[query * 19 + at] = odd[query % 9 / 3];
            want_lse(&s);
            answer(&s, 1);
            assert_int_equal(s.ids[0], -1);
            assert_exactly(&s);
            free_scene(&s);
        }
}

/* Finite queries whose logits are too large for a float. */
static void logits_may_overflow(void **state)
{
    (void)state;
    scene s = make_scene(3, 1, 2, 3, false, true);
    memcpy(s.w, (float[]){-10, 1, 10}, 3 * sizeof *s.w);
    memcpy(s.q, (float[]){3e38f, 1}, 2 * sizeof *s.q);
    want_lse(&s);
    answer(&s, 1);
    assert_memory_equal(s.ids, ((int32_t[]){2, 1, 0, 2, 1, 0}), 6 * sizeof *s.ids);
    assert_true(s.scores[0] == INFINITY && s.scores[2] == -INFINITY && woi_log_sum_whole(s.lse[0]) == INFINITY);
    assert_true(fabs(woi_log_sum_whole(s.lse[1]) - 10) < 1e-3);
    free_scene(&s);
}

static void no_answers_but_the_sum(void **state)
{
    (void)state;
    for (size_t n = 1; n < 200; n += 99) {
        scene s = make_scene(300, 5, n, 0, true, false);
        want_lse(&s);
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

/* Bit by bit; enough work for three threads, with dot_f32 and with tiles, in one tile and in two, for any k. */
static void threads_change_nothing(void **state)
{
    (void)state;
    static const size_t shapes[][4] = {
        {1700, 50, 900, 10}, {20000, 64, 3, 10}, {9000, 33, 64, 200}, {3000, 20, 1100, 5}, {1000, 20, 600, 700}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const size_t m = shapes[i][0], d = shapes[i][1], n = shapes[i][2], k = shapes[i][3];
        scene one = make_scene(m, d, n, k, true, false);
        want_lse(&one);
        answer(&one, 1);
        for (int threads = 0; threads <= 7; threads += threads == 3 ? 4 : 1)
            for (int own = 0; own < 2; own++) {
                scene other = make_scene(m, d, n, k, true, false);
                want_lse(&other);
                if (own && threads) bring_scratch(&other, threads);
                answer(&other, threads);
                assert_memory_equal(one.ids, other.ids, n * k * sizeof *one.ids);
                assert_memory_equal(one.scores, other.scores, n * k * sizeof *one.scores);
                assert_memory_equal(one.lse, other.lse, n * sizeof *one.lse);
                free_scene(&other);
            }
        free_scene(&one);
    }
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
    static const size_t queries[] = {1, 2, 257};
    assert_int_equal(wo_allocator_set(&(wo_allocator){dirty_alloc, dirty_release, NULL}), WO_OK);
    for (size_t i = 0; i < 3; i++)
        for (int bias = 0; bias < 2; bias++) {
            scene s = make_scene(600, 20, queries[i], 5, bias, true);
            want_lse(&s);
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

static void no_memory_is_an_error_unless_it_was_given(void **state)
{
    (void)state;
    scene s = make_scene(40, 2, 100, 2, true, true);
    wo_error err;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_left = 0;
    const woi_exact_call call = {
        .layer = &s.layer, .q = s.q, .n = s.n, .k = 2, .threads = 1, .ids = s.ids, .scores = s.scores};
    assert_int_equal(woi_exact_topk(&call, &err), WO_ERR_MEMORY);
    assert_non_null(strstr(err.text, "memory"));
    bring_scratch(&s, 2);
    answer(&s, 2);
    assert_exactly(&s);
    allocations_left = -1;
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    free_scene(&s);
}

static void too_large_a_layer_is_refused(void **state)
{
    (void)state;
    wo_error err;
    const woi_dense layer = {(size_t)INT32_MAX + 1, 4, NULL, NULL};
    assert_int_equal(woi_exact_topk(&(woi_exact_call){.layer = &layer, .n = 1, .k = 1, .threads = 1}, &err),
                     WO_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "a layer of 2147483648 x 4 is too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(many_answers),
        cmocka_unit_test(masks_and_biases_count),
        cmocka_unit_test(queries_that_are_not_finite),
        cmocka_unit_test(logits_may_overflow),
        cmocka_unit_test(no_answers_but_the_sum),
        cmocka_unit_test(equal_classes_come_in_order),
        cmocka_unit_test(real_logits_are_near_those_in_double),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(no_query_is_no_work),
        cmocka_unit_test(scratch_memory_may_be_dirty),
        cmocka_unit_test(odd_values_are_ordered),
        cmocka_unit_test(no_memory_is_an_error_unless_it_was_given),
        cmocka_unit_test(too_large_a_layer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
