/* What the commands of the tool share: options, messages, progress, exit codes.
 *
 * A command is a row in main.c's table: a name, a usage line, a text, a table of options and a function. Help,
 * completion and parsing all read the same table, so none can fall behind. */
#ifndef WOI_CLI_CLI_H
#define WOI_CLI_CLI_H

#include "base/clock.h"
#include "wideout.h"

#include <stdbool.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* "wideout": main.c of each program that uses this has it. */
extern const char cli_program[];

/* ---- Options ----------------------------------------------------------------------------------------------- */

typedef enum cli_kind {
    CLI_FLAG,         /* bool, set to true */
    CLI_TEXT,         /* const char *, points into argv */
    CLI_TEXT_ONCE,    /* the same, of what is read: a second one would be taken for more of it, and is refused */
    CLI_OUTPUT,       /* the same, of a file or folder that is written: never standard output */
    CLI_TEXTS,        /* cli_texts: may be given several times */
    CLI_COUNT,        /* uint64_t */
    CLI_SIZE,         /* uint64_t of 1 or more; 0 where it was not given */
    CLI_SIZE_OR_AUTO, /* the same, or CLI_AUTO for the word auto */
    CLI_REAL,         /* double within the range that `value` names, "0-1"; NaN where it was not given */
    CLI_CHOICE, /* int: 1 + the place of the given word in `value`, "a|b|c"; 0 where it was not given; where `optional`,
                   the option alone means a */
    CLI_BUILD,  /* cli_build: stands for all the library's build options, see build_options.h */
} cli_kind;

#define CLI_AUTO UINT64_MAX

enum { CLI_MOST_TEXTS = 16 };

typedef struct cli_texts {
    const char *of[CLI_MOST_TEXTS]; /* point into argv; NULL beyond n */
    size_t n;
} cli_texts;

typedef struct cli_option {
    const char *name; /* long name; the end of a table has NULL */
    char letter;      /* or 0 */
    cli_kind kind;
    size_t offset;     /* of its variable in the command's arguments */
    const char *value; /* what its argument is called: "FILE", "a|b" */
    const char *help;  /* one line; a line end in it is a space where there is room */
    bool optional;     /* CLI_CHOICE: written --name or --name=word */
} cli_option;

/* Every command has these; a command's own struct begins with them. */
typedef struct cli_common {
    bool help, json, quiet;
    uint64_t threads, seed;
} cli_common;

typedef struct cli_command {
    const char *name;    /* "info", "data xc" */
    const char *usage;   /* what follows the name: "[options] FILE" */
    const char *summary; /* one line, for the list of commands */
    const char *about;   /* paragraphs and examples, for --help */
    const cli_option *options;
    size_t args_bytes;                                                          /* of the struct that options fill */
    int (*run)(const struct cli_command *self, void *args, int n, char **rest); /* rest: what is not an option */
} cli_command;

extern const cli_command *const cli_commands[]; /* ends with NULL */
extern const cli_option cli_common_options[];

/* Calls `fn` for each option of a command, the common ones last. */
void cli_each_option(const cli_command *command, void (*fn)(const cli_option *option, void *ctx), void *ctx);

/* Parses argv (argv[0] is the command's last word), prints help, runs; returns the exit code. */
int cli_run(const cli_command *command, int argc, char **argv);

/* ---- Messages ---------------------------------------------------------------------------------------------- */

/* "wideout: PATH: SENTENCE" on stderr; path may be NULL. Behind it what helps, of a failure of the workshop's
 * (hints.h). Returns CLI_FAILED. */
int cli_fail(const char *path, const wo_error *err);
/* The same with "; HINT" behind it, unless NULL. */
int cli_fail_hint(const char *path, const wo_error *err, const char *hint);

/* A failure of the command's own, printf style; gives `status`. */
wo_status cli_set_error(wo_error *err, wo_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "wideout info: SENTENCE (see 'wideout info --help')" on stderr. Returns CLI_USAGE. */
int cli_usage(const cli_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends a command that printed to stdout: a full disk or a closed pipe is a failure too. Returns the exit code. */
int cli_end(void);

/* From now on a mapped file that is shortened while it is read ends the program with a sentence: see vanished.c. */
void cli_catch_vanished(void);
/* Asked by its handler before it says anything; false: another process says it. NULL: it always does. */
void cli_when_vanished(bool (*may_speak)(void));

/* Text from a file, made fit for a terminal: control characters, C1's among them, characters that turn the direction of
 * writing, and bytes that are no UTF-8 become '?'. */
void cli_print_text(FILE *to, const char *text);
void cli_print_bytes(FILE *to, const char *text, size_t bytes);
/* The bytes of the character at `text`, 1 where it is none, and whether it is fit. Also for signal handlers. */
size_t cli_character(const char *text, size_t bytes, bool *fit);

/* As one word of a shell's, in quotes where it needs them: what cli_print_text shows as '?' is in $'...', in hex. */
void cli_print_shell(FILE *to, const char *text);

/* The columns of standard output: a terminal's, else $COLUMNS, else `otherwise`. */
int cli_columns(int otherwise);

/* "  F32      50,778 x 128    26.0 MB  ", which the tensor's name follows; closer together on a narrow terminal. */
void cli_print_tensor(const char *type, const char *shape, const char *bytes);

/* 45000 as "45,000", in one of sixteen rotating buffers. */
const char *cli_number(uint64_t n);

/* "45,000 queries", "1 query": `one` is the word for one, which gets an s, or ies for its y, where there are more. */
const char *cli_count(uint64_t n, const char *one);

/* "64.6 MB". */
const char *cli_bytes(uint64_t n);

/* Whether two names are one file, or would be, where neither is there yet. */
bool cli_same_file(const char *a, const char *b);

/* ---- JSON -------------------------------------------------------------------------------------------------- */

/* A string of any bytes, a path for instance: what is no UTF-8 becomes U+FFFD. NULL where memory ran out. */
struct json_t;
struct json_t *cli_json_text(const char *text);
struct json_t *cli_json_bytes(const char *text, size_t bytes);

/* The value as text and a line end, on stdout, with jansson's flags; what is unfit for a terminal is escaped. False:
 * memory ran out. */
bool cli_write_json(const struct json_t *value, size_t flags);

/* One object on stdout and nothing else; takes the reference. NULL (memory ran out) is a failure. */
int cli_print_json(struct json_t *object);

/* ---- Progress ---------------------------------------------------------------------------------------------- */

/* Unless --quiet or --json was given: a bar on stderr when that is a terminal, else a line every 15 seconds (or
 * $WIDEOUT_PROGRESS). SIGINT (Ctrl-C) and SIGTERM make the work stop at its next report, so that temporary files are
 * removed; where none comes within three seconds, or a second signal does, the process dies of it. */
wo_progress cli_progress(const cli_common *common);
void cli_progress_line(const char *text); /* any other line, in place of the bar; off a terminal as seldom */
void cli_progress_end(void);              /* wipes it */

/* While this is on, Ctrl-C does not make the work stop: cli_seen_enough, for a tuner, tells of it, and says so once. */
void cli_keep_on_interrupt(bool keep);
int cli_seen_enough(void *ctx);
bool cli_is_interrupted(void);
/* Called in the signal handler too, with the signal; NULL: nothing. */
void cli_when_interrupted(void (*call)(int signal_number));

/* Where a signal stopped the work: ends the process by that signal, so that scripts stop too. Else returns `code`. */
int cli_die_of_signal(int code);

double cli_peak_mib(void); /* the most memory this process has held */

/* ---- The commands ------------------------------------------------------------------------------------------ */

extern const cli_command cli_cmd_data_deb822, cli_cmd_data_text, cli_cmd_data_xc, cli_cmd_data_split, cli_cmd_data_draw,
    cli_cmd_data_synthetic, cli_cmd_train_xc, cli_cmd_train_w2v, cli_cmd_train_lm, cli_cmd_embed, cli_cmd_build,
    cli_cmd_shard, cli_cmd_join, cli_cmd_update, cli_cmd_check, cli_cmd_eval, cli_cmd_predict, cli_cmd_generate,
    cli_cmd_serve, cli_cmd_info, cli_cmd_cpu, cli_cmd_version, cli_cmd_completion;

#endif
