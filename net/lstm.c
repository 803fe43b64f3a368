/* LSTM layers: the product with the input for all steps at once, the recurrence a step at a time, with W_hh packed once
 * for all steps. */
#include "net/lstm.h"

#include "base/error.h"
#include "base/mem.h"
#include "kernels/gemm.h"
#include "net/dropout.h"

#include <stdbool.h>
#include <string.h>

/* What one layer computed, kept for the way back. */
typedef struct layer_tape {
    float *x;      /* (steps, rows, d): what came in */
    float *gates;  /* (steps, rows, 4d): i f g o after their functions; on the way back, their gradients */
    float *h, *c;  /* (steps + 1, rows, d): the state before each step, and after the last */
    float *tanh_c; /* (steps, rows, d): of the state after each step */
    float *mask;   /* (steps, rows, d): dropout of what came in, from the second layer on */
} layer_tape;

struct woi_lstm_slice {
    const woi_kernels *kernels;
    size_t d, rows, max_steps, steps; /* steps: of the call before */
    bool dropped;                     /* the masks hold */
    layer_tape layers[WOI_LSTM_DEPTH];
    float *dh, *dc; /* (rows, d): flowing back from the step after */
    float *dout;    /* (steps, rows, d): gradient in a layer's output */
    float *w_hh;    /* in panels, for forwards or for backwards */
    float *scratch; /* woi_gemm's */
};

wo_status woi_lstm_slice_create(size_t d, size_t max_steps, size_t rows, woi_lstm_slice **result, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    woi_lstm_slice *s = woi_alloc_zero(1, sizeof *s, err);
    if (!s) return WO_ERR_MEMORY;
    *s = (woi_lstm_slice){.kernels = kernels, .d = d, .rows = rows, .max_steps = max_steps};
    const size_t all = max_steps * rows * d, state = (max_steps + 1) * rows * d;
    const size_t forward = woi_gemm_packed(kernels, 4 * d, d), backward = woi_gemm_packed(kernels, d, 4 * d);
    bool there = (s->w_hh = woi_alloc(forward > backward ? forward : backward, sizeof(float), err)) &&
                 (s->scratch = woi_alloc(WOI_GEMM_SCRATCH, sizeof(float), err)) &&
                 (s->dh = woi_alloc(rows * d, sizeof(float), err)) &&
                 (s->dc = woi_alloc(rows * d, sizeof(float), err)) && (s->dout = woi_alloc(all, sizeof(float), err));
    for (int l = 0; there && l < WOI_LSTM_DEPTH; l++) {
        layer_tape *tape = &s->layers[l];
        there =
            (tape->x = woi_alloc(all, sizeof(float), err)) && (tape->gates = woi_alloc(4 * all, sizeof(float), err)) &&
            (tape->h = woi_alloc_zero(state, sizeof(float), err)) &&
            (tape->c = woi_alloc_zero(state, sizeof(float), err)) &&
            (tape->tanh_c = woi_alloc(all, sizeof(float), err)) && (tape->mask = woi_alloc(all, sizeof(float), err));
    }
    if (!there) {
        woi_lstm_slice_free(s);
        return WO_ERR_MEMORY;
    }
    *result = s;
    return WO_OK;
}

void woi_lstm_slice_free(woi_lstm_slice *s)
{
    if (!s) return;
    for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
        const layer_tape *tape = &s->layers[l];
        float *const owned[] = {tape->x, tape->gates, tape->h, tape->c, tape->tanh_c, tape->mask};
        for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    }
    woi_free(s->dh);
    woi_free(s->dc);
    woi_free(s->dout);
    woi_free(s->w_hh);
    woi_free(s->scratch);
    woi_free(s);
}

void woi_lstm_slice_reset(woi_lstm_slice *s)
{
    s->steps = 0; /* the state is that before step 0 */
    for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
        memset(s->layers[l].h, 0, s->rows * s->d * sizeof(float));
        memset(s->layers[l].c, 0, s->rows * s->d * sizeof(float));
    }
}

/* ---- Forwards ---------------------------------------------------------------------------------------------- */

/* From sums to gates, c and h for sequence r at step t. The exponentials of a whole row go through one kernel call:
 * sigmoid(x) = 1 / (1 + exp(-x)), tanh(x) = 2 / (1 + exp(-2x)) - 1. */
static void step_row(const woi_lstm *lstm, woi_lstm_slice *s, int l, size_t t, size_t r)
{
    const woi_kernels *kernels = s->kernels;
    const size_t d = lstm->d, at = (t * s->rows + r) * d, next = ((t + 1) * s->rows + r) * d;
    const layer_tape *tape = &s->layers[l];
    const float *c = tape->c + at;
    float *gates = tape->gates + 4 * at, *c_next = tape->c + next, *tanh_c = tape->tanh_c + at,
          *h_next = tape->h + next;
    const float *restrict b1 = lstm->b_ih[l], *restrict b2 = lstm->b_hh[l];
    for (size_t j = 0; j < 4 * d; j++) {
        const float factor = j / d == 2 ? -2.0f : -1.0f;
        gates[j] = factor * (gates[j] + b1[j] + b2[j]);
    }
    (void)kernels->exp_sum(gates, 4 * d, 0, gates);
    for (size_t j = 0; j < 4 * d; j++) gates[j] = 1 / (1 + gates[j]);
    const float *i = gates, *f = gates + d, *o = gates + 3 * d;
    float *g = gates + 2 * d;
    for (size_t j = 0; j < d; j++) {
        g[j] = 2 * g[j] - 1;
        c_next[j] = f[j] * c[j] + i[j] * g[j];
        tanh_c[j] = -2 * c_next[j];
    }
    (void)kernels->exp_sum(tanh_c, d, 0, tanh_c);
    for (size_t j = 0; j < d; j++) {
        tanh_c[j] = 2 / (1 + tanh_c[j]) - 1;
        h_next[j] = o[j] * tanh_c[j];
    }
}

/* W_hh in panels, (m, k). */
static woi_operand packed(woi_lstm_slice *s, const woi_operand *w, size_t m, size_t k)
{
    woi_gemm_pack(s->kernels, w, m, k, s->w_hh);
    return (woi_operand){s->w_hh, 0, WOI_IN_PANELS};
}

static void layer_forward(const woi_lstm *lstm, woi_lstm_slice *s, int l)
{
    const size_t d = s->d, rows = s->rows;
    layer_tape *tape = &s->layers[l];
    const woi_operand x = {tape->x, d, WOI_BY_ROWS}, w_ih = {lstm->w_ih[l], d, WOI_BY_ROWS};
    woi_operand w_hh = {lstm->w_hh[l], d, WOI_BY_ROWS};
    woi_gemm(s->kernels, &(woi_product){s->steps * rows, 4 * d, d, x, w_ih, tape->gates, 4 * d, false, NULL},
             s->scratch);
    if (rows > WOI_GEMM_FEW) w_hh = packed(s, &w_hh, 4 * d, d);
    for (size_t t = 0; t < s->steps; t++) {
        float *gates = tape->gates + t * rows * 4 * d;
        const woi_operand state = {tape->h + t * rows * d, d, WOI_BY_ROWS};
        woi_gemm(s->kernels, &(woi_product){rows, 4 * d, d, state, w_hh, gates, 4 * d, true, NULL}, s->scratch);
        for (size_t r = 0; r < rows; r++) step_row(lstm, s, l, t, r);
    }
}

void woi_lstm_forward(const woi_lstm *lstm, woi_lstm_slice *s, size_t steps, const float *x,
                      const woi_lstm_dropout *dropout, float *out)
{
    const size_t state = s->rows * s->d, n = steps * state;
    for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
        layer_tape *tape = &s->layers[l];
        /* The state after the call before is the one before this. */
        memmove(tape->h, tape->h + s->steps * state, state * sizeof(float));
        memmove(tape->c, tape->c + s->steps * state, state * sizeof(float));
    }
    s->steps = steps;
    const bool drops = dropout && dropout->share > 0;
    s->dropped = drops;
    for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
        layer_tape *tape = &s->layers[l];
        memcpy(tape->x, l ? s->layers[l - 1].h + state : x, n * sizeof(float));
        if (l && drops) woi_dropout(tape->x, tape->mask, n, dropout->share, dropout->seed, dropout->stream);
        layer_forward(lstm, s, l);
    }
    memcpy(out, s->layers[WOI_LSTM_DEPTH - 1].h + state, n * sizeof(float));
}

/* ---- Backwards --------------------------------------------------------------------------------------------- */

/* One sequence, one step: gates become the gradients before their functions; dh comes in, dc flows on. */
static void step_row_back(size_t d, float *gates, const float *c, const float *tanh_c, const float *dh, float *dc)
{
    float *i = gates, *f = gates + d, *g = gates + 2 * d, *o = gates + 3 * d;
    for (size_t j = 0; j < d; j++) {
        const float through = dc[j] + dh[j] * o[j] * (1 - tanh_c[j] * tanh_c[j]);
        const float i_in = through * g[j] * i[j] * (1 - i[j]), f_in = through * c[j] * f[j] * (1 - f[j]);
        const float g_in = through * i[j] * (1 - g[j] * g[j]), o_in = dh[j] * tanh_c[j] * o[j] * (1 - o[j]);
        dc[j] = through * f[j];
        i[j] = i_in;
        f[j] = f_in;
        g[j] = g_in;
        o[j] = o_in;
    }
}

/* Sixteen at a time, which is what it takes for gcc to use vectors at -O2. */
static void add_row(float *restrict sum, const float *restrict row, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++) sum[i + j] += row[i + j];
    for (; i < n; i++) sum[i] += row[i];
}

/* From dout (in s->dout) to the gradient in what came in (there too). */
static void layer_backward(const woi_lstm *lstm, woi_lstm_slice *s, int l, woi_lstm_gradient *gradient)
{
    const size_t d = s->d, rows = s->rows, n = s->steps * rows;
    layer_tape *tape = &s->layers[l];
    const woi_operand plain = {lstm->w_hh[l], d, WOI_BY_DEPTH}, w_hh = packed(s, &plain, d, 4 * d);
    memset(s->dh, 0, rows * d * sizeof(float));
    memset(s->dc, 0, rows * d * sizeof(float));
    for (size_t t = s->steps; t-- > 0;) {
        const size_t at = t * rows * d;
        float *gates = tape->gates + 4 * at;
        for (size_t i = 0; i < rows * d; i++) s->dh[i] += s->dout[at + i];
        for (size_t r = 0; r < rows; r++)
            step_row_back(d, gates + r * 4 * d, tape->c + at + r * d, tape->tanh_c + at + r * d, s->dh + r * d,
                          s->dc + r * d);
        const woi_operand step = {gates, 4 * d, WOI_BY_ROWS};
        woi_gemm(s->kernels, &(woi_product){rows, d, 4 * d, step, w_hh, s->dh, d, false, NULL}, s->scratch);
    }
    const woi_operand down = {tape->gates, 4 * d, WOI_BY_DEPTH}, across = {tape->gates, 4 * d, WOI_BY_ROWS};
    const woi_operand h = {tape->h, d, WOI_BY_DEPTH}, x = {tape->x, d, WOI_BY_DEPTH};
    const woi_operand w_ih = {lstm->w_ih[l], d, WOI_BY_DEPTH};
    woi_gemm(s->kernels, &(woi_product){4 * d, d, n, down, h, gradient->w_hh[l], d, true, NULL}, s->scratch);
    woi_gemm(s->kernels, &(woi_product){4 * d, d, n, down, x, gradient->w_ih[l], d, true, NULL}, s->scratch);
    for (size_t i = 0; i < n; i++) add_row(gradient->b[l], tape->gates + i * 4 * d, 4 * d);
    woi_gemm(s->kernels, &(woi_product){n, d, 4 * d, across, w_ih, s->dout, d, false, NULL}, s->scratch);
    for (size_t i = 0; l && s->dropped && i < n * d; i++) s->dout[i] *= tape->mask[i];
}

void woi_lstm_backward(const woi_lstm *lstm, woi_lstm_slice *s, const float *dout, float *dx,
                       woi_lstm_gradient *gradient)
{
    const size_t bytes = s->steps * s->rows * s->d * sizeof(float);
    memcpy(s->dout, dout, bytes);
    for (int l = WOI_LSTM_DEPTH; l-- > 0;) layer_backward(lstm, s, l, gradient);
    memcpy(dx, s->dout, bytes);
}
