/* The curve of a tuned index: quality against time. */
#include "curve_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

enum { TEXT = 192 };

static double value(const wo_curve *curve, size_t row, const char *name)
{
    for (size_t c = 0; c < curve->columns; c++)
        if (strcmp(curve->names[c], name) == 0) return curve->values[row * curve->columns + c];
    return NAN;
}

/* What the goal was about. */
static const char *quality(const wo_curve *curve)
{
    return curve->target_agree > 0 || isnan(value(curve, 0, "p_at_1")) ? "agreement" : "p_at_1";
}

/* The slowest row that is faster than `us` (and before `row`, among equals), or rows. */
static size_t next_faster(const wo_curve *curve, double us, size_t row)
{
    size_t found = curve->rows;
    double best = -1;
    for (size_t i = 0; i < curve->rows; i++) {
        const double own = value(curve, i, "us");
        if ((own < us || (own == us && i < row)) && own >= best) {
            found = i;
            best = own;
        }
    }
    return found;
}

/* Nothing that is as fast is better. */
static bool is_best_for_its_time(const wo_curve *curve, size_t row)
{
    const double us = value(curve, row, "us"), own = value(curve, row, quality(curve));
    for (size_t i = 0; i < curve->rows; i++)
        if (i != row && value(curve, i, "us") <= us && value(curve, i, quality(curve)) >= own) return false;
    return true;
}

static void print_figure(double x)
{
    if (isnan(x))
        printf("%8s", "-");
    else
        printf("%8.4f", x);
}

/* What FULL has, by which shares are counted; NAN where it was not tried. */
static double of_full(const wo_curve *curve, const char *name)
{
    for (size_t i = 0; i < curve->rows; i++)
        if (value(curve, i, "method") == WO_METHOD_FULL) return value(curve, i, name);
    return NAN;
}

/* Why a row is not an answer. */
static const char *why_not(const wo_curve *curve, size_t row)
{
    if (row == curve->chosen) return "  <- this index";
    if (value(curve, row, "met") == 1) return "";
    if (curve->target_us > 0) return "  (too slow)";
    const double one = value(curve, row, "p_at_1") / of_full(curve, "p_at_1"),
                 five = value(curve, row, "p_at_5") / of_full(curve, "p_at_5");
    if (curve->target_agree > 0)
        return value(curve, row, "agreement") < curve->target_agree ? "  (too low)" : "  (not for sure)";
    if (one < curve->target) return "  (P@1 too low)";
    if (five < curve->target5) return "  (P@5 too low)";
    return "  (not for sure)";
}

/* Of a screen: the queries were too few to show more. */
static void print_all_equal(const wo_curve *curve, const char *indent)
{
    printf("%s%s %s too few to show that; it scores every class, and hardly ever answers otherwise than FULL\n", indent,
           cli_number(curve->n), curve->n == 1 ? "query is" : "queries are");
}

/* What was shown, and by what. */
static void print_proof(const wo_curve *curve, const char *indent)
{
    const double sure = curve->chosen < curve->rows ? value(curve, curve->chosen, "sure_agreement") : NAN;
    const bool full = curve->chosen < curve->rows && value(curve, curve->chosen, "method") == WO_METHOD_FULL;
    const bool met = curve->chosen < curve->rows && value(curve, curve->chosen, "met") == 1;
    if (full) {
        printf("%snothing else was shown to reach that, or was faster: this is FULL itself\n", indent);
        return;
    }
    if (curve->target_us > 0) return;
    switch (curve->proof) {
    case WO_PROOF_HITS:
        printf("%sshown by the hits on %s\n", indent, cli_count(curve->labelled, "labelled query"));
        break;
    case WO_PROOF_AGREEMENT:
        if (curve->target_agree > 0) {
            printf("%sshown by the answers themselves%s\n", indent,
                   curve->labelled ? "" : "; there were no labels to judge hits by");
        } else {
            printf("%shits on %s are too few to show it: shown by FULL's own answers, there and on\n", indent,
                   cli_count(curve->labelled, "labelled query"));
            printf("%squeries of the log that were held out; it has %.1f%% of its %" PRIu32 " best for sure\n", indent,
                   100 * sure, curve->k);
        }
        break;
    case WO_PROOF_ALL_EQUAL: print_all_equal(curve, indent); break;
    default:
        if (!met && curve->rows) printf("%snothing was shown to reach that: this is the best that was found\n", indent);
        break;
    }
    if (curve->needed > curve->labelled)
        printf("%sabout %s would show it by hits\n", indent, cli_count(curve->needed, "labelled query"));
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
    print_proof(curve, indent);
    if (curve->built_from)
        printf("%sthere was no time to build from all of the log: built from %s of it\n", indent,
               cli_count(curve->built_from, "query"));
    printf("%s%s tried; FULL, and the best for their time:\n", indent, cli_number(curve->rows));
    printf("%s    P@1     P@5   agree   classes  us/query\n", indent);
    size_t row = curve->rows;
    for (double us = INFINITY; (row = next_faster(curve, us, row)) < curve->rows;) {
        us = value(curve, row, "us");
        const bool full = value(curve, row, "method") == WO_METHOD_FULL;
        if (row != curve->chosen && !full && !is_best_for_its_time(curve, row)) continue;
        wo_curve_text(curve, row, text, sizeof text);
        printf("%s", indent);
        print_figure(value(curve, row, "p_at_1"));
        print_figure(value(curve, row, "p_at_5"));
        print_figure(value(curve, row, "agreement"));
        printf("%10.1f%10.3g  %s%s\n", value(curve, row, "classes"), us, text, full ? "" : why_not(curve, row));
    }
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *row_json(const wo_curve *curve, size_t row)
{
    char text[TEXT];
    wo_curve_text(curve, row, text, sizeof text);
    json_t *json = json_pack("{s:s, s:b}", "settings", text, "met", value(curve, row, "met") == 1);
    static const char *const figures[] = {"p_at_1",      "p_at_5",         "agreement", "sure_p_at_1",
                                          "sure_p_at_5", "sure_agreement", "classes",   "us"};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        json_object_set_new(json, figures[i], number(value(curve, row, figures[i])));
    return json;
}

static json_t *goal_number(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static const char *proof_word(wo_proof proof)
{
    static const char *const words[] = {"none", "hits", "agreement", "all-equal"};
    return proof <= WO_PROOF_ALL_EQUAL ? words[proof] : "none";
}

json_t *cli_curve_json(const wo_curve *curve)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < curve->rows; i++) json_array_append_new(rows, row_json(curve, i));
    const bool chosen = curve->chosen < curve->rows;
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:b, s:s, s:I, s:I, s:o, s:o}", "target",
                     goal_number(curve->target), "target5", goal_number(curve->target5), "target_agree",
                     goal_number(curve->target_agree), "target_us", goal_number(curve->target_us), "k",
                     (json_int_t)curve->k, "batch", (json_int_t)curve->batch, "queries", (json_int_t)curve->n, "met",
                     chosen && value(curve, curve->chosen, "met") == 1, "proof", proof_word(curve->proof), "labelled",
                     (json_int_t)curve->labelled, "needed", (json_int_t)curve->needed, "chosen",
                     chosen ? row_json(curve, curve->chosen) : json_null(), "curve", rows);
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
