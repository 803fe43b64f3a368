/* How good an index is beside FULL, on queries that it was not built from.
 *
 * Both answer the same queries, so they are compared in pairs: with h the hits of the index at a query and f those of
 * FULL, the index has the share t of FULL's quality when the mean of x = h - t f is at least 0. Most queries are
 * answered alike, so x varies far less than h does, and a few thousand queries tell shares of 0.995 from 0.99. It has
 * it when mean(x) - 2.58 sd(x) / sqrt(n) >= 0: with 99.5% confidence for one index, and so with 95% for the fastest of
 * ten that are judged on the same queries, whose luck is part of why it was taken (WikiText-2's at 95% each fell short
 * of both targets on test data, Diginetica's at 99% of one). Many more are tried, but most are all but the same.
 *
 * Neighbours in a log may be alike: words of one article, clicks of one visit. Then n queries say less than n
 * independent ones would (WikiText-2: standard errors 1.3 to 1.9 times as large, and an index that fell short on test
 * data for it; Diginetica, Debian: no difference). So the error is also taken from 32 stretches of the log,
 * with Student's 2.744 in place of 2.58, and the larger one counts.
 *
 * That fails where the two hardly ever differ: without a single difference among 300 queries sd is next to nothing,
 * while the true rate of differences may well be 1% (the rule of three: 3/n). So one more query is counted, at which
 * FULL has one answer right and the index none. Without differences the bound is then (1 + 2.58) / n, near the 3 / n
 * of the rule. A short tune log can thus not show a high target at all, which is right. */
#include "judge/compare.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/progress.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 1024, AT = 5 };
static const double Z = 2.58, T = 2.744; /* 99.5%, one side: normal, and Student's with WOI_STRETCHES - 1 */

/* The standard error of mean(x), from what the stretches have beside the share of all of them. (Beside the mean of x,
 * stretches with few labels would count as bad ones.) The share is at most what is asked about, or 1: times a share of
 * a hundred FULL's few hits, where they happen to lie, would be all of the error. What lies beyond it then counts as
 * error too, a 31st of its square, which is on the safe side. */
static double error_by_stretches(const woi_pairs *p, double t)
{
    const double share = p->f > 0 ? fmin(p->h / p->f, fmax(1, t)) : 0;
    double squares = 0;
    for (int i = 0; i < WOI_STRETCHES; i++) {
        const double x = p->stretches[i].h - share * p->stretches[i].f;
        squares += x * x;
    }
    return sqrt(squares * WOI_STRETCHES / (WOI_STRETCHES - 1)) / (double)p->n;
}

double woi_pairs_margin(const woi_pairs *p, double t)
{
    if (!p->n) return -INFINITY;
    const double n = (double)p->n + 1, u = p->unit, mean = (p->h - t * (p->f + u)) / n;
    const double squares = p->hh - 2 * t * p->hf + t * t * (p->ff + u * u);
    const double variance = fmax(0, (squares - n * mean * mean) / (n - 1));
    return mean - fmax(Z * sqrt(variance / n), T * error_by_stretches(p, t));
}

double woi_pairs_share(const woi_pairs *p)
{
    double low = 0, high = 2;
    if (!p->n) return NAN;
    for (int i = 0; i < 40; i++) {
        const double t = (low + high) / 2;
        if (woi_pairs_margin(p, t) >= 0)
            low = t;
        else
            high = t;
    }
    return low;
}

double woi_pairs_error(const woi_pairs *p)
{
    if (!(p->f > 0)) return NAN;
    const double u = p->unit, t = p->h / p->f;
    const double squares = fmax(0, p->hh - 2 * t * p->hf + t * t * (p->ff + u * u)); /* of the mean 0, nearly */
    return fmax(sqrt(squares) / (p->f + u), error_by_stretches(p, t) * (double)p->n / p->f);
}

double woi_pairs_needed(const woi_pairs *p, double t)
{
    const double n = (double)p->n, mean = (p->h - t * p->f) / n;
    const double squares = p->hh - 2 * t * p->hf + t * t * p->ff;
    if (!p->n || mean <= 0) return 0;
    const double sd = sqrt(fmax(0, squares / n - mean * mean)) + p->unit / sqrt(n);
    return ceil(fmax(Z * Z * sd * sd / (mean * mean), (1 + Z) * p->unit / mean));
}

void woi_pairs_add(woi_pairs *p, size_t stretch, double h, double f)
{
    p->stretches[stretch].h += h;
    p->stretches[stretch].f += f;
    p->n++;
    p->h += h;
    p->f += f;
    p->hh += h * h;
    p->hf += h * f;
    p->ff += f * f;
}

wo_status woi_judge_make(const woi_judge_call *call, woi_judge *judge, wo_error *err)
{
    const wo_log *log = call->log;
    const size_t n = log->n, k = call->k, room = k > AT ? k : AT;
    *judge = (woi_judge){.log = log, .k = k, .room = room, .threads = call->threads};
    wo_status status = WO_OK;
    if (!(judge->full = woi_alloc(n * room, sizeof *judge->full, err)) ||
        !(judge->ids = woi_alloc(CHUNK * room, sizeof *judge->ids, err)) ||
        !(judge->few = woi_alloc(CHUNK * k, sizeof *judge->few, err)) ||
        !(judge->scores = woi_alloc(CHUNK * room, sizeof *judge->scores, err)) ||
        !(judge->stats = woi_alloc(CHUNK, sizeof *judge->stats, err)) ||
        !(judge->labels = woi_alloc(woi_most_labels(log->indptr, n), sizeof *judge->labels, err)) ||
        !(judge->sorted = woi_alloc(k, sizeof *judge->sorted, err)))
        status = WO_ERR_MEMORY;
    if (!status && !call->rows) memset(judge->full, 0xff, n * room * sizeof *judge->full); /* -1 */
    for (size_t first = 0; !status && call->rows && first < n; first += CHUNK) {
        const size_t count = n - first < CHUNK ? n - first : CHUNK;
        status = woi_progress(call->progress, "asking the exact layer", first, n, err);
        if (!status)
            status = woi_exact_topk(&(woi_exact_call){.layer = call->rows,
                                                      .q = log->queries + first * log->d,
                                                      .n = count,
                                                      .k = room,
                                                      .threads = call->threads,
                                                      .ids = judge->full + first * room,
                                                      .scores = judge->scores},
                                    err);
        if (!status) woi_drop_infinite(judge->full + first * room, judge->scores, count, room);
    }
    if (status) woi_judge_free(judge);
    return status;
}

void woi_judge_free(woi_judge *judge)
{
    woi_free(judge->full);
    woi_free(judge->ids);
    woi_free(judge->few);
    woi_free(judge->scores);
    woi_free(judge->stats);
    woi_free(judge->labels);
    woi_free(judge->sorted);
    *judge = (woi_judge){0};
}

wo_status woi_judge_index(const woi_judge *judge, const wo_index *index, woi_judged *judged, wo_error *err)
{
    const wo_log *log = judge->log;
    const size_t room = judge->room;
    wo_searcher *searcher = NULL;
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = judge->threads};
    *judged = (woi_judged){.of = {{.unit = 1}, {.unit = 1.0 / AT}, {.unit = 1.0 / (double)judge->k}}};
    /* int8 screens for as many answers as are asked for: where those are fewer than five, P@5 needs a search of its
     * own. */
    const bool screens = index && index->small.i8 && judge->k < room;
    wo_status status = index ? wo_searcher_create(index, &so, &searcher, err) : WO_OK;
    for (size_t first = 0; !status && first < log->n; first += CHUNK) {
        const size_t count = log->n - first < CHUNK ? log->n - first : CHUNK;
        wo_search_call call = {.struct_size = sizeof call,
                               .queries = log->queries + first * log->d,
                               .n = count,
                               .k = room,
                               .ids = judge->ids,
                               .scores = judge->scores,
                               .stats = judge->stats};
        if (index) status = wo_search_run(searcher, &call, err);
        if (screens && !status) {
            call.k = judge->k;
            call.ids = judge->few;
            status = wo_search_run(searcher, &call, err);
        }
        for (size_t i = 0; !status && i < count; i++) {
            const int32_t *full = judge->full + (first + i) * room, *ids = index ? judge->ids + i * room : full,
                          *few = screens ? judge->few + i * judge->k : ids;
            const size_t n = log->indptr ? woi_labels_of(log->indptr, log->labels, first + i, judge->labels) : 0;
            const size_t stretch = (first + i) * WOI_STRETCHES / log->n;
            if (index) judged->classes += judge->stats[i].candidates;
            const woi_agreement a = woi_agree(few, full, judge->k, judge->sorted);
            if (a.all) woi_pairs_add(&judged->of[WOI_AGREE], stretch, (double)a.common / (double)a.all, 1);
            if (!n) continue;
            woi_pairs_add(&judged->of[WOI_AT_1], stretch, (double)woi_hits(judge->labels, n, few, 1),
                          (double)woi_hits(judge->labels, n, full, 1));
            if (judge->each)
                judge->each[first + i] = (woi_value){(float)woi_hits(judge->labels, n, few, 1),
                                                     (float)woi_hits(judge->labels, n, ids, AT) / AT};
            woi_pairs_add(&judged->of[WOI_AT_5], stretch, (double)woi_hits(judge->labels, n, ids, AT) / AT,
                          (double)woi_hits(judge->labels, n, full, AT) / AT);
        }
    }
    judged->classes /= (double)log->n;
    wo_searcher_free(searcher);
    return status;
}
