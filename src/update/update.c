/* Classes come, change and go: wo_index_update.
 *
 * The new index has memory of its own for everything, so that it outlives the old one and its file. Router, log Z and
 * the records of learning and tuning are copied as they are; cells and kept queries are update_cells.c's. */
#include "update/update.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/sized.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- What is asked for ------------------------------------------------------------------------------------- */

static wo_status check_rows(const wo_index *index, const wo_layer *rows, const char *option, wo_error *err)
{
    if (rows && rows->shard.count > 1)
        return woi_fail_option(err, WO_ERR_ARGUMENT, option,
                               "the rows are shard %" PRIu32 " of %" PRIu32
                               " of a layer, whose classes have numbers there: expected rows that are no shard",
                               rows->shard.number + 1, rows->shard.count);
    if (!rows || rows->dense.d == index->rows.d) return WO_OK;
    return woi_fail_option(err, WO_ERR_ARGUMENT, option, "the rows have %zu numbers each, those of the index %zu",
                           rows->dense.d, index->rows.d);
}

/* Element i of a tensor of whole numbers. */
static int64_t whole_number(const woi_tensor *t, size_t i)
{
    int32_t small;
    int64_t large;
    if (t->dtype == WOI_I32) {
        memcpy(&small, (const char *)t->data + i * sizeof small, sizeof small);
        return small;
    }
    memcpy(&large, (const char *)t->data + i * sizeof large, sizeof large);
    return large;
}

/* The classes that rows belong to, as the file that the rows are mapped from says. */
static wo_status ids_of_file(const wo_layer *rows, int32_t **ids, wo_error *err)
{
    const size_t n = rows->dense.m;
    const woi_tensor *t = rows->st ? woi_st_find(rows->st, "ids") : NULL;
    if (!rows->st)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "replace_ids",
                               "the ids of %zu classes are at NULL, and the rows are of no safetensors file, which "
                               "could say them",
                               n);
    if (!t || t->n_dims != 1 || (t->dtype != WOI_I32 && t->dtype != WOI_I64) || t->n != n)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "",
                              "%s: rows that replace others come with 'ids' (%zu) in I32 or I64, their classes",
                              t ? "its 'ids' are something else" : "has no tensor 'ids'", n);
    if (!(*ids = woi_alloc(n, sizeof **ids, err))) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const int64_t id = whole_number(t, i);
        if (id < 0 || id > INT32_MAX)
            return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "",
                                  "'ids' has %" PRId64 " at place %zu, which is no class", id, i);
        (*ids)[i] = (int32_t)id;
    }
    return WO_OK;
}

/* Marks classes as what they become. One may be removed twice, but not replaced twice, nor both. */
static wo_status mark(const wo_index *index, const int32_t *ids, size_t n, uint8_t fate, uint8_t *fates, wo_error *err)
{
    const char *option = fate == WOI_GOES ? "remove" : "replace_ids";
    if (n && !ids) return woi_fail_option(err, WO_ERR_ARGUMENT, option, "the ids of %zu classes are at NULL", n);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= index->rows.m)
            return woi_fail_option(err, WO_ERR_ARGUMENT, option, "class %" PRId32 " is not one of the %zu classes",
                                   ids[i], index->rows.m);
        if (woi_is_removed(index, ids[i]))
            return woi_fail_option(err, WO_ERR_ARGUMENT, option, "class %" PRId32 " was removed before", ids[i]);
        if (fate == WOI_GOES && fates[ids[i]] == WOI_GOES) continue;
        if (fates[ids[i]] != WOI_STAYS)
            return woi_fail_option(err, WO_ERR_ARGUMENT, option, "class %" PRId32 " is named twice", ids[i]);
        fates[ids[i]] = fate;
    }
    return WO_OK;
}

static wo_status take(const wo_index *index, const wo_update_options *given, wo_update_options *o, wo_error *err)
{
    *o = (wo_update_options){.struct_size = sizeof *o};
    wo_status status = woi_sized_take(o, sizeof *o, given, "update options", err);
    if (!status) status = woi_check_range("threads", o->threads, 0, WOI_MAX_THREADS, err);
    if (!status) status = woi_check_range("reserved", o->reserved, 0, 0, err);
    if (!status) status = woi_refuse_shard(index, "is not updated", err);
    if (!status) status = check_rows(index, o->add, "add", err);
    if (!status) status = check_rows(index, o->replace, "replace", err);
    if (status) return status;
    const size_t added = o->add ? o->add->dense.m : 0;
    if (added > (size_t)INT32_MAX - index->rows.m)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "add", "%zu classes and %zu more are too many: at most %d",
                               index->rows.m, added, INT32_MAX);
    if (o->add && o->add->labels.n && !index->labels.n)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "add", "the new classes have names, but those of the index none");
    if (!o->add && !o->replace) return WO_OK;
    const bool by_kept = index->options.method == WO_METHOD_EVIDENCE || index->options.method == WO_METHOD_POPULAR;
    if (by_kept && !index->kept.n)
        return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "keep",
                              "the index keeps no training queries, which say what cells rows belong into: it was "
                              "built with keep 0, or by an older version");
    return WO_OK;
}

/* ---- What is copied as it is ------------------------------------------------------------------------------- */

/* In place of *data a copy of it, or NULL. */
static wo_status copy(void *data, size_t bytes, wo_error *err)
{
    void *from, *made;
    memcpy(&from, data, sizeof from);
    if (!from) return WO_OK;
    if ((made = woi_alloc(bytes, 1, err))) memcpy(made, from, bytes);
    memcpy(data, &made, sizeof made);
    return made ? WO_OK : WO_ERR_MEMORY;
}

/* Also where one of them fails all pointers are copies, or NULL: the index can be freed. */
static wo_status copy_router(const wo_index *from, wo_index *to, wo_error *err)
{
    woi_hash *hash = &to->hash;
    woi_tree *tree = &to->tree;
    woi_partition *partition = &to->partition;
    *hash = from->hash;
    *tree = from->tree;
    *partition = from->partition;
    to->trace = from->trace;
    to->curve = from->curve;
    const size_t planes = hash->n_planes * sizeof(float), r = tree->r, A = tree->A, fours = woi_tree_fours(tree),
                 leaves = woi_tree_n_cells(tree), centre = 4 * fours;
    const struct {
        void *data;
        size_t bytes;
    } parts[] = {
        {&hash->planes, hash->d * planes},
        {&hash->offsets, planes},
        {&hash->bias_planes, planes},
        {&tree->starts, (A + 1) * sizeof *tree->starts},
        {&tree->basis, (tree->d + 3) / 4 * 4 * r},
        {&tree->basis_scales, r * sizeof(float)},
        {&tree->nodes, A * centre},
        {&tree->node_scales, A * sizeof(float)},
        {&tree->node_offsets, A * sizeof(float)},
        {&tree->leaves, leaves * centre},
        {&tree->leaf_scales, leaves * sizeof(float)},
        {&tree->leaf_offsets, leaves * sizeof(float)},
        {&tree->n_leaves, A * sizeof *tree->n_leaves},
        {&partition->numbers, WOI_LOG_Z_NUMBERS * sizeof(float)},
        {&partition->direction, from->rows.d * sizeof(float)},
        {&partition->of_cell, from->cells.n * sizeof(float)},
        {&to->trace, from->n_trace * from->trace_columns * sizeof *to->trace},
        {&to->curve, from->n_curve * from->curve_columns * sizeof *to->curve},
    };
    wo_status status = WO_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const wo_status copied = copy(parts[i].data, parts[i].bytes, err);
        if (copied) status = copied;
    }
    to->n_trace = from->n_trace;
    to->trace_columns = from->trace_columns;
    to->n_curve = from->n_curve;
    to->curve_columns = from->curve_columns;
    to->goal = from->goal;
    to->full = from->full;
    return status;
}

/* ---- Rows and names ---------------------------------------------------------------------------------------- */

static wo_status make_rows(woi_update *u, const wo_update_options *o, wo_error *err)
{
    wo_index *to = u->to;
    const size_t d = u->old.d, old = u->old.m, m = u->rows.m;
    const bool biased = u->old.b || (o->add && o->add->dense.b) || (o->replace && o->replace->dense.b);
    to->own_w = woi_alloc(m, d * sizeof *to->own_w, err);
    if (biased) to->own_b = woi_alloc_zero(m, sizeof *to->own_b, err);
    if (!to->own_w || (biased && !to->own_b)) return WO_ERR_MEMORY;
    memcpy(to->own_w, u->old.w, old * d * sizeof *to->own_w);
    if (u->old.b) memcpy(to->own_b, u->old.b, old * sizeof *to->own_b);
    for (size_t i = 0; o->replace && i < o->replace->dense.m; i++) {
        const size_t id = (size_t)o->replace_ids[i];
        memcpy(to->own_w + id * d, o->replace->dense.w + i * d, d * sizeof *to->own_w);
        if (o->replace->dense.b) to->own_b[id] = o->replace->dense.b[i];
    }
    if (o->add) memcpy(to->own_w + old * d, o->add->dense.w, (m - old) * d * sizeof *to->own_w);
    if (o->add && o->add->dense.b) memcpy(to->own_b + old, o->add->dense.b, (m - old) * sizeof *to->own_b);
    u->rows = (woi_dense){m, d, to->own_w, to->own_b};
    wo_layer layer = {.dense = u->rows};
    const wo_status status = woi_layer_scan(&layer, "weight", "bias", WO_ERR_FORMAT, err);
    to->layer_checksum = layer.checksum;
    to->rows = u->rows;
    return status ? woi_about(err, WO_ABOUT_INDEX, status) : WO_OK;
}

/* What was made of the rows, in fewer bits. */
static wo_status make_small(woi_update *u, wo_error *err)
{
    wo_index *to = u->to;
    const wo_index *from = u->from;
    wo_status status = woi_small_make(&u->rows, to->options.weights, u->threads, &to->small, err);
    if (!status && from->screen.rows) status = woi_screen_make(&u->rows, u->threads, &to->screen, err);
    if (!status && !from->rows.w) { /* it answers in bf16 alone, as it did */
        to->rows.w = NULL;
        woi_free(to->own_w);
        to->own_w = NULL;
    }
    return status;
}

static wo_status make_names(const woi_update *u, const wo_update_options *o, wo_error *err)
{
    const woi_names *old = &u->from->labels, *added = o->add ? &o->add->labels : NULL;
    woi_names *to = &u->to->labels;
    const woi_names *renamed = o->replace && o->replace->labels.n ? &o->replace->labels : NULL;
    wo_status status = WO_OK;
    int32_t *by = NULL; /* (m): 1 + the row that renames a class */
    if (!old->n) return WO_OK;
    if (renamed && !(by = woi_alloc_zero(u->old.m, sizeof *by, err))) return WO_ERR_MEMORY;
    for (int32_t i = 0; renamed && i < renamed->n; i++) by[o->replace_ids[i]] = 1 + i;
    for (int32_t id = 0; !status && id < (int32_t)u->rows.m; id++) {
        char number[16];
        const bool own = !woi_is_added(u, id);
        const woi_names *from = !own ? added : by && by[id] ? renamed : old;
        const int32_t at = !own ? id - (int32_t)u->old.m : by && by[id] ? by[id] - 1 : id;
        if (from->n) {
            status = woi_names_append(to, woi_names_get(from, at), woi_names_bytes(from, at), err);
        } else {
            const int bytes = snprintf(number, sizeof number, "%" PRId32, id);
            status = woi_names_append(to, number, (size_t)bytes, err);
        }
    }
    woi_free(by);
    return status;
}

/* All that ever were, rising. */
static wo_status make_removed(woi_update *u, wo_error *err)
{
    wo_index *to = u->to;
    size_t n = 0;
    for (size_t i = 0; i < u->rows.m; i++) n += u->fate[i] == WOI_GOES;
    if (!n) return WO_OK;
    if (!(to->removed = woi_alloc(n, sizeof *to->removed, err))) return WO_ERR_MEMORY;
    for (size_t i = 0; i < u->rows.m; i++)
        if (u->fate[i] == WOI_GOES) to->removed[to->n_removed++] = (int32_t)i;
    return WO_OK;
}

/* ---- The update -------------------------------------------------------------------------------------------- */

static wo_status update(woi_update *u, const wo_update_options *o, wo_error *err)
{
    wo_index *to = u->to;
    to->options = u->from->options;
    to->same_best = to->same_five = NAN;
    wo_status status = copy_router(u->from, to, err);
    if (!status) status = make_rows(u, o, err);
    if (!status) status = make_names(u, o, err);
    if (!status) status = make_removed(u, err);
    if (!status) status = woi_update_cells(u, err);
    if (!status) status = make_small(u, err);
    if (!status) woi_index_count(to);
    if (to->n_curve) to->goal.changed += u->n_moved;
    return status;
}

wo_status wo_index_update(const wo_index *index, const wo_update_options *options, wo_index **updated, wo_error *err)
{
    wo_update_options o;
    *updated = NULL;
    wo_status status = take(index, options, &o, err);
    if (status) return status;
    const size_t old = index->rows.m, m = old + (o.add ? o.add->dense.m : 0),
                 n_replaced = o.replace ? o.replace->dense.m : 0;
    woi_update u = {.from = index, .threads = o.threads, .progress = &o.progress};
    float *floats = NULL;
    int32_t *ids = NULL; /* of the file */
    uint8_t *fate = woi_alloc_zero(m, 1, err);
    int32_t *moved = woi_alloc(m - old + n_replaced + o.n_remove, sizeof *moved, err);
    u.to = woi_alloc_zero(1, sizeof *u.to, err);
    status = fate && moved && u.to ? WO_OK : WO_ERR_MEMORY;
    if (!status && o.replace && !o.replace_ids) {
        status = ids_of_file(o.replace, &ids, err);
        o.replace_ids = ids;
    }
    if (!status) status = mark(index, o.replace_ids, n_replaced, WOI_CHANGES, fate, err);
    if (!status) status = mark(index, o.remove, o.n_remove, WOI_GOES, fate, err);
    if (!status) status = woi_index_floats(index, &u.old, &floats, err);
    if (!status) {
        memset(fate + old, WOI_CHANGES, m - old);
        for (size_t i = 0; i < m; i++)
            if (fate[i] != WOI_STAYS) moved[u.n_moved++] = (int32_t)i;
        for (size_t i = 0; i < index->n_removed; i++) fate[index->removed[i]] = WOI_GOES;
        u.rows = (woi_dense){.m = m, .d = u.old.d};
        u.fate = fate;
        u.moved = moved;
        status = update(&u, &o, err);
    }
    if (status)
        wo_index_free(u.to);
    else
        *updated = u.to;
    woi_free(floats);
    woi_free(ids);
    woi_free(fate);
    woi_free(moved);
    return status;
}
