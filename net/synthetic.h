/* Made-up wide layers and data sets, for scale tests and for machines without data.
 *
 * m classes lie in C = round(sqrt(m)) clusters, and class j (from 0) has the probability p_j of (j + 1)^-s, normalised:
 *
 *   centre   g_c = N(0, I/d)                  class   u_j = (g_c + beta N(0, I/d)) / |...|,  c drawn for j
 *   label    y ~ p                            query   q = u_y + sigma N(0, I)
 *   layer    w_j = u_j / sigma^2,  b_j = log p_j
 *
 * w_j q + b_j is then log p(j | q) up to a constant: the layer is the best classifier that there can be for its
 * queries, and its softmax tells true probabilities. sigma shrinks with log m, so that the exact layer's P@1 is about
 * 0.75 whatever m is.
 *
 * As text, a row has WOI_SYNTHETIC_WORDS features: words of its class, of its cluster, and words of no meaning.
 *
 * Every number is a function of (seed, what it is for, its place), so any row can be computed without the others. */
#ifndef WOI_NET_SYNTHETIC_H
#define WOI_NET_SYNTHETIC_H

#include "store/store.h"

enum { WOI_SYNTHETIC_PARTS = 3, WOI_SYNTHETIC_WORDS = 16 };

typedef struct woi_synthetic {
    uint64_t m, d;                   /* classes, 2 or more; dimensions, 2 or more (layers only) */
    uint64_t n[WOI_SYNTHETIC_PARTS]; /* queries or rows: train, valid, test */
    double exponent;                 /* s */
    uint64_t seed;
    int threads; /* 0: all cores; the numbers do not depend on it */
    uint64_t shard,
        shards; /* of a layer and its logs: only classes c with c % shards == shard, as c / shards; 0: all */
    /* Set by woi_synthetic_init. */
    uint64_t n_clusters, n_features;
    double sigma;
    float *centres; /* n_clusters x d; NULL for text */
} woi_synthetic;

/* Completes a struct whose first fields are set; `layer`: for layers and logs, not for text. */
wo_status woi_synthetic_init(woi_synthetic *s, bool layer, wo_error *err);
void woi_synthetic_free(woi_synthetic *s);

uint64_t woi_synthetic_label(const woi_synthetic *s, int part, uint64_t i);    /* of query or row i */
double woi_synthetic_log_probability(const woi_synthetic *s, uint64_t class);  /* of class 0 to m - 1 */
void woi_synthetic_weight(const woi_synthetic *s, uint64_t class, float *row); /* d floats */
void woi_synthetic_query(const woi_synthetic *s, int part, uint64_t i, float *row);

/* The classes of the layer that is written. */
static inline uint64_t woi_synthetic_rows(const woi_synthetic *s)
{
    return s->shards ? (s->m - s->shard + s->shards - 1) / s->shards : s->m;
}

/* Write a layer, or a part as a log, in bounded memory: all but woi_st_finish. */
wo_status woi_synthetic_layer(const woi_synthetic *s, const char *path, const wo_progress *progress,
                              woi_st_writer **writer, wo_error *err);
wo_status woi_synthetic_log(const woi_synthetic *s, int part, const char *path, const wo_progress *progress,
                            woi_st_writer **writer, wo_error *err);

/* A part as extreme-classification text; names as "class-12" and "word-7", a line each. */
wo_status woi_synthetic_text(const woi_synthetic *s, int part, woi_outfile *out, const wo_progress *progress,
                             wo_error *err);
wo_status woi_synthetic_names(const char *prefix, uint64_t n, woi_outfile *out, wo_error *err);

#endif
