/* The file that says where the server listens (--ready-file): complete or absent, so that whoever waits for it reads
 * all of it. What is no plain file (a pipe, a terminal, /dev/null, a link) is written to as it is: a name put in its
 * place would destroy it. At the end the file is removed where it still is the one that was made here. */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 4096, TRIES = 100 };

static wo_status fail(wo_error *err, const char *why)
{
    *err = (wo_error){.status = WO_ERR_IO, .offset = WO_NO_OFFSET};
    snprintf(err->text, sizeof err->text, "cannot be written: %s", why);
    return WO_ERR_IO;
}

static wo_status fail_os(wo_error *err)
{
    return fail(err, strerror(errno));
}

static bool put_line(int fd, const char *address)
{
    char line[WOI_ADDRESS_BYTES + 1];
    const int bytes = snprintf(line, sizeof line, "%s\n", address);
    return write(fd, line, (size_t)bytes) == bytes;
}

/* No pipe that nobody reads is waited for. */
static wo_status write_in_place(const char *path, const char *address, wo_error *err)
{
    const int fd = open(path, O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return errno == ENXIO ? fail(err, "it is a pipe that nobody reads") : fail_os(err);
    const bool written = put_line(fd, address);
    const wo_status status = written ? WO_OK : fail_os(err);
    close(fd);
    return status;
}

/* A new file beside the path, of a name that nobody has. */
static int create_beside(const char *path, char name[LONGEST])
{
    int fd = -1;
    for (int i = 0; fd < 0 && i < TRIES; i++) {
        if (snprintf(name, LONGEST, "%s.%ld.%d", path, (long)getpid(), i) >= LONGEST) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    return fd;
}

wo_status woi_ready_write(woi_ready_file *ready, const char *path, const char *address, wo_error *err)
{
    struct stat about;
    char name[LONGEST];
    *ready = (woi_ready_file){.path = path, .fd = -1};
    if (lstat(path, &about) == 0 && !S_ISREG(about.st_mode)) return write_in_place(path, address, err);
    const int fd = create_beside(path, name);
    if (fd < 0) return fail_os(err);
    if (put_line(fd, address) && rename(name, path) == 0) {
        ready->fd = fd;
        return WO_OK;
    }
    const wo_status status = fail_os(err);
    unlink(name);
    close(fd);
    return status;
}

/* While the file is open nobody else's has its number. */
void woi_ready_remove(const woi_ready_file *ready)
{
    struct stat made, there;
    if (ready->fd < 0) return;
    if (fstat(ready->fd, &made) == 0 && lstat(ready->path, &there) == 0 && made.st_dev == there.st_dev &&
        made.st_ino == there.st_ino)
        unlink(ready->path);
    close(ready->fd);
}
