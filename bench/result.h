/* Result files: one JSON object for a workload, and beside it, while a run goes on, the rows that are finished. */
#ifndef BENCH_RESULT_H
#define BENCH_RESULT_H

#include "measure.h"

/* NULL becomes null for NAN and infinity. */
json_t *bench_real(double value);

/* The head of a result: everything but rows and traces. `command` is the line that was typed. */
json_t *bench_result_head(const bench_workload *workload, const bench_data *data, const bench_quality *full,
                          int threads, const char *command);

json_t *bench_row_json(const bench_contender *contender, const bench_quality *quality, const bench_timing *timings,
                       size_t n_timings, double energy_j_per_1000);

/* {"label", "columns", "values"} of a learned index, or NULL where there is none. */
json_t *bench_trace_json(const bench_contender *contender);

/* Reads a result file. */
wo_status bench_result_read(const char *path, json_t **result, wo_error *err);
/* Writes it, complete or not at all; does not take the reference. */
wo_status bench_result_write(const char *path, json_t *result, wo_error *err);

/* The row with that label, borrowed, or NULL. */
json_t *bench_row_find(json_t *rows, const char *label);
/* A number of a row; NAN where it is null or absent. */
double bench_number(const json_t *object, const char *key);
const char *bench_text(const json_t *object, const char *key); /* "" where absent */

/* Rows as they are finished, a JSON line each behind a line `key` of what they hold for. */
typedef struct bench_partial {
    FILE *file;
    json_t *rows, *traces; /* those that were there, and those that were added */
} bench_partial;

/* Goes on with the file where its key is the same, and begins anew otherwise. */
wo_status bench_partial_open(const char *path, const char *key, bench_partial *partial, wo_error *err);
/* Takes both references; trace may be NULL. */
wo_status bench_partial_add(bench_partial *partial, json_t *row, json_t *trace, wo_error *err);
void bench_partial_close(bench_partial *partial); /* an empty one is fine; the file stays */

#endif
