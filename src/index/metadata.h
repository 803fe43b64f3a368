/* The lines of metadata of an index: every build option as `index.NAME`, what a tuner was asked for as `tune.NAME`, the
 * layer as `layer.NAME`. */
#ifndef WOI_INDEX_METADATA_H
#define WOI_INDEX_METADATA_H

#include "index/index.h"

/* The places that every node of the tree has, where all have as many as the options say, as in the first files; 0:
 * they have not. */
uint32_t woi_tree_even(const wo_index *index);

/* Also the lines of index->st that this version does not know. */
wo_status woi_meta_write(woi_st_writer *writer, const wo_index *index, wo_error *err);

/* Fills options, goal, full, layer_checksum, and m and d of rows, from index->st. */
wo_status woi_meta_read(wo_index *index, wo_error *err);

#endif
