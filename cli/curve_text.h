/* What a tuner tried, for people and for programs: shared by `build` and `info`. */
#ifndef WOI_CLI_CURVE_TEXT_H
#define WOI_CLI_CURVE_TEXT_H

#include "cli.h"

struct json_t;

/* The goal, and a table of what was best for its time; each line begins with `indent`. */
void cli_curve_print(const wo_curve *curve, const char *indent);

/* FULL's P@1; NAN: FULL was not tried, or there are no labels. */
double cli_curve_full_p_at_1(const wo_curve *curve);

/* On standard error, before a search: what the queries can show of a goal, where hits alone are too few for it. `open`:
 * the method is left open; `quiet`: warnings alone. */
void cli_curve_foretell(const wo_curve *goal, bool open, bool quiet);

/* The goal, what was chosen, and all that was tried: NULL where memory ran out. */
struct json_t *cli_curve_json(const wo_curve *curve);

/* Whether the chosen row reaches the goal. */
bool cli_curve_met(const wo_curve *curve);

/* All that was tried, as CSV with a line of names. */
void cli_curve_csv(const wo_curve *curve);

#endif
