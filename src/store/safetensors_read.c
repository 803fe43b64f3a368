/* Reading safetensors: a mapped file whose header was checked before anything in it is used.
 *
 *   +--------------------+----------------------------+-----------------------------------+
 *   | u64 header length  | header: JSON, then spaces  | data: tensors, no gaps, no overlap |
 *   +--------------------+----------------------------+-----------------------------------+
 *   {"__metadata__": {string: string}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
 *
 * A sharded model is a JSON file {"weight_map": {"name": "shard file"}}; its shards are opened together and look like
 * one file. What makes a file our own, and its checksums, is in safetensors.h. */
#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"
#include "store/map.h"
#include "store/safetensors.h"
#include "store/store.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHARDS 10000
#define MAX_JSON 4194304u /* what a JSON text may hold, in parts: see measure_json */

typedef struct shard {
    const unsigned char *map;
    bool borrowed; /* the caller's memory: not unmapped */
    size_t map_bytes;
    json_t *header; /* owns the names and metadata strings that tensors point to */
    char *name;
} shard;

struct woi_st {
    size_t n_shards, n_tensors;
    shard *shards;
    woi_tensor *tensors;        /* by shard, then by place in the data */
    const woi_tensor **by_name; /* sorted, for woi_st_find */
};

static wo_status fail_format(wo_error *err, uint64_t offset, const char *tensor, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "tensor 'NAME': ..." */
static wo_status fail_format(wo_error *err, uint64_t offset, const char *tensor, const char *format, ...)
{
    if (!err) return WO_ERR_FORMAT;
    char quoted[WOI_QUOTE_BYTES], rest[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(rest, sizeof rest, format, args);
    va_end(args);
    return woi_fail(err, WO_ERR_FORMAT, offset, "tensor '%s': %s", woi_quote(quoted, tensor, strlen(tensor)), rest);
}

/* jansson's own message ends in "near '...'" with raw bytes of the file; keep what can stand on a terminal. */
static wo_status fail_json(wo_error *err, const char *what, uint64_t offset, const json_error_t *json)
{
    /* jansson often leaves its error empty when memory runs out. */
    if (json_error_code(json) == json_error_out_of_memory || json->text[0] == '\0')
        return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory while reading the %s", what);
    char text[JSON_ERROR_TEXT_LENGTH];
    size_t n = 0;
    for (const char *c = json->text; *c && n + 1 < sizeof text; c++)
        if ((unsigned char)*c >= 0x20 && *c != 0x7f) text[n++] = *c;
    text[n] = '\0';
    return woi_fail(err, WO_ERR_FORMAT, offset + (uint64_t)(json->position > 0 ? json->position : 0),
                    "%s: line %d, column %d: %.120s", what, json->line, json->column, text);
}

/* What a parsed text would take, found without parsing it: an object counts 4, a list 2, a string or a number 1, each
 * of some 80 bytes. What comes after a mistake counts too; the parser stops there. */
static size_t measure_json(const char *text, size_t bytes)
{
    size_t parts = 1;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"')
            for (i++; i < bytes && text[i] != '"'; i++) i += text[i] == '\\';
        else if (text[i] == '{')
            parts += 4;
        else if (text[i] == '[')
            parts += 2;
        else if (text[i] == ',')
            parts++;
    }
    return parts;
}

/* Parses a text whose memory is in proportion to its bytes: the shortest entry of a tensor, with eight dimensions, has
 * 66 bytes and 19 parts, so that no model of anyone's has more than a part in three bytes. */
static wo_status parse_json(const char *what, const char *text, size_t bytes, uint64_t offset, json_t **to,
                            wo_error *err)
{
    const size_t parts = measure_json(text, bytes), most = bytes / 3 + 64 < MAX_JSON ? bytes / 3 + 64 : MAX_JSON;
    if (parts > most)
        return woi_fail(err, WO_ERR_FORMAT, offset,
                        "%s: its %zu bytes hold more lists, objects and numbers than a model's would", what, bytes);
    json_error_t json;
    *to = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &json);
    return *to ? WO_OK : fail_json(err, what, offset, &json);
}

/* ---- One file ---------------------------------------------------------------------------------------------- */

/* What a value is, where it should be something else. */
static const char *type_of(const json_t *value)
{
    if (!value) return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_NULL: return "null";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    default: return "a number";
    }
}

static wo_status read_dtype(const char *name, const json_t *value, woi_dtype *dtype, wo_error *err)
{
    const char *text = json_string_value(value);
    if (!text) return fail_format(err, 8, name, "dtype is %s, expected a string", type_of(value));
    for (int i = 0; i < WOI_N_DTYPES; i++)
        if (strcmp(text, woi_dtype_name((woi_dtype)i)) == 0) {
            *dtype = (woi_dtype)i;
            return WO_OK;
        }
    char quoted[WOI_QUOTE_BYTES];
    return fail_format(err, 8, name, "dtype '%s' is not one that wideout knows", woi_quote(quoted, text, strlen(text)));
}

static wo_status read_count(const char *name, const char *what, size_t i, const json_t *value, uint64_t *count,
                            wo_error *err)
{
    if (json_is_real(value))
        return fail_format(err, 8, name, "%s[%zu] is %g, expected a whole number", what, i, json_real_value(value));
    if (!json_is_integer(value))
        return fail_format(err, 8, name, "%s[%zu] is %s, expected a whole number", what, i, type_of(value));
    if (json_integer_value(value) < 0)
        return fail_format(err, 8, name, "%s[%zu] is %" JSON_INTEGER_FORMAT ", expected 0 or more", what, i,
                           json_integer_value(value));
    *count = (uint64_t)json_integer_value(value);
    return WO_OK;
}

static wo_status read_tensor(const shard *file, const char *name, const json_t *entry, woi_tensor *tensor,
                             wo_error *err)
{
    tensor->name = name;
    if (!json_is_object(entry)) return fail_format(err, 8, name, "its entry is %s, expected an object", type_of(entry));
    wo_status status = read_dtype(name, json_object_get(entry, "dtype"), &tensor->dtype, err);
    if (status) return status;

    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(shape)) return fail_format(err, 8, name, "shape is %s, expected a list", type_of(shape));
    if (json_array_size(shape) > WOI_MAX_DIMS)
        return fail_format(err, 8, name, "shape has %zu dimensions, at most %d are supported", json_array_size(shape),
                           WOI_MAX_DIMS);
    tensor->n_dims = (int)json_array_size(shape);
    size_t n = 1, bytes;
    for (int i = 0; i < tensor->n_dims; i++) {
        status = read_count(name, "shape", (size_t)i, json_array_get(shape, (size_t)i), &tensor->shape[i], err);
        if (status) return status;
        if (!woi_size_mul(n, tensor->shape[i], &n))
            return fail_format(err, 8, name, "the product of its shape overflows at shape[%d] = %" PRIu64, i,
                               tensor->shape[i]);
    }
    if (!woi_size_mul(n, woi_dtype_bytes(tensor->dtype), &bytes))
        return fail_format(err, 8, name, "%zu elements of %s overflow", n, woi_dtype_name(tensor->dtype));

    if (!json_is_array(offsets))
        return fail_format(err, 8, name, "data_offsets is %s, expected a list of two", type_of(offsets));
    if (json_array_size(offsets) != 2)
        return fail_format(err, 8, name, "data_offsets has %zu entries, expected two", json_array_size(offsets));
    uint64_t begin = 0, end = 0;
    if ((status = read_count(name, "data_offsets", 0, json_array_get(offsets, 0), &begin, err)) ||
        (status = read_count(name, "data_offsets", 1, json_array_get(offsets, 1), &end, err)))
        return status;
    uint64_t header_bytes;
    memcpy(&header_bytes, file->map, 8);
    uint64_t data_start = 8 + header_bytes, data_bytes = file->map_bytes - data_start;
    if (end < begin)
        return fail_format(err, 8, name, "data_offsets go backwards, from %" PRIu64 " to %" PRIu64, begin, end);
    if (end > data_bytes)
        return fail_format(err, 8, name, "data ends at byte %" PRIu64 ", but the file holds %" PRIu64 " bytes of data",
                           end, data_bytes);
    if (end - begin != bytes)
        return fail_format(err, 8, name, "data_offsets span %" PRIu64 " bytes, but its shape and dtype %s take %zu",
                           end - begin, woi_dtype_name(tensor->dtype), bytes);
    tensor->n = n;
    tensor->bytes = bytes;
    tensor->offset = data_start + begin;
    tensor->data = file->map + tensor->offset;
    return WO_OK;
}

static int by_offset(const void *a, const void *b)
{
    const woi_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sorted by offset: each must begin where the one before ends, and the last must end with the file. */
static wo_status check_layout(const shard *file, const woi_tensor *tensors, size_t n, uint64_t data_start,
                              wo_error *err)
{
    uint64_t end = data_start;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].offset > end)
            return fail_format(err, end, tensors[i].name,
                               "it begins at byte %" PRIu64 " of the data, leaving a hole of %" PRIu64 " bytes",
                               tensors[i].offset - data_start, tensors[i].offset - end);
        if (tensors[i].offset < end)
            return fail_format(err, tensors[i].offset, tensors[i].name,
                               "it begins at byte %" PRIu64 " of the data, inside the tensor before it",
                               tensors[i].offset - data_start);
        end += tensors[i].bytes;
    }
    if (end != file->map_bytes)
        return woi_fail(err, WO_ERR_FORMAT, end, "%" PRIu64 " bytes follow the last tensor, at byte %" PRIu64,
                        (uint64_t)file->map_bytes - end, end);
    return WO_OK;
}

static wo_status check_metadata(const json_t *metadata, wo_error *err)
{
    if (!metadata) return WO_OK;
    if (!json_is_object(metadata))
        return woi_fail(err, WO_ERR_FORMAT, 8, "__metadata__ is %s, expected an object", type_of(metadata));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (json_is_string(value)) continue;
        char quoted[WOI_QUOTE_BYTES];
        return woi_fail(err, WO_ERR_FORMAT, 8, "__metadata__: the value of '%s' is %s, expected a string",
                        woi_quote(quoted, key, strlen(key)), type_of(value));
    }
    return WO_OK;
}

/* Any of its keys makes a file ours, so that no single damage makes it pass for another's. */
static bool is_ours(const json_t *metadata)
{
    return json_object_get(metadata, WOI_ST_FORMAT) || json_object_get(metadata, WOI_ST_VERSION) ||
           json_object_get(metadata, WOI_ST_CHECKSUM "header");
}

/* Whether a format, "1" or "1.2", is of the major version that is read here. */
static bool is_readable(const char *format)
{
    static const char major[] = WOI_ST_FORMAT_VERSION;
    const size_t length = sizeof major - 1;
    if (strncmp(format, major, length) != 0) return false;
    const char *minor = format + length;
    if (*minor == '\0') return true;
    return *minor++ == '.' && *minor && strspn(minor, "0123456789") == strlen(minor);
}

/* What a reader of this version knows of what files may need. */
static const char *const features[] = {"mixture",         "partition", "prior",       "removed",
                                       "screen-fallback", "shards",    "uneven-tree", NULL};

static wo_status check_needs(const json_t *metadata, wo_error *err)
{
    const char *needs = json_string_value(json_object_get(metadata, WOI_ST_NEEDS));
    const char *by = json_string_value(json_object_get(metadata, WOI_ST_VERSION));
    while (needs && *needs) {
        const size_t bytes = strcspn(needs, ",");
        bool known = bytes == 0;
        for (const char *const *f = features; !known && *f; f++)
            known = strlen(*f) == bytes && memcmp(*f, needs, bytes) == 0;
        char name[WOI_QUOTE_BYTES], version[WOI_QUOTE_BYTES];
        if (!known)
            return woi_fail(err, WO_ERR_UNSUPPORTED, 8,
                            "the file was written by wideout %s and needs '%s', which version %s does not have",
                            woi_quote(version, by ? by : "?", by ? strlen(by) : 1), woi_quote(name, needs, bytes),
                            wo_version());
        needs += bytes + (needs[bytes] == ',');
    }
    return WO_OK;
}

/* A file of ours: written by a version that we know, unchanged, and of some kind. */
static wo_status check_own_header(const shard *file, size_t header_bytes, wo_error *err)
{
    const json_t *metadata = json_object_get(file->header, WOI_ST_METADATA);
    const char *stated = json_string_value(json_object_get(metadata, WOI_ST_CHECKSUM "header"));
    const char *format = json_string_value(json_object_get(metadata, WOI_ST_FORMAT));
    char digits[WOI_ST_DIGITS + 1], quoted[WOI_QUOTE_BYTES];
    if (format && !is_readable(format))
        return woi_fail(err, WO_ERR_UNSUPPORTED, 8,
                        "the file was written in format '%s', this version of wideout reads format %s",
                        woi_quote(quoted, format, strlen(format)), WOI_ST_FORMAT_VERSION);
    if (!stated || !woi_st_header_checksum((const char *)file->map + 8, header_bytes, digits))
        return woi_fail(err, WO_ERR_CHECKSUM, 8, "the header of a wideout file has no checksum in its place");
    if (strcmp(digits, stated) != 0)
        return woi_fail(err, WO_ERR_CHECKSUM, 8, "the header was changed: its checksum is %s, the file says '%s'",
                        digits, woi_quote(quoted, stated, strlen(stated)));
    if (!format || !json_object_get(metadata, "kind"))
        return woi_fail(err, WO_ERR_FORMAT, 8, "the metadata of a wideout file have no %s", format ? "kind" : "format");
    return check_needs(metadata, err);
}

/* Appends the tensors of a shard that is in memory. */
static wo_status read_shard(woi_st *st, size_t i, wo_error *err)
{
    shard *file = &st->shards[i];
    wo_status status;
    if (file->map_bytes < 8)
        return woi_fail(err, WO_ERR_FORMAT, 0,
                        "the file has %zu bytes, a safetensors file begins with 8 bytes of header length",
                        file->map_bytes);
    uint64_t header_bytes;
    memcpy(&header_bytes, file->map, 8);
    if (header_bytes > WOI_ST_MAX_HEADER)
        return woi_fail(err, WO_ERR_FORMAT, 0, "the header length %" PRIu64 " is over the limit of %u bytes",
                        header_bytes, WOI_ST_MAX_HEADER);
    if (header_bytes > file->map_bytes - 8)
        return woi_fail(err, WO_ERR_FORMAT, 0, "the header length %" PRIu64 " is more than the %zu bytes that follow",
                        header_bytes, file->map_bytes - 8);
    const char *text = (const char *)file->map + 8;
    if (header_bytes == 0) return woi_fail(err, WO_ERR_FORMAT, 0, "the header length is 0");
    if (text[0] != '{') {
        char quoted[WOI_QUOTE_BYTES];
        return woi_fail(err, WO_ERR_FORMAT, 8, "the header begins with '%s', expected '{'", woi_quote(quoted, text, 1));
    }

    if ((status = parse_json("header", text, (size_t)header_bytes, 8, &file->header, err))) return status;
    json_t *metadata = json_object_get(file->header, WOI_ST_METADATA);
    if ((status = check_metadata(metadata, err))) return status;
    /* First of all: in a file of ours a flipped bit shall be called that, not whatever it happens to break. */
    if (is_ours(metadata) && (status = check_own_header(file, (size_t)header_bytes, err))) return status;

    size_t n = json_object_size(file->header) - (metadata ? 1 : 0), first = st->n_tensors, capacity = first;
    if ((status = woi_grow(&st->tensors, &capacity, first, first + n, sizeof *st->tensors, err))) return status;
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, WOI_ST_METADATA) == 0) continue;
        woi_tensor *tensor = &st->tensors[st->n_tensors];
        memset(tensor, 0, sizeof *tensor);
        if ((status = read_tensor(file, name, entry, tensor, err))) return status;
        tensor->shard = i;
        st->n_tensors++;
    }
    woi_tensor *own = st->tensors ? st->tensors + first : NULL;
    if (own) qsort(own, n, sizeof *own, by_offset);
    return check_layout(file, own, own ? n : 0, 8 + header_bytes, err);
}

static wo_status open_shard(woi_st *st, size_t i, const char *path, wo_error *err)
{
    shard *file = &st->shards[i];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (!(file->name = woi_copy_text(base, strlen(base), err))) return WO_ERR_MEMORY;
    const void *map = NULL;
    const wo_status status = woi_map(path, &map, &file->map_bytes, err);
    if (status) return status;
    file->map = map;
    return read_shard(st, i, err);
}

/* ---- Shards ------------------------------------------------------------------------------------------------ */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct shard names of a weight map, sorted. The strings belong to the JSON. */
static wo_status list_shards(json_t *weight_map, const char ***names, size_t *n_names, wo_error *err)
{
    size_t n = 0, entries = json_object_size(weight_map);
    const char **list = woi_alloc(entries, sizeof *list, err);
    if (!list) return WO_ERR_MEMORY;
    const char *tensor;
    json_t *value;
    json_object_foreach(weight_map, tensor, value)
    {
        const char *file = json_string_value(value);
        char quoted[WOI_QUOTE_BYTES];
        wo_status status = WO_OK;
        if (!file)
            status = fail_format(err, 0, tensor, "its shard in weight_map is not a string");
        else if (!*file || strchr(file, '/') || strcmp(file, ".") == 0 || strcmp(file, "..") == 0)
            /* A stranger's index must not send us to other folders. */
            status = fail_format(err, 0, tensor, "its shard '%s' is not a plain file name",
                                 woi_quote(quoted, file, strlen(file)));
        if (status) {
            woi_free(list);
            return status;
        }
        list[n++] = file;
    }
    qsort(list, n, sizeof *list, by_text);
    *n_names = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(list[i], list[i - 1]) != 0) list[(*n_names)++] = list[i];
    *names = list;
    return WO_OK;
}

/* Every name in the map must be in the shard that it names. */
static wo_status check_weight_map(const woi_st *st, json_t *weight_map, wo_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value)
    {
        const woi_tensor *tensor = woi_st_find(st, name);
        if (!tensor || strcmp(st->shards[tensor->shard].name, json_string_value(value)) != 0) {
            char quoted[WOI_QUOTE_BYTES];
            const char *file = json_string_value(value);
            return fail_format(err, 0, name, "weight_map puts it in shard '%s', which does not have it",
                               woi_quote(quoted, file, strlen(file)));
        }
    }
    return WO_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const woi_tensor *const *)a)->name, (*(const woi_tensor *const *)b)->name);
}

static wo_status index_names(woi_st *st, wo_error *err)
{
    st->by_name = woi_alloc(st->n_tensors, sizeof *st->by_name, err);
    if (!st->by_name) return WO_ERR_MEMORY;
    for (size_t i = 0; i < st->n_tensors; i++) st->by_name[i] = &st->tensors[i];
    qsort(st->by_name, st->n_tensors, sizeof *st->by_name, by_name);
    for (size_t i = 1; i < st->n_tensors; i++)
        if (strcmp(st->by_name[i]->name, st->by_name[i - 1]->name) == 0)
            return fail_format(err, 0, st->by_name[i]->name, "it stands in two shards");
    return WO_OK;
}

static wo_status alloc_shards(woi_st *st, size_t n, wo_error *err)
{
    if (!(st->shards = woi_alloc_zero(n, sizeof *st->shards, err))) return WO_ERR_MEMORY;
    st->n_shards = n;
    return WO_OK;
}

static wo_status open_sharded(woi_st *st, const char *path, wo_error *err)
{
    const void *map = NULL;
    size_t map_bytes = 0, n = 0;
    const char **names = NULL;
    char *shard_path = NULL;
    json_t *index = NULL;
    wo_status status = woi_map(path, &map, &map_bytes, err);
    if (status) return status;
    if (map_bytes > WOI_ST_MAX_HEADER) {
        status = woi_fail(err, WO_ERR_FORMAT, 0, "a JSON file of %zu bytes is over the limit of %u", map_bytes,
                          WOI_ST_MAX_HEADER);
        goto done;
    }
    if ((status = parse_json("JSON", map, map_bytes, 0, &index, err))) goto done;
    json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0) {
        status = woi_fail(err, WO_ERR_FORMAT, 0,
                          "the JSON file has no weight_map: expected the index of a sharded safetensors model");
        goto done;
    }
    if ((status = list_shards(weight_map, &names, &n, err))) goto done;
    if (n > MAX_SHARDS) {
        status = woi_fail(err, WO_ERR_FORMAT, 0, "the file names %zu shards, the limit is %d", n, MAX_SHARDS);
        goto done;
    }
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    if ((status = alloc_shards(st, n, err))) goto done;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(names[i]);
        status = WO_ERR_MEMORY;
        if (!(shard_path = woi_alloc(folder + length + 1, 1, err))) goto done;
        memcpy(shard_path, path, folder);
        memcpy(shard_path + folder, names[i], length + 1);
        if ((status = open_shard(st, i, shard_path, err))) {
            char quoted[WOI_QUOTE_BYTES], place[WOI_QUOTE_BYTES + 16];
            snprintf(place, sizeof place, "shard '%s'", woi_quote(quoted, names[i], length));
            woi_error_prefix(err, place);
            goto done;
        }
        woi_free(shard_path);
        shard_path = NULL;
    }
    if (!(status = index_names(st, err))) status = check_weight_map(st, weight_map, err);
done:
    woi_free(shard_path);
    woi_free(names);
    json_decref(index);
    woi_unmap(map, map_bytes);
    return status;
}

static wo_status open_single(woi_st *st, const char *path, wo_error *err)
{
    wo_status status = alloc_shards(st, 1, err);
    if (!status) status = open_shard(st, 0, path, err);
    return status ? status : index_names(st, err);
}

wo_status woi_st_open(const char *path, woi_st **result, wo_error *err)
{
    woi_file_kind kind;
    wo_status status = woi_file_recognise(path, &kind, err);
    if (status) return status;
    if (kind == WOI_FILE_GZIP) return woi_refuse_gzip("\x1f\x8b", 2, err);
    if (kind != WOI_FILE_SAFETENSORS && kind != WOI_FILE_SHARD_INDEX)
        return woi_fail(err, WO_ERR_FORMAT, 0, "the file is not a safetensors file");
    woi_st *st = woi_alloc_zero(1, sizeof *st, err);
    if (!st) return WO_ERR_MEMORY;
    status = kind == WOI_FILE_SHARD_INDEX ? open_sharded(st, path, err) : open_single(st, path, err);
    if (status)
        woi_st_free(st);
    else
        *result = st;
    return status;
}

wo_status woi_st_open_memory(const void *data, size_t bytes, woi_st **result, wo_error *err)
{
    if (!data || (uintptr_t)data % 8)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "a file in memory must begin at a multiple of 8 bytes");
    woi_st *st = woi_alloc_zero(1, sizeof *st, err);
    if (!st) return WO_ERR_MEMORY;
    static const char name[] = "memory";
    wo_status status = alloc_shards(st, 1, err);
    if (!status) {
        st->shards[0] = (shard){.map = data, .map_bytes = bytes, .borrowed = true};
        if (!(st->shards[0].name = woi_copy_text(name, sizeof name - 1, err))) status = WO_ERR_MEMORY;
    }
    if (!status) status = read_shard(st, 0, err);
    if (!status) status = index_names(st, err);
    if (status)
        woi_st_free(st);
    else
        *result = st;
    return status;
}

void woi_st_free(woi_st *st)
{
    if (!st) return;
    for (size_t i = 0; i < st->n_shards; i++) {
        woi_free(st->shards[i].name);
        json_decref(st->shards[i].header);
        if (!st->shards[i].borrowed) woi_unmap(st->shards[i].map, st->shards[i].map_bytes);
    }
    woi_free(st->by_name);
    woi_free(st->tensors);
    woi_free(st->shards);
    woi_free(st);
}

/* ---- Access ------------------------------------------------------------------------------------------------ */

size_t woi_st_n_tensors(const woi_st *st)
{
    return st->n_tensors;
}

const woi_tensor *woi_st_tensor(const woi_st *st, size_t i)
{
    return &st->tensors[i];
}

const woi_tensor *woi_st_find(const woi_st *st, const char *name)
{
    size_t low = 0, high = st->n_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, st->by_name[middle]->name);
        if (order == 0) return st->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

size_t woi_st_n_shards(const woi_st *st)
{
    return st->n_shards;
}

const char *woi_st_shard_name(const woi_st *st, size_t i)
{
    return st->shards[i].name;
}

static json_t *metadata_of(const woi_st *st)
{
    return json_object_get(st->shards[0].header, WOI_ST_METADATA);
}

bool woi_st_meta_next(const woi_st *st, void **cursor, const char **key, const char **value)
{
    json_t *metadata = metadata_of(st);
    *cursor = *cursor ? json_object_iter_next(metadata, *cursor) : json_object_iter(metadata);
    if (!*cursor) return false;
    *key = json_object_iter_key(*cursor);
    *value = json_string_value(json_object_iter_value(*cursor));
    return true;
}

const char *woi_st_meta(const woi_st *st, const char *key)
{
    return json_string_value(json_object_get(metadata_of(st), key));
}

const char *woi_st_kind(const woi_st *st)
{
    return woi_st_meta(st, WOI_ST_FORMAT) ? woi_st_meta(st, "kind") : NULL;
}

const char *woi_st_version(const woi_st *st)
{
    const char *version = woi_st_meta(st, WOI_ST_VERSION);
    return version ? version : "?";
}
