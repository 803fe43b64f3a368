/* The page: one HTML file that needs nothing else, is well-formed XML besides, and runs no script. */
#include "report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Head and lead ------------------------------------------------------------------------------------------- */

static void put_head(const char *title, FILE *page)
{
    /* The policy forbids scripts and every fetch: should text ever escape its quotes, it still does nothing. */
    fputs("<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta "
          "charset=\"utf-8\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
          page);
    report_put_text(page, title);
    fputs("</title>\n<style>\n", page);
    for (const char *const *rule = report_style; *rule; rule++) fputs(*rule, page);
    fputs("</style>\n</head>\n<body>\n", page);
    report_put_marks(page);
}

/* The range of our speed-ups over the data sets, in a sentence. */
static void put_lead(const report *r, FILE *page)
{
    double low = NAN, high = NAN;
    size_t n_reached = 0, n_judged = 0;
    for (size_t i = 0; i < r->n_sets; i++) {
        const report_set *set = &r->sets[i];
        report_cost at;
        if (!(set->full_p_at_1 > 0) || !report_bulk(set, &at) || isnan(report_best_p_at_1(r, set, -1, REPORT_OURS)))
            continue;
        n_judged++;
        const report_row *row = report_fastest(r, set, -1, REPORT_OURS, report_floor, at);
        const double times = row ? report_speedup(row, at) : NAN;
        if (isnan(times)) continue;
        n_reached++;
        if (!(times >= low)) low = times;
        if (!(times <= high)) high = times;
    }
    if (n_judged == 0) return;
    if (n_reached == 0) {
        fputs("<p class=\"lead\">No configuration of ours reaches 99.5% of the exact layer’s P@1 here.</p>\n", page);
        return;
    }
    fprintf(page, "<p class=\"lead\">wideout answers <b>%s", report_times(low));
    if (n_reached > 1 && strcmp(report_times(low), report_times(high)) != 0)
        fprintf(page, " to %s", report_times(high));
    fputs("</b> as fast as the exact layer with at least 99.5% of its P@1", page);
    if (n_reached < n_judged)
        fprintf(page, ", on %zu of %zu data sets", n_reached, n_judged);
    else if (n_judged > 1)
        fprintf(page, ", on %s%zu data sets", n_judged == 2 ? "both of " : "all ", n_judged);
    fputs(".</p>\n", page);
}

static void put_summary(const report *r, FILE *page)
{
    put_lead(r, page);
    report_put_headline(r, page);
    bool peers = false;
    for (int i = 0; i < r->n_series; i++) peers |= r->series[i].family == REPORT_PEER;
    fprintf(page,
            "<p class=\"note\">Each method at its fastest configuration with at least 99.5%% of FULL’s P@1 on the same "
            "queries; FULL is the exact layer, timed in turn with each of them. Large batch: 1,024 queries on all "
            "threads, or the largest that was timed. %s<a href=\"#words\">What the words mean</a>, and "
            "<a href=\"#made\">how this was made</a>.</p>\n",
            peers ? "Against the best peer: its time over ours, large batch, both at that floor of P@1. " : "");
}

/* ---- Data sets ------------------------------------------------------------------------------------------------- */

/* Figures are written aside first: where there are none, neither is their frame. */
static void put_figures(const report *r, const report_set *set, report_plotter *plotter, FILE *page)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return;
    if (set) {
        report_figure_curves(r, set, plotter, out);
        report_figure_bars(r, set, plotter, out);
        report_figure_traces(r, set, plotter, out);
    } else {
        report_figure_sizes(r, plotter, out);
    }
    if (fclose(out) == 0 && bytes) {
        if (!set) fputs("<h2>Growing layers</h2>\n", page);
        report_key keys[REPORT_MAX_KEYS];
        if (set) report_put_keys(keys, report_set_keys(r, set, keys), page);
        fputs("<div class=\"figures\">\n", page);
        fwrite(text, 1, bytes, page);
        fputs("</div>\n", page);
    }
    free(text);
}

static void put_data_set(const report *r, const report_set *set, size_t number, report_plotter *plotter, FILE *page)
{
    fprintf(page, "<section>\n<h2 id=\"set-%zu\">", number);
    report_put_text(page, set->title);
    fprintf(page, "</h2>\n<p class=\"facts\">%s classes of %s dimensions, %s queries", report_count((double)set->m),
            report_count((double)set->d), report_count((double)set->n));
    if (set->full_p_at_1 > 0)
        fprintf(page, "; FULL’s P@1 is %s.</p>\n", report_fixed(set->full_p_at_1, 4));
    else
        fputs("; the queries have no labels, so that there is no P@1 to compare.</p>\n", page);
    put_figures(r, set, plotter, page);
    fprintf(page, "<h3>%zu configuration%s</h3>\n", set->n_rows, set->n_rows == 1 ? "" : "s");
    report_put_rows(r, set, page);
    fputs("</section>\n", page);
}

bool report_page(const report *r, const char *title, report_plotter *plotter, FILE *page)
{
    put_head(title, page);
    fputs("<header>\n<h1>", page);
    report_put_text(page, title);
    fputs("</h1>\n", page);
    put_summary(r, page);
    fputs("</header>\n<main>\n", page);
    for (size_t i = 0; i < r->n_sets; i++) put_data_set(r, &r->sets[i], i + 1, plotter, page);
    put_figures(r, NULL, plotter, page);
    if (plotter->problem[0])
        fprintf(page, "<p class=\"note\">The plots are missing: %s. The tables hold all their numbers.</p>\n",
                plotter->problem);
    fputs("</main>\n", page);
    report_put_words(r, page);
    report_put_made(r, page);
    fputs("</body>\n</html>\n", page);
    return !ferror(page);
}
