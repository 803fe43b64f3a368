/* An adapter: what was observed in the cells of an index, beside what the index counted when it was built.
 *
 *   wo_adapter
 *     cells (base->cells.n)    NULL where nothing was observed, else a woi_learned:
 *       seen                   classes, ascending, and how much they were needed
 *       mass, own              queries: by their parts, and those whose own cell it is
 *       now                    the cell as it was last published
 *     changed                  the cells to be made anew by the next publication
 *
 * What the base counted is never copied: it is read from the base's cells when a cell is made anew. Numbers fade by the
 * count of observed queries t: what was observed at t counts 2^((t - now) / half_life). They are kept relative to a
 * moment of each cell, so that a cell is touched only when something is observed in it. */
#ifndef WOI_UPDATE_ADAPTER_H
#define WOI_UPDATE_ADAPTER_H

#include "build/build_evidence.h"

typedef struct woi_sighting {
    int32_t id;
    float weight;
} woi_sighting;

/* A cell's classes. */
typedef struct woi_list {
    int32_t *ids;     /* NULL: none was made */
    uint16_t *shares; /* NULL where none are kept */
    uint32_t n, queries;
} woi_list;

typedef struct woi_learned {
    woi_sighting *seen;
    size_t n, room, pending; /* pending: labels of the call that runs, behind the n, as they came */
    double mass, own;
    uint64_t at; /* what is counted is relative to this many observed queries */
    bool changed;
    woi_list now, next; /* next: while a publication is made */
} woi_learned;

struct wo_adapter {
    const wo_index *base;
    double half_life;
    uint32_t each; /* cells of a query */
    float parts[WOI_MOST_FILED];
    double whole; /* sum of the parts of a query */
    woi_learned **cells;
    uint32_t *changed; /* (n_changed) cells */
    size_t n_changed, changed_room;
    wo_adapter_info info;
};

/* What is left after so many more observed queries. */
double woi_adapter_faded(const wo_adapter *adapter, uint64_t queries);
/* Makes what a cell counted relative to this moment. */
void woi_adapter_fade(const wo_adapter *adapter, woi_learned *cell);

void woi_list_free(woi_list *list); /* and zeroed again */

#endif
