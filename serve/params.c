/* What a search can be told, from members of a JSON object or from what follows a question mark; and queries as JSON.
 */
#include "server.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_K = 5, MOST_REQUIRED = 1024 };

/* bias is an object: it has no place behind a question mark. */
static const char *const parameters[] = {"k",     "probes", "scores",  "exact", "names",
                                         "prior", "forbid", "require", "bias"};
enum { N_PARAMETERS = sizeof parameters / sizeof parameters[0], N_ARGUMENTS = N_PARAMETERS - 1 };

static const struct {
    const char *word;
    wo_scores score;
} score_words[] = {{"logits", WO_SCORES_LOGITS}, {"softmax", WO_SCORES_SOFTMAX}, {"logprob", WO_SCORES_LOGPROB}};

void woi_job_begin(woi_job *job, const woi_server *server)
{
    *job = (woi_job){.k = DEFAULT_K, .exact = server->options.exact, .names = true};
}

void woi_job_free(woi_job *job)
{
    void *const owned[] = {job->made,   job->forbid, job->require, job->bias,   job->known,   job->ids,
                           job->scores, job->stats,  job->log_z,   job->labels, job->label_at};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) free(owned[i]);
}

static bool no_memory(woi_reply *reply)
{
    return woi_refuse(reply, 503, "out of memory");
}

/* ---- One value each ---------------------------------------------------------------------------------------- */

static bool set_score(woi_job *job, const char *word, woi_reply *reply)
{
    for (size_t i = 0; i < sizeof score_words / sizeof score_words[0]; i++)
        if (word && strcmp(word, score_words[i].word) == 0) {
            job->score = score_words[i].score;
            return true;
        }
    return woi_refuse(reply, 400, "scores is '%.40s', expected logits, softmax or logprob", word ? word : "no text");
}

static bool set_k(woi_job *job, json_int_t k, woi_reply *reply)
{
    if (k < 1) return woi_refuse(reply, 400, "k is %lld, expected 1 or more", (long long)k);
    job->k = (size_t)k; /* the most is checked when it runs */
    return true;
}

static bool set_probes(woi_job *job, const woi_snapshot *s, json_int_t probes, woi_reply *reply)
{
    if (probes < 1 || probes > s->max_probes)
        return woi_refuse(reply, 400, "probes is %lld, expected 1 to %u of this index", (long long)probes,
                          s->max_probes);
    job->probes = (uint32_t)probes;
    return true;
}

static bool set_flag(bool *flag, const char *key, const json_t *value, woi_reply *reply)
{
    if (!json_is_boolean(value)) return woi_refuse(reply, 400, "%s is neither true nor false", key);
    *flag = json_is_true(value);
    return true;
}

static bool add_class(int32_t *id, const char *key, json_int_t value, const woi_snapshot *s, woi_reply *reply)
{
    if (value < 0 || (uint64_t)value >= s->m)
        return woi_refuse(reply, 400, "%s: %lld is not one of the %zu classes", key, (long long)value, s->m);
    *id = (int32_t)value;
    return true;
}

/* All classes that have a name: a mask that knows but some of them would stay open. */
static bool find_classes(woi_called *found, const char *key, const json_t *value, const woi_snapshot *s,
                         woi_reply *reply)
{
    const char *name = json_string_value(value);
    if (!woi_snapshot_named(s))
        return woi_refuse(reply, 400, "%s: '%.60s' is a name, and %s: expected numbers of classes", key, name,
                          s->info.has_names ? "a shard knows its own alone" : "the index has no names of classes");
    if (!woi_snapshot_called(s, name, json_string_length(value), found)) return no_memory(reply);
    return found->n || woi_refuse(reply, 400, "%s: no class is called '%.60s'", key, name);
}

static bool set_classes(int32_t **ids, size_t *n, const char *key, const json_t *list, const woi_snapshot *s,
                        woi_reply *reply)
{
    if (!json_is_array(list)) return woi_refuse(reply, 400, "%s is no list of classes", key);
    const size_t count = json_array_size(list);
    free(*ids);
    *n = 0;
    if (!(*ids = malloc((count + 1) * sizeof **ids))) return no_memory(reply);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        int32_t id = 0;
        woi_called found = {&id, 1};
        if (json_is_string(value)) {
            if (!find_classes(&found, key, value, s, reply)) return false;
        } else if (!json_is_integer(value)) {
            return woi_refuse(reply, 400, "%s: place %zu has no whole number, and no name", key, i);
        } else if (!add_class(&id, key, json_integer_value(value), s, reply)) {
            return false;
        }
        if (found.n > count + s->m - *n) /* what a request takes is bounded: a name again and again is not */
            return woi_refuse(reply, 400, "%s: its names have more classes than there are: is one there twice?", key);
        if (found.n > 1) {
            int32_t *larger = realloc(*ids, (*n + found.n + count - i) * sizeof **ids);
            if (!larger) return no_memory(reply);
            *ids = larger;
        }
        memcpy(*ids + *n, found.ids, found.n * sizeof **ids);
        *n += found.n;
    }
    return true;
}

bool woi_read_number(const char *text, long long *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && !(*text == '0' && text[1]) && !*end && !errno;
}

/* {"17": -2.5, ...} */
static bool set_bias(woi_job *job, const woi_snapshot *s, const json_t *object, woi_reply *reply)
{
    if (!json_is_object(object))
        return woi_refuse(reply, 400, "bias is no object of classes and what is added to their logits");
    if (!job->bias && !(job->bias = calloc(s->m, sizeof *job->bias))) return no_memory(reply);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        long long id;
        int32_t class = 0;
        if (!woi_read_number(key, &id))
            return woi_refuse(reply, 400, "bias: '%.40s' is not one of the %zu classes", key, s->m);
        if (!add_class(&class, "bias", id, s, reply)) return false;
        const float added = (float)json_number_value(value);
        if (!json_is_number(value) || !isfinite(added))
            return woi_refuse(reply, 400, "bias of class %d is no number that a float holds", (int)class);
        job->bias[class] = added;
    }
    return true;
}

static bool whole(const char *key, const json_t *value, woi_reply *reply)
{
    return json_is_integer(value) || woi_refuse(reply, 400, "%s is no whole number", key);
}

bool woi_is_parameter(const char *key)
{
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (strcmp(key, parameters[i]) == 0) return true;
    return false;
}

bool woi_job_set(woi_job *job, const woi_snapshot *s, const char *key, const json_t *value, woi_reply *reply)
{
    bool prior = true;
    if (strcmp(key, "k") == 0) return whole(key, value, reply) && set_k(job, json_integer_value(value), reply);
    if (strcmp(key, "probes") == 0)
        return whole(key, value, reply) && set_probes(job, s, json_integer_value(value), reply);
    if (strcmp(key, "scores") == 0) return set_score(job, json_string_value(value), reply);
    if (strcmp(key, "exact") == 0) return set_flag(&job->exact, key, value, reply);
    if (strcmp(key, "names") == 0) return set_flag(&job->names, key, value, reply);
    if (strcmp(key, "forbid") == 0) return set_classes(&job->forbid, &job->n_forbid, key, value, s, reply);
    if (strcmp(key, "require") == 0) return set_classes(&job->require, &job->n_require, key, value, s, reply);
    if (strcmp(key, "bias") == 0) return set_bias(job, s, value, reply);
    if (strcmp(key, "prior") == 0 && set_flag(&prior, key, value, reply)) {
        job->no_prior = !prior;
        return true;
    }
    return false;
}

/* ---- Behind a question mark -------------------------------------------------------------------------------- */

static bool read_whole(const char *key, const char *text, json_int_t *value, woi_reply *reply)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return woi_refuse(reply, 400, "%s is '%.40s', expected a whole number", key, text);
    return true;
}

/* "3,17" */
static bool read_classes(int32_t **ids, size_t *n, const char *key, const char *text, const woi_snapshot *s,
                         woi_reply *reply)
{
    if (!(*ids = malloc((strlen(text) / 2 + 1) * sizeof **ids))) return no_memory(reply);
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end && *end != ',') || errno)
            return woi_refuse(reply, 400, "%s is '%.40s', expected classes with commas between them", key, text);
        if (!add_class(&(*ids)[*n], key, id, s, reply)) return false;
        ++*n;
        at = end;
        if (!*at) return true;
    }
}

/* A typing error does not go unnoticed, nor what is said twice. */
static bool known_arguments(const woi_request *request, woi_reply *reply)
{
    bool seen[N_ARGUMENTS] = {false};
    const char *name;
    for (size_t i = 0; (name = request->name_at(request->ctx, WOI_ARGUMENTS, i)); i++) {
        size_t at = 0;
        while (at < N_ARGUMENTS && strcmp(name, parameters[at]) != 0) at++;
        if (at == N_ARGUMENTS) return woi_refuse(reply, 400, "a search has no argument '%.60s'", name);
        if (seen[at]) return woi_refuse(reply, 400, "the argument '%s' is there twice", name);
        seen[at] = true;
        if (!request->argument(request->ctx, name))
            return woi_refuse(reply, 400, "the argument '%s' has no value", name);
    }
    return true;
}

bool woi_no_arguments(const woi_request *request, woi_reply *reply)
{
    const char *name = request->name_at(request->ctx, WOI_ARGUMENTS, 0);
    return !name || woi_refuse(reply, 400, "the argument '%.60s' belongs into the body, which is JSON", name);
}

bool woi_job_arguments(woi_job *job, const woi_snapshot *s, const woi_request *request, woi_reply *reply)
{
    bool prior = true;
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"exact", &job->exact}, {"names", &job->names}, {"prior", &prior}};
    const char *text;
    json_int_t value;
    if (!known_arguments(request, reply)) return false;
    if ((text = request->argument(request->ctx, "k")) &&
        (!read_whole("k", text, &value, reply) || !set_k(job, value, reply)))
        return false;
    if ((text = request->argument(request->ctx, "probes")) &&
        (!read_whole("probes", text, &value, reply) || !set_probes(job, s, value, reply)))
        return false;
    if ((text = request->argument(request->ctx, "scores")) && !set_score(job, text, reply)) return false;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (!(text = request->argument(request->ctx, flags[i].name))) continue;
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return woi_refuse(reply, 400, "%s is '%.40s', expected true or false", flags[i].name, text);
        *flags[i].flag = *text == 't';
    }
    job->no_prior = !prior;
    if ((text = request->argument(request->ctx, "forbid")) &&
        !read_classes(&job->forbid, &job->n_forbid, "forbid", text, s, reply))
        return false;
    return !(text = request->argument(request->ctx, "require")) ||
           read_classes(&job->require, &job->n_require, "require", text, s, reply);
}

/* ---- Queries ----------------------------------------------------------------------------------------------- */

bool woi_json_numbers(const json_t *list, size_t query, size_t first, size_t d, float *to, woi_reply *reply)
{
    for (size_t i = 0; i < d; i++) {
        const json_t *value = json_array_get(list, first + i);
        if (!json_is_number(value)) return woi_refuse(reply, 400, "query %zu has no number at place %zu", query, i);
        to[i] = (float)json_number_value(value);
    }
    return true;
}

bool woi_json_row(const json_t *row, size_t query, size_t d, float *to, woi_reply *reply)
{
    if (!json_is_array(row)) return woi_refuse(reply, 400, "query %zu is no list of numbers", query);
    if (json_array_size(row) != d)
        return woi_refuse(reply, 400, "query %zu has %zu numbers, the index takes %zu", query, json_array_size(row), d);
    return woi_json_numbers(row, query, 0, d, to, reply);
}

bool woi_job_fits(const woi_server *server, size_t n, woi_reply *reply)
{
    if (n == 0) return woi_refuse(reply, 400, "there are no queries");
    return n <= server->options.max_queries ||
           woi_refuse(reply, 413, "%zu queries are more than the %zu that a request may have", n,
                      server->options.max_queries);
}

bool woi_job_queries(woi_job *job, const woi_server *server, const woi_snapshot *s, const json_t *list,
                     const char *what, woi_reply *reply)
{
    const size_t d = s->info.d;
    if (!json_is_array(list)) return woi_refuse(reply, 400, "%s is no list", what);
    const bool nested = json_is_array(json_array_get(list, 0));
    const size_t n = nested ? json_array_size(list) : 1;
    if (!woi_job_fits(server, nested ? n : json_array_size(list) > 0, reply)) return false;
    free(job->made);
    if (!(job->made = malloc(n * d * sizeof *job->made))) return no_memory(reply);
    for (size_t i = 0; i < n; i++)
        if (!woi_json_row(nested ? json_array_get(list, i) : list, i, d, job->made + i * d, reply)) return false;
    job->queries = job->made;
    job->n = n;
    return true;
}
