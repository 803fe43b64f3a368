/* What the files that make an lss index share. */
#ifndef WOI_BUILD_LSS_H
#define WOI_BUILD_LSS_H

#include "build/build.h"

/* Random numbers by purpose. */
enum {
    WOI_LSS_PLANES = 0x4c535300, /* the start, by (coordinate, plane) */
    WOI_LSS_ORDER,               /* of the queries in an epoch */
    WOI_LSS_POSITIVE,            /* which missed labels a step uses */
    WOI_LSS_NEGATIVE,            /* which retrieved others */
    WOI_LSS_TRACE,               /* the samples of the trace */
    WOI_LSS_HELD_OUT             /* the queries that steps are judged on */
};

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

/* lss_judge.c: which step is kept. */
typedef struct woi_lss_state {
    const woi_hash *hash;
    const uint32_t *neuron_cells; /* (m, L) */
    const woi_cells *cells;       /* which list them */
} woi_lss_state;

typedef struct woi_lss_verdict {
    uint64_t step;
    double recall, neurons; /* labels found, of all; neurons a query, NAN where they did not matter */
    bool within;            /* the limit, where there is one */
} woi_lss_verdict;

typedef struct woi_lss_judge {
    const wo_log *log;
    const woi_kernels *kernels;
    size_t m;
    uint32_t probes, limit; /* neurons a query at most; 0: any number */
    int threads;
    bool held_out; /* its queries are not learned from */
    size_t n;
    uint32_t *query; /* (n): places in the log, rising */
    float *q;        /* (n, d) */
    uint64_t n_labels;
    uint32_t *opened; /* (threads, n_opened): cells of a tile of queries, then how many each has */
    float *scratch;   /* (threads, n_scratch): the router's */
    size_t n_opened, n_scratch;
    uint32_t *seen; /* (threads, m): the query that met a neuron last */
    bool any;       /* step was judged */
    woi_lss_verdict best;
    float *planes; /* (d + 1, n_planes): of the best step, bias_planes last */
} woi_lss_judge;

/* labelled: the places of the queries that have labels, rising; those that are held out are taken out of the list. The
 * index has options, rows and a hash of its size. */
wo_status woi_lss_judge_create(const wo_log *log, uint32_t *labelled, size_t *n_labelled, const wo_index *index,
                               woi_lss_judge *judge, wo_error *err);
void woi_lss_judge_free(woi_lss_judge *judge);

/* Judges a step, and keeps its planes where it is the best so far; with `all`, neurons are counted in any case. */
woi_lss_verdict woi_lss_judge_step(woi_lss_judge *judge, uint64_t step, const woi_lss_state *state, bool all);
void woi_lss_judge_restore(const woi_lss_judge *judge, woi_hash *hash);

#endif
