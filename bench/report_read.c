/* Result files become data sets.
 *
 * A file of wideout-bench is one data set. A file of 'wideout eval --json' is one row: files that judge the same log
 * with the same layer shape are joined into a data set that has the log's name. */
#include "report_data.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const report_row no_row = {
    .series = -1,
    .p_at_1 = NAN,
    .p_at_3 = NAN,
    .p_at_5 = NAN,
    .label_recall = NAN,
    .sample_size = NAN,
    .build_s = NAN,
    .index_bytes = NAN,
    .cpu_s_per_1000 = NAN,
    .energy_j_per_1000 = NAN,
    .dial_value = NAN,
};

static bool out_of_memory(char error[REPORT_ERROR_BYTES])
{
    snprintf(error, REPORT_ERROR_BYTES, "out of memory");
    return false;
}

static report_set *add_set(report *r, char error[REPORT_ERROR_BYTES])
{
    report_set *sets = realloc(r->sets, (r->n_sets + 1) * sizeof *sets);
    if (!sets) {
        out_of_memory(error);
        return NULL;
    }
    r->sets = sets;
    sets[r->n_sets] = (report_set){.full_p_at_1 = NAN, .full_p_at_3 = NAN, .full_p_at_5 = NAN};
    return &sets[r->n_sets++];
}

static bool add_source(report *r, const report_set *set, const json_t *about, char error[REPORT_ERROR_BYTES])
{
    report_source *sources = realloc(r->sources, (r->n_sources + 1) * sizeof *sources);
    if (!sources) return out_of_memory(error);
    r->sources = sources;
    sources[r->n_sources++] = (report_source){(size_t)(set - r->sets), about};
    return true;
}

/* The series of a method and its variant, new where it has none yet; -1 where there are too many. */
static int series_of(report *r, const char *method, const char *variant, report_family family)
{
    for (int i = 0; i < r->n_series; i++) {
        const report_series *s = &r->series[i];
        if (strcmp(s->method, method) == 0 && strcmp(s->variant ? s->variant : "", variant ? variant : "") == 0)
            return i;
    }
    if (r->n_series == REPORT_MAX_SERIES) return -1;
    r->series[r->n_series] = (report_series){.method = method, .variant = variant, .family = family};
    return r->n_series++;
}

static bool set_series(report *r, report_row *row, const char *method, const char *variant, report_family family,
                       char error[REPORT_ERROR_BYTES])
{
    if (strcmp(method, "full") == 0 || strcmp(method, "FULL") == 0) return true; /* -1: FULL */
    row->series = series_of(r, method, variant, family);
    if (row->series < 0)
        snprintf(error, REPORT_ERROR_BYTES, "a page has room for %d methods; leave some files out", REPORT_MAX_SERIES);
    return row->series >= 0;
}

/* ---- wideout-bench ------------------------------------------------------------------------------------------- */

/* Eleven days, and a picosecond: what lies beyond is a mistake, or a clock that stood still, and has no place on an
 * axis. */
static const double max_us = 1e12, min_us = 1e-6;
static const double max_trace = 1e15; /* the same for traces */

/* The names of the members differ between the two kinds of file. */
typedef struct timing_names {
    const char *us, *full_us;
} timing_names;

static bool read_timings(report_row *row, const json_t *object, const char *where, const timing_names *names,
                         char error[REPORT_ERROR_BYTES])
{
    json_t *timings;
    if (!report_get_array(object, where, "timings", REPORT_MAX_TIMINGS, &timings, error)) return false;
    for (size_t i = 0; i < json_array_size(timings); i++) {
        const json_t *entry = json_array_get(timings, i);
        report_timing t = {.us = NAN, .full_us = NAN, .speedup = NAN};
        char place[96];
        uint64_t batch = 0, threads = 1;
        snprintf(place, sizeof place, "%stimings[%zu].", where, i);
        if (!report_get_count(entry, place, "batch", (report_counts){true, 1, UINT32_MAX}, &batch, error) ||
            !report_get_count(entry, place, "threads", (report_counts){false, 1, 65536}, &threads, error) ||
            !report_get_number(entry, place, names->us, (report_numbers){false, 0, max_us}, &t.us, error) ||
            !report_get_number(entry, place, names->full_us, (report_numbers){false, 0, max_us}, &t.full_us, error) ||
            !report_get_number(entry, place, "speedup", (report_numbers){false, 0, max_us}, &t.speedup, error))
            return false;
        if (t.us < min_us) t.us = NAN;
        if (t.full_us < min_us) t.full_us = NAN;
        t.at = (report_cost){(uint32_t)batch, (uint32_t)threads};
        if (isnan(t.speedup) && t.us > 0) t.speedup = t.full_us / t.us;
        row->timings[row->n_timings++] = t;
    }
    return true;
}

/* What both kinds of file call by the same names. */
static bool read_quality(report_row *row, const json_t *object, const char *where, char error[REPORT_ERROR_BYTES])
{
    return report_get_number(object, where, "p_at_1", (report_numbers){false, 0, 1}, &row->p_at_1, error) &&
           report_get_number(object, where, "p_at_3", (report_numbers){false, 0, 1}, &row->p_at_3, error) &&
           report_get_number(object, where, "p_at_5", (report_numbers){false, 0, 1}, &row->p_at_5, error) &&
           report_get_number(object, where, "label_recall", (report_numbers){false, 0, 1}, &row->label_recall, error) &&
           report_get_number(object, where, "sample_size", (report_numbers){false, 0, HUGE_VAL}, &row->sample_size,
                             error) &&
           report_get_number(object, where, "cpu_s_per_1000", (report_numbers){false, 0, HUGE_VAL},
                             &row->cpu_s_per_1000, error) &&
           report_get_number(object, where, "energy_j_per_1000", (report_numbers){false, 0, HUGE_VAL},
                             &row->energy_j_per_1000, error);
}

static bool read_family(const json_t *object, const char *where, report_family *family, char error[REPORT_ERROR_BYTES])
{
    static const char *const names[] = {"ours", "baseline", "peer", "exact"};
    const char *name = NULL;
    if (!report_get_text(object, where, "family", true, &name, error)) return false;
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *family = (report_family)i;
        return true;
    }
    snprintf(error, REPORT_ERROR_BYTES, "%sfamily: expected ours, baseline, peer or exact, not '%.40s'", where, name);
    return false;
}

static bool read_row(report *r, report_row *row, const json_t *object, const char *where,
                     char error[REPORT_ERROR_BYTES])
{
    static const timing_names names = {"us", "full_us"};
    const char *method = NULL, *variant = NULL;
    report_family family = REPORT_BASELINE;
    json_t *options, *dial;
    *row = no_row;
    if (!report_get_text(object, where, "method", true, &method, error) ||
        !report_get_text(object, where, "chosen", false, &row->chosen, error) ||
        !read_family(object, where, &family, error) || !report_get_object(object, where, "options", &options, error) ||
        !report_get_object(object, where, "dial", &dial, error))
        return false;
    char inside[80];
    snprintf(inside, sizeof inside, "%soptions.", where);
    if (!report_get_text(options, inside, "loss", false, &variant, error)) return false;
    snprintf(inside, sizeof inside, "%sdial.", where);
    if (!report_get_text(dial, inside, "name", false, &row->dial, error) ||
        !report_get_number(dial, inside, "value", (report_numbers){false, -HUGE_VAL, HUGE_VAL}, &row->dial_value,
                           error))
        return false;
    row->label = method;
    return report_get_text(object, where, "label", false, &row->label, error) &&
           read_quality(row, object, where, error) &&
           report_get_number(object, where, "build_s", (report_numbers){false, 0, HUGE_VAL}, &row->build_s, error) &&
           report_get_number(object, where, "index_bytes", (report_numbers){false, 0, HUGE_VAL}, &row->index_bytes,
                             error) &&
           read_timings(row, object, where, &names, error) && set_series(r, row, method, variant, family, error);
}

static bool read_trace(report_trace *trace, const json_t *object, const char *where, char error[REPORT_ERROR_BYTES])
{
    json_t *columns, *values;
    trace->label = "learning";
    if (!report_get_text(object, where, "label", false, &trace->label, error) ||
        !report_get_array(object, where, "columns", REPORT_MAX_COLUMNS, &columns, error) ||
        !report_get_array(object, where, "values", SIZE_MAX, &values, error))
        return false;
    trace->n_columns = json_array_size(columns);
    trace->n = json_array_size(values);
    for (size_t j = 0; j < trace->n_columns; j++) {
        trace->columns[j] = json_string_value(json_array_get(columns, j));
        if (trace->columns[j]) continue;
        snprintf(error, REPORT_ERROR_BYTES, "%scolumns[%zu]: expected a text", where, j);
        return false;
    }
    /* Both counts are of entries that are in memory already, so the product is far below overflow. */
    trace->values = malloc((trace->n * trace->n_columns + 1) * sizeof *trace->values);
    if (!trace->values) return out_of_memory(error);
    for (size_t i = 0; i < trace->n; i++) {
        const json_t *line = json_array_get(values, i);
        if (!json_is_array(line) || json_array_size(line) != trace->n_columns) {
            snprintf(error, REPORT_ERROR_BYTES, "%svalues[%zu]: expected an array of %zu numbers, one for each column",
                     where, i, trace->n_columns);
            return false;
        }
        for (size_t j = 0; j < trace->n_columns; j++) {
            const json_t *value = json_array_get(line, j);
            if (!json_is_null(value) && !(json_is_number(value) && fabs(json_number_value(value)) <= max_trace)) {
                snprintf(error, REPORT_ERROR_BYTES, "%svalues[%zu][%zu]: expected null or a number up to %g", where, i,
                         j, max_trace);
                return false;
            }
            trace->values[i * trace->n_columns + j] = json_is_null(value) ? NAN : json_number_value(value);
        }
    }
    return true;
}

/* What the page says about how a file was made; checked here, printed by report_made.c. */
static bool check_about(const json_t *root, char error[REPORT_ERROR_BYTES])
{
    static const char *const texts[] = {"commit", "version", "date", "compiler", "command"};
    const char *text;
    json_t *machine, *packages, *options;
    uint64_t count;
    double gib;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!report_get_text(root, "", texts[i], false, &text, error)) return false;
    return report_get_count(root, "", "threads", (report_counts){false, 1, 65536}, &count, error) &&
           report_get_object(root, "", "machine", &machine, error) &&
           report_get_object(root, "", "packages", &packages, error) &&
           report_get_object(root, "", "options", &options, error) &&
           report_get_text(machine, "machine.", "cpu", false, &text, error) &&
           report_get_text(machine, "machine.", "kernel", false, &text, error) &&
           report_get_text(machine, "machine.", "instructions", false, &text, error) &&
           report_get_count(machine, "machine.", "cores", (report_counts){false, 1, 1 << 20}, &count, error) &&
           report_get_number(machine, "machine.", "memory_gib", (report_numbers){false, 0, 1e9}, &gib, error);
}

static bool read_bench(report *r, json_t *root, char error[REPORT_ERROR_BYTES])
{
    uint64_t version = 0;
    json_t *full, *rows, *traces;
    if (!report_get_count(root, "", "wideout_bench", (report_counts){true, 1, 1}, &version, error)) return false;
    report_set *set = add_set(r, error);
    if (!set) return false;
    if (!add_source(r, set, root, error) || !report_get_text(root, "", "workload", true, &set->name, error))
        return false;
    set->title = set->name;
    if (!report_get_text(root, "", "title", false, &set->title, error) ||
        !report_get_count(root, "", "m", (report_counts){true, 1, INT32_MAX}, &set->m, error) ||
        !report_get_count(root, "", "d", (report_counts){true, 1, INT32_MAX}, &set->d, error) ||
        !report_get_count(root, "", "n", (report_counts){true, 1, INT64_MAX}, &set->n, error) ||
        !report_get_object(root, "", "full", &full, error) ||
        !report_get_number(full, "full.", "p_at_1", (report_numbers){false, 0, 1}, &set->full_p_at_1, error) ||
        !report_get_number(full, "full.", "p_at_3", (report_numbers){false, 0, 1}, &set->full_p_at_3, error) ||
        !report_get_number(full, "full.", "p_at_5", (report_numbers){false, 0, 1}, &set->full_p_at_5, error) ||
        !report_get_array(root, "", "rows", REPORT_MAX_ROWS, &rows, error) ||
        !report_get_array(root, "", "traces", REPORT_MAX_TRACES, &traces, error) || !check_about(root, error))
        return false;
    if (json_array_size(rows) == 0) {
        snprintf(error, REPORT_ERROR_BYTES, "rows: expected at least one row");
        return false;
    }
    set->rows = calloc(json_array_size(rows), sizeof *set->rows);
    set->traces = calloc(json_array_size(traces) + 1, sizeof *set->traces);
    if (!set->rows || !set->traces) return out_of_memory(error);
    char where[48];
    for (size_t i = 0; i < json_array_size(rows); i++) {
        snprintf(where, sizeof where, "rows[%zu].", i);
        if (!read_row(r, &set->rows[i], json_array_get(rows, i), where, error)) return false;
        set->n_rows++;
    }
    for (size_t i = 0; i < json_array_size(traces); i++) {
        snprintf(where, sizeof where, "traces[%zu].", i);
        set->n_traces++;
        if (!read_trace(&set->traces[i], json_array_get(traces, i), where, error)) return false;
    }
    return true;
}

/* ---- wideout eval --json --------------------------------------------------------------------------------------- */

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* The data set of this log, new where it has none yet; NULL with the sentence. */
static report_set *eval_set(report *r, const char *log, uint64_t m, uint64_t d, uint64_t n,
                            char error[REPORT_ERROR_BYTES])
{
    for (size_t i = 0; i < r->n_sets; i++) {
        report_set *set = &r->sets[i];
        if (set->evaluated && strcmp(set->name, log) == 0 && set->m == m && set->d == d && set->n == n) return set;
    }
    report_set *set = add_set(r, error);
    if (!set) return NULL;
    set->evaluated = true;
    set->name = log;
    set->title = file_name(log);
    set->m = m;
    set->d = d;
    set->n = n;
    return set;
}

static bool read_eval(report *r, json_t *root, char error[REPORT_ERROR_BYTES])
{
    static const timing_names names = {"us_per_query", "full_us_per_query"};
    const char *log = NULL, *method = NULL, *index = NULL;
    uint64_t m = 0, d = 0, n = 0;
    report_row row = no_row;
    if (!report_get_text(root, "", "log", true, &log, error) ||
        !report_get_text(root, "", "index", true, &index, error) ||
        !report_get_text(root, "", "method", true, &method, error) ||
        !report_get_count(root, "", "m", (report_counts){true, 1, INT32_MAX}, &m, error) ||
        !report_get_count(root, "", "d", (report_counts){true, 1, INT32_MAX}, &d, error) ||
        !report_get_count(root, "", "n", (report_counts){true, 1, INT64_MAX}, &n, error) ||
        !read_quality(&row, root, "", error) || !read_timings(&row, root, "", &names, error) ||
        !check_about(root, error))
        return false;
    const report_family family = strcmp(method, "evidence") == 0 ? REPORT_OURS : REPORT_BASELINE;
    if (!set_series(r, &row, method, NULL, family, error)) return false;
    report_set *set = eval_set(r, log, m, d, n, error);
    if (!set || !add_source(r, set, root, error)) return false;
    if (!report_get_number(root, "", "full_p_at_1", (report_numbers){false, 0, 1}, &set->full_p_at_1, error) ||
        !report_get_number(root, "", "full_p_at_3", (report_numbers){false, 0, 1}, &set->full_p_at_3, error) ||
        !report_get_number(root, "", "full_p_at_5", (report_numbers){false, 0, 1}, &set->full_p_at_5, error))
        return false;
    /* Two indexes of one method are told apart by their files. */
    row.label = method;
    for (size_t i = 0; i < set->n_rows; i++)
        if (set->rows[i].series == row.series) row.label = file_name(index);
    report_row *rows = realloc(set->rows, (set->n_rows + 1) * sizeof *rows);
    if (!rows) return out_of_memory(error);
    set->rows = rows;
    rows[set->n_rows++] = row;
    return true;
}

/* ---- Files --------------------------------------------------------------------------------------------------- */

static void free_set(report_set *set)
{
    for (size_t i = 0; i < set->n_traces; i++) free(set->traces[i].values);
    free(set->traces);
    free(set->rows);
}

report_read_result report_read(report *r, const char *path, char error[REPORT_ERROR_BYTES])
{
    json_t *root = report_load(path, error);
    if (!root) return REPORT_FAILED;
    if (!r->files) r->files = json_array();
    /* Kept even where the file is refused: names of series may point into it. */
    if (json_array_append_new(r->files, root)) {
        out_of_memory(error);
        return REPORT_FAILED;
    }
    if (json_object_get(root, "wideout_bench")) return read_bench(r, root, error) ? REPORT_READ : REPORT_FAILED;
    if (json_object_get(root, "method") && json_object_get(root, "full_p_at_1"))
        return read_eval(r, root, error) ? REPORT_READ : REPORT_FAILED;
    return REPORT_OTHER;
}

/* Methods that come up in every benchmark keep their colour from one page to the next. */
static int usual_colour(const report_series *s)
{
    static const struct {
        const char *method, *variant;
        int colour;
    } usual[] = {{"evidence", NULL, 0},      {"tuned", NULL, 10},       {"popular", NULL, 1},
                 {"slide", NULL, 2},         {"lss", "paper", 3},       {"lss", "margin", 4},
                 {"lss", NULL, 3},           {"pq", NULL, 5},           {"ivf", NULL, 6},
                 {"sq8", NULL, 7},           {"ip-nsw", NULL, 8},       {"graph-decoder", NULL, 9},
                 {"graph decoder", NULL, 9}, {"graph_decoder", NULL, 9}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const bool variant_fits = !usual[i].variant || (s->variant && strcmp(usual[i].variant, s->variant) == 0);
        if (strcasecmp(s->method, usual[i].method) == 0 && variant_fits) return usual[i].colour;
    }
    return -1;
}

/* Ours, baselines, peers, exact ones; within a family as they came. */
static void order_series(report *r)
{
    report_series sorted[REPORT_MAX_SERIES] = {{0}};
    int place[REPORT_MAX_SERIES] = {0}, n = 0;
    for (int family = REPORT_OURS; family <= REPORT_EXACT; family++) {
        for (int i = 0; i < r->n_series; i++) {
            if (r->series[i].family != (report_family)family) continue;
            place[i] = n;
            sorted[n++] = r->series[i];
        }
    }
    memcpy(r->series, sorted, (size_t)n * sizeof *sorted);
    for (size_t i = 0; i < r->n_sets; i++) {
        for (size_t j = 0; j < r->sets[i].n_rows; j++) {
            int *series = &r->sets[i].rows[j].series;
            if (*series >= 0) *series = place[*series];
        }
    }
}

void report_finish(report *r)
{
    order_series(r);
    /* gnuplot's point types: filled and open circle, square, triangles, diamond, pentagon, and a cross; one for each
     * colour. */
    static const int marks[REPORT_COLOURS] = {7, 5, 9, 11, 13, 6, 4, 8, 10, 12, 15, 14, 3};
    bool taken[REPORT_COLOURS] = {false};
    for (int i = 0; i < r->n_series; i++) {
        report_series *s = &r->series[i];
        s->colour = usual_colour(s);
        if (s->colour >= 0 && taken[s->colour]) s->colour = -1;
        if (s->colour >= 0) taken[s->colour] = true;
    }
    for (int i = 0, next = 0; i < r->n_series; i++) {
        report_series *s = &r->series[i];
        while (s->colour < 0 && next < REPORT_COLOURS && taken[next]) next++;
        if (s->colour < 0) s->colour = next++ % REPORT_COLOURS;
        s->mark = marks[s->colour];
    }
}

void report_free(report *r)
{
    for (size_t i = 0; i < r->n_sets; i++) free_set(&r->sets[i]);
    free(r->sets);
    free(r->sources);
    json_decref(r->files);
    *r = (report){0};
}
