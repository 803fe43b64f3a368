/* wideout-bench compare: what got slower or worse between two results. */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A time counts as slower when it grew by more than 10%, by more than 10% beside FULL too (which was timed in turn with
 * it, so that a slower machine does not count), and when the middle halves of the calls do not overlap. */
static const double SLOWER = 1.10, WORSE = 0.998;

static const cli_option options[] = {{0}};

static const json_t *find_timing(const json_t *row, const json_t *like)
{
    size_t i;
    json_t *timing;
    json_array_foreach(json_object_get(row, "timings"), i,
                       timing) if (bench_number(timing, "batch") == bench_number(like, "batch") &&
                                   bench_number(timing, "threads") == bench_number(like, "threads")) return timing;
    return NULL;
}

/* Comparisons with NAN are false: what was not measured did not get worse. */
static bool slower(const json_t *old, const json_t *new)
{
    const double old_q3 = bench_number(old, "us_q3"), new_q1 = bench_number(new, "us_q1");
    return bench_number(new, "us") > SLOWER * bench_number(old, "us") &&
           bench_number(new, "us") / bench_number(new, "full_us") >
               SLOWER * bench_number(old, "us") / bench_number(old, "full_us") &&
           !(new_q1 <= old_q3);
}

static json_t *flag(const char *label, const char *what, double old, double new, const json_t *timing)
{
    json_t *json = json_pack("{s:s, s:s, s:f, s:f}", "label", label, "what", what, "old", old, "new", new);
    if (!timing) return json;
    json_object_set(json, "batch", json_object_get(timing, "batch"));
    json_object_set(json, "threads", json_object_get(timing, "threads"));
    return json;
}

static void compare_rows(const json_t *old, const json_t *new, json_t *flags)
{
    size_t i;
    json_t *timing;
    const char *label = bench_text(new, "label");
    const double before = bench_number(old, "p_at_1"), after = bench_number(new, "p_at_1");
    if (after < WORSE * before) json_array_append_new(flags, flag(label, "p_at_1", before, after, NULL));
    json_array_foreach(json_object_get(new, "timings"), i, timing)
    {
        const json_t *earlier = find_timing(old, timing);
        if (earlier && slower(earlier, timing))
            json_array_append_new(flags,
                                  flag(label, "us", bench_number(earlier, "us"), bench_number(timing, "us"), timing));
    }
}

static int print_flags(const json_t *flags, size_t compared, size_t only_old, size_t only_new)
{
    size_t i;
    json_t *flag;
    json_array_foreach(flags, i, flag)
    {
        const double old = bench_number(flag, "old"), new = bench_number(flag, "new");
        if (strcmp(bench_text(flag, "what"), "us") == 0)
            printf("slower  %s, batch %.0f, %.0f threads: %.3g -> %.3g us (%+.0f%%)\n", bench_text(flag, "label"),
                   bench_number(flag, "batch"), bench_number(flag, "threads"), old, new, 100 * (new / old - 1));
        else
            printf("worse   %s: P@1 %.4f -> %.4f (%+.2f%%)\n", bench_text(flag, "label"), old, new,
                   100 * (new / old - 1));
    }
    printf("%zu rows compared, %zu slower or worse", compared, json_array_size(flags));
    if (only_old || only_new) printf("; %zu rows in the old file alone, %zu in the new", only_old, only_new);
    printf("\n");
    return cli_end();
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const cli_common *common = given;
    json_t *results[2] = {NULL, NULL}, *flags = json_array(), *row;
    wo_error err;
    int code = CLI_OK;
    if (n != 2) code = cli_usage(self, "expected two result files, found %d", n);
    for (int i = 0; !code && i < 2; i++)
        if (bench_result_read(rest[i], &results[i], &err)) code = cli_fail(rest[i], &err);
    if (!code && strcmp(bench_text(results[0], "workload"), bench_text(results[1], "workload")) != 0) {
        cli_set_error(&err, WO_ERR_ARGUMENT, "is of workload '%.60s', the other of '%.60s'",
                      bench_text(results[1], "workload"), bench_text(results[0], "workload"));
        code = cli_fail(rest[1], &err);
    }
    if (code) goto done;
    json_t *old_rows = json_object_get(results[0], "rows"), *new_rows = json_object_get(results[1], "rows");
    size_t i, compared = 0;
    json_array_foreach(new_rows, i, row)
    {
        const json_t *old = bench_row_find(old_rows, bench_text(row, "label"));
        if (!old) continue;
        compared++;
        compare_rows(old, row, flags);
    }
    const bool bad = json_array_size(flags) > 0;
    const size_t only_old = json_array_size(old_rows) - compared, only_new = json_array_size(new_rows) - compared;
    code = common->json
               ? cli_print_json(json_pack("{s:I, s:O, s:I, s:I}", "compared", (json_int_t)compared, "flags", flags,
                                          "only_old", (json_int_t)only_old, "only_new", (json_int_t)only_new))
               : print_flags(flags, compared, only_old, only_new);
    if (!code && bad) code = CLI_FAILED;
done:
    json_decref(results[0]);
    json_decref(results[1]);
    json_decref(flags);
    return code;
}

const cli_command bench_cmd_compare = {
    "compare",
    "OLD NEW [options]",
    "flag what got slower or worse between two results of a workload",
    "Rows are matched by their labels. Slower: more than 10%, both in microseconds and beside FULL, which\n"
    "was timed in turn with it, and with no overlap between the middle halves of the calls. Worse: P@1\n"
    "lower by more than 0.2%. Exit code 1 where anything is flagged.\n"
    "\n"
    "  wideout-bench compare before/debian.json after/debian.json",
    options,
    sizeof(cli_common),
    run,
};
