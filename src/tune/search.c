/* The search: at each setting of the router the dial (lambda; of small cells their cap; of popular the number of
 * classes) is turned by bisection to the cheapest value that reaches the goal; among settings it goes to better
 * neighbours, one axis after the other.
 *
 * Quality falls and speed rises along the dial, so that a value that fails tells about all cheaper ones, and one that
 * fails and is already slower than the best so far about the whole setting.
 *
 * Small cells of labels alone come first: they are learned fastest, ask FULL nothing, and may answer better than FULL.
 * Cells that imitate FULL follow, while there is time: they may be faster, or the only ones that can be shown to do. */
#include "tune/tune.h"

#include "base/clock.h"
#include "index/options.h"

#include <math.h>
#include <string.h>

enum { STEPS = 7 }; /* of bisection: lambda to 5% */
static const double LEAST_LAMBDA = 0.002, MOST_LAMBDA = 1;
static const double LEAST_CAP = 2, MOST_CAP = 96, FIRST_CAP = 12;
static const double SEARCHING = 0.85; /* of the time; the rest is for learning the winner's router again, and timing */
static const double FAR = 2;          /* times the best's time: neighbours of such a start are not tried */
static const double NOTICED = 0.98;   /* of the best's time: what is less of a gain is noise */
static const double GROWN = 1.05;     /* times the classes: less is nothing new */

/* Whether something but FULL is an answer. */
static bool has_found(const woi_tune *t)
{
    return t->best != WOI_NO_ROW && woi_row(t, t->best)[WOI_CURVE_METHOD] != WO_METHOD_FULL;
}

/* In time, what was tried is kept; the first setting of a search is always finished. Cells of labels leave half of the
 * time to those that imitate FULL, unless they reach the goal. */
static bool out_of_time(woi_tune *t)
{
    const double share = t->shared && !has_found(t) ? SEARCHING / 2 : SEARCHING;
    if (!t->late && t->n_tried > t->tried_before) t->late = woi_tune_is_late(t, share);
    if (t->stopped) t->late = true;
    return t->late;
}

double woi_quality(const woi_tune *t, const double *row)
{
    const bool hits = row[WOI_CURVE_P1] > 0 || row[WOI_CURVE_P5] > 0 || t->full[1] > 0; /* on either side */
    if (t->o.target_agree > 0 || isnan(row[WOI_CURVE_P1]) || !hits) return row[WOI_CURVE_AGREEMENT];
    return woi_worth(t, row[WOI_CURVE_P1], row[WOI_CURVE_P5]);
}

static bool better(const woi_tune *t, size_t a, size_t b)
{
    if (a == WOI_NO_ROW || b == WOI_NO_ROW) return a != WOI_NO_ROW;
    const double *x = woi_row(t, a), *y = woi_row(t, b);
    if (woi_by_time(t)) { /* as good as any, or nearly: then time counts */
        const double gain = woi_quality(t, x) - woi_quality(t, y);
        if (gain > WOI_ALIKE) return true;
        if (woi_quality(t, x) < t->most - WOI_ALIKE) return false;
        if (woi_quality(t, y) < t->most - WOI_ALIKE) return true;
    }
    return x[WOI_CURVE_US] < NOTICED * y[WOI_CURVE_US];
}

/* ---- Routers ----------------------------------------------------------------------------------------------- */

void woi_tune_bench_free(woi_tune *t)
{
    wo_index_free(t->bench);
    t->bench = NULL;
    t->bench_log = NULL;
    woi_routed_free(&t->routed);
}

/* Whether what queries need has a part in where their cells lie. */
static bool goes_by_needs(const wo_build_options *o)
{
    return !woi_uses_tree(o) || o->rows;
}

/* What woi_evidence_route looks at, but for the reach. */
static bool same_router(const wo_build_options *a, const wo_build_options *b)
{
    if (a->method != b->method || a->router != b->router) return false;
    if (goes_by_needs(a) && a->source != b->source) return false;
    return woi_uses_tree(a) ? a->nodes == b->nodes && a->leaves == b->leaves && a->route_d == b->route_d
                            : a->K == b->K && a->L == b->L;
}

wo_status woi_tune_needs(woi_tune *t, const wo_build_options *o, const woi_sparse **needs, wo_error *err)
{
    woi_sparse *own = &t->needs[o->source - WO_SOURCE_LABELS];
    *needs = own;
    if (own->indptr) return WO_OK;
    const double start = woi_now_s();
    const wo_status status = woi_needs_of(&(woi_needs_call){.rows = &t->layer->dense,
                                                            .log = t->from,
                                                            .source = o->source,
                                                            .k = o->source_k,
                                                            .threads = t->threads,
                                                            .progress = &t->progress},
                                          own, err);
    t->needs_s = woi_now_s() - start;
    return status;
}

wo_status woi_tune_evidence(woi_tune *t, const wo_build_options *o, woi_evidence *by, wo_error *err)
{
    const wo_build_options labels = {.source = WO_SOURCE_LABELS};
    const bool apart = woi_labels_are_apart(o, t->from);
    const wo_status status = woi_tune_needs(t, o, &by->needs, err);
    by->labels = by->needs;
    return !status && apart ? woi_tune_needs(t, &labels, &by->labels, err) : status;
}

wo_status woi_tune_route(woi_tune *t, const wo_log *log, const wo_build_options *o, wo_error *err)
{
    wo_status status;
    if (t->bench && t->bench_log == log && (same_router(&t->bench->options, o) || same_router(&t->bench_asked, o))) {
        const wo_build_options *now = &t->bench->options;
        if (!woi_uses_tree(o) || (now->beam == o->beam && now->probes == o->probes && now->spread == o->spread))
            return WO_OK;
        status = woi_evidence_set_reach(log, o, t->bench, &t->routed, err);
        if (status) woi_tune_bench_free(t);
        return status;
    }
    woi_tune_bench_free(t);
    status = woi_build_check(o, err);
    if (!status) status = woi_index_begin(t->layer, o, &t->bench, err);
    const woi_sparse *needs = NULL;
    if (!status && goes_by_needs(o)) status = woi_tune_needs(t, o, &needs, err);
    const double start = woi_now_s();
    if (!status) status = woi_evidence_route(log, needs, t->bench, &t->routed, err);
    t->route_s = woi_now_s() - start;
    if (status) woi_tune_bench_free(t);
    t->bench_log = log;
    t->bench_asked = *o;
    return status;
}

wo_status woi_tune_fill(woi_tune *t, const wo_build_options *o, wo_error *err)
{
    wo_build_options *own = &t->bench->options;
    woi_evidence by = {0};
    own->source = o->source;
    own->source_k = o->source_k;
    own->thin = o->thin;
    own->cap = o->cap;
    own->prior = o->prior;
    own->focus = o->focus;
    own->lambda = o->lambda;
    own->probes = o->probes;
    own->fallback = o->fallback;
    wo_status status = WO_OK;
    if (own->weights != o->weights) {
        own->weights = o->weights;
        woi_small_free(&t->bench->small);
        status = woi_small_make(&t->bench->rows, o->weights, t->threads, &t->bench->small, err);
    }
    if (!status) status = woi_tune_evidence(t, o, &by, err);
    const double start = woi_now_s();
    if (!status) status = woi_evidence_fill(by, &t->routed, t->bench, err);
    if (!status) woi_index_count(t->bench);
    t->fill_s = woi_now_s() - start;
    return status;
}

/* ---- The dial ---------------------------------------------------------------------------------------------- */

/* What a setting is tried with. */
typedef struct trial {
    wo_build_options o;
    const woi_sparse *popular; /* how often classes are needed; NULL */
    bool capped;               /* the dial is the cells' cap */
    bool weighed;              /* the prior is chosen, or fixed */
    bool turns;                /* there is a dial, and it is not fixed */
    double slow, fast;         /* its ends */
    double first;              /* the value to begin with; 0: the middle */
    double patience;           /* a value that fails at so many times the best's time ends the trial */
    double idle;               /* classes that tell that nothing has changed: not worth a trial; 0: none do */
} trial;

double woi_round_lambda(double lambda)
{
    if (!(lambda > 0)) return lambda;
    const double scale = pow(10, 3 - floor(log10(lambda)));
    return round(lambda * scale) / scale;
}

/* 0 is slow and good, 1 fast. */
static double place_of(const trial *tr, double value)
{
    return log(value / tr->slow) / log(tr->fast / tr->slow);
}

static void turn(trial *tr, double x)
{
    if (!tr->turns) return;
    const double value = tr->slow * pow(tr->fast / tr->slow, x);
    if (tr->o.method == WO_METHOD_POPULAR)
        tr->o.n_popular = (uint32_t)(value + 0.5);
    else if (tr->capped)
        tr->o.cap = (uint32_t)(value + 0.5);
    else
        tr->o.lambda = woi_round_lambda(value);
}

static wo_status build_popular(const woi_tune *t, const trial *tr, wo_index **index, wo_error *err)
{
    wo_status status = woi_build_check(&tr->o, err);
    if (!status) status = woi_index_begin(t->layer, &tr->o, index, err);
    if (!status) status = woi_fill_popular(tr->popular, t->layer->dense.m, tr->o.n_popular, &(*index)->cells, err);
    if (!status) woi_index_count(*index);
    return status;
}

static wo_status build_evidence(woi_tune *t, const wo_build_options *o, wo_error *err)
{
    const wo_status status = woi_tune_route(t, &t->train, o, err);
    return status ? status : woi_tune_fill(t, o, err);
}

/* Chooses the prior for a setting, once, with the cap that it has now. */
static wo_status weigh(woi_tune *t, trial *tr, wo_error *err)
{
    if (tr->weighed) return WO_OK;
    tr->weighed = true;
    tr->o.prior = 1; /* so that cells keep their shares */
    const wo_status status = build_evidence(t, &tr->o, err);
    return status ? status : woi_tune_choose_prior(t, &tr->o, err);
}

/* Builds with the trial's options as they are, measures, and adds a row. */
static wo_status evaluate(woi_tune *t, trial *tr, size_t *row, wo_error *err)
{
    double figures[WOI_CURVE_COLUMNS] = {0};
    wo_index *made = NULL;
    wo_status status;
    if (tr->popular)
        status = build_popular(t, tr, &made, err);
    else if (tr->o.method == WO_METHOD_EVIDENCE)
        status = (status = weigh(t, tr, err)) ? status : build_evidence(t, &tr->o, err);
    else
        status = woi_index_make(t->layer, &t->train, &tr->o, &made, err);
    if (!status) status = woi_tune_measure(t, made ? made : t->bench, figures, err);
    wo_index_free(made);
    if (!status) status = woi_curve_add(t, figures, err);
    if (!status && figures[WOI_CURVE_MET] == 1) t->most = fmax(t->most, woi_quality(t, figures));
    *row = status ? WOI_NO_ROW : t->n_rows - 1;
    return status;
}

static wo_status turn_dial(woi_tune *t, trial *tr, size_t *found, wo_error *err)
{
    double low = 0, high = 1;
    double most_failed = 0; /* classes */
    wo_status status = WO_OK;
    for (int step = 0; !status && step < (tr->turns ? STEPS : 1) && !out_of_time(t); step++) {
        size_t row;
        const double x = step == 0 && tr->first > 0 ? place_of(tr, tr->first) : (low + high) / 2;
        turn(tr, x);
        if ((status = evaluate(t, tr, &row, err))) break;
        const double *figures = woi_row(t, row);
        const bool good = figures[WOI_CURVE_MET] == 1;
        if (step == 0 && tr->idle > 0 && figures[WOI_CURVE_CLASSES] == tr->idle) break;
        if (good) *found = row; /* of a dial the last, which has fewer classes, or is better: not what noise says */
        if (good != woi_by_time(t))
            low = x;
        else
            high = x;
        if (!good && !woi_by_time(t) && t->best != WOI_NO_ROW &&
            figures[WOI_CURVE_US] > tr->patience * woi_row(t, t->best)[WOI_CURVE_US])
            break;
        if (*found == WOI_NO_ROW && !woi_by_time(t)) { /* the cells may have no more to give, however low lambda is */
            if (figures[WOI_CURVE_CLASSES] < GROWN * most_failed) break;
            most_failed = fmax(most_failed, figures[WOI_CURVE_CLASSES]);
        }
    }
    return status;
}

/* A cell holds at least as many classes as answers are asked for, where its queries needed so many. */
static double at_least_k(const woi_tune *t, double cap)
{
    return fmax(cap, t->o.k);
}

/* The cap with the best quality, small ones first: a larger one must be noticeably better. What is then too slow gets a
 * smaller one. */
static wo_status turn_for_quality(woi_tune *t, trial *tr, size_t *found, wo_error *err)
{
    static const double times[] = {1, 1.25, 1.6, 2.4, 3.2, 5, 6.4, 10, 13, 19}; /* times the least cap */
    enum { CAPS = sizeof times / sizeof *times };
    const double least = at_least_k(t, LEAST_CAP);
    wo_status status = WO_OK;
    size_t best = 0;
    double most = 0;
    tr->o.cap = (uint32_t)at_least_k(t, FIRST_CAP);
    status = weigh(t, tr, err);
    for (size_t i = 0; !status && tr->turns && i < CAPS && i < best + 3 && !out_of_time(t); i++) {
        woi_judged judged;
        double row[WOI_CURVE_COLUMNS] = {0};
        tr->o.cap = (uint32_t)(times[i] * least);
        if ((status = build_evidence(t, &tr->o, err)) || (status = woi_judge_index(&t->quick, t->bench, &judged, err)))
            break;
        for (int q = 0; q < WOI_QUALITIES; q++)
            row[WOI_CURVE_P1 + q] = judged.of[q].n ? judged.of[q].h / (double)judged.of[q].n : NAN;
        if (woi_quality(t, row) < most + WOI_ALIKE) continue;
        most = woi_quality(t, row);
        best = i;
    }
    for (size_t i = best + 1; !status && i-- > 0;) {
        size_t row;
        if (tr->turns) tr->o.cap = (uint32_t)(times[i] * least);
        if ((status = evaluate(t, tr, &row, err))) break;
        if (woi_row(t, row)[WOI_CURVE_MET] == 1) *found = row;
        if (*found != WOI_NO_ROW || !tr->turns) break;
    }
    return status;
}

/* ---- Settings ---------------------------------------------------------------------------------------------- */

/* Ends a trial, with its best row that reaches the goal; where it was stopped, with the best until then, which counts
 * as any other. */
static wo_status remember(woi_tune *t, wo_status status, const double *settings, size_t row, wo_error *err)
{
    const bool stopped = status == WO_ERR_CANCELLED && t->stopped;
    if (better(t, row, t->best) && (!status || stopped)) t->best = row;
    if (!status) status = woi_grow(&t->tried, &t->tried_room, t->n_tried, t->n_tried + 1, sizeof *t->tried, err);
    if (status) return status;
    memcpy(t->tried[t->n_tried].settings, settings, sizeof t->tried->settings);
    t->tried[t->n_tried++].row = row;
    return WO_OK;
}

/* Neighbours need about the same. On few queries quality does not quite fall along the dial: where the best has it, a
 * neighbour likely has it too, and bisection from the middle may miss that. 0: there is none. */
static double lambda_of_best(const woi_tune *t)
{
    if (t->best == WOI_NO_ROW) return 0;
    const double *row = woi_row(t, t->best);
    return row[WOI_CURVE_METHOD] == WO_METHOD_EVIDENCE ? row[WOI_CURVE_LAMBDA] : 0;
}

static double cap_of_best(const woi_tune *t)
{
    return t->best == WOI_NO_ROW || woi_row(t, t->best)[WOI_CURVE_CAP] == 0 ? FIRST_CAP
                                                                            : woi_row(t, t->best)[WOI_CURVE_CAP];
}

/* The row that the options led to, WOI_NO_ROW for none that reaches the goal. */
static wo_status try_options(woi_tune *t, const wo_build_options *o, double patience, size_t *row, wo_error *err)
{
    double settings[WOI_CURVE_COLUMNS] = {0};
    woi_curve_set(o, settings);
    *row = WOI_NO_ROW;
    for (size_t i = 0; i < t->n_tried; i++)
        if (woi_curve_same(t->tried[i].settings, settings)) {
            *row = t->tried[i].row;
            return WO_OK;
        }
    if (out_of_time(t)) return WO_OK;
    const bool evidence = o->method == WO_METHOD_EVIDENCE;
    trial tr = {.o = *o,
                .turns = evidence && !(t->o.fixed & WO_FIX_LAMBDA),
                .weighed = true,
                .slow = LEAST_LAMBDA,
                .fast = MOST_LAMBDA,
                .first = lambda_of_best(t),
                .patience = patience};
    if (evidence && o->source == WO_SOURCE_LABELS && o->lambda == 0 && !(t->o.fixed & WO_FIX_LAMBDA)) {
        tr.capped = true;
        tr.weighed = t->o.fixed & WO_FIX_PRIOR;
        tr.turns = !(t->o.fixed & WO_FIX_CAP);
        tr.slow = fmax(MOST_CAP, 4.0 * t->o.k);
        tr.fast = at_least_k(t, LEAST_CAP);
        tr.first = at_least_k(t, cap_of_best(t));
    }
    if (o->fallback && t->best != WOI_NO_ROW && tr.first > 0 && woi_row(t, t->best)[WOI_CURVE_FALLBACK] != o->fallback)
        tr.idle = woi_row(t, t->best)[WOI_CURVE_CLASSES]; /* no query that is judged opens more cells */
    const bool for_quality = tr.capped && woi_by_time(t);
    const wo_status status = for_quality ? turn_for_quality(t, &tr, row, err) : turn_dial(t, &tr, row, err);
    return remember(t, status, settings, *row, err);
}

static wo_status try_place(woi_tune *t, const woi_place *place, double patience, size_t *row, wo_error *err)
{
    const wo_build_options o = woi_space_options(t, place);
    return try_options(t, &o, patience, row, err);
}

static bool is_far(const woi_tune *t, size_t row)
{
    return !woi_by_time(t) && woi_row(t, row)[WOI_CURVE_US] > FAR * woi_row(t, t->best)[WOI_CURVE_US];
}

/* Goes along the axes while that is better. */
static wo_status descend(woi_tune *t, woi_place place, size_t row, wo_error *err)
{
    bool moved = true;
    wo_status status = WO_OK;
    while (moved && !status && !t->late) {
        moved = false;
        for (int axis = 0; !status && axis < woi_space_axes(place.kind); axis++)
            for (int step = 1; step >= -1; step -= 2) {
                bool ahead = false;
                woi_place next = place;
                while (!status && woi_space_step(&t->o, &next, axis, step)) {
                    size_t there;
                    status = try_place(t, &next, 1, &there, err);
                    if (status || !better(t, there, row)) break;
                    place = next;
                    row = there;
                    ahead = moved = true;
                }
                if (ahead) break; /* it came from the other side */
            }
    }
    return status;
}

/* The best so far, with one thing changed: the precision of its rows, or the threshold below which a query opens more
 * cells. */
static wo_status try_changed(woi_tune *t, bool precision, uint32_t value, wo_error *err)
{
    if (t->best == WOI_NO_ROW || t->o.fixed & (precision ? WO_FIX_WEIGHTS : WO_FIX_FALLBACK)) return WO_OK;
    const double *row = woi_row(t, t->best);
    if (row[WOI_CURVE_METHOD] != WO_METHOD_EVIDENCE) return WO_OK;
    wo_build_options o = woi_space_of_method(t, WO_METHOD_EVIDENCE);
    woi_curve_get(row, &o);
    if (precision && o.weights == WO_WEIGHTS_NONE) return WO_OK;
    if (precision)
        o.weights = (wo_weights)value;
    else
        o.fallback = value;
    size_t there;
    return try_options(t, &o, 1, &there, err);
}

static wo_status try_small_rows(woi_tune *t, wo_error *err)
{
    const wo_status status = t->no_bf16 ? WO_OK : try_changed(t, true, WO_WEIGHTS_BF16, err);
    return !status && t->layer->dense.d <= WOI_MAX_I8 ? try_changed(t, true, WO_WEIGHTS_INT8, err) : status;
}

static wo_status try_fallbacks(woi_tune *t, wo_error *err)
{
    static const uint32_t fallbacks[] = {8, 16, 32};
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < 3; i++) status = try_changed(t, false, fallbacks[i], err);
    return status;
}

/* A router at its start; where nothing has reached the goal so far, at its wide one with better rows, and wider still
 * until it does. What is too slow for its time is narrowed instead. */
static wo_status enter(woi_tune *t, woi_kind kind, bool reached, woi_place *place, size_t *row, wo_error *err)
{
    *place = woi_space_start(t, kind, false);
    wo_status status = try_place(t, place, FAR, row, err);
    if (status || *row != WOI_NO_ROW || reached) return status;
    if (woi_by_time(t)) {
        while (!status && *row == WOI_NO_ROW && woi_space_narrow(&t->o, place))
            status = try_place(t, place, FAR, row, err);
        return status;
    }
    *place = woi_space_start(t, kind, true);
    if (!t->refined) woi_space_refine(t);
    do status = try_place(t, place, FAR, row, err);
    while (!status && *row == WOI_NO_ROW && woi_space_widen(&t->o, place));
    return status;
}

/* The first router at its start, with rows of its own, so that no setting finds its rows in the caches because of it.
 * The router is learned again when it is tried. */
static wo_status make_yardstick(woi_tune *t, woi_kind kind, wo_error *err)
{
    const woi_place place = woi_space_start(t, kind, false);
    wo_build_options o = woi_space_options(t, &place);
    o.weights = t->no_bf16 ? WO_WEIGHTS_F32 : WO_WEIGHTS_BF16;
    const wo_status status = build_evidence(t, &o, err);
    if (status) return status;
    wo_index *index = t->bench;
    t->bench = NULL;
    woi_tune_bench_free(t);
    return woi_tune_set_yardstick(t, index, err);
}

/* All routers; the best of them with other rows, which the rest then has, and on from each that is not far behind. The
 * tree is the first: it is learned fastest, and goes further. */
static wo_status search_routers(woi_tune *t, const woi_kind *kinds, size_t n, wo_error *err)
{
    woi_place places[2];
    size_t rows[2];
    if (!has_found(t)) { /* time for one more */
        t->late = false;
        t->tried_before = t->n_tried;
    }
    wo_status status = kinds[0] == WOI_TABLES || t->yardstick ? WO_OK : make_yardstick(t, kinds[0], err);
    bool reached = false;
    do {
        for (size_t i = 0; !status && i < n; i++) {
            status = enter(t, kinds[i], reached, &places[i], &rows[i], err);
            reached |= rows[i] != WOI_NO_ROW;
        }
    } while (!status && !reached && !t->late && woi_space_refine(t));
    if (!status) status = try_small_rows(t, err);
    for (size_t i = 0; !status && i < n; i++) {
        if (rows[i] == WOI_NO_ROW ? reached : is_far(t, rows[i])) continue;
        status = descend(t, places[i], rows[i], err);
    }
    return status;
}

/* The most frequent classes alone. Not worth a try with many more classes than the best has: 10 ns each, while a
 * router's whole query takes 30 to 60 ns a class. */
static wo_status search_popular(woi_tune *t, wo_error *err)
{
    enum { MORE = 8, LEAST = 16 };
    const double m = (double)t->layer->dense.m;
    const bool fixed = t->o.fixed & WO_FIX_POPULAR;
    trial tr = {
        .o = woi_space_options(t, &(woi_place){.kind = WOI_POPULAR}), .turns = !fixed, .weighed = true, .patience = 1};
    tr.slow = t->best == WOI_NO_ROW ? m : fmin(m / 2, MORE * woi_row(t, t->best)[WOI_CURVE_CLASSES]);
    tr.fast = LEAST;
    if (tr.turns && tr.slow <= tr.fast && t->o.fixed & WO_FIX_METHOD) { /* so few classes: all of them */
        tr.turns = false;
        tr.o.n_popular = (uint32_t)tr.slow;
    } else if (!fixed && (tr.slow <= tr.fast || out_of_time(t))) {
        return WO_OK;
    }
    double settings[WOI_CURVE_COLUMNS] = {0};
    const woi_sparse *labels = NULL;
    size_t row = WOI_NO_ROW, slowest = WOI_NO_ROW;
    wo_status status = WO_OK;
    const wo_build_options by = {.source = t->train.indptr ? WO_SOURCE_LABELS : t->build.source,
                                 .source_k = t->build.source_k};
    status = woi_tune_needs(t, &by, &labels, err);
    tr.popular = labels;
    turn(&tr, 0);
    woi_curve_set(&tr.o, settings);
    if (!status && !fixed && !woi_by_time(t)) { /* where all of them do not do, fewer do not either */
        status = evaluate(t, &tr, &slowest, err);
        if (!status && woi_row(t, slowest)[WOI_CURVE_MET] != 1) return WO_OK;
    }
    row = slowest;
    if (!status) status = turn_dial(t, &tr, &row, err);
    return remember(t, status, settings, row, err);
}

static bool has_screen(const woi_tune *t)
{
    return t->layer->dense.d <= WOI_MAX_I8 && t->build.weights != WO_WEIGHTS_NONE;
}

wo_status woi_tune_try_screen(woi_tune *t, size_t *row, wo_error *err)
{
    *row = WOI_NO_ROW;
    if (!has_screen(t)) return WO_OK;
    for (size_t i = 0; i < t->n_rows; i++)
        if (woi_row(t, i)[WOI_CURVE_METHOD] == WO_METHOD_SCREEN) *row = i;
    if (*row != WOI_NO_ROW) return WO_OK;
    trial tr = {.o = woi_space_options(t, &(woi_place){.kind = WOI_SCREEN}), .weighed = true, .patience = 1};
    return evaluate(t, &tr, row, err);
}

/* All rows in int8: what is left where cells do not do. */
static wo_status search_screen(woi_tune *t, wo_error *err)
{
    enum { TIMES = 8 }; /* FULL's time at least: it takes about a quarter */
    if (!has_screen(t)) return WO_OK;
    const double *best = t->best == WOI_NO_ROW ? NULL : woi_row(t, t->best);
    /* The best there is, of a target beyond FULL, is no worse than FULL. */
    const bool worse = t->above && best && woi_quality(t, best) < 1;
    if (best && !worse && best[WOI_CURVE_US] * TIMES < woi_row(t, 0)[WOI_CURVE_US]) return WO_OK;
    double settings[WOI_CURVE_COLUMNS] = {0};
    const wo_build_options o = woi_space_options(t, &(woi_place){.kind = WOI_SCREEN});
    size_t row;
    woi_curve_set(&o, settings);
    const wo_status status = woi_tune_try_screen(t, &row, err);
    return remember(t, status, settings, !status && woi_row(t, row)[WOI_CURVE_MET] == 1 ? row : WOI_NO_ROW, err);
}

/* Whether small cells of labels are an answer to what is asked for, and left open. */
static bool may_use_labels(const woi_tune *t)
{
    const bool labels =
        t->train.indptr && t->train.indptr[t->train.n] > 0 && t->judged.indptr && t->judged.indptr[t->judged.n] > 0;
    const bool open =
        !(t->o.fixed & WO_FIX_LAMBDA) && (!(t->o.fixed & WO_FIX_SOURCE) || t->build.source == WO_SOURCE_LABELS);
    return labels && open && t->o.target_agree == 0 && t->layer->dense.d <= WOI_MAX_I8;
}

/* Whether all of FULL's hits are asked for: no number of queries shows that of cells that imitate FULL. */
static bool wants_all(const woi_tune *t)
{
    const bool by_labels = t->o.target_agree == 0 && !woi_by_time(t);
    return by_labels && !(t->o.fixed & WO_FIX_METHOD) && (t->o.target >= 1 || t->o.target5 >= 1);
}

/* Whether nothing but what scores every class can be an answer: so few classes that no router is faster than scoring
 * them; or all of FULL's hits, without a prior, by which cells may have more than FULL. */
static bool is_for_full(const woi_tune *t)
{
    enum { FEW = 16 };
    const size_t few = t->o.k > FEW ? t->o.k : FEW;
    const bool prior = may_use_labels(t) && (!(t->o.fixed & WO_FIX_PRIOR) || t->build.prior > 0);
    return !(t->o.fixed & WO_FIX_METHOD) && (t->layer->dense.m <= few || (wants_all(t) && !prior));
}

/* Whether what was found is better than FULL, so that nothing that imitates FULL can be. */
static bool beats_full(const woi_tune *t)
{
    return has_found(t) && woi_quality(t, woi_row(t, t->best)) > 1;
}

/* A query of many labels, as a log has that names each word once with all that was ever near it, fills cells with
 * classes that FULL does not think of: what imitates FULL does without them. */
static bool has_many_labels(const woi_tune *t)
{
    enum { MANY = 4 }; /* times FULL's best */
    const bool open = !(t->o.fixed & WO_FIX_SOURCE) && t->build.source == WO_SOURCE_BOTH;
    return open && t->train.indptr &&
           (double)t->train.indptr[t->train.n] > MANY * (double)t->build.source_k * (double)t->train.n;
}

/* All but the screen. */
static wo_status search_cells(woi_tune *t, wo_error *err)
{
    const bool fixed = t->o.fixed & WO_FIX_METHOD;
    const wo_method method = t->build.method;
    const bool evidence = !fixed || method == WO_METHOD_EVIDENCE;
    wo_status status = WO_OK;
    const bool one = t->o.fixed & WO_FIX_ROUTER;
    const bool tree = evidence && (one ? t->build.router == WO_ROUTER_TREE : t->layer->dense.d <= WOI_MAX_I8);
    const bool hash = evidence && (!one || t->build.router == WO_ROUTER_HASH);
    woi_kind kinds[2] = {WOI_LABELS};
    bool reached = false;
    if (tree && may_use_labels(t)) {
        t->shared = true;
        status = search_routers(t, kinds, 1, err);
        t->shared = false;
        reached = has_found(t) && (!woi_by_time(t) || beats_full(t));
    }
    size_t n = 0;
    if (fixed && (method == WO_METHOD_SLIDE || method == WO_METHOD_LSS)) kinds[n++] = WOI_TABLES;
    const bool others =
        !(t->o.fixed & WO_FIX_SOURCE) || t->build.source != WO_SOURCE_LABELS || t->o.fixed & WO_FIX_LAMBDA;
    if (tree && others) kinds[n++] = WOI_TREE;
    if (hash) kinds[n++] = WOI_HASH;
    /* What imitates FULL is no better than it, and not shown to have all of its hits. */
    const bool best = (woi_by_time(t) && reached) || wants_all(t);
    t->top_alone = has_many_labels(t);
    if (n && !best && !status) status = search_routers(t, kinds, n, err);
    if (!status && n && !best && t->top_alone && !has_found(t) && !t->late) {
        t->top_alone = false;
        status = search_routers(t, kinds, n, err);
    }
    if (!status && !best && (!fixed || method == WO_METHOD_POPULAR)) status = search_popular(t, err);
    if (!status && evidence) status = try_small_rows(t, err);
    if (!status && evidence && !best) status = try_fallbacks(t, err);
    return status;
}

/* Cells of labels at their start: where nothing shows a goal but many more hits than FULL has. */
static wo_status search_little(woi_tune *t, wo_error *err)
{
    const woi_place place = woi_space_start(t, WOI_LABELS, false);
    size_t row;
    return may_use_labels(t) ? try_place(t, &place, FAR, &row, err) : WO_OK;
}

wo_status woi_tune_search(woi_tune *t, wo_error *err)
{
    const bool fixed = t->o.fixed & WO_FIX_METHOD;
    wo_status status = WO_OK;
    t->best = WOI_NO_ROW;
    t->searching = true;
    if (!fixed || t->build.method == WO_METHOD_FULL || isinf(t->o.target_us)) status = woi_tune_measure_full(t, err);
    if (!status && !(fixed && t->build.method == WO_METHOD_FULL) && !is_for_full(t) && (!t->hopeless || t->may_beat))
        status = t->hopeless ? search_little(t, err) : search_cells(t, err);
    t->searching = false;
    if (status == WO_ERR_CANCELLED && t->stopped && t->best != WOI_NO_ROW) { /* what was left unfinished is no loss */
        status = WO_OK;
        woi_tune_bench_free(t);
    }
    /* Who has seen enough does not wait for it, unless there is nothing but FULL yet. */
    const bool screen = fixed ? t->build.method == WO_METHOD_SCREEN : !t->interrupted || !has_found(t);
    return !status && screen ? search_screen(t, err) : status;
}
