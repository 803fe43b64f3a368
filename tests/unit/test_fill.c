/* fill/: what lies in the cells, against the definitions taken literally. */
#include "testing.h"

#include "base/rng.h"
#include "fill/cells.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Queries with what they needed, and the cell of each in each table. */
typedef struct scene {
    size_t n, m;
    uint32_t K, L;
    woi_sparse needs;
    uint32_t *of;
} scene;

static scene make_scene(size_t n, size_t m, uint32_t K, uint32_t L, uint64_t seed)
{
    scene s = {.n = n, .m = m, .K = K, .L = L, .needs.n = n, .of = malloc((n * L + 1) * sizeof *s.of)};
    s.needs.indptr = malloc((n + 1) * sizeof *s.needs.indptr);
    s.needs.ids = malloc((n * 6 + 1) * sizeof *s.needs.ids);
    s.needs.weights = malloc((n * 6 + 1) * sizeof *s.needs.weights);
    assert_true(s.of && s.needs.indptr && s.needs.ids && s.needs.weights);
    int64_t used = s.needs.indptr[0] = 0;
    for (size_t i = 0; i < n; i++) {
        /* Ascending and distinct: each id of a random walk; the first ids are the popular ones. */
        int32_t id = (int32_t)(woi_rng_below(seed, 1, i, m) * woi_rng_below(seed, 2, i, m) / m);
        for (uint64_t k = 0; k < woi_rng_below(seed, 3, i, 7) && (size_t)id < m; k++) {
            s.needs.ids[used] = id;
            s.needs.weights[used++] = (float)(1 + woi_rng_below(seed, 4, 6 * i + k, 2));
            id += 1 + (int32_t)woi_rng_below(seed, 5, 6 * i + k, 4);
        }
        s.needs.indptr[i + 1] = used;
        /* Some cells crowded, some empty. */
        for (uint32_t l = 0; l < L; l++) {
            const uint64_t cells = (uint64_t)1 << K, draw = i * L + l;
            s.of[i * L + l] = (l << K) + (uint32_t)(woi_rng_below(seed, 6, draw, cells) *
                                                    woi_rng_below(seed, 7, draw, cells) / cells);
        }
    }
    return s;
}

static void free_scene(scene *s)
{
    free(s->needs.indptr);
    free(s->needs.ids);
    free(s->needs.weights);
    free(s->of);
}

/* ---- Evidence ---------------------------------------------------------------------------------------------- */

static double add_part(const scene *s, size_t i, float part, double *evidence)
{
    for (int64_t at = s->needs.indptr[i]; at < s->needs.indptr[i + 1]; at++)
        evidence[s->needs.ids[at]] += (double)(part * s->needs.weights[at]);
    return (double)part;
}

static size_t add_query(const scene *s, size_t i, double *evidence)
{
    return (size_t)add_part(s, i, 1, evidence);
}

/* The queries of a cell of a hash table: all within the smallest distance that gathers `thin` of them, or everything.
 */
static size_t pool_rings(const scene *s, const woi_evidence_options *o, uint32_t cell, double *evidence)
{
    const uint32_t l = cell >> s->K;
    size_t pooled = 0;
    for (int distance = 0; distance == 0 || (pooled < o->thin && distance <= (int)s->K); distance++)
        for (size_t i = 0; i < s->n; i++)
            if (__builtin_popcount(s->of[i * s->L + l] ^ cell) == distance) pooled += add_query(s, i, evidence);
    return pooled;
}

/* The queries of a cell, then of the first, second, ... of those that are listed for it. */
static double pool_list(const scene *s, const woi_evidence_options *o, uint32_t cell, double *evidence)
{
    const uint32_t *near = o->near + (size_t)cell * o->n_near;
    double pooled = 0;
    for (uint32_t turn = 0; turn == 0 || (pooled < o->thin && turn <= o->n_near); turn++) {
        const uint32_t other = turn ? near[turn - 1] : cell;
        if (other == UINT32_MAX) break;
        for (size_t at = 0; at < s->n * s->L; at++)
            if (s->of[at] == other) pooled += add_part(s, at / s->L, o->parts ? o->parts[at % s->L] : 1, evidence);
    }
    return pooled;
}

/* What the queries of a cell, its own and borrowed ones, needed. */
typedef struct evidence_of {
    double *evidence; /* (m) */
    double pooled;
} evidence_of;

/* The classes of one cell, ascending, into ids; returns how many. */
static size_t naive_cell(const scene *s, const woi_evidence_options *o, uint32_t cell, evidence_of *e, int32_t *ids)
{
    double *evidence = e->evidence;
    for (size_t j = 0; j < s->m; j++) evidence[j] = 0;
    const double pooled = e->pooled = o->K ? (double)pool_rings(s, o, cell, evidence) : pool_list(s, o, cell, evidence);
    size_t n = 0;
    for (size_t j = 0; j < s->m; j++)
        if (evidence[j] > 0 && evidence[j] >= o->lambda * pooled) ids[n++] = (int32_t)j;
    if (n >= o->floor && (!o->cap || n <= o->cap)) return n;
    /* Too few or too many: the best by evidence, equal ones by id, picked one by one. */
    const size_t most = n < o->floor ? o->floor : o->cap;
    bool *taken = calloc(s->m, sizeof *taken);
    for (n = 0; n < most; n++) {
        size_t best = s->m;
        for (size_t j = 0; j < s->m; j++)
            if (!taken[j] && evidence[j] > 0 && (best == s->m || evidence[j] > evidence[best])) best = j;
        if (best == s->m) break;
        taken[best] = true;
    }
    n = 0;
    for (size_t j = 0; j < s->m; j++)
        if (taken[j]) ids[n++] = (int32_t)j;
    free(taken);
    return n;
}

static void assert_evidence(const scene *s, const woi_evidence_options *o, const woi_cells *cells)
{
    evidence_of e = {.evidence = malloc(s->m * sizeof *e.evidence)};
    int32_t *ids = malloc(s->m * sizeof *ids);
    assert_int_equal(cells->n, (size_t)s->L << s->K);
    assert_int_equal(cells->shares != NULL, o->shares);
    assert_int_equal(cells->offsets[0], 0);
    for (uint32_t c = 0; c < cells->n; c++) {
        const size_t n = naive_cell(s, o, c, &e, ids), own = cells->offsets[c + 1] - cells->offsets[c];
        if (n != own || memcmp(ids, cells->ids + cells->offsets[c], n * sizeof *ids) != 0)
            fail_msg("n %zu K %u L %u lambda %g thin %u floor %u: cell %u has %zu classes, expected %zu, or others",
                     s->n, s->K, s->L, o->lambda, o->thin, o->floor, c, own, n);
        for (size_t i = 0; o->shares && i < n; i++) { /* in bf16: eight bits */
            const uint32_t bits = (uint32_t)cells->shares[cells->offsets[c] + i] << 16;
            const double expected = e.evidence[ids[i]] / e.pooled;
            float share;
            memcpy(&share, &bits, sizeof share);
            if (!(fabs((double)share - expected) <= expected / 256 && share > 0 && share <= 2))
                fail_msg("cell %u, class %d: share %g, expected %g", c, ids[i], (double)share, expected);
        }
    }
    free(e.evidence);
    free(ids);
}

static woi_cells fill(const scene *s, const woi_evidence_options *o)
{
    woi_cells cells;
    wo_error err;
    if (woi_fill_evidence(&s->needs, s->of, o, s->m, &cells, &err)) fail_msg("%s", err.text);
    return cells;
}

/* Tables smaller and larger than the 64 cells that a thread takes at a time, and tables that share such a block. */
static void evidence_is_as_defined(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 1}, {1, 5}, {2, 3}, {3, 9}, {5, 1}, {5, 3}, {5, 5},
                                         {6, 1}, {6, 4}, {7, 3}, {9, 1}, {9, 2}, {4, 16}};
    static const double lambdas[] = {0, 0.05, 0.1, 0.3, 0.5, 1, 2};
    static const uint32_t thins[] = {0, 1, 4, 16, 100000}, floors[] = {0, 1, 3, 1000}, caps[] = {0, 1, 3, 7, 50};
    static const size_t sizes[] = {0, 1, 2, 30, 150, 400};
    for (uint64_t turn = 0; turn < 91; turn++) {
        const uint32_t *shape = shapes[turn % 13];
        const woi_evidence_options o = {.K = shape[0],
                                        .L = shape[1],
                                        .lambda = lambdas[woi_rng_below(9, 1, turn, 7)],
                                        .thin = thins[woi_rng_below(9, 2, turn, 5)],
                                        .floor = floors[woi_rng_below(9, 3, turn, 4)],
                                        .cap = caps[woi_rng_below(9, 8, turn, 5)],
                                        .shares = turn % 2,
                                        .threads = turn % 4 ? 1 : 2};
        scene s = make_scene(sizes[woi_rng_below(9, 4, turn, 6)], 1 + woi_rng_below(9, 5, turn, 60), shape[0], shape[1],
                             turn);
        woi_cells cells = fill(&s, &o);
        assert_evidence(&s, &o, &cells);
        woi_cells_free(&cells);
        free_scene(&s);
    }
}

/* Neighbours from a list, as a tree gives them: of any length, ended early or not, with empty cells in it. Some queries
 * are in no cell. */
static void listed_neighbours_are_borrowed_from(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 1}, {4, 1}, {7, 1}, {3, 2}, {6, 3}}; /* a scene's cells: L 2^K */
    static const uint32_t thins[] = {0, 1, 4, 16, 100000}, lengths[] = {0, 1, 3, 32};
    static const size_t sizes[] = {0, 1, 30, 150, 400};
    for (uint64_t turn = 0; turn < 60; turn++) {
        const uint32_t *shape = shapes[turn % 5], n_near = lengths[woi_rng_below(9, 11, turn, 4)];
        scene s = make_scene(sizes[woi_rng_below(9, 12, turn, 5)], 1 + woi_rng_below(9, 13, turn, 60), shape[0],
                             shape[1], turn);
        const size_t n_cells = (size_t)shape[1] << shape[0];
        for (size_t i = 0; i < s.n * s.L; i++)
            if (woi_rng_below(turn, 14, i, 9) == 0) s.of[i] = UINT32_MAX;
        uint32_t *near = malloc((n_cells * n_near + 1) * sizeof *near);
        for (size_t i = 0; i < n_cells * n_near; i++) { /* distinct: a walk around all cells but the own */
            const size_t cell = i / n_near, place = i % n_near;
            near[i] = place + 1 < n_cells && place < woi_rng_below(turn, 15, cell, 40)
                          ? (uint32_t)((cell + 1 + place) % n_cells)
                          : UINT32_MAX;
        }
        static const float parts[] = {1, 0.5f, 0.25f}; /* which add up exactly */
        const woi_evidence_options o = {.L = shape[1],
                                        .lambda = 0.1 * (double)woi_rng_below(9, 16, turn, 8),
                                        .thin = thins[woi_rng_below(9, 17, turn, 5)],
                                        .floor = (uint32_t)(turn % 3),
                                        .cap = turn % 5 ? 0 : 4,
                                        .shares = turn % 2,
                                        .threads = turn % 4 ? 1 : 2,
                                        .n_cells = n_cells,
                                        .near = near,
                                        .n_near = n_near,
                                        .parts = turn % 4 < 2 ? parts : NULL};
        woi_cells cells = fill(&s, &o);
        assert_evidence(&s, &o, &cells);
        for (uint32_t c = 0; c < n_cells; c++) { /* what is filed in several cells counts in its first */
            uint32_t own = 0;
            for (size_t i = 0; i < s.n * s.L; i++) own += s.of[i] == c && (!o.parts || i % s.L == 0);
            assert_int_equal(cells.queries[c], own);
        }
        woi_cells_free(&cells);
        free(near);
        free_scene(&s);
    }
}

/* Each of what the options do, by hand: one table of 8 cells, five queries. */
static void evidence_by_hand(void **state)
{
    (void)state;
    int64_t indptr[] = {0, 2, 3, 4, 5, 6};
    int32_t ids[] = {4, 7, 4, 5, 9, 9};
    float weights[] = {2, 1, 1, 1, 1, 1};
    uint32_t of[] = {0, 0, 0, 1, 7};
    const scene s = {5, 10, 3, 1, {5, indptr, ids, weights, NULL}, of};
    woi_cells cells =
        fill(&s, &(woi_evidence_options){.K = 3, .L = 1, .lambda = 1, .thin = 1, .floor = 0, .threads = 1});
    /* Cell 0: class 4 with 3 of 3; 5 and 7 with 1 of 3 are below lambda. Cell 1: 9. Cell 2 has no query of its own:
     * its neighbours 0, 3, 6 have cell 0's three. Cells 3 and 5: the query of cell 1 and that of cell 7. Cell 6: 9. */
    const int32_t expected[] = {4, 9, 4, 9, 4, 9, 9, 9};
    assert_int_equal(cells.offsets[8], 8);
    for (uint32_t c = 0; c < 8; c++) {
        assert_int_equal(cells.offsets[c], c);
        assert_int_equal(cells.ids[c], expected[c]);
    }
    woi_cells_free(&cells);
    /* Two queries at least: cell 1 borrows from cells 0, 3 and 5, and 4 of them needed class 4 3 times. */
    cells = fill(&s, &(woi_evidence_options){.K = 3, .L = 1, .lambda = 0.75, .thin = 2, .floor = 0, .threads = 1});
    assert_int_equal(cells.offsets[2] - cells.offsets[1], 1);
    assert_int_equal(cells.ids[cells.offsets[1]], 4);
    woi_cells_free(&cells);
    /* A bar that nothing reaches: the floor's two best; 5 and 7 are equal, the lower goes. */
    cells = fill(&s, &(woi_evidence_options){.K = 3, .L = 1, .lambda = 2, .thin = 0, .floor = 2, .threads = 1});
    assert_int_equal(cells.offsets[1], 2);
    assert_int_equal(cells.ids[0], 4);
    assert_int_equal(cells.ids[1], 5);
    assert_int_equal(cells.offsets[3] - cells.offsets[2], 0); /* no query, and none borrowed */
    woi_cells_free(&cells);
    /* All three of cell 0's reach the bar, two are to stay: 4, and 5 before 7. Three queries needed 4 with weight 3. */
    cells = fill(&s, &(woi_evidence_options){.K = 3, .L = 1, .floor = 1, .cap = 2, .shares = true, .threads = 1});
    assert_int_equal(cells.offsets[1], 2);
    assert_true(cells.ids[0] == 4 && cells.ids[1] == 5);
    assert_int_equal(cells.shares[0], 0x3f80); /* 3 of 3 */
    assert_int_equal(cells.shares[1], 0x3eab); /* 1 of 3 */
    woi_cells_free(&cells);
    /* The same cells, with shares that others count: two of the three queries had 5, one of them 7. */
    int64_t other_indptr[] = {0, 2, 3, 3, 3, 3};
    int32_t others[] = {5, 7, 5};
    float ones[] = {1, 1, 1};
    const woi_sparse labels = {5, other_indptr, others, ones, NULL};
    cells = fill(
        &s, &(woi_evidence_options){
                .K = 3, .L = 1, .thin = 1, .floor = 1, .cap = 2, .shares = true, .shares_of = &labels, .threads = 1});
    assert_true(cells.ids[0] == 4 && cells.ids[1] == 5);
    assert_int_equal(cells.shares[0], 0);
    assert_int_equal(cells.shares[1], 0x3f2b); /* 2 of 3 */
    const uint32_t two = cells.offsets[2];     /* which borrows the three of cell 0 */
    assert_true(cells.ids[two] == 4 && cells.shares[two] == 0 && cells.shares[two + 1] == 0x3f2b);
    woi_cells_free(&cells);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    scene s = make_scene(900, 300, 8, 3, 4);
    woi_evidence_options o = {
        .K = 8, .L = 3, .lambda = 0.1, .thin = 16, .floor = 1, .cap = 20, .shares = true, .threads = 1};
    woi_cells one = fill(&s, &o);
    for (o.threads = 0; o.threads <= 3; o.threads++) {
        woi_cells other = fill(&s, &o);
        assert_memory_equal(one.offsets, other.offsets, (one.n + 1) * sizeof *one.offsets);
        assert_memory_equal(one.ids, other.ids, one.offsets[one.n] * sizeof *one.ids);
        assert_memory_equal(one.shares, other.shares, one.offsets[one.n] * sizeof *one.shares);
        woi_cells_free(&other);
    }
    woi_cells_free(&one);
    free_scene(&s);
}

/* A few queries in the largest table: neighbours are far, and there are very many of them. */
static void nearly_empty_tables_are_filled(void **state)
{
    (void)state;
    scene s = make_scene(40, 20, 18, 1, 3);
    const woi_evidence_options o = {.K = 18, .L = 1, .lambda = 0.1, .thin = 16, .floor = 1, .threads = 2};
    woi_cells cells = fill(&s, &o);
    evidence_of e = {.evidence = (double[20]){0}};
    int32_t ids[20];
    for (uint32_t turn = 0; turn < 2000; turn++) {
        const uint32_t c = (uint32_t)woi_rng_below(9, 6, turn, 1 << 18);
        const size_t n = naive_cell(&s, &o, c, &e, ids);
        assert_int_equal(n, cells.offsets[c + 1] - cells.offsets[c]);
        assert_memory_equal(ids, cells.ids + cells.offsets[c], n * sizeof *ids);
    }
    woi_cells_free(&cells);
    free_scene(&s);
}

static int stop_later(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)stage;
    assert_true(done <= total);
    return --*(int *)ctx < 0;
}

static void filling_can_be_stopped(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(100, 20, 5, 3, 3);
    woi_evidence_options o = {.K = 5, .L = 3, .lambda = 0.1, .thin = 16, .floor = 1, .threads = 1};
    for (int at = 0; at < 3; at++) {
        int left = at;
        o.progress = &(wo_progress){stop_later, &left};
        woi_cells cells;
        assert_int_equal(woi_fill_evidence(&s.needs, s.of, &o, s.m, &cells, &err), WO_ERR_CANCELLED);
        assert_null(cells.ids);
    }
    free_scene(&s);
}

/* An allocator that several threads may fail in. */
static atomic_long left, alive;

static void *shared_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    if (atomic_fetch_sub(&left, 1) <= 0) return NULL;
    atomic_fetch_add(&alive, 1);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void shared_release(void *ctx, void *memory)
{
    (void)ctx;
    atomic_fetch_sub(&alive, 1);
    free(memory);
}

static void no_memory_inside_threads_is_an_error(void **state)
{
    (void)state;
    scene s = make_scene(120, 60, 7, 2, 4);
    assert_int_equal(wo_allocator_set(&(wo_allocator){shared_alloc, shared_release, NULL}), WO_OK);
    for (int threads = 1; threads <= 3; threads++) {
        long n = 0;
        for (;; n++) {
            const woi_evidence_options o = {
                .K = 7, .L = 2, .lambda = 0.1, .thin = 16, .floor = 1, .shares = true, .threads = threads};
            wo_error err = {0};
            woi_cells cells;
            assert_true(n < 1000);
            left = n;
            alive = 0;
            const wo_status status = woi_fill_evidence(&s.needs, s.of, &o, s.m, &cells, n % 2 ? &err : NULL);
            if (status == WO_OK) woi_cells_free(&cells);
            assert_int_equal(alive, 0);
            if (status == WO_OK) break;
            assert_int_equal(status, WO_ERR_MEMORY);
            assert_null(cells.ids);
            if (n % 2) assert_int_equal(err.status, WO_ERR_MEMORY);
            if (n % 2) assert_non_null(strstr(err.text, "memory"));
        }
        assert_true(n > 12); /* some of them inside the parallel loop */
    }
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    free_scene(&s);
}

/* ---- Others ------------------------------------------------------------------------------------------------ */

static void neurons_lie_where_they_hash_to(void **state)
{
    (void)state;
    wo_error err;
    for (uint64_t turn = 0; turn < 40; turn++) {
        const size_t n = woi_rng_below(8, 1, turn, 200);
        const uint32_t K = 1 + (uint32_t)(turn % 6), L = 1 + (uint32_t)(turn % 4);
        scene s = make_scene(n, 9, K, L, turn);
        woi_cells cells;
        assert_int_equal(woi_fill_by_hash(s.of, n, L, (size_t)L << K, &cells, &err), WO_OK);
        assert_int_equal(cells.n, (size_t)L << K);
        uint32_t at = 0;
        for (uint32_t c = 0; c < cells.n; c++) {
            assert_int_equal(cells.offsets[c], at);
            for (size_t i = 0; i < n; i++) /* ascending */
                if (s.of[i * L + (c >> K)] == c) assert_int_equal(cells.ids[at++], i);
        }
        assert_int_equal(cells.offsets[cells.n], at);
        assert_int_equal(at, n * L);
        woi_cells_free(&cells);
        woi_cells_free(&cells); /* a freed one is fine */
        free_scene(&s);
    }
    woi_cells cells;
    assert_int_equal(woi_fill_by_hash(NULL, UINT32_MAX / 2, 3, 8, &cells, &err), WO_ERR_UNSUPPORTED);
}

/* Many are equal: the lower ids go first. */
static void popular_ones_are_the_most_needed(void **state)
{
    (void)state;
    wo_error err;
    for (uint64_t turn = 0; turn < 60; turn++) {
        const size_t n = woi_rng_below(7, 1, turn, 60), m = 1 + woi_rng_below(7, 2, turn, 50),
                     N = woi_rng_below(7, 3, turn, 60);
        scene s = make_scene(n, m, 1, 1, turn);
        double *count = calloc(m, sizeof *count);
        for (int64_t at = 0; at < s.needs.indptr[n]; at++) count[s.needs.ids[at]] += (double)s.needs.weights[at];
        woi_cells cells;
        assert_int_equal(woi_fill_popular(&s.needs, m, N, &cells, &err), WO_OK);
        assert_int_equal(cells.n, 1);
        assert_int_equal(cells.offsets[0], 0);
        assert_int_equal(cells.offsets[1], N < m ? N : m);
        for (uint32_t i = 1; i < cells.offsets[1]; i++) assert_true(cells.ids[i] > cells.ids[i - 1]);
        for (size_t j = 0; j < m; j++) {
            size_t before = 0; /* that are needed more, or as much with a lower id */
            for (size_t other = 0; other < m; other++)
                before += count[other] > count[j] || (count[other] == count[j] && other < j);
            bool there = false;
            for (uint32_t i = 0; i < cells.offsets[1]; i++) there |= cells.ids[i] == (int32_t)j;
            assert_int_equal(there, before < N);
        }
        woi_cells_free(&cells);
        free(count);
        free_scene(&s);
    }
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(20, 9, 3, 2, 1);
    woi_cells cells;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    for (long n = 0; n < 3; n++) {
        allocations_left = n;
        if (n < 2) assert_int_equal(woi_fill_by_hash(s.of, 20, 2, 16, &cells, &err), WO_ERR_MEMORY);
        allocations_left = n;
        assert_int_equal(woi_fill_popular(&s.needs, 9, 4, &cells, &err), WO_ERR_MEMORY);
        assert_int_equal(allocations_alive, 0);
        assert_null(cells.ids);
    }
    allocations_left = -1;
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evidence_is_as_defined),
        cmocka_unit_test(listed_neighbours_are_borrowed_from),
        cmocka_unit_test(evidence_by_hand),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(nearly_empty_tables_are_filled),
        cmocka_unit_test(filling_can_be_stopped),
        cmocka_unit_test(no_memory_inside_threads_is_an_error),
        cmocka_unit_test(neurons_lie_where_they_hash_to),
        cmocka_unit_test(popular_ones_are_the_most_needed),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
