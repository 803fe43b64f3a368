/* Which rows of a file go to validation: a function of the seed and the row's number alone. */
#ifndef WOI_TEXT_SPLIT_H
#define WOI_TEXT_SPLIT_H

#include "base/rng.h"

/* 1 for about `valid` of the rows (counted from 0), 0 for the others. */
static inline int woi_split_row(uint64_t seed, uint64_t row, double valid)
{
    const uint64_t stream = 0x73706c6974; /* "split" */
    return (double)(woi_rng_u64(seed, stream, row) >> 11) * 0x1p-53 < valid;
}

#endif
