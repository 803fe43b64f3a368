/* How stale an index is: wo_index_check_layer.
 *
 * Rows are compared one by one. What the cells still hold is judged on the kept queries: FULL's best by the new rows,
 * and by the index's own, beside the candidates of a search. */
#include "index/keep.h"
#include "search/searcher.h"

#include "base/bf16.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/sized.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CHUNK = 1024, AT = 5 };

/* A new weight beside one that was rounded to bf16: as that one was. */
static float rounded(float weight)
{
    return woi_fits_bf16(weight) ? woi_bf16_to_f32(woi_f32_to_bf16(weight)) : weight;
}

/* The index's row: where it lies or, of bf16 rows alone, made floats of in `room` (d): the index may have many GB. */
static const float *own_row(const wo_index *index, size_t row, float *room)
{
    const size_t d = index->rows.d;
    if (index->rows.w) return index->rows.w + row * d;
    for (size_t j = 0; j < d; j++) room[j] = woi_bf16_to_f32(index->small.bf16[row * d + j]);
    return room;
}

/* |new - old| / |old|, of the row and its bias; 0: they are equal. */
static double change_of(const wo_index *index, size_t row, const woi_dense *new, float *room)
{
    const size_t d = new->d, id = index->shard.count ? (size_t)index->shard.classes[row] : row;
    const float *x = own_row(index, row, room), *y = new->w + id *d;
    const bool halves = !index->rows.w;
    const double before = index->rows.b ? (double)index->rows.b[row] : 0, after = new->b ? (double)new->b[id] : 0;
    double length = before * before, way = (after - before) * (after - before);
    for (size_t j = 0; j < d; j++) {
        const double step = (double)(halves ? rounded(y[j]) : y[j]) - (double)x[j];
        length += (double)x[j] * (double)x[j];
        way += step * step;
    }
    return way == 0 ? 0 : sqrt(way / fmax(length, 1e-300));
}

/* All rows, or a sample: the first, the last and others in even steps between. */
static wo_status compare_rows(const wo_index *index, const woi_dense *new, wo_layer_check *c, wo_error *err)
{
    const size_t m = index->rows.m, n = c->sample && c->sample < m ? c->sample : m;
    float *room = woi_alloc(index->rows.d, sizeof *room, err);
    if (!room) return WO_ERR_MEMORY;
    double sum = 0;
    c->most_change = c->mean_change = NAN;
    for (size_t i = 0; i < n; i++) {
        const size_t row = n > 1 ? i * (m - 1) / (n - 1) : 0;
        const double change = change_of(index, row, new, room);
        if (change == 0 || woi_is_removed(index, (int32_t)row)) continue;
        if (c->changed && c->n_changed < c->changed_room) c->changed[c->n_changed] = (int32_t)row;
        c->n_changed++;
        sum += change;
        c->most_change = fmax(c->most_change, change); /* of a NAN and a number the number */
    }
    if (c->n_changed) c->mean_change = sum / (double)c->n_changed;
    c->n_added = new->m - woi_shard_whole(&index->shard, m);
    woi_free(room);
    return WO_OK;
}

/* The best of a chunk's queries by some rows, and how many of them are in the cells. */
typedef struct side {
    woi_dense rows;
    uint8_t *removed; /* (rows.m) */
    int32_t *ids;     /* (CHUNK, AT) */
    float *scores;
    uint64_t first, five, all; /* found: the best, of the five best; and how many these are */
} side;

typedef struct judging {
    const wo_index *index;
    wo_searcher *searcher;
    int threads;
    side sides[2];    /* the index's own rows, the new ones */
    float *q;         /* (CHUNK, d) */
    int32_t *found;   /* (m): the candidates of a query */
    uint32_t *seen;   /* (m of the new): 1 + the query that had the class last */
    uint64_t n, same; /* queries; those with the same best */
} judging;

static wo_status begin(judging *j, const woi_dense *own, const woi_dense *new, wo_error *err)
{
    const wo_index *index = j->index;
    j->q = woi_alloc(CHUNK * own->d, sizeof *j->q, err);
    j->found = woi_alloc(own->m, sizeof *j->found, err);
    j->seen = woi_alloc_zero(new->m, sizeof *j->seen, err);
    if (!j->q || !j->found || !j->seen) return WO_ERR_MEMORY;
    for (int i = 0; i < 2; i++) {
        side *s = &j->sides[i];
        s->rows = i ? *new : *own;
        s->removed = woi_alloc_zero(s->rows.m, 1, err);
        s->ids = woi_alloc(CHUNK * AT, sizeof *s->ids, err);
        s->scores = woi_alloc(CHUNK * AT, sizeof *s->scores, err);
        if (!s->removed || !s->ids || !s->scores) return WO_ERR_MEMORY;
        for (size_t r = 0; r < index->n_removed; r++) s->removed[index->removed[r]] = 1;
    }
    return wo_searcher_create(index, NULL, &j->searcher, err);
}

static wo_status judge_chunk(judging *j, size_t first, size_t n, wo_error *err)
{
    const size_t d = j->index->rows.d;
    wo_status status = WO_OK;
    woi_keep_read(&j->index->kept, d, NULL, first, n, j->q);
    for (int i = 0; !status && i < 2; i++)
        status = woi_exact_topk(&(woi_exact_call){.layer = &j->sides[i].rows,
                                                  .adjust = {.forbidden = j->sides[i].removed},
                                                  .q = j->q,
                                                  .n = n,
                                                  .k = AT,
                                                  .threads = j->threads,
                                                  .ids = j->sides[i].ids,
                                                  .scores = j->sides[i].scores},
                                err);
    for (size_t i = 0; !status && i < n; i++) {
        const wo_search_call call = {.struct_size = sizeof call, .queries = j->q + i * d, .n = 1, .k = AT};
        const uint32_t stamp = (uint32_t)(first + i) + 1;
        size_t n_found;
        if ((status = wo_search_candidates(j->searcher, &call, j->found, j->index->rows.m, &n_found, err))) break;
        for (size_t c = 0; c < n_found; c++) j->seen[j->found[c]] = stamp;
        for (int which = 0; which < 2; which++) {
            side *s = &j->sides[which];
            for (size_t place = 0; place < AT && s->ids[i * AT + place] >= 0; place++) {
                const bool held = j->seen[s->ids[i * AT + place]] == stamp;
                s->first += held && place == 0;
                s->five += held;
                s->all++;
            }
        }
        j->same += j->sides[0].ids[i * AT] == j->sides[1].ids[i * AT];
        j->n++;
    }
    return status;
}

static void end(judging *j)
{
    for (int i = 0; i < 2; i++) {
        woi_free(j->sides[i].removed);
        woi_free(j->sides[i].ids);
        woi_free(j->sides[i].scores);
    }
    woi_free(j->q);
    woi_free(j->found);
    woi_free(j->seen);
    wo_searcher_free(j->searcher);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : NAN;
}

/* See wo_verdict. Of an index with a prior what its cells hold says little: rows that are replaced have the layer's own
 * answers for their shares, not the labels that made the index better. */
static wo_verdict verdict(const wo_index *index, const wo_layer_check *c)
{
    const bool few = c->n_changed <= index->rows.m / 4, prior = index->options.prior > 0;
    if (!c->n_changed && !c->n_added) return WO_VERDICT_FINE;
    if (c->n_kept && !c->n_added && c->same_1 >= 0.995) return WO_VERDICT_FINE;
    if (few || (!prior && (!c->n_kept || c->held_5 >= 0.95 * c->own_held_5))) return WO_VERDICT_UPDATE;
    return WO_VERDICT_REBUILD;
}

static wo_status judge(const wo_index *index, const woi_dense *new, int threads, wo_layer_check *c, wo_error *err)
{
    const size_t n = index->kept.n;
    judging j = {.index = index, .threads = threads};
    woi_dense own;
    float *floats = NULL;
    wo_status status = woi_index_floats(index, &own, &floats, err);
    if (!status) status = begin(&j, &own, new, err);
    for (size_t first = 0; !status && first < n; first += CHUNK)
        status = judge_chunk(&j, first, n - first < CHUNK ? n - first : CHUNK, err);
    c->n_kept = j.n;
    c->own_held_1 = share(j.sides[0].first, j.n);
    c->own_held_5 = share(j.sides[0].five, j.sides[0].all);
    c->held_1 = share(j.sides[1].first, j.n);
    c->held_5 = share(j.sides[1].five, j.sides[1].all);
    c->same_1 = share(j.same, j.n);
    end(&j);
    woi_free(floats);
    return status;
}

wo_status wo_index_check_layer(const wo_index *index, const wo_layer *layer, int threads, wo_layer_check *given,
                               wo_error *err)
{
    wo_layer_check c = {.held_1 = NAN, .held_5 = NAN, .own_held_1 = NAN, .own_held_5 = NAN, .same_1 = NAN};
    if (!woi_sized_set(given) || given->struct_size < offsetof(wo_layer_check, n_changed))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "struct_size", "struct_size of the check is not set");
    c.changed = given->changed;
    c.changed_room = given->changed_room;
    if (given->struct_size >= sizeof c) c.sample = given->sample;
    wo_status status = woi_check_range("threads", threads, 0, WOI_MAX_THREADS, err);
    if (!status && !c.sample) status = woi_refuse_shard(index, "is not to be compared with a layer", err);
    if (status) return status;
    if (layer->shard.count > 1)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "",
                              "the layer is shard %" PRIu32 " of %" PRIu32
                              ", whose rows are not those of the index: expected a whole one",
                              layer->shard.number + 1, layer->shard.count);
    const woi_dense *new = &layer->dense;
    const size_t m = woi_shard_whole(&index->shard, index->rows.m);
    if (new->d != index->rows.d)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "", "the layer has %zu dimensions, the index %zu",
                              new->d, index->rows.d);
    if (new->m < m)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "",
                              "the layer has %zu classes, fewer than the %zu of the index", new->m, m);
    if (index->rows.b && !new->b) /* each row would differ, by its bias at least */
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LAYER, "bias",
                              "the layer has no bias, the index has: was that left out?");
    status = compare_rows(index, new, &c, err);
    if (!status && index->kept.n && !c.sample) status = judge(index, new, threads, &c, err);
    c.verdict = verdict(index, &c);
    return status ? status : woi_sized_give(given, &c, sizeof c);
}
