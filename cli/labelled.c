/* Logs with labels from beside them. */
#include "labelled.h"

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

wo_status cli_logs_open(const cli_texts *files, const char *labels, cli_logs *logs, const char **at, wo_error *err)
{
    const wo_log *opened[CLI_MOST_TEXTS];
    for (size_t i = 0; i < files->n; i++) {
        *at = files->of[i];
        const wo_status status = cli_labelled_open(files->of[i], labels, &logs->parts[i], err);
        if (status) return status;
        opened[i] = logs->parts[i].log;
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

void cli_logs_free(cli_logs *logs)
{
    for (size_t i = 0; i < CLI_MOST_TEXTS; i++) cli_labelled_free(&logs->parts[i]);
    wo_log_free(logs->joined);
}
