/* What helps: sentences of the library and the workshop name no option of the tool, it adds them. */
#ifndef WOI_CLI_HINTS_H
#define WOI_CLI_HINTS_H

#include "wideout.h"

/* By what the failure is about, its option and its status: static, or NULL. */
const char *cli_hint_of(const wo_error *err);

#endif
