/* The `boost` learner: hash tables learned one after the other, each on what the tables before it miss.
 *
 * Table l finds the pair of query i and neuron y when the other queries of i's cell c have the evidence for it:
 *
 *   sum over the queries of c, less i, of weight(., y)  >=  lambda * max(number of those queries, thin)
 *
 * Less i, because a query always needs what it needs: with itself, every pair of a small cell is found. A cell with
 * fewer than `thin` queries borrows from its neighbours when it is filled; here they count as not needing y, so that
 * nothing is called found for what a neighbour might say.
 *
 * The first table is mix's. For each next one the weights of pairs that some table has found are multiplied by
 * WOI_BOOST_FOUND, then all of them scaled so that their sum stays: mix smooths its counts with a fixed mass. */
#ifndef WOI_INDEX_BOOST_H
#define WOI_INDEX_BOOST_H

#include "route/mix.h"

#define WOI_BOOST_FOUND 0.3 /* with 0.1 an index has yet more neurons, and no better answers */

typedef struct woi_boost_options {
    woi_mix_options mix;
    double lambda; /* of the fill to come */
    uint32_t thin;
} woi_boost_options;

/* Fills the planes and offsets of all tables of `hash`, as woi_mix_learn does; the same for any number of threads. */
wo_status woi_boost_learn(const float *q, const woi_sparse *needs, const woi_boost_options *options,
                          const wo_progress *progress, woi_hash *hash, wo_error *err);

/* ---- The parts, for tests ---------------------------------------------------------------------------------- */

/* Marks the pairs that table l finds, beside those that are marked: found[at] is that of needs->ids[at]. of (n, L):
 * cells of L tables of 2^K; UINT32_MAX: none. */
wo_status woi_boost_find(const woi_sparse *needs, const uint32_t *of, uint32_t K, uint32_t L, uint32_t l,
                         const woi_boost_options *options, bool *found, wo_error *err);

/* The weights that the next table learns from, one for each pair of `needs`. */
void woi_boost_weigh(const woi_sparse *needs, const bool *found, float *weights);

#endif
