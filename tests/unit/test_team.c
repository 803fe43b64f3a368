/* base/team: loops on sleeping threads; and batch searches, which are what they are for. */
#include "engine.h"

#include "base/clock.h"
#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

/* ---- Parts ------------------------------------------------------------------------------------------------- */

enum { MOST_PARTS = 3000, MOST_WORKERS = 64 };

typedef struct record {
    int threads;
    atomic_int done[MOST_PARTS];     /* how often each part was */
    atomic_int inside[MOST_WORKERS]; /* threads that have this number now */
    atomic_int wrong;
    int plain[MOST_PARTS]; /* written without a lock: TSan watches */
} record;

static record *new_record(int threads)
{
    record *r = room(1, sizeof *r);
    r->threads = threads;
    return r;
}

static void do_part(void *ctx, int worker, size_t part)
{
    record *r = ctx;
    if (worker < 0 || worker >= (r->threads < 1 ? 1 : r->threads)) {
        r->wrong++;
        return;
    }
    if (atomic_fetch_add(&r->inside[worker], 1) != 0) r->wrong++;
    r->done[part]++;
    r->plain[part] = (int)part + 1;
    if (part % 16 == 0) sched_yield();
    atomic_fetch_sub(&r->inside[worker], 1);
}

static void check_record(const record *r, size_t n)
{
    assert_int_equal(r->wrong, 0);
    for (size_t i = 0; i < MOST_PARTS; i++) {
        assert_int_equal(r->done[i], i < n);
        assert_int_equal(r->plain[i], i < n ? (int)i + 1 : 0);
    }
}

static void every_part_is_done_once(void **state)
{
    (void)state;
    static const size_t parts[] = {0, 1, 2, 3, 7, 64, 1000, MOST_PARTS};
    static const int threads[] = {-1, 0, 1, 2, 3, 5, 16, MOST_WORKERS};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
            for (int again = 0; again < 5; again++) {
                record *r = new_record(threads[t]);
                woi_team_for(threads[t], parts[p], do_part, r);
                check_record(r, parts[p]);
                free(r);
            }
}

/* Short calls, one after the other: helpers are sent home before they woke, and hired again at once. */
static void short_calls_follow_each_other(void **state)
{
    (void)state;
    for (int call = 0; call < 2000; call++) {
        record *r = new_record(3);
        const size_t n = 2 + (size_t)call % 5;
        woi_team_for(3, n, do_part, r);
        assert_int_equal(r->wrong, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(r->plain[i], (int)i + 1);
        free(r);
    }
}

typedef struct spans {
    atomic_int times[1000];
    size_t most;
    atomic_int wrong;
} spans;

static void do_range(void *ctx, int worker, size_t first, size_t end)
{
    spans *s = ctx;
    (void)worker;
    if (first >= end || end - first > s->most || first % s->most) s->wrong++;
    for (size_t i = first; i < end; i++) s->times[i]++;
}

static void ranges_cover_everything(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 15, 16, 17, 500, 999, 1000}, pieces[] = {1, 2, 16, 999, 1000, 5000};
    for (size_t n = 0; n < 9; n++)
        for (size_t piece = 0; piece < 6; piece++)
            for (int threads = 0; threads < 4; threads++) {
                spans s = {.most = pieces[piece]};
                woi_team_ranges(threads, lengths[n], pieces[piece], do_range, &s);
                assert_int_equal(s.wrong, 0);
                for (size_t i = 0; i < 1000; i++) assert_int_equal(s.times[i], i < lengths[n]);
            }
}

static void parts_start_where_others_end(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 5, 16, 17, 1000, SIZE_MAX / 2};
    for (size_t n = 0; n < 7; n++)
        for (size_t parts = 1; parts < 20; parts++) {
            assert_int_equal(woi_part_start(0, parts, lengths[n]), 0);
            assert_int_equal(woi_part_start(parts, parts, lengths[n]), lengths[n]);
            for (size_t p = 0; p < parts; p++) {
                const size_t own = woi_part_start(p + 1, parts, lengths[n]) - woi_part_start(p, parts, lengths[n]);
                assert_in_range(own, lengths[n] / parts, lengths[n] / parts + 1);
            }
        }
}

static void zero_threads_are_all_processors(void **state)
{
    (void)state;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(woi_team_threads(0), CPU_COUNT(&set));
    assert_int_equal(woi_team_threads(-5), CPU_COUNT(&set));
    assert_int_equal(woi_team_threads(1), 1);
    assert_int_equal(woi_team_threads(7), 7);
    assert_int_equal(woi_team_threads(WOI_MAX_THREADS + 1), WOI_MAX_THREADS);
}

/* ---- Calls in calls, and beside each other ----------------------------------------------------------------- */

enum { OUTER = 12, INNER = 40 };

typedef struct nest {
    atomic_int done[OUTER][INNER];
    atomic_int wrong;
} nest;

typedef struct nested {
    nest *nest;
    size_t outer;
} nested;

static void do_inner(void *ctx, int worker, size_t part)
{
    const nested *n = ctx;
    if (worker < 0 || worker > 2) n->nest->wrong++;
    n->nest->done[n->outer][part]++;
}

static void do_outer(void *ctx, int worker, size_t part)
{
    (void)worker;
    woi_team_for(3, INNER, do_inner, &(nested){ctx, part});
}

static void *call_often(void *given)
{
    for (int round = 0; round < 50; round++) {
        nest n = {0};
        woi_team_for(4, OUTER, do_outer, &n);
        for (size_t i = 0; i < OUTER; i++)
            for (size_t j = 0; j < INNER; j++)
                if (n.done[i][j] != 1) n.wrong++;
        atomic_fetch_add((atomic_int *)given, n.wrong);
    }
    return NULL;
}

static void calls_nest(void **state)
{
    (void)state;
    atomic_int wrong = 0;
    call_often(&wrong);
    assert_int_equal(wrong, 0);
}

static void several_callers_share_the_pool(void **state)
{
    (void)state;
    pthread_t callers[5];
    atomic_int wrong = 0;
    for (size_t i = 0; i < 5; i++) assert_int_equal(pthread_create(&callers[i], NULL, call_often, &wrong), 0);
    for (size_t i = 0; i < 5; i++) assert_int_equal(pthread_join(callers[i], NULL), 0);
    assert_int_equal(wrong, 0);
}

/* ---- Where more than one thread is really at work ---------------------------------------------------------- */

/* Ends only when `wanted` threads are inside at once: a part that waits for the others. */
typedef struct meeting {
    atomic_int inside, wanted;
    double end;
} meeting;

static void meet(void *ctx, int worker, size_t part)
{
    meeting *m = ctx;
    (void)worker, (void)part;
    m->inside++;
    while (m->inside < m->wanted && woi_now_s() < m->end) sched_yield();
}

static void all_threads_come(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 33; threads += 31)
        for (int again = 0; again < 3; again++) {
            meeting m = {.wanted = threads, .end = woi_now_s() + 30};
            woi_team_for(threads, (size_t)threads, meet, &m);
            assert_true(woi_now_s() < m.end);
        }
}

/* ---- Signals ----------------------------------------------------------------------------------------------- */

typedef struct faults {
    void *pages[4]; /* of no access: each part reads its own, and waits until all are read */
    atomic_int read, by_helpers, blocks_int;
} faults;

static faults faulting;
static _Thread_local volatile sig_atomic_t faulted;

static void give_page(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    faulted = mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095), 4096, PROT_READ) == 0;
}

static void read_page(void *ctx, int worker, size_t part)
{
    faults *f = ctx;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    if (worker && sigismember(&now, SIGINT)) f->blocks_int++;
    (void)*(volatile char *)f->pages[part];
    if (worker && faulted) f->by_helpers++;
    f->read++;
    while (f->read < 4) sched_yield();
}

/* A host that handles the faults of mapped files handles those of helpers too; what comes from outside is not theirs.
 */
static void faults_of_helpers_reach_the_hosts_handler(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = give_page, .sa_flags = SA_SIGINFO}, before[2];
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
    for (int i = 0; i < 4; i++) {
        faulting.pages[i] = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(faulting.pages[i], MAP_FAILED);
    }
    woi_team_for(4, 4, read_page, &faulting);
    sigaction(SIGSEGV, &before[0], NULL);
    sigaction(SIGBUS, &before[1], NULL);
    for (int i = 0; i < 4; i++) munmap(faulting.pages[i], 4096);
    assert_int_equal(faulting.by_helpers, 3);
    assert_int_equal(faulting.blocks_int, 3);
}

/* ---- Sleep ------------------------------------------------------------------------------------------------- */

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void idle_threads_use_no_processor(void **state)
{
    (void)state;
    record *r = new_record(8);
    woi_team_for(8, MOST_PARTS, do_part, r);
    free(r);
    pause_ms(20); /* the last ones are on their way to sleep */
    const double before = woi_cpu_s();
    pause_ms(200);
    assert_true(woi_cpu_s() - before < 0.02);
}

/* ---- Batches ----------------------------------------------------------------------------------------------- */

enum { M = 3000, D = 32, N = 4096, K = 5 };

typedef struct searching {
    scene s;
    wo_index *index;
    wo_searcher *searchers[2]; /* one thread, two threads */
    int32_t *ids[2];
    float *scores;
} searching;

static searching begin_searching(void)
{
    wo_error err;
    searching x = {.s = make_scene(M, D, N, true, 5)};
    wo_build_options o;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    o.router = WO_ROUTER_TREE;
    o.threads = 1;
    if (wo_index_build(x.s.layer, x.s.log, &o, &x.index, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        const wo_searcher_options so = {.struct_size = sizeof so, .threads = i + 1};
        if (wo_searcher_create(x.index, &so, &x.searchers[i], &err)) fail_msg("%s", err.text);
        x.ids[i] = room(N * K, sizeof **x.ids);
    }
    x.scores = room(N * K, sizeof *x.scores);
    return x;
}

static wo_status search(searching *x, int side)
{
    return wo_search(x->searchers[side], x->s.q, N, K, x->ids[side], x->scores, NULL);
}

static void end_searching(searching *x)
{
    for (int i = 0; i < 2; i++) {
        wo_searcher_free(x->searchers[i]);
        free(x->ids[i]);
    }
    free(x->scores);
    wo_index_free(x->index);
    free_scene(&x->s);
}

/* Neither TSan nor qemu-user (7.2: an assertion of its own fails) makes threads after a fork beside others. */
static bool threads_after_fork(void)
{
#ifdef __SANITIZE_THREAD__
    return false;
#else
    return !getenv("QEMU_CPU"); /* tests/run.sh sets it */
#endif
}

static int work_in_child(searching *x)
{
    record *r = calloc(1, sizeof *r);
    if (!r) return 1;
    r->threads = 4;
    woi_team_for(4, MOST_PARTS, do_part, r);
    for (size_t i = 0; i < MOST_PARTS; i++)
        if (r->done[i] != 1) return 2;
    if (r->wrong) return 3;
    free(r);
    memset(x->ids[1], 0, N * K * sizeof **x->ids);
    if (search(x, 1)) return 4;
    return memcmp(x->ids[0], x->ids[1], N * K * sizeof **x->ids) ? 5 : 0;
}

/* The exit code of a child, or -1 where it does not end. */
static int wait_for(pid_t child)
{
    for (const double end = woi_now_s() + 60; woi_now_s() < end; pause_ms(5)) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return -1;
}

/* libgomp's threads are not there after a fork, and nobody tells the child: it waited for them for ever. */
static void a_forked_child_searches(void **state)
{
    (void)state;
    if (!threads_after_fork()) skip();
    searching x = begin_searching();
    for (int side = 0; side < 2; side++) assert_int_equal(search(&x, side), WO_OK);
    for (int round = 0; round < 20; round++) {
        const pid_t child = fork();
        if (child == 0) _exit(work_in_child(&x));
        assert_true(child > 0);
        assert_int_equal(search(&x, 1), WO_OK); /* beside it: the parent's pool is whole */
        assert_int_equal(wait_for(child), 0);
        assert_memory_equal(x.ids[0], x.ids[1], N * K * sizeof **x.ids);
    }
    end_searching(&x);
}

typedef struct caller {
    atomic_bool stop;
} caller;

static void *call_until_stopped(void *given)
{
    caller *c = given;
    while (!c->stop) {
        nest n = {0};
        woi_team_for(3, OUTER, do_outer, &n);
    }
    return NULL;
}

/* The lock is free in a child whatever the other threads were doing. */
static void a_child_may_be_forked_beside_calls(void **state)
{
    (void)state;
    if (!threads_after_fork()) skip();
    pthread_t thread;
    caller c = {0};
    assert_int_equal(pthread_create(&thread, NULL, call_until_stopped, &c), 0);
    int bad = 0;
    for (int round = 0; round < 50 && !bad; round++) {
        const pid_t child = fork();
        if (child == 0) {
            atomic_int wrong = 0;
            nest n = {0};
            woi_team_for(3, OUTER, do_outer, &n);
            for (size_t i = 0; i < OUTER * INNER; i++) wrong += n.done[i / INNER][i % INNER] != 1;
            _exit(wrong ? 1 : 0);
        }
        bad = child < 0 ? 1 : wait_for(child);
    }
    c.stop = true;
    pthread_join(thread, NULL);
    assert_int_equal(bad, 0);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Beside a process that never rests a batch on two threads may take as long as on one. OpenMP's took 8 to 70 times as
 * long, and 4 to 15 times the processor's time: its threads spun. A thread that loses its processor in the middle of a
 * part gets it back when the others have had theirs, which is 10 ms where there are many, hence the 20 ms. */
static void a_busy_neighbour_does_no_harm(void **state)
{
    (void)state;
    enum { ROUNDS = 31 };
    searching x = begin_searching();
    cpu_set_t set, one;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
    const pid_t parent = getpid(), busy = fork();
    if (busy == 0) {
        sched_setaffinity(0, sizeof one, &one);
        while (getppid() == parent) {
        }
        _exit(0);
    }
    assert_true(busy > 0);
    double took[2][ROUNDS], cpu[2] = {0};
    wo_status status = WO_OK;
    for (int round = 0; round < ROUNDS; round++)
        for (int side = 0; side < 2; side++) {
            const double start = woi_now_s(), cpu_start = woi_cpu_s();
            if (search(&x, side)) status = WO_ERR_ARGUMENT;
            took[side][round] = woi_now_s() - start;
            cpu[side] += woi_cpu_s() - cpu_start;
        }
    kill(busy, SIGKILL);
    waitpid(busy, NULL, 0);
    assert_int_equal(status, WO_OK);
    for (int side = 0; side < 2; side++) qsort(took[side], ROUNDS, sizeof(double), by_size);
    const double alone = took[0][ROUNDS / 2], two = took[1][ROUNDS / 2];
    if (two > 3 * alone + 20e-3) fail_msg("on two threads %.0f us, on one %.0f", 1e6 * two, 1e6 * alone);
    if (cpu[1] > 2 * cpu[0] + 10e-3) fail_msg("on two threads %.3f s of CPU, on one %.3f", cpu[1], cpu[0]);
    end_searching(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_once),
        cmocka_unit_test(short_calls_follow_each_other),
        cmocka_unit_test(ranges_cover_everything),
        cmocka_unit_test(parts_start_where_others_end),
        cmocka_unit_test(zero_threads_are_all_processors),
        cmocka_unit_test(calls_nest),
        cmocka_unit_test(several_callers_share_the_pool),
        cmocka_unit_test(all_threads_come),
        cmocka_unit_test(faults_of_helpers_reach_the_hosts_handler),
        cmocka_unit_test(idle_threads_use_no_processor),
        cmocka_unit_test(a_forked_child_searches),
        cmocka_unit_test(a_child_may_be_forked_beside_calls),
        cmocka_unit_test(a_busy_neighbour_does_no_harm),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
