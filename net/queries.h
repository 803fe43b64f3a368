/* What a network makes of a data file: queries, as they reach the wide layer, and their labels. Streamed, so that
 * memory does not grow with the file; embedding, evaluation and prediction all read from here.
 *
 *   xc    an example a row of extreme-classification text
 *   w2v   a sample of the positions of a token file; labels: the distinct words of the window around it. Or each
 *         distinct word once, by its id in the network, with how many positions it has, and for labels the 256 words
 *         that are in the windows of most of them, with in how many: what a word network can be asked is finite
 *   lm    every position of a token file, read as one stream with the state carried; labels: the next words
 *   fasttext   a line of text, with its labels among its words */
#ifndef WOI_NET_QUERIES_H
#define WOI_NET_QUERIES_H

#include "net/network.h"
#include "text/xc.h"

typedef struct woi_queries_options {
    uint64_t max_queries; /* a seeded sample of this many; 0: all (w2v: 100,000, unless distinct) */
    uint64_t next;        /* lm: how many of the next words are labels; 0: one */
    uint64_t seed;
    int threads; /* 0: all */
    woi_xc_options xc;
    bool distinct; /* w2v: a query for each word that occurs, not for each position */
} woi_queries_options;

/* Valid until the next call. */
typedef struct woi_query_batch {
    size_t n;
    const float *q;                       /* (n, d) */
    const int64_t *indptr;                /* n + 1, from 0 */
    const int32_t *labels;                /* rising in each row */
    const int32_t *words;                 /* w2v: the word that each query is, below n_inputs; NULL for others */
    const int32_t *counts, *label_counts; /* distinct: as of a counted log; NULL */
} woi_query_batch;

typedef struct woi_queries woi_queries;
/* `network` must live as long. WO_ERR_ARGUMENT: `distinct` with a network that is not w2v. */
wo_status woi_queries_open(const woi_network *network, const char *path, const woi_queries_options *options,
                           woi_queries **queries, wo_error *err);
uint64_t woi_queries_n(const woi_queries *queries); /* how many there will be */

/* The next batch (perhaps an empty one); *more is false when there is nothing after it. */
wo_status woi_queries_next(woi_queries *queries, woi_query_batch *batch, bool *more, wo_error *err);
wo_status woi_queries_rewind(woi_queries *queries, wo_error *err); /* from the start again, the same */
void woi_queries_free(woi_queries *queries);

/* P@k = hits among the first k answers of the exact layer / k, averaged over the queries that have a label. */
typedef struct woi_precision {
    uint64_t n, unlabelled; /* queries; those skipped */
    double p_at_1, p_at_5;
} woi_precision;

wo_status woi_evaluate(const woi_network *network, const char *path, const woi_queries_options *options,
                       const wo_progress *progress, woi_precision *precision, wo_error *err);

typedef struct woi_embed_options {
    const char *path; /* of the log */
    bool bf16, score; /* queries in BF16, not F32; precision of the exact layer on them */
    const wo_progress *progress;
} woi_embed_options;

typedef struct woi_embedded {
    uint64_t n;
    woi_precision precision; /* where it was asked for */
} woi_embedded;

/* Queries and labels of a data file as a log, in one pass. A failure that is about
 * WO_ABOUT_OUTPUT is about the log, others are about the data. */
wo_status woi_embed(const woi_network *network, const char *path, const woi_queries_options *options,
                    const woi_embed_options *log, woi_embedded *result, wo_error *err);

#endif
