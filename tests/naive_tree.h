/* The cells of a query in a tree by its definition: directions, all centres, in double. */
#ifndef WO_NAIVE_TREE_H
#define WO_NAIVE_TREE_H

#include "testing.h"

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

/* x . c + offset of centre `which` of `room`, d-major. */
static inline double naive_score(const double *x, size_t r, const float *at, const float *offsets, size_t room,
                                 size_t which)
{
    double score = (double)offsets[which];
    for (size_t j = 0; j < r; j++) score += x[j] * (double)at[j * room + which];
    return score;
}

/* x (r): the direction of q in the tree's coordinates. */
static inline void naive_turn(const woi_tree *tree, const float *q, double *x)
{
    double square = 0;
    for (size_t j = 0; j < tree->d; j++) square += (double)q[j] * (double)q[j];
    const double length = square > 0 ? sqrt(square) : 1;
    for (size_t c = 0; c < tree->r; c++) {
        x[c] = tree->basis ? 0 : (double)q[c] / length;
        for (size_t j = 0; tree->basis && j < tree->d; j++)
            x[c] += (double)q[j] / length * (double)tree->basis[j * tree->r + c];
    }
}

/* The cells of q, nearest first; returns how many, or -1 where scores are too close to tell which they are or, with
 * `ordered`, in which order. */
static inline int naive_tree(const woi_tree *tree, const float *q, uint32_t probes, bool ordered, uint32_t *cells)
{
    const size_t A = tree->A, B = tree->B, r = tree->r;
    double *x = calloc(r, sizeof *x), *scores = calloc(A * B, sizeof *scores);
    size_t nodes[WOI_MAX_BEAM], leaves[WOI_MAX_LEAVES];
    assert_true(x && scores);
    naive_turn(tree, q, x);
    for (size_t a = 0; a < A; a++) scores[a] = naive_score(x, r, tree->nodes, tree->node_offsets, A, a);
    int n = pick_best(scores, A, tree->beam, false, nodes);
    if (n >= 0) {
        for (size_t c = 0; c < A * B; c++) scores[c] = -INFINITY;
        for (int i = 0; i < n; i++)
            for (size_t b = 0; b < B; b++)
                scores[nodes[i] * B + b] =
                    naive_score(x, r, tree->leaves + nodes[i] * r * B, tree->leaf_offsets + nodes[i] * B, B, b);
        n = pick_best(scores, A * B, probes, ordered, leaves);
        for (int i = 0; i < n; i++) cells[i] = (uint32_t)leaves[i];
    }
    free(x);
    free(scores);
    return n;
}

#endif
