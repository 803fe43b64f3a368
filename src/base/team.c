/* The pool under woi_team_for.
 *
 *   helpers   one for each thread that was ever made
 *   idle      those without work: looking for some, asleep on their `wake`, or on their way there
 *   a job     one call: parts are taken by an atomic counter; `begun` helpers are at work, `hired` ones were woken but
 *             have not come yet
 *
 * To put a thread to sleep and wake it takes 15 to 25 us, as long as some 50 queries. So who waits first looks for
 * LOOK_S and gives its processor away at every look (sched_yield), so that whoever else has work gets it; then it
 * sleeps. Calls that follow each other at once find their helpers awake. (Batches of 1,024 of Debian's index on two
 * threads: 0.29 us a query where helpers sleep at once, 0.27 so, 0.25 with OpenMP, which spins.)
 *
 * Those that are awake are hired all at once. Waking others costs the caller 9 us each, so it wakes two, and each that
 * comes wakes two more, as long as the job wants more and has parts left. A caller that finds all parts taken sends
 * home those that have not come, and waits for the others. One that was sent home may be hired again before it has
 * woken; it then comes to the new job.
 *
 * One lock guards all of it: it is taken a few times a call, never for a part. Nobody is woken under it, because the
 * first thing that a helper does is to take it. */
#include "base/team.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

typedef struct job {
    woi_part_fn fn;
    void *ctx;
    size_t n_parts;
    atomic_size_t next;     /* part to be taken */
    int wanted;             /* helpers that may still be hired */
    int next_worker;        /* the number of the next one */
    atomic_int begun;       /* helpers at work; changed under the lock */
    struct helper *hired;   /* woken, not yet come */
    pthread_cond_t all_out; /* begun fell to 0 */
} job;

static const double LOOK_S = 20e-6;

typedef struct helper {
    pthread_cond_t wake;
    bool asleep;
    atomic_bool called;  /* it has a job: for looking without the lock */
    job *job;            /* NULL: none */
    int worker;          /* its number there */
    struct helper *next; /* in `idle`, or among the hired of its job */
} helper;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static helper helpers[WOI_MAX_THREADS];
static int n_helpers;
static helper *idle;
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

/* Only the thread that forked is there. */
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

static void hire_some(job *j);

static void take_parts(job *j, int worker)
{
    for (size_t part; (part = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->n_parts;)
        j->fn(j->ctx, worker, part);
}

static void send_home(helper *h)
{
    h->job = NULL;
    atomic_store_explicit(&h->called, false, memory_order_relaxed);
    h->next = idle;
    idle = h;
}

static void leave_hired(job *j, const helper *h)
{
    helper **at = &j->hired;
    while (*at != h) at = &(*at)->next;
    *at = h->next;
}

/* Until there is a job. The lock is held, and held again on return. */
static void wait_for_job(helper *h)
{
    pthread_mutex_unlock(&lock);
    for (const double end = woi_now_s() + LOOK_S;
         !atomic_load_explicit(&h->called, memory_order_relaxed) && woi_now_s() < end;)
        sched_yield();
    pthread_mutex_lock(&lock);
    h->asleep = true;
    while (!h->job) pthread_cond_wait(&h->wake, &lock);
    h->asleep = false;
}

static void *help(void *own)
{
    helper *h = own;
    pthread_mutex_lock(&lock);
    for (;;) {
        if (!h->job) wait_for_job(h);
        job *j = h->job;
        leave_hired(j, h);
        j->begun++;
        hire_some(j);
        take_parts(j, h->worker);
        pthread_mutex_lock(&lock);
        send_home(h);
        /* Under the lock: the job is the caller's memory, which is gone once the caller has seen 0. */
        if (--j->begun == 0) pthread_cond_signal(&j->all_out);
    }
    return NULL;
}

/* Signals are the business of the host's threads, but for those that a thread's own instruction raises: blocked, they
 * would end the process whatever handler the host has. */
static sigset_t not_ours(void)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&set, own[i]);
    return set;
}

/* A new thread; NULL where there can be none. */
static helper *make_helper(void)
{
    if (n_helpers == WOI_MAX_THREADS) return NULL;
    helper *h = &helpers[n_helpers];
    *h = (helper){.wake = PTHREAD_COND_INITIALIZER}; /* before a fork it may have been another's */
    const sigset_t blocked = not_ours();
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_t thread;
    const bool made = pthread_create(&thread, NULL, help, h) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!made) return NULL;
    pthread_detach(thread);
    n_helpers++;
    return h;
}

/* Gives the job one helper more, if it wants one and has work for it; NULL: it got none. The lock is held. */
static helper *hire(job *j)
{
    if (!j->wanted || atomic_load_explicit(&j->next, memory_order_relaxed) >= j->n_parts) return NULL;
    helper *h = idle;
    if (h)
        idle = h->next;
    else if (!(h = make_helper())) {
        j->wanted = 0;
        return NULL;
    }
    j->wanted--;
    h->job = j;
    atomic_store_explicit(&h->called, true, memory_order_relaxed);
    h->worker = j->next_worker++;
    h->next = j->hired;
    j->hired = h;
    return h;
}

/* One after the other, until two that sleep are among them: those that are awake are mostly on top. Lets go of the
 * lock, which is held. */
static void hire_some(job *j)
{
    enum { SLEEPERS = 2 };
    helper *woken[SLEEPERS];
    int n = 0;
    for (helper *h; n < SLEEPERS && (h = hire(j));)
        if (h->asleep) woken[n++] = h;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++) pthread_cond_signal(&woken[i]->wake);
}

/* ---- Calls ------------------------------------------------------------------------------------------------- */

/* Called with the lock, and returns with it. */
static void wait_for_helpers(job *j)
{
    pthread_mutex_unlock(&lock);
    for (const double end = woi_now_s() + LOOK_S; j->begun && woi_now_s() < end;) sched_yield();
    pthread_mutex_lock(&lock);
    while (j->begun) pthread_cond_wait(&j->all_out, &lock);
}

void woi_team_for(int threads, size_t n_parts, woi_part_fn fn, void *ctx)
{
    if (threads > WOI_MAX_THREADS) threads = WOI_MAX_THREADS;
    if (threads < 2 || n_parts < 2) {
        for (size_t part = 0; part < n_parts; part++) fn(ctx, 0, part);
        return;
    }
    if ((size_t)threads > n_parts) threads = (int)n_parts;
    pthread_once(&once, watch_forks);
    job j = {.fn = fn,
             .ctx = ctx,
             .n_parts = n_parts,
             .wanted = threads - 1,
             .next_worker = 1,
             .all_out = PTHREAD_COND_INITIALIZER};
    pthread_mutex_lock(&lock);
    hire_some(&j);
    take_parts(&j, 0);
    pthread_mutex_lock(&lock);
    j.wanted = 0;
    for (helper *h; (h = j.hired);) { /* too late */
        j.hired = h->next;
        send_home(h);
    }
    if (j.begun) wait_for_helpers(&j);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&j.all_out);
}

typedef struct ranges {
    size_t n, at_once;
    woi_range_fn fn;
    void *ctx;
} ranges;

static void take_range(void *own, int worker, size_t part)
{
    const ranges *r = own;
    const size_t first = part * r->at_once, left = r->n - first;
    r->fn(r->ctx, worker, first, first + (left < r->at_once ? left : r->at_once));
}

void woi_team_ranges(int threads, size_t n, size_t at_once, woi_range_fn fn, void *ctx)
{
    ranges r = {n, at_once, fn, ctx};
    if (n <= at_once) { /* a single query is counted in hundreds of nanoseconds */
        if (n) fn(ctx, 0, 0, n);
        return;
    }
    woi_team_for(threads, n / at_once + (n % at_once > 0), take_range, &r);
}

int woi_team_threads(int asked)
{
    cpu_set_t set;
    long n = asked;
    if (n < 1) n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n < WOI_MAX_THREADS ? (int)n : WOI_MAX_THREADS;
}
