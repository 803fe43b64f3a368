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
    woi_free(tree->nodes);
    woi_free(tree->node_offsets);
    woi_free(tree->leaves);
    woi_free(tree->leaf_offsets);
    *tree = (woi_tree){0};
}

/* Scratch:  x (r) | zeros, the offsets of the basis (r) | the scores of a level, or a query that is scaled | sign bits,
 * which `project` also gives */
static size_t middle(const woi_tree *tree)
{
    const size_t widest = tree->A > tree->B ? tree->A : tree->B;
    return widest > tree->d ? widest : tree->d;
}

size_t woi_tree_scratch(const woi_tree *tree)
{
    return 2 * tree->r + middle(tree) + middle(tree) / 32 + 16;
}

bool woi_tree_turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, float *scratch)
{
    const size_t d = tree->d, r = tree->r;
    float *x = scratch, *zeros = x + r, *scaled = zeros + r, square;
    kernels->dot_f32(q, q, 1, d, d, &square);
    double over = 1 / sqrt((double)square);
    if (!(square > 1e-30F && square < 1e30F)) { /* not finite, or neither this nor `project` gives good floats */
        double exact = 0;
        for (size_t j = 0; j < d; j++) exact += (double)q[j] * q[j];
        if (!isfinite(exact)) return false;
        over = exact > 0 ? 1 / sqrt(exact) : 0;
        for (size_t j = 0; j < d; j++) scaled[j] = (float)(q[j] * over);
        q = scaled;
        over = 1;
    }
    if (!tree->basis) {
        for (size_t j = 0; j < d; j++) x[j] = (float)(q[j] * over);
        return true;
    }
    memset(zeros, 0, r * sizeof *zeros);
    kernels->project(q, tree->basis, zeros, d, r, x, (void *)(scaled + middle(tree)));
    for (size_t j = 0; j < r; j++) x[j] = (float)(x[j] * over);
    return true;
}

/* The n best of scores (count), best first, ties to the lower place: places[0 .. n), offset by `first`. */
static size_t best(const woi_kernels *kernels, const float *scores, size_t count, uint32_t first, size_t n, size_t had,
                   float *kept, int32_t *places)
{
    woi_topk top = {n, had, kept, places};
    kernels->topk_scan(scores, count, (int32_t)first, &top);
    return top.n;
}

size_t woi_tree_query(const woi_tree *tree, const woi_kernels *kernels, const float *q, uint32_t probes, float *scratch,
                      uint32_t *cells)
{
    const uint32_t A = tree->A, B = tree->B;
    const size_t r = tree->r;
    float *x = scratch, *z = x + 2 * r, node_scores[WOI_MAX_BEAM], leaf_scores[WOI_MAX_LEAVES];
    uint16_t *bits = (void *)(z + middle(tree));
    int32_t nodes[WOI_MAX_BEAM], leaves[WOI_MAX_LEAVES];
    if (!woi_tree_turn(tree, kernels, q, scratch)) return 0;
    kernels->project(x, tree->nodes, tree->node_offsets, r, A, z, bits);
    const size_t n_nodes = best(kernels, z, A, 0, tree->beam, 0, node_scores, nodes);
    size_t n = 0;
    for (size_t i = 0; i < n_nodes; i++) {
        const size_t a = (size_t)nodes[i];
        kernels->project(x, tree->leaves + a * r * B, tree->leaf_offsets + a * B, r, B, z, bits);
        n = best(kernels, z, B, (uint32_t)(a * B), probes, n, leaf_scores, leaves);
    }
    woi_topk top = {probes, n, leaf_scores, leaves};
    woi_topk_finish(&top);
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (leaf_scores[i] > -INFINITY) cells[used++] = (uint32_t)leaves[i];
    return used;
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
        size_t found = woi_tree_query(tree, kernels, q + i * tree->d, probes,
                                      scratch + (size_t)omp_get_thread_num() * each, cells + i * probes);
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
    const size_t r = tree->r, each = r + B + B / 32 + 16 + n_near;
    float *scratch = woi_alloc((size_t)threads, each * sizeof *scratch, err);
    if (!scratch) return WO_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t a = 0; a < tree->A; a++) {
        float *x = scratch + (size_t)omp_get_thread_num() * each, *z = x + r, *scores = z + B + B / 32 + 16;
        const float *leaves = tree->leaves + a * r * B, *offsets = tree->leaf_offsets + a * B;
        for (uint32_t b = 0; b < B; b++) {
            uint32_t *own = near + (a * B + b) * n_near;
            size_t n = 0;
            if (offsets[b] == -INFINITY) { /* not used: it needs nobody */
                for (uint32_t i = 0; i < n_near; i++) own[i] = UINT32_MAX;
                continue;
            }
            for (size_t j = 0; j < r; j++) x[j] = leaves[j * B + b];
            kernels->project(x, leaves, offsets, r, B, z, (void *)(z + B));
            for (uint32_t other = 0; other < B; other++)
                if (other != b && z[other] > -INFINITY)
                    n = insert(z[other], (uint32_t)(a * B + other), scores, own, n, n_near);
            for (; n < n_near; n++) own[n] = UINT32_MAX;
        }
    }
    woi_free(scratch);
    return WO_OK;
}
