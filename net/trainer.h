/* What the training loop asks of each kind of network: examples in some order, one step at a time. */
#ifndef WOI_NET_TRAINER_H
#define WOI_NET_TRAINER_H

#include "net/train.h"
#include "text/tokens.h"

/* Streams of random numbers, so that no two purposes share one. */
enum { WOI_STREAM_ORDER = 1000, WOI_STREAM_SAMPLES = 2000, WOI_STREAM_DROPOUT = 3000, WOI_STREAM_TARGETS = 4000 };

/* Which step it is, and how it updates. */
typedef struct woi_turn {
    uint64_t i, step; /* within the epoch; in all */
    const woi_adam_step *adam;
} woi_turn;

typedef struct woi_trainer {
    void *self;
    woi_network *net; /* made by the constructor; the loop's to free */
    uint64_t steps_per_epoch, n_examples;
    uint64_t data_hash; /* of all that was read */
    wo_status (*begin_epoch)(void *self, uint64_t epoch, wo_error *err);
    wo_status (*step)(void *self, const woi_turn *turn, double *loss, size_t *examples, wo_error *err);
    void (*free)(void *self);
} woi_trainer;

/* Each reads the data and makes the network; on failure nothing is left, and *at is the file that it is about. */
wo_status woi_trainer_xc(const woi_train_options *options, woi_trainer *trainer, const char **at, wo_error *err);
wo_status woi_trainer_w2v(const woi_train_options *options, woi_trainer *trainer, const char **at, wo_error *err);
wo_status woi_trainer_lm(const woi_train_options *options, woi_trainer *trainer, const char **at, wo_error *err);

/* One step of a network whose hidden layer is a bag: forwards, the wide layer, backwards. step->q and step->dq are
 * scratch, step->n is rows->n. */
wo_status woi_bag_step(woi_network *net, woi_bag_trainer *bag, woi_softmax *softmax, const woi_bag_rows *rows,
                       const woi_step *step, wo_error *err);

/* A permutation of 0 .. n-1 that depends on the seed and the epoch alone (Fisher-Yates). */
void woi_shuffle(uint64_t *order, uint64_t n, uint64_t seed, uint64_t epoch);

/* Continues a hash over more data; the hash of a token file, its vocabulary included. */
uint64_t woi_hash(uint64_t hash, const void *data, size_t bytes);
uint64_t woi_hash_tokens(const woi_tokens *tokens);

#endif
