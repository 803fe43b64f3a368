/* Logs as files, and as arrays that the library's users hand over: see log.h. */
#include "store/log.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Files ------------------------------------------------------------------------------------------------- */

static wo_status check_tensor(const woi_tensor *tensor, const char *name, int n_dims, unsigned dtypes,
                              const char *expected, wo_error *err)
{
    if (!tensor) return woi_fail(err, WO_ERR_FORMAT, 8, "the file is no log: it has no tensor '%s'", name);
    if (tensor->n_dims != n_dims)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' has %d dimensions, expected %d", name, tensor->n_dims,
                        n_dims);
    if (!(dtypes >> tensor->dtype & 1))
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "'%s' is of type %s, expected %s", name,
                        woi_dtype_name(tensor->dtype), expected);
    return WO_OK;
}

static wo_status check_indptr(const woi_log *log, const woi_tensor *tensor, uint64_t n_labels, wo_error *err)
{
    for (uint64_t i = 0; i <= log->n; i++) {
        int64_t before = i ? log->indptr[i - 1] : 0;
        if (log->indptr[i] < before)
            return woi_fail(err, WO_ERR_FORMAT, tensor->offset + 8 * i,
                            "labels.indptr[%" PRIu64 "] is %" PRId64 ", expected %" PRId64 " or more", i,
                            log->indptr[i], before);
        if (i == 0 && log->indptr[0] != 0)
            return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "labels.indptr[0] is %" PRId64 ", expected 0",
                            log->indptr[0]);
    }
    if ((uint64_t)log->indptr[log->n] != n_labels)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset + 8 * log->n,
                        "labels.indptr ends at %" PRId64 ", but there are %" PRIu64 " labels.indices",
                        log->indptr[log->n], n_labels);
    return WO_OK;
}

static wo_status read_labels(woi_log *log, const woi_tensor *tensor, wo_error *err)
{
    const size_t bytes = woi_dtype_bytes(tensor->dtype);
    for (uint64_t i = 0; i < tensor->n; i++) {
        int64_t label;
        wo_status status = woi_convert_i64(tensor->dtype, (const char *)tensor->data + i * bytes, 1, &label, err);
        if (status) return status;
        if (label < 0 || label > INT32_MAX)
            return woi_fail(err, WO_ERR_FORMAT, tensor->offset + i * bytes,
                            "labels.indices[%" PRIu64 "] is %" PRId64 ", expected 0 to %d", i, label, INT32_MAX);
        log->labels[i] = (int32_t)label;
        if (label > log->max_label) log->max_label = label;
    }
    return WO_OK;
}

static wo_status read_tensors(const woi_st *st, woi_log *log, wo_error *err)
{
    const woi_tensor *indptr = woi_st_find(st, "labels.indptr"), *indices = woi_st_find(st, "labels.indices");
    log->queries = woi_st_find(st, "queries");
    wo_status status = check_tensor(log->queries, "queries", 2, 1u << WOI_F32 | 1u << WOI_F16 | 1u << WOI_BF16,
                                    "F32, F16 or BF16", err);
    if (status) return status;
    log->n = log->queries->shape[0];
    log->d = log->queries->shape[1];
    log->max_label = -1;
    if (!indptr && !indices) return WO_OK;
    if ((status = check_tensor(indptr, "labels.indptr", 1, 1u << WOI_I64, "I64", err)) ||
        (status = check_tensor(indices, "labels.indices", 1, 1u << WOI_I32 | 1u << WOI_I64, "I32 or I64", err)))
        return status;
    if (indptr->n == 0 || indptr->n - 1 != log->n)
        return woi_fail(err, WO_ERR_FORMAT, indptr->offset,
                        "labels.indptr has %" PRIu64 " entries, expected one more than the %" PRIu64 " queries",
                        indptr->n, log->n);
    if (!(log->indptr = woi_alloc(indptr->n, sizeof *log->indptr, err)) ||
        !(log->labels = woi_alloc(indices->n, sizeof *log->labels, err)))
        return WO_ERR_MEMORY;
    if ((status = woi_convert_i64(WOI_I64, indptr->data, indptr->n, log->indptr, err)) ||
        (status = check_indptr(log, indptr, indices->n, err)))
        return status;
    return read_labels(log, indices, err);
}

wo_status woi_log_read(const woi_st *st, woi_log *log, wo_error *err)
{
    memset(log, 0, sizeof *log);
    wo_status status = read_tensors(st, log, err);
    if (status) woi_log_close(log);
    return status;
}

wo_status woi_log_open(const char *path, woi_log *log, wo_error *err)
{
    memset(log, 0, sizeof *log);
    woi_st *st = NULL;
    wo_status status = woi_st_open(path, &st, err);
    if (!status) status = woi_st_verify(st, NULL, err);
    if (!status) status = woi_log_read(st, log, err);
    if (status)
        woi_st_free(st);
    else
        log->st = st;
    return status;
}

void woi_log_close(woi_log *log)
{
    woi_free(log->indptr);
    woi_free(log->labels);
    woi_st_free(log->st);
    memset(log, 0, sizeof *log);
}

/* ---- What users hold --------------------------------------------------------------------------------------- */

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

wo_status woi_labels_check(const int64_t *indptr, const int32_t *labels, size_t n, uint64_t first, int64_t *max,
                           wo_error *err)
{
    *max = -1;
    if (!labels && indptr ? indptr[n] != 0 : labels && !indptr)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "labels and their indptr go together");
    if (!indptr) return WO_OK;
    if (indptr[0] != 0)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "indptr starts at %" PRId64 ", not at 0", indptr[0]);
    for (size_t i = 0; i < n; i++)
        if (indptr[i + 1] < indptr[i])
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                            "indptr falls from %" PRId64 " to %" PRId64 " at query %" PRIu64, indptr[i], indptr[i + 1],
                            first + i);
    for (int64_t i = 0; labels && i < indptr[n]; i++) {
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
    wo_status status = woi_about(err, WO_ABOUT_LOG, woi_labels_check(indptr, labels, n, 0, &max, err));
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

/* ---- Checks ------------------------------------------------------------------------------------------------ */

wo_status woi_log_check(const wo_log *log, size_t m, size_t d, wo_error *err)
{
    if (log->d != d)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the log's queries have %zu numbers, the layer's rows %zu",
                        log->d, d);
    if (log->max_label >= (int64_t)m)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the log has label %" PRId64 ", the layer %zu classes",
                        log->max_label, m);
    return WO_OK;
}

wo_status woi_queries_check(const wo_log *log, wo_error *err)
{
    if (log->n == 0) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the log has no queries");
    for (size_t i = 0; i < log->n * log->d; i++)
        if (!isfinite(log->queries[i]))
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "query %zu of the log has %g at place %zu", i / log->d,
                            (double)log->queries[i], i % log->d);
    return WO_OK;
}
