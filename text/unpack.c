/* zlib's inflate over a file descriptor. Not gzread, which passes over whatever follows the last gzip member in
 * silence. */
#include "text/unpack.h"

#include "base/error.h"
#include "base/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { INPUT_BYTES = 1 << 18 };

struct woi_unpack {
    int fd;
    bool gzip;
    bool between;   /* gzip: no member has begun, or the last one is complete */
    bool inflating; /* z is set up */
    z_stream z;
    unsigned char *input;
    size_t start, end;  /* not yet used: input[start, end) */
    uint64_t file_read; /* bytes read from fd */
};

static wo_status read_some(woi_unpack *u, void *to, size_t room, size_t *got, wo_error *err)
{
    ssize_t n;
    do n = read(u->fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n < 0) return woi_fail_errno(err, "the file cannot be read", errno);
    u->file_read += (uint64_t)n;
    *got = (size_t)n;
    return WO_OK;
}

static wo_status refill(woi_unpack *u, wo_error *err)
{
    size_t got;
    wo_status status = read_some(u, u->input, INPUT_BYTES, &got, err);
    u->start = 0;
    u->end = status ? 0 : got;
    return status;
}

/* Reads the first bytes, which say whether it is gzip. */
static wo_status begin(woi_unpack *u, wo_error *err)
{
    u->between = true;
    /* A pipe may give less than the two bytes that tell. */
    while (u->end < 2) {
        size_t got;
        wo_status status = read_some(u, u->input + u->end, INPUT_BYTES - u->end, &got, err);
        if (status) return status;
        u->end += got;
        if (got == 0) break;
    }
    u->gzip = u->end >= 2 && u->input[0] == 0x1f && u->input[1] == 0x8b;
    if (!u->gzip || u->inflating) return WO_OK;
    u->inflating = inflateInit2(&u->z, 15 + 16) == Z_OK;
    return u->inflating ? WO_OK : woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory while unpacking");
}

wo_status woi_unpack_open(int fd, woi_unpack **result, wo_error *err)
{
    woi_unpack *u = woi_alloc_zero(1, sizeof *u, err);
    if (!u) {
        close(fd);
        return WO_ERR_MEMORY;
    }
    u->fd = fd;
    u->input = woi_alloc(INPUT_BYTES, 1, err);
    wo_status status = u->input ? begin(u, err) : WO_ERR_MEMORY;
    if (status)
        woi_unpack_free(u);
    else
        *result = u;
    return status;
}

wo_status woi_unpack_rewind(woi_unpack *u, wo_error *err)
{
    if (lseek(u->fd, 0, SEEK_SET) != 0)
        return woi_fail_errno(err, "the file cannot be read from the start again", errno);
    u->start = u->end = 0;
    u->file_read = 0;
    return begin(u, err);
}

void woi_unpack_free(woi_unpack *u)
{
    if (!u) return;
    if (u->inflating) inflateEnd(&u->z);
    close(u->fd);
    woi_free(u->input);
    woi_free(u);
}

static wo_status copy_plain(woi_unpack *u, void *to, size_t room, size_t *got, wo_error *err)
{
    if (u->start == u->end) return read_some(u, to, room, got, err);
    *got = u->end - u->start < room ? u->end - u->start : room;
    memcpy(to, u->input + u->start, *got);
    u->start += *got;
    return WO_OK;
}

wo_status woi_unpack_read(woi_unpack *u, void *to, size_t room, size_t *got, wo_error *err)
{
    if (!u->gzip) return copy_plain(u, to, room, got, err);
    *got = 0;
    while (*got == 0) {
        if (u->start == u->end) {
            wo_status status = refill(u, err);
            if (status) return status;
            if (u->end == 0 && u->between) return WO_OK; /* the end */
            if (u->end == 0) return woi_fail(err, WO_ERR_FORMAT, u->file_read, "the file is truncated");
        }
        if (u->between) {
            if (u->input[u->start] != 0x1f)
                return woi_fail(err, WO_ERR_FORMAT, woi_unpack_position(u), "bytes follow that are not gzip");
            inflateReset(&u->z);
            u->between = false;
        }
        u->z.next_in = u->input + u->start;
        u->z.avail_in = (uInt)(u->end - u->start);
        u->z.next_out = to;
        u->z.avail_out = (uInt)(room < (1u << 30) ? room : 1u << 30);
        const uInt before = u->z.avail_out;
        const int code = inflate(&u->z, Z_NO_FLUSH);
        u->start = u->end - u->z.avail_in;
        *got = before - u->z.avail_out;
        if (code == Z_STREAM_END)
            u->between = true;
        else if (code == Z_MEM_ERROR)
            return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory while unpacking");
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return woi_fail(err, WO_ERR_FORMAT, woi_unpack_position(u), "%.100s", u->z.msg ? u->z.msg : "damaged data");
    }
    return WO_OK;
}

uint64_t woi_unpack_position(const woi_unpack *u)
{
    return u->file_read - (u->end - u->start);
}
