/* What an index is, for people and for programs: shared by the commands. */
#ifndef WOI_CLI_INDEX_TEXT_H
#define WOI_CLI_INDEX_TEXT_H

#include "cli.h"

struct json_t;

/* "evidence, K 10, L 4, lambda 0.1, ..." and a line of counts; each line begins with `indent`. */
void cli_index_print(const wo_index_info *info, const char *indent);

/* The same in "method", "options", "m", "d", "cells", ...: NULL where memory ran out. */
struct json_t *cli_index_json(const wo_index_info *info);

/* Where --exact-fallback was given and the index has no threshold for it, a warning. */
void cli_index_warn(const char *path, const wo_index_info *info, bool exact_fallback);

#endif
