/* A log and, where they come in a file of their own, its labels: .npy, or .npz, which is an archive and the tool's to
 * open. */
#ifndef WOI_CLI_LABELLED_H
#define WOI_CLI_LABELLED_H

#include "cli.h"
#include "text/npz.h"

/* A zeroed one is empty. */
typedef struct cli_labelled {
    wo_log *log;     /* to be used */
    wo_log *queries; /* what it borrows them from, where labels are of an archive */
    woi_label_lists lists;
} cli_labelled;

/* `labels` may be NULL. Failures say what they are about, as those of wo_log_open_labelled. */
wo_status cli_labelled_open(const char *log, const char *labels, cli_labelled *labelled, wo_error *err);
void cli_labelled_free(cli_labelled *labelled);

/* Logs of several files as one. A zeroed one is empty. */
typedef struct cli_logs {
    const wo_log *log; /* to be used; NULL: no file was named */
    cli_labelled parts[CLI_MOST_TEXTS];
    size_t rows[CLI_MOST_TEXTS]; /* queries of each */
    wo_log *joined;
} cli_logs;

/* `labels` go with a single file, and may be NULL. Of several each is held against `layer` before they are joined:
 * where a failure is about a file, *at is it. */
wo_status cli_logs_open(const cli_texts *files, const char *labels, const wo_layer *layer, cli_logs *logs,
                        const char **at, wo_error *err);
/* The file that the failure of a build is about, or NULL: of several, the one with a query that is not finite, and the
 * sentence is then of that file. */
const char *cli_logs_blame(const cli_texts *files, const cli_logs *logs, wo_error *err);
/* Of each file: a warning where queries are not finite (not_finite.h). */
void cli_logs_warn(const cli_texts *files, const cli_logs *logs, const wo_index *index);
void cli_logs_free(cli_logs *logs);

#endif
