/* Filling a wo_error: one sentence, with the place and the offending value. */
#ifndef WOI_BASE_ERROR_H
#define WOI_BASE_ERROR_H

#include "wideout.h"

/* Writes the sentence (printf style) and gives `status`, so that failing reads `return woi_fail(err, ...)`. `err` may
 * be NULL. `offset` is a byte position or WO_NO_OFFSET. A sentence that does not fit ends in "...". Macros, so that
 * compilers and analysers see the constant status and know that it is not WO_OK. */
#define woi_fail(err, status, offset, ...) (woi_error_set((err), (status), (offset), __VA_ARGS__), (status))

/* "the file cannot be opened: No such file or directory": `what` and the text of `errnum`; gives WO_ERR_IO. */
#define woi_fail_errno(err, what, errnum) (woi_error_set_errno((err), (what), (errnum)), WO_ERR_IO)

/* The same about a thing, and the option that is wrong or would help ("": none). */
#define woi_fail_about(err, status, about, option, ...) \
    (woi_error_set((err), (status), WO_NO_OFFSET, __VA_ARGS__), woi_error_option((err), (about), (option)), (status))

/* "lambda is 3, expected 0 to 2": the option itself is wrong. */
#define woi_fail_option(err, status, option, ...) woi_fail_about(err, status, WO_ABOUT_OPTION, option, __VA_ARGS__)

/* "lambda is 3, expected 0 to 2", unless it is; NaN never is. */
wo_status woi_check_range(const char *name, double value, double low, double high, wo_error *err);

/* Hands `status` on. A failure that does not say what it is about yet is about this: an outer caller that knows which
 * of its things an inner one was given. */
wo_status woi_about(wo_error *err, wo_about about, wo_status status);

/* Sets what the failure in `err` is about, and its option. */
void woi_error_option(wo_error *err, wo_about about, const char *option);

void woi_error_set(wo_error *err, wo_status status, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void woi_error_set_errno(wo_error *err, const char *what, int errnum);

/* "No such file or directory": in `text`, or static. From any thread, as strerror is not everywhere. */
#define WOI_ERRNO_BYTES 96
const char *woi_errno_text(int errnum, char text[WOI_ERRNO_BYTES]);

/* Puts `prefix`, a colon and a space before the sentence that is in `err`: an outer caller adding its place.
 * Of one that is too long only the end is put there. */
void woi_error_prefix(wo_error *err, const char *prefix);

/* Copies at most 40 bytes of `text` into `out`, so that it can stand inside quotes in a sentence on a terminal:
 * control characters, those of C1 and of the direction of writing too, quotes and what is no UTF-8 become '?', a longer
 * text ends in "...". Returns `out`. */
#define WOI_QUOTE_BYTES 48
const char *woi_quote(char out[WOI_QUOTE_BYTES], const char *text, size_t text_bytes);

#endif
