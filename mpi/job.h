/* A job: the processes that mpirun started, each a rank, and what they do together.
 *
 * One process is in one job, from job_begin to job_end. Ranks run the same command with the same options. Rank 0
 * speaks: what the others print is kept back, and shown only where one of them failed alone. A rank that fails tells
 * the others, who look for such an alarm whenever they wait; and no wait is longer than a limit. So a job ends with one
 * sentence. */
#ifndef WOI_MPI_JOB_H
#define WOI_MPI_JOB_H

#include "wideout.h"

#include <stdbool.h>

struct json_t;

/* Starts MPI, and compares what the ranks were asked for. Not 0: the exit code, after a sentence; job_end is still to
 * be called. $WIDEOUT_MPI_TIMEOUT: seconds that a rank may be behind the others, 600 unless given. */
int job_begin(int *argc, char ***argv);

/* The last thing a rank does: waits until all know how it went, shows the sentence of one that failed, ends MPI.
 * Returns the job's exit code: `code` where that is not 0, 1 where another rank failed. */
int job_end(int code);

int job_rank(void);
int job_size(void);

/* The library's table of calls, filled with MPI. In static storage. */
const wo_collective *job_calls(void);

/* Whether a call failed because another rank did: then that one has the sentence, and nothing is to be said here. */
bool job_failed_elsewhere(void);

/* The same of a call that failed because the ranks agreed to: the alarm of the one at fault is waited for, a moment. */
bool job_failed_elsewhere_by(const wo_error *err);

/* From now on time and bytes are of this phase; the name is static. A name that was there before goes on. */
void job_phase(const char *name);

/* A broadcast that goes on while this rank computes: one at a time, at most 2^30 bytes. job_push lets it advance. */
wo_status job_broadcast_begin(void *data, size_t bytes, int root, wo_error *err);
void job_push(void);
wo_status job_broadcast_end(wo_error *err);
/* Before the memory of one that is under way is freed, after a failure: from then on the job can only end. */
void job_broadcast_leave(void);

/* Whether `text` is the same on all ranks; else fails with "WHAT differs between ranks 0 and 3". */
wo_status job_same(const char *what, const void *data, size_t bytes, wo_error *err);

/* [{"phase": "search", "seconds": 1.2, "cpu_s": 1.1, "waited": 0.1, "bytes": 12345}, ...] of this rank; NULL without
 * memory. Bytes are those that the rank received from others. */
struct json_t *job_phases_json(void);

#endif
