/* What the parts of wo_evaluate share: the objects, checked, and which queries are judged. */
#ifndef WOI_JUDGE_EVALUATE_H
#define WOI_JUDGE_EVALUATE_H

#include "index/index.h"

typedef struct woi_eval {
    const wo_index *index;
    const woi_dense *full; /* FULL's rows; NULL: there is no FULL */
    const wo_log *log;
    const wo_eval_options *options;
    int threads;            /* 1 or more */
    bool warm_only;         /* woi_eval_time: batches alone, neither cold caches nor energy */
    size_t *picks;          /* the queries that are judged, rising */
    size_t n;               /* of them */
    wo_eval_result *result; /* timings: room for WO_EVAL_MAX + 1 */
} woi_eval;

extern const wo_eval_options woi_eval_defaults;

/* Streams of the seed. */
enum { WOI_EVAL_STREAM_QUERIES = 0x6576616c, WOI_EVAL_STREAM_RANKS };

/* ranks.c: ranks of a query's labels among classes. */
typedef struct woi_ranked {
    float logit;
    int32_t id;
    uint64_t above; /* classes between the label before it and itself, once all were counted */
} woi_ranked;

/* Sorts labels best first and sets the counts to 0. */
void woi_rank_begin(woi_ranked *labels, size_t n);
/* Counts n_classes more, with ids[i], or first + i where ids is NULL. A label's own class does not count. */
void woi_rank_count(woi_ranked *labels, size_t n, const float *logits, const int32_t *ids, int32_t first,
                    size_t n_classes);
/* The sum of the labels' ranks, 1 the highest. */
uint64_t woi_rank_sum(const woi_ranked *labels, size_t n);

/* ranks.c, result->label_rank: labels among all m. Needs FULL and labels. */
wo_status woi_eval_rank(const woi_eval *eval, wo_error *err);

/* likelihood.c, result->perplexity and what follows it: of an index with a partition. */
typedef struct woi_likelihood woi_likelihood;

/* A batch of queries. */
typedef struct woi_likely {
    const float *q; /* (n, d) */
    const size_t *picks;
    size_t n;
    const woi_log_sum *full_log_z; /* (n), or NULL: there is no FULL */
} woi_likely;

/* *likelihood stays NULL where the index has no partition. Batches have at most `room` queries. */
wo_status woi_likelihood_create(const woi_eval *eval, size_t room, woi_likelihood **likelihood, wo_error *err);
wo_status woi_likelihood_add(woi_likelihood *likelihood, const woi_likely *batch, wo_error *err);
void woi_likelihood_conclude(const woi_likelihood *likelihood, wo_eval_result *result); /* NULL is fine */
void woi_likelihood_free(woi_likelihood *likelihood);

/* timing.c, everything from result->k to full_of_read. */
wo_status woi_eval_time(const woi_eval *eval, wo_error *err);
/* Calls of the method in a round of timing that batch size; a quarter as many go before, untimed. */
size_t woi_eval_calls(uint32_t batch);

#endif
