/* judge/evaluate: every figure by hand on a tiny layer, and against slow code on larger ones. */
#include "asker.h"
#include "base/clock.h"
#include "testing.h"

#include "base/rng.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

static wo_eval_timing listed[WO_EVAL_MAX + 1];
#define EMPTY                                                                                      \
    {                                                                                              \
        .struct_size = sizeof(wo_eval_result), .timings = listed, .timings_room = WO_EVAL_MAX + 1, \
        .timing_bytes = sizeof listed[0]                                                           \
    }

/* ---- Objects ----------------------------------------------------------------------------------------------- */

static wo_layer *wrap_layer(const float *w, const float *b, size_t m, size_t d)
{
    wo_layer *layer = NULL;
    wo_error err;
    if (wo_layer_wrap(w, b, m, d, &layer, &err)) fail_msg("%s", err.text);
    return layer;
}

static wo_log *wrap_log(const float *q, size_t n, size_t d, const int64_t *indptr, const int32_t *labels)
{
    wo_log *log = NULL;
    wo_error err;
    if (wo_log_wrap(q, n, d, indptr, labels, &log, &err)) fail_msg("%s", err.text);
    return log;
}

static wo_index *build(const wo_layer *layer, const wo_log *log, const wo_build_options *options)
{
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(layer, log, options, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static void evaluate(const wo_index *index, const wo_layer *layer, const wo_log *log, const wo_eval_options *options,
                     wo_eval_result *result)
{
    wo_error err;
    if (wo_evaluate(index, layer, log, options, result, &err)) fail_msg("%s", err.text);
}

static wo_eval_options quality(void)
{
    wo_eval_options o;
    wo_eval_defaults(&o, sizeof o);
    o.skip_timing = 1;
    return o;
}

static void assert_near(double got, double expected)
{
    if (!(fabs(got - expected) < 1e-12)) fail_msg("%.15g, expected %.15g", got, expected);
}

/* ---- By hand ----------------------------------------------------------------------------------------------- */

/* Five classes on a line: the query 1 orders them 0 1 2 3 4, the query -1 the other way round. popular's only cell has
 * 0, 2 and 4, so that it answers 0 2 4 and 4 2 0. */
static const float line[] = {5, 4, 3, 2, 1};
static const float line_q[] = {1, 1, -1, -1};
static const int64_t line_indptr[] = {0, 1, 3, 4, 4};
static const int32_t line_labels[] = {0, 4, 1, 3};

typedef struct scene {
    wo_layer *layer;
    wo_log *train, *log;
    wo_index *index;
} scene;

static scene make_line(void)
{
    static const float q[] = {1, 1, 1};
    static const int64_t indptr[] = {0, 1, 2, 3};
    static const int32_t labels[] = {0, 2, 4};
    scene s = {wrap_layer(line, NULL, 5, 1), wrap_log(q, 3, 1, indptr, labels),
               wrap_log(line_q, 4, 1, line_indptr, line_labels), NULL};
    wo_build_options o;
    wo_build_defaults(WO_METHOD_POPULAR, &o, sizeof o);
    o.n_popular = 3;
    s.index = build(s.layer, s.train, &o);
    return s;
}

static void free_scene(scene *s)
{
    wo_index_free(s->index);
    wo_log_free(s->log);
    wo_log_free(s->train);
    wo_layer_free(s->layer);
}

static void figures_by_hand(void **state)
{
    (void)state;
    scene s = make_line();
    wo_eval_options o = quality();
    o.ks[0] = 1, o.ks[1] = 3, o.ks[2] = 5, o.ks[3] = 7;
    o.n_ks = 4;
    wo_eval_result r = EMPTY;
    evaluate(s.index, s.layer, s.log, &o, &r);
    assert_int_equal(r.n, 4);
    assert_int_equal(r.skipped, 1);
    assert_int_equal(r.refused, 0);
    /* Labels {0}, {1, 4}, {3}; popular answers 0 2 4, 0 2 4, 4 2 0. */
    assert_near(r.p_at_1, 1.0 / 3);
    assert_near(r.p_at_3, 2.0 / 9);
    assert_near(r.p_at_5, 2.0 / 15);
    assert_near(r.full_p_at_1, 1.0 / 3);
    assert_near(r.full_p_at_3, 3.0 / 9);
    assert_near(r.full_p_at_5, 4.0 / 15);
    assert_near(r.agreement[0], 1);
    assert_near(r.agreement[1], 2.0 / 3); /* 0 1 2 and 0 2 4; 4 3 2 and 4 2 0 */
    assert_near(r.agreement[2], 3.0 / 5);
    assert_near(r.agreement[3], 3.0 / 5); /* FULL has no more than five */
    assert_near(r.label_recall, 2.0 / 4); /* 0 and 4 */
    assert_near(r.sample_size, 3);
    assert_near(r.cells, 1);
    assert_near(r.empty_share, 0);
    assert_near(r.label_rank, (1 + 2 + 5 + 2) / 4.0);
    assert_near(r.label_rank_retrieved, (1 + 3) / 2.0);
    assert_int_equal(r.n_timings, 0);
    assert_true(isnan(r.cold_us) && isnan(r.full_cold_us));
    assert_true(isnan(r.energy_j_per_1000) && isnan(r.full_energy_j_per_1000));
    assert_string_equal(r.energy_note, "nothing was timed");
    free_scene(&s);
}

static void without_labels_there_is_agreement(void **state)
{
    (void)state;
    scene s = make_line();
    wo_log *log = wrap_log(line_q, 4, 1, NULL, NULL);
    wo_eval_options o = quality();
    wo_eval_result r = EMPTY;
    evaluate(s.index, NULL, log, &o, &r);
    assert_int_equal(r.n, 4);
    assert_int_equal(r.skipped, 4);
    assert_true(isnan(r.p_at_1) && isnan(r.p_at_3) && isnan(r.p_at_5));
    assert_true(isnan(r.full_p_at_1) && isnan(r.full_p_at_3) && isnan(r.full_p_at_5));
    assert_true(isnan(r.label_recall) && isnan(r.label_rank) && isnan(r.label_rank_retrieved));
    assert_near(r.agreement[0], 1);
    assert_near(r.agreement[1], 3.0 / 5);
    assert_near(r.sample_size, 3);
    wo_log_free(log);
    free_scene(&s);
}

static void odd_queries_are_left_out(void **state)
{
    (void)state;
    scene s = make_line();
    const float q[] = {NAN, 1, INFINITY, -1};
    wo_log *log = wrap_log(q, 4, 1, line_indptr, line_labels);
    wo_eval_options o = quality();
    wo_eval_result r = EMPTY;
    evaluate(s.index, NULL, log, &o, &r);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.refused, 2);
    assert_int_equal(r.skipped, 1);
    assert_near(r.p_at_5, 1.0 / 5);
    wo_log_free(log);
    free_scene(&s);
}

/* Logits beyond a float's range order nothing: a search answers such a query with -1, and FULL has no answers there
 * either. It is no query then, and is counted. */
static void infinite_scores_are_no_answers(void **state)
{
    (void)state;
    scene s = make_line();
    const float q[] = {3e38F, 1, -1, -1};
    wo_log *log = wrap_log(q, 4, 1, line_indptr, line_labels);
    wo_eval_options o = quality();
    wo_eval_result r = EMPTY;
    evaluate(s.index, NULL, log, &o, &r);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.refused, 1);
    assert_int_equal(r.skipped, 1);
    assert_near(r.p_at_1, 0);
    assert_near(r.full_p_at_1, 0); /* of labels {1, 4} and {3} */
    assert_near(r.full_p_at_5, 3.0 / 10);
    assert_near(r.agreement[1], 3.0 / 5);

    wo_log *all = wrap_log((const float[]){3e38F, 3e38F, 3e38F, 3e38F}, 4, 1, line_indptr, line_labels);
    wo_error err;
    assert_int_equal(wo_evaluate(s.index, NULL, all, &o, &r, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "every query of the log has numbers or scores that are not finite");
    wo_log_free(all);
    wo_log_free(log);
    free_scene(&s);
}

/* Equal rows have equal logits, and the lower id is the better one; a label given twice counts once. */
static void ties_and_repeated_labels(void **state)
{
    (void)state;
    enum { M = 1200 }; /* three blocks of classes */
    static float w[2 * M], b[M];
    for (int j = 0; j < M; j++) w[2 * j] = 1, w[2 * j + 1] = -2, b[j] = 0.1F;
    b[700] = 7;
    const float q[] = {0.3F, 0.7F, 0.3F, 0.7F};
    const int64_t indptr[] = {0, 3, 5};
    const int32_t labels[] = {1100, 5, 1100, 700, 0};
    wo_layer *layer = wrap_layer(w, b, M, 2);
    wo_log *log = wrap_log(q, 2, 2, indptr, labels);
    wo_build_options bo;
    wo_build_defaults(WO_METHOD_FULL, &bo, sizeof bo);
    wo_index *index = build(layer, NULL, &bo);
    wo_eval_options o = quality();
    wo_eval_result r = EMPTY;
    evaluate(index, NULL, log, &o, &r);
    assert_near(r.label_rank, (1101 + 7 + 1 + 2) / 4.0);
    assert_near(r.label_rank_retrieved, r.label_rank);
    assert_near(r.label_recall, 1);
    assert_near(r.sample_size, M);
    assert_near(r.agreement[0], 1);
    assert_near(r.agreement[1], 1);
    assert_near(r.p_at_1, 1.0 / 2);
    assert_near(r.p_at_5, 2.0 / 10);
    wo_index_free(index);
    wo_log_free(log);
    wo_layer_free(layer);
}

/* ---- Slowly ------------------------------------------------------------------------------------------------ */

enum { M = 700, D = 6, N = 1300, TRAIN = 3000 };

/* Small whole numbers: sums are exact in any order, and full of ties. */
static float *whole_numbers(size_t n, uint64_t stream)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (float)woi_rng_below(5, stream, i, 7) - 3;
    return x;
}

typedef struct data {
    float *w, *b, *q, *train_q;
    int64_t *indptr, *train_indptr;
    int32_t *labels, *train_labels;
} data;

/* 0 to 3 distinct labels a query. */
static void make_labels(size_t n, uint64_t stream, int64_t **indptr, int32_t **labels)
{
    *indptr = malloc((n + 1) * sizeof **indptr);
    *labels = malloc(3 * n * sizeof **labels);
    assert_true(*indptr && *labels);
    (*indptr)[0] = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t at = (*indptr)[i];
        for (uint64_t j = 0; j < woi_rng_below(5, stream, i, 4); j++)
            (*labels)[at++] = (int32_t)(j * (M / 3) + woi_rng_below(5, stream + 1, 4 * i + j, 40));
        (*indptr)[i + 1] = at;
    }
}

static data make_data(void)
{
    data x = {.w = whole_numbers(M * D, 1),
              .b = whole_numbers(M, 2),
              .q = whole_numbers(N * D, 3),
              .train_q = whole_numbers(TRAIN * D, 4)};
    make_labels(N, 10, &x.indptr, &x.labels);
    make_labels(TRAIN, 20, &x.train_indptr, &x.train_labels);
    return x;
}

static void free_data(data *x)
{
    free(x->w);
    free(x->b);
    free(x->q);
    free(x->train_q);
    free(x->indptr);
    free(x->train_indptr);
    free(x->labels);
    free(x->train_labels);
}

static bool among(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* How many of `ids`, or of all classes, stand before `id`, and one more. */
static uint64_t rank_among(const double *logits, const int32_t *ids, size_t n, int32_t id)
{
    uint64_t rank = 1;
    for (size_t i = 0; i < n; i++) {
        const int32_t other = ids ? ids[i] : (int32_t)i;
        rank += logits[other] > logits[id] || (logits[other] == logits[id] && other < id);
    }
    return rank;
}

/* The same figures, one query after the other, as their definitions read. */
static wo_eval_result slowly(const data *x, const wo_index *index, uint32_t probes)
{
    enum { K = 20 };
    wo_eval_result r = {0};
    asked so = {0};
    so.threads = 1;
    so.probes = probes;
    asker *searcher = NULL;
    wo_error err;
    if (try_create(index, &so, &searcher, &err)) fail_msg("%s", err.text);
    double logits[M], labelled = 0, labels = 0, retrieved = 0;
    int32_t ids[K], full[K], candidates[M];
    float scores[K];
    for (size_t i = 0; i < N; i++) {
        const float *q = x->q + i * D;
        const int32_t *own = x->labels + x->indptr[i];
        const size_t n_own = (size_t)(x->indptr[i + 1] - x->indptr[i]);
        for (size_t j = 0; j < M; j++) {
            logits[j] = (double)x->b[j];
            for (size_t c = 0; c < D; c++) logits[j] += (double)q[c] * (double)x->w[j * D + c];
        }
        for (size_t k = 0; k < K; k++) {
            full[k] = -1;
            for (int32_t j = 0; j < M; j++)
                if (!among(full, k, j) && (full[k] < 0 || logits[j] > logits[full[k]])) full[k] = j;
        }
        size_t n = 0;
        wo_query_stats stats;
        if (ask_stats(searcher, q, 1, K, (answers){ids, scores, &stats}, &err)) fail_msg("%s", err.text);
        if (ask_candidates(searcher, q, candidates, M, &n, &err)) fail_msg("%s", err.text);
        r.sample_size += (double)n / N;
        r.cells += (double)stats.cells / N;
        r.empty_share += n == 0 ? 1.0 / N : 0;
        for (size_t k = 0; k < K; k++) {
            r.agreement[0] += k < 1 && among(ids, 1, full[k]) ? 1.0 / N : 0;
            r.agreement[1] += k < 5 && among(ids, 5, full[k]) ? 1.0 / 5 / N : 0;
            r.agreement[2] += among(ids, K, full[k]) ? 1.0 / K / N : 0;
        }
        labelled += n_own > 0;
        for (size_t k = 0; k < 5; k++) {
            const double hit = ids[k] >= 0 && among(own, n_own, ids[k]), full_hit = among(own, n_own, full[k]);
            r.p_at_1 += k < 1 ? hit : 0;
            r.p_at_3 += k < 3 ? hit / 3 : 0;
            r.p_at_5 += hit / 5;
            r.full_p_at_1 += k < 1 ? full_hit : 0;
            r.full_p_at_3 += k < 3 ? full_hit / 3 : 0;
            r.full_p_at_5 += full_hit / 5;
        }
        for (size_t j = 0; j < n_own; j++) {
            labels++;
            r.label_rank += (double)rank_among(logits, NULL, M, own[j]);
            if (!among(candidates, n, own[j])) continue;
            retrieved++;
            r.label_rank_retrieved += (double)rank_among(logits, candidates, n, own[j]);
        }
    }
    free_asker(searcher);
    r.skipped = N - (uint64_t)labelled;
    double *const by_query[] = {&r.p_at_1, &r.p_at_3, &r.p_at_5, &r.full_p_at_1, &r.full_p_at_3, &r.full_p_at_5};
    for (size_t i = 0; i < 6; i++) *by_query[i] /= labelled;
    r.label_recall = retrieved / labels;
    r.label_rank /= labels;
    r.label_rank_retrieved /= retrieved;
    return r;
}

static void assert_close(const char *what, double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("%s: %.12g, expected %.12g", what, got, expected);
}

static void assert_same(const wo_eval_result *got, const wo_eval_result *expected)
{
    assert_int_equal(got->skipped, expected->skipped);
#define SAME(field) assert_close(#field, got->field, expected->field)
    SAME(p_at_1);
    SAME(p_at_3);
    SAME(p_at_5);
    SAME(full_p_at_1);
    SAME(full_p_at_3);
    SAME(full_p_at_5);
    SAME(agreement[0]);
    SAME(agreement[1]);
    SAME(agreement[2]);
    SAME(label_recall);
    SAME(sample_size);
    SAME(cells);
    SAME(empty_share);
    SAME(label_rank);
    SAME(label_rank_retrieved);
#undef SAME
}

/* Every method, with 1, 2 and 3 threads, the layer given or not. */
static void figures_against_slow_code(void **state)
{
    (void)state;
    data x = make_data();
    wo_layer *layer = wrap_layer(x.w, x.b, M, D);
    wo_log *log = wrap_log(x.q, N, D, x.indptr, x.labels);
    wo_log *train = wrap_log(x.train_q, TRAIN, D, x.train_indptr, x.train_labels);
    static const struct {
        wo_method method;
        wo_router router;
        uint32_t K, L, probes;
    } runs[] = {{WO_METHOD_SLIDE, WO_ROUTER_HASH, 9, 1, 0},
                {WO_METHOD_SLIDE, WO_ROUTER_HASH, 4, 3, 2},
                {WO_METHOD_POPULAR, WO_ROUTER_HASH, 0, 0, 0},
                {WO_METHOD_EVIDENCE, WO_ROUTER_HASH, 5, 2, 0},
                {WO_METHOD_EVIDENCE, WO_ROUTER_TREE, 0, 0, 3}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        wo_build_options bo;
        wo_build_defaults(runs[i].method, &bo, sizeof bo);
        if (runs[i].K) bo.K = runs[i].K, bo.L = runs[i].L;
        bo.router = runs[i].router;
        bo.n_popular = 50;
        bo.iterations = 5;
        wo_index *index = build(layer, train, &bo);
        const wo_eval_result expected = slowly(&x, index, runs[i].probes);
        wo_eval_options o = quality();
        o.ks[2] = 20;
        o.n_ks = 3;
        o.probes = runs[i].probes;
        wo_eval_result again = EMPTY;
        for (int threads = 1; threads <= 3; threads++) {
            wo_eval_result r = EMPTY;
            o.threads = threads;
            evaluate(index, threads == 2 ? layer : NULL, log, &o, &r);
            assert_int_equal(r.n, N);
            assert_same(&r, &expected);
            if (threads == 1) again = r;
            assert_memory_equal(&r.n, &again.n, offsetof(wo_eval_result, k) - offsetof(wo_eval_result, n));
        }
        if (i == 0) assert_true(expected.empty_share > 0);
        wo_index_free(index);
    }
    wo_log_free(train);
    wo_log_free(log);
    wo_layer_free(layer);
    free_data(&x);
}

/* A sample is the same for the same seed and another for another. */
static void samples_follow_the_seed(void **state)
{
    (void)state;
    data x = make_data();
    wo_layer *layer = wrap_layer(x.w, x.b, M, D);
    wo_log *log = wrap_log(x.q, N, D, x.indptr, x.labels);
    wo_build_options bo;
    wo_build_defaults(WO_METHOD_SLIDE, &bo, sizeof bo);
    bo.K = 6, bo.L = 2;
    wo_index *index = build(layer, NULL, &bo);
    wo_eval_options o = quality();
    wo_eval_result one = EMPTY, same = EMPTY, other = EMPTY, all = EMPTY;
    evaluate(index, NULL, log, &o, &all);
    o.max_queries = 300;
    o.threads = 1;
    evaluate(index, NULL, log, &o, &one);
    o.threads = 2;
    evaluate(index, NULL, log, &o, &same);
    o.seed = 2;
    evaluate(index, NULL, log, &o, &other);
    assert_int_equal(one.n, 300);
    assert_near(one.label_rank, same.label_rank);
    assert_near(one.sample_size, same.sample_size);
    assert_true(one.sample_size != other.sample_size);
    assert_true(one.sample_size > all.sample_size / 2 && one.sample_size < all.sample_size * 2);
    o.max_queries = N + 5;
    evaluate(index, NULL, log, &o, &same);
    assert_near(same.sample_size, all.sample_size);
    wo_index_free(index);
    wo_log_free(log);
    wo_layer_free(layer);
    free_data(&x);
}

/* ---- Time -------------------------------------------------------------------------------------------------- */

static void timings_are_listed(void **state)
{
    (void)state;
    scene s = make_line();
    wo_eval_options o;
    wo_eval_defaults(&o, sizeof o);
    o.batches[0] = 64, o.batches[1] = 1, o.batches[2] = 64;
    o.n_batches = 3;
    o.batch = 7;
    o.rounds = 2;
    o.threads = 2;
    o.ks[1] = 4;
    setenv("WIDEOUT_POWERCAP", "/nonexistent", 1);
    wo_eval_result r = EMPTY;
    evaluate(s.index, NULL, s.log, &o, &r);
    unsetenv("WIDEOUT_POWERCAP");
    static const uint32_t batches[] = {1, 7, 64};
    assert_int_equal(r.n_timings, 3);
    assert_int_equal(r.headline, 1);
    assert_int_equal(r.k, 4);
    for (size_t i = 0; i < 3; i++) {
        const wo_eval_timing *t = &r.timings[i];
        assert_int_equal(t->batch, batches[i]);
        assert_int_equal(t->threads, i ? 2 : 1);
        assert_true(t->calls >= 8 && t->full_calls >= 2);
        assert_true(t->us > 0 && t->us <= t->us_p99 && t->full_us > 0 && t->full_us <= t->full_us_p99);
        assert_near(t->speedup, t->full_us / t->us);
        assert_true(t->cpu_s_per_1000 > 0 && t->full_cpu_s_per_1000 > 0);
    }
    assert_true(r.cold_us > 0 && r.full_cold_us > 0);
    assert_true(isnan(r.energy_j_per_1000) && isnan(r.full_energy_j_per_1000));
    assert_string_equal(r.energy_note, "/nonexistent cannot be opened: No such file or directory");
    free_scene(&s);
}

/* A machine that takes 4 W, and 20 more for every core at work; its counter starts over every 30 J. */
typedef struct fake_machine {
    char folder[64];
    volatile bool stop;
} fake_machine;

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[160], temporary[160];
    snprintf(path, sizeof path, "%s/intel-rapl:0/%s", folder, name);
    snprintf(temporary, sizeof temporary, "%s/next", folder);
    FILE *out = fopen(temporary, "w");
    if (!out) return;
    fputs(text, out);
    fclose(out);
    rename(temporary, path); /* a reader never sees half of it */
}

static void write_counter(const char *folder)
{
    char text[32];
    const double joules = 4 * woi_now_s() + 20 * woi_cpu_s();
    snprintf(text, sizeof text, "%lld\n", (long long)(1e6 * fmod(joules, 30)));
    write_file(folder, "energy_uj", text);
}

static void *run_counter(void *given)
{
    fake_machine *machine = given;
    while (!__atomic_load_n(&machine->stop, __ATOMIC_RELAXED)) {
        write_counter(machine->folder);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return NULL;
}

static void energy_is_that_of_the_work(void **state)
{
    (void)state;
    scene s = make_line();
    fake_machine machine = {.folder = "/tmp/wideout-test-XXXXXX"};
    char domain[96], command[96];
    assert_non_null(mkdtemp(machine.folder));
    snprintf(domain, sizeof domain, "%s/intel-rapl:0", machine.folder);
    assert_int_equal(mkdir(domain, 0700), 0);
    write_file(machine.folder, "name", "package-0\n");
    write_file(machine.folder, "max_energy_range_uj", "30000000\n");
    write_counter(machine.folder);
    setenv("WIDEOUT_POWERCAP", machine.folder, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_counter, &machine), 0);
    wo_eval_options o;
    wo_eval_defaults(&o, sizeof o);
    o.batch = 1;
    o.n_batches = 0;
    wo_eval_result r = EMPTY;
    evaluate(s.index, NULL, s.log, &o, &r);
    __atomic_store_n(&machine.stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    unsetenv("WIDEOUT_POWERCAP");
    snprintf(command, sizeof command, "rm -rf '%s'", machine.folder);
    assert_int_equal(system(command), 0);
    assert_string_equal(r.energy_note, "");
    /* 20 J for a CPU second. Few calls were timed and many went into the second of work, so on a busy machine the two
     * can be far apart; with a wrong unit or a lost wrap they would be further. */
    const double ratio = r.energy_j_per_1000 / r.timings[0].cpu_s_per_1000;
    const double full_ratio = r.full_energy_j_per_1000 / r.timings[0].full_cpu_s_per_1000;
    if (!(ratio > 2 && ratio < 200 && full_ratio > 2 && full_ratio < 200)) fail_msg("%g and %g J/s", ratio, full_ratio);
    free_scene(&s);
}

/* ---- Failures ---------------------------------------------------------------------------------------------- */

static void assert_refused(const wo_index *index, const wo_layer *layer, const wo_log *log, const wo_eval_options *o,
                           const char *sentence)
{
    wo_eval_result r = EMPTY;
    r.n = 77;
    wo_error err;
    assert_int_equal(wo_evaluate(index, layer, log, o, &r, &err), WO_ERR_ARGUMENT);
    if (strncmp(err.text, sentence, strlen(sentence)) != 0) fail_msg("\"%s\", expected \"%s\"", err.text, sentence);
    assert_int_equal(r.n, 77);
    assert_int_equal(wo_evaluate(index, layer, log, o, &r, NULL), WO_ERR_ARGUMENT);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    scene s = make_line();
    const float q[] = {1, 2, 3, 4}, odd[] = {NAN, -INFINITY, 1, 1};
    const int64_t indptr[] = {0, 1};
    const int32_t label = 5;
    const float other[] = {5, 4, 3, 2, 0};
    wo_log *wide = wrap_log(q, 2, 2, NULL, NULL), *beyond = wrap_log(q, 1, 1, indptr, &label);
    wo_log *none = wrap_log(q, 0, 1, NULL, NULL), *all_odd = wrap_log(odd, 2, 1, NULL, NULL);
    wo_layer *another = wrap_layer(other, NULL, 5, 1);
    wo_eval_options o = quality();
    assert_refused(s.index, NULL, wide, &o, "the log's queries have 2 numbers, the layer's rows 1");
    assert_refused(s.index, NULL, beyond, &o, "query 0 has label 5, the layer 5 classes");
    assert_refused(s.index, NULL, none, &o, "the log has no queries");
    assert_refused(s.index, NULL, all_odd, &o, "every query of the log has numbers or scores that are not finite");
    assert_refused(s.index, another, s.log, &o, "the layer is not the one that the index was built for: its checksum");
    o.ks[1] = 0;
    assert_refused(s.index, NULL, s.log, &o, "k is 0, expected 1 to 1000");
    o.ks[1] = 1001;
    assert_refused(s.index, NULL, s.log, &o, "k is 1001, expected 1 to 1000");
    o = quality();
    o.batches[0] = 65537;
    assert_refused(s.index, NULL, s.log, &o, "batch is 65537, expected 1 to 65536");
    o = quality();
    o.batch = 0;
    assert_refused(s.index, NULL, s.log, &o, "batch is 0, expected 1 to 65536");
    o = quality();
    o.n_ks = 17;
    assert_refused(s.index, NULL, s.log, &o, "17 values of k and 2 batch sizes, expected at most 16");
    o = quality();
    o.threads = 1025;
    assert_refused(s.index, NULL, s.log, &o, "threads is 1025, expected 0 to 1024");
    o.threads = -1;
    assert_refused(s.index, NULL, s.log, &o, "threads is -1, expected 0 to 1024");
    o = quality();
    o.struct_size = 0;
    wo_error err;
    wo_eval_result r = EMPTY;
    assert_int_equal(wo_evaluate(s.index, NULL, s.log, &o, &r, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the evaluation options have a struct_size of 0: it is not set");
    o = quality();
    r.struct_size = 0;
    assert_int_equal(wo_evaluate(s.index, NULL, s.log, &o, &r, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "struct_size of the result is not set");
    wo_layer_free(another);
    wo_log_free(wide);
    wo_log_free(beyond);
    wo_log_free(none);
    wo_log_free(all_odd);
    free_scene(&s);
}

static int stop_at_stage(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return strcmp(stage, ctx) == 0;
}

static void every_stage_can_be_stopped(void **state)
{
    (void)state;
    scene s = make_line();
    static char stages[][8] = {"judging", "ranking", "timing", "cold"};
    for (size_t i = 0; i < 4; i++) {
        wo_eval_options o;
        wo_eval_defaults(&o, sizeof o);
        o.rounds = 1;
        o.progress = (wo_progress){stop_at_stage, stages[i]};
        wo_eval_result r = EMPTY;
        wo_error err;
        char sentence[64];
        snprintf(sentence, sizeof sentence, "stopped while %s", stages[i]);
        assert_int_equal(wo_evaluate(s.index, NULL, s.log, &o, &r, &err), WO_ERR_CANCELLED);
        assert_string_equal(err.text, sentence);
    }
    free_scene(&s);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    scene s = make_line();
    const long alive = allocations_alive;
    wo_eval_options o;
    wo_eval_defaults(&o, sizeof o);
    o.rounds = 1;
    o.threads = 2;
    o.n_batches = 0;
    o.batch = 1;
    setenv("WIDEOUT_POWERCAP", "/nonexistent", 1);
    wo_status status = WO_ERR_MEMORY;
    for (long left = 0; status == WO_ERR_MEMORY; left++) {
        wo_eval_result r = EMPTY;
        wo_error err;
        allocations_left = left;
        status = wo_evaluate(s.index, NULL, s.log, &o, &r, &err);
        allocations_left = -1;
        assert_int_equal(allocations_alive, alive);
        assert_true(left < 200);
    }
    unsetenv("WIDEOUT_POWERCAP");
    assert_int_equal(status, WO_OK);
    free_scene(&s);
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_by_hand),
        cmocka_unit_test(without_labels_there_is_agreement),
        cmocka_unit_test(odd_queries_are_left_out),
        cmocka_unit_test(infinite_scores_are_no_answers),
        cmocka_unit_test(ties_and_repeated_labels),
        cmocka_unit_test(figures_against_slow_code),
        cmocka_unit_test(samples_follow_the_seed),
        cmocka_unit_test(timings_are_listed),
        cmocka_unit_test(energy_is_that_of_the_work),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(every_stage_can_be_stopped),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
