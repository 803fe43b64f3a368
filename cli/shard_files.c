/* The names of shards. */
#include "shard_files.h"

#include <inttypes.h>
#include <stdio.h>

char *cli_shard_file(const char *prefix, uint64_t number, uint64_t count)
{
    char *path = NULL;
    if (asprintf(&path, "%s-%05" PRIu64 "-of-%05" PRIu64 ".safetensors", prefix, number + 1, count) < 0) return NULL;
    return path;
}
