/* The table of build options, and what reads and writes options by their names. */
#include "index/options.h"

#include "base/c_locale.h"
#include "base/error.h"
#include "base/sized.h"
#include "index/index.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table --------------------------------------------------------------------------------------------- */

enum {
    POPULAR = 1 << WO_METHOD_POPULAR,
    LSS = 1 << WO_METHOD_LSS,
    EVIDENCE = 1 << WO_METHOD_EVIDENCE,
    LEARNED = LSS | EVIDENCE,
    TABLES = 1 << WO_METHOD_SLIDE | LEARNED,
    ANY = (1 << WOI_N_METHODS) - 1,
    HASH = 1 << WO_ROUTER_HASH,
    TREE = 1 << WO_ROUTER_TREE,
    BOTH = HASH | TREE,
};

#define AT(member) offsetof(wo_build_options, member)
#define ALL(x)           \
    {                    \
        x, x, x, x, x, x \
    }
/* slide and lss; evidence; full, popular and screen have no use for it and keep 0 */
#define OF_TABLES(tables, evidence)           \
    {                                         \
        0, 0, (tables), (tables), evidence, 0 \
    }

/* popular and evidence, whose cells are filled from logs */
#define OF_LOGS(x)       \
    {                    \
        0, x, 0, 0, x, 0 \
    }

/* In the order of the file's metadata. A new option comes last, and is late: older files lack it. */
const woi_option woi_options[] = {
    {"method",
     WOI_OPTION_U32,
     AT(method),
     "full|popular|slide|lss|evidence|screen",
     0,
     5,
     0,
     ANY,
     BOTH,
     false,
     {0, 1, 2, 3, 4, 5},
     .help = "how an index is built",
     .fix = WO_FIX_METHOD},
    {"K", WOI_OPTION_U32, AT(K), NULL, 1, WOI_MAX_BITS, 0, TABLES, HASH, false, OF_TABLES(4, 10),
     .help = "hyperplanes in a table, which has 2^K cells", .fix = WO_FIX_K},
    {"L", WOI_OPTION_U32, AT(L), NULL, 1, WOI_MAX_TABLES, 0, TABLES, HASH, false, OF_TABLES(10, 4), .help = "tables",
     .fix = WO_FIX_L},
    {"probes", WOI_OPTION_U32, AT(probes), NULL, 1, WOI_MAX_PROBES, 0, TABLES, BOTH, false, ALL(1),
     .help = "cells opened in each table or the tree", .fix = WO_FIX_PROBES},
    {"popular", WOI_OPTION_U32, AT(n_popular), NULL, 1, INT32_MAX, 0, POPULAR, BOTH, false, ALL(500),
     .help = "classes in the one cell", .fix = WO_FIX_POPULAR},
    {"router", WOI_OPTION_U32, AT(router), "hash|tree", 0, 1, 0, EVIDENCE, BOTH, false, ALL(WO_ROUTER_HASH),
     .help = "what finds the cells: hyperplanes or a k-means tree", .fix = WO_FIX_ROUTER},
    {"nodes", WOI_OPTION_U32, AT(nodes), NULL, 0, WOI_MAX_NODES, 0, EVIDENCE, TREE, false, ALL(0),
     .help = "centres on the tree's first level; 1: flat; 0: from the data", .fix = WO_FIX_TREE},
    {"leaves", WOI_OPTION_U32, AT(leaves), NULL, 0, WOI_MAX_FAN, 0, EVIDENCE, TREE, false, ALL(0),
     .help = "centres below a node, on average; 0: from the data", .fix = WO_FIX_TREE},
    {"beam", WOI_OPTION_U32, AT(beam), NULL, 1, WOI_MAX_BEAM, 0, EVIDENCE, TREE, false, OF_TABLES(0, 2),
     .help = "at most so many nodes are looked into", .fix = WO_FIX_BEAM},
    {"route_d", WOI_OPTION_U32, AT(route_d), NULL, 0, UINT32_MAX, 0, EVIDENCE, TREE, false, ALL(0),
     .help = "coordinates that the tree works in; 0: 32", .fix = WO_FIX_ROUTE_D},
    {"learner", WOI_OPTION_U32, AT(learner), "none|mix", 0, 1, 0, EVIDENCE, HASH, false, ALL(WO_LEARNER_MIX),
     .help = "of the hyperplanes: left random, or learned"},
    {"source", WOI_OPTION_U32, AT(source), "labels|top|both", 1, 3, 0, EVIDENCE, BOTH, false, ALL(WO_SOURCE_BOTH),
     .help = "what a query needs: its labels, FULL's best, both", .fix = WO_FIX_SOURCE},
    {"source_k", WOI_OPTION_U32, AT(source_k), NULL, 1, 1000, 0, POPULAR | EVIDENCE, BOTH, false, ALL(5),
     .help = "how many of FULL's best a query needs"},
    {"lambda", WOI_OPTION_REAL, AT(lambda), NULL, 0, 2, 0, EVIDENCE, BOTH, false, ALL(0.1),
     .help = "how often a cell's queries must need a class", .fix = WO_FIX_LAMBDA},
    {"thin", WOI_OPTION_U32, AT(thin), NULL, 0, UINT32_MAX, 0, EVIDENCE, BOTH, false, ALL(16),
     .help = "a cell of fewer training queries borrows from neighbours"},
    {"fallback", WOI_OPTION_U32, AT(fallback), NULL, 0, UINT32_MAX, 0, EVIDENCE, BOTH, false, ALL(0),
     .help = "open 4 times as many cells where these have fewer queries", .fix = WO_FIX_FALLBACK},
    {"iterations", WOI_OPTION_U32, AT(iterations), NULL, 0, 1e7, 0, LEARNED, HASH, true, OF_TABLES(1500, 300),
     .help = "steps of learning"},
    {"rate", WOI_OPTION_REAL, AT(rate), NULL, 1e-9, 1e3, 0, LEARNED, HASH, true, OF_TABLES(0.015, 0.02),
     .help = "learning rate"},
    {"batch", WOI_OPTION_U32, AT(batch), NULL, 1, 1 << 20, 0, LEARNED, HASH, true, OF_TABLES(256, 1024),
     .help = "queries a step of learning"},
    {"loss", WOI_OPTION_U32, AT(loss), "paper|margin", 0, 1, 0, LSS, BOTH, false, ALL(WO_LOSS_PAPER),
     .help = "what learning minimises"},
    {"init", WOI_OPTION_U32, AT(init), "random|mean", 0, 1, 0, LSS, BOTH, false, ALL(WO_INIT_RANDOM),
     .help = "where the hyperplanes start"},
    {"optimiser", WOI_OPTION_U32, AT(optimiser), "adam|sgd", 0, 1, 0, LSS, BOTH, false, ALL(WO_OPTIMISER_ADAM),
     .help = "how the hyperplanes move"},
    {"t1", WOI_OPTION_REAL, AT(t1), NULL, -1e9, 1e9, 0, LSS, BOTH, false, ALL(0),
     .help = "missed labels count above this rank; 0: all"},
    {"t2", WOI_OPTION_REAL, AT(t2), NULL, -1e9, 1e9, 0, LSS, BOTH, false, ALL(0),
     .help = "retrieved non-labels count below this rank; 0: all"},
    {"t_are_values", WOI_OPTION_FLAG, AT(t_are_values), NULL, 0, 1, 0, LSS, BOTH, false, ALL(0),
     .help = "t1 and t2 are logits, not ranks"},
    {"trace_points", WOI_OPTION_U32, AT(trace_points), NULL, 0, 1e5, 0, LSS, BOTH, false, ALL(50),
     .help = "how often the trace is taken while learning"},
    {"weights", WOI_OPTION_U32, AT(weights), "f32|bf16|int8|none|int8-bf16", 0, 4, 0, ANY, BOTH, false,
     ALL(WO_WEIGHTS_F32), .help = "rows of the layer in the index", .fix = WO_FIX_WEIGHTS},
    {"seed", WOI_OPTION_U64, AT(seed), NULL, 0, 18446744073709551615.0, 0, ANY, BOTH, false, ALL(1),
     .help = "seed of everything random"},
    {"max_neurons", WOI_OPTION_U32, AT(max_classes), NULL, 0, UINT32_MAX, 0, LSS, BOTH, false, ALL(0),
     .help = "keep the best step with at most so many classes a query; 0: any", .late = true},
    {"last_step", WOI_OPTION_FLAG, AT(last_step), NULL, 0, 1, 0, LSS, BOTH, false, ALL(0),
     .help = "keep the last step, not the best, as the paper does", .late = true, .missing = 1},
    {"cap", WOI_OPTION_U32, AT(cap), NULL, 0, INT32_MAX, 0, EVIDENCE, BOTH, false, ALL(0),
     .help = "a cell holds at most so many classes; 0: any number", .fix = WO_FIX_CAP, .late = true},
    {"prior", WOI_OPTION_REAL, AT(prior), NULL, 0, 2, 0, EVIDENCE, BOTH, false, ALL(0),
     .help = "how much the cells' own evidence adds to a logit", .fix = WO_FIX_PRIOR, .late = true},
    {"focus", WOI_OPTION_REAL, AT(focus), NULL, 0, 1e4, 0, EVIDENCE, TREE, false, ALL(0),
     .help = "how much more the evidence of nearer leaves counts", .fix = WO_FIX_PRIOR, .late = true},
    {"spread", WOI_OPTION_U32, AT(spread), NULL, 0, 15, 0, EVIDENCE, TREE, false, ALL(0),
     .help = "logged queries count in so many more leaves, in part", .fix = WO_FIX_SPREAD, .late = true},
    {"partition", WOI_OPTION_FLAG, AT(partition), NULL, 0, 1, 0, EVIDENCE, BOTH, false, ALL(0),
     .help = "learn log Z too, for probabilities over all classes", .late = true},
    {"fallback_by", WOI_OPTION_U32, AT(fallback_by), "wider|screen", 0, 1, 0, EVIDENCE, BOTH, false,
     ALL(WO_FALLBACK_WIDER), .help = "what a query below fallback gets: more cells, or a screen", .late = true},
    {"mix", WOI_OPTION_REAL, AT(mix), NULL, -1, WOI_MOST_MIX, 0, EVIDENCE, BOTH, false, ALL(-1),
     .help = "how much the cells' evidence counts in probabilities", .late = true, .missing = -1},
    {"rows", WOI_OPTION_U32, AT(rows), NULL, 0, 16, 0, EVIDENCE, TREE, false, ALL(0),
     .help = "leaves in which a class lies for its row alone; 0: none", .late = true},
    {"keep", WOI_OPTION_U32, AT(keep), NULL, 0, 1 << 24, 0, POPULAR | EVIDENCE, BOTH, false, OF_LOGS(8192),
     .help = "logged queries that stay in it, to update by", .late = true},
    {0},
};

static bool same_name(const char *a, const char *b)
{
    for (; *a && (*a == *b || (*a == '_' && *b == '-')); a++) b++;
    return !*a && !*b;
}

const woi_option *woi_option_find(const char *name)
{
    for (const woi_option *o = woi_options; o->name; o++)
        if (same_name(o->name, name)) return o;
    return NULL;
}

/* ---- Values ------------------------------------------------------------------------------------------------ */

static size_t width(const woi_option *option)
{
    static const size_t bytes[] = {sizeof(uint32_t), sizeof(uint64_t), sizeof(double), sizeof(uint8_t)};
    return bytes[option->kind];
}

double woi_option_value(const woi_option *option, const wo_build_options *options)
{
    const void *at = (const char *)options + option->offset;
    switch (option->kind) {
    case WOI_OPTION_U32: return *(const uint32_t *)at;
    case WOI_OPTION_U64: return (double)*(const uint64_t *)at;
    case WOI_OPTION_REAL: return *(const double *)at;
    case WOI_OPTION_FLAG: return *(const uint8_t *)at;
    }
    return NAN;
}

void woi_option_set_value(const woi_option *option, double value, wo_build_options *options)
{
    void *at = (char *)options + option->offset;
    switch (option->kind) {
    case WOI_OPTION_U32: *(uint32_t *)at = (uint32_t)value; break;
    case WOI_OPTION_U64: *(uint64_t *)at = (uint64_t)value; break;
    case WOI_OPTION_REAL: *(double *)at = value; break;
    case WOI_OPTION_FLAG: *(uint8_t *)at = value != 0; break;
    }
}

bool woi_option_used(const woi_option *option, const wo_build_options *options)
{
    if (!(option->methods >> options->method & 1)) return false;
    if (option->offset == AT(mix) && !options->partition) return false; /* there are no probabilities */
    if (options->method != WO_METHOD_EVIDENCE) return true;
    return option->routers >> options->router & 1 && !(option->learns && options->learner == WO_LEARNER_NONE);
}

wo_build_options woi_build_defaults(wo_method method)
{
    wo_build_options options = {.struct_size = sizeof options};
    const bool known = (unsigned)method < WOI_N_METHODS;
    for (const woi_option *o = woi_options; o->name; o++)
        woi_option_set_value(o, o->defaults[known ? method : WO_METHOD_FULL], &options);
    options.method = method;
    return options;
}

void wo_build_defaults(wo_method method, wo_build_options *options, size_t options_bytes)
{
    const wo_build_options o = woi_build_defaults(method);
    woi_sized_defaults(options, options_bytes, &o, sizeof o);
}

wo_status woi_build_take(const wo_build_options *given, wo_build_options *options, wo_error *err)
{
    wo_method method = WO_METHOD_EVIDENCE;
    if (given && given->struct_size >= offsetof(wo_build_options, method) + sizeof method) method = given->method;
    *options = woi_build_defaults(method);
    const wo_status status = woi_sized_take(options, sizeof *options, given, "build options", err);
    return status ? status : woi_build_check(options, err);
}

wo_status wo_build_check(const wo_build_options *options, wo_error *err)
{
    wo_build_options taken;
    return woi_build_take(options, &taken, err);
}

wo_status woi_options_check(const wo_build_options *options, wo_error *err)
{
    if ((unsigned)options->method >= WOI_N_METHODS)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "method", "%d is no method", (int)options->method);
    for (const woi_option *o = woi_options; o->name; o++) {
        const double value = woi_option_value(o, options);
        /* Words and numbers that are none are refused whatever the method: a file has them all. */
        if (!o->words && !woi_option_used(o, options) && (o->kind != WOI_OPTION_REAL || isfinite(value))) continue;
        const wo_status status = woi_check_range(o->name, value, o->low, o->high, err);
        if (status) return status;
        if (o->step && (uint32_t)value % o->step)
            return woi_fail_option(err, WO_ERR_ARGUMENT, o->name, "%s is %.10g, expected a multiple of %u", o->name,
                                   value, o->step);
    }
    return WO_OK;
}

/* Each option by itself, then what must hold among them. */
wo_status woi_build_check(const wo_build_options *o, wo_error *err)
{
    wo_status status = woi_options_check(o, err);
    if (!status) status = woi_check_range("threads", o->threads, 0, WOI_MAX_THREADS, err);
    if (status) return status;
    if (woi_uses_hash(o)) {
        if (o->probes > 1U << o->K)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "probes", "probes is %u, more than the %u cells of a table",
                                   o->probes, 1U << o->K);
        if ((uint64_t)o->L << o->K > (uint64_t)1 << 28)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "L", "%u tables of %u cells are too many: at most 2^28 in all",
                                   o->L, 1U << o->K);
    }
    if (o->method == WO_METHOD_LSS && o->last_step && o->max_classes)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "max_neurons",
                               "max_neurons is %u, but the last step is kept whatever it has", o->max_classes);
    if (o->method != WO_METHOD_EVIDENCE && o->fallback)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "fallback", "fallback is %u, but method %s counts no evidence",
                               o->fallback, woi_method_name(o->method));
    if (o->method != WO_METHOD_EVIDENCE && o->prior != 0)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "prior", "prior is %g, but method %s counts no evidence", o->prior,
                               woi_method_name(o->method));
    if ((o->method == WO_METHOD_FULL || o->method == WO_METHOD_SCREEN) &&
        (woi_has_bf16(o->weights) || woi_has_int8(o->weights))) {
        char word[WOI_OPTION_BYTES];
        woi_option_print(woi_option_find("weights"), o, word);
        return woi_fail_option(err, WO_ERR_ARGUMENT, "weights",
                               "weights is %s, but method %s answers with f32 rows: f32 or none", word,
                               woi_method_name(o->method));
    }
    if (o->mix < 0 && o->mix != -1 && woi_option_used(woi_option_find("mix"), o))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "mix", "mix is %g, expected 0 to %g, or -1: chosen", o->mix,
                               WOI_MOST_MIX);
    if (o->method != WO_METHOD_EVIDENCE && o->partition)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "partition", "partition is 1, but method %s learns no log Z",
                               woi_method_name(o->method));
    return WO_OK;
}

/* ---- Texts ------------------------------------------------------------------------------------------------- */

/* The place of a word in "a|b|c", or -1. */
static int find_word(const char *words, const char *word)
{
    const size_t bytes = strlen(word);
    for (int i = 0;; i++) {
        const size_t length = strcspn(words, "|");
        if (bytes && length == bytes && memcmp(words, word, bytes) == 0) return i;
        words += length;
        if (*words++ == '\0') return -1;
    }
}

/* The i-th of "a|b|c"; "?" where there are not so many. */
static void print_word(const char *words, int i, char text[WOI_OPTION_BYTES])
{
    for (; i > 0 && words; i--) {
        words = strchr(words, '|');
        if (words) words++;
    }
    const bool there = i == 0 && words;
    snprintf(text, WOI_OPTION_BYTES, "%.*s", there ? (int)strcspn(words, "|") : 1, there ? words : "?");
}

bool woi_option_parse(const woi_option *option, const char *text, wo_build_options *options)
{
    if (option->words) {
        const int word = find_word(option->words, text);
        if (word >= 0) woi_option_set_value(option, word + option->low, options);
        return word >= 0;
    }
    char *end;
    errno = 0;
    if (option->kind == WOI_OPTION_REAL) {
        const double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value)) return false;
        woi_option_set_value(option, value, options);
        return true;
    }
    if (*text < '0' || *text > '9') return false;
    const uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || (option->kind == WOI_OPTION_U32 && value > UINT32_MAX) ||
        (option->kind == WOI_OPTION_FLAG && value > 1))
        return false;
    if (option->kind == WOI_OPTION_U64)
        memcpy((char *)options + option->offset, &value, sizeof value);
    else
        woi_option_set_value(option, (double)value, options);
    return true;
}

static void print(const woi_option *option, const wo_build_options *options, int digits, char text[WOI_OPTION_BYTES])
{
    const double value = woi_option_value(option, options);
    if (option->words)
        print_word(option->words, (int)(value - option->low), text);
    else if (option->kind == WOI_OPTION_REAL)
        snprintf(text, WOI_OPTION_BYTES, "%.*g", digits, value);
    else if (option->kind == WOI_OPTION_U64)
        snprintf(text, WOI_OPTION_BYTES, "%" PRIu64, *(const uint64_t *)((const char *)options + option->offset));
    else
        snprintf(text, WOI_OPTION_BYTES, "%.0f", value);
}

void woi_option_print(const woi_option *option, const wo_build_options *options, char text[WOI_OPTION_BYTES])
{
    print(option, options, 17, text);
}

/* ---- For users --------------------------------------------------------------------------------------------- */

int wo_option_at(size_t i, wo_option_info *info)
{
    if (i >= sizeof woi_options / sizeof *woi_options - 1) return 0;
    const woi_option *o = &woi_options[i];
    const wo_option_info all = {
        .name = o->name,
        .help = o->help,
        .values = o->words,
        .low = o->low,
        .high = o->high,
        .whole = o->kind != WOI_OPTION_REAL,
        .step = o->step,
        .methods = o->methods,
        .routers = o->routers,
        .fix = o->fix,
    };
    return woi_sized_give(info, &all, sizeof all) == WO_OK;
}

/* An option that the caller's options, perhaps an older version's, have. */
static wo_status find(const wo_build_options *options, const char *name, const woi_option **option, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    *option = woi_option_find(name);
    if (!*option || (*option)->offset + width(*option) > options->struct_size)
        return woi_fail_option(err, WO_ERR_ARGUMENT, name, "'%s' is no build option",
                               woi_quote(quoted, name, strlen(name)));
    return WO_OK;
}

static wo_status refuse(const woi_option *o, const char *text, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    woi_quote(quoted, text, strlen(text));
    if (o->words)
        return woi_fail_option(err, WO_ERR_ARGUMENT, o->name, "%s takes %s, not '%s'", o->name, o->words, quoted);
    if (o->step)
        return woi_fail_option(err, WO_ERR_ARGUMENT, o->name, "%s takes a multiple of %u from %.10g to %.10g, not '%s'",
                               o->name, o->step, o->low, o->high, quoted);
    return woi_fail_option(err, WO_ERR_ARGUMENT, o->name, "%s takes a %snumber from %.10g to %.10g, not '%s'", o->name,
                           o->kind == WOI_OPTION_REAL ? "" : "whole ", o->low, o->high, quoted);
}

wo_status wo_build_set(wo_build_options *options, const char *name, const char *text, wo_error *err)
{
    const woi_option *option;
    const wo_status status = find(options, name, &option, err);
    if (status) return status;
    wo_build_options changed = {0};
    const woi_c_locale own = woi_c_locale_enter();
    const bool valid = woi_option_parse(option, text, &changed);
    woi_c_locale_leave(own);
    const double value = woi_option_value(option, &changed);
    if (!valid || !(value >= option->low && value <= option->high) || (option->step && (uint32_t)value % option->step))
        return refuse(option, text, err);
    memcpy((char *)options + option->offset, (const char *)&changed + option->offset, width(option));
    return WO_OK;
}

size_t wo_build_get(const wo_build_options *options, const char *name, char *text, size_t text_bytes)
{
    const woi_option *option;
    char own[WOI_OPTION_BYTES];
    if (find(options, name, &option, NULL)) return 0;
    const woi_c_locale locale = woi_c_locale_enter();
    /* The fewest digits that read back as the same number. */
    for (int digits = 15; digits <= 17; digits++) {
        print(option, options, digits, own);
        if (option->kind != WOI_OPTION_REAL || strtod(own, NULL) == woi_option_value(option, options)) break;
    }
    woi_c_locale_leave(locale);
    const int length = snprintf(text, text_bytes, "%s", own);
    return length < 0 ? 0 : (size_t)length;
}

int wo_build_uses(const wo_build_options *options, const char *name)
{
    const woi_option *option;
    return !find(options, name, &option, NULL) && (unsigned)options->method < WOI_N_METHODS &&
           woi_option_used(option, options);
}
