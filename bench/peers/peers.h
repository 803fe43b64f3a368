/* Other people's libraries, as their own users would set them up, behind one plain C interface.
 *
 *   kind            library   index                                                     dial
 *   PQ              Faiss     IndexPQ, then IndexRefineFlat                             answers re-ranked, 0 for none
 *   SQ8             Faiss     IndexScalarQuantizer QT_8bit, then IndexRefineFlat        the same
 *   IVF             Faiss     IndexIVFFlat                                              nprobe: lists scanned
 *   IP_NSW          hnswlib   InnerProductSpace over [w, b], queries [q, 1]             ef: length of the search's list
 *   GRAPH_DECODER   hnswlib   L2Space over [w, b, sqrt(M^2 - |w|^2 - b^2)], [q, 1, 0]   the same
 *
 * M is the largest norm of [w, b]: then |point - query|^2 = M^2 + |q|^2 + 1 - 2 (w q + b), so that the nearest point is
 * the largest logit.
 *
 * A library that was missing when this was compiled is absent: see peer_missing. */
#ifndef BENCH_PEERS_PEERS_H
#define BENCH_PEERS_PEERS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PEER_ERROR_BYTES = 256 };

typedef enum peer_kind { PEER_PQ, PEER_IVF, PEER_SQ8, PEER_IP_NSW, PEER_GRAPH_DECODER, PEER_N_KINDS } peer_kind;

typedef struct peer_options {
    /* graphs */
    size_t links;           /* M: links of a point on the upper levels, half of those on the lowest */
    size_t ef_construction; /* length of the list while building */
    /* IVF */
    size_t n_lists;
    /* PQ */
    size_t pq_parts; /* sub-quantisers for the d weights; one more holds the bias */
    size_t pq_bits;  /* of each code */
    /* PQ and IVF */
    int l2; /* 1: L2 after the transform of Graph Decoder, IVF's default and the paper's PQ; 0: inner product */
    /* all */
    unsigned seed;
    int threads; /* of the build; a graph built by more than one differs from run to run */
} peer_options;

typedef struct peer peer;

/* "PQ", "ip-NSW". */
const char *peer_name(peer_kind kind);

/* NULL where this kind can be built, else one sentence that says which package was missing. */
const char *peer_missing(peer_kind kind);

/* The library, its version and the instructions it was compiled for, in one line; "absent" where it is missing. */
const char *peer_version(peer_kind kind);

/* What a careful user of that library starts from, for m points of d weights. */
void peer_defaults(peer_kind kind, size_t m, size_t d, peer_options *options);

typedef struct peer_layer {
    const float *w, *b; /* (m, d), (m) or NULL for no bias; the caller's */
    size_t m, d;
} peer_layer;

/* Builds an index of a layer, which is copied. options: NULL for the defaults. Returns 0, or 1 with a sentence in error
 * and *out NULL. */
int peer_build(peer_kind kind, const peer_layer *layer, const peer_options *options, peer **out,
               char error[PEER_ERROR_BYTES]);

/* The k best of each of n queries. */
typedef struct peer_batch {
    const float *q; /* (n, d) */
    size_t n, k;
    unsigned dial;
    int threads;    /* no more than n are used */
    int32_t *ids;   /* (n, k), best first */
    float *scores;  /* (n, k): logits with the bias */
    double *scored; /* NULL, or receives the mean number of rows scored for a query */
} peer_batch;

/* Scores of PQ and SQ8 without re-ranking are the library's estimates; those of Graph Decoder come out of distances and
 * have about 1e-6 M^2 of error. Where an index finds fewer than k, id -1 and score -INFINITY fill the row.
 *
 * Uses min(threads, n) OpenMP threads, and OpenBLAS as many; both settings are put back. One search at a time on a
 * peer. Rows scored are distances computed by a graph, vectors in the lists that IVF scans (its centroids are not
 * counted), m for PQ and SQ8. Counting slows graphs down: give NULL where time is taken. Returns 0, or 1 with a
 * sentence in error. */
int peer_search(peer *p, const peer_batch *given, char error[PEER_ERROR_BYTES]);

/* What the index holds for searching: rows or codes, links, lists, codebooks, ids. PQ and SQ8: with the f32 rows that
 * re-ranking reads. */
size_t peer_bytes(const peer *p);

void peer_free(peer *p); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
