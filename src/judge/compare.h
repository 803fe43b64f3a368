/* An index beside FULL on the same queries: hits and common answers in pairs, with confidence. */
#ifndef WOI_JUDGE_COMPARE_H
#define WOI_JUDGE_COMPARE_H

#include "index/index.h"

/* Sums over queries of what the index got, h, and what FULL got, f: hits at the first place, of the first five, or
 * FULL's own answers. */
enum { WOI_STRETCHES = 32 }; /* of consecutive queries, equally long */
typedef struct woi_pairs {
    size_t n;
    double unit; /* one answer: 1, 1/5, 1/k */
    double h, f, hh, hf, ff;
    struct {
        double h, f;
    } stretches[WOI_STRETCHES];
} woi_pairs;

void woi_pairs_add(woi_pairs *pairs, size_t stretch, double h, double f); /* one query */
/* What is left of the mean of h - t f when what chance may have added to it is taken away: at least 0 when the index
 * has the share t of FULL's for sure. */
double woi_pairs_margin(const woi_pairs *pairs, double t);
/* The largest such t, 0 to 2. */
double woi_pairs_share(const woi_pairs *pairs);
/* The standard error of the share that it has, h / f; NAN where FULL has nothing. */
double woi_pairs_error(const woi_pairs *pairs);

/* How many queries like these would show the share t, about; 0: no number would. */
double woi_pairs_needed(const woi_pairs *pairs, double t);

enum { WOI_AT_1, WOI_AT_5, WOI_AGREE, WOI_QUALITIES };

typedef struct woi_judged {
    woi_pairs of[WOI_QUALITIES]; /* n = 0: without labels */
    double classes;              /* a query */
} woi_judged;

/* What a query with labels got. */
typedef struct woi_value {
    float at_1, at_5;
} woi_value;

/* FULL's answers to the queries that are judged, and room for an index's. */
typedef struct woi_judge {
    const wo_log *log;
    size_t k, room; /* answers that must agree; answers that are asked for */
    int threads;
    int32_t *full;                        /* (n, room) */
    int32_t *ids, *few, *labels, *sorted; /* few: k answers, where that is another search than ids */
    float *scores;
    wo_query_stats *stats;
    woi_value *each; /* (n), or NULL: filled by woi_judge_index; not owned */
} woi_judge;

/* Whom to ask, and what. */
typedef struct woi_judge_call {
    const woi_dense *rows; /* FULL's; NULL: it is not asked, and has neither hits nor answers */
    const wo_log *log;
    size_t k;
    int threads;                 /* as in woi_exact_call */
    const wo_progress *progress; /* NULL: nobody asks */
} woi_judge_call;

wo_status woi_judge_make(const woi_judge_call *call, woi_judge *judge, wo_error *err);
void woi_judge_free(woi_judge *judge); /* and zeroed again */
/* index NULL: FULL itself. */
wo_status woi_judge_index(const woi_judge *judge, const wo_index *index, woi_judged *judged, wo_error *err);

#endif
