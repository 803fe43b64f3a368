/* Publishing: cells are made anew from what the base counted and what was observed. See adapter.h.
 *
 *   n(c)        = base(c) + borrowed(c) + observed queries, by their parts
 *   count(c, y) = share(c, y) * (base(c) + borrowed(c)) + observed labels y, by the parts of their queries
 *
 * base(c) is how many queries the cell had when it was built; of those filed in several leaves, as many parts as a
 * query has on average. A thin cell was filled by its neighbours' queries too: these give way, one for each that is
 * observed, as they would if the index were built again. The rule is then that of a build. */
#include "update/adapter.h"

#include "base/bf16.h"
#include "base/error.h"
#include "base/ids.h"

#include <math.h>
#include <string.h>

/* What a cell is made in. */
typedef struct bench {
    woi_need *needs;
    float *counts; /* of labels, beside what was needed: for shares */
    int32_t *ids, *chosen;
    size_t room;
} bench;

/* What the base counted in a cell, as far as its cells tell. */
typedef struct past {
    double queries;  /* of its own, by their parts, */
    double borrowed; /* and of its neighbours */
    double left;     /* of the first, after fading */
    bool whole;      /* counts are whole numbers, and a share of few digits tells which */
} past;

static past past_of(const wo_adapter *a, uint32_t place, const woi_learned *cell)
{
    const woi_cells *cells = &a->base->cells;
    past p = {.queries = cells->queries[place] * a->whole, .left = woi_adapter_faded(a, a->info.queries)};
    const double missing = a->base->options.thin - p.queries;
    if (missing > 0 && cells->offsets[place + 1] > cells->offsets[place]) p.borrowed = fmax(0, missing - cell->mass);
    p.whole = a->whole == 1 && missing <= 0 && a->base->options.source == WO_SOURCE_LABELS;
    return p;
}

/* How much the base's queries needed its class at `at`: by labels, and in all. Where more than labels was counted, or
 * no shares are kept, that is not known: twice what would have put the class there, so that one that is not needed any
 * more leaves when as many queries were observed as there were before, and not at the first. */
static woi_need base_need(const wo_adapter *a, past p, uint32_t at, float *labels)
{
    const woi_cells *cells = &a->base->cells;
    const double likely = fmax(2 * a->base->options.lambda * p.queries, 1);
    double count = likely;
    if (cells->shares) {
        count = (double)woi_bf16_to_f32(cells->shares[at]) * p.queries;
        if (p.whole) count = round(count);
    }
    const double lent =
        p.borrowed * (cells->shares ? (double)woi_bf16_to_f32(cells->shares[at]) : a->base->options.lambda);
    const bool more = a->base->options.source == WO_SOURCE_BOTH && count < likely;
    *labels = (float)(count * p.left + lent);
    return (woi_need){(float)((more ? likely : count) * p.left + lent), cells->ids[at]};
}

/* All classes of the base's cell and of what was observed: both ascend, and so does the result. */
static size_t unite(const wo_adapter *a, uint32_t place, const woi_learned *cell, past p, bench *b)
{
    const woi_cells *cells = &a->base->cells;
    uint32_t at = cells->offsets[place];
    const uint32_t end = cells->offsets[place + 1];
    size_t n = 0;
    for (size_t i = 0; at < end || i < cell->n; n++) {
        const bool old = at < end && (i == cell->n || cells->ids[at] <= cell->seen[i].id);
        b->needs[n] = (woi_need){0, old ? cells->ids[at] : cell->seen[i].id};
        b->counts[n] = 0;
        if (old) b->needs[n] = base_need(a, p, at++, &b->counts[n]);
        if (i < cell->n && cell->seen[i].id == b->needs[n].id) {
            b->needs[n].evidence += cell->seen[i].weight;
            b->counts[n] += cell->seen[i++].weight;
        }
        b->ids[n] = b->needs[n].id;
    }
    return n;
}

static wo_status make_cell(const wo_adapter *a, uint32_t place, bench *b, wo_error *err)
{
    const wo_build_options *o = &a->base->options;
    const woi_evidence_options rule = {.lambda = o->lambda, .floor = 1, .cap = o->cap};
    woi_learned *cell = a->cells[place];
    woi_adapter_fade(a, cell);
    const past p = past_of(a, place, cell);
    const size_t n = unite(a, place, cell, p, b);
    const double queries = p.queries * p.left + p.borrowed + cell->mass;
    const size_t taken = woi_evidence_choose(b->needs, n, queries, &rule, b->chosen);
    woi_list *next = &cell->next;
    next->n = (uint32_t)taken;
    next->queries = (uint32_t)fmin(round(a->base->cells.queries[place] * p.left + cell->own), UINT32_MAX);
    next->ids = woi_alloc(taken, sizeof *next->ids, err);
    if (a->base->cells.shares) next->shares = woi_alloc(taken, sizeof *next->shares, err);
    if (!next->ids || (a->base->cells.shares && !next->shares)) return WO_ERR_MEMORY;
    if (taken) memcpy(next->ids, b->chosen, taken * sizeof *next->ids);
    for (size_t i = 0, from = 0; next->shares && i < taken; i++) {
        while (b->ids[from] != next->ids[i]) from++;
        next->shares[i] = woi_f32_to_bf16((float)((double)b->counts[from] / queries));
    }
    return WO_OK;
}

/* Room for the largest cell that changed. */
static wo_status create_bench(const wo_adapter *a, bench *b, wo_error *err)
{
    const uint32_t *offsets = a->base->cells.offsets;
    for (size_t i = 0; i < a->n_changed; i++) {
        const uint32_t place = a->changed[i];
        const size_t most = offsets[place + 1] - offsets[place] + a->cells[place]->n;
        if (most > b->room) b->room = most;
    }
    b->needs = woi_alloc(b->room, sizeof *b->needs, err);
    b->counts = woi_alloc(b->room, sizeof *b->counts, err);
    b->ids = woi_alloc(b->room, sizeof *b->ids, err);
    b->chosen = woi_alloc(b->room, sizeof *b->chosen, err);
    return b->needs && b->counts && b->ids && b->chosen ? WO_OK : WO_ERR_MEMORY;
}

static void free_bench(bench *b)
{
    woi_free(b->needs);
    woi_free(b->counts);
    woi_free(b->ids);
    woi_free(b->chosen);
}

/* ---- The index --------------------------------------------------------------------------------------------- */

/* A cell as it will be, in the base's arrays or its own. */
static woi_list list_of(const wo_adapter *a, size_t place)
{
    const woi_cells *cells = &a->base->cells;
    const woi_learned *cell = a->cells[place];
    if (cell && cell->next.ids) return cell->next;
    if (cell && cell->now.ids) return cell->now;
    const uint32_t at = cells->offsets[place];
    return (woi_list){.ids = cells->ids + at,
                      .shares = cells->shares ? cells->shares + at : NULL,
                      .n = cells->offsets[place + 1] - at,
                      .queries = cells->queries[place]};
}

static wo_status join(const wo_adapter *a, woi_cells *to, wo_error *err)
{
    const size_t n = a->base->cells.n;
    const bool shares = a->base->cells.shares;
    uint64_t total = 0;
    for (size_t c = 0; c < n; c++) total += list_of(a, c).n;
    if (total > UINT32_MAX)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "the cells would hold %llu classes, at most %u are possible: a half-life lets some go",
                        (unsigned long long)total, UINT32_MAX);
    to->n = n;
    to->offsets = woi_alloc(n + 1, sizeof *to->offsets, err);
    to->ids = woi_alloc(total, sizeof *to->ids, err);
    to->queries = woi_alloc(n, sizeof *to->queries, err);
    if (shares) to->shares = woi_alloc(total, sizeof *to->shares, err);
    if (!to->offsets || !to->ids || !to->queries || (shares && !to->shares)) return WO_ERR_MEMORY;
    to->offsets[0] = 0;
    for (size_t c = 0; c < n; c++) {
        const woi_list list = list_of(a, c);
        const uint32_t at = to->offsets[c];
        if (list.n) memcpy(to->ids + at, list.ids, list.n * sizeof *list.ids);
        if (list.n && shares) memcpy(to->shares + at, list.shares, list.n * sizeof *list.shares);
        to->queries[c] = list.queries;
        to->offsets[c + 1] = at + list.n;
    }
    return WO_OK;
}

/* How many of the first list the second has not; both ascend. */
static size_t missing(const woi_list *of, const woi_list *in)
{
    size_t n = 0;
    for (uint32_t i = 0, j = 0; i < of->n; i++) {
        while (j < in->n && in->ids[j] < of->ids[i]) j++;
        n += j == in->n || in->ids[j] != of->ids[i];
    }
    return n;
}

/* What was made is what was published. */
static void settle(wo_adapter *a)
{
    for (size_t i = 0; i < a->n_changed; i++) {
        woi_learned *cell = a->cells[a->changed[i]];
        const woi_list next = cell->next;
        cell->next = (woi_list){0};
        const woi_list before = list_of(a, a->changed[i]);
        a->info.entries_added += missing(&next, &before);
        a->info.entries_left += missing(&before, &next);
        woi_list_free(&cell->now);
        cell->now = next;
        cell->changed = false;
    }
    a->n_changed = 0;
    a->info.publications++;
}

wo_status wo_adapter_publish(wo_adapter *a, wo_index **next, wo_error *err)
{
    *next = NULL;
    if (!a->n_changed) return WO_OK;
    bench b = {0};
    wo_status status = create_bench(a, &b, err);
    for (size_t i = 0; !status && i < a->n_changed; i++) status = make_cell(a, a->changed[i], &b, err);
    free_bench(&b);
    wo_index *made = status ? NULL : woi_alloc(1, sizeof *made, err);
    if (!status && !made) status = WO_ERR_MEMORY;
    if (made) {
        *made = *a->base;
        made->base = a->base->base ? a->base->base : a->base;
        made->cells = (woi_cells){0};
        made->checksum = 0;
        status = join(a, &made->cells, err);
    }
    if (status) {
        for (size_t i = 0; i < a->n_changed; i++) woi_list_free(&a->cells[a->changed[i]]->next);
        if (made) wo_index_free(made);
        return status;
    }
    settle(a);
    woi_index_count(made);
    *next = made;
    return WO_OK;
}
