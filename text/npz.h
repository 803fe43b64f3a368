/* Labels in NumPy's archives (.npz): a zip of .npy files, stored or deflated.
 *
 *   scipy.sparse.save_npz   format, shape, indptr, indices, data: a CSR matrix with a row for each query. The labels of
 *                           query i are the columns of row i that are not zero
 *   numpy.savez             one array of integers: (n), a label each, or (n, l), up to l each; -1 and -100 stand for
 * none
 *
 * Archives up to 4 GiB, without encryption. What is unpacked is compared with its checksum. */
#ifndef WOI_TEXT_NPZ_H
#define WOI_TEXT_NPZ_H

#include "wideout.h"

#include <stdbool.h>

/* The labels of query i are labels[indptr[i] .. indptr[i+1]). A zeroed one is empty. */
typedef struct woi_label_lists {
    size_t n;        /* queries */
    int64_t *indptr; /* (n + 1) */
    int32_t *labels;
} woi_label_lists;

/* Whether a file begins as a zip archive. False too where it cannot be read. */
bool woi_npz_look(const char *path);
wo_status woi_npz_labels(const char *path, woi_label_lists *lists, wo_error *err);
void woi_label_lists_free(woi_label_lists *lists);

#endif
