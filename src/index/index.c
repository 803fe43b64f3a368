/* What is asked of an index, and what it is made of. */
#include "index/index.h"

#include "base/error.h"
#include "base/sized.h"
#include "index/keep.h"
#include "index/options.h"

#include <inttypes.h>
#include <math.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

const char *woi_method_name(wo_method method)
{
    static const char *const names[] = {"full", "popular", "slide", "lss", "evidence", "screen"};
    return (unsigned)method < WOI_N_METHODS ? names[method] : "unknown";
}

void woi_index_count(wo_index *index)
{
    const woi_cells *cells = &index->cells;
    index->n_empty = index->largest = 0;
    index->router_checksum = 0; /* it counts the cells' queries too */
    for (size_t c = 0; c < cells->n; c++) {
        const uint32_t size = cells->offsets[c + 1] - cells->offsets[c];
        index->n_empty += size == 0;
        if (size > index->largest) index->largest = size;
    }
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

wo_status woi_refuse_shard(const wo_index *index, const char *what, wo_error *err)
{
    if (!index->shard.count) return WO_OK;
    return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "shard", "the index is shard %u of %u: alone it %s",
                          index->shard.number + 1, index->shard.count, what);
}

wo_status woi_refuse_other_layer(const wo_index *index, const wo_layer *layer, bool biased, wo_error *err)
{
    const bool forgotten = biased && !layer->dense.b;
    if (layer->checksum == index->layer_checksum) return WO_OK;
    return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, forgotten ? "bias" : "",
                          "the layer is not the one that the index was built for: its checksum is %016" PRIx64
                          ", expected %016" PRIx64 "%s",
                          layer->checksum, index->layer_checksum,
                          forgotten ? "; it has no bias: was that left out?" : "");
}

void woi_partition_free(woi_partition *partition)
{
    woi_free(partition->numbers);
    woi_free(partition->direction);
    woi_free(partition->of_cell);
    *partition = (woi_partition){0};
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

/* Of all that sends queries to cells, and of how many queries these had. Threads that ask at once find the same. */
static uint64_t router_checksum(const wo_index *index)
{
    const uint64_t known = index->router_checksum;
    if (known) return known;
    woi_piece pieces[WOI_ROUTER_PIECES];
    const size_t n = woi_router_pieces(index, pieces);
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < n; i++)
        if (pieces[i].data) XXH3_64bits_update(&state, pieces[i].data, pieces[i].bytes);
    const uint64_t found = XXH3_64bits_digest(&state);
    ((wo_index *)index)->router_checksum = found;
    return found;
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
        .dealing = index->shard.dealing,
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
