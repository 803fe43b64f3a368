/* wideout eval: how good an index is and what it costs, beside the exact layer, in one run. */
#include "cli.h"
#include "index_text.h"
#include "labelled.h"
#include "layer_options.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_K = 1000, MAX_BATCH = 65536, MAX_ROUNDS = 10000 };

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *index, *log, *labels, *ks;
    uint64_t batch, probes, max_queries, rounds;
    bool exact_fallback, no_prior, no_timing;
} arguments;

static const cli_option options[] = {
    {"index", 0, CLI_TEXT_ONCE, offsetof(arguments, index), "FILE", "the index ('wideout build')", false},
    {"log", 0, CLI_TEXT_ONCE, offsetof(arguments, log), "FILE", "queries that it was not built from: a log or .npy",
     false},
    {"labels", 0, CLI_TEXT_ONCE, offsetof(arguments, labels), "FILE",
     "their labels as .npy or .npz, where the log has none", false},
    CLI_LAYER_OPTIONS(arguments, layer, "the layer it was built for, where the index has no rows"),
    {"top", 'k', CLI_TEXT_ONCE, offsetof(arguments, ks), "LIST", "compare the k best with FULL's (default: 1,5)",
     false},
    {"batch", 'b', CLI_SIZE, offsetof(arguments, batch), "N", "time this batch size too, and report it (default: 1024)",
     false},
    {"probes", 0, CLI_SIZE, offsetof(arguments, probes), "N", "cells opened in each table (default: the index's)",
     false},
    {"max-queries", 0, CLI_SIZE, offsetof(arguments, max_queries), "N", "judge a seeded sample of N (default: all)",
     false},
    {"rounds", 0, CLI_SIZE, offsetof(arguments, rounds), "N", "of timing (default: 9)", false},
    {"exact-fallback", 0, CLI_FLAG, offsetof(arguments, exact_fallback), NULL,
     "FULL answers queries that the index knows little about", false},
    {"no-prior", 0, CLI_FLAG, offsetof(arguments, no_prior), NULL, "score by logits alone, without the index's prior",
     false},
    {"no-timing", 0, CLI_FLAG, offsetof(arguments, no_timing), NULL, "quality only", false},
    {0},
};

/* "1,5,20" */
static bool parse_ks(const char *text, wo_eval_options *o)
{
    o->n_ks = 0;
    for (char *end; o->n_ks < WO_EVAL_MAX; text = end + 1) {
        if (*text < '0' || *text > '9') return false;
        const unsigned long k = strtoul(text, &end, 10);
        if (k < 1 || k > MAX_K) return false;
        o->ks[o->n_ks++] = (uint32_t)k;
        if (*end == '\0') return true;
        if (*end != ',') return false;
    }
    return false;
}

/* Whether there are no exact rows to compare with. */
static bool has_no_full(const arguments *args, const cli_index *index)
{
    return !args->layer.path &&
           (index->options.weights == WO_WEIGHTS_BF16 || index->options.weights == WO_WEIGHTS_INT8_BF16);
}

/* ---- For programs ------------------------------------------------------------------------------------------ */

static json_t *real(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

/* JSON has no infinity: a method that took no time at all on a coarse clock. */
static json_t *ratio(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* A speed-up over a FULL that uses little of the machine says little. */
static const double LEAST_SHARE = 0.4;

static bool is_weak(const wo_eval_result *r)
{
    return r->full_of_peak < LEAST_SHARE || r->full_of_read < LEAST_SHARE; /* false for NAN */
}

static void warn_of_weak_full(const wo_eval_result *r)
{
    if (r->full_of_peak < LEAST_SHARE)
        fprintf(stderr,
                "%s: warning: FULL runs at %.0f%% of the multiply-adds that this machine can do in batches of %" PRIu32
                ", so the speed-ups are too high: is the machine busy, or WIDEOUT_CPU set?\n",
                cli_program, 100 * r->full_of_peak, r->timings[r->n_timings - 1].batch);
    if (r->full_of_read < LEAST_SHARE)
        fprintf(stderr,
                "%s: warning: FULL reads at %.0f%% of the rate that this machine can read at, one query at a time, so "
                "the speed-ups are too high: is the machine busy, or WIDEOUT_CPU set?\n",
                cli_program, 100 * r->full_of_read);
}

static json_t *timing_json(const wo_eval_timing *t)
{
    return json_pack("{s:I, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "batch", (json_int_t)t->batch,
                     "threads", t->threads, "calls", (json_int_t)t->calls, "full_calls", (json_int_t)t->full_calls,
                     "us_per_query", real(t->us), "us_per_query_p99", real(t->us_p99), "full_us_per_query",
                     real(t->full_us), "full_us_per_query_p99", real(t->full_us_p99), "speedup", ratio(t->speedup),
                     "cpu_s_per_1000", real(t->cpu_s_per_1000), "full_cpu_s_per_1000", real(t->full_cpu_s_per_1000));
}

/* Where, when and how it was measured. */
static json_t *run_json(const arguments *args, const wo_eval_options *o, const cli_index *index)
{
    wo_cpu_info cpu = {.struct_size = sizeof cpu, .model = "unknown", .level = "unknown"};
    char date[32] = "";
    struct tm utc;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    wo_cpu_query(&cpu, NULL);
    json_t *ks = json_array();
    for (size_t i = 0; i < o->n_ks; i++) json_array_append_new(ks, json_integer(o->ks[i]));
    return json_pack(
        "{s:s, s:s, s:{s:s, s:s, s:I}, s:{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s?, s:s?}, s:s?}", "version",
        wo_version(), "date", date, "machine", "cpu", cpu.model, "instructions", cpu.level, "cores",
        (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "options", "top", ks, "batch", (json_int_t)o->batch, "probes",
        (json_int_t)o->probes, "max_queries", (json_int_t)o->max_queries, "rounds", (json_int_t)o->rounds, "seed",
        (json_int_t)o->seed, "threads", (json_int_t)o->threads, "exact_fallback", o->exact_fallback, "no_timing",
        o->skip_timing, "layer", args->layer.path, "labels", args->labels, "full_note",
        has_no_full(args, index) ? "not measured: the index has rows in bf16 alone, and no layer was given" : NULL);
}

static json_t *result_json(const arguments *args, const wo_eval_options *o, const cli_index *index,
                           const wo_eval_result *r)
{
    const wo_index_info *info = &index->info;
    static const wo_eval_timing none = {0, 0, 0, 0, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    const bool timed = r->n_timings > 0;
    const wo_eval_timing *t = timed ? &r->timings[r->headline] : &none;
    json_t *object = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "index", cli_json_text(args->index),
        "log", cli_json_text(args->log), "method", info->method_name, "m", (json_int_t)info->m, "d",
        (json_int_t)info->d, "n", (json_int_t)r->n, "without_label", (json_int_t)r->skipped, "not_finite",
        (json_int_t)r->refused, "p_at_1", real(r->p_at_1), "p_at_3", real(r->p_at_3), "p_at_5", real(r->p_at_5),
        "full_p_at_1", real(r->full_p_at_1), "full_p_at_3", real(r->full_p_at_3), "full_p_at_5", real(r->full_p_at_5));
    for (size_t i = 0; object && i < o->n_ks; i++) {
        char name[32];
        snprintf(name, sizeof name, "agreement_at_%" PRIu32, o->ks[i]);
        json_object_set_new(object, name, real(r->agreement[i]));
    }
    json_t *timings = json_array();
    for (size_t i = 0; i < r->n_timings; i++) json_array_append_new(timings, timing_json(&r->timings[i]));
    json_t *rest = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o}",
        "label_recall", real(r->label_recall), "sample_size", real(r->sample_size), "cells", real(r->cells),
        "empty_share", real(r->empty_share), "wider_share", real(r->wider_share), "exact_share", real(r->exact_share),
        "label_rank", real(r->label_rank), "label_rank_retrieved", real(r->label_rank_retrieved), "k",
        timed ? json_integer(r->k) : json_null(), "batch", timed ? json_integer(t->batch) : json_null(), "threads",
        timed ? json_integer(t->threads) : json_null(), "us_per_query", real(t->us), "full_us_per_query",
        real(t->full_us), "speedup", ratio(t->speedup), "cold_us", real(r->cold_us), "full_cold_us",
        real(r->full_cold_us), "cpu_s_per_1000", real(t->cpu_s_per_1000), "full_cpu_s_per_1000",
        real(t->full_cpu_s_per_1000), "energy_j_per_1000", real(r->energy_j_per_1000), "full_energy_j_per_1000",
        real(r->full_energy_j_per_1000), "energy_note",
        r->energy_note[0] ? json_sprintf("not measured: %s", r->energy_note) : json_null(), "full_of_peak",
        real(r->full_of_peak), "full_of_read", real(r->full_of_read), "full_is_weak", json_boolean(is_weak(r)),
        "timings", timings);
    if (rest && !isnan(r->perplexity)) {
        json_object_set_new(rest, "perplexity", ratio(r->perplexity));
        json_object_set_new(rest, "full_perplexity", ratio(r->full_perplexity));
    }
    if (rest && !isnan(r->log_z_error)) {
        json_object_set_new(rest, "log_z_error", real(r->log_z_error));
        json_object_set_new(rest, "log_z_bias", real(r->log_z_bias));
        json_object_set_new(rest, "probability_sum", real(r->probability_sum));
    }
    json_t *run = run_json(args, o, index);
    if (!object || !rest || !run || json_object_update(object, rest) || json_object_update(object, run)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(rest);
    json_decref(run);
    return object;
}

/* ---- For people -------------------------------------------------------------------------------------------- */

/* The columns of the table: on a narrow terminal they are, and on a very narrow one shares are left out. */
typedef struct table {
    int columns, label, number, share; /* share 0: none */
} table;

static table table_of(int columns)
{
    enum { WIDE = 71, MIDDLE = 60 };
    if (columns >= WIDE) return (table){columns, 32, 12, 9};
    return (table){columns, 28, 9, columns >= MIDDLE ? 8 : 0};
}

/* Words on lines of their own, which begin with `indent` spaces. */
static void print_words(const table *t, int indent, const char *text)
{
    int used = 0;
    for (const char *word = text; *word; word += strspn(word, " ")) {
        const int bytes = (int)strcspn(word, " ");
        if (used && used + 1 + bytes > t->columns) {
            printf("\n");
            used = 0;
        }
        used += used ? printf(" ") : printf("%*s", indent, "");
        used += bytes;
        cli_print_bytes(stdout, word, (size_t)bytes);
        word += bytes;
    }
    printf("\n");
}

/* What a row is about; on a line of its own where that is longer than its column. */
static void print_label(const table *t, const char *what)
{
    if ((int)strlen(what) > t->label)
        printf("  %s\n  %-*s", what, t->label, "");
    else
        printf("  %-*s", t->label, what);
}

/* A number with `decimals` of them, or "-". */
static void print_cell(const table *t, double value, int decimals)
{
    char text[48];
    if (isnan(value))
        snprintf(text, sizeof text, "-");
    else if (decimals == 0)
        snprintf(text, sizeof text, "%s", cli_number((uint64_t)(value + 0.5)));
    else
        snprintf(text, sizeof text, "%.*f", decimals, value);
    printf(" %*s", t->number, text);
}

/* The numbers alone, for what may stand behind them: print_share() and the like end the line. */
static void begin_row(const table *t, const char *what, const double value[2], const int decimals[2])
{
    print_label(t, what);
    for (int i = 0; i < 2; i++) print_cell(t, value[i], decimals[i]);
}

static void print_row(const table *t, const char *what, double method, double full, int decimals, int full_decimals)
{
    begin_row(t, what, (double[]){method, full}, (int[]){decimals, full_decimals});
    printf("\n");
}

/* The share that `of` is, or nothing for NAN, and the end of the line. */
static void end_row(const table *t, double of)
{
    if (t->share && !isnan(of)) printf(" %*.2f%%", t->share, 100 * of);
    printf("\n");
}

static void print_share(const table *t, const char *what, double method, double full)
{
    begin_row(t, what, (double[]){method, full}, (int[]){4, 4});
    end_row(t, full > 0 ? method / full : NAN);
}

/* Decimals that leave about three digits. */
static int decimals_of(double us)
{
    return us < 10 ? 2 : us < 1000 ? 1 : 0;
}

static void print_time(const table *t, const char *what, double method, double full)
{
    begin_row(t, what, (double[]){method, full}, (int[]){decimals_of(method), decimals_of(full)});
    if (t->share && isfinite(full / method))
        printf(" %*.*f x", t->share - 1, full / method < 100 ? 1 : 0, full / method);
    printf("\n");
}

static void print_timings(const table *t, const wo_eval_result *r)
{
    char what[64];
    for (size_t i = 0; i < r->n_timings; i++) {
        const wo_eval_timing *timing = &r->timings[i];
        snprintf(what, sizeof what, "us/query, batch %" PRIu32 ", %d thread%s", timing->batch, timing->threads,
                 timing->threads == 1 ? "" : "s");
        print_time(t, what, timing->us, timing->full_us);
        print_row(t, "  99th percentile", timing->us_p99, timing->full_us_p99, decimals_of(timing->us_p99),
                  decimals_of(timing->full_us_p99));
    }
    print_time(t, "us, cold caches, batch 1", r->cold_us, r->full_cold_us);
    const wo_eval_timing *headline = &r->timings[r->headline];
    snprintf(what, sizeof what, "CPU s per 1,000, batch %" PRIu32, headline->batch);
    print_row(t, what, headline->cpu_s_per_1000, headline->full_cpu_s_per_1000, 6, 6);
    snprintf(what, sizeof what, "J per 1,000, batch %" PRIu32, headline->batch);
    if (!isnan(r->energy_j_per_1000)) {
        print_row(t, what, r->energy_j_per_1000, r->full_energy_j_per_1000, 4, 4);
        return;
    }
    char text[sizeof what + sizeof r->energy_note + 32];
    snprintf(text, sizeof text, "%s: not measured: %s", what, r->energy_note);
    print_words(t, 2, text);
}

/* Of an index with a partition. */
static void print_probabilities(const table *t, const wo_eval_result *r)
{
    if (!isnan(r->perplexity)) {
        begin_row(t, "perplexity of the labels", (double[]){r->perplexity, r->full_perplexity},
                  (int[]){r->perplexity < 1e6 ? 3 : 0, r->full_perplexity < 1e6 ? 3 : 0});
        end_row(t, r->full_perplexity > 0 ? r->perplexity / r->full_perplexity : NAN);
    }
    if (isnan(r->log_z_error)) return;
    print_row(t, "log Z, error in nats", r->log_z_error, 0, 4, 0);
    print_row(t, "log Z, bias in nats", r->log_z_bias, 0, 4, 0);
    print_row(t, "probabilities sum to", r->probability_sum, 1, 4, 0);
}

/* Where the quality is not that of the cells, whose times stand below it. */
static void print_by_full(const table *t, const wo_index_info *info, uint32_t batch)
{
    char text[128], cells[64] = "";
    const uint32_t other = info->full_from > 1 ? 1 : info->full_to + 1; /* 1: none */
    if (info->full_from > 1 || info->full_to) snprintf(cells, sizeof cells, ": -b %" PRIu32 " judges the cells", other);
    snprintf(text, sizeof text, "quality is that of batches of %s, which FULL answers%s", cli_number(batch), cells);
    print_words(t, 2, text);
}

static void print_header(const table *t, const arguments *args, const cli_index *index, const wo_eval_result *r)
{
    const wo_index_info *info = &index->info;
    cli_print_text(stdout, args->index);
    printf(": %s, %s, %s\n", info->method_name, cli_count(info->m, "class"), cli_count(info->d, "dimension"));
    cli_print_text(stdout, args->log);
    printf(": %s", cli_count(r->n, "query"));
    if (r->skipped == r->n)
        printf(", no labels");
    else if (r->skipped)
        printf(", %s without a label not in P@k", cli_number(r->skipped));
    if (r->refused) printf("; %s with numbers or scores that are not finite left out", cli_number(r->refused));
    printf("\n  %-*s %*s %*s\n", t->label, "", t->number, info->method_name, t->number, "FULL");
    if (has_no_full(args, index))
        print_words(t, 2,
                    "FULL's column is empty: the index has rows in bf16 alone; --layer FILE gives the exact ones");
}

static int print_result(const arguments *args, const wo_eval_options *o, const cli_index *index,
                        const wo_eval_result *r)
{
    const wo_index_info *info = &index->info;
    const table at = table_of(cli_columns(80)), *t = &at;
    print_header(t, args, index, r);
    if (r->exact_share == 1 && cli_index_by_full(info, o->batch)) print_by_full(t, info, o->batch);
    if (!isnan(r->p_at_1)) {
        print_share(t, "P@1", r->p_at_1, r->full_p_at_1);
        print_share(t, "P@3", r->p_at_3, r->full_p_at_3);
        print_share(t, "P@5", r->p_at_5, r->full_p_at_5);
    }
    for (size_t i = 0; i < o->n_ks; i++) {
        char what[48];
        snprintf(what, sizeof what, "share of FULL's best %" PRIu32, o->ks[i]);
        print_row(t, what, r->agreement[i], isnan(r->agreement[i]) ? NAN : 1, 4, 0);
    }
    begin_row(t, index->options.method == WO_METHOD_SCREEN ? "classes scored after the screen" : "classes a query",
              (double[]){r->sample_size, (double)info->m}, (int[]){r->sample_size < 1000 ? 1 : 0, 0});
    end_row(t, r->sample_size / (double)info->m);
    print_row(t, "queries without a class", r->empty_share, 0, 4, 0);
    if (index->options.fallback)
        print_row(t,
                  index->options.fallback_by == WO_FALLBACK_SCREEN ? "queries that the screen helped"
                                                                   : "queries that opened more cells",
                  r->wider_share, NAN, 4, 0);
    if (r->exact_share > 0) print_row(t, "queries that FULL answered", r->exact_share, 1, 4, 0);
    if (!isnan(r->label_recall)) {
        print_row(t, "labels retrieved", r->label_recall, 1, 4, 0);
        print_row(t, "mean rank of those", r->label_rank_retrieved, r->label_rank, 1, 1);
    }
    print_probabilities(t, r);
    if (r->n_timings) print_timings(t, r);
    return cli_end();
}

/* ---- The command ------------------------------------------------------------------------------------------- */

static int evaluate(const cli_command *self, const arguments *args, const wo_eval_options *o)
{
    wo_layer *layer = NULL;
    wo_index *index = NULL;
    cli_labelled log = {0};
    wo_searcher *searcher = NULL;
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = 1, .max_probes = o->probes};
    wo_open_options oo = {.struct_size = sizeof oo};
    wo_eval_timing timings[WO_EVAL_MAX + 1];
    wo_eval_result result = {.struct_size = sizeof result,
                             .timings = timings,
                             .timings_room = WO_EVAL_MAX + 1,
                             .timing_bytes = sizeof timings[0]};
    const cli_files files = {.layer = args->layer.path, .index = args->index, .log = args->log, .labels = args->labels};
    cli_index info;
    uint32_t most = 0; /* answers that were asked for */
    wo_error err;
    int code = args->layer.path ? cli_layer_open(self, &args->layer, &layer) : CLI_OK;
    if (code) goto done;
    /* A searcher, made to see whether one can be, before the exact layer ranks every label. */
    oo.layer = layer;
    if (wo_index_open(args->index, &oo, &index, &err) || wo_searcher_create(index, &so, &searcher, &err)) {
        code = cli_blame(self, &files, &err);
        goto done;
    }
    wo_searcher_free(searcher);
    info = cli_index_of(index);
    if ((code = cli_index_refuse_probes(self, args->index, &info, o->probes))) goto done;
    cli_index_warn(args->index, &info, args->exact_fallback);
    for (size_t i = 0; args->ks && i < o->n_ks; i++) most = o->ks[i] > most ? o->ks[i] : most;
    cli_index_warn_k(args->index, index, most);
    if (cli_labelled_open(args->log, args->labels, &log, &err) ||
        wo_evaluate(index, layer, log.log, o, &result, &err)) {
        code = cli_blame(self, &files, &err);
        goto done;
    }
    cli_progress_end();
    warn_of_weak_full(&result);
    if (info.info.n_removed < info.info.m)
        cli_warn_of_hits(args->log, log.log, result.n - result.skipped, result.full_p_at_1);
    code = args->common.json ? cli_print_json(result_json(args, o, &info, &result))
                             : print_result(args, o, &info, &result);
done:
    cli_labelled_free(&log);
    wo_index_free(index);
    wo_layer_free(layer);
    return code;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n > 0) return cli_usage(self, "unexpected '%s': files are named by --index and --log", rest[0]);
    if (!args->index) return cli_usage(self, "needs --index FILE");
    if (!args->log) return cli_usage(self, "needs --log FILE");
    if (cli_layer_refuse_parts(self, &args->layer)) return CLI_USAGE;
    if (args->batch > MAX_BATCH)
        return cli_usage(self, "--batch takes at most %d, not %" PRIu64, MAX_BATCH, args->batch);
    if (args->rounds > MAX_ROUNDS)
        return cli_usage(self, "--rounds takes at most %d, not %" PRIu64, MAX_ROUNDS, args->rounds);
    wo_eval_options o;
    wo_eval_defaults(&o, sizeof o);
    if (args->ks && !parse_ks(args->ks, &o))
        return cli_usage(self, "-k takes up to %d numbers from 1 to %d with commas between, not '%s'", WO_EVAL_MAX,
                         MAX_K, args->ks);
    o.batch = args->batch ? (uint32_t)args->batch : CLI_EVAL_BATCH;
    o.probes = args->probes > UINT32_MAX ? UINT32_MAX : (uint32_t)args->probes;
    o.max_queries = args->max_queries;
    o.rounds = (uint32_t)args->rounds;
    o.exact_fallback = args->exact_fallback;
    o.no_prior = args->no_prior;
    o.skip_timing = args->no_timing;
    o.seed = args->common.seed;
    o.threads = (int)args->common.threads;
    o.progress = cli_progress(&args->common);
    return evaluate(self, args, &o);
}

const cli_command cli_cmd_eval = {
    "eval",
    "--index FILE --log FILE [options]",
    "judge an index on a log: quality, classes scored, time and energy beside FULL",
    "Judges an index on queries that it was not built from, beside FULL, the exact layer, on the same\n"
    "queries in the same run. Labels give P@1, P@3 and P@5; without labels there is the agreement with\n"
    "FULL's best. Both sides are timed in turn, warm: batches of 1 on one thread, batches of 1,024 on\n"
    "--threads; then single queries with cold caches. Let nothing else run meanwhile.\n"
    "\n"
    "  wideout eval --index index.safetensors --log test.log.safetensors\n"
    "  wideout eval --index index.safetensors --log test.log.safetensors -k 1,5,20 --batch 256 --json\n"
    "  wideout eval --index index.safetensors --log test.log.safetensors --probes 4 --no-timing\n"
    "\n"
    "Joules come from RAPL through /sys/class/powercap, which often only root may read; where they cannot\n"
    "be read they are not measured, and never estimated.",
    options,
    sizeof(arguments),
    run,
};
