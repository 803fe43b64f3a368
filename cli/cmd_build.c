/* wideout build: learns an index from a wide layer and a log of its queries. */
#include "build_options.h"
#include "class_names.h"
#include "cli.h"
#include "curve_text.h"
#include "index_text.h"
#include "inputs.h"
#include "labelled.h"
#include "layer_options.h"
#include "memory.h"
#include "not_finite.h"
#include "outputs.h"
#include "tune_options.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { JUDGED = 500 }; /* queries of the log that an index is judged on, where it is not tuned */

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    cli_tune tune;
    cli_build build;
    cli_texts logs;
    const char *labels, *names, *output, *memory;
    bool resume;
} arguments;

static const cli_option options[] = {
    CLI_LAYER_OPTIONS(arguments, layer, "the wide layer: safetensors, .npy, GGUF or fastText"),
    {"log", 0, CLI_TEXTS, offsetof(arguments, logs), "FILE",
     "queries to learn from: a log ('wideout embed') or .npy;\nseveral are read as one", false},
    {"labels", 0, CLI_TEXT_ONCE, offsetof(arguments, labels), "FILE",
     "their labels as .npy or .npz, where the log has none", false},
    {"names", 0, CLI_TEXT_ONCE, offsetof(arguments, names), "FILE", "what the classes are called, one a line", false},
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "FILE", "the index", false},
    {"memory", 0, CLI_TEXT, offsetof(arguments, memory), "SIZE",
     "500M, 4G: keep within it; large arrays lie in files beside\nthe output", false},
    {"resume", 0, CLI_FLAG, offsetof(arguments, resume), NULL,
     "go on from FILE.checkpoint, where there is one: --resume\nand --memory leave it behind when they are stopped",
     false},
    CLI_TUNE_OPTIONS(arguments, tune),
    {"build", 0, CLI_BUILD, offsetof(arguments, build), NULL, NULL, false},
    {0},
};

/* ---- Tuning ------------------------------------------------------------------------------------------------ */

/* Whether the index is named exactly, by any of these. */
static bool is_named(const arguments *args)
{
    return cli_build_fixed(&args->build) & (WO_FIX_METHOD | WO_FIX_ROUTER | WO_FIX_K | WO_FIX_L | WO_FIX_LAMBDA);
}

static int check_tuning(const cli_command *self, const arguments *args, wo_method method)
{
    cli_tune asked = args->tune;
    if (cli_build_given(&args->build, "partition")) asked.log = NULL; /* which is measured on too */
    const char *given = cli_tune_given(&asked);
    if (cli_tune_asked(&args->tune) && (method == WO_METHOD_FULL || method == WO_METHOD_SCREEN))
        return cli_usage(self, "--method %s has nothing to tune", method == WO_METHOD_FULL ? "full" : "screen");
    if (given && is_named(args) && !cli_tune_asked(&args->tune))
        return cli_usage(
            self, "%s is for tuning: give --target too, or leave out --method, --router, -K, -L and --lambda", given);
    if (!args->logs.n && !cli_build_given(&args->build, "method"))
        return cli_usage(self, "needs --log FILE: queries to learn from");
    if (!args->logs.n && cli_tune_asked(&args->tune))
        return cli_usage(self, "tuning needs --log FILE: queries to learn from");
    return CLI_OK;
}

/* ---- The command ------------------------------------------------------------------------------------------- */

static uint64_t file_bytes(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? (uint64_t)about.st_size : 0;
}

/* How far log Z is off on the tune log; NAN: there is none. */
typedef struct off {
    double error, bias;
} off;

/* On a few thousand of its queries, evenly spread: FULL is asked for each. */
static off measure_log_z(const wo_index *index, const wo_log *log, int threads)
{
    enum { MOST = 10000 };
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = threads};
    wo_searcher *searcher = NULL;
    const size_t d = wo_index_d(index), all = wo_log_n(log), n = all < MOST ? all : MOST;
    float *q = malloc(n * d * sizeof *q + 1), *z = malloc(n * sizeof *z + 1), *exact = malloc(n * sizeof *exact + 1);
    wo_search_call call = {.struct_size = sizeof call, .queries = q, .n = n, .by = WO_BY_CELLS, .no_prior = 1};
    off found = {NAN, NAN};
    double sum = 0, squares = 0;
    size_t counted = 0;
    if (!q || !z || !exact || wo_log_d(log) != d || wo_searcher_create(index, &so, &searcher, NULL)) goto done;
    for (size_t i = 0; i < n; i++)
        memcpy(q + i * d, wo_log_queries(log) + (size_t)((double)i * (double)all / (double)n) * d, d * sizeof *q);
    if (wo_log_partition(searcher, &call, z, NULL)) goto done;
    call.by = WO_BY_FULL;
    if (wo_log_partition(searcher, &call, exact, NULL)) goto done;
    for (size_t i = 0; i < n; i++) {
        const double over = (double)z[i] - (double)exact[i];
        if (!isfinite(over)) continue;
        sum += over;
        squares += over * over;
        counted++;
    }
    if (counted) found = (off){sqrt(squares / (double)counted), sum / (double)counted};
done:
    wo_searcher_free(searcher);
    free(q);
    free(z);
    free(exact);
    return found;
}

typedef struct made {
    const wo_index *index;
    const wo_log *log; /* NULL: none */
    wo_layer_info layer;
    off tuned_off;
    bool fitted; /* what its log Z is judged on, it was fitted to */
    double seconds;
} made;

/* "the layer: weight 'lm_head.weight', no bias" */
static void print_layer(const wo_layer_info *layer)
{
    printf("  the layer: ");
    if (layer->weight_name) {
        printf("weight '");
        cli_print_text(stdout, layer->weight_name);
        printf("', ");
    }
    printf(layer->has_bias ? "with a bias" : "without a bias");
    if (layer->bias_name) {
        printf(", '");
        cli_print_text(stdout, layer->bias_name);
        printf("'");
    }
    printf("\n");
}

/* " --option VALUE", unless NULL */
static void print_option(const char *option, const char *value)
{
    if (!value) return;
    printf(" %s ", option);
    cli_print_shell(stdout, value);
}

static void print_layer_options(const cli_layer *layer)
{
    print_option("--layer", layer->path);
    print_option("--weight-name", layer->weight_name);
    print_option("--bias-name", layer->bias_name);
    print_option("--bias", layer->bias_path);
}

/* What builds the same again, without tuning: beside the tuned file, which has the curve and the planner's batches.
 * What was measured is no option: the second file lacks these batches, and that is said. */
static void print_again(const arguments *args, const cli_index *index)
{
    char text[2048];
    cli_build_text(&index->options, text, sizeof text);
    printf("again: wideout build");
    print_layer_options(&args->layer);
    for (size_t i = 0; i < args->logs.n; i++) print_option("--log", args->logs.of[i]);
    print_option("--labels", args->labels);
    print_option("--names", args->names);
    printf("%s", text);
    const size_t room = strlen(args->output) + sizeof ".again";
    char *output = malloc(room);
    if (output) snprintf(output, room, "%s.again", args->output);
    print_option("-o", output);
    free(output);
    if (index->info.full_from) printf("  # without the batches that FULL answers, which go by measured times");
    printf("\n");
}

/* A command that works as it is. Without f32 rows there is no FULL to compare with, but for the layer. */
static void print_next(const arguments *args, const cli_index *index, const wo_curve *curve)
{
    const wo_build_options *o = &index->options;
    const char *log = args->tune.log ? args->tune.log : args->logs.of[0];
    printf("next: wideout %s", log ? "eval --index" : "info");
    printf(" ");
    cli_print_shell(stdout, args->output);
    if (log && o->weights != WO_WEIGHTS_F32 && o->weights != WO_WEIGHTS_INT8) print_layer_options(&args->layer);
    print_option("--log", log);
    if (log) print_option("--labels", args->tune.log ? args->tune.labels : args->labels);
    if (log && cli_index_by_full(&index->info, CLI_EVAL_BATCH) && !cli_index_by_full(&index->info, curve->batch))
        printf(" -b %" PRIu32, curve->batch); /* to judge what was tuned, and not FULL */
    printf(!log             ? "\n"
           : args->tune.log ? "  # better: a log that it was not tuned on\n"
                            : "  # better: a log that it was not built from\n");
}

static void print_held(const wo_index_info *info)
{
    printf("  on %s of the log that it did not know: ", cli_count(info->held_n, "query"));
    if (!isnan(info->held_p_at_1)) printf("P@1 %.4f, FULL's %.4f; ", info->held_p_at_1, info->held_full_p_at_1);
    printf("FULL's best answer for %.1f%%\n", 100 * info->held_same_best);
}

/* Of an index of cells, which may be poor: without this its report would be that of one that is fine. */
static void print_unjudged(const cli_index *index, const wo_log *log)
{
    const wo_method method = index->info.method;
    if (!log || wo_log_n(log) >= WO_HELD_FEW || method == WO_METHOD_FULL || method == WO_METHOD_SCREEN) return;
    printf("  a log of %s says nothing of the quality: give %s or more, or judge it on others by 'wideout eval'\n",
           cli_count(wo_log_n(log), "query"), cli_number(WO_HELD_FEW));
}

static json_t *held_json(const wo_index_info *info)
{
    json_t *json = json_pack("{s:I, s:f}", "queries", (json_int_t)info->held_n, "same_best", info->held_same_best);
    if (!isnan(info->held_p_at_1))
        json_object_update_new(
            json, json_pack("{s:f, s:f}", "p_at_1", info->held_p_at_1, "full_p_at_1", info->held_full_p_at_1));
    return json;
}

/* What puts more classes into an index's cells. */
static const char *dial_of(wo_method method)
{
    return method == WO_METHOD_EVIDENCE  ? "a smaller --lambda or a longer log"
           : method == WO_METHOD_POPULAR ? "a larger --popular"
                                         : "a smaller -K or a larger -L";
}

/* A screen is meant to answer as FULL does: where int8 is too coarse for that, its P@1 tells last. */
static void warn_of_screen(const arguments *args, const wo_index_info *info)
{
    static const double POOR = 0.99; /* of FULL's five best */
    if (info->method != WO_METHOD_SCREEN || !(info->same_five < POOR)) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, args->output);
    fprintf(stderr,
            " has %.1f%% of FULL's five best answers on %s of the log: int8 is too coarse for this layer, as it is "
            "where columns of the weights or of the queries have very different scales; '--method full' is exact, "
            "and without --method the tuner finds what serves\n",
            100 * info->same_five, cli_count(info->held_n, "query"));
}

/* Of an index that was built as it was named, and is much worse than FULL where it was judged. */
static void warn_of_quality(const arguments *args, const wo_index_info *info)
{
    static const double POOR = 0.9; /* of FULL's P@1, or of its answers */
    if (!info->held_n) return;
    const bool by_hits = info->held_full_p_at_1 > 0;
    const double share = by_hits ? info->held_p_at_1 / info->held_full_p_at_1 : info->held_same_best;
    warn_of_screen(args, info);
    if (share >= POOR || info->method == WO_METHOD_SCREEN) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, args->output);
    fprintf(stderr,
            " has %.0f%% of FULL's %s on %s of the log that it did not know: --target 0.995 with --tune-log FILE looks "
            "for better options; %s helps too\n",
            100 * share, by_hits ? "P@1" : "best answers", cli_count(info->held_n, "query"), dial_of(info->method));
}

static int report(const arguments *args, const made *built)
{
    const wo_index *index = built->index;
    const off tuned_off = built->tuned_off;
    const double seconds = built->seconds;
    wo_curve curve = {.struct_size = sizeof curve};
    const bool tuned = wo_index_curve(index, &curve);
    const cli_index about = cli_index_of(index);
    const wo_index_info *info = &about.info;
    const uint64_t bytes = file_bytes(args->output);
    if (args->common.json) {
        json_t *json = cli_index_json(&about);
        json_object_update_new(json,
                               json_pack("{s:o, s:I, s:f, s:f}", "index", cli_json_text(args->output), "file_bytes",
                                         (json_int_t)bytes, "seconds", seconds, "peak_mib", cli_peak_mib()));
        json_object_set_new(json, "layer",
                            json_pack("{s:s?, s:s?, s:b}", "weight", built->layer.weight_name, "bias",
                                      built->layer.bias_name, "has_bias", built->layer.has_bias));
        if (tuned) json_object_set_new(json, "tuning", cli_curve_json(&curve));
        char again[2048];
        cli_build_text(&about.options, again, sizeof again);
        if (tuned) json_object_set_new(json, "build_options", json_string(again[0] ? again + 1 : again));
        if (tuned) json_object_set_new(json, "met", json_boolean(cli_curve_met(&curve)));
        if (tuned) json_object_set_new(json, "interrupted", json_boolean(cli_is_interrupted()));
        if (info->held_n) json_object_set_new(json, "held_out", held_json(info));
        if (!isnan(info->same_best))
            json_object_update_new(json,
                                   json_pack("{s:f, s:f}", "same_best", info->same_best, "same_five", info->same_five));
        if (!isnan(info->log_z_error))
            json_object_update_new(json, json_pack("{s:f, s:f, s:b}", "log_z_error", info->log_z_error, "log_z_bias",
                                                   info->log_z_bias, "log_z_held_out", !built->fitted));
        if (!isnan(tuned_off.error))
            json_object_update_new(
                json, json_pack("{s:f, s:f}", "tune_log_z_error", tuned_off.error, "tune_log_z_bias", tuned_off.bias));
        return cli_print_json(json);
    }
    cli_print_text(stdout, args->output);
    printf(": index, %s%s\n", cli_bytes(bytes), cli_index_kind(&about));
    cli_index_print(&about, "  ");
    print_layer(&built->layer);
    if (info->held_n) print_held(info);
    if (!tuned) print_unjudged(&about, built->log);
    if (!isnan(info->same_best))
        printf("  beside f32 rows, on logged queries: the same best answer for %.2f%%, of the five best %.2f%%\n",
               100 * info->same_best, 100 * info->same_five);
    if (!isnan(info->log_z_error))
        printf("  log Z, on logged queries that it was %sfitted to: error %.4f nats, bias %+.4f%s\n",
               built->fitted ? "" : "not ", info->log_z_error, info->log_z_bias,
               built->fitted ? "; others have a larger one" : "");
    if (!isnan(tuned_off.error))
        printf("  log Z, on the tune log: error %.4f nats, bias %+.4f\n", tuned_off.error, tuned_off.bias);
    if (tuned && cli_is_interrupted()) printf("  interrupted: the best that was found until then\n");
    if (tuned) cli_curve_print(&curve, "  ");
    printf("  built in %.1f s, peak memory %.0f MiB\n", seconds, cli_peak_mib());
    if (tuned) print_again(args, &about);
    print_next(args, &about, &curve);
    return cli_end();
}

static const char *judged_by(const arguments *args)
{
    return args->tune.log ? args->tune.log : args->logs.of[0];
}

/* A goal by labels that was asked for, and that nothing can be judged by. */
static void warn_of_labels(const arguments *args, const wo_curve *goal)
{
    const char *option = args->tune.target ? "--target" : !isnan(args->tune.target5) ? "--target5" : NULL;
    if (isnan(args->tune.target_agree) && goal->target_agree > 0)
        cli_warn_of_hits(judged_by(args), NULL, goal->labelled, 0);
    if (option && goal->target_agree > 0)
        fprintf(stderr, "%s: warning: %s: %s is taken for --target-agree %.4g, the share of FULL's own answers%s\n",
                cli_program,
                goal->labelled ? "FULL finds no label of the queries to judge by" : "no query to judge by has labels",
                option, goal->target_agree, goal->labelled ? "; --target best goes by the index's hits" : "");
    if (goal->target_us > 0 && !goal->labelled)
        fprintf(stderr,
                "%s: warning: no query to judge by has labels: the best is what has most of FULL's own answers\n",
                cli_program);
}

/* What is known as soon as FULL was asked is said then: what the search will show, and by what. */
static void tell_early(void *ctx, const wo_curve *goal)
{
    const arguments *args = ctx;
    const unsigned method = WO_FIX_METHOD | WO_FIX_ROUTER | WO_FIX_K | WO_FIX_L | WO_FIX_LAMBDA | WO_FIX_TREE |
                            WO_FIX_ROUTE_D | WO_FIX_BEAM; /* or what belongs to one */
    cli_progress_end();
    warn_of_labels(args, goal);
    cli_curve_foretell(goal, !(cli_build_fixed(&args->build) & method), args->common.quiet);
}

/* Many queries that are one, which show no more than one does. */
static void warn_of_equal(const char *path, const wo_log *log)
{
    const size_t n = wo_log_n(log), bytes = wo_log_d(log) * sizeof(float);
    const char *first = (const char *)wo_log_queries(log);
    for (size_t i = 1; i < n; i++)
        if (memcmp(first, first + i * bytes, bytes) != 0) return;
    if (n < 2) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fprintf(stderr, ": all %s are the same one: what they show is not shown of others\n", cli_count(n, "query"));
}

/* What FULL was judged on, where it was; of a tuned index without a hit tell_early has told already. */
static void warn_of_hits(const arguments *args, const wo_index *index, const wo_log *log)
{
    wo_curve curve = {.struct_size = sizeof curve};
    const wo_index_info info = cli_index_of(index).info;
    if (log) warn_of_equal(judged_by(args), log);
    if (info.held_n) cli_warn_of_hits(judged_by(args), log, info.held_n, info.held_full_p_at_1);
    if (!wo_index_curve(index, &curve)) return;
    const double full = cli_curve_full_p_at_1(&curve);
    if (full > 0) cli_warn_of_hits(judged_by(args), log, curve.labelled, full);
}

/* Where the candidates lack most of Z the estimate is a guess. */
static void warn_of_log_z(const wo_index_info *info)
{
    enum { FAR = 1 }; /* nats: a factor of e */
    if (info->log_z_error > FAR)
        fprintf(stderr,
                "%s: warning: log Z is off by %.2g nats, so that probabilities mean little: more classes in the cells, "
                "by a smaller --lambda, a larger --cap or more --probes, make that less\n",
                cli_program, info->log_z_error);
}

static int refuse_same(const cli_command *self)
{
    return cli_usage(self,
                     "--tune-log is the log that is learned from, which flatters every index: give other queries, or "
                     "leave it out, and a tenth of the log is held out");
}

/* Whether a tune log is the log, or its beginning, by another name: by queries at the same places alone, as queries of
 * one word, say, are in both. Nobody knows where all queries are the same. */
static bool is_copy(const wo_log *log, const wo_log *tune_log)
{
    enum { FEWEST = 20, MOST = 500 };
    const size_t n = wo_log_n(tune_log), d = wo_log_d(tune_log), looked = n < MOST ? n : MOST;
    if (n < FEWEST || n > wo_log_n(log) || d != wo_log_d(log)) return false;
    const float *a = wo_log_queries(log), *b = wo_log_queries(tune_log);
    bool differ = false;
    for (size_t i = 0; i < looked; i++) {
        const size_t at = (size_t)((double)i * (double)n / (double)looked) * d;
        if (memcmp(a + at, b + at, d * sizeof *a) != 0) return false;
        differ |= memcmp(b + at, b, d * sizeof *b) != 0;
    }
    return differ;
}

/* `tune` NULL: exactly what the options say. */
static int build(const cli_command *self, const arguments *args, const wo_build_options *o, const wo_tune_options *tune)
{
    wo_layer *layer = NULL;
    cli_logs log = {0};
    cli_labelled tune_log = {0};
    wo_index *index = NULL;
    wo_error err;
    cli_files files = {.layer = args->layer.path,
                       .bias = args->layer.bias_path,
                       .tune_log = args->tune.log,
                       .labels = args->labels,
                       .tune_labels = args->tune.labels,
                       .output = args->output,
                       .checkpoint = o->checkpoint};
    const double start = woi_now_s();
    int code = cli_layer_open(self, &args->layer, &layer);
    if (!code && args->names) code = cli_names_give(args->names, layer);
    if (code) goto done;
    if (cli_logs_open(&args->logs, args->labels, layer, &log, &files.log, &err))
        code = cli_blame(self, &files, &err);
    else if (args->tune.log && cli_labelled_open(args->tune.log, args->tune.labels, &tune_log, &err))
        code = cli_blame(self, &(cli_files){.log = args->tune.log, .labels = args->tune.labels}, &err);
    if (!code && tune && tune_log.log && is_copy(log.log, tune_log.log)) code = refuse_same(self);
    cli_keep_on_interrupt(tune);
    if (!code && ((tune ? wo_index_tune(layer, log.log, tune_log.log, tune, &index, &err)
                        : wo_index_build(layer, log.log, o, &index, &err)) ||
                  wo_index_save(index, args->output, &err))) {
        files.log = cli_logs_blame(&args->logs, &log, &err);
        code = cli_blame(self, &files, &err);
    }
    if (!code && o->checkpoint && wo_build_forget(o->checkpoint, &err)) code = cli_fail(o->checkpoint, &err);
    if (code) goto done;
    cli_progress_end();
    if (tune && !tune_log.log && !args->common.quiet)
        fprintf(stderr,
                "%s: warning: without --tune-log %s was %s to judge on; queries that the network was trained on "
                "flatter every index\n",
                cli_program,
                wo_log_n(log.log) < WO_TUNE_FEW ? "all of the log, fewer than 20 queries," : "a tenth of the log",
                wo_log_n(log.log) < WO_TUNE_FEW ? "taken both to build from and" : "held out");
    const wo_index_info info = cli_index_of(index).info;
    warn_of_hits(args, index, tune_log.log ? tune_log.log : log.log);
    warn_of_quality(args, &info);
    warn_of_log_z(&info);
    cli_logs_warn(&args->logs, &log, index);
    cli_not_finite_warn(args->tune.log, tune_log.log, index);
    const off tuned_off = tune_log.log && !isnan(info.log_z_error)
                              ? measure_log_z(index, tune_log.log, (int)args->common.threads)
                              : (off){NAN, NAN};
    const bool fitted = log.log && wo_log_n(log.log) < WO_LOG_Z_FEW;
    const made built = {index, log.log, cli_layer_about(layer), tuned_off, fitted, woi_now_s() - start};
    code = report(args, &built);
done:
    wo_index_free(index);
    cli_logs_free(&log);
    cli_labelled_free(&tune_log);
    wo_layer_free(layer);
    return code;
}

/* What takes long is kept on the way where that may be hours: for layers larger than memory, or where it is asked for.
 */
static int build_exactly(const cli_command *self, const arguments *args, wo_build_options *o)
{
    char *checkpoint = NULL;
    wo_error err;
    if ((args->memory || args->resume) && asprintf(&checkpoint, "%s.checkpoint", args->output) < 0) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        return cli_fail(NULL, &err);
    }
    o->checkpoint = checkpoint;
    o->resume = args->resume;
    int code = checkpoint ? cli_output_try_checkpoint(args->output, checkpoint) : CLI_OK;
    if (!code) code = build(self, args, o, NULL);
    free(checkpoint);
    return code;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    wo_method method;
    if (n > 0) return cli_usage(self, "unexpected '%s': files are named by --layer, --log and -o", rest[0]);
    if (!args->layer.path) return cli_usage(self, "needs --layer FILE");
    if (!args->output) return cli_usage(self, "needs -o FILE for the index");
    if (args->labels && args->logs.n != 1)
        return cli_usage(self, args->logs.n ? "--labels goes with one --log: several must have labels of their own"
                                            : "--labels goes with --log: the queries");
    if (args->tune.labels && !args->tune.log) return cli_usage(self, "--tune-labels goes with --tune-log");
    int code = cli_refuse_twice(self, "--log", &args->logs);
    if (!code) code = cli_build_method(self, &args->build, &method);
    if (!code) code = check_tuning(self, args, method);
    if (code) return code;
    wo_build_options o;
    wo_build_defaults(method, &o, sizeof o);
    if (!args->logs.n && method != WO_METHOD_FULL && method != WO_METHOD_SLIDE && method != WO_METHOD_SCREEN) {
        char word[16];
        wo_build_get(&o, "method", word, sizeof word);
        return cli_usage(self, "--method %s needs --log FILE: queries to learn from", word);
    }
    const char *const in[] = {args->layer.path, args->layer.bias_path, args->labels,
                              args->tune.log,   args->tune.labels,     args->names};
    if ((code = cli_refuse_inputs(self, args->output, in, sizeof in / sizeof in[0]))) return code;
    if ((code = cli_refuse_inputs(self, args->output, args->logs.of, args->logs.n))) return code;
    wo_tune_options tune;
    wo_tune_defaults(&tune, sizeof tune);
    code = cli_build_set(self, &args->build, &o);
    if (!code) code = cli_tune_read(self, &args->tune, &tune);
    if (code) return code;
    if ((code = cli_output_try(args->output))) return code;
    o.seed = args->common.seed;
    o.threads = (int)args->common.threads;
    o.progress = cli_progress(&args->common);
    if (tune.target_agree > 0 && !cli_build_given(&args->build, "source"))
        o.source = WO_SOURCE_TOP; /* labels have no part in it */
    if (tune.target_agree > 0 && o.prior > 0 && cli_build_given(&args->build, "prior"))
        return cli_usage(self,
                         "--prior goes never with --target-agree: a prior means to differ from FULL's own answers");
    tune.build = &o;
    tune.fixed = cli_build_fixed(&args->build);
    tune.enough = cli_seen_enough;
    tune.early = tell_early;
    tune.early_ctx = given;
    const bool tuned = !is_named(args) || cli_tune_asked(&args->tune);
    bool same = false;
    for (size_t i = 0; tuned && args->tune.log && i < args->logs.n; i++)
        same |= cli_same_file(args->logs.of[i], args->tune.log);
    if (same) return refuse_same(self);
    if (!tuned && o.fallback_by == WO_FALLBACK_SCREEN && !o.fallback)
        return cli_usage(self, "--fallback-by screen needs --fallback N: which queries know little");
    if (!tuned) o.held_out = JUDGED;
    if (tuned && args->resume)
        return cli_usage(self, "--resume goes with a build that is named exactly: tuning begins anew");
    if ((code = cli_memory_keep(self, args->memory, args->output))) return code;
    return tuned ? build(self, args, &o, &tune) : build_exactly(self, args, &o);
}

const cli_command cli_cmd_build = {
    "build",
    "--layer FILE --log FILE -o FILE [options]",
    "learn an index from a wide layer and a log of its queries",
    "An index answers queries by scoring a few classes instead of all m. Every method has a router, which\n"
    "opens a few cells for a query, and a fill, which says what classes lie in a cell:\n"
    "\n"
    "  full       all classes: the exact layer\n"
    "  popular    one cell, of the most frequent labels\n"
    "  slide      tables of random hyperplanes; a class lies where its weights hash to\n"
    "  lss        the same, hyperplanes learned from the labels\n"
    "  evidence   learned hyperplanes or a tree; a cell holds the classes that its queries needed\n"
    "  screen     no cells: all classes in int8, and the best few exactly\n"
    "\n"
    "Without --method, --router, -K, -L and --lambda it tunes: it tries many on queries of --tune-log,\n"
    "and keeps the fastest that has 99.5% of FULL's P@1 and 99% of its P@5 there, with 95% confidence.\n"
    "With any of these it builds exactly that, and tunes the rest where --target is given too.\n"
    "\n"
    "  wideout build --layer net.safetensors --log train.log --tune-log valid.log -o index.safetensors\n"
    "  wideout build --layer net.safetensors --log train.log --tune-log valid.log --target 0.98 -o index\n"
    "  wideout build --layer net.safetensors --log train.log -k 20 --target-agree 0.98 -o recommender\n"
    "  wideout build --layer model.safetensors --weight-name lm_head.weight --log train.log -o index\n"
    "  wideout build --layer model.gguf --log train.log -o index\n"
    "  wideout build --layer fasttext.bin --log train.log --tune-log valid.log -o index\n"
    "  wideout build --layer w.npy --bias b.npy --log q.npy --labels y.npy --names labels.txt -o index\n"
    "  wideout build --layer net.safetensors --log train.log --lambda 0.02 --source-k 20 -o wider\n"
    "  wideout build --layer net.safetensors --log train.log --method lss -K 4 -L 10 -o lss\n"
    "  wideout build --layer net.safetensors --log train.log --log learned.journal -o index\n"
    "\n"
    "A smaller --lambda puts more classes into the cells: slower and nearer to the exact layer. The log\n"
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
