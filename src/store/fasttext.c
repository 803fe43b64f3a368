/* Models of fastText (`fasttext supervised`, files that end in .bin), version 12. All numbers are little-endian;
 * nothing is aligned.
 *
 *   i32 magic, version
 *   i32 dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate;  f64 t
 *   i32 size, nwords, nlabels;  i64 ntokens, pruneidx_size
 *   size entries                 name, NUL, i64 count, i8 type: all words (0), then all labels (1)
 *   u8 quantised;  i64 rows, columns;  f32 ...      input: a row a word, then a row a bucket of n-grams
 *   u8 quantised;  i64 rows, columns;  f32 ...      output: a row a label
 *
 * Models that have no such output are refused, each with its sentence: those of word vectors, of hierarchical softmax
 * (their output is a tree) and quantised ones. */
#include "base/error.h"
#include "base/utf8.h"
#include "store/in_order.h"
#include "store/map.h"
#include "store/store.h"

#include <inttypes.h>
#include <string.h>

enum {
    VERSION = 12,
    SUPERVISED = 3,
    HIERARCHICAL = 1,
    MAX_DIM = 65536,
    LEAST_ENTRY = 1 + 8 + 1, /* bytes of an entry without a name */
};

/* ---- Reading in order -------------------------------------------------------------------------------------- */

static wo_status check(const woi_in_order *in, const char *what, int64_t value, int64_t low, int64_t high,
                       wo_error *err)
{
    if (value >= low && value <= high) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in), "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                    what, value, low, high);
}

/* ---- The parts --------------------------------------------------------------------------------------------- */

static wo_status read_options(woi_in_order *in, woi_fasttext *ft, wo_error *err)
{
    struct {
        int32_t magic, version, dim, ws, epoch, min_count, neg, word_ngrams, loss, model, bucket, minn, maxn, rate;
    } head;
    double t;
    wo_status status = woi_in_order_take(in, &head, sizeof head, "the options", err);
    if (!status) status = woi_in_order_take(in, &t, sizeof t, "the options", err);
    if (status) return status;
    if (head.magic != WOI_FASTTEXT_MAGIC) return woi_fail(err, WO_ERR_FORMAT, 0, "the file is no model of fastText's");
    if (head.version != VERSION)
        return woi_fail(err, WO_ERR_UNSUPPORTED, 4, "fastText's format version %" PRId32 " is not read: expected %d",
                        head.version, VERSION);
    if (head.model != SUPERVISED)
        return woi_fail(err, WO_ERR_UNSUPPORTED, 36,
                        "the model is one of word vectors, not a classifier: it has no layer of labels");
    if (head.loss == HIERARCHICAL)
        return woi_fail(err, WO_ERR_UNSUPPORTED, 32,
                        "the model was trained with -loss hs, whose output is a tree, not a layer: train it with "
                        "softmax, ova or ns");
    if ((status = check(in, "the loss", head.loss, WOI_FASTTEXT_NS, WOI_FASTTEXT_OVA, err)) ||
        (status = check(in, "dim", head.dim, 1, MAX_DIM, err)) ||
        (status = check(in, "wordNgrams", head.word_ngrams, 0, WOI_FASTTEXT_MOST_GRAM, err)) ||
        (status = check(in, "maxn", head.maxn, 0, WOI_FASTTEXT_MOST_GRAM, err)) ||
        (status = check(in, "minn", head.minn, 0, INT32_MAX, err)))
        return status;
    const bool uses_buckets = head.word_ngrams > 1 || (head.maxn > 0 && head.minn <= head.maxn);
    if ((status = check(in, "bucket", head.bucket, uses_buckets, INT32_MAX, err))) return status;
    ft->loss = (woi_fasttext_loss)head.loss;
    ft->d = (size_t)head.dim;
    ft->word_ngrams = head.word_ngrams;
    ft->minn = head.minn;
    ft->maxn = head.maxn;
    ft->bucket = uses_buckets ? head.bucket : 0;
    return WO_OK;
}

/* An entry is there as a whole, of the type that its place has. */
static wo_status check_entry(woi_in_order *in, int32_t i, const woi_fasttext *ft, wo_error *err)
{
    const bool is_label = i >= ft->n_words;
    const char *name = in->at, *end = memchr(name, '\0', woi_in_order_left(in));
    if (!end || in->end - end < LEAST_ENTRY)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in),
                        "the file ends at byte %" PRIu64 ", inside entry %" PRId32 " of the dictionary",
                        (uint64_t)(in->end - in->start), i);
    in->at = end + LEAST_ENTRY;
    if (in->at[-1] != is_label)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in) - 1,
                        "entry %" PRId32
                        " of the dictionary has the type %d, expected %d: words (0) come before labels "
                        "(1)",
                        i, in->at[-1], is_label);
    const size_t bytes = (size_t)(end - name);
    char quoted[WOI_QUOTE_BYTES];
    if (is_label && (!woi_utf8_valid(name, bytes) || memchr(name, '\n', bytes)))
        return woi_fail(err, WO_ERR_UNSUPPORTED, (uint64_t)(name - in->start),
                        "the label '%s' is not one line of UTF-8", woi_quote(quoted, name, bytes));
    return WO_OK;
}

static wo_status read_dictionary(woi_in_order *in, woi_fasttext *ft, wo_error *err)
{
    int32_t counts[3];
    int64_t sizes[2]; /* tokens of the training text, which nobody needs; pairs of the pruning index */
    wo_status status = woi_in_order_take(in, counts, sizeof counts, "the dictionary", err);
    if (!status) status = woi_in_order_take(in, sizes, sizeof sizes, "the dictionary", err);
    if (status) return status;
    ft->n_words = counts[1];
    ft->n_labels = counts[2];
    if (counts[1] < 0 || counts[2] < 1 || (int64_t)counts[1] + counts[2] != counts[0])
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in),
                        "the dictionary has %" PRId32 " entries, %" PRId32 " words and %" PRId32
                        " labels: expected a sum, and a label",
                        counts[0], counts[1], counts[2]);
    if ((uint64_t)counts[0] > woi_in_order_left(in) / LEAST_ENTRY)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in),
                        "the dictionary has %" PRId32 " entries, more than the %zu bytes that follow can hold",
                        counts[0], woi_in_order_left(in));
    if (sizes[1] >= 0)
        return woi_fail(err, WO_ERR_UNSUPPORTED, woi_in_order_place(in),
                        "the model is quantised and pruned: give the .bin file that it was made from");
    ft->words = in->at;
    for (int32_t i = 0; !status && i < counts[0]; i++) {
        if (i == ft->n_words) ft->labels = in->at;
        status = check_entry(in, i, ft, err);
    }
    return status;
}

static wo_status read_matrix(woi_in_order *in, const char *name, size_t d, woi_tensor *matrix, wo_error *err)
{
    unsigned char quantised = 0;
    int64_t shape[2];
    wo_status status = woi_in_order_take(in, &quantised, 1, "the matrices", err);
    if (status) return status;
    if (quantised)
        return woi_fail(err, WO_ERR_UNSUPPORTED, woi_in_order_place(in) - 1,
                        "the model is quantised: give the .bin file that it was made from");
    if ((status = woi_in_order_take(in, shape, sizeof shape, "the matrices", err))) return status;
    const uint64_t most = woi_in_order_left(in) / sizeof(float) / d;
    if (shape[1] != (int64_t)d || shape[0] < 0 || (uint64_t)shape[0] > most)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in) - sizeof shape,
                        "the %s matrix is %" PRId64 " x %" PRId64 ": expected %zu columns and at most %" PRIu64
                        " rows, which the bytes that follow can hold",
                        name, shape[0], shape[1], d, most);
    *matrix = (woi_tensor){.name = name,
                           .dtype = WOI_F32,
                           .n_dims = 2,
                           .shape = {(uint64_t)shape[0], d},
                           .n = (uint64_t)shape[0] * d,
                           .data = in->at,
                           .bytes = (size_t)shape[0] * d * sizeof(float),
                           .offset = woi_in_order_place(in)};
    in->at += matrix->bytes;
    return WO_OK;
}

static wo_status read_model(woi_fasttext *ft, wo_error *err)
{
    woi_in_order in = {ft->map, ft->map, (const char *)ft->map + ft->map_bytes};
    wo_status status;
    if ((status = read_options(&in, ft, err)) || (status = read_dictionary(&in, ft, err)) ||
        (status = read_matrix(&in, "input", ft->d, &ft->input, err)) ||
        (status = read_matrix(&in, "output", ft->d, &ft->output, err)))
        return status;
    const uint64_t rows = (uint64_t)ft->n_words + (uint64_t)ft->bucket;
    if (ft->input.shape[0] < rows || ft->input.shape[0] > INT32_MAX)
        return woi_fail(err, WO_ERR_FORMAT, ft->input.offset,
                        "the input matrix has %" PRIu64 " rows, expected at least %" PRIu64 ", for words and buckets",
                        ft->input.shape[0], rows);
    if (ft->output.shape[0] != (uint64_t)ft->n_labels)
        return woi_fail(err, WO_ERR_FORMAT, ft->output.offset,
                        "the output matrix has %" PRIu64 " rows, expected one for each of the %" PRId32 " labels",
                        ft->output.shape[0], ft->n_labels);
    if (woi_in_order_left(&in))
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(&in),
                        "%zu bytes follow the output matrix, expected none", woi_in_order_left(&in));
    return WO_OK;
}

/* ---- Outside ----------------------------------------------------------------------------------------------- */

wo_status woi_fasttext_open(const char *path, woi_fasttext *ft, wo_error *err)
{
    memset(ft, 0, sizeof *ft);
    wo_status status = woi_map(path, &ft->map, &ft->map_bytes, err);
    if (status) return status;
    if ((status = read_model(ft, err))) woi_fasttext_close(ft);
    return status;
}

void woi_fasttext_close(woi_fasttext *ft)
{
    woi_unmap(ft->map, ft->map_bytes);
    memset(ft, 0, sizeof *ft);
}

const char *woi_fasttext_name(const char **entry, size_t *bytes)
{
    const char *name = *entry;
    *bytes = strlen(name);
    *entry = name + *bytes + LEAST_ENTRY;
    return name;
}

const char *woi_fasttext_loss_name(woi_fasttext_loss loss)
{
    return loss == WOI_FASTTEXT_SOFTMAX ? "softmax" : loss == WOI_FASTTEXT_OVA ? "ova" : "ns";
}
