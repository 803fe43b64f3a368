/* Learning log Z: see search/partition.h. */
#ifndef WOI_BUILD_PARTITION_LEARN_H
#define WOI_BUILD_PARTITION_LEARN_H

#include "search/partition.h"

enum { WOI_LOG_Z_SAMPLE = 50000 }; /* queries of the log at most, of which FULL is asked */

/* Learns index->partition from a log. The index can be searched; its rows are f32. */
wo_status woi_partition_learn(wo_index *index, const wo_log *log, wo_error *err);

#endif
