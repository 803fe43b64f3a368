/* The index and the network that are served: opened together, lent to whoever searches, replaced as a whole.
 *
 * A request takes one snapshot and gives it back after its last answer, so that no answer is of two indexes. The lock
 * is held for a few pointers at a time; opening and freeing happen outside of it.
 *
 * Where the server learns, a snapshot's index is replaced by others with the same rows and router: generations. A
 * searcher is moved to the one that is current when it is lent, and keeps that until it is given back. */
#include "server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beside the threads that answer: the batch, the shadow, the thread that learns and the one that waits for signals. */
enum { MOST_PROBES = 64, OTHER_BORROWERS = 4 };

const char woi_no_exact[] = "the index has no f32 rows, which exact answers need: build it with --weights f32, or give "
                            "its layer with --layer FILE";

static void free_snapshot(woi_snapshot *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_idle; i++) wo_searcher_free(s->idle[i]);
    free(s->idle);
    free(s->by_name);
    pthread_mutex_destroy(&s->naming);
    if (s->generation && s->generation->index != s->index) wo_index_free(s->generation->index);
    free(s->generation);
    wo_index_free(s->index);
    wo_layer_free(s->layer);
    woi_network_free(s->net);
    woi_members_free(s->members);
    woi_files_let_go(s);
    free(s);
}

static wo_status fail(wo_error *err, wo_status status, const char *text)
{
    *err = (wo_error){.status = status, .offset = WO_NO_OFFSET};
    snprintf(err->text, sizeof err->text, "%s", text);
    return status;
}

static wo_status open_layer(woi_snapshot *s, const woi_serve_options *o, const char **at, wo_error *err)
{
    const wo_layer_options how = {
        .struct_size = sizeof how, .weight_name = o->weight_name, .bias_name = o->bias_name, .bias_path = o->bias_path};
    *at = o->layer;
    const wo_status status = wo_layer_open(o->layer, &how, &s->layer, err);
    if (status && err->about == WO_ABOUT_BIAS) *at = o->bias_path;
    return status;
}

/* An index without rows has those of the layer that is given, else those of the network. */
static wo_status open_index(woi_snapshot *s, const woi_serve_options *o, const char **at, wo_error *err)
{
    wo_open_options how = {.struct_size = sizeof how};
    wo_status status = o->layer ? open_layer(s, o, at, err) : WO_OK;
    if (status) return status;
    how.layer = s->layer;
    *at = o->index;
    status = wo_index_open(o->index, &how, &s->index, err);
    if (status && s->layer) {
        if (err->about == WO_ABOUT_LAYER) *at = o->layer;
        return status;
    }
    if (!status || !o->net || strcmp(err->option, "layer") != 0) return status;
    *at = o->net;
    if ((status = wo_layer_open(o->net, NULL, &s->layer, err))) return status;
    how.layer = s->layer;
    *at = o->index;
    return wo_index_open(o->index, &how, &s->index, err);
}

static wo_status open_network(woi_snapshot *s, const woi_serve_options *o, const char **at, wo_error *err)
{
    if (!o->net) return WO_OK;
    *at = o->net;
    wo_status status = woi_network_open(o->net, &s->net, err);
    if (status) return status;
    if (s->net->d == s->info.d) {
        if (s->index && woi_network_is_other(s->net, s->index)) /* nothing else tells; a front of shards has no rows */
            woi_say(
                "warning: %s: its output layer is not the one of the index, whose answers to this network's queries "
                "may be poor: 'wideout check' compares the two",
                o->net);
        return WO_OK;
    }
    char text[160];
    snprintf(text, sizeof text, "the network makes queries of %zu numbers, the index takes %zu", s->net->d, s->info.d);
    return fail(err, WO_ERR_ARGUMENT, text);
}

/* One for each thread that answers, made now: a search allocates nothing. */
static wo_status make_searchers(woi_snapshot *s, size_t n, wo_error *err)
{
    wo_searcher_options how;
    wo_searcher_defaults(&how, sizeof how);
    if (!(s->idle = calloc(n, sizeof *s->idle))) return fail(err, WO_ERR_MEMORY, "out of memory");
    for (how.max_probes = MOST_PROBES; how.max_probes; how.max_probes /= 2) { /* as many as the index has cells for */
        if (!wo_searcher_create(s->index, &how, &s->idle[0], err)) break;
        if (err->status == WO_ERR_MEMORY) return err->status;
    }
    if (!s->idle[0]) {
        wo_status status = wo_searcher_create(s->index, &how, &s->idle[0], err);
        if (status) return status;
    }
    s->max_probes = how.max_probes;
    for (s->n_idle = 1; s->n_idle < n; s->n_idle++) {
        wo_status status = wo_searcher_create(s->index, &how, &s->idle[s->n_idle], err);
        if (status) return status;
    }
    s->n_searchers = n;
    return WO_OK;
}

/* ---- Generations ------------------------------------------------------------------------------------------- */

static woi_generation *new_generation(wo_index *index, uint64_t number, wo_error *err)
{
    woi_generation *g = malloc(sizeof *g);
    if (g)
        *g = (woi_generation){.index = index, .number = number, .refs = 1};
    else
        fail(err, WO_ERR_MEMORY, "out of memory");
    return g;
}

/* One reference less. Under the lock; what it gives back is to be freed outside of it. */
static woi_generation *let_go(woi_generation *g)
{
    return g && --g->refs == 0 ? g : NULL;
}

static void free_generation(const woi_snapshot *s, woi_generation *g)
{
    if (g && g->index != s->index) wo_index_free(g->index);
    free(g);
}

wo_status woi_snapshot_replace(woi_server *server, woi_snapshot *s, wo_index *index, uint64_t number, wo_error *err)
{
    woi_generation *made = new_generation(index, number, err);
    if (!made) return WO_ERR_MEMORY;
    pthread_mutex_lock(&server->lock);
    woi_generation *gone = let_go(s->generation);
    s->generation = made;
    pthread_mutex_unlock(&server->lock);
    free_generation(s, gone);
    return WO_OK;
}

/* Under the lock: a searcher that waits, if there is one. */
static void lend(woi_lease *lease)
{
    woi_snapshot *s = lease->snapshot;
    if (lease->searcher || !s->n_idle) return;
    lease->searcher = s->idle[--s->n_idle];
    lease->generation = s->generation;
    lease->generation->refs++;
}

/* Outside of it: the searcher searches what is current. Where memory runs out there is none. */
static void ready(woi_server *server, woi_lease *lease)
{
    if (lease->searcher && wo_searcher_move(lease->searcher, lease->generation->index, NULL))
        woi_snapshot_return(server, lease);
}

/* Under the lock, the same backwards: what it gives back is to be freed. */
static woi_generation *take_back(woi_lease *lease)
{
    woi_snapshot *s = lease->snapshot;
    if (lease->searcher) s->idle[s->n_idle++] = lease->searcher;
    woi_generation *gone = let_go(lease->generation);
    lease->searcher = NULL;
    lease->generation = NULL;
    return gone;
}

/* ---- Names ------------------------------------------------------------------------------------------------- */

static int compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int by_name(const void *a, const void *b, void *ctx)
{
    size_t x_bytes = 0, y_bytes = 0;
    const int32_t x_id = *(const int32_t *)a, y_id = *(const int32_t *)b;
    const char *x = wo_index_label(ctx, x_id, &x_bytes), *y = wo_index_label(ctx, y_id, &y_bytes);
    const int order = x && y ? compare_names(x, x_bytes, y, y_bytes) : 0;
    return order ? order : (x_id > y_id) - (x_id < y_id);
}

/* The one thing of a snapshot that is made late: whoever comes first makes it for all. */
static bool sort_names(const woi_snapshot *snapshot)
{
    woi_snapshot *s = (woi_snapshot *)snapshot;
    pthread_mutex_lock(&s->naming);
    int32_t *ids = s->by_name ? NULL : malloc(s->info.m * sizeof *ids);
    for (size_t i = 0; ids && i < s->info.m; i++) ids[i] = (int32_t)i;
    if (ids) {
        qsort_r(ids, s->info.m, sizeof *ids, by_name, s->index);
        s->by_name = ids;
    }
    const bool sorted = s->by_name;
    pthread_mutex_unlock(&s->naming);
    return sorted;
}

/* As compare_names: the class at a place of the order, beside a name. */
static int compare_at(const woi_snapshot *s, size_t at, const char *name, size_t bytes)
{
    size_t own_bytes = 0;
    const char *own = wo_index_label(s->index, s->by_name[at], &own_bytes);
    return own ? compare_names(own, own_bytes, name, bytes) : -1;
}

bool woi_snapshot_named(const woi_snapshot *s)
{
    return s->index && s->info.has_names && !s->info.n_shards;
}

bool woi_snapshot_called(const woi_snapshot *s, const char *name, size_t bytes, woi_called *called)
{
    if (!sort_names(s)) return false;
    size_t low = 0, n = 0;
    for (size_t high = s->info.m; low < high;) {
        const size_t middle = (low + high) / 2;
        if (compare_at(s, middle, name, bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + n < s->info.m && compare_at(s, low + n, name, bytes) == 0) n++;
    *called = (woi_called){s->by_name + low, n};
    return true;
}

/* ---- Opening ----------------------------------------------------------------------------------------------- */

/* Whether the exact layer can be asked: one query of zeros tells. */
static bool has_full(const woi_snapshot *s)
{
    float *zeros = calloc(s->info.d, sizeof *zeros), score;
    int32_t id;
    const wo_search_call call = {
        .struct_size = sizeof call, .queries = zeros, .n = 1, .k = 1, .ids = &id, .scores = &score, .by = WO_BY_FULL};
    const bool has = zeros && !wo_search_run(s->idle[0], &call, NULL);
    free(zeros);
    return has;
}

static wo_status open_all(woi_server *server, woi_snapshot **result, const char **at, wo_error *err)
{
    const woi_serve_options *o = &server->options;
    woi_snapshot *s = calloc(1, sizeof *s);
    *at = NULL;
    if (!s) return fail(err, WO_ERR_MEMORY, "out of memory");
    (void)woi_guard_met();
    s->files = woi_files_settled(o);
    for (size_t i = 0; i < WOI_FILES; i++) s->held[i] = -1;
    pthread_mutex_init(&s->naming, NULL);
    wo_build_options built = {.struct_size = sizeof built};
    s->info.struct_size = sizeof s->info;
    wo_status status = server->shards ? woi_shards_describe(server, s, err) : open_index(s, o, at, err);
    if (!status && s->index) {
        status = wo_index_describe(s->index, &s->info);
        s->m = s->info.m_whole;
    }
    if (!status) status = open_network(s, o, at, err);
    if (!status) woi_files_hold(s, o);
    if (!status && s->index && !(s->generation = new_generation(s->index, 0, err))) status = WO_ERR_MEMORY;
    if (!status && s->index) status = make_searchers(s, (size_t)server->threads + OTHER_BORROWERS, err);
    if (status) {
        (void)woi_guard_met(); /* what is served is another */
        free_snapshot(s);
        return status;
    }
    *at = o->index;
    snprintf(s->digits, sizeof s->digits, "%016" PRIx64, s->info.checksum);
    if (s->index) {
        s->prior = !wo_index_options(s->index, &built) && built.prior > 0;
        s->has_full = has_full(s);
    }
    s->refs = 1;
    if (woi_guard_met())
        status = fail(err, WO_ERR_IO, "a part of the file is gone: it was shortened while it was opened");
    else if ((o->exact || o->shadow > 0) && !s->has_full)
        status = fail(err, WO_ERR_UNSUPPORTED, woi_no_exact);
    if (status)
        free_snapshot(s);
    else
        *result = s;
    return status;
}

static void release(woi_server *server, woi_snapshot *s)
{
    if (!s) return;
    pthread_mutex_lock(&server->lock);
    const bool last = --s->refs == 0;
    pthread_mutex_unlock(&server->lock);
    if (last) free_snapshot(s);
}

wo_status woi_snapshot_load(woi_server *server, const char **at, wo_error *err)
{
    woi_snapshot *made = NULL;
    const wo_status status = open_all(server, &made, at, err);
    if (status) return status;
    pthread_mutex_lock(&server->lock);
    woi_snapshot *old = server->current;
    server->current = made;
    pthread_mutex_unlock(&server->lock);
    release(server, old);
    return WO_OK;
}

void woi_snapshot_take(woi_server *server, woi_lease *lease)
{
    pthread_mutex_lock(&server->lock);
    *lease = (woi_lease){.snapshot = server->current};
    lease->snapshot->refs++;
    lend(lease);
    pthread_mutex_unlock(&server->lock);
    ready(server, lease);
}

void woi_snapshot_give(woi_server *server, const woi_lease *lease)
{
    woi_snapshot *s = lease->snapshot;
    woi_lease own = *lease;
    pthread_mutex_lock(&server->lock);
    woi_generation *gone = take_back(&own);
    const bool last = --s->refs == 0;
    pthread_mutex_unlock(&server->lock);
    free_generation(s, gone);
    if (last) free_snapshot(s);
}

void woi_snapshot_return(woi_server *server, woi_lease *lease)
{
    pthread_mutex_lock(&server->lock);
    woi_generation *gone = take_back(lease);
    pthread_mutex_unlock(&server->lock);
    free_generation(lease->snapshot, gone);
}

void woi_snapshot_keep(woi_server *server, const woi_lease *from, woi_lease *lease)
{
    pthread_mutex_lock(&server->lock);
    from->snapshot->refs++;
    pthread_mutex_unlock(&server->lock);
    *lease = (woi_lease){.snapshot = from->snapshot};
}

bool woi_snapshot_borrow(woi_server *server, woi_lease *lease)
{
    pthread_mutex_lock(&server->lock);
    lend(lease);
    pthread_mutex_unlock(&server->lock);
    ready(server, lease);
    return lease->searcher;
}

void woi_snapshot_drop(woi_server *server)
{
    woi_snapshot *old = server->current;
    server->current = NULL;
    release(server, old);
}
