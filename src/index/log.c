/* Logs as the library's users hand them over: a file, or arrays. */
#include "index/index.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdint.h>

wo_status wo_log_open(const char *path, wo_log **log, wo_error *err)
{
    *log = NULL;
    wo_log *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    wo_status status = woi_about(err, WO_ABOUT_LOG, woi_log_open(path, &made->file, err));
    if (!status) {
        const woi_tensor *q = made->file.queries;
        made->n = made->file.n;
        made->d = made->file.d;
        made->indptr = made->file.indptr;
        made->labels = made->file.labels;
        made->max_label = made->file.max_label;
        made->queries = q->data;
        if (q->dtype != WOI_F32 || (uintptr_t)q->data % sizeof(float)) {
            made->queries = made->copy = woi_alloc(q->n, sizeof *made->copy, err);
            status = made->copy ? woi_convert_f32(q->dtype, q->data, q->n, made->copy, err) : WO_ERR_MEMORY;
        }
    }
    if (status) {
        wo_log_free(made);
        return status;
    }
    *log = made;
    return WO_OK;
}

static wo_status check_labels(const int64_t *indptr, const int32_t *labels, size_t n, int64_t *max, wo_error *err)
{
    *max = -1;
    if (!indptr != !labels) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "labels and their indptr go together");
    if (!indptr) return WO_OK;
    if (indptr[0] != 0)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "indptr starts at %" PRId64 ", not at 0", indptr[0]);
    for (size_t i = 0; i < n; i++)
        if (indptr[i + 1] < indptr[i])
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                            "indptr falls from %" PRId64 " to %" PRId64 " at query %zu", indptr[i], indptr[i + 1], i);
    for (int64_t i = 0; i < indptr[n]; i++) {
        if (labels[i] < 0)
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "label %" PRId32 " at place %" PRId64 " is negative",
                            labels[i], i);
        if (labels[i] > *max) *max = labels[i];
    }
    return WO_OK;
}

wo_status wo_log_wrap(const float *queries, size_t n, size_t d, const int64_t *indptr, const int32_t *labels,
                      wo_log **log, wo_error *err)
{
    *log = NULL;
    int64_t max;
    size_t elements;
    if (d < 1 || !woi_size_mul(n, d, &elements) || (n && !queries))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "", "%zu queries of %zu numbers are no log", n, d);
    wo_status status = woi_about(err, WO_ABOUT_LOG, check_labels(indptr, labels, n, &max, err));
    if (status) return status;
    wo_log *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    *made = (wo_log){.n = n, .d = d, .queries = queries, .indptr = indptr, .labels = labels, .max_label = max};
    *log = made;
    return WO_OK;
}

void wo_log_free(wo_log *log)
{
    if (!log) return;
    woi_log_close(&log->file);
    woi_free(log->copy);
    woi_free(log);
}

size_t wo_log_n(const wo_log *log)
{
    return log->n;
}

size_t wo_log_d(const wo_log *log)
{
    return log->d;
}

const float *wo_log_queries(const wo_log *log)
{
    return log->queries;
}
