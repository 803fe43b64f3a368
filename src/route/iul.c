/* The Index Update Loss: forwards and backwards are matrix products over tiles of pairs.
 *
 * With A_w = tanh(X_w theta), A_q = tanh(X_q theta) and c = dIUL/da of a pair in a table,
 *
 *   dIUL/dtheta = X_w^T (c A_q (1 - A_w^2)) + X_q^T (c A_w (1 - A_q^2))
 *
 * The pairs are cut into N_PARTS equal runs, whatever the threads; a part has a gradient of its own, and these are
 * added up in the order of the parts. */
#include "route/iul.h"

#include "base/mem.h"
#include "base/team.h"
#include "kernels/gemm.h"

#include <math.h>
#include <string.h>

enum { N_PARTS = 16, TILE = 64 };
static const float MARGIN_SLOPE = 3, MARGIN_OFF = 1;
static const double BETA1 = 0.9, BETA2 = 0.999;

static size_t row_of(const woi_iul *iul)
{
    return iul->options.d + 1;
}

/* The products' own, X_q (TILE, d), X_w (TILE, d + 1), A_q and A_w (TILE, n_planes): one thread's. */
static size_t scratch_of(const woi_iul *iul)
{
    return WOI_GEMM_SCRATCH + TILE * ((2 * row_of(iul) + 15) / 16 * 16 + 2 * iul->n_planes);
}

wo_status woi_iul_create(const woi_iul_options *options, woi_iul *iul, wo_error *err)
{
    *iul = (woi_iul){.options = *options, .n_planes = ((size_t)options->K * options->L + 15) / 16 * 16};
    iul->options.threads = woi_team_threads(iul->options.threads);
    if (iul->options.threads > N_PARTS) iul->options.threads = N_PARTS;
    if (!(iul->kernels = woi_kernels_get(err))) return WO_ERR_UNSUPPORTED;
    const size_t rows = row_of(iul), row_bytes = iul->n_planes * sizeof(float);
    if ((iul->theta = woi_alloc_zero(rows, row_bytes, err)) && (iul->gradient = woi_alloc_zero(rows, row_bytes, err)) &&
        (iul->moment = woi_alloc_zero(rows, row_bytes, err)) && (iul->power = woi_alloc_zero(rows, row_bytes, err)) &&
        (iul->parts = woi_alloc(N_PARTS * rows, row_bytes, err)) &&
        (iul->scratch = woi_alloc((size_t)iul->options.threads, scratch_of(iul) * sizeof(float), err)))
        return WO_OK;
    woi_iul_free(iul);
    return WO_ERR_MEMORY;
}

void woi_iul_free(woi_iul *iul)
{
    float *const owned[] = {iul->theta, iul->gradient, iul->moment, iul->power, iul->parts, iul->scratch};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    *iul = (woi_iul){0};
}

/* ---- Lengths ----------------------------------------------------------------------------------------------- */

static double sum_of_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static float inverse_root(double square)
{
    return square > 0 ? (float)(1 / sqrt(square)) : 0;
}

void woi_iul_query_scale(const float *q, size_t n, size_t d, float *scale)
{
    for (size_t i = 0; i < n; i++) scale[i] = inverse_root(sum_of_squares(q + i * d, d));
}

float woi_iul_neuron_scale(const float *w, const float *b, size_t m, size_t d, float *scale)
{
    const double in_w = sum_of_squares(w, m * d) / ((double)m * (double)d);
    const double in_b = b ? sum_of_squares(b, m) / (double)m : 0;
    const float s = in_w > 0 && in_b > 0 ? (float)sqrt(in_w / in_b) : 1;
    for (size_t i = 0; i < m; i++) {
        const double bias = b ? (double)s * (double)b[i] : 0;
        scale[i] = inverse_root(sum_of_squares(w + i * d, d) + bias * bias);
    }
    return s;
}

/* ---- Loss and gradient ------------------------------------------------------------------------------------- */

/* log(1 + exp(x)) without overflow: -log sigma(s) is softplus(-s), -log(1 - sigma(s)) is softplus(s). */
static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x > 0 ? 1 : e) / (1 + e);
}

static void gather(const woi_iul *iul, const woi_iul_data *data, const woi_iul_pair *pairs, size_t n, float *xq,
                   float *xw)
{
    const size_t d = iul->options.d;
    for (size_t i = 0; i < n; i++) {
        const size_t query = pairs[i].query, neuron = (size_t)pairs[i].neuron;
        const float *q = data->q + query * d, *w = data->w + neuron * d;
        const float q_scale = data->q_scale[query], x_scale = data->x_scale[neuron];
        for (size_t j = 0; j < d; j++) {
            xq[i * d + j] = q[j] * q_scale;
            xw[i * (d + 1) + j] = w[j] * x_scale;
        }
        xw[i * (d + 1) + d] = data->b ? data->b[neuron] * data->bias_scale * x_scale : 0;
    }
}

/* Turns the projections of one pair into codes, then into what multiplies X_q and X_w in the gradient. The loss. */
static double pair_loss(const woi_iul_options *o, bool positive, float *aq, float *aw)
{
    const float slope = o->loss == WO_LOSS_MARGIN ? MARGIN_SLOPE : 1;
    const float middle = o->loss == WO_LOSS_MARGIN ? (float)o->K - MARGIN_OFF : 0;
    double loss = 0;
    for (size_t p = 0; p < (size_t)o->K * o->L; p++) {
        aq[p] = tanhf(aq[p]);
        aw[p] = tanhf(aw[p]);
    }
    for (uint32_t l = 0; l < o->L; l++, aq += o->K, aw += o->K) {
        float agreement = 0;
        for (uint32_t k = 0; k < o->K; k++) agreement += aq[k] * aw[k];
        const double s = (double)(slope * (agreement - middle));
        loss += softplus(positive ? -s : s);
        const float c = slope * (float)(positive ? -sigmoid(-s) : sigmoid(s));
        for (uint32_t k = 0; k < o->K; k++) {
            const float tq = aq[k], tw = aw[k];
            aq[k] = c * tw * (1 - tq * tq);
            aw[k] = c * tq * (1 - tw * tw);
        }
    }
    return loss;
}

/* x (n, rows) theta (rows, n_planes): A. */
static void project(const woi_iul *iul, const float *x, size_t n, size_t rows, float *scratch, float *a)
{
    const size_t planes = iul->n_planes;
    const woi_product p = {.n = n,
                           .m = planes,
                           .k = rows,
                           .a = {x, rows, WOI_BY_ROWS},
                           .b = {iul->theta, planes, WOI_BY_DEPTH},
                           .c = a,
                           .ldc = planes};
    woi_gemm(iul->kernels, &p, scratch);
}

/* x^T (rows, n) a (n, n_planes), added to the gradient. */
static void add_gradient(const woi_iul *iul, const float *x, const float *a, const size_t shape[2], float *scratch,
                         float *out)
{
    const size_t planes = iul->n_planes, n = shape[0], rows = shape[1];
    const woi_product p = {.n = rows,
                           .m = planes,
                           .k = n,
                           .a = {x, rows, WOI_BY_DEPTH},
                           .b = {a, planes, WOI_BY_DEPTH},
                           .c = out,
                           .ldc = planes,
                           .add = true};
    woi_gemm(iul->kernels, &p, scratch);
}

/* Some pairs of one sign. */
typedef struct run {
    const woi_iul_pair *pairs;
    size_t n;
    bool positive;
} run;

/* Adds to `out` (d + 1, n_planes) the gradient of a run of pairs. */
static double run_loss(const woi_iul *iul, const woi_iul_data *data, const run *r, float *scratch, float *out)
{
    const size_t d = iul->options.d, planes = iul->n_planes;
    float *aq = scratch + WOI_GEMM_SCRATCH, *aw = aq + TILE * planes, *xq = aw + TILE * planes, *xw = xq + TILE * d;
    double loss = 0;
    for (size_t first = 0; first < r->n; first += TILE) {
        const size_t count = r->n - first < TILE ? r->n - first : TILE;
        gather(iul, data, r->pairs + first, count, xq, xw);
        project(iul, xq, count, d, scratch, aq);
        project(iul, xw, count, d + 1, scratch, aw);
        for (size_t i = 0; i < count; i++)
            loss += pair_loss(&iul->options, r->positive, aq + i * planes, aw + i * planes);
        add_gradient(iul, xq, aq, (size_t[2]){count, d}, scratch, out);
        add_gradient(iul, xw, aw, (size_t[2]){count, d + 1}, scratch, out);
    }
    return loss;
}

/* What woi_iul_gradient shares with its parts. */
typedef struct parts {
    woi_iul *iul;
    const woi_iul_data *data;
    run positive, negative;
    double losses[N_PARTS];
} parts;

/* Part `part` of a run. */
static run run_part(const run *all, size_t part)
{
    const size_t from = all->n * part / N_PARTS, to = all->n * (part + 1) / N_PARTS;
    return (run){all->pairs + from, to - from, all->positive};
}

static void gradient_part(void *ctx, int worker, size_t part)
{
    parts *x = ctx;
    const size_t size = row_of(x->iul) * x->iul->n_planes;
    float *scratch = x->iul->scratch + (size_t)worker * scratch_of(x->iul), *out = x->iul->parts + part * size;
    const run positive = run_part(&x->positive, part), negative = run_part(&x->negative, part);
    memset(out, 0, size * sizeof *out);
    x->losses[part] = run_loss(x->iul, x->data, &positive, scratch, out);
    x->losses[part] += run_loss(x->iul, x->data, &negative, scratch, out);
}

double woi_iul_gradient(woi_iul *iul, const woi_iul_data *data, const woi_iul_pair *positive, size_t n_positive,
                        const woi_iul_pair *negative, size_t n_negative)
{
    const size_t size = row_of(iul) * iul->n_planes;
    parts x = {iul, data, {positive, n_positive, true}, {negative, n_negative, false}, {0}};
    woi_team_for(iul->options.threads, N_PARTS, gradient_part, &x);
    double loss = 0;
    memcpy(iul->gradient, iul->parts, size * sizeof *iul->gradient);
    for (size_t part = 0; part < N_PARTS; part++) {
        loss += x.losses[part];
        for (size_t i = 0; part > 0 && i < size; i++) iul->gradient[i] += iul->parts[part * size + i];
    }
    return loss;
}

/* ---- Steps ------------------------------------------------------------------------------------------------- */

void woi_iul_step(woi_iul *iul, size_t n_pairs)
{
    const size_t size = row_of(iul) * iul->n_planes;
    const double t = (double)++iul->step;
    const float share = 1 / (float)n_pairs;
    for (size_t i = 0; i < size; i++) iul->gradient[i] *= share;
    if (iul->options.optimiser == WO_OPTIMISER_SGD) {
        for (size_t i = 0; i < size; i++) iul->theta[i] -= (float)iul->options.rate * iul->gradient[i];
        return;
    }
    const woi_adam_step adam = {.beta1 = (float)BETA1,
                                .beta2 = (float)BETA2,
                                .rate = (float)(iul->options.rate / (1 - pow(BETA1, t))),
                                .root_scale = (float)(1 / sqrt(1 - pow(BETA2, t))),
                                .epsilon = 1e-8f};
    iul->kernels->adam(iul->theta, iul->moment, iul->power, iul->gradient, size, &adam);
}

void woi_iul_planes(const woi_iul *iul, float bias_scale, woi_hash *hash)
{
    const size_t d = iul->options.d, planes = iul->n_planes;
    memcpy(hash->planes, iul->theta, d * planes * sizeof *hash->planes);
    for (size_t p = 0; p < planes; p++) hash->bias_planes[p] = iul->theta[d * planes + p] * bias_scale;
}

void woi_iul_start(woi_iul *iul, float bias_scale, const woi_hash *hash)
{
    const size_t d = iul->options.d, planes = iul->n_planes;
    memcpy(iul->theta, hash->planes, d * planes * sizeof *iul->theta);
    for (size_t p = 0; p < planes; p++) iul->theta[d * planes + p] = hash->bias_planes[p] / bias_scale;
}
