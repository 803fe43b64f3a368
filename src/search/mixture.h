/* Probabilities that know what the cells have seen. The network's own, mixed with the shares that classes have among
 * the labels of the opened cells' training queries:
 *
 *   p(y) = (1 - mix * mass) * exp(logit(y) - log Z) + mix * share(y)
 *   mass = sum over y of share(y), at most 1
 *
 * share(y) is that of prior.h: a mean over the opened cells. Where queries have several labels shares sum to more than
 * 1, and are divided by their sum. A class that no opened cell holds keeps (1 - mix * mass) of the network's
 * probability, so that all m sum to 1 as they did, whatever a cap left out.
 *
 * One number for all queries. On WikiText-2 it gains 0.7% to 0.8% of perplexity. Weights that grow with the evidence, n
 * / (n + kappa), gained another 0.02% to 0.07%, and shares less an absolute discount lost up to 0.1% or gained up to
 * 0.15%: neither is worth what it adds (docs/EXPERIMENTS.md). */
#ifndef WOI_SEARCH_MIXTURE_H
#define WOI_SEARCH_MIXTURE_H

#include "search/partition.h"

/* In place of n candidates' logits the logarithms of their probabilities; their shares are used up. Returns
 * log(1 - mix * mass), which all other classes have beside logit - log Z. */
double woi_mixture_apply(const wo_searcher *searcher, woi_log_sum log_z, float *shares, float *logits, size_t n);

/* What a search tells of the labels of its queries: query i has labels[starts[i] .. starts[i + 1]). */
typedef struct woi_labels_seen {
    const size_t *starts;  /* (queries + 1) */
    const int32_t *labels; /* NULL: nothing is to be seen */
    float *shares, *mass;  /* beside labels: the label's share, and the mass of its query */
} woi_labels_seen;

/* Query i, whose union, of n classes, is in the worker. */
void woi_mixture_see(const woi_labels_seen *seen, size_t i, const woi_worker *w, size_t n);

#endif
