/* A job goes to all shards at once and comes back as one: by libcurl, from a few threads of their own ("lanes"), so
 * that the threads which poll connections never wait. A lane has one multi handle, which keeps its connections to the
 * shards open between requests; jobs take turns on the lanes.
 *
 * A shard has --shard-timeout for its answer, and the half of it for a first try; what fails is tried once more, on
 * whatever time is left. One that is known to be down is not asked. A shard that says that it has another index now
 * (404, since requests name a version) makes the whole job wait for the snapshot that knows it, and begin anew. */
#include "shards.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_INFO = 1 << 20, KEPT_CONNECTIONS = 512, WAIT_MS = 1000, SOON_MS = 10 };

typedef struct call call;

/* What one shard does for a job. */
typedef struct
try {
    call *call;
    size_t shard;
    CURL *easy;
    int tries;
    bool failed, answered; /* neither: not yet */
    double start_s;
    woi_out body;
    size_t json_bytes;
    char why[WOI_WHY_BYTES];
    woi_piece piece;
}
try;

struct call {
    call *next;
    woi_work *work;
    woi_out request;
    size_t json_bytes, most;
    struct curl_slist *headers;
    double start_s, deadline_s;
    size_t left; /* tries that are neither failed nor answered */
    bool stale;  /* waits for another snapshot */
    int refused; /* 0, or the status of a shard's refusal that is the request's own fault */
    char sentence[400];
    try tries[];
};

typedef struct woi_lane {
    woi_server *server;
    pthread_t thread;
    bool started;
    CURLM *multi;
    pthread_mutex_t lock;
    call *entering, **end; /* under the lock */
    bool stop;
    call *active;
} woi_lane;

wo_status woi_fanout_open(wo_error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == 0) return WO_OK;
    *err = (wo_error){.status = WO_ERR_MEMORY, .offset = WO_NO_OFFSET, .text = "libcurl does not start"};
    return WO_ERR_MEMORY;
}

/* ---- One transfer ------------------------------------------------------------------------------------------ */

static size_t on_bytes(char *data, size_t size, size_t n, void *ctx)
{
    try *t = ctx;
    if (size * n > t->call->most - t->body.bytes) {
        snprintf(t->why, sizeof t->why, "its answer has more than the %zu bytes that it may have", t->call->most);
        return 0;
    }
    woi_out_bytes(&t->body, data, size * n);
    return t->body.failed ? 0 : size * n;
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
    static const char name[] = "Inference-Header-Content-Length:";
    try *t = ctx;
    const size_t bytes = size * n;
    if (bytes > sizeof name - 1 && bytes < sizeof name + 24 && strncasecmp(data, name, sizeof name - 1) == 0) {
        char digits[32] = "";
        memcpy(digits, data + sizeof name - 1, bytes - (sizeof name - 1));
        t->json_bytes = strtoull(digits, NULL, 10);
    }
    return bytes;
}

/* What all transfers have in common: no proxy of the environment, no signals, no other protocol. */
static CURL *make_easy(const char *url, double seconds)
{
    CURL *easy = curl_easy_init();
    const long ms = seconds < 0.001 ? 1 : (long)(1000 * seconds);
    if (!easy) return NULL;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, ms);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    return easy;
}

static bool add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer) *list = longer;
    return longer;
}

static bool add_token(struct curl_slist **list, const woi_shards *all)
{
    char line[4200];
    if (!all->token) return true;
    snprintf(line, sizeof line, "Authorization: Bearer %s", all->token);
    return add_header(list, line);
}

/* Why a transfer brought nothing, in words: empty where it did. */
static void explain(char *why, CURLcode code, long status)
{
    if (why[0]) return;
    if (code)
        snprintf(why, WOI_WHY_BYTES, "%s", curl_easy_strerror(code));
    else if (status != 200)
        snprintf(why, WOI_WHY_BYTES, "it answers with status %ld", status);
}

/* ---- Asking who they are ----------------------------------------------------------------------------------- */

static size_t on_info(char *data, size_t size, size_t n, void *ctx)
{
    woi_told *told = ctx;
    if (size * n > MOST_INFO - told->body.bytes) {
        snprintf(told->why, sizeof told->why, "what it says at /v1/info has more than %d bytes", MOST_INFO);
        return 0;
    }
    woi_out_bytes(&told->body, data, size * n);
    return told->body.failed ? 0 : size * n;
}

void woi_fanout_ask(const woi_server *server, woi_told *told)
{
    const woi_shards *all = server->shards;
    const double start = woi_now_s(), seconds = server->options.shard_timeout_s;
    CURL *asks[WOI_MAX_SHARDS];
    struct curl_slist *headers = NULL;
    CURLM *multi = curl_multi_init();
    const bool fine = multi && add_token(&headers, all);
    for (size_t i = 0; i < all->n; i++) {
        char url[400];
        snprintf(url, sizeof url, "http://%.300s/v1/info", all->shard[i].address);
        asks[i] = fine ? make_easy(url, seconds) : NULL;
        if (!asks[i]) continue;
        curl_easy_setopt(asks[i], CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(asks[i], CURLOPT_WRITEFUNCTION, on_info);
        curl_easy_setopt(asks[i], CURLOPT_WRITEDATA, &told[i]);
        curl_easy_setopt(asks[i], CURLOPT_PRIVATE, &told[i]);
        curl_multi_add_handle(multi, asks[i]);
    }
    for (int running = 1; fine && running && woi_now_s() - start < 2 * seconds + 1;) {
        int left;
        if (curl_multi_perform(multi, &running)) break;
        for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));) {
            woi_told *one = NULL;
            long status = 0;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &one);
            curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &status);
            explain(one->why, m->data.result, status);
            one->done = true;
        }
        if (running) curl_multi_poll(multi, NULL, 0, WAIT_MS, NULL);
    }
    for (size_t i = 0; i < all->n; i++) {
        if (!told[i].done) snprintf(told[i].why, sizeof told[i].why, "it could not be asked: out of memory, or time");
        if (!asks[i]) continue;
        curl_multi_remove_handle(multi, asks[i]);
        curl_easy_cleanup(asks[i]);
    }
    curl_slist_free_all(headers);
    if (multi) curl_multi_cleanup(multi);
}

/* ---- A job's way ------------------------------------------------------------------------------------------- */

static void drop_easy(woi_lane *lane, try *t)
{
    if (!t->easy) return;
    curl_multi_remove_handle(lane->multi, t->easy);
    curl_easy_cleanup(t->easy);
    t->easy = NULL;
}

static void fail_try(try *t)
{
    t->failed = true;
    t->call->left--;
}

/* Sends it, with the time that is left; the first time with half of all. */
static void send_try(woi_lane *lane, try *t)
{
    call *c = t->call;
    const woi_shards *all = lane->server->shards;
    const struct woi_member *member = &c->work->lease.snapshot->members->of[t->shard];
    const double now = woi_now_s(), all_s = lane->server->options.shard_timeout_s;
    char url[1200], *model = curl_easy_escape(NULL, member->model, 0);
    snprintf(url, sizeof url, "http://%.300s/v2/models/%s/versions/%s/infer", all->shard[t->shard].address,
             model ? model : "", member->digits);
    curl_free(model);
    t->start_s = now;
    t->json_bytes = 0;
    t->why[0] = '\0';
    woi_out_free(&t->body);
    t->easy = make_easy(url, t->tries++ ? c->deadline_s - now : all_s / 2);
    if (!t->easy) {
        snprintf(t->why, sizeof t->why, "out of memory");
        fail_try(t);
        return;
    }
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, c->request.text);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->request.bytes);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    curl_multi_add_handle(lane->multi, t->easy);
}

static bool make_request(woi_lane *lane, call *c)
{
    char line[80];
    const woi_job *job = &c->work->job;
    if (!woi_shard_request(job, c->work->lease.snapshot, &c->request, &c->json_bytes)) return false;
    c->most = woi_shard_most(job);
    snprintf(line, sizeof line, "Inference-Header-Content-Length: %zu", c->json_bytes);
    return add_header(&c->headers, "Content-Type: application/octet-stream") && add_header(&c->headers, "Expect:") &&
           add_header(&c->headers, line) && add_token(&c->headers, lane->server->shards);
}

/* All that are up are asked, by the snapshot that the work has. */
static void send_all(woi_lane *lane, call *c)
{
    woi_shards *all = lane->server->shards;
    const woi_members *members = c->work->lease.snapshot->members;
    c->left = all->n;
    for (size_t i = 0; i < all->n; i++) {
        try *t = &c->tries[i];
        t->tries = 0;
        t->failed = t->answered = false;
        pthread_mutex_lock(&all->lock);
        const bool up = all->shard[i].up && members->of[i].there;
        memcpy(t->why, all->shard[i].why, sizeof t->why);
        pthread_mutex_unlock(&all->lock);
        if (up)
            send_try(lane, t);
        else
            fail_try(t);
    }
}

static void free_call(woi_lane *lane, call *c)
{
    for (size_t i = 0; i < lane->server->shards->n; i++) {
        drop_easy(lane, &c->tries[i]);
        woi_out_free(&c->tries[i].body);
        woi_piece_free(&c->tries[i].piece);
    }
    curl_slist_free_all(c->headers);
    woi_out_free(&c->request);
    free(c);
}

/* "a:1,b:2": those that have no part in it. */
static char *list_missing(const woi_server *server, const call *c)
{
    woi_out list = {0};
    for (size_t i = 0; i < server->shards->n; i++) {
        if (c->tries[i].answered) continue;
        if (list.bytes) woi_out_text(&list, ",");
        woi_out_text(&list, server->shards->shard[i].address);
    }
    if (list.bytes) woi_out_bytes(&list, "", 1);
    if (list.failed) woi_out_free(&list);
    return list.text;
}

static bool merge(woi_server *server, call *c, woi_reply *reply)
{
    woi_piece pieces[WOI_MAX_SHARDS];
    woi_piece_body bodies[WOI_MAX_SHARDS];
    woi_job *job = &c->work->job;
    const woi_shards *all = server->shards;
    size_t n = 0, lost = all->n;
    for (size_t i = 0; i < all->n; i++) {
        try *t = &c->tries[i];
        if (!t->answered && lost == all->n) lost = i;
        if (!t->answered) continue;
        pieces[n] = t->piece;
        bodies[n++] = (woi_piece_body){t->body.text, t->body.bytes, t->json_bytes};
    }
    if (!woi_shards_enough(server, n) || n == 0 || (n < all->n && job->score == WO_SCORES_LOGPROB))
        return woi_refuse(reply, 503, "shard %.200s is missing%s: %s", all->shard[lost].address,
                          woi_shards_enough(server, n) ? ", and log probabilities need all" : "", c->tries[lost].why);
    if (!woi_pieces_merge(job, pieces, bodies, n)) return woi_refuse(reply, 503, "out of memory");
    job->seconds = woi_now_s() - c->start_s;
    woi_job_count(server, job);
    reply->status = 200;
    reply->checksum = c->work->lease.snapshot->info.checksum;
    reply->n_queries = job->n;
    reply->n_k = job->k;
    return true;
}

static void end_call(woi_lane *lane, call *c)
{
    woi_server *server = lane->server;
    woi_work *work = c->work;
    woi_ticket *ticket = work->ticket;
    woi_reply *reply = &ticket->reply;
    bool done = false;
    if (c->refused)
        woi_refusal(reply, c->refused, "%s", c->sentence);
    else {
        reply->missing = list_missing(server, c);
        done = merge(server, c, reply);
        if (reply->missing && done) atomic_fetch_add(&server->shards->partial, 1);
        for (size_t i = 0; i < server->shards->n; i++)
            if (!c->tries[i].answered) atomic_fetch_add(&server->shards->shard[i].missing, 1);
    }
    work->finish(server, work, reply, done);
    if (reply->body.failed) woi_refusal(reply, 503, "out of memory");
    free_call(lane, c);
    ticket->done(ticket);
}

/* ---- What comes back --------------------------------------------------------------------------------------- */

/* The request is at fault, whoever answers it: the shard's own sentence goes to the client. */
static void take_refusal(try *t, long status)
{
    call *c = t->call;
    json_t *object = json_loadb(t->body.text ? t->body.text : "", t->body.bytes, 0, NULL);
    const char *said = json_string_value(json_object_get(object, "error"));
    if (said) {
        c->refused = (int)status;
        snprintf(c->sentence, sizeof c->sentence, "%s", said);
    } else
        snprintf(t->why, sizeof t->why, "it answers with status %ld", status);
    json_decref(object);
}

/* The shard has another index: wait until the snapshot knows, which is asked for. */
static void go_stale(woi_lane *lane, call *c)
{
    for (size_t i = 0; i < lane->server->shards->n; i++) {
        drop_easy(lane, &c->tries[i]);
        woi_piece_free(&c->tries[i].piece);
    }
    c->stale = true;
    woi_shards_hurry(lane->server->shards);
}

static void end_try(woi_lane *lane, try *t, CURLcode code)
{
    call *c = t->call;
    woi_server *server = lane->server;
    woi_shard *shard = &server->shards->shard[t->shard];
    const double now = woi_now_s();
    const woi_snapshot *s = c->work->lease.snapshot;
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    drop_easy(lane, t);
    const woi_piece_body body = {t->body.text, t->body.bytes, t->json_bytes};
    if (!code && status == 200 && woi_piece_read(&t->piece, &c->work->job, s->m, &body, t->why)) {
        t->answered = true;
        c->left--;
        atomic_fetch_add(&shard->answers, 1);
        atomic_fetch_add(&shard->us, (unsigned long long)(1e6 * (now - t->start_s)));
        return;
    }
    if (!code && status == 404) {
        go_stale(lane, c);
        return;
    }
    if (!code && (status == 400 || status == 413)) take_refusal(t, status);
    atomic_fetch_add(&shard->failures, !c->refused);
    explain(t->why, code, status);
    if (!c->refused && t->tries < 2 && now < c->deadline_s) {
        atomic_fetch_add(&shard->retries, 1);
        send_try(lane, t);
        return;
    }
    if (!c->refused) woi_shard_down(server->shards, t->shard, t->why);
    fail_try(t);
}

/* ---- Lanes ------------------------------------------------------------------------------------------------- */

/* A job that waits for another snapshot begins anew with it, as long as it is one that the job fits. */
static void renew(woi_lane *lane, call *c)
{
    woi_server *server = lane->server;
    woi_lease newer;
    woi_snapshot_take(server, &newer);
    const woi_snapshot *old = c->work->lease.snapshot, *now = newer.snapshot;
    const bool late = woi_now_s() > c->deadline_s;
    if (now != old && now->info.d == old->info.d && now->m == old->m && !late) {
        woi_snapshot_give(server, &c->work->lease);
        c->work->lease = newer;
        c->stale = false;
        send_all(lane, c);
        return;
    }
    if (now != old || late) {
        c->stale = false;
        c->left = 0;
        c->refused = 503;
        snprintf(c->sentence, sizeof c->sentence, "a shard has another index, which does not fit yet");
    }
    woi_snapshot_give(server, &newer);
}

/* Ends what has ended, and says whether something waits for a snapshot. */
static bool sweep(woi_lane *lane, bool stop)
{
    bool waits = false;
    for (call **at = &lane->active; *at;) {
        call *c = *at;
        if (c->stale) renew(lane, c);
        if (stop && (c->left || c->stale)) {
            c->left = 0;
            c->stale = false;
            c->refused = 503;
            snprintf(c->sentence, sizeof c->sentence, "the server is about to leave");
        }
        waits = waits || c->stale;
        if (c->stale || (c->left && !c->refused)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        end_call(lane, c);
    }
    return waits;
}

static void take_entering(woi_lane *lane, bool *stop)
{
    pthread_mutex_lock(&lane->lock);
    call *c = lane->entering;
    lane->entering = NULL;
    lane->end = &lane->entering;
    *stop = lane->stop;
    pthread_mutex_unlock(&lane->lock);
    for (call *next; c; c = next) {
        next = c->next;
        c->next = lane->active;
        lane->active = c;
        if (make_request(lane, c))
            send_all(lane, c);
        else {
            c->refused = 503;
            snprintf(c->sentence, sizeof c->sentence, "out of memory");
        }
    }
}

static void *run_lane(void *ctx)
{
    woi_lane *lane = ctx;
    for (bool stop = false;;) {
        int running, left;
        take_entering(lane, &stop);
        curl_multi_perform(lane->multi, &running);
        for (CURLMsg *m; (m = curl_multi_info_read(lane->multi, &left));) {
            try *t = NULL;
            const CURLcode code = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
            end_try(lane, t, code);
        }
        const bool waits = sweep(lane, stop);
        if (stop) return NULL;
        curl_multi_poll(lane->multi, NULL, 0, waits ? SOON_MS : WAIT_MS, NULL);
    }
}

static void refuse_now(woi_server *server, woi_ticket *ticket, const char *sentence)
{
    woi_refusal(&ticket->reply, 503, "%s", sentence);
    ticket->reply.work->finish(server, ticket->reply.work, &ticket->reply, false);
    ticket->done(ticket);
}

void woi_fanout_enter(woi_server *server, woi_ticket *ticket)
{
    woi_shards *all = server->shards;
    woi_lane *lane = &all->lanes[atomic_fetch_add(&all->next_lane, 1) % all->n_lanes];
    call *c = calloc(1, sizeof *c + all->n * sizeof c->tries[0]);
    if (!c) {
        refuse_now(server, ticket, "out of memory");
        return;
    }
    c->work = ticket->reply.work;
    c->work->ticket = ticket;
    c->start_s = woi_now_s();
    c->deadline_s = c->start_s + server->options.shard_timeout_s;
    for (size_t i = 0; i < all->n; i++) c->tries[i] = (try){.call = c, .shard = i};
    pthread_mutex_lock(&lane->lock);
    const bool late = lane->stop;
    if (!late) {
        *lane->end = c;
        lane->end = &c->next;
    }
    pthread_mutex_unlock(&lane->lock);
    if (!late)
        curl_multi_wakeup(lane->multi);
    else {
        free(c);
        refuse_now(server, ticket, "the server is about to leave");
    }
}

wo_status woi_fanout_start(woi_server *server, wo_error *err)
{
    woi_shards *all = server->shards;
    all->lanes = calloc((size_t)server->threads, sizeof *all->lanes);
    bool fine = all->lanes;
    for (int i = 0; fine && i < server->threads; i++) {
        woi_lane *lane = &all->lanes[i];
        lane->server = server;
        lane->end = &lane->entering;
        pthread_mutex_init(&lane->lock, NULL);
        all->n_lanes++;
        lane->multi = curl_multi_init();
        if (lane->multi) curl_multi_setopt(lane->multi, CURLMOPT_MAXCONNECTS, (long)KEPT_CONNECTIONS);
        fine = lane->started = lane->multi && pthread_create(&lane->thread, NULL, run_lane, lane) == 0;
    }
    if (fine) return WO_OK;
    *err = (wo_error){.status = WO_ERR_MEMORY, .offset = WO_NO_OFFSET, .text = "no thread can be had for shards"};
    return WO_ERR_MEMORY;
}

void woi_fanout_stop(woi_server *server)
{
    woi_shards *all = server->shards;
    for (size_t i = 0; i < all->n_lanes; i++) {
        woi_lane *lane = &all->lanes[i];
        pthread_mutex_lock(&lane->lock);
        lane->stop = true;
        pthread_mutex_unlock(&lane->lock);
        if (!lane->started) continue;
        curl_multi_wakeup(lane->multi);
        pthread_join(lane->thread, NULL);
    }
}

void woi_fanout_free(woi_shards *all)
{
    for (size_t i = 0; i < all->n_lanes; i++) {
        pthread_mutex_destroy(&all->lanes[i].lock);
        if (all->lanes[i].multi) curl_multi_cleanup(all->lanes[i].multi);
    }
    free(all->lanes);
    curl_global_cleanup();
}
