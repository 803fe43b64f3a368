/* Choosing the mixture: see search/mixture.h. */
#ifndef WOI_BUILD_MIXTURE_LEARN_H
#define WOI_BUILD_MIXTURE_LEARN_H

#include "search/mixture.h"

/* The mix that makes the labels of some queries most likely, to four digits; 0 where it does not help. */
typedef struct woi_mixture_call {
    const wo_log *log;   /* with labels; the index was not filled by the queries that are picked */
    const size_t *picks; /* (n) of them, or NULL: the first n */
    size_t n;
    int threads;
    const wo_progress *progress; /* NULL: nobody asks */
} woi_mixture_call;
/* The index can be searched, and its cells have shares. */
wo_status woi_mixture_choose(const wo_index *index, const woi_mixture_call *call, double *mix, wo_error *err);

#endif
