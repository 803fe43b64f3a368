/* wideout-mpi build: each rank builds the index of its own classes; all have the same router. */
#include "../cli/build_options.h"
#include "../cli/index_text.h"
#include "../cli/inputs.h"
#include "../cli/labelled.h"
#include "../cli/memory.h"
#include "../cli/outputs.h"
#include "../cli/shard_files.h"
#include "commands.h"
#include "parts.h"
#include "store/log.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    cli_build build;
    cli_texts logs;
    const char *labels, *names, *output, *memory;
    bool resume;
} arguments;

static const cli_option options[] = {
    CLI_LAYER_OPTIONS(arguments, layer, "the wide layer, or the prefix of its shards"),
    {"log", 0, CLI_TEXTS, offsetof(arguments, logs), "FILE",
     "queries to learn from: a log ('wideout embed') or .npy;\nseveral are read as one", false},
    {"labels", 0, CLI_TEXT_ONCE, offsetof(arguments, labels), "FILE",
     "their labels as .npy or .npz, where the log has none", false},
    {"names", 0, CLI_TEXT_ONCE, offsetof(arguments, names), "FILE", "what the classes are called, one a line", false},
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "PREFIX",
     "files PREFIX-00001-of-P.safetensors, ...: an index a rank", false},
    {"memory", 0, CLI_TEXT, offsetof(arguments, memory), "SIZE",
     "of each process: keep to so much, as '4G': large arrays\nlie in files beside PREFIX", false},
    {"resume", 0, CLI_FLAG, offsetof(arguments, resume), NULL, "go on from PREFIX.checkpoint, where there is one",
     false},
    {"build", 0, CLI_BUILD, offsetof(arguments, build), NULL, NULL, false},
    {0},
};

/* The stages of a build, as the library reports them, are the phases of the job. */
typedef struct relay {
    wo_progress progress;
} relay;

static int on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    const relay *to = ctx;
    job_phase(stage);
    return to->progress.fn ? to->progress.fn(to->progress.ctx, stage, done, total) : 0;
}

/* All of it: ranks with other queries or labels would learn other routers, or fill cells by other needs. */
static wo_status same_log(const wo_log *log, wo_error *err)
{
    if (!log) return WO_OK;
    const uint64_t all[] = {wo_log_n(log), wo_log_d(log), woi_log_hash(log)};
    return job_same("the log, by its queries and labels,", all, sizeof all, err);
}

/* Of all ranks. */
static wo_status count_entries(const wo_index *index, uint64_t *entries, wo_error *err)
{
    const wo_collective *calls = job_calls();
    double sum = (double)cli_index_of(index).info.n_entries;
    const wo_status status = calls->sum_f64(calls->ctx, &sum, 1, err);
    *entries = (uint64_t)sum;
    return status;
}

static int report(const arguments *args, const wo_index *index, uint64_t entries, double seconds)
{
    const cli_index about = cli_index_of(index);
    if (args->common.json) {
        json_t *json = cli_index_json(&about);
        json_object_update_new(json, json_pack("{s:o, s:I, s:i, s:f, s:f, s:o}", "index", cli_json_text(args->output),
                                               "entries_of_all", (json_int_t)entries, "ranks", job_size(), "seconds",
                                               seconds, "peak_mib", cli_peak_mib(), "phases", job_phases_json()));
        return cli_print_json(json);
    }
    cli_print_text(stdout, args->output);
    printf(": an index in %s\n", cli_count((uint64_t)job_size(), "shard"));
    cli_index_print(&about, "  ");
    printf("  all shards hold %s\n", cli_count(entries, "class"));
    printf("  built in %.1f s, peak memory of rank 0 %.0f MiB\n", seconds, cli_peak_mib());
    return cli_end();
}

static int build(const cli_command *self, const arguments *args, const wo_build_options *given, const char *path)
{
    wo_layer *layer = NULL;
    cli_logs log = {0};
    wo_index *index = NULL;
    wo_error err;
    cli_files files = {.layer = args->layer.path,
                       .bias = args->layer.bias_path,
                       .labels = args->labels,
                       .output = path,
                       .checkpoint = given->checkpoint};
    const double start = woi_now_s();
    job_phase("reading");
    int code = part_open_layer(self, &args->layer, args->names, &layer);
    if (!code && cli_logs_open(&args->logs, args->labels, layer, &log, &files.log, &err))
        code = cli_blame(self, &files, &err);
    if (!code && same_log(log.log, &err)) code = part_blame(self, &files, &err);
    relay to = {given->progress};
    wo_build_options o = *given;
    o.progress = (wo_progress){on_progress, &to};
    o.together = job_calls();
    if (!code && wo_index_build(layer, log.log, &o, &index, &err)) {
        files.log = cli_logs_blame(&args->logs, &log, &err);
        code = part_blame(self, &files, &err);
    }
    job_phase("writing");
    if (!code && wo_index_save_together(index, path, job_calls(), &err)) code = part_blame(self, &files, &err);
    if (!code && job_rank() == 0 && wo_build_forget(o.checkpoint, &err)) code = cli_fail(o.checkpoint, &err);
    uint64_t entries = 0;
    if (!code && count_entries(index, &entries, &err)) code = part_blame(self, &files, &err);
    cli_progress_end();
    if (!code) code = report(args, index, entries, woi_now_s() - start);
    wo_index_free(index);
    cli_logs_free(&log);
    wo_layer_free(layer);
    return code;
}

static bool is_named(const cli_build *build)
{
    static const char *const all[] = {"method", "router", "K", "L", "lambda"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (cli_build_given(build, all[i])) return true;
    return false;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    wo_method method;
    wo_build_options o;
    if (n > 0) return cli_usage(self, "unexpected '%s': files are named by --layer, --log and -o", rest[0]);
    if (!args->layer.path) return cli_usage(self, "needs --layer FILE, or the prefix of its shards");
    if (!args->output) return cli_usage(self, "needs -o PREFIX for the index");
    if (args->labels && args->logs.n != 1)
        return cli_usage(self, args->logs.n ? "--labels goes with one --log: several must have labels of their own"
                                            : "--labels goes with --log: the queries");
    if (!is_named(&args->build))
        return cli_usage(self,
                         "needs --method, --router, -K, -L or --lambda: several processes do not tune; tune on one "
                         "machine, with a sample of the classes, and give its options");
    int code = cli_refuse_twice(self, "--log", &args->logs);
    if (!code) code = cli_build_method(self, &args->build, &method);
    if (code) return code;
    wo_build_defaults(method, &o, sizeof o);
    if (!args->logs.n && method != WO_METHOD_FULL && method != WO_METHOD_SLIDE && method != WO_METHOD_SCREEN)
        return cli_usage(self, "needs --log FILE: queries to learn from");
    if ((code = cli_build_set(self, &args->build, &o)) || (code = cli_shard_refuse_device(self, args->output)))
        return code;
    o.seed = args->common.seed;
    o.threads = (int)args->common.threads;
    cli_common quiet = args->common;
    quiet.quiet |= job_rank() != 0;
    o.progress = cli_progress(&quiet);
    char *path = cli_shard_file(args->output, (uint64_t)job_rank(), (uint64_t)job_size()),
         *layer = part_file(args->layer.path), *checkpoint = NULL;
    if (asprintf(&checkpoint, "%s.checkpoint", args->output) < 0) checkpoint = NULL;
    if (!path || !layer || !checkpoint) {
        wo_error err;
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        code = cli_fail(NULL, &err);
    }
    const char *const in[] = {layer, args->layer.bias_path, args->labels, args->names};
    if (!code) code = cli_refuse_inputs(self, path, in, sizeof in / sizeof in[0]);
    if (!code) code = cli_refuse_inputs(self, path, args->logs.of, args->logs.n);
    if (!code) code = cli_output_try(path);
    if (!code) cli_shard_sweep(args->output); /* no rank writes before all have opened the layer */
    if (!code) code = cli_memory_keep(self, args->memory, path);
    o.checkpoint = checkpoint;
    o.resume = args->resume;
    if (!code) code = build(self, args, &o, path);
    free(path);
    free(checkpoint);
    free(layer);
    return code;
}

const cli_command mpi_cmd_build = {
    "build",
    "--layer FILE|PREFIX --log FILE -o PREFIX [options]",
    "learn an index, a shard of it in each process",
    "Each of the P processes that mpirun starts holds a share of the layer's classes: those of its shard\n"
    "('wideout shard'), or of one file a range. All read the same log, and learn the same router; each\n"
    "writes the index of its own classes, PREFIX-00001-of-P.safetensors and so on:\n"
    "\n"
    "  mkdir -p parts\n"
    "  mpirun -n 4 wideout-mpi build --layer net.safetensors --log train.log --router tree -o parts/index\n"
    "  mpirun -n 4 wideout-mpi eval --index parts/index --log test.log\n"
    "  wideout join parts/index-*.safetensors -o index.safetensors\n"
    "\n"
    "Together they answer as the index does that 'wideout build' makes with the same options, and\n"
    "'wideout join' makes that of them. Options are those of 'wideout build'. Several processes do not tune: tune\n"
    "on one machine, with a sample of the classes, and give its options. Neither lss nor --partition.\n"
    "\n"
    "PREFIX.checkpoint has, until all files are there, what took long: FULL's best of the log, and the\n"
    "router. A job that was stopped goes on from it with --resume, in as many processes as it may be, and\n"
    "writes the same files; without, it begins anew.\n"
    "\n"
    "All files are on the disk before the first of them gets its name. A process that dies ends the job; so\n"
    "does one that the others have waited for longer than $WIDEOUT_MPI_TIMEOUT seconds (600).",
    options,
    sizeof(arguments),
    run,
};
