/* The curve of a tuned index: quality against time. */
#include "curve_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 192 };

static double value(const wo_curve *curve, size_t row, const char *name)
{
    for (size_t c = 0; c < curve->columns; c++)
        if (strcmp(curve->names[c], name) == 0) return curve->values[row * curve->columns + c];
    return NAN;
}

/* Whether the goal was about FULL's own answers, rather than hits. */
static bool by_agreement(const wo_curve *curve)
{
    return curve->target_agree > 0 || isnan(value(curve, 0, "p_at_1"));
}

/* The row of FULL, by which shares are counted; rows where it was not tried. */
static size_t full_row(const wo_curve *curve)
{
    size_t row = 0;
    while (row < curve->rows && value(curve, row, "method") != WO_METHOD_FULL) row++;
    return row;
}

static double of_full(const wo_curve *curve, size_t full, const char *name)
{
    return full < curve->rows ? value(curve, full, name) : NAN;
}

double cli_curve_full_p_at_1(const wo_curve *curve)
{
    return of_full(curve, full_row(curve), "p_at_1");
}

/* What a search for the best goes by: the mean of the shares of FULL's P@1 and P@5; where FULL's best answer is never a
 * label, what both have over FULL's; without labels, or without a hit on either side, agreement. */
static double worth(const wo_curve *curve, size_t row, size_t full)
{
    const double one = of_full(curve, full, "p_at_1"), five = of_full(curve, full, "p_at_5");
    const double at_1 = value(curve, row, "p_at_1"), at_5 = value(curve, row, "p_at_5");
    if (one > 0 && !by_agreement(curve)) return (at_1 / one + (five > 0 ? at_5 / five : 1)) / 2;
    if (one == 0 && !by_agreement(curve) && at_1 + at_5 + five > 0) return 1 + (at_1 + at_5 - five) / 2;
    return value(curve, row, "agreement");
}

/* What the goal was about. */
static double quality(const wo_curve *curve, size_t row, size_t full)
{
    return curve->target_us > 0 ? worth(curve, row, full)
                                : value(curve, row, by_agreement(curve) ? "agreement" : "p_at_1");
}

/* A row in the order of time. A file may have many: each is looked at a few times, never once for every other. */
typedef struct timed {
    size_t row;
    double us, quality;
    bool best; /* for its time: nothing that is as fast is as good */
} timed;

/* Whether two rows have one setting, the dial aside. */
static bool is_same_setting(const wo_curve *curve, size_t a, size_t b)
{
    static const char *const settings[] = {"method",  "router", "K",       "L",      "nodes", "leaves", "beam",
                                           "route_d", "probes", "weights", "source", "thin",  "spread", "fallback"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const double x = value(curve, a, settings[i]), y = value(curve, b, settings[i]);
        if (x != y && !(isnan(x) && isnan(y))) return false;
    }
    return true;
}

/* Whether a row was never compared: a later value of its setting's dial was, which should be better, whatever the clock
 * says. They follow each other. */
static bool is_superseded(const wo_curve *curve, size_t row)
{
    enum { MOST = 16 }; /* values of a dial; a file may claim any number */
    for (size_t i = row + 1; i < curve->rows && i <= row + MOST && is_same_setting(curve, row, i); i++)
        if (value(curve, i, "met") == 1) return true;
    return false;
}

/* The fastest first; of equal ones the first. */
static int by_time(const void *a, const void *b)
{
    const timed *x = a, *y = b;
    if (x->us != y->us) return x->us < y->us ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void mark_best(timed *rows, size_t n)
{
    double most = -INFINITY;
    size_t having = 0; /* rows, so far, that have it */
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && rows[end].us == rows[first].us; end++) {
            if (rows[end].quality > most) having = 0;
            if (rows[end].quality >= most) {
                most = rows[end].quality;
                having++;
            }
        }
        for (size_t i = first; i < end; i++)
            rows[i].best = isnan(rows[i].quality) || (rows[i].quality == most && having == 1);
    }
}

/* All rows whose time is known; NULL where memory runs out. To be freed. */
static timed *in_order(const wo_curve *curve, size_t *n)
{
    timed *rows = malloc((curve->rows + 1) * sizeof *rows);
    const size_t full = full_row(curve);
    *n = 0;
    for (size_t i = 0; rows && i < curve->rows; i++) {
        const double us = value(curve, i, "us");
        if (us >= 0 && us < INFINITY) rows[(*n)++] = (timed){i, us, quality(curve, i, full), false};
    }
    if (!rows) return NULL;
    qsort(rows, *n, sizeof *rows, by_time);
    mark_best(rows, *n);
    return rows;
}

enum { FIGURES = 68 }; /* columns of a row; on narrower terminals P@1 and P@5 are shares of FULL's alone */

/* A number, and its share of FULL's, on a narrow terminal one of them. */
static void print_figure(double x, double full, bool narrow)
{
    if (isnan(x))
        printf("%8s%*s", "-", narrow ? 0 : 8, "");
    else if (!narrow || !(full > 0))
        printf("%8.4f", x);
    const double share = 100 * x / full;
    if (!isnan(x) && full > 0)
        printf(share < 999.995 ? " %6.2f%%" : " %6.0f%%", share);
    else if (!isnan(x) && !narrow)
        printf("%8s", "");
}

/* Why a row that reaches the goal is not the one, where it looks better. */
static const char *why_lost(const wo_curve *curve, size_t row, size_t full)
{
    const size_t chosen = curve->chosen;
    if (chosen >= curve->rows) return "";
    const double us = value(curve, row, "us"), own = value(curve, chosen, "us");
    if (curve->target_us > 0) {
        const double more = worth(curve, row, full) - worth(curve, chosen, full);
        if (us < own && more >= -0.002 && is_superseded(curve, row))
            return "  (the next of its setting, with more classes, stood for it)";
        if (us < own) return more < -0.002 ? "" : "  (the chosen one was faster when they were compared)";
        return more <= 0 ? "" : more <= 0.002 ? "  (better by no more than chance, and slower)" : "  (slower)";
    }
    if (us >= own) return "";
    if (value(curve, chosen, "method") == WO_METHOD_FULL) return "  (FULL was faster, timed beside it)";
    if (us >= 0.98 * own) return "  (faster by less than 2%: noise)";
    if (is_superseded(curve, row)) return "  (faster by chance: the next of its setting has fewer classes)";
    return "  (the chosen one was faster when they were compared)";
}

/* Why a row is not an answer. */
static const char *why_not(const wo_curve *curve, size_t row, size_t full)
{
    if (row == curve->chosen) return "  <- this index";
    if (value(curve, row, "met") == 1) return why_lost(curve, row, full);
    if (curve->target_us > 0) return "  (too slow)";
    const double one = value(curve, row, "p_at_1") / of_full(curve, full, "p_at_1"),
                 five = value(curve, row, "p_at_5") / of_full(curve, full, "p_at_5");
    if (curve->target_agree > 0)
        return value(curve, row, "agreement") < curve->target_agree ? "  (agreement too low)" : "  (not for sure)";
    if (one < curve->target) return "  (P@1 too low)";
    if (five < curve->target5) return "  (P@5 too low)";
    return "  (not for sure)";
}

/* Whether hits say what the goal is about: without any, on either side, FULL's own answers do. */
static bool by_hits(const wo_curve *curve)
{
    if (by_agreement(curve)) return false;
    const bool best = curve->target_us > 0 && curve->chosen < curve->rows;
    return !best || value(curve, curve->chosen, "p_at_1") > 0 || value(curve, curve->chosen, "p_at_5") > 0 ||
           of_full(curve, full_row(curve), "p_at_5") > 0;
}

/* Where FULL's own answers are the goal because hits cannot be: why. */
static void print_no_hits(const wo_curve *curve, const char *indent)
{
    char best[64] = "";
    if (by_hits(curve) || (curve->labelled && of_full(curve, full_row(curve), "p_at_1") != 0)) return;
    if (curve->target_us > 0)
        snprintf(best, sizeof best, "; the best has most of FULL's own %" PRIu32 " best", curve->k);
    if (curve->labelled)
        printf("%sno hits to judge by: on %s FULL's best answer is never a label%s: do labels count from 0?\n", indent,
               cli_count(curve->labelled, "labelled query"), best);
    else
        printf("%sno hits to judge by: the queries have no labels%s\n", indent, best);
}

/* What the choice of the best rests on: its hits, which are an estimate. */
static void print_estimate(const wo_curve *curve, const char *indent)
{
    if (!by_hits(curve) || !curve->labelled) return;
    const double error = 100 * value(curve, curve->chosen, "error_p_at_1"), n = (double)curve->labelled;
    printf("%snot proved: the best by %s", indent,
           cli_count((uint64_t)llround(n * value(curve, curve->chosen, "p_at_1")), "hit"));
    printf(" on %s; ", cli_count(curve->labelled, "labelled query"));
    if (of_full(curve, full_row(curve), "p_at_1") == 0)
        printf("FULL has none\n");
    else
        printf(error < 9.95 ? "the standard error of its share of P@1 is %.2g%%\n"
                            : "the standard error of its share of P@1 is %.0f%%\n",
               error);
}

/* Whether all that FULL has is asked for, and no more: no number of queries shows that of what imitates it. */
static bool wants_all(const wo_curve *curve)
{
    const bool beyond = curve->target > 1 || curve->target5 > 1;
    return curve->target_agree >= 1 || (!beyond && (curve->target == 1 || curve->target5 == 1));
}

/* Of a screen: nothing shows more. */
static void print_all_equal(const wo_curve *curve, const char *indent)
{
    if (wants_all(curve))
        printf("%sno number of queries shows that of cells that imitate FULL", indent);
    else if (curve->provable != WO_PROOF_ALL_EQUAL && curve->provable != WO_PROOF_NONE)
        printf("%sno cells were shown to reach that", indent);
    else
        printf("%s%s %s too few to show that", indent, cli_number(curve->n),
               curve->n == 1 ? "query is" : "queries are");
    printf("; it looks through all classes, and here answered as FULL does\n");
}

void cli_curve_foretell(const wo_curve *goal, bool open, bool quiet)
{
    char needed[96] = "", held[64] = "";
    const bool hopeless = goal->provable == WO_PROOF_ALL_EQUAL && !wants_all(goal);
    if (goal->target_us > 0 || (quiet && !hopeless)) return;
    if (goal->needed > goal->labelled)
        snprintf(needed, sizeof needed, "; about %s would show it by hits", cli_count(goal->needed, "labelled query"));
    if (goal->held_out)
        snprintf(held, sizeof held, "%s of the log that are held out", cli_count(goal->held_out, "query"));
    if (goal->target_agree >= 1)
        fprintf(stderr, "%s: no number of queries shows that anything but FULL itself has all of FULL's answers\n",
                cli_program);
    else if (wants_all(goal))
        fprintf(stderr,
                "%s: no number of queries shows that cells that imitate FULL have all of its hits: an index must have "
                "more, or look through all classes\n",
                cli_program);
    else if (hopeless)
        fprintf(stderr, "%s: warning: the queries to judge by are too few to show that goal, whatever the index%s%s\n",
                cli_program, open ? ": little is tried, and what looks through all classes is taken" : "", needed);
    else if (goal->target_agree == 0 && goal->provable == WO_PROOF_AGREEMENT)
        fprintf(stderr, "%s: hits on %s are too few to show that goal: FULL's own answers can show it, there%s%s%s\n",
                cli_program, cli_count(goal->labelled, "labelled query"), held[0] ? " and on " : "", held, needed);
    else if (goal->provable == WO_PROOF_HELD_OUT)
        fprintf(stderr, "%s: hits on %s are too few to show that goal: hits on %s can show it%s\n", cli_program,
                cli_count(goal->labelled, "labelled query"), held, needed);
}

static void print_needed(const wo_curve *curve, const char *indent)
{
    if (curve->needed > curve->labelled)
        printf("%sabout %s would show it by hits\n", indent, cli_count(curve->needed, "labelled query"));
}

/* In two lines where one is too long. */
static void print_hits(const wo_curve *curve, const char *indent)
{
    char by[64], one[64], five[64] = "";
    snprintf(by, sizeof by, "shown by the hits on %s:", cli_count(curve->labelled, "labelled query"));
    snprintf(one, sizeof one, "at least %.2f%% of FULL's P@1", 100 * value(curve, curve->chosen, "sure_p_at_1"));
    if (curve->target5 > 0)
        snprintf(five, sizeof five, " and %.2f%% of its P@5", 100 * value(curve, curve->chosen, "sure_p_at_5"));
    const size_t length = strlen(indent) + strlen(by) + 1 + strlen(one) + strlen(five);
    printf("%s%s", indent, by);
    if (length > (size_t)cli_columns(INT_MAX)) printf("\n%s ", indent);
    printf(" %s%s\n", one, five);
}

/* What was shown, and by what. */
static void print_proof(const wo_curve *curve, const char *indent)
{
    const double sure = curve->chosen < curve->rows ? value(curve, curve->chosen, "sure_agreement") : NAN;
    const bool full = curve->chosen < curve->rows && value(curve, curve->chosen, "method") == WO_METHOD_FULL;
    const bool met = curve->chosen < curve->rows && value(curve, curve->chosen, "met") == 1;
    if (curve->target_us > 0) {
        if (!met)
            printf("%snothing was as fast: this is %s that was found\n", indent,
                   full ? "FULL, the fastest" : "the fastest");
        else if (full)
            printf("%snothing better was found: this is FULL itself\n", indent);
        else
            print_estimate(curve, indent);
        return;
    }
    if (full) {
        printf(met ? "%snothing else was shown to reach that, or was faster: this is FULL itself\n"
                   : "%snothing was shown to reach that: FULL itself is the best that was found\n",
               indent);
        print_needed(curve, indent);
        return;
    }
    switch (curve->proof) {
    case WO_PROOF_HITS: print_hits(curve, indent); break;
    case WO_PROOF_AGREEMENT:
        if (curve->target_agree > 0) {
            printf("%sshown by the answers themselves: at least %.2f%% of FULL's %" PRIu32 " best\n", indent,
                   100 * sure, curve->k);
        } else {
            printf("%shits on %s are too few to show it: shown by FULL's own answers, there and on\n", indent,
                   cli_count(curve->labelled, "labelled query"));
            printf("%squeries of the log that were held out; it has %.1f%% of its %" PRIu32 " best for sure\n", indent,
                   100 * sure, curve->k);
        }
        break;
    case WO_PROOF_HELD_OUT:
        printf("%shits on %s are too few to show it: shown by hits on %s of the\n", indent,
               cli_count(curve->labelled, "labelled query"), cli_count(curve->held_out, "other query"));
        printf("%slog, held out from building; it has %.1f%% of FULL's %" PRIu32 " best for sure\n", indent, 100 * sure,
               curve->k);
        break;
    case WO_PROOF_ALL_EQUAL: print_all_equal(curve, indent); break;
    default:
        if (!met && curve->rows) printf("%snothing was shown to reach that: this is the best that was found\n", indent);
        break;
    }
    print_needed(curve, indent);
}

/* Behind the figures where there is room, else below them. */
static void print_settings(const char *text, const char *why, const char *indent)
{
    const int columns = cli_columns(INT_MAX), beside = (int)strlen(indent) + FIGURES + 2;
    char line[2 * TEXT];
    snprintf(line, sizeof line, "%s%s", text, why);
    if (beside + (int)strlen(line) <= columns) {
        printf("  %s\n", line);
        return;
    }
    int used = columns;
    for (char *rest = line, *word; (word = strsep(&rest, " "));) {
        const int bytes = (int)strlen(word);
        if (!bytes) continue;
        used += used + bytes + 1 > columns ? printf("\n%s    %s", indent, word) - 1 - used : printf(" %s", word);
    }
    printf("\n");
}

void cli_curve_print(const wo_curve *curve, const char *indent)
{
    char text[TEXT];
    printf("%stuned ", indent);
    if (curve->target_us > 0)
        printf("to the best within %.3g us a query", curve->target_us);
    else if (curve->target_agree > 0)
        printf("to %g of FULL's own %" PRIu32 " best", curve->target_agree, curve->k);
    else
        printf("to %g of FULL's P@1 and %g of its P@5", curve->target, curve->target5);
    printf(", on %s, batch %s\n", cli_count(curve->n, "query"), cli_number(curve->batch));
    if (curve->changed)
        printf("%s%s added, replaced or removed since: these figures are of before\n", indent,
               cli_count(curve->changed, "class"));
    print_no_hits(curve, indent);
    print_proof(curve, indent);
    if (curve->built_from)
        printf("%sthere was no time to build from all of the log: built from %s of it\n", indent,
               cli_count(curve->built_from, "query"));
    printf("%s%s tried; FULL, and the best for their time:\n", indent, cli_number(curve->rows));
    const bool narrow = cli_columns(INT_MAX) < (int)strlen(indent) + FIGURES;
    printf("%s%8s%*s%8s%*s", indent, "P@1", narrow ? 0 : 8, narrow ? "" : "of FULL", "P@5", narrow ? 0 : 8,
           narrow ? "" : "of FULL");
    printf(narrow ? "%10s%10s%8s\n" : "   agree%10s%10s%8s\n", "classes", "us/query", "x FULL");
    size_t n = 0;
    timed *rows = in_order(curve, &n);
    const size_t full = full_row(curve);
    for (size_t i = n; rows && i-- > 0;) {
        const size_t row = rows[i].row;
        const bool is_full = value(curve, row, "method") == WO_METHOD_FULL;
        if (row != curve->chosen && !is_full && !rows[i].best) continue;
        printf("%s", indent);
        print_figure(value(curve, row, "p_at_1"), of_full(curve, full, "p_at_1"), narrow);
        print_figure(value(curve, row, "p_at_5"), of_full(curve, full, "p_at_5"), narrow);
        if (!narrow) printf("%8.4f", value(curve, row, "agreement"));
        const double times = of_full(curve, full, "us") / rows[i].us;
        printf(" %9.1f%10.3g", value(curve, row, "classes"), rows[i].us);
        printf(times < 1000 ? "%8.3g" : "%8.0f", times);
        /* Its classes are those that it scores exactly. */
        const char *const after = value(curve, row, "method") == WO_METHOD_SCREEN ? " of all, in int8" : "";
        const size_t length = wo_curve_text(curve, row, text, sizeof text);
        if (length < sizeof text) snprintf(text + length, sizeof text - length, "%s", after);
        print_settings(text, is_full && row != curve->chosen ? "" : why_not(curve, row, full), indent);
    }
    free(rows);
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *row_json(const wo_curve *curve, size_t row, size_t full)
{
    char text[TEXT];
    wo_curve_text(curve, row, text, sizeof text);
    json_t *json = json_pack("{s:s, s:b}", "settings", text, "met", value(curve, row, "met") == 1);
    static const char *const figures[] = {"p_at_1",         "p_at_5",       "agreement", "sure_p_at_1", "sure_p_at_5",
                                          "sure_agreement", "error_p_at_1", "classes",   "us"};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        json_object_set_new(json, figures[i], number(value(curve, row, figures[i])));
    json_object_set_new(json, "share_p_at_1", number(value(curve, row, "p_at_1") / of_full(curve, full, "p_at_1")));
    json_object_set_new(json, "share_p_at_5", number(value(curve, row, "p_at_5") / of_full(curve, full, "p_at_5")));
    json_object_set_new(json, "speedup", number(of_full(curve, full, "us") / value(curve, row, "us")));
    return json;
}

static json_t *goal_number(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static const char *proof_word(wo_proof proof)
{
    static const char *const words[] = {"none", "hits", "agreement", "all-equal", "held-out"};
    return proof <= WO_PROOF_HELD_OUT ? words[proof] : "none";
}

bool cli_curve_met(const wo_curve *curve)
{
    return curve->chosen < curve->rows && value(curve, curve->chosen, "met") == 1;
}

json_t *cli_curve_json(const wo_curve *curve)
{
    json_t *rows = json_array();
    const size_t full = full_row(curve);
    for (size_t i = 0; i < curve->rows; i++) json_array_append_new(rows, row_json(curve, i, full));
    const bool chosen = curve->chosen < curve->rows;
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:b, s:s, s:s?, s:I, s:I, s:I, s:I, s:o, s:o}", "target",
                     goal_number(curve->target), "target5", goal_number(curve->target5), "target_agree",
                     goal_number(curve->target_agree), "target_us", goal_number(curve->target_us), "measure",
                     by_hits(curve) ? "hits" : "agreement", "k", (json_int_t)curve->k, "batch",
                     (json_int_t)curve->batch, "queries", (json_int_t)curve->n, "met", cli_curve_met(curve), "proof",
                     proof_word(curve->proof), "provable", curve->provable ? proof_word(curve->provable) : NULL,
                     "labelled", (json_int_t)curve->labelled, "held_out", (json_int_t)curve->held_out, "needed",
                     (json_int_t)curve->needed, "changed", (json_int_t)curve->changed, "chosen",
                     chosen ? row_json(curve, curve->chosen, full) : json_null(), "curve", rows);
}

void cli_curve_csv(const wo_curve *curve)
{
    char text[TEXT];
    printf("settings");
    for (size_t c = 0; c < curve->columns; c++) printf(",%s", curve->names[c]);
    printf("\n");
    for (size_t row = 0; row < curve->rows; row++) {
        wo_curve_text(curve, row, text, sizeof text);
        printf("%s", text);
        for (size_t c = 0; c < curve->columns; c++) {
            const double x = curve->values[row * curve->columns + c];
            putchar(',');
            if (isfinite(x)) printf("%.9g", x);
        }
        printf("\n");
    }
}
