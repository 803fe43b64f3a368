/* Reading kept queries, and routing them: see keep.h. */
#include "index/keep.h"

#include "base/bf16.h"
#include "base/error.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 4096, /* queries at a time, by hyperplanes */
    ROUTED = 32,  /* the same, by a tree */
};

void woi_keep_free(woi_keep *kept)
{
    woi_free(kept->queries);
    woi_free(kept->bars);
    *kept = (woi_keep){0};
}

static void read_floats(const uint16_t *from, size_t n, float *to)
{
    for (size_t i = 0; i < n; i++) to[i] = woi_bf16_to_f32(from[i]);
}

void woi_keep_read(const woi_keep *kept, size_t d, const uint32_t *at, size_t first, size_t n, float *q)
{
    for (size_t i = 0; i < n; i++) read_floats(kept->queries + (at ? at[i] : first + i) * d, d, q + i * d);
}

wo_status woi_keep_check(const woi_keep *kept, size_t d, wo_error *err)
{
    for (size_t i = 0; i < kept->n * d; i++)
        if (!isfinite(woi_bf16_to_f32(kept->queries[i])))
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                            "'sample.queries' has a number that is not finite, in "
                            "query %zu",
                            i / d);
    for (size_t i = 0; i < kept->n; i++)
        if (isnan(kept->bars[i]) || kept->bars[i] == INFINITY)
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "'sample.bars' has %g for query %zu",
                            (double)kept->bars[i], i);
    return WO_OK;
}

/* ---- Routing ----------------------------------------------------------------------------------------------- */

static wo_status route_tree(const wo_index *index, woi_keep_cells *cells, wo_error *err)
{
    const woi_tree *tree = &index->tree;
    const size_t d = index->rows.d, n = index->kept.n;
    const uint32_t each = cells->each;
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    float *q = woi_alloc(ROUTED * d, sizeof *q, err);
    void *scratch = woi_alloc_zero(1, woi_tree_scratch(tree, ROUTED, each), err);
    wo_status status = q && scratch ? WO_OK : WO_ERR_MEMORY;
    for (size_t first = 0; !status && first < n; first += ROUTED) {
        uint32_t found[ROUTED];
        const size_t count = n - first < ROUTED ? n - first : ROUTED;
        uint32_t *of = cells->of + first * each;
        woi_keep_read(&index->kept, d, NULL, first, count, q);
        woi_tree_route(tree, kernels,
                       &(woi_routing){.q = q,
                                      .n = count,
                                      .probes = each,
                                      .cells = of,
                                      .n_cells = found,
                                      .scratch = scratch,
                                      .margin = tree->margin});
        for (size_t i = 0; i < count; i++)
            for (uint32_t r = found[i]; r < each; r++) of[i * each + r] = UINT32_MAX;
    }
    woi_free(q);
    woi_free(scratch);
    return status;
}

static wo_status route_hash(const wo_index *index, int threads, woi_keep_cells *cells, wo_error *err)
{
    const size_t d = index->rows.d, n = index->kept.n;
    float *q = woi_alloc(CHUNK * d, sizeof *q, err);
    wo_status status = q ? WO_OK : WO_ERR_MEMORY;
    for (size_t first = 0; !status && first < n; first += CHUNK) {
        const size_t count = n - first < CHUNK ? n - first : CHUNK;
        woi_keep_read(&index->kept, d, NULL, first, count, q);
        status = woi_hash_queries(&index->hash, q, count, threads, cells->of + first * cells->each, err);
    }
    woi_free(q);
    return status;
}

wo_status woi_keep_route(const wo_index *index, int threads, woi_keep_cells *cells, wo_error *err)
{
    const size_t n = index->kept.n;
    cells->each = index->tree.A ? 1 + index->options.spread : index->hash.K ? index->hash.L : 1;
    if (!(cells->of = woi_alloc_zero(n * cells->each, sizeof *cells->of, err))) return WO_ERR_MEMORY;
    const wo_status status = index->tree.A   ? route_tree(index, cells, err)
                             : index->hash.K ? route_hash(index, threads, cells, err)
                                             : WO_OK; /* one cell */
    if (status) {
        woi_free(cells->of);
        cells->of = NULL;
    }
    return status;
}

wo_status woi_index_floats(const wo_index *index, woi_dense *rows, float **copy, wo_error *err)
{
    *rows = index->rows;
    *copy = NULL;
    if (rows->w) return WO_OK;
    const size_t n = rows->m * rows->d;
    if (!(*copy = woi_alloc(n, sizeof **copy, err))) return WO_ERR_MEMORY;
    read_floats(index->small.bf16, n, *copy);
    rows->w = *copy;
    return WO_OK;
}
