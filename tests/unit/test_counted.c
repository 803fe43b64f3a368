/* Counted logs: a row that stands for several queries does what these do one by one. */
#include "engine.h"

#include "build/build.h"
#include "fill/cells.h"
#include "store/log.h"
#include "store/store.h"

enum { ROWS = 400, CLASSES = 40, MOST = 6 /* times a row was seen */ };

/* A counted log, and the same queries one by one: query `of` of the former is row[i] of the latter. */
typedef struct pair {
    scene s;
    wo_log counted, *single;
    int32_t counts[ROWS], label_counts[ROWS * 16];
    float *q;
    int64_t indptr[ROWS * MOST + 1];
    int32_t labels[ROWS * MOST * 16];
    size_t row[ROWS * MOST], n;
} pair;

/* Of a row's queries the first so many have a label as its count says. */
static pair *make_pair(uint64_t seed)
{
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->s = make_scene(CLASSES, 5, ROWS, true, seed);
    const scene *s = &p->s;
    p->q = malloc(ROWS * MOST * s->d * sizeof *p->q);
    assert_non_null(p->q);
    for (size_t i = 0; i < ROWS; i++) {
        p->counts[i] = 1 + (int32_t)woi_rng_below(seed, 50, i, MOST);
        assert_true(s->indptr[i + 1] - s->indptr[i] <= 16);
        for (int64_t at = s->indptr[i]; at < s->indptr[i + 1]; at++)
            p->label_counts[at] = 1 + (int32_t)woi_rng_below(seed, 51, (uint64_t)at, (uint64_t)p->counts[i]);
        for (int32_t time = 0; time < p->counts[i]; time++, p->n++) {
            int64_t end = p->indptr[p->n];
            for (int64_t at = s->indptr[i]; at < s->indptr[i + 1]; at++)
                if (time < p->label_counts[at]) p->labels[end++] = s->labels[at];
            p->indptr[p->n + 1] = end;
            p->row[p->n] = i;
            memcpy(p->q + p->n * s->d, s->q + i * s->d, s->d * sizeof *p->q);
        }
    }
    wo_error err;
    if (wo_log_wrap(p->q, p->n, s->d, p->indptr, p->labels, &p->single, &err)) fail_msg("%s", err.text);
    p->counted = *s->log;
    p->counted.counts = p->counts;
    p->counted.label_counts = p->label_counts;
    return p;
}

static void free_pair(pair *p)
{
    wo_log_free(p->single);
    free_scene(&p->s);
    free(p->q);
    free(p);
}

static woi_sparse needs_of(const pair *p, const wo_log *log, wo_source source)
{
    wo_error err;
    woi_sparse needs;
    const woi_dense rows = {p->s.m, p->s.d, p->s.w, p->s.b};
    const woi_needs_call call = {.rows = &rows, .log = log, .source = source, .k = 3, .threads = 2};
    if (woi_needs_of(&call, &needs, &err)) fail_msg("%s", err.text);
    return needs;
}

static void a_row_needs_what_its_queries_need(void **state)
{
    (void)state;
    for (int source = WO_SOURCE_LABELS; source <= (int)WO_SOURCE_BOTH; source++) {
        pair *p = make_pair(20 + (uint64_t)source);
        woi_sparse counted = needs_of(p, &p->counted, (wo_source)source);
        woi_sparse single = needs_of(p, p->single, (wo_source)source);
        assert_null(single.times);
        size_t query = 0;
        for (size_t i = 0; i < ROWS; i++) {
            float sum[CLASSES] = {0};
            for (; query < p->n && p->row[query] == i; query++)
                for (int64_t at = single.indptr[query]; at < single.indptr[query + 1]; at++)
                    sum[single.ids[at]] += single.weights[at];
            int64_t at = counted.indptr[i];
            for (int32_t j = 0; j < CLASSES; j++) {
                if (sum[j] == 0) continue;
                assert_int_equal(counted.ids[at], j);
                assert_true(counted.weights[at++] == sum[j]);
            }
            assert_int_equal(at, counted.indptr[i + 1]);
            assert_true(counted.times[i] == (float)p->counts[i]);
        }
        woi_sparse_free(&counted);
        woi_sparse_free(&single);
        free_pair(p);
    }
}

static void assert_same_cells(const woi_cells *a, const woi_cells *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->offsets, b->offsets, (a->n + 1) * sizeof *a->offsets);
    assert_memory_equal(a->ids, b->ids, a->offsets[a->n] * sizeof *a->ids);
    assert_memory_equal(a->shares, b->shares, a->offsets[a->n] * sizeof *a->shares);
    assert_memory_equal(a->queries, b->queries, a->n * sizeof *a->queries);
}

/* Cells of hash tables, where sums of whole numbers have no rounding. */
static void a_row_fills_cells_as_its_queries_do(void **state)
{
    (void)state;
    enum { K = 5, L = 2 };
    static const double lambdas[] = {0, 0.1, 0.4};
    for (uint64_t turn = 0; turn < 18; turn++) {
        pair *p = make_pair(40 + turn);
        const wo_source source = (wo_source)(1 + turn % 3);
        woi_sparse counted = needs_of(p, &p->counted, source), single = needs_of(p, p->single, source);
        uint32_t *of = malloc(p->n * L * sizeof *of), *of_row = malloc((size_t)ROWS * L * sizeof *of_row);
        assert_true(of && of_row);
        for (size_t i = 0; i < ROWS * L; i++)
            of_row[i] = (uint32_t)(i % L << K) + (uint32_t)woi_rng_below(turn, 60, i, 1 << K);
        for (size_t i = 0; i < p->n * L; i++) of[i] = of_row[p->row[i / L] * L + i % L];
        const woi_evidence_options o = {.K = K,
                                        .L = L,
                                        .lambda = lambdas[turn / 3 % 3],
                                        .thin = turn % 2 ? 0 : 60,
                                        .floor = 1,
                                        .cap = turn < 9 ? 0 : 7,
                                        .shares = true,
                                        .threads = 2};
        woi_cells cells, expected;
        wo_error err;
        if (woi_fill_evidence(&counted, of_row, &o, CLASSES, &cells, &err)) fail_msg("%s", err.text);
        if (woi_fill_evidence(&single, of, &o, CLASSES, &expected, &err)) fail_msg("%s", err.text);
        assert_same_cells(&cells, &expected);
        woi_cells_free(&cells);
        woi_cells_free(&expected);
        woi_sparse_free(&counted);
        woi_sparse_free(&single);
        free(of);
        free(of_row);
        free_pair(p);
    }
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

static void write_counted(const char *path, const pair *p, size_t piece)
{
    wo_log_writer *writer = NULL;
    wo_error err;
    const scene *s = &p->s;
    const wo_log_writer_options o = {.struct_size = sizeof o, .d = s->d, .n = ROWS, .labels = 1};
    if (wo_log_writer_create(path, &o, &writer, &err) || woi_log_set_counted(writer, path, &err))
        fail_msg("%s", err.text);
    for (size_t first = 0; first < ROWS; first += piece) {
        const size_t n = ROWS - first < piece ? ROWS - first : piece;
        int64_t indptr[ROWS + 1];
        for (size_t i = 0; i <= n; i++) indptr[i] = s->indptr[first + i] - s->indptr[first];
        const woi_log_rows rows = {.n = n,
                                   .queries = s->q + first * s->d,
                                   .indptr = indptr,
                                   .labels = s->labels + s->indptr[first],
                                   .counts = p->counts + first,
                                   .label_counts = p->label_counts + s->indptr[first]};
        if (woi_log_append_rows(writer, &rows, &err)) fail_msg("%s", err.text);
    }
    if (wo_log_finish(writer, &err)) fail_msg("%s", err.text);
    wo_log_writer_free(writer);
}

static void assert_is(const pair *p, const wo_log *log, size_t row, size_t label)
{
    assert_memory_equal(log->counts + row, p->counts, sizeof p->counts);
    assert_memory_equal(log->label_counts + label, p->label_counts,
                        (size_t)p->s.indptr[ROWS] * sizeof *p->label_counts);
}

static void counts_come_back(void **state)
{
    (void)state;
    wo_error err;
    pair *p = make_pair(7);
    for (size_t piece = 1; piece <= ROWS; piece *= 20) {
        wo_log *log = NULL;
        write_counted(scratch("log"), p, piece);
        if (wo_log_open(scratch("log"), &log, &err)) fail_msg("%s", err.text);
        assert_int_equal(log->n, ROWS);
        assert_is(p, log, 0, 0);
        wo_log_free(log);
    }
    free_pair(p);
}

/* Rows of the other stand for one query each. */
static void counted_logs_join_others(void **state)
{
    (void)state;
    wo_error err;
    pair *p = make_pair(8);
    wo_log *joined = NULL;
    const wo_log *logs[] = {p->single, &p->counted};
    if (wo_log_join(logs, 2, &joined, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < p->n; i++) assert_int_equal(joined->counts[i], 1);
    for (int64_t i = 0; i < p->indptr[p->n]; i++) assert_int_equal(joined->label_counts[i], 1);
    assert_is(p, joined, p->n, (size_t)p->indptr[p->n]);
    assert_true(woi_log_hash(&p->counted) != woi_log_hash(p->s.log));
    wo_log_free(joined);
    free_pair(p);
}

/* Two queries with one label each, and these counts; dtypes and lengths as given. */
static void write_counts(const int64_t *rows, uint64_t n_rows, const int64_t *labels, uint64_t n_labels)
{
    static const float q[2] = {1, 2};
    static const int64_t indptr[3] = {0, 1, 2};
    static const int32_t ids[2] = {3, 4};
    woi_st_writer *st = NULL;
    wo_error err;
    const struct {
        const char *name;
        woi_dtype dtype;
        int n_dims;
        uint64_t shape[2];
        const void *data;
    } tensors[] = {{"queries", WOI_F32, 2, {2, 1}, q},
                   {"labels.indptr", WOI_I64, 1, {3, 1}, indptr},
                   {"labels.indices", WOI_I32, 1, {2, 1}, ids},
                   {"queries.counts", WOI_I64, 1, {n_rows, 1}, rows},
                   {"labels.counts", WOI_I64, 1, {n_labels, 1}, labels}};
    if (woi_st_create(scratch("odd"), "log", &st, &err)) fail_msg("%s", err.text);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < 5; i++) {
            const size_t n = (size_t)(tensors[i].shape[0] * tensors[i].shape[1]);
            if (!tensors[i].data) continue;
            if (turn ? woi_st_append(st, tensors[i].data, n * woi_dtype_bytes(tensors[i].dtype), &err)
                     : woi_st_declare(st, tensors[i].name, tensors[i].dtype, tensors[i].n_dims, tensors[i].shape, &err))
                fail_msg("%s", err.text);
        }
    if (woi_st_finish(st, &err)) fail_msg("%s", err.text);
    woi_st_writer_free(st);
}

static void bad_counts_are_refused_with_their_place(void **state)
{
    (void)state;
    static const struct {
        int64_t rows[3];
        uint64_t n_rows;
        int64_t labels[3];
        uint64_t n_labels;
        const char *sentence; /* NULL: fine */
    } cases[] = {
        {{5, 6}, 2, {5, 1}, 2, NULL},
        {{5, 6},
         2,
         {0},
         0,
         "the log has queries.counts, but no labels.counts: a counted log has both, and labels.indices"},
        {{0},
         0,
         {5, 1},
         2,
         "the log has labels.counts, but no queries.counts: a counted log has both, and labels.indices"},
        {{5, 0}, 2, {5, 1}, 2, "queries.counts[1] is 0, expected 1 to 2147483647"},
        {{5, 6}, 2, {-1, 1}, 2, "labels.counts[0] is -1, expected 1 to 2147483647"},
        {{5, 1LL << 31}, 2, {5, 1}, 2, "queries.counts[1] is 2147483648, expected 1 to 2147483647"},
        {{5, 6}, 2, {5, 7}, 2, "labels.counts[1] is 7, more than the 6 of its query in queries.counts"},
        {{5, 6, 7}, 3, {5, 1}, 2, "queries.counts has 3 entries, expected 2"},
        {{5, 6}, 2, {5}, 1, "labels.counts has 1 entries, expected 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wo_log *log = NULL;
        wo_error err = {.text = ""};
        write_counts(cases[i].n_rows ? cases[i].rows : NULL, cases[i].n_rows,
                     cases[i].n_labels ? cases[i].labels : NULL, cases[i].n_labels);
        const wo_status status = wo_log_open(scratch("odd"), &log, &err);
        assert_int_equal(status, cases[i].sentence ? WO_ERR_FORMAT : WO_OK);
        if (cases[i].sentence) assert_string_equal(err.text, cases[i].sentence);
        wo_log_free(log);
    }
}

static double log_z_error(const pair *p, const wo_log *log, size_t row)
{
    wo_error err;
    wo_build_options o;
    wo_index *index = NULL;
    wo_searcher *searcher = NULL;
    float of[2];
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    o.K = 3;
    o.L = 2;
    o.iterations = 4;
    o.lambda = 0.3;
    o.partition = 1;
    if (wo_index_build(p->s.layer, log, &o, &index, &err) || wo_searcher_create(index, NULL, &searcher, &err))
        fail_msg("%s", err.text);
    for (int full = 0; full < 2; full++) {
        const wo_search_call call = {.struct_size = sizeof call,
                                     .queries = p->s.q + row * p->s.d,
                                     .n = 1,
                                     .by = full ? WO_BY_FULL : WO_BY_CELLS};
        if (wo_log_partition(searcher, &call, &of[full], &err)) fail_msg("%s", err.text);
    }
    wo_searcher_free(searcher);
    wo_index_free(index);
    return fabs((double)of[0] - (double)of[1]);
}

/* log Z is learned from the queries that rows stand for: where nearly all are one row's, it is right there. */
static void log_z_goes_by_counts(void **state)
{
    (void)state;
    pair *p = make_pair(10);
    double counted = 0, plain = 0;
    for (size_t row = 3; row < ROWS; row += 40) {
        for (size_t i = 0; i < ROWS; i++) p->counts[i] = i == row ? 1000000 : 1;
        for (int64_t at = 0; at < p->s.indptr[ROWS]; at++) p->label_counts[at] = 1;
        counted += log_z_error(p, &p->counted, row);
        plain += log_z_error(p, p->s.log, row);
    }
    if (!(counted < plain / 3)) fail_msg("errors add up to %g, without counts to %g", counted, plain);
    free_pair(p);
}

/* A tuner that judges on a part of the log builds from the rest of it, with the counts of the rest. */
static void a_tuner_takes_counts_along(void **state)
{
    (void)state;
    wo_error err;
    pair *p = make_pair(9);
    wo_tune_options o;
    wo_tune_defaults(&o, sizeof o);
    o.target = o.target5 = 0.5;
    o.max_time_s = 2;
    wo_index *index = NULL;
    if (wo_index_tune(p->s.layer, &p->counted, NULL, &o, &index, &err)) fail_msg("%s", err.text);
    wo_index_free(index);
    free_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_needs_what_its_queries_need),
        cmocka_unit_test(a_row_fills_cells_as_its_queries_do),
        cmocka_unit_test(counts_come_back),
        cmocka_unit_test(counted_logs_join_others),
        cmocka_unit_test(bad_counts_are_refused_with_their_place),
        cmocka_unit_test(log_z_goes_by_counts),
        cmocka_unit_test(a_tuner_takes_counts_along),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
