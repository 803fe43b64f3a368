/* Memory within a limit: build --memory. */
#ifndef WOI_CLI_MEMORY_H
#define WOI_CLI_MEMORY_H

#include "cli.h"

/* From now on the library's large arrays lie in nameless files beside `output`, once half of the limit is in use: the
 * system writes them out when memory is short, and they are gone with the process. `limit` as given, "4G"; NULL: as
 * much as there is. To be called before the library has any object. Returns an exit code. */
int cli_memory_keep(const cli_command *self, const char *limit, const char *output);

#endif
