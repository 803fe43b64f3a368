/* route/tree_learn.c: what learning must find in data that are clustered. */
#include "naive_tree.h"

#include "base/mem.h"
#include "base/rng.h"

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
        assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells}, &err), WO_OK);
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
    assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells}, &err), WO_OK);
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
        assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells}, &err), WO_OK);
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
                                      {40, 16, 16, 97}, {40, 32, 16, 98}, {130, 16, 8, 95}, {33, 32, 33, 97},
                                      {17, 16, 17, 94}, {64, 48, 64, 75}, {4500, 16, 8, 70}};
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

static size_t largest_allocation;
static void *measuring_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    if (bytes > largest_allocation) largest_allocation = bytes;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void measuring_release(void *ctx, void *memory)
{
    (void)ctx;
    free(memory);
}

/* Their second moments would be d^2 doubles: 320 MB here. */
static void wide_queries_take_little_memory(void **state)
{
    (void)state;
    enum { N = 60, D = 6400 };
    static const wo_allocator measuring = {measuring_alloc, measuring_release, NULL};
    float *q = clustered(N, D, 0.3F);
    woi_tree_options o = few;
    o.r = 16;
    woi_tree trees[2];
    largest_allocation = 0;
    assert_int_equal(wo_allocator_set(&measuring), WO_OK);
    for (int i = 0; i < 2; i++) {
        o.threads = 1 + i;
        trees[i] = learn(q, N, D, &o);
    }
    assert_true(largest_allocation > 0 && largest_allocation < 16000000);
    assert_memory_equal(trees[0].basis, trees[1].basis, 16 * D);
    for (int i = 0; i < 2; i++) woi_tree_free(&trees[i]);
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    free(q);
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
        assert_int_equal(woi_tree_file(&tree, q, N, 1, &(woi_filing){1, cells}, &err), WO_OK);
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
    assert_int_equal(woi_tree_file(tree, q, n, 1, &(woi_filing){1, cells}, &err), WO_OK);
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
        assert_int_equal(woi_tree_file(&tree, q, n, 1, &(woi_filing){1, cells}, &err), WO_OK);
        for (size_t i = 0; i < n; i++) assert_true(cells[i] < woi_tree_n_cells(&tree));
        for (size_t i = 1; turn / 36 && i < n; i++) assert_int_equal(cells[i], cells[0]);
        assert_int_equal(woi_tree_file(&tree, others, 50, 1, &(woi_filing){1, cells}, &err), WO_OK);
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
            assert_int_equal(woi_tree_file(&tree, q, 100, 2, &(woi_filing){1, cells}, NULL), n ? WO_OK : WO_ERR_MEMORY);
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
        cmocka_unit_test(clusters_are_told_apart),
        cmocka_unit_test(nodes_hold_whole_clusters),
        cmocka_unit_test(queries_of_any_length_are_learned_from),
        cmocka_unit_test(the_basis_holds_the_spread),
        cmocka_unit_test(wide_queries_take_little_memory),
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
