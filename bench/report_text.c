/* Text and numbers for the page. */
#include "report_data.h"

#include <math.h>
#include <string.h>

/* One character of UTF-8 (which jansson has checked): its bytes, and the code point. */
static size_t next_character(const char *text, uint32_t *code)
{
    const unsigned char *c = (const unsigned char *)text;
    const size_t bytes = *c < 0x80 ? 1 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : 4;
    *code = bytes == 1 ? *c : *c & (0xffU >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if ((c[i] & 0xc0) != 0x80) { /* a path on the command line need not be UTF-8 */
            *code = 0;
            return 1;
        }
        *code = *code << 6 | (c[i] & 0x3f);
    }
    if (bytes > 1 && *c < 0xc2) *code = 0;
    return bytes;
}

static bool printable(uint32_t code)
{
    return code >= 0x20 && !(code >= 0x7f && code < 0xa0) && code != 0x200e && code != 0x200f &&
           !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069) &&
           !(code >= 0xd800 && code < 0xe000) && code != 0xfffe && code != 0xffff && code <= 0x10ffff;
}

void report_put_short(FILE *page, const char *text, size_t most)
{
    size_t n_left = 0, n = 0;
    uint32_t code;
    for (const char *c = text; *c && n_left <= most; n_left++) c += next_character(c, &code);
    const bool cut = n_left > most;
    for (size_t bytes; *text && n + cut < most; text += bytes, n++) {
        bytes = next_character(text, &code);
        if (!printable(code))
            fputc('?', page);
        else if (code == '<')
            fputs("&lt;", page);
        else if (code == '>')
            fputs("&gt;", page);
        else if (code == '&')
            fputs("&amp;", page);
        else if (code == '"')
            fputs("&quot;", page);
        else if (code == '\'')
            fputs("&#39;", page);
        else
            fwrite(text, 1, bytes, page);
    }
    if (cut) fputs("…", page);
}

void report_put_text(FILE *page, const char *text)
{
    report_put_short(page, text, 2000); /* longer is no title and no command */
}

void report_put_series(FILE *page, const report_series *series)
{
    report_put_short(page, series->method, 40);
    if (!series->variant) return;
    fputc(' ', page);
    report_put_short(page, series->variant, 40);
}

/* ---- Numbers ------------------------------------------------------------------------------------------------- */

static char *rotating(void)
{
    static char buffers[16][64];
    static unsigned next;
    return buffers[next++ % 16];
}

const char *report_count(double value)
{
    if (isnan(value)) return "–";
    char digits[48], *out = rotating(), *to = out;
    if (fabs(value) >= 1e15) {
        snprintf(out, 64, "%.3g", value);
        return out;
    }
    const int length = snprintf(digits, sizeof digits, "%.0f", value);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-') *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

const char *report_fixed(double value, int decimals)
{
    if (isnan(value)) return "–";
    char *out = rotating();
    snprintf(out, 64, fabs(value) < 1e15 ? "%.*f" : "%.*g", decimals, value);
    return out;
}

const char *report_digits(double value)
{
    if (value >= 999.5) return report_count(value);
    if (value != 0 && value < 0.0001) {
        char *out = rotating();
        snprintf(out, 64, "%.1e", value);
        return out;
    }
    return report_fixed(value, value >= 99.95                  ? 0
                               : value >= 9.995                ? 1
                               : value >= 0.9995 || value == 0 ? 2
                               : value >= 0.1                  ? 3
                                                               : 4);
}

const char *report_times(double value)
{
    if (isnan(value)) return "–";
    char *out = rotating();
    snprintf(out, 64, "%s×", value >= 99.5 ? report_count(value) : report_fixed(value, value < 1 ? 2 : 1));
    return out;
}
