/* Counting what is in a file of the extreme-classification format, for 'info' and 'data xc'. */
#ifndef WOI_CLI_XC_SUMMARY_H
#define WOI_CLI_XC_SUMMARY_H

#include "cli.h"
#include "store/store.h"
#include "text/xc.h"

#include <jansson.h>

#define XC_BINS 33

typedef struct xc_summary {
    woi_xc_shape shape;
    uint64_t n_label_uses, n_values;          /* in all rows */
    uint64_t rows_without_labels, empty_rows; /* empty: without features */
    uint64_t most_labels, most_features;      /* in one row */
    uint64_t labels_used;                     /* distinct */
    uint64_t histogram[XC_BINS];              /* labels used 0 times, 1, 2-3, 4-7, ... */
    uint64_t top_label, top_uses;             /* the most frequent one */
    uint64_t text_bytes;
    double seconds;
} xc_summary;

/* Reads the whole file, checking everything. In a matrix file columns are counted as labels are. */
wo_status xc_summarise(const char *path, const woi_xc_options *options, const wo_progress *progress,
                       xc_summary *summary, wo_error *err);

/* The same of a reader that is at the start of its file, and is afterwards at the end of it. */
wo_status xc_summarise_reader(woi_xc *reader, const wo_progress *progress, xc_summary *summary, wo_error *err);

void xc_print_summary(const char *path, const xc_summary *summary);
json_t *xc_summary_json(const xc_summary *summary);

#endif
