/* An index beside FULL on queries that were held out: see held.h. */
#include "build/held.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum {
    PART = 20,                   /* of the log that may be held out: cells without it are hardly other cells */
    FEWEST = WO_HELD_FEW / PART, /* queries: of fewer a share says nothing */
    SCREENED = 5 /* answers that a screen is asked for: int8 loses the fifth best long before the best */
};
static const double WORK = 1e11; /* multiplications that FULL may take */

size_t woi_held_size(const wo_index *index, const wo_log *log, const wo_build_options *o)
{
    if (index->shard.count || o->together) return 0;
    const bool learned = o->method != WO_METHOD_SCREEN; /* a screen of no query */
    const size_t spared = learned ? log->n / PART : log->n, asked = o->held_out < spared ? o->held_out : spared;
    const double bearable = WORK / ((double)index->rows.m * (double)index->rows.d);
    const size_t n = bearable < (double)asked ? (size_t)bearable : asked;
    return n >= FEWEST ? n : 0;
}

size_t *woi_held_pick(const wo_index *index, const wo_log *log, size_t n, uint64_t stream, wo_error *err)
{
    size_t *picks = woi_alloc(n, sizeof *picks, err);
    for (size_t i = 0; picks && i < n; i++) {
        const size_t low = woi_part_start(i, n, log->n), high = woi_part_start(i + 1, n, log->n);
        picks[i] = low + (size_t)woi_rng_below(index->options.seed, stream, i, high - low);
    }
    return picks;
}

/* ids: (2 n, k), the index's and then FULL's; scratch: as many as a query has labels. */
static woi_held count(const wo_log *log, const size_t *picks, size_t n, size_t k, const int32_t *ids, int32_t *scratch)
{
    const int32_t *own = ids, *full = ids + n * k;
    size_t same = 0, labelled = 0, hits = 0, full_hits = 0;
    for (size_t i = 0; i < n; i++, own += k, full += k) {
        same += *own == *full;
        const size_t n_labels = log->indptr ? woi_labels_of(log->indptr, log->labels, picks[i], scratch) : 0;
        labelled += n_labels > 0;
        hits += woi_hits(scratch, n_labels, own, 1);
        full_hits += woi_hits(scratch, n_labels, full, 1);
    }
    return (woi_held){n, (double)same / (double)n, labelled ? (double)hits / (double)labelled : NAN,
                      labelled ? (double)full_hits / (double)labelled : NAN};
}

/* Of FULL's k best answers to n queries, the share that a screen has. */
static double share_of(size_t n, size_t k, const int32_t *ids)
{
    int32_t sorted[SCREENED];
    size_t common = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        const woi_agreement a = woi_agree(ids + i * k, ids + (n + i) * k, k, sorted);
        common += a.common;
        all += a.all;
    }
    return all ? (double)common / (double)all : NAN;
}

wo_status woi_held_judge(wo_index *index, const wo_log *log, const size_t *picks, size_t n, int threads, wo_error *err)
{
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = threads};
    const bool screen = index->options.method == WO_METHOD_SCREEN;
    const size_t d = log->d, m = index->rows.m, k = !screen ? 1 : m < SCREENED ? m : SCREENED;
    wo_searcher *searcher = NULL;
    float *q = woi_alloc(n * d, sizeof *q, err);
    int32_t *ids = woi_alloc(2 * n, k * sizeof *ids, err);
    float *scores = woi_alloc(n, k * sizeof *scores, err);
    int32_t *labels = woi_alloc(woi_most_labels(log->indptr, log->n), sizeof *labels, err);
    wo_status status = q && ids && scores && labels ? wo_searcher_create(index, &so, &searcher, err) : WO_ERR_MEMORY;
    for (size_t i = 0; !status && i < n; i++) memcpy(q + i * d, log->queries + picks[i] * d, d * sizeof *q);
    wo_search_call call = {
        .struct_size = sizeof call, .queries = q, .n = n, .k = k, .ids = ids, .scores = scores, .by = WO_BY_CELLS};
    if (!status) status = wo_search_run(searcher, &call, err);
    call.ids = ids + n * k;
    call.by = WO_BY_FULL;
    call.no_prior = 1;
    if (!status) status = wo_search_run(searcher, &call, err);
    if (!status) index->held = count(log, picks, n, k, ids, labels);
    if (!status && screen) index->same_five = share_of(n, k, ids);
    if (!status && screen && !isnan(index->same_five)) index->same_best = index->held.same_best;
    wo_searcher_free(searcher);
    woi_free(q);
    woi_free(ids);
    woi_free(scores);
    woi_free(labels);
    return status;
}
