/* What the processes of a job tell each other about a layer that they share. */
#include "net/ranks.h"

#include "base/error.h"
#include "base/mem.h"

#include <string.h>

woi_portion woi_portion_of(const wo_collective *ranks, size_t m)
{
    const size_t rank = ranks ? (size_t)ranks->rank : 0, size = ranks ? (size_t)ranks->size : 1;
    return (woi_portion){rank, size, m > rank ? (m - rank - 1) / size + 1 : 0};
}

typedef struct failure {
    wo_error err;
    int place;
} failure;

wo_status woi_ranks_agree(const wo_collective *ranks, wo_status status, int *place, wo_error *err)
{
    if (!ranks) return status;
    failure one = {.place = place ? *place : 0};
    if (status && err) one.err = *err;
    one.err.status = status;
    const failure own = one;
    double failed = status ? 1 : 0;
    wo_status lost = ranks->sum_f64(ranks->ctx, &failed, 1, err);
    if (lost || failed == 0) return lost;
    for (int root = 0; root < ranks->size; root++) {
        one = own;
        if ((lost = ranks->broadcast(ranks->ctx, &one, sizeof one, root, err))) return lost;
        if (one.err.status) break;
    }
    if (err) *err = one.err;
    if (place) *place = one.place;
    return one.err.status;
}

wo_status woi_ranks_same(const wo_collective *ranks, uint64_t number, const char *differs, wo_error *err)
{
    uint64_t first = number;
    wo_status status = ranks ? ranks->broadcast(ranks->ctx, &first, sizeof first, 0, err) : WO_OK;
    if (status) return status;
    if (first != number) status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "rank %d %s", ranks->rank, differs);
    return woi_ranks_agree(ranks, status, NULL, err);
}

wo_status woi_ranks_all(const wo_collective *ranks, bool yes, bool *all, wo_error *err)
{
    double missing = yes ? 0 : 1;
    wo_status status = ranks ? ranks->sum_f64(ranks->ctx, &missing, 1, err) : WO_OK;
    *all = missing == 0;
    return status;
}

/* ---- Rows -------------------------------------------------------------------------------------------------- */

enum { BLOCK_BYTES = 4 << 20 }; /* of all ranks' rows together */

/* A block: the ranks' rows [from, from + count[r]), one rank after the other, and the same by class. */
typedef struct block {
    size_t *bytes; /* of each rank */
    float *received, *rows;
} block;

static void order_rows(const block *b, int size, size_t width)
{
    const float *from = b->received;
    for (int r = 0; r < size; r++) {
        const size_t n = b->bytes[r] / sizeof(float) / width;
        for (size_t i = 0; i < n; i++, from += width)
            memcpy(b->rows + (i * (size_t)size + (size_t)r) * width, from, width * sizeof *from);
    }
}

static wo_status collect(const wo_collective *ranks, const woi_spread *s, const block *b, size_t per_rank,
                         wo_error *err)
{
    const size_t size = (size_t)ranks->size, longest = (s->m - 1) / size + 1, row_bytes = s->width * sizeof(float);
    wo_status taken = WO_OK;
    for (size_t from = 0; from < longest; from += per_rank) {
        const size_t first = from * size, last = (from + per_rank) * size, end = last < s->m ? last : s->m;
        for (size_t r = 0; r < size; r++)
            b->bytes[r] = end > first + r ? ((end - first - r - 1) / size + 1) * row_bytes : 0;
        wo_status status = ranks->gather(ranks->ctx, s->own + from * s->width, b->bytes, b->received, err);
        if (status) return status;
        if (ranks->rank != 0 || taken) continue;
        order_rows(b, ranks->size, s->width);
        taken = s->take(s->ctx, b->rows, (end - first) * s->width, err);
    }
    return taken;
}

wo_status woi_ranks_collect(const wo_collective *ranks, const woi_spread *s, wo_error *err)
{
    if (!ranks) return s->take(s->ctx, s->own, s->m * s->width, err);
    const size_t size = (size_t)ranks->size, fit = BLOCK_BYTES / (size * s->width * sizeof(float));
    const size_t per_rank = fit ? fit : 1;
    block b = {.bytes = woi_alloc(size, sizeof *b.bytes, err)};
    wo_status status = WO_ERR_MEMORY;
    if (b.bytes && (b.received = woi_alloc(per_rank * size, s->width * sizeof(float), err)) &&
        (b.rows = woi_alloc(per_rank * size, s->width * sizeof(float), err)))
        status = collect(ranks, s, &b, per_rank, err);
    woi_free(b.bytes);
    woi_free(b.received);
    woi_free(b.rows);
    return status;
}
