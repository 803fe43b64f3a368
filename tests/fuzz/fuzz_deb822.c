/* Any bytes as package stanzas: refused with a sentence, or names that keep every promise and rows that the strict
 * reader of the text format takes back. */
#include "fuzz.h"

#include "base/utf8.h"
#include "text/deb822.h"
#include "text/xc.h"

#include <string.h>

enum { MAX_NAME = 200, LONGEST_PREFIX = 8 };

/* One line of UTF-8 without control characters. */
static void check_text(const char *text, size_t bytes)
{
    if (!woi_utf8_valid(text, bytes)) abort();
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) abort();
}

static wo_status check_feature(void *ctx, const char *name, size_t bytes, wo_error *err)
{
    static const char *const prefixes[] = {"desc:", "name:", "section:", "maint:", "tag:", "source:"};
    (void)ctx, (void)err;
    check_text(name, bytes);
    if (bytes > LONGEST_PREFIX + MAX_NAME) abort();
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (bytes > strlen(prefixes[i]) && memcmp(name, prefixes[i], strlen(prefixes[i])) == 0) return WO_OK;
    abort();
}

static wo_status check_label(void *ctx, const char *name, size_t bytes, wo_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._";
    (void)ctx, (void)err;
    if (bytes < 1 || bytes > MAX_NAME || !memchr(allowed, name[0], sizeof allowed - 1 - strlen("+-._"))) abort();
    for (size_t i = 0; i < bytes; i++)
        if (!memchr(allowed, name[i], sizeof allowed - 1)) abort();
    return WO_OK;
}

static void read_stanzas(const char *path)
{
    woi_deb822 *reader = NULL;
    wo_error err = {0};
    bool more = true;
    if (woi_deb822_open(path, &reader, &err)) {
        if (!err.text[0]) abort();
        return;
    }
    while (more) {
        woi_stanza stanza;
        if (woi_deb822_next(reader, &stanza, &more, &err)) {
            if (!err.text[0] || strchr(err.text, '\n')) abort();
            break;
        }
        for (int i = 0; i < WOI_DEB822_N_FIELDS; i++) {
            const woi_span field = stanza.field[i];
            if (!field.text) continue;
            if (!more) abort();
            check_text(field.text, field.bytes);
            if (field.bytes && (field.text[0] == ' ' || field.text[field.bytes - 1] == ' ')) abort();
        }
        if (woi_deb822_features(&stanza, check_feature, NULL, &err) ||
            woi_deb822_labels(&stanza, check_label, NULL, &err))
            abort();
    }
    woi_deb822_free(reader);
}

/* The part is a canonical file, every row of it with a label. */
static void check_part(const woi_catalogue *catalogue, int part)
{
    const woi_catalogue_counts *counts = woi_catalogue_get_counts(catalogue);
    char path[64];
    woi_outfile *out = NULL;
    woi_xc *xc = NULL;
    woi_xc_row row;
    bool more = true;
    uint64_t n = 0;
    fuzz_output(path);
    if (woi_outfile_create(path, &out, NULL) || woi_catalogue_write(catalogue, part, out, NULL) ||
        woi_outfile_commit(out, NULL))
        abort();
    woi_outfile_free(out);
    if (woi_xc_open(path, &(woi_xc_options){0}, &xc, NULL)) abort();
    const woi_xc_shape *shape = woi_xc_get_shape(xc);
    if (shape->n_features != counts->n_features || shape->n_labels != counts->n_labels) abort();
    for (;; n++) {
        if (woi_xc_next(xc, &row, &more, NULL)) abort();
        if (!more) break;
        if (row.n_labels == 0) abort();
        for (size_t i = 0; i < row.n_features; i++)
            if (row.values[i] < 1) abort();
    }
    if (n != counts->part[part]) abort();
    woi_xc_free(xc);
    unlink(path);
}

static void read_catalogue(const char *path, uint64_t least)
{
    woi_catalogue *catalogue = NULL;
    wo_error err = {0};
    if (woi_catalogue_read(path, &(woi_catalogue_options){.min_features = least, .min_labels = least, .seed = 1},
                           &catalogue, &err)) {
        if (!err.text[0] || strchr(err.text, '\n')) abort();
        return;
    }
    const woi_catalogue_counts *c = woi_catalogue_get_counts(catalogue);
    if (c->part[0] + c->part[1] + c->part[2] + c->unlabelled + c->repeated + c->nameless != c->n_stanzas) abort();
    const woi_names *const names[] = {woi_catalogue_features(catalogue), woi_catalogue_labels(catalogue)};
    for (int side = 0; side < 2; side++)
        for (int32_t i = 0; i < names[side]->n; i++)
            if (woi_names_find(names[side], woi_names_get(names[side], i), woi_names_bytes(names[side], i)) != i)
                abort();
    for (int part = 0; part < WOI_DEB822_PARTS; part++) check_part(catalogue, part);
    woi_catalogue_free(catalogue);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[32];
    int fd = fuzz_file(data, bytes, path);
    read_stanzas(path);
    read_catalogue(path, 1);
    read_catalogue(path, 2);
    close(fd);
    return 0;
}
