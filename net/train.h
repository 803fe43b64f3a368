/* Training a network: epochs of Adam steps with a one-cycle rate, a checkpoint after each, validation on the way.
 *
 * With a fixed number of epochs the rate rises from lr/25 to lr over the first 30% of the steps and falls to
 * lr/250,000, both along a cosine (PyTorch's OneCycleLR with its defaults, without its change of momentum). A run that
 * finds out itself when it is done has the rates of net/pace.h, and its network is that after the epoch of the best
 * validation P@1. The same seed gives the same network, whatever the number of threads, and so does a run that was
 * stopped and resumed.
 *
 * Several processes have the wide layer's rows together. Each sums the bags of its part of a batch and the gradients of
 * its part of the features; both are gathered, and each updates the whole embedding, all with the same bits. Each
 * leaves a checkpoint of its own, and rank 0 writes the network. */
#ifndef WOI_NET_TRAIN_H
#define WOI_NET_TRAIN_H

#include "net/queries.h"

typedef struct woi_train_options {
    const char *train, *valid, *test; /* data files; the last two may be NULL */
    const char *output; /* the network; beside it, while training, OUTPUT.checkpoint, of ranks above 0 with .RANK */
    const char *label_names, *feature_names; /* files of names by line; NULL: labels.txt, features.txt beside `train` */
    uint64_t d, epochs, batch, seed, sampled; /* sampled: classes a step of sampled softmax; 0: exact */
    double lr, dropout, clip;                 /* clip: largest norm of a gradient; 0: none */
    int threads;                              /* 0: all */
    bool auto_epochs; /* as many as pay, by `valid`, which must be there; `epochs` is not read */
    bool resume;
    uint64_t time_steps; /* > 0: only 5 + this many steps, to time them; nothing is written or evaluated */
    woi_xc_options xc;
    woi_bag_input input;       /* xc */
    uint64_t window, drop_top; /* w2v */
    uint64_t steps;            /* lm: of time, through which gradients flow */
    /* xc: the processes that train together, each a share of the wide layer's rows (net/ranks.h); NULL: this one. All
     * are given the same options and read the same files. */
    const wo_collective *ranks;
} woi_train_options;

/* What to start from: the recipe of docs/EXPERIMENTS.md. */
woi_train_options woi_train_defaults(woi_arch arch);

/* Where training stands. Precisions are NaN until the first validation. */
typedef struct woi_train_report {
    uint64_t epoch, epochs; /* from 1; with auto_epochs 0, because the number is not known */
    uint64_t kept;          /* with auto_epochs, the best epoch so far; 0 before the first */
    uint64_t step, steps;   /* in all epochs */
    double loss;            /* mean of the epoch so far */
    double valid_p_at_1, valid_p_at_5;
    double examples_per_s;
    const char *doing; /* "training", "validating", ... */
} woi_train_report;

typedef struct woi_train_result {
    uint64_t m, d, n_inputs, n_examples;
    uint64_t epochs,
        kept;    /* how many there were, and after which the network is as it was; the last, but for auto_epochs */
    double loss; /* of that epoch */
    double *valid_by_epoch; /* P@1 (n_by_epoch); NaN for those that a run before this one did not record */
    size_t n_by_epoch;
    woi_precision valid, test;
    bool has_valid, has_test;
    double examples_per_s, seconds; /* of this run's training steps */
    double step_ms;                 /* median time of a step; with time_steps, after the first 5 */
} woi_train_result;

/* Who is told: called after every step; non-zero stops with WO_ERR_CANCELLED, the last checkpoint intact. */
typedef struct woi_train_watch {
    int (*fn)(void *ctx, const woi_train_report *report); /* NULL: nobody */
    void *ctx;
    void (*phase)(const char *name); /* NULL: nobody. What begins: "read", "train", "checkpoint", "evaluate", "write" */
} woi_train_watch;

/* Trains, writes the network, and removes the checkpoint. `at` receives the file that a failure is about. The result is
 * to be freed after a success; after a failure there is nothing to free. Of several processes all call it; a failure
 * to read or to write, on whichever rank, is the same sentence on all of them. */
wo_status woi_train(woi_arch arch, const woi_train_options *options, woi_train_watch watch, woi_train_result *result,
                    const char **at, wo_error *err);
void woi_train_result_free(woi_train_result *result);

#endif
