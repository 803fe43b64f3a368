/* "did you mean": the word that a typed one is nearest to. */
#ifndef WOI_CLI_SUGGEST_H
#define WOI_CLI_SUGGEST_H

#include "cli.h"

/* Of `commands`, which end with NULL, the one that `typed` ("eavl", "data xv", "xc") is likely to stand for, or the
 * group that it is ("trian": train), or NULL. Valid until the next call. */
const char *cli_suggest_command(const cli_command *const *commands, const char *typed);

/* The same of a command's options, for a long name without dashes. */
const char *cli_suggest_option(const cli_command *command, const char *typed);

#endif
