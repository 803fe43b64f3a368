/* Building slide and lss: Algorithm 1 of the paper.
 *
 *   planes -> cells of all neurons [w, b]
 *   for each batch of queries:
 *     S_i = the neurons that share one of the L cells of query i
 *     P+  = (query, label) with the label not in S_i and its logit above t1
 *     P-  = (query, neuron of S_i that is no label) with its logit below t2
 *     shuffle both, g = min(|P+|, |P-|), one step of the Index Update Loss on the first g of each
 *     cells of all neurons again
 *
 * Which step is kept, the best or (last_step, as in the paper) the last, is lss_judge.c's business.
 *
 * S_i is never listed. A label is in S_i when one of its L cells is the query's. And P- needs no more than its first g
 * after shuffling: places in the cells that the batch opens are walked in a random order, each once, and those that
 * belong to P- are taken, until there are as many as in P+ or no place is left. A neuron that shares several cells with
 * a query counts in the first of them only. So a step costs the hashing of the neurons and little else. */
#include "build/lss.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "route/iul.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* mean start: theta = 0.5 noise + 3 mean/|mean|. Queries then open one cell of a table nearly all, and learning decides
 * which neurons join them there. */
enum { TRIES = 1000 };
static const float MEAN_NOISE = 0.5f, MEAN_LEAN = 3;

typedef struct lss {
    const woi_dense *rows;
    const wo_log *log;
    const wo_build_options *o;
    wo_index *index;
    const woi_kernels *kernels;
    woi_iul iul;
    woi_iul_data data;
    float *q_scale, *x_scale; /* (log->n), (m) */
    float *above, *below;     /* (log->n): the logits of rank t1 and t2 */
    uint32_t *labelled;       /* the queries that have labels */
    size_t n_labelled;
    uint32_t *neuron_cells; /* (m, L) */
    size_t batch;
    uint32_t *queries;     /* (batch): places in the log */
    float *q;              /* (batch, d) */
    uint32_t *query_cells; /* (batch, L) */
    uint64_t *starts;      /* (batch L + 1): places in the opened cells, one cell after the other */
    woi_iul_pair *positive, *negative;
    size_t positive_room, negative_room;
    woi_lss_trace trace;
    woi_lss_judge judge; /* n = 0: the last step is kept */
    double best_loss;    /* since the row of the trace before the best step */
} lss;

/* ---- Start ------------------------------------------------------------------------------------------------- */

/* theta ~ N(0, 1) in all d + 1 coordinates: SimHash. */
static void draw_planes(woi_hash *hash, uint64_t seed)
{
    const size_t planes = (size_t)hash->K * hash->L;
    for (size_t j = 0; j <= hash->d; j++) {
        float *row = j < hash->d ? hash->planes + j * hash->n_planes : hash->bias_planes;
        for (size_t p = 0; p < planes; p++) row[p] = woi_rng_normal(seed, WOI_LSS_PLANES, j * planes + p);
    }
}

static wo_status lean_on_mean(lss *s, wo_error *err)
{
    const size_t d = s->rows->d, planes = (size_t)s->o->K * s->o->L;
    double *mean = woi_alloc_zero(d + 1, sizeof *mean, err), square = 0;
    if (!mean) return WO_ERR_MEMORY;
    const woi_lss_judge *judge = &s->judge;
    for (size_t i = 0, held = 0; i < s->log->n; i++) {
        if (judge->held_out && held < judge->n && judge->query[held] == i)
            held++;
        else
            for (size_t j = 0; j < d; j++) mean[j] += (double)s->log->queries[i * d + j];
    }
    for (size_t j = 0; j < d; j++) square += mean[j] * mean[j];
    const double lean = square > 0 ? (double)MEAN_LEAN / sqrt(square) : 0;
    for (size_t j = 0; j <= d; j++)
        for (size_t p = 0; p < planes; p++)
            s->iul.theta[j * s->iul.n_planes + p] =
                MEAN_NOISE * woi_rng_normal(s->o->seed, WOI_LSS_PLANES, j * planes + p) + (float)(lean * mean[j]);
    woi_free(mean);
    return WO_OK;
}

static wo_status rebuild(const woi_dense *rows, int threads, uint32_t *neuron_cells, wo_index *index, wo_error *err)
{
    const woi_neurons neurons = {rows->m, rows->w, rows->b};
    wo_status status = woi_hash_neurons(&index->hash, &neurons, threads, neuron_cells, err);
    if (!status) status = woi_hash_check(neuron_cells, rows->m * index->hash.L, WO_ABOUT_LAYER, err);
    if (status) return status;
    woi_cells_free(&index->cells);
    return woi_fill_by_hash(neuron_cells, rows->m, index->hash.L, woi_hash_n_cells(&index->hash), &index->cells, err);
}

wo_status woi_build_slide(const wo_layer *layer, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    uint32_t *neuron_cells = woi_alloc(layer->dense.m, o->L * sizeof *neuron_cells, err);
    if (!neuron_cells) return WO_ERR_MEMORY;
    wo_status status = woi_hash_create(o->K, o->L, layer->dense.d, true, &index->hash, err);
    if (!status) {
        draw_planes(&index->hash, o->seed);
        status = rebuild(&layer->dense, o->threads, neuron_cells, index, err);
    }
    woi_free(neuron_cells);
    return status;
}

/* ---- Pairs ------------------------------------------------------------------------------------------------- */

static float logit(const lss *s, size_t query, int32_t id)
{
    float z;
    s->kernels->gather_f32(s->log->queries + query * s->rows->d, s->rows->w, &id, 1, s->rows->d, s->rows->d, &z);
    return s->rows->b ? z + s->rows->b[id] : z;
}

/* The queries of a batch, epoch after epoch in another order, and their cells. */
static wo_status next_batch(lss *s, uint64_t step, wo_error *err)
{
    const size_t d = s->rows->d;
    for (size_t i = 0; i < s->batch; i++) {
        const uint64_t at = step * s->batch + i, epoch = at / s->n_labelled;
        s->queries[i] =
            s->labelled[woi_rng_permute(s->o->seed, WOI_LSS_ORDER, epoch, s->n_labelled, at % s->n_labelled)];
        memcpy(s->q + i * d, s->log->queries + s->queries[i] * d, d * sizeof *s->q);
    }
    const wo_status status = woi_hash_queries(&s->index->hash, s->q, s->batch, s->o->threads, s->query_cells, err);
    return status ? status : woi_hash_check(s->query_cells, s->batch * s->o->L, WO_ABOUT_LOG, err);
}

static wo_status find_positive(lss *s, size_t *n, wo_error *err)
{
    const uint32_t L = s->o->L;
    *n = 0;
    for (size_t i = 0; i < s->batch; i++) {
        const size_t query = s->queries[i];
        for (int64_t at = s->log->indptr[query]; at < s->log->indptr[query + 1]; at++) {
            const int32_t id = s->log->labels[at];
            if (woi_lss_retrieved(s->query_cells + i * L, s->neuron_cells + (size_t)id * L, L)) continue;
            const float z = logit(s, query, id);
            if (s->o->t_are_values ? !((double)z > s->o->t1) : z < s->above[query]) continue;
            if (*n == s->positive_room &&
                woi_grow(&s->positive, &s->positive_room, *n, *n + 1, sizeof *s->positive, err))
                return WO_ERR_MEMORY;
            s->positive[(*n)++] = (woi_iul_pair){(uint32_t)query, id};
        }
    }
    return WO_OK;
}

/* Whether place `at` of the batch's opened cells belongs to P-; then the pair. */
static bool is_negative(const lss *s, uint64_t at, woi_iul_pair *pair)
{
    const uint32_t L = s->o->L;
    size_t low = 0, high = s->batch * L; /* the cell that holds it */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (s->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    const size_t i = low / L, l = low % L, query = s->queries[i];
    const uint32_t *of_query = s->query_cells + i * L;
    const int32_t id = s->index->cells.ids[s->index->cells.offsets[of_query[l]] + (at - s->starts[low])];
    if (woi_lss_retrieved(of_query, s->neuron_cells + (size_t)id * L, (uint32_t)l)) return false;
    if (woi_lss_is_label(s->log, query, id)) return false;
    const float z = logit(s, query, id);
    *pair = (woi_iul_pair){(uint32_t)query, id};
    return s->o->t_are_values ? (double)z < s->o->t2 : z < s->below[query];
}

/* The first `most` of P- in random order, *n of them. Where less than one place in TRIES belongs to P- the walk ends
 * early: it would otherwise score all that the batch retrieves, every step. */
static void find_negative(lss *s, uint64_t step, size_t most, size_t *n)
{
    const woi_cells *cells = &s->index->cells;
    const size_t opened = s->batch * s->o->L;
    for (size_t c = 0; c < opened; c++) {
        const uint32_t cell = s->query_cells[c];
        s->starts[c + 1] = s->starts[c] + cells->offsets[cell + 1] - cells->offsets[cell];
    }
    const uint64_t places = s->starts[opened], tries = places < TRIES * most ? places : TRIES * most;
    *n = 0;
    for (uint64_t i = 0; i < tries && *n < most; i++)
        *n += is_negative(s, woi_rng_permute(s->o->seed, WOI_LSS_NEGATIVE, step, places, i), &s->negative[*n]);
}

/* ---- Learning ---------------------------------------------------------------------------------------------- */

/* One batch; *loss is that of a pair in a table, 0 where no label is missed and nothing is learned.
 *
 * Nothing to push out, P- empty, is g = 0 as printed, and a state that no step ever leaves: the mean start on Debian,
 * where nearly all neurons lie opposite to the queries, ends with 0 neurons a query. So P+ then pulls alone, and the
 * same start gives 95% of FULL's P@1 with 6.7% of the neurons. It changes nothing where neurons are retrieved. */
static wo_status learn_step(lss *s, uint64_t step, double *loss, wo_error *err)
{
    *loss = 0;
    size_t n_positive = 0, n_negative = 0;
    wo_status status = next_batch(s, step, err);
    if (!status) status = find_positive(s, &n_positive, err);
    if (status || !n_positive) return status;
    if ((status = woi_grow(&s->negative, &s->negative_room, 0, n_positive, sizeof *s->negative, err))) return status;
    find_negative(s, step, n_positive, &n_negative);
    const size_t g = n_negative ? n_negative : n_positive, n_pairs = g + n_negative;
    /* The first g of P+ in random order: place i changes with one of those not yet taken. */
    for (size_t i = 0; i < g && g < n_positive; i++) {
        const size_t other = i + woi_rng_below(s->o->seed, WOI_LSS_POSITIVE, step << 32 | i, n_positive - i);
        const woi_iul_pair swapped = s->positive[i];
        s->positive[i] = s->positive[other];
        s->positive[other] = swapped;
    }
    *loss = woi_iul_gradient(&s->iul, &s->data, s->positive, g, s->negative, n_negative) / (double)(n_pairs * s->o->L);
    woi_iul_step(&s->iul, n_pairs);
    woi_iul_planes(&s->iul, s->data.bias_scale, &s->index->hash);
    return rebuild(s->rows, s->o->threads, s->neuron_cells, s->index, err);
}

/* A row of the trace about the index as it is; verdict NULL: nobody judged it. */
static wo_status take_row(lss *s, uint64_t step, double loss, const woi_lss_verdict *verdict, double *row,
                          wo_error *err)
{
    row[WOI_TRACE_STEP] = (double)step;
    row[WOI_TRACE_LOSS] = loss;
    row[WOI_TRACE_JUDGED_RECALL] = verdict ? verdict->recall : NAN;
    row[WOI_TRACE_JUDGED_NEURONS] = verdict ? verdict->neurons : NAN;
    row[WOI_TRACE_KEPT] = 0;
    return woi_lss_trace_take(&s->trace, &s->index->hash, s->neuron_cells, &s->index->cells, row, err);
}

/* Judges the step that was just made, and takes its row where the trace has one. */
static wo_status look_at(lss *s, uint64_t step, double loss, bool traced, wo_error *err)
{
    wo_index *index = s->index;
    woi_lss_verdict verdict;
    if (s->judge.n) {
        verdict =
            woi_lss_judge_step(&s->judge, step, &(woi_lss_state){&index->hash, s->neuron_cells, &index->cells}, traced);
        if (s->judge.best.step == step) s->best_loss = loss;
    } else {
        s->best_loss = loss;
    }
    if (!traced) return WO_OK;
    double *row = index->trace + index->n_trace++ * WOI_TRACE_COLUMNS;
    return take_row(s, step, loss, s->judge.n ? &verdict : NULL, row, err);
}

/* Goes back to the step that is kept, and marks its row of the trace: a new one where it had none. */
static wo_status keep(lss *s, uint64_t steps, wo_error *err)
{
    wo_index *index = s->index;
    const uint64_t step = s->judge.n ? s->judge.best.step : steps;
    wo_status status = WO_OK;
    if (step != steps) {
        woi_lss_judge_restore(&s->judge, &index->hash);
        status = rebuild(s->rows, s->o->threads, s->neuron_cells, index, err);
    }
    size_t r = 0;
    while (r < index->n_trace && index->trace[r * WOI_TRACE_COLUMNS + WOI_TRACE_STEP] < (double)step) r++;
    double *row = index->trace + r * WOI_TRACE_COLUMNS;
    if (!status && (r == index->n_trace || row[WOI_TRACE_STEP] > (double)step)) {
        memmove(row + WOI_TRACE_COLUMNS, row, (index->n_trace++ - r) * WOI_TRACE_COLUMNS * sizeof *row);
        status = take_row(s, step, s->best_loss, s->judge.n ? &s->judge.best : NULL, row, err);
    }
    row[WOI_TRACE_KEPT] = 1;
    return status;
}

static wo_status learn(lss *s, wo_error *err)
{
    const uint64_t steps = s->o->iterations;
    const uint64_t points = s->o->trace_points < steps ? s->o->trace_points : steps;
    wo_index *index = s->index;
    index->trace = woi_alloc_zero(points + 2, WOI_TRACE_COLUMNS * sizeof *index->trace, err);
    if (!index->trace) return WO_ERR_MEMORY;
    index->trace_columns = WOI_TRACE_COLUMNS;
    wo_status status = look_at(s, 0, 0, true, err);
    double sum = 0, terms = 0; /* losses since the last row */
    for (uint64_t step = 0; step < steps && !status; step++) {
        double loss;
        if ((status = woi_progress(&s->o->progress, "learning", step, steps, err))) break;
        if ((status = learn_step(s, step, &loss, err))) break;
        if (step == 0) index->trace[WOI_TRACE_LOSS] = loss;
        sum += loss;
        terms += loss > 0;
        const bool traced = points && step + 1 == steps * index->n_trace / points && index->n_trace <= points;
        status = look_at(s, step + 1, terms > 0 ? sum / terms : 0, traced, err);
        if (traced) sum = terms = 0;
    }
    return status ? status : keep(s, steps, err);
}

static wo_status prepare(lss *s, wo_error *err)
{
    const size_t n = s->log->n, m = s->rows->m, d = s->rows->d, L = s->o->L;
    if (!(s->kernels = woi_kernels_get(err))) return WO_ERR_UNSUPPORTED;
    if (!(s->labelled = woi_alloc(n, sizeof *s->labelled, err)) ||
        !(s->q_scale = woi_alloc(n, sizeof *s->q_scale, err)) || !(s->x_scale = woi_alloc(m, sizeof *s->x_scale, err)))
        return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (s->log->indptr[i + 1] > s->log->indptr[i]) s->labelled[s->n_labelled++] = (uint32_t)i;
    s->batch = s->o->batch;
    if (!(s->above = woi_alloc(n, sizeof *s->above, err)) || !(s->below = woi_alloc(n, sizeof *s->below, err)) ||
        !(s->neuron_cells = woi_alloc(m, L * sizeof *s->neuron_cells, err)) ||
        !(s->queries = woi_alloc(s->batch, sizeof *s->queries, err)) ||
        !(s->q = woi_alloc(s->batch, d * sizeof *s->q, err)) ||
        !(s->query_cells = woi_alloc(s->batch, L * sizeof *s->query_cells, err)) ||
        !(s->starts = woi_alloc_zero(s->batch * L + 1, sizeof *s->starts, err)))
        return WO_ERR_MEMORY;
    woi_iul_query_scale(s->log->queries, n, d, s->q_scale);
    const float bias_scale = woi_iul_neuron_scale(s->rows->w, s->rows->b, m, d, s->x_scale);
    s->data = (woi_iul_data){s->log->queries, s->q_scale, s->rows->w, s->rows->b, s->x_scale, bias_scale};
    const woi_iul_options options = {s->o->K, s->o->L, d, s->o->loss, s->o->optimiser, s->o->rate, s->o->threads};
    wo_status status = woi_iul_create(&options, &s->iul, err);
    if (!status)
        status = woi_lss_trace_create(&(woi_labelled){s->log, s->labelled, s->n_labelled}, m, s->o, &s->trace, err);
    if (!status && !s->o->last_step)
        status = woi_lss_judge_create(s->log, s->labelled, &s->n_labelled, s->index, &s->judge, err);
    if (!status && !s->o->t_are_values) status = woi_lss_thresholds(s->rows, s->log, s->o, s->above, s->below, err);
    return status;
}

wo_status woi_build_lss(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    if (!log->indptr || log->indptr[log->n] == 0)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                              "the log has no labels, and lss learns from labels");
    if (log->n > UINT32_MAX)
        return woi_fail_about(err, WO_ERR_UNSUPPORTED, WO_ABOUT_LOG, "", "%zu queries are too many to learn from",
                              log->n);
    if (log->max_label >= (int64_t)layer->dense.m)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                              "the log has label %" PRId64 ", the layer %zu classes", log->max_label, layer->dense.m);
    lss s = {.rows = &layer->dense, .log = log, .o = o, .index = index};
    wo_status status = woi_hash_create(o->K, o->L, s.rows->d, true, &index->hash, err);
    if (!status) status = prepare(&s, err);
    if (!status) {
        if (o->init == WO_INIT_RANDOM) {
            draw_planes(&index->hash, o->seed);
            woi_iul_start(&s.iul, s.data.bias_scale, &index->hash);
        } else {
            status = lean_on_mean(&s, err);
            woi_iul_planes(&s.iul, s.data.bias_scale, &index->hash);
        }
    }
    if (!status) status = rebuild(s.rows, o->threads, s.neuron_cells, index, err);
    if (!status) status = learn(&s, err);
    woi_iul_free(&s.iul);
    woi_lss_trace_free(&s.trace);
    woi_lss_judge_free(&s.judge);
    void *const owned[] = {s.q_scale, s.x_scale, s.above,       s.below,  s.labelled, s.neuron_cells,
                           s.queries, s.q,       s.query_cells, s.starts, s.positive, s.negative};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    return status;
}
