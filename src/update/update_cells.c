/* The cells of an index that is updated.
 *
 * What is to be found out is which rows enter which cells: a list of entries, sorted by cell. Of slide and lss it comes
 * from the hashes of the rows. Of evidence and popular it comes from the kept queries:
 *
 *   a query is touched   when a row that comes, changes or goes reaches its bar, before or after
 *   FULL is asked        for its k best among the new rows: its new bar
 *   entries              are those of its k best that changed, in each of its cells
 *
 * Then each cell is merged with its entries. Untouched queries have the k best that they had.
 *
 * A new entry's share is how often the cell's kept queries would have it as a label, by the network: the mean of its
 * probabilities there, times the labels that a query of the cell has, which the cell's own shares sum to. */
#include "update/update.h"

#include "base/bf16.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024, MANY = 4 }; /* queries at a time; all are touched where a MANY-th of the rows or more move */

/* A class that enters a cell. */
typedef struct entry {
    uint32_t cell;
    int32_t id;
    float weight; /* the sum of its probabilities, each in the part in which its query is filed there */
} entry;

typedef struct finding {
    woi_update *u;
    entry *entries;
    size_t n, room;
    float *q;             /* (kept, d) */
    woi_keep_cells cells; /* of the kept queries */
    uint32_t *touched;    /* (n_touched) of them */
    size_t n_touched;
} finding;

static wo_status add(finding *f, entry one, wo_error *err)
{
    const wo_status status = woi_grow(&f->entries, &f->room, f->n, f->n + 1, sizeof one, err);
    if (!status) f->entries[f->n++] = one;
    return status;
}

/* How much of a query its r-th cell gets: as in woi_evidence_parts. */
static float part_of(const finding *f, uint32_t r)
{
    return f->u->from->tree.A ? 1 / sqrtf((float)(r + 1)) : 1;
}

/* ---- slide, lss -------------------------------------------------------------------------------------------- */

static wo_status find_by_hash(finding *f, wo_error *err)
{
    const woi_update *u = f->u;
    const woi_hash *hash = &u->from->hash;
    const size_t d = u->rows.d;
    float *w = woi_alloc(u->n_moved, d * sizeof *w, err), *b = woi_alloc_zero(u->n_moved, sizeof *b, err);
    uint32_t *of = woi_alloc(u->n_moved, hash->L * sizeof *of, err);
    wo_status status = w && b && of ? WO_OK : WO_ERR_MEMORY;
    for (size_t i = 0; !status && i < u->n_moved; i++) {
        memcpy(w + i * d, u->rows.w + (size_t)u->moved[i] * d, d * sizeof *w);
        if (u->rows.b) b[i] = u->rows.b[u->moved[i]];
    }
    if (!status) status = woi_hash_neurons(hash, &(woi_neurons){u->n_moved, w, b}, u->threads, of, err);
    if (!status) status = woi_hash_check(of, u->n_moved * hash->L, WO_ABOUT_LAYER, err);
    for (size_t i = 0; !status && i < u->n_moved; i++)
        for (uint32_t l = 0; !status && u->fate[u->moved[i]] == WOI_CHANGES && l < hash->L; l++)
            status = add(f, (entry){of[i * hash->L + l], u->moved[i], 0}, err);
    woi_free(w);
    woi_free(b);
    woi_free(of);
    return status;
}

/* ---- evidence, popular ------------------------------------------------------------------------------------- */

/* The rows that move, as they were and as they will be. */
static wo_status gather_moved(const woi_update *u, woi_dense *both, wo_error *err)
{
    const size_t d = u->rows.d;
    float *w = woi_alloc(2 * u->n_moved, d * sizeof *w, err), *b = woi_alloc_zero(2 * u->n_moved, sizeof *b, err);
    *both = (woi_dense){0, d, w, b};
    if (!w || !b) return WO_ERR_MEMORY;
    for (size_t i = 0; i < u->n_moved; i++) {
        const size_t id = (size_t)u->moved[i];
        for (int new = 0; new < 2; new ++) {
            const woi_dense *rows = new ? &u->rows : &u->old;
            if (new ? u->fate[id] != WOI_CHANGES : id >= u->old.m) continue;
            memcpy(w + both->m * d, rows->w + id * d, d * sizeof *w);
            if (rows->b) b[both->m] = rows->b[id];
            both->m++;
        }
    }
    return WO_OK;
}

/* FULL's logits may differ in their last bits where other rows stand beside it, and bars were taken of f32 rows where
 * bf16 is left: what is about the bar counts. To ask FULL once too often does no harm. */
static bool reaches(const woi_update *u, float logit, float bar)
{
    const double slack = u->from->small.bf16 ? 1e-2 : 1e-4;
    return (double)logit >= (double)bar - slack * (1 + fabs((double)bar)) || bar == -INFINITY;
}

static wo_status find_touched(finding *f, wo_error *err)
{
    const woi_update *u = f->u;
    const woi_keep *kept = &u->from->kept;
    const size_t d = u->rows.d;
    woi_dense both = {0};
    wo_status status = WO_OK;
    if (!(f->touched = woi_alloc(kept->n, sizeof *f->touched, err))) return WO_ERR_MEMORY;
    const bool all = u->n_moved >= u->rows.m / MANY;
    if (!all) status = gather_moved(u, &both, err);
    for (size_t first = 0; !status && first < kept->n; first += CHUNK) {
        const size_t n = kept->n - first < CHUNK ? kept->n - first : CHUNK;
        int32_t ids[CHUNK];
        float best[CHUNK];
        if (!all)
            status = woi_exact_topk(&(woi_exact_call){.layer = &both,
                                                      .q = f->q + first * d,
                                                      .n = n,
                                                      .k = 1,
                                                      .threads = u->threads,
                                                      .ids = ids,
                                                      .scores = best},
                                    err);
        for (size_t i = 0; !status && i < n; i++)
            if (all || reaches(u, best[i], kept->bars[first + i])) f->touched[f->n_touched++] = (uint32_t)(first + i);
    }
    woi_free((float *)both.w);
    woi_free((float *)both.b);
    return status;
}

/* A touched query's k best: its bar, and entries for those that changed. */
static wo_status take_best(finding *f, uint32_t query, const woi_exact_call *asked, size_t i, wo_error *err)
{
    const woi_update *u = f->u;
    const size_t k = asked->k;
    const int32_t *ids = asked->ids + i * k;
    const float *scores = asked->scores + i * k;
    const float bar = k < u->from->options.source_k ? -INFINITY : woi_keep_bar(ids, scores, k);
    wo_status status = WO_OK;
    if (isnan(bar) || bar == INFINITY) return WO_OK; /* rows overflow: it has the bar that it had */
    u->to->kept.bars[query] = bar;
    for (size_t j = 0; !status && j < k && ids[j] >= 0; j++) {
        if (u->fate[ids[j]] != WOI_CHANGES) continue;
        const float p = (float)exp(woi_relative(scores[j], asked->lse[i]));
        for (uint32_t r = 0; !status && r < f->cells.each; r++) {
            const uint32_t cell = f->cells.of[query * f->cells.each + r];
            if (cell != UINT32_MAX) status = add(f, (entry){cell, ids[j], part_of(f, r) * p}, err);
        }
    }
    return status;
}

static wo_status ask_touched(finding *f, wo_error *err)
{
    const woi_update *u = f->u;
    const size_t d = u->rows.d, source_k = u->from->options.source_k, k = source_k < u->rows.m ? source_k : u->rows.m;
    float *q = woi_alloc(CHUNK * d, sizeof *q, err), *scores = woi_alloc(CHUNK * k, sizeof *scores, err);
    int32_t *ids = woi_alloc(CHUNK * k, sizeof *ids, err);
    uint8_t *gone = woi_alloc(u->rows.m, 1, err);
    woi_log_sum lse[CHUNK];
    wo_status status = q && scores && ids && gone ? WO_OK : WO_ERR_MEMORY;
    for (size_t j = 0; !status && j < u->rows.m; j++) gone[j] = u->fate[j] == WOI_GOES;
    for (size_t first = 0; !status && first < f->n_touched; first += CHUNK) {
        const size_t n = f->n_touched - first < CHUNK ? f->n_touched - first : CHUNK;
        const uint32_t *at = f->touched + first;
        if ((status = woi_progress(u->progress, "asking the exact layer", first, f->n_touched, err))) break;
        for (size_t i = 0; i < n; i++) memcpy(q + i * d, f->q + at[i] * d, d * sizeof *q);
        const woi_exact_call asked = {.layer = &u->rows,
                                      .adjust = {.forbidden = gone},
                                      .q = q,
                                      .n = n,
                                      .k = k,
                                      .threads = u->threads,
                                      .ids = ids,
                                      .scores = scores,
                                      .lse = lse};
        status = woi_exact_topk(&asked, err);
        for (size_t i = 0; !status && i < n; i++) status = take_best(f, at[i], &asked, i, err);
    }
    woi_free(q);
    woi_free(scores);
    woi_free(ids);
    woi_free(gone);
    return status;
}

/* A new class that serves no kept query would never be found: it goes where it lacks the least. Queries are the rows
 * here, and their bars the biases: the best of w . q - bar. */
static wo_status place_lonely(finding *f, wo_error *err)
{
    const woi_update *u = f->u;
    const woi_keep *kept = &u->to->kept;
    const size_t d = u->rows.d, n_added = u->rows.m - u->old.m;
    uint8_t *served = woi_alloc_zero(n_added, 1, err);
    float *b = woi_alloc(kept->n, sizeof *b, err);
    wo_status status = served && b ? WO_OK : WO_ERR_MEMORY;
    for (size_t i = 0; !status && i < f->n; i++)
        if (woi_is_added(u, f->entries[i].id)) served[(size_t)f->entries[i].id - u->old.m] = 1;
    for (size_t i = 0; !status && i < kept->n; i++) b[i] = kept->bars[i] == -INFINITY ? 0 : -kept->bars[i];
    const woi_dense queries = {kept->n, d, f->q, b};
    for (size_t j = 0; !status && j < n_added; j++) {
        int32_t nearest = -1;
        float score;
        if (served[j]) continue;
        status = woi_exact_topk(&(woi_exact_call){.layer = &queries,
                                                  .q = u->rows.w + (u->old.m + j) * d,
                                                  .n = 1,
                                                  .k = 1,
                                                  .threads = 1,
                                                  .ids = &nearest,
                                                  .scores = &score},
                                err);
        for (uint32_t r = 0; !status && nearest >= 0 && r < f->cells.each; r++) {
            const uint32_t cell = f->cells.of[(size_t)nearest * f->cells.each + r];
            if (cell != UINT32_MAX) status = add(f, (entry){cell, (int32_t)(u->old.m + j), 0}, err);
        }
    }
    woi_free(served);
    woi_free(b);
    return status;
}

static wo_status find_by_kept(finding *f, wo_error *err)
{
    const woi_update *u = f->u;
    const woi_keep *kept = &u->from->kept;
    if (!(f->q = woi_alloc(kept->n * u->rows.d, sizeof *f->q, err))) return WO_ERR_MEMORY;
    woi_keep_read(kept, u->rows.d, NULL, 0, kept->n, f->q);
    wo_status status = woi_keep_route(u->from, u->threads, &f->cells, err);
    if (!status) status = find_touched(f, err);
    if (!status) status = ask_touched(f, err);
    return status ? status : place_lonely(f, err);
}

/* ---- Merging ----------------------------------------------------------------------------------------------- */

static int by_cell(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->cell != y->cell) return x->cell < y->cell ? -1 : 1;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->weight < y->weight ? -1 : x->weight > y->weight;
}

/* Each class once in a cell. Equal entries are added up in the order of their weights, which no thread decides. */
static void unite_entries(finding *f)
{
    size_t n = 0;
    if (f->n) qsort(f->entries, f->n, sizeof *f->entries, by_cell);
    for (size_t i = 0; i < f->n; i++) {
        if (n && f->entries[n - 1].cell == f->entries[i].cell && f->entries[n - 1].id == f->entries[i].id)
            f->entries[n - 1].weight += f->entries[i].weight;
        else
            f->entries[n++] = f->entries[i];
    }
    f->n = n;
}

/* What a new entry's weight is to be multiplied with. filed: what the kept queries in the cell count. */
static float share_scale(const woi_cells *old, size_t cell, float filed)
{
    float labels = 0;
    for (uint32_t i = old->offsets[cell]; i < old->offsets[cell + 1]; i++) labels += woi_bf16_to_f32(old->shares[i]);
    return filed > 0 ? fmaxf(1, labels) / filed : 0;
}

/* Merges cell `c` with its entries, up to `end`, into `to` from place `at` on; returns the place behind it. */
static uint32_t merge(const finding *f, size_t c, const entry *next, const entry *end, float scale, uint32_t at)
{
    const woi_update *u = f->u;
    const woi_cells *old = &u->from->cells, *to = &u->to->cells;
    uint32_t i = old->offsets[c];
    const uint32_t last = old->offsets[c + 1];
    while (i < last || next < end) {
        const bool new = i == last || (next < end && next->id < old->ids[i]);
        const int32_t id = new ? next->id : old->ids[i];
        const bool entered = next < end && next->id == id;
        if (u->fate[id] == WOI_STAYS || entered) {
            to->ids[at] = id;
            /* What labels have shown stays. */
            if (to->shares && old->shares)
                to->shares[at] = new ? woi_f32_to_bf16(fminf(1, scale * next->weight)) : old->shares[i];
            at++;
        }
        next += entered;
        i += !new;
    }
    return at;
}

static wo_status merge_all(finding *f, wo_error *err)
{
    const woi_update *u = f->u;
    const woi_cells *old = &u->from->cells;
    woi_cells *to = &u->to->cells;
    const uint64_t most = (uint64_t)old->offsets[old->n] + f->n;
    if (most > UINT32_MAX)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "the cells would hold %" PRIu64 " classes, at most %" PRIu32 " are possible", most, UINT32_MAX);
    to->n = old->n;
    to->offsets = woi_alloc(old->n + 1, sizeof *to->offsets, err);
    to->ids = woi_alloc(most, sizeof *to->ids, err);
    if (old->queries) to->queries = woi_alloc(old->n, sizeof *to->queries, err);
    if (old->shares) to->shares = woi_alloc(most, sizeof *to->shares, err);
    float *filed = old->shares ? woi_alloc_zero(old->n, sizeof *filed, err) : NULL;
    wo_status status =
        to->offsets && to->ids && (!old->queries || to->queries) && (!old->shares || (to->shares && filed))
            ? WO_OK
            : WO_ERR_MEMORY;
    for (size_t i = 0; !status && filed && f->cells.of && i < u->from->kept.n * f->cells.each; i++)
        if (f->cells.of[i] != UINT32_MAX) filed[f->cells.of[i]] += part_of(f, (uint32_t)(i % f->cells.each));
    const entry *next = f->entries, *all = next + f->n;
    uint32_t at = 0;
    for (size_t c = 0; !status && c < old->n; c++) {
        const entry *end = next;
        while (end < all && end->cell == c) end++;
        to->offsets[c] = at;
        at = merge(f, c, next, end, filed && next < end ? share_scale(old, c, filed[c]) : 0, at);
        next = end;
    }
    if (!status) to->offsets[old->n] = at;
    if (!status && old->queries) memcpy(to->queries, old->queries, old->n * sizeof *to->queries);
    woi_free(filed);
    return status;
}

static wo_status copy_kept(woi_update *u, wo_error *err)
{
    const woi_keep *from = &u->from->kept;
    woi_keep *to = &u->to->kept;
    const size_t d = u->rows.d;
    if (!from->n) return WO_OK;
    to->queries = woi_alloc(from->n, d * sizeof *to->queries, err);
    to->bars = woi_alloc(from->n, sizeof *to->bars, err);
    if (!to->queries || !to->bars) return WO_ERR_MEMORY;
    to->n = from->n;
    memcpy(to->queries, from->queries, from->n * d * sizeof *to->queries);
    memcpy(to->bars, from->bars, from->n * sizeof *to->bars);
    return WO_OK;
}

wo_status woi_update_cells(woi_update *u, wo_error *err)
{
    finding f = {.u = u};
    const wo_method method = u->from->options.method;
    wo_status status = copy_kept(u, err);
    if (!status && u->n_moved && (method == WO_METHOD_SLIDE || method == WO_METHOD_LSS))
        status = find_by_hash(&f, err);
    else if (!status && u->n_moved && u->from->kept.n)
        status = find_by_kept(&f, err);
    if (!status && u->from->cells.n) {
        unite_entries(&f);
        status = merge_all(&f, err);
    }
    woi_free(f.entries);
    woi_free(f.q);
    woi_free(f.cells.of);
    woi_free(f.touched);
    return status;
}
