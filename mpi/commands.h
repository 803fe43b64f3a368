/* The commands of wideout-mpi. Each is a table of options and a function, as those of wideout (cli/cli.h), and runs on
 * all ranks at once. */
#ifndef WOI_MPI_COMMANDS_H
#define WOI_MPI_COMMANDS_H

#include "../cli/cli.h"
#include "job.h"

extern const cli_command mpi_cmd_build, mpi_cmd_eval, mpi_cmd_predict, mpi_cmd_train_xc;

#endif
