/* Tensors of the KServe dialect: names, types, shapes and data, in JSON or behind it. */
#include "v2.h"

#include <stdlib.h>
#include <string.h>

typedef struct tensor {
    const char *name, *type;
    size_t dims, n, width; /* shape: (n, width); width 1 where it has one dimension */
    const json_t *data;
    const char *bytes; /* or these, behind the JSON */
    size_t n_bytes;
} tensor;

static bool read_shape(tensor *t, const json_t *shape, woi_reply *reply)
{
    t->dims = json_array_size(shape);
    if (t->dims < 1 || t->dims > 2)
        return woi_refuse(reply, 400, "shape of input '%.60s' has %zu dimensions", t->name, t->dims);
    size_t *const to[] = {&t->n, &t->width};
    t->width = 1;
    for (size_t i = 0; i < t->dims; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0 || json_integer_value(size) > INT32_MAX)
            return woi_refuse(reply, 400, "shape of input '%.60s' has a size that is none", t->name);
        *to[i] = (size_t)json_integer_value(size);
    }
    return true;
}

static bool read_tensor(woi_infer *infer, const json_t *input, tensor *t, woi_reply *reply)
{
    *t = (tensor){.name = json_string_value(json_object_get(input, "name")),
                  .type = json_string_value(json_object_get(input, "datatype")),
                  .data = json_object_get(input, "data")};
    if (json_is_null(t->data)) t->data = NULL;
    if (!t->name) return woi_refuse(reply, 400, "an input has no name");
    if (!t->type) return woi_refuse(reply, 400, "input '%.60s' has no datatype", t->name);
    if (!read_shape(t, json_object_get(input, "shape"), reply)) return false;
    const json_t *size = json_object_get(json_object_get(input, "parameters"), "binary_data_size");
    if (!size == !t->data)
        return woi_refuse(reply, 400, "input '%.60s' has %s data and binary_data_size", t->name,
                          size ? "both" : "neither");
    if (!size) return json_is_array(t->data) || woi_refuse(reply, 400, "data of input '%.60s' is no list", t->name);
    if (!json_is_integer(size) || json_integer_value(size) < 0 ||
        (uint64_t)json_integer_value(size) > infer->tail_bytes)
        return woi_refuse(reply, 400, "binary_data_size of input '%.60s' is more than the %zu bytes that are there",
                          t->name, infer->tail_bytes);
    t->bytes = infer->tail;
    t->n_bytes = (size_t)json_integer_value(size);
    infer->tail += t->n_bytes;
    infer->tail_bytes -= t->n_bytes;
    return true;
}

/* One number behind the other, or lists within a list as the shape says. */
static bool take_numbers(const tensor *t, size_t n, size_t d, float *to, woi_reply *reply)
{
    const size_t size = json_array_size(t->data);
    const bool nested = json_is_array(json_array_get(t->data, 0));
    if (nested && t->dims == 1)
        return woi_refuse(reply, 400, "data of input 'queries' is nested, and its shape is not");
    if (size != (nested ? n : n * d))
        return woi_refuse(reply, 400, "data of input 'queries' has %zu %s, expected %zu", size,
                          nested ? "lists" : "numbers", nested ? n : n * d);
    for (size_t i = 0; i < n; i++)
        if (!(nested ? woi_json_row(json_array_get(t->data, i), i, d, to + i * d, reply)
                     : woi_json_numbers(t->data, i, i * d, d, to + i * d, reply)))
            return false;
    return true;
}

static bool take_queries(woi_infer *infer, const woi_server *server, const woi_snapshot *s, const tensor *t,
                         woi_reply *reply)
{
    const size_t d = s->info.d;
    const bool flat = t->dims == 1 && t->n == d; /* one query */
    if (strcmp(t->type, "FP32") != 0)
        return woi_refuse(reply, 400, "input 'queries' is of %.20s, expected FP32", t->type);
    if (!flat && t->width != d)
        return woi_refuse(reply, 400, "input 'queries' has shape (%zu, %zu), the index takes (n, %zu)", t->n, t->width,
                          d);
    woi_job *job = &infer->work.job;
    const size_t n = flat ? 1 : t->n;
    if (!woi_job_fits(server, n, reply) || !n) return false;
    if (t->bytes && t->n_bytes != n * d * sizeof(float))
        return woi_refuse(reply, 400, "input 'queries' has %zu bytes, expected %zu", t->n_bytes, n * d * sizeof(float));
    if (!(job->made = malloc(n * d * sizeof(float)))) return woi_refuse(reply, 503, "out of memory");
    if (t->bytes)
        memcpy(job->made, t->bytes, t->n_bytes); /* where the JSON ends nothing is aligned */
    else if (!take_numbers(t, n, d, job->made, reply))
        return false;
    job->queries = job->made;
    job->n = n;
    return true;
}

/* Texts behind the JSON, each after its length in 4 bytes, as a list: n of them, or one more. */
static json_t *texts_of(const tensor *t, size_t n, woi_reply *reply)
{
    json_t *list = json_array();
    for (size_t at = 0; list && at < t->n_bytes && json_array_size(list) <= n;) {
        uint32_t bytes;
        if (t->n_bytes - at < 4) break;
        memcpy(&bytes, t->bytes + at, 4);
        at += 4;
        const bool fits = bytes <= t->n_bytes - at && !memchr(t->bytes + at, '\0', bytes);
        json_t *text = fits ? json_stringn(t->bytes + at, bytes) : NULL;
        if (!text) {
            json_decref(list);
            woi_refusal(reply, 400, "a text of input 'text' has a NUL byte, is no UTF-8, or is longer than the input");
            return NULL;
        }
        json_array_append_new(list, text);
        at += bytes;
    }
    if (!list) woi_refusal(reply, 503, "out of memory");
    return list;
}

static bool take_texts(woi_infer *infer, const woi_server *server, const woi_snapshot *s, const tensor *t,
                       woi_reply *reply)
{
    if (strcmp(t->type, "BYTES") != 0)
        return woi_refuse(reply, 400, "input 'text' is of %.20s, expected BYTES", t->type);
    const size_t n = t->n * t->width;
    if (!woi_job_fits(server, n, reply)) return false;
    json_t *texts = t->bytes ? texts_of(t, n, reply) : json_incref((json_t *)t->data);
    if (!texts) return false;
    const woi_raw_input input = {texts, WOI_RAW_TEXT, "text"};
    const bool fine = json_array_size(texts) == n
                          ? woi_job_read(&infer->work.job, server, s, &input, reply)
                          : woi_refuse(reply, 400, "input 'text' has %zu texts%s, expected %zu", json_array_size(texts),
                                       json_array_size(texts) > n ? " or more" : "", n);
    json_decref(texts);
    return fine;
}

bool woi_v2_inputs(woi_infer *infer, const woi_server *server, const woi_snapshot *s, const json_t *inputs,
                   woi_reply *reply)
{
    tensor t;
    if (!json_is_array(inputs))
        return woi_refuse(reply, 400, inputs ? "inputs is no list" : "the object has no inputs");
    if (json_array_size(inputs) != 1)
        return woi_refuse(reply, 400, "there are %zu inputs, expected one: queries%s", json_array_size(inputs),
                          s->net ? ", or text" : "");
    if (!read_tensor(infer, json_array_get(inputs, 0), &t, reply)) return false;
    if (infer->tail_bytes)
        return woi_refuse(reply, 400, "%zu bytes behind the JSON belong to no input", infer->tail_bytes);
    if (strcmp(t.name, "queries") == 0) return take_queries(infer, server, s, &t, reply);
    if (s->net && strcmp(t.name, "text") == 0) return take_texts(infer, server, s, &t, reply);
    return woi_refuse(reply, 400, "there is no input '%.60s', expected queries%s", t.name, s->net ? " or text" : "");
}
