/* build/build_lss: slide and lss on planted data, the thresholds by rank, the trace, threads, bad input. */
#include "testing.h"

#include "base/mem.h"
#include "base/rng.h"
#include "build/lss.h"

#include <math.h>

enum { M = 1500, D = 12, N = 1300, GROUPS = 30, FIRST = 4 * GROUPS };

/* Neurons in groups around random directions; a query is near the direction of a group, its labels are two of that
 * group's first four neurons, which the last coordinate tells from the others. Every tenth query has no label. */
typedef struct planted {
    float w[M * D], b[M], q[N * D];
    int64_t indptr[N + 1];
    int32_t labels[2 * N];
    wo_layer *layer;
    wo_log *log;
} planted;

static planted *plant(void)
{
    planted *p = calloc(1, sizeof *p);
    wo_error err;
    for (uint64_t i = 0; i < M; i++) {
        for (uint64_t j = 0; j < D; j++)
            p->w[i * D + j] = woi_rng_normal(31, i % GROUPS, j) + 0.7f * woi_rng_normal(32, i, j);
        p->w[i * D + D - 1] += i < FIRST ? 1.5f : -1.5f;
        p->b[i] = 0.1f * woi_rng_normal(33, 0, i);
    }
    for (uint64_t i = 0; i < N; i++) {
        const uint64_t group = woi_rng_below(34, 0, i, GROUPS);
        for (uint64_t j = 0; j < D; j++)
            p->q[i * D + j] = 2 * woi_rng_normal(31, group, j) + 0.7f * woi_rng_normal(35, i, j);
        p->q[i * D + D - 1] += 2;
        p->indptr[i + 1] = p->indptr[i];
        for (uint64_t l = 0; l < 2 && i % 10; l++)
            p->labels[p->indptr[i + 1]++] = (int32_t)(group + GROUPS * woi_rng_below(36, l, i, FIRST / GROUPS));
    }
    assert_int_equal(wo_layer_wrap(p->w, p->b, M, D, &p->layer, &err), WO_OK);
    assert_int_equal(wo_log_wrap(p->q, N, D, p->indptr, p->labels, &p->log, &err), WO_OK);
    return p;
}

static void uproot(planted *p)
{
    wo_log_free(p->log);
    wo_layer_free(p->layer);
    free(p);
}

static wo_build_options options_of(wo_method method, wo_loss loss)
{
    wo_build_options o;
    wo_build_defaults(method, &o, sizeof o);
    o.K = 5;
    o.L = 3;
    o.iterations = 60;
    o.rate = 0.02;
    o.batch = 64;
    o.loss = loss;
    o.init = WO_INIT_RANDOM;
    o.t1 = o.t2 = 0;
    o.trace_points = 6;
    o.threads = 2;
    return o;
}

static wo_index *build(const planted *p, const wo_build_options *o)
{
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(p->layer, p->log, o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static int falling(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void thresholds_are_the_logits_of_the_ranks(void **state)
{
    (void)state;
    planted *p = plant();
    static const double ranks[][2] = {{1, 1}, {7, 300}, {0.1, 0.5}, {M - 1, M}, {0, 0}, {M, 1}};
    float above[N], below[N], sorted[M];
    for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++) {
        wo_error err;
        const wo_build_options o = {.t1 = ranks[r][0], .t2 = ranks[r][1], .threads = 2};
        assert_int_equal(woi_lss_thresholds(&p->layer->dense, p->log, &o, above, below, &err), WO_OK);
        for (size_t i = 0; i < N; i += 37) {
            for (size_t j = 0; j < M; j++) {
                double z = (double)p->b[j];
                for (size_t k = 0; k < D; k++) z += (double)p->q[i * D + k] * (double)p->w[j * D + k];
                sorted[j] = (float)z;
            }
            qsort(sorted, M, sizeof *sorted, falling);
            const double r1 = ranks[r][0] < 1 ? ranks[r][0] * M : ranks[r][0];
            const double r2 = ranks[r][1] < 1 ? ranks[r][1] * M : ranks[r][1];
            if (r1 < 1 || r1 >= M)
                assert_true(above[i] == -INFINITY);
            else
                assert_true(fabsf(above[i] - sorted[(size_t)r1 - 1]) < 1e-4f);
            if (r2 < 1)
                assert_true(below[i] == INFINITY);
            else
                assert_true(fabsf(below[i] - sorted[(size_t)r2 - 1]) < 1e-4f);
        }
    }
    uproot(p);
}

/* Every neuron lies in each table once, where its own hash says. */
static void slide_is_random_planes(void **state)
{
    (void)state;
    planted *p = plant();
    const wo_build_options o = options_of(WO_METHOD_SLIDE, WO_LOSS_PAPER);
    wo_index *index = build(p, &o);
    assert_int_equal(index->cells.n, o.L << o.K);
    assert_int_equal(index->cells.offsets[index->cells.n], M * o.L);
    uint32_t *cells = malloc(M * o.L * sizeof *cells);
    wo_error err;
    assert_int_equal(woi_hash_neurons(&index->hash, &(woi_neurons){M, p->w, p->b}, 1, cells, &err), WO_OK);
    for (uint32_t c = 0; c < index->cells.n; c++)
        for (uint32_t at = index->cells.offsets[c]; at < index->cells.offsets[c + 1]; at++)
            assert_int_equal(cells[(size_t)index->cells.ids[at] * o.L + (c >> o.K)], c);
    double square = 0;
    for (size_t j = 0; j < D; j++)
        for (size_t k = 0; k < index->hash.n_planes; k++)
            square += pow((double)index->hash.planes[j * index->hash.n_planes + k], 2);
    assert_true(fabs(square / (D * o.K * o.L) - 1) < 0.3);
    free(cells);

    /* lss starts from the same planes. */
    wo_build_options start = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    start.iterations = 0;
    wo_index *same = build(p, &start);
    assert_memory_equal(same->cells.ids, index->cells.ids, M * o.L * sizeof *index->cells.ids);
    assert_int_equal(same->n_trace, 1);
    wo_index_free(same);
    wo_index_free(index);
    uproot(p);
}

static void learning_finds_more_labels_among_fewer(void **state)
{
    (void)state;
    planted *p = plant();
    for (int loss = 0; loss < 2; loss++) {
        wo_build_options o = options_of(WO_METHOD_LSS, loss ? WO_LOSS_MARGIN : WO_LOSS_PAPER);
        o.iterations = 300;
        o.last_step = 1;
        wo_index *index = build(p, &o);
        wo_trace trace = {.struct_size = sizeof trace};
        assert_true(wo_index_trace(index, &trace));
        assert_int_equal(trace.rows, 7);
        assert_int_equal(trace.columns, WOI_TRACE_COLUMNS);
        const double *first = trace.values, *last = trace.values + 6 * WOI_TRACE_COLUMNS;
        for (size_t r = 0; r < 7; r++) {
            const double *row = trace.values + r * WOI_TRACE_COLUMNS;
            assert_true(row[WOI_TRACE_STEP] == (double)(50 * r));
            assert_true(row[WOI_TRACE_LOSS] > 0 && isfinite(row[WOI_TRACE_LOSS]));
            assert_true(row[WOI_TRACE_KEPT] == (r == 6) && isnan(row[WOI_TRACE_JUDGED_RECALL]));
        }
        /* Labels per neuron looked at. */
        assert_true(last[WOI_TRACE_LABEL_RECALL] / last[WOI_TRACE_SAMPLE_SIZE] >
                    1.5 * first[WOI_TRACE_LABEL_RECALL] / first[WOI_TRACE_SAMPLE_SIZE]);
        assert_true(last[WOI_TRACE_CP_POSITIVE] / last[WOI_TRACE_CP_NEGATIVE] >
                    first[WOI_TRACE_CP_POSITIVE] / first[WOI_TRACE_CP_NEGATIVE]);
        /* The last row is about the index that came out. */
        double empty = 0, largest = 0, entropy = 0;
        for (size_t c = 0; c < index->cells.n; c++) {
            const double size = index->cells.offsets[c + 1] - index->cells.offsets[c];
            empty += size == 0;
            largest = fmax(largest, size);
            if (size > 0) entropy -= size / M * log2(size / M);
        }
        assert_true(last[WOI_TRACE_EMPTY] == empty && last[WOI_TRACE_LARGEST] == largest);
        assert_true(fabs(last[WOI_TRACE_ENTROPY] - entropy / (o.L * o.K)) < 1e-9);
        wo_index_free(index);
    }
    uproot(p);
}

/* Sample size and recall of the trace against the index itself, over all queries: the samples are most of them. */
static void the_trace_is_what_a_search_sees(void **state)
{
    (void)state;
    planted *p = plant();
    wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    o.last_step = 1;
    wo_index *index = build(p, &o);
    const double *last = index->trace + (index->n_trace - 1) * WOI_TRACE_COLUMNS;
    uint32_t *cells = malloc(N * o.L * sizeof *cells);
    wo_error err;
    assert_int_equal(woi_hash_queries(&index->hash, p->q, N, 1, cells, &err), WO_OK);
    double size = 0, found = 0, labelled = 0;
    for (size_t i = 0; i < N; i++) {
        bool seen[M] = {false};
        if (p->indptr[i] == p->indptr[i + 1]) continue;
        labelled++;
        for (uint32_t l = 0; l < o.L; l++)
            for (uint32_t at = index->cells.offsets[cells[i * o.L + l]];
                 at < index->cells.offsets[cells[i * o.L + l] + 1]; at++)
                seen[index->cells.ids[at]] = true;
        for (size_t j = 0; j < M; j++) size += seen[j];
        for (int64_t at = p->indptr[i]; at < p->indptr[i + 1]; at++) found += seen[p->labels[at]];
    }
    assert_true(fabs(last[WOI_TRACE_SAMPLE_SIZE] / (size / labelled) - 1) < 0.1);
    assert_true(fabs(last[WOI_TRACE_LABEL_RECALL] - found / (2 * labelled)) < 0.06);
    free(cells);
    wo_index_free(index);
    uproot(p);
}

/* ---- The step that is kept --------------------------------------------------------------------------------- */

enum { STEPS = 24 };

/* Part of a log: the queries that learning sees, or those that it is judged on. */
typedef struct part {
    size_t n;
    float *q;
    int64_t *indptr;
    int32_t *labels;
    wo_log *log;
} part;

static part take_part(const planted *p, size_t n, const bool *with)
{
    part t = {.q = malloc(n * D * sizeof *t.q), .indptr = calloc(n + 1, sizeof *t.indptr)};
    t.labels = malloc(2 * n * sizeof *t.labels);
    wo_error err;
    for (size_t i = 0; i < n; i++) {
        if (!with[i]) continue;
        memcpy(t.q + t.n * D, p->q + i * D, D * sizeof *t.q);
        t.indptr[t.n + 1] = t.indptr[t.n];
        for (int64_t at = p->indptr[i]; at < p->indptr[i + 1]; at++) t.labels[t.indptr[t.n + 1]++] = p->labels[at];
        t.n++;
    }
    assert_int_equal(wo_log_wrap(t.q, t.n, D, t.indptr, t.labels, &t.log, &err), WO_OK);
    return t;
}

static void free_part(part *t)
{
    wo_log_free(t->log);
    free(t->q);
    free(t->indptr);
    free(t->labels);
}

/* Labels found and neurons met by the probed cells, by looking at every neuron. */
static void measure(const wo_index *index, const planted *p, const part *on, double *recall, double *neurons)
{
    const uint32_t L = index->hash.L, probes = index->options.probes;
    uint32_t *of = malloc(M * L * sizeof *of), *opened = malloc((size_t)L * probes * sizeof *opened), n_opened;
    void *scratch = aligned_alloc(64, 65536);
    double found = 0, labels = 0, met = 0, queries = 0;
    wo_error err;
    assert_true(woi_hash_scratch(&index->hash, 1) * sizeof(float) < 65536);
    assert_int_equal(woi_hash_neurons(&index->hash, &(woi_neurons){M, p->w, p->b}, 1, of, &err), WO_OK);
    for (size_t i = 0; i < on->n; i++) {
        bool seen[M] = {false};
        if (on->indptr[i] == on->indptr[i + 1]) continue;
        woi_hash_route(&index->hash, woi_kernels_get(NULL),
                       &(woi_routing){on->q + i * D, 1, probes, opened, &n_opened, NULL, scratch, 0, NULL});
        assert_int_equal(n_opened, L * probes);
        for (size_t j = 0; j < M; j++)
            for (uint32_t c = 0; c < n_opened; c++) seen[j] |= of[j * L + c / probes] == opened[c];
        for (size_t j = 0; j < M; j++) met += seen[j];
        for (int64_t at = on->indptr[i]; at < on->indptr[i + 1]; at++, labels++) found += seen[on->labels[at]];
        queries++;
    }
    *recall = found / labels;
    *neurons = met / queries;
    free(of);
    free(opened);
    free(scratch);
}

static const double *kept_row(const wo_index *index)
{
    const double *row = NULL;
    for (size_t r = 0; r < index->n_trace; r++) {
        const double *at = index->trace + r * WOI_TRACE_COLUMNS;
        if (r) assert_true(at[WOI_TRACE_STEP] > at[WOI_TRACE_STEP - WOI_TRACE_COLUMNS]);
        if (at[WOI_TRACE_KEPT] == 0) continue;
        assert_null(row); /* one alone */
        row = at;
    }
    assert_non_null(row);
    return row;
}

/* Every step is built by itself: the last one of so many steps from the queries that learning saw, which must be the
 * same index. Of these the best one by the test's own count must be what the judge kept. Without a limit, with one that
 * the best step does not keep, and with one that none does. */
static void check_kept(const planted *p, const wo_build_options *given, size_t n, size_t limits[3])
{
    bool *seen = calloc(N, 1), *heard = calloc(N, 1), *all = malloc(N);
    uint32_t labelled[N];
    size_t n_labelled = 0, any = 0; /* any: the best step without a limit */
    wo_error err;
    memset(all, true, N);
    for (uint32_t i = 0; i < n; i++)
        if (p->indptr[i] < p->indptr[i + 1]) labelled[n_labelled++] = i;
    memset(seen, true, n);
    memset(heard, n_labelled < 1000, n);
    if (n_labelled >= 1000)
        for (size_t i = 0; i < n_labelled / 10; i++) {
            const uint32_t at = labelled[woi_rng_permute(given->seed, WOI_LSS_HELD_OUT, 0, n_labelled, i)];
            seen[at] = false;
            heard[at] = true;
        }
    part whole = take_part(p, n, all), learned = take_part(p, n, seen), judged = take_part(p, n, heard);
    double recall[STEPS + 1], neurons[STEPS + 1];
    wo_index *steps[STEPS + 1] = {NULL};
    wo_build_options o = *given;
    o.last_step = 1;
    for (uint32_t step = 0; step <= STEPS; step++) {
        o.iterations = step;
        if (wo_index_build(p->layer, learned.log, &o, &steps[step], &err)) fail_msg("%s", err.text);
        measure(steps[step], p, &judged, &recall[step], &neurons[step]);
    }
    o.last_step = 0;
    o.iterations = STEPS;
    for (int which = 0; which < 3; which++) {
        o.max_classes = which == 0 ? 0 : which == 1 ? (uint32_t)(neurons[any] - 0.001) : 1;
        size_t best = STEPS + 1;
        for (size_t step = 0; step <= STEPS; step++) {
            if (o.max_classes && neurons[step] > o.max_classes) continue;
            limits[which]++;
            if (best > STEPS || recall[step] > recall[best] ||
                (recall[step] == recall[best] && neurons[step] < neurons[best]))
                best = step;
        }
        for (size_t step = 0; !limits[which] && step <= STEPS; step++)
            if (best > STEPS || neurons[step] < neurons[best] ||
                (neurons[step] == neurons[best] && recall[step] > recall[best]))
                best = step;
        wo_index *index = NULL;
        if (wo_index_build(p->layer, whole.log, &o, &index, &err)) fail_msg("%s", err.text);
        const double *row = kept_row(index);
        assert_int_equal(row[WOI_TRACE_STEP], best);
        assert_true(fabs(row[WOI_TRACE_JUDGED_RECALL] - recall[best]) < 1e-12);
        assert_true(fabs(row[WOI_TRACE_JUDGED_NEURONS] - neurons[best]) < 1e-9);
        assert_true(!limits[which] || !o.max_classes || row[WOI_TRACE_JUDGED_NEURONS] <= o.max_classes);
        for (size_t r = 0; r < index->n_trace; r++) { /* what the trace says of the others */
            const double *at = index->trace + r * WOI_TRACE_COLUMNS;
            const size_t step = (size_t)at[WOI_TRACE_STEP];
            assert_true(fabs(at[WOI_TRACE_JUDGED_RECALL] - recall[step]) < 1e-12);
            assert_true(fabs(at[WOI_TRACE_JUDGED_NEURONS] - neurons[step]) < 1e-9);
        }
        const woi_hash *mine = &index->hash, *theirs = &steps[best]->hash;
        assert_memory_equal(mine->planes, theirs->planes, D * mine->n_planes * sizeof *mine->planes);
        assert_memory_equal(mine->bias_planes, theirs->bias_planes, mine->n_planes * sizeof *mine->planes);
        assert_memory_equal(index->cells.ids, steps[best]->cells.ids, M * o.L * sizeof *index->cells.ids);
        any = which ? any : best;
        wo_index_free(index);
    }
    for (int step = 0; step <= STEPS; step++) wo_index_free(steps[step]);
    free_part(&whole);
    free_part(&learned);
    free_part(&judged);
    free(seen);
    free(heard);
    free(all);
}

static void the_best_step_is_kept(void **state)
{
    (void)state;
    planted *p = plant();
    for (int i = 0; i < 4; i++) { /* the last one: too few queries to hold some out */
        wo_build_options o = options_of(WO_METHOD_LSS, i == 1 ? WO_LOSS_MARGIN : WO_LOSS_PAPER);
        size_t within[3] = {0, 0, 0};
        o.seed = 5 + (uint64_t)i;
        o.init = i == 1 ? WO_INIT_MEAN : WO_INIT_RANDOM;
        o.probes = i == 2 ? 3 : 1;
        o.rate = 0.5; /* recall goes up and down */
        o.trace_points = i == 3 ? 0 : 5;
        check_kept(p, &o, i == 3 ? 600 : N, within);
        assert_int_equal(within[0], STEPS + 1);
        assert_true(within[1] > 0 && within[1] <= STEPS && within[2] == 0);
    }
    uproot(p);
}

static void the_last_step_has_no_limit(void **state)
{
    (void)state;
    wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    wo_error err;
    o.last_step = 1;
    assert_int_equal(wo_build_check(&o, &err), WO_OK);
    o.max_classes = 7;
    assert_int_equal(wo_build_check(&o, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "max_neurons is 7, but the last step is kept whatever it has");
    o.last_step = 0;
    assert_int_equal(wo_build_check(&o, &err), WO_OK);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    planted *p = plant();
    for (int i = 0; i < 4; i++) {
        wo_build_options o = options_of(WO_METHOD_LSS, i % 2 ? WO_LOSS_MARGIN : WO_LOSS_PAPER);
        o.init = i / 2 ? WO_INIT_MEAN : WO_INIT_RANDOM;
        o.optimiser = i / 2 ? WO_OPTIMISER_SGD : WO_OPTIMISER_ADAM;
        o.t1 = 0.5;
        o.t2 = 20;
        o.probes = i % 2 + 1;
        o.max_classes = i % 2 ? 100 : 0;
        o.threads = 1;
        wo_index *one = build(p, &o);
        o.threads = 3;
        wo_index *many = build(p, &o);
        assert_memory_equal(one->hash.planes, many->hash.planes, D * one->hash.n_planes * sizeof *one->hash.planes);
        assert_memory_equal(one->hash.bias_planes, many->hash.bias_planes, one->hash.n_planes * sizeof(float));
        assert_memory_equal(one->cells.ids, many->cells.ids, M * o.L * sizeof *one->cells.ids);
        assert_memory_equal(one->trace, many->trace, one->n_trace * WOI_TRACE_COLUMNS * sizeof *one->trace);
        o.seed++;
        wo_index *other = build(p, &o);
        assert_memory_not_equal(one->hash.planes, other->hash.planes, D * sizeof *one->hash.planes);
        wo_index_free(one);
        wo_index_free(many);
        wo_index_free(other);
    }
    uproot(p);
}

/* No logit is above t1: P+ is empty and nothing is learned. None is below t2: P+ pulls alone. */
static void thresholds_as_values_can_stop_learning(void **state)
{
    (void)state;
    planted *p = plant();
    wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    const wo_build_options plain = options_of(WO_METHOD_SLIDE, WO_LOSS_PAPER);
    wo_index *start = build(p, &plain);
    o.t_are_values = 1;
    o.last_step = 1;
    o.iterations = 3;
    static const double values[][3] = {{1e9, 1e9, 0}, {-1e9, -1e9, 1}, {-1e9, 1e9, 1}};
    for (size_t i = 0; i < 3; i++) {
        o.t1 = values[i][0];
        o.t2 = values[i][1];
        wo_index *index = build(p, &o);
        const bool moved = memcmp(start->hash.planes, index->hash.planes, D * sizeof(float)) != 0;
        assert_int_equal(moved, values[i][2]);
        assert_int_equal(index->trace[WOI_TRACE_LOSS] > 0, values[i][2]);
        wo_index_free(index);
    }
    wo_index_free(start);
    uproot(p);
}

static void labels_are_needed(void **state)
{
    (void)state;
    planted *p = plant();
    const wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    static const int64_t none[N + 1];
    const int64_t *const indptrs[] = {NULL, none};
    for (size_t i = 0; i < 2; i++) {
        wo_log *log = NULL;
        wo_index *index = NULL;
        wo_error err;
        assert_int_equal(wo_log_wrap(p->q, N, D, indptrs[i], i ? p->labels : NULL, &log, &err), WO_OK);
        assert_int_equal(wo_index_build(p->layer, log, &o, &index, &err), WO_ERR_ARGUMENT);
        assert_string_equal(err.text, "the log has no labels, and lss learns from labels");
        assert_null(index);
        wo_log_free(log);
    }
    uproot(p);
}

/* Degenerate data: no bias, one class, all neurons equal, queries of zeros, a batch larger than the log. */
static void odd_data_build(void **state)
{
    (void)state;
    static const float w[8] = {1, 2, 1, 2, 1, 2, 1, 2}, q[6] = {0, 0, 1, 1, -1, 3};
    static const int64_t indptr[4] = {0, 1, 1, 2};
    static const int32_t labels[2] = {0, 0};
    wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_MARGIN);
    o.iterations = 5;
    o.t1 = 1;
    o.t2 = 1;
    for (size_t m = 1; m <= 4; m += 3) {
        wo_layer *layer = NULL;
        wo_log *log = NULL;
        wo_index *index = NULL;
        wo_error err;
        assert_int_equal(wo_layer_wrap(w, NULL, m, 2, &layer, &err), WO_OK);
        assert_int_equal(wo_log_wrap(q, 3, 2, indptr, labels, &log, &err), WO_OK);
        for (int init = 0; init < 2; init++) {
            o.init = init ? WO_INIT_MEAN : WO_INIT_RANDOM;
            if (wo_index_build(layer, log, &o, &index, &err)) fail_msg("%s", err.text);
            assert_int_equal(index->cells.offsets[index->cells.n], m * o.L);
            wo_index_free(index);
        }
        wo_log_free(log);
        wo_layer_free(layer);
    }
}

static int stop_after(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)stage;
    (void)done;
    (void)total;
    return --*(int *)ctx < 0;
}

static void it_can_be_stopped(void **state)
{
    (void)state;
    planted *p = plant();
    wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    o.t2 = 100;
    for (int calls = 0; calls < 8; calls += 7) {
        int left = calls;
        wo_index *index = NULL;
        o.progress = (wo_progress){stop_after, &left};
        assert_int_equal(wo_index_build(p->layer, p->log, &o, &index, NULL), WO_ERR_CANCELLED);
        assert_null(index);
    }
    uproot(p);
}

/* Whoever has the arrays, or the file that they are mapped from, writes into them at the call that makes left 0. */
typedef struct writer {
    float *at;
    size_t n, step; /* numbers; of them every step-th becomes NaN */
    int left;
} writer;

static int write_over(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    writer *w = ctx;
    (void)stage;
    (void)done;
    (void)total;
    for (size_t i = 0; w->left == 0 && i < w->n; i += w->step) w->at[i] = NAN;
    w->left--;
    return 0;
}

/* A row that is not finite has no cell: no address comes of it. */
static void arrays_that_change_are_refused(void **state)
{
    (void)state;
    wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    o.t2 = 100;
    o.iterations = 20;
    for (int seed = 0; seed < 24; seed++) {
        planted *p = plant();
        const bool queries = seed % 2;
        writer w = {queries ? p->q : p->w, queries ? N * D : M * D, seed % 3 ? 1 : 7 * D, seed / 2};
        wo_index *index = NULL;
        wo_error err;
        o.progress = (wo_progress){write_over, &w};
        o.last_step = seed % 4 / 2;
        o.init = seed % 3 ? WO_INIT_RANDOM : WO_INIT_MEAN;
        const wo_status status = wo_index_build(p->layer, p->log, &o, &index, &err);
        if (status || seed % 3) { /* else no batch may have had one of those queries */
            assert_int_equal(status, WO_ERR_ARGUMENT);
            assert_string_equal(err.text, queries ? "a query is not finite any more: the log has changed meanwhile"
                                                  : "a row is not finite any more: the layer has changed meanwhile");
            assert_int_equal(err.about, queries ? WO_ABOUT_LOG : WO_ABOUT_LAYER);
        }
        wo_index_free(index);
        uproot(p);
    }
    /* The same in slide, which is not told of progress: they change before it. */
    planted *p = plant();
    const wo_build_options slide = options_of(WO_METHOD_SLIDE, WO_LOSS_PAPER);
    wo_index *index = NULL;
    wo_error err;
    p->w[5 * D] = NAN;
    assert_int_equal(wo_index_build(p->layer, NULL, &slide, &index, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "a row is not finite any more: the layer has changed meanwhile");
    assert_null(index);
    uproot(p);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    planted *p = plant();
    wo_build_options o = options_of(WO_METHOD_LSS, WO_LOSS_PAPER);
    o.iterations = 2;
    o.t2 = 100;
    const long before = allocations_alive;
    bool built = false;
    for (long left = 0; !built; left++) {
        wo_index *index = NULL;
        wo_error err;
        allocations_left = left;
        const wo_status status = wo_index_build(p->layer, p->log, &o, &index, &err);
        allocations_left = -1;
        built = status == WO_OK;
        if (!built) assert_int_equal(status, WO_ERR_MEMORY);
        wo_index_free(index);
        assert_int_equal(allocations_alive, before);
    }
    uproot(p);
    assert_int_equal(allocations_alive, 0);
    wo_allocator_set(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thresholds_are_the_logits_of_the_ranks),
        cmocka_unit_test(slide_is_random_planes),
        cmocka_unit_test(learning_finds_more_labels_among_fewer),
        cmocka_unit_test(the_trace_is_what_a_search_sees),
        cmocka_unit_test(the_best_step_is_kept),
        cmocka_unit_test(the_last_step_has_no_limit),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(thresholds_as_values_can_stop_learning),
        cmocka_unit_test(labels_are_needed),
        cmocka_unit_test(odd_data_build),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(arrays_that_change_are_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
