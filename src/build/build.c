/* Building an index: each method joins its router and its fill. */
#include "build/build.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/progress.h"
#include "base/sized.h"
#include "build/build_evidence.h"
#include "build/findings.h"
#include "build/held.h"
#include "build/keep_make.h"
#include "build/partition_learn.h"
#include "index/options.h"
#include "index/together.h"

#include <math.h>

/* ---- Methods ----------------------------------------------------------------------------------------------- */

static wo_status build_popular(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    /* The most frequent labels; without labels, what the exact layer answers most often. */
    woi_sparse needs;
    const wo_source source = log->indptr ? WO_SOURCE_LABELS : WO_SOURCE_TOP;
    wo_status status = woi_needs_by(index, layer, log, source, &needs, err);
    if (status) return status;
    const size_t m = layer->dense.m;
    status = woi_fill_popular(&needs, woi_shard_whole(&layer->shard, m), o->n_popular, &index->cells, err);
    if (!status) woi_shard_cells(&layer->shard, m, &index->cells);
    woi_sparse_free(&needs);
    return status;
}

static wo_status build_method(wo_method method, const wo_layer *layer, const wo_log *log, wo_index *index,
                              wo_error *err)
{
    switch (method) {
    case WO_METHOD_FULL: return WO_OK;
    case WO_METHOD_POPULAR: return build_popular(layer, log, index, err);
    case WO_METHOD_SLIDE: return woi_build_slide(layer, index, err);
    case WO_METHOD_LSS: return woi_build_lss(layer, log, index, err);
    case WO_METHOD_EVIDENCE: return woi_build_evidence(layer, log, index, err);
    case WO_METHOD_SCREEN: return woi_screen_make(&layer->dense, index->options.threads, &index->screen, err);
    }
    return WO_OK;
}

/* ---- Putting an index together ----------------------------------------------------------------------------- */

wo_status woi_index_begin(const wo_layer *layer, const wo_build_options *options, wo_index **index, wo_error *err)
{
    wo_index *made = *index = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    made->options = *options;
    made->rows = layer->dense;
    made->layer_checksum = layer->checksum;
    made->shard = layer->shard;
    made->shard.owned = NULL; /* borrowed, as the rows are */
    made->same_best = made->same_five = NAN;
    const wo_status status = woi_names_copy(&layer->labels, &made->labels, err);
    return status ? status : woi_small_make(&made->rows, options->weights, options->threads, &made->small, err);
}

void woi_index_forget_call(wo_index *index)
{
    wo_build_options *o = &index->options;
    o->threads = 0;
    o->progress = (wo_progress){0};
    o->together = NULL;
    o->held_out = 0;
    o->checkpoint = NULL;
    o->resume = 0;
}

/* What rows in fewer bits change. */
static wo_status measure_small(wo_index *index, const wo_log *log, wo_error *err)
{
    enum { MOST = 2000, K = 5 };
    if (index->options.method == WO_METHOD_SCREEN) return WO_OK; /* judge_plainly did */
    index->same_best = index->same_five = NAN;
    if ((!index->small.bf16 && !index->small.i8) || !index->rows.w || !log || !log->n || index->shard.count)
        return WO_OK;
    wo_index own = *index, plain = *index; /* tables alone, and the same with f32 rows */
    own.full = plain.full = (woi_batches){0};
    plain.small = (woi_small){0};
    const wo_index *both[] = {&own, &plain};
    wo_searcher *searchers[2] = {NULL, NULL};
    wo_status status = WO_OK;
    for (int i = 0; !status && i < 2; i++) status = wo_searcher_create(both[i], NULL, &searchers[i], err);
    const size_t n = log->n < MOST ? log->n : MOST;
    size_t best = 0, five = 0, all = 0;
    for (size_t i = 0; !status && i < n; i++) {
        int32_t ids[2][K], sorted[K];
        float scores[K];
        for (int side = 0; !status && side < 2; side++)
            status = wo_search(searchers[side], log->queries + log->n * i / n * log->d, 1, K, ids[side], scores, err);
        if (status) break;
        best += ids[0][0] == ids[1][0];
        const woi_agreement a = woi_agree(ids[0], ids[1], K, sorted);
        five += a.common;
        all += a.all;
    }
    if (!status) index->same_best = (double)best / (double)n;
    if (!status && all) index->same_five = (double)five / (double)all;
    for (int i = 0; i < 2; i++) wo_searcher_free(searchers[i]);
    return status;
}

wo_status woi_index_complete(wo_index *index, const wo_log *log, wo_error *err)
{
    wo_status status = WO_OK;
    if (index->options.partition) status = woi_partition_learn(index, log, err);
    if (!status) status = woi_keep_make(index, log, err);
    if (!status) status = woi_index_line_up_biases(index, err);
    return status ? status : measure_small(index, log, err);
}

/* Whether a layer that is a shard, or is none, can be built from by these processes. */
static wo_status check_shard(const wo_layer *layer, const wo_build_options *o, wo_error *err)
{
    const woi_shard *shard = &layer->shard;
    const unsigned size = o->together ? (unsigned)o->together->size : 1,
                   rank = o->together ? (unsigned)o->together->rank : 0;
    if (shard->count <= 1 && size == 1) return WO_OK;
    if (shard->count != size || shard->number != rank)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "",
                              "the layer is shard %u of %u, but this is process %u of %u that build together",
                              shard->count ? shard->number + 1 : 1, shard->count ? shard->count : 1, rank + 1, size);
    if (o->method == WO_METHOD_LSS)
        return woi_fail_option(err, WO_ERR_UNSUPPORTED, "method", "method lss is not built of shards");
    if (o->partition)
        return woi_fail_option(err, WO_ERR_UNSUPPORTED, "partition",
                               "partition is 1, but log Z is not learned by several processes");
    return WO_OK;
}

/* P@1 on queries of the log. Cells that no query filled, and a screen, are judged by any of them; an evidence index
 * leaves its judges out of its cells, as it is built. */
static wo_status judge_plainly(wo_index *index, const wo_log *log, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const bool here = o->method != WO_METHOD_FULL && o->method != WO_METHOD_EVIDENCE;
    const size_t n = log && here ? woi_held_size(index, log, o) : 0;
    size_t *picks = n ? woi_held_pick(index, log, n, WOI_HELD_STREAM, err) : NULL;
    if (n && !picks) return WO_ERR_MEMORY;
    const wo_status status = n ? woi_held_judge(index, log, picks, n, o->threads, err) : WO_OK;
    woi_free(picks);
    return status;
}

/* Whether an index can be built of this layer and this log. */
static wo_status check_inputs(const wo_layer *layer, const wo_log *log, const wo_build_options *o, wo_error *err)
{
    const bool needs_log = o->method != WO_METHOD_FULL && o->method != WO_METHOD_SLIDE && o->method != WO_METHOD_SCREEN;
    if (!log && needs_log)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                              "method %s is built from a log of queries, none was given", woi_method_name(o->method));
    wo_status status = woi_route_d_check(o, layer->dense.d, err);
    if (!status) status = check_shard(layer, o, err);
    if (!status) status = woi_together_whole(o->together, &layer->shard, layer->dense.m, err);
    if (status) return status;
    if (log) status = woi_log_check(log, woi_shard_whole(&layer->shard, layer->dense.m), layer->dense.d, err);
    if (!status && needs_log) status = woi_queries_check(log, err);
    return woi_about(err, WO_ABOUT_LOG, status);
}

wo_status woi_index_make(const wo_layer *layer, const wo_log *log, const wo_build_options *options, wo_index **index,
                         wo_error *err)
{
    *index = NULL;
    wo_status status = check_inputs(layer, log, options, err);
    if (!status) status = woi_index_begin(layer, options, index, err);
    if (!status) status = woi_findings_open(*index, log, &(*index)->findings, err);
    if (!status) status = build_method(options->method, layer, log, *index, err);
    if (!status) woi_index_count(*index);
    return status;
}

wo_status wo_index_build(const wo_layer *layer, const wo_log *log, const wo_build_options *given, wo_index **index,
                         wo_error *err)
{
    wo_index *made = NULL;
    wo_build_options o;
    wo_collective together;
    wo_status status = woi_build_take(given, &o, err);
    if (!status) status = woi_together_take(&o.together, &together, err);
    if (!status && o.fallback_by == WO_FALLBACK_SCREEN && !o.fallback)
        status = woi_fail_option(err, WO_ERR_ARGUMENT, "fallback_by",
                                 "fallback_by is screen, but fallback is 0: no query knows little");
    if (!status) status = woi_index_make(layer, log, &o, &made, err);
    if (!status) status = judge_plainly(made, log, err);
    if (!status) status = woi_index_complete(made, log, err);
    if (made) woi_findings_free(made->findings);
    if (made) made->findings = NULL;
    if (!status)
        woi_index_forget_call(made);
    else
        wo_index_free(made);
    *index = status ? NULL : made;
    return status;
}
