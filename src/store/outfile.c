/* Output that is complete or absent: a temporary name beside the target, fsync, rename, fsync of the folder. */
#include "base/error.h"
#include "base/mem.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18 };

struct woi_outfile {
    int fd;
    char *path;
    char *temporary; /* NULL once renamed */
    size_t used;     /* bytes waiting in buffer */
    char *buffer;
};

static wo_status fail_output(wo_error *err, const char *what, int errnum)
{
    return woi_about(err, WO_ABOUT_OUTPUT, woi_fail_errno(err, what, errnum));
}

static wo_status write_all(int fd, const char *data, size_t bytes, wo_error *err)
{
    while (bytes > 0) {
        ssize_t wrote = write(fd, data, bytes);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return fail_output(err, "cannot write", errno);
        data += wrote;
        bytes -= (size_t)wrote;
    }
    return WO_OK;
}

static wo_status flush(woi_outfile *out, wo_error *err)
{
    size_t bytes = out->used;
    out->used = 0;
    return write_all(out->fd, out->buffer, bytes, err);
}

/* Opens a new file beside `path`; its name goes into `name`. open and not mkstemp, so that the file gets the
 * permissions of the user's umask, like any other output. */
static wo_status open_temporary(const char *path, char *name, size_t name_bytes, int *fd, wo_error *err)
{
    for (unsigned attempt = 0;; attempt++) {
        snprintf(name, name_bytes, "%s.tmp.%ld.%u", path, (long)getpid(), attempt);
        *fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0) return WO_OK;
        if (errno != EEXIST || attempt == 1000) return fail_output(err, "cannot create", errno);
    }
}

wo_status woi_outfile_create(const char *path, woi_outfile **result, wo_error *err)
{
    struct stat about;
    if (!*path) return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_OUTPUT, "", "the name of the output is empty");
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return woi_fail_about(err, WO_ERR_IO, WO_ABOUT_OUTPUT, "", "the output exists and is not a plain file");
    /* Through a link to the file that it names: the rename would replace the link itself. */
    char target[PATH_MAX];
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode)) {
        if (!realpath(path, target)) return fail_output(err, "cannot follow the link", errno);
        path = target;
    }
    woi_outfile *out = woi_alloc_zero(1, sizeof *out, err);
    if (!out) return WO_ERR_MEMORY;
    out->fd = -1;
    wo_status status = WO_ERR_MEMORY;
    size_t length = strlen(path), room = length + 40;
    char *name = woi_alloc(room, 1, err);
    if (!name || !(out->path = woi_copy_text(path, length, err)) || !(out->buffer = woi_alloc(BUFFER_BYTES, 1, err)))
        goto done;
    status = open_temporary(path, name, room, &out->fd, err);
    if (status) goto done;
    out->temporary = name;
    name = NULL;
    *result = out;
    out = NULL;
done:
    woi_free(name);
    woi_outfile_free(out);
    return status;
}

wo_status woi_outfile_write(woi_outfile *out, const void *data, size_t bytes, wo_error *err)
{
    if (bytes > BUFFER_BYTES - out->used) {
        wo_status status = flush(out, err);
        if (status) return status;
        if (bytes > BUFFER_BYTES) return write_all(out->fd, data, bytes, err);
    }
    if (bytes) memcpy(out->buffer + out->used, data, bytes);
    out->used += bytes;
    return WO_OK;
}

wo_status woi_outfile_patch(woi_outfile *out, uint64_t offset, const void *data, size_t bytes, wo_error *err)
{
    wo_status status = flush(out, err);
    const char *from = data;
    while (!status && bytes > 0) {
        ssize_t wrote = pwrite(out->fd, from, bytes, (off_t)offset);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return fail_output(err, "cannot write", errno);
        from += wrote;
        offset += (uint64_t)wrote;
        bytes -= (size_t)wrote;
    }
    return status;
}

/* The rename itself must reach the disk too. A file system that cannot sync a folder is no reason to fail. */
static void sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    const char *folder = ".";
    if (slash == path) {
        folder = "/";
    } else if (slash) {
        *slash = '\0';
        folder = path;
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!fsync(fd);
    close(fd);
}

wo_status woi_outfile_sync(woi_outfile *out, wo_error *err)
{
    if (out->fd < 0) return WO_OK; /* done before */
    wo_status status = flush(out, err);
    if (status) return status;
    if (fsync(out->fd) != 0) return fail_output(err, "cannot write", errno);
    /* Some file systems report a failed write only here. */
    int fd = out->fd;
    out->fd = -1;
    return close(fd) == 0 ? WO_OK : fail_output(err, "cannot write", errno);
}

wo_status woi_outfile_commit(woi_outfile *out, wo_error *err)
{
    wo_status status = woi_outfile_sync(out, err);
    if (status) return status;
    if (rename(out->temporary, out->path) != 0) return fail_output(err, "cannot rename into place", errno);
    woi_free(out->temporary);
    out->temporary = NULL;
    sync_folder(out->path);
    return WO_OK;
}

void woi_outfile_free(woi_outfile *out)
{
    if (!out) return;
    if (out->fd >= 0) close(out->fd);
    if (out->temporary) unlink(out->temporary);
    woi_free(out->temporary);
    woi_free(out->buffer);
    woi_free(out->path);
    woi_free(out);
}
