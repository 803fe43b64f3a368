/* Load on a server, over loopback alone: how many requests a second it answers beside a bare libmicrohttpd that echoes
 * the same sizes, in the same run. See docs/SERVING.md for figures.
 *
 *   load [--json FILE] WIDEOUT INDEX LOG [SECONDS [OTHER]]
 *   load [--json FILE] --soak SECONDS WIDEOUT INDEX LOG
 *
 * Starts the servers itself and stops them. One thread here keeps 64 connections busy, each with one request at a time.
 * Every answer is compared: with what the library itself answers, by the checksum that it carries. With OTHER, an index
 * of the same layer, the server's file is replaced and reloaded 200 times under that load. A soak is full load for so
 * long, then a tenth of that with --exact: no request may fail, and memory and descriptors may not grow. FILE receives
 * all of it as JSON; bench/serve.sh makes the index and keeps that. */
#include "base/clock.h"
#include "median.h"
#include "serving.h"
#include "wideout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { K = 5, THREADS = 2, CONNECTIONS = 64, IDLE = 10000, RELOADS = 200, ROUNDS = 7, QUERIES = 256, ROOM = 1 << 16 };

/* ---- What answers should be -------------------------------------------------------------------------------- */

typedef struct expected {
    uint64_t checksum;
    int32_t ids[QUERIES * K], exact[QUERIES * K]; /* by cells; by all classes */
} expected;

static size_t d;
static const float *queries; /* (QUERIES, d) */
static expected indexes[2];
static size_t n_indexes;

static void expect(const char *path)
{
    wo_index *index = NULL;
    wo_searcher *searcher = NULL;
    wo_error err;
    wo_index_info info = {.struct_size = sizeof info};
    expected *e = &indexes[n_indexes++];
    float scores[QUERIES * K];
    if (wo_index_open(path, NULL, &index, &err) || wo_searcher_create(index, NULL, &searcher, &err) ||
        wo_index_describe(index, &info)) {
        fprintf(stderr, "load: %s: %s\n", path, err.text);
        exit(1);
    }
    wo_search_call call = {.struct_size = sizeof call, .n = 1, .k = K, .scores = scores, .by = WO_BY_FULL};
    for (size_t i = 0; i < QUERIES; i++) {
        wo_search(searcher, queries + i * d, 1, K, e->ids + i * K, scores, NULL);
        call.queries = queries + i * d;
        call.ids = e->exact + i * K;
        wo_search_run(searcher, &call, NULL); /* fails where the index has no f32 rows: then no answer is right */
    }
    e->checksum = info.checksum;
    wo_searcher_free(searcher);
    wo_index_free(index);
}

/* ---- A load ------------------------------------------------------------------------------------------------ */

typedef struct load {
    int port;
    size_t batch;      /* queries of a request */
    bool exact, check; /* answers by all classes; answers are compared */
    bool asks;         /* for exact ones: else the server gives them by itself */
    double seconds;
} load;

typedef struct result {
    uint64_t requests, failed;
    double seconds, p50_us, p99_us;
} result;

typedef struct client {
    int fd;
    char *buffer;
    size_t got, sent, query;
    double start;
} client;

/* Sends a request as far as the socket takes it. */
static void send_more(const load *l, client *c)
{
    char head[256];
    const size_t body = l->batch * d * sizeof(float);
    const size_t n = (size_t)snprintf(head, sizeof head,
                                      "POST /v1/search?k=%d%s HTTP/1.1\r\nHost: x\r\nContent-Type: "
                                      "application/octet-stream\r\nAccept: application/octet-stream\r\n"
                                      "Content-Length: %zu\r\n\r\n",
                                      K, l->asks ? "&exact=true" : "", body);
    while (c->sent < n + body) {
        struct iovec parts[2] = {{head + c->sent, c->sent < n ? n - c->sent : 0}, {0}};
        const size_t in_body = c->sent > n ? c->sent - n : 0;
        parts[1] = (struct iovec){(char *)(uintptr_t)(queries + c->query * d) + in_body, body - in_body};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        const ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) return;
        c->sent += (size_t)sent;
    }
}

static void begin(const load *l, client *c)
{
    c->got = c->sent = 0;
    c->query = l->batch == 1 ? (c->query + 1) % QUERIES : 0;
    c->start = woi_now_s();
    send_more(l, c);
}

static bool is_right(const load *l, const client *c, const char *body, size_t bytes)
{
    const char *status = strstr(c->buffer, " 200 "), *digits = strstr(c->buffer, "X-Wideout-Index: ");
    if (!status || status > c->buffer + 16 || bytes != l->batch * K * 8) return false;
    if (!l->check) return true;
    if (!digits || digits > body) return false;
    const uint64_t checksum = strtoull(digits + 17, NULL, 16);
    for (size_t i = 0; i < n_indexes; i++)
        if (indexes[i].checksum == checksum)
            return memcmp(body, (l->exact ? indexes[i].exact : indexes[i].ids) + c->query * K,
                          l->batch * K * sizeof(int32_t)) == 0;
    return false;
}

/* Whether all of an answer is there; -1: the connection is lost. */
static int receive(const load *l, client *c, result *r)
{
    const ssize_t n = recv(c->fd, c->buffer + c->got, ROOM - 1 - c->got, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return -1;
    if (n < 0) return 0;
    c->got += (size_t)n;
    c->buffer[c->got] = '\0';
    const char *end = strstr(c->buffer, "\r\n\r\n"), *length = strstr(c->buffer, "Content-Length: ");
    if (!end || !length || length > end) return 0;
    const size_t bytes = strtoull(length + 16, NULL, 10), head = (size_t)(end + 4 - c->buffer);
    if (c->got < head + bytes) return 0;
    r->failed += !is_right(l, c, end + 4, bytes);
    r->requests++;
    return 1;
}

static result run(const load *l)
{
    enum { MOST_TIMES = 1 << 22 };
    static double times[MOST_TIMES];
    static client clients[CONNECTIONS];
    result r = {0};
    size_t n_times = 0;
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        client *c = &clients[i];
        if (!c->buffer && !(c->buffer = malloc(ROOM))) die("memory");
        if ((c->fd = connect_to(l->port)) < 0) die("connect");
        c->query = i % QUERIES;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
        begin(l, c);
    }
    const double start = woi_now_s();
    double at = start;
    while (at - start < l->seconds) {
        struct epoll_event events[CONNECTIONS];
        const int n = epoll_wait(poll, events, CONNECTIONS, 100);
        for (int i = 0; i < n; i++) {
            client *c = events[i].data.ptr;
            send_more(l, c);
            const int done = receive(l, c, &r);
            if (done < 0) {
                r.failed++;
                close(c->fd);
                if ((c->fd = connect_to(l->port)) < 0) die("connect again");
                struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
                epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
            }
            if (done && n_times < MOST_TIMES) times[n_times++] = woi_now_s() - c->start;
            if (done) begin(l, c);
        }
        at = woi_now_s();
    }
    r.seconds = at - start;
    for (size_t i = 0; i < CONNECTIONS; i++) close(clients[i].fd);
    close(poll);
    qsort(times, n_times, sizeof *times, bench_rising);
    if (n_times) r.p50_us = 1e6 * times[n_times / 2], r.p99_us = 1e6 * times[n_times * 99 / 100];
    return r;
}

/* ---- Servers ----------------------------------------------------------------------------------------------- */

static size_t echo_bytes;

static enum MHD_Result on_echo(void *cls, struct MHD_Connection *from, const char *url, const char *method,
                               const char *version, const char *data, size_t *bytes, void **context)
{
    static const char zeros[QUERIES * K * 8];
    static int seen;
    (void)cls, (void)url, (void)method, (void)version, (void)data;
    if (!*context) {
        *context = &seen;
        return MHD_YES;
    }
    if (*bytes) {
        *bytes = 0;
        return MHD_YES;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(echo_bytes, (void *)(uintptr_t)zeros, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Content-Type", "application/octet-stream");
    const enum MHD_Result queued = MHD_queue_response(from, 200, response);
    MHD_destroy_response(response);
    return queued;
}

static server start_echo(size_t answer_bytes)
{
    int ends[2], port = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) die("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        echo_bytes = answer_bytes;
        const struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct MHD_Daemon *daemon =
            MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_echo, NULL, MHD_OPTION_SOCK_ADDR, &at,
                             MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS, MHD_OPTION_END);
        port = daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port : 0;
        if (write(ends[1], &port, sizeof port) != sizeof port) _exit(1);
        for (;;) pause();
    }
    if (read(ends[0], &port, sizeof port) != sizeof port || !port) die("the echo does not start");
    close(ends[0]);
    close(ends[1]);
    return (server){pid, port};
}

static double resident_mib(pid_t pid)
{
    char path[64];
    unsigned long long all = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%ld/statm", (long)pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%llu %llu", &all, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static size_t open_files(pid_t pid)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n > 2 ? n - 2 : 0; /* . and .. */
}

static json_t *report; /* what is printed, by name */

/* ---- What is measured -------------------------------------------------------------------------------------- */

/* The server beside the echo, in turn; the medians of the rounds. */
static uint64_t beside_echo(const char *name, server s, const load *how)
{
    const server echo = start_echo(how->batch * K * 8);
    double ours[ROUNDS], theirs[ROUNDS], ratios[ROUNDS], p50[ROUNDS], p99[ROUNDS], echo_p99[ROUNDS];
    uint64_t requests = 0, failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        load l = *how;
        l.port = echo.port;
        l.check = false;
        const result e = run(&l);
        l = *how;
        l.port = s.port;
        const result r = run(&l);
        ours[i] = (double)r.requests / r.seconds;
        theirs[i] = (double)e.requests / e.seconds;
        ratios[i] = ours[i] / theirs[i];
        p50[i] = r.p50_us;
        p99[i] = r.p99_us;
        echo_p99[i] = e.p99_us;
        requests += r.requests;
        failed += r.failed + e.failed;
    }
    stop_server(echo);
    const double rate = bench_median(ours, ROUNDS);
    json_object_set_new(report, name,
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f}", "requests_per_s", rate,
                                  "queries_per_s", rate * (double)how->batch, "p50_us", bench_median(p50, ROUNDS),
                                  "p99_us", bench_median(p99, ROUNDS), "echo_requests_per_s",
                                  bench_median(theirs, ROUNDS), "echo_p99_us", bench_median(echo_p99, ROUNDS),
                                  "of_echo", bench_median(ratios, ROUNDS), "requests", (json_int_t)requests, "failed",
                                  (json_int_t)failed, "mib", resident_mib(s.pid)));
    printf(
        "%-18s %9.0f requests/s %10.0f queries/s  p50 %7.0f us  p99 %7.0f us   echo %9.0f requests/s, p99 %6.0f us   "
        "ratio %.2f   %" PRIu64 " requests, %" PRIu64 " failed; the server has %.0f MiB\n",
        name, rate, rate * (double)how->batch, bench_median(p50, ROUNDS), bench_median(p99, ROUNDS),
        bench_median(theirs, ROUNDS), bench_median(echo_p99, ROUNDS), bench_median(ratios, ROUNDS), requests, failed,
        resident_mib(s.pid));
    fflush(stdout);
    return failed;
}

static void copy_file(const char *from, const char *to)
{
    char command[4400];
    snprintf(command, sizeof command, "cp '%s' '%s.new' && mv '%s.new' '%s'", from, to, to, to);
    if (system(command) != 0) die("copy");
}

/* A process of its own loads the server, while this one replaces the file and asks for a reload. */
static uint64_t reload_under_load(const char *tool, const char *const files[2])
{
    char here[] = "/tmp/wideout-load-index-XXXXXX", answer[4096];
    int fd = mkstemp(here), ends[2];
    if (fd < 0 || pipe2(ends, O_CLOEXEC) != 0) die("temporary file");
    close(fd);
    copy_file(files[0], here);
    const server s = start_server(tool, (const char *const[]){here, NULL});
    fflush(stdout); /* not to be printed by two */
    result *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) die("memory");
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        for (char c; read(ends[0], &c, 1) != 0;) { /* until the other end is closed */
            const result r = run(&(load){.port = s.port, .batch = 1, .check = true, .seconds = 0.5});
            all->requests += r.requests;
            all->failed += r.failed;
        }
        _exit(0);
    }
    close(ends[0]);
    int done = 0, status = 0;
    const double start = woi_now_s();
    for (int i = 0; i < RELOADS; i++) {
        copy_file(files[(i + 1) % 2], here);
        const int c = connect_to(s.port);
        static const char ask[] = "POST /admin/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n";
        if (send(c, ask, sizeof ask - 1, MSG_NOSIGNAL) < 0) die("reload");
        const ssize_t n = recv(c, answer, sizeof answer - 1, 0);
        done += n > 12 && memcmp(answer, "HTTP/1.1 200", 12) == 0;
        close(c);
    }
    const double seconds = woi_now_s() - start;
    close(ends[1]);
    waitpid(pid, &status, 0);
    printf("%-18s %" PRIu64 " requests meanwhile, %" PRIu64 " failed or mixed\n", "reloads", all->requests,
           all->failed);
    printf("%-18s %d of %d in %.1f s; the server has %.0f MiB\n", "", done, RELOADS, seconds, resident_mib(s.pid));
    json_object_set_new(report, "reloads",
                        json_pack("{s:i, s:i, s:f, s:I, s:I, s:f}", "asked", RELOADS, "done", done, "seconds", seconds,
                                  "requests", (json_int_t)all->requests, "failed_or_mixed", (json_int_t)all->failed,
                                  "mib", resident_mib(s.pid)));
    stop_server(s);
    unlink(here);
    return (uint64_t)(RELOADS - done) + all->failed + (status != 0);
}

static uint64_t idle_connections(server s)
{
    static int fds[IDLE];
    size_t n = 0;
    const double before = resident_mib(s.pid);
    while (n < IDLE && (fds[n] = connect_to(s.port)) >= 0) n++;
    const result r = run(&(load){.port = s.port, .batch = 1, .check = true, .seconds = 1});
    const double rate = (double)r.requests / r.seconds, kib = (resident_mib(s.pid) - before) * 1024 / (double)n;
    printf("%-18s %zu open: %.0f requests/s beside them, p99 %.0f us, %" PRIu64 " failed; %.1f KiB each\n", "idle", n,
           rate, r.p99_us, r.failed, kib);
    json_object_set_new(report, "idle",
                        json_pack("{s:I, s:f, s:f, s:I, s:f}", "connections", (json_int_t)n, "requests_per_s", rate,
                                  "p99_us", r.p99_us, "failed", (json_int_t)r.failed, "kib_each", kib));
    while (n) close(fds[--n]);
    return r.failed;
}

/* Full load in SLICES slices, between which the connections are closed: then descriptors can be counted. What the first
 * half takes up may stay; the second may take no more. */
static uint64_t soak(const char *tool, const char *index, bool exact, double seconds)
{
    enum { SLICES = 20, SETTLE_US = 300000, MOST_WAITS = 20 }; /* a busy server sees late that they are closed */
    const server s = start_server(tool, (const char *const[]){index, exact ? "--exact" : NULL, NULL});
    double mib[SLICES + 1] = {resident_mib(s.pid)}, p99 = 0;
    size_t files[SLICES + 1] = {open_files(s.pid)};
    result all = {0};
    for (int i = 1; i <= SLICES; i++) {
        const load l = {.port = s.port, .batch = 1, .exact = exact, .check = true, .seconds = seconds / SLICES};
        const result r = run(&l);
        all.requests += r.requests;
        all.failed += r.failed;
        all.seconds += r.seconds;
        if (r.p99_us > p99) p99 = r.p99_us;
        for (int wait = 0; wait < 1 || (wait < MOST_WAITS && open_files(s.pid) > files[0]); wait++) usleep(SETTLE_US);
        mib[i] = resident_mib(s.pid);
        files[i] = open_files(s.pid);
    }
    const bool grows = mib[SLICES] > mib[SLICES / 2] + 1 || files[SLICES] > files[0];
    printf("%-18s %" PRIu64 " requests in %.0f s, %.0f a second, %" PRIu64 " failed; worst p99 of a slice %.0f us\n",
           exact ? "soak, --exact" : "soak", all.requests, all.seconds, (double)all.requests / all.seconds, all.failed,
           p99);
    printf("%-18s memory %.1f, %.1f, %.1f MiB; descriptors %zu, %zu, %zu: at the start, middle and end%s\n", "", mib[0],
           mib[SLICES / 2], mib[SLICES], files[0], files[SLICES / 2], files[SLICES], grows ? "; THEY GROW" : "");
    json_object_set_new(report, exact ? "soak_exact" : "soak",
                        json_pack("{s:f, s:I, s:f, s:I, s:f, s:[f,f,f], s:[i,i,i], s:b}", "seconds", all.seconds,
                                  "requests", (json_int_t)all.requests, "requests_per_s",
                                  (double)all.requests / all.seconds, "failed", (json_int_t)all.failed, "worst_p99_us",
                                  p99, "mib_start_middle_end", mib[0], mib[SLICES / 2], mib[SLICES],
                                  "descriptors_start_middle_end", (int)files[0], (int)files[SLICES / 2],
                                  (int)files[SLICES], "grows", grows));
    fflush(stdout);
    return all.failed + grows + (stop_server(s) != 0);
}

static uint64_t all_kinds(const char *tool, const char *const files[2], double seconds)
{
    uint64_t failed = 0;
    server s = start_server(tool, (const char *const[]){files[0], NULL});
    const double before = resident_mib(s.pid);
    printf("%d connections, %d threads of the server, one of the load; %d rounds of %g s each, in turn with the echo\n",
           CONNECTIONS, THREADS, ROUNDS, seconds);
    json_object_set_new(report, "setting",
                        json_pack("{s:i, s:i, s:i, s:f, s:i}", "connections", CONNECTIONS, "threads", THREADS, "rounds",
                                  ROUNDS, "seconds", seconds, "k", K));
    failed += beside_echo("one vector", s, &(load){.batch = 1, .check = true, .seconds = seconds});
    failed += beside_echo("one, exact", s, &(load){.batch = 1, .exact = true, .asks = true, .seconds = seconds});
    failed += beside_echo("256 vectors", s, &(load){.batch = QUERIES, .check = true, .seconds = seconds});
    failed += idle_connections(s);
    printf("%-18s %.1f MiB before, %.1f after\n", "memory", before, resident_mib(s.pid));
    fflush(stdout);
    failed += stop_server(s) != 0;
    if (files[1]) {
        expect(files[1]);
        failed += reload_under_load(tool, files);
    }
    return failed;
}

int main(int argc, char **argv)
{
    enum { LONGEST_S = 1200 };
    wo_log *log = NULL;
    wo_error err;
    double soak_s = 0;
    const char *json = NULL;
    for (; argc > 2 && strncmp(argv[1], "--", 2) == 0; argc -= 2, argv += 2) {
        if (strcmp(argv[1], "--soak") == 0) soak_s = strtod(argv[2], NULL);
        if (strcmp(argv[1], "--json") == 0) json = argv[2];
    }
    alarm((unsigned)(LONGEST_S + 2 * soak_s)); /* whatever happens */
    if (argc < 4 || argc > (soak_s > 0 ? 4 : 6)) {
        fprintf(stderr, "usage: load [--json FILE] WIDEOUT INDEX LOG [SECONDS [OTHER]]\n"
                        "       load [--json FILE] --soak SECONDS WIDEOUT INDEX LOG\n");
        return 2;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_NOFILE, &limit);
    if (wo_log_open(argv[3], &log, &err) || wo_log_n(log) < QUERIES) {
        fprintf(stderr, "load: %s: %s\n", argv[3], log ? "has too few queries" : err.text);
        return 1;
    }
    queries = wo_log_queries(log);
    d = wo_log_d(log);
    report = json_object();
    expect(argv[2]);
    const char *const files[2] = {argv[2], argc > 5 ? argv[5] : NULL};
    const uint64_t bad = soak_s > 0 ? soak(argv[1], argv[2], false, soak_s) + soak(argv[1], argv[2], true, soak_s / 10)
                                    : all_kinds(argv[1], files, argc > 4 ? strtod(argv[4], NULL) : 2);
    wo_log_free(log);
    if (json && json_dump_file(report, json, JSON_INDENT(1) | JSON_REAL_PRECISION(6))) die(json);
    json_decref(report);
    return bad ? 1 : 0;
}
