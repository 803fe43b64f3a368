/* One cell of the most frequent classes: the sanity baseline. */
#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "fill/cells.h"

#include <stdlib.h>

wo_status woi_fill_popular(const woi_sparse *needs, size_t m, size_t N, woi_cells *cells, wo_error *err)
{
    if (N > m) N = m;
    *cells = (woi_cells){.n = 1};
    woi_counted *all = woi_alloc(m, sizeof *all, err);
    cells->offsets = woi_alloc_zero(2, sizeof *cells->offsets, err);
    cells->ids = woi_alloc(N, sizeof *cells->ids, err);
    wo_status status = all && cells->offsets && cells->ids ? WO_OK : WO_ERR_MEMORY;
    if (!status) {
        for (size_t j = 0; j < m; j++) all[j] = (woi_counted){0, (int32_t)j};
        for (int64_t i = 0; i < needs->indptr[needs->n]; i++) all[needs->ids[i]].count += needs->weights[i];
        qsort(all, m, sizeof *all, woi_by_count);
        for (size_t j = 0; j < N; j++) cells->ids[j] = all[j].id;
        woi_ids_sort(cells->ids, N);
        cells->offsets[1] = (uint32_t)N;
    } else {
        woi_cells_free(cells);
    }
    woi_free(all);
    return status;
}
