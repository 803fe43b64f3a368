/* Requests that come together are searched together (--batch-window). The first one that finds nobody waiting opens a
 * window; what has come when it closes, or when there are enough queries, is one search for all that ask alike. A
 * thread of its own searches and writes the answers; connections sleep meanwhile.
 *
 * What this is worth depends on the search: the exact layer reads its rows once for a batch, and answers three times as
 * many with a window of 1 ms and 64 connections. Cells, which take less than handing over does, lose a third. */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ENOUGH = 256, MOST_OF_ONE = 64 };

typedef struct woi_batcher {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    woi_work *first, **end;
    size_t n; /* queries that wait */
    bool stop;
} woi_batcher;

bool woi_batch_takes(const woi_server *server, const woi_job *job)
{
    return server->batcher && job->n <= MOST_OF_ONE && !job->n_forbid && !job->n_require && !job->bias &&
           !job->wants_log_z;
}

/* ---- One batch --------------------------------------------------------------------------------------------- */

static bool alike(const woi_work *a, const woi_work *b)
{
    const woi_job *x = &a->job, *y = &b->job;
    return a->lease.snapshot == b->lease.snapshot && x->k == y->k && x->score == y->score && x->exact == y->exact &&
           x->no_prior == y->no_prior && x->probes == y->probes && x->may_teach == y->may_teach;
}

/* A job of n queries that asks as another does, and has nothing of that one's memory: not even an empty mask. */
static woi_job like(const woi_job *job, size_t n)
{
    return (woi_job){.n = n,
                     .k = job->k,
                     .score = job->score,
                     .exact = job->exact,
                     .no_prior = job->no_prior,
                     .probes = job->probes,
                     .may_teach = job->may_teach};
}

static void end_one(woi_server *server, woi_work *work, bool done)
{
    woi_ticket *ticket = work->ticket;
    work->finish(server, work, &ticket->reply, done);
    if (ticket->reply.body.failed) woi_refusal(&ticket->reply, 503, "out of memory");
    ticket->done(ticket);
}

/* The answers of queries first .. of all are those of one work. */
static bool take_answers(woi_work *work, const woi_job *all, size_t first, const woi_reply *reply)
{
    woi_job *job = &work->job;
    job->k = all->k;
    const size_t n = job->n * job->k, from = first * job->k;
    job->ids = malloc(n * sizeof *job->ids);
    job->scores = malloc(n * sizeof *job->scores);
    job->stats = malloc(job->n * sizeof *job->stats);
    woi_reply *own = &work->ticket->reply;
    if (!job->ids || !job->scores || !job->stats) return woi_refuse(own, 503, "out of memory");
    memcpy(job->ids, all->ids + from, n * sizeof *job->ids);
    memcpy(job->scores, all->scores + from, n * sizeof *job->scores);
    memcpy(job->stats, all->stats + first, job->n * sizeof *job->stats);
    job->seconds = all->seconds;
    own->status = reply->status;
    own->checksum = reply->checksum;
    own->generation = reply->generation;
    own->n_queries = job->n;
    own->n_k = job->k;
    return true;
}

/* Works that ask alike, n queries together. Where the search of all fails, one of them is to blame: each is then
 * searched by itself. */
static void run_group(woi_server *server, woi_work *first, size_t n)
{
    const size_t d = first->lease.snapshot->info.d;
    woi_job all = like(&first->job, n);
    woi_reply reply = {0};
    woi_lease lease;
    woi_snapshot_keep(server, &first->lease, &lease);
    woi_snapshot_borrow(server, &lease);
    float *queries = first->next ? malloc(n * d * sizeof *queries) : NULL;
    all.made = queries;
    all.queries = queries;
    size_t at = 0;
    for (const woi_work *w = first; queries && w; at += w->job.n, w = w->next)
        memcpy(queries + at * d, w->job.queries, w->job.n * d * sizeof *queries);
    const bool together = queries && woi_job_run(&all, server, &lease, &reply);
    at = 0;
    for (woi_work *w = first, *next; w; w = next) {
        const size_t own = w->job.n; /* it is gone when it has ended */
        next = w->next;
        end_one(server, w,
                together ? take_answers(w, &all, at, &reply) : woi_job_run(&w->job, server, &lease, &w->ticket->reply));
        at += own;
    }
    woi_snapshot_give(server, &lease);
    woi_job_free(&all);
    woi_reply_free(&reply);
}

void woi_batch_enter(woi_server *server, woi_ticket *ticket)
{
    woi_batcher *b = server->batcher;
    woi_work *work = ticket->reply.work;
    work->ticket = ticket;
    work->next = NULL;
    pthread_mutex_lock(&b->lock);
    const bool late = b->stop;
    if (!late) {
        *b->end = work;
        b->end = &work->next;
        const bool first = b->n == 0;
        b->n += work->job.n;
        if (first || b->n >= ENOUGH) pthread_cond_signal(&b->change);
    }
    pthread_mutex_unlock(&b->lock);
    if (late) run_group(server, work, work->job.n); /* the thread is gone, the connections are not yet */
}

static void run_all(woi_server *server, woi_work *waiting)
{
    while (waiting) {
        woi_work *group = NULL, **to = &group, *rest = NULL, **rest_to = &rest;
        size_t n = 0;
        for (woi_work *w = waiting, *next; w; w = next) {
            next = w->next;
            w->next = NULL;
            const bool joins = !group || alike(group, w);
            n += joins ? w->job.n : 0;
            *(joins ? to : rest_to) = w;
            if (joins)
                to = &w->next;
            else
                rest_to = &w->next;
        }
        run_group(server, group, n);
        waiting = rest;
    }
}

/* ---- The thread -------------------------------------------------------------------------------------------- */

/* Waits until the window of the first closes, or there is enough. */
static void wait_window(woi_batcher *b, double seconds)
{
    const struct timespec until = woi_in(seconds);
    while (b->n < ENOUGH && !b->stop)
        if (pthread_cond_timedwait(&b->change, &b->lock, &until) == ETIMEDOUT) break;
}

static void *work_on(void *ctx)
{
    woi_server *server = ctx;
    woi_batcher *b = server->batcher;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (!b->first && !b->stop) pthread_cond_wait(&b->change, &b->lock);
        if (!b->first) break;
        wait_window(b, server->options.window_s);
        woi_work *waiting = b->first;
        b->first = NULL;
        b->end = &b->first;
        b->n = 0;
        pthread_mutex_unlock(&b->lock);
        run_all(server, waiting);
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

wo_status woi_batch_start(woi_server *server, wo_error *err)
{
    if (server->options.window_s <= 0) return WO_OK;
    woi_batcher *b = calloc(1, sizeof *b);
    if (b) {
        pthread_condattr_t clock;
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_mutex_init(&b->lock, NULL);
        pthread_cond_init(&b->change, &clock);
        pthread_condattr_destroy(&clock);
        b->end = &b->first;
        server->batcher = b;
        if (pthread_create(&b->thread, NULL, work_on, server) == 0) return WO_OK;
        server->batcher = NULL;
        free(b);
    }
    *err = (wo_error){.status = WO_ERR_MEMORY, .offset = WO_NO_OFFSET, .text = "no thread can be had for batches"};
    return WO_ERR_MEMORY;
}

void woi_batch_stop(woi_server *server)
{
    woi_batcher *b = server->batcher;
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_signal(&b->change);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
}

void woi_batch_free(woi_server *server)
{
    woi_batcher *b = server->batcher;
    if (!b) return;
    pthread_cond_destroy(&b->change);
    pthread_mutex_destroy(&b->lock);
    server->batcher = NULL;
    free(b);
}
