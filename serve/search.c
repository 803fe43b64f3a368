/* A job is run: limits, memory for the answers, the search itself, and what it says of itself. */
#include "server.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ANSWERS = 1 << 20 };

const char woi_type_json[] = "application/json", woi_type_bytes[] = "application/octet-stream",
           woi_type_text[] = "text/plain; charset=utf-8";

void woi_reply_free(woi_reply *reply)
{
    woi_out_free(&reply->body);
    free(reply->missing);
    reply->missing = NULL;
}

void woi_refusal(woi_reply *reply, int status, const char *format, ...)
{
    char sentence[640];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    woi_out_free(&reply->body);
    reply->status = status;
    reply->type = woi_type_json;
    reply->json_bytes = 0;
    reply->checksum = 0;
    if (status == 503 && !reply->retry_after_s) reply->retry_after_s = 1;
    woi_out_text(&reply->body, "{\"error\": ");
    woi_out_json_text(&reply->body, sentence);
    woi_out_text(&reply->body, "}\n");
}

bool woi_refuse_error(woi_reply *reply, const wo_error *err)
{
    const int status = err->status == WO_ERR_MEMORY ? 503 : err->status == WO_ERR_IO ? 500 : 400;
    return woi_refuse(reply, status, "%s", err->text);
}

/* Whether JSON has no more parts than a request can need: each becomes an object, of up to some hundred bytes, also
 * that of two characters. What follows the first mistake is counted too. */
static bool has_room(const char *body, size_t bytes, size_t most_lists, size_t most_values, woi_reply *reply)
{
    size_t lists = 0, commas = 0;
    bool within = false; /* a text */
    for (size_t i = 0; i < bytes; i++) {
        const char c = body[i];
        if (c == '"')
            within = !within;
        else if (within)
            i += c == '\\';
        else if (c == ',')
            commas++;
        else
            lists += c == '[' || c == '{';
    }
    if (lists > most_lists)
        return woi_refuse(reply, 413, "the body has %zu lists and objects, at most %zu are taken", lists, most_lists);
    return commas < most_values ||
           woi_refuse(reply, 413, "the body has %zu values or more, at most %zu are taken", commas + 1, most_values);
}

json_t *woi_body_object(woi_server *server, const char *body, size_t bytes, size_t beside, woi_reply *reply)
{
    enum { OTHER_PARTS = 1024 }; /* names and options */
    json_error_t error;
    if (!bytes) {
        woi_refusal(reply, 400, "there is no body, expected a JSON object");
        return NULL;
    }
    pthread_mutex_lock(&server->lock);
    const size_t d = server->current->info.d, m = server->current->m;
    pthread_mutex_unlock(&server->lock);
    const size_t n = server->options.max_queries;
    if (!has_room(body, bytes, 2 * n + OTHER_PARTS, n * (d + beside) + 3 * m + OTHER_PARTS, reply)) return NULL;
    json_t *object = json_loadb(body, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        woi_refusal(reply, 400, "the body is not JSON: line %d, column %d: %s", error.line, error.column, error.text);
    else if (!json_is_object(object)) {
        json_decref(object);
        object = NULL;
        woi_refusal(reply, 400, "the body is JSON, but no object");
    }
    return object;
}

bool woi_names_type(const char *header, const char *type)
{
    return header && strcasestr(header, type);
}

const char *woi_job_scores(const woi_job *job, const woi_snapshot *s)
{
    if (job->score == WO_SCORES_SOFTMAX) return "softmax";
    if (job->score == WO_SCORES_LOGPROB) return "logprob";
    return s->prior && !job->no_prior ? "logits+prior" : "logits";
}

bool woi_job_room(woi_job *job, const woi_server *server, const woi_snapshot *s, woi_reply *reply)
{
    if (job->k > server->options.max_k)
        return woi_refuse(reply, 400, "k is %zu, expected at most %zu", job->k, server->options.max_k);
    if (job->k > s->info.m) job->k = s->info.m;
    if (job->k > MOST_ANSWERS / job->n)
        return woi_refuse(reply, 413, "%zu queries with %zu answers each are more than the %d answers of a request",
                          job->n, job->k, MOST_ANSWERS);
    job->ids = malloc(job->n * job->k * sizeof *job->ids);
    job->scores = malloc(job->n * job->k * sizeof *job->scores);
    job->stats = malloc(job->n * sizeof *job->stats);
    if (job->wants_log_z) job->log_z = malloc(job->n * sizeof *job->log_z);
    return (job->ids && job->scores && job->stats && (job->log_z || !job->wants_log_z)) ||
           woi_refuse(reply, 503, "out of memory");
}

const char *woi_job_label(const woi_job *job, const woi_snapshot *s, size_t at, size_t *bytes)
{
    if (s->index) return wo_index_label(s->index, job->ids[at], bytes);
    if (!job->labels) return NULL;
    *bytes = job->label_at[at + 1] - job->label_at[at];
    return job->labels + job->label_at[at];
}

static bool is_finite(const float *q, size_t d)
{
    for (size_t i = 0; i < d; i++)
        if (!isfinite(q[i])) return false;
    return true;
}

void woi_job_count(woi_server *server, const woi_job *job)
{
    woi_metrics *m = &server->metrics;
    unsigned long long classes = 0, full = 0, wider = 0;
    for (size_t i = 0; i < job->n; i++) {
        classes += job->stats[i].candidates;
        full += job->stats[i].exact;
        wider += job->stats[i].wider && !job->stats[i].exact;
    }
    atomic_fetch_add_explicit(&m->queries, job->n, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->classes, classes, memory_order_relaxed);
    if (full) atomic_fetch_add_explicit(&m->by_full, full, memory_order_relaxed);
    if (wider) atomic_fetch_add_explicit(&m->by_wider, wider, memory_order_relaxed);
    if (job->n > full + wider) atomic_fetch_add_explicit(&m->by_cells, job->n - full - wider, memory_order_relaxed);
    size_t slot = 0;
    while (slot < WOI_N_SIZES && job->n > (size_t)1 << slot) slot++;
    atomic_fetch_add_explicit(&m->sizes[slot], 1, memory_order_relaxed);
}

bool woi_job_run(woi_job *job, woi_server *server, const woi_lease *lease, woi_reply *reply)
{
    woi_snapshot *s = lease->snapshot;
    if (!lease->searcher) return woi_refuse(reply, 503, "all searchers are busy");
    if (atomic_load(&s->damaged)) return woi_refuse(reply, 503, "%s", woi_damaged);
    if (job->exact && !s->has_full) return woi_refuse(reply, 400, "%s", woi_no_exact);
    if (!woi_job_room(job, server, s, reply)) return false;
    wo_error err;
    const wo_search_call call = {.struct_size = sizeof call,
                                 .queries = job->queries,
                                 .n = job->n,
                                 .k = job->k,
                                 .ids = job->ids,
                                 .scores = job->scores,
                                 .stats = job->stats,
                                 .stats_bytes = sizeof *job->stats,
                                 .by = job->exact ? WO_BY_FULL : WO_BY_PLANNER,
                                 .score = job->score,
                                 .probes = job->probes,
                                 .forbidden = job->forbid,
                                 .n_forbidden = job->n_forbid,
                                 .mandatory = job->require,
                                 .n_mandatory = job->n_require,
                                 .logit_bias = job->bias,
                                 .no_prior = job->no_prior};
    const double before = woi_now_s();
    wo_status status = wo_search_run(lease->searcher, &call, &err);
    if (!status && job->wants_log_z) status = wo_log_partition(lease->searcher, &call, job->log_z, &err);
    job->seconds = woi_now_s() - before;
    if (status) return woi_refuse_error(reply, &err);
    for (size_t i = 0; i < job->n; i++)
        if (job->stats[i].status)
            return woi_refuse(reply, 400, "query %zu: %s", i,
                              is_finite(job->queries + i * s->info.d, s->info.d)
                                  ? "its scores are too large: not finite"
                                  : "is not finite");
    woi_job_count(server, job);
    if (server->shadow) woi_shadow_see(server, lease, job);
    reply->status = 200;
    reply->checksum = s->info.checksum;
    reply->generation = lease->generation->number;
    reply->n_queries = job->n;
    reply->n_k = job->k;
    return true;
}

/* ---- Works ------------------------------------------------------------------------------------------------- */

/* Whether what the shadow finds of a request's queries may change the index: as feedback may, and no more. */
static bool may_teach(const woi_server *server, const woi_request *request)
{
    woi_reply told = {0};
    const bool may = server->learner && server->shadow && woi_may(server, request, WOI_FOR_ADMINS, &told);
    woi_reply_free(&told);
    return may;
}

void woi_work_begin(woi_server *server, const woi_request *request, woi_work *work,
                    void (*finish)(woi_server *server, woi_work *work, woi_reply *reply, bool done))
{
    work->finish = finish;
    woi_job_begin(&work->job, server);
    work->job.may_teach = may_teach(server, request);
    woi_snapshot_take(server, &work->lease);
}

void woi_work_run(woi_server *server, woi_work *work, bool read, woi_reply *reply)
{
    if (woi_guard_met()) atomic_store(&work->lease.snapshot->damaged, true); /* in the network; others may go on */
    if (read && server->shards) {
        read = woi_shards_take(server, work, reply);
        if (read) return;
    }
    if (read && woi_batch_takes(server, &work->job)) {
        woi_snapshot_return(server, &work->lease); /* those who wait need none */
        reply->later = woi_batch_enter;
        reply->work = work;
        return;
    }
    work->finish(server, work, reply, read && woi_job_run(&work->job, server, &work->lease, reply));
}

void woi_work_end(woi_server *server, woi_work *work, woi_reply *reply)
{
    if (!woi_snapshot_whole(work->lease.snapshot)) woi_refusal(reply, 503, "%s", woi_damaged);
    woi_snapshot_give(server, &work->lease);
    woi_job_free(&work->job);
}
