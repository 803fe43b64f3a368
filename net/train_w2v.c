/* Training the word network: an example is a word of the corpus, its targets are the words around all its occurrences
 * in proportion to how often they stand there, its weight is its count.
 *
 * Around a frequent word stands nearly every other, too many for one step. So a visit to a word draws a few: one of its
 * occurrences, and a place in the window around it, DRAWS times. On average that is the whole context, which is kept as
 * the list of the word's positions: in no more memory than the text.
 *
 * An epoch visits a word of count c not c times but v = ceil(c^(3/4)), in random order, with the weight c / v: half of
 * a text is two hundred words, whose rows need no half of the steps. (enwiki100m without the 200 as labels, sampled,
 * after 6,700 steps: P@1 0.083; with c^(1/2) and 5,900 steps 0.075.) */
#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "net/trainer.h"
#include "text/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 64 };

typedef struct w2v {
    const woi_train_options *o;
    woi_network *net;
    woi_tokens tokens;
    uint64_t *starts;    /* (m + 1): where each word's positions begin */
    uint32_t *positions; /* all positions, word after word */
    int32_t *visits;     /* the words of an epoch, each as often as it is visited */
    uint64_t *order, n;  /* a permutation of them; how many */
    uint64_t n_words;    /* different ones */
    woi_softmax *softmax;
    woi_bag_trainer *bag;
    float *q, *dq, *ones, *weights, *shares;
    int64_t *indptr, *target_indptr;
    int32_t *features, *ids;
} w2v;

static void w2v_free(void *self)
{
    w2v *x = self;
    if (!x) return;
    woi_tokens_close(&x->tokens);
    woi_softmax_free(x->softmax);
    woi_bag_trainer_free(x->bag);
    void *const owned[] = {x->starts,  x->positions, x->visits, x->order,         x->q,        x->dq, x->ones,
                           x->weights, x->shares,    x->indptr, x->target_indptr, x->features, x->ids};
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

static uint64_t count_of(const w2v *x, size_t word)
{
    return x->starts[word + 1] - x->starts[word];
}

/* Of a word, in an epoch. Roots are exact on every machine, pow is not. */
static uint64_t visits_of(const w2v *x, size_t word)
{
    const double count = (double)count_of(x, word);
    return (uint64_t)ceil(sqrt(count * sqrt(count)));
}

/* Draws labels around a word, DRAWS or fewer: places beyond the text's ends and words that are no labels count for
 * nothing. Gives the distinct ones, with their shares, and returns their number. `row` is the word's place in the batch
 * of this step. */
static size_t draw(const w2v *x, int32_t word, uint64_t step, size_t row, int32_t *ids, float *shares)
{
    const uint64_t seed = x->o->seed + WOI_STREAM_TARGETS, n = x->tokens.n;
    const uint64_t reach = x->o->window < n ? x->o->window : n;
    size_t n_drawn = 0, n_distinct = 0;
    for (uint64_t i = row * DRAWS; i < (row + 1) * DRAWS; i++) {
        const uint64_t which = woi_rng_below(seed, step, 2 * i, count_of(x, (size_t)word));
        const uint64_t centre = x->positions[x->starts[word] + which];
        uint64_t place = centre + woi_rng_below(seed, step, 2 * i + 1, 2 * reach); /* counted from -reach */
        if (place >= centre + reach) place++;                                      /* the word itself is no neighbour */
        if (place < reach || place - reach >= n) continue;
        const int32_t other = x->tokens.ids[place - reach];
        if (x->net->is_label[other]) ids[n_drawn++] = other;
    }
    woi_ids_sort(ids, n_drawn);
    for (size_t i = 0, same; i < n_drawn; i += same) {
        for (same = 1; i + same < n_drawn && ids[i + same] == ids[i]; same++) {
        }
        ids[n_distinct] = ids[i];
        shares[n_distinct++] = (float)same / (float)n_drawn;
    }
    return n_distinct;
}

typedef struct gathering {
    const w2v *x;
    uint64_t first, step;
} gathering;

static void gather_range(void *own, int worker, size_t first, size_t end)
{
    const gathering *g = own;
    const w2v *x = g->x;
    (void)worker;
    for (size_t i = first; i < end; i++) {
        const int32_t word = x->visits[x->order[g->first + i]];
        const size_t found = draw(x, word, g->step, i, x->ids + i * DRAWS, x->shares + i * DRAWS);
        const double weight = (double)count_of(x, (size_t)word) / (double)visits_of(x, (size_t)word);
        x->features[i] = word;
        x->weights[i] = found ? (float)weight : 0;
        x->target_indptr[i + 1] = (int64_t)found;
    }
}

/* The words of a batch and their targets, one row after the other. */
static void gather(w2v *x, uint64_t first, size_t n, uint64_t step)
{
    enum { WORDS_AT_ONCE = 16 };
    woi_team_ranges(x->o->threads, n, WORDS_AT_ONCE, gather_range, &(gathering){x, first, step});
    x->target_indptr[0] = 0;
    for (size_t i = 0; i < n; i++) { /* each row moves down to the end of the one before */
        const size_t to = (size_t)x->target_indptr[i], found = (size_t)x->target_indptr[i + 1];
        memmove(x->ids + to, x->ids + i * DRAWS, found * sizeof *x->ids);
        memmove(x->shares + to, x->shares + i * DRAWS, found * sizeof *x->shares);
        x->target_indptr[i + 1] += (int64_t)to;
    }
}

static wo_status w2v_step(void *self, const woi_turn *turn, double *loss, size_t *examples, wo_error *err)
{
    w2v *x = self;
    const uint64_t first = turn->i * x->o->batch, left = x->n - first;
    const size_t n = (size_t)(left < x->o->batch ? left : x->o->batch);
    gather(x, first, n, turn->step);
    const woi_bag_rows rows = {n, x->indptr, x->features, x->ones};
    const woi_targets targets = {x->target_indptr, x->ids, x->shares, x->weights};
    *examples = n;
    return woi_bag_step(x->net, x->bag, x->softmax, &rows,
                        &(woi_step){x->q, n, &targets, turn->step, turn->adam, x->dq, loss, NULL}, err);
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
        !(x->positions = woi_alloc((size_t)t->n, sizeof *x->positions, err)))
        return WO_ERR_MEMORY;
    for (uint64_t i = 0; i < t->n; i++) x->starts[t->ids[i] + 2]++;
    for (size_t i = 2; i < m + 2; i++) x->starts[i] += x->starts[i - 1];
    for (uint64_t i = 0; i < t->n; i++) x->positions[x->starts[t->ids[i] + 1]++] = (uint32_t)i;
    return WO_OK;
}

static wo_status list_visits(w2v *x, wo_error *err)
{
    const size_t m = (size_t)x->tokens.words.n;
    for (size_t i = 0; i < m; i++) {
        x->n_words += count_of(x, i) > 0;
        x->n += visits_of(x, i);
    }
    if (!(x->visits = woi_alloc((size_t)x->n, sizeof *x->visits, err)) ||
        !(x->order = woi_alloc((size_t)x->n, sizeof *x->order, err)))
        return WO_ERR_MEMORY;
    for (size_t i = 0, at = 0; i < m; i++)
        for (uint64_t k = visits_of(x, i); k > 0; k--) x->visits[at++] = (int32_t)i;
    return WO_OK;
}

/* The most frequent words are no labels; of equal ones the lower id goes first. */
static void drop_frequent(w2v *x)
{
    for (uint64_t dropped = 0; dropped < x->o->drop_top; dropped++) {
        size_t most = SIZE_MAX;
        for (size_t i = 0; i < x->net->m; i++)
            if (x->net->is_label[i] && (most == SIZE_MAX || count_of(x, i) > count_of(x, most))) most = i;
        x->net->is_label[most] = 0;
    }
    x->net->drop_top = x->o->drop_top;
    x->net->window = x->o->window;
}

/* Where training starts. An embedding row is all that its word has in front of the ReLU: where a number in it were
 * below 0, its gradient would be 0, and it would stay there for good. So all begin above (P@1 0.083, else 0.074). The
 * output begins at the frequencies of the labels, which Adam would need thousands of steps to reach. */
static void start_values(w2v *x)
{
    woi_param *e = woi_network_param(x->net, "embed.weight");
    for (size_t i = 0; i < e->n; i++) e->w[i] = fabsf(e->w[i]);
    float *b = woi_network_param(x->net, "output.bias")->w;
    for (size_t i = 0; i < x->net->m; i++) {
        const double count = x->net->is_label[i] ? (double)count_of(x, i) : 0;
        b[i] = (float)log((count + 0.5) / (double)x->tokens.n);
    }
}

static wo_status make_scratch(w2v *x, wo_error *err)
{
    const woi_train_options *o = x->o;
    const size_t batch = (size_t)o->batch, d = x->net->d, m = x->net->m;
    uint32_t *frequency = NULL;
    if (!(x->shares = woi_alloc(batch * DRAWS, sizeof(float), err)) ||
        !(x->ids = woi_alloc(batch * DRAWS, sizeof(int32_t), err)) ||
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
        for (size_t i = 0; i < m; i++) frequency[i] = x->net->is_label[i] ? (uint32_t)count_of(x, i) : 0;
    }
    const woi_bag bag = woi_network_bag(x->net);
    const woi_bag_input input = {.relu = true};
    const woi_sampling sampling = {(size_t)o->sampled, frequency, o->seed + WOI_STREAM_SAMPLES};
    wo_status status = woi_softmax_create(m, &sampling, (woi_workers){o->threads, NULL}, &x->softmax, err);
    if (!status)
        status = woi_bag_trainer_create(
            &bag,
            &(woi_bag_options){
                .input = input, .dropout = o->dropout, .seed = o->seed + WOI_STREAM_DROPOUT, .threads = o->threads},
            &x->bag, err);
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
    if (!status) status = list_visits(x, err);
    if (!status && o->drop_top >= x->n_words)
        status = woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_NONE, "drop_top",
                                "has %llu words: without the %llu most frequent none is left",
                                (unsigned long long)x->n_words, (unsigned long long)o->drop_top);
    if (!status)
        status = woi_network_create(&(woi_network_plan){.arch = WOI_ARCH_W2V,
                                                        .m = (size_t)x->tokens.words.n,
                                                        .d = (size_t)o->d,
                                                        .n_inputs = (size_t)x->tokens.words.n,
                                                        .trained = true,
                                                        .seed = o->seed},
                                    &x->net, err);
    if (!status) status = woi_names_copy(&x->tokens.words, &x->net->labels, err);
    if (!status) drop_frequent(x);
    if (!status) status = make_scratch(x, err);
    if (status) {
        woi_network_free(x->net);
        w2v_free(x);
        return status;
    }
    start_values(x);
    *trainer = (woi_trainer){
        x,        x->net,  (x->n + o->batch - 1) / o->batch, x->n, woi_hash_tokens(&x->tokens), w2v_begin_epoch,
        w2v_step, w2v_free};
    return WO_OK;
}
