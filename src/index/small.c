/* Rows in fewer bits. int8 finds the best candidates, bf16 orders them: int8 alone would misplace close ones. */
#include "index/index.h"

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
    if (threads < 1) threads = omp_get_max_threads();
    const bool screened = weights == WO_WEIGHTS_INT8;
    small->bf16 = woi_alloc(m, d * sizeof *small->bf16, err);
    if (screened) small->i8 = woi_alloc(m, d, err);
    if (screened) small->scales = woi_alloc(m, sizeof *small->scales, err);
    if (!small->bf16 || (screened && (!small->i8 || !small->scales))) {
        woi_small_free(small);
        return WO_ERR_MEMORY;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < d; j++) small->bf16[i * d + j] = woi_f32_to_bf16(rows->w[i * d + j]);
        if (screened) small->scales[i] = kernels->quantise(rows->w + i * d, d, small->i8 + i * d);
    }
    return WO_OK;
}
