/* What an index costs beside FULL, in one run: time, CPU time, a single query with cold caches, energy.
 *
 * Rounds alternate, because rates drift on shared machines: in each, some calls of the method, then some of FULL, every
 * call with queries of its own; medians over all rounds are compared. FULL pushes the method's rows out of the caches
 * (and the other way round), so calls that do not count, again with queries of their own, go before each side's. */
#include "judge/evaluate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "judge/ceilings.h"
#include "judge/energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS = 9,
    LEAST_ROUNDS = 3,  /* ... where they are long */
    PATIENCE_S = 20,   /* for one batch size */
    READY = 4096,      /* queries that are copied at once, outside the clock */
    MOST_CALLS = 400,  /* of the method in a round: 3,600 single queries in all */
    MOST_FULL = 36,    /* of FULL: 324 */
    WARM_QUERIES = 64, /* of FULL's uncounted call: every row of W is read, for 6% of the time of 1,024 */
    COLD_CALLS = 51,
    LEAST_COLD = 11, /* ... where they are long */
    COLD_PATIENCE_S = 5,
    ENERGY_MS = 1000, /* idle, of the method, of FULL: RAPL counts every millisecond */
    ENERGY_READY = 16384,
};

/* Finite queries of the log, one after the other, over and over. */
typedef struct feed {
    const wo_log *log;
    size_t next;
} feed;

static void take(feed *f, float *to, size_t n)
{
    const size_t d = f->log->d;
    for (size_t i = 0; i < n; f->next = (f->next + 1) % f->log->n) {
        const float *q = f->log->queries + f->next * d;
        if (woi_all_finite(q, d)) memcpy(to + i++ * d, q, d * sizeof *to);
    }
}

enum { METHOD, FULL };

typedef struct bench {
    const woi_eval *eval;
    wo_searcher *searcher;
    void *full_scratch;
    feed feeds[2];
    float *q; /* (READY or the largest batch, d) */
    size_t k;
    int32_t *ids; /* (largest batch, k) */
    float *scores;
    bool plain;           /* nothing special is asked of the method: wo_search */
    uint64_t done, total; /* rounds */
} bench;

static wo_status answer(const bench *b, int side, const float *q, size_t n, int threads, wo_error *err)
{
    if (side == METHOD) {
        const wo_search_call call = {.struct_size = sizeof call,
                                     .queries = q,
                                     .n = n,
                                     .k = b->k,
                                     .ids = b->ids,
                                     .scores = b->scores,
                                     .probes = b->eval->options->probes,
                                     .exact_fallback = b->eval->options->exact_fallback,
                                     .no_prior = b->eval->options->no_prior};
        return b->plain ? wo_search(b->searcher, q, n, b->k, b->ids, b->scores, err)
                        : wo_search_run(b->searcher, &call, err);
    }
    return woi_exact_topk(&(woi_exact_call){.layer = b->eval->full,
                                            .q = q,
                                            .n = n,
                                            .k = b->k,
                                            .threads = threads,
                                            .scratch = b->full_scratch,
                                            .ids = b->ids,
                                            .scores = b->scores},
                          err);
}

/* ---- What calls took --------------------------------------------------------------------------------------- */

typedef struct samples {
    double *us; /* a query */
    size_t n;
    double cpu_s;
} samples;

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort(samples *s)
{
    if (s->n) qsort(s->us, s->n, sizeof *s->us, rising);
}

static double median(const samples *s) /* sorted */
{
    return s->n ? (s->us[(s->n - 1) / 2] + s->us[s->n / 2]) / 2 : NAN;
}

static double percentile_99(const samples *s) /* sorted */
{
    return s->n ? s->us[(s->n * 99 + 99) / 100 - 1] : NAN;
}

static double per_1000(const samples *s, uint32_t batch)
{
    return s->n ? 1000 * s->cpu_s / ((double)s->n * batch) : NAN;
}

static size_t within(size_t low, size_t x, size_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Calls one after the other. */
typedef struct series {
    int side;
    uint32_t batch; /* queries of a call */
    int threads;
    size_t calls;
} series;

/* One reading of the clock for each call, into `to`; NULL: they do not count. */
static wo_status run_calls(bench *b, const series *s, samples *to, wo_error *err)
{
    const size_t d = b->eval->log->d, batch = s->batch, at_once = batch < READY ? READY / batch : 1;
    wo_status status = WO_OK;
    for (size_t left = s->calls; !status && left;) {
        const size_t n = left < at_once ? left : at_once;
        take(&b->feeds[s->side], b->q, n * batch);
        const double cpu = woi_cpu_s();
        double before = woi_now_s();
        for (size_t i = 0; !status && i < n; i++) {
            status = answer(b, s->side, b->q + i * batch * d, batch, s->threads, err);
            const double now = woi_now_s();
            if (to) to->us[to->n++] = 1e6 * (now - before) / s->batch;
            before = now;
        }
        if (to) to->cpu_s += woi_cpu_s() - cpu;
        left -= n;
    }
    return status;
}

/* ---- Warm -------------------------------------------------------------------------------------------------- */

static wo_status run_round(bench *b, const wo_eval_timing *t, const size_t calls[2], samples s[2], wo_error *err)
{
    const uint32_t few = t->batch < WARM_QUERIES ? t->batch : WARM_QUERIES;
    const series method = {METHOD, t->batch, t->threads, calls[METHOD]},
                 full = {FULL, t->batch, t->threads, calls[FULL]};
    series warm = method;
    warm.calls = (warm.calls + 3) / 4;
    wo_status status = run_calls(b, &warm, NULL, err);
    if (!status) status = run_calls(b, &method, &s[METHOD], err);
    if (status || !b->eval->full) return status;
    status = run_calls(b, &(series){FULL, few, t->threads, 1}, NULL, err);
    return status ? status : run_calls(b, &full, &s[FULL], err);
}

size_t woi_eval_calls(uint32_t batch)
{
    return within(4, READY / batch, MOST_CALLS);
}

static wo_status time_batch(bench *b, wo_eval_timing *t, wo_error *err)
{
    const wo_eval_options *o = b->eval->options;
    const uint32_t wanted = o->rounds ? o->rounds : ROUNDS;
    const size_t calls[2] = {woi_eval_calls(t->batch), within(1, 1024 / t->batch, MOST_FULL)};
    const uint64_t end = b->done + wanted;
    samples s[2] = {{0}, {0}};
    wo_status status = WO_OK;
    for (int side = 0; side < 2; side++)
        if (!(s[side].us = woi_alloc(wanted * calls[side], sizeof *s[side].us, err))) status = WO_ERR_MEMORY;
    const double start = woi_now_s();
    for (uint32_t round = 0; !status && round < wanted; round++, b->done++) {
        if (!o->rounds && round >= LEAST_ROUNDS && woi_now_s() - start > PATIENCE_S) break;
        status = woi_progress(&o->progress, "timing", b->done, b->total, err);
        if (!status) status = run_round(b, t, calls, s, err);
    }
    b->done = end;
    if (!status) {
        sort(&s[METHOD]);
        sort(&s[FULL]);
        t->calls = (uint32_t)s[METHOD].n;
        t->full_calls = (uint32_t)s[FULL].n;
        t->us = median(&s[METHOD]);
        t->us_p99 = percentile_99(&s[METHOD]);
        t->full_us = median(&s[FULL]);
        t->full_us_p99 = percentile_99(&s[FULL]);
        t->speedup = t->full_us / t->us;
        t->cpu_s_per_1000 = per_1000(&s[METHOD], t->batch);
        t->full_cpu_s_per_1000 = per_1000(&s[FULL], t->batch);
    }
    woi_free(s[METHOD].us);
    woi_free(s[FULL].us);
    return status;
}

/* ---- Cold -------------------------------------------------------------------------------------------------- */

/* Twice the last-level cache. */
static size_t eviction_bytes(void)
{
    long last = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (last <= 0) last = 32L << 20;
    return within((size_t)16 << 20, 2 * (size_t)last, (size_t)1 << 30);
}

/* Single queries, each after a walk through `buffer`; the query itself is warm, as it would come from a network. */
static wo_status time_cold(bench *b, int side, uint8_t *buffer, size_t bytes, double *us, wo_error *err)
{
    double taken[COLD_CALLS];
    samples s = {.us = taken};
    const double start = woi_now_s();
    while (s.n < COLD_CALLS && (s.n < LEAST_COLD || woi_now_s() - start < COLD_PATIENCE_S)) {
        wo_status status =
            woi_progress(&b->eval->options->progress, "cold", side * COLD_CALLS + s.n, 2 * COLD_CALLS, err);
        if (status) return status;
        for (size_t i = 0; i < bytes; i += 64) buffer[i]++;
        if ((status = run_calls(b, &(series){.side = side, .batch = 1, .threads = 1, .calls = 1}, &s, err)))
            return status;
    }
    sort(&s);
    *us = median(&s);
    return WO_OK;
}

static wo_status time_both_cold(bench *b, wo_error *err)
{
    const size_t bytes = eviction_bytes();
    uint8_t *buffer = woi_alloc_zero(bytes, 1, err);
    if (!buffer) return WO_ERR_MEMORY;
    wo_status status = time_cold(b, METHOD, buffer, bytes, &b->eval->result->cold_us, err);
    if (!status && b->eval->full) status = time_cold(b, FULL, buffer, bytes, &b->eval->result->full_cold_us, err);
    woi_free(buffer);
    return status;
}

/* ---- Energy ------------------------------------------------------------------------------------------------ */

/* Queries that are ready to be asked over and over, in batches as t says, and the counters. */
typedef struct meter {
    woi_energy energy;
    float *q; /* (n, d) */
    size_t n;
    const wo_eval_timing *t;
    double joules, taken_s, n_queries; /* of the last window */
} meter;

/* A window of ENERGY_MS: one side's batches, or sleep for side -1. */
static wo_status run_window(bench *b, meter *m, int side, wo_error *err)
{
    static const struct timespec nap = {0, 50 * 1000 * 1000};
    const size_t d = b->eval->log->d;
    double from, to;
    wo_status status = woi_progress(&b->eval->options->progress, "energy", (uint64_t)(side + 1), 3, err);
    if (status || !woi_energy_read(&m->energy, &from)) return status;
    const double start = woi_now_s();
    m->n_queries = 0;
    for (size_t at = 0; (m->taken_s = woi_now_s() - start) < 1e-3 * ENERGY_MS; at += m->t->batch) {
        if (side < 0) {
            nanosleep(&nap, NULL);
            continue;
        }
        if (at + m->t->batch > m->n) at = 0;
        if ((status = answer(b, side, m->q + at * d, m->t->batch, m->t->threads, err))) return status;
        m->n_queries += m->t->batch;
    }
    if (woi_energy_read(&m->energy, &to)) m->joules = to - from;
    return WO_OK;
}

static wo_status measure_energy(bench *b, const wo_eval_timing *t, wo_error *err)
{
    wo_eval_result *r = b->eval->result;
    double *const results[2] = {&r->energy_j_per_1000, &r->full_energy_j_per_1000};
    meter *m = woi_alloc_zero(1, sizeof *m, err);
    if (!m) return WO_ERR_MEMORY;
    wo_status status = WO_OK;
    m->t = t;
    m->n = t->batch > ENERGY_READY ? t->batch : ENERGY_READY;
    if (!woi_energy_open(&m->energy)) goto done;
    if (!(m->q = woi_alloc(m->n * b->eval->log->d, sizeof *m->q, err))) {
        status = WO_ERR_MEMORY;
        goto done;
    }
    take(&b->feeds[METHOD], m->q, m->n);
    status = run_window(b, m, -1, err);
    const double idle_watts = m->energy.n ? m->joules / m->taken_s : NAN;
    for (int side = METHOD; !status && m->energy.n && side <= (b->eval->full ? FULL : METHOD); side++) {
        status = run_window(b, m, side, err);
        if (!status && m->energy.n) /* below the idle machine's is noise */
            *results[side] = 1000 * fmax(0, m->joules - idle_watts * m->taken_s) / m->n_queries;
    }
    if (!m->energy.n) *results[METHOD] = *results[FULL] = NAN;
done:
    snprintf(r->energy_note, sizeof r->energy_note, "%s", m->energy.reason);
    woi_free(m->q);
    woi_free(m);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------- */

static int rising_batch(const void *a, const void *b)
{
    const wo_eval_timing *x = a, *y = b;
    return (x->batch > y->batch) - (x->batch < y->batch);
}

/* The batch sizes, rising, each once. */
static void list_batches(const woi_eval *eval)
{
    const wo_eval_options *o = eval->options;
    wo_eval_result *r = eval->result;
    for (size_t i = 0; i <= o->n_batches; i++) {
        const uint32_t batch = i < o->n_batches ? o->batches[i] : o->batch;
        bool known = false;
        for (size_t j = 0; j < r->n_timings; j++) known |= r->timings[j].batch == batch;
        if (!known)
            r->timings[r->n_timings++] = (wo_eval_timing){.batch = batch, .threads = batch > 1 ? eval->threads : 1};
    }
    qsort(r->timings, r->n_timings, sizeof *r->timings, rising_batch);
    while (r->timings[r->headline].batch != o->batch) r->headline++;
}

static wo_status make_bench(bench *b, wo_error *err)
{
    const woi_eval *eval = b->eval;
    const size_t largest = eval->result->timings[eval->result->n_timings - 1].batch;
    const wo_searcher_options so = {
        .struct_size = sizeof so, .threads = eval->threads, .max_probes = eval->options->probes};
    b->plain = !eval->options->probes && !eval->options->exact_fallback && !eval->options->no_prior;
    wo_status status = wo_searcher_create(eval->index, &so, &b->searcher, err);
    if (status) return status;
    if (!(b->full_scratch = woi_alloc(woi_exact_scratch(eval->log->d, eval->threads), 1, err)) ||
        !(b->q = woi_alloc((largest > READY ? largest : READY) * eval->log->d, sizeof *b->q, err)) ||
        !(b->ids = woi_alloc(largest * b->k, sizeof *b->ids, err)) ||
        !(b->scores = woi_alloc(largest * b->k, sizeof *b->scores, err)))
        return WO_ERR_MEMORY;
    return WO_OK;
}

/* FULL beside the machine's ceilings; a small layer's time goes into other things than the product. */
static void hold_against_ceilings(const woi_eval *eval)
{
    enum { LEAST_WEIGHTS = 1000000, LEAST_BATCH = 256 };
    wo_eval_result *r = eval->result;
    const woi_dense *full = eval->full;
    if (!full || full->m * full->d < LEAST_WEIGHTS) return;
    const wo_eval_timing *one = &r->timings[0], *most = &r->timings[r->n_timings - 1];
    if (one->batch == 1)
        r->full_of_read = 1e6 * woi_full_gb(full) / one->full_us / woi_read_gb_s(full->w, full->m * full->d);
    if (most->batch >= LEAST_BATCH)
        r->full_of_peak = 1e6 * woi_full_gflop(full, 1) / most->full_us / woi_peak_gflops(most->threads);
}

wo_status woi_eval_time(const woi_eval *eval, wo_error *err)
{
    const wo_eval_options *o = eval->options;
    wo_eval_result *r = eval->result;
    list_batches(eval);
    r->k = o->n_ks ? 0 : 5;
    for (size_t i = 0; i < o->n_ks; i++)
        if (o->ks[i] > r->k) r->k = o->ks[i];
    bench b = {
        .eval = eval,
        .feeds = {{eval->log, 0}, {eval->log, eval->log->n / 2}}, /* the two meet different queries */
        .k = r->k,
        .total = r->n_timings * (o->rounds ? o->rounds : ROUNDS),
    };
    wo_status status = make_bench(&b, err);
    for (size_t i = 0; !status && i < r->n_timings; i++) status = time_batch(&b, &r->timings[i], err);
    if (!status && !eval->warm_only) hold_against_ceilings(eval);
    if (!status && !eval->warm_only) status = time_both_cold(&b, err);
    if (!status && !eval->warm_only) status = measure_energy(&b, &r->timings[r->headline], err);
    wo_searcher_free(b.searcher);
    woi_free(b.full_scratch);
    woi_free(b.q);
    woi_free(b.ids);
    woi_free(b.scores);
    return status;
}
