/* Answers against how often their classes occur: see cli/specific.h. */
#include "specific.h"

#include "store/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static wo_status count_labels(const woi_log *log, size_t m, size_t d, size_t k, cli_specific *specific, wo_error *err)
{
    if (log->max_label < 0)
        return cli_set_error(err, WO_ERR_ARGUMENT, "has no labels, so that it does not tell how often a class occurs");
    if ((uint64_t)log->max_label >= m)
        return cli_set_error(err, WO_ERR_ARGUMENT, "has label %" PRId64 ", which is not below the %zu of the index",
                             log->max_label, m);
    if (log->d != d)
        return cli_set_error(err, WO_ERR_ARGUMENT,
                             "has queries of %" PRIu64 " numbers, the index takes %zu: is it a log of another layer?",
                             log->d, d);
    specific->counts = calloc(m, sizeof *specific->counts);
    specific->list = malloc(k * sizeof *specific->list);
    if (!specific->counts || !specific->list) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < log->indptr[log->n]; i++) {
        uint32_t *count = &specific->counts[log->labels[i]];
        const uint32_t times = log->label_counts ? (uint32_t)log->label_counts[i] : 1;
        *count = *count < UINT32_MAX - times ? *count + times : UINT32_MAX;
    }
    return WO_OK;
}

wo_status cli_specific_open(const char *path, size_t m, size_t d, size_t k, cli_specific *specific, wo_error *err)
{
    woi_log log = {0};
    wo_status status = woi_log_open(path, &log, err);
    if (!status) status = count_labels(&log, m, d, k, specific, err);
    woi_log_close(&log);
    return status;
}

void cli_specific_free(cli_specific *specific)
{
    free(specific->counts);
    free(specific->list);
    *specific = (cli_specific){0};
}

static int by_gain(const void *a, const void *b)
{
    const cli_ranked *x = a, *y = b;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

void cli_specific_order(const cli_specific *specific, wo_scores kind, int32_t *ids, float *scores, size_t k)
{
    size_t n = 0;
    for (; n < k && ids[n] >= 0; n++) {
        const double score = kind == WO_SCORES_SOFTMAX ? log((double)scores[n]) : (double)scores[n];
        specific->list[n] = (cli_ranked){score - log((double)specific->counts[ids[n]] + 1), n, ids[n], scores[n]};
    }
    qsort(specific->list, n, sizeof *specific->list, by_gain);
    for (size_t i = 0; i < n; i++) {
        ids[i] = specific->list[i].id;
        scores[i] = specific->list[i].score;
    }
}
