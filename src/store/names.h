/* Names and their ids: vocabularies, features, labels. Ids count from 0 in the order of adding.
 *
 *   bytes    [a p t|l i b c 6|p e r l]     all names, one after the other
 *   indptr   [0, 3, 8, 12]                 name i is bytes[indptr[i] .. indptr[i+1])
 *   slots    open addressing, linear probing, at most half full: 32 bits of the hash and the id
 *
 * In safetensors files the first two are the tensors `names.WHAT.bytes` (U8) and `names.WHAT.indptr` (I64). */
#ifndef WOI_STORE_NAMES_H
#define WOI_STORE_NAMES_H

#include "store/store.h"

typedef struct woi_names_slot {
    uint32_t tag;
    int32_t id; /* -1: free */
} woi_names_slot;

/* A zeroed one is an empty table. */
typedef struct woi_names {
    int32_t n;
    char *bytes;
    int64_t *indptr; /* n + 1; NULL while n = 0 */
    woi_names_slot *slots;
    size_t n_slots; /* a power of two */
    uint64_t salt;  /* of the tags: another in every table, so that nobody's file can make names collide */
    size_t bytes_capacity, indptr_capacity;
} woi_names;

void woi_names_free(woi_names *names); /* and zeroed again */

/* The id of a name, or -1. */
int32_t woi_names_find(const woi_names *names, const char *name, size_t bytes);

/* The id of a name, added where it is new. */
wo_status woi_names_add(woi_names *names, const char *name, size_t bytes, int32_t *id, wo_error *err);

/* Adds a name under the next id, whether it is new or not; woi_names_find gives the first of equal names. */
wo_status woi_names_append(woi_names *names, const char *name, size_t bytes, wo_error *err);

static inline size_t woi_names_bytes(const woi_names *names, int32_t id)
{
    return (size_t)(names->indptr[id + 1] - names->indptr[id]);
}

/* Not terminated. Where all names are empty there are no bytes, but a place to compare with. */
static inline const char *woi_names_get(const woi_names *names, int32_t id)
{
    return names->bytes ? names->bytes + names->indptr[id] : "";
}

/* A copy, into an empty table. */
wo_status woi_names_copy(const woi_names *from, woi_names *to, wo_error *err);

/* Ids in the order of falling count, equal counts by name: order[0 .. n). */
void woi_names_sort(const woi_names *names, const uint64_t *counts, int32_t *order);

/* ---- Tensors ----------------------------------------------------------------------------------------------- */

/* Declares the two tensors, and appends their data when their turn comes: bytes, then indptr. */
wo_status woi_names_declare(woi_st_writer *writer, const char *what, const woi_names *names, wo_error *err);
wo_status woi_names_write(woi_st_writer *writer, const woi_names *names, wo_error *err);

/* Reads them into an empty table; every name must be UTF-8 without line ends. */
wo_status woi_names_load(const woi_st *st, const char *what, woi_names *names, wo_error *err);

#endif
