/* Which training queries stay in an index: see index/keep.h. */
#ifndef WOI_BUILD_KEEP_MAKE_H
#define WOI_BUILD_KEEP_MAKE_H

#include "index/keep.h"

/* Of an index with f32 rows: index->kept, in place of what it had, where its options keep any. */
wo_status woi_keep_make(wo_index *index, const wo_log *log, wo_error *err);

#endif
