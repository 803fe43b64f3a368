/* The table of names and its two tensors. */
#include "store/names.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FIRST_SLOTS = 64 };

/* ---- The table --------------------------------------------------------------------------------------------- */

void woi_names_free(woi_names *names)
{
    woi_free(names->bytes);
    woi_free(names->indptr);
    woi_free(names->slots);
    memset(names, 0, sizeof *names);
}

static uint32_t tag_of(const woi_names *names, const char *name, size_t bytes)
{
    return (uint32_t)XXH3_64bits_withSeed(name, bytes, names->salt);
}

/* Where the system has no random numbers yet, the address of a table will do. Ids do not depend on it. */
static uint64_t draw_salt(const woi_names *names)
{
    uint64_t salt;
    return getrandom(&salt, sizeof salt, GRND_NONBLOCK) == sizeof salt ? salt : (uint64_t)(uintptr_t)names;
}

/* The slot of a name: its own, or the free one where it would go. */
static woi_names_slot *find_slot(const woi_names *names, uint32_t tag, const char *name, size_t bytes)
{
    for (size_t i = tag;; i++) {
        woi_names_slot *slot = &names->slots[i & (names->n_slots - 1)];
        if (slot->id < 0) return slot;
        if (slot->tag == tag && woi_names_bytes(names, slot->id) == bytes &&
            memcmp(woi_names_get(names, slot->id), name, bytes) == 0)
            return slot;
    }
}

/* Room for one more name: tags alone tell where the old ones go. */
static wo_status grow_slots(woi_names *names, wo_error *err)
{
    if (2 * ((size_t)names->n + 1) <= names->n_slots) return WO_OK;
    size_t n_slots = names->n_slots ? 4 * names->n_slots : FIRST_SLOTS;
    woi_names_slot *slots = woi_alloc(n_slots, sizeof *slots, err);
    if (!slots) return WO_ERR_MEMORY;
    memset(slots, 0xff, n_slots * sizeof *slots);
    if (!names->n_slots) names->salt = draw_salt(names);
    for (size_t i = 0; i < names->n_slots; i++) {
        if (names->slots[i].id < 0) continue;
        size_t to = names->slots[i].tag & (n_slots - 1);
        while (slots[to].id >= 0) to = (to + 1) & (n_slots - 1);
        slots[to] = names->slots[i];
    }
    woi_free(names->slots);
    names->slots = slots;
    names->n_slots = n_slots;
    return WO_OK;
}

/* Puts the name behind the last one; finding it is the caller's matter. */
static wo_status append(woi_names *names, const char *name, size_t bytes, wo_error *err)
{
    if (names->n == INT32_MAX)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "there are more than %d names", INT32_MAX);
    size_t n = (size_t)names->n, used = n ? (size_t)names->indptr[n] : 0;
    wo_status status = woi_grow(&names->bytes, &names->bytes_capacity, used, used + bytes, 1, err);
    if (!status)
        status = woi_grow(&names->indptr, &names->indptr_capacity, n ? n + 1 : 0, n + 2, sizeof *names->indptr, err);
    if (status) return status;
    if (bytes) memcpy(names->bytes + used, name, bytes);
    if (n == 0) names->indptr[0] = 0;
    names->indptr[n + 1] = (int64_t)(used + bytes);
    names->n++;
    return WO_OK;
}

int32_t woi_names_find(const woi_names *names, const char *name, size_t bytes)
{
    return names->n_slots ? find_slot(names, tag_of(names, name, bytes), name, bytes)->id : -1;
}

wo_status woi_names_add(woi_names *names, const char *name, size_t bytes, int32_t *id, wo_error *err)
{
    wo_status status = grow_slots(names, err);
    if (status) return status;
    uint32_t tag = tag_of(names, name, bytes);
    woi_names_slot *slot = find_slot(names, tag, name, bytes);
    if (slot->id < 0) {
        if ((status = append(names, name, bytes, err))) return status;
        *slot = (woi_names_slot){tag, names->n - 1};
    }
    *id = slot->id;
    return WO_OK;
}

wo_status woi_names_append(woi_names *names, const char *name, size_t bytes, wo_error *err)
{
    int32_t id, next = names->n;
    wo_status status = woi_names_add(names, name, bytes, &id, err);
    return status || id == next ? status : append(names, name, bytes, err);
}

/* ---- Sorting ----------------------------------------------------------------------------------------------- */

typedef struct ranking {
    const woi_names *names;
    const uint64_t *counts;
} ranking;

static int by_count(const void *a, const void *b, void *ctx)
{
    const ranking *r = ctx;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (r->counts[x] != r->counts[y]) return r->counts[x] > r->counts[y] ? -1 : 1;
    size_t x_bytes = woi_names_bytes(r->names, x), y_bytes = woi_names_bytes(r->names, y);
    int order = memcmp(woi_names_get(r->names, x), woi_names_get(r->names, y), x_bytes < y_bytes ? x_bytes : y_bytes);
    return order ? order : x_bytes < y_bytes ? -1 : 1;
}

void woi_names_sort(const woi_names *names, const uint64_t *counts, int32_t *order)
{
    for (int32_t i = 0; i < names->n; i++) order[i] = i;
    qsort_r(order, (size_t)names->n, sizeof *order, by_count, &(ranking){names, counts});
}

wo_status woi_names_copy(const woi_names *from, woi_names *to, wo_error *err)
{
    wo_status status = WO_OK;
    for (int32_t i = 0; !status && i < from->n; i++)
        status = woi_names_append(to, woi_names_get(from, i), woi_names_bytes(from, i), err);
    if (status) woi_names_free(to);
    return status;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------- */

static const int64_t no_names[1];

wo_status woi_names_declare(woi_st_writer *writer, const char *what, const woi_names *names, wo_error *err)
{
    char name[96];
    uint64_t bytes = names->n ? (uint64_t)names->indptr[names->n] : 0, n = (uint64_t)names->n + 1;
    snprintf(name, sizeof name, "names.%s.bytes", what);
    wo_status status = woi_st_declare(writer, name, WOI_U8, 1, &bytes, err);
    snprintf(name, sizeof name, "names.%s.indptr", what);
    return status ? status : woi_st_declare(writer, name, WOI_I64, 1, &n, err);
}

wo_status woi_names_write(woi_st_writer *writer, const woi_names *names, wo_error *err)
{
    const int64_t *indptr = names->n ? names->indptr : no_names;
    wo_status status = woi_st_append(writer, names->bytes, (size_t)indptr[names->n], err);
    return status ? status : woi_st_append(writer, indptr, ((size_t)names->n + 1) * sizeof *indptr, err);
}

static wo_status find_tensor(const woi_st *st, const char *name, woi_dtype dtype, const woi_tensor **tensor,
                             wo_error *err)
{
    *tensor = woi_st_find(st, name);
    if (!*tensor) return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the file has no tensor '%s'", name);
    if ((*tensor)->dtype != dtype || (*tensor)->n_dims != 1)
        return woi_fail(err, WO_ERR_FORMAT, (*tensor)->offset, "'%s' has %d dimensions of %s, expected 1 of %s", name,
                        (*tensor)->n_dims, woi_dtype_name((*tensor)->dtype), woi_dtype_name(dtype));
    return WO_OK;
}

wo_status woi_names_load(const woi_st *st, const char *what, woi_names *names, wo_error *err)
{
    char name[96];
    const woi_tensor *bytes, *indptr;
    snprintf(name, sizeof name, "names.%s.bytes", what);
    wo_status status = find_tensor(st, name, WOI_U8, &bytes, err);
    snprintf(name, sizeof name, "names.%s.indptr", what);
    if (!status) status = find_tensor(st, name, WOI_I64, &indptr, err);
    if (status) return status;
    if (indptr->n == 0 || indptr->n - 1 > INT32_MAX)
        return woi_fail(err, WO_ERR_FORMAT, indptr->offset, "'%s' has %" PRIu64 " entries, expected 1 to 2^31", name,
                        indptr->n);
    int64_t from = 0, to = 0;
    for (uint64_t i = 0; i < indptr->n; i++, from = to) {
        memcpy(&to, (const char *)indptr->data + 8 * i, 8); /* other people's files may not be aligned */
        uint64_t low = (uint64_t)from, high = i == 0 ? 0 : bytes->n;
        if (i == indptr->n - 1) low = high;
        if (to < 0 || (uint64_t)to < low || (uint64_t)to > high) {
            status =
                woi_fail(err, WO_ERR_FORMAT, indptr->offset + 8 * i,
                         "%s[%" PRIu64 "] is %" PRId64 ", expected %" PRIu64 " to %" PRIu64, name, i, to, low, high);
            break;
        }
        if (i == 0) continue;
        const char *text = (const char *)bytes->data + from;
        if (!woi_utf8_valid(text, (size_t)(to - from)) || memchr(text, '\n', (size_t)(to - from))) {
            status = woi_fail(err, WO_ERR_FORMAT, bytes->offset + (uint64_t)from,
                              "names.%s: name %" PRIu64 " is not one line of UTF-8", what, i - 1);
            break;
        }
        if ((status = woi_names_append(names, text, (size_t)(to - from), err))) break;
    }
    if (status) woi_names_free(names);
    return status;
}
