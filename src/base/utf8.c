/* Checking UTF-8, a character at a time. */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

bool woi_utf8_valid(const char *text, size_t bytes)
{
    static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text, *end = p + bytes;
    while (p < end) {
        unsigned char lead = *p++;
        if (lead < 0x80) continue;
        size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || (size_t)(end - p) < more) return false;
        uint32_t code = lead & (0x3fu >> more);
        for (size_t i = 0; i < more; i++) {
            if ((p[i] & 0xc0) != 0x80) return false;
            code = code << 6 | (p[i] & 0x3f);
        }
        if (code < smallest[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
        p += more;
    }
    return true;
}

size_t woi_utf8_mark(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

size_t woi_utf8_next(const char *text, size_t bytes, uint32_t *code)
{
    const unsigned char lead = bytes ? (unsigned char)*text : 0;
    const size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (n > bytes || !woi_utf8_valid(text, n)) return 0;
    *code = n == 1 ? lead : lead & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) *code = *code << 6 | ((unsigned char)text[i] & 0x3f);
    return n;
}

bool woi_is_unfit(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}
