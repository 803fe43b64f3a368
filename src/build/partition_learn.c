/* Learning log Z: see search/partition.h.
 *
 * What is minimised is the error of log Z itself, by Gauss-Newton. With S the candidates' log sum and T the tail,
 *
 *   r = log Z - log(exp(S) + exp(T)),   d log Z / dT = p = exp(T) / (exp(S) + exp(T))
 *
 * so that a query counts by the share p that its tail has: where the candidates have nearly all of Z, the tail may be
 * anything. A step solves for the three coefficients, then goes once over the cells, then finds the direction by
 * conjugate gradients. A cell's number is drawn to 0, because most cells have seen few queries of the sample. How
 * strongly is decided by the half of the sample that is not fitted to.
 *
 * The intercept is then moved. Errors that are symmetric in log Z are not so in Z: of mean 0 and variance v they make
 * probabilities that sum to 1 + v / 2 on average; and sums that are 1 on average make the mean of -log p, which is what
 * perplexity goes by, too high by v / 2. Neither can be had without the other's fault, and each is made half as large:
 * the sums are exp(v / 4) on average, and log Z is v / 4 too high. */
#include "build/partition_learn.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/team.h"
#include "search/search.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 4096, /* queries between two reports */
    MOST_CELLS = 1 << 24 /* noted, for all queries together */,
    ROUNDS = 12,   /* of Gauss-Newton. WikiText-2, 22 candidates, held-out error: 0.1076 after 3, 0.1031 after 6, 0.1020
                      after 12 */
    GRADIENTS = 8, /* steps to the direction, in each round */
    PARTS = 32,    /* that sums are cut into */
    FEATURES = 3,  /* 1, the length, the candidates */
    FEW = WO_LOG_Z_FEW,  /* queries that are not worth halving: they are fitted to and measured on */
    STREAM = 0x6c6f675a, /* of the seed */
};

static const double SHRINK[] = {0.25, 1, 4};

/* ---- The sample -------------------------------------------------------------------------------------------- */

typedef struct sample {
    size_t n, n_cells, d; /* queries; cells of the index */
    const float *queries; /* the log's, */
    size_t *picks;        /* (n) of them */
    woi_seen seen;
    double *length, *log_z;      /* (n) */
    double typical, mean_square; /* log sum of the candidates; length */
    const woi_kernels *kernels;
    int threads;
} sample;

static void free_sample(sample *s)
{
    woi_free(s->seen.of_candidates);
    woi_free(s->seen.n_cells);
    woi_free(s->seen.cells);
    woi_free(s->picks);
    woi_free(s->length);
    woi_free(s->log_z);
}

static wo_status make_sample(const wo_index *index, const wo_log *log, sample *s, wo_error *err)
{
    const size_t room = woi_cells_opened(index, woi_wider_probes(index, index->options.probes));
    size_t n = log->n < WOI_LOG_Z_SAMPLE ? log->n : WOI_LOG_Z_SAMPLE;
    if (n * room > MOST_CELLS) n = MOST_CELLS / room;
    *s = (sample){.n = n, .n_cells = index->cells.n, .d = log->d, .queries = log->queries, .seen.room = room};
    s->picks = woi_alloc(n, sizeof *s->picks, err);
    s->seen.of_candidates = woi_alloc(n, sizeof *s->seen.of_candidates, err);
    s->seen.n_cells = woi_alloc(n, sizeof *s->seen.n_cells, err);
    s->seen.cells = woi_alloc(n * room, sizeof *s->seen.cells, err);
    s->length = woi_alloc(n, sizeof *s->length, err);
    s->log_z = woi_alloc(n, sizeof *s->log_z, err);
    return s->picks && s->seen.of_candidates && s->seen.n_cells && s->seen.cells && s->length && s->log_z
               ? WO_OK
               : WO_ERR_MEMORY;
}

/* The i-th of n places in 0 .. total-1, one drawn from each n-th of them. */
static size_t place(uint64_t seed, size_t i, size_t n, size_t total)
{
    const size_t low = woi_part_start(i, n, total), high = woi_part_start(i + 1, n, total);
    return low + (size_t)woi_rng_below(seed, STREAM, i, high - low);
}

/* The rows of the sample: of a counted log in proportion to the queries that they stand for, as these are what is
 * asked. */
static void pick_rows(const wo_index *index, const wo_log *log, sample *s)
{
    size_t total = log->n, row = 0, before = 0; /* queries before the row */
    if (log->counts) total = 0;
    for (size_t i = 0; log->counts && i < log->n; i++) total += (size_t)log->counts[i];
    for (size_t i = 0; i < s->n; i++) {
        const size_t at = place(index->options.seed, i, s->n, total);
        while (log->counts && at - before >= (size_t)log->counts[row]) before += (size_t)log->counts[row++];
        s->picks[i] = log->counts ? row : at;
    }
}

/* A chunk of queries, side by side, and what FULL says of them. */
typedef struct chunk {
    const wo_index *index;
    wo_searcher *searcher;
    float *q, scores[CHUNK];
    woi_log_sum lse[CHUNK];
    int32_t ids[CHUNK];
} chunk;

static const float *query_of(const sample *s, size_t i)
{
    return s->queries + s->picks[i] * s->d;
}

static wo_status ask(chunk *c, sample *s, size_t first, wo_error *err)
{
    const size_t d = s->d, n = s->n - first < CHUNK ? s->n - first : CHUNK;
    for (size_t i = 0; i < n; i++) memcpy(c->q + i * d, query_of(s, first + i), d * sizeof *c->q);
    const woi_exact_call call = {.layer = &c->index->rows,
                                 .q = c->q,
                                 .n = n,
                                 .k = 1,
                                 .threads = c->searcher->threads,
                                 .ids = c->ids,
                                 .scores = c->scores,
                                 .lse = c->lse};
    const wo_status status = woi_exact_topk(&call, err);
    if (status) return status;
    const woi_seen here = {s->seen.of_candidates + first, s->seen.n_cells + first, s->seen.cells + first * s->seen.room,
                           s->seen.room};
    woi_search_see(c->searcher, c->q, n, &here);
    for (size_t i = 0; i < n; i++) {
        s->length[first + i] = woi_length_of(c->searcher->kernels, c->q + i * d, d);
        s->log_z[first + i] = woi_log_sum_whole(c->lse[i]);
    }
    return WO_OK;
}

/* Queries whose logits overflow say nothing; a query without candidates has the mean of the others. */
static void clean(sample *s)
{
    double sum = 0, squares = 0;
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->log_z[i]) || !isfinite(s->length[i]) || !s->seen.n_cells[i]) continue;
        const size_t bytes = s->seen.room * sizeof *s->seen.cells;
        memmove(s->seen.cells + kept * s->seen.room, s->seen.cells + i * s->seen.room, bytes);
        s->seen.n_cells[kept] = s->seen.n_cells[i];
        s->seen.of_candidates[kept] = s->seen.of_candidates[i];
        s->picks[kept] = s->picks[i];
        s->length[kept] = s->length[i];
        s->log_z[kept++] = s->log_z[i];
        squares += s->length[i] * s->length[i];
        if (!isfinite(s->seen.of_candidates[i])) continue;
        sum += s->seen.of_candidates[i];
        n++;
    }
    s->n = kept;
    s->typical = n ? sum / (double)n : 0;
    s->mean_square = kept ? squares / (double)kept : 0;
}

static wo_status take_sample(const wo_index *index, const wo_log *log, sample *s, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = o->threads};
    wo_searcher *searcher = NULL;
    chunk *c = NULL;
    wo_status status = make_sample(index, log, s, err);
    if (!status) status = wo_searcher_create(index, &so, &searcher, err);
    if (!status && (!(c = woi_alloc_zero(1, sizeof *c, err)) || !(c->q = woi_alloc(CHUNK * log->d, sizeof *c->q, err))))
        status = WO_ERR_MEMORY;
    if (!status) {
        pick_rows(index, log, s);
        c->index = index;
        c->searcher = searcher;
    }
    for (size_t first = 0; !status && first < s->n; first += CHUNK) {
        status = woi_progress(&o->progress, "learning log Z", first, s->n, err);
        if (!status) status = ask(c, s, first, err);
    }
    if (!status) {
        s->kernels = searcher->kernels;
        s->threads = searcher->threads;
        clean(s);
    }
    if (c) woi_free(c->q);
    woi_free(c);
    wo_searcher_free(searcher);
    return status;
}

/* ---- Fitting ----------------------------------------------------------------------------------------------- */

/* Every step-th query of the sample, from `first` on: a half of it, or all. */
typedef struct part {
    size_t first, step;
} part;

/* A fit on its way. */
typedef struct fit {
    const sample *s;
    part of;
    double shrink;
    double b[FEATURES];
    double *of_cell;             /* (n_cells) */
    double *direction;           /* (d) */
    double *along;               /* (n): direction . q */
    double *tail, *p, *r;        /* (n): see above */
    double *sums;                /* (PARTS, d) */
    double *wanted, *now, *next; /* (d): of conjugate gradients */
    float *now_f32;
    size_t *starts, *users; /* the queries that open a cell c are users[starts[c] .. starts[c + 1]) */
} fit;

static void free_fit(fit *f)
{
    void *const owned[] = {f->of_cell, f->direction, f->along, f->tail,    f->p,      f->r,    f->sums,
                           f->wanted,  f->now,       f->next,  f->now_f32, f->starts, f->users};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
}

static wo_status make_fit(const sample *s, fit *f, wo_error *err)
{
    size_t opened = 0;
    for (size_t i = 0; i < s->n; i++) opened += s->seen.n_cells[i];
    *f = (fit){.s = s};
    f->of_cell = woi_alloc(s->n_cells, sizeof *f->of_cell, err);
    f->direction = woi_alloc(s->d, sizeof *f->direction, err);
    f->along = woi_alloc(s->n, sizeof *f->along, err);
    f->sums = woi_alloc(PARTS * s->d, sizeof *f->sums, err);
    f->wanted = woi_alloc(s->d, sizeof *f->wanted, err);
    f->now = woi_alloc(s->d, sizeof *f->now, err);
    f->next = woi_alloc(s->d, sizeof *f->next, err);
    f->now_f32 = woi_alloc(s->d, sizeof *f->now_f32, err);
    f->tail = woi_alloc(s->n, sizeof *f->tail, err);
    f->p = woi_alloc(s->n, sizeof *f->p, err);
    f->r = woi_alloc(s->n, sizeof *f->r, err);
    f->starts = woi_alloc(s->n_cells + 2, sizeof *f->starts, err);
    f->users = woi_alloc(opened, sizeof *f->users, err);
    return f->of_cell && f->direction && f->along && f->sums && f->wanted && f->now && f->next && f->now_f32 &&
                   f->tail && f->p && f->r && f->starts && f->users
               ? WO_OK
               : WO_ERR_MEMORY;
}

static void list_users(fit *f)
{
    const sample *s = f->s;
    memset(f->starts, 0, (s->n_cells + 2) * sizeof *f->starts);
    size_t *ends = f->starts + 1; /* become the starts of the next */
    for (size_t i = f->of.first; i < s->n; i += f->of.step)
        for (size_t c = 0; c < s->seen.n_cells[i]; c++) ends[s->seen.cells[i * s->seen.room + c] + 1]++;
    for (size_t c = 0; c < s->n_cells; c++) ends[c + 1] += ends[c];
    for (size_t i = f->of.first; i < s->n; i += f->of.step)
        for (size_t c = 0; c < s->seen.n_cells[i]; c++) f->users[ends[s->seen.cells[i * s->seen.room + c]]++] = i;
}

static double candidates_of(const sample *s, size_t i)
{
    return isfinite(s->seen.of_candidates[i]) ? s->seen.of_candidates[i] : s->typical;
}

static void features_of(const sample *s, size_t i, double x[FEATURES])
{
    x[0] = 1;
    x[1] = s->length[i];
    x[2] = candidates_of(s, i);
}

/* The tails of a part of the sample, and from them residuals and weights. */
static void predict(fit *f, part of)
{
    const sample *s = f->s;
    for (size_t i = of.first; i < s->n; i += of.step) {
        double x[FEATURES], of_cells = 0;
        features_of(s, i, x);
        for (size_t c = 0; c < s->seen.n_cells[i]; c++) of_cells += f->of_cell[s->seen.cells[i * s->seen.room + c]];
        f->tail[i] = f->along[i] + of_cells / (double)s->seen.n_cells[i];
        for (int j = 0; j < FEATURES; j++) f->tail[i] += f->b[j] * x[j];
        const double z = woi_log_add(s->seen.of_candidates[i], f->tail[i]);
        f->r[i] = s->log_z[i] - z;
        f->p[i] = exp(f->tail[i] - z);
    }
}

/* Solves a x = b, symmetric and positive, in place: elimination without pivots. */
static void solve(double a[FEATURES][FEATURES], double b[FEATURES])
{
    for (int k = 0; k < FEATURES; k++)
        for (int i = k + 1; i < FEATURES; i++) {
            const double by = a[i][k] / a[k][k];
            for (int j = k; j < FEATURES; j++) a[i][j] -= by * a[k][j];
            b[i] -= by * b[k];
        }
    for (int k = FEATURES - 1; k >= 0; k--) {
        for (int j = k + 1; j < FEATURES; j++) b[k] -= a[k][j] * b[j];
        b[k] /= a[k][k];
    }
}

static void step_coefficients(fit *f)
{
    const sample *s = f->s;
    double a[FEATURES][FEATURES] = {{0}}, b[FEATURES] = {0}, x[FEATURES];
    for (size_t i = f->of.first; i < s->n; i += f->of.step) {
        features_of(s, i, x);
        for (int j = 0; j < FEATURES; j++) {
            for (int k = 0; k < FEATURES; k++) a[j][k] += f->p[i] * f->p[i] * x[j] * x[k];
            b[j] += f->p[i] * f->r[i] * x[j];
        }
    }
    /* Queries may all be of one length: then their length is not told from the intercept, and keeps its part. */
    for (int j = 0; j < FEATURES; j++) a[j][j] += 1e-9 * a[j][j] + 1e-9;
    solve(a, b);
    for (int j = 0; j < FEATURES; j++) f->b[j] += b[j];
}

/* One cell after the other, in their order. */
static void step_cells(fit *f)
{
    const sample *s = f->s;
    for (size_t c = 0; c < s->n_cells; c++) {
        double up = -f->shrink * f->of_cell[c], down = f->shrink;
        for (size_t at = f->starts[c]; at < f->starts[c + 1]; at++) {
            const size_t i = f->users[at];
            const double slope = f->p[i] / (double)s->seen.n_cells[i];
            up += slope * f->r[i];
            down += slope * slope;
        }
        f->of_cell[c] += up / down;
        for (size_t at = f->starts[c]; at < f->starts[c + 1]; at++) {
            const size_t i = f->users[at];
            f->r[i] -= f->p[i] / (double)s->seen.n_cells[i] * up / down;
        }
    }
}

/* A sum over the queries of the part: of weight * q. Without `along` the weight is p r, with it p p (q . now). Cut by
 * count, and the pieces added in their order, so that threads change nothing. */
typedef struct summing {
    fit *f;
    bool square;
} summing;

static void sum_part(void *own, int worker, size_t number)
{
    (void)worker;
    const summing *sum = own;
    const fit *f = sum->f;
    const sample *s = f->s;
    const size_t n = (s->n - f->of.first + f->of.step - 1) / f->of.step, d = s->d;
    double *to = f->sums + number * d;
    memset(to, 0, d * sizeof *to);
    for (size_t at = woi_part_start(number, PARTS, n); at < woi_part_start(number + 1, PARTS, n); at++) {
        const size_t i = f->of.first + at * f->of.step;
        const float *q = query_of(s, i);
        double weight = f->p[i] * f->r[i];
        if (sum->square) {
            float dot;
            s->kernels->dot_f32(q, f->now_f32, 1, d, d, &dot);
            weight = f->p[i] * f->p[i] * (double)dot;
        }
        for (size_t j = 0; j < d; j++) to[j] += weight * (double)q[j];
    }
}

static void sum_up(fit *f, bool square, double *to)
{
    const size_t d = f->s->d;
    for (size_t j = 0; square && j < d; j++) f->now_f32[j] = (float)f->now[j];
    woi_team_for(f->s->threads, PARTS, sum_part, &(summing){f, square});
    memset(to, 0, d * sizeof *to);
    for (size_t k = 0; k < PARTS; k++)
        for (size_t j = 0; j < d; j++) to[j] += f->sums[k * d + j];
}

static double product(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* A few steps of conjugate gradients for (sum of p p q q' + ridge) x = sum of p r q - ridge direction. The ridge draws
 * direction . q to 0 as strongly as a cell's number: samples may have fewer queries than d. */
static void step_direction(fit *f)
{
    const size_t d = f->s->d;
    const double ridge = f->shrink * f->s->mean_square;
    sum_up(f, false, f->wanted);
    for (size_t j = 0; j < d; j++) f->wanted[j] -= ridge * f->direction[j];
    memcpy(f->now, f->wanted, d * sizeof *f->now);
    double left = product(f->wanted, f->wanted, d);
    for (int k = 0; k < GRADIENTS; k++) {
        sum_up(f, true, f->next);
        for (size_t j = 0; j < d; j++) f->next[j] += ridge * f->now[j];
        const double curvature = product(f->now, f->next, d);
        if (!(curvature > 0) || !(left > 0)) break;
        const double by = left / curvature;
        for (size_t j = 0; j < d; j++) {
            f->direction[j] += by * f->now[j];
            f->wanted[j] -= by * f->next[j];
        }
        const double now_left = product(f->wanted, f->wanted, d);
        for (size_t j = 0; j < d; j++) f->now[j] = f->wanted[j] + now_left / left * f->now[j];
        left = now_left;
    }
}

static void project_part(void *own, int worker, size_t first, size_t end)
{
    (void)worker;
    const fit *f = own;
    const size_t d = f->s->d;
    for (size_t i = first; i < end; i++) {
        float dot;
        f->s->kernels->dot_f32(query_of(f->s, i), f->now_f32, 1, d, d, &dot);
        f->along[i] = (double)dot;
    }
}

static void project(fit *f)
{
    for (size_t j = 0; j < f->s->d; j++) f->now_f32[j] = (float)f->direction[j];
    woi_team_ranges(f->s->threads, f->s->n, CHUNK, project_part, f);
}

/* Begins with what the tails were on average. */
static void begin(fit *f)
{
    const sample *s = f->s;
    double sum = 0, weight = 0;
    for (size_t i = f->of.first; i < s->n; i += f->of.step) {
        const double share = -expm1(s->seen.of_candidates[i] - s->log_z[i]);
        if (!(share > 1e-4)) continue;
        sum += share * share * (s->log_z[i] + log(share));
        weight += share * share;
    }
    memset(f->b, 0, sizeof f->b);
    memset(f->of_cell, 0, s->n_cells * sizeof *f->of_cell);
    memset(f->direction, 0, s->d * sizeof *f->direction);
    memset(f->along, 0, s->n * sizeof *f->along);
    f->b[0] = weight > 0 ? sum / weight : s->typical;
}

static void run(fit *f, part of, double shrink)
{
    f->of = of;
    f->shrink = shrink;
    list_users(f);
    begin(f);
    for (int round = 0; round < ROUNDS; round++) {
        predict(f, of);
        step_coefficients(f);
        predict(f, of);
        step_cells(f);
        predict(f, of);
        step_direction(f);
        project(f);
    }
}

/* ---- Measuring --------------------------------------------------------------------------------------------- */

/* Over a part of the sample, with the intercept moved: log Z - its estimate. */
typedef struct errors {
    double mean, mean_square, mean_exp;
} errors;

static errors measure(const fit *f, part of, double moved)
{
    const sample *s = f->s;
    errors e = {0};
    size_t n = 0;
    for (size_t i = of.first; i < s->n; i += of.step, n++) {
        const double r = s->log_z[i] - woi_log_add(s->seen.of_candidates[i], f->tail[i] + moved);
        e.mean += r;
        e.mean_square += r * r;
        e.mean_exp += exp(r);
    }
    if (n) e = (errors){e.mean / (double)n, e.mean_square / (double)n, e.mean_exp / (double)n};
    return e;
}

/* How far the intercept is moved, so that sums of probabilities are as much above 1 as log Z is too high. Both fall
 * with it. */
static double find_move(const fit *f, part of)
{
    double low = -8, high = 8;
    for (int i = 0; i < 40; i++) {
        const double middle = (low + high) / 2;
        const errors e = measure(f, of, middle);
        if (log(e.mean_exp) + e.mean > 0)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static void learn(fit *f, float *numbers)
{
    const bool few = f->s->n < FEW;
    const part all = {0, 1}, fitted = few ? all : (part){0, 2}, held = few ? all : (part){1, 2};
    double best = INFINITY, shrink = SHRINK[0];
    errors e = {0};
    double moved = 0;
    for (size_t i = 0; i < sizeof SHRINK / sizeof *SHRINK; i++) {
        run(f, fitted, SHRINK[i]);
        predict(f, held);
        const double own_move = find_move(f, held);
        const errors own = measure(f, held, own_move);
        if (!(own.mean_square < best)) continue;
        best = own.mean_square;
        shrink = SHRINK[i];
        e = own;
        moved = own_move;
    }
    run(f, all, shrink);
    const float found[] = {[WOI_LOG_Z_INTERCEPT] = (float)(f->b[0] + moved), [WOI_LOG_Z_OF_LENGTH] = (float)f->b[1],
                           [WOI_LOG_Z_OF_CANDIDATES] = (float)f->b[2],       [WOI_LOG_Z_TYPICAL] = (float)f->s->typical,
                           [WOI_LOG_Z_ERROR] = (float)sqrt(e.mean_square),   [WOI_LOG_Z_BIAS] = (float)-e.mean};
    memcpy(numbers, found, sizeof found);
}

wo_status woi_partition_learn(wo_index *index, const wo_log *log, wo_error *err)
{
    sample s = {0};
    fit f = {0};
    woi_partition made = {0};
    wo_status status = take_sample(index, log, &s, err);
    if (!status && !s.n)
        status = woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "partition",
                                "no query of the log has logits that log Z can be learned from");
    if (!status) status = make_fit(&s, &f, err);
    if (!status && (!(made.numbers = woi_alloc(WOI_LOG_Z_NUMBERS, sizeof *made.numbers, err)) ||
                    !(made.direction = woi_alloc(s.d, sizeof *made.direction, err)) ||
                    !(made.of_cell = woi_alloc(s.n_cells, sizeof *made.of_cell, err))))
        status = WO_ERR_MEMORY;
    if (!status) {
        learn(&f, made.numbers);
        for (size_t c = 0; c < s.n_cells; c++) made.of_cell[c] = (float)f.of_cell[c];
        for (size_t j = 0; j < s.d; j++) made.direction[j] = (float)f.direction[j];
        /* What opening the file would refuse. */
        if (!woi_all_finite(made.numbers, WOI_LOG_Z_NUMBERS) || !woi_all_finite(made.direction, s.d) ||
            !woi_all_finite(made.of_cell, s.n_cells))
            status = woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "partition",
                                    "log Z cannot be learned from the log: its logits are too large");
    }
    if (!status) {
        woi_partition_free(&index->partition);
        index->partition = made;
        made = (woi_partition){0};
    }
    woi_partition_free(&made);
    free_fit(&f);
    free_sample(&s);
    return status;
}
