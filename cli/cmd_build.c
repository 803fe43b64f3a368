/* wideout build: learns an index from a wide layer and a log of its queries. */
#include "cli.h"
#include "curve_text.h"
#include "index_text.h"
#include "layer_options.h"
#include "tune_options.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    cli_tune tune;
    const char *log, *output;
    int method, router, learner, source, loss, init, optimiser, weights; /* CLI_CHOICE */
    uint64_t K, L, probes, nodes, leaves, beam, route_d, source_k, thin, fallback, iterations, batch, popular;
    double lambda, rate, t1, t2;
    bool t_values;
} arguments;

static const cli_option options[] = {
    CLI_LAYER_OPTIONS(arguments, layer, "the wide layer: a layer, a network, a model or .npy"),
    {"log", 0, CLI_TEXT, offsetof(arguments, log), "FILE", "queries to learn from ('wideout embed')", false},
    {"output", 'o', CLI_TEXT, offsetof(arguments, output), "FILE", "the index", false},
    {"method", 0, CLI_CHOICE, offsetof(arguments, method), "full|popular|slide|lss|evidence",
     "default: what tuning finds best", false},
    CLI_TUNE_OPTIONS(arguments, tune),
    {"bits", 'K', CLI_SIZE, offsetof(arguments, K), "N", "hyperplanes in a table, 1 to 24: it has 2^N cells", false},
    {"tables", 'L', CLI_SIZE, offsetof(arguments, L), "N", "tables, 1 to 256", false},
    {"probes", 0, CLI_SIZE, offsetof(arguments, probes), "N", "cells opened in each table or the tree, 1 to 64", false},
    {"router", 0, CLI_CHOICE, offsetof(arguments, router), "hash|tree",
     "evidence: what finds the cells: hyperplanes or a k-means tree", false},
    {"nodes", 0, CLI_SIZE, offsetof(arguments, nodes), "N", "tree: centres on its first level (default: from the data)",
     false},
    {"leaves", 0, CLI_SIZE, offsetof(arguments, leaves), "N", "tree: centres below each node (default: from the data)",
     false},
    {"beam", 0, CLI_SIZE, offsetof(arguments, beam), "N", "tree: at most so many nodes are looked into, 1 to 16",
     false},
    {"route-d", 0, CLI_SIZE, offsetof(arguments, route_d), "N", "tree: coordinates that it works in (default: 32)",
     false},
    {"lambda", 0, CLI_REAL, offsetof(arguments, lambda), "0-2",
     "evidence: how often a cell's queries must need a neuron", false},
    {"source", 0, CLI_CHOICE, offsetof(arguments, source), "labels|top|both",
     "evidence: what a query needs: its labels, FULL's best, both", false},
    {"source-k", 0, CLI_SIZE, offsetof(arguments, source_k), "N", "evidence: how many of FULL's best", false},
    {"learner", 0, CLI_CHOICE, offsetof(arguments, learner), "none|mix", "evidence: of the hyperplanes", false},
    {"thin", 0, CLI_SIZE, offsetof(arguments, thin), "N", "evidence: cells of fewer queries borrow from neighbours",
     false},
    {"fallback", 0, CLI_SIZE, offsetof(arguments, fallback), "N",
     "evidence: queries in cells of fewer open four times as many", false},
    {"loss", 0, CLI_CHOICE, offsetof(arguments, loss), "paper|margin", "lss: what learning minimises", false},
    {"init", 0, CLI_CHOICE, offsetof(arguments, init), "random|mean", "lss: where the hyperplanes start", false},
    {"optimiser", 0, CLI_CHOICE, offsetof(arguments, optimiser), "adam|sgd", "lss: how they move", false},
    {"t1", 0, CLI_REAL, offsetof(arguments, t1), "-1e9-1e9", "lss: missed labels count above this rank", false},
    {"t2", 0, CLI_REAL, offsetof(arguments, t2), "-1e9-1e9", "lss: retrieved non-labels count below this rank", false},
    {"t-values", 0, CLI_FLAG, offsetof(arguments, t_values), NULL, "lss: t1 and t2 are logits, not ranks", false},
    {"iterations", 0, CLI_SIZE, offsetof(arguments, iterations), "N", "lss, evidence: steps of learning", false},
    {"rate", 0, CLI_REAL, offsetof(arguments, rate), "0-10", "lss, evidence: learning rate", false},
    {"learn-batch", 0, CLI_SIZE, offsetof(arguments, batch), "N", "lss, evidence: queries a step", false},
    {"popular", 0, CLI_SIZE, offsetof(arguments, popular), "N", "popular: neurons in its cell", false},
    {"weights", 0, CLI_CHOICE, offsetof(arguments, weights), "f32|bf16|int8|none",
     "rows of the layer in the index (default: f32, or tuned)", false},
    {0},
};

/* ---- Options and methods ----------------------------------------------------------------------------------- */

static const char *const method_names[] = {"full", "popular", "slide", "lss", "evidence"}; /* by wo_method */
enum { TABLES = 1 << WO_METHOD_SLIDE | 1 << WO_METHOD_LSS | 1 << WO_METHOD_EVIDENCE };
enum { LEARNED = 1 << WO_METHOD_LSS | 1 << WO_METHOD_EVIDENCE };

/* An option of some methods: its place in the options, whether it was given, and the methods that have it. */
typedef struct use {
    const char *name;
    bool given;
    unsigned methods;
} use;

static int check_methods(const cli_command *self, const arguments *args, wo_method method)
{
    const unsigned evidence = 1 << WO_METHOD_EVIDENCE, lss = 1 << WO_METHOD_LSS, popular = 1 << WO_METHOD_POPULAR;
    const use uses[] = {
        {"-K", args->K, TABLES},
        {"-L", args->L, TABLES},
        {"--probes", args->probes, TABLES},
        {"--router", args->router, evidence},
        {"--nodes", args->nodes, evidence},
        {"--leaves", args->leaves, evidence},
        {"--beam", args->beam, evidence},
        {"--route-d", args->route_d, evidence},
        {"--lambda", !isnan(args->lambda), evidence},
        {"--source", args->source, evidence},
        {"--source-k", args->source_k, evidence},
        {"--learner", args->learner, evidence},
        {"--thin", args->thin, evidence},
        {"--fallback", args->fallback, evidence},
        {"--loss", args->loss, lss},
        {"--init", args->init, lss},
        {"--optimiser", args->optimiser, lss},
        {"--t1", !isnan(args->t1), lss},
        {"--t2", !isnan(args->t2), lss},
        {"--t-values", args->t_values, lss},
        {"--iterations", args->iterations, LEARNED},
        {"--rate", !isnan(args->rate), LEARNED},
        {"--learn-batch", args->batch, LEARNED},
        {"--popular", args->popular, popular},
    };
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        if (!uses[i].given || uses[i].methods >> method & 1) continue;
        char list[64] = "";
        for (int m = 0, n = 0; m <= WO_METHOD_EVIDENCE; m++) {
            if (!(uses[i].methods >> m & 1)) continue;
            const bool last = uses[i].methods >> (m + 1) == 0;
            const size_t used = strlen(list);
            snprintf(list + used, sizeof list - used, "%s%s", n == 0 ? "" : last ? " and " : ", ", method_names[m]);
            n++;
        }
        return cli_usage(self, "%s belongs to --method %s, not to %s", uses[i].name, list, method_names[method]);
    }
    if (method == WO_METHOD_EVIDENCE && args->learner == 1 + WO_LEARNER_NONE)
        for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
            if (uses[i].given && uses[i].methods == LEARNED)
                return cli_usage(self, "%s is for learning, and --learner none does not", uses[i].name);
    const bool tree = args->router == 1 + WO_ROUTER_TREE;
    const use routers[] = {
        {"-K", tree && args->K, 0},
        {"-L", tree && args->L, 0},
        {"--learner", tree && args->learner, 0},
        {"--iterations", tree && args->iterations, 0},
        {"--rate", tree && !isnan(args->rate), 0},
        {"--learn-batch", tree && args->batch, 0},
        {"--nodes", !tree && args->nodes, 1},
        {"--leaves", !tree && args->leaves, 1},
        {"--beam", !tree && args->beam, 1},
        {"--route-d", !tree && args->route_d, 1},
    };
    for (size_t i = 0; i < sizeof routers / sizeof routers[0]; i++)
        if (routers[i].given)
            return cli_usage(self, "%s belongs to --router %s", routers[i].name, routers[i].methods ? "tree" : "hash");
    return CLI_OK;
}

/* The library would refuse these too, but what it says is taken to be about the log. */
static int check_ranges(const cli_command *self, const arguments *args, const wo_build_options *defaults)
{
    const struct {
        const char *name;
        uint64_t given, most;
    } ranges[] = {
        {"-K", args->K, 24},
        {"-L", args->L, 256},
        {"--probes", args->probes, 64},
        {"--nodes", args->nodes, 1024},
        {"--leaves", args->leaves, 1024},
        {"--beam", args->beam, 16},
        {"--route-d", args->route_d, UINT32_MAX},
        {"--source-k", args->source_k, 1000},
        {"--thin", args->thin, UINT32_MAX},
        {"--fallback", args->fallback, UINT32_MAX},
        {"--iterations", args->iterations, 10000000},
        {"--learn-batch", args->batch, 1 << 20},
        {"--popular", args->popular, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].given > ranges[i].most)
            return cli_usage(self, "%s takes at most %" PRIu64 ", not %" PRIu64, ranges[i].name, ranges[i].most,
                             ranges[i].given);
    const uint64_t K = args->K ? args->K : defaults->K, L = args->L ? args->L : defaults->L;
    if (args->nodes % 16 || args->leaves % 16)
        return cli_usage(self, "%s takes a multiple of 16, not %" PRIu64, args->nodes % 16 ? "--nodes" : "--leaves",
                         args->nodes % 16 ? args->nodes : args->leaves);
    if (args->router != 1 + WO_ROUTER_TREE && args->probes > UINT64_C(1) << K)
        return cli_usage(self, "--probes %" PRIu64 " is more than the %" PRIu64 " cells of a table", args->probes,
                         UINT64_C(1) << K);
    if (L << K > UINT64_C(1) << 28)
        return cli_usage(self, "%" PRIu64 " tables of %" PRIu64 " cells are too many: at most 2^28 in all", L,
                         UINT64_C(1) << K);
    if (args->weights > 1 && args->weights != 1 + WO_WEIGHTS_NONE && args->method == 1 + WO_METHOD_FULL)
        return cli_usage(self, "--method full answers with f32 rows: leave out --weights, or give none");
    if (args->rate == 0) return cli_usage(self, "--rate takes a number above 0");
    return CLI_OK;
}

static void take(uint32_t *to, uint64_t given)
{
    if (given) *to = (uint32_t)given;
}

static void take_real(double *to, double given)
{
    if (!isnan(given)) *to = given;
}

/* What was given replaces the method's defaults. */
static void override(wo_build_options *o, const arguments *args)
{
    take(&o->K, args->K);
    take(&o->L, args->L);
    take(&o->probes, args->probes);
    take(&o->nodes, args->nodes);
    take(&o->leaves, args->leaves);
    take(&o->beam, args->beam);
    take(&o->route_d, args->route_d);
    take(&o->n_popular, args->popular);
    take(&o->source_k, args->source_k);
    take(&o->thin, args->thin);
    take(&o->fallback, args->fallback);
    take(&o->iterations, args->iterations);
    take(&o->batch, args->batch);
    take_real(&o->lambda, args->lambda);
    take_real(&o->rate, args->rate);
    take_real(&o->t1, args->t1);
    take_real(&o->t2, args->t2);
    if (args->router) o->router = (wo_router)(args->router - 1);
    if (args->learner) o->learner = (wo_learner)(args->learner - 1);
    if (args->source) o->source = (wo_source)args->source; /* 1, 2, 3 */
    if (args->loss) o->loss = (wo_loss)(args->loss - 1);
    if (args->init) o->init = (wo_init)(args->init - 1);
    if (args->optimiser) o->optimiser = (wo_optimiser)(args->optimiser - 1);
    if (args->t_values) o->t_are_values = 1;
    if (args->weights) o->weights = (wo_weights)(args->weights - 1);
    o->seed = args->common.seed;
    o->threads = (int)args->common.threads;
}

/* ---- Tuning ------------------------------------------------------------------------------------------------ */

/* What was given is not tuned. */
static unsigned fixed(const arguments *args)
{
    const struct {
        bool given;
        unsigned fix;
    } all[] = {
        {args->method, WO_FIX_METHOD},
        {args->router, WO_FIX_ROUTER},
        {args->K, WO_FIX_K},
        {args->L, WO_FIX_L},
        {!isnan(args->lambda), WO_FIX_LAMBDA},
        {args->probes, WO_FIX_PROBES},
        {args->weights, WO_FIX_WEIGHTS},
        {args->nodes || args->leaves, WO_FIX_TREE},
        {args->route_d, WO_FIX_ROUTE_D},
        {args->beam, WO_FIX_BEAM},
        {args->popular, WO_FIX_POPULAR},
        {args->fallback, WO_FIX_FALLBACK},
    };
    unsigned fix = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given) fix |= all[i].fix;
    return fix;
}

/* Whether the index is named exactly, by any of these. */
static bool is_named(const arguments *args)
{
    return fixed(args) & (WO_FIX_METHOD | WO_FIX_ROUTER | WO_FIX_K | WO_FIX_L | WO_FIX_LAMBDA);
}

static int check_tuning(const cli_command *self, const arguments *args, wo_method method)
{
    const char *given = cli_tune_given(&args->tune);
    if (cli_tune_asked(&args->tune) && method == WO_METHOD_FULL)
        return cli_usage(self, "--method full has nothing to tune");
    if (given && is_named(args) && !cli_tune_asked(&args->tune))
        return cli_usage(
            self, "%s is for tuning: give --target too, or leave out --method, --router, -K, -L and --lambda", given);
    if (!args->log && !args->method) return cli_usage(self, "needs --log FILE: queries to learn from");
    if (!args->log && cli_tune_asked(&args->tune))
        return cli_usage(self, "tuning needs --log FILE: queries to learn from");
    return CLI_OK;
}

/* ---- The command ------------------------------------------------------------------------------------------- */

static uint64_t file_bytes(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? (uint64_t)about.st_size : 0;
}

static int report(const arguments *args, const wo_index *index, double seconds)
{
    wo_curve curve = {.struct_size = sizeof curve};
    const bool tuned = wo_index_curve(index, &curve);
    const cli_index about = cli_index_of(index);
    const wo_index_info *info = &about.info;
    const uint64_t bytes = file_bytes(args->output);
    if (args->common.json) {
        json_t *json = cli_index_json(&about);
        json_object_update_new(json, json_pack("{s:s, s:I, s:f, s:f}", "index", args->output, "file_bytes",
                                               (json_int_t)bytes, "seconds", seconds, "peak_mib", cli_peak_mib()));
        if (tuned) json_object_set_new(json, "tuning", cli_curve_json(&curve));
        if (!isnan(info->same_best))
            json_object_update_new(json,
                                   json_pack("{s:f, s:f}", "same_best", info->same_best, "same_five", info->same_five));
        return cli_print_json(json);
    }
    cli_print_text(stdout, args->output);
    printf(": index, %s\n", cli_bytes(bytes));
    cli_index_print(&about, "  ");
    if (!isnan(info->same_best))
        printf("  beside f32 rows, on logged queries: the same best answer for %.2f%%, of the five best %.2f%%\n",
               100 * info->same_best, 100 * info->same_five);
    if (tuned) cli_curve_print(&curve, "  ");
    printf("  built in %.1f s, peak memory %.0f MiB\n", seconds, cli_peak_mib());
    printf("next: wideout eval --index ");
    cli_print_text(stdout, args->output);
    const wo_weights weights = about.options.weights; /* without f32 rows there is no FULL to compare with */
    if (weights == WO_WEIGHTS_BF16 || weights == WO_WEIGHTS_NONE) {
        printf(" --layer ");
        cli_print_text(stdout, args->layer.path);
    }
    printf(" --log TEST.LOG\n");
    return cli_end();
}

/* `tune` NULL: exactly what the options say. */
static int build(const cli_command *self, const arguments *args, const wo_build_options *o, const wo_tune_options *tune)
{
    wo_layer *layer = NULL;
    wo_log *log = NULL, *tune_log = NULL;
    wo_index *index = NULL;
    wo_error err;
    const cli_files files = {.layer = args->layer.path,
                             .bias = args->layer.bias_path,
                             .log = args->log,
                             .tune_log = args->tune.log,
                             .output = args->output};
    const double start = woi_now_s();
    int code = cli_layer_open(self, &args->layer, &layer);
    if (!code && args->route_d % 16 && args->route_d < wo_layer_d(layer))
        code = cli_usage(self, "--route-d takes a multiple of 16, or all %zu coordinates, not %" PRIu64,
                         wo_layer_d(layer), args->route_d);
    if (code) goto done;
    if (args->log && wo_log_open(args->log, &log, &err))
        code = cli_blame(self, &files, &err);
    else if (args->tune.log && wo_log_open(args->tune.log, &tune_log, &err))
        code = cli_blame(self, &(cli_files){.log = args->tune.log}, &err);
    else if ((tune ? wo_index_tune(layer, log, tune_log, tune, &index, &err)
                   : wo_index_build(layer, log, o, &index, &err)) ||
             wo_index_save(index, args->output, &err))
        code = cli_blame(self, &files, &err);
    if (code) goto done;
    cli_progress_end();
    if (tune && !tune_log && !args->common.quiet)
        fprintf(stderr,
                "%s: warning: without --tune-log a tenth of the log was held out to judge on; queries that the "
                "network was trained on flatter every index\n",
                cli_program);
    code = report(args, index, woi_now_s() - start);
done:
    wo_index_free(index);
    wo_log_free(log);
    wo_log_free(tune_log);
    wo_layer_free(layer);
    return code;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    const wo_method method = args->method ? (wo_method)(args->method - 1) : WO_METHOD_EVIDENCE;
    if (n > 0) return cli_usage(self, "unexpected '%s': files are named by --layer, --log and -o", rest[0]);
    if (!args->layer.path) return cli_usage(self, "needs --layer FILE");
    if (!args->output) return cli_usage(self, "needs -o FILE for the index");
    int code = check_tuning(self, args, method);
    if (code) return code;
    if (!args->log && method != WO_METHOD_FULL && method != WO_METHOD_SLIDE)
        return cli_usage(self, "--method %s needs --log FILE: queries to learn from", method_names[method]);
    const char *const in[] = {args->layer.path, args->layer.bias_path, args->log, args->tune.log};
    for (int i = 0; i < 4; i++)
        if (cli_same_file(args->output, in[i]))
            return cli_usage(self, "-o '%s' would replace what is read", args->output);
    wo_build_options o;
    wo_build_defaults(method, &o, sizeof o);
    wo_tune_options tune;
    wo_tune_defaults(&tune, sizeof tune);
    code = check_methods(self, args, method);
    if (!code) code = check_ranges(self, args, &o);
    if (!code) code = cli_tune_read(self, &args->tune, &tune);
    if (code) return code;
    override(&o, args);
    o.progress = cli_progress(&args->common);
    if (tune.target_agree > 0 && !args->source) o.source = WO_SOURCE_TOP; /* labels have no part in it */
    tune.build = &o;
    tune.fixed = fixed(args);
    return build(self, args, &o, is_named(args) && !cli_tune_asked(&args->tune) ? NULL : &tune);
}

const cli_command cli_cmd_build = {
    "build",
    "--layer FILE --log FILE -o FILE [options]",
    "learn an index from a wide layer and a log of its queries",
    "An index answers queries by scoring a few neurons instead of all m. Every method has a router, which\n"
    "opens a few cells for a query, and a fill, which says what neurons lie in a cell:\n"
    "\n"
    "  full       all neurons: the exact layer\n"
    "  popular    one cell, of the most frequent labels\n"
    "  slide      tables of random hyperplanes; a neuron lies where its weights hash to\n"
    "  lss        the same, hyperplanes learned from the labels\n"
    "  evidence   learned hyperplanes or a tree; a cell holds the neurons that its queries needed\n"
    "\n"
    "Without --method, --router, -K, -L and --lambda it tunes: it tries many on queries of --tune-log,\n"
    "and keeps the fastest that has 99.5% of FULL's P@1 and 99% of its P@5 there, with 95% confidence.\n"
    "With any of these it builds exactly that, and tunes the rest where --target is given too.\n"
    "\n"
    "  wideout build --layer net.safetensors --log train.log --tune-log valid.log -o index.safetensors\n"
    "  wideout build --layer net.safetensors --log train.log --tune-log valid.log --target 0.98 -o index\n"
    "  wideout build --layer net.safetensors --log train.log -k 20 --target-agree 0.98 -o recommender\n"
    "  wideout build --layer model.safetensors --weight-name lm_head.weight --log train.log -o index\n"
    "  wideout build --layer net.safetensors --log train.log --lambda 0.02 --source-k 20 -o wider\n"
    "  wideout build --layer net.safetensors --log train.log --method lss -K 4 -L 10 -o lss\n"
    "\n"
    "A smaller --lambda puts more neurons into the cells: slower and nearer to the exact layer. The log\n"
    "should be of queries like those to come; best of data that the network was not trained on. The\n"
    "index holds the layer's rows, so that it serves alone; with --weights none the layer must be given\n"
    "again. The same seed gives the same file, whatever the number of threads; tuning goes by times that\n"
    "it measures, so that two runs may differ: its report names the options that give the same cells.\n"
    "\n"
    "Defaults go by the method; the report and 'wideout info' show them.",
    options,
    sizeof(arguments),
    run,
};
