/* Text from a file or standard input, through zlib, which unpacks gzip and hands on everything else as it is. One
 * buffer holds what is unread; it moves to the front when more is read behind it. */
#include "store/text.h"

#include "base/error.h"
#include "base/mem.h"
#include "store/map.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE_BYTES = 1 << 20 };
#define MAX_LINE_BYTES ((size_t)64 << 20)

struct woi_text {
    gzFile file;
    uint64_t file_bytes; /* 0 where it is not a plain file */
    char *buffer;
    size_t capacity, start, end; /* unread: buffer[start, end) */
    uint64_t offset;             /* of buffer[0] in the unpacked text */
    uint64_t n_lines;            /* taken */
    bool at_end;
};

wo_status woi_text_open(const char *path, woi_text **result, wo_error *err)
{
    int fd;
    uint64_t bytes = 0;
    wo_status status = WO_OK;
    if (strcmp(path, "-") != 0)
        status = woi_open_plain(path, &fd, &bytes, err);
    else if ((fd = dup(STDIN_FILENO)) < 0)
        status = woi_fail_errno(err, "cannot read standard input", errno);
    if (status) return status;
    woi_text *text = woi_alloc_zero(1, sizeof *text, err);
    if (!text) {
        close(fd);
        return WO_ERR_MEMORY;
    }
    text->file_bytes = bytes;
    if (!(text->file = gzdopen(fd, "rb"))) {
        close(fd);
        status = woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory while opening");
    }
    if (!status) status = woi_grow(&text->buffer, &text->capacity, 0, PIECE_BYTES, 1, err);
    if (status) {
        woi_text_free(text);
        return status;
    }
    gzbuffer(text->file, 1 << 18);
    *result = text;
    return WO_OK;
}

void woi_text_free(woi_text *text)
{
    if (!text) return;
    if (text->file) gzclose(text->file);
    woi_free(text->buffer);
    woi_free(text);
}

static wo_status read_failed(const woi_text *text, int number, const char *reason, wo_error *err)
{
    if (number == Z_ERRNO) return woi_fail_errno(err, "cannot read", errno);
    if (number == Z_MEM_ERROR) return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory while unpacking");
    const char *own = strstr(reason, ">: "); /* zlib puts its own name for the file before the reason */
    if (own) reason = own + 3;
    if (number == Z_BUF_ERROR) reason = "the file is truncated";
    uint64_t at = text->offset + text->end;
    return woi_fail(err, WO_ERR_FORMAT, at, "gzip data after byte %" PRIu64 " of the text: %.100s", at, reason);
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
        wo_status status = woi_grow(&text->buffer, &text->capacity, text->end, text->end + PIECE_BYTES, 1, err);
        if (status) return status;
        int got = gzread(text->file, text->buffer + text->end, PIECE_BYTES), number = Z_OK;
        const char *reason = gzerror(text->file, &number);
        /* gzread hands out what it has of a truncated file and only then reports it. */
        if (got < 0 || (number != Z_OK && number != Z_STREAM_END)) return read_failed(text, number, reason, err);
        text->at_end = got == 0;
        text->end += (size_t)got;
    }
    *unread = text->buffer;
    *bytes = text->end;
    return WO_OK;
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
        if (newline || (text->at_end && unread > 0)) {
            *line = begin;
            *bytes = newline ? (size_t)(newline - begin) : unread;
            text->start += *bytes + (newline != NULL);
            text->n_lines++;
            if (*bytes > 0 && begin[*bytes - 1] == '\r') --*bytes;
            return WO_OK;
        }
        if (text->at_end) {
            *line = NULL;
            *bytes = 0;
            return WO_OK;
        }
        if (unread > MAX_LINE_BYTES)
            return woi_fail(err, WO_ERR_FORMAT, woi_text_offset(text), "line %" PRIu64 ": longer than %zu bytes",
                            text->n_lines + 1, MAX_LINE_BYTES);
        searched = unread;
        const char *filled;
        wo_status status = woi_text_fill(text, &filled, &unread, err);
        if (status) return status;
    }
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
    z_off_t offset = gzoffset(text->file);
    *done = offset > 0 ? (uint64_t)offset : 0;
    *total = text->file_bytes;
}
