/* Hits and agreement: how answers are counted, for everyone who counts them.
 *
 *   labels    of row i: labels[indptr[i] .. indptr[i+1]), in any order; one that is given twice counts once
 *   answers   k ids, best first, each once; those below 0 are none */
#ifndef WOI_BASE_HITS_H
#define WOI_BASE_HITS_H

#include "base/ids.h"

#include <string.h>

/* The most labels that one of n rows has; indptr may be NULL: none. */
static inline size_t woi_most_labels(const int64_t *indptr, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; indptr && i < n; i++)
        if (indptr[i + 1] - indptr[i] > most) most = indptr[i + 1] - indptr[i];
    return (size_t)most;
}

/* The distinct labels of row i, ascending, into `distinct`; returns how many. */
static inline size_t woi_labels_of(const int64_t *indptr, const int32_t *labels, size_t i, int32_t *distinct)
{
    const size_t n = (size_t)(indptr[i + 1] - indptr[i]);
    size_t kept = 0;
    if (n) memcpy(distinct, labels + indptr[i], n * sizeof *distinct);
    woi_ids_sort(distinct, n);
    for (size_t j = 0; j < n; j++)
        if (j == 0 || distinct[j] != distinct[kept - 1]) distinct[kept++] = distinct[j];
    return kept;
}

/* How many of k answers are among the labels, which woi_labels_of gave. */
static inline size_t woi_hits(const int32_t *labels, size_t n_labels, const int32_t *answers, size_t k)
{
    size_t hits = 0;
    for (size_t i = 0; i < k; i++) hits += answers[i] >= 0 && woi_ids_find(labels, n_labels, answers[i]) != NULL;
    return hits;
}

/* Of FULL's k answers: how many there are, and how many of them are among our k. */
typedef struct woi_agreement {
    size_t common, all;
} woi_agreement;

static inline woi_agreement woi_agree(const int32_t *answers, const int32_t *full, size_t k, int32_t *scratch /* k */)
{
    woi_agreement a = {0, 0};
    memcpy(scratch, answers, k * sizeof *scratch);
    woi_ids_sort(scratch, k);
    a.common = woi_hits(scratch, k, full, k);
    for (size_t i = 0; i < k; i++) a.all += full[i] >= 0;
    return a;
}

#endif
