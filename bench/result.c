/* Rows, machines and files as JSON. */
#include "median.h"
#include "result.h"

#include "../cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef BENCH_DIR
#define BENCH_DIR "bench"
#endif

enum { DIGITS = 7 };

json_t *bench_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- The head ---------------------------------------------------------------------------------------------- */

/* The commit of the tree that the program was compiled in, with "+" where files differ from it. */
static json_t *commit(void)
{
    char text[64] = "";
    FILE *git = popen("git -C '" BENCH_DIR "' describe --always --abbrev=10 --dirty=+ 2>/dev/null", "r");
    if (git) {
        if (!fgets(text, sizeof text, git)) text[0] = '\0';
        pclose(git);
    }
    text[strcspn(text, "\n")] = '\0';
    return json_string(*text ? text : "unknown");
}

/* Now, in UTC: "2026-11-16T17:00:00Z". */
static json_t *date(void)
{
    const time_t now = time(NULL);
    struct tm utc;
    char text[32];
    if (!gmtime_r(&now, &utc) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)) return json_null();
    return json_string(text);
}

static json_t *machine(void)
{
    wo_cpu_info cpu = {.struct_size = sizeof cpu};
    struct utsname system;
    const bool known = uname(&system) == 0;
    const double gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    return json_pack("{s:s, s:s, s:i, s:f, s:s}", "cpu", wo_cpu_query(&cpu, NULL) ? "unknown" : cpu.model,
                     "instructions", wo_cpu_query(&cpu, NULL) ? "unknown" : cpu.level, "cores",
                     (int)sysconf(_SC_NPROCESSORS_ONLN), "memory_gib", round(10 * gib) / 10, "kernel",
                     known ? system.release : "unknown");
}

static json_t *packages(void)
{
    const char *faiss = peer_version(PEER_PQ);
    const bool generic = strstr(faiss, "GENERIC") || strstr(faiss, "generic");
    return json_pack("{s:s, s:s, s:s?}", "hnswlib", peer_version(PEER_IP_NSW), "faiss", faiss, "faiss_note",
                     generic ? "generic build" : NULL);
}

json_t *bench_result_head(const bench_workload *w, const bench_data *data, const bench_quality *full, int threads,
                          const char *command)
{
    return json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:o, s:s, s:o, s:o, s:s, s:o, s:s, s:i, "
                     "s:{s:o, s:o, s:o, s:o}}",
                     "wideout_bench", 1, "workload", w->name, "title", w->title, "m", (json_int_t)data->rows->m, "d",
                     (json_int_t)data->rows->d, "n", (json_int_t)data->judged.n, "train_n",
                     (json_int_t)(data->train ? wo_log_n(data->train) : 0), "k", BENCH_K, "commit", commit(), "version",
                     wo_version(), "date", date(), "machine", machine(), "compiler", COMPILER, "packages", packages(),
                     "command", command, "threads", threads, "full", "p_at_1", bench_real(full->p_at_1), "p_at_3",
                     bench_real(full->p_at_3), "p_at_5", bench_real(full->p_at_5), "label_rank",
                     bench_real(full->label_rank));
}

/* ---- Rows -------------------------------------------------------------------------------------------------- */

static json_t *timing_json(const bench_timing *t)
{
    json_t *json =
        json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "batch", (int)t->batch, "threads", t->threads, "us",
                  bench_real(t->us), "us_q1", bench_real(t->us_q1), "us_q3", bench_real(t->us_q3), "us_p99",
                  bench_real(t->us_p99), "full_us", bench_real(t->full_us), "speedup", bench_real(t->full_us / t->us));
    if (t->asked < t->batch) json_object_set_new(json, "asked", json_integer((json_int_t)t->asked));
    return json;
}

json_t *bench_row_json(const bench_contender *c, const bench_quality *q, const bench_timing *timings, size_t n_timings,
                       double energy_j_per_1000)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n_timings; i++) json_array_append_new(list, timing_json(&timings[i]));
    const double cpu = n_timings ? timings[n_timings - 1].cpu_s_per_1000 : NAN;
    return json_pack("{s:s, s:s, s:s, s:s*, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:f, s:I, s:o, s:o, s:o}",
                     "method", c->config->method->name, "family", c->config->method->family, "label", c->config->label,
                     "chosen", c->chosen[0] ? c->chosen : NULL, "options", bench_config_options_json(c->config), "dial",
                     bench_config_dial_json(c->config), "p_at_1", bench_real(q->p_at_1), "p_at_3",
                     bench_real(q->p_at_3), "p_at_5", bench_real(q->p_at_5), "label_recall",
                     bench_real(q->label_recall), "sample_size", bench_real(q->sample_size), "empty_share",
                     bench_real(q->empty_share), "label_rank_retrieved", bench_real(q->label_rank_retrieved), "judged",
                     (json_int_t)q->n, "build_s", c->build_s, "index_bytes", (json_int_t)c->index_bytes, "timings",
                     list, "cpu_s_per_1000", bench_real(cpu), "energy_j_per_1000", bench_real(energy_j_per_1000));
}

json_t *bench_trace_json(const bench_contender *c)
{
    wo_trace trace = {.struct_size = sizeof trace};
    if (!c->index || !wo_index_trace(c->index, &trace)) return NULL;
    json_t *columns = json_array(), *values = json_array();
    for (size_t i = 0; i < trace.columns; i++) json_array_append_new(columns, json_string(trace.names[i]));
    for (size_t r = 0; r < trace.rows; r++) {
        json_t *row = json_array();
        for (size_t i = 0; i < trace.columns; i++)
            json_array_append_new(row, bench_real(trace.values[r * trace.columns + i]));
        json_array_append_new(values, row);
    }
    return json_pack("{s:s, s:o, s:o}", "label", c->config->label, "columns", columns, "values", values);
}

json_t *bench_row_find(json_t *rows, const char *label)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) if (strcmp(bench_text(row, "label"), label) == 0) return row;
    return NULL;
}

double bench_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *bench_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

wo_status bench_result_read(const char *path, json_t **result, wo_error *err)
{
    json_error_t why;
    FILE *file = fopen(path, "r");
    if (!file) return cli_set_error(err, WO_ERR_IO, "cannot open: %s", strerror(errno));
    json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
    fclose(file);
    if (!json) return cli_set_error(err, WO_ERR_FORMAT, "line %d: %.120s", why.line, why.text);
    if (!json_is_object(json) || json_integer_value(json_object_get(json, "wideout_bench")) != 1 ||
        !json_is_array(json_object_get(json, "rows"))) {
        json_decref(json);
        return cli_set_error(err, WO_ERR_FORMAT,
                             "is no result of wideout-bench: expected \"wideout_bench\": 1 and rows");
    }
    *result = json;
    return WO_OK;
}

wo_status bench_result_write(const char *path, json_t *result, wo_error *err)
{
    char *text = json_dumps(result, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));
    woi_outfile *out = NULL;
    wo_status status = text ? woi_outfile_create(path, &out, err) : cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    if (!status) status = woi_outfile_write(out, text, strlen(text), err);
    if (!status) status = woi_outfile_write(out, "\n", 1, err);
    if (!status) status = woi_outfile_commit(out, err);
    woi_outfile_free(out);
    free(text);
    return status;
}

/* Takes over the rows of an earlier run; a last line that was cut off is left out. Returns the bytes that are good, 0
 * where the key is another's. */
static long take_over(FILE *file, const char *key, bench_partial *partial)
{
    char *line = NULL;
    size_t room = 0;
    long good = 0;
    for (ssize_t n; (n = getline(&line, &room, file)) > 0 && line[n - 1] == '\n'; good += n) {
        if (good == 0) {
            line[n - 1] = '\0';
            if (strcmp(line, key) != 0) break;
            continue;
        }
        json_t *both = json_loads(line, 0, NULL);
        json_t *row = json_object_get(both, "row"), *trace = json_object_get(both, "trace");
        if (json_is_object(row)) json_array_append(partial->rows, row);
        if (json_is_object(trace)) json_array_append(partial->traces, trace);
        json_decref(both);
        if (!row) break;
    }
    free(line);
    return good;
}

wo_status bench_partial_open(const char *path, const char *key, bench_partial *partial, wo_error *err)
{
    *partial = (bench_partial){.rows = json_array(), .traces = json_array()};
    partial->file = fopen(path, "r+");
    long good = partial->file ? take_over(partial->file, key, partial) : 0;
    if (!partial->file) partial->file = fopen(path, "w");
    if (!partial->file) {
        bench_partial_close(partial);
        return cli_set_error(err, WO_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    bool fine = fseek(partial->file, good, SEEK_SET) == 0 && ftruncate(fileno(partial->file), good) == 0;
    if (good == 0) fine = fprintf(partial->file, "%s\n", key) > 0 && fflush(partial->file) == 0 && fine;
    if (fine) return WO_OK;
    bench_partial_close(partial);
    return cli_set_error(err, WO_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

wo_status bench_partial_add(bench_partial *partial, json_t *row, json_t *trace, wo_error *err)
{
    json_t *both = json_pack("{s:O, s:O?}", "row", row, "trace", trace);
    char *text = both ? json_dumps(both, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS)) : NULL;
    const bool written = text && fprintf(partial->file, "%s\n", text) > 0 && fflush(partial->file) == 0;
    free(text);
    json_decref(both);
    json_array_append_new(partial->rows, row);
    if (trace) json_array_append_new(partial->traces, trace);
    return written ? WO_OK : cli_set_error(err, WO_ERR_IO, "cannot write a finished row: %s", strerror(errno));
}

void bench_partial_close(bench_partial *partial)
{
    if (partial->file) fclose(partial->file);
    json_decref(partial->rows);
    json_decref(partial->traces);
    *partial = (bench_partial){0};
}
