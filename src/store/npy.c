/* Reading NumPy's .npy files, versions 1 to 3.
 *
 *   "\x93NUMPY" | major | minor | u16 or (from version 2) u32 header length | header | data
 *
 * The header is a Python dict literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. We parse just that
 * much of Python: strings, True and False, tuples of whole numbers. Object arrays are pickles and are refused. */
#include "base/error.h"
#include "base/size.h"
#include "store/map.h"
#include "store/store.h"

#include <inttypes.h>
#include <string.h>

/* ---- The header -------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *start; /* of the file */
    const char *at, *end;
} reader;

static wo_status fail_header(const reader *in, wo_error *err, const char *expected)
{
    char quoted[WOI_QUOTE_BYTES];
    uint64_t offset = (uint64_t)(in->at - in->start);
    if (in->at == in->end)
        return woi_fail(err, WO_ERR_FORMAT, offset, "header: it ends at byte %" PRIu64 ", expected %s", offset,
                        expected);
    return woi_fail(err, WO_ERR_FORMAT, offset, "header: byte %" PRIu64 ": expected %s, found '%s'", offset, expected,
                    woi_quote(quoted, in->at, (size_t)(in->end - in->at) < 12 ? (size_t)(in->end - in->at) : 12));
}

static void skip_space(reader *in)
{
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\t')) in->at++;
}

static bool take(reader *in, const char *text)
{
    skip_space(in);
    size_t n = strlen(text);
    if ((size_t)(in->end - in->at) < n || memcmp(in->at, text, n) != 0) return false;
    in->at += n;
    return true;
}

/* 'text' or "text"; escapes do not occur in what we read, so a backslash is refused. */
static wo_status take_string(reader *in, const char **text, size_t *bytes, const char *expected, wo_error *err)
{
    skip_space(in);
    if (in->at == in->end || (*in->at != '\'' && *in->at != '"')) return fail_header(in, err, expected);
    char quote = *in->at;
    const char *close = memchr(in->at + 1, quote, (size_t)(in->end - in->at) - 1);
    if (!close || memchr(in->at, '\\', (size_t)(close - in->at))) return fail_header(in, err, expected);
    *text = in->at + 1;
    *bytes = (size_t)(close - *text);
    in->at = close + 1;
    return WO_OK;
}

static wo_status take_shape(reader *in, woi_npy *npy, wo_error *err)
{
    if (!take(in, "(")) return fail_header(in, err, "a shape such as (3, 4)");
    while (!take(in, ")")) {
        skip_space(in);
        if (in->at == in->end || *in->at < '0' || *in->at > '9')
            return fail_header(in, err, "a whole number of 0 or more in the shape");
        if (npy->n_dims == WOI_MAX_DIMS) return fail_header(in, err, "at most 8 dimensions");
        uint64_t value = 0;
        for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++)
            if (__builtin_mul_overflow(value, 10, &value) ||
                __builtin_add_overflow(value, (uint64_t)(*in->at - '0'), &value))
                return fail_header(in, err, "a number below 2^64 in the shape");
        npy->shape[npy->n_dims++] = value;
        if (take(in, ",")) continue;
        skip_space(in);
        if (in->at == in->end || *in->at != ')') return fail_header(in, err, "',' or ')' in the shape");
        if (npy->n_dims == 1) return fail_header(in, err, "',' after the only number of the shape");
    }
    return WO_OK;
}

static wo_status take_descr(reader *in, woi_npy *npy, wo_error *err)
{
    static const struct {
        char name[3];
        woi_dtype dtype;
    } known[] = {{"f2", WOI_F16}, {"f4", WOI_F32}, {"f8", WOI_F64}, {"i4", WOI_I32}, {"i8", WOI_I64}};
    const char *text = "";
    size_t bytes = 0;
    skip_space(in);
    if (in->at < in->end && *in->at == '[')
        return woi_fail(err, WO_ERR_UNSUPPORTED, (uint64_t)(in->at - in->start),
                        "the array is one of records: expected one of f2, f4, f8, i4, i8");
    wo_status status = take_string(in, &text, &bytes, "a type such as '<f4'", err);
    if (status) return status;
    if (memchr(text, 'O', bytes))
        return woi_fail(err, WO_ERR_UNSUPPORTED, (uint64_t)(text - in->start),
                        "the array is one of Python objects, which is a pickle and could run code: save numbers");
    if (bytes == 3 && memchr("<>=", text[0], 3))
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (memcmp(text + 1, known[i].name, 2) == 0) {
                npy->dtype = known[i].dtype;
                npy->swapped = text[0] == '>';
                return WO_OK;
            }
    char quoted[WOI_QUOTE_BYTES];
    return woi_fail(err, WO_ERR_UNSUPPORTED, (uint64_t)(text - in->start),
                    "the type '%s' is not supported: expected one of f2, f4, f8, i4, i8",
                    woi_quote(quoted, text, bytes));
}

static wo_status take_header(reader *in, woi_npy *npy, wo_error *err)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    int seen = 0;
    if (!take(in, "{")) return fail_header(in, err, "'{'");
    while (!take(in, "}")) {
        const char *key, *key_start = in->at;
        size_t bytes;
        wo_status status = take_string(in, &key, &bytes, "a key in quotes", err);
        if (status) return status;
        if (!take(in, ":")) return fail_header(in, err, "':'");
        int which = 0;
        if (bytes == 5 && memcmp(key, "descr", 5) == 0) {
            which = DESCR;
            status = take_descr(in, npy, err);
        } else if (bytes == 13 && memcmp(key, "fortran_order", 13) == 0) {
            which = ORDER;
            npy->fortran = take(in, "True");
            if (!npy->fortran && !take(in, "False")) status = fail_header(in, err, "True or False");
        } else if (bytes == 5 && memcmp(key, "shape", 5) == 0) {
            which = SHAPE;
            if (!(seen & SHAPE)) status = take_shape(in, npy, err);
        }
        if (status) return status;
        if (which == 0 || seen & which) {
            in->at = key_start;
            return fail_header(in, err, "the keys descr, fortran_order and shape, once each");
        }
        seen |= which;
        if (!take(in, ",") && (skip_space(in), in->at == in->end || *in->at != '}'))
            return fail_header(in, err, "',' or '}'");
    }
    if (seen != (DESCR | ORDER | SHAPE)) return fail_header(in, err, "the keys descr, fortran_order and shape");
    skip_space(in);
    return in->at == in->end ? WO_OK : fail_header(in, err, "nothing after '}'");
}

/* ---- The file ---------------------------------------------------------------------------------------------- */

static wo_status check_file(woi_npy *npy, wo_error *err)
{
    const unsigned char *file = npy->map;
    size_t bytes = npy->map_bytes;
    wo_status status = woi_refuse_gzip(file, bytes, err);
    if (status) return status;
    if (bytes < 10 || memcmp(file, "\x93NUMPY", 6) != 0)
        return woi_fail(err, WO_ERR_FORMAT, 0,
                        "the file is not a whole .npy file: it has %zu bytes, or no \\x93NUMPY at the start", bytes);
    npy->version = file[6];
    if (npy->version < 1 || npy->version > 3 || file[7] != 0)
        return woi_fail(err, WO_ERR_UNSUPPORTED, 6, "npy version %d.%d is not supported: expected 1.0, 2.0 or 3.0",
                        file[6], file[7]);
    uint64_t length = 0, length_bytes = npy->version == 1 ? 2 : 4;
    if (bytes < 8 + length_bytes)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the file ends at byte %zu, inside the header length", bytes);
    memcpy(&length, file + 8, (size_t)length_bytes);
    uint64_t data_start = 8 + length_bytes + length;
    if (data_start > bytes)
        return woi_fail(err, WO_ERR_FORMAT, 8,
                        "the header length %" PRIu64 " is more than the %" PRIu64 " bytes that follow", length,
                        (uint64_t)bytes - 8 - length_bytes);
    reader in = {npy->map, (const char *)file + 8 + length_bytes, (const char *)file + data_start};
    if ((status = take_header(&in, npy, err))) return status;

    size_t n = 1, need;
    for (int i = 0; i < npy->n_dims; i++)
        if (!woi_size_mul(n, npy->shape[i], &n))
            return woi_fail(err, WO_ERR_FORMAT, 8, "the product of the shape overflows at shape[%d] = %" PRIu64, i,
                            npy->shape[i]);
    if (!woi_size_mul(n, woi_dtype_bytes(npy->dtype), &need) || need != bytes - data_start)
        return woi_fail(err, WO_ERR_FORMAT, data_start,
                        "shape and type take %zu x %zu bytes of data, but %" PRIu64 " follow the header", n,
                        woi_dtype_bytes(npy->dtype), (uint64_t)bytes - data_start);
    npy->n = n;
    npy->data = file + data_start;
    return WO_OK;
}

wo_status woi_npy_open(const char *path, woi_npy *npy, wo_error *err)
{
    memset(npy, 0, sizeof *npy);
    wo_status status = woi_map(path, &npy->map, &npy->map_bytes, err);
    if (status) return status;
    status = check_file(npy, err);
    if (status) woi_npy_close(npy);
    return status;
}

wo_status woi_npy_open_memory(const void *data, size_t bytes, woi_npy *npy, wo_error *err)
{
    memset(npy, 0, sizeof *npy);
    npy->map = data;
    npy->map_bytes = bytes;
    const wo_status status = check_file(npy, err);
    npy->map = NULL; /* which is not ours to unmap */
    npy->map_bytes = 0;
    return status;
}

void woi_npy_close(woi_npy *npy)
{
    woi_unmap(npy->map, npy->map_bytes);
    memset(npy, 0, sizeof *npy);
}

/* ---- The elements ------------------------------------------------------------------------------------------ */

/* Where the elements lie in the file when the array is walked in C order: an odometer with one digit a dimension. */
typedef struct walk {
    uint64_t digit[WOI_MAX_DIMS], step[WOI_MAX_DIMS], place;
} walk;

static void walk_start(const woi_npy *npy, walk *w)
{
    memset(w, 0, sizeof *w);
    uint64_t step = 1;
    for (int i = 0; i < npy->n_dims; i++) {
        int axis = npy->fortran ? i : npy->n_dims - 1 - i; /* the fastest first */
        w->step[axis] = step;
        step *= npy->shape[axis];
    }
}

static void walk_next(const woi_npy *npy, walk *w)
{
    for (int axis = npy->n_dims - 1; axis >= 0; axis--) {
        w->place += w->step[axis];
        if (++w->digit[axis] < npy->shape[axis]) return;
        w->place -= w->step[axis] * w->digit[axis];
        w->digit[axis] = 0;
    }
}

/* The bytes of one element in native order. */
static void fetch(const woi_npy *npy, uint64_t place, unsigned char element[8])
{
    size_t bytes = woi_dtype_bytes(npy->dtype);
    const unsigned char *from = (const unsigned char *)npy->data + place * bytes;
    for (size_t i = 0; i < bytes; i++) element[i] = from[npy->swapped ? bytes - 1 - i : i];
}

wo_status woi_npy_read_f32(const woi_npy *npy, float *to, wo_error *err)
{
    if (!npy->fortran && !npy->swapped) return woi_convert_f32(npy->dtype, npy->data, (size_t)npy->n, to, err);
    walk w;
    walk_start(npy, &w);
    for (uint64_t i = 0; i < npy->n; i++, walk_next(npy, &w)) {
        unsigned char element[8];
        fetch(npy, w.place, element);
        wo_status status = woi_convert_f32(npy->dtype, element, 1, &to[i], err);
        if (status) return status;
    }
    return WO_OK;
}

wo_status woi_npy_read_i64(const woi_npy *npy, int64_t *to, wo_error *err)
{
    if (!npy->fortran && !npy->swapped) return woi_convert_i64(npy->dtype, npy->data, (size_t)npy->n, to, err);
    walk w;
    walk_start(npy, &w);
    for (uint64_t i = 0; i < npy->n; i++, walk_next(npy, &w)) {
        unsigned char element[8];
        fetch(npy, w.place, element);
        wo_status status = woi_convert_i64(npy->dtype, element, 1, &to[i], err);
        if (status) return status;
    }
    return WO_OK;
}
