/* Who the shards are, and whether they fit together: all must be parts of one layer, and none there twice. They are
 * asked at the start, where what does not fit is refused; and every second from then on, so that one that went is known
 * before a request has to wait for it, and one that came back, or has another index, too. What most of them are parts
 * of is then what is served; the others are missing until they fit. */
#include "shards.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EVERY_S = 1 };

static wo_status fail(wo_error *err, wo_status status, const char *format, const char *a, const char *b)
{
    *err = (wo_error){.status = status, .offset = WO_NO_OFFSET};
    snprintf(err->text, sizeof err->text, format, a, b);
    return status;
}

/* ---- Addresses --------------------------------------------------------------------------------------------- */

/* "host:port", "[::1]:8080" */
static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1] || strlen(colon + 1) > 5 || colon[1 + strspn(colon + 1, "0123456789")])
        return false;
    const long port = strtol(colon + 1, NULL, 10);
    const bool bracketed = *text == '[' && colon[-1] == ']';
    for (const char *c = text; c < colon; c++)
        if (!isalnum((unsigned char)*c) && !strchr(bracketed ? "[]:.%" : ".-_", *c)) return false;
    return port >= 1 && port <= 65535;
}

static wo_status read_addresses(woi_shards *all, const char *list, wo_error *err)
{
    for (const char *at = list;; at++) {
        const size_t bytes = strcspn(at, ",");
        char *address = strndup(at, bytes);
        woi_shard *shard = all->n < WOI_MAX_SHARDS ? &all->shard[all->n] : NULL;
        if (!address) return fail(err, WO_ERR_MEMORY, "out of memory", "", "");
        wo_status status = WO_OK;
        if (!is_address(address))
            status = fail(err, WO_ERR_ARGUMENT, "shards: '%s' is no host:port%s", address, "");
        else if (!shard)
            status = fail(err, WO_ERR_ARGUMENT, "there are more than 256 shards", "", "");
        for (size_t i = 0; !status && i < all->n; i++)
            if (strcmp(all->shard[i].address, address) == 0)
                status = fail(err, WO_ERR_ARGUMENT, "shards: %s is there twice%s", address, "");
        if (status) {
            free(address);
            return status;
        }
        shard->address = address;
        all->n++;
        at += bytes;
        if (!*at) return WO_OK;
    }
}

wo_status woi_shards_open(woi_server *server, const char **at, wo_error *err)
{
    const woi_serve_options *o = &server->options;
    wo_status status = woi_fanout_open(err);
    if (status) return status;
    woi_shards *all = calloc(1, sizeof *all);
    if (all) all->shard = calloc(WOI_MAX_SHARDS, sizeof *all->shard);
    if (!all || !all->shard) {
        free(all);
        return fail(err, WO_ERR_MEMORY, "out of memory", "", "");
    }
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&all->change, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&all->lock, NULL);
    server->shards = all;
    if (o->shard_token_file && (status = woi_token_read(o->shard_token_file, &all->token, err)))
        *at = o->shard_token_file;
    return status ? status : read_addresses(all, o->shards, err);
}

void woi_shards_free(woi_server *server)
{
    woi_shards *all = server->shards;
    if (!all) return;
    woi_fanout_free(all);
    for (size_t i = 0; i < all->n; i++) free(all->shard[i].address);
    free(all->shard);
    free(all->token);
    pthread_cond_destroy(&all->change);
    pthread_mutex_destroy(&all->lock);
    free(all);
    server->shards = NULL;
}

/* ---- What they say ----------------------------------------------------------------------------------------- */

static bool copy_word(const json_t *object, const char *key, char *to, size_t room)
{
    const json_t *value = json_object_get(object, key);
    const size_t bytes = json_string_length(value);
    if (!json_is_string(value) || !bytes || bytes >= room || memchr(json_string_value(value), 0, bytes)) return false;
    memcpy(to, json_string_value(value), bytes + 1);
    return true;
}

static bool is_checksum(const char *digits)
{
    return strlen(digits) == 16 && strspn(digits, "0123456789abcdef") == 16;
}

static bool read_size(const json_t *object, const char *key, size_t *to)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > INT32_MAX) return false;
    *to = (size_t)json_integer_value(value);
    return true;
}

/* Which shard it is, where it says so. */
static bool read_number(const json_t *o, woi_shard_info *info)
{
    const json_t *shard = json_object_get(o, "shard");
    return !shard || (read_size(shard, "number", &info->number) && read_size(shard, "count", &info->count) &&
                      info->number <= info->count && copy_word(shard, "dealing", info->dealing, sizeof info->dealing) &&
                      is_checksum(info->dealing));
}

/* False: it is no answer of ours. */
static bool read_info(const woi_out *body, woi_shard_info *info)
{
    json_t *o = json_loadb(body->text ? body->text : "", body->bytes, JSON_REJECT_DUPLICATES, NULL);
    size_t probes = 0;
    *info = (woi_shard_info){0};
    const bool fine = copy_word(o, "index", info->digits, sizeof info->digits) &&
                      copy_word(o, "layer", info->layer, sizeof info->layer) && is_checksum(info->digits) &&
                      is_checksum(info->layer) && copy_word(o, "model", info->model, sizeof info->model) &&
                      read_size(o, "m", &info->m) && read_size(o, "d", &info->d) &&
                      read_size(o, "classes", &info->classes) && info->classes <= info->m && read_number(o, info);
    if (read_size(o, "max_probes", &probes)) info->max_probes = (uint32_t)probes;
    info->names = json_is_true(json_object_get(o, "names"));
    info->prior = json_is_true(json_object_get(o, "prior"));
    info->exact_rows = json_is_true(json_object_get(o, "exact_rows"));
    info->log_z = json_is_true(json_object_get(o, "log_z"));
    json_decref(o);
    return fine;
}

/* One that answered, and what it said; whether it fits is found out by comparing them all. */
typedef struct asked {
    bool answers, fits;
    woi_shard_info info;
    char why[WOI_WHY_BYTES];
} asked;

static asked *ask_all(const woi_server *server)
{
    const woi_shards *all = server->shards;
    woi_told *told = calloc(all->n, sizeof *told);
    asked *a = calloc(all->n, sizeof *a);
    if (told && a) woi_fanout_ask(server, told);
    for (size_t i = 0; told && a && i < all->n; i++) {
        memcpy(a[i].why, told[i].why, sizeof a[i].why);
        a[i].answers = !told[i].why[0] && read_info(&told[i].body, &a[i].info);
        if (!a[i].answers && !told[i].why[0])
            snprintf(a[i].why, sizeof a[i].why, "what it says at /v1/info is not what wideout serve says of an index");
        woi_out_free(&told[i].body);
    }
    if (!told) {
        free(a);
        a = NULL;
    }
    free(told);
    return a;
}

static bool alike(const woi_shard_info *a, const woi_shard_info *b)
{
    return a->d == b->d && a->m == b->m && strcmp(a->layer, b->layer) == 0;
}

/* The one that most are like; of several the first. all->n: none answers. */
static size_t typical(const woi_shards *all, const asked *a)
{
    size_t best = all->n, most = 0;
    for (size_t i = 0; i < all->n; i++) {
        size_t n = 0;
        for (size_t j = 0; a[i].answers && j < all->n; j++) n += a[j].answers && alike(&a[i].info, &a[j].info);
        if (n > most) {
            most = n;
            best = i;
        }
    }
    return best;
}

/* Both say which shard they are, and it is the same one. */
static bool same_number(const woi_shard_info *a, const woi_shard_info *b)
{
    return a->count && a->count == b->count && a->number == b->number && alike(a, b);
}

/* Shards of two dealings have some classes twice and lack others. */
static bool same_dealing(const woi_shard_info *a, const woi_shard_info *b)
{
    return !a->count || !b->count || (a->count == b->count && strcmp(a->dealing, b->dealing) == 0);
}

/* Whether each fits the typical one, and why not. */
static void compare(const woi_shards *all, asked *a, size_t with)
{
    for (size_t i = 0; i < all->n; i++) {
        if (!a[i].answers) continue;
        const woi_shard_info *x = &a[i].info, *y = &a[with].info;
        const char *other = all->shard[with].address;
        size_t twin = 0, numbered = 0;
        while (twin < i && !(a[twin].answers && strcmp(a[twin].info.digits, x->digits) == 0)) twin++;
        while (numbered < i && !(a[numbered].answers && same_number(&a[numbered].info, x))) numbered++;
        if (x->d != y->d)
            snprintf(a[i].why, sizeof a[i].why, "it takes queries of %zu numbers, %.60s of %zu", x->d, other, y->d);
        else if (!alike(x, y))
            snprintf(a[i].why, sizeof a[i].why, "its classes are of another layer than those of %.60s", other);
        else if (twin < i)
            snprintf(a[i].why, sizeof a[i].why, "it serves the same index as %.60s", all->shard[twin].address);
        else if (!same_dealing(x, y))
            snprintf(a[i].why, sizeof a[i].why, "its layer was divided into other shards than that of %.60s", other);
        else if (numbered < i)
            snprintf(a[i].why, sizeof a[i].why, "it is shard %zu of %zu, as is %.60s", x->number, x->count,
                     all->shard[numbered].address);
        else
            a[i].fits = true;
    }
}

static uint64_t mixed(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    return hash;
}

/* What was seen of all: changes with any of them. */
static uint64_t sum_of(const woi_shards *all, const asked *a)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < all->n; i++) hash = mixed(mixed(hash, a[i].answers ? a[i].info.digits : "-"), "/");
    return hash;
}

/* ---- A snapshot of them ------------------------------------------------------------------------------------ */

bool woi_shards_enough(const woi_server *server, size_t there)
{
    return server->options.need_most ? 2 * there > server->shards->n : there == server->shards->n;
}

void woi_members_free(woi_members *members)
{
    free(members);
}

static wo_status make_members(woi_snapshot *s, const woi_shards *all, const asked *a, wo_error *err)
{
    woi_members *members = calloc(1, sizeof *members + all->n * sizeof members->of[0]);
    wo_index_info *info = &s->info;
    if (!members) return fail(err, WO_ERR_MEMORY, "out of memory", "", "");
    s->members = members; /* freed with the snapshot */
    *info = (wo_index_info){.struct_size = sizeof *info,
                            .method_name = "shards",
                            .has_names = true,
                            .checksum = 0xcbf29ce484222325,
                            .log_z_error = NAN,
                            .log_z_bias = NAN};
    s->has_full = members->log_z = true;
    s->max_probes = UINT32_MAX;
    members->n = all->n;
    for (size_t i = 0; i < all->n; i++) {
        const woi_shard_info *x = &a[i].info;
        struct woi_member *member = &members->of[i];
        info->checksum = mixed(mixed(info->checksum, a[i].fits ? x->digits : "-"), "/");
        if (!a[i].fits) continue;
        member->there = true;
        memcpy(member->digits, x->digits, sizeof member->digits);
        memcpy(member->model, x->model, sizeof member->model);
        members->classes += x->classes;
        members->log_z = members->log_z && x->log_z;
        s->m = x->m;
        info->d = x->d;
        info->layer_checksum = strtoull(x->layer, NULL, 16);
        info->has_names = info->has_names && x->names;
        s->prior = s->prior || x->prior;
        s->has_full = s->has_full && x->exact_rows;
        if (x->max_probes < s->max_probes) s->max_probes = x->max_probes;
    }
    info->m = members->classes < s->m ? members->classes : s->m;
    return WO_OK;
}

/* "shards 2 and 4 of 4 are not listed": classes that no answer can have. */
static void say_missing(const woi_shards *all, const asked *a)
{
    enum { MOST_SHARDS = 99999, LISTED = 8 };
    size_t count = 0, n = 0, shown = 0;
    for (size_t i = 0; i < all->n && !count; i++) count = a[i].fits ? a[i].info.count : 0;
    for (size_t i = 0; i < all->n; i++) {
        if (!a[i].fits || !a[i].info.count) return; /* who is not there may be the one */
        n++;
    }
    if (!count || count > MOST_SHARDS || n >= count) return;
    woi_out list = {0};
    for (size_t number = 1; number <= count && shown < LISTED; number++) {
        size_t i = 0;
        while (i < all->n && a[i].info.number != number) i++;
        if (i == all->n) woi_out_format(&list, "%s %zu", shown++ ? "," : "", number);
    }
    woi_out_bytes(&list, "", 1);
    woi_say("of the %zu shards of the layer %zu are not listed, and their classes are in no answer:%s%s", count,
            count - n, list.failed ? "" : list.text, count - n > LISTED ? ", ..." : "");
    woi_out_free(&list);
}

wo_status woi_shards_describe(woi_server *server, woi_snapshot *s, wo_error *err)
{
    woi_shards *all = server->shards;
    asked *a = ask_all(server);
    if (!a) return fail(err, WO_ERR_MEMORY, "out of memory", "", "");
    const size_t with = typical(all, a);
    size_t n_fit = 0, bad = all->n, silent = all->n;
    if (with < all->n) compare(all, a, with);
    pthread_mutex_lock(&all->lock);
    all->tried = sum_of(all, a);
    for (size_t i = 0; i < all->n; i++) {
        woi_shard *shard = &all->shard[i];
        shard->up = a[i].fits;
        memcpy(shard->why, a[i].why, sizeof shard->why);
        memcpy(shard->seen, a[i].info.digits, sizeof shard->seen);
        n_fit += a[i].fits;
        if (a[i].answers && !a[i].fits && bad == all->n) bad = i;
        if (!a[i].answers && silent == all->n) silent = i;
    }
    pthread_mutex_unlock(&all->lock);
    wo_status status = WO_OK;
    /* What does not fit is a mistake of whoever starts the server; later on it may be on its way to fit. */
    const size_t blamed = bad < all->n && (!server->current || !woi_shards_enough(server, n_fit)) ? bad
                          : woi_shards_enough(server, n_fit)                                      ? all->n
                                                                                                  : silent;
    if (blamed < all->n) {
        status = fail(err, WO_ERR_ARGUMENT, "shard %s: %s", all->shard[blamed].address, a[blamed].why);
    } else {
        status = make_members(s, all, a, err);
        if (!server->current) say_missing(all, a);
    }
    free(a);
    return status;
}

/* ---- Watching them ----------------------------------------------------------------------------------------- */

void woi_shard_down(woi_shards *all, size_t i, const char *why)
{
    pthread_mutex_lock(&all->lock);
    all->shard[i].up = false;
    snprintf(all->shard[i].why, sizeof all->shard[i].why, "%s", why);
    pthread_mutex_unlock(&all->lock);
}

void woi_shards_hurry(woi_shards *all)
{
    pthread_mutex_lock(&all->lock);
    all->hurry = true;
    pthread_cond_signal(&all->change);
    pthread_mutex_unlock(&all->lock);
}

/* One look at all. Who has another index than the snapshot says is asked for in a reload, which the thread that waits
 * for signals does; once, for what was seen. */
static void look(woi_server *server)
{
    woi_shards *all = server->shards;
    asked *a = ask_all(server);
    if (!a) return;
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const woi_members *members = lease.snapshot->members;
    bool changed = false;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++) {
        woi_shard *shard = &all->shard[i];
        const bool same = members->of[i].there && strcmp(members->of[i].digits, a[i].info.digits) == 0;
        changed = changed || (a[i].answers && !same);
        shard->up = a[i].answers && same;
        memcpy(shard->seen, a[i].info.digits, sizeof shard->seen);
        if (!a[i].answers)
            memcpy(shard->why, a[i].why, sizeof shard->why);
        else if (!same && !shard->why[0])
            snprintf(shard->why, sizeof shard->why, "it has another index now");
        else if (same)
            shard->why[0] = '\0';
    }
    changed = changed && sum_of(all, a) != all->tried;
    pthread_mutex_unlock(&all->lock);
    woi_snapshot_give(server, &lease);
    free(a);
    if (changed) kill(getpid(), SIGHUP);
}

static void *watch(void *ctx)
{
    woi_server *server = ctx;
    woi_shards *all = server->shards;
    pthread_mutex_lock(&all->lock);
    while (!all->stop) {
        const struct timespec until = woi_in(EVERY_S);
        while (!all->stop && !all->hurry && pthread_cond_timedwait(&all->change, &all->lock, &until) != ETIMEDOUT) {
        }
        all->hurry = false;
        if (all->stop) break;
        pthread_mutex_unlock(&all->lock);
        look(server);
        pthread_mutex_lock(&all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

wo_status woi_shards_start(woi_server *server, wo_error *err)
{
    woi_shards *all = server->shards;
    if (!all) return WO_OK;
    wo_status status = woi_fanout_start(server, err);
    if (status) return status;
    all->watching = pthread_create(&all->watcher, NULL, watch, server) == 0;
    if (all->watching) return WO_OK;
    return fail(err, WO_ERR_MEMORY, "no thread can be had for shards", "", "");
}

void woi_shards_stop(woi_server *server)
{
    woi_shards *all = server->shards;
    if (!all) return;
    pthread_mutex_lock(&all->lock);
    all->stop = true;
    pthread_cond_signal(&all->change);
    pthread_mutex_unlock(&all->lock);
    if (all->watching) pthread_join(all->watcher, NULL);
    woi_fanout_stop(server);
}

/* ---- Asking ------------------------------------------------------------------------------------------------ */

bool woi_shards_take(woi_server *server, woi_work *work, woi_reply *reply)
{
    woi_job *job = &work->job;
    const woi_snapshot *s = work->lease.snapshot;
    const woi_members *members = s->members;
    if (job->exact && !s->has_full)
        return woi_refuse(reply, 400, "not every shard has f32 rows, which exact answers need");
    if (job->wants_log_z)
        return woi_refuse(reply, 400, "log_z is what a shard gives: this server is in front of shards");
    if (job->score == WO_SCORES_SOFTMAX)
        return woi_refuse(
            reply, 400, "softmax is over the candidates, which each shard has its own of: expected logits or logprob");
    if (job->score == WO_SCORES_LOGPROB) {
        if (members->classes != s->m)
            return woi_refuse(reply, 400,
                              "log probabilities cannot be merged: the shards have %zu classes together, the layer %zu",
                              members->classes, s->m);
        if (!members->log_z && !job->exact)
            return woi_refuse(reply, 400, "log probabilities cannot be merged: not every shard estimates log Z");
    }
    job->names = job->names && s->info.has_names;
    if (!woi_job_room(job, server, s, reply)) return false;
    reply->later = woi_fanout_enter;
    reply->work = work;
    return true;
}

/* ---- Telling ----------------------------------------------------------------------------------------------- */

bool woi_shards_ready(woi_server *server, const char **why)
{
    static _Thread_local char sentence[WOI_WHY_BYTES + 320];
    woi_shards *all = server->shards;
    size_t up = 0, down = all->n;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++) {
        up += all->shard[i].up;
        if (!all->shard[i].up && down == all->n) down = i;
    }
    const bool enough = woi_shards_enough(server, up);
    if (!enough)
        snprintf(sentence, sizeof sentence, "shard %.260s is missing: %s", all->shard[down].address,
                 all->shard[down].why);
    pthread_mutex_unlock(&all->lock);
    if (!enough) *why = sentence;
    return enough;
}

void woi_shards_info(woi_server *server, woi_out *out)
{
    woi_shards *all = server->shards;
    woi_out_format(out, ", \"need\": \"%s\", \"shards\": [", server->options.need_most ? "most" : "all");
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++) {
        const woi_shard *shard = &all->shard[i];
        woi_out_text(out, i ? ", {\"address\": " : "{\"address\": ");
        woi_out_json_text(out, shard->address);
        woi_out_format(out, ", \"up\": %s, \"index\": ", shard->up ? "true" : "false");
        if (shard->seen[0])
            woi_out_json_text(out, shard->seen);
        else
            woi_out_text(out, "null");
        if (!shard->up) {
            woi_out_text(out, ", \"why\": ");
            woi_out_json_text(out, shard->why);
        }
        woi_out_text(out, "}");
    }
    pthread_mutex_unlock(&all->lock);
    woi_out_text(out, "]");
}

void woi_shards_metrics(woi_server *server, woi_out *out)
{
    static const struct {
        const char *name, *type, *help;
    } told[] = {
        {"shard_up", "gauge", "1 where a shard answers and fits."},
        {"shard_answers_total", "counter", "Answers of a shard that were used."},
        {"shard_failures_total", "counter", "Tries that brought no answer that could be used."},
        {"shard_retries_total", "counter", "Second tries."},
        {"shard_missing_total", "counter", "Requests that a shard has no part in the answer of."},
        {"shard_seconds_total", "counter", "Time that used answers took."},
    };
    woi_shards *all = server->shards;
    pthread_mutex_lock(&all->lock);
    for (size_t t = 0; t < sizeof told / sizeof told[0]; t++) {
        woi_out_format(out, "# HELP wideout_%s %s\n# TYPE wideout_%s %s\n", told[t].name, told[t].help, told[t].name,
                       told[t].type);
        for (size_t i = 0; i < all->n; i++) {
            const woi_shard *x = &all->shard[i];
            const double values[] = {x->up,
                                     (double)atomic_load(&x->answers),
                                     (double)atomic_load(&x->failures),
                                     (double)atomic_load(&x->retries),
                                     (double)atomic_load(&x->missing),
                                     1e-6 * (double)atomic_load(&x->us)};
            woi_out_format(out, "wideout_%s{shard=\"%s\"} %.15g\n", told[t].name, x->address, values[t]);
        }
    }
    pthread_mutex_unlock(&all->lock);
    woi_out_format(out,
                   "# HELP wideout_partial_answers_total Answers that lack a shard.\n"
                   "# TYPE wideout_partial_answers_total counter\nwideout_partial_answers_total %llu\n",
                   (unsigned long long)atomic_load(&all->partial));
}
