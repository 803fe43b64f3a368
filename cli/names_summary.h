/* What is in a file of names, one a line: labels.txt and features.txt of 'wideout data'. */
#ifndef WOI_CLI_NAMES_SUMMARY_H
#define WOI_CLI_NAMES_SUMMARY_H

#include "cli.h"

/* Says what is there, for people or as JSON. Returns the exit code. */
int cli_names_info(const char *path, bool json);

#endif
