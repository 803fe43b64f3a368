/* wideout update: classes of an index come, change and go. */
#include "class_list.h"
#include "cli.h"
#include "index_text.h"
#include "inputs.h"
#include "layer_options.h"
#include "outputs.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *add, *replace, *output;
    cli_texts remove;
} arguments;

static const cli_option options[] = {
    {"add", 0, CLI_TEXT_ONCE, offsetof(arguments, add), "FILE", "rows of new classes: 'weight' and perhaps 'bias'",
     false},
    {"replace", 0, CLI_TEXT_ONCE, offsetof(arguments, replace), "FILE",
     "new rows of classes: the same, and their 'ids'", false},
    {"remove", 0, CLI_TEXTS, offsetof(arguments, remove), "IDS|FILE", "never answer these: 3,17 or a file, one a line",
     false},
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "FILE", "the new index", false},
    CLI_LAYER_OPTIONS(arguments, layer, "the layer of the index, where it has no rows, or bf16 ones"),
    {0},
};

/* All that the command holds. A zeroed one is empty. */
typedef struct session {
    wo_layer *layer, *add, *replace;
    wo_index *index, *updated;
    cli_class_names names;
    cli_classes removed;
    bool biased; /* the index's classes have biases */
} session;

/* What is named of a layer is of --layer; without it, of the rows. Rows that replace others bring ids, which only
 * safetensors have, and a file of biases stands beside .npy alone: it is that of the rows that are added. */
static int open_rows(const cli_command *self, const arguments *args, session *s)
{
    cli_layer add = args->layer;
    if (add.path) add = (cli_layer){0};
    cli_layer replace = add;
    replace.bias_path = NULL;
    replace.path = args->replace;
    add.path = args->add;
    int code = CLI_OK;
    if (args->add) code = cli_layer_open(self, &add, &s->add);
    if (!code && args->replace) code = cli_layer_open(self, &replace, &s->replace);
    return code;
}

/* Of an index without rows its layer has the biases. */
static bool has_biases(const char *path, const wo_layer *layer)
{
    woi_st *st = NULL;
    if (layer) return wo_layer_bias(layer) != NULL;
    const bool found = !woi_st_open(path, &st, NULL) && woi_st_find(st, "bias");
    woi_st_free(st);
    return found;
}

/* With 0 among biases that may all be below it, the new classes are answered too often. */
static void warn_of_biases(const arguments *args)
{
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, args->add);
    fprintf(stderr, ": the rows have no biases, those of the index have: the new classes get 0%s\n",
            args->layer.path ? "" : "; --bias-name NAME or --bias FILE gives others");
}

/* ---- The command ------------------------------------------------------------------------------------------- */

static const char *name_of(void *ctx, int32_t id, size_t *bytes)
{
    return wo_index_label(ctx, id, bytes);
}

static int open_index(const cli_command *self, const arguments *args, const char *path, session *s)
{
    wo_error err;
    if (args->layer.path && cli_layer_open(self, &args->layer, &s->layer)) return CLI_FAILED;
    const cli_files files = {.layer = args->layer.path, .index = path};
    const wo_open_options o = {.struct_size = sizeof o, .layer = s->layer, .progress = cli_progress(&args->common)};
    if (wo_index_open(path, &o, &s->index, &err)) return cli_blame(self, &files, &err);
    s->names = (cli_class_names){.m = wo_index_m(s->index), .name_of = name_of, .ctx = s->index};
    return cli_classes_take(&s->names, "--remove", &args->remove, &s->removed);
}

static int report(const arguments *args, const session *s, double seconds)
{
    const cli_index about = cli_index_of(s->updated), before = cli_index_of(s->index);
    const uint64_t added = about.info.m - before.info.m, removed = about.info.n_removed - before.info.n_removed,
                   replaced = s->replace ? wo_layer_m(s->replace) : 0;
    const bool kept = s->biased && s->replace && !wo_layer_bias(s->replace);
    if (args->common.json) {
        json_t *json = cli_index_json(&about);
        if (json)
            json_object_update_new(json, json_pack("{s:o, s:I, s:I, s:b, s:I, s:I, s:f}", "index",
                                                   cli_json_text(args->output), "added", (json_int_t)added, "replaced",
                                                   (json_int_t)replaced, "biases_kept", kept, "removed_now",
                                                   (json_int_t)removed, "entries_before",
                                                   (json_int_t)before.info.n_entries, "seconds", seconds));
        return cli_print_json(json);
    }
    cli_print_text(stdout, args->output);
    printf(": index, %s added, %s replaced, %s removed\n", cli_count(added, "class"), cli_number(replaced),
           cli_number(removed));
    if (kept) printf("  the new rows of classes come without biases: these keep theirs\n");
    cli_index_print(&about, "  ");
    if (about.info.n_cells)
        printf("  %s in the cells, %s before\n", cli_count(about.info.n_entries, "place"),
               cli_number(before.info.n_entries));
    printf("  updated in %.2f s\n", seconds);
    return cli_end();
}

static int update(const cli_command *self, const arguments *args, const char *path, session *s)
{
    /* What an update says of a layer is of the one that brings its ids. */
    const cli_files files = {.layer = args->replace, .index = path, .output = args->output};
    wo_error err;
    const double start = woi_now_s();
    int code = open_index(self, args, path, s);
    if (!code) code = open_rows(self, args, s);
    if (code) return code;
    s->biased = has_biases(path, s->layer);
    const wo_update_options o = {.struct_size = sizeof o,
                                 .add = s->add,
                                 .replace = s->replace,
                                 .remove = s->removed.ids,
                                 .n_remove = s->removed.n,
                                 .threads = (int)args->common.threads,
                                 .progress = cli_progress(&args->common)};
    if (wo_index_update(s->index, &o, &s->updated, &err) || wo_index_save(s->updated, args->output, &err))
        return cli_blame(self, &files, &err);
    cli_progress_end();
    if (s->biased && s->add && !wo_layer_bias(s->add)) warn_of_biases(args);
    return report(args, s, woi_now_s() - start);
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n != 1) return cli_usage(self, "expected one index, found %d", n);
    if (!args->output) return cli_usage(self, "needs -o FILE for the new index");
    if (!args->add && !args->replace && !args->remove.n)
        return cli_usage(self, "needs --add FILE, --replace FILE or --remove IDS");
    const cli_layer *layer = &args->layer;
    if (!layer->path && !args->add && layer->bias_path) return cli_usage(self, "--bias goes with --layer or --add");
    if (!layer->path && !args->add && !args->replace && (layer->weight_name || layer->bias_name))
        return cli_usage(self, "--weight-name and --bias-name go with --layer, --add or --replace");
    const char *const in[] = {rest[0], args->add, args->replace, args->layer.path, args->layer.bias_path};
    int code = cli_refuse_inputs(self, args->output, in, sizeof in / sizeof in[0]);
    if (!code) code = cli_refuse_inputs(self, args->output, args->remove.of, args->remove.n);
    if (!code) code = cli_output_try(args->output);
    if (code) return code;
    session s = {0};
    code = update(self, args, rest[0], &s);
    wo_index_free(s.updated);
    wo_index_free(s.index);
    wo_layer_free(s.layer);
    wo_layer_free(s.add);
    wo_layer_free(s.replace);
    cli_classes_free(&s.removed);
    cli_class_names_free(&s.names);
    return code;
}

const cli_command cli_cmd_update = {
    "update",
    "INDEX [--add FILE] [--replace FILE] [--remove IDS] -o NEW [options]",
    "add, replace and remove classes of an index",
    "Writes a new index in which classes have come, changed or gone, in seconds and without the log: the\n"
    "router stays as it was learned.\n"
    "\n"
    "  wideout update index --add new.safetensors -o index2\n"
    "  wideout update index --replace changed.safetensors --remove 17,4711 -o index2\n"
    "  wideout update index --remove gone.txt -o index2\n"
    "\n"
    "Rows come in safetensors: 'weight' (a, d), 'bias' (a) or none, for --replace also 'ids' (a), the\n"
    "classes that they belong to; 'wideout check --changed' writes such a file. Without 'bias' added\n"
    "classes get 0, and others keep theirs. From Python:\n"
    "\n"
    "  save_file({\"weight\": w, \"bias\": b, \"ids\": ids}, \"changed.safetensors\")\n"
    "\n"
    "Added classes get the next numbers; the numbers of all others stay. To an index with names they\n"
    "bring theirs, in a layer file that has names, or are called by their numbers.\n"
    "\n"
    "Without --layer, --weight-name and --bias-name are the rows' own. --add also takes a .npy file, and\n"
    "--bias that of its biases.\n"
    "\n"
    "The index keeps some of its training queries ('build --keep'). A new or changed row goes into the\n"
    "cells of those that have it among their best, and a changed row leaves all others; a new class that\n"
    "none of them has goes where it comes closest. An index that keeps none, or that an older version\n"
    "built, is to be built anew; --remove works with any.\n"
    "\n"
    "Removed classes are never answered again, in no way, and cannot come back. Their rows stay in the\n"
    "file. What --remove takes is what 'predict --forbid' takes: numbers, or a file with a number or a\n"
    "name in each line; of classes with one name all are meant. What is all digits is a number or a name,\n"
    "whichever a class has; where two classes have it, number:59 or name:59 says which. Given several\n"
    "times, it adds up.\n"
    "\n"
    "The new index belongs to the layer with the new rows. An index without rows (--weights none) needs\n"
    "its old layer here, and that new one afterwards. Priors, log Z and tuning know nothing of what came\n"
    "later: after many changes build anew; 'wideout check' says when.",
    options,
    sizeof(arguments),
    run,
};
