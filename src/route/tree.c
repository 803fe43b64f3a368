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

/* Scratch:
 *   x (r)
 *   node scores (A), leaf scores (beam, B)     a query that is scaled, and zeros for offsets, before
 *   x in int8                                  the query in int8, before */
typedef struct parts {
    float *x, *nodes, *leaves;
    int8_t *codes;
} parts;

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static parts part(const woi_tree *tree, float *scratch, size_t *total)
{
    const size_t nodes = larger(tree->A, tree->d), leaves = larger((size_t)tree->beam * tree->B, tree->r);
    if (total) *total = tree->r + nodes + leaves + tree->d / 4 + 1;
    if (!scratch) return (parts){0};
    float *after = scratch + tree->r;
    return (parts){scratch, after, after + nodes, (void *)(after + nodes + leaves)};
}

size_t woi_tree_scratch(const woi_tree *tree)
{
    size_t total;
    part(tree, NULL, &total);
    return total;
}

/* In int8, with zeros up to a multiple of four; returns the scale. */
static float encode(const woi_kernels *kernels, const float *x, size_t n, int8_t *codes)
{
    for (size_t j = n; j % 4; j++) codes[j] = 0;
    return kernels->quantise(x, n, codes);
}

bool woi_tree_turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, float *scratch)
{
    const size_t d = tree->d, r = tree->r;
    const parts p = part(tree, scratch, NULL);
    float square;
    kernels->dot_f32(q, q, 1, d, d, &square);
    float over = 1 / sqrtf(square);
    if (!(square > 1e-30F && square < 1e30F)) { /* not finite, or no good float */
        double exact = 0;
        for (size_t j = 0; j < d; j++) exact += (double)q[j] * q[j];
        if (!isfinite(exact)) return false;
        const double length = exact > 0 ? sqrt(exact) : 1;
        for (size_t j = 0; j < d; j++) p.nodes[j] = (float)(q[j] / length);
        q = p.nodes;
        over = 1;
    }
    if (!tree->basis) {
        for (size_t j = 0; j < d; j++) p.x[j] = q[j] * over;
        return true;
    }
    const float scale = encode(kernels, q, d, p.codes) * over;
    memset(p.leaves, 0, r * sizeof *p.leaves);
    kernels->project_i8(p.codes, scale, tree->basis, tree->basis_scales, p.leaves, (d + 3) / 4, r, p.x);
    return true;
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

static uint32_t route(const woi_tree *tree, const woi_kernels *kernels, const float *q, uint32_t probes, float *scratch,
                      uint32_t *cells)
{
    const uint32_t A = tree->A, B = tree->B;
    const size_t fours = woi_tree_fours(tree);
    const parts p = part(tree, scratch, NULL);
    float scores[WOI_MAX_LEAVES];
    int32_t nodes[WOI_MAX_BEAM], leaves[WOI_MAX_LEAVES];
    if (!woi_tree_turn(tree, kernels, q, scratch)) return 0;
    const float scale = encode(kernels, p.x, tree->r, p.codes);
    kernels->project_i8(p.codes, scale, tree->nodes, tree->node_scales, tree->node_offsets, fours, A, p.nodes);
    const size_t n_nodes = kernels->pick(p.nodes, NULL, A, tree->beam, scores, nodes);
    sort_nodes(nodes, n_nodes);
    for (size_t b = 0; b < n_nodes; b++) {
        const size_t first = (size_t)nodes[b] * B;
        kernels->project_i8(p.codes, scale, tree->leaves + first * 4 * fours, tree->leaf_scales + first,
                            tree->leaf_offsets + first, fours, B, p.leaves + b * B);
    }
    const size_t found = kernels->pick(p.leaves, NULL, n_nodes * B, probes, scores, leaves);
    uint32_t n = 0;
    for (; n < found && scores[n] > -INFINITY; n++) /* the others are not used */
        cells[n] = (uint32_t)nodes[(size_t)leaves[n] / B] * B + (uint32_t)leaves[n] % B;
    return n;
}

void woi_tree_route(const woi_tree *tree, const woi_kernels *kernels, const float *q, size_t n, uint32_t probes,
                    float *scratch, uint32_t *cells, uint32_t *n_cells)
{
    for (size_t i = 0; i < n; i++)
        n_cells[i] = route(tree, kernels, q + i * tree->d, probes, scratch, cells + i * probes);
}

wo_status woi_tree_queries(const woi_tree *tree, const float *q, size_t n, uint32_t probes, int threads,
                           uint32_t *cells, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    if (threads < 1) threads = omp_get_max_threads();
    const size_t each = (woi_tree_scratch(tree) + 15) / 16 * 16;
    float *scratch = woi_alloc((size_t)threads, each * sizeof *scratch, err);
    if (!scratch) return WO_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        uint32_t found;
        woi_tree_route(tree, kernels, q + i * tree->d, 1, probes, scratch + (size_t)omp_get_thread_num() * each,
                       cells + i * probes, &found);
        for (; found < probes; found++) cells[i * probes + found] = UINT32_MAX;
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
