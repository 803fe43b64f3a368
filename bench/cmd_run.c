/* wideout-bench run: one result file for each workload. */
#include "../cli/inputs.h"
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double BUDGET_S[2] = {0.09, 1}; /* for a point that is timed, reduced and full */

typedef struct arguments {
    cli_common common;
    const char *output, *methods, *layer, *log, *valid, *test, *weight_name, *bias_name, *name;
    uint64_t queries;
    bool full, no_timing;
} arguments;

static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, offsetof(arguments, output), "DIR", "where NAME.json goes (default: bench/results)",
     false},
    {"methods", 0, CLI_TEXT, offsetof(arguments, methods), "LIST", "only these, with commas between", false},
    {"full", 0, CLI_FLAG, offsetof(arguments, full), NULL, "the whole sweep: hours instead of minutes", false},
    {"queries", 0, CLI_SIZE, offsetof(arguments, queries), "N", "test queries to judge, instead of the workload's",
     false},
    {"no-timing", 0, CLI_FLAG, offsetof(arguments, no_timing), NULL, "quality only", false},
    {"layer", 0, CLI_TEXT, offsetof(arguments, layer), "FILE", "a layer of your own, instead of a workload", false},
    {"log", 0, CLI_TEXT, offsetof(arguments, log), "FILE", "its queries to learn from", false},
    {"valid", 0, CLI_TEXT, offsetof(arguments, valid), "FILE", "its queries to tune on", false},
    {"test", 0, CLI_TEXT, offsetof(arguments, test), "FILE", "its queries to judge on", false},
    {"weight-name", 0, CLI_TEXT, offsetof(arguments, weight_name), "NAME", "its tensor of weights, (m, d)", false},
    {"bias-name", 0, CLI_TEXT, offsetof(arguments, bias_name), "NAME", "its tensor of biases, (m)", false},
    {"name", 0, CLI_TEXT, offsetof(arguments, name), "NAME", "what its result is called (default: own)", false},
    {0},
};

/* The names of all methods in a list are checked before anything runs. */
static int check_methods(const cli_command *self, const char *list)
{
    for (; list; list = (list = strchr(list, ',')) ? list + 1 : NULL) {
        const size_t length = strcspn(list, ",");
        if (!bench_method_find(list, length))
            return cli_usage(self, "--methods: '%.*s' is none: there are %s", (int)(length < 60 ? length : 60), list,
                             bench_method_names());
    }
    return CLI_OK;
}

/* A workload out of --layer, --log and --test; its texts are not ours to free. */
static bench_workload own(const arguments *args)
{
    return (bench_workload){
        .name = (char *)(args->name ? args->name : "own"),
        .title = (char *)(args->name ? args->name : args->layer),
        .layer = (char *)args->layer,
        .train = (char *)args->log,
        .valid = (char *)args->valid,
        .test = (char *)args->test,
        .weight_name = (char *)args->weight_name,
        .bias_name = (char *)args->bias_name,
        .queries = {args->queries, args->queries},
    };
}

/* Before the first workload runs: those behind it take hours to reach. */
static int try_output(const cli_command *self, const arguments *args, const char *name)
{
    const char *folder = args->output ? args->output : bench_results_folder;
    char path[4096];
    const char *const in[] = {args->layer, args->log, args->valid, args->test};
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    const int code = cli_refuse_inputs(self, path, in, sizeof in / sizeof in[0]);
    return code ? code : bench_try_output(folder, path);
}

static int try_outputs(const cli_command *self, const arguments *args, int n, char **rest)
{
    int code = args->layer ? try_output(self, args, own(args).name) : CLI_OK;
    for (int i = 0; !code && i < n; i++) {
        bench_workload workload;
        wo_error err;
        if (bench_workload_read(rest[i], &workload, &err)) return cli_fail(rest[i], &err);
        code = try_output(self, args, workload.name);
        bench_workload_free(&workload);
    }
    return code;
}

/* *ran: false where the data are not here. */
static int run_workload(const arguments *args, const char *command, const bench_workload *workload, json_t *results,
                        bool *ran)
{
    const char *folder = args->output ? args->output : bench_results_folder;
    char path[4096];
    bench_data data = {0};
    bench_configs configs = {0};
    wo_error err;
    int code = CLI_OK;
    *ran = false;
    snprintf(path, sizeof path, "%s/%s.json", folder, workload->name);
    wo_progress progress = cli_progress(&args->common);
    wo_status status = bench_data_open(workload, args->full, &progress, &data, &err);
    cli_progress_end();
    *ran = !status;
    if (status == WO_ERR_IO) {
        fprintf(stderr, "wideout-bench: %s is left out: ", workload->name);
        cli_print_text(stderr, err.text);
        fputc('\n', stderr);
        goto done;
    }
    if (!status) status = bench_workload_configs(workload, data.rows->m, args->full, args->methods, &configs, &err);
    if (status) {
        code = cli_fail(workload->name, &err);
        goto done;
    }
    const bench_run run = {&args->common, command, !args->no_timing, BUDGET_S[args->full]};
    code = bench_run_configs(&run, workload, &data, &configs, path);
    if (!code && !args->common.json) printf("%s\n", path);
    if (!code) json_array_append_new(results, json_string(path));
done:
    bench_data_close(&data);
    bench_configs_free(&configs);
    return code;
}

static char *command_text(const arguments *args, int n, char **rest)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    fprintf(out, "wideout-bench run");
    for (int i = 0; i < n; i++) fprintf(out, " %s", rest[i]);
    if (args->full) fprintf(out, " --full");
    if (args->no_timing) fprintf(out, " --no-timing");
    if (args->common.threads) fprintf(out, " --threads %d", (int)args->common.threads);
    const struct {
        const char *name, *value;
    } texts[] = {
        {"methods", args->methods}, {"layer", args->layer}, {"weight-name", args->weight_name}, {"log", args->log},
        {"valid", args->valid},     {"test", args->test},   {"bias-name", args->bias_name},     {"name", args->name}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].value) fprintf(out, " --%s %s", texts[i].name, texts[i].value);
    if (args->queries) fprintf(out, " --queries %llu", (unsigned long long)args->queries);
    return fclose(out) ? NULL : text;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (!args->layer != !args->test) return cli_usage(self, "--layer and --test go together");
    if (!args->layer && (args->log || args->valid || args->weight_name || args->bias_name || args->name))
        return cli_usage(self, "--log, --valid, --weight-name, --bias-name and --name go with --layer");
    if (args->layer ? n > 0 : n == 0) return cli_usage(self, "expected workloads, or --layer, --log and --test");
    if (args->name && (strchr(args->name, '/') || !*args->name))
        return cli_usage(self, "--name takes the name of a file without folders, not '%s'", args->name);
    int code = check_methods(self, args->methods);
    if (!code) code = try_outputs(self, args, n, rest);
    if (code) return code;
    char *command = command_text(args, n, rest);
    json_t *results = json_array();
    bool ran;
    if (args->layer) {
        const bench_workload workload = own(args);
        code = run_workload(args, command ? command : "", &workload, results, &ran);
        if (!code && !ran) code = CLI_FAILED;
    }
    for (int i = 0; !code && i < n; i++) {
        bench_workload workload;
        wo_error err;
        if (bench_workload_read(rest[i], &workload, &err)) {
            code = cli_fail(rest[i], &err);
            break;
        }
        if (args->queries) workload.queries[0] = workload.queries[1] = args->queries;
        code = run_workload(args, command ? command : "", &workload, results, &ran);
        bench_workload_free(&workload);
    }
    free(command);
    if (!code && args->common.json) return cli_print_json(json_pack("{s:o}", "results", results));
    json_decref(results);
    return code ? code : cli_end();
}

const cli_command bench_cmd_run = {
    "run",
    "WORKLOAD... [options]",
    "run methods over workloads: one result file each",
    "Builds every method on a workload's layer, judges it on the test queries and times it beside FULL,\n"
    "the exact layer, in turn. A workload is the name of a file in bench/workloads, or the path of one:\n"
    "debian, eurlex57k, diginetica, wikitext-2, wikitext-2-next35, enwiki100m, enwiki100m-drop200,\n"
    "synthetic-10k, synthetic-100k, synthetic-1m. Where its data are not here it is left out with a\n"
    "sentence.\n"
    "\n"
    "  wideout-bench run debian synthetic-100k\n"
    "  wideout-bench run debian --methods full,evidence,ip-nsw --full -o /tmp/results\n"
    "  wideout-bench run --layer net.safetensors --log train.log --test test.log --name mine\n"
    "\n"
    "Methods: full, torch-full, popular, slide, lss, evidence, tuned, pq, ivf, sq8, ip-nsw and\n"
    "graph-decoder. Each is swept over its own dial. A run that was stopped goes on where it was:\n"
    "finished rows are kept in NAME.json.partial. Let nothing else run meanwhile.",
    options,
    sizeof(arguments),
    run,
};
