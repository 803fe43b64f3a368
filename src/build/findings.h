/* What a build has found out so far that took long, kept in a file: a build that was stopped goes on from there.
 *
 *   header   magic (8 bytes) | what is built: options, layer, log, instruction set, version | XXH3 of that
 *   record   bytes u64 | the bytes | XXH3 of the record so far, seeded with its number
 *
 * Records are results in the order in which a build comes by them: FULL's best of a block of the log, the router, ....
 * A build is a function of what the header says: the next one asks for the same results in the same order, and gets the
 * records back, whatever the number of ranks. All ranks have the same results; rank 0 alone writes and reads, and hands
 * the others what it read. A process that is killed leaves at most one record in part, which is left out as everything
 * behind it is, and written over.
 *
 * A checksum says that a record is what somebody wrote, not that a build did: a record has exactly the bytes that the
 * build asks for, and whoever recalls what it goes on with looks at it. */
#ifndef WOI_BUILD_FINDINGS_H
#define WOI_BUILD_FINDINGS_H

#include "index/index.h"
#include "layer/exact.h"

typedef struct woi_findings woi_findings;

/* Of the index that is being built, by options->checkpoint and options->resume; *findings NULL where none was asked
 * for. Nothing is written before there is a result. */
wo_status woi_findings_open(const wo_index *index, const wo_log *log, woi_findings **findings, wo_error *err);
void woi_findings_free(woi_findings *findings);

/* The next result: *found, and the pieces are filled, where it was kept. Else it is to be computed and handed to
 * woi_findings_keep. All ranks call both, in the same order. Findings that are NULL have nothing and keep nothing. */
wo_status woi_findings_recall(woi_findings *findings, const woi_piece *pieces, size_t n, bool *found, wo_error *err);
bool woi_findings_has(const woi_findings *findings); /* the next one; the same on all ranks */
/* The beginning of the next one, which there is, and how many bytes it has in all. */
wo_status woi_findings_peek(woi_findings *findings, const woi_piece *piece, uint64_t *bytes, wo_error *err);
/* Fails: what was recalled, or looked at, last is impossible. */
wo_status woi_findings_damaged(const woi_findings *findings, wo_error *err);
wo_status woi_findings_keep(woi_findings *findings, const woi_piece *pieces, size_t n, wo_error *err);

/* FULL's best of all shards, on all ranks, from the findings or into them: the ids alone, as numbers of the whole
 * layer's classes, ascending for each query, -1 where there are no more. shard, together, findings: or NULL. */
wo_status woi_exact_found(const woi_exact_call *call, const woi_shard *shard, const wo_collective *together,
                          woi_findings *findings, wo_error *err);

#endif
