/* What tests of kernels share: the paths of this machine, arguments against pages that must not be touched, numbers. */
#ifndef WO_GUARDED_H
#define WO_GUARDED_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

#endif
