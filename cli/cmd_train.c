/* wideout train xc | w2v | lm: networks that end in a wide layer, trained from data files. */
#include "train.h"
#include "blame.h"
#include "inputs.h"
#include "outputs.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef cli_train_arguments arguments;

#define FILES(what)                                                                                                \
    {"train", 0, CLI_TEXT_ONCE, offsetof(arguments, train), "FILE", what " to learn from", false},                 \
        {"valid", 0, CLI_TEXT_ONCE, offsetof(arguments, valid), "FILE", "evaluated after every epoch", false},     \
        {"test", 0, CLI_TEXT_ONCE, offsetof(arguments, test), "FILE", "evaluated once, at the end", false},        \
    {                                                                                                              \
        "output", 'o', CLI_OUTPUT, offsetof(arguments, output), "FILE", "the network; FILE.checkpoint on the way", \
            false                                                                                                  \
    }

#define RECIPE(d_text, epochs_text, batch_text, lr_text, dropout_text)                                                 \
    {"dim", 'd', CLI_SIZE, offsetof(arguments, d), "N", "size of the queries (default: " d_text ")", false},           \
        {"epochs",                                                                                                     \
         'e',                                                                                                          \
         CLI_SIZE_OR_AUTO,                                                                                             \
         offsetof(arguments, epochs),                                                                                  \
         "N|auto",                                                                                                     \
         "passes over the data, or as many as --valid gains by (default: " epochs_text ")",                            \
         false},                                                                                                       \
        {"batch", 'b', CLI_SIZE, offsetof(arguments, batch), "N", "examples a step (default: " batch_text ")", false}, \
        {"lr", 0, CLI_REAL, offsetof(arguments, lr), "0-1", "Adam's peak rate (default: " lr_text ")", false},         \
        {"dropout", 0,                                                                                                 \
         CLI_REAL,  offsetof(arguments, dropout),                                                                      \
         "0-0.99",  "share of hidden values dropped (default: " dropout_text ")",                                      \
         false},                                                                                                       \
        {"sampled", 0,                                                                                                 \
         CLI_SIZE,  offsetof(arguments, sampled),                                                                      \
         "N",       "sampled softmax with N classes a step (default: exact)",                                          \
         false},                                                                                                       \
        {"resume", 0, CLI_FLAG, offsetof(arguments, resume), NULL, "go on from FILE.checkpoint", false},               \
    {                                                                                                                  \
        "time-steps", 0, CLI_SIZE, offsetof(arguments, time_steps), "N",                                               \
            "only time N steps, after 5 others; write nothing", false                                                  \
    }

const cli_option cli_train_xc_options[] = {
    FILES("extreme-classification text"),
    RECIPE("128", "7", "256", "0.002", "0.3"),
    {"counts", 0, CLI_CHOICE, offsetof(arguments, counts), "log1p|raw", "what becomes of values (default: log1p)",
     false},
    {"normalize", 0, CLI_CHOICE, offsetof(arguments, normalize), "l2|none", "length of a row (default: l2)", false},
    {"label-names", 0, CLI_TEXT_ONCE, offsetof(arguments, label_names), "FILE", "default: labels.txt beside the data",
     false},
    {"feature-names", 0, CLI_TEXT_ONCE, offsetof(arguments, feature_names), "FILE",
     "default: features.txt beside the data", false},
    CLI_XC_OPTIONS(arguments, xc),
    {0},
};

static const cli_option w2v_options[] = {
    FILES("tokens (of 'wideout data text')"),
    RECIPE("128", "4", "256", "0.01", "0"),
    {"window", 0, CLI_SIZE, offsetof(arguments, window), "N", "words on each side (default: 25)", false},
    {"drop-top", 0, CLI_COUNT, offsetof(arguments, drop_top), "N",
     "the N most frequent words are no labels (default: 0)", false},
    {0},
};

static const cli_option lm_options[] = {
    FILES("tokens (of 'wideout data text')"),
    RECIPE("200", "7", "64", "0.004", "0.35"),
    {"steps", 0, CLI_SIZE, offsetof(arguments, steps), "N", "words that gradients flow through (default: 35)", false},
    {"clip", 0, CLI_REAL, offsetof(arguments, clip), "0-1000", "largest norm of a gradient, 0 for any (default: 0.5)",
     false},
    {0},
};

/* ---- Progress ---------------------------------------------------------------------------------------------- */

typedef struct watcher {
    wo_progress progress; /* silent or not, and Ctrl-C */
    bool line;            /* whether to draw */
    double started, drawn;
    uint64_t before; /* steps of the runs that this one goes on from; UINT64_MAX until it is known */
} watcher;

static int watch(void *ctx, const woi_train_report *r)
{
    watcher *w = ctx;
    const double now = woi_now_s();
    if (w->before == UINT64_MAX) w->before = r->step ? r->step - 1 : 0;
    if (w->line && now - w->drawn > 0.1) {
        char valid[64] = "";
        w->drawn = now;
        if (!isnan(r->valid_p_at_1))
            snprintf(valid, sizeof valid, ", valid P@1 %.4f P@5 %.4f", r->valid_p_at_1, r->valid_p_at_5);
        const double here = (double)(r->step - w->before), to_go = (double)(r->steps - r->step);
        const double left = here > 0 ? (now - w->started) * to_go / here : 0;
        char text[256], epochs[64], end[64];
        snprintf(epochs, sizeof epochs, "%" PRIu64, r->epoch);
        snprintf(end, sizeof end, "best after %" PRIu64, r->kept);
        if (r->epochs) {
            snprintf(epochs, sizeof epochs, "%" PRIu64 "/%" PRIu64, r->epoch, r->epochs);
            snprintf(end, sizeof end, "%.0f s left", left);
        }
        snprintf(text, sizeof text, "%s: epoch %s, loss %.4f%s, %s examples/s, %s", r->doing, epochs, r->loss, valid,
                 cli_number((uint64_t)r->examples_per_s), end);
        cli_progress_line(text);
    }
    return w->progress.fn(w->progress.ctx, r->doing, r->step, r->steps);
}

/* ---- Results ----------------------------------------------------------------------------------------------- */

/* Null where nothing was evaluated, or nothing had a label. */
static json_t *precision_json(bool there, const woi_precision *p, double value)
{
    return there && p->n > p->unlabelled ? json_real(value) : json_null();
}

static json_t *by_epoch_json(const woi_train_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < r->n_by_epoch; i++)
        json_array_append_new(list, isnan(r->valid_by_epoch[i]) ? json_null() : json_real(r->valid_by_epoch[i]));
    return list;
}

static int print_json(const arguments *args, const woi_train_result *r, const cli_job *job)
{
    json_t *result =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f}", "network",
                  cli_json_text(args->output), "m", (json_int_t)r->m, "d", (json_int_t)r->d, "inputs",
                  (json_int_t)r->n_inputs, "examples", (json_int_t)r->n_examples, "epochs", (json_int_t)r->epochs,
                  "kept_epoch", (json_int_t)r->kept, "loss", r->loss, "valid_p_at_1_by_epoch", by_epoch_json(r),
                  "valid_p_at_1", precision_json(r->has_valid, &r->valid, r->valid.p_at_1), "valid_p_at_5",
                  precision_json(r->has_valid, &r->valid, r->valid.p_at_5), "test_p_at_1",
                  precision_json(r->has_test, &r->test, r->test.p_at_1), "test_p_at_5",
                  precision_json(r->has_test, &r->test, r->test.p_at_5), "examples_per_s", r->examples_per_s, "seconds",
                  r->seconds, "ms_per_step", r->step_ms, "peak_mib", cli_peak_mib());
    if (result && job) {
        json_object_set_new(result, "ranks", json_integer(job->calls->size));
        json_object_set_new(result, "phases", job->phases_json());
    }
    return cli_print_json(result);
}

static void print_precision(const char *what, const woi_precision *p)
{
    if (p->n == p->unlabelled) {
        printf("  %s no example has a label\n", what);
        return;
    }
    printf("  %s P@1 %.4f  P@5 %.4f  over %s", what, p->p_at_1, p->p_at_5, cli_count(p->n - p->unlabelled, "example"));
    if (p->unlabelled) printf(" (%s without a label left out)", cli_number(p->unlabelled));
    printf("\n");
}

static int print_result(woi_arch arch, const arguments *args, const woi_train_result *r)
{
    if (args->time_steps) {
        printf("%s: %.2f ms each (median), %s examples/s; nothing was written\n", cli_count(args->time_steps, "step"),
               r->step_ms, cli_number((uint64_t)r->examples_per_s));
        return cli_end();
    }
    cli_print_text(stdout, args->output);
    printf(": %s network, %s -> %s -> %s\n", woi_arch_name(arch), cli_count(r->n_inputs, "input"), cli_number(r->d),
           cli_count(r->m, "class"));
    if (args->epochs == CLI_AUTO)
        printf("  %s, of which number %s is kept: valid P@1 %.4f\n", cli_count(r->epochs, "epoch"), cli_number(r->kept),
               r->valid_by_epoch[r->kept - 1]);
    printf("  %s, %s, loss %.4f; %.1f s, %s examples/s, %.1f ms a step\n", cli_count(r->n_examples, "example"),
           cli_count(r->epochs, "epoch"), r->loss, r->seconds, cli_number((uint64_t)r->examples_per_s), r->step_ms);
    if (r->has_valid) print_precision("valid", &r->valid);
    if (r->has_test) print_precision("test ", &r->test);
    if (arch == WOI_ARCH_W2V && args->drop_top == 0)
        printf("  (on English Wikipedia the fixed list \"the of and in to\" scores P@1 0.956: see --drop-top)\n");
    return cli_end();
}

/* ---- The command ------------------------------------------------------------------------------------------- */

static void take(uint64_t *to, uint64_t given)
{
    if (given) *to = given;
}

static void take_real(double *to, double given)
{
    if (!isnan(given)) *to = given;
}

/* Neither the network nor its checkpoint may be a file that is read, names that are found beside the data included. */
static int refuse_inputs(const cli_command *self, woi_arch arch, const arguments *args)
{
    const char *slash = strrchr(args->train, '/');
    const int folder = slash ? (int)(slash - args->train) + 1 : 0;
    char *labels = NULL, *features = NULL, *checkpoint = NULL;
    int code = CLI_OK;
    if (asprintf(&labels, "%.*slabels.txt", folder, args->train) < 0) labels = NULL;
    if (asprintf(&features, "%.*sfeatures.txt", folder, args->train) < 0) features = NULL;
    if (asprintf(&checkpoint, "%s.checkpoint", args->output) < 0) checkpoint = NULL;
    const bool xc = arch == WOI_ARCH_XC;
    const char *const in[] = {args->train, args->valid, args->test,
                              args->label_names || !xc ? args->label_names : labels,
                              args->feature_names || !xc ? args->feature_names : features};
    const size_t n = sizeof in / sizeof in[0];
    if (!labels || !features || !checkpoint) {
        wo_error err;
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        code = cli_fail(NULL, &err);
    }
    if (!code) code = cli_refuse_inputs(self, args->output, in, n);
    if (!code) code = cli_refuse_inputs(self, checkpoint, in, n);
    free(labels);
    free(features);
    free(checkpoint);
    return code;
}

/* The words that are no options: there should be none. */
typedef struct words {
    int n;
    char **list;
} words;

static int train(const cli_command *self, woi_arch arch, const arguments *args, words rest, const cli_job *job)
{
    if (rest.n > 0)
        return cli_usage(self, "unexpected '%s': files are named by --train, --valid and --test", rest.list[0]);
    if (!args->train) return cli_usage(self, "needs --train FILE");
    if (!args->output) return cli_usage(self, "needs -o FILE for the network");
    if (args->window > WOI_MOST_WINDOW)
        return cli_usage(self, "--window takes at most %d, not %" PRIu64, WOI_MOST_WINDOW, args->window);
    int code = refuse_inputs(self, arch, args);
    if (code) return code;
    woi_train_options o = woi_train_defaults(arch);
    o.train = args->train;
    o.valid = args->valid;
    o.test = args->test;
    o.output = args->output;
    o.label_names = args->label_names;
    o.feature_names = args->feature_names;
    o.seed = args->common.seed;
    o.threads = (int)args->common.threads;
    o.resume = args->resume;
    o.time_steps = args->time_steps;
    o.xc = cli_xc_options(&args->xc);
    take(&o.d, args->d);
    o.auto_epochs = args->epochs == CLI_AUTO;
    if (o.auto_epochs && !args->valid)
        return cli_usage(self, "--epochs auto needs --valid FILE, which says when to stop");
    if (!o.auto_epochs) take(&o.epochs, args->epochs);
    take(&o.batch, args->batch);
    take(&o.sampled, args->sampled);
    take(&o.drop_top, args->drop_top);
    take(&o.window, args->window);
    take(&o.steps, args->steps);
    if (args->lr == 0) return cli_usage(self, "--lr takes a number above 0");
    if (arch == WOI_ARCH_XC) {
        o.input.log1p = args->counts != 2;
        o.input.l2 = args->normalize != 2;
    }
    take_real(&o.lr, args->lr);
    take_real(&o.dropout, args->dropout);
    if (arch == WOI_ARCH_LM) take_real(&o.clip, args->clip);

    const bool first = !job || job->calls->rank == 0;
    const int bad = args->time_steps || !first ? CLI_OK : cli_output_try(args->output);
    if (bad) return bad;
    o.ranks = job ? job->calls : NULL;
    woi_train_result result;
    wo_error err;
    const char *at = args->train;
    watcher w = {.progress = cli_progress(&(cli_common){.quiet = true}), .started = woi_now_s(), .before = UINT64_MAX};
    w.line = first && !args->common.quiet && !args->common.json;
    if (woi_train(arch, &o, (woi_train_watch){watch, &w, job ? job->phase : NULL}, &result, &at, &err))
        return job && job->failed_elsewhere() ? CLI_FAILED
               : err.about == WO_ABOUT_OPTION ? cli_blame(self, &(cli_files){0}, &err)
                                              : cli_fail(at, &err);
    cli_progress_end();
    code = args->common.json ? print_json(args, &result, job) : print_result(arch, args, &result);
    woi_train_result_free(&result);
    return code;
}

static int run_xc(const cli_command *self, void *args, int n, char **rest)
{
    return train(self, WOI_ARCH_XC, args, (words){n, rest}, NULL);
}

int cli_train_xc(const cli_command *self, const cli_train_arguments *args, int n, char **rest, const cli_job *job)
{
    return train(self, WOI_ARCH_XC, args, (words){n, rest}, job);
}

static int run_w2v(const cli_command *self, void *args, int n, char **rest)
{
    return train(self, WOI_ARCH_W2V, args, (words){n, rest}, NULL);
}

static int run_lm(const cli_command *self, void *args, int n, char **rest)
{
    return train(self, WOI_ARCH_LM, args, (words){n, rest}, NULL);
}

#define RESUMING                                                                                          \
    "\n"                                                                                                  \
    "After every epoch the state is saved in FILE.checkpoint; Ctrl-C loses at most the epoch, and\n"      \
    "--resume goes on to the very network that an undisturbed run would have made. The same seed gives\n" \
    "the same file, whatever the number of threads."

const cli_command cli_cmd_train_xc = {
    "train xc",
    "--train FILE -o FILE [options]",
    "train a bag network on extreme-classification text",
    "Bag of features -> embedding -> ReLU -> dropout -> m classes. Softmax cross-entropy over a row's\n"
    "labels in equal shares, Adam with a one-cycle rate. Rows without a label are left out. With\n"
    "--epochs auto the network is that of the epoch with the best validation P@1.\n"
    "\n"
    "  wideout train xc --train train.txt --valid valid.txt --test test.txt -o net.safetensors\n"
    "  wideout train xc --train train.txt --valid valid.txt --epochs auto -o net.safetensors\n"
    "  wideout train xc --train train.txt --counts raw --batch 128 --epochs 8 -o net.safetensors\n"
    "  wideout train xc --train huge.txt --sampled 8192 -o net.safetensors\n" RESUMING,
    cli_train_xc_options,
    sizeof(arguments),
    run_xc,
};

const cli_command cli_cmd_train_w2v = {
    "train w2v",
    "--train FILE -o FILE [options]",
    "train a word network: a word predicts the words around it",
    "One word -> embedding -> ReLU -> m words: those within the window around it, all occurrences of a\n"
    "word taken together. An epoch visits a word of count c about c^(3/4) times, and each time draws 64\n"
    "of the words around it. Evaluation goes by occurrence: at 100,000 positions, the words of the window\n"
    "are the labels. Without --drop-top a fixed list of five words (\"the of and in to\") scores P@1 0.956\n"
    "on English Wikipedia, so that such figures say little.\n"
    "\n"
    "  wideout train w2v --train train.tokens.safetensors --test test.tokens.safetensors \\\n"
    "      --drop-top 200 --sampled 4096 -o words.safetensors\n" RESUMING,
    w2v_options,
    sizeof(arguments),
    run_w2v,
};

const cli_command cli_cmd_train_lm = {
    "train lm",
    "--train FILE -o FILE [options]",
    "train a language model: two LSTM layers predict the next word",
    "Words -> embedding -> two LSTM layers -> m words, with dropout. The text runs as --batch streams\n"
    "side by side in windows of --steps words, the state carried from one to the next; gradients flow\n"
    "through a window and are clipped. Evaluation reads a file as one stream.\n"
    "\n"
    "  wideout train lm --train train.tokens.safetensors --valid valid.tokens.safetensors \\\n"
    "      -o lm.safetensors\n" RESUMING,
    lm_options,
    sizeof(arguments),
    run_lm,
};
