/* Any bytes as extreme-classification text, strict and lenient: refused with a sentence, or rows that keep every
 * promise. */
#include "fuzz.h"

#include "store/store.h"
#include "text/xc.h"

#include <math.h>

static void read_all(const char *path, woi_xc_options options)
{
    woi_xc *xc = NULL;
    wo_error err = {0};
    bool more = true;
    if (woi_xc_open(path, &options, &xc, &err)) {
        if (!err.text[0]) abort();
        return;
    }
    while (more) {
        woi_xc_row row;
        if (woi_xc_next(xc, &row, &more, &err)) {
            if (!err.text[0]) abort();
            break;
        }
        const woi_xc_shape *shape = woi_xc_get_shape(xc);
        for (size_t i = 0; i < row.n_labels; i++)
            if (row.labels[i] < 0 || (uint64_t)row.labels[i] >= shape->n_labels ||
                (i && row.labels[i] <= row.labels[i - 1]))
                abort();
        for (size_t i = 0; i < row.n_features; i++)
            if (row.features[i] < 0 || (uint64_t)row.features[i] >= shape->n_features || !isfinite(row.values[i]) ||
                (i && row.features[i] <= row.features[i - 1]))
                abort();
    }
    woi_xc_free(xc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[32];
    int fd = fuzz_file(data, bytes, path);
    read_all(path, (woi_xc_options){0});
    read_all(path, (woi_xc_options){.lenient = true});
    read_all(path, (woi_xc_options){.lenient = true, .base = WOI_XC_ONE_BASED});
    close(fd);
    return 0;
}
