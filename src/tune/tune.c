/* Tuning: finds the settings of an index that reach a goal at the least cost, and builds it. See tune.h for the parts.
 *
 *   logs -> FULL's answers -> search among settings -> the winner, from the whole log -> from which batch FULL is
 * faster */
#include "tune/tune.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/sized.h"
#include "build/mixture_learn.h"
#include "index/options.h"

#include <math.h>
#include <string.h>

static const wo_tune_options defaults = {
    .struct_size = sizeof defaults,
    .target = 0.995,
    .target5 = 0.99,
    .k = 5,
    .batch = 1,
    .max_time_s = 180,
    .max_queries = 200000,
};

void wo_tune_defaults(wo_tune_options *options, size_t options_bytes)
{
    woi_sized_defaults(options, options_bytes, &defaults, sizeof defaults);
}

/* ---- What is asked for ------------------------------------------------------------------------------------- */

/* Takes the caller's options, of whatever size. */
static wo_status take(woi_tune *t, const wo_tune_options *given, wo_error *err)
{
    wo_tune_options *o = &t->o;
    *o = defaults;
    wo_status status;
    if ((status = woi_sized_take(o, sizeof *o, given, "tune options", err)) ||
        (status = woi_check_range("reserved", o->reserved, 0, 0, err)) ||
        (status = woi_build_take(o->build, &t->build, err)) ||
        (status = woi_check_range("target", o->target, 1e-9, 2, err)) ||
        (status = woi_check_range("target5", o->target5, 0, 2, err)) ||
        (status = woi_check_range("target_agree", o->target_agree, 0, 1, err)) ||
        (status = woi_check_range("target_us", o->target_us, 0, INFINITY, err)) ||
        (status = woi_check_range("k", o->k, 1, 1000, err)) ||
        (status = woi_check_range("batch", o->batch, 1, 1 << 16, err)) ||
        (status = woi_check_range("max_time_s", o->max_time_s, 0, 1e9, err)) ||
        (status = woi_check_range("max_queries", (double)o->max_queries, 1, 1e9, err)))
        return status;
    const unsigned of_hash = WO_FIX_K | WO_FIX_L, of_tree = WO_FIX_TREE | WO_FIX_ROUTE_D | WO_FIX_BEAM;
    if (t->build.method == WO_METHOD_EVIDENCE && o->fixed & of_hash && o->fixed & of_tree)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "fixed",
                               "K or L and parts of a tree are fixed: an index has hyperplanes or a tree, not both");
    if (o->target_agree > 0 && o->fixed & WO_FIX_PRIOR && t->build.prior > 0)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "prior",
                               "prior is %g, but FULL's own answers are the goal: a prior means to differ from them",
                               t->build.prior);
    return WO_OK;
}

/* What is fixed fixes what it belongs to. */
static void complete(woi_tune *t)
{
    wo_tune_options *o = &t->o;
    const unsigned of_hash = WO_FIX_K | WO_FIX_L, of_tree = WO_FIX_TREE | WO_FIX_ROUTE_D | WO_FIX_BEAM;
    wo_build_options *b = &t->build;
    if (!(o->fixed & WO_FIX_METHOD) && o->fixed & (of_hash | of_tree | WO_FIX_ROUTER | WO_FIX_LAMBDA)) {
        o->fixed |= WO_FIX_METHOD;
        b->method = WO_METHOD_EVIDENCE;
    }
    if (b->method == WO_METHOD_EVIDENCE && o->fixed & (of_hash | of_tree)) {
        o->fixed |= WO_FIX_ROUTER;
        b->router = o->fixed & of_tree ? WO_ROUTER_TREE : WO_ROUTER_HASH;
    }
    if (b->source_k < o->k) b->source_k = o->k; /* what no query needed cannot be answered */
}

static wo_status check_inputs(const woi_tune *t, const wo_log *tune_log, wo_error *err)
{
    const woi_dense *rows = &t->layer->dense;
    if (!t->log)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "", "tuning needs a log of queries, none was given");
    wo_status status = t->o.fixed & WO_FIX_ROUTE_D ? woi_route_d_check(&t->build, rows->d, err) : WO_OK;
    if (!status) status = woi_log_check(t->log, rows->m, rows->d, err);
    if (!status) status = woi_queries_check(t->log, err);
    if (status) return woi_about(err, WO_ABOUT_LOG, status);
    if (tune_log && (status = woi_log_check(tune_log, rows->m, rows->d, err))) {
        woi_error_prefix(err, "the tune log");
        if (err && err->about == WO_ABOUT_LABELS) woi_error_option(err, WO_ABOUT_LABELS, "tune_log");
        return woi_about(err, WO_ABOUT_TUNE_LOG, status);
    }
    if (tune_log && tune_log->n == 0)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_TUNE_LOG, "", "the tune log has no queries");
    return WO_OK;
}

/* None of these rows reached the goal, and FULL is not allowed. */
static wo_status fail_goal(const woi_tune *t, size_t first, size_t n, wo_error *err)
{
    const wo_tune_options *o = &t->o;
    const char *method = woi_method_name(t->build.method);
    double fastest = INFINITY, low = -1, shares[3] = {0};
    for (size_t i = first; i < first + n; i++) {
        const double *row = woi_row(t, i);
        if (row[WOI_CURVE_US] < fastest) fastest = row[WOI_CURVE_US];
        const double missing = o->target_agree > 0
                                   ? row[WOI_CURVE_SURE_AGREEMENT] - o->target_agree
                                   : fmin(row[WOI_CURVE_SURE_P1] - o->target, row[WOI_CURVE_SURE_P5] - o->target5);
        if (missing < low) continue;
        low = missing;
        for (int c = 0; c < 3; c++) shares[c] = row[WOI_CURVE_SURE_P1 + c];
    }
    if (o->target_us > 0)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "nothing answers within %g us a query: the fastest of %zu settings took %.3g us; allow more, "
                        "a larger batch, or more time to look",
                        o->target_us, n, fastest);
    if (o->target_agree > 0)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "%s reached %.4f of FULL's answers for sure, not %g: log more queries, ask for less, or leave "
                        "the method open",
                        method, shares[2], o->target_agree);
    return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                    "%s reached %.4f of FULL's P@1 and %.4f of its P@5 for sure, not %g and %g: log more queries, ask "
                    "for less, or leave the method open",
                    method, shares[0], shares[1], o->target, o->target5);
}

/* ---- The winner -------------------------------------------------------------------------------------------- */

/* Whether the winner is built from another log than it was tuned on, and can be judged again: the queries to judge on
 * are no part of it. */
static bool is_judged_again(const woi_tune *t)
{
    return !t->train_is_log && !t->held_out && !t->held.n;
}

/* The next value of the dial, for an index that falls short, or is too slow. */
static void turn(const woi_tune *t, wo_build_options *o)
{
    if (o->cap)
        o->cap = woi_by_time(t) ? (uint32_t)fmax(t->o.k, o->cap * 0.85) : (uint32_t)(o->cap * 1.2) + 1;
    else
        o->lambda = woi_round_lambda(woi_by_time(t) ? fmin(1, o->lambda / 0.85) : o->lambda * 0.85);
}

/* The dial is turned while the index falls short, or is too slow. */
static wo_status build_evidence(woi_tune *t, wo_build_options *o, double *row, wo_index **index, wo_error *err)
{
    enum { TRIES = 8 };
    wo_status status = WO_OK;
    if (!t->train_is_log && woi_tune_fits_log(t)) {
        for (int i = 0; i < 3; i++) woi_sparse_free(&t->needs[i]);
        t->from = t->log;
    }
    for (int i = 0; !status && i < TRIES && (i == 0 || woi_tune_left(t) > 0); i++) {
        if ((status = woi_tune_route(t, t->from, o, err)) || (status = woi_tune_fill(t, o, err))) break;
        if (!is_judged_again(t)) break;
        status = woi_tune_measure(t, t->bench, row, err);
        if (status || row[WOI_CURVE_MET] == 1 || t->o.fixed & (o->cap ? WO_FIX_CAP : WO_FIX_LAMBDA)) break;
        turn(t, o);
    }
    if (status) return status;
    *index = t->bench;
    t->bench = NULL;
    return WO_OK;
}

static wo_status build_full(const woi_tune *t, wo_index **index, wo_error *err)
{
    const wo_build_options o = woi_space_options(t, &(woi_place){.kind = WOI_FULL});
    return woi_index_make(t->layer, NULL, &o, index, err);
}

/* Instead of an index that is no use: a screen, where that is one, or else FULL. */
static wo_status replace(woi_tune *t, wo_index **index, wo_error *err)
{
    const bool screened = (*index)->options.method == WO_METHOD_SCREEN;
    wo_index_free(*index);
    *index = NULL;
    t->best = 0; /* FULL's row is the first */
    size_t row = WOI_NO_ROW;
    const wo_status status = screened ? WO_OK : woi_tune_try_screen(t, &row, err);
    if (status) return status;
    const double *screen = row == WOI_NO_ROW ? NULL : woi_row(t, row), *full = woi_row(t, 0);
    if (!screen || screen[WOI_CURVE_MET] != 1 || screen[WOI_CURVE_US] >= full[WOI_CURVE_US])
        return build_full(t, index, err);
    t->best = row;
    const wo_build_options o = woi_space_options(t, &(woi_place){.kind = WOI_SCREEN});
    return wo_index_build(t->layer, t->log, &o, index, err);
}

/* From the whole log. What then misses the goal is not what was asked for. */
static wo_status build_winner(woi_tune *t, wo_index **index, wo_error *err)
{
    double *row = woi_row(t, t->best);
    const wo_method method = (wo_method)row[WOI_CURVE_METHOD];
    wo_build_options o = woi_space_of_method(t, method);
    woi_curve_get(row, &o);
    if (method == WO_METHOD_FULL) return build_full(t, index, err);
    wo_status status;
    if (method == WO_METHOD_EVIDENCE) {
        status = build_evidence(t, &o, row, index, err);
    } else {
        status = woi_index_make(t->layer, t->log, &o, index, err);
        if (!status && is_judged_again(t)) status = woi_tune_measure(t, *index, row, err);
    }
    if (status || row[WOI_CURVE_MET] == 1 || t->best_wanted) return status;
    return t->o.fixed & WO_FIX_METHOD || woi_by_time(t) ? fail_goal(t, t->best, 1, err) : replace(t, index, err);
}

woi_batches woi_plan(const wo_eval_timing *timings, size_t n, uint32_t asked)
{
    woi_batches best = {0};
    size_t longest = 0;
    for (size_t first = 0, end; first < n; first = end + 1) {
        for (end = first; end < n && timings[end].full_us < timings[end].us;) end++;
        if (end == first) continue;
        const woi_batches run = {timings[first].batch, end < n ? timings[end].batch - 1 : 0};
        if (woi_batches_have(run, asked)) return run;
        if (end - first < longest) continue;
        longest = end - first;
        best = run;
    }
    return best;
}

static bool is_sure(const woi_tune *t, const double *row)
{
    return row[WOI_CURVE_SURE_P1] >= t->o.target && (t->o.target5 == 0 || row[WOI_CURVE_SURE_P5] >= t->o.target5);
}

/* FULL needs f32 rows: int8 has them beside it, in place of bf16 tables get them. Where that misses the goal, or bf16
 * is asked for by name, they answer alone. */
static wo_status let_full_answer(woi_tune *t, woi_batches batches, wo_index *index, wo_error *err)
{
    double *row = woi_row(t, t->best), again[WOI_CURVE_COLUMNS];
    if (index->small.bf16) {
        if (t->o.fixed & WO_FIX_WEIGHTS) return WO_OK;
        woi_small small = index->small;
        const wo_weights weights = index->options.weights;
        index->small = (woi_small){0};
        index->options.weights = WO_WEIGHTS_F32;
        memcpy(again, row, sizeof again);
        const wo_status status = woi_tune_measure(t, index, again, err);
        /* While a target beyond FULL is looked for, what is met is a time. */
        const bool does = t->above ? is_sure(t, again) || !is_sure(t, row) : again[WOI_CURVE_MET] == 1;
        if (status || !does) {
            index->small = small;
            index->options.weights = weights;
            return status;
        }
        woi_small_free(&small);
        row[WOI_CURVE_US] = again[WOI_CURVE_US];
        row[WOI_CURVE_WEIGHTS] = again[WOI_CURVE_WEIGHTS];
        /* Quality on queries that were held out from tuning, but not from this index, says nothing. */
        if (!t->held_out) memcpy(row, again, sizeof again);
    }
    index->full = batches;
    return WO_OK;
}

/* Whether the search looked at more than what scores every class. */
static bool has_tried_cells(const woi_tune *t)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        const double method = woi_row(t, i)[WOI_CURVE_METHOD];
        if (method != WO_METHOD_FULL && method != WO_METHOD_SCREEN) return true;
    }
    return false;
}

uint32_t woi_plan_rounds(const woi_tune *t, double took_s)
{
    enum { PLAN_ROUNDS = 9, FEW_ROUNDS = 2 };
    static const double FEW_S = 2; /* in all, for a search that ended at once: nobody waits for a planner alone */
    const bool few = !has_tried_cells(t);
    const double there = woi_tune_left(t), left = (few ? fmin(there, FEW_S - took_s) : there) / fmax(took_s, 1e-3);
    const uint32_t most = few ? FEW_ROUNDS : PLAN_ROUNDS;
    return left < most ? (uint32_t)fmax(left, 0) : most;
}

/* Where FULL is faster at every size, it is the answer, or a screen, of which the same is asked. */
static wo_status plan(woi_tune *t, wo_index **index, wo_error *err)
{
    uint32_t batches[] = {1, 8, 64, 128, 1024, 0}; /* from 128 on tables have more than one thread */
    size_t n = 5, at = 0;
    wo_eval_timing timings[6];
    if ((*index)->options.method == WO_METHOD_FULL) return WO_OK;
    while (at < n && batches[at] < t->o.batch) at++;
    if (at == n || batches[at] != t->o.batch) {
        memmove(batches + at + 1, batches + at, (n - at) * sizeof *batches);
        batches[at] = t->o.batch;
        n++;
    }
    /* A round first: it tells how many there is time for. */
    woi_timing_call call = {.index = *index, .full = true, .batches = batches, .n = n, .rounds = 1, .timings = timings};
    const double start = woi_now_s();
    wo_status status = woi_tune_time(t, &call, err);
    call.rounds = woi_plan_rounds(t, woi_now_s() - start);
    if (!status && call.rounds > 1 && !t->interrupted) status = woi_tune_time(t, &call, err);
    if (status) return status;
    const woi_batches full = woi_plan(timings, n, t->o.batch);
    if (full.from == 1 && !full.to && !(t->o.fixed & WO_FIX_METHOD) && !woi_by_time(t) && !t->best_wanted)
        return (status = replace(t, index, err)) ? status : plan(t, index, err);
    return full.from ? let_full_answer(t, full, *index, err) : WO_OK;
}

/* How much of the cells' evidence probabilities have: by what was judged on, or, where that is in the cells too, by
 * queries of the log that are left out of them meanwhile. */
static wo_status choose_mix(woi_tune *t, bool tune_log, wo_index *index, wo_error *err)
{
    wo_build_options *o = &index->options;
    if (o->method != WO_METHOD_EVIDENCE || !woi_lacks_mix(o)) return WO_OK;
    wo_status status;
    if (tune_log) {
        const woi_mixture_call call = {
            .log = &t->sampled, .n = t->sampled.n, .threads = t->threads, .progress = &t->progress};
        status = woi_mixture_choose(index, &call, &o->mix, err);
    } else {
        woi_evidence by = {0};
        status = woi_tune_evidence(t, o, &by, err);
        if (!status) status = woi_evidence_choose_mix(t->from, by, &t->routed, index, err);
        if (!status) status = woi_evidence_fill(by, &t->routed, index, err);
        woi_index_count(index);
    }
    if (!woi_has_shares(o)) {
        woi_free(index->cells.shares);
        index->cells.shares = NULL;
    }
    return status;
}

/* ---- The call ---------------------------------------------------------------------------------------------- */

/* The parts of tuning have stages of their own: to the caller the search is one, as long as its time, and the last
 * build another, of which each part tells how far it is. */
static int relay(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)stage;
    woi_tune *t = ctx;
    const wo_progress *outer = &t->build.progress;
    if (t->building) return outer->fn ? outer->fn(outer->ctx, "building the best", done, total) : 0;
    const double gone = fmin(woi_now_s() - t->start, t->o.max_time_s);
    const char *what = t->hopeless   ? "tuning without proof"
                       : t->few_hits ? "tuning by agreement"
                                     : "tuning"; /* hits are too few to show the goal */
    const int cancelled =
        outer->fn ? outer->fn(outer->ctx, what, (uint64_t)(1000 * gone), (uint64_t)(1000 * t->o.max_time_s)) : 0;
    return cancelled || (t->searching && woi_tune_must_stop(t));
}

/* FULL's answers to the judged queries, what they say, and what is asked for in their light. */
static wo_status ask_full(woi_tune *t, wo_error *err)
{
    woi_judged judged;
    woi_judge_call call = {
        .rows = &t->layer->dense, .log = &t->judged, .k = t->o.k, .threads = t->threads, .progress = &t->progress};
    wo_status status = woi_judge_make(&call, &t->judge, err);
    call.rows = NULL; /* priors are chosen by the index's own hits */
    call.log = &t->sampled;
    if (!status) status = woi_judge_make(&call, &t->quick, err);
    if (!status) status = woi_judge_index(&t->judge, NULL, &judged, err);
    if (status) return status;
    const woi_pairs *of = judged.of;
    for (int i = 0; i < 2; i++) t->full[i] = of[i].n ? of[i].h / (double)of[i].n : 0;
    t->labelled = of[WOI_AT_1].n;
    const bool by_labels = t->o.target_us == 0 && t->o.target_agree == 0;
    const bool beyond = t->o.target > 1 || t->o.target5 > 1;
    /* Without labels, or where FULL finds none, of which every index has any share: its own answers are the goal. */
    if (by_labels && (t->labelled == 0 || (t->full[0] == 0 && !beyond))) {
        t->o.target_agree = fmin(t->o.target, 0.99);
    } else if (by_labels && beyond) { /* the best first, then the fastest */
        t->best_wanted = t->above = true;
        t->o.target_us = INFINITY;
    } else if (by_labels) {
        /* No number of hits shows all of FULL's: what scores every class has them. */
        t->few_hits = t->o.target < 1 && t->o.target5 < 1 &&
                      (woi_pairs_margin(&of[WOI_AT_1], t->o.target) < 0 ||
                       (t->o.target5 > 0 && woi_pairs_margin(&of[WOI_AT_5], t->o.target5) < 0));
    } else if (isinf(t->o.target_us)) {
        t->best_wanted = true;
    } else if (t->o.target_us > 0) {
        t->best_wanted = t->o.anyway;
    }
    return WO_OK;
}

/* Beside a method that is fixed FULL is there to compare with. */
static bool is_allowed(const woi_tune *t, const double *row)
{
    return !(t->o.fixed & WO_FIX_METHOD) || row[WOI_CURVE_METHOD] == t->build.method;
}

/* Than the best so far. */
static bool is_faster(const woi_tune *t, const double *row)
{
    return t->best == WOI_NO_ROW || row[WOI_CURVE_US] < woi_row(t, t->best)[WOI_CURVE_US];
}

/* Of a target beyond FULL: the fastest row that surely reaches it; else of all, FULL and the screen too, however slow,
 * the fastest that is about as good as the best. */
static void choose_above(woi_tune *t)
{
    bool reached = false;
    t->best = WOI_NO_ROW;
    double most = 0;
    for (size_t i = 0; i < t->n_rows; i++) {
        double *row = woi_row(t, i);
        row[WOI_CURVE_MET] = is_sure(t, row);
        if (!is_allowed(t, row)) continue;
        reached |= row[WOI_CURVE_MET] == 1;
        most = fmax(most, woi_quality(t, row));
    }
    for (size_t i = 0; i < t->n_rows; i++) {
        const double *row = woi_row(t, i);
        if (!is_allowed(t, row) || (reached ? row[WOI_CURVE_MET] != 1 : woi_quality(t, row) < most - WOI_ALIKE))
            continue;
        if (is_faster(t, row)) t->best = i;
    }
}

/* Nothing is within the time: the fastest. */
static void choose_anyway(woi_tune *t)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (is_allowed(t, woi_row(t, i)) && is_faster(t, woi_row(t, i))) t->best = i;
}

/* What was asked for, in the light of FULL's answers, and what these queries can show of it. */
static woi_goal goal_of(const woi_tune *t)
{
    const bool by_time = woi_by_time(t) && !t->above, by_answers = t->o.target_agree > 0;
    return (woi_goal){.target = by_time || by_answers ? 0 : t->o.target,
                      .target5 = by_time || by_answers ? 0 : t->o.target5,
                      .target_agree = t->o.target_agree,
                      .target_us = by_time ? t->o.target_us : 0,
                      .k = t->o.k,
                      .batch = t->o.batch,
                      .n = t->judged.n,
                      .labelled = t->labelled,
                      .needed = t->needed,
                      .held_out = t->held.n,
                      .provable = t->provable};
}

/* Before minutes are spent on it. */
static void foretell(const woi_tune *t)
{
    const woi_goal goal = goal_of(t);
    const wo_curve curve = woi_curve_of_goal(&goal);
    if (t->o.early) t->o.early(t->o.early_ctx, &curve);
}

/* What shows that the chosen row reaches the goal; FULL need not be shown. */
static void prove(const woi_tune *t, const double *row, woi_goal *goal)
{
    if (goal->target_us > 0 || row[WOI_CURVE_METHOD] == WO_METHOD_FULL) return;
    if (row[WOI_CURVE_MET] != 1) {
        goal->proof = WO_PROOF_NONE;
    } else if (goal->target_agree > 0) {
        goal->proof = row[WOI_CURVE_SURE_AGREEMENT] >= goal->target_agree ? WO_PROOF_AGREEMENT : WO_PROOF_ALL_EQUAL;
    } else if (is_sure(t, row)) {
        goal->proof = WO_PROOF_HITS;
        goal->needed = 0;
    } else {
        goal->proof = row[WOI_CURVE_METHOD] == WO_METHOD_SCREEN           ? WO_PROOF_ALL_EQUAL
                      : woi_tune_agrees(t, row[WOI_CURVE_SURE_AGREEMENT]) ? WO_PROOF_AGREEMENT
                                                                          : WO_PROOF_HELD_OUT;
    }
}

static wo_status tune(woi_tune *t, const wo_log *tune_log, wo_index **index, wo_error *err)
{
    wo_status status = check_inputs(t, tune_log, err);
    if (!status) status = woi_tune_probe_full(t, err);
    if (!status) status = woi_tune_pick_judged(t, tune_log, err);
    if (!status) status = ask_full(t, err);
    if (!status) status = woi_tune_pick_train(t, err);
    t->from = &t->train;
    if (!status && t->held.n)
        status = woi_judge_make(&(woi_judge_call){.rows = &t->layer->dense,
                                                  .log = &t->held,
                                                  .k = t->o.k,
                                                  .threads = t->threads,
                                                  .progress = &t->progress},
                                &t->held_judge, err);
    if (!status) status = woi_tune_see_provable(t, err);
    if (!status) foretell(t);
    if (!status) status = woi_tune_search(t, err);
    t->building = true;
    if (!status) status = woi_progress(&t->progress, "building", 0, 1, err); /* some methods are built without a word */
    if (!status && t->above) choose_above(t);
    if (!status && t->best == WOI_NO_ROW && t->best_wanted) choose_anyway(t);
    if (!status && t->best == WOI_NO_ROW) status = fail_goal(t, 0, t->n_rows, err);
    /* Beside a method that is fixed there is no choice, but FULL's figures are what all others are shares of. */
    if (!status && woi_row(t, 0)[WOI_CURVE_METHOD] != WO_METHOD_FULL) status = woi_tune_measure_full(t, err);
    if (!status) status = build_winner(t, index, err);
    if (!status) status = plan(t, index, err); /* which may measure it again */
    if (!status && t->above) woi_row(t, t->best)[WOI_CURVE_MET] = is_sure(t, woi_row(t, t->best));
    if (!status) status = choose_mix(t, tune_log != NULL, *index, err);
    if (!status) status = woi_index_complete(*index, t->log, err);
    if (status) return status;
    woi_index_forget_call(*index);
    t->rows[t->best * WOI_CURVE_COLUMNS + WOI_CURVE_CHOSEN] = 1;
    (*index)->goal = goal_of(t);
    const bool in_part = (*index)->options.method == WO_METHOD_EVIDENCE && !t->train_is_log && t->from == &t->train;
    if (in_part) (*index)->goal.built_from = t->train.n;
    prove(t, woi_row(t, t->best), &(*index)->goal);
    (*index)->curve = t->rows;
    (*index)->n_curve = t->n_rows;
    (*index)->curve_columns = WOI_CURVE_COLUMNS;
    t->rows = NULL;
    return WO_OK;
}

wo_status wo_index_tune(const wo_layer *layer, const wo_log *log, const wo_log *tune_log,
                        const wo_tune_options *options, wo_index **index, wo_error *err)
{
    *index = NULL;
    if (layer->shard.count)
        return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_LAYER, "",
                              "the layer is shard %u of %u, which is not tuned for: the whole layer is",
                              layer->shard.number + 1, layer->shard.count);
    woi_tune *t = woi_alloc_zero(1, sizeof *t, err);
    if (!t) return WO_ERR_MEMORY;
    *t = (woi_tune){.layer = layer, .log = log, .start = woi_now_s()};
    t->progress = (wo_progress){relay, t};
    wo_status status = take(t, options, err);
    if (!status) {
        t->build.checkpoint = NULL; /* of one build, and there will be many */
        t->threads = woi_team_threads(t->build.threads);
        complete(t);
        woi_space_begin(t);
        status = tune(t, tune_log, index, err);
    }
    if (status) {
        wo_index_free(*index);
        *index = NULL;
    }
    woi_tune_bench_free(t);
    wo_index_free(t->yardstick);
    woi_judge_free(&t->judge);
    woi_judge_free(&t->quick);
    woi_judge_free(&t->held_judge);
    for (int i = 0; i < 3; i++) woi_sparse_free(&t->needs[i]);
    woi_tune_logs_free(t);
    woi_free(t->rows);
    woi_free(t->learn_s);
    woi_free(t->tried);
    woi_free(t);
    return status;
}
