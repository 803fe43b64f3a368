/* An I/O call that fails, for tests of programs as they are: LD_PRELOAD=failing_io.so.
 *
 *   IO_UNDER   a folder: calls on files in it are counted, and no others
 *   IO_CALL    which: "open", "read", ... as the table below has them; unset: every one of them
 *   IO_AT      of these the n-th fails, from 1; unset: none
 *   IO_HOW     how: a number is an errno (5: EIO); "short": half of the bytes, of a read or a write; "sleep", "nap": it
 *              takes 20 seconds, or one; "kill": the process is killed instead
 *   IO_LOG     a file: a line for each call that was counted, with its name and its file
 *
 * What the C library calls inside itself (fread's reads, malloc's mappings) is not seen. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_long counted;

enum verdict { PASS, FAIL, HALF };

/* Not through ourselves. */
static void log_call(const char *call, const char *path)
{
    char line[4400];
    const char *log = getenv("IO_LOG");
    if (!log) return;
    const long fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    const int bytes = snprintf(line, sizeof line, "%s %s\n", call, path);
    syscall(SYS_write, fd, line, (size_t)bytes);
    syscall(SYS_close, fd);
}

/* Counts a call on a file, and says what becomes of it; sets errno for FAIL. */
static enum verdict judge(const char *call, const char *path)
{
    const char *under = getenv("IO_UNDER"), *which = getenv("IO_CALL"), *at = getenv("IO_AT"), *how = getenv("IO_HOW");
    char whole[4300], *folder = NULL;
    if (!under || (which && *which && strcmp(which, call) != 0)) return PASS;
    if (*path != '/' && (folder = getcwd(NULL, 0))) {
        snprintf(whole, sizeof whole, "%s/%s", folder, path);
        free(folder);
        path = whole;
    }
    if (strncmp(path, under, strlen(under)) != 0) return PASS;
    log_call(call, path);
    if (atomic_fetch_add(&counted, 1) + 1 != (at ? atol(at) : 0)) return PASS;
    if (how && strcmp(how, "short") == 0) return HALF;
    if (how && (strcmp(how, "sleep") == 0 || strcmp(how, "nap") == 0)) {
        struct timespec left = {*how == 's' ? 20 : 1, 0};
        while (nanosleep(&left, &left) != 0) continue;
        return PASS;
    }
    if (how && strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    errno = how ? atoi(how) : EIO;
    return FAIL;
}

static enum verdict judge_fd(const char *call, int fd)
{
    char link[48], path[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return PASS;
    path[n] = '\0';
    return judge(call, path);
}

/* The function behind ours. */
#define NEXT(name) __extension__((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* One that gives -1 for failures. */
#define BY_FD(type, name, parameters, arguments)          \
    type name parameters                                  \
    {                                                     \
        if (judge_fd(#name, fd) == FAIL) return (type)-1; \
        return NEXT(name) arguments;                      \
    }
#define BY_PATH(type, name, parameters, arguments)       \
    type name parameters                                 \
    {                                                    \
        if (judge(#name, path) == FAIL) return (type)-1; \
        return NEXT(name) arguments;                     \
    }
/* Reads and writes, which may also do a part. */
#define MOVES(name, parameters, arguments)                \
    ssize_t name parameters                               \
    {                                                     \
        const enum verdict verdict = judge_fd(#name, fd); \
        if (verdict == FAIL) return -1;                   \
        if (verdict == HALF && bytes > 1) bytes /= 2;     \
        return NEXT(name) arguments;                      \
    }

MOVES(read, (int fd, void *data, size_t bytes), (fd, data, bytes))
MOVES(write, (int fd, const void *data, size_t bytes), (fd, data, bytes))
MOVES(pread, (int fd, void *data, size_t bytes, off_t at), (fd, data, bytes, at))
MOVES(pwrite, (int fd, const void *data, size_t bytes, off_t at), (fd, data, bytes, at))
BY_FD(int, fsync, (int fd), (fd))
BY_FD(off_t, lseek, (int fd, off_t at, int from), (fd, at, from))
BY_FD(int, fstat, (int fd, struct stat *about), (fd, about))
BY_PATH(int, stat, (const char *restrict path, struct stat *restrict about), (path, about))
BY_PATH(int, lstat, (const char *restrict path, struct stat *restrict about), (path, about))
BY_PATH(int, access, (const char *path, int mode), (path, mode))
BY_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
BY_PATH(int, unlink, (const char *path), (path))

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
    va_end(args);
    return judge("open", path) == FAIL ? -1 : NEXT(open)(path, flags, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    return judge("fopen", path) == FAIL ? NULL : NEXT(fopen)(path, mode);
}

int close(int fd)
{
    const bool fails = judge_fd("close", fd) == FAIL;
    const int why = errno, code = NEXT(close)(fd);
    if (fails) errno = why; /* it is closed all the same, as on Linux */
    return fails ? -1 : code;
}

int rename(const char *old, const char *new)
{
    return judge("rename", new) == FAIL ? -1 : NEXT(rename)(old, new);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    return judge("linkat", new) == FAIL ? -1 : NEXT(linkat)(from, old, to, new, flags);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && judge_fd("mmap", fd) == FAIL) return MAP_FAILED;
    return NEXT(mmap)(at, bytes, protection, flags, fd, offset);
}
