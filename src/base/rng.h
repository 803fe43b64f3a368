/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * A number is a pure function of (seed, stream, position). There is no state to share or to advance, so a loop split
 * over any number of threads draws the same numbers: give every independent purpose its own stream and index by
 * position. */
#ifndef WOI_BASE_RNG_H
#define WOI_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* The raw block function: 4 counter words and 2 key words give 4 random words. */
void woi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* 64 random bits. */
uint64_t woi_rng_u64(uint64_t seed, uint64_t stream, uint64_t position);

/* Uniform in [0, 1), 24 bits. */
float woi_rng_uniform(uint64_t seed, uint64_t stream, uint64_t position);

/* Uniform in 0 .. n-1, n > 0. The bias is below n / 2^64. */
uint64_t woi_rng_below(uint64_t seed, uint64_t stream, uint64_t position, uint64_t n);

/* Standard normal (Box-Muller). */
float woi_rng_normal(uint64_t seed, uint64_t stream, uint64_t position);

/* The i-th of n places in 0 .. total-1, n <= total: rising with i and distinct, one drawn from each n-th of the range;
 * all of them for n = total. */
size_t woi_rng_place(uint64_t seed, uint64_t stream, size_t i, size_t n, size_t total);

/* Position i of a random permutation of 0 .. n-1, i < n: a Feistel network on the next power of four, walked until it
 * lands below n. No array is kept, so that a few of many millions can be drawn without replacement. */
uint64_t woi_rng_permute(uint64_t seed, uint64_t stream, uint64_t which, uint64_t n, uint64_t i);

#endif
