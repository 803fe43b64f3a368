/* What an index is, in words and in JSON. */
#include "index_text.h"

#include <inttypes.h>
#include <jansson.h>

static const char *const source_names[] = {"?", "labels", "top", "both"};
static const char *const learner_names[] = {"none", "mix", "?"};
static const char *const loss_names[] = {"paper", "margin"};
static const char *const init_names[] = {"random", "mean"};
static const char *const optimiser_names[] = {"adam", "sgd"};
static const char *const weights_names[] = {"f32", "bf16", "int8", "none"};

static bool has_tree(const wo_build_options *o)
{
    return o->method == WO_METHOD_EVIDENCE && o->router == WO_ROUTER_TREE;
}

static bool has_tables(const wo_build_options *o)
{
    return o->method >= WO_METHOD_SLIDE && !has_tree(o);
}

static bool is_learned(const wo_build_options *o)
{
    return o->method == WO_METHOD_LSS ||
           (o->method == WO_METHOD_EVIDENCE && !has_tree(o) && o->learner != WO_LEARNER_NONE);
}

static void print_evidence(const wo_build_options *o)
{
    printf(", lambda %g, source %s", o->lambda, source_names[o->source & 3]);
    if (o->source & WO_SOURCE_TOP) printf(" %" PRIu32, o->source_k);
    printf(", thin %" PRIu32, o->thin);
    if (o->fallback) printf(", fallback %" PRIu32, o->fallback);
    if (!has_tree(o)) printf(", learner %s", learner_names[o->learner & 3]);
}

static void print_lss(const wo_build_options *o)
{
    printf(", loss %s, init %s, optimiser %s, t1 %g, t2 %g as %s", loss_names[o->loss & 1], init_names[o->init & 1],
           optimiser_names[o->optimiser & 1], o->t1, o->t2, o->t_are_values ? "logits" : "ranks");
}

cli_index cli_index_of(const wo_index *index)
{
    cli_index of = {.info.struct_size = sizeof of.info, .options.struct_size = sizeof of.options};
    wo_index_describe(index, &of.info);
    wo_index_options(index, &of.options);
    return of;
}

void cli_index_print(const cli_index *index, const char *indent)
{
    const wo_index_info *info = &index->info;
    const wo_build_options *o = &index->options;
    printf("%smethod %s", indent, info->method_name);
    if (has_tree(o))
        printf(", tree of %" PRIu32 " x %" PRIu32 " in %" PRIu32 " coordinates, beam %" PRIu32 ", probes %" PRIu32,
               o->nodes, o->leaves, o->route_d, o->beam, o->probes);
    if (has_tables(o)) printf(", K %" PRIu32 ", L %" PRIu32 ", probes %" PRIu32, o->K, o->L, o->probes);
    if (o->method == WO_METHOD_POPULAR) printf(", popular %s", cli_number(o->n_popular));
    if (o->method == WO_METHOD_EVIDENCE) print_evidence(o);
    if (o->method == WO_METHOD_LSS) print_lss(o);
    if (is_learned(o)) {
        printf("\n%slearned in %s steps of %s at rate %g", indent, cli_number(o->iterations), cli_number(o->batch),
               o->rate);
    }
    printf("; seed %" PRIu64 "\n", o->seed);
    printf("%s%s classes of %s dimensions, %s names; rows in the file: %s\n", indent, cli_number(info->m),
           cli_number(info->d), info->has_names ? "with" : "without", weights_names[o->weights & 3]);
    if (info->full_from && info->full_to)
        printf("%sbatches of %s to %s queries are answered by FULL, which is faster there\n", indent,
               cli_number(info->full_from), cli_number(info->full_to));
    else if (info->full_from)
        printf("%sbatches of %s queries and more are answered by FULL, which is faster there\n", indent,
               cli_number(info->full_from));
    if (o->method == WO_METHOD_FULL) return;
    printf("%s%s %s %s neurons, the largest %s; %s empty; %s\n", indent, cli_number(info->n_cells),
           info->n_cells == 1 ? "cell holds" : "cells hold", cli_number(info->n_entries), cli_number(info->largest),
           cli_number(info->n_empty), cli_bytes(info->index_bytes));
}

static json_t *options_json(const wo_build_options *o)
{
    json_t *json = json_pack("{s:s, s:I}", "weights", weights_names[o->weights & 3], "seed", (json_int_t)o->seed);
    if (o->method == WO_METHOD_EVIDENCE)
        json_object_set_new(json, "router", json_string(has_tree(o) ? "tree" : "hash"));
    if (has_tree(o))
        json_object_update_new(json,
                               json_pack("{s:i, s:i, s:i, s:i, s:i}", "nodes", (int)o->nodes, "leaves", (int)o->leaves,
                                         "beam", (int)o->beam, "route_d", (int)o->route_d, "probes", (int)o->probes));
    if (has_tables(o))
        json_object_update_new(json,
                               json_pack("{s:i, s:i, s:i}", "K", (int)o->K, "L", (int)o->L, "probes", (int)o->probes));
    if (o->method == WO_METHOD_POPULAR) json_object_set_new(json, "popular", json_integer((json_int_t)o->n_popular));
    if (o->method == WO_METHOD_EVIDENCE)
        json_object_update_new(json, json_pack("{s:f, s:s, s:I, s:I, s:s*}", "lambda", o->lambda, "source",
                                               source_names[o->source & 3], "source_k", (json_int_t)o->source_k, "thin",
                                               (json_int_t)o->thin, "learner",
                                               has_tree(o) ? NULL : learner_names[o->learner & 3]));
    if (o->method == WO_METHOD_EVIDENCE && o->fallback)
        json_object_set_new(json, "fallback", json_integer((json_int_t)o->fallback));
    if (o->method == WO_METHOD_LSS)
        json_object_update_new(json,
                               json_pack("{s:s, s:s, s:s, s:f, s:f, s:b}", "loss", loss_names[o->loss & 1], "init",
                                         init_names[o->init & 1], "optimiser", optimiser_names[o->optimiser & 1], "t1",
                                         o->t1, "t2", o->t2, "t_values", o->t_are_values));
    if (is_learned(o))
        json_object_update_new(json, json_pack("{s:I, s:f, s:I}", "iterations", (json_int_t)o->iterations, "rate",
                                               o->rate, "batch", (json_int_t)o->batch));
    return json;
}

json_t *cli_index_json(const cli_index *index)
{
    const wo_index_info *info = &index->info;
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "method", info->method_name,
                     "options", options_json(&index->options), "m", (json_int_t)info->m, "d", (json_int_t)info->d,
                     "cells", (json_int_t)info->n_cells, "entries", (json_int_t)info->n_entries, "empty_cells",
                     (json_int_t)info->n_empty, "largest_cell", (json_int_t)info->largest, "index_bytes",
                     (json_int_t)info->index_bytes, "full_from", (json_int_t)info->full_from, "full_to",
                     (json_int_t)info->full_to, "names", info->has_names);
}

void cli_index_warn(const char *path, const cli_index *index, bool exact_fallback)
{
    if (!exact_fallback || index->options.fallback || index->info.method == WO_METHOD_FULL) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fputs(" has no threshold, so that --exact-fallback changes nothing: 'wideout build --fallback N' sets one\n",
          stderr);
}
