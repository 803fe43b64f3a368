/* Sums of embedding rows, forwards and backwards. */
#include "net/bag.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/ranges.h"
#include "net/dropout.h"

#include <math.h>
#include <string.h>

enum { ROWS_AT_ONCE = 16, SLOTS_AT_ONCE = 64, FEATURES_AT_ONCE = 1024 }; /* that a thread takes */

/* h = sum of x_f E[f] over the features of row `row`; the x go into `x`. One of the two may be NULL. A row's length is
 * a factor of the whole sum, so it is applied at the end. */
static void sum_row(const woi_bag *bag, const woi_bag_input *input, const woi_bag_rows *rows, size_t row,
                    float *restrict h, float *x)
{
    const int64_t from = rows->indptr[row];
    const size_t n = (size_t)(rows->indptr[row + 1] - from), d = h ? bag->d : 0;
    if (h) memset(h, 0, d * sizeof *h);
    if (!n) return; /* where no row has a feature there may be no arrays of them */
    const int32_t *features = rows->features + from;
    const float *values = rows->values + from;
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        const float *restrict e = bag->e + (size_t)features[i] * bag->d;
        const float weight = input->log1p ? log1pf(values[i]) : values[i];
        square += (double)weight * (double)weight;
        if (x) x[i] = weight;
#pragma omp simd
        for (size_t j = 0; j < d; j++) h[j] += weight * e[j];
    }
    if (!input->l2 || square == 0) return;
    const float scale = (float)(1 / sqrt(square));
    for (size_t j = 0; j < d; j++) h[j] *= scale;
    for (size_t i = 0; x && i < n; i++) x[i] *= scale;
}

typedef struct forwarding {
    const woi_bag *bag;
    const woi_bag_input *input;
    const woi_bag_rows *rows;
    float *q;
} forwarding;

static void forward_range(void *own, int worker, size_t first, size_t end)
{
    const forwarding *f = own;
    const woi_bag *bag = f->bag;
    (void)worker;
    for (size_t i = first; i < end; i++) {
        float *h = f->q + i * bag->d;
        sum_row(bag, f->input, f->rows, i, h, NULL);
        for (size_t j = 0; f->input->relu && j < bag->d; j++) h[j] = h[j] > 0 ? h[j] : 0;
    }
}

void woi_bag_forward(const woi_bag *bag, const woi_bag_input *input, const woi_bag_rows *rows, int threads, float *q)
{
    woi_team_ranges(threads, rows->n, ROWS_AT_ONCE, forward_range, &(forwarding){bag, input, rows, q});
}

/* ---- Training ---------------------------------------------------------------------------------------------- */

struct woi_bag_trainer {
    const woi_kernels *kernels;
    woi_bag bag;
    woi_bag_input input;
    double dropout;
    uint64_t seed;
    int threads;
    const wo_collective *ranks;
    float *zeros;    /* (d): the gradient of a row that the batch has not, where every row is updated; otherwise NULL */
    float *x;        /* transformed values of the batch */
    float *mask;     /* (n, d): 0, or 1 / keep where relu and dropout let through */
    float *gradient; /* (n_slots, d) */
    size_t x_room, mask_room, gradient_room;
    /* The batch's entries by feature, filled by two passes over them: */
    int32_t *slot_of;      /* (n_features): the slot of a feature in this batch, valid where slots[slot] names it */
    int32_t *slots, *rows; /* feature of each slot; row of each entry, slot after slot */
    float *entries;        /* x of each entry, in that order */
    size_t *starts;        /* where each slot's entries begin */
    size_t n_slots;
    size_t slots_room, rows_room, entries_room, starts_room;
};

wo_status woi_bag_trainer_create(const woi_bag *bag, const woi_bag_options *o, woi_bag_trainer **result, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    woi_bag_trainer *t = woi_alloc_zero(1, sizeof *t, err);
    if (!t) return WO_ERR_MEMORY;
    t->kernels = kernels;
    t->bag = *bag;
    t->input = o->input;
    t->dropout = o->dropout;
    t->seed = o->seed;
    t->threads = o->threads;
    t->ranks = o->ranks;
    t->slot_of = woi_alloc_zero(bag->n_features, sizeof *t->slot_of, err);
    if (!t->slot_of || (o->every_row && !(t->zeros = woi_alloc_zero(bag->d, sizeof *t->zeros, err)))) {
        woi_bag_trainer_free(t);
        return WO_ERR_MEMORY;
    }
    *result = t;
    return WO_OK;
}

void woi_bag_trainer_free(woi_bag_trainer *t)
{
    if (!t) return;
    void *const owned[] = {t->zeros, t->x, t->mask, t->gradient, t->slot_of, t->slots, t->rows, t->entries, t->starts};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(t);
}

/* relu and dropout of one row of h, in place; what they let through stays in the mask for the way back. */
static void pass_row(const woi_bag_trainer *t, uint64_t step, size_t row, float *h, float *mask)
{
    woi_dropout(h, mask, t->bag.d, t->dropout, t->seed, step << 32 | row);
    for (size_t j = 0; t->input.relu && j < t->bag.d; j++)
        if (!(h[j] > 0)) h[j] = mask[j] = 0;
}

typedef struct train_forwarding {
    const woi_bag_trainer *t;
    const woi_bag_rows *rows;
    uint64_t step;
    float *q;
} train_forwarding;

static void train_forward_range(void *own, int worker, size_t first, size_t end)
{
    const train_forwarding *f = own;
    const woi_bag_trainer *t = f->t;
    const woi_bag_rows *rows = f->rows;
    (void)worker;
    for (size_t i = first; i < end; i++) {
        float *h = f->q + i * t->bag.d;
        sum_row(&t->bag, &t->input, rows, i, h, t->x + (rows->indptr[i] - rows->indptr[0]));
        pass_row(t, f->step, i, h, t->mask + i * t->bag.d);
    }
}

/* The x of the examples whose bags other processes sum: they are needed for the gradients. */
static void weigh_others(const woi_bag_trainer *t, const woi_bag_rows *rows)
{
    const woi_range own = woi_range_own(t->ranks, rows->n);
    for (size_t i = 0; i < rows->n; i++)
        if (i < own.first || i >= own.end)
            sum_row(&t->bag, &t->input, rows, i, NULL, t->x + (rows->indptr[i] - rows->indptr[0]));
}

wo_status woi_bag_train_forward(woi_bag_trainer *t, const woi_bag_rows *rows, uint64_t step, float *q, wo_error *err)
{
    const size_t n = (size_t)(rows->indptr[rows->n] - rows->indptr[0]);
    wo_status status;
    if ((status = woi_grow(&t->x, &t->x_room, 0, n, sizeof(float), err)) ||
        (status = woi_grow(&t->mask, &t->mask_room, 0, rows->n * t->bag.d, sizeof(float), err)))
        return status;
    woi_range_run(t->ranks, t->threads, rows->n, ROWS_AT_ONCE, train_forward_range,
                  &(train_forwarding){t, rows, step, q});
    weigh_others(t, rows);
    const size_t bytes = t->bag.d * sizeof(float);
    status = woi_range_gather(t->ranks, q, rows->n, bytes, err);
    return status ? status : woi_range_gather(t->ranks, t->mask, rows->n, bytes, err);
}

/* Entries by feature, in the order of first appearance, each feature's in the order of the rows; returns the number of
 * features. */
static size_t group_by_feature(woi_bag_trainer *t, const woi_bag_rows *rows)
{
    const int64_t start = rows->indptr[0], n = rows->indptr[rows->n] - start;
    size_t n_slots = 0;
    memset(t->starts, 0, ((size_t)n + 2) * sizeof *t->starts);
    for (int64_t i = 0; i < n; i++) {
        const int32_t feature = rows->features[start + i];
        size_t slot = (size_t)t->slot_of[feature];
        if (slot >= n_slots || t->slots[slot] != feature) {
            slot = n_slots++;
            t->slots[slot] = feature;
            t->slot_of[feature] = (int32_t)slot;
        }
        t->starts[slot + 2]++;
    }
    for (size_t slot = 2; slot < n_slots + 2; slot++) t->starts[slot] += t->starts[slot - 1];
    for (size_t row = 0; row < rows->n; row++)
        for (int64_t i = rows->indptr[row]; i < rows->indptr[row + 1]; i++) {
            size_t place = t->starts[t->slot_of[rows->features[i]] + 1]++;
            t->rows[place] = (int32_t)row;
            t->entries[place] = t->x[i - start];
        }
    return n_slots;
}

typedef struct backwarding {
    const woi_bag_trainer *t;
    const float *dq;
} backwarding;

static void backward_range(void *own, int worker, size_t first, size_t end)
{
    const backwarding *b = own;
    const woi_bag_trainer *t = b->t;
    const size_t d = t->bag.d;
    (void)worker;
    for (size_t slot = first; slot < end; slot++) {
        float *restrict g = t->gradient + slot * d;
        memset(g, 0, d * sizeof *g);
        for (size_t i = t->starts[slot]; i < t->starts[slot + 1]; i++) {
            const float *restrict from = b->dq + (size_t)t->rows[i] * d;
            const float x = t->entries[i];
#pragma omp simd
            for (size_t j = 0; j < d; j++) g[j] += x * from[j];
        }
    }
}

wo_status woi_bag_train_backward(woi_bag_trainer *t, const woi_bag_rows *rows, float *dq, double *square, wo_error *err)
{
    const size_t n = (size_t)(rows->indptr[rows->n] - rows->indptr[0]), d = t->bag.d;
    wo_status status;
    if ((status = woi_grow(&t->slots, &t->slots_room, 0, n, sizeof *t->slots, err)) ||
        (status = woi_grow(&t->rows, &t->rows_room, 0, n, sizeof *t->rows, err)) ||
        (status = woi_grow(&t->entries, &t->entries_room, 0, n, sizeof *t->entries, err)) ||
        (status = woi_grow(&t->starts, &t->starts_room, 0, n + 2, sizeof *t->starts, err)))
        return status;
    for (size_t i = 0; i < rows->n * d; i++) dq[i] *= t->mask[i];
    t->n_slots = group_by_feature(t, rows);
    if ((status = woi_grow(&t->gradient, &t->gradient_room, 0, t->n_slots * d, sizeof(float), err))) return status;
    woi_range_run(t->ranks, t->threads, t->n_slots, SLOTS_AT_ONCE, backward_range, &(backwarding){t, dq});
    if ((status = woi_range_gather(t->ranks, t->gradient, t->n_slots, d * sizeof(float), err))) return status;
    if (square) *square = 0;
    for (size_t i = 0; square && i < t->n_slots * d; i++) *square += (double)t->gradient[i] * (double)t->gradient[i];
    return WO_OK;
}

static void apply_row(const woi_bag_trainer *t, size_t feature, const float *gradient, const woi_adam_step *adam)
{
    const size_t at = feature * t->bag.d;
    t->kernels->adam(t->bag.e + at, t->bag.e_m + at, t->bag.e_v + at, gradient, t->bag.d, adam);
}

typedef struct applying {
    const woi_bag_trainer *t;
    float scale;
    const woi_adam_step *adam;
} applying;

static void apply_slots(void *own, int worker, size_t first, size_t end)
{
    const applying *a = own;
    const size_t d = a->t->bag.d;
    (void)worker;
    for (size_t slot = first; slot < end; slot++) {
        float *g = a->t->gradient + slot * d;
        for (size_t j = 0; a->scale != 1 && j < d; j++) g[j] *= a->scale;
        apply_row(a->t, (size_t)a->t->slots[slot], g, a->adam);
    }
}

/* The rows that the batch has not. */
static void apply_others(void *own, int worker, size_t first, size_t end)
{
    const applying *a = own;
    const woi_bag_trainer *t = a->t;
    (void)worker;
    for (size_t feature = first; feature < end; feature++) {
        const size_t slot = (size_t)t->slot_of[feature];
        const bool in_batch = slot < t->n_slots && (size_t)t->slots[slot] == feature;
        if (!in_batch) apply_row(t, feature, t->zeros, a->adam);
    }
}

void woi_bag_train_apply(woi_bag_trainer *t, float scale, const woi_adam_step *adam)
{
    applying a = {t, scale, adam};
    woi_team_ranges(t->threads, t->n_slots, SLOTS_AT_ONCE, apply_slots, &a);
    if (t->zeros) woi_team_ranges(t->threads, t->bag.n_features, FEATURES_AT_ONCE, apply_others, &a);
}
