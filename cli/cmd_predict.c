/* wideout predict: the best classes of queries, or of raw examples that a network makes queries of. */
#include "class_list.h"
#include "class_names.h"
#include "cli.h"
#include "index_text.h"
#include "layer_options.h"
#include "predict_source.h"
#include "specific.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_K = 5, MAX_ANSWERS = 1 << 20 };

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *index, *net, *vocab, *names, *specific;
    cli_texts forbid, require;
    uint64_t k, probes;
    int format, arch; /* CLI_CHOICE */
    bool softmax, logprob, exact, exact_fallback, no_prior, one_based;
} arguments;

static const cli_option options[] = {
    {"index", 0, CLI_TEXT_ONCE, offsetof(arguments, index), "FILE", "the index ('wideout build')", false},
    {"net", 0, CLI_TEXT_ONCE, offsetof(arguments, net), "FILE", "the network that makes queries of raw examples",
     false},
    {"arch", 0, CLI_CHOICE, offsetof(arguments, arch), "lm", "it is another's state dict: an LSTM", false},
    {"vocab", 0, CLI_TEXT_ONCE, offsetof(arguments, vocab), "FILE", "its words, one a line", false},
    {"names", 0, CLI_TEXT_ONCE, offsetof(arguments, names), "FILE", "what the classes are called, one a line", false},
    {"format", 0, CLI_CHOICE, offsetof(arguments, format), "auto|log|npy|xc|text|deb822",
     "what FILE is (default: auto, by its content)", false},
    {"top", 'k', CLI_SIZE, offsetof(arguments, k), "N", "how many classes (default: 5)", false},
    {"probes", 0, CLI_SIZE, offsetof(arguments, probes), "N", "cells opened in each table (default: the index's)",
     false},
    {"softmax", 0, CLI_FLAG, offsetof(arguments, softmax), NULL, "probabilities over the candidates, not logits",
     false},
    {"logprob", 0, CLI_FLAG, offsetof(arguments, logprob), NULL, "logarithms of probabilities over all classes", false},
    {"exact", 0, CLI_FLAG, offsetof(arguments, exact), NULL, "score all classes", false},
    {"exact-fallback", 0, CLI_FLAG, offsetof(arguments, exact_fallback), NULL,
     "score all classes for queries that the index knows little about", false},
    {"no-prior", 0, CLI_FLAG, offsetof(arguments, no_prior), NULL, "logits alone, without the index's prior", false},
    {"forbid", 0, CLI_TEXTS, offsetof(arguments, forbid), "IDS|FILE", "never answer these: 3,17 or a file, one a line",
     false},
    {"require", 0, CLI_TEXTS, offsetof(arguments, require), "IDS|FILE", "always score these", false},
    {"specific", 0, CLI_TEXT_ONCE, offsetof(arguments, specific), "LOG",
     "order the answers by score against how often LOG has them as labels", false},
    {"one-based", 0, CLI_FLAG, offsetof(arguments, one_based), NULL, "xc: features count from 1", false},
    CLI_LAYER_OPTIONS(arguments, layer, "the layer of the index, where it has no rows"),
    {"json", 0, CLI_FLAG, offsetof(arguments, common.json), NULL, "print a JSON object for each query, one a line",
     false},
    {0},
};

/* All that answering takes. A zeroed one is empty. */
typedef struct session {
    const cli_command *self;
    const arguments *args;
    wo_layer *layer;
    wo_index *index;
    size_t m, d; /* m: classes of the whole layer where the index is a shard: ids are those */
    woi_network *net;
    wo_searcher *searcher;
    woi_names given;       /* names of the classes, by --names; n = 0: none */
    cli_class_names names; /* for looking classes up */
    size_t k, rows;        /* classes a query; queries searched at a time */
    int32_t *ids;          /* (rows, k) */
    float *scores;
    wo_query_stats *stats; /* (rows) */
    cli_classes forbidden, mandatory;
    cli_specific specific; /* the order of answers, where it is not that of the scores */
    wo_search_call call;   /* all but its queries */
    uint64_t n, n_bad;     /* answered; of them, not finite */
    bool prior;            /* is in the scores */
    bool said;             /* that the network knows nothing of a line */
    const char *at;        /* the source's name */
} session;

/* ---- Names ------------------------------------------------------------------------------------------------- */

/* Not terminated; NULL where neither the index nor the network has one. */
static const char *name_of(const session *s, int32_t id, size_t *bytes)
{
    if (s->given.n) {
        *bytes = woi_names_bytes(&s->given, id);
        return woi_names_get(&s->given, id);
    }
    const char *name = wo_index_label(s->index, id, bytes);
    if (name || !s->net || (size_t)s->net->labels.n != s->m) return name;
    *bytes = woi_names_bytes(&s->net->labels, id);
    return woi_names_get(&s->net->labels, id);
}

static const char *name_for_list(void *ctx, int32_t id, size_t *bytes)
{
    return name_of(ctx, id, bytes);
}

/* ---- Answers ----------------------------------------------------------------------------------------------- */

static void print_answers(const session *s, size_t row)
{
    for (size_t i = 0; i < s->k && s->ids[row * s->k + i] >= 0; i++) {
        const int32_t id = s->ids[row * s->k + i];
        size_t bytes = 0;
        const char *name = name_of(s, id, &bytes);
        if (i) putchar('\t');
        if (name) cli_print_bytes(stdout, name, bytes);
        if (!name) printf("%" PRId32, id);
        printf("\t%.6g", (double)s->scores[row * s->k + i]);
    }
    putchar('\n');
}

static json_t *answers_json(const session *s, size_t row)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->k && s->ids[row * s->k + i] >= 0; i++) {
        const int32_t id = s->ids[row * s->k + i];
        size_t bytes = 0;
        const char *name = name_of(s, id, &bytes);
        json_t *answer = json_pack("{s:i}", "id", id);
        if (name) json_object_set_new(answer, "name", json_stringn_nocheck(name, bytes));
        if (s->specific.counts) json_object_set_new(answer, "count", json_integer((json_int_t)s->specific.counts[id]));
        json_object_set_new(answer, "score", json_real((double)s->scores[row * s->k + i]));
        json_array_append_new(list, answer);
    }
    return list;
}

/* Why a query has no answer. */
static const char *problem(const float *q, size_t d)
{
    for (size_t i = 0; i < d; i++)
        if (!isfinite(q[i])) return "not finite";
    return "its scores are too large: not finite";
}

/* A line of its own for each query, so that millions need no memory and a reader need not wait for the last. `why`:
 * NULL where it has an answer. */
static wo_status print_json(session *s, size_t row, const char *why, const cli_query_batch *batch, size_t i,
                            wo_error *err)
{
    json_t *query = json_pack("{s:I, s:s}", "query", (json_int_t)s->n, "scores",
                              s->args->softmax   ? "softmax"
                              : s->args->logprob ? "logprob"
                              : s->prior         ? "logits+prior"
                                                 : "logits");
    if (batch->lines) json_object_set_new(query, "line", json_integer((json_int_t)batch->lines[i]));
    if (batch->known) json_object_set_new(query, "known", json_integer((json_int_t)batch->known[i]));
    if (!why && !s->args->exact) {
        json_object_set_new(query, "cells", json_integer((json_int_t)s->stats[row].cells));
        json_object_set_new(query, "candidates", json_integer((json_int_t)s->stats[row].candidates));
        if (s->stats[row].wider) json_object_set_new(query, "wider", json_true());
        if (s->stats[row].exact) json_object_set_new(query, "exact", json_true());
    }
    if (why) json_object_set_new(query, "error", json_string(why));
    json_object_set_new(query, "answers", why ? json_array() : answers_json(s, row));
    const bool written = cli_write_json(query, JSON_COMPACT);
    json_decref(query);
    return written ? WO_OK : cli_set_error(err, WO_ERR_MEMORY, "out of memory");
}

/* Every query has its line, also one that cannot be answered: that line is empty. */
static void report_bad(session *s, const char *why, const cli_query_batch *batch, size_t i)
{
    s->n_bad++;
    fflush(stdout);
    fputs("wideout: ", stderr);
    cli_print_text(stderr, s->at);
    fprintf(stderr, ": %s %" PRIu64 ": %s\n", batch->lines ? "line" : "query", batch->lines ? batch->lines[i] : s->n,
            why);
}

/* Once: the answers to such a line are those to an empty one. */
static void report_unknown(session *s, const cli_query_batch *batch, size_t i)
{
    s->said = true;
    if (s->args->common.json) return; /* which says so of each */
    fflush(stdout);
    fputs("wideout: warning: ", stderr);
    cli_print_text(stderr, s->at);
    fprintf(stderr, ": line %" PRIu64 ": the network knows nothing of what it says, and answers as to an empty line\n",
            batch->lines ? batch->lines[i] : s->n);
}

static wo_status answer(session *s, const cli_query_batch *batch, wo_error *err)
{
    const size_t d = s->d;
    for (size_t first = 0, n; first < batch->n; first += n) {
        n = batch->n - first < s->rows ? batch->n - first : s->rows;
        const float *q = batch->q + first * d;
        s->call.queries = q;
        s->call.n = n;
        wo_status status = wo_search_run(s->searcher, &s->call, err);
        for (size_t i = 0; !status && i < n; i++, s->n++) {
            const char *why = s->stats[i].status ? problem(q + i * d, d) : NULL;
            if (s->specific.counts)
                cli_specific_order(&s->specific, s->call.score, s->ids + i * s->k, s->scores + i * s->k, s->k);
            if (why) report_bad(s, why, batch, first + i);
            if (batch->known && !batch->known[first + i] && !s->said) report_unknown(s, batch, first + i);
            if (s->args->common.json)
                status = print_json(s, i, why, batch, first + i, err);
            else if (why)
                putchar('\n');
            else
                print_answers(s, i);
        }
        if (status) return status;
    }
    return WO_OK;
}

static int answer_all(session *s, cli_source *source)
{
    struct stat about;
    const bool stream = source->examples && fstat(STDIN_FILENO, &about) == 0 && !S_ISREG(about.st_mode);
    const bool person = strcmp(s->at, "standard input") == 0 && isatty(STDIN_FILENO);
    bool failed = false;
    for (;;) {
        cli_query_batch batch;
        wo_error err;
        bool more = false;
        const wo_status read = cli_source_next(source, &batch, &more, &err);
        if (read || (more && answer(s, &batch, &err))) {
            fflush(stdout);
            if (read)
                cli_fail(s->at, &err);
            else
                cli_blame(s->self, &(cli_files){.index = s->args->index, .query = s->at}, &err);
            if (read != WO_ERR_FORMAT || !person) return CLI_FAILED;
            failed = true; /* whoever typed that line can type another */
            continue;
        }
        if (!more) break;
        if (stream) fflush(stdout);
    }
    const int code = cli_end();
    return code ? code : failed || s->n_bad ? CLI_FAILED : CLI_OK;
}

/* ---- The command ------------------------------------------------------------------------------------------- */

/* Queries of another network are answered like any: nothing else tells. */
static void warn_of_other_net(const session *s, const wo_index_info *index)
{
    if (s->net->d != index->d || !woi_network_is_other(s->net, s->index)) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, s->args->net);
    fprintf(stderr, ": its output layer is not the one of ");
    cli_print_text(stderr, s->args->index);
    fprintf(stderr, ", whose answers to this network's queries may be poor: 'wideout check' compares the two\n");
}

/* Numbers of classes are those of the whole layer: nothing else tells that others were not asked. */
static void warn_of_shard(const char *path, const wo_index_info *index)
{
    if (!index->n_shards) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fprintf(stderr, " is shard %" PRIu32 " of %" PRIu32 ", and answers with its own %s", index->shard + 1,
            index->n_shards, cli_count(index->m, "class"));
    fprintf(stderr, " of %s alone: 'wideout join' makes one index of all, 'wideout serve --shards' asks all\n",
            cli_number(index->m_whole));
}

static int open_index(session *s)
{
    const arguments *args = s->args;
    wo_error err;
    if (args->layer.path && cli_layer_open(s->self, &args->layer, &s->layer)) return CLI_FAILED;
    const cli_files files = {.layer = args->layer.path, .index = args->index};
    const wo_open_options o = {.struct_size = sizeof o, .layer = s->layer};
    if (wo_index_open(args->index, &o, &s->index, &err)) return cli_blame(s->self, &files, &err);
    wo_build_options built = {.struct_size = sizeof built};
    s->prior = !args->no_prior && !wo_index_options(s->index, &built) && built.prior > 0;
    const cli_index about = cli_index_of(s->index);
    s->m = about.info.m_whole;
    s->d = wo_index_d(s->index);
    if (args->names && cli_names_read(args->names, s->m, &s->given)) return CLI_FAILED;
    const int code = cli_index_refuse_probes(s->self, args->index, &about, args->probes);
    if (code) return code;
    cli_index_warn(args->index, &about, args->exact_fallback);
    warn_of_shard(args->index, &about.info);
    if (!args->exact) cli_index_warn_k(args->index, s->index, args->k);
    if (args->net && (args->arch ? woi_network_open_lm(args->net, args->vocab, &s->net, &err)
                                 : woi_network_open(args->net, &s->net, &err)))
        return cli_fail(args->net, &err);
    if (args->net) warn_of_other_net(s, &about.info);
    return CLI_OK;
}

static int make_searcher(session *s)
{
    const arguments *args = s->args;
    const uint32_t probes = args->probes < UINT32_MAX ? (uint32_t)args->probes : UINT32_MAX;
    wo_error err;
    s->names.m = s->m;
    s->names.name_of = name_for_list;
    s->names.ctx = s;
    int code = cli_classes_take(&s->names, "--forbid", &args->forbid, &s->forbidden);
    if (!code) code = cli_classes_take(&s->names, "--require", &args->require, &s->mandatory);
    const wo_searcher_options o = {.struct_size = sizeof o,
                                   .threads = (int)args->common.threads,
                                   .max_probes = probes,
                                   .max_mandatory = (uint32_t)s->mandatory.n};
    if (!code && wo_searcher_create(s->index, &o, &s->searcher, &err))
        code = cli_blame(s->self, &(cli_files){.index = args->index}, &err);
    if (code) return code;
    const uint64_t k = args->k ? args->k : DEFAULT_K;
    const size_t own = wo_index_m(s->index); /* no more answers than these */
    s->k = k < own ? (size_t)k : own;
    s->rows = MAX_ANSWERS / s->k < 1024 ? MAX_ANSWERS / s->k + 1 : 1024;
    s->ids = malloc(s->rows * s->k * sizeof *s->ids);
    s->scores = malloc(s->rows * s->k * sizeof *s->scores);
    s->stats = malloc(s->rows * sizeof *s->stats);
    s->call = (wo_search_call){.struct_size = sizeof s->call,
                               .k = s->k,
                               .ids = s->ids,
                               .scores = s->scores,
                               .stats = s->stats,
                               .by = args->exact ? WO_BY_FULL : WO_BY_PLANNER,
                               .score = args->softmax   ? WO_SCORES_SOFTMAX
                                        : args->logprob ? WO_SCORES_LOGPROB
                                                        : WO_SCORES_LOGITS,
                               .probes = probes,
                               .exact_fallback = args->exact_fallback,
                               .no_prior = args->no_prior,
                               .forbidden = s->forbidden.ids,
                               .n_forbidden = s->forbidden.n,
                               .mandatory = s->mandatory.ids,
                               .n_mandatory = s->mandatory.n};
    /* A query of zeros, to hear what this index cannot be asked before anything is read. */
    float *zeros = calloc(s->d, sizeof *zeros);
    if (!s->ids || !s->scores || !s->stats || !zeros) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        code = cli_fail(NULL, &err);
    } else {
        s->call.queries = zeros;
        s->call.n = 1;
        if (wo_search_run(s->searcher, &s->call, &err))
            code = cli_blame(s->self, &(cli_files){.index = args->index}, &err);
    }
    free(zeros);
    if (!code && args->specific && cli_specific_open(args->specific, s->m, s->d, s->k, &s->specific, &err))
        code = cli_fail(args->specific, &err);
    return code;
}

static void free_session(session *s)
{
    cli_classes_free(&s->forbidden);
    cli_classes_free(&s->mandatory);
    free(s->ids);
    free(s->scores);
    free(s->stats);
    woi_names_free(&s->given);
    cli_specific_free(&s->specific);
    cli_class_names_free(&s->names);
    wo_searcher_free(s->searcher);
    woi_network_free(s->net);
    wo_index_free(s->index);
    wo_layer_free(s->layer);
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    const char *path = n ? rest[0] : "-";
    const cli_format format = args->format ? (cli_format)(args->format - 1) : CLI_FORMAT_AUTO;
    const bool ready = format == CLI_FORMAT_LOG || format == CLI_FORMAT_NPY;
    if (!args->index) return cli_usage(self, "needs --index FILE");
    if (n > 1) return cli_usage(self, "expected one file, found %d", n);
    if (cli_layer_refuse_parts(self, &args->layer)) return CLI_USAGE;
    if (args->softmax && args->logprob) return cli_usage(self, "--softmax and --logprob are two kinds of scores");
    if ((args->vocab || args->arch) && !(args->net && args->vocab && args->arch))
        return cli_usage(self, "--arch lm and --vocab FILE go together, with --net");
    if (!args->net && !ready && format != CLI_FORMAT_AUTO)
        return cli_usage(self, "--format %s needs --net FILE, which makes queries of it",
                         format == CLI_FORMAT_XC     ? "xc"
                         : format == CLI_FORMAT_TEXT ? "text"
                                                     : "deb822");
    session s = {.self = self, .args = args};
    cli_source source = {0};
    wo_error err;
    int code = open_index(&s);
    if (!code) code = make_searcher(&s);
    const cli_source_options from = {.format = format,
                                     .net = s.net,
                                     .net_path = args->net,
                                     .base = args->one_based ? WOI_XC_ONE_BASED_FEATURES : WOI_XC_ZERO_BASED,
                                     .threads = (int)args->common.threads,
                                     .d = s.d};
    if (!code && cli_source_open(&source, path, &from, &s.at, &err)) code = cli_fail(s.at, &err);
    if (!code) code = answer_all(&s, &source);
    cli_source_free(&source);
    free_session(&s);
    return code;
}

const cli_command cli_cmd_predict = {
    "predict",
    "--index FILE [options] [FILE|-]",
    "the best classes of queries, or of raw examples through a network",
    "Prints a line for every query: the best classes and their scores, best first, all separated by tabs.\n"
    "Classes are names where the index or the network has them, else numbers. With --json every line is\n"
    "an object; queries and classes count from 0.\n"
    "\n"
    "Queries come from a log ('wideout embed') or a .npy file of shape (n, d):\n"
    "\n"
    "  wideout predict --index index.safetensors -k 3 test.log\n"
    "  wideout predict --index index.safetensors --softmax queries.npy\n"
    "\n"
    "Scores are logits. Where the index has a prior (see 'wideout info') it is added, with --exact too;\n"
    "--no-prior leaves it out. With --softmax scores are probabilities over the candidates, or with\n"
    "--exact over all classes, the prior in them; with --logprob logarithms of probabilities over all\n"
    "classes, of an index that was built with --partition, with what its cells mix in, or with --exact.\n"
    "The network's own are those with --no-prior:\n"
    "\n"
    "  wideout predict --index index.safetensors --logprob test.log\n"
    "\n"
    "Classes that almost every query needs are the first everywhere. --specific LOG counts how often LOG\n"
    "has each class as a label, and puts those of the k best first that stand out here: in the order of\n"
    "score - log(count + 1). Which classes are answered, and their scores, stay the same:\n"
    "\n"
    "  wideout predict --index index.safetensors -k 10 --specific train.log test.log\n"
    "\n"
    "With --net they are made of raw examples: lines of extreme-classification text, with or without a\n"
    "header; package stanzas, for a network of them; or text, an example a line: words that are features,\n"
    "the beginning of a sentence for a language model, a word for a word network:\n"
    "\n"
    "  apt-cache show vim | wideout predict --index index.safetensors --net debian.safetensors\n"
    "  echo 'a fast web browser' | wideout predict --index index.safetensors --net debian.safetensors\n"
    "  echo 'the capital of' | wideout predict --index words.index --net lm.safetensors --softmax\n"
    "  wideout predict --index index.safetensors --net net.safetensors --format xc test.txt\n"
    "  wideout predict --index index --net fasttext.bin -k 3 test.txt\n"
    "\n"
    "Without FILE, or with -, it reads standard input and answers at once what has come. Where an index\n"
    "has fewer candidates for a query than were asked for, the line is shorter. A query that is not\n"
    "finite, or whose scores are not, gets an empty line and a sentence; the others are answered, and the\n"
    "exit code is 1.\n"
    "\n"
    "--forbid and --require may be given several times, and add up. Their files are read to their end\n"
    "before anything is answered; of classes with one name all are meant. What is all digits is a number\n"
    "or a name, whichever a class has; where two classes have it, number:59 or name:59 says which.",
    options,
    sizeof(arguments),
    run,
};
