/* Answers as processes that have a shard of the classes each send them, and how those of all become one. */
#ifndef WOI_BASE_ANSWERS_H
#define WOI_BASE_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Answers to n queries as they are sent: sums, ids, scores. Sums first, that need to be aligned. */
typedef struct woi_answers {
    double *sums;  /* (n, 2), or NULL: none */
    int32_t *ids;  /* (n, k), best first, padded with -1 */
    float *scores; /* (n, k) */
} woi_answers;

size_t woi_answers_bytes(size_t n, size_t k, bool sums);
woi_answers woi_answers_at(void *memory, size_t n, size_t k, bool sums);

/* Answers of all processes become those of `to`, as wo_merge_best does it; ties to the lower id. */
typedef struct woi_merging {
    const woi_answers *all; /* (size) */
    size_t *heads;          /* (size): scratch */
    size_t size, n, k;
} woi_merging;
void woi_answers_merge(const woi_merging *merging, const woi_answers *to);

#endif
