/* Opening and mapping files. */
#include "store/map.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

wo_status woi_open_plain(const char *path, int *fd, uint64_t *size, wo_error *err)
{
    /* O_NONBLOCK: opening a fifo that nobody writes must not hang; it changes nothing for plain files. */
    int got = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (got < 0) return woi_fail_errno(err, "the file cannot be opened", errno);
    struct stat about;
    wo_status status = WO_OK;
    if (fstat(got, &about) != 0)
        status = woi_fail_errno(err, "the file cannot be looked at", errno);
    else if (S_ISDIR(about.st_mode))
        status = woi_fail(err, WO_ERR_IO, WO_NO_OFFSET, "the path is a directory, expected a file");
    else if (!S_ISREG(about.st_mode))
        status = woi_fail(err, WO_ERR_IO, WO_NO_OFFSET, "the path is not a plain file");
    if (status) {
        close(got);
        return status;
    }
    *fd = got;
    *size = (uint64_t)about.st_size;
    return WO_OK;
}

wo_status woi_map(const char *path, const void **data, size_t *bytes, wo_error *err)
{
    int fd;
    uint64_t size;
    wo_status status = woi_open_plain(path, &fd, &size, err);
    if (status) return status;
    if (size == 0) {
        status = woi_fail(err, WO_ERR_FORMAT, 0, "the file is empty");
    } else if (size > SIZE_MAX) {
        status = woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "the file is too large to map");
    } else {
        void *got = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (got == MAP_FAILED) {
            status = woi_fail_errno(err, "the file cannot be mapped", errno);
        } else {
            *data = got;
            *bytes = (size_t)size;
        }
    }
    close(fd);
    return status;
}

void woi_unmap(const void *data, size_t bytes)
{
    if (data) munmap((void *)(uintptr_t)data, bytes);
}
