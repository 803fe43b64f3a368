/* What an index is, in words and in JSON. */
#include "index_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 100, NARROW = 40 };

/* Whether a row of the library's table is shown as a setting: the rest has a place of its own. */
static bool is_setting(const wo_build_options *o, const char *name)
{
    static const char *const others[] = {"method", "weights", "seed"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return false;
    return wo_build_uses(o, name);
}

/* "method evidence, K 10, L 4, ...; seed 1", over several lines where it is long. */
static void print_options(const wo_build_options *o, const char *method, const char *indent)
{
    wo_option_info info = {.struct_size = sizeof info};
    char value[40], entry[96];
    const int columns = cli_columns(WIDTH), width = columns > WIDTH ? WIDTH : columns < NARROW ? NARROW : columns;
    int used = printf("%smethod %s", indent, method);
    for (size_t i = 0; wo_option_at(i, &info); i++) {
        if (!is_setting(o, info.name)) continue;
        wo_build_get(o, info.name, value, sizeof value);
        const int bytes = snprintf(entry, sizeof entry, "%s %s", info.name, value);
        if (used + bytes + 3 > width) /* a comma follows */
            used = printf(",\n%s  %s", indent, entry) - 2;
        else
            used += printf(", %s", entry);
    }
    snprintf(entry, sizeof entry, "seed %" PRIu64, o->seed);
    if (used + (int)strlen(entry) + 2 > width)
        printf(";\n%s  %s\n", indent, entry);
    else
        printf("; %s\n", entry);
}

/* The step that lss kept, from its trace. */
static void find_kept(const wo_index *index, cli_index *of)
{
    static const char *const names[] = {"step", "judged_recall", "judged_neurons", "kept"};
    wo_trace trace = {.struct_size = sizeof trace};
    if (!wo_index_trace(index, &trace)) return;
    for (size_t r = 0; r < trace.rows; r++) {
        double values[4] = {0, NAN, NAN, 0};
        for (size_t c = 0; c < trace.columns; c++)
            for (int i = 0; i < 4; i++)
                if (strcmp(trace.names[c], names[i]) == 0) values[i] = trace.values[r * trace.columns + c];
        if (values[3] != 1 || isnan(values[1])) continue;
        of->judged = true;
        of->kept_step = values[0];
        of->kept_recall = values[1];
        of->kept_neurons = values[2];
        of->within = !of->options.max_classes || values[2] <= of->options.max_classes;
    }
}

cli_index cli_index_of(const wo_index *index)
{
    cli_index of = {.info.struct_size = sizeof of.info, .options.struct_size = sizeof of.options};
    wo_index_describe(index, &of.info);
    wo_index_options(index, &of.options);
    find_kept(index, &of);
    return of;
}

const char *cli_index_kind(const cli_index *index)
{
    return index->info.method == WO_METHOD_FULL     ? ": this is FULL, the exact layer"
           : index->info.method == WO_METHOD_SCREEN ? ": a screen: all classes in int8, and the best few exactly"
                                                    : "";
}

void cli_index_print(const cli_index *index, const char *indent)
{
    const wo_index_info *info = &index->info;
    const wo_build_options *o = &index->options;
    char weights[16];
    wo_build_get(o, "weights", weights, sizeof weights);
    print_options(o, info->method_name, indent);
    printf("%s%s of %s, %s names; rows in the file: %s\n", indent, cli_count(info->m, "class"),
           cli_count(info->d, "dimension"), info->has_names ? "with" : "without", weights);
    if (info->n_shards)
        printf("%sshard %" PRIu32 " of %" PRIu32 ", of a layer of %s\n", indent, info->shard + 1, info->n_shards,
               cli_count(info->m_whole, "class"));
    if (info->full_from && info->full_to)
        printf("%sbatches of %s to %s are answered by FULL, which is faster there\n", indent,
               cli_number(info->full_from), cli_count(info->full_to, "query"));
    else if (info->full_from)
        printf("%sbatches of %s and more are answered by FULL, which is faster there\n", indent,
               cli_count(info->full_from, "query"));
    if (info->n_removed) printf("%s%s removed\n", indent, cli_count(info->n_removed, "class"));
    if (o->method == WO_METHOD_FULL) return;
    if (o->method == WO_METHOD_SCREEN) {
        printf("%sall classes in int8; %s\n", indent, cli_bytes(info->index_bytes));
        return;
    }
    printf("%s%s %s %s, the largest %s; %s empty; %s\n", indent, cli_number(info->n_cells),
           info->n_cells == 1 ? "cell holds" : "cells hold", cli_count(info->n_entries, "class"),
           cli_number(info->largest), cli_number(info->n_empty), cli_bytes(info->index_bytes));
    if (info->n_kept) printf("%skeeps %s of its log\n", indent, cli_count(info->n_kept, "query"));
    if (index->judged)
        printf("%skept step %.0f of %" PRIu32 ": label recall %.4f with %.1f classes a query\n", indent,
               index->kept_step, o->iterations, index->kept_recall, index->kept_neurons);
    if (index->judged && !index->within)
        printf("%sno step has as few as %" PRIu32 " classes a query: this one has the fewest\n", indent,
               o->max_classes);
}

static json_t *value_json(const wo_option_info *info, const wo_build_options *o)
{
    char value[40];
    wo_build_get(o, info->name, value, sizeof value);
    if (info->values) return json_string(value);
    if (!info->whole) return json_real(strtod(value, NULL));
    const json_int_t number = (json_int_t)strtoull(value, NULL, 10);
    return info->low == 0 && info->high == 1 ? json_boolean(number) : json_integer(number);
}

static json_t *options_json(const wo_build_options *o)
{
    wo_option_info info = {.struct_size = sizeof info};
    json_t *json = json_object();
    for (size_t i = 0; wo_option_at(i, &info); i++)
        if (strcmp(info.name, "method") != 0 && wo_build_uses(o, info.name))
            json_object_set_new(json, info.name, value_json(&info, o));
    return json;
}

json_t *cli_index_json(const cli_index *index)
{
    const wo_index_info *info = &index->info;
    json_t *json = json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "method", info->method_name, "options",
        options_json(&index->options), "m", (json_int_t)info->m, "d", (json_int_t)info->d, "cells",
        (json_int_t)info->n_cells, "entries", (json_int_t)info->n_entries, "empty_cells", (json_int_t)info->n_empty,
        "largest_cell", (json_int_t)info->largest, "index_bytes", (json_int_t)info->index_bytes, "full_from",
        (json_int_t)info->full_from, "full_to", (json_int_t)info->full_to, "names", info->has_names);
    if (json && info->n_shards)
        json_object_update_new(json, json_pack("{s:I, s:I, s:I}", "shard", (json_int_t)info->shard + 1, "shards",
                                               (json_int_t)info->n_shards, "m_whole", (json_int_t)info->m_whole));
    const bool all = info->method == WO_METHOD_FULL || info->method == WO_METHOD_SCREEN;
    if (json) json_object_set_new(json, "scores_all", json_boolean(all));
    if (json) json_object_set_new(json, "kept_queries", json_integer((json_int_t)info->n_kept));
    if (json) json_object_set_new(json, "removed", json_integer((json_int_t)info->n_removed));
    if (json && index->judged)
        json_object_set_new(json, "kept",
                            json_pack("{s:I, s:f, s:f, s:b}", "step", (json_int_t)index->kept_step, "label_recall",
                                      index->kept_recall, "neurons", index->kept_neurons, "within_max_neurons",
                                      index->within));
    return json;
}

void cli_index_warn(const char *path, const cli_index *index, bool exact_fallback)
{
    if (index->info.n_removed && index->info.n_removed == index->info.m) {
        fprintf(stderr, "%s: warning: ", cli_program);
        cli_print_text(stderr, path);
        fprintf(stderr, ": no class is left to be answered: all %s were removed by 'wideout update'\n",
                cli_number(index->info.m));
    }
    if (!exact_fallback || index->options.fallback || index->info.method == WO_METHOD_FULL) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fputs(" has no threshold, so that --exact-fallback changes nothing: 'wideout build --fallback N' sets one\n",
          stderr);
}

int cli_index_refuse_probes(const cli_command *self, const char *path, const cli_index *index, uint64_t probes)
{
    const wo_method method = index->options.method;
    if (!probes || method == WO_METHOD_SLIDE || method == WO_METHOD_LSS || method == WO_METHOD_EVIDENCE) return CLI_OK;
    return cli_usage(self, "--probes belongs to indexes of method slide, lss and evidence: '%s' is of method %s", path,
                     index->info.method_name);
}

bool cli_index_by_full(const wo_index_info *info, uint64_t batch)
{
    return info->full_from && batch >= info->full_from && (!info->full_to || batch <= info->full_to);
}

/* The largest value of an option. */
static double most_of(const char *option)
{
    wo_option_info info = {.struct_size = sizeof info};
    for (size_t i = 0; wo_option_at(i, &info); i++)
        if (strcmp(info.name, option) == 0) return info.high;
    return INFINITY;
}

void cli_index_warn_k(const char *path, const wo_index *index, uint64_t k)
{
    wo_curve curve = {.struct_size = sizeof curve};
    wo_build_options o = {.struct_size = sizeof o};
    wo_index_options(index, &o);
    const bool tuned = wo_index_curve(index, &curve);
    const uint32_t made_for = tuned ? curve.k : o.source_k;
    if (o.method != WO_METHOD_EVIDENCE || (!tuned && !(o.source & WO_SOURCE_TOP)) || k <= made_for) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fprintf(stderr, " was made for %" PRIu32 " answer%s, and may miss many of %" PRIu64 ": ", made_for,
            made_for == 1 ? "" : "s", k);
    const double most = most_of("source_k");
    if ((double)k <= most)
        fprintf(stderr, "'wideout build %s %" PRIu64 "' makes one for so many\n", tuned ? "-k" : "--source-k", k);
    else
        fprintf(stderr, "no cells are made for more than %.0f, '--method screen' looks through all classes\n", most);
}

/* Whether FULL is no better than who always answers the most frequent label, nor twice as good at the upper end of what
 * its hits may be by chance (95%, one-sided): of few queries that happens to a good network too. */
static bool is_no_better(double n, double full_p_at_1, double most_frequent)
{
    static const double Z = 1.645;
    const double hits = n * full_p_at_1, upper = hits + Z * Z / 2 + Z * sqrt(hits + Z * Z / 4);
    return full_p_at_1 <= most_frequent && upper < 2 * n * most_frequent;
}

void cli_warn_of_hits(const char *path, const wo_log *log, uint64_t n, double full_p_at_1)
{
    enum { FEW = 50 }; /* with a P@1 of 0.05 fewer are without a hit once in thirteen times */
    if (isnan(full_p_at_1) || n < FEW) return;
    const double most_frequent = full_p_at_1 > 0 ? wo_log_most_frequent(log) : NAN;
    if (full_p_at_1 > 0 && !is_no_better((double)n, full_p_at_1, most_frequent)) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fprintf(stderr, ": on %s FULL's best answer is ", cli_count(n, "labelled query"));
    if (full_p_at_1 > 0)
        fprintf(stderr,
                "a label for %.3g%%, and the most frequent label alone for %.3g%%: are these the labels of these "
                "queries, in their order?\n",
                100 * full_p_at_1, 100 * most_frequent);
    else
        fputs("never a label: are they labels of this layer, and do they count from 0?\n", stderr);
}
