/* Ceilings: the kernels multiply_adds and sum_f32 under the clock, and the exact layer beside them. */
#include "judge/ceilings.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/team.h"

enum {
    TRIES = 5, /* the best counts: others may take the processor away */
    STEPS = 100000,
    LONGER = 40,    /* times so many for several threads: 10 ms, beside which waking them is nothing */
    CLASSES = 8192, /* of wo_cpu_rates' layer */
    DIMENSIONS = 128,
    QUERIES = 1024,
    ANSWERS = 5,
    READ = 1 << 24 /* floats: 64 MiB */
};

typedef struct peak {
    woi_kernels table;
    size_t steps;
} peak;

static void peak_part(void *ctx, int worker, size_t part)
{
    const peak *p = ctx;
    (void)worker, (void)part;
    (void)p->table.multiply_adds(p->steps);
}

double woi_peak_gflops(int threads)
{
    double best = 0;
    for (int level = WOI_LEVEL_REF; level < WOI_N_LEVELS; level++) {
        peak p = {.steps = threads > 1 ? LONGER * STEPS : STEPS};
        if (!woi_kernels_at((woi_level)level, 0, &p.table)) continue;
        const double work = 2e-9 * (double)threads * (double)p.table.multiply_adds(1) * (double)p.steps;
        for (int i = 0; i < TRIES; i++) {
            const double start = woi_now_s();
            woi_team_for(threads, (size_t)threads, peak_part, &p);
            const double rate = work / (woi_now_s() - start);
            if (rate > best) best = rate;
        }
    }
    return best;
}

double woi_read_gb_s(const float *x, size_t n)
{
    static volatile float sink; /* so that no pass is left out */
    const woi_kernels *kernels = woi_kernels_get(NULL);
    double best = 0;
    for (int i = 0; kernels && i <= TRIES; i++) {
        const double start = woi_clock(CLOCK_THREAD_CPUTIME_ID);
        sink = kernels->sum_f32(x, n);
        const double rate = 4e-9 * (double)n / (woi_clock(CLOCK_THREAD_CPUTIME_ID) - start);
        if (i > 0 && rate > best) best = rate;
    }
    (void)sink;
    return best;
}

/* FULL at batch 1,024 on one thread. `x` is READ floats: its layer, its queries, and room. */
static wo_status product_gflops(const float *x, double *gflops, wo_error *err)
{
    const woi_dense layer = {CLASSES, DIMENSIONS, x, NULL};
    int32_t *ids = woi_alloc(QUERIES * ANSWERS, sizeof *ids, err);
    float *scores = woi_alloc(QUERIES * ANSWERS, sizeof *scores, err);
    void *scratch = woi_alloc(woi_exact_scratch(DIMENSIONS, 1), 1, err);
    wo_status status = ids && scores && scratch ? WO_OK : WO_ERR_MEMORY;
    const woi_exact_call call = {.layer = &layer,
                                 .q = x + CLASSES * DIMENSIONS,
                                 .n = QUERIES,
                                 .k = ANSWERS,
                                 .threads = 1,
                                 .scratch = scratch,
                                 .ids = ids,
                                 .scores = scores};
    *gflops = 0;
    for (int i = 0; !status && i < TRIES;
         i++) { /* by this thread's own time: it is longer than a turn on a busy core */
        const double start = woi_clock(CLOCK_THREAD_CPUTIME_ID);
        status = woi_exact_topk(&call, err);
        const double rate = woi_full_gflop(&layer, QUERIES) / (woi_clock(CLOCK_THREAD_CPUTIME_ID) - start);
        if (!status && rate > *gflops) *gflops = rate;
    }
    woi_free(ids);
    woi_free(scores);
    woi_free(scratch);
    return status;
}

wo_status wo_cpu_measure(wo_cpu_rates *rates, wo_error *err)
{
    if (!rates)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "wo_cpu_measure has nowhere to write: rates is NULL");
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    float *x = woi_alloc(READ, sizeof *x, err);
    if (!x) return WO_ERR_MEMORY;
    uint32_t state = 1;
    for (size_t i = 0; i < READ; i++) { /* no zeros, which take less power */
        state = state * 1664525 + 1013904223;
        x[i] = (float)(state >> 8) * 0x1p-23F - 1;
    }
    wo_cpu_rates found = {.struct_size = sizeof found,
                          .tile = kernels->path[WOI_K_tile],
                          .tile_rows = (uint32_t)kernels->tile_rows,
                          .tile_columns = (uint32_t)kernels->tile_columns,
                          .peak_gflops = woi_peak_gflops(1),
                          .read_gb_s = woi_read_gb_s(x, READ)};
    wo_status status = product_gflops(x, &found.product_gflops, err);
    woi_free(x);
    if (!status && woi_sized_give(rates, &found, sizeof found))
        status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "struct_size of the processor's rates is not set");
    return status;
}
