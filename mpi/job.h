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
 * be called. $WIDEOUT_MPI_TIMEOUT: seconds that a rank may be behind the others, 600 unless given, at most 1,000,000.
 */
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

/* Calls that go on while this rank computes, one at a time in each lane; all ranks begin them in the same order. */
typedef enum job_lane { JOB_QUERIES, JOB_NUMBER, JOB_ROUTES, JOB_ANSWERS, JOB_LANES } job_lane;

/* From rank 0, at most 2^30 bytes. */
wo_status job_broadcast_begin(job_lane lane, void *data, size_t bytes, wo_error *err);
/* n places of so many bytes, at most 2^31 bytes in all. The rank's own range of them (base/ranges.h) is filled: then
 * all are. */
wo_status job_gather_begin(job_lane lane, void *all, size_t n, size_t bytes, wo_error *err);
/* Lets all of them advance. */
void job_push(void);
/* Waits for a lane, if there is something in it. */
wo_status job_lane_end(job_lane lane, wo_error *err);
/* When no more is to be begun; of calls that a failure left under way before their memory is freed: from then on the
 * job can only end. */
void job_lanes_leave(void);

/* Whether `text` is the same on all ranks; else fails with "WHAT differs between ranks 0 and 3". */
wo_status job_same(const char *what, const void *data, size_t bytes, wo_error *err);

/* [{"phase": "search", "seconds": 1.2, "cpu_s": 1.1, "waited": 0.1, "bytes": 12345}, ...] of this rank; NULL without
 * memory. Bytes are those that the rank received from others. */
struct json_t *job_phases_json(void);

#endif
