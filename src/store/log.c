/* Logs as files, and as arrays that the library's users hand over: see log.h. */
#include "store/log.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/team.h"
#include "store/journal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL /* no library call to fail */
#include <xxhash.h>

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

/* n integers from 1 on. */
static wo_status read_counts(const woi_tensor *tensor, const char *name, uint64_t n, int32_t **counts, wo_error *err)
{
    const size_t bytes = woi_dtype_bytes(tensor->dtype);
    wo_status status = check_tensor(tensor, name, 1, 1u << WOI_I32 | 1u << WOI_I64, "I32 or I64", err);
    if (status) return status;
    if (tensor->n != n)
        return woi_fail(err, WO_ERR_FORMAT, tensor->offset, "%s has %" PRIu64 " entries, expected %" PRIu64, name,
                        tensor->n, n);
    if (!(*counts = woi_alloc((size_t)n, sizeof **counts, err))) return WO_ERR_MEMORY;
    for (uint64_t i = 0; !status && i < n; i++) {
        int64_t count;
        status = woi_convert_i64(tensor->dtype, (const char *)tensor->data + i * bytes, 1, &count, err);
        if (!status && (count < 1 || count > INT32_MAX))
            status = woi_fail(err, WO_ERR_FORMAT, tensor->offset + i * bytes,
                              "%s[%" PRIu64 "] is %" PRId64 ", expected 1 to %d", name, i, count, INT32_MAX);
        (*counts)[i] = (int32_t)count;
    }
    return status;
}

/* No label was seen more often than its query. */
static wo_status check_counts(const woi_log *log, const woi_tensor *tensor, wo_error *err)
{
    for (uint64_t i = 0; i < log->n; i++)
        for (int64_t at = log->indptr[i]; at < log->indptr[i + 1]; at++)
            if (log->label_counts[at] > log->counts[i])
                return woi_fail(err, WO_ERR_FORMAT, tensor->offset + (uint64_t)at * woi_dtype_bytes(tensor->dtype),
                                "labels.counts[%" PRId64 "] is %" PRId32 ", more than the %" PRId32
                                " of its query in queries.counts",
                                at, log->label_counts[at], log->counts[i]);
    return WO_OK;
}

static wo_status read_counted(const woi_st *st, woi_log *log, wo_error *err)
{
    const woi_tensor *rows = woi_st_find(st, "queries.counts"), *labels = woi_st_find(st, "labels.counts");
    if (!rows && !labels) return WO_OK;
    if (!rows || !labels || !log->indptr)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the log has %s, but no %s: a counted log has both, and labels.indices",
                        rows ? "queries.counts" : "labels.counts",
                        !rows     ? "queries.counts"
                        : !labels ? "labels.counts"
                                  : "labels.indices");
    wo_status status = read_counts(rows, "queries.counts", log->n, &log->counts, err);
    if (!status) status = read_counts(labels, "labels.counts", (uint64_t)log->indptr[log->n], &log->label_counts, err);
    return status ? status : check_counts(log, labels, err);
}

/* Labels as a table, of numbers of any type: -1, and -100 where PyTorch wrote it, stand for none. */
static wo_status take_table(woi_log *log, const int64_t *table, uint64_t columns, wo_error *err)
{
    enum { NONE = -1, IGNORED = -100 };
    size_t n_labels = 0, cells;
    if (!woi_size_mul(log->n, columns, &cells)) return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory");
    const wo_status status = woi_labels_no_flags(table, (size_t)log->n, (size_t)columns, err);
    if (status) return status;
    if (!(log->indptr = woi_alloc(log->n + 1, sizeof *log->indptr, err)) ||
        !(log->labels = woi_alloc(cells, sizeof *log->labels, err)))
        return WO_ERR_MEMORY;
    log->indptr[0] = 0;
    for (uint64_t i = 0; i < log->n; i++) {
        for (uint64_t c = 0; c < columns; c++) {
            const int64_t label = table[i * columns + c];
            if (label == NONE || label == IGNORED) continue;
            if (label < 0 || label > INT32_MAX)
                return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                                "the label of query %" PRIu64 " is %" PRId64 ", expected 0 to %d, or -1 for none", i,
                                label, INT32_MAX);
            log->labels[n_labels++] = (int32_t)label;
            if (label > log->max_label) log->max_label = label;
        }
        log->indptr[i + 1] = (int64_t)n_labels;
    }
    return WO_OK;
}

wo_status woi_labels_fit(uint64_t rows, uint64_t n, uint64_t d, wo_error *err)
{
    if (rows == n) return WO_OK;
    if (rows == d)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_LOG, "",
                              "%" PRIu64 " queries of %" PRIu64 " numbers, and there are labels of %" PRIu64
                              ": is the log transposed? Its rows are queries",
                              n, d, rows);
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                    "the labels have %" PRIu64 " rows, expected %" PRIu64 ": one for each query", rows, n);
}

wo_status woi_labels_no_flags(const int64_t *table, size_t rows, size_t columns, wo_error *err)
{
    enum { FEWEST = 16 }; /* columns: of fewer, a short list may name the classes 0 and 1 several times */
    if (columns < FEWEST || rows == 0) return WO_OK;
    for (size_t i = 0; i < rows * columns; i++)
        if (table[i] != 0 && table[i] != 1) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                    "the %zu columns of labels are all 0 or 1, as flags are: expected the numbers of the classes, or a "
                    "CSR matrix of SciPy's",
                    columns);
}

/* What a table of labels is: n rows, one column or more. */
static wo_status check_table(int n_dims, const uint64_t *shape, uint64_t n, uint64_t d, wo_error *err)
{
    if (n_dims != 1 && n_dims != 2)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the labels have %d dimensions, expected (n) or (n, l)",
                        n_dims);
    return woi_labels_fit(shape[0], n, d, err);
}

static wo_status read_table(woi_log *log, const woi_tensor *tensor, wo_error *err)
{
    wo_status status = check_table(tensor->n_dims, tensor->shape, log->n, log->d, err);
    if (status) return status;
    int64_t *table = woi_alloc((size_t)tensor->n, sizeof *table, err);
    if (!table) return WO_ERR_MEMORY;
    status = woi_convert_i64(tensor->dtype, tensor->data, (size_t)tensor->n, table, err);
    if (!status) status = take_table(log, table, tensor->n_dims == 2 ? tensor->shape[1] : 1, err);
    woi_free(table);
    return status;
}

static wo_status read_tensors(const woi_st *st, woi_log *log, wo_error *err)
{
    const woi_tensor *table = woi_st_find(st, "labels"), *indptr = woi_st_find(st, "labels.indptr"),
                     *indices = woi_st_find(st, "labels.indices");
    log->queries = woi_st_find(st, "queries");
    wo_status status =
        check_tensor(log->queries, "queries", 2, 1u << WOI_F32 | 1u << WOI_F16 | 1u << WOI_BF16 | 1u << WOI_F64,
                     "F32, F16, BF16 or F64", err);
    if (status) return status;
    log->n = log->queries->shape[0];
    log->d = log->queries->shape[1];
    log->max_label = -1;
    if (log->d == 0) /* any number of such queries has no bytes */
        return woi_fail(err, WO_ERR_FORMAT, 8, "queries have no numbers: expected (n, d), n queries of d numbers");
    if (!indptr && !indices) return table ? read_table(log, table, err) : WO_OK;
    if (!indptr || !indices)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the file is no log: it has no tensor '%s'",
                        indptr ? "labels.indices" : "labels.indptr");
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
    if (!status) status = read_counted(st, log, err);
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
    woi_free(log->counts);
    woi_free(log->label_counts);
    woi_st_free(log->st);
    memset(log, 0, sizeof *log);
}

/* ---- What users hold --------------------------------------------------------------------------------------- */

/* Queries in an array of NumPy's: used where they lie, if they can be. */
static wo_status open_npy(const char *path, wo_log *log, wo_error *err)
{
    woi_npy *npy = &log->npy;
    wo_status status = woi_npy_open(path, npy, err);
    if (status) return status;
    if (npy->n_dims != 2 || npy->shape[1] == 0)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "the array has %d dimensions, expected queries (n, d): n of them, of d numbers", npy->n_dims);
    log->n = (size_t)npy->shape[0];
    log->d = (size_t)npy->shape[1];
    log->max_label = -1;
    log->queries = npy->data;
    if (npy->dtype == WOI_F32 && !npy->fortran && !npy->swapped && (uintptr_t)npy->data % sizeof(float) == 0)
        return WO_OK;
    log->queries = log->copy = woi_alloc((size_t)npy->n, sizeof *log->copy, err);
    return log->copy ? woi_npy_read_f32(npy, log->copy, err) : WO_ERR_MEMORY;
}

static wo_status open_file(const char *path, wo_log *log, wo_error *err)
{
    const wo_status status = woi_log_open(path, &log->file, err);
    if (status) return status;
    const woi_tensor *q = log->file.queries;
    log->n = (size_t)log->file.n;
    log->d = (size_t)log->file.d;
    log->indptr = log->file.indptr;
    log->labels = log->file.labels;
    log->counts = log->file.counts;
    log->label_counts = log->file.label_counts;
    log->max_label = log->file.max_label;
    log->queries = q->data;
    if (q->dtype == WOI_F32 && (uintptr_t)q->data % sizeof(float) == 0) return WO_OK;
    log->queries = log->copy = woi_alloc((size_t)q->n, sizeof *log->copy, err);
    return log->copy ? woi_convert_f32(q->dtype, q->data, (size_t)q->n, log->copy, err) : WO_ERR_MEMORY;
}

/* Labels in an array of NumPy's, beside queries that have none. */
static wo_status read_npy_labels(const char *path, wo_log *log, wo_error *err)
{
    woi_npy npy = {0};
    int64_t *table = NULL;
    woi_log *file = &log->file;
    if (log->indptr) return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LABELS, "", "the log has labels of its own");
    wo_status status = woi_npy_open(path, &npy, err);
    if (!status) status = check_table(npy.n_dims, npy.shape, log->n, log->d, err);
    if (!status && npy.dtype != WOI_I32 && npy.dtype != WOI_I64)
        status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the labels are of type %s, expected I32 or I64",
                          woi_dtype_name(npy.dtype));
    if (!status && !(table = woi_alloc((size_t)npy.n, sizeof *table, err))) status = WO_ERR_MEMORY;
    if (!status) status = woi_npy_read_i64(&npy, table, err);
    file->n = log->n;
    file->max_label = -1;
    if (!status) status = take_table(file, table, npy.n_dims == 2 ? npy.shape[1] : 1, err);
    log->indptr = file->indptr;
    log->labels = file->labels;
    log->max_label = file->max_label;
    log->labels_apart = true;
    woi_free(table);
    woi_npy_close(&npy);
    return woi_about(err, WO_ABOUT_LABELS, status);
}

wo_status wo_log_open_labelled(const char *path, const char *labels_path, wo_log **log, wo_error *err)
{
    *log = NULL;
    woi_file_kind kind;
    wo_status status = woi_file_recognise(path, &kind, err);
    if (status) return woi_about(err, WO_ABOUT_LOG, status);
    wo_log *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    status = kind == WOI_FILE_NPY       ? open_npy(path, made, err)
             : kind == WOI_FILE_JOURNAL ? woi_journal_read(path, made, err)
                                        : open_file(path, made, err);
    status = woi_about(err, WO_ABOUT_LOG, status);
    if (!status && labels_path) status = read_npy_labels(labels_path, made, err);
    if (status)
        wo_log_free(made);
    else
        *log = made;
    return status;
}

wo_status wo_log_open(const char *path, wo_log **log, wo_error *err)
{
    return wo_log_open_labelled(path, NULL, log, err);
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

wo_status woi_labelled_check(const float *queries, size_t n, const int64_t *indptr, const int32_t *labels, int64_t *max,
                             wo_error *err)
{
    *max = -1;
    if (!queries || !indptr)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "",
                              "queries or the indptr of their labels is NULL");
    return woi_about(err, WO_ABOUT_QUERY, woi_labels_check(indptr, labels, n, 0, max, err));
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
    woi_npy_close(&log->npy);
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

const int32_t *wo_log_labels(const wo_log *log, const int64_t **indptr)
{
    *indptr = log->indptr;
    return log->labels;
}

double wo_log_most_frequent(const wo_log *log)
{
    enum { MOST = 100000 };
    const size_t n = log->n < MOST ? log->n : MOST;
    const int64_t *starts = log->indptr;
    size_t n_labels = 0, kept = 0, labelled = 0, most = 0;
    for (size_t i = 0; starts && i < n; i++) {
        const size_t row = woi_part_start(i, n, log->n);
        n_labels += (size_t)(starts[row + 1] - starts[row]);
    }
    int32_t *ids = n_labels ? woi_alloc(n_labels, sizeof *ids, NULL) : NULL;
    for (size_t i = 0; ids && i < n; i++) {
        const size_t own = woi_labels_of(starts, log->labels, woi_part_start(i, n, log->n), ids + kept);
        labelled += own > 0;
        kept += own;
    }
    woi_ids_sort(ids, kept);
    for (size_t i = 0, first = 0; i < kept; i++) {
        if (ids[i] != ids[first]) first = i;
        if (i - first + 1 > most) most = i - first + 1;
    }
    woi_free(ids);
    return labelled ? (double)most / (double)labelled : NAN;
}

/* ---- Checks ------------------------------------------------------------------------------------------------ */

/* What is likely behind numbers that do not fit: "" where nobody can tell. */
static const char *likely_cause(const wo_log *log, size_t m, size_t d)
{
    if (log->d == m) return ": is the layer transposed? Its rows are classes";
    if (log->n == d) return ": is the log transposed? Its rows are queries";
    return "";
}

wo_status woi_log_check(const wo_log *log, size_t m, size_t d, wo_error *err)
{
    if (log->d != d)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "the log's queries have %zu numbers, the layer's rows %zu%s", log->d, d,
                        likely_cause(log, m, d));
    if (log->max_label < (int64_t)m) return WO_OK;
    size_t query = 0;
    int64_t at = 0;
    while (log->labels[at] < (int64_t)m) at++;
    while (log->indptr[query + 1] <= at) query++;
    return woi_fail_about(err, WO_ERR_ARGUMENT, log->labels_apart ? WO_ABOUT_LABELS : WO_ABOUT_NONE, "",
                          "query %zu has label %" PRId32 ", the layer %zu classes%s", query, log->labels[at], m,
                          log->max_label == (int64_t)m ? ": do labels count from 1? Here they count from 0" : "");
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

uint64_t woi_log_hash(const wo_log *log)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, log->queries, log->n * log->d * sizeof *log->queries);
    if (log->indptr) {
        XXH3_64bits_update(&state, log->indptr, (log->n + 1) * sizeof *log->indptr);
        XXH3_64bits_update(&state, log->labels, (size_t)log->indptr[log->n] * sizeof *log->labels);
    }
    if (log->counts) {
        XXH3_64bits_update(&state, log->counts, log->n * sizeof *log->counts);
        XXH3_64bits_update(&state, log->label_counts, (size_t)log->indptr[log->n] * sizeof *log->label_counts);
    }
    return XXH3_64bits_digest(&state);
}
