/* Text from a file or standard input, plain or gzip, in pieces or by line. */
#ifndef WOI_TEXT_TEXT_H
#define WOI_TEXT_TEXT_H

#include "wideout.h"

#include <stdbool.h>

/* The longest line: a row of a million features takes a quarter of it. */
#define WOI_TEXT_LINE_BYTES ((size_t)64 << 20)

typedef struct woi_text woi_text;

/* "-" is standard input. */
wo_status woi_text_open(const char *path, woi_text **text, wo_error *err);
/* A copy of text in memory, as it is: not unpacked, and never rewound. */
wo_status woi_text_open_memory(const char *from, size_t bytes, woi_text **text, wo_error *err);
void woi_text_free(woi_text *text);

/* From the start again: the same file, also where another has taken its name. Not for standard input. */
wo_status woi_text_rewind(woi_text *text, wo_error *err);

/* Reads more behind what is unread, and gives all of that: at least one byte more than before, unless the text is at
 * its end (woi_text_at_end). Valid until the next call. */
wo_status woi_text_fill(woi_text *text, const char **unread, size_t *bytes, wo_error *err);
bool woi_text_at_end(const woi_text *text);

/* What is unread, without reading more: perhaps nothing. */
void woi_text_unread(const woi_text *text, const char **unread, size_t *bytes);

/* The first `bytes` of what is unread have been read. */
void woi_text_take(woi_text *text, size_t bytes);

/* Takes the next line, without its "\n" or "\r\n"; NULL after the last. The caller may write on it and on the byte
 * behind it, which is '\r' or '\n' (also where the last line lacks one); it is valid until the next call. A line over
 * WOI_TEXT_LINE_BYTES is an error, told when so much of it has been read. */
wo_status woi_text_line(woi_text *text, char **line, size_t *bytes, wo_error *err);

bool woi_text_line_ended(const woi_text *text); /* whether the last line taken had its "\n" */

uint64_t woi_text_offset(const woi_text *text);      /* of what is unread, in unpacked bytes */
uint64_t woi_text_line_number(const woi_text *text); /* of the last line taken, from 1 */
void woi_text_position(const woi_text *text, uint64_t *done, uint64_t *total); /* in the file; total 0 for a pipe */

#endif
