/* libmicrohttpd's connections become requests, and replies go back.
 *
 * Each thread of the pool polls its own connections and answers on the spot: a search takes microseconds, less than
 * handing it over would. A request that cannot be answered is refused by its head, but its body is still read, as far
 * as it is not too long: a client that is writing does not read, and would see a broken connection in place of the
 * reason.
 *
 * The library's own timeout is one of silence. Whoever sends a byte now and then is found by woi_http_watch: it says
 * 408 on the socket itself and shuts it; whoever reads an answer a byte now and then finds it shut. A connection has
 * one state at a time, taken by compare and exchange, so that either the watch or a thread of the pool writes, never
 * both. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTION_MEMORY = 32768, /* of headers; bodies come in pieces of what is left */
    SPARE_CONNECTIONS = 64,    /* above the limit, that are told so */
    READ_ANYWAY = 8,           /* times the largest body: what is refused is read so far */
    OWN_BYTES = 16384,         /* of a body or an answer, that each connection may hold; the rest all share */
    LEAST_RATE = 262144,       /* bytes a second at which an answer must be read, beside the timeout */
};

typedef enum state { IDLE, RECEIVING, ANSWERING, EXPIRED } state;

typedef struct connection {
    struct connection *before, *after;
    woi_http *http;
    int fd;
    _Atomic(state) state;
    _Atomic(double) since_s; /* when the state began */
    _Atomic(double) due_s;   /* when the answer must have been read; 0: it is not being sent */
    bool over;               /* beyond the limit of connections */
    /* the request that is under way */
    bool begun, decided, ambiguous; /* ambiguous: nobody can say where it ends */
    bool has_nul;                   /* its path or an argument: both are read as if they ended there */
    bool has_space;                 /* its path or an argument: where it ends is anyone's guess */
    size_t route;
    char *body;
    size_t bytes, room, passed_over;
    size_t held;                     /* of what all connections share */
    double start_s;                  /* of answering */
    struct MHD_Connection *sleeping; /* until its ticket is done */
    bool woken;
    woi_ticket ticket; /* and the reply */
    /* of the one at the other end */
    char peer[INET6_ADDRSTRLEN];
    bool loopback;
} connection;

struct woi_http {
    woi_server *server;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock; /* of the list; who holds it may use the sockets in it */
    connection *first;
};

/* ---- Connections ------------------------------------------------------------------------------------------- */

static void name_peer(connection *c, const struct sockaddr *peer)
{
    const void *address = peer->sa_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)peer)->sin6_addr
                                                      : (const void *)&((const struct sockaddr_in *)peer)->sin_addr;
    if (peer->sa_family != AF_UNIX) inet_ntop(peer->sa_family, address, c->peer, sizeof c->peer);
    c->loopback = woi_is_loopback(peer);
}

static void on_connection(void *cls, struct MHD_Connection *from, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    woi_http *http = cls;
    woi_metrics *m = &http->server->metrics;
    connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const long long n = atomic_fetch_add(&m->connections, 1) + 1;
        if (!(*context = c = calloc(1, sizeof *c))) return;
        c->http = http;
        c->fd = MHD_get_connection_info(from, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->over = n > (long long)http->server->options.max_connections;
        c->since_s = woi_now_s();
        name_peer(c, MHD_get_connection_info(from, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
        pthread_mutex_lock(&http->lock);
        c->after = http->first;
        if (http->first) http->first->before = c;
        http->first = c;
        pthread_mutex_unlock(&http->lock);
        return;
    }
    atomic_fetch_sub(&m->connections, 1);
    if (!c) return;
    pthread_mutex_lock(&http->lock);
    if (c->before)
        c->before->after = c->after;
    else
        http->first = c->after;
    if (c->after) c->after->before = c->before;
    pthread_mutex_unlock(&http->lock);
    free(c);
    *context = NULL;
}

static void enter(connection *c, state next)
{
    atomic_store(&c->since_s, woi_now_s());
    atomic_store(&c->state, next);
}

/* From now on a connection holds so many bytes, of its body or of its answer. False: all together hold as much as they
 * may already. */
static bool hold(connection *c, size_t bytes)
{
    woi_server *server = c->http->server;
    const size_t shared = bytes > OWN_BYTES ? bytes : 0, more = shared - c->held; /* less wraps, and is added as well */
    if (shared > c->held && atomic_load(&server->metrics.held) / WOI_HELD_BODIES >= server->options.max_body)
        return false;
    atomic_fetch_add(&server->metrics.held, more);
    c->held = shared;
    return true;
}

static void free_body(connection *c)
{
    free(c->body);
    c->body = NULL;
    c->room = 0;
    hold(c, 0);
}

static bool refuse_to_hold(connection *c)
{
    return woi_refuse(&c->ticket.reply, 503, "all requests together hold %zu bytes, no more are taken",
                      atomic_load(&c->http->server->metrics.held));
}

/* The first line of a request is here. */
static void *on_line(void *cls, const char *uri, struct MHD_Connection *from)
{
    (void)cls;
    connection *c = MHD_get_connection_info(from, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (!c) return NULL;
    atomic_fetch_add(&c->http->server->metrics.in_flight, 1);
    c->has_nul = strstr(uri, "%00");
    c->has_space = strchr(uri, ' ');
    enter(c, RECEIVING);
    return c;
}

static void on_completed(void *cls, struct MHD_Connection *from, void **context, enum MHD_RequestTerminationCode code)
{
    (void)cls;
    (void)from;
    (void)code;
    connection *c = *context;
    if (!c) return;
    free_body(c);
    woi_reply_free(&c->ticket.reply);
    c->begun = c->decided = c->ambiguous = c->has_nul = c->has_space = c->woken = false;
    c->bytes = c->passed_over = 0;
    c->ticket = (woi_ticket){0};
    state was = ANSWERING;
    atomic_store(&c->due_s, 0);
    atomic_store(&c->since_s, woi_now_s());
    if (!atomic_compare_exchange_strong(&c->state, &was, IDLE) && was == RECEIVING) enter(c, IDLE);
    atomic_fetch_sub(&c->http->server->metrics.in_flight, 1);
    *context = NULL;
}

/* ---- Replies ----------------------------------------------------------------------------------------------- */

static void add_headers(struct MHD_Response *response, const woi_server *server, const connection *c)
{
    const woi_reply *r = &c->ticket.reply;
    char text[32];
    MHD_add_response_header(response, "Content-Type", r->type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (r->fixed) { /* the page: from here alone, and in nobody's frame */
        MHD_add_response_header(response, "Content-Security-Policy",
                                "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
                                "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        MHD_add_response_header(response, "Cache-Control", "no-cache");
    }
    if (r->checksum) {
        snprintf(text, sizeof text, "%016" PRIx64, r->checksum);
        MHD_add_response_header(response, "X-Wideout-Index", text);
        snprintf(text, sizeof text, "%" PRIu64, r->generation);
        if (server->options.learn) MHD_add_response_header(response, "X-Wideout-Generation", text);
    }
    if (r->missing) MHD_add_response_header(response, "X-Wideout-Missing", r->missing);
    if (r->json_bytes) {
        snprintf(text, sizeof text, "%zu", r->json_bytes);
        MHD_add_response_header(response, "Inference-Header-Content-Length", text);
    }
    if (r->status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (r->allow) MHD_add_response_header(response, "Allow", r->allow);
    if (r->retry_after_s) {
        snprintf(text, sizeof text, "%u", r->retry_after_s);
        MHD_add_response_header(response, "Retry-After", text);
    }
    if (c->over || c->ambiguous || atomic_load_explicit(&server->draining, memory_order_relaxed))
        MHD_add_response_header(response, "Connection", "close");
}

/* What becomes of a request: counted, logged, sent. */
static enum MHD_Result send_reply(woi_server *server, connection *c, const woi_request *request)
{
    woi_reply *r = &c->ticket.reply;
    free_body(c);
    if (!r->fixed && !hold(c, r->body.bytes)) refuse_to_hold(c);
    const size_t bytes = r->fixed ? r->fixed_bytes : r->body.bytes;
    const double seconds = woi_now_s() - c->start_s;
    woi_metrics_request(server, c->route, r->status, seconds);
    woi_access_write(server,
                     &(woi_access_line){.peer = c->peer,
                                        .method = request->method,
                                        .path = request->path,
                                        .bytes_in = c->bytes + c->passed_over,
                                        .bytes_out = bytes,
                                        .seconds = seconds},
                     r);
    struct MHD_Response *response =
        r->fixed ? MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)r->fixed, MHD_RESPMEM_PERSISTENT)
                 : MHD_create_response_from_buffer(bytes, r->body.text, MHD_RESPMEM_MUST_FREE);
    if (!response) return MHD_NO;
    if (!r->fixed) r->body = (woi_out){0}; /* the response's now */
    add_headers(response, server, c);
    atomic_store(&c->due_s, woi_now_s() + server->options.timeout_s + (double)bytes / LEAST_RATE);
    const enum MHD_Result result =
        MHD_queue_response((struct MHD_Connection *)(uintptr_t)request->ctx, (unsigned)r->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- Requests ---------------------------------------------------------------------------------------------- */

static const char *header(const void *ctx, const char *name)
{
    return MHD_lookup_connection_value((struct MHD_Connection *)(uintptr_t)ctx, MHD_HEADER_KIND, name);
}

static const char *argument(const void *ctx, const char *name)
{
    return MHD_lookup_connection_value((struct MHD_Connection *)(uintptr_t)ctx, MHD_GET_ARGUMENT_KIND, name);
}

typedef struct counting {
    size_t left;
    const char *name;
} counting;

static enum MHD_Result count_down(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    counting *c = cls;
    (void)kind;
    (void)value;
    if (c->left-- > 0) return MHD_YES;
    c->name = name;
    return MHD_NO;
}

static const char *name_at(const void *ctx, woi_part part, size_t i)
{
    counting c = {.left = i};
    MHD_get_connection_values((struct MHD_Connection *)(uintptr_t)ctx,
                              part == WOI_HEADERS ? MHD_HEADER_KIND : MHD_GET_ARGUMENT_KIND, count_down, &c);
    return c.name;
}

/* The bytes of "http://" or "https://" before a target as for a proxy; 0: it is none. */
static size_t scheme_of(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0;
}

/* Whether a target names another host than the header does: who asks for what goes by the header. */
static bool is_for_other(const char *url, const char *host)
{
    const size_t scheme = scheme_of(url), bytes = strcspn(url + scheme, "/");
    return scheme && (!host || strlen(host) != bytes || strncasecmp(url + scheme, host, bytes) != 0);
}

/* Headers that say where a request and its JSON end, and for whom it is. */
typedef struct framing {
    size_t lengths, codings, hosts, heads, spaced;
    const char *coding;
} framing;

static enum MHD_Result count_framing(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    framing *found = cls;
    (void)kind;
    found->lengths += strcasecmp(name, "Content-Length") == 0;
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        found->codings++;
        found->coding = value;
    }
    found->hosts += strcasecmp(name, "Host") == 0;
    found->spaced += name[strcspn(name, " \t")] != '\0'; /* "Content-Length : 5" is one to some */
    found->heads += strcasecmp(name, "Inference-Header-Content-Length") == 0;
    return MHD_YES;
}

/* A proxy in front may take another of two lengths, or of two hosts, for the right one, and let a second request, or
 * other parameters, through within the first. */
static bool is_ambiguous(struct MHD_Connection *from, const char *url, const char *version, bool has_space,
                         woi_reply *reply)
{
    framing found = {0};
    MHD_get_connection_values(from, MHD_HEADER_KIND, count_framing, &found);
    if (found.lengths + found.codings > 1)
        woi_refusal(reply, 400,
                    "the request says more than once how long it is: expected one Content-Length or Transfer-Encoding");
    else if (found.spaced)
        woi_refusal(reply, 400, "the name of a header has a space");
    else if (has_space)
        woi_refusal(reply, 400, "the path or an argument has a space");
    else if (found.hosts == 0 && strcmp(version, "HTTP/1.0") != 0)
        woi_refusal(reply, 400, "the request has no header 'Host'");
    else if (found.hosts > 1)
        woi_refusal(reply, 400, "the request has %zu headers 'Host', expected one", found.hosts);
    else if (is_for_other(url, header(from, "Host")))
        woi_refusal(reply, 400, "the target names another host than the header 'Host'");
    else if (found.heads > 1)
        woi_refusal(reply, 400, "the request has %zu headers 'Inference-Header-Content-Length', expected one",
                    found.heads);
    else if (found.coding && strcasecmp(found.coding, "chunked") != 0)
        woi_refusal(reply, 501, "Transfer-Encoding is '%.40s', expected chunked", found.coding);
    return reply->status != 0;
}

/* Whether this thread may answer: false where the watch has ended the request. */
static bool begin_answer(connection *c)
{
    state was = RECEIVING;
    c->start_s = woi_now_s();
    return atomic_compare_exchange_strong(&c->state, &was, ANSWERING);
}

/* A ticket's reply is there: the connection's own thread sends it. */
static void wake(woi_ticket *ticket)
{
    connection *c = (connection *)((char *)ticket - offsetof(connection, ticket));
    struct MHD_Connection *sleeping = c->sleeping;
    c->woken = true;
    MHD_resume_connection(sleeping);
}

/* The head of a request. */
static enum MHD_Result begin(woi_server *server, connection *c, const woi_request *request, const char *url,
                             const char *version)
{
    struct MHD_Connection *from = (struct MHD_Connection *)(uintptr_t)request->ctx;
    c->begun = true;
    const char *length = header(from, "Content-Length");
    const unsigned long long bytes = length ? strtoull(length, NULL, 10) : 0;
    const size_t most = server->options.max_body;
    c->route = WOI_MAX_ROUTES;
    c->ambiguous = is_ambiguous(from, url, version, c->has_space, &c->ticket.reply);
    if (!c->ambiguous && c->over)
        woi_refusal(&c->ticket.reply, 503, "there are more than %zu connections", server->options.max_connections);
    else if (!c->ambiguous && c->has_nul)
        woi_refusal(&c->ticket.reply, 400, "the path or an argument has a NUL byte, %%00");
    else if (!c->ambiguous && woi_route_find(server, request, &c->route, &c->ticket.reply) && bytes > most)
        woi_refusal(&c->ticket.reply, 413, "the body has %llu bytes, at most %zu are taken", bytes, most);
    c->decided = c->ticket.reply.status != 0;
    /* A client that waits for "100 Continue", or that has too much to say, hears the refusal at once. */
    if (!c->decided || !(c->ambiguous || header(from, "Expect") || bytes / READ_ANYWAY > most)) return MHD_YES;
    return begin_answer(c) ? send_reply(server, c, request) : MHD_NO;
}

static enum MHD_Result take_body(woi_server *server, connection *c, const char *data, size_t bytes)
{
    const size_t most = server->options.max_body;
    if (atomic_load(&c->state) == EXPIRED) return MHD_NO;
    if (!c->decided && bytes > most - c->bytes) { /* a body that did not say how long it is */
        woi_refusal(&c->ticket.reply, 413, "the body has more than %zu bytes", most);
        c->decided = true;
    }
    if (c->decided) {
        c->passed_over += bytes;
        return c->passed_over / READ_ANYWAY > most ? MHD_NO : MHD_YES;
    }
    if (bytes > c->room - c->bytes) {
        size_t room = c->room ? c->room : 1024;
        while (room - c->bytes < bytes) room *= 2;
        if (room > most) room = most;
        char *body = hold(c, room) ? realloc(c->body, room) : NULL;
        if (!body) {
            refuse_to_hold(c);
            c->decided = true;
            c->passed_over = c->bytes + bytes;
            c->bytes = 0;
            free_body(c);
            return MHD_YES;
        }
        c->body = body;
        c->room = room;
    }
    memcpy(c->body + c->bytes, data, bytes);
    c->bytes += bytes;
    return MHD_YES;
}

/* A target as for a proxy, "http://host/path", is this server's path too, as HTTP/1.1 wants it. */
static const char *path_of(const char *url)
{
    const size_t scheme = scheme_of(url);
    if (!scheme) return url;
    const char *path = strchr(url + scheme, '/');
    return path ? path : "/";
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *from, const char *url, const char *method,
                                  const char *version, const char *data, size_t *bytes, void **context)
{
    woi_http *http = cls;
    woi_server *server = http->server;
    connection *c = *context;
    if (!c) return MHD_NO;
    woi_request request = {.method = method,
                           .path = path_of(url),
                           .header = header,
                           .argument = argument,
                           .name_at = name_at,
                           .ctx = from,
                           .loopback = c->loopback};
    if (!c->begun) return begin(server, c, &request, url, version);
    if (*bytes) {
        const enum MHD_Result result = take_body(server, c, data, *bytes);
        *bytes = 0;
        return result;
    }
    if (c->woken) return send_reply(server, c, &request);
    if (!begin_answer(c)) return MHD_NO;
    request.body = c->body;
    request.body_bytes = c->bytes;
    woi_reply *reply = &c->ticket.reply;
    if (!c->decided) woi_route_answer(server, c->route, &request, reply);
    if (!reply->later) return send_reply(server, c, &request);
    c->sleeping = from;
    c->ticket.done = wake;
    MHD_suspend_connection(from);
    reply->later(server, &c->ticket); /* from here on the connection may be awake again */
    return MHD_YES;
}

/* ---- The watch --------------------------------------------------------------------------------------------- */

static void expire(connection *c)
{
    static const char text[] = "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n"
                               "Content-Length: 54\r\n\r\n{\"error\": \"the request did not come within its time\"}\n";
    state was = RECEIVING;
    if (!atomic_compare_exchange_strong(&c->state, &was, EXPIRED)) return;
    woi_metrics *m = &c->http->server->metrics;
    atomic_fetch_add(&m->expired, 1);
    woi_metrics_request(c->http->server, WOI_MAX_ROUTES, 408, 0);
    const woi_reply reply = {.status = 408};
    woi_access_write(c->http->server, &(woi_access_line){.peer = c->peer, .method = "", .path = ""}, &reply);
    if (send(c->fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) errno = 0; /* nobody listens */
    shutdown(c->fd, SHUT_RDWR);
}

/* An answer that is not read keeps its memory. What is left of it is lost: the client sees its connection end. */
static void give_up(connection *c)
{
    double due = atomic_load(&c->due_s);
    if (due == 0 || !atomic_compare_exchange_strong(&c->due_s, &due, 0)) return;
    atomic_fetch_add(&c->http->server->metrics.unread, 1);
    shutdown(c->fd, SHUT_RDWR);
}

void woi_http_watch(woi_http *http)
{
    const double now = woi_now_s(), most = http->server->options.timeout_s;
    pthread_mutex_lock(&http->lock);
    for (connection *c = http->first; c; c = c->after) {
        const double age = now - atomic_load(&c->since_s);
        const state is = atomic_load(&c->state);
        const double due = atomic_load(&c->due_s);
        if (is == RECEIVING && age > most) expire(c);
        if (is == ANSWERING && due > 0 && now > due) give_up(c);
        if (is == IDLE && age > 4 * most) shutdown(c->fd, SHUT_RDWR); /* a first line, letter by letter */
    }
    pthread_mutex_unlock(&http->lock);
}

/* ---- The daemon -------------------------------------------------------------------------------------------- */

wo_status woi_http_start(woi_server *server, int listening, woi_http **result, wo_error *err)
{
    woi_http *http = calloc(1, sizeof *http);
    const size_t connections = server->options.max_connections + SPARE_CONNECTIONS;
    /* Up to 0.9.75 to be strict means to refuse a path with spaces and a request without Host, in HTML and with two
     * headers, and no more: is_ambiguous does that. Later versions refuse more. */
    const int strict = strcmp(MHD_get_version(), "0.9.75") > 0;
    const struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, listening, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)connections, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL},
        {MHD_OPTION_STRICT_FOR_CLIENT, strict, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)(2 * server->options.timeout_s) + 1, NULL},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, http},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, http},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)on_line, http},
        {server->threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, server->threads, NULL},
        {MHD_OPTION_END, 0, NULL}};
    *result = NULL;
    if (http) {
        http->server = server;
        pthread_mutex_init(&http->lock, NULL);
        http->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
                                        on_request, http, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
        if (http->daemon) {
            *result = http;
            return WO_OK;
        }
        pthread_mutex_destroy(&http->lock);
    }
    free(http);
    close(listening);
    *err = (wo_error){.status = WO_ERR_IO, .offset = WO_NO_OFFSET};
    snprintf(err->text, sizeof err->text, "the HTTP library does not start: there may be too few threads or files");
    return WO_ERR_IO;
}

void woi_http_quiesce(woi_http *http)
{
    const MHD_socket listening = MHD_quiesce_daemon(http->daemon);
    if (listening != MHD_INVALID_SOCKET) close(listening);
}

void woi_http_stop(woi_http *http)
{
    if (!http) return;
    MHD_stop_daemon(http->daemon);
    pthread_mutex_destroy(&http->lock);
    free(http);
}
