/* Checking UTF-8, a character at a time. */
#include "base/utf8.h"

#include <stdint.h>

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
