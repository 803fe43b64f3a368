/* What FULL finds best at the centre of each cell. A log names few of ten million classes, and FULL, which knows them
 * all, is too slow to be asked for every query of a log; but cells are few. Their centres are asked for many answers
 * each, which cost nothing more, and those classes lie in the cell besides what its queries needed. */
#ifndef WOI_INDEX_CENTRES_H
#define WOI_INDEX_CENTRES_H

#include "index/index.h"

/* The classes of each cell: ids[k * c ..], ascending; where there are fewer than k, -1 comes first. */
typedef struct woi_centres {
    uint32_t k; /* 0: none */
    int32_t *ids;
} woi_centres;

/* A cell's centre is the mean of the queries that are nearest to it: of (n, each), each query's first. */
wo_status woi_centres_ask(const wo_index *index, const wo_log *log, const uint32_t *of, uint32_t each,
                          woi_centres *centres, wo_error *err);
void woi_centres_free(woi_centres *centres); /* and zeroed again */

/* Cells hold them too; with share 0, where shares are kept. */
wo_status woi_centres_join(const woi_centres *centres, woi_cells *cells, wo_error *err);

#endif
