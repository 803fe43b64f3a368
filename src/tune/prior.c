/* How much a prior counts: a small grid, one axis after the other, judged on validation data by hits. A prior is taken
 * where its gain is more than chance: hits of the same queries, with it and without, in pairs. */
#include "tune/tune.h"

#include <math.h>
#include <string.h>

static const double NOTICED = 1; /* standard errors */

/* What the index is worth with this prior, and each query's part. */
static wo_status judge(woi_tune *t, double prior, double focus, woi_value *each, double *value, wo_error *err)
{
    woi_judged judged;
    t->bench->options.prior = prior;
    t->bench->options.focus = focus;
    t->quick.each = each;
    const wo_status status = woi_judge_index(&t->quick, t->bench, &judged, err);
    if (status) return status;
    const woi_pairs *p = judged.of;
    *value = woi_worth(t, p[0].n ? p[0].h / (double)p[0].n : 0, p[1].n ? p[1].h / (double)p[1].n : 0);
    return WO_OK;
}

/* The standard error of the difference of two values. */
static double error_of(const woi_tune *t, const woi_value *a, const woi_value *b, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        const double x =
            woi_worth(t, (double)a[i].at_1, (double)a[i].at_5) - woi_worth(t, (double)b[i].at_1, (double)b[i].at_5);
        sum += x;
        squares += x * x;
    }
    const double mean = sum / (double)n;
    return sqrt(fmax(0, squares / (double)n - mean * mean) / (double)n);
}

wo_status woi_tune_choose_prior(woi_tune *t, wo_build_options *o, wo_error *err)
{
    static const double foci[] = {20, 40, 80}, priors[] = {0.25, 0.5, 1.5, 2};
    const size_t n = t->sampled.n;
    o->prior = o->focus = 0;
    woi_value *each = woi_alloc_zero(3 * n, sizeof *each, err);
    if (!each) return WO_ERR_MEMORY;
    woi_value *without = each, *best_each = each + n, *now = each + 2 * n;
    double none = 0, best = 0, value = 0, prior = 1, focus = 0;
    wo_status status = judge(t, 0, 0, without, &none, err);
    if (!status) status = judge(t, prior, focus, best_each, &best, err);
    for (size_t i = 0; !status && i < 7; i++) {
        if (i < 3 && o->probes == 1) continue; /* one cell has all the weight */
        const double p = i < 3 ? prior : priors[i - 3], f = i < 3 ? foci[i] : focus;
        status = judge(t, p, f, now, &value, err);
        if (status || !(value > best)) continue;
        woi_value *other = best_each;
        best_each = now;
        now = other;
        best = value;
        prior = p;
        focus = f;
    }
    if (!status && best - none > NOTICED * error_of(t, best_each, without, n)) {
        o->prior = prior;
        o->focus = focus;
    }
    t->quick.each = NULL;
    woi_free(each);
    return status;
}
