/* Several ranks in one program: threads that hand each other what a wo_collective hands over. */
#ifndef WO_RANKS_H
#define WO_RANKS_H

#include "testing.h"

#include <pthread.h>

enum { MOST_RANKS = 8 };

typedef struct ranks {
    int size;
    pthread_barrier_t barrier;
    const void *data[MOST_RANKS];
} ranks;

typedef struct a_rank {
    wo_collective calls;
    ranks *all;
    void (*work)(const wo_collective *calls, void *ctx);
    void *ctx;
    pthread_t thread;
} a_rank;

static inline void publish(const a_rank *r, const void *data)
{
    r->all->data[r->calls.rank] = data;
    pthread_barrier_wait(&r->all->barrier);
}

static inline wo_status ranks_gather(void *ctx, const void *data, const size_t *bytes, void *all, wo_error *err)
{
    a_rank *r = ctx;
    char *to = all;
    (void)err;
    publish(r, data);
    for (int from = 0; from < r->all->size; to += bytes[from++])
        if (bytes[from] && r->all->data[from] != to) memcpy(to, r->all->data[from], bytes[from]);
    pthread_barrier_wait(&r->all->barrier);
    return WO_OK;
}

static inline wo_status ranks_broadcast(void *ctx, void *data, size_t bytes, int root, wo_error *err)
{
    a_rank *r = ctx;
    (void)err;
    publish(r, data);
    if (r->calls.rank != root) memcpy(data, r->all->data[root], bytes);
    pthread_barrier_wait(&r->all->barrier);
    return WO_OK;
}

static inline void *run_rank(void *ctx)
{
    a_rank *r = ctx;
    r->work(&r->calls, r->ctx);
    return NULL;
}

/* work(calls, ctx) on `size` threads, each a rank. Assertions belong behind it: cmocka knows one thread. */
static inline void run_ranks(int size, void (*work)(const wo_collective *calls, void *ctx), void *ctx)
{
    ranks all = {.size = size};
    a_rank each[MOST_RANKS];
    assert_int_equal(pthread_barrier_init(&all.barrier, NULL, (unsigned)size), 0);
    for (int r = 0; r < size; r++) {
        each[r] = (a_rank){.calls = {.struct_size = sizeof(wo_collective),
                                     .rank = r,
                                     .size = size,
                                     .broadcast = ranks_broadcast,
                                     .gather = ranks_gather},
                           .all = &all,
                           .work = work,
                           .ctx = ctx};
        each[r].calls.ctx = &each[r];
    }
    for (int r = 0; r < size; r++) assert_int_equal(pthread_create(&each[r].thread, NULL, run_rank, &each[r]), 0);
    for (int r = 0; r < size; r++) pthread_join(each[r].thread, NULL);
    pthread_barrier_destroy(&all.barrier);
}

#endif
