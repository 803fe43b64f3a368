/* A searcher: the memory that searches need, made once.
 *
 *   wo_searcher
 *     workers (threads)    one for each thread of a batch: scratch that no other thread touches
 *       seen (m)           a class is in the union when its byte equals `epoch`, so that nothing is cleared between
 *                          queries but once in 255
 *       ids, logits        the union and its scores
 *       cells              those that the queries of a block open
 *     forbidden (m)        not 0: not answered by the call that runs; between calls, classes that were removed
 *
 * Nothing is allocated after creation. */
#ifndef WOI_SEARCH_SEARCHER_H
#define WOI_SEARCH_SEARCHER_H

#include "index/index.h"

enum {
    WOI_BLOCK_QUERIES = 32, /* that are routed together, while the router is in the cache; then scored */
    WOI_WIDE_BLOCK = 512,   /* the same for a tree of which queries look at many nodes, and share them */
    WOI_GATHERED = 256,     /* that know little, and are screened together */
};

typedef struct woi_worker {
    uint8_t *seen;
    uint8_t epoch;
    int32_t *ids;
    float *logits;
    void *route_scratch;
    uint32_t *cells;                  /* (block, cells a query): those of each query of the block */
    uint32_t *wider;                  /* those of a query with little evidence, WO_WIDER times as many */
    uint32_t n_cells[WOI_WIDE_BLOCK]; /* 0: the query is not finite */
    int8_t *q8;                       /* (d): a query in int8 */
    /* Of an index whose cells have shares: see prior.h. */
    uint32_t *spots; /* (m): the place of a class in the union, from first_spot on */
    uint32_t first_spot, next_spot;
    float *extra;        /* beside ids: what is added to the logits */
    float *cell_scores;  /* (block, cells a query), of a tree */
    float *wider_scores; /* beside wider */
    float *cell_weights; /* (cells a query, those of wider too) */
} woi_worker;

struct wo_searcher {
    const wo_index *index;
    const wo_index *base; /* of all indexes that it may be moved to; perhaps the index itself */
    const woi_kernels *kernels;
    size_t room; /* candidates that a worker has memory for */
    int threads;
    uint32_t max_probes, max_mandatory;
    size_t block; /* queries that are routed together */
    woi_worker *workers;
    uint8_t *forbidden;
    int32_t *marked;    /* (m), n_marked of them: the rows that the call that runs forbids */
    size_t n_marked;    /* 0 between calls */
    int32_t *mandatory; /* the rows that the call demands */
    void *exact_scratch;
    void *screen_scratch; /* NULL where the index has no screen */
    float *gathered;      /* (WOI_GATHERED, d): queries that know little; NULL where the screen has no part in them */
};

/* What is in wo_searcher.forbidden. Demanded ones are marked only while a list is read, to find what is given twice. */
enum { WOI_FORBIDDEN = 1, WOI_REMOVED, WOI_DEMANDED };

/* The most cells that one query opens with so many probes; and the probes of one with little evidence. */
size_t woi_cells_opened(const wo_index *index, uint32_t probes);
uint32_t woi_wider_probes(const wo_index *index, uint32_t probes);

/* Whether an index can open so many. */
wo_status woi_probes_check(const wo_index *index, uint32_t probes, wo_error *err);

#endif
