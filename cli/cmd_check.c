/* wideout check: how stale an index is for a layer that has changed. */
#include "cli.h"
#include "inputs.h"
#include "layer_options.h"
#include "outputs.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *own, *changed;
} arguments;

static const cli_option options[] = {
    CLI_LAYER_OPTIONS(arguments, layer, "the layer as it is now"),
    {"own-layer", 0, CLI_TEXT_ONCE, offsetof(arguments, own), "FILE",
     "the layer that it was built for, where it has no rows", false},
    {"changed", 0, CLI_OUTPUT, offsetof(arguments, changed), "FILE",
     "write the rows that differ, for 'update --replace'", false},
    {0},
};

/* ---- Rows that differ -------------------------------------------------------------------------------------- */

static wo_status write_changed(const char *path, const wo_layer *layer, const int32_t *ids, size_t n, wo_error *err)
{
    woi_st_writer *writer = NULL;
    const size_t d = wo_layer_d(layer);
    const float *w = wo_layer_weight(layer), *b = wo_layer_bias(layer);
    const uint64_t rows[] = {n, d}, one[] = {n};
    wo_status status = woi_st_create(path, "layer", &writer, err);
    if (!status) status = woi_st_declare(writer, "weight", WOI_F32, 2, rows, err);
    if (!status && b) status = woi_st_declare(writer, "bias", WOI_F32, 1, one, err);
    if (!status) status = woi_st_declare(writer, "ids", WOI_I32, 1, one, err);
    for (size_t i = 0; !status && i < n; i++)
        status = woi_st_append(writer, w + (size_t)ids[i] * d, d * sizeof *w, err);
    for (size_t i = 0; !status && b && i < n; i++) status = woi_st_append(writer, b + ids[i], sizeof *b, err);
    if (!status) status = woi_st_append(writer, ids, n * sizeof *ids, err);
    if (!status) status = woi_st_finish(writer, err);
    woi_st_writer_free(writer);
    return status;
}

/* ---- The report -------------------------------------------------------------------------------------------- */

static const char *const words[] = {"fine", "update", "rebuild"};

/* Why, and what to do. */
static void print_verdict(const wo_layer_check *c)
{
    switch (c->verdict) {
    case WO_VERDICT_FINE:
        if (!c->n_changed)
            printf("  fine: the rows are the index's own\n");
        else
            printf("  fine: 99.5%% of the queries have the same best class, or more\n");
        break;
    case WO_VERDICT_UPDATE:
        printf("  update: 'wideout update' with the rows that %s\n", !c->n_changed ? "were added"
                                                                     : c->n_added  ? "differ, and those that were added"
                                                                                   : "differ");
        break;
    case WO_VERDICT_REBUILD:
        printf("  rebuild: more than a quarter of the rows differ, and %s\n",
               c->held_5 < 0.95 * c->own_held_5 ? "the cells hold less than 95% of the five best that they held"
                                                : "an update would drop the labels that its prior is made of");
        break;
    }
}

/* NULL in place of NAN. */
static json_t *number(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static int report(const arguments *args, const char *path, const wo_layer_check *c)
{
    if (args->common.json)
        return cli_print_json(json_pack(
            "{s:o, s:s, s:I, s:I, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "index", cli_json_text(path), "verdict",
            words[c->verdict], "changed", (json_int_t)c->n_changed, "added", (json_int_t)c->n_added, "mean_change",
            number(c->mean_change), "most_change", number(c->most_change), "kept", (json_int_t)c->n_kept, "held_1",
            number(c->held_1), "held_5", number(c->held_5), "own_held_1", number(c->own_held_1), "own_held_5",
            number(c->own_held_5), "same_1", number(c->same_1)));
    cli_print_text(stdout, path);
    printf(": %s", cli_count(c->n_changed, "row"));
    printf(c->n_changed == 1 ? " differs" : " differ");
    if (c->n_changed)
        printf(", by %.3g%% of %s length on average, %.3g%% at most", 100 * c->mean_change,
               c->n_changed == 1 ? "its" : "their", 100 * c->most_change);
    if (c->n_added) printf("; %s added", cli_count(c->n_added, "row"));
    printf("\n");
    if (c->n_kept && (isnan(c->held_5) || isnan(c->own_held_5))) {
        printf("  of %s that the index keeps none has an answer by %s\n", cli_count(c->n_kept, "query"),
               isnan(c->own_held_5) ? "its own rows" : "the layer");
    } else if (c->n_kept) {
        printf("  of %s that the index keeps, its cells hold\n", cli_count(c->n_kept, "query"));
        printf("    %.2f%% of the layer's best class, %.2f%% of its 5 best\n", 100 * c->held_1, 100 * c->held_5);
        printf("    %.2f%% of its own rows' best class, %.2f%% of their 5 best\n", 100 * c->own_held_1,
               100 * c->own_held_5);
        printf("  the best class is the same for %.2f%%\n", 100 * c->same_1);
    } else {
        printf("  the index keeps no training queries: what its cells hold cannot be told\n");
    }
    print_verdict(c);
    return cli_end();
}

/* ---- The command ------------------------------------------------------------------------------------------- */

static int check(const cli_command *self, const arguments *args, const char *path, wo_layer *const layers[2])
{
    const cli_files files = {.layer = args->layer.path, .index = path, .output = args->changed};
    const wo_open_options o = {.struct_size = sizeof o, .layer = layers[1], .progress = cli_progress(&args->common)};
    wo_index *index = NULL;
    wo_error err;
    int code = CLI_OK;
    if (wo_index_open(path, &o, &index, &err))
        return cli_blame(self, &(cli_files){.layer = args->own, .index = path}, &err);
    wo_layer_check c = {.struct_size = sizeof c, .changed_room = args->changed ? wo_index_m(index) : 0};
    if (args->changed && !(c.changed = malloc(c.changed_room * sizeof *c.changed))) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        code = cli_fail(NULL, &err);
    }
    if (!code && wo_index_check_layer(index, layers[0], (int)args->common.threads, &c, &err))
        code = cli_blame(self, &files, &err);
    bool stale = false;
    if (!code && args->changed && !c.n_changed) {
        /* What is there is of another time: an update would take those rows for the layer's. */
        stale = access(args->changed, F_OK) == 0;
        cli_set_error(&err, WO_ERR_ARGUMENT, "not written: no row differs%s",
                      stale ? ", and what is there is not of this layer" : "");
        cli_fail(args->changed, &err);
    } else if (!code && args->changed && write_changed(args->changed, layers[0], c.changed, c.n_changed, &err)) {
        code = cli_fail(args->changed, &err);
    }
    cli_progress_end();
    if (!code) code = report(args, path, &c);
    if (!code && stale) code = CLI_FAILED;
    free(c.changed);
    wo_index_free(index);
    return code;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n != 1) return cli_usage(self, "expected one index, found %d", n);
    if (!args->layer.path) return cli_usage(self, "needs --layer FILE: the layer as it is now");
    const char *const in[] = {rest[0], args->layer.path, args->layer.bias_path, args->own};
    int code = args->changed ? cli_refuse_inputs(self, args->changed, in, sizeof in / sizeof in[0]) : CLI_OK;
    if (!code && args->changed) code = cli_output_try(args->changed);
    if (code) return code;
    wo_layer *layers[2] = {NULL, NULL}; /* now, and its own */
    const cli_layer own = {.path = args->own};
    code = cli_layer_open(self, &args->layer, &layers[0]);
    if (!code && args->own) code = cli_layer_open(self, &own, &layers[1]);
    if (!code) code = check(self, args, rest[0], layers);
    wo_layer_free(layers[0]);
    wo_layer_free(layers[1]);
    return code;
}

const cli_command cli_cmd_check = {
    "check",
    "INDEX --layer FILE [options]",
    "how stale an index is for a layer that has changed",
    "Compares the rows of an index with those of its layer as it is now, after more training for\n"
    "instance, and says what to do:\n"
    "\n"
    "  fine      no row differs, or 99.5% of the queries that the index keeps have the same best class\n"
    "  update    'wideout update' with the rows that differ: they are a quarter of the index's or fewer,\n"
    "            or the cells hold 95% or more of what they hold of the index's own five best, and\n"
    "            there is no prior: replaced rows lose the labels that a prior is made of\n"
    "  rebuild   neither is so: 'wideout build' from queries of the changed network\n"
    "\n"
    "  wideout check index --layer net2.safetensors\n"
    "  wideout check index --layer net2.safetensors --changed changed && \\\n"
    "      wideout update index --replace changed -o index2\n"
    "\n"
    "What the cells hold is judged on the training queries that the index keeps ('build --keep'): for\n"
    "each the best classes by the layer, and by the index's own rows, beside what a search would score.\n"
    "Queries of a network whose other layers changed too are others, and this says nothing of them.\n"
    "\n"
    "Whatever the verdict, the exit code is 0. Where no row differs nothing is written, and it is 1 if\n"
    "the file of --changed is there, from another time. Rows of classes that were removed do not count.",
    options,
    sizeof(arguments),
    run,
};
