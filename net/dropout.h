/* Dropout: each value is kept with probability 1 - p and then divided by it, the same ones for the same (seed, stream).
 */
#ifndef WOI_NET_DROPOUT_H
#define WOI_NET_DROPOUT_H

#include "base/rng.h"

#include <stddef.h>

/* Multiplies x by the mask, which it makes: 0 or 1 / (1 - p). */
static inline void woi_dropout(float *x, float *mask, size_t n, double p, uint64_t seed, uint64_t stream)
{
    const uint32_t limit = (uint32_t)((1 - p) * 0xffffffffu), key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const float kept = (float)(1 / (1 - p));
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
        woi_philox(counter, key, word);
        for (size_t j = i; j < i + 4 && j < n; j++) {
            mask[j] = word[j - i] <= limit ? kept : 0;
            x[j] *= mask[j];
        }
    }
}

#endif
