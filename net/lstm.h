/* A stack of LSTM layers over a few steps of time, forwards and backwards.
 *
 *   i, f, o = sigmoid(W_ih x + b_ih + W_hh h + b_hh),  g = tanh(the same),  c' = f c + i g,  h' = o tanh(c')
 *
 * PyTorch's parameters: weights (4d, d), biases (4d), gates in the order i f g o.
 *
 * A slice is a few sequences that run on their own: rows of them side by side, `steps` of time one after the other. Its
 * buffers are (steps, rows, ...), row r of step t at t * rows + r. Slices share nothing, so threads share slices. */
#ifndef WOI_NET_LSTM_H
#define WOI_NET_LSTM_H

#include "kernels/kernels.h"

enum { WOI_LSTM_DEPTH = 2 };

typedef struct woi_lstm {
    size_t d;
    const float *w_ih[WOI_LSTM_DEPTH], *w_hh[WOI_LSTM_DEPTH], *b_ih[WOI_LSTM_DEPTH], *b_hh[WOI_LSTM_DEPTH];
} woi_lstm;

/* Gradients in W_ih and W_hh (4d, d) and in either bias (4d): both biases have the same. */
typedef struct woi_lstm_gradient {
    float *w_ih[WOI_LSTM_DEPTH], *w_hh[WOI_LSTM_DEPTH], *b[WOI_LSTM_DEPTH];
} woi_lstm_gradient;

typedef struct woi_lstm_slice woi_lstm_slice;
wo_status woi_lstm_slice_create(size_t d, size_t max_steps, size_t rows, woi_lstm_slice **slice, wo_error *err);
void woi_lstm_slice_free(woi_lstm_slice *slice);

void woi_lstm_slice_reset(woi_lstm_slice *slice); /* h = c = 0 in every layer */

/* Between the layers values are dropped with this probability, the same ones for the same (seed, stream). */
typedef struct woi_lstm_dropout {
    double share;
    uint64_t seed, stream;
} woi_lstm_dropout;

/* x (steps, rows, d) in; out (steps, rows, d), the last layer's h. The state goes on from the call before. `dropout`
 * may be NULL: nothing is dropped. */
void woi_lstm_forward(const woi_lstm *lstm, woi_lstm_slice *slice, size_t steps, const float *x,
                      const woi_lstm_dropout *dropout, float *out);

/* After forward: dout (steps, rows, d) in, dx (steps, rows, d) out; `gradient` is added to. Nothing flows back before
 * the first step (truncated back-propagation). */
void woi_lstm_backward(const woi_lstm *lstm, woi_lstm_slice *slice, const float *dout, float *dx,
                       woi_lstm_gradient *gradient);

#endif
