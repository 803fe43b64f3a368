/* layer/screen.c against its definition, and the method screen against the exact layer. */
#include "engine.h"
#include "index_files.h"

#include "base/mem.h"
#include "layer/screen.h"

#include <string.h>

static float normal(uint64_t stream, size_t i)
{
    return (float)woi_rng_normal(9, stream, i);
}

/* A scene with numbers of any size in place of whole ones: no two classes are equal. */
static scene make_real_scene(size_t m, size_t d, size_t n, bool bias, uint64_t seed)
{
    scene s = make_scene(m, d, n, bias, seed);
    wo_error err;
    for (size_t i = 0; i < m * d; i++) s.w[i] = normal(seed + 1, i);
    for (size_t i = 0; bias && i < m; i++) s.b[i] = normal(seed + 2, i);
    for (size_t i = 0; i < n * d; i++) s.q[i] = normal(seed + 3, i);
    wo_layer_free(s.layer);
    if (wo_layer_wrap(s.w, s.b, m, d, &s.layer, &err)) fail_msg("%s", err.text);
    return s;
}

/* ---- The scan ---------------------------------------------------------------------------------------------- */

/* What a scan found: (n, keep), each query's in rising order. */
typedef struct findings {
    int32_t *ids;
    size_t *counts, keep;
    unsigned *calls;
    bool *finite;
} findings;

static void note(void *ctx, int worker, size_t i, const int32_t *ids, size_t n)
{
    findings *f = ctx;
    assert_true(worker >= 0 && n <= f->keep);
    f->calls[i]++;
    f->finite[i] = ids != NULL;
    f->counts[i] = n;
    for (size_t j = 0; j < n; j++) { /* an insertion sort: they come in no particular order */
        size_t at = j;
        for (; at > 0 && f->ids[i * f->keep + at - 1] > ids[j]; at--)
            f->ids[i * f->keep + at] = f->ids[i * f->keep + at - 1];
        f->ids[i * f->keep + at] = ids[j];
    }
}

/* The definition: every row and the query rounded to 255 steps, an exact sum, then scales and biases. */
static void assert_defined(const scene *s, size_t i, const woi_adjust *adjust, const findings *f)
{
    const woi_kernels *kernels = woi_kernels_get(NULL);
    int8_t *q = room(s->d, 1), *row = room(s->d, 1);
    float *scores = room(s->m, sizeof *scores);
    bool *chosen = room(s->m, sizeof *chosen);
    const float q_scale = kernels->quantise(s->q + i * s->d, s->d, q);
    size_t allowed = 0;
    for (size_t c = 0; c < s->m; c++) {
        const float scale = kernels->quantise(s->w + c * s->d, s->d, row);
        long sum = 0;
        for (size_t j = 0; j < s->d; j++) sum += (long)q[j] * row[j];
        const float more = adjust->logit_bias ? adjust->logit_bias[c] : 0;
        scores[c] = fmaf((float)sum, q_scale * scale, (s->b ? s->b[c] : 0) + more);
        if (adjust->forbidden && adjust->forbidden[c])
            scores[c] = NAN;
        else
            allowed++;
    }
    const size_t n = f->keep < allowed ? f->keep : allowed;
    assert_int_equal(f->counts[i], n);
    for (size_t place = 0; place < n; place++) {
        size_t best = s->m;
        for (size_t c = 0; c < s->m; c++)
            if (!chosen[c] && !isnan(scores[c]) && (best == s->m || scores[c] > scores[best])) best = c;
        chosen[best] = true;
    }
    for (size_t c = 0, at = 0; c < s->m; c++) {
        if (!chosen[c]) continue;
        if (f->ids[i * f->keep + at] != (int32_t)c)
            fail_msg("query %zu: candidate %zu is %d, expected %zu", i, at, f->ids[i * f->keep + at], c);
        at++;
    }
    free(q);
    free(row);
    free(scores);
    free(chosen);
}

static findings scan(const scene *s, const woi_screen *screen, woi_adjust adjust, size_t keep, int threads)
{
    findings f = {.ids = room(s->n * keep, sizeof *f.ids),
                  .counts = room(s->n, sizeof *f.counts),
                  .keep = keep,
                  .calls = room(s->n, sizeof *f.calls),
                  .finite = room(s->n, sizeof *f.finite)};
    const size_t bytes = woi_screen_scratch(s->d, threads);
    void *scratch_memory = woi_alloc(bytes, 1, NULL);
    assert_non_null(scratch_memory);
    memset(scratch_memory, 0xa5, bytes);
    woi_screen_run(woi_kernels_get(NULL), &(woi_screen_call){.screen = screen,
                                                             .b = s->b,
                                                             .adjust = adjust,
                                                             .q = s->q,
                                                             .n = s->n,
                                                             .keep = keep,
                                                             .threads = threads,
                                                             .scratch = scratch_memory,
                                                             .found = note,
                                                             .ctx = &f});
    woi_free(scratch_memory);
    for (size_t i = 0; i < s->n; i++) assert_int_equal(f.calls[i], 1);
    return f;
}

static void free_findings(findings *f)
{
    free(f->ids);
    free(f->counts);
    free(f->calls);
    free(f->finite);
}

/* Any m, d, batch and number of candidates; whole numbers are full of ties, which go to the lower id. */
static void candidates_are_those_of_the_definition(void **state)
{
    (void)state;
    static const struct {
        size_t m, d, n, keep;
    } turns[] = {{1, 1, 1, 1},      {15, 3, 2, 4},     {16, 4, 3, 16},     {17, 5, 4, 40},   {200, 7, 5, 16},
                 {193, 16, 8, 1},   {500, 33, 9, 50},  {1000, 64, 17, 16}, {777, 63, 1, 20}, {1300, 65, 31, 300},
                 {2000, 130, 2, 5}, {5000, 12, 6, 64}, {400, 700, 7, 9},   {600, 2, 40, 500}};
    for (size_t turn = 0; turn < 2 * sizeof turns / sizeof *turns; turn++) {
        const size_t m = turns[turn / 2].m, d = turns[turn / 2].d, n = turns[turn / 2].n;
        scene s = (turn % 2 ? make_real_scene : make_scene)(m, d, n, turn % 3 != 0, turn);
        uint8_t *forbidden = room(m, 1);
        float *more = room(m, sizeof *more);
        for (size_t c = 0; c < m; c++) {
            forbidden[c] = woi_rng_below(4, turn, c, 3) == 0;
            more[c] = whole(4, turn + 100, c, 5);
        }
        woi_screen screen;
        assert_int_equal(woi_screen_make(&(woi_dense){m, d, s.w, s.b}, 2, &screen, NULL), WO_OK);
        const woi_adjust adjusts[] = {{NULL, NULL}, {forbidden, NULL}, {NULL, more}, {forbidden, more}};
        for (int a = 0; a < 4; a++) {
            findings f = scan(&s, &screen, adjusts[a], turns[turn / 2].keep, 1 + a % 2);
            for (size_t i = 0; i < n; i++) assert_defined(&s, i, &adjusts[a], &f);
            free_findings(&f);
        }
        woi_screen_free(&screen);
        free(forbidden);
        free(more);
        free_scene(&s);
    }
}

/* Scores that only rise fill the lists again and again; equal ones leave no bar between them. */
static void lists_that_fill_up(void **state)
{
    (void)state;
    enum { M = 6000, D = 4, KEEP = 30 };
    for (int equal = 0; equal < 3; equal++) {
        scene s = make_scene(M, D, 3, true, 5);
        for (size_t c = 0; c < M; c++) {
            s.b[c] = equal == 0 ? (float)c : equal == 1 ? 1 : (float)(c / 1000);
            for (size_t j = 0; j < D; j++) s.w[c * D + j] = 0;
        }
        woi_screen screen;
        assert_int_equal(woi_screen_make(&(woi_dense){M, D, s.w, s.b}, 1, &screen, NULL), WO_OK);
        for (int threads = 1; threads < 4; threads++) {
            findings f = scan(&s, &screen, (woi_adjust){0}, KEEP, threads);
            for (size_t i = 0; i < s.n; i++) assert_defined(&s, i, &(woi_adjust){0}, &f);
            free_findings(&f);
        }
        woi_screen_free(&screen);
        free_scene(&s);
    }
}

/* Threads get work worth having, and tiles of fewer queries where many candidates are kept. */
static void threads_change_no_candidate(void **state)
{
    (void)state;
    static const size_t keeps[] = {16, 300, WOI_MOST_KEPT};
    scene s = make_scene(9000, 32, 1100, true, 8);
    woi_screen screen;
    assert_int_equal(woi_screen_make(&(woi_dense){s.m, s.d, s.w, s.b}, 2, &screen, NULL), WO_OK);
    for (size_t k = 0; k < 3; k++) {
        s.n = k == 2 ? 100 : 1100;
        findings one = scan(&s, &screen, (woi_adjust){0}, keeps[k], 1);
        for (size_t i = 0; i < s.n; i += 99) assert_defined(&s, i, &(woi_adjust){0}, &one);
        for (int threads = 2; threads < 5; threads++) {
            findings more = scan(&s, &screen, (woi_adjust){0}, keeps[k], threads);
            assert_memory_equal(more.ids, one.ids, s.n * keeps[k] * sizeof *one.ids);
            free_findings(&more);
        }
        free_findings(&one);
    }
    woi_screen_free(&screen);
    free_scene(&s);
}

static void long_rows_are_refused(void **state)
{
    (void)state;
    wo_error err;
    float *w = room(WOI_MAX_I8 + 1, sizeof *w);
    woi_screen screen;
    assert_int_equal(woi_screen_make(&(woi_dense){1, WOI_MAX_I8 + 1, w, NULL}, 1, &screen, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "rows of 131072 numbers are too long for int8: at most 131071");
    assert_null(screen.rows);
    assert_int_equal(woi_screen_make(&(woi_dense){1, WOI_MAX_I8, w, NULL}, 1, &screen, &err), WO_OK);
    woi_screen_free(&screen);
    free(w);
}

/* The rule: an eighth more than are asked for, and eleven. */
static void more_are_kept_than_asked_for(void **state)
{
    (void)state;
    static const size_t ks[] = {1, 5, 7, 8, 100, 1000}, kept[] = {12, 16, 18, 20, 123, 1136};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) assert_int_equal(woi_screen_kept(ks[i]), kept[i]);
}

/* ---- The method -------------------------------------------------------------------------------------------- */

static wo_index *build_screen(const scene *s)
{
    const wo_build_options o = small_options(WO_METHOD_SCREEN);
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(s->layer, NULL, &o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

/* As exact as the exact layer, and the same to the last bit in every batch and on any number of threads. */
static void answers_are_the_exact_ones_in_every_batch(void **state)
{
    (void)state;
    static const size_t ds[] = {3, 16, 50, 129}, ks[] = {1, 5, 20};
    wo_error err;
    for (size_t turn = 0; turn < 12; turn++) {
        const size_t k = ks[turn % 3], n = 300;
        scene s = make_real_scene(3000, ds[turn % 4], n, turn % 2, 30 + turn);
        wo_index *index = build_screen(&s);
        asker *one = create(index, &(asked){.threads = 1}), *two = create(index, &(asked){.threads = 2});
        int32_t *ids = room(n * k, sizeof *ids), *other = room(n * k, sizeof *ids);
        float *scores = room(n * k, sizeof *scores), *others = room(n * k, sizeof *scores);
        assert_int_equal(ask(one, s.q, n, k, (answers){ids, scores, NULL}, &err), WO_OK);
        static const size_t pieces[] = {1, 2, 7, 8, 13, 300};
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            for (size_t i = 0; i < n; i += pieces[p]) {
                const size_t here = n - i < pieces[p] ? n - i : pieces[p];
                assert_int_equal(ask(p % 2 ? one : two, s.q + i * s.d, here, k,
                                     (answers){other + i * k, others + i * k, NULL}, &err),
                                 WO_OK);
            }
            assert_memory_equal(other, ids, n * k * sizeof *ids);
            assert_memory_equal(others, scores, n * k * sizeof *scores);
        }
        assert_int_equal(ask_exact(one, s.q, n, k, (answers){other, others, NULL}, &err), WO_OK);
        size_t same = 0;
        for (size_t i = 0; i < n * k; i++) {
            same += other[i] == ids[i];
            assert_true(fabsf(others[i] - scores[i]) < 1e-4F * (1 + fabsf(scores[i])));
        }
        assert_int_equal(same, n * k);
        free_asker(one);
        free_asker(two);
        wo_index_free(index);
        free(ids);
        free(other);
        free(scores);
        free(others);
        free_scene(&s);
    }
}

/* Masks and a bias change candidates and answers as brute force says; stats count what was scored exactly. */
static void calls_may_ask_for_anything(void **state)
{
    (void)state;
    enum { M = 600, N = 20, K = 5 };
    wo_error err;
    scene s = make_real_scene(M, 12, N, true, 3);
    wo_index *index = build_screen(&s);
    int32_t forbidden[M / 3], mandatory[3] = {6, 599, 6};
    float more[M];
    bool allowed[M];
    for (size_t c = 0; c < M; c++) {
        allowed[c] = c % 3 != 0;
        more[c] = normal(70, c);
        if (c % 3 == 0) forbidden[c / 3] = (int32_t)c;
    }
    const asked o = {.threads = 1,
                     .forbidden = forbidden,
                     .n_forbidden = M / 3,
                     .mandatory = mandatory,
                     .n_mandatory = 3,
                     .logit_bias = more};
    asker *searcher = create(index, &o), *free_one = create(index, NULL);
    int32_t ids[N * K], expected[K], candidates[M];
    float scores[N * K];
    double values[K];
    wo_query_stats stats[N];
    assert_int_equal(ask_stats(searcher, s.q, N, K, (answers){ids, scores, stats}, &err), WO_OK);
    for (size_t i = 0; i < N; i++) {
        brute_force(&s, s.q + i * s.d, &(rules){allowed, more, false, NULL}, K, expected, values);
        assert_memory_equal(ids + i * K, expected, sizeof expected);
        for (size_t j = 0; j < K; j++) assert_true(fabs((double)scores[i * K + j] - values[j]) < 1e-4);
        /* class 6 is mandatory but forbidden */
        assert_true(stats[i].candidates >= woi_screen_kept(K) && stats[i].candidates <= woi_screen_kept(K) + 1);
        assert_true(stats[i].cells == 0 && !stats[i].exact && !stats[i].wider && stats[i].status == WO_OK);
        wo_search_call call = call_of(searcher, s.q + i * s.d, 1);
        call.k = K;
        size_t n = 0;
        assert_int_equal(wo_search_candidates(searcher->searcher, &call, candidates, M, &n, &err), WO_OK);
        assert_int_equal(n, stats[i].candidates);
        bool has_599 = false, has_best = false;
        for (size_t c = 0; c < n; c++) {
            has_599 |= candidates[c] == 599;
            has_best |= candidates[c] == ids[i * K];
            assert_true(candidates[c] % 3 != 0);
        }
        assert_true(has_best && has_599 == allowed[599]);
    }
    /* Probabilities are those of all classes: FULL has them. */
    asker *softmax = create(index, &(asked){.threads = 1, .scores = WO_SCORES_SOFTMAX});
    assert_int_equal(ask_stats(softmax, s.q, N, K, (answers){ids, scores, stats}, &err), WO_OK);
    for (size_t i = 0; i < N; i++) {
        assert_answer(&s, s.q + i * s.d, &(rules){NULL, NULL, true, NULL}, K, ids + i * K, scores + i * K);
        assert_true(stats[i].exact && stats[i].candidates == M);
    }
    free_asker(softmax);
    free_asker(searcher);
    free_asker(free_one);
    wo_index_free(index);
    free_scene(&s);
}

/* Few classes, or more answers than there are: all of them, in order. */
static void few_classes_are_all_scored(void **state)
{
    (void)state;
    static const size_t ms[] = {1, 2, 15, 16, 17, 31, 40, 100}, ks[] = {1, 5, 60, 200};
    wo_error err;
    for (size_t turn = 0; turn < 32; turn++) {
        const size_t m = ms[turn / 4], k = ks[turn % 4], n = 20;
        scene s = make_scene(m, 5, n, true, turn);
        wo_index *index = build_screen(&s);
        asker *searcher = create(index, NULL);
        int32_t *ids = room(n * k, sizeof *ids), candidates[100];
        float *scores = room(n * k, sizeof *scores);
        assert_int_equal(ask(searcher, s.q, n, k, (answers){ids, scores, NULL}, &err), WO_OK);
        for (size_t i = 0; i < n && (m <= 31 || k >= 60); i++)
            assert_answer(&s, s.q + i * s.d, &(rules){0}, k, ids + i * k, scores + i * k);
        for (size_t i = 0; i < n * k; i++) assert_true(ids[i] < (int32_t)m && (ids[i] >= 0 || i % k >= m));
        size_t found = 0;
        assert_int_equal(ask_candidates(searcher, s.q, candidates, 100, &found, &err), WO_OK);
        assert_true(found >= (m < 11 ? m : 11) && found <= m);
        free_asker(searcher);
        wo_index_free(index);
        free(ids);
        free(scores);
        free_scene(&s);
    }
}

/* Zeros, numbers that int8 cannot hold, and what is no number, in one batch and one by one. */
static void odd_queries_and_rows(void **state)
{
    (void)state;
    enum { M = 500, N = 12, K = 5 };
    wo_error err;
    for (int bias = 0; bias < 2; bias++) {
        scene s = make_real_scene(M, 10, N, bias, 6);
        for (size_t c = 0; c < M; c += 50)
            for (size_t j = 0; j < s.d; j++) s.w[c * s.d + j] = 0;
        for (size_t j = 0; j < s.d; j++) {
            s.q[1 * s.d + j] = 0;
            s.q[2 * s.d + j] *= 1e-33F;
            s.q[3 * s.d + j] *= 1e30F;
        }
        s.q[5 * s.d + 3] = NAN;
        s.q[6 * s.d + 9] = INFINITY;
        s.q[9 * s.d] = -INFINITY;
        wo_layer_free(s.layer);
        assert_int_equal(wo_layer_wrap(s.w, s.b, M, s.d, &s.layer, &err), WO_OK);
        wo_index *index = build_screen(&s);
        asker *searcher = create(index, &(asked){.threads = 1});
        int32_t ids[N * K], exact[N * K], one[K];
        float scores[N * K], exact_scores[N * K], one_scores[K];
        wo_query_stats stats[N];
        assert_int_equal(ask_stats(searcher, s.q, N, K, (answers){ids, scores, stats}, &err), WO_OK);
        assert_int_equal(ask_exact(searcher, s.q, N, K, (answers){exact, exact_scores, NULL}, &err), WO_OK);
        for (size_t i = 0; i < N; i++) {
            const bool refused = i == 5 || i == 6 || i == 9;
            assert_int_equal(stats[i].status, refused ? WO_ERR_ARGUMENT : WO_OK);
            assert_memory_equal(ids + i * K, exact + i * K, sizeof one);
            assert_true((ids[i * K] < 0) == refused && (scores[i * K] == -INFINITY) == refused);
            assert_int_equal(ask(searcher, s.q + i * s.d, 1, K, (answers){one, one_scores, NULL}, &err), WO_OK);
            assert_memory_equal(one, ids + i * K, sizeof one);
            assert_memory_equal(one_scores, scores + i * K, sizeof one_scores);
        }
        free_asker(searcher);
        wo_index_free(index);
        free_scene(&s);
    }
}

/* A file without f32 rows takes the layer's; its own int8 rows are in it. */
static void files_answer_the_same(void **state)
{
    (void)state;
    enum { M = 333, N = 30, K = 4 };
    wo_error err;
    scene s = make_real_scene(M, 21, N, true, 12);
    int32_t ids[N * K], other[N * K];
    float scores[N * K], others[N * K];
    for (int none = 0; none < 2; none++) {
        wo_build_options o = small_options(WO_METHOD_SCREEN);
        if (none) o.weights = WO_WEIGHTS_NONE;
        wo_index *index = build(&s, &o), *opened = NULL;
        wo_index_info info = {.struct_size = sizeof info};
        assert_int_equal(wo_index_describe(index, &info), WO_OK);
        assert_string_equal(info.method_name, "screen");
        assert_int_equal(info.index_bytes, 336 * (24 + 4));
        assert_int_equal(info.n_cells, 0);
        assert_int_equal(wo_index_save(index, scratch("index"), &err), WO_OK);
        if (none) {
            assert_int_equal(wo_index_open(scratch("index"), NULL, &opened, &err), WO_ERR_ARGUMENT);
            assert_null(opened);
        }
        const wo_open_options oo = {.struct_size = sizeof oo, .layer = none ? s.layer : NULL};
        if (wo_index_open(scratch("index"), &oo, &opened, &err)) fail_msg("%s", err.text);
        asker *built = create(index, NULL), *from_file = create(opened, NULL);
        assert_int_equal(ask(built, s.q, N, K, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_int_equal(ask(from_file, s.q, N, K, (answers){other, others, NULL}, &err), WO_OK);
        assert_memory_equal(ids, other, sizeof ids);
        assert_memory_equal(scores, others, sizeof scores);
        free_asker(built);
        free_asker(from_file);
        wo_index_free(opened);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* ---- What a screen is worth -------------------------------------------------------------------------------- */

static wo_index *judged_screen(const scene *s, int threads, wo_index_info *info)
{
    wo_build_options o = small_options(WO_METHOD_SCREEN);
    o.held_out = s->n;
    o.threads = threads;
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(s->layer, s->log, &o, &index, &err)) fail_msg("%s", err.text);
    *info = (wo_index_info){.struct_size = sizeof *info};
    wo_index_describe(index, info);
    return index;
}

/* The same layer in columns of sizes from 0.01 to 1000, and queries for it: FULL's scores are nearly the same. */
static void spread_columns(scene *s)
{
    static const float sizes[] = {0.01F, 1000, 0.1F, 1, 100, 10};
    for (size_t i = 0; i < s->m * s->d; i++) s->w[i] /= sizes[i % s->d % 6];
    for (size_t i = 0; i < s->n * s->d; i++) s->q[i] *= sizes[i % s->d % 6];
    wo_error err;
    wo_layer_free(s->layer);
    if (wo_layer_wrap(s->w, s->b, s->m, s->d, &s->layer, &err)) fail_msg("%s", err.text);
}

/* All of a log's queries judge a screen, which learns from none: as a count by the answers says. */
static void a_log_tells_what_a_screen_is_worth(void **state)
{
    (void)state;
    enum { M = 3000, N = 300, K = 5 };
    wo_error err;
    scene s = make_real_scene(M, 32, N, true, 11);
    static int32_t ids[N * K], full[N * K];
    static float scores[N * K];
    for (int spread = 0; spread < 2; spread++) {
        if (spread) spread_columns(&s);
        wo_index_info info, again;
        wo_index *index = judged_screen(&s, 1, &info), *other = judged_screen(&s, 3, &again);
        asker *searcher = create(index, NULL);
        assert_int_equal(ask(searcher, s.q, N, K, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_int_equal(ask_exact(searcher, s.q, N, K, (answers){full, scores, NULL}, &err), WO_OK);
        size_t best = 0, five = 0;
        for (size_t i = 0; i < N; i++) {
            best += ids[i * K] == full[i * K];
            for (size_t j = 0; j < K * K; j++) five += ids[i * K + j / K] == full[i * K + j % K];
        }
        assert_int_equal(info.held_n, N);
        assert_true(info.held_same_best == (double)best / N && info.same_best == info.held_same_best);
        assert_true(info.same_five == (double)five / (N * K));
        assert_true(spread ? info.same_five < 0.5 : info.same_five == 1);
        assert_true(!isnan(info.held_p_at_1) && !isnan(info.held_full_p_at_1));
        assert_true(again.same_five == info.same_five && again.held_p_at_1 == info.held_p_at_1);
        free_asker(searcher);
        wo_index_free(other);
        /* It is measured beside the index, not a part of it. */
        wo_index *bare = build_screen(&s);
        assert_int_equal(wo_index_save(index, scratch("judged"), &err), WO_OK);
        assert_int_equal(wo_index_save(bare, scratch("bare"), &err), WO_OK);
        assert_same_file(scratch("judged"), scratch("bare"));
        wo_index_free(bare);
        wo_index_free(index);
    }
    free_scene(&s);
    static const size_t few[] = {49, 50}; /* of fewer a share says nothing */
    for (size_t i = 0; i < 2; i++) {
        wo_index_info info;
        s = make_real_scene(4 - i, 8, few[i], false, 12); /* and fewer classes than five */
        wo_index_free(judged_screen(&s, 1, &info));
        assert_int_equal(info.held_n, i * 50);
        assert_true(i ? info.same_best == 1 && info.same_five == 1 : isnan(info.same_best) && isnan(info.same_five));
        free_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_are_those_of_the_definition),
        cmocka_unit_test(lists_that_fill_up),
        cmocka_unit_test(threads_change_no_candidate),
        cmocka_unit_test(long_rows_are_refused),
        cmocka_unit_test(more_are_kept_than_asked_for),
        cmocka_unit_test(answers_are_the_exact_ones_in_every_batch),
        cmocka_unit_test(calls_may_ask_for_anything),
        cmocka_unit_test(few_classes_are_all_scored),
        cmocka_unit_test(odd_queries_and_rows),
        cmocka_unit_test(files_answer_the_same),
        cmocka_unit_test(a_log_tells_what_a_screen_is_worth),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
