/* build/rows: where the queries of a class are expected, which leaves its row leads to, and what cells then hold, each
 * by its definition. */
#include "engine.h"

#include "base/ids.h"
#include "build/build_evidence.h"

enum { M = 150, D = 16, N = 400, CELLS = 32 };

/* Turns: with and without biases, a cap and shares; one leaf and three; flat, and a tree. */
static wo_build_options options_of(uint64_t turn)
{
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    o.nodes = turn / 4 ? 4 : 0;
    o.leaves = turn / 4 ? 4 : 12;
    o.beam = 4;
    o.source = WO_SOURCE_LABELS;
    o.thin = 0;
    o.cap = turn % 2 ? 20 : 0;
    o.lambda = 0.05;
    o.prior = turn / 2 % 2;
    o.rows = turn / 2 % 2 ? 3 : 1;
    return o;
}

/* What an index was built by: the same again. */
typedef struct made {
    scene s;
    wo_index *index;
    woi_sparse needs;
    woi_expected expected;
    woi_placed placed;
} made;

static made make(uint64_t turn)
{
    made x = {.s = make_scene(M, D, N, turn % 2, turn)};
    wo_build_options o = options_of(turn);
    wo_error err;
    x.index = build(&x.s, &o);
    const woi_needs_call call = {
        .rows = &x.index->rows, .log = x.s.log, .source = WO_SOURCE_LABELS, .threads = 1, .progress = &o.progress};
    assert_int_equal(woi_needs_of(&call, &x.needs, &err), WO_OK);
    assert_int_equal(woi_expected_learn(x.index, x.s.log, &x.needs, &x.expected, &err), WO_OK);
    assert_int_equal(woi_rows_place(x.index, &x.expected, &x.placed, &err), WO_OK);
    return x;
}

static void drop(made *x)
{
    woi_placed_free(&x->placed);
    woi_expected_free(&x->expected);
    woi_sparse_free(&x->needs);
    wo_index_free(x->index);
    free_scene(&x->s);
}

/* Least squares: what is left over is at right angles to every coordinate of the rows, but for the ridge, and has mean
 * 0. */
static void points_fit_the_log(void **state)
{
    (void)state;
    made x = make(0);
    const size_t r = x.index->tree.r;
    double sums[D] = {0}, products[D][D] = {{0}}, squares = 0, length = 0;
    void *scratch = aligned_alloc(64, (woi_tree_scratch(&x.index->tree, 1, 1) + 63) / 64 * 64);
    assert_non_null(scratch);
    assert_int_equal(r, D);
    for (size_t i = 0; i < N; i++) {
        const float *q = x.s.q + i * D;
        double square = 0;
        float direction[D];
        for (size_t j = 0; j < D; j++) square += (double)q[j] * (double)q[j];
        length += sqrt(square) / N;
        if (x.s.indptr[i + 1] == x.s.indptr[i]) continue;
        int32_t label = M;
        for (int64_t at = x.s.indptr[i]; at < x.s.indptr[i + 1]; at++)
            if (x.s.labels[at] < label) label = x.s.labels[at];
        assert_true(woi_tree_turn(&x.index->tree, woi_kernels_get(NULL), q, scratch, direction));
        const float *w = x.s.w + (size_t)label * D;
        for (size_t j = 0; j < D; j++) {
            double left = (double)direction[j] - (double)x.expected.shift[j];
            for (size_t k = 0; k < D; k++) left -= (double)x.expected.turn[j * D + k] * (double)w[k];
            sums[j] += left;
            for (size_t k = 0; k < D; k++) products[j][k] += left * (double)w[k];
            squares += (double)w[j] * (double)w[j];
        }
    }
    assert_true(fabs(length - (double)x.expected.length) < 1e-4 * length);
    for (size_t j = 0; j < D; j++) {
        assert_true(fabs(sums[j]) < 1e-3);
        for (size_t k = 0; k < D; k++)
            assert_true(fabs(products[j][k] - 1e-3 * squares / D * (double)x.expected.turn[j * D + k]) < 1e-3);
    }
    free(scratch);
    drop(&x);
}

/* The leaves of every row, and its weight. */
static void rows_lie_in_the_nearest_leaves(void **state)
{
    (void)state;
    size_t told = 0;
    for (uint64_t turn = 0; turn < 4; turn++) { /* flat: all leaves are looked at */
        made x = make(turn);
        const woi_tree *tree = &x.index->tree;
        const size_t n_cells = woi_tree_n_cells(tree);
        assert_int_equal(x.index->options.nodes, 1);
        for (size_t row = 0; row < M; row++) {
            double point[D], weight = x.s.b ? (double)x.s.b[row] : 0, scale, scores[CELLS];
            int codes[D];
            const float *w = x.s.w + row * D;
            for (size_t j = 0; j < D; j++) {
                point[j] = (double)x.expected.shift[j];
                for (size_t k = 0; k < D; k++) point[j] += (double)x.expected.turn[j * D + k] * (double)w[k];
                weight += (double)x.expected.length / 2 * (double)w[j] * (point[j] + (double)x.expected.shift[j]);
            }
            assert_true(fabs(weight - (double)x.placed.weights[row]) < 1e-4);
            if (!naive_codes(point, D, codes, &scale)) continue;
            assert_true(n_cells <= CELLS);
            const naive_centres all = {tree->leaves, tree->leaf_scales, tree->leaf_offsets, n_cells};
            for (size_t c = 0; c < n_cells; c++) scores[c] = naive_score(codes, scale, D, &all, c);
            size_t best[3];
            const uint32_t each = x.placed.each;
            if (pick_best(scores, n_cells, each, true, best) < 0) continue;
            for (uint32_t l = 0; l < each; l++) assert_int_equal(x.placed.of[row * each + l], best[l]);
            told++;
        }
        drop(&x);
    }
    assert_true(told > 3 * M);
}

static int by_weight(const void *a, const void *b)
{
    const woi_need *x = a, *y = b;
    return x->evidence != y->evidence ? (x->evidence < y->evidence) - (x->evidence > y->evidence)
                                      : (x->id > y->id) - (x->id < y->id);
}

/* What cell c should hold, ascending: classes with enough evidence, most first, then rows, most weight first. */
static size_t expected_cell(const made *x, const uint32_t *of, uint32_t c, int32_t *ids)
{
    const wo_build_options *o = &x->index->options;
    woi_need all[M];
    size_t n = 0, n_queries = 0, n_all = 0;
    double evidence[M] = {0};
    for (size_t i = 0; i < N; i++) {
        if (of[i] != c) continue;
        n_queries++;
        for (int64_t at = x->needs.indptr[i]; at < x->needs.indptr[i + 1]; at++) evidence[x->needs.ids[at]]++;
    }
    const size_t most = o->cap ? o->cap : M;
    for (int32_t id = 0; id < M; id++)
        if (evidence[id] > 0 && evidence[id] >= o->lambda * (double)n_queries)
            all[n_all++] = (woi_need){(float)evidence[id], id};
    qsort(all, n_all, sizeof *all, by_weight);
    for (; n < n_all && n < most; n++) ids[n] = all[n].id;
    woi_ids_sort(ids, n);
    const size_t n_own = n;
    n_all = 0;
    for (int32_t id = 0; id < M; id++)
        for (uint32_t l = 0; l < x->placed.each; l++)
            if (x->placed.of[(size_t)id * x->placed.each + l] == c && !woi_ids_find(ids, n_own, id))
                all[n_all++] = (woi_need){x->placed.weights[id], id};
    qsort(all, n_all, sizeof *all, by_weight);
    for (size_t i = 0; i < n_all && n < most; i++) ids[n++] = all[i].id;
    woi_ids_sort(ids, n);
    return n;
}

static void cells_hold_what_rows_lead_to(void **state)
{
    (void)state;
    for (uint64_t turn = 0; turn < 8; turn++) {
        made x = make(turn);
        const woi_cells *cells = &x.index->cells;
        uint32_t of[N];
        wo_error err;
        const woi_filing filing = {.each = 1, .cells = of};
        assert_int_equal(woi_tree_file(&x.index->tree, x.s.q, N, 1, &filing, &err), WO_OK);
        size_t times[M] = {0};
        for (uint32_t c = 0; c < cells->n; c++) {
            int32_t ids[M];
            const size_t n = expected_cell(&x, of, c, ids);
            assert_int_equal(cells->offsets[c + 1] - cells->offsets[c], n);
            assert_memory_equal(cells->ids + cells->offsets[c], ids, n * sizeof *ids);
            for (size_t i = 0; i < n; i++) times[ids[i]]++;
        }
        for (size_t id = 0; id < M && !x.index->options.cap; id++) assert_true(times[id] >= x.placed.each);

        wo_build_options o = options_of(turn);
        o.threads = 2;
        wo_index *again = build(&x.s, &o);
        assert_memory_equal(again->cells.offsets, cells->offsets, (cells->n + 1) * sizeof *cells->offsets);
        assert_memory_equal(again->cells.ids, cells->ids, cells->offsets[cells->n] * sizeof *cells->ids);
        if (cells->shares)
            assert_memory_equal(again->cells.shares, cells->shares, cells->offsets[cells->n] * sizeof *cells->shares);
        wo_index_free(again);
        drop(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(points_fit_the_log),
                                       cmocka_unit_test(rows_lie_in_the_nearest_leaves),
                                       cmocka_unit_test(cells_hold_what_rows_lead_to)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
