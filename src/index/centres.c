/* Asking the exact layer at the centres of cells: see centres.h. */
#include "index/centres.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "index/findings.h"

#include <string.h>

enum { AT_ONCE = 1024 }; /* centres between two reports */

void woi_centres_free(woi_centres *centres)
{
    woi_free(centres->ids);
    *centres = (woi_centres){0};
}

/* The cells that have queries, and the means of these. */
typedef struct means {
    double *sums;    /* (n_cells, d) */
    float *of_cells; /* (n_cells, d), of which n are used */
    uint32_t *cells; /* whose they are */
    size_t n;
} means;

static void find_means(const wo_log *log, const uint32_t *of, uint32_t each, size_t n_cells, means *found)
{
    const size_t d = log->d;
    uint32_t *counts = found->cells; /* until a cell has its place, which is at or before its own */
    memset(found->sums, 0, n_cells * d * sizeof *found->sums);
    memset(counts, 0, n_cells * sizeof *counts);
    for (size_t i = 0; i < log->n; i++) {
        const uint32_t c = of[i * each];
        if (c == UINT32_MAX) continue;
        counts[c]++;
        for (size_t j = 0; j < d; j++) found->sums[c * d + j] += (double)log->queries[i * d + j];
    }
    for (size_t c = 0; c < n_cells; c++) {
        const uint32_t count = counts[c];
        if (!count) continue;
        float *mean = found->of_cells + found->n * d;
        for (size_t j = 0; j < d; j++) mean[j] = (float)(found->sums[c * d + j] / count);
        found->cells[found->n++] = (uint32_t)c;
    }
}

wo_status woi_centres_ask(const wo_index *index, const wo_log *log, const uint32_t *of, uint32_t each,
                          woi_centres *centres, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const size_t n_cells = woi_tree_n_cells(&index->tree), d = log->d;
    const size_t m = woi_shard_whole(&index->shard, index->rows.m);
    const uint32_t k = o->centre_k < m ? o->centre_k : (uint32_t)m;
    woi_centres_free(centres);
    if (!k) return WO_OK;
    wo_status status = WO_ERR_MEMORY;
    means found = {woi_alloc(n_cells, d * sizeof *found.sums, err), woi_alloc(n_cells, d * sizeof *found.of_cells, err),
                   woi_alloc(n_cells, sizeof *found.cells, err), 0};
    float *scores = woi_alloc(AT_ONCE, k * sizeof *scores, err);
    int32_t *best = woi_alloc(AT_ONCE, k * sizeof *best, err);
    *centres = (woi_centres){k, woi_alloc(n_cells, k * sizeof *centres->ids, err)};
    if (!found.sums || !found.of_cells || !found.cells || !scores || !best || !centres->ids) goto done;
    status = WO_OK;
    memset(centres->ids, 0xff, n_cells * k * sizeof *centres->ids); /* -1 */
    find_means(log, of, each, n_cells, &found);
    for (size_t first = 0; !status && first < found.n; first += AT_ONCE) {
        const woi_exact_call call = {.layer = &index->rows,
                                     .q = found.of_cells + first * d,
                                     .n = found.n - first < AT_ONCE ? found.n - first : AT_ONCE,
                                     .k = k,
                                     .threads = o->threads,
                                     .ids = best,
                                     .scores = scores};
        status = woi_progress(&o->progress, "asking the exact layer", first, found.n, err);
        if (!status) status = woi_exact_found(&call, &index->shard, o->together, index->findings, err);
        for (size_t i = 0; !status && i < call.n; i++) {
            int32_t *own = centres->ids + (size_t)found.cells[first + i] * k;
            memcpy(own, best + i * k, k * sizeof *own);
        }
    }
done:
    woi_free(found.sums);
    woi_free(found.of_cells);
    woi_free(found.cells);
    woi_free(scores);
    woi_free(best);
    if (status) woi_centres_free(centres);
    return status;
}

/* Ascending ids, and their shares or NULL. */
typedef struct list {
    int32_t *ids;
    uint16_t *shares;
    size_t n;
} list;

/* Appends the union of a cell's own classes and of those at its centre. */
static void unite(list own, const int32_t *best, size_t n_best, list *to)
{
    size_t i = 0, j = 0;
    while (j < n_best && best[j] < 0) j++;
    while (i < own.n || j < n_best) {
        const bool mine = i < own.n && (j == n_best || own.ids[i] <= best[j]);
        const int32_t id = mine ? own.ids[i] : best[j];
        if (to->shares) to->shares[to->n] = mine ? own.shares[i] : 0;
        to->ids[to->n++] = id;
        if (j < n_best && best[j] == id) j++;
        if (mine) i++;
    }
}

wo_status woi_centres_join(const woi_centres *centres, woi_cells *cells, wo_error *err)
{
    const uint32_t k = centres->k;
    const uint64_t room = (uint64_t)cells->offsets[cells->n] + (uint64_t)cells->n * k;
    if (room > UINT32_MAX)
        return woi_fail_option(err, WO_ERR_UNSUPPORTED, "centre_k",
                               "centre_k is %u, which makes up to %llu classes in %zu cells: at most %u are possible",
                               k, (unsigned long long)room, cells->n, UINT32_MAX);
    uint32_t *offsets = woi_alloc(cells->n + 1, sizeof *offsets, err);
    list all = {woi_alloc(room, sizeof *all.ids, err), cells->shares ? woi_alloc(room, sizeof *all.shares, err) : NULL,
                0};
    if (!offsets || !all.ids || (cells->shares && !all.shares)) {
        woi_free(offsets);
        woi_free(all.ids);
        woi_free(all.shares);
        return WO_ERR_MEMORY;
    }
    for (size_t c = 0; c < cells->n; c++) {
        const size_t first = cells->offsets[c];
        const list own = {cells->ids + first, cells->shares ? cells->shares + first : NULL,
                          cells->offsets[c + 1] - first};
        offsets[c] = (uint32_t)all.n;
        unite(own, centres->ids + c * k, k, &all);
    }
    offsets[cells->n] = (uint32_t)all.n;
    woi_free(cells->offsets);
    woi_free(cells->ids);
    woi_free(cells->shares);
    cells->offsets = offsets;
    cells->ids = all.ids;
    cells->shares = all.shares;
    return WO_OK;
}
