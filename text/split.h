/* Which rows of a file go to validation, or are drawn: a function of the seed and the row's number alone. */
#ifndef WOI_TEXT_SPLIT_H
#define WOI_TEXT_SPLIT_H

#include "base/rng.h"

/* 1 for about `valid` of the rows (counted from 0), 0 for the others. */
static inline int woi_split_row(uint64_t seed, uint64_t row, double valid)
{
    const uint64_t stream = 0x73706c6974; /* "split" */
    return (double)(woi_rng_u64(seed, stream, row) >> 11) * 0x1p-53 < valid;
}

/* Whether a row is drawn where `wanted` of the `left` rows from it on are to be. */
static inline int woi_draw_row(uint64_t seed, uint64_t row, uint64_t wanted, uint64_t left)
{
    const uint64_t stream = 0x64726177; /* "draw" */
    return woi_rng_below(seed, stream, row, left) < wanted;
}

#endif
