/* What the files of shards are called: PREFIX-00002-of-00004.safetensors, counted from 1. */
#ifndef WOI_CLI_SHARD_FILES_H
#define WOI_CLI_SHARD_FILES_H

#include "cli.h"

/* `number` counts from 0. To be freed; NULL where memory ran out. */
char *cli_shard_file(const char *prefix, uint64_t number, uint64_t count);

/* Removes what processes that were killed have left of such files, and of PREFIX.checkpoint: temporary names, between
 * which and the last one there is but a moment. Nobody else may be writing there. */
void cli_shard_sweep(const char *prefix);

/* Refuses a prefix that is a device or a pipe: who writes to /dev/null wants no files beside it. CLI_OK, or CLI_USAGE.
 */
int cli_shard_refuse_device(const cli_command *self, const char *prefix);

#endif
