/* The curve: what a tuner tried, a row of numbers each. */
#include "tune/tune.h"

#include "base/error.h"
#include "base/sized.h"
#include "index/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const woi_curve_names[WOI_CURVE_COLUMNS] = {
    "p_at_1", "p_at_5", "agreement",   "sure_p_at_1", "sure_p_at_5", "sure_agreement", "classes", "us",   "met",
    "chosen", "method", "router",      "K",           "L",           "nodes",          "leaves",  "beam", "route_d",
    "probes", "lambda", "popular",     "weights",     "fallback",    "source",         "thin",    "cap",  "prior",
    "focus",  "spread", "error_p_at_1"}; /* settings by the names of options.c */

void woi_curve_set(const wo_build_options *o, double *row)
{
    for (int c = WOI_CURVE_METHOD; c <= WOI_CURVE_LAST_SETTING; c++) {
        const woi_option *option = woi_option_find(woi_curve_names[c]);
        row[c] = woi_option_used(option, o) ? woi_option_value(option, o) : 0;
    }
}

/* The inverse, over options of the same method. The router comes before what depends on it. */
void woi_curve_get(const double *row, wo_build_options *o)
{
    for (int c = WOI_CURVE_METHOD + 1; c <= WOI_CURVE_LAST_SETTING; c++) {
        const woi_option *option = woi_option_find(woi_curve_names[c]);
        if (woi_option_used(option, o)) woi_option_set_value(option, row[c], o);
    }
}

bool woi_curve_same(const double *a, const double *b)
{
    for (int c = WOI_CURVE_METHOD; c <= WOI_CURVE_LAST_SETTING; c++)
        if (c != WOI_CURVE_LAMBDA && c != WOI_CURVE_POPULAR && c != WOI_CURVE_CAP && c != WOI_CURVE_PRIOR &&
            c != WOI_CURVE_FOCUS && a[c] != b[c])
            return false;
    return true;
}

wo_status woi_curve_add(woi_tune *t, const double *row, wo_error *err)
{
    const size_t bytes = WOI_CURVE_COLUMNS * sizeof *row;
    wo_status status = woi_grow(&t->rows, &t->rows_room, t->n_rows, t->n_rows + 1, bytes, err);
    if (!status) status = woi_grow(&t->learn_s, &t->learn_room, t->n_rows, t->n_rows + 1, sizeof *t->learn_s, err);
    if (status) return status;
    t->learn_s[t->n_rows] = t->route_s + t->fill_s;
    memcpy(t->rows + t->n_rows++ * WOI_CURVE_COLUMNS, row, bytes);
    return WO_OK;
}

wo_curve woi_curve_of_goal(const woi_goal *goal)
{
    return (wo_curve){.struct_size = sizeof(wo_curve),
                      .columns = WOI_CURVE_COLUMNS,
                      .names = woi_curve_names,
                      .target = goal->target,
                      .target5 = goal->target5,
                      .target_agree = goal->target_agree,
                      .target_us = goal->target_us,
                      .k = goal->k,
                      .batch = goal->batch,
                      .n = goal->n,
                      .proof = (wo_proof)goal->proof,
                      .labelled = goal->labelled,
                      .needed = goal->needed,
                      .built_from = goal->built_from,
                      .held_out = goal->held_out,
                      .provable = (wo_proof)goal->provable,
                      .changed = goal->changed};
}

int wo_index_curve(const wo_index *index, wo_curve *curve)
{
    if (!index->n_curve) return 0;
    wo_curve found = woi_curve_of_goal(&index->goal);
    found.rows = found.chosen = index->n_curve;
    found.columns = index->curve_columns;
    found.values = index->curve;
    for (size_t i = 0; i < found.rows; i++)
        if (index->curve[i * index->curve_columns + WOI_CURVE_CHOSEN] == 1) found.chosen = i;
    return woi_sized_give(curve, &found, sizeof found) == WO_OK;
}

size_t wo_curve_text(const wo_curve *curve, size_t row, char *text, size_t text_bytes)
{
    static const char *const weights[] = {"", " bf16", " int8", ""};
    /* `chosen` is one where a file says of no row that it was. */
    if (row >= curve->rows) return (size_t)snprintf(text, text_bytes, "%s", "");
    const double *v = curve->values + row * curve->columns;
    /* From a file, so they may be anything. */
    const int method = v[WOI_CURVE_METHOD] >= 0 && v[WOI_CURVE_METHOD] <= 5 ? (int)v[WOI_CURVE_METHOD] : -1;
    const int kept = v[WOI_CURVE_WEIGHTS] >= 0 && v[WOI_CURVE_WEIGHTS] <= 3 ? (int)v[WOI_CURVE_WEIGHTS] : 0;
    char dial[64] = "", all[192] = "", more[48] = "";
    const bool capped = curve->columns > WOI_CURVE_FOCUS && v[WOI_CURVE_CAP] > 0;
    if (method == WO_METHOD_EVIDENCE && !capped) snprintf(dial, sizeof dial, " lambda=%.3g", v[WOI_CURVE_LAMBDA]);
    if (method == WO_METHOD_EVIDENCE && capped)
        snprintf(dial, sizeof dial, " cap=%g prior=%g focus=%g", v[WOI_CURVE_CAP], v[WOI_CURVE_PRIOR],
                 v[WOI_CURVE_FOCUS]);
    if (v[WOI_CURVE_FALLBACK] > 0) snprintf(more, sizeof more, " fallback=%g", v[WOI_CURVE_FALLBACK]);
    const double spread = curve->columns > WOI_CURVE_SPREAD ? v[WOI_CURVE_SPREAD] : 0;
    const size_t used = strlen(more);
    if (spread > 0) snprintf(more + used, sizeof more - used, " spread=%g", spread);
    if (method == WO_METHOD_EVIDENCE && v[WOI_CURVE_ROUTER] == WO_ROUTER_TREE)
        snprintf(all, sizeof all, " tree %gx%g r=%g beam=%g probes=%g", v[WOI_CURVE_NODES], v[WOI_CURVE_LEAVES],
                 v[WOI_CURVE_ROUTE_D], v[WOI_CURVE_BEAM], v[WOI_CURVE_PROBES]);
    else if (method >= WO_METHOD_SLIDE && method <= WO_METHOD_EVIDENCE)
        snprintf(all, sizeof all, "%s K=%g L=%g probes=%g", method == WO_METHOD_EVIDENCE ? " hash" : "", v[WOI_CURVE_K],
                 v[WOI_CURVE_L], v[WOI_CURVE_PROBES]);
    else if (method == WO_METHOD_POPULAR)
        snprintf(all, sizeof all, " %g", v[WOI_CURVE_POPULAR]);
    const int length =
        snprintf(text, text_bytes, "%s%s%s%s%s", woi_method_name((wo_method)method), all, dial, weights[kept], more);
    return length < 0 ? 0 : (size_t)length;
}
