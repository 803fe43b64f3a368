/* Where labels stand among all m classes.
 *
 * Exact: a tile of queries goes twice over the layer's blocks. The first time takes the labels' own logits, the second
 * counts the classes above them. Both are the same GEMM, so that a class with the label's very row has its very logit
 * and the lower id goes first; a label's logit from a dot product of its own would differ in the last bits. The first
 * pass leaves out blocks without a label, and no more than (TILE, BLOCK) logits are kept. */
#include "judge/evaluate.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "kernels/gemm.h"
#include "kernels/topk.h"

#include <stdlib.h>
#include <string.h>

enum { TILE = 256, BLOCK = 512, GROUP = 16 }; /* GROUP: tiles between two reports */
enum { MAX_QUERIES = 20000 };                 /* their cost is that of 40,000 exact searches */

static int best_first(const void *a, const void *b)
{
    const woi_ranked *x = a, *y = b;
    return woi_topk_worse(x->logit, x->id, y->logit, y->id) - woi_topk_worse(y->logit, y->id, x->logit, x->id);
}

void woi_rank_begin(woi_ranked *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) labels[i].above = 0;
    if (n > 1) qsort(labels, n, sizeof *labels, best_first);
}

void woi_rank_count(woi_ranked *labels, size_t n, const float *logits, const int32_t *ids, int32_t first,
                    size_t n_classes)
{
    if (n == 0) return;
    const float bar = labels[n - 1].logit;
    for (size_t i = 0; i < n_classes; i++) {
        if (!(logits[i] >= bar)) continue; /* worse than every label: most classes */
        const int32_t id = ids ? ids[i] : first + (int32_t)i;
        size_t low = 0, high = n; /* the first label that is worse */
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (woi_topk_worse(labels[middle].logit, labels[middle].id, logits[i], id))
                high = middle;
            else
                low = middle + 1;
        }
        if (low < n) labels[low].above++;
    }
}

uint64_t woi_rank_sum(const woi_ranked *labels, size_t n)
{
    uint64_t sum = 0, above = 0;
    for (size_t i = 0; i < n; i++) sum += (above += labels[i].above) + 1;
    return sum;
}

/* ---- All m classes ----------------------------------------------------------------------------------------- */

/* The scratch and the sums of one thread. */
typedef struct worker {
    const woi_kernels *kernels;
    float *q;           /* (TILE, d) */
    float *logits;      /* (TILE, BLOCK) */
    float *scratch;     /* woi_gemm's */
    uint8_t *needed;    /* by block: it has a label */
    woi_ranked *labels; /* of a tile: those of query i are labels[starts[i] .. starts[i+1]) */
    int32_t *own;       /* those of one query */
    size_t starts[TILE + 1];
    size_t room;
    uint64_t n_labels, rank_sum;
    wo_status status;
    wo_error err;
} worker;

/* The logits of block b: (n, width). */
static size_t score_block(const woi_dense *layer, const worker *w, size_t n, size_t b)
{
    const size_t d = layer->d, first = b * BLOCK, width = layer->m - first < BLOCK ? layer->m - first : BLOCK;
    const woi_operand q = {w->q, d, WOI_BY_ROWS}, rows = {layer->w + first * d, d, WOI_BY_ROWS};
    const float *biases = layer->b ? layer->b + first : NULL;
    woi_gemm(w->kernels, &(woi_product){n, width, d, q, rows, w->logits, width, false, biases}, w->scratch);
    return width;
}

/* The places first .. first + count of `total`. */
typedef struct tile {
    size_t first, count, total;
} tile;

/* The queries and labels of a tile; how many queries have labels. */
static wo_status gather_tile(const woi_eval *eval, worker *w, const tile *t, size_t *n, wo_error *err)
{
    const size_t d = eval->full->d;
    size_t used = *n = 0;
    memset(w->needed, 0, (eval->full->m + BLOCK - 1) / BLOCK);
    for (size_t i = t->first; i < t->first + t->count; i++) {
        const size_t query =
            eval->picks[woi_rng_place(eval->options->seed, WOI_EVAL_STREAM_RANKS, i, t->total, eval->n)];
        const size_t n_own = woi_labels_of(eval->log->indptr, eval->log->labels, query, w->own);
        if (n_own == 0) continue;
        wo_status status = woi_grow(&w->labels, &w->room, used, used + n_own, sizeof *w->labels, err);
        if (status) return status;
        w->starts[*n] = used;
        for (size_t j = 0; j < n_own; j++) {
            w->labels[used++] = (woi_ranked){.id = w->own[j]};
            w->needed[(size_t)w->own[j] / BLOCK] = 1;
        }
        memcpy(w->q + *n * d, eval->log->queries + query * d, d * sizeof *w->q);
        w->starts[++*n] = used;
    }
    return WO_OK;
}

static wo_status rank_tile(const woi_eval *eval, worker *w, const tile *t, wo_error *err)
{
    const woi_dense *layer = eval->full;
    const size_t n_blocks = (layer->m + BLOCK - 1) / BLOCK;
    size_t n;
    wo_status status = gather_tile(eval, w, t, &n, err);
    if (status || n == 0) return status;
    for (size_t b = 0; b < n_blocks; b++) {
        if (!w->needed[b]) continue;
        const size_t width = score_block(layer, w, n, b);
        for (size_t i = 0; i < n; i++)
            for (size_t j = w->starts[i]; j < w->starts[i + 1]; j++)
                if ((size_t)w->labels[j].id / BLOCK == b)
                    w->labels[j].logit = w->logits[i * width + (size_t)w->labels[j].id % BLOCK];
    }
    for (size_t i = 0; i < n; i++) woi_rank_begin(w->labels + w->starts[i], w->starts[i + 1] - w->starts[i]);
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t width = score_block(layer, w, n, b);
        for (size_t i = 0; i < n; i++)
            woi_rank_count(w->labels + w->starts[i], w->starts[i + 1] - w->starts[i], w->logits + i * width, NULL,
                           (int32_t)(b * BLOCK), width);
    }
    w->n_labels += w->starts[n];
    for (size_t i = 0; i < n; i++)
        w->rank_sum += woi_rank_sum(w->labels + w->starts[i], w->starts[i + 1] - w->starts[i]);
    return WO_OK;
}

static void free_workers(worker *workers, int n)
{
    for (int i = 0; workers && i < n; i++) {
        woi_free(workers[i].q);
        woi_free(workers[i].logits);
        woi_free(workers[i].scratch);
        woi_free(workers[i].needed);
        woi_free(workers[i].labels);
        woi_free(workers[i].own);
    }
    woi_free(workers);
}

static wo_status make_workers(const woi_eval *eval, worker **workers, wo_error *err)
{
    const woi_dense *layer = eval->full;
    const size_t most = woi_most_labels(eval->log->indptr, eval->log->n);
    worker *made = *workers = woi_alloc_zero((size_t)eval->threads, sizeof *made, err);
    for (int i = 0; made && i < eval->threads; i++) {
        if (!(made[i].kernels = woi_kernels_get(err))) return WO_ERR_UNSUPPORTED;
        if (!(made[i].q = woi_alloc(TILE * layer->d, sizeof(float), err)) ||
            !(made[i].logits = woi_alloc(TILE * BLOCK, sizeof(float), err)) ||
            !(made[i].scratch = woi_alloc(WOI_GEMM_SCRATCH, sizeof(float), err)) ||
            !(made[i].needed = woi_alloc((layer->m + BLOCK - 1) / BLOCK, 1, err)) ||
            !(made[i].own = woi_alloc(most, sizeof(int32_t), err)))
            return WO_ERR_MEMORY;
    }
    return made ? WO_OK : WO_ERR_MEMORY;
}

/* Some tiles, from `first_tile` on. */
typedef struct ranking {
    const woi_eval *eval;
    worker *workers;
    size_t total, first_tile;
} ranking;

static void rank_part(void *own, int worker_number, size_t part)
{
    const ranking *r = own;
    worker *w = &r->workers[worker_number];
    const size_t first = (r->first_tile + part) * TILE, left = r->total - first;
    const tile t = {.first = first, .count = left < TILE ? left : TILE, .total = r->total};
    if (!w->status) w->status = rank_tile(r->eval, w, &t, &w->err);
}

wo_status woi_eval_rank(const woi_eval *eval, wo_error *err)
{
    const size_t total = eval->n < MAX_QUERIES ? eval->n : MAX_QUERIES, n_tiles = (total + TILE - 1) / TILE;
    worker *workers = NULL;
    wo_status status = make_workers(eval, &workers, err);
    for (size_t group = 0; !status && group < n_tiles; group += GROUP) {
        const size_t end = group + GROUP < n_tiles ? group + GROUP : n_tiles;
        status = woi_progress(&eval->options->progress, "ranking", group, n_tiles, err);
        if (status) break;
        woi_team_for(eval->threads, end - group, rank_part, &(ranking){eval, workers, total, group});
        for (int i = 0; !status && i < eval->threads; i++)
            if ((status = workers[i].status) && err) *err = workers[i].err;
    }
    uint64_t n_labels = 0, rank_sum = 0;
    for (int i = 0; !status && i < eval->threads; i++) {
        n_labels += workers[i].n_labels;
        rank_sum += workers[i].rank_sum;
    }
    if (n_labels) eval->result->label_rank = (double)rank_sum / (double)n_labels;
    free_workers(workers, eval->threads);
    return status;
}
