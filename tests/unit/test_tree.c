/* route/tree.c: cells against a search in double over all centres. */
#include "naive_tree.h"

#include "base/mem.h"

static const woi_kernels *get_kernels(void)
{
    wo_error err;
    const woi_kernels *kernels = woi_kernels_get(&err);
    assert_non_null(kernels);
    return kernels;
}

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
        woi_tree_route(tree, &table, &(woi_routing){q, 1, probes, cells, &found, scores, scratch, tree->margin, NULL});
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
            assert_int_equal(woi_tree_file(&tree, q, N, threads, &(woi_filing){1, cells}, &err), WO_OK);
            for (size_t i = 0; i < N; i++) {
                const size_t n = tree_query(&tree, get_kernels(), q + i * d, 1, scratch, own);
                assert_int_equal(n == 0, i == 17);
                assert_int_equal(cells[i], n ? own[0] : UINT32_MAX);
            }
        }
        assert_int_equal(woi_tree_file(&tree, NULL, 0, 2, &(woi_filing){1, NULL}, &err), WO_OK);
        enum { EACH = 5 };
        uint32_t many[N * EACH];
        assert_int_equal(woi_tree_file(&tree, q, N, 2, &(woi_filing){EACH, many}, &err), WO_OK);
        for (size_t i = 0; i < N; i++) {
            const size_t n = tree_query(&tree, get_kernels(), q + i * d, EACH, scratch, own);
            for (size_t l = 0; l < EACH; l++) assert_int_equal(many[i * EACH + l], l < n ? own[l] : UINT32_MAX);
        }
        enum { TOGETHER = 32 };
        void *wide = aligned_alloc(64, woi_tree_scratch(&tree, N, PROBES));
        uint32_t *together = malloc(N * PROBES * sizeof *together), counts[N], alone;
        float *scores = malloc(N * PROBES * sizeof *scores), own_scores[PROBES];
        woi_tree_route(&tree, get_kernels(),
                       &(woi_routing){q, N, PROBES, together, counts, scores, wide, INFINITY, NULL});
        for (size_t i = 0; i < N; i++) {
            woi_tree_route(&tree, get_kernels(),
                           &(woi_routing){q + i * d, 1, PROBES, own, &alone, own_scores, scratch, INFINITY, NULL});
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
                           &(woi_routing){q, some, PROBES, together, counts, NULL, wide, tree.margin, NULL});
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
        q[5 * d] = 0;
        for (size_t i = 0; i < N * d; i++) q[i] *= 1e30F;
        for (size_t a = 0; a < tree.A; a++) tree.node_scales[a] = INFINITY; /* nodes that far out */
        assert_int_equal(woi_tree_learn_margin(&tree, q, N, PROBES, 1, &err), WO_ERR_ARGUMENT);
        assert_string_equal(err.text,
                            "no query finds a way through the tree: their numbers are too large for its sums");
        for (size_t i = 0; i < N * d; i++) q[i] = NAN;
        assert_int_equal(woi_tree_learn_margin(&tree, q, N, PROBES, 1, &err), WO_ERR_ARGUMENT);
        assert_string_equal(err.text, "no query is finite any more: the log has changed meanwhile");
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
