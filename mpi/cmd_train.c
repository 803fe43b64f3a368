/* wideout-mpi train xc: the tool's command, on all ranks. What they exchange is net/'s (net/ranks.h, net/softmax.h). */
#include "../cli/train.h"
#include "commands.h"

static int run(const cli_command *self, void *args, int n, char **rest)
{
    const cli_job job = {job_calls(), job_failed_elsewhere, job_phase, job_phases_json};
    return cli_train_xc(self, args, n, rest, &job);
}

const cli_command mpi_cmd_train_xc = {
    "train xc",
    "--train FILE -o FILE [options]",
    "train a bag network on extreme-classification text",
    "The network of 'wideout train xc', by its recipe and with its options. The classes are dealt out to\n"
    "the ranks: class c is rank c modulo P's, with its row, bias and Adam moments. All ranks read the\n"
    "same files, and each has the whole embedding. The loss is that of one process up to rounding, and\n"
    "the file is one network, written by rank 0.\n"
    "\n"
    "  mpirun -n 4 wideout-mpi train xc --train train.txt --valid valid.txt -o net.safetensors -t 4\n"
    "\n"
    "After every epoch each rank saves its share, rank 0 in FILE.checkpoint, rank 3 in\n"
    "FILE.checkpoint.3, in a folder of its machine or one that they share. --resume needs as many ranks\n"
    "as there were, and goes on to the very network that an undisturbed run would have made.",
    cli_train_xc_options,
    sizeof(cli_train_arguments),
    run,
};
