/* An index on its way to another one: what wo_index_update's files share.
 *
 *   update.c        options, rows, names, and what is copied as it is
 *   update_cells.c  which cells new and changed rows go into */
#ifndef WOI_UPDATE_UPDATE_H
#define WOI_UPDATE_UPDATE_H

#include "index/keep.h"

/* What becomes of a class. */
enum { WOI_STAYS, WOI_CHANGES, WOI_GOES };

typedef struct woi_update {
    const wo_index *from;
    wo_index *to;         /* has its options, rows and router, when cells are asked for */
    woi_dense old, rows;  /* of both, as floats; rows.m counts the added ones */
    const uint8_t *fate;  /* (rows.m): added ones change, and those that were removed before go */
    const int32_t *moved; /* (n_moved): those that change, and those that go now, rising */
    size_t n_moved;
    int threads;
    const wo_progress *progress;
} woi_update;

static inline bool woi_is_added(const woi_update *u, int32_t id)
{
    return (size_t)id >= u->old.m;
}

/* Fills to->cells and to->kept. */
wo_status woi_update_cells(woi_update *update, wo_error *err);

#endif
