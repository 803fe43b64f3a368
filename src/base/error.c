/* Status names and the one place where error sentences are made. */
#include "base/error.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *wo_status_text(wo_status status)
{
    switch (status) {
    case WO_OK: return "ok";
    case WO_ERR_MEMORY: return "out of memory";
    case WO_ERR_IO: return "input or output failed";
    case WO_ERR_FORMAT: return "malformed file";
    case WO_ERR_UNSUPPORTED: return "not supported";
    case WO_ERR_ARGUMENT: return "invalid argument";
    case WO_ERR_CHECKSUM: return "checksum differs";
    case WO_ERR_CANCELLED: return "cancelled";
    }
    return "unknown status";
}

static void end_with_dots(wo_error *err)
{
    memcpy(err->text + sizeof err->text - 4, "...", 4);
}

void woi_error_set(wo_error *err, wo_status status, uint64_t offset, const char *format, ...)
{
    if (!err) return;
    wo_error made = {.status = status, .about = WO_ABOUT_NONE, .offset = offset};
    va_list args;
    va_start(args, format);
    int length = vsnprintf(made.text, sizeof made.text, format, args);
    va_end(args);
    if (length >= (int)sizeof made.text) end_with_dots(&made);
    *err = made; /* at the end: `args` may point into the old sentence */
}

void woi_error_option(wo_error *err, wo_about about, const char *option)
{
    if (!err) return;
    err->about = about;
    snprintf(err->option, sizeof err->option, "%s", option);
}

wo_status woi_about(wo_error *err, wo_about about, wo_status status)
{
    if (status && err && err->about == WO_ABOUT_NONE) err->about = about;
    return status;
}

wo_status woi_check_range(const char *name, double value, double low, double high, wo_error *err)
{
    if (value >= low && value <= high) return WO_OK;
    return woi_fail_option(err, WO_ERR_ARGUMENT, name, "%s is %.10g, expected %.10g to %.10g", name, value, low, high);
}

/* POSIX's strerror_r fills the buffer and returns a number; GNU's may return a string of its own instead. Which of them
 * a C library declares depends on it and on the feature macros. */
__attribute__((unused)) static const char *posix_reason(int failed, const char *buffer)
{
    return failed && !*buffer ? "unknown error" : buffer;
}

__attribute__((unused)) static const char *gnu_reason(const char *returned, const char *buffer)
{
    (void)buffer;
    return returned;
}

#define REASON(returned, buffer) _Generic((returned), int : posix_reason, char * : gnu_reason)(returned, buffer)

const char *woi_errno_text(int errnum, char text[WOI_ERRNO_BYTES])
{
    text[0] = '\0';
    return REASON(strerror_r(errnum, text, WOI_ERRNO_BYTES), text);
}

void woi_error_set_errno(wo_error *err, const char *what, int errnum)
{
    char reason[WOI_ERRNO_BYTES];
    woi_error_set(err, WO_ERR_IO, WO_NO_OFFSET, "%s: %s", what, woi_errno_text(errnum, reason));
}

void woi_error_prefix(wo_error *err, const char *prefix)
{
    if (!err) return;
    char text[sizeof err->text];
    /* Of a long path the end says which file it is; the sentence behind it is not cut for it. */
    enum { LEAST = 60 };
    const size_t bytes = strlen(prefix), own = strlen(err->text) + sizeof "...: ";
    const char *dots = "";
    if (bytes + own > sizeof text && own + LEAST <= sizeof text) {
        prefix += bytes - (sizeof text - own);
        while (((unsigned char)*prefix & 0xc0) == 0x80) prefix++; /* not within a character */
        dots = "...";
    }
    int length = snprintf(text, sizeof text, "%s%s: %s", dots, prefix, err->text);
    memcpy(err->text, text, sizeof text);
    if (length >= (int)sizeof text) end_with_dots(err);
}

const char *woi_quote(char out[WOI_QUOTE_BYTES], const char *text, size_t text_bytes)
{
    const size_t most = 40;
    size_t n = text_bytes < most ? text_bytes : most;
    /* Do not cut a UTF-8 sequence in two. */
    while (text_bytes > most && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    char *to = out;
    for (size_t i = 0, bytes; i < n; i += bytes) {
        uint32_t code = 0;
        bytes = woi_utf8_next(text + i, n - i, &code);
        const bool fit = bytes && !woi_is_unfit(code) && code != '\'';
        if (!bytes) bytes = 1;
        memcpy(to, fit ? text + i : "?", fit ? bytes : 1);
        to += fit ? bytes : 1;
    }
    memcpy(to, "...", 3);
    to[text_bytes > most ? 3 : 0] = '\0';
    return out;
}
