/* Our products beside those of other libraries, for the shapes of the exact layer (FULL), of learning and of training.
 *
 * Every contender is a process of its own, which loads one library by dlopen, so that nothing is linked and nothing
 * conflicts: OpenBLAS with the core that it picks, and with SkylakeX; oneDNN; BLIS. (libxsmm hands products
 * as large as these to the BLAS that it is linked with.) The parent asks them in
 * turn, ROUNDS times, because rates drift on a shared machine; medians are shown. Each is asked with one thread and
 * with all.
 *
 *   FULL        ours gives the five best classes of each query, the others the bare product, whose C is written again
 *               and again, 8,192 classes wide: an (n, m) matrix would measure memory
 *   training    the three products of a step: logits, dW and dQ; ours are cut as net/softmax.c cuts them
 *   int8        ours is dot_i8, a query at a time; oneDNN's is gemm_s8s8s32
 *   bf16        ours is dot_bf16, a query at a time
 *
 * Usage: products [--libs DIR] [--threads N] [--rounds N] [--json FILE]; DIR: where libraries are looked for first. */
#include "median.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/team.h"
#include "kernels/gemm.h"
#include "layer/exact.h"

#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ROUNDS = 5,
    MOST_ROUNDS = 99,
    K = 5,
    CHUNK = 8192,
    BLOCK = 512,
    PARTS = 32,
    READ_FLOATS = 1 << 24,
    STEPS = 4000000 /* 10 ms, beside which waking threads is nothing */
};

typedef enum kind { PEAK, READ, EXACT, LOGITS, DW, DQ, INT8, BF16 } kind;

/* n queries, m classes, d dimensions. */
typedef struct shape {
    const char *name;
    kind kind;
    size_t n, m, d;
} shape;

static const shape shapes[] = {
    {"multiply-add peak", PEAK, 0, 0, 0},
    {"read rate, 64 MiB", READ, 0, 0, 0},
    {"FULL batch 1024, d 128", EXACT, 1024, 50778, 128},
    {"FULL batch 1024, d 128, wide", EXACT, 1024, 267744, 128},
    {"FULL batch 1024, d 200", EXACT, 1024, 33278, 200},
    {"FULL batch 1024, d 512", EXACT, 1024, 50778, 512},
    {"FULL batch 1, d 128", EXACT, 1, 50778, 128},
    {"FULL batch 1, d 512", EXACT, 1, 50778, 512},
    {"learning, X theta", DQ, 64, 128, 48},
    {"learning, X^T A", DW, 64, 128, 48},
    {"training xc, logits", LOGITS, 256, 50778, 128},
    {"training xc, dW", DW, 256, 50778, 128},
    {"training xc, dQ", DQ, 256, 50778, 128},
    {"training lm, logits", LOGITS, 2240, 33278, 200},
    {"training lm, dW", DW, 2240, 33278, 200},
    {"training lm, dQ", DQ, 2240, 33278, 200},
    {"training lm, LSTM input", LOGITS, 560, 800, 200},
    {"int8 batch 1024, d 128", INT8, 1024, 50778, 128},
    {"int8 batch 1, d 128", INT8, 1, 50778, 128},
    {"bf16 batch 1, d 128", BF16, 1, 50778, 128},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* ---- The libraries ----------------------------------------------------------------------------------------- */

typedef void cblas_sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                            const float *b, int ldb, float beta, float *c, int ldc);
typedef void cblas_sgemv_fn(int order, int t, int m, int n, float alpha, const float *a, int lda, const float *x, int,
                            float beta, float *y, int);
typedef int dnnl_sgemm_fn(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef int dnnl_s8_fn(char ta, char tb, char offset, int64_t m, int64_t n, int64_t k, float alpha, const int8_t *a,
                       int64_t lda, int8_t ao, const int8_t *b, int64_t ldb, int8_t bo, float beta, int32_t *c,
                       int64_t ldc, const int32_t *co);

static const struct {
    const char *name, *files[3], *core; /* core: OPENBLAS_CORETYPE */
} contenders[] = {
    {"wideout", {NULL}, NULL},
    {"OpenBLAS", {"libopenblas.so.0", "libopenblas.so"}, NULL},
    {"OpenBLAS, SkylakeX", {"libopenblas.so.0", "libopenblas.so"}, "SkylakeX"},
    {"oneDNN", {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}, NULL},
    {"BLIS", {"libblis.so.4", "libblis.so"}, NULL},
};
enum { N_CONTENDERS = sizeof contenders / sizeof *contenders };

/* What a contender's process has loaded. */
static struct {
    const woi_kernels *ours; /* or NULL */
    cblas_sgemm_fn *sgemm;
    cblas_sgemv_fn *sgemv;
    dnnl_sgemm_fn *dnnl_sgemm;
    dnnl_s8_fn *dnnl_s8;
    void (*blas_threads)(int), (*omp_threads)(int), (*blis_threads)(int64_t);
    char note[160]; /* which core or version */
} lib;

static void *find(void *library, const char *name)
{
    return dlsym(library, name);
}
#define FIND(field, name) (*(void **)(void *)&lib.field = find(library, name))

/* Whether the library is here; ours always is. */
static bool load(size_t contender, const char *folder)
{
    void *library = NULL;
    if (!contenders[contender].files[0]) {
        lib.ours = woi_kernels_get(NULL);
        if (!lib.ours) return false;
        snprintf(lib.note, sizeof lib.note, "%s %zux%zu", lib.ours->path[WOI_K_tile], lib.ours->tile_rows,
                 lib.ours->tile_columns);
        return true;
    }
    if (contenders[contender].core) setenv("OPENBLAS_CORETYPE", contenders[contender].core, 1);
    for (int i = 0; i < 3 && !library && contenders[contender].files[i]; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder ? folder : "", contenders[contender].files[i]);
        if (folder) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = dlopen(contenders[contender].files[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) return false;
    FIND(sgemm, "cblas_sgemm");
    FIND(sgemv, "cblas_sgemv");
    FIND(dnnl_sgemm, "dnnl_sgemm");
    FIND(dnnl_s8, "dnnl_gemm_s8s8s32");
    FIND(blas_threads, "openblas_set_num_threads");
    FIND(blis_threads, "bli_thread_set_num_threads");
    FIND(omp_threads, "omp_set_num_threads");
    char *(*core)(void);
    *(void **)(void *)&core = find(library, "openblas_get_corename");
    char *(*blis)(void);
    *(void **)(void *)&blis = find(library, "bli_info_get_version_str");
    if (core) snprintf(lib.note, sizeof lib.note, "core %s", core());
    if (blis) snprintf(lib.note, sizeof lib.note, "%s", blis());
    return lib.sgemm || lib.dnnl_sgemm;
}

static void set_threads(int threads)
{
    if (lib.blas_threads) lib.blas_threads(threads);
    if (lib.blis_threads) lib.blis_threads(threads);
    if (lib.omp_threads) lib.omp_threads(threads);
}

/* C (n, m) = op(A) op(B), row-major, k deep; t: transposed. */
static void their_product(const size_t nmk[3], const float *a, const float *b, const bool t[2], float *c)
{
    const int n = (int)nmk[0], m = (int)nmk[1], k = (int)nmk[2], lda = t[0] ? n : k, ldb = t[1] ? k : m;
    if (n == 1 && !t[0] && t[1] && lib.sgemv)
        lib.sgemv(101, 111, m, k, 1, b, k, a, 1, 0, c, 1);
    else if (lib.sgemm)
        lib.sgemm(101, t[0] ? 112 : 111, t[1] ? 112 : 111, n, m, k, 1, a, lda, b, ldb, 0, c, m);
    else
        lib.dnnl_sgemm(t[0] ? 'T' : 'N', t[1] ? 'T' : 'N', n, m, k, 1, a, lda, b, ldb, 0, c, m);
}

/* ---- Data and work of one shape ---------------------------------------------------------------------------- */

static struct {
    const shape *s;
    int threads;
    float *q, *w, *z, *out; /* (n, d), (m, d), the logits or dZ, the result */
    float *parts;           /* dQ by part */
    int8_t *q8, *w8;
    float *scales;
    int32_t *sums;
    uint16_t *w16;
    void *scratch;       /* FULL's */
    float *gemm_scratch; /* of each thread */
    int32_t *ids;
    float *scores;
} data;

static volatile float sink;

static void *need(size_t n, size_t size)
{
    void *x = aligned_alloc(64, (n * size + 127) / 64 * 64);
    if (!x) {
        fputs("products: out of memory\n", stderr);
        exit(1);
    }
    return x;
}

static float *numbers(size_t n)
{
    static uint64_t state = 88172645463325252u;
    float *x = need(n, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(state >> 40) * 0x1p-23f - 1;
    }
    return x;
}

static void release(void)
{
    void *const owned[] = {data.q,      data.w,    data.z,   data.out,     data.parts,        data.q8,  data.w8,
                           data.scales, data.sums, data.w16, data.scratch, data.gemm_scratch, data.ids, data.scores};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    memset(&data, 0, sizeof data);
}

static void prepare(const shape *s, int threads)
{
    const size_t n = s->n, m = s->m, d = s->d, chunk = m < CHUNK ? m : CHUNK;
    release();
    data.s = s;
    data.threads = threads;
    data.gemm_scratch = need((size_t)threads * WOI_GEMM_SCRATCH, sizeof(float));
    switch (s->kind) {
    case PEAK: return;
    case READ: data.w = numbers(READ_FLOATS); return;
    case EXACT:
        data.out = numbers(n * chunk);
        data.scratch = need(woi_exact_scratch(d, threads), 1);
        data.ids = need(n * K, sizeof(int32_t));
        data.scores = need(n * K, sizeof(float));
        break;
    case LOGITS: data.out = numbers(n * m); break;
    case DW:
        data.z = numbers(n * m);
        data.out = numbers(m * d);
        break;
    case DQ:
        data.z = numbers(n * m);
        data.out = numbers(n * d);
        data.parts = numbers(PARTS * n * d);
        break;
    case INT8:
    case BF16:
        data.q8 = need(n * d, 1);
        data.w8 = need(m * d, 1);
        data.w16 = need(m * d, sizeof *data.w16);
        data.sums = need(n * chunk, sizeof *data.sums);
        data.scales = numbers(m);
        data.out = numbers(chunk);
        memset(data.q8, 3, n * d);
        memset(data.w8, 5, m * d);
        memset(data.w16, 0x3f, m * d * sizeof *data.w16);
        data.q = numbers(n * d);
        return;
    }
    data.q = numbers(n * d);
    data.w = numbers(m * d);
}

/* ---- Ours -------------------------------------------------------------------------------------------------- */

static void peak_part(void *ctx, int worker, size_t part)
{
    (void)ctx, (void)worker, (void)part;
    lib.ours->multiply_adds(STEPS);
}

/* Classes of a part, block after block. */
static void training_part(void *ctx, int worker, size_t part)
{
    const shape *s = data.s;
    const size_t n = s->n, m = s->m, d = s->d, n_blocks = (m + BLOCK - 1) / BLOCK;
    const size_t from = s->kind == DQ ? part * n_blocks / PARTS : part;
    const size_t to = s->kind == DQ ? (part + 1) * n_blocks / PARTS : part + 1;
    float *scratch = data.gemm_scratch + (size_t)worker * WOI_GEMM_SCRATCH;
    (void)ctx;
    for (size_t block = from; block < to; block++) {
        const size_t at = block * BLOCK, width = m - at < BLOCK ? m - at : BLOCK;
        const woi_operand q = {data.q, d, WOI_BY_ROWS}, q_down = {data.q, d, WOI_BY_DEPTH};
        const woi_operand w = {data.w + at * d, d, WOI_BY_ROWS}, w_down = {data.w + at * d, d, WOI_BY_DEPTH};
        float *z = s->kind == LOGITS ? data.out + n * at : data.z + n * at;
        const woi_product logits = {n, width, d, q, w, z, width, false, NULL};
        const woi_product dw = {width, d, n, {z, width, WOI_BY_DEPTH}, q_down, data.out + at * d, d, false, NULL};
        const woi_product dq = {
            n, d, width, {z, width, WOI_BY_ROWS}, w_down, data.parts + part * n * d, d, block > from, NULL};
        woi_gemm(lib.ours, s->kind == LOGITS ? &logits : s->kind == DW ? &dw : &dq, scratch);
    }
}

static void run_ours(void)
{
    const shape *s = data.s;
    const size_t n = s->n, m = s->m, d = s->d, n_blocks = (m + BLOCK - 1) / BLOCK;
    const woi_dense layer = {m, d, data.w, NULL};
    const woi_exact_call call = {.layer = &layer,
                                 .q = data.q,
                                 .n = n,
                                 .k = K,
                                 .threads = data.threads,
                                 .scratch = data.scratch,
                                 .ids = data.ids,
                                 .scores = data.scores};
    switch (s->kind) {
    case PEAK: woi_team_for(data.threads, (size_t)data.threads, peak_part, NULL); break;
    case READ: sink = lib.ours->sum_f32(data.w, READ_FLOATS); break;
    case EXACT: (void)woi_exact_topk(&call, NULL); break;
    case LOGITS:
    case DW: woi_team_for(data.threads, n_blocks, training_part, NULL); break;
    case DQ:
        woi_team_for(data.threads, PARTS, training_part, NULL);
        memcpy(data.out, data.parts, n * d * sizeof(float));
        for (size_t part = 1; part < PARTS && part < n_blocks; part++)
            for (size_t i = 0; i < n * d; i++) data.out[i] += data.parts[part * n * d + i];
        break;
    case INT8:
        for (size_t at = 0; at < m; at += CHUNK)
            for (size_t i = 0; i < n; i++)
                lib.ours->dot_i8(data.q8 + i * d, 1, data.w8 + at * d, data.scales + at,
                                 m - at < CHUNK ? m - at : CHUNK, d, d, data.out);
        break;
    case BF16:
        for (size_t at = 0; at < m; at += CHUNK)
            lib.ours->dot_bf16(data.q, data.w16 + at * d, m - at < CHUNK ? m - at : CHUNK, d, d, data.out);
        break;
    }
}

/* ---- Theirs ------------------------------------------------------------------------------------------------ */

static void run_theirs(void)
{
    const shape *s = data.s;
    const size_t n = s->n, m = s->m, d = s->d;
    const int32_t zero = 0;
    for (size_t at = 0; s->kind == EXACT && at < m; at += CHUNK)
        their_product((size_t[]){n, m - at < CHUNK ? m - at : CHUNK, d}, data.q, data.w + at * d, (bool[]){false, true},
                      data.out);
    for (size_t at = 0; s->kind == INT8 && at < m; at += CHUNK) {
        const int64_t width = (int64_t)(m - at < CHUNK ? m - at : CHUNK);
        lib.dnnl_s8('N', 'T', 'F', (int64_t)n, width, (int64_t)d, 1, data.q8, (int64_t)d, 0, data.w8 + at * d,
                    (int64_t)d, 0, 0, data.sums, width, &zero);
    }
    if (s->kind == LOGITS) their_product((size_t[]){n, m, d}, data.q, data.w, (bool[]){false, true}, data.out);
    if (s->kind == DW) their_product((size_t[]){m, d, n}, data.z, data.q, (bool[]){true, false}, data.out);
    if (s->kind == DQ) their_product((size_t[]){n, d, m}, data.z, data.w, (bool[]){false, false}, data.out);
}

static bool can_run(const shape *s, int threads)
{
    if (lib.ours) return threads == 1 || (s->kind != READ && s->kind != INT8 && s->kind != BF16);
    if (s->kind == PEAK || s->kind == READ || s->kind == BF16) return false;
    if (s->kind == INT8) return lib.dnnl_s8 != NULL;
    return true;
}

/* ---- A contender's process --------------------------------------------------------------------------------- */

typedef struct question {
    int shape, threads;
} question;

/* Seconds of one run, short ones repeated for 30 ms; below 0: this contender cannot. One thread is given its own time,
 * which others on the machine disturb less. */
static double measure(const question *ask)
{
    const shape *s = &shapes[ask->shape];
    if (!can_run(s, ask->threads)) return -1;
    if (data.s != s || data.threads != ask->threads) {
        prepare(s, ask->threads);
        set_threads(ask->threads);
        (lib.ours ? run_ours : run_theirs)(); /* to warm up */
    }
    size_t runs = 0;
    double (*const clock)(void) = ask->threads == 1 ? woi_cpu_s : woi_now_s;
    const double start = clock();
    double took;
    do {
        (lib.ours ? run_ours : run_theirs)();
        runs++;
    } while ((took = clock() - start) < 0.03);
    return took / (double)runs;
}

typedef struct process {
    bool here;
    int ask, answer;
    pid_t pid;
    char note[sizeof lib.note];
} process;

static void serve(size_t contender, const char *folder, int ask, int answer)
{
    const bool here = load(contender, folder);
    question q;
    if (write(answer, &here, sizeof here) != sizeof here || write(answer, lib.note, sizeof lib.note) < 0) exit(1);
    while (here && read(ask, &q, sizeof q) == sizeof q) {
        const double took = measure(&q);
        if (write(answer, &took, sizeof took) != sizeof took) break;
    }
    exit(0);
}

static process start(size_t contender, const char *folder)
{
    int ask[2], answer[2];
    process p = {0};
    fflush(stdout); /* or what waits there is the child's, too */
    if (pipe(ask) || pipe(answer) || (p.pid = fork()) < 0) {
        perror("products");
        exit(1);
    }
    if (p.pid == 0) {
        close(ask[1]);
        close(answer[0]);
        serve(contender, folder, ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    p.ask = ask[1];
    p.answer = answer[0];
    if (read(p.answer, &p.here, sizeof p.here) != sizeof p.here || read(p.answer, p.note, sizeof p.note) < 0)
        p.here = false;
    return p;
}

/* The others' threads have had time to fall asleep. */
static double ask(process *p, int shape_number, int threads)
{
    const question q = {shape_number, threads};
    double took = -1;
    if (!p->here) return -1;
    usleep(10000);
    if (write(p->ask, &q, sizeof q) != sizeof q || read(p->answer, &took, sizeof took) != sizeof took) p->here = false;
    return took;
}

/* ---- Reporting --------------------------------------------------------------------------------------------- */

/* 1e9 operations of a run: multiply-adds count twice; bytes of READ. */
static double work(const shape *s, int threads)
{
    if (s->kind == PEAK) return 2e-9 * (double)threads * (double)woi_kernels_get(NULL)->multiply_adds(STEPS);
    if (s->kind == READ) return 4e-9 * READ_FLOATS;
    return 2e-9 * (double)s->n * (double)s->m * (double)s->d;
}

typedef struct run_options {
    const char *libs, *json;
    int threads, rounds;
} run_options;

/* One shape with one number of threads: all contenders in turn. Ours over the best of theirs, by their times. */
static void compare(process *all, int number, int threads, const run_options *o, double *peak, json_t *results)
{
    static double took[N_CONTENDERS][MOST_ROUNDS];
    const shape *s = &shapes[number];
    double best = 0, ours = 0;
    for (int r = 0; r < o->rounds; r++)
        for (size_t c = 0; c < N_CONTENDERS; c++) took[c][r] = ask(&all[c], number, threads);
    for (size_t c = 0; c < N_CONTENDERS; c++) {
        if (took[c][0] < 0) continue;
        const double t = bench_median(took[c], (size_t)o->rounds), rate = work(s, threads) / t;
        if (s->kind == PEAK) *peak = rate;
        if (c == 0) ours = t;
        if (c > 0 && (best == 0 || t < best)) best = t;
        const bool floats = s->kind >= EXACT && s->kind <= DQ;
        char share[16] = "";
        if (floats) snprintf(share, sizeof share, "%3.0f%%", 100 * rate / *peak);
        printf("%-30s %2d %-20s %12.1f us %8.1f %s %s\n", s->name, threads, contenders[c].name, 1e6 * t, rate,
               s->kind == READ ? "GB/s   " : "GFLOP/s", share);
        json_t *row = json_pack("{s:s, s:I, s:I, s:I, s:i, s:s, s:f, s:f}", "shape", s->name, "n", (json_int_t)s->n,
                                "m", (json_int_t)s->m, "d", (json_int_t)s->d, "threads", threads, "contender",
                                contenders[c].name, "us", 1e6 * t, "rate", rate);
        if (floats) json_object_set_new(row, "of_peak", json_real(rate / *peak));
        json_array_append_new(results, row);
    }
    if (best > 0 && ours > 0) printf("%-30s %2d %-20s %12.2f\n\n", s->name, threads, "ours over the best", ours / best);
    fflush(stdout);
}

static bool read_options(int argc, char **argv, run_options *o)
{
    *o = (run_options){.threads = woi_team_threads(0), .rounds = ROUNDS};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--libs"))
            o->libs = argv[i + 1];
        else if (!strcmp(argv[i], "--json"))
            o->json = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            o->threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            o->rounds = atoi(argv[i + 1]);
        else
            return false;
    }
    return argc % 2 == 1 && o->threads > 0 && o->rounds > 0 && o->rounds <= MOST_ROUNDS;
}

int main(int argc, char **argv)
{
    run_options o;
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: %s [--libs DIR] [--threads N] [--rounds N] [--json FILE]\n", argv[0]);
        return 2;
    }
    process all[N_CONTENDERS];
    json_t *results = json_array(), *libraries = json_object();
    woi_cpu cpu;
    woi_cpu_detect(&cpu);
    printf("wideout %s, %s, %d threads, compiled by %s, medians of %d\n", wo_version(), cpu.model, o.threads, COMPILER,
           o.rounds);
    for (size_t c = 0; c < N_CONTENDERS; c++) {
        all[c] = start(c, o.libs);
        printf("  %-20s %s\n", contenders[c].name, all[c].here ? all[c].note : "is not here");
        json_object_set_new(libraries, contenders[c].name, all[c].here ? json_string(all[c].note) : json_null());
    }
    putchar('\n');
    for (int t = 0; t < (o.threads > 1 ? 2 : 1); t++) {
        double peak = 0;
        for (int number = 0; number < N_SHAPES; number++) compare(all, number, t ? o.threads : 1, &o, &peak, results);
    }
    for (size_t c = 0; c < N_CONTENDERS; c++) {
        close(all[c].ask);
        close(all[c].answer);
        waitpid(all[c].pid, NULL, 0);
    }
    json_t *report = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:o}", "machine", cpu.model, "features",
                               cpu.features, "compiler", COMPILER, "version", wo_version(), "rounds", o.rounds,
                               "threads", o.threads, "libraries", libraries, "results", results);
    const bool failed = o.json && json_dump_file(report, o.json, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    if (failed) fprintf(stderr, "%s: cannot write %s\n", argv[0], o.json);
    json_decref(report);
    return failed;
}
