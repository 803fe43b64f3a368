/* Making rows in fewer bits: see small.h. */
#include "layer/small.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/team.h"
#include "store/store.h"

#include <math.h>

void woi_small_free(woi_small *small)
{
    woi_free(small->bf16);
    woi_free(small->i8);
    woi_free(small->scales);
    *small = (woi_small){0};
}

float woi_quantise(const woi_kernels *kernels, const float *x, size_t d, int8_t *out)
{
    const float scale = kernels->quantise(x, d, out);
    if (scale != 0) return scale;
    float most = 0;
    for (size_t j = 0; j < d; j++) most = fmaxf(most, fabsf(x[j]));
    if (most == 0) return 0;
    for (size_t j = 0; j < d; j++) out[j] = (int8_t)lrint((double)x[j] / (double)most * 127);
    return (float)((double)most / 127);
}

typedef struct making {
    const woi_kernels *kernels;
    const woi_dense *rows;
    woi_small *small;
} making;

static void make_rows(void *own, int worker, size_t first, size_t end)
{
    const making *m = own;
    const size_t d = m->rows->d;
    (void)worker;
    for (size_t i = first; i < end; i++) {
        const float *row = m->rows->w + i * d;
        if (m->small->i8) m->small->scales[i] = woi_quantise(m->kernels, row, d, m->small->i8 + i * d);
        if (m->small->bf16)
            for (size_t j = 0; j < d; j++) m->small->bf16[i * d + j] = woi_f32_to_bf16(row[j]);
    }
}

wo_status woi_small_check(const woi_dense *rows, wo_error *err)
{
    for (size_t i = 0; i < rows->m * rows->d; i++)
        if (!woi_fits_bf16(rows->w[i]))
            return woi_fail_option(err, WO_ERR_ARGUMENT, "weights",
                                   "weight %zu of class %zu is %g, which bf16 would make infinite: f32 rows keep it",
                                   i % rows->d, i / rows->d, (double)rows->w[i]);
    return WO_OK;
}

wo_status woi_small_make(const woi_dense *rows, wo_weights weights, int threads, woi_small *small, wo_error *err)
{
    const size_t m = rows->m, d = rows->d;
    *small = (woi_small){0};
    const bool screened = woi_has_int8(weights), halves = woi_has_bf16(weights);
    if (!screened && !halves) return WO_OK;
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    if (screened && d > WOI_MAX_I8)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "weights", "rows of %zu numbers are too long for int8: at most %d",
                               d, WOI_MAX_I8);
    if (halves) {
        const wo_status status = woi_small_check(rows, err);
        if (status) return status;
    }
    if (screened) {
        small->i8 = woi_alloc(m, d, err);
        small->scales = woi_alloc(m, sizeof *small->scales, err);
    }
    if (halves) small->bf16 = woi_alloc(m, d * sizeof *small->bf16, err);
    if ((screened && (!small->i8 || !small->scales)) || (halves && !small->bf16)) {
        woi_small_free(small);
        return WO_ERR_MEMORY;
    }
    enum { ROWS_AT_ONCE = 512 };
    woi_team_ranges(woi_team_threads(threads), m, ROWS_AT_ONCE, make_rows, &(making){kernels, rows, small});
    return WO_OK;
}
