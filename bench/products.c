/* Our products beside those of other libraries, for the shapes of the exact layer (FULL), of learning and of training.
 *
 * Every contender is a process of its own, which loads one library by dlopen, so that nothing is linked and nothing
 * conflicts: OpenBLAS with the core that it picks, and with SkylakeX; oneDNN, without AMX and, in int8 and bf16, with
 * it where the machine has it; BLIS; libxsmm. The parent asks them in turn, ROUNDS times, because rates drift on a
 * shared machine; medians are shown. Each is asked with one thread and with all. What a rival has computed is looked at
 * once: a layout that was meant otherwise is fast, too.
 *
 *   FULL        ours gives the five best classes of each query, the others the bare product, whose C is written again
 *               and again, 8,192 classes wide: an (n, m) matrix would measure memory
 *   training    the three products of a step: logits, dW and dQ; ours are cut as net/softmax.c cuts them
 *   int8        ours is the screen, with the candidates of five answers, and dot_i8 for one query; oneDNN's is
 *               gemm_s8s8s32
 *   bf16        ours is dot_bf16 for one query, and for 1,024 FULL: the library has no product in bf16, it answers them
 *               in f32; oneDNN's is matmul, whose weights are laid out beforehand
 *
 * libxsmm makes kernels for small products and leaves the loops to its caller: logits are tiles of them in our loops,
 * with our threads; the other products of training are libxsmm_sgemm_omp's. One query is no product for it.
 *
 * Usage: products [--libs DIR] [--threads N] [--rounds N] [--json FILE]; DIR: where libraries are looked for first. */
#include "median.h"
#include "peers/onednn.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/team.h"
#include "kernels/gemm.h"
#include "layer/exact.h"
#include "layer/screen.h"

#include <dlfcn.h>
#include <jansson.h>
#include <math.h>
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
    MATMULS = 8,    /* chunks of the shapes in bf16, at most */
    XSMM_ROWS = 64, /* a tile of libxsmm's: the fastest of 16 to 128 by 6 to 64, or within 5% of it */
    XSMM_COLUMNS = 48,
    XSMM_BLOCK = 8 * XSMM_COLUMNS,
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
    {"int8 batch 1024, d 200", INT8, 1024, 33278, 200},
    {"int8 batch 1, d 128", INT8, 1, 50778, 128},
    {"int8 batch 1, d 200", INT8, 1, 33278, 200},
    {"bf16 batch 1024, d 128", BF16, 1024, 50778, 128},
    {"bf16 batch 1024, d 200", BF16, 1024, 33278, 200},
    {"bf16 batch 1, d 128", BF16, 1, 50778, 128},
    {"bf16 batch 1, d 200", BF16, 1, 33278, 200},
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
typedef void xsmm_gemm_fn(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha,
                          const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
                          const int *ldc);
typedef void xsmm_kernel(const float *a, const float *b, float *c, ...);
typedef xsmm_kernel *xsmm_dispatch_fn(int m, int n, int k, const int *lda, const int *ldb, const int *ldc,
                                      const float *alpha, const float *beta, const int *flags, const int *prefetch);

static const struct {
    const char *name, *files[3], *variable, *value; /* of the environment */
    bool amx;                                       /* that is what it is here for */
} contenders[] = {
    {"wideout", {NULL}, NULL, NULL, false},
    {"OpenBLAS", {"libopenblas.so.0", "libopenblas.so"}, NULL, NULL, false},
    {"OpenBLAS, SkylakeX", {"libopenblas.so.0", "libopenblas.so"}, "OPENBLAS_CORETYPE", "SkylakeX", false},
    {"oneDNN", {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}, "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", false},
    {"oneDNN, AMX", {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}, NULL, NULL, true},
    {"BLIS", {"libblis.so.4", "libblis.so"}, NULL, NULL, false},
    {"libxsmm",
     {"libxsmm.so"},
     NULL,
     NULL,
     false}, /* the Makefile makes it of Debian's archives, beside this program */
};
enum { N_CONTENDERS = sizeof contenders / sizeof *contenders };

/* What a contender's process has loaded. */
static struct {
    const char *name;
    const woi_kernels *ours; /* or NULL */
    void *library;
    bool amx;
    cblas_sgemm_fn *sgemm;
    cblas_sgemv_fn *sgemv;
    dnnl_sgemm_fn *dnnl_sgemm;
    dnnl_s8_fn *dnnl_s8;
    xsmm_gemm_fn *xsmm_gemm;
    xsmm_dispatch_fn *xsmm_dispatch;
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
    lib.name = contenders[contender].name;
    if (!contenders[contender].files[0]) {
        lib.ours = woi_kernels_get(NULL);
        if (!lib.ours) return false;
        snprintf(lib.note, sizeof lib.note, "%s %zux%zu", lib.ours->path[WOI_K_tile], lib.ours->tile_rows,
                 lib.ours->tile_columns);
        return true;
    }
    if (contenders[contender].variable) setenv(contenders[contender].variable, contenders[contender].value, 1);
    for (int i = 0; i < 3 && !library && contenders[contender].files[i]; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder ? folder : "", contenders[contender].files[i]);
        if (folder) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = dlopen(contenders[contender].files[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) return false;
    lib.library = library;
    lib.amx = contenders[contender].amx;
    FIND(sgemm, "cblas_sgemm");
    FIND(sgemv, "cblas_sgemv");
    FIND(dnnl_sgemm, "dnnl_sgemm");
    FIND(dnnl_s8, "dnnl_gemm_s8s8s32");
    FIND(xsmm_gemm, "libxsmm_sgemm_omp_");
    FIND(xsmm_dispatch, "libxsmm_smmdispatch");
    FIND(blas_threads, "openblas_set_num_threads");
    FIND(blis_threads, "bli_thread_set_num_threads");
    FIND(omp_threads, "omp_set_num_threads");
    char *(*core)(void);
    *(void **)(void *)&core = find(library, "openblas_get_corename");
    char *(*blis)(void);
    *(void **)(void *)&blis = find(library, "bli_info_get_version_str");
    if (core) snprintf(lib.note, sizeof lib.note, "core %s", core());
    const char *(*xsmm)(void);
    *(void **)(void *)&xsmm = find(library, "libxsmm_get_target_arch");
    int (*dnnl)(void);
    *(void **)(void *)&dnnl = find(library, "dnnl_get_effective_cpu_isa");
    if (blis) snprintf(lib.note, sizeof lib.note, "%s", blis());
    if (xsmm) snprintf(lib.note, sizeof lib.note, "target %s", xsmm());
    if (dnnl) snprintf(lib.note, sizeof lib.note, "instruction sets %#x", (unsigned)dnnl());
    enum { AMX = 0x200 }; /* of oneDNN's numbers */
    if (lib.amx && !(dnnl && dnnl() & AMX)) return false;
    return lib.sgemm || lib.dnnl_sgemm || (lib.xsmm_gemm && lib.xsmm_dispatch);
}

static void set_threads(int threads)
{
    if (lib.blas_threads) lib.blas_threads(threads);
    if (lib.blis_threads) lib.blis_threads(threads);
    if (lib.omp_threads) lib.omp_threads(threads);
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
    uint16_t *q16, *w16;
    peer_matmul *matmuls[MATMULS]; /* a chunk's each */
    woi_screen screen;
    float *packed;       /* queries, for libxsmm */
    void *scratch;       /* FULL's, or the screen's */
    float *gemm_scratch; /* of each thread */
    int32_t *ids;
    float *scores;
} data;

static volatile float sink;

static void out_of_memory(void)
{
    fputs("products: out of memory\n", stderr);
    exit(1);
}

static void *need(size_t n, size_t size)
{
    void *x = aligned_alloc(64, (n * size + 127) / 64 * 64);
    if (!x) out_of_memory();
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

/* In int8, in bf16: x becomes what they say. */
static int8_t *bytes(float *x, size_t n)
{
    int8_t *small = need(n, sizeof *small);
    for (size_t i = 0; i < n; i++) x[i] = small[i] = (int8_t)(127 * x[i]);
    return small;
}

static uint16_t *halves(float *x, size_t n)
{
    uint16_t *small = need(n, sizeof *small);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        small[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000;
        memcpy(&x[i], &bits, sizeof bits);
    }
    return small;
}

static void release(void)
{
    void *const owned[] = {data.q,      data.w,     data.z,   data.out, data.parts,  data.q8,      data.w8,
                           data.scales, data.sums,  data.q16, data.w16, data.packed, data.scratch, data.gemm_scratch,
                           data.ids,    data.scores};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    for (size_t i = 0; i < MATMULS; i++) peer_matmul_free(data.matmuls[i]);
    woi_screen_free(&data.screen);
    memset(&data, 0, sizeof data);
}

static void prepare_full(void)
{
    data.scratch = need(woi_exact_scratch(data.s->d, data.threads), 1);
    data.ids = need(data.s->n * K, sizeof(int32_t));
    data.scores = need(data.s->n * K, sizeof(float));
}

static void prepare(const shape *s, int threads)
{
    const size_t n = s->n, m = s->m, d = s->d, chunk = m < CHUNK ? m : CHUNK;
    release();
    data.s = s;
    data.threads = threads;
    data.gemm_scratch = need((size_t)threads * WOI_GEMM_SCRATCH, sizeof(float));
    if (s->kind == PEAK) return;
    data.w = numbers(s->kind == READ ? READ_FLOATS : m * d);
    if (s->kind == READ) return;
    data.q = numbers(n * d);
    data.packed = need(n * d, sizeof(float));
    switch (s->kind) {
    case PEAK:
    case READ: break;
    case EXACT:
        data.out = numbers(n * chunk);
        prepare_full();
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
        data.q8 = bytes(data.q, n * d);
        data.w8 = bytes(data.w, m * d);
        data.sums = need(n * chunk, sizeof *data.sums);
        data.scales = numbers(m);
        data.out = numbers(chunk);
        data.scratch = need(woi_screen_scratch(d, threads), 1);
        if (lib.ours && woi_screen_make(&(woi_dense){m, d, data.w, NULL}, threads, &data.screen, NULL)) out_of_memory();
        break;
    case BF16:
        data.q16 = halves(data.q, n * d);
        data.w16 = halves(data.w, m * d);
        data.out = numbers(n * chunk);
        prepare_full();
        for (size_t at = 0; lib.library && at < m && (!at || data.matmuls[at / CHUNK - 1]); at += CHUNK)
            data.matmuls[at / CHUNK] =
                peer_matmul_create(lib.library, &(peer_matmul_operands){n, m - at < CHUNK ? m - at : CHUNK, d, data.q16,
                                                                        data.w16 + at * d, data.out});
        break;
    }
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

static void screened(void *ctx, int worker, size_t i, const int32_t *ids, size_t n)
{
    (void)ctx, (void)worker, (void)i, (void)ids, (void)n;
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
        if (n > 1)
            woi_screen_run(lib.ours, &(woi_screen_call){.screen = &data.screen,
                                                        .q = data.q,
                                                        .n = n,
                                                        .keep = woi_screen_kept(K),
                                                        .threads = data.threads,
                                                        .scratch = data.scratch,
                                                        .found = screened});
        for (size_t at = 0; n == 1 && at < m; at += CHUNK)
            lib.ours->dot_i8(data.q8, 1, data.w8 + at * d, data.scales + at, m - at < CHUNK ? m - at : CHUNK, d, d,
                             data.out);
        break;
    case BF16:
        if (n > 1) (void)woi_exact_topk(&call, NULL);
        for (size_t at = 0; n == 1 && at < m; at += CHUNK)
            lib.ours->dot_bf16(data.q, data.w16 + at * d, m - at < CHUNK ? m - at : CHUNK, d, d, data.out);
        break;
    }
}

/* ---- Theirs ------------------------------------------------------------------------------------------------ */

/* C = Q W^T in tiles of libxsmm's, which go by columns: queries are packed by depth, 64 side by side, and their logits
 * lie so too; classes are as they are. */
typedef struct xsmm_job {
    const size_t *nmk;
    const float *q, *w;
    float *c;
} xsmm_job;

static void xsmm_block(void *ctx, int worker, size_t block)
{
    const xsmm_job *job = ctx;
    const size_t n = job->nmk[0], m = job->nmk[1], d = job->nmk[2], first = block * XSMM_BLOCK,
                 end = m - first < XSMM_BLOCK ? m : first + XSMM_BLOCK;
    const int depth = (int)d;
    (void)worker;
    for (size_t i = 0; i < n; i += XSMM_ROWS) {
        const int rows = n - i < XSMM_ROWS ? (int)(n - i) : XSMM_ROWS;
        xsmm_kernel *tile = NULL;
        for (size_t j = first; j < end; j += XSMM_COLUMNS) {
            const int columns = end - j < XSMM_COLUMNS ? (int)(end - j) : XSMM_COLUMNS;
            if (j == first || columns < XSMM_COLUMNS)
                tile =
                    lib.xsmm_dispatch(rows, columns, depth, &rows, &depth, &rows, &(float){1}, &(float){0}, NULL, NULL);
            tile(data.packed + i * d, job->w + j * d, job->c + i * m + j * (size_t)rows);
        }
    }
}

static void xsmm_logits(xsmm_job *job)
{
    const size_t n = job->nmk[0], m = job->nmk[1], d = job->nmk[2];
    for (size_t i = 0; i < n; i += XSMM_ROWS) {
        const size_t rows = n - i < XSMM_ROWS ? n - i : XSMM_ROWS;
        woi_kernels_get(NULL)->interleave(job->q + i * d, rows, d, d, rows, data.packed + i * d);
    }
    woi_team_for(data.threads, (m + XSMM_BLOCK - 1) / XSMM_BLOCK, xsmm_block, job);
}

/* C (n, m) = op(A) op(B), row-major, k deep; t: transposed. */
static void their_product(const size_t nmk[3], const float *a, const float *b, const bool t[2], float *c)
{
    const int n = (int)nmk[0], m = (int)nmk[1], k = (int)nmk[2], lda = t[0] ? n : k, ldb = t[1] ? k : m;
    if (n == 1 && !t[0] && t[1] && lib.sgemv)
        lib.sgemv(101, 111, m, k, 1, b, k, a, 1, 0, c, 1);
    else if (lib.xsmm_gemm && !t[0] && t[1])
        xsmm_logits(&(xsmm_job){nmk, a, b, c});
    else if (lib.xsmm_gemm) /* by columns: transposed, and in turn */
        lib.xsmm_gemm(t[1] ? "T" : "N", t[0] ? "T" : "N", &m, &n, &k, &(float){1}, b, &ldb, a, &lda, &(float){0}, c,
                      &m);
    else if (lib.sgemm)
        lib.sgemm(101, t[0] ? 112 : 111, t[1] ? 112 : 111, n, m, k, 1, a, lda, b, ldb, 0, c, m);
    else
        lib.dnnl_sgemm(t[0] ? 'T' : 'N', t[1] ? 'T' : 'N', n, m, k, 1, a, lda, b, ldb, 0, c, m);
}

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
    for (size_t at = 0; s->kind == BF16 && at < m; at += CHUNK) peer_matmul_run(data.matmuls[at / CHUNK]);
    if (s->kind == LOGITS) their_product((size_t[]){n, m, d}, data.q, data.w, (bool[]){false, true}, data.out);
    if (s->kind == DW) their_product((size_t[]){m, d, n}, data.z, data.q, (bool[]){true, false}, data.out);
    if (s->kind == DQ) their_product((size_t[]){n, d, m}, data.z, data.w, (bool[]){false, false}, data.out);
}

/* The last number that a rival wrote, beside its sum in double. */
static bool is_right(void)
{
    const shape *s = data.s;
    const size_t n = s->n, m = s->m, d = s->d;
    const float *x = data.q + (n - 1) * d, *y = data.w + (m - 1) * d;
    size_t depth = d, x_step = 1, y_step = 1, written = n * (s->kind == LOGITS ? m : (m - 1) % CHUNK + 1);
    if (s->kind == DW) {
        x = data.z + m - 1;
        y = data.q + d - 1;
        depth = n;
        x_step = m;
        y_step = d;
        written = m * d;
    } else if (s->kind == DQ) {
        x = data.z + (n - 1) * m;
        y = data.w + d - 1;
        depth = m;
        y_step = d;
        written = n * d;
    }
    double sum = 0, sizes = 0;
    for (size_t i = 0; i < depth; i++) {
        const double product = (double)x[i * x_step] * (double)y[i * y_step];
        sum += product;
        sizes += fabs(product);
    }
    const double found = s->kind == INT8 ? data.sums[written - 1] : (double)data.out[written - 1];
    return fabs(found - sum) <= 1e-4 * sizes;
}

static bool can_run(const shape *s, int threads)
{
    if (lib.ours) return threads == 1 || (s->kind != READ && (s->n > 1 || (s->kind != INT8 && s->kind != BF16)));
    if (s->kind == PEAK || s->kind == READ) return false;
    if (s->kind == INT8 || s->kind == BF16) return lib.dnnl_s8 != NULL;
    return !lib.amx && !(lib.xsmm_gemm && s->n == 1);
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
        set_threads(ask->threads);
        prepare(s, ask->threads);
        if (s->kind == BF16 && lib.library && !data.matmuls[(s->m - 1) / CHUNK]) return -1;
        (lib.ours ? run_ours : run_theirs)(); /* to warm up */
        if (!lib.ours && !is_right()) {
            fprintf(stderr, "products: %s: what %s computed is wrong, it is left out\n", s->name, lib.name);
            exit(1);
        }
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
    /* All before any is waited for: each has the pipes of those before it. */
    for (size_t c = 0; c < N_CONTENDERS; c++) {
        close(all[c].ask);
        close(all[c].answer);
    }
    for (size_t c = 0; c < N_CONTENDERS; c++) waitpid(all[c].pid, NULL, 0);
    json_t *report = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:o}", "machine", cpu.model, "features",
                               cpu.features, "compiler", COMPILER, "version", wo_version(), "rounds", o.rounds,
                               "threads", o.threads, "libraries", libraries, "results", results);
    const bool failed = o.json && json_dump_file(report, o.json, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    if (failed) fprintf(stderr, "%s: cannot write %s\n", argv[0], o.json);
    json_decref(report);
    return failed;
}
