/* Reading Debian package stanzas and taking features and labels out of them. See deb822.h for what these are. */
#include "text/deb822.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* ---- Stanzas ----------------------------------------------------------------------------------------------- */

static const char *const field_names[WOI_DEB822_N_FIELDS] = {
    "Package",     "Source",  "Section",     "Tag",        "Maintainer",
    "Description", "Depends", "Pre-Depends", "Recommends", "Suggests",
};

struct woi_deb822 {
    woi_text *text;
    char *buffer; /* the values of the current stanza's fields, one after the other */
    size_t used, capacity;
    size_t begin[WOI_DEB822_N_FIELDS], bytes[WOI_DEB822_N_FIELDS]; /* in buffer */
    bool present[WOI_DEB822_N_FIELDS];
};

wo_status woi_deb822_open(const char *path, woi_deb822 **result, wo_error *err)
{
    woi_text *text = NULL;
    wo_status status = woi_text_open(path, &text, err);
    return status ? status : woi_deb822_open_text(text, result, err);
}

wo_status woi_deb822_open_text(woi_text *text, woi_deb822 **result, wo_error *err)
{
    woi_deb822 *reader = woi_alloc_zero(1, sizeof *reader, err);
    if (!reader) {
        woi_text_free(text);
        return WO_ERR_MEMORY;
    }
    reader->text = text;
    *result = reader;
    return WO_OK;
}

void woi_deb822_free(woi_deb822 *reader)
{
    if (!reader) return;
    woi_text_free(reader->text);
    woi_free(reader->buffer);
    woi_free(reader);
}

void woi_deb822_position(const woi_deb822 *reader, uint64_t *done, uint64_t *total)
{
    woi_text_position(reader->text, done, total);
}

/* How many bytes the UTF-8 character at `text` has; 0 where there is none. */
static size_t character_bytes(const char *text, size_t bytes)
{
    unsigned char lead = (unsigned char)*text;
    size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return n <= bytes && woi_utf8_valid(text, n) ? n : 0;
}

static void clean(char *text, size_t bytes)
{
    for (size_t i = 0, n; i < bytes; i += n) {
        if (!(n = character_bytes(text + i, bytes - i))) {
            text[i] = '?';
            n = 1;
        } else if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            text[i] = ' ';
        }
    }
}

static woi_span trim(woi_span span)
{
    while (span.bytes > 0 && (*span.text == ' ' || *span.text == '\t')) span.text++, span.bytes--;
    while (span.bytes > 0 && (span.text[span.bytes - 1] == ' ' || span.text[span.bytes - 1] == '\t')) span.bytes--;
    return span;
}

static int find_field(const char *name, size_t bytes)
{
    for (int i = 0; i < WOI_DEB822_N_FIELDS; i++)
        if (strlen(field_names[i]) == bytes && strncasecmp(field_names[i], name, bytes) == 0) return i;
    /* "apt-cache show" names the language. */
    return bytes == 14 && strncasecmp(name, "Description-en", 14) == 0 ? WOI_DEB822_DESCRIPTION : -1;
}

/* Adds a line to a field's value, which is the last one in the buffer. */
static wo_status add_value(woi_deb822 *reader, int field, char *text, size_t bytes, wo_error *err)
{
    wo_status status = woi_grow(&reader->buffer, &reader->capacity, reader->used, reader->used + bytes + 1, 1, err);
    if (status) return status;
    clean(text, bytes);
    if (reader->bytes[field] > 0) reader->buffer[reader->used++] = ' ';
    memcpy(reader->buffer + reader->used, text, bytes);
    reader->used += bytes;
    reader->bytes[field] = reader->used - reader->begin[field];
    return WO_OK;
}

wo_status woi_deb822_next(woi_deb822 *reader, woi_stanza *stanza, bool *more, wo_error *err)
{
    enum { NONE = -2, OTHER = -1 }; /* besides the places of our fields */
    int field = NONE;
    char quoted[WOI_QUOTE_BYTES];
    memset(stanza, 0, sizeof *stanza);
    memset(reader->present, 0, sizeof reader->present);
    memset(reader->bytes, 0, sizeof reader->bytes);
    reader->used = 0;
    for (;;) {
        char *line;
        size_t bytes;
        wo_status status = woi_text_line(reader->text, &line, &bytes, err);
        if (status) return status;
        if (!line) break;
        if (bytes > 0 && *line == '#') continue;
        bool blank = trim((woi_span){line, bytes}).bytes == 0;
        if (blank && field == NONE) continue;
        if (blank) break;
        if (*line == ' ' || *line == '\t') {
            if (field == NONE)
                return woi_fail(err, WO_ERR_FORMAT, woi_text_offset(reader->text),
                                "line %" PRIu64 ": begins with a space, but there is no field to continue",
                                woi_text_line_number(reader->text));
            if (field == OTHER || field == WOI_DEB822_DESCRIPTION) continue;
            if ((status = add_value(reader, field, line, bytes, err))) return status;
            continue;
        }
        char *colon = memchr(line, ':', bytes);
        if (!colon || colon == line)
            return woi_fail(err, WO_ERR_FORMAT, woi_text_offset(reader->text),
                            "line %" PRIu64 ": expected 'Field: value', found '%s'", woi_text_line_number(reader->text),
                            woi_quote(quoted, line, bytes));
        field = find_field(line, (size_t)(colon - line));
        if (field >= 0 && reader->present[field]) field = OTHER;
        if (field < 0) continue;
        reader->present[field] = true;
        reader->begin[field] = reader->used;
        colon++;
        if ((status = add_value(reader, field, colon, (size_t)(line + bytes - colon), err))) return status;
    }
    *more = field != NONE;
    for (int i = 0; i < WOI_DEB822_N_FIELDS; i++)
        if (reader->present[i])
            stanza->field[i] = trim((woi_span){reader->buffer + reader->begin[i], reader->bytes[i]});
    return WO_OK;
}

/* ---- Features ---------------------------------------------------------------------------------------------- */

enum { MAX_NAME_BYTES = 200 };

/* A feature's name as it grows: "desc:" and a word. */
typedef struct naming {
    char text[16 + MAX_NAME_BYTES + 4];
    size_t prefix, bytes;
    woi_name_fn fn;
    void *ctx;
} naming;

static void begin_name(naming *name, const char *prefix)
{
    name->prefix = name->bytes = strlen(prefix);
    memcpy(name->text, prefix, name->prefix);
}

/* A name that has become too long stays so, and is left out. */
static void extend_name(naming *name, const char *text, size_t bytes)
{
    if (name->bytes + bytes > name->prefix + MAX_NAME_BYTES) {
        name->bytes = sizeof name->text;
        return;
    }
    if (bytes) memcpy(name->text + name->bytes, text, bytes);
    name->bytes += bytes;
}

/* Hands the name out, unless it is empty, and begins the next with the same prefix. */
static wo_status end_name(naming *name, wo_error *err)
{
    size_t bytes = name->bytes;
    name->bytes = name->prefix;
    if (bytes == name->prefix || bytes == sizeof name->text) return WO_OK;
    return name->fn(name->ctx, name->text, bytes, err);
}

static wo_status whole(naming *name, const char *prefix, woi_span span, wo_error *err)
{
    begin_name(name, prefix);
    extend_name(name, span.text, span.bytes);
    return end_name(name, err);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Is the character beyond ASCII a letter? Good enough for words: everything is, except the blocks of punctuation,
 * symbols and pictures. */
static bool is_letter(const char *text, size_t bytes)
{
    uint32_t code = (unsigned char)*text & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) code = code << 6 | ((unsigned char)text[i] & 0x3f);
    if (code < 0xc0) return code == 0xaa || code == 0xb5 || code == 0xba;
    return code != 0xd7 && code != 0xf7 && !(code >= 0x2000 && code < 0x2c00) && !(code >= 0x3000 && code < 0x3040) &&
           !(code >= 0xfe00 && code < 0xfe70) && !(code >= 0xfff0 && code < 0x10000) && code < 0x1f000;
}

static wo_status description_words(naming *name, const char *prefix, woi_span span, wo_error *err)
{
    begin_name(name, prefix);
    for (size_t i = 0, n; i < span.bytes; i += n) {
        const char *at = span.text + i;
        n = character_bytes(at, span.bytes - i); /* the reader made it valid */
        char lower = (char)(*at >= 'A' && *at <= 'Z' ? *at + 32 : *at);
        wo_status status = WO_OK;
        if (n > 1 && is_letter(at, n))
            extend_name(name, at, n);
        else if (n == 1 && (is_ascii_letter(lower) || is_digit(lower) || lower == '+'))
            extend_name(name, &lower, 1);
        else
            status = end_name(name, err);
        if (status) return status;
    }
    return end_name(name, err);
}

static wo_status name_parts(naming *name, woi_span span, wo_error *err)
{
    begin_name(name, "name:");
    for (size_t i = 0; i < span.bytes; i++) {
        char c = span.text[i];
        if (is_digit(c)) continue;
        if (!strchr("-.+_", c)) {
            extend_name(name, &c, 1);
            continue;
        }
        wo_status status = end_name(name, err);
        if (status) return status;
    }
    return end_name(name, err);
}

/* "source:" of "gtk4 (4.8.3)" is "gtk". */
static wo_status source_name(naming *name, woi_span span, wo_error *err)
{
    begin_name(name, "source:");
    for (size_t i = 0; i < span.bytes && span.text[i] != ' ' && span.text[i] != '('; i++)
        if (!is_digit(span.text[i])) extend_name(name, &span.text[i], 1);
    return end_name(name, err);
}

/* Takes the text up to one of the separators off the front of `rest`; false when nothing is left. */
static bool take_item(woi_span *rest, const char *separators, woi_span *item)
{
    if (!rest->text) return false;
    size_t n = 0;
    while (n < rest->bytes && !strchr(separators, rest->text[n])) n++;
    *item = trim((woi_span){rest->text, n});
    bool last = n == rest->bytes;
    *rest = last ? (woi_span){NULL, 0} : (woi_span){rest->text + n + 1, rest->bytes - n - 1};
    return true;
}

wo_status woi_deb822_features(const woi_stanza *stanza, woi_name_fn fn, void *ctx, wo_error *err)
{
    naming name = {.fn = fn, .ctx = ctx};
    const woi_span *field = stanza->field;
    const woi_span source = field[field[WOI_DEB822_SOURCE].bytes ? WOI_DEB822_SOURCE : WOI_DEB822_PACKAGE];
    wo_status status;
    if ((status = description_words(&name, "desc:", field[WOI_DEB822_DESCRIPTION], err)) ||
        (status = name_parts(&name, field[WOI_DEB822_PACKAGE], err)) ||
        (status = whole(&name, "section:", field[WOI_DEB822_SECTION], err)) ||
        (status = whole(&name, "maint:", field[WOI_DEB822_MAINTAINER], err)))
        return status;
    woi_span tags = field[WOI_DEB822_TAG], tag;
    while (take_item(&tags, ",", &tag))
        if ((status = whole(&name, "tag:", tag, err))) return status;
    return source_name(&name, source, err);
}

wo_status woi_deb822_words(const char *prefix, woi_span text, woi_name_fn fn, void *ctx, wo_error *err)
{
    naming name = {.fn = fn, .ctx = ctx};
    return description_words(&name, prefix, text, err);
}

/* ---- Labels ------------------------------------------------------------------------------------------------ */

/* "libc6:any (>= 2.34) [amd64]" names libc6; "${misc:Depends}" names nothing. */
static size_t package_name_bytes(woi_span relation)
{
    size_t n = 0;
    while (n < relation.bytes && !strchr(" (:[<", relation.text[n])) n++;
    for (size_t i = 0; i < n; i++) {
        char c = relation.text[i];
        if (!is_ascii_letter(c) && !is_digit(c) && (i == 0 || !strchr("+-._", c))) return 0;
    }
    return n <= MAX_NAME_BYTES ? n : 0;
}

wo_status woi_deb822_labels(const woi_stanza *stanza, woi_name_fn fn, void *ctx, wo_error *err)
{
    for (int i = WOI_DEB822_DEPENDS; i <= WOI_DEB822_SUGGESTS; i++) {
        woi_span rest = stanza->field[i], relation;
        while (take_item(&rest, ",|", &relation)) {
            size_t bytes = package_name_bytes(relation);
            wo_status status = bytes ? fn(ctx, relation.text, bytes, err) : WO_OK;
            if (status) return status;
        }
    }
    return WO_OK;
}
