/* Are the peers set up rightly? First a random layer: each kind, with its dial turned up, must find what brute force
 * finds, give logits as scores, best first, and the same answers for a batch, for single queries and with two threads.
 * Then, where a network and a log are given, a table: recall of FULL's top 5 and time along each peer's dial, with one
 * thread, batch 1024. Shared machines lend and take cores, so CPU time stands beside the clock.
 *
 * Usage: test_peers [NETWORK LOG]. Exit code 1 where a check fails. */
#include "peers.h"
#include "base/clock.h"
#include "store/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 5, N = 1024, ROUNDS = 3, MAX_DIALS = 12 };

typedef struct layer {
    float *w, *b, *q; /* (m, d), (m), (n, d) */
    size_t m, d, n;
    int32_t *ids;  /* (n, K): what brute force finds */
    float *scores; /* (n, K) */
} layer;

static int failures;

static void fail(const char *sentence)
{
    fprintf(stderr, "test_peers: %s\n", sentence);
    exit(1);
}

static void *need(size_t n, size_t each)
{
    void *p = calloc(n, each);
    if (!p) fail("out of memory");
    return p;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- Brute force ------------------------------------------------------------------------------------------- */

static void brute_force(layer *l)
{
    l->ids = need(l->n * K, sizeof *l->ids);
    l->scores = need(l->n * K, sizeof *l->scores);
    float *logits = need(l->m, sizeof *logits);
    for (size_t i = 0; i < l->n; i++) {
        for (size_t c = 0; c < l->m; c++) {
            logits[c] = l->b[c];
            for (size_t j = 0; j < l->d; j++) logits[c] += l->w[c * l->d + j] * l->q[i * l->d + j];
        }
        int32_t *ids = l->ids + i * K;
        float *scores = l->scores + i * K;
        for (int j = 0; j < K; j++) scores[j] = -INFINITY;
        for (size_t c = 0; c < l->m; c++) {
            if (!(logits[c] > scores[K - 1])) continue;
            int at = K - 1;
            for (; at > 0 && logits[c] > scores[at - 1]; at--) {
                scores[at] = scores[at - 1];
                ids[at] = ids[at - 1];
            }
            scores[at] = logits[c];
            ids[at] = (int32_t)c;
        }
    }
    free(logits);
}

/* The share of brute force's first k that are among the k first of ids. */
static double recall(const layer *l, const int32_t *ids, int k)
{
    size_t hits = 0;
    for (size_t i = 0; i < l->n; i++)
        for (int a = 0; a < k; a++)
            for (int b = 0; b < k; b++) hits += ids[i * K + a] == l->ids[i * K + b];
    return (double)hits / (double)(l->n * (size_t)k);
}

static void release(layer *l)
{
    free(l->w);
    free(l->b);
    free(l->q);
    free(l->ids);
    free(l->scores);
}

/* ---- Checks ------------------------------------------------------------------------------------------------ */

static void check(const char *name, const char *what, double value, int fine)
{
    printf("  %-14s %-44s %10.6g  %s\n", name, what, value, fine ? "ok" : "FAILED");
    failures += !fine;
}

static void search(peer *p, const peer_batch *batch)
{
    char error[PEER_ERROR_BYTES];
    if (peer_search(p, batch, error)) fail(error);
}

static peer_layer layer_of(const layer *l)
{
    return (peer_layer){.w = l->w, .b = l->b, .m = l->m, .d = l->d};
}

static double logit(const layer *l, size_t query, int32_t id)
{
    double sum = l->b[id];
    for (size_t j = 0; j < l->d; j++) sum += (double)l->q[query * l->d + j] * l->w[(size_t)id * l->d + j];
    return sum;
}

static void check_kind(peer_kind kind, const peer_options *options, const char *name, const layer *l)
{
    char error[PEER_ERROR_BYTES];
    peer *p = NULL;
    if (peer_missing(kind)) {
        printf("  %-14s %s\n", name, peer_missing(kind));
        return;
    }
    const peer_layer built = layer_of(l);
    if (peer_build(kind, &built, options, &p, error)) fail(error);
    const size_t n_ids = l->n * K;
    int32_t *ids = need(n_ids, sizeof *ids), *again = need(n_ids, sizeof *again);
    float *scores = need(n_ids, sizeof *scores), *scores_again = need(n_ids, sizeof *scores_again);
    /* Every list, every row re-ranked; a graph's list as long as the layer. */
    const unsigned dial = (unsigned)l->m;
    double scored, worst = 0;
    int sorted = 1, found = 1;
    peer_batch batch = {.q = l->q, .n = l->n, .k = K, .dial = dial, .threads = 1, .ids = ids, .scores = scores};
    batch.scored = &scored;
    search(p, &batch);
    for (size_t i = 0; i < n_ids; i++) {
        found &= ids[i] >= 0;
        if (ids[i] >= 0) worst = fmax(worst, fabs(scores[i] - logit(l, i / K, ids[i])));
        sorted &= i % K == 0 || scores[i] <= scores[i - 1];
    }
    check(name, "recall with the dial turned up", recall(l, ids, K), recall(l, ids, K) >= 0.999);
    check(name, "every answer there", found, found);
    check(name, "scores are logits, furthest off", worst, worst < 1e-3);
    check(name, "best first", sorted, sorted);
    check(name, "rows scored", scored, scored > 0 && scored <= (double)l->m + 200); /* upper levels are scored again */

    batch.dial = kind == PEER_PQ || kind == PEER_SQ8 ? 0 : 16;
    search(p, &batch);
    batch.threads = 2;
    batch.ids = again;
    batch.scores = scores_again;
    batch.scored = NULL;
    search(p, &batch);
    check(name, "two threads, not counted: the same", scored, !memcmp(ids, again, n_ids * sizeof *ids));
    batch.n = 1;
    for (size_t i = 0; i < l->n; i++) {
        batch.q = l->q + i * l->d;
        batch.ids = again + i * K;
        batch.scores = scores_again + i * K;
        search(p, &batch);
    }
    check(name, "one by one: share of the same", recall(l, again, K),
          fabs(recall(l, again, K) - recall(l, ids, K)) < 1e-3); /* Faiss adds up in another order */
    peer_free(p);
    free(ids);
    free(again);
    free(scores);
    free(scores_again);
}

static void check_random(void)
{
    layer l = {.m = 3000, .d = 37, .n = 200};
    uint64_t state = 1;
    float *all[] = {l.w = need(l.m * l.d, sizeof(float)), l.b = need(l.m, sizeof(float)),
                    l.q = need(l.n * l.d, sizeof(float))};
    const size_t sizes[] = {l.m * l.d, l.m, l.n * l.d};
    for (int a = 0; a < 3; a++)
        for (size_t i = 0; i < sizes[a]; i++) {
            float sum = 0; /* twelve uniform numbers make a normal one */
            for (int t = 0; t < 12; t++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                sum += (float)(state >> 40) / (1 << 24);
            }
            all[a][i] = sum - 6;
        }
    brute_force(&l);
    printf("random, m = %zu, d = %zu, n = %zu\n", l.m, l.d, l.n);
    for (int kind = 0; kind < PEER_N_KINDS; kind++) check_kind((peer_kind)kind, NULL, peer_name((peer_kind)kind), &l);
    peer_options other;
    peer_defaults(PEER_PQ, l.m, l.d, &other);
    other.l2 = 1;
    check_kind(PEER_PQ, &other, "PQ, L2", &l);
    other.l2 = 0;
    check_kind(PEER_IVF, &other, "IVF, ip", &l);

    peer *p = NULL;
    char error[PEER_ERROR_BYTES] = "";
    peer_options none;
    peer_defaults(PEER_IVF, l.m, l.d, &none);
    none.n_lists = 0;
    const peer_layer built = layer_of(&l);
    const int refused = peer_build(PEER_IVF, &built, &none, &p, error);
    check("IVF", "no lists: refused with a sentence", refused, refused && !p && *error);
    release(&l);
}

/* ---- The table --------------------------------------------------------------------------------------------- */

static const struct row {
    peer_kind kind;
    const char *setting;
    size_t links, ef_construction, list_factor,
        part; /* 0: the default; n_lists = factor * sqrt(m); pq_parts = d / part */
    int l2;
    unsigned dials[MAX_DIALS]; /* up to the first 0 behind the first */
} rows[] = {
#define EF                             \
    {                                  \
        10, 20, 50, 100, 200, 400, 800 \
    }
#define PROBES                           \
    {                                    \
        1, 2, 4, 8, 16, 32, 64, 128, 256 \
    }
#define RERANK                  \
    {                           \
        0, 10, 20, 50, 100, 200 \
    }
    {PEER_IP_NSW, "M 16, ef_c 200", 16, 200, 0, 0, 0, EF},
    {PEER_IP_NSW, "M 32, ef_c 400", 32, 400, 0, 0, 0, EF},
    {PEER_GRAPH_DECODER, "M 16, ef_c 200", 16, 200, 0, 0, 0, EF},
    {PEER_GRAPH_DECODER, "M 32, ef_c 400", 32, 400, 0, 0, 0, EF},
    {PEER_IVF, "4 sqrt(m) lists, ip", 0, 0, 4, 0, 0, PROBES},
    {PEER_IVF, "16 sqrt(m) lists, ip", 0, 0, 16, 0, 0, PROBES},
    {PEER_IVF, "4 sqrt(m) lists, L2", 0, 0, 4, 0, 1, PROBES},
    {PEER_IVF, "16 sqrt(m) lists, L2", 0, 0, 16, 0, 1, PROBES},
    {PEER_PQ, "d/8, ip", 0, 0, 0, 8, 0, RERANK},
    {PEER_PQ, "d/4, ip", 0, 0, 0, 4, 0, RERANK},
    {PEER_PQ, "d/4, L2", 0, 0, 0, 4, 1, RERANK},
    {PEER_SQ8, "", 0, 0, 0, 0, 0, {0, 10}},
};

static void time_dial(peer *p, const layer *l, unsigned dial)
{
    int32_t *ids = need(l->n * K, sizeof *ids);
    float *scores = need(l->n * K, sizeof *scores);
    double scored, wall[ROUNDS], cpu[ROUNDS];
    peer_batch batch = {.q = l->q, .n = l->n, .k = K, .dial = dial, .threads = 1, .ids = ids, .scores = scores};
    batch.scored = &scored;
    search(p, &batch);
    batch.scored = NULL;
    for (int r = 0; r < ROUNDS; r++) {
        const double wall_0 = woi_now_s(), cpu_0 = woi_cpu_s();
        search(p, &batch);
        wall[r] = 1e6 * (woi_now_s() - wall_0) / (double)l->n;
        cpu[r] = 1e6 * (woi_cpu_s() - cpu_0) / (double)l->n;
    }
    qsort(wall, ROUNDS, sizeof *wall, by_size);
    qsort(cpu, ROUNDS, sizeof *cpu, by_size);
    printf("    dial %4u  recall@1 %.4f  @5 %.4f  scored %8.1f  us/query %9.2f  CPU %9.2f\n", dial, recall(l, ids, 1),
           recall(l, ids, K), scored, wall[ROUNDS / 2], cpu[ROUNDS / 2]);
    fflush(stdout);
    free(ids);
    free(scores);
}

static void table_row(const struct row *row, const layer *l)
{
    if (peer_missing(row->kind)) {
        printf("  %s: %s\n", peer_name(row->kind), peer_missing(row->kind));
        return;
    }
    peer_options options;
    peer_defaults(row->kind, l->m, l->d, &options);
    if (row->links) options.links = row->links;
    if (row->ef_construction) options.ef_construction = row->ef_construction;
    if (row->list_factor) options.n_lists = (size_t)((double)row->list_factor * sqrt((double)l->m));
    if (options.n_lists > l->m) options.n_lists = l->m;
    if (row->part) options.pq_parts = (l->d + row->part - 1) / row->part;
    options.l2 = row->l2;
    options.threads = 2;
    peer *p = NULL;
    char error[PEER_ERROR_BYTES];
    const double wall = woi_now_s(), cpu = woi_cpu_s();
    const peer_layer built = layer_of(l);
    if (peer_build(row->kind, &built, &options, &p, error)) fail(error);
    printf("  %s, %s: built in %.1f s (2 threads), CPU %.1f s, %.1f MB\n", peer_name(row->kind), row->setting,
           woi_now_s() - wall, woi_cpu_s() - cpu, 1e-6 * (double)peer_bytes(p));
    for (int i = 0; i < MAX_DIALS && (i == 0 || row->dials[i]); i++) time_dial(p, l, row->dials[i]);
    peer_free(p);
}

static float *read_tensor(const woi_st *st, const char *name, size_t n)
{
    const woi_tensor *t = woi_st_find(st, name);
    wo_error err;
    if (!t || (n && t->n < n)) fail("a tensor is missing or too short: the network needs output.*, the log queries");
    if (!n) n = t->n;
    float *values = need(n, sizeof *values);
    if (woi_convert_f32(t->dtype, t->data, n, values, &err)) fail(err.text);
    return values;
}

static void table(const char *network, const char *log)
{
    woi_st *net = NULL, *queries = NULL;
    wo_error err;
    if (woi_st_open(network, &net, &err) || woi_st_open(log, &queries, &err)) fail(err.text);
    const woi_tensor *w = woi_st_find(net, "output.weight"), *q = woi_st_find(queries, "queries");
    if (!w || !q || w->n_dims != 2 || q->n_dims != 2 || w->shape[1] != q->shape[1])
        fail("the network has no output.weight (m, d), or the log no queries (n, d)");
    layer l = {.m = w->shape[0], .d = w->shape[1], .n = q->shape[0] < N ? q->shape[0] : N};
    l.w = read_tensor(net, "output.weight", 0);
    l.b = read_tensor(net, "output.bias", l.m);
    l.q = read_tensor(queries, "queries", l.n * l.d);
    const double cpu = woi_cpu_s();
    brute_force(&l);
    printf("%s, m = %zu, d = %zu, n = %zu; sgemv and top 5: CPU %.0f us/query\n", network, l.m, l.d, l.n,
           1e6 * (woi_cpu_s() - cpu) / (double)l.n);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) table_row(&rows[i], &l);
    release(&l);
    woi_st_free(net);
    woi_st_free(queries);
}

int main(int argc, char **argv)
{
    if (argc != 1 && argc != 3) {
        fprintf(stderr, "usage: %s [NETWORK LOG]\n", argv[0]);
        return 2;
    }
    printf("%s\n%s\n", peer_version(PEER_IP_NSW), peer_version(PEER_PQ));
    check_random();
    if (argc == 3) table(argv[1], argv[2]);
    printf("%d checks failed\n", failures);
    return failures != 0;
}
