/* Training the word network: an example is a word of the corpus, its targets are the words around all its occurrences
 * in proportion to how often they stand there, its weight is its count. One pass over the words is thus one over all
 * (word, neighbour) pairs.
 *
 * A word's neighbours are counted when its batch comes, from the list of its positions: 50 additions an occurrence, a
 * hundredth of the work of the step, and nothing larger than the corpus is kept. */
#include "base/error.h"
#include "base/mem.h"
#include "net/tokens.h"
#include "net/trainer.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* The neighbours of one word of a batch. */
typedef struct context {
    int32_t *ids;
    float *shares;
    size_t n, ids_room, shares_room;
} context;

typedef struct w2v {
    const woi_train_options *o;
    woi_network *net;
    woi_tokens tokens;
    uint64_t *starts;    /* (m + 1): where each word's positions begin */
    uint32_t *positions; /* all positions, word after word */
    int32_t *words;      /* those that occur */
    uint64_t *order, n;  /* a permutation of them; how many */
    uint32_t *counts;    /* (threads, m): zero between words */
    context *contexts;   /* (batch) */
    woi_softmax *softmax;
    woi_bag_trainer *bag;
    float *q, *dq, *ones, *weights, *shares;
    int64_t *indptr, *target_indptr;
    int32_t *features, *ids;
    size_t shares_room, ids_room;
} w2v;

static void w2v_free(void *self)
{
    w2v *x = self;
    if (!x) return;
    for (size_t i = 0; x->contexts && i < x->o->batch; i++) {
        woi_free(x->contexts[i].ids);
        woi_free(x->contexts[i].shares);
    }
    woi_tokens_close(&x->tokens);
    woi_softmax_free(x->softmax);
    woi_bag_trainer_free(x->bag);
    void *const owned[] = {x->starts, x->positions, x->words,  x->order,  x->counts,        x->contexts, x->q,  x->dq,
                           x->ones,   x->weights,   x->shares, x->indptr, x->target_indptr, x->features, x->ids};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(x);
}

static wo_status w2v_begin_epoch(void *self, uint64_t epoch, wo_error *err)
{
    w2v *x = self;
    (void)err;
    woi_shuffle(x->order, x->n, x->o->seed, epoch);
    return WO_OK;
}

/* Counts the labels around every occurrence of a word. `counts` is zero before and after. */
static wo_status count_context(const w2v *x, int32_t word, uint32_t *counts, context *c, wo_error *err)
{
    const uint64_t reach = x->o->window, n = x->tokens.n;
    uint64_t total = 0;
    c->n = 0;
    for (uint64_t p = x->starts[word]; p < x->starts[word + 1]; p++) {
        const uint64_t at = x->positions[p], from = at > reach ? at - reach : 0,
                       to = n - at > reach ? at + reach + 1 : n;
        wo_status status = woi_grow(&c->ids, &c->ids_room, c->n, c->n + (size_t)(to - from), sizeof *c->ids, err);
        if (status) return status;
        for (uint64_t i = from; i < to; i++) {
            const int32_t other = x->tokens.ids[i];
            if (i == at || !x->net->is_label[other]) continue;
            if (counts[other]++ == 0) c->ids[c->n++] = other;
            total++;
        }
    }
    wo_status status = woi_grow(&c->shares, &c->shares_room, 0, c->n, sizeof *c->shares, err);
    for (size_t i = 0; i < c->n; i++) {
        if (!status) c->shares[i] = (float)((double)counts[c->ids[i]] / (double)total);
        counts[c->ids[i]] = 0;
    }
    return status;
}

/* The targets of a batch, one row after the other. */
static wo_status gather(w2v *x, uint64_t first, size_t n, wo_error *err)
{
    wo_status worst = WO_OK;
#pragma omp parallel for num_threads(x->o->threads) schedule(dynamic)
    for (size_t i = 0; i < n; i++) {
        const int32_t word = x->words[x->order[first + i]];
        uint32_t *counts = x->counts + (size_t)omp_get_thread_num() * x->net->m;
        wo_status status = count_context(x, word, counts, &x->contexts[i], NULL);
        if (status) {
#pragma omp atomic write
            worst = status;
        }
    }
    if (worst) return woi_fail(err, worst, WO_NO_OFFSET, "out of memory while counting neighbours");
    x->target_indptr[0] = 0;
    for (size_t i = 0; i < n; i++) x->target_indptr[i + 1] = x->target_indptr[i] + (int64_t)x->contexts[i].n;
    const size_t total = (size_t)x->target_indptr[n];
    wo_status status = woi_grow(&x->ids, &x->ids_room, 0, total, sizeof *x->ids, err);
    if (!status) status = woi_grow(&x->shares, &x->shares_room, 0, total, sizeof *x->shares, err);
    if (status) return status;
    for (size_t i = 0; i < n; i++) {
        const context *c = &x->contexts[i];
        const int32_t word = x->words[x->order[first + i]];
        if (c->n) memcpy(x->ids + x->target_indptr[i], c->ids, c->n * sizeof *c->ids);
        if (c->n) memcpy(x->shares + x->target_indptr[i], c->shares, c->n * sizeof *c->shares);
        x->features[i] = word;
        x->weights[i] = c->n ? (float)(x->starts[word + 1] - x->starts[word]) : 0;
    }
    return WO_OK;
}

static wo_status w2v_step(void *self, uint64_t i, uint64_t step, const woi_adam_step *adam, double *loss,
                          size_t *examples, wo_error *err)
{
    w2v *x = self;
    const uint64_t first = i * x->o->batch, left = x->n - first;
    const size_t n = (size_t)(left < x->o->batch ? left : x->o->batch);
    wo_status status = gather(x, first, n, err);
    if (status) return status;
    const woi_bag_rows rows = {n, x->indptr, x->features, x->ones};
    const woi_targets targets = {x->target_indptr, x->ids, x->shares, x->weights};
    *examples = n;
    return woi_bag_step(x->net, x->bag, x->softmax, &rows, &targets, step, adam, x->q, x->dq, loss, err);
}

/* ---- Making one -------------------------------------------------------------------------------------------- */

/* Positions by word: a counting sort. */
static wo_status list_positions(w2v *x, wo_error *err)
{
    const woi_tokens *t = &x->tokens;
    const size_t m = (size_t)t->words.n;
    if (t->n > UINT32_MAX)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "has %llu words, at most 4294967295 are supported",
                        (unsigned long long)t->n);
    if (!(x->starts = woi_alloc_zero(m + 2, sizeof *x->starts, err)) ||
        !(x->positions = woi_alloc((size_t)t->n, sizeof *x->positions, err)) ||
        !(x->words = woi_alloc(m, sizeof *x->words, err)))
        return WO_ERR_MEMORY;
    for (uint64_t i = 0; i < t->n; i++) x->starts[t->ids[i] + 2]++;
    for (size_t i = 2; i < m + 2; i++) x->starts[i] += x->starts[i - 1];
    for (uint64_t i = 0; i < t->n; i++) x->positions[x->starts[t->ids[i] + 1]++] = (uint32_t)i;
    for (size_t i = 0; i < m; i++)
        if (x->starts[i + 1] > x->starts[i]) x->words[x->n++] = (int32_t)i;
    return WO_OK;
}

/* The most frequent words are no labels; of equal ones the lower id goes first. */
static void drop_frequent(w2v *x)
{
    for (uint64_t dropped = 0; dropped < x->o->drop_top; dropped++) {
        size_t most = SIZE_MAX;
        for (size_t i = 0; i < x->net->m; i++)
            if (x->net->is_label[i] &&
                (most == SIZE_MAX || x->starts[i + 1] - x->starts[i] > x->starts[most + 1] - x->starts[most]))
                most = i;
        x->net->is_label[most] = 0;
    }
    x->net->drop_top = x->o->drop_top;
    x->net->window = x->o->window;
}

/* The output starts at the frequencies of the labels: Adam moves a bias by its rate a step, and the few thousand steps
 * of a run (an example is a word of the vocabulary, not an occurrence) would not take it there. */
static void start_bias(w2v *x)
{
    float *b = woi_network_param(x->net, "output.bias")->w;
    for (size_t i = 0; i < x->net->m; i++) {
        const double count = x->net->is_label[i] ? (double)(x->starts[i + 1] - x->starts[i]) : 0;
        b[i] = (float)log((count + 0.5) / (double)x->tokens.n);
    }
}

static wo_status make_scratch(w2v *x, wo_error *err)
{
    const woi_train_options *o = x->o;
    const size_t batch = (size_t)o->batch, d = x->net->d, m = x->net->m;
    uint32_t *frequency = NULL;
    if (!(x->order = woi_alloc((size_t)x->n, sizeof *x->order, err)) ||
        !(x->counts = woi_alloc_zero((size_t)o->threads * m, sizeof *x->counts, err)) ||
        !(x->contexts = woi_alloc_zero(batch, sizeof *x->contexts, err)) ||
        !(x->q = woi_alloc(batch * d, sizeof(float), err)) || !(x->dq = woi_alloc(batch * d, sizeof(float), err)) ||
        !(x->ones = woi_alloc(batch, sizeof(float), err)) || !(x->weights = woi_alloc(batch, sizeof(float), err)) ||
        !(x->indptr = woi_alloc(batch + 1, sizeof(int64_t), err)) ||
        !(x->target_indptr = woi_alloc(batch + 1, sizeof(int64_t), err)) ||
        !(x->features = woi_alloc(batch, sizeof(int32_t), err)))
        return WO_ERR_MEMORY;
    for (size_t i = 0; i <= batch; i++) x->indptr[i] = (int64_t)i;
    for (size_t i = 0; i < batch; i++) x->ones[i] = 1;
    if (o->sampled) {
        if (!(frequency = woi_alloc(m, sizeof *frequency, err))) return WO_ERR_MEMORY;
        for (size_t i = 0; i < m; i++) frequency[i] = (uint32_t)(x->starts[i + 1] - x->starts[i]);
    }
    const woi_bag bag = woi_network_bag(x->net);
    const woi_bag_input input = {.relu = true};
    wo_status status = woi_softmax_create(m, (size_t)o->sampled, frequency, o->seed + WOI_STREAM_SAMPLES, o->threads,
                                          &x->softmax, err);
    if (!status)
        status =
            woi_bag_trainer_create(&bag, &input, o->dropout, o->seed + WOI_STREAM_DROPOUT, o->threads, &x->bag, err);
    woi_free(frequency);
    return status;
}

wo_status woi_trainer_w2v(const woi_train_options *o, woi_trainer *trainer, const char **at, wo_error *err)
{
    w2v *x = woi_alloc_zero(1, sizeof *x, err);
    if (!x) return WO_ERR_MEMORY;
    x->o = o;
    *at = o->train;
    wo_status status = woi_tokens_open(o->train, &x->tokens, err);
    if (!status) status = list_positions(x, err);
    if (!status && x->tokens.n < 2)
        status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has %llu words, expected 2 or more",
                          (unsigned long long)x->tokens.n);
    if (!status && o->drop_top >= x->n)
        status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "--drop-top %llu leaves none of the %llu words in it",
                          (unsigned long long)o->drop_top, (unsigned long long)x->n);
    if (!status)
        status = woi_network_create(WOI_ARCH_W2V, (size_t)x->tokens.words.n, (size_t)o->d, (size_t)x->tokens.words.n,
                                    true, o->seed, &x->net, err);
    if (!status) status = woi_names_copy(&x->tokens.words, &x->net->labels, err);
    if (!status) status = make_scratch(x, err);
    if (status) {
        woi_network_free(x->net);
        w2v_free(x);
        return status;
    }
    drop_frequent(x);
    start_bias(x);
    *trainer = (woi_trainer){
        x,        x->net,  (x->n + o->batch - 1) / o->batch, x->n, woi_hash_tokens(&x->tokens), w2v_begin_epoch,
        w2v_step, w2v_free};
    return WO_OK;
}
