/* Answers of several processes become one: see answers.h. */
#include "base/answers.h"

#include <math.h>
#include <string.h>

size_t woi_answers_bytes(size_t n, size_t k, bool sums)
{
    return n * (k * (sizeof(int32_t) + sizeof(float)) + (sums ? 2 * sizeof(double) : 0));
}

woi_answers woi_answers_at(void *memory, size_t n, size_t k, bool sums)
{
    void *ids = (char *)memory + (sums ? 2 * n * sizeof(double) : 0), *scores = (char *)ids + n * k * sizeof(int32_t);
    return (woi_answers){sums ? memory : NULL, ids, scores};
}

/* exp(to) + exp(more), both in two parts. */
static void add_sum(double *to, const double *more)
{
    if (isnan(to[0]) || more[0] == -INFINITY) return;
    if (isnan(more[0]) || to[0] == -INFINITY) {
        memcpy(to, more, 2 * sizeof *to);
        return;
    }
    const double most = to[0] > more[0] ? to[0] : more[0];
    to[1] = log(exp(to[0] - most + to[1]) + exp(more[0] - most + more[1]));
    to[0] = most;
}

/* Each rank's answers are in order: the best of their heads is next. */
static void merge_query(const woi_merging *m, size_t i, const woi_answers *to)
{
    const size_t k = m->k;
    size_t j = i * k;
    for (size_t r = 0; r < m->size; r++) m->heads[r] = j;
    for (; j < (i + 1) * k; j++) {
        float score = -INFINITY;
        int32_t id = -1;
        size_t from = 0;
        for (size_t r = 0; r < m->size; r++) {
            const size_t at = m->heads[r];
            if (at == (i + 1) * k || m->all[r].ids[at] < 0) continue;
            const float other = m->all[r].scores[at];
            const int32_t other_id = m->all[r].ids[at];
            if (id >= 0 && (other < score || (other == score && other_id > id))) continue;
            score = other;
            id = other_id;
            from = r;
        }
        m->heads[from] += id >= 0;
        to->ids[j] = id;
        to->scores[j] = score;
    }
    for (size_t r = 0; to->sums && r < m->size; r++) {
        if (r == 0) memcpy(to->sums + 2 * i, m->all[r].sums + 2 * i, 2 * sizeof(double));
        if (r > 0) add_sum(to->sums + 2 * i, m->all[r].sums + 2 * i);
    }
}

void woi_answers_merge(const woi_merging *m, const woi_answers *to)
{
    for (size_t i = 0; i < m->n; i++) merge_query(m, i, to);
}
