/* Building in several processes, each with a shard of the classes: what they hand each other.
 *
 * Nothing is added up. Work over queries is cut into ranges, one a rank, whose results all ranks then gather; what all
 * do alike, they do alike. So the router's bits do not depend on how many they are. */
#ifndef WOI_INDEX_TOGETHER_H
#define WOI_INDEX_TOGETHER_H

#include "fill/cells.h"
#include "layer/exact.h"
#include "layer/shard.h"

/* *together, as a caller gave it, of whatever size, becomes a checked copy of it; NULL stays NULL. */
wo_status woi_together_take(const wo_collective **together, wo_collective *copy, wo_error *err);

/* Whether the shards of all ranks have each class of the layer once: see woi_shards_check. The ranks' shards are of one
 * layer, rank r's is number r. Without other ranks it is about one shard alone; what is no shard is whole. */
wo_status woi_together_whole(const wo_collective *together, const woi_shard *shard, size_t rows, wo_error *err);
/* The same of an index in shards. */
wo_status woi_index_whole(const wo_collective *together, const wo_index *index, wo_error *err);

/* FULL's best of all shards, as numbers of the whole layer's classes, on all ranks. */
wo_status woi_exact_of_all(const woi_exact_call *call, const woi_shard *shard, const wo_collective *together,
                           wo_error *err);

/* Of cells with classes of the whole layer those of the shard, as its rows. Without a shard nothing changes. */
void woi_shard_cells(const woi_shard *shard, size_t rows, woi_cells *cells);

/* The lists of all ranks one after the other, of any lengths: *all is the caller's to free, NULL after a failure. */
wo_status woi_together_lists(const wo_collective *together, const void *own, size_t own_bytes, void **all,
                             size_t *bytes, wo_error *err);

/* Whether all ranks got so far: fails on all where one has failed, on the others with a sentence about it. */
wo_status woi_together_agree(const wo_collective *together, wo_status own, wo_error *err);

#endif
