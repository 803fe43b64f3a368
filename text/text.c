/* Text from a file or standard input, unpacked where it is gzip. One buffer holds what is unread, and room for one byte
 * more; it moves to the front when more is read behind it. */
#include "text/text.h"

#include "base/error.h"
#include "base/mem.h"
#include "store/map.h"
#include "text/unpack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

struct woi_text {
    woi_unpack *file;
    uint64_t file_bytes; /* 0 where it is not a plain file */
    char *buffer;
    size_t capacity, start, end; /* unread: buffer[start, end) */
    uint64_t offset;             /* of buffer[0] in the unpacked text */
    uint64_t n_lines;            /* taken */
    bool at_end, line_ended;
};

wo_status woi_text_open(const char *path, woi_text **result, wo_error *err)
{
    int fd;
    uint64_t bytes = 0;
    wo_status status = WO_OK;
    if (strcmp(path, "-") != 0)
        status = woi_open_plain(path, &fd, &bytes, err);
    else if ((fd = dup(STDIN_FILENO)) < 0)
        status = woi_fail_errno(err, "standard input cannot be read", errno);
    if (status) return status;
    woi_text *text = woi_alloc_zero(1, sizeof *text, err);
    if (!text) {
        close(fd);
        return WO_ERR_MEMORY;
    }
    text->file_bytes = bytes;
    status = woi_unpack_open(fd, &text->file, err);
    if (!status) status = woi_grow(&text->buffer, &text->capacity, 0, PIECE_BYTES + 1, 1, err);
    if (status)
        woi_text_free(text);
    else
        *result = text;
    return status;
}

wo_status woi_text_open_memory(const char *from, size_t bytes, woi_text **result, wo_error *err)
{
    woi_text *text = woi_alloc_zero(1, sizeof *text, err);
    if (!text) return WO_ERR_MEMORY;
    const wo_status status = woi_grow(&text->buffer, &text->capacity, 0, bytes + 1, 1, err);
    if (status) {
        woi_text_free(text);
        return status;
    }
    if (bytes) memcpy(text->buffer, from, bytes);
    text->end = bytes;
    text->at_end = true;
    *result = text;
    return WO_OK;
}

void woi_text_free(woi_text *text)
{
    if (!text) return;
    woi_unpack_free(text->file);
    woi_free(text->buffer);
    woi_free(text);
}

wo_status woi_text_rewind(woi_text *text, wo_error *err)
{
    text->start = text->end = 0;
    text->offset = text->n_lines = 0;
    text->at_end = false;
    return woi_unpack_rewind(text->file, err);
}

wo_status woi_text_fill(woi_text *text, const char **unread, size_t *bytes, wo_error *err)
{
    if (text->start > 0) {
        text->end -= text->start;
        memmove(text->buffer, text->buffer + text->start, text->end);
        text->offset += text->start;
        text->start = 0;
    }
    if (!text->at_end) {
        size_t got = 0;
        wo_status status = woi_grow(&text->buffer, &text->capacity, text->end, text->end + PIECE_BYTES + 1, 1, err);
        if (!status) status = woi_unpack_read(text->file, text->buffer + text->end, PIECE_BYTES, &got, err);
        if (status == WO_ERR_FORMAT) {
            char place[64];
            snprintf(place, sizeof place, "gzip data after byte %" PRIu64 " of the text", text->offset + text->end);
            woi_error_prefix(err, place);
        }
        if (status) return status;
        text->at_end = got == 0;
        text->end += got;
    }
    *unread = text->buffer;
    *bytes = text->end;
    return WO_OK;
}

void woi_text_unread(const woi_text *text, const char **unread, size_t *bytes)
{
    *unread = text->buffer + text->start;
    *bytes = text->end - text->start;
}

bool woi_text_at_end(const woi_text *text)
{
    return text->at_end;
}

void woi_text_take(woi_text *text, size_t bytes)
{
    text->start += bytes;
}

wo_status woi_text_line(woi_text *text, char **line, size_t *bytes, wo_error *err)
{
    size_t searched = 0;
    for (;;) {
        char *begin = text->buffer + text->start;
        size_t unread = text->end - text->start;
        char *newline = unread > searched ? memchr(begin + searched, '\n', unread - searched) : NULL;
        const size_t so_far = newline ? (size_t)(newline - begin) : unread;
        if (so_far > WOI_TEXT_LINE_BYTES)
            return woi_fail(err, WO_ERR_FORMAT, woi_text_offset(text), "line %" PRIu64 ": longer than %zu bytes",
                            text->n_lines + 1, WOI_TEXT_LINE_BYTES);
        if (newline || (text->at_end && unread > 0)) {
            *line = begin;
            *bytes = so_far;
            text->start += *bytes + (newline != NULL);
            text->n_lines++;
            text->line_ended = newline != NULL;
            if (!newline) begin[*bytes] = '\n';
            if (*bytes > 0 && begin[*bytes - 1] == '\r') --*bytes;
            return WO_OK;
        }
        if (text->at_end) {
            *line = NULL;
            *bytes = 0;
            return WO_OK;
        }
        searched = unread;
        const char *filled;
        wo_status status = woi_text_fill(text, &filled, &unread, err);
        if (status) return status;
    }
}

bool woi_text_line_ended(const woi_text *text)
{
    return text->line_ended;
}

uint64_t woi_text_offset(const woi_text *text)
{
    return text->offset + text->start;
}

uint64_t woi_text_line_number(const woi_text *text)
{
    return text->n_lines;
}

void woi_text_position(const woi_text *text, uint64_t *done, uint64_t *total)
{
    *done = woi_unpack_position(text->file);
    *total = text->file_bytes;
}
