/* The wideout tool: finds the command, hands over. */
#include "cli.h"
#include "suggest.h"

#include <string.h>

const char cli_program[] = "wideout";

/* In the order in which they are met. */
const cli_command *const cli_commands[] = {
    &cli_cmd_data_deb822, &cli_cmd_data_text,      &cli_cmd_data_xc,    &cli_cmd_data_split,
    &cli_cmd_data_draw,   &cli_cmd_data_synthetic, &cli_cmd_train_xc,   &cli_cmd_train_w2v,
    &cli_cmd_train_lm,    &cli_cmd_embed,          &cli_cmd_build,      &cli_cmd_eval,
    &cli_cmd_predict,     &cli_cmd_generate,       &cli_cmd_serve,      &cli_cmd_update,
    &cli_cmd_check,       &cli_cmd_shard,          &cli_cmd_join,       &cli_cmd_info,
    &cli_cmd_cpu,         &cli_cmd_version,        &cli_cmd_completion, NULL,
};

static void print_overview(FILE *to)
{
    fputs("Usage: wideout COMMAND [options] ...\n\n"
          "Cheap inference for wide output layers on CPUs.\n\n"
          "Commands:\n",
          to);
    for (const cli_command *const *c = cli_commands; *c; c++) fprintf(to, "  %-15s %s\n", (*c)->name, (*c)->summary);
    fputs("\nFrom data to answers, with data that are made up:\n\n"
          "  wideout data synthetic --as text -m 500 -n 5000 -o data\n"
          "  wideout train xc --train data/train.txt --valid data/valid.txt -o net\n"
          "  wideout embed net --data data/train.txt -o train.log\n"
          "  wideout embed net --data data/valid.txt -o valid.log\n"
          "  wideout build --layer net --log train.log --tune-log valid.log -o index\n"
          "  wideout predict --index index --net net data/test.txt\n"
          "\n'wideout COMMAND --help' explains a command. Exit codes: 0 done, 1 failed, 2 wrong usage.\n",
          to);
}

/* How many words of argv name this command: 0 where they do not. */
static int matches(const cli_command *command, int argc, char **argv)
{
    const char *name = command->name;
    int words = 0;
    while (*name) {
        size_t length = strcspn(name, " ");
        if (words == argc || strlen(argv[words]) != length || memcmp(argv[words], name, length) != 0) return 0;
        words++;
        name += length + (name[length] == ' ');
    }
    return words;
}

/* "data", "train" */
static bool is_group(const char *word)
{
    const size_t length = strlen(word);
    for (const cli_command *const *c = cli_commands; *c; c++)
        if (strncmp((*c)->name, word, length) == 0 && (*c)->name[length] == ' ') return true;
    return false;
}

static int unknown(const char *word, const char *second)
{
    if (!second && is_group(word)) {
        fprintf(stderr, "wideout: '%s' is the first word of several commands (see 'wideout %s --help')\n", word, word);
        return CLI_USAGE;
    }
    fputs("wideout: unknown command '", stderr);
    cli_print_text(stderr, word);
    if (second) fputc(' ', stderr);
    if (second) cli_print_text(stderr, second);
    char typed[64];
    snprintf(typed, sizeof typed, "%s%s%s", word, second ? " " : "", second ? second : "");
    const char *meant = cli_suggest_command(cli_commands, typed);
    if (!meant && second && !is_group(word)) meant = cli_suggest_command(cli_commands, word);
    fputs(meant ? "': did you mean '" : "'", stderr);
    if (meant) fprintf(stderr, "%s'?", meant);
    fputs(" (see 'wideout --help')\n", stderr);
    return CLI_USAGE;
}

/* "data" alone, or "data --help": the commands below it. */
static int print_group(const char *group, bool asked)
{
    size_t length = strlen(group);
    bool found = false;
    for (const cli_command *const *c = cli_commands; *c; c++) {
        if (strncmp((*c)->name, group, length) != 0 || (*c)->name[length] != ' ') continue;
        FILE *to = asked ? stdout : stderr;
        if (!found) fprintf(to, "Usage: wideout %s COMMAND [options] ...\n\nCommands:\n", group);
        fprintf(to, "  %-15s %s\n", (*c)->name, (*c)->summary);
        found = true;
    }
    if (!found) return unknown(group, NULL);
    return asked ? cli_end() : CLI_USAGE;
}

int main(int argc, char **argv)
{
    cli_catch_vanished();
    argc--;
    argv++;
    if (argc == 0) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0 || (strcmp(argv[0], "help") == 0 && argc == 1)) {
        print_overview(stdout);
        return cli_end();
    }
    static char version[] = "version", ask_help[] = "--help";
    if (strcmp(argv[0], "--version") == 0) argv[0] = version;
    bool help = strcmp(argv[0], "help") == 0; /* "help data xc" is "data xc --help" */
    if (help) {
        argc--;
        argv++;
    }
    for (const cli_command *const *c = cli_commands; *c; c++) {
        int words = matches(*c, argc, argv);
        if (words == 0) continue;
        char *ask[] = {argv[words - 1], ask_help, NULL};
        return help ? cli_run(*c, 2, ask) : cli_run(*c, argc - words + 1, argv + words - 1);
    }
    const bool one = argc == 1 || argv[1][0] == '-'; /* an option is no part of the command's name */
    const bool asks = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    return argc > 1 && !asks ? unknown(argv[0], one ? NULL : argv[1]) : print_group(argv[0], help || asks);
}
