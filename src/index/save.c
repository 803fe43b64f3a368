/* Writing the file of an index: see docs/FORMAT.md.
 *
 *   router.planes (d, n_planes), router.offsets, router.bias       slide, lss, evidence with hyperplanes
 *   tree.basis (d / 4, 4 r), tree.basis_scales (r),                evidence with a tree
 *   tree.nodes (r / 4, 4 A),
 *   tree.node_scales, tree.node_offsets,
 *   tree.starts (A + 1), tree.leaves (cells, r),
 *   tree.leaf_scales, tree.leaf_offsets (cells), tree.margin (1)
 *                     where all nodes have as many places B: no tree.starts, and (A, B) in place of (cells)
 *   screen.rows (panels d / 4, 64), screen.scales (16 panels)      screen, and a fallback by it
 *   cells.offsets (cells + 1), cells.ids                           all but full and screen
 *   cells.queries (cells)                                          evidence
 *   cells.shares (as cells.ids)                                    evidence with a prior
 *   partition.coefficients (6), partition.direction (d),           built with a partition
 *   partition.cells (cells)
 *   sample.queries (n, d), sample.bars (n)                         popular and evidence, unless built with keep 0
 *   removed.ids                                                    where an update removed classes
 *   classes (m)                                                    a shard's: their numbers in the whole layer
 *   trace, curve (rows, columns)                                   where there are some
 *   names.labels.*                                                 where there are some
 *   weight (m, d), bias (m)                                        unless built with weights none
 *   weight.int8 (m, d), weight.scales (m)                          built with weights int8, beside weight in F32
 *
 * Every tensor is a row of one list, declared and then written in its order. Options are metadata (metadata.c). Nothing
 * of the machine goes in but the times that a tuner measured: no date, path, host or threads. */
#include "base/error.h"
#include "index/metadata.h"
#include "index/together.h"
#include "store/map.h"

#include <string.h>

/* ---- The tensors ------------------------------------------------------------------------------------------- */

typedef struct part {
    const char *name;
    woi_dtype dtype;
    uint64_t rows, columns; /* columns 0: of one dimension */
    const void *data;       /* NULL: the index does not have it */
} part;

enum { MAX_PARTS = 36 };

static size_t list_router(const wo_index *index, part *parts)
{
    const woi_hash *hash = &index->hash;
    const woi_tree *tree = &index->tree;
    const size_t fours = woi_tree_fours(tree), cells = woi_tree_n_cells(tree), even = woi_tree_even(index),
                 panels = woi_screen_panels(index->rows.m);
    const part all[] = {
        {"router.planes", WOI_F32, hash->d, hash->n_planes, hash->planes},
        {"router.offsets", WOI_F32, hash->n_planes, 0, hash->offsets},
        {"router.bias", WOI_F32, hash->n_planes, 0, hash->bias_planes},
        {"tree.basis", WOI_U8, (tree->d + 3) / 4, 4 * tree->r, tree->basis},
        {"tree.basis_scales", WOI_F32, tree->r, 0, tree->basis_scales},
        {"tree.nodes", WOI_U8, fours, 4 * (uint64_t)tree->A, tree->nodes},
        {"tree.node_scales", WOI_F32, tree->A, 0, tree->node_scales},
        {"tree.node_offsets", WOI_F32, tree->A, 0, tree->node_offsets},
        {"tree.starts", WOI_U32, (uint64_t)tree->A + 1, 0, even ? NULL : tree->starts},
        {"tree.leaves", WOI_U8, even ? tree->A * fours : cells, 4 * (even ? even : fours), tree->leaves},
        {"tree.leaf_scales", WOI_F32, even ? tree->A : cells, even, tree->leaf_scales},
        {"tree.leaf_offsets", WOI_F32, even ? tree->A : cells, even, tree->leaf_offsets},
        {"tree.margin", WOI_F32, 1, 0, tree->A ? &tree->margin : NULL},
        {"screen.rows", WOI_U8, panels * woi_screen_fours(index->rows.d), 4 * WOI_I8_COLUMNS, index->screen.rows},
        {"screen.scales", WOI_F32, panels * WOI_I8_COLUMNS, 0, index->screen.scales},
    };
    memcpy(parts, all, sizeof all);
    return sizeof all / sizeof *all;
}

static size_t list_cells(const wo_index *index, part *parts)
{
    const woi_cells *cells = &index->cells;
    const part all[] = {
        {"cells.offsets", WOI_U32, cells->n + 1, 0, cells->n ? cells->offsets : NULL},
        {"cells.ids", WOI_I32, cells->n ? cells->offsets[cells->n] : 0, 0, cells->n ? cells->ids : NULL},
        {"cells.queries", WOI_U32, cells->n, 0, cells->queries},
        {"cells.shares", WOI_BF16, cells->n ? cells->offsets[cells->n] : 0, 0, cells->shares},
        {"partition.coefficients", WOI_F32, WOI_LOG_Z_NUMBERS, 0, index->partition.numbers},
        {"partition.direction", WOI_F32, index->rows.d, 0, index->partition.direction},
        {"partition.cells", WOI_F32, cells->n, 0, index->partition.of_cell},
        {"sample.queries", WOI_BF16, index->kept.n, index->rows.d, index->kept.n ? index->kept.queries : NULL},
        {"sample.bars", WOI_F32, index->kept.n, 0, index->kept.n ? index->kept.bars : NULL},
        {"removed.ids", WOI_I32, index->n_removed, 0, index->n_removed ? index->removed : NULL},
        {"classes", WOI_I32, index->rows.m, 0, index->shard.count ? index->shard.classes : NULL},
        {"trace", WOI_F64, index->n_trace, index->trace_columns, index->n_trace ? index->trace : NULL},
        {"curve", WOI_F64, index->n_curve, index->curve_columns, index->n_curve ? index->curve : NULL},
    };
    memcpy(parts, all, sizeof all);
    return sizeof all / sizeof *all;
}

static size_t list_rows(const wo_index *index, part *parts)
{
    if (index->options.weights == WO_WEIGHTS_NONE) return 0;
    const woi_small *small = &index->small;
    const size_t m = index->rows.m, d = index->rows.d;
    const part all[] = {
        {"weight", small->bf16 ? WOI_BF16 : WOI_F32, m, d, small->bf16 ? (const void *)small->bf16 : index->rows.w},
        {"weight.int8", WOI_I8, m, d, small->i8},
        {"weight.scales", WOI_F32, m, 0, small->i8 ? small->scales : NULL},
        {"bias", WOI_F32, m, 0, index->rows.b},
    };
    memcpy(parts, all, sizeof all);
    return sizeof all / sizeof *all;
}

static wo_status declare(woi_st_writer *writer, const part *parts, size_t n, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < n; i++) {
        const part *p = &parts[i];
        const uint64_t shape[] = {p->rows, p->columns};
        if (p->data) status = woi_st_declare(writer, p->name, p->dtype, p->columns ? 2 : 1, shape, err);
    }
    return status;
}

static wo_status append(woi_st_writer *writer, const part *parts, size_t n, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < n; i++) {
        const part *p = &parts[i];
        const size_t bytes = p->rows * (p->columns ? p->columns : 1) * woi_dtype_bytes(p->dtype);
        if (p->data) status = woi_st_append(writer, p->data, bytes, err);
    }
    return status;
}

/* ---- The file ---------------------------------------------------------------------------------------------- */

static wo_status write_index(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    part own[MAX_PARTS], rows[4];
    size_t n = list_router(index, own);
    n += list_cells(index, own + n);
    const size_t n_rows = list_rows(index, rows);
    const bool named = index->labels.n > 0;
    wo_status status = woi_meta_write(writer, index, err);
    if (!status) status = declare(writer, own, n, err);
    if (!status && named) status = woi_names_declare(writer, "labels", &index->labels, err);
    if (!status) status = declare(writer, rows, n_rows, err);
    if (!status) status = append(writer, own, n, err);
    if (!status && named) status = woi_names_write(writer, &index->labels, err);
    return status ? status : append(writer, rows, n_rows, err);
}

/* Opens what was written, before it has a name: what we would refuse replaces nothing. */
static wo_status read_back(woi_st_writer *writer, wo_error *err)
{
    const void *data = NULL;
    size_t bytes = 0;
    wo_index *index = NULL;
    wo_status status = woi_st_read_back(writer, &data, &bytes, err);
    if (status) return status;
    status = wo_index_open_memory(data, bytes, NULL, &index, err);
    wo_index_free(index);
    woi_unmap(data, bytes);
    if (!status || status == WO_ERR_MEMORY) return status;
    if (!err) return status;
    err->about = WO_ABOUT_OUTPUT;
    woi_error_prefix(err, "the joined index could not be opened");
    return status;
}

wo_status woi_index_save_joined(const wo_index *index, const char *path, wo_error *err)
{
    woi_st_writer *writer = NULL;
    wo_status status = woi_st_create(path, "index", &writer, err);
    if (!status) status = write_index(writer, index, err);
    if (!status) status = read_back(writer, err);
    if (!status) status = woi_st_finish(writer, err);
    woi_st_writer_free(writer);
    return status;
}

wo_status wo_index_save_together(const wo_index *index, const char *path, const wo_collective *together, wo_error *err)
{
    woi_st_writer *writer = NULL;
    wo_collective copy;
    wo_status status = woi_together_take(&together, &copy, err);
    if (status) return status;
    status = woi_st_create(path, "index", &writer, err);
    if (!status) status = write_index(writer, index, err);
    if (!status) status = woi_st_sync(writer, err);
    status = woi_together_agree(together, status, err); /* every disk had room, */
    if (!status) status = woi_st_name(writer, err);
    status = woi_together_agree(together, status, err); /* and every folder lets a file be named */
    if (!status) status = woi_st_finish(writer, err);
    woi_st_writer_free(writer);
    return woi_together_agree(together, status, err); /* all have their names: the checkpoint may go */
}

wo_status wo_index_save(const wo_index *index, const char *path, wo_error *err)
{
    return wo_index_save_together(index, path, NULL, err);
}
