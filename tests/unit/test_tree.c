/* route/tree: cells against a search in double over all centres; what learning must find in data that are clustered. */
#include "naive_tree.h"

#include "base/mem.h"
#include "base/rng.h"

static const woi_kernels *get_kernels(void)
{
    wo_error err;
    const woi_kernels *kernels = woi_kernels_get(&err);
    assert_non_null(kernels);
    return kernels;
}

static float *normals(size_t n, uint64_t stream)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = woi_rng_normal(23, stream, i);
    return x;
}

/* ---- Searching --------------------------------------------------------------------------------------------- */

/* Blocks of centres, block a at the places starts[a] .. starts[a+1]: all but the coordinates beyond r. */
static uint8_t *random_centres(const uint32_t *starts, size_t n, size_t r, uint64_t stream, float **scales,
                               float **offsets)
{
    const size_t bytes = (r + 3) / 4 * 4, all = starts[n];
    uint8_t *at = woi_alloc(all, bytes, NULL);
    *scales = woi_alloc(all, sizeof **scales, NULL);
    *offsets = woi_alloc(all, sizeof **offsets, NULL);
    assert_true(at && *scales && *offsets);
    for (size_t a = 0; a < n; a++) {
        const size_t first = starts[a], room = starts[a + 1] - first;
        for (size_t i = 0; i < room * bytes; i++) {
            const size_t j = i / (4 * room) * 4 + i % 4;
            at[first * bytes + i] = j < r ? (uint8_t)(1 + woi_rng_below(23, stream, first * bytes + i, 255)) : 128;
        }
        for (size_t i = 0; i < room; i++) {
            const float scale = 0.4F / 127 * (1 + woi_rng_normal(23, stream + 100, first + i) / 8);
            double square = 0;
            for (size_t j = 0; j < r; j++)
                square += pow((double)scale * woi_tree_coordinate(at + first * bytes, room, i, j), 2);
            (*scales)[first + i] = scale;
            (*offsets)[first + i] = (float)(-square / 2);
        }
    }
    return at;
}

/* Random centres; a fifth of the nodes and a third of the leaves are not used, nor the last half of some nodes'. r < d:
 * with a basis, not a straight one. `sizes`: the places of each node. */
static woi_tree make_tree_of(size_t d, size_t r, uint32_t A, const uint32_t *sizes, uint32_t beam)
{
    woi_tree tree = {.d = d, .r = r, .A = A, .beam = beam, .margin = INFINITY};
    if (r < d) {
        float *unused;
        tree.basis = random_centres((uint32_t[]){0, (uint32_t)r}, 1, d, 1, &tree.basis_scales, &unused);
        woi_free(unused);
    }
    tree.starts = woi_alloc_zero(A + 1, sizeof *tree.starts, NULL);
    assert_non_null(tree.starts);
    for (size_t a = 0; a < A; a++) tree.starts[a + 1] = tree.starts[a] + sizes[a];
    tree.nodes = random_centres((uint32_t[]){0, A}, 1, r, 2, &tree.node_scales, &tree.node_offsets);
    tree.leaves = random_centres(tree.starts, A, r, 3, &tree.leaf_scales, &tree.leaf_offsets);
    for (size_t a = 0; a < A; a++) {
        const bool unused = a % 5 == 3 || !sizes[a];
        if (unused) tree.node_offsets[a] = -INFINITY;
        for (size_t b = 0; b < sizes[a]; b++) {
            const size_t c = tree.starts[a] + b;
            const bool second_half = a % 4 == 1 && b >= sizes[a] / 2;
            if (unused || second_half || woi_rng_below(23, 4, c, 3) == 0) tree.leaf_offsets[c] = -INFINITY;
        }
    }
    wo_error err;
    assert_int_equal(woi_tree_count_leaves(&tree, &err), WO_OK);
    return tree;
}

/* Every node has B places. */
static woi_tree make_even_tree(size_t d, size_t r, uint32_t A, uint32_t B, uint32_t beam)
{
    uint32_t *sizes = malloc(A * sizeof *sizes);
    for (size_t a = 0; a < A; a++) sizes[a] = B;
    const woi_tree tree = make_tree_of(d, r, A, sizes, beam);
    assert_int_equal(tree.widest, B);
    free(sizes);
    return tree;
}

/* Nodes have up to B places, some none. */
static woi_tree make_tree(size_t d, size_t r, uint32_t A, uint32_t B, uint32_t beam)
{
    uint32_t *sizes = malloc(A * sizeof *sizes);
    for (size_t a = 0; a < A; a++) sizes[a] = 16 * (uint32_t)woi_rng_below(23, 20, a, B / 16 + 1);
    sizes[A / 2] = B;
    sizes[A - 1] = 0;
    const woi_tree tree = make_tree_of(d, r, A, sizes, beam);
    assert_int_equal(tree.widest, B);
    free(sizes);
    return tree;
}

static size_t node_of(const woi_tree *tree, uint32_t cell)
{
    size_t a = 0;
    while (cell >= tree->starts[a + 1]) a++;
    return a;
}

/* One query; returns how many cells it has. */
static size_t tree_query(const woi_tree *tree, const woi_kernels *kernels, const float *q, uint32_t probes,
                         void *scratch, uint32_t *cells)
{
    uint32_t n;
    woi_tree_route(tree, kernels,
                   &(woi_routing){.q = q,
                                  .n = 1,
                                  .probes = probes,
                                  .cells = cells,
                                  .n_cells = &n,
                                  .scratch = scratch,
                                  .margin = tree->margin});
    return n;
}

/* One query on every instruction set; returns whether its cells could be told. */
static bool assert_query(const woi_tree *tree, const float *q, uint32_t probes)
{
    const size_t room = woi_tree_scratch(tree, 1, probes);
    void *scratch = aligned_alloc(64, room);
    uint32_t expected[WOI_MAX_LEAVES], cells[WOI_MAX_LEAVES], found;
    float scores[WOI_MAX_LEAVES];
    double nearness[WOI_MAX_LEAVES];
    const int n = naive_tree(tree, q, probes, true, expected, nearness);
    for (int level = WOI_LEVEL_REF; level < WOI_N_LEVELS; level++) {
        woi_kernels table;
        if (!woi_kernels_at((woi_level)level, 0, &table)) continue;
        memset(scratch, 0xff, room);
        woi_tree_route(tree, &table, &(woi_routing){q, 1, probes, cells, &found, scores, scratch, tree->margin});
        assert_true(found <= probes);
        for (size_t i = 0; i < found; i++) {
            assert_true(tree->leaf_offsets[cells[i]] > -INFINITY);
            assert_true(tree->node_offsets[node_of(tree, cells[i])] > -INFINITY);
            assert_true(i == 0 || scores[i] <= scores[i - 1]);
            for (size_t other = 0; other < i; other++) assert_int_not_equal(cells[i], cells[other]);
        }
        if (n < 0) continue;
        if (found != (size_t)n || memcmp(cells, expected, found * sizeof *cells) != 0)
            fail_msg("d %zu r %zu, %u x %u, beam %u, margin %g, %u probes, level %d: %u cells, expected %d, or others",
                     tree->d, tree->r, tree->A, tree->widest, tree->beam, (double)tree->margin, probes, level, found,
                     n);
        for (size_t i = 0; i < found; i++) assert_true(fabs((double)scores[i] - nearness[i]) < TREE_CLOSE);
    }
    free(scratch);
    return n >= 0;
}

static const uint32_t many_probes[] = {1, 2, 7, 33, WOI_MAX_LEAVES};
enum { N_PROBES = sizeof many_probes / sizeof *many_probes };

/* With a basis and without, widths on and off multiples of 16, r beyond the widest level. */
static const size_t shapes[][4] = {/* d, r, A, B */
                                   {1, 1, 16, 16},    {2, 2, 32, 16},    {7, 7, 16, 48},   {16, 16, 16, 16},
                                   {33, 33, 64, 32},  {17, 16, 16, 32},  {40, 16, 48, 16}, {130, 32, 16, 64},
                                   {100, 96, 16, 16}, {130, 130, 16, 16}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void cells_are_those_of_a_search_in_double(void **state)
{
    (void)state;
    enum { N = 12 };
    static const uint32_t beams[] = {1, 2, 5, WOI_MAX_BEAM};
    static const float margins[] = {INFINITY, 0.4F, 0.1F, 0};
    size_t told = 0, all = 0;
    for (size_t s = 0; s < N_SHAPES; s++)
        for (size_t i = 0; i < 4; i++) {
            const size_t d = shapes[s][0];
            woi_tree tree = make_tree(d, shapes[s][1], (uint32_t)shapes[s][2], (uint32_t)shapes[s][3], beams[i]);
            float *q = normals(N * d, 5);
            for (size_t at = 0; at < N * N_PROBES * 4; at++) {
                tree.margin = margins[at % 4];
                told += assert_query(&tree, q + at / 4 / N_PROBES * d, many_probes[at / 4 % N_PROBES]);
                all++;
            }
            free(q);
            woi_tree_free(&tree);
        }
    assert_true(told > all / 100 * 85);
}

/* Both fan-outs at their largest, and more coordinates than either. */
static void the_largest_trees_are_searched(void **state)
{
    (void)state;
    static const size_t large[][4] = {
        {3, 3, 1024, 1024}, {3, 3, 16, WOI_MAX_FAN}, {1100, 1040, 16, 16}, {1100, 1100, 16, 16}};
    for (size_t s = 0; s < 4; s++) {
        const size_t d = large[s][0];
        woi_tree tree = make_tree(d, large[s][1], (uint32_t)large[s][2], (uint32_t)large[s][3], WOI_MAX_BEAM);
        float *q = normals(3 * d, 6);
        for (size_t i = 0; i < 3; i++) assert_query(&tree, q + i * d, i == 2 ? WOI_MAX_LEAVES : 1 + (uint32_t)i);
        free(q);
        woi_tree_free(&tree);
    }
}

/* One node in the beam with three leaves: whatever is asked for, these three come, nearest first. */
static void there_may_be_fewer_leaves_than_probes(void **state)
{
    (void)state;
    woi_tree tree = make_even_tree(2, 2, 16, 16, 1);
    for (size_t c = 0; c < 256; c++) tree.leaf_offsets[c] = -INFINITY;
    for (size_t a = 0; a < 16; a++) tree.node_offsets[a] = a == 6 ? 0 : -INFINITY;
    static const uint8_t at[3][2] = {{255, 128}, {128, 255}, {1, 128}};
    for (size_t i = 0; i < 3; i++) {
        const size_t b = 15 - 4 * i;
        for (size_t j = 0; j < 2; j++) tree.leaves[(6 * 16 + b) * 4 + j] = at[i][j];
        tree.leaf_scales[6 * 16 + b] = 1.0F / 127;
        tree.leaf_offsets[6 * 16 + b] = -0.5F;
    }
    const float q[] = {5, 1};
    tree.beam = WOI_MAX_BEAM;
    void *scratch = aligned_alloc(64, woi_tree_scratch(&tree, 1, WOI_MAX_LEAVES));
    uint32_t cells[WOI_MAX_LEAVES];
    for (uint32_t beam = 1; beam <= WOI_MAX_BEAM; beam += 15)
        for (uint32_t probes = 1; probes <= WOI_MAX_LEAVES; probes++) {
            tree.beam = beam;
            const size_t n = tree_query(&tree, get_kernels(), q, probes, scratch, cells);
            assert_int_equal(n, probes < 3 ? probes : 3);
            for (size_t i = 0; i < n; i++) assert_int_equal(cells[i], 6 * 16 + 15 - 4 * i);
        }
    free(scratch);
    woi_tree_free(&tree);
}

/* Equal centres: the lower cell first. */
static void equal_leaves_come_in_their_order(void **state)
{
    (void)state;
    woi_tree tree = make_even_tree(3, 3, 16, 16, WOI_MAX_BEAM);
    memset(tree.leaves, 192, 256 * 4);
    for (size_t c = 0; c < 256; c++) tree.leaf_scales[c] = 0.5F / 64;
    for (size_t c = 0; c < 256; c++) tree.leaf_offsets[c] = c / 16 % 5 == 3 ? -INFINITY : -0.375F;
    void *scratch = aligned_alloc(64, woi_tree_scratch(&tree, 1, WOI_MAX_LEAVES));
    uint32_t cells[WOI_MAX_LEAVES];
    const float q[] = {1, 2, 3};
    assert_int_equal(tree_query(&tree, get_kernels(), q, WOI_MAX_LEAVES, scratch, cells), WOI_MAX_LEAVES);
    for (uint32_t i = 0; i < WOI_MAX_LEAVES; i++) assert_int_equal(cells[i], i < 48 ? i : i + 16);
    free(scratch);
    woi_tree_free(&tree);
}

/* Numbers whose squares or projections are no good floats are queries like others. */
static void lengths_do_not_matter(void **state)
{
    (void)state;
    enum { N = 12 };
    static const float lengths[] = {1e-44F, 1e-40F, 1e-38F, 1e-30F, 1e-15F, 1e-5F,
                                    1e5F,   1e14F,  1e16F,  1e19F,  1e25F,  5e37F};
    for (size_t s = 0; s < N_SHAPES; s++) {
        const size_t d = shapes[s][0];
        woi_tree tree = make_tree(d, shapes[s][1], (uint32_t)shapes[s][2], (uint32_t)shapes[s][3], 2);
        float *q = normals(N * d, 7), *other = malloc(d * sizeof *other);
        void *scratch = aligned_alloc(64, woi_tree_scratch(&tree, 1, WOI_MAX_LEAVES));
        uint32_t cells[9], expected[9], unused[9];
        size_t told = 0;
        for (size_t i = 0; i < N; i++) {
            const float *own = q + i * d;
            const size_t n = tree_query(&tree, get_kernels(), own, 9, scratch, expected);
            assert_true(n > 0);
            for (size_t j = 0; j < d; j++) other[j] = 4 * own[j]; /* to the last bit */
            assert_int_equal(tree_query(&tree, get_kernels(), other, 9, scratch, cells), n);
            assert_memory_equal(cells, expected, n * sizeof *cells);
            if (naive_tree(&tree, own, 9, true, unused, NULL) >= 0) {
                told++;
                for (size_t j = 0; j < d; j++) other[j] = 3 * own[j];
                assert_int_equal(tree_query(&tree, get_kernels(), other, 9, scratch, cells), n);
                assert_memory_equal(cells, expected, n * sizeof *cells);
            }
            for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
                for (size_t j = 0; j < d; j++) other[j] = lengths[at] * own[j]; /* denormal ones: another direction */
                assert_query(&tree, other, 9);
                assert_true(tree_query(&tree, get_kernels(), other, 9, scratch, cells) > 0);
            }
        }
        assert_true(told > N / 2);
        free(q);
        free(other);
        free(scratch);
        woi_tree_free(&tree);
    }
}

static void zero_is_a_query_and_what_is_not_finite_is_none(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t s = 0; s < N_SHAPES; s++) {
        const size_t d = shapes[s][0];
        woi_tree tree = make_tree(d, shapes[s][1], (uint32_t)shapes[s][2], (uint32_t)shapes[s][3], 3);
        float *q = calloc(d, sizeof *q);
        void *scratch = aligned_alloc(64, woi_tree_scratch(&tree, 1, WOI_MAX_LEAVES));
        uint32_t cells[5] = {7, 7, 7, 7, 7};
        assert_query(&tree, q, 5);
        assert_true(tree_query(&tree, get_kernels(), q, 5, scratch, cells) > 0);
        for (size_t i = 0; i < 3 * d; i++) {
            for (size_t j = 0; j < d; j++) q[j] = i % 2 ? 3e38F : 1;
            q[i / 3] = bad[i % 3];
            assert_int_equal(tree_query(&tree, get_kernels(), q, 5, scratch, cells), 0);
        }
        free(q);
        free(scratch);
        woi_tree_free(&tree);
    }
}

static void batches_are_single_queries(void **state)
{
    (void)state;
    enum { N = 301, PROBES = 40 };
    wo_error err;
    for (size_t s = 0; s < 2 * N_SHAPES; s += 3) { /* one node a query; several, which go node by node */
        const size_t *shape = shapes[s % N_SHAPES], d = shape[0];
        const uint32_t beam = s < N_SHAPES ? 1 : WOI_WIDE_BEAM + 3;
        woi_tree tree = make_tree(d, shape[1], (uint32_t)shape[2], (uint32_t)shape[3], beam);
        float *q = normals(N * d, 8);
        void *scratch = aligned_alloc(64, woi_tree_scratch(&tree, 1, WOI_MAX_LEAVES));
        uint32_t cells[N], own[PROBES];
        q[17 * d] = NAN;
        for (int threads = 0; threads <= 3; threads++) {
            memset(cells, 0, sizeof cells);
            assert_int_equal(woi_tree_file(&tree, q, N, threads, &(woi_filing){1, cells, NULL}, &err), WO_OK);
            for (size_t i = 0; i < N; i++) {
                const size_t n = tree_query(&tree, get_kernels(), q + i * d, 1, scratch, own);
                assert_int_equal(n == 0, i == 17);
                assert_int_equal(cells[i], n ? own[0] : UINT32_MAX);
            }
        }
        assert_int_equal(woi_tree_file(&tree, NULL, 0, 2, &(woi_filing){1, NULL, NULL}, &err), WO_OK);
        enum { TOGETHER = 32 };
        void *wide = aligned_alloc(64, woi_tree_scratch(&tree, N, PROBES));
        uint32_t *together = malloc(N * PROBES * sizeof *together), counts[N], alone;
        float *scores = malloc(N * PROBES * sizeof *scores), own_scores[PROBES];
        woi_tree_route(&tree, get_kernels(), &(woi_routing){q, N, PROBES, together, counts, scores, wide, INFINITY});
        for (size_t i = 0; i < N; i++) {
            woi_tree_route(&tree, get_kernels(),
                           &(woi_routing){q + i * d, 1, PROBES, own, &alone, own_scores, scratch, INFINITY});
            assert_int_equal(alone == 0, i == 17);
            assert_int_equal(counts[i], alone);
            assert_memory_equal(together + i * PROBES, own, alone * sizeof *own);
            assert_memory_equal(scores + i * PROBES, own_scores, alone * sizeof *own_scores);
        }
        size_t opened[2] = {0, 0};
        for (size_t n = 1; n <= 2 * TOGETHER; n++) {
            const size_t some = (n + 1) / 2;
            tree.margin = n % 2 ? INFINITY : 0.2F;
            woi_tree_route(&tree, get_kernels(),
                           &(woi_routing){q, some, PROBES, together, counts, NULL, wide, tree.margin});
            for (size_t i = 0; i < some; i++) {
                assert_int_equal(tree_query(&tree, get_kernels(), q + i * d, PROBES, scratch, own), counts[i]);
                assert_memory_equal(together + i * PROBES, own, counts[i] * sizeof *own);
                opened[n % 2] += counts[i];
            }
        }
        assert_true(beam == 1 ? opened[0] == opened[1] : opened[0] < opened[1]);
        free(wide);
        free(together);
        free(scores);
        free(q);
        free(scratch);
        woi_tree_free(&tree);
    }
}

/* Of the leaves that the queries open without a margin, 99.5% lie below nodes within it, and no smaller margin does. */
static void the_margin_keeps_what_queries_open(void **state)
{
    (void)state;
    enum { N = 400, PROBES = 6 };
    wo_error err;
    for (size_t s = 1; s < N_SHAPES; s++) {
        const size_t d = shapes[s][0];
        woi_tree tree = make_tree(d, shapes[s][1], (uint32_t)shapes[s][2], (uint32_t)shapes[s][3], 6);
        float *q = normals(N * d, 9);
        void *scratch = aligned_alloc(64, woi_tree_scratch(&tree, 1, PROBES));
        q[5 * d] = NAN; /* opens nothing */
        assert_int_equal(woi_tree_learn_margin(&tree, q, N, PROBES, 1, &err), WO_OK);
        const float margin = tree.margin;
        assert_true(margin > 0 && margin < INFINITY);
        for (int threads = 0; threads <= 3; threads++) {
            tree.margin = -1;
            assert_int_equal(woi_tree_learn_margin(&tree, q, N, PROBES, threads, &err), WO_OK);
            assert_true(tree.margin == margin);
        }
        double kept[2] = {0, 0}, all = 0;
        for (size_t i = 0; i < N; i++) {
            uint32_t every[PROBES], within[PROBES];
            tree.margin = INFINITY;
            const size_t n = tree_query(&tree, get_kernels(), q + i * d, PROBES, scratch, every);
            all += (double)n;
            for (int smaller = 0; smaller < 2; smaller++) {
                tree.margin = smaller ? margin - 2e-6F : margin + 1e-6F; /* scores are rounded */
                const size_t found = tree_query(&tree, get_kernels(), q + i * d, PROBES, scratch, within);
                for (size_t a = 0; a < n; a++)
                    for (size_t b = 0; b < found; b++) kept[smaller] += every[a] == within[b];
            }
        }
        assert_true(kept[0] >= 0.995 * (all - 1) && kept[1] < 0.995 * all);
        assert_int_equal(woi_tree_learn_margin(&tree, q, 0, PROBES, 1, &err), WO_OK);
        assert_true(tree.margin == INFINITY); /* from nothing: none */
        free(q);
        free(scratch);
        woi_tree_free(&tree);
    }
}

static void neighbours_are_the_nearest_leaves(void **state)
{
    (void)state;
    static const uint32_t rooms[] = {1, 5, 32, 100};
    wo_error err;
    size_t told = 0, all = 0;
    for (size_t s = 0; s < N_SHAPES; s++)
        for (size_t i = 0; i < 4; i++) {
            woi_tree tree = make_tree(shapes[s][0], shapes[s][1], (uint32_t)shapes[s][2], (uint32_t)shapes[s][3], 1);
            const size_t r = tree.r, cells = woi_tree_n_cells(&tree), room = rooms[i];
            uint32_t *near = malloc(cells * room * sizeof *near), *again = malloc(cells * room * sizeof *again);
            double *scores = malloc(tree.widest * sizeof *scores);
            size_t *places = malloc(room * sizeof *places);
            assert_int_equal(woi_tree_neighbours(&tree, (uint32_t)room, 1, near, &err), WO_OK);
            for (int threads = 0; threads <= 3; threads++) {
                memset(again, 0, cells * room * sizeof *again);
                assert_int_equal(woi_tree_neighbours(&tree, (uint32_t)room, threads, again, &err), WO_OK);
                assert_memory_equal(near, again, cells * room * sizeof *near);
            }
            for (size_t c = 0; c < cells; c++) {
                const size_t a = node_of(&tree, (uint32_t)c), first = tree.starts[a], B = tree.starts[a + 1] - first;
                const uint8_t *leaves = tree.leaves + first * 4 * woi_tree_fours(&tree);
                const float *scales = tree.leaf_scales + first;
                for (size_t b = 0; b < B; b++) { /* minus the distance, squared and halved */
                    scores[b] = 0;
                    for (size_t j = 0; j < r; j++) {
                        const double apart = (double)scales[b] * woi_tree_coordinate(leaves, B, b, j) -
                                             (double)scales[c - first] * woi_tree_coordinate(leaves, B, c - first, j);
                        scores[b] -= apart * apart / 2;
                    }
                    if (first + b == c || tree.leaf_offsets[first + b] == -INFINITY ||
                        tree.leaf_offsets[c] == -INFINITY)
                        scores[b] = -INFINITY;
                }
                const int n = pick_best(scores, B, room, true, places);
                all++;
                if (n < 0) continue;
                told++;
                for (size_t at = 0; at < room; at++)
                    assert_int_equal(near[c * room + at], at < (size_t)n ? first + places[at] : UINT32_MAX);
            }
            free(near);
            free(again);
            free(scores);
            free(places);
            woi_tree_free(&tree);
        }
    assert_true(told > all / 10 * 9);
}

/* ---- Learning ---------------------------------------------------------------------------------------------- */

static const woi_tree_options few = {
    .nodes = 16, .leaves = 16, .beam = 2, .rounds = 10, .refine = 2, .seed = 1, .threads = 1};

static woi_tree learn(const float *q, size_t n, size_t d, const woi_tree_options *o)
{
    woi_tree tree;
    wo_error err;
    if (woi_tree_learn(q, n, d, o, &tree, &err)) fail_msg("%s", err.text);
    return tree;
}

/* A centre's offset is that of its codes, and it lies in the unit ball. */
static void assert_centre(const uint8_t *at, size_t room, size_t which, size_t r, double scale, double offset)
{
    double square = 0;
    for (size_t j = 0; j < (r + 3) / 4 * 4; j++) {
        const int code = woi_tree_coordinate(at, room, which, j);
        assert_true(code >= -127 && (j < r || code == 0));
        square += pow(scale * code, 2);
    }
    assert_true(fabs(square / 2 + offset) < 1e-6 && square < 1 + 0.03);
}

/* What holds for every tree that was learned. */
static void assert_sound(const woi_tree *tree)
{
    const size_t A = tree->A, r = tree->r;
    assert_true(A >= 16 && A <= WOI_MAX_NODES && A % 16 == 0);
    assert_true(r <= tree->d && (r < tree->d) == (tree->basis != NULL));
    assert_int_equal(tree->starts[0], 0);
    size_t nodes = 0, widest = 0;
    for (size_t a = 0; a < A; a++) {
        const size_t first = tree->starts[a], room = tree->starts[a + 1] - first;
        assert_true(tree->starts[a + 1] >= first && room % 16 == 0 && room <= WOI_MAX_FAN);
        widest = room > widest ? room : widest;
        size_t leaves = 0;
        for (size_t b = 0; b < room; b++) {
            if (tree->leaf_offsets[first + b] == -INFINITY) continue;
            assert_true(b < tree->n_leaves[a]);
            assert_centre(tree->leaves + first * 4 * woi_tree_fours(tree), room, b, r,
                          (double)tree->leaf_scales[first + b], (double)tree->leaf_offsets[first + b]);
            leaves++;
        }
        assert_true((tree->node_offsets[a] > -INFINITY) == (leaves > 0));
        if (!leaves) continue;
        assert_centre(tree->nodes, A, a, r, (double)tree->node_scales[a], (double)tree->node_offsets[a]);
        nodes++;
    }
    assert_true(nodes > 0);
    assert_int_equal(tree->widest, widest);
}

static void assert_same_tree(const woi_tree *a, const woi_tree *b)
{
    const size_t f = sizeof(float), leaves = woi_tree_n_cells(a);
    assert_true(a->d == b->d && a->r == b->r && a->A == b->A && a->beam == b->beam);
    assert_memory_equal(a->starts, b->starts, (a->A + 1) * sizeof *a->starts);
    assert_true(!a->basis == !b->basis);
    if (a->basis) assert_memory_equal(a->basis, b->basis, a->r * ((a->d + 3) / 4 * 4));
    if (a->basis) assert_memory_equal(a->basis_scales, b->basis_scales, a->r * f);
    assert_memory_equal(a->nodes, b->nodes, a->A * 4 * woi_tree_fours(a));
    assert_memory_equal(a->node_scales, b->node_scales, a->A * f);
    assert_memory_equal(a->node_offsets, b->node_offsets, a->A * f);
    assert_memory_equal(a->leaves, b->leaves, leaves * 4 * woi_tree_fours(a));
    assert_memory_equal(a->leaf_scales, b->leaf_scales, leaves * f);
    assert_memory_equal(a->leaf_offsets, b->leaf_offsets, leaves * f);
}

enum { CLUSTERS = 12 };

/* n queries around CLUSTERS directions, one after the other, with lengths that are powers of two. */
static float *clustered(size_t n, size_t d, float noise)
{
    float *q = malloc(n * d * sizeof *q);
    assert_non_null(q);
    for (size_t i = 0; i < n; i++) {
        const float length = ldexpf(1, (int)woi_rng_below(23, 10, i, 9) - 4);
        for (size_t j = 0; j < d; j++)
            q[i * d + j] =
                length * (woi_rng_normal(23, 11, i % CLUSTERS * d + j) + noise * woi_rng_normal(23, 12, i * d + j));
    }
    return q;
}

/* How many of the n queries lie in a leaf whose largest cluster is theirs. */
static size_t count_pure(const uint32_t *cells, size_t n, size_t n_cells)
{
    uint32_t(*counts)[CLUSTERS] = calloc(n_cells, sizeof *counts);
    size_t pure = 0;
    assert_non_null(counts);
    for (size_t i = 0; i < n; i++) counts[cells[i]][i % CLUSTERS]++;
    for (size_t c = 0; c < n_cells; c++) {
        uint32_t most = 0;
        for (size_t k = 0; k < CLUSTERS; k++) most = counts[c][k] > most ? counts[c][k] : most;
        pure += most;
    }
    free(counts);
    return pure;
}

static void clusters_are_told_apart(void **state)
{
    (void)state;
    enum { N = 1200 };
    static const size_t dims[][2] = {{8, 0}, {24, 0}, {24, 16}, {40, 32}, {37, 16}}; /* d, r */
    static const float noises[] = {0, 0.05F, 0.2F};
    wo_error err;
    uint32_t cells[N];
    for (size_t turn = 0; turn < 15; turn++) {
        const size_t d = dims[turn / 3][0];
        const float noise = noises[turn % 3];
        float *q = clustered(N, d, noise);
        woi_tree_options o = few;
        o.r = dims[turn / 3][1];
        woi_tree tree = learn(q, N, d, &o);
        assert_sound(&tree);
        assert_int_equal(tree.r, o.r ? o.r : d);
        assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells, NULL}, &err), WO_OK);
        const size_t pure = count_pure(cells, N, woi_tree_n_cells(&tree));
        if (pure < N / 100 * 99)
            fail_msg("d %zu r %zu noise %g: %zu of %d are apart", d, tree.r, (double)noise, pure, N);
        /* The same direction at any length: one leaf. */
        for (size_t i = CLUSTERS; noise == 0 && i < N; i++) assert_int_equal(cells[i], cells[i - CLUSTERS]);
        size_t used = 0;
        for (size_t c = 0; c < woi_tree_n_cells(&tree); c++) used += tree.leaf_offsets[c] > -INFINITY;
        assert_true(noise > 0 || used <= CLUSTERS); /* a leaf that no query finds was given up */
        free(q);
        woi_tree_free(&tree);
    }
}

/* Sixteen nodes for twelve clusters: most have a node to themselves, or two. */
static void nodes_hold_whole_clusters(void **state)
{
    (void)state;
    enum { N = 600, D = 24 };
    wo_error err;
    float *q = clustered(N, D, 0.1F);
    woi_tree tree = learn(q, N, D, &few);
    uint32_t cells[N];
    assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells, NULL}, &err), WO_OK);
    size_t together = 0;
    for (size_t k = 0; k < CLUSTERS; k++) {
        size_t counts[16] = {0}, most = 0;
        for (size_t i = k; i < N; i += CLUSTERS) counts[node_of(&tree, cells[i])]++;
        for (size_t a = 0; a < 16; a++) most = counts[a] > most ? counts[a] : most;
        together += most;
    }
    assert_true(together > N / 10 * 8);
    free(q);
    woi_tree_free(&tree);
}

/* Lengths that no float can square change nothing: neither with a basis nor without. */
static void queries_of_any_length_are_learned_from(void **state)
{
    (void)state;
    enum { N = 600, D = 24 };
    static const float lengths[] = {1e-36F, 1e-20F, 1, 1e20F, 1e37F};
    wo_error err;
    uint32_t cells[N];
    float *q = clustered(N, D, 0.1F);
    for (size_t i = 0; i < N * D; i++) q[i] *= lengths[i / D % 5] / 16;
    memset(q + 7 * D, 0, D * sizeof *q);
    for (size_t r = 0; r <= 16; r += 16) {
        woi_tree_options o = few;
        o.r = r;
        woi_tree tree = learn(q, N, D, &o);
        assert_sound(&tree);
        assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells, NULL}, &err), WO_OK);
        for (size_t i = 0; i < N; i++) assert_true(cells[i] < woi_tree_n_cells(&tree));
        assert_true(count_pure(cells, N, woi_tree_n_cells(&tree)) > N / 100 * 98);
        woi_tree_free(&tree);
    }
    free(q);
}

/* Orthonormal columns, or zero ones where the queries have fewer directions; returns how many are not zero. */
static size_t assert_orthonormal(const woi_tree *tree)
{
    size_t rank = 0;
    for (size_t a = 0; a < tree->r; a++)
        for (size_t b = 0; b <= a; b++) {
            double dot = 0;
            for (size_t j = 0; j < tree->d; j++)
                dot +=
                    woi_tree_coordinate(tree->basis, tree->r, a, j) * woi_tree_coordinate(tree->basis, tree->r, b, j);
            dot *= (double)tree->basis_scales[a] * (double)tree->basis_scales[b];
            const bool unit = a == b && fabs(dot - 1) < 0.02; /* but for rounding to int8 */
            if (!unit && !(fabs(dot) < 0.02)) fail_msg("columns %zu and %zu: %g", a, b, dot);
            rank += unit;
        }
    return rank;
}

/* What the coordinates hold of the queries' directions, on average. */
static double spread_held(const woi_tree *tree, const float *q, size_t n)
{
    double sum = 0, *x = malloc(tree->r * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        naive_turn(tree, q + i * tree->d, x);
        for (size_t c = 0; c < tree->r; c++) sum += x[c] * x[c];
    }
    free(x);
    return sum / (double)n;
}

/* Queries of `rank` directions, with noise in all of d. */
static void the_basis_holds_the_spread(void **state)
{
    (void)state;
    enum { N = 400 };
    static const size_t cases[][4] = {/* d, r, rank, held in percent */
                                      {40, 16, 16, 97}, {40, 32, 16, 98}, {130, 16, 8, 95},
                                      {33, 32, 33, 97}, {17, 16, 17, 94}, {64, 48, 64, 75}};
    for (size_t turn = 0; turn < 2 * sizeof cases / sizeof *cases; turn++) {
        const size_t d = cases[turn / 2][0], r = cases[turn / 2][1], rank = cases[turn / 2][2];
        const float noise = turn % 2 ? 0.1F : 0;
        float *axes = normals(rank * d, 13), *q = calloc(N * d, sizeof *q);
        for (size_t i = 0; i < N; i++)
            for (size_t j = 0; j < d; j++) {
                for (size_t c = 0; c < rank; c++)
                    q[i * d + j] += woi_rng_normal(23, 14, i * rank + c) * axes[c * d + j] / sqrtf((float)rank);
                q[i * d + j] += noise * woi_rng_normal(23, 15, i * d + j);
            }
        woi_tree_options o = few;
        o.r = r;
        woi_tree tree = learn(q, N, d, &o);
        assert_sound(&tree);
        const size_t there = assert_orthonormal(&tree);
        const double held = spread_held(&tree, q, N);
        assert_int_equal(there, noise > 0 || rank > r ? r : rank);
        assert_true(held < 1 + 0.02);
        if (noise == 0 && rank <= r)
            assert_true(held > 1 - 1e-5);
        else if (!(held > (double)cases[turn / 2][3] / 100))
            fail_msg("d %zu r %zu rank %zu noise %g: holds %g", d, r, rank, (double)noise, held);
        free(axes);
        free(q);
        woi_tree_free(&tree);
    }
}

static void fan_outs_follow_from_the_data(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        uint32_t nodes, leaves, made_nodes, made_leaves;
    } cases[] = {
        {1, 0, 0, 16, 1},
        {640, 0, 0, 16, 1},
        {10239, 0, 0, 16, 15},
        {11560, 0, 0, 32, 9},
        {100000, 0, 0, 64, 39},
        {100000, 32, 0, 32, 78},
        {100000, 0, 160, 64, 160},
        {700000, 0, 0, 144, 121},
        {3000, 1024, 0, 1024, 1},
        {50, 48, 80, 48, 80},
        {100000, 1, 0, 1, 2500},
        {100000000, 0, 0, 1024, 1024},
        {100000000, 1, 0, 1, 65536},
        {3000, 0, 1024, 16, 1024},
    };
    enum { MOST = 100000 };
    float *q = normals((size_t)MOST * 2, 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        woi_tree_options o = few;
        o.nodes = cases[i].nodes;
        o.leaves = cases[i].leaves;
        o.rounds = o.refine = 1;
        woi_tree_fan_outs(cases[i].n, 40, &o.nodes, &o.leaves);
        if (o.nodes != cases[i].made_nodes || o.leaves != cases[i].made_leaves)
            fail_msg("%zu queries: %u x %u, expected %u x %u", cases[i].n, o.nodes, o.leaves, cases[i].made_nodes,
                     cases[i].made_leaves);
        if (cases[i].n > MOST) continue;
        woi_tree tree = learn(q, cases[i].n, 2, &o);
        assert_sound(&tree);
        assert_int_equal(tree.A, (o.nodes + 15) / 16 * 16);
        woi_tree_free(&tree);
    }
    free(q);
}

/* The nearest of all nodes to a query's direction, in double; UINT32_MAX where two are too close to tell. */
static size_t nearest_node(const woi_tree *tree, const double *x)
{
    double best = -INFINITY, second = -INFINITY;
    size_t found = 0;
    for (size_t a = 0; a < tree->A; a++) {
        double score = (double)tree->node_offsets[a];
        for (size_t j = 0; j < tree->r; j++)
            score += x[j] * (double)tree->node_scales[a] * woi_tree_coordinate(tree->nodes, tree->A, a, j);
        if (score > best) {
            second = best;
            best = score;
            found = a;
        } else if (score > second) {
            second = score;
        }
    }
    return best - second < 0.02 ? UINT32_MAX : found; /* centres are rounded to int8 */
}

/* Clusters of different sizes have leaves by how many queries they have. */
static void nodes_have_leaves_in_proportion(void **state)
{
    (void)state;
    enum { D = 8, N = 2000, NODES = 3, LEAVES = 100 };
    static const size_t sizes[] = {1200, 600, 200};
    size_t seen = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) { /* until the three nodes are the three clusters */
        float *q = calloc((size_t)N * D, sizeof *q);
        for (size_t i = 0; i < N; i++) {
            for (size_t j = 0; j < D; j++) q[i * D + j] = 0.02F * woi_rng_normal(23, 21, i * D + j);
            q[i * D + (i < sizes[0] ? 0 : i < sizes[0] + sizes[1] ? 1 : 2)] += 1;
        }
        woi_tree_options o = few;
        o.nodes = NODES;
        o.leaves = LEAVES;
        o.refine = 0;
        o.seed = seed;
        woi_tree tree = learn(q, N, D, &o);
        assert_sound(&tree);
        assert_int_equal(tree.A, 16);
        size_t counts[16] = {0};
        bool told = true;
        for (size_t i = 0; i < N; i++) {
            double x[D];
            naive_turn(&tree, q + i * D, x);
            const size_t a = nearest_node(&tree, x);
            if (a == UINT32_MAX)
                told = false;
            else
                counts[a]++;
        }
        for (size_t a = 0; told && a < 16; a++) {
            const size_t share = (size_t)((double)counts[a] / N * NODES * LEAVES + 0.5);
            const size_t own = counts[a] ? share > 1 ? share : 1 : 0;
            size_t used = 0;
            for (size_t c = tree.starts[a]; c < tree.starts[a + 1]; c++) used += tree.leaf_offsets[c] > -INFINITY;
            assert_int_equal(used, own < counts[a] ? own : counts[a]);
            assert_int_equal(tree.starts[a + 1] - tree.starts[a], (own + 15) / 16 * 16);
            seen += counts[a] == sizes[0];
        }
        free(q);
        woi_tree_free(&tree);
    }
    assert_true(seen > 0);
}

/* Coordinate j of a leaf. */
static double leaf_at(const woi_tree *tree, uint32_t cell, size_t j)
{
    const size_t a = node_of(tree, cell), first = tree->starts[a], room = tree->starts[a + 1] - first;
    return (double)tree->leaf_scales[cell] *
           woi_tree_coordinate(tree->leaves + first * 4 * woi_tree_fours(tree), room, cell - first, j);
}

static double distance_to(const woi_tree *tree, uint32_t cell, const double *x)
{
    double sum = 0;
    for (size_t j = 0; j < tree->r; j++) sum += pow(x[j] - leaf_at(tree, cell, j), 2);
    return sum;
}

/* One node: every query lies in the nearest of all leaves, and every leaf is the mean of its queries. */
static void a_flat_tree_is_k_means(void **state)
{
    (void)state;
    enum { N = 900, MOST = 64 };
    static const size_t dims[][2] = {{8, 0}, {24, 16}}; /* d, r */
    wo_error err;
    uint32_t cells[N];
    for (size_t turn = 0; turn < 8; turn++) {
        const size_t d = dims[turn % 2][0];
        float *q = clustered(N, d, 0.02F);
        woi_tree_options o = few;
        o.r = dims[turn % 2][1];
        o.nodes = 1;
        o.leaves = turn / 4 ? 40 : 5;
        o.refine = turn / 2 % 2 ? 4 : 0;
        o.rounds = 60; /* it has settled by then */
        woi_tree tree = learn(q, N, d, &o);
        assert_sound(&tree);
        assert_int_equal(woi_tree_n_cells(&tree), (o.leaves + 15) / 16 * 16);
        for (size_t a = 1; a < tree.A; a++) assert_true(tree.node_offsets[a] == -INFINITY);
        assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells, NULL}, &err), WO_OK);
        double sums[MOST][24] = {{0}}, counts[MOST] = {0}, x[24];
        for (size_t i = 0; i < N; i++) {
            naive_turn(&tree, q + i * d, x);
            const double own = distance_to(&tree, cells[i], x);
            for (uint32_t c = 0; c < woi_tree_n_cells(&tree); c++)
                if (tree.leaf_offsets[c] > -INFINITY && !(own < distance_to(&tree, c, x) + 0.01))
                    fail_msg("query %zu lies in leaf %u, at %g; leaf %u is at %g", i, cells[i], own, c,
                             distance_to(&tree, c, x));
            for (size_t j = 0; j < tree.r; j++) sums[cells[i]][j] += x[j];
            counts[cells[i]]++;
        }
        for (uint32_t c = 0; c < woi_tree_n_cells(&tree); c++)
            for (size_t j = 0; counts[c] > 0 && j < tree.r; j++) {
                const double mean = sums[c][j] / counts[c], at = leaf_at(&tree, c, j);
                if (!(fabs(mean - at) < 0.02))
                    fail_msg("turn %zu, leaf %u: %g, its queries' mean %g", turn, c, at, mean);
            }
        free(q);
        woi_tree_free(&tree);
    }
}

/* The mean squared distance of queries to the leaf that they find, looking into `beam` nodes. */
static double mean_distance(woi_tree *tree, const float *q, size_t n, uint32_t beam)
{
    wo_error err;
    uint32_t *cells = malloc(n * sizeof *cells);
    double sum = 0, *x = malloc(tree->r * sizeof *x);
    tree->beam = beam;
    assert_int_equal(woi_tree_file(tree, q, n, 1, &(woi_filing){1, cells, NULL}, &err), WO_OK);
    for (size_t i = 0; i < n; i++) {
        naive_turn(tree, q + i * tree->d, x);
        sum += distance_to(tree, cells[i], x);
    }
    free(cells);
    free(x);
    return sum / (double)n;
}

static void refining_brings_leaves_nearer(void **state)
{
    (void)state;
    enum { N = 3000, D = 12 };
    static const float noises[] = {0.1F, 0.4F, 3};
    for (size_t turn = 0; turn < 6; turn++) {
        float *q = clustered(N, D, noises[turn / 2]);
        woi_tree_options o = few;
        o.leaves = turn % 2 ? 4 : 16;
        double last = INFINITY, first = 0;
        for (o.refine = 0; o.refine <= 4; o.refine++) {
            woi_tree tree = learn(q, N, D, &o);
            assert_sound(&tree);
            const double mean = mean_distance(&tree, q, N, 8);
            if (!(mean < last * 1.001)) fail_msg("turn %zu, round %u: %g after %g", turn, o.refine, mean, last);
            if (!o.refine) first = mean;
            last = mean;
            woi_tree_free(&tree);
        }
        assert_true(last < 0.998 * first);
        free(q);
    }
}

/* Fewer queries than centres; all the same; a line; widths off multiples of 16. Every query, known or not, has a cell.
 */
static void little_data_make_a_tree(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 15, 16, 17, 100},
                        dims[][2] = {{1, 0}, {2, 0}, {15, 0}, {17, 0}, {17, 16}, {50, 48}};
    wo_error err;
    for (size_t turn = 0; turn < 108; turn++) {
        const size_t n = sizes[turn % 6], d = dims[turn / 6 % 6][0];
        float *q = normals(n * d, 17), *others = normals(50 * d, 18);
        for (size_t i = 0; i < n * d; i++) /* as they are, all equal, all zero */
            if (turn / 36) q[i] = turn / 36 == 1 ? q[i % d] : 0;
        woi_tree_options o = few;
        o.r = dims[turn / 6 % 6][1];
        if (turn % 2) o.nodes = o.leaves = 1 + (uint32_t)turn % 3;
        o.refine = (uint32_t)(turn % 4);
        o.rounds = (uint32_t)(turn % 5);
        woi_tree tree = learn(q, n, d, &o);
        assert_sound(&tree);
        if (tree.basis) assert_true(assert_orthonormal(&tree) <= n);
        size_t used = 0;
        for (size_t c = 0; c < woi_tree_n_cells(&tree); c++) used += tree.leaf_offsets[c] > -INFINITY;
        assert_true(used >= 1 && used <= n); /* no leaf without a query of its own */
        uint32_t cells[100];
        assert_int_equal(woi_tree_file(&tree, q, n, 1, &(woi_filing){1, cells, NULL}, &err), WO_OK);
        for (size_t i = 0; i < n; i++) assert_true(cells[i] < woi_tree_n_cells(&tree));
        for (size_t i = 1; turn / 36 && i < n; i++) assert_int_equal(cells[i], cells[0]);
        assert_int_equal(woi_tree_file(&tree, others, 50, 1, &(woi_filing){1, cells, NULL}, &err), WO_OK);
        for (size_t i = 0; i < 50; i++) assert_true(cells[i] < woi_tree_n_cells(&tree));
        free(q);
        free(others);
        woi_tree_free(&tree);
        woi_tree_free(&tree); /* a freed one is fine */
    }
}

static void threads_change_nothing(void **state)
{
    (void)state;
    enum { N = 900, D = 37 };
    float *q = clustered(N, D, 0.3F);
    for (size_t r = 0; r <= 32; r += 16) {
        woi_tree_options o = few;
        o.r = r;
        o.nodes = o.leaves = 32;
        o.threads = 1;
        woi_tree one = learn(q, N, D, &o);
        for (o.threads = 0; o.threads <= 3; o.threads++) {
            woi_tree other = learn(q, N, D, &o);
            assert_same_tree(&one, &other);
            woi_tree_free(&other);
        }
        o.seed++;
        woi_tree other = learn(q, N, D, &o);
        assert_memory_not_equal(one.nodes, other.nodes, one.A * 4 * woi_tree_fours(&one));
        woi_tree_free(&other);
        woi_tree_free(&one);
    }
    free(q);
}

static int stop_later(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    assert_string_equal(stage, "learning the tree");
    assert_true(done <= total);
    return --*(int *)ctx < 0;
}

static void learning_can_be_stopped(void **state)
{
    (void)state;
    wo_error err;
    float *q = clustered(100, 20, 0.3F);
    woi_tree_options o = few;
    o.r = 16;
    for (int at = 0;; at++) {
        int left = at;
        o.progress = &(wo_progress){stop_later, &left};
        woi_tree tree;
        const wo_status status = woi_tree_learn(q, 100, 20, &o, &tree, &err);
        if (status == WO_OK) {
            assert_true(at >= 3);
            woi_tree_free(&tree);
            break;
        }
        assert_int_equal(status, WO_ERR_CANCELLED);
        assert_true(!tree.A && !tree.basis && !tree.nodes && !tree.leaves);
    }
    free(q);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    float *q = clustered(100, 20, 0.3F);
    uint32_t cells[100], near[512 * 4]; /* up to 16 nodes of 16 leaves, each rounded up */
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    for (size_t r = 0; r <= 16; r += 16) {
        woi_tree tree;
        woi_tree_options o = few;
        o.r = r;
        for (long n = 0;; n++) {
            wo_error err = {0};
            assert_true(n < 100);
            allocations_left = n;
            const wo_status status = woi_tree_learn(q, 100, 20, &o, &tree, n % 2 ? &err : NULL);
            if (status == WO_OK) {
                assert_true(n > (r ? 22 : 18));
                break;
            }
            assert_int_equal(status, WO_ERR_MEMORY);
            assert_int_equal(allocations_alive, 0);
            assert_true(!tree.A && !tree.basis && !tree.nodes && !tree.leaves);
            if (n % 2) assert_non_null(strstr(err.text, "memory"));
        }
        for (long n = 0; n < 2; n++) {
            allocations_left = n;
            assert_int_equal(woi_tree_file(&tree, q, 100, 2, &(woi_filing){1, cells, NULL}, NULL),
                             n ? WO_OK : WO_ERR_MEMORY);
            allocations_left = n;
            assert_int_equal(woi_tree_neighbours(&tree, 4, 2, near, NULL), n ? WO_OK : WO_ERR_MEMORY);
            allocations_left = n;
            assert_int_equal(woi_tree_learn_margin(&tree, q, 100, 3, 2, NULL), WO_ERR_MEMORY);
        }
        allocations_left = -1;
        woi_tree_free(&tree);
        assert_int_equal(allocations_alive, 0);
    }
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_those_of_a_search_in_double),
        cmocka_unit_test(the_largest_trees_are_searched),
        cmocka_unit_test(there_may_be_fewer_leaves_than_probes),
        cmocka_unit_test(equal_leaves_come_in_their_order),
        cmocka_unit_test(lengths_do_not_matter),
        cmocka_unit_test(zero_is_a_query_and_what_is_not_finite_is_none),
        cmocka_unit_test(batches_are_single_queries),
        cmocka_unit_test(the_margin_keeps_what_queries_open),
        cmocka_unit_test(neighbours_are_the_nearest_leaves),
        cmocka_unit_test(clusters_are_told_apart),
        cmocka_unit_test(nodes_hold_whole_clusters),
        cmocka_unit_test(queries_of_any_length_are_learned_from),
        cmocka_unit_test(the_basis_holds_the_spread),
        cmocka_unit_test(fan_outs_follow_from_the_data),
        cmocka_unit_test(nodes_have_leaves_in_proportion),
        cmocka_unit_test(a_flat_tree_is_k_means),
        cmocka_unit_test(refining_brings_leaves_nearer),
        cmocka_unit_test(little_data_make_a_tree),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(learning_can_be_stopped),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
