/* Queries that know little, with fallback_by screen: candidates are those of more cells and the best of all classes in
 * int8. References: an index that only opens more cells, the screen's definition, and FULL. */
#include "engine.h"

#include "search/searcher.h"

enum { M = 90, D = 20, N = 300, K = 6 };

typedef struct kind {
    int method; /* as small_options takes it */
    uint32_t nodes, leaves, probes, fallback;
    double prior, focus;
    wo_weights weights;
} kind;

static const kind kinds[] = {
    {EVIDENCE_BY_TREE, 3, 10, 2, 25, 0, 0, WO_WEIGHTS_F32},   {EVIDENCE_BY_TREE, 1, 30, 1, 12, 0, 0, WO_WEIGHTS_BF16},
    {EVIDENCE_BY_TREE, 3, 10, 2, 25, 1, 8, WO_WEIGHTS_F32},   {EVIDENCE_BY_TREE, 1, 30, 1, 12, 1, 0, WO_WEIGHTS_NONE},
    {EVIDENCE_BY_TREE, 1, 30, 2, 900, 0, 0, WO_WEIGHTS_F32}, /* all of them, more than are gathered at once */
    {WO_METHOD_EVIDENCE, 0, 0, 1, 130, 0, 0, WO_WEIGHTS_F32}, {WO_METHOD_EVIDENCE, 0, 0, 1, 130, 1, 0, WO_WEIGHTS_F32},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static wo_build_options options_of(const kind *k, wo_fallback by)
{
    wo_build_options o = small_options(k->method);
    o.nodes = k->nodes;
    o.leaves = k->leaves;
    o.beam = 3;
    o.probes = k->probes;
    o.fallback = k->fallback;
    o.fallback_by = by;
    o.prior = k->prior;
    o.focus = k->focus;
    o.weights = k->weights;
    o.lambda = 0.1;
    o.source = WO_SOURCE_LABELS; /* so that cells lack much of what FULL answers */
    o.K = 3;
    o.L = 3;
    return o;
}

static wo_index *build_kind(const scene *s, const kind *k, wo_fallback by)
{
    const wo_build_options o = options_of(k, by);
    return build(s, &o);
}

/* What a call wishes for. */
static const int32_t forbidden[] = {3, 17, 17, 40, 71}, mandatory[] = {5, 17, 88, 5};

static asked wishes(unsigned which, const float *bias, int threads)
{
    asked a = {.threads = threads};
    if (which & 1) a.forbidden = forbidden, a.n_forbidden = 5;
    if (which & 2) a.mandatory = mandatory, a.n_mandatory = 4;
    if (which & 4) a.logit_bias = bias;
    return a;
}

static bool is_forbidden(const asked *a, size_t class)
{
    for (size_t i = 0; i < a->n_forbidden; i++)
        if (a->forbidden[i] == (int32_t) class) return true;
    return false;
}

/* Adds the best of all classes in int8 to `held`: rows and the query rounded to 255 steps, an exact sum. */
static void add_screened(const scene *s, const float *q, const asked *a, bool *held)
{
    const woi_kernels *kernels = woi_kernels_get(NULL);
    int8_t bytes[D], row[D];
    float scores[M];
    bool taken[M] = {false};
    const float q_scale = kernels->quantise(q, D, bytes);
    for (size_t c = 0; c < M; c++) {
        const float scale = kernels->quantise(s->w + c * D, D, row);
        long sum = 0;
        for (size_t j = 0; j < D; j++) sum += (long)bytes[j] * row[j];
        scores[c] = fmaf((float)sum, q_scale * scale, s->b[c] + (a->logit_bias ? a->logit_bias[c] : 0));
    }
    for (size_t place = 0; place < K + K / 8 + 11; place++) {
        size_t best = M;
        for (size_t c = 0; c < M; c++)
            if (!taken[c] && !is_forbidden(a, c) && (best == M || scores[c] > scores[best])) best = c;
        taken[best] = held[best] = true;
    }
}

/* The answers of a searcher to all queries. */
typedef struct given {
    int32_t ids[N * K];
    float scores[N * K];
    wo_query_stats stats[N];
} given;

static given *ask_all(asker *searcher, const scene *s, size_t at_once)
{
    given *to = room(1, sizeof *to);
    wo_error err;
    for (size_t i = 0; i < N; i += at_once) {
        const answers at = {to->ids + i * K, to->scores + i * K, to->stats + i};
        const size_t n = N - i < at_once ? N - i : at_once;
        if (ask_stats(searcher, s->q + i * D, n, K, at, &err)) fail_msg("%s", err.text);
    }
    return to;
}

/* The best K of the classes held, by FULL's scores. */
static void assert_best(const bool *held, const int32_t *full_ids, const float *full_scores, const int32_t *ids,
                        const float *scores)
{
    size_t place = 0;
    for (size_t j = 0; j < M && full_ids[j] >= 0 && place < K; j++) {
        if (!held[full_ids[j]]) continue;
        if (ids[place] != full_ids[j] || scores[place] != full_scores[j])
            fail_msg("place %zu: class %d with %.9g, expected %d with %.9g", place, ids[place], (double)scores[place],
                     full_ids[j], (double)full_scores[j]);
        place++;
    }
    for (; place < K; place++) assert_int_equal(ids[place], -1);
}

static size_t list(asker *searcher, const float *q, int32_t *ids)
{
    wo_error err;
    size_t n;
    wo_search_call call = call_of(searcher, q, 1);
    call.k = K;
    if (wo_search_candidates(searcher->searcher, &call, ids, M, &n, &err)) fail_msg("%s", err.text);
    return n;
}

static void check_kind(const scene *s, const kind *k, unsigned which, const float *bias)
{
    wo_error err;
    wo_index *wider = build_kind(s, k, WO_FALLBACK_WIDER), *screened = build_kind(s, k, WO_FALLBACK_SCREEN);
    const asked a = wishes(which, bias, 1);
    asker *plain = create(wider, &a), *own = create(screened, &a);
    given *before = ask_all(plain, s, N), *after = ask_all(own, s, N);
    size_t little = 0, changed = 0;
    for (size_t i = 0; i < N; i++) {
        const float *q = s->q + i * D;
        int32_t ids[M], full_ids[M];
        float full_scores[M];
        bool held[M] = {false};
        if (ask_exact(plain, q, 1, M, (answers){full_ids, full_scores, NULL}, &err)) fail_msg("%s", err.text);
        const size_t by_cells = list(plain, q, ids);
        for (size_t j = 0; j < by_cells; j++) held[ids[j]] = true;
        if (before->stats[i].wider) add_screened(s, q, &a, held);
        size_t n = 0;
        for (size_t c = 0; c < M; c++) n += held[c];
        assert_best(held, full_ids, full_scores, after->ids + i * K, after->scores + i * K);
        assert_int_equal(after->stats[i].candidates, n);
        assert_int_equal(after->stats[i].wider, before->stats[i].wider);
        assert_int_equal(after->stats[i].cells, before->stats[i].cells);
        assert_int_equal(after->stats[i].exact, 0);
        assert_int_equal(list(own, q, ids), n);
        for (size_t j = 0; j < n; j++) {
            assert_true(held[ids[j]]);
            held[ids[j]] = false; /* each once */
        }
        little += before->stats[i].wider;
        changed += memcmp(before->ids + i * K, after->ids + i * K, K * sizeof *before->ids) != 0;
    }
    assert_true(little > N / 20 && (little < N || k->fallback == 900) && changed > little / 4);
    free(before);
    free(after);
    free_asker(plain);
    free_asker(own);
    wo_index_free(wider);
    wo_index_free(screened);
}

static void candidates_are_those_of_cells_and_the_screen(void **state)
{
    (void)state;
    scene s = make_scene(M, D, N, true, 60);
    float bias[M];
    for (size_t j = 0; j < M; j++) bias[j] = whole(61, 1, j, 6);
    for (size_t at = 0; at < N_KINDS; at++)
        for (unsigned which = 0; which < 8; which++) check_kind(&s, &kinds[at], which, bias);
    free_scene(&s);
}

/* Neither how many queries come at once, nor how many threads answer them, nor a file in between. */
static void batches_threads_and_files_change_nothing(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(M, D, N, true, 62);
    for (size_t at = 0; at < N_KINDS; at++) {
        wo_index *index = build_kind(&s, &kinds[at], WO_FALLBACK_SCREEN), *opened = NULL;
        if (wo_index_save(index, scratch("index"), &err)) fail_msg("%s", err.text);
        const wo_open_options with = {.struct_size = sizeof with, .layer = s.layer};
        if (wo_index_open(scratch("index"), &with, &opened, &err)) fail_msg("%s", err.text);
        assert_int_equal(opened->options.fallback_by, WO_FALLBACK_SCREEN);
        const asked a = wishes(2, NULL, 1), two = wishes(2, NULL, 2);
        asker *one = create(index, &a), *pair = create(index, &two), *again = create(opened, &a);
        given *all[] = {ask_all(one, &s, N), ask_all(pair, &s, N), ask_all(again, &s, N), ask_all(one, &s, 1),
                        ask_all(pair, &s, 7)};
        for (size_t i = 1; i < sizeof all / sizeof *all; i++) assert_memory_equal(all[0], all[i], sizeof *all[0]);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
        free_asker(one);
        free_asker(pair);
        free_asker(again);
        wo_index_free(index);
        wo_index_free(opened);
    }
    free_scene(&s);
}

/* Softmax is relative to the candidates of cells; FULL answers where the call says so; and with very many answers there
 * is no use in a screen. */
static void where_the_screen_has_no_part(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(M, D, N, true, 63);
    wo_index *wider = build_kind(&s, &kinds[2], WO_FALLBACK_WIDER),
             *screened = build_kind(&s, &kinds[2], WO_FALLBACK_SCREEN);
    const asked softmax = {.threads = 1, .scores = WO_SCORES_SOFTMAX}, exact = {.threads = 1, .exact_fallback = 1};
    const asked *const both[] = {&softmax, &exact};
    for (size_t i = 0; i < 2; i++) {
        asker *plain = create(wider, both[i]), *own = create(screened, both[i]);
        given *expected = ask_all(plain, &s, N), *got = ask_all(own, &s, N);
        assert_memory_equal(expected, got, sizeof *got);
        free(expected);
        free(got);
        free_asker(plain);
        free_asker(own);
    }
    asker *plain = create(wider, NULL), *own = create(screened, NULL);
    int32_t ids[2][M];
    float scores[2][M];
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(ask(plain, s.q + i * D, 1, M, (answers){ids[0], scores[0], NULL}, &err), WO_OK);
        assert_int_equal(ask(own, s.q + i * D, 1, M, (answers){ids[1], scores[1], NULL}, &err), WO_OK);
        assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
        assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    }
    free_asker(plain);
    free_asker(own);
    wo_index_free(wider);
    wo_index_free(screened);
    free_scene(&s);
}

/* log Z is learned, and estimated, by cells alone. */
static void log_z_is_that_of_the_cells(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(M, D, N, true, 64);
    wo_index *both[2];
    float log_z[2][N];
    for (int i = 0; i < 2; i++) {
        wo_build_options o = options_of(&kinds[0], i ? WO_FALLBACK_SCREEN : WO_FALLBACK_WIDER);
        o.partition = 1;
        both[i] = build(&s, &o);
        asker *searcher = create(both[i], NULL);
        const wo_search_call call = call_of(searcher, s.q, N);
        if (wo_log_partition(searcher->searcher, &call, log_z[i], &err)) fail_msg("%s", err.text);
        free_asker(searcher);
    }
    assert_memory_equal(both[0]->partition.numbers, both[1]->partition.numbers, WOI_LOG_Z_NUMBERS * sizeof(float));
    assert_memory_equal(log_z[0], log_z[1], sizeof log_z[0]);
    for (int i = 0; i < 2; i++) wo_index_free(both[i]);
    free_scene(&s);
}

static void what_is_refused(void **state)
{
    (void)state;
    wo_error err;
    wo_index *index = NULL;
    scene s = make_scene(M, D, N, true, 65);
    wo_build_options o = options_of(&kinds[0], WO_FALLBACK_SCREEN);
    o.fallback = 0;
    assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "fallback_by is screen, but fallback is 0: no query knows little");
    assert_string_equal(err.option, "fallback_by");
    o.fallback_by = (wo_fallback)2;
    assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "fallback_by is 2, expected 0 to 1");
    free_scene(&s);
    s = make_scene(3, 131072, 4, false, 66);
    o = options_of(&kinds[5], WO_FALLBACK_SCREEN);
    assert_int_equal(wo_index_build(s.layer, s.log, &o, &index, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "rows of 131072 numbers are too long for int8: at most 131071");
    assert_string_equal(err.option, "fallback_by");
    assert_null(index);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_are_those_of_cells_and_the_screen),
        cmocka_unit_test(batches_threads_and_files_change_nothing),
        cmocka_unit_test(where_the_screen_has_no_part),
        cmocka_unit_test(log_z_is_that_of_the_cells),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
