/* Names by line: see text/names_text.h. */
#include "text/names_text.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/text.h"

#include <inttypes.h>

wo_status woi_names_print(const woi_names *names, woi_outfile *out, wo_error *err)
{
    wo_status status = WO_OK;
    for (int32_t i = 0; !status && i < names->n; i++) {
        status = woi_outfile_write(out, woi_names_get(names, i), woi_names_bytes(names, i), err);
        if (!status) status = woi_outfile_write(out, "\n", 1, err);
    }
    return status;
}

/* The next name, NULL after the last; a byte order mark is no part of the first. */
static wo_status next_name(woi_text *text, char **name, size_t *bytes, wo_error *err)
{
    const wo_status status = woi_text_line(text, name, bytes, err);
    if (status || !*name || woi_text_line_number(text) > 1) return status;
    const size_t mark = woi_utf8_mark(*name, *bytes);
    *name += mark;
    *bytes -= mark;
    return WO_OK;
}

wo_status woi_names_read(const char *path, woi_names *names, wo_error *err)
{
    woi_text *text = NULL;
    wo_status status = woi_text_open(path, &text, err);
    while (!status) {
        char *line;
        size_t bytes;
        if ((status = next_name(text, &line, &bytes, err)) || !line) break;
        status = woi_utf8_valid(line, bytes) ? woi_names_append(names, line, bytes, err)
                                             : woi_fail(err, WO_ERR_FORMAT, woi_text_offset(text),
                                                        "line %" PRIu64 " is not UTF-8", woi_text_line_number(text));
    }
    woi_text_free(text);
    if (status) woi_names_free(names);
    return status;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

/* "Package: vim": letters and hyphens, a colon, a space. The names of our own features are "desc:for". */
static bool is_field(const char *line, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && (is_letter(line[i]) || line[i] == '-')) i++;
    return i > 0 && i < bytes && line[i] == ':' && (i + 1 == bytes || line[i + 1] == ' ');
}

/* Without a letter it may be a number, as of a product; then it has none of the signs between the numbers of a row. */
static bool is_name(const char *line, size_t bytes)
{
    bool letters = false, signs = bytes == 0;
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)line[i] < 0x20) return false;
        letters = letters || is_letter(line[i]);
        signs = signs || line[i] == ' ' || line[i] == ':' || line[i] == ',';
    }
    return (letters || !signs) && !is_field(line, bytes) && woi_utf8_valid(line, bytes);
}

bool woi_names_look(const char *path)
{
    woi_text *text = NULL;
    char *line = NULL;
    size_t bytes = 0;
    const bool first =
        !woi_text_open(path, &text, NULL) && !next_name(text, &line, &bytes, NULL) && line && is_name(line, bytes);
    bool letters = false;
    for (size_t i = 0; first && i < bytes; i++) letters = letters || is_letter(line[i]);
    const bool more =
        first && !next_name(text, &line, &bytes, NULL) && line && (letters || is_name(line, bytes)); /* sure enough */
    woi_text_free(text);
    return more;
}
