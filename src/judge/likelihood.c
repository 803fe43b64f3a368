/* How likely an index finds the labels, beside FULL: perplexity, and how far its log Z is off.
 *
 *   -log p(label) = log Z - score(label)
 *
 * Every label counts, with its exact score, whether it is a candidate or not. FULL's are those of the layer alone; the
 * index's have the shares of the cells mixed in, or its prior, where its probabilities do. Sums are taken in the order
 * of the queries, on one thread. */
#include "judge/evaluate.h"

#include "base/hits.h"
#include "base/mem.h"
#include "search/searcher.h"

#include <math.h>
#include <string.h>

enum { ANSWERS = 1 << 20 }; /* candidates with their scores that are held at a time */

struct woi_likelihood {
    const woi_eval *eval;
    wo_searcher *searcher;
    size_t room;               /* queries that an addition may have */
    float *log_z, *exact;      /* (room): the index's, and the exact one of the same scores */
    float *rest;               /* (room): log_z of classes that no opened cell holds, by a mixture */
    int32_t *labels;           /* of a query */
    size_t k, piece;           /* with shares: candidates of a query, at most, and queries searched at a time */
    int32_t *ids;              /* (piece, k) */
    float *scores;             /* log probabilities */
    double sum, full_sum;      /* of -log p */
    double r, r_square, r_exp; /* of the exact log Z - the index's; sums of probabilities */
    uint64_t n_labels, n;      /* queries */
};

void woi_likelihood_free(woi_likelihood *l)
{
    if (!l) return;
    wo_searcher_free(l->searcher);
    woi_free(l->log_z);
    woi_free(l->exact);
    woi_free(l->rest);
    woi_free(l->labels);
    woi_free(l->ids);
    woi_free(l->scores);
    woi_free(l);
}

/* Whether probabilities are those of logits and a prior, as in files of older versions; or of a mixture. */
static bool has_prior(const woi_eval *eval)
{
    return eval->index->options.prior > 0 && eval->index->options.mix < 0 && !eval->options->no_prior;
}

static bool is_mixed(const woi_eval *eval)
{
    return eval->index->options.mix > 0 && !eval->options->no_prior;
}

wo_status woi_likelihood_create(const woi_eval *eval, size_t room, woi_likelihood **likelihood, wo_error *err)
{
    const wo_index *index = eval->index;
    const uint32_t probes = eval->options->probes, own = index->options.probes;
    *likelihood = NULL;
    if (!index->partition.numbers || (probes && probes != own)) return WO_OK; /* log Z is known for its own probes */
    woi_likelihood *l = woi_alloc_zero(1, sizeof *l, err);
    if (!l) return WO_ERR_MEMORY;
    l->eval = eval;
    l->room = room;
    wo_status status = wo_searcher_create(
        index, &(wo_searcher_options){.struct_size = sizeof(wo_searcher_options), .threads = eval->threads},
        &l->searcher, err);
    l->log_z = woi_alloc(room, sizeof *l->log_z, err);
    l->exact = woi_alloc(room, sizeof *l->exact, err);
    l->rest = woi_alloc(room, sizeof *l->rest, err);
    l->labels = woi_alloc(woi_most_labels(eval->log->indptr, eval->log->n), sizeof *l->labels, err);
    if (index->largest && (has_prior(eval) || is_mixed(eval))) { /* else there are no candidates */
        l->k = woi_cells_opened(index, woi_wider_probes(index, own)) * index->largest;
        if (l->k > index->rows.m) l->k = index->rows.m;
        l->piece = ANSWERS / l->k < 1 ? 1 : ANSWERS / l->k < room ? ANSWERS / l->k : room;
    }
    l->ids = woi_alloc(l->piece * l->k, sizeof *l->ids, err);
    l->scores = woi_alloc(l->piece * l->k, sizeof *l->scores, err);
    if (!status && (!l->log_z || !l->exact || !l->rest || !l->labels || !l->ids || !l->scores)) status = WO_ERR_MEMORY;
    if (status)
        woi_likelihood_free(l);
    else
        *likelihood = l;
    return status;
}

/* The labels of a query that have a probability: removed classes have none. */
static size_t labels_of(woi_likelihood *l, size_t query)
{
    const wo_log *log = l->eval->log;
    const size_t n = woi_labels_of(log->indptr, log->labels, query, l->labels);
    size_t kept = 0;
    for (size_t j = 0; j < n; j++)
        if (!woi_is_removed(l->eval->index, l->labels[j])) l->labels[kept++] = l->labels[j];
    return kept;
}

/* What a query's n labels have by FULL. */
static wo_status add_full(woi_likelihood *l, const float *q, size_t n, double log_z, wo_error *err)
{
    const woi_dense *full = l->eval->full;
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    for (size_t j = 0; j < n; j++) {
        float logit;
        kernels->dot_f32(q, full->w + (size_t)l->labels[j] * full->d, 1, full->d, full->d, &logit);
        if (full->b) logit += full->b[l->labels[j]];
        l->full_sum += log_z - (double)logit;
    }
    return WO_OK;
}

/* By the index, query `at` of a batch. With shares, what candidates have is not their logits less log Z. */
static wo_status add_own(woi_likelihood *l, const float *q, size_t n, size_t at, wo_error *err)
{
    const size_t row = l->k ? at % l->piece * l->k : 0;
    for (size_t j = 0; j < n; j++) {
        float logit;
        const wo_status status = wo_score(l->searcher, q, l->labels + j, 1, &logit, err);
        if (status) return status;
        double log_p = (double)logit - (double)l->rest[at];
        for (size_t c = 0; c < l->k && l->ids[row + c] >= 0; c++)
            if (l->ids[row + c] == l->labels[j]) log_p = (double)l->scores[row + c];
        l->sum -= log_p;
    }
    return WO_OK;
}

static wo_status ask(woi_likelihood *l, const woi_likely *b, wo_error *err)
{
    const wo_index *index = l->eval->index;
    wo_search_call call = {.struct_size = sizeof call,
                           .queries = b->q,
                           .n = b->n,
                           .by = WO_BY_CELLS,
                           .exact_fallback = l->eval->options->exact_fallback,
                           .no_prior = !has_prior(l->eval)};
    const bool prior = has_prior(l->eval), mixed = is_mixed(l->eval);
    wo_status status = wo_log_partition(l->searcher, &call, l->log_z, err);
    memcpy(l->rest, l->log_z, b->n * sizeof *l->rest);
    call.no_prior = 0;
    if (!status && mixed) status = wo_log_partition(l->searcher, &call, l->rest, err);
    call.by = WO_BY_FULL;
    if (!status && prior && index->rows.w) return wo_log_partition(l->searcher, &call, l->exact, err);
    for (size_t i = 0; i < b->n; i++)
        l->exact[i] = prior || !b->full_log_z ? NAN : (float)woi_log_sum_whole(b->full_log_z[i]);
    return status;
}

static wo_status ask_candidates(woi_likelihood *l, const woi_likely *b, size_t first, wo_error *err)
{
    const wo_search_call call = {.struct_size = sizeof call,
                                 .queries = b->q + first * l->eval->log->d,
                                 .n = b->n - first < l->piece ? b->n - first : l->piece,
                                 .k = l->k,
                                 .ids = l->ids,
                                 .scores = l->scores,
                                 .by = WO_BY_CELLS,
                                 .score = WO_SCORES_LOGPROB,
                                 .exact_fallback = l->eval->options->exact_fallback};
    return wo_search_run(l->searcher, &call, err);
}

wo_status woi_likelihood_add(woi_likelihood *l, const woi_likely *b, wo_error *err)
{
    const wo_log *log = l->eval->log;
    wo_status status = ask(l, b, err);
    for (size_t i = 0; !status && i < b->n; i++) {
        const float *q = b->q + i * log->d;
        const size_t n = log->indptr ? labels_of(l, b->picks[i]) : 0;
        if (l->k && i % l->piece == 0 && (status = ask_candidates(l, b, i, err))) break;
        if (!isfinite(l->log_z[i]) || (b->full_log_z && !isfinite(b->full_log_z[i].most)))
            continue; /* logits overflow */
        const double r = (double)l->exact[i] - (double)l->log_z[i];
        const double kept = exp((double)l->log_z[i] - (double)l->rest[i]); /* of the network's probabilities */
        l->r += r;
        l->r_square += r * r;
        l->r_exp += kept * exp(r) + 1 - kept;
        l->n++;
        l->n_labels += n;
        status = add_own(l, q, n, i, err);
        if (!status && b->full_log_z) status = add_full(l, q, n, woi_log_sum_whole(b->full_log_z[i]), err);
    }
    return status;
}

void woi_likelihood_conclude(const woi_likelihood *l, wo_eval_result *r)
{
    if (!l || !l->n) return;
    const double n = (double)l->n, labels = (double)l->n_labels;
    r->log_z_error = sqrt(l->r_square / n);
    r->log_z_bias = -l->r / n;
    r->probability_sum = l->r_exp / n;
    if (!l->n_labels) return;
    r->perplexity = exp(l->sum / labels);
    if (l->eval->full) r->full_perplexity = exp(l->full_sum / labels);
}
