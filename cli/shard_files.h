/* What the files of shards are called: PREFIX-00002-of-00004.safetensors, counted from 1. */
#ifndef WOI_CLI_SHARD_FILES_H
#define WOI_CLI_SHARD_FILES_H

#include <stdint.h>

/* `number` counts from 0. To be freed; NULL where memory ran out. */
char *cli_shard_file(const char *prefix, uint64_t number, uint64_t count);

#endif
