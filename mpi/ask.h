/* Queries of rank 0, answered by all ranks: blocks are broadcast, each rank finds the cells of its share of the
 * queries, scores its own classes, and the best of all are merged, on every rank. While a block is scored, the queries
 * of the block after the next one, the cells of the next, and the answers to the one before are on their way. */
#ifndef WOI_MPI_ASK_H
#define WOI_MPI_ASK_H

#include "job.h"

/* Rank 0 alone is asked for queries: `most` of them or so, valid until the next call, and with `ahead` until the end;
 * *n 0: no more. */
typedef wo_status (*ask_next_fn)(void *ctx, size_t most, const float **q, size_t *n, wo_error *err);

/* The answers to a block, on every rank. */
typedef struct ask_block {
    size_t n, k;
    const int32_t *ids;          /* (n, k) */
    const float *scores;         /* (n, k) */
    const wo_query_stats *stats; /* (n): candidates are those of all ranks */
} ask_block;
typedef wo_status (*ask_answered_fn)(void *ctx, const ask_block *block, wo_error *err);

typedef struct ask_options {
    size_t k, block;     /* classes a query, queries a block */
    wo_search_call call; /* by, probes, score, ...: the rest is filled in */
    int threads;
    ask_next_fn next;
    void *next_ctx;
    bool ahead; /* blocks may be asked for before this one is answered: not of somebody who types */
    ask_answered_fn answered;
    void *answered_ctx;
    size_t *sent; /* NULL, or how many queries a block has after all: fewer where their numbers are very many */
} ask_options;

/* Until there are no more queries. The phases "exchange", "routing", "search", "merging" and "answers" are counted. At
 * one rank routing is a part of the search. */
wo_status ask_all(const wo_index *index, const ask_options *options, wo_error *err);

#endif
