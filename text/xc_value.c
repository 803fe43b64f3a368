/* Numbers of the extreme-classification format, both ways, in any locale.
 *
 * Reading: the digits make a whole number m and a decimal exponent e; the value is m * 10^e in double, then rounded to
 * float. Up to 19 digits m is exact and up to 22 so is 10^|e|: one rounding to double, one to float, at most 1 ulp from
 * strtof. Larger exponents multiply in steps of 10^22, each off by at most 2^-53 of the value: no ulp of a float
 * either. */
#include "store/store.h"
#include "text/xc_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const double woi_xc_powers[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static double scale(double value, long exponent)
{
    for (; exponent >= 22 && value < 1e300; exponent -= 22) value *= 1e22;
    for (; exponent <= -22 && value > 0; exponent += 22) value /= 1e22;
    if (exponent >= 22 || value == 0) return value; /* beyond every float already, or nothing left */
    return exponent >= 0 ? value * woi_xc_powers[exponent] : value / woi_xc_powers[-exponent];
}

const char *woi_xc_parse_value(const char *p, float *value)
{
    bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    uint64_t m = 0;
    long exponent = 0;
    int room = 19; /* digits that m still holds exactly */
    const char *start = p;
    for (; woi_is_digit(*p); p++) {
        if (room > 0) {
            m = m * 10 + (uint64_t)(*p - '0');
            room -= m != 0; /* leading zeros are free */
        } else {
            exponent++;
        }
    }
    ptrdiff_t n_digits = p - start;
    if (*p == '.') {
        start = ++p;
        for (; woi_is_digit(*p); p++) {
            if (room > 0) {
                m = m * 10 + (uint64_t)(*p - '0');
                room -= m != 0;
                exponent--;
            }
        }
        n_digits += p - start;
    }
    if (n_digits == 0) return NULL;
    if (*p == 'e' || *p == 'E') {
        p++;
        bool minus = *p == '-';
        if (*p == '-' || *p == '+') p++;
        if (!woi_is_digit(*p)) return NULL;
        long stated = 0;
        for (; woi_is_digit(*p); p++)
            if (stated < 100000000) stated = stated * 10 + (*p - '0');
        exponent += minus ? -stated : stated;
    }
    double magnitude = exponent == 0 ? (double)m : scale((double)m, exponent);
    float result = (float)magnitude;
    if (!isfinite(result)) return NULL;
    *value = negative ? -result : result;
    return p;
}

size_t woi_xc_format_value(float value, char text[WOI_XC_VALUE_BYTES])
{
    /* The fewest decimals whose m / 10^decimals, which is just what reading computes, is this float. */
    double magnitude = fabs((double)value);
    for (int decimals = 0; decimals <= 22; decimals++) {
        double m = nearbyint(magnitude * woi_xc_powers[decimals]);
        if (m >= 0x1p53) break;
        if ((float)(m / woi_xc_powers[decimals]) != (float)magnitude) continue;
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%0*.0f", decimals + 1, m);
        int whole = n - decimals;
        char *to = text;
        if (signbit(value)) *to++ = '-';
        memcpy(to, digits, (size_t)whole);
        to += whole;
        if (decimals) {
            *to++ = '.';
            memcpy(to, digits + whole, (size_t)decimals);
            to += decimals;
        }
        return (size_t)(to - text);
    }
    int n = snprintf(text, WOI_XC_VALUE_BYTES, "%.9g", (double)value);
    for (int i = 0; i < n; i++)
        if (text[i] == ',') text[i] = '.'; /* the locale's decimal sign */
    return (size_t)n;
}
