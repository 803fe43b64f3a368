/* Made-up wide layers, logs and texts; synthetic.h has the model. */
#include "net/synthetic.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/team.h"
#include "store/log.h"
#include "text/xc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How far classes lie from their cluster's centre, the centre being 1 from the origin. */
static const double beta = 0.6;

/* One stream for every kind of number; a part's own are PER_PART apart. */
enum { CENTRE = 1, CLUSTER, CLASS, CLASS_WORD, CLUSTER_WORD, LABEL = 16, NOISE, WORD, PER_PART = 16 };

/* Uniform in [0, 1), 53 bits: tens of millions of classes need more than a float has. */
static double uniform(const woi_synthetic *s, uint64_t stream, uint64_t position)
{
    return (double)(woi_rng_u64(s->seed, stream, position) >> 11) * 0x1p-53;
}

/* The class that row i of the written layer is. */
static uint64_t class_of(const woi_synthetic *s, uint64_t i)
{
    return s->shards ? s->shard + i * s->shards : i;
}

static uint64_t stream_of(uint64_t kind, int part)
{
    return kind + PER_PART * (uint64_t)part;
}

wo_status woi_synthetic_init(woi_synthetic *s, bool layer, wo_error *err)
{
    s->n_clusters = (uint64_t)llround(sqrt((double)s->m));
    s->n_features = 1000 + s->m / 2;
    s->centres = NULL;
    /* Two classes of a cluster are `apart`. The noise that a class can bear beside its nearest of sqrt(m) rivals is a
     * multiple of apart / sqrt(log m); 0.8 of it gave P@1 0.73 to 0.82 for m of 10^3 to 10^6 and d of 32 to 256. */
    const double apart = beta * sqrt(2 / (1 + beta * beta));
    s->sigma = 0.8 * apart / sqrt(log((double)s->m));
    s->threads = woi_team_threads(s->threads);
    if (!layer) return WO_OK;
    if (!(s->centres = woi_alloc(s->n_clusters, s->d * sizeof(float), err))) return WO_ERR_MEMORY;
    const float scale = (float)(1 / sqrt((double)s->d));
    for (uint64_t i = 0; i < s->n_clusters * s->d; i++) s->centres[i] = scale * woi_rng_normal(s->seed, CENTRE, i);
    return WO_OK;
}

void woi_synthetic_free(woi_synthetic *s)
{
    woi_free(s->centres);
    s->centres = NULL;
}

/* ---- Labels ------------------------------------------------------------------------------------------------ */

/* The power law as the integral of x^-s from 1 to x, so that sampling inverts it in one step, for any m: class j is the
 * piece from j + 1 to j + 2. */
static double mass(const woi_synthetic *s, double x)
{
    const double e = 1 - s->exponent;
    return e == 0 ? log(x) : expm1(e * log(x)) / e;
}

uint64_t woi_synthetic_label(const woi_synthetic *s, int part, uint64_t i)
{
    const double e = 1 - s->exponent, u = uniform(s, stream_of(LABEL, part), i) * mass(s, (double)s->m + 1);
    const double x = exp(e == 0 ? u : log1p(e * u) / e);
    uint64_t class = x > 1 ? (uint64_t)x - 1 : 0;
    return class < s->m ? class : s->m - 1;
}

double woi_synthetic_log_probability(const woi_synthetic *s, uint64_t class)
{
    double x = (double)class + 1;
    /* Far out the difference of two masses would cancel; the middle of the piece is as good there. */
    double piece = class < 1000 ? mass(s, x + 1) - mass(s, x) : pow(x + 0.5, -s->exponent);
    return log(piece / mass(s, (double)s->m + 1));
}

/* ---- Vectors ----------------------------------------------------------------------------------------------- */

static uint64_t cluster_of(const woi_synthetic *s, uint64_t class)
{
    return woi_rng_below(s->seed, CLUSTER, class, s->n_clusters);
}

/* u_j, times `scale`. */
static void class_vector(const woi_synthetic *s, uint64_t class, double scale, float *row)
{
    const float *centre = s->centres + cluster_of(s, class) * s->d;
    const float spread = (float)(beta / sqrt((double)s->d));
    double square = 0;
    for (uint64_t k = 0; k < s->d; k++) {
        row[k] = centre[k] + spread * woi_rng_normal(s->seed, CLASS, class * s->d + k);
        square += (double)row[k] * row[k];
    }
    const float factor = (float)(square > 0 ? scale / sqrt(square) : 0);
    for (uint64_t k = 0; k < s->d; k++) row[k] *= factor;
}

void woi_synthetic_weight(const woi_synthetic *s, uint64_t class, float *row)
{
    class_vector(s, class, 1 / (s->sigma * s->sigma), row);
}

void woi_synthetic_query(const woi_synthetic *s, int part, uint64_t i, float *row)
{
    class_vector(s, woi_synthetic_label(s, part, i), 1, row);
    for (uint64_t k = 0; k < s->d; k++)
        row[k] += (float)s->sigma * woi_rng_normal(s->seed, stream_of(NOISE, part), i * s->d + k);
}

/* ---- Layers and logs --------------------------------------------------------------------------------------- */

enum { ROWS_AT_ONCE = 8192, FEW_ROWS = 64, WEIGHTS = -1 }; /* of a write; of a thread */

/* Some rows, from `first` on. */
typedef struct making {
    const woi_synthetic *s;
    int part; /* or WEIGHTS */
    uint64_t first;
    float *rows;
} making;

static void make_range(void *own, int worker, size_t first, size_t end)
{
    const making *m = own;
    (void)worker;
    for (size_t i = first; i < end; i++) {
        float *row = m->rows + i * m->s->d;
        if (m->part == WEIGHTS)
            woi_synthetic_weight(m->s, class_of(m->s, m->first + i), row);
        else
            woi_synthetic_query(m->s, m->part, m->first + i, row);
    }
}

/* Rows first .. end, d floats each, of the weights or of a part's queries. Any row is made by any thread. */
static void make_rows(const woi_synthetic *s, int part, uint64_t first, uint64_t end, float *rows)
{
    woi_team_ranges(s->threads, end - first, FEW_ROWS, make_range, &(making){s, part, first, rows});
}

static uint64_t end_of(uint64_t first, uint64_t n)
{
    return n - first < ROWS_AT_ONCE ? n : first + ROWS_AT_ONCE;
}

/* The settings, so that a file says what it is. */
enum { SETTINGS_BYTES = 200 };
static const char *settings(const woi_synthetic *s, char text[SETTINGS_BYTES])
{
    const int n = snprintf(text, SETTINGS_BYTES, "m=%" PRIu64 " d=%" PRIu64 " exponent=%g seed=%" PRIu64, s->m, s->d,
                           s->exponent, s->seed);
    if (s->shards) snprintf(text + n, SETTINGS_BYTES - (size_t)n, " shard=%" PRIu64 "/%" PRIu64, s->shard, s->shards);
    return text;
}

wo_status woi_synthetic_layer(const woi_synthetic *s, const char *path, const wo_progress *progress,
                              woi_st_writer **result, wo_error *err)
{
    const uint64_t rows_here = woi_synthetic_rows(s), shape[] = {rows_here, s->d};
    char text[SETTINGS_BYTES];
    woi_st_writer *writer = NULL;
    float *rows = woi_alloc(ROWS_AT_ONCE, s->d * sizeof *rows, err);
    wo_status status = rows ? WO_OK : WO_ERR_MEMORY;
    if (status || (status = woi_st_create(path, "layer", &writer, err)) ||
        (status = woi_st_set_meta(writer, "synthetic", settings(s, text), err)) ||
        (status = woi_st_declare(writer, "weight", WOI_F32, 2, shape, err)) ||
        (status = woi_st_declare(writer, "bias", WOI_F32, 1, shape, err)))
        goto done;
    for (uint64_t first = 0, end; !status && first < rows_here; first = end) {
        end = end_of(first, rows_here);
        make_rows(s, WEIGHTS, first, end, rows);
        status = woi_st_append(writer, rows, (end - first) * s->d * sizeof *rows, err);
        if (!status) status = woi_progress(progress, "writing weights", end, rows_here, err);
    }
    for (uint64_t i = 0; !status && i < rows_here; i++) {
        float bias = (float)woi_synthetic_log_probability(s, class_of(s, i));
        status = woi_st_append(writer, &bias, sizeof bias, err);
    }
done:
    woi_free(rows);
    if (status)
        woi_st_writer_free(writer);
    else
        *result = writer;
    return status;
}

static bool is_here(const woi_synthetic *s, uint64_t class)
{
    return !s->shards || class % s->shards == s->shard;
}

wo_status woi_synthetic_log(const woi_synthetic *s, int part, const char *path, const wo_progress *progress,
                            woi_st_writer **result, wo_error *err)
{
    const uint64_t n = s->n[part];
    uint64_t n_labels = 0;
    for (uint64_t i = 0; i < n; i++) n_labels += is_here(s, woi_synthetic_label(s, part, i));
    const wo_log_writer_options o = {.struct_size = sizeof o, .d = s->d, .n = n, .n_labels = n_labels, .labels = 1};
    char text[SETTINGS_BYTES];
    int64_t indptr[ROWS_AT_ONCE + 1];
    int32_t labels[ROWS_AT_ONCE];
    wo_log_writer *writer = NULL;
    float *rows = woi_alloc(ROWS_AT_ONCE, s->d * sizeof *rows, err);
    wo_status status = rows ? WO_OK : WO_ERR_MEMORY;
    if (!status) status = wo_log_writer_create(path, &o, &writer, err);
    if (!status) status = woi_log_set_meta(writer, "synthetic", settings(s, text), err);
    for (uint64_t first = 0, end; !status && first < n; first = end) {
        end = end_of(first, n);
        make_rows(s, part, first, end, rows);
        indptr[0] = 0;
        for (uint64_t i = first; i < end; i++) { /* one label each, or none that is here */
            const uint64_t class = woi_synthetic_label(s, part, i), at = i - first;
            indptr[at + 1] = indptr[at] + is_here(s, class);
            if (is_here(s, class)) labels[indptr[at]] = (int32_t)(s->shards ? class / s->shards : class);
        }
        status = wo_log_append(writer, rows, end - first, indptr, labels, err);
        if (!status) status = woi_progress(progress, "writing queries", end, n, err);
    }
    if (!status) status = woi_log_complete(writer, result, err);
    wo_log_writer_free(writer);
    woi_free(rows);
    return status;
}

/* ---- Text -------------------------------------------------------------------------------------------------- */

enum { ROWS_PER_REPORT = 4096, CLASS_WORDS = 8, CLUSTER_WORDS = 16 };

/* Word k of row i: half of them are words of its class, three in ten of its cluster, the rest mean nothing. */
static int32_t word_of(const woi_synthetic *s, int part, uint64_t i, uint64_t label, uint64_t k)
{
    const uint64_t bits = woi_rng_u64(s->seed, stream_of(WORD, part), i * WOI_SYNTHETIC_WORDS + k);
    const uint64_t kind = bits % 10, choice = bits >> 32, n = s->n_features;
    if (kind < 5) return (int32_t)woi_rng_below(s->seed, CLASS_WORD, label * CLASS_WORDS + choice % CLASS_WORDS, n);
    if (kind >= 8) return (int32_t)(choice % n);
    const uint64_t cluster = cluster_of(s, label);
    return (int32_t)woi_rng_below(s->seed, CLUSTER_WORD, cluster * CLUSTER_WORDS + choice % CLUSTER_WORDS, n);
}

/* The words of a row in rising order, each once, with its count; returns how many. */
static size_t make_words(const woi_synthetic *s, int part, uint64_t i, uint64_t label, int32_t *words, float *counts)
{
    size_t n = 0;
    for (uint64_t k = 0; k < WOI_SYNTHETIC_WORDS; k++) {
        int32_t word = word_of(s, part, i, label, k);
        size_t at = n;
        while (at > 0 && words[at - 1] >= word) at--;
        if (at < n && words[at] == word) {
            counts[at]++;
            continue;
        }
        memmove(words + at + 1, words + at, (n - at) * sizeof *words);
        memmove(counts + at + 1, counts + at, (n - at) * sizeof *counts);
        words[at] = word;
        counts[at] = 1;
        n++;
    }
    return n;
}

wo_status woi_synthetic_text(const woi_synthetic *s, int part, woi_outfile *out, const wo_progress *progress,
                             wo_error *err)
{
    const uint64_t header[] = {s->n[part], s->n_features, s->m};
    int32_t words[WOI_SYNTHETIC_WORDS];
    float counts[WOI_SYNTHETIC_WORDS];
    wo_status status = woi_xc_write_header(out, header, 3, err);
    for (uint64_t i = 0; !status && i < s->n[part]; i++) {
        const int32_t label = (int32_t)woi_synthetic_label(s, part, i);
        woi_xc_row row = {1, 0, &label, words, counts};
        row.n_features = make_words(s, part, i, (uint64_t)label, words, counts);
        status = woi_xc_write_row(out, &row, err);
        if (!status && i % ROWS_PER_REPORT == 0) status = woi_progress(progress, "writing rows", i, s->n[part], err);
    }
    return status;
}

wo_status woi_synthetic_names(const char *prefix, uint64_t n, woi_outfile *out, wo_error *err)
{
    wo_status status = WO_OK;
    for (uint64_t i = 0; !status && i < n; i++) {
        char text[64];
        int bytes = snprintf(text, sizeof text, "%s-%" PRIu64 "\n", prefix, i);
        status = woi_outfile_write(out, text, (size_t)bytes, err);
    }
    return status;
}
