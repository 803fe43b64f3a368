/* wideout data synthetic: made-up layers, logs and texts of any size. */
#include "cli.h"
#include "net/net.h"
#include "outputs.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

typedef struct arguments {
    cli_common common;
    const char *output;
    const char *shard;
    uint64_t m, d, n;
    double exponent;
    int as;
} arguments;

static const cli_option options[] = {
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "DIR", "the folder to write to, made where it is missing",
     false},
    {"as", 0, CLI_CHOICE, offsetof(arguments, as), "layer|text", "what to make (default: layer)", false},
    {"classes", 'm', CLI_SIZE, offsetof(arguments, m), "N", "classes (default: 100000)", false},
    {"dimensions", 'd', CLI_SIZE, offsetof(arguments, d), "N", "dimensions of a layer (default: 64)", false},
    {"queries", 'n', CLI_SIZE, offsetof(arguments, n), "N",
     "training queries (default: 100000); valid and test get a tenth", false},
    {"exponent", 0, CLI_REAL, offsetof(arguments, exponent), "0-4",
     "class j has probability (j+1)^-S (default: 1; 0: all alike)", false},
    {"shard", 0, CLI_TEXT, offsetof(arguments, shard), "I/P", "of a layer: only classes c with c % P = I, as c / P",
     false},
    {0},
};

enum { LAYER = 1, TEXT };
static const char *const layer_names[] = {"layer.safetensors", "train.log.safetensors", "valid.log.safetensors",
                                          "test.log.safetensors", NULL};
static const char *const text_names[] = {"train.txt", "valid.txt", "test.txt", "labels.txt", "features.txt", NULL};

static wo_status write_layer(const woi_synthetic *s, const wo_progress *progress, cli_outputs *o)
{
    o->at = o->path[0];
    wo_status status = woi_synthetic_layer(s, o->path[0], progress, &o->st[0], &o->err);
    for (int part = 0; !status && part < WOI_SYNTHETIC_PARTS; part++) {
        o->at = o->path[part + 1];
        status = woi_synthetic_log(s, part, o->path[part + 1], progress, &o->st[part + 1], &o->err);
    }
    return status;
}

static wo_status write_text(const woi_synthetic *s, const wo_progress *progress, cli_outputs *o)
{
    wo_status status = WO_OK;
    for (int i = 0; !status && i < o->n; i++) {
        if ((status = cli_outputs_create(o, i))) break;
        status = i < WOI_SYNTHETIC_PARTS    ? woi_synthetic_text(s, i, o->file[i], progress, &o->err)
                 : i == WOI_SYNTHETIC_PARTS ? woi_synthetic_names("class", s->m, o->file[i], &o->err)
                                            : woi_synthetic_names("word", s->n_features, o->file[i], &o->err);
    }
    return status;
}

static int report(const woi_synthetic *s, bool text, const arguments *args, double seconds)
{
    if (args->common.json)
        return cli_print_json(json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "as", text ? "text" : "layer", "m",
            (json_int_t)woi_synthetic_rows(s), text ? "features" : "d", (json_int_t)(text ? s->n_features : s->d),
            "clusters", (json_int_t)s->n_clusters, "train", (json_int_t)s->n[0], "valid", (json_int_t)s->n[1], "test",
            (json_int_t)s->n[2], "exponent", s->exponent, "seconds", seconds));
    printf("wrote ");
    cli_print_text(stdout, args->output);
    printf(": %s in %s, %s; %s train, %s valid, %s; %.1f s\n", cli_count(woi_synthetic_rows(s), "class"),
           cli_count(s->n_clusters, "cluster"), cli_count(text ? s->n_features : s->d, text ? "feature" : "dimension"),
           cli_number(s->n[0]), cli_number(s->n[1]), cli_count(s->n[2], text ? "test row" : "test query"), seconds);
    return cli_end();
}

/* "3/10" */
static bool parse_shard(const char *text, woi_synthetic *s)
{
    char slash, end;
    return sscanf(text, "%4" SCNu64 "%c%4" SCNu64 "%c", &s->shard, &slash, &s->shards, &end) == 3 && slash == '/' &&
           s->shard < s->shards && s->shards <= s->m;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    const bool text = args->as == TEXT;
    const uint64_t train = args->n ? args->n : 100000, held_out = train < 10 ? 1 : train / 10;
    if (n > 0) return cli_usage(self, "takes no file, found '%s'", rest[0]);
    if (!args->output) return cli_usage(self, "needs -o DIR, the folder to write to");
    if (text && args->d) return cli_usage(self, "-d is for --as layer");
    if (text && args->shard) return cli_usage(self, "--shard is for --as layer");
    woi_synthetic s = {.m = args->m ? args->m : 100000,
                       .d = args->d ? args->d : 64,
                       .n = {train, held_out, held_out},
                       .exponent = isnan(args->exponent) ? 1 : args->exponent,
                       .seed = args->common.seed,
                       .threads = (int)args->common.threads};
    if (s.m < 2 || s.m > INT32_MAX) return cli_usage(self, "-m takes 2 to %d classes, not %" PRIu64, INT32_MAX, s.m);
    if (s.d < 2 || s.d > 1 << 16) return cli_usage(self, "-d takes 2 to 65536 dimensions, not %" PRIu64, s.d);
    if (args->common.threads > 1024)
        return cli_usage(self, "--threads takes at most 1024, not %" PRIu64, args->common.threads);
    if (train > INT32_MAX) return cli_usage(self, "-n takes at most %d queries, not %" PRIu64, INT32_MAX, train);

    if (args->shard && !parse_shard(args->shard, &s))
        return cli_usage(self,
                         "--shard takes I/P, shard I of P from 0/P on, with at most 9999 of them and a class in each");

    if (cli_output_try_folder(args->output, text ? text_names : layer_names)) return CLI_FAILED;
    double start = woi_now_s();
    cli_outputs outputs = {.at = args->output};
    wo_progress progress = cli_progress(&args->common);
    wo_status status = cli_outputs_open(&outputs, args->output, text ? text_names : layer_names);
    if (!status) status = woi_synthetic_init(&s, !text, &outputs.err);
    if (!status) status = text ? write_text(&s, &progress, &outputs) : write_layer(&s, &progress, &outputs);
    if (!status) status = cli_outputs_commit(&outputs);
    cli_progress_end();
    int code = status ? cli_fail(outputs.at, &outputs.err) : report(&s, text, args, woi_now_s() - start);
    cli_outputs_free(&outputs);
    woi_synthetic_free(&s);
    return code;
}

const cli_command cli_cmd_data_synthetic = {
    "data synthetic",
    "[options] -o DIR",
    "make up a wide layer with logs, or a text data set",
    "For scale tests, and where there are no data: classes with power-law frequencies, in about sqrt(m)\n"
    "clusters, and queries near the classes that are their labels.\n"
    "\n"
    "  wideout data synthetic -m 1000000 -d 128 -n 500000 -o million\n"
    "  wideout data synthetic --as text -m 20000 -n 200000 -o texts\n"
    "\n"
    "--as layer writes layer.safetensors (weight, bias) and train.log.safetensors, valid.log.safetensors\n"
    "and test.log.safetensors (queries, one label each). The layer is the best possible for its queries:\n"
    "its softmax gives their true probabilities, the bias being the log of the class frequencies. The\n"
    "noise goes with m, so that the exact layer's P@1 is 0.7 to 0.8 whatever m and d are (at exponent 1;\n"
    "0.5 at exponent 0, where all classes are alike). Memory does not grow with m or n.\n"
    "\n"
    "--as text writes train.txt, valid.txt and test.txt in the extreme-classification format, labels.txt\n"
    "and features.txt: rows of 16 words, half of them words of the class, some of its cluster, some\n"
    "noise, which 'wideout train xc' can learn.\n"
    "\n"
    "A layer that is larger than the disk is made shard by shard: --shard 3/10 writes every tenth of its\n"
    "classes, from class 3 on, as a layer of its own, and the same queries, most of them without label.\n"
    "\n"
    "The same seed gives the same bytes, with any number of threads.",
    options,
    sizeof(arguments),
    run,
};
