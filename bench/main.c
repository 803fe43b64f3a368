/* wideout-bench: every method and every peer on the same layers, queries and threads. Finds the command, hands over. */
#include "run.h"

#include "report.h"

#include <string.h>

const char cli_program[] = "wideout-bench";

static const cli_command *const commands[] = {&bench_cmd_run,    &bench_cmd_compare, &bench_cmd_table1,
                                              &bench_cmd_table2, &bench_cmd_table3,  &bench_cmd_figure2,
                                              &bench_cmd_rank,   &bench_cmd_slide};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_overview(FILE *to)
{
    fputs("Usage: wideout-bench COMMAND [options] ...\n\n"
          "Methods for wide output layers, and their peers, measured side by side.\n\n"
          "Commands:\n",
          to);
    for (int i = 0; i < N_COMMANDS; i++) fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "  %-10s %s\n", "report", "one page with tables and plots out of result files");
    fputs("\n'wideout-bench COMMAND --help' explains a command. Exit codes: 0 done, 1 failed, 2 wrong usage.\n", to);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_overview(stdout);
        return cli_end();
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(word, commands[i]->name) == 0) return cli_run(commands[i], argc - 1, argv + 1);
    if (strcmp(word, "report") == 0) return bench_report(argc - 1, argv + 1);
    fputs("wideout-bench: unknown command '", stderr);
    cli_print_text(stderr, word);
    fputs("' (see 'wideout-bench --help')\n", stderr);
    return CLI_USAGE;
}
