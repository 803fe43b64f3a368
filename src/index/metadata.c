/* Metadata of an index: see metadata.h and docs/FORMAT.md. An option that the file lacks has its default, which is what
 * indexes did before there was the option, or what the late ones say that they did. A line that this version does
 * not know is a later version's: it is left alone, and written again. */
#include "index/metadata.h"

#include "base/c_locale.h"
#include "base/error.h"
#include "index/options.h"
#include "store/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "index."

/* Of a tuned index, in wo_index itself. */
typedef struct tuned {
    const char *key;
    enum { REAL, U32, U64 } kind;
    size_t offset;
    bool late; /* the first files did not have it: not written where it is 0 */
} tuned;

static const tuned tuned_lines[] = {
    {"tune.target", REAL, offsetof(wo_index, goal.target), false},
    {"tune.target5", REAL, offsetof(wo_index, goal.target5), false},
    {"tune.target_agree", REAL, offsetof(wo_index, goal.target_agree), false},
    {"tune.target_us", REAL, offsetof(wo_index, goal.target_us), false},
    {"tune.k", U32, offsetof(wo_index, goal.k), false},
    {"tune.batch", U32, offsetof(wo_index, goal.batch), false},
    {"tune.queries", U64, offsetof(wo_index, goal.n), false},
    {"tune.proof", U32, offsetof(wo_index, goal.proof), true},
    {"tune.labelled", U64, offsetof(wo_index, goal.labelled), true},
    {"tune.needed", U64, offsetof(wo_index, goal.needed), true},
    {"tune.built_from", U64, offsetof(wo_index, goal.built_from), true},
    {"tune.held_out", U64, offsetof(wo_index, goal.held_out), true},
    {"tune.provable", U32, offsetof(wo_index, goal.provable), true},
    {"tune.changed", U64, offsetof(wo_index, goal.changed), true},
    {"tune.full_from", U32, offsetof(wo_index, full.from), false},
    {"tune.full_to", U32, offsetof(wo_index, full.to), false},
};
enum { N_TUNED = sizeof tuned_lines / sizeof *tuned_lines, KEY_BYTES = 48 };

/* Whether a line is of an option or a goal that this version does not have. */
static bool is_unknown(const char *key)
{
    if (strncmp(key, OPTION, strlen(OPTION)) == 0) return !woi_option_find(key + strlen(OPTION));
    if (strncmp(key, "tune.", strlen("tune.")) != 0) return false;
    for (size_t i = 0; i < N_TUNED; i++)
        if (strcmp(key, tuned_lines[i].key) == 0) return false;
    return true;
}

/* ---- Writing ----------------------------------------------------------------------------------------------- */

static wo_status write_tuned(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < N_TUNED; i++) {
        const void *at = (const char *)index + tuned_lines[i].offset;
        if (tuned_lines[i].late && (tuned_lines[i].kind == U32 ? *(const uint32_t *)at : *(const uint64_t *)at) == 0)
            continue;
        char text[WOI_OPTION_BYTES];
        switch (tuned_lines[i].kind) {
        case REAL: snprintf(text, sizeof text, "%.17g", *(const double *)at); break;
        case U32: snprintf(text, sizeof text, "%" PRIu32, *(const uint32_t *)at); break;
        case U64: snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)at); break;
        }
        status = woi_st_set_meta(writer, tuned_lines[i].key, text, err);
    }
    return status;
}

static wo_status write_lines(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    wo_status status = WO_OK;
    for (const woi_option *o = woi_options; !status && o->name; o++) {
        char key[KEY_BYTES], text[WOI_OPTION_BYTES];
        const wo_build_options *all = &index->options;
        if (o->late && (!woi_option_used(o, all) || woi_option_value(o, all) == o->missing)) continue;
        snprintf(key, sizeof key, OPTION "%s", o->name);
        woi_option_print(o, &index->options, text);
        status = woi_st_set_meta(writer, key, text, err);
    }
    if (!status && index->n_curve) status = write_tuned(writer, index, err);
    const char *key, *value;
    for (void *cursor = NULL; !status && index->st && woi_st_meta_next(index->st, &cursor, &key, &value);)
        if (is_unknown(key)) status = woi_st_set_meta(writer, key, value, err);
    return status;
}

uint32_t woi_tree_even(const wo_index *index)
{
    const woi_tree *tree = &index->tree;
    const uint32_t leaves = index->options.leaves;
    for (size_t a = 0; a <= tree->A; a++)
        if (!tree->starts || tree->starts[a] != a * leaves) return 0;
    return leaves;
}

/* What older readers do not have. */
static wo_status write_needs(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    const struct {
        const char *name;
        bool needed;
    } all[] = {
        {"mixture", woi_has_mixture(index)},
        {"partition", index->partition.numbers != NULL},
        {"prior", index->options.prior > 0},
        {"removed", index->n_removed > 0},
        {"screen-fallback", woi_screens_little(&index->options)},
        {"shards", index->shard.count},
        {"uneven-tree", index->tree.A && !woi_tree_even(index)},
    };
    char text[80] = "";
    int used = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].needed)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", used ? "," : "", all[i].name);
    return *text ? woi_st_set_meta(writer, WOI_ST_NEEDS, text, err) : WO_OK;
}

wo_status woi_meta_write(woi_st_writer *writer, const wo_index *index, wo_error *err)
{
    char m[24], d[24], checksum[24];
    const woi_c_locale own = woi_c_locale_enter();
    wo_status status = write_lines(writer, index, err);
    woi_c_locale_leave(own);
    if (!status) status = write_needs(writer, index, err);
    snprintf(m, sizeof m, "%zu", index->rows.m);
    snprintf(d, sizeof d, "%zu", index->rows.d);
    snprintf(checksum, sizeof checksum, "%016" PRIx64, index->layer_checksum);
    if (!status) status = woi_st_set_meta(writer, "layer.m", m, err);
    if (!status) status = woi_st_set_meta(writer, "layer.d", d, err);
    if (!status) status = woi_st_set_meta(writer, "layer.xxh3", checksum, err);
    return status ? status : woi_shard_write(writer, &index->shard, err);
}

/* ---- Reading ----------------------------------------------------------------------------------------------- */

static wo_status absent(const char *key, wo_error *err)
{
    return woi_fail(err, WO_ERR_FORMAT, 8, "the metadata has no '%s'", key);
}

static wo_status unknown_value(const woi_st *st, const char *key, const char *text, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES], version[WOI_QUOTE_BYTES];
    const char *by = woi_st_version(st);
    return woi_fail(err, WO_ERR_FORMAT, 8,
                    "'%s' is \"%s\", which wideout %s does not know: the file was written by wideout %s", key,
                    woi_quote(quoted, text, strlen(text)), wo_version(), woi_quote(version, by, strlen(by)));
}

static wo_status read_options(const woi_st *st, wo_build_options *options, wo_error *err)
{
    const woi_option *method = &woi_options[0];
    const char *text = woi_st_meta(st, OPTION "method");
    if (!text) return absent(OPTION "method", err);
    if (!woi_option_parse(method, text, options)) return unknown_value(st, OPTION "method", text, err);
    *options = woi_build_defaults(options->method);
    for (const woi_option *o = method + 1; o->name; o++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, OPTION "%s", o->name);
        text = woi_st_meta(st, key);
        if (text && !woi_option_parse(o, text, options)) return unknown_value(st, key, text, err);
        if (!text && o->late && woi_option_used(o, options)) woi_option_set_value(o, o->missing, options);
    }
    return WO_OK;
}

static bool parse_count(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return !errno && !*end && *value <= most;
}

static bool parse_tuned(const tuned *line, const char *text, void *at)
{
    uint64_t count;
    char *end;
    if (line->kind == REAL) {
        *(double *)at = strtod(text, &end);
        return end != text && !*end && isfinite(*(double *)at);
    }
    if (!parse_count(text, line->kind == U32 ? UINT32_MAX : UINT64_MAX, &count)) return false;
    if (line->kind == U32)
        *(uint32_t *)at = (uint32_t)count;
    else
        *(uint64_t *)at = count;
    return true;
}

static wo_status read_tuned(wo_index *index, wo_error *err)
{
    for (size_t i = 0; i < N_TUNED; i++) {
        const char *text = woi_st_meta(index->st, tuned_lines[i].key);
        if (text && !parse_tuned(&tuned_lines[i], text, (char *)index + tuned_lines[i].offset))
            return unknown_value(index->st, tuned_lines[i].key, text, err);
    }
    if (index->full.to && index->full.to < index->full.from)
        return woi_fail(err, WO_ERR_FORMAT, 8, "'tune.full_to' is %u, below 'tune.full_from', %u", index->full.to,
                        index->full.from);
    return WO_OK;
}

static wo_status read_layer(wo_index *index, wo_error *err)
{
    static const char *const keys[] = {"layer.m", "layer.d"};
    size_t *const to[] = {&index->rows.m, &index->rows.d};
    const char *text;
    for (int i = 0; i < 2; i++) {
        uint64_t value;
        if (!(text = woi_st_meta(index->st, keys[i]))) return absent(keys[i], err);
        if (!parse_count(text, INT32_MAX, &value) || value < 1) return unknown_value(index->st, keys[i], text, err);
        *to[i] = value;
    }
    if (!(text = woi_st_meta(index->st, "layer.xxh3"))) return absent("layer.xxh3", err);
    index->layer_checksum = strtoull(text, NULL, 16);
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16
               ? WO_OK
               : unknown_value(index->st, "layer.xxh3", text, err);
}

wo_status woi_meta_read(wo_index *index, wo_error *err)
{
    const woi_c_locale own = woi_c_locale_enter();
    wo_status status = read_options(index->st, &index->options, err);
    if (!status && woi_st_find(index->st, "curve")) status = read_tuned(index, err);
    woi_c_locale_leave(own);
    if (!status) status = read_layer(index, err);
    if (status || !woi_build_check(&index->options, err)) return status;
    const char *by = woi_st_version(index->st);
    if (strcmp(by, wo_version()) != 0) { /* which may have known more */
        char quoted[WOI_QUOTE_BYTES], place[WOI_QUOTE_BYTES + 32];
        snprintf(place, sizeof place, "written by wideout %s", woi_quote(quoted, by, strlen(by)));
        woi_error_prefix(err, place);
    }
    if (err) { /* the file's fault, not the caller's */
        err->status = WO_ERR_FORMAT;
        err->about = WO_ABOUT_INDEX;
    }
    return WO_ERR_FORMAT;
}
