/* Running configurations on open data: `run` and the exhibits that need runs of their own. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include "../cli/cli.h"
#include "result.h"

typedef struct bench_run {
    const cli_common *common; /* threads, seed, quiet */
    const char *command;      /* for the result */
    bool timed;               /* otherwise quality only */
    double budget_s;          /* for each point that is timed */
} bench_run;

/* Builds, judges and times what is not in PATH.partial yet, writes the result to `path` and removes the partial file.
 * What cannot be run is left out with a sentence on stderr. Returns an exit code. */
int bench_run_configs(const bench_run *run, const bench_workload *workload, const bench_data *data,
                      bench_configs *configs, const char *path);

/* Makes a folder and those above it, and tries the file at `path` in it: before the work. Where that cannot be, says
 * why and returns CLI_FAILED. */
int bench_try_output(const char *folder, const char *path);

extern const char bench_results_folder[]; /* where results go by default */

extern const cli_command bench_cmd_run, bench_cmd_compare, bench_cmd_table1, bench_cmd_figure2, bench_cmd_table2,
    bench_cmd_table3, bench_cmd_rank, bench_cmd_slide;

#endif
