/* The loop over configurations: what is finished is kept, what fails is left out, what is left is said. */
#include "run.h"

#include "base/team.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef BENCH_DIR
#define BENCH_DIR "bench"
#endif

const char bench_results_folder[] = BENCH_DIR "/results";

static const uint32_t batches[] = {1, 32, BENCH_MAX_BATCH};
enum { N_BATCHES = sizeof batches / sizeof *batches };

/* The state of a run. */
typedef struct state {
    const bench_run *run;
    const bench_workload *workload;
    const bench_data *data;
    int threads;
    wo_progress progress; /* draws nothing; says when to stop */
    bench_contender full, built;
    bench_quality full_quality;
    bench_partial partial;
    json_t *left_out;
    double start;
    size_t ran;
} state;

static wo_status make_folder(const char *folder, wo_error *err)
{
    char path[4096];
    for (size_t i = 1; i <= strlen(folder) && i < sizeof path; i++) {
        if (folder[i] != '/' && folder[i] != '\0') continue;
        snprintf(path, i + 1, "%s", folder);
        if (mkdir(path, 0777) && errno != EEXIST)
            return cli_set_error(err, WO_ERR_IO, "cannot make the folder: %s", strerror(errno));
    }
    return WO_OK;
}

int bench_try_output(const char *folder, const char *path)
{
    wo_error err;
    woi_outfile *out = NULL;
    if (make_folder(folder, &err)) return cli_fail(folder, &err);
    const wo_status status = woi_outfile_create(path, &out, &err);
    woi_outfile_free(out);
    return status ? cli_fail(path, &err) : CLI_OK;
}

static bool stopped(const state *s)
{
    return s->progress.fn(s->progress.ctx, "", 0, 0) != 0;
}

/* ---- One configuration ------------------------------------------------------------------------------------- */

/* What is built already, where the dial alone differs. */
static wo_status obtain(state *s, const bench_config *config, bench_contender **contender, wo_error *err)
{
    *contender = &s->built;
    if (config->method->kind == BENCH_OURS && config->method->which == WO_METHOD_FULL) {
        *contender = &s->full;
        bench_contender_turn(&s->full, config);
        return WO_OK;
    }
    if (s->built.config && bench_config_shares_build(s->built.config, config)) {
        bench_contender_turn(&s->built, config);
        return WO_OK;
    }
    bench_contender_free(&s->built);
    return bench_contender_build(config, s->data, s->threads, &s->progress, &s->built, err);
}

static wo_status time_all(state *s, bench_contender *contender, bench_timing *timings, size_t *n, wo_error *err)
{
    wo_status status = WO_OK;
    for (int all = 0; all <= (s->threads > 1); all++)
        for (int i = 0; !status && i < N_BATCHES; i++) {
            if (stopped(s)) return cli_set_error(err, WO_ERR_CANCELLED, "stopped");
            bench_timing *timing = &timings[(*n)++];
            *timing = (bench_timing){.batch = batches[i], .threads = all ? s->threads : 1};
            status = bench_time(contender, &s->full, s->run->budget_s, timing, err);
        }
    return status;
}

static wo_status run_config(state *s, const bench_config *config, wo_error *err)
{
    bench_contender *contender;
    bench_quality quality;
    bench_timing timings[2 * N_BATCHES];
    size_t n_timings = 0;
    double joules = NAN;
    wo_status status = obtain(s, config, &contender, err);
    if (contender == &s->full)
        quality = s->full_quality;
    else if (!status)
        status = bench_judge(contender, &(bench_judged_full){&s->full, &s->full_quality}, s->threads, &s->progress,
                             &quality, err);
    if (!status && s->run->timed) {
        status = time_all(s, contender, timings, &n_timings, err);
        if (!status) status = bench_energy(contender, BENCH_MAX_BATCH, s->threads, &joules, err);
    }
    if (status) return status;
    const bool traced = config->method->kind == BENCH_OURS && config->method->which == WO_METHOD_LSS;
    return bench_partial_add(&s->partial, bench_row_json(contender, &quality, timings, n_timings, joules),
                             traced ? bench_trace_json(contender) : NULL, err);
}

/* ---- What is said meanwhile -------------------------------------------------------------------------------- */

static void say_begin(const state *s, const bench_config *config, size_t i, size_t n)
{
    if (s->run->common->quiet || !isatty(STDERR_FILENO)) return;
    char line[256], left[40] = "";
    if (s->ran)
        snprintf(left, sizeof left, ", %.0f s left", (woi_now_s() - s->start) / (double)s->ran * (double)(n - i));
    snprintf(line, sizeof line, "%s %zu of %zu%s: %s", s->workload->name, i + 1, n, left, config->label);
    cli_progress_line(line);
}

static void say_row(const state *s, const bench_config *config, size_t i, size_t n)
{
    if (s->run->common->quiet) return;
    const json_t *row = bench_row_find(s->partial.rows, config->label);
    const json_t *timings = json_object_get(row, "timings");
    const json_t *last = json_array_get(timings, json_array_size(timings) - 1);
    cli_progress_end();
    fprintf(stderr, "%s %zu of %zu: %-40s P@1 %.4f, %8.1f classes", s->workload->name, i + 1, n, config->label,
            bench_number(row, "p_at_1"), bench_number(row, "sample_size"));
    if (last) fprintf(stderr, ", %8.2f us, %6.1fx", bench_number(last, "us"), bench_number(last, "speedup"));
    if (i + 1 < n) fprintf(stderr, "; %.0f s left", (woi_now_s() - s->start) / (double)s->ran * (double)(n - i - 1));
    fputc('\n', stderr);
}

static void say_left_out(state *s, const bench_config *config, const char *reason)
{
    cli_progress_end();
    fprintf(stderr, "wideout-bench: %s: %s is left out: %s\n", s->workload->name, config->label, reason);
    json_array_append_new(s->left_out, json_pack("{s:s, s:s}", "label", config->label, "reason", reason));
}

/* ---- All of them ------------------------------------------------------------------------------------------- */

static wo_status run_all(state *s, const bench_configs *configs, wo_error *err)
{
    const bench_method *absent = NULL;
    for (size_t i = 0; i < configs->n; i++) {
        const bench_config *config = &configs->list[i];
        if (config->method == absent || bench_row_find(s->partial.rows, config->label)) continue;
        if (stopped(s)) return cli_set_error(err, WO_ERR_CANCELLED, "stopped");
        say_begin(s, config, i, configs->n);
        wo_status status = run_config(s, config, err);
        if (status == WO_ERR_CANCELLED || status == WO_ERR_IO) return status;
        s->ran++;
        if (!status) {
            say_row(s, config, i, configs->n);
            continue;
        }
        say_left_out(s, config, err->text);
        if (status == WO_ERR_UNSUPPORTED && config->method->kind != BENCH_OURS) absent = config->method;
    }
    return WO_OK;
}

/* The rows in the order of the configurations, the traces in that of the rows. */
static wo_status write_result(state *s, const bench_configs *configs, const char *path, wo_error *err)
{
    json_t *result = bench_result_head(s->workload, s->data, &s->full_quality, s->threads, s->run->command);
    json_t *rows = json_array(), *traces = json_array();
    for (size_t i = 0; i < configs->n; i++) {
        json_t *row = bench_row_find(s->partial.rows, configs->list[i].label);
        json_t *trace = bench_row_find(s->partial.traces, configs->list[i].label);
        if (row) json_array_append(rows, row);
        if (trace) json_array_append(traces, trace);
    }
    json_object_set_new(result, "rows", rows);
    json_object_set_new(result, "traces", traces);
    json_object_set(result, "left_out", s->left_out);
    wo_status status =
        result ? bench_result_write(path, result, err) : cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    json_decref(result);
    return status;
}

/* Rows are good for the same data, threads and sort of run. */
static void make_key(const state *s, char *key, size_t key_bytes)
{
    snprintf(key, key_bytes,
             "{\"partial\":\"%s\",\"layer\":\"%016" PRIx64 "\",\"n\":%zu,\"train_n\":%zu,\"threads\":%d,\"timed\":%d,"
             "\"seed\":%" PRIu64 "}",
             s->workload->name, s->data->layer->checksum, s->data->judged.n,
             s->data->train ? wo_log_n(s->data->train) : 0, s->threads, s->run->timed, s->run->common->seed);
}

int bench_run_configs(const bench_run *run, const bench_workload *workload, const bench_data *data,
                      bench_configs *configs, const char *path)
{
    cli_common silent = *run->common;
    silent.quiet = true;
    state s = {
        .run = run,
        .workload = workload,
        .data = data,
        .threads = woi_team_threads((int)run->common->threads),
        .progress = cli_progress(&silent),
        .left_out = json_array(),
        .start = woi_now_s(),
    };
    char key[512], partial_path[4096];
    bench_configs exact = {0};
    wo_error err;
    int code = CLI_OK;
    for (size_t i = 0; i < configs->n; i++) { /* a seed in the sweep goes before that of the command */
        bool given = false;
        for (size_t j = 0; j < configs->list[i].n_settings; j++)
            given |= strcmp(configs->list[i].settings[j].name, "seed") == 0;
        if (!given) configs->list[i].options.build.seed = run->common->seed;
    }
    snprintf(partial_path, sizeof partial_path, "%s.partial", path);
    make_key(&s, key, sizeof key);
    if (bench_partial_open(partial_path, key, &s.partial, &err) || bench_sweep_expand("full", &exact, &err) ||
        bench_contender_build(&exact.list[0], data, s.threads, &s.progress, &s.full, &err) ||
        bench_judge(&s.full, NULL, s.threads, &s.progress, &s.full_quality, &err) || run_all(&s, configs, &err)) {
        if (err.status == WO_ERR_CANCELLED)
            cli_set_error(&err, WO_ERR_CANCELLED, "stopped; the same command goes on with what is left");
        code = cli_fail(workload->name, &err);
    } else if (write_result(&s, configs, path, &err)) {
        code = cli_fail(path, &err);
    } else {
        unlink(partial_path);
    }
    bench_contender_free(&s.built);
    bench_contender_free(&s.full);
    bench_partial_close(&s.partial);
    bench_configs_free(&exact);
    json_decref(s.left_out);
    return code;
}
