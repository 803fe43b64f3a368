/* What queries are for: precision of the exact layer, and logs. */
#include "net/queries.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/progress.h"

#include <string.h>

enum { K = 5 };

/* Hits so far. */
typedef struct tally {
    woi_dense layer;
    int threads;
    uint64_t n, unlabelled, first, hits;
    int32_t *ids, *labels; /* of a batch; of one query */
    float *scores;
    size_t ids_room, labels_room, scores_room;
} tally;

static wo_status score_batch(tally *t, const woi_query_batch *batch, wo_error *err)
{
    wo_status status;
    const size_t most = woi_most_labels(batch->indptr, batch->n);
    if ((status = woi_grow(&t->labels, &t->labels_room, 0, most, sizeof *t->labels, err)) ||
        (status = woi_grow(&t->ids, &t->ids_room, 0, batch->n * K, sizeof *t->ids, err)) ||
        (status = woi_grow(&t->scores, &t->scores_room, 0, batch->n * K, sizeof *t->scores, err)) ||
        (status = woi_exact_topk(&(woi_exact_call){.layer = &t->layer,
                                                   .q = batch->q,
                                                   .n = batch->n,
                                                   .k = K,
                                                   .threads = t->threads,
                                                   .ids = t->ids,
                                                   .scores = t->scores},
                                 err)))
        return status;
    for (size_t i = 0; i < batch->n; i++) {
        const size_t n_labels = woi_labels_of(batch->indptr, batch->labels, i, t->labels);
        t->unlabelled += n_labels == 0;
        t->first += woi_hits(t->labels, n_labels, t->ids + i * K, 1);
        t->hits += woi_hits(t->labels, n_labels, t->ids + i * K, K);
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
}

wo_status woi_evaluate(const woi_network *net, const char *path, const woi_queries_options *options,
                       const wo_progress *progress, woi_precision *precision, wo_error *err)
{
    woi_queries *queries = NULL;
    tally t = {.layer = woi_network_output(net), .threads = options->threads};
    wo_status status = woi_queries_open(net, path, options, &queries, err);
    for (bool more = !status; !status && more;) {
        woi_query_batch batch;
        status = woi_progress(progress, "evaluating", t.n, woi_queries_n(queries), err);
        if (!status) status = woi_queries_next(queries, false, &batch, &more, err);
        if (!status) status = score_batch(&t, &batch, err);
    }
    *precision = precision_of(&t);
    woi_queries_free(queries);
    tally_free(&t);
    return status;
}

/* ---- Logs -------------------------------------------------------------------------------------------------- */

/* The file is written in passes over the data, in the order of its tensors, so that nothing but a batch is in memory:
 * labels counted, indptr, indices, queries. */
typedef enum pass { COUNT, INDPTR, INDICES, QUERIES } pass;

typedef struct embedding {
    woi_queries *queries;
    woi_st_writer *writer;
    woi_dtype dtype;
    size_t d;
    uint64_t n_labels;
    uint16_t *halves; /* a batch in BF16 */
    size_t halves_room;
    tally *score; /* NULL: not asked for */
    const wo_progress *progress;
} embedding;

static wo_status write_queries(embedding *e, const woi_query_batch *batch, wo_error *err)
{
    const size_t n = batch->n * e->d;
    if (e->dtype == WOI_F32) return woi_st_append(e->writer, batch->q, n * sizeof(float), err);
    wo_status status = woi_grow(&e->halves, &e->halves_room, 0, n, sizeof *e->halves, err);
    if (status) return status;
    for (size_t i = 0; i < n; i++) e->halves[i] = woi_f32_to_bf16(batch->q[i]);
    return woi_st_append(e->writer, e->halves, n * sizeof *e->halves, err);
}

static wo_status write_batch(embedding *e, pass which, const woi_query_batch *batch, wo_error *err)
{
    wo_status status = WO_OK;
    const uint64_t before = e->n_labels;
    e->n_labels += (uint64_t)batch->indptr[batch->n];
    if (which == INDPTR)
        for (size_t i = 0; !status && i < batch->n; i++) {
            const int64_t end = (int64_t)before + batch->indptr[i + 1];
            status = woi_st_append(e->writer, &end, sizeof end, err);
        }
    if (which == INDICES && batch->indptr[batch->n])
        status = woi_st_append(e->writer, batch->labels, (size_t)batch->indptr[batch->n] * sizeof(int32_t), err);
    if (which == QUERIES) status = write_queries(e, batch, err);
    if (!status && which == QUERIES && e->score) status = score_batch(e->score, batch, err);
    return status;
}

static wo_status run_pass(embedding *e, pass which, wo_error *err)
{
    const char *stage = which == QUERIES ? "embedding" : "listing labels";
    uint64_t done = 0;
    e->n_labels = 0;
    wo_status status = which == COUNT ? WO_OK : woi_queries_rewind(e->queries, err);
    if (!status && which == INDPTR) status = woi_st_append(e->writer, &(int64_t){0}, sizeof(int64_t), err);
    for (bool more = true; !status && more;) {
        woi_query_batch batch;
        status = woi_queries_next(e->queries, which != QUERIES, &batch, &more, err);
        if (!status) status = write_batch(e, which, &batch, err);
        done += batch.n;
        if (!status) status = woi_progress(e->progress, stage, done, woi_queries_n(e->queries), err);
    }
    return status;
}

wo_status woi_embed(const woi_network *net, const char *path, const woi_queries_options *options, woi_dtype dtype,
                    const char *log_path, const wo_progress *progress, uint64_t *n, woi_precision *precision,
                    const char **at, wo_error *err)
{
    tally score = {.layer = woi_network_output(net), .threads = options->threads};
    embedding e = {.dtype = dtype, .d = net->d, .progress = progress, .score = precision ? &score : NULL};
    *at = path;
    wo_status status = woi_queries_open(net, path, options, &e.queries, err);
    if (!status) status = run_pass(&e, COUNT, err);
    if (status) goto done;
    *n = woi_queries_n(e.queries);
    *at = log_path;
    if ((status = woi_st_create(log_path, "log", &e.writer, err)) ||
        (status = woi_st_set_meta(e.writer, "arch", woi_arch_name(net->arch), err)) ||
        (status = woi_st_declare(e.writer, "labels.indptr", WOI_I64, 1, (uint64_t[]){*n + 1}, err)) ||
        (status = woi_st_declare(e.writer, "labels.indices", WOI_I32, 1, (uint64_t[]){e.n_labels}, err)) ||
        (status = woi_st_declare(e.writer, "queries", dtype, 2, (uint64_t[]){*n, net->d}, err)))
        goto done;
    for (pass which = INDPTR; !status && which <= QUERIES; which++) status = run_pass(&e, which, err);
    if (!status) status = woi_st_finish(e.writer, err);
    if (precision) *precision = precision_of(&score);
done:
    tally_free(&score);
    woi_st_writer_free(e.writer);
    woi_queries_free(e.queries);
    woi_free(e.halves);
    return status;
}
