/* What the parts of the tuner share.
 *
 *   tune.c     the call: checks, the search, the final index, the planner's measurement
 *   logs.c     what is built from and what is judged on
 *   space.c    which settings there are, and their neighbours
 *   search.c   the search among them
 *   prior.c    how much a prior counts
 *   measure.c  the figures of one index
 *   time.c     what the time allows
 *   curve.c    what was tried: rows of numbers, and the words for one */
#ifndef WOI_TUNE_TUNE_H
#define WOI_TUNE_TUNE_H

#include "build/build_evidence.h"
#include "judge/compare.h"

/* ---- The tuner --------------------------------------------------------------------------------------------- */

/* Settings, and the row that came of them, or WOI_NO_ROW: none reached the goal. */
typedef struct woi_tried {
    double settings[WOI_CURVE_COLUMNS]; /* as a row of the curve has them, the dial at 0 */
    size_t row;
} woi_tried;
#define WOI_NO_ROW SIZE_MAX

typedef struct woi_tune {
    const wo_layer *layer;
    const wo_log *log; /* all of it */
    wo_tune_options o;
    wo_build_options build; /* what o.build points to, completed */
    int threads;
    double start;
    wo_progress progress; /* of the parts: all are "tuning", and how much of the time is gone */

    wo_log train; /* what is built from while tuning: the log, or some of it */
    bool train_is_log;
    bool held_out; /* judged are queries of the log, these: */
    size_t *held_picks, n_held_picks;
    wo_log judged;
    woi_judge judge;
    double full[2]; /* FULL's P@1 and P@5 there */
    /* Hits there are too few to show the goal, whatever the index: it is then shown by agreement with FULL, there and
     * on queries of the log that are held out from `train`. */
    bool few_hits;
    uint64_t labelled; /* judged queries with labels */
    bool best_wanted;  /* the best within a time is an answer, whether or not it reaches anything */
    bool above;        /* for a target beyond FULL */
    wo_proof provable; /* by these queries, at best */
    uint64_t needed;   /* labelled queries that would show the goal by hits, where these are too few; 0: nobody knows */
    bool hopeless;     /* too few to show anything: only what scores every class is an answer, */
    bool may_beat;     /* or what has many more hits than FULL */
    wo_log held;       /* n = 0: none */
    woi_judge held_judge;
    wo_log sampled; /* some of the judged queries, to choose a prior on */
    woi_judge quick;
    const wo_log *from;  /* what is built from: train, and in the end the log */
    woi_sparse needs[3]; /* of `from`, by source: labels, top, both. indptr NULL: not yet known */

    /* The router that was learned last, with the cells of train's queries; as its options were asked for, and as they
     * then were. */
    wo_index *bench;
    wo_build_options bench_asked;
    const wo_log *bench_log;
    woi_routed routed;

    /* Others on a shared machine make an index slower by a third, for seconds, and FULL by less. So settings are timed
     * in turn with one that stays the same, and what counts is the ratio. NULL: none yet. */
    wo_index *yardstick;
    double yardstick_us; /* a query */

    double *rows; /* (n_rows, WOI_CURVE_COLUMNS) */
    size_t n_rows, rows_room;
    double *learn_s; /* (n_rows): seconds to learn a row's router and fill its cells, from `train` */
    size_t learn_room;
    size_t best; /* row, or WOI_NO_ROW */
    double most; /* the best quality of a row that reaches the goal */
    woi_tried *tried;
    size_t n_tried, tried_room;
    size_t tried_before; /* this part of the search */
    bool shared;         /* the time is shared with another part */
    bool top_alone;      /* cells that imitate FULL have no labels */
    bool building;       /* the winner */
    bool searching;      /* settings are tried: what runs may be stopped, and the best so far is built */
    bool stopped;        /* it was, because the time is up or because the caller has seen enough: */
    bool interrupted;
    double ask_s;                    /* a query of FULL, when many are asked */
    double route_s, fill_s, needs_s; /* seconds that the last of these took, on `train` */
    bool late;
    bool no_bf16; /* the layer has weights that bf16 cannot hold */
    int refined;  /* rows of evidence are in bf16; 1: int8 and f32, 2: f32, because they did not do */
} woi_tune;

/* logs.c: fills judged and sampled; then train, and held where hits are few. */
wo_status woi_tune_pick_judged(woi_tune *t, const wo_log *tune_log, wo_error *err);
wo_status woi_tune_pick_train(woi_tune *t, wo_error *err);
void woi_tune_logs_free(woi_tune *t);

/* ---- Time -------------------------------------------------------------------------------------------------- */

/* Measures ask_s. */
wo_status woi_tune_probe_full(woi_tune *t, wo_error *err);
/* Queries that there is time to judge by: FULL is asked all of them. */
size_t woi_tune_most_judged(const woi_tune *t);
/* Seconds, below 0 where the time is over. */
double woi_tune_left(const woi_tune *t);
/* Whether a share of the time is gone, or all but what the last build takes. */
bool woi_tune_is_late(const woi_tune *t, double share);
/* Whether what runs is to be left unfinished: sets t->stopped. */
bool woi_tune_must_stop(woi_tune *t);
/* Whether there is time to build the winner from all of the log. */
bool woi_tune_fits_log(const woi_tune *t);

/* ---- The space --------------------------------------------------------------------------------------------- */

/* WOI_LABELS: a tree with small cells of labels alone, and a prior; WOI_TREE: cells that imitate FULL too. */
typedef enum woi_kind {
    WOI_LABELS,
    WOI_TREE,
    WOI_HASH,
    WOI_TABLES /* slide, lss */,
    WOI_POPULAR,
    WOI_SCREEN,
    WOI_FULL
} woi_kind;
enum { WOI_MAX_AXES = 5 };

/* A point of the grid: places on the axes of its kind. */
typedef struct woi_place {
    woi_kind kind;
    int at[WOI_MAX_AXES];
} woi_place;

woi_place woi_space_start(const woi_tune *t, woi_kind kind, bool wide);
/* A step along an axis; false where it ends, or is fixed. */
bool woi_space_step(const wo_tune_options *o, woi_place *place, int axis, int step);

/* More cells opened, and more looked at, where that is left to choose; false where there are no more. */
bool woi_space_widen(const wo_tune_options *o, woi_place *place);
/* Fewer, in fewer coordinates. */
bool woi_space_narrow(const wo_tune_options *o, woi_place *place);
/* Better rows for evidence from now on, where that is left to choose; false where there are none. */
bool woi_space_refine(woi_tune *t);
void woi_space_begin(woi_tune *t); /* with the first rows that the layer has */
int woi_space_axes(woi_kind kind);
/* The options at a place, all but the dial (lambda, cap, popular) and the prior. */
wo_build_options woi_space_options(const woi_tune *t, const woi_place *place);
/* Options of another method: its defaults, with what is not the method's as given. */
wo_build_options woi_space_of_method(const woi_tune *t, wo_method method);

/* ---- The search -------------------------------------------------------------------------------------------- */

/* To four digits, so that what a report prints builds the same index. */
double woi_round_lambda(double lambda);
/* Tries everything that there is time for; t->best is the row that won. */
wo_status woi_tune_search(woi_tune *t, wo_error *err);
/* Measures a screen, where the layer has one and it was not done: its row, or WOI_NO_ROW. */
wo_status woi_tune_try_screen(woi_tune *t, size_t *row, wo_error *err);
/* Learns, from `log`, the router of `o`, an evidence index's: t->bench and t->routed. Nothing to do where it is there.
 */
wo_status woi_tune_route(woi_tune *t, const wo_log *log, const wo_build_options *o, wo_error *err);
/* What the queries of `train` needed, by the options' source. */
wo_status woi_tune_needs(woi_tune *t, const wo_build_options *o, const woi_sparse **needs, wo_error *err);
/* The same, and beside it labels alone, as filling wants them. */
wo_status woi_tune_evidence(woi_tune *t, const wo_build_options *o, woi_evidence *by, wo_error *err);
/* Fills it and makes it ready for searches. */
wo_status woi_tune_fill(woi_tune *t, const wo_build_options *o, wo_error *err);
/* prior.c: the prior and the focus that are best for t->bench, filled with shares, on validation data: into *o. */
wo_status woi_tune_choose_prior(woi_tune *t, wo_build_options *o, wo_error *err);
void woi_tune_bench_free(woi_tune *t);

/* ---- Figures ----------------------------------------------------------------------------------------------- */

/* What is timed. */
typedef struct woi_timing_call {
    const wo_index *index;
    bool full;               /* FULL beside it */
    const uint32_t *batches; /* (n), rising */
    size_t n;
    uint32_t rounds;         /* 0: as many as an evaluation has */
    wo_eval_timing *timings; /* (n) */
} woi_timing_call;

/* Microseconds a query of an index at batch sizes. */
wo_status woi_tune_time(const woi_tune *t, const woi_timing_call *call, wo_error *err);
/* Queries by which a setting is timed: 10,000 single ones, 102,400 in batches of 1,024. */
double woi_tune_timed(uint32_t batch);
/* Takes the index over, on failure too, and times it. */
wo_status woi_tune_set_yardstick(woi_tune *t, wo_index *index, wo_error *err);
/* Judges and times an index: fills a row. The same for FULL, as the first row of the curve. */
wo_status woi_tune_measure(woi_tune *t, const wo_index *index, double *row, wo_error *err);
wo_status woi_tune_measure_full(woi_tune *t, wo_error *err);
/* Whether so much of FULL's own answers, for sure, shows the goal where hits are too few: an answer that differs is
 * taken to cost half a hit. Where the two differ, FULL is seldom sure. */
bool woi_tune_agrees(const woi_tune *t, double sure);
/* What the queries can show at best, by FULL's own answers: fills provable, needed, hopeless and may_beat. */
wo_status woi_tune_see_provable(woi_tune *t, wo_error *err);

/* The planner: the run of timed batch sizes (rising) at which FULL is faster, up to the next one at which it is not. Of
 * several the one that has `asked`, or the longest, or the larger sizes. */
woi_batches woi_plan(const wo_eval_timing *timings, size_t n, uint32_t asked);

/* How many more rounds of timing the planner has time for, behind one that took so long. */
uint32_t woi_plan_rounds(const woi_tune *t, double took_s);

static inline double *woi_row(const woi_tune *t, size_t row)
{
    return t->rows + row * WOI_CURVE_COLUMNS;
}

/* Whether the best within a time is looked for, rather than the fastest that reaches a share of FULL's quality. */
static inline bool woi_by_time(const woi_tune *t)
{
    return t->o.target_us > 0;
}

/* Of a row: what its hits are worth; agreement where it is the goal, without labels, and where neither the index nor
 * FULL has a hit. FULL's is 1. What differs by less than WOI_ALIKE is as good. */
double woi_quality(const woi_tune *t, const double *row);
#define WOI_ALIKE 0.002

/* What a P@1 and a P@5, or a query's parts of them, are worth: the mean of their shares of FULL's. Where FULL's best
 * answer is never a label there are no shares: 1, and half of what both have over FULL's. */
static inline double woi_worth(const woi_tune *t, double at_1, double at_5)
{
    const double one = t->full[0], five = t->full[1];
    return one > 0 ? (at_1 / one + at_5 / five) / 2 : 1 + (at_1 + at_5 - five) / 2;
}
/* Whether a cell-filling imitates FULL: what does not is shown to be as good by hits alone. */
static inline bool woi_imitates(const wo_build_options *o)
{
    return o->method != WO_METHOD_EVIDENCE || (o->source & WO_SOURCE_TOP && o->prior == 0);
}

/* ---- The curve --------------------------------------------------------------------------------------------- */

extern const char *const woi_curve_names[WOI_CURVE_COLUMNS];
/* A curve of no rows: what was asked for, and what shows it. */
wo_curve woi_curve_of_goal(const woi_goal *goal);
/* The settings of options as columns; the figures stay as they are. */
void woi_curve_set(const wo_build_options *o, double *row);
void woi_curve_get(const double *row, wo_build_options *o);
/* Whether two rows have the same settings, the dial (lambda, popular) aside. */
bool woi_curve_same(const double *a, const double *b);
wo_status woi_curve_add(woi_tune *t, const double *row, wo_error *err);

#endif
