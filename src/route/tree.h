/* The tree router: spherical k-means over queries in two levels. A query opens the `probes` nearest of the leaves below
 * the `beam` nearest nodes, of those whose scores are no more than a margin behind the best node's. The margin is
 * learned: most queries lie well inside a node, and need no other; a few lie between many.
 *
 *   x = basis^T q / |q|                   `r` coordinates, the principal ones of such directions; r = d: x = q / |q|.
 *                                         q is rounded to int8 first, its length then taken
 *   score of a centre c = x . c - |c|^2 / 2     the nearest centre has the highest
 *
 * Lengths are left out because what a query needs hardly depends on its own: where they vary much (Diginetica), cells
 * of directions hold more of it.
 *
 * All of it is in int8, the query and x too, each vector with a scale of its own: a query reads the leaves of several
 * nodes, which lie in the second or third cache where there are many, so that bytes decide; and four products take one
 * instruction. In a batch, queries that look at the same node do so one after the other, while its leaves are in the
 * first cache.
 *
 *   basis      r axes in the form that the `project_i8` kernel takes, with scales
 *   nodes      A centres in that form, with scales and offsets -|c|^2 / 2
 *   starts     node a has the places starts[a] .. starts[a+1] for leaves: so many in proportion to its queries, rounded
 *              up to a multiple of 16
 *   leaves     a block for each node: its places in that form. A leaf's place is its cell
 *   n_leaves   of each node: those in use are among so many first, a multiple of 16
 *
 * A node or a leaf that is not used has offset -INFINITY and is never found.
 *
 * A is a multiple of 16, and so is r where there is a basis. One node alone makes flat k-means. */
#ifndef WOI_ROUTE_TREE_H
#define WOI_ROUTE_TREE_H

#include "kernels/kernels.h"
#include "route/routing.h"

#include <stdbool.h>

enum {
    WOI_MAX_NODES = 1024,
    WOI_MAX_FAN = 65536, /* leaves below one node */
    WOI_MAX_BEAM = 64,
    WOI_MAX_LEAVES = 64, /* opened by a query */
    WOI_WIDE_BEAM = 4,   /* from so many nodes on, queries that share them are worth bringing together */
};

typedef struct woi_tree {
    size_t d, r;
    uint32_t A;      /* nodes; 0: no tree */
    uint32_t widest; /* places of the largest node */
    uint32_t beam;
    uint32_t *starts; /* (A + 1) */
    uint8_t *basis;   /* NULL: r = d */
    uint8_t *nodes, *leaves;
    float *basis_scales;
    float *node_scales, *node_offsets;
    float *leaf_scales, *leaf_offsets;
    uint32_t *n_leaves;
    float margin; /* INFINITY: none was learned */
} woi_tree;

typedef struct woi_tree_options {
    size_t r;               /* 0: d */
    uint32_t nodes, leaves; /* at least 1; of leaves the mean below a node */
    uint32_t beam;
    uint32_t rounds; /* of k-means at each level */
    uint32_t refine; /* rounds over all leaves afterwards */
    uint64_t seed;
    int threads;
    const wo_progress *progress;   /* NULL: none is told */
    const wo_collective *together; /* processes that learn the same tree of the same queries, each a part of the work */
} woi_tree_options;

/* Those of *nodes and *leaves that are 0, for so many queries. */
void woi_tree_fan_outs(size_t n, uint32_t queries_a_leaf, uint32_t *nodes, uint32_t *leaves);
wo_status woi_tree_learn(const float *q, size_t n, size_t d, const woi_tree_options *options, woi_tree *tree,
                         wo_error *err);
void woi_tree_free(woi_tree *tree); /* and zeroed again */

/* The same from points that are no queries, x (n, r), as where the queries of a class are expected: of a tree that has
 * its axes alone, those of q's directions. Leaves are learned first, from the points as a whole, then nodes from them:
 * points lie in clusters far more clearly than queries do, and no cluster is then divided between two nodes. */
wo_status woi_tree_find_axes(const float *q, size_t n, size_t d, const woi_tree_options *options, woi_tree *tree,
                             wo_error *err);
wo_status woi_tree_learn_points(const float *x, size_t n, const woi_tree_options *options, woi_tree *tree,
                                wo_error *err);

/* A tree that such learning would make, of queries of d numbers: its sizes, and room for starts and the basis; then,
 * once starts are known, room for its centres. */
wo_status woi_tree_begin(const woi_tree_options *options, size_t d, woi_tree *tree, wo_error *err);
wo_status woi_tree_room(woi_tree *tree, wo_error *err);

/* Of a tree that was read: where the leaves of its nodes begin decides addresses. */
wo_status woi_tree_check_starts(const woi_tree *tree, wo_error *err);

/* Makes n_leaves and widest, from starts and offsets. */
wo_status woi_tree_count_leaves(woi_tree *tree, wo_error *err);

static inline size_t woi_tree_n_cells(const woi_tree *tree)
{
    return tree->starts ? tree->starts[tree->A] : 0;
}

/* Fours of coordinates: those beyond r are zero. */
static inline size_t woi_tree_fours(const woi_tree *tree)
{
    return (tree->r + 3) / 4;
}

/* Coordinate j of centre `which` of `n` side by side. */
static inline int woi_tree_coordinate(const uint8_t *centres, size_t n, size_t which, size_t j)
{
    return (int)centres[(j / 4 * n + which) * 4 + j % 4] - 128;
}

/* Bytes of scratch that woi_tree_route needs for n queries at once; one is enough for woi_tree_turn. */
size_t woi_tree_scratch(const woi_tree *tree, size_t n, uint32_t probes);

/* x (r), the direction of a query in the tree's coordinates; false when the query is not finite. */
bool woi_tree_turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, void *scratch, float *x);

/* The `probes` nearest leaves below the nearest nodes, nearest first: cells (n, probes). */
void woi_tree_route(const woi_tree *tree, const woi_kernels *kernels, const woi_routing *asked);

/* Sets the margin for queries that open so many leaves, from n such queries, the beam as it is. */
wo_status woi_tree_learn_margin(woi_tree *tree, const float *q, size_t n, uint32_t probes, int threads, wo_error *err);

/* The nearest leaves of queries, as their needs are filed: whatever the margin. */
typedef struct woi_filing {
    uint32_t each;   /* leaves of a query, at least 1 */
    uint32_t *cells; /* (n, each), nearest first; UINT32_MAX where there are no more, or the query is not finite */
} woi_filing;
wo_status woi_tree_file(const woi_tree *tree, const float *q, size_t n, int threads, const woi_filing *filing,
                        wo_error *err);

/* The tree's axes: (r, d), the rows of basis^T. */
void woi_tree_axes(const woi_tree *tree, float *axes);

/* The `n_near` leaves nearest to each leaf below the same node, nearest first: near (cells, n_near), UINT32_MAX beyond.
 */
wo_status woi_tree_neighbours(const woi_tree *tree, uint32_t n_near, int threads, uint32_t *near, wo_error *err);

#endif
