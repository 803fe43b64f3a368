/* A workload: a wide layer, a log to learn from, a log to judge on, and what is swept. docs/BENCHMARKING.md has the
 * keys of its text file. */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "layer/layer.h"
#include "sweep.h"

enum { BENCH_K = 5, BENCH_MAX_BATCH = 1024, BENCH_MAX_SWEEPS = 64 };

typedef struct bench_workload {
    char *name, *title;
    char *cache; /* its folder below the cache, or NULL */
    char *layer, *train, *valid, *test, *weight_name, *bias_name;
    uint64_t queries[2];              /* judged at most, reduced and full; 0: all of the test log */
    uint64_t train_queries[2];        /* learned from at most, the same way */
    uint64_t m, d, n;                 /* synthetic; 0: data from files */
    double exponent;                  /* of their power law */
    char *sweeps[BENCH_MAX_SWEEPS];   /* of its own */
    bool full_only[BENCH_MAX_SWEEPS]; /* those of sweep-full */
    size_t n_sweeps;
} bench_workload;

/* Reads NAME.workload of this project, or the file where `name` has a '/' or ends in .workload. On failure *workload is
 * empty and err says why, with the line. */
wo_status bench_workload_read(const char *name, bench_workload *workload, wo_error *err);
void bench_workload_free(bench_workload *workload); /* an empty one is fine */

/* Its configurations, reduced or full, of the methods that `only` names with commas between (NULL: all). The default
 * sweeps of a method count where the workload has none of its own. Those that take all m classes are left out. */
wo_status bench_workload_configs(const bench_workload *workload, size_t m, bool full, const char *only,
                                 bench_configs *configs, wo_error *err);

/* Queries out of a log, evenly spread over it, and their labels. */
typedef struct bench_sample {
    float *queries; /* (n, d) */
    size_t n;
    int64_t *indptr; /* n + 1; NULL: no labels */
    int32_t *labels;
} bench_sample;

/* The open data. */
typedef struct bench_data {
    wo_layer *layer;
    const woi_dense *rows;           /* of the layer */
    wo_log *train, *valid;           /* NULL: there is none */
    wo_log *test;                    /* what is judged */
    bench_sample trained_on, judged; /* what the logs wrap; trained_on is empty where that is a whole file */
    /* The queries that are timed: those judged or, where they are fewer than two large batches, repetitions of them,
     * (n_pool, d), judged.queries. */
    size_t n_pool;
} bench_data;

/* Opens or makes the data. WO_ERR_IO with a sentence where they are not here. */
wo_status bench_data_open(const bench_workload *workload, bool full, const wo_progress *progress, bench_data *data,
                          wo_error *err);
void bench_data_close(bench_data *data); /* an empty one is fine */

#endif
