/* Wide layers out of GGUF files. W is `output.weight`, or, in a model that has one matrix for both ends,
 * `token_embd.weight`; b is the tensor of the same name that ends in "bias", where there is one. Tokens are the names
 * of the classes, where there is one for each. Blocks are made floats once. */
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "layer/layer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static wo_status find_weight(const woi_gguf *gguf, const char *asked, const woi_gguf_tensor **weight, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    *weight = woi_gguf_find(gguf, asked ? asked : "output.weight");
    if (!*weight && !asked) *weight = woi_gguf_find(gguf, "token_embd.weight");
    if (*weight) return WO_OK;
    if (!asked)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "weight_name",
                              "the file has no tensor 'output.weight' or 'token_embd.weight', and none was chosen");
    return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "weight_name", "the file has no tensor '%s'",
                          woi_quote(quoted, asked, strlen(asked)));
}

/* The tensor that was asked for; or that with the weight's name but "bias" at its end, or NULL. */
static wo_status find_bias(const woi_gguf *gguf, const woi_gguf_tensor *weight, const char *asked,
                           const woi_gguf_tensor **bias, wo_error *err)
{
    static const char ending[] = "weight";
    char quoted[WOI_QUOTE_BYTES], name[256];
    const size_t stem = weight->name_bytes - (sizeof ending - 1);
    *bias = NULL;
    if (asked && !(*bias = woi_gguf_find(gguf, asked)))
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LAYER, "bias_name",
                              "the file has no tensor '%s' for the biases", woi_quote(quoted, asked, strlen(asked)));
    if (asked || weight->name_bytes < sizeof ending - 1 || weight->name_bytes >= sizeof name ||
        memcmp(weight->name + stem, ending, sizeof ending - 1) != 0)
        return WO_OK;
    memcpy(name, weight->name, stem);
    memcpy(name + stem, "bias", sizeof "bias");
    *bias = woi_gguf_find(gguf, name);
    return WO_OK;
}

/* The tensor's floats: where they are, or in *copy. */
static wo_status floats_of(const woi_gguf_tensor *t, woi_tensor *own, const float **floats, float **copy, wo_error *err)
{
    static const char f32[] = "F32";
    if (!(own->name = woi_copy_text(t->name, t->name_bytes, err))) return WO_ERR_MEMORY;
    if (strcmp(woi_gguf_type_name(t->type), f32) == 0 && (uintptr_t)t->data % sizeof(float) == 0) {
        *floats = t->data;
        return WO_OK;
    }
    /* Blocks are at least 4.5 bits a number, so that this is in proportion to the file. What is not read has no bytes.
     */
    if (t->bytes && !(*copy = woi_alloc((size_t)t->n, sizeof **copy, err))) return WO_ERR_MEMORY;
    *floats = *copy;
    return woi_gguf_read(t, *copy, err);
}

static wo_status add_name(woi_names *names, const char *token, size_t bytes, wo_error *err)
{
    if (woi_utf8_valid(token, bytes) && !memchr(token, '\n', bytes) && !memchr(token, '\0', bytes))
        return woi_names_append(names, token, bytes, err);
    /* "<0x0A>", as tokenizers call a byte that is a token. */
    char *text = NULL;
    size_t room = 0;
    wo_status status = woi_grow(&text, &room, 0, 6 * bytes + 1, 1, err);
    for (size_t i = 0; !status && i < bytes; i++) snprintf(text + 6 * i, 7, "<0x%02X>", (unsigned char)token[i]);
    if (!status) status = woi_names_append(names, text, 6 * bytes, err);
    woi_free(text);
    return status;
}

static wo_status read_names(wo_layer *layer, wo_error *err)
{
    const char *entry = layer->gguf.tokens;
    wo_status status = WO_OK;
    if (!entry || layer->gguf.n_tokens != layer->dense.m) return WO_OK;
    for (size_t i = 0; !status && i < layer->dense.m; i++) {
        size_t bytes;
        const char *token = woi_gguf_token(&entry, &bytes);
        status = add_name(&layer->labels, token, bytes, err);
    }
    return status;
}

wo_status woi_layer_read_gguf(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err)
{
    const woi_gguf_tensor *weight, *bias;
    woi_dense *dense = &layer->dense;
    char quoted[WOI_QUOTE_BYTES];
    wo_status status;
    if (options->bias_path)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "bias_path",
                              "the file is no .npy file, and only beside one do biases have a file of their own");
    if ((status = woi_gguf_open(path, &layer->gguf, err)) ||
        (status = find_weight(&layer->gguf, options->weight_name, &weight, err)) ||
        (status = find_bias(&layer->gguf, weight, options->bias_name, &bias, err)))
        return status;
    if (weight->n_dims != 2)
        return woi_fail(err, WO_ERR_FORMAT, weight->offset, "tensor '%s' has %d dimensions, expected 2",
                        woi_quote(quoted, weight->name, weight->name_bytes), weight->n_dims);
    if ((status = woi_layer_check_shape(weight->shape[1], weight->shape[0], WO_ERR_FORMAT, err))) return status;
    dense->m = (size_t)weight->shape[1];
    dense->d = (size_t)weight->shape[0];
    if (bias && bias->n != dense->m)
        return woi_fail(err, WO_ERR_FORMAT, bias->offset,
                        "tensor '%s' has %" PRIu64 " numbers, expected %zu, one for each class",
                        woi_quote(quoted, bias->name, bias->name_bytes), bias->n, dense->m);
    if ((status = floats_of(weight, &layer->own[0], &dense->w, &layer->copy_w, err)) ||
        (bias && (status = floats_of(bias, &layer->own[1], &dense->b, &layer->copy_b, err))))
        return status;
    layer->weight = &layer->own[0];
    if (bias) layer->bias = &layer->own[1];
    if ((status = woi_layer_scan(layer, layer->own[0].name, layer->own[1].name, WO_ERR_FORMAT, err))) return status;
    return read_names(layer, err);
}
