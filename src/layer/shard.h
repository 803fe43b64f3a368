/* A shard: some of a wide layer's classes, under their numbers in the whole of it.
 *
 *   classes   [ 2, 5, 11, ... ]    row i is class classes[i]: rising, so that lower rows are lower classes
 *
 * A layer's file and an index's have them as the tensor `classes` (I32), and in their metadata shard.number, from 0,
 * shard.count and shard.m. The layer's checksum is that of the whole. shard.dealing is a digest of which class is in
 * which shard, and of all names: shards of two dealings, which may both lack a class, differ in it. */
#ifndef WOI_LAYER_SHARD_H
#define WOI_LAYER_SHARD_H

#include "store/store.h"

typedef struct woi_shard {
    uint32_t number, count; /* count 0: this is no shard, all classes are here */
    size_t m;               /* classes of the whole layer */
    const int32_t *classes; /* (rows here) */
    int32_t *owned;         /* the same, where they are ours; NULL: borrowed */
    uint64_t dealing;       /* 0: not known, the file is older */
} woi_shard;

void woi_shard_free(woi_shard *shard); /* and zeroed again */

/* The classes of the whole layer, of which `rows` are here. */
static inline size_t woi_shard_whole(const woi_shard *shard, size_t rows)
{
    return shard->count ? shard->m : rows;
}

/* The row of a class, or -1. */
int32_t woi_shard_row(const woi_shard *shard, size_t rows, int32_t id);

/* Rows become classes, in place; -1 stays. */
static inline void woi_shard_name_rows(const woi_shard *shard, int32_t *ids, size_t n)
{
    for (size_t i = 0; shard->count && i < n; i++)
        if (ids[i] >= 0) ids[i] = shard->classes[ids[i]];
}

/* Which of the classes first .. first + 64 words - 1 a shard of so many rows has: bit i % 64 of word i / 64 says it of
 * class first + i. `first` is a multiple of 64. */
void woi_shard_map(const woi_shard *shard, size_t rows, size_t first, size_t words, uint64_t *map);

/* Where the maps of all shards of a layer come from. */
typedef struct woi_shard_maps {
    size_t m, n; /* classes of the layer, shards */
    /* maps (n, words), by the shards' numbers */
    wo_status (*fill)(void *ctx, size_t first, size_t words, uint64_t *maps, wo_error *err);
    void *ctx;
} woi_shard_maps;

/* Whether each class is in one shard, and in no other. A dealing's digest says it of files that are ours; a stranger's
 * may have the same digest and other classes. The sentence names the first class that is in two shards or in none. */
wo_status woi_shards_check(const woi_shard_maps *all, wo_error *err);

/* Whether a file says that it is one. */
bool woi_shard_is(const woi_st *st);
/* Out of a file with so many rows, where it is a shard; else *shard stays zero. The classes are a copy, and checked. */
wo_status woi_shard_read(const woi_st *st, size_t rows, woi_shard *shard, wo_error *err);
/* The lines of metadata. */
wo_status woi_shard_write(woi_st_writer *writer, const woi_shard *shard, wo_error *err);

#endif
