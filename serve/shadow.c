/* The shadow: a share of the live queries is also answered exactly, on a thread of low priority, and the answers are
 * compared. So the server knows how good the index is for the queries of today, which are not those it learned from.
 *
 * A query that is drawn is copied into a queue; what does not fit is dropped and counted, so that no request ever
 * waits. The thread takes queries in batches, which the exact layer answers at a fraction of their price one by one.
 * Agreement is that of the last WINDOW queries of the index that is served; another index begins anew.
 *
 * An index with a prior is meant to differ from the layer. So there are two comparisons: with the same scores over all
 * classes, which tells what the cells missed, and with the layer's logits alone. Without a prior they are one.
 *
 * All queries are compared. Those teach a server that learns whose sender could have sent feedback: a page of another
 * origin can make a browser search, and must not change the index by it. */
#include "server.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { QUEUE = 1024, BATCH = 64, WINDOW = 2000, AT = 5, ENOUGH_TO_TELL = 100 };

typedef struct entry {
    woi_lease lease;
    float *query;
    bool teaches; /* what is found missing is learned */
} entry;

/* For each of the last queries: whether the index had the best answer (1 or 0), and how many of the five best. */
typedef struct tally {
    uint8_t best[WINDOW], five[WINDOW]; /* five: in hundredths */
    uint64_t hits1, hits5, squares5;
} tally;

typedef struct woi_shadow {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool stop;
    entry queue[QUEUE];
    size_t begin, n;
    atomic_ullong drawn; /* queries that were seen: the position of the next in the row of random numbers */
    uint64_t checked, dropped;
    /* the window */
    uint64_t checksum;
    tally same, layer;
    size_t at, filled;
    bool alarm;
    bool had_first; /* a full window of this index, whose agreement was: */
    woi_share first;
} woi_shadow;

/* ---- Seeing ------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x) /* splitmix64's */
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void put(woi_server *server, const woi_lease *lease, const float *query, bool teaches)
{
    woi_shadow *s = server->shadow;
    const size_t bytes = lease->snapshot->info.d * sizeof *query;
    float *copy = malloc(bytes);
    if (!copy) return;
    memcpy(copy, query, bytes);
    entry e = {.query = copy, .teaches = teaches};
    woi_snapshot_keep(server, lease, &e.lease);
    pthread_mutex_lock(&s->lock);
    const bool fits = s->n < QUEUE;
    if (fits) s->queue[(s->begin + s->n++) % QUEUE] = e;
    s->dropped += !fits;
    pthread_cond_signal(&s->change);
    pthread_mutex_unlock(&s->lock);
    if (fits) return;
    woi_snapshot_give(server, &e.lease);
    free(copy);
}

void woi_shadow_see(woi_server *server, const woi_lease *lease, const woi_job *job)
{
    woi_shadow *s = server->shadow;
    if (job->exact || !lease->snapshot->has_full) return;
    const double share = server->options.shadow;
    const uint64_t at = atomic_fetch_add_explicit(&s->drawn, job->n, memory_order_relaxed);
    for (size_t i = 0; i < job->n; i++)
        if ((double)(mix(at + i) >> 11) * 0x1p-53 < share)
            put(server, lease, job->queries + i * lease->snapshot->info.d, job->may_teach);
}

/* ---- Comparing --------------------------------------------------------------------------------------------- */

/* As the index answers, one by one, or over all classes together: ids (n, AT). */
static bool ask(const woi_lease *lease, const float *queries, size_t n, wo_by by, bool no_prior, int32_t *ids)
{
    float scores[BATCH * AT];
    const size_t each = by == WO_BY_FULL ? n : 1;
    bool fine = true;
    for (size_t i = 0; fine && i < n; i += each) {
        const wo_search_call call = {.struct_size = sizeof call,
                                     .queries = queries + i * lease->snapshot->info.d,
                                     .n = each,
                                     .k = AT,
                                     .ids = ids + i * AT,
                                     .scores = scores,
                                     .by = by,
                                     .no_prior = no_prior};
        fine = !wo_search_run(lease->searcher, &call, NULL);
    }
    return woi_snapshot_whole(lease->snapshot) && fine; /* asked also where it failed: the next index is whole */
}

/* `full`: the window is, and its oldest query leaves. */
static void note(tally *t, size_t at, bool full, const int32_t *index, const int32_t *all)
{
    unsigned hits = 0, wanted = 0;
    for (size_t i = 0; i < AT && all[i] >= 0; i++, wanted++)
        for (size_t j = 0; j < AT; j++) hits += all[i] == index[j];
    const uint8_t five = (uint8_t)(wanted ? hits * 100 / wanted : 100), best = all[0] == index[0];
    if (full) {
        t->hits1 -= t->best[at];
        t->hits5 -= t->five[at];
        t->squares5 -= (uint64_t)t->five[at] * t->five[at];
    }
    t->best[at] = best;
    t->five[at] = five;
    t->hits1 += best;
    t->hits5 += five;
    t->squares5 += (uint64_t)five * five;
}

/* Wilson's interval for the best answer; for five, whose hits are not independent, the normal one of the mean. */
static woi_share share_of(const tally *t, double n)
{
    const double z = 1.96, p = (double)t->hits1 / n, whole = 1 + z * z / n;
    const double middle = (p + z * z / (2 * n)) / whole;
    const double half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / whole;
    const double mean = (double)t->hits5 / (100 * n), square = (double)t->squares5 / (1e4 * n) - mean * mean;
    const double around = z * sqrt((square > 0 ? square : 0) / n) + z * z / (2 * n);
    return (woi_share){.at1 = p,
                       .low1 = fmax(0, middle - half),
                       .high1 = fmin(1, middle + half),
                       .at5 = mean,
                       .low5 = fmax(0, mean - around),
                       .high5 = fmin(1, mean + around)};
}

/* Answers of one query: the index's, those by the same scores over all classes, and the layer's. */
static void note_all(woi_shadow *s, const int32_t *index, const int32_t *same, const int32_t *layer)
{
    if (same[0] < 0) return;
    const bool full = s->filled == WINDOW;
    note(&s->same, s->at, full, index, same);
    note(&s->layer, s->at, full, index, layer);
    s->at = (s->at + 1) % WINDOW;
    s->filled += !full;
    s->checked++;
    if (s->filled == WINDOW && !s->had_first) {
        s->first = share_of(&s->same, WINDOW);
        s->had_first = true;
    }
}

static void begin_anew(woi_shadow *s, uint64_t checksum)
{
    s->checksum = checksum;
    s->at = s->filled = 0;
    s->same = s->layer = (tally){.hits1 = 0};
    s->alarm = s->had_first = false;
}

static woi_agreement agreement_of(const woi_shadow *s)
{
    woi_agreement a = {.n = s->filled, .checked = s->checked, .dropped = s->dropped, .alarm = s->alarm};
    if (a.n) {
        a.same = share_of(&s->same, (double)a.n);
        a.layer = share_of(&s->layer, (double)a.n);
    }
    a.has_drift = s->had_first;
    a.drift1 = s->first.at1 - a.same.at1;
    a.drift5 = s->first.at5 - a.same.at5;
    return a;
}

/* The alarm begins where agreement is surely below, and ends where it is no longer below at all. */
static void mind(woi_server *server)
{
    woi_shadow *s = server->shadow;
    const double least = server->options.alarm;
    const woi_agreement a = agreement_of(s);
    const bool now = a.n >= ENOUGH_TO_TELL && (s->alarm ? a.same.at1 < least : a.same.high1 < least);
    if (now != s->alarm)
        woi_say("%s: index %016" PRIx64 " has the best answer among all classes for %.4f of the last "
                "%" PRIu64 " queries that were checked (%.4f to %.4f), %s %g",
                now ? "alarm" : "no alarm", s->checksum, a.same.at1, a.n, a.same.low1, a.same.high1,
                now ? "below" : "not below", least);
    s->alarm = now;
}

/* What the index did not find among all classes, by the same scores, its cells did not hold: evidence for them. */
static void teach(woi_server *server, const float *query, size_t d, const int32_t *index, const int32_t *all)
{
    int32_t missed[AT];
    size_t n = 0;
    for (size_t i = 0; i < AT && all[i] >= 0; i++) {
        bool found = false;
        for (size_t j = 0; j < AT; j++) found |= all[i] == index[j];
        if (!found) missed[n++] = all[i];
    }
    const int64_t indptr[] = {0, (int64_t)n};
    const woi_lesson lesson = {.n = 1, .d = d, .n_labels = n, .queries = query, .indptr = indptr, .labels = missed};
    if (n) woi_learn_offer(server, &lesson);
}

/* Entries of one snapshot. */
static void compare(woi_server *server, entry *entries, size_t n)
{
    woi_shadow *s = server->shadow;
    woi_lease *lease = &entries[0].lease;
    const size_t d = lease->snapshot->info.d;
    int32_t index[BATCH * AT], same[BATCH * AT], alone[BATCH * AT];
    const int32_t *layer = lease->snapshot->prior ? alone : same;
    float *queries = malloc(n * d * sizeof *queries);
    for (size_t i = 0; queries && i < n; i++) memcpy(queries + i * d, entries[i].query, d * sizeof *queries);
    if (queries && woi_snapshot_borrow(server, lease) && ask(lease, queries, n, WO_BY_PLANNER, false, index) &&
        ask(lease, queries, n, WO_BY_FULL, false, same) &&
        (layer == same || ask(lease, queries, n, WO_BY_FULL, true, alone))) {
        pthread_mutex_lock(&s->lock);
        if (lease->snapshot->info.checksum != s->checksum) begin_anew(s, lease->snapshot->info.checksum);
        for (size_t i = 0; i < n; i++) note_all(s, index + i * AT, same + i * AT, layer + i * AT);
        if (server->options.alarm > 0) mind(server);
        pthread_mutex_unlock(&s->lock);
        for (size_t i = 0; server->learner && i < n; i++)
            if (entries[i].teaches) teach(server, queries + i * d, d, index + i * AT, same + i * AT);
    }
    free(queries);
    for (size_t i = 0; i < n; i++) {
        woi_snapshot_give(server, &entries[i].lease);
        free(entries[i].query);
    }
}

/* ---- The thread -------------------------------------------------------------------------------------------- */

static void *work_on(void *ctx)
{
    woi_server *server = ctx;
    woi_shadow *s = server->shadow;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); /* on Linux a thread has its own */
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (!s->n) {
            pthread_cond_wait(&s->change, &s->lock);
            continue;
        }
        entry taken[BATCH];
        size_t n = 0;
        do {
            taken[n++] = s->queue[s->begin];
            s->begin = (s->begin + 1) % QUEUE;
            s->n--;
        } while (n < BATCH && s->n && s->queue[s->begin].lease.snapshot == taken[0].lease.snapshot);
        pthread_mutex_unlock(&s->lock);
        compare(server, taken, n);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

wo_status woi_shadow_start(woi_server *server, wo_error *err)
{
    if (server->options.shadow <= 0) return WO_OK;
    woi_shadow *s = calloc(1, sizeof *s);
    if (s) {
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->change, NULL);
        server->shadow = s;
        if (pthread_create(&s->thread, NULL, work_on, server) == 0) return WO_OK;
        server->shadow = NULL;
        free(s);
    }
    *err = (wo_error){.status = WO_ERR_MEMORY, .offset = WO_NO_OFFSET, .text = "no thread can be had for the shadow"};
    return WO_ERR_MEMORY;
}

void woi_shadow_stop(woi_server *server)
{
    woi_shadow *s = server->shadow;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->change);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (size_t i = 0; i < s->n; i++) {
        entry *e = &s->queue[(s->begin + i) % QUEUE];
        woi_snapshot_give(server, &e->lease);
        free(e->query);
    }
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
    server->shadow = NULL;
    free(s);
}

bool woi_shadow_tell(woi_server *server, woi_agreement *agreement)
{
    woi_shadow *s = server->shadow;
    if (!s) return false;
    pthread_mutex_lock(&s->lock);
    *agreement = agreement_of(s);
    pthread_mutex_unlock(&s->lock);
    return true;
}
