/* wideout-mpi predict: the best classes of queries, by all ranks; rank 0 reads and prints, or writes a file. */
#include "../cli/class_list.h"
#include "../cli/class_names.h"
#include "../cli/inputs.h"
#include "../cli/outputs.h"
#include "../cli/predict_source.h"
#include "ask.h"
#include "commands.h"
#include "parts.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_K = 5, MAX_K = 1 << 20, BLOCK = 1024 };

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *index, *net, *vocab, *names, *output;
    uint64_t k, probes;
    int format, arch; /* CLI_CHOICE */
    bool softmax, logprob, exact, exact_fallback, no_prior, one_based, phases;
    cli_texts forbid, require;
} arguments;

static const cli_option options[] = {
    {"index", 0, CLI_TEXT_ONCE, offsetof(arguments, index), "PREFIX", "the index ('wideout-mpi build')", false},
    {"net", 0, CLI_TEXT_ONCE, offsetof(arguments, net), "FILE", "the network that makes queries of raw examples",
     false},
    {"arch", 0, CLI_CHOICE, offsetof(arguments, arch), "lm", "it is another's state dict: an LSTM", false},
    {"vocab", 0, CLI_TEXT_ONCE, offsetof(arguments, vocab), "FILE", "its words, one a line", false},
    {"names", 0, CLI_TEXT_ONCE, offsetof(arguments, names), "FILE", "what the classes are called, one a line", false},
    {"output", 'o', CLI_TEXT, offsetof(arguments, output), "FILE",
     "the answers in a file, there when it is complete;\nof standard output mpirun does not say that a disk is full",
     false},
    {"format", 0, CLI_CHOICE, offsetof(arguments, format), "auto|log|npy|xc|text|deb822",
     "what FILE is (default: auto, by its content)", false},
    {"top", 'k', CLI_SIZE, offsetof(arguments, k), "N", "how many classes (default: 5)", false},
    {"probes", 0, CLI_SIZE, offsetof(arguments, probes), "N", "cells opened in each table (default: the index's)",
     false},
    {"softmax", 0, CLI_FLAG, offsetof(arguments, softmax), NULL, "probabilities over the candidates, not logits",
     false},
    {"logprob", 0, CLI_FLAG, offsetof(arguments, logprob), NULL, "with --exact: logarithms of probabilities", false},
    {"exact", 0, CLI_FLAG, offsetof(arguments, exact), NULL, "score all classes", false},
    {"exact-fallback", 0, CLI_FLAG, offsetof(arguments, exact_fallback), NULL,
     "score all classes for queries that the index knows little about", false},
    {"no-prior", 0, CLI_FLAG, offsetof(arguments, no_prior), NULL, "logits alone, without the index's prior", false},
    {"forbid", 0, CLI_TEXTS, offsetof(arguments, forbid), "IDS|FILE", "never answer these: 3,17 or a file, one a line",
     false},
    {"require", 0, CLI_TEXTS, offsetof(arguments, require), "IDS|FILE", "always score these", false},
    {"one-based", 0, CLI_FLAG, offsetof(arguments, one_based), NULL, "xc: features count from 1", false},
    {"phases", 0, CLI_FLAG, offsetof(arguments, phases), NULL,
     "with --json a last line: seconds and bytes of rank 0, by phase", false},
    CLI_LAYER_OPTIONS(arguments, layer, "the layer, or the prefix of its shards, where the index has no rows"),
    {"json", 0, CLI_FLAG, offsetof(arguments, common.json), NULL, "print a JSON object for each query, one a line",
     false},
    {0},
};

typedef struct session {
    const cli_command *self;
    const arguments *args;
    wo_index *index;
    wo_index_info info;
    bool prior;
    cli_classes forbidden, mandatory;
    /* of rank 0: */
    cli_source source;
    woi_network *net;
    woi_names given; /* by --names; n = 0: none */
    const char *at;
    FILE *to;          /* stdout, or text that goes to `file` block by block */
    woi_outfile *file; /* of --output, or NULL */
    char *text;
    size_t text_bytes;
    uint64_t n, n_bad;
} session;

/* ---- Names ------------------------------------------------------------------------------------------------- */

/* The names of a block's answers, from the ranks that have them: entries of a place (4 bytes), a length (4) and the
 * name, one after the other. */
typedef struct block_names {
    const woi_names *whole; /* those of all classes, where rank 0 has them itself: then nothing is gathered */
    char *all;
    const char **name; /* (n, k); NULL: none */
    uint32_t *bytes;   /* (n, k) */
} block_names;

static void names_free(block_names *names)
{
    free(names->all);
    free(names->name);
    free(names->bytes);
}

static size_t list_own(const session *s, const ask_block *b, char *to)
{
    size_t used = 0;
    for (size_t at = 0; at < b->n * b->k; at++) {
        size_t bytes = 0;
        const char *name = b->ids[at] < 0 ? NULL : wo_index_label(s->index, b->ids[at], &bytes);
        if (!name) continue;
        const uint32_t head[2] = {(uint32_t)at, (uint32_t)bytes};
        if (to) memcpy(to + used, head, sizeof head);
        if (to && bytes) memcpy(to + used + sizeof head, name, bytes);
        used += sizeof head + bytes;
    }
    return used;
}

static wo_status gather_names(const session *s, const ask_block *b, block_names *names, wo_error *err)
{
    const wo_collective *calls = job_calls();
    const size_t size = (size_t)calls->size, places = b->n * b->k;
    size_t *each = malloc(size * sizeof *each), *eights = malloc(size * sizeof *eights), total = 0;
    const size_t mine = list_own(s, b, NULL);
    char *own = malloc(mine + 1);
    names->name = calloc(places + 1, sizeof *names->name);
    names->bytes = calloc(places + 1, sizeof *names->bytes);
    wo_status status = WO_OK;
    if (!each || !eights || !own || !names->name || !names->bytes) {
        status = cli_set_error(err, WO_ERR_MEMORY, "out of memory");
        goto done;
    }
    list_own(s, b, own);
    for (size_t r = 0; r < size; r++) eights[r] = sizeof mine;
    if ((status = calls->gather(calls->ctx, &mine, eights, each, err))) goto done;
    for (size_t r = 0; r < size; r++) total += each[r];
    if (!(names->all = malloc(total + 1))) {
        status = cli_set_error(err, WO_ERR_MEMORY, "out of memory");
        goto done;
    }
    if ((status = calls->gather(calls->ctx, own, each, names->all, err))) goto done;
    for (size_t at = 0; at < total;) {
        uint32_t head[2];
        memcpy(head, names->all + at, sizeof head);
        at += sizeof head;
        names->name[head[0]] = names->all + at;
        names->bytes[head[0]] = head[1];
        at += head[1];
    }
done:
    free(each);
    free(eights);
    free(own);
    return status;
}

/* Names that rank 0 has itself: as 'wideout predict' does, those given, else the network's where the index has none. */
static const woi_names *own_names(const session *s)
{
    if (s->given.n) return &s->given;
    if (s->info.has_names || !s->net || (uint64_t)s->net->labels.n != s->info.m_whole) return NULL;
    return &s->net->labels;
}

/* Whether ranks have to tell the names of their classes: the same on all of them. */
static bool ranks_tell(const session *s)
{
    return s->info.has_names && !s->args->names;
}

/* Of class `id`, the one at place `at` of a block; NULL: it has none. */
static const char *name_of(const block_names *names, size_t at, int32_t id, size_t *bytes)
{
    if (names->whole) {
        *bytes = woi_names_bytes(names->whole, id);
        return woi_names_get(names->whole, id);
    }
    if (!names->name) return NULL;
    *bytes = names->bytes[at];
    return names->name[at];
}

/* ---- Masks ------------------------------------------------------------------------------------------------- */

static const char *name_in(void *ctx, int32_t id, size_t *bytes)
{
    return name_of(ctx, (size_t)id, id, bytes);
}

/* Rank 0 is told the names of all classes: also digits may be one. */
static wo_status all_names(const session *s, block_names *names, wo_error *err)
{
    if (!ranks_tell(s)) return WO_OK;
    const size_t m = s->info.m_whole;
    int32_t *ids = malloc(m * sizeof *ids);
    if (!ids) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < m; i++) ids[i] = (int32_t)i;
    const wo_status status = gather_names(s, &(ask_block){.n = 1, .k = m, .ids = ids}, names, err);
    free(ids);
    return status;
}

static wo_status spread(cli_classes *list, wo_error *err)
{
    const wo_collective *calls = job_calls();
    uint64_t n = list->n;
    wo_status status = calls->broadcast(calls->ctx, &n, sizeof n, 0, err);
    if (status || !n) return status;
    if (calls->rank != 0 && !(list->ids = malloc(n * sizeof *list->ids)))
        return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    list->n = n;
    return calls->broadcast(calls->ctx, list->ids, n * sizeof *list->ids, 0, err);
}

/* Rank 0 reads the lists, and all learn their ids. */
static int take_masks(session *s)
{
    const arguments *args = s->args;
    block_names names = {.whole = own_names(s)};
    cli_class_names of = {.m = s->info.m_whole, .name_of = name_in, .ctx = &names};
    wo_error err;
    int code = CLI_OK;
    if (!args->forbid.n && !args->require.n) return CLI_OK;
    wo_status status = all_names(s, &names, &err);
    if (!status && job_rank() == 0) {
        code = cli_classes_take(&of, "--forbid", &args->forbid, &s->forbidden);
        if (!code) code = cli_classes_take(&of, "--require", &args->require, &s->mandatory);
    }
    if (!status && !code) status = spread(&s->forbidden, &err);
    if (!status && !code) status = spread(&s->mandatory, &err);
    cli_class_names_free(&of);
    names_free(&names);
    return status ? part_blame(s->self, &(cli_files){.index = args->index}, &err) : code;
}

/* ---- Answers ----------------------------------------------------------------------------------------------- */

static void print_answers(FILE *to, const ask_block *b, size_t i, const block_names *names)
{
    for (size_t at = i * b->k; at < (i + 1) * b->k && b->ids[at] >= 0; at++) {
        if (at > i * b->k) putc('\t', to);
        size_t bytes = 0;
        const char *name = name_of(names, at, b->ids[at], &bytes);
        if (name)
            cli_print_bytes(to, name, bytes);
        else
            fprintf(to, "%" PRId32, b->ids[at]);
        fprintf(to, "\t%.6g", (double)b->scores[at]);
    }
    putc('\n', to);
}

static wo_status print_json(const session *s, const ask_block *b, size_t i, const block_names *names, wo_error *err)
{
    const wo_query_stats *stats = &b->stats[i];
    const char *scores = s->args->softmax   ? "softmax"
                         : s->args->logprob ? "logprob"
                         : s->prior         ? "logits+prior"
                                            : "logits";
    json_t *query = json_pack("{s:I, s:s}", "query", (json_int_t)s->n, "scores", scores), *list = json_array();
    if (!stats->status && !s->args->exact) {
        json_object_set_new(query, "cells", json_integer((json_int_t)stats->cells));
        json_object_set_new(query, "candidates", json_integer((json_int_t)stats->candidates));
        if (stats->wider) json_object_set_new(query, "wider", json_true());
        if (stats->exact) json_object_set_new(query, "exact", json_true());
    }
    if (stats->status) json_object_set_new(query, "error", json_string("not finite"));
    for (size_t at = i * b->k; at < (i + 1) * b->k && b->ids[at] >= 0; at++) {
        json_t *answer = json_pack("{s:i}", "id", b->ids[at]);
        size_t bytes = 0;
        const char *name = name_of(names, at, b->ids[at], &bytes);
        if (name) json_object_set_new(answer, "name", json_stringn_nocheck(name, bytes));
        json_object_set_new(answer, "score", json_real((double)b->scores[at]));
        json_array_append_new(list, answer);
    }
    json_object_set_new(query, "answers", list);
    char *text = query ? json_dumps(query, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(query);
    if (!text) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    fprintf(s->to, "%s\n", text);
    free(text);
    return WO_OK;
}

static wo_status print_phases(const session *s, wo_error *err)
{
    json_t *line = json_pack("{s:i, s:o}", "ranks", job_size(), "phases", job_phases_json());
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(line);
    if (!text) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    fprintf(s->to, "%s\n", text);
    free(text);
    return WO_OK;
}

/* ---- The file of --output ---------------------------------------------------------------------------------- */

/* Rank 0's answers go to standard output, or to a file. */
static wo_status open_output(session *s, wo_error *err)
{
    s->to = stdout;
    if (!s->args->output || job_rank() != 0) return WO_OK;
    if (!(s->to = open_memstream(&s->text, &s->text_bytes))) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    return woi_outfile_create(s->args->output, &s->file, err);
}

/* The text that there is, to the file. */
static wo_status pass_on(session *s, wo_error *err)
{
    if (!s->file) return WO_OK;
    if (fflush(s->to) != 0) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    const wo_status status = woi_outfile_write(s->file, s->text, s->text_bytes, err);
    rewind(s->to);
    return status;
}

/* What is left, and the file gets its name. */
static wo_status end_output(session *s, wo_error *err)
{
    wo_status status = s->args->phases ? print_phases(s, err) : WO_OK;
    if (!status) status = pass_on(s, err);
    return status || !s->file ? status : woi_outfile_commit(s->file, err);
}

static void free_output(session *s)
{
    woi_outfile_free(s->file);
    if (s->to && s->to != stdout) fclose(s->to);
    free(s->text);
}

static wo_status answered(void *ctx, const ask_block *b, wo_error *err)
{
    session *s = ctx;
    block_names names = {.whole = own_names(s)};
    wo_status status = ranks_tell(s) ? gather_names(s, b, &names, err) : WO_OK;
    for (size_t i = 0; !status && job_rank() == 0 && i < b->n; i++, s->n++) {
        if (b->stats[i].status) {
            s->n_bad++;
            fflush(stdout);
            fprintf(stderr, "%s: ", cli_program);
            cli_print_text(stderr, s->at);
            fprintf(stderr, ": query %" PRIu64 ": it, or its scores, are not finite\n", s->n);
        }
        if (s->args->common.json)
            status = print_json(s, b, i, &names, err);
        else
            print_answers(s->to, b, i, &names);
    }
    names_free(&names);
    return status ? status : pass_on(s, err);
}

static wo_status next(void *ctx, size_t most, const float **q, size_t *n, wo_error *err)
{
    session *s = ctx;
    cli_query_batch batch = {0};
    bool more = false;
    (void)most; /* a source gives no more than a block */
    const wo_status status = cli_source_next(&s->source, &batch, &more, err);
    *q = batch.q;
    *n = !status && more ? batch.n : 0;
    return status;
}

/* ---- The command ------------------------------------------------------------------------------------------- */

/* What rank 0 alone has. */
static int open_net(session *s)
{
    const arguments *args = s->args;
    wo_error err;
    if (job_rank() != 0) return CLI_OK;
    if (args->names && cli_names_read(args->names, s->info.m_whole, &s->given)) return CLI_FAILED;
    if (args->net && (args->arch ? woi_network_open_lm(args->net, args->vocab, &s->net, &err)
                                 : woi_network_open(args->net, &s->net, &err)))
        return cli_fail(args->net, &err);
    return CLI_OK;
}

static int open_source(session *s, const char *path)
{
    const arguments *args = s->args;
    wo_error err;
    if (job_rank() != 0) return CLI_OK;
    const cli_source_options from = {.format = args->format ? (cli_format)(args->format - 1) : CLI_FORMAT_AUTO,
                                     .net = s->net,
                                     .net_path = args->net,
                                     .base = args->one_based ? WOI_XC_ONE_BASED_FEATURES : WOI_XC_ZERO_BASED,
                                     .threads = (int)args->common.threads,
                                     .d = s->info.d};
    if (!cli_source_open(&s->source, path, &from, &s->at, &err)) return CLI_OK;
    /* mpirun may have closed a silent pipe, because the other ranks had waited for long enough. */
    return job_failed_elsewhere_by(&err) ? CLI_FAILED : cli_fail(s->at, &err);
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    wo_layer *layer = NULL;
    wo_error err;
    if (n > 1) return cli_usage(self, "expected one file, found %d", n);
    if (!args->index) return cli_usage(self, "needs --index PREFIX");
    if (cli_layer_refuse_parts(self, &args->layer)) return CLI_USAGE;
    if (args->softmax && args->logprob) return cli_usage(self, "--softmax and --logprob are two kinds of scores");
    if (args->logprob && !args->exact) return cli_usage(self, "--logprob goes with --exact: shards estimate no log Z");
    if ((args->vocab || args->arch) && !(args->net && args->vocab && args->arch))
        return cli_usage(self, "--arch lm and --vocab FILE go together, with --net");
    if (args->probes > UINT32_MAX) return cli_usage(self, "--probes is too large");
    if (args->k > MAX_K) return cli_usage(self, "--top takes at most %d", MAX_K);
    if (args->phases && !args->common.json) return cli_usage(self, "--phases goes with --json");
    session s = {.self = self, .args = args, .info = {.struct_size = sizeof s.info}};
    char *own = part_file(args->index);
    const char *const in[] = {own, args->net, args->vocab, args->names, n ? rest[0] : "-", args->layer.path};
    int code = args->output ? cli_refuse_inputs(self, args->output, in, sizeof in / sizeof *in) : CLI_OK;
    free(own);
    if (!code && open_output(&s, &err)) code = part_blame(self, &(cli_files){.output = args->output}, &err);
    if (!code && args->layer.path) code = part_open_layer(self, &args->layer, NULL, &layer);
    if (!code) code = part_open_index(self, args->index, layer, &s.index);
    if (!code) {
        wo_build_options built = {.struct_size = sizeof built};
        wo_index_describe(s.index, &s.info);
        wo_index_options(s.index, &built);
        s.prior = !args->no_prior && built.prior > 0;
        code = open_net(&s);
        if (!code) code = take_masks(&s);
        if (!code) code = open_source(&s, n ? rest[0] : "-");
    }
    const uint64_t k = args->k ? args->k : DEFAULT_K;
    const ask_options o = {.k = k < s.info.m_whole ? (size_t)k : s.info.m_whole,
                           .block = BLOCK,
                           .call = {.by = args->exact ? WO_BY_FULL : WO_BY_PLANNER,
                                    .score = args->softmax   ? WO_SCORES_SOFTMAX
                                             : args->logprob ? WO_SCORES_LOGPROB
                                                             : WO_SCORES_LOGITS,
                                    .probes = (uint32_t)args->probes,
                                    .exact_fallback = args->exact_fallback,
                                    .forbidden = s.forbidden.ids,
                                    .n_forbidden = s.forbidden.n,
                                    .mandatory = s.mandatory.ids,
                                    .n_mandatory = s.mandatory.n,
                                    .no_prior = args->no_prior || args->logprob},
                           .threads = (int)args->common.threads,
                           .next = next,
                           .next_ctx = &s,
                           .ahead = !args->net,
                           .answered = answered,
                           .answered_ctx = &s};
    const cli_files files = {.index = args->index, .query = s.at, .output = args->output};
    if (!code && ask_all(s.index, &o, &err)) code = part_blame(self, &files, &err);
    if (!code && job_rank() == 0 && end_output(&s, &err)) code = part_blame(self, &files, &err);
    if (!code && job_rank() == 0) code = cli_end();
    if (!code && s.n_bad) code = CLI_FAILED;
    cli_classes_free(&s.forbidden);
    cli_classes_free(&s.mandatory);
    free_output(&s);
    cli_source_free(&s.source);
    woi_names_free(&s.given);
    woi_network_free(s.net);
    wo_index_free(s.index);
    wo_layer_free(layer);
    return code;
}

const cli_command mpi_cmd_predict = {
    "predict",
    "--index PREFIX [options] [FILE|-]",
    "the best classes of queries, from an index in shards",
    "Prints what 'wideout predict' prints of the whole index. Rank 0 reads the queries, a log or .npy, or\n"
    "with --net raw examples, and sends them; each rank searches its own classes, and the best of all are\n"
    "merged:\n"
    "\n"
    "  mpirun -n 4 wideout-mpi predict --index parts/index -k 3 test.log\n"
    "  mpirun -n 4 wideout-mpi predict --index parts/index --exact --logprob -o answers.tsv queries.npy\n"
    "\n"
    "Standard output is mpirun's to hand on: it says nothing where a disk is full or a pipe closed. The file\n"
    "of -o, which rank 0 writes, is complete or not there.\n"
    "\n"
    "Rank 0 reads the files of --forbid and --require too. --phases adds a line to --json: seconds, CPU\n"
    "seconds, seconds waited and bytes that arrived, of rank 0.\n"
    "\n"
    "An int8 screen keeps the best few of each shard, which are more than those of the whole: there, and\n"
    "only there, answers may be better than those of one process.",
    options,
    sizeof(arguments),
    run,
};
