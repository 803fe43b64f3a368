/* The pool under woi_team_for.
 *
 *   idle      threads without work, asleep on their `wake`
 *   a job     one call: parts are taken by an atomic counter; `begun` helpers are at work, `hired` ones were woken but
 *             have not come yet
 *
 * Waking costs some microseconds a thread, so each helper that comes wakes two more, as long as the job wants more and
 * has parts left. A caller that finds all parts taken sends home those that have not come, and waits for the others.
 *
 * One lock guards all of it: it is taken a few times a call, never for a part. */
#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct job {
    woi_part_fn fn;
    void *ctx;
    size_t n_parts;
    atomic_size_t next;     /* part to be taken */
    int wanted;             /* helpers that may still be hired */
    int next_worker;        /* the number of the next one */
    int begun;              /* helpers at work */
    struct helper *hired;   /* woken, not yet come */
    pthread_cond_t all_out; /* begun fell to 0 */
} job;

typedef struct helper {
    pthread_cond_t wake;
    job *job;            /* NULL: none */
    int worker;          /* its number there */
    struct helper *next; /* in `idle`, or among the hired of its job */
} helper;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static helper *idle;
static int n_helpers; /* all that there are */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- Forks ------------------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* Only the thread that forked is there: the helpers' memory is left behind. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    idle = NULL;
    n_helpers = 0;
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- Helpers ----------------------------------------------------------------------------------------------- */

static void take_parts(job *j, int worker)
{
    for (size_t part; (part = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->n_parts;)
        j->fn(j->ctx, worker, part);
}

static void hire(job *j);

static void unlink_hired(job *j, const helper *h)
{
    helper **at = &j->hired;
    while (*at != h) at = &(*at)->next;
    *at = h->next;
}

static void *help(void *own)
{
    helper *h = own;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!h->job) pthread_cond_wait(&h->wake, &lock);
        job *j = h->job;
        unlink_hired(j, h);
        j->begun++;
        hire(j);
        hire(j);
        pthread_mutex_unlock(&lock);
        take_parts(j, h->worker);
        pthread_mutex_lock(&lock);
        h->job = NULL;
        h->next = idle;
        idle = h;
        if (--j->begun == 0) pthread_cond_signal(&j->all_out);
    }
    return NULL;
}

/* A new thread; NULL where there can be none. Signals are the host's threads' business. */
static helper *make_helper(void)
{
    if (n_helpers >= WOI_MAX_THREADS) return NULL;
    helper *h = malloc(sizeof *h); /* never freed: not the caller's memory to account for */
    if (!h) return NULL;
    *h = (helper){.wake = PTHREAD_COND_INITIALIZER};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const bool made = pthread_create(&thread, NULL, help, h) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!made) {
        free(h);
        return NULL;
    }
    pthread_detach(thread);
    n_helpers++;
    return h;
}

/* Gives the job one helper more, if it wants one and has work for it. The lock is held. */
static void hire(job *j)
{
    if (!j->wanted || atomic_load_explicit(&j->next, memory_order_relaxed) >= j->n_parts) return;
    helper *h = idle;
    if (h)
        idle = h->next;
    else if (!(h = make_helper())) {
        j->wanted = 0;
        return;
    }
    j->wanted--;
    h->job = j;
    h->worker = j->next_worker++;
    h->next = j->hired;
    j->hired = h;
    pthread_cond_signal(&h->wake);
}

/* ---- Calls ------------------------------------------------------------------------------------------------- */

void woi_team_for(int threads, size_t n_parts, woi_part_fn fn, void *ctx)
{
    if (threads > WOI_MAX_THREADS) threads = WOI_MAX_THREADS;
    if ((size_t)threads > n_parts) threads = (int)n_parts;
    if (threads < 2) {
        for (size_t part = 0; part < n_parts; part++) fn(ctx, 0, part);
        return;
    }
    pthread_once(&once, watch_forks);
    job j = {.fn = fn, .ctx = ctx, .n_parts = n_parts, .wanted = threads - 1, .next_worker = 1};
    pthread_cond_init(&j.all_out, NULL);
    pthread_mutex_lock(&lock);
    hire(&j);
    hire(&j);
    pthread_mutex_unlock(&lock);
    take_parts(&j, 0);
    pthread_mutex_lock(&lock);
    j.wanted = 0;
    for (helper *h; (h = j.hired);) { /* too late */
        j.hired = h->next;
        h->job = NULL;
        h->next = idle;
        idle = h;
    }
    while (j.begun) pthread_cond_wait(&j.all_out, &lock);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&j.all_out);
}

int woi_team_threads(int asked)
{
    if (asked > 0) return asked < WOI_MAX_THREADS ? asked : WOI_MAX_THREADS;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n < WOI_MAX_THREADS ? n : WOI_MAX_THREADS;
}
