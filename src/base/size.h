/* Checked size arithmetic: counts come from files, so `n * d` never goes unchecked. Each returns true on success and
 * leaves the result in *out; false means that it does not fit. */
#ifndef WOI_BASE_SIZE_H
#define WOI_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool woi_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool woi_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Rounds up to a multiple of `to`, a power of two. */
static inline bool woi_size_round_up(size_t a, size_t to, size_t *out)
{
    if (!woi_size_add(a, to - 1, out)) return false;
    *out &= ~(to - 1);
    return true;
}

#endif
