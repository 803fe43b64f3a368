/* Asking all ranks: see ask.h. */
#include "ask.h"

#include "../cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 4 }; /* of a block, between which the next one advances */

/* What a rank says of a query besides its answers. */
typedef struct remark {
    uint32_t candidates;
    int32_t status;
} remark;

typedef struct asking {
    const ask_options *o;
    wo_searcher *searcher;
    size_t d;
    float *room[2]; /* (block, d): where queries of rank 0 arrive */
    const float *q; /* the block that is searched */
    size_t n;
    int32_t *ids;
    float *scores;
    double *sums; /* NULL: scores are logits */
    wo_query_stats *stats;
    remark *remarks, *all; /* (n), (size, n) */
    size_t *each;          /* (size) */
} asking;

static wo_status fail_memory(wo_error *err)
{
    return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
}

static wo_status make(asking *a, const wo_index *index, wo_error *err)
{
    const ask_options *o = a->o;
    const size_t n = o->block, size = (size_t)job_size();
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = o->threads, .max_probes = o->call.probes};
    a->d = wo_index_d(index);
    for (int i = 0; i < 2; i++) a->room[i] = malloc(n * a->d * sizeof *a->room[i]);
    a->ids = malloc(n * o->k * sizeof *a->ids);
    a->scores = malloc(n * o->k * sizeof *a->scores);
    if (o->call.score != WO_SCORES_LOGITS) a->sums = malloc(2 * n * sizeof *a->sums);
    a->stats = malloc(n * sizeof *a->stats);
    a->remarks = malloc(n * sizeof *a->remarks);
    a->all = malloc(n * size * sizeof *a->all);
    a->each = malloc(size * sizeof *a->each);
    if (!a->room[0] || !a->room[1] || !a->ids || !a->scores || (o->call.score != WO_SCORES_LOGITS && !a->sums) ||
        !a->stats || !a->remarks || !a->all || !a->each)
        return fail_memory(err);
    return wo_searcher_create(index, &so, &a->searcher, err);
}

static void release(asking *a)
{
    wo_searcher_free(a->searcher);
    void *const owned[] = {a->room[0], a->room[1], a->ids, a->scores, a->sums, a->stats, a->remarks, a->all, a->each};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

/* This rank's answers to the block. */
static wo_status search(asking *a, wo_error *err)
{
    const size_t k = a->o->k;
    wo_status status = WO_OK;
    job_phase("search");
    /* The same pieces whatever is on its way: FULL has another kernel for a few queries than for many. */
    const size_t piece = a->n / PIECES < 64 ? a->n : (a->n + PIECES - 1) / PIECES;
    for (size_t first = 0; !status && first < a->n; first += piece) {
        wo_search_call call = a->o->call;
        call.struct_size = sizeof call;
        call.queries = a->q + first * a->d;
        call.n = a->n - first < piece ? a->n - first : piece;
        call.k = k;
        call.ids = a->ids + first * k;
        call.scores = a->scores + first * k;
        call.stats = a->stats + first;
        call.stats_bytes = sizeof *a->stats;
        call.score = WO_SCORES_LOGITS;
        call.log_sums = a->sums ? a->sums + 2 * first : NULL;
        status = wo_search_run(a->searcher, &call, err);
        job_push();
    }
    return status;
}

/* Logits to what was asked for. */
static void relate(const asking *a)
{
    const size_t k = a->o->k;
    for (size_t i = 0; a->sums && i < a->n; i++)
        for (size_t j = i * k; j < (i + 1) * k; j++) {
            const double relative = (double)a->scores[j] - a->sums[2 * i] - a->sums[2 * i + 1];
            if (a->o->call.score == WO_SCORES_SOFTMAX) a->scores[j] = a->ids[j] < 0 ? 0 : (float)exp(relative);
            if (a->o->call.score == WO_SCORES_LOGPROB && a->ids[j] >= 0) a->scores[j] = (float)relative;
        }
}

/* Candidates of all ranks; a query that one cannot answer has no answer. */
static wo_status merge_remarks(asking *a, wo_error *err)
{
    const wo_collective *calls = job_calls();
    const size_t n = a->n, k = a->o->k;
    for (size_t i = 0; i < n; i++) a->remarks[i] = (remark){a->stats[i].candidates, (int32_t)a->stats[i].status};
    for (int r = 0; r < calls->size; r++) a->each[r] = n * sizeof *a->all;
    const wo_status status = calls->gather(calls->ctx, a->remarks, a->each, a->all, err);
    if (status) return status;
    for (size_t i = 0; i < n; i++) {
        a->stats[i].candidates = 0;
        for (int r = 0; r < calls->size; r++) {
            const remark *said = &a->all[(size_t)r * n + i];
            a->stats[i].candidates += said->candidates;
            if (said->status) a->stats[i].status = (wo_status)said->status;
        }
        for (size_t j = i * k; a->stats[i].status && j < (i + 1) * k; j++) {
            a->ids[j] = -1;
            a->scores[j] = -INFINITY;
        }
    }
    return WO_OK;
}

static wo_status merge(asking *a, wo_error *err)
{
    job_phase("exchange");
    const wo_answers found = {
        .struct_size = sizeof found, .n = a->n, .k = a->o->k, .ids = a->ids, .scores = a->scores, .log_sums = a->sums};
    wo_status status = wo_merge_best(job_calls(), &found, err);
    if (!status) status = merge_remarks(a, err);
    if (status) return status;
    relate(a);
    const ask_block block = {a->q, a->n, a->o->k, a->ids, a->scores, a->stats};
    job_phase("answers");
    return a->o->answered ? a->o->answered(a->o->answered_ctx, &block, err) : WO_OK;
}

/* A block on its way: rank 0 asks for queries, all learn how many they are, and begin to receive them. */
static wo_status send(asking *a, int room, const float **q, size_t *n, wo_error *err)
{
    uint64_t said = 0;
    wo_status status = WO_OK;
    const wo_collective *calls = job_calls();
    job_phase("exchange");
    *q = a->room[room];
    *n = 0;
    if (calls->rank == 0) {
        if ((status = a->o->next(a->o->next_ctx, a->o->block, q, n, err))) return status;
        said = *n;
    }
    if ((status = calls->broadcast(calls->ctx, &said, sizeof said, 0, err))) return status;
    *n = (size_t)said;
    if (!*n) return WO_OK;
    return job_broadcast_begin((void *)(uintptr_t)*q, *n * a->d * sizeof **q, 0, err); /* rank 0's is only read */
}

static wo_status run(asking *a, wo_error *err)
{
    const float *next = NULL;
    size_t n_next = 0;
    int room = 0;
    wo_status status = send(a, room, &next, &n_next, err);
    while (!status && n_next) {
        if ((status = job_broadcast_end(err))) break;
        a->q = next;
        a->n = n_next;
        room = !room;
        if (a->o->ahead) status = send(a, room, &next, &n_next, err);
        if (!status) status = search(a, err);
        if (!status && a->o->ahead && n_next) status = job_broadcast_end(err);
        if (!status) status = merge(a, err);
        if (!status && !a->o->ahead) status = send(a, room, &next, &n_next, err);
    }
    return status;
}

wo_status ask_all(const wo_index *index, const ask_options *options, wo_error *err)
{
    asking a = {.o = options};
    wo_status status = make(&a, index, err);
    if (!status) status = run(&a, err);
    if (status) job_broadcast_leave();
    release(&a);
    return status;
}
