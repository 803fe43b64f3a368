/* Whether numbers can be computed with. */
#ifndef WOI_BASE_FINITE_H
#define WOI_BASE_FINITE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether none of x (n) is NaN or infinite. */
static inline bool woi_all_finite(const float *x, size_t n)
{
    /* x - x is 0, or NaN for what is not finite, and NaN stays. Eight sums, because one would wait for itself. */
    float sum[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) sum[j] += x[i + j] - x[i + j];
    for (; i < n; i++) sum[0] += x[i] - x[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])) == 0;
}

#endif
