/* The names of shards. */
#include "shard_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

char *cli_shard_file(const char *prefix, uint64_t number, uint64_t count)
{
    char *path = NULL;
    if (asprintf(&path, "%s-%05" PRIu64 "-of-%05" PRIu64 ".safetensors", prefix, number + 1, count) < 0) return NULL;
    return path;
}

int cli_shard_refuse_device(const cli_command *self, const char *prefix)
{
    struct stat about;
    if (stat(prefix, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) return CLI_OK;
    return cli_usage(self, "-o '%s' is no plain file, and files are written whose names begin so", prefix);
}
