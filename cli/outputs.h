/* The files that a command makes, mostly in one folder: they appear together, when all of them are complete. */
#ifndef WOI_CLI_OUTPUTS_H
#define WOI_CLI_OUTPUTS_H

#include "cli.h"
#include "store/store.h"

enum { CLI_MAX_OUTPUTS = 8 };

typedef struct cli_outputs {
    int n;
    char *path[CLI_MAX_OUTPUTS];
    woi_outfile *file[CLI_MAX_OUTPUTS]; /* of each path either a plain file */
    woi_st_writer *st[CLI_MAX_OUTPUTS]; /* or a safetensors file, when all its data are written */
    const char *at;                     /* the file that a failure is about */
    wo_error err;
} cli_outputs;

/* Whether a file can be made there, tried before the work and not after it; where it cannot, says why and returns
 * CLI_FAILED. Leaves nothing behind. */
int cli_output_try_checkpoint(const char *path, const char *checkpoint); /* of that output */
int cli_output_try(const char *path);

/* The same of a folder that is there or can be made, and of the files of these names in it; NULL ends them. */
int cli_output_try_folder(const char *folder, const char *const *names);

/* Makes the folder where it is missing (not its parents) and puts together the paths of `names`, which ends with NULL.
 */
wo_status cli_outputs_open(cli_outputs *outputs, const char *folder, const char *const *names);

/* Adds one path, put together of its three pieces. */
wo_status cli_outputs_name(cli_outputs *outputs, const char *start, const char *joint, const char *end);

/* Begins the plain file i; sets `at`, as the next calls that write to it may fail. */
wo_status cli_outputs_create(cli_outputs *outputs, int i);

/* Syncs all files, then renames all of them into place. A signal meanwhile leaves all of them, or none. */
wo_status cli_outputs_commit(cli_outputs *outputs);

/* A failure of the command's own: the sentence, about the file at `path`. */
wo_status cli_outputs_fail(cli_outputs *outputs, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Removes what was not committed. */
void cli_outputs_free(cli_outputs *outputs);

#endif
