/* Products out of tiles.
 *
 *   B is packed a block at a time: WOI_GEMM_DEPTH deep, as wide as fits WOI_GEMM_B, in panels of tile_columns
 *   A is packed a panel at a time, which stays in the first-level cache while B's stream past it; by depth it is
 *   read where it lies
 *
 *        B's block   [ panel | panel | ... | panel ]     panel: (depth, tile_columns)
 *   A's panel  [ ]   [ tile  | tile  | ... | tile  ]     panel: (depth, tile_rows)
 *
 * A is packed again for every block of B: that costs 8/width of the work. */
#include "kernels/gemm.h"

#include <string.h>

enum { FEW_BYTES = 16384 }; /* of B, at a time for a few rows: they stay in the first-level cache */

static const float zeros[WOI_MOST_TILE_COLUMNS];

static size_t less(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Eights and pairs: lengths are not known here, and calls of memcpy would cost as much as the tile. */
static void copy(float *restrict to, const float *restrict from, size_t n)
{
    for (; n >= 8; n -= 8, to += 8, from += 8) memcpy(to, from, 8 * sizeof *to);
    for (; n >= 2; n -= 2, to += 2, from += 2) memcpy(to, from, 2 * sizeof *to);
    if (n) *to = *from;
}

/* Rows first .. first + n of an operand, steps at .. at + depth. */
typedef struct piece {
    size_t first, n, at, depth;
} piece;

/* As panels one after the other, `width` rows each. */
static void pack(const woi_kernels *kernels, const woi_operand *x, const piece *of, size_t width, float *panels)
{
    const size_t step = of->depth * width;
    if (x->layout == WOI_BY_ROWS) {
        const float *from = x->x + of->first * x->ld + of->at;
        for (size_t i = 0; i < of->n; i += width, panels += step)
            kernels->interleave(from + i * x->ld, less(of->n - i, width), of->depth, x->ld, width, panels);
        return;
    }
    const size_t whole = of->n / width * width, rest = of->n - whole;
    for (size_t p = 0; p < of->depth; p++) {
        const float *from = x->x + (of->at + p) * x->ld + of->first;
        float *to = panels + p * width;
        for (size_t i = 0; i < whole; i += width, to += step) copy(to, from + i, width);
        if (!rest) continue;
        copy(to, from + whole, rest);
        for (size_t i = rest; i < width; i++) to[i] = 0;
    }
}

size_t woi_gemm_packed(const woi_kernels *kernels, size_t m, size_t k)
{
    return (m + kernels->tile_columns - 1) / kernels->tile_columns * kernels->tile_columns * k;
}

void woi_gemm_pack(const woi_kernels *kernels, const woi_operand *b, size_t m, size_t k, float *panels)
{
    pack(kernels, b, &(piece){0, m, 0, k}, kernels->tile_columns, panels);
}

/* A few rows of A, each with dot_f32. */
static void few_rows(const woi_kernels *kernels, const woi_product *p)
{
    float sums[256];
    size_t rows = FEW_BYTES / sizeof(float) / (p->k ? p->k : 1);
    rows = rows < 8 ? 8 : less(rows, 256);
    for (size_t j = 0; j < p->m; j += rows) {
        const size_t n = less(p->m - j, rows);
        for (size_t i = 0; i < p->n; i++) {
            float *c = p->c + i * p->ldc + j;
            kernels->dot_f32(p->a.x + i * p->a.ld, p->b.x + j * p->b.ld, n, p->k, p->b.ld, p->add ? sums : c);
            for (size_t e = 0; p->add && e < n; e++) c[e] += sums[e];
            for (size_t e = 0; !p->add && p->start && e < n; e++) c[e] += p->start[j + e];
        }
    }
}

/* One block of B with all of A. */
static void multiply_block(const woi_kernels *kernels, const woi_product *p, const piece *of, float *scratch)
{
    const size_t rows = kernels->tile_rows, columns = kernels->tile_columns;
    float *a = scratch, *b_room = scratch + WOI_GEMM_A;
    const bool packed = p->b.layout == WOI_IN_PANELS;
    const float *b = packed ? p->b.x + of->first * p->k + of->at * columns : b_room;
    const size_t b_step = (packed ? p->k : of->depth) * columns;
    if (!packed) pack(kernels, &p->b, of, columns, b_room);
    const bool goes_on = of->at || p->add;
    woi_tile t = {.k = of->depth, .stride = p->ldc};
    for (size_t i = 0; i < p->n; i += rows) {
        t.rows = less(p->n - i, rows);
        if (p->a.layout == WOI_BY_DEPTH && t.rows == rows) {
            t.a = p->a.x + of->at * p->a.ld + i;
            t.a_step = p->a.ld;
        } else {
            pack(kernels, &p->a, &(piece){i, t.rows, of->at, of->depth}, rows, a);
            t.a = a;
            t.a_step = rows;
        }
        t.b = b;
        for (size_t j = 0; j < of->n; j += columns, t.b += b_step) {
            t.columns = less(of->n - j, columns);
            t.start = goes_on ? NULL : p->start ? p->start + of->first + j : zeros;
            t.c = p->c + i * p->ldc + of->first + j;
            kernels->tile(&t);
        }
    }
}

void woi_gemm(const woi_kernels *kernels, const woi_product *p, float *scratch)
{
    if (p->n <= WOI_GEMM_FEW && p->a.layout == WOI_BY_ROWS && p->b.layout == WOI_BY_ROWS) {
        few_rows(kernels, p);
        return;
    }
    if (p->k == 0) {
        for (size_t i = 0; !p->add && i < p->n; i++)
            for (size_t j = 0; j < p->m; j++) p->c[i * p->ldc + j] = p->start ? p->start[j] : 0;
        return;
    }
    const size_t columns = kernels->tile_columns, deepest = less(p->k, WOI_GEMM_DEPTH);
    const size_t widest = WOI_GEMM_B / deepest / columns * columns;
    for (size_t first = 0; first < p->m; first += widest)
        for (size_t at = 0; at < p->k; at += WOI_GEMM_DEPTH)
            multiply_block(kernels, p, &(piece){first, less(p->m - first, widest), at, less(p->k - at, WOI_GEMM_DEPTH)},
                           scratch);
}
