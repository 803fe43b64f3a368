/* The options of `build` that are the library's build options: made from its table, so that none is missing, and set by
 * name. */
#ifndef WOI_CLI_BUILD_OPTIONS_H
#define WOI_CLI_BUILD_OPTIONS_H

#include "cli.h"

enum { CLI_BUILD_MAX = 40 };

/* What was given, in the order of the library's table. */
typedef struct cli_build {
    const char *text[CLI_BUILD_MAX]; /* NULL: not given */
    bool flag[CLI_BUILD_MAX];        /* of those that take no value */
} cli_build;

/* All but the seed, which every command has; `offset` is where the command's arguments have their cli_build. Ends with
 * name NULL; static. */
const cli_option *cli_build_options(size_t offset);

bool cli_build_given(const cli_build *given, const char *name);

/* wo_tune_options.fixed: what was given is not tuned. */
unsigned cli_build_fixed(const cli_build *given);

/* The method that was asked for; without one, evidence. CLI_USAGE, after saying why, where there is no such method. */
int cli_build_method(const cli_command *self, const cli_build *given, wo_method *method);

/* Sets what was given over the defaults; CLI_USAGE, after saying why, where it cannot be, or has no part in such an
 * index. */
int cli_build_set(const cli_command *self, const cli_build *given, wo_build_options *options);

/* The options that build an index with these settings, as a shell reads them: " --method evidence --router tree ...",
 * as snprintf writes: terminated, and the length that all of it has. */
size_t cli_build_text(const wo_build_options *options, char *text, size_t text_bytes);

#endif
