/* wideout generate: text of a language model, whose next words an index finds, or the exact layer, or both in turn. */
#include "blame.h"
#include "index_text.h"
#include "net/net.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_WORDS = 50, DEFAULT_K = 40, MAX_K = 1000, MAX_WORDS = 10000000 };

typedef struct arguments {
    cli_common common;
    const char *net, *vocab, *index, *prompt;
    uint64_t words, top_k;
    double temperature, top_p;
    bool compare, no_unk, no_prior;
} arguments;

static const cli_option options[] = {
    {"net", 0, CLI_TEXT_ONCE, offsetof(arguments, net), "FILE", "the language model", false},
    {"vocab", 0, CLI_TEXT_ONCE, offsetof(arguments, vocab), "FILE", "it is another's state dict: its words, one a line",
     false},
    {"index", 0, CLI_TEXT_ONCE, offsetof(arguments, index), "FILE", "finds the next words (default: the exact layer)",
     false},
    {"prompt", 0, CLI_TEXT_ONCE, offsetof(arguments, prompt), "TEXT", "what is read first: words with spaces between",
     false},
    {"words", 'n', CLI_SIZE, offsetof(arguments, words), "N", "how many to write (default: 50)", false},
    {"temperature", 0, CLI_REAL, offsetof(arguments, temperature), "0-1000",
     "0: always the best word; 1: as learned (default: 1)", false},
    {"top", 'k', CLI_SIZE, offsetof(arguments, top_k), "N", "draw among the N best (default: 40)", false},
    {"top-k", 0, CLI_SIZE, offsetof(arguments, top_k), "N", "the same", false},
    {"top-p", 0, CLI_REAL, offsetof(arguments, top_p), "0-1",
     "of them, among the fewest with this probability (default: 1)", false},
    {"no-unk", 0, CLI_FLAG, offsetof(arguments, no_unk), NULL, "never write <unk>", false},
    {"no-prior", 0, CLI_FLAG, offsetof(arguments, no_prior), NULL, "draw by logits alone, without the index's prior",
     false},
    {"compare", 0, CLI_FLAG, offsetof(arguments, compare), NULL, "by the index and by the exact layer, the same seed",
     false},
    {0},
};

/* Who finds the next word, and what came of it. */
typedef struct way {
    const char *name; /* "index" or "exact layer" */
    wo_searcher *searcher;
    int32_t *words;          /* (n) */
    double seconds, layer_s; /* all of it; searching and drawing alone */
    uint64_t candidates;     /* scored, all words together */
} way;

/* All that generating takes. A zeroed one is empty. */
typedef struct session {
    const cli_command *self;
    const arguments *args;
    woi_network *net;
    woi_reader *reader;
    wo_layer *layer;
    wo_index *index, *full; /* index: NULL where none is named */
    way ways[2];
    size_t n_ways, n, k;
    int32_t *unk; /* what is not to be written: every class called <unk>, of which a vocabulary may have several */
    size_t n_unk;
    int32_t ids[MAX_K];
    float scores[MAX_K];
} session;

static void free_session(session *s)
{
    for (size_t i = 0; i < s->n_ways; i++) {
        wo_searcher_free(s->ways[i].searcher);
        free(s->ways[i].words);
    }
    woi_reader_free(s->reader);
    wo_index_free(s->index);
    wo_index_free(s->full);
    wo_layer_free(s->layer);
    woi_network_free(s->net);
    free(s->unk);
}

/* ---- Opening ----------------------------------------------------------------------------------------------- */

static int find_unk(session *s)
{
    const woi_names *words = &s->net->labels;
    wo_error err;
    if (!(s->unk = malloc((size_t)words->n * sizeof *s->unk + 1))) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        return cli_fail(NULL, &err);
    }
    for (int32_t i = 0; i < words->n; i++)
        if (woi_names_bytes(words, i) == 5 && memcmp(woi_names_get(words, i), "<unk>", 5) == 0) s->unk[s->n_unk++] = i;
    return CLI_OK;
}

static int open_network(session *s)
{
    const arguments *args = s->args;
    wo_error err;
    if ((args->vocab ? woi_network_open_lm(args->net, args->vocab, &s->net, &err)
                     : woi_network_open(args->net, &s->net, &err)) ||
        woi_reader_create(s->net, &s->reader, &err))
        return cli_fail(args->net, &err);
    const woi_dense output = woi_network_output(s->net);
    if (wo_layer_wrap(output.w, output.b, output.m, output.d, &s->layer, &err)) return cli_fail(args->net, &err);
    if (s->k > output.m) s->k = output.m;
    return args->no_unk ? find_unk(s) : CLI_OK;
}

static int add_way(session *s, const char *name, const wo_index *index, const char *path)
{
    way *w = &s->ways[s->n_ways++];
    wo_error err;
    w->name = name;
    if (wo_searcher_create(index, NULL, &w->searcher, &err)) return cli_fail(path, &err);
    if ((w->words = malloc(s->n * sizeof *w->words))) return CLI_OK;
    cli_set_error(&err, WO_ERR_MEMORY, "out of memory: %zu words", s->n);
    return cli_fail(NULL, &err);
}

/* What it draws by is then not what the network learned. */
static void tell_of_prior(const session *s)
{
    const arguments *args = s->args;
    const cli_index about = cli_index_of(s->index);
    if (args->no_prior || args->common.quiet || !(about.options.prior > 0)) return;
    fprintf(stderr, "%s: ", cli_program);
    cli_print_text(stderr, args->index);
    fprintf(stderr, " has a prior, which is added to the network's logits: --no-prior draws by these alone\n");
}

/* The index must be of this very layer: it is compared. */
static int open_ways(session *s)
{
    const arguments *args = s->args;
    wo_error err;
    int code = CLI_OK;
    if (args->index) {
        const wo_open_options o = {.struct_size = sizeof o, .layer = s->layer};
        if (wo_index_open(args->index, &o, &s->index, &err))
            return cli_blame(s->self, &(cli_files){.layer = args->net, .index = args->index}, &err);
        tell_of_prior(s);
        if (args->temperature != 0) cli_index_warn_k(args->index, s->index, s->k); /* 0 takes the best alone */
        code = add_way(s, "index", s->index, args->index);
    }
    if (code || (args->index && !args->compare)) return code;
    wo_build_options o;
    wo_build_defaults(WO_METHOD_FULL, &o, sizeof o);
    if (wo_index_build(s->layer, NULL, &o, &s->full, &err)) return cli_fail(args->net, &err);
    return add_way(s, "exact layer", s->full, args->net);
}

/* ---- Writing ----------------------------------------------------------------------------------------------- */

static wo_status next_word(session *s, way *w, const float *query, size_t at, int32_t *word, wo_error *err)
{
    const arguments *args = s->args;
    wo_query_stats stats = {0};
    const wo_search_call search = {.struct_size = sizeof search,
                                   .queries = query,
                                   .n = 1,
                                   .k = s->k,
                                   .ids = s->ids,
                                   .scores = s->scores,
                                   .stats = &stats,
                                   .stats_bytes = sizeof stats,
                                   .forbidden = s->unk,
                                   .n_forbidden = s->n_unk,
                                   .no_prior = args->no_prior};
    const wo_sample_call draw = {.struct_size = sizeof draw,
                                 .ids = s->ids,
                                 .scores = s->scores,
                                 .n = 1,
                                 .k = s->k,
                                 .temperature = isnan(args->temperature) ? 1 : args->temperature,
                                 .top_p = isnan(args->top_p) ? 1 : args->top_p,
                                 .seed = args->common.seed,
                                 .position = at};
    wo_status status = wo_search_run(w->searcher, &search, err);
    if (!status) status = wo_sample(&draw, word, err);
    w->candidates += stats.candidates;
    if (!status && *word < 0)
        status = cli_set_error(err, WO_ERR_UNSUPPORTED,
                               stats.status ? "after %zu words the state of the network is not finite"
                                            : "after %zu words there is no candidate for the next one",
                               at);
    return status;
}

/* The same reading, the same seed: what differs is who finds the words. */
static wo_status write_words(session *s, way *w, wo_error *err)
{
    const float *query = NULL;
    size_t n_read;
    woi_reader_reset(s->reader);
    wo_status status = woi_reader_read(s->reader, s->args->prompt, &query, &n_read, err);
    const double start = woi_now_s();
    for (size_t i = 0; !status && i < s->n; i++) {
        const double before = woi_now_s();
        status = next_word(s, w, query, i, &w->words[i], err);
        w->layer_s += woi_now_s() - before;
        if (!status && i + 1 < s->n) query = woi_reader_take(s->reader, w->words[i]);
    }
    w->seconds = woi_now_s() - start;
    return status; /* NOLINT(clang-analyzer-unix.Malloc): free_session frees the words */
}

/* Words that both wrote before they went different ways. */
static size_t count_common(const session *s)
{
    size_t n = 0;
    while (n < s->n && s->ways[0].words[n] == s->ways[1].words[n]) n++;
    return n;
}

/* ---- Reports ----------------------------------------------------------------------------------------------- */

static bool is_end(const char *word, size_t bytes)
{
    return bytes == 5 && memcmp(word, "<eos>", 5) == 0;
}

/* As it was given, which may be another's text: its lines and tabs stay, what else drives a terminal does not. */
static void print_prompt(const char *prompt)
{
    for (size_t n; *prompt; prompt += n) {
        n = strcspn(prompt, "\n\t");
        cli_print_bytes(stdout, prompt, n);
        if (prompt[n]) putchar(prompt[n++]);
    }
}

/* Words with spaces between; <eos> ends a line. */
static void print_words(const session *s, const way *w)
{
    bool fresh = false; /* a line was just ended */
    print_prompt(s->args->prompt);
    for (size_t i = 0; i < s->n; i++) {
        const char *word = woi_names_get(&s->net->labels, w->words[i]);
        const size_t bytes = woi_names_bytes(&s->net->labels, w->words[i]);
        if (is_end(word, bytes)) {
            putchar('\n');
            fresh = true;
            continue;
        }
        if (!fresh) putchar(' ');
        cli_print_bytes(stdout, word, bytes);
        fresh = false;
    }
    if (!fresh) putchar('\n');
}

static double a_word_us(const session *s, double seconds)
{
    return 1e6 * seconds / (double)s->n;
}

static int print_report(const session *s)
{
    for (size_t i = 0; i < s->n_ways; i++) {
        if (s->n_ways > 1) printf("%s%s:\n", i ? "\n" : "", s->ways[i].name);
        print_words(s, &s->ways[i]);
    }
    fflush(stdout);
    if (s->args->common.quiet) return cli_end();
    for (size_t i = 0; i < s->n_ways; i++) {
        const way *w = &s->ways[i];
        fprintf(stderr,
                "%s: %s words a second; a word: %.1f us for the next one among %.1f classes, %.1f us to read it\n",
                w->name, cli_number((uint64_t)((double)s->n / w->seconds + 0.5)), a_word_us(s, w->layer_s),
                (double)w->candidates / (double)s->n, a_word_us(s, w->seconds - w->layer_s));
    }
    if (s->n_ways > 1)
        fprintf(stderr, "both: %s of %s %s the same before they differ\n", cli_number(count_common(s)),
                cli_count(s->n, "word"), s->n == 1 ? "is" : "are");
    return cli_end();
}

static json_t *way_json(const session *s, const way *w)
{
    json_t *words = json_array();
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(words, json_stringn_nocheck(woi_names_get(&s->net->labels, w->words[i]),
                                                          woi_names_bytes(&s->net->labels, w->words[i])));
    return json_pack("{s:s, s:o, s:f, s:f, s:f, s:f}", "by", w->name, "words", words, "words_a_second",
                     (double)s->n / w->seconds, "next_us", a_word_us(s, w->layer_s), "read_us",
                     a_word_us(s, w->seconds - w->layer_s), "candidates", (double)w->candidates / (double)s->n);
}

static int print_json(const session *s)
{
    json_t *ways = json_array();
    for (size_t i = 0; i < s->n_ways; i++) json_array_append_new(ways, way_json(s, &s->ways[i]));
    json_t *object = json_pack("{s:o, s:o, s:I, s:I, s:o}", "net", cli_json_text(s->args->net), "prompt",
                               cli_json_text(s->args->prompt), "n", (json_int_t)s->n, "seed",
                               (json_int_t)s->args->common.seed, "runs", ways);
    if (object && s->n_ways > 1) json_object_set_new(object, "same_words", json_integer((json_int_t)count_common(s)));
    return cli_print_json(object);
}

/* ---- The command ------------------------------------------------------------------------------------------- */

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n > 0) return cli_usage(self, "unexpected '%s': the text to go on from is --prompt TEXT", rest[0]);
    if (!args->net) return cli_usage(self, "needs --net FILE");
    if (!args->prompt) return cli_usage(self, "needs --prompt TEXT");
    if (args->compare && !args->index) return cli_usage(self, "--compare needs --index FILE");
    if (args->top_k > MAX_K) return cli_usage(self, "--top takes at most %d, not %" PRIu64, MAX_K, args->top_k);
    if (args->words > MAX_WORDS) return cli_usage(self, "-n takes at most %d, not %" PRIu64, MAX_WORDS, args->words);
    session s = {.self = self,
                 .args = args,
                 .n = args->words ? (size_t)args->words : DEFAULT_WORDS,
                 .k = args->top_k ? (size_t)args->top_k : DEFAULT_K};
    int code = open_network(&s);
    if (!code) code = open_ways(&s);
    wo_error err;
    for (size_t i = 0; !code && i < s.n_ways; i++)
        if (write_words(&s, &s.ways[i], &err)) code = cli_fail(err.status == WO_ERR_FORMAT ? "--prompt" : NULL, &err);
    if (!code) code = args->common.json ? print_json(&s) : print_report(&s);
    free_session(&s);
    return code;
}

const cli_command cli_cmd_generate = {
    "generate",
    "--net FILE --prompt TEXT [options]",
    "text of a language model, by an index or by the exact layer",
    "Reads the prompt, draws the next word, reads that, and so on. With --index the index finds the words\n"
    "that are drawn from, without it the exact layer; --compare does both with the same seed. The text\n"
    "goes to standard output, and how fast it was to standard error.\n"
    "\n"
    "  wideout generate --net lm.safetensors --index lm.index --prompt 'The city of' -n 100\n"
    "  wideout generate --net lm.safetensors --index lm.index --prompt 'The city' --compare --top-p 0.9\n"
    "\n"
    "A language model that was trained in PyTorch comes with its vocabulary, as for 'wideout embed':\n"
    "\n"
    "  wideout generate --net lstm.safetensors.index.json --vocab vocab.txt --prompt 'The city of'\n"
    "\n"
    "A word is drawn with exp(score / temperature) for odds. A score is the network's logit and, of an\n"
    "index that has one, its prior, which makes labels of the log likelier than the network does;\n"
    "--no-prior leaves it out. The same seed gives the same text. A word that the network does not know\n"
    "is read as <unk>; <eos> ends a line.",
    options,
    sizeof(arguments),
    run,
};
