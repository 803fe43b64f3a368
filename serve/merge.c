/* What shards are asked, and how their answers become one.
 *
 * A shard is asked in KServe's dialect with binary tensors: floats in, ids and scores out, best first. An answer comes
 * from another process, perhaps of another version, perhaps of none of ours: shapes, sizes, order and ids are checked
 * before it is merged. Log probabilities of a shard are over its own classes, p(y | shard). With log Z of each,
 *
 *   log p(y) = log p(y | shard) + log Z(shard) - log(sum over shards of Z) */
#include "shards.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 4096, USUAL_NAME = 256, MOST_JSON = 65536 };

/* ---- The request ------------------------------------------------------------------------------------------- */

static void add_classes(woi_out *out, const char *key, const int32_t *ids, size_t n)
{
    if (!n) return;
    woi_out_format(out, ", \"%s\": [", key);
    for (size_t i = 0; i < n; i++) woi_out_format(out, i ? ",%d" : "%d", (int)ids[i]);
    woi_out_text(out, "]");
}

static void add_bias(woi_out *out, const float *bias, size_t m)
{
    bool first = true;
    woi_out_text(out, ", \"bias\": {");
    for (size_t i = 0; i < m; i++) {
        if (bias[i] == 0) continue;
        woi_out_format(out, "%s\"%zu\": ", first ? "" : ",", i);
        woi_out_float(out, bias[i]);
        first = false;
    }
    woi_out_text(out, "}");
}

bool woi_shard_request(const woi_job *job, const woi_snapshot *s, woi_out *out, size_t *json_bytes)
{
    const size_t bytes = job->n * s->info.d * sizeof(float);
    const bool logprob = job->score == WO_SCORES_LOGPROB;
    woi_out_format(
        out,
        "{\"inputs\": [{\"name\": \"queries\", \"shape\": [%zu, %zu], \"datatype\": \"FP32\", "
        "\"parameters\": {\"binary_data_size\": %zu}}], \"outputs\": [{\"name\": \"ids\"}, {\"name\": \"scores\"}, ",
        job->n, s->info.d, bytes);
    woi_out_format(out, "{\"name\": \"candidates\"}%s%s], ", job->names ? ", {\"name\": \"names\"}" : "",
                   logprob ? ", {\"name\": \"log_z\"}" : "");
    woi_out_format(out, "\"parameters\": {\"binary_data_output\": true, \"k\": %zu, \"scores\": \"%s\", \"exact\": %s",
                   job->k, logprob ? "logprob" : "logits", job->exact ? "true" : "false");
    if (job->no_prior) woi_out_text(out, ", \"prior\": false");
    if (job->probes) woi_out_format(out, ", \"probes\": %u", job->probes);
    add_classes(out, "forbid", job->forbid, job->n_forbid);
    add_classes(out, "require", job->require, job->n_require);
    if (job->bias) add_bias(out, job->bias, s->m);
    woi_out_text(out, "}}");
    *json_bytes = out->bytes;
    woi_out_bytes(out, job->queries, bytes);
    return !out->failed;
}

size_t woi_shard_most(const woi_job *job)
{
    return MOST_JSON + job->n * (8 + job->k * (8 + (job->names ? 4 + USUAL_NAME : 0)));
}

/* ---- One answer -------------------------------------------------------------------------------------------- */

void woi_piece_free(woi_piece *piece)
{
    free(piece->ids);
    free(piece->candidates);
    free(piece->scores);
    free(piece->log_z);
    free(piece->name_at);
    *piece = (woi_piece){0};
}

/* A tensor behind the JSON. */
typedef struct tensor {
    const char *type;
    size_t n, k; /* k 0: of one dimension */
    const char *bytes;
    size_t n_bytes, offset; /* in the body */
} tensor;

static bool wrong(char *why, const char *what)
{
    snprintf(why, WOI_WHY_BYTES, "its answer %s", what);
    return false;
}

static bool read_size(const json_t *value, size_t most, size_t *size)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > most)
        return false;
    *size = (size_t)json_integer_value(value);
    return true;
}

/* Finds an output by its name: the tensors lie in the order of the list. */
static bool find(const json_t *outputs, const woi_piece_body *body, const char *name, tensor *found)
{
    size_t at = body->json_bytes;
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const json_t *o = json_array_get(outputs, i), *shape = json_object_get(o, "shape");
        const char *own = json_string_value(json_object_get(o, "name"));
        size_t bytes = 0;
        if (!read_size(json_object_get(json_object_get(o, "parameters"), "binary_data_size"), body->bytes - at, &bytes))
            return false;
        if (own && strcmp(own, name) == 0) {
            *found = (tensor){.type = json_string_value(json_object_get(o, "datatype")),
                              .bytes = body->text + at,
                              .n_bytes = bytes,
                              .offset = at};
            const size_t dims = json_array_size(shape);
            return found->type && dims >= 1 && dims <= 2 && read_size(json_array_get(shape, 0), INT32_MAX, &found->n) &&
                   (dims == 1 || read_size(json_array_get(shape, 1), INT32_MAX, &found->k));
        }
        at += bytes;
    }
    return false;
}

/* Four bytes each, of this type, (n, k). */
static bool take_words(const tensor *t, const char *type, size_t n, size_t k, void **to)
{
    const size_t count = n * (k ? k : 1);
    if (strcmp(t->type, type) != 0 || t->n != n || t->k != k || t->n_bytes != 4 * count) return false;
    if (!(*to = malloc(4 * count + 1))) return false;
    memcpy(*to, t->bytes, t->n_bytes);
    return true;
}

/* Best first, ids of the layer's classes, and nothing behind the first place without one. */
static bool in_order(const woi_piece *piece, size_t n, size_t m)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < piece->k; j++) {
            const int32_t *id = &piece->ids[i * piece->k + j];
            const float *score = &piece->scores[i * piece->k + j];
            if (*id < -1 || (*id >= 0 && ((size_t)*id >= m || !isfinite(*score)))) return false;
            if (j && *id >= 0 && (id[-1] < 0 || score[-1] < *score)) return false;
        }
    return true;
}

/* No shard answers with a class that it was told to leave out: one that knows no masks would open them. */
static bool keeps_mask(const woi_piece *piece, const woi_job *job, size_t m, bool *memory)
{
    if (!job->n_forbid) return true;
    uint64_t *forbidden = calloc(m / 64 + 1, sizeof *forbidden);
    *memory = forbidden;
    for (size_t i = 0; forbidden && i < job->n_forbid; i++)
        forbidden[job->forbid[i] / 64] |= UINT64_C(1) << job->forbid[i] % 64;
    bool keeps = forbidden;
    for (size_t i = 0; keeps && i < job->n * piece->k; i++)
        keeps = piece->ids[i] < 0 || !(forbidden[piece->ids[i] / 64] >> piece->ids[i] % 64 & 1);
    free(forbidden);
    return keeps;
}

static bool take_names(woi_piece *piece, const tensor *t, size_t n)
{
    const size_t count = n * piece->k;
    if (strcmp(t->type, "BYTES") != 0 || t->n != n || t->k != piece->k) return false;
    if (!(piece->name_at = malloc((count + 1) * sizeof *piece->name_at))) return false;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bytes;
        if (t->n_bytes - at < 4) return false;
        memcpy(&bytes, t->bytes + at, 4);
        piece->name_at[i] = t->offset + at;
        at += 4;
        if (bytes > t->n_bytes - at || bytes > LONGEST_NAME) return false;
        at += bytes;
    }
    piece->name_at[count] = t->offset + at;
    return at == t->n_bytes;
}

static bool finite_all(const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

static bool read_outputs(woi_piece *piece, const woi_job *job, size_t m, const woi_piece_body *body,
                         const json_t *outputs, char *why)
{
    tensor t;
    bool memory = true;
    if (!find(outputs, body, "ids", &t) || !t.k || t.k > job->k ||
        !take_words(&t, "INT32", job->n, t.k, (void **)&piece->ids))
        return wrong(why, "has no ids of the right shape");
    piece->k = t.k;
    if (!find(outputs, body, "scores", &t) || !take_words(&t, "FP32", job->n, piece->k, (void **)&piece->scores))
        return wrong(why, "has no scores of the right shape");
    if (!in_order(piece, job->n, m)) return wrong(why, "has ids of no class, or scores out of order");
    if (!keeps_mask(piece, job, m, &memory))
        return wrong(why, memory ? "has a class that is forbidden" : "cannot be looked at: out of memory");
    if (!find(outputs, body, "candidates", &t) || !take_words(&t, "INT32", job->n, 0, (void **)&piece->candidates))
        return wrong(why, "has no candidates of the right shape");
    if (job->score == WO_SCORES_LOGPROB &&
        (!find(outputs, body, "log_z", &t) || !take_words(&t, "FP32", job->n, 0, (void **)&piece->log_z) ||
         !finite_all(piece->log_z, job->n)))
        return wrong(why, "has no log_z of the right shape");
    if (job->names && (!find(outputs, body, "names", &t) || !take_names(piece, &t, job->n)))
        return wrong(why, "has names that are none");
    return true;
}

bool woi_piece_read(woi_piece *piece, const woi_job *job, size_t m, const woi_piece_body *body, char *why)
{
    *piece = (woi_piece){0};
    if (!body->json_bytes || body->json_bytes > body->bytes || body->json_bytes > MOST_JSON)
        return wrong(why, "is not what KServe's binary tensors look like");
    json_t *head = json_loadb(body->text, body->json_bytes, JSON_REJECT_DUPLICATES, NULL);
    if (!head) return wrong(why, "is not JSON");
    const bool fine = read_outputs(piece, job, m, body, json_object_get(head, "outputs"), why);
    json_decref(head);
    if (!fine) woi_piece_free(piece);
    return fine;
}

/* ---- All answers ------------------------------------------------------------------------------------------- */

/* The classes that a query has already, so that none is answered twice: places by a hash, marked by the query. */
typedef struct seen {
    size_t room; /* a power of two, twice k or more */
    int32_t *ids;
    size_t *marks;
} seen;

static bool is_new(const seen *s, int32_t id, size_t mark)
{
    size_t at = ((uint32_t)id * 2654435769u) & (s->room - 1);
    for (; s->marks[at] == mark; at = (at + 1) & (s->room - 1))
        if (s->ids[at] == id) return false;
    s->ids[at] = id;
    s->marks[at] = mark;
    return true;
}

/* What is added to the scores of each piece: 0, unless they are log probabilities, which come with log Z. */
static void find_shifts(const woi_piece *pieces, size_t n_pieces, size_t query, float *shifts)
{
    double most = -INFINITY, sum = 0;
    for (size_t p = 0; p < n_pieces; p++)
        if (pieces[p].log_z && pieces[p].log_z[query] > most) most = pieces[p].log_z[query];
    for (size_t p = 0; p < n_pieces; p++)
        if (pieces[p].log_z) sum += exp(pieces[p].log_z[query] - most);
    for (size_t p = 0; p < n_pieces; p++)
        shifts[p] = pieces[p].log_z ? (float)(pieces[p].log_z[query] - (most + log(sum))) : 0;
}

/* Where each answer came from: piece and place. */
typedef struct source {
    size_t piece, at;
} source;

static void merge_one(woi_job *job, const woi_piece *pieces, size_t n_pieces, size_t query, const seen *known,
                      source *sources)
{
    size_t heads[WOI_MAX_SHARDS] = {0}, found = 0;
    float shifts[WOI_MAX_SHARDS];
    find_shifts(pieces, n_pieces, query, shifts);
    while (found < job->k) {
        size_t best = n_pieces;
        int32_t best_id = -1;
        float best_score = 0;
        for (size_t p = 0; p < n_pieces; p++) {
            const size_t at = query * pieces[p].k + heads[p];
            if (heads[p] >= pieces[p].k || pieces[p].ids[at] < 0) continue;
            const float score = pieces[p].scores[at] + shifts[p];
            if (best < n_pieces && (score < best_score || (score == best_score && pieces[p].ids[at] > best_id)))
                continue;
            best = p;
            best_id = pieces[p].ids[at];
            best_score = score;
        }
        if (best == n_pieces) break;
        const size_t from = query * pieces[best].k + heads[best]++, to = query * job->k + found;
        if (!is_new(known, best_id, query + 1)) continue;
        job->ids[to] = best_id;
        job->scores[to] = best_score;
        sources[to] = (source){best, from};
        found++;
    }
    for (; found < job->k; found++) {
        job->ids[query * job->k + found] = -1;
        job->scores[query * job->k + found] = -INFINITY;
    }
}

static bool copy_names(woi_job *job, const woi_piece *pieces, const woi_piece_body *bodies, const source *sources)
{
    const size_t n = job->n * job->k;
    woi_out names = {0};
    if (!(job->label_at = malloc((n + 1) * sizeof *job->label_at))) return false;
    for (size_t i = 0; i < n; i++) {
        job->label_at[i] = names.bytes;
        if (job->ids[i] < 0) continue;
        const size_t *starts = pieces[sources[i].piece].name_at, at = sources[i].at, first = starts[at] + 4;
        woi_out_bytes(&names, bodies[sources[i].piece].text + first, starts[at + 1] - first);
    }
    job->label_at[n] = names.bytes;
    woi_out_bytes(&names, "", 1);
    job->labels = names.text;
    return !names.failed;
}

bool woi_pieces_merge(woi_job *job, const woi_piece *pieces, const woi_piece_body *bodies, size_t n_pieces)
{
    seen known = {.room = 2};
    while (known.room < 2 * job->k) known.room *= 2;
    known.ids = malloc(known.room * sizeof *known.ids);
    known.marks = calloc(known.room, sizeof *known.marks);
    source *sources = calloc(job->n * job->k, sizeof *sources);
    bool fine = known.ids && known.marks && sources, names = job->names;
    for (size_t i = 0; fine && i < job->n; i++) {
        merge_one(job, pieces, n_pieces, i, &known, sources);
        job->stats[i] = (wo_query_stats){.exact = job->exact};
        for (size_t p = 0; p < n_pieces; p++) job->stats[i].candidates += (uint32_t)pieces[p].candidates[i];
    }
    for (size_t p = 0; p < n_pieces; p++) names = names && pieces[p].name_at;
    if (fine && names) fine = copy_names(job, pieces, bodies, sources);
    free(known.ids);
    free(known.marks);
    free(sources);
    return fine;
}
