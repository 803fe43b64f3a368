/* Replays a log against a server that it starts, in order: each query is asked at k = 5, and then, where that is asked
 * for, its labels are sent as feedback. Prints how good the answers were, from a query on, and how fast they came.
 *
 *   replay run WIDEOUT LOG SKIP FROM FEEDBACK ARGUMENT...    ARGUMENT: of wideout serve; FEEDBACK: yes or no
 *   replay cut LOG N OUT                                     the first N queries of a log
 *
 * 64 connections, each with one request at a time: query i is asked when no more than 64 before it are unanswered. SKIP
 * queries are not asked at all; P@k counts those from FROM on. A query with one label goes as raw floats, others as
 * JSON. See bench/drift.sh. */
#include "base/clock.h"
#include "base/hits.h"
#include "serving.h"
#include "wideout.h"

#include <inttypes.h>
#include <stdbool.h>
#include <sys/epoll.h>

enum { K = 5, CONNECTIONS = 64, ANSWER_ROOM = 1 << 14 };

typedef struct replayed {
    size_t n, d;
    const float *queries;
    const int64_t *indptr;
    const int32_t *labels;
} replayed;

typedef struct client {
    int fd;
    bool teaching; /* the request under way is feedback */
    size_t query;
    char *out, *in;
    size_t out_room, out_bytes, sent, got;
} client;

typedef struct run {
    replayed log;
    int port;
    bool feedback;
    size_t next, from;
    int32_t *labels; /* of a query, distinct */
    uint64_t asked, judged, hits1, hits5, requests, refused, failed;
} run;

/* ---- Requests ---------------------------------------------------------------------------------------------- */

static void reserve(client *c, size_t bytes)
{
    if (bytes <= c->out_room) return;
    if (!(c->out = realloc(c->out, bytes))) die("memory");
    c->out_room = bytes;
}

static void put_head(client *c, const char *path, const char *type, size_t body)
{
    reserve(c, 512 + body);
    c->out_bytes = (size_t)snprintf(c->out, 512,
                                    "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\n"
                                    "Accept: application/octet-stream\r\nContent-Length: %zu\r\n\r\n",
                                    path, type, body);
}

static void put(client *c, const void *data, size_t bytes)
{
    memcpy(c->out + c->out_bytes, data, bytes);
    c->out_bytes += bytes;
}

static void put_json(client *c, const float *query, size_t d, const int32_t *labels, size_t n_labels)
{
    const size_t room = 64 + 20 * d + 12 * n_labels;
    char *text = malloc(room);
    if (!text) die("memory");
    size_t at = (size_t)snprintf(text, room, "{\"query\": [");
    for (size_t i = 0; i < d; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%.9g", i ? "," : "", (double)query[i]);
    at += (size_t)snprintf(text + at, room - at, "], \"labels\": [");
    for (size_t i = 0; i < n_labels; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%" PRId32, i ? "," : "", labels[i]);
    at += (size_t)snprintf(text + at, room - at, "]}");
    put_head(c, "/v1/feedback", "application/json", at);
    put(c, text, at);
    free(text);
}

static void send_more(client *c)
{
    while (c->sent < c->out_bytes) {
        const ssize_t sent = send(c->fd, c->out + c->sent, c->out_bytes - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) return;
        c->sent += (size_t)sent;
    }
}

static void begin(const run *r, client *c)
{
    const size_t d = r->log.d, bytes = d * sizeof(float);
    const float *query = r->log.queries + c->query * d;
    const int64_t *at = r->log.indptr + c->query;
    c->sent = c->got = 0;
    if (!c->teaching) {
        put_head(c, "/v1/search?k=5", "application/octet-stream", bytes);
        put(c, query, bytes);
    } else if (at[1] - at[0] == 1) {
        put_head(c, "/v1/feedback", "application/octet-stream", bytes + sizeof(int32_t));
        put(c, query, bytes);
        put(c, r->log.labels + *at, sizeof(int32_t));
    } else {
        put_json(c, query, d, r->log.labels + *at, (size_t)(at[1] - at[0]));
    }
    send_more(c);
}

/* ---- Answers ----------------------------------------------------------------------------------------------- */

static void judge(run *r, size_t query, const char *body)
{
    int32_t ids[K];
    memcpy(ids, body, sizeof ids);
    const size_t n = query < r->from ? 0 : woi_labels_of(r->log.indptr, r->log.labels, query, r->labels);
    if (!n) return;
    r->judged++;
    r->hits1 += woi_hits(r->labels, n, ids, 1);
    r->hits5 += woi_hits(r->labels, n, ids, K);
}

/* Whether all of an answer is there. */
static bool receive(run *r, client *c)
{
    const ssize_t n = recv(c->fd, c->in + c->got, ANSWER_ROOM - 1 - c->got, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) die("the server closed a connection");
    if (n < 0) return false;
    c->got += (size_t)n;
    c->in[c->got] = '\0';
    const char *end = strstr(c->in, "\r\n\r\n"), *length = strstr(c->in, "Content-Length: ");
    if (!end || !length || length > end) return false;
    const size_t bytes = strtoull(length + 16, NULL, 10), head = (size_t)(end + 4 - c->in);
    if (c->got < head + bytes) return false;
    const bool fine = strncmp(c->in, "HTTP/1.1 200", 12) == 0;
    r->requests++;
    if (c->teaching)
        r->refused += !fine;
    else if (fine && bytes == K * 8)
        judge(r, c->query, end + 4);
    else
        r->failed++;
    return true;
}

/* What the connection does next; false: there is no more. */
static bool advance(run *r, client *c)
{
    const int64_t *at = r->log.indptr + c->query;
    if (!c->teaching && r->feedback && at[1] > at[0]) {
        c->teaching = true;
        return true;
    }
    c->teaching = false;
    if (r->next >= r->log.n) return false;
    c->query = r->next++;
    r->asked++;
    return true;
}

static double replay(run *r)
{
    static client clients[CONNECTIONS];
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    size_t busy = 0;
    const double start = woi_now_s();
    for (size_t i = 0; i < CONNECTIONS && r->next < r->log.n; i++) {
        client *c = &clients[i];
        if (!(c->in = malloc(ANSWER_ROOM))) die("memory");
        if ((c->fd = connect_to(r->port)) < 0) die("connect");
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
        c->query = r->next++;
        r->asked++;
        busy++;
        begin(r, c);
    }
    while (busy) {
        struct epoll_event events[CONNECTIONS];
        const int n = epoll_wait(poll, events, CONNECTIONS, 1000);
        for (int i = 0; i < n; i++) {
            client *c = events[i].data.ptr;
            send_more(c);
            if (!receive(r, c)) continue;
            if (advance(r, c)) {
                begin(r, c);
            } else {
                epoll_ctl(poll, EPOLL_CTL_DEL, c->fd, NULL);
                busy--;
            }
        }
    }
    const double seconds = woi_now_s() - start;
    for (size_t i = 0; i < CONNECTIONS; i++) {
        if (clients[i].in) close(clients[i].fd);
        free(clients[i].in);
        free(clients[i].out);
    }
    close(poll);
    return seconds;
}

/* A line of /metrics; -1: there is none. */
static double metric(int port, const char *name)
{
    static char text[1 << 18];
    static const char ask[] = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    const int fd = connect_to(port);
    size_t got = 0;
    if (fd < 0 || send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) < 0) die("metrics");
    for (ssize_t n; (n = recv(fd, text + got, sizeof text - 1 - got, 0)) > 0;) got += (size_t)n;
    text[got] = '\0';
    close(fd);
    char line[80];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    return at ? strtod(at + strlen(line), NULL) : -1;
}

static int run_it(int argc, char **argv)
{
    wo_log *log = NULL;
    wo_error err;
    if (argc < 7) return 2;
    if (wo_log_open(argv[1], &log, &err)) {
        fprintf(stderr, "replay: %s: %s\n", argv[1], err.text);
        return 1;
    }
    run r = {.feedback = strcmp(argv[4], "yes") == 0,
             .next = strtoull(argv[2], NULL, 10),
             .from = strtoull(argv[3], NULL, 10)};
    r.log = (replayed){.n = wo_log_n(log), .d = wo_log_d(log), .queries = wo_log_queries(log)};
    r.log.labels = wo_log_labels(log, &r.log.indptr);
    if (!r.log.indptr || r.from >= r.log.n) {
        fprintf(stderr, "replay: %s: has no labels, or no query %zu\n", argv[1], r.from);
        return 1;
    }
    if (!(r.labels = malloc((woi_most_labels(r.log.indptr, r.log.n) + 1) * sizeof *r.labels))) die("memory");
    const server s = start_server(argv[0], (const char *const *)argv + 5);
    r.port = s.port;
    const double seconds = replay(&r);
    printf("{\"queries\": %" PRIu64 ", \"judged\": %" PRIu64 ", \"p_at_1\": %.5f, \"p_at_5\": %.5f, ", r.asked,
           r.judged, (double)r.hits1 / (double)r.judged, (double)r.hits5 / (double)r.judged / K);
    printf("\"searches_per_s\": %.0f, \"requests_per_s\": %.0f, \"feedback_refused\": %" PRIu64 ", \"failed\": %" PRIu64
           ", \"learned_queries\": %.0f, \"entries_added\": %.0f, \"dropped\": %.0f, \"generation\": %.0f}\n",
           (double)r.asked / seconds, (double)r.requests / seconds, r.refused, r.failed,
           metric(r.port, "wideout_learned_queries"), metric(r.port, "wideout_learned_entries_added"),
           metric(r.port, "wideout_learned_dropped_total"), metric(r.port, "wideout_generation"));
    free(r.labels);
    wo_log_free(log);
    return stop_server(s) != 0 || r.failed;
}

static int cut(int argc, char **argv)
{
    wo_log *log = NULL;
    wo_log_writer *writer = NULL;
    wo_error err;
    if (argc != 3) return 2;
    const size_t n = strtoull(argv[1], NULL, 10);
    const int64_t *indptr = NULL;
    wo_status status = wo_log_open(argv[0], &log, &err);
    const wo_log_writer_options o = {.struct_size = sizeof o, .d = log ? wo_log_d(log) : 1, .labels = 1};
    const int32_t *labels = log ? wo_log_labels(log, &indptr) : NULL;
    if (!status) status = wo_log_writer_create(argv[2], &o, &writer, &err);
    if (!status)
        status =
            wo_log_append(writer, wo_log_queries(log), n < wo_log_n(log) ? n : wo_log_n(log), indptr, labels, &err);
    if (!status) status = wo_log_finish(writer, &err);
    if (status) fprintf(stderr, "replay: %s: %s\n", argv[0], err.text);
    wo_log_writer_free(writer);
    wo_log_free(log);
    return status != WO_OK;
}

int main(int argc, char **argv)
{
    enum { LONGEST_S = 3600 };
    alarm(LONGEST_S); /* whatever happens */
    const bool known = argc > 2 && (strcmp(argv[1], "run") == 0 || strcmp(argv[1], "cut") == 0);
    const int code = !known ? 2 : argv[1][0] == 'r' ? run_it(argc - 2, argv + 2) : cut(argc - 2, argv + 2);
    if (code == 2)
        fprintf(stderr, "usage: replay run WIDEOUT LOG SKIP FROM yes|no ARGUMENT...\n"
                        "       replay cut LOG N OUT\n");
    return code;
}
