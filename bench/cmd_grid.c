/* The paper's exhibits that need runs of their own, for quality alone: table 2 and the comparison with SLIDE. */
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_common common;
    const char *output, *tables;
    int loss;
    bool last_step;
    uint64_t queries, iterations, max_neurons, seeds;
} arguments;

#define GRID_OPTIONS                                                                                                    \
    {"output", 'o', CLI_TEXT, offsetof(arguments, output), "DIR", "where its result goes (default: bench/results)",     \
     false},                                                                                                            \
        {"loss", 0, CLI_CHOICE, offsetof(arguments, loss), "paper|margin", "what lss minimises (default: paper)",       \
         false},                                                                                                        \
        {"queries", 0, CLI_SIZE, offsetof(arguments, queries), "N", "test queries to judge, instead of the workload's", \
         false},                                                                                                        \
        {"iterations", 0,                                                                                               \
         CLI_SIZE,     offsetof(arguments, iterations),                                                                 \
         "N",          "steps of learning (default: lss's own, 1500)",                                                  \
         false},                                                                                                        \
        {"max-neurons", 0,                                                                                              \
         CLI_SIZE,      offsetof(arguments, max_neurons),                                                               \
         "N",           "lss keeps its best step with at most so many a query",                                         \
         false},                                                                                                        \
    {                                                                                                                   \
        "last-step", 0, CLI_FLAG, offsetof(arguments, last_step), NULL, "lss keeps its last step, as the paper does",   \
            false                                                                                                       \
    }

static const cli_option options[] = {GRID_OPTIONS, {0}};
static const cli_option table2_options[] = {
    GRID_OPTIONS,
    {"seeds", 0, CLI_SIZE, offsetof(arguments, seeds), "N", "seeds 1 to N, up to 9 (default: 1)", false},
    {"tables", 0, CLI_TEXT, offsetof(arguments, tables), "LIST", "values of L (default: 1,10,50)", false},
    {0},
};
static const char *const losses[] = {"paper", "margin"};

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, bytes - used, format, list);
    va_end(list);
}

/* What was asked for, as settings of a sweep. */
static void add_settings(const arguments *args, char *text, size_t bytes)
{
    if (args->seeds > 1) append(text, bytes, " seed=1");
    for (uint64_t seed = 2; seed <= args->seeds; seed++) append(text, bytes, ",%" PRIu64, seed);
    if (args->iterations) append(text, bytes, " iterations=%" PRIu64, args->iterations);
    if (args->max_neurons) append(text, bytes, " max_neurons=%" PRIu64, args->max_neurons);
    if (args->last_step) append(text, bytes, " last_step=1");
}

/* The same in the name of the result, which one of other settings must not replace, and in the command that it has. */
static void add_arguments(const arguments *args, char *path, size_t path_bytes, char *command, size_t command_bytes)
{
    if (args->iterations) append(command, command_bytes, " --iterations %" PRIu64, args->iterations);
    if (args->queries) append(command, command_bytes, " --queries %" PRIu64, args->queries);
    if (args->tables) append(command, command_bytes, " --tables %s", args->tables);
    if (args->seeds > 1) {
        append(path, path_bytes, "-seeds%" PRIu64, args->seeds);
        append(command, command_bytes, " --seeds %" PRIu64, args->seeds);
    }
    if (args->max_neurons) {
        append(path, path_bytes, "-max%" PRIu64, args->max_neurons);
        append(command, command_bytes, " --max-neurons %" PRIu64, args->max_neurons);
    }
    if (args->last_step) {
        append(path, path_bytes, "-last");
        append(command, command_bytes, " --last-step");
    }
    append(path, path_bytes, ".json");
}

/* Runs sweeps, of which NULL is the last, on a workload, lss with the loss and what else was asked for, into
 * DIR/NAME-EXHIBIT-LOSS.json, and reads that. */
static int run_grid(const cli_command *self, const arguments *args, int n, char **rest, const char *const *sweeps,
                    json_t **result)
{
    const char *folder = args->output ? args->output : bench_results_folder;
    const char *loss = losses[args->loss ? args->loss - 1 : 0];
    char path[4096], text[256], command[256];
    bench_workload workload = {0};
    bench_data data = {0};
    bench_configs configs = {0};
    wo_error err;
    int code = CLI_OK;
    if (n != 1) return cli_usage(self, "expected one workload, found %d", n);
    if (bench_workload_read(rest[0], &workload, &err)) return cli_fail(rest[0], &err);
    if (args->queries) workload.queries[0] = args->queries;
    snprintf(path, sizeof path, "%s/%s-%s-%s", folder, workload.name, self->name, loss);
    snprintf(command, sizeof command, "wideout-bench %s %s --loss %s", self->name, workload.name, loss);
    add_arguments(args, path, sizeof path, command, sizeof command);
    if ((code = bench_try_output(folder, path))) goto done;
    wo_progress progress = cli_progress(&args->common);
    wo_status status = bench_data_open(&workload, false, &progress, &data, &err);
    cli_progress_end();
    for (size_t i = 0; !status && sweeps[i]; i++) {
        const bool learned = strncmp(sweeps[i], "lss ", 4) == 0;
        if (learned)
            snprintf(text, sizeof text, "lss loss=%s %s", loss, sweeps[i] + 4);
        else
            snprintf(text, sizeof text, "%s", sweeps[i]);
        if (learned) add_settings(args, text, sizeof text);
        status = bench_sweep_expand(text, &configs, &err);
    }
    if (status) {
        code = cli_fail(workload.name, &err);
        goto done;
    }
    const bench_run run = {&args->common, command, false, 0};
    code = bench_run_configs(&run, &workload, &data, &configs, path);
    if (!code && bench_result_read(path, result, &err)) code = cli_fail(path, &err);
done:
    bench_workload_free(&workload);
    bench_data_close(&data);
    bench_configs_free(&configs);
    return code;
}

static double option(const json_t *row, const char *name)
{
    return bench_number(json_object_get(row, "options"), name);
}

/* ---- Table 2 ----------------------------------------------------------------------------------------------- */

static int run_table2(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    json_t *result = NULL, *row;
    size_t i;
    char sweep[128];
    if (args->seeds > 9) return cli_usage(self, "--seeds takes 1 to 9, not %" PRIu64, args->seeds);
    const char *tables = args->tables ? args->tables : "1,10,50";
    if (!*tables || strspn(tables, "0123456789,") != strlen(tables) || strlen(tables) > 64)
        return cli_usage(self, "--tables takes numbers with commas between, not '%s'", tables);
    snprintf(sweep, sizeof sweep, "lss K=4,6,8 L=%s", tables);
    const char *const sweeps[] = {sweep, NULL};
    int code = run_grid(self, args, n, rest, sweeps, &result);
    if (code) return code;
    if (args->common.json) return cli_print_json(result);
    const json_t *full = json_object_get(result, "full");
    cli_print_text(stdout, bench_text(result, "title"));
    printf(": lss, %s loss; FULL: P@1 %.4f, P@5 %.4f, %.0f classes\n", losses[args->loss ? args->loss - 1 : 0],
           bench_number(full, "p_at_1"), bench_number(full, "p_at_5"), bench_number(result, "m"));
    if (args->seeds > 1) printf("%4s ", "seed");
    printf("%4s %4s %8s %8s %10s %12s\n", "K", "L", "P@1", "P@5", "classes", "left empty");
    json_array_foreach(json_object_get(result, "rows"), i, row)
    {
        if (args->seeds > 1) printf("%4.0f ", option(row, "seed"));
        printf("%4.0f %4.0f ", option(row, "K"), option(row, "L"));
        if (bench_number(row, "empty_share") >= 1)
            printf("%8s %8s %10.1f %11.2f%%\n", "NA", "NA", 0.0, 100.0);
        else
            printf("%8.4f %8.4f %10.1f %11.2f%%\n", bench_number(row, "p_at_1"), bench_number(row, "p_at_5"),
                   bench_number(row, "sample_size"), 100 * bench_number(row, "empty_share"));
    }
    json_decref(result);
    return cli_end();
}

/* ---- SLIDE ------------------------------------------------------------------------------------------------- */

enum { N_SIZES = 4, N_SEEDS = 3 };
static const double sizes[N_SIZES][2] = {{4, 1}, {6, 1}, {8, 10}, {4, 10}}; /* K, L */

/* Over the seeds. */
typedef struct summary {
    double p_at_1, p_at_5, low, high, neurons;
} summary;

static summary summarise(const json_t *rows, const char *method, const double size[2])
{
    summary s = {0, 0, INFINITY, -INFINITY, 0};
    double n = 0;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(bench_text(row, "method"), method) != 0 || option(row, "K") != size[0] ||
            option(row, "L") != size[1])
            continue;
        const double p = bench_number(row, "p_at_1");
        n++;
        s.p_at_1 += p;
        s.p_at_5 += bench_number(row, "p_at_5");
        s.neurons += bench_number(row, "sample_size");
        s.low = fmin(s.low, p);
        s.high = fmax(s.high, p);
    }
    s.p_at_1 /= n;
    s.p_at_5 /= n;
    s.neurons /= n;
    return s;
}

static json_t *summary_json(const char *method, int size, const summary *s)
{
    return json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "method", method, "K", (int)sizes[size][0], "L",
                     (int)sizes[size][1], "p_at_1", bench_real(s->p_at_1), "p_at_1_low", bench_real(s->low),
                     "p_at_1_high", bench_real(s->high), "p_at_5", bench_real(s->p_at_5), "sample_size",
                     bench_real(s->neurons));
}

static int run_slide(const cli_command *self, void *given, int n, char **rest)
{
    static const char *const names[] = {"slide", "lss"};
    static const char *const sweeps[] = {"slide K=4 L=1,10 seed=1,2,3",
                                         "slide K=6 L=1 seed=1,2,3",
                                         "slide K=8 L=10 seed=1,2,3",
                                         "lss K=4 L=1,10 seed=1,2,3",
                                         "lss K=6 L=1 seed=1,2,3",
                                         "lss K=8 L=10 seed=1,2,3",
                                         NULL};
    const arguments *args = given;
    json_t *result = NULL;
    int code = run_grid(self, args, n, rest, sweeps, &result);
    if (code) return code;
    const json_t *rows = json_object_get(result, "rows");
    summary all[2][N_SIZES];
    json_t *list = json_array();
    for (int method = 0; method < 2; method++)
        for (int size = 0; size < N_SIZES; size++) {
            all[method][size] = summarise(rows, names[method], sizes[size]);
            json_array_append_new(list, summary_json(names[method], size, &all[method][size]));
        }
    if (args->common.json) {
        code = cli_print_json(json_pack("{s:O, s:O, s:o}", "workload", json_object_get(result, "workload"), "full",
                                        json_object_get(result, "full"), "rows", list));
        json_decref(result);
        return code;
    }
    cli_print_text(stdout, bench_text(result, "title"));
    printf(": means over %d seeds; FULL: P@1 %.4f, %.0f classes\n", N_SEEDS,
           bench_number(json_object_get(result, "full"), "p_at_1"), bench_number(result, "m"));
    printf("%-6s %4s %4s %8s %17s %8s %10s\n", "method", "K", "L", "P@1", "lowest - highest", "P@5", "classes");
    for (int method = 0; method < 2; method++)
        for (int size = 0; size < N_SIZES; size++) {
            const summary *s = &all[method][size];
            printf("%-6s %4.0f %4.0f %8.4f   %.4f - %.4f %8.4f %10.1f\n", names[method], sizes[size][0], sizes[size][1],
                   s->p_at_1, s->low, s->high, s->p_at_5, s->neurons);
        }
    for (int size = 0; size < N_SIZES; size++) { /* lss against the best slide that is no smaller */
        const summary *ours = &all[1][size];
        int best = -1;
        for (int other = 0; other < N_SIZES; other++)
            if (all[0][other].neurons >= ours->neurons && (best < 0 || all[0][other].p_at_1 > all[0][best].p_at_1))
                best = other;
        printf("lss K=%.0f L=%.0f with %.0f classes: P@1 %.4f; ", sizes[size][0], sizes[size][1], ours->neurons,
               ours->p_at_1);
        if (best < 0)
            printf("no slide here has as many\n");
        else
            printf("slide with as many or more: %.4f (K=%.0f L=%.0f, %.0f classes)\n", all[0][best].p_at_1,
                   sizes[best][0], sizes[best][1], all[0][best].neurons);
    }
    json_decref(list);
    json_decref(result);
    return cli_end();
}

/* ---- The commands ------------------------------------------------------------------------------------------ */

const cli_command bench_cmd_table2 = {
    "table2",
    "WORKLOAD [options]",
    "the paper's table 2: lss for K in 4, 6, 8 and L in 1, 10, 50",
    "Learns nine indexes and prints their P@1 and the classes they score; NA where every query is left\n"
    "without any. Quality only. The result stays in DIR/NAME-table2-LOSS.json, with -seedsN, -maxN or\n"
    "-last behind LOSS where --seeds, --max-neurons or --last-step is given; stopped, it goes on where it\n"
    "was.\n"
    "\n"
    "  wideout-bench table2 debian\n"
    "  wideout-bench table2 debian --loss margin\n"
    "  wideout-bench table2 debian --seeds 3 --last-step",
    table2_options,
    sizeof(arguments),
    run_table2,
};

const cli_command bench_cmd_slide = {
    "slide",
    "WORKLOAD [options]",
    "the paper's comparison with SLIDE: random against learned hyperplanes",
    "slide and lss with the same K and L (4 and 1, 6 and 1, 8 and 10, 4 and 10), three seeds each, and\n"
    "lss beside the best slide that scores as many classes or more. Quality only. The result stays in\n"
    "DIR/NAME-slide-LOSS.json; stopped, it goes on where it was.\n"
    "\n"
    "  wideout-bench slide debian",
    options,
    sizeof(arguments),
    run_slide,
};
