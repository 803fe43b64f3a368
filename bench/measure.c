/* Judging and timing: one code for all contenders.
 *
 * Rounds alternate, because rates drift on shared machines: some calls of the contender, then some of FULL, each call
 * with other queries. What one left in the caches is not the other's, so calls that do not count go before each side's.
 * Times are medians over the calls of all rounds. */
#include "measure.h"

#include "../cli/cli.h"
#include "base/hits.h"
#include "judge/energy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROUNDS = 5,
    LEAST_ROUNDS = 3, /* two where a call is LONG */
    MOST_CALLS = 400, /* in a round */
    LEAST_CALLS = 2,
    WARM_QUERIES = 64, /* of an uncounted call that stands for a larger one: FULL reads every row in it, too */
    SLOW_N = 1000,     /* queries that SQ8, without AVX milliseconds each, and PyTorch are judged on */
    RETRIEVED_N = 500, /* queries whose retrieved sets are looked at, */
    RETRIEVED_AT_ONCE = 50,
    RETRIEVED_K = 20000, /* so many of a peer's at most */
    ENERGY_MS = 1000,
};

static const double LONG_S = 0.25, LONGEST_S = 1;

static wo_status no_memory(wo_error *err)
{
    return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
}

/* ---- Quality ----------------------------------------------------------------------------------------------- */

/* FULL is judged by the library, which ranks the labels among all m. For the other methods it would score all m once
 * more, most of a reduced run's time. */
static wo_status judge_full(bench_contender *c, int threads, const wo_progress *progress, bench_quality *q,
                            wo_error *err)
{
    wo_eval_options o;
    wo_eval_result r = {.struct_size = sizeof r};
    wo_eval_defaults(&o, sizeof o);
    o.skip_timing = 1;
    o.threads = threads;
    o.progress = *progress;
    wo_status status = wo_evaluate(c->index, NULL, c->data->test, &o, &r, err);
    if (!status)
        *q = (bench_quality){r.p_at_1,         r.p_at_3,      r.p_at_5,     r.label_recall,
                             r.sample_size,    r.empty_share, r.label_rank, r.label_rank_retrieved,
                             c->data->judged.n};
    return status;
}

/* Of one query. */
static int32_t *room_for_labels(const bench_sample *data)
{
    return calloc(woi_most_labels(data->indptr, data->n) + 1, sizeof(int32_t));
}

static size_t at_once(const bench_contender *c, size_t most)
{
    return c->most_at_once && c->most_at_once < most ? c->most_at_once : most;
}

/* P@k of the answers to the first q->n queries and, of ours, what was scored for them. *widest: the most classes for
 * one of the queries whose retrieved sets are looked at. */
static wo_status judge_answers(bench_contender *c, int threads, const wo_progress *progress, bench_quality *q,
                               size_t *widest, wo_error *err)
{
    const bench_sample *data = &c->data->judged;
    const size_t d = c->data->rows->d;
    int32_t ids[BENCH_MAX_BATCH * BENCH_K];
    float scores[BENCH_MAX_BATCH * BENCH_K];
    wo_query_stats stats[BENCH_MAX_BATCH];
    double hits[3] = {0}, labelled = 0, scored = 0, empty = 0;
    bench_took took;
    const size_t block = at_once(c, BENCH_MAX_BATCH);
    int32_t *labels = room_for_labels(data);
    wo_status status = labels ? WO_OK : no_memory(err);
    for (size_t first = 0; !status && first < q->n; first += block) {
        const size_t n = q->n - first < block ? q->n - first : block;
        if (progress->fn && progress->fn(progress->ctx, "", 0, 0))
            status = cli_set_error(err, WO_ERR_CANCELLED, "stopped");
        else if (c->index)
            status = bench_contender_ask(c,
                                         (wo_search_call){.queries = data->queries + first * d,
                                                          .n = n,
                                                          .k = BENCH_K,
                                                          .ids = ids,
                                                          .scores = scores,
                                                          .stats = stats},
                                         err);
        else
            status = bench_contender_search(
                c,
                &(bench_call){.first = first, .n = n, .k = BENCH_K, .threads = threads, .ids = ids, .scores = scores},
                &took, err);
        if (status) break;
        for (size_t i = 0; c->index && i < n; i++) {
            scored += stats[i].candidates;
            empty += stats[i].candidates == 0;
            if (first + i < RETRIEVED_N && stats[i].candidates > *widest) *widest = stats[i].candidates;
        }
        for (size_t i = 0; data->indptr && i < n; i++) {
            const size_t n_labels = woi_labels_of(data->indptr, data->labels, first + i, labels);
            labelled += n_labels > 0;
            for (size_t at = 0; at < 3; at++)
                hits[at] += (double)woi_hits(labels, n_labels, ids + i * BENCH_K, 2 * at + 1);
        }
    }
    free(labels);
    if (status) return status;
    q->p_at_1 = labelled > 0 ? hits[0] / labelled : NAN;
    q->p_at_3 = labelled > 0 ? hits[1] / (3 * labelled) : NAN;
    q->p_at_5 = labelled > 0 ? hits[2] / (5 * labelled) : NAN;
    if (c->index) {
        q->sample_size = scored / (double)q->n;
        q->empty_share = empty / (double)q->n;
    }
    return WO_OK;
}

/* Of the first RETRIEVED_N queries: which labels are among all that a search had in hand, and their ranks there. k: how
 * many that is at most. */
static wo_status judge_retrieved(bench_contender *c, int threads, size_t k, bench_quality *q, wo_error *err)
{
    const bench_sample *data = &c->data->judged;
    const size_t n = data->n < RETRIEVED_N ? data->n : RETRIEVED_N, d = c->data->rows->d;
    if (!data->indptr) return WO_OK;
    if (k < BENCH_K) k = BENCH_K;
    if (k > c->data->rows->m) k = c->data->rows->m;
    char error[PEER_ERROR_BYTES];
    int32_t *ids = calloc(RETRIEVED_AT_ONCE * k, sizeof *ids);
    float *scores = calloc(RETRIEVED_AT_ONCE * k, sizeof *scores);
    int32_t *labels = room_for_labels(data);
    wo_status status = ids && scores && labels ? WO_OK : no_memory(err);
    double all = 0, found = 0, ranks = 0;
    const size_t block = at_once(c, RETRIEVED_AT_ONCE);
    for (size_t first = 0; !status && first < n; first += block) {
        const size_t some = n - first < block ? n - first : block;
        const float *queries = data->queries + first * d;
        if (c->index)
            status = bench_contender_ask(
                c, (wo_search_call){.queries = queries, .n = some, .k = k, .ids = ids, .scores = scores}, err);
        else if (peer_search(c->peer,
                             &(peer_batch){.q = queries,
                                           .n = some,
                                           .k = k,
                                           .dial = c->config->options.dial,
                                           .threads = threads,
                                           .ids = ids,
                                           .scores = scores},
                             error))
            status = cli_set_error(err, WO_ERR_UNSUPPORTED, "%s", error);
        for (size_t i = 0; !status && i < some; i++) {
            const size_t n_labels = woi_labels_of(data->indptr, data->labels, first + i, labels);
            all += (double)n_labels;
            for (size_t j = 0; j < k; j++) {
                if (!woi_hits(labels, n_labels, &ids[i * k + j], 1)) continue;
                found++;
                ranks += (double)(j + 1);
            }
        }
    }
    if (!status && all > 0) q->label_recall = found / all;
    if (!status && found > 0) q->label_rank_retrieved = ranks / found;
    free(labels);
    free(ids);
    free(scores);
    return status;
}

/* What a peer had in hand: the ef best of a graph, the answers that were re-ranked, the vectors that IVF scanned (twice
 * their mean number are asked for; where lists are very uneven, the lowest scores of the longest are not seen). */
static wo_status judge_peer(bench_contender *c, int threads, bench_quality *q, wo_error *err)
{
    const bench_sample *data = &c->data->judged;
    const peer_kind kind = (peer_kind)c->config->method->which;
    const bool all = kind == PEER_PQ || kind == PEER_SQ8; /* score every class for every query: one query tells */
    const size_t n = all ? 1 : data->n < RETRIEVED_N ? data->n : RETRIEVED_N;
    const unsigned dial = c->config->options.dial;
    char error[PEER_ERROR_BYTES];
    int32_t ids[RETRIEVED_N * BENCH_K];
    float scores[RETRIEVED_N * BENCH_K];
    const peer_batch batch = {.q = data->queries,
                              .n = n,
                              .k = BENCH_K,
                              .dial = dial,
                              .threads = threads,
                              .ids = ids,
                              .scores = scores,
                              .scored = &q->sample_size};
    if (peer_search(c->peer, &batch, error)) return cli_set_error(err, WO_ERR_UNSUPPORTED, "%s", error);
    const size_t k = kind == PEER_IVF ? (size_t)(2 * q->sample_size) + 100 : dial;
    if (k) return judge_retrieved(c, threads, k < RETRIEVED_K ? k : RETRIEVED_K, q, err);
    q->label_recall = 1; /* PQ and SQ8 score every class, and keep none of the scores */
    return WO_OK;
}

/* P@k of some queries become those of all: FULL's, times the share of FULL's that was reached on those. */
static wo_status scale(const bench_judged_full *full, int threads, const wo_progress *progress, bench_quality *q,
                       wo_error *err)
{
    bench_quality same = {.n = q->n};
    size_t widest = 0;
    wo_status status = bench_contender_prepare(full->contender, threads, err);
    if (!status) status = judge_answers(full->contender, threads, progress, &same, &widest, err);
    if (status) return status;
    q->p_at_1 *= full->quality->p_at_1 / same.p_at_1;
    q->p_at_3 *= full->quality->p_at_3 / same.p_at_3;
    q->p_at_5 *= full->quality->p_at_5 / same.p_at_5;
    return WO_OK;
}

wo_status bench_judge(bench_contender *c, const bench_judged_full *full, int threads, const wo_progress *progress,
                      bench_quality *q, wo_error *err)
{
    const bool slow = c->torch || (c->peer && (peer_kind)c->config->method->which == PEER_SQ8);
    *q = (bench_quality){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, c->data->judged.n};
    if (slow && q->n > SLOW_N) q->n = SLOW_N;
    wo_status status = bench_contender_prepare(c, threads, err);
    if (status) return status;
    if (c->config->method->kind == BENCH_OURS && c->config->method->which == WO_METHOD_FULL)
        return judge_full(c, threads, progress, q, err);
    size_t widest = 0;
    status = judge_answers(c, threads, progress, q, &widest, err);
    if (!status && q->n < c->data->judged.n) status = scale(full, threads, progress, q, err);
    if (status || c->index) return status ? status : judge_retrieved(c, threads, widest, q, err);
    if (c->peer) return judge_peer(c, threads, q, err);
    q->sample_size = (double)c->data->rows->m; /* PyTorch: every class */
    q->label_recall = 1;
    return status;
}

/* ---- Time -------------------------------------------------------------------------------------------------- */

typedef struct side {
    bench_contender *contender;
    size_t next;   /* query of the pool */
    size_t calls;  /* in a round */
    size_t asked;  /* queries of a call */
    double call_s; /* about */
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
    const bench_call asked = {.first = s->next,
                              .n = batch,
                              .k = BENCH_K,
                              .threads = threads,
                              .ids = s->contender->torch ? NULL : s->ids,
                              .scores = s->scores};
    wo_status status = bench_contender_search(s->contender, &asked, &took, err);
    s->next += batch;
    if (wall_s) *wall_s = took.wall_s;
    if (counts) {
        s->us[s->n++] = 1e6 * took.wall_s / (double)batch;
        s->cpu_s += took.cpu_s;
    }
    return status;
}

static size_t at_most(size_t batch)
{
    return batch < WARM_QUERIES ? batch : WARM_QUERIES;
}

/* Calls that do not count, then those that do. One that fills a round by itself, and FULL's, are warmed by a small one:
 * what it reads is in the caches then, or too large for them. One that is LONG needs no warming. */
static wo_status run_side(side *s, bool full, int threads, wo_error *err)
{
    const size_t batch = s->asked;
    const bool small = full || s->calls == 1;
    const size_t warm_calls = s->call_s > LONG_S && !full ? 0 : small ? 1 : (s->calls + 3) / 4;
    const size_t warm_batch = small ? at_most(batch) : batch;
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

/* How many calls a round takes: from the second of two small ones, as the first pays for cold caches and sleeping
 * threads. One that is far too long for a round shows it at once. Of a batch that would take a contender more than
 * LONGEST_S, a part is asked: its queries are answered one by one. FULL's batches stay whole. */
static wo_status plan(side *s, size_t batch, bool full, int threads, double round_s, wo_error *err)
{
    double took = 0;
    const size_t some = at_most(batch);
    wo_status status = bench_contender_prepare(s->contender, threads, err);
    for (int i = 0; !status && i < 2 && took < 4 * round_s; i++) status = call(s, some, threads, false, &took, err);
    s->call_s = took *= (double)batch / (double)some;
    const double calls = round_s / fmax(took, 1e-9);
    s->calls = calls > MOST_CALLS ? MOST_CALLS : calls < LEAST_CALLS ? LEAST_CALLS : (size_t)calls;
    if (took > round_s) s->calls = 1;
    s->asked = took > LONGEST_S && !full ? (size_t)((double)batch * LONGEST_S / took) : batch;
    if (s->asked < some) s->asked = some;
    return status;
}

wo_status bench_time(bench_contender *contender, bench_contender *full, double budget_s, bench_timing *timing,
                     wo_error *err)
{
    const uint32_t batch = timing->batch;
    const int threads = timing->threads;
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
        if ((status = plan(&sides[i], batch, i, threads, budget_s / 2 / ROUNDS, err))) goto done;
    }
    const double start = woi_now_s();
    const int least = LEAST_ROUNDS - (sides[0].call_s > LONG_S || sides[1].call_s > LONG_S);
    for (int round = 0; round < ROUNDS && (round < least || woi_now_s() - start < budget_s); round++) {
        status = run_side(&sides[0], false, threads, err);
        if (!status) status = run_side(&sides[1], true, threads, err);
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
                             .asked = sides[0].asked,
                             .cpu_s_per_1000 = 1000 * sides[0].cpu_s / ((double)sides[0].n * (double)sides[0].asked)};
done:
    free(sides);
    free(ids);
    free(scores);
    return status;
}

/* ---- Energy ------------------------------------------------------------------------------------------------ */

/* Batches that are asked over and over, and the counters. */
typedef struct meter {
    woi_energy energy;
    uint32_t batch;
    int threads;
    double joules, taken_s, n_queries; /* of the last window */
} meter;

/* A window of ENERGY_MS: of batches, or of sleep where there is no side. */
static wo_status run_window(meter *m, side *s, wo_error *err)
{
    double before, after;
    const struct timespec nap = {0, 50 * 1000 * 1000};
    m->joules = NAN;
    m->n_queries = 0;
    if (!woi_energy_read(&m->energy, &before)) return WO_OK;
    const double start = woi_now_s();
    while ((m->taken_s = woi_now_s() - start) < 1e-3 * ENERGY_MS) {
        if (!s) {
            nanosleep(&nap, NULL);
            continue;
        }
        wo_status status = call(s, m->batch, m->threads, false, NULL, err);
        if (status) return status;
        m->n_queries += m->batch;
    }
    if (woi_energy_read(&m->energy, &after)) m->joules = after - before;
    return WO_OK;
}

wo_status bench_energy(bench_contender *contender, uint32_t batch, int threads, double *joules, wo_error *err)
{
    meter m = {.batch = batch, .threads = threads};
    *joules = NAN;
    if (!woi_energy_open(&m.energy)) return WO_OK;
    side *s = calloc(1, sizeof *s);
    int32_t *ids = calloc((size_t)batch * BENCH_K, sizeof *ids);
    float *scores = calloc((size_t)batch * BENCH_K, sizeof *scores);
    wo_status status = s && ids && scores ? bench_contender_prepare(contender, threads, err) : no_memory(err);
    if (!status) {
        *s = (side){.contender = contender, .ids = ids, .scores = scores};
        status = run_window(&m, NULL, err);
    }
    const double idle = m.joules, idle_s = m.taken_s;
    if (!status) status = run_window(&m, s, err);
    if (!status && !isnan(idle) && !isnan(m.joules)) /* below the idle machine's is noise */
        *joules = 1000 * fmax(0, m.joules - idle / idle_s * m.taken_s) / m.n_queries;
    free(s);
    free(ids);
    free(scores);
    return status;
}
