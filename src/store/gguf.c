/* GGUF files, version 2 and 3: the models of llama.cpp and its kin. Little-endian; nothing in the header is aligned.
 *
 *   "GGUF", u32 version, u64 tensors, u64 pairs
 *   pairs      string key, u32 type, value
 *   tensors    string name, u32 dimensions, u64 ... , u32 type, u64 offset in the data
 *   (to a multiple of general.alignment)
 *   data
 *
 *   string     u64 bytes, bytes             array    u32 type, u64 elements, elements
 *
 * Dimensions come fastest first: the rows of a matrix are its second. The types that can be read are blocks of numbers
 * that share their scales, or single numbers:
 *
 *   Q8_0   32    f16 d; i8 q[32]                                         x = d q
 *   Q4_K  256    f16 d, dmin; u8 scales[12]; u8 q[128]                   x = d s q - dmin m, for 8 groups of 32;
 *                s and m have 6 bits each, packed into the 12; q 4 bits
 *   Q6_K  256    u8 low[128]; u8 high[64]; i8 s[16]; f16 d               x = d s (q - 32), for 16 groups of 16;
 *                q has 6 bits: 4 in low, 2 in high */
#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"
#include "store/in_order.h"
#include "store/map.h"
#include "store/store.h"

#include <inttypes.h>
#include <string.h>

/* ---- Types of tensors -------------------------------------------------------------------------------------- */

enum { Q8_N = 32, K_N = 256, Q8_BYTES = 2 + 32, Q4K_BYTES = 2 + 2 + 12 + 128, Q6K_BYTES = 128 + 64 + 16 + 2 };

static float half_at(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return woi_f16_to_f32(half);
}

static void read_q8(const unsigned char *block, float *to)
{
    const float d = half_at(block);
    for (size_t i = 0; i < Q8_N; i++) to[i] = d * (float)(int8_t)block[2 + i];
}

/* Scale and minimum of group g: those of the first four have the low 6 bits of bytes 0 to 7; those of the last four
 * have 4 bits in bytes 8 to 11, and their upper 2 where the first ones leave 2 bits free. */
static void q4k_scales(const unsigned char *s, size_t g, unsigned *scale, unsigned *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15u) | (s[g - 4] >> 6 << 4);
        *min = (s[g + 4] >> 4) | (s[g] >> 6 << 4);
    }
}

/* 32 bytes hold two groups: one in their low halves, the next in their high ones. */
static void read_q4k(const unsigned char *block, float *to)
{
    const float d = half_at(block), dmin = half_at(block + 2);
    for (size_t g = 0; g < 8; g++) {
        unsigned scale, min;
        q4k_scales(block + 4, g, &scale, &min);
        const unsigned char *q = block + 16 + g / 2 * 32;
        const float by = d * (float)scale, less = dmin * (float)min;
        for (size_t i = 0; i < 32; i++) to[32 * g + i] = by * (float)(q[i] >> 4 * (g & 1) & 15) - less;
    }
}

/* Each half of a block is 4 times 32 numbers: two in the low halves of 64 bytes, two in the high ones, and their upper
 * bits in the four pairs of bits of 32 bytes. */
static void read_q6k(const unsigned char *block, float *to)
{
    const float d = half_at(block + 208);
    for (size_t i = 0; i < K_N; i++) {
        const size_t half = i / 128, quarter = i % 128 / 32, at = i % 32;
        const unsigned low = block[64 * half + 32 * (quarter & 1) + at] >> 4 * (quarter >> 1) & 15,
                       high = block[128 + 32 * half + at] >> 2 * quarter & 3;
        const int q = (int)(low | high << 4) - 32;
        to[i] = d * (float)(int8_t)block[192 + i / 16] * (float)q;
    }
}

typedef struct kind {
    uint32_t type; /* ggml's number */
    const char *name;
    size_t n, bytes; /* of a block */
    void (*read)(const unsigned char *block, float *to);
    woi_dtype dtype; /* where there is no such function */
} kind;

/* All that have been in use. Those that cannot be read have no bytes here: what they are is all that is said of them.
 */
static const kind kinds[] = {
    {0, "F32", 1, 4, NULL, WOI_F32},
    {1, "F16", 1, 2, NULL, WOI_F16},
    {30, "BF16", 1, 2, NULL, WOI_BF16},
    {8, "Q8_0", Q8_N, Q8_BYTES, read_q8, WOI_F32},
    {12, "Q4_K", K_N, Q4K_BYTES, read_q4k, WOI_F32},
    {14, "Q6_K", K_N, Q6K_BYTES, read_q6k, WOI_F32},
    {.type = 2, .name = "Q4_0"},
    {.type = 3, .name = "Q4_1"},
    {.type = 6, .name = "Q5_0"},
    {.type = 7, .name = "Q5_1"},
    {.type = 9, .name = "Q8_1"},
    {.type = 10, .name = "Q2_K"},
    {.type = 11, .name = "Q3_K"},
    {.type = 13, .name = "Q5_K"},
    {.type = 15, .name = "Q8_K"},
    {.type = 16, .name = "IQ2_XXS"},
    {.type = 17, .name = "IQ2_XS"},
    {.type = 18, .name = "IQ3_XXS"},
    {.type = 19, .name = "IQ1_S"},
    {.type = 20, .name = "IQ4_NL"},
    {.type = 21, .name = "IQ3_S"},
    {.type = 22, .name = "IQ2_S"},
    {.type = 23, .name = "IQ4_XS"},
    {.type = 24, .name = "I8"},
    {.type = 25, .name = "I16"},
    {.type = 26, .name = "I32"},
    {.type = 27, .name = "I64"},
    {.type = 28, .name = "F64"},
    {.type = 29, .name = "IQ1_M"},
    {.type = 34, .name = "TQ1_0"},
    {.type = 35, .name = "TQ2_0"},
    {.type = 39, .name = "MXFP4"},
};

static const kind *kind_of(uint32_t type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].type == type) return &kinds[i];
    return NULL;
}

const char *woi_gguf_type_name(uint32_t type)
{
    const kind *found = kind_of(type);
    return found ? found->name : "unknown";
}

wo_status woi_gguf_read(const woi_gguf_tensor *t, float *to, wo_error *err)
{
    const kind *found = kind_of(t->type);
    if (!found || !found->bytes) {
        char quoted[WOI_QUOTE_BYTES];
        return woi_fail(err, WO_ERR_UNSUPPORTED, t->offset,
                        "tensor '%s' is of type %s (%" PRIu32 "), which is not read: expected F32, F16, BF16, Q8_0, "
                        "Q4_K or Q6_K",
                        woi_quote(quoted, t->name, t->name_bytes), woi_gguf_type_name(t->type), t->type);
    }
    const unsigned char *from = t->data;
    if (!found->read) return woi_convert_f32(found->dtype, from, (size_t)t->n, to, err);
    for (size_t i = 0; i < t->n; i += found->n, from += found->bytes) found->read(from, to + i);
    return WO_OK;
}

/* ---- The header -------------------------------------------------------------------------------------------- */

enum { LEAST_PAIR = 8 + 4 + 1, LEAST_TENSOR = 8 + 4 + 4 + 8, DEFAULT_ALIGNMENT = 32, MAX_NESTING = 4 };
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, N_TYPES };
static const size_t type_bytes[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static wo_status take_string(woi_in_order *in, const char *what, const char **text, size_t *bytes, wo_error *err)
{
    uint64_t n;
    wo_status status = woi_in_order_take(in, &n, sizeof n, what, err);
    if (status) return status;
    if (n > woi_in_order_left(in))
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in) - sizeof n,
                        "%s has %" PRIu64 " bytes, more than the %" PRIu64 " that follow", what, n,
                        woi_in_order_left(in));
    *text = in->at;
    *bytes = (size_t)n;
    in->at += n;
    return WO_OK;
}

static wo_status skip_value(woi_in_order *in, uint32_t type, int nesting, wo_error *err);

/* Elements of one type; those of strings and arrays are walked through. */
static wo_status skip_elements(woi_in_order *in, uint32_t type, uint64_t n, int nesting, wo_error *err)
{
    if (type < N_TYPES && type_bytes[type]) {
        if (n > woi_in_order_left(in) / type_bytes[type])
            return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in),
                            "an array has %" PRIu64 " elements of %zu bytes, more than the %" PRIu64
                            " bytes that follow hold",
                            n, type_bytes[type], woi_in_order_left(in));
        in->at += n * type_bytes[type];
        return WO_OK;
    }
    /* Each takes 8 bytes or more, so that a count beyond the file ends where the file does. */
    wo_status status = WO_OK;
    for (uint64_t i = 0; !status && i < n; i++) status = skip_value(in, type, nesting, err);
    return status;
}

static wo_status skip_value(woi_in_order *in, uint32_t type, int nesting, wo_error *err)
{
    const char *text;
    size_t bytes;
    uint32_t inner;
    uint64_t n;
    wo_status status;
    if (type >= N_TYPES)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in),
                        "a value has the type %" PRIu32 ", expected 0 to %d", type, N_TYPES - 1);
    if (type == STRING) return take_string(in, "a string", &text, &bytes, err);
    if (type != ARRAY) return skip_elements(in, type, 1, nesting, err);
    if (nesting == MAX_NESTING)
        return woi_fail(err, WO_ERR_UNSUPPORTED, woi_in_order_place(in), "arrays are nested deeper than %d",
                        MAX_NESTING);
    if ((status = woi_in_order_take(in, &inner, sizeof inner, "an array", err)) ||
        (status = woi_in_order_take(in, &n, sizeof n, "an array", err)))
        return status;
    return skip_elements(in, inner, n, nesting + 1, err);
}

static bool is_key(const char *key, size_t bytes, const char *name)
{
    return bytes == strlen(name) && memcmp(key, name, bytes) == 0;
}

/* The three that matter here; all are walked through. */
static wo_status take_pair(woi_in_order *in, woi_gguf *gguf, wo_error *err)
{
    const char *key;
    size_t bytes;
    uint32_t type;
    wo_status status = take_string(in, "a key", &key, &bytes, err);
    if (!status) status = woi_in_order_take(in, &type, sizeof type, "a pair", err);
    if (status) return status;
    woi_in_order value = *in;
    if ((status = skip_value(in, type, 0, err))) return status;
    if (is_key(key, bytes, "general.alignment")) {
        if (type != U32)
            return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(&value),
                            "general.alignment has the type %" PRIu32 ", expected %d", type, U32);
        memcpy(&gguf->alignment, value.at, sizeof gguf->alignment);
    }
    if (is_key(key, bytes, "general.architecture") && type == STRING)
        return take_string(&value, "a string", &gguf->architecture, &gguf->architecture_bytes, err);
    uint32_t inner = 0;
    if (is_key(key, bytes, "tokenizer.ggml.tokens") && type == ARRAY) memcpy(&inner, value.at, sizeof inner);
    if (inner == STRING) {
        memcpy(&gguf->n_tokens, value.at + sizeof inner, sizeof gguf->n_tokens);
        gguf->tokens = value.at + sizeof inner + sizeof gguf->n_tokens;
    }
    return WO_OK;
}

static wo_status take_tensor(woi_in_order *in, woi_gguf_tensor *t, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    uint32_t n_dims;
    wo_status status = take_string(in, "the name of a tensor", &t->name, &t->name_bytes, err);
    if (!status) status = woi_in_order_take(in, &n_dims, sizeof n_dims, "a tensor", err);
    if (status) return status;
    woi_quote(quoted, t->name, t->name_bytes);
    if (n_dims > WOI_GGUF_MAX_DIMS)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in) - sizeof n_dims,
                        "tensor '%s' has %" PRIu32 " dimensions, expected at most %d", quoted, n_dims,
                        WOI_GGUF_MAX_DIMS);
    t->n_dims = (int)n_dims;
    if ((status = woi_in_order_take(in, t->shape, n_dims * sizeof t->shape[0], "a tensor", err)) ||
        (status = woi_in_order_take(in, &t->type, sizeof t->type, "a tensor", err)))
        return status;
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (!woi_size_mul(n, t->shape[i], &n))
            return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in),
                            "tensor '%s': the product of its shape overflows at %" PRIu64, quoted, t->shape[i]);
    t->n = n;
    return woi_in_order_take(in, &t->offset, sizeof t->offset, "a tensor", err);
}

/* The place of a tensor's data, within the file. Of a type that cannot be read, only where they begin is known. */
static wo_status place_tensor(const woi_gguf *gguf, woi_gguf_tensor *t, uint64_t data, wo_error *err)
{
    const kind *found = kind_of(t->type);
    const uint64_t room = gguf->map_bytes - data;
    char quoted[WOI_QUOTE_BYTES];
    size_t bytes = 0;
    woi_quote(quoted, t->name, t->name_bytes);
    if (found && found->bytes) {
        const uint64_t row = t->n_dims ? t->shape[0] : 1;
        if (row % found->n)
            return woi_fail(err, WO_ERR_FORMAT, data,
                            "tensor '%s' has rows of %" PRIu64 " numbers, which are no blocks of %zu", quoted, row,
                            found->n);
        if (!woi_size_mul((size_t)t->n / found->n, found->bytes, &bytes)) bytes = SIZE_MAX;
    }
    if (t->offset > room || bytes > room - t->offset)
        return woi_fail(err, WO_ERR_FORMAT, data,
                        "tensor '%s' lies at %" PRIu64 " and takes %zu bytes, but the data have %" PRIu64, quoted,
                        t->offset, bytes, room);
    if (t->offset % gguf->alignment)
        return woi_fail(err, WO_ERR_FORMAT, data, "tensor '%s' lies at %" PRIu64 ", which is no multiple of %" PRIu32,
                        quoted, t->offset, gguf->alignment);
    t->offset += data;
    t->bytes = bytes;
    t->data = (const char *)gguf->map + t->offset;
    return WO_OK;
}

static wo_status read_file(woi_gguf *gguf, wo_error *err)
{
    woi_in_order in = {gguf->map, gguf->map, (const char *)gguf->map + gguf->map_bytes};
    struct {
        char magic[4];
        uint32_t version;
        uint64_t n_tensors, n_pairs;
    } head;
    wo_status status = woi_in_order_take(&in, &head, sizeof head, "the header", err);
    if (status) return status;
    if (memcmp(head.magic, "GGUF", 4) != 0) return woi_fail(err, WO_ERR_FORMAT, 0, "the file is no GGUF file");
    if (head.version < 2 || head.version > 3)
        return woi_fail(err, WO_ERR_UNSUPPORTED, 4, "GGUF version %" PRIu32 " is not read: expected 2 or 3",
                        head.version);
    if (head.n_pairs > woi_in_order_left(&in) / LEAST_PAIR || head.n_tensors > woi_in_order_left(&in) / LEAST_TENSOR)
        return woi_fail(err, WO_ERR_FORMAT, 8,
                        "the header has %" PRIu64 " tensors and %" PRIu64 " pairs, more than the %" PRIu64
                        " bytes that follow can hold",
                        head.n_tensors, head.n_pairs, woi_in_order_left(&in));
    gguf->version = head.version;
    gguf->alignment = DEFAULT_ALIGNMENT;
    gguf->n_pairs = head.n_pairs;
    for (uint64_t i = 0; i < head.n_pairs; i++)
        if ((status = take_pair(&in, gguf, err))) return status;
    if (gguf->alignment == 0 || gguf->alignment % 8)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "general.alignment is %" PRIu32 ", expected a multiple of 8",
                        gguf->alignment);
    if (!(gguf->tensors = woi_alloc_zero((size_t)head.n_tensors, sizeof *gguf->tensors, err))) return WO_ERR_MEMORY;
    gguf->n_tensors = (size_t)head.n_tensors;
    for (size_t i = 0; i < gguf->n_tensors; i++)
        if ((status = take_tensor(&in, &gguf->tensors[i], err))) return status;
    const uint64_t over = woi_in_order_place(&in) % gguf->alignment,
                   data = woi_in_order_place(&in) + (over ? gguf->alignment - over : 0);
    if (gguf->n_tensors && data > gguf->map_bytes)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(&in),
                        "the file ends at byte %zu, before the data of its tensors", gguf->map_bytes);
    for (size_t i = 0; i < gguf->n_tensors; i++)
        if ((status = place_tensor(gguf, &gguf->tensors[i], data, err))) return status;
    return WO_OK;
}

/* ---- Outside ----------------------------------------------------------------------------------------------- */

wo_status woi_gguf_open(const char *path, woi_gguf *gguf, wo_error *err)
{
    memset(gguf, 0, sizeof *gguf);
    wo_status status = woi_map(path, &gguf->map, &gguf->map_bytes, err);
    if (!status) status = read_file(gguf, err);
    if (status) woi_gguf_close(gguf);
    return status;
}

void woi_gguf_close(woi_gguf *gguf)
{
    woi_free(gguf->tensors);
    woi_unmap(gguf->map, gguf->map_bytes);
    memset(gguf, 0, sizeof *gguf);
}

const woi_gguf_tensor *woi_gguf_find(const woi_gguf *gguf, const char *name)
{
    for (size_t i = 0; i < gguf->n_tensors; i++)
        if (is_key(gguf->tensors[i].name, gguf->tensors[i].name_bytes, name)) return &gguf->tensors[i];
    return NULL;
}

const char *woi_gguf_token(const char **entry, size_t *bytes)
{
    uint64_t n;
    memcpy(&n, *entry, sizeof n);
    const char *text = *entry + sizeof n;
    *bytes = (size_t)n;
    *entry = text + n;
    return text;
}
