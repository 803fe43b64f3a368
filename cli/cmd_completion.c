/* wideout completion: scripts that complete commands and options in bash and zsh, made from the tables that the
 * commands themselves use. */
#include "cli.h"

#include <string.h>

static void print_words(const cli_option *options, const char *separator)
{
    for (const cli_option *o = options; o && o->name; o++) {
        printf("%s--%s", separator, o->name);
        if (o->letter) printf("%s-%c", separator, o->letter);
    }
}

/* One case a command: what may follow its name. */
static void print_cases(const char *separator)
{
    for (const cli_command *const *c = cli_commands; *c; c++) {
        printf("    '%s') words='", (*c)->name);
        print_words((*c)->options, separator);
        print_words(cli_common_options, separator);
        if (strcmp((*c)->name, "completion") == 0) printf("%sbash%szsh", separator, separator);
        printf("' ;;\n");
    }
}

/* The first words, or the second words after "data". */
static void print_names(const char *group)
{
    size_t length = strlen(group);
    const char *last = "";
    for (const cli_command *const *c = cli_commands; *c; c++) {
        const char *name = (*c)->name, *space = strchr(name, ' ');
        if (length > 0) {
            if (strncmp(name, group, length) != 0 || name[length] != ' ') continue;
            printf(" %s", name + length + 1);
        } else {
            size_t n = space ? (size_t)(space - name) : strlen(name);
            if (strlen(last) >= n && strncmp(last, name, n) == 0) continue; /* "data" once */
            printf(" %.*s", (int)n, name);
            last = name;
        }
    }
}

static void print_bash(void)
{
    printf("# bash completion for wideout; made by 'wideout completion bash'\n"
           "_wideout() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
           "  [ \"$command\" = data ] && [ \"$COMP_CWORD\" -gt 2 ] && command=\"data ${COMP_WORDS[2]}\"\n"
           "  [ \"$COMP_CWORD\" -eq 1 ] && command=\n"
           "  case $command in\n"
           "    '') words='help");
    print_names("");
    printf("' ;;\n    data) words='");
    print_names("data");
    printf("' ;;\n");
    print_cases(" ");
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
           "  local command=${words[2]} given=$CURRENT\n"
           "  [[ $command == data && $given -gt 3 ]] && command=\"data ${words[3]}\"\n"
           "  [[ $given -eq 2 ]] && command=\n"
           "  local words\n"
           "  case $command in\n"
           "    '') words='help");
    print_names("");
    printf("' ;;\n    data) words='");
    print_names("data");
    printf("' ;;\n");
    print_cases(" ");
    printf("  esac\n"
           "  compadd -- ${=words}\n"
           "  [[ -n $command && $command != data ]] && _files\n"
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
    "Prints a script that completes wideout's commands and options. 'make install' puts both in place;\n"
    "for one session:\n"
    "\n"
    "  source <(wideout completion bash)",
    NULL,
    sizeof(cli_common),
    run,
};
