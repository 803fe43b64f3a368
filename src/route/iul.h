/* The Index Update Loss of the paper: how far the planes are from putting the positive pairs (query, neuron) into one
 * cell and the negative pairs into different ones, and its exact gradient.
 *
 *   k(x) = tanh(theta . x), K numbers for each table;   a pair's agreement in table l:  a_l = k_l(w) . k_l(q)
 *   paper   s = a                          margin  s = 3 (a - K + 1)
 *   IUL = sum over tables of ( sum over P+ of -log sigma(s)  +  sum over P- of -log(1 - sigma(s)) )
 *
 * A neuron is found only when all K bits agree, a = K. The paper's sigma is at its middle when half of them do, so it
 * gives little to a pair that lacks one bit of four; the margin has its middle at K - 1.
 *
 * Vectors have length 1 here: a query is q |q|^-1, a neuron [w, s b] |[w, s b]|^-1. Neither that nor the scale s of
 * the bias changes a sign, hence a cell, as long as the plane's last coordinate is scaled too: see woi_iul_planes. */
#ifndef WOI_ROUTE_IUL_H
#define WOI_ROUTE_IUL_H

#include "route/hash.h"

typedef struct woi_iul_pair {
    uint32_t query;
    int32_t neuron;
} woi_iul_pair;

typedef struct woi_iul_options {
    uint32_t K, L;
    size_t d;
    wo_loss loss;
    wo_optimiser optimiser;
    double rate;
    int threads; /* 0: all cores. No result depends on it. */
} woi_iul_options;

/* Where the vectors of a pair are. Borrowed. */
typedef struct woi_iul_data {
    const float *q, *q_scale; /* (n, d) and (n): 1/|q| */
    const float *w, *b;       /* (m, d) and (m) or NULL: zeros */
    const float *x_scale;     /* (m): 1/|[w, s b]| */
    float bias_scale;         /* s */
} woi_iul_data;

/* The planes while they are learned, and the optimiser's state. */
typedef struct woi_iul {
    woi_iul_options options;
    size_t n_planes;                          /* K L rounded up to 16, as in a woi_hash */
    float *theta, *gradient, *moment, *power; /* (d + 1, n_planes) each, the bias' coordinate last; zeros beyond K L */
    uint64_t step;                            /* steps taken */
    float *parts, *scratch;
    const woi_kernels *kernels;
} woi_iul;

/* Allocates, all zero. Gives one sentence and an empty `iul` on failure. */
wo_status woi_iul_create(const woi_iul_options *options, woi_iul *iul, wo_error *err);
void woi_iul_free(woi_iul *iul); /* and zeroed again */

/* 1/|q| of n rows; 0 for a row of zeros. */
void woi_iul_query_scale(const float *q, size_t n, size_t d, float *scale);

/* s, which gives the biases the spread of the weights: the root of the weights' mean square over that of the biases; 1
 * where either is zero. And, with it, 1/|[w, s b]| of m rows. */
float woi_iul_neuron_scale(const float *w, const float *b, size_t m, size_t d, float *scale);

/* The loss of the pairs at theta, and its gradient in iul->gradient. */
double woi_iul_gradient(woi_iul *iul, const woi_iul_data *data, const woi_iul_pair *positive, size_t n_positive,
                        const woi_iul_pair *negative, size_t n_negative);

/* One step of Adam or plain descent along iul->gradient / n_pairs (which is left there): along the mean over the pairs,
 * not the sum. The number of pairs rises and falls as learning goes, and Adam, whose memory of the size of gradients is
 * 1,000 steps long, would follow it with larger and smaller steps. Neither keeps the paper's loss from ending with
 * nearly empty cells: on the Debian catalogue, rate 0.01, 1 run of 4 did with the sum, 1 of 12 with the mean. */
void woi_iul_step(woi_iul *iul, size_t n_pairs);

/* theta as planes for [w, b] and back: the last coordinate is multiplied by s, or divided. */
void woi_iul_planes(const woi_iul *iul, float bias_scale, woi_hash *hash);
void woi_iul_start(woi_iul *iul, float bias_scale, const woi_hash *hash);

#endif
