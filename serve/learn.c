/* Learning: queries whose labels became known are counted by an adapter, and every second an index that knows them
 * takes the place of the one that is served. One thread does all of it. A request leaves a copy in a queue and goes on;
 * what does not fit is dropped and counted.
 *
 * Publishing takes as long as a copy of the cells and a little for each that changed: where that is more than a tenth
 * of the time, it is done less often.
 *
 * A lesson is in the journal, where there is one, before it is counted, and there within a hundredth of a second: so
 * long the thread lets lessons gather, because one at a time would cost a wake-up each. When another index was opened,
 * the journal is read again, so that it knows all that the one before had learned. A journal that somebody cut, moved
 * or removed is opened anew at its name. One that cannot be written keeps its lessons waiting, and others away, until
 * it can.
 *
 * An index whose file was cut short under the server is not learned for any more: its cells may be zeros by now. */
#include "server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_QUEUED = 1 << 16,       /* queries that wait */
    MOST_BYTES = 64 << 20,       /* that they take */
    AT_ONCE = 4096,              /* queries of a journal that are counted together */
    GATHERED_NS = 10 * 1000000L, /* see above */
};
#define PERIOD_S 1.0 /* between two publications, */
#define SHARE 10     /* or so many times what one takes */

typedef struct woi_learner {
    pthread_t thread;
    pthread_mutex_t lock; /* of the queue, and of what is told */
    pthread_cond_t change;
    bool stop;
    woi_lesson *first, **end;
    size_t n, bytes;
    woi_learning told;
    const char *why; /* no lesson is taken now; NULL: they are */
    /* the thread's own */
    woi_lease lease; /* the snapshot that is learned for, without a searcher */
    wo_adapter *adapter;
    wo_journal *journal;
    woi_lesson held; /* that the journal could not take yet; n 0: none */
    uint64_t refused;
} woi_learner;

/* ---- Lessons ----------------------------------------------------------------------------------------------- */

/* A lesson and its arrays in one piece. */
static woi_lesson *copy_lesson(const woi_lesson *from, size_t *bytes)
{
    const size_t queries = from->n * from->d * sizeof(float), places = (from->n + 1) * sizeof(int64_t);
    *bytes = sizeof *from + places + queries + from->n_labels * sizeof(int32_t);
    woi_lesson *to = malloc(*bytes);
    if (!to) return NULL;
    *to = *from;
    to->next = NULL;
    char *at = (char *)(to + 1);
    to->indptr = memcpy(at, from->indptr, places);
    to->queries = memcpy(at + places, from->queries, queries);
    to->labels = (const int32_t *)(const void *)(at + places + queries);
    if (from->n_labels) memcpy(at + places + queries, from->labels, from->n_labels * sizeof(int32_t));
    return to;
}

const char *woi_learn_offer(woi_server *server, const woi_lesson *lesson)
{
    woi_learner *l = server->learner;
    if (!l) return "nothing is learned";
    size_t bytes;
    woi_lesson *copy = copy_lesson(lesson, &bytes);
    pthread_mutex_lock(&l->lock);
    const char *why = l->why;
    if (!why && (!copy || l->stop || l->n + lesson->n > MOST_QUEUED || l->bytes + bytes > MOST_BYTES))
        why = "feedback comes faster than it can be learned from";
    if (!why) {
        if (!l->first) pthread_cond_signal(&l->change);
        *l->end = copy;
        l->end = &copy->next;
        l->n += lesson->n;
        l->bytes += bytes;
    } else {
        l->told.dropped += lesson->n;
    }
    pthread_mutex_unlock(&l->lock);
    if (why) free(copy);
    return why;
}

bool woi_learn_tell(woi_server *server, woi_learning *learning)
{
    woi_learner *l = server->learner;
    if (!l) return false;
    pthread_mutex_lock(&l->lock);
    *learning = l->told;
    pthread_mutex_unlock(&l->lock);
    return true;
}

static void free_joined(woi_lesson *joined)
{
    free((void *)(uintptr_t)joined->queries);
    free((void *)(uintptr_t)joined->indptr);
    free((void *)(uintptr_t)joined->labels);
    *joined = (woi_lesson){0};
}

/* ---- The journal ------------------------------------------------------------------------------------------- */

/* The file is not what was written to it. */
static void leave_journal(woi_server *server, const wo_error *err)
{
    woi_learner *l = server->learner;
    woi_say("%s: %s; it is opened anew, and goes on with what is learned from now on", server->options.learned,
            err->text);
    wo_journal_free(l->journal);
    l->journal = NULL;
    pthread_mutex_lock(&l->lock);
    l->told.journal_changes++;
    pthread_mutex_unlock(&l->lock);
}

/* After a call of the journal: where the file is not what was written, or there is none, it is opened anew. */
static wo_status recover(woi_server *server, wo_status status, wo_error *err)
{
    woi_learner *l = server->learner;
    if (l->journal && status == WO_ERR_FORMAT) leave_journal(server, err);
    return l->journal ? status : wo_journal_open(server->options.learned, l->lease.snapshot->info.d, &l->journal, err);
}

static wo_status append(woi_learner *l, const woi_lesson *lesson, wo_error *err)
{
    return wo_journal_append(l->journal, lesson->queries, lesson->n, lesson->indptr, lesson->labels, err);
}

static wo_status keep(woi_server *server, const woi_lesson *lesson, wo_error *err)
{
    woi_learner *l = server->learner;
    if (!server->options.learned) return WO_OK;
    wo_status status = l->journal ? append(l, lesson, err) : WO_OK;
    const bool done = l->journal && !status;
    status = recover(server, status, err);
    return status || done ? status : append(l, lesson, err);
}

static void refuse_lessons(woi_learner *l, const char *why)
{
    pthread_mutex_lock(&l->lock);
    l->why = why;
    l->told.stopped = why != NULL;
    pthread_mutex_unlock(&l->lock);
}

/* Says once that the journal cannot be written, and once that it can be again. */
static void tell(woi_server *server, wo_status status, const wo_error *err)
{
    woi_learner *l = server->learner;
    const bool failed = l->why; /* no other thread sets it */
    if (failed == (status != WO_OK)) return;
    refuse_lessons(l, status ? "the journal cannot be written, and what is not kept is not learned" : NULL);
    woi_say("%s: %s; %s", server->options.learned, status ? err->text : "it is written again",
            status ? "no feedback is taken until it can be written" : "feedback is taken");
}

/* Once a second: what was written is on the disk, and under its name. */
static void sync_journal(woi_server *server)
{
    woi_learner *l = server->learner;
    wo_error err = {.text = ""};
    if (!server->options.learned || !l->adapter || l->held.n) return;
    tell(server, recover(server, l->journal ? wo_journal_sync(l->journal, &err) : WO_OK, &err), &err);
}

/* ---- An index ---------------------------------------------------------------------------------------------- */

static void forget_counts(woi_learner *l)
{
    wo_adapter_free(l->adapter);
    l->adapter = NULL;
}

/* Whether what the index is counted and published by can still be read; where not, learning ends, until another index
 * is opened. Other threads' reads count too: a place that one of them met reads as zeros from then on. */
static bool still_whole(woi_server *server)
{
    woi_learner *l = server->learner;
    if (woi_snapshot_whole(l->lease.snapshot)) return true;
    if (l->adapter) {
        woi_say("%s: %s; nothing is learned until another is opened", server->options.index, woi_damaged);
        forget_counts(l);
        refuse_lessons(l,
                       "the index file was shortened or overwritten, and nothing is learned until another is opened");
    }
    return false;
}

/* All queries of the arrays. Where one does not fit the index, the others do. */
static void count(woi_learner *l, const woi_lesson *lesson)
{
    if (!wo_adapter_observe(l->adapter, lesson->queries, lesson->n, lesson->indptr, lesson->labels, NULL)) return;
    for (size_t i = 0; i < lesson->n; i++) {
        const int64_t own[] = {0, lesson->indptr[i + 1] - lesson->indptr[i]};
        l->refused += wo_adapter_observe(l->adapter, lesson->queries + i * lesson->d, 1, own,
                                         lesson->labels + lesson->indptr[i], NULL) != WO_OK;
    }
}

/* What the journal has. */
static wo_status replay(woi_learner *l, const char *path, wo_error *err)
{
    wo_log *log = NULL;
    wo_status status = wo_log_open(path, &log, err);
    if (status) return status;
    const int64_t *indptr;
    const int32_t *labels = wo_log_labels(log, &indptr);
    const size_t n = wo_log_n(log), d = wo_log_d(log);
    int64_t own[AT_ONCE + 1];
    for (size_t i = 0; i < n; i += AT_ONCE) {
        const size_t some = n - i < AT_ONCE ? n - i : AT_ONCE;
        for (size_t j = 0; j <= some; j++) own[j] = indptr[i + j] - indptr[i];
        count(l, &(woi_lesson){.n = some,
                               .d = d,
                               .queries = wo_log_queries(log) + i * d,
                               .indptr = own,
                               .labels = labels + indptr[i]});
    }
    wo_log_free(log);
    return WO_OK;
}

static wo_status publish(woi_server *server, wo_error *err)
{
    woi_learner *l = server->learner;
    wo_index *next = NULL;
    wo_status status = l->adapter ? wo_adapter_publish(l->adapter, &next, err) : WO_OK;
    if (l->adapter && !still_whole(server)) {
        wo_index_free(next);
        next = NULL;
    }
    if (!status && next) {
        status = woi_snapshot_replace(server, l->lease.snapshot, next, l->told.generation + 1, err);
        if (status) wo_index_free(next);
    }
    pthread_mutex_lock(&l->lock);
    l->told.generation += !status && next;
    l->told.dropped += l->refused;
    l->refused = 0;
    if (l->adapter) wo_adapter_describe(l->adapter, &l->told.of_index);
    pthread_mutex_unlock(&l->lock);
    return status;
}

static void forget(woi_server *server)
{
    woi_learner *l = server->learner;
    forget_counts(l);
    if (l->lease.snapshot) woi_snapshot_give(server, &l->lease);
    l->lease = (woi_lease){0};
}

/* Learns for the index that is current now. */
static wo_status begin(woi_server *server, const char **at, wo_error *err)
{
    woi_learner *l = server->learner;
    const woi_serve_options *o = &server->options;
    const wo_adapter_options how = {.struct_size = sizeof how, .half_life = (double)o->half_life};
    forget(server);
    (void)woi_guard_met(); /* by reads of another index */
    woi_snapshot_take(server, &l->lease);
    woi_snapshot_return(server, &l->lease);
    const woi_snapshot *s = l->lease.snapshot;
    *at = o->index;
    wo_status status = wo_adapter_create(s->index, &how, &l->adapter, err);
    if (!status && o->learned) {
        *at = o->learned;
        if (l->journal && wo_journal_sync(l->journal, err) == WO_ERR_FORMAT) leave_journal(server, err);
        wo_journal_free(l->journal); /* one writer at a time, and another index may have other queries */
        l->journal = NULL;
        status = wo_journal_open(o->learned, s->info.d, &l->journal, err);
        if (!status) status = replay(l, o->learned, err);
        if (!status) status = publish(server, err);
    }
    if (!status && (!l->adapter || !still_whole(server))) {
        *at = o->index;
        *err = (wo_error){.status = WO_ERR_IO, .offset = WO_NO_OFFSET};
        snprintf(err->text, sizeof err->text, "%s", woi_damaged);
        status = WO_ERR_IO;
    }
    if (status) forget_counts(l); /* the lease stays: so it is tried again with the next index alone */
    return status;
}

/* ---- The thread -------------------------------------------------------------------------------------------- */

static bool index_changed(woi_server *server)
{
    pthread_mutex_lock(&server->lock);
    const bool changed = server->current != server->learner->lease.snapshot;
    pthread_mutex_unlock(&server->lock);
    return changed;
}

static void follow(woi_server *server)
{
    const char *at = NULL;
    wo_error err;
    if (!index_changed(server)) return;
    const wo_status status = begin(server, &at, &err);
    if (status) woi_say("%s: %s; nothing is learned", at, err.text);
    refuse_lessons(server->learner,
                   status ? "nothing is learned for the index that is served now: standard error says why" : NULL);
}

/* Lessons that fit together, n queries of the index's d, as one. */
static bool join(const woi_lesson *first, size_t n, size_t n_labels, woi_lesson *to)
{
    const size_t d = first->d;
    float *queries = malloc(n * d * sizeof *queries);
    int64_t *indptr = malloc((n + 1) * sizeof *indptr);
    int32_t *labels = malloc((n_labels + 1) * sizeof *labels);
    *to = (woi_lesson){.n = n, .d = d, .n_labels = n_labels, .queries = queries, .indptr = indptr, .labels = labels};
    if (!queries || !indptr || !labels) return false;
    size_t row = 0, label = 0;
    indptr[0] = 0;
    for (const woi_lesson *l = first; l; l = l->next) {
        if (l->d != d) continue;
        memcpy(queries + row * d, l->queries, l->n * d * sizeof *queries);
        if (l->n_labels) memcpy(labels + label, l->labels, l->n_labels * sizeof *labels);
        for (size_t i = 0; i < l->n; i++) indptr[row + i + 1] = (int64_t)label + l->indptr[i + 1];
        row += l->n;
        label += l->n_labels;
    }
    return true;
}

/* What is held goes into the journal, and then is counted. */
static void settle(woi_server *server)
{
    woi_learner *l = server->learner;
    wo_error err = {.text = ""};
    if (!l->held.n) return;
    if (!l->adapter || l->held.d != l->lease.snapshot->info.d) { /* of an index that is gone */
        l->refused += l->held.n;
        free_joined(&l->held);
        return;
    }
    const wo_status status = keep(server, &l->held, &err);
    tell(server, status, &err);
    if (status) return;
    count(l, &l->held);
    free_joined(&l->held);
    (void)still_whole(server);
}

/* Lessons of one d; those of another, for an index that is gone, are dropped. So is all that comes at the end while
 * something is still held. */
static void learn(woi_server *server, woi_lesson *first)
{
    woi_learner *l = server->learner;
    const size_t d = l->lease.snapshot->info.d;
    size_t n = 0, n_labels = 0;
    settle(server);
    while (first && (first->d != d || !l->adapter || l->held.n)) {
        woi_lesson *next = first->next;
        l->refused += first->n;
        free(first);
        first = next;
    }
    for (const woi_lesson *at = first; at; at = at->next) {
        n += at->d == d ? at->n : 0;
        n_labels += at->d == d ? at->n_labels : 0;
        l->refused += at->d == d ? 0 : at->n;
    }
    if (!first) return;
    if (!join(first, n, n_labels, &l->held)) {
        l->refused += n;
        free_joined(&l->held);
    }
    for (woi_lesson *next; first; first = next) {
        next = first->next;
        free(first);
    }
    settle(server);
}

/* Waits for a lesson, a second at most, and lets others gather; takes them all, unless some are held, which come first.
 * Under the lock. */
static woi_lesson *wait_for_lessons(woi_learner *l)
{
    const struct timespec until = woi_in(1);
    const bool stuck = l->held.n;
    while ((!l->first || stuck) && !l->stop)
        if (pthread_cond_timedwait(&l->change, &l->lock, &until) == ETIMEDOUT) break;
    if (stuck && !l->stop) return NULL;
    if (l->first && !l->stop) {
        pthread_mutex_unlock(&l->lock);
        nanosleep(&(struct timespec){0, GATHERED_NS}, NULL);
        pthread_mutex_lock(&l->lock);
    }
    woi_lesson *first = l->first;
    l->first = NULL;
    l->end = &l->first;
    l->n = l->bytes = 0;
    return first;
}

static void *work_on(void *ctx)
{
    woi_server *server = ctx;
    woi_learner *l = server->learner;
    wo_error err;
    double next = woi_now_s() + PERIOD_S;
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&l->lock);
        woi_lesson *first = wait_for_lessons(l);
        stop = l->stop;
        pthread_mutex_unlock(&l->lock);
        follow(server);
        learn(server, first);
        if (stop && l->held.n)
            woi_say("%s: feedback of %llu queries was taken and is not in it", server->options.learned,
                    (unsigned long long)(l->held.n + l->refused));
        const double start = woi_now_s();
        if (start < next && !stop) continue;
        const wo_status status = publish(server, &err);
        const double took = woi_now_s() - start;
        next = start + (SHARE * took > PERIOD_S ? SHARE * took : PERIOD_S);
        if (status) woi_say("learning: %s", err.text);
        sync_journal(server);
    }
    return NULL;
}

static void free_learner(woi_server *server)
{
    woi_learner *l = server->learner;
    forget(server);
    wo_journal_free(l->journal);
    free_joined(&l->held);
    pthread_cond_destroy(&l->change);
    pthread_mutex_destroy(&l->lock);
    server->learner = NULL;
    free(l);
}

wo_status woi_learn_start(woi_server *server, const char **at, wo_error *err)
{
    if (!server->options.learn) return WO_OK;
    woi_learner *l = calloc(1, sizeof *l);
    if (l) {
        pthread_condattr_t clock;
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->change, &clock);
        pthread_condattr_destroy(&clock);
        l->end = &l->first;
        l->told.of_index.struct_size = sizeof l->told.of_index;
        server->learner = l;
        const wo_status status = begin(server, at, err);
        if (!status && pthread_create(&l->thread, NULL, work_on, server) == 0) return WO_OK;
        free_learner(server);
        if (status) return status;
    }
    *at = NULL;
    *err = (wo_error){.status = WO_ERR_MEMORY, .offset = WO_NO_OFFSET, .text = "no thread can be had for learning"};
    return WO_ERR_MEMORY;
}

void woi_learn_end(woi_server *server)
{
    woi_learner *l = server->learner;
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->change);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
}

void woi_learn_stop(woi_server *server)
{
    woi_learn_end(server);
    if (server->learner) free_learner(server);
}
