/* What the report picks out of the rows: the timings it compares, and the fastest configuration that is good enough. */
#include "report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const double report_floor = 0.995;

static bool same(report_cost a, report_cost b)
{
    return a.batch == b.batch && a.threads == b.threads;
}

static int by_cost(const void *a, const void *b)
{
    const report_cost *x = a, *y = b;
    if (x->batch != y->batch) return x->batch < y->batch ? -1 : 1;
    return (x->threads > y->threads) - (x->threads < y->threads);
}

size_t report_costs(const report_set *set, report_cost out[REPORT_MAX_TIMINGS])
{
    size_t n = 0;
    for (size_t i = 0; i < set->n_rows; i++) {
        for (size_t j = 0; j < set->rows[i].n_timings && n < REPORT_MAX_TIMINGS; j++) {
            const report_cost at = set->rows[i].timings[j].at;
            size_t k = 0;
            while (k < n && !same(out[k], at)) k++;
            if (k == n) out[n++] = at;
        }
    }
    qsort(out, n, sizeof *out, by_cost);
    return n;
}

bool report_bulk(const report_set *set, report_cost *out)
{
    report_cost costs[REPORT_MAX_TIMINGS] = {{0}};
    const size_t n = report_costs(set, costs);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || out->batch != 1024 || costs[i].batch == 1024) *out = costs[i];
    return n > 0;
}

bool report_single(const report_set *set, report_cost *out)
{
    report_cost costs[REPORT_MAX_TIMINGS] = {{0}};
    if (report_costs(set, costs) == 0 || costs[0].batch != 1) return false;
    *out = costs[0];
    return true;
}

static const report_timing *timing(const report_row *row, report_cost at)
{
    for (size_t i = 0; i < row->n_timings; i++)
        if (same(row->timings[i].at, at)) return &row->timings[i];
    return NULL;
}

double report_us(const report_row *row, report_cost at)
{
    const report_timing *t = timing(row, at);
    return t ? t->us : NAN;
}

double report_speedup(const report_row *row, report_cost at)
{
    const report_timing *t = timing(row, at);
    return t ? t->speedup : NAN;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double report_full_us(const report_set *set, report_cost at)
{
    double *all = malloc((set->n_rows + 1) * sizeof *all), median = NAN;
    size_t n = 0;
    if (!all) return NAN;
    for (size_t i = 0; i < set->n_rows; i++) {
        const report_timing *t = timing(&set->rows[i], at);
        const double us = !t ? NAN : set->rows[i].series < 0 && isnan(t->full_us) ? t->us : t->full_us;
        if (us > 0) all[n++] = us;
    }
    qsort(all, n, sizeof *all, by_value);
    if (n) median = (all[(n - 1) / 2] + all[n / 2]) / 2;
    free(all);
    return median;
}

const report_row *report_fastest(const report *r, const report_set *set, int series, report_family family, double share,
                                 report_cost at)
{
    const report_row *best = NULL;
    for (size_t i = 0; i < set->n_rows; i++) {
        const report_row *row = &set->rows[i];
        if (row->series < 0 || (series >= 0 && row->series != series)) continue;
        if (series < 0 && r->series[row->series].family != family) continue;
        const double us = report_us(row, at);
        if (!(row->p_at_1 >= share * set->full_p_at_1) || !(us > 0)) continue;
        if (!best || us < report_us(best, at)) best = row;
    }
    return best;
}

double report_best_p_at_1(const report *r, const report_set *set, int series, report_family family)
{
    double best = NAN;
    for (size_t i = 0; i < set->n_rows; i++) {
        const report_row *row = &set->rows[i];
        if (row->series < 0 || (series < 0 ? r->series[row->series].family != family : row->series != series)) continue;
        if (isnan(best) || row->p_at_1 > best) best = row->p_at_1;
    }
    return best;
}

int report_find_series(const report *r, const char *method)
{
    for (int i = 0; i < r->n_series; i++)
        if (strcasecmp(r->series[i].method, method) == 0) return i;
    return -1;
}
