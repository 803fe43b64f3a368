/* The KServe v2 inference protocol, as clients of other servers speak it: health, metadata, inference with tensors in
 * JSON or, by the binary tensor extension, behind it.
 *
 *   input   queries  FP32  (n, d)    or, where a network is served:   text  BYTES  (n)
 *   output  ids      INT32 (n, k)    padded with -1
 *           scores   FP32  (n, k)
 *           names    BYTES (n, k)    where the index has names
 *           log_z    FP32  (n), candidates INT32 (n), where they are asked for: what a front of shards needs
 *
 * The model's version is the index's checksum, so that an answer says which index it is of. */
#include "v2.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Health and metadata ----------------------------------------------------------------------------------- */

const char *woi_v2_rest(woi_server *server, const char *path, woi_reply *reply)
{
    static const char models[] = "/v2/models/", versions[] = "/versions/";
    if (strncmp(path, models, sizeof models - 1) != 0) return NULL;
    const char *name = path + sizeof models - 1, *rest = name + strcspn(name, "/");
    if ((size_t)(rest - name) != strlen(server->options.name) ||
        memcmp(name, server->options.name, (size_t)(rest - name)) != 0) {
        woi_refusal(reply, 404, "there is no model '%.*s': this one is '%s'",
                    (int)(rest - name < 60 ? rest - name : 60), name, server->options.name);
        return NULL;
    }
    if (strncmp(rest, versions, sizeof versions - 1) != 0) return rest;
    const char *version = rest + sizeof versions - 1;
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const bool same = strncmp(version, lease.snapshot->digits, 16) == 0 && (!version[16] || version[16] == '/');
    if (!same) woi_refusal(reply, 404, "there is no version '%.40s': this one is %s", version, lease.snapshot->digits);
    woi_snapshot_give(server, &lease);
    return same ? version + 16 : NULL;
}

static void say(woi_reply *reply, const char *text)
{
    reply->status = 200;
    reply->type = woi_type_json;
    woi_out_text(&reply->body, text);
}

void woi_v2_server(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)server;
    (void)request;
    say(reply, "{\"name\": \"wideout\", \"version\": \"");
    woi_out_text(&reply->body, wo_version());
    woi_out_text(&reply->body, "\", \"extensions\": [\"binary_tensor_data\"]}\n");
}

void woi_v2_live(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)server;
    (void)request;
    say(reply, "{\"live\": true}\n");
}

/* The specification calls it "live" in one place and "ready" in others: both are there. */
void woi_v2_ready(woi_server *server, const woi_request *request, woi_reply *reply)
{
    const char *why;
    (void)request;
    if (woi_is_ready(server, &why))
        say(reply, "{\"ready\": true, \"live\": true}\n");
    else
        woi_refusal(reply, 503, "the server is not ready: /readyz says why");
}

void woi_v2_model_ready(woi_server *server, const woi_request *request, woi_reply *reply)
{
    const char *why;
    (void)request;
    if (!woi_is_ready(server, &why)) {
        woi_refusal(reply, 503, "the model is not ready: /readyz says why");
        return;
    }
    say(reply, "{\"name\": ");
    woi_out_json_text(&reply->body, server->options.name);
    woi_out_text(&reply->body, ", \"ready\": true}\n");
}

void woi_v2_model(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)request;
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const woi_snapshot *s = lease.snapshot;
    woi_out *out = &reply->body;
    reply->checksum = s->info.checksum;
    say(reply, "{\"name\": ");
    woi_out_json_text(out, server->options.name);
    woi_out_format(out, ", \"versions\": [\"%s\"], \"platform\": \"wideout_index\", \"inputs\": [", s->digits);
    woi_out_format(out, "{\"name\": \"queries\", \"datatype\": \"FP32\", \"shape\": [-1, %zu]}", s->info.d);
    if (s->net) woi_out_text(out, ", {\"name\": \"text\", \"datatype\": \"BYTES\", \"shape\": [-1]}");
    woi_out_text(out, "], \"outputs\": [{\"name\": \"ids\", \"datatype\": \"INT32\", \"shape\": [-1, -1]}, "
                      "{\"name\": \"scores\", \"datatype\": \"FP32\", \"shape\": [-1, -1]}");
    if (s->info.has_names) woi_out_text(out, ", {\"name\": \"names\", \"datatype\": \"BYTES\", \"shape\": [-1, -1]}");
    woi_out_text(out, "]}\n");
    woi_snapshot_give(server, &lease);
}

/* ---- Inference --------------------------------------------------------------------------------------------- */

/* A member of an object; NULL where it is null too, as clients write it that say nothing. */
static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* What clients of other servers send along: hints to their queues and sequences, and how their own side reads. Nothing
 * of it changes an answer, so that it can be passed over. All else that is unknown is a mistake: a mask would stay
 * open. */
static bool is_of_others(const char *key)
{
    static const char *const keys[] = {
        "content_type", "headers",        "priority", "sequence_end",
        "sequence_id",  "sequence_start", "timeout",  "triton_enable_empty_final_response"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static const char *const output_names[WOI_N_OUTPUTS] = {"ids", "scores", "names", "log_z", "candidates"};
static const char *const output_types[WOI_N_OUTPUTS] = {"INT32", "FP32", "BYTES", "FP32", "INT32"};

static bool of_query(int which) /* a number each, and not one for each answer */
{
    return which == WOI_LOG_Z || which == WOI_CANDIDATES;
}

static bool read_output(woi_infer *infer, const json_t *output, const woi_snapshot *s, woi_reply *reply)
{
    const char *name = json_string_value(json_object_get(output, "name"));
    if (!name) return woi_refuse(reply, 400, "an output has no name");
    for (int i = 0; i < WOI_N_OUTPUTS; i++) {
        if (strcmp(name, output_names[i]) != 0 || (i == WOI_NAMES && !s->info.has_names)) continue;
        const json_t *binary = member(json_object_get(output, "parameters"), "binary_data");
        if (binary && !json_is_boolean(binary))
            return woi_refuse(reply, 400, "binary_data of output '%s' is neither true nor false", name);
        infer->wanted[i] = true;
        if (binary) infer->binary[i] = json_is_true(binary);
        return true;
    }
    return woi_refuse(reply, 400, "there is no output '%.60s'", name);
}

static bool read_outputs(woi_infer *infer, const json_t *outputs, const woi_snapshot *s, woi_reply *reply)
{
    if (outputs && !json_is_array(outputs)) return woi_refuse(reply, 400, "outputs is no list");
    for (size_t i = 0; i < json_array_size(outputs); i++)
        if (!read_output(infer, json_array_get(outputs, i), s, reply)) return false;
    if (json_array_size(outputs) == 0) {
        infer->wanted[WOI_IDS] = infer->wanted[WOI_SCORES] = true;
        infer->wanted[WOI_NAMES] = s->info.has_names && infer->work.job.names;
    }
    return true;
}

static bool read_parameters(woi_infer *infer, const json_t *parameters, const woi_snapshot *s, woi_reply *reply)
{
    const char *key;
    json_t *value;
    if (parameters && !json_is_object(parameters)) return woi_refuse(reply, 400, "parameters is no object");
    json_object_foreach((json_t *)parameters, key, value)
    {
        if (strcmp(key, "binary_data_output") == 0) {
            if (!json_is_boolean(value)) return woi_refuse(reply, 400, "binary_data_output is neither true nor false");
            for (int i = 0; i < WOI_N_OUTPUTS; i++) infer->binary[i] = json_is_true(value);
        } else if (!is_of_others(key) && !woi_job_set(&infer->work.job, s, key, value, reply))
            return reply->status ? false : woi_refuse(reply, 400, "there is no parameter '%.60s'", key);
    }
    return true;
}

static bool no_parameters(const json_t *object, const char *where, woi_reply *reply)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (woi_is_parameter(key))
            return woi_refuse(reply, 400, "'%s' belongs into the parameters of the request, not into %s", key, where);
    }
    return true;
}

static bool no_parameters_in_each(const json_t *list, const char *where, const char *within, woi_reply *reply)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i), *parameters = member(object, "parameters");
        if (!json_is_object(object)) return woi_refuse(reply, 400, "%s is no object", where);
        if (parameters && !json_is_object(parameters)) return woi_refuse(reply, 400, "%s are no object", within);
        if (!no_parameters(object, where, reply) || !no_parameters(parameters, within, reply)) return false;
    }
    return true;
}

/* The protocol lets members be that nobody knows. One of ours in a wrong place is a mistake: a mask would be open. */
static bool parameters_in_place(const json_t *object, woi_reply *reply)
{
    return no_parameters(object, "the request itself", reply) &&
           no_parameters_in_each(json_object_get(object, "inputs"), "an input", "an input's parameters", reply) &&
           no_parameters_in_each(json_object_get(object, "outputs"), "an output", "an output's parameters", reply);
}

/* One answer of an output. JSON has no infinity: a place without an answer has the lowest float. */
static void write_value(woi_out *out, int which, const woi_infer *infer, const woi_snapshot *s, size_t at)
{
    const woi_job *job = &infer->work.job;
    size_t bytes = 0;
    const char *name = which == WOI_NAMES ? woi_job_label(job, s, at, &bytes) : NULL;
    if (which == WOI_IDS)
        woi_out_format(out, "%d", (int)job->ids[at]);
    else if (which == WOI_CANDIDATES)
        woi_out_format(out, "%u", job->stats[at].candidates);
    else if (which == WOI_LOG_Z)
        woi_out_float(out, job->log_z[at]);
    else if (which == WOI_SCORES)
        woi_out_float(out, isfinite(job->scores[at]) ? job->scores[at] : -FLT_MAX);
    else
        woi_out_json(out, name ? name : "", bytes);
}

/* The same behind the JSON: numbers as they are, texts with their length, 4 bytes, before them. */
static void write_tensor(woi_out *out, int which, const woi_infer *infer, const woi_snapshot *s)
{
    const woi_job *job = &infer->work.job;
    const size_t n = job->n * job->k;
    if (which == WOI_IDS) woi_out_bytes(out, job->ids, n * sizeof *job->ids);
    if (which == WOI_SCORES) woi_out_bytes(out, job->scores, n * sizeof *job->scores);
    if (which == WOI_LOG_Z) woi_out_bytes(out, job->log_z, job->n * sizeof *job->log_z);
    for (size_t i = 0; which == WOI_CANDIDATES && i < job->n; i++) woi_out_bytes(out, &job->stats[i].candidates, 4);
    for (size_t i = 0; which == WOI_NAMES && i < n; i++) {
        size_t bytes = 0;
        const char *name = woi_job_label(job, s, i, &bytes);
        woi_out_bytes(out, &(uint32_t){(uint32_t)bytes}, 4);
        woi_out_bytes(out, name, bytes);
    }
}

static void write_outputs(woi_infer *infer, const woi_server *server, const woi_snapshot *s, woi_reply *reply)
{
    const woi_job *job = &infer->work.job;
    woi_out *out = &reply->body, tensors = {0};
    bool first = true, binary = false;
    woi_out_text(out, "{\"model_name\": ");
    woi_out_json_text(out, server->options.name);
    woi_out_format(out, ", \"model_version\": \"%s\"", s->digits);
    if (infer->id) {
        woi_out_text(out, ", \"id\": ");
        woi_out_json(out, json_string_value(infer->id), json_string_length(infer->id));
    }
    if (reply->missing) {
        woi_out_text(out, ", \"parameters\": {\"missing\": ");
        woi_out_json_text(out, reply->missing);
        woi_out_text(out, "}");
    }
    woi_out_text(out, ", \"outputs\": [");
    for (int i = 0; i < WOI_N_OUTPUTS; i++) {
        if (!infer->wanted[i]) continue;
        woi_out_format(out, "%s{\"name\": \"%s\", \"datatype\": \"%s\", \"shape\": [%zu", first ? "" : ", ",
                       output_names[i], output_types[i], job->n);
        if (!of_query(i)) woi_out_format(out, ", %zu", job->k);
        woi_out_text(out, "], ");
        first = false;
        if (infer->binary[i]) {
            const size_t before = tensors.bytes;
            write_tensor(&tensors, i, infer, s);
            woi_out_format(out, "\"parameters\": {\"binary_data_size\": %zu}}", tensors.bytes - before);
            binary = true;
            continue;
        }
        woi_out_text(out, "\"data\": [");
        for (size_t j = 0; j < job->n * (of_query(i) ? 1 : job->k); j++) {
            if (j) woi_out_text(out, ", ");
            write_value(out, i, infer, s, j);
        }
        woi_out_text(out, "]}");
    }
    woi_out_text(out, "]}");
    reply->type = binary ? woi_type_bytes : woi_type_json;
    if (binary) reply->json_bytes = out->bytes;
    woi_out_bytes(out, tensors.text, tensors.bytes);
    out->failed = out->failed || tensors.failed;
    woi_out_free(&tensors);
}

/* The JSON of a request, and the tensors behind it. */
static json_t *read_body(woi_server *server, const woi_request *request, woi_infer *infer, woi_reply *reply)
{
    const char *length = request->header(request->ctx, "Inference-Header-Content-Length");
    size_t bytes = request->body_bytes;
    if (length) {
        char *end;
        const unsigned long long stated = strtoull(length, &end, 10);
        if (*length < '0' || *length > '9' || *end || stated > bytes) {
            woi_refusal(reply, 400, "Inference-Header-Content-Length is '%.40s', and the body has %zu bytes", length,
                        bytes);
            return NULL;
        }
        bytes = (size_t)stated;
    }
    infer->tail = request->body ? (const char *)request->body + bytes : NULL;
    infer->tail_bytes = request->body_bytes - bytes;
    return woi_body_object(server, request->body, bytes, 0, reply);
}

static void finish(woi_server *server, woi_work *work, woi_reply *reply, bool done)
{
    woi_infer *infer = (woi_infer *)work;
    if (done) write_outputs(infer, server, work->lease.snapshot, reply);
    woi_work_end(server, work, reply);
    json_decref(infer->id);
    free(infer);
}

static bool read_infer(woi_infer *infer, const woi_server *server, const json_t *object, woi_reply *reply)
{
    const woi_snapshot *s = infer->work.lease.snapshot;
    infer->id = json_incref(member(object, "id"));
    if (infer->id && !json_is_string(infer->id)) return woi_refuse(reply, 400, "id is no text");
    return parameters_in_place(object, reply) && read_parameters(infer, member(object, "parameters"), s, reply) &&
           read_outputs(infer, member(object, "outputs"), s, reply) &&
           woi_v2_inputs(infer, server, s, member(object, "inputs"), reply);
}

void woi_v2_infer(woi_server *server, const woi_request *request, woi_reply *reply)
{
    if (!woi_no_arguments(request, reply)) return;
    woi_infer *infer = calloc(1, sizeof *infer);
    if (!infer) {
        woi_refusal(reply, 503, "out of memory");
        return;
    }
    json_t *object = read_body(server, request, infer, reply);
    if (!object) {
        free(infer);
        return;
    }
    woi_work_begin(server, request, &infer->work, finish);
    const bool read = read_infer(infer, server, object, reply);
    json_decref(object);
    infer->work.job.names = infer->wanted[WOI_NAMES];
    infer->work.job.wants_log_z = infer->wanted[WOI_LOG_Z];
    woi_work_run(server, &infer->work, read, reply);
}
