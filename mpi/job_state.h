/* What job.c and collective.c share. */
#ifndef WOI_MPI_JOB_STATE_H
#define WOI_MPI_JOB_STATE_H

#include "job.h"

#include <mpi.h>

enum { JOB_PHASES = 16 };

typedef struct job_counts {
    const char *name;
    double seconds, waited, cpu_s;
    uint64_t bytes;
} job_counts;

typedef struct job_state {
    MPI_Comm data;    /* what the library's calls use */
    MPI_Win window;   /* what the ranks of a machine share (outside.c) */
    MPI_Comm control; /* alarms and the last word: no call on `data` that was left half done is in their way */
    double limit_s;
    bool alarmed; /* another rank has failed */
    int alarm_from;
    bool over;   /* the last word is spoken: MPI is called no more, but to end the job */
    bool failed; /* this rank has, by itself */
    bool all_heard;
    int first, worst; /* of what was heard: the first rank that failed by itself, -1: none; the exit code */
    bool half_done;   /* and whether calls were left */
    job_counts phases[JOB_PHASES];
    int n_phases, phase;
    double phase_began, phase_cpu_s;
} job_state;

extern job_state job_now;

/* Waits for a request, for at most limit_s seconds, and looks for alarms meanwhile unless it waits for the last word.
 */
wo_status job_wait(MPI_Request *request, double limit_s, bool last_word, wo_error *err);

/* Tells all ranks how it went here, and learns how it went there: an exit code, negative where another rank's failure
 * was the reason. A call that is left half done may still write to its memory whenever MPI is called: so this is done
 * where that memory is still there, and nothing afterwards. */
void job_last_word(int own);

/* outside.c: where mpirun ends this rank with SIGTERM, because another has died, one rank says so. From begin to end;
 * all ranks call both. outside_alarm: another sentence is said, so that none is needed. outside_ended: the signal has
 * come; outside_speak says it, unless another rank has, or an alarm was raised. */
void outside_begin(void);
void outside_end(void);
void outside_alarm(void);
bool outside_ended(void);
void outside_speak(void);

/* Between the two this process ends with a sentence when limit_s seconds are over: for calls of MPI that wait for all
 * ranks and cannot be given up. */
void outside_limit_begin(const char *what, double limit_s);
void outside_limit_end(void);

/* Fills the table. */
void job_fill_calls(wo_collective *calls);

#endif
