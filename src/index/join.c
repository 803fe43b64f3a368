/* One index out of those of all shards: rows and names go to the places of their classes, cells are merged, the router
 * is the same in all of them. */
#include "index/index.h"

#include "base/error.h"
#include "index/options.h"

#include <inttypes.h>
#include <string.h>

typedef struct joining {
    wo_index **shards; /* (n), by their numbers once they are checked */
    size_t n;
    wo_index whole; /* rows, small, cells, names and screen are ours, the rest is the first shard's */
    uint32_t *at;   /* (n): scratch */
    float *w, *b;
} joining;

/* ---- Checks ------------------------------------------------------------------------------------------------ */

/* The first option that two indexes were not built with alike, or NULL. */
static const char *differing(const wo_build_options *a, const wo_build_options *b)
{
    for (const woi_option *o = woi_options; o->name; o++)
        if (woi_option_used(o, a) && woi_option_value(o, a) != woi_option_value(o, b)) return o->name;
    return NULL;
}

static wo_status check_alike(const wo_index *first, const wo_index *other, wo_error *err)
{
    wo_index_info one = {.struct_size = sizeof one}, two = {.struct_size = sizeof two};
    wo_index_describe(first, &one);
    wo_index_describe(other, &two);
    const char *option = differing(&first->options, &other->options);
    if (one.layer_checksum != two.layer_checksum || one.m_whole != two.m_whole || one.d != two.d)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "the shard is of another layer: its checksum is %016" PRIx64 ", the first one's %016" PRIx64,
                        two.layer_checksum, one.layer_checksum);
    if (one.dealing != two.dealing)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "the shard is of another dealing of the layer's classes than the first one, or of other names");
    if (option || one.router_checksum != two.router_checksum || one.n_cells != two.n_cells ||
        !first->rows.b != !other->rows.b || !first->labels.n != !other->labels.n)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "the shard is of another build than the first one: %s differs", option ? option : "the router");
    return WO_OK;
}

/* Puts an index that was opened in its place. */
static wo_status place(joining *j, wo_index *index, wo_error *err)
{
    const woi_shard *shard = &index->shard;
    if (shard->count != j->n)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "the index is %s%.0u%s%.0u, but %zu %s given: all shards, each once",
                        shard->count ? "shard " : "no shard", shard->count ? shard->number + 1 : 0,
                        shard->count ? " of " : "", shard->count, j->n, j->n == 1 ? "file was" : "files were");
    if (j->shards[shard->number])
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "shard %u of %u is there already", shard->number + 1,
                        shard->count);
    j->shards[shard->number] = index;
    return WO_OK;
}

static wo_status open_all(joining *j, const char *const *paths, wo_error *err)
{
    for (size_t i = 0; i < j->n; i++) {
        wo_index *index = NULL;
        wo_status status = wo_index_open(paths[i], NULL, &index, err);
        if (!status && (status = place(j, index, err))) wo_index_free(index);
        for (size_t other = 0; !status && other < j->n; other++)
            if (j->shards[other] && j->shards[other] != index) {
                status = check_alike(j->shards[other], index, err);
                break;
            }
        if (!status) continue;
        if (err) woi_error_prefix(err, paths[i]);
        return woi_about(err, WO_ABOUT_INDEX, status);
    }
    return WO_OK;
}

/* Which classes each shard has, for woi_shards_check. */
static wo_status fill_maps(void *ctx, size_t first, size_t words, uint64_t *maps, wo_error *err)
{
    const joining *j = ctx;
    (void)err;
    for (size_t s = 0; s < j->n; s++)
        woi_shard_map(&j->shards[s]->shard, j->shards[s]->rows.m, first, words, maps + s * words);
    return WO_OK;
}

/* ---- Parts ------------------------------------------------------------------------------------------------- */

/* An array with `bytes` for each class: what the shards have at from(index), each class at its place. All places are
 * filled: each class is in one shard. */
static wo_status spread(const joining *j, const void *(*from)(const wo_index *), size_t bytes, void **to, wo_error *err)
{
    if (!from(j->shards[0])) return WO_OK;
    char *all = *to = woi_alloc(j->shards[0]->shard.m, bytes, err);
    if (!all) return WO_ERR_MEMORY;
    for (size_t s = 0; s < j->n; s++) {
        const wo_index *shard = j->shards[s];
        const char *own = from(shard);
        for (size_t i = 0; i < shard->rows.m; i++)
            memcpy(all + (size_t)shard->shard.classes[i] * bytes, own + i * bytes, bytes);
    }
    return WO_OK;
}

static const void *rows_of(const wo_index *index)
{
    return index->rows.w;
}

static const void *biases_of(const wo_index *index)
{
    return index->rows.b;
}

static const void *halves_of(const wo_index *index)
{
    return index->small.bf16;
}

static const void *bytes_of(const wo_index *index)
{
    return index->small.i8;
}

static const void *scales_of(const wo_index *index)
{
    return index->small.i8 ? index->small.scales : NULL;
}

static wo_status join_rows(joining *j, wo_error *err)
{
    wo_index *whole = &j->whole;
    const size_t d = whole->rows.d;
    void *w = NULL, *b = NULL, *halves = NULL, *bytes = NULL, *scales = NULL;
    wo_status status = spread(j, rows_of, d * sizeof(float), &w, err);
    if (!status) status = spread(j, biases_of, sizeof(float), &b, err);
    if (!status) status = spread(j, halves_of, d * sizeof(uint16_t), &halves, err);
    if (!status) status = spread(j, bytes_of, d, &bytes, err);
    if (!status) status = spread(j, scales_of, sizeof(float), &scales, err);
    whole->rows.w = j->w = w;
    whole->rows.b = j->b = b;
    whole->small = (woi_small){.bf16 = halves, .i8 = bytes, .scales = scales};
    if (status || !w) return status;
    wo_layer *layer = NULL; /* whose checksum is that of all the rows */
    status = wo_layer_wrap(w, b, whole->rows.m, d, &layer, err);
    if (!status && layer->checksum != whole->layer_checksum)
        status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                          "the rows of all shards have the checksum %016" PRIx64 ", but their layer has %016" PRIx64,
                          layer->checksum, whole->layer_checksum);
    wo_layer_free(layer);
    return status;
}

/* Where the name of each class is: shards have theirs in the order of classes, as all of them do. */
static wo_status join_names(joining *j, wo_error *err)
{
    wo_status status = WO_OK;
    memset(j->at, 0, j->n * sizeof *j->at);
    for (int32_t id = 0; j->shards[0]->labels.n && !status && (size_t)id < j->whole.rows.m; id++)
        for (size_t s = 0; s < j->n; s++) {
            const wo_index *shard = j->shards[s];
            const uint32_t i = j->at[s];
            if (i >= shard->rows.m || shard->shard.classes[i] != id) continue;
            j->at[s]++;
            status = woi_names_append(&j->whole.labels, woi_names_get(&shard->labels, (int32_t)i),
                                      woi_names_bytes(&shard->labels, (int32_t)i), err);
            break;
        }
    return status;
}

/* Cell c of all shards, into place `to` of the whole; returns the place behind. */
static uint32_t join_cell(const joining *j, size_t c, uint32_t to)
{
    const woi_cells *whole = &j->whole.cells;
    for (size_t s = 0; s < j->n; s++) j->at[s] = j->shards[s]->cells.offsets[c];
    for (;;) {
        const wo_index *lowest = NULL;
        size_t which = 0;
        int32_t id = 0;
        for (size_t s = 0; s < j->n; s++) {
            const wo_index *shard = j->shards[s];
            if (j->at[s] == shard->cells.offsets[c + 1]) continue;
            const int32_t next = shard->shard.classes[shard->cells.ids[j->at[s]]];
            if (lowest && next > id) continue;
            lowest = shard;
            which = s;
            id = next;
        }
        if (!lowest) return to;
        if (whole->shares) whole->shares[to] = lowest->cells.shares[j->at[which]];
        whole->ids[to++] = id;
        j->at[which]++;
    }
}

static wo_status join_cells(joining *j, wo_error *err)
{
    const woi_cells *first = &j->shards[0]->cells;
    woi_cells *whole = &j->whole.cells;
    uint64_t total = 0;
    *whole = (woi_cells){.n = first->n};
    if (!first->n) return WO_OK;
    for (size_t s = 0; s < j->n; s++) total += j->shards[s]->cells.offsets[first->n];
    if (total > UINT32_MAX)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "the cells would hold %" PRIu64 " classes, at most %u",
                        total, UINT32_MAX);
    whole->offsets = woi_alloc(first->n + 1, sizeof *whole->offsets, err);
    whole->ids = woi_alloc(total, sizeof *whole->ids, err);
    if (first->shares) whole->shares = woi_alloc(total, sizeof *whole->shares, err);
    if (!whole->offsets || !whole->ids || (first->shares && !whole->shares)) return WO_ERR_MEMORY;
    whole->queries = first->queries;
    whole->offsets[0] = 0;
    for (size_t c = 0; c < first->n; c++) whole->offsets[c + 1] = join_cell(j, c, whole->offsets[c]);
    return WO_OK;
}

/* As the shards have it: where rows are in bf16, those that it was made of are not there. */
static wo_status join_screen(joining *j, wo_error *err)
{
    woi_screen *whole = &j->whole.screen;
    if (!j->shards[0]->screen.rows) return WO_OK;
    const wo_status status = woi_screen_create(j->whole.rows.m, j->whole.rows.d, whole, err);
    for (size_t s = 0; !status && s < j->n; s++)
        woi_screen_spread(&j->shards[s]->screen, j->shards[s]->shard.classes, whole);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------- */

static wo_status join(joining *j, wo_error *err)
{
    const wo_index *first = j->shards[0];
    wo_status status = woi_shards_check(&(woi_shard_maps){first->shard.m, j->n, fill_maps, j}, err);
    if (status) return status;
    j->whole = *first;
    j->whole.shard = (woi_shard){0};
    j->whole.rows.m = first->shard.m;
    j->whole.st = NULL;
    j->whole.labels = (woi_names){0};
    j->whole.screen = (woi_screen){0};
    j->whole.cells = (woi_cells){0};
    j->whole.small = (woi_small){0};
    status = join_rows(j, err);
    if (!status) status = join_names(j, err);
    if (!status) status = join_cells(j, err);
    if (!status) status = join_screen(j, err);
    return status;
}

wo_status wo_index_join(const char *const *paths, size_t n, const char *output, wo_error *err)
{
    if (!n) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "no files were given");
    joining j = {.n = n};
    j.shards = woi_alloc_zero(n, sizeof *j.shards, err);
    j.at = woi_alloc(n, sizeof *j.at, err);
    wo_status status = j.shards && j.at ? open_all(&j, paths, err) : WO_ERR_MEMORY;
    if (!status) status = join(&j, err);
    if (!status) status = woi_about(err, WO_ABOUT_OUTPUT, woi_index_save_joined(&j.whole, output, err));
    woi_free(j.w);
    woi_free(j.b);
    woi_small_free(&j.whole.small);
    woi_screen_free(&j.whole.screen);
    j.whole.cells.queries = NULL; /* the first shard's */
    woi_cells_free(&j.whole.cells);
    woi_names_free(&j.whole.labels);
    for (size_t s = 0; j.shards && s < n; s++) wo_index_free(j.shards[s]);
    woi_free(j.shards);
    woi_free(j.at);
    return status;
}
