/* Text that grows: bodies of answers, JSON among them. */
#ifndef WOI_SERVE_OUT_H
#define WOI_SERVE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed one is empty. `text` is malloc's, so that the HTTP library can free it. Where memory ran out `failed` is
 * set, and all that follows is left out. */
typedef struct woi_out {
    char *text;
    size_t bytes, room;
    bool failed;
} woi_out;

void woi_out_free(woi_out *out);
/* Room for `bytes` more, which the caller writes: NULL where memory ran out. */
void *woi_out_take(woi_out *out, size_t bytes);
void woi_out_bytes(woi_out *out, const void *data, size_t bytes);
void woi_out_text(woi_out *out, const char *text);
void woi_out_format(woi_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For a terminal or a log: characters of control, of line ends and of the direction of writing as \\u001b, bytes that
 * are no UTF-8 as a question mark. */
void woi_out_clean(woi_out *out, const char *text, size_t bytes);
/* In quotes, escaped, for a terminal or a log too; bytes that are no UTF-8 become U+FFFD. */
void woi_out_json(woi_out *out, const char *text, size_t bytes);
void woi_out_json_text(woi_out *out, const char *text);
/* A float in nine digits; what is not finite, which JSON has no word for, as null. */
void woi_out_float(woi_out *out, float value);

#endif
