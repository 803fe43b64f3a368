/* What lies in the cells: class ids by cell, all tables in one array.
 *
 *   offsets  [0, 3, 3, 7 ...]   cell c holds ids[offsets[c] .. offsets[c+1])
 *   ids      ascending within a cell */
#ifndef WOI_FILL_CELLS_H
#define WOI_FILL_CELLS_H

#include "base/sparse.h"

#include <stdbool.h>

typedef struct woi_cells {
    size_t n;          /* cells, over all tables */
    uint32_t *offsets; /* n + 1 */
    int32_t *ids;      /* offsets[n] */
    uint32_t *queries; /* n: training queries that each had of its own; NULL but for evidence */
    uint16_t *shares;  /* offsets[n], bf16: how often the class was a label of the cell's queries; NULL: not kept */
    float *biases;     /* offsets[n]: those of the classes, side by side; NULL: they are to be had by class alone */
} woi_cells;

void woi_cells_free(woi_cells *cells); /* and zeroed again */

/* by_hash.c: items 0 .. n-1, item i in cells of[i * L + l], l < L: every item goes into its L cells. */
wo_status woi_fill_by_hash(const uint32_t *of, size_t n, uint32_t L, size_t n_cells, woi_cells *cells, wo_error *err);

/* popular.c: one cell of the N ids that `needs` names most often; ties to the lower id. */
wo_status woi_fill_popular(const woi_sparse *needs, size_t m, size_t N, woi_cells *cells, wo_error *err);

/* evidence.c: cell c with the queries Q(c) holds class j when the sum over i in Q(c) of part(i, c) * weight(i, j) >=
 * lambda * the sum of part(i, c). A query's part is 1, unless it is filed in several cells of a tree. */
typedef struct woi_evidence_options {
    uint32_t K, L; /* L tables of 2^K cells, whose neighbours differ by a bit; K = 0: see n_cells */
    double lambda;
    uint32_t thin;               /* cells with fewer queries are pooled with their neighbours, nearest first */
    uint32_t floor;              /* no cell holds fewer classes than this: the best ones by evidence */
    uint32_t cap;                /* nor more than this; 0: any number */
    bool shares;                 /* are kept */
    const woi_sparse *shares_of; /* what they are counted by; NULL: needs */
    int threads;
    const wo_progress *progress; /* NULL: nobody asks */
    size_t n_cells;              /* K = 0: so many cells, of which a query has L, */
    const uint32_t *near; /* and whose neighbours are these (n_cells, n_near), nearest first, UINT32_MAX: no more */
    uint32_t n_near;
    const float *parts; /* (L): how much of a query the first, second, ... of its cells gets; NULL: all 1 */
} woi_evidence_options;

/* A class, and how much the queries of a cell needed it. */
typedef struct woi_need {
    float evidence;
    int32_t id;
} woi_need;

/* Which of n classes a cell with so many queries holds, by lambda, floor and cap: ids (n), ascending. Returns how many.
 * The needs are reordered. */
size_t woi_evidence_choose(woi_need *needs, size_t n, double n_queries, const woi_evidence_options *rule, int32_t *ids);

/* of (n, L): the cell of each query in each table; UINT32_MAX: none. */
wo_status woi_fill_evidence(const woi_sparse *needs, const uint32_t *of, const woi_evidence_options *options, size_t m,
                            woi_cells *cells, wo_error *err);

#endif
