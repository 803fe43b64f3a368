/* What the queries of a log needed: their labels, FULL's own top-k, or both. */
#include "build/build.h"
#include "build/findings.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/progress.h"

#include <stdlib.h>

enum { CHUNK = 4096 }; /* queries between two reports */

/* A label of a query, or of the queries that a row of a counted log stands for. */
typedef struct own_label {
    int32_t id, times;
} own_label;

/* By id; of one that is given twice, which counts once, the more frequent first. */
static int by_id(const void *a, const void *b)
{
    const own_label *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->times < y->times) - (x->times > y->times);
}

static size_t take_labels(const wo_log *log, size_t row, own_label *own)
{
    size_t n = 0;
    for (int64_t at = log->indptr[row]; at < log->indptr[row + 1]; at++)
        own[n++] = (own_label){log->labels[at], log->counts ? log->label_counts[at] : 1};
    if (n > 1) qsort(own, n, sizeof *own, by_id);
    return n;
}

/* What the queries of a row have for labels, and what FULL says of each; both by id. */
typedef struct needed {
    const own_label *labels;
    const int32_t *top;
    size_t n_labels, n_top;
    float times; /* how many queries they are */
} needed;

/* Appends the union of both to the needs; both are small. A query whose logits overflow may have fewer than k best: -1
 * stands for the others. */
static void merge(const needed *row, woi_sparse *needs, int64_t *used)
{
    const own_label *labels = row->labels;
    size_t i = 0, j = 0;
    while (j < row->n_top && row->top[j] < 0) j++;
    while (i < row->n_labels || j < row->n_top) {
        const bool from_labels = i < row->n_labels && (j == row->n_top || labels[i].id <= row->top[j]);
        const int32_t id = from_labels ? labels[i].id : row->top[j];
        float weight = 0;
        if (from_labels) weight += (float)labels[i].times;
        while (i < row->n_labels && labels[i].id == id) i++;
        if (j < row->n_top && row->top[j] == id) {
            weight += row->times;
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
    int32_t *top = woi_alloc(CHUNK * (size_t)k, sizeof *top, err);
    own_label *own = woi_alloc(largest, sizeof *own, err);
    float *scores = woi_alloc(CHUNK * (size_t)k, sizeof *scores, err);
    needs->indptr = woi_alloc(log->n + 1, sizeof *needs->indptr, err);
    needs->ids = woi_alloc(room, sizeof *needs->ids, err);
    needs->weights = woi_alloc(room, sizeof *needs->weights, err);
    if (!top || !own || !scores || !needs->indptr || !needs->ids || !needs->weights) goto done;
    if (log->counts && !(needs->times = woi_alloc(log->n, sizeof *needs->times, err))) goto done;
    for (size_t i = 0; log->counts && i < log->n; i++) needs->times[i] = (float)log->counts[i];
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
            const needed row = {.labels = own,
                                .n_labels = with_labels ? take_labels(log, first + i, own) : 0,
                                .top = top + i * k,
                                .n_top = k,
                                .times = needs->times ? needs->times[first + i] : 1};
            merge(&row, needs, &used);
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
