/* wideout shard: a wide layer in as many files as there are processes to hold it. */
#include "class_names.h"
#include "cli.h"
#include "inputs.h"
#include "labelled.h"
#include "layer_options.h"
#include "outputs.h"
#include "shard_files.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { MOST = 99999 };

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *log, *labels, *names, *output;
    uint64_t n;
    bool resume;
} arguments;

static const cli_option options[] = {
    CLI_LAYER_OPTIONS(arguments, layer, "the wide layer: safetensors, .npy, GGUF or fastText"),
    {"log", 0, CLI_TEXT_ONCE, offsetof(arguments, log), "FILE", "deal classes out by how often it has them as labels",
     false},
    {"labels", 0, CLI_TEXT_ONCE, offsetof(arguments, labels), "FILE",
     "its labels as .npy or .npz, where the log has none", false},
    {"names", 0, CLI_TEXT_ONCE, offsetof(arguments, names), "FILE", "what the classes are called, one a line", false},
    {"shards", 'n', CLI_SIZE, offsetof(arguments, n), "N", "how many", false},
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "PREFIX", "files PREFIX-00001-of-N.safetensors, ...",
     false},
    {"resume", 0, CLI_FLAG, offsetof(arguments, resume), NULL, "keep the files that are complete, write the others",
     false},
    {0},
};

static int report(const arguments *args, const wo_layer *layer, char **paths)
{
    const size_t m = wo_layer_m(layer), n = (size_t)args->n;
    if (!args->common.json) {
        cli_print_text(stdout, paths[0]);
        printf(": the first of %s, of up to %s each, of a layer of %s\n", cli_count(n, "shard"),
               cli_count(m / n + (m % n > 0), "class"), cli_count(m, "class"));
        return cli_end();
    }
    json_t *files = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(files, cli_json_text(paths[i]));
    return cli_print_json(
        json_pack("{s:I, s:I, s:o}", "m", (json_int_t)m, "d", (json_int_t)wo_layer_d(layer), "files", files));
}

/* Names of all files, none of them an input. */
static int name_files(const cli_command *self, const arguments *args, char **paths)
{
    const char *const in[] = {args->layer.path, args->layer.bias_path, args->log, args->labels, args->names};
    int code = CLI_OK;
    for (uint64_t i = 0; !code && i < args->n; i++) {
        wo_error err;
        if ((paths[i] = cli_shard_file(args->output, i, args->n))) {
            code = cli_refuse_inputs(self, paths[i], in, sizeof in / sizeof in[0]);
            if (!code && i == 0) code = cli_output_try(paths[i]);
            continue;
        }
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        code = cli_fail(NULL, &err);
    }
    return code;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n > 0) return cli_usage(self, "unexpected '%s': the layer is named by --layer", rest[0]);
    if (!args->layer.path) return cli_usage(self, "needs --layer FILE");
    if (!args->output) return cli_usage(self, "needs -o PREFIX for the shards");
    if (args->n < 1 || args->n > MOST) return cli_usage(self, "needs -n N, how many shards: 1 to %d", MOST);
    if (args->labels && !args->log) return cli_usage(self, "--labels goes with --log: the queries");
    int code = cli_shard_refuse_device(self, args->output);
    if (code) return code;
    wo_layer *layer = NULL;
    cli_labelled log = {0};
    wo_error err;
    char **paths = calloc(args->n, sizeof *paths);
    const cli_files files = {.layer = args->layer.path,
                             .bias = args->layer.bias_path,
                             .log = args->log,
                             .labels = args->labels,
                             .output = args->output};
    if (!paths) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        return cli_fail(NULL, &err);
    }
    code = name_files(self, args, paths);
    if (!code) cli_shard_sweep(args->output);
    if (!code) code = cli_layer_open(self, &args->layer, &layer);
    if (!code && args->names) code = cli_names_give(args->names, layer);
    if (!code && args->log && cli_labelled_open(args->log, args->labels, &log, &err))
        code = cli_blame(self, &files, &err);
    if (!code && wo_layer_save_shards(layer, log.log, (const char *const *)paths, args->n, args->resume, &err))
        code = cli_blame(self, &files, &err);
    if (!code) code = report(args, layer, paths);
    cli_labelled_free(&log);
    wo_layer_free(layer);
    for (uint64_t i = 0; i < args->n; i++) free(paths[i]);
    free(paths);
    return code;
}

const cli_command cli_cmd_shard = {
    "shard",
    "--layer FILE -n N -o PREFIX [options]",
    "divide a wide layer into files, for 'wideout-mpi'",
    "Each file is a layer with a share of the classes, their numbers in the whole layer and its checksum.\n"
    "Classes are dealt out one after the other, so that every shard has as many; with --log the labels\n"
    "that it has most often first, so that every shard has as much to do:\n"
    "\n"
    "  mkdir -p parts\n"
    "  wideout shard --layer net.safetensors --log train.log -n 4 -o parts/net\n"
    "  mpirun -n 4 wideout-mpi build --layer parts/net --log train.log --router tree -o parts/index\n"
    "\n"
    "All are on the disk before the first of them gets its name. With --resume each gets it as soon as it\n"
    "is complete, and files of this very dealing that are complete stay: for a layer that takes long.\n"
    "docs/SCALING.md has the rest.",
    options,
    sizeof(arguments),
    run,
};
