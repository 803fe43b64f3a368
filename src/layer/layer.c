/* Opening wide layers: our own files, other people's models, arrays of NumPy's, the caller's memory. Floats that lie
 * where floats may lie are used where they are; everything else is converted once.
 *
 *   kind of file    W                                 b
 *   layer, index    weight                            bias
 *   network         output.weight                     output.bias
 *   another's       the one of known_names it has     the same name, ending in "bias"
 *   .npy            the array                         the array of bias_path */
#include "layer/layer.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/sized.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

/* `weight` and `bias` are what the sentence calls them, `status` what it fails with. */
static wo_status check_values(const woi_dense *dense, const char *weight, const char *bias, wo_status status,
                              wo_error *err)
{
    char text[32], name[WOI_QUOTE_BYTES];
    for (size_t row = 0; row < dense->m; row++) {
        const float *w = dense->w + row * dense->d;
        if (woi_all_finite(w, dense->d)) continue;
        size_t column = 0;
        while (isfinite(w[column])) column++;
        return woi_fail(err, status, WO_NO_OFFSET, "'%s': row %zu, column %zu is %s, expected a finite number",
                        woi_quote(name, weight, strlen(weight)), row, column, number_text(w[column], text));
    }
    for (size_t i = 0; dense->b && i < dense->m; i++)
        if (!isfinite(dense->b[i]))
            return woi_fail(err, status, WO_NO_OFFSET, "'%s': element %zu is %s, expected a finite number",
                            woi_quote(name, bias, strlen(bias)), i, number_text(dense->b[i], text));
    return WO_OK;
}

static wo_status check_shape(uint64_t m, uint64_t d, wo_status status, wo_error *err)
{
    if (m >= 1 && d >= 1 && m <= INT32_MAX && d <= INT32_MAX / 4) return WO_OK;
    return woi_fail(err, status, WO_NO_OFFSET,
                    "a layer of %" PRIu64 " classes and %" PRIu64 " dimensions cannot be: expected at least 1, and at "
                    "most %d and %d",
                    m, d, INT32_MAX, INT32_MAX / 4);
}

static uint64_t checksum_of(const woi_dense *dense)
{
    static const float zeros[4096];
    const uint64_t shape[2] = {dense->m, dense->d};
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, shape, sizeof shape);
    XXH3_64bits_update(&state, dense->w, dense->m * dense->d * sizeof(float));
    if (dense->b) XXH3_64bits_update(&state, dense->b, dense->m * sizeof(float));
    for (size_t left = dense->b ? 0 : dense->m; left > 0;) {
        const size_t piece = left < 4096 ? left : 4096;
        XXH3_64bits_update(&state, zeros, piece * sizeof(float));
        left -= piece;
    }
    return XXH3_64bits_digest(&state);
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

/* The tensor's floats: where they are, or in *copy. */
static wo_status floats_of(const woi_tensor *t, const float **floats, float **copy, wo_error *err)
{
    if (t->dtype == WOI_F32 && (uintptr_t)t->data % sizeof(float) == 0) {
        *floats = t->data;
        return WO_OK;
    }
    if (!(*copy = woi_alloc((size_t)t->n, sizeof **copy, err))) return WO_ERR_MEMORY;
    *floats = *copy;
    return woi_convert_f32(t->dtype, t->data, (size_t)t->n, *copy, err);
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

static wo_status read_safetensors(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err)
{
    const woi_tensor *weight = NULL, *bias = NULL;
    wo_status status;
    if (options->bias_path)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "bias_path",
                              "the file is no .npy file, and only beside one do biases have a file of their own");
    if ((status = woi_st_open(path, &layer->st, err)) || (status = check_kind(layer->st, err)) ||
        (status = woi_st_verify(layer->st, NULL, err)) ||
        (status = find_weight(layer->st, options->weight_name, &weight, err)))
        return status;
    if (!is_matrix(weight)) return fail_tensor(weight, "expected a matrix of floats, classes x dimensions", err);
    if ((status = check_shape(weight->shape[0], weight->shape[1], WO_ERR_FORMAT, err)) ||
        (status = find_bias(layer->st, weight->name, options->bias_name, &bias, err)))
        return status;
    layer->dense.m = (size_t)weight->shape[0];
    layer->dense.d = (size_t)weight->shape[1];
    if (bias && (bias->n_dims != 1 || bias->n != layer->dense.m || !is_float(bias->dtype))) {
        char expected[64];
        snprintf(expected, sizeof expected, "expected %zu floats, one for each class", layer->dense.m);
        return fail_tensor(bias, expected, err);
    }
    if ((status = floats_of(weight, &layer->dense.w, &layer->copy_w, err)) ||
        (bias && (status = floats_of(bias, &layer->dense.b, &layer->copy_b, err))) ||
        (status = check_values(&layer->dense, weight->name, bias ? bias->name : NULL, WO_ERR_FORMAT, err)))
        return status;
    return read_names(layer, options->weight_name != NULL, err);
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
    if (!status && (layer->npy_b.n_dims != 1 || layer->npy_b.n != layer->dense.m))
        status =
            woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                     "the array of biases has %d dimensions, %" PRIu64 " elements: expected %zu, one for each class",
                     layer->npy_b.n_dims, layer->npy_b.n, layer->dense.m);
    if (!status) status = npy_floats(&layer->npy_b, &layer->dense.b, &layer->copy_b, err);
    return woi_about(err, WO_ABOUT_BIAS, status);
}

static wo_status read_npy(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err)
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
    if ((status = check_shape(layer->npy_w.shape[0], layer->npy_w.shape[1], WO_ERR_FORMAT, err))) return status;
    layer->dense.m = (size_t)layer->npy_w.shape[0];
    layer->dense.d = (size_t)layer->npy_w.shape[1];
    if ((status = npy_floats(&layer->npy_w, &layer->dense.w, &layer->copy_w, err))) return status;
    if (options->bias_path && (status = read_npy_bias(layer, options->bias_path, err))) return status;
    return check_values(&layer->dense, "weight", "bias", WO_ERR_FORMAT, err);
}

/* ---- Layers ------------------------------------------------------------------------------------------------ */

static wo_status read_layer(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err)
{
    woi_file_kind kind;
    wo_status status = woi_file_recognise(path, &kind, err);
    if (status) return status;
    if (kind == WOI_FILE_NPY) return read_npy(layer, path, options, err);
    if (kind == WOI_FILE_SAFETENSORS || kind == WOI_FILE_SHARD_INDEX)
        return read_safetensors(layer, path, options, err);
    return woi_fail(err, WO_ERR_FORMAT, 0, "the file is no layer: expected a safetensors or .npy file");
}

wo_status wo_layer_open(const char *path, const wo_layer_options *options, wo_layer **layer, wo_error *err)
{
    if (!path || !layer) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the path or the result is NULL");
    *layer = NULL;
    wo_layer_options o = {.struct_size = sizeof o};
    wo_status status = woi_sized_take(&o, sizeof o, options, "layer options", err);
    if (status) return status;
    wo_layer *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    status = woi_about(err, WO_ABOUT_LAYER, read_layer(made, path, &o, err));
    if (status) {
        wo_layer_free(made);
        return status;
    }
    made->checksum = checksum_of(&made->dense);
    *layer = made;
    return WO_OK;
}

wo_status wo_layer_wrap(const float *weight, const float *bias, size_t m, size_t d, wo_layer **layer, wo_error *err)
{
    if (!weight || !layer) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the weights or the result are NULL");
    *layer = NULL;
    const woi_dense dense = {m, d, weight, bias};
    wo_status status;
    if ((status = check_shape(m, d, WO_ERR_ARGUMENT, err)) ||
        (status = check_values(&dense, "weight", "bias", WO_ERR_ARGUMENT, err)))
        return woi_about(err, WO_ABOUT_LAYER, status);
    wo_layer *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    made->dense = dense;
    made->checksum = checksum_of(&dense);
    *layer = made;
    return WO_OK;
}

void wo_layer_free(wo_layer *layer)
{
    if (!layer) return;
    woi_names_free(&layer->labels);
    woi_free(layer->copy_w);
    woi_free(layer->copy_b);
    woi_npy_close(&layer->npy_w);
    woi_npy_close(&layer->npy_b);
    woi_st_free(layer->st);
    woi_free(layer);
}

size_t wo_layer_m(const wo_layer *layer)
{
    return layer->dense.m;
}

size_t wo_layer_d(const wo_layer *layer)
{
    return layer->dense.d;
}
