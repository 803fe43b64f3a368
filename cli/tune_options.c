/* The options of `build` that ask for tuning: read and checked. */
#include "tune_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool cli_tune_asked(const cli_tune *g)
{
    return g->target || !isnan(g->target5) || !isnan(g->target_agree) || !isnan(g->target_us);
}

const char *cli_tune_given(const cli_tune *g)
{
    return g->log ? "--tune-log" : g->k ? "-k" : g->batch ? "--batch" : g->max_time ? "--max-time" : NULL;
}

/* "90s", "5m", "1h", "90": seconds; NaN where it is none of these. */
static double read_time(const char *text)
{
    static const char units[] = "smh";
    static const double seconds[] = {1, 60, 3600};
    char *end;
    const double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : units;
    if (end == text || !unit || (*end && end[1]) || strpbrk(text, "xX")) return NAN; /* strtod reads 0x10 too */
    const double time = value * seconds[unit - units];
    return time > 0 && time <= 1e9 ? time : NAN;
}

int cli_tune_read(const cli_command *self, const cli_tune *g, wo_tune_options *o)
{
    const bool best = g->target && strcmp(g->target, "best") == 0;
    const bool by_labels = (g->target && !best) || !isnan(g->target5), by_answers = !isnan(g->target_agree),
               by_time = !isnan(g->target_us);
    double target = NAN;
    if (g->target && !best) {
        char *end;
        target = strtod(g->target, &end);
        if (end == g->target || *end || !(target >= 0 && target <= 2))
            return cli_usage(self, "--target takes a number from 0 to 2, or best, not '%s'", g->target);
    }
    if (best && (by_labels || by_answers))
        return cli_usage(self, "--target best and %s are two goals: give one",
                         by_answers ? "--target-agree" : "--target5");
    if (by_labels + by_answers + by_time > 1)
        return cli_usage(self, "%s and %s are two goals: give one",
                         !by_labels  ? "--target-agree"
                         : g->target ? "--target"
                                     : "--target5",
                         by_time ? "--target-us" : "--target-agree");
    if (target == 0) return cli_usage(self, "--target takes a number above 0");
    if (g->target_agree == 0) return cli_usage(self, "--target-agree takes a number above 0");
    if (g->target_us == 0) return cli_usage(self, "--target-us takes a number above 0");
    if (g->k > 1000) return cli_usage(self, "-k takes at most 1000, not %" PRIu64, g->k);
    if (g->batch > 65536) return cli_usage(self, "--batch takes at most 65536, not %" PRIu64, g->batch);
    if (g->max_time && isnan(o->max_time_s = read_time(g->max_time)))
        return cli_usage(
            self, "--max-time takes a time like 90s, 5m or 1h, up to 1e9 seconds, not '%s'; less than 5s counts as 5s",
            g->max_time);
    if (!isnan(target)) o->target = target;
    if (o->target5 > o->target) o->target5 = o->target; /* less of one, no more of five */
    if (!isnan(g->target5)) o->target5 = g->target5;
    if (by_answers) o->target_agree = g->target_agree;
    if (best) o->target_us = INFINITY;
    if (by_time) o->target_us = g->target_us;
    o->anyway = best && by_time; /* the best was asked for, and something is */
    if (g->k) o->k = (uint32_t)g->k;
    if (g->batch) o->batch = (uint32_t)g->batch;
    return CLI_OK;
}
