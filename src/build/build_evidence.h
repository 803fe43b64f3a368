/* Building an evidence index in stages, so that a tuner can keep what a change leaves alone:
 *
 *   needs (layer, log, source)  ->  router and the cells of the log's queries  ->  fill (lambda)
 *
 * The options are those of the index. */
#ifndef WOI_BUILD_BUILD_EVIDENCE_H
#define WOI_BUILD_BUILD_EVIDENCE_H

#include "build/rows.h"

/* Where the log's queries lie. */
typedef struct woi_routed {
    uint32_t each;         /* cells of a query: L, or of a tree 1 + spread */
    uint32_t *of;          /* (n, each): their own cells; of a tree the nearest leaves */
    uint32_t *near;        /* of a tree: the neighbours of each cell; NULL */
    woi_expected expected; /* where the log says that queries of a row's class are; d = 0: rows have no part */
    woi_placed placed;     /* where the layer's rows lie */
} woi_routed;

void woi_routed_free(woi_routed *routed); /* and zeroed again */

enum { WOI_MOST_FILED = 16 }; /* leaves that a query is filed in: 1 + the most that spread may be */

/* A query filed in several leaves of a tree counts 1 / sqrt(r) in the r-th nearest, whatever the distances, so that no
 * scale must be known: parts (WOI_MOST_FILED), from the nearest on. */
void woi_evidence_parts(float *parts);

/* Whether a tree can work in so many coordinates of a layer's d: what the options alone do not say. Nothing below asks
 * again. */
wo_status woi_route_d_check(const wo_build_options *o, size_t d, wo_error *err);

/* What the log's queries needed, by the options of an index that is being built of the layer, but for the source. */
wo_status woi_needs_by(const wo_index *index, const wo_layer *layer, const wo_log *log, wo_source source,
                       woi_sparse *needs, wo_error *err);

/* Learns index->hash or index->tree. */
wo_status woi_evidence_route(const wo_log *log, const woi_sparse *needs, wo_index *index, woi_routed *routed,
                             wo_error *err);

/* Of a tree that was learned: with this beam, these probes and this spread, which decide only where queries go. */
wo_status woi_evidence_set_reach(const wo_log *log, const wo_build_options *to, wo_index *index, woi_routed *routed,
                                 wo_error *err);

/* Fills index->cells, in place of what they held, by what the log's queries needed. Shares, where they are kept, are of
 * labels alone, where these are known: FULL's best say nothing that the network does not. */
typedef struct woi_evidence {
    const woi_sparse *needs, *labels; /* by the source; of labels: needs where the source has none, or has them alone */
} woi_evidence;

/* Whether labels are not the needs by the source. */
static inline bool woi_labels_are_apart(const wo_build_options *o, const wo_log *log)
{
    return o->source == WO_SOURCE_BOTH && log->indptr && (woi_has_shares(o) || woi_lacks_mix(o));
}

wo_status woi_evidence_fill(woi_evidence by, const woi_routed *routed, wo_index *index, wo_error *err);

/* Where probabilities are to be a mixture that is left to choose: by queries of the log that cells are not filled by
 * meanwhile. Then index->options.mix is chosen; the cells are to be filled again. */
wo_status woi_evidence_choose_mix(const wo_log *log, woi_evidence by, woi_routed *routed, wo_index *index,
                                  wo_error *err);

/* All of it. */
wo_status woi_build_evidence(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err);

#endif
