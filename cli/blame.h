/* Whose fault it was: the library says what a failure is about, the tool knows what that is called here. */
#ifndef WOI_CLI_BLAME_H
#define WOI_CLI_BLAME_H

#include "cli.h"

/* What a command was given; NULL: not. */
typedef struct cli_files {
    const char *layer, *bias, *log, *tune_log, *labels, *tune_labels, *index, *query, *output, *checkpoint;
} cli_files;

/* "wideout: FILE: SENTENCE; HINT" on stderr. FILE is the file, or the option of the command, that the failure is about,
 * where it is about one; the hint names the option that helps, where one does. Returns CLI_FAILED. */
int cli_blame(const cli_command *command, const cli_files *files, const wo_error *err);

/* A warning: a layer without a bias, whose file has a tensor that may be one. */
void cli_warn_bias(const char *path, const char *tensor);

#endif
