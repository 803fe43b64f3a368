/* The tree router: spherical k-means over queries in two levels. A query opens the `probes` nearest of the leaves below
 * the `beam` nearest nodes.
 *
 *   x = basis^T q / |q|                   `r` coordinates, the principal ones of such directions; r = d: x = q / |q|
 *   score of a centre c = x . c - |c|^2 / 2     the nearest centre has the highest
 *
 * Lengths are left out because what a query needs hardly depends on its own: where they vary much (Diginetica), cells
 * of directions hold more of it.
 *
 * Everything is in the form that the `project` kernel takes: centres side by side, d-major, with an offset each.
 *
 *   basis        (d, r)
 *   nodes        (r, A), node_offsets (A)
 *   leaves       A blocks of (r, B), leaf_offsets (A, B)
 *   cells        leaf b of node a is cell a B + b
 *
 * A node or a leaf that is not used has offset -INFINITY and is never found.
 *
 * A and B are multiples of 16, and so is r where there is a basis. */
#ifndef WOI_ROUTE_TREE_H
#define WOI_ROUTE_TREE_H

#include "kernels/kernels.h"

#include <stdbool.h>

enum { WOI_MAX_FAN = 1024, WOI_MAX_BEAM = 16, WOI_MAX_LEAVES = 64 /* opened by a query */ };

typedef struct woi_tree {
    size_t d, r;
    uint32_t A, B; /* fan-outs; A = 0: no tree */
    uint32_t beam;
    float *basis; /* NULL: r = d */
    float *nodes, *node_offsets;
    float *leaves, *leaf_offsets;
} woi_tree;

typedef struct woi_tree_options {
    size_t r;      /* 0: d */
    uint32_t A, B; /* 0: from the number of queries, about 40 a leaf */
    uint32_t beam;
    uint32_t rounds; /* of k-means at each level */
    uint64_t seed;
    int threads;
} woi_tree_options;

wo_status woi_tree_learn(const float *q, size_t n, size_t d, const woi_tree_options *options,
                         const wo_progress *progress, woi_tree *tree, wo_error *err);
void woi_tree_free(woi_tree *tree); /* and zeroed again */

static inline size_t woi_tree_n_cells(const woi_tree *tree)
{
    return (size_t)tree->A * tree->B;
}

/* Floats of scratch that woi_tree_query and woi_tree_turn need. */
size_t woi_tree_scratch(const woi_tree *tree);

/* x, the direction of a query in the tree's coordinates, in scratch[0 .. r); false when the query is not finite. */
bool woi_tree_turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, float *scratch);

/* The `probes` nearest leaves below the nearest nodes, nearest first; returns how many there are, 0 when the query is
 * not finite. */
size_t woi_tree_query(const woi_tree *tree, const woi_kernels *kernels, const float *q, uint32_t probes, float *scratch,
                      uint32_t *cells);

/* The `probes` cells of n queries: cells (n, probes), UINT32_MAX where there are fewer. */
wo_status woi_tree_queries(const woi_tree *tree, const float *q, size_t n, uint32_t probes, int threads,
                           uint32_t *cells, wo_error *err);

/* The `n_near` leaves nearest to each leaf below the same node, nearest first: near (cells, n_near), UINT32_MAX beyond.
 */
wo_status woi_tree_neighbours(const woi_tree *tree, uint32_t n_near, int threads, uint32_t *near, wo_error *err);

#endif
