/* How fast the kernels are: every kernel of kernels.def on every path that this machine has, beside the reference and
 * beside what the machine can do at most.
 *
 *   read ceiling   a plain sum over the same 256 MiB, one thread, eight accumulators, the faster vector width
 *   FMA peak       fused multiply-adds on registers alone, per vector width
 *
 * Rates drift on a shared machine, so all paths and both ceilings are measured in turn, ROUNDS times, and medians are
 * shown. Usage: kernels [--json FILE]. */
#include "median.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "kernels/kernels.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROUNDS = 7, D = 128, N_GATHER = 1 << 20, N_OUT = 1 << 21, TOP_K = 10 };
#define TABLE_BYTES ((size_t)256 << 20)

/* ---- What a kernel is called with -------------------------------------------------------------------------- */

/* What a rate is compared with; the first two are ceilings. */
typedef enum measure { OF_FMA_PEAK, OF_READ, OPERATIONS, BYTES } measure;

/* n rows (planes, values) of d elements; a job in memory goes through the whole table. */
typedef struct job {
    const char *where;
    size_t n, d;
    measure measure;
} job;

static struct {
    char *table;   /* TABLE_BYTES: rows, planes, scores or parameters */
    float q[4096]; /* the query, and offsets */
    int8_t q8[4096];
    float *out, *scales; /* N_OUT each */
    int32_t *ids;        /* N_GATHER, random in the table */
    uint16_t bits[64];
} data;

static volatile double sink; /* what a kernel returns, so that the call stays */

#define ROWS_IN(bytes) (TABLE_BYTES / (D * (bytes)))

static void run_dot_f32(const woi_kernels *k, const job *j)
{
    k->dot_f32(data.q, (const float *)data.table, j->n, j->d, j->d, data.out);
}

static void run_dot_bf16(const woi_kernels *k, const job *j)
{
    k->dot_bf16(data.q, (const uint16_t *)data.table, j->n, j->d, j->d, data.out);
}

static void run_dot_i8(const woi_kernels *k, const job *j)
{
    k->dot_i8(data.q8, 0.01f, (const int8_t *)data.table, data.scales, j->n, j->d, j->d, data.out);
}

static void run_gather_f32(const woi_kernels *k, const job *j)
{
    k->gather_f32(data.q, (const float *)data.table, data.ids, j->n, j->d, j->d, data.out);
}

static void run_gather_bf16(const woi_kernels *k, const job *j)
{
    k->gather_bf16(data.q, (const uint16_t *)data.table, data.ids, j->n, j->d, j->d, data.out);
}

static void run_gather_i8(const woi_kernels *k, const job *j)
{
    k->gather_i8(data.q8, 0.01f, (const int8_t *)data.table, data.scales, data.ids, j->n, j->d, j->d, data.out);
}

static void run_quantise(const woi_kernels *k, const job *j)
{
    sink = (double)k->quantise(data.q, j->d, data.q8);
}

static void run_project(const woi_kernels *k, const job *j)
{
    k->project(data.q, 1, (const float *)data.table, data.q, j->d, j->n, data.out, data.bits);
}

static void run_project_i8(const woi_kernels *k, const job *j)
{
    const float scale = 0.01f;
    k->project_i8(data.q8, &scale, 1, (const uint8_t *)data.table, data.q, data.q, j->d / 4, j->n, j->n, data.out);
}

/* A tile with d steps: n is what it has of sums, whatever the path, so that rates are those of the whole tile. */
static void run_tile(const woi_kernels *k, const job *j)
{
    static const float zeros[WOI_MOST_TILE_COLUMNS];
    const float *panels = (const float *)data.table;
    const size_t sums = k->tile_rows * k->tile_columns;
    for (size_t done = 0; done < j->n; done += sums)
        k->tile(&(woi_tile){panels, panels + k->tile_rows * j->d, k->tile_rows, j->d, k->tile_rows, k->tile_columns,
                            zeros, data.out, k->tile_columns});
}

static void run_interleave(const woi_kernels *k, const job *j)
{
    const float *rows = (const float *)data.table;
    for (size_t i = 0; i < j->n; i += k->tile_columns)
        k->interleave(rows + i * j->d, k->tile_columns, j->d, j->d, k->tile_columns, data.out);
}

static void run_sum_f32(const woi_kernels *k, const job *j)
{
    sink = (double)k->sum_f32((const float *)data.table, j->n);
}

static void run_multiply_adds(const woi_kernels *k, const job *j)
{
    const size_t one = k->multiply_adds(1);
    sink = (double)k->multiply_adds(j->n / one);
}

/* n scores of 8 queries, or of one, with d numbers each. */
static void run_tile_i8(const woi_kernels *k, const job *j)
{
    enum { BLOCK = 192 };
    static const int32_t sums[WOI_I8_ROWS];
    const size_t rows = j->n > BLOCK * WOI_I8_ROWS ? 1 : WOI_I8_ROWS;
    const uint8_t *classes = (const uint8_t *)data.table;
    for (size_t done = 0; done < j->n / rows; done += BLOCK)
        k->tile_i8(&(woi_tile_i8){data.q8, data.q, sums, classes + done * j->d, data.scales, data.scales, j->d / 4,
                                  rows, BLOCK / WOI_I8_COLUMNS, data.out, BLOCK});
}

static void run_sift(const woi_kernels *k, const job *j)
{
    sink = (double)k->sift((const float *)data.table, NULL, 0, j->n, 1e30f, data.out, data.ids);
}

static void run_topk_scan(const woi_kernels *k, const job *j)
{
    float scores[TOP_K];
    int32_t ids[TOP_K];
    woi_topk top = {TOP_K, 0, scores, ids};
    k->topk_scan((const float *)data.table, j->n, 0, &top);
    sink = (double)scores[0];
}

static void run_pick(const woi_kernels *k, const job *j)
{
    enum { MOST = 272, MANY = 20, FEW = 5 };
    float scores[MOST], best[MANY];
    int32_t ids[MANY];
    memcpy(scores, data.q, j->n * sizeof *scores);
    sink = (double)k->pick(scores, NULL, j->n, j->n == MOST ? MANY : FEW, best, ids);
}

static void run_max_f32(const woi_kernels *k, const job *j)
{
    sink = (double)k->max_f32((const float *)data.table, j->n);
}

static void run_exp_sum(const woi_kernels *k, const job *j)
{
    sink = k->exp_sum((const float *)data.table, j->n, 1, j->n <= N_OUT ? data.out : NULL);
}

static void run_scaled_log(const woi_kernels *k, const job *j)
{
    memcpy(data.out, data.q, j->n * sizeof *data.out); /* or the numbers would be logarithms of logarithms */
    k->scaled_log(data.out, j->n, 0, 1);
}

static void run_adam(const woi_kernels *k, const job *j)
{
    static const woi_adam_step step = {0.9f, 0.999f, 1e-3f, 1, 1e-8f};
    float *w = (float *)data.table;
    k->adam(w, w + j->n, w + 2 * j->n, w + 3 * j->n, j->n, &step);
}

#define N_F32 (TABLE_BYTES / sizeof(float))
static const job jobs_dot_f32[] = {{"32 x 128, L1", 32, D, OF_FMA_PEAK},
                                   {"2 MiB, d 128", ROWS_IN(4) / 128, D, BYTES},
                                   {"256 MiB, d 128", ROWS_IN(4), D, OF_READ},
                                   {"256 MiB, d 1024", ROWS_IN(4) / 8, 8 * D, OF_READ}};
static const job jobs_dot_bf16[] = {{"64 x 128, L1", 64, D, OF_FMA_PEAK}, {"256 MiB, d 128", ROWS_IN(2), D, OF_READ}};
static const job jobs_dot_i8[] = {{"128 x 128, L1", 128, D, OPERATIONS}, {"256 MiB, d 128", ROWS_IN(1), D, OF_READ}};
static const job jobs_gather_f32[] = {{"random in 256 MiB, d 128", ROWS_IN(4) / 2, D, OF_READ}};
static const job jobs_gather_bf16[] = {{"random in 256 MiB, d 128", ROWS_IN(2) / 2, D, OF_READ}};
static const job jobs_gather_i8[] = {{"random in 256 MiB, d 128", ROWS_IN(1) / 2, D, OF_READ}};
static const job jobs_quantise[] = {{"128, L1", 1, D, BYTES}};
static const job jobs_project[] = {{"128 x 48 planes, L1", 48, D, OF_FMA_PEAK},
                                   {"128 x 512 planes, L2", 512, D, OF_FMA_PEAK}};
static const job jobs_project_i8[] = {{"32 x 48 planes, L1", 48, 32, OPERATIONS},
                                      {"64 x 192 planes, L1", 192, 64, OPERATIONS}};
static const job jobs_tile[] = {{"d 128, L1", 384 * 20, D, OF_FMA_PEAK}, {"d 512, L2", 384 * 20, 4 * D, OF_FMA_PEAK}};
static const job jobs_interleave[] = {{"256 MiB, d 128", ROWS_IN(4) / 48 * 48, D, OF_READ}};
static const job jobs_sum_f32[] = {{"256 MiB", N_F32, 1, OF_READ}};
static const job jobs_multiply_adds[] = {{"registers", 1 << 22, 1, OF_FMA_PEAK}};
static const job jobs_tile_i8[] = {{"8 x 192, d 128, L1", 8 * 192, D, OPERATIONS},
                                   {"1 query, 256 MiB, d 128", ROWS_IN(1) / 192 * 192, D, OF_READ}};
static const job jobs_sift[] = {{"256 MiB, none kept", N_F32, 1, OF_READ}};
static const job jobs_topk_scan[] = {{"256 MiB, k 10", N_F32, 1, OF_READ}};
static const job jobs_pick[] = {{"5 of 64, L1", 64, 1, BYTES}, {"20 of 272, L1", 272, 1, BYTES}};
static const job jobs_max_f32[] = {{"256 MiB", N_F32, 1, OF_READ}};
static const job jobs_exp_sum[] = {{"256 MiB, sum alone", N_F32, 1, OF_READ}, {"2048 kept, L1", 2048, 1, BYTES}};
static const job jobs_scaled_log[] = {{"24, L1", 24, 1, BYTES}};
static const job jobs_adam[] = {{"4 x 64 MiB", N_F32 / 4, 1, OF_READ}};

/* Bytes read per element. */
enum {
    BYTES_dot_f32 = 4,
    BYTES_dot_bf16 = 2,
    BYTES_dot_i8 = 1,
    BYTES_gather_f32 = 4,
    BYTES_gather_bf16 = 2,
    BYTES_gather_i8 = 1,
    BYTES_quantise = 4,
    BYTES_project = 4,
    BYTES_project_i8 = 1,
    BYTES_tile = 4,
    BYTES_interleave = 4,
    BYTES_sum_f32 = 4,
    BYTES_multiply_adds = 4,
    BYTES_tile_i8 = 1,
    BYTES_sift = 4,
    BYTES_topk_scan = 4,
    BYTES_pick = 4,
    BYTES_max_f32 = 4,
    BYTES_exp_sum = 4,
    BYTES_scaled_log = 4,
    BYTES_adam = 16, /* read; the ceiling is one of reading, so the 12 written are not counted */
};

static const struct {
    const char *name;
    woi_kernel_id id;
    void (*run)(const woi_kernels *, const job *);
    const job *jobs;
    size_t n_jobs, bytes;
} kernels[] = {
#define WOI_KERNEL(ret, name, params) \
    {#name, WOI_K_##name, run_##name, jobs_##name, sizeof jobs_##name / sizeof(job), BYTES_##name},
#include "kernels/kernels.def"
#undef WOI_KERNEL
};

typedef struct path {
    const char *name;
    woi_level level;
    woi_kernels table;
} path;

enum { MAX_PATHS = 2 * WOI_N_LEVELS };

/* ---- Ceilings ---------------------------------------------------------------------------------------------- */

enum { FMA_STEPS = 200000 };

/* GB/s over the table; the fastest of the paths, for on Zen 4 that is not the widest. */
static double read_ceiling(const path *all, int n_paths)
{
    double best = 0;
    for (int p = 0; p < n_paths; p++) {
        const double start = woi_now_s();
        sink = (double)all[p].table.sum_f32((const float *)data.table, N_F32);
        const double rate = 1e-9 * (double)TABLE_BYTES / (woi_now_s() - start);
        if (rate > best) best = rate;
    }
    return best;
}

/* GFLOP/s of one path. */
static double fma_peak(const path *p)
{
    const double start = woi_now_s();
    const size_t done = p->table.multiply_adds(FMA_STEPS);
    return 1e-9 * 2 * (double)done / (woi_now_s() - start);
}

/* ---- Measuring --------------------------------------------------------------------------------------------- */

typedef struct result {
    double rate, ceiling; /* medians; ceiling 0: none */
} result;

static double median(double sample[ROUNDS])
{
    return bench_median(sample, ROUNDS);
}

/* Calls per second; small jobs repeat until a millisecond has passed. */
static double call_rate(void (*run)(const woi_kernels *, const job *), const woi_kernels *table, const job *j)
{
    for (size_t calls = 1;; calls *= 2) {
        const double start = woi_now_s();
        for (size_t c = 0; c < calls; c++) run(table, j);
        const double took = woi_now_s() - start;
        if (took > 1e-3) return (double)calls / took;
    }
}

/* The table repeats 1 MiB of numbers in the kernel's type: floats in [0, 1), bf16 likewise, or any bytes. */
static void fill_table(size_t element_bytes)
{
    enum { PIECE = 1 << 20 };
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < PIECE; i += element_bytes) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float value = (float)(state >> 40) * 0x1p-24f;
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        if (element_bytes == 2) word >>= 16;
        if (element_bytes == 1) word = (uint32_t)(state >> 56);
        memcpy(data.table + i, &word, element_bytes);
    }
    for (size_t at = PIECE; at < TABLE_BYTES; at += PIECE) memcpy(data.table + at, data.table, PIECE);
    const size_t m = ROWS_IN(element_bytes);
    for (size_t i = 0; i < N_GATHER; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data.ids[i] = (int32_t)((state >> 32) % m);
    }
}

static bool prepare(void)
{
    data.table = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data.out = calloc(N_OUT, sizeof *data.out);
    data.scales = calloc(N_OUT, sizeof *data.scales);
    data.ids = calloc(N_GATHER, sizeof *data.ids);
    if (data.table == MAP_FAILED || !data.out || !data.scales || !data.ids) return false;
    for (size_t i = 0; i < N_OUT; i++) data.out[i] = data.scales[i] = 0.01f;
    for (size_t i = 0; i < sizeof data.q8; i++) {
        data.q8[i] = (int8_t)(i * 37);
        data.q[i] = (float)data.q8[i] * 0x1p-7f;
    }
    return true;
}

static int find_paths(path found[MAX_PATHS])
{
    int n = 0;
    for (int level = 0; level < WOI_N_LEVELS; level++)
        for (int with_dot = 0; with_dot < 2; with_dot++)
            if (woi_kernels_at((woi_level)level, with_dot, &found[n].table)) {
                /* "avx512vnni" where that is what its dot products come from */
                found[n].name = with_dot ? found[n].table.path[WOI_K_dot_i8] : woi_level_name((woi_level)level);
                found[n++].level = (woi_level)level;
            }
    return n;
}

/* All paths and ceilings in turn, ROUNDS times. A path that a kernel has no version of its own for gets rate 0. */
static void measure_job(size_t kernel, const job *j, const path *all, int n_paths, result results[MAX_PATHS])
{
    double rate[MAX_PATHS][ROUNDS], peak[MAX_PATHS][ROUNDS], read[ROUNDS];
    const double elements = (double)j->n * (double)j->d;
    const bool counts_bytes = j->measure == OF_READ || j->measure == BYTES;
    const double work = 1e-9 * elements * (counts_bytes ? (double)kernels[kernel].bytes : 2);
    bool own[MAX_PATHS];
    for (int p = 0; p < n_paths; p++) own[p] = !strcmp(all[p].table.path[kernels[kernel].id], all[p].name);
    for (int round = 0; round < ROUNDS; round++) {
        if (j->measure == OF_READ) read[round] = read_ceiling(all, n_paths);
        if (j->measure == OF_FMA_PEAK)
            for (int p = 0; p < n_paths; p++) peak[p][round] = fma_peak(&all[p]);
        for (int p = 0; p < n_paths; p++)
            if (own[p]) rate[p][round] = work * call_rate(kernels[kernel].run, &all[p].table, j);
    }
    /* The reference has no width of its own: it is held against the widest. */
    for (int p = 0; p < n_paths; p++) {
        results[p] = (result){own[p] ? median(rate[p]) : 0, 0};
        if (j->measure == OF_READ) results[p].ceiling = median(read);
        if (j->measure == OF_FMA_PEAK) results[p].ceiling = median(peak[p ? p : n_paths - 1]);
    }
}

/* ---- Reporting --------------------------------------------------------------------------------------------- */

static const char *const units[] = {"GFLOP/s", "GB/s", "Gop/s", "GB/s"};

static void show(json_t *list, const char *kernel, const char *path_name, const job *j, const result *r,
                 double reference)
{
    char share[16] = "-";
    const double of_ceiling = r->ceiling > 0 ? r->rate / r->ceiling : 0;
    if (of_ceiling > 0) snprintf(share, sizeof share, "%.0f%%", 100 * of_ceiling);
    printf("%-12s %-11s %-26s %8.2f %-8s %7.1fx %9s\n", kernel, path_name, j->where, r->rate, units[j->measure],
           r->rate / reference, share);
    fflush(stdout);
    json_t *row = json_pack("{s:s, s:s, s:s, s:f, s:s, s:f}", "kernel", kernel, "path", path_name, "size", j->where,
                            "rate", r->rate, "unit", units[j->measure], "over_reference", r->rate / reference);
    if (r->ceiling > 0) {
        json_object_set_new(row, "ceiling", json_real(r->ceiling));
        json_object_set_new(row, "of_ceiling", json_real(of_ceiling));
    }
    json_array_append_new(list, row);
}

static void show_target(json_t *list, const char *what, double share, const result *r, const char *unit)
{
    if (r->rate > 0)
        printf("target: %s: %s (%.1f of %.1f %s, %.0f%%)\n", what, r->rate >= share * r->ceiling ? "met" : "NOT met",
               r->rate, r->ceiling, unit, 100 * r->rate / r->ceiling);
    else
        printf("target: %s: not measured, this machine has no AVX-512\n", what);
    json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:b}", "target", what, "share", share, "rate", r->rate,
                                          "ceiling", r->ceiling, "met", r->rate > 0 && r->rate >= share * r->ceiling));
}

int main(int argc, char **argv)
{
    const char *json_path = argc == 3 && !strcmp(argv[1], "--json") ? argv[2] : NULL;
    if (argc > 1 && !json_path) {
        fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
        return 2;
    }
    if (!prepare()) {
        fprintf(stderr, "%s: out of memory\n", argv[0]);
        return 1;
    }
    woi_cpu cpu;
    woi_cpu_detect(&cpu);
    path all[MAX_PATHS];
    const int n_paths = find_paths(all);
    json_t *rows = json_array(), *targets = json_array();
    result in_cache = {0, 0}, in_memory = {0, 0}; /* dot_f32 on avx512 */

    printf("wideout %s, %s, compiled by %s, one thread, medians of %d\n\n", wo_version(), cpu.model, COMPILER, ROUNDS);
    printf("%-12s %-11s %-26s %8s %-8s %8s %9s\n", "kernel", "path", "size", "rate", "", "over ref", "ceiling");
    size_t filled = 0;
    for (size_t k = 0; k < WOI_N_KERNELS; k++) {
        const size_t element = kernels[k].bytes < 4 ? kernels[k].bytes : 4;
        if (element != filled) fill_table(filled = element);
        for (size_t c = 0; c < kernels[k].n_jobs; c++) {
            const job *j = &kernels[k].jobs[c];
            result results[MAX_PATHS];
            measure_job(k, j, all, n_paths, results);
            for (int p = 0; p < n_paths; p++) {
                if (results[p].rate > 0) show(rows, kernels[k].name, all[p].name, j, &results[p], results[0].rate);
                if (kernels[k].id == WOI_K_dot_f32 && !strcmp(all[p].name, "avx512") && j->d == D &&
                    j->measure <= OF_READ)
                    *(j->measure == OF_READ ? &in_memory : &in_cache) = results[p];
            }
        }
    }
    putchar('\n');
    show_target(targets, "dot_f32 in L1 at 50% of the FMA peak", 0.5, &in_cache, "GFLOP/s");
    show_target(targets, "dot_f32 from memory at 80% of the read ceiling", 0.8, &in_memory, "GB/s");

    json_t *report =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:o, s:o}", "machine", cpu.model, "features", cpu.features, "compiler",
                  COMPILER, "version", wo_version(), "rounds", ROUNDS, "results", rows, "targets", targets);
    int failed = 0;
    if (json_path && json_dump_file(report, json_path, JSON_INDENT(2) | JSON_REAL_PRECISION(6))) {
        fprintf(stderr, "%s: cannot write %s\n", argv[0], json_path);
        failed = 1;
    }
    json_decref(report);
    return failed;
}
