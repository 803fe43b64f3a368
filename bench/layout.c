/* What the order and the pages of the rows are worth: layout NET TRAIN.LOG TEST.LOG [INDEX]
 *
 * Builds one evidence index three times: with the layer's rows as they are; with those that FULL answers most often
 * side by side; and with these in huge pages. INDEX is timed as it is. On one thread, in batches of 1,024 and one by
 * one, rounds in turn, in CPU time, which other processes disturb less; the least of all rounds is printed. */
#include "base/clock.h"
#include "store/store.h"
#include "wideout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROUNDS = 30, BATCH = 1024, K = 5, MOST_QUERIES = 8192, HUGE_PAGE = 2 << 20, WAYS = 4 };

typedef struct way {
    const char *name;
    wo_layer *layer;
    wo_index *index;
    wo_searcher *searcher;
    double us[2]; /* in batches, one by one */
} way;

static void check(wo_status status, const wo_error *err)
{
    if (!status) return;
    fprintf(stderr, "layout: %s\n", err->text);
    exit(1);
}

static void *pages(size_t bytes, int huge)
{
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, bytes);
    if (!memory) exit(1);
    madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return memory;
}

static const int64_t *counts; /* of rising */

static int rising(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return counts[x] != counts[y] ? (counts[x] < counts[y] ? 1 : -1) : x - y;
}

/* Classes by how often FULL gives them as the best of a sample of the log. */
static int32_t *by_frequency(const wo_layer *layer, const wo_log *log)
{
    wo_error err;
    wo_build_options o;
    wo_index *full;
    wo_searcher *searcher;
    const size_t m = wo_layer_m(layer), n = wo_log_n(log) < 20000 ? wo_log_n(log) : 20000;
    int32_t *order = malloc(m * sizeof *order), *ids = malloc(n * K * sizeof *ids);
    int64_t *often = calloc(m, sizeof *often);
    float *scores = malloc(n * K * sizeof *scores);
    if (!order || !ids || !often || !scores) exit(1);
    wo_build_defaults(WO_METHOD_FULL, &o, sizeof o);
    check(wo_index_build(layer, NULL, &o, &full, &err), &err);
    const wo_searcher_options all = {.struct_size = sizeof all}; /* cores */
    check(wo_searcher_create(full, &all, &searcher, &err), &err);
    check(wo_search(searcher, wo_log_queries(log), n, K, ids, scores, &err), &err);
    for (size_t i = 0; i < n * K; i++) often[ids[i]]++;
    for (size_t i = 0; i < m; i++) order[i] = (int32_t)i;
    counts = often;
    qsort(order, m, sizeof *order, rising);
    wo_searcher_free(searcher);
    wo_index_free(full);
    free(ids);
    free(often);
    free(scores);
    return order;
}

static wo_layer *reorder(const float *w, const float *b, size_t m, size_t d, const int32_t *order, int huge)
{
    wo_error err;
    wo_layer *layer;
    float *rows = pages(m * d * sizeof *rows, huge), *biases = b ? pages(m * sizeof *biases, huge) : NULL;
    for (size_t i = 0; i < m; i++) {
        memcpy(rows + i * d, w + (size_t)order[i] * d, d * sizeof *rows);
        if (b) biases[i] = b[order[i]];
    }
    check(wo_layer_wrap(rows, biases, m, d, &layer, &err), &err);
    return layer;
}

static void time_way(way *w, const float *queries, size_t n, size_t d)
{
    static int32_t ids[BATCH * K];
    static float scores[BATCH * K];
    wo_error err;
    for (int single = 0; single < 2; single++) {
        const size_t batch = single ? 1 : BATCH;
        const double start = woi_cpu_s();
        for (size_t i = 0; i + batch <= n; i += batch)
            check(wo_search(w->searcher, queries + i * d, batch, K, ids, scores, &err), &err);
        const double us = 1e6 * (woi_cpu_s() - start) / (double)n;
        if (w->us[single] == 0 || us < w->us[single]) w->us[single] = us;
    }
}

static const float *tensor(const woi_st *st, const char *name, size_t *rows, size_t *columns)
{
    const woi_tensor *t = woi_st_find(st, name);
    if (!t || t->dtype != WOI_F32) {
        fprintf(stderr, "layout: the network has no '%s' in F32\n", name);
        exit(1);
    }
    *rows = t->shape[0];
    if (columns) *columns = t->shape[1];
    return (const float *)t->data;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: layout NET TRAIN.LOG TEST.LOG [INDEX]\n");
        return 2;
    }
    wo_error err;
    woi_st *st;
    wo_layer *plain;
    wo_log *train, *test;
    size_t m, d;
    check(woi_st_open(argv[1], &st, &err), &err);
    const float *w = tensor(st, "output.weight", &m, &d), *b = tensor(st, "output.bias", &m, NULL);
    check(wo_layer_wrap(w, b, m, d, &plain, &err), &err);
    check(wo_log_open(argv[2], &train, &err), &err);
    check(wo_log_open(argv[3], &test, &err), &err);
    int32_t *order = by_frequency(plain, train);
    way ways[WAYS] = {{.name = "rows in the layer's order", .layer = plain},
                      {.name = "frequent rows side by side", .layer = reorder(w, b, m, d, order, 0)},
                      {.name = "the same in huge pages", .layer = reorder(w, b, m, d, order, 1)},
                      {.name = argv[4]}};
    for (int i = 0; i < argc - 1; i++) {
        wo_build_options o;
        wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
        o.source = WO_SOURCE_TOP; /* labels have the old numbers */
        check(i < 3 ? wo_index_build(ways[i].layer, train, &o, &ways[i].index, &err)
                    : wo_index_open(argv[4], NULL, &ways[i].index, &err),
              &err);
        check(wo_searcher_create(ways[i].index, NULL, &ways[i].searcher, &err), &err);
    }
    const size_t n = wo_log_n(test) < MOST_QUERIES ? wo_log_n(test) / BATCH * BATCH : MOST_QUERIES;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < argc - 1; i++) time_way(&ways[i], wo_log_queries(test), n, d);
    printf("%-40s %12s %12s   us/query, one thread\n", "", "batch 1024", "batch 1");
    for (int i = 0; i < argc - 1; i++) printf("%-40s %12.3f %12.3f\n", ways[i].name, ways[i].us[0], ways[i].us[1]);
    return 0;
}
