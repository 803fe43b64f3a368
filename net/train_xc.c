/* Training the bag network: batches of rows in a new order each epoch. */
#include "base/error.h"
#include "base/mem.h"
#include "net/trainer.h"
#include "text/names_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct xc {
    const woi_train_options *o;
    woi_network *net;
    woi_xc_data data;
    uint64_t *rows, *order; /* those with a label; a permutation of them */
    uint64_t n;
    woi_softmax *softmax;
    woi_bag_trainer *bag;
    /* a batch, gathered */
    float *q, *dq, *values;
    int64_t *indptr, *label_indptr;
    int32_t *features, *labels;
    size_t values_room, features_room, labels_room;
} xc;

static void xc_free(void *self)
{
    xc *x = self;
    if (!x) return;
    woi_xc_data_free(&x->data);
    woi_softmax_free(x->softmax);
    woi_bag_trainer_free(x->bag);
    void *const owned[] = {x->rows,   x->order,        x->q,        x->dq,    x->values,
                           x->indptr, x->label_indptr, x->features, x->labels};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(x);
}

static wo_status xc_begin_epoch(void *self, uint64_t epoch, wo_error *err)
{
    xc *x = self;
    (void)err;
    woi_shuffle(x->order, x->n, x->o->seed, epoch);
    return WO_OK;
}

/* Copies the rows of one batch side by side. */
static wo_status gather(xc *x, uint64_t first, size_t n, wo_error *err)
{
    const woi_xc_data *data = &x->data;
    size_t n_values = 0, n_labels = 0;
    x->indptr[0] = x->label_indptr[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t row = x->rows[x->order[first + i]];
        n_values += (size_t)(data->feature_indptr[row + 1] - data->feature_indptr[row]);
        n_labels += (size_t)(data->label_indptr[row + 1] - data->label_indptr[row]);
        x->indptr[i + 1] = (int64_t)n_values;
        x->label_indptr[i + 1] = (int64_t)n_labels;
    }
    wo_status status;
    if ((status = woi_grow(&x->values, &x->values_room, 0, n_values, sizeof(float), err)) ||
        (status = woi_grow(&x->features, &x->features_room, 0, n_values, sizeof(int32_t), err)) ||
        (status = woi_grow(&x->labels, &x->labels_room, 0, n_labels, sizeof(int32_t), err)))
        return status;
    for (size_t i = 0; i < n; i++) {
        const uint64_t row = x->rows[x->order[first + i]];
        const size_t values = (size_t)(x->indptr[i + 1] - x->indptr[i]);
        if (values) /* there may be none in the whole batch, and no memory for them */
            memcpy(x->values + x->indptr[i], data->values + data->feature_indptr[row], values * sizeof(float));
        if (values)
            memcpy(x->features + x->indptr[i], data->features + data->feature_indptr[row], values * sizeof(int32_t));
        memcpy(x->labels + x->label_indptr[i], data->labels + data->label_indptr[row],
               (size_t)(x->label_indptr[i + 1] - x->label_indptr[i]) * sizeof(int32_t));
    }
    return WO_OK;
}

static wo_status xc_step(void *self, const woi_turn *turn, double *loss, size_t *examples, wo_error *err)
{
    xc *x = self;
    const uint64_t first = turn->i * x->o->batch, left = x->n - first;
    const size_t n = (size_t)(left < x->o->batch ? left : x->o->batch);
    wo_status status = gather(x, first, n, err);
    if (status) return status;
    const woi_bag_rows rows = {n, x->indptr, x->features, x->values};
    const woi_targets targets = {x->label_indptr, x->labels, NULL, NULL};
    *examples = n;
    return woi_bag_step(x->net, x->bag, x->softmax, &rows,
                        &(woi_step){x->q, n, &targets, turn->step, turn->adam, x->dq, loss, NULL}, err);
}

/* ---- Making one -------------------------------------------------------------------------------------------- */

/* Where names are: in a file that was named, or in the usual one beside the training file where it is there. */
typedef struct names_file {
    const char *given, *usual;
    size_t n; /* so many are expected */
} names_file;

static wo_status read_names(const char *train, const names_file *file, woi_names *names, const char **at, wo_error *err)
{
    const char *given = file->given, *usual = file->usual;
    char beside[4096];
    const char *slash = strrchr(train, '/');
    const int folder = slash ? (int)(slash - train) + 1 : 0;
    if (!given) {
        snprintf(beside, sizeof beside, "%.*s%s", folder, train, usual);
        if (access(beside, F_OK) != 0 && errno == ENOENT) return WO_OK; /* there but not to be had is another matter */
    }
    wo_status status = woi_names_read(given ? given : beside, names, err);
    if (!status && (size_t)names->n != file->n)
        status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has %d names, the data %zu", names->n, file->n);
    if (status && given) *at = given;
    if (status && !given) woi_error_prefix(err, usual);
    return status;
}

/* Which raw text these features come from: the fields of 'data deb822' are part of their names. */
static const char *guess_extractor(const woi_names *features)
{
    static const char *const fields[] = {"desc:", "name:", "section:", "maint:", "tag:", "source:"};
    if (features->n == 0) return "none";
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (woi_names_bytes(features, 0) > strlen(fields[i]) &&
            memcmp(woi_names_get(features, 0), fields[i], strlen(fields[i])) == 0)
            return "deb822";
    return "words";
}

static wo_status list_rows(xc *x, wo_error *err)
{
    if (!(x->rows = woi_alloc((size_t)x->data.n, sizeof *x->rows, err))) return WO_ERR_MEMORY;
    for (uint64_t i = 0; i < x->data.n; i++)
        if (x->data.label_indptr[i + 1] > x->data.label_indptr[i]) x->rows[x->n++] = i;
    if (x->n == 0) return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "no row has a label: there is nothing to learn");
    return WO_OK;
}

/* What has no logarithm would make its embeddings NaN, unseen behind the ReLU. */
static wo_status check_values(const xc *x, wo_error *err)
{
    const woi_xc_data *data = &x->data;
    for (uint64_t row = 0; x->o->input.log1p && row < data->n; row++)
        for (int64_t i = data->feature_indptr[row]; i < data->feature_indptr[row + 1]; i++)
            if (data->values[i] <= -1)
                return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "log1p",
                                      "row %llu: feature %d has the value %g, which is no count",
                                      (unsigned long long)row + 1, data->features[i], (double)data->values[i]);
    return WO_OK;
}

static uint64_t hash_data(const woi_xc_data *data)
{
    uint64_t hash = woi_hash(data->n, data->label_indptr, (size_t)(data->n + 1) * sizeof(int64_t));
    hash = woi_hash(hash, data->labels, (size_t)data->label_indptr[data->n] * sizeof(int32_t));
    hash = woi_hash(hash, data->feature_indptr, (size_t)(data->n + 1) * sizeof(int64_t));
    hash = woi_hash(hash, data->features, (size_t)data->feature_indptr[data->n] * sizeof(int32_t));
    return woi_hash(hash, data->values, (size_t)data->feature_indptr[data->n] * sizeof(float));
}

static wo_status make_scratch(xc *x, wo_error *err)
{
    const woi_train_options *o = x->o;
    const size_t batch = (size_t)o->batch, d = x->net->d;
    uint32_t *frequency = NULL;
    if (!(x->order = woi_alloc((size_t)x->n, sizeof *x->order, err)) ||
        !(x->q = woi_alloc(batch * d, sizeof(float), err)) || !(x->dq = woi_alloc(batch * d, sizeof(float), err)) ||
        !(x->indptr = woi_alloc(batch + 1, sizeof(int64_t), err)) ||
        !(x->label_indptr = woi_alloc(batch + 1, sizeof(int64_t), err)))
        return WO_ERR_MEMORY;
    if (o->sampled) {
        if (!(frequency = woi_alloc_zero(x->net->m, sizeof *frequency, err))) return WO_ERR_MEMORY;
        for (int64_t i = 0; i < x->data.label_indptr[x->data.n]; i++) frequency[x->data.labels[i]]++;
    }
    const woi_bag bag = woi_network_bag(x->net);
    const woi_sampling sampling = {(size_t)o->sampled, frequency, o->seed + WOI_STREAM_SAMPLES};
    wo_status status = woi_softmax_create(x->net->m, &sampling, (woi_workers){o->threads, o->ranks}, &x->softmax, err);
    if (!status)
        status = woi_bag_trainer_create(&bag,
                                        &(woi_bag_options){.input = o->input,
                                                           .dropout = o->dropout,
                                                           .seed = o->seed + WOI_STREAM_DROPOUT,
                                                           .threads = o->threads,
                                                           .ranks = o->ranks},
                                        &x->bag, err);
    woi_free(frequency);
    return status;
}

wo_status woi_trainer_xc(const woi_train_options *o, woi_trainer *trainer, const char **at, wo_error *err)
{
    xc *x = woi_alloc_zero(1, sizeof *x, err);
    if (!x) return WO_ERR_MEMORY;
    x->o = o;
    *at = o->train;
    wo_status status = woi_xc_load(o->train, &o->xc, NULL, &x->data, err);
    if (!status && x->data.n_labels == 0)
        status = woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "matrix", "has no labels");
    if (!status && o->ranks && x->data.n_labels < (uint64_t)o->ranks->size)
        status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "has %llu classes for %d processes: each needs one",
                          (unsigned long long)x->data.n_labels, o->ranks->size);
    if (!status) status = list_rows(x, err);
    if (!status) status = check_values(x, err);
    if (!status)
        status = woi_network_create(&(woi_network_plan){.arch = WOI_ARCH_XC,
                                                        .m = (size_t)x->data.n_labels,
                                                        .d = (size_t)o->d,
                                                        .n_inputs = (size_t)x->data.n_features,
                                                        .trained = true,
                                                        .seed = o->seed,
                                                        .ranks = o->ranks},
                                    &x->net, err);
    if (!status) {
        const names_file labels = {o->label_names, "labels.txt", x->net->m};
        status = read_names(o->train, &labels, &x->net->labels, at, err);
    }
    if (!status) {
        const names_file features = {o->feature_names, "features.txt", x->net->n_inputs};
        status = read_names(o->train, &features, &x->net->features, at, err);
    }
    if (!status) status = make_scratch(x, err);
    if (status) {
        woi_network_free(x->net);
        xc_free(x);
        return status;
    }
    x->net->input = o->input;
    snprintf(x->net->extractor, sizeof x->net->extractor, "%s", guess_extractor(&x->net->features));
    *trainer = (woi_trainer){
        x, x->net, (x->n + o->batch - 1) / o->batch, x->n, hash_data(&x->data), xc_begin_epoch, xc_step, xc_free};
    return WO_OK;
}
