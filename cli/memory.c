/* An allocator for layers that are larger than memory; see memory.h.
 *
 * Building goes over large arrays from their beginning to their end: rows in fewer bits, packed rows, copies of a
 * layer. Such arrays may as well lie in a file, whose pages the system takes away and brings back. Everything else is
 * small. */
#include "memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LARGE = 1 << 20 }; /* bytes; below, a file costs more than it saves */

/* An array that lies in a file. */
typedef struct mapped {
    void *memory;
    size_t bytes;
    struct mapped *next;
} mapped;

static struct {
    size_t limit;
    char *folder;
    atomic_size_t used; /* bytes that do not lie in files */
    pthread_mutex_t lock;
    mapped *first;
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A file without a name; -1: there can be none. */
static int open_nameless(void)
{
    const int fd = open(keeper.folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    /* File systems without such files. */
    char *name = NULL;
    if (asprintf(&name, "%s/.wideout-memory-XXXXXX", keeper.folder) < 0) return -1;
    const int named = mkostemp(name, O_CLOEXEC);
    if (named >= 0) unlink(name);
    free(name);
    return named;
}

static void *alloc_mapped(size_t bytes)
{
    mapped *own = malloc(sizeof *own);
    const int fd = own ? open_nameless() : -1;
    void *memory = MAP_FAILED;
    /* Its bytes are there from the beginning: a disk that is full later would be a signal, not a sentence. */
    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (memory == MAP_FAILED) {
        free(own);
        return NULL;
    }
    pthread_mutex_lock(&keeper.lock);
    *own = (mapped){memory, bytes, keeper.first};
    keeper.first = own;
    pthread_mutex_unlock(&keeper.lock);
    return memory;
}

static void *keep_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    if (bytes >= LARGE && atomic_load(&keeper.used) + bytes > keeper.limit / 2) return alloc_mapped(bytes);
    if (bytes > SIZE_MAX - align) return NULL;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory) atomic_fetch_add(&keeper.used, malloc_usable_size(memory));
    return memory;
}

/* The size of an array that lay in a file, which it no longer does; 0: it never did. */
static size_t take_mapped(const void *memory)
{
    size_t bytes = 0;
    pthread_mutex_lock(&keeper.lock);
    mapped **at = &keeper.first;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    if (*at) {
        mapped *own = *at;
        bytes = own->bytes;
        *at = own->next;
        free(own);
    }
    pthread_mutex_unlock(&keeper.lock);
    return bytes;
}

static void keep_release(void *ctx, void *memory)
{
    (void)ctx;
    if (!memory) return;
    /* Maps begin with a page, heap blocks hardly ever do. */
    const size_t bytes = (uintptr_t)memory % 4096 == 0 ? take_mapped(memory) : 0;
    if (bytes) {
        munmap(memory, bytes);
        return;
    }
    atomic_fetch_sub(&keeper.used, malloc_usable_size(memory));
    free(memory);
}

/* "4G" as bytes; 0 where it is none. */
static size_t read_bytes(const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    const double number = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (end == text || !unit || end[1] || !(number > 0)) return 0;
    double bytes = number;
    for (const char *u = units; u <= unit; u++) bytes *= 1024;
    return bytes >= LARGE && bytes < 0x1p62 ? (size_t)bytes : 0;
}

int cli_memory_keep(const cli_command *self, const char *limit, const char *output)
{
    if (!limit) return CLI_OK;
    if (!(keeper.limit = read_bytes(limit)))
        return cli_usage(self, "--memory takes a size like 500M or 4G, at least 1M, not '%s'", limit);
    const char *slash = strrchr(output, '/');
    keeper.folder = slash ? strndup(output, slash == output ? 1 : (size_t)(slash - output)) : strdup(".");
    const wo_allocator allocator = {keep_alloc, keep_release, NULL};
    wo_error err;
    if (!keeper.folder || wo_allocator_set(&allocator)) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        return cli_fail(NULL, &err);
    }
    return CLI_OK;
}
