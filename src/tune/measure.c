/* What an index does, in figures: its quality on the queries that are judged, its time, and whether that is the goal.
 */
#include "judge/evaluate.h"
#include "tune/tune.h"

#include "base/progress.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* The share of FULL's five best that a screen has. */
static const double ALL_BUT = 0.999;

enum { ROUNDS = 5, TURNS = 4, FIRST_TURNS = 8, APART_MS = 40 }; /* of timing */

wo_status woi_tune_time(const woi_tune *t, const woi_timing_call *call, wo_error *err)
{
    wo_eval_options o = woi_eval_defaults;
    o.ks[0] = t->o.k;
    o.n_ks = 1;
    memcpy(o.batches, call->batches, call->n * sizeof *call->batches);
    o.n_batches = call->n;
    o.batch = call->batches[0];
    o.rounds = call->rounds;
    o.progress = t->progress;
    wo_eval_timing all[WO_EVAL_MAX + 1];
    wo_eval_result result = {.timings = all};
    const woi_eval eval = {.index = call->index,
                           .full = call->full ? &t->layer->dense : NULL,
                           .log = &t->judged,
                           .options = &o,
                           .threads = t->threads,
                           .warm_only = true,
                           .result = &result};
    const wo_status status = woi_eval_time(&eval, err);
    memcpy(call->timings, result.timings, call->n * sizeof *call->timings);
    return status;
}

double woi_tune_timed(uint32_t batch)
{
    return 1.25 * TURNS * ROUNDS * (double)woi_eval_calls(batch) * batch;
}

static bool reached(const woi_pairs *p, double share)
{
    return share == 0 || woi_pairs_margin(p, share) >= 0;
}

/* As many hits as asked for, without confidence. */
static bool has_hits(const woi_pairs *p, double share)
{
    return p->h >= share * p->f;
}

/* The share of FULL's own answers that the index has for sure: on the judged queries, or on others of the log, less
 * what it has more of those. */
static double sure_agreement(const woi_judged *judged, const woi_judged *held)
{
    const woi_pairs *there = &judged->of[WOI_AGREE], *of_log = &held->of[WOI_AGREE];
    const double sure = woi_pairs_share(there);
    if (!of_log->n || !there->n) return sure;
    const double gap = of_log->h / (double)of_log->n - there->h / (double)there->n;
    return fmax(sure, woi_pairs_share(of_log) - fmax(0, gap));
}

/* Whether queries of the log, held out from building, show a share of FULL's hits, with confidence. The network was
 * trained on them, so that both do better there than on others. What the index loses is taken to grow as its
 * disagreement with FULL does: where that is `worse` times as large, it may lose a part of what it may lose there. */
static bool shown_by_others(const woi_judged *judged, const woi_judged *held, int quality, double share)
{
    const woi_pairs *there = &judged->of[WOI_AGREE], *of_log = &held->of[WOI_AGREE];
    if (!of_log->n || !held->of[quality].n) return false;
    const double apart = 1 - there->h / (double)there->n, apart_there = 1 - of_log->h / (double)of_log->n;
    const double worse = apart > apart_there ? apart / fmax(apart_there, 1 / (double)of_log->n) : 1;
    return held->of[quality].f > 0 && woi_pairs_margin(&held->of[quality], 1 - (1 - share) / worse) >= 0;
}

bool woi_tune_agrees(const woi_tune *t, double sure)
{
    return sure >= 1 - 2 * (1 - t->o.target);
}

/* Without confidence in hits, where they are too few: by agreement, or by hits on other queries. */
static bool is_met_by_few(const woi_tune *t, const woi_judged *judged, const woi_judged *held)
{
    if (woi_tune_agrees(t, sure_agreement(judged, held))) return true;
    return shown_by_others(judged, held, WOI_AT_1, t->o.target) &&
           (t->o.target5 == 0 || shown_by_others(judged, held, WOI_AT_5, t->o.target5));
}

/* The hits of an index that has one at every query, beside FULL's. */
static woi_pairs all_right(const woi_pairs *full)
{
    woi_pairs p = *full;
    const double n = (double)p.n;
    p.h = n;
    p.hh = n;
    p.hf = p.f;
    for (int i = 0; i < WOI_STRETCHES; i++) p.stretches[i].h = n / WOI_STRETCHES;
    return p;
}

wo_status woi_tune_see_provable(woi_tune *t, wo_error *err)
{
    woi_judged there, held = {0};
    wo_status status = woi_judge_index(&t->judge, NULL, &there, err);
    if (!status && t->held.n) status = woi_judge_index(&t->held_judge, NULL, &held, err);
    if (status) return status;
    if (woi_by_time(t)) return WO_OK;
    const woi_pairs *of = there.of;
    /* As many as an index would need that misses a hundredth of what FULL has over the goal. */
    if (t->few_hits)
        t->needed = (uint64_t)fmax(woi_pairs_needed(&of[WOI_AT_1], t->o.target),
                                   t->o.target5 > 0 ? woi_pairs_needed(&of[WOI_AT_5], t->o.target5) : 0);
    if (t->o.target_agree > 0) {
        t->provable = woi_pairs_margin(&of[WOI_AGREE], t->o.target_agree) < 0 ? WO_PROOF_ALL_EQUAL : WO_PROOF_AGREEMENT;
    } else if (!t->few_hits) {
        t->provable = WO_PROOF_HITS;
    } else if (is_met_by_few(t, &there, &held)) {
        t->provable = woi_tune_agrees(t, sure_agreement(&there, &held)) ? WO_PROOF_AGREEMENT : WO_PROOF_HELD_OUT;
    } else {
        const woi_pairs most = all_right(&of[WOI_AT_1]);
        t->may_beat = woi_pairs_margin(&most, t->o.target) >= 0;
        t->provable = WO_PROOF_ALL_EQUAL;
    }
    /* Then there is nothing to look for. */
    t->hopeless = t->provable == WO_PROOF_ALL_EQUAL && !(t->o.fixed & WO_FIX_METHOD);
    return WO_OK;
}

static bool is_met(const woi_tune *t, const wo_build_options *o, const woi_judged *judged, const woi_judged *held,
                   const double *row)
{
    const wo_tune_options *asked = &t->o;
    const woi_pairs *of = judged->of;
    if (woi_by_time(t)) return row[WOI_CURVE_US] <= asked->target_us;
    const bool scores_all = o->method == WO_METHOD_SCREEN && row[WOI_CURVE_AGREEMENT] >= ALL_BUT;
    if (asked->target_agree > 0)
        return row[WOI_CURVE_SURE_AGREEMENT] >= asked->target_agree || (scores_all && asked->target_agree <= ALL_BUT);
    if (reached(&of[WOI_AT_1], asked->target) && reached(&of[WOI_AT_5], asked->target5)) return true;
    if (!has_hits(&of[WOI_AT_1], asked->target) || !has_hits(&of[WOI_AT_5], asked->target5)) return false;
    if (o->method == WO_METHOD_SCREEN) return scores_all;
    return t->few_hits && woi_imitates(o) && is_met_by_few(t, judged, held);
}

static void note(const woi_tune *t, const wo_build_options *o, const woi_judged *judged, const woi_judged *held,
                 double *row)
{
    static const int means[] = {WOI_CURVE_P1, WOI_CURVE_P5, WOI_CURVE_AGREEMENT};
    static const int sures[] = {WOI_CURVE_SURE_P1, WOI_CURVE_SURE_P5, WOI_CURVE_SURE_AGREEMENT};
    for (int i = 0; i < WOI_QUALITIES; i++) {
        const woi_pairs *p = &judged->of[i];
        row[means[i]] = p->n ? p->h / (double)p->n : NAN;
        row[sures[i]] = woi_pairs_share(p);
    }
    row[WOI_CURVE_SURE_AGREEMENT] = sure_agreement(judged, held);
    row[WOI_CURVE_ERROR_P1] = woi_pairs_error(&judged->of[WOI_AT_1]);
    row[WOI_CURVE_CLASSES] = judged->classes;
    row[WOI_CURVE_MET] = is_met(t, o, judged, held, row);
}

/* ---- Time -------------------------------------------------------------------------------------------------- */

static wo_status time_once(const woi_tune *t, const wo_index *index, double *us, wo_error *err)
{
    wo_eval_timing timing = {0};
    const wo_status status = woi_tune_time(
        t, &(woi_timing_call){.index = index, .batches = &t->o.batch, .n = 1, .rounds = ROUNDS, .timings = &timing},
        err);
    *us = timing.us;
    return status;
}

wo_status woi_tune_set_yardstick(woi_tune *t, wo_index *index, wo_error *err)
{
    wo_status status = WO_OK;
    t->yardstick = index;
    t->yardstick_us = INFINITY;
    for (int i = 0; !status && i < FIRST_TURNS; i++) {
        double us;
        if (i) nanosleep(&(struct timespec){.tv_nsec = APART_MS * 1000000L}, NULL);
        status = time_once(t, index, &us, err);
        if (!status) t->yardstick_us = fmin(t->yardstick_us, us);
    }
    return status;
}

/* Beside the yardstick, where there is one: the mean of the ratios, the lowest and the highest left out. */
static wo_status time_beside(const woi_tune *t, const wo_index *index, double *us, wo_error *err)
{
    double sum = 0, lowest = INFINITY, highest = 0;
    for (int i = 0; i < TURNS; i++) {
        double own, other = 1;
        wo_status status = time_once(t, index, &own, err);
        if (!status && t->yardstick) status = time_once(t, t->yardstick, &other, err);
        if (status) return status;
        const double ratio = own / other;
        sum += ratio;
        lowest = fmin(lowest, ratio);
        highest = fmax(highest, ratio);
    }
    *us = (sum - lowest - highest) / (TURNS - 2) * (t->yardstick ? t->yardstick_us : 1);
    return WO_OK;
}

/* ---- Rows of the curve ------------------------------------------------------------------------------------- */

wo_status woi_tune_measure(woi_tune *t, const wo_index *index, double *row, wo_error *err)
{
    woi_judged judged, held = {0};
    wo_status status = woi_progress(&t->progress, "tuning", 0, 0, err);
    if (!status) status = woi_judge_index(&t->judge, index, &judged, err);
    const bool others = t->held.n && woi_imitates(&index->options);
    if (!status && others) status = woi_judge_index(&t->held_judge, index, &held, err);
    if (!status) status = time_beside(t, index, &row[WOI_CURVE_US], err);
    if (status) return status;
    note(t, &index->options, &judged, &held, row);
    woi_curve_set(&index->options, row);
    return WO_OK;
}

/* FULL reaches every share of itself. It is an answer where it is measured first. */
wo_status woi_tune_measure_full(woi_tune *t, wo_error *err)
{
    double row[WOI_CURVE_COLUMNS] = {0};
    woi_judged judged;
    wo_eval_timing timing = {0};
    wo_index *index = NULL;
    const wo_build_options o = woi_space_options(t, &(woi_place){.kind = WOI_FULL});
    wo_status status = woi_index_make(t->layer, NULL, &o, &index, err);
    if (!status) status = woi_judge_index(&t->judge, NULL, &judged, err);
    if (!status)
        status = woi_tune_time(
            t, &(woi_timing_call){.index = index, .batches = &t->o.batch, .n = 1, .rounds = 1, .timings = &timing},
            err);
    if (!status) {
        judged.classes = (double)t->layer->dense.m;
        row[WOI_CURVE_US] = timing.us;
        if (isinf(t->o.target_us)) t->o.target_us = timing.us / 10;
        note(t, &o, &judged, &(woi_judged){0}, row);
        woi_curve_set(&o, row);
        for (int c = WOI_CURVE_SURE_P1; c <= WOI_CURVE_SURE_AGREEMENT; c++)
            if (!isnan(row[c])) row[c] = 1;
        if (!isnan(row[WOI_CURVE_ERROR_P1])) row[WOI_CURVE_ERROR_P1] = 0;
        if (!woi_by_time(t)) row[WOI_CURVE_MET] = t->o.target <= 1 && t->o.target5 <= 1;
        status = woi_curve_add(t, row, err);
    }
    if (!status && row[WOI_CURVE_MET] == 1 && t->n_rows == 1) t->best = 0; /* behind others it is there to compare */
    wo_index_free(index);
    return status;
}
