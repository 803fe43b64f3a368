/* Making searchers: see searcher.h. */
#include "search/searcher.h"

#include "base/error.h"
#include "base/sized.h"
#include "base/team.h"

#include <inttypes.h>

static const wo_searcher_options defaults = {.struct_size = sizeof defaults, .threads = 1, .max_mandatory = 1024};

void wo_searcher_defaults(wo_searcher_options *options, size_t options_bytes)
{
    woi_sized_defaults(options, options_bytes, &defaults, sizeof defaults);
}

size_t woi_cells_opened(const wo_index *index, uint32_t probes)
{
    return index->hash.K ? (size_t)index->hash.L * probes : index->tree.A ? probes : index->cells.n;
}

/* As far as there are cells to open. */
uint32_t woi_wider_probes(const wo_index *index, uint32_t probes)
{
    if (!index->options.fallback) return probes;
    uint32_t most = index->tree.A ? WOI_MAX_LEAVES : WOI_MAX_PROBES;
    if (index->hash.K && most > 1U << index->hash.K) most = 1U << index->hash.K;
    return probes * WO_WIDER < most ? probes * WO_WIDER : most;
}

wo_status woi_probes_check(const wo_index *index, uint32_t probes, wo_error *err)
{
    if (index->tree.A && probes > WOI_MAX_LEAVES)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "probes", "%" PRIu32 " probes are too many: at most %d", probes,
                               WOI_MAX_LEAVES);
    if (index->hash.K && (probes > WOI_MAX_PROBES || probes > 1U << index->hash.K))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "probes",
                               "%" PRIu32 " probes are too many: at most %d, and the %u cells of a table", probes,
                               WOI_MAX_PROBES, 1U << index->hash.K);
    return WO_OK;
}

static size_t route_scratch(const wo_searcher *s)
{
    const wo_index *index = s->index;
    if (!index->tree.A) return woi_hash_scratch(&index->hash, s->block) * sizeof(float);
    const size_t many = woi_tree_scratch(&index->tree, s->block, s->max_probes);
    const size_t one = woi_tree_scratch(&index->tree, 1, woi_wider_probes(index, s->max_probes));
    return many > one ? many : one;
}

/* The most candidates that a query has. */
static size_t room_of(const wo_searcher *s, const wo_index *index)
{
    const size_t most = woi_cells_opened(index, woi_wider_probes(index, s->max_probes));
    size_t room = most * index->largest + s->max_mandatory;
    if (index->screen.rows) room += WOI_MOST_KEPT;
    return room < index->rows.m ? room : index->rows.m;
}

static wo_status create_workers(wo_searcher *s, wo_error *err)
{
    const wo_index *index = s->index;
    const size_t m = index->rows.m, n_cells = woi_cells_opened(index, s->max_probes);
    const size_t most = woi_cells_opened(index, woi_wider_probes(index, s->max_probes));
    const size_t room = s->room = room_of(s, index);
    s->block = index->tree.beam >= WOI_WIDE_BEAM ? WOI_WIDE_BLOCK : WOI_BLOCK_QUERIES;
    if (!(s->workers = woi_alloc_zero((size_t)s->threads, sizeof *s->workers, err))) return WO_ERR_MEMORY;
    if (index->options.method == WO_METHOD_FULL) return WO_OK;
    for (int t = 0; t < s->threads; t++) {
        woi_worker *w = &s->workers[t];
        w->seen = woi_alloc_zero(m, 1, err);
        w->ids = woi_alloc(room + 1, sizeof *w->ids, err); /* one past: see unite in search_cells.c */
        w->logits = woi_alloc(room, sizeof *w->logits, err);
        w->cells = woi_alloc_zero(s->block * n_cells, sizeof *w->cells, err);
        w->wider = woi_alloc(most, sizeof *w->wider, err);
        w->q8 = woi_alloc(index->rows.d, 1, err);
        w->route_scratch = woi_alloc_zero(1, route_scratch(s), err);
        if (index->cells.shares) {
            w->spots = woi_alloc_zero(m, sizeof *w->spots, err);
            w->extra = woi_alloc(room + 1, sizeof *w->extra, err);
            w->cell_scores = woi_alloc(s->block * n_cells, sizeof *w->cell_scores, err);
            w->wider_scores = woi_alloc(most, sizeof *w->wider_scores, err);
            w->cell_weights = woi_alloc(most, sizeof *w->cell_weights, err);
            if (!w->spots || !w->extra || !w->cell_scores || !w->wider_scores || !w->cell_weights) return WO_ERR_MEMORY;
        }
        if (!w->seen || !w->ids || !w->logits || !w->cells || !w->wider || !w->q8 || !w->route_scratch)
            return WO_ERR_MEMORY;
    }
    return WO_OK;
}

wo_status wo_searcher_create(const wo_index *index, const wo_searcher_options *options, wo_searcher **searcher,
                             wo_error *err)
{
    *searcher = NULL;
    wo_searcher_options o = defaults;
    wo_status status = woi_sized_take(&o, sizeof o, options, "searcher options", err);
    if (!status) status = woi_check_range("threads", o.threads, 0, WOI_MAX_THREADS, err);
    if (!status) status = woi_check_range("reserved", o.reserved, 0, 0, err);
    if (status) return status;
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const uint32_t own = index->options.probes, max_probes = o.max_probes > own ? o.max_probes : own;
    if ((status = woi_probes_check(index, max_probes, err))) return status;
    wo_searcher *s = woi_alloc_zero(1, sizeof *s, err);
    if (!s) return WO_ERR_MEMORY;
    s->index = index;
    s->base = index->base ? index->base : index;
    s->kernels = kernels;
    s->threads = woi_team_threads(o.threads);
    s->max_probes = max_probes;
    s->max_mandatory = o.max_mandatory;
    status = create_workers(s, err);
    const size_t m = index->rows.m, distinct = o.max_mandatory < m ? o.max_mandatory : m;
    if (!status && !(s->forbidden = woi_alloc_zero(m, 1, err))) status = WO_ERR_MEMORY;
    if (!status && !(s->marked = woi_alloc(m, sizeof *s->marked, err))) status = WO_ERR_MEMORY;
    if (!status && !(s->mandatory = woi_alloc(distinct, sizeof *s->mandatory, err))) status = WO_ERR_MEMORY;
    for (size_t i = 0; !status && i < index->n_removed; i++) s->forbidden[index->removed[i]] = WOI_REMOVED;
    if (!status && !(s->exact_scratch = woi_alloc(woi_exact_scratch(s->index->rows.d, s->threads), 1, err)))
        status = WO_ERR_MEMORY;
    if (!status && index->screen.rows &&
        !(s->screen_scratch = woi_alloc(woi_screen_scratch(index->rows.d, s->threads), 1, err)))
        status = WO_ERR_MEMORY;
    if (!status && woi_screens_little(&index->options) &&
        !(s->gathered = woi_alloc(WOI_GATHERED * index->rows.d, sizeof *s->gathered, err)))
        status = WO_ERR_MEMORY;
    if (status) {
        wo_searcher_free(s);
        return status;
    }
    *searcher = s;
    return WO_OK;
}

/* Larger arrays in place of those that have a candidate each. */
static wo_status widen_worker(woi_worker *w, size_t room, wo_error *err)
{
    int32_t *ids = woi_alloc(room + 1, sizeof *ids, err);
    float *logits = woi_alloc(room, sizeof *logits, err), *extra = NULL;
    if (w->extra) extra = woi_alloc(room + 1, sizeof *extra, err);
    if (!ids || !logits || (w->extra && !extra)) {
        woi_free(ids);
        woi_free(logits);
        woi_free(extra);
        return WO_ERR_MEMORY;
    }
    woi_free(w->ids);
    woi_free(w->logits);
    woi_free(w->extra);
    w->ids = ids;
    w->logits = logits;
    w->extra = extra;
    return WO_OK;
}

/* All but the cells is the same, so that what goes by classes, dimensions or cells fits. The index before may be gone,
 * and this one lie where it lay: nothing of it is looked at. */
wo_status wo_searcher_move(wo_searcher *s, const wo_index *index, wo_error *err)
{
    if (index->base != s->base && index != s->base)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_INDEX, "",
                              "the index was not published from the one that the searcher was made for");
    size_t room = room_of(s, index);
    if (room > s->room) {
        room = room + room / 4 < index->rows.m ? room + room / 4 : index->rows.m; /* cells grow a little at a time */
        for (int t = 0; t < s->threads; t++) {
            const wo_status status = widen_worker(&s->workers[t], room, err);
            if (status) return status; /* larger arrays than are needed do no harm */
        }
        s->room = room;
    }
    s->index = index;
    return WO_OK;
}

void wo_searcher_free(wo_searcher *s)
{
    if (!s) return;
    for (int t = 0; s->workers && t < s->threads; t++) {
        woi_worker *w = &s->workers[t];
        void *const owned[] = {w->seen,          w->ids,   w->logits, w->cells,       w->wider,        w->q8,
                               w->route_scratch, w->spots, w->extra,  w->cell_scores, w->wider_scores, w->cell_weights};
        for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    }
    woi_free(s->workers);
    woi_free(s->forbidden);
    woi_free(s->marked);
    woi_free(s->mandatory);
    woi_free(s->exact_scratch);
    woi_free(s->screen_scratch);
    woi_free(s->gathered);
    woi_free(s);
}
