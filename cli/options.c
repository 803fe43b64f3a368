/* Parsing with getopt_long, and help, both from a command's table of options. */
#include "build_options.h"
#include "suggest.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 80, FIRST_CODE = 256, MAX_THREADS = 1024, LEFT = 31, WIDTH = 100 };

const cli_option cli_common_options[] = {
    {"json", 0, CLI_FLAG, offsetof(cli_common, json), NULL, "print one JSON object and nothing else", false},
    {"quiet", 'q', CLI_FLAG, offsetof(cli_common, quiet), NULL, "no progress bar", false},
    {"threads", 't', CLI_COUNT, offsetof(cli_common, threads), "N", "threads to use (default: 0, all cores)", false},
    {"seed", 0, CLI_COUNT, offsetof(cli_common, seed), "N", "seed of everything random (default: 1)", false},
    {"help", 'h', CLI_FLAG, offsetof(cli_common, help), NULL, "this text", false},
    {0},
};

static void each(const cli_option *options, void (*fn)(const cli_option *option, void *ctx), void *ctx)
{
    for (const cli_option *o = options; o && o->name; o++)
        if (o->kind == CLI_BUILD)
            each(cli_build_options(o->offset), fn, ctx);
        else
            fn(o, ctx);
}

/* A command may have words of its own for a common option. */
void cli_each_option(const cli_command *command, void (*fn)(const cli_option *option, void *ctx), void *ctx)
{
    each(command->options, fn, ctx);
    for (const cli_option *o = cli_common_options; o->name; o++) {
        const cli_option *own = command->options;
        while (own && own->name && strcmp(own->name, o->name) != 0) own++;
        if (!own || !own->name) fn(o, ctx);
    }
}

/* ---- Help -------------------------------------------------------------------------------------------------- */

static void print_option(const cli_option *option, void *ctx)
{
    (void)ctx;
    char left[64];
    const char *close = "", *gap = "";
    if (option->value) {
        gap = option->optional ? "[=" : " ";
        close = option->optional ? "]" : "";
    }
    snprintf(left, sizeof left, "%s%c%s--%s%s%s%s", option->letter ? "-" : " ", option->letter ? option->letter : ' ',
             option->letter ? ", " : "  ", option->name, gap, option->value ? option->value : "", close);
    const size_t first = strcspn(option->help, "\n");
    const bool fits = LEFT + strlen(option->help) <= WIDTH;
    if (strlen(left) >= LEFT - 2)
        printf("  %s\n%*s", left, LEFT, "");
    else
        printf("  %-*s", LEFT - 2, left);
    printf("%.*s", (int)first, option->help);
    if (option->help[first] && fits)
        printf(" %s", option->help + first + 1);
    else if (option->help[first])
        printf("\n%*s%s", LEFT, "", option->help + first + 1);
    printf("\n");
}

static void print_help(const cli_command *command)
{
    printf("Usage: %s %s %s\n\n%s\n\nOptions:\n", cli_program, command->name, command->usage, command->about);
    cli_each_option(command, print_option, NULL);
}

int cli_usage(const cli_command *command, const char *format, ...)
{
    char sentence[1024]; /* what the user typed may be in it */
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fprintf(stderr, "%s %s: ", cli_program, command->name);
    cli_print_text(stderr, sentence);
    fprintf(stderr, " (see '%s %s --help')\n", cli_program, command->name);
    return CLI_USAGE;
}

/* ---- Parsing ----------------------------------------------------------------------------------------------- */

/* The place of `word` in "a|b|c", or -1. */
static int find_choice(const char *choices, const char *word)
{
    size_t n = strlen(word);
    for (int i = 0;; i++) {
        size_t length = strcspn(choices, "|");
        if (length == n && memcmp(choices, word, n) == 0) return i;
        choices += length;
        if (*choices++ == '\0') return -1;
    }
}

/* Stores one option's value; CLI_USAGE, after saying why, where it is not valid. */
static int store(const cli_command *command, const cli_option *option, void *args, const char *text)
{
    void *target = (char *)args + option->offset;
    switch (option->kind) {
    case CLI_FLAG: *(bool *)target = true; return CLI_OK;
    case CLI_TEXT_ONCE:
        if (*(const char **)target) return cli_usage(command, "--%s is given twice", option->name);
        *(const char **)target = text;
        return CLI_OK;
    case CLI_OUTPUT:
        if (strcmp(text, "-") == 0)
            return cli_usage(command, "--%s takes a name, not '-': standard output cannot be it", option->name);
        *(const char **)target = text;
        return CLI_OK;
    case CLI_TEXT: *(const char **)target = text; return CLI_OK;
    case CLI_TEXTS: {
        cli_texts *texts = target;
        if (texts->n == CLI_MOST_TEXTS)
            return cli_usage(command, "--%s is given more than %d times", option->name, CLI_MOST_TEXTS);
        texts->of[texts->n++] = text;
        return CLI_OK;
    }
    case CLI_COUNT:
    case CLI_SIZE:
    case CLI_SIZE_OR_AUTO: {
        const bool or_auto = option->kind == CLI_SIZE_OR_AUTO;
        char *end;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 10), least = option->kind != CLI_COUNT;
        if (or_auto && strcmp(text, "auto") == 0) {
            *(uint64_t *)target = CLI_AUTO;
            return CLI_OK;
        }
        if (*text < '0' || *text > '9' || *end || errno || value < least)
            return cli_usage(command, "--%s takes a whole number of %llu or more%s, not '%s'", option->name, least,
                             or_auto ? ", or auto" : "", text);
        *(uint64_t *)target = value;
        return CLI_OK;
    }
    case CLI_REAL: {
        char *end;
        double low = 0, high = 0, value = strtod(text, &end);
        sscanf(option->value, "%lf-%lf", &low, &high);
        if (end == text || *end || !(value >= low && value <= high))
            return cli_usage(command, "--%s takes a number from %g to %g, not '%s'", option->name, low, high, text);
        *(double *)target = value;
        return CLI_OK;
    }
    case CLI_CHOICE: {
        int choice = text ? find_choice(option->value, text) : 0;
        if (choice < 0) return cli_usage(command, "--%s takes %s, not '%s'", option->name, option->value, text);
        *(int *)target = choice + 1; /* 0 is "not given" */
        return CLI_OK;
    }
    case CLI_BUILD: break; /* stands for others */
    }
    return CLI_USAGE;
}

/* Options of other commands that people look for here. */
static const struct {
    const char *command, *option, *instead;
} elsewhere[] = {
    {"serve", "index", "the index is given without an option: wideout serve INDEX"},
    {"build", "tune-log",
     "several processes do not tune: tune on one machine, with a sample of the classes, and give its options"},
    {"build", "target",
     "several processes do not tune: tune on one machine, with a sample of the classes, and give its options"},
    {"serve", "names", "names go into the index when it is built: wideout build --names FILE"},
};

static int unknown_option(const cli_command *command, const char *typed)
{
    char name[64];
    const char *word = typed + strspn(typed, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        if (strcmp(command->name, elsewhere[i].command) == 0 && strcmp(name, elsewhere[i].option) == 0)
            return cli_usage(command, "unknown option '%s': %s", typed, elsewhere[i].instead);
    const char *meant = cli_suggest_option(command, name);
    if (!meant) return cli_usage(command, "unknown option '%s'", typed);
    return cli_usage(command, "unknown option '%s': did you mean --%s?", typed, meant);
}

typedef struct option_list {
    const cli_option *list[MAX_OPTIONS];
    int n;
} option_list;

static void add_option(const cli_option *option, void *ctx)
{
    option_list *all = ctx;
    if (all->n == MAX_OPTIONS) abort();
    all->list[all->n++] = option;
}

int cli_run(const cli_command *command, int argc, char **argv)
{
    /* getopt's own tables, made from ours: options are known by FIRST_CODE + place. */
    option_list all = {.n = 0};
    cli_each_option(command, add_option, &all);
    const cli_option *const *known = all.list;
    const int n = all.n;
    struct option longs[MAX_OPTIONS + 1] = {{0}};
    char shorts[2 * MAX_OPTIONS + 2] = ":";
    for (int i = 0; i < n; i++) {
        int argument = known[i]->kind == CLI_FLAG ? no_argument
                       : known[i]->optional       ? optional_argument
                                                  : required_argument;
        longs[i] = (struct option){known[i]->name, argument, NULL, FIRST_CODE + i};
        if (!known[i]->letter) continue;
        size_t used = strlen(shorts);
        shorts[used] = known[i]->letter;
        if (argument == required_argument) shorts[used + 1] = ':';
    }
    union {
        max_align_t align;
        char bytes[1024];
    } args = {.bytes = {0}};
    cli_common *common = (cli_common *)args.bytes;
    common->seed = 1;
    if (command->args_bytes > sizeof args) abort();
    for (int i = 0; i < n; i++)
        if (known[i]->kind == CLI_REAL) memcpy(args.bytes + known[i]->offset, &(double){NAN}, sizeof(double));

    optind = 0;
    opterr = 0;
    for (int code; (code = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const cli_option *option = NULL;
        for (int i = 0; i < n && !option; i++)
            if (code == FIRST_CODE + i || (code < FIRST_CODE && code == known[i]->letter)) option = known[i];
        if (code == ':') return cli_usage(command, "option '%s' needs a value", argv[optind - 1]);
        if (!option) {
            if (optopt && optopt < FIRST_CODE) return cli_usage(command, "unknown option '-%c'", optopt);
            return unknown_option(command, argv[optind - 1]);
        }
        int status = store(command, option, args.bytes, optarg);
        if (status) return status;
    }
    if (common->threads > MAX_THREADS)
        return cli_usage(command, "--threads takes at most %d, not %llu", MAX_THREADS,
                         (unsigned long long)common->threads);
    if (common->help) {
        print_help(command);
        return cli_end();
    }
    return cli_die_of_signal(command->run(command, args.bytes, argc - optind, argv + optind));
}
