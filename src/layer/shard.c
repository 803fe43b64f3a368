/* Shards of a wide layer: in files, by range, and made of a whole one, which deals its classes out like cards, the most
 * frequent first, so that every shard has as much work. */
#include "layer/shard.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/team.h"
#include "layer/layer.h"
#include "store/log.h"
#include "store/safetensors.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MOST_SHARDS = 99999 }; /* their names have five digits */
#define DEALING "shard.dealing"

void woi_shard_free(woi_shard *shard)
{
    woi_free(shard->owned);
    *shard = (woi_shard){0};
}

/* The first row whose class is `id` or higher; `rows` where there is none. */
static size_t first_row(const woi_shard *shard, size_t rows, int64_t id)
{
    size_t low = 0, high = rows;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (shard->classes[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t woi_shard_row(const woi_shard *shard, size_t rows, int32_t id)
{
    if (!shard->count) return id >= 0 && (size_t)id < rows ? id : -1;
    const size_t row = first_row(shard, rows, id);
    return row < rows && shard->classes[row] == id ? (int32_t)row : -1;
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

static wo_status read_line(const woi_st *st, const char *key, uint64_t most, uint64_t *value, wo_error *err)
{
    const char *text = woi_st_meta(st, key);
    char *end = NULL, quoted[WOI_QUOTE_BYTES];
    *value = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (end && !*end && strlen(text) < 12 && *value <= most) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, 8, "'%s' is \"%s\", expected a number up to %" PRIu64, key,
                    woi_quote(quoted, text ? text : "", text ? strlen(text) : 0), most);
}

/* The digest of a dealing is 16 digits; older files have none. */
static wo_status read_dealing(const woi_st *st, uint64_t *dealing, wo_error *err)
{
    const char *text = woi_st_meta(st, DEALING);
    char quoted[WOI_QUOTE_BYTES];
    *dealing = text ? strtoull(text, NULL, 16) : 0;
    if (!text || (strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16)) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, 8, "'%s' is \"%s\", expected 16 hexadecimal digits", DEALING,
                    woi_quote(quoted, text, strlen(text)));
}

static wo_status check_classes(const int32_t *classes, size_t rows, uint64_t m, wo_error *err)
{
    for (size_t i = 0; i < rows; i++)
        if (classes[i] < 0 || (uint64_t)classes[i] >= m || (i && classes[i] <= classes[i - 1]))
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                            "'classes' has %" PRId32 " at %zu: expected rising numbers below %" PRIu64, classes[i], i,
                            m);
    return WO_OK;
}

bool woi_shard_is(const woi_st *st)
{
    return woi_st_kind(st) && (woi_st_find(st, "classes") || woi_st_meta(st, "shard.count"));
}

wo_status woi_shard_read(const woi_st *st, size_t rows, woi_shard *shard, wo_error *err)
{
    uint64_t number, count, m, dealing;
    const woi_tensor *tensor = woi_st_find(st, "classes");
    if (!woi_shard_is(st)) return WO_OK;
    if (!tensor || tensor->dtype != WOI_I32 || tensor->n_dims != 1 || tensor->n != rows)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the shard has no tensor 'classes' of %zu numbers of I32", rows);
    wo_status status = read_line(st, "shard.count", MOST_SHARDS, &count, err);
    if (!status) status = read_line(st, "shard.number", MOST_SHARDS, &number, err);
    if (!status) status = read_line(st, "shard.m", INT32_MAX, &m, err);
    if (!status) status = read_dealing(st, &dealing, err);
    if (status) return status;
    if (!count || number >= count || m < rows)
        return woi_fail(err, WO_ERR_FORMAT, 8,
                        "shard %" PRIu64 " of %" PRIu64 ", with %zu of %" PRIu64 " classes, cannot be", number, count,
                        rows, m);
    int32_t *classes = woi_alloc(rows, sizeof *classes, err);
    if (!classes) return WO_ERR_MEMORY;
    memcpy(classes, tensor->data, rows * sizeof *classes);
    if ((status = check_classes(classes, rows, m, err))) {
        woi_free(classes);
        return status;
    }
    *shard = (woi_shard){(uint32_t)number, (uint32_t)count, (size_t)m, classes, classes, dealing};
    return WO_OK;
}

wo_status woi_shard_write(woi_st_writer *writer, const woi_shard *shard, wo_error *err)
{
    const struct {
        const char *key;
        size_t value;
    } lines[] = {{"shard.number", shard->number}, {"shard.count", shard->count}, {"shard.m", shard->m}};
    wo_status status = WO_OK;
    char text[24];
    for (size_t i = 0; !status && shard->count && i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "%zu", lines[i].value);
        status = woi_st_set_meta(writer, lines[i].key, text, err);
    }
    snprintf(text, sizeof text, "%016" PRIx64, shard->dealing);
    return status || !shard->count || !shard->dealing ? status : woi_st_set_meta(writer, DEALING, text, err);
}

/* ---- All shards -------------------------------------------------------------------------------------------- */

void woi_shard_map(const woi_shard *shard, size_t rows, size_t first, size_t words, uint64_t *map)
{
    memset(map, 0, words * sizeof *map);
    for (size_t row = first_row(shard, rows, (int64_t)first); row < rows; row++) {
        const size_t at = (size_t)shard->classes[row] - first;
        if (at / 64 >= words) break;
        map[at / 64] |= UINT64_C(1) << at % 64;
    }
}

/* Says which shards have the class, of whose word of their maps `bit` is it; (n, words). */
static wo_status refuse_class(size_t id, const uint64_t *maps, size_t n, size_t words, uint64_t bit, wo_error *err)
{
    size_t found[2] = {0}, n_found = 0;
    for (size_t s = 0; s < n && n_found < 2; s++)
        if (maps[s * words] & bit) found[n_found++] = s;
    if (n_found == 2)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "class %zu is in shard %zu and in shard %zu: each class of a layer is in one of its shards", id,
                        found[0] + 1, found[1] + 1);
    return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                    "class %zu is in no shard: each class of a layer is in one of its shards", id);
}

wo_status woi_shards_check(const woi_shard_maps *all, wo_error *err)
{
    enum { MOST_WORDS = 1 << 19 }; /* of all maps */
    const size_t n = all->n, total = (all->m + 63) / 64, fit = MOST_WORDS / n;
    const size_t most = fit < 1 ? 1 : fit < total ? fit : total;
    uint64_t *maps = woi_alloc(n * most, sizeof *maps, err);
    wo_status status = maps ? WO_OK : WO_ERR_MEMORY;
    for (size_t from = 0; !status && from < total; from += most) {
        const size_t words = total - from < most ? total - from : most;
        status = all->fill(all->ctx, from * 64, words, maps, err);
        for (size_t w = 0; !status && w < words; w++) {
            uint64_t once = 0, twice = 0;
            for (size_t s = 0; s < n; s++) {
                const uint64_t has = maps[s * words + w];
                twice |= once & has;
                once |= has;
            }
            const size_t first = (from + w) * 64, left = all->m - first;
            const uint64_t wanted = left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX, wrong = twice | (once ^ wanted);
            if (!wrong) continue;
            const unsigned bit = (unsigned)__builtin_ctzll(wrong);
            status = refuse_class(first + bit, maps + w, n, words, UINT64_C(1) << bit, err);
        }
    }
    woi_free(maps);
    return status;
}

/* ---- Dealings ---------------------------------------------------------------------------------------------- */

/* Classes to the hash, in pieces that stay in the cache: `n` of shard `part`. */
static void hash_range(XXH3_state_t *state, uint32_t part, size_t n)
{
    enum { PIECE = 1024 };
    uint32_t of[PIECE];
    for (size_t i = 0; i < PIECE; i++) of[i] = part;
    for (size_t left = n, now; left > 0; left -= now) {
        now = left < PIECE ? left : PIECE;
        XXH3_64bits_update(state, of, now * sizeof *of);
    }
}

static void hash_names(XXH3_state_t *state, const woi_names *names)
{
    if (!names->n) return;
    XXH3_64bits_update(state, names->indptr, ((size_t)names->n + 1) * sizeof *names->indptr);
    XXH3_64bits_update(state, names->bytes, (size_t)names->indptr[names->n]);
}

/* XXH3 of the shard of each of m classes, U32, and of the names of all. of NULL: ranges. */
static uint64_t digest(const woi_names *names, size_t m, const uint32_t *of, size_t n)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    if (of) XXH3_64bits_update(&state, of, m * sizeof *of);
    for (uint32_t s = 0; !of && s < n; s++)
        hash_range(&state, s, woi_part_start((size_t)s + 1, n, m) - woi_part_start(s, n, m));
    hash_names(&state, names);
    return XXH3_64bits_digest(&state);
}

/* Of a shard's file, which does not say where the others' classes are: the digest that it has, and then the names. One
 * that has none (0) stays so. */
static uint64_t digest_again(uint64_t dealing, const woi_names *names)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, &dealing, sizeof dealing);
    hash_names(&state, names);
    return dealing ? XXH3_64bits_digest(&state) : 0;
}

/* ---- By range ---------------------------------------------------------------------------------------------- */

/* The names of some rows. */
static wo_status some_names(const woi_names *from, const int32_t *rows, size_t n, woi_names *to, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; from->n && !status && i < n; i++)
        status = woi_names_append(to, woi_names_get(from, rows[i]), woi_names_bytes(from, rows[i]), err);
    return status;
}

static wo_status check_count(const wo_layer *layer, size_t n, wo_error *err)
{
    if (layer->shard.count)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "", "the layer is shard %u of %u already",
                              layer->shard.number + 1, layer->shard.count);
    if (n >= 1 && n <= layer->dense.m && n <= MOST_SHARDS) return WO_OK;
    return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "",
                          "a layer of %zu classes cannot be in %zu shards: each has at least one class, and there are "
                          "at most %d",
                          layer->dense.m, n, MOST_SHARDS);
}

wo_status wo_layer_take_part(wo_layer *layer, uint32_t part, uint32_t n_parts, wo_error *err)
{
    wo_status status = check_count(layer, n_parts, err);
    if (!status && part >= n_parts)
        status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "there is no part %u of %u", part, n_parts);
    if (status || n_parts == 1) return status;
    woi_dense *dense = &layer->dense;
    const size_t first = woi_part_start(part, n_parts, dense->m),
                 n = woi_part_start((size_t)part + 1, n_parts, dense->m) - first;
    woi_names names = {0};
    const uint64_t dealing = digest(&layer->labels, dense->m, NULL, n_parts);
    int32_t *classes = woi_alloc(n, sizeof *classes, err);
    if (!classes) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) classes[i] = (int32_t)(first + i);
    if ((status = some_names(&layer->labels, classes, n, &names, err))) {
        woi_names_free(&names);
        woi_free(classes);
        return status;
    }
    woi_names_free(&layer->labels);
    layer->labels = names;
    layer->shard = (woi_shard){part, n_parts, dense->m, classes, classes, dealing};
    layer->by_range = true;
    if (!layer->part_w) dense->w += first * dense->d;
    if (dense->b && !layer->part_b) dense->b += first;
    dense->m = n;
    return WO_OK;
}

wo_status woi_shard_name(wo_layer *layer, woi_names *all, wo_error *err)
{
    woi_shard *shard = &layer->shard;
    woi_names names = {0};
    const wo_status status = some_names(all, shard->classes, layer->dense.m, &names, err);
    if (!status) {
        shard->dealing =
            layer->by_range ? digest(all, shard->m, NULL, shard->count) : digest_again(shard->dealing, all);
        woi_names_free(&layer->labels);
        layer->labels = names;
    }
    if (status) woi_names_free(&names);
    woi_names_free(all);
    return status;
}

/* ---- Into files -------------------------------------------------------------------------------------------- */

/* The shard of each class: of[id]. */
static wo_status deal(const wo_layer *layer, const wo_log *log, size_t n, uint32_t *of, wo_error *err)
{
    const size_t m = layer->dense.m;
    woi_counted *order = woi_alloc(m, sizeof *order, err);
    if (!order) return WO_ERR_MEMORY;
    for (size_t i = 0; i < m; i++) order[i] = (woi_counted){0, (int32_t)i};
    for (int64_t i = 0; log && log->indptr && i < log->indptr[log->n]; i++)
        order[log->labels[i]].count += log->label_counts ? log->label_counts[i] : 1;
    qsort(order, m, sizeof *order, woi_by_count);
    for (size_t i = 0; i < m; i++) of[order[i].id] = (uint32_t)(i % n);
    woi_free(order);
    return WO_OK;
}

/* Everything of one shard but its last step. */
static wo_status write_shard(woi_st_writer *writer, const wo_layer *layer, const woi_shard *shard, size_t rows,
                             wo_error *err)
{
    const woi_dense *dense = &layer->dense;
    const size_t d = dense->d;
    char checksum[24];
    woi_names names = {0};
    snprintf(checksum, sizeof checksum, "%016" PRIx64, layer->checksum);
    wo_status status = woi_st_set_meta(writer, "layer.xxh3", checksum, err);
    if (!status) status = woi_shard_write(writer, shard, err);
    if (!status) status = woi_st_set_meta(writer, WOI_ST_NEEDS, "shards", err);
    if (!status) status = some_names(&layer->labels, shard->classes, rows, &names, err);
    if (!status) status = woi_st_declare(writer, "classes", WOI_I32, 1, &(uint64_t){rows}, err);
    if (!status) status = woi_st_declare(writer, "weight", WOI_F32, 2, (const uint64_t[]){rows, d}, err);
    if (!status && dense->b) status = woi_st_declare(writer, "bias", WOI_F32, 1, &(uint64_t){rows}, err);
    if (!status && names.n) status = woi_names_declare(writer, "labels", &names, err);
    if (!status) status = woi_st_append(writer, shard->classes, rows * sizeof *shard->classes, err);
    for (size_t i = 0; !status && i < rows; i++)
        status = woi_st_append(writer, dense->w + (size_t)shard->classes[i] * d, d * sizeof(float), err);
    for (size_t i = 0; !status && dense->b && i < rows; i++)
        status = woi_st_append(writer, dense->b + shard->classes[i], sizeof(float), err);
    if (!status && names.n) status = woi_names_write(writer, &names, err);
    woi_names_free(&names);
    return status;
}

/* Whether the file at `path` is this shard, complete: its dealing says which classes and names, its checksums that all
 * numbers are there. */
static bool is_there(const char *path, const wo_layer *layer, const woi_shard *shard)
{
    woi_st *st = NULL;
    woi_shard found = {0};
    char checksum[24];
    if (woi_st_open(path, &st, NULL)) return false;
    const char *kind = woi_st_kind(st), *whole = woi_st_meta(st, "layer.xxh3");
    const woi_tensor *classes = woi_st_find(st, "classes"), *weight = woi_st_find(st, "weight");
    snprintf(checksum, sizeof checksum, "%016" PRIx64, layer->checksum);
    bool fits = kind && strcmp(kind, "layer") == 0 && whole && strcmp(whole, checksum) == 0 && classes && weight &&
                weight->dtype == WOI_F32 && weight->n_dims == 2 && weight->shape[0] == classes->n &&
                !layer->dense.b == !woi_st_find(st, "bias") && !woi_shard_read(st, (size_t)classes->n, &found, NULL);
    fits = fits && found.number == shard->number && found.count == shard->count && found.m == shard->m &&
           found.dealing == shard->dealing && !woi_st_verify(st, NULL, NULL);
    woi_shard_free(&found);
    woi_st_free(st);
    return fits;
}

/* All shards of one dealing. */
typedef struct dealt {
    const wo_layer *layer;
    const uint32_t *of; /* (m) */
    int32_t *classes;   /* (m): scratch */
    size_t n;
    uint64_t dealing;
} dealt;

/* Writes shard s up to its name; *writer stays NULL where it is there already and `resume` says that it may stay. */
static wo_status save_shard(const dealt *all, const char *path, size_t s, bool resume, woi_st_writer **writer,
                            wo_error *err)
{
    const size_t m = all->layer->dense.m;
    const woi_shard shard = {
        .number = (uint32_t)s, .count = (uint32_t)all->n, .m = m, .classes = all->classes, .dealing = all->dealing};
    size_t rows = 0;
    for (size_t i = 0; i < m; i++)
        if (all->of[i] == s) all->classes[rows++] = (int32_t)i;
    if (resume && is_there(path, all->layer, &shard)) return WO_OK;
    wo_status status = woi_st_create(path, "layer", writer, err);
    if (!status) status = write_shard(*writer, all->layer, &shard, rows, err);
    return status ? status : woi_st_sync(*writer, err);
}

wo_status wo_layer_save_shards(const wo_layer *layer, const wo_log *log, const char *const *paths, size_t n, int resume,
                               wo_error *err)
{
    const size_t m = layer->dense.m;
    wo_status status = check_count(layer, n, err);
    if (!status && log) status = woi_about(err, WO_ABOUT_LOG, woi_log_check(log, m, layer->dense.d, err));
    if (!status) status = woi_outfiles_check(paths, n, resume ? 1 : n, "resume", err);
    if (status) return status;
    uint32_t *of = woi_alloc(m, sizeof *of, err);
    int32_t *classes = woi_alloc(m, sizeof *classes, err);
    woi_st_writer **writers = woi_alloc_zero(n, sizeof *writers, err);
    status = of && classes && writers ? deal(layer, log, n, of, err) : WO_ERR_MEMORY;
    const dealt all = {layer, of, classes, n, status ? 0 : digest(&layer->labels, m, of, n)};
    for (size_t s = 0; !status && s < n; s++) {
        status = save_shard(&all, paths[s], s, resume, &writers[s], err);
        if (status || !resume || !writers[s]) continue;
        status = woi_st_finish(writers[s], err);
        woi_st_writer_free(writers[s]);
        writers[s] = NULL;
    }
    sigset_t before;
    woi_outfiles_hold_signals(&before);
    for (size_t s = 0; !status && s < n; s++)
        if (writers[s]) status = woi_st_name(writers[s], err);
    for (size_t s = 0; !status && s < n; s++)
        if (writers[s]) status = woi_st_finish(writers[s], err);
    for (size_t s = 0; writers && s < n; s++) woi_st_writer_free(writers[s]); /* with their temporary names */
    woi_outfiles_let_signals(&before);
    woi_free(writers);
    woi_free(classes);
    woi_free(of);
    return status ? woi_about(err, WO_ABOUT_OUTPUT, status) : WO_OK;
}
