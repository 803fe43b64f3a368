/* The library's table of collective calls, by MPI.
 *
 * All calls are the non-blocking ones, which job_wait ends or gives up. Counts of MPI are ints, so data go in pieces.
 * MPI leaves open in which order a sum is added up. Here each rank owns a range of the numbers, gets everybody's part
 * of it, adds in the order of ranks, and hands the result round: the same bits on all ranks, on every network.
 *
 *   ranks        0: a0 a1 a2     1: b0 b1 b2     2: c0 c1 c2
 *   all to all   a0 b0 c0        a1 b1 c1        a2 b2 c2
 *   added        s0              s1              s2               then all gather s0 s1 s2 */
#include "job_state.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE_BYTES = 1 << 30, /* of a broadcast */
    SUM_BYTES = 1 << 25,   /* of a sum: as much again is needed for the parts */
};

static wo_status fail(wo_error *err, wo_status status, const char *sentence)
{
    if (err) *err = (wo_error){.status = status, .offset = WO_NO_OFFSET};
    if (err) snprintf(err->text, sizeof err->text, "%s", sentence);
    return status;
}

/* Ends what was begun, unless it could not be begun. */
static wo_status finish(int begun, MPI_Request *request, wo_error *err)
{
    if (begun != MPI_SUCCESS) return fail(err, WO_ERR_IO, "MPI cannot begin a call");
    return job_wait(request, job_now.limit_s, false, err);
}

static void count(uint64_t bytes)
{
    job_now.phases[job_now.phase].bytes += bytes;
}

/* Once the last word is spoken nothing is begun. */
static wo_status refuse(wo_error *err)
{
    return job_now.over ? fail(err, WO_ERR_CANCELLED, "the job has failed") : WO_OK;
}

static wo_status broadcast(void *ctx, void *data, size_t bytes, int root, wo_error *err)
{
    const wo_collective *calls = ctx;
    wo_status status = refuse(err);
    for (size_t from = 0; !status && from < bytes; from += PIECE_BYTES) {
        const size_t n = bytes - from < PIECE_BYTES ? bytes - from : PIECE_BYTES;
        MPI_Request request = MPI_REQUEST_NULL;
        const int begun = MPI_Ibcast((char *)data + from, (int)n, MPI_BYTE, root, job_now.data, &request);
        status = finish(begun, &request, err);
    }
    if (calls->rank != root) count(bytes);
    return status;
}

/* Counts and places of ranks, as MPI wants them. */
typedef struct places {
    int *counts, *at;
} places;

static bool places_make(places *p, int size)
{
    p->counts = calloc((unsigned)size, sizeof *p->counts);
    p->at = calloc((unsigned)size, sizeof *p->at);
    return p->counts && p->at;
}

static void places_free(places *p)
{
    free(p->counts);
    free(p->at);
}

static wo_status gather(void *ctx, const void *data, const size_t *bytes, void *all, wo_error *err)
{
    const wo_collective *calls = ctx;
    const int size = calls->size, rank = calls->rank;
    size_t total = 0, before = 0;
    if (refuse(err)) return WO_ERR_CANCELLED;
    for (int r = 0; r < size; r++) total += bytes[r];
    for (int r = 0; r < rank; r++) before += bytes[r];
    const bool there = data == (const char *)all + before;
    if (total > INT_MAX) { /* places beyond an int: rank after rank hands out its own */
        char *to = all;
        wo_status status = WO_OK;
        if (bytes[rank] && !there) memcpy(to + before, data, bytes[rank]);
        for (int r = 0; !status && r < size; to += bytes[r++]) status = broadcast(ctx, to, bytes[r], r, err);
        return status;
    }
    places p = {0};
    wo_status status = WO_OK;
    if (!places_make(&p, size)) {
        status = fail(err, WO_ERR_MEMORY, "out of memory");
        goto done;
    }
    for (int r = 0, at = 0; r < size; at += p.counts[r++]) {
        p.counts[r] = (int)bytes[r];
        p.at[r] = at;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    const int begun = MPI_Iallgatherv(there ? MPI_IN_PLACE : data, p.counts[rank], MPI_BYTE, all, p.counts, p.at,
                                      MPI_BYTE, job_now.data, &request);
    status = finish(begun, &request, err);
    count(total - bytes[rank]);
done:
    places_free(&p);
    return status;
}

/* ---- Sums -------------------------------------------------------------------------------------------------- */

/* What a sum is of: MPI's type, and how part is added to part. */
typedef struct kind {
    MPI_Datatype type;
    size_t bytes;
    void (*add)(void *sum, const void *part, size_t n);
} kind;

static void add_f32(void *sum, const void *part, size_t n)
{
    float *to = sum;
    const float *from = part;
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

static void add_f64(void *sum, const void *part, size_t n)
{
    double *to = sum;
    const double *from = part;
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

/* The ranges that ranks own of n numbers. */
static void share_out(places *p, size_t n, int size)
{
    for (int r = 0; r < size; r++) {
        const size_t from = n * (size_t)r / (size_t)size, to = n * ((size_t)r + 1) / (size_t)size;
        p->at[r] = (int)from;
        p->counts[r] = (int)(to - from);
    }
}

/* One piece: n numbers at `data`, and room for as many, and one more a rank, at `parts`. */
static wo_status sum_piece(const wo_collective *calls, kind k, void *data, size_t n, char *parts, wo_error *err)
{
    const int size = calls->size, rank = calls->rank;
    places all = {0}, mine = {0};
    MPI_Request request = MPI_REQUEST_NULL;
    wo_status status = WO_OK;
    if (!places_make(&all, size) || !places_make(&mine, size)) {
        status = fail(err, WO_ERR_MEMORY, "out of memory");
        goto done;
    }
    share_out(&all, n, size);
    const int own = all.counts[rank];
    for (int r = 0; r < size; r++) {
        mine.counts[r] = own;
        mine.at[r] = own * r;
    }
    int begun =
        MPI_Ialltoallv(data, all.counts, all.at, k.type, parts, mine.counts, mine.at, k.type, job_now.data, &request);
    if ((status = finish(begun, &request, err))) goto done;
    const size_t part = (size_t)own * k.bytes;
    for (int r = 1; r < size; r++) k.add(parts, parts + (size_t)r * part, (size_t)own);
    begun = MPI_Iallgatherv(parts, own, k.type, data, all.counts, all.at, k.type, job_now.data, &request);
    status = finish(begun, &request, err);
    count((n - (size_t)own) * k.bytes + (size_t)(size - 1) * part);
done:
    places_free(&all);
    places_free(&mine);
    return status;
}

static wo_status sum(const wo_collective *calls, kind k, void *data, size_t n, wo_error *err)
{
    const size_t piece = SUM_BYTES / k.bytes, most = n < piece ? n : piece;
    if (refuse(err)) return WO_ERR_CANCELLED;
    if (calls->size == 1 || !n) return WO_OK;
    char *parts = malloc((most + (size_t)calls->size) * k.bytes);
    if (!parts) return fail(err, WO_ERR_MEMORY, "out of memory");
    wo_status status = WO_OK;
    for (size_t from = 0; !status && from < n; from += piece)
        status = sum_piece(calls, k, (char *)data + from * k.bytes, n - from < piece ? n - from : piece, parts, err);
    free(parts);
    return status;
}

static wo_status sum_f32(void *ctx, float *data, size_t n, wo_error *err)
{
    return sum(ctx, (kind){MPI_FLOAT, sizeof *data, add_f32}, data, n, err);
}

static wo_status sum_f64(void *ctx, double *data, size_t n, wo_error *err)
{
    return sum(ctx, (kind){MPI_DOUBLE, sizeof *data, add_f64}, data, n, err);
}

/* ---- Calls that overlap ------------------------------------------------------------------------------------ */

/* What is under way, and the counts that MPI looks at until it is done. */
static struct lane {
    MPI_Request request;
    places of_ranks;
} lanes[JOB_LANES] = {
    [JOB_QUERIES] = {.request = MPI_REQUEST_NULL},
    [JOB_NUMBER] = {.request = MPI_REQUEST_NULL},
    [JOB_ROUTES] = {.request = MPI_REQUEST_NULL},
    [JOB_ANSWERS] = {.request = MPI_REQUEST_NULL},
};

wo_status job_broadcast_begin(job_lane lane, void *data, size_t bytes, wo_error *err)
{
    if (refuse(err)) return WO_ERR_CANCELLED;
    if (bytes > PIECE_BYTES) return fail(err, WO_ERR_ARGUMENT, "a block's queries are more than MPI sends");
    if (job_rank() != 0) count(bytes);
    if (MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, job_now.data, &lanes[lane].request) == MPI_SUCCESS) return WO_OK;
    return fail(err, WO_ERR_IO, "MPI cannot begin a call");
}

wo_status job_gather_begin(job_lane lane, void *all, size_t n, size_t bytes, wo_error *err)
{
    const int size = job_size(), rank = job_rank();
    places *p = &lanes[lane].of_ranks;
    if (refuse(err)) return WO_ERR_CANCELLED;
    if (n > (size_t)INT_MAX / bytes) return fail(err, WO_ERR_ARGUMENT, "a block's answers are more than MPI sends");
    if (!p->at && !places_make(p, size)) return fail(err, WO_ERR_MEMORY, "out of memory");
    for (int r = 0; r < size; r++) {
        const size_t first = n * (size_t)r / (size_t)size, end = n * ((size_t)r + 1) / (size_t)size;
        p->at[r] = (int)(first * bytes);
        p->counts[r] = (int)((end - first) * bytes);
    }
    count(n * bytes - (size_t)p->counts[rank]);
    if (MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, p->counts, p->at, MPI_BYTE, job_now.data,
                        &lanes[lane].request) == MPI_SUCCESS)
        return WO_OK;
    return fail(err, WO_ERR_IO, "MPI cannot begin a call");
}

void job_push(void)
{
    int done;
    for (int lane = 0; lane < JOB_LANES && !job_now.over; lane++)
        if (lanes[lane].request != MPI_REQUEST_NULL) MPI_Test(&lanes[lane].request, &done, MPI_STATUS_IGNORE);
}

wo_status job_lane_end(job_lane lane, wo_error *err)
{
    if (lanes[lane].request == MPI_REQUEST_NULL && !job_now.over) return WO_OK;
    return job_wait(&lanes[lane].request, job_now.limit_s, false, err);
}

void job_lanes_leave(void)
{
    bool under_way = false;
    for (int lane = 0; lane < JOB_LANES; lane++) under_way |= lanes[lane].request != MPI_REQUEST_NULL;
    if (under_way) job_last_word(1);
    for (int lane = 0; lane < JOB_LANES && !under_way; lane++) {
        places_free(&lanes[lane].of_ranks);
        lanes[lane].of_ranks = (places){0};
    }
}

void job_fill_calls(wo_collective *calls)
{
    *calls = (wo_collective){
        .struct_size = sizeof *calls, .broadcast = broadcast, .gather = gather, .sum_f32 = sum_f32, .sum_f64 = sum_f64};
    MPI_Comm_rank(job_now.data, &calls->rank);
    MPI_Comm_size(job_now.data, &calls->size);
    calls->ctx = calls;
}
