/* Wide layers: of our own files, other people's models, arrays of NumPy's, the caller's memory. Floats that lie where
 * floats may lie are used where they are; everything else is converted once.
 *
 *   kind of file    W                                 b
 *   layer, index    weight                            bias
 *   network         output.weight                     output.bias
 *   another's       the one of known_names it has     the same name, ending in "bias"
 *   .npy            the array                         the array of bias_path
 *   fastText        the output matrix                 none
 *   GGUF            see gguf_layer.c */
#include "layer/layer.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/sized.h"
#include "base/team.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* What wide layers are called in other people's models. */
static const char *const known_names[] = {"output.weight", "weight", "lm_head.weight"};
enum { N_KNOWN = sizeof known_names / sizeof known_names[0], N_LISTED = 3, NAME_BYTES = 512 };

/* ---- Checks ------------------------------------------------------------------------------------------------ */

static const char *number_text(float value, char text[32])
{
    snprintf(text, 32, "%g", (double)value);
    return isnan(value) ? "nan" : text;
}

wo_status woi_layer_check_shape(uint64_t m, uint64_t d, wo_status status, wo_error *err)
{
    if (m >= 1 && d >= 1 && m <= INT32_MAX && d <= INT32_MAX / 4) return WO_OK;
    return woi_fail(err, status, WO_NO_OFFSET,
                    "a layer of %" PRIu64 " classes and %" PRIu64 " dimensions cannot be: expected at least 1, and at "
                    "most %d and %d",
                    m, d, INT32_MAX, INT32_MAX / 4);
}

/* ---- One pass over the numbers ----------------------------------------------------------------------------- */

/* W or b on its way: as it lies in a file, and as floats. */
typedef struct array {
    const char *name;         /* what a sentence calls it */
    const woi_tensor *tensor; /* where it lies in a safetensors file, to be verified; NULL: nowhere */
    const float *floats;
    float *copy; /* the same, where the tensor has to be converted into; NULL: it is used where it lies */
    size_t columns;
    size_t begin, n; /* elements from `begin` on and before n are looked through */
    size_t from, to; /* to above 0: only these elements are kept, floats and copy begin with them */
} array;

typedef struct pass {
    XXH3_state_t layer; /* of m, d, W and b as floats */
    const woi_st *st;   /* to be verified, or NULL */
    wo_status status;   /* what a number that is not finite fails with */
    const wo_progress *progress;
    uint64_t done, total; /* bytes */
    /* of parts (woi_part_start), from `first` on; sums NULL: not wanted */
    uint64_t *sums;
    size_t m;
    uint32_t first, n_parts;
    XXH3_state_t of_part;
} pass;

static wo_status not_finite(const array *a, size_t at, float value, wo_status status, wo_error *err)
{
    char buffer[32], name[WOI_QUOTE_BYTES];
    const char *text = number_text(value, buffer);
    woi_quote(name, a->name, strlen(a->name));
    if (a->columns)
        return woi_fail(err, status, WO_NO_OFFSET, "'%s': row %zu, column %zu is %s, expected a finite number", name,
                        at / a->columns, at % a->columns, text);
    return woi_fail(err, status, WO_NO_OFFSET, "'%s': element %zu is %s, expected a finite number", name, at, text);
}

enum { BLOCK = 8192 };

/* The elements `at` and on as floats: in *floats, which may be `room`. */
static wo_status take_block(const array *a, size_t at, size_t n, float *room, const float **floats, wo_error *err)
{
    const woi_tensor *t = a->tensor;
    *floats = a->to ? room : a->floats + at;
    if (!a->copy || !t) return WO_OK;
    const void *from = (const char *)t->data + at * woi_dtype_bytes(t->dtype);
    if (!a->to) return woi_convert_f32(t->dtype, from, n, a->copy + at, err);
    const wo_status status = woi_convert_f32(t->dtype, from, n, room, err);
    const size_t first = at > a->from ? at : a->from, last = at + n < a->to ? at + n : a->to;
    if (!status && first < last)
        memcpy(a->copy + (first - a->from), room + (first - at), (last - first) * sizeof *room);
    return status;
}

/* Elements `at` and on, which may be of several parts, to the parts' checksums: that of W seeds that of b. Returns the
 * part that comes next, or goes on. */
static uint32_t hash_parts(pass *p, const array *a, uint32_t part, size_t at, const float *floats, size_t n)
{
    const size_t row = a->columns ? a->columns : 1;
    while (n > 0) {
        const size_t begin = woi_part_start(part, p->n_parts, p->m) * row;
        const size_t end = woi_part_start((size_t)part + 1, p->n_parts, p->m) * row;
        const size_t now = end - at < n ? end - at : n;
        if (at == begin) XXH3_64bits_reset_withSeed(&p->of_part, a->columns ? 0 : p->sums[part]);
        XXH3_64bits_update(&p->of_part, floats, now * sizeof *floats);
        at += now;
        floats += now;
        n -= now;
        if (at == end) p->sums[part++] = XXH3_64bits_digest(&p->of_part);
    }
    return part;
}

/* Each block is read from memory once: converted, looked at, and hashed for the tensor's and for the layer's checksum
 * while it is in the cache. A changed bit is called that, not what it has made of a number. */
static wo_status scan(pass *p, const array *a, wo_error *err)
{
    enum { REPORT = 1024 * BLOCK };
    const size_t bytes = a->tensor ? woi_dtype_bytes(a->tensor->dtype) : sizeof(float);
    size_t bad = a->n;
    float value = 0, room[BLOCK];
    const float *floats;
    uint32_t part = p->first;
    wo_status status;
    XXH3_state_t tensor;
    XXH3_INITSTATE(&tensor);
    XXH3_64bits_reset(&tensor);
    for (size_t at = a->begin; at < a->n; at += BLOCK) {
        const size_t n = a->n - at < BLOCK ? a->n - at : BLOCK;
        const void *from = a->tensor ? (const char *)a->tensor->data + at * bytes : NULL;
        if ((at - a->begin) % REPORT == 0 && (status = woi_progress(p->progress, "reading", p->done, p->total, err)))
            return status;
        if ((status = take_block(a, at, n, room, &floats, err))) return status;
        if (p->st && from) XXH3_64bits_update(&tensor, from, n * bytes);
        XXH3_64bits_update(&p->layer, floats, n * sizeof(float));
        if (p->sums) part = hash_parts(p, a, part, at, floats, n);
        if (bad == a->n && !woi_all_finite(floats, n)) {
            size_t i = 0;
            while (isfinite(floats[i])) i++;
            bad = at + i;
            value = floats[i];
        }
        p->done += n * bytes;
    }
    const bool all = a->tensor && a->begin == 0 && a->n == a->tensor->n;
    if (p->st && all && (status = woi_st_verify_hash(p->st, a->tensor, XXH3_64bits_digest(&tensor), err)))
        return status;
    return bad < a->n ? not_finite(a, bad, value, p->status, err) : WO_OK;
}

/* Fills the layer's checksum. b->floats may be NULL. */
static wo_status scan_layer(pass *p, const array *w, const array *b, wo_layer *layer, wo_error *err)
{
    static const float zeros[4096];
    const uint64_t shape[2] = {layer->dense.m, layer->dense.d};
    XXH3_INITSTATE(&p->layer);
    XXH3_INITSTATE(&p->of_part);
    XXH3_64bits_reset(&p->layer);
    XXH3_64bits_update(&p->layer, shape, sizeof shape);
    wo_status status = scan(p, w, err);
    if (!status && b->floats) status = scan(p, b, err);
    for (size_t left = b->floats ? 0 : layer->dense.m; left > 0;) {
        const size_t piece = left < 4096 ? left : 4096;
        XXH3_64bits_update(&p->layer, zeros, piece * sizeof(float));
        left -= piece;
    }
    layer->checksum = XXH3_64bits_digest(&p->layer);
    return status;
}

/* The numbers as they are in memory. */
wo_status woi_layer_scan(wo_layer *layer, const char *weight, const char *bias, wo_status status, wo_error *err)
{
    const woi_dense *dense = &layer->dense;
    const array w = {.name = weight, .floats = dense->w, .n = dense->m * dense->d, .columns = dense->d};
    const array b = {.name = bias, .floats = dense->b, .n = dense->m};
    return scan_layer(&(pass){.status = status}, &w, &b, layer, err);
}

/* ---- safetensors ------------------------------------------------------------------------------------------- */

static bool is_float(woi_dtype dtype)
{
    return dtype == WOI_F64 || dtype == WOI_F32 || dtype == WOI_F16 || dtype == WOI_BF16;
}

static bool is_matrix(const woi_tensor *t)
{
    return t && t->n_dims == 2 && is_float(t->dtype);
}

/* "'a.weight' (50778 x 128), 'b.weight' (128 x 64) and 3 more": the matrices with the most rows first, for a wide layer
 * has many. */
static void list_matrices(const woi_st *st, char *text, size_t room)
{
    const woi_tensor *last = NULL;
    size_t used = 0, n = 0, shown = 0;
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) n += is_matrix(woi_st_tensor(st, i));
    snprintf(text, room, "%s", n ? "" : "none");
    for (; shown < N_LISTED && shown < n; shown++) {
        /* The next of falling rows, equal ones in the file's order. */
        const woi_tensor *best = NULL;
        for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
            const woi_tensor *t = woi_st_tensor(st, i);
            const bool behind = !last || t->shape[0] < last->shape[0] || (t->shape[0] == last->shape[0] && t > last);
            if (is_matrix(t) && behind && (!best || t->shape[0] > best->shape[0])) best = t;
        }
        if (!best) break;
        char name[WOI_QUOTE_BYTES], entry[128];
        const int bytes = snprintf(entry, sizeof entry, "%s%s (%" PRIu64 " x %" PRIu64 ")", shown ? ", " : "",
                                   woi_quote(name, best->name, strlen(best->name)), best->shape[0], best->shape[1]);
        if (used + (size_t)bytes + sizeof " and 99999 more" > room) break;
        memcpy(text + used, entry, (size_t)bytes + 1);
        used += (size_t)bytes;
        last = best;
    }
    if (shown < n) snprintf(text + used, room - used, " and %zu more", n - shown);
}

static wo_status find_weight(const woi_st *st, const char *asked, const woi_tensor **weight, wo_error *err)
{
    const char *kind = woi_st_kind(st), *names[N_KNOWN] = {asked};
    size_t n_names = 1;
    char list[112], quoted[WOI_QUOTE_BYTES];
    if (!asked && kind) names[0] = strcmp(kind, "network") == 0 ? "output.weight" : "weight";
    if (!asked && !kind) memcpy(names, known_names, (n_names = N_KNOWN) * sizeof names[0]);
    *weight = NULL;
    for (size_t i = 0; i < n_names; i++) {
        const woi_tensor *t = woi_st_find(st, names[i]);
        if (!t || (n_names > 1 && !is_matrix(t))) continue;
        if (*weight)
            return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "weight_name",
                                  "the file has both '%s' and '%s', and one was not chosen", (*weight)->name, t->name);
        *weight = t;
    }
    if (*weight) return WO_OK;
    list_matrices(st, list, sizeof list);
    if (n_names > 1)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "weight_name",
                              "no tensor has the name of a layer, and none was chosen: the matrices are %s", list);
    if (kind && !asked && strcmp(kind, "index") == 0)
        return woi_fail(err, WO_ERR_FORMAT, 8,
                        "the file is an index without rows: the layer that it was built from has them");
    return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "weight_name",
                          "the file has no tensor '%s': its matrices are %s",
                          woi_quote(quoted, names[0], strlen(names[0])), list);
}

/* The tensor that was asked for, or, where there is one, that with the weight's name but "bias" at its end. */
static wo_status find_bias(const woi_st *st, const char *weight, const char *asked, const woi_tensor **bias,
                           wo_error *err)
{
    static const char ending[] = "weight";
    const size_t bytes = strlen(weight), stem = bytes - (sizeof ending - 1);
    char name[NAME_BYTES], quoted[WOI_QUOTE_BYTES];
    *bias = NULL;
    if (asked) {
        *bias = woi_st_find(st, asked);
        return *bias ? WO_OK
                     : woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "bias_name",
                                      "the file has no tensor '%s' for the biases",
                                      woi_quote(quoted, asked, strlen(asked)));
    }
    if (bytes < sizeof ending - 1 || bytes >= sizeof name || strcmp(weight + stem, ending) != 0) return WO_OK;
    memcpy(name, weight, stem);
    memcpy(name + stem, "bias", sizeof "bias");
    *bias = woi_st_find(st, name);
    return WO_OK;
}

/* Where there is no bias: one that goes by another name. */
static const woi_tensor *find_unused_bias(const woi_st *st, uint64_t m)
{
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        if (t->n_dims == 1 && t->n == m && is_float(t->dtype) && strstr(t->name, "bias")) return t;
    }
    return NULL;
}

/* The tensor's floats: where they are, or, once they are scanned, in *copy. */
static wo_status floats_of(const woi_tensor *t, const float **floats, float **copy, wo_error *err)
{
    if (t->dtype == WOI_F32 && (uintptr_t)t->data % sizeof(float) == 0) {
        *floats = t->data;
        return WO_OK;
    }
    if (!(*copy = woi_alloc((size_t)t->n, sizeof **copy, err))) return WO_ERR_MEMORY;
    *floats = *copy;
    return WO_OK;
}

/* The same, with a copy of some rows alone. */
static wo_status floats_of_rows(array *a, size_t first, size_t n, float **copy, wo_error *err)
{
    const woi_tensor *t = a->tensor;
    const size_t row = a->columns ? a->columns : 1;
    if (!n || (t->dtype == WOI_F32 && (uintptr_t)t->data % sizeof(float) == 0)) {
        const wo_status status = floats_of(t, &a->floats, copy, err);
        a->copy = *copy;
        return status;
    }
    a->from = first * row;
    a->to = (first + n) * row;
    if (!(*copy = woi_alloc(n * row, sizeof **copy, err))) return WO_ERR_MEMORY;
    a->floats = a->copy = *copy;
    return WO_OK;
}

/* Of an array these rows alone are looked through. Returns their bytes. */
static uint64_t look_at_rows(array *a, size_t first, size_t n)
{
    const size_t row = a->columns ? a->columns : 1;
    if (!a->tensor) return 0;
    a->begin = first * row;
    a->n = (first + n) * row;
    return n * row * woi_dtype_bytes(a->tensor->dtype);
}

static wo_status fail_tensor(const woi_tensor *t, const char *expected, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    return woi_fail(err, WO_ERR_FORMAT, t->offset, "tensor '%s' has %d dimensions, %" PRIu64 " elements of %s: %s",
                    woi_quote(quoted, t->name, strlen(t->name)), t->n_dims, t->n, woi_dtype_name(t->dtype), expected);
}

/* Names that do not fit a tensor which the caller chose are those of another one. */
static wo_status read_names(wo_layer *layer, bool chosen, wo_error *err)
{
    if (!woi_st_find(layer->st, "names.labels.bytes")) return WO_OK;
    const wo_status status = woi_names_load(layer->st, "labels", &layer->labels, err);
    const int32_t n = layer->labels.n;
    if (status || n == 0 || (size_t)n == layer->dense.m) return status;
    woi_names_free(&layer->labels);
    if (chosen) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the file has %" PRId32 " names of labels, expected %zu", n,
                    layer->dense.m);
}

/* The checksum of the layer that this is a shard of. */
static wo_status read_whole(wo_layer *layer, wo_error *err)
{
    const char *text = woi_st_meta(layer->st, "layer.xxh3");
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the shard does not say what layer it is of: no 'layer.xxh3'");
    layer->checksum = strtoull(text, NULL, 16);
    return WO_OK;
}

static wo_status check_kind(const woi_st *st, wo_error *err)
{
    static const char *const kinds[] = {"layer", "network", "index"};
    const char *kind = woi_st_kind(st);
    char quoted[WOI_QUOTE_BYTES];
    if (!kind) return WO_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i]) == 0) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, 8, "the file is of kind '%s': expected a layer, a network, an index or a model",
                    woi_quote(quoted, kind, strlen(kind)));
}

/* What is not compared on the way: of all tensors those but W and b, of the used ones the names. */
static wo_status verify_others(pass *p, const woi_tensor *weight, const woi_tensor *bias, wo_verify verify,
                               wo_error *err)
{
    static const char names[] = "names.labels.";
    wo_status status = WO_OK;
    for (size_t i = 0; p->st && !status && i < woi_st_n_tensors(p->st); i++) {
        const woi_tensor *t = woi_st_tensor(p->st, i);
        if (t == weight || t == bias) continue;
        if (verify == WO_VERIFY_USED && strncmp(t->name, names, sizeof names - 1) != 0) continue;
        status = woi_progress(p->progress, "reading", p->done, p->total, err);
        if (!status) status = woi_st_verify_tensor(p->st, t, err);
        p->done += t->bytes;
    }
    return status;
}

/* As many biases as a row has numbers. */
static bool is_transposed(const woi_dense *dense, uint64_t n_biases)
{
    return n_biases == dense->d && dense->d != dense->m;
}

static wo_status fail_transposed(const woi_dense *dense, wo_error *err)
{
    return woi_fail(
        err, WO_ERR_FORMAT, WO_NO_OFFSET,
        "there are %zu biases for %zu classes of %zu numbers: is the layer transposed? Its rows are classes", dense->d,
        dense->m, dense->d);
}

static wo_status read_tensors(wo_layer *layer, const wo_layer_options *options, wo_error *err)
{
    const woi_tensor *weight = NULL, *bias = NULL;
    wo_status status;
    if ((status = check_kind(layer->st, err)) || (status = find_weight(layer->st, options->weight_name, &weight, err)))
        return status;
    if (!is_matrix(weight)) return fail_tensor(weight, "expected a matrix of floats, classes x dimensions", err);
    if ((status = woi_layer_check_shape(weight->shape[0], weight->shape[1], WO_ERR_FORMAT, err)) ||
        (status = find_bias(layer->st, weight->name, options->bias_name, &bias, err)))
        return status;
    woi_dense *dense = &layer->dense;
    layer->weight = weight;
    layer->bias = bias;
    if (!bias && !woi_st_kind(layer->st)) layer->unused_bias = find_unused_bias(layer->st, weight->shape[0]);
    dense->m = (size_t)weight->shape[0];
    dense->d = (size_t)weight->shape[1];
    if (bias && bias->n_dims == 1 && is_transposed(dense, bias->n)) return fail_transposed(dense, err);
    if (bias && (bias->n_dims != 1 || bias->n != dense->m || !is_float(bias->dtype))) {
        char expected[64];
        snprintf(expected, sizeof expected, "expected %zu floats, one for each class", dense->m);
        return fail_tensor(bias, expected, err);
    }
    array w = {.name = weight->name, .tensor = weight, .n = dense->m * dense->d, .columns = dense->d}, b = {0};
    size_t first = 0, n = 0; /* the rows that are kept, where not all are; 0: all */
    if (options->n_parts > 1 && options->part < options->n_parts && options->n_parts <= dense->m &&
        !woi_shard_is(layer->st)) {
        first = woi_part_start(options->part, options->n_parts, dense->m);
        n = woi_part_start((size_t)options->part + 1, options->n_parts, dense->m) - first;
    }
    if (bias) b = (array){.name = bias->name, .tensor = bias, .n = dense->m};
    if ((status = floats_of_rows(&w, first, n, &layer->copy_w, err)) ||
        (bias && (status = floats_of_rows(&b, first, n, &layer->copy_b, err))))
        return status;
    dense->w = w.floats;
    dense->b = b.floats;
    layer->part_w = w.to > 0;
    layer->part_b = b.to > 0;
    pass p = {.st = options->verify == WO_VERIFY_NONE || !woi_st_kind(layer->st) ? NULL : layer->st,
              .status = WO_ERR_FORMAT,
              .progress = &options->progress,
              .sums = n ? options->part_checksums : NULL,
              .m = dense->m,
              .n_parts = options->n_parts};
    wo_verify verify = options->verify;
    const bool known = n && options->checksum; /* the other rows are another's to look at */
    if (known) {
        p.total = look_at_rows(&w, first, n) + look_at_rows(&b, first, n);
        p.first = options->part;
        if (verify == WO_VERIFY_ALL) verify = WO_VERIFY_USED;
    } else {
        for (size_t i = 0; i < woi_st_n_tensors(layer->st); i++) p.total += woi_st_tensor(layer->st, i)->bytes;
    }
    if ((status = verify_others(&p, weight, bias, verify, err)) || (status = scan_layer(&p, &w, &b, layer, err)))
        return status;
    if (known) layer->checksum = options->checksum;
    if ((status = read_names(layer, options->weight_name != NULL, err)) ||
        (status = woi_shard_read(layer->st, dense->m, &layer->shard, err)))
        return status;
    return layer->shard.count ? read_whole(layer, err) : WO_OK;
}

wo_status woi_layer_read(woi_st *st, const wo_layer_options *options, wo_layer **layer, wo_error *err)
{
    *layer = NULL;
    wo_layer *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) {
        woi_st_free(st);
        return WO_ERR_MEMORY;
    }
    made->st = st;
    const wo_status status = read_tensors(made, options, err);
    if (status)
        wo_layer_free(made);
    else
        *layer = made;
    return status;
}

/* ---- npy --------------------------------------------------------------------------------------------------- */

/* The array's floats in C order: where they are, or in *copy. */
static wo_status npy_floats(const woi_npy *npy, const float **floats, float **copy, wo_error *err)
{
    if (npy->dtype == WOI_F32 && !npy->fortran && !npy->swapped && (uintptr_t)npy->data % sizeof(float) == 0) {
        *floats = npy->data;
        return WO_OK;
    }
    if (!(*copy = woi_alloc((size_t)npy->n, sizeof **copy, err))) return WO_ERR_MEMORY;
    *floats = *copy;
    return woi_npy_read_f32(npy, *copy, err);
}

static wo_status read_npy_bias(wo_layer *layer, const char *path, wo_error *err)
{
    wo_status status = woi_npy_open(path, &layer->npy_b, err);
    if (!status && layer->npy_b.n_dims == 1 && is_transposed(&layer->dense, layer->npy_b.n))
        status = fail_transposed(&layer->dense, err);
    else if (!status && (layer->npy_b.n_dims != 1 || layer->npy_b.n != layer->dense.m))
        status =
            woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                     "the array of biases has %d dimensions, %" PRIu64 " elements: expected %zu, one for each class",
                     layer->npy_b.n_dims, layer->npy_b.n, layer->dense.m);
    if (!status) status = npy_floats(&layer->npy_b, &layer->dense.b, &layer->copy_b, err);
    return woi_about(err, WO_ABOUT_BIAS, status);
}

wo_status woi_layer_read_npy(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err)
{
    wo_status status;
    if (options->weight_name || options->bias_name)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, options->weight_name ? "weight_name" : "bias_name",
                              "the file is a .npy file, which has no tensor '%s': its arrays have no names",
                              options->weight_name ? options->weight_name : options->bias_name);
    if ((status = woi_npy_open(path, &layer->npy_w, err))) return status;
    if (layer->npy_w.n_dims != 2)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "the array has %d dimensions, expected 2: classes x dimensions", layer->npy_w.n_dims);
    if ((status = woi_layer_check_shape(layer->npy_w.shape[0], layer->npy_w.shape[1], WO_ERR_FORMAT, err)))
        return status;
    layer->dense.m = (size_t)layer->npy_w.shape[0];
    layer->dense.d = (size_t)layer->npy_w.shape[1];
    if ((status = npy_floats(&layer->npy_w, &layer->dense.w, &layer->copy_w, err))) return status;
    if (options->bias_path && (status = read_npy_bias(layer, options->bias_path, err))) return status;
    return woi_layer_scan(layer, "weight", "bias", WO_ERR_FORMAT, err);
}

/* ---- fastText ---------------------------------------------------------------------------------------------- */

static wo_status refuse_options(const wo_layer_options *options, const char *what, wo_error *err)
{
    const char *option = options->weight_name ? "weight_name" : options->bias_name ? "bias_name" : "bias_path";
    if (!options->weight_name && !options->bias_name && !options->bias_path) return WO_OK;
    return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, option,
                          "the file is %s, whose one layer has neither another name nor biases", what);
}

wo_status woi_layer_read_fasttext(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err)
{
    wo_status status = refuse_options(options, "a model of fastText's", err);
    if (!status) status = woi_fasttext_open(path, &layer->fasttext, err);
    if (status) return status;
    const woi_fasttext *model = &layer->fasttext;
    woi_dense *dense = &layer->dense;
    dense->m = (size_t)model->n_labels;
    dense->d = model->d;
    layer->weight = &model->output;
    if ((status = floats_of(layer->weight, &dense->w, &layer->copy_w, err))) return status;
    const array w = {.name = layer->weight->name,
                     .tensor = layer->weight,
                     .floats = dense->w,
                     .copy = layer->copy_w,
                     .n = dense->m * dense->d,
                     .columns = dense->d},
                b = {0};
    pass p = {.status = WO_ERR_FORMAT, .progress = &options->progress, .total = layer->weight->bytes};
    if ((status = scan_layer(&p, &w, &b, layer, err))) return status;
    const char *entry = model->labels;
    for (int32_t i = 0; !status && i < model->n_labels; i++) {
        size_t bytes;
        const char *name = woi_fasttext_name(&entry, &bytes);
        status = woi_names_append(&layer->labels, name, bytes, err);
    }
    return status;
}

/* ---- Layers ------------------------------------------------------------------------------------------------ */

wo_status wo_layer_wrap(const float *weight, const float *bias, size_t m, size_t d, wo_layer **layer, wo_error *err)
{
    if (!weight || !layer) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the weights or the result are NULL");
    *layer = NULL;
    wo_status status = woi_layer_check_shape(m, d, WO_ERR_ARGUMENT, err);
    if (status) return woi_about(err, WO_ABOUT_LAYER, status);
    wo_layer *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    made->dense = (woi_dense){m, d, weight, bias};
    status = woi_layer_scan(made, "weight", "bias", WO_ERR_ARGUMENT, err);
    if (status)
        wo_layer_free(made);
    else
        *layer = made;
    return woi_about(err, WO_ABOUT_LAYER, status);
}

void wo_layer_free(wo_layer *layer)
{
    if (!layer) return;
    woi_names_free(&layer->labels);
    woi_shard_free(&layer->shard);
    woi_free(layer->copy_w);
    woi_free(layer->copy_b);
    woi_npy_close(&layer->npy_w);
    woi_npy_close(&layer->npy_b);
    woi_fasttext_close(&layer->fasttext);
    woi_gguf_close(&layer->gguf);
    for (int i = 0; i < 2; i++) woi_free((void *)(uintptr_t)layer->own[i].name);
    woi_st_free(layer->st);
    woi_free(layer);
}

wo_status wo_layer_set_names(wo_layer *layer, const char *const *names, size_t n, wo_error *err)
{
    woi_names made = {0};
    wo_status status = WO_OK;
    if (!layer || !names) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the layer or the names are NULL");
    const size_t m = woi_shard_whole(&layer->shard, layer->dense.m);
    if (n != m) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "there are %zu names, but %zu classes", n, m);
    for (size_t i = 0; !status && i < n; i++) {
        const size_t bytes = names[i] ? strlen(names[i]) : 0;
        if (!names[i])
            status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "name %zu is NULL", i);
        else if (!woi_utf8_valid(names[i], bytes) || memchr(names[i], '\n', bytes))
            status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "name %zu is not one line of UTF-8", i);
        else
            status = woi_names_append(&made, names[i], bytes, err);
    }
    if (status) {
        woi_names_free(&made);
        return status;
    }
    if (layer->shard.count) return woi_shard_name(layer, &made, err);
    woi_names_free(&layer->labels);
    layer->labels = made;
    return WO_OK;
}

static const char *name_of(const woi_tensor *tensor)
{
    return tensor ? tensor->name : NULL;
}

wo_status wo_layer_describe(const wo_layer *layer, wo_layer_info *info)
{
    const wo_layer_info full = {.m = layer->dense.m,
                                .d = layer->dense.d,
                                .has_bias = layer->dense.b != NULL,
                                .has_names = layer->labels.n > 0,
                                .weight_name = name_of(layer->weight),
                                .bias_name = name_of(layer->bias),
                                .unused_bias = name_of(layer->unused_bias),
                                .shard = layer->shard.number,
                                .n_shards = layer->shard.count,
                                .m_whole = woi_shard_whole(&layer->shard, layer->dense.m),
                                .checksum = layer->checksum,
                                .dealing = layer->shard.dealing};
    return woi_sized_give(info, &full, sizeof full);
}

size_t wo_layer_m(const wo_layer *layer)
{
    return layer->dense.m;
}

size_t wo_layer_d(const wo_layer *layer)
{
    return layer->dense.d;
}

const float *wo_layer_weight(const wo_layer *layer)
{
    return layer->dense.w;
}

const float *wo_layer_bias(const wo_layer *layer)
{
    return layer->dense.b;
}
