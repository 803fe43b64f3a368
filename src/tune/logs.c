/* What a tuner builds from and what it judges on: seeded samples, where logs are large or one must serve as both. */
#include "tune/tune.h"

#include "base/error.h"
#include "base/finite.h"
#include "base/rng.h"
#include "base/size.h"

#include <inttypes.h>
#include <string.h>

enum {
    MOST_TRAIN = 700000, /* queries that are built from while tuning: asking FULL of 683,000 takes 40 s */
    HELD_OUT = 10,       /* every tenth query, on average, where there is no tune log */
    LEAST_HELD = 200,    /* queries of a log, some of which are held out where hits are few */
    MOST_HELD = 4096,
    MOST_SAMPLED = 16384,
};
enum { STREAM_HELD_OUT = 0x74756e65, STREAM_JUDGED, STREAM_TRAIN, STREAM_HELD, STREAM_SAMPLED };

/* The queries picks[0 .. n) of a log, with their labels. What it allocates woi_tune_logs_free frees. */
static wo_status copy(const wo_log *from, const size_t *picks, size_t n, wo_log *to, wo_error *err)
{
    const size_t d = from->d;
    size_t n_labels = 0, n_floats;
    for (size_t i = 0; from->indptr && i < n; i++)
        n_labels += (size_t)(from->indptr[picks[i] + 1] - from->indptr[picks[i]]);
    if (!woi_size_mul(n, d, &n_floats)) return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory");
    *to = (wo_log){.n = n, .d = d, .max_label = from->max_label};
    float *q = to->copy = woi_alloc(n_floats, sizeof *q, err);
    to->queries = q;
    if (!q) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) memcpy(q + i * d, from->queries + picks[i] * d, d * sizeof *q);
    if (!from->indptr) return WO_OK;
    int64_t *indptr = woi_alloc(n + 1, sizeof *indptr, err);
    int32_t *labels = woi_alloc(n_labels, sizeof *labels, err);
    to->indptr = indptr;
    to->labels = labels;
    if (!indptr || !labels) return WO_ERR_MEMORY;
    int32_t *counts = NULL, *label_counts = NULL;
    if (from->counts) {
        to->counts = counts = woi_alloc(n, sizeof *counts, err);
        to->label_counts = label_counts = woi_alloc(n_labels, sizeof *label_counts, err);
        if (!counts || !label_counts) return WO_ERR_MEMORY;
    }
    indptr[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t first = from->indptr[picks[i]], own = from->indptr[picks[i] + 1] - first;
        memcpy(labels + indptr[i], from->labels + first, (size_t)own * sizeof *labels);
        if (counts) counts[i] = from->counts[picks[i]];
        if (counts) memcpy(label_counts + indptr[i], from->label_counts + first, (size_t)own * sizeof *labels);
        indptr[i + 1] = indptr[i] + own;
    }
    return WO_OK;
}

static void free_copy(wo_log *log)
{
    if (log->copy) {
        woi_free((void *)log->indptr);
        woi_free((void *)log->labels);
        woi_free((void *)log->counts);
        woi_free((void *)log->label_counts);
    }
    woi_free(log->copy);
    *log = (wo_log){0};
}

void woi_tune_logs_free(woi_tune *t)
{
    free_copy(&t->train);
    free_copy(&t->judged);
    free_copy(&t->held);
    free_copy(&t->sampled);
    woi_free(t->held_picks);
}

/* The queries to judge on, rising and finite. */
static size_t pick_judged(const woi_tune *t, const wo_log *from, size_t n, uint64_t stream, size_t *picks)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t query = woi_rng_place(t->build.seed, stream, i, n, from->n);
        if (woi_all_finite(from->queries + query * from->d, from->d)) picks[found++] = query;
    }
    return found;
}

/* Every so-many-th of a log, on average: a seeded sample of n, in rising order. */
static wo_status sample(const wo_log *from, size_t n, uint64_t seed, uint64_t stream, wo_log *to, wo_error *err)
{
    size_t *picks = woi_alloc(n, sizeof *picks, err);
    if (!picks) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) picks[i] = woi_rng_place(seed, stream, i, n, from->n);
    const wo_status status = copy(from, picks, n, to, err);
    woi_free(picks);
    return status;
}

wo_status woi_tune_pick_judged(woi_tune *t, const wo_log *tune_log, wo_error *err)
{
    const wo_log *log = t->log, *from = tune_log ? tune_log : log;
    t->held_out = !tune_log && log->n >= WO_TUNE_FEW; /* where there are fewer, they are judged and built from */
    size_t n = t->held_out ? log->n / HELD_OUT : from->n;
    if (n > t->o.max_queries) n = (size_t)t->o.max_queries;
    if (n > woi_tune_most_judged(t)) n = woi_tune_most_judged(t);
    size_t *picks = woi_alloc(n, sizeof *picks, err);
    if (!picks) return WO_ERR_MEMORY;
    n = pick_judged(t, from, n, t->held_out ? STREAM_HELD_OUT : STREAM_JUDGED, picks);
    wo_status status = WO_OK;
    if (n == 0)
        status =
            woi_fail_about(err, WO_ERR_ARGUMENT, tune_log ? WO_ABOUT_TUNE_LOG : WO_ABOUT_LOG, "",
                           "%s has no query with finite numbers to judge by", tune_log ? "the tune log" : "the log");
    if (!status) status = copy(from, picks, n, &t->judged, err);
    if (!status)
        status =
            sample(&t->judged, n < MOST_SAMPLED ? n : MOST_SAMPLED, t->build.seed, STREAM_SAMPLED, &t->sampled, err);
    if (t->held_out && !status) {
        t->held_picks = picks;
        t->n_held_picks = n;
    } else {
        woi_free(picks);
    }
    return status;
}

wo_status woi_tune_pick_train(woi_tune *t, wo_error *err)
{
    const wo_log *log = t->log;
    size_t kept = 0, n_held = 0;
    size_t *rest = woi_alloc(log->n, sizeof *rest, err), *held = woi_alloc(MOST_HELD, sizeof *held, err);
    wo_status status = rest && held ? WO_OK : WO_ERR_MEMORY;
    if (status) goto done;
    for (size_t i = 0, at = 0; i < log->n; i++)
        if (at < t->n_held_picks && t->held_picks[at] == i)
            at++;
        else
            rest[kept++] = i;
    if (t->few_hits && kept >= LEAST_HELD) {
        n_held = kept / HELD_OUT < MOST_HELD ? kept / HELD_OUT : MOST_HELD;
        for (size_t i = 0; i < n_held; i++) held[i] = woi_rng_place(t->build.seed, STREAM_HELD, i, n_held, kept);
        size_t to = 0;
        for (size_t i = 0, at = 0; i < kept; i++)
            if (at < n_held && held[at] == i)
                held[at++] = rest[i];
            else
                rest[to++] = rest[i];
        kept = to;
        if ((status = copy(log, held, n_held, &t->held, err))) goto done;
    }
    t->train_is_log = kept == log->n && kept <= MOST_TRAIN;
    if (t->train_is_log) {
        t->train = *log;
        t->train.copy = NULL; /* not ours */
        goto done;
    }
    if (kept > MOST_TRAIN) {
        for (size_t i = 0; i < MOST_TRAIN; i++)
            rest[i] = rest[woi_rng_place(t->build.seed, STREAM_TRAIN, i, MOST_TRAIN, kept)]; /* never behind i */
        kept = MOST_TRAIN;
    }
    status = copy(log, rest, kept, &t->train, err);
done:
    woi_free(rest);
    woi_free(held);
    return status;
}
