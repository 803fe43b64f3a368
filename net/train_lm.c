/* Training the language model: the corpus as `batch` streams side by side, read in windows of `steps` words with the
 * state carried from one to the next; gradients flow through a window, not further.
 *
 * The sequences of a batch run in slices of 16, one thread each at a time; rows are ordered by slice, then time, then
 * sequence, so that a slice's part of every matrix is contiguous. Gradients are summed up slice after slice. */
#include "base/error.h"
#include "base/mem.h"
#include "base/team.h"
#include "net/dropout.h"
#include "net/trainer.h"
#include "text/tokens.h"

#include <math.h>
#include <string.h>

enum { SLICE = 16 };

typedef struct lm {
    const woi_train_options *o;
    woi_network *net;
    const woi_kernels *kernels;
    woi_tokens tokens;
    uint64_t length; /* words of a stream */
    size_t n_slices, gradient_size;
    woi_lstm_slice **slices;
    float *gradients; /* (n_slices, gradient_size): of each slice the LSTM's parameters, biases once a layer */
    woi_softmax *softmax;
    woi_bag_trainer *embed;
    float *x, *q, *mask, *dq, *ones; /* (batch * steps, d) each but the last */
    int64_t *indptr;                 /* 0, 1, 2, ...: a word in, a word out */
    int32_t *in, *out;
} lm;

static void lm_free(void *self)
{
    lm *x = self;
    if (!x) return;
    for (size_t i = 0; x->slices && i < x->n_slices; i++) woi_lstm_slice_free(x->slices[i]);
    woi_tokens_close(&x->tokens);
    woi_softmax_free(x->softmax);
    woi_bag_trainer_free(x->embed);
    void *const owned[] = {x->slices, x->gradients, x->x, x->q, x->mask, x->dq, x->ones, x->indptr, x->in, x->out};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(x);
}

static wo_status lm_begin_epoch(void *self, uint64_t epoch, wo_error *err)
{
    lm *x = self;
    (void)epoch, (void)err;
    for (size_t i = 0; i < x->n_slices; i++) woi_lstm_slice_reset(x->slices[i]);
    return WO_OK;
}

static size_t rows_of(const lm *x, size_t slice)
{
    const size_t left = (size_t)x->o->batch - slice * SLICE;
    return left < SLICE ? left : SLICE;
}

/* The words of one window and those after them, in the order of the rows. */
static void fill_window(lm *x, uint64_t first, size_t steps)
{
    for (size_t slice = 0; slice < x->n_slices; slice++) {
        const size_t rows = rows_of(x, slice), start = slice * SLICE * steps;
        for (size_t t = 0; t < steps; t++)
            for (size_t r = 0; r < rows; r++) {
                const int32_t *word = x->tokens.ids + (slice * SLICE + r) * x->length + first + t;
                x->in[start + t * rows + r] = word[0];
                x->out[start + t * rows + r] = word[1];
            }
    }
}

/* A slice's room for gradients: w_ih, w_hh, b of each layer. */
static woi_lstm_gradient gradient_of(const lm *x, size_t slice)
{
    const size_t d = x->net->d;
    float *at = x->gradients + slice * x->gradient_size;
    woi_lstm_gradient g;
    for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
        g.w_ih[l] = at;
        g.w_hh[l] = at + 4 * d * d;
        g.b[l] = at + 8 * d * d;
        at += 8 * d * d + 4 * d;
    }
    return g;
}

/* A window on its way through the slices. */
typedef struct window {
    const lm *x;
    woi_lstm lstm;
    size_t steps;
    uint64_t step;
} window;

static void forward_slice(void *own, int worker, size_t slice)
{
    const window *w = own;
    const lm *x = w->x;
    const size_t d = x->net->d, at = slice * SLICE * w->steps * d, n = rows_of(x, slice) * w->steps * d;
    const uint64_t seed = x->o->seed + WOI_STREAM_DROPOUT + 1, stream = 2 * (w->step * x->n_slices + slice);
    (void)worker;
    woi_lstm_forward(&w->lstm, x->slices[slice], w->steps, x->x + at, &(woi_lstm_dropout){x->o->dropout, seed, stream},
                     x->q + at);
    woi_dropout(x->q + at, x->mask + at, n, x->o->dropout, seed, stream + 1);
}

static void backward_slice(void *own, int worker, size_t slice)
{
    const window *w = own;
    const lm *x = w->x;
    const size_t d = x->net->d, at = slice * SLICE * w->steps * d, n = rows_of(x, slice) * w->steps * d;
    woi_lstm_gradient g = gradient_of(x, slice);
    (void)worker;
    memset(x->gradients + slice * x->gradient_size, 0, x->gradient_size * sizeof(float));
    for (size_t i = at; i < at + n; i++) x->dq[i] *= x->mask[i];
    woi_lstm_backward(&w->lstm, x->slices[slice], x->dq + at, x->x + at, &g);
}

static void forward(lm *x, size_t steps, uint64_t step)
{
    woi_team_for(x->o->threads, x->n_slices, forward_slice, &(window){x, woi_network_lstm(x->net), steps, step});
}

/* From dq to the gradient in what the embedding gave (in x->x), and the LSTM's own, summed into the first slice's room.
 */
static void backward(lm *x, size_t steps)
{
    woi_team_for(x->o->threads, x->n_slices, backward_slice, &(window){x, woi_network_lstm(x->net), steps, 0});
    for (size_t slice = 1; slice < x->n_slices; slice++)
        for (size_t i = 0; i < x->gradient_size; i++) x->gradients[i] += x->gradients[slice * x->gradient_size + i];
}

/* Both biases of a layer have the same gradient, and both count. */
static double lstm_square(const lm *x)
{
    const size_t d = x->net->d, layer = 8 * d * d + 4 * d;
    double sum = 0;
    for (size_t i = 0; i < x->gradient_size; i++)
        sum += (double)x->gradients[i] * (double)x->gradients[i] * (i % layer >= 8 * d * d ? 2 : 1);
    return sum;
}

static void update_lstm(lm *x, float scale, const woi_adam_step *adam)
{
    const woi_lstm_gradient g = gradient_of(x, 0);
    for (size_t i = 0; i < x->gradient_size; i++) x->gradients[i] *= scale;
    for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
        const float *const from[] = {g.w_ih[l], g.w_hh[l], g.b[l], g.b[l]};
        for (int i = 0; i < 4; i++) {
            const woi_param *p = &x->net->params[1 + 4 * l + i];
            x->kernels->adam(p->w, p->m, p->v, from[i], p->n, adam);
        }
    }
}

static wo_status lm_step(void *self, const woi_turn *turn, double *loss, size_t *examples, wo_error *err)
{
    lm *x = self;
    const uint64_t first = turn->i * x->o->steps, left = x->length - first;
    const size_t steps = (size_t)(left < x->o->steps ? left : x->o->steps), n = steps * (size_t)x->o->batch;
    const woi_bag_rows rows = {n, x->indptr, x->in, x->ones};
    const woi_targets targets = {x->indptr, x->out, NULL, NULL};
    woi_wide wide = woi_network_wide(x->net);
    double wide_square = 0, embed_square = 0;
    fill_window(x, first, steps);
    wo_status status = woi_bag_train_forward(x->embed, &rows, turn->step, x->x, err);
    if (status) return status;
    forward(x, steps, turn->step);
    const woi_step wide_step = {x->q, n, &targets, turn->step, NULL, x->dq, loss, &wide_square};
    if ((status = woi_softmax_step(x->softmax, &wide, &wide_step, err))) return status;
    backward(x, steps);
    if ((status = woi_bag_train_backward(x->embed, &rows, x->x, &embed_square, err))) return status;
    const double norm = sqrt(wide_square + embed_square + lstm_square(x));
    const float scale = x->o->clip > 0 && norm > x->o->clip ? (float)(x->o->clip / norm) : 1;
    woi_softmax_apply(x->softmax, &wide, scale, turn->adam);
    update_lstm(x, scale, turn->adam);
    woi_bag_train_apply(x->embed, scale, turn->adam);
    *examples = n;
    return WO_OK;
}

/* ---- Making one -------------------------------------------------------------------------------------------- */

static wo_status make_scratch(lm *x, wo_error *err)
{
    const woi_train_options *o = x->o;
    const size_t d = x->net->d, n = (size_t)(o->batch * o->steps);
    uint32_t *frequency = NULL;
    x->n_slices = ((size_t)o->batch + SLICE - 1) / SLICE;
    x->gradient_size = WOI_LSTM_DEPTH * (8 * d * d + 4 * d);
    if (!(x->kernels = woi_kernels_get(err))) return WO_ERR_UNSUPPORTED;
    if (!(x->slices = woi_alloc_zero(x->n_slices, sizeof *x->slices, err)) ||
        !(x->gradients = woi_alloc(x->n_slices * x->gradient_size, sizeof(float), err)) ||
        !(x->x = woi_alloc(n * d, sizeof(float), err)) || !(x->q = woi_alloc(n * d, sizeof(float), err)) ||
        !(x->mask = woi_alloc(n * d, sizeof(float), err)) || !(x->dq = woi_alloc(n * d, sizeof(float), err)) ||
        !(x->ones = woi_alloc(n, sizeof(float), err)) || !(x->indptr = woi_alloc(n + 1, sizeof(int64_t), err)) ||
        !(x->in = woi_alloc(n, sizeof(int32_t), err)) || !(x->out = woi_alloc(n, sizeof(int32_t), err)))
        return WO_ERR_MEMORY;
    for (size_t i = 0; i <= n; i++) x->indptr[i] = (int64_t)i;
    for (size_t i = 0; i < n; i++) x->ones[i] = 1;
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < x->n_slices; i++)
        status = woi_lstm_slice_create(d, (size_t)o->steps, rows_of(x, i), &x->slices[i], err);
    if (status) return status;
    if (o->sampled) {
        if (!(frequency = woi_alloc_zero(x->net->m, sizeof *frequency, err))) return WO_ERR_MEMORY;
        for (uint64_t i = 0; i < x->tokens.n; i++) frequency[x->tokens.ids[i]]++;
    }
    const woi_bag bag = woi_network_bag(x->net);
    const woi_bag_input linear = {0};
    const woi_sampling sampling = {(size_t)o->sampled, frequency, o->seed + WOI_STREAM_SAMPLES};
    status = woi_softmax_create(x->net->m, &sampling, (woi_workers){o->threads, NULL}, &x->softmax, err);
    /* Updating every row of the embedding costs little beside an exact softmax; beside a sampled one it would not. */
    if (!status)
        status = woi_bag_trainer_create(&bag,
                                        &(woi_bag_options){.input = linear,
                                                           .dropout = o->dropout,
                                                           .every_row = !o->sampled,
                                                           .seed = o->seed + WOI_STREAM_DROPOUT,
                                                           .threads = o->threads},
                                        &x->embed, err);
    woi_free(frequency);
    return status;
}

wo_status woi_trainer_lm(const woi_train_options *o, woi_trainer *trainer, const char **at, wo_error *err)
{
    lm *x = woi_alloc_zero(1, sizeof *x, err);
    if (!x) return WO_ERR_MEMORY;
    x->o = o;
    *at = o->train;
    wo_status status = woi_tokens_open(o->train, &x->tokens, err);
    if (!status) {
        x->length = (x->tokens.n - 1) / o->batch;
        if (x->tokens.n < 2 || x->length == 0)
            status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has %llu words, expected more than the batch of %llu",
                              (unsigned long long)x->tokens.n, (unsigned long long)o->batch);
    }
    if (!status)
        status = woi_network_create(&(woi_network_plan){.arch = WOI_ARCH_LM,
                                                        .m = (size_t)x->tokens.words.n,
                                                        .d = (size_t)o->d,
                                                        .n_inputs = (size_t)x->tokens.words.n,
                                                        .trained = true,
                                                        .seed = o->seed},
                                    &x->net, err);
    if (!status) status = woi_names_copy(&x->tokens.words, &x->net->labels, err);
    if (!status) status = make_scratch(x, err);
    if (status) {
        woi_network_free(x->net);
        lm_free(x);
        return status;
    }
    *trainer = (woi_trainer){x,
                             x->net,
                             (x->length + o->steps - 1) / o->steps,
                             x->length * o->batch,
                             woi_hash_tokens(&x->tokens),
                             lm_begin_epoch,
                             lm_step,
                             lm_free};
    return WO_OK;
}
