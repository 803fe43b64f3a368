/* Text that grows: see out.h. */
#include "out.h"

#include "net/net.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void woi_out_free(woi_out *out)
{
    free(out->text);
    *out = (woi_out){0};
}

void *woi_out_take(woi_out *out, size_t bytes)
{
    if (out->failed) return NULL;
    if (bytes > out->room - out->bytes) {
        size_t room = out->room ? out->room : 256;
        while (room - out->bytes < bytes) {
            if (room > SIZE_MAX / 2) {
                out->failed = true;
                return NULL;
            }
            room *= 2;
        }
        char *text = realloc(out->text, room);
        if (!text) {
            out->failed = true;
            return NULL;
        }
        out->text = text;
        out->room = room;
    }
    out->bytes += bytes;
    return out->text + out->bytes - bytes;
}

void woi_out_bytes(woi_out *out, const void *data, size_t bytes)
{
    void *to = bytes ? woi_out_take(out, bytes) : NULL;
    if (to) memcpy(to, data, bytes);
}

void woi_out_text(woi_out *out, const char *text)
{
    woi_out_bytes(out, text, strlen(text));
}

void woi_out_format(woi_out *out, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0) woi_out_bytes(out, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static bool is_plain(char c, const char *escaped)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x7f && !strchr(escaped, c);
}

/* What is unfit for a terminal or a log as \u escapes, which are JSON too; `escaped`: what has a backslash before it;
 * `wrong`: in place of a byte that is no UTF-8. */
static void write_clean(woi_out *out, const char *text, size_t bytes, const char *escaped, const char *wrong)
{
    for (const char *end = text + bytes; text < end;) {
        const char *plain = text;
        while (text < end && is_plain(*text, escaped)) text++;
        woi_out_bytes(out, plain, (size_t)(text - plain));
        if (text == end) return;
        uint32_t code = 0;
        const size_t n = woi_utf8_next(text, (size_t)(end - text), &code);
        if (!n)
            woi_out_text(out, wrong);
        else if (woi_is_unfit(code))
            woi_out_format(out, "\\u%04x", (unsigned)code);
        else {
            if (n == 1) woi_out_text(out, "\\"); /* one of `escaped` */
            woi_out_bytes(out, text, n);
        }
        text += n ? n : 1;
    }
}

void woi_out_clean(woi_out *out, const char *text, size_t bytes)
{
    write_clean(out, text, bytes, "", "?");
}

void woi_out_json(woi_out *out, const char *text, size_t bytes)
{
    woi_out_bytes(out, "\"", 1);
    write_clean(out, text, bytes, "\"\\", "\xef\xbf\xbd");
    woi_out_bytes(out, "\"", 1);
}

void woi_out_json_text(woi_out *out, const char *text)
{
    woi_out_json(out, text, strlen(text));
}

void woi_out_float(woi_out *out, float value)
{
    if (isfinite(value))
        woi_out_format(out, "%.9g", (double)value);
    else
        woi_out_text(out, "null");
}
