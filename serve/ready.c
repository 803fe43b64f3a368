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

enum { TRIES = 100 };

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

/* A new file beside the path, of a name that nobody has. */
static int create_beside(woi_ready_file *ready)
{
    int fd = -1;
    for (int i = 0; fd < 0 && i < TRIES; i++) {
        const int bytes = snprintf(ready->beside, sizeof ready->beside, "%s.%ld.%d", ready->path, (long)getpid(), i);
        if (bytes >= (int)sizeof ready->beside) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(ready->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    return fd;
}

/* No pipe that nobody reads is waited for. */
wo_status woi_ready_open(woi_ready_file *ready, const char *path, wo_error *err)
{
    struct stat about;
    *ready = (woi_ready_file){.path = path};
    const bool in_place = lstat(path, &about) == 0 && !S_ISREG(about.st_mode);
    ready->fd = in_place ? open(path, O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : create_beside(ready);
    if (ready->fd >= 0) return WO_OK;
    return in_place && errno == ENXIO ? fail(err, "it is a pipe that nobody reads") : fail_os(err);
}

wo_status woi_ready_write(woi_ready_file *ready, const char *address, wo_error *err)
{
    const bool made = *ready->beside;
    const bool written = put_line(ready->fd, address) && (!made || rename(ready->beside, ready->path) == 0);
    if (written && made) return WO_OK;
    const wo_status status = written ? WO_OK : fail_os(err);
    if (made) unlink(ready->beside);
    close(ready->fd);
    ready->fd = -1;
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
