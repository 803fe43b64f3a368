/* The one clock. */
#ifndef WOI_BASE_CLOCK_H
#define WOI_BASE_CLOCK_H

#include <time.h>

static inline double woi_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds that never go back. */
static inline double woi_now_s(void)
{
    return woi_clock(CLOCK_MONOTONIC);
}

/* Seconds that all threads of this process have worked. */
static inline double woi_cpu_s(void)
{
    return woi_clock(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
