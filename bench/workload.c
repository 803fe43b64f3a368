/* Reading workload files, finding or making their data, and taking the queries that are judged. */
#include "workload.h"

#include "../cli/cli.h"
#include "net/net.h"
#include "store/log.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder of this file, from the Makefile: workloads lie beside it. */
#ifndef BENCH_DIR
#define BENCH_DIR "bench"
#endif

enum { PATH_BYTES = 4096 };

static bool exists(const char *path)
{
    return access(path, R_OK) == 0;
}

static wo_status no_memory(wo_error *err)
{
    return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
}

/* ---- The text file ----------------------------------------------------------------------------------------- */

/* "1000000 64 500000" */
static bool parse_sizes(const char *text, bench_workload *w)
{
    int used = 0;
    return sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %n", &w->m, &w->d, &w->n, &used) == 3 && !text[used] &&
           !strchr(text, '-') && w->m >= 2 && w->m <= INT32_MAX && w->d >= 2 && w->d <= 65536 && w->n >= 10 &&
           w->n <= INT32_MAX;
}

static bool parse_count(const char *text, uint64_t *count)
{
    char *end;
    errno = 0;
    *count = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && !errno && *count;
}

/* One line, without its end; `number` for messages. */
static wo_status take_line(bench_workload *w, char *line, int number, wo_error *err)
{
    char *end = line + strlen(line);
    while (end > line && isspace((unsigned char)end[-1])) *--end = '\0';
    line += strspn(line, " \t");
    if (*line == '#' || *line == '\0') return WO_OK;
    char *value = strchr(line, '=');
    if (!value)
        return cli_set_error(err, WO_ERR_FORMAT, "line %d: expected 'key = value', found '%.60s'", number, line);
    char *key_end = value;
    while (key_end > line && isspace((unsigned char)key_end[-1])) key_end--;
    *key_end = '\0';
    value += 1 + strspn(value + 1, " \t");
    const struct {
        const char *key;
        char **to;
    } texts[] = {{"title", &w->title},
                 {"cache", &w->cache},
                 {"layer", &w->layer},
                 {"train", &w->train},
                 {"valid", &w->valid},
                 {"test", &w->test},
                 {"weight-name", &w->weight_name},
                 {"bias-name", &w->bias_name}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(line, texts[i].key) != 0) continue;
        if (*texts[i].to) return cli_set_error(err, WO_ERR_FORMAT, "line %d: '%s' is given twice", number, line);
        if (!*value) return cli_set_error(err, WO_ERR_FORMAT, "line %d: '%s' has no value", number, line);
        return (*texts[i].to = strdup(value)) ? WO_OK : no_memory(err);
    }
    const bool full_only = strcmp(line, "sweep-full") == 0;
    if (full_only || strcmp(line, "sweep") == 0) {
        bench_configs tried = {0};
        wo_error why;
        wo_status status = bench_sweep_expand(value, &tried, &why);
        bench_configs_free(&tried);
        if (status) return cli_set_error(err, status, "line %d: %s", number, why.text);
        if (w->n_sweeps == BENCH_MAX_SWEEPS)
            return cli_set_error(err, WO_ERR_FORMAT, "line %d: more than %d sweeps", number, BENCH_MAX_SWEEPS);
        w->full_only[w->n_sweeps] = full_only;
        return (w->sweeps[w->n_sweeps++] = strdup(value)) ? WO_OK : no_memory(err);
    }
    const struct {
        const char *key;
        uint64_t *to;
    } counts[] = {{"queries", &w->queries[0]},
                  {"queries-full", &w->queries[1]},
                  {"train-queries", &w->train_queries[0]},
                  {"train-queries-full", &w->train_queries[1]}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(line, counts[i].key) == 0)
            return parse_count(value, counts[i].to)
                       ? WO_OK
                       : cli_set_error(err, WO_ERR_FORMAT,
                                       "line %d: '%s' takes a whole number of 1 or more, not '%.60s'", number, line,
                                       value);
    if (strcmp(line, "synthetic") == 0)
        return parse_sizes(value, w) ? WO_OK
                                     : cli_set_error(err, WO_ERR_FORMAT,
                                                     "line %d: 'synthetic' takes classes, dimensions and training "
                                                     "queries, as '100000 64 200000', not '%.60s'",
                                                     number, value);
    if (strcmp(line, "exponent") == 0) {
        char *after;
        w->exponent = strtod(value, &after);
        return after != value && !*after && w->exponent >= 0 && w->exponent <= 4
                   ? WO_OK
                   : cli_set_error(err, WO_ERR_FORMAT, "line %d: 'exponent' takes a number from 0 to 4, not '%.60s'",
                                   number, value);
    }
    return cli_set_error(err, WO_ERR_FORMAT, "line %d: '%.60s' is no key of a workload", number, line);
}

/* NAME of "folder/NAME.workload". */
static char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path), *dot = name ? strstr(name, ".workload") : NULL;
    if (dot) *dot = '\0';
    return name;
}

wo_status bench_workload_read(const char *name, bench_workload *workload, wo_error *err)
{
    char path[PATH_BYTES];
    const size_t length = strlen(name);
    const bool is_path = strchr(name, '/') || (length > 9 && strcmp(name + length - 9, ".workload") == 0);
    snprintf(path, sizeof path, is_path ? "%s%s%s" : "%s/workloads/%s.workload", is_path ? "" : BENCH_DIR, name, "");
    *workload = (bench_workload){0};
    FILE *file = fopen(path, "r");
    if (!file) {
        if (is_path || errno != ENOENT) return cli_set_error(err, WO_ERR_IO, "cannot open: %s", strerror(errno));
        return cli_set_error(err, WO_ERR_ARGUMENT, "is no workload: there is no %s", path);
    }
    bench_workload w = {.exponent = 1};
    char *line = NULL;
    size_t room = 0;
    wo_status status = (w.name = name_of(path)) ? WO_OK : no_memory(err);
    for (int number = 1; !status; number++) {
        ssize_t got = getline(&line, &room, file);
        if (got < 0) break;
        if (strlen(line) != (size_t)got)
            status = cli_set_error(err, WO_ERR_FORMAT, "line %d: has a zero byte: not a text file", number);
        else
            status = take_line(&w, line, number, err);
    }
    if (!status && ferror(file)) status = cli_set_error(err, WO_ERR_IO, "cannot read: %s", strerror(errno));
    if (!status && !w.m && !w.cache && (!w.layer || !w.test))
        status = cli_set_error(err, WO_ERR_FORMAT, "names no data: expected cache, synthetic, or layer and test");
    if (!status && w.m && (w.cache || w.layer || w.train || w.valid || w.test))
        status = cli_set_error(err, WO_ERR_FORMAT, "synthetic data come without cache, layer, train, valid and test");
    if (!status && !w.title && !(w.title = strdup(w.name))) status = no_memory(err);
    free(line);
    fclose(file);
    if (status)
        bench_workload_free(&w);
    else
        *workload = w;
    return status;
}

void bench_workload_free(bench_workload *w)
{
    char *const texts[] = {w->name,  w->title, w->cache,       w->layer,    w->train,
                           w->valid, w->test,  w->weight_name, w->bias_name};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
    for (size_t i = 0; i < w->n_sweeps; i++) free(w->sweeps[i]);
    *w = (bench_workload){0};
}

/* ---- What is swept ----------------------------------------------------------------------------------------- */

/* Whether `word` is among those of a list with commas. */
static bool listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (; list; list = (list = strchr(list, ',')) ? list + 1 : NULL)
        if (strncmp(list, word, n) == 0 && (list[n] == ',' || list[n] == '\0')) return true;
    return false;
}

static bool names_method(const bench_workload *w, const bench_method *method)
{
    for (size_t i = 0; i < w->n_sweeps; i++)
        if (bench_method_find(w->sweeps[i], strcspn(w->sweeps[i], " \t")) == method) return true;
    return false;
}

static wo_status add_defaults(const bench_workload *w, bool full, bench_configs *configs, wo_error *err)
{
    wo_status status = WO_OK;
    char line[512];
    for (const char *at = bench_default_sweeps; !status && *at;) {
        const size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + 1;
        if (strcmp(line, "full:") == 0) {
            if (!full) break;
            continue;
        }
        if (!names_method(w, bench_method_find(line, strcspn(line, " "))))
            status = bench_sweep_expand(line, configs, err);
    }
    return status;
}

/* A method's configurations together, those that share what is built side by side. */
static int in_order(const void *a, const void *b)
{
    const bench_config *x = a, *y = b;
    if (x->method != y->method) return x->method < y->method ? -1 : 1;
    if (x->method->kind != BENCH_PEER) return 0;
    const uint32_t left[] = {x->options.links, x->options.ef_construction, x->options.list_factor,
                             x->options.part,  x->options.metric,          x->options.dial};
    const uint32_t right[] = {y->options.links, y->options.ef_construction, y->options.list_factor,
                              y->options.part,  y->options.metric,          y->options.dial};
    for (int i = 0; i < 6; i++)
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* Stable, and few: by insertion. */
static void sort(bench_configs *configs)
{
    for (size_t i = 1; i < configs->n; i++) {
        const bench_config config = configs->list[i];
        size_t to = i;
        for (; to && in_order(&config, &configs->list[to - 1]) < 0; to--) configs->list[to] = configs->list[to - 1];
        configs->list[to] = config;
    }
}

wo_status bench_workload_configs(const bench_workload *w, size_t m, bool full, const char *only, bench_configs *configs,
                                 wo_error *err)
{
    wo_status status = add_defaults(w, full, configs, err);
    for (size_t i = 0; !status && i < w->n_sweeps; i++)
        if (full || !w->full_only[i]) status = bench_sweep_expand(w->sweeps[i], configs, err);
    size_t kept = 0;
    for (size_t i = 0; i < configs->n; i++) {
        const bench_config *c = &configs->list[i];
        const bool all =
            c->method->kind == BENCH_OURS && c->method->which == WO_METHOD_POPULAR && c->options.build.n_popular >= m;
        if (!all && (!only || listed(only, c->method->name))) configs->list[kept++] = *c;
    }
    configs->n = kept;
    sort(configs);
    return status;
}

/* ---- Finding and making data ------------------------------------------------------------------------------- */

static void cache_folder(char *path)
{
    const char *cache = getenv("WIDEOUT_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, PATH_BYTES, "%s", cache);
    else if (xdg && *xdg)
        snprintf(path, PATH_BYTES, "%s/wideout", xdg);
    else
        snprintf(path, PATH_BYTES, "%s/.cache/wideout", home ? home : "");
}

/* A path that was too long is not there. */
__attribute__((format(printf, 2, 3))) static void set_path(char *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (vsnprintf(path, PATH_BYTES, format, args) >= PATH_BYTES) *path = '\0';
    va_end(args);
}

/* The path of a file that a workload names: "data:x" is below $WIDEOUT_DATA or ../shared/data, other names below its
 * folder of the cache, where it has one. */
static void resolve(const bench_workload *w, const char *name, char *path)
{
    char cache[PATH_BYTES];
    if (strncmp(name, "data:", 5) == 0) {
        const char *data = getenv("WIDEOUT_DATA");
        set_path(path, "%s/%s", data ? data : "", name + 5);
        if (!data || !exists(path)) set_path(path, "%s/../../shared/data/%s", BENCH_DIR, name + 5);
        return;
    }
    cache_folder(cache);
    if (w->cache && *name != '/')
        set_path(path, "%s/%s/%s", cache, w->cache, name);
    else
        set_path(path, "%s", name);
}

static wo_status make_synthetic(const bench_workload *w, const char *folder, const wo_progress *progress, wo_error *err)
{
    static const char *const names[] = {"net.safetensors", "train.log", "valid.log", "test.log"};
    char path[PATH_BYTES];
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) { /* the cache itself, too */
        set_path(path, "%.*s", (int)(slash - folder), folder);
        mkdir(path, 0777);
    }
    if (mkdir(folder, 0777) && errno != EEXIST)
        return cli_set_error(err, WO_ERR_IO, "cannot make the folder %s: %s", folder, strerror(errno));
    woi_synthetic s = {.m = w->m, .d = w->d, .n = {w->n, w->n / 10, w->n / 10}, .exponent = w->exponent, .seed = 1};
    wo_status status = woi_synthetic_init(&s, true, err);
    for (int part = WOI_SYNTHETIC_PARTS; !status && part >= 0; part--) { /* the layer last: it stands for all */
        woi_st_writer *writer = NULL;
        set_path(path, "%s/%s", folder, names[part]);
        status = part ? woi_synthetic_log(&s, part - 1, path, progress, &writer, err)
                      : woi_synthetic_layer(&s, path, progress, &writer, err);
        if (!status) status = woi_st_finish(writer, err);
        woi_st_writer_free(writer);
    }
    woi_synthetic_free(&s);
    return status;
}

/* ---- Opening ----------------------------------------------------------------------------------------------- */

static wo_status explain(const char *path, wo_error *err)
{
    const wo_error why = *err;
    return cli_set_error(err, why.status, "%.100s: %s", path, why.text);
}

static wo_status find(const bench_workload *w, const char *what, const char *name, char *path, wo_error *err)
{
    resolve(w, name, path);
    if (exists(path)) return WO_OK;
    if (w->cache) return cli_set_error(err, WO_ERR_IO, "%s %s is not here: see 'make nets'", what, path);
    return cli_set_error(err, WO_ERR_IO, "%s %s is not here", what, path);
}

/* Queries that are not finite are left out. There is room behind the sample for `room` queries in all. */
static wo_status take_sample(const woi_log *log, uint64_t most, size_t room, bench_sample *sample, wo_error *err)
{
    const size_t d = log->d, wanted = most && most < log->n ? most : log->n;
    const size_t n_labels = log->indptr ? (size_t)log->indptr[log->n] : 0;
    const size_t row_bytes = d * woi_dtype_bytes(log->queries->dtype);
    sample->queries = calloc((wanted > room ? wanted : room) + 1, d * sizeof(float));
    if (log->indptr) {
        sample->indptr = calloc(wanted + 1, sizeof *sample->indptr);
        sample->labels = calloc(n_labels + 1, sizeof *sample->labels);
    }
    if (!sample->queries || (log->indptr && (!sample->indptr || !sample->labels))) return no_memory(err);
    for (size_t i = 0; i < wanted; i++) {
        const size_t row = (size_t)((__extension__(unsigned __int128) i * log->n) / wanted);
        float *to = sample->queries + sample->n * d;
        wo_status status =
            woi_convert_f32(log->queries->dtype, (const char *)log->queries->data + row * row_bytes, d, to, err);
        if (status) return status;
        if (!woi_all_finite(to, d)) continue;
        sample->n++;
        if (!log->indptr) continue;
        const int64_t first = log->indptr[row], count = log->indptr[row + 1] - first,
                      at = sample->indptr[sample->n - 1];
        memcpy(sample->labels + at, log->labels + first, (size_t)count * sizeof *sample->labels);
        sample->indptr[sample->n] = at + count;
    }
    if (sample->n == 0) return cli_set_error(err, WO_ERR_FORMAT, "the log has no query with finite numbers");
    return WO_OK;
}

/* How many queries of a log, and room for how many. */
typedef struct sample_size {
    uint64_t most;
    size_t room;
} sample_size;

static wo_status open_sample(const char *path, sample_size size, const woi_dense *rows, bench_sample *sample,
                             wo_log **wrapped, wo_error *err)
{
    woi_log log = {0};
    wo_status status = woi_log_open(path, &log, err);
    if (!status && (log.d != rows->d || log.max_label >= (int64_t)rows->m))
        status = cli_set_error(err, WO_ERR_ARGUMENT,
                               "queries of %" PRIu64 " numbers and labels up to %" PRId64
                               " do not fit a layer of %zu classes and %zu dimensions",
                               log.d, log.max_label, rows->m, rows->d);
    if (!status) status = take_sample(&log, size.most, size.room, sample, err);
    if (!status)
        status = wo_log_wrap(sample->queries, sample->n, rows->d, sample->indptr, sample->labels, wrapped, err);
    woi_log_close(&log);
    return status;
}

/* The log that is tuned on; a folder of the cache need not have one. */
static wo_status open_valid(const bench_workload *w, const bench_workload *from, bench_data *data, char *path,
                            wo_error *err)
{
    if (!w->valid && !from->cache) return WO_OK;
    wo_status status = find(from, "the validation log", w->valid ? w->valid : "valid.log", path, err);
    if (status) return w->valid ? status : WO_OK;
    if ((status = wo_log_open(path, &data->valid, err))) return explain(path, err);
    if (wo_log_d(data->valid) == data->rows->d) return WO_OK;
    return cli_set_error(err, WO_ERR_ARGUMENT, "%.100s: queries of %zu numbers do not fit a layer of %zu dimensions",
                         path, wo_log_d(data->valid), data->rows->d);
}

static wo_status open_test(const char *path, uint64_t most, bench_data *data, wo_error *err)
{
    const size_t d = data->rows->d, least = 2 * BENCH_MAX_BATCH;
    bench_sample *s = &data->judged;
    wo_status status = open_sample(path, (sample_size){most, least}, data->rows, s, &data->test, err);
    if (status) return status;
    for (data->n_pool = s->n; data->n_pool < least; data->n_pool++)
        memcpy(s->queries + data->n_pool * d, s->queries + (data->n_pool - s->n) * d, d * sizeof *s->queries);
    return WO_OK;
}

wo_status bench_data_open(const bench_workload *w, bool full, const wo_progress *progress, bench_data *data,
                          wo_error *err)
{
    char path[PATH_BYTES], cache[PATH_BYTES];
    bench_workload from = *w; /* made data are found like others */
    char made[96];
    wo_status status = WO_OK;
    bench_data opened = {0};
    if (w->m) {
        snprintf(made, sizeof made, "synthetic-%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%g", w->m, w->d, w->n, w->exponent);
        cache_folder(cache);
        from.cache = made;
        resolve(&from, "net.safetensors", path);
        if (!exists(path)) {
            set_path(path, "%s/%s", cache, made);
            if ((status = make_synthetic(w, path, progress, err))) return status;
        }
    }
    const wo_layer_options lo = {.struct_size = sizeof lo, .weight_name = w->weight_name, .bias_name = w->bias_name};
    if ((status = find(&from, "the layer", w->layer ? w->layer : "net.safetensors", path, err))) goto done;
    if ((status = wo_layer_open(path, &lo, &opened.layer, err))) {
        explain(path, err);
        goto done;
    }
    opened.rows = &opened.layer->dense;
    if (w->train || from.cache) {
        if ((status = find(&from, "the training log", w->train ? w->train : "train.log", path, err))) goto done;
        const uint64_t most = w->train_queries[full];
        status = most ? open_sample(path, (sample_size){most, 0}, opened.rows, &opened.trained_on, &opened.train, err)
                      : wo_log_open(path, &opened.train, err); /* mapped, not copied */
        if (status) {
            explain(path, err);
            goto done;
        }
    }
    if ((status = open_valid(w, &from, &opened, path, err))) goto done;
    if ((status = find(&from, "the test log", w->test ? w->test : "test.log", path, err))) goto done;
    if ((status = open_test(path, w->queries[full], &opened, err))) explain(path, err);
done:
    if (status)
        bench_data_close(&opened);
    else
        *data = opened;
    return status;
}

void bench_data_close(bench_data *data)
{
    wo_log_free(data->train);
    wo_log_free(data->valid);
    wo_log_free(data->test);
    wo_layer_free(data->layer);
    bench_sample *const samples[] = {&data->trained_on, &data->judged};
    for (int i = 0; i < 2; i++) {
        free(samples[i]->queries);
        free(samples[i]->indptr);
        free(samples[i]->labels);
    }
    *data = (bench_data){0};
}
