/* The lines of metadata of an index: every build option as `index.NAME`, what a tuner was asked for as `tune.NAME`, the
 * layer as `layer.NAME`. */
#ifndef WOI_INDEX_METADATA_H
#define WOI_INDEX_METADATA_H

#include "index/index.h"

/* Also the lines of index->st that this version does not know. */
wo_status woi_meta_write(woi_st_writer *writer, const wo_index *index, wo_error *err);

/* Fills options, goal, full, layer_checksum, and m and d of rows, from index->st. */
wo_status woi_meta_read(wo_index *index, wo_error *err);

#endif
