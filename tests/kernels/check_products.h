/* Kernels that multiply: dot, gather, quantise, project, project_i8, tile_i8, tile, interleave. */
#ifndef WO_CHECK_PRODUCTS_H
#define WO_CHECK_PRODUCTS_H

#include "guarded.h"

/* ---- dot and gather ---------------------------------------------------------------------------------------- */

typedef enum row_type { F32, BF16, I8 } row_type;

static double row_element(row_type type, const void *rows, size_t at)
{
    return type == F32 ? (double)((const float *)rows)[at] : (double)from_bf16(((const uint16_t *)rows)[at]);
}

typedef struct rows_call {
    const void *q;
    float q_scale; /* int8 */
    const void *rows;
    const float *scales; /* int8 */
    const int32_t *ids;  /* NULL: dot, all rows */
    size_t n, d, stride;
    float *out;
} rows_call;

static void call_rows(const woi_kernels *k, row_type type, const rows_call *c)
{
    switch (type) {
    case F32:
        c->ids ? k->gather_f32(c->q, c->rows, c->ids, c->n, c->d, c->stride, c->out)
               : k->dot_f32(c->q, c->rows, c->n, c->d, c->stride, c->out);
        break;
    case BF16:
        c->ids ? k->gather_bf16(c->q, c->rows, c->ids, c->n, c->d, c->stride, c->out)
               : k->dot_bf16(c->q, c->rows, c->n, c->d, c->stride, c->out);
        break;
    case I8:
        c->ids ? k->gather_i8(c->q, c->q_scale, c->rows, c->scales, c->ids, c->n, c->d, c->stride, c->out)
               : k->dot_i8(c->q, c->q_scale, c->rows, c->scales, c->n, c->d, c->stride, c->out);
        break;
    }
}

/* What differs from one trial to the next; place: put()'s. */
typedef struct rows_shape {
    size_t n, d, stride, place;
} rows_shape;

/* One call: n results over a table of `m` rows (m = n for dot). */
static void try_rows(const woi_kernels *k, row_type type, bool gather, rows_shape shape)
{
    const size_t n = shape.n, d = shape.d, stride = shape.stride, place = shape.place;
    const size_t m = gather ? n + 3 : n, size = type == F32 ? 4 : type == BF16 ? 2 : 1;
    const size_t n_elements = m ? (m - 1) * stride + d : 0; /* the table ends with its last row, not with its stride */
    const size_t q_size = type == I8 ? 1 : 4;
    void *q = put(0, d * q_size, place, q_size), *rows = put(1, n_elements * size, place, size);
    float *scales = put(2, m * sizeof *scales, place % 17, sizeof *scales);
    int32_t *ids = put(3, n * sizeof *ids, place % 17, sizeof *ids);
    float *out = put(4, n * sizeof *out, place % 17, sizeof *out);
    const float q_scale = 0.37f;
    if (type == I8)
        fill_bytes(q, d);
    else
        fill_floats(q, d);
    if (type == I8) fill_bytes(rows, n_elements);
    if (type == F32) fill_floats(rows, n_elements);
    if (type == BF16)
        for (size_t j = 0; j < n_elements; j++) ((uint16_t *)rows)[j] = to_bf16(random_float());
    fill_floats(scales, m);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(random_u32() % m), out[i] = NAN;

    call_rows(k, type, &(rows_call){q, q_scale, rows, scales, gather ? ids : NULL, n, d, stride, out});
    for (size_t i = 0; i < n; i++) {
        const size_t row = gather ? (size_t)ids[i] : i;
        if (type == I8) {
            int32_t sum = 0;
            for (size_t j = 0; j < d; j++) sum += ((const int8_t *)q)[j] * ((const int8_t *)rows)[row * stride + j];
            const float want = (float)sum * (scales[row] * q_scale);
            CHECK(memcmp(&out[i], &want, sizeof want) == 0, "n %zu d %zu stride %zu place %zu: [%zu] is %.9g, not %.9g",
                  n, d, stride, place, i, (double)out[i], (double)want);
        } else {
            double want = 0, size_of_terms = 0;
            for (size_t j = 0; j < d; j++) {
                const double term = (double)((const float *)q)[j] * row_element(type, rows, row * stride + j);
                want += term;
                size_of_terms += fabs(term);
            }
            CHECK(within((double)out[i], want, (double)(d + 8) * 0x1p-24 * size_of_terms),
                  "n %zu d %zu stride %zu place %zu: [%zu] is %.9g, not %.9g", n, d, stride, place, i, (double)out[i],
                  want);
        }
    }
}

static void try_all_rows(const woi_kernels *k, row_type type, bool gather)
{
    const size_t n_places = type == I8 ? 65 : 17;
    for (size_t d = 0; d <= 130; d++) {
        for (size_t place = 0; place < n_places; place++)
            try_rows(k, type, gather, (rows_shape){(d + place) % 11, d, d, place});
        for (size_t n = 0; n <= 18; n++) try_rows(k, type, gather, (rows_shape){n, d, d + n % 3, 0});
        try_rows(k, type, gather, (rows_shape){9, d, d + 37, 1});
    }
    const size_t long_d[] = {191, 192, 200, 255, 256, 257, 319, 384, 511, 512, 700, 1024, 1333, 2050};
    for (size_t c = 0; c < sizeof long_d / sizeof *long_d; c++)
        for (size_t n = 7; n <= 17; n += 5)
            try_rows(k, type, gather, (rows_shape){n, long_d[c], long_d[c] + c % 2, n % 3});
    try_rows(k, type, gather, (rows_shape){300, 48, 48, 0});
}

/* The largest sums that kernels.h promises: d = 131,071, everything -128, and opposite signs. */
static void try_i8_extremes(const woi_kernels *k, bool gather)
{
    const size_t d = 131071;
    int8_t *q = put(0, d, 0, 1), *row = put(1, d, 0, 1);
    const float scale = 1;
    const int32_t id = 0;
    for (int sign = 0; sign < 2; sign++) {
        memset(q, sign ? 127 : -128, d);
        memset(row, -128, d);
        float out = NAN;
        call_rows(k, I8, &(rows_call){q, 1, row, &scale, gather ? &id : NULL, 1, d, d, &out});
        const float want = (float)((sign ? -127 : 128) * 128 * (int32_t)d);
        CHECK(out == want, "extreme sum is %.9g, not %.9g", (double)out, (double)want);
    }
}

/* An infinite element gives an infinite sum, also where it lies in the part of a row that is read twice. */
static void try_infinite(const woi_kernels *k, row_type type, bool gather)
{
    const int32_t id = 0;
    for (size_t d = 1; d <= 70; d++) {
        float *q = put(0, d * sizeof *q, 0, sizeof *q), out = NAN;
        void *row = put(1, d * (type == F32 ? 4 : 2), 0, 1);
        for (size_t at = 0; at < d; at++) {
            for (size_t j = 0; j < d; j++) {
                const float value = j == at ? INFINITY : 1;
                q[j] = 1;
                if (type == F32)
                    ((float *)row)[j] = value;
                else
                    ((uint16_t *)row)[j] = to_bf16(value);
            }
            call_rows(k, type, &(rows_call){q, 1, row, NULL, gather ? &id : NULL, 1, d, d, &out});
            CHECK(isinf(out) && out > 0, "d %zu with infinity at %zu gives %g", d, at, (double)out);
        }
    }
}

static void try_float_rows(const woi_kernels *k, row_type type, bool gather)
{
    try_all_rows(k, type, gather);
    try_infinite(k, type, gather);
}

static void try_i8_rows(const woi_kernels *k, bool gather)
{
    try_all_rows(k, I8, gather);
    try_i8_extremes(k, gather);
}

static void test_dot_f32(const woi_kernels *k)
{
    try_float_rows(k, F32, false);
}
static void test_dot_bf16(const woi_kernels *k)
{
    try_float_rows(k, BF16, false);
}
static void test_dot_i8(const woi_kernels *k)
{
    try_i8_rows(k, false);
}
static void test_gather_f32(const woi_kernels *k)
{
    try_float_rows(k, F32, true);
}
static void test_gather_bf16(const woi_kernels *k)
{
    try_float_rows(k, BF16, true);
}
static void test_gather_i8(const woi_kernels *k)
{
    try_i8_rows(k, true);
}

/* ---- quantise ---------------------------------------------------------------------------------------------- */

static void test_quantise(const woi_kernels *k)
{
    woi_kernels ref;
    woi_kernels_at(WOI_LEVEL_REF, 0, &ref);
    for (size_t d = 0; d <= 200; d++)
        for (size_t place = 0; place < 5; place++) {
            float *x = put(0, d * sizeof *x, place, 4);
            int8_t *out = put(1, d, place, 1), want[200];
            fill_floats(x, d);
            if (place == 1)
                for (size_t j = 0; j < d; j++)
                    x[j] = (float)((int)(random_u32() % 255) - 127) / 2; /* ties of rounding */
            if (place == 2)
                for (size_t j = 0; j < d; j++) x[j] *= 1e-36F;
            if (place == 3)
                for (size_t j = 0; j < d; j++) x[j] *= 1e30F;
            if (place == 4 && d) x[random_u32() % d] = (float[]){NAN, INFINITY, -INFINITY}[d % 3];
            const float scale = k->quantise(x, d, out), expected = ref.quantise(x, d, want);
            CHECK(scale == expected || (isnan(scale) && isnan(expected)), "d %zu place %zu: scale %.9g, not %.9g", d,
                  place, (double)scale, (double)expected);
            for (size_t j = 0; j < d; j++) {
                CHECK(out[j] == want[j], "d %zu: out[%zu] is %d, not %d", d, j, out[j], want[j]);
                CHECK(!isnan(scale) || (place == 4 && out[j] == 0), "d %zu: NaN, and %d", d, out[j]);
                CHECK(!(scale > 0) || fabs((double)x[j] - (double)scale * out[j]) <= 0.501 * (double)scale,
                      "d %zu: %.9g became %d times %.9g", d, (double)x[j], out[j], (double)scale);
            }
        }
}

/* ---- project ----------------------------------------------------------------------------------------------- */

static void try_project(const woi_kernels *k, size_t n, size_t d, size_t n_planes, size_t place)
{
    float *xs = put(0, n * d * sizeof *xs, place, 4), *planes = put(1, d * n_planes * sizeof *planes, place, 4);
    float *offsets = put(2, n_planes * sizeof *offsets, place, 4), *zs = put(3, n * n_planes * sizeof *zs, place, 4);
    uint16_t *all_bits = put(4, n * (n_planes / 16) * sizeof *all_bits, place, 2);
    fill_floats(xs, n * d);
    fill_floats(planes, d * n_planes);
    fill_floats(offsets, n_planes);
    if (n_planes) offsets[0] = 0; /* and a zero plane: z is 0, which is not positive */
    for (size_t j = 0; n_planes && j < d; j++) planes[j * n_planes] = 0;
    if (n_planes >= 32) offsets[17] = NAN, offsets[18] = INFINITY, offsets[19] = -INFINITY;
    for (size_t p = 0; p < n * n_planes; p++) zs[p] = NAN;
    for (size_t b = 0; b < n * (n_planes / 16); b++) all_bits[b] = 0xa5a5;
    k->project(xs, n, planes, offsets, d, n_planes, zs, all_bits);
    for (size_t each = 0; each < n * n_planes; each++) {
        const size_t i = each / n_planes, p = each % n_planes;
        const float *x = xs + i * d, *z = zs + i * n_planes;
        const uint16_t *bits = all_bits + i * (n_planes / 16);
        const bool bit = bits[p / 16] >> p % 16 & 1;
        CHECK(bit == (z[p] > 0), "d %zu planes %zu: bit %zu is %d, z is %g", d, n_planes, p, bit, (double)z[p]);
        double want = (double)offsets[p], size_of_terms = fabs(want);
        for (size_t j = 0; j < d; j++) {
            want += (double)x[j] * (double)planes[j * n_planes + p];
            size_of_terms += fabs((double)x[j] * (double)planes[j * n_planes + p]);
        }
        const bool same = isfinite(want) ? within((double)z[p], want, (double)(d + 8) * 0x1p-24 * size_of_terms)
                                         : (isnan(want) ? isnan(z[p]) : (double)z[p] == want);
        CHECK(same, "d %zu planes %zu place %zu: z[%zu] is %.9g, not %.9g", d, n_planes, place, p, (double)z[p], want);
    }
    float alone[352];
    uint16_t alone_bits[352 / 16];
    for (size_t i = 0; i < n && n_planes <= 352; i++) {
        k->project(xs + i * d, 1, planes, offsets, d, n_planes, alone, alone_bits);
        CHECK(memcmp(alone, zs + i * n_planes, n_planes * sizeof *alone) == 0,
              "n %zu d %zu planes %zu: point %zu alone is projected differently", n, d, n_planes, i);
    }
}

static void test_project(const woi_kernels *k)
{
    for (size_t d = 0; d <= 130; d++)
        for (size_t place = 0; place < 17; place++) try_project(k, 1, d, 16 * ((d + place) % 10), place);
    for (size_t n_planes = 0; n_planes <= 352; n_planes += 16)
        for (size_t d = 0; d <= 20; d++) try_project(k, d % 8, d, n_planes, n_planes / 16 % 2);
    try_project(k, 1, 40, 1024 + 64 + 48, 0);
}

/* ---- project_i8 -------------------------------------------------------------------------------------------- */

static void try_project_i8(const woi_kernels *k, size_t n, size_t fours, size_t n_planes, size_t place)
{
    const size_t stride = n_planes + place % 2 * 16;
    int8_t *x = put(0, n * 4 * fours, place, 1);
    uint8_t *planes = put(1, 4 * fours * stride, place, 1);
    float *scales = put(2, n_planes * sizeof *scales, place, 4), *x_scales = put(5, n * sizeof *x_scales, place, 4),
          *offsets = put(3, n_planes * sizeof *offsets, place, 4), *z = put(4, n * n_planes * sizeof *z, place, 4);
    for (size_t j = 0; j < n * 4 * fours; j++) x[j] = place % 3 == 2 ? -127 : (int8_t)((int)(random_u32() % 255) - 127);
    for (size_t j = 0; j < 4 * fours * stride; j++) planes[j] = place % 3 == 2 ? 255 : (uint8_t)random_u32();
    fill_floats(scales, n_planes);
    fill_floats(offsets, n_planes);
    fill_floats(x_scales, n);
    if (n_planes) offsets[3] = -INFINITY;
    k->project_i8(x, x_scales, n, planes, scales, offsets, fours, n_planes, stride, z);
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < n_planes; p++) {
            long sum = 0;
            for (size_t j = 0; j < 4 * fours; j++)
                sum += (long)x[i * 4 * fours + j] * ((long)planes[(j / 4 * stride + p) * 4 + j % 4] - 128);
            const float exact = fmaf((float)sum, x_scales[i] * scales[p], offsets[p]), got = z[i * n_planes + p];
            CHECK(got == exact, "%zu points fours %zu planes %zu: z[%zu, %zu] is %.9g, not %.9g", n, fours, n_planes, i,
                  p, (double)got, (double)exact);
        }
}

/* Points and planes of one byte each, as many as kernels.h allows: the largest sums, and bytes at which a half of x
 * changes its sign or carries. A stride of 0 makes every four of the planes the same. */
static void try_project_i8_bytes(const woi_kernels *k)
{
    static const int8_t bytes[] = {-128, -127, -121, -120, -9, -8, -1, 0, 7, 8, 119, 120, 127};
    static const size_t all_fours[] = {1, 7, 8, 9, 16, 50, WOI_MAX_I8 / 4};
    enum { PLANES = 16 };
    static int8_t x[WOI_MAX_I8];
    uint8_t planes[4 * PLANES];
    float scales[PLANES], zeros[PLANES] = {0}, z[PLANES];
    for (size_t p = 0; p < PLANES; p++) scales[p] = 1;
    for (size_t b = 0; b < sizeof bytes; b++)
        for (int plane = 0; plane <= 255; plane += 85) {
            memset(x, bytes[b], sizeof x);
            memset(planes, plane, sizeof planes);
            for (size_t f = 0; f < sizeof all_fours / sizeof *all_fours; f++) {
                k->project_i8(x, scales, 1, planes, scales, zeros, all_fours[f], PLANES, 0, z);
                const float want = (float)((int)(4 * all_fours[f]) * bytes[b] * (plane - 128));
                for (size_t p = 0; p < PLANES; p++)
                    CHECK(z[p] == want, "%zu times %d by %d: z[%zu] is %.9g, not %.9g", 4 * all_fours[f], bytes[b],
                          plane - 128, p, (double)z[p], (double)want);
            }
        }
}

static void test_project_i8(const woi_kernels *k)
{
    try_project_i8_bytes(k);
    for (size_t fours = 0; fours <= 40; fours++)
        for (size_t place = 0; place < 6; place++)
            try_project_i8(k, place % 4, fours, 16 * ((fours + place) % 10), place);
    for (size_t n_planes = 0; n_planes <= 400; n_planes += 16)
        for (size_t n = 1; n <= 5; n++) try_project_i8(k, n, 5, n_planes, n_planes / 16 % 5);
}

/* ---- tile_i8 ----------------------------------------------------------------------------------------------- */

/* Against guarded pages; c has unused elements between its rows, which must stay. Draw 1: the largest products. */
static void try_tile_i8(const woi_kernels *k, size_t rows, size_t panels, size_t fours, int draw)
{
    enum { GAP = 3 };
    const size_t columns = 16 * panels, stride = columns + GAP;
    int8_t *a = put(0, fours * 32, 0, 1);
    uint8_t *b = put(1, panels * fours * 64, 0, 1);
    float *a_scales = put(2, rows * sizeof *a_scales, 0, 4), *b_scales = put(3, columns * sizeof *b_scales, 0, 4),
          *start = put(4, columns * sizeof *start, 0, 4),
          *c = put(5, ((rows - 1) * stride + columns) * sizeof *c, 0, 4);
    int32_t a_sums[8] = {0};
    for (size_t i = 0; i < fours * 32; i++) {
        a[i] = draw ? (int8_t)(i % 3 ? -127 : 127) : (int8_t)((int)(random_u32() % 255) - 127);
        if (i / 4 % 8 < rows) a_sums[i / 4 % 8] += a[i];
    }
    for (size_t i = 0; i < panels * fours * 64; i++) b[i] = draw ? (i % 5 ? 0 : 255) : (uint8_t)random_u32();
    fill_floats(a_scales, rows);
    fill_floats(b_scales, columns);
    fill_floats(start, columns);
    fill_floats(c, (rows - 1) * stride + columns);
    if (columns) start[columns - 1] = NAN;
    float between[8][GAP];
    for (size_t r = 0; r + 1 < rows; r++) memcpy(between[r], c + r * stride + columns, sizeof between[r]);
    k->tile_i8(&(woi_tile_i8){a, a_scales, a_sums, b, b_scales, start, fours, rows, panels, c, stride});
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) {
            long sum = 0;
            for (size_t i = 0; i < fours; i++)
                for (size_t x = 0; x < 4; x++)
                    sum += (long)a[(8 * i + r) * 4 + x] * ((long)b[((j / 16 * fours + i) * 16 + j % 16) * 4 + x] - 128);
            const float want = fmaf((float)sum, a_scales[r] * b_scales[j], start[j]), got = c[r * stride + j];
            CHECK(got == want || (isnan(got) && isnan(want)), "%zu x %zu, fours %zu: c[%zu, %zu] is %.9g, not %.9g",
                  rows, columns, fours, r, j, (double)got, (double)want);
        }
    for (size_t r = 0; r + 1 < rows; r++)
        CHECK(!memcmp(between[r], c + r * stride + columns, sizeof between[r]), "wrote behind row %zu", r);
}

/* All that a sum may be: as many products as kernels.h allows, of one byte each. */
static void try_tile_i8_sums(const woi_kernels *k)
{
    static const int8_t queries[] = {-127, -1, 0, 1, 127};
    enum { FOURS = WOI_MAX_I8 / 4 };
    int8_t *a = malloc((size_t)FOURS * 32);
    uint8_t *b = malloc((size_t)FOURS * 64);
    assert_non_null(a);
    assert_non_null(b);
    const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, zeros[16] = {0};
    for (size_t q = 0; q < sizeof queries; q++)
        for (int row = 0; row <= 255; row += 85)
            for (size_t rows = 1; rows <= 8; rows++) {
                int32_t sums[8];
                float c[8 * 16];
                memset(a, queries[q], (size_t)FOURS * 32);
                memset(b, row, (size_t)FOURS * 64);
                for (size_t r = 0; r < 8; r++) sums[r] = 4 * FOURS * queries[q];
                k->tile_i8(&(woi_tile_i8){a, ones, sums, b, ones, zeros, FOURS, rows, 1, c, 16});
                const float want = (float)(4 * FOURS * queries[q] * (row - 128));
                for (size_t i = 0; i < 16 * rows; i++)
                    CHECK(c[i] == want, "%d times %d by %d is %.9g, not %.9g", 4 * FOURS, queries[q], row - 128,
                          (double)c[i], (double)want);
            }
    free(a);
    free(b);
}

static void test_tile_i8(const woi_kernels *k)
{
    for (size_t rows = 1; rows <= 8; rows++)
        for (size_t fours = 0; fours <= 40; fours++)
            for (int draw = 0; draw < 2; draw++) try_tile_i8(k, rows, (fours + rows) % 8, fours, draw);
    try_tile_i8_sums(k);
}

/* ---- tile and interleave ----------------------------------------------------------------------------------- */

/* A tile with its panels against guarded pages; c has `gap` unused elements between its rows, which must stay. */
static void try_tile(const woi_kernels *k, size_t rows, size_t columns, size_t depth, int start)
{
    enum { GAP = 3 };
    const size_t stride = columns + GAP, size = rows * stride - GAP;
    const size_t a_gap = (rows + columns) % 2 * 5, a_step = k->tile_rows + a_gap,
                 a_size = depth ? depth * a_step - a_gap : 0;
    float *a = put(0, a_size * sizeof *a, 0, sizeof *a);
    float *b = put(1, depth * k->tile_columns * sizeof *b, 0, sizeof *b);
    float *first = put(2, columns * sizeof *first, 0, sizeof *first), *c = put(3, size * sizeof *c, 0, sizeof *c);
    float before[WOI_MOST_TILE_ROWS * (WOI_MOST_TILE_COLUMNS + GAP)];
    fill_floats(a, a_size);
    fill_floats(b, depth * k->tile_columns);
    fill_floats(first, columns);
    fill_floats(c, size);
    memcpy(before, c, size * sizeof *c);
    const woi_tile t = {a, b, a_step, depth, rows, columns, start ? first : NULL, c, stride};
    k->tile(&t);
    for (size_t i = 0; i < size; i++) {
        const size_t r = i / stride, j = i % stride;
        if (j >= columns) {
            CHECK(c[i] == before[i], "rows %zu columns %zu: writes beyond row %zu", rows, columns, r);
            continue;
        }
        double want = start ? (double)first[j] : (double)before[i], sum = fabs(want);
        for (size_t p = 0; p < depth; p++) {
            const double product = (double)a[p * a_step + r] * (double)b[p * k->tile_columns + j];
            want += product;
            sum += fabs(product);
        }
        CHECK(within((double)c[i], want, (double)(depth + 8) * 0x1p-24 * sum),
              "rows %zu columns %zu depth %zu start %d: c[%zu, %zu] is %.9g, not %.9g", rows, columns, depth, start, r,
              j, (double)c[i], want);
    }
}

/* An element has the same bits in a smaller tile, and when the depth is cut in two. */
static void try_tile_bits(const woi_kernels *k)
{
    enum { DEPTH = 37, CUT = 16 };
    float a[DEPTH * WOI_MOST_TILE_ROWS], b[DEPTH * WOI_MOST_TILE_COLUMNS];
    float whole[WOI_MOST_TILE_ROWS * WOI_MOST_TILE_COLUMNS], part[WOI_MOST_TILE_ROWS * WOI_MOST_TILE_COLUMNS];
    const float zeros[WOI_MOST_TILE_COLUMNS] = {0};
    fill_floats(a, DEPTH * k->tile_rows);
    fill_floats(b, DEPTH * k->tile_columns);
    k->tile(&(woi_tile){a, b, k->tile_rows, DEPTH, k->tile_rows, k->tile_columns, zeros, whole, k->tile_columns});
    for (size_t rows = 1; rows <= k->tile_rows; rows++)
        for (size_t columns = 1; columns <= k->tile_columns; columns++) {
            k->tile(&(woi_tile){a, b, k->tile_rows, CUT, rows, columns, zeros, part, columns});
            k->tile(&(woi_tile){a + CUT * k->tile_rows, b + CUT * k->tile_columns, k->tile_rows, DEPTH - CUT, rows,
                                columns, NULL, part, columns});
            for (size_t r = 0; r < rows; r++)
                CHECK(!memcmp(part + r * columns, whole + r * k->tile_columns, columns * sizeof *part),
                      "rows %zu columns %zu: other bits in row %zu", rows, columns, r);
        }
}

static void test_tile(const woi_kernels *k)
{
    CHECK(k->tile_rows <= WOI_MOST_TILE_ROWS && k->tile_columns <= WOI_MOST_TILE_COLUMNS, "%zu x %zu is too large",
          k->tile_rows, k->tile_columns);
    for (size_t rows = 1; rows <= k->tile_rows; rows++)
        for (size_t columns = 1; columns <= k->tile_columns; columns++)
            for (size_t depth = 0; depth <= 130; depth += depth < 4 ? 1 : 42)
                for (int start = 0; start < 2; start++) try_tile(k, rows, columns, depth, start);
    try_tile_bits(k);
}

static void test_interleave(const woi_kernels *k)
{
    const size_t widths[] = {k->tile_rows, k->tile_columns, 1, 5};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t n = 0; n <= widths[w]; n++)
            for (size_t depth = 0; depth <= 70; depth += depth < 20 ? 1 : 25)
                for (size_t gap = 0; gap < 6; gap += 5) {
                    const size_t width = widths[w], stride = depth + gap, size = n ? n * stride - gap : 0;
                    float *rows = put(0, size * sizeof *rows, 0, sizeof *rows);
                    float *out = put(1, depth * width * sizeof *out, 0, sizeof *out);
                    fill_floats(rows, size);
                    memset(out, 0xff, depth * width * sizeof *out);
                    k->interleave(rows, n, depth, stride, width, out);
                    for (size_t i = 0; i < depth * width; i++) {
                        const float want = i % width < n ? rows[i % width * stride + i / width] : 0;
                        CHECK(out[i] == want, "n %zu k %zu width %zu: out[%zu]", n, depth, width, i);
                    }
                }
}

#endif
