/* POST /v1/feedback: labels of queries, which became known after they were answered.
 *
 *   {"query": [..], "labels": [17, "name"]}              one query, or text or features where a network is served
 *   {"queries": [[..], ..], "labels": [[17], ..]}        many
 *   raw float32, (n, d), then n labels as int32          one label each
 *
 * They are checked whole, copied for the thread that learns, and not waited for. */
#include "server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a request brings. */
typedef struct feedback {
    woi_job job; /* its queries */
    bool one;    /* query: labels are a list, not a list of lists */
    const json_t *labels;
    int64_t *indptr;
    int32_t *ids;
    size_t n_ids;
} feedback;

/* ---- Labels ------------------------------------------------------------------------------------------------ */

static bool read_label(const json_t *value, const woi_snapshot *s, size_t query, int32_t *id, woi_reply *reply)
{
    if (json_is_string(value)) {
        woi_called c;
        if (!woi_snapshot_named(s))
            return woi_refuse(reply, 400, "labels of query %zu: the index has no names of classes", query);
        if (!woi_snapshot_called(s, json_string_value(value), json_string_length(value), &c))
            return woi_refuse(reply, 503, "out of memory");
        if (c.n == 1) *id = *c.ids;
        return c.n == 1 || woi_refuse(reply, 400,
                                      c.n > 1 ? "labels of query %zu: more than one class is called '%.60s', "
                                                "say which by its number"
                                              : "labels of query %zu: no class is called '%.60s'",
                                      query, json_string_value(value));
    }
    if (!json_is_integer(value))
        return woi_refuse(reply, 400, "labels of query %zu: expected classes, by number or name", query);
    const json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number >= s->info.m)
        return woi_refuse(reply, 400, "labels of query %zu: %lld is not one of the %zu classes", query,
                          (long long)number, s->info.m);
    *id = (int32_t)number;
    return true;
}

static const json_t *labels_of(const feedback *f, size_t query)
{
    return f->one ? f->labels : json_array_get(f->labels, query);
}

static bool read_labels(feedback *f, const woi_server *server, const woi_snapshot *s, woi_reply *reply)
{
    const size_t n = f->job.n, most = server->options.max_k;
    if (!f->labels) return woi_refuse(reply, 400, "the object has no labels");
    if (!json_is_array(f->labels)) return woi_refuse(reply, 400, "labels is no list");
    if (!f->one && json_array_size(f->labels) != n)
        return woi_refuse(reply, 400, "labels has %zu lists, expected %zu: one for each query",
                          json_array_size(f->labels), n);
    size_t all = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t own = json_array_size(labels_of(f, i));
        if (!json_is_array(labels_of(f, i)) || !own)
            return woi_refuse(reply, 400, "labels of query %zu: expected a list of one or more classes", i);
        if (own > most)
            return woi_refuse(reply, 413, "query %zu has %zu labels, more than the %zu that it may have", i, own, most);
        all += own;
    }
    f->indptr = calloc(n + 1, sizeof *f->indptr);
    f->ids = malloc((all + 1) * sizeof *f->ids);
    if (!f->indptr || !f->ids) return woi_refuse(reply, 503, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *list = labels_of(f, i);
        for (size_t j = 0; j < json_array_size(list); j++)
            if (!read_label(json_array_get(list, j), s, i, &f->ids[f->n_ids++], reply)) return false;
        f->indptr[i + 1] = (int64_t)f->n_ids;
    }
    return true;
}

/* ---- Bodies ------------------------------------------------------------------------------------------------ */

static bool read_object(feedback *f, const woi_server *server, const woi_snapshot *s, json_t *object, woi_reply *reply)
{
    static const char *const ways[] = {"query", "queries", "text", "features"};
    const json_t *format = json_object_get(object, "format");
    json_t *input = NULL;
    const char *way = NULL, *key;
    json_t *value;
    woi_raw_input raw = {.format = WOI_RAW_TEXT};
    json_object_foreach(object, key, value)
    {
        bool known = strcmp(key, "labels") == 0 || strcmp(key, "format") == 0;
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            if (strcmp(key, ways[i]) != 0) continue;
            if (way) return woi_refuse(reply, 400, "%s and %s are the same thing: one of them will do", way, key);
            way = ways[i];
            input = value;
            known = true;
        }
        if (!known) return woi_refuse(reply, 400, "feedback has no member '%.60s'", key);
    }
    if (!way) return woi_refuse(reply, 400, "the object has no query, queries, text or features");
    f->labels = json_object_get(object, "labels");
    if (*way == 'q') {
        f->one = strcmp(way, "query") == 0;
        if (f->one == json_is_array(json_array_get(input, 0)))
            return woi_refuse(reply, 400,
                              f->one ? "query is a list of lists, expected numbers"
                                     : "queries is no list of lists of numbers");
        return woi_job_queries(&f->job, server, s, input, way, reply);
    }
    if (format && !woi_raw_format(format, &raw.format, reply)) return false;
    json_t *list = woi_raw_list(input);
    if (!list) return woi_refuse(reply, 503, "out of memory");
    f->one = !json_is_array(input);
    raw.texts = list;
    raw.what = way;
    const bool fine = woi_job_read(&f->job, server, s, &raw, reply);
    json_decref(list);
    return fine;
}

/* n queries, then n labels. */
static bool read_raw(feedback *f, const woi_server *server, const woi_snapshot *s, const woi_request *request,
                     woi_reply *reply)
{
    const size_t row = s->info.d * sizeof(float), each = row + sizeof(int32_t);
    if (request->body_bytes % each)
        return woi_refuse(reply, 400,
                          "the body has %zu bytes, expected a multiple of %zu: %zu floats a query, and "
                          "behind all queries a label of each",
                          request->body_bytes, each, s->info.d);
    const size_t n = f->job.n = request->body_bytes / each;
    if (!woi_job_fits(server, n, reply)) return false;
    f->job.queries = request->body;
    f->indptr = malloc((n + 1) * sizeof *f->indptr);
    f->ids = malloc((n + 1) * sizeof *f->ids);
    if (!f->indptr || !f->ids) return woi_refuse(reply, 503, "out of memory");
    memcpy(f->ids, (const char *)request->body + n * row, n * sizeof *f->ids);
    f->n_ids = n;
    for (size_t i = 0; i <= n; i++) f->indptr[i] = (int64_t)i;
    for (size_t i = 0; i < n; i++)
        if (f->ids[i] < 0 || (size_t)f->ids[i] >= s->info.m)
            return woi_refuse(reply, 400, "labels of query %zu: %d is not one of the %zu classes", i, (int)f->ids[i],
                              s->info.m);
    return true;
}

/* A query whose length is no float has no scores that are, nor a direction that cells could go by. */
static bool check_queries(const feedback *f, size_t d, woi_reply *reply)
{
    for (size_t i = 0; i < f->job.n; i++) {
        const float *q = f->job.queries + i * d;
        double squares = 0;
        for (size_t j = 0; j < d; j++) squares += (double)q[j] * (double)q[j];
        if (!isfinite((float)squares))
            return woi_refuse(reply, 400,
                              "query %zu: is not finite, or too long: its square is more than a float holds", i);
    }
    return true;
}

/* A removed class is no label. The library says which those are where it scores: by zeros, which cost nothing to make.
 */
static bool check_removed(const feedback *f, const woi_lease *lease, woi_reply *reply)
{
    const woi_snapshot *s = lease->snapshot;
    if (!s->info.n_removed) return true;
    if (!lease->searcher) return woi_refuse(reply, 503, "all searchers are busy");
    float *zeros = calloc(s->info.d, sizeof *zeros), logit;
    bool fine = zeros || woi_refuse(reply, 503, "out of memory");
    for (size_t i = 0; fine && i < f->job.n; i++)
        for (int64_t at = f->indptr[i]; fine && at < f->indptr[i + 1]; at++)
            if (wo_score(lease->searcher, zeros, &f->ids[at], 1, &logit, NULL))
                fine = woi_refuse(reply, 400, "labels of query %zu: class %d was removed from the index", i,
                                  (int)f->ids[at]);
    free(zeros);
    return fine;
}

static void accept(woi_server *server, const feedback *f, const woi_snapshot *s, woi_reply *reply)
{
    const woi_lesson lesson = {.n = f->job.n,
                               .d = s->info.d,
                               .n_labels = f->n_ids,
                               .queries = f->job.queries,
                               .indptr = f->indptr,
                               .labels = f->ids};
    const char *why = woi_learn_offer(server, &lesson);
    if (why) {
        woi_refusal(reply, 503, "%s", why);
        return;
    }
    reply->status = 200;
    reply->type = woi_type_json;
    reply->checksum = s->info.checksum;
    reply->n_queries = f->job.n;
    woi_out_format(&reply->body, "{\"index\": \"%s\", \"queued\": %zu}\n", s->digits, f->job.n);
}

void woi_v1_feedback(woi_server *server, const woi_request *request, woi_reply *reply)
{
    const char *type = request->header(request->ctx, "Content-Type");
    const bool raw = woi_names_type(type, woi_type_bytes);
    json_t *object = NULL;
    if (!server->options.learn) {
        woi_refusal(reply, 403, "this server does not learn: it was started without --learn");
        return;
    }
    if (!woi_no_arguments(request, reply)) return;
    if (!raw && (!woi_check_json(type, reply) ||
                 !(object = woi_body_object(server, request->body, request->body_bytes, server->options.max_k, reply))))
        return;
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const woi_snapshot *s = lease.snapshot;
    feedback f = {.one = false};
    const bool fine = (raw ? read_raw(&f, server, s, request, reply)
                           : read_object(&f, server, s, object, reply) && read_labels(&f, server, s, reply)) &&
                      check_queries(&f, s->info.d, reply) && check_removed(&f, &lease, reply);
    if (!woi_snapshot_whole(lease.snapshot))
        woi_refusal(reply, 503, "%s", woi_damaged);
    else if (fine)
        accept(server, &f, s, reply);
    woi_snapshot_give(server, &lease);
    woi_job_free(&f.job);
    free(f.indptr);
    free(f.ids);
    json_decref(object);
}
