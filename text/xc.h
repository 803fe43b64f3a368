/* The extreme-classification text format, plain or gzip: see docs/FORMAT.md. */
#ifndef WOI_TEXT_XC_H
#define WOI_TEXT_XC_H

#include "store/store.h"

/* Which ids count from 1 in the file. They come out counting from 0. */
typedef enum woi_xc_base { WOI_XC_ZERO_BASED, WOI_XC_ONE_BASED, WOI_XC_ONE_BASED_FEATURES } woi_xc_base;

typedef struct woi_xc_options {
    bool lenient; /* accept the dialects: see docs/FORMAT.md */
    woi_xc_base base;
} woi_xc_options;

typedef struct woi_xc_shape {
    bool matrix;         /* a file of the two-file form ("rows cols"): rows have features and values only */
    bool has_header;     /* lenient files may lack it; the counts below are then what has been seen so far */
    uint64_t n;          /* rows */
    uint64_t n_features; /* or columns of a matrix */
    uint64_t n_labels;
} woi_xc_shape;

/* One row, valid until the next call. Ids rise strictly. */
typedef struct woi_xc_row {
    size_t n_labels, n_features;
    const int32_t *labels;
    const int32_t *features;
    const float *values; /* finite */
} woi_xc_row;

/* A streaming reader: memory for one row, whatever the size of the file. */
typedef struct woi_xc woi_xc;
wo_status woi_xc_open(const char *path, const woi_xc_options *options, woi_xc **xc, wo_error *err);
/* The same of an open text (text/text.h), which may be a pipe: no more is read than the first line takes. The text
 * belongs to the reader from then on, also when this fails. */
struct woi_text;
wo_status woi_xc_open_text(struct woi_text *text, const woi_xc_options *options, woi_xc **xc, wo_error *err);
/* From the start again, for a second pass over a file that was read to its end: the same file, also where another has
 * taken its name. One that says other things than before has changed meanwhile, which is WO_ERR_FORMAT: its shape,
 * here; the number of its rows, and ids beyond those of the first pass, in woi_xc_next. The shape is the first pass's
 * at once. */
wo_status woi_xc_rewind(woi_xc *xc, wo_error *err);
/* The next row; *more is false, and row empty, after the last. */
wo_status woi_xc_next(woi_xc *xc, woi_xc_row *row, bool *more, wo_error *err);
const woi_xc_shape *woi_xc_get_shape(const woi_xc *xc);
uint64_t woi_xc_text_bytes(const woi_xc *xc);                            /* of text read so far, unpacked */
void woi_xc_position(const woi_xc *xc, uint64_t *done, uint64_t *total); /* in bytes of the file, for progress */
void woi_xc_free(woi_xc *xc);

/* A whole file as two sparse matrices in CSR form. */
typedef struct woi_xc_data {
    uint64_t n, n_features, n_labels;
    int64_t *label_indptr, *feature_indptr; /* n + 1 */
    int32_t *labels, *features;
    float *values;
} woi_xc_data;

wo_status woi_xc_load(const char *path, const woi_xc_options *options, const wo_progress *progress, woi_xc_data *data,
                      wo_error *err);
void woi_xc_data_free(woi_xc_data *data);

/* Canonical text of rows: strict, zero-based; values in the fewest digits that read back to the same float. */
wo_status woi_xc_write_header(woi_outfile *out, const uint64_t *counts, int n_counts, wo_error *err);
wo_status woi_xc_write_row(woi_outfile *out, const woi_xc_row *row, wo_error *err); /* one-file form */
wo_status woi_xc_write_features(woi_outfile *out, const woi_xc_row *row, wo_error *err);
wo_status woi_xc_write_labels(woi_outfile *out, const woi_xc_row *row, wo_error *err);

/* A number as the format writes values: [sign] digits [. digits] [e exponent]. Returns the end of it, or NULL where
 * there is none or it is no finite float. Within 1 ulp of strtof, in any locale. The text must end in some character
 * that is no part of a number. */
const char *woi_xc_parse_value(const char *text, float *value);

#endif
