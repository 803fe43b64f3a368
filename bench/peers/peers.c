/* The part that all peers share: defaults, checks, points, and the way to the library that was compiled in. */
#include "library.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The address of a library whose shim is not linked is NULL: no stubs, no macros. */
#pragma weak peer_hnswlib
#pragma weak peer_faiss

static const struct {
    const char *name;
    const peer_library *library;
    const char *missing;
} kinds[PEER_N_KINDS] = {
#define FAISS &peer_faiss, "Faiss was not found when this was compiled: install libfaiss-dev and g++, then make again"
#define HNSW \
    &peer_hnswlib, "hnswlib was not found when this was compiled: install libhnswlib-dev and g++, then make again"
    [PEER_PQ] = {"PQ", FAISS},
    [PEER_IVF] = {"IVF", FAISS},
    [PEER_SQ8] = {"SQ8", FAISS},
    [PEER_IP_NSW] = {"ip-NSW", HNSW},
    [PEER_GRAPH_DECODER] = {"Graph Decoder", HNSW},
};

struct peer {
    const peer_library *library;
    void *index;
    size_t m;
};

const char *peer_name(peer_kind kind)
{
    return kinds[kind].name;
}

const char *peer_missing(peer_kind kind)
{
    return kinds[kind].library ? NULL : kinds[kind].missing;
}

const char *peer_version(peer_kind kind)
{
    return kinds[kind].library ? kinds[kind].library->version() : "absent";
}

/* ---- Points ------------------------------------------------------------------------------------------------ */

static double norm2(const peer_layer *layer, size_t i)
{
    const float *row = layer->w + i * layer->d;
    double sum = layer->b ? (double)layer->b[i] * layer->b[i] : 0;
    for (size_t j = 0; j < layer->d; j++) sum += (double)row[j] * row[j];
    return sum;
}

void peer_space_measure(peer_space *space, const peer_layer *layer)
{
    space->max_norm2 = 0;
    for (size_t i = 0; i < layer->m; i++) space->max_norm2 = fmax(space->max_norm2, norm2(layer, i));
}

void peer_space_point(const peer_space *space, const peer_layer *layer, size_t i, float *point)
{
    memset(point + layer->d, 0, (space->dim - layer->d) * sizeof *point);
    memcpy(point, layer->w + i * layer->d, layer->d * sizeof *point);
    point[space->bias] = layer->b ? layer->b[i] : 0;
    if (space->extra) point[space->extra] = (float)sqrt(fmax(0, space->max_norm2 - norm2(layer, i)));
}

double peer_space_query(const peer_space *space, const float *q, float *query)
{
    double sum = 1;
    memset(query + space->d, 0, (space->dim - space->d) * sizeof *query);
    memcpy(query, q, space->d * sizeof *query);
    query[space->bias] = 1;
    if (space->extra)
        for (size_t j = 0; j < space->d; j++) sum += (double)q[j] * q[j];
    return sum;
}

float peer_space_logit(const peer_space *space, double query_norm2, float distance)
{
    return (float)((space->max_norm2 + query_norm2 - distance) / 2);
}

/* ---- The interface ----------------------------------------------------------------------------------------- */

void peer_defaults(peer_kind kind, size_t m, size_t d, peer_options *options)
{
    *options = (peer_options){.links = 32, .ef_construction = 400, .pq_bits = 8, .seed = 1, .threads = 1};
    /* Debian catalogue, 50,778 x 128: IVF reaches 98% of FULL's top 5 with 6,700 rows scored by L2, and 88% with 7,500
     * by inner product; PQ needs no transform, which adds an error of its own. */
    options->l2 = kind == PEER_IVF;
    /* Faiss's guide: between 4 sqrt(m) and 16 sqrt(m) lists below a million vectors. */
    options->n_lists = (size_t)(4 * sqrt((double)m));
    if (options->n_lists > m) options->n_lists = m;
    if (options->n_lists == 0) options->n_lists = 1;
    options->pq_parts = (d + 3) / 4;
    while (options->pq_bits > 1 && m < (size_t)1 << options->pq_bits) options->pq_bits--;
}

int peer_build(peer_kind kind, const peer_layer *layer, const peer_options *options, peer **out,
               char error[PEER_ERROR_BYTES])
{
    const size_t m = layer->m, d = layer->d;
    *out = NULL;
    peer_options defaults;
    if (!options) {
        peer_defaults(kind, m, d, &defaults);
        options = &defaults;
    }
    if (peer_missing(kind)) {
        snprintf(error, PEER_ERROR_BYTES, "%s", peer_missing(kind));
        return 1;
    }
    if (m == 0 || m > INT32_MAX || d == 0 || d > 1 << 20) { /* both libraries count points in int */
        snprintf(error, PEER_ERROR_BYTES, "%s: a layer of %zu x %zu, expected 1 to 2^31 - 1 rows of 1 to 2^20 weights",
                 peer_name(kind), m, d);
        return 1;
    }
    if (options->links < 2 || !options->n_lists || options->n_lists > m || !options->pq_parts ||
        options->pq_parts > d || !options->pq_bits || options->pq_bits > 16 || options->threads < 1) {
        snprintf(
            error, PEER_ERROR_BYTES,
            "%s: %zu links, %zu lists, %zu parts of %zu bits and %d threads, expected 2 or more links, 1 to m lists, "
            "1 to d parts, 1 to 16 bits, 1 or more threads",
            peer_name(kind), options->links, options->n_lists, options->pq_parts, options->pq_bits, options->threads);
        return 1;
    }
    peer *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(error, PEER_ERROR_BYTES, "%s: out of memory", peer_name(kind));
        return 1;
    }
    p->library = kinds[kind].library;
    p->m = m;
    if (p->library->build(kind, layer, options, &p->index, error)) {
        free(p);
        return 1;
    }
    *out = p;
    return 0;
}

int peer_search(peer *p, const peer_batch *given, char error[PEER_ERROR_BYTES])
{
    peer_batch batch = *given;
    if (batch.k == 0 || batch.k > p->m || batch.threads < 1) {
        snprintf(error, PEER_ERROR_BYTES, "%zu answers of %zu rows with %d threads, expected 1 to m and 1 or more",
                 batch.k, p->m, batch.threads);
        return 1;
    }
    if (batch.scored) *batch.scored = 0;
    if (batch.n == 0) return 0;
    if ((size_t)batch.threads > batch.n) batch.threads = (int)batch.n;
    return p->library->search(p->index, &batch, error);
}

size_t peer_bytes(const peer *p)
{
    return p->library->bytes(p->index);
}

void peer_free(peer *p)
{
    if (!p) return;
    p->library->free(p->index);
    free(p);
}
