/* What neon.c and neondot.c share: loads, row ends, the reduction of eight rows. */
#ifndef WOI_KERNELS_NEON_H
#define WOI_KERNELS_NEON_H

#include "kernels/simd.h"

#include <arm_neon.h>
#include <string.h>

/* neontile.c: puts its kernels into the table. */
void woi_use_tile_neon(woi_kernels *table);

/* Eight rows' sums, of which the first n are wanted. */
WOI_INLINE void woi_store_sums(float *out, size_t n, float32x4_t low, float32x4_t high)
{
    if (n == WOI_BLOCK) {
        vst1q_f32(out, low);
        vst1q_f32(out + 4, high);
        return;
    }
    float all[WOI_BLOCK];
    vst1q_f32(all, low);
    vst1q_f32(all + 4, high);
    memcpy(out, all, n * sizeof *all);
}

/* Lane r of the result is the sum over v[r]. */
WOI_INLINE float32x4_t woi_sums_f32(const float32x4_t v[4])
{
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
}

WOI_INLINE int32x4_t woi_sums_s32(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

#endif
