/* What the classes of somebody's model are called: a text file, a name a line. */
#ifndef WOI_CLI_CLASS_NAMES_H
#define WOI_CLI_CLASS_NAMES_H

#include "cli.h"
#include "text/names_text.h"

/* Reads the names of m classes; where they cannot be read, or are not m, says so and returns CLI_FAILED. */
int cli_names_read(const char *path, size_t m, woi_names *names);

/* Names the classes of a layer. */
int cli_names_give(const char *path, wo_layer *layer);

#endif
