/* wideout serve: an index behind a port. The server itself is in serve/, and there only where libmicrohttpd is. */
#include "blame.h"
#include "cli.h"
#include "inputs.h"
#include "layer_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef WOI_HAVE_SERVE
#include "serve/serve.h"
#endif

enum { MAX_CONNECTIONS = 1000000, MAX_K = 1 << 20, MAX_QUERIES = 1 << 20, MAX_TEXT = 1 << 30 };

typedef struct arguments {
    cli_common common;
    cli_layer layer;
    const char *net, *listen, *name, *ready_file, *token_file, *access_log, *window, *learned;
    const char *shards, *need, *shard_token_file;
    uint64_t max_body, max_text, max_queries, max_k, max_connections, half_life;
    double timeout, drain, shadow, alarm, shard_timeout;
    bool exact, watch, learn;
} arguments;

static const cli_option options[] = {
    {"net", 0, CLI_TEXT_ONCE, offsetof(arguments, net), "FILE", "the network that makes queries of text and features",
     false},
    CLI_LAYER_OPTIONS(arguments, layer, "the layer of the index, where it has no rows, or none in f32"),
    {"listen", 0, CLI_TEXT, offsetof(arguments, listen), "ADDR:PORT",
     "where (default: 127.0.0.1:8080; port 0: any that is free)", false},
    {"name", 0, CLI_TEXT, offsetof(arguments, name), "NAME", "of the model, in /v2/models/NAME (default: wideout)",
     false},
    {"exact", 0, CLI_FLAG, offsetof(arguments, exact), NULL, "score all classes, unless a request says otherwise",
     false},
    {"watch", 0, CLI_FLAG, offsetof(arguments, watch), NULL, "open the files again when they change", false},
    {"shadow", 0, CLI_REAL, offsetof(arguments, shadow), "0-1",
     "share of the queries also answered over all classes (default: 0)", false},
    {"alarm", 0, CLI_REAL, offsetof(arguments, alarm), "0-1",
     "say where the index finds the best by its own scores less often", false},
    {"learn", 0, CLI_FLAG, offsetof(arguments, learn), NULL,
     "learn from POST /v1/feedback, and from what --shadow finds missing", false},
    {"half-life", 0, CLI_SIZE, offsetof(arguments, half_life), "N",
     "queries after which what was learned counts half (default: never)", false},
    {"learned", 0, CLI_TEXT_ONCE, offsetof(arguments, learned), "FILE",
     "keep what is learned from there: a log, read again at the start", false},
    {"batch-window", 0, CLI_TEXT, offsetof(arguments, window), "TIME",
     "wait so long for requests to share a search: 200us, 2ms", false},
    {"token-file", 0, CLI_TEXT_ONCE, offsetof(arguments, token_file), "FILE",
     "its first line is the token that requests must bring", false},
    {"access-log", 0, CLI_TEXT, offsetof(arguments, access_log), "FILE", "a line of JSON for each request; -: stdout",
     false},
    {"shards", 0, CLI_TEXT_ONCE, offsetof(arguments, shards), "HOST:PORT,...",
     "in place of INDEX: servers that have a part of the classes each", false},
    {"need", 0, CLI_TEXT, offsetof(arguments, need), "WHICH", "shards that must answer: all or most (default: all)",
     false},
    {"shard-timeout", 0, CLI_REAL, offsetof(arguments, shard_timeout), "0.01-3600",
     "seconds that a shard may take, a second try included (default: 2)", false},
    {"shard-token-file", 0, CLI_TEXT_ONCE, offsetof(arguments, shard_token_file), "FILE",
     "its first line is the token that the shards ask for", false},
    {"ready-file", 0, CLI_OUTPUT, offsetof(arguments, ready_file), "FILE",
     "write the address there when requests are taken", false},
    {"max-body", 0, CLI_SIZE, offsetof(arguments, max_body), "BYTES", "of a request (default: 16777216)", false},
    {"max-text", 0, CLI_SIZE, offsetof(arguments, max_text), "BYTES",
     "of one text; all of a request: 16 times, lm: once (default: 65536)", false},
    {"max-queries", 0, CLI_SIZE, offsetof(arguments, max_queries), "N", "of a request (default: 4096)", false},
    {"max-k", 0, CLI_SIZE, offsetof(arguments, max_k), "N", "answers of a query (default: 1000)", false},
    {"max-connections", 0, CLI_SIZE, offsetof(arguments, max_connections), "N", "at a time (default: 16384)", false},
    {"timeout", 0, CLI_REAL, offsetof(arguments, timeout), "0.1-86400",
     "seconds that a request may take to come (default: 30)", false},
    {"drain", 0, CLI_REAL, offsetof(arguments, drain), "0-3600",
     "seconds to say 'not ready' after SIGTERM (default: 0)", false},
    {0},
};

/* "200us", "2ms", "0.001s" as seconds; false: it is none of these. */
static bool read_time(const char *text, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    char *end;
    *seconds = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (end != text && strcmp(end, units[i].unit) == 0) {
            *seconds *= units[i].seconds;
            return *seconds >= 0 && *seconds <= 1;
        }
    return false;
}

/* What the server writes is nothing that it reads, shards of a layer included, and the three are three files. A token
 * is not opened here: it may come out of a pipe. */
static int refuse_inputs(const cli_command *self, const arguments *args, const char *index)
{
    const char *const files[] = {args->ready_file, args->access_log, args->learned, args->token_file,
                                 args->shard_token_file};
    const char *const models[] = {index, args->net, args->layer.path, args->layer.bias_path};
    static const char *const names[] = {"--ready-file", "--access-log", "--learned"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool used = false;
        if (!files[i]) continue;
        for (size_t j = i + 1; j < sizeof files / sizeof *files; j++)
            used |= files[j] && cli_same_file(files[i], files[j]);
        for (size_t j = 0; j < sizeof models / sizeof *models; j++)
            used |= models[j] && cli_is_part(files[i], models[j]);
        if (used) return cli_usage(self, "%s '%s' is a file that has another use here", names[i], files[i]);
    }
    return CLI_OK;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (args->shards && n) return cli_usage(self, "--shards stands in place of an index, and '%s' is one", rest[0]);
    if (!args->shards && n != 1) return cli_usage(self, "expected one index, found %d", n);
    if (!args->shards && (args->need || !isnan(args->shard_timeout) || args->shard_token_file))
        return cli_usage(self, "--need, --shard-timeout and --shard-token-file go with --shards");
    if (args->need && strcmp(args->need, "all") != 0 && strcmp(args->need, "most") != 0)
        return cli_usage(self, "--need takes all or most, not '%s'", args->need);
    if (args->shards && (args->layer.path || args->shadow > 0 || args->window || args->watch || args->learn))
        return cli_usage(self,
                         "--layer, --shadow, --batch-window, --watch and --learn are the shards' own: give them there");
    if (args->max_connections > MAX_CONNECTIONS)
        return cli_usage(self, "--max-connections takes at most %d", MAX_CONNECTIONS);
    if (args->max_k > MAX_K) return cli_usage(self, "--max-k takes at most %d", MAX_K);
    if (args->max_text > MAX_TEXT) return cli_usage(self, "--max-text takes at most %d", MAX_TEXT);
    if (args->max_queries > MAX_QUERIES) return cli_usage(self, "--max-queries takes at most %d", MAX_QUERIES);
    if (args->name && (!*args->name || strpbrk(args->name, "/?#%")))
        return cli_usage(self, "--name takes what fits between two slashes of a path, not '%s'", args->name);
    if (cli_layer_refuse_parts(self, &args->layer)) return CLI_USAGE;
    double window = 0;
    if (args->window && !read_time(args->window, &window))
        return cli_usage(self, "--batch-window takes a time up to 1s, as 200us, not '%s'", args->window);
    if (args->alarm > 0 && !(args->shadow > 0))
        return cli_usage(self, "--alarm needs --shadow: nothing else says how good the answers are");
    if (!args->learn && (args->half_life || args->learned))
        return cli_usage(self, "%s goes with --learn", args->half_life ? "--half-life" : "--learned");
    const int code = refuse_inputs(self, args, rest[0]);
    if (code) return code;
    wo_error err;
#ifdef WOI_HAVE_SERVE
    const char *at = NULL;
    const woi_serve_options how = {.index = args->shards ? NULL : rest[0],
                                   .net = args->net,
                                   .layer = args->layer.path,
                                   .weight_name = args->layer.weight_name,
                                   .bias_name = args->layer.bias_name,
                                   .bias_path = args->layer.bias_path,
                                   .listen = args->listen ? args->listen : "127.0.0.1:8080",
                                   .name = args->name ? args->name : "wideout",
                                   .ready_file = args->ready_file,
                                   .token_file = args->token_file,
                                   .access_log = args->access_log,
                                   .watch = args->watch,
                                   .threads = (int)args->common.threads,
                                   .exact = args->exact,
                                   .max_body = args->max_body ? args->max_body : 16 << 20,
                                   .max_text = args->max_text ? args->max_text : 65536,
                                   .max_queries = args->max_queries ? args->max_queries : 4096,
                                   .max_k = args->max_k ? args->max_k : 1000,
                                   .max_connections = args->max_connections ? args->max_connections : 16384,
                                   .timeout_s = isnan(args->timeout) ? 30 : args->timeout,
                                   .drain_s = isnan(args->drain) ? 0 : args->drain,
                                   .shadow = isnan(args->shadow) ? 0 : args->shadow,
                                   .alarm = isnan(args->alarm) ? 0 : args->alarm,
                                   .window_s = window,
                                   .shards = args->shards,
                                   .shard_token_file = args->shard_token_file,
                                   .need_most = args->need && strcmp(args->need, "most") == 0,
                                   .shard_timeout_s = isnan(args->shard_timeout) ? 2 : args->shard_timeout,
                                   .learn = args->learn,
                                   .half_life = args->half_life,
                                   .learned = args->learned,
                                   .json = args->common.json,
                                   .quiet = args->common.quiet};
    if (!woi_serve(&how, &at, &err)) return cli_end();
    const char *hint = NULL;
    if (strcmp(err.option, "layer") == 0) hint = "--layer FILE gives it, or --net where the network has it";
    if (strcmp(err.option, "method") == 0) hint = "wideout build --method evidence makes one";
    return cli_fail_hint(at, &err, hint);
#else
    (void)rest;
    cli_set_error(&err, WO_ERR_UNSUPPORTED,
                  "this wideout was built without a server: install libmicrohttpd-dev and build it again");
    return cli_fail(NULL, &err);
#endif
}

const cli_command cli_cmd_serve = {
    "serve",
    "[options] INDEX | [options] --shards HOST:PORT,...",
    "an index behind a port: HTTP with JSON or raw floats, and the KServe v2 protocol",
    "Answers searches of INDEX over HTTP until SIGTERM or Ctrl-C. The index must have its rows in\n"
    "it, or those of --layer or --net. Exact answers, and --shadow, need rows in f32: an index that\n"
    "was built with others (--weights) has them from --layer.\n"
    "\n"
    "  wideout serve index.safetensors --net debian.safetensors\n"
    "  curl 127.0.0.1:8080/v1/predict -d '{\"text\": \"a fast web browser\", \"k\": 3}'\n"
    "  curl 127.0.0.1:8080/v1/search -d '{\"query\": [0.1, ...], \"k\": 3}'\n"
    "  curl 127.0.0.1:8080/v1/search?k=3 -H 'Content-Type: application/octet-stream' --data-binary @q.f32\n"
    "  wideout serve --shards 10.0.0.10:8080,10.0.0.11:8080   (servers with a part of the classes each)\n"
    "\n"
    "Paths: / (a page), /v1/search, /v1/predict, /v1/feedback (labels that became known, with --learn),\n"
    "/v1/info, /v2/... (KServe: JSON and binary tensors), /healthz, /readyz, /metrics (Prometheus) and\n"
    "/admin/reload, as SIGHUP. Every answer names the index by its checksum; every refusal is a JSON\n"
    "object with one sentence, \"error\". docs/SERVING.md has it all.\n"
    "\n"
    "With --learn the index learns while it serves: labels that /v1/feedback reports, and classes that\n"
    "--shadow finds missing, are counted in the cells of their queries, and every second an index that\n"
    "knows them takes the place of the one before. 'wideout build --log OLD --log FILE' builds from what\n"
    "--learned FILE kept.",
    options,
    sizeof(arguments),
    run,
};
