/* The file of an index: see docs/FORMAT.md.
 *
 *   router.planes (d, n_planes), router.offsets, router.bias       slide, lss, evidence with hyperplanes
 *   tree.basis (d / 4, 4 r), tree.basis_scales (r),                evidence with a tree
 *   tree.nodes (r / 4, 4 A),
 *   tree.node_scales, tree.node_offsets,
 *   tree.leaves (A r / 4, 4 B), tree.leaf_scales,
 *   tree.leaf_offsets (A, B), tree.margin (1)
 *   cells.offsets (cells + 1), cells.ids                           all but full
 *   cells.queries (cells)                                          evidence
 *   weight (m, d), bias (m)                                        unless built with weights none
 *   weight.int8 (m, d), weight.scales (m)                          built with weights int8, beside weight in F32
 *   names.labels.*, trace                                          where there are some
 *   curve (rows, columns)                                          tuned
 *
 * Every option is a line of metadata, `index.NAME`, and so is what a tuner was asked for, `tune.NAME`. Nothing of the
 * machine goes in but the times that a tuner measured: no date, path, host or threads. */
#include "index/index.h"

#include "base/error.h"
#include "base/finite.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options as metadata ----------------------------------------------------------------------------------- */

typedef enum field_kind { FIELD_U32, FIELD_U64, FIELD_REAL, FIELD_WORD, FIELD_FLAG } field_kind;

typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
    const char *const *words; /* FIELD_WORD: by value, ends with NULL; "" is no value */
} field;

static const char *const method_words[] = {"full", "popular", "slide", "lss", "evidence", NULL};
static const char *const router_words[] = {"hash", "tree", NULL};
static const char *const learner_words[] = {"none", "mix", NULL};
static const char *const source_words[] = {"", "labels", "top", "both", NULL};
static const char *const loss_words[] = {"paper", "margin", NULL};
static const char *const init_words[] = {"random", "mean", NULL};
static const char *const optimiser_words[] = {"adam", "sgd", NULL};
static const char *const weights_words[] = {"f32", "bf16", "int8", "none", NULL};

#define FIELD(key, kind, member, words)                               \
    {                                                                 \
        "index." key, kind, offsetof(wo_build_options, member), words \
    }
static const field fields[] = {
    FIELD("method", FIELD_WORD, method, method_words),
    FIELD("K", FIELD_U32, K, NULL),
    FIELD("L", FIELD_U32, L, NULL),
    FIELD("probes", FIELD_U32, probes, NULL),
    FIELD("popular", FIELD_U32, n_popular, NULL),
    FIELD("router", FIELD_WORD, router, router_words),
    FIELD("nodes", FIELD_U32, nodes, NULL),
    FIELD("leaves", FIELD_U32, leaves, NULL),
    FIELD("beam", FIELD_U32, beam, NULL),
    FIELD("route_d", FIELD_U32, route_d, NULL),
    FIELD("learner", FIELD_WORD, learner, learner_words),
    FIELD("source", FIELD_WORD, source, source_words),
    FIELD("source_k", FIELD_U32, source_k, NULL),
    FIELD("lambda", FIELD_REAL, lambda, NULL),
    FIELD("thin", FIELD_U32, thin, NULL),
    FIELD("fallback", FIELD_U32, fallback, NULL),
    FIELD("iterations", FIELD_U32, iterations, NULL),
    FIELD("rate", FIELD_REAL, rate, NULL),
    FIELD("batch", FIELD_U32, batch, NULL),
    FIELD("loss", FIELD_WORD, loss, loss_words),
    FIELD("init", FIELD_WORD, init, init_words),
    FIELD("optimiser", FIELD_WORD, optimiser, optimiser_words),
    FIELD("t1", FIELD_REAL, t1, NULL),
    FIELD("t2", FIELD_REAL, t2, NULL),
    FIELD("t_are_values", FIELD_FLAG, t_are_values, NULL),
    FIELD("trace_points", FIELD_U32, trace_points, NULL),
    FIELD("weights", FIELD_WORD, weights, weights_words),
    FIELD("seed", FIELD_U64, seed, NULL),
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* Of a tuned index, in wo_index itself. */
#define TUNED(key, kind, member)                            \
    {                                                       \
        "tune." key, kind, offsetof(wo_index, member), NULL \
    }
static const field tuned_fields[] = {
    TUNED("target", FIELD_REAL, goal.target),
    TUNED("target5", FIELD_REAL, goal.target5),
    TUNED("target_agree", FIELD_REAL, goal.target_agree),
    TUNED("target_us", FIELD_REAL, goal.target_us),
    TUNED("k", FIELD_U32, goal.k),
    TUNED("batch", FIELD_U32, goal.batch),
    TUNED("queries", FIELD_U64, goal.n),
    TUNED("full_from", FIELD_U32, full.from),
    TUNED("full_to", FIELD_U32, full.to),
};
enum { N_TUNED = sizeof tuned_fields / sizeof *tuned_fields };

/* Numbers have a point, whatever sign the program's locale has for it: for this thread, until leave_c_locale. */
static wo_status enter_c_locale(locale_t *c, locale_t *before, wo_error *err)
{
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!*c) return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory: no C locale");
    *before = uselocale(*c);
    return WO_OK;
}

static void leave_c_locale(locale_t c, locale_t before)
{
    uselocale(before);
    freelocale(c);
}

static wo_status write_fields(woi_st_writer *writer, const field *list, size_t n, const void *from, wo_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const field *f = &list[i];
        const void *at = (const char *)from + f->offset;
        char text[40];
        switch (f->kind) {
        case FIELD_U32: snprintf(text, sizeof text, "%" PRIu32, *(const uint32_t *)at); break;
        case FIELD_U64: snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)at); break;
        case FIELD_REAL: snprintf(text, sizeof text, "%.17g", *(const double *)at); break;
        case FIELD_WORD: snprintf(text, sizeof text, "%s", f->words[*(const unsigned *)at]); break;
        case FIELD_FLAG: snprintf(text, sizeof text, "%d", *(const uint8_t *)at != 0); break;
        }
        const wo_status status = woi_st_set_meta(writer, f->key, text, err);
        if (status) return status;
    }
    return WO_OK;
}

static wo_status write_options(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    locale_t c, before;
    wo_status status = enter_c_locale(&c, &before, err);
    if (status) return status;
    status = write_fields(writer, fields, N_FIELDS, &index->options, err);
    if (!status && index->n_curve) status = write_fields(writer, tuned_fields, N_TUNED, index, err);
    leave_c_locale(c, before);
    return status;
}

static bool parse_count(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return !errno && !*end && *value <= most;
}

static bool parse_field(const field *f, const char *text, void *at)
{
    uint64_t count;
    char *end;
    switch (f->kind) {
    case FIELD_U32:
        if (!parse_count(text, UINT32_MAX, &count)) return false;
        *(uint32_t *)at = (uint32_t)count;
        return true;
    case FIELD_U64: return parse_count(text, UINT64_MAX, at);
    case FIELD_FLAG:
        if (!parse_count(text, 1, &count)) return false;
        *(uint8_t *)at = (uint8_t)count;
        return true;
    case FIELD_REAL: *(double *)at = strtod(text, &end); return end != text && !*end && isfinite(*(double *)at);
    case FIELD_WORD:
        for (unsigned i = 0; f->words[i]; i++)
            if (*text && strcmp(text, f->words[i]) == 0) {
                *(unsigned *)at = i;
                return true;
            }
        return false;
    }
    return false;
}

static wo_status read_meta(const woi_st *st, const char *key, const char **text, wo_error *err)
{
    *text = woi_st_meta(st, key);
    return *text ? WO_OK : woi_fail(err, WO_ERR_FORMAT, 8, "the metadata has no '%s'", key);
}

static wo_status bad_meta(const char *key, const char *text, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    return woi_fail(err, WO_ERR_FORMAT, 8, "'%s' is \"%s\", which this version does not know", key,
                    woi_quote(quoted, text, strlen(text)));
}

static wo_status read_fields(const woi_st *st, const field *list, size_t n, void *to, wo_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *text;
        const wo_status status = read_meta(st, list[i].key, &text, err);
        if (status) return status;
        if (!parse_field(&list[i], text, (char *)to + list[i].offset)) return bad_meta(list[i].key, text, err);
    }
    return WO_OK;
}

static wo_status read_options(const woi_st *st, wo_index *index, wo_error *err)
{
    wo_build_options *options = &index->options;
    *options = (wo_build_options){.struct_size = sizeof *options};
    locale_t c, before;
    wo_status status = enter_c_locale(&c, &before, err);
    if (status) return status;
    status = read_fields(st, fields, N_FIELDS, options, err);
    if (!status && woi_st_find(st, "curve")) status = read_fields(st, tuned_fields, N_TUNED, index, err);
    leave_c_locale(c, before);
    if (!status && index->full.to && index->full.to < index->full.from)
        status = woi_fail(err, WO_ERR_FORMAT, 8, "'tune.full_to' is %u, below 'tune.full_from', %u", index->full.to,
                          index->full.from);
    if (status || !woi_build_check(options, err)) return status;
    if (err) { /* the file's fault, not the caller's */
        err->status = WO_ERR_FORMAT;
        err->about = WO_ABOUT_INDEX;
    }
    return WO_ERR_FORMAT;
}

/* ---- Writing ----------------------------------------------------------------------------------------------- */

static wo_status declare(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    const woi_hash *hash = &index->hash;
    const woi_cells *cells = &index->cells;
    const uint64_t planes[] = {hash->d, hash->n_planes}, offsets[] = {cells->n + 1},
                   ids[] = {cells->n ? cells->offsets[cells->n] : 0}, rows[] = {index->rows.m, index->rows.d},
                   trace[] = {index->n_trace, WOI_TRACE_COLUMNS}, curve[] = {index->n_curve, WOI_CURVE_COLUMNS};
    wo_status status = WO_OK;
    if (hash->K &&
        ((status = woi_st_declare(writer, "router.planes", WOI_F32, 2, planes, err)) ||
         (status = woi_st_declare(writer, "router.offsets", WOI_F32, 1, planes + 1, err)) ||
         (hash->bias_planes && (status = woi_st_declare(writer, "router.bias", WOI_F32, 1, planes + 1, err)))))
        return status;
    const woi_tree *tree = &index->tree;
    const size_t fours = woi_tree_fours(tree);
    const uint64_t basis[] = {(tree->d + 3) / 4, 4 * tree->r}, axes[] = {tree->r},
                   nodes[] = {fours, 4 * (uint64_t)tree->A}, leaves[] = {tree->A * fours, 4 * (uint64_t)tree->B},
                   each[] = {tree->A, tree->B}, one[] = {1};
    if (tree->A && ((tree->basis && ((status = woi_st_declare(writer, "tree.basis", WOI_U8, 2, basis, err)) ||
                                     (status = woi_st_declare(writer, "tree.basis_scales", WOI_F32, 1, axes, err)))) ||
                    (status = woi_st_declare(writer, "tree.nodes", WOI_U8, 2, nodes, err)) ||
                    (status = woi_st_declare(writer, "tree.node_scales", WOI_F32, 1, each, err)) ||
                    (status = woi_st_declare(writer, "tree.node_offsets", WOI_F32, 1, each, err)) ||
                    (status = woi_st_declare(writer, "tree.leaves", WOI_U8, 2, leaves, err)) ||
                    (status = woi_st_declare(writer, "tree.leaf_scales", WOI_F32, 2, each, err)) ||
                    (status = woi_st_declare(writer, "tree.leaf_offsets", WOI_F32, 2, each, err)) ||
                    (status = woi_st_declare(writer, "tree.margin", WOI_F32, 1, one, err))))
        return status;
    if (cells->n && ((status = woi_st_declare(writer, "cells.offsets", WOI_U32, 1, offsets, err)) ||
                     (status = woi_st_declare(writer, "cells.ids", WOI_I32, 1, ids, err))))
        return status;
    const uint64_t queries[] = {cells->n};
    if (cells->queries && (status = woi_st_declare(writer, "cells.queries", WOI_U32, 1, queries, err))) return status;
    if (index->n_trace && (status = woi_st_declare(writer, "trace", WOI_F64, 2, trace, err))) return status;
    if (index->n_curve && (status = woi_st_declare(writer, "curve", WOI_F64, 2, curve, err))) return status;
    if (index->labels.n && (status = woi_names_declare(writer, "labels", &index->labels, err))) return status;
    if (index->options.weights == WO_WEIGHTS_NONE) return WO_OK;
    if ((status = woi_st_declare(writer, "weight", index->small.bf16 ? WOI_BF16 : WOI_F32, 2, rows, err)))
        return status;
    if (index->small.i8 && ((status = woi_st_declare(writer, "weight.int8", WOI_I8, 2, rows, err)) ||
                            (status = woi_st_declare(writer, "weight.scales", WOI_F32, 1, rows, err))))
        return status;
    return index->rows.b ? woi_st_declare(writer, "bias", WOI_F32, 1, rows, err) : WO_OK;
}

static wo_status append(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    const woi_hash *hash = &index->hash;
    const woi_cells *cells = &index->cells;
    wo_status status;
    if (hash->K) {
        const size_t row = hash->n_planes * sizeof(float);
        if ((status = woi_st_append(writer, hash->planes, hash->d * row, err)) ||
            (status = woi_st_append(writer, hash->offsets, row, err)) ||
            (hash->bias_planes && (status = woi_st_append(writer, hash->bias_planes, row, err))))
            return status;
    }
    const woi_tree *tree = &index->tree;
    if (tree->A) {
        const size_t n_leaves = tree->A * (size_t)tree->B, f = sizeof(float), bytes = 4 * woi_tree_fours(tree);
        if ((tree->basis && ((status = woi_st_append(writer, tree->basis, tree->r * ((tree->d + 3) / 4 * 4), err)) ||
                             (status = woi_st_append(writer, tree->basis_scales, tree->r * f, err)))) ||
            (status = woi_st_append(writer, tree->nodes, tree->A * bytes, err)) ||
            (status = woi_st_append(writer, tree->node_scales, tree->A * f, err)) ||
            (status = woi_st_append(writer, tree->node_offsets, tree->A * f, err)) ||
            (status = woi_st_append(writer, tree->leaves, n_leaves * bytes, err)) ||
            (status = woi_st_append(writer, tree->leaf_scales, n_leaves * f, err)) ||
            (status = woi_st_append(writer, tree->leaf_offsets, n_leaves * f, err)) ||
            (status = woi_st_append(writer, &tree->margin, f, err)))
            return status;
    }
    if (cells->n && ((status = woi_st_append(writer, cells->offsets, (cells->n + 1) * sizeof *cells->offsets, err)) ||
                     (status = woi_st_append(writer, cells->ids, cells->offsets[cells->n] * sizeof *cells->ids, err))))
        return status;
    if (cells->queries && (status = woi_st_append(writer, cells->queries, cells->n * sizeof *cells->queries, err)))
        return status;
    if (index->n_trace &&
        (status = woi_st_append(writer, index->trace, index->n_trace * WOI_TRACE_COLUMNS * sizeof(double), err)))
        return status;
    if (index->n_curve &&
        (status = woi_st_append(writer, index->curve, index->n_curve * WOI_CURVE_COLUMNS * sizeof(double), err)))
        return status;
    if (index->labels.n && (status = woi_names_write(writer, &index->labels, err))) return status;
    if (index->options.weights == WO_WEIGHTS_NONE) return WO_OK;
    const woi_small *small = &index->small;
    const size_t m = index->rows.m, n = m * index->rows.d;
    if ((status = small->bf16 ? woi_st_append(writer, small->bf16, n * sizeof *small->bf16, err)
                              : woi_st_append(writer, index->rows.w, n * sizeof(float), err)) ||
        (small->i8 && ((status = woi_st_append(writer, small->i8, n, err)) ||
                       (status = woi_st_append(writer, small->scales, m * sizeof *small->scales, err)))))
        return status;
    return index->rows.b ? woi_st_append(writer, index->rows.b, index->rows.m * sizeof(float), err) : WO_OK;
}

wo_status wo_index_save(const wo_index *index, const char *path, wo_error *err)
{
    woi_st_writer *writer = NULL;
    char m[24], d[24], checksum[24];
    snprintf(m, sizeof m, "%zu", index->rows.m);
    snprintf(d, sizeof d, "%zu", index->rows.d);
    snprintf(checksum, sizeof checksum, "%016" PRIx64, index->layer_checksum);
    wo_status status = woi_st_create(path, "index", &writer, err);
    if (!status) status = write_options(writer, index, err);
    if (!status) status = woi_st_set_meta(writer, "layer.m", m, err);
    if (!status) status = woi_st_set_meta(writer, "layer.d", d, err);
    if (!status) status = woi_st_set_meta(writer, "layer.xxh3", checksum, err);
    if (!status) status = declare(writer, index, err);
    if (!status) status = append(writer, index, err);
    if (!status) status = woi_st_finish(writer, err);
    woi_st_writer_free(writer);
    return status;
}

/* ---- Reading ----------------------------------------------------------------------------------------------- */

/* A tensor of this type and shape, or a sentence; *data points into the mapping. b = 0: one dimension. */
static wo_status take(const woi_st *st, const char *name, woi_dtype dtype, uint64_t a, uint64_t b, const void **data,
                      wo_error *err)
{
    const woi_tensor *tensor = woi_st_find(st, name);
    if (!tensor) return woi_fail(err, WO_ERR_FORMAT, 8, "the index has no tensor '%s'", name);
    if (tensor->dtype != dtype)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' is of type %s, expected %s", name,
                        woi_dtype_name(tensor->dtype), woi_dtype_name(dtype));
    if (tensor->n_dims != (b ? 2 : 1) || tensor->shape[0] != a || (b && tensor->shape[1] != b))
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset,
                        "'%s' is not of the expected shape (%" PRIu64 "%s%.0" PRIu64 ")", name, a, b ? ", " : "", b);
    if (tensor->bytes && (uintptr_t)tensor->data % 8)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' does not start on 8 bytes", name);
    *data = tensor->data;
    return WO_OK;
}

static wo_status read_tree(wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const size_t d = index->rows.d, r = o->route_d;
    if (!o->nodes || !o->leaves || !r || r > d || (r < d && r % 16) || d > WOI_MAX_I8)
        return woi_fail(err, WO_ERR_FORMAT, 8,
                        "the tree has %" PRIu32 " x %" PRIu32 " centres in %zu of %zu coordinates", o->nodes, o->leaves,
                        r, d);
    woi_tree *tree = &index->tree;
    *tree = (woi_tree){.d = d, .r = r, .A = o->nodes, .B = o->leaves, .beam = o->beam};
    const uint64_t A = tree->A, B = tree->B, fours = woi_tree_fours(tree);
    const float *margin = NULL;
    const struct {
        const char *name;
        woi_dtype dtype;
        uint64_t rows, columns; /* 0: of a single row */
        void *to;
    } parts[] = {
        {"tree.basis", WOI_U8, (d + 3) / 4, 4 * r, &tree->basis},
        {"tree.basis_scales", WOI_F32, r, 0, &tree->basis_scales},
        {"tree.nodes", WOI_U8, fours, 4 * A, &tree->nodes},
        {"tree.node_scales", WOI_F32, A, 0, &tree->node_scales},
        {"tree.node_offsets", WOI_F32, A, 0, &tree->node_offsets},
        {"tree.leaves", WOI_U8, A * fours, 4 * B, &tree->leaves},
        {"tree.leaf_scales", WOI_F32, A, B, &tree->leaf_scales},
        {"tree.leaf_offsets", WOI_F32, A, B, &tree->leaf_offsets},
        {"tree.margin", WOI_F32, 1, 0, &margin},
    };
    for (size_t i = r < d ? 0 : 2; i < sizeof parts / sizeof *parts; i++) {
        const void *data;
        const wo_status status =
            take(index->st, parts[i].name, parts[i].dtype, parts[i].rows, parts[i].columns, &data, err);
        if (status) return status;
        memcpy(parts[i].to, &data, sizeof data); /* never written: an index is immutable */
    }
    if (!isfinite(*margin) || *margin < 0)
        return woi_fail(err, WO_ERR_FORMAT, 8, "tree.margin is %g, expected at least 0", (double)*margin);
    tree->margin = *margin;
    return woi_tree_count_leaves(tree, err);
}

static wo_status read_router(wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    if (woi_uses_tree(o)) return read_tree(index, err);
    if (!woi_uses_hash(o)) return WO_OK;
    woi_hash *hash = &index->hash;
    *hash = (woi_hash){.K = o->K, .L = o->L, .d = index->rows.d, .n_planes = ((size_t)o->K * o->L + 15) / 16 * 16};
    const void *planes, *offsets, *bias = NULL;
    wo_status status = take(index->st, "router.planes", WOI_F32, hash->d, hash->n_planes, &planes, err);
    if (!status) status = take(index->st, "router.offsets", WOI_F32, hash->n_planes, 0, &offsets, err);
    if (!status && o->method != WO_METHOD_EVIDENCE)
        status = take(index->st, "router.bias", WOI_F32, hash->n_planes, 0, &bias, err);
    if (status) return status;
    hash->planes = (float *)planes; /* never written: an index is immutable */
    hash->offsets = (float *)offsets;
    hash->bias_planes = (float *)bias;
    return WO_OK;
}

/* A search has room for every class once, and takes a lone cell as it is. */
static wo_status check_distinct(const woi_cells *cells, size_t m, wo_error *err)
{
    uint8_t *seen = woi_alloc_zero(m / 8 + 1, 1, err);
    if (!seen) return WO_ERR_MEMORY;
    wo_status status = WO_OK;
    for (size_t c = 0; !status && c < cells->n; c++) {
        uint32_t i = cells->offsets[c];
        for (; i < cells->offsets[c + 1]; i++) {
            const int32_t id = cells->ids[i];
            if (seen[id / 8] >> id % 8 & 1) break;
            seen[id / 8] |= (uint8_t)(1 << id % 8);
        }
        if (i < cells->offsets[c + 1])
            status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "cells.ids has class %" PRId32 " twice in cell %zu",
                              cells->ids[i], c);
        while (i-- > cells->offsets[c]) seen[cells->ids[i] / 8] = 0;
    }
    woi_free(seen);
    return status;
}

static wo_status read_cells(wo_index *index, wo_error *err)
{
    if (index->options.method == WO_METHOD_FULL) return WO_OK;
    woi_cells *cells = &index->cells;
    const size_t n = index->hash.K   ? woi_hash_n_cells(&index->hash)
                     : index->tree.A ? woi_tree_n_cells(&index->tree)
                                     : 1;
    const woi_tensor *listed = woi_st_find(index->st, "cells.ids");
    const uint64_t n_ids = listed && listed->n_dims == 1 ? listed->n : 0;
    const void *data;
    wo_status status = take(index->st, "cells.offsets", WOI_U32, n + 1, 0, &data, err);
    if (status) return status;
    cells->n = n;
    cells->offsets = (uint32_t *)data;
    if ((status = take(index->st, "cells.ids", WOI_I32, n_ids, 0, &data, err))) return status;
    cells->ids = (int32_t *)data;
    if (index->options.method == WO_METHOD_EVIDENCE) {
        if ((status = take(index->st, "cells.queries", WOI_U32, n, 0, &data, err))) return status;
        cells->queries = (uint32_t *)data;
    }
    for (size_t c = 0; c < n; c++)
        if (cells->offsets[c + 1] < cells->offsets[c] || (c == 0 && cells->offsets[0] != 0))
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "cells.offsets falls or does not start at 0, at cell %zu",
                            c);
    if (cells->offsets[n] != n_ids)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "cells.offsets ends at %" PRIu32 ", but there are %" PRIu64 " ids", cells->offsets[n], n_ids);
    for (uint64_t i = 0; i < n_ids; i++)
        if (cells->ids[i] < 0 || (size_t)cells->ids[i] >= index->rows.m)
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "cells.ids has class %" PRId32 " of %zu", cells->ids[i],
                            index->rows.m);
    return check_distinct(cells, index->rows.m, err);
}

static wo_status read_bf16(wo_index *index, wo_error *err)
{
    const size_t m = index->rows.m, d = index->rows.d;
    const void *data;
    const wo_status status = take(index->st, "weight", WOI_BF16, m, d, &data, err);
    if (status) return status;
    index->small.bf16 = (uint16_t *)data;
    for (size_t i = 0; i < m * d; i++)
        if ((index->small.bf16[i] & 0x7f80) == 0x7f80)
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "weight has NaN or an infinity in row %zu", i / d);
    return WO_OK;
}

static wo_status read_int8(wo_index *index, wo_error *err)
{
    const size_t m = index->rows.m, d = index->rows.d;
    woi_small *small = &index->small;
    const void *data;
    if (d > WOI_MAX_I8)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the index has int8 rows of %zu numbers: at most %d", d, WOI_MAX_I8);
    wo_status status = take(index->st, "weight.int8", WOI_I8, m, d, &data, err);
    if (status) return status;
    small->i8 = (int8_t *)data;
    if ((status = take(index->st, "weight.scales", WOI_F32, m, 0, &data, err))) return status;
    small->scales = (float *)data;
    return woi_all_finite(small->scales, m)
               ? WO_OK
               : woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "weight.scales has NaN or an infinity");
}

static wo_status read_rows(wo_index *index, const wo_layer *layer, wo_error *err)
{
    const wo_weights weights = index->options.weights;
    const void *data;
    if (layer && layer->checksum != index->layer_checksum)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "", WOI_OTHER_LAYER, layer->checksum,
                              index->layer_checksum);
    if (weights == WO_WEIGHTS_NONE && !layer)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_INDEX, "layer",
                              "the index has no rows (it was built with weights none): the layer has them");
    if (layer && (layer->dense.m != index->rows.m || layer->dense.d != index->rows.d))
        return woi_fail(err, WO_ERR_FORMAT, 8, "the index says that its layer is %zu x %zu, but that is %zu x %zu",
                        index->rows.m, index->rows.d, layer->dense.m, layer->dense.d);
    const bool f32 = weights == WO_WEIGHTS_F32 || weights == WO_WEIGHTS_INT8;
    if (!f32 && layer) index->rows = layer->dense;
    if (weights == WO_WEIGHTS_NONE) return WO_OK;
    wo_status status =
        f32 ? take(index->st, "weight", WOI_F32, index->rows.m, index->rows.d, &data, err) : read_bf16(index, err);
    if (status) return status;
    if (f32) index->rows.w = data;
    if (weights == WO_WEIGHTS_INT8 && (status = read_int8(index, err))) return status;
    if (!woi_st_find(index->st, "bias")) return WO_OK;
    if ((status = take(index->st, "bias", WOI_F32, index->rows.m, 0, &data, err))) return status;
    index->rows.b = data;
    return WO_OK;
}

/* A table of numbers with this many columns, where there is one. */
static wo_status read_table(const woi_st *st, const char *name, uint64_t columns, double **table, size_t *n,
                            wo_error *err)
{
    const woi_tensor *tensor = woi_st_find(st, name);
    if (!tensor) return WO_OK;
    const void *data;
    const uint64_t rows = tensor->n_dims == 2 ? tensor->shape[0] : 0;
    wo_status status = take(st, name, WOI_F64, rows, columns, &data, err);
    if (status) return status;
    *table = (double *)data;
    *n = rows;
    return WO_OK;
}

static wo_status read_shape(wo_index *index, wo_error *err)
{
    static const char *const keys[] = {"layer.m", "layer.d"};
    size_t *const to[] = {&index->rows.m, &index->rows.d};
    const char *text;
    wo_status status;
    for (int i = 0; i < 2; i++) {
        uint64_t value;
        if ((status = read_meta(index->st, keys[i], &text, err))) return status;
        if (!parse_count(text, INT32_MAX, &value) || value < 1) return bad_meta(keys[i], text, err);
        *to[i] = value;
    }
    if ((status = read_meta(index->st, "layer.xxh3", &text, err))) return status;
    index->layer_checksum = strtoull(text, NULL, 16);
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16 ? WO_OK : bad_meta("layer.xxh3", text, err);
}

static wo_status read_names(wo_index *index, wo_error *err)
{
    if (!woi_st_find(index->st, "names.labels.bytes")) return WO_OK;
    wo_status status = woi_names_load(index->st, "labels", &index->labels, err);
    if (!status && (size_t)index->labels.n != index->rows.m)
        status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the index has %" PRId32 " names for %zu classes",
                          index->labels.n, index->rows.m);
    return status;
}

wo_status wo_index_open(const char *path, const wo_open_options *options, wo_index **index, wo_error *err)
{
    *index = NULL;
    const wo_layer *layer = options ? options->layer : NULL;
    wo_index *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    wo_status status = woi_st_open(path, &made->st, err);
    if (!status) {
        const char *kind = woi_st_kind(made->st);
        if (!kind || strcmp(kind, "index") != 0)
            status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the file is %s%s, not an index",
                              kind ? "of kind " : "a safetensors file of someone else", kind ? kind : "");
    }
    if (!status) status = woi_st_verify(made->st, NULL, err);
    if (!status) status = read_options(made->st, made, err);
    if (!status) status = read_shape(made, err);
    if (!status) status = read_router(made, err);
    if (!status) status = read_cells(made, err);
    if (!status) status = read_rows(made, layer, err);
    if (!status) status = read_table(made->st, "trace", WOI_TRACE_COLUMNS, &made->trace, &made->n_trace, err);
    if (!status) status = read_table(made->st, "curve", WOI_CURVE_COLUMNS, &made->curve, &made->n_curve, err);
    if (!status) status = read_names(made, err);
    if (status) {
        wo_index_free(made);
        return woi_about(err, WO_ABOUT_INDEX, status);
    }
    woi_index_measure(made);
    made->same_best = made->same_five = NAN;
    *index = made;
    return WO_OK;
}
