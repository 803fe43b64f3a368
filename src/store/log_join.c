/* Several logs as one: a copy of their queries and labels, one after the other. */
#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"
#include "store/log.h"

#include <string.h>

static wo_status check(const wo_log *const *logs, size_t n, wo_error *err)
{
    if (!n) return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "", "there are no logs to join");
    for (size_t i = 1; i < n; i++) {
        if (logs[i]->d != logs[0]->d)
            return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                                  "log %zu has queries of %zu numbers, the first of %zu: they do not go together",
                                  i + 1, logs[i]->d, logs[0]->d);
        if (!logs[i]->indptr != !logs[0]->indptr)
            return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                                  "log %zu has %s labels, the first has %s: they do not go together", i + 1,
                                  logs[i]->indptr ? "its" : "no", logs[0]->indptr ? "its own" : "none");
    }
    return WO_OK;
}

static size_t n_labels_of(const wo_log *log)
{
    return log->indptr ? (size_t)log->indptr[log->n] : 0;
}

static bool is_counted(const wo_log *const *logs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (logs[i]->counts) return true;
    return false;
}

/* Of a log that is not counted, each row stands for one query. */
static void copy_counts(const wo_log *from, int32_t *counts, int32_t *label_counts)
{
    for (size_t i = 0; i < from->n; i++) counts[i] = from->counts ? from->counts[i] : 1;
    for (size_t i = 0; i < n_labels_of(from); i++) label_counts[i] = from->counts ? from->label_counts[i] : 1;
}

static wo_status copy(const wo_log *const *logs, size_t n, wo_log *to, wo_error *err)
{
    const size_t d = to->d = logs[0]->d;
    size_t n_labels = 0, elements;
    for (size_t i = 0; i < n; i++)
        if (!woi_size_add(to->n, logs[i]->n, &to->n) || !woi_size_add(n_labels, n_labels_of(logs[i]), &n_labels))
            return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory");
    if (!woi_size_mul(to->n, d, &elements)) return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory");
    woi_log *own = &to->file;
    to->queries = to->copy = woi_alloc(elements, sizeof *to->copy, err);
    if (logs[0]->indptr) {
        to->indptr = own->indptr = woi_alloc(to->n + 1, sizeof *own->indptr, err);
        to->labels = own->labels = woi_alloc(n_labels, sizeof *own->labels, err);
    }
    if (!to->copy || (logs[0]->indptr && (!own->indptr || !own->labels))) return WO_ERR_MEMORY;
    if (is_counted(logs, n)) {
        to->counts = own->counts = woi_alloc(to->n, sizeof *own->counts, err);
        to->label_counts = own->label_counts = woi_alloc(n_labels, sizeof *own->label_counts, err);
        if (!own->counts || !own->label_counts) return WO_ERR_MEMORY;
    }
    to->max_label = -1;
    size_t row = 0, label = 0;
    for (size_t i = 0; i < n; i++) {
        const wo_log *from = logs[i];
        if (from->n) memcpy(to->copy + row * d, from->queries, from->n * d * sizeof *to->copy);
        for (size_t j = 0; from->indptr && j <= from->n; j++) own->indptr[row + j] = (int64_t)label + from->indptr[j];
        if (n_labels_of(from)) memcpy(own->labels + label, from->labels, n_labels_of(from) * sizeof *own->labels);
        if (own->counts) copy_counts(from, own->counts + row, own->label_counts + label);
        if (from->max_label > to->max_label) to->max_label = from->max_label;
        row += from->n;
        label += n_labels_of(from);
    }
    return WO_OK;
}

wo_status wo_log_join(const wo_log *const *logs, size_t n, wo_log **joined, wo_error *err)
{
    *joined = NULL;
    wo_status status = check(logs, n, err);
    if (status) return status;
    wo_log *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    status = copy(logs, n, made, err);
    if (status)
        wo_log_free(made);
    else
        *joined = made;
    return status;
}
