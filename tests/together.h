/* A wo_collective of threads, so that what processes do together is tested without MPI: each thread is a rank. A rank
 * whose function has returned is gone, and calls of the others fail, as they do where a process dies. */
#ifndef WO_TEST_TOGETHER_H
#define WO_TEST_TOGETHER_H

#include "testing.h"

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>

enum { MOST_RANKS = 8 };

typedef struct together {
    int size;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int waiting, gone;
    unsigned long turn;           /* counts meetings */
    const void *data[MOST_RANKS]; /* what each rank has brought */
    wo_collective calls[MOST_RANKS];
} together;

typedef struct one_rank {
    together *all;
    int rank;
    void (*fn)(const wo_collective *calls, void *ctx);
    void *ctx;
} one_rank;

/* Waits for all ranks. */
static inline wo_status meet(together *t, wo_error *err)
{
    pthread_mutex_lock(&t->lock);
    const unsigned long turn = t->turn;
    if (++t->waiting == t->size) {
        t->waiting = 0;
        t->turn++;
        pthread_cond_broadcast(&t->moved);
    }
    while (t->turn == turn && !t->gone) pthread_cond_wait(&t->moved, &t->lock);
    const bool met = t->turn != turn;
    pthread_mutex_unlock(&t->lock);
    return met ? WO_OK : woi_fail(err, WO_ERR_IO, WO_NO_OFFSET, "a rank is gone");
}

/* ctx is the rank's own entry of calls[]. */
static inline together *together_of(const wo_collective *own)
{
    return (together *)((char *)(own - own->rank) - offsetof(together, calls));
}

static inline wo_status bring(const wo_collective *own, const void *data, wo_error *err)
{
    together *t = together_of(own);
    t->data[own->rank] = data;
    return meet(t, err);
}

static inline wo_status test_broadcast(void *ctx, void *data, size_t bytes, int root, wo_error *err)
{
    const wo_collective *own = ctx;
    together *t = together_of(own);
    wo_status status = bring(own, data, err);
    if (!status && own->rank != root) memcpy(data, t->data[root], bytes);
    return status ? status : meet(t, err);
}

static inline wo_status test_gather(void *ctx, const void *data, const size_t *bytes, void *all, wo_error *err)
{
    const wo_collective *own = ctx;
    together *t = together_of(own);
    char *to = all;
    wo_status status = bring(own, data, err);
    for (int r = 0; !status && r < t->size; to += bytes[r++])
        if (bytes[r] && t->data[r] != to) memcpy(to, t->data[r], bytes[r]);
    return status ? status : meet(t, err);
}

static inline wo_status test_sum_f32(void *ctx, float *data, size_t n, wo_error *err)
{
    const wo_collective *own = ctx;
    together *t = together_of(own);
    float *sum = calloc(n + 1, sizeof *sum);
    wo_status status = bring(own, data, err);
    for (int r = 0; !status && r < t->size; r++)
        for (size_t i = 0; i < n; i++)
            sum[i] = r ? sum[i] + ((const float *)t->data[r])[i] : ((const float *)t->data[r])[i];
    if (!status) status = meet(t, err);
    if (!status) memcpy(data, sum, n * sizeof *sum);
    free(sum);
    return status;
}

static inline wo_status test_sum_f64(void *ctx, double *data, size_t n, wo_error *err)
{
    const wo_collective *own = ctx;
    together *t = together_of(own);
    double *sum = calloc(n + 1, sizeof *sum);
    wo_status status = bring(own, data, err);
    for (int r = 0; !status && r < t->size; r++)
        for (size_t i = 0; i < n; i++) sum[i] += ((const double *)t->data[r])[i];
    if (!status) status = meet(t, err);
    if (!status) memcpy(data, sum, n * sizeof *sum);
    free(sum);
    return status;
}

static inline void *run_rank(void *own)
{
    one_rank *r = own;
    r->fn(&r->all->calls[r->rank], r->ctx);
    pthread_mutex_lock(&r->all->lock);
    r->all->gone++;
    pthread_cond_broadcast(&r->all->moved);
    pthread_mutex_unlock(&r->all->lock);
    return NULL;
}

/* fn(calls, ctx) on each of `size` ranks at once; returns when all have ended. cmocka's checks do not work in other
 * threads: fn leaves what it found in ctx, by rank. */
static inline void run_together(int size, void (*fn)(const wo_collective *calls, void *ctx), void *ctx)
{
    together t = {.size = size};
    pthread_t threads[MOST_RANKS];
    one_rank ranks[MOST_RANKS];
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.moved, NULL);
    for (int r = 0; r < size; r++) {
        t.calls[r] = (wo_collective){sizeof t.calls[r], r,           size,         &t.calls[r],
                                     test_broadcast,    test_gather, test_sum_f32, test_sum_f64};
        ranks[r] = (one_rank){&t, r, fn, ctx};
    }
    for (int r = 0; r < size; r++) assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    pthread_mutex_destroy(&t.lock);
    pthread_cond_destroy(&t.moved);
}

#endif
