/* Halves: the upper 16 bits of a float. */
#ifndef WOI_BASE_BF16_H
#define WOI_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float woi_bf16_to_f32(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
