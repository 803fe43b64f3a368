/* The plain dialect: /v1/search, /v1/predict, /v1/info.
 *
 * A search comes as a JSON object, or as raw little-endian float32, (n, d), with what else there is behind the question
 * mark. Answers are JSON, or, where application/octet-stream is accepted, raw: n * k class ids as int32, then as many
 * scores as float32. */
#include "server.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Answers ----------------------------------------------------------------------------------------------- */

static void write_answer(woi_out *out, const woi_job *job, const woi_snapshot *s, size_t at)
{
    size_t bytes = 0;
    const char *name = job->names ? woi_job_label(job, s, at, &bytes) : NULL;
    woi_out_format(out, "{\"id\": %d", (int)job->ids[at]);
    if (name) {
        woi_out_text(out, ", \"name\": ");
        woi_out_json(out, name, bytes);
    }
    woi_out_text(out, ", \"score\": ");
    woi_out_float(out, job->scores[at]);
    woi_out_text(out, "}");
}

/* "a:1,b:2" as a list */
static void write_missing(woi_out *out, const char *missing)
{
    woi_out_text(out, ", \"missing\": [");
    for (const char *at = missing; at && *at;) {
        const size_t bytes = strcspn(at, ",");
        if (at != missing) woi_out_text(out, ", ");
        woi_out_json(out, at, bytes);
        at += bytes + (at[bytes] == ',');
    }
    woi_out_text(out, "]");
}

static void write_json(woi_reply *reply, const woi_job *job, const woi_snapshot *s)
{
    woi_out *out = &reply->body;
    reply->type = woi_type_json;
    woi_out_format(out, "{\"index\": \"%s\", \"scores\": \"%s\", \"us\": %.1f, \"results\": [", s->digits,
                   woi_job_scores(job, s), 1e6 * job->seconds);
    for (size_t i = 0; i < job->n; i++) {
        const wo_query_stats *stats = &job->stats[i];
        woi_out_format(out, "%s\n {\"cells\": %u, \"candidates\": %u", i ? "," : "", stats->cells, stats->candidates);
        if (stats->wider) woi_out_text(out, ", \"wider\": true");
        if (stats->exact) woi_out_text(out, ", \"exact\": true");
        if (job->known) woi_out_format(out, ", \"known\": %u", job->known[i]);
        woi_out_text(out, ", \"answers\": [");
        for (size_t j = 0; j < job->k && job->ids[i * job->k + j] >= 0; j++) {
            if (j) woi_out_text(out, ", ");
            write_answer(out, job, s, i * job->k + j);
        }
        woi_out_text(out, "]}");
    }
    woi_out_text(out, "]");
    if (s->members) write_missing(out, reply->missing);
    woi_out_text(out, "}\n");
}

static void write_raw(woi_reply *reply, const woi_job *job)
{
    reply->type = woi_type_bytes;
    woi_out_bytes(&reply->body, job->ids, job->n * job->k * sizeof *job->ids);
    woi_out_bytes(&reply->body, job->scores, job->n * job->k * sizeof *job->scores);
}

/* ---- Search ------------------------------------------------------------------------------------------------ */

static bool read_raw(woi_job *job, const woi_server *server, const woi_snapshot *s, const woi_request *request,
                     woi_reply *reply)
{
    const size_t row = s->info.d * sizeof(float);
    if (request->body_bytes % row)
        return woi_refuse(reply, 400, "the body has %zu bytes, expected a multiple of %zu: %zu floats a query",
                          request->body_bytes, row, s->info.d);
    job->n = request->body_bytes / row;
    job->queries = request->body;
    return woi_job_fits(server, job->n, reply) && woi_job_arguments(job, s, request, reply);
}

static bool read_search(woi_job *job, const woi_server *server, const woi_snapshot *s, const json_t *object,
                        woi_reply *reply)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const bool one = strcmp(key, "query") == 0;
        if (one || strcmp(key, "queries") == 0) {
            if (job->n) return woi_refuse(reply, 400, "query and queries are the same thing: one of them will do");
            if (one == json_is_array(json_array_get(value, 0)))
                return woi_refuse(reply, 400,
                                  one ? "query is a list of lists, expected numbers"
                                      : "queries is no list of lists of numbers");
            if (!woi_job_queries(job, server, s, value, key, reply)) return false;
        } else if (!woi_job_set(job, s, key, value, reply))
            return reply->status ? false : woi_refuse(reply, 400, "a search has no member '%.60s'", key);
    }
    return job->n || woi_refuse(reply, 400, "the object has neither query nor queries");
}

/* A search, or a prediction, of this dialect. */
typedef struct plain {
    woi_work work;
    bool raw; /* the answer */
} plain;

static void finish(woi_server *server, woi_work *work, woi_reply *reply, bool done)
{
    plain *p = (plain *)work;
    if (done && p->raw)
        write_raw(reply, &work->job);
    else if (done)
        write_json(reply, &work->job, work->lease.snapshot);
    woi_work_end(server, work, reply);
    free(p);
}

/* NULL: the reply says that memory ran out. */
static plain *begin(woi_server *server, const woi_request *request, woi_reply *reply)
{
    plain *p = calloc(1, sizeof *p);
    if (!p) {
        woi_refusal(reply, 503, "out of memory");
        return NULL;
    }
    p->raw = woi_names_type(request->header(request->ctx, "Accept"), woi_type_bytes);
    woi_work_begin(server, request, &p->work, finish);
    return p;
}

bool woi_check_json(const char *type, woi_reply *reply)
{
    if (!type || woi_names_type(type, woi_type_json) || woi_names_type(type, "application/x-www-form-urlencoded"))
        return true;
    return woi_refuse(reply, 415, "the body is '%.80s', expected %s", type, woi_type_json);
}

/* The header of a .npy file would be read as numbers. */
static bool check_npy(const woi_request *request, woi_reply *reply)
{
    static const char magic[] = "\x93NUMPY";
    return request->body_bytes < sizeof magic - 1 || memcmp(request->body, magic, sizeof magic - 1) != 0 ||
           woi_refuse(reply, 415, "the body is a .npy file, expected its numbers alone: float32, without a header");
}

void woi_v1_search(woi_server *server, const woi_request *request, woi_reply *reply)
{
    const char *type = request->header(request->ctx, "Content-Type");
    const bool raw = woi_names_type(type, woi_type_bytes);
    json_t *object = NULL;
    if (!check_npy(request, reply) || (!raw && !woi_no_arguments(request, reply))) return;
    if (!raw && (!woi_check_json(type, reply) ||
                 !(object = woi_body_object(server, request->body, request->body_bytes, 0, reply))))
        return;
    plain *p = begin(server, request, reply);
    const woi_snapshot *s = p ? p->work.lease.snapshot : NULL;
    const bool read = p && (raw ? read_raw(&p->work.job, server, s, request, reply)
                                : read_search(&p->work.job, server, s, object, reply));
    json_decref(object); /* many times the body: nobody who waits keeps it */
    if (!p) return;
    if (p->raw) p->work.job.names = false; /* they have no place there */
    woi_work_run(server, &p->work, read, reply);
}

/* ---- Predict ----------------------------------------------------------------------------------------------- */

bool woi_raw_format(const json_t *value, woi_raw *format, woi_reply *reply)
{
    const char *word = json_string_value(value);
    *format = !word ? WOI_RAW_AUTO : strcmp(word, "xc") == 0 ? WOI_RAW_XC : WOI_RAW_AUTO;
    if (word && strcmp(word, "text") == 0) *format = WOI_RAW_TEXT;
    if (word && strcmp(word, "deb822") == 0) *format = WOI_RAW_DEB822;
    return *format != WOI_RAW_AUTO ||
           woi_refuse(reply, 400, "format is '%.40s', expected text, deb822 or xc", word ? word : "no text");
}

json_t *woi_raw_list(json_t *value)
{
    if (json_is_array(value)) return json_incref(value);
    json_t *list = json_array();
    if (list) json_array_append(list, value);
    return list;
}

static bool read_predict(woi_job *job, const woi_server *server, const woi_snapshot *s, const json_t *object,
                         woi_reply *reply)
{
    const char *key;
    json_t *value, *input = NULL;
    woi_raw_input raw = {.format = WOI_RAW_TEXT};
    bool fine = true;
    json_object_foreach((json_t *)object, key, value)
    {
        const bool text = strcmp(key, "text") == 0 || strcmp(key, "features") == 0;
        if (text && input)
            fine = woi_refuse(reply, 400, "text and features are two ways to say it: one of them will do");
        else if (text) {
            input = woi_raw_list(value);
            raw.what = key;
        } else if (strcmp(key, "format") == 0)
            fine = woi_raw_format(value, &raw.format, reply);
        else if (!woi_job_set(job, s, key, value, reply))
            fine = reply->status ? false : woi_refuse(reply, 400, "a prediction has no member '%.60s'", key);
        if (!fine) break;
    }
    raw.texts = input;
    if (fine && !input) fine = woi_refuse(reply, 400, "the object has neither text nor features");
    if (fine) fine = woi_job_read(job, server, s, &raw, reply);
    json_decref(input);
    return fine;
}

void woi_v1_predict(woi_server *server, const woi_request *request, woi_reply *reply)
{
    json_t *object;
    if (!woi_no_arguments(request, reply) || !woi_check_json(request->header(request->ctx, "Content-Type"), reply) ||
        !(object = woi_body_object(server, request->body, request->body_bytes, server->options.max_k, reply)))
        return;
    plain *p = begin(server, request, reply);
    const bool read = p && read_predict(&p->work.job, server, p->work.lease.snapshot, object, reply);
    json_decref(object);
    if (p) woi_work_run(server, &p->work, read, reply);
}

/* ---- Info -------------------------------------------------------------------------------------------------- */

void woi_v1_info(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)request;
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const woi_snapshot *s = lease.snapshot;
    const wo_index_info *info = &s->info;
    const woi_serve_options *o = &server->options;
    woi_out *out = &reply->body;
    reply->status = 200;
    reply->type = woi_type_json;
    reply->checksum = info->checksum;
    woi_out_format(out, "{\"index\": \"%s\", \"model\": ", s->digits);
    woi_out_json_text(out, o->name);
    woi_out_format(out, ", \"layer\": \"%016" PRIx64 "\", \"classes\": %zu, \"log_z\": %s", info->layer_checksum,
                   info->m, isfinite(info->log_z_error) ? "true" : "false");
    if (info->n_shards)
        woi_out_format(out, ", \"shard\": {\"number\": %u, \"count\": %u, \"dealing\": \"%016" PRIx64 "\"}",
                       info->shard + 1, info->n_shards, info->dealing);
    woi_out_format(out, ", \"version\": \"%s\", \"method\": \"%s\", \"m\": %zu, \"d\": %zu, \"cells\": %llu, ",
                   wo_version(), info->method_name, s->m, info->d, (unsigned long long)info->n_cells);
    woi_out_format(out, "\"entries\": %llu, \"index_bytes\": %llu, \"names\": %s, \"prior\": %s, \"exact_rows\": %s, ",
                   (unsigned long long)info->n_entries, (unsigned long long)info->index_bytes,
                   info->has_names ? "true" : "false", s->prior ? "true" : "false", s->has_full ? "true" : "false");
    woi_out_format(out, "\"max_probes\": %u, \"exact\": %s, \"learns\": %s, ", s->max_probes,
                   o->exact ? "true" : "false", o->learn ? "true" : "false");
    woi_out_format(out, "\"generation\": %llu, \"network\": ",
                   (unsigned long long)(lease.generation ? lease.generation->number : 0));
    if (s->net) {
        woi_out_format(out, "{\"arch\": \"%s\", \"inputs\": %zu, \"extractor\": ", woi_arch_name(s->net->arch),
                       s->net->n_inputs);
        woi_out_json_text(out, s->net->extractor);
        woi_out_format(out, ", \"text\": %s}",
                       (s->net->arch == WOI_ARCH_XC ? s->net->features.n : s->net->labels.n) ? "true" : "false");
    } else
        woi_out_text(out, "null");
    woi_out_format(out,
                   ", \"threads\": %d, \"uptime_s\": %.1f, \"limits\": {\"body_bytes\": %zu, "
                   "\"text_bytes\": %zu, \"texts_bytes\": %zu, \"queries\": %zu, "
                   "\"k\": %zu, \"connections\": %zu, \"seconds\": %g, \"held_bytes\": %.0f}",
                   server->threads, woi_now_s() - server->started_s, o->max_body, o->max_text,
                   woi_most_texts(server, s->net), o->max_queries, o->max_k, o->max_connections, o->timeout_s,
                   (double)o->max_body * WOI_HELD_BODIES);
    if (server->shards) woi_shards_info(server, out);
    woi_out_text(out, "}\n");
    woi_snapshot_give(server, &lease);
}
