/* Philox4x32-10, and what is drawn from it: distributions, samples, permutations. */
#include "base/rng.h"

#include <math.h>

__extension__ typedef unsigned __int128 u128;

void woi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void block(uint64_t seed, uint64_t stream, uint64_t position, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    woi_philox(counter, key, out);
}

uint64_t woi_rng_u64(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint32_t word[4];
    block(seed, stream, position, word);
    return (uint64_t)word[1] << 32 | word[0];
}

float woi_rng_uniform(uint64_t seed, uint64_t stream, uint64_t position)
{
    return (float)(woi_rng_u64(seed, stream, position) >> 40) * 0x1p-24f;
}

uint64_t woi_rng_below(uint64_t seed, uint64_t stream, uint64_t position, uint64_t n)
{
    return (uint64_t)(((u128)woi_rng_u64(seed, stream, position) * n) >> 64);
}

float woi_rng_normal(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint32_t word[4];
    block(seed, stream, position, word);
    /* u in (0, 1], so that the logarithm is finite. */
    double u = ((double)word[0] + 1.0) * 0x1p-32;
    double angle = 6.283185307179586 * 0x1p-32 * (double)word[1];
    return (float)(sqrt(-2.0 * log(u)) * cos(angle));
}

size_t woi_rng_place(uint64_t seed, uint64_t stream, size_t i, size_t n, size_t total)
{
    const size_t low = (size_t)((u128)i * total / n);
    const size_t high = (size_t)((u128)(i + 1) * total / n);
    return low + (size_t)woi_rng_below(seed, stream, i, high - low);
}

uint64_t woi_rng_permute(uint64_t seed, uint64_t stream, uint64_t which, uint64_t n, uint64_t i)
{
    uint32_t half = 1; /* bits of either half */
    while (half < 31 && (UINT64_C(1) << 2 * half) < n) half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            const uint64_t mixed = left ^ (woi_rng_u64(seed, stream, which << 34 | round << 32 | right) & mask);
            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
