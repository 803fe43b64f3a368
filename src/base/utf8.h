/* Is this text valid UTF-8? (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.) */
#ifndef WOI_BASE_UTF8_H
#define WOI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool woi_utf8_valid(const char *text, size_t bytes);

#endif
