/* Logs: the queries that a network sent to its wide layer, and their labels. In a file, in the caller's arrays, and
 * written a piece at a time.
 *
 * A file is safetensors with `queries` (n, d) in F32, F16 or BF16 and, unless the log has no labels, `labels.indptr` (n
 * + 1) I64 and `labels.indices` in I32 or I64: the labels of query i are indices[indptr[i] .. indptr[i+1]). Written by
 * us, or by anyone with these names. Others also write F64, one tensor `labels` (n) or (n, l), or .npy arrays.
 *
 * A log may be counted: `queries.counts` (n) says how many queries a row stands for, and `labels.counts`, beside
 * labels.indices, how many of these had the label. Both are I32 or I64, from 1 on. */
#ifndef WOI_STORE_LOG_H
#define WOI_STORE_LOG_H

#include "store/store.h"

/* A log file as it is: queries in its own type. */
typedef struct woi_log {
    woi_st *st; /* the open file; NULL where it is the caller's */
    uint64_t n, d;
    const woi_tensor *queries;
    int64_t *indptr; /* n + 1, checked: from 0, never falling; NULL where the log has no labels */
    int32_t *labels; /* indptr[n], each 0 or more; at most max_label */
    int32_t *counts; /* n, each 1 or more, and of labels indptr[n]; both NULL where the log is not counted */
    int32_t *label_counts;
    int64_t max_label; /* -1 where there is none */
} woi_log;

wo_status woi_log_open(const char *path, woi_log *log, wo_error *err);
/* The same of a file that is open and verified already, and stays the caller's. */
wo_status woi_log_read(const woi_st *st, woi_log *log, wo_error *err);
void woi_log_close(woi_log *log); /* a zeroed or closed one is fine */

struct wo_log {
    size_t n, d;
    const float *queries;
    const int64_t *indptr;
    const int32_t *labels;
    const int32_t *counts, *label_counts; /* as in woi_log */
    int64_t max_label;
    bool labels_apart; /* they are of a file of their own */
    woi_log file;      /* where they lie, for a log file; it owns labels that were read */
    woi_npy npy;       /* or queries in an array of NumPy's */
    float *copy;       /* queries that had to be converted, or NULL */
    size_t torn_bytes; /* of a journal: half a record at its end, which is left out */
};

/* Whether a log goes with a layer or an index. */
wo_status woi_log_check(const wo_log *log, size_t m, size_t d, wo_error *err);
/* Whether there is a row of labels for each of n queries of d numbers. */
wo_status woi_labels_fit(uint64_t rows, uint64_t n, uint64_t d, wo_error *err);
/* Whether a table of labels (rows, columns) has ids, not a flag 0 or 1 for each class, which reads as the classes 0 and
 * 1 many times over. */
wo_status woi_labels_no_flags(const int64_t *table, size_t rows, size_t columns, wo_error *err);
/* Whether there are queries, all finite. */
wo_status woi_queries_check(const wo_log *log, wo_error *err);
/* Whether arrays can be labels of n queries, the first of them number `first` of the log; *max becomes the largest, -1
 * where there is none. */
wo_status woi_labels_check(const int64_t *indptr, const int32_t *labels, size_t n, uint64_t first, int64_t *max,
                           wo_error *err);
/* The same of a call's queries and their labels, n of each, 1 or more: a failure is about the queries. */
wo_status woi_labelled_check(const float *queries, size_t n, const int64_t *indptr, const int32_t *labels, int64_t *max,
                             wo_error *err);

/* XXH3 of all queries, and of the labels where there are any: one pass over their bytes. */
uint64_t woi_log_hash(const wo_log *log);

/* Rows to be written: queries (n, d), labels as in wo_log_wrap, and where the log is counted how often they were seen.
 */
typedef struct woi_log_rows {
    size_t n;
    const float *queries;
    const int64_t *indptr;
    const int32_t *labels, *counts, *label_counts;
} woi_log_rows;

/* wo_log_append, of a counted log too. */
wo_status woi_log_append_rows(wo_log_writer *writer, const woi_log_rows *rows, wo_error *err);
/* Makes it one, before its first query. */
wo_status woi_log_set_counted(wo_log_writer *writer, const char *path, wo_error *err);
/* Metadata of a log that is written, before its first query. */
wo_status woi_log_set_meta(wo_log_writer *writer, const char *key, const char *value, wo_error *err);
/* All of wo_log_finish but the last: hands over the file, to be finished together with others. */
wo_status woi_log_complete(wo_log_writer *writer, woi_st_writer **st, wo_error *err);

#endif
