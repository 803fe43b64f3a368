/* Logs with labels from beside them. */
#include "labelled.h"

#include "not_finite.h"
#include "store/log.h"

wo_status cli_labelled_open(const char *log, const char *labels, cli_labelled *l, wo_error *err)
{
    if (!labels || !woi_npz_look(labels)) return wo_log_open_labelled(log, labels, &l->log, err);
    wo_status status = wo_log_open(log, &l->queries, err);
    if (status) return status;
    if (l->queries->indptr)
        status = cli_set_error(err, WO_ERR_ARGUMENT, "the log has labels of its own");
    else
        status = woi_npz_labels(labels, &l->lists, err);
    const size_t n = wo_log_n(l->queries);
    if (!status) status = woi_labels_fit(l->lists.n, n, wo_log_d(l->queries), err);
    if (!status) {
        status = wo_log_wrap(wo_log_queries(l->queries), n, wo_log_d(l->queries), l->lists.indptr, l->lists.labels,
                             &l->log, err);
        if (!status) l->log->labels_apart = true; /* a label that does not fit is theirs */
        return status;
    }
    if (err->about == WO_ABOUT_NONE) err->about = WO_ABOUT_LABELS;
    return status;
}

void cli_labelled_free(cli_labelled *l)
{
    wo_log_free(l->log);
    wo_log_free(l->queries);
    woi_label_lists_free(&l->lists);
}

/* What a joined log can only say of all its files: a query that it counts on is somewhere in one of them. */
static wo_status check(const wo_log *log, const wo_log *first, const wo_layer *layer, wo_error *err)
{
    wo_layer_info about = {.struct_size = sizeof about};
    wo_layer_describe(layer, &about);
    wo_status status = woi_log_check(log, about.m_whole, about.d, err);
    if (!status && !log->indptr != !first->indptr)
        status = cli_set_error(err, WO_ERR_ARGUMENT, "has %s labels, the first log has %s: they do not go together",
                               log->indptr ? "its" : "no", first->indptr ? "its own" : "none");
    if (status) err->about = WO_ABOUT_LOG;
    return status;
}

wo_status cli_logs_open(const cli_texts *files, const char *labels, const wo_layer *layer, cli_logs *logs,
                        const char **at, wo_error *err)
{
    const wo_log *opened[CLI_MOST_TEXTS];
    for (size_t i = 0; i < files->n; i++) {
        *at = files->of[i];
        wo_status status = cli_labelled_open(files->of[i], labels, &logs->parts[i], err);
        if (status) return status;
        opened[i] = logs->parts[i].log;
        logs->rows[i] = wo_log_n(opened[i]);
        if (files->n > 1 && (status = check(opened[i], opened[0], layer, err))) return status;
    }
    if (files->n) logs->log = opened[0];
    if (files->n < 2) return WO_OK;
    *at = NULL;
    const wo_status status = wo_log_join(opened, files->n, &logs->joined, err);
    if (status) return status;
    for (size_t i = 0; i < files->n; i++) { /* what was joined is a copy */
        cli_labelled_free(&logs->parts[i]);
        logs->parts[i] = (cli_labelled){0};
    }
    logs->log = logs->joined;
    return WO_OK;
}

/* The queries of one file. */
static wo_log part_of(const cli_logs *logs, size_t i)
{
    const size_t d = wo_log_d(logs->log);
    size_t first = 0;
    for (size_t before = 0; before < i; before++) first += logs->rows[before];
    return (wo_log){.n = logs->rows[i], .d = d, .queries = wo_log_queries(logs->log) + first * d};
}

const char *cli_logs_blame(const cli_texts *files, const cli_logs *logs, wo_error *err)
{
    if (files->n == 1) return files->of[0];
    for (size_t i = 0; err->about == WO_ABOUT_LOG && i < files->n; i++) {
        const wo_log part = part_of(logs, i);
        wo_error own;
        if (!part.n || !woi_queries_check(&part, &own)) continue;
        *err = own;
        err->about = WO_ABOUT_LOG;
        return files->of[i];
    }
    return NULL;
}

void cli_logs_warn(const cli_texts *files, const cli_logs *logs, const wo_index *index)
{
    for (size_t i = 0; i < files->n; i++) {
        const wo_log part = part_of(logs, i);
        cli_not_finite_warn(files->of[i], &part, index);
    }
}

void cli_logs_free(cli_logs *logs)
{
    for (size_t i = 0; i < CLI_MOST_TEXTS; i++) cli_labelled_free(&logs->parts[i]);
    wo_log_free(logs->joined);
}
