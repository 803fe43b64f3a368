/* Output that is complete or absent: a file without a name in the target's folder, fsync, a temporary name, rename,
 * fsync of the folder. What has no name vanishes with the process, however that ends. Where a file system has no such
 * files (O_TMPFILE), the temporary name is there from the start. */
#include "base/error.h"
#include "base/mem.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 18,
    SUFFIX_BYTES = 40, /* ".tmp.PID.N" */
    BASE_BYTES = 100   /* of the target's name in the temporary one, which must fit where the target's does */
};

struct woi_outfile {
    int fd;
    char *path;
    char *temporary; /* room for a name beside path */
    bool named;      /* the file has that name */
    bool synced;     /* all that was written is on the disk */
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
        if (wrote < 0) return fail_output(err, "the file cannot be written", errno);
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

/* ---- Names ------------------------------------------------------------------------------------------------- */

/* "folder/NAME.tmp.PID.N"; a long NAME is cut, between characters. */
static void write_name(woi_outfile *out, unsigned attempt)
{
    const char *slash = strrchr(out->path, '/'), *base = slash ? slash + 1 : out->path;
    size_t bytes = strlen(base);
    if (bytes > BASE_BYTES) bytes = BASE_BYTES;
    while (bytes > 0 && ((unsigned char)base[bytes] & 0xc0) == 0x80) bytes--;
    snprintf(out->temporary, strlen(out->path) + SUFFIX_BYTES, "%.*s.tmp.%ld.%u", (int)(base + bytes - out->path),
             out->path, (long)getpid(), attempt);
}

/* A new file under the temporary name. open and not mkstemp, so that the file gets the permissions of the user's umask,
 * like any other output. */
static wo_status open_named(woi_outfile *out, int *fd, wo_error *err)
{
    for (unsigned attempt = 0;; attempt++) {
        write_name(out, attempt);
        *fd = open(out->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        out->named = *fd >= 0;
        if (*fd >= 0) return WO_OK;
        if (errno != EEXIST || attempt == 1000) return fail_output(err, "the file cannot be created", errno);
    }
}

/* The folder of `path`, which is cut there. */
static const char *folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash) return ".";
    if (slash == path) return "/";
    *slash = '\0';
    return path;
}

static wo_status open_temporary(woi_outfile *out, wo_error *err)
{
    memcpy(out->temporary, out->path, strlen(out->path) + 1);
    out->fd = open(folder_of(out->temporary), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
    return out->fd >= 0 ? WO_OK : open_named(out, &out->fd, err);
}

/* Everything that was written, once more, into a file that has a name. */
static wo_status copy_to_named(woi_outfile *out, wo_error *err)
{
    int fd;
    wo_status status = open_named(out, &fd, err);
    if (status) return status;
    for (off_t at = 0;;) {
        const ssize_t got = pread(out->fd, out->buffer, BUFFER_BYTES, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = fail_output(err, "what was written cannot be read", errno);
        if (got > 0) status = write_all(fd, out->buffer, (size_t)got, err);
        if (status || got == 0) break;
        at += got;
    }
    close(out->fd);
    out->fd = fd;
    if (!status && fsync(fd) != 0) status = fail_output(err, "the file cannot be written", errno);
    return status;
}

/* A file without a name gets the temporary one. Where that is not allowed, or /proc is not there, a copy of it does. */
static wo_status give_name(woi_outfile *out, wo_error *err)
{
    char self[48];
    if (out->named) return WO_OK;
    snprintf(self, sizeof self, "/proc/self/fd/%d", out->fd);
    for (unsigned attempt = 0; attempt <= 1000; attempt++) {
        write_name(out, attempt);
        out->named = linkat(AT_FDCWD, self, AT_FDCWD, out->temporary, AT_SYMLINK_FOLLOW) == 0;
        if (out->named) return WO_OK;
        if (errno != EEXIST) break;
    }
    return copy_to_named(out, err);
}

/* ---- Outside ----------------------------------------------------------------------------------------------- */

wo_status woi_outfile_create(const char *path, woi_outfile **result, wo_error *err)
{
    struct stat about;
    if (!*path) return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_OUTPUT, "", "the name of the output is empty");
    /* What the rename would say in the end, when the work is done: a name that is too long, a folder that is closed. */
    const bool there = stat(path, &about) == 0;
    if (!there && errno != ENOENT) return fail_output(err, "the file cannot be created", errno);
    if (there && !S_ISREG(about.st_mode))
        return woi_fail_about(err, WO_ERR_IO, WO_ABOUT_OUTPUT, "", "the output exists and is not a plain file");
    /* Through a link to the file that it names: the rename would replace the link itself. */
    char target[PATH_MAX];
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode)) {
        if (!realpath(path, target)) return fail_output(err, "the link cannot be followed", errno);
        path = target;
    }
    woi_outfile *out = woi_alloc_zero(1, sizeof *out, err);
    if (!out) return WO_ERR_MEMORY;
    out->fd = -1;
    wo_status status = WO_ERR_MEMORY;
    const size_t length = strlen(path);
    if (!(out->path = woi_copy_text(path, length, err)) ||
        !(out->temporary = woi_alloc(length + SUFFIX_BYTES, 1, err)) ||
        !(out->buffer = woi_alloc(BUFFER_BYTES, 1, err)) || (status = open_temporary(out, err)))
        woi_outfile_free(out);
    else
        *result = out;
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
        if (wrote < 0) return fail_output(err, "the file cannot be written", errno);
        from += wrote;
        offset += (uint64_t)wrote;
        bytes -= (size_t)wrote;
    }
    return status;
}

wo_status woi_outfile_read(woi_outfile *out, uint64_t offset, void *data, size_t bytes, wo_error *err)
{
    wo_status status = flush(out, err);
    char *to = data;
    while (!status && bytes > 0) {
        ssize_t got = pread(out->fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return fail_output(err, "what was written cannot be read", got ? errno : EIO);
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return status;
}

wo_status woi_outfile_map(woi_outfile *out, const void **data, size_t *bytes, wo_error *err)
{
    struct stat about;
    const wo_status status = flush(out, err);
    if (status) return status;
    if (fstat(out->fd, &about) != 0) return fail_output(err, "what was written cannot be read", errno);
    void *got = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, out->fd, 0);
    if (got == MAP_FAILED) return fail_output(err, "what was written cannot be mapped", errno);
    *data = got;
    *bytes = (size_t)about.st_size;
    return WO_OK;
}

/* The rename itself must reach the disk too. A file system that cannot sync a folder is no reason to fail. */
static void sync_folder(char *path)
{
    int fd = open(folder_of(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!fsync(fd);
    close(fd);
}

wo_status woi_outfile_sync(woi_outfile *out, wo_error *err)
{
    if (out->synced) return WO_OK;
    const wo_status status = flush(out, err);
    if (status) return status;
    if (fsync(out->fd) != 0) return fail_output(err, "the file cannot be written", errno);
    out->synced = true;
    return WO_OK;
}

wo_status woi_outfile_name(woi_outfile *out, wo_error *err)
{
    wo_status status = woi_outfile_sync(out, err);
    if (status || out->fd < 0) return status; /* done before */
    if ((status = give_name(out, err))) return status;
    /* Some file systems report a failed write only here. */
    const int fd = out->fd;
    out->fd = -1;
    return close(fd) == 0 ? WO_OK : fail_output(err, "the file cannot be written", errno);
}

static wo_status give_both_names(woi_outfile *out, wo_error *err)
{
    const wo_status status = woi_outfile_name(out, err);
    if (status) return status;
    if (rename(out->temporary, out->path) != 0) return fail_output(err, "the file cannot be renamed into place", errno);
    out->named = false;
    return WO_OK;
}

wo_status woi_outfile_commit(woi_outfile *out, wo_error *err)
{
    sigset_t before;
    wo_status status = woi_outfile_sync(out, err); /* which takes long, and may be ended */
    if (status) return status;
    woi_outfiles_hold_signals(&before);
    status = give_both_names(out, err);
    woi_outfiles_let_signals(&before);
    if (!status) sync_folder(out->path);
    return status;
}

/* ---- Several ----------------------------------------------------------------------------------------------- */

/* Where an output goes: its folder, and its name there. */
typedef struct place {
    dev_t device;
    ino_t folder;
    const char *name; /* the rest of `path` */
    char *path;
    size_t number;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->folder != y->folder) return x->folder < y->folder ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Through links, as woi_outfile_create goes. What cannot be looked at, that will refuse. */
static wo_status find_place(const char *path, size_t number, place *p, wo_error *err)
{
    struct stat about;
    char target[PATH_MAX];
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode) && realpath(path, target)) path = target;
    if (!(p->path = woi_copy_text(path, strlen(path), err))) return WO_ERR_MEMORY;
    char *slash = strrchr(p->path, '/');
    p->name = slash ? slash + 1 : p->path;
    p->number = number;
    if (slash) *slash = '\0';
    if (stat(!slash ? "." : *p->path ? p->path : "/", &about) != 0) about = (struct stat){0};
    p->device = about.st_dev;
    p->folder = about.st_ino;
    return WO_OK;
}

static wo_status check_places(const char *const *paths, size_t n, wo_error *err)
{
    place *all = woi_alloc_zero(n, sizeof *all, err);
    wo_status status = all ? WO_OK : WO_ERR_MEMORY;
    for (size_t i = 0; !status && i < n; i++) {
        if (!paths[i] || !*paths[i])
            status = woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_OUTPUT, "", "the name of output %zu is %s", i + 1,
                                    paths[i] ? "empty" : "NULL");
        else
            status = find_place(paths[i], i, &all[i], err);
    }
    if (!status) qsort(all, n, sizeof *all, by_place);
    for (size_t i = 1; !status && i < n; i++)
        if (by_place(&all[i - 1], &all[i]) == 0)
            status = woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_OUTPUT, "",
                                    "outputs %zu and %zu of %zu are one file: one would replace the other",
                                    all[i - 1].number + 1, all[i].number + 1, n);
    for (size_t i = 0; all && i < n; i++) woi_free(all[i].path);
    woi_free(all);
    return status;
}

/* Descriptors that are open. Where /proc is not there, a guess. */
static size_t count_open(void)
{
    DIR *list = opendir("/proc/self/fd");
    size_t n = list ? 0 : 16;
    for (const struct dirent *entry; list && (entry = readdir(list));) n += entry->d_name[0] != '.';
    if (list) closedir(list);
    return n;
}

wo_status woi_outfiles_check(const char *const *paths, size_t n, size_t at_once, const char *option, wo_error *err)
{
    enum { BESIDE = 4 }; /* files that are looked at for a moment: a folder that is synced, an older output */
    struct rlimit most;
    const wo_status status = check_places(paths, n, err);
    if (status || getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return status;
    const size_t taken = count_open() + BESIDE;
    if (taken <= most.rlim_cur && at_once <= most.rlim_cur - taken) return WO_OK;
    return woi_fail_about(err, WO_ERR_IO, WO_ABOUT_OUTPUT, option,
                          "%zu files are to be open at once, until all are complete, but of the %llu descriptors that "
                          "this process may have %zu are taken",
                          at_once, (unsigned long long)most.rlim_cur, taken);
}

void woi_outfiles_hold_signals(sigset_t *before)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM};
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) sigaddset(&held, ending[i]);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

void woi_outfiles_let_signals(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

void woi_outfile_free(woi_outfile *out)
{
    if (!out) return;
    if (out->fd >= 0) close(out->fd);
    if (out->temporary && out->named) unlink(out->temporary);
    woi_free(out->temporary);
    woi_free(out->buffer);
    woi_free(out->path);
    woi_free(out);
}
