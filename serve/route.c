/* Which function answers a path, by which methods and to whom; and what says whether the server is well. */
#include "server.h"

#include <string.h>

typedef struct route {
    const char *path; /* of the KServe dialect's models: what follows "{name}" is compared */
    const char *method;
    woi_handler *handler;
    woi_access access;
} route;

/* The first part of the models' paths, as metrics and the OpenAPI file spell it. */
#define MODEL "/v2/models/{name}"

static const route routes[] = {
    {"/v1/search", "POST", woi_v1_search, WOI_FOR_CLIENTS},
    {"/v1/predict", "POST", woi_v1_predict, WOI_FOR_CLIENTS},
    {"/v1/feedback", "POST", woi_v1_feedback, WOI_FOR_ADMINS},
    {"/v1/info", "GET", woi_v1_info, WOI_FOR_CLIENTS},
    {"/v2", "GET", woi_v2_server, WOI_FOR_CLIENTS},
    {"/v2/health/live", "GET", woi_v2_live, WOI_FOR_ALL},
    {"/v2/health/ready", "GET", woi_v2_ready, WOI_FOR_ALL},
    {MODEL, "GET", woi_v2_model, WOI_FOR_CLIENTS},
    {MODEL "/ready", "GET", woi_v2_model_ready, WOI_FOR_ALL},
    {MODEL "/infer", "POST", woi_v2_infer, WOI_FOR_CLIENTS},
    {"/healthz", "GET", woi_healthz, WOI_FOR_ALL},
    {"/readyz", "GET", woi_readyz, WOI_FOR_ALL},
    {"/metrics", "GET", woi_metrics_show, WOI_FOR_CLIENTS},
    {"/", "GET", woi_page, WOI_FOR_ALL},
    {"/page.css", "GET", woi_page_style, WOI_FOR_ALL},
    {"/page.js", "GET", woi_page_script, WOI_FOR_ALL},
    {"/admin/reload", "POST", woi_admin_reload, WOI_FOR_ADMINS},
};

enum { N_ROUTES = sizeof routes / sizeof routes[0] };
_Static_assert(N_ROUTES <= (int)WOI_MAX_ROUTES, "metrics have a row for each route");

const char *woi_route_name(size_t number)
{
    return number < N_ROUTES ? routes[number].path : NULL;
}

/* Nothing here unpacks a body: read as it is, it would be refused for what it is not. */
static bool check_coding(const woi_request *request, woi_reply *reply)
{
    const char *coding = request->header(request->ctx, "Content-Encoding");
    return !coding || !*coding || strcasecmp(coding, "identity") == 0 ||
           woi_refuse(reply, 415, "the body is coded as '%.40s', expected it as it is, without Content-Encoding",
                      coding);
}

bool woi_route_find(woi_server *server, const woi_request *request, size_t *number, woi_reply *reply)
{
    *number = WOI_MAX_ROUTES;
    /* KServe's own OpenAPI file ends this one with a slash, its text does not. */
    const char *path = strcmp(request->path, "/v2/") == 0 ? "/v2" : request->path;
    const char *rest = woi_v2_rest(server, path, reply);
    /* The refusal names the model, or its version: for clients alone. */
    if (reply->status) return woi_may(server, request, WOI_FOR_CLIENTS, reply) && false;
    for (size_t i = 0; i < N_ROUTES; i++) {
        const bool of_model = strncmp(routes[i].path, MODEL, sizeof MODEL - 1) == 0;
        if (of_model != (rest != NULL)) continue;
        if (strcmp(rest ? routes[i].path + sizeof MODEL - 1 : routes[i].path, rest ? rest : path) != 0) continue;
        *number = i;
        const bool head = strcmp(request->method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0;
        if (head || strcmp(request->method, routes[i].method) == 0)
            return woi_may(server, request, routes[i].access, reply) &&
                   (strcmp(routes[i].method, "POST") != 0 || check_coding(request, reply));
        reply->allow = strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method;
        return woi_refuse(reply, 405, "%.20s is no method of %s: %s is", request->method, routes[i].path, reply->allow);
    }
    return woi_refuse(reply, 404, "there is nothing at '%.100s'", request->path);
}

void woi_route_answer(woi_server *server, size_t number, const woi_request *request, woi_reply *reply)
{
    routes[number].handler(server, request, reply);
    if (reply->body.failed) woi_refusal(reply, 503, "out of memory");
}

/* ---- Health ------------------------------------------------------------------------------------------------ */

bool woi_is_ready(woi_server *server, const char **why)
{
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const bool damaged = !woi_snapshot_whole(lease.snapshot);
    woi_snapshot_give(server, &lease);
    *why = atomic_load(&server->draining) ? "the server is about to leave" : damaged ? woi_damaged : NULL;
    return !*why && (!server->shards || woi_shards_ready(server, why));
}

void woi_healthz(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)server;
    (void)request;
    reply->status = 200;
    reply->type = woi_type_json;
    woi_out_text(&reply->body, "{\"alive\": true}\n");
}

static void write_share(woi_out *out, const woi_share *share)
{
    woi_out_format(out,
                   "\"at_1\": %.4f, \"low_1\": %.4f, \"high_1\": %.4f, "
                   "\"at_5\": %.4f, \"low_5\": %.4f, \"high_5\": %.4f",
                   share->at1, share->low1, share->high1, share->at5, share->low5, share->high5);
}

/* Whoever asks may know whether, as a load balancer must; why not, which index and how good it is are for clients. */
void woi_readyz(woi_server *server, const woi_request *request, woi_reply *reply)
{
    const char *why;
    woi_reply told = {0};
    const bool client = woi_may(server, request, WOI_FOR_CLIENTS, &told), ready = woi_is_ready(server, &why);
    woi_reply_free(&told);
    if (!ready) {
        woi_refusal(reply, 503, "%s", client ? why : "the server is not ready");
        return;
    }
    if (!client) {
        reply->status = 200;
        reply->type = woi_type_json;
        woi_out_text(&reply->body, "{\"ready\": true}\n");
        return;
    }
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    reply->status = 200;
    reply->type = woi_type_json;
    reply->checksum = lease.snapshot->info.checksum;
    woi_out_format(&reply->body, "{\"ready\": true, \"index\": \"%s\"", lease.snapshot->digits);
    woi_agreement a;
    if (woi_shadow_tell(server, &a) && a.n) {
        woi_out_format(&reply->body, ", \"agreement\": {\"queries\": %llu, ", (unsigned long long)a.n);
        write_share(&reply->body, &a.same);
        woi_out_text(&reply->body, ", \"layer\": {");
        write_share(&reply->body, &a.layer);
        woi_out_format(&reply->body, "}, \"alarm\": %s}", a.alarm ? "true" : "false");
    }
    woi_out_text(&reply->body, "}\n");
    woi_snapshot_give(server, &lease);
}
