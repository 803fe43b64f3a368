/* What the plots show, as gnuplot scripts. Scripts hold numbers and our own words only; see report_plot.c.
 *
 * One size for all screens: 440 units wide with text of 12. A phone shows it at four fifths, a desk in two columns a
 * quarter larger. Margins, ranges and tics are set here and not by gnuplot, which cannot know how wide text will be.
 * Legends are HTML, so that they wrap. */
#include "report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 440, HEIGHT = 330 };
static const char ink[] = "#1f2328", muted[] = "#59636e", line[] = "#d8dde3";

/* A script under way. */
typedef struct script {
    char *text;
    size_t bytes;
    FILE *out;
} script;

static bool script_open(script *s, int height, const char *x_label, const char *y_label)
{
    *s = (script){0};
    s->out = open_memstream(&s->text, &s->bytes);
    if (!s->out) return false;
    fprintf(s->out,
            "set terminal svg size %d,%d dynamic noenhanced font 'sans-serif,12'\n"
            "set encoding utf8\nunset key\nset border 3 lc rgb '%s'\n"
            "set grid lt 1 lw 0.7 lc rgb '%s'\nset tics nomirror scale 0.5 textcolor rgb '%s'\n"
            "set lmargin at screen %g\nset rmargin at screen %g\nset tmargin at screen %g\nset bmargin at screen %g\n",
            WIDTH, height, muted, line, muted, 48.0 / WIDTH, 1 - 24.0 / WIDTH, 1 - 26.0 / height, 48.0 / height);
    if (x_label) fprintf(s->out, "set xlabel '%s' textcolor rgb '%s' offset 0,0.2\n", x_label, ink);
    /* The name of the upright axis lies above it, where it is read without turning one's head. */
    if (y_label)
        fprintf(s->out, "set label 1 '%s' at screen %g,%g left textcolor rgb '%s'\n", y_label, 8.0 / WIDTH,
                1 - 10.0 / height, ink);
    return true;
}

/* What goes around a plot. */
typedef struct figure {
    const char *heading, *note; /* of the page */
    const char *const *labels;  /* texts of files, "@0" and so on in the script */
    size_t n_labels;
    report_frame frame; /* of the picture that stands alone */
} figure;

/* The name of a picture's file: what the workload is called, as far as it is fit for one, and what is shown. Data sets
 * of one name are numbered. */
static void set_name(const report *r, const report_set *set, report_frame *frame, const char *what)
{
    size_t n = 0, again = 1;
    for (const report_set *other = r->sets; other < set; other++) again += strcmp(other->name, set->name) == 0;
    for (const char *c = set->name; *c && n < 64; c++, n++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        frame->name[n] = letter || *c == '-' || (*c == '.' && n) ? *c : '_';
    }
    if (again > 1) n += (size_t)snprintf(frame->name + n, sizeof frame->name - n, "-%zu", again);
    snprintf(frame->name + n, sizeof frame->name - n, "-%s", what);
    frame->title = set->title;
}

/* Closes the script, draws it inside a <figure>, and frees it. */
static void script_draw(script *s, report_plotter *plotter, const figure *f, FILE *page)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const bool written = fclose(s->out) == 0;
    if (out) {
        fprintf(out, "<figure>\n<figcaption><b>%s</b> <span>%s</span></figcaption>\n", f->heading, f->note);
        const report_drawing drawing = {s->text, f->labels, f->n_labels, f->heading, &f->frame};
        const bool drawn = written && report_plot(plotter, &drawing, out);
        fputs("</figure>\n", out);
        if (fclose(out) == 0 && drawn) fwrite(text, 1, bytes, page);
    }
    free(text);
    free(s->text);
}

/* Tics of a logarithmic axis: 1, 2, 5 in each decade of a short one, 1 and 3, powers of ten, every second or fourth of
 * those on a long one, so that a label has 45 units of room. */
static void log_tics(FILE *out, char axis, double low, double high)
{
    static const double tics[3][3] = {{1, 2, 5}, {1, 3}, {1}};
    const double decades = log10(high / low);
    const double *steps = tics[decades < 2.2 ? 0 : decades < 3.4 ? 1 : 2];
    const int every = decades <= 7 ? 1 : decades <= 14 ? 2 : 4;
    const char *before = "";
    fprintf(out, "set logscale %c\nset %crange [%.9g:%.9g]\nset %ctics (", axis, axis, low, high, axis);
    for (int e = (int)floor(log10(low)); e <= (int)ceil(log10(high)); e += every) {
        for (int i = 0; i < 3 && steps[i] > 0; i++) {
            const double at = steps[i] * pow(10, e);
            if (at < low * 0.999 || at > high * 1.001) continue;
            if (at >= 1e9 || at < 1e-4)
                fprintf(out, "%s'%.0e' %.9g", before, at, at);
            else if (at >= 1e4 && at < 1e6) /* 100,000 would touch 200,000 */
                fprintf(out, "%s'%gk' %.9g", before, at / 1e3, at);
            else if (at >= 1e6)
                fprintf(out, "%s'%.4gM' %.9g", before, at / 1e6, at);
            else
                fprintf(out, "%s'%s' %.9g", before, at >= 1 ? report_count(at) : report_fixed(at, -e), at);
            before = ", ";
        }
    }
    fprintf(out, ")\n");
}

typedef struct range {
    double low, high;
} range;

static void widen(range *r, double value)
{
    if (!isfinite(value)) return;
    if (!(value >= r->low)) r->low = value;
    if (!(value <= r->high)) r->high = value;
}

/* A logarithmic range with some air, and at least a factor of four wide. */
static void pad_log(range *r)
{
    const double middle = sqrt(r->low) * sqrt(r->high), half = fmax(sqrt(r->high / r->low) * 1.15, 2);
    *r = (range){middle / half, middle * half};
}

/* Below this share of FULL's P@1 a configuration is off the plot: what is worth comparing lies in the last hundredths.
 */
static const double shown_share = 0.9;

/* ---- P@1 against time ------------------------------------------------------------------------------------------ */

typedef struct point {
    double dial, us, p_at_1;
} point;

static int by_dial(const void *a, const void *b)
{
    const point *x = a, *y = b;
    if (x->dial != y->dial) return x->dial < y->dial ? -1 : 1;
    return (x->us > y->us) - (x->us < y->us);
}

/* The points of a series in the order of their dial. *joined: one dial and no value twice, so that a line along it
 * means something. */
static size_t curve(const report_set *set, int series, report_cost at, point *out, bool *joined)
{
    size_t n = 0;
    const char *dial = NULL;
    *joined = true;
    for (size_t i = 0; i < set->n_rows; i++) {
        const report_row *row = &set->rows[i];
        const double us = report_us(row, at);
        if (row->series != series || !(us > 0) || isnan(row->p_at_1)) continue;
        if (isnan(row->dial_value) || (dial && row->dial && strcmp(dial, row->dial) != 0)) *joined = false;
        if (row->dial) dial = row->dial;
        out[n++] = (point){isnan(row->dial_value) ? 0 : row->dial_value, us, row->p_at_1};
    }
    qsort(out, n, sizeof *out, by_dial);
    for (size_t i = 1; i < n; i++)
        if (out[i].dial == out[i - 1].dial) *joined = false;
    return n;
}

static int by_time(const void *a, const void *b)
{
    const point *x = a, *y = b;
    if (x->us != y->us) return x->us < y->us ? -1 : 1;
    return (x->p_at_1 < y->p_at_1) - (x->p_at_1 > y->p_at_1);
}

/* Keeps the points that no other passes in both time and P@1; returns how many. */
static size_t best_points(point *points, size_t n)
{
    size_t n_best = 0;
    qsort(points, n, sizeof *points, by_time);
    for (size_t i = 0; i < n; i++)
        if (n_best == 0 || points[i].p_at_1 > points[n_best - 1].p_at_1) points[n_best++] = points[i];
    return n_best;
}

static void put_points(script *s, const char *name, int series, const point *points, size_t n)
{
    fprintf(s->out, "$%s%d << EOD\n", name, series);
    for (size_t i = 0; i < n; i++) fprintf(s->out, "%.9g %.9g\n", points[i].us, points[i].p_at_1);
    fprintf(s->out, "EOD\n");
}

static void draw_curves(const report *r, const report_set *set, report_cost at, report_plotter *plotter, FILE *page)
{
    script s;
    char heading[96], note[320];
    range x = {NAN, NAN}, y = {NAN, NAN};
    size_t n_below = 0;
    const double full = set->full_p_at_1, full_us = report_full_us(set, at);
    point *points = malloc((set->n_rows + 1) * sizeof *points);
    if (!points) return;
    widen(&x, full_us);
    widen(&y, full);
    for (size_t i = 0; i < set->n_rows; i++) {
        const report_row *row = &set->rows[i];
        const double us = report_us(row, at);
        if (row->series < 0 || !(us > 0) || isnan(row->p_at_1)) continue;
        if (row->p_at_1 < shown_share * full) {
            n_below++;
            continue;
        }
        widen(&x, us);
        widen(&y, row->p_at_1);
    }
    if (!(x.low > 0) || isnan(y.low) || !script_open(&s, HEIGHT, "microseconds a query", "P@1")) {
        free(points);
        return;
    }
    pad_log(&x);
    log_tics(s.out, 'x', x.low, x.high);
    const double air = fmax(0.06 * (y.high - y.low), 0.004);
    fprintf(s.out, "set yrange [%.9g:%.9g]\nset ytics autofreq format '%s'\n", fmax(y.low - air, 0), y.high + air,
            y.high - y.low < 0.05 ? "%.3f" : "%.2f");
    /* all_: every configuration, a small dot; line_: along the dial, or through the best where several were turned. */
    size_t n_points[REPORT_MAX_SERIES] = {0};
    bool joined[REPORT_MAX_SERIES] = {false}, scattered = false;
    for (int i = 0; i < r->n_series; i++) {
        n_points[i] = curve(set, i, at, points, &joined[i]);
        put_points(&s, "all", i, points, n_points[i]);
        put_points(&s, "line", i, points, joined[i] ? n_points[i] : best_points(points, n_points[i]));
        scattered |= !joined[i] && n_points[i] > 1;
    }
    fprintf(s.out, "plot %.9g with lines lw 1.5 lc rgb '%s', %.9g with lines lw 1 dt (4,6) lc rgb '%s'", full, ink,
            report_floor * full, muted);
    for (int i = r->n_series - 1; i >= 0; i--) { /* ours last, on top */
        const report_series *series = &r->series[i];
        const bool ours = series->family == REPORT_OURS;
        const char *colour = report_colour(series->colour);
        if (n_points[i] == 0) continue;
        if (!joined[i]) fprintf(s.out, ", $all%d with points lc rgb '%s' pt 7 ps 0.16", i, colour);
        fprintf(s.out, ", $line%d with linespoints lw %s lc rgb '%s' pt %d ps %s", i, ours ? "2.6" : "1.4", colour,
                series->mark, ours ? "0.62" : "0.5");
    }
    fprintf(s.out, "\n");
    free(points);
    snprintf(heading, sizeof heading, "P@1 against time: batch %s, %u thread%s", report_count(at.batch), at.threads,
             at.threads == 1 ? "" : "s");
    int used = snprintf(note, sizeof note, "Up and to the left is better.");
    if (full_us > 0)
        used += snprintf(note + used, sizeof note - (size_t)used, " FULL takes %s µs.", report_digits(full_us));
    if (n_below)
        snprintf(note + used, sizeof note - (size_t)used,
                 " %zu configuration%s below %g%% of FULL’s P@1 %s off the plot.", n_below, n_below == 1 ? "" : "s",
                 100 * shown_share, n_below == 1 ? "is" : "are");
    if (scattered) {
        used = (int)strlen(note);
        snprintf(note + used, sizeof note - (size_t)used,
                 " Where several settings were swept, the line joins the best.");
    }
    report_key keys[REPORT_MAX_KEYS];
    char what[48];
    snprintf(what, sizeof what, "p1-batch-%u", at.batch);
    figure f = {.heading = heading, .note = note, .frame = {.subtitle = heading, .keys = keys}};
    f.frame.n_keys = report_set_keys(r, set, keys);
    set_name(r, set, &f.frame, what);
    script_draw(&s, plotter, &f, page);
}

void report_figure_curves(const report *r, const report_set *set, report_plotter *plotter, FILE *page)
{
    report_cost bulk, single;
    if (!(set->full_p_at_1 > 0) || !report_bulk(set, &bulk)) return;
    draw_curves(r, set, bulk, plotter, page);
    if (report_single(set, &single) && single.batch != bulk.batch) draw_curves(r, set, single, plotter, page);
}

/* ---- Speed-up bars ------------------------------------------------------------------------------------------- */

/* Bars grow from FULL's line, at 1, to the right and, where a method is slower, to the left: on a logarithmic axis, as
 * one method is a thousand times as fast and the next one twice. */
void report_figure_bars(const report *r, const report_set *set, report_plotter *plotter, FILE *page)
{
    enum { LEFT = 132, BAR = 15, GAP = 12, TOP = 10, BOTTOM = 34 };
    report_cost costs[2];
    int n_costs = 0, n_methods = 0;
    double most = 10, least = 0.9;
    if (!(set->full_p_at_1 > 0) || !report_bulk(set, &costs[0])) return;
    n_costs = report_single(set, &costs[1]) && costs[1].batch != costs[0].batch ? 2 : 1;
    int methods[REPORT_MAX_SERIES];
    char names[REPORT_MAX_SERIES][64];
    const char *labels[REPORT_MAX_SERIES];
    for (int i = 0; i < r->n_series; i++) {
        if (isnan(report_best_p_at_1(r, set, i, REPORT_OURS))) continue;
        snprintf(names[n_methods], sizeof names[0], "%s%s%s", r->series[i].method, r->series[i].variant ? " " : "",
                 r->series[i].variant ? r->series[i].variant : "");
        labels[n_methods] = names[n_methods];
        methods[n_methods++] = i;
        for (int c = 0; c < n_costs; c++) {
            const report_row *row = report_fastest(r, set, i, REPORT_OURS, report_floor, costs[c]);
            const double times = row ? report_speedup(row, costs[c]) : NAN;
            if (times > most) most = times;
            if (times > 0 && times < least) least = times;
        }
    }
    script s;
    const int step = n_costs * BAR + GAP, height = n_methods * step + TOP + BOTTOM;
    if (n_methods == 0 || !script_open(&s, height, NULL, NULL)) return;
    /* y counts units downwards from the top of the first bar's share. The words beside the longest bar need a sixth of
     * the width. */
    const double low = least / 1.15, high = most * pow(most / low, 0.22);
    log_tics(s.out, 'x', low, high);
    fprintf(s.out,
            "set lmargin at screen %g\nset tmargin at screen %g\nset bmargin at screen %g\nset grid noy\n"
            "set border 1\nset yrange [%d:0]\nset xtics (",
            (double)LEFT / WIDTH, 1 - (double)TOP / height, (double)BOTTOM / height, n_methods * step);
    const char *before = "";
    for (double at = pow(10, ceil(log10(low))); at <= high; at *= high / low < 1e7 ? 10 : 100) {
        fprintf(s.out, "%s'%s×' %.9g", before, at >= 1 ? report_count(at) : report_fixed(at, (int)-log10(at)), at);
        before = ", ";
    }
    fprintf(s.out, ")\nset ytics (");
    for (int i = 0; i < n_methods; i++) fprintf(s.out, "%s'@%d' %d", i ? ", " : "", i, i * step + step / 2);
    fprintf(s.out, ") scale 0 textcolor rgb '%s'\nset style fill solid noborder\n", ink);
    for (int i = 0; i < n_methods; i++) {
        for (int c = 0; c < n_costs; c++) {
            const double top = i * step + GAP / 2.0 + c * BAR;
            const report_row *row = report_fastest(r, set, methods[i], REPORT_OURS, report_floor, costs[c]);
            const double times = row ? report_speedup(row, costs[c]) : NAN;
            const double text_at = top + BAR / 2.0;
            if (times > 0 && isfinite(times)) {
                fprintf(s.out,
                        "set object rectangle from 1,%g to %.9g,%g fc rgb '%s' fs transparent solid %s noborder front\n"
                        "set label '%s' at %.9g,%g offset character 0.4,0 left textcolor rgb '%s' front\n",
                        top + 1, times, top + BAR - 1, report_colour(r->series[methods[i]].colour), c ? "0.45" : "1",
                        report_times(times), fmax(times, 1), text_at, ink);
            } else if (c == 0) { /* one sentence for both bars */
                fprintf(s.out,
                        "set label 'not reached: %.1f%% at best' at 1,%d offset character 0.4,0 left textcolor rgb "
                        "'%s' front\n",
                        100 * report_best_p_at_1(r, set, methods[i], REPORT_OURS) / set->full_p_at_1,
                        i * step + step / 2, muted);
            }
        }
    }
    /* A plot of nothing, for the axes; the 1 is FULL. */
    fprintf(s.out, "set arrow from 1,0 to 1,%d nohead lw 1 dt (4,6) lc rgb '%s'\nplot NaN\n", n_methods * step, muted);
    char note[320], subtitle[160];
    int used = snprintf(note, sizeof note,
                        "The fastest configuration of each method with at least %g%% of FULL’s P@1, on a logarithmic "
                        "axis. ",
                        100 * report_floor);
    if (n_costs == 2)
        snprintf(note + used, sizeof note - (size_t)used, "Full bar: batch %s, %u thread%s; pale bar: batch 1.",
                 report_count(costs[0].batch), costs[0].threads, costs[0].threads == 1 ? "" : "s");
    else
        snprintf(note + used, sizeof note - (size_t)used, "Batch %s, %u thread%s.", report_count(costs[0].batch),
                 costs[0].threads, costs[0].threads == 1 ? "" : "s");
    snprintf(subtitle, sizeof subtitle, "Times as fast as FULL at %g%% of its P@1: batch %s%s", 100 * report_floor,
             report_count(costs[0].batch), n_costs == 2 ? "; pale: batch 1" : "");
    figure f = {.heading = "Times as fast as FULL",
                .note = note,
                .labels = labels,
                .n_labels = (size_t)n_methods,
                .frame = {.subtitle = subtitle}};
    set_name(r, set, &f.frame, "speedup");
    script_draw(&s, plotter, &f, page);
}

/* ---- Collisions over the steps of learning --------------------------------------------------------------------- */

enum { MAX_SHOWN = 6, MAX_ALIKE = 2, MAX_POINTS = 400 };

/* The columns of CP+ and CP-; 0, the step, where there is none. */
static void collision_columns(const report_trace *t, size_t columns[2])
{
    static const char *const names[2][3] = {{"cp_positive", "CP+", "cp_plus"}, {"cp_negative", "CP-", "cp_minus"}};
    columns[0] = columns[1] = 0;
    for (size_t j = 1; j < t->n_columns; j++)
        for (int sign = 0; sign < 2; sign++)
            for (int i = 0; i < 3; i++)
                if (strcmp(t->columns[j], names[sign][i]) == 0) columns[sign] = j;
}

/* The length of a label's words before its first setting: "lss paper" of "lss paper K=4 L=10". */
static size_t kind_bytes(const char *label)
{
    size_t n = strcspn(label, "=");
    while (label[n] && n > 0 && label[n - 1] != ' ') n--;
    return n;
}

static bool same_collisions(const report_trace *a, const report_trace *b)
{
    size_t x[2], y[2];
    collision_columns(a, x);
    collision_columns(b, y);
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        for (int sign = 0; sign < 2; sign++)
            if (a->values[i * a->n_columns + x[sign]] != b->values[i * b->n_columns + y[sign]]) return false;
    return true;
}

/* The traces to draw: a sweep leaves a hundred, and those along evidence's lambda are one and the same. */
static size_t choose_traces(const report_set *set, const report_trace *out[MAX_SHOWN], size_t *n_more)
{
    size_t n = 0, columns[2];
    *n_more = 0;
    for (size_t i = 0; i < set->n_traces; i++) {
        const report_trace *t = &set->traces[i];
        size_t n_alike = 0;
        bool again = false;
        collision_columns(t, columns);
        if (t->n < 2 || !columns[0] || !columns[1]) continue;
        for (size_t j = 0; j < n; j++) {
            const size_t bytes = kind_bytes(t->label);
            n_alike += kind_bytes(out[j]->label) == bytes && memcmp(out[j]->label, t->label, bytes) == 0;
            again |= same_collisions(t, out[j]);
        }
        if (again) continue;
        if (n < MAX_SHOWN && n_alike < MAX_ALIKE)
            out[n++] = t;
        else
            (*n_more)++;
    }
    return n;
}

/* The colour of the method that a trace is of; a second trace of a method is drawn thinner. */
static int trace_colour(const report *r, const report_trace *t)
{
    size_t bytes = kind_bytes(t->label);
    while (bytes && t->label[bytes - 1] == ' ') bytes--;
    for (int i = 0; i < r->n_series; i++) {
        const report_series *s = &r->series[i];
        char name[96];
        snprintf(name, sizeof name, "%.40s%s%.40s", s->method, s->variant ? " " : "", s->variant ? s->variant : "");
        if (strlen(name) == bytes && memcmp(name, t->label, bytes) == 0) return s->colour;
    }
    return REPORT_COLOURS - 1;
}

static const char *trace_width(const report_trace *const *traces, size_t i)
{
    const size_t bytes = kind_bytes(traces[i]->label);
    for (size_t j = 0; j < i; j++)
        if (kind_bytes(traces[j]->label) == bytes && memcmp(traces[j]->label, traces[i]->label, bytes) == 0) return "1";
    return "2.4";
}

void report_figure_traces(const report *r, const report_set *set, report_plotter *plotter, FILE *page)
{
    const report_trace *traces[MAX_SHOWN];
    size_t columns[2], n_more;
    range x = {NAN, NAN}, y = {0, 0};
    const size_t n = choose_traces(set, traces, &n_more);
    for (size_t i = 0; i < n; i++) {
        collision_columns(traces[i], columns);
        for (size_t j = 0; j < traces[i]->n; j++) {
            const double *row = &traces[i]->values[j * traces[i]->n_columns];
            widen(&x, row[0]);
            widen(&y, row[columns[0]]);
            widen(&y, row[columns[1]]);
        }
    }
    script s;
    if (n == 0 || !(x.high > x.low) || !(y.high > 0) || plotter->problem[0] ||
        !script_open(&s, HEIGHT, "step", "probability of collision"))
        return;
    fprintf(s.out, "set xrange [%.9g:%.9g]\nset yrange [0:%.9g]\nset ytics autofreq format '%%g'\n", x.low, x.high,
            y.high * 1.06);
    for (size_t i = 0; i < n; i++) {
        const size_t stride = traces[i]->n / MAX_POINTS + 1;
        collision_columns(traces[i], columns);
        fprintf(s.out, "$t%zu << EOD\n", i);
        for (size_t j = 0; j < traces[i]->n; j += stride) {
            const double *row = &traces[i]->values[j * traces[i]->n_columns];
            if (isfinite(row[0]) && isfinite(row[columns[0]]) && isfinite(row[columns[1]]))
                fprintf(s.out, "%.9g %.9g %.9g\n", row[0], row[columns[0]], row[columns[1]]);
        }
        fprintf(s.out, "EOD\n");
    }
    for (size_t i = 0; i < n; i++) {
        const char *colour = report_colour(trace_colour(r, traces[i])), *width = trace_width(traces, i);
        fprintf(s.out, "%s$t%zu using 1:2 with lines lw %s lc rgb '%s'", i ? ", " : "plot ", i, width, colour);
        fprintf(s.out, ", $t%zu using 1:3 with lines lw %s dt (10,6) lc rgb '%s'", i, width, colour);
    }
    fprintf(s.out, "\n");
    char note[256];
    int used = snprintf(note, sizeof note,
                        "How often a query meets a class that it needs (CP+, full line) and one that it does not (CP−, "
                        "dashed).");
    if (n_more) snprintf(note + used, sizeof note - (size_t)used, " %zu more are in the file.", n_more);
    report_key keys[MAX_SHOWN];
    for (size_t i = 0; i < n; i++) {
        keys[i] = (report_key){.colour = trace_colour(r, traces[i]), .width = trace_width(traces, i)};
        snprintf(keys[i].text, sizeof keys[i].text, "%.90s", traces[i]->label);
    }
    figure f = {
        .heading = "Collisions while learning",
        .note = note,
        .frame = {.subtitle = "Collisions while learning: CP+, full line, and CP−, dashed", .keys = keys, .n_keys = n}};
    set_name(r, set, &f.frame, "learning");
    fputs("<div>", page);
    script_draw(&s, plotter, &f, page);
    report_put_keys(keys, n, page);
    fputs("</div>\n", page);
}

/* ---- Cost against the number of classes ----------------------------------------------------------------------- */

static bool is_synthetic(const report_set *set)
{
    return strncmp(set->name, "synthetic-", 10) == 0;
}

/* Lower than elsewhere: of a power law's rare classes some 2% of the test queries need one that no training query had.
 */
static const double SIZES_FLOOR = 0.95;

enum { SIZES_FULL = -1, SIZES_PEER = -2 }; /* instead of a series */

/* The time of FULL, of the best peer or of a series at SIZES_FLOOR; NAN where none reaches it. */
static double size_us(const report *r, const report_set *set, int which, report_cost at)
{
    if (which == SIZES_FULL) return report_full_us(set, at);
    const report_row *row = report_fastest(r, set, which == SIZES_PEER ? -1 : which, REPORT_PEER, SIZES_FLOOR, at);
    return row ? report_us(row, at) : NAN;
}

/* FULL, each of our methods, and whatever peer is best at each size. */
void report_figure_sizes(const report *r, report_plotter *plotter, FILE *page)
{
    range x = {NAN, NAN}, y = {NAN, NAN};
    report_cost at = {0}, bulk;
    point *points = malloc((r->n_sets + 1) * sizeof *points);
    script s;
    if (!points) return;
    /* Sizes are compared at the timing of the first; sets without it drop out. */
    for (size_t i = 0; i < r->n_sets; i++) {
        const report_set *set = &r->sets[i];
        if (!is_synthetic(set) || !report_bulk(set, &bulk)) continue;
        if (!at.batch) at = bulk;
        if (report_full_us(set, at) > 0) widen(&x, (double)set->m);
    }
    if (!(x.high > x.low) || plotter->problem[0] || !script_open(&s, HEIGHT, "classes", "microseconds a query")) {
        free(points);
        return;
    }
    report_key keys[REPORT_MAX_KEYS];
    size_t n_keys = 0;
    for (int i = SIZES_PEER; i < r->n_series; i++) {
        size_t n = 0;
        if (i >= 0 && r->series[i].family != REPORT_OURS) continue;
        for (size_t j = 0; j < r->n_sets; j++) {
            const double us = is_synthetic(&r->sets[j]) ? size_us(r, &r->sets[j], i, at) : NAN;
            if (!(us > 0)) continue;
            points[n++] = (point){(double)r->sets[j].m, us, 0};
            widen(&y, us);
        }
        if (n == 0) continue;
        qsort(points, n, sizeof *points, by_dial); /* which holds m here */
        fprintf(s.out, "$s%zu << EOD\n", n_keys);
        for (size_t j = 0; j < n; j++) fprintf(s.out, "%.9g %.9g\n", points[j].dial, points[j].us);
        fprintf(s.out, "EOD\n");
        keys[n_keys++] = i == SIZES_FULL ? report_full_key()
                         : i >= 0        ? report_series_key(&r->series[i])
                                         : (report_key){.text = "the best peer at each size",
                                                        .colour = 6, /* a blue that is none of ours */
                                                        .mark = 5,
                                                        .width = "1.4"};
    }
    free(points);
    pad_log(&x);
    pad_log(&y);
    log_tics(s.out, 'x', x.low, x.high);
    log_tics(s.out, 'y', y.low, y.high);
    for (size_t i = 0; i < n_keys; i++) { /* ours last, on top */
        fprintf(s.out, "%s $s%zu with linespoints lw %s lc rgb '%s' pt %d ps %s", i ? "," : "plot", i, keys[i].width,
                report_colour(keys[i].colour), keys[i].mark ? keys[i].mark : 7, keys[i].mark ? "0.6" : "0.35");
    }
    fprintf(s.out, "\n");
    char note[256], subtitle[128];
    snprintf(note, sizeof note,
             "Synthetic data; the fastest configuration with at least %g%% of FULL’s P@1. Batch %s, %u thread%s.",
             100 * SIZES_FLOOR, report_count(at.batch), at.threads, at.threads == 1 ? "" : "s");
    snprintf(subtitle, sizeof subtitle, "Synthetic data, at least %g%% of FULL’s P@1; batch %s, %u thread%s",
             100 * SIZES_FLOOR, report_count(at.batch), at.threads, at.threads == 1 ? "" : "s");
    const figure f = {.heading = "Cost against the number of classes",
                      .note = note,
                      .frame = {.name = "cost-against-classes",
                                .title = "Cost against the number of classes",
                                .subtitle = subtitle,
                                .keys = keys,
                                .n_keys = n_keys}};
    fputs("<div>", page);
    script_draw(&s, plotter, &f, page);
    report_put_keys(keys, n_keys, page);
    fputs("</div>\n", page);
}
