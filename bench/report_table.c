/* The tables: the headline over all data sets, and every row of one. */
#include "report_data.h"

#include <math.h>
#include <string.h>

/* ---- Frames --------------------------------------------------------------------------------------------------- */

/* A table that is wider than the page scrolls within its frame, and says so under it: see report_style.c. */
static void open_frame(FILE *page, const char *label, const char *frame_class, const char *table_class)
{
    fprintf(page,
            "<div class=\"wide\"><div class=\"frame\"><div class=\"scroll%s\" tabindex=\"0\" role=\"region\" "
            "aria-label=\"%s\">"
            "<table class=\"%s\">\n",
            frame_class, label, table_class);
}

static void close_frame(FILE *page)
{
    fputs("</tbody></table></div></div><p class=\"hint\">The table goes on to the right: scroll it sideways →</p>"
          "<p class=\"hint down\">There are more rows below: scroll the table down ↓</p></div>\n",
          page);
}

/* ---- Headline ------------------------------------------------------------------------------------------------ */

/* "not reached", with the best share of FULL's P@1 that the method has. */
static void put_not_reached(FILE *page, double best, double full)
{
    if (isnan(best))
        fputs("<td class=\"no\">not run</td>", page);
    else
        fprintf(page, "<td class=\"no\">not reached <small>%s%% at best</small></td>",
                report_fixed(100 * best / full, 1));
}

static void put_peer(const report *r, const report_set *set, report_cost at, const report_row *ours, FILE *page)
{
    const report_row *peer = report_fastest(r, set, -1, REPORT_PEER, report_floor, at);
    bool any = false;
    for (size_t i = 0; i < set->n_rows; i++)
        any |= set->rows[i].series >= 0 && r->series[set->rows[i].series].family == REPORT_PEER;
    if (!peer) {
        fprintf(page, "<td class=\"no\">%s</td>", any ? "none reaches it" : "not run");
        return;
    }
    fprintf(page, "<td>%s <small>", ours ? report_times(report_us(peer, at) / report_us(ours, at)) : "–");
    report_put_text(page, peer->label);
    fprintf(page, ", P@1 %s, %s µs</small></td>", report_fixed(peer->p_at_1, 4), report_digits(report_us(peer, at)));
}

/* Columns that no data set of the page would fill are left out. */
typedef struct headline {
    bool peers, popular;
} headline;

static void put_set(const report *r, size_t number, const headline *has, FILE *page)
{
    const report_set *set = &r->sets[number - 1];
    report_cost bulk = {0}, single = {0};
    const bool timed = report_bulk(set, &bulk), has_single = report_single(set, &single);
    const int popular = report_find_series(r, "popular");
    const double full = set->full_p_at_1;
    const report_row *ours = timed ? report_fastest(r, set, -1, REPORT_OURS, report_floor, bulk) : NULL;
    fprintf(page, "<tr><th scope=\"row\"><a href=\"#set-%zu\">", number);
    report_put_text(page, set->title);
    fputs("</a></th>", page);
    if (ours) {
        fprintf(page, "<td class=\"best\">%s</td>", report_times(report_speedup(ours, bulk)));
        fprintf(page, "<td class=\"best\">%s</td>",
                has_single ? report_times(report_speedup(ours, single)) : report_times(NAN));
        fprintf(page, "<td>%s <small>%s%%, ", report_fixed(ours->p_at_1, 4),
                report_fixed(100 * ours->p_at_1 / full, 1));
        report_put_short(page, ours->label, 60);
        fputs("</small></td>", page);
    } else {
        fputs("<td>–</td><td>–</td>", page);
        put_not_reached(page, report_best_p_at_1(r, set, -1, REPORT_OURS), full);
    }
    if (has->peers && timed)
        put_peer(r, set, bulk, ours, page);
    else if (has->peers)
        fputs("<td class=\"no\">not timed</td>", page);
    const report_row *plain =
        timed && popular >= 0 ? report_fastest(r, set, popular, REPORT_OURS, report_floor, bulk) : NULL;
    if (plain)
        fprintf(page, "<td>%s <small>P@1 %s, %s classes</small></td>", report_times(report_speedup(plain, bulk)),
                report_fixed(plain->p_at_1, 4), report_count(plain->sample_size));
    else if (has->popular)
        put_not_reached(page, popular < 0 ? NAN : report_best_p_at_1(r, set, popular, REPORT_OURS), full);
    fprintf(page, "<td>%s</td><td>%s</td></tr>\n", report_fixed(full, 4), report_count((double)set->m));
}

void report_put_headline(const report *r, FILE *page)
{
    headline has = {.popular = report_find_series(r, "popular") >= 0};
    for (int i = 0; i < r->n_series; i++) has.peers |= r->series[i].family == REPORT_PEER;
    open_frame(page, "Headline table", "", "headline");
    fputs("<thead><tr><th scope=\"col\">data set</th><th scope=\"col\">wideout against FULL, large batch</th>"
          "<th scope=\"col\">the same, batch 1</th><th scope=\"col\">its P@1</th>",
          page);
    if (has.peers) fputs("<th scope=\"col\">against the best peer</th>", page);
    if (has.popular) fputs("<th scope=\"col\">popular against FULL</th>", page);
    fputs("<th scope=\"col\">FULL’s P@1</th><th scope=\"col\">classes of the layer</th></tr></thead>\n<tbody>\n", page);
    for (size_t i = 0; i < r->n_sets; i++) put_set(r, i + 1, &has, page);
    close_frame(page);
}

/* ---- All rows ------------------------------------------------------------------------------------------------ */

typedef struct columns {
    report_cost costs[REPORT_MAX_TIMINGS], compared[2];
    size_t n_costs, n_compared;
    bool build, bytes, cpu, energy; /* somebody measured it */
} columns;

static columns columns_of(const report_set *set)
{
    columns c = {0};
    c.n_costs = report_costs(set, c.costs);
    c.n_compared = report_single(set, &c.compared[0]);
    if (report_bulk(set, &c.compared[c.n_compared]) &&
        (c.n_compared == 0 || c.compared[0].batch != c.compared[1].batch))
        c.n_compared++;
    for (size_t i = 0; i < set->n_rows; i++) {
        c.build |= !isnan(set->rows[i].build_s);
        c.bytes |= !isnan(set->rows[i].index_bytes);
        c.cpu |= !isnan(set->rows[i].cpu_s_per_1000);
        c.energy |= !isnan(set->rows[i].energy_j_per_1000);
    }
    return c;
}

static void put_batch(FILE *page, const report_cost *at)
{
    fprintf(page, "<th scope=\"col\">batch %s<br/><small>%u thread%s</small></th>", report_count(at->batch),
            at->threads, at->threads == 1 ? "" : "s");
}

static void put_head(const columns *c, FILE *page)
{
    fputs("<thead>\n<tr><th scope=\"col\" rowspan=\"2\">configuration</th><th scope=\"colgroup\" "
          "colspan=\"5\">quality</th>",
          page);
    if (c->n_costs) fprintf(page, "<th scope=\"colgroup\" colspan=\"%zu\">µs a query</th>", c->n_costs);
    if (c->n_compared)
        fprintf(page, "<th scope=\"colgroup\" colspan=\"%zu\">times as fast as FULL</th>", c->n_compared);
    if (c->build || c->bytes) fprintf(page, "<th scope=\"colgroup\" colspan=\"%d\">index</th>", c->build + c->bytes);
    if (c->cpu || c->energy) fprintf(page, "<th scope=\"colgroup\" colspan=\"%d\">per 1,000</th>", c->cpu + c->energy);
    fputs("</tr>\n<tr><th scope=\"col\">P@1</th><th scope=\"col\">of FULL’s</th><th scope=\"col\">P@5</th>"
          "<th scope=\"col\">classes scored</th><th scope=\"col\">labels found</th>",
          page);
    for (size_t i = 0; i < c->n_costs; i++) put_batch(page, &c->costs[i]);
    for (size_t i = 0; i < c->n_compared; i++) put_batch(page, &c->compared[i]);
    if (c->build) fputs("<th scope=\"col\">build s</th>", page);
    if (c->bytes) fputs("<th scope=\"col\">MiB</th>", page);
    if (c->cpu) fputs("<th scope=\"col\">CPU s</th>", page);
    if (c->energy) fputs("<th scope=\"col\">J</th>", page);
    fputs("</tr>\n</thead>\n", page);
}

static void put_cell(FILE *page, const char *text)
{
    fprintf(page, "<td>%s</td>", text);
}

static void put_row(const report *r, const report_set *set, const columns *c, const report_row *row, bool first,
                    FILE *page)
{
    const bool full = row->series < 0, ours = !full && r->series[row->series].family == REPORT_OURS;
    const double share = row->p_at_1 / set->full_p_at_1;
    fprintf(page, "<tr class=\"%s%s%s\"><th scope=\"row\">", first ? "first " : "", full ? "full " : "",
            ours ? "ours" : "");
    if (!full) fprintf(page, "<i style=\"background:var(--s%d)\"></i>", r->series[row->series].colour);
    report_put_text(page, full ? "FULL, the exact layer" : row->label);
    if (row->chosen) {
        fputs("<br/><small>", page);
        report_put_text(page, row->chosen);
        fputs("</small>", page);
    }
    fputs("</th>", page);
    put_cell(page, report_fixed(row->p_at_1, 4));
    fprintf(page, share >= report_floor ? "<td class=\"good\">%s%s</td>" : "<td>%s%s</td>",
            report_fixed(100 * share, 1), isnan(share) ? "" : "%");
    put_cell(page, report_fixed(row->p_at_5, 4));
    put_cell(page, report_count(row->sample_size));
    put_cell(page, report_fixed(row->label_recall, 4));
    for (size_t i = 0; i < c->n_costs; i++) {
        const double us = report_us(row, c->costs[i]);
        put_cell(page, report_digits(full && isnan(us) ? report_full_us(set, c->costs[i]) : us));
    }
    for (size_t i = 0; i < c->n_compared; i++)
        put_cell(page, full ? "1×" : report_times(report_speedup(row, c->compared[i])));
    if (c->build) put_cell(page, report_digits(row->build_s));
    if (c->bytes) put_cell(page, report_digits(row->index_bytes / (1 << 20)));
    if (c->cpu) put_cell(page, report_digits(row->cpu_s_per_1000));
    if (c->energy && isnan(row->energy_j_per_1000))
        fputs("<td class=\"no\">not measured</td>", page);
    else if (c->energy)
        put_cell(page, report_digits(row->energy_j_per_1000));
    fputs("</tr>\n", page);
}

void report_put_rows(const report *r, const report_set *set, FILE *page)
{
    const columns c = columns_of(set);
    /* FULL is measured beside every row; where it has no row of its own it gets one. */
    const report_row full = {.series = -1,
                             .p_at_1 = set->full_p_at_1,
                             .p_at_3 = set->full_p_at_3,
                             .p_at_5 = set->full_p_at_5,
                             .label_recall = 1,
                             .sample_size = (double)set->m,
                             .build_s = NAN,
                             .index_bytes = NAN,
                             .cpu_s_per_1000 = NAN,
                             .energy_j_per_1000 = NAN};
    open_frame(page, "All configurations", " tall", c.n_costs > 2 ? "rows many" : "rows");
    put_head(&c, page);
    fputs("<tbody>\n", page);
    bool has_full = false;
    for (int series = -1; series < r->n_series; series++) {
        bool first = true;
        for (size_t i = 0; i < set->n_rows; i++) {
            if (set->rows[i].series != series) continue;
            put_row(r, set, &c, &set->rows[i], first, page);
            first = false;
            has_full |= series < 0;
        }
        if (series < 0 && !has_full) put_row(r, set, &c, &full, true, page);
    }
    close_frame(page);
}
