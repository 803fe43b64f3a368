/* Whatever answers queries: an index of ours, a peer's, or PyTorch in a process of its own, behind one interface, so
 * that all are judged and timed by the same code. */
#ifndef BENCH_CONTENDER_H
#define BENCH_CONTENDER_H

#include "workload.h"

typedef struct bench_torch bench_torch;

typedef struct bench_contender {
    const bench_config *config;
    const bench_data *data;
    wo_index *index; /* ours */
    wo_searcher *searcher;
    int searcher_threads;
    peer *peer;
    bench_torch *torch;
    double build_s;
    char chosen[160];     /* what the tuner took, in words; empty for others */
    size_t most_at_once;  /* queries to judge at once: some larger batches are answered by FULL, but not those that it
                           * was tuned for; 0: any number */
    uint64_t index_bytes; /* ours: without the layer's rows, PyTorch: 0, peers: all that is held */
} bench_contender;

/* Builds. WO_ERR_UNSUPPORTED, with a sentence, where a peer's library or PyTorch is not installed. */
wo_status bench_contender_build(const bench_config *config, const bench_data *data, int threads,
                                const wo_progress *progress, bench_contender *contender, wo_error *err);
/* Another dial, or other probes, on what is built: see bench_config_shares_build. */
void bench_contender_turn(bench_contender *contender, const bench_config *config);
void bench_contender_free(bench_contender *contender); /* an empty one is fine */

/* What goes before timing calls with so many threads. */
wo_status bench_contender_prepare(bench_contender *contender, int threads, wo_error *err);

/* What a call took, of all threads for cpu_s. */
typedef struct bench_took {
    double wall_s, cpu_s;
} bench_took;

/* The k best for the queries first .. first + n of the data's pool. */
typedef struct bench_call {
    size_t first, n, k;
    int threads;   /* as prepared */
    int32_t *ids;  /* (n, k); PyTorch answers only where it is not NULL, otherwise it is timed alone */
    float *scores; /* (n, k) */
} bench_call;

wo_status bench_contender_search(bench_contender *contender, const bench_call *call, bench_took *took, wo_error *err);

/* The same of an index of ours, for any queries; the probes of `call` are the contender's. */
wo_status bench_contender_ask(bench_contender *contender, wo_search_call call, wo_error *err);

/* torch.c: the layer of `data` in torch_full.py. */
wo_status bench_torch_start(const bench_data *data, bench_torch **torch, wo_error *err);
wo_status bench_torch_search(bench_torch *torch, const bench_call *call, bench_took *took, wo_error *err);
const char *bench_torch_version(const bench_torch *torch);
void bench_torch_stop(bench_torch *torch); /* NULL is fine */

#endif
