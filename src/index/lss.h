/* What the files that make an lss index share. */
#ifndef WOI_INDEX_LSS_H
#define WOI_INDEX_LSS_H

#include "index/index.h"

/* Random numbers by purpose. */
enum {
    WOI_LSS_PLANES = 0x4c535300, /* the start, by (coordinate, plane) */
    WOI_LSS_ORDER,               /* of the queries in an epoch */
    WOI_LSS_POSITIVE,            /* which missed labels a step uses */
    WOI_LSS_NEGATIVE,            /* which retrieved others */
    WOI_LSS_TRACE                /* the samples of the trace */
};

/* Position i of a random permutation of 0 .. n-1, i < n: a Feistel network on the next power of four, walked until it
 * lands below n. No array is kept, so that a few of many millions can be drawn without replacement. */
uint64_t woi_lss_permute(uint64_t seed, uint64_t stream, uint64_t which, uint64_t n, uint64_t i);

static inline bool woi_lss_is_label(const wo_log *log, size_t query, int32_t id)
{
    for (int64_t i = log->indptr[query]; i < log->indptr[query + 1]; i++)
        if (log->labels[i] == id) return true;
    return false;
}

/* Whether the neuron shares one of a query's L cells. */
static inline bool woi_lss_retrieved(const uint32_t *query_cells, const uint32_t *neuron_cells, uint32_t L)
{
    for (uint32_t l = 0; l < L; l++)
        if (query_cells[l] == neuron_cells[l]) return true;
    return false;
}

/* lss_ranks.c: above[i] and below[i] for each query of the log: its logits of rank o->t1 and o->t2, 1 the highest;
 * below 1 a share of the m ranks. 0 gives -INFINITY and INFINITY, no threshold; so does a t1 of m, which every label
 * passes. */
wo_status woi_lss_thresholds(const woi_dense *rows, const wo_log *log, const wo_build_options *o, float *above,
                             float *below, wo_error *err);

/* lss_trace.c: what learning looks like, on samples that stay the same. */
typedef struct woi_lss_trace {
    size_t d, m;
    uint32_t L;
    int threads;
    const wo_log *log;
    uint32_t *query;              /* places in the log: the queries of the pairs, then those of the sample */
    float *q;                     /* (pairs + sample, d): those queries */
    uint32_t *cells;              /* (pairs + sample, L) */
    int32_t *positive, *negative; /* (pairs): a label of the query; a neuron that is none */
    uint32_t *seen;               /* (threads, m): the query that met a neuron last */
} woi_lss_trace;

/* The n queries of a log that have labels, at least one. */
typedef struct woi_labelled {
    const wo_log *log;
    const uint32_t *at; /* (n): their places in the log */
    size_t n;
} woi_labelled;

wo_status woi_lss_trace_create(const woi_labelled *labelled, size_t m, const wo_build_options *o, woi_lss_trace *trace,
                               wo_error *err);
void woi_lss_trace_free(woi_lss_trace *trace);

/* Fills one row of WOI_TRACE_COLUMNS numbers but for step and loss. neuron_cells (m, L) are those that `cells` lists.
 */
wo_status woi_lss_trace_take(woi_lss_trace *trace, const woi_hash *hash, const uint32_t *neuron_cells,
                             const woi_cells *cells, double *row, wo_error *err);

#endif
