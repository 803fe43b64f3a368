/* Medians, and what compiled the benchmark. */
#ifndef BENCH_MEDIAN_H
#define BENCH_MEDIAN_H

#include <stdlib.h>

#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

static inline int bench_rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the sample. */
static inline double bench_median(double *sample, size_t n)
{
    qsort(sample, n, sizeof *sample, bench_rising);
    return sample[n / 2];
}

#endif
