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

/* The time on that clock `seconds` from now, as pthread_cond_timedwait wants it. */
static inline struct timespec woi_in(double seconds)
{
    const double end = woi_now_s() + seconds;
    const time_t whole = (time_t)end;
    return (struct timespec){.tv_sec = whole, .tv_nsec = (long)((end - (double)whole) * 1e9)};
}

/* Seconds that all threads of this process have worked. */
static inline double woi_cpu_s(void)
{
    return woi_clock(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
