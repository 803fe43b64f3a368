/* wideout data text: text to token files for language models and word vectors. */
#include "cli.h"
#include "inputs.h"
#include "net/net.h"
#include "outputs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

typedef struct arguments {
    cli_common common;
    const char *output, *split;
    uint64_t min_count;
    int eos;
} arguments;

static const cli_option options[] = {
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "DIR", "the folder to write to, made where it is missing",
     false},
    {"min-count", 0, CLI_SIZE, offsetof(arguments, min_count), "N",
     "words that occur less often become <unk> (default: 1)", false},
    {"eos", 0, CLI_CHOICE, offsetof(arguments, eos), "auto|on|off",
     "<eos> at line ends (default: auto, where there are several lines)", false},
    {"split", 0, CLI_TEXT, offsetof(arguments, split), "A,B,C",
     "shares of train, valid and test of one file (default: 65,5,30)", false},
    {0},
};

static const char *const names[] = {"train.tokens.safetensors", "valid.tokens.safetensors", "test.tokens.safetensors",
                                    NULL};

/* "65,5,30": three whole numbers of 1 to a million. */
static bool parse_shares(const char *text, uint64_t shares[WOI_CORPUS_PARTS])
{
    for (int i = 0; i < WOI_CORPUS_PARTS; i++) {
        char *end;
        if (*text < '0' || *text > '9') return false;
        shares[i] = strtoull(text, &end, 10);
        if (shares[i] < 1 || shares[i] > 1000000 || *end != (i < WOI_CORPUS_PARTS - 1 ? ',' : '\0')) return false;
        text = end + 1;
    }
    return true;
}

static wo_status write_files(const woi_corpus *corpus, uint64_t min_count, cli_outputs *outputs, const char *folder)
{
    wo_status status = cli_outputs_open(outputs, folder, names);
    for (int i = 0; !status && i < outputs->n; i++) {
        outputs->at = outputs->path[i];
        status = woi_corpus_write(corpus, i, min_count, outputs->path[i], &outputs->st[i], &outputs->err);
    }
    return status ? status : cli_outputs_commit(outputs);
}

static int report(const woi_corpus *corpus, const arguments *args, double seconds)
{
    const uint64_t n[] = {corpus->end[0], corpus->end[1] - corpus->end[0], corpus->end[2] - corpus->end[1]};
    double mb_per_s = seconds > 0 ? (double)corpus->text_bytes / 1e6 / seconds : 0;
    if (args->common.json)
        return cli_print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:f, s:f}", "tokens",
                                        (json_int_t)corpus->n, "words", (json_int_t)corpus->words.n, "train",
                                        (json_int_t)n[0], "valid", (json_int_t)n[1], "test", (json_int_t)n[2],
                                        "made_unknown", (json_int_t)corpus->n_unknown, "eos", corpus->eos, "text_bytes",
                                        (json_int_t)corpus->text_bytes, "seconds", seconds, "mb_per_s", mb_per_s));
    printf("wrote ");
    cli_print_text(stdout, args->output);
    printf(": %s (%s train, %s valid, %s test), vocabulary of %s; <eos> at line ends: %s\n",
           cli_count(corpus->n, "token"), cli_number(n[0]), cli_number(n[1]), cli_number(n[2]),
           cli_count((uint64_t)corpus->words.n, "word"), corpus->eos ? "yes" : "no");
    if (corpus->n_unknown) printf("%s became <unk>\n", cli_count(corpus->n_unknown, "rare token"));
    printf("read %s in %.3f s, %.0f MB/s\n", cli_bytes(corpus->text_bytes), seconds, mb_per_s);
    return cli_end();
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    uint64_t shares[WOI_CORPUS_PARTS] = {65, 5, 30};
    if (n != 1 && n != WOI_CORPUS_PARTS) return cli_usage(self, "expected one file or three, found %d", n);
    if (!args->output) return cli_usage(self, "needs -o DIR, the folder to write to");
    if (args->split && n > 1) return cli_usage(self, "--split is for one file, found three");
    if (args->split && !parse_shares(args->split, shares))
        return cli_usage(self, "--split takes three whole numbers such as 65,5,30, not '%s'", args->split);
    const int refused = cli_refuse_inputs_in(self, args->output, names, (const char *const *)rest, (size_t)n);
    if (refused) return refused;
    if (cli_output_try_folder(args->output, names)) return CLI_FAILED;
    const woi_eos eos = args->eos ? (woi_eos)(args->eos - 1) : WOI_EOS_AUTO;
    const uint64_t min_count = args->min_count ? args->min_count : 1;

    double start = woi_now_s();
    cli_outputs outputs = {0};
    woi_corpus corpus = {0};
    wo_progress progress = cli_progress(&args->common);
    wo_status status = WO_OK;
    for (int i = 0; !status && i < n; i++) {
        outputs.at = rest[i];
        status = woi_corpus_read(&corpus, rest[i], eos, &progress, &outputs.err);
    }
    if (!status) status = woi_corpus_finish(&corpus, eos, min_count, &outputs.err);
    if (!status && n == 1) status = woi_corpus_split(&corpus, shares, &outputs.err);
    if (!status) status = write_files(&corpus, min_count, &outputs, args->output);
    cli_progress_end();
    int code = status ? cli_fail(outputs.at, &outputs.err) : report(&corpus, args, woi_now_s() - start);
    cli_outputs_free(&outputs);
    woi_corpus_free(&corpus);
    return code;
}

const cli_command cli_cmd_data_text = {
    "data text",
    "[options] -o DIR FILE | TRAIN VALID TEST",
    "make token files of text",
    "Words are what stands between spaces and line ends, as in text8 and WikiText; text must be UTF-8,\n"
    "plain or gzip. One file is cut into train, valid and test by position; or give all three.\n"
    "\n"
    "  wideout data text --min-count 2 text8.gz -o text8\n"
    "  wideout data text wiki.train.tokens wiki.valid.tokens wiki.test.tokens -o wikitext-2\n"
    "  wideout data text --split 80,10,10 book.txt -o book\n"
    "\n"
    "Writes to DIR: train.tokens.safetensors, valid.tokens.safetensors and test.tokens.safetensors, each\n"
    "with the ids and the whole vocabulary; all of them or none.\n"
    "\n"
    "The vocabulary, and with it --min-count, is taken over all the text, the test part included, as is\n"
    "usual for these sets; ids go by first appearance. --eos auto ends each line with the word <eos>\n"
    "where a file has more than one line, and adds none to a text that is one long line, like text8.",
    options,
    sizeof(arguments),
    run,
};
