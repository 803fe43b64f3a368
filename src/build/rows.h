/* Where the queries of each class are to be expected, by its row alone: classes that no log has, and where they go.
 *
 * In a layer that tells classes apart as well as can be, queries of class y lie about A w_y + a, with one A for all
 * classes; exactly so where queries of a class are normal with the same covariance, which is A. So A and a are learned
 * by least squares from logged queries, in the coordinates of the tree, and from the rows of the classes that they
 * needed:
 *
 *   x_i ~ A w_y + a        x_i  the direction of query i (r)      y  what it needed
 *   point of class y       A w_y + a
 *   weight of class y      b_y + length / 2 * w_y . (A w_y + 2 a)     length  the mean |q|
 *
 * The weight is the logarithm of how frequent such a layer thinks the class, up to a constant. The tree is then learned
 * from points, which are much less noisy than queries, and each class lies in the leaves nearest to its own. */
#ifndef WOI_BUILD_ROWS_H
#define WOI_BUILD_ROWS_H

#include "build/build.h"

/* What is learned from a log, in float. */
typedef struct woi_expected {
    size_t d, r;
    float *turn;  /* (r, d): A */
    float *axes;  /* (r, d): those of the tree */
    float *shift; /* (r): a */
    float length;
} woi_expected;

void woi_expected_free(woi_expected *e); /* and zeroed again */

/* Of a tree that has its axes. */
wo_status woi_expected_learn(const wo_index *index, const wo_log *log, const woi_sparse *needs, woi_expected *e,
                             wo_error *err);

/* Points of n rows w (n, d) with biases b (NULL: none): points (n, r), and weights (n) unless NULL. z is scratch (n,
 * r), product woi_gemm's. */
typedef struct woi_expecting {
    const float *w, *b;
    size_t n;
    float *points, *weights, *z, *product;
} woi_expecting;
void woi_expect(const woi_kernels *kernels, const woi_expected *e, const woi_expecting *call);

/* Learns the centres of index->tree from the points of its rows, at most so many. */
wo_status woi_rows_learn(wo_index *index, const woi_expected *e, const woi_tree_options *options, wo_error *err);

/* Where the rows lie. */
typedef struct woi_placed {
    uint32_t each;  /* 0: nowhere */
    uint32_t *of;   /* (m, each): the nearest leaves, UINT32_MAX where there are no more */
    float *weights; /* (m) */
} woi_placed;

void woi_placed_free(woi_placed *placed); /* and zeroed again */
wo_status woi_rows_place(const wo_index *index, const woi_expected *e, woi_placed *placed, wo_error *err);

/* What rows are joined by. */
typedef struct woi_joined {
    size_t m;                  /* rows here */
    const wo_build_options *o; /* cap, threads and the processes */
    const woi_shard *shard;
    const uint32_t *whole; /* (cells): how many classes of the whole layer each has; NULL: all are here */
} woi_joined;

/* Cells hold the m rows too, with share 0, where shares are kept: those with most weight, as far as the cap goes (0:
 * all). Processes join their own rows; the cap is on those of all. */
wo_status woi_rows_join(const woi_placed *placed, const woi_joined *call, woi_cells *cells, wo_error *err);

#endif
