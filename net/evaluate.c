/* What queries are for: precision of the exact layer, and logs. */
#include "net/queries.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/progress.h"
#include "store/log.h"

#include <string.h>

enum { K = 5 };

/* A class and its logit; -1 where there is none. */
typedef struct scored {
    int32_t id;
    float score;
} scored;

/* Hits so far. */
typedef struct tally {
    woi_dense layer;
    size_t n_words;
    int threads;
    uint64_t n, unlabelled, first, hits;
    int32_t *ids, *labels; /* of a batch; of one query */
    float *scores;
    size_t ids_room, labels_room, scores_room;
    /* A word network has few queries, and many a time: the answers of a word are found once. */
    int32_t *answers; /* (n_words, K); the first is -1 where a word was not asked yet */
    float *fresh;     /* the queries of the words that come up in a batch for the first time */
    int32_t *fresh_words;
    size_t fresh_room, fresh_words_room;
    /* Where processes share the layer: the best of each, rank after rank, (n, K) each. */
    const wo_collective *ranks;
    woi_portion share;
    scored *own, *all;
    size_t *bytes; /* (size) */
    size_t own_room, all_room;
} tally;

static tally tally_of(const woi_network *net, int threads)
{
    return (tally){.layer = woi_network_output(net),
                   .n_words = net->n_inputs,
                   .threads = threads,
                   .ranks = net->ranks,
                   .share = woi_portion_of(net->ranks, net->m)};
}

/* Whether a goes before b: the better one, of equal ones the lower id. */
static bool before(const scored *a, const scored *b)
{
    if (a->id < 0 || b->id < 0) return a->id >= 0;
    return a->score > b->score || (a->score == b->score && a->id < b->id);
}

/* The K best of a query out of the ranks' lists, each best first. */
static void merge_one(const tally *t, size_t n, size_t i)
{
    const size_t size = t->share.stride;
    scored *mine = t->own + i * K; /* sent already: room for the result */
    for (size_t k = 0; k < K; k++) mine[k] = t->all[i * K + k];
    for (size_t r = 1; r < size; r++) {
        const scored *theirs = t->all + (r * n + i) * K;
        for (size_t j = 0; j < K && before(&theirs[j], &mine[K - 1]); j++) {
            size_t place = K - 1;
            for (; place > 0 && before(&theirs[j], &mine[place - 1]); place--) mine[place] = mine[place - 1];
            mine[place] = theirs[j];
        }
    }
    for (size_t k = 0; k < K; k++) t->ids[i * K + k] = mine[k].id;
}

/* ids (n, K) of this process's rows become the classes that are best of all. */
static wo_status merge(tally *t, size_t n, wo_error *err)
{
    const size_t size = t->share.stride;
    wo_status status;
    if (!t->bytes && !(t->bytes = woi_alloc(size, sizeof *t->bytes, err))) return WO_ERR_MEMORY;
    if ((status = woi_grow(&t->own, &t->own_room, 0, n * K, sizeof *t->own, err)) ||
        (status = woi_grow(&t->all, &t->all_room, 0, size * n * K, sizeof *t->all, err)))
        return status;
    for (size_t i = 0; i < n * K; i++) {
        const int32_t row = t->ids[i];
        t->own[i] = (scored){row < 0 ? -1 : (int32_t)(t->share.first + (size_t)row * t->share.stride), t->scores[i]};
    }
    for (size_t r = 0; r < size; r++) t->bytes[r] = n * K * sizeof *t->own;
    status = t->ranks->gather(t->ranks->ctx, t->own, t->bytes, t->all, err);
    for (size_t i = 0; !status && i < n; i++) merge_one(t, n, i);
    return status;
}

static wo_status answer(tally *t, const float *q, size_t n, wo_error *err)
{
    wo_status status;
    if ((status = woi_grow(&t->ids, &t->ids_room, 0, n * K, sizeof *t->ids, err)) ||
        (status = woi_grow(&t->scores, &t->scores_room, 0, n * K, sizeof *t->scores, err)))
        return status;
    status = woi_exact_topk(
        &(woi_exact_call){
            .layer = &t->layer, .q = q, .n = n, .k = K, .threads = t->threads, .ids = t->ids, .scores = t->scores},
        err);
    return status || !t->ranks ? status : merge(t, n, err);
}

/* Answers the words of a batch that were not asked before. */
static wo_status answer_words(tally *t, const woi_query_batch *batch, wo_error *err)
{
    const size_t d = t->layer.d;
    size_t n = 0;
    wo_status status;
    if (!t->answers) {
        if (!(t->answers = woi_alloc(t->n_words * K, sizeof *t->answers, err))) return WO_ERR_MEMORY;
        for (size_t i = 0; i < t->n_words; i++) t->answers[i * K] = -1;
    }
    if ((status = woi_grow(&t->fresh, &t->fresh_room, 0, batch->n * d, sizeof *t->fresh, err)) ||
        (status = woi_grow(&t->fresh_words, &t->fresh_words_room, 0, batch->n, sizeof *t->fresh_words, err)))
        return status;
    for (size_t i = 0; i < batch->n; i++) {
        int32_t *of_word = t->answers + (size_t)batch->words[i] * K;
        if (of_word[0] >= 0) continue;
        of_word[0] = 0; /* will be there when the batch is counted */
        memcpy(t->fresh + n * d, batch->q + i * d, d * sizeof *t->fresh);
        t->fresh_words[n++] = batch->words[i];
    }
    if (n == 0 || (status = answer(t, t->fresh, n, err))) return n ? status : WO_OK;
    for (size_t i = 0; i < n; i++)
        memcpy(t->answers + (size_t)t->fresh_words[i] * K, t->ids + i * K, K * sizeof *t->answers);
    return WO_OK;
}

static wo_status score_batch(tally *t, const woi_query_batch *batch, wo_error *err)
{
    const size_t most = woi_most_labels(batch->indptr, batch->n);
    wo_status status = woi_grow(&t->labels, &t->labels_room, 0, most, sizeof *t->labels, err);
    if (!status) status = batch->words ? answer_words(t, batch, err) : answer(t, batch->q, batch->n, err);
    if (status) return status;
    for (size_t i = 0; i < batch->n; i++) {
        const int32_t *ids = batch->words ? t->answers + (size_t)batch->words[i] * K : t->ids + i * K;
        const size_t n_labels = woi_labels_of(batch->indptr, batch->labels, i, t->labels);
        t->unlabelled += n_labels == 0;
        t->first += woi_hits(t->labels, n_labels, ids, 1);
        t->hits += woi_hits(t->labels, n_labels, ids, K);
    }
    t->n += batch->n;
    return WO_OK;
}

static woi_precision precision_of(const tally *t)
{
    const double n = t->n > t->unlabelled ? (double)(t->n - t->unlabelled) : 1;
    return (woi_precision){t->n, t->unlabelled, (double)t->first / n, (double)t->hits / n / K};
}

static void tally_free(tally *t)
{
    woi_free(t->ids);
    woi_free(t->labels);
    woi_free(t->scores);
    woi_free(t->answers);
    woi_free(t->fresh);
    woi_free(t->fresh_words);
    woi_free(t->own);
    woi_free(t->all);
    woi_free(t->bytes);
}

wo_status woi_evaluate(const woi_network *net, const char *path, const woi_queries_options *options,
                       const wo_progress *progress, woi_precision *precision, wo_error *err)
{
    woi_queries *queries = NULL;
    tally t = tally_of(net, options->threads);
    wo_status status = woi_queries_open(net, path, options, &queries, err);
    for (bool more = !status; !status && more;) {
        woi_query_batch batch;
        status = woi_progress(progress, "evaluating", t.n, woi_queries_n(queries), err);
        if (!status) status = woi_queries_next(queries, &batch, &more, err);
        if (!status) status = score_batch(&t, &batch, err);
    }
    *precision = precision_of(&t);
    woi_queries_free(queries);
    tally_free(&t);
    return status;
}

/* ---- Logs -------------------------------------------------------------------------------------------------- */

wo_status woi_embed(const woi_network *net, const char *path, const woi_queries_options *options,
                    const woi_embed_options *log, woi_embedded *result, wo_error *err)
{
    tally score = tally_of(net, options->threads);
    woi_queries *queries = NULL;
    wo_log_writer *writer = NULL;
    uint64_t done = 0;
    wo_status status = woi_queries_open(net, path, options, &queries, err);
    if (status) goto done;
    result->n = woi_queries_n(queries);
    const wo_log_writer_options o = {
        .struct_size = sizeof o, .d = net->d, .n = result->n, .labels = true, .bf16 = log->bf16};
    if ((status = wo_log_writer_create(log->path, &o, &writer, err)) ||
        (options->distinct && (status = woi_log_set_counted(writer, log->path, err))) ||
        (status = woi_log_set_meta(writer, "arch", woi_arch_name(net->arch), err)))
        goto done;
    for (bool more = true; !status && more;) {
        woi_query_batch batch;
        if ((status = woi_queries_next(queries, &batch, &more, err)) ||
            (status = woi_log_append_rows(writer,
                                          &(woi_log_rows){.n = batch.n,
                                                          .queries = batch.q,
                                                          .indptr = batch.indptr,
                                                          .labels = batch.labels,
                                                          .counts = batch.counts,
                                                          .label_counts = batch.label_counts},
                                          err)) ||
            (log->score && (status = score_batch(&score, &batch, err))))
            break;
        done += batch.n;
        status = woi_progress(log->progress, "embedding", done, result->n, err);
    }
    if (!status) status = wo_log_finish(writer, err);
    result->precision = precision_of(&score);
done:
    tally_free(&score);
    wo_log_writer_free(writer);
    woi_queries_free(queries);
    return status;
}
