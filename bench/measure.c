/* Judging and timing: one code for all contenders.
 *
 * Rounds alternate, because rates drift on shared machines: some calls of the contender, then some of FULL, each call
 * with other queries. What one left in the caches is not the other's, so calls that do not count go before each side's.
 * Times are medians over the calls of all rounds. */
#include "measure.h"

#include "../cli/cli.h"
#include "base/energy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROUNDS = 5,
    LEAST_ROUNDS = 3,
    MOST_CALLS = 400, /* in a round */
    LEAST_CALLS = 2,
    WARM_QUERIES = 64,   /* of FULL's uncounted call: every row is read */
    RETRIEVED_N = 500,   /* queries whose retrieved sets are looked at */
    RETRIEVED_K = 20000, /* of them at most */
    ENERGY_MS = 1000,
};

static wo_status no_memory(wo_error *err)
{
    return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
}

/* ---- Quality ----------------------------------------------------------------------------------------------- */

static bool is_label(const bench_sample *data, size_t query, int32_t id)
{
    for (int64_t i = data->indptr[query]; i < data->indptr[query + 1]; i++)
        if (data->labels[i] == id) return true;
    return false;
}

/* A label that is given twice counts once. */
static size_t distinct_labels(const bench_sample *data, size_t query)
{
    size_t n = 0;
    for (int64_t i = data->indptr[query]; i < data->indptr[query + 1]; i++) {
        bool first = true;
        for (int64_t j = data->indptr[query]; first && j < i; j++) first = data->labels[j] != data->labels[i];
        n += first;
    }
    return n;
}

static wo_status judge_ours(bench_contender *c, int threads, const wo_progress *progress, bench_quality *q,
                            wo_error *err)
{
    wo_eval_options o;
    wo_eval_result r;
    wo_eval_defaults(&o);
    o.skip_timing = 1;
    o.probes = c->config->options.build.probes;
    o.threads = threads;
    o.progress = *progress;
    wo_status status = wo_evaluate(c->index, NULL, c->data->test, &o, &r, err);
    if (!status)
        *q = (bench_quality){r.p_at_1,      r.p_at_3,      r.p_at_5,     r.label_recall,
                             r.sample_size, r.empty_share, r.label_rank, r.label_rank_retrieved};
    return status;
}

/* P@k of the answers to all queries. */
static wo_status judge_answers(bench_contender *c, int threads, bench_quality *q, wo_error *err)
{
    const bench_sample *data = &c->data->judged;
    int32_t ids[BENCH_MAX_BATCH * BENCH_K];
    float scores[BENCH_MAX_BATCH * BENCH_K];
    double hits[3] = {0}, labelled = 0;
    bench_took took;
    for (size_t first = 0; first < data->n; first += BENCH_MAX_BATCH) {
        const size_t n = data->n - first < BENCH_MAX_BATCH ? data->n - first : BENCH_MAX_BATCH;
        wo_status status = bench_contender_search(c, first, n, BENCH_K, threads, ids, scores, &took, err);
        if (status) return status;
        for (size_t i = 0; data->indptr && i < n; i++) {
            labelled += data->indptr[first + i + 1] > data->indptr[first + i];
            for (size_t k = 0; k < BENCH_K; k++) {
                const bool hit = is_label(data, first + i, ids[i * BENCH_K + k]);
                hits[0] += hit && k < 1;
                hits[1] += hit && k < 3;
                hits[2] += hit;
            }
        }
    }
    q->p_at_1 = labelled > 0 ? hits[0] / labelled : NAN;
    q->p_at_3 = labelled > 0 ? hits[1] / (3 * labelled) : NAN;
    q->p_at_5 = labelled > 0 ? hits[2] / (5 * labelled) : NAN;
    return WO_OK;
}

/* What a peer had in hand: the ef best of a graph, the answers that were re-ranked, the vectors that IVF scanned (twice
 * their mean number are asked for; where lists are very uneven, the lowest scores of the longest are not seen). */
static wo_status judge_retrieved(bench_contender *c, int threads, bench_quality *q, wo_error *err)
{
    const bench_sample *data = &c->data->judged;
    const size_t m = c->data->rows->m, n = data->n < RETRIEVED_N ? data->n : RETRIEVED_N;
    const peer_kind kind = (peer_kind)c->config->method->which;
    const unsigned dial = c->config->options.dial;
    char error[PEER_ERROR_BYTES];
    int32_t first_ids[RETRIEVED_N * BENCH_K];
    float first_scores[RETRIEVED_N * BENCH_K];
    if (peer_search(c->peer, data->queries, n, BENCH_K, dial, threads, first_ids, first_scores, &q->sample_size, error))
        return cli_set_error(err, WO_ERR_UNSUPPORTED, "%s", error);
    size_t k = kind == PEER_IVF ? (size_t)(2 * q->sample_size) + 100 : dial;
    if (k == 0) { /* PQ and SQ8 score every class, and keep none of the scores */
        q->label_recall = 1;
        return WO_OK;
    }
    if (k < BENCH_K) k = BENCH_K;
    if (k > RETRIEVED_K) k = RETRIEVED_K;
    if (k > m) k = m;
    if (!data->indptr) return WO_OK;
    int32_t *ids = calloc(n * k, sizeof *ids);
    float *scores = calloc(n * k, sizeof *scores);
    wo_status status = ids && scores ? WO_OK : no_memory(err);
    if (!status && peer_search(c->peer, data->queries, n, k, dial, threads, ids, scores, NULL, error))
        status = cli_set_error(err, WO_ERR_UNSUPPORTED, "%s", error);
    double labels = 0, found = 0, ranks = 0;
    for (size_t i = 0; !status && i < n; i++) {
        labels += (double)distinct_labels(data, i);
        for (size_t j = 0; j < k; j++) {
            if (ids[i * k + j] < 0 || !is_label(data, i, ids[i * k + j])) continue;
            found++;
            ranks += (double)(j + 1);
        }
    }
    if (!status && labels > 0) q->label_recall = found / labels;
    if (!status && found > 0) q->label_rank_retrieved = ranks / found;
    free(ids);
    free(scores);
    return status;
}

wo_status bench_judge(bench_contender *c, int threads, const wo_progress *progress, bench_quality *q, wo_error *err)
{
    *q = (bench_quality){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    wo_status status = bench_contender_prepare(c, threads, err);
    if (status) return status;
    if (c->index) return judge_ours(c, threads, progress, q, err);
    status = judge_answers(c, threads, q, err);
    if (!status && c->peer) return judge_retrieved(c, threads, q, err);
    q->sample_size = (double)c->data->rows->m; /* PyTorch: every class */
    q->label_recall = 1;
    return status;
}

/* ---- Time -------------------------------------------------------------------------------------------------- */

typedef struct side {
    bench_contender *contender;
    size_t next;  /* query of the pool */
    size_t calls; /* in a round */
    double us[ROUNDS * MOST_CALLS];
    size_t n;
    double cpu_s;
    int32_t *ids; /* (batch, k); NULL for PyTorch, which answers to itself */
    float *scores;
} side;

static wo_status call(side *s, size_t batch, int threads, bool counts, double *wall_s, wo_error *err)
{
    const bench_data *data = s->contender->data;
    if (s->next + batch > data->n_pool) s->next = 0;
    bench_took took;
    wo_status status = bench_contender_search(s->contender, s->next, batch, BENCH_K, threads,
                                              s->contender->torch ? NULL : s->ids, s->scores, &took, err);
    s->next += batch;
    if (wall_s) *wall_s = took.wall_s;
    if (counts) {
        s->us[s->n++] = 1e6 * took.wall_s / (double)batch;
        s->cpu_s += took.cpu_s;
    }
    return status;
}

static wo_status run_side(side *s, size_t batch, size_t warm_batch, size_t warm_calls, int threads, wo_error *err)
{
    wo_status status = bench_contender_prepare(s->contender, threads, err);
    for (size_t i = 0; !status && i < warm_calls; i++) status = call(s, warm_batch, threads, false, NULL, err);
    for (size_t i = 0; !status && i < s->calls; i++) status = call(s, batch, threads, true, NULL, err);
    return status;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const side *s, double share) /* sorted */
{
    const size_t at = (size_t)ceil(share * (double)s->n);
    return s->us[at ? at - 1 : 0];
}

static double median(const side *s) /* sorted */
{
    return (s->us[(s->n - 1) / 2] + s->us[s->n / 2]) / 2;
}

/* How many calls a round takes: from the second of two, as the first one pays for cold caches and sleeping threads. One
 * that is far too long for a round shows it at once. */
static wo_status plan(side *s, size_t batch, int threads, double round_s, wo_error *err)
{
    double took = 0;
    wo_status status = bench_contender_prepare(s->contender, threads, err);
    for (int i = 0; !status && i < 2 && took < 4 * round_s; i++) status = call(s, batch, threads, false, &took, err);
    const double calls = round_s / fmax(took, 1e-9);
    s->calls = calls > MOST_CALLS ? MOST_CALLS : calls < LEAST_CALLS ? LEAST_CALLS : (size_t)calls;
    if (took > round_s) s->calls = 1;
    return status;
}

wo_status bench_time(bench_contender *contender, bench_contender *full, uint32_t batch, int threads, double budget_s,
                     bench_timing *timing, wo_error *err)
{
    const size_t warm = batch < WARM_QUERIES ? batch : WARM_QUERIES;
    side *sides = calloc(2, sizeof *sides);
    int32_t *ids = calloc((size_t)batch * BENCH_K, sizeof *ids);
    float *scores = calloc((size_t)batch * BENCH_K, sizeof *scores);
    wo_status status = sides && ids && scores ? WO_OK : no_memory(err);
    if (status) goto done;
    for (int i = 0; i < 2; i++) {
        sides[i].contender = i ? full : contender;
        sides[i].next = i ? contender->data->n_pool / 2 : 0; /* the two meet different queries */
        sides[i].ids = ids;
        sides[i].scores = scores;
        if ((status = plan(&sides[i], batch, threads, budget_s / 2 / ROUNDS, err))) goto done;
    }
    const double start = cli_now();
    for (int round = 0; round < ROUNDS && (round < LEAST_ROUNDS || cli_now() - start < budget_s); round++) {
        status = run_side(&sides[0], batch, batch, (sides[0].calls + 3) / 4, threads, err);
        if (!status) status = run_side(&sides[1], batch, warm, 1, threads, err);
        if (status) goto done;
    }
    for (int i = 0; i < 2; i++) qsort(sides[i].us, sides[i].n, sizeof(double), rising);
    *timing = (bench_timing){.batch = batch,
                             .threads = threads,
                             .us = median(&sides[0]),
                             .us_q1 = quantile(&sides[0], 0.25),
                             .us_q3 = quantile(&sides[0], 0.75),
                             .us_p99 = quantile(&sides[0], 0.99),
                             .full_us = median(&sides[1]),
                             .cpu_s_per_1000 = 1000 * sides[0].cpu_s / ((double)sides[0].n * batch)};
done:
    free(sides);
    free(ids);
    free(scores);
    return status;
}

/* ---- Energy ------------------------------------------------------------------------------------------------ */

/* Joules of a window of ENERGY_MS: of batches, or of sleep where there is no side. */
static wo_status run_window(side *s, uint32_t batch, int threads, woi_energy *energy, double *joules, double *taken_s,
                            double *n_queries, wo_error *err)
{
    double before, after;
    const struct timespec nap = {0, 50 * 1000 * 1000};
    *joules = NAN;
    *n_queries = 0;
    if (!woi_energy_read(energy, &before)) return WO_OK;
    const double start = cli_now();
    while ((*taken_s = cli_now() - start) < 1e-3 * ENERGY_MS) {
        if (!s) {
            nanosleep(&nap, NULL);
            continue;
        }
        wo_status status = call(s, batch, threads, false, NULL, err);
        if (status) return status;
        *n_queries += batch;
    }
    if (woi_energy_read(energy, &after)) *joules = after - before;
    return WO_OK;
}

wo_status bench_energy(bench_contender *contender, uint32_t batch, int threads, double *joules, wo_error *err)
{
    woi_energy energy = {0};
    *joules = NAN;
    if (!woi_energy_open(&energy)) return WO_OK;
    double idle, idle_s, work, work_s, n;
    side *s = calloc(1, sizeof *s);
    int32_t *ids = calloc((size_t)batch * BENCH_K, sizeof *ids);
    float *scores = calloc((size_t)batch * BENCH_K, sizeof *scores);
    wo_status status = s && ids && scores ? bench_contender_prepare(contender, threads, err) : no_memory(err);
    if (!status) {
        *s = (side){.contender = contender, .ids = ids, .scores = scores};
        status = run_window(NULL, batch, threads, &energy, &idle, &idle_s, &n, err);
    }
    if (!status) status = run_window(s, batch, threads, &energy, &work, &work_s, &n, err);
    if (!status && !isnan(idle) && !isnan(work)) /* below the idle machine's is noise */
        *joules = 1000 * fmax(0, work - idle / idle_s * work_s) / n;
    free(s);
    free(ids);
    free(scores);
    return status;
}
