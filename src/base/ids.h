/* Lists of ids, sorted by themselves or by counts. */
#ifndef WOI_BASE_IDS_H
#define WOI_BASE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline int woi_by_id(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Ascending, in place. `ids` may be NULL for n = 0. */
static inline void woi_ids_sort(int32_t *ids, size_t n)
{
    if (n > 1) qsort(ids, n, sizeof *ids, woi_by_id);
}

/* The place of `id` among ascending ids, or NULL. */
static inline const int32_t *woi_ids_find(const int32_t *ids, size_t n, int32_t id)
{
    return n ? bsearch(&id, ids, n, sizeof *ids, woi_by_id) : NULL;
}

/* Ids with how often each was seen: the most frequent first, of equal ones the lower id. */
typedef struct woi_counted {
    double count;
    int32_t id;
} woi_counted;

static inline int woi_by_count(const void *a, const void *b)
{
    const woi_counted *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

#endif
