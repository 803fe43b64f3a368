/* Text that grows: see out.h. */
#include "out.h"

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

/* The bytes of the UTF-8 character at `text`; 0 where it is none. */
static size_t character(const unsigned char *text, size_t bytes)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (text[0] < 0x80) return 1;
    const size_t n = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4 || n > bytes) return 0;
    unsigned code = text[0] & (0xffU >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3fU);
    }
    return code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

void woi_out_json(woi_out *out, const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    woi_out_bytes(out, "\"", 1);
    for (size_t left = bytes; left;) {
        size_t plain = 0, n = 1;
        while (plain < left && at[plain] >= 0x20 && at[plain] < 0x7f && at[plain] != '"' && at[plain] != '\\') plain++;
        woi_out_bytes(out, at, plain);
        at += plain;
        left -= plain;
        if (!left) break;
        if (*at == '"' || *at == '\\')
            woi_out_format(out, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            woi_out_format(out, "\\u%04x", *at);
        else if ((n = character(at, left)))
            woi_out_bytes(out, at, n);
        else
            woi_out_bytes(out, "\xef\xbf\xbd", 3);
        n = n ? n : 1;
        at += n;
        left -= n;
    }
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
