/* How good an index is: its answers against labels and against FULL's answers, over a log.
 *
 * Every figure is a quotient of two whole numbers that are added up, so the order in which threads add them does not
 * matter. */
#include "judge/evaluate.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/sized.h"
#include "search/searcher.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024, PIECE = 64 };           /* queries between two reports; queries that a thread takes at once */
enum { PRECISION_K = 5 };                    /* P@1, P@3 and P@5 */
enum { MAX_K = 1000, MAX_BATCH = 1u << 16 }; /* of the options */

const wo_eval_options woi_eval_defaults = {
    .struct_size = sizeof woi_eval_defaults,
    .ks = {1, 5},
    .n_ks = 2,
    .batches = {1, 1024},
    .n_batches = 2,
    .batch = 1024,
    .seed = 1,
};

void wo_eval_defaults(wo_eval_options *options, size_t options_bytes)
{
    woi_sized_defaults(options, options_bytes, &woi_eval_defaults, sizeof woi_eval_defaults);
}

/* ---- Judging ----------------------------------------------------------------------------------------------- */

/* Whole numbers only. */
typedef struct tally {
    uint64_t unlabelled, empty, wider, exact, cells, candidates;
    uint64_t hits[3], full_hits[3];                 /* among the first 1, 3 and 5 */
    uint64_t labels, retrieved, ranked, rank_sum;   /* ranked: retrieved and not by FULL; the sum of their ranks */
    uint64_t common[WO_EVAL_MAX], all[WO_EVAL_MAX]; /* by ks: of FULL's answers in the method's, FULL's answers */
} tally;

/* The scratch and the sums of one thread. */
typedef struct worker {
    wo_searcher *searcher;
    int32_t *labels; /* of a query */
    woi_ranked *ranked;
    int32_t *candidates;
    float *logits;
    size_t candidates_room, logits_room;
    int32_t *sorted; /* k */
    tally sums;
    wo_status status;
    wo_error err;
} worker;

/* A chunk of queries and their answers. */
typedef struct chunk {
    size_t n, k;
    const size_t *picks;
    uint8_t *refused;        /* (n): set where the index or FULL has no answer, because its scores are not finite */
    float *q;                /* (n, d) */
    int32_t *ids, *full_ids; /* (n, k) */
    float *scores;
    wo_query_stats *stats;
    wo_by by;
    woi_likelihood *likelihood; /* NULL: the index has no partition */
    woi_log_sum full_log_z[CHUNK];
} chunk;

static void add_hits(const int32_t *labels, size_t n, const int32_t *ids, uint64_t hits[3])
{
    for (int i = 0; i < 3; i++) hits[i] += woi_hits(labels, n, ids, (size_t)(2 * i + 1));
}

static void compare(worker *w, const wo_eval_options *options, const int32_t *ids, const int32_t *full)
{
    for (size_t i = 0; i < options->n_ks; i++) {
        const woi_agreement a = woi_agree(ids, full, options->ks[i], w->sorted);
        w->sums.common[i] += a.common;
        w->sums.all[i] += a.all;
    }
}

/* Which labels are candidates, and where they stand among them. */
static wo_status judge_candidates(const woi_eval *eval, worker *w, const chunk *c, size_t query, size_t n_labels,
                                  wo_error *err)
{
    const woi_dense *rows = &eval->index->rows;
    const woi_kernels *kernels = woi_kernels_get(err);
    const float *q = c->q + query * eval->log->d;
    size_t n = c->stats[query].candidates;
    const wo_search_call call = {.struct_size = sizeof call,
                                 .queries = q,
                                 .n = 1,
                                 .k = c->k,
                                 .probes = eval->options->probes,
                                 .by = WO_BY_CELLS};
    wo_status status;
    if (!kernels) return WO_ERR_UNSUPPORTED;
    if ((status = woi_grow(&w->candidates, &w->candidates_room, 0, n, sizeof *w->candidates, err)) ||
        (status = woi_grow(&w->logits, &w->logits_room, 0, n, sizeof *w->logits, err)) ||
        (status = wo_search_candidates(w->searcher, &call, w->candidates, w->candidates_room, &n, err)))
        return status;
    size_t found = 0;
    if (rows->w)
        kernels->gather_f32(q, rows->w, w->candidates, n, rows->d, rows->d, w->logits);
    else
        kernels->gather_bf16(q, eval->index->small.bf16, w->candidates, n, rows->d, rows->d, w->logits);
    for (size_t i = 0; i < n; i++) {
        const int32_t id = w->candidates[i];
        if (rows->b) w->logits[i] += rows->b[id];
        if (woi_ids_find(w->labels, n_labels, id)) w->ranked[found++] = (woi_ranked){w->logits[i], id, 0};
    }
    woi_rank_begin(w->ranked, found);
    woi_rank_count(w->ranked, found, w->logits, w->candidates, 0, n);
    w->sums.retrieved += found;
    w->sums.ranked += found;
    w->sums.rank_sum += woi_rank_sum(w->ranked, found);
    return WO_OK;
}

static wo_status judge_query(const woi_eval *eval, worker *w, const chunk *c, size_t i, wo_error *err)
{
    const wo_query_stats *stats = &c->stats[i];
    if (eval->full && eval->full->m > eval->index->n_removed && c->full_ids[i * c->k] < 0) c->refused[i] = 1;
    if (stats->status) c->refused[i] = 1;
    if (c->refused[i]) return WO_OK;
    w->sums.empty += stats->candidates == 0;
    w->sums.wider += stats->wider;
    w->sums.exact += stats->exact;
    w->sums.cells += stats->cells;
    w->sums.candidates += stats->candidates;
    if (eval->full) compare(w, eval->options, c->ids + i * c->k, c->full_ids + i * c->k);
    const size_t n_labels =
        eval->log->indptr ? woi_labels_of(eval->log->indptr, eval->log->labels, c->picks[i], w->labels) : 0;
    w->sums.unlabelled += n_labels == 0;
    if (n_labels == 0) return WO_OK;
    w->sums.labels += n_labels;
    add_hits(w->labels, n_labels, c->ids + i * c->k, w->sums.hits);
    if (eval->full) add_hits(w->labels, n_labels, c->full_ids + i * c->k, w->sums.full_hits);
    /* All classes are full's candidates: its ranks are those of woi_eval_rank. */
    if (stats->exact) w->sums.retrieved += n_labels;
    if (stats->candidates == 0 || stats->exact) return WO_OK;
    return judge_candidates(eval, w, c, i, n_labels, err);
}

static wo_status judge_piece(const woi_eval *eval, worker *w, const chunk *c, size_t first, size_t count, wo_error *err)
{
    const wo_search_call call = {.struct_size = sizeof call,
                                 .queries = c->q + first * eval->log->d,
                                 .n = count,
                                 .k = c->k,
                                 .ids = c->ids + first * c->k,
                                 .scores = c->scores + first * c->k,
                                 .stats = c->stats + first,
                                 .by = c->by,
                                 .probes = eval->options->probes,
                                 .exact_fallback = eval->options->exact_fallback,
                                 .no_prior = eval->options->no_prior};
    wo_status status = wo_search_run(w->searcher, &call, err);
    for (size_t i = first; !status && i < first + count; i++) status = judge_query(eval, w, c, i, err);
    return status;
}

typedef struct judging {
    const woi_eval *eval;
    worker *workers;
    const chunk *c;
} judging;

static void judge_part(void *own, int worker_number, size_t first, size_t end)
{
    const judging *j = own;
    worker *w = &j->workers[worker_number];
    if (!w->status) w->status = judge_piece(j->eval, w, j->c, first, end - first, &w->err);
}

static wo_status judge_chunk(const woi_eval *eval, worker *workers, chunk *c, wo_error *err)
{
    const size_t d = eval->log->d;
    const uint8_t *removed = eval->index->n_removed ? workers[0].searcher->forbidden : NULL; /* between its calls */
    wo_status status = WO_OK;
    for (size_t i = 0; i < c->n; i++) memcpy(c->q + i * d, eval->log->queries + c->picks[i] * d, d * sizeof *c->q);
    if (eval->full)
        status = woi_exact_topk(&(woi_exact_call){.layer = eval->full,
                                                  .adjust = {.forbidden = removed},
                                                  .q = c->q,
                                                  .n = c->n,
                                                  .k = c->k,
                                                  .threads = eval->threads,
                                                  .ids = c->full_ids,
                                                  .scores = c->scores,
                                                  .lse = c->likelihood ? c->full_log_z : NULL},
                                err);
    if (status) return status;
    if (eval->full) woi_drop_infinite(c->full_ids, c->scores, c->n, c->k);
    const woi_likely batch = {c->q, c->picks, c->n, eval->full ? c->full_log_z : NULL};
    if (c->likelihood && (status = woi_likelihood_add(c->likelihood, &batch, err))) return status;
    woi_team_ranges(eval->threads, c->n, PIECE, judge_part, &(judging){eval, workers, c});
    for (int i = 0; !status && i < eval->threads; i++)
        if ((status = workers[i].status) && err) *err = workers[i].err;
    return status;
}

static void free_workers(worker *workers, int n)
{
    for (int i = 0; workers && i < n; i++) {
        wo_searcher_free(workers[i].searcher);
        woi_free(workers[i].labels);
        woi_free(workers[i].ranked);
        woi_free(workers[i].candidates);
        woi_free(workers[i].logits);
        woi_free(workers[i].sorted);
    }
    woi_free(workers);
}

static wo_status make_workers(const woi_eval *eval, size_t k, worker **workers, wo_error *err)
{
    const size_t most = woi_most_labels(eval->log->indptr, eval->log->n);
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = 1, .max_probes = eval->options->probes};
    worker *made = *workers = woi_alloc_zero((size_t)eval->threads, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    for (int i = 0; i < eval->threads; i++) {
        wo_status status = wo_searcher_create(eval->index, &so, &made[i].searcher, err);
        if (status) return status;
        if (!(made[i].labels = woi_alloc(most, sizeof(int32_t), err)) ||
            !(made[i].ranked = woi_alloc(most, sizeof(woi_ranked), err)) ||
            !(made[i].sorted = woi_alloc(k, sizeof(int32_t), err)))
            return WO_ERR_MEMORY;
    }
    return WO_OK;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : NAN;
}

static void conclude(const woi_eval *eval, const tally *t)
{
    wo_eval_result *r = eval->result;
    const uint64_t n = eval->n, labelled = n - t->unlabelled;
    r->n = n;
    r->skipped = t->unlabelled;
    r->p_at_1 = share(t->hits[0], labelled);
    r->p_at_3 = share(t->hits[1], 3 * labelled);
    r->p_at_5 = share(t->hits[2], 5 * labelled);
    r->full_p_at_1 = eval->full ? share(t->full_hits[0], labelled) : NAN;
    r->full_p_at_3 = eval->full ? share(t->full_hits[1], 3 * labelled) : NAN;
    r->full_p_at_5 = eval->full ? share(t->full_hits[2], 5 * labelled) : NAN;
    for (size_t i = 0; i < eval->options->n_ks; i++) r->agreement[i] = share(t->common[i], t->all[i]);
    r->label_recall = share(t->retrieved, t->labels);
    r->sample_size = share(t->candidates, n);
    r->cells = share(t->cells, n);
    r->empty_share = share(t->empty, n);
    r->wider_share = share(t->wider, n);
    r->exact_share = share(t->exact, n);
    r->label_rank_retrieved = share(t->rank_sum, t->ranked);
}

/* Of the picks, those that either side has no answer to are none. */
static wo_status leave_out(woi_eval *eval, const uint8_t *refused, wo_error *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < eval->n; i++)
        if (!refused[i]) eval->picks[kept++] = eval->picks[i];
    eval->result->refused += eval->n - kept;
    eval->n = kept;
    if (kept) return WO_OK;
    return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                          "every query of the log has numbers or scores that are not finite");
}

static wo_status judge(woi_eval *eval, wo_error *err)
{
    const size_t d = eval->log->d;
    worker *workers = NULL;
    uint8_t *refused = woi_alloc_zero(eval->n, 1, err);
    chunk c = {.k = PRECISION_K};
    if (!refused) return WO_ERR_MEMORY;
    for (size_t i = 0; i < eval->options->n_ks; i++)
        if (eval->options->ks[i] > c.k) c.k = eval->options->ks[i];
    /* Queries go through in pieces; who answers them is what the planner says of the batch that was asked for. */
    const bool by_full = woi_batches_have(eval->index->full, eval->options->batch) && eval->index->rows.w;
    c.by = by_full ? WO_BY_FULL : WO_BY_CELLS;
    wo_status status = make_workers(eval, c.k, &workers, err);
    if (!status) status = woi_likelihood_create(eval, CHUNK, &c.likelihood, err);
    if (status) goto done;
    if (!(c.q = woi_alloc(CHUNK * d, sizeof *c.q, err)) || !(c.ids = woi_alloc(CHUNK * c.k, sizeof *c.ids, err)) ||
        !(c.full_ids = woi_alloc(CHUNK * c.k, sizeof *c.full_ids, err)) ||
        !(c.scores = woi_alloc(CHUNK * c.k, sizeof *c.scores, err)) ||
        !(c.stats = woi_alloc(CHUNK, sizeof *c.stats, err))) {
        status = WO_ERR_MEMORY;
        goto done;
    }
    for (size_t first = 0; !status && first < eval->n; first += CHUNK) {
        c.n = eval->n - first < CHUNK ? eval->n - first : CHUNK;
        c.picks = eval->picks + first;
        c.refused = refused + first;
        status = woi_progress(&eval->options->progress, "judging", first, eval->n, err);
        if (!status) status = judge_chunk(eval, workers, &c, err);
    }
    if (!status) status = leave_out(eval, refused, err);
    if (status) goto done;
    tally sum = {0};
    for (int i = 0; i < eval->threads; i++) /* a struct of uint64_t alone */
        for (size_t j = 0; j < sizeof sum / sizeof(uint64_t); j++)
            ((uint64_t *)&sum)[j] += ((const uint64_t *)&workers[i].sums)[j];
    conclude(eval, &sum);
    woi_likelihood_conclude(c.likelihood, eval->result);
done:
    woi_likelihood_free(c.likelihood);
    free_workers(workers, eval->threads);
    woi_free(refused);
    woi_free(c.q);
    woi_free(c.ids);
    woi_free(c.full_ids);
    woi_free(c.scores);
    woi_free(c.stats);
    return status;
}

/* ---- The call ---------------------------------------------------------------------------------------------- */

static wo_status check_options(const wo_eval_options *o, wo_error *err)
{
    if (o->n_ks > WO_EVAL_MAX || o->n_batches > WO_EVAL_MAX)
        return woi_fail_option(err, WO_ERR_ARGUMENT, o->n_ks > WO_EVAL_MAX ? "n_ks" : "n_batches",
                               "%zu values of k and %zu batch sizes, expected at most %d", o->n_ks, o->n_batches,
                               WO_EVAL_MAX);
    for (size_t i = 0; i < o->n_ks; i++)
        if (o->ks[i] < 1 || o->ks[i] > MAX_K)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "ks", "k is %" PRIu32 ", expected 1 to %d", o->ks[i], MAX_K);
    for (size_t i = 0; i <= o->n_batches; i++) {
        const uint32_t batch = i < o->n_batches ? o->batches[i] : o->batch;
        if (batch < 1 || batch > MAX_BATCH)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "batch", "batch is %" PRIu32 ", expected 1 to %d", batch,
                                   MAX_BATCH);
    }
    return woi_check_range("threads", o->threads, 0, WOI_MAX_THREADS, err);
}

/* The queries to judge: all, or a sample, without those that are not finite. */
static wo_status pick(woi_eval *eval, wo_error *err)
{
    const wo_log *log = eval->log;
    const uint64_t most = eval->options->max_queries;
    const size_t n = most && most < log->n ? (size_t)most : log->n;
    if (!(eval->picks = woi_alloc(n, sizeof *eval->picks, err))) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const size_t query = woi_rng_place(eval->options->seed, WOI_EVAL_STREAM_QUERIES, i, n, log->n);
        if (woi_all_finite(log->queries + query * log->d, log->d))
            eval->picks[eval->n++] = query;
        else
            eval->result->refused++;
    }
    if (eval->n == 0)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                              "every query of the log has numbers or scores that are not finite");
    return WO_OK;
}

/* What 0 means for ever: the size that they had in version 0.1. */
enum { TIMING_BYTES_0_1 = 72 };

/* To the caller's struct and the caller's timings, whatever their sizes. */
static wo_status hand_over(wo_eval_result *r, wo_eval_result *result)
{
    const wo_eval_timing *from = r->timings;
    r->timings = result->timings;
    r->timings_room = result->timings_room;
    r->timing_bytes = result->timing_bytes ? result->timing_bytes : TIMING_BYTES_0_1;
    for (size_t i = 0; r->timings && i < r->n_timings && i < r->timings_room; i++) {
        char *to = (char *)r->timings + i * r->timing_bytes;
        memset(to, 0, r->timing_bytes);
        memcpy(to, &from[i], r->timing_bytes < sizeof *from ? r->timing_bytes : sizeof *from);
    }
    return woi_sized_give(result, r, sizeof *r);
}

wo_status wo_evaluate(const wo_index *index, const wo_layer *layer, const wo_log *log, const wo_eval_options *options,
                      wo_eval_result *result, wo_error *err)
{
    wo_eval_options o = woi_eval_defaults;
    wo_status status = woi_sized_take(&o, sizeof o, options, "evaluation options", err);
    if (!status) status = check_options(&o, err);
    if (status) return status;
    if (!woi_sized_set(result) || result->struct_size < offsetof(wo_eval_result, n))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "struct_size", "struct_size of the result is not set");
    if ((status = woi_refuse_shard(index, "is not to be compared with the whole layer", err))) return status;
    if (layer && (status = woi_refuse_other_layer(index, layer, index->rows.b, err))) return status;
    if ((status = woi_log_check(log, index->rows.m, index->rows.d, err))) return woi_about(err, WO_ABOUT_LOG, status);
    if (log->n == 0) return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "", "the log has no queries");
    wo_eval_timing timings[WO_EVAL_MAX + 1];
    wo_eval_result r = {
        .timings = timings,
        .label_rank = NAN,
        .cold_us = NAN,
        .full_cold_us = NAN,
        .energy_j_per_1000 = NAN,
        .full_energy_j_per_1000 = NAN,
        .full_of_peak = NAN,
        .full_of_read = NAN,
        .perplexity = NAN,
        .full_perplexity = NAN,
        .log_z_error = NAN,
        .log_z_bias = NAN,
        .probability_sum = NAN,
        .energy_note = "nothing was timed",
    };
    woi_eval eval = {.index = index, .log = log, .options = &o, .threads = woi_team_threads(o.threads), .result = &r};
    if (layer || index->rows.w) eval.full = layer ? &layer->dense : &index->rows;
    status = pick(&eval, err);
    if (!status) status = judge(&eval, err);
    if (!status && eval.full && log->indptr) status = woi_eval_rank(&eval, err); /* of those that both can answer */
    if (index->options.method == WO_METHOD_FULL) r.label_rank_retrieved = r.label_rank;
    if (!status && !o.skip_timing) status = woi_eval_time(&eval, err);
    woi_free(eval.picks);
    return status ? status : hand_over(&r, result);
}
