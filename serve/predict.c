/* Texts and features become queries, by the network that is served beside the index. */
#include "server.h"

#include <stdlib.h>
#include <string.h>

/* ---- As lines ---------------------------------------------------------------------------------------------- */

/* A text is one example: in what has an example a line its line ends are spaces. */
static bool add_text(woi_out *lines, const json_t *text, size_t i, const woi_raw_input *input, woi_reply *reply)
{
    const char *from = json_string_value(text);
    const size_t bytes = json_string_length(text);
    if (!from) return woi_refuse(reply, 400, "%s %zu is neither a text nor features", input->what, i);
    if (strspn(from, " \t\r\n\v\f") >= bytes) return woi_refuse(reply, 400, "%s %zu is blank", input->what, i);
    char *to = woi_out_take(lines, bytes);
    if (!to) return woi_refuse(reply, 503, "out of memory");
    memcpy(to, from, bytes);
    for (size_t j = 0; input->format != WOI_RAW_DEB822 && j < bytes; j++)
        if (to[j] == '\n' || to[j] == '\r') to[j] = ' ';
    woi_out_text(lines, input->format == WOI_RAW_DEB822 ? "\n\n" : "\n");
    return true;
}

/* {"NAME or number": value, ...} as a row without labels, " 3:1 17:0.5". Names that the network does not know are left
 * out, as words of a text are. */
static bool add_features(woi_out *lines, const json_t *object, size_t i, const woi_network *net, woi_reply *reply)
{
    const char *key;
    json_t *value;
    const size_t before = lines->bytes;
    json_object_foreach((json_t *)object, key, value)
    {
        long long id;
        if (net->features.n)
            id = woi_names_find(&net->features, key, strlen(key));
        else if (!woi_read_number(key, &id))
            return woi_refuse(reply, 400,
                              "features %zu: '%.40s' is no number, and the network has no names of features", i, key);
        if (!json_is_number(value)) return woi_refuse(reply, 400, "features %zu: '%.40s' is no number", i, key);
        if (id >= 0) woi_out_format(lines, " %lld:%.9g", id, json_number_value(value));
    }
    if (lines->bytes == before) return woi_refuse(reply, 400, "features %zu: the network knows none of them", i);
    woi_out_text(lines, "\n");
    return true;
}

static bool add_all(woi_out *lines, const woi_raw_input *input, woi_raw *format, const woi_network *net,
                    woi_reply *reply)
{
    const size_t n = json_array_size(input->texts);
    const bool features = json_is_object(json_array_get(input->texts, 0));
    *format = features ? WOI_RAW_XC : input->format;
    if (features && net->arch != WOI_ARCH_XC)
        return woi_refuse(reply, 400, "the network is one of words, which takes text and no features");
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(input->texts, i);
        if (json_is_object(value) != features) return woi_refuse(reply, 400, "text and features are mixed at %zu", i);
        if (features ? !add_features(lines, value, i, net, reply) : !add_text(lines, value, i, input, reply))
            return false;
    }
    return !lines->failed || woi_refuse(reply, 503, "out of memory");
}

/* ---- As queries -------------------------------------------------------------------------------------------- */

/* All that the reader gives: job->made and job->known have room for n. */
static bool take_queries(woi_job *job, woi_examples *examples, size_t n, size_t d, woi_reply *reply)
{
    wo_error err;
    bool more = true;
    while (more) {
        woi_example_batch batch;
        if (woi_examples_next(examples, &batch, &more, &err))
            return woi_refuse(reply, err.status == WO_ERR_MEMORY ? 503 : 400, "%s", err.text);
        if (!more) break;
        if (batch.n > n - job->n) return woi_refuse(reply, 400, "the %zu texts hold more examples than that", n);
        memcpy(job->made + job->n * d, batch.q, batch.n * d * sizeof *job->made);
        memcpy(job->known + job->n, batch.known, batch.n * sizeof *job->known);
        job->n += batch.n;
    }
    return job->n == n || woi_refuse(reply, 400, "the %zu texts hold %zu examples", n, job->n);
}

/* A language model multiplies matrices for each word, so that all texts may be no more than one; others add up rows. */
size_t woi_most_texts(const woi_server *server, const woi_network *net)
{
    return (net && net->arch == WOI_ARCH_LM ? 1 : WOI_TEXTS) * server->options.max_text;
}

/* A network takes time for each word, and a thread for as long. */
static bool check_texts(const woi_server *server, const woi_network *net, const woi_raw_input *input, woi_reply *reply)
{
    const size_t n = json_array_size(input->texts), most = server->options.max_text;
    size_t all = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = json_string_length(json_array_get(input->texts, i)); /* 0 of what is none */
        if (bytes > most)
            return woi_refuse(reply, 413, "%s %zu has %zu bytes, at most %zu are taken", input->what, i, bytes, most);
        all += bytes;
    }
    const size_t together = woi_most_texts(server, net);
    return all <= together ||
           woi_refuse(reply, 413, "the %zu texts have %zu bytes together, at most %zu are taken", n, all, together);
}

bool woi_job_read(woi_job *job, const woi_server *server, const woi_snapshot *s, const woi_raw_input *input,
                  woi_reply *reply)
{
    const size_t n = json_array_size(input->texts), d = s->info.d;
    if (!s->net)
        return woi_refuse(reply, 400, "no network is served beside the index: it takes queries, not %s", input->what);
    if (!woi_job_fits(server, n, reply) || !check_texts(server, s->net, input, reply)) return false;
    woi_out lines = {0};
    woi_examples *examples = NULL;
    woi_examples_options how = {.base = WOI_XC_ZERO_BASED, .threads = 1};
    wo_error err;
    bool fine = add_all(&lines, input, &how.raw, s->net, reply);
    if (fine && woi_examples_open_memory(s->net, lines.text, lines.bytes, &how, &examples, &err))
        fine = woi_refuse(reply, err.status == WO_ERR_MEMORY ? 503 : 400, "the network %s", err.text);
    if (fine) {
        job->made = malloc(n * d * sizeof *job->made);
        job->known = malloc(n * sizeof *job->known);
        fine = (job->made && job->known) || woi_refuse(reply, 503, "out of memory");
    }
    if (fine) fine = take_queries(job, examples, n, d, reply);
    job->queries = job->made;
    woi_examples_free(examples);
    woi_out_free(&lines);
    return fine;
}
