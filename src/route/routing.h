/* What a router is asked: the cells of n queries. Both routers take it, so that a search asks them alike. */
#ifndef WOI_ROUTE_ROUTING_H
#define WOI_ROUTE_ROUTING_H

#include <stddef.h>
#include <stdint.h>

typedef struct woi_routing {
    const float *q; /* (n, d) */
    size_t n;
    uint32_t probes;
    uint32_t *cells;   /* (n, as many as the router opens for so many probes) */
    uint32_t *n_cells; /* (n): how many of them there are; 0 when the query is not finite */
    float *scores;     /* of a tree, (n, probes): of the cells, higher is nearer; NULL: not wanted */
    void *scratch;     /* of the router's size for n queries, aligned to WOI_ALIGN */
    float margin;      /* of a tree: its own, or INFINITY, all of the beam */
    const float *x;    /* of a tree, (n, r): finite points in its coordinates, in place of q; NULL: q is asked */
} woi_routing;

#endif
