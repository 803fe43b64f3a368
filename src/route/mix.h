/* The `mix` learner: hyperplanes whose cells tell the classes that queries need apart.
 *
 * A table's K planes give soft bits sigma(s z_k), whose product is a posterior p(c|q) over its 2^K cells. Each cell has
 * a distribution over classes, M[c,y], re-estimated now and then from soft counts N[c,y] with Dirichlet smoothing
 * towards the global frequencies g:
 *
 *   M[c,y] = (N[c,y] + a g[y]) / (N[c] + a)
 *
 * The planes climb sum over pairs (q, y) of weight * log sum_c p(c|q) M[c,y], by Adam. With the responsibilities
 * r_c = p(c|q) M[c,y] / sum, the derivative by z_k is s (sum of r_c over the cells with bit k, less sigma(s z_k)).
 *
 * M is never a dense (m, 2^K) array: N is a sparse list of cells for each class, the rest is the background; and of
 * p(c|q) only the cells above a small bound are looked at. */
#ifndef WOI_ROUTE_MIX_H
#define WOI_ROUTE_MIX_H

#include "base/sparse.h"
#include "route/hash.h"

typedef struct woi_mix_options {
    uint32_t steps, batch; /* steps of the learner: 0 leaves the planes random; queries a step */
    double rate;
    size_t max_queries; /* to learn from: a seeded sample where there are more */
    uint64_t seed;
    int threads;
    const wo_collective *together; /* processes that learn the same tables, each some of them; NULL: one does */
} woi_mix_options;

/* Fills the planes and offsets of all tables of `hash`: queries q (n, d), and what each needed. The same for any number
 * of threads. */
wo_status woi_mix_learn(const float *q, const woi_sparse *needs, const woi_mix_options *options,
                        const wo_progress *progress, woi_hash *hash, wo_error *err);

/* ---- The parts, for tests ---------------------------------------------------------------------------------- */

/* The sample: centred and scaled queries, and their pairs with classes renumbered 0 .. n_ids-1. */
typedef struct woi_mix_sample {
    size_t n, d, n_ids;
    float *x;           /* (n, d) */
    float *mean, scale; /* x = (q - mean) * scale */
    woi_sparse rows;    /* by query */
    woi_sparse columns; /* by class: ids are queries */
    float *share;       /* (n_ids): g */
} woi_mix_sample;

/* Of the options, max_queries and seed. */
wo_status woi_mix_sample_make(const float *q, size_t d, const woi_sparse *needs, const woi_mix_options *options,
                              woi_mix_sample *sample, wo_error *err);
void woi_mix_sample_free(woi_mix_sample *sample);

/* One table. theta (d, width) d-major and c (width) one after the other; width: K rounded up to 16. */
typedef struct woi_mix_table {
    uint32_t K;
    size_t d, width;
    float *theta;        /* (d + 1, width): the last row is c */
    float *inverse;      /* (2^K): 1 / (N[c] + a) */
    int64_t *start;      /* (n_ids): where a class's list of cells starts; it has `count` */
    uint32_t *count;     /* (n_ids) */
    uint32_t *cell;      /* ascending within a list */
    float *mass;         /* N[c,y] */
    size_t room;         /* of cell and mass */
    uint32_t *soft_cell; /* (n, 64): the cells of a query above 1/64 */
    float *soft_p;
    uint32_t *soft_n; /* (n) */
} woi_mix_table;

wo_status woi_mix_table_create(const woi_mix_sample *sample, uint32_t K, uint64_t seed, uint64_t stream,
                               woi_mix_table *table, wo_error *err);
void woi_mix_table_free(woi_mix_table *table);

/* Re-estimates N. */
wo_status woi_mix_estimate(const woi_mix_sample *sample, woi_mix_table *table, int threads, wo_error *err);

/* Queries of the sample that a gradient is of. */
typedef struct woi_mix_batch {
    const size_t *picks; /* (n) */
    size_t n;
    int threads; /* 1 or more */
} woi_mix_batch;

/* The objective of the batch, divided by its weight, and its gradient (d + 1, width). */
wo_status woi_mix_gradient(const woi_mix_sample *sample, const woi_mix_table *table, const woi_mix_batch *batch,
                           double *objective, float *gradient, wo_error *err);

#endif
