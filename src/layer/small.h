/* Rows in fewer bits: bf16 in place of f32, or int8 beside either. int8 finds the best candidates, f32 or bf16 orders
 * them: int8 alone would misplace close ones. */
#ifndef WOI_LAYER_SMALL_H
#define WOI_LAYER_SMALL_H

#include "layer/exact.h"

/* As the quantise kernel, but for x of any size: where the kernel has scale 0, codes and scale are taken in double.
 * Rows down to f32's smallest normal number, 1.2e-38, are so told apart by queries of lengths near 1; below, products
 * of scales are rounded to a few bits, or to 0. */
float woi_quantise(const woi_kernels *kernels, const float *x, size_t d, int8_t *out);

/* All NULL: none. */
typedef struct woi_small {
    uint16_t *bf16; /* (m, d), in place of f32 */
    int8_t *i8;     /* (m, d), beside f32 or bf16: w is about i8 * scales */
    float *scales;  /* (m) */
} woi_small;

static inline bool woi_has_bf16(wo_weights weights)
{
    return weights == WO_WEIGHTS_BF16 || weights == WO_WEIGHTS_INT8_BF16;
}

static inline bool woi_has_int8(wo_weights weights)
{
    return weights == WO_WEIGHTS_INT8 || weights == WO_WEIGHTS_INT8_BF16;
}

/* Fails where bf16 would make a weight infinite: its class would be answered always, or never. */
wo_status woi_small_check(const woi_dense *rows, wo_error *err);
/* The rows in the precision that the options ask for. */
wo_status woi_small_make(const woi_dense *rows, wo_weights weights, int threads, woi_small *small, wo_error *err);
void woi_small_free(woi_small *small); /* and zeroed again */

#endif
