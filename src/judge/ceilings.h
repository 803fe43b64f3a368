/* What the machine can do at most, measured: FULL is held against it, so that no speed-up comes from a weak FULL. */
#ifndef WOI_JUDGE_CEILINGS_H
#define WOI_JUDGE_CEILINGS_H

#include "layer/exact.h"

/* 1e9 floating-point operations a second, a multiply-add counting two, of `threads` threads on registers alone, by the
 * best instruction set that the machine has, whatever WIDEOUT_CPU says. Takes some 20 ms. */
double woi_peak_gflops(int threads);

/* GB/s at which one thread reads x (n): the best of a few passes, after one that does not count. */
double woi_read_gb_s(const float *x, size_t n);

/* How many 1e9 operations, or bytes, FULL does with so many queries in one call. */
static inline double woi_full_gflop(const woi_dense *layer, size_t n)
{
    return 2e-9 * (double)n * (double)layer->m * (double)layer->d;
}

static inline double woi_full_gb(const woi_dense *layer)
{
    return 4e-9 * (double)layer->m * (double)layer->d;
}

#endif
