/* What the queries of a log needed: their labels, FULL's own top-k, or both. */
#include "build/build.h"
#include "build/findings.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/progress.h"

#include <stdlib.h>

enum { CHUNK = 4096 }; /* queries between two reports */

/* Appends the union of labels and top (both sorted) to the needs; both are small. A query whose logits overflow may
 * have fewer than k best: -1 stands for the others. */
static void merge(const int32_t *labels, size_t n_labels, const int32_t *top, size_t n_top, woi_sparse *needs,
                  int64_t *used)
{
    size_t i = 0, j = 0;
    while (j < n_top && top[j] < 0) j++;
    while (i < n_labels || j < n_top) {
        const bool from_labels = i < n_labels && (j == n_top || labels[i] <= top[j]);
        const int32_t id = from_labels ? labels[i] : top[j];
        float weight = 0;
        if (from_labels) weight += 1;
        while (i < n_labels && labels[i] == id) i++; /* a label given twice counts once */
        if (j < n_top && top[j] == id) {
            weight += 1;
            j++;
        }
        needs->ids[*used] = id;
        needs->weights[(*used)++] = weight;
    }
}

wo_status woi_needs_of(const woi_needs_call *asked, woi_sparse *needs, wo_error *err)
{
    const wo_log *log = asked->log;
    *needs = (woi_sparse){.n = log->n};
    const bool with_labels = asked->source & WO_SOURCE_LABELS && log->indptr, with_top = asked->source & WO_SOURCE_TOP;
    if (!with_labels && !with_top)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "source",
                              "the log has no labels, and nothing else was to be used: FULL's top-k can be the source");
    uint32_t k = with_top ? asked->k : 0;
    const size_t m = asked->shard ? woi_shard_whole(asked->shard, asked->rows->m) : asked->rows->m;
    if (k > m) k = (uint32_t)m;
    const size_t n_labels = with_labels ? (size_t)log->indptr[log->n] : 0, room = n_labels + log->n * k;
    size_t largest = 0;
    for (size_t i = 0; with_labels && i < log->n; i++) {
        const size_t own = (size_t)(log->indptr[i + 1] - log->indptr[i]);
        if (own > largest) largest = own;
    }
    wo_status status = WO_ERR_MEMORY;
    int32_t *top = woi_alloc(CHUNK * (size_t)k, sizeof *top, err), *own = woi_alloc(largest, sizeof *own, err);
    float *scores = woi_alloc(CHUNK * (size_t)k, sizeof *scores, err);
    needs->indptr = woi_alloc(log->n + 1, sizeof *needs->indptr, err);
    needs->ids = woi_alloc(room, sizeof *needs->ids, err);
    needs->weights = woi_alloc(room, sizeof *needs->weights, err);
    if (!top || !own || !scores || !needs->indptr || !needs->ids || !needs->weights) goto done;
    status = WO_OK;
    int64_t used = 0;
    needs->indptr[0] = 0;
    for (size_t first = 0; first < log->n; first += CHUNK) {
        const size_t n = log->n - first < CHUNK ? log->n - first : CHUNK;
        if ((status = woi_progress(asked->progress, "asking the exact layer", first, log->n, err))) goto done;
        const woi_exact_call call = {.layer = asked->rows,
                                     .q = log->queries + first * log->d,
                                     .n = n,
                                     .k = k,
                                     .threads = asked->threads,
                                     .ids = top,
                                     .scores = scores};
        const woi_shard *shard = asked->shard;
        if (with_top && (status = woi_exact_found(&call, shard, asked->together, asked->findings, err))) goto done;
        for (size_t i = 0; i < n; i++) {
            size_t n_own = 0;
            if (with_labels)
                for (int64_t at = log->indptr[first + i]; at < log->indptr[first + i + 1]; at++)
                    own[n_own++] = log->labels[at];
            woi_ids_sort(own, n_own);
            merge(own, n_own, top + i * k, k, needs, &used);
            needs->indptr[first + i + 1] = used;
        }
    }
done:
    if (status) woi_sparse_free(needs);
    woi_free(top);
    woi_free(own);
    woi_free(scores);
    return status;
}
