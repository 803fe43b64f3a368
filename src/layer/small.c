/* Making rows in fewer bits: see small.h. */
#include "layer/small.h"

#include "base/error.h"
#include "base/mem.h"
#include "store/store.h"

#include <omp.h>

void woi_small_free(woi_small *small)
{
    woi_free(small->bf16);
    woi_free(small->i8);
    woi_free(small->scales);
    *small = (woi_small){0};
}

wo_status woi_small_make(const woi_dense *rows, wo_weights weights, int threads, woi_small *small, wo_error *err)
{
    const size_t m = rows->m, d = rows->d;
    *small = (woi_small){0};
    if (weights != WO_WEIGHTS_BF16 && weights != WO_WEIGHTS_INT8) return WO_OK;
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const bool screened = weights == WO_WEIGHTS_INT8;
    if (screened && d > WOI_MAX_I8)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "weights", "rows of %zu numbers are too long for int8: at most %d",
                               d, WOI_MAX_I8);
    if (screened) {
        small->i8 = woi_alloc(m, d, err);
        small->scales = woi_alloc(m, sizeof *small->scales, err);
    } else {
        small->bf16 = woi_alloc(m, d * sizeof *small->bf16, err);
    }
    if (screened ? !small->i8 || !small->scales : !small->bf16) {
        woi_small_free(small);
        return WO_ERR_MEMORY;
    }
#pragma omp parallel for num_threads(threads < 1 ? omp_get_max_threads() : threads) schedule(static)
    for (size_t i = 0; i < m; i++) {
        const float *row = rows->w + i * d;
        if (screened)
            small->scales[i] = kernels->quantise(row, d, small->i8 + i * d);
        else
            for (size_t j = 0; j < d; j++) small->bf16[i * d + j] = woi_f32_to_bf16(row[j]);
    }
    return WO_OK;
}
