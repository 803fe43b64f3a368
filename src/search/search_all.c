/* Searching all classes: by the exact layer, FULL, or in int8 with the best few scored exactly, the screen.
 *
 *   woi_answer_by_full   -> woi_exact_topk -> add_prior   batches and queries that FULL answers
 *   woi_answer_by_screen -> woi_screen_run -> rescore     an index that screens
 *   woi_answer_left_by_screen -> woi_screen_run           queries that know little, with candidates of their cells */
#include "search/search.h"

#include "base/error.h"
#include "base/team.h"
#include "kernels/topk.h"

/* ---- FULL -------------------------------------------------------------------------------------------------- */

wo_status woi_no_rows(wo_error *err)
{
    return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_INDEX, "layer",
                          "the index has no f32 rows to answer exactly with: the layer has them");
}

/* FULL's answers to a piece of the call's queries. */
typedef struct piece {
    const woi_task *t;
    size_t first;
    woi_log_sum *lse; /* NULL: not wanted */
} piece;

/* The prior into FULL's answers. What it adds is never negative, so that of the classes that get nothing those among
 * the k best are among FULL's k best: only the candidates of the cells are to be scored. */
static void add_prior(const piece *p, woi_worker *w, size_t i, woi_opened opened)
{
    const woi_task *t = p->t;
    const wo_index *index = t->s->index;
    const size_t k = t->k, d = index->rows.d;
    int32_t *ids = t->ids + (p->first + i) * k;
    float *scores = t->scores + (p->first + i) * k;
    const float *q = t->queries + (p->first + i) * d;
    const size_t n = woi_prior_candidates(t, w, q, opened);
    const int32_t *candidates = w->ids;
    t->s->kernels->gather_f32(q, index->rows.w, candidates, n, d, d, w->logits);
    woi_add_bias(index, t->bias, candidates, n, w->logits);
    double more = 0; /* of the sum of exp(score), in parts of what it was */
    for (size_t c = 0; p->lse && c < n; c++)
        if (!isnan(w->logits[c])) more += exp(woi_relative(w->logits[c], p->lse[i])) * expm1((double)w->extra[c]);
    if (p->lse) p->lse[i].rest += log1p(more);
    size_t kept = 0;
    for (size_t j = 0; j < k && ids[j] >= 0; j++) {
        const uint32_t spot = w->spots[ids[j]];
        if (spot >= w->first_spot && spot < w->next_spot) continue;
        ids[kept] = ids[j];
        scores[kept++] = scores[j];
    }
    woi_topk best = {k, kept, scores, ids};
    for (size_t c = 0; c < n; c++) woi_topk_insert(&best, w->logits[c] + w->extra[c], candidates[c]);
    woi_topk_pad(&best);
}

static void add_prior_block(void *own, int worker, size_t first, size_t end)
{
    const piece *p = own;
    const woi_task *t = p->t;
    woi_worker *w = &t->s->workers[worker];
    const woi_routing asked = woi_open_cells(t, w, t->queries + (p->first + first) * t->s->index->rows.d, end - first);
    for (size_t i = 0; i < asked.n; i++)
        if (w->n_cells[i]) add_prior(p, w, first + i, woi_opened_by(t, w, &asked, i));
}

/* In pieces, because softmax needs a number for each query beside the answer. */
wo_status woi_answer_by_full(const woi_task *t, size_t first, size_t n, wo_error *err)
{
    enum { PIECE = 1024 };
    const woi_dense *rows = &t->s->index->rows;
    const woi_adjust adjust = {t->forbidden, t->bias};
    if (!rows->w) return woi_no_rows(err);
    const bool sums = woi_wants_sum(t);
    for (const size_t end = first + n; first < end; first += PIECE) {
        const size_t count = end - first < PIECE ? end - first : PIECE, k = t->k;
        const float *q = t->queries + first * rows->d;
        woi_log_sum lse[PIECE];
        const woi_exact_call call = {.layer = rows,
                                     .adjust = adjust,
                                     .q = q,
                                     .n = count,
                                     .k = k,
                                     .threads = t->s->threads,
                                     .scratch = t->s->exact_scratch,
                                     .ids = t->ids + first * k,
                                     .scores = t->scores + first * k,
                                     .lse = sums ? lse : NULL};
        const wo_status status = woi_exact_topk(&call, err);
        if (status) return status;
        if (t->prior > 0)
            woi_team_ranges(t->s->threads, count, t->s->block, add_prior_block, &(piece){t, first, sums ? lse : NULL});
        for (size_t i = 0; t->stats && i < count; i++)
            woi_tell(t, first + i,
                     woi_all_finite(q + i * rows->d, rows->d)
                         ? (wo_query_stats){.candidates = (uint32_t)(rows->m - t->n_forbidden), .exact = 1}
                         : (wo_query_stats){.status = WO_ERR_ARGUMENT});
        for (size_t i = 0; i < count; i++) {
            if (woi_refuse_infinite(t, first + i, rows->m - t->n_forbidden, sums ? lse[i] : (woi_log_sum){0}) || !sums)
                continue;
            if (t->log_z) t->log_z[first + i] = (float)woi_log_sum_whole(lse[i]);
            woi_tell_sum(t, first + i, lse[i]);
            woi_relate(t, first + i, lse[i]);
        }
    }
    return WO_OK;
}

/* ---- The screen ------------------------------------------------------------------------------------------- */

static woi_screen_call screen_call(const woi_task *t, woi_screened_fn found, void *ctx)
{
    const wo_index *index = t->s->index;
    return (woi_screen_call){.screen = &index->screen,
                             .b = index->rows.b,
                             .adjust = {t->forbidden, t->bias},
                             .q = t->queries,
                             .n = t->n,
                             .keep = woi_screen_kept(t->k),
                             .threads = t->s->threads,
                             .scratch = t->s->screen_scratch,
                             .found = found,
                             .ctx = ctx};
}

/* Candidates of the screen, and what is mandatory, into w->ids; returns how many. */
static size_t with_mandatory(const woi_task *t, woi_worker *w, const int32_t *ids, size_t n)
{
    memcpy(w->ids, ids, n * sizeof *ids);
    if (!t->n_mandatory) return n;
    woi_new_epoch(w, t->s->index->rows.m);
    for (size_t i = 0; i < n; i++) w->seen[ids[i]] = w->epoch;
    for (size_t i = 0; i < t->n_mandatory; i++) {
        const int32_t id = t->mandatory[i];
        if (w->seen[id] != w->epoch) w->ids[n++] = id;
        w->seen[id] = w->epoch;
    }
    return n;
}

static void rescore(void *call, int worker, size_t i, const int32_t *screened, size_t n)
{
    const woi_task *t = call;
    woi_worker *w = &t->s->workers[worker];
    int32_t *ids = t->ids + i * t->k;
    float *scores = t->scores + i * t->k;
    if (!screened) {
        woi_refuse(t, i);
        return;
    }
    n = with_mandatory(t, w, screened, n);
    woi_score_some(t, w, t->queries + i * t->s->index->rows.d, w->ids, n);
    t->s->kernels->pick(w->logits, w->ids, n, t->k, scores, ids);
    const size_t all = t->s->index->rows.m - t->n_forbidden; /* none of them is a number where none passes the screen */
    if (!woi_refuse_infinite(t, i, all, (woi_log_sum){0})) woi_tell(t, i, (wo_query_stats){.candidates = (uint32_t)n});
}

wo_status woi_answer_by_screen(woi_task *t, wo_error *err)
{
    if (!woi_has_screen(t) || t->score == WO_SCORES_SOFTMAX || t->log_sums) return woi_answer_by_full(t, 0, t->n, err);
    const woi_screen_call call = screen_call(t, rescore, t);
    woi_screen_run(t->s->kernels, &call);
    return WO_OK;
}

/* Queries that were left, from all over a call. */
typedef struct gathered {
    const woi_task *t;
    size_t n, of[WOI_GATHERED]; /* their places in the call */
} gathered;

static void answer_gathered(void *ctx, int worker, size_t i, const int32_t *screened, size_t n)
{
    const gathered *g = ctx;
    woi_answer_with(g->t, &g->t->s->workers[worker], g->of[i], (woi_more){screened, n});
}

void woi_answer_left_by_screen(woi_task *t)
{
    const size_t d = t->s->index->rows.d;
    gathered g = {.t = t};
    woi_screen_call call = screen_call(t, answer_gathered, &g);
    call.q = t->s->gathered;
    for (size_t i = 0; i < t->n; i++) {
        if (t->ids[i * t->k] == WOI_LEFT) {
            memcpy(t->s->gathered + g.n * d, t->queries + i * d, d * sizeof *call.q);
            g.of[g.n++] = i;
        }
        if (g.n < WOI_GATHERED && i + 1 < t->n) continue;
        call.n = g.n;
        woi_screen_run(t->s->kernels, &call);
        g.n = 0;
    }
}

/* The candidates of a call's only query go here. */
typedef struct listing {
    const woi_task *t;
    int32_t *ids;
    size_t capacity, n;
} listing;

static void list_screened(void *ctx, int worker, size_t i, const int32_t *screened, size_t n)
{
    listing *l = ctx;
    woi_worker *w = &l->t->s->workers[worker];
    (void)i;
    const int32_t *candidates = w->ids;
    l->n = l->t->s->index->cells.n ? woi_candidates_with(l->t, w, l->t->queries, (woi_more){screened, n}, &candidates)
                                   : with_mandatory(l->t, w, screened, n);
    if (l->capacity) memcpy(l->ids, candidates, (l->n < l->capacity ? l->n : l->capacity) * sizeof *l->ids);
}

size_t woi_list_by_screen(const woi_task *t, int32_t *ids, size_t capacity)
{
    listing l = {t, ids, capacity, 0};
    const woi_screen_call call = screen_call(t, list_screened, &l);
    woi_screen_run(t->s->kernels, &call);
    return l.n;
}
