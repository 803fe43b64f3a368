/* The trace of learning: collision probabilities, sample size, label recall and how even the cells are, on samples that
 * are drawn once. */
#include "build/lss.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { N_PAIRS = 10000, N_SAMPLE = 512, N_ALL = N_PAIRS + N_SAMPLE };

/* The query whose labels hold place `at`. */
static size_t query_of(const wo_log *log, int64_t at)
{
    size_t low = 0, high = log->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (log->indptr[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* (query, label) pairs drawn evenly from all of the log, and for each the same query with a neuron that is no label of
 * it (a query that has nearly all neurons as labels may be left without); then queries drawn evenly. */
static void draw(woi_lss_trace *t, const woi_labelled *labelled, uint64_t seed)
{
    enum { TRIES = 16 };
    for (size_t i = 0; i < N_PAIRS; i++) {
        const uint64_t at = i * (TRIES + 1);
        const int64_t place = (int64_t)woi_rng_below(seed, WOI_LSS_TRACE, at, (uint64_t)t->log->indptr[t->log->n]);
        const size_t query = query_of(t->log, place);
        t->query[i] = (uint32_t)query;
        t->positive[i] = t->log->labels[place];
        t->negative[i] = -1;
        for (uint64_t try = 1; try <= TRIES && t->negative[i] < 0; try++) {
            const int32_t id = (int32_t)woi_rng_below(seed, WOI_LSS_TRACE, at + try, t->m);
            if (!woi_lss_is_label(t->log, query, id)) t->negative[i] = id;
        }
    }
    for (uint64_t i = N_PAIRS; i < N_ALL; i++)
        t->query[i] = labelled->at[woi_rng_below(seed, WOI_LSS_TRACE, i * (TRIES + 1), labelled->n)];
    for (size_t i = 0; i < N_ALL; i++)
        memcpy(t->q + i * t->d, t->log->queries + t->query[i] * t->d, t->d * sizeof *t->q);
}

wo_status woi_lss_trace_create(const woi_labelled *labelled, size_t m, const wo_build_options *o, woi_lss_trace *trace,
                               wo_error *err)
{
    const wo_log *log = labelled->log;
    const uint32_t L = o->L;
    const int threads = woi_team_threads(o->threads);
    *trace = (woi_lss_trace){.d = log->d, .m = m, .L = L, .threads = threads, .log = log};
    if ((trace->query = woi_alloc(N_ALL, sizeof *trace->query, err)) &&
        (trace->q = woi_alloc(N_ALL, log->d * sizeof *trace->q, err)) &&
        (trace->cells = woi_alloc(N_ALL, L * sizeof *trace->cells, err)) &&
        (trace->positive = woi_alloc(N_PAIRS, sizeof *trace->positive, err)) &&
        (trace->negative = woi_alloc(N_PAIRS, sizeof *trace->negative, err)) &&
        (trace->seen = woi_alloc((size_t)threads, m * sizeof *trace->seen, err))) {
        draw(trace, labelled, o->seed);
        return WO_OK;
    }
    woi_lss_trace_free(trace);
    return WO_ERR_MEMORY;
}

void woi_lss_trace_free(woi_lss_trace *trace)
{
    void *const owned[] = {trace->q, trace->query, trace->positive, trace->negative, trace->cells, trace->seen};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    *trace = (woi_lss_trace){0};
}

/* The share of (pair, table) in which query and neuron lie in one cell. */
static double collisions(const woi_lss_trace *t, const int32_t *neurons, const uint32_t *neuron_cells)
{
    size_t met = 0, pairs = 0;
    for (size_t i = 0; i < N_PAIRS; i++) {
        if (neurons[i] < 0) continue;
        const uint32_t *of = neuron_cells + (size_t)neurons[i] * t->L;
        for (uint32_t l = 0; l < t->L; l++) met += t->cells[i * t->L + l] == of[l];
        pairs++;
    }
    return pairs ? (double)met / (double)(pairs * t->L) : 0;
}

typedef struct meeting {
    const woi_lss_trace *t;
    const woi_cells *cells;
    atomic_ullong total; /* a whole number: the order of the threads does not matter */
} meeting;

static void meet(void *own, int worker, size_t first, size_t end)
{
    meeting *m = own;
    const woi_lss_trace *t = m->t;
    uint32_t *seen = t->seen + (size_t)worker * t->m;
    uint64_t total = 0;
    for (size_t i = N_PAIRS + first; i < N_PAIRS + end; i++)
        for (uint32_t l = 0; l < t->L; l++) {
            const uint32_t cell = t->cells[i * t->L + l];
            for (uint32_t at = m->cells->offsets[cell]; at < m->cells->offsets[cell + 1]; at++) {
                uint32_t *mark = seen + m->cells->ids[at];
                total += *mark != i;
                *mark = (uint32_t)i;
            }
        }
    m->total += total;
}

/* Distinct neurons that a query of the sample meets, on average. */
static double sample_size(const woi_lss_trace *t, const woi_cells *cells)
{
    enum { QUERIES_AT_ONCE = 8 };
    meeting m = {.t = t, .cells = cells};
    memset(t->seen, 0xff, (size_t)t->threads * t->m * sizeof *t->seen);
    woi_team_ranges(t->threads, N_SAMPLE, QUERIES_AT_ONCE, meet, &m);
    return (double)m.total / N_SAMPLE;
}

static double label_recall(const woi_lss_trace *t, const uint32_t *neuron_cells)
{
    size_t found = 0, labels = 0;
    for (size_t i = N_PAIRS; i < N_ALL; i++)
        for (int64_t at = t->log->indptr[t->query[i]]; at < t->log->indptr[t->query[i] + 1]; at++, labels++)
            found += woi_lss_retrieved(t->cells + i * t->L, neuron_cells + (size_t)t->log->labels[at] * t->L, t->L);
    return (double)found / (double)labels;
}

/* Empty cells, the largest, and the entropy of a table's cells over K, the mean of the tables: 1 when neurons are
 * spread evenly. */
static void evenness(const woi_hash *hash, const woi_cells *cells, size_t m, double *row)
{
    double empty = 0, largest = 0, entropy = 0;
    for (size_t c = 0; c < cells->n; c++) {
        const double size = cells->offsets[c + 1] - cells->offsets[c], share = size / (double)m;
        empty += size == 0;
        largest = fmax(largest, size);
        if (size > 0) entropy -= share * log2(share);
    }
    row[WOI_TRACE_EMPTY] = empty;
    row[WOI_TRACE_LARGEST] = largest;
    row[WOI_TRACE_ENTROPY] = entropy / ((double)hash->L * hash->K);
}

wo_status woi_lss_trace_take(woi_lss_trace *trace, const woi_hash *hash, const uint32_t *neuron_cells,
                             const woi_cells *cells, double *row, wo_error *err)
{
    wo_status status = woi_hash_queries(hash, trace->q, N_ALL, trace->threads, trace->cells, err);
    if (!status) status = woi_hash_check(trace->cells, (size_t)N_ALL * trace->L, WO_ABOUT_LOG, err);
    if (status) return status;
    row[WOI_TRACE_CP_POSITIVE] = collisions(trace, trace->positive, neuron_cells);
    row[WOI_TRACE_CP_NEGATIVE] = collisions(trace, trace->negative, neuron_cells);
    row[WOI_TRACE_SAMPLE_SIZE] = sample_size(trace, cells);
    row[WOI_TRACE_LABEL_RECALL] = label_recall(trace, neuron_cells);
    evenness(hash, cells, trace->m, row);
    return WO_OK;
}
