/* A whole extreme-classification file in memory, as two CSR matrices. */
#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "store/store.h"
#include "text/xc.h"

#include <string.h>

enum { ROWS_PER_REPORT = 4096 };

/* The arrays grow with what was read: a header's counts are believed only when the rows are there. */
typedef struct growing {
    size_t label_indptr, feature_indptr, labels, features, values; /* capacities */
} growing;

static wo_status append_row(woi_xc_data *data, growing *room, const woi_xc_row *row, wo_error *err)
{
    size_t n = (size_t)data->n, n_labels = (size_t)data->label_indptr[n], n_features = (size_t)data->feature_indptr[n];
    wo_status status;
    if ((status = woi_grow(&data->label_indptr, &room->label_indptr, n + 1, n + 2, sizeof(int64_t), err)) ||
        (status = woi_grow(&data->feature_indptr, &room->feature_indptr, n + 1, n + 2, sizeof(int64_t), err)) ||
        (status = woi_grow(&data->labels, &room->labels, n_labels, n_labels + row->n_labels, sizeof(int32_t), err)) ||
        (status = woi_grow(&data->features, &room->features, n_features, n_features + row->n_features, sizeof(int32_t),
                           err)) ||
        (status = woi_grow(&data->values, &room->values, n_features, n_features + row->n_features, sizeof(float), err)))
        return status;
    if (row->n_labels) memcpy(data->labels + n_labels, row->labels, row->n_labels * sizeof(int32_t));
    if (row->n_features) {
        memcpy(data->features + n_features, row->features, row->n_features * sizeof(int32_t));
        memcpy(data->values + n_features, row->values, row->n_features * sizeof(float));
    }
    data->n = n + 1;
    data->label_indptr[n + 1] = (int64_t)(n_labels + row->n_labels);
    data->feature_indptr[n + 1] = (int64_t)(n_features + row->n_features);
    return WO_OK;
}

wo_status woi_xc_load(const char *path, const woi_xc_options *options, const wo_progress *progress, woi_xc_data *data,
                      wo_error *err)
{
    memset(data, 0, sizeof *data);
    woi_xc *xc = NULL;
    growing room = {1, 1, 0, 0, 0};
    wo_status status = woi_xc_open(path, options, &xc, err);
    if (status) return status;
    status = WO_ERR_MEMORY;
    if (!(data->label_indptr = woi_alloc_zero(1, sizeof(int64_t), err)) ||
        !(data->feature_indptr = woi_alloc_zero(1, sizeof(int64_t), err)))
        goto done;
    for (;;) {
        woi_xc_row row;
        bool more;
        if ((status = woi_xc_next(xc, &row, &more, err)) || !more) break;
        if ((status = append_row(data, &room, &row, err))) break;
        if (data->n % ROWS_PER_REPORT == 0) {
            uint64_t at, total;
            woi_xc_position(xc, &at, &total);
            if ((status = woi_progress(progress, "reading", at, total, err))) break;
        }
    }
    data->n_features = woi_xc_get_shape(xc)->n_features;
    data->n_labels = woi_xc_get_shape(xc)->n_labels;
done:
    woi_xc_free(xc);
    if (status) woi_xc_data_free(data);
    return status;
}

void woi_xc_data_free(woi_xc_data *data)
{
    woi_free(data->label_indptr);
    woi_free(data->feature_indptr);
    woi_free(data->labels);
    woi_free(data->features);
    woi_free(data->values);
    memset(data, 0, sizeof *data);
}
