/* One call of a search, and the ways to answer it. Each file calls those below it alone:
 *
 *   search.c         reads calls, checks them, and decides who answers
 *   search_all.c     by all classes: FULL, or the screen in int8
 *   search_cells.c   by the cells that a query opens: Algorithm 2 */
#ifndef WOI_SEARCH_SEARCH_H
#define WOI_SEARCH_SEARCH_H

#include "search/mixture.h"

#include <math.h>
#include <string.h>

enum { WOI_LEFT = -2 }; /* the first id of a query that knows little, and that cells leave to FULL or the screen */

/* A call, checked and completed. */
typedef struct woi_task {
    wo_searcher *s;
    const float *queries;
    size_t n, k;
    int32_t *ids;
    float *scores;
    char *stats; /* NULL: none wanted */
    size_t stats_bytes;
    uint32_t probes, wider_probes;
    size_t cells_each; /* room for a query's cells */
    wo_scores score;
    bool exact_fallback;
    const uint8_t *forbidden; /* (m), or NULL: nothing is; removed classes are */
    size_t n_forbidden;       /* distinct */
    const int32_t *mandatory; /* (n_mandatory): rows, distinct, none of them forbidden */
    size_t n_mandatory;
    const float *bias;
    double prior;                /* 0: none */
    const uint32_t *routes;      /* the cells of each query, as woi_search_route left them; NULL: to be found */
    bool mixed;                  /* probabilities have the shares of the cells in them */
    float *log_z;                /* (n), or NULL: not wanted */
    double *log_sums;            /* (n, 2), or NULL: not wanted */
    woi_seen seen;               /* what learning log Z wants to know; zeros: nothing */
    woi_labels_seen labels_seen; /* what choosing a mixture wants to know; zeros: nothing */
} woi_task;

/* Candidates beside those of the cells; none twice. */
typedef struct woi_more {
    const int32_t *ids;
    size_t n;
} woi_more;

static inline bool woi_wants_log_z(const woi_task *t)
{
    return t->score == WO_SCORES_LOGPROB || t->log_z;
}

/* Scores are relative to a sum over classes, so that none may be left out. */
static inline bool woi_wants_sum(const woi_task *t)
{
    return t->score == WO_SCORES_SOFTMAX || t->log_sums || woi_wants_log_z(t) || t->seen.of_candidates ||
           t->labels_seen.labels;
}

/* Classes of the cells come with their shares. */
static inline bool woi_wants_shares(const woi_task *t)
{
    return t->prior > 0 || t->mixed || t->labels_seen.labels;
}

/* Whether classes of cells may be forbidden, by the call: removed ones lie in no cell, and pass no screen. */
static inline bool woi_is_masked(const woi_task *t)
{
    return t->s->n_marked != 0;
}

/* Whether the screen is of use: there is one, and many more classes than would be scored exactly. */
static inline bool woi_has_screen(const woi_task *t)
{
    const size_t keep = woi_screen_kept(t->k);
    return t->s->index->screen.rows && keep <= WOI_MOST_KEPT && keep < t->s->index->rows.m / 2;
}

/* Whether it has a part in queries that know little. Not where a sum over candidates is wanted: log Z was learned
 * without it. */
static inline bool woi_screen_helps(const woi_task *t)
{
    return woi_screens_little(&t->s->index->options) && !woi_wants_sum(t) && woi_has_screen(t);
}

/* What became of query i. */
static inline void woi_tell(const woi_task *t, size_t i, wo_query_stats about)
{
    if (!t->stats) return;
    char *to = t->stats + i * t->stats_bytes;
    if (t->stats_bytes > sizeof about) memset(to + sizeof about, 0, t->stats_bytes - sizeof about);
    memcpy(to, &about, t->stats_bytes < sizeof about ? t->stats_bytes : sizeof about);
}

/* What was seen is not any more. */
static inline void woi_new_epoch(woi_worker *w, size_t m)
{
    if (++w->epoch) return;
    memset(w->seen, 0, m);
    w->epoch = 1;
}

/* What the scores of query i are relative to, where that is wanted. */
static inline void woi_tell_sum(const woi_task *t, size_t i, woi_log_sum sum)
{
    if (!t->log_sums) return;
    t->log_sums[2 * i] = sum.most;
    t->log_sums[2 * i + 1] = sum.rest;
}

/* Query i has no answer, and says so. */
static inline void woi_refuse(const woi_task *t, size_t i)
{
    for (size_t j = i * t->k; j < (i + 1) * t->k; j++) {
        t->ids[j] = -1;
        t->scores[j] = t->score == WO_SCORES_SOFTMAX ? 0 : -INFINITY;
    }
    if (t->log_z) t->log_z[i] = NAN;
    woi_tell_sum(t, i, (woi_log_sum){NAN, 0});
    woi_tell(t, i, (wo_query_stats){.status = WO_ERR_ARGUMENT});
}

/* Whether query i, as it is answered from so many candidates, has a score that is not finite, or scores that are
 * relative to what is not (`whole`; zeros: to nothing): numbers that are finite by themselves have products that are
 * not. Where all of them are NaN none is answered. Then it has no answer, and says so: what comes out would be no
 * logit, and no probability. */
static inline bool woi_refuse_infinite(const woi_task *t, size_t i, size_t candidates, woi_log_sum whole)
{
    const int32_t *ids = t->ids + i * t->k;
    const float *scores = t->scores + i * t->k;
    bool finite = ids[0] < 0 ? !candidates : isfinite(woi_log_sum_whole(whole));
    if (t->score != WO_SCORES_LOGPROB) whole = (woi_log_sum){0}; /* which may take a score out of a float's range */
    for (size_t j = 0; finite && j < t->k && ids[j] >= 0; j++)
        finite = isfinite(scores[j]) && isfinite((float)woi_relative(scores[j], whole));
    if (!finite) woi_refuse(t, i);
    return !finite;
}

/* The scores of query i's k answers, from logits to what is asked for, which is relative to `whole`. */
static inline void woi_relate(const woi_task *t, size_t i, woi_log_sum whole)
{
    const int32_t *ids = t->ids + i * t->k;
    float *scores = t->scores + i * t->k;
    if (t->score == WO_SCORES_LOGITS) return;
    for (size_t j = 0; j < t->k; j++) {
        const bool there = ids[j] >= 0;
        const double relative = there ? woi_relative(scores[j], whole) : 0;
        if (t->score == WO_SCORES_SOFTMAX)
            scores[j] = there ? (float)exp(relative) : 0;
        else if (there)
            scores[j] = (float)relative;
    }
}

/* ---- search.c, for what learns from searches ---------------------------------------------------------------- */

/* n queries as they search: what log Z, and the mixture, are learned from. */
void woi_search_see(wo_searcher *searcher, const float *queries, size_t n, const woi_seen *seen);
void woi_search_see_labels(wo_searcher *searcher, const float *queries, size_t n, const woi_labels_seen *seen);

/* ---- search_cells.c ---------------------------------------------------------------------------------------- */

/* 4-byte words of a query's record: how many cells it opens, the cells, and their scores where these are wanted. */
size_t woi_route_words(const woi_task *t);
/* The records of the call's queries, (n, words). */
void woi_route_all(const woi_task *t, uint32_t *routes);

/* Leaves queries that know little to FULL or the screen where these are to answer: see WOI_LEFT. */
void woi_answer_by_cells(woi_task *t);
/* Query i, which knows little: by more cells, and more candidates, the screen's. */
void woi_answer_with(const woi_task *t, woi_worker *w, size_t i, woi_more more);
/* The candidates of a call's only query, *n: as many ids as there is room for. False: it knows little, and is left to
 * woi_list_by_screen. */
bool woi_list_by_cells(const woi_task *t, int32_t *ids, size_t capacity, size_t *n);

/* The cells of n queries, at most a block of them, in the worker; and those of query i of the block. */
woi_routing woi_open_cells(const woi_task *t, woi_worker *w, const float *q, size_t n);
woi_opened woi_opened_by(const woi_task *t, const woi_worker *w, const woi_routing *asked, size_t i);
/* The candidates of a query in w->ids, and in w->extra what the prior adds; returns how many. */
size_t woi_prior_candidates(const woi_task *t, woi_worker *w, const float *q, woi_opened opened);
/* The candidates of a query that knows little, without the prior; returns how many. */
size_t woi_candidates_with(const woi_task *t, woi_worker *w, const float *q, woi_more more, const int32_t **candidates);

/* The logits of some classes, into w->logits: in bf16 where the index is built for it, else exact. */
void woi_score_some(const woi_task *t, const woi_worker *w, const float *q, const int32_t *ids, size_t n);
/* The layer's biases, and more (m) where it is not NULL, into the logits of some classes. */
void woi_add_bias(const wo_index *index, const float *more, const int32_t *ids, size_t n, float *logits);

/* ---- search_all.c ------------------------------------------------------------------------------------------ */

/* Queries first .. first + n of the call. */
wo_status woi_answer_by_full(const woi_task *t, size_t first, size_t n, wo_error *err);
/* Without a screen that is of use, FULL answers. */
wo_status woi_answer_by_screen(woi_task *t, wo_error *err);

/* Those that cells left. */
void woi_answer_left_by_screen(woi_task *t);

/* The candidates of a call's only query, and how many there are: of the screen alone, or, with cells, as a query that
 * knows little has them. */
size_t woi_list_by_screen(const woi_task *t, int32_t *ids, size_t capacity);

/* Fails: the index has no f32 rows. */
wo_status woi_no_rows(wo_error *err);

#endif
