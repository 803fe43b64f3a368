/* The cells of a query in a tree by its definition: directions, all centres, in whole numbers and double. */
#ifndef WO_NAIVE_TREE_H
#define WO_NAIVE_TREE_H

#include "testing.h"

#include "base/rng.h"
#include "route/tree.h"

#include <math.h>

static const double TREE_CLOSE = 1e-5; /* scores that are nearer to each other may come in either order */

/* The k best of the scores that are above -INFINITY, best first; returns how many there are, or -1 where the last, or
 * with `ordered` any, is too close to the next one to tell. */
static inline int pick_best(const double *scores, size_t n, size_t k, bool ordered, size_t *places)
{
    size_t found = 0;
    bool *taken = calloc(n, sizeof *taken), told = true;
    assert_non_null(taken);
    double last = INFINITY;
    for (;; found++) {
        size_t best = n;
        for (size_t i = 0; i < n; i++)
            if (!taken[i] && scores[i] > -INFINITY && (best == n || scores[i] > scores[best])) best = i;
        if (best == n) break;
        if ((ordered || found == k) && last - scores[best] < TREE_CLOSE) told = false;
        if (found == k) break;
        last = scores[best];
        taken[best] = true;
        places[found] = best;
    }
    free(taken);
    return told ? (int)found : -1;
}

/* x in int8, with its scale; false where a coordinate is too close to a half to tell. */
static inline bool naive_codes(const double *x, size_t r, int *codes, double *scale)
{
    bool told = true;
    double most = 0;
    for (size_t j = 0; j < r; j++) most = fmax(most, fabs(x[j]));
    *scale = most / 127;
    for (size_t j = 0; j < r; j++) {
        const double value = most > 0 ? x[j] / *scale : 0;
        codes[j] = (int)lrint(value);
        if (fabs(fabs(value - floor(value)) - 0.5) < 1e-4) told = false;
    }
    return told;
}

/* n centres side by side. */
typedef struct naive_centres {
    const uint8_t *codes;
    const float *scales, *offsets;
    size_t n;
} naive_centres;

/* x . c + offset of centre `which`. */
static inline double naive_score(const int *codes, double scale, size_t r, const naive_centres *centres, size_t which)
{
    long sum = 0;
    for (size_t j = 0; j < r; j++) sum += (long)codes[j] * woi_tree_coordinate(centres->codes, centres->n, which, j);
    return (double)centres->offsets[which] + (double)sum * scale * (double)centres->scales[which];
}

/* x (r): the direction of q in the tree's coordinates; false where a coordinate of q is too close to a half to tell. */
static inline bool naive_turn(const woi_tree *tree, const float *q, double *x)
{
    const size_t d = tree->d;
    double square = 0, scale, *exact = calloc(d, sizeof *exact);
    int *codes = calloc(d, sizeof *codes);
    assert_true(exact && codes);
    for (size_t j = 0; j < d; j++) exact[j] = (double)q[j];
    const bool told = naive_codes(exact, d, codes, &scale);
    for (size_t j = 0; j < d; j++) square += (double)codes[j] * codes[j];
    const double length = square > 0 ? sqrt(square) : 1;
    for (size_t c = 0; c < tree->r; c++) {
        x[c] = tree->basis ? 0 : codes[c] / length;
        for (size_t j = 0; tree->basis && j < d; j++)
            x[c] += codes[j] / length * (double)tree->basis_scales[c] * woi_tree_coordinate(tree->basis, tree->r, c, j);
    }
    free(exact);
    free(codes);
    return told;
}

/* The scores of the leaves below the chosen nodes, of all others -INFINITY: scores (cells). */
static inline void naive_leaves(const woi_tree *tree, const int *codes, double scale, const size_t *nodes, int n,
                                double *scores)
{
    const size_t bytes = 4 * woi_tree_fours(tree);
    for (size_t c = 0; c < woi_tree_n_cells(tree); c++) scores[c] = -INFINITY;
    for (int i = 0; i < n; i++) {
        const size_t first = tree->starts[nodes[i]], room = tree->starts[nodes[i] + 1] - first;
        const naive_centres below = {tree->leaves + first * bytes, tree->leaf_scales + first,
                                     tree->leaf_offsets + first, room};
        for (size_t b = 0; b < room; b++) scores[first + b] = naive_score(codes, scale, tree->r, &below, b);
    }
}

/* The cells of q, nearest first, with their scores where `nearness` is not NULL; returns how many, or -1 where scores
 * are too close to tell which they are or, with `ordered`, in which order. */
static inline int naive_tree(const woi_tree *tree, const float *q, uint32_t probes, bool ordered, uint32_t *cells,
                             double *nearness)
{
    const size_t A = tree->A, r = tree->r, n_cells = woi_tree_n_cells(tree);
    double *x = calloc(r, sizeof *x), *scores = calloc(A + n_cells, sizeof *scores), scale;
    int *codes = calloc(r, sizeof *codes);
    size_t nodes[WOI_MAX_BEAM], leaves[WOI_MAX_LEAVES];
    assert_true(x && scores && codes);
    bool told = naive_turn(tree, q, x);
    told &= naive_codes(x, r, codes, &scale);
    const naive_centres all = {tree->nodes, tree->node_scales, tree->node_offsets, A};
    for (size_t a = 0; a < A; a++) scores[a] = naive_score(codes, scale, r, &all, a);
    int n = told ? pick_best(scores, A, tree->beam, false, nodes) : -1;
    for (int i = n - 1; i > 0; i--) {
        const double over = scores[nodes[i]] - scores[nodes[0]] + (double)tree->margin;
        if (fabs(over) < TREE_CLOSE) n = -1;
        if (n > 0 && over < 0) n = i;
    }
    if (n >= 0) {
        naive_leaves(tree, codes, scale, nodes, n, scores);
        n = pick_best(scores, n_cells, probes, ordered, leaves);
        for (int i = 0; i < n; i++) cells[i] = (uint32_t)leaves[i];
        for (int i = 0; nearness && i < n; i++) nearness[i] = scores[leaves[i]];
    }
    free(codes);
    free(x);
    free(scores);
    return n;
}

/* Seeded numbers; to be freed. */
static inline float *normals(size_t n, uint64_t stream)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = woi_rng_normal(23, stream, i);
    return x;
}

/* The node that a leaf lies below. */
static inline size_t node_of(const woi_tree *tree, uint32_t cell)
{
    size_t a = 0;
    while (cell >= tree->starts[a + 1]) a++;
    return a;
}

#endif
