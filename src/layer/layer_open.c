/* Opening a file as a wide layer: what kind of file it is decides who reads it, layer.c or gguf_layer.c. */
#include "layer/layer.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/sized.h"

static wo_status open_safetensors(const char *path, const wo_layer_options *options, wo_layer **layer, wo_error *err)
{
    woi_st *st = NULL;
    if (options->bias_path)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "bias_path",
                              "the file is no .npy file, and only beside one do biases have a file of their own");
    const wo_status status = woi_st_open(path, &st, err);
    return status ? status : woi_layer_read(st, options, layer, err);
}

/* Files whose reader fills a layer that is there. */
typedef wo_status (*read_fn)(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err);

static wo_status open_by(read_fn read, const char *path, const wo_layer_options *options, wo_layer **layer,
                         wo_error *err)
{
    wo_layer *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    const wo_status status = read(made, path, options, err);
    if (status)
        wo_layer_free(made);
    else
        *layer = made;
    return status;
}

static wo_status open_any(const char *path, const wo_layer_options *options, wo_layer **layer, wo_error *err)
{
    woi_file_kind kind;
    const wo_status status = woi_file_recognise(path, &kind, err);
    if (status) return status;
    if (kind == WOI_FILE_NPY) return open_by(woi_layer_read_npy, path, options, layer, err);
    if (kind == WOI_FILE_GGUF) return open_by(woi_layer_read_gguf, path, options, layer, err);
    if (kind == WOI_FILE_FASTTEXT) return open_by(woi_layer_read_fasttext, path, options, layer, err);
    if (kind == WOI_FILE_SAFETENSORS || kind == WOI_FILE_SHARD_INDEX)
        return open_safetensors(path, options, layer, err);
    if (kind == WOI_FILE_GZIP) return woi_refuse_gzip("\x1f\x8b", 2, err);
    return woi_fail(err, WO_ERR_FORMAT, 0, "the file is no layer: expected safetensors, .npy, GGUF or fastText");
}

wo_status wo_layer_open(const char *path, const wo_layer_options *options, wo_layer **layer, wo_error *err)
{
    if (!path || !layer) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the path or the result is NULL");
    *layer = NULL;
    wo_layer_options o = {.struct_size = sizeof o};
    wo_status status = woi_sized_take(&o, sizeof o, options, "layer options", err);
    if (!status) status = woi_check_range("verify", o.verify, WO_VERIFY_ALL, WO_VERIFY_NONE, err);
    if (!status) status = woi_check_range("reserved", o.reserved, 0, 0, err);
    if (!status) status = woi_about(err, WO_ABOUT_LAYER, open_any(path, &o, layer, err));
    if (status || o.n_parts < 2 || !*layer || (*layer)->shard.count) return status;
    if ((status = wo_layer_take_part(*layer, o.part, o.n_parts, err))) {
        wo_layer_free(*layer);
        *layer = NULL;
    }
    return status;
}
