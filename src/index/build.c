/* Building an index: the options are checked, then each method joins its router and its fill. */
#include "index/index.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/progress.h"
#include "base/sized.h"
#include "index/build_evidence.h"
#include "index/held.h"
#include "index/findings.h"
#include "index/keep.h"
#include "index/options.h"
#include "index/partition.h"
#include "index/together.h"

#include <inttypes.h>
#include <math.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

const char *woi_method_name(wo_method method)
{
    static const char *const names[] = {"full", "popular", "slide", "lss", "evidence", "screen"};
    return (unsigned)method < WOI_N_METHODS ? names[method] : "unknown";
}

/* ---- Checks ------------------------------------------------------------------------------------------------ */

/* Each option by itself, then what must hold among them. */
wo_status woi_build_check(const wo_build_options *o, wo_error *err)
{
    wo_status status = woi_options_check(o, err);
    if (!status) status = woi_check_range("threads", o->threads, 0, WOI_MAX_THREADS, err);
    if (status) return status;
    if (woi_uses_hash(o)) {
        if (o->probes > 1U << o->K)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "probes", "probes is %u, more than the %u cells of a table",
                                   o->probes, 1U << o->K);
        if ((uint64_t)o->L << o->K > (uint64_t)1 << 28)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "L", "%u tables of %u cells are too many: at most 2^28 in all",
                                   o->L, 1U << o->K);
    }
    if (o->method == WO_METHOD_LSS && o->last_step && o->max_neurons)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "max_neurons",
                               "max_neurons is %u, but the last step is kept whatever it has", o->max_neurons);
    if (o->method != WO_METHOD_EVIDENCE && o->fallback)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "fallback", "fallback is %u, but method %s counts no evidence",
                               o->fallback, woi_method_name(o->method));
    if (o->method != WO_METHOD_EVIDENCE && o->prior != 0)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "prior", "prior is %g, but method %s counts no evidence", o->prior,
                               woi_method_name(o->method));
    if ((o->method == WO_METHOD_FULL || o->method == WO_METHOD_SCREEN) &&
        (woi_has_bf16(o->weights) || woi_has_int8(o->weights))) {
        char word[WOI_OPTION_BYTES];
        woi_option_print(woi_option_find("weights"), o, word);
        return woi_fail_option(err, WO_ERR_ARGUMENT, "weights",
                               "weights is %s, but method %s answers with f32 rows: f32 or none", word,
                               woi_method_name(o->method));
    }
    if (o->mix < 0 && o->mix != -1 && woi_option_used(woi_option_find("mix"), o))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "mix", "mix is %g, expected 0 to %g, or -1: chosen", o->mix,
                               WOI_MOST_MIX);
    if (o->method != WO_METHOD_EVIDENCE && o->partition)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "partition", "partition is 1, but method %s learns no log Z",
                               woi_method_name(o->method));
    return WO_OK;
}

/* ---- Methods ----------------------------------------------------------------------------------------------- */

static wo_status build_popular(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    /* The most frequent labels; without labels, what the exact layer answers most often. */
    woi_sparse needs;
    wo_status status = woi_needs_of(&(woi_needs_call){.rows = &layer->dense,
                                                      .log = log,
                                                      .source = log->indptr ? WO_SOURCE_LABELS : WO_SOURCE_TOP,
                                                      .k = o->source_k,
                                                      .threads = o->threads,
                                                      .progress = &o->progress,
                                                      .shard = &layer->shard,
                                                      .together = o->together,
                                                      .findings = index->findings},
                                    &needs, err);
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

void woi_index_finish(wo_index *index)
{
    const woi_cells *cells = &index->cells;
    index->n_empty = index->largest = 0;
    for (size_t c = 0; c < cells->n; c++) {
        const uint32_t size = cells->offsets[c + 1] - cells->offsets[c];
        index->n_empty += size == 0;
        if (size > index->largest) index->largest = size;
    }
    index->options.threads = 0;
    index->options.progress = (wo_progress){0};
    index->options.together = NULL;
    index->options.held_out = 0;
    index->options.checkpoint = NULL;
    index->options.resume = 0;
}

wo_status woi_index_line_up_biases(wo_index *index, wo_error *err)
{
    woi_cells *cells = &index->cells;
    const float *b = index->rows.b;
    if (!b || !index->small.i8 || !cells->n) return WO_OK;
    const size_t n = cells->offsets[cells->n];
    if (!(cells->biases = woi_alloc(n, sizeof *cells->biases, err))) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) cells->biases[i] = b[cells->ids[i]];
    return WO_OK;
}

/* What rows in fewer bits change. */
static wo_status measure_small(wo_index *index, const wo_log *log, wo_error *err)
{
    enum { MOST = 2000, K = 5 };
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

wo_status woi_index_complete(wo_index *index, const wo_log *log, const woi_finishing *call, wo_error *err)
{
    wo_status status = WO_OK;
    if (index->options.partition) status = woi_partition_learn(index, log, call->progress, call->threads, err);
    if (!status) status = woi_keep_make(index, log, call, err);
    if (!status) status = woi_index_line_up_biases(index, err);
    return status ? status : measure_small(index, log, err);
}

wo_status woi_refuse_shard(const wo_index *index, const char *what, wo_error *err)
{
    if (!index->shard.count) return WO_OK;
    return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "shard", "the index is shard %u of %u: alone it %s",
                          index->shard.number + 1, index->shard.count, what);
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

/* Cells that were not filled by what queries needed know none of them: any will do. */
static wo_status judge_plainly(wo_index *index, const wo_log *log, const wo_build_options *o, wo_error *err)
{
    const bool cells = o->method != WO_METHOD_FULL && o->method != WO_METHOD_SCREEN;
    const size_t n = log && cells ? woi_held_size(index, log, o) : 0;
    size_t *picks = n ? woi_held_pick(index, log, n, WOI_HELD_STREAM, err) : NULL;
    if (n && !picks) return WO_ERR_MEMORY;
    const wo_status status = n ? woi_held_judge(index, log, picks, n, o->threads, err) : WO_OK;
    woi_free(picks);
    return status;
}

wo_status wo_index_build(const wo_layer *layer, const wo_log *log, const wo_build_options *given, wo_index **index,
                         wo_error *err)
{
    *index = NULL;
    wo_build_options taken;
    wo_status status = woi_build_take(given, &taken, err);
    if (status) return status;
    const wo_build_options *options = &taken;
    if (options->fallback_by == WO_FALLBACK_SCREEN && !options->fallback)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "fallback_by",
                               "fallback_by is screen, but fallback is 0: no query knows little");
    const bool needs_log =
        options->method != WO_METHOD_FULL && options->method != WO_METHOD_SLIDE && options->method != WO_METHOD_SCREEN;
    if (!log && needs_log)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                              "method %s is built from a log of queries, none was given",
                              woi_method_name(options->method));
    if ((status = check_shard(layer, options, err))) return status;
    if (log && (status = woi_log_check(log, woi_shard_whole(&layer->shard, layer->dense.m), layer->dense.d, err)))
        return woi_about(err, WO_ABOUT_LOG, status);
    if (needs_log && (status = woi_queries_check(log, err))) return woi_about(err, WO_ABOUT_LOG, status);
    wo_index *made = NULL;
    status = woi_index_begin(layer, options, &made, err);
    if (!status) status = woi_findings_open(made, log, &made->findings, err);
    if (!status) status = build_method(options->method, layer, log, made, err);
    if (!status) {
        woi_index_finish(made);
        if (options->method != WO_METHOD_EVIDENCE) status = judge_plainly(made, log, options, err);
        if (!status)
            status = woi_index_complete(made, log,
                                        &(woi_finishing){options->threads, &options->progress, options->together}, err);
    }
    if (made) woi_findings_free(made->findings);
    if (made) made->findings = NULL;
    if (status)
        wo_index_free(made);
    else
        *index = made;
    return status;
}

size_t woi_router_pieces(const wo_index *index, woi_piece pieces[WOI_ROUTER_PIECES])
{
    const woi_hash *hash = &index->hash;
    const woi_tree *tree = &index->tree;
    const size_t cells = woi_tree_n_cells(tree), bytes = 4 * woi_tree_fours(tree);
    const woi_piece all[WOI_ROUTER_PIECES] = {
        {tree->starts, ((size_t)tree->A + 1) * sizeof *tree->starts},
        {hash->planes, hash->d * hash->n_planes * sizeof(float)},
        {hash->offsets, hash->n_planes * sizeof(float)},
        {tree->basis, tree->r * ((tree->d + 3) / 4 * 4)},
        {tree->basis_scales, tree->r * sizeof(float)},
        {tree->nodes, tree->A * bytes},
        {tree->node_scales, tree->A * sizeof(float)},
        {tree->node_offsets, tree->A * sizeof(float)},
        {tree->leaves, cells * bytes},
        {tree->leaf_scales, cells * sizeof(float)},
        {tree->leaf_offsets, cells * sizeof(float)},
        {tree->A ? (void *)&tree->margin : NULL, sizeof tree->margin},
        {index->cells.queries, index->cells.n * sizeof *index->cells.queries},
    };
    memcpy(pieces, all, sizeof all);
    return WOI_ROUTER_PIECES;
}

/* Of all that sends queries to cells, and of how many queries these had. */
static uint64_t router_checksum(const wo_index *index)
{
    woi_piece pieces[WOI_ROUTER_PIECES];
    const size_t n = woi_router_pieces(index, pieces);
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < n; i++)
        if (pieces[i].data) XXH3_64bits_update(&state, pieces[i].data, pieces[i].bytes);
    return XXH3_64bits_digest(&state);
}

wo_status wo_index_describe(const wo_index *index, wo_index_info *info)
{
    const woi_cells *cells = &index->cells;
    const size_t planes = index->hash.n_planes * (index->hash.d + 1 + (index->hash.bias_planes != NULL));
    wo_index_info about = {
        .method = index->options.method,
        .method_name = woi_method_name(index->options.method),
        .m = index->rows.m,
        .d = index->rows.d,
        .n_cells = cells->n,
        .n_entries = cells->n ? cells->offsets[cells->n] : 0,
        .n_empty = index->n_empty,
        .largest = index->largest,
        .has_names = index->labels.n > 0,
        .full_from = index->full.from,
        .full_to = index->full.to,
        .same_best = index->same_best,
        .same_five = index->same_five,
        .log_z_error = index->partition.numbers ? (double)index->partition.numbers[WOI_LOG_Z_ERROR] : NAN,
        .log_z_bias = index->partition.numbers ? (double)index->partition.numbers[WOI_LOG_Z_BIAS] : NAN,
        .checksum = index->checksum,
        .layer_checksum = index->layer_checksum,
        .n_kept = index->kept.n,
        .n_removed = index->n_removed,
        .shard = index->shard.number,
        .n_shards = index->shard.count,
        .m_whole = woi_shard_whole(&index->shard, index->rows.m),
        .router_checksum = router_checksum(index),
        .held_n = index->held.n,
        .held_same_best = index->held.n ? index->held.same_best : NAN,
        .held_p_at_1 = index->held.n ? index->held.p_at_1 : NAN,
        .held_full_p_at_1 = index->held.n ? index->held.full_p_at_1 : NAN,
    };
    const woi_tree *tree = &index->tree;
    const size_t centres = tree->A + woi_tree_n_cells(tree);
    about.index_bytes = sizeof(float) * planes + centres * (4 * woi_tree_fours(tree) + 2 * sizeof(float));
    if (tree->starts) about.index_bytes += sizeof *tree->starts * (tree->A + 1);
    if (tree->basis) about.index_bytes += tree->r * ((tree->d + 3) / 4 * 4 + sizeof(float));
    if (cells->n) about.index_bytes += sizeof *cells->offsets * (cells->n + 1) + sizeof *cells->ids * about.n_entries;
    if (cells->queries) about.index_bytes += sizeof *cells->queries * cells->n;
    if (index->screen.rows)
        about.index_bytes += woi_screen_panels(index->rows.m) * WOI_I8_COLUMNS *
                             (4 * woi_screen_fours(index->rows.d) + sizeof *index->screen.scales);
    if (cells->shares) about.index_bytes += sizeof *cells->shares * about.n_entries;
    if (index->partition.of_cell) about.index_bytes += sizeof(float) * (cells->n + index->rows.d);
    return woi_sized_give(info, &about, sizeof about);
}

wo_status wo_index_options(const wo_index *index, wo_build_options *options)
{
    return woi_sized_give(options, &index->options, sizeof index->options);
}

size_t wo_index_m(const wo_index *index)
{
    return index->rows.m;
}

size_t wo_index_d(const wo_index *index)
{
    return index->rows.d;
}

const char *wo_index_label(const wo_index *index, int32_t id, size_t *name_bytes)
{
    const int32_t row = woi_shard_row(&index->shard, index->rows.m, id);
    if (row < 0 || row >= index->labels.n) return NULL;
    *name_bytes = woi_names_bytes(&index->labels, row);
    return woi_names_get(&index->labels, row);
}

const char *const woi_trace_names[WOI_TRACE_COLUMNS] = {
    "step",        "loss",         "cp_positive", "cp_negative",   "sample_size",    "label_recall",
    "empty_cells", "largest_cell", "entropy",     "judged_recall", "judged_neurons", "kept"};

int wo_index_trace(const wo_index *index, wo_trace *trace)
{
    if (!index->n_trace) return 0;
    const wo_trace found = {sizeof found, index->n_trace, index->trace_columns, index->trace, woi_trace_names};
    return woi_sized_give(trace, &found, sizeof found) == WO_OK;
}

void wo_index_free(wo_index *index)
{
    if (!index) return;
    woi_cells_free(&index->cells); /* also those of a file are copies */
    if (index->base) {             /* all else is its base's */
        woi_free(index);
        return;
    }
    if (index->st) { /* all else lies in the mapped file */
        woi_free(index->tree.n_leaves);
        woi_free(index->tree.starts);
        woi_free(index->trace_copy);
        woi_free(index->curve_copy);
    } else {
        woi_hash_free(&index->hash);
        woi_tree_free(&index->tree);
        woi_partition_free(&index->partition);
        woi_keep_free(&index->kept);
        woi_free(index->own_w);
        woi_free(index->own_b);
        woi_free(index->trace);
        woi_free(index->curve);
        woi_small_free(&index->small);
        woi_screen_free(&index->screen);
    }
    woi_free(index->removed);
    woi_names_free(&index->labels);
    woi_shard_free(&index->shard);
    woi_st_free(index->st);
    woi_free(index);
}
