/* A data set of package stanzas: counts features and labels over all packages, keeps those that enough packages have,
 * numbers them by frequency, and writes the packages of a part as rows.
 *
 * Features and labels are two sides of the same work. While reading, a side holds
 *   entries   [id:count id:count | id:count | ...]   a package's names, ids in the order of first appearance
 *   indptr    where each package's entries begin
 * and after the last stanza the ids are exchanged for the final ones, rare names falling out. */
#include "text/deb822.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "text/xc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { STANZAS_PER_REPORT = 1024 };

typedef struct entry {
    int32_t id, count;
} entry;

typedef struct side {
    woi_names names;
    uint64_t *n_packages; /* that have name i */
    size_t *indptr;       /* of package i; one more than packages */
    entry *entries;
    size_t n_entries;
    size_t n_packages_capacity, indptr_capacity, entries_capacity;
} side;

struct woi_catalogue {
    side features, labels;
    unsigned char *part; /* of package i */
    size_t n, part_capacity;
    woi_catalogue_counts counts;
};

static void free_side(side *s)
{
    woi_names_free(&s->names);
    woi_free(s->n_packages);
    woi_free(s->indptr);
    woi_free(s->entries);
}

void woi_catalogue_free(woi_catalogue *c)
{
    if (!c) return;
    free_side(&c->features);
    free_side(&c->labels);
    woi_free(c->part);
    woi_free(c);
}

/* ---- One package ------------------------------------------------------------------------------------------- */

/* A woi_name_fn: one more occurrence in the current package. */
static wo_status add_name(void *ctx, const char *name, size_t bytes, wo_error *err)
{
    side *s = ctx;
    int32_t id;
    size_t known = (size_t)s->names.n;
    wo_status status = woi_grow(&s->n_packages, &s->n_packages_capacity, known, known + 1, sizeof *s->n_packages, err);
    if (!status)
        status = woi_grow(&s->entries, &s->entries_capacity, s->n_entries, s->n_entries + 1, sizeof(entry), err);
    if (!status) status = woi_names_add(&s->names, name, bytes, &id, err);
    if (status) return status;
    if ((size_t)id == known) s->n_packages[id] = 0;
    s->entries[s->n_entries++] = (entry){id, 1};
    return WO_OK;
}

static int by_id(const void *a, const void *b)
{
    int32_t x = ((const entry *)a)->id, y = ((const entry *)b)->id;
    return (x > y) - (x < y);
}

/* Ends package n: one entry a name, with its count. */
static wo_status end_package(side *s, size_t n, wo_error *err)
{
    wo_status status = woi_grow(&s->indptr, &s->indptr_capacity, n + 1, n + 2, sizeof *s->indptr, err);
    if (status) return status;
    size_t kept = s->indptr[n];
    if (s->n_entries > kept) qsort(s->entries + kept, s->n_entries - kept, sizeof(entry), by_id);
    for (size_t i = kept; i < s->n_entries; i++) {
        if (kept > s->indptr[n] && s->entries[kept - 1].id == s->entries[i].id) {
            s->entries[kept - 1].count++;
        } else {
            s->n_packages[s->entries[i].id]++;
            s->entries[kept++] = s->entries[i];
        }
    }
    s->n_entries = s->indptr[n + 1] = kept;
    return WO_OK;
}

static int part_of(woi_span package, uint64_t seed)
{
    uint64_t percent = (XXH3_64bits_withSeed(package.text, package.bytes, seed) >> 32) * 100 >> 32;
    return percent < 80 ? 0 : percent < 85 ? 1 : 2;
}

static wo_status add_stanza(woi_catalogue *c, woi_names *packages, const woi_stanza *stanza, uint64_t seed,
                            wo_error *err)
{
    const woi_span package = stanza->field[WOI_DEB822_PACKAGE];
    c->counts.n_stanzas++;
    if (package.bytes == 0) {
        c->counts.nameless++;
        return WO_OK;
    }
    int32_t id;
    wo_status status = woi_names_add(packages, package.text, package.bytes, &id, err);
    if (status) return status;
    if ((size_t)id < c->n) {
        c->counts.repeated++;
        return WO_OK;
    }
    if ((status = woi_grow(&c->part, &c->part_capacity, c->n, c->n + 1, 1, err)) ||
        (status = woi_deb822_features(stanza, add_name, &c->features, err)) ||
        (status = woi_deb822_labels(stanza, add_name, &c->labels, err)) ||
        (status = end_package(&c->features, c->n, err)) || (status = end_package(&c->labels, c->n, err)))
        return status;
    c->part[c->n++] = (unsigned char)part_of(package, seed);
    return WO_OK;
}

/* ---- All packages ------------------------------------------------------------------------------------------ */

/* Exchanges ids for final ones: names that `least` packages have, most frequent first. */
static wo_status renumber(side *s, size_t n, uint64_t least, wo_error *err)
{
    woi_names kept = {0};
    size_t n_names = (size_t)s->names.n;
    wo_status status = WO_ERR_MEMORY;
    int32_t *order = woi_alloc(n_names, sizeof *order, err), *final = woi_alloc(n_names, sizeof *final, err);
    if (!order || !final) goto done;
    status = WO_OK;
    woi_names_sort(&s->names, s->n_packages, order);
    for (size_t i = 0; !status && i < n_names; i++) {
        int32_t id = order[i];
        final[id] = -1;
        if (s->n_packages[id] < least) continue;
        final[id] = kept.n;
        status = woi_names_append(&kept, woi_names_get(&s->names, id), woi_names_bytes(&s->names, id), err);
    }
    if (status) goto done;
    size_t to = 0, from = 0;
    for (size_t i = 0; i < n; i++) {
        size_t begin = to;
        for (; from < s->indptr[i + 1]; from++)
            if (final[s->entries[from].id] >= 0)
                s->entries[to++] = (entry){final[s->entries[from].id], s->entries[from].count};
        if (to > begin) qsort(s->entries + begin, to - begin, sizeof(entry), by_id);
        s->indptr[i + 1] = to;
    }
    woi_names_free(&s->names);
    s->names = kept;
    kept = (woi_names){0};
done:
    woi_names_free(&kept);
    woi_free(order);
    woi_free(final);
    return status;
}

static bool is_kept(const woi_catalogue *c, size_t i)
{
    return c->labels.indptr[i + 1] > c->labels.indptr[i];
}

static wo_status finish(woi_catalogue *c, uint64_t min_features, uint64_t min_labels, wo_error *err)
{
    woi_catalogue_counts *counts = &c->counts;
    if (counts->n_stanzas == 0)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "holds no package stanza ('apt-cache dumpavail' prints them)");
    if (c->n == 0)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "none of its %" PRIu64 " stanzas has a Package field",
                        counts->n_stanzas);
    wo_status status = renumber(&c->features, c->n, min_features, err);
    if (!status) status = renumber(&c->labels, c->n, min_labels, err);
    if (status) return status;
    for (size_t i = 0; i < c->n; i++) {
        if (is_kept(c, i))
            counts->part[c->part[i]]++;
        else
            counts->unlabelled++;
    }
    counts->n_features = (uint64_t)c->features.names.n;
    counts->n_labels = (uint64_t)c->labels.names.n;
    if (counts->unlabelled == c->n)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "min_labels",
                              "none of its %zu packages needs one that %" PRIu64 " or more need", c->n, min_labels);
    return WO_OK;
}

wo_status woi_catalogue_read(const char *path, const woi_catalogue_options *options, woi_catalogue **result,
                             wo_error *err)
{
    woi_deb822 *reader = NULL;
    woi_names packages = {0};
    wo_status status = WO_ERR_MEMORY;
    woi_catalogue *c = woi_alloc_zero(1, sizeof *c, err);
    if (!c || !(c->features.indptr = woi_alloc_zero(1, sizeof(size_t), err)) ||
        !(c->labels.indptr = woi_alloc_zero(1, sizeof(size_t), err)))
        goto done;
    c->features.indptr_capacity = c->labels.indptr_capacity = 1;
    status = woi_deb822_open(path, &reader, err);
    for (bool more = true; !status && more;) {
        woi_stanza stanza;
        if ((status = woi_deb822_next(reader, &stanza, &more, err))) break;
        if (more) status = add_stanza(c, &packages, &stanza, options->seed, err);
        /* After the last one too: Ctrl-C also ends the program that fills the pipe, and what came is then not all. */
        if (!status && (!more || c->counts.n_stanzas % STANZAS_PER_REPORT == 0)) {
            uint64_t at, total;
            woi_deb822_position(reader, &at, &total);
            status = woi_progress(options->progress, "reading", at, total, err);
        }
    }
    if (!status) status = finish(c, options->min_features, options->min_labels, err);
    if (status) goto done;
    *result = c;
    c = NULL;
done:
    woi_deb822_free(reader);
    woi_names_free(&packages);
    woi_catalogue_free(c);
    return status;
}

const woi_catalogue_counts *woi_catalogue_get_counts(const woi_catalogue *c)
{
    return &c->counts;
}

const woi_names *woi_catalogue_features(const woi_catalogue *c)
{
    return &c->features.names;
}

const woi_names *woi_catalogue_labels(const woi_catalogue *c)
{
    return &c->labels.names;
}

/* ---- Writing ----------------------------------------------------------------------------------------------- */

typedef struct row_buffers {
    int32_t *labels, *features;
    float *values;
    size_t labels_capacity, features_capacity, values_capacity;
} row_buffers;

static wo_status fill_row(const woi_catalogue *c, size_t i, row_buffers *b, woi_xc_row *row, wo_error *err)
{
    const size_t label = c->labels.indptr[i], n_labels = c->labels.indptr[i + 1] - label;
    const size_t feature = c->features.indptr[i], n_features = c->features.indptr[i + 1] - feature;
    wo_status status;
    if ((status = woi_grow(&b->labels, &b->labels_capacity, 0, n_labels, sizeof *b->labels, err)) ||
        (status = woi_grow(&b->features, &b->features_capacity, 0, n_features, sizeof *b->features, err)) ||
        (status = woi_grow(&b->values, &b->values_capacity, 0, n_features, sizeof *b->values, err)))
        return status;
    for (size_t j = 0; j < n_labels; j++) b->labels[j] = c->labels.entries[label + j].id;
    for (size_t j = 0; j < n_features; j++) {
        b->features[j] = c->features.entries[feature + j].id;
        b->values[j] = (float)c->features.entries[feature + j].count;
    }
    *row = (woi_xc_row){n_labels, n_features, b->labels, b->features, b->values};
    return WO_OK;
}

wo_status woi_catalogue_write(const woi_catalogue *c, int part, woi_outfile *out, wo_error *err)
{
    const uint64_t header[] = {c->counts.part[part], c->counts.n_features, c->counts.n_labels};
    row_buffers buffers = {0};
    wo_status status = woi_xc_write_header(out, header, 3, err);
    for (size_t i = 0; !status && i < c->n; i++) {
        woi_xc_row row;
        if (c->part[i] != part || !is_kept(c, i)) continue;
        status = fill_row(c, i, &buffers, &row, err);
        if (!status) status = woi_xc_write_row(out, &row, err);
    }
    woi_free(buffers.labels);
    woi_free(buffers.features);
    woi_free(buffers.values);
    return status;
}
