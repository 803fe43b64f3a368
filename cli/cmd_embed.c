/* wideout embed: what a network makes of a data file, as a log of queries and labels. */
#include "blame.h"
#include "inputs.h"
#include "net/net.h"
#include "outputs.h"
#include "xc_options.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

typedef struct arguments {
    cli_common common;
    cli_xc xc;
    const char *data, *output, *vocab;
    uint64_t max_queries, next;
    int arch, dtype; /* CLI_CHOICE */
    bool score, distinct;
} arguments;

static const cli_option options[] = {
    {"data", 0, CLI_TEXT_ONCE, offsetof(arguments, data), "FILE",
     "examples: text for xc and fastText, tokens for w2v and lm", false},
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "FILE", "the log", false},
    {"max-queries", 0, CLI_SIZE, offsetof(arguments, max_queries), "N",
     "a seeded sample of N (default: all; w2v: 100,000)", false},
    {"distinct", 0, CLI_FLAG, offsetof(arguments, distinct), NULL,
     "w2v: each word of the data once, with what is near it, counted", false},
    {"dtype", 0, CLI_CHOICE, offsetof(arguments, dtype), "f32|bf16", "of the queries (default: f32)", false},
    {"score", 0, CLI_FLAG, offsetof(arguments, score), NULL, "also print P@1 and P@5 of the exact layer", false},
    {"next", 0, CLI_SIZE, offsetof(arguments, next), "N", "lm: the next N words are the labels (default: 1)", false},
    {"arch", 0, CLI_CHOICE, offsetof(arguments, arch), "lm", "NET is another's state dict: an LSTM", false},
    {"vocab", 0, CLI_TEXT_ONCE, offsetof(arguments, vocab), "FILE", "its words, one a line", false},
    CLI_XC_OPTIONS(arguments, xc),
    {0},
};

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n != 1) return cli_usage(self, "expected one network, found %d", n);
    if (!args->data) return cli_usage(self, "needs --data FILE");
    if (!args->output) return cli_usage(self, "needs -o FILE for the log");
    const char *const in[] = {rest[0], args->data, args->vocab};
    int code = cli_refuse_inputs(self, args->output, in, sizeof in / sizeof in[0]);
    if (code) return code;
    if (args->vocab && !args->arch) return cli_usage(self, "--vocab goes with --arch lm");
    if (args->arch && !args->vocab) return cli_usage(self, "--arch lm needs --vocab FILE");
    if (args->distinct && args->score)
        return cli_usage(self, "--score judges the places of words: it does not go with --distinct");
    if ((code = cli_output_try(args->output))) return code;
    woi_network *net = NULL;
    wo_error err;
    if (args->arch ? woi_network_open_lm(rest[0], args->vocab, &net, &err) : woi_network_open(rest[0], &net, &err))
        return cli_fail(rest[0], &err);
    const woi_queries_options o = {.max_queries = args->max_queries,
                                   .next = args->next,
                                   .seed = args->common.seed,
                                   .threads = (int)args->common.threads,
                                   .xc = cli_xc_options(&args->xc),
                                   .distinct = args->distinct};
    const wo_progress progress = cli_progress(&args->common);
    const double start = woi_now_s();
    const uint64_t d = net->d;
    const woi_embed_options log = {args->output, args->dtype == 2, args->score, &progress};
    woi_embedded made = {0};
    wo_status status = woi_embed(net, args->data, &o, &log, &made, &err);
    woi_network_free(net);
    if (status && err.about != WO_ABOUT_NONE)
        return cli_blame(self, &(cli_files){.log = args->output, .output = args->output}, &err);
    if (status) return cli_fail(strcmp(err.option, "distinct") == 0 ? rest[0] : args->data, &err);
    const woi_precision precision = made.precision;
    cli_progress_end();
    const double seconds = woi_now_s() - start;
    const bool scored = args->score && precision.n > precision.unlabelled;
    if (args->common.json)
        return cli_print_json(json_pack("{s:o, s:I, s:I, s:f, s:o*, s:o*}", "log", cli_json_text(args->output), "n",
                                        (json_int_t)made.n, "d", (json_int_t)d, "seconds", seconds, "p_at_1",
                                        scored ? json_real(precision.p_at_1) : NULL, "p_at_5",
                                        scored ? json_real(precision.p_at_5) : NULL));
    cli_print_text(stdout, args->output);
    printf(": %s of %s, %.1f s\n", cli_count(made.n, "query"), cli_count(d, "number"), seconds);
    if (args->score && !scored) printf("  exact layer: no query has a label\n");
    if (scored)
        printf("  exact layer: P@1 %.4f  P@5 %.4f  over %s with a label\n", precision.p_at_1, precision.p_at_5,
               cli_count(precision.n - precision.unlabelled, "query"));
    return cli_end();
}

const cli_command cli_cmd_embed = {
    "embed",
    "NET --data FILE -o LOG [options]",
    "run a network over a data file: queries and labels as a log",
    "Writes what reaches the wide layer: a query of d numbers for every example, and its labels. Logs are\n"
    "what indexes are built from and evaluated on. Nothing but a batch is held in memory.\n"
    "\n"
    "  wideout embed net.safetensors --data test.txt -o test.log.safetensors\n"
    "  wideout embed lm.safetensors --data train.tokens.safetensors --max-queries 200000 -o train.log\n"
    "\n"
    "A supervised model of fastText's is a network too; its labels are among the words of a line:\n"
    "\n"
    "  wideout embed model.bin --data test.txt -o test.log\n"
    "\n"
    "The input of a word network is one word. With --distinct the log has each word of the data once, the\n"
    "rare ones too, and says how often it and its labels were seen; of the training text, every query\n"
    "that the network has learned, and all that the text says of it:\n"
    "\n"
    "  wideout embed words.safetensors --data train.tokens.safetensors --distinct -o words.log\n"
    "\n"
    "A language model that was trained in PyTorch (embed.weight, lstm.weight_ih_l0 ... , output.weight,\n"
    "output.bias; one file or sharded) comes with its vocabulary:\n"
    "\n"
    "  wideout embed lstm.safetensors.index.json --arch lm --vocab vocab.txt \\\n"
    "      --data test.tokens.safetensors -o test.log",
    options,
    sizeof(arguments),
    run,
};
