/* Two rules about files, whatever names they are given by: an output is never an input, and an input is given once.
 * Asked before any work. */
#ifndef WOI_CLI_INPUTS_H
#define WOI_CLI_INPUTS_H

#include "cli.h"

/* Whether writing `output` would change what is read from `input`: it is that file, or a shard of it. */
bool cli_is_part(const char *output, const char *input);

/* CLI_USAGE, after saying so, where `output` is one of the n inputs, or a shard of one. Inputs that are NULL are passed
 * over, "-" is standard input; what does not exist is no other file. */
int cli_refuse_inputs(const cli_command *self, const char *output, const char *const *inputs, size_t n);

/* The same for each of `names`, which ends with NULL, in a folder. */
int cli_refuse_inputs_in(const cli_command *self, const char *folder, const char *const *names,
                         const char *const *inputs, size_t n);

/* CLI_USAGE, after saying so, where two of the names of an option that may be given several times are one file. */
int cli_refuse_twice(const cli_command *self, const char *option, const cli_texts *names);

#endif
