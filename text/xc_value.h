/* Numbers of the extreme-classification format, and what its files share. */
#ifndef WOI_TEXT_XC_VALUE_H
#define WOI_TEXT_XC_VALUE_H

#include "text/xc.h"

/* Writes the shortest text that reads back as `value` (exactly between 1e-15 and 9e15, else to 9 digits), without a
 * terminator; returns its length. */
#define WOI_XC_VALUE_BYTES 40
size_t woi_xc_format_value(float value, char text[WOI_XC_VALUE_BYTES]);

extern const double woi_xc_powers[23]; /* 10^0 .. 10^22, all exact */

static inline bool woi_is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* woi_xc_parse_value for what nearly all values look like, "0.1581" or "1": 1.3 times the reader's speed. Anything else
 * goes the general way. */
static inline const char *woi_xc_parse_value_fast(const char *text, float *value)
{
    uint64_t m = 0;
    const char *p = text;
    while (woi_is_digit(*p)) m = m * 10 + (uint64_t)(*p++ - '0');
    ptrdiff_t whole = p - text, decimals = 0;
    if (*p == '.') {
        const char *start = ++p;
        while (woi_is_digit(*p)) m = m * 10 + (uint64_t)(*p++ - '0');
        decimals = p - start;
    }
    if (whole == 0 || whole + decimals > 18 || (*p != ' ' && *p != '\n')) return woi_xc_parse_value(text, value);
    *value = (float)((double)m / woi_xc_powers[decimals]);
    return p;
}

#endif
