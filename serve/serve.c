/* The server from its start to its end: files are opened, the port too; then this thread waits for signals, and looks
 * after the others every second. SIGHUP: the files are opened again. SIGTERM and SIGINT: it says that it is not ready,
 * answers what has come, and leaves; the second one ends it at once. */
#include "http.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- Saying where ------------------------------------------------------------------------------------------ */

static wo_status announce(woi_server *server, const char *address, woi_ready_file *ready, const char **at,
                          wo_error *err)
{
    const woi_serve_options *o = &server->options;
    woi_lease lease;
    *at = o->ready_file;
    if (o->ready_file && woi_ready_open(ready, o->ready_file, err)) return err->status;
    woi_snapshot_take(server, &lease);
    if (o->json)
        printf("{\"address\": \"%s\", \"index\": \"%s\", \"pid\": %ld}\n", address, lease.snapshot->digits,
               (long)getpid());
    else if (!o->quiet)
        printf("serving %zu classes at http://%s/ (index %s, %d threads)\n", lease.snapshot->info.m, address,
               lease.snapshot->digits, server->threads);
    woi_snapshot_give(server, &lease);
    fflush(stdout);
    woi_notify("READY=1");
    return o->ready_file ? woi_ready_write(ready, address, err) : WO_OK;
}

/* ---- Signals ----------------------------------------------------------------------------------------------- */

static sigset_t signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

/* The next signal within so many seconds; 0: none came. */
static int wait_for(const sigset_t *set, double seconds)
{
    const struct timespec most = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    const int signal_number = sigtimedwait(set, NULL, &most);
    return signal_number > 0 ? signal_number : 0;
}

static bool told_to_end(const sigset_t *set, double seconds)
{
    const int signal_number = wait_for(set, seconds);
    return signal_number && signal_number != SIGHUP;
}

#define QUIET_S 0.2

/* What has come is answered, as long as the time for a request; connections without one are closed. Between two
 * requests of a busy connection none is in flight, so that one such moment proves nothing: each connection is told with
 * its next answer that it closes, and the end is when none is left, or when nothing has come over those that are for a
 * while. */
static void leave(woi_server *server, woi_http *http, const sigset_t *set)
{
    const double start = woi_now_s();
    atomic_store(&server->draining, true);
    woi_reload_refuse(server);
    woi_notify("STOPPING=1");
    if (server->options.drain_s > 0 && told_to_end(set, server->options.drain_s)) return;
    woi_http_quiesce(http);
    const woi_metrics *m = &server->metrics;
    double quiet = woi_now_s();
    for (long long before = -1, left; (left = atomic_load(&m->connections)) > 0; before = left) {
        if (left != before || atomic_load(&m->in_flight) > 0) quiet = woi_now_s();
        if (woi_now_s() - quiet > QUIET_S) return;
        if (woi_now_s() - start > server->options.drain_s + server->options.timeout_s) return;
        if (told_to_end(set, 0.01)) return;
    }
}

/* `watch`: the files as they were before they were opened, so that no change goes unnoticed. */
static void serve_until_told(woi_server *server, woi_http *http, woi_watch *watch, const sigset_t *set)
{
    for (double next = woi_now_s() + 1;;) {
        const double left = next - woi_now_s();
        const int signal_number = wait_for(set, left > 0 ? left : 0);
        if (signal_number == SIGHUP) {
            woi_access_reopen(server);
            woi_watch_begin(watch, &server->options);
            woi_reload(server, false);
        } else if (signal_number)
            break;
        if (woi_now_s() < next) continue;
        next = woi_now_s() + 1;
        woi_http_watch(http);
        bool touched;
        if (woi_watch_overwritten(watch, server, &touched) ||
            (server->options.watch && woi_watch_changed(watch, &server->options)))
            woi_reload(server, touched);
    }
    leave(server, http, set);
}

/* ---- The end ----------------------------------------------------------------------------------------------- */

#define STOP_S 1 /* for what is under way beyond its time */

typedef struct stopping {
    woi_server *server;
    woi_http *http;
    atomic_bool done;
} stopping;

static void *stop_answering(void *ctx)
{
    stopping *s = ctx;
    woi_batch_stop(s->server); /* no connection sleeps any more */
    woi_shards_stop(s->server);
    woi_http_stop(s->http);
    atomic_store(&s->done, true);
    return NULL;
}

/* Nothing can interrupt a thread that computes, and whoever told the server to leave does not wait for it: the process
 * ends under it. What was learned is kept first. */
static void leave_it(woi_server *server, const woi_ready_file *ready)
{
    const long long left = atomic_load(&server->metrics.in_flight);
    if (left > 0) woi_say("%lld requests are still under way, and have no answer", left);
    woi_learn_end(server);
    woi_ready_remove(ready);
    _exit(0);
}

static void stop_in_time(woi_server *server, woi_http *http, const woi_ready_file *ready, const sigset_t *set)
{
    static stopping s; /* its thread may outlive this function's frame */
    pthread_t thread;
    s.server = server;
    s.http = http;
    if (pthread_create(&thread, NULL, stop_answering, &s) != 0) {
        stop_answering(&s);
        return;
    }
    const double end = woi_now_s() + STOP_S;
    while (!atomic_load(&s.done))
        if (told_to_end(set, 0.005) || woi_now_s() > end) leave_it(server, ready);
    pthread_join(thread, NULL);
}

/* ---- All of it --------------------------------------------------------------------------------------------- */

/* As many files as the system allows: each connection is one. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

wo_status woi_serve(const woi_serve_options *options, const char **at, wo_error *err)
{
    static woi_server server; /* its counters are many: not for the stack */
    const sigset_t set = signals();
    sigset_t before;
    woi_http *http = NULL;
    woi_ready_file ready = {.fd = -1};
    woi_watch watch;
    int listening = -1;
    char address[WOI_ADDRESS_BYTES];
    bool loopback;
    raise_limit();
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, &before); /* every thread that is started has it so */
    woi_watch_begin(&watch, options);
    wo_status status = woi_server_open(&server, options, at, err);
    if (!status) {
        *at = NULL;
        status = woi_listen_given(&listening, err);
    }
    if (!status && listening < 0) {
        *at = options->listen;
        status = woi_listen(options->listen, &listening, err);
    }
    if (!status) {
        woi_listen_describe(listening, address, &loopback);
        if (!loopback && !server.token)
            woi_say("warning: %s can be reached from other machines, and no token is asked for "
                    "(--token-file)",
                    address);
        status = woi_learn_start(&server, at, err);
        if (!status) status = woi_shadow_start(&server, err);
        if (!status) status = woi_batch_start(&server, err);
        if (!status) status = woi_shards_start(&server, err);
        if (status)
            close(listening);
        else
            status = woi_http_start(&server, listening, &http, err);
    }
    if (!status) status = announce(&server, address, &ready, at, err);
    if (!status) {
        serve_until_told(&server, http, &watch, &set);
        stop_in_time(&server, http, &ready, &set);
    } else
        stop_answering(&(stopping){.server = &server, .http = http});
    woi_batch_free(&server);
    woi_shadow_stop(&server);
    woi_learn_stop(&server);
    woi_server_close(&server);
    woi_ready_remove(&ready);
    /* A server that was told to leave leaves with 0, however often it is told: signals stay blocked to the end. */
    if (status) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
