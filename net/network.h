/* A network that ends in a wide layer: its parameters under plain names, its vocabularies, and the file of both.
 *
 *   xc    embed.weight (features, d)                          bag of features -> d -> ReLU -> m
 *   w2v   embed.weight (words, d)                             one word -> d -> ReLU -> m
 *   lm    embed.weight (words, d), lstm.weight_ih_l0 ...      words -> d -> two LSTM layers of d -> m
 *   all   output.weight (m, d), output.bias (m)
 *
 * And a model of fastText's, opened from its own file: embed.weight (words and buckets of n-grams, d), the mean of a
 * line's rows -> m, without biases (zeros).
 *
 * The LSTM's names, shapes and order of gates (i f g o) are PyTorch's. */
#ifndef WOI_NET_NETWORK_H
#define WOI_NET_NETWORK_H

#include "layer/exact.h"
#include "net/bag.h"
#include "net/lstm.h"
#include "net/pace.h"
#include "net/softmax.h"
#include "store/names.h"

/* The first WOI_N_ARCHS are trained and written here; the others are only read. */
typedef enum woi_arch { WOI_ARCH_XC, WOI_ARCH_W2V, WOI_ARCH_LM, WOI_N_ARCHS, WOI_ARCH_FASTTEXT = WOI_N_ARCHS } woi_arch;
const char *woi_arch_name(woi_arch arch); /* "xc" */

/* Words on each side of one, at most: each word of a text is held against twice as many. */
enum { WOI_MOST_WINDOW = 1000 };

enum { WOI_MAX_PARAMS = 1 + 4 * WOI_LSTM_DEPTH + 2 };

typedef struct woi_param {
    const char *name;
    int n_dims;
    uint64_t shape[2];
    size_t n;         /* elements */
    float *w, *m, *v; /* the value and Adam's moments; these are NULL where nothing is trained */
} woi_param;

/* What fastText adds to the words of a line: see net/fasttext.h. */
typedef struct woi_grams {
    int32_t words;      /* words of an n-gram at most; 1: none */
    int32_t minn, maxn; /* letters of one; maxn 0: none */
    int32_t bucket;     /* rows behind those of the words, which n-grams share by hash */
} woi_grams;

typedef struct woi_network {
    woi_arch arch;
    size_t m, d, n_inputs; /* classes; size of a query; features or words that come in */
    size_t n_params;
    woi_param params[WOI_MAX_PARAMS];
    woi_bag_input input;        /* xc: what happens to the values */
    uint64_t window, drop_top;  /* w2v: words on each side; most frequent words that are no labels */
    char extractor[16];         /* xc: what makes features of raw text: "deb822", "words" or "none" */
    woi_names labels, features; /* empty where the names are not known; words of w2v and lm are labels */
    woi_grams grams;            /* fasttext */
    uint8_t *is_label;          /* w2v and lm, (m): 0 for words that are never labels */
    /* The processes that have the wide layer's rows together: output.weight and output.bias are this one's share
     * (net/ranks.h), the rest is the same in all. NULL: all rows are here. */
    const wo_collective *ranks;
} woi_network;

/* What a network begins as. Its sizes are those of woi_network. */
typedef struct woi_network_plan {
    woi_arch arch;
    size_t m, d, n_inputs;
    bool trained;
    uint64_t seed;              /* of the numbers that training starts from */
    const wo_collective *ranks; /* as in woi_network; borrowed */
} woi_network_plan;

/* Allocates the parameters, zero or, with `trained`, as training starts: embeddings N(0, 0.1), the rest uniform in
 * +-1/sqrt(d) as PyTorch does; with moments then, and refused where they are larger than the memory there is. Names and
 * options are the caller's to set. */
wo_status woi_network_create(const woi_network_plan *plan, woi_network **network, wo_error *err);
void woi_network_free(woi_network *network);

/* NULL where there is none of that name. */
woi_param *woi_network_param(woi_network *network, const char *name);

woi_dense woi_network_output(const woi_network *network); /* its wide layer, or this process's rows of it, borrowed */
woi_wide woi_network_wide(woi_network *network);          /* the same for training */
woi_bag woi_network_bag(const woi_network *network);
woi_lstm woi_network_lstm(const woi_network *network);

/* Whether its wide layer is not the index's, by the shape and a sample of rows, which are rounded where those are. */
bool woi_network_is_other(const woi_network *network, const wo_index *index);

/* One more line of metadata. */
typedef struct woi_meta {
    const char *key;
    char value[64];
} woi_meta;

/* Writes the network, with names and the lines in `record` (how it was trained). Of several processes all call it, rank
 * 0 writes, and all succeed or none. */
wo_status woi_network_save(const woi_network *network, const char *path, const woi_meta *record, size_t n_record,
                           wo_error *err);

/* Opens a network of ours, or a model of fastText's. */
wo_status woi_network_open(const char *path, woi_network **network, wo_error *err);

/* Opens other people's LSTM: a state dict with the names above, perhaps sharded, and its vocabulary, a word a line. */
wo_status woi_network_open_lm(const char *path, const char *vocabulary, woi_network **network, wo_error *err);

/* The tensor `name` of any float type, of the parameter's shape and finite, as floats: to (param->n). */
wo_status woi_param_read(const woi_st *st, const char *name, const woi_param *param, float *to, wo_error *err);

/* ---- Checkpoints: network_state.c ---------------------------------------------------------------------------- */

/* A checkpoint: parameters and moments after some epochs. `fingerprint` names the data and the options that they belong
 * to; reading refuses another one, and a share of the rows that is not this process's. `done` is the number of epochs,
 * `loss` that of the last. Saving refuses values that are not finite, and leaves an older file as it was. */
wo_status woi_checkpoint_save(const woi_network *network, const char *path, const char *fingerprint, uint64_t done,
                              double loss, wo_error *err);
wo_status woi_checkpoint_load(woi_network *network, const char *path, const char *fingerprint, uint64_t *done,
                              double *loss, wo_error *err);

/* Only how many epochs are done: the header is read, and the tensors are not. */
wo_status woi_checkpoint_peek(const woi_network *network, const char *path, const char *fingerprint, uint64_t *done,
                              wo_error *err);

/* A copy of parameters and moments: those after the best epoch so far. */
typedef struct woi_kept {
    float *state[3 * WOI_MAX_PARAMS];
} woi_kept;

wo_status woi_kept_create(const woi_network *network, woi_kept *kept,
                          wo_error *err); /* also a failure is to be freed */
void woi_kept_free(woi_kept *kept);
void woi_kept_take(woi_kept *kept, const woi_network *network);
void woi_kept_give(const woi_kept *kept, woi_network *network);

/* The same for a run that decides itself when it is done: with the best epoch's state beside it, unless `kept` is NULL
 * because it is the network's own, and the history from which the decisions follow. Reading fills `kept` in any case.
 */
wo_status woi_checkpoint_save_auto(const woi_network *network, const woi_kept *kept, const char *path,
                                   const char *fingerprint, const woi_history *history, wo_error *err);
wo_status woi_checkpoint_load_auto(woi_network *network, woi_kept *kept, const char *path, const char *fingerprint,
                                   woi_history *history, wo_error *err);

#endif
