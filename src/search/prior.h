/* Evidence as a prior. How often the training queries of a cell had a class for a label says something that the network
 * does not know:
 *
 *   score(y) = logit(y) + prior * log(1 + share(y) / WO_PRIOR_FLOOR)
 *   share(y) = sum over the opened cells c of weight(c) * share of c's queries that had the label y
 *
 * The weights sum to 1. All are equal, or, with a focus, in proportion to exp(focus * score of the leaf): a query near
 * the border of its leaf belongs to the next one nearly as much. A class that no opened cell holds gets nothing, so
 * that a class has one score, whoever computes it. */
#ifndef WOI_SEARCH_PRIOR_H
#define WOI_SEARCH_PRIOR_H

#include "search/searcher.h"

/* The cells that a query opens; scores: of a tree's, or NULL. */
typedef struct woi_opened {
    const uint32_t *cells;
    uint32_t n;
    const float *scores;
} woi_opened;

/* The classes of the cells, each once: w->ids, and in w->extra what the prior adds to their logits, first the shares
 * alone. Returns how many. */
size_t woi_prior_unite(const wo_index *index, woi_worker *w, woi_opened opened);
/* One more class, unless it is there. */
size_t woi_prior_add(woi_worker *w, int32_t id, size_t n);

#endif
