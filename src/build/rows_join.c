/* Rows into cells, as far as the cap goes: see rows.h. */
#include "base/error.h"
#include "base/ids.h"
#include "base/team.h"
#include "build/rows.h"
#include "index/together.h"

#include <math.h>
#include <string.h>

/* The rows of each cell: cell c has members[starts[c] .. starts[c+1]). A cell of the result begins at bounds[c], with
 * room for all that it may hold, until they are moved together. */
typedef struct joining {
    const woi_placed *placed;
    const woi_joined *call;
    uint32_t cap;
    woi_cells *cells;
    uint32_t *starts;
    int32_t *members;
    uint64_t *bounds;
    uint32_t *sizes;
    int32_t *ids;
    uint16_t *shares; /* NULL: none are kept */
    woi_need *needs;  /* (most members of a cell) of each thread */
    int32_t *chosen;
    size_t most;
    /* Of several processes, with a cap: what each would put into a cell, one process after the other. */
    woi_need *offers;
    size_t *offered; /* (processes, cells): where a process's offers for a cell begin; and the end */
} joining;

/* How many rows a cell has room for, beside the classes of all processes that it holds. */
static size_t room_in(const joining *j, size_t c)
{
    const size_t own = j->call->whole ? j->call->whole[c] : j->cells->offsets[c + 1] - j->cells->offsets[c];
    return !j->cap ? SIZE_MAX : own < j->cap ? j->cap - own : 0;
}

static size_t choose(const joining *j, size_t c, woi_need *needs, size_t n, int32_t *chosen)
{
    const size_t room = room_in(j, c);
    const woi_evidence_options rule = {.lambda = -INFINITY, .cap = j->cap ? (uint32_t)room : 0};
    return room ? woi_evidence_choose(needs, n, 1, &rule, chosen) : 0;
}

/* Of this process's rows those that the cell would hold. */
static size_t choose_own(const joining *j, size_t c, woi_need *needs, int32_t *chosen)
{
    const int32_t *own = j->cells->ids + j->cells->offsets[c];
    const size_t n_own = j->cells->offsets[c + 1] - j->cells->offsets[c];
    size_t n = 0;
    for (uint32_t at = j->starts[c]; at < j->starts[c + 1]; at++) {
        const int32_t row = j->members[at];
        if (!woi_ids_find(own, n_own, row)) needs[n++] = (woi_need){j->placed->weights[row], row};
    }
    return choose(j, c, needs, n, chosen);
}

/* Of all processes' offers those that the cell holds; and of these this process's rows, each once: only what it has
 * offered, for which there is room, whatever the others say of its classes. */
static size_t choose_of_all(const joining *j, size_t c, woi_need *needs, int32_t *chosen)
{
    const size_t n_cells = j->cells->n, size = (size_t)j->call->o->together->size;
    const int32_t *own = j->ids + j->bounds[c]; /* offered, ascending */
    size_t n = 0, kept = 0, at_own = 0;
    for (size_t r = 0; r < size; r++) {
        const size_t *at = &j->offered[r * n_cells + c];
        memcpy(needs + n, j->offers + at[0], (at[1] - at[0]) * sizeof *needs);
        n += at[1] - at[0];
    }
    n = choose(j, c, needs, n, chosen);
    for (size_t i = 0; i < n; i++) {
        const int32_t row = woi_shard_row(j->call->shard, j->call->m, chosen[i]);
        while (at_own < j->sizes[c] && own[at_own] < row) at_own++;
        if (at_own < j->sizes[c] && own[at_own] == row) chosen[kept++] = own[at_own++];
    }
    return kept;
}

static void join_cell(void *ctx, int worker, size_t c)
{
    const joining *j = ctx;
    const woi_cells *cells = j->cells;
    const int32_t *own = cells->ids + cells->offsets[c];
    const uint16_t *shares = cells->shares ? cells->shares + cells->offsets[c] : NULL;
    const size_t n_own = cells->offsets[c + 1] - cells->offsets[c];
    woi_need *needs = j->needs + (size_t)worker * j->most;
    int32_t *chosen = j->chosen + (size_t)worker * j->most;
    const size_t n = (j->offers ? choose_of_all : choose_own)(j, c, needs, chosen);
    int32_t *ids = j->ids + j->bounds[c];
    uint16_t *to = j->shares ? j->shares + j->bounds[c] : NULL;
    for (size_t i = 0, k = 0; i < n_own || k < n;) {
        const bool mine = k == n || (i < n_own && own[i] < chosen[k]);
        if (to) *to++ = shares && mine ? shares[i] : 0;
        *ids++ = mine ? own[i++] : chosen[k++];
    }
    j->sizes[c] = (uint32_t)(n_own + n);
}

/* A counting sort, and the bounds. */
static wo_status group(joining *j, size_t m, wo_error *err)
{
    const size_t n_cells = j->cells->n, n = m * j->placed->each;
    const uint32_t *of = j->placed->of;
    if (n > UINT32_MAX)
        return woi_fail_option(err, WO_ERR_UNSUPPORTED, "rows", "%zu rows in %u cells each are too many", m,
                               j->placed->each);
    j->starts = woi_alloc_zero(n_cells + 1, sizeof *j->starts, err);
    j->members = woi_alloc(n, sizeof *j->members, err);
    j->bounds = woi_alloc(n_cells + 1, sizeof *j->bounds, err);
    if (!j->starts || !j->members || !j->bounds) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (of[i] != UINT32_MAX) j->starts[of[i]]++;
    for (size_t c = 1; c <= n_cells; c++) j->starts[c] += j->starts[c - 1];
    for (size_t i = n; i-- > 0;)
        if (of[i] != UINT32_MAX) j->members[--j->starts[of[i]]] = (int32_t)(i / j->placed->each);
    j->bounds[0] = 0;
    for (size_t c = 0; c < n_cells; c++) {
        const size_t rows = j->starts[c + 1] - j->starts[c], own = j->cells->offsets[c + 1] - j->cells->offsets[c];
        const size_t room = rows < room_in(j, c) ? rows : room_in(j, c);
        if (rows > j->most) j->most = rows;
        j->bounds[c + 1] = j->bounds[c] + own + room;
    }
    if (j->bounds[n_cells] > UINT32_MAX)
        return woi_fail_option(err, WO_ERR_UNSUPPORTED, "rows",
                               "the cells would hold %llu classes, at most %u are possible: lower rows or cap",
                               (unsigned long long)j->bounds[n_cells], UINT32_MAX);
    return WO_OK;
}

static void offer_cell(void *ctx, int worker, size_t c)
{
    const joining *j = ctx;
    woi_need *needs = j->needs + (size_t)worker * j->most;
    int32_t *chosen = j->chosen + (size_t)worker * j->most; /* it has room for all that is chosen from */
    j->sizes[c] = (uint32_t)choose_own(j, c, needs, chosen);
    memcpy(j->ids + j->bounds[c], chosen, j->sizes[c] * sizeof *chosen);
}

/* A cap is on the rows of all processes: each offers as many as the cell would hold if they were its alone. */
static wo_status offer(joining *j, size_t threads, wo_error *err)
{
    const wo_collective *together = j->call->o->together;
    const size_t n_cells = j->cells->n, size = together ? (size_t)together->size : 1;
    if (size == 1 || !j->cap) return WO_OK;
    woi_team_for((int)threads, n_cells, offer_cell, j);
    size_t n = 0, n_all = 0, sizes_bytes = 0, bytes = 0;
    for (size_t c = 0; c < n_cells; c++) n += j->sizes[c];
    woi_need *own = woi_alloc(n, sizeof *own, err);
    uint32_t *sizes = NULL;
    j->offered = woi_alloc(size * n_cells + 1, sizeof *j->offered, err);
    wo_status status = own && j->offered ? WO_OK : WO_ERR_MEMORY;
    for (size_t c = 0, at = 0; !status && c < n_cells; c++)
        for (size_t i = 0; i < j->sizes[c]; i++) {
            const int32_t row = j->ids[j->bounds[c] + i];
            own[at++] = (woi_need){j->placed->weights[row], j->call->shard->classes[row]};
        }
    if (!status)
        status = woi_together_lists(together, j->sizes, n_cells * sizeof *j->sizes, (void **)&sizes, &sizes_bytes, err);
    if (!status) status = woi_together_lists(together, own, n * sizeof *own, (void **)&j->offers, &bytes, err);
    const bool listed = !status && sizes_bytes == size * n_cells * sizeof *sizes;
    for (size_t i = 0; listed && i < size * n_cells; i++) n_all += sizes[i];
    if (!status && (!listed || bytes != n_all * sizeof *own))
        status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the processes do not have the same cells");
    if (!status) {
        j->offered[0] = 0;
        for (size_t i = 0; i < size * n_cells; i++) j->offered[i + 1] = j->offered[i] + sizes[i];
        for (size_t c = 0; c < n_cells; c++) {
            size_t all = 0;
            for (size_t r = 0; r < size; r++) all += sizes[r * n_cells + c];
            if (all > j->most) j->most = all;
        }
        woi_free(j->needs);
        woi_free(j->chosen);
        j->needs = woi_alloc(threads * j->most, sizeof *j->needs, err);
        j->chosen = woi_alloc(threads * j->most, sizeof *j->chosen, err);
        if (!j->needs || !j->chosen) status = WO_ERR_MEMORY;
    }
    woi_free(own);
    woi_free(sizes);
    return status;
}

wo_status woi_rows_join(const woi_placed *placed, const woi_joined *call, woi_cells *cells, wo_error *err)
{
    const size_t threads = (size_t)woi_team_threads(call->o->threads);
    joining j = {.placed = placed, .call = call, .cap = call->o->cap, .cells = cells};
    wo_status status = group(&j, call->m, err);
    if (!status) {
        const size_t room = j.bounds[cells->n];
        j.sizes = woi_alloc(cells->n, sizeof *j.sizes, err);
        j.ids = woi_alloc(room, sizeof *j.ids, err);
        if (cells->shares) j.shares = woi_alloc(room, sizeof *j.shares, err);
        j.needs = woi_alloc(threads * j.most, sizeof *j.needs, err);
        j.chosen = woi_alloc(threads * j.most, sizeof *j.chosen, err);
        if (!j.sizes || !j.ids || (cells->shares && !j.shares) || !j.needs || !j.chosen) status = WO_ERR_MEMORY;
    }
    if (!status) status = offer(&j, threads, err);
    if (!status) {
        woi_team_for((int)threads, cells->n, join_cell, &j);
        uint32_t n = 0;
        for (size_t c = 0; c < cells->n; c++) {
            memmove(j.ids + n, j.ids + j.bounds[c], j.sizes[c] * sizeof *j.ids);
            if (j.shares) memmove(j.shares + n, j.shares + j.bounds[c], j.sizes[c] * sizeof *j.shares);
            cells->offsets[c] = n;
            n += j.sizes[c];
        }
        cells->offsets[cells->n] = n;
        woi_free(cells->ids);
        woi_free(cells->shares);
        cells->ids = j.ids;
        cells->shares = j.shares;
    } else {
        woi_free(j.ids);
        woi_free(j.shares);
    }
    void *const owned[] = {j.starts, j.members, j.bounds, j.sizes, j.needs, j.chosen, j.offers, j.offered};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
    return status;
}
