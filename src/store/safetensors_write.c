/* Writing our own safetensors files: streamed, checksummed, complete or absent.
 *
 * Every checksum is as long as any other, so the header is written first with zeros in their place, then the data pass
 * through, and at the end the header is written again, over itself, with the digits filled in. Every tensor begins at a
 * multiple of 64 bytes; the gaps are tensors too ("padding.0", ...), because the format allows no holes.
 *
 * A stream is written where sizes are not known before: room is kept for the header, tensors are declared one after the
 * other, each when the one before it is complete, and the last one may grow. */
#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"
#include "store/safetensors.h"
#include "store/store.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct declared {
    char *name;
    woi_dtype dtype;
    int n_dims;
    uint64_t shape[WOI_MAX_DIMS];
    size_t bytes;
    char digits[WOI_ST_DIGITS + 1];
} declared;

struct woi_st_writer {
    woi_outfile *out;
    json_t *metadata;
    declared *tensors;
    size_t n_tensors, capacity;
    size_t n_padding;
    size_t data_bytes;   /* declared so far */
    bool header_written; /* declarations are over, unless it is a stream */
    bool streaming;
    size_t settled;      /* tensors that will not grow any more */
    bool synced;         /* nothing is left but the names */
    size_t header_bytes; /* of the header, spaces included */
    size_t current;      /* the tensor that data go to, and */
    size_t filled;       /* how much of it is there */
    XXH3_state_t hash;   /* of those bytes */
};

static wo_status json_failed(wo_error *err)
{
    return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory while making a header");
}

wo_status woi_st_create(const char *path, const char *kind, woi_st_writer **result, wo_error *err)
{
    woi_st_writer *writer = woi_alloc_zero(1, sizeof *writer, err);
    if (!writer) return WO_ERR_MEMORY;
    wo_status status = WO_OK;
    if (!(writer->metadata = json_object())) status = json_failed(err);
    if (!status) status = woi_st_set_meta(writer, "kind", kind, err);
    if (!status) status = woi_st_set_meta(writer, WOI_ST_FORMAT, WOI_ST_FORMAT_VERSION, err);
    if (!status) status = woi_st_set_meta(writer, WOI_ST_VERSION, wo_version(), err);
    if (!status) status = woi_outfile_create(path, &writer->out, err);
    if (status)
        woi_st_writer_free(writer);
    else
        *result = writer;
    return status;
}

wo_status woi_st_set_meta(woi_st_writer *writer, const char *key, const char *value, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    if (!woi_utf8_valid(key, strlen(key)) || !woi_utf8_valid(value, strlen(value)))
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "metadata '%s' is not UTF-8",
                        woi_quote(quoted, key, strlen(key)));
    return json_object_set_new(writer->metadata, key, json_string(value)) == 0 ? WO_OK : json_failed(err);
}

/* `given` has all but its name and digits. */
static wo_status append_declared(woi_st_writer *writer, const char *name, const declared *given, wo_error *err)
{
    wo_status status = woi_grow(&writer->tensors, &writer->capacity, writer->n_tensors, writer->n_tensors + 1,
                                sizeof *writer->tensors, err);
    if (status) return status;
    declared *tensor = &writer->tensors[writer->n_tensors];
    *tensor = *given;
    if (!(tensor->name = woi_copy_text(name, strlen(name), err))) return WO_ERR_MEMORY;
    writer->n_tensors++;
    memset(tensor->digits, '0', WOI_ST_DIGITS);
    writer->data_bytes += given->bytes;
    return WO_OK;
}

static wo_status end_tensor(woi_st_writer *writer, wo_error *err);

/* No tensor that is declared so far grows any more; all must be complete. */
static wo_status settle(woi_st_writer *writer, wo_error *err)
{
    const size_t before = writer->settled;
    writer->settled = writer->n_tensors;
    const wo_status status = end_tensor(writer, err);
    if (status || writer->current == writer->n_tensors) return status;
    writer->settled = before; /* it may still be completed, or grow */
    char quoted[WOI_QUOTE_BYTES];
    const declared *tensor = &writer->tensors[writer->current];
    return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "tensor '%s' got %zu of its %zu bytes",
                    woi_quote(quoted, tensor->name, strlen(tensor->name)), writer->filled, tensor->bytes);
}

wo_status woi_st_declare(woi_st_writer *writer, const char *name, woi_dtype dtype, int n_dims, const uint64_t *shape,
                         wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    woi_quote(quoted, name, strlen(name));
    if (writer->header_written && !writer->streaming)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "tensor '%s' is declared after data were written", quoted);
    if (n_dims < 0 || n_dims > WOI_MAX_DIMS)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "tensor '%s' has %d dimensions, at most %d", quoted, n_dims,
                        WOI_MAX_DIMS);
    if (!woi_utf8_valid(name, strlen(name)))
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the name '%s' of a tensor is not UTF-8", quoted);
    if (strcmp(name, "header") == 0 || strcmp(name, WOI_ST_METADATA) == 0 || strncmp(name, "padding.", 8) == 0)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "a tensor cannot be named '%s'", quoted);
    for (size_t i = 0; i < writer->n_tensors; i++)
        if (strcmp(name, writer->tensors[i].name) == 0)
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "tensor '%s' is declared twice", quoted);
    size_t bytes = woi_dtype_bytes(dtype), end;
    bool fits = true;
    for (int i = 0; fits && i < n_dims; i++) fits = woi_size_mul(bytes, shape[i], &bytes);
    if (!fits || !woi_size_add(writer->data_bytes, bytes, &end) || end > INT64_MAX - WOI_ST_ALIGN)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "tensor '%s' is too large for a file", quoted);

    wo_status status = writer->streaming ? settle(writer, err) : WO_OK;
    const uint64_t gap = (uint64_t)(-writer->data_bytes) % WOI_ST_ALIGN;
    if (!status && gap && bytes) {
        char padding[32];
        snprintf(padding, sizeof padding, "padding.%zu", writer->n_padding++);
        const declared filler = {.dtype = WOI_U8, .n_dims = 1, .shape = {gap}, .bytes = (size_t)gap};
        status = append_declared(writer, padding, &filler, err);
        if (!status && writer->streaming) status = settle(writer, err);
    }
    declared tensor = {.dtype = dtype, .n_dims = n_dims, .bytes = bytes};
    memcpy(tensor.shape, shape, (size_t)n_dims * sizeof *shape);
    return status ? status : append_declared(writer, name, &tensor, err);
}

wo_status woi_st_grow(woi_st_writer *writer, uint64_t rows, wo_error *err)
{
    declared *tensor = &writer->tensors[writer->n_tensors - 1];
    size_t bytes = woi_dtype_bytes(tensor->dtype), end;
    bool fits = woi_size_mul(bytes, rows, &bytes);
    for (int i = 1; fits && i < tensor->n_dims; i++) fits = woi_size_mul(bytes, tensor->shape[i], &bytes);
    if (!fits || !woi_size_add(writer->data_bytes, bytes, &end) || end > INT64_MAX - WOI_ST_ALIGN)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "tensor '%s' is too large for a file", tensor->name);
    tensor->shape[0] += rows;
    tensor->bytes += bytes;
    writer->data_bytes = end;
    return WO_OK;
}

static json_t *describe(const declared *tensor, size_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < tensor->n_dims; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    /* "o" takes the reference, also on failure. */
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", woi_dtype_name(tensor->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + tensor->bytes));
}

/* The header as it stands in the file, checksums as far as known; spaces fill it up to a multiple of 64 with the 8
 * bytes of length before it, or as much room as is kept for it. */
static wo_status make_header(const woi_st_writer *writer, char **text, size_t *bytes, wo_error *err)
{
    wo_status status = WO_OK;
    char *compact = NULL, *key = NULL;
    size_t begin = 0;
    json_t *root = json_object(), *metadata = json_deep_copy(writer->metadata);
    if (!root || !metadata) {
        status = json_failed(err);
        goto done;
    }
    if (json_object_set(root, WOI_ST_METADATA, metadata) != 0) status = json_failed(err);
    for (size_t i = 0; !status && i < writer->n_tensors; i++) {
        const declared *tensor = &writer->tensors[i];
        size_t key_bytes = sizeof WOI_ST_CHECKSUM + strlen(tensor->name);
        if (!(key = woi_alloc(key_bytes, 1, err))) {
            status = WO_ERR_MEMORY;
            break;
        }
        snprintf(key, key_bytes, "%s%s", WOI_ST_CHECKSUM, tensor->name);
        if (json_object_set_new(metadata, key, json_string(tensor->digits)) != 0 ||
            json_object_set_new(root, tensor->name, describe(tensor, begin)) != 0)
            status = json_failed(err);
        woi_free(key);
        begin += tensor->bytes;
    }
    if (!status && json_object_set_new(metadata, WOI_ST_CHECKSUM "header", json_string("0000000000000000")) != 0)
        status = json_failed(err);
    if (status) goto done;
    size_t used = json_dumpb(root, NULL, 0, JSON_COMPACT), room;
    if (used == 0 || !woi_size_round_up(used + 8, WOI_ST_ALIGN, &room)) {
        status = json_failed(err);
        goto done;
    }
    room -= 8;
    if (room < writer->header_bytes) room = writer->header_bytes;
    if (!(compact = woi_alloc(room, 1, err))) {
        status = WO_ERR_MEMORY;
        goto done;
    }
    if (json_dumpb(root, compact, used, JSON_COMPACT) != used) {
        woi_free(compact);
        status = json_failed(err);
        goto done;
    }
    memset(compact + used, ' ', room - used);
    *text = compact;
    *bytes = room;
done:
    json_decref(metadata);
    json_decref(root);
    return status;
}

static wo_status begin_data(woi_st_writer *writer, wo_error *err)
{
    char *text = NULL;
    wo_status status = make_header(writer, &text, &writer->header_bytes, err);
    uint64_t length = writer->header_bytes;
    if (!status) status = woi_outfile_write(writer->out, &length, sizeof length, err);
    if (!status) status = woi_outfile_write(writer->out, text, writer->header_bytes, err);
    woi_free(text);
    writer->header_written = true;
    writer->settled = writer->n_tensors;
    XXH3_64bits_reset(&writer->hash);
    return status ? status : end_tensor(writer, err);
}

wo_status woi_st_stream(woi_st_writer *writer, size_t spare, wo_error *err)
{
    char *text = NULL;
    size_t planned = 0, room;
    wo_status status = make_header(writer, &text, &planned, err);
    woi_free(text);
    if (status) return status;
    if (!woi_size_add(planned + 8, spare, &room) || !woi_size_round_up(room, WOI_ST_ALIGN, &room))
        return json_failed(err);
    for (size_t i = 0; i < writer->n_tensors; i++) woi_free(writer->tensors[i].name);
    writer->n_tensors = writer->n_padding = writer->data_bytes = 0;
    writer->header_bytes = room - 8;
    writer->streaming = true;
    return begin_data(writer, err);
}

static wo_status put(woi_st_writer *writer, const void *data, size_t bytes, wo_error *err)
{
    XXH3_64bits_update(&writer->hash, data, bytes);
    writer->filled += bytes;
    return woi_outfile_write(writer->out, data, bytes, err);
}

/* Closes the current tensor when it is full, and fills the padding and passes the empty tensors that follow. */
static wo_status end_tensor(woi_st_writer *writer, wo_error *err)
{
    static const unsigned char zeros[WOI_ST_ALIGN];
    while (writer->current < writer->settled) {
        declared *tensor = &writer->tensors[writer->current];
        if (strncmp(tensor->name, "padding.", 8) == 0) {
            wo_status status = put(writer, zeros, tensor->bytes, err);
            if (status) return status;
        }
        if (writer->filled < tensor->bytes) break;
        woi_st_checksum_digits(XXH3_64bits_digest(&writer->hash), tensor->digits);
        XXH3_64bits_reset(&writer->hash);
        writer->filled = 0;
        writer->current++;
    }
    return WO_OK;
}

wo_status woi_st_append(woi_st_writer *writer, const void *data, size_t bytes, wo_error *err)
{
    wo_status status = writer->header_written ? WO_OK : begin_data(writer, err);
    const char *from = data;
    while (!status && bytes > 0) {
        const bool past = writer->current == writer->n_tensors;
        const size_t left = past ? 0 : writer->tensors[writer->current].bytes - writer->filled;
        const size_t part = bytes < left ? bytes : left;
        if (left == 0)
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "%zu bytes were written past the last tensor", bytes);
        if ((status = put(writer, from, part, err))) break;
        from += part;
        bytes -= part;
        status = end_tensor(writer, err);
    }
    return status;
}

wo_status woi_st_sync(woi_st_writer *writer, wo_error *err)
{
    if (writer->synced) return WO_OK;
    wo_status status = writer->header_written ? WO_OK : begin_data(writer, err);
    if (!status) status = settle(writer, err);
    if (status) return status;
    char *text = NULL, digits[WOI_ST_DIGITS + 1];
    size_t bytes = 0;
    if ((status = make_header(writer, &text, &bytes, err))) return status;
    if (bytes > writer->header_bytes) {
        woi_free(text);
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the header has %zu bytes, room was kept for %zu", bytes,
                        writer->header_bytes);
    }
    woi_st_header_checksum(text, bytes, digits);
    memcpy((char *)(uintptr_t)woi_st_header_digits(text, bytes), digits, WOI_ST_DIGITS);
    status = woi_outfile_patch(writer->out, 8, text, bytes, err);
    woi_free(text);
    if (!status) status = woi_outfile_sync(writer->out, err);
    writer->synced = !status;
    return status;
}

wo_status woi_st_read_back(woi_st_writer *writer, const void **data, size_t *bytes, wo_error *err)
{
    const wo_status status = woi_st_sync(writer, err);
    return status ? status : woi_outfile_map(writer->out, data, bytes, err);
}

wo_status woi_st_name(woi_st_writer *writer, wo_error *err)
{
    const wo_status status = woi_st_sync(writer, err);
    return status ? status : woi_outfile_name(writer->out, err);
}

wo_status woi_st_finish(woi_st_writer *writer, wo_error *err)
{
    wo_status status = woi_st_sync(writer, err);
    return status ? status : woi_outfile_commit(writer->out, err);
}

void woi_st_writer_free(woi_st_writer *writer)
{
    if (!writer) return;
    for (size_t i = 0; i < writer->n_tensors; i++) woi_free(writer->tensors[i].name);
    woi_free(writer->tensors);
    json_decref(writer->metadata);
    woi_outfile_free(writer->out);
    woi_free(writer);
}
