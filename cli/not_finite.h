/* Queries that nothing can answer, because what they are scored by is not finite. */
#ifndef WOI_CLI_NOT_FINITE_H
#define WOI_CLI_NOT_FINITE_H

#include "cli.h"

/* Warns of queries of a log (NULL is fine) with NaN or infinite numbers, or numbers so large that the scores by the
 * index are not finite. */
void cli_not_finite_warn(const char *path, const wo_log *log, const wo_index *index);

#endif
