/* Exact top-k: tiles of queries, blocks of classes. The logits of a few queries with a block are offered to the
 * queries' heaps while they are in the first-level cache, so there is never an (n, m) buffer.
 *
 *   queries   tiles of at most 1,024, one after the other; packed once, in panels of the kernel's tile_rows
 *   classes   blocks, packed by whoever takes them, which stay in the second-level cache while one panel of queries
 *             after the other meets them; neighbours make at most 64 groups, which the threads share
 *   heaps     one for each query and thread; the first thread's lie in the answer, and take in the others' at the end
 *
 * A logit is one sum in rising order of the dimensions, from the bias on, so it has the same bits however queries and
 * classes are cut. The k best under a total order are the same however they are found; the sums of lse are added up by
 * group, and groups depend on m and d alone.
 *
 * A few queries are multiplied by dot_f32, for which nothing is packed: how many they are depends on n alone. W is read
 * once for all of them, in chunks that stay in the first-level cache while one query after the other meets them.
 *
 * Scratch: [sums of groups, finite queries] [memory of each thread] [packed queries] [packed classes of each thread]
 */
#include "layer/exact.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/team.h"
#include "kernels/topk.h"

#include <math.h>
#include <string.h>

enum {
    TILE = 1024,          /* queries: W is packed once for each tile */
    TILE_LARGE_K = 256,   /* ... where k is so large that the heaps of a tile would not fit HEAP_ROOM */
    BLOCK = 480,          /* classes at most */
    BLOCK_BYTES = 163840, /* of packed classes, where that is more than one panel */
    BLOCK_FEW = 1024,     /* classes for a few queries */
    MOST_PICKED = 64,     /* answers: by pick out of the first block */
    MOST_FEW = 12,        /* queries that are a few, at most */
    GROUPS = 64,
    HEAP_ROOM = 128 * TILE,   /* entries of a thread's heaps */
    CHUNK_BYTES = 16384,      /* of W, at a time for a few queries */
    CHUNK_BYTES_FEWER = 8192, /* ... for less than 8: two queries take 516 us each so, 606 with the larger, 820 alone */
    LINE = 64,
    MERGED = 64,   /* queries that a thread merges at a time */
    WORK = 1 << 21 /* multiplications that are worth a thread: about 50 us */
};

/* The sum of exp(logit - max) over some classes. */
typedef struct exp_total {
    double sum;
    float max;
} exp_total;

typedef struct thread_memory {
    float logits[MOST_FEW * BLOCK_FEW]; /* (queries of a panel, classes of a block), or those of a few queries */
    float biases[BLOCK_FEW];
    float heap_scores[HEAP_ROOM];
    int32_t heap_ids[HEAP_ROOM];
    woi_topk heaps[TILE];
} thread_memory;

typedef struct memory {
    exp_total totals[GROUPS][TILE];
    uint8_t finite[TILE];
    thread_memory threads[];
} memory;

/* One call. */
typedef struct job {
    const woi_kernels *kernels;
    const woi_dense *layer;
    woi_adjust adjust;
    size_t k;
    size_t block, n_blocks, n_groups;
    bool few; /* queries: dot_f32 */
    int threads;
    memory *shared;
    float *queries; /* packed: room for a tile, or one of TILE_LARGE_K for each thread */
    float *classes; /* packed: classes_room(d) for each thread */
} job;

/* Some queries of it, with their part of the answer. */
typedef struct tile {
    const float *q;
    const float *packed; /* the same in panels, unless they are a few */
    size_t n;
    int32_t *ids;
    float *scores;
    woi_log_sum *lse;
} tile;

/* What one thread scans a tile with. */
typedef struct scan {
    const job *j;
    const tile *t;
    const uint8_t *finite;
    thread_memory *own; /* its heaps are the tile's */
    float *classes;
} scan;

/* Some classes, one after the other. */
typedef struct block {
    size_t first, width;
    const float *biases; /* or NULL */
} block;

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
static void multiply_few(const job *j, const tile *t, const block *b, float *logits)
{
    const size_t d = j->layer->d, first = b->first, width = b->width,
                 chunk_bytes = t->n < 8 ? CHUNK_BYTES_FEWER : CHUNK_BYTES;
    size_t rows = t->n == 1 ? width : chunk_bytes / (sizeof(float) * d) / 8 * 8;
    if (rows < 8) rows = 8;
    for (size_t at = 0; at < width; at += rows) {
        const size_t n_rows = width - at < rows ? width - at : rows;
        const float *chunk = j->layer->w + (first + at) * d;
        const uintptr_t next = (uintptr_t)(chunk + n_rows * d);
        const size_t share = t->n <= 1 ? 0 : n_rows * d * sizeof(float) / LINE / t->n + 1;
        for (size_t i = 0; i < t->n; i++) {
            for (size_t line = i * share; line < (i + 1) * share; line++)
                __builtin_prefetch((const void *)(next + line * LINE), 0, 2);
            j->kernels->dot_f32(t->q + i * d, chunk, n_rows, d, d, logits + i * width + at);
        }
    }
    for (size_t i = 0; b->biases && i < t->n; i++) add_biases(logits + i * width, b->biases, width);
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

static woi_log_sum total_log(const exp_total *total)
{
    return (woi_log_sum){(double)total->max, isinf(total->max) ? 0 : log(total->sum)};
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

/* ---- Blocks of classes ------------------------------------------------------------------------------------- */

/* The first logits of a query, into an empty heap: nearly all of them would be pushed into it, and most of them out of
 * it again, which takes as long as a tenth of the whole product. Sorted with the worst first, the best are a heap. */
static void begin_heap(const scan *s, woi_topk *heap, const block *b, float *row)
{
    float best[MOST_PICKED];
    int32_t ids[MOST_PICKED];
    heap->n = s->j->kernels->pick(row, NULL, b->width, heap->k, best, ids);
    for (size_t e = 0; e < heap->n; e++) woi_topk_put(heap, heap->n - 1 - e, best[e], ids[e] + (int32_t)b->first);
}

/* The logits of query i with a block: to its heap, and their exponentials to its total, unless `total` is NULL. */
static void take_row(const scan *s, size_t i, const block *b, float *row, exp_total *total)
{
    const job *j = s->j;
    woi_topk *heap = &s->own->heaps[i];
    if (!s->finite[i]) return;
    if (j->k && j->k <= MOST_PICKED && !heap->n && !total)
        begin_heap(s, heap, b, row);
    else if (j->k)
        j->kernels->topk_scan(row, b->width, (int32_t)b->first, heap);
    if (total) add_total(total, row_total(j, b->first, row, b->width));
}

static void scan_few(const scan *s, const block *b, exp_total *totals)
{
    float *logits = s->own->logits;
    multiply_few(s->j, s->t, b, logits);
    for (size_t i = 0; i < s->t->n; i++) take_row(s, i, b, logits + i * b->width, totals ? totals + i : NULL);
}

/* While a panel of queries meets the block, its share of the next block's classes is asked for. */
static void scan_many(const scan *s, const block *b, exp_total *totals)
{
    static const float zeros[WOI_MOST_TILE_COLUMNS];
    const job *j = s->j;
    const size_t d = j->layer->d, rows = j->kernels->tile_rows, columns = j->kernels->tile_columns;
    const float *w = j->layer->w + b->first * d;
    for (size_t c = 0; c < b->width; c += columns) {
        const size_t n = b->width - c < columns ? b->width - c : columns;
        j->kernels->interleave(w + c * d, n, d, d, columns, s->classes + c * d);
    }
    uintptr_t next = (uintptr_t)(w + b->width * d);
    const size_t share = b->width * d * sizeof(float) / LINE / ((s->t->n + rows - 1) / rows) + 1;
    woi_tile product = {.a_step = rows, .k = d, .stride = b->width};
    for (size_t i = 0; i < s->t->n; i += rows) {
        for (size_t line = 0; line < share; line++, next += LINE) __builtin_prefetch((const void *)next, 0, 2);
        product.a = s->t->packed + i * d;
        product.rows = s->t->n - i < rows ? s->t->n - i : rows;
        for (size_t c = 0; c < b->width; c += columns) {
            product.b = s->classes + c * d;
            product.columns = b->width - c < columns ? b->width - c : columns;
            product.start = b->biases ? b->biases + c : zeros;
            product.c = s->own->logits + c;
            j->kernels->tile(&product);
        }
        for (size_t r = 0; r < product.rows; r++)
            take_row(s, i + r, b, s->own->logits + r * b->width, totals ? totals + i + r : NULL);
    }
}

/* Offers the classes of a group to the heaps, and sums up their exponentials where `totals` is not NULL. */
static void scan_group(const scan *s, size_t group, exp_total *totals)
{
    const job *j = s->j;
    const size_t begin = group * j->n_blocks / j->n_groups, end = (group + 1) * j->n_blocks / j->n_groups;
    for (size_t i = 0; totals && i < s->t->n; i++) totals[i] = (exp_total){0, -INFINITY};
    for (size_t at = begin; at < end; at++) {
        block b = {.first = at * j->block, .width = j->block};
        if (j->layer->m - b.first < b.width) b.width = j->layer->m - b.first;
        b.biases = block_biases(j, b.first, b.width, s->own->biases);
        (j->few ? scan_few : scan_many)(s, &b, totals);
    }
}

/* ---- Tiles of queries -------------------------------------------------------------------------------------- */

static size_t packed_rows(size_t n)
{
    return n + WOI_MOST_TILE_ROWS;
}

/* Floats for a block of packed classes. */
static size_t classes_room(size_t d)
{
    const size_t panel = WOI_MOST_TILE_COLUMNS * d, many = BLOCK_BYTES / sizeof(float);
    return (panel > many ? panel : many) / 16 * 16 + 16;
}

/* Which queries are finite, and all of them in panels. */
static void prepare_queries(const job *j, const tile *t, uint8_t *finite, float *packed)
{
    const size_t d = j->layer->d, rows = j->kernels->tile_rows;
    for (size_t i = 0; i < t->n; i++) finite[i] = woi_all_finite(t->q + i * d, d);
    for (size_t i = 0; !j->few && i < t->n; i += rows)
        j->kernels->interleave(t->q + i * d, t->n - i < rows ? t->n - i : rows, d, d, rows, packed + i * d);
}

static void begin_heaps(const job *j, const tile *t, thread_memory *own, bool in_answer)
{
    for (size_t i = 0; i < t->n; i++)
        own->heaps[i] = (woi_topk){j->k, 0, (in_answer ? t->scores : own->heap_scores) + i * j->k,
                                   (in_answer ? t->ids : own->heap_ids) + i * j->k};
}

/* What the threads that share a tile know. */
typedef struct shared_tile {
    const job *j;
    const tile *t;
} shared_tile;

static void scan_part(void *ctx, int worker, size_t group)
{
    const shared_tile *x = ctx;
    memory *shared = x->j->shared;
    const scan s = {x->j, x->t, shared->finite, &shared->threads[worker],
                    x->j->classes + (size_t)worker * classes_room(x->j->layer->d)};
    scan_group(&s, group, x->t->lse ? shared->totals[group] : NULL);
}

/* The i-th query's answer out of all threads' heaps, the first of which is where the answer goes. */
static void merge_query(const job *j, const tile *t, size_t i)
{
    woi_topk *best = &j->shared->threads[0].heaps[i];
    for (int other = 1; other < j->threads; other++) {
        const woi_topk *theirs = &j->shared->threads[other].heaps[i];
        for (size_t e = 0; e < theirs->n; e++) woi_topk_push(best, theirs->scores[e], theirs->ids[e]);
    }
    woi_topk_finish(best);
    if (!t->lse) return;
    exp_total total = {0, -INFINITY};
    for (size_t group = 0; group < j->n_groups; group++) add_total(&total, j->shared->totals[group][i]);
    t->lse[i] = j->shared->finite[i] ? total_log(&total) : (woi_log_sum){NAN, NAN};
}

static void merge_part(void *ctx, int worker, size_t part)
{
    const shared_tile *x = ctx;
    (void)worker;
    for (size_t i = part * MERGED; i < x->t->n && i < (part + 1) * MERGED; i++) merge_query(x->j, x->t, i);
}

/* All threads share the classes of a tile. */
static void answer_together(const job *j, tile *t)
{
    shared_tile x = {j, t};
    prepare_queries(j, t, j->shared->finite, j->queries);
    t->packed = j->queries;
    for (int thread = 0; thread < j->threads; thread++) begin_heaps(j, t, &j->shared->threads[thread], thread == 0);
    woi_team_for(j->threads, j->n_groups, scan_part, &x);
    woi_team_for(j->threads, (t->n + MERGED - 1) / MERGED, merge_part, &x);
}

/* One thread answers a tile of at most TILE_LARGE_K queries, whose heaps are all in the answer. */
static void answer_alone(const job *j, tile *t, int worker)
{
    const size_t d = j->layer->d;
    float *packed = j->queries + (size_t)worker * packed_rows(TILE_LARGE_K) * d;
    uint8_t finite[TILE_LARGE_K];
    exp_total totals[TILE_LARGE_K], all[TILE_LARGE_K];
    const scan s = {j, t, finite, &j->shared->threads[worker], j->classes + (size_t)worker * classes_room(d)};
    prepare_queries(j, t, finite, packed);
    t->packed = packed;
    begin_heaps(j, t, s.own, true);
    const size_t n = t->n;
    exp_total *const sums = t->lse ? totals : NULL;
    for (size_t i = 0; i < n; i++) all[i] = totals[i] = (exp_total){0, -INFINITY};
    for (size_t group = 0; group < j->n_groups; group++) {
        scan_group(&s, group, sums);
        for (size_t i = 0; sums && i < n; i++) add_total(&all[i], sums[i]);
    }
    for (size_t i = 0; i < n; i++) {
        woi_topk_finish(&s.own->heaps[i]);
        if (sums) t->lse[i] = finite[i] ? total_log(&all[i]) : (woi_log_sum){NAN, NAN};
    }
}

/* ---- A call ------------------------------------------------------------------------------------------------ */

static size_t queries_room(size_t d, int threads)
{
    const size_t alone = (size_t)threads * packed_rows(TILE_LARGE_K), together = packed_rows(TILE);
    return (alone > together ? alone : together) * d / 16 * 16 + 16;
}

size_t woi_exact_scratch(size_t d, int threads)
{
    if (threads < 1) threads = 1;
    return sizeof(memory) + (size_t)threads * sizeof(thread_memory) + queries_room(d, threads) * sizeof(float) +
           (size_t)threads * classes_room(d) * sizeof(float);
}

/* Blocks of nearly equal width, a whole number of panels, and an even number of them: two threads then have equal work.
 */
static void cut_classes(job *j)
{
    const size_t columns = j->few ? 16 : j->kernels->tile_columns, m = j->layer->m;
    size_t widest = j->few ? BLOCK_FEW : BLOCK_BYTES / sizeof(float) / (j->layer->d + 1) / columns * columns;
    if (!j->few && widest > BLOCK) widest = BLOCK / columns * columns;
    if (widest < columns) widest = columns;
    size_t n_blocks = (m + widest - 1) / widest;
    if (n_blocks > 1) n_blocks += n_blocks % 2;
    j->block = n_blocks ? ((m + n_blocks - 1) / n_blocks + columns - 1) / columns * columns : widest;
    j->n_blocks = (m + j->block - 1) / j->block;
    j->n_groups = j->n_blocks < GROUPS ? j->n_blocks : GROUPS;
}

static int useful_threads(const woi_dense *layer, size_t n, int threads)
{
    const double work = (double)n * (double)layer->m * (double)layer->d / WORK;
    if (n <= 1 || work < 1) return 1;
    threads = woi_team_threads(threads);
    return work < threads ? (int)work : threads;
}

/* The tiles of a call: `rows` queries each. */
typedef struct all_tiles {
    const job *j;
    const woi_exact_call *call;
    size_t rows;
} all_tiles;

static tile tile_at(const all_tiles *all, size_t number)
{
    const woi_exact_call *c = all->call;
    const size_t first = number * all->rows, left = c->n - first;
    return (tile){.q = c->q + first * c->layer->d,
                  .n = left < all->rows ? left : all->rows,
                  .ids = c->ids + first * c->k,
                  .scores = c->scores + first * c->k,
                  .lse = c->lse ? c->lse + first : NULL};
}

static void alone_part(void *ctx, int worker, size_t number)
{
    const all_tiles *all = ctx;
    tile t = tile_at(all, number);
    answer_alone(all->j, &t, worker);
}

static void answer(const job *j, const woi_exact_call *call)
{
    const size_t most = call->k <= HEAP_ROOM / TILE ? TILE : TILE_LARGE_K, n_tiles = (call->n + most - 1) / most;
    all_tiles all = {j, call, (call->n + n_tiles - 1) / n_tiles};
    if (call->k > HEAP_ROOM / all.rows) { /* the heaps of other threads than the first would not fit */
        woi_team_for(j->threads, n_tiles, alone_part, &all);
        return;
    }
    for (size_t number = 0; number < n_tiles; number++) {
        tile t = tile_at(&all, number);
        answer_together(j, &t);
    }
}

wo_status woi_exact_topk(const woi_exact_call *call, wo_error *err)
{
    const woi_dense *layer = call->layer;
    job j = {.kernels = woi_kernels_get(err), .layer = layer, .adjust = call->adjust, .k = call->k};
    if (!j.kernels) return WO_ERR_UNSUPPORTED;
    if (layer->m > INT32_MAX || layer->d > INT32_MAX / 4)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "a layer of %zu x %zu is too large", layer->m, layer->d);
    if (call->n == 0) return WO_OK;
    j.few = call->n <= MOST_FEW;
    cut_classes(&j);
    j.threads = useful_threads(layer, call->n, call->threads);
    j.shared = call->scratch ? call->scratch : woi_alloc(1, woi_exact_scratch(layer->d, j.threads), err);
    if (!j.shared) return WO_ERR_MEMORY;
    j.queries = (float *)(void *)&j.shared->threads[j.threads];
    j.classes = j.queries + queries_room(layer->d, j.threads);
    answer(&j, call);
    if (!call->scratch) woi_free(j.shared);
    return WO_OK;
}
