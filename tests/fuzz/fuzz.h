/* What the fuzz targets share: the bytes as a file that the readers can open by path, and a name for what is written.
 */
#ifndef WO_FUZZ_H
#define WO_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Puts the bytes into a file in memory; its path goes into `path`. Returns the descriptor, to be closed. */
static inline int fuzz_file(const uint8_t *data, size_t bytes, char path[32])
{
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes) abort();
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

/* The name of a file to write to and to remove: in memory where the system has such a folder, as every input is synced.
 */
static inline void fuzz_output(char path[64])
{
    snprintf(path, 64, "%s/wideout-fuzz-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
}

#endif
