/* A warning of queries that are not finite: see not_finite.h. */
#include "not_finite.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Below, no layer that anybody has makes a score that is not finite; what is beyond is asked. */
static const float LARGE = 1e15f;
enum { MOST_ASKED = 10000 };

/* Whether the index has no answer to a query; false where it cannot be asked. */
static bool has_no_answer(wo_searcher *searcher, const float *q)
{
    int32_t id = 0;
    float score = 0;
    wo_query_stats stats = {0};
    const wo_search_call call = {
        .struct_size = sizeof call, .queries = q, .n = 1, .k = 1, .ids = &id, .scores = &score, .stats = &stats};
    return !wo_search_run(searcher, &call, NULL) && stats.status;
}

void cli_not_finite_warn(const char *path, const wo_log *log, const wo_index *index)
{
    if (!log || wo_log_d(log) != wo_index_d(index)) return;
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = 1};
    const size_t n = wo_log_n(log), d = wo_log_d(log);
    uint64_t found = 0, asked = 0;
    wo_searcher *searcher = NULL;
    for (size_t i = 0; i < n; i++) {
        const float *q = wo_log_queries(log) + i * d;
        bool finite = true, large = false;
        for (size_t j = 0; j < d; j++) {
            finite &= isfinite(q[j]) != 0;
            large |= fabsf(q[j]) > LARGE;
        }
        if (finite && large && asked++ < MOST_ASKED && (searcher || !wo_searcher_create(index, &so, &searcher, NULL)))
            finite = !has_no_answer(searcher, q);
        found += !finite;
    }
    wo_searcher_free(searcher);
    if (!found) return;
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fprintf(stderr, ": %s of %s with numbers or scores that are not finite: no index answers %s\n", cli_number(found),
            cli_count(n, "query"), found == 1 ? "it" : "them");
}
