/* woi_gemm against sums in double: every layout, odd shapes, strides, both ways with C, every instruction set that this
 * machine has. An element may be off by (k + 8) 2^-24 sum |a b|. */
#include "testing.h"

#include "base/rng.h"
#include "kernels/gemm.h"

#include <math.h>
#include <sys/mman.h>

/* ---- Operands against guarded pages ------------------------------------------------------------------------ */

enum { PAGE_BYTES = 1 << 19, GUARD = 1 << 16 };

/* n floats that end where an untouchable page begins. */
static float *guarded(int which, size_t n)
{
    static char *rooms[5];
    if (!rooms[which]) {
        char *all = mmap(NULL, PAGE_BYTES + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(all != MAP_FAILED && !mprotect(all, PAGE_BYTES, PROT_READ | PROT_WRITE));
        rooms[which] = all;
    }
    assert_true(n * sizeof(float) <= PAGE_BYTES);
    return (float *)(void *)(rooms[which] + PAGE_BYTES - n * sizeof(float));
}

static float value(uint64_t stream, size_t i)
{
    return (float)woi_rng_below(9, stream, i, 2001) * 1e-3f - 1;
}

/* How many floats (n, k) takes with `gap` unused ones after each run but the last. */
static size_t spread(woi_layout layout, size_t n, size_t k, size_t gap, size_t *ld)
{
    const size_t runs = layout == WOI_BY_DEPTH ? k : n, length = layout == WOI_BY_DEPTH ? n : k;
    *ld = length + gap;
    return runs ? runs * *ld - gap : 0;
}

static float element(const woi_operand *x, size_t i, size_t p)
{
    return x->layout == WOI_BY_DEPTH ? x->x[p * x->ld + i] : x->x[i * x->ld + p];
}

static woi_operand make_operand(int which, woi_layout layout, size_t n, size_t k, size_t gap)
{
    woi_operand x = {.layout = layout};
    const size_t size = spread(layout, n, k, gap, &x.ld);
    float *at = guarded(which, size);
    for (size_t i = 0; i < size; i++) at[i] = value((uint64_t)which, i);
    x.x = at;
    return x;
}

/* ---- One product ------------------------------------------------------------------------------------------- */

typedef struct trial {
    woi_layout a, b;
    size_t n, m, k, gap;
    bool add, panels, start;
} trial;

static float room[WOI_GEMM_SCRATCH];

/* The product as woi_gemm gives it, in C against a guarded page; the operands stay for the caller to look at. */
static woi_product run(const woi_kernels *kernels, const trial *t)
{
    woi_product p = {.n = t->n, .m = t->m, .k = t->k, .add = t->add, .ldc = t->m + t->gap};
    p.a = make_operand(0, t->a, t->n, t->k, t->gap);
    p.b = make_operand(1, t->b, t->m, t->k, t->gap);
    const size_t size = t->n * p.ldc - t->gap;
    p.c = guarded(2, size);
    for (size_t i = 0; i < size; i++) p.c[i] = value(2, i);
    if (t->start) p.start = make_operand(4, WOI_BY_ROWS, 1, t->m, 0).x;
    memset(room, 0xff, sizeof room); /* NaN: what was there before must not reach C */
    const woi_operand plain = p.b;
    if (t->panels) {
        float *panels = guarded(3, woi_gemm_packed(kernels, t->m, t->k));
        woi_gemm_pack(kernels, &plain, t->m, t->k, panels);
        p.b = (woi_operand){panels, 0, WOI_IN_PANELS};
    }
    woi_gemm(kernels, &p, room);
    p.b = plain;
    return p;
}

static void check(const woi_kernels *kernels, const trial *t)
{
    const woi_product p = run(kernels, t);
    for (size_t i = 0; i < t->n; i++)
        for (size_t j = 0; j < p.ldc && i * p.ldc + j < t->n * p.ldc - t->gap; j++) {
            const float got = p.c[i * p.ldc + j], before = value(2, i * p.ldc + j);
            if (j >= t->m) {
                assert_true(got == before); /* between the rows of C */
                continue;
            }
            double want = t->add ? (double)before : p.start ? (double)p.start[j] : 0, size = fabs(want);
            for (size_t s = 0; s < t->k; s++) {
                const double product = (double)element(&p.a, i, s) * (double)element(&p.b, j, s);
                want += product;
                size += fabs(product);
            }
            if (!(fabs((double)got - want) <= (double)(t->k + 8) * 0x1p-24 * size))
                fail_msg("%s: layouts %d %d, (%zu, %zu) x (%zu, %zu), gap %zu, add %d, panels %d: C[%zu, %zu] is %.9g, "
                         "not %.9g",
                         kernels->path[WOI_K_tile], t->a, t->b, t->n, t->k, t->m, t->k, t->gap, t->add, t->panels, i, j,
                         (double)got, want);
        }
}

static void on_every_path(void (*test)(const woi_kernels *))
{
    for (int level = WOI_LEVEL_REF; level < WOI_N_LEVELS; level++) {
        woi_kernels table;
        if (woi_kernels_at((woi_level)level, 0, &table)) test(&table);
    }
}

static const woi_layout forms[][2] = {
    {WOI_BY_ROWS, WOI_BY_ROWS}, {WOI_BY_ROWS, WOI_BY_DEPTH}, {WOI_BY_DEPTH, WOI_BY_DEPTH}, {WOI_BY_DEPTH, WOI_BY_ROWS}};

/* Each size from 1 to 130 in turn as n, m and k, with the others drawn. */
static void try_shapes(const woi_kernels *kernels)
{
    for (size_t size = 1; size <= 130; size++)
        for (size_t i = 0; i < 12; i++) {
            const size_t form = i % 4, which = i / 4;
            size_t sizes[3];
            for (size_t s = 0; s < 3; s++) sizes[s] = 1 + woi_rng_below(3, size, 3 * i + s, 130);
            sizes[which] = size;
            check(kernels, &(trial){forms[form][0], forms[form][1], sizes[0], sizes[1], sizes[2], (size + i) % 3 * 5,
                                    (size + which) % 2, (size / 2 + i) % 3 == 0, (size / 3 + i) % 2 == 0});
        }
}

static void odd_shapes(void **state)
{
    (void)state;
    on_every_path(try_shapes);
}

/* Blocks of 256 steps, several blocks of B, one and no step. */
static void try_blocks(const woi_kernels *kernels)
{
    static const size_t shapes[][3] = {{9, 50, 255},  {9, 50, 256},  {9, 50, 257}, {70, 300, 300},
                                       {3, 700, 150}, {40, 17, 800}, {5, 6, 0},    {1, 1, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t form = 0; form < 4; form++)
            for (int how = 0; how < 4; how++)
                check(kernels, &(trial){forms[form][0], forms[form][1], shapes[s][0], shapes[s][1], shapes[s][2],
                                        how == 3 ? 7 : 0, how % 2, how / 2, how == 2});
}

static void large_shapes(void **state)
{
    (void)state;
    on_every_path(try_blocks);
}

/* C's rows and columns in pieces give the same bits as C in one: that is what threads do. */
static void try_pieces(const woi_kernels *kernels)
{
    enum { N = 61, M = 113, K = 300 };
    static float whole[N * M];
    for (size_t form = 0; form < 4; form++)
        for (size_t pieces = 2; pieces <= 7; pieces++) {
            const trial t = {forms[form][0], forms[form][1], N, M, K, 0, false, false, true};
            woi_product p = run(kernels, &t);
            memcpy(whole, p.c, sizeof whole);
            memset(p.c, 0xff, sizeof whole);
            for (size_t i = 0; i < pieces; i++)
                for (size_t j = 0; j < pieces; j++) {
                    const size_t i0 = N * i / pieces, j0 = M * j / pieces;
                    woi_product part = p;
                    part.n = N * (i + 1) / pieces - i0;
                    part.m = M * (j + 1) / pieces - j0;
                    part.a.x += p.a.layout == WOI_BY_DEPTH ? i0 : i0 * p.a.ld;
                    part.b.x += p.b.layout == WOI_BY_DEPTH ? j0 : j0 * p.b.ld;
                    part.c += i0 * p.ldc + j0;
                    part.start += j0;
                    woi_gemm(kernels, &part, room);
                }
            assert_memory_equal(whole, p.c, sizeof whole);
        }
}

static void pieces_change_nothing(void **state)
{
    (void)state;
    on_every_path(try_pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(pieces_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
