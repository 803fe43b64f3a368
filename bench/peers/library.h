/* Between peers.c and the two shims: what a library has to offer, and how a layer becomes points.
 *
 *   point   [ w (d) | zeros | b | zeros | sqrt(M^2 - |w|^2 - b^2) | zeros ]     dim floats
 *   query   [ q (d) | zeros | 1 | zeros | 0                       | zeros ]
 *                             ^ bias      ^ extra; 0 where there is none */
#ifndef BENCH_PEERS_LIBRARY_H
#define BENCH_PEERS_LIBRARY_H

#include "peers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct peer_space {
    size_t d, bias, extra, dim;
    double max_norm2; /* M^2 */
} peer_space;

/* Sets max_norm2; the rest is there already. */
void peer_space_measure(peer_space *space, const peer_layer *layer);
void peer_space_point(const peer_space *space, const peer_layer *layer, size_t i, float *point);
/* Returns |query|^2, with the 1 in it. */
double peer_space_query(const peer_space *space, const float *q, float *query);
/* A squared L2 distance between a query of that norm and a point, as the logit. */
float peer_space_logit(const peer_space *space, double query_norm2, float distance);

/* A library's side. Nothing is thrown out of these; 1 and a sentence instead. */
typedef struct peer_library {
    int (*build)(peer_kind kind, const peer_layer *layer, const peer_options *options, void **index,
                 char error[PEER_ERROR_BYTES]);
    int (*search)(void *index, const peer_batch *batch, char error[PEER_ERROR_BYTES]);
    size_t (*bytes)(const void *index);
    const char *(*version)(void);
    void (*free)(void *index);
} peer_library;

/* Each is defined in the shim of its name. peers.c refers to them weakly, so that a program without one links. */
extern const peer_library peer_hnswlib, peer_faiss;

#ifdef __cplusplus
}

#include <cstdio>
#include <exception>

/* Runs body; what it throws becomes a sentence. */
template <class F> int peer_guard(const char *library, char *error, F body)
{
    try {
        body();
        return 0;
    } catch (const std::exception &e) {
        std::snprintf(error, PEER_ERROR_BYTES, "%s: %s", library, e.what());
    } catch (...) {
        std::snprintf(error, PEER_ERROR_BYTES, "%s: failed without saying why", library);
    }
    return 1;
}
#endif
#endif
