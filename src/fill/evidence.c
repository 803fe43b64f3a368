/* Cells by evidence: a cell holds the classes that the training queries in it needed.
 *
 *   class j is in cell c  when  sum over the queries i of c of weight(i, j)  >=  lambda * (number of those queries)
 *
 * A cell with fewer than `thin` queries borrows from its neighbours: those that a router lists, or, for hash tables,
 * the cells at Hamming distance 1, then 2, and so on; so every cell is filled, those that no training query ever opened
 * included. Rings grow fast (1,307,504 cells of 2^24 are 9 away), so a ring that is larger than the number of cells
 * with queries is not walked: those cells are. */
#include "base/error.h"
#include "base/ids.h"
#include "base/progress.h"
#include "base/team.h"
#include "fill/cells.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, PARTS = 16 }; /* cells that one thread fills at a time; reports of progress */

/* A thread's memory. */
typedef struct worker {
    float *evidence; /* (m), zeros between cells */
    int32_t *touched;
    woi_need *order;
    size_t order_room;
    wo_status status; /* what it failed of, with err */
    wo_error err;
} worker;

/* What a block of cells came to. */
typedef struct block {
    int32_t *ids;
    uint16_t *shares; /* where they are kept */
    size_t n, room, shares_room;
} block;

typedef struct task {
    const woi_sparse *needs;
    const woi_evidence_options *options;
    const uint32_t *starts; /* cell c has members[starts[c] .. starts[c+1]): L * query + table, or rank */
    const uint32_t *members;
    const uint32_t *opened; /* the cells of table l that have queries: opened[opened_starts[l] .. opened_starts[l+1]) */
    const uint32_t *opened_starts;
    uint32_t *sizes; /* classes of each cell */
    size_t n_cells;
    worker *workers;
    block *blocks;
    size_t first_block; /* of this part */
} task;

/* Returns how many queries that were, in parts where they are filed in parts. */
static double add_cell(const task *t, size_t cell, worker *w, size_t *n_touched)
{
    const uint32_t L = t->options->L;
    const float *parts = t->options->parts;
    double n = 0;
    for (uint32_t at = t->starts[cell]; at < t->starts[cell + 1]; at++) {
        const uint32_t query = t->members[at] / L;
        const float part = parts ? parts[t->members[at] % L] : 1;
        n += t->needs->times ? (double)part * (double)t->needs->times[query] : (double)part;
        for (int64_t need = t->needs->indptr[query]; need < t->needs->indptr[query + 1]; need++) {
            const int32_t id = t->needs->ids[need];
            if (w->evidence[id] == 0) w->touched[(*n_touched)++] = id;
            w->evidence[id] += part * t->needs->weights[need];
        }
    }
    return n;
}

/* The cells at Hamming distance `distance`: all codes with so many bits (Gosper's next one). */
static double add_ring(const task *t, size_t base, uint32_t code, uint32_t distance, worker *w, size_t *n_touched)
{
    double n = 0;
    const uint64_t end = (uint64_t)1 << t->options->K;
    for (uint64_t flips = ((uint64_t)1 << distance) - 1; flips < end;) {
        n += add_cell(t, base + (code ^ (uint32_t)flips), w, n_touched);
        const uint64_t low = flips & -flips, ripple = flips + low;
        flips = ripple | ((flips ^ ripple) >> 2) / low;
    }
    return n;
}

/* The queries of the nearest cells, until there are `thin`; returns how many there are. */
static double add_neighbours(const task *t, size_t cell, double n, worker *w, size_t *n_touched)
{
    const uint32_t K = t->options->K, thin = t->options->thin;
    if (!K) {
        const uint32_t *near = t->options->near + cell * t->options->n_near;
        for (uint32_t i = 0; n < thin && i < t->options->n_near && near[i] != UINT32_MAX; i++)
            n += add_cell(t, near[i], w, n_touched);
        return n;
    }
    const uint32_t *starts = t->opened_starts + (cell >> K);
    const size_t base = cell >> K << K;
    uint32_t distance = 1;
    for (uint64_t ring = K; n < thin && distance <= K && ring <= starts[1] - starts[0]; distance++) {
        n += add_ring(t, base, (uint32_t)(cell - base), distance, w, n_touched);
        ring = ring * (K - distance) / (distance + 1); /* K over distance + 1 */
    }
    if (n >= thin || distance > K) return n;
    /* How many queries lie at each distance tells how far to go; then all of them together. */
    size_t at[33] = {0};
    for (uint32_t i = starts[0]; i < starts[1]; i++) {
        const uint32_t other = t->opened[i];
        at[__builtin_popcount(other ^ (uint32_t)cell)] += t->starts[other + 1] - t->starts[other];
    }
    uint32_t last = distance;
    for (double reached = n + (double)at[last]; reached < thin && last < K; reached += (double)at[last]) last++;
    for (uint32_t i = starts[0]; i < starts[1]; i++) {
        const uint32_t away = (uint32_t)__builtin_popcount(t->opened[i] ^ (uint32_t)cell);
        if (away >= distance && away <= last) n += add_cell(t, t->opened[i], w, n_touched);
    }
    return n;
}

/* Whether x is needed more than y; of equals the lower id is. */
static bool before(woi_need x, woi_need y)
{
    return x.evidence != y.evidence ? x.evidence > y.evidence : x.id < y.id;
}

/* The most needed `most` of n come first, in no order: Hoare's selection. No two are equal, so that which they are does
 * not depend on how it goes. */
static void select_most(woi_need *needs, size_t n, size_t most)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)n - 1;
    const ptrdiff_t last = (ptrdiff_t)most - 1; /* the place of the least needed of them */
    while (low < high) {
        const woi_need a = needs[low], b = needs[low + (high - low) / 2], c = needs[high];
        const woi_need middle = before(a, b) ? (before(b, c)   ? b
                                                : before(a, c) ? c
                                                               : a)
                                             : (before(a, c)   ? a
                                                : before(b, c) ? c
                                                               : b);
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (before(needs[i], middle)) i++;
            while (before(middle, needs[j])) j--;
            if (i > j) break;
            const woi_need other = needs[i];
            needs[i++] = needs[j];
            needs[j--] = other;
        }
        if (last <= j)
            high = j;
        else if (last >= i)
            low = i;
        else
            return;
    }
}

size_t woi_evidence_choose(woi_need *needs, size_t n, double n_queries, const woi_evidence_options *rule, int32_t *ids)
{
    const double bar = rule->lambda * n_queries;
    size_t taken = 0;
    for (size_t i = 0; i < n; i++)
        if (needs[i].evidence >= bar) ids[taken++] = needs[i].id;
    if (taken < rule->floor || (rule->cap && taken > rule->cap)) {
        const size_t most = taken < rule->floor ? rule->floor : rule->cap;
        taken = n < most ? n : most;
        select_most(needs, n, taken);
        for (size_t i = 0; i < taken; i++) ids[i] = needs[i].id;
    }
    woi_ids_sort(ids, taken);
    return taken;
}

/* The evidence of the same queries, by what shares are counted by. */
static void count_again(const task *t, size_t cell, worker *w, size_t *n_touched)
{
    task other = *t;
    other.needs = t->options->shares_of;
    for (size_t i = 0; i < *n_touched; i++) w->evidence[w->touched[i]] = 0;
    *n_touched = 0;
    const double n = add_cell(&other, cell, w, n_touched);
    if (n < t->options->thin) add_neighbours(&other, cell, n, w, n_touched);
}

static wo_status fill_cell(const task *t, size_t cell, worker *w, block *out, wo_error *err)
{
    const woi_evidence_options *o = t->options;
    size_t n_touched = 0;
    double n = add_cell(t, cell, w, &n_touched);
    if (n < o->thin) n = add_neighbours(t, cell, n, w, &n_touched);
    t->sizes[cell] = 0;
    if (!n_touched) return WO_OK;
    wo_status status = woi_grow(&w->order, &w->order_room, 0, n_touched, sizeof *w->order, err);
    if (!status) status = woi_grow(&out->ids, &out->room, out->n, out->n + n_touched, sizeof *out->ids, err);
    if (!status && o->shares)
        status = woi_grow(&out->shares, &out->shares_room, out->n, out->n + n_touched, sizeof *out->shares, err);
    if (!status) {
        for (size_t i = 0; i < n_touched; i++) w->order[i] = (woi_need){w->evidence[w->touched[i]], w->touched[i]};
        const size_t taken = woi_evidence_choose(w->order, n_touched, n, o, out->ids + out->n);
        if (o->shares && o->shares_of && o->shares_of != t->needs) count_again(t, cell, w, &n_touched);
        for (size_t i = out->n; o->shares && i < out->n + taken; i++)
            out->shares[i] = woi_f32_to_bf16((float)((double)w->evidence[out->ids[i]] / n));
        out->n += taken;
        t->sizes[cell] = (uint32_t)taken;
    }
    for (size_t i = 0; i < n_touched; i++) w->evidence[w->touched[i]] = 0;
    return status;
}

static void fill_block(void *own, int worker_number, size_t part)
{
    const task *t = own;
    const size_t b = t->first_block + part;
    worker *w = &t->workers[worker_number];
    for (size_t c = b * BLOCK; !w->status && c < t->n_cells && c < (b + 1) * BLOCK; c++)
        w->status = fill_cell(t, c, w, &t->blocks[b], &w->err);
}

/* Queries by cell: a counting sort over all tables. */
static wo_status group(const task *t, const uint32_t *of, uint32_t **starts, uint32_t **members, wo_error *err)
{
    const size_t n = t->needs->n, n_cells = t->n_cells;
    const uint32_t L = t->options->L;
    *starts = woi_alloc_zero(n_cells + 1, sizeof **starts, err);
    *members = woi_alloc(n * L, sizeof **members, err);
    if (!*starts || !*members) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n * L; i++)
        if (of[i] != UINT32_MAX) (*starts)[of[i]]++;
    for (size_t c = 1; c <= n_cells; c++) (*starts)[c] += (*starts)[c - 1];
    for (size_t i = n; i-- > 0;)
        for (uint32_t l = 0; l < L; l++)
            if (of[i * L + l] != UINT32_MAX) (*members)[--(*starts)[of[i * L + l]]] = (uint32_t)(i * L + l);
    return WO_OK;
}

/* The cells that have queries, by table. */
static wo_status list_opened(const uint32_t *starts, uint32_t K, uint32_t L, uint32_t **opened,
                             uint32_t **opened_starts, wo_error *err)
{
    const size_t n_cells = (size_t)L << K;
    size_t n = 0;
    for (size_t c = 0; c < n_cells; c++) n += starts[c + 1] > starts[c];
    *opened = woi_alloc(n, sizeof **opened, err);
    *opened_starts = woi_alloc(L + 1, sizeof **opened_starts, err);
    if (!*opened || !*opened_starts) return WO_ERR_MEMORY;
    n = 0;
    for (size_t c = 0; c < n_cells; c++) {
        if (c % ((size_t)1 << K) == 0) (*opened_starts)[c >> K] = (uint32_t)n;
        if (starts[c + 1] > starts[c]) (*opened)[n++] = (uint32_t)c;
    }
    (*opened_starts)[L] = (uint32_t)n;
    return WO_OK;
}

/* Of those filed in several cells, the ones whose own it is. */
static uint32_t own_queries(const task *t, size_t cell)
{
    const float *times = t->needs->times;
    double n = 0;
    for (uint32_t at = t->starts[cell]; at < t->starts[cell + 1]; at++)
        if (!t->options->parts || t->members[at] % t->options->L == 0)
            n += times ? (double)times[t->members[at] / t->options->L] : 1;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static wo_status join(const task *t, woi_cells *cells, wo_error *err)
{
    const size_t n_cells = t->n_cells;
    uint64_t total = 0;
    for (size_t c = 0; c < n_cells; c++) total += t->sizes[c];
    if (total > UINT32_MAX)
        return woi_fail_option(
            err, WO_ERR_UNSUPPORTED, "lambda",
            "the cells would hold %llu classes, at most %u are possible: raise lambda or lower K or L",
            (unsigned long long)total, UINT32_MAX);
    *cells = (woi_cells){.n = n_cells};
    cells->offsets = woi_alloc(n_cells + 1, sizeof *cells->offsets, err);
    cells->ids = woi_alloc(total, sizeof *cells->ids, err);
    cells->queries = woi_alloc(n_cells, sizeof *cells->queries, err);
    if (t->options->shares) cells->shares = woi_alloc(total, sizeof *cells->shares, err);
    if (!cells->offsets || !cells->ids || !cells->queries || (t->options->shares && !cells->shares)) {
        woi_cells_free(cells);
        return WO_ERR_MEMORY;
    }
    cells->offsets[0] = 0;
    for (size_t c = 0; c < n_cells; c++) {
        cells->offsets[c + 1] = cells->offsets[c] + t->sizes[c];
        cells->queries[c] = own_queries(t, c);
    }
    for (size_t b = 0; b * BLOCK < n_cells; b++)
        if (t->blocks[b].n) {
            const uint32_t to = cells->offsets[b * BLOCK];
            memcpy(cells->ids + to, t->blocks[b].ids, t->blocks[b].n * sizeof *cells->ids);
            if (cells->shares) memcpy(cells->shares + to, t->blocks[b].shares, t->blocks[b].n * sizeof *cells->shares);
        }
    return WO_OK;
}

wo_status woi_fill_evidence(const woi_sparse *needs, const uint32_t *of, const woi_evidence_options *options, size_t m,
                            woi_cells *cells, wo_error *err)
{
    const size_t n_cells = options->K ? (size_t)options->L << options->K : options->n_cells;
    const size_t n_blocks = (n_cells + BLOCK - 1) / BLOCK;
    const int threads = woi_team_threads(options->threads);
    if (needs->n > UINT32_MAX / options->L)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "%zu queries in %u tables are too many", needs->n,
                        (unsigned)options->L);
    *cells = (woi_cells){0};
    uint32_t *starts = NULL, *members = NULL, *opened = NULL, *opened_starts = NULL;
    task t = {.needs = needs, .options = options, .n_cells = n_cells};
    worker *workers = t.workers = woi_alloc_zero((size_t)threads, sizeof *workers, err);
    block *blocks = t.blocks = woi_alloc_zero(n_blocks, sizeof *blocks, err);
    t.sizes = woi_alloc(n_cells, sizeof *t.sizes, err);
    wo_status status = workers && blocks && t.sizes ? WO_OK : WO_ERR_MEMORY;
    if (!status) status = group(&t, of, &starts, &members, err);
    if (!status && options->K) status = list_opened(starts, options->K, options->L, &opened, &opened_starts, err);
    t.starts = starts;
    t.members = members;
    t.opened = opened;
    t.opened_starts = opened_starts;
    for (int i = 0; !status && i < threads; i++) {
        workers[i].evidence = woi_alloc_zero(m, sizeof *workers[i].evidence, err);
        workers[i].touched = woi_alloc(m, sizeof *workers[i].touched, err);
        if (!workers[i].evidence || !workers[i].touched) status = WO_ERR_MEMORY;
    }
    /* In parts, so that progress can be told from this thread. */
    for (size_t part = 0; !status && part < PARTS; part++) {
        if ((status = woi_progress(options->progress, "filling cells", part, PARTS, err))) break;
        t.first_block = woi_part_start(part, PARTS, n_blocks);
        woi_team_for(threads, woi_part_start(part + 1, PARTS, n_blocks) - t.first_block, fill_block, &t);
        for (int i = 0; !status && i < threads; i++)
            if ((status = workers[i].status) && err) *err = workers[i].err;
    }
    if (!status) status = join(&t, cells, err);
    for (int i = 0; workers && i < threads; i++) {
        woi_free(workers[i].evidence);
        woi_free(workers[i].touched);
        woi_free(workers[i].order);
    }
    for (size_t b = 0; blocks && b < n_blocks; b++) {
        woi_free(blocks[b].ids);
        woi_free(blocks[b].shares);
    }
    woi_free(workers);
    woi_free(blocks);
    woi_free(t.sizes);
    woi_free(starts);
    woi_free(members);
    woi_free(opened);
    woi_free(opened_starts);
    return status;
}
