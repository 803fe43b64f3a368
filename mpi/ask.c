/* Asking all ranks: see ask.h.
 *
 *   block      asked for by rank 0 -> broadcast -> each rank routes its range of the queries -> records gathered
 *              -> each rank scores its own classes -> answers gathered -> merged
 *
 * Ahead, three blocks are on their way: while block t - 1 is scored, the queries of t + 1, the records of t and the
 * answers to t - 2 travel. Otherwise one block after the other. */
#include "ask.h"

#include "../cli/cli.h"
#include "base/answers.h"
#include "search/routed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECES = 4,            /* of a block, between which what is under way advances */
    ROOMS = 3,             /* of queries: one arrives, one is routed, one is scored */
    MOST_BYTES = 1 << 28,  /* of a block's queries, records or all answers: where they are more, blocks are smaller */
    REFUSED = INT32_MAX,   /* in place of its candidates: a query that a rank cannot answer */
    ALIGN = sizeof(double) /* of a rank's answers, whose sums come first */
};

/* A block of queries on its way. */
typedef struct passing {
    const float *q;
    size_t n; /* 0: there is none */
} passing;

typedef struct asking {
    const ask_options *o;
    wo_searcher *searcher;
    size_t d, size, rank, block, words; /* words: of a record; 0: nothing is routed apart */
    float *room[ROOMS];                 /* (block, d): where queries of rank 0 arrive */
    uint32_t *routes[2];                /* (block, words) */
    char *said[2];                      /* (size, bytes of a block): see said_by */
    wo_query_stats *stats[2];           /* (block) */
    uint64_t number[2];                 /* of queries in a block, as it is sent */
    woi_answers merged;
    woi_answers *all; /* (size) */
    size_t *heads;    /* (size) */
    /* of rank 0: queries that were given and not sent yet */
    const float *left;
    size_t n_left;
} asking;

static wo_status fail_memory(wo_error *err)
{
    return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
}

static bool with_sums(const asking *a)
{
    return a->o->call.score != WO_SCORES_LOGITS;
}

/* Of a rank's answers to n queries, with their candidates. */
static size_t said_bytes(const asking *a, size_t n)
{
    const size_t bytes = woi_answers_bytes(n, a->o->k, with_sums(a)) + n * sizeof(uint32_t);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* What a rank says of n queries: answers, then candidates (n); the ranks' one after the other. */
static woi_answers said_by(const asking *a, size_t rank, int which, size_t n)
{
    return woi_answers_at(a->said[which] + rank * said_bytes(a, n), n, a->o->k, with_sums(a));
}

static uint32_t *candidates_by(const asking *a, size_t rank, int which, size_t n)
{
    return (void *)(a->said[which] + rank * said_bytes(a, n) + woi_answers_bytes(n, a->o->k, with_sums(a)));
}

static wo_search_call call_of(const asking *a)
{
    wo_search_call call = a->o->call;
    call.struct_size = sizeof call;
    call.score = WO_SCORES_LOGITS;
    call.k = a->o->k;
    return call;
}

static wo_status make(asking *a, const wo_index *index, wo_error *err)
{
    const ask_options *o = a->o;
    const wo_searcher_options so = {.struct_size = sizeof so,
                                    .threads = o->threads,
                                    .max_probes = o->call.probes,
                                    .max_mandatory = (uint32_t)o->call.n_mandatory};
    wo_status status = wo_searcher_create(index, &so, &a->searcher, err);
    if (status) return status;
    a->d = wo_index_d(index);
    a->size = (size_t)job_size();
    a->rank = (size_t)job_rank();
    const wo_search_call call = call_of(a);
    if (a->size > 1 && (status = woi_search_words(a->searcher, &call, &a->words, err))) return status;
    const size_t of_a_query[] = {said_bytes(a, 1) * a->size, a->d * sizeof(float), a->words * sizeof(uint32_t)};
    a->block = o->block;
    for (size_t i = 0; i < sizeof of_a_query / sizeof *of_a_query; i++)
        while (a->block > 1 && a->block * of_a_query[i] > MOST_BYTES) a->block = (a->block + 1) / 2;
    if (o->sent) *o->sent = a->block;
    const size_t n = a->block;
    bool there = true;
    for (int i = 0; i < ROOMS; i++) there &= (a->room[i] = malloc(n * a->d * sizeof(float))) != NULL;
    for (int i = 0; i < 2; i++) {
        there &= (a->routes[i] = malloc(n * a->words * sizeof(uint32_t) + 1)) != NULL;
        there &= (a->said[i] = malloc(a->size * said_bytes(a, n))) != NULL;
        there &= (a->stats[i] = malloc(n * sizeof(wo_query_stats))) != NULL;
    }
    there &= (a->all = malloc(a->size * sizeof *a->all)) != NULL;
    there &= (a->heads = malloc(a->size * sizeof *a->heads)) != NULL;
    void *merged = malloc(woi_answers_bytes(n, o->k, with_sums(a)));
    if (merged) a->merged = woi_answers_at(merged, n, o->k, with_sums(a));
    return there && merged ? WO_OK : fail_memory(err);
}

static void release(asking *a)
{
    wo_searcher_free(a->searcher);
    for (int i = 0; i < ROOMS; i++) free(a->room[i]);
    for (int i = 0; i < 2; i++) {
        free(a->routes[i]);
        free(a->said[i]);
        free(a->stats[i]);
    }
    free(a->all);
    free(a->heads);
    free(a->merged.sums ? (void *)a->merged.sums : a->merged.ids);
}

/* ---- Stages of a block ------------------------------------------------------------------------------------- */

/* Rank 0 asks for queries; `b` becomes a block of them, and *number how many they are. */
static wo_status ask_next(asking *a, passing *b, uint64_t *number, wo_error *err)
{
    wo_status status = WO_OK;
    *number = 0;
    if (a->rank != 0) return WO_OK;
    if (!a->n_left) status = a->o->next(a->o->next_ctx, a->block, &a->left, &a->n_left, err);
    if (status) return status;
    *b = (passing){a->left, a->n_left < a->block ? a->n_left : a->block};
    a->left += b->n * a->d;
    a->n_left -= b->n;
    *number = b->n;
    return WO_OK;
}

/* The queries of a block, whose number is known, begin to arrive. */
static wo_status send(asking *a, size_t t, passing *b, uint64_t number, wo_error *err)
{
    b->n = (size_t)number;
    if (!b->n) return WO_OK;
    if (a->rank != 0) b->q = a->room[t % ROOMS];
    /* Rank 0's are only read. */
    return job_broadcast_begin(JOB_QUERIES, (void *)(uintptr_t)b->q, b->n * a->d * sizeof *b->q, err);
}

/* This rank's range of a block's records; then they are handed round. */
static wo_status route(asking *a, int which, const passing *b, wo_error *err)
{
    if (!a->words || !b->n) return WO_OK;
    uint32_t *routes = a->routes[which];
    const size_t first = b->n * a->rank / a->size, end = b->n * (a->rank + 1) / a->size;
    wo_search_call call = call_of(a);
    call.queries = b->q + first * a->d;
    call.n = end - first;
    job_phase("routing");
    const wo_status status = woi_search_route(a->searcher, &call, routes + first * a->words, err);
    job_phase("exchange");
    return status ? status : job_gather_begin(JOB_ROUTES, routes, b->n, a->words * sizeof *routes, err);
}

/* This rank's answers to a block. */
static wo_status search(asking *a, int which, const passing *b, wo_error *err)
{
    const size_t k = a->o->k, n = b->n;
    wo_status status = WO_OK;
    if (!n) return WO_OK;
    job_phase("search");
    const woi_answers own = said_by(a, a->rank, which, n);
    wo_query_stats *stats = a->stats[which];
    /* The same pieces whatever is on its way: FULL has another kernel for a few queries than for many. */
    const size_t piece = a->size == 1 || n / PIECES < 64 ? n : (n + PIECES - 1) / PIECES;
    for (size_t first = 0; !status && first < n; first += piece) {
        wo_search_call call = call_of(a);
        call.queries = b->q + first * a->d;
        call.n = n - first < piece ? n - first : piece;
        call.ids = own.ids + first * k;
        call.scores = own.scores + first * k;
        call.stats = stats + first;
        call.stats_bytes = sizeof *stats;
        call.log_sums = own.sums ? own.sums + 2 * first : NULL;
        status = woi_search_routed(a->searcher, &call, a->words ? a->routes[which] + first * a->words : NULL, err);
        job_push();
    }
    uint32_t *candidates = candidates_by(a, a->rank, which, n);
    for (size_t i = 0; i < n; i++) candidates[i] = stats[i].status ? REFUSED : stats[i].candidates;
    job_phase("exchange");
    return status;
}

static wo_status hand_round(asking *a, int which, const passing *b, wo_error *err)
{
    if (!b->n || a->size == 1) return WO_OK;
    return job_gather_begin(JOB_ANSWERS, a->said[which], a->size, said_bytes(a, b->n), err);
}

/* Logits to what was asked for. */
static void relate(const asking *a, const woi_answers *to, size_t n)
{
    const size_t k = a->o->k;
    for (size_t i = 0; to->sums && i < n; i++)
        for (size_t j = i * k; j < (i + 1) * k; j++) {
            const double relative = (double)to->scores[j] - to->sums[2 * i] - to->sums[2 * i + 1];
            if (a->o->call.score == WO_SCORES_SOFTMAX) to->scores[j] = to->ids[j] < 0 ? 0 : (float)exp(relative);
            if (a->o->call.score == WO_SCORES_LOGPROB && to->ids[j] >= 0) to->scores[j] = (float)relative;
        }
}

/* Candidates of all ranks; a query that one cannot answer has no answer. */
static void merge_candidates(const asking *a, int which, size_t n, const woi_answers *to)
{
    const size_t k = a->o->k;
    wo_query_stats *stats = a->stats[which];
    for (size_t i = 0; i < n; i++) stats[i].candidates = 0;
    for (size_t r = 0; r < a->size; r++) {
        const uint32_t *candidates = candidates_by(a, r, which, n);
        for (size_t i = 0; i < n; i++) {
            if (candidates[i] == REFUSED)
                stats[i].status = WO_ERR_ARGUMENT;
            else
                stats[i].candidates += candidates[i];
        }
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = i * k; stats[i].status && j < (i + 1) * k; j++) {
            to->ids[j] = -1;
            to->scores[j] = -INFINITY;
        }
}

/* The answers of all ranks, which are here, become one. */
static wo_status merge(asking *a, int which, const passing *b, wo_error *err)
{
    const size_t n = b->n;
    if (!n) return WO_OK;
    job_phase("merging");
    woi_answers to = said_by(a, a->rank, which, n);
    if (a->size > 1) {
        for (size_t r = 0; r < a->size; r++) a->all[r] = said_by(a, r, which, n);
        woi_answers_merge(&(woi_merging){a->all, a->heads, a->size, n, a->o->k}, &a->merged);
        to = a->merged;
    }
    merge_candidates(a, which, n, &to);
    relate(a, &to, n);
    const ask_block block = {n, a->o->k, to.ids, to.scores, a->stats[which]};
    job_phase("answers");
    const wo_status status = a->o->answered ? a->o->answered(a->o->answered_ctx, &block, err) : WO_OK;
    job_phase("exchange");
    return status;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------ */

static wo_status one_by_one(asking *a, wo_error *err)
{
    const wo_collective *calls = job_calls();
    wo_status status = WO_OK;
    while (!status) {
        passing b = {0};
        uint64_t *number = &a->number[0];
        if ((status = ask_next(a, &b, number, err))) break;
        if ((status = calls->broadcast(calls->ctx, number, sizeof *number, 0, err)) || !*number) break;
        status = send(a, 0, &b, *number, err);
        if (!status) status = job_lane_end(JOB_QUERIES, err);
        if (!status) status = route(a, 0, &b, err);
        if (!status) status = job_lane_end(JOB_ROUTES, err);
        if (!status) status = search(a, 0, &b, err);
        if (!status) status = hand_round(a, 0, &b, err);
        if (!status) status = job_lane_end(JOB_ANSWERS, err);
        if (!status) status = merge(a, 0, &b, err);
    }
    return status;
}

/* The queries of block t are here; those of t + 1 begin to arrive, and how many t + 2 has. b[t % 4] is block t. */
static wo_status arrive(asking *a, size_t t, passing b[4], wo_error *err)
{
    wo_status status = job_lane_end(JOB_QUERIES, err);
    if (!status) status = job_lane_end(JOB_NUMBER, err);
    if (status) return status;
    const uint64_t next = a->number[(t + 1) % 2];
    status = send(a, t + 1, &b[(t + 1) % 4], next, err);
    if (status || !next) return status;
    uint64_t *number = &a->number[t % 2];
    status = ask_next(a, &b[(t + 2) % 4], number, err);
    return status ? status : job_broadcast_begin(JOB_NUMBER, number, sizeof *number, err);
}

static wo_status ahead(asking *a, wo_error *err)
{
    const wo_collective *calls = job_calls();
    passing b[4] = {{0}};
    wo_status status = ask_next(a, &b[0], &a->number[0], err);
    if (!status) status = calls->broadcast(calls->ctx, a->number, sizeof *a->number, 0, err);
    if (status || !a->number[0]) return status;
    status = send(a, 0, &b[0], a->number[0], err);
    if (!status) status = ask_next(a, &b[1], &a->number[1], err);
    if (!status) status = job_broadcast_begin(JOB_NUMBER, &a->number[1], sizeof *a->number, err);
    for (size_t t = 0; !status; t++) {
        const passing *now = &b[t % 4], *scored = &b[(t + 3) % 4];
        const passing answered = b[(t + 2) % 4]; /* t - 2, whose place is wanted */
        const int even = (int)(t % 2), odd = !even;
        if (!now->n && !scored->n && !answered.n) break;
        if (now->n)
            status = arrive(a, t, b, err);
        else
            b[(t + 1) % 4].n = 0;
        if (!status) status = job_lane_end(JOB_ROUTES, err);
        if (!status) status = route(a, even, now, err);
        if (!status) status = search(a, odd, scored, err);
        if (!status) status = job_lane_end(JOB_ANSWERS, err);
        if (!status) status = hand_round(a, odd, scored, err);
        if (!status) status = merge(a, even, &answered, err);
    }
    return status;
}

wo_status ask_all(const wo_index *index, const ask_options *options, wo_error *err)
{
    asking a = {.o = options};
    wo_status status = make(&a, index, err);
    job_phase("exchange");
    if (!status) status = options->ahead ? ahead(&a, err) : one_by_one(&a, err);
    job_lanes_leave();
    release(&a);
    return status;
}
