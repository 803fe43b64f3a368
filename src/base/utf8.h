/* Is this text valid UTF-8? (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.) */
#ifndef WOI_BASE_UTF8_H
#define WOI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool woi_utf8_valid(const char *text, size_t bytes);

/* How many bytes the byte order mark has that some editors put before text: 3, or 0 where there is none. */
size_t woi_utf8_mark(const char *text, size_t bytes);

/* How many bytes the character at `text` has, and which it is; 0: there is none. */
size_t woi_utf8_next(const char *text, size_t bytes, uint32_t *code);

/* C0, DEL and C1, some of which begin sequences that terminals obey; what turns the direction of writing or ends a line
 * (Unicode's Bidi_Control, and 2028, 2029): with it a name can show as another. */
bool woi_is_unfit(uint32_t code);

#endif
