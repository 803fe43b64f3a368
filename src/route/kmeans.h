/* k-means: centres of points, in parallel and to the same bits for any number of threads and processes. */
#ifndef WOI_ROUTE_KMEANS_H
#define WOI_ROUTE_KMEANS_H

#include "base/ranges.h"
#include "kernels/kernels.h"

#include <stdbool.h>

enum { WOI_POINTS_AT_ONCE = 256 }; /* that a thread takes */

/* k centres; x . c - |c|^2 / 2 is highest for the nearest. */
typedef struct woi_centres {
    size_t r;
    uint32_t k;
    float *at;      /* (k, r) */
    float *offsets; /* (k): -|c|^2 / 2, or -INFINITY: not used */
} woi_centres;

/* A thread's memory. */
typedef struct woi_bench {
    float *points;  /* (WOI_POINTS_AT_ONCE, r) */
    float *z;       /* (WOI_POINTS_AT_ONCE, centres at once) */
    float *product; /* woi_gemm's scratch */
    int8_t *x8;     /* (r) */
    void *route;    /* woi_tree_route's scratch; NULL until there is a tree */
} woi_bench;

wo_status woi_bench_make(size_t r, woi_bench *bench, wo_error *err);
void woi_bench_free(woi_bench *bench);

/* Points to find centres for. */
typedef struct woi_points {
    const float *x;          /* (.., r) */
    const uint32_t *members; /* of x that belong to them; NULL: the first n */
    size_t n;
    uint32_t *of; /* (n): the nearest centre of each */
} woi_points;

/* How centres are learned: in so many rounds, from these random numbers. */
typedef struct woi_lloyd {
    uint32_t rounds;
    uint64_t seed, stream;
    bool apart; /* they start from points that lie apart, not from any: see woi_learn_centres */
    int threads;
    woi_bench *benches;            /* (threads) */
    const wo_collective *together; /* who find centres for a part of the points each; NULL: nobody else */
} woi_lloyd;

/* Lloyd's rounds from k random points. p->of is scratch.
 *
 * Of k clusters that lie well apart, k random points miss every third. Those that lie apart are drawn one after the
 * other: sixteen points, each with a probability in proportion to the square of its distance from the nearest start so
 * far, of which the one is taken that brings the sum of these squares down most (Arthur and Vassilvitskii's greedy
 * k-means++). */
wo_status woi_learn_centres(const woi_kernels *kernels, const woi_points *p, const woi_lloyd *l, const woi_centres *c,
                            wo_error *err);

/* The nearest centre of each of the points. */
wo_status woi_assign(const woi_kernels *kernels, const woi_centres *c, const woi_points *p, const woi_lloyd *l,
                     wo_error *err);

/* Each centre to the mean of its points: sums (k, r) is scratch. Those without a point stay; counts (k) says so. */
void woi_move_centres(const woi_points *p, const woi_centres *c, double *sums, uint32_t *counts);

#endif
