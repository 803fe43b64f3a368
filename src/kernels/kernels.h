/* The inner loops, each in several instruction sets, behind one table of function pointers that is filled once.
 *
 * The table starts as the reference set (ref.c: plain C, the definition of what a kernel computes) and each instruction
 * set that the machine has overwrites what it improves. Float kernels agree with a double-precision sum within the
 * bound that tests/kernels states; integer kernels equal the reference exactly. Kernels never read outside their
 * arguments, accept any alignment and any length including 0, and allocate nothing.
 *
 * Shapes: q (d); rows (n, d) with `stride` elements from one row to the next; out (n); m classes, d dimensions.
 *
 *   dot_*      out[i] = q . rows[i]: one query with a block of consecutive rows.
 *   gather_*   out[i] = q . rows[ids[i]]: rows named by id, the next ones prefetched.
 *              bf16 rows are the upper halves of floats; i8 rows have a scale each:
 *              out[i] = (float)(sum of q[j] * row[j]) * (scales[row] * q_scale), the sum exact in int32.
 *   quantise   returns scale = max |x| / 127, out[j] = x[j] / scale rounded to nearest, ties to even. Zeros, and scale
 *              0, where max |x| is below 1e-30; zeros, and scale NaN, where an x is not finite.
 *   project    n points x (n, d) on hyperplanes:
 *              z[i, p] = offsets[p] + sum over j of x[i, j] * planes[j * n_planes + p].
 *              They are stored d-major, so that one coordinate meets all of them at once. n_planes is a multiple of 16.
 *              z (n, n_planes); bit p % 16 of bits[i, p / 16] is z[i, p] > 0, of the z that was written. A point's z
 *              does not depend on the others, to the last bit.
 *   project_i8 the same in int8: z[i, p] = offsets[p] + sum * (x_scales[i] * scales[p]), the product added in one
 *              rounding, sum = x[i] . plane p, exact in int32. Planes are stored with 128 added, in fours of
 *              coordinates: 4 j + c of plane p is planes[(j * stride + p) * 4 + c] - 128. x (n, 4 fours), z (n,
 *              n_planes).
 *   tile       a small product, see woi_tile: what woi_gemm and the exact layer are made of.
 *   interleave out[p * width + i] = rows[i * stride + p] for p < k and i < n, and 0 for n <= i < width: a panel.
 *   tile_i8    a small product in int8, see woi_tile_i8: what the screen of all rows is made of.
 *   sift       the scores >= bar, in their order, to `kept`, and their ids to kept_ids: ids[i], or first_id + i where
 *              ids is NULL. NaN is never taken. Returns how many there are; kept NULL: they are only counted. There is
 *              room for those that there are; kept and kept_ids may be scores and ids.
 *   topk_scan  offers scores[i] with id first_id + i to `top`. NaN is never taken.
 *   pick       the k best of n scores, best first, of equal ones the lower id first: best and best_ids (k); ids (n),
 *              or NULL where a score's id is its place. NaN is never taken. Returns how many there are; what is beyond
 *              them gets -INFINITY and id -1. Scores are used up.
 *   sum_f32    the sum of x[i], in any order: what reading memory costs at least.
 *   multiply_adds  runs `steps` steps of independent multiply-adds on registers alone, and returns how many
 *              multiply-adds of single numbers that were: what the processor can do at most.
 *   max_f32    the largest x[i]; -INFINITY for n = 0; NaNs are passed over.
 *   exp_sum    the sum of exp(x[i] - shift); out[i] = exp(x[i] - shift) too unless out is NULL; out may be x.
 *              With shift = max_f32: log-softmax is x - shift - log(sum).
 *   scaled_log x[i] = scale * log(1 + over * x[i]), x[i] and over at least 0 and the product finite; log 1 is 0.
 *              The logarithm is within 1e-6, and 2e-7 of itself, of the true one.
 *   adam       one fused Adam step on n parameters, see woi_adam_step. */
#ifndef WOI_KERNELS_KERNELS_H
#define WOI_KERNELS_KERNELS_H

#include "wideout.h"

#include <stdint.h>

enum { WOI_MAX_I8 = 131071 }; /* of i8 vectors: sums of so many products fit in int32 */

/* The k best (score, id) pairs seen so far: a binary heap with the worst on top, where of equal scores the higher id is
 * the worse. The caller owns the arrays (k each), sets k >= 1 and n = 0, scans, then calls woi_topk_finish. */
typedef struct woi_topk {
    size_t k, n;
    float *scores;
    int32_t *ids;
} woi_topk;

/* Sorts best first, ties to the lower id, and pads entries n..k-1 with id -1 and score -INFINITY. */
void woi_topk_finish(woi_topk *top);

/* m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g g;  w -= rate m / (sqrt(v) * root_scale + epsilon)
 * where the caller folds in the bias corrections of step t: rate = lr / (1 - beta1^t), root_scale = 1 / sqrt(1 -
 * beta2^t). */
typedef struct woi_adam_step {
    float beta1, beta2, rate, root_scale, epsilon;
} woi_adam_step;

/* A tile of C = A B^T, both in panels:
 *
 *   c[r * stride + j] = start + sum over p < k of a[p * tile_rows + r] * b[p * tile_columns + j],  r < rows, j <
 * columns
 *
 * start is start[j], or what is in c where `start` is NULL. tile_rows and tile_columns belong to the instruction set
 * and stand in the table; rows and columns are 1 to these. Panels are whole, whatever rows and columns are; of `start`
 * and c nothing else is touched. The products are added one after the other, p rising, so that the bits of an element
 * do not depend on rows, columns or on how k is cut into calls. */
typedef struct woi_tile {
    const float *a, *b; /* (k, tile_rows) and (k, tile_columns) */
    size_t a_step, k, rows, columns;
    const float *start;
    float *c;
    size_t stride;
} woi_tile;

enum { WOI_MOST_TILE_ROWS = 16, WOI_MOST_TILE_COLUMNS = 48 };

/* A tile of scores in int8, queries by classes:
 *
 *   c[r * stride + j] = start[j] + sum * (a_scales[r] * b_scales[j]),  r < rows, j < 16 * panels
 *
 * the product added in one rounding. sum is exact in int32: over i < fours and x < 4 of a[(8 i + r) * 4 + x] *
 * (b[((j / 16 * fours + i) * 16 + j % 16) * 4 + x] - 128). Queries are -127 to 127, never -128, and lie in panels of 8,
 * whole whatever `rows` is; classes have 128 added, which two instruction sets want, and lie in panels of 16. All
 * instruction sets share the layout, so that a file can have it. */
typedef struct woi_tile_i8 {
    const int8_t *a;               /* (fours, 8, 4) */
    const float *a_scales;         /* (rows) */
    const int32_t *a_sums;         /* (rows): of a query's numbers, which takes the 128 off */
    const uint8_t *b;              /* (panels, fours, 16, 4) */
    const float *b_scales, *start; /* (16 panels) */
    size_t fours, rows, panels;    /* rows: 1 to 8 */
    float *c;
    size_t stride;
} woi_tile_i8;

enum { WOI_I8_ROWS = 8, WOI_I8_COLUMNS = 16 };

typedef enum woi_kernel_id {
#define WOI_KERNEL(ret, name, params) WOI_K_##name,
#include "kernels/kernels.def"
#undef WOI_KERNEL
    WOI_N_KERNELS
} woi_kernel_id;

typedef struct woi_kernels {
#define WOI_KERNEL(ret, name, params) ret(*name) params;
#include "kernels/kernels.def"
#undef WOI_KERNEL
    size_t tile_rows, tile_columns;  /* of `tile` */
    const char *path[WOI_N_KERNELS]; /* which instruction set each entry comes from: "avx512vnni" */
} woi_kernels;

/* The levels of this kind of processor in rising order; each includes the ones below. Instructions for dot products of
 * bytes are a part of the last one, used where present: VNNI of avx512, ASIMDDP of neon. */
typedef enum woi_level {
    WOI_LEVEL_REF,
#if defined(__x86_64__)
    WOI_LEVEL_AVX2,
    WOI_LEVEL_AVX512,
#elif defined(__aarch64__)
    WOI_LEVEL_NEON,
#endif
    WOI_N_LEVELS
} woi_level;

/* "ref", "avx2": as WIDEOUT_CPU names it. */
const char *woi_level_name(woi_level level);

/* The table that this process uses: chosen at the first call, whatever the thread, then constant. NULL, with the
 * sentence in `err`, when WIDEOUT_CPU asks for what the machine lacks. */
const woi_kernels *woi_kernels_get(wo_error *err);

/* Fills `table` for one level, with or without the instructions for dot products of bytes that belong to it; 0 when
 * this machine cannot run it, or the level has no such part. For tests and benchmarks. */
int woi_kernels_at(woi_level level, int with_dot, woi_kernels *table);

/* Each instruction set's file: overwrites the entries that it improves. */
void woi_kernels_use_ref(woi_kernels *table);
void woi_kernels_use_avx2(woi_kernels *table);
void woi_kernels_use_avx512(woi_kernels *table);
void woi_kernels_use_avx512vnni(woi_kernels *table);
void woi_kernels_use_neon(woi_kernels *table);
void woi_kernels_use_neondot(woi_kernels *table);

#define WOI_USE(table, name, isa) ((table)->name = name##_##isa, (table)->path[WOI_K_##name] = #isa)

#endif
