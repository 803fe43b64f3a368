/* Writing the extreme-classification format: canonical, so that strict reading accepts it and rewriting it changes
 * nothing. */
#include "store/store.h"
#include "text/xc_value.h"

#include <inttypes.h>
#include <stdio.h>

wo_status woi_xc_write_header(woi_outfile *out, const uint64_t *counts, int n_counts, wo_error *err)
{
    wo_status status = WO_OK;
    for (int i = 0; !status && i < n_counts; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%" PRIu64 "%c", counts[i], i + 1 < n_counts ? ' ' : '\n');
        status = woi_outfile_write(out, text, (size_t)n, err);
    }
    return status;
}

/* "12:0.5 13:1", without a line end. */
static wo_status write_pairs(woi_outfile *out, const int32_t *ids, const float *values, size_t n, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < n; i++) {
        char text[16 + WOI_XC_VALUE_BYTES];
        size_t used = (size_t)snprintf(text, 16, i ? " %" PRId32 ":" : "%" PRId32 ":", ids[i]);
        used += woi_xc_format_value(values ? values[i] : 1, text + used);
        status = woi_outfile_write(out, text, used, err);
    }
    return status;
}

wo_status woi_xc_write_row(woi_outfile *out, const woi_xc_row *row, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < row->n_labels; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, i ? ",%" PRId32 : "%" PRId32, row->labels[i]);
        status = woi_outfile_write(out, text, (size_t)n, err);
    }
    if (!status) status = woi_outfile_write(out, " ", 1, err);
    return status ? status : woi_xc_write_features(out, row, err);
}

wo_status woi_xc_write_features(woi_outfile *out, const woi_xc_row *row, wo_error *err)
{
    wo_status status = write_pairs(out, row->features, row->values, row->n_features, err);
    return status ? status : woi_outfile_write(out, "\n", 1, err);
}

wo_status woi_xc_write_labels(woi_outfile *out, const woi_xc_row *row, wo_error *err)
{
    wo_status status = write_pairs(out, row->labels, NULL, row->n_labels, err);
    return status ? status : woi_outfile_write(out, "\n", 1, err);
}
