/* Evidence as a prior: scores against the definition in search/prior.h, by trying every class. */
#include "engine.h"

#include "search/prior.h"

enum { M = 90, D = 20, N = 300, K = 6 };
static const double CLOSE = 2e-5; /* logits are whole numbers; what the prior adds is a float */

/* ---- Searches ---------------------------------------------------------------------------------------------- */

typedef struct kind {
    int method; /* as small_options takes it */
    uint32_t nodes, leaves, beam, probes, fallback;
    double prior, focus;
    wo_weights weights;
} kind;

static const kind kinds[] = {
    {EVIDENCE_BY_TREE, 16, 4, 2, 1, 0, 1, 0, WO_WEIGHTS_F32},
    {EVIDENCE_BY_TREE, 16, 4, 2, 3, 0, 0.5, 0, WO_WEIGHTS_F32},
    {EVIDENCE_BY_TREE, 3, 10, 3, 5, 0, 1, 8, WO_WEIGHTS_F32}, /* uneven */
    {EVIDENCE_BY_TREE, 5, 9, 5, 4, 0, 2, 100, WO_WEIGHTS_BF16},
    {EVIDENCE_BY_TREE, 1, 30, 1, 6, 0, 1, 5, WO_WEIGHTS_F32}, /* flat */
    {EVIDENCE_BY_TREE, 1, 30, 1, 3, 0, 1, 0, WO_WEIGHTS_INT8},
    {WO_METHOD_EVIDENCE, 0, 0, 0, 1, 0, 1, 0, WO_WEIGHTS_F32},
    {WO_METHOD_EVIDENCE, 0, 0, 0, 1, 0, 1.5, 0, WO_WEIGHTS_INT8},
    {EVIDENCE_BY_TREE, 3, 10, 3, 2, 25, 1, 8, WO_WEIGHTS_F32}, /* some open more cells */
    {EVIDENCE_BY_TREE, 1, 30, 1, 1, 12, 1, 0, WO_WEIGHTS_F32},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static wo_index *build_kind(const scene *s, const kind *k)
{
    wo_build_options o = small_options(k->method);
    o.nodes = k->nodes;
    o.leaves = k->leaves;
    o.beam = k->beam;
    o.probes = k->probes;
    o.fallback = k->fallback;
    o.prior = k->prior;
    o.focus = k->focus;
    o.weights = k->weights;
    o.lambda = 0.02;
    o.K = 3;
    o.L = 3;
    return build(s, &o);
}

/* What a query's cells hold and add, by the definition. False where its cells cannot be told. */
static bool naive(const wo_index *index, const float *q, bool *held, double *extra)
{
    const woi_cells *cells = &index->cells;
    double *weights = room(cells->n, sizeof *weights);
    bool told = naive_weights(index, q, index->options.probes, weights);
    uint64_t queries = 0;
    for (size_t c = 0; c < cells->n; c++) queries += weights[c] > 0 ? cells->queries[c] : 0;
    if (queries < index->options.fallback)
        told = told && naive_weights(index, q, woi_wider_probes(index, index->options.probes), weights);
    naive_prior(index, weights, extra);
    memset(held, 0, index->rows.m * sizeof *held);
    for (size_t c = 0; c < cells->n; c++)
        for (uint32_t at = cells->offsets[c]; weights[c] > 0 && at < cells->offsets[c + 1]; at++)
            held[cells->ids[at]] = true;
    free(weights);
    return told;
}

/* The answers' scores are those of brute force, place by place, and each class's own score. Equal ones may come in
 * either order, but for rounding. Returns whether the classes are the same too. */
static bool assert_near(const scene *s, const float *q, const rules *r, size_t k, const int32_t *ids,
                        const float *scores)
{
    const double close = r->softmax ? 1e-5 : CLOSE;
    int32_t *expected = room(s->m, sizeof *expected);
    double *values = room(s->m, sizeof *values);
    bool same = true;
    const size_t n = brute_force(s, q, r, s->m, expected, values);
    for (size_t i = 0; i < k; i++) {
        if (i >= n) {
            assert_int_equal(ids[i], -1);
            assert_true(scores[i] == (r->softmax ? 0 : -INFINITY));
            continue;
        }
        size_t at = 0;
        while (at < n && expected[at] != ids[i]) at++;
        if (at == n) fail_msg("place %zu: class %d was not allowed", i, ids[i]);
        if (!(fabs((double)scores[i] - values[at]) <= close))
            fail_msg("class %d has %.9g, expected %.9g", ids[i], (double)scores[i], values[at]);
        same &= fabs(values[at] - values[i]) <= close;
        for (size_t other = 0; other < i; other++) assert_int_not_equal(ids[i], ids[other]);
    }
    free(expected);
    free(values);
    return same;
}

/* What a call may wish for; the masks are (m). */
typedef struct wishes {
    bool forbid, demand, bias, softmax;
} wishes;

static const int32_t forbidden[] = {3, 17, 17, 40, 71}, mandatory[] = {5, 17, 88, 5};

static asked asked_of(const wishes *w, const float *bias, int threads)
{
    asked a = {.threads = threads, .scores = w->softmax ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS};
    if (w->forbid) a.forbidden = forbidden, a.n_forbidden = 5;
    if (w->demand) a.mandatory = mandatory, a.n_mandatory = 4;
    if (w->bias) a.logit_bias = bias;
    return a;
}

/* Query i's answers by cells and by FULL against brute force. */
typedef struct both {
    int32_t *ids;
    float *scores;
    wo_query_stats *stats;
} both;

static both make_both(void)
{
    return (both){room(N * K, sizeof(int32_t)), room(N * K, sizeof(float)), room(N, sizeof(wo_query_stats))};
}

static void free_both(both *b)
{
    free(b->ids);
    free(b->scores);
    free(b->stats);
}

static void check_kind(const scene *s, const wo_index *index, const wishes *w, const float *bias)
{
    wo_error err;
    const asked a = asked_of(w, bias, 1);
    asker *searcher = create(index, &a);
    both cells = make_both(), full = make_both();
    if (ask_stats(searcher, s->q, N, K, (answers){cells.ids, cells.scores, cells.stats}, &err))
        fail_msg("%s", err.text);
    if (ask_exact(searcher, s->q, N, K, (answers){full.ids, full.scores, full.stats}, &err)) fail_msg("%s", err.text);
    size_t told = 0, same = 0;
    for (size_t i = 0; i < N; i++) {
        const float *q = s->q + i * D;
        double extra[M];
        bool held[M], all[M];
        if (!naive(index, q, held, extra)) continue;
        told++;
        for (size_t j = 0; j < M; j++) all[j] = true;
        for (size_t j = 0; w->demand && j < 4; j++) held[mandatory[j]] = true;
        for (size_t j = 0; w->forbid && j < 5; j++) all[forbidden[j]] = held[forbidden[j]] = false;
        const float *more = w->bias ? bias : NULL;
        size_t n = 0;
        for (size_t j = 0; j < M; j++) n += held[j];
        assert_int_equal(cells.stats[i].candidates, n);
        assert_int_equal(cells.stats[i].exact, 0);
        assert_int_equal(full.stats[i].exact, 1);
        same += assert_near(s, q, &(rules){held, more, w->softmax, extra}, K, cells.ids + i * K, cells.scores + i * K);
        assert_true(
            assert_near(s, q, &(rules){all, more, w->softmax, extra}, K, full.ids + i * K, full.scores + i * K));
        for (size_t x = 0; !w->softmax && x < K * K; x++) /* a class has one score, whoever computes it */
            if (cells.ids[i * K + x / K] >= 0 && cells.ids[i * K + x / K] == full.ids[i * K + x % K])
                assert_true(cells.scores[i * K + x / K] == full.scores[i * K + x % K]);
    }
    assert_true(told > N / 2);
    assert_true(same >= (index->small.i8 ? told - told / 50 : told)); /* int8 may miss a few in its screen */
    free_both(&cells);
    free_both(&full);
    free_asker(searcher);
}

static void scores_are_as_defined(void **state)
{
    (void)state;
    scene s = make_scene(M, D, N, true, 40);
    float bias[M];
    for (size_t j = 0; j < M; j++) bias[j] = whole(41, 1, j, 6);
    for (size_t at = 0; at < N_KINDS; at++) {
        wo_index *index = build_kind(&s, &kinds[at]);
        for (unsigned wish = 0; wish < 16; wish++)
            check_kind(&s, index, &(wishes){wish & 1, wish >> 1 & 1, wish >> 2 & 1, wish >> 3 & 1}, bias);
        wo_index_free(index);
    }
    free_scene(&s);
}

static void assert_same_answers(const both *a, const both *b)
{
    assert_memory_equal(a->ids, b->ids, N * K * sizeof *a->ids);
    assert_memory_equal(a->scores, b->scores, N * K * sizeof *a->scores);
}

static void by(asker *searcher, bool full, size_t first, size_t n, const scene *s, const both *to)
{
    wo_error err;
    const answers at = {to->ids + first * K, to->scores + first * K, to->stats + first};
    if ((full ? ask_exact : ask_stats)(searcher, s->q + first * D, n, K, at, &err)) fail_msg("%s", err.text);
}

/* Neither how many queries come at once, nor how many threads answer them, nor a file in between. */
static void batches_threads_and_files_change_nothing(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(M, D, N, true, 42);
    for (size_t at = 0; at < 4 * N_KINDS; at++) {
        const bool full = at / 2 % 2;
        const wishes w = {.softmax = at % 2, .demand = true};
        const asked a = asked_of(&w, NULL, 1), two = asked_of(&w, NULL, 2);
        wo_index *index = build_kind(&s, &kinds[at / 4]), *opened = NULL;
        asker *searcher = create(index, &a), *pair = create(index, &two);
        both expected = make_both(), other = make_both();
        by(searcher, full, 0, N, &s, &expected);
        by(pair, full, 0, N, &s, &other);
        assert_same_answers(&expected, &other);
        if (!w.softmax) /* whose sums are of another order in a batch */
            for (size_t i = 0; i < N; i++) by(searcher, full, i, 1, &s, &other);
        assert_same_answers(&expected, &other);
        if (wo_index_save(index, scratch("index"), &err)) fail_msg("%s", err.text);
        const wo_open_options with = {.struct_size = sizeof with, /* bf16 rows have no f32 ones beside them */
                                      .layer = kinds[at / 4].weights == WO_WEIGHTS_BF16 ? s.layer : NULL};
        if (wo_index_open(scratch("index"), &with, &opened, &err)) fail_msg("%s", err.text);
        asker *again = create(opened, &a);
        memset(other.ids, 0, N * K * sizeof *other.ids);
        by(again, full, 0, N, &s, &other);
        assert_same_answers(&expected, &other);
        free_asker(again);
        wo_index_free(opened);
        free_both(&expected);
        free_both(&other);
        free_asker(searcher);
        free_asker(pair);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* no_prior: logits to the last bit, of the same candidates; what the index has otherwise is not touched. */
static void a_call_may_do_without_the_prior(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(M, D, N, true, 43);
    for (size_t at = 0; at < N_KINDS; at++) {
        if (kinds[at].weights == WO_WEIGHTS_INT8) continue; /* whose screen may miss one */
        wo_index *index = build_kind(&s, &kinds[at]);
        asker *without = create(index, &(asked){.threads = 1, .no_prior = 1}), *with = create(index, NULL);
        both plain = make_both(), full = make_both(), usual = make_both();
        by(without, false, 0, N, &s, &plain);
        by(without, true, 0, N, &s, &full);
        by(with, false, 0, N, &s, &usual);
        size_t told = 0, changed = 0;
        for (size_t i = 0; i < N; i++) {
            bool held[M];
            double extra[M];
            assert_answer(&s, s.q + i * D, &(rules){0}, K, full.ids + i * K, full.scores + i * K);
            if (!naive(index, s.q + i * D, held, extra)) continue;
            assert_answer(&s, s.q + i * D, &(rules){.allowed = held}, K, plain.ids + i * K, plain.scores + i * K);
            told++;
            changed += memcmp(plain.ids + i * K, usual.ids + i * K, K * sizeof *plain.ids) != 0;
        }
        assert_true(told > N / 2 && changed > told / 20);
        int32_t ids[M];
        size_t n;
        assert_int_equal(ask_candidates(with, s.q, ids, M, &n, &err), WO_OK);
        assert_int_equal(n, usual.stats[0].candidates);
        free_both(&plain);
        free_both(&full);
        free_both(&usual);
        free_asker(without);
        free_asker(with);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* Probabilities of all classes, FULL's, sum to 1, those of the candidates to 1 among them. */
static void probabilities_sum_to_one(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(M, D, N, true, 44);
    for (size_t at = 0; at < N_KINDS; at++) {
        wo_index *index = build_kind(&s, &kinds[at]);
        asker *searcher = create(index, &(asked){.threads = 1, .scores = WO_SCORES_SOFTMAX});
        int32_t ids[M];
        float scores[M];
        for (size_t i = 0; i < 2 * N; i++) {
            double sum = 0;
            const answers to = {ids, scores, NULL};
            assert_int_equal((i % 2 ? ask_exact : ask_stats)(searcher, s.q + i / 2 * D, 1, M, to, &err), WO_OK);
            for (size_t j = 0; j < M; j++) sum += (double)scores[j];
            if (!(fabs(sum - 1) < 2e-5)) fail_msg("kind %zu, query %zu: the sum is %.9g", at, i / 2, sum);
        }
        free_asker(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* Queries with little evidence that FULL answers instead: with the prior, too. */
static void full_answers_where_evidence_is_little(void **state)
{
    (void)state;
    scene s = make_scene(M, D, N, true, 45);
    wo_index *index = build_kind(&s, &kinds[8]);
    asker *searcher = create(index, &(asked){.threads = 2, .exact_fallback = 1}), *plain = create(index, NULL);
    both fallback = make_both(), full = make_both(), cells = make_both();
    by(searcher, false, 0, N, &s, &fallback);
    by(plain, true, 0, N, &s, &full);
    by(plain, false, 0, N, &s, &cells);
    size_t exact = 0;
    for (size_t i = 0; i < N; i++) {
        const both *expected = fallback.stats[i].exact ? &full : &cells;
        assert_int_equal(fallback.stats[i].exact, cells.stats[i].wider);
        assert_memory_equal(fallback.ids + i * K, expected->ids + i * K, K * sizeof *full.ids);
        assert_memory_equal(fallback.scores + i * K, expected->scores + i * K, K * sizeof *full.scores);
        exact += fallback.stats[i].exact;
    }
    assert_true(exact > N / 20 && exact < N);
    free_both(&fallback);
    free_both(&full);
    free_both(&cells);
    free_asker(searcher);
    free_asker(plain);
    wo_index_free(index);
    free_scene(&s);
}

/* Places in the union are counted on from query to query, and begin again before the numbers end. */
static void old_places_do_not_hide_classes(void **state)
{
    (void)state;
    scene s = make_scene(M, D, N, false, 46);
    wo_index *index = build_kind(&s, &kinds[2]);
    asker *searcher = create(index, &(asked){.threads = 1});
    both expected = make_both(), other = make_both();
    by(searcher, false, 0, N, &s, &expected);
    woi_worker *w = &searcher->searcher->workers[0];
    for (uint32_t left = 0; left < 2 * M; left += 7) {
        w->next_spot = UINT32_MAX - left;
        by(searcher, left % 2, 0, 3, &s, &other); /* FULL's path unites too */
        by(searcher, false, 0, N, &s, &other);
        assert_same_answers(&expected, &other);
    }
    free_both(&expected);
    free_both(&other);
    free_asker(searcher);
    wo_index_free(index);
    free_scene(&s);
}

static void what_is_not_finite_is_no_query(void **state)
{
    (void)state;
    scene s = make_scene(M, D, N, true, 47);
    wo_index *index = build_kind(&s, &kinds[2]);
    for (int i = 0; i < 4; i++) {
        asker *searcher = create(index, &(asked){.threads = 1, .scores = i / 2 ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS});
        both expected = make_both(), other = make_both();
        by(searcher, i % 2, 0, N, &s, &expected);
        const float before = s.q[7 * D + 3];
        s.q[7 * D + 3] = NAN;
        by(searcher, i % 2, 0, N, &s, &other);
        s.q[7 * D + 3] = before;
        assert_int_equal(other.stats[7].status, WO_ERR_ARGUMENT);
        for (size_t j = 7 * K; j < 8 * K; j++) {
            assert_int_equal(other.ids[j], -1);
            assert_true(other.scores[j] == (i / 2 ? 0 : -INFINITY));
        }
        memcpy(other.ids + 7 * K, expected.ids + 7 * K, K * sizeof *other.ids);
        memcpy(other.scores + 7 * K, expected.scores + 7 * K, K * sizeof *other.scores);
        assert_same_answers(&expected, &other);
        free_both(&expected);
        free_both(&other);
        free_asker(searcher);
    }
    wo_index_free(index);
    free_scene(&s);
}

/* There is evidence in the cells of evidence alone. */
static void other_methods_have_no_prior(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(M, D, N, true, 48);
    for (int method = WO_METHOD_FULL; method < WO_METHOD_EVIDENCE; method++) {
        wo_build_options o = small_options(method);
        wo_index *index = NULL;
        char sentence[96];
        o.prior = 0.5;
        snprintf(sentence, sizeof sentence, "prior is 0.5, but method %s counts no evidence",
                 woi_method_name((wo_method)method));
        assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_ERR_ARGUMENT);
        assert_string_equal(err.text, sentence);
        assert_string_equal(err.option, "prior");
    }
    free_scene(&s);
}

/* A prior costs two bytes a class of a cell, and changes nothing else there. */
static void without_a_prior_there_are_no_shares(void **state)
{
    (void)state;
    scene s = make_scene(M, D, N, true, 49);
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    wo_index *plain = build(&s, &o);
    assert_null(plain->cells.shares);
    wo_index_info few = {.struct_size = sizeof few}, many = few;
    wo_index_describe(plain, &few);
    o.prior = 1e-3;
    wo_index *index = build(&s, &o);
    assert_non_null(index->cells.shares);
    wo_index_describe(index, &many);
    assert_int_equal(many.n_entries, few.n_entries);
    assert_int_equal(many.index_bytes, few.index_bytes + 2 * few.n_entries);
    assert_memory_equal(plain->cells.ids, index->cells.ids, few.n_entries * sizeof(int32_t));
    wo_index_free(plain);
    wo_index_free(index);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_as_defined),
        cmocka_unit_test(batches_threads_and_files_change_nothing),
        cmocka_unit_test(a_call_may_do_without_the_prior),
        cmocka_unit_test(probabilities_sum_to_one),
        cmocka_unit_test(full_answers_where_evidence_is_little),
        cmocka_unit_test(old_places_do_not_hide_classes),
        cmocka_unit_test(what_is_not_finite_is_no_query),
        cmocka_unit_test(other_methods_have_no_prior),
        cmocka_unit_test(without_a_prior_there_are_no_shares),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
