/* The wide output layer while it is trained: softmax cross-entropy over m classes and one Adam step, fused.
 *
 *   logits z = W q + b,   p = softmax(z),   loss = sum_i weight_i (log sum exp z_i - sum_j y_ij z_ij) / sum_i weight_i
 *
 * where row i's targets y_i sum to 1. Gradient: dz_ij = weight_i (p_ij - y_ij) / sum weight.
 *
 * The rows may be spread over processes (net/ranks.h). Each has the whole batch and updates its own rows; a step
 * exchanges two numbers a query, the largest logit and the sum of exponentials, and adds up dq. */
#ifndef WOI_NET_SOFTMAX_H
#define WOI_NET_SOFTMAX_H

#include "kernels/kernels.h"
#include "net/ranks.h"

/* Parameters and Adam's moments, (m, d) and (m). Owned by the caller. */
typedef struct woi_wide {
    size_t m, d;
    float *w, *w_m, *w_v;
    float *b, *b_m, *b_v;
} woi_wide;

/* What each of n queries should answer: classes ids[indptr[i] .. indptr[i+1]), each once in a row, with shares that sum
 * to 1 in each row (NULL: equal ones), and a weight for each row (NULL: 1). indptr may begin anywhere. */
typedef struct woi_targets {
    const int64_t *indptr;
    const int32_t *ids;
    const float *shares;
    const float *weights;
} woi_targets;

/* Sampled softmax: n classes a step, drawn in proportion to frequency[m] + 1. n = 0: exact, and the rest is not used.
 */
typedef struct woi_sampling {
    size_t n;
    const uint32_t *frequency;
    uint64_t seed;
} woi_sampling;

/* A batch, and where the results of its step go. */
typedef struct woi_step {
    float *q; /* (n, d); woi_softmax_step only reads it */
    size_t n;
    const woi_targets *targets;
    uint64_t number;           /* of the step, for the samples */
    const woi_adam_step *adam; /* NULL: nothing is updated */
    float *dq;                 /* (n, d): the gradient in q */
    double *loss;              /* of the batch, before the step */
    double *square;            /* where adam is NULL: the sum of the gradient's squares */
} woi_step;

/* Whose rows a layer's are, and who works on them. */
typedef struct woi_workers {
    int threads;                /* 0: all */
    const wo_collective *ranks; /* m is the number of classes of all of them; NULL: all rows are here */
} woi_workers;

/* Scratch, which grows to the largest batch. */
typedef struct woi_softmax woi_softmax;
wo_status woi_softmax_create(size_t m, const woi_sampling *sampling, woi_workers workers, woi_softmax **softmax,
                             wo_error *err);
void woi_softmax_free(woi_softmax *softmax);

/* One step: loss and dq are given, W and b updated. The result does not depend on the number of threads. (With
 * beta1 = 0 and rate = 0 the first moments are the gradient and the parameters stay: that is how tests look at it.)
 * `wide` has this process's rows; targets are classes of the whole layer; loss, dq and square are the same everywhere.
 *
 * With adam = NULL nothing is updated: the gradient is kept, the sum of its squares given, and woi_softmax_apply does
 * the update with the gradient times `scale`, before the next step (clipping needs the norm of all gradients first). */
wo_status woi_softmax_step(woi_softmax *softmax, woi_wide *wide, const woi_step *step, wo_error *err);
void woi_softmax_apply(woi_softmax *softmax, woi_wide *wide, float scale, const woi_adam_step *adam);

#endif
