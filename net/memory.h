/* How much memory a process can have here: that of the machine, or what a container leaves it of that. */
#ifndef WOI_NET_MEMORY_H
#define WOI_NET_MEMORY_H

#include <stdint.h>

/* Bytes; UINT64_MAX where it cannot be told. */
uint64_t woi_memory_there(void);

/* The least memory.max of a control group (version 2) and of those around it, whose names are in the file `groups`, as
 * in /proc/self/cgroup, and their folders below `root`. UINT64_MAX: none is set, or none can be read. */
uint64_t woi_memory_of_group(const char *groups, const char *root);

#endif
