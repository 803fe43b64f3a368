/* How fast the exact layer is, beside what the machine can do at most, on layers of three sizes.
 *
 *   batch 1024, two threads   beside the bare product, woi_gemm with two threads, all logits kept: a ratio of times
 *   batch 1, one thread       beside a plain read of W, sum_f32: a ratio of speeds
 *   every batch               microseconds a query, with one thread and with two
 *
 * Rates drift on a shared machine, so what is compared runs in turn, ROUNDS times; times are medians, and a ratio is
 * the median of the rounds' ratios. Where others take the processor away, the ratios of CPU times say more. The
 * products of other libraries are in products.c. Usage: exact [--json FILE]. */
#include "median.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/team.h"
#include "kernels/gemm.h"
#include "layer/exact.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, N = 1024, K = 5, THREADS = 2, PARTS = 32 };

static const struct {
    const char *name;
    size_t m, d;
} sizes[] = {{"debian", 50778, 128}, {"wikitext-2", 33278, 200}, {"eurlex57k", 4271, 128}};
static const size_t batches[] = {1, 2, 4, 8, 16, 32, 64, 256, 1024};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], N_BATCHES = sizeof batches / sizeof batches[0] };

static struct {
    woi_dense layer;
    float *w, *b, *q, *product; /* (m, d), (m), (N, d), (N, m) */
    float scores[N * K];
    int32_t ids[N * K];
    void *scratch;
    size_t batch; /* of run_full */
    int threads;
    const woi_kernels *kernels;
    float gemm_scratch[THREADS][WOI_GEMM_SCRATCH];
} data;

static volatile double sink;

/* ---- What is timed ----------------------------------------------------------------------------------------- */

static void run_full(void)
{
    wo_error err;
    const woi_exact_call call = {.layer = &data.layer,
                                 .q = data.q,
                                 .n = data.batch,
                                 .k = K,
                                 .threads = data.threads,
                                 .scratch = data.scratch,
                                 .ids = data.ids,
                                 .scores = data.scores};
    if (woi_exact_topk(&call, &err)) {
        fprintf(stderr, "exact: %s\n", err.text);
        exit(1);
    }
}

static void product_part(void *ctx, int worker, size_t part)
{
    const size_t m = data.layer.m, d = data.layer.d;
    const size_t from = woi_part_start(part, PARTS, m), to = woi_part_start(part + 1, PARTS, m);
    const woi_operand q = {data.q, d, WOI_BY_ROWS}, w = {data.w + from * d, d, WOI_BY_ROWS};
    (void)ctx;
    woi_gemm(data.kernels, &(woi_product){N, to - from, d, q, w, data.product + from, m, false, NULL},
             data.gemm_scratch[worker]);
}

static void run_product(void)
{
    woi_team_for(THREADS, PARTS, product_part, NULL);
}

static void run_read(void)
{
    sink = (double)data.kernels->sum_f32(data.w, data.layer.m * data.layer.d);
}

/* ---- Measuring --------------------------------------------------------------------------------------------- */

static double median(double sample[ROUNDS])
{
    return bench_median(sample, ROUNDS);
}

/* Of one call, in seconds; that of the processor counts all threads, and their waiting where they do not sleep. */
typedef struct duration {
    double wall, cpu;
} duration;

/* Short calls repeat for five milliseconds. */
static duration time_of(void (*run)(void))
{
    size_t calls = 0;
    const double start = woi_now_s(), cpu = woi_cpu_s();
    double took;
    do {
        run();
        calls++;
    } while ((took = woi_now_s() - start) < 5e-3);
    return (duration){took / (double)calls, (woi_cpu_s() - cpu) / (double)calls};
}

static duration time_of_full(size_t batch, int threads)
{
    data.batch = batch;
    data.threads = threads;
    return time_of(run_full);
}

static float next_value(void)
{
    static uint64_t state = 88172645463325252u;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-23f - 1;
}

static float *make_values(size_t n)
{
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
    for (size_t i = 0; x && i < n; i++) x[i] = next_value();
    return x;
}

static int prepare(size_t m, size_t d)
{
    data.w = make_values(m * d);
    data.b = make_values(m);
    data.q = make_values(N * d);
    data.product = make_values(N * m);
    data.scratch = aligned_alloc(64, (woi_exact_scratch(d, THREADS) + 63) / 64 * 64);
    data.layer = (woi_dense){m, d, data.w, data.b};
    return data.w && data.b && data.q && data.product && data.scratch;
}

static void release(void)
{
    free(data.w);
    free(data.b);
    free(data.q);
    free(data.product);
    free(data.scratch);
}

/* ---- Reporting --------------------------------------------------------------------------------------------- */

static json_t *target(const char *what, double value, double bound, int met)
{
    printf("target: %s: %s (%.3f, bound %.2f)\n", what, met ? "met" : "NOT met", value, bound);
    return json_pack("{s:s, s:f, s:f, s:b}", "target", what, "value", value, "bound", bound, "met", met);
}

static json_t *compare(json_t *targets)
{
    double gemm[ROUNDS], full[ROUNDS], over[ROUNDS], over_cpu[ROUNDS];
    double read[ROUNDS], one[ROUNDS], share[ROUNDS], share_cpu[ROUNDS];
    for (int r = -1; r < ROUNDS; r++) { /* the first to warm up */
        const int at = r < 0 ? 0 : r;
        const duration g = time_of(run_product), f = time_of_full(N, THREADS), rd = time_of(run_read),
                       o = time_of_full(1, 1);
        gemm[at] = 1e6 * g.wall / N;
        full[at] = 1e6 * f.wall / N;
        read[at] = 1e6 * rd.wall;
        one[at] = 1e6 * o.wall;
        over[at] = f.wall / g.wall;
        over_cpu[at] = f.cpu / g.cpu;
        share[at] = rd.wall / o.wall;
        share_cpu[at] = rd.cpu / o.cpu;
    }
    const double elements = (double)data.layer.m * (double)data.layer.d;
    const double g = median(gemm), f = median(full), rd = median(read), o = median(one);
    const double ratio = median(over), ratio_cpu = median(over_cpu), speed = median(share),
                 speed_cpu = median(share_cpu);
    printf("batch 1024, 2 threads: product %8.2f us/query (%.0f GFLOP/s), FULL %8.2f, ratio of times %.3f (CPU %.3f)\n",
           g, 2e-3 * elements / g, f, ratio, ratio_cpu);
    printf("batch 1, 1 thread:     read  %8.2f us       (%.1f GB/s), FULL %8.2f, ratio of speeds %.3f (CPU %.3f)\n", rd,
           4e-3 * elements / rd, o, speed, speed_cpu);
    json_array_append_new(targets,
                          target("batch 1024 within 1.15 times of the bare product", ratio, 1.15, ratio <= 1.15));
    json_array_append_new(targets, target("batch 1 at 80% of a plain read", speed, 0.8, speed >= 0.8));
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "product_us_per_query", g, "full_us_per_query", f,
                     "over_product", ratio, "over_product_cpu", ratio_cpu, "read_us", rd, "full_batch_1_us", o,
                     "of_read", speed, "of_read_cpu", speed_cpu);
}

static json_t *sweep(void)
{
    static double took[N_BATCHES][THREADS][ROUNDS];
    json_t *list = json_array();
    for (int r = -1; r < ROUNDS; r++)
        for (size_t i = 0; i < N_BATCHES; i++)
            for (int t = 0; t < THREADS; t++)
                took[i][t][r < 0 ? 0 : r] = 1e6 * time_of_full(batches[i], t + 1).wall / (double)batches[i];
    printf("%-24s", "us/query at batch");
    for (size_t i = 0; i < N_BATCHES; i++) printf(" %8zu", batches[i]);
    for (int t = 0; t < THREADS; t++) {
        printf("\n  %d thread%-14s", t + 1, t ? "s" : "");
        for (size_t i = 0; i < N_BATCHES; i++) {
            const double us = median(took[i][t]);
            printf(" %8.2f", us);
            json_array_append_new(
                list, json_pack("{s:i, s:i, s:f}", "batch", (int)batches[i], "threads", t + 1, "us_per_query", us));
        }
    }
    puts("\n");
    fflush(stdout);
    return list;
}

int main(int argc, char **argv)
{
    const char *json_path = argc == 3 && !strcmp(argv[1], "--json") ? argv[2] : NULL;
    if (argc > 1 && !json_path) {
        fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
        return 2;
    }
    woi_cpu cpu;
    woi_cpu_detect(&cpu);
    json_t *results = json_array();
    wo_error err;
    if (!(data.kernels = woi_kernels_get(&err))) {
        fprintf(stderr, "exact: %s\n", err.text);
        return 1;
    }
    printf("wideout %s, %s, tiles of %s, compiled by %s, medians of %d, k = %d\n\n", wo_version(), cpu.model,
           data.kernels->path[WOI_K_tile], COMPILER, ROUNDS, K);
    for (size_t i = 0; i < N_SIZES; i++) {
        if (!prepare(sizes[i].m, sizes[i].d)) {
            fprintf(stderr, "%s: out of memory\n", argv[0]);
            return 1;
        }
        printf("%s: m = %zu, d = %zu\n", sizes[i].name, sizes[i].m, sizes[i].d);
        json_t *targets = json_array(), *compared = compare(targets);
        json_array_append_new(results, json_pack("{s:s, s:i, s:i, s:o, s:o, s:o}", "layer", sizes[i].name, "m",
                                                 (int)sizes[i].m, "d", (int)sizes[i].d, "compared", compared, "batches",
                                                 sweep(), "targets", targets));
        release();
    }
    json_t *report = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:o}", "machine", cpu.model, "features",
                               cpu.features, "compiler", COMPILER, "version", wo_version(), "tiles",
                               data.kernels->path[WOI_K_tile], "rounds", ROUNDS, "k", K, "results", results);
    int failed = 0;
    if (json_path && json_dump_file(report, json_path, JSON_INDENT(2) | JSON_REAL_PRECISION(6))) {
        fprintf(stderr, "%s: cannot write %s\n", argv[0], json_path);
        failed = 1;
    }
    json_decref(report);
    return failed;
}
