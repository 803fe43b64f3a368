/* Searching a tree: see tree.h. */
#include "route/tree.h"

#include "base/error.h"
#include "base/mem.h"

#include <math.h>
#include <omp.h>
#include <string.h>

void woi_tree_free(woi_tree *tree)
{
    woi_free(tree->basis);
    woi_free(tree->basis_scales);
    woi_free(tree->nodes);
    woi_free(tree->node_scales);
    woi_free(tree->node_offsets);
    woi_free(tree->leaves);
    woi_free(tree->leaf_scales);
    woi_free(tree->leaf_offsets);
    *tree = (woi_tree){0};
}

/* What routing n queries needs, each array on 64 bytes:
 *
 *   x (r), scaled (d), zeros (r)      one query's direction; a small query made larger; the offsets of the basis
 *   q8 (d), x8 (n, r)                 the query and the directions in int8, in whole fours
 *   scales (n)                        of x8
 *   z (A, or beam and B)              the scores of one level
 *   nodes, node_scores (n, beam)      the nodes that each query looks at, best first; n_nodes (n)
 *   starts (A + 1), lookers           the queries that look at each node
 *   scores, leaves (n, probes)        the best leaves so far: heaps of n_leaves (n) */
typedef struct parts {
    float *x, *scaled, *zeros;
    int8_t *q8, *x8;
    float *scales, *z;
    int32_t *nodes;
    float *node_scores;
    uint32_t *n_nodes, *starts, *lookers;
    float *scores;
    int32_t *leaves;
    size_t *n_leaves;
} parts;

static void *next_part(char **at, size_t bytes)
{
    char *here = *at;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

static parts part(const woi_tree *tree, size_t n, uint32_t probes, void *scratch, size_t *total)
{
    const size_t r = tree->r, leaves = (size_t)tree->beam * tree->B, f = sizeof(float), u = sizeof(uint32_t);
    char *at = scratch;
    parts p = {.x = next_part(&at, r * f), .scaled = next_part(&at, tree->d * f), .zeros = next_part(&at, r * f)};
    p.q8 = next_part(&at, tree->d + 3);
    p.x8 = next_part(&at, n * 4 * woi_tree_fours(tree));
    p.scales = next_part(&at, n * f);
    p.z = next_part(&at, (tree->A > leaves ? tree->A : leaves) * f);
    p.nodes = next_part(&at, n * tree->beam * u);
    p.node_scores = next_part(&at, n * tree->beam * f);
    p.n_nodes = next_part(&at, n * u);
    p.starts = next_part(&at, (tree->A + 1) * u);
    p.lookers = next_part(&at, n * tree->beam * u);
    p.scores = next_part(&at, n * probes * f);
    p.leaves = next_part(&at, n * probes * u);
    p.n_leaves = next_part(&at, n * sizeof *p.n_leaves);
    if (total) *total = (size_t)(at - (char *)scratch);
    return p;
}

size_t woi_tree_scratch(const woi_tree *tree, size_t n, uint32_t probes)
{
    size_t total;
    part(tree, n, probes, (void *)64, &total); /* where from does not matter */
    return total;
}

/* In int8, with zeros up to a multiple of four; returns the scale. */
static float encode(const woi_kernels *kernels, const float *x, size_t n, int8_t *codes)
{
    for (size_t j = n; j % 4; j++) codes[j] = 0;
    return kernels->quantise(x, n, codes);
}

static bool turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, parts p)
{
    const size_t d = tree->d, r = tree->r;
    const float one = 1, scale = encode(kernels, q, d, p.q8);
    float square;
    if (isnan(scale)) return false;
    if (scale == 0) { /* all zeros, or too small for a good float */
        double most = 0;
        for (size_t j = 0; j < d; j++) most = fmax(most, fabs((double)q[j]));
        for (size_t j = 0; j < d; j++) p.scaled[j] = most > 0 ? (float)(q[j] / most) : 0;
        encode(kernels, p.scaled, d, p.q8);
    }
    kernels->dot_i8(p.q8, 1, p.q8, &one, 1, d, d, &square); /* its own length, as it has become */
    const float over = square > 0 ? 1 / sqrtf(square) : 0;
    if (tree->basis) {
        memset(p.zeros, 0, r * sizeof *p.zeros);
        kernels->project_i8(p.q8, over, tree->basis, tree->basis_scales, p.zeros, (d + 3) / 4, r, p.x);
    } else {
        for (size_t j = 0; j < d; j++) p.x[j] = (float)p.q8[j] * over;
    }
    return true;
}

bool woi_tree_turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, void *scratch, float *x)
{
    const parts p = part(tree, 1, 1, scratch, NULL);
    if (!turn(tree, kernels, q, p)) return false;
    memcpy(x, p.x, tree->r * sizeof *x);
    return true;
}

/* The nodes that query i looks at. */
static void choose_nodes(const woi_tree *tree, const woi_kernels *kernels, const float *q, size_t i, parts p)
{
    const size_t fours = woi_tree_fours(tree), beam = tree->beam;
    int8_t *x8 = p.x8 + i * 4 * fours;
    p.n_nodes[i] = 0;
    if (!turn(tree, kernels, q, p)) return;
    p.scales[i] = encode(kernels, p.x, tree->r, x8);
    kernels->project_i8(x8, p.scales[i], tree->nodes, tree->node_scales, tree->node_offsets, fours, tree->A, p.z);
    p.n_nodes[i] = (uint32_t)kernels->pick(p.z, NULL, tree->A, beam, p.node_scores + i * beam, p.nodes + i * beam);
}

static void score_leaves(const woi_tree *tree, const woi_kernels *kernels, size_t node, size_t i, parts p, float *z)
{
    const size_t fours = woi_tree_fours(tree), first = node * tree->B;
    kernels->project_i8(p.x8 + i * 4 * fours, p.scales[i], tree->leaves + first * 4 * fours, tree->leaf_scales + first,
                        tree->leaf_offsets + first, fours, tree->B, z);
}

/* The nodes in ascending order, so that of equal leaves the lower cell comes first. */
static void sort_nodes(int32_t *nodes, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const int32_t node = nodes[i];
        size_t at = i;
        for (; at > 0 && node < nodes[at - 1]; at--) nodes[at] = nodes[at - 1];
        nodes[at] = node;
    }
}

/* The best leaves of query i, all of its nodes at once. */
static uint32_t find_leaves(const woi_tree *tree, const woi_kernels *kernels, size_t i, uint32_t probes, parts p,
                            uint32_t *cells)
{
    const uint32_t B = tree->B;
    const size_t n_nodes = p.n_nodes[i];
    int32_t *nodes = p.nodes + i * tree->beam, *leaves = p.leaves + i * probes;
    float *scores = p.scores + i * probes;
    sort_nodes(nodes, n_nodes);
    for (size_t b = 0; b < n_nodes; b++) score_leaves(tree, kernels, (size_t)nodes[b], i, p, p.z + b * B);
    const size_t found = kernels->pick(p.z, NULL, n_nodes * B, probes, scores, leaves);
    uint32_t n = 0;
    for (; n < found && scores[n] > -INFINITY; n++) /* the others are not used */
        cells[n] = (uint32_t)nodes[(size_t)leaves[n] / B] * B + (uint32_t)leaves[n] % B;
    return n;
}

/* The queries of each node: a counting sort. */
static void group(const woi_tree *tree, size_t n, parts p)
{
    const size_t A = tree->A, beam = tree->beam;
    memset(p.starts, 0, (A + 1) * sizeof *p.starts);
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < p.n_nodes[i]; b++) p.starts[p.nodes[i * beam + b]]++;
    for (size_t a = 1; a <= A; a++) p.starts[a] += p.starts[a - 1];
    for (size_t i = n; i-- > 0;)
        for (size_t b = 0; b < p.n_nodes[i]; b++) p.lookers[--p.starts[p.nodes[i * beam + b]]] = (uint32_t)i;
}

/* The same for n queries, node by node: what is found is offered to the queries that look there. */
static void find_together(const woi_tree *tree, const woi_kernels *kernels, size_t n, uint32_t probes, parts p,
                          uint32_t *cells, uint32_t *n_cells)
{
    group(tree, n, p);
    memset(p.n_leaves, 0, n * sizeof *p.n_leaves);
    for (size_t a = 0; a < tree->A; a++)
        for (size_t at = p.starts[a]; at < p.starts[a + 1]; at++) {
            const size_t i = p.lookers[at];
            woi_topk top = {probes, p.n_leaves[i], p.scores + i * probes, p.leaves + i * probes};
            score_leaves(tree, kernels, a, i, p, p.z);
            kernels->topk_scan(p.z, tree->B, (int32_t)(a * tree->B), &top);
            p.n_leaves[i] = top.n;
        }
    for (size_t i = 0; i < n; i++) {
        woi_topk top = {probes, p.n_leaves[i], p.scores + i * probes, p.leaves + i * probes};
        woi_topk_finish(&top);
        for (n_cells[i] = 0; n_cells[i] < top.n && top.scores[n_cells[i]] > -INFINITY; n_cells[i]++)
            cells[i * probes + n_cells[i]] = (uint32_t)top.ids[n_cells[i]];
    }
}

void woi_tree_route(const woi_tree *tree, const woi_kernels *kernels, const float *q, size_t n, uint32_t probes,
                    void *scratch, uint32_t *cells, uint32_t *n_cells)
{
    const parts p = part(tree, n, probes, scratch, NULL);
    for (size_t i = 0; i < n; i++) choose_nodes(tree, kernels, q + i * tree->d, i, p);
    if (n > 1 && tree->beam >= WOI_WIDE_BEAM)
        find_together(tree, kernels, n, probes, p, cells, n_cells);
    else
        for (size_t i = 0; i < n; i++) n_cells[i] = find_leaves(tree, kernels, i, probes, p, cells + i * probes);
}

wo_status woi_tree_queries(const woi_tree *tree, const float *q, size_t n, uint32_t probes, int threads,
                           uint32_t *cells, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    if (threads < 1) threads = omp_get_max_threads();
    enum { TOGETHER = 256 };
    const size_t each = woi_tree_scratch(tree, TOGETHER, probes);
    char *scratch = woi_alloc((size_t)threads, each, err);
    if (!scratch) return WO_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t first = 0; first < n; first += TOGETHER) {
        uint32_t found[TOGETHER];
        const size_t count = n - first < TOGETHER ? n - first : TOGETHER;
        woi_tree_route(tree, kernels, q + first * tree->d, count, probes, scratch + (size_t)omp_get_thread_num() * each,
                       cells + first * probes, found);
        for (size_t i = 0; i < count; i++)
            for (; found[i] < probes; found[i]++) cells[(first + i) * probes + found[i]] = UINT32_MAX;
    }
    woi_free(scratch);
    return WO_OK;
}

/* Puts (score, id) into the best `room` so far, `n` of them, best first, where it belongs; equal scores: the earlier
 * stays before. Returns the new n. */
static inline size_t insert(float score, uint32_t id, float *scores, uint32_t *ids, size_t n, size_t room)
{
    if (n == room && !(score > scores[n - 1])) return n;
    size_t at = n < room ? n++ : n - 1;
    for (; at > 0 && score > scores[at - 1]; at--) {
        scores[at] = scores[at - 1];
        ids[at] = ids[at - 1];
    }
    scores[at] = score;
    ids[at] = id;
    return n;
}

wo_status woi_tree_neighbours(const woi_tree *tree, uint32_t n_near, int threads, uint32_t *near, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    if (threads < 1) threads = omp_get_max_threads();
    const uint32_t B = tree->B;
    const size_t fours = woi_tree_fours(tree), each = (fours + B + n_near + 15) / 16 * 16;
    float *scratch = woi_alloc((size_t)threads, each * sizeof *scratch, err);
    if (!scratch) return WO_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t a = 0; a < tree->A; a++) {
        float *z = scratch + (size_t)omp_get_thread_num() * each, *scores = z + B;
        int8_t *x = (void *)(scores + n_near);
        const uint8_t *leaves = tree->leaves + a * B * 4 * fours;
        const float *scales = tree->leaf_scales + a * B, *offsets = tree->leaf_offsets + a * B;
        for (uint32_t b = 0; b < B; b++) {
            uint32_t *own = near + (a * B + b) * n_near;
            size_t n = 0;
            if (offsets[b] == -INFINITY) { /* not used: it needs nobody */
                for (uint32_t i = 0; i < n_near; i++) own[i] = UINT32_MAX;
                continue;
            }
            for (size_t j = 0; j < 4 * fours; j++) x[j] = (int8_t)woi_tree_coordinate(leaves, B, b, j);
            kernels->project_i8(x, scales[b], leaves, scales, offsets, fours, B, z);
            for (uint32_t other = 0; other < B; other++)
                if (other != b && z[other] > -INFINITY)
                    n = insert(z[other], (uint32_t)(a * B + other), scores, own, n, n_near);
            for (; n < n_near; n++) own[n] = UINT32_MAX;
        }
    }
    woi_free(scratch);
    return WO_OK;
}
