/* What every row says: how good the answers are, and what they cost beside FULL in the same run. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "contender.h"

/* NAN: does not apply, or was not measured. */
typedef struct bench_quality {
    double p_at_1, p_at_3, p_at_5;
    double label_recall, sample_size, empty_share, label_rank, label_rank_retrieved;
    size_t n; /* queries that P@k come from */
} bench_quality;

/* FULL, and what it reached on all queries. */
typedef struct bench_judged_full {
    bench_contender *contender;
    const bench_quality *quality;
} bench_judged_full;

/* FULL: wo_evaluate. Others: P@k of their answers; sample_size is what the search counted, label_recall and
 * label_rank_retrieved come from all that it had in hand, see docs/BENCHMARKING.md. `full` may be NULL for FULL. */
wo_status bench_judge(bench_contender *contender, const bench_judged_full *full, int threads,
                      const wo_progress *progress, bench_quality *quality, wo_error *err);

/* Microseconds a query. */
typedef struct bench_timing {
    uint32_t batch;
    int threads;
    double us, us_q1, us_q3, us_p99, full_us;
    size_t asked; /* queries a call: fewer than the batch where that would take seconds */
    double cpu_s_per_1000;
} bench_timing;

/* Rounds of the contender, then of FULL, until about budget_s have passed; never fewer than three rounds, or two where
 * a call takes a quarter of a second. `full` is a contender of the exact layer; it may be the same. `timing` says the
 * batch and the threads, and receives the rest. */
wo_status bench_time(bench_contender *contender, bench_contender *full, double budget_s, bench_timing *timing,
                     wo_error *err);

/* Joules per 1,000 queries, less the idle machine's; *joules is NAN where there are no counters. */
wo_status bench_energy(bench_contender *contender, uint32_t batch, int threads, double *joules, wo_error *err);

#endif
