/* The input of the bag and word networks: a weighted sum of embedding rows, ReLU, dropout.
 *
 *   h = sum_f x_f E[f],   q = relu(h) * mask / (1 - dropout)
 *
 * x_f is log(1 + value) or the value itself, divided by the row's length where l2 is asked for; relu is optional too.
 * Only the rows that a batch touches are updated (lazy Adam): their number is what a step costs, not the number of
 * features. With every_row all are, as PyTorch's Adam does: a row moves on in the steps after a batch that had it, so
 * that rare features learn more of each occurrence.
 *
 * Where several processes train, each has all embedding rows. Of a batch each sums the bags of its part of the examples
 * and the gradients of its part of the features; both are gathered. So every process has the bits of one alone. */
#ifndef WOI_NET_BAG_H
#define WOI_NET_BAG_H

#include "kernels/kernels.h"
#include "wideout.h"

#include <stdbool.h>

typedef struct woi_bag {
    size_t n_features, d;
    float *e, *e_m, *e_v; /* (n_features, d); the moments are NULL where nothing is trained */
} woi_bag;

typedef struct woi_bag_input {
    bool log1p, l2, relu;
} woi_bag_input;

/* n rows in CSR form; indptr may begin anywhere. The values are as in the file. */
typedef struct woi_bag_rows {
    size_t n;
    const int64_t *indptr;
    const int32_t *features;
    const float *values;
} woi_bag_rows;

/* q (n, d), without dropout: what a trained network computes. */
void woi_bag_forward(const woi_bag *bag, const woi_bag_input *input, const woi_bag_rows *rows, int threads, float *q);

/* Scratch of the training steps. */
typedef struct woi_bag_trainer woi_bag_trainer;

typedef struct woi_bag_options {
    woi_bag_input input;
    double dropout;
    bool every_row;
    uint64_t seed;              /* of dropout */
    int threads;                /* 1 or more */
    const wo_collective *ranks; /* with the same batches, in the same order; NULL: one process */
} woi_bag_options;

wo_status woi_bag_trainer_create(const woi_bag *bag, const woi_bag_options *options, woi_bag_trainer **trainer,
                                 wo_error *err);
void woi_bag_trainer_free(woi_bag_trainer *trainer);

/* A step: q (n, d) with dropout, the same for the same `step`; then, from dq (which it changes), the gradient of the
 * rows used and the sum of its squares (unless NULL); then the update with the gradient times `scale`. All three with
 * the same rows.
 */
wo_status woi_bag_train_forward(woi_bag_trainer *trainer, const woi_bag_rows *rows, uint64_t step, float *q,
                                wo_error *err);
wo_status woi_bag_train_backward(woi_bag_trainer *trainer, const woi_bag_rows *rows, float *dq, double *square,
                                 wo_error *err);
void woi_bag_train_apply(woi_bag_trainer *trainer, float scale, const woi_adam_step *adam);

#endif
