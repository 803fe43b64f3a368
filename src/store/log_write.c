/* Writing logs, in pieces of any size and memory that does not grow.
 *
 * A safetensors file is written from front to back. Queries, the most of it, come first and go straight into the file;
 * what comes behind them is kept in two files of its own until the last query is there:
 *
 *   queries          (n, d)    as they come
 *   labels.indptr    (n + 1)   from `ends`
 *   labels.indices             from `labels`
 *
 * and of a counted log queries.counts (n) and labels.counts. */
#include "store/log.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/sized.h"

#include <inttypes.h>

enum {
    PIECE = 8192, /* numbers that are converted, or bytes that are copied, at a time */
    MAX_D = INT32_MAX / 4,
    SPARE_BYTES = 1024 /* of the header: 20 digits for each of 12 numbers, and two gaps between tensors */
};

struct wo_log_writer {
    wo_log_writer_options o;
    woi_st_writer *st;                  /* NULL once it is handed over */
    woi_outfile *ends, *labels;         /* never committed; NULL in a log without labels */
    woi_outfile *counts, *label_counts; /* the same; NULL in a log that is not counted */
    uint64_t n, n_labels;               /* so far */
    bool begun;                         /* the header has its room: metadata are over */
    bool closed;                        /* finished, or failed while writing */
};

wo_status wo_log_writer_create(const char *path, const wo_log_writer_options *options, wo_log_writer **result,
                               wo_error *err)
{
    *result = NULL;
    wo_log_writer_options o = {.struct_size = sizeof o};
    wo_status status = woi_sized_take(&o, sizeof o, options, "log writer's options", err);
    if (status) return status;
    if (o.d < 1 || o.d > MAX_D)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "d", "queries of %zu numbers cannot be: expected 1 to %d", o.d,
                               MAX_D);
    if (o.n_labels && !o.labels)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "n_labels",
                               "%" PRIu64 " labels are expected, but the log is to have none", o.n_labels);
    wo_log_writer *writer = woi_alloc_zero(1, sizeof *writer, err);
    if (!writer) return WO_ERR_MEMORY;
    writer->o = o;
    status = woi_st_create(path, "log", &writer->st, err);
    if (!status && o.labels) status = woi_outfile_create(path, &writer->ends, err);
    if (!status && o.labels) status = woi_outfile_create(path, &writer->labels, err);
    if (status)
        wo_log_writer_free(writer);
    else
        *result = writer;
    return status;
}

void wo_log_writer_free(wo_log_writer *writer)
{
    if (!writer) return;
    woi_st_writer_free(writer->st);
    woi_outfile_free(writer->ends);
    woi_outfile_free(writer->labels);
    woi_outfile_free(writer->counts);
    woi_outfile_free(writer->label_counts);
    woi_free(writer);
}

wo_status woi_log_set_meta(wo_log_writer *writer, const char *key, const char *value, wo_error *err)
{
    return woi_st_set_meta(writer->st, key, value, err);
}

wo_status woi_log_set_counted(wo_log_writer *writer, const char *path, wo_error *err)
{
    const wo_status status = woi_outfile_create(path, &writer->counts, err);
    return status ? status : woi_outfile_create(path, &writer->label_counts, err);
}

/* Keeps room for the header, as large as what is said asks for, and more where not all is. */
static wo_status begin(wo_log_writer *w, wo_error *err)
{
    const woi_dtype dtype = w->o.bf16 ? WOI_BF16 : WOI_F32;
    const bool known = w->o.n && (!w->o.labels || w->o.n_labels);
    wo_status status;
    if (w->begun) return WO_OK;
    w->begun = true;
    if ((status = woi_st_declare(w->st, "queries", dtype, 2, (uint64_t[]){w->o.n, w->o.d}, err)) ||
        (w->o.labels &&
         ((status = woi_st_declare(w->st, "labels.indptr", WOI_I64, 1, (uint64_t[]){w->o.n + 1}, err)) ||
          (status = woi_st_declare(w->st, "labels.indices", WOI_I32, 1, (uint64_t[]){w->o.n_labels}, err)))) ||
        (w->counts &&
         ((status = woi_st_declare(w->st, "queries.counts", WOI_I32, 1, (uint64_t[]){w->o.n}, err)) ||
          (status = woi_st_declare(w->st, "labels.counts", WOI_I32, 1, (uint64_t[]){w->o.n_labels}, err)))) ||
        (status = woi_st_stream(w->st, known ? 0 : SPARE_BYTES, err)))
        return status;
    return woi_st_declare(w->st, "queries", dtype, 2, (uint64_t[]){0, w->o.d}, err);
}

/* ---- Adding ------------------------------------------------------------------------------------------------ */

static wo_status check_open(const wo_log_writer *w, wo_error *err)
{
    if (!w->closed) return WO_OK;
    return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_OUTPUT, "", "the log is finished, or failed to be written");
}

static wo_status check_piece(const wo_log_writer *w, const float *queries, size_t n, const int64_t *indptr,
                             const int32_t *labels, wo_error *err)
{
    size_t numbers;
    int64_t max;
    if ((n && !queries) || !woi_size_mul(n, w->o.d, &numbers))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "%zu queries of %zu numbers cannot be", n,
                              w->o.d);
    if (n && w->o.labels && !indptr)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "labels",
                              "the log has labels, but query %" PRIu64 " comes without", w->n);
    if (!w->o.labels && (indptr || labels))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "labels",
                              "the log has no labels, but query %" PRIu64 " comes with some", w->n);
    if (w->o.n && n > w->o.n - w->n)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "n",
                              "the log has %" PRIu64 " queries and gets %zu more, but is to have %" PRIu64, w->n, n,
                              w->o.n);
    for (size_t i = 0; w->o.bf16 && i < numbers; i++)
        if (!woi_fits_bf16(queries[i]))
            return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "bf16",
                                  "query %" PRIu64 " has %g at place %zu, which bf16 would make infinite",
                                  w->n + i / w->o.d, (double)queries[i], i % w->o.d);
    return indptr ? woi_about(err, WO_ABOUT_LOG, woi_labels_check(indptr, labels, n, w->n, &max, err)) : WO_OK;
}

static wo_status add_queries(wo_log_writer *w, const float *queries, size_t n, wo_error *err)
{
    const size_t numbers = n * w->o.d;
    wo_status status = woi_st_grow(w->st, n, err);
    if (status || !w->o.bf16) return status ? status : woi_st_append(w->st, queries, numbers * sizeof *queries, err);
    uint16_t halves[PIECE];
    for (size_t first = 0; !status && first < numbers; first += PIECE) {
        const size_t count = numbers - first < PIECE ? numbers - first : PIECE;
        for (size_t i = 0; i < count; i++) halves[i] = woi_f32_to_bf16(queries[first + i]);
        status = woi_st_append(w->st, halves, count * sizeof *halves, err);
    }
    return status;
}

static wo_status add_labels(wo_log_writer *w, const woi_log_rows *rows, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < rows->n; i++) {
        const int64_t end = (int64_t)w->n_labels + rows->indptr[i + 1];
        status = woi_outfile_write(w->ends, &end, sizeof end, err);
    }
    const size_t count = rows->n ? (size_t)rows->indptr[rows->n] : 0;
    if (!status && count) status = woi_outfile_write(w->labels, rows->labels, count * sizeof *rows->labels, err);
    if (!status && count && w->counts)
        status = woi_outfile_write(w->label_counts, rows->label_counts, count * sizeof *rows->label_counts, err);
    if (!status && rows->n && w->counts)
        status = woi_outfile_write(w->counts, rows->counts, rows->n * sizeof *rows->counts, err);
    w->n_labels += count;
    return status;
}

wo_status woi_log_append_rows(wo_log_writer *w, const woi_log_rows *rows, wo_error *err)
{
    wo_status status = check_open(w, err);
    if (!status) status = check_piece(w, rows->queries, rows->n, rows->indptr, rows->labels, err);
    if (status) return status;
    status = begin(w, err);
    if (!status) status = add_queries(w, rows->queries, rows->n, err);
    if (!status && w->o.labels) status = add_labels(w, rows, err);
    w->n += rows->n;
    w->closed = status != WO_OK;
    return status;
}

wo_status wo_log_append(wo_log_writer *w, const float *queries, size_t n, const int64_t *indptr, const int32_t *labels,
                        wo_error *err)
{
    return woi_log_append_rows(w, &(woi_log_rows){.n = n, .queries = queries, .indptr = indptr, .labels = labels}, err);
}

/* ---- The end ----------------------------------------------------------------------------------------------- */

static wo_status copy(woi_outfile *from, uint64_t bytes, woi_st_writer *to, wo_error *err)
{
    char piece[PIECE];
    wo_status status = WO_OK;
    for (uint64_t first = 0; !status && first < bytes; first += PIECE) {
        const size_t count = bytes - first < PIECE ? (size_t)(bytes - first) : PIECE;
        status = woi_outfile_read(from, first, piece, count, err);
        if (!status) status = woi_st_append(to, piece, count, err);
    }
    return status;
}

static wo_status write_labels(wo_log_writer *w, wo_error *err)
{
    wo_status status;
    if ((status = woi_st_declare(w->st, "labels.indptr", WOI_I64, 1, (uint64_t[]){w->n + 1}, err)) ||
        (status = woi_st_append(w->st, &(int64_t){0}, sizeof(int64_t), err)) ||
        (status = copy(w->ends, w->n * sizeof(int64_t), w->st, err)) ||
        (status = woi_st_declare(w->st, "labels.indices", WOI_I32, 1, (uint64_t[]){w->n_labels}, err)) ||
        (status = copy(w->labels, w->n_labels * sizeof(int32_t), w->st, err)) || !w->counts)
        return status;
    if ((status = woi_st_declare(w->st, "queries.counts", WOI_I32, 1, (uint64_t[]){w->n}, err)) ||
        (status = copy(w->counts, w->n * sizeof(int32_t), w->st, err)) ||
        (status = woi_st_declare(w->st, "labels.counts", WOI_I32, 1, (uint64_t[]){w->n_labels}, err)))
        return status;
    return copy(w->label_counts, w->n_labels * sizeof(int32_t), w->st, err);
}

wo_status woi_log_complete(wo_log_writer *w, woi_st_writer **st, wo_error *err)
{
    wo_status status = check_open(w, err);
    if (status) return status;
    if (w->o.n && w->n != w->o.n)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "n",
                              "the log has %" PRIu64 " queries, but is to have %" PRIu64, w->n, w->o.n);
    if (w->o.n_labels && w->n_labels != w->o.n_labels)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "n_labels",
                              "the log has %" PRIu64 " labels, but is to have %" PRIu64, w->n_labels, w->o.n_labels);
    w->closed = true;
    status = begin(w, err);
    if (!status && w->o.labels) status = write_labels(w, err);
    if (status) return status;
    *st = w->st;
    w->st = NULL;
    return WO_OK;
}

wo_status wo_log_finish(wo_log_writer *w, wo_error *err)
{
    woi_st_writer *st = NULL;
    wo_status status = woi_log_complete(w, &st, err);
    if (!status) status = woi_st_finish(st, err);
    woi_st_writer_free(st);
    return status;
}
