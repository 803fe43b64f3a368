/* Rows in fewer bits: bf16 in place of f32, or int8 beside it. int8 finds the best candidates, f32 orders them: int8
 * alone would misplace close ones. */
#include "index/index.h"

#include "base/error.h"

#include <math.h>
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
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "rows of %zu numbers are too long for int8: at most %d", d,
                        WOI_MAX_I8);
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

wo_status woi_small_measure(wo_index *index, const wo_log *log, int threads, wo_error *err)
{
    enum { MOST = 2000, K = 5 };
    index->same_best = index->same_five = NAN;
    if ((!index->small.bf16 && !index->small.i8) || !index->rows.w || !log || !log->n) return WO_OK;
    wo_index own = *index, plain = *index; /* tables alone, and the same with f32 rows */
    own.full = plain.full = (woi_batches){0};
    plain.small = (woi_small){0};
    const wo_index *both[] = {&own, &plain};
    wo_searcher *searchers[2] = {NULL, NULL};
    wo_searcher_options so;
    wo_searcher_defaults(&so);
    so.threads = threads;
    wo_status status = WO_OK;
    for (int i = 0; !status && i < 2; i++) status = wo_searcher_create(both[i], &so, &searchers[i], err);
    const size_t n = log->n < MOST ? log->n : MOST;
    size_t best = 0, five = 0, all = 0;
    for (size_t i = 0; !status && i < n; i++) {
        int32_t ids[2][K];
        float scores[K];
        for (int side = 0; !status && side < 2; side++)
            status = wo_search(searchers[side], log->queries + log->n * i / n * log->d, 1, K, ids[side], scores, err);
        if (status) break;
        best += ids[0][0] == ids[1][0];
        for (int a = 0; a < K; a++) {
            all += ids[1][a] >= 0;
            for (int b = 0; b < K; b++) five += ids[1][a] >= 0 && ids[0][b] == ids[1][a];
        }
    }
    if (!status) index->same_best = (double)best / (double)n;
    if (!status && all) index->same_five = (double)five / (double)all;
    for (int i = 0; i < 2; i++) wo_searcher_free(searchers[i]);
    return status;
}
