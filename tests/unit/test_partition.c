/* search/partition, search/sample: log Z by its definition, log probabilities beside brute force, sums near 1, what
 * threads, files, priors and rows change; drawing against the distribution. */
#include "testing.h"

#include "base/rng.h"
#include "search/search.h"

#include <math.h>

enum { M = 900, D = 12, N = 4000, TEST = 500, LABELS = 1, GROUPS = 24 };
#include "planted.h"

/* Queries around the directions of groups, and of different lengths; a label is the best class by noisy logits, as a
 * network that has learned would have it. */
static planted *plant(void)
{
    planted *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (uint64_t i = 0; i < M * D; i++) p->w[i] = 0.5f * woi_rng_normal(1, 1, i);
    for (uint64_t i = 0; i < M; i++) p->b[i] = woi_rng_normal(1, 2, i);
    for (uint64_t i = 0; i < N + TEST; i++) {
        const uint64_t group = woi_rng_below(1, 3, i, GROUPS);
        const float length = 0.7f + 0.6f * woi_rng_uniform(1, 4, i);
        for (uint64_t j = 0; j < D; j++)
            p->q[i * D + j] =
                length * (2 * woi_rng_normal(1, 5, group * D + j) + 0.4f * woi_rng_normal(1, 6, i * D + j));
        double best = -INFINITY;
        for (uint64_t c = 0; c < M; c++) {
            const double score = logit_of(p, p->q + i * D, c) + (double)woi_rng_normal(1, 7, i * M + c);
            if (score > best) p->labels[i] = (int32_t)c;
            if (score > best) best = score;
        }
    }
    take_root(p, 1);
    return p;
}

static wo_build_options options_of(wo_router router, double prior)
{
    wo_build_options o = small_options(router, 4);
    o.lambda = 0.2;
    o.prior = prior;
    o.focus = router == WO_ROUTER_TREE && prior > 0 ? 4 : 0;
    o.mix = 0;
    return o;
}

/* As in files of versions without a mixture: log Z is of logits, and a prior. test_mixture.c has the others. */
static wo_index *make_plain(const planted *p, const wo_build_options *o)
{
    wo_index *index = make(p, o);
    index->options.mix = -1;
    return index;
}

static void log_z_of(wo_searcher *s, const float *q, size_t n, wo_by by, float *log_z)
{
    wo_error err;
    const wo_search_call call = {.struct_size = sizeof call, .queries = q, .n = n, .by = by};
    if (wo_log_partition(s, &call, log_z, &err)) fail_msg("%s", err.text);
}

/* The estimate of a query, written out: candidates by the cells that were seen to be open, the tail by its formula. */
static double defined(const planted *p, wo_searcher *s, const float *q)
{
    const wo_index *index = s->index;
    const woi_partition *x = &index->partition;
    double of_candidates, length = 0, along = 0, of_cells = 0, sum = 0;
    uint32_t n_cells, cells[64];
    bool held[M] = {false};
    woi_search_see(s, q, 1, &(woi_seen){&of_candidates, &n_cells, cells, 64});
    for (uint32_t c = 0; c < n_cells; c++) {
        of_cells += (double)x->of_cell[cells[c]] / n_cells;
        for (uint32_t at = index->cells.offsets[cells[c]]; at < index->cells.offsets[cells[c] + 1]; at++)
            held[index->cells.ids[at]] = true;
    }
    for (size_t c = 0; c < M; c++)
        if (held[c]) sum += exp(logit_of(p, q, c));
    assert_float_equal(of_candidates, log(sum), 1e-4);
    for (size_t j = 0; j < D; j++) {
        length += (double)q[j] * (double)q[j];
        along += (double)q[j] * (double)x->direction[j];
    }
    return log(sum +
               exp((double)x->numbers[WOI_LOG_Z_INTERCEPT] + (double)x->numbers[WOI_LOG_Z_OF_LENGTH] * sqrt(length) +
                   (double)x->numbers[WOI_LOG_Z_OF_CANDIDATES] * log(sum) + along + of_cells));
}

static void log_z_is_as_defined(void **state)
{
    (void)state;
    planted *p = plant();
    for (int router = WO_ROUTER_HASH; router <= WO_ROUTER_TREE; router++) {
        const wo_build_options o = options_of((wo_router)router, 0);
        wo_index *index = make_plain(p, &o);
        wo_searcher *s = searcher_of(index);
        float log_z[TEST], exact[TEST], many[TEST * 2];
        log_z_of(s, p->q + N * D, TEST, WO_BY_CELLS, log_z);
        log_z_of(s, p->q + N * D, TEST, WO_BY_FULL, exact);
        double squares = 0, sums = 0, spread = 0, mean = 0;
        for (size_t i = 0; i < TEST; i++) {
            const float *q = p->q + (N + i) * D;
            assert_float_equal((double)log_z[i], defined(p, s, q), 1e-4);
            assert_float_equal((double)exact[i], exact_log_z(p, q), 1e-4);
            squares += pow((double)exact[i] - (double)log_z[i], 2) / TEST;
            sums += exp((double)exact[i] - (double)log_z[i]) / TEST;
            mean += (double)exact[i] / TEST;
        }
        for (size_t i = 0; i < TEST; i++) spread += pow((double)exact[i] - mean, 2) / TEST;
        assert_true(squares < 0.05 * spread);
        assert_float_equal(sums, 1, 0.02);
        wo_index_info info = {.struct_size = sizeof info};
        assert_int_equal(wo_index_describe(index, &info), WO_OK);
        assert_float_equal(info.log_z_error, sqrt(squares), 0.5 * sqrt(squares)); /* what it says of itself */
        assert_true(fabs(info.log_z_bias) < 0.02);
        /* More queries than are taken at a time are answered as they are alone. */
        wo_error err;
        float *twice = malloc(2 * sizeof(float) * TEST * D);
        memcpy(twice, p->q + N * D, sizeof(float) * TEST * D);
        memcpy(twice + TEST * D, p->q + N * D, sizeof(float) * TEST * D);
        twice[3] = NAN;
        const wo_search_call call = {.struct_size = sizeof call, .queries = twice, .n = 2 * TEST};
        assert_int_equal(wo_log_partition(s, &call, many, &err), WO_OK);
        assert_true(isnan(many[0]));
        assert_memory_equal(many + 1, log_z + 1, (TEST - 1) * sizeof *many);
        assert_memory_equal(many + TEST, log_z, TEST * sizeof *many);
        free(twice);
        wo_searcher_free(s);
        wo_index_free(index);
    }
    uproot(p);
}

/* Answers as log probabilities are those as logits, less log Z. */
static void assert_logprob(const planted *p, wo_searcher *s, wo_by by, int no_prior)
{
    enum { K = 7 };
    int32_t ids[2][TEST * K];
    float scores[2][TEST * K], log_z[TEST];
    wo_error err;
    for (int i = 0; i < 2; i++) {
        const wo_search_call call = {.struct_size = sizeof call,
                                     .queries = p->q + N * D,
                                     .n = TEST,
                                     .k = K,
                                     .ids = ids[i],
                                     .scores = scores[i],
                                     .by = by,
                                     .score = i ? WO_SCORES_LOGPROB : WO_SCORES_LOGITS,
                                     .no_prior = no_prior};
        if (wo_search_run(s, &call, &err)) fail_msg("%s", err.text);
        if (wo_log_partition(s, &call, log_z, &err)) fail_msg("%s", err.text);
    }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    for (size_t i = 0; i < TEST * K; i++) {
        if (ids[0][i] < 0)
            assert_true(scores[1][i] == -INFINITY);
        else
            assert_float_equal((double)scores[1][i], (double)scores[0][i] - (double)log_z[i / K], 2e-5);
    }
}

static void answers_are_log_probabilities(void **state)
{
    (void)state;
    planted *p = plant();
    for (int kind = 0; kind < 4; kind++) {
        const double prior = kind >= 2 ? 0.5 : 0;
        const wo_build_options o = options_of(kind % 2 ? WO_ROUTER_TREE : WO_ROUTER_HASH, prior);
        wo_index *index = make_plain(p, &o);
        wo_searcher *s = searcher_of(index);
        for (int no_prior = 0; no_prior < 2; no_prior++) {
            assert_logprob(p, s, WO_BY_CELLS, no_prior);
            assert_logprob(p, s, WO_BY_FULL, no_prior);
        }
        /* With a prior, FULL's probabilities of all classes sum to 1, and the cells' nearly. */
        static int32_t ids[M];
        static float scores[M];
        double sums = 0;
        for (size_t i = 0; i < TEST; i++) {
            float own;
            double all = 0, estimated = 0;
            wo_error err;
            const float *q = p->q + (N + i) * D;
            const wo_search_call call = {.struct_size = sizeof call,
                                         .queries = q,
                                         .n = 1,
                                         .k = M,
                                         .ids = ids,
                                         .scores = scores,
                                         .by = WO_BY_FULL,
                                         .score = WO_SCORES_LOGITS};
            log_z_of(s, q, 1, WO_BY_CELLS, &own);
            float exact;
            log_z_of(s, q, 1, WO_BY_FULL, &exact);
            if (wo_search_run(s, &call, &err)) fail_msg("%s", err.text);
            for (size_t c = 0; c < M; c++) {
                all += exp((double)scores[c] - (double)exact);
                estimated += exp((double)scores[c] - (double)own);
            }
            assert_float_equal(all, 1, 1e-4);
            sums += estimated / TEST;
        }
        assert_float_equal(sums, 1, 0.02);
        /* The planner has no say: FULL would have exact ones. */
        float cells[8], planned[8];
        index->full = (woi_batches){1, 0};
        log_z_of(s, p->q, 8, WO_BY_CELLS, cells);
        log_z_of(s, p->q, 8, WO_BY_PLANNER, planned);
        assert_memory_equal(cells, planned, sizeof cells);
        wo_searcher_free(s);
        wo_index_free(index);
    }
    uproot(p);
}

static void rows_in_fewer_bits_change_little(void **state)
{
    (void)state;
    planted *p = plant();
    float log_z[4][TEST];
    static const wo_weights kinds[] = {WO_WEIGHTS_F32, WO_WEIGHTS_INT8, WO_WEIGHTS_NONE, WO_WEIGHTS_BF16};
    for (int i = 0; i < 4; i++) {
        wo_build_options o = options_of(WO_ROUTER_TREE, 0);
        o.weights = kinds[i];
        o.lambda = 0.002; /* so many candidates that int8 would screen them */
        wo_index *index = make_plain(p, &o);
        wo_searcher *s = searcher_of(index);
        log_z_of(s, p->q + N * D, TEST, WO_BY_CELLS, log_z[i]);
        if (kinds[i] == WO_WEIGHTS_INT8) assert_logprob(p, s, WO_BY_CELLS, 0);
        wo_searcher_free(s);
        wo_index_free(index);
    }
    assert_memory_equal(log_z[0], log_z[1], sizeof log_z[0]);
    assert_memory_equal(log_z[0], log_z[2], sizeof log_z[0]);
    for (size_t i = 0; i < TEST; i++) assert_float_equal((double)log_z[0][i], (double)log_z[3][i], 0.05);
    uproot(p);
}

static void threads_and_files_change_nothing(void **state)
{
    (void)state;
    planted *p = plant();
    wo_error err;
    float log_z[2][TEST];
    for (int router = WO_ROUTER_HASH; router <= WO_ROUTER_TREE; router++) {
        wo_build_options o = options_of((wo_router)router, 0.5);
        size_t bytes[2];
        char *files[2];
        for (int t = 0; t < 2; t++) {
            o.threads = 1 + 2 * t;
            wo_index *index = make_plain(p, &o), *opened = NULL;
            if (wo_index_save(index, scratch("x"), &err) || wo_index_open(scratch("x"), NULL, &opened, &err))
                fail_msg("%s", err.text);
            files[t] = slurp(scratch("x"), &bytes[t]);
            wo_searcher *s = searcher_of(index), *again = searcher_of(opened);
            log_z_of(s, p->q + N * D, TEST, WO_BY_CELLS, log_z[0]);
            log_z_of(again, p->q + N * D, TEST, WO_BY_CELLS, log_z[1]);
            assert_memory_equal(log_z[0], log_z[1], sizeof log_z[0]);
            wo_index_info about = {.struct_size = sizeof about}, then = {.struct_size = sizeof then};
            wo_index_describe(index, &about);
            wo_index_describe(opened, &then);
            assert_true(about.log_z_error == then.log_z_error && about.log_z_bias == then.log_z_bias);
            assert_int_equal(wo_index_save(opened, scratch("y"), &err), WO_OK);
            size_t again_bytes;
            char *again_file = slurp(scratch("y"), &again_bytes);
            assert_int_equal(again_bytes, bytes[t]);
            assert_memory_equal(again_file, files[t], bytes[t]);
            free(again_file);
            wo_searcher_free(s);
            wo_searcher_free(again);
            wo_index_free(index);
            wo_index_free(opened);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(files[0], files[1], bytes[0]);
        free(files[0]);
        free(files[1]);
    }
    uproot(p);
}

static void assert_refused(wo_searcher *s, wo_search_call call, wo_status status, const char *option, const char *text)
{
    float log_z[1];
    wo_error err;
    call.struct_size = sizeof call;
    call.n = 1;
    assert_int_equal(wo_log_partition(s, &call, log_z, &err), status);
    assert_string_equal(err.option, option);
    assert_string_equal(err.text, text);
    int32_t id;
    float score;
    call.k = 1;
    call.ids = &id;
    call.scores = &score;
    call.score = WO_SCORES_LOGPROB;
    assert_int_equal(wo_search_run(s, &call, &err), status);
    assert_string_equal(err.text, text);
    call.by = WO_BY_FULL; /* which is exact, whatever is asked */
    if (wo_search_run(s, &call, &err)) fail_msg("%s", err.text);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    planted *p = plant();
    wo_build_options o = options_of(WO_ROUTER_TREE, 0);
    wo_error err;
    wo_build_options other;
    wo_build_defaults(WO_METHOD_SLIDE, &other, sizeof other);
    other.partition = 1;
    assert_int_equal(wo_build_check(&other, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "partition is 1, but method slide learns no log Z");
    o.partition = 0;
    wo_index *index = make_plain(p, &o), *opened = NULL;
    wo_searcher *s = searcher_of(index);
    assert_refused(s, (wo_search_call){.queries = p->q}, WO_ERR_UNSUPPORTED, "partition",
                   "the index knows no log Z, which probabilities need: it was built without a partition");
    wo_index_info info = {.struct_size = sizeof info};
    wo_index_describe(index, &info);
    assert_true(isnan(info.log_z_error) && isnan(info.log_z_bias));
    wo_searcher_free(s);
    wo_index_free(index);
    o.partition = 1;
    index = make_plain(p, &o);
    s = searcher_of(index);
    const int32_t one = 1;
    const float bias[M] = {0};
    assert_refused(s, (wo_search_call){.queries = p->q, .forbidden = &one, .n_forbidden = 1}, WO_ERR_ARGUMENT,
                   "forbidden", "forbidden does not go with log Z, which was learned without: FULL has the exact one");
    assert_refused(s, (wo_search_call){.queries = p->q, .mandatory = &one, .n_mandatory = 1}, WO_ERR_ARGUMENT,
                   "mandatory", "mandatory does not go with log Z, which was learned without: FULL has the exact one");
    assert_refused(s, (wo_search_call){.queries = p->q, .logit_bias = bias}, WO_ERR_ARGUMENT, "logit_bias",
                   "logit_bias does not go with log Z, which was learned without: FULL has the exact one");
    assert_refused(s, (wo_search_call){.queries = p->q, .probes = 1}, WO_ERR_ARGUMENT, "probes",
                   "probes does not go with log Z, which was learned without: FULL has the exact one");
    assert_int_equal(
        wo_log_partition(s, &(wo_search_call){.struct_size = sizeof(wo_search_call), .n = 1}, (float[1]){0}, &err),
        WO_ERR_ARGUMENT);
    index->partition.of_cell[3] = NAN;
    assert_int_equal(wo_index_save(index, scratch("bad"), &err), WO_OK);
    assert_int_equal(wo_index_open(scratch("bad"), NULL, &opened, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "'partition.cells' has a number that is not finite");
    wo_searcher_free(s);
    wo_index_free(index);
    uproot(p);
}

/* Few queries, of one length, or the same: nothing to learn much from, and no reason to fail. */
static void odd_logs_are_learned_from(void **state)
{
    (void)state;
    planted *p = plant();
    static const size_t counts[] = {1, 2, 37, 300};
    for (size_t i = 0; i < 4; i++) {
        wo_build_options o = options_of(i % 2 ? WO_ROUTER_TREE : WO_ROUTER_HASH, 0);
        wo_log *log = NULL;
        wo_index *index = NULL;
        wo_error err;
        float log_z[TEST], *same = malloc(counts[i] * D * sizeof *same);
        for (size_t j = 0; j < counts[i]; j++) memcpy(same + j * D, p->q, D * sizeof *same);
        for (int alike = 0; alike < 2; alike++) {
            if (wo_log_wrap(alike ? same : p->q, counts[i], D, p->indptr, p->labels, &log, &err) ||
                wo_index_build(p->layer, log, &o, &index, &err))
                fail_msg("%s", err.text);
            wo_searcher *s = searcher_of(index);
            log_z_of(s, p->q, TEST, WO_BY_CELLS, log_z);
            for (size_t j = 0; j < TEST; j++) assert_true(isfinite(log_z[j]));
            if (alike) assert_float_equal((double)log_z[0], exact_log_z(p, p->q), 0.02);
            wo_searcher_free(s);
            wo_index_free(index);
            wo_log_free(log);
        }
        free(same);
    }
    uproot(p);
}

/* Queries with little evidence: more cells are opened, of which the tail has the mean; or FULL answers, exactly. */
static void little_evidence(void **state)
{
    (void)state;
    planted *p = plant();
    wo_build_options o = options_of(WO_ROUTER_TREE, 0);
    o.fallback = 150;
    wo_index *index = make_plain(p, &o);
    wo_searcher *s = searcher_of(index);
    float log_z[TEST], exact[TEST], mixed[TEST];
    wo_query_stats stats[TEST];
    wo_error err;
    wo_search_call call = {
        .struct_size = sizeof call, .queries = p->q + N * D, .n = TEST, .stats = stats, .stats_bytes = sizeof *stats};
    log_z_of(s, p->q + N * D, TEST, WO_BY_FULL, exact);
    if (wo_log_partition(s, &call, log_z, &err)) fail_msg("%s", err.text);
    size_t wider = 0;
    for (size_t i = 0; i < TEST; i++) {
        wider += stats[i].wider;
        assert_true(stats[i].cells > 2 || !stats[i].wider);
        assert_float_equal((double)log_z[i], defined(p, s, p->q + (N + i) * D), 1e-4);
    }
    assert_true(wider > 20 && wider < TEST);
    call.exact_fallback = 1;
    wo_query_stats again[TEST];
    call.stats = again;
    if (wo_log_partition(s, &call, mixed, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < TEST; i++) {
        assert_int_equal(again[i].exact, stats[i].wider);
        assert_float_equal((double)mixed[i], stats[i].wider ? (double)exact[i] : (double)log_z[i], 1e-5);
    }
    wo_searcher_free(s);
    wo_index_free(index);
    uproot(p);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    planted *p = plant();
    wo_build_options o = options_of(WO_ROUTER_TREE, 0.5);
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
        assert_int_equal(wo_log_wrap(p->q, 40, D, p->indptr, p->labels, &p->log, &err), WO_OK);
        wo_index *index = NULL;
        wo_eval_result r = {.struct_size = sizeof r};
        wo_eval_options eo;
        wo_eval_defaults(&eo, sizeof eo);
        eo.skip_timing = 1;
        eo.threads = 1;
        allocations_left = n;
        wo_status status = wo_index_build(p->layer, p->log, &o, &index, &err);
        if (!status) status = wo_evaluate(index, NULL, p->log, &eo, &r, &err);
        built = !status;
        if (status) assert_int_equal(status, WO_ERR_MEMORY);
        wo_index_free(index);
        wo_log_free(p->log);
        wo_layer_free(p->layer);
        assert_int_equal(allocations_alive, 0);
    }
    allocations_left = -1;
    wo_allocator_set(NULL);
    free(p);
}

static void eval_counts_every_label(void **state)
{
    (void)state;
    planted *p = plant();
    for (int with_prior = 0; with_prior < 2; with_prior++) {
        const wo_build_options o = options_of(WO_ROUTER_TREE, with_prior ? 0.5 : 0);
        wo_index *index = make_plain(p, &o);
        wo_searcher *s = searcher_of(index);
        wo_eval_options eo;
        wo_eval_defaults(&eo, sizeof eo);
        eo.skip_timing = 1;
        wo_eval_result r = {.struct_size = sizeof r}, again = {.struct_size = sizeof again};
        wo_error err;
        if (wo_evaluate(index, NULL, p->test, &eo, &r, &err)) fail_msg("%s", err.text);
        eo.threads = 3;
        if (wo_evaluate(index, NULL, p->test, &eo, &again, &err)) fail_msg("%s", err.text);
        assert_true(r.perplexity == again.perplexity && r.log_z_error == again.log_z_error);
        double own = 0, full = 0, squares = 0, bias = 0, sums = 0;
        for (size_t i = 0; i < TEST; i++) {
            const float *q = p->q + (N + i) * D;
            const int32_t label = p->labels[N + i];
            static int32_t ids[M];
            static float scores[M];
            float log_z, exact;
            const wo_search_call call = {.struct_size = sizeof call,
                                         .queries = q,
                                         .n = 1,
                                         .k = M,
                                         .ids = ids,
                                         .scores = scores,
                                         .by = WO_BY_FULL};
            if (wo_search_run(s, &call, &err)) fail_msg("%s", err.text);
            log_z_of(s, q, 1, WO_BY_CELLS, &log_z);
            log_z_of(s, q, 1, WO_BY_FULL, &exact);
            for (size_t c = 0; c < M; c++)
                if (ids[c] == label) own += ((double)log_z - (double)scores[c]) / TEST;
            full += (exact_log_z(p, q) - logit_of(p, q, (size_t)label)) / TEST;
            squares += pow((double)exact - (double)log_z, 2) / TEST;
            bias += ((double)log_z - (double)exact) / TEST;
            sums += exp((double)exact - (double)log_z) / TEST;
        }
        assert_float_equal(r.perplexity, exp(own), 1e-4 * exp(own));
        assert_float_equal(r.full_perplexity, exp(full), 1e-4 * exp(full));
        assert_float_equal(r.log_z_error, sqrt(squares), 1e-4);
        assert_float_equal(r.log_z_bias, bias, 1e-4);
        assert_float_equal(r.probability_sum, sums, 1e-4);
        assert_true(r.label_recall < 1); /* labels that are no candidates were among them */
        eo.probes = 1;                   /* not what log Z was learned for */
        if (wo_evaluate(index, NULL, p->test, &eo, &r, &err)) fail_msg("%s", err.text);
        assert_true(isnan(r.perplexity) && isnan(r.log_z_error));
        wo_searcher_free(s);
        wo_index_free(index);
    }
    uproot(p);
}

/* ---- Drawing ----------------------------------------------------------------------------------------------- */

enum { DRAWS = 200000, PLACES = 6 };

/* The sum of (seen - expected)^2 / expected of DRAWS draws. */
static double chi_square(wo_sample_call call, const double *expected, size_t n)
{
    static const int32_t ids[] = {40, 7, 19, 3, 2, 11};
    static const float scores[] = {2, 1.5f, 1.5f, 0, -1, -2};
    size_t seen[PLACES] = {0};
    double sum = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t drawn;
        wo_error err;
        call.struct_size = sizeof call;
        call.ids = ids;
        call.scores = scores;
        call.n = 1;
        call.k = PLACES;
        call.position = i;
        if (wo_sample(&call, &drawn, &err)) fail_msg("%s", err.text);
        size_t place = 0;
        while (place < PLACES && ids[place] != drawn) place++;
        assert_true(place < n);
        seen[place]++;
    }
    for (size_t j = 0; j < n; j++) sum += pow((double)seen[j] - DRAWS * expected[j], 2) / (DRAWS * expected[j]);
    return sum;
}

static void expect(double temperature, size_t n, double *expected)
{
    static const double scores[] = {2, 1.5, 1.5, 0, -1, -2};
    double all = 0;
    for (size_t j = 0; j < n; j++) all += expected[j] = exp(scores[j] / temperature);
    for (size_t j = 0; j < n; j++) expected[j] /= all;
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    double expected[PLACES];
    expect(1, PLACES, expected); /* 20.5: beyond it one in a thousand with five degrees of freedom; the seed is fixed */
    assert_true(chi_square((wo_sample_call){.temperature = 1, .top_p = 1, .seed = 5}, expected, PLACES) < 20.5);
    expect(2.5, PLACES, expected);
    assert_true(chi_square((wo_sample_call){.temperature = 2.5, .top_p = 1, .seed = 6}, expected, PLACES) < 20.5);
    assert_true(chi_square((wo_sample_call){.temperature = 1, .top_p = 1, .seed = 5}, expected, PLACES) > 100);
    expect(1, 4, expected);
    assert_true(chi_square((wo_sample_call){.temperature = 1, .top_p = 1, .top_k = 4, .seed = 7}, expected, 4) < 16.3);
    /* 0.42, 0.25, 0.25, 0.06, ...: half of it has two, 0.9 three. */
    expect(1, 2, expected);
    assert_true(chi_square((wo_sample_call){.temperature = 1, .top_p = 0.5, .seed = 8}, expected, 2) < 10.8);
    expect(1, 3, expected);
    assert_true(chi_square((wo_sample_call){.temperature = 1, .top_p = 0.9, .seed = 9}, expected, 3) < 13.8);
    expect(1, 1, expected);
    assert_true(chi_square((wo_sample_call){.temperature = 1, .top_p = 0, .seed = 9}, expected, 1) == 0);
    assert_true(chi_square((wo_sample_call){.temperature = 1, .top_p = 1, .top_k = 1, .seed = 9}, expected, 1) == 0);
    assert_true(chi_square((wo_sample_call){.temperature = 0, .top_p = 1, .seed = 9}, expected, 1) == 0);
    assert_true(chi_square((wo_sample_call){.temperature = 1e-6, .top_p = 1, .seed = 9}, expected, 1) == 0);
}

/* What a list lacks matters only where it would have been drawn. */
static void shorter_lists_draw_the_same(void **state)
{
    (void)state;
    static const int32_t ids[2][PLACES] = {{40, 7, 19, 3, 2, 11}, {40, 19, 2, -1, -1, -1}};
    static const float scores[2][PLACES] = {{2, 1.5f, 1.5f, 0, -1, -2}, {2, 1.5f, -1, -INFINITY, -INFINITY, -INFINITY}};
    size_t held = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        int32_t drawn[2];
        wo_error err;
        for (int l = 0; l < 2; l++) {
            const wo_sample_call call = {.struct_size = sizeof call,
                                         .ids = ids[l],
                                         .scores = scores[l],
                                         .n = 1,
                                         .k = PLACES,
                                         .temperature = 1.5,
                                         .top_p = 1,
                                         .seed = 3,
                                         .position = i};
            assert_int_equal(wo_sample(&call, &drawn[l], &err), WO_OK);
        }
        if (drawn[0] != 40 && drawn[0] != 19 && drawn[0] != 2) continue;
        assert_int_equal(drawn[0], drawn[1]);
        held++;
    }
    assert_true(held > 1500 && held < 2700);
}

static void drawing_at_the_edges(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 9, -1, -1, -1, -1, 4, 8, 1};
    static const float scores[] = {1, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY, 3, 3, -INFINITY};
    int32_t drawn[3], again[3];
    wo_error err;
    wo_sample_call call = {.struct_size = sizeof call,
                           .ids = ids,
                           .scores = scores,
                           .n = 3,
                           .k = 3,
                           .temperature = 1,
                           .top_p = 1,
                           .seed = 1};
    size_t fives = 0, ones = 0;
    for (uint64_t i = 0; i < 300; i++) {
        call.position = 3 * i;
        assert_int_equal(wo_sample(&call, drawn, &err), WO_OK);
        assert_int_equal(wo_sample(&call, again, &err), WO_OK);
        assert_memory_equal(drawn, again, sizeof drawn);
        assert_true(drawn[0] == 5 || drawn[0] == 9);
        assert_int_equal(drawn[1], -1);
        fives += drawn[0] == 5;
        ones += drawn[2] == 1;
    }
    assert_true(fives > 180 && fives < 255 && ones == 0);
    /* Queries of one call draw what they do alone. */
    const int32_t together = drawn[2];
    call.ids += 6;
    call.scores += 6;
    call.n = 1;
    call.position += 2;
    assert_int_equal(wo_sample(&call, drawn, &err), WO_OK);
    assert_int_equal(drawn[0], together);
    call.temperature = -1;
    assert_int_equal(wo_sample(&call, drawn, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "temperature is -1, expected 0 to 1000000");
    call.temperature = NAN;
    assert_int_equal(wo_sample(&call, drawn, &err), WO_ERR_ARGUMENT);
    call.temperature = 1;
    call.top_p = 1.5;
    assert_int_equal(wo_sample(&call, drawn, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "top_p is 1.5, expected 0 to 1");
    call.top_p = 1;
    call.k = 0;
    assert_int_equal(wo_sample(&call, drawn, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "k is 0: there are no answers to draw from");
    call.k = 1;
    call.scores = NULL;
    assert_int_equal(wo_sample(&call, drawn, &err), WO_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_z_is_as_defined),
        cmocka_unit_test(answers_are_log_probabilities),
        cmocka_unit_test(rows_in_fewer_bits_change_little),
        cmocka_unit_test(threads_and_files_change_nothing),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(odd_logs_are_learned_from),
        cmocka_unit_test(little_evidence),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(eval_counts_every_label),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(shorter_lists_draw_the_same),
        cmocka_unit_test(drawing_at_the_edges),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
