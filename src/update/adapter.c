/* Observing: queries are filed as a build files them, and their labels counted. See adapter.h. */
#include "update/adapter.h"

#include "base/error.h"
#include "base/finite.h"
#include "base/hits.h"
#include "base/sized.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OFTEN = 16 }; /* half-lives: 2^16 times a weight, and floats still add one to it */

void woi_list_free(woi_list *list)
{
    woi_free(list->ids);
    woi_free(list->shares);
    *list = (woi_list){0};
}

wo_status wo_adapter_create(const wo_index *base, const wo_adapter_options *given, wo_adapter **adapter, wo_error *err)
{
    *adapter = NULL;
    wo_adapter_options o = {.struct_size = sizeof o};
    wo_status status = woi_sized_take(&o, sizeof o, given, "adapter options", err);
    if (status) return status;
    if (base->options.method != WO_METHOD_EVIDENCE)
        return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "method",
                              "an index of method %s learns nothing from queries: evidence does",
                              woi_method_name(base->options.method));
    if ((status = woi_refuse_shard(base, "learns nothing", err))) return status;
    if (!(o.half_life >= 0 && isfinite(o.half_life)))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "half_life", "half_life is %g, expected 0 or more queries",
                               o.half_life);
    const bool tree = woi_uses_tree(&base->options);
    wo_adapter *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    made->base = base;
    made->half_life = o.half_life;
    made->each = tree ? 1 + base->options.spread : base->options.L;
    woi_evidence_parts(made->parts);
    for (uint32_t r = 0; tree && r < made->each; r++) made->whole += (double)made->parts[r];
    if (!tree) made->whole = 1; /* in each table */
    if (!(made->cells = woi_alloc_zero(base->cells.n, sizeof *made->cells, err))) {
        wo_adapter_free(made);
        return WO_ERR_MEMORY;
    }
    *adapter = made;
    return WO_OK;
}

void wo_adapter_free(wo_adapter *a)
{
    if (!a) return;
    for (size_t c = 0; a->cells && c < a->base->cells.n; c++) {
        if (!a->cells[c]) continue;
        woi_free(a->cells[c]->seen);
        woi_list_free(&a->cells[c]->now);
        woi_free(a->cells[c]);
    }
    woi_free(a->cells);
    woi_free(a->changed);
    woi_free(a);
}

wo_status wo_adapter_describe(const wo_adapter *adapter, wo_adapter_info *info)
{
    return woi_sized_give(info, &adapter->info, sizeof adapter->info);
}

/* ---- Fading ------------------------------------------------------------------------------------------------ */

double woi_adapter_faded(const wo_adapter *a, uint64_t queries)
{
    return a->half_life > 0 ? exp2(-(double)queries / a->half_life) : 1;
}

void woi_adapter_fade(const wo_adapter *a, woi_learned *cell)
{
    const double left = woi_adapter_faded(a, a->info.queries - cell->at);
    cell->at = a->info.queries;
    if (left == 1) return;
    cell->mass *= left;
    cell->own *= left;
    const float least = 1.0F / 64; /* of what counted 1/4 to 1: forgotten after four to six half-lives */
    size_t kept = 0;
    for (size_t i = 0; i < cell->n; i++) {
        cell->seen[kept] = (woi_sighting){cell->seen[i].id, cell->seen[i].weight * (float)left};
        kept += cell->seen[kept].weight >= least;
    }
    cell->n = kept;
}

/* ---- Observing --------------------------------------------------------------------------------------------- */

static wo_status check(const wo_index *base, const float *queries, size_t n, const int64_t *indptr,
                       const int32_t *labels, wo_error *err)
{
    const size_t m = base->rows.m, d = base->rows.d;
    int64_t most;
    if (!n) return WO_OK;
    wo_status status = woi_labelled_check(queries, n, indptr, labels, &most, err);
    if (status) return status;
    for (size_t i = 0; i < n; i++)
        if (!woi_all_finite(queries + i * d, d))
            return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "query %zu is not finite", i);
    for (int64_t at = 0; most >= (int64_t)m; at++)
        if (labels[at] >= (int64_t)m)
            return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "",
                                  "label %" PRId32 " at place %" PRId64 " is not one of the %zu classes", labels[at],
                                  at, m);
    return WO_OK;
}

/* A label of a call, to be counted in a cell. */
typedef struct arrival {
    int32_t id;
    float weight;
    size_t order;
} arrival;

/* What a call is worked with. */
typedef struct observation {
    uint32_t *of;      /* (n, each): the cells of its queries */
    int32_t *distinct; /* the labels of one query */
    arrival *arrivals; /* room for the labels of any cell */
} observation;

static wo_status prepare(const wo_adapter *a, const float *queries, size_t n, const int64_t *indptr, observation *o,
                         wo_error *err)
{
    const wo_index *base = a->base;
    o->of = woi_alloc(n, a->each * sizeof *o->of, err);
    o->distinct = woi_alloc(woi_most_labels(indptr, n), sizeof *o->distinct, err);
    if (!o->of || !o->distinct) return WO_ERR_MEMORY;
    const woi_filing filing = {.each = a->each, .cells = o->of};
    return woi_uses_tree(&base->options) ? woi_tree_file(&base->tree, queries, n, 1, &filing, err)
                                         : woi_hash_queries(&base->hash, queries, n, 1, o->of, err);
}

/* Room for all that the call may add, so that adding cannot fail. */
static wo_status reserve(wo_adapter *a, observation *o, size_t n, const int64_t *indptr, wo_error *err)
{
    const size_t all = a->base->cells.n, most = n * a->each < all - a->n_changed ? a->n_changed + n * a->each : all;
    wo_status status = woi_grow(&a->changed, &a->changed_room, a->n_changed, most, sizeof *a->changed, err);
    size_t most_labels = 0;
    for (size_t i = 0; !status && i < n * a->each; i++) {
        if (o->of[i] == UINT32_MAX) continue;
        woi_learned **cell = &a->cells[o->of[i]];
        if (!*cell && !(*cell = woi_alloc_zero(1, sizeof **cell, err)))
            status = WO_ERR_MEMORY;
        else
            (*cell)->pending += (size_t)(indptr[i / a->each + 1] - indptr[i / a->each]);
    }
    for (size_t i = 0; i < n * a->each; i++) {
        woi_learned *cell = o->of[i] == UINT32_MAX ? NULL : a->cells[o->of[i]];
        if (!cell) continue;
        if (!status)
            status = woi_grow(&cell->seen, &cell->room, cell->n, cell->n + cell->pending, sizeof *cell->seen, err);
        if (cell->pending > most_labels) most_labels = cell->pending;
        cell->pending = 0;
    }
    if (!status && !(o->arrivals = woi_alloc(most_labels, sizeof *o->arrivals, err))) status = WO_ERR_MEMORY;
    return status;
}

static int by_id_as_they_came(const void *a, const void *b)
{
    const arrival *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->order > y->order) - (x->order < y->order);
}

/* Where `id` is among a cell's classes, or would be. */
static size_t place_of(const woi_learned *cell, int32_t id)
{
    size_t low = 0, high = cell->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (cell->seen[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Counts the labels that are pending. Once for all of them: one by one each would move all classes above it. They are
 * added in the order in which they came, from the highest class down, so that nothing is written over. */
static void settle(woi_learned *cell, arrival *arrivals)
{
    const size_t n = cell->pending;
    for (size_t i = 0; i < n; i++)
        arrivals[i] = (arrival){cell->seen[cell->n + i].id, cell->seen[cell->n + i].weight, i};
    qsort(arrivals, n, sizeof *arrivals, by_id_as_they_came);
    size_t n_new = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && arrivals[i].id == arrivals[i - 1].id) continue;
        const size_t place = place_of(cell, arrivals[i].id);
        n_new += place == cell->n || cell->seen[place].id != arrivals[i].id;
    }
    size_t old = cell->n, to = cell->n + n_new;
    for (size_t end = n; end > 0;) {
        const int32_t id = arrivals[end - 1].id;
        size_t first = end - 1;
        while (first > 0 && arrivals[first - 1].id == id) first--;
        while (old > 0 && cell->seen[old - 1].id > id) cell->seen[--to] = cell->seen[--old];
        woi_sighting all = {.id = id};
        if (old > 0 && cell->seen[old - 1].id == id) all = cell->seen[--old];
        for (size_t i = first; i < end; i++) all.weight += arrivals[i].weight;
        cell->seen[--to] = all;
        end = first;
    }
    cell->n += n_new;
    cell->pending = 0;
}

/* One query, whose labels are o->distinct, in its r-th cell. */
static void add_query(wo_adapter *a, const observation *o, uint32_t place, uint32_t r, size_t n_labels)
{
    woi_learned *cell = a->cells[place];
    const bool tree = woi_uses_tree(&a->base->options);
    if (a->half_life > 0 && (double)(a->info.queries - cell->at) > OFTEN * a->half_life) {
        settle(cell, o->arrivals);
        woi_adapter_fade(a, cell);
    }
    const double now = 1 / woi_adapter_faded(a, a->info.queries - cell->at);
    const double part = (tree ? (double)a->parts[r] : 1) * now;
    cell->mass += part;
    if (!tree || r == 0) cell->own += now;
    for (size_t i = 0; i < n_labels; i++)
        cell->seen[cell->n + cell->pending++] = (woi_sighting){o->distinct[i], (float)part};
    a->info.cells += !cell->changed && !cell->now.ids;
    if (!cell->changed) a->changed[a->n_changed++] = place;
    cell->changed = true;
}

/* A removed class never comes back, whoever says that it was needed. */
static size_t without_removed(const wo_index *base, int32_t *labels, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!woi_is_removed(base, labels[i])) labels[kept++] = labels[i];
    return kept;
}

wo_status wo_adapter_observe(wo_adapter *a, const float *queries, size_t n, const int64_t *indptr,
                             const int32_t *labels, wo_error *err)
{
    wo_status status = check(a->base, queries, n, indptr, labels, err);
    if (status || !n) return status;
    observation o = {0};
    status = prepare(a, queries, n, indptr, &o, err);
    if (!status) status = reserve(a, &o, n, indptr, err);
    for (size_t i = 0; !status && i < n; i++) {
        size_t n_labels = woi_labels_of(indptr, labels, i, o.distinct); /* one given twice counts once */
        if (a->base->n_removed) n_labels = without_removed(a->base, o.distinct, n_labels);
        for (uint32_t r = 0; r < a->each; r++) {
            const uint32_t place = o.of[i * a->each + r];
            if (place != UINT32_MAX) add_query(a, &o, place, r, n_labels);
        }
        a->info.queries++;
    }
    for (size_t i = 0; !status && i < n * a->each; i++)
        if (o.of[i] != UINT32_MAX && a->cells[o.of[i]]->pending) settle(a->cells[o.of[i]], o.arrivals);
    woi_free(o.of);
    woi_free(o.distinct);
    woi_free(o.arrivals);
    return status;
}
