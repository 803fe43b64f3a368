/* Exact top-k: tiles of queries, blocks of classes. A block's logits stay in the second-level cache while they are
 * scanned into one heap for each query, so there is never an (n, m) buffer.
 *
 *   queries   tiles of at most 1,024, one after the other
 *   classes   blocks of at most 256; neighbours make at most 64 groups, which the threads share
 *   heaps     one for each query and thread; the first thread's lie in the answer, and take in the others' at the end
 *
 * How queries and classes are cut depends on n, m, d and k alone, so every logit has the same bits whatever the threads
 * are. The k best under a total order are the same however they are found; the sums of lse are added up by group.
 *
 * A few queries are multiplied by dot_f32: sgemm would copy all of W for them. W is then read once for all of them, in
 * chunks that stay in the first-level cache while one query after the other meets them.
 *
 * Scratch: [sums of groups: GROUPS x TILE] then for each thread
 *          [logits: TILE x BLOCK] [biases: BLOCK_FEW] [heaps: scores HEAP_ROOM, ids HEAP_ROOM] [entries in them: TILE]
 */
#include "layer/exact.h"

#include "base/error.h"
#include "base/mem.h"
#include "kernels/topk.h"
#include "layer/blas.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    TILE = 1024,        /* queries: sgemm copies W once for each tile. 256 cost 9% more time than bare sgemm, 512 2% */
    TILE_LARGE_K = 256, /* ... where k is so large that the heaps of a larger one would not fit HEAP_ROOM */
    BLOCK = 256,        /* classes: 1,024 x 256 logits are 1 MiB */
    BLOCK_FEW = 1024,   /* ... for a few queries */
    GROUPS = 64,
    HEAP_ROOM = 128 * TILE,   /* entries of a thread's heaps */
    CHUNK_BYTES = 16384,      /* of W, at a time for a few queries */
    CHUNK_BYTES_FEWER = 8192, /* ... for less than 8: two queries take 516 us each so, 606 with the larger, 820 alone */
    LINE = 64,
    WORK = 1 << 21 /* multiplications that are worth a thread: about 50 us */
};

/* The sum of exp(logit - max) over some classes. */
typedef struct exp_total {
    double sum;
    float max;
} exp_total;

typedef struct thread_memory {
    float logits[TILE * BLOCK];
    float biases[BLOCK_FEW];
    float heap_scores[HEAP_ROOM];
    int32_t heap_ids[HEAP_ROOM];
    uint32_t heap_n[TILE];
} thread_memory;

typedef struct memory {
    exp_total totals[GROUPS][TILE];
    thread_memory threads[];
} memory;

/* One call. */
typedef struct job {
    const woi_kernels *kernels;
    const woi_dense *layer;
    woi_adjust adjust;
    size_t k;
    size_t block, n_blocks, n_groups;
    bool few; /* queries in each tile: dot_f32 */
} job;

/* Some queries of it, with their part of the answer. */
typedef struct tile {
    const float *q;
    size_t n;
    int32_t *ids;
    float *scores, *lse;
} tile;

/* ---- Logits ------------------------------------------------------------------------------------------------ */

/* What is added to the products of a block's classes; NULL: nothing. A forbidden class gets NaN, which no heap takes.
 */
static const float *block_biases(const job *j, size_t first, size_t width, float *biases)
{
    const float *b = j->layer->b ? j->layer->b + first : NULL;
    const float *more = j->adjust.logit_bias ? j->adjust.logit_bias + first : NULL;
    const uint8_t *forbidden = j->adjust.forbidden ? j->adjust.forbidden + first : NULL;
    if (!more && !forbidden) return b;
    for (size_t i = 0; i < width; i++) {
        biases[i] = (b ? b[i] : 0) + (more ? more[i] : 0);
        if (forbidden && forbidden[i]) biases[i] = NAN;
    }
    return biases;
}

/* Many queries. sgemm adds to what is there, so the biases cost a copy in place of the zeros that it would write. */
static void multiply_many(const job *j, const tile *t, size_t first, size_t width, const float *biases, float *logits)
{
    const size_t d = j->layer->d;
    for (size_t i = 0; biases && i < t->n; i++) memcpy(logits + i * width, biases, width * sizeof *logits);
    woi_gemm_nt(t->n, width, d, t->q, d, j->layer->w + first * d, d, biases ? 1 : 0, logits, width);
}

/* Sixteen at a time, which is what it takes for gcc to use vectors at -O2. */
static void add_biases(float *restrict logits, const float *restrict biases, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++) logits[i + j] += biases[i + j];
    for (; i < n; i++) logits[i] += biases[i];
}

/* A few queries: while one meets a chunk, its share of the next chunk is asked for. One query reads on and on, and
 * leaves that to dot_f32. */
static void multiply_few(const job *j, const tile *t, size_t first, size_t width, const float *biases, float *logits)
{
    const size_t d = j->layer->d, chunk_bytes = t->n < 8 ? CHUNK_BYTES_FEWER : CHUNK_BYTES;
    size_t rows = t->n == 1 ? width : chunk_bytes / (sizeof(float) * d) / 8 * 8;
    if (rows < 8) rows = 8;
    for (size_t at = 0; at < width; at += rows) {
        const size_t n_rows = width - at < rows ? width - at : rows;
        const float *chunk = j->layer->w + (first + at) * d;
        const uintptr_t next = (uintptr_t)(chunk + n_rows * d);
        const size_t share = t->n == 1 ? 0 : n_rows * d * sizeof(float) / LINE / t->n + 1;
        for (size_t i = 0; i < t->n; i++) {
            for (size_t line = i * share; line < (i + 1) * share; line++)
                __builtin_prefetch((const void *)(next + line * LINE), 0, 2);
            j->kernels->dot_f32(t->q + i * d, chunk, n_rows, d, d, logits + i * width + at);
        }
    }
    for (size_t i = 0; biases && i < t->n; i++) add_biases(logits + i * width, biases, width);
}

/* ---- Sums of exponentials ---------------------------------------------------------------------------------- */

static void add_total(exp_total *to, exp_total more)
{
    if (more.max > to->max) {
        to->sum *= exp((double)to->max - (double)more.max);
        to->max = more.max;
    } else if (more.max == -INFINITY) {
        return; /* nothing there: -INFINITY - -INFINITY would be NaN */
    } else {
        more.sum *= exp((double)more.max - (double)to->max);
    }
    to->sum += more.sum;
}

static float total_log(const exp_total *total)
{
    if (isinf(total->max)) return total->max;
    return (float)((double)total->max + log(total->sum));
}

/* The logits of one query and block, in which NaN stands for forbidden classes. */
static exp_total row_total(const job *j, size_t first, float *row, size_t width)
{
    for (size_t c = 0; j->adjust.forbidden && c < width; c++)
        if (j->adjust.forbidden[first + c]) row[c] = -INFINITY;
    float max = j->kernels->max_f32(row, width);
    double sum = isinf(max) ? 0 : j->kernels->exp_sum(row, width, max, NULL);
    if (isnan(sum)) { /* a row of W that is not a number: it has no part in sums, as it has none in answers */
        for (size_t c = 0; c < width; c++)
            if (isnan(row[c])) row[c] = -INFINITY;
        max = j->kernels->max_f32(row, width);
        sum = isinf(max) ? 0 : j->kernels->exp_sum(row, width, max, NULL);
    }
    return (exp_total){sum, max};
}

/* ---- Tiles ------------------------------------------------------------------------------------------------- */

/* Offers the classes of a group to the heaps, and sums up their exponentials where `totals` is not NULL. */
static void scan_group(const job *j, const tile *t, size_t group, const uint8_t *finite, woi_topk *heaps,
                       exp_total *totals, thread_memory *own)
{
    const size_t begin = group * j->n_blocks / j->n_groups, end = (group + 1) * j->n_blocks / j->n_groups;
    for (size_t i = 0; totals && i < t->n; i++) totals[i] = (exp_total){0, -INFINITY};
    for (size_t block = begin; block < end; block++) {
        const size_t first = block * j->block;
        const size_t width = j->layer->m - first < j->block ? j->layer->m - first : j->block;
        const float *biases = block_biases(j, first, width, own->biases);
        (j->few ? multiply_few : multiply_many)(j, t, first, width, biases, own->logits);
        for (size_t i = 0; i < t->n; i++) {
            float *row = own->logits + i * width;
            if (!finite[i]) continue;
            if (j->k) j->kernels->topk_scan(row, width, (int32_t)first, &heaps[i]);
            if (totals) add_total(&totals[i], row_total(j, first, row, width));
        }
    }
}

/* The i-th query's answer out of all threads' heaps, the first of which is where the answer goes. */
static void merge_query(const job *j, const tile *t, size_t i, bool finite, int n_threads, memory *shared)
{
    woi_topk best = {j->k, shared->threads[0].heap_n[i], t->scores + i * j->k, t->ids + i * j->k};
    for (int other = 1; other < n_threads; other++) {
        const thread_memory *theirs = &shared->threads[other];
        for (size_t e = i * j->k; e < i * j->k + theirs->heap_n[i]; e++)
            woi_topk_push(&best, theirs->heap_scores[e], theirs->heap_ids[e]);
    }
    woi_topk_finish(&best);
    if (!t->lse) return;
    exp_total total = {0, -INFINITY};
    for (size_t group = 0; group < j->n_groups; group++) add_total(&total, shared->totals[group][i]);
    t->lse[i] = finite ? total_log(&total) : NAN;
}

/* All threads share the classes of a tile. Called by all of them; they meet once, between scanning and merging, and
 * must meet again before the next tile. */
static void answer_together(const job *j, const tile *t, memory *shared)
{
    thread_memory *own = &shared->threads[omp_get_thread_num()];
    const bool first = omp_get_thread_num() == 0;
    woi_topk heaps[TILE];
    uint8_t finite[TILE];
    for (size_t i = 0; i < t->n; i++) {
        heaps[i] = (woi_topk){j->k, 0, (first ? t->scores : own->heap_scores) + i * j->k,
                              (first ? t->ids : own->heap_ids) + i * j->k};
        finite[i] = woi_all_finite(t->q + i * j->layer->d, j->layer->d);
    }
#pragma omp for schedule(dynamic) nowait
    for (size_t group = 0; group < j->n_groups; group++)
        scan_group(j, t, group, finite, heaps, t->lse ? shared->totals[group] : NULL, own);
    for (size_t i = 0; i < t->n; i++) own->heap_n[i] = (uint32_t)heaps[i].n;
#pragma omp barrier
#pragma omp for schedule(static) nowait
    for (size_t i = 0; i < t->n; i++) merge_query(j, t, i, finite[i], omp_get_num_threads(), shared);
}

/* One thread answers a tile of at most TILE_LARGE_K queries, whose heaps are all in the answer. */
static void answer_alone(const job *j, const tile *t, thread_memory *own)
{
    woi_topk heaps[TILE_LARGE_K];
    uint8_t finite[TILE_LARGE_K];
    exp_total totals[TILE_LARGE_K], all[TILE_LARGE_K];
    for (size_t i = 0; i < t->n; i++) {
        heaps[i] = (woi_topk){j->k, 0, t->scores + i * j->k, t->ids + i * j->k};
        finite[i] = woi_all_finite(t->q + i * j->layer->d, j->layer->d);
        all[i] = totals[i] = (exp_total){0, -INFINITY};
    }
    for (size_t group = 0; group < j->n_groups; group++) {
        scan_group(j, t, group, finite, heaps, t->lse ? totals : NULL, own);
        for (size_t i = 0; t->lse && i < t->n; i++) add_total(&all[i], totals[i]);
    }
    for (size_t i = 0; i < t->n; i++) {
        woi_topk_finish(&heaps[i]);
        if (t->lse) t->lse[i] = finite[i] ? total_log(&all[i]) : NAN;
    }
}

/* ---- A call ------------------------------------------------------------------------------------------------ */

size_t woi_exact_scratch(int threads)
{
    return sizeof(memory) + (size_t)(threads < 1 ? 1 : threads) * sizeof(thread_memory);
}

/* Up to how many queries dot_f32 is faster than sgemm, measured on a Zen 4. It holds up to 256 numbers of a query in
 * registers: rows of just 128 or 256 are what it is best at, and longer ones, or those with a rest, less. */
static size_t few_queries(size_t d)
{
    return d == 128 || d == 256 ? 64 : d > 128 && d < 256 ? 40 : 24;
}

/* Blocks of nearly equal width, a multiple of 16, and an even number of them: two threads then have equal work. */
static void cut_classes(job *j)
{
    const size_t widest = j->few ? BLOCK_FEW : BLOCK;
    size_t n_blocks = (j->layer->m + widest - 1) / widest;
    if (n_blocks > 1) n_blocks += n_blocks % 2;
    j->block = n_blocks ? ((j->layer->m + n_blocks - 1) / n_blocks + 15) / 16 * 16 : widest;
    j->n_blocks = (j->layer->m + j->block - 1) / j->block;
    j->n_groups = j->n_blocks < GROUPS ? j->n_blocks : GROUPS;
}

static int useful_threads(const job *j, size_t n, int threads)
{
    const double work = (double)n * (double)j->layer->m * (double)j->layer->d / WORK;
    if (threads < 1) threads = omp_get_max_threads();
    if (n <= 1 || work < 1) return 1;
    return work < threads ? (int)work : threads;
}

static tile tile_at(const job *j, const tile *all, size_t first, size_t rows)
{
    return (tile){all->q + first * j->layer->d, all->n - first < rows ? all->n - first : rows, all->ids + first * j->k,
                  all->scores + first * j->k, all->lse ? all->lse + first : NULL};
}

wo_status woi_exact_topk(const woi_dense *layer, const woi_adjust *adjust, const float *q, size_t n, size_t k,
                         int threads, void *scratch, int32_t *ids, float *scores, float *lse, wo_error *err)
{
    job j = {.kernels = woi_kernels_get(err), .layer = layer, .k = k};
    if (!j.kernels) return WO_ERR_UNSUPPORTED;
    if (layer->m > INT32_MAX || layer->d > INT32_MAX / 4)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "a layer of %zu x %zu is too large", layer->m, layer->d);
    if (n == 0) return WO_OK;
    if (adjust) j.adjust = *adjust;
    const tile all = {q, n, ids, scores, lse};
    const size_t most = k <= HEAP_ROOM / TILE ? TILE : TILE_LARGE_K;
    const size_t n_tiles = (n + most - 1) / most, rows = (n + n_tiles - 1) / n_tiles;
    const bool together = k <= HEAP_ROOM / rows;
    j.few = rows <= few_queries(layer->d);
    cut_classes(&j);
    threads = useful_threads(&j, n, threads);
    memory *shared = scratch ? scratch : woi_alloc(1, woi_exact_scratch(threads), err);
    if (!shared) return WO_ERR_MEMORY;
    const int before = j.few ? 1 : woi_blas_single();
    if (threads == 1 && rows <= TILE_LARGE_K) { /* without OpenMP, which costs half a microsecond */
        for (size_t first = 0; first < n; first += rows) {
            const tile t = tile_at(&j, &all, first, rows);
            answer_alone(&j, &t, shared->threads);
        }
    } else {
#pragma omp parallel num_threads(threads) if (threads > 1)
        for (size_t first = 0, turn = 0; first < n; first += rows, turn++) {
            const tile t = tile_at(&j, &all, first, rows);
            if (together) {
                answer_together(&j, &t, shared);
                if (first + rows < n) {
#pragma omp barrier
                }
            } else if (turn % (size_t)omp_get_num_threads() == (size_t)omp_get_thread_num()) {
                answer_alone(&j, &t, &shared->threads[omp_get_thread_num()]);
            }
        }
    }
    if (!j.few) woi_blas_restore(before);
    if (!scratch) woi_free(shared);
    return WO_OK;
}
