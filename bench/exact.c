/* How fast the exact layer is, beside what the machine can do at most, on layers of three sizes.
 *
 *   batch 1024, two threads   beside bare cblas_sgemm of the same product, OpenBLAS with two threads: a ratio of times
 *   batch 1, one thread       beside a plain read of W, eight accumulators, the faster vector width: a ratio of speeds
 *   every batch               microseconds a query, with one thread and with two
 *
 * Rates drift on a shared machine, so what is compared runs in turn, ROUNDS times; times are medians, and a ratio is
 * the median of the rounds' ratios. Where others take the processor away, the ratios of CPU times say more; with
 * OMP_WAIT_POLICY=passive they count no waiting of ours. Usage: exact [--json FILE]. */
#include "median.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "layer/exact.h"

#include <cblas.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROUNDS = 9, N = 1024, K = 5, THREADS = 2 };

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
    double (*read)(const float *, size_t);
} data;

static volatile double sink;

/* ---- What is timed ----------------------------------------------------------------------------------------- */

static void run_full(void)
{
    wo_error err;
    if (woi_exact_topk(&data.layer, NULL, data.q, data.batch, K, data.threads, data.scratch, data.ids, data.scores,
                       NULL, &err)) {
        fprintf(stderr, "exact: %s\n", err.text);
        exit(1);
    }
}

static void run_sgemm(void)
{
    const int m = (int)data.layer.m, d = (int)data.layer.d;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, m, d, 1, data.q, d, data.w, d, 0, data.product, m);
}

static void run_read(void)
{
    sink = data.read(data.w, data.layer.m * data.layer.d);
}

#if defined(__x86_64__)
#define SUM_ALL(type, load, add, lanes)                                                   \
    type a0 = {0}, a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;         \
    for (size_t i = 0; i + 8 * (lanes) <= n; i += 8 * (lanes)) {                          \
        a0 = add(a0, load(x + i)), a1 = add(a1, load(x + i + (lanes)));                   \
        a2 = add(a2, load(x + i + 2 * (lanes))), a3 = add(a3, load(x + i + 3 * (lanes))); \
        a4 = add(a4, load(x + i + 4 * (lanes))), a5 = add(a5, load(x + i + 5 * (lanes))); \
        a6 = add(a6, load(x + i + 6 * (lanes))), a7 = add(a7, load(x + i + 7 * (lanes))); \
    }                                                                                     \
    a0 = add(add(add(a0, a1), add(a2, a3)), add(add(a4, a5), add(a6, a7)));

__attribute__((target("avx512f"))) static double read_512(const float *x, size_t n)
{
    SUM_ALL(__m512, _mm512_loadu_ps, _mm512_add_ps, 16)
    return (double)_mm512_reduce_add_ps(a0);
}

__attribute__((target("avx2"))) static double read_256(const float *x, size_t n)
{
    SUM_ALL(__m256, _mm256_loadu_ps, _mm256_add_ps, 8)
    return (double)_mm256_cvtss_f32(a0);
}
#endif

static double read_plain(const float *x, size_t n)
{
    float sum[8] = {0};
    for (size_t i = 0; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++) sum[k] += x[i + k];
    return (double)(sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7]);
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

/* A plain read: the faster of the widths that the machine has. */
static duration time_of_read(const woi_cpu *cpu)
{
    duration best = {0, 0};
#if defined(__x86_64__)
    double (*const widths[])(const float *, size_t) = {cpu->avx512 ? read_512 : NULL, cpu->avx2 ? read_256 : NULL,
                                                       read_plain};
#else
    double (*const widths[])(const float *, size_t) = {read_plain};
    (void)cpu;
#endif
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        if (!(data.read = widths[i])) continue;
        const duration took = time_of(run_read);
        if (best.wall == 0 || took.wall < best.wall) best.wall = took.wall;
        if (best.cpu == 0 || took.cpu < best.cpu) best.cpu = took.cpu;
    }
    return best;
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
    data.scratch = aligned_alloc(64, (woi_exact_scratch(THREADS) + 63) / 64 * 64);
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

static json_t *compare(const woi_cpu *cpu, json_t *targets)
{
    double gemm[ROUNDS], full[ROUNDS], over[ROUNDS], over_cpu[ROUNDS];
    double read[ROUNDS], one[ROUNDS], share[ROUNDS], share_cpu[ROUNDS];
    for (int r = -1; r < ROUNDS; r++) { /* the first to warm up */
        const int at = r < 0 ? 0 : r;
        openblas_set_num_threads(THREADS);
        const duration g = time_of(run_sgemm), f = time_of_full(N, THREADS), rd = time_of_read(cpu),
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
    printf("batch 1024, 2 threads: sgemm %8.2f us/query (%.0f GFLOP/s), FULL %8.2f, ratio of times %.3f (CPU %.3f)\n",
           g, 2e-3 * elements / g, f, ratio, ratio_cpu);
    printf("batch 1, 1 thread:     read  %8.2f us       (%.1f GB/s), FULL %8.2f, ratio of speeds %.3f (CPU %.3f)\n", rd,
           4e-3 * elements / rd, o, speed, speed_cpu);
    json_array_append_new(targets, target("batch 1024 within 1.15 times of bare sgemm", ratio, 1.15, ratio <= 1.15));
    json_array_append_new(targets, target("batch 1 at 80% of a plain read", speed, 0.8, speed >= 0.8));
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "sgemm_us_per_query", g, "full_us_per_query", f,
                     "over_sgemm", ratio, "over_sgemm_cpu", ratio_cpu, "read_us", rd, "full_batch_1_us", o, "of_read",
                     speed, "of_read_cpu", speed_cpu);
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
    printf("wideout %s, %s, %s, OpenBLAS for %s, compiled by %s, medians of %d, k = %d\n\n", wo_version(), cpu.model,
           openblas_get_config(), openblas_get_corename(), COMPILER, ROUNDS, K);
    for (size_t i = 0; i < N_SIZES; i++) {
        if (!prepare(sizes[i].m, sizes[i].d)) {
            fprintf(stderr, "%s: out of memory\n", argv[0]);
            return 1;
        }
        printf("%s: m = %zu, d = %zu\n", sizes[i].name, sizes[i].m, sizes[i].d);
        json_t *targets = json_array(), *compared = compare(&cpu, targets);
        json_array_append_new(results, json_pack("{s:s, s:i, s:i, s:o, s:o, s:o}", "layer", sizes[i].name, "m",
                                                 (int)sizes[i].m, "d", (int)sizes[i].d, "compared", compared, "batches",
                                                 sweep(), "targets", targets));
        release();
    }
    json_t *report = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:o}", "machine", cpu.model, "features",
                               cpu.features, "compiler", COMPILER, "version", wo_version(), "openblas",
                               openblas_get_corename(), "rounds", ROUNDS, "k", K, "results", results);
    int failed = 0;
    if (json_path && json_dump_file(report, json_path, JSON_INDENT(2) | JSON_REAL_PRECISION(6))) {
        fprintf(stderr, "%s: cannot write %s\n", argv[0], json_path);
        failed = 1;
    }
    json_decref(report);
    return failed;
}
