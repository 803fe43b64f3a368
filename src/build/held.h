/* What an index is worth, by queries of the log that its cells do not know: the least that who builds without a tuner
 * should hear. */
#ifndef WOI_BUILD_HELD_H
#define WOI_BUILD_HELD_H

#include "index/index.h"

/* How many queries are held out where o->held_out are asked for: a twentieth of the log at most (all of it for a
 * screen, which learns from none), and as many as FULL answers in a second or two; 0 where so few say nothing, or the
 * layer is in shards. */
size_t woi_held_size(const wo_index *index, const wo_log *log, const wo_build_options *o);

/* Numbers (n) of queries, rising, one out of each of n equal parts of the log, drawn by the index's seed and a stream
 * of it. To be freed with woi_free; NULL where memory ran out. */
enum { WOI_HELD_STREAM = 0x68656c64 };
size_t *woi_held_pick(const wo_index *index, const wo_log *log, size_t n, uint64_t stream, wo_error *err);

/* Fills index->held: an index that can be searched, beside FULL; of a screen also same_best and same_five. */
wo_status woi_held_judge(wo_index *index, const wo_log *log, const size_t *picks, size_t n, int threads, wo_error *err);

#endif
