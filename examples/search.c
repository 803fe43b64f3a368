/* A wide layer in memory, an index of it, and searches: one query, a batch, and one with masks.
 *
 *   cc search.c $(pkg-config --cflags --libs wideout) && ./a.out
 *
 * The layer and its queries are made up here. With files it would be wo_layer_open and wo_log_open in place of
 * wo_layer_wrap and wo_log_wrap. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wideout.h>

enum { CLASSES = 2000, FAMILIES = 40, DIMENSIONS = 16, LOGGED = 8000, BATCH = 512, BEST = 5 };

static float weight[CLASSES * DIMENSIONS], bias[CLASSES];
static float logged[LOGGED * DIMENSIONS], fresh[BATCH * DIMENSIONS]; /* to learn from; to search with */
static int64_t indptr[LOGGED + 1];                                   /* where the labels of each query begin */
static int32_t labels[LOGGED];

/* Pseudo-random, -1 to 1: the same on every machine. */
static float noise(void)
{
    static uint32_t state = 1;
    state = state * 1664525U + 1013904223U;
    return (float)(state >> 8) / (float)(1 << 23) - 1;
}

/* Queries near the rows of their labels, some labels far more often than others. */
static void make_queries(float *queries, int32_t *label, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float u = (noise() + 1) / 2;
        const int32_t id = (int32_t)(u * u * u * (CLASSES - 1));
        if (label) label[i] = id;
        for (size_t j = 0; j < DIMENSIONS; j++)
            queries[i * DIMENSIONS + j] = weight[(size_t)id * DIMENSIONS + j] + noise() / 4;
    }
}

static void make_data(void)
{
    for (size_t i = 0; i < FAMILIES * DIMENSIONS; i++) weight[i] = noise();
    for (size_t i = FAMILIES * DIMENSIONS; i < CLASSES * DIMENSIONS; i++) /* later classes resemble earlier ones */
        weight[i] = weight[i % (FAMILIES * DIMENSIONS)] + noise() / 2;
    for (size_t i = 0; i < CLASSES; i++) bias[i] = noise() / 4;
    make_queries(logged, labels, LOGGED);
    make_queries(fresh, NULL, BATCH);
    for (size_t i = 0; i <= LOGGED; i++) indptr[i] = (int64_t)i;
}

static void print_answers(const wo_index *index, const int32_t *ids, const float *scores)
{
    for (size_t i = 0; i < BEST && ids[i] >= 0; i++) { /* -1: there were fewer candidates */
        size_t bytes;
        const char *name = wo_index_label(index, ids[i], &bytes);
        if (name) /* not terminated */
            printf("  %.*s %.3f", (int)bytes, name, (double)scores[i]);
        else
            printf("  class %" PRId32 " %.3f", ids[i], (double)scores[i]);
    }
    printf("\n");
}

/* Learns an index from the layer and the log, and leaves it in a file. */
static wo_status build(const char *path, wo_error *err)
{
    wo_layer *layer = NULL;
    wo_log *log = NULL;
    wo_index *index = NULL;
    wo_build_options options;
    wo_build_defaults(WO_METHOD_EVIDENCE, &options, sizeof options);
    options.K = 6; /* 64 cells in each table, for a small log */
    options.lambda = 0.05;
    options.source_k = BEST;
    options.iterations = 50;
    wo_status status = wo_layer_wrap(weight, bias, CLASSES, DIMENSIONS, &layer, err);
    if (!status) status = wo_log_wrap(logged, LOGGED, DIMENSIONS, indptr, labels, &log, err);
    if (!status) status = wo_index_build(layer, log, &options, &index, err);
    if (!status) status = wo_index_save(index, path, err);
    wo_index_free(index); /* before the layer, whose rows it borrows */
    wo_log_free(log);
    wo_layer_free(layer);
    return status;
}

static wo_status search(const wo_index *index, wo_error *err)
{
    static int32_t ids[BATCH * BEST], exact_ids[BATCH * BEST];
    static float scores[BATCH * BEST];
    static wo_query_stats stats[BATCH];
    wo_searcher *searcher = NULL;

    /* One query. A searcher is one thread's; others may share the index, each with its own. */
    wo_status status = wo_searcher_create(index, NULL, &searcher, err);
    if (!status) status = wo_search(searcher, fresh, 1, BEST, ids, scores, err);
    if (status) goto done;
    printf("one query:");
    print_answers(index, ids, scores);

    /* The same without its best class, with class 7 among the candidates, and with probabilities over them. */
    const int32_t forbidden[] = {ids[0]}, mandatory[] = {7};
    const wo_search_call masked = {.struct_size = sizeof masked,
                                   .queries = fresh,
                                   .n = 1,
                                   .k = BEST,
                                   .ids = ids,
                                   .scores = scores,
                                   .score = WO_SCORES_SOFTMAX,
                                   .forbidden = forbidden,
                                   .n_forbidden = 1,
                                   .mandatory = mandatory,
                                   .n_mandatory = 1};
    if ((status = wo_search_run(searcher, &masked, err))) goto done;
    printf("the same, masked:");
    print_answers(index, ids, scores);

    /* A batch, beside the exact layer. */
    wo_search_call batch = {.struct_size = sizeof batch,
                            .queries = fresh,
                            .n = BATCH,
                            .k = BEST,
                            .ids = ids,
                            .scores = scores,
                            .stats = stats};
    if ((status = wo_search_run(searcher, &batch, err))) goto done;
    batch.by = WO_BY_FULL;
    batch.ids = exact_ids;
    batch.stats = NULL;
    if ((status = wo_search_run(searcher, &batch, err))) goto done;
    size_t same = 0, candidates = 0;
    for (size_t i = 0; i < BATCH; i++) {
        same += ids[i * BEST] == exact_ids[i * BEST];
        candidates += stats[i].candidates;
    }
    printf("a batch of %d: the exact layer's best class for %.1f%%, with %.0f of %d classes a query\n", BATCH,
           100.0 * (double)same / BATCH, (double)candidates / BATCH, CLASSES);
done:
    wo_searcher_free(searcher);
    return status;
}

int main(void)
{
    wo_index *index = NULL;
    wo_index_info info = {.struct_size = sizeof info};
    wo_error err;
    char path[] = "/tmp/wideout-search-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0) {
        perror(path);
        return 1;
    }
    close(file);
    make_data();
    wo_status status = build(path, &err);
    if (!status) status = wo_index_open(path, NULL, &index, &err); /* the file has the layer's rows */
    if (!status) {
        wo_index_describe(index, &info);
        printf("%s: %zu classes, %zu dimensions; %" PRIu64 " cells, %" PRIu64 " classes in them\n", info.method_name,
               info.m, info.d, info.n_cells, info.n_entries);
        status = search(index, &err);
    }
    if (status) fprintf(stderr, "%s: %s\n", wo_status_text(status), err.text);
    wo_index_free(index);
    remove(path);
    return status != WO_OK;
}
