/* Learning log Z: see search/partition.h. */
#ifndef WOI_BUILD_PARTITION_LEARN_H
#define WOI_BUILD_PARTITION_LEARN_H

#include "search/partition.h"

/* Learns index->partition from a log. The index can be searched; its rows are f32. */
wo_status woi_partition_learn(wo_index *index, const wo_log *log, wo_error *err);

#endif
