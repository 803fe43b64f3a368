/* The hash router: L tables of K hyperplanes; the signs of a table's K projections name one of its 2^K cells.
 *
 *   z[l K + k] = theta[l K + k] . q + offset[l K + k],   bit k of table l's code = z > 0
 *
 * In the paper's tables (slide, lss) a query is [q, 0] and the offsets are 0; a neuron [w, b] is hashed too, and
 * `bias_planes` is what its last coordinate meets. Learners that centre and scale their queries fold both into the
 * planes and offsets, so that nothing but one projection is left for a search.
 *
 *   planes  (d, n_planes) d-major: coordinate j of all planes side by side, zeros beyond K L; n_planes: K L rounded
 *           up to 16
 *   cells   are numbered l * 2^K + code over all tables */
#ifndef WOI_ROUTE_HASH_H
#define WOI_ROUTE_HASH_H

#include "kernels/kernels.h"
#include "route/routing.h"

#include <stdbool.h>

enum { WOI_MAX_BITS = 24, WOI_MAX_TABLES = 256, WOI_MAX_PROBES = 64 };

typedef struct woi_hash {
    uint32_t K, L;
    size_t d, n_planes;
    float *planes;      /* (d, n_planes) */
    float *offsets;     /* (n_planes) */
    float *bias_planes; /* (n_planes); NULL where neurons are not hashed */
} woi_hash;

/* Allocates, all zero. */
wo_status woi_hash_create(uint32_t K, uint32_t L, size_t d, bool with_neurons, woi_hash *hash, wo_error *err);
void woi_hash_free(woi_hash *hash); /* and zeroed again */

static inline size_t woi_hash_n_cells(const woi_hash *hash)
{
    return (size_t)hash->L << hash->K;
}

/* Floats of scratch that woi_hash_route needs for n queries. */
size_t woi_hash_scratch(const woi_hash *hash, size_t n);

/* The cells of n queries: `probes` (at most 2^K) in each table, a query's own first, then the likeliest beside it, by
 * the sum of the margins |z| of the planes that lie between: cells[(i L + l) probes + p]. n_cells[i] is L probes, or 0
 * when the query is not finite. */
void woi_hash_route(const woi_hash *hash, const woi_kernels *kernels, const woi_routing *asked);

/* m neurons [w, b]: w (m, d), b (m) or NULL, zeros. */
typedef struct woi_neurons {
    size_t m;
    const float *w, *b;
} woi_neurons;

/* The own cells of n queries, or of neurons: cells (n, L). The same for any number of threads. Queries that are not
 * finite get UINT32_MAX. */
wo_status woi_hash_queries(const woi_hash *hash, const float *q, size_t n, int threads, uint32_t *cells, wo_error *err);
wo_status woi_hash_neurons(const woi_hash *hash, const woi_neurons *neurons, int threads, uint32_t *cells,
                           wo_error *err);

/* For callers whose rows were finite when they were opened: refuses UINT32_MAX among n cells, which would be an
 * address. The rows are the log's queries (WO_ABOUT_LOG) or the layer's rows. */
wo_status woi_hash_check(const uint32_t *cells, size_t n, wo_about about, wo_error *err);

#endif
