/* search/mixture: probabilities by their definition, sums over all classes, the mix that is chosen, where it is 0, what
 * switches it off, threads and files, evaluation, tuning. */
#include "testing.h"

#include "base/rng.h"
#include "build/mixture_learn.h"
#include "search/search.h"

#include <math.h>

enum { M = 300, D = 8, N = 3000, TEST = 300, GROUPS = 16, LABELS = 3 };
#include "planted.h"

/* Queries around the directions of groups. A group has classes that the network knows nothing of: half of its labels
 * are one of these, the others are drawn from the network's own probabilities; all of them where `known`. */
static int32_t draw(const planted *p, const float *q, double at)
{
    const double log_z = exact_log_z(p, q);
    for (size_t c = 0; c + 1 < M; c++)
        if ((at -= exp(logit_of(p, q, c) - log_z)) < 0) return (int32_t)c;
    return M - 1;
}

static planted *plant(bool known, size_t n_labels)
{
    planted *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (uint64_t i = 0; i < M * D; i++) p->w[i] = 0.4f * woi_rng_normal(1, 1, i);
    for (uint64_t i = 0; i < M; i++) p->b[i] = woi_rng_normal(1, 2, i);
    for (uint64_t i = 0; i < N + TEST; i++) {
        const uint64_t group = woi_rng_below(1, 3, i, GROUPS);
        for (uint64_t j = 0; j < D; j++)
            p->q[i * D + j] = 2 * woi_rng_normal(1, 4, group * D + j) + 0.3f * woi_rng_normal(1, 5, i * D + j);
        for (uint64_t l = 0; l < n_labels; l++) {
            const uint64_t at = i * n_labels + l;
            const bool own = known || woi_rng_below(1, 6, at, 2);
            p->labels[at] = own ? draw(p, p->q + i * D, (double)woi_rng_uniform(1, 7, at))
                                : (int32_t)((group * 5 + woi_rng_below(1, 8, at, 5)) % M);
        }
    }
    take_root(p, n_labels);
    return p;
}

static wo_build_options options_of(wo_router router, double mix)
{
    wo_build_options o = small_options(router, 3);
    o.lambda = 0.02;
    o.mix = mix;
    return o;
}

/* What a search says of one query: log p of all M classes, candidates first by themselves, -INFINITY for others; and
 * log Z. */
typedef struct answers {
    double of[M], log_z;
    size_t n;
} answers;

static answers ask(wo_searcher *s, const float *q, wo_by by, int no_prior)
{
    static int32_t ids[M];
    static float scores[M];
    float log_z;
    wo_error err;
    answers a = {.n = 0};
    const wo_search_call call = {.struct_size = sizeof call,
                                 .queries = q,
                                 .n = 1,
                                 .k = M,
                                 .ids = ids,
                                 .scores = scores,
                                 .by = by,
                                 .score = WO_SCORES_LOGPROB,
                                 .no_prior = no_prior};
    if (wo_search_run(s, &call, &err) || wo_log_partition(s, &call, &log_z, &err)) fail_msg("%s", err.text);
    for (size_t c = 0; c < M; c++) a.of[c] = -INFINITY;
    for (; a.n < M && ids[a.n] >= 0; a.n++) {
        a.of[ids[a.n]] = (double)scores[a.n];
        assert_true(a.n == 0 || scores[a.n] <= scores[a.n - 1]);
    }
    a.log_z = (double)log_z;
    return a;
}

/* The shares of all classes for a query whose cells count alike, and their sum; both at most 1 together. */
static double shares_of(wo_searcher *s, const float *q, double *shares)
{
    const woi_cells *cells = &s->index->cells;
    double of_candidates, sum = 0;
    uint32_t n_cells, opened[64];
    woi_search_see(s, q, 1, &(woi_seen){&of_candidates, &n_cells, opened, 64});
    memset(shares, 0, M * sizeof *shares);
    for (uint32_t c = 0; c < n_cells; c++)
        for (uint32_t at = cells->offsets[opened[c]]; at < cells->offsets[opened[c] + 1]; at++) {
            const uint32_t bits = (uint32_t)cells->shares[at] << 16;
            float share;
            memcpy(&share, &bits, sizeof share);
            shares[cells->ids[at]] += (double)share / n_cells;
        }
    for (size_t c = 0; c < M; c++) sum += shares[c];
    for (size_t c = 0; c < M && sum > 1; c++) shares[c] /= sum;
    return sum > 1 ? 1 : sum;
}

static void assert_as_defined(const planted *p, const wo_index *index, double *lightest)
{
    wo_searcher *s = searcher_of(index);
    const double mix = index->options.mix;
    for (size_t i = 0; i < TEST; i++) {
        const float *q = p->q + (N + i) * D;
        double shares[M], sum = 0;
        const double exact = exact_log_z(p, q);
        const double mass = shares_of(s, q, shares), log_z = ask(s, q, WO_BY_CELLS, 1).log_z;
        const answers a = ask(s, q, WO_BY_CELLS, 0);
        assert_float_equal(a.log_z, log_z - log(1 - mix * mass), 2e-5);
        for (size_t c = 0; c < M; c++) {
            const double net = exp(logit_of(p, q, c) - log_z);
            const double defined = (1 - mix * mass) * net + mix * shares[c];
            if (a.of[c] == -INFINITY) assert_true(shares[c] == 0); /* else it would be a candidate */
            const double log_p = a.of[c] == -INFINITY ? logit_of(p, q, c) - a.log_z : a.of[c];
            assert_float_equal(log_p, log(defined), 5e-5);
            sum += exp(log_p);
        }
        /* To 1, but for what log Z is off. */
        assert_float_equal(sum, (1 - mix * mass) * exp(exact - log_z) + mix * mass, 1e-4);
        *lightest = fmin(*lightest, mass);
        /* The network's own are as they were, and FULL's exact. */
        const answers plain = ask(s, q, WO_BY_CELLS, 1), full = ask(s, q, WO_BY_FULL, 0);
        assert_int_equal(full.n, M);
        for (size_t c = 0; c < M; c++) {
            assert_float_equal(full.of[c], logit_of(p, q, c) - exact, 5e-5);
            if (plain.of[c] > -INFINITY) assert_float_equal(plain.of[c], logit_of(p, q, c) - log_z, 5e-5);
        }
    }
    wo_searcher_free(s);
}

static void probabilities_are_as_defined(void **state)
{
    (void)state;
    for (size_t n_labels = 1; n_labels <= LABELS; n_labels += LABELS - 1) {
        planted *p = plant(false, n_labels);
        for (int kind = 0; kind < 6; kind++) {
            wo_build_options o = options_of(kind % 2 ? WO_ROUTER_TREE : WO_ROUTER_HASH, kind < 4 ? 0.3 : 0.9);
            o.source = kind < 2 ? WO_SOURCE_BOTH : WO_SOURCE_LABELS;
            o.prior = kind < 4 ? 0 : 0.5; /* which is in no probability */
            if (kind == 3) o.cap = 3;
            if (kind == 5) o.fallback = 60;
            wo_index *index = make(p, &o);
            double lightest = 1;
            assert_as_defined(p, index, &lightest);
            if (n_labels == 1) assert_true(lightest < (kind == 3 ? 0.5 : 1)); /* the cap leaves classes out */
            wo_index_free(index);
        }
        uproot(p);
    }
}

/* With cells that count by how near they are: sums alone. */
static void near_cells_count_more(void **state)
{
    (void)state;
    planted *p = plant(false, 1);
    wo_build_options o = options_of(WO_ROUTER_TREE, 0.4);
    wo_index *even = make(p, &o);
    o.focus = 20;
    wo_index *index = make(p, &o);
    wo_searcher *s = searcher_of(index), *s_even = searcher_of(even);
    double differ = 0;
    for (size_t i = 0; i < TEST; i++) {
        const float *q = p->q + (N + i) * D;
        const answers plain = ask(s, q, WO_BY_CELLS, 1), a = ask(s, q, WO_BY_CELLS, 0),
                      b = ask(s_even, q, WO_BY_CELLS, 0);
        double sum = 0;
        for (size_t c = 0; c < M; c++) {
            sum += exp(a.of[c] == -INFINITY ? logit_of(p, q, c) - a.log_z : a.of[c]);
            if (a.of[c] > -INFINITY) differ = fmax(differ, fabs(a.of[c] - b.of[c]));
        }
        const double kept = exp(plain.log_z - a.log_z);
        assert_float_equal(sum, kept * exp(exact_log_z(p, q) - plain.log_z) + 1 - kept, 1e-4);
    }
    assert_true(differ > 0.05);
    wo_searcher_free(s);
    wo_searcher_free(s_even);
    wo_index_free(index);
    wo_index_free(even);
    uproot(p);
}

/* The log likelihood of the test labels by the definition, with exact log Z. */
static double likelihood(const planted *p, wo_searcher *s, double mix)
{
    double sum = 0;
    for (size_t i = 0; i < TEST; i++) {
        const float *q = p->q + (N + i) * D;
        double shares[M];
        const double mass = shares_of(s, q, shares);
        const int32_t label = p->labels[N + i];
        const double net = exp(logit_of(p, q, (size_t)label) - exact_log_z(p, q));
        sum += log((1 - mix * mass) * net + mix * shares[label]);
    }
    return sum;
}

static void the_most_likely_is_chosen(void **state)
{
    (void)state;
    planted *p = plant(false, 1);
    for (int router = WO_ROUTER_HASH; router <= WO_ROUTER_TREE; router++) {
        const wo_build_options o = options_of((wo_router)router, -1);
        wo_index *index = make(p, &o);
        wo_searcher *s = searcher_of(index);
        wo_error err;
        double mix;
        if (woi_mixture_choose(index, &(woi_mixture_call){.log = p->test, .n = TEST, .threads = 1}, &mix, &err))
            fail_msg("%s", err.text);
        assert_true(mix > 0.2 && mix < 0.8); /* half of the labels are in the cells alone */
        assert_true(likelihood(p, s, mix) > likelihood(p, s, mix - 0.01));
        assert_true(likelihood(p, s, mix) > likelihood(p, s, mix + 0.01));
        assert_float_equal(index->options.mix, mix, 0.15); /* by held-out queries of the log */
        wo_searcher_free(s);
        wo_index_free(index);
    }
    uproot(p);
}

/* Labels as the network has them leave nothing to gain, and the file has no shares then. */
static void nothing_is_mixed_where_nothing_is_gained(void **state)
{
    (void)state;
    planted *p = plant(true, 1);
    const wo_build_options o = options_of(WO_ROUTER_TREE, -1);
    wo_index *index = make(p, &o), *again = NULL;
    wo_error err;
    assert_true(index->options.mix == 0);
    assert_null(index->cells.shares);
    if (wo_index_save(index, scratch("none"), &err) || wo_index_open(scratch("none"), NULL, &again, &err))
        fail_msg("%s", err.text);
    assert_true(again->options.mix == 0);
    size_t bytes;
    char *file = slurp(scratch("none"), &bytes);
    assert_null(memmem(file, bytes, "mixture", 7));
    free(file);
    wo_index_free(again);
    wo_index_free(index);
    uproot(p);
}

static void odd_logs(void **state)
{
    (void)state;
    planted *p = plant(false, 1);
    const wo_build_options o = options_of(WO_ROUTER_TREE, -1);
    for (int kind = 0; kind < 3; kind++) {
        wo_log *log = NULL;
        wo_index *index = NULL;
        wo_error err;
        const size_t n = kind == 0 ? 1 : kind == 1 ? 9 : 400;
        if (wo_log_wrap(p->q, n, D, kind < 2 ? p->indptr : NULL, kind < 2 ? p->labels : NULL, &log, &err) ||
            wo_index_build(p->layer, log, &o, &index, &err))
            fail_msg("%s", err.text);
        assert_true(index->options.mix == 0); /* too few to hold any out; without labels */
        wo_index_free(index);
        wo_log_free(log);
    }
    uproot(p);
}

static void threads_and_files_change_nothing(void **state)
{
    (void)state;
    planted *p = plant(false, 1);
    wo_error err;
    size_t bytes[2];
    char *files[2];
    for (int t = 0; t < 2; t++) {
        wo_build_options o = options_of(WO_ROUTER_TREE, -1);
        o.threads = 1 + 2 * t;
        wo_index *index = make(p, &o), *opened = NULL;
        if (wo_index_save(index, scratch("x"), &err) || wo_index_open(scratch("x"), NULL, &opened, &err) ||
            wo_index_save(opened, scratch("y"), &err))
            fail_msg("%s", err.text);
        assert_true(opened->options.mix == index->options.mix && opened->options.mix > 0);
        files[t] = slurp(scratch("x"), &bytes[t]);
        assert_non_null(memmem(files[t], bytes[t], "mixture,partition", 17)); /* older readers are told */
        size_t again_bytes;
        char *again = slurp(scratch("y"), &again_bytes);
        assert_int_equal(again_bytes, bytes[t]);
        assert_memory_equal(again, files[t], bytes[t]);
        free(again);
        wo_searcher *s = searcher_of(index), *s_opened = searcher_of(opened);
        for (size_t i = 0; i < TEST; i++) {
            const float *q = p->q + (N + i) * D;
            const answers a = ask(s, q, WO_BY_CELLS, 0), b = ask(s_opened, q, WO_BY_CELLS, 0);
            assert_memory_equal(a.of, b.of, sizeof a.of);
        }
        wo_searcher_free(s);
        wo_searcher_free(s_opened);
        wo_index_free(index);
        wo_index_free(opened);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(files[0], files[1], bytes[0]);
    free(files[0]);
    free(files[1]);
    uproot(p);
}

static void eval_has_the_mixture(void **state)
{
    (void)state;
    planted *p = plant(false, LABELS);
    wo_build_options o = options_of(WO_ROUTER_TREE, -1);
    o.cap = 6; /* so that some labels are no candidates */
    wo_index *index = make(p, &o);
    wo_searcher *s = searcher_of(index);
    wo_eval_options eo;
    wo_eval_defaults(&eo, sizeof eo);
    eo.skip_timing = 1;
    wo_eval_result r = {.struct_size = sizeof r}, plain = {.struct_size = sizeof plain};
    wo_error err;
    if (wo_evaluate(index, NULL, p->test, &eo, &r, &err)) fail_msg("%s", err.text);
    eo.no_prior = 1;
    if (wo_evaluate(index, NULL, p->test, &eo, &plain, &err)) fail_msg("%s", err.text);
    double own = 0, sums = 0;
    size_t n = 0;
    for (size_t i = 0; i < TEST; i++) {
        const float *q = p->q + (N + i) * D;
        const answers a = ask(s, q, WO_BY_CELLS, 0);
        const int32_t *labels = p->labels + (N + i) * LABELS;
        for (size_t c = 0; c < M; c++) {
            const double log_p = a.of[c] == -INFINITY ? logit_of(p, q, c) - a.log_z : a.of[c];
            const bool is_label = labels[0] == (int32_t)c || labels[1] == (int32_t)c || labels[2] == (int32_t)c;
            n += is_label;
            own -= is_label ? log_p : 0;
            sums += exp(log_p) / TEST;
        }
    }
    assert_true(r.label_recall < 0.95);
    assert_float_equal(r.perplexity, exp(own / (double)n), 1e-3 * r.perplexity);
    assert_float_equal(r.probability_sum, sums, 1e-4);
    assert_float_equal(r.log_z_error, plain.log_z_error, 1e-9);
    assert_true(r.perplexity < 0.9 * plain.perplexity && r.full_perplexity == plain.full_perplexity);
    assert_float_equal(plain.perplexity, plain.full_perplexity, 0.03 * plain.full_perplexity);
    wo_searcher_free(s);
    wo_index_free(index);
    uproot(p);
}

static void a_tuner_chooses_too(void **state)
{
    (void)state;
    planted *p = plant(false, 1);
    const wo_build_options build = options_of(WO_ROUTER_TREE, -1);
    wo_tune_options o;
    wo_tune_defaults(&o, sizeof o);
    o.build = &build;
    o.fixed = WO_FIX_METHOD | WO_FIX_ROUTER | WO_FIX_TREE | WO_FIX_LAMBDA | WO_FIX_PROBES | WO_FIX_BEAM |
              WO_FIX_SPREAD | WO_FIX_ROUTE_D | WO_FIX_WEIGHTS | WO_FIX_FALLBACK | WO_FIX_SOURCE | WO_FIX_CAP |
              WO_FIX_PRIOR;
    o.target_us = 1e6;
    o.max_time_s = 5;
    for (int with_log = 0; with_log < 2; with_log++) {
        wo_index *index = NULL;
        wo_error err;
        if (wo_index_tune(p->layer, p->log, with_log ? p->test : NULL, &o, &index, &err)) fail_msg("%s", err.text);
        double mix;
        if (woi_mixture_choose(index, &(woi_mixture_call){.log = p->test, .n = TEST, .threads = 1}, &mix, &err))
            fail_msg("%s", err.text);
        if (with_log)
            assert_true(index->options.mix == mix);
        else
            assert_float_equal(index->options.mix, mix, 0.15);
        double lightest = 1;
        assert_as_defined(p, index, &lightest); /* its cells have all of the log again */
        wo_index_free(index);
    }
    uproot(p);
}

static void options_are_checked(void **state)
{
    (void)state;
    wo_error err;
    wo_build_options o = options_of(WO_ROUTER_TREE, -0.5);
    assert_int_equal(wo_build_check(&o, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "mix is -0.5, expected 0 to 0.9, or -1: chosen");
    o.mix = 0.95;
    assert_int_equal(wo_build_check(&o, &err), WO_ERR_ARGUMENT);
    o.mix = 0.5;
    assert_int_equal(wo_build_check(&o, &err), WO_OK);
    assert_true(wo_build_uses(&o, "mix"));
    o.partition = 0;
    assert_false(wo_build_uses(&o, "mix"));
}

static void memory_may_run_out(void **state)
{
    (void)state;
    planted *p = plant(false, 1);
    wo_build_options o = options_of(WO_ROUTER_TREE, -1);
    wo_error err;
    wo_layer_free(p->layer);
    wo_log_free(p->log);
    wo_log_free(p->test);
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_alive = 0;
    o.threads = 1;
    bool built = false;
    for (long n = 0; !built; n++) {
        allocations_left = -1;
        assert_int_equal(wo_layer_wrap(p->w, p->b, M, D, &p->layer, &err), WO_OK);
        assert_int_equal(wo_log_wrap(p->q, 400, D, p->indptr, p->labels, &p->log, &err), WO_OK);
        wo_index *index = NULL;
        allocations_left = n;
        const wo_status status = wo_index_build(p->layer, p->log, &o, &index, &err);
        built = !status;
        if (status) assert_int_equal(status, WO_ERR_MEMORY);
        if (built) assert_true(index->options.mix > 0);
        wo_index_free(index);
        wo_log_free(p->log);
        wo_layer_free(p->layer);
        assert_int_equal(allocations_alive, 0);
    }
    allocations_left = -1;
    wo_allocator_set(NULL);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_are_as_defined),
        cmocka_unit_test(near_cells_count_more),
        cmocka_unit_test(the_most_likely_is_chosen),
        cmocka_unit_test(nothing_is_mixed_where_nothing_is_gained),
        cmocka_unit_test(odd_logs),
        cmocka_unit_test(threads_and_files_change_nothing),
        cmocka_unit_test(eval_has_the_mixture),
        cmocka_unit_test(a_tuner_chooses_too),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
