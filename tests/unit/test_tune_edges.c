/* tune/ where no time counts: what is refused and stopped, who gets which batches, files, allocations that fail. */
#include "tuning.h"

/* ---- What is refused --------------------------------------------------------------------------------------- */

static void bad_options_are_refused(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
#define REFUSED(member, value, sentence)                    \
    do {                                                    \
        o = quick();                                        \
        o.member = value;                                   \
        refused(&p, p.tune, &o, WO_ERR_ARGUMENT, sentence); \
    } while (0)
    REFUSED(struct_size, 3, "the tune options have a struct_size of 3: it is not set");
    REFUSED(target, 2.5, "target is 2.5, expected");
    REFUSED(target, NAN, "target is ");
    REFUSED(target5, -1, "target5 is -1, expected 0 to 2");
    REFUSED(target_agree, 2, "target_agree is 2, expected 0 to 1");
    REFUSED(target_us, -1, "target_us is -1");
    REFUSED(k, 0, "k is 0, expected 1 to 1000");
    REFUSED(batch, 70000, "batch is 70000, expected 1 to 65536");
    REFUSED(max_time_s, -1, "max_time_s is -1");
    REFUSED(max_queries, 0, "max_queries is 0");
    REFUSED(fixed, WO_FIX_K | WO_FIX_BEAM, "an index has hyperplanes or a tree, not both");
    o = quick();
    built.prior = 1;
    o.fixed |= WO_FIX_PRIOR;
    o.target_agree = 0.3;
    refused(&p, p.tune, &o, WO_ERR_ARGUMENT, "prior is 1, but FULL's own answers are the goal");
    o = quick();
    built.beam = 0;
    refused(&p, p.tune, &o, WO_ERR_ARGUMENT, "beam is 0");
    o = quick();
    wo_error err;
    wo_log *other = NULL, *kept = p.log;
    assert_int_equal(wo_log_wrap(p.s.q, 10, 4, NULL, NULL, &other, &err), WO_OK);
    refused(&p, other, &o, WO_ERR_ARGUMENT, "the tune log: the log's queries have 4 numbers, the layer's rows 8");
    p.log = other;
    refused(&p, p.tune, &o, WO_ERR_ARGUMENT, "the log's queries have 4 numbers, the layer's rows 8");
    p.log = NULL;
    refused(&p, p.tune, &o, WO_ERR_ARGUMENT, "tuning needs a log");
    p.log = kept;
    wo_log_free(other);
    assert_int_equal(wo_log_wrap(p.s.q, 0, D, NULL, NULL, &other, &err), WO_OK);
    refused(&p, other, &o, WO_ERR_ARGUMENT, "the tune log has no queries");
    wo_log_free(other);
    free_pair(&p);
}

static int calls_left;
static int stop_after(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx;
    assert_non_null(stage);
    assert_true(done <= total || total == 0);
    return calls_left-- == 0;
}

/* How many of a curve's trees have this source. */
static size_t trees_by(const wo_curve *curve, wo_source source)
{
    size_t n = 0;
    for (size_t i = 0; i < curve->rows; i++)
        n += at(curve, i, WOI_CURVE_METHOD) == WO_METHOD_EVIDENCE && at(curve, i, WOI_CURVE_SOURCE) == source;
    return n;
}

/* What imitates FULL has no labels where a query has many of them, unless that was asked for. */
static void many_labels_stay_out_of_what_imitates_full(void **state)
{
    (void)state;
    enum { MANY = 21 };
    for (int variant = 0; variant < 3; variant++) {
        const int each = variant == 0 ? 1 : MANY;
        pair p = make_pair();
        wo_log *log;
        wo_error err;
        int64_t *indptr = calloc(N + 1, sizeof *indptr);
        int32_t *labels = calloc((size_t)N * MANY, sizeof *labels);
        for (int i = 0; i < N; i++) {
            indptr[i + 1] = indptr[i] + each;
            for (int j = 0; j < each; j++) labels[indptr[i] + j] = (p.s.labels[i] + j) % M;
        }
        assert_int_equal(wo_log_wrap(p.s.q, N, D, indptr, labels, &log, &err), WO_OK);
        wo_log_free(p.log);
        p.log = log;
        wo_tune_options o = quick();
        o.fixed |= WO_FIX_LAMBDA; /* no small cells of labels first: there is time for one setting */
        if (variant < 2) o.fixed &= ~(unsigned)WO_FIX_SOURCE;
        wo_index *index = tune(&p, p.tune, &o);
        wo_curve curve = {.struct_size = sizeof curve};
        assert_int_equal(wo_index_curve(index, &curve), 1);
        assert_true((trees_by(&curve, WO_SOURCE_TOP) > 0) == (variant == 1));
        assert_true((trees_by(&curve, WO_SOURCE_BOTH) > 0) == (variant != 1));
        wo_index_free(index);
        free_pair(&p);
        free(indptr);
        free(labels);
    }
}

static void it_can_be_stopped(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_tune_options o = quick();
    built.progress.fn = stop_after;
    for (int calls = 0; calls < 60; calls += 1 + calls / 4) {
        calls_left = calls;
        refused(&p, p.tune, &o, WO_ERR_CANCELLED, "stopped while");
    }
    free_pair(&p);
}

/* ---- The planner ------------------------------------------------------------------------------------------- */

static void the_planner_gives_full_the_batches_that_it_is_faster_at(void **state)
{
    (void)state;
    static const struct {
        const char *faster; /* F: FULL, at batches of 1, 8, 64, 128, 1024 */
        uint32_t asked, from, to;
    } cases[] = {{"ttttt", 1, 0, 0},    {"FFFFF", 1, 1, 0},    {"ttttF", 1, 1024, 0}, {"tttFF", 1, 128, 0},
                 {"Ftttt", 1, 1, 7},    {"ttFtt", 1, 64, 127}, {"tFFtt", 1, 8, 127},  {"tFFtF", 1, 8, 127},
                 {"tFttF", 1, 1024, 0}, {"FtFFF", 8, 64, 0},   {"ttt=t", 128, 0, 0},  {"tFFtF", 1024, 1024, 0},
                 {"FtFFF", 1, 1, 7}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        wo_eval_timing timings[] = {{.batch = 1}, {.batch = 8}, {.batch = 64}, {.batch = 128}, {.batch = 1024}};
        for (size_t i = 0; i < 5; i++) {
            timings[i].us = 2;
            timings[i].full_us = cases[c].faster[i] == 'F' ? 1 : cases[c].faster[i] == '=' ? 2 : 3;
        }
        const woi_batches full = woi_plan(timings, 5, cases[c].asked);
        if (full.from != cases[c].from || full.to != cases[c].to)
            fail_msg("%s: from %u to %u, not %u to %u", cases[c].faster, full.from, full.to, cases[c].from,
                     cases[c].to);
    }
    assert_int_equal(woi_plan(NULL, 0, 1).from, 0);
}

/* ---- Files, memory ----------------------------------------------------------------------------------------- */

static void a_file_keeps_the_curve(void **state)
{
    (void)state;
    pair p = make_pair();
    wo_error err;
    const wo_tune_options o = quick();
    wo_index *index = tune(&p, p.tune, &o), *opened = NULL;
    index->full = (woi_batches){64, 127};
    assert_int_equal(wo_index_save(index, scratch("tuned"), &err), WO_OK);
    if (wo_index_open(scratch("tuned"), NULL, &opened, &err)) fail_msg("%s", err.text);
    wo_curve a = {.struct_size = sizeof a}, b = a;
    wo_index_info info = {.struct_size = sizeof info};
    assert_true(wo_index_curve(index, &a) && wo_index_curve(opened, &b));
    wo_index_describe(opened, &info);
    assert_true(info.full_from == 64 && info.full_to == 127);
    assert_true(a.rows == b.rows && a.chosen == b.chosen && a.target == b.target && a.target5 == b.target5 &&
                a.target_agree == b.target_agree && a.target_us == b.target_us && a.k == b.k && a.batch == b.batch &&
                a.n == b.n);
    assert_memory_equal(a.values, b.values, a.rows * a.columns * sizeof(double));
    assert_int_equal(wo_index_save(opened, scratch("again"), &err), WO_OK);
    size_t bytes[2];
    char *files[2] = {slurp(scratch("tuned"), &bytes[0]), slurp(scratch("again"), &bytes[1])};
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(files[0], files[1], bytes[0]);
    free(files[0]);
    free(files[1]);
    wo_index_free(opened);
    /* As a stranger might have written it. */
    index->full = (woi_batches){64, 5};
    assert_int_equal(wo_index_save(index, scratch("odd"), &err), WO_OK);
    assert_int_equal(wo_index_open(scratch("odd"), NULL, &opened, &err), WO_ERR_FORMAT);
    assert_non_null(strstr(err.text, "'tune.full_to' is 5, below 'tune.full_from', 64"));
    index->full = (woi_batches){0};
    index->goal.target_us = INFINITY;
    assert_int_equal(wo_index_save(index, scratch("odd"), &err), WO_OK);
    assert_int_equal(wo_index_open(scratch("odd"), NULL, &opened, &err), WO_ERR_FORMAT);
    assert_non_null(strstr(err.text, "'tune.target_us' is \"inf\""));
    wo_index_free(index);
    const wo_build_options plain = small_options(WO_METHOD_EVIDENCE);
    index = build(&p.s, &plain);
    assert_int_equal(wo_index_curve(index, &a), 0);
    wo_index_free(index);
    free_pair(&p);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_left = -1;
    allocations_alive = 0;
    pair p = make_pair();
    wo_error err;
    wo_tune_options o = quick();
    o.fixed |= WO_FIX_LAMBDA;
    built.lambda = 0.002;
    o.max_queries = 200;
    o.target = 0.9;
    wo_status status = WO_ERR_MEMORY;
    long n = 0;
    for (; status; n += 1 + n / 40) {
        const long before = allocations_alive;
        wo_index *index = NULL;
        allocations_left = n;
        status = wo_index_tune(p.s.layer, p.log, n % 2 ? p.tune : NULL, &o, &index, &err);
        allocations_left = -1;
        wo_index_free(index);
        if (allocations_alive != before) fail_msg("allocation %ld: %ld are left", n, allocations_alive - before);
        if (status && status != WO_ERR_MEMORY) fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
    }
    assert_true(n > 50);
    free_pair(&p);
    assert_int_equal(allocations_alive, 0);
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(many_labels_stay_out_of_what_imitates_full),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(the_planner_gives_full_the_batches_that_it_is_faster_at),
        cmocka_unit_test(a_file_keeps_the_curve),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("tune_edges", tests, scratch_setup, scratch_teardown);
}
