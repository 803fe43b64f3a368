/* Keeping training queries: see index/keep.h. */
#include "build/keep_make.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "build/findings.h"
#include "index/options.h"
#include "index/together.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 4096,             /* queries that FULL is asked at a time */
    STREAM_KEPT = 0x6b657074, /* of the seed */
};

static bool fits(const float *q, size_t d)
{
    for (size_t j = 0; j < d; j++)
        if (!isfinite(q[j]) || !woi_fits_bf16(q[j])) return false;
    return true;
}

/* Draws: one of each of as many equal parts of the log as are kept. Those that bf16 cannot have are left out. */
static void draw(const wo_index *index, const wo_log *log, size_t most, woi_keep *kept)
{
    const size_t d = log->d, total = log->n;
    for (size_t i = 0; i < most; i++) {
        const size_t low = woi_part_start(i, most, total), high = woi_part_start(i + 1, most, total);
        const float *q =
            log->queries + (low + (size_t)woi_rng_below(index->options.seed, STREAM_KEPT, i, high - low)) * d;
        if (!fits(q, d)) continue;
        for (size_t j = 0; j < d; j++) kept->queries[kept->n * d + j] = woi_f32_to_bf16(q[j]);
        kept->n++;
    }
}

wo_status woi_keep_make(wo_index *index, const wo_log *log, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const size_t d = index->rows.d, m = woi_shard_whole(&index->shard, index->rows.m),
                 k = o->source_k < m ? o->source_k : m;
    woi_keep_free(&index->kept);
    if (!log || !o->keep || !woi_option_used(woi_option_find("keep"), o)) return WO_OK;
    const size_t most = o->keep < log->n ? o->keep : log->n;
    woi_keep kept = {0};
    wo_status status = WO_ERR_MEMORY;
    const size_t chunk = most < CHUNK ? most : CHUNK;
    float *q = woi_alloc(chunk * d, sizeof *q, err), *scores = woi_alloc(chunk * k, sizeof *scores, err);
    int32_t *ids = woi_alloc(chunk * k, sizeof *ids, err);
    kept.queries = woi_alloc(most, d * sizeof *kept.queries, err);
    kept.bars = woi_alloc(most, sizeof *kept.bars, err);
    if (!q || !scores || !ids || !kept.queries || !kept.bars) goto done;
    status = WO_OK;
    draw(index, log, most, &kept);
    for (size_t first = 0; !status && first < kept.n; first += CHUNK) {
        const size_t n = kept.n - first < CHUNK ? kept.n - first : CHUNK;
        if ((status = woi_progress(&o->progress, "keeping queries", first, kept.n, err))) break;
        woi_keep_read(&kept, d, NULL, first, n, q);
        const woi_piece result = {kept.bars + first, n * sizeof *kept.bars};
        bool known = false;
        if ((status = woi_findings_recall(index->findings, &result, 1, &known, err)) || known) continue;
        status = woi_exact_of_all(
            &(woi_exact_call){
                .layer = &index->rows, .q = q, .n = n, .k = k, .threads = o->threads, .ids = ids, .scores = scores},
            &index->shard, o->together, err);
        for (size_t i = 0; !status && i < n; i++)
            kept.bars[first + i] = k < o->source_k ? -INFINITY : woi_keep_bar(ids + i * k, scores + i * k, k);
        if (!status) status = woi_findings_keep(index->findings, &result, 1, err);
    }
    /* A query whose logits overflow says nothing. */
    size_t n = 0;
    for (size_t i = 0; !status && i < kept.n; i++) {
        if (isnan(kept.bars[i]) || kept.bars[i] == INFINITY) continue;
        memmove(kept.queries + n * d, kept.queries + i * d, d * sizeof *kept.queries);
        kept.bars[n++] = kept.bars[i];
    }
    kept.n = n;
done:
    if (status)
        woi_keep_free(&kept);
    else
        index->kept = kept;
    woi_free(q);
    woi_free(scores);
    woi_free(ids);
    return status;
}
