/* Opening the file of an index: see docs/FORMAT.md and save.c for what is in it.
 *
 * What a search relies on is always checked: shapes, the places that cells begin at, and their ids. These decide
 * addresses, so they are checked in memory of our own: the file may be written over while it is mapped, and what was
 * checked there would no longer be what is used. Whether the bytes are those that were written is a checksum's
 * business, and the caller's choice (wo_verify). Numbers are taken as they are: a row with NaN gets NaN for a logit,
 * which is never answered.
 *
 * Rows come first: m is then a number that the file, or the layer, has the bytes for, and everything that is allocated
 * is in proportion to them. */
#include "index/keep.h"
#include "index/metadata.h"

#include "base/error.h"
#include "base/progress.h"
#include "base/sized.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An index on its way. */
typedef struct opening {
    wo_index *index;
    wo_verify verify;
    const wo_progress *progress;
    uint64_t done, total; /* bytes verified */
} opening;

/* Compares a tensor that is going to be used with its checksum, where that was not done for the whole file. */
static wo_status verify_used(opening *o, const char *name, wo_error *err)
{
    const woi_tensor *tensor = woi_st_find(o->index->st, name);
    if (o->verify != WO_VERIFY_USED || !tensor) return WO_OK;
    wo_status status = woi_progress(o->progress, "verifying", o->done, o->total, err);
    if (!status) status = woi_st_verify_tensor(o->index->st, tensor, err);
    o->done += tensor->bytes;
    return status;
}

/* A tensor that is needed; columns 0: of one dimension. */
typedef struct wanted {
    const char *name;
    woi_dtype dtype;
    uint64_t rows, columns;
} wanted;

/* *data points into the file. */
static wo_status take(opening *o, wanted w, const void **data, wo_error *err)
{
    const woi_tensor *tensor = woi_st_find(o->index->st, w.name);
    if (!tensor) return woi_fail(err, WO_ERR_FORMAT, 8, "the index has no tensor '%s'", w.name);
    if (tensor->dtype != w.dtype)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' is of type %s, expected %s", w.name,
                        woi_dtype_name(tensor->dtype), woi_dtype_name(w.dtype));
    if (tensor->n_dims != (w.columns ? 2 : 1) || tensor->shape[0] != w.rows ||
        (w.columns && tensor->shape[1] != w.columns))
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset,
                        "'%s' is not of the expected shape (%" PRIu64 "%s%.0" PRIu64 ")", w.name, w.rows,
                        w.columns ? ", " : "", w.columns);
    if (tensor->bytes && (uintptr_t)tensor->data % 8)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' does not start on 8 bytes", w.name);
    *data = tensor->data;
    return verify_used(o, w.name, err);
}

/* The same in memory of our own, which nobody else writes. */
static wo_status take_copy(opening *o, wanted w, void **copy, wo_error *err)
{
    const void *data;
    const wo_status status = take(o, w, &data, err);
    if (status) return status;
    const size_t bytes = woi_dtype_bytes(w.dtype);
    if (!(*copy = woi_alloc(w.rows, bytes, err))) return WO_ERR_MEMORY;
    memcpy(*copy, data, w.rows * bytes);
    return WO_OK;
}

/* ---- Router and cells -------------------------------------------------------------------------------------- */

/* Where the leaves of each node begin. In the first files every node had as many places. */
static wo_status read_starts(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    woi_tree *tree = &index->tree;
    const size_t A = tree->A;
    const uint32_t even = index->options.leaves, *given = NULL;
    if (woi_st_find(index->st, "tree.starts")) {
        const void *data;
        const wo_status status = take(from, (wanted){"tree.starts", WOI_U32, A + 1, 0}, &data, err);
        if (status) return status;
        given = data;
    } else if (even % 16) {
        return woi_fail(err, WO_ERR_FORMAT, 8, "the tree has %" PRIu32 " leaves below a node, not a multiple of 16",
                        even);
    }
    if (!(tree->starts = woi_alloc(A + 1, sizeof *tree->starts, err))) return WO_ERR_MEMORY;
    for (size_t a = 0; a <= A; a++) tree->starts[a] = given ? given[a] : (uint32_t)a * even;
    return woi_tree_check_starts(tree, err);
}

static wo_status read_tree(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    const wo_build_options *o = &index->options;
    const size_t d = index->rows.d, r = o->route_d;
    if (!o->nodes || !o->leaves || !r || r > d || (r < d && r % 16) || d > WOI_MAX_I8)
        return woi_fail(err, WO_ERR_FORMAT, 8,
                        "the tree has %" PRIu32 " x %" PRIu32 " centres in %zu of %zu coordinates", o->nodes, o->leaves,
                        r, d);
    woi_tree *tree = &index->tree;
    *tree = (woi_tree){.d = d, .r = r, .A = (o->nodes + 15) / 16 * 16, .beam = o->beam};
    wo_status status = read_starts(from, err);
    if (status) return status;
    const uint64_t A = tree->A, cells = woi_tree_n_cells(tree), fours = woi_tree_fours(tree);
    const bool even = !woi_st_find(index->st, "tree.starts");
    const uint64_t rows = even ? A : cells, columns = even ? o->leaves : 0;
    const float *margin = NULL;
    const struct {
        wanted tensor;
        void *to;
    } parts[] = {
        {{"tree.basis", WOI_U8, (d + 3) / 4, 4 * r}, &tree->basis},
        {{"tree.basis_scales", WOI_F32, r, 0}, &tree->basis_scales},
        {{"tree.nodes", WOI_U8, fours, 4 * A}, &tree->nodes},
        {{"tree.node_scales", WOI_F32, A, 0}, &tree->node_scales},
        {{"tree.node_offsets", WOI_F32, A, 0}, &tree->node_offsets},
        {{"tree.leaves", WOI_U8, even ? A * fours : cells, 4 * (even ? o->leaves : fours)}, &tree->leaves},
        {{"tree.leaf_scales", WOI_F32, rows, columns}, &tree->leaf_scales},
        {{"tree.leaf_offsets", WOI_F32, rows, columns}, &tree->leaf_offsets},
        {{"tree.margin", WOI_F32, 1, 0}, &margin},
    };
    for (size_t i = r < d ? 0 : 2; i < sizeof parts / sizeof *parts; i++) {
        const void *data;
        if ((status = take(from, parts[i].tensor, &data, err))) return status;
        memcpy(parts[i].to, &data, sizeof data); /* never written: an index is immutable */
    }
    if (!isfinite(*margin) || *margin < 0)
        return woi_fail(err, WO_ERR_FORMAT, 8, "tree.margin is %g, expected at least 0", (double)*margin);
    tree->margin = *margin;
    return woi_tree_count_leaves(tree, err);
}

static wo_status read_screen(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    const size_t d = index->rows.d, panels = woi_screen_panels(index->rows.m);
    const void *rows, *scales;
    if (d > WOI_MAX_I8)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the index has int8 rows of %zu numbers: at most %d", d, WOI_MAX_I8);
    wo_status status =
        take(from, (wanted){"screen.rows", WOI_U8, panels * woi_screen_fours(d), 4 * WOI_I8_COLUMNS}, &rows, err);
    if (!status) status = take(from, (wanted){"screen.scales", WOI_F32, panels * WOI_I8_COLUMNS, 0}, &scales, err);
    if (!status)
        index->screen = (woi_screen){.m = index->rows.m, .d = d, .rows = (uint8_t *)rows, .scales = (float *)scales};
    return status;
}

static wo_status read_router(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    const wo_build_options *o = &index->options;
    if (o->method == WO_METHOD_SCREEN || woi_screens_little(o)) {
        const wo_status read = read_screen(from, err);
        if (read) return read;
    }
    if (woi_uses_tree(o)) return read_tree(from, err);
    if (!woi_uses_hash(o)) return WO_OK;
    woi_hash *hash = &index->hash;
    *hash = (woi_hash){.K = o->K, .L = o->L, .d = index->rows.d, .n_planes = ((size_t)o->K * o->L + 15) / 16 * 16};
    const void *planes, *offsets, *bias = NULL;
    wo_status status = take(from, (wanted){"router.planes", WOI_F32, hash->d, hash->n_planes}, &planes, err);
    if (!status) status = take(from, (wanted){"router.offsets", WOI_F32, hash->n_planes, 0}, &offsets, err);
    if (!status && o->method != WO_METHOD_EVIDENCE)
        status = take(from, (wanted){"router.bias", WOI_F32, hash->n_planes, 0}, &bias, err);
    if (status) return status;
    hash->planes = (float *)planes; /* never written: an index is immutable */
    hash->offsets = (float *)offsets;
    hash->bias_planes = (float *)bias;
    return WO_OK;
}

/* Whatever is verified: a search has room for every class once, and takes a lone cell as it is. */
static wo_status check_ids(const woi_cells *cells, size_t m, wo_error *err)
{
    uint8_t *seen = woi_alloc_zero(m / 8 + 1, 1, err);
    if (!seen) return WO_ERR_MEMORY;
    wo_status status = WO_OK;
    for (size_t c = 0; !status && c < cells->n; c++) {
        uint32_t i = cells->offsets[c];
        for (; !status && i < cells->offsets[c + 1]; i++) {
            const int32_t id = cells->ids[i];
            if (id < 0 || (size_t)id >= m)
                status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "cells.ids has class %" PRId32 " of %zu", id, m);
            else if (seen[id / 8] >> id % 8 & 1)
                status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "cells.ids has class %" PRId32 " twice in cell %zu",
                                  id, c);
            else
                seen[id / 8] |= (uint8_t)(1 << id % 8);
        }
        while (!status && i-- > cells->offsets[c]) seen[cells->ids[i] / 8] = 0;
    }
    woi_free(seen);
    return status;
}

static wo_status check_offsets(const woi_cells *cells, uint64_t n_ids, wo_error *err)
{
    for (size_t c = 0; c < cells->n; c++)
        if (cells->offsets[c + 1] < cells->offsets[c] || (c == 0 && cells->offsets[0] != 0))
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "cells.offsets falls or does not start at 0, at cell %zu",
                            c);
    if (cells->offsets[cells->n] == n_ids) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                    "cells.offsets ends at %" PRIu32 ", but there are %" PRIu64 " ids", cells->offsets[cells->n],
                    n_ids);
}

/* A share beyond what evidence can be would make scores that nothing explains: up to 2, a label that is a FULL's best.
 */
static wo_status check_shares(const woi_cells *cells, uint64_t n, wo_error *err)
{
    const uint16_t most = 0x4000; /* 2 */
    for (uint64_t i = 0; cells->shares && i < n; i++)
        if (cells->shares[i] > most)
            return woi_fail(err, WO_ERR_FORMAT, 8, "entry %" PRIu64 " of 'cells.shares' is not a number from 0 to 2",
                            i);
    return WO_OK;
}

static wo_status read_cells(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    if (index->options.method == WO_METHOD_FULL || index->options.method == WO_METHOD_SCREEN) return WO_OK;
    woi_cells *cells = &index->cells;
    const size_t n = index->hash.K   ? woi_hash_n_cells(&index->hash)
                     : index->tree.A ? woi_tree_n_cells(&index->tree)
                                     : 1;
    const woi_tensor *listed = woi_st_find(index->st, "cells.ids");
    const uint64_t n_ids = listed && listed->n_dims == 1 ? listed->n : 0;
    const bool evidence = index->options.method == WO_METHOD_EVIDENCE, shares = woi_has_shares(&index->options);
    const struct {
        wanted tensor;
        bool there;
        size_t to;
    } parts[] = {
        {{"cells.offsets", WOI_U32, n + 1, 0}, true, offsetof(woi_cells, offsets)},
        {{"cells.ids", WOI_I32, n_ids, 0}, true, offsetof(woi_cells, ids)},
        {{"cells.queries", WOI_U32, n, 0}, evidence, offsetof(woi_cells, queries)},
        {{"cells.shares", WOI_BF16, n_ids, 0}, shares, offsetof(woi_cells, shares)},
    };
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < sizeof parts / sizeof *parts; i++) {
        void *copy = NULL;
        if (parts[i].there) status = take_copy(from, parts[i].tensor, &copy, err);
        memcpy((char *)cells + parts[i].to, &copy, sizeof copy);
    }
    if (status) return status;
    cells->n = n;
    status = check_offsets(cells, n_ids, err);
    if (!status) status = check_shares(cells, n_ids, err);
    return status ? status : check_ids(cells, index->rows.m, err);
}

/* Numbers that are not finite would make every probability nothing. */
static wo_status read_partition(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    woi_partition *to = &index->partition;
    if (!index->options.partition) return WO_OK;
    const struct {
        wanted tensor;
        float **to;
    } parts[] = {
        {{"partition.coefficients", WOI_F32, WOI_LOG_Z_NUMBERS, 0}, &to->numbers},
        {{"partition.direction", WOI_F32, index->rows.d, 0}, &to->direction},
        {{"partition.cells", WOI_F32, index->cells.n, 0}, &to->of_cell},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const void *data;
        const wo_status status = take(from, parts[i].tensor, &data, err);
        if (status) return status;
        if (!woi_all_finite(data, parts[i].tensor.rows))
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "'%s' has a number that is not finite",
                            parts[i].tensor.name);
        *parts[i].to = (float *)data; /* never written: an index is immutable */
    }
    return WO_OK;
}

/* What classes are removed decides what is answered: a copy, in which they rise and lie in no cell. */
static wo_status read_removed(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    const woi_tensor *tensor = woi_st_find(index->st, "removed.ids");
    if (!tensor) return WO_OK;
    const uint64_t n = tensor->n_dims == 1 ? tensor->n : 0;
    void *copy = NULL;
    const wo_status status = take_copy(from, (wanted){"removed.ids", WOI_I32, n, 0}, &copy, err);
    index->removed = copy;
    if (status) return status;
    for (size_t i = 0; i < n; i++)
        if (index->removed[i] < 0 || (size_t)index->removed[i] >= index->rows.m ||
            (i && index->removed[i] <= index->removed[i - 1]))
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "removed.ids has class %" PRId32 " of %zu at place %zu",
                            index->removed[i], index->rows.m, i);
    index->n_removed = n;
    const woi_cells *cells = &index->cells;
    for (uint32_t i = 0; n && cells->n && i < cells->offsets[cells->n]; i++)
        if (woi_is_removed(index, cells->ids[i]))
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "cells.ids has class %" PRId32 ", which is removed",
                            cells->ids[i]);
    return WO_OK;
}

/* Numbers alone, which decide where an update files rows. */
static wo_status read_kept(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    const woi_tensor *bars = woi_st_find(index->st, "sample.bars");
    const uint64_t n = bars && bars->n_dims == 1 ? bars->n : 0;
    const size_t d = index->rows.d;
    const void *queries, *data;
    if (!bars || !index->options.keep) return WO_OK;
    if (n > index->options.keep)
        return woi_fail(err, WO_ERR_FORMAT, bars->offset, "the index keeps %" PRIu64 " queries, more than its %" PRIu32,
                        n, index->options.keep);
    wo_status status = take(from, (wanted){"sample.bars", WOI_F32, n, 0}, &data, err);
    if (!status) status = take(from, (wanted){"sample.queries", WOI_BF16, n, d}, &queries, err);
    if (status || !n) return status;
    index->kept = (woi_keep){n, (uint16_t *)queries, (float *)data}; /* never written: an index is immutable */
    return woi_keep_check(&index->kept, d, err);
}

/* ---- Rows -------------------------------------------------------------------------------------------------- */

static wo_status check_layer(const wo_index *index, const wo_layer *layer, wo_error *err)
{
    const bool no_rows = index->options.weights == WO_WEIGHTS_NONE;
    if (!layer && no_rows)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_INDEX, "layer",
                              "the index has no rows (it was built with weights none): the layer has them");
    if (!layer) return WO_OK;
    const wo_status status = woi_refuse_other_layer(index, layer, no_rows || woi_st_find(index->st, "bias"), err);
    if (status) return status;
    if (layer->dense.m != index->rows.m || layer->dense.d != index->rows.d)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the index says that its layer is %zu x %zu, but that is %zu x %zu",
                        index->rows.m, index->rows.d, layer->dense.m, layer->dense.d);
    const woi_shard *one = &layer->shard, *two = &index->shard;
    if (one->count != two->count || one->number != two->number ||
        (one->count && memcmp(one->classes, two->classes, index->rows.m * sizeof *one->classes) != 0))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "",
                              "the layer is not the shard that the index was built for");
    return WO_OK;
}

static wo_status read_int8(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    const size_t m = index->rows.m, d = index->rows.d;
    const void *rows, *scales;
    if (d > WOI_MAX_I8)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the index has int8 rows of %zu numbers: at most %d", d, WOI_MAX_I8);
    wo_status status = take(from, (wanted){"weight.int8", WOI_I8, m, d}, &rows, err);
    if (!status) status = take(from, (wanted){"weight.scales", WOI_F32, m, 0}, &scales, err);
    if (status) return status;
    index->small.i8 = (int8_t *)rows;
    index->small.scales = (float *)scales;
    return WO_OK;
}

/* A layer that is given has the f32 rows that the file lacks. */
static wo_status read_rows(opening *from, const wo_layer *layer, wo_error *err)
{
    wo_index *index = from->index;
    const wo_weights weights = index->options.weights;
    wo_status status = check_layer(index, layer, err);
    if (status) return status;
    const bool f32 = !woi_has_bf16(weights) && weights != WO_WEIGHTS_NONE;
    if (!f32 && layer) index->rows = layer->dense;
    if (weights == WO_WEIGHTS_NONE) return WO_OK;
    const size_t m = index->rows.m, d = index->rows.d;
    const void *data;
    if ((status = take(from, (wanted){"weight", f32 ? WOI_F32 : WOI_BF16, m, d}, &data, err))) return status;
    if (f32)
        index->rows.w = data;
    else
        index->small.bf16 = (uint16_t *)data;
    if (woi_has_int8(weights) && (status = read_int8(from, err))) return status;
    if (!woi_st_find(index->st, "bias")) return WO_OK;
    status = take(from, (wanted){"bias", WOI_F32, m, 0}, &data, err);
    if (!status) index->rows.b = data;
    return status;
}

/* ---- The rest ---------------------------------------------------------------------------------------------- */

/* A table of numbers, where there is one. It has at least `least` columns, fewer than `most` where an older version
 * wrote it; columns beyond `most` are a later version's and are left out: then *copy has the rest. */
typedef struct table {
    const char *name;
    size_t least, most; /* columns */
    double **values, **copy;
    size_t *n, columns; /* rows and columns that were found */
} table;

static wo_status read_table(const woi_st *st, table *t, wo_error *err)
{
    const woi_tensor *tensor = woi_st_find(st, t->name);
    if (!tensor) return WO_OK;
    if (tensor->dtype != WOI_F64 || tensor->n_dims != 2 || tensor->shape[1] < t->least)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' is no table of %zu columns of F64", t->name,
                        t->least);
    if (tensor->bytes && (uintptr_t)tensor->data % 8)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' does not start on 8 bytes", t->name);
    const size_t rows = tensor->shape[0], columns = tensor->shape[1];
    t->columns = columns < t->most ? columns : t->most;
    *t->values = (double *)tensor->data;
    *t->n = rows;
    if (columns == t->columns) return WO_OK;
    const size_t bytes = t->columns * sizeof **t->values;
    if (!(*t->copy = woi_alloc(rows, bytes, err))) return WO_ERR_MEMORY;
    for (size_t i = 0; i < rows; i++) memcpy(*t->copy + i * t->columns, *t->values + i * columns, bytes);
    *t->values = *t->copy;
    return WO_OK;
}

static wo_status read_tables(wo_index *index, wo_error *err)
{
    table trace = {.name = "trace",
                   .least = WOI_TRACE_FIRST_COLUMNS,
                   .most = WOI_TRACE_COLUMNS,
                   .values = &index->trace,
                   .copy = &index->trace_copy,
                   .n = &index->n_trace},
          curve = {.name = "curve",
                   .least = WOI_CURVE_FIRST_COLUMNS,
                   .most = WOI_CURVE_COLUMNS,
                   .values = &index->curve,
                   .copy = &index->curve_copy,
                   .n = &index->n_curve};
    const wo_status status = read_table(index->st, &trace, err);
    index->trace_columns = trace.columns;
    if (status) return status;
    const wo_status other = read_table(index->st, &curve, err);
    index->curve_columns = curve.columns;
    return other;
}

static wo_status read_names(opening *from, wo_error *err)
{
    wo_index *index = from->index;
    if (!woi_st_find(index->st, "names.labels.bytes")) return WO_OK;
    wo_status status = verify_used(from, "names.labels.bytes", err);
    if (!status) status = verify_used(from, "names.labels.indptr", err);
    if (!status) status = woi_names_load(index->st, "labels", &index->labels, err);
    if (!status && (size_t)index->labels.n != index->rows.m)
        status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the index has %" PRId32 " names for %zu classes",
                          index->labels.n, index->rows.m);
    return status;
}

static wo_status check_kind(const woi_st *st, wo_error *err)
{
    const char *kind = woi_st_kind(st);
    char quoted[WOI_QUOTE_BYTES];
    if (kind && strcmp(kind, "index") == 0) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the file is %s%s, not an index",
                    kind ? "of kind " : "a safetensors file of someone else",
                    kind ? woi_quote(quoted, kind, strlen(kind)) : "");
}

/* Takes the file over, on failure too. */
static wo_status read_index(woi_st *st, const wo_open_options *options, wo_index **index, wo_error *err)
{
    wo_index *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) {
        woi_st_free(st);
        return WO_ERR_MEMORY;
    }
    made->st = st;
    made->same_best = made->same_five = NAN;
    opening from = {.index = made, .verify = options->verify, .progress = &options->progress};
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) from.total += woi_st_tensor(st, i)->bytes;
    wo_status status = check_kind(st, err);
    if (!status && from.verify == WO_VERIFY_ALL) status = woi_st_verify(st, from.progress, err);
    if (!status) status = woi_meta_read(made, err);
    if (!status) status = verify_used(&from, "classes", err);
    if (!status) status = woi_shard_read(st, made->rows.m, &made->shard, err);
    if (!status) status = read_rows(&from, options->layer, err);
    if (!status) status = read_router(&from, err);
    if (!status) status = read_cells(&from, err);
    if (!status) status = woi_index_line_up_biases(made, err);
    if (!status) status = read_removed(&from, err);
    if (!status) status = read_partition(&from, err);
    if (!status) status = read_kept(&from, err);
    if (!status) status = read_tables(made, err);
    if (!status) status = read_names(&from, err);
    if (status) {
        wo_index_free(made);
        return status;
    }
    const char *digits = woi_st_meta(st, "xxh3.header");
    if (digits) made->checksum = strtoull(digits, NULL, 16);
    woi_index_count(made);
    *index = made;
    return WO_OK;
}

static wo_status take_options(const wo_open_options *given, wo_open_options *options, wo_error *err)
{
    *options = (wo_open_options){.struct_size = sizeof *options};
    wo_status status = woi_sized_take(options, sizeof *options, given, "open options", err);
    if (!status) status = woi_check_range("verify", options->verify, WO_VERIFY_ALL, WO_VERIFY_NONE, err);
    return status ? status : woi_check_range("reserved", options->reserved, 0, 0, err);
}

wo_status wo_index_open(const char *path, const wo_open_options *options, wo_index **index, wo_error *err)
{
    woi_st *st = NULL;
    wo_open_options o;
    *index = NULL;
    wo_status status = take_options(options, &o, err);
    if (status) return status;
    status = woi_st_open(path, &st, err);
    if (!status) status = read_index(st, &o, index, err);
    return status ? woi_about(err, WO_ABOUT_INDEX, status) : WO_OK;
}

wo_status wo_index_open_memory(const void *data, size_t bytes, const wo_open_options *options, wo_index **index,
                               wo_error *err)
{
    woi_st *st = NULL;
    wo_open_options o;
    *index = NULL;
    wo_status status = take_options(options, &o, err);
    if (status) return status;
    status = woi_st_open_memory(data, bytes, &st, err);
    if (!status) status = read_index(st, &o, index, err);
    return status ? woi_about(err, WO_ABOUT_INDEX, status) : WO_OK;
}
