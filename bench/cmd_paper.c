/* The paper's exhibits that a result file holds already: table 1, table 3, figure 2, the rank of labels. */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double WITHIN = 0.99; /* of FULL's P@1: table 1 shows the cheapest that reach it */

typedef struct arguments {
    cli_common common;
    const char *results;
    double within;
    bool all;
} arguments;

#define RESULTS_OPTION                                                                 \
    {                                                                                  \
        "results", 0, CLI_TEXT, offsetof(arguments, results), "DIR",                   \
            "where 'wideout-bench run' left NAME.json (default: bench/results)", false \
    }
static const cli_option table1_options[] = {
    RESULTS_OPTION,
    {"all", 0, CLI_FLAG, offsetof(arguments, all), NULL, "every row, not one for each method", false},
    {"within", 0, CLI_REAL, offsetof(arguments, within), "0-1", "share of FULL's P@1 to reach (default: 0.99)", false},
    {0},
};
static const cli_option plain_options[] = {RESULTS_OPTION, {0}};

/* The result of a workload, by its name or by the path of its file. */
static int open_result(const cli_command *self, const arguments *args, int n, char **rest, json_t **result)
{
    char path[4096];
    wo_error err;
    if (n != 1) return cli_usage(self, "expected one workload, found %d", n);
    const size_t length = strlen(rest[0]);
    const bool is_path = strchr(rest[0], '/') || (length > 5 && strcmp(rest[0] + length - 5, ".json") == 0);
    if (is_path)
        snprintf(path, sizeof path, "%s", rest[0]);
    else
        snprintf(path, sizeof path, "%s/%s.json", args->results ? args->results : bench_results_folder, rest[0]);
    return bench_result_read(path, result, &err) ? cli_fail(path, &err) : CLI_OK;
}

static void print_number(double value, int width, int decimals)
{
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, decimals, value);
}

static void print_title(const json_t *result)
{
    cli_print_text(stdout, bench_text(result, "title"));
    printf(": m %.0f, d %.0f, n %.0f; commit ", bench_number(result, "m"), bench_number(result, "d"),
           bench_number(result, "n"));
    cli_print_text(stdout, bench_text(result, "commit"));
    printf(", ");
    cli_print_text(stdout, bench_text(json_object_get(result, "machine"), "cpu"));
    printf(", %.0f threads\n", bench_number(result, "threads"));
}

/* At the largest batch with all threads, which is the last that was timed. */
static const json_t *last_timing(const json_t *row)
{
    const json_t *timings = json_object_get(row, "timings");
    return json_array_get(timings, json_array_size(timings) - 1);
}

static double cost(const json_t *row)
{
    const double us = bench_number(last_timing(row), "us");
    return isnan(us) ? bench_number(row, "sample_size") : us;
}

/* Rows of one method, and of one loss, are told apart by their dials alone. */
static bool same_series(const json_t *a, const json_t *b)
{
    return strcmp(bench_text(a, "method"), bench_text(b, "method")) == 0 &&
           strcmp(bench_text(json_object_get(a, "options"), "loss"),
                  bench_text(json_object_get(b, "options"), "loss")) == 0;
}

/* The cheapest row of a series that reaches the goal; without one, that with the highest P@1. */
static bool is_picked(json_t *rows, const json_t *row, double goal)
{
    size_t i;
    json_t *other;
    const bool reaches = bench_number(row, "p_at_1") >= goal;
    json_array_foreach(rows, i, other)
    {
        if (other == row || !same_series(row, other)) continue;
        const bool other_reaches = bench_number(other, "p_at_1") >= goal;
        if (other_reaches != reaches) {
            if (other_reaches) return false;
        } else if (reaches ? cost(other) < cost(row) : bench_number(other, "p_at_1") > bench_number(row, "p_at_1")) {
            return false;
        }
    }
    return true;
}

/* ---- Table 1 and table 3 ----------------------------------------------------------------------------------- */

static json_t *table_row(const json_t *row, const json_t *full)
{
    const json_t *timing = last_timing(row);
    return json_pack("{s:O, s:O, s:O, s:O, s:o, s:o, s:o, s:o, s:o}", "label", json_object_get(row, "label"), "p_at_1",
                     json_object_get(row, "p_at_1"), "p_at_5", json_object_get(row, "p_at_5"), "sample_size",
                     json_object_get(row, "sample_size"), "s_per_1000", bench_real(bench_number(timing, "us") / 1000),
                     "energy_j_per_1000", bench_real(bench_number(row, "energy_j_per_1000")), "time_ratio",
                     bench_real(bench_number(timing, "speedup")), "energy_ratio",
                     bench_real(bench_number(full, "energy_j_per_1000") / bench_number(row, "energy_j_per_1000")),
                     "p_at_1_ratio", bench_real(bench_number(row, "p_at_1") / bench_number(full, "p_at_1")));
}

static int print_table(const arguments *args, const json_t *result, json_t *table)
{
    if (args->common.json)
        return cli_print_json(json_pack("{s:O, s:O, s:o}", "workload", json_object_get(result, "workload"), "full",
                                        json_object_get(result, "full"), "rows", table));
    size_t i;
    json_t *row;
    print_title(result);
    printf("%-44s %8s %8s %7s %10s %12s %12s %8s %8s\n", "method", "P@1", "P@5", "of FULL", "classes", "s per 1,000",
           "J per 1,000", "time", "energy");
    json_array_foreach(table, i, row)
    {
        printf("%-44s", bench_text(row, "label"));
        print_number(bench_number(row, "p_at_1"), 8, 4);
        print_number(bench_number(row, "p_at_5"), 8, 4);
        print_number(100 * bench_number(row, "p_at_1_ratio"), 6, 1);
        printf("%%");
        print_number(bench_number(row, "sample_size"), 10, 1);
        print_number(bench_number(row, "s_per_1000"), 12, 6);
        print_number(bench_number(row, "energy_j_per_1000"), 12, 4);
        print_number(bench_number(row, "time_ratio"), 7, 1);
        printf("x");
        print_number(bench_number(row, "energy_ratio"), 7, 1);
        printf("x\n");
    }
    if (json_array_size(table) == 0) printf("(none)\n");
    json_decref(table);
    printf("Time at batch 1024 with all threads; time and energy are FULL's divided by the method's.\n");
    return cli_end();
}

static int run_table1(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    json_t *result = NULL, *row;
    int code = open_result(self, args, n, rest, &result);
    if (code) return code;
    const json_t *full = json_object_get(result, "full");
    const double goal = (isnan(args->within) ? WITHIN : args->within) * bench_number(full, "p_at_1");
    json_t *rows = json_object_get(result, "rows"), *table = json_array();
    size_t i;
    json_array_foreach(rows, i, row) if (args->all || is_picked(rows, row, goal))
        json_array_append_new(table, table_row(row, full));
    code = print_table(args, result, table);
    json_decref(result);
    return code;
}

static int run_table3(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    json_t *result = NULL, *row;
    int code = open_result(self, args, n, rest, &result);
    if (code) return code;
    const json_t *full = json_object_get(result, "full");
    json_t *table = json_array();
    size_t i;
    json_array_foreach(json_object_get(result, "rows"), i, row)
    {
        const bool exact = strcmp(bench_text(row, "family"), "exact") == 0;
        if (!exact && bench_number(row, "p_at_1") >= bench_number(full, "p_at_1"))
            json_array_append_new(table, table_row(row, full));
    }
    if (!args->common.json)
        printf("Configurations that match or pass FULL: P@1 %.4f, P@5 %.4f\n", bench_number(full, "p_at_1"),
               bench_number(full, "p_at_5"));
    code = print_table(args, result, table);
    json_decref(result);
    return code;
}

/* ---- Figure 2 ---------------------------------------------------------------------------------------------- */

static int run_figure2(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    json_t *result = NULL, *trace, *values, *value;
    int code = open_result(self, args, n, rest, &result);
    if (code) return code;
    json_t *traces = json_object_get(result, "traces");
    size_t i, r, c;
    if (args->common.json) {
        code =
            cli_print_json(json_pack("{s:O, s:O}", "workload", json_object_get(result, "workload"), "traces", traces));
        json_decref(result);
        return code;
    }
    json_array_foreach(traces, i, trace)
    {
        const json_t *columns = json_object_get(trace, "columns");
        if (i == 0) { /* all traces have the same */
            printf("configuration");
            json_array_foreach(columns, c, value) printf(",%s", json_string_value(value));
            printf("\n");
        }
        json_array_foreach(json_object_get(trace, "values"), r, values)
        {
            printf("%s", bench_text(trace, "label"));
            json_array_foreach(values, c, value)
            {
                if (json_is_number(value))
                    printf(",%.9g", json_number_value(value));
                else
                    printf(",");
            }
            printf("\n");
        }
    }
    json_decref(result);
    return cli_end();
}

/* ---- Ranks ------------------------------------------------------------------------------------------------- */

static int run_rank(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    json_t *result = NULL, *row, *list = json_array();
    int code = open_result(self, args, n, rest, &result);
    size_t i;
    if (code) goto done;
    const double all = bench_number(json_object_get(result, "full"), "label_rank");
    json_array_foreach(json_object_get(result, "rows"), i, row)
    {
        if (strcmp(bench_text(row, "family"), "exact") == 0) continue;
        json_array_append_new(list,
                              json_pack("{s:O, s:o, s:o, s:o}", "label", json_object_get(row, "label"),
                                        "label_rank_retrieved", bench_real(bench_number(row, "label_rank_retrieved")),
                                        "label_recall", bench_real(bench_number(row, "label_recall")), "sample_size",
                                        bench_real(bench_number(row, "sample_size"))));
    }
    if (args->common.json) {
        code = cli_print_json(json_pack("{s:O, s:o, s:O}", "workload", json_object_get(result, "workload"),
                                        "label_rank", bench_real(all), "rows", list));
        goto done;
    }
    print_title(result);
    printf("Mean rank of the labels among all classes, by FULL's logits: %.2f\n", all);
    printf("%-44s %12s %12s %10s\n", "method", "mean rank", "retrieved", "classes");
    json_array_foreach(list, i, row)
    {
        printf("%-44s", bench_text(row, "label"));
        print_number(bench_number(row, "label_rank_retrieved"), 12, 2);
        print_number(bench_number(row, "label_recall"), 12, 4);
        print_number(bench_number(row, "sample_size"), 10, 1);
        printf("\n");
    }
    printf("Mean rank: of the labels that were retrieved, among what was retrieved; the share of them is beside it.\n");
    code = cli_end();
done:
    json_decref(result);
    json_decref(list);
    return code;
}

/* ---- The commands ------------------------------------------------------------------------------------------ */

const cli_command bench_cmd_table1 = {
    "table1",
    "WORKLOAD [options]",
    "the paper's table 1: quality, classes, time and energy beside FULL",
    "One row for each method: the cheapest configuration that reaches 99% of FULL's P@1 or, where none\n"
    "does, the one with the highest P@1. WORKLOAD is the name of a workload that was run, or the path of\n"
    "a result file.\n"
    "\n"
    "  wideout-bench table1 debian\n"
    "  wideout-bench table1 debian --all --json",
    table1_options,
    sizeof(arguments),
    run_table1,
};

const cli_command bench_cmd_table3 = {
    "table3",
    "WORKLOAD [options]",
    "the paper's table 3: configurations that match or pass FULL's P@1",
    "Every configuration of a result whose P@1 is at least FULL's on the test queries.\n"
    "\n"
    "  wideout-bench table3 debian",
    plain_options,
    sizeof(arguments),
    run_table3,
};

const cli_command bench_cmd_figure2 = {
    "figure2",
    "WORKLOAD [options]",
    "the paper's figure 2: collision probabilities while lss learns, as CSV",
    "One line for each point of each trace: the configuration, the step, how often queries collide with\n"
    "their labels and with other classes, and what else was traced.\n"
    "\n"
    "  wideout-bench figure2 debian > figure2.csv",
    plain_options,
    sizeof(arguments),
    run_figure2,
};

const cli_command bench_cmd_rank = {
    "rank",
    "WORKLOAD [options]",
    "the mean rank of labels, among all classes and among what is retrieved",
    "The paper's rank statistic: where labels stand among all logits, and where those that a method\n"
    "retrieves stand among what it retrieved.\n"
    "\n"
    "  wideout-bench rank debian",
    plain_options,
    sizeof(arguments),
    run_rank,
};
