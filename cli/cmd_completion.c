/* wideout completion: scripts that complete commands and options in bash and zsh, made from the tables that the
 * commands themselves use. */
#include "cli.h"

#include <string.h>

static void print_words(const cli_option *option, void *ctx)
{
    (void)ctx;
    printf(" --%s", option->name);
    if (option->letter) printf(" -%c", option->letter);
}

/* The words among "a|b|FILE", each with a space before it. */
static void print_values(const char *value)
{
    while (*value) {
        const size_t n = strcspn(value, "|");
        if (n > 1 && strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789-") >= n && (*value < '0' || *value > '9'))
            printf(" %.*s", (int)n, value);
        value += n + (value[n] == '|');
    }
}

/* What follows an option that takes a value: its words, or none, and then files are offered. */
static void print_value_case(const cli_option *option, void *ctx)
{
    const char *command = ctx;
    if (!option->value) return;
    printf("    '%s'*' --%s ='", command, option->name); /* bash takes --name=word apart */
    if (!option->optional) printf(" | '%s'*' --%s'", command, option->name);
    if (option->letter) printf(" | '%s'*' -%c'", command, option->letter);
    printf(") words='");
    print_values(option->value);
    printf("' ;;\n");
}

/* Every word that may follow `group` ("" for the first words), each once. Groups stand together in the table. */
static void print_names(const char *group)
{
    const size_t length = strlen(group);
    const char *last = "";
    size_t last_length = 0;
    for (const cli_command *const *c = cli_commands; *c; c++) {
        const char *name = (*c)->name;
        if (length > 0) {
            if (strncmp(name, group, length) != 0 || name[length] != ' ') continue;
            name += length + 1;
        }
        const size_t n = strcspn(name, " ");
        if (n != last_length || memcmp(last, name, n) != 0) printf(" %.*s", (int)n, name);
        last = name;
        last_length = n;
    }
}

/* The cases of a shell's 'case' over the words typed so far: groups, then commands. */
static void print_cases(void)
{
    const char *last = "";
    printf("    '' | help) words='help");
    print_names("");
    printf("' ;;\n");
    for (const cli_command *const *c = cli_commands; *c; c++) {
        char group[32];
        const size_t n = strcspn((*c)->name, " ");
        if ((*c)->name[n] == '\0' || (strncmp(last, (*c)->name, n + 1) == 0)) continue;
        snprintf(group, sizeof group, "%.*s", (int)n, (*c)->name);
        printf("    %s) words='", group);
        print_names(group);
        printf("' ;;\n");
        last = (*c)->name;
    }
    for (const cli_command *const *c = cli_commands; *c; c++) {
        cli_each_option(*c, print_value_case, (void *)(uintptr_t)(*c)->name);
        printf("    '%s' | '%s '*) words='", (*c)->name, (*c)->name);
        if (*c == &cli_cmd_completion) printf("bash zsh");
        cli_each_option(*c, print_words, NULL);
        printf("' ;;\n");
    }
}

static void print_bash(void)
{
    printf("# bash completion for wideout; made by 'wideout completion bash'\n"
           "_wideout() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} typed=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\" words=\n"
           "  [ \"$cur\" != = ] || { typed+=' =' cur=; }\n"
           "  case ${typed#help } in\n");
    print_cases();
    printf("  esac\n"
           "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
           "}\n"
           "complete -o default -F _wideout wideout\n");
}

static void print_zsh(void)
{
    printf("#compdef wideout\n"
           "# zsh completion for wideout; made by 'wideout completion zsh'\n"
           "_wideout() {\n"
           "  local typed=\"${(j: :)words[2,CURRENT-1]}\"\n"
           "  local words=\n"
           "  case ${typed#help } in\n");
    print_cases();
    printf("  esac\n"
           "  compadd -- ${=words}\n"
           "  _files\n"
           "}\n"
           "_wideout \"$@\"\n");
}

static int run(const cli_command *self, void *args, int n, char **rest)
{
    (void)args;
    if (n == 1 && strcmp(rest[0], "bash") == 0)
        print_bash();
    else if (n == 1 && strcmp(rest[0], "zsh") == 0)
        print_zsh();
    else
        return cli_usage(self, "expected bash or zsh");
    return cli_end();
}

const cli_command cli_cmd_completion = {
    "completion",
    "bash|zsh",
    "a completion script for bash or zsh",
    "Prints a script that completes wideout's commands, options and the words that options take.\n"
    "'make install' puts both in place;\n"
    "for one session:\n"
    "\n"
    "  source <(wideout completion bash)",
    NULL,
    sizeof(cli_common),
    run,
};
