/* wideout join: one index out of those that the processes of a job have built. */
#include "cli.h"
#include "index_text.h"
#include "inputs.h"
#include "outputs.h"

#include <jansson.h>

typedef struct arguments {
    cli_common common;
    const char *output;
} arguments;

static const cli_option options[] = {
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "FILE", "the index", false},
    {0},
};

static int report(const arguments *args, int n)
{
    wo_index *index = NULL;
    wo_error err;
    const wo_open_options o = {.struct_size = sizeof o, .verify = WO_VERIFY_NONE};
    if (wo_index_open(args->output, &o, &index, &err)) return cli_fail(args->output, &err);
    const cli_index about = cli_index_of(index);
    int code;
    if (args->common.json) {
        json_t *json = cli_index_json(&about);
        json_object_set_new(json, "index", cli_json_text(args->output));
        json_object_set_new(json, "shards", json_integer(n));
        code = cli_print_json(json);
    } else {
        cli_print_text(stdout, args->output);
        printf(": index, of %s\n", cli_count((uint64_t)n, "shard"));
        cli_index_print(&about, "  ");
        code = cli_end();
    }
    wo_index_free(index);
    return code;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    wo_error err;
    if (!args->output) return cli_usage(self, "needs -o FILE for the index");
    if (n < 1) return cli_usage(self, "needs the files of all shards");
    int code = cli_refuse_inputs(self, args->output, (const char *const *)rest, (size_t)n);
    if (!code) code = cli_output_try(args->output);
    if (code) return code;
    if (wo_index_join((const char *const *)rest, (size_t)n, args->output, &err))
        return cli_fail(err.about == WO_ABOUT_OUTPUT ? args->output : NULL, &err);
    return report(args, n);
}

const cli_command cli_cmd_join = {
    "join",
    "FILE... -o FILE",
    "make one index of the shards that 'wideout-mpi build' wrote",
    "The index is the one, byte for byte, that 'wideout build' makes of the whole layer with the same\n"
    "options; all its rows are in memory meanwhile:\n"
    "\n"
    "  wideout join parts/index-*.safetensors -o index.safetensors\n"
    "\n"
    "All shards are needed, each once, and of one build. They must have rows: not --weights none.",
    options,
    sizeof(arguments),
    run,
};
