/* Which step of lss is kept: the one with the best label recall at no more neurons a query than asked for, on queries
 * that learning does not see.
 *
 * Recall is counted at every step, neurons only where they can matter: at a step that is no worse than the best one,
 * while none is within the limit, and where the trace wants them. 1,500 steps on Debian with K 4 and L 10 take 24 s of
 * processor time without judging, 26 with it, and 42 with a limit of 3,000 neurons, which has them counted more often
 * (one run each, on a busy machine). */
#include "build/lss.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A tenth of the queries with labels, so many at most. Below LEAST of them a tenth says too little (the standard error
 * of a recall on 100 queries is up to 0.05): such a log is judged and learned from as a whole. */
enum { SHARE = 10, MOST = 4096, LEAST = 1000, TILE = 16 };

static int rising(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Takes the places in judge->query, which rise, out of the list, which does too. */
static void leave_out(const woi_lss_judge *judge, uint32_t *at, size_t *n)
{
    size_t left = 0, held = 0;
    for (size_t i = 0; i < *n; i++) {
        if (held < judge->n && at[i] == judge->query[held])
            held++;
        else
            at[left++] = at[i];
    }
    *n = left;
}

/* All memory, so that judging a step cannot fail. */
static wo_status allocate(woi_lss_judge *judge, const woi_hash *hash, wo_error *err)
{
    const size_t threads = (size_t)judge->threads;
    judge->n_opened = TILE * ((size_t)hash->L * judge->probes + 1);
    judge->n_scratch = (woi_hash_scratch(hash, TILE) + 15) / 16 * 16;
    return (judge->kernels = woi_kernels_get(err)) &&
                   (judge->q = woi_alloc(judge->n, hash->d * sizeof *judge->q, err)) &&
                   (judge->opened = woi_alloc(threads, judge->n_opened * sizeof *judge->opened, err)) &&
                   (judge->scratch = woi_alloc_zero(threads, judge->n_scratch * sizeof *judge->scratch, err)) &&
                   (judge->seen = woi_alloc(threads, judge->m * sizeof *judge->seen, err)) &&
                   (judge->planes = woi_alloc(hash->d + 1, hash->n_planes * sizeof *judge->planes, err))
               ? WO_OK
           : judge->kernels ? WO_ERR_MEMORY
                            : WO_ERR_UNSUPPORTED;
}

wo_status woi_lss_judge_create(const wo_log *log, uint32_t *labelled, size_t *n_labelled, const wo_index *index,
                               woi_lss_judge *judge, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const size_t all = *n_labelled, tenth = all / SHARE;
    *judge = (woi_lss_judge){.log = log,
                             .m = index->rows.m,
                             .probes = o->probes,
                             .threads = woi_team_threads(o->threads),
                             .held_out = all >= LEAST,
                             .limit = o->max_classes};
    judge->n = !judge->held_out ? all : tenth < MOST ? tenth : MOST;
    if (!(judge->query = woi_alloc(judge->n, sizeof *judge->query, err))) return WO_ERR_MEMORY;
    for (size_t i = 0; i < judge->n; i++)
        judge->query[i] =
            labelled[judge->held_out ? woi_rng_permute(o->seed, WOI_LSS_HELD_OUT, 0, all, i) : (uint64_t)i];
    qsort(judge->query, judge->n, sizeof *judge->query, rising);
    if (judge->held_out) leave_out(judge, labelled, n_labelled);
    const wo_status status = allocate(judge, &index->hash, err);
    if (status) {
        woi_lss_judge_free(judge);
        return status;
    }
    for (size_t i = 0; i < judge->n; i++) {
        const size_t query = judge->query[i];
        judge->n_labels += (uint64_t)(log->indptr[query + 1] - log->indptr[query]);
        memcpy(judge->q + i * log->d, log->queries + query * log->d, log->d * sizeof *judge->q);
    }
    return WO_OK;
}

void woi_lss_judge_free(woi_lss_judge *judge)
{
    void *const owned[] = {judge->query, judge->q, judge->opened, judge->scratch, judge->seen, judge->planes};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    *judge = (woi_lss_judge){0};
}

/* ---- One step ---------------------------------------------------------------------------------------------- */

typedef struct hearing {
    const woi_lss_judge *judge;
    const woi_lss_state *state;
    bool neurons;        /* what is counted: neurons met, or labels found */
    atomic_ullong total; /* a whole number: the order of the threads does not matter */
} hearing;

/* The labels of a query that lie in its opened cells, `probes` of each table. */
static uint64_t labels_found(const woi_lss_judge *judge, const woi_lss_state *state, size_t i, const uint32_t *opened)
{
    const wo_log *log = judge->log;
    const uint32_t L = state->hash->L, probes = judge->probes;
    uint64_t found = 0;
    for (int64_t at = log->indptr[judge->query[i]]; at < log->indptr[judge->query[i] + 1]; at++) {
        const uint32_t *of = state->neuron_cells + (size_t)log->labels[at] * L;
        bool is_found = false;
        for (uint32_t c = 0; c < L * probes && !is_found; c++) is_found = opened[c] == of[c / probes];
        found += is_found;
    }
    return found;
}

/* The distinct neurons in those cells. */
static uint64_t neurons_met(const woi_lss_judge *judge, const woi_lss_state *state, size_t i, const uint32_t *opened,
                            uint32_t *seen)
{
    const woi_cells *cells = state->cells;
    uint64_t met = 0;
    for (uint32_t c = 0; c < state->hash->L * judge->probes; c++)
        for (uint32_t at = cells->offsets[opened[c]]; at < cells->offsets[opened[c] + 1]; at++) {
            uint32_t *mark = seen + cells->ids[at];
            met += *mark != i;
            *mark = (uint32_t)i;
        }
    return met;
}

static void hear(void *own, int worker, size_t first, size_t end)
{
    hearing *h = own;
    const woi_lss_judge *judge = h->judge;
    const woi_hash *hash = h->state->hash;
    const size_t each = (size_t)hash->L * judge->probes;
    uint32_t *opened = judge->opened + (size_t)worker * judge->n_opened, *n_opened = opened + TILE * each;
    uint32_t *seen = judge->seen + (size_t)worker * judge->m;
    uint64_t total = 0;
    woi_hash_route(hash, judge->kernels,
                   &(woi_routing){.q = judge->q + first * hash->d,
                                  .n = end - first,
                                  .probes = judge->probes,
                                  .cells = opened,
                                  .n_cells = n_opened,
                                  .scratch = judge->scratch + (size_t)worker * judge->n_scratch});
    for (size_t i = first; i < end; i++, opened += each) {
        if (!n_opened[i - first]) continue;
        total += h->neurons ? neurons_met(judge, h->state, i, opened, seen) : labels_found(judge, h->state, i, opened);
    }
    h->total += total;
}

static double count(woi_lss_judge *judge, const woi_lss_state *state, bool neurons)
{
    hearing h = {.judge = judge, .state = state, .neurons = neurons};
    if (neurons) memset(judge->seen, 0xff, (size_t)judge->threads * judge->m * sizeof *judge->seen);
    woi_team_ranges(judge->threads, judge->n, TILE, hear, &h);
    return (double)h.total / (neurons ? (double)judge->n : (double)judge->n_labels);
}

/* Within the limit comes first; then recall, and where that is the same fewer neurons; beyond it fewer neurons. An
 * earlier step stays where a later one is no better. */
static bool is_better(const woi_lss_verdict *a, const woi_lss_verdict *b)
{
    if (a->within != b->within) return a->within;
    if (!a->within && a->neurons != b->neurons) return a->neurons < b->neurons;
    return a->recall > b->recall || (a->recall == b->recall && a->neurons < b->neurons);
}

woi_lss_verdict woi_lss_judge_step(woi_lss_judge *judge, uint64_t step, const woi_lss_state *state, bool all)
{
    woi_lss_verdict now = {.step = step, .recall = count(judge, state, false), .neurons = NAN};
    const bool worse = judge->any && judge->best.within && now.recall < judge->best.recall;
    if (worse && !all) return now;
    now.neurons = count(judge, state, true);
    now.within = !judge->limit || now.neurons <= (double)judge->limit;
    if (worse || (judge->any && !is_better(&now, &judge->best))) return now;
    const woi_hash *hash = state->hash;
    memcpy(judge->planes, hash->planes, hash->d * hash->n_planes * sizeof *judge->planes);
    memcpy(judge->planes + hash->d * hash->n_planes, hash->bias_planes, hash->n_planes * sizeof *judge->planes);
    judge->any = true;
    judge->best = now;
    return now;
}

void woi_lss_judge_restore(const woi_lss_judge *judge, woi_hash *hash)
{
    memcpy(hash->planes, judge->planes, hash->d * hash->n_planes * sizeof *hash->planes);
    memcpy(hash->bias_planes, judge->planes + hash->d * hash->n_planes, hash->n_planes * sizeof *hash->bias_planes);
}
