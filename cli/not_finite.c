/* A warning of queries that are not finite: see not_finite.h. */
#include "not_finite.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Below, no layer that anybody has makes a score that is not finite; what is beyond is asked. Of a layer that has such
 * numbers itself some queries tell, and then all are asked. */
static const float LARGE = 1e15f;
enum { MOST_ASKED = 10000, BATCH = 64 };

/* Queries that are to be asked, and what they have told. */
typedef struct asking {
    wo_searcher *searcher;
    float *q; /* (BATCH, d) */
    size_t d, n;
    uint64_t asked, unanswered;
} asking;

static void ask(asking *a)
{
    int32_t ids[BATCH];
    float scores[BATCH];
    wo_query_stats stats[BATCH] = {0};
    const wo_search_call call = {
        .struct_size = sizeof call, .queries = a->q, .n = a->n, .k = 1, .ids = ids, .scores = scores, .stats = stats};
    if (a->n && a->searcher && !wo_search_run(a->searcher, &call, NULL))
        for (size_t i = 0; i < a->n; i++) a->unanswered += stats[i].status != 0;
    a->asked += a->n;
    a->n = 0;
}

static void add(asking *a, const float *q)
{
    memcpy(a->q + a->n++ * a->d, q, a->d * sizeof *q);
    if (a->n == BATCH) ask(a);
}

static bool is_finite(const float *q, size_t d, bool *large)
{
    bool finite = true;
    *large = false;
    for (size_t j = 0; j < d; j++) {
        finite &= isfinite(q[j]) != 0;
        *large |= fabsf(q[j]) > LARGE;
    }
    return finite;
}

/* Whether one of some queries, evenly spread, has no answer. */
static bool has_large_rows(asking *a, const wo_log *log)
{
    const size_t n = wo_log_n(log), some = n < BATCH ? n : BATCH;
    bool large;
    for (size_t i = 0; i < some; i++) {
        const float *q = wo_log_queries(log) + i * n / some * a->d;
        if (is_finite(q, a->d, &large)) add(a, q);
    }
    ask(a);
    const bool found = a->unanswered > 0;
    a->asked = a->unanswered = 0;
    return found;
}

static uint64_t count(asking *a, const wo_log *log)
{
    uint64_t found = 0;
    const bool all = has_large_rows(a, log);
    for (size_t i = 0; i < wo_log_n(log); i++) {
        const float *q = wo_log_queries(log) + i * a->d;
        bool large;
        if (!is_finite(q, a->d, &large))
            found++;
        else if ((large || all) && a->asked + a->n < MOST_ASKED)
            add(a, q);
    }
    ask(a);
    return found + a->unanswered;
}

void cli_not_finite_warn(const char *path, const wo_log *log, const wo_index *index)
{
    if (!log || wo_log_d(log) != wo_index_d(index)) return;
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = 1};
    asking a = {.d = wo_log_d(log)};
    a.q = malloc(BATCH * a.d * sizeof *a.q);
    if (wo_searcher_create(index, &so, &a.searcher, NULL)) a.searcher = NULL; /* numbers are looked at all the same */
    const uint64_t found = a.q ? count(&a, log) : 0;
    wo_searcher_free(a.searcher);
    free(a.q);
    if (!found) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fprintf(stderr, ": %s%s of %s with numbers or scores that are not finite: no index answers %s\n",
            a.asked == MOST_ASKED ? "at least " : "", cli_number(found), cli_count(wo_log_n(log), "query"),
            found == 1 ? "it" : "them");
}
