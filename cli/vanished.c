/* A file that is shortened while it is mapped: its last pages are gone, and whoever reads one gets SIGBUS. The library
 * leaves signals to the program; this program says which file it was, and ends.
 *
 * All that is called here may be called in a signal handler: open, read, write and _exit, and nothing of stdio. */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 8192 };

static char line[LINE], sentence[LINE + 256];
static atomic_flag told = ATOMIC_FLAG_INIT;
static bool (*volatile may_say)(void);

/* A hexadecimal number; *at is left behind it. */
static uintptr_t read_address(const char **at)
{
    uintptr_t value = 0;
    for (;; ++*at) {
        const char c = **at;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* The path at the end of a line of /proc/self/maps that has the address; NULL where it is another's, or no file's. */
static const char *path_at(uintptr_t address)
{
    const char *at = line;
    const uintptr_t begin = read_address(&at);
    if (*at++ != '-') return NULL;
    const uintptr_t end = read_address(&at);
    return address >= begin && address < end ? strchr(at, '/') : NULL;
}

static const char *find_path(uintptr_t address)
{
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    char c;
    while (fd >= 0 && read(fd, &c, 1) == 1) {
        if (c != '\n') {
            if (used + 1 < LINE) line[used++] = c;
            continue;
        }
        line[used] = '\0';
        used = 0;
        const char *path = path_at(address);
        if (path) return path;
    }
    return NULL;
}

static void on_bus(int signal_number, siginfo_t *info, void *context)
{
    static const char head[] = "wideout: ", tail[] = ": a part of the file is gone: it was shortened, or cannot be "
                                                     "read, while it was in use\n";
    (void)context;
    while (atomic_flag_test_and_set(&told)) pause(); /* another thread says it */
    const char *path = find_path((uintptr_t)info->si_addr);
    if (!path) { /* no file of anyone's: die of it */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    if (may_say && !may_say()) _exit(CLI_FAILED);
    size_t n = 0;
    if (isatty(STDERR_FILENO)) {
        memcpy(sentence, "\r\033[K", 4); /* over the bar */
        n = 4;
    }
    memcpy(sentence + n, head, sizeof head - 1);
    n += sizeof head - 1;
    for (size_t left = path ? strlen(path) : 0, bytes; left; path += bytes, left -= bytes) {
        bool fit;
        bytes = cli_character(path, left, &fit);
        memcpy(sentence + n, fit ? path : "?", fit ? bytes : 1);
        n += fit ? bytes : 1;
    }
    memcpy(sentence + n, tail, sizeof tail - 1);
    n += sizeof tail - 1;
    if (write(STDERR_FILENO, sentence, n) < 0) _exit(CLI_FAILED);
    _exit(CLI_FAILED);
}

void cli_when_vanished(bool (*may_speak)(void))
{
    may_say = may_speak;
}

void cli_catch_vanished(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* beyond a limit on the size of files: then write() fails, and has a sentence */
}
