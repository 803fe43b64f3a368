/* The rank's own part of a layer or an index: a shard's file, or a range of a whole layer. */
#ifndef WOI_MPI_PARTS_H
#define WOI_MPI_PARTS_H

#include "../cli/layer_options.h"
#include "job.h"

/* The file of this rank: `given` itself where there is such a file, else the rank's shard of that prefix. To be freed;
 * NULL where memory ran out. */
char *part_file(const char *given);

/* Opens this rank's part of the layer, and compares with the others'. `names`, or NULL, is a file with names of all
 * classes, one a line. On failure the exit code, after a sentence where it is this rank's. */
int part_open_layer(const cli_command *self, const cli_layer *given, const char *names, wo_layer **layer);

/* The same of an index; `layer` may be NULL. */
int part_open_index(const cli_command *self, const char *given, const wo_layer *layer, wo_index **index);

/* Prints a failure, unless it is another rank's. Returns CLI_FAILED. */
int part_blame(const cli_command *self, const cli_files *files, const wo_error *err);

#endif
