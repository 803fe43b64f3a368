/* Counting and showing what is in a file of the extreme-classification format. */
#include "xc_summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How often each id occurs: open addressing, so that memory goes with the ids that occur, not with the largest one. */
typedef struct tally {
    int32_t *ids; /* -1: free */
    uint32_t *uses;
    size_t n, capacity; /* a power of two, at most half full */
} tally;

static size_t slot_of(const tally *t, int32_t id)
{
    /* The upper bits of the product: the lower ones of ids that are multiples of 2^k are all 0. */
    size_t slot = (size_t)(((uint64_t)(uint32_t)id * 0x9e3779b97f4a7c15u) >> 32) & (t->capacity - 1);
    while (t->ids[slot] >= 0 && t->ids[slot] != id) slot = (slot + 1) & (t->capacity - 1);
    return slot;
}

static int grow_tally(tally *t)
{
    tally bigger = {.n = t->n, .capacity = t->capacity ? 2 * t->capacity : 1024};
    bigger.ids = malloc(bigger.capacity * sizeof *bigger.ids);
    bigger.uses = calloc(bigger.capacity, sizeof *bigger.uses);
    if (!bigger.ids || !bigger.uses) {
        free(bigger.ids);
        free(bigger.uses);
        return -1;
    }
    memset(bigger.ids, 0xff, bigger.capacity * sizeof *bigger.ids);
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->ids[i] < 0) continue;
        size_t slot = slot_of(&bigger, t->ids[i]);
        bigger.ids[slot] = t->ids[i];
        bigger.uses[slot] = t->uses[i];
    }
    free(t->ids);
    free(t->uses);
    *t = bigger;
    return 0;
}

static int count_ids(tally *t, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (2 * (t->n + 1) > t->capacity && grow_tally(t)) return -1;
        size_t slot = slot_of(t, ids[i]);
        if (t->ids[slot] < 0) {
            t->ids[slot] = ids[i];
            t->n++;
        }
        t->uses[slot]++;
    }
    return 0;
}

/* 0, 1, 2-3, 4-7, ...: the number of bits. */
static int bin_of(uint32_t uses)
{
    return uses ? 32 - __builtin_clz(uses) : 0;
}

static void count_row(xc_summary *s, const woi_xc_row *row)
{
    s->n_label_uses += row->n_labels;
    s->n_values += row->n_features;
    s->rows_without_labels += row->n_labels == 0;
    s->empty_rows += row->n_features == 0;
    if (row->n_labels > s->most_labels) s->most_labels = row->n_labels;
    if (row->n_features > s->most_features) s->most_features = row->n_features;
}

static void count_tally(xc_summary *s, const tally *t)
{
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->ids[i] < 0) continue;
        const uint64_t id = (uint64_t)t->ids[i];
        s->histogram[bin_of(t->uses[i])]++;
        if (t->uses[i] > s->top_uses || (t->uses[i] == s->top_uses && id < s->top_label)) {
            s->top_uses = t->uses[i];
            s->top_label = id;
        }
    }
    s->labels_used = t->n;
    s->histogram[0] = (s->shape.matrix ? s->shape.n_features : s->shape.n_labels) - t->n;
}

wo_status xc_summarise(const char *path, const woi_xc_options *options, const wo_progress *progress, xc_summary *s,
                       wo_error *err)
{
    woi_xc *xc = NULL;
    wo_status status = woi_xc_open(path, options, &xc, err);
    if (!status) status = xc_summarise_reader(xc, progress, s, err);
    woi_xc_free(xc);
    return status;
}

wo_status xc_summarise_reader(woi_xc *xc, const wo_progress *progress, xc_summary *s, wo_error *err)
{
    memset(s, 0, sizeof *s);
    double start = woi_now_s();
    tally t = {0};
    wo_status status = WO_OK;
    woi_xc_row row;
    bool more = true;
    for (uint64_t n = 0; !status && more; n++) {
        if ((status = woi_xc_next(xc, &row, &more, err)) || !more) break;
        count_row(s, &row);
        bool matrix = woi_xc_get_shape(xc)->matrix;
        if (count_ids(&t, matrix ? row.features : row.labels, matrix ? row.n_features : row.n_labels)) {
            snprintf(err->text, sizeof err->text, "out of memory");
            status = WO_ERR_MEMORY;
        }
        uint64_t done, total;
        if (n % 4096 == 0) {
            woi_xc_position(xc, &done, &total);
            if (progress->fn(progress->ctx, "reading", done, total)) {
                snprintf(err->text, sizeof err->text, "stopped at row %" PRIu64, n + 1);
                status = WO_ERR_CANCELLED;
            }
        }
    }
    if (!status) {
        s->shape = *woi_xc_get_shape(xc);
        s->text_bytes = woi_xc_text_bytes(xc);
        s->seconds = woi_now_s() - start;
        count_tally(s, &t);
    }
    cli_progress_end();
    free(t.ids);
    free(t.uses);
    return status;
}

/* ---- For people -------------------------------------------------------------------------------------------- */

static void print_histogram(const xc_summary *s)
{
    enum { WIDTH = 40 };
    const char *what = s->shape.matrix ? "columns" : "labels", *one = s->shape.matrix ? "column" : "label";
    enum { BESIDE = 46 }; /* columns of the words */
    const int columns = cli_columns(WIDTH + BESIDE), widest = columns < BESIDE ? 0 : columns - BESIDE;
    const int full = widest < WIDTH ? widest : WIDTH;
    uint64_t most = 1;
    int last = 0;
    for (int i = 0; i < XC_BINS; i++) {
        if (s->histogram[i] > most) most = s->histogram[i];
        if (s->histogram[i]) last = i;
    }
    printf("  how often %s occur\n", what);
    for (int i = 0; i <= last; i++) {
        char range[48];
        uint64_t low = i ? (uint64_t)1 << (i - 1) : 0, high = i ? ((uint64_t)1 << i) - 1 : 0;
        if (low == high)
            snprintf(range, sizeof range, "%s", cli_number(low));
        else
            snprintf(range, sizeof range, "%s-%s", cli_number(low), cli_number(high));
        int width = (int)((double)s->histogram[i] / (double)most * full + 0.5);
        if (s->histogram[i] && width == 0 && full) width = 1;
        static const char bar[WIDTH + 1] = "########################################";
        printf("  %17s %-5s %10s %s%s%.*s\n", range, low == 1 && high == 1 ? "time" : "times",
               cli_number(s->histogram[i]), s->histogram[i] == 1 ? one : what, width ? "  " : "", width, bar);
    }
}

void xc_print_summary(const char *path, const xc_summary *s)
{
    const double n = s->shape.n ? (double)s->shape.n : 1;
    cli_print_text(stdout, path);
    printf(": extreme-classification text, %s\n",
           s->shape.matrix ? "one matrix of the two-file form" : "one-file form");
    if (!s->shape.has_header) printf("  no header: the counts are those found in the rows\n");
    printf("  rows      %12s\n", cli_number(s->shape.n));
    printf("  %-9s %12s   %.2f a row, at most %s; %s without any\n", s->shape.matrix ? "columns" : "features",
           cli_number(s->shape.n_features), (double)s->n_values / n, cli_number(s->most_features),
           cli_count(s->empty_rows, "row"));
    if (!s->shape.matrix)
        printf("  labels    %12s   %.2f a row, at most %s; %s without any\n", cli_number(s->shape.n_labels),
               (double)s->n_label_uses / n, cli_number(s->most_labels), cli_count(s->rows_without_labels, "row"));
    const char *what = s->shape.matrix ? "column" : "label";
    if (s->top_uses)
        printf("  %s of the %ss occur%s; the most frequent, %s %s, in %.1f%% of the rows\n", cli_number(s->labels_used),
               what, s->labels_used == 1 ? "s" : "", what, cli_number(s->top_label), 100 * (double)s->top_uses / n);
    print_histogram(s);
}

/* ---- For programs ------------------------------------------------------------------------------------------ */

json_t *xc_summary_json(const xc_summary *s)
{
    json_t *histogram = json_array();
    int last = 0;
    for (int i = 0; i < XC_BINS; i++)
        if (s->histogram[i]) last = i;
    for (int i = 0; i <= last; i++)
        json_array_append_new(histogram,
                              json_pack("{s:I, s:I}", "from_uses", i ? (json_int_t)1 << (i - 1) : (json_int_t)0,
                                        s->shape.matrix ? "columns" : "labels", (json_int_t)s->histogram[i]));
    const bool matrix = s->shape.matrix;
    json_t *object =
        json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "format", "xc", "form",
                  matrix ? "matrix" : "one-file", "header", s->shape.has_header, "rows", (json_int_t)s->shape.n,
                  matrix ? "columns" : "features", (json_int_t)s->shape.n_features, "values", (json_int_t)s->n_values,
                  "rows_without_features", (json_int_t)s->empty_rows, "most_features", (json_int_t)s->most_features,
                  "text_bytes", (json_int_t)s->text_bytes, "seconds", s->seconds, "mb_per_s",
                  s->seconds > 0 ? (double)s->text_bytes / 1e6 / s->seconds : 0.0);
    json_t *labels = matrix ? json_object()
                            : json_pack("{s:I, s:I, s:I, s:I}", "labels", (json_int_t)s->shape.n_labels, "label_uses",
                                        (json_int_t)s->n_label_uses, "rows_without_labels",
                                        (json_int_t)s->rows_without_labels, "most_labels", (json_int_t)s->most_labels);
    if (json_object_update(object, labels) != 0 || json_object_set(object, "histogram", histogram) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(labels);
    json_decref(histogram);
    return object;
}
