/* What the time allows: how many queries FULL is asked, when the search ends, and what is kept for the last build.
 *
 *   |<- asking FULL ->|<- search: settings, one after the other ->|<- the winner from the log, and its batches ->|
 *   start                                          start + max_time - reserve                     start + max_time
 *
 * What one query of FULL takes is measured first, so that small times ask little of large layers. */
#include "tune/tune.h"

#include "base/clock.h"
#include "build/partition_learn.h"

#include <math.h>

enum {
    PROBE = 256,
    LEAST_JUDGED = 4096,
    PLANNED = 20000,     /* queries of the index in a round over all batch sizes */
    PLANNED_FULL = 3400, /* and of FULL */
};
static const double OF_FULL = 0.25; /* of FULL's time: a screen's */
static const double LEAST_S = 5;    /* that there are, whatever is asked for: one setting is finished on small layers */
static const double ASKING = 0.15;  /* of the time: FULL on the judged queries */

wo_status woi_tune_probe_full(woi_tune *t, wo_error *err)
{
    woi_judge judge;
    const wo_log few = {.n = t->log->n < PROBE ? t->log->n : PROBE, .d = t->log->d, .queries = t->log->queries};
    const woi_judge_call call = {.rows = &t->layer->dense, .log = &few, .k = t->o.k, .threads = t->threads};
    const double start = woi_now_s();
    const wo_status status = woi_judge_make(&call, &judge, err);
    if (status) return status;
    woi_judge_free(&judge);
    t->ask_s = (woi_now_s() - start) / (double)few.n;
    return WO_OK;
}

/* 4,096, 6,144, 8,192, 12,288, ...: so that two runs mostly have the same. */
size_t woi_tune_most_judged(const woi_tune *t)
{
    const double n = ASKING * fmax(t->o.max_time_s, LEAST_S) / fmax(t->ask_s, 1e-9);
    size_t most = LEAST_JUDGED;
    while ((double)most * 2 <= n && most < (size_t)1 << 30) most *= 2;
    return (double)most * 1.5 <= n ? most + most / 2 : most;
}

double woi_tune_left(const woi_tune *t)
{
    return t->start + t->o.max_time_s - woi_now_s();
}

/* Seconds that the best so far takes to be built, from all of the log or from what was learned from while tuning. */
static double build_s(const woi_tune *t, bool from_log)
{
    if (t->best == WOI_NO_ROW || woi_row(t, t->best)[WOI_CURVE_METHOD] != WO_METHOD_EVIDENCE) return 0;
    const double more = from_log && t->train.n ? (double)t->log->n / (double)t->train.n : 1;
    return more * t->learn_s[t->best] + (from_log && !t->train_is_log ? more * t->needs_s : 0);
}

/* FULL's, for a query, or 0: it was not tried. */
static double full_s(const woi_tune *t)
{
    const bool full = t->n_rows && woi_row(t, 0)[WOI_CURVE_METHOD] == WO_METHOD_FULL;
    return full ? 1e-6 * woi_row(t, 0)[WOI_CURVE_US] : 0;
}

/* Where nothing but FULL was found, the index may be a screen. */
static double plan_s(const woi_tune *t)
{
    const double *best = t->best == WOI_NO_ROW ? NULL : woi_row(t, t->best);
    const bool other = best && best[WOI_CURVE_METHOD] != WO_METHOD_FULL;
    return PLANNED_FULL * full_s(t) + PLANNED * (other ? 1e-6 * best[WOI_CURVE_US] : OF_FULL * full_s(t));
}

/* The screen is the last that is tried, where nothing but FULL was found. */
static double screen_s(const woi_tune *t)
{
    if (t->o.fixed & WO_FIX_METHOD || t->best == WOI_NO_ROW) return 0;
    if (woi_row(t, t->best)[WOI_CURVE_METHOD] != WO_METHOD_FULL) return 0;
    return OF_FULL * full_s(t) * (woi_tune_timed(t->o.batch) + (double)t->judged.n / t->threads);
}

/* FULL is asked of the queries that the index keeps, and of those that log Z is learned from. */
static double complete_s(const woi_tune *t)
{
    const double n = (double)t->log->n;
    return t->ask_s * (fmin(n, t->build.keep) + (t->build.partition ? fmin(n, WOI_LOG_Z_SAMPLE) : 0));
}

/* Building from the whole log is worth a third of the time, not more. */
static const double FOR_LOG = 1.0 / 3;

static double reserve_s(const woi_tune *t)
{
    const double whole = build_s(t, true), part = build_s(t, false);
    return screen_s(t) + plan_s(t) + complete_s(t) + (whole <= FOR_LOG * t->o.max_time_s ? whole : part);
}

/* Before so much has gone no search ends; what is left is for the build. */
static double least_search_s(const woi_tune *t)
{
    return fmin(LEAST_S, (1 - FOR_LOG) * fmax(t->o.max_time_s, LEAST_S));
}

bool woi_tune_fits_log(const woi_tune *t)
{
    /* A search ends when no more is left than this takes: a little less must do. */
    const double over = fmax(1, 0.05 * t->o.max_time_s), left = fmax(woi_tune_left(t) + over, 1);
    /* It is built in any case: what hardly takes longer from all of the log is. */
    return t->train_is_log || t->o.max_time_s < LEAST_S || build_s(t, true) - build_s(t, false) <= over / 2 ||
           build_s(t, true) + plan_s(t) + complete_s(t) <= left;
}

bool woi_tune_is_late(const woi_tune *t, double share)
{
    const double gone = woi_now_s() - t->start;
    return gone >= share * t->o.max_time_s || (gone >= least_search_s(t) && gone + reserve_s(t) >= t->o.max_time_s);
}

bool woi_tune_must_stop(woi_tune *t)
{
    if (t->stopped) return true;
    if (t->o.enough && t->o.enough(t->o.enough_ctx)) t->interrupted = t->stopped = true;
    /* Before there is an answer, not even FULL, a search goes on. */
    if (t->best != WOI_NO_ROW && t->n_rows > 0 && woi_now_s() - t->start >= least_search_s(t) && woi_tune_is_late(t, 1))
        t->stopped = true;
    return t->stopped;
}
