/* Neurons by their own hash: the paper's tables. A counting sort, so that ids ascend within a cell. */
#include "fill/cells.h"

#include "base/error.h"
#include "base/mem.h"

#include <string.h>

void woi_cells_free(woi_cells *cells)
{
    woi_free(cells->offsets);
    woi_free(cells->ids);
    woi_free(cells->queries);
    woi_free(cells->shares);
    woi_free(cells->biases);
    *cells = (woi_cells){0};
}

wo_status woi_fill_by_hash(const uint32_t *of, size_t n, uint32_t L, size_t n_cells, woi_cells *cells, wo_error *err)
{
    if (n > UINT32_MAX / L)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "%zu classes in %u tables are too many", n, (unsigned)L);
    *cells = (woi_cells){.n = n_cells};
    cells->offsets = woi_alloc_zero(n_cells + 1, sizeof *cells->offsets, err);
    cells->ids = woi_alloc(n * L, sizeof *cells->ids, err);
    if (!cells->offsets || !cells->ids) {
        woi_cells_free(cells);
        return WO_ERR_MEMORY;
    }
    /* Counts become ends; filling from the back turns ends into starts. */
    for (size_t i = 0; i < n * L; i++) cells->offsets[of[i]]++;
    for (size_t c = 1; c <= n_cells; c++) cells->offsets[c] += cells->offsets[c - 1];
    for (size_t i = n; i-- > 0;)
        for (uint32_t l = 0; l < L; l++) cells->ids[--cells->offsets[of[i * L + l]]] = (int32_t)i;
    return WO_OK;
}
