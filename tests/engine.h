/* What tests of indexes share: a small layer with a log, and the answers that trying every class gives.
 *
 * Weights, biases and queries are small whole numbers, so that every logit is exact in any order of summing, and full
 * of ties. Queries come in clusters, and a query's labels are among its best classes, as in a network that has learned.
 */
#ifndef WO_ENGINE_H
#define WO_ENGINE_H

#include "asker.h"
#include "naive_tree.h"
#include "testing.h"

#include "base/rng.h"
#include "index/index.h"

#include <math.h>
#include <stdbool.h>

typedef struct scene {
    size_t m, d, n;
    float *w, *b, *q; /* b may be NULL */
    int64_t *indptr;
    int32_t *labels;
    wo_layer *layer;
    wo_log *log;
} scene;

static inline void *room(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);
    assert_non_null(memory);
    return memory;
}

static inline double logit(const scene *s, const float *q, size_t class)
{
    double sum = s->b ? (double)s->b[class] : 0;
    for (size_t j = 0; j < s->d; j++) sum += (double)s->w[class * s->d + j] * (double)q[j];
    return sum;
}

static inline float whole(uint64_t seed, uint64_t stream, uint64_t at, uint64_t span)
{
    return (float)woi_rng_below(seed, stream, at, 2 * span + 1) - (float)span;
}

static inline scene make_scene(size_t m, size_t d, size_t n, bool bias, uint64_t seed)
{
    scene s = {.m = m, .d = d, .n = n, .w = room(m * d, sizeof *s.w), .q = room(n * d, sizeof *s.q)};
    wo_error err;
    for (size_t i = 0; i < m * d; i++) s.w[i] = whole(seed, 1, i, 3);
    if (bias) {
        s.b = room(m, sizeof *s.b);
        for (size_t i = 0; i < m; i++) s.b[i] = whole(seed, 2, i, 4);
    }
    for (size_t i = 0; i < n * d; i++)
        s.q[i] = whole(seed, 3, i / d % 9 * d + i % d, 4) + whole(seed, 4, i, 1); /* nine clusters */
    s.indptr = room(n + 1, sizeof *s.indptr);
    s.labels = room(3 * n, sizeof *s.labels);
    for (size_t i = 0; i < n; i++) {
        int64_t used = s.indptr[i];
        for (uint64_t k = 0; k < woi_rng_below(seed, 5, i, 4); k++) {
            size_t best = woi_rng_below(seed, 6, 8 * i + k, m);
            for (uint64_t draw = 0; draw < 3; draw++) { /* the best of four: a likely label; perhaps one twice */
                const size_t other = woi_rng_below(seed, 7, 64 * i + 8 * k + draw, m);
                if (logit(&s, s.q + i * d, other) > logit(&s, s.q + i * d, best)) best = other;
            }
            s.labels[used++] = (int32_t)best;
        }
        s.indptr[i + 1] = used;
    }
    if (wo_layer_wrap(s.w, s.b, m, d, &s.layer, &err)) fail_msg("%s", err.text);
    if (wo_log_wrap(s.q, n, d, s.indptr, s.labels, &s.log, &err)) fail_msg("%s", err.text);
    return s;
}

static inline void free_scene(scene *s)
{
    wo_layer_free(s->layer);
    wo_log_free(s->log);
    free(s->w);
    free(s->b);
    free(s->q);
    free(s->indptr);
    free(s->labels);
}

/* What a search may answer, and how it is scored. All may be NULL. */
typedef struct rules {
    const bool *allowed; /* (m) */
    const float *logit_bias;
    bool softmax;
    const double *extra; /* (m): what a prior adds */
} rules;

/* The k best of the allowed classes, picked one by one; equal ones by id. Returns how many are allowed. */
static inline size_t brute_force(const scene *s, const float *q, const rules *r, size_t k, int32_t *ids, double *scores)
{
    double *logits = room(s->m, sizeof *logits), max = -INFINITY, sum = 0;
    size_t n = 0;
    for (size_t j = 0; j < s->m; j++) {
        logits[j] = logit(s, q, j) + (r->logit_bias ? (double)r->logit_bias[j] : 0) + (r->extra ? r->extra[j] : 0);
        if (r->allowed && !r->allowed[j]) {
            logits[j] = NAN;
            continue;
        }
        n++;
        max = fmax(max, logits[j]);
    }
    for (size_t j = 0; j < s->m; j++)
        if (!isnan(logits[j])) sum += exp(logits[j] - max);
    for (size_t place = 0; place < k; place++) {
        size_t best = s->m;
        for (size_t j = 0; j < s->m; j++)
            if (!isnan(logits[j]) && (best == s->m || logits[j] > logits[best])) best = j;
        ids[place] = best == s->m ? -1 : (int32_t)best;
        scores[place] = best < s->m ? logits[best] : -INFINITY;
        if (r->softmax) scores[place] = best < s->m ? exp(logits[best] - max) / sum : 0;
        if (best < s->m) logits[best] = NAN;
    }
    free(logits);
    return n;
}

/* One query's answer equals brute force: logits to the last bit, probabilities nearly. */
static inline void assert_answer(const scene *s, const float *q, const rules *r, size_t k, const int32_t *ids,
                                 const float *scores)
{
    int32_t *expected = room(k, sizeof *expected);
    double *values = room(k, sizeof *values);
    brute_force(s, q, r, k, expected, values);
    for (size_t i = 0; i < k; i++) {
        const double difference = (double)scores[i] == values[i] ? 0 : fabs((double)scores[i] - values[i]);
        if (ids[i] != expected[i] || !(difference <= (r->softmax ? 1e-5 : 0)))
            fail_msg("place %zu of %zu: class %d with %g, expected %d with %g", i, k, ids[i], (double)scores[i],
                     expected[i], values[i]);
    }
    free(expected);
    free(values);
}

static inline wo_index *build(const scene *s, const wo_build_options *options)
{
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(s->layer, s->log, options, &index, &err)) fail_msg("%s", err.text);
    return index;
}

/* For small_options, and no method of its own: evidence with a tree. */
enum { EVIDENCE_BY_TREE = WO_METHOD_SCREEN + 1 };

/* Options of a method that suit a scene: small tables, a small tree, few steps, one thread. */
static inline wo_build_options small_options(int method)
{
    wo_build_options o;
    wo_build_defaults(method == EVIDENCE_BY_TREE ? WO_METHOD_EVIDENCE : (wo_method)method, &o, sizeof o);
    if (method == EVIDENCE_BY_TREE) {
        o.router = WO_ROUTER_TREE;
        o.nodes = 16;
        o.leaves = 16;
        o.route_d = 16;
    }
    o.K = 3;
    o.L = 2;
    o.iterations = 4;
    o.batch = 16;
    o.n_popular = 5;
    o.thin = 3;
    o.threads = 1;
    return o;
}

static inline asker *create(const wo_index *index, const asked *options)
{
    asker *searcher = NULL;
    wo_error err;
    if (try_create(index, options, &searcher, &err)) fail_msg("%s", err.text);
    return searcher;
}

/* Whether a query opens a cell of a hash table; false in *told where a projection is too close to a plane to tell. */
static inline bool naive_opens(const woi_hash *hash, const float *q, uint32_t cell, bool *told)
{
    for (uint32_t k = 0; k < hash->K; k++) {
        const size_t plane = (size_t)(cell >> hash->K) * hash->K + k;
        double z = (double)hash->offsets[plane];
        for (size_t j = 0; j < hash->d; j++) z += (double)q[j] * (double)hash->planes[j * hash->n_planes + plane];
        if (fabs(z) < 1e-4) *told = false;
        if ((z > 0) != (cell >> k & 1)) return false;
    }
    return true;
}

/* The cells that a query opens, by projections in double: its own cell in every table, or the nearest `probes` leaves
 * of a tree; and how much each counts for a prior: weights (cells), 0: not opened; they sum to 1. False where a
 * projection is too close to a plane, or two leaves, to tell. */
static inline bool naive_weights(const wo_index *index, const float *q, uint32_t probes, double *weights)
{
    const size_t n = index->cells.n;
    memset(weights, 0, n * sizeof *weights);
    bool told = true;
    if (index->tree.A) {
        uint32_t leaves[WOI_MAX_LEAVES];
        double scores[WOI_MAX_LEAVES];
        woi_tree tree = index->tree;
        if (probes > index->options.probes) tree.margin = INFINITY; /* it was learned for so many */
        const int found = naive_tree(&tree, q, probes, false, leaves, scores);
        for (int i = 0; i < found; i++)
            weights[leaves[i]] = fmax(exp(index->options.focus * (scores[i] - scores[0])), 1e-300);
        told = found >= 0;
    } else {
        for (uint32_t c = 0; c < n; c++) weights[c] = naive_opens(&index->hash, q, c, &told);
    }
    double sum = 0;
    for (size_t c = 0; c < n; c++) sum += weights[c];
    for (size_t c = 0; c < n && sum > 0; c++) weights[c] /= sum;
    return told;
}

/* The classes in the cells that a query opens or, with `all_cells`, in all. False where they cannot be told. */
static inline bool naive_candidates(const wo_index *index, const float *q, bool all_cells, bool *candidate)
{
    const woi_cells *cells = &index->cells;
    double *weights = room(cells->n, sizeof *weights);
    const bool told = all_cells || naive_weights(index, q, index->options.probes, weights);
    memset(candidate, index->options.method == WO_METHOD_FULL, index->rows.m);
    for (uint32_t c = 0; c < cells->n; c++)
        for (uint32_t at = cells->offsets[c]; (all_cells || weights[c] > 0) && at < cells->offsets[c + 1]; at++)
            candidate[cells->ids[at]] = true;
    free(weights);
    return told;
}

static inline double from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* What the prior of an index adds to the logits of all classes, by its definition (search/prior.h), for cells of these
 * weights. */
static inline void naive_prior(const wo_index *index, const double *weights, double *extra)
{
    const woi_cells *cells = &index->cells;
    memset(extra, 0, index->rows.m * sizeof *extra);
    for (size_t c = 0; c < cells->n; c++)
        for (uint32_t at = cells->offsets[c]; at < cells->offsets[c + 1]; at++)
            extra[cells->ids[at]] += weights[c] * from_bf16(cells->shares[at]);
    for (size_t j = 0; j < index->rows.m; j++) extra[j] = index->options.prior * log(1 + extra[j] / WO_PRIOR_FLOOR);
}

#endif
