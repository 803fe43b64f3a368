/* wideout-mpi eval: how good an index in shards is, and what a stream of queries costs, beside the exact layer. */
#include "../cli/index_text.h"
#include "../cli/labelled.h"
#include "ask.h"
#include "base/hits.h"
#include "base/rng.h"
#include "commands.h"
#include "judge/evaluate.h"
#include "parts.h"
#include "store/log.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_K = 1000, DEFAULT_BATCH = 1024, DEFAULT_ROUNDS = 3, MAX_ROUNDS = 1000, MAX_BATCH = 65536 };

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *index, *log, *labels, *ks;
    uint64_t batch, probes, rounds, max_queries;
    bool exact_fallback, no_prior, no_full, no_timing, in_turn;
} arguments;

static const cli_option options[] = {
    {"index", 0, CLI_TEXT_ONCE, offsetof(arguments, index), "PREFIX", "the index ('wideout-mpi build')", false},
    {"log", 0, CLI_TEXT_ONCE, offsetof(arguments, log), "FILE", "queries that it was not built from: a log or .npy",
     false},
    {"labels", 0, CLI_TEXT_ONCE, offsetof(arguments, labels), "FILE",
     "their labels as .npy or .npz, where the log has none", false},
    CLI_LAYER_OPTIONS(arguments, layer, "the layer, or the prefix of its shards, where the index has no rows"),
    {"top", 'k', CLI_TEXT_ONCE, offsetof(arguments, ks), "LIST", "compare the k best with FULL's (default: 1,5)",
     false},
    {"batch", 'b', CLI_SIZE, offsetof(arguments, batch), "N", "queries that are sent at once (default: 1024)", false},
    {"probes", 0, CLI_SIZE, offsetof(arguments, probes), "N", "cells opened in each table (default: the index's)",
     false},
    {"rounds", 0, CLI_SIZE, offsetof(arguments, rounds), "N", "of the whole stream, timed (default: 3)", false},
    {"exact-fallback", 0, CLI_FLAG, offsetof(arguments, exact_fallback), NULL,
     "FULL answers queries that the index knows little about", false},
    {"no-prior", 0, CLI_FLAG, offsetof(arguments, no_prior), NULL, "score by logits alone, without the index's prior",
     false},
    {"max-queries", 0, CLI_SIZE, offsetof(arguments, max_queries), "N", "judge a seeded sample of N (default: all)",
     false},
    {"in-turn", 0, CLI_FLAG, offsetof(arguments, in_turn), NULL,
     "send a block when the one before is answered: what overlapping is worth", false},
    {"no-timing", 0, CLI_FLAG, offsetof(arguments, no_timing), NULL, "one round, and no times", false},
    {"no-full", 0, CLI_FLAG, offsetof(arguments, no_full), NULL, "do not ask the exact layer", false},
    {0},
};

/* ---- One stream -------------------------------------------------------------------------------------------- */

/* On rank 0. */
typedef struct stream {
    const float *q; /* (n, d) */
    size_t n, d, k;
    size_t at;    /* the next query to send */
    size_t done;  /* queries answered */
    int32_t *ids; /* (n, k): the answers; NULL: they are not kept */
    double candidates, cells;
    uint64_t empty, refused, wider, exact;
} stream;

static wo_status next(void *ctx, size_t most, const float **q, size_t *n, wo_error *err)
{
    stream *s = ctx;
    const size_t left = s->n - s->at;
    (void)err;
    *n = left < most ? left : most;
    *q = s->q + s->at * s->d;
    s->at += *n;
    return WO_OK;
}

static wo_status answered(void *ctx, const ask_block *block, wo_error *err)
{
    stream *s = ctx;
    (void)err;
    if (job_rank() != 0) return WO_OK;
    if (s->ids) memcpy(s->ids + s->done * s->k, block->ids, block->n * s->k * sizeof *s->ids);
    for (size_t i = 0; i < block->n; i++) {
        s->candidates += block->stats[i].candidates;
        s->cells += block->stats[i].cells;
        s->refused += block->stats[i].status != WO_OK;
        s->empty += !block->stats[i].status && !block->stats[i].candidates;
        s->wider += block->stats[i].wider;
        s->exact += block->stats[i].exact;
    }
    s->done += block->n;
    return WO_OK;
}

typedef struct judged {
    const arguments *args;
    const cli_command *self;
    const wo_index *index;
    uint32_t ks[WO_EVAL_MAX];
    size_t block;        /* queries that were sent at once */
    size_t n_ks, k;      /* answers asked for: the most of ks, and five */
    cli_labelled log;    /* of rank 0, as are: */
    size_t *picks;       /* (n): the queries that are judged; NULL: all */
    float *picked;       /* (n, d) */
    uint64_t n, d;       /* on every rank */
    int32_t *own, *full; /* (n, k), on rank 0 */
    int32_t *labels;     /* there: room for those of a query */
    double us, full_us;
    stream stats; /* of the index */
} judged;

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* All queries, so often; *us becomes the median time of a query. */
static wo_status run_stream(judged *j, wo_by by, int32_t *ids, uint64_t rounds, double *us, wo_error *err)
{
    double times[MAX_ROUNDS] = {0};
    wo_status status = WO_OK;
    for (uint64_t round = 0; !status && round < rounds; round++) {
        stream s = {.q = j->picked    ? j->picked
                         : j->log.log ? wo_log_queries(j->log.log)
                                      : NULL,
                    .n = (size_t)j->n,
                    .d = (size_t)j->d,
                    .k = j->k,
                    .ids = round == 0 ? ids : NULL};
        const ask_options o = {.k = j->k,
                               .block = j->args->batch ? (size_t)j->args->batch : DEFAULT_BATCH,
                               .call = {.by = by,
                                        .probes = (uint32_t)j->args->probes,
                                        .exact_fallback = j->args->exact_fallback,
                                        .no_prior = j->args->no_prior || by == WO_BY_FULL},
                               .threads = (int)j->args->common.threads,
                               .next = next,
                               .next_ctx = &s,
                               .ahead = !j->args->in_turn,
                               .answered = answered,
                               .answered_ctx = &s,
                               .sent = &j->block};
        const double start = woi_now_s();
        status = ask_all(j->index, &o, err);
        times[round] = 1e6 * (woi_now_s() - start) / (double)j->n;
        if (round == 0 && by != WO_BY_FULL) j->stats = s;
    }
    qsort(times, rounds, sizeof *times, by_time);
    *us = times[rounds / 2];
    return status;
}

/* ---- Quality ----------------------------------------------------------------------------------------------- */

typedef struct precision {
    double at[3]; /* 1, 3, 5; NAN without labels */
    uint64_t without;
} precision;

static const size_t ks[3] = {1, 3, 5};

static precision precision_of(const judged *j, const int32_t *ids)
{
    const wo_log *log = j->log.log;
    precision p = {.at = {NAN, NAN, NAN}};
    uint64_t n = 0, hits[3] = {0};
    if (!log || !log->indptr || !ids) return p;
    for (size_t i = 0; i < j->n; i++) {
        const size_t n_labels = woi_labels_of(log->indptr, log->labels, j->picks ? j->picks[i] : i, j->labels);
        p.without += !n_labels;
        n += n_labels > 0;
        for (int which = 0; which < 3; which++) hits[which] += woi_hits(j->labels, n_labels, ids + i * j->k, ks[which]);
    }
    for (int which = 0; n && which < 3; which++) p.at[which] = (double)hits[which] / (double)ks[which] / (double)n;
    return p;
}

static double agreement(const judged *j, size_t k)
{
    uint64_t common = 0, all = 0;
    if (!j->full) return NAN;
    for (size_t i = 0; i < j->n; i++) {
        int32_t scratch[MAX_K];
        const woi_agreement a = woi_agree(j->own + i * j->k, j->full + i * j->k, k, scratch);
        common += a.common;
        all += a.all;
    }
    return all ? (double)common / (double)all : NAN;
}

/* ---- Report ------------------------------------------------------------------------------------------------ */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int report(const judged *j)
{
    const cli_index about = cli_index_of(j->index);
    const precision own = precision_of(j, j->own), full = precision_of(j, j->full);
    const stream *s = &j->stats;
    const double n = (double)(j->n - s->refused);
    const bool asked = j->full != NULL, timed = !j->args->no_timing;
    if (!j->args->common.json) {
        cli_print_text(stdout, j->args->index);
        printf(": %s in %s, %s\n", about.info.method_name, cli_count((uint64_t)job_size(), "process"),
               cli_count(j->n, "query"));
        printf("  %-24s %12s %12s\n", "", "the index", "FULL");
        for (int i = 0; i < 3; i++) printf("  P@%zu %34.4f %12.4f\n", ks[i], own.at[i], full.at[i]);
        for (size_t i = 0; i < j->n_ks; i++)
            printf("  agreement with FULL, %-4" PRIu32 "%11.4f\n", j->ks[i], agreement(j, j->ks[i]));
        printf("  classes scored           %12.1f\n", s->candidates / n);
        if (!j->args->no_timing)
            printf("  us/query, of the stream  %12.2f %12.2f\n", j->us, asked ? j->full_us : (double)NAN);
        return cli_end();
    }
    json_t *json =
        json_pack("{s:o, s:o, s:s, s:i, s:I, s:I, s:I, s:I, s:I}", "index", cli_json_text(j->args->index), "log",
                  cli_json_text(j->args->log), "method", about.info.method_name, "ranks", job_size(), "m",
                  (json_int_t)about.info.m_whole, "d", (json_int_t)about.info.d, "n", (json_int_t)(j->n - s->refused),
                  "without_label", (json_int_t)own.without, "not_finite", (json_int_t)s->refused);
    static const char *const names[] = {"p_at_1", "p_at_3", "p_at_5"}, *const full_names[] = {
                                                                           "full_p_at_1", "full_p_at_3", "full_p_at_5"};
    for (int i = 0; i < 3; i++) {
        json_object_set_new(json, names[i], real(own.at[i]));
        json_object_set_new(json, full_names[i], real(full.at[i]));
    }
    for (size_t i = 0; i < j->n_ks; i++) {
        char name[32];
        snprintf(name, sizeof name, "agreement_at_%" PRIu32, j->ks[i]);
        json_object_set_new(json, name, real(agreement(j, j->ks[i])));
    }
    json_object_update_new(
        json,
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "sample_size", real(s->candidates / n),
                  "cells", real(s->cells / n), "empty_share", real((double)s->empty / n), "wider_share",
                  real((double)s->wider / n), "exact_share", real((double)s->exact / n), "batch", (json_int_t)j->block,
                  "threads", (json_int_t)j->args->common.threads, "us_per_query", real(timed ? j->us : (double)NAN),
                  "full_us_per_query", real(asked && timed ? j->full_us : (double)NAN), "speedup",
                  real(asked && timed ? j->full_us / j->us : (double)NAN), "phases", job_phases_json()));
    return cli_print_json(json);
}

/* ---- The command ------------------------------------------------------------------------------------------- */

/* The queries that 'wideout eval' would judge, with their numbers. */
static wo_status pick(judged *j, size_t n, wo_error *err)
{
    const wo_log *log = j->log.log;
    j->picks = malloc(n * sizeof *j->picks);
    j->picked = malloc(n * log->d * sizeof *j->picked);
    if (!j->picks || !j->picked) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        j->picks[i] = woi_rng_place(j->args->common.seed, WOI_EVAL_STREAM_QUERIES, i, n, log->n);
        memcpy(j->picked + i * log->d, log->queries + j->picks[i] * log->d, log->d * sizeof *j->picked);
    }
    return WO_OK;
}

/* Rank 0 alone reads the log; the others learn how many of its queries are judged. */
static int open_log(judged *j)
{
    const arguments *args = j->args;
    const wo_collective *calls = job_calls();
    const cli_files files = {.log = args->log, .labels = args->labels};
    wo_index_info info = {.struct_size = sizeof info};
    wo_error err;
    uint64_t shape[2] = {0, 0};
    wo_index_describe(j->index, &info);
    if (job_rank() == 0) {
        if (cli_labelled_open(args->log, args->labels, &j->log, &err)) return cli_blame(j->self, &files, &err);
        const wo_log *log = j->log.log;
        const bool some = args->max_queries && args->max_queries < log->n;
        shape[0] = some ? args->max_queries : log->n;
        shape[1] = log->d;
        if (!log->n) cli_set_error(&err, WO_ERR_ARGUMENT, "the log has no queries");
        if (log->d != info.d)
            cli_set_error(&err, WO_ERR_ARGUMENT, "queries have %zu numbers, the index takes %zu", log->d, info.d);
        if (log->max_label >= (int64_t)info.m_whole)
            cli_set_error(&err, WO_ERR_ARGUMENT, "label %" PRId64 " is not one of the %zu classes", log->max_label,
                          info.m_whole);
        if (!log->n || log->d != info.d || log->max_label >= (int64_t)info.m_whole) return cli_fail(args->log, &err);
        j->own = malloc(shape[0] * j->k * sizeof *j->own);
        if (!args->no_full) j->full = malloc(shape[0] * j->k * sizeof *j->full);
        j->labels = malloc((woi_most_labels(log->indptr, log->n) + 1) * sizeof *j->labels);
        if (!j->own || !j->labels || (!args->no_full && !j->full)) {
            cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
            return cli_fail(NULL, &err);
        }
        if (some && pick(j, shape[0], &err)) return cli_fail(NULL, &err);
    }
    if (calls->broadcast(calls->ctx, shape, sizeof shape, 0, &err)) return part_blame(j->self, &files, &err);
    j->n = shape[0];
    j->d = shape[1];
    return CLI_OK;
}

/* "1,5,20" */
static bool parse_ks(const char *text, judged *j)
{
    j->n_ks = 0;
    j->k = 5; /* for P@5 */
    for (char *end; j->n_ks < WO_EVAL_MAX; text = end + 1) {
        if (*text < '0' || *text > '9') return false;
        const unsigned long k = strtoul(text, &end, 10);
        if (k < 1 || k > MAX_K) return false;
        j->ks[j->n_ks++] = (uint32_t)k;
        if (k > j->k) j->k = k;
        if (*end == '\0') return true;
        if (*end != ',') return false;
    }
    return false;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    const uint64_t rounds = args->no_timing ? 1 : args->rounds ? args->rounds : DEFAULT_ROUNDS;
    wo_layer *layer = NULL;
    wo_index *index = NULL;
    wo_error err;
    if (n > 0) return cli_usage(self, "unexpected '%s': files are named by --index and --log", rest[0]);
    if (!args->index) return cli_usage(self, "needs --index PREFIX");
    if (!args->log) return cli_usage(self, "needs --log FILE");
    if (cli_layer_refuse_parts(self, &args->layer)) return CLI_USAGE;
    if (args->batch > MAX_BATCH) return cli_usage(self, "--batch takes at most %d", MAX_BATCH);
    if (rounds > MAX_ROUNDS) return cli_usage(self, "--rounds takes at most %d", MAX_ROUNDS);
    if (args->no_timing && args->rounds) return cli_usage(self, "--rounds are timed, --no-timing leaves that out");
    if (args->probes > UINT32_MAX) return cli_usage(self, "--probes is too large");
    judged j = {.args = args, .self = self};
    if (!parse_ks(args->ks ? args->ks : "1,5", &j))
        return cli_usage(self, "-k takes up to %d numbers from 1 to %d, as 1,5: found '%s'", WO_EVAL_MAX, MAX_K,
                         args->ks);
    const cli_files files = {.index = args->index, .layer = args->layer.path, .log = args->log};
    job_phase("reading");
    int code = args->layer.path ? part_open_layer(self, &args->layer, NULL, &layer) : CLI_OK;
    if (!code) code = part_open_index(self, args->index, layer, &index);
    j.index = index;
    if (!code) code = open_log(&j);
    if (!code && run_stream(&j, WO_BY_CELLS, j.own, rounds, &j.us, &err)) code = part_blame(self, &files, &err);
    if (!code && !args->no_full && run_stream(&j, WO_BY_FULL, j.full, 1, &j.full_us, &err))
        code = part_blame(self, &files, &err);
    if (!code && job_rank() == 0) code = report(&j);
    free(j.picks);
    free(j.picked);
    free(j.own);
    free(j.full);
    free(j.labels);
    cli_labelled_free(&j.log);
    wo_index_free(index);
    wo_layer_free(layer);
    return code;
}

const cli_command mpi_cmd_eval = {
    "eval",
    "--index PREFIX --log FILE [options]",
    "how good an index in shards is, and what a stream of queries costs",
    "Rank 0 reads the log and sends it in blocks; each rank finds the cells of its share of the queries,\n"
    "scores its own classes for all of them, and the best of all are merged. While a block is scored the\n"
    "next two, and the answers to the one before, are on their way. Then the exact layer is asked the same\n"
    "way:\n"
    "\n"
    "  mpirun -n 4 wideout-mpi eval --index parts/index --log test.log\n"
    "  mpirun -n 4 wideout-mpi eval --index parts/index --log test.log --threads 8 --json\n"
    "\n"
    "Times are of the whole stream, sending and merging counted, divided by its queries: the median of\n"
    "--rounds. --json has, for rank 0, seconds and the bytes that arrived, by phase.",
    options,
    sizeof(arguments),
    run,
};
