/* What processes with a shard each hand one another: see together.h. */
#include "index/together.h"

#include "base/answers.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/sized.h"
#include "index/index.h"

#include <inttypes.h>
#include <string.h>

wo_status woi_together_take(const wo_collective **together, wo_collective *copy, wo_error *err)
{
    if (!*together) return WO_OK;
    *copy = (wo_collective){.struct_size = sizeof *copy};
    const wo_status status = woi_sized_take(copy, sizeof *copy, *together, "collective calls", err);
    if (status) return status;
    if (copy->size < 1 || copy->rank < 0 || copy->rank >= copy->size)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "together", "rank %d of %d processes is none", copy->rank,
                               copy->size);
    if (!copy->broadcast || !copy->gather || !copy->sum_f32 || !copy->sum_f64)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "together", "a call of the collective calls is NULL");
    *together = copy;
    return WO_OK;
}

/* ---- Answers ----------------------------------------------------------------------------------------------- */

/* At most so many queries at once. */
static wo_status merge_some(const wo_collective *together, size_t n, size_t k, const woi_answers *to, char *memory,
                            wo_error *err)
{
    const size_t size = (size_t)together->size, bytes = woi_answers_bytes(n, k, to->sums);
    size_t *each = woi_alloc(size, sizeof *each, err), *heads = woi_alloc(size, sizeof *heads, err);
    woi_answers *all = woi_alloc(size, sizeof *all, err);
    wo_status status = each && heads && all ? WO_OK : WO_ERR_MEMORY;
    if (!status) {
        for (size_t r = 0; r < size; r++) {
            each[r] = bytes;
            all[r] = woi_answers_at(memory + r * bytes, n, k, to->sums);
        }
        const woi_answers *own = &all[together->rank];
        if (to->sums) memcpy(own->sums, to->sums, 2 * n * sizeof(double));
        memcpy(own->ids, to->ids, n * k * sizeof(int32_t));
        memcpy(own->scores, to->scores, n * k * sizeof(float));
        status = together->gather(together->ctx, memory + (size_t)together->rank * bytes, each, memory, err);
        if (!status) woi_answers_merge(&(woi_merging){all, heads, size, n, k}, to);
    }
    woi_free(each);
    woi_free(heads);
    woi_free(all);
    return status;
}

wo_status wo_merge_best(const wo_collective *together, const wo_answers *given, wo_error *err)
{
    enum { AT_ONCE = 1 << 22 }; /* bytes of each rank, about */
    wo_answers a = {.struct_size = sizeof a};
    wo_collective copy;
    wo_status status = woi_sized_take(&a, sizeof a, given, "answers", err);
    if (!status) status = woi_together_take(&together, &copy, err);
    if (status || !together || together->size == 1 || !a.n) return status;
    if (!a.ids || !a.scores || !a.k)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "ids or scores are NULL, or k is 0");
    const size_t one = woi_answers_bytes(1, a.k, a.log_sums), fit = AT_ONCE / one;
    const size_t piece = fit < 1 ? 1 : fit < a.n ? fit : a.n;
    char *memory = woi_alloc(piece * one, (size_t)together->size, err);
    if (!memory) return WO_ERR_MEMORY;
    for (size_t first = 0; !status && first < a.n; first += piece) {
        const woi_answers to = {a.log_sums ? a.log_sums + 2 * first : NULL, a.ids + first * a.k,
                                a.scores + first * a.k};
        status = merge_some(together, a.n - first < piece ? a.n - first : piece, a.k, &to, memory, err);
    }
    woi_free(memory);
    return status;
}

wo_status woi_exact_of_all(const woi_exact_call *call, const woi_shard *shard, const wo_collective *together,
                           wo_error *err)
{
    const wo_answers found = {
        .struct_size = sizeof found, .n = call->n, .k = call->k, .ids = call->ids, .scores = call->scores};
    const wo_status status = woi_exact_topk(call, err);
    if (status) return status;
    if (shard) woi_shard_name_rows(shard, call->ids, call->n * call->k);
    return wo_merge_best(together, &found, err);
}

/* ---- Classes ----------------------------------------------------------------------------------------------- */

typedef struct classes_of_all {
    const wo_collective *together;
    const woi_shard *shard;
    size_t rows;
    size_t *each; /* (size): bytes of a rank */
} classes_of_all;

/* Each rank's numbers, of so many bytes, to all; the own are in their place. */
static wo_status gather_alike(const classes_of_all *c, void *all, size_t bytes, wo_error *err)
{
    const wo_collective *together = c->together;
    for (size_t r = 0; r < (size_t)together->size; r++) c->each[r] = bytes;
    return together->gather(together->ctx, (char *)all + (size_t)together->rank * bytes, c->each, all, err);
}

static wo_status fill_maps(void *ctx, size_t first, size_t words, uint64_t *maps, wo_error *err)
{
    const classes_of_all *c = ctx;
    const size_t rank = c->together ? (size_t)c->together->rank : 0;
    woi_shard_map(c->shard, c->rows, first, words, maps + rank * words);
    return c->together ? gather_alike(c, maps, words * sizeof *maps, err) : WO_OK;
}

/* Maps of different lengths could not be handed round. */
static wo_status check_same_m(const classes_of_all *c, uint64_t *all, wo_error *err)
{
    all[c->together->rank] = c->shard->m;
    const wo_status status = gather_alike(c, all, sizeof *all, err);
    for (size_t r = 1; !status && r < (size_t)c->together->size; r++)
        if (all[r] != all[0])
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                            "the layer has %" PRIu64 " classes on rank 0, but %" PRIu64 " on rank %zu", all[0], all[r],
                            r);
    return status;
}

wo_status woi_together_whole(const wo_collective *together, const woi_shard *shard, size_t rows, wo_error *err)
{
    if (!shard->count) return WO_OK;
    const size_t size = together ? (size_t)together->size : 1;
    classes_of_all c = {together, shard, rows, woi_alloc(size, sizeof *c.each, err)};
    uint64_t *all = woi_alloc(size, sizeof *all, err);
    wo_status status = c.each && all ? WO_OK : WO_ERR_MEMORY;
    if (!status && together) status = check_same_m(&c, all, err);
    if (!status) status = woi_shards_check(&(woi_shard_maps){shard->m, size, fill_maps, &c}, err);
    woi_free(c.each);
    woi_free(all);
    return status;
}

wo_status woi_index_whole(const wo_collective *together, const wo_index *index, wo_error *err)
{
    return woi_together_whole(together, &index->shard, index->rows.m, err);
}

/* ---- Cells ------------------------------------------------------------------------------------------------- */

void woi_shard_cells(const woi_shard *shard, size_t rows, woi_cells *cells)
{
    if (!shard->count || !cells->n) return;
    uint32_t kept = 0, at = 0;
    for (size_t c = 0; c < cells->n; c++) {
        const uint32_t end = cells->offsets[c + 1];
        cells->offsets[c] = kept;
        for (; at < end; at++) {
            const int32_t row = woi_shard_row(shard, rows, cells->ids[at]);
            if (row < 0) continue;
            if (cells->shares) cells->shares[kept] = cells->shares[at];
            cells->ids[kept++] = row;
        }
    }
    cells->offsets[cells->n] = kept;
}

/* ---- Lists ------------------------------------------------------------------------------------------------- */

wo_status woi_together_lists(const wo_collective *together, const void *own, size_t own_bytes, void **all,
                             size_t *bytes, wo_error *err)
{
    const size_t size = (size_t)together->size;
    size_t *each = woi_alloc(size, sizeof *each, err), *eights = woi_alloc(size, sizeof *eights, err);
    wo_status status = each && eights ? WO_OK : WO_ERR_MEMORY;
    *all = NULL;
    *bytes = 0;
    for (size_t r = 0; !status && r < size; r++) eights[r] = sizeof own_bytes;
    if (!status) status = together->gather(together->ctx, &own_bytes, eights, each, err);
    for (size_t r = 0; !status && r < size; r++) *bytes += each[r];
    if (!status && !(*all = woi_alloc(*bytes, 1, err))) status = WO_ERR_MEMORY;
    if (!status) status = together->gather(together->ctx, own, each, *all, err);
    if (status) {
        woi_free(*all);
        *all = NULL;
    }
    woi_free(each);
    woi_free(eights);
    return status;
}

/* ---- Agreement --------------------------------------------------------------------------------------------- */

wo_status woi_together_agree(const wo_collective *together, wo_status own, wo_error *err)
{
    if (!together || together->size == 1) return own;
    const size_t size = (size_t)together->size;
    int32_t mine = (int32_t)own, *all = woi_alloc(size, sizeof *all, err);
    size_t *each = woi_alloc(size, sizeof *each, err);
    wo_status status = all && each ? WO_OK : WO_ERR_MEMORY;
    for (size_t r = 0; !status && r < size; r++) each[r] = sizeof mine;
    if (!status) status = together->gather(together->ctx, &mine, each, all, err);
    for (size_t r = 0; !status && !own && r < size; r++)
        if (all[r]) status = woi_fail(err, WO_ERR_CANCELLED, WO_NO_OFFSET, "rank %zu has failed", r);
    woi_free(all);
    woi_free(each);
    return own ? own : status;
}
