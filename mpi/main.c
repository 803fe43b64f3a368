/* wideout-mpi: commands of wideout on several processes, started by mpirun. Finds the command, hands over. */
#include "commands.h"

#include <string.h>

const char cli_program[] = "wideout-mpi";

const cli_command *const cli_commands[] = {&mpi_cmd_build, &mpi_cmd_eval, &mpi_cmd_predict, &mpi_cmd_train_xc, NULL};

static void print_overview(FILE *to)
{
    fputs("Usage: mpirun -n P wideout-mpi COMMAND [options] ...\n\n"
          "Commands of wideout on P processes, which share the classes of a wide layer.\n\n"
          "Commands:\n",
          to);
    for (const cli_command *const *c = cli_commands; *c; c++) fprintf(to, "  %-10s %s\n", (*c)->name, (*c)->summary);
    fputs("\n'wideout-mpi COMMAND --help' explains a command. Exit codes: 0 done, 1 failed, 2 wrong usage.\n", to);
}

/* How many words of argv name this command: 0 where they do not. */
static int matches(const char *name, int argc, char **argv)
{
    int words = 0;
    while (*name) {
        const size_t length = strcspn(name, " ");
        if (words == argc || strlen(argv[words]) != length || memcmp(argv[words], name, length) != 0) return 0;
        words++;
        name += length + (name[length] == ' ');
    }
    return words;
}

static int run(int argc, char **argv)
{
    if (argc == 0) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_overview(stdout);
        return cli_end();
    }
    for (const cli_command *const *c = cli_commands; *c; c++) {
        const int words = matches((*c)->name, argc, argv);
        if (words) return cli_run(*c, argc - words + 1, argv + words - 1);
    }
    fputs("wideout-mpi: unknown command '", stderr);
    cli_print_text(stderr, argv[0]);
    fputs("' (see 'wideout-mpi --help')\n", stderr);
    return CLI_USAGE;
}

/* Two instruction sets differ in the last bits of floats: then ranks would not have the same router. */
static int same_instructions(void)
{
    wo_cpu_info cpu = {.struct_size = sizeof cpu};
    wo_error err;
    if (wo_cpu_query(&cpu, &err)) return cli_fail(NULL, &err);
    if (!job_same("the instruction set, which $WIDEOUT_CPU can lower,", cpu.level, strlen(cpu.level), &err))
        return CLI_OK;
    return job_failed_elsewhere() ? CLI_FAILED : cli_fail(NULL, &err);
}

int main(int argc, char **argv)
{
    int code = job_begin(&argc, &argv);
    if (!code) code = same_instructions();
    if (!code) cli_catch_vanished();
    if (!code) code = run(argc - 1, argv + 1);
    return job_end(code);
}
