/* Building an index: its parts, and what each method does. */
#ifndef WOI_BUILD_BUILD_H
#define WOI_BUILD_BUILD_H

#include "index/index.h"

/* An index with options, rows (small ones too), checksum and names, but without router and cells. On failure too *index
 * is to be freed. */
wo_status woi_index_begin(const wo_layer *layer, const wo_build_options *options, wo_index **index, wo_error *err);
/* An index that can be searched, of options that are complete: all of a build but woi_index_complete. Its options are
 * still the call's. On failure too *index is to be freed. */
wo_status woi_index_make(const wo_layer *layer, const wo_log *log, const wo_build_options *options, wo_index **index,
                         wo_error *err);
/* What is learned last from the log (NULL: none) of an index that can be searched: log Z and the queries that stay,
 * where its options say so, and what rows in fewer bits change. Threads, progress and other processes are its options'.
 */
wo_status woi_index_complete(wo_index *index, const wo_log *log, wo_error *err);
/* The last thing that a build does: its options lose what was of the call alone, as threads and progress. */
void woi_index_forget_call(wo_index *index);

/* build_lss.c: random planes; Algorithm 1, with its trace. */
wo_status woi_build_slide(const wo_layer *layer, wo_index *index, wo_error *err);
wo_status woi_build_lss(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err);

/* needs.c: what the queries of a log needed: their labels, the k best of FULL, or both. */
typedef struct woi_needs_call {
    const woi_dense *rows;
    const wo_log *log;
    wo_source source;
    uint32_t k;
    int threads;                   /* as in woi_exact_call */
    const wo_progress *progress;   /* NULL: nobody asks */
    const woi_shard *shard;        /* which classes the rows are */
    const wo_collective *together; /* who has the other ones; NULL: nobody */
    struct woi_findings *findings; /* that has some of FULL's best already; NULL */
} woi_needs_call;

wo_status woi_needs_of(const woi_needs_call *asked, woi_sparse *needs, wo_error *err);

#endif
