/* The server's handlers, without a port: an input is a request as text,
 *
 *   METHOD PATH?NAME=VALUE&...
 *   Header: value
 *
 *   body
 *
 * With a header 'Peer' it comes from another machine, which may not change the server. Whatever it says, the reply has
 * a status and a type, a refusal is an object with one sentence, JSON is JSON, and what was lent is given back. */
#include "fuzz.h"

#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 16, LONG = 4096 };

typedef struct pair {
    char *name, *value;
} pair;

typedef struct parsed {
    pair headers[MOST], arguments[MOST];
    size_t n_headers, n_arguments;
} parsed;

static const char *find(const pair *pairs, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(pairs[i].name, name) == 0) return pairs[i].value;
    return NULL;
}

static const char *header(const void *ctx, const char *name)
{
    const parsed *p = ctx;
    return find(p->headers, p->n_headers, name);
}

static const char *argument(const void *ctx, const char *name)
{
    const parsed *p = ctx;
    return find(p->arguments, p->n_arguments, name);
}

static const char *name_at(const void *ctx, woi_part part, size_t i)
{
    const parsed *p = ctx;
    if (part == WOI_HEADERS) return i < p->n_headers ? p->headers[i].name : NULL;
    return i < p->n_arguments ? p->arguments[i].name : NULL;
}

/* Cuts `text` at the next `at`, and gives what follows: NULL where there is none. */
static char *cut(char *text, char at)
{
    char *place = text ? strchr(text, at) : NULL;
    if (place) *place++ = '\0';
    return place;
}

static void add(pair *pairs, size_t *n, char *name, char *value)
{
    if (*n < MOST && name && value) pairs[(*n)++] = (pair){name, value};
}

static void require(bool fine)
{
    if (!fine) abort();
}

static void check_reply(const woi_reply *reply)
{
    require(reply->status >= 200 && reply->status < 600 && reply->type);
    if (reply->fixed || strcmp(reply->type, woi_type_json) != 0) return;
    json_t *value = json_loadb(reply->body.text, reply->body.bytes, JSON_DECODE_ANY, NULL);
    require(value);
    if (reply->status != 200) require(json_object_size(value) == 1 && json_is_string(json_object_get(value, "error")));
    json_decref(value);
}

static void on_done(woi_ticket *ticket)
{
    (void)ticket;
}

static woi_server *open_server(void)
{
    static woi_server server;
    static const woi_serve_options options = {.index = "tests/golden/index-names.safetensors",
                                              .net = "tests/golden/network-xc.safetensors",
                                              .name = "wideout",
                                              .threads = 1,
                                              .learn = true, /* feedback is read; nobody is there to learn from it */
                                              .max_body = 1 << 16,
                                              .max_text = 1 << 12,
                                              .max_queries = 64,
                                              .max_k = 100,
                                              .max_connections = 1};
    const char *at;
    wo_error err;
    if (server.current) return &server;
    require(!woi_server_open(&server, &options, &at, &err));
    server.may_reload = false; /* nobody listens to signals here */
    return &server;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    woi_server *server = open_server();
    const uint8_t *end = memmem(data, bytes, "\n\n", 2);
    const size_t head_bytes = end ? (size_t)(end - data) : bytes, rest = end ? bytes - head_bytes - 2 : 0;
    if (head_bytes > LONG) return 0;
    char head[LONG + 1];
    memcpy(head, data, head_bytes);
    head[head_bytes] = '\0';
    parsed p = {.n_headers = 0};
    char *line = cut(head, '\n'), *path = cut(head, ' '), *list = cut(path, '?');
    if (!path) return 0;
    for (char *next; line; line = next) {
        next = cut(line, '\n');
        char *value = cut(line, ':');
        add(p.headers, &p.n_headers, line, value ? value + (*value == ' ') : NULL);
    }
    for (char *next; list; list = next) {
        next = cut(list, '&');
        char *value = cut(list, '=');
        add(p.arguments, &p.n_arguments, list, value);
    }
    char *body = malloc(rest + 1); /* of its own, so that a read beyond it is seen */
    require(body);
    memcpy(body, data + bytes - rest, rest);
    char *exact = rest ? realloc(body, rest) : body;
    const woi_request request = {.method = head,
                                 .path = path,
                                 .header = header,
                                 .argument = argument,
                                 .name_at = name_at,
                                 .ctx = &p,
                                 .body = rest ? exact : NULL,
                                 .body_bytes = rest,
                                 .loopback = !find(p.headers, p.n_headers, "Peer")};
    woi_ticket ticket = {.done = on_done};
    size_t route;
    if (woi_route_find(server, &request, &route, &ticket.reply))
        woi_route_answer(server, route, &request, &ticket.reply);
    if (ticket.reply.later) ticket.reply.later(server, &ticket);
    check_reply(&ticket.reply);
    const bool changes = strcmp(path, "/v1/feedback") == 0 || strcmp(path, "/admin/reload") == 0;
    require(request.loopback || !changes || (ticket.reply.status != 200 && !ticket.reply.later));
    if (!request.loopback && changes && strcmp(head, "POST") == 0) require(ticket.reply.status == 403);
    require(server->current->refs == 1 && server->current->n_idle == server->current->n_searchers);
    woi_reply_free(&ticket.reply);
    free(exact);
    return 0;
}
