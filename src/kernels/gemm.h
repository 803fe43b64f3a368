/* Products of matrices, C = A B^T, out of tiles.
 *
 * An operand says how its elements lie, so that one function serves all three products of a layer's training:
 *
 *   logits   Q W^T      (n, d) and (m, d)           both by rows
 *   dW       dZ^T Q     (m, n) and (d, n)           both by depth: the sum runs down their columns
 *   dQ       dZ W       (n, m) and (d, m)           by rows, and by depth
 *
 * Every element of C is one sum in rising order of the depth, whatever the shape and the blocks: threads may cut n and
 * m as they like. (But products of up to WOI_GEMM_FEW rows, both operands by rows, are dot_f32's.) */
#ifndef WOI_KERNELS_GEMM_H
#define WOI_KERNELS_GEMM_H

#include "kernels/kernels.h"

#include <stdbool.h>

enum { WOI_GEMM_FEW = 4 };

typedef enum woi_layout {
    WOI_BY_ROWS,  /* element p of row i is x[i * ld + p] */
    WOI_BY_DEPTH, /* ... x[p * ld + i] */
    WOI_IN_PANELS /* what woi_gemm_pack wrote; for B alone, ld is not used */
} woi_layout;

typedef struct woi_operand {
    const float *x;
    size_t ld;
    woi_layout layout;
} woi_operand;

typedef struct woi_product {
    size_t n, m, k; /* A (n, k), B (m, k), C (n, m) */
    woi_operand a, b;
    float *c;
    size_t ldc;
    bool add;           /* to what is in C, which is otherwise overwritten */
    const float *start; /* (m): what each row of C begins with, where it is overwritten; NULL: zeros */
} woi_product;

/* Floats of scratch that woi_gemm needs, for any product. */
enum {
    WOI_GEMM_DEPTH = 256, /* of a block */
    WOI_GEMM_A = WOI_MOST_TILE_ROWS * WOI_GEMM_DEPTH,
    WOI_GEMM_B = 256 * WOI_GEMM_DEPTH, /* 256 KiB: it stays in the second-level cache */
    WOI_GEMM_SCRATCH = WOI_GEMM_A + WOI_GEMM_B
};

/* On the calling thread; allocates nothing. `scratch` is one thread's own. */
void woi_gemm(const woi_kernels *kernels, const woi_product *p, float *scratch);

/* Writes B (m, k), by rows or by depth, as panels, for products that all have this B. They hold for these kernels
 * alone. woi_gemm_packed: how many floats. */
void woi_gemm_pack(const woi_kernels *kernels, const woi_operand *b, size_t m, size_t k, float *panels);
size_t woi_gemm_packed(const woi_kernels *kernels, size_t m, size_t k);

#endif
