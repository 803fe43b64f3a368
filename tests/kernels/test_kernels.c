/* Every kernel of kernels.def on every path that this machine has, and the choice between the paths.
 *
 * Integer results equal the definition exactly. A float sum of d products is judged against the same sum in double: it
 * may be off by (d + 8) 2^-24 sum |q_j w_j|, which covers any order of summation. Arguments lie against pages that must
 * not be touched, at their end or at their start, in every alignment. A kernel added to kernels.def needs a test_<name>
 * here before this file links. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Paths ------------------------------------------------------------------------------------------------- */

/* Every level alone, then with the dot products of bytes that are a part of it. */
enum { N_PATHS = 2 * WOI_N_LEVELS };

/* 0: this machine has no such path. */
static int get_path(int path, woi_kernels *table)
{
    return woi_kernels_at((woi_level)(path / 2), path % 2, table);
}

/* What a failure message says: the path and the kernel being tried. */
static const char *kernel_name;
static char path_name[32];

#define CHECK(condition, format, ...)                                                         \
    do {                                                                                      \
        if (!(condition)) fail_msg("%s on %s: " format, kernel_name, path_name, __VA_ARGS__); \
    } while (0)

/* ---- Arguments against guarded pages ----------------------------------------------------------------------- */

enum { GUARDED_BYTES = 1 << 18, GUARD_BYTES = 1 << 16, N_ARGS = 6 };

static char *guarded[N_ARGS]; /* each GUARDED_BYTES, with an untouchable GUARD_BYTES on both sides */

static int make_guarded(void **state)
{
    (void)state;
    for (int a = 0; a < N_ARGS; a++) {
        char *all = mmap(NULL, GUARDED_BYTES + 2 * GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED || mprotect(all + GUARD_BYTES, GUARDED_BYTES, PROT_READ | PROT_WRITE)) return -1;
        guarded[a] = all + GUARD_BYTES;
    }
    return 0;
}

/* `bytes` bytes that end where the page ends (place 0), or begin place - 1 elements after the page begins. */
static void *put(int arg, size_t bytes, size_t place, size_t element)
{
    assert_true(bytes + (place ? place - 1 : 0) * element <= GUARDED_BYTES);
    return place ? guarded[arg] + (place - 1) * element : guarded[arg] + GUARDED_BYTES - bytes;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static uint32_t random_u32(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

static float random_float(void)
{
    return (float)(int32_t)random_u32() * 0x1p-31f;
}

static void fill_floats(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = random_float();
}

static void fill_bytes(int8_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = (int8_t)random_u32();
}

static float from_bf16(uint16_t half)
{
    uint32_t word = (uint32_t)half << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return (uint16_t)(word >> 16);
}

static float from_bits(uint32_t word)
{
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Floats in units of the last place, in order: neighbours differ by 1, and -0 is 0. */
static int64_t place_of(float value)
{
    int32_t word;
    memcpy(&word, &value, sizeof word);
    return word < 0 ? -(int64_t)(word & 0x7fffffff) : word;
}

static bool within(double got, double want, double bound)
{
    return fabs(got - want) <= bound + (double)FLT_MIN;
}

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

/* ---- sift -------------------------------------------------------------------------------------------------- */

static void try_sift(const woi_kernels *k, size_t n, float bar, bool with_ids)
{
    enum { FIRST = 7000 };
    float *scores = put(0, n * sizeof *scores, 0, 4), wanted[400];
    int32_t *ids = with_ids ? put(1, n * sizeof *ids, 0, 4) : NULL, wanted_ids[400];
    size_t want = 0;
    for (size_t i = 0; i < n; i++) {
        scores[i] = random_u32() % 16 ? (float)((int)(random_u32() % 9) - 4) : random_u32() % 2 ? NAN : -INFINITY;
        if (ids) ids[i] = (int32_t)(random_u32() % 1000);
        if (!(scores[i] >= bar)) continue;
        wanted[want] = scores[i];
        wanted_ids[want++] = ids ? ids[i] : FIRST + (int32_t)i;
    }
    /* Room for exactly those that there are. */
    float *kept = put(2, want * sizeof *kept, 0, 4);
    int32_t *kept_ids = put(3, want * sizeof *kept_ids, 0, 4);
    CHECK(k->sift(scores, ids, FIRST, n, bar, NULL, NULL) == want, "%zu from %g: counts otherwise", n, (double)bar);
    for (int in_place = 0; in_place < 1 + with_ids; in_place++) {
        float *to = in_place ? scores : kept;
        int32_t *to_ids = in_place ? ids : kept_ids;
        const size_t got = k->sift(scores, ids, FIRST, n, bar, to, to_ids);
        CHECK(got == want, "%zu from %g: %zu, not %zu", n, (double)bar, got, want);
        CHECK(!memcmp(to, wanted, want * sizeof *to) && !memcmp(to_ids, wanted_ids, want * sizeof *to_ids),
              "%zu from %g: other scores or ids, in place %d", n, (double)bar, in_place);
    }
}

static void test_sift(const woi_kernels *k)
{
    static const float bars[] = {-INFINITY, -4, 0, 3.5F, 4, INFINITY, NAN};
    for (size_t n = 0; n <= 400; n += n < 140 ? 1 : 13)
        for (size_t b = 0; b < sizeof bars / sizeof *bars; b++) {
            try_sift(k, n, bars[b], false);
            try_sift(k, n, bars[b], true);
        }
}

/* ---- topk_scan --------------------------------------------------------------------------------------------- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int best_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* How scores are drawn: all different, few values (ties everywhere), one value, rising, and with NaN and infinities. */
enum { DISTINCT, TIES, CONSTANT, RISING, SPECIAL, N_DRAWS };

static float draw_score(int draw, size_t i)
{
    static const float special[] = {INFINITY, -INFINITY, 0.0f, -0.0f, FLT_MAX, -FLT_MAX, 0x1p-149f, -0x1p-149f};
    switch (draw) {
    case DISTINCT: return random_float();
    case TIES: return (float)(random_u32() % 5) - 2;
    case CONSTANT: return -1.5f;
    case RISING: return (float)i;
    default: return random_u32() % 3 ? special[random_u32() % 8] : NAN;
    }
}

/* n scores in n_scans pieces, offered in a random order of pieces. */
static void try_topk(const woi_kernels *k, int draw, size_t n, size_t top_k, size_t n_scans)
{
    enum { MOST = 2048, FIRST = 1000 };
    static float all[MOST];
    static scored want[MOST + 512];
    assert_true(n <= MOST && top_k <= 512 && n_scans <= 16);
    size_t n_want = 0;
    for (size_t i = 0; i < n; i++) {
        all[i] = draw_score(draw, i);
        if (!isnan(all[i])) want[n_want++] = (scored){all[i], FIRST + (int32_t)i};
    }
    qsort(want, n_want, sizeof *want, best_first);
    for (; n_want < top_k; n_want++) want[n_want] = (scored){-INFINITY, -1};

    woi_topk top = {top_k, 0, put(1, top_k * sizeof(float), 0, 4), put(2, top_k * sizeof(int32_t), 0, 4)};
    size_t order[16];
    for (size_t s = 0; s < n_scans; s++) {
        const size_t other = random_u32() % (s + 1);
        order[s] = order[other];
        order[other] = s;
    }
    for (size_t s = 0; s < n_scans; s++) {
        const size_t from = order[s] * n / n_scans, to = (order[s] + 1) * n / n_scans;
        const size_t bytes = (to - from) * sizeof(float), place = bytes ? random_u32() % 17 : 0;
        float *piece = put(0, bytes, place, sizeof(float));
        memcpy(piece, all + from, bytes);
        k->topk_scan(piece, to - from, FIRST + (int32_t)from, &top);
    }
    woi_topk_finish(&top);
    for (size_t i = 0; i < top_k; i++)
        CHECK(top.ids[i] == want[i].id && top.scores[i] == want[i].score,
              "draw %d n %zu k %zu scans %zu: place %zu is (%g, %d), not (%g, %d)", draw, n, top_k, n_scans, i,
              (double)top.scores[i], top.ids[i], (double)want[i].score, want[i].id);
}

static void test_topk_scan(const woi_kernels *k)
{
    const size_t top_ks[] = {1, 2, 5, 10, 33, 100, 512};
    for (int draw = 0; draw < N_DRAWS; draw++)
        for (size_t c = 0; c < sizeof top_ks / sizeof *top_ks; c++) {
            for (size_t n = 0; n <= 200; n++) try_topk(k, draw, n, top_ks[c], 1 + n % 3);
            for (size_t n_scans = 1; n_scans <= 16; n_scans++) try_topk(k, draw, 2000 + n_scans, top_ks[c], n_scans);
        }
}

/* ---- pick -------------------------------------------------------------------------------------------------- */

/* Ids in a random order, or none. */
static void try_pick(const woi_kernels *k, int draw, size_t n, size_t top_k, bool with_ids)
{
    enum { MOST = 20000 };
    static scored want[MOST + 512];
    static int32_t shuffled[MOST];
    assert_true(n <= MOST && top_k <= 512);
    float *scores = put(0, n * sizeof *scores, random_u32() % 17, 4), *best = put(1, top_k * sizeof *best, 0, 4);
    int32_t *ids = put(2, n * sizeof *ids, random_u32() % 17, 4), *best_ids = put(3, top_k * sizeof *best_ids, 0, 4);
    size_t n_want = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t other = random_u32() % (i + 1);
        shuffled[i] = shuffled[other];
        shuffled[other] = 7 + (int32_t)i;
    }
    for (size_t i = 0; i < n; i++) {
        scores[i] = draw_score(draw, i);
        ids[i] = shuffled[i];
        if (!isnan(scores[i])) want[n_want++] = (scored){scores[i], with_ids ? ids[i] : (int32_t)i};
    }
    qsort(want, n_want, sizeof *want, best_first);
    const size_t found = k->pick(scores, with_ids ? ids : NULL, n, top_k, best, best_ids);
    CHECK(found == (n_want < top_k ? n_want : top_k), "draw %d n %zu k %zu: %zu found", draw, n, top_k, found);
    for (; n_want < top_k; n_want++) want[n_want] = (scored){-INFINITY, -1};
    for (size_t i = 0; i < top_k; i++)
        CHECK(best_ids[i] == want[i].id && best[i] == want[i].score,
              "draw %d n %zu k %zu: place %zu is (%g, %d), not (%g, %d)", draw, n, top_k, i, (double)best[i],
              best_ids[i], (double)want[i].score, want[i].id);
}

static void test_pick(const woi_kernels *k)
{
    const size_t top_ks[] = {1, 2, 3, 5, 8, 9, 16, 20, 33, 48, 100};
    for (int draw = 0; draw < N_DRAWS; draw++)
        for (size_t c = 0; c < sizeof top_ks / sizeof *top_ks; c++)
            for (size_t n = 0; n <= 300; n += n < 70 ? 1 : 23) {
                try_pick(k, draw, n, top_ks[c], true);
                try_pick(k, draw, n, top_ks[c], false);
            }
    for (int draw = 0; draw < N_DRAWS; draw++)
        for (int with_ids = 0; with_ids < 2; with_ids++) {
            try_pick(k, draw, 1543, 64, with_ids);
            try_pick(k, draw, 16384, 8, with_ids);
        }
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

/* ---- sum_f32 and multiply_adds ----------------------------------------------------------------------------- */

static void test_sum_f32(const woi_kernels *k)
{
    for (size_t n = 0; n <= 330; n++)
        for (size_t place = 0; place < 17; place++) {
            float *x = put(0, n * sizeof *x, place, sizeof *x);
            double want = 0, size = 0;
            fill_floats(x, n);
            for (size_t i = 0; i < n; i++) {
                want += (double)x[i];
                size += fabs((double)x[i]);
            }
            const float got = k->sum_f32(x, n);
            CHECK(within((double)got, want, (double)(n + 8) * 0x1p-24 * size), "n %zu place %zu: %.9g, not %.9g", n,
                  place, (double)got, want);
        }
}

/* The count grows with the steps; a processor does no more than 64 of them in a tenth of a nanosecond. */
static void test_multiply_adds(const woi_kernels *k)
{
    const size_t one = k->multiply_adds(1), steps = 200000;
    struct timespec start, end;
    CHECK(k->multiply_adds(0) == 0 && one > 0, "0 steps: %zu, 1 step: %zu", k->multiply_adds(0), one);
    clock_gettime(CLOCK_MONOTONIC, &start);
    const size_t done = k->multiply_adds(steps);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double ns = 1e9 * (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec);
    CHECK(done == steps * one, "%zu steps: %zu", steps, done);
    CHECK((double)done / ns < 640, "%zu multiply-adds in %.0f ns: steps are left out", done, ns);
}

/* ---- max_f32 ----------------------------------------------------------------------------------------------- */

static void test_max_f32(const woi_kernels *k)
{
    for (size_t n = 0; n <= 330; n++)
        for (size_t place = 0; place < 17; place++) {
            float *x = put(0, n * sizeof *x, place, sizeof *x), want = -INFINITY;
            /* Negative alone, so that a lane outside the argument would win; NaNs; now and then an infinity. */
            for (size_t i = 0; i < n; i++) x[i] = random_u32() % 8 ? -1 - fabsf(random_float()) : NAN;
            if (n && place == 3) x[random_u32() % n] = INFINITY;
            if (place == 5)
                for (size_t i = 0; i < n; i++) x[i] = i % 2 ? -INFINITY : NAN;
            for (size_t i = 0; i < n; i++) want = fmaxf(want, x[i]);
            const float got = k->max_f32(x, n);
            CHECK(got == want, "n %zu place %zu: %.9g, not %.9g", n, place, (double)got, (double)want);
        }
    for (size_t n = 1; n <= 150; n++)
        for (size_t at = 0; at < n; at++) {
            float *x = put(0, n * sizeof *x, 0, sizeof *x);
            for (size_t i = 0; i < n; i++) x[i] = i == at ? 2 : 1;
            CHECK(k->max_f32(x, n) == 2, "n %zu: misses the one at %zu", n, at);
        }
}

/* ---- exp_sum ----------------------------------------------------------------------------------------------- */

/* 2 units in the last place of the correctly rounded result; below FLT_MIN also 0. */
static bool good_exp(float got, float t)
{
    const float want = (float)exp((double)t);
    if (isnan(t)) return isnan(got);
    if (want < FLT_MIN && got == 0) return true;
    return llabs(place_of(got) - place_of(want)) <= 2;
}

static void try_exp_sweep(const woi_kernels *k)
{
    enum { BATCH = 4096, STEP = 61 };
    static float x[BATCH], e[BATCH];
    const uint32_t most = 0x42d20000; /* 105: beyond both ends of what is finite and non-zero */
    for (uint32_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
        for (uint32_t from = 0; from < most; from += BATCH * STEP) {
            for (uint32_t i = 0; i < BATCH; i++) x[i] = from_bits(sign | (from + i * STEP));
            k->exp_sum(x, BATCH, 0, e);
            for (size_t i = 0; i < BATCH; i++)
                CHECK(good_exp(e[i], x[i]), "exp(%a) is %a, not %a", (double)x[i], (double)e[i], exp((double)x[i]));
        }
        if (sign) break;
    }
}

static void try_exp_special(const woi_kernels *k)
{
    const float x[] = {0.0f,      -0.0f,     INFINITY, -INFINITY,  NAN,        FLT_MAX,   -FLT_MAX,
                       88.72283f, 88.72284f, 89.5f,    -87.33654f, -87.33655f, -103.0f,   -103.97f,
                       -103.98f,  -104.5f,   -1e30f,   1e30f,      0x1p-149f,  -0x1p-149f};
    enum { N = sizeof x / sizeof *x };
    for (size_t at = 0; at < 20; at++) { /* in every lane */
        float padded[20 + N] = {0}, e[20 + N];
        memcpy(padded + at, x, sizeof x);
        const double sum = k->exp_sum(padded, at + N, 0, e);
        CHECK(isnan(sum), "a sum with NaN is %g", sum);
        for (size_t i = 0; i < N; i++)
            CHECK(good_exp(e[at + i], x[i]), "exp(%g) is %g", (double)x[i], (double)e[at + i]);
        CHECK(e[at] == 1 && isinf(e[at + 2]) && e[at + 3] == 0, "exp of 0, inf, -inf: %g %g %g", (double)e[at],
              (double)e[at + 2], (double)e[at + 3]);
        CHECK(isinf(k->exp_sum(padded, at + 3, 0, NULL)), "a sum with infinity is not infinite, at %zu", at);
    }
}

/* Partial sums in float of at most 64 positive terms a lane, 8 more to join them, 2 ulp each: 80 * 2^-24. */
static void try_exp_sum(const woi_kernels *k, size_t n, size_t place, float shift)
{
    float *x = put(0, n * sizeof *x, place, sizeof *x), *e = put(1, n * sizeof *e, place, sizeof *e);
    double want = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = 20 * random_float();
        e[i] = NAN;
        want += exp((double)(x[i] - shift));
    }
    const double sum = k->exp_sum(x, n, shift, e), alone = k->exp_sum(x, n, shift, NULL);
    CHECK(fabs(sum - want) <= 80 * 0x1p-24 * want, "n %zu place %zu: sum %.17g, not %.17g", n, place, sum, want);
    CHECK(sum == alone, "n %zu: sum %.17g, but %.17g without out", n, sum, alone);
    for (size_t i = 0; i < n; i++)
        CHECK(good_exp(e[i], x[i] - shift), "n %zu place %zu: exp(%g) is %g", n, place, (double)(x[i] - shift),
              (double)e[i]);
    CHECK(k->exp_sum(x, n, shift, x) == sum, "n %zu: another sum in place", n);
    CHECK(n == 0 || memcmp(x, e, n * sizeof *x) == 0, "n %zu: other values in place", n);
}

static void test_exp_sum(const woi_kernels *k)
{
    for (size_t n = 0; n <= 140; n++)
        for (size_t place = 0; place < 17; place++) try_exp_sum(k, n, place, place % 2 ? 19.5f : 0);
    for (size_t n = 4090; n <= 4100; n++) try_exp_sum(k, n, 0, 3);
    try_exp_special(k);
    try_exp_sweep(k);

    /* Where a float sum would stand still at 2^24. */
    const size_t n = 40 * 1000 * 1000;
    float *x = mmap(NULL, n * sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(x, MAP_FAILED);
    const double sum = k->exp_sum(x, n, 0, NULL);
    CHECK(fabs(sum - (double)n) <= 80 * 0x1p-24 * (double)n, "%zu ones sum to %.17g", n, sum);
    munmap(x, n * sizeof *x);
}

/* ---- scaled_log -------------------------------------------------------------------------------------------- */

static void test_scaled_log(const woi_kernels *k)
{
    for (size_t n = 0; n <= 70; n++)
        for (size_t place = 0; place < 17; place++) {
            float *x = put(0, n * sizeof *x, place, sizeof *x), before[70];
            for (size_t i = 0; i < n; i++) before[i] = x[i] = i % 7 ? expf(12 * random_float()) : 0;
            k->scaled_log(x, n, 1024, 0.5f);
            for (size_t i = 0; i < n; i++) {
                const double want = log(1 + 1024 * (double)before[i]) / 2;
                CHECK(fabs((double)x[i] - want) <= 5e-7 + 2e-7 * want,
                      "n %zu place %zu: 1/2 log(1 + 1024 * %g) is %.9g, not %.9g", n, place, (double)before[i],
                      (double)x[i], want);
            }
        }
    enum { BATCH = 4096, STEP = 127 };
    static float x[BATCH];
    for (uint32_t from = 0; from < 0x7e000000u - BATCH * STEP; from += BATCH * STEP) { /* any share, and far beyond */
        for (uint32_t i = 0; i < BATCH; i++) x[i] = from_bits(from + i * STEP);
        k->scaled_log(x, BATCH, 1, 1);
        for (uint32_t i = 0; i < BATCH; i++) {
            const double y = (double)from_bits(from + i * STEP), want = log1p(y);
            CHECK(fabs((double)x[i] - want) <= 1e-6 + 2e-7 * want && (y > 0 || x[i] == 0),
                  "log(1 + %g) is %.9g, not %.9g", y, (double)x[i], want);
        }
    }
}

/* ---- adam -------------------------------------------------------------------------------------------------- */

static void try_adam(const woi_kernels *k, size_t n, size_t place)
{
    enum { MOST = 200 };
    const woi_adam_step s = {0.9f, 0.999f, 0.01f, 3.5f, 1e-8f};
    const double ulp = 0x1p-24;
    float *array[4], before[4][MOST];
    assert_true(n <= MOST);
    for (int a = 0; a < 4; a++) {
        array[a] = put(a, n * sizeof(float), place, sizeof(float));
        fill_floats(array[a], n);
        if (a == 2)
            for (size_t i = 0; i < n; i++) array[a][i] = fabsf(array[a][i]);
        if (n) memcpy(before[a], array[a], n * sizeof(float));
    }
    const float *w = array[0], *m = array[1], *v = array[2], *g = before[3];
    k->adam(array[0], array[1], array[2], array[3], n, &s);
    for (size_t i = 0; i < n; i++) {
        const double m1 = (double)s.beta1 * (double)before[1][i], m2 = (1 - (double)s.beta1) * (double)g[i];
        const double v1 = (double)s.beta2 * (double)before[2][i];
        const double v2 = (1 - (double)s.beta2) * (double)g[i] * (double)g[i];
        CHECK(within((double)m[i], m1 + m2, 4 * ulp * (fabs(m1) + fabs(m2))), "n %zu place %zu: m[%zu]", n, place, i);
        CHECK(within((double)v[i], v1 + v2, 4 * ulp * (v1 + v2)), "n %zu place %zu: v[%zu]", n, place, i);
        const double change =
            (double)s.rate * (double)m[i] / (sqrt((double)v[i]) * (double)s.root_scale + (double)s.epsilon);
        CHECK(
            within((double)w[i], (double)before[0][i] - change, 8 * ulp * fabs(change) + 2 * ulp * fabs((double)w[i])),
            "n %zu place %zu: w[%zu] is %.9g", n, place, i, (double)w[i]);
        CHECK(array[3][i] == g[i], "n %zu: g[%zu] was written", n, i);
    }
}

static void test_adam(const woi_kernels *k)
{
    for (size_t n = 0; n <= 130; n++)
        for (size_t place = 0; place < 17; place++) try_adam(k, n, place);
}

/* ---- The list, and the choice ------------------------------------------------------------------------------ */

static void on_every_path(const char *kernel, void (*test)(const woi_kernels *))
{
    for (int p = 0; p < N_PATHS; p++) {
        woi_kernels table;
        if (!get_path(p, &table)) continue;
        kernel_name = kernel;
        snprintf(path_name, sizeof path_name, "%s%s", woi_level_name((woi_level)(p / 2)), p % 2 ? " with dot" : "");
        test(&table);
    }
}

#define WOI_KERNEL(ret, name, params)      \
    static void run_##name(void **state)   \
    {                                      \
        (void)state;                       \
        on_every_path(#name, test_##name); \
    }
#include "kernels/kernels.def"
#undef WOI_KERNEL

static void tables_are_full(void **state)
{
    (void)state;
    for (int p = 0; p < N_PATHS; p++) {
        woi_kernels table;
        memset(&table, 0, sizeof table);
        if (!get_path(p, &table)) continue;
#define WOI_KERNEL(ret, name, params) \
    assert_true(table.name != NULL);  \
    assert_non_null(table.path[WOI_K_##name]);
#include "kernels/kernels.def"
#undef WOI_KERNEL
        const char *level = woi_level_name((woi_level)(p / 2));
        assert_string_equal(table.path[WOI_K_dot_f32], level);
        if (p % 2) /* "avx512vnni" of "avx512", "neondot" of "neon" */
            assert_true(strlen(table.path[WOI_K_dot_i8]) > strlen(level) &&
                        !strncmp(table.path[WOI_K_dot_i8], level, strlen(level)));
        else
            assert_string_equal(table.path[WOI_K_dot_i8], level);
    }
}

static void *get_table(void *barrier)
{
    pthread_barrier_wait(barrier);
    return (void *)woi_kernels_get(NULL);
}

static void threads_get_one_table(void **state)
{
    (void)state;
    pthread_t thread[4];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 4);
    for (int t = 0; t < 4; t++) assert_int_equal(pthread_create(&thread[t], NULL, get_table, &barrier), 0);
    for (int t = 0; t < 4; t++) {
        void *table;
        assert_int_equal(pthread_join(thread[t], &table), 0);
        assert_ptr_equal(table, woi_kernels_get(NULL));
        assert_non_null(table);
    }
    pthread_barrier_destroy(&barrier);
}

static void public_list_is_complete(void **state)
{
    (void)state;
    const char *name, *path;
    size_t i = 0;
    const woi_kernels *table = woi_kernels_get(NULL);
#define WOI_KERNEL(ret, kernel, params)          \
    assert_true(wo_cpu_kernel(i, &name, &path)); \
    assert_string_equal(name, #kernel);          \
    assert_string_equal(path, table->path[i++]);
#include "kernels/kernels.def"
#undef WOI_KERNEL
    assert_false(wo_cpu_kernel(i, &name, &path));
    assert_false(wo_cpu_kernel(SIZE_MAX, &name, &path));
    assert_int_equal(wo_cpu_query(NULL, NULL), WO_ERR_ARGUMENT);
}

/* The choice is made once per process, so each value of WIDEOUT_CPU gets a child, forked before this process has chosen
 * (and not started anew: an emulator such as qemu-user could not). It prints what it sees and its exit status is the
 * wo_status. */
static int describe_choice(void)
{
    wo_cpu_info info = {.struct_size = sizeof info};
    wo_error err = {0}, again = {0};
    const char *name, *path;
    const wo_status status = wo_cpu_query(&info, &err);
    if (status == WO_OK) {
        printf("%s|%s|%s", info.level, info.best, info.reason);
        return !woi_kernels_get(&again) || !wo_cpu_kernel(0, &name, &path) || strcmp(path, info.level) ? 99 : 0;
    }
    printf("%s", err.text);
    /* Every later call says the same; no error struct is fine. */
    const bool same = !woi_kernels_get(&again) && again.status == status && again.offset == WO_NO_OFFSET &&
                      !strcmp(again.text, err.text) && !woi_kernels_get(NULL) && !wo_cpu_kernel(0, &name, &path);
    return same ? (int)status : 99;
}

/* Runs describe_choice under WIDEOUT_CPU=value (unset where NULL); its output in `text`. */
static int choice_under(const char *value, char text[512])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        if (value) setenv("WIDEOUT_CPU", value, 1);
        const int status = describe_choice();
        fflush(stdout);
        _exit(status);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used < 511 && (got = read(ends[0], text + used, 511 - used)) > 0;) used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void environment_lowers_the_choice(void **state)
{
    (void)state;
    woi_kernels table;
    const char *levels[WOI_N_LEVELS];
    for (int level = 0; level < WOI_N_LEVELS; level++) levels[level] = woi_level_name((woi_level)level);
    int best = WOI_N_LEVELS - 1;
    while (!woi_kernels_at((woi_level)best, 0, &table)) best--;
    char text[512], want[512], plain[512];

    snprintf(plain, sizeof plain, "%s|%s|the best this machine has", levels[best], levels[best]);
    assert_int_equal(choice_under(NULL, text), WO_OK);
    assert_string_equal(text, plain);
    assert_int_equal(choice_under("", text), WO_OK);
    assert_string_equal(text, plain);
    for (int level = 0; level < WOI_N_LEVELS; level++) {
        const int status = choice_under(levels[level], text);
        if (level > best) {
            assert_int_equal(status, WO_ERR_UNSUPPORTED);
            assert_non_null(strstr(text, levels[level]));
            assert_non_null(strstr(text, levels[best]));
            continue;
        }
        assert_int_equal(status, WO_OK);
        snprintf(want, sizeof want, "%s|%s|lowered by WIDEOUT_CPU=%s", levels[level], levels[best], levels[level]);
        assert_string_equal(text, level < best ? want : plain);
    }
    static const char *const refused[] = {"AVX2", "avx",  "avx2 ",    "avx512vnni", "1",
                                          "NEON", "ref,", "neondot ", "sse\n"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(choice_under(refused[i], text), WO_ERR_UNSUPPORTED);
        assert_non_null(strstr(text, "WIDEOUT_CPU is '"));
#if defined(__x86_64__)
        assert_non_null(strstr(text, "it must be ref, avx2 or avx512:"));
#elif defined(__aarch64__)
        assert_non_null(strstr(text, "it must be ref or neon:"));
#endif
        assert_null(strchr(text, '\n'));
    }
    char long_value[300];
    memset(long_value, 'x', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = '\0';
    assert_int_equal(choice_under(long_value, text), WO_ERR_UNSUPPORTED);
    assert_non_null(strstr(text, "xxx...', but"));
}

int main(void)
{
    unsetenv("WIDEOUT_CPU");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment_lowers_the_choice), /* first: see describe_choice */
#define WOI_KERNEL(ret, name, params) {#name, run_##name, NULL, NULL, NULL},
#include "kernels/kernels.def"
#undef WOI_KERNEL
        cmocka_unit_test(tables_are_full),
        cmocka_unit_test(threads_get_one_table),
        cmocka_unit_test(public_list_is_complete),
    };
    return cmocka_run_group_tests_name("kernels", tests, make_guarded, NULL);
}
