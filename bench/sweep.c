/* The table of methods, the table of settings, and how the text of a sweep becomes configurations. */
#include "sweep.h"

#include "../cli/cli.h"

#include <stdlib.h>
#include <string.h>

static const bench_method methods[] = {
    {"full", "exact", NULL, BENCH_OURS, WO_METHOD_FULL},
    {"torch-full", "exact", NULL, BENCH_TORCH, 0},
    {"popular", "baseline", "N", BENCH_OURS, WO_METHOD_POPULAR},
    {"slide", "baseline", "L", BENCH_OURS, WO_METHOD_SLIDE},
    {"lss", "baseline", "L", BENCH_OURS, WO_METHOD_LSS},
    {"evidence", "ours", "lambda", BENCH_OURS, WO_METHOD_EVIDENCE},
    {"tuned", "ours", NULL, BENCH_TUNED, 0},
    {"pq", "peer", "rerank", BENCH_PEER, PEER_PQ},
    {"ivf", "peer", "nprobe", BENCH_PEER, PEER_IVF},
    {"sq8", "peer", "rerank", BENCH_PEER, PEER_SQ8},
    {"ip-nsw", "peer", "ef", BENCH_PEER, PEER_IP_NSW},
    {"graph-decoder", "peer", "ef", BENCH_PEER, PEER_GRAPH_DECODER},
    {"screen", "ours", NULL, BENCH_OURS, WO_METHOD_SCREEN},
};
enum { N_METHODS = sizeof methods / sizeof *methods };

/* Methods that have a setting, as bits of their place above. */
enum {
    POPULAR = 1 << 2,
    TUNED = 1 << 6,
    PQ = 1 << 7,
    IVF = 1 << 8,
    SQ8 = 1 << 9,
    GRAPHS = 3 << 10,
};

/* The first number of peers' tuning is what their own users would start from; see docs/BENCHMARKING.md. Five reduced
 * runs are to take ten minutes together: timing a row beside FULL takes more than a second, learning lss with L=10
 * thirteen, PQ's codes twelve, an evidence index four to seven, one that is tuned twenty. */
const char bench_default_sweeps[] = "full\n"
                                    "torch-full\n"
                                    "screen\n"
                                    "popular N=500,2000,5000\n"
                                    "slide K=4,8 L=10\n"
                                    "lss loss=paper K=4 L=10\n"
                                    "lss loss=margin K=4 L=1\n"
                                    "evidence K=10 L=4 lambda=0.02\n"
                                    "evidence router=tree lambda=0.05 probes=1,2\n"
                                    "tuned batch=1024 seconds=15\n"
                                    "pq part=4 rerank=50\n"
                                    "ivf nprobe=16,64\n"
                                    "sq8 rerank=10\n"
                                    "ip-nsw M=16 efc=200 ef=20,50,200\n"
                                    "graph-decoder M=16 efc=200 ef=20,50,200\n"
                                    "full:\n"
                                    "popular N=50,100,200,1000,10000,20000\n"
                                    "slide K=4,6,8 L=1,10,50\n"
                                    "lss loss=paper,margin K=4,6,8 L=1,10,50\n"
                                    "evidence K=8,10,12 L=1,2,4,8 lambda=0.3,0.1,0.05,0.02,0.01,0.005\n"
                                    "evidence router=tree lambda=0.3,0.1,0.05,0.02,0.01 probes=1,2,4,8\n"
                                    "evidence learner=none K=10 L=4 lambda=0.3,0.1,0.05,0.02,0.01\n"
                                    "tuned batch=1,1024\n"
                                    "pq part=2,4,8 rerank=0,10,20,50,100,200\n"
                                    "pq part=4 metric=l2 rerank=0,10,20,50,100,200\n"
                                    "ivf lists=4,16 nprobe=1,2,4,8,16,32,64,128,256\n"
                                    "sq8 rerank=0,50\n"
                                    "ip-nsw M=16 efc=200 ef=10,100,400,800\n"
                                    "ip-nsw M=32 efc=400 ef=10,20,50,100,200,400,800\n"
                                    "graph-decoder M=16 efc=200 ef=10,100,400,800\n"
                                    "graph-decoder M=32 efc=400 ef=10,20,50,100,200,400,800\n";

/* ---- Settings ---------------------------------------------------------------------------------------------- */

typedef enum value_kind { WHOLE, REAL, WORD } value_kind;

/* Of what is not a build option of the library: its table has those. */
static const struct spec {
    const char *name;
    unsigned methods;
    value_kind kind;
    size_t offset;     /* uint32_t, double, or an enum as wide as the former */
    double low, high;  /* numbers */
    const char *words; /* "a|b": 0, 1 and so on, from `low` */
} specs[] = {
    {"target", TUNED, REAL, offsetof(bench_options, target), 0.5, 1, NULL},
    {"seconds", TUNED, REAL, offsetof(bench_options, seconds), 1, 1e6, NULL},
    {"batch", TUNED, WHOLE, offsetof(bench_options, tune_batch), 1, 65536, NULL},
    {"M", GRAPHS, WHOLE, offsetof(bench_options, links), 2, 256, NULL},
    {"efc", GRAPHS, WHOLE, offsetof(bench_options, ef_construction), 1, 100000, NULL},
    {"ef", GRAPHS, WHOLE, offsetof(bench_options, dial), 1, 1e6, NULL},
    {"lists", IVF, WHOLE, offsetof(bench_options, list_factor), 1, 1000, NULL},
    {"nprobe", IVF, WHOLE, offsetof(bench_options, dial), 1, 1e6, NULL},
    {"part", PQ, WHOLE, offsetof(bench_options, part), 1, 65536, NULL},
    {"metric", PQ | IVF, WORD, offsetof(bench_options, metric), 1, 0, "ip|l2"},
    {"rerank", PQ | SQ8, WHOLE, offsetof(bench_options, dial), 0, 1e6, NULL},
};
enum { N_SPECS = sizeof specs / sizeof *specs };

const bench_method *bench_method_find(const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < N_METHODS; i++)
        if (strlen(methods[i].name) == name_bytes && memcmp(methods[i].name, name, name_bytes) == 0) return &methods[i];
    return NULL;
}

const char *bench_method_names(void)
{
    return "full, torch-full, popular, slide, lss, evidence, tuned, pq, ivf, sq8, ip-nsw and graph-decoder";
}

static int find_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (int i = 0;; i++) {
        const size_t length = strcspn(words, "|");
        if (length == n && memcmp(words, word, n) == 0) return i;
        words += length;
        if (*words++ == '\0') return -1;
    }
}

static wo_status apply(const struct spec *spec, const char *text, bench_options *options, wo_error *err)
{
    void *target = (char *)options + spec->offset;
    if (spec->kind == WORD) {
        const int word = find_word(spec->words, text);
        if (word < 0) return cli_set_error(err, WO_ERR_FORMAT, "%s takes %s, not '%s'", spec->name, spec->words, text);
        *(uint32_t *)target = (uint32_t)(word + (int)spec->low);
        return WO_OK;
    }
    char *end;
    const double value = strtod(text, &end);
    const bool whole = spec->kind == REAL || value == (double)(uint64_t)value;
    if (end == text || *end || !(value >= spec->low && value <= spec->high) || !whole)
        return cli_set_error(err, WO_ERR_FORMAT, "%s takes a %snumber from %g to %g, not '%s'", spec->name,
                             spec->kind == REAL ? "" : "whole ", spec->low, spec->high, text);
    if (spec->kind == REAL)
        *(double *)target = value;
    else
        *(uint32_t *)target = (uint32_t)value;
    return WO_OK;
}

/* The build option of a method by its name, with `-` or `_`; of what is tuned the seed alone. NULL: it has none. */
static const char *find_option(const bench_method *method, const char *name)
{
    if (method->kind != BENCH_OURS && method->kind != BENCH_TUNED) return NULL;
    wo_option_info info = {.struct_size = sizeof info};
    for (size_t i = 0; wo_option_at(i, &info); i++) {
        const char *a = info.name, *b = name;
        for (; *a && (*a == *b || (*a == '_' && *b == '-')); a++) b++;
        if (*a || *b || strcmp(info.name, "method") == 0) continue;
        const bool has = method->kind == BENCH_OURS ? info.methods >> method->which & 1 : strcmp(name, "seed") == 0;
        return has ? info.name : NULL;
    }
    return NULL;
}

static wo_status set(bench_config *config, const char *name, const char *value, wo_error *err)
{
    const unsigned bit = 1u << (config->method - methods);
    const bool dial = bit == POPULAR && strcmp(name, "N") == 0; /* as reports call it */
    const char *option = dial ? "popular" : find_option(config->method, name);
    size_t i = 0;
    while (i < N_SPECS && (strcmp(specs[i].name, name) != 0 || !(specs[i].methods & bit))) i++;
    if (i == N_SPECS && !option)
        return cli_set_error(err, WO_ERR_FORMAT, "'%s' is no setting of %s", name, config->method->name);
    const char *known = dial ? "N" : option ? option : specs[i].name;
    if (config->n_settings == BENCH_MAX_SETTINGS || strlen(value) >= BENCH_VALUE_BYTES)
        return cli_set_error(err, WO_ERR_FORMAT, "too many settings, or a value too long: '%s=%s'", name, value);
    for (size_t s = 0; s < config->n_settings; s++)
        if (strcmp(config->settings[s].name, known) == 0)
            return cli_set_error(err, WO_ERR_FORMAT, "'%s' is given twice", name);
    config->settings[config->n_settings].name = known;
    strcpy(config->settings[config->n_settings++].value, value);
    return option ? wo_build_set(&config->options.build, option, value, err)
                  : apply(&specs[i], value, &config->options, err);
}

static void make_label(bench_config *config)
{
    size_t used = (size_t)snprintf(config->label, BENCH_LABEL_BYTES, "%s", config->method->name);
    for (size_t i = 0; i < config->n_settings && used < BENCH_LABEL_BYTES; i++) {
        const char *name = config->settings[i].name;
        const bool bare = strcmp(name, "loss") == 0;
        used += (size_t)snprintf(config->label + used, BENCH_LABEL_BYTES - used, " %s%s%s", bare ? "" : name,
                                 bare ? "" : "=", config->settings[i].value);
    }
}

/* ---- Sweeps ------------------------------------------------------------------------------------------------ */

static wo_status add(bench_configs *configs, bench_config *config, wo_error *err)
{
    make_label(config);
    for (size_t i = 0; i < configs->n; i++)
        if (strcmp(configs->list[i].label, config->label) == 0) return WO_OK;
    if (configs->n == configs->room) {
        const size_t room = configs->room ? 2 * configs->room : 64;
        bench_config *list = realloc(configs->list, room * sizeof *list);
        if (!list) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
        configs->list = list;
        configs->room = room;
    }
    configs->list[configs->n++] = *config;
    return WO_OK;
}

/* `text` is at the settings that are left. */
static wo_status expand(const char *text, const bench_config *so_far, bench_configs *configs, wo_error *err)
{
    text += strspn(text, " \t");
    bench_config config = *so_far;
    if (*text == '\0') return add(configs, &config, err);
    char word[256];
    const size_t length = strcspn(text, " \t");
    if (length >= sizeof word)
        return cli_set_error(err, WO_ERR_FORMAT, "a setting of %zu characters, expected fewer than 256", length);
    memcpy(word, text, length);
    word[length] = '\0';
    char *value = strchr(word, '=');
    if (!value || value == word)
        return cli_set_error(err, WO_ERR_FORMAT, "'%s' is no setting: expected name=value,value,...", word);
    *value++ = '\0';
    for (char *next = value; next;) {
        char *comma = strchr(next, ',');
        if (comma) *comma = '\0';
        config = *so_far;
        wo_status status = set(&config, word, next, err);
        if (!status) status = expand(text + length, &config, configs, err);
        if (status) return status;
        next = comma ? comma + 1 : NULL;
    }
    return WO_OK;
}

wo_status bench_sweep_expand(const char *text, bench_configs *configs, wo_error *err)
{
    text += strspn(text, " \t");
    const size_t length = strcspn(text, " \t");
    bench_config config = {.method = bench_method_find(text, length)};
    if (!config.method)
        return cli_set_error(err, WO_ERR_FORMAT, "'%.*s' is no method: there are %s", (int)(length < 40 ? length : 40),
                             text, bench_method_names());
    if (config.method->kind == BENCH_OURS)
        wo_build_defaults((wo_method)config.method->which, &config.options.build, sizeof config.options.build);
    if (config.method->kind == BENCH_TUNED) {
        wo_tune_options o;
        wo_tune_defaults(&o, sizeof o);
        config.options.target = o.target;
        config.options.seconds = o.max_time_s;
        config.options.tune_batch = o.batch;
        wo_build_defaults(WO_METHOD_EVIDENCE, &config.options.build, sizeof config.options.build);
    }
    return expand(text + length, &config, configs, err);
}

void bench_configs_free(bench_configs *configs)
{
    free(configs->list);
    *configs = (bench_configs){0};
}

bool bench_config_shares_build(const bench_config *a, const bench_config *b)
{
    bench_options x = a->options, y = b->options;
    if (a->method != b->method) return false;
    if (a->method->kind == BENCH_OURS && a->method->which == WO_METHOD_EVIDENCE) {
        x.build.probes = y.build.probes;
        return memcmp(&x.build, &y.build, sizeof x.build) == 0;
    }
    return a->method->kind == BENCH_PEER && x.links == y.links && x.ef_construction == y.ef_construction &&
           x.list_factor == y.list_factor && x.part == y.part && x.metric == y.metric;
}

/* ---- For results ------------------------------------------------------------------------------------------- */

static json_t *value_json(const char *value)
{
    char *end;
    const double number = strtod(value, &end);
    if (*end) return json_string(value);
    return strpbrk(value, ".e") ? json_real(number) : json_integer((json_int_t)number);
}

json_t *bench_config_options_json(const bench_config *config)
{
    json_t *json = json_object();
    for (size_t i = 0; i < config->n_settings; i++)
        json_object_set_new(json, config->settings[i].name, value_json(config->settings[i].value));
    return json;
}

json_t *bench_config_dial_json(const bench_config *config)
{
    for (size_t i = 0; config->method->dial && i < config->n_settings; i++)
        if (strcmp(config->settings[i].name, config->method->dial) == 0)
            return json_pack("{s:s, s:o}", "name", config->method->dial, "value",
                             value_json(config->settings[i].value));
    return json_null();
}
