/* The limits of memory: see memory.h. */
#include "net/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_PATH = 4096 };

/* Of one group: "max", or a number of bytes. */
static uint64_t limit_of(const char *root, const char *group)
{
    char path[2 * LONGEST_PATH], text[32] = "";
    snprintf(path, sizeof path, "%s%s/memory.max", root, group);
    FILE *file = fopen(path, "re");
    if (!file) return UINT64_MAX;
    char *end = text;
    const uint64_t bytes = fgets(text, sizeof text, file) ? strtoull(text, &end, 10) : 0;
    fclose(file);
    return end == text ? UINT64_MAX : bytes;
}

uint64_t woi_memory_of_group(const char *groups, const char *root)
{
    char line[LONGEST_PATH];
    uint64_t least = UINT64_MAX;
    FILE *file = fopen(groups, "re");
    if (!file) return least;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::/", 4) != 0) continue; /* the line of version 2 */
        char *group = line + 3;
        group[strcspn(group, "\n")] = '\0';
        for (char *slash = group + strlen(group); slash; slash = strrchr(group, '/')) {
            *slash = '\0';
            const uint64_t own = limit_of(root, group);
            if (own < least) least = own;
        }
    }
    fclose(file);
    return least;
}

uint64_t woi_memory_there(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    const uint64_t group = woi_memory_of_group("/proc/self/cgroup", "/sys/fs/cgroup");
    return group < machine ? group : machine;
}
