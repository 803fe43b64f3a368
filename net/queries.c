/* Streams of queries from data files. One chunk of examples at a time: chosen, hidden layers computed, labels listed.
 * Also the log that takes nothing but a stream's queries; those with labels are evaluate.c's. */
#include "net/queries.h"

#include "base/error.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "net/fasttext.h"
#include "net/lstm.h"
#include "text/text.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024, DEFAULT_POSITIONS = 100000, SAMPLE_STREAM = 77, MOST_LABELS = 256 };

struct woi_queries {
    const woi_network *net;
    woi_queries_options options;
    uint64_t n_examples, n_chosen; /* in the file; of them, to be handed out */
    uint64_t at, taken;            /* examples passed; of them, handed out */
    /* the batch */
    size_t n, q_room, indptr_room, labels_room;
    float *q;
    int64_t *indptr;
    int32_t *labels;
    /* xc */
    woi_xc *xc;
    int64_t *row_indptr;
    int32_t *features;
    float *values;
    size_t row_room, features_room, values_room;
    /* fasttext */
    woi_text *text;
    woi_fasttext_lines lines;
    /* w2v and lm */
    woi_tokens tokens;
    int32_t *class_of; /* the network's id of each of the file's words */
    int32_t *distinct; /* (n_examples) the network's ids that occur, rising; NULL: examples are positions */
    uint64_t *starts;  /* (n_examples + 1) with distinct: word i is at places[starts[i] .. starts[i+1]) */
    uint64_t *places;
    uint32_t *seen;    /* (m) in how many windows of the word at hand a label is; zeros between words */
    uint64_t *last;    /* (m) in which of them it was seen last */
    woi_counted *near; /* (m) the labels of the word at hand */
    int32_t *counts;   /* (CHUNK) of the batch: how many positions each word has */
    int32_t *label_counts;
    size_t label_counts_room;
    int32_t *asked; /* (CHUNK) w2v: which word each query of the batch is */
    woi_lstm lstm;
    woi_lstm_slice *slice;
    float *x, *hidden; /* (CHUNK, d) */
};

/* ---- The batch --------------------------------------------------------------------------------------------- */

/* Selection sampling: example after example, each with the chance that leaves exactly n_chosen in the end. */
static bool is_chosen(woi_queries *s)
{
    const uint64_t left = s->n_examples - s->at, wanted = s->n_chosen - s->taken;
    const bool chosen = wanted == left || woi_rng_below(s->options.seed, SAMPLE_STREAM, s->at, left) < wanted;
    s->at++;
    s->taken += chosen;
    return chosen;
}

/* Ends the row that began at indptr[n] and whose labels reach to `end`: sorted, each once. */
static wo_status end_row(woi_queries *s, int64_t end, wo_error *err)
{
    const int64_t start = s->indptr[s->n];
    wo_status status = woi_grow(&s->indptr, &s->indptr_room, s->n + 1, s->n + 2, sizeof *s->indptr, err);
    if (status) return status;
    if (end > start) woi_ids_sort(s->labels + start, (size_t)(end - start));
    int64_t kept = start;
    for (int64_t i = start; i < end; i++)
        if (kept == start || s->labels[i] != s->labels[kept - 1]) s->labels[kept++] = s->labels[i];
    s->indptr[++s->n] = kept;
    return WO_OK;
}

static wo_status room_for_labels(woi_queries *s, size_t n, wo_error *err)
{
    const size_t used = (size_t)s->indptr[s->n];
    return woi_grow(&s->labels, &s->labels_room, used, used + n, sizeof *s->labels, err);
}

/* ---- xc ---------------------------------------------------------------------------------------------------- */

static wo_status check_xc_shape(const woi_queries *s, const woi_xc_shape *shape, wo_error *err)
{
    if (shape->matrix)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "matrix", "is one half of the two-file form");
    if (shape->n_features > s->net->n_inputs)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "counts", "has %llu features, the network %zu",
                              (unsigned long long)shape->n_features, s->net->n_inputs);
    if (shape->n_labels > s->net->m)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "counts", "has %llu labels, the network %zu",
                              (unsigned long long)shape->n_labels, s->net->m);
    if (shape->has_header && shape->n_features < s->net->n_inputs && shape->n_labels < s->net->m)
        return woi_fail_about(
            err, WO_ERR_FORMAT, WO_ABOUT_NONE, "counts",
            "is of other data than the network: it has %llu features and %llu labels, the network %zu and %zu",
            (unsigned long long)shape->n_features, (unsigned long long)shape->n_labels, s->net->n_inputs, s->net->m);
    return WO_OK;
}

/* Files without a header are read once to count them. */
static wo_status open_xc(woi_queries *s, const char *path, wo_error *err)
{
    wo_status status = woi_xc_open(path, &s->options.xc, &s->xc, err);
    if (status) return status;
    bool more = !woi_xc_get_shape(s->xc)->has_header, counted = more;
    while (more) {
        woi_xc_row row;
        if ((status = woi_xc_next(s->xc, &row, &more, err))) return status;
    }
    if ((status = check_xc_shape(s, woi_xc_get_shape(s->xc), err))) return status;
    s->n_examples = woi_xc_get_shape(s->xc)->n;
    return counted ? woi_xc_rewind(s->xc, err) : WO_OK;
}

static wo_status take_xc_row(woi_queries *s, const woi_xc_row *row, wo_error *err)
{
    const size_t used = (size_t)s->row_indptr[s->n];
    wo_status status;
    /* Ids rise, so the last ones say it. The reader keeps to its file's shape; that it is the network's is seen here.
     */
    if ((row->n_features && (size_t)row->features[row->n_features - 1] >= s->net->n_inputs) ||
        (row->n_labels && (size_t)row->labels[row->n_labels - 1] >= s->net->m))
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "row %llu has a feature or a label that the network lacks",
                        (unsigned long long)s->at);
    for (size_t i = 0; s->net->input.log1p && i < row->n_features; i++)
        if (row->values[i] <= -1)
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                            "row %llu: feature %d has the value %g, which is no count, and the network takes log1p",
                            (unsigned long long)s->at, row->features[i], (double)row->values[i]);
    if ((status = woi_grow(&s->row_indptr, &s->row_room, s->n + 1, s->n + 2, sizeof(int64_t), err)) ||
        (status = woi_grow(&s->features, &s->features_room, used, used + row->n_features, sizeof(int32_t), err)) ||
        (status = woi_grow(&s->values, &s->values_room, used, used + row->n_features, sizeof(float), err)) ||
        (status = room_for_labels(s, row->n_labels, err)))
        return status;
    if (row->n_features) {
        memcpy(s->features + used, row->features, row->n_features * sizeof(int32_t));
        memcpy(s->values + used, row->values, row->n_features * sizeof(float));
    }
    s->row_indptr[s->n + 1] = (int64_t)(used + row->n_features);
    if (row->n_labels) memcpy(s->labels + s->indptr[s->n], row->labels, row->n_labels * sizeof(int32_t));
    return end_row(s, s->indptr[s->n] + (int64_t)row->n_labels, err);
}

/* The queries of the batch, from the rows that it has taken. */
static void add_rows(woi_queries *s)
{
    const woi_bag bag = woi_network_bag(s->net);
    const woi_bag_rows rows = {s->n, s->row_indptr, s->features, s->values};
    woi_bag_forward(&bag, &s->net->input, &rows, s->options.threads, s->q);
}

static wo_status next_xc(woi_queries *s, wo_error *err)
{
    for (int i = 0; i < CHUNK && s->at < s->n_examples; i++) {
        woi_xc_row row;
        bool more;
        wo_status status = woi_xc_next(s->xc, &row, &more, err);
        if (!status && !more)
            status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "ends after row %llu, but had %llu when it was counted",
                              (unsigned long long)s->at, (unsigned long long)s->n_examples);
        if (!status && is_chosen(s)) status = take_xc_row(s, &row, err);
        if (status) return status;
    }
    if (s->at == s->n_examples) { /* the reader itself says whether rows follow that should not */
        woi_xc_row row;
        bool more;
        wo_status status = woi_xc_next(s->xc, &row, &more, err);
        if (status) return status;
    }
    add_rows(s);
    return WO_OK;
}

/* ---- fasttext ---------------------------------------------------------------------------------------------- */

/* Read once to count the lines: each is an example, also a blank one. */
static wo_status open_lines(woi_queries *s, const char *path, wo_error *err)
{
    wo_status status = woi_text_open(path, &s->text, err);
    for (bool more = true; !status && more;) {
        char *line;
        size_t bytes;
        status = woi_text_line(s->text, &line, &bytes, err);
        more = !status && line;
        s->n_examples += more;
    }
    if (!status && s->n_examples == 0) status = woi_fail(err, WO_ERR_FORMAT, 0, "the file is empty");
    return status ? status : woi_text_rewind(s->text, err);
}

/* The mean of a line's rows, and its labels. */
static wo_status take_line(woi_queries *s, const char *text, size_t bytes, wo_error *err)
{
    const woi_fasttext_lines *lines = &s->lines;
    wo_status status = woi_fasttext_read(&s->lines, text, bytes, woi_text_line_ended(s->text), err);
    if (status || (status = room_for_labels(s, lines->n_labels, err))) return status;
    if (lines->n_labels) memcpy(s->labels + s->indptr[s->n], lines->labels, lines->n_labels * sizeof(int32_t));
    return end_row(s, s->indptr[s->n] + (int64_t)lines->n_labels, err);
}

static wo_status next_lines(woi_queries *s, wo_error *err)
{
    woi_fasttext_begin(&s->lines, s->q);
    for (int i = 0; i < CHUNK && s->at < s->n_examples; i++) {
        char *line;
        size_t bytes;
        wo_status status = woi_text_line(s->text, &line, &bytes, err);
        if (!status && !line)
            status =
                woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "ends after line %llu, but had %llu when it was counted",
                         (unsigned long long)s->at, (unsigned long long)s->n_examples);
        if (!status && is_chosen(s)) status = take_line(s, line, bytes, err);
        if (status) return status;
    }
    woi_fasttext_end(&s->lines);
    return WO_OK;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------ */

/* The file's words as the network's; the two vocabularies are usually the same. */
static wo_status map_words(woi_queries *s, wo_error *err)
{
    const woi_names *words = &s->tokens.words, *known = &s->net->labels;
    if (!(s->class_of = woi_alloc((size_t)words->n, sizeof *s->class_of, err))) return WO_ERR_MEMORY;
    const int32_t unknown = woi_names_find(known, "<unk>", 5);
    for (int32_t i = 0; i < words->n; i++) {
        const char *word = woi_names_get(words, i);
        const size_t bytes = woi_names_bytes(words, i);
        s->class_of[i] = woi_names_find(known, word, bytes);
        if (s->class_of[i] < 0) s->class_of[i] = unknown;
        if (s->class_of[i] < 0) {
            char quoted[WOI_QUOTE_BYTES];
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                            "the word '%s' is not in the network's vocabulary, which has no <unk>",
                            woi_quote(quoted, word, bytes));
        }
    }
    return WO_OK;
}

/* The positions of a window: from, and behind the last. */
static void window_of(const woi_queries *s, uint64_t centre, uint64_t *from, uint64_t *to)
{
    const uint64_t reach = s->net->window;
    *from = centre > reach ? centre - reach : 0;
    *to = s->tokens.n - centre > reach ? centre + reach + 1 : s->tokens.n;
}

/* Where each word is: a counting sort of positions. Words that the network does not know are one word here, <unk>. */
static wo_status list_distinct(woi_queries *s, wo_error *err)
{
    const size_t m = s->net->n_inputs;
    uint64_t *ends = woi_alloc_zero(m + 1, sizeof *ends, err);
    if (!ends || !(s->places = woi_alloc((size_t)s->tokens.n, sizeof *s->places, err)) ||
        !(s->starts = woi_alloc(m + 1, sizeof *s->starts, err)) ||
        !(s->distinct = woi_alloc(m, sizeof *s->distinct, err)) ||
        !(s->seen = woi_alloc_zero(s->net->m, sizeof *s->seen, err)) ||
        !(s->last = woi_alloc_zero(s->net->m, sizeof *s->last, err)) ||
        !(s->near = woi_alloc(s->net->m, sizeof *s->near, err)) ||
        !(s->counts = woi_alloc(CHUNK, sizeof *s->counts, err))) {
        woi_free(ends);
        return WO_ERR_MEMORY;
    }
    for (uint64_t i = 0; i < s->tokens.n; i++) ends[s->class_of[s->tokens.ids[i]] + 1]++;
    s->n_examples = 0;
    for (size_t i = 0; i < m; i++) {
        if (ends[i + 1]) { /* as counts yet */
            s->starts[s->n_examples] = ends[i];
            s->distinct[s->n_examples++] = (int32_t)i;
        }
        ends[i + 1] += ends[i];
    }
    s->starts[s->n_examples] = s->tokens.n;
    for (uint64_t i = 0; i < s->tokens.n; i++) s->places[ends[s->class_of[s->tokens.ids[i]]]++] = i;
    woi_free(ends);
    return WO_OK;
}

static wo_status open_tokens(woi_queries *s, const char *path, wo_error *err)
{
    wo_status status = woi_tokens_open(path, &s->tokens, err);
    if (!status) status = map_words(s, err);
    if (status) return status;
    const bool lm = s->net->arch == WOI_ARCH_LM;
    if (s->options.next == 0) s->options.next = 1;
    const uint64_t ahead = lm ? s->options.next : 1;
    if (s->tokens.n <= ahead)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has %llu words, expected more than %llu",
                        (unsigned long long)s->tokens.n, (unsigned long long)ahead);
    s->n_examples = lm ? s->tokens.n - ahead : s->tokens.n;
    if (!lm && !(s->asked = woi_alloc(CHUNK, sizeof *s->asked, err))) return WO_ERR_MEMORY;
    if (s->options.distinct) return list_distinct(s, err);
    if (!lm) {
        if (s->options.max_queries == 0) s->options.max_queries = DEFAULT_POSITIONS;
        return WO_OK;
    }
    s->lstm = woi_network_lstm(s->net);
    const size_t d = s->net->d;
    if ((status = woi_lstm_slice_create(d, CHUNK, 1, &s->slice, err))) return status;
    if (!(s->x = woi_alloc(CHUNK * d, sizeof(float), err)) || !(s->hidden = woi_alloc(CHUNK * d, sizeof(float), err)))
        return WO_ERR_MEMORY;
    return WO_OK;
}

/* The words from `from` to `to` but for the one at `centre`. */
static wo_status take_words(woi_queries *s, uint64_t from, uint64_t to, uint64_t centre, wo_error *err)
{
    wo_status status = room_for_labels(s, (size_t)(to - from), err);
    if (status) return status;
    int64_t end = s->indptr[s->n];
    for (uint64_t i = from; i < to; i++) {
        const int32_t word = s->class_of[s->tokens.ids[i]];
        if (i != centre && s->net->is_label[word]) s->labels[end++] = word;
    }
    return end_row(s, end, err);
}

/* The words around a position. */
static wo_status take_window(woi_queries *s, uint64_t centre, wo_error *err)
{
    uint64_t from, to;
    window_of(s, centre, &from, &to);
    return take_words(s, from, to, centre, err);
}

/* In how many windows of a word each label is: s->seen, and which these are, s->near. Returns how many. */
static size_t count_near(woi_queries *s, uint64_t word)
{
    size_t n = 0;
    for (uint64_t at = s->starts[word]; at < s->starts[word + 1]; at++) {
        uint64_t from, to;
        window_of(s, s->places[at], &from, &to);
        for (uint64_t i = from; i < to; i++) {
            const int32_t label = s->class_of[s->tokens.ids[i]];
            if (i == s->places[at] || !s->net->is_label[label] || (s->seen[label] && s->last[label] == at)) continue;
            if (!s->seen[label]) s->near[n++].id = label;
            s->seen[label] += s->seen[label] < INT32_MAX; /* as counts are written */
            s->last[label] = at;
        }
    }
    return n;
}

/* The most frequent of n labels, and at most as many again, come first; returns how many. The counts of the others need
 * not be sorted: most words are near a word once or twice. */
static size_t leave_rare(woi_counted *near, size_t n)
{
    enum { HIGH = 1024 };
    size_t at[HIGH] = {0}, above = 0, kept = 0;
    for (size_t i = 0; i < n; i++) at[near[i].count < HIGH ? (int)near[i].count : HIGH - 1]++;
    int bar = HIGH;
    while (bar > 1 && above < MOST_LABELS) above += at[--bar];
    for (size_t i = 0; i < n; i++)
        if (near[i].count >= bar) near[kept++] = near[i];
    return kept;
}

static int by_id(const void *a, const void *b)
{
    const woi_counted *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The labels of a distinct word: those that are in most of its windows. */
static wo_status take_near(woi_queries *s, uint64_t word, wo_error *err)
{
    const size_t found = count_near(s, word), start = (size_t)s->indptr[s->n];
    for (size_t i = 0; i < found; i++) {
        s->near[i].count = s->seen[s->near[i].id];
        s->seen[s->near[i].id] = 0;
    }
    size_t n = leave_rare(s->near, found);
    if (n > 1) qsort(s->near, n, sizeof *s->near, woi_by_count);
    if (n > MOST_LABELS) n = MOST_LABELS;
    if (n > 1) qsort(s->near, n, sizeof *s->near, by_id);
    wo_status status = room_for_labels(s, n, err);
    if (!status)
        status = woi_grow(&s->label_counts, &s->label_counts_room, start, start + n, sizeof *s->label_counts, err);
    if (status) return status;
    for (size_t i = 0; i < n; i++) {
        s->labels[start + i] = s->near[i].id;
        s->label_counts[start + i] = (int32_t)s->near[i].count;
    }
    const uint64_t times = s->starts[word + 1] - s->starts[word];
    s->counts[s->n] = (int32_t)(times < INT32_MAX ? times : INT32_MAX);
    return end_row(s, (int64_t)(start + n), err);
}

static wo_status next_w2v(woi_queries *s, wo_error *err)
{
    const size_t d = s->net->d;
    const float *e = s->net->params[0].w;
    while (s->n < CHUNK && s->at < s->n_examples) {
        const uint64_t at = s->at;
        if (!is_chosen(s)) continue;
        s->asked[s->n] = s->distinct ? s->distinct[at] : s->class_of[s->tokens.ids[at]];
        const float *row = e + (size_t)s->asked[s->n] * d;
        for (size_t j = 0; j < d; j++) s->q[s->n * d + j] = row[j] > 0 ? row[j] : 0;
        wo_status status = s->distinct ? take_near(s, at, err) : take_window(s, at, err);
        if (status) return status;
    }
    return WO_OK;
}

static wo_status next_lm(woi_queries *s, wo_error *err)
{
    const size_t d = s->net->d;
    const uint64_t first = s->at, left = s->n_examples - first, steps = left < CHUNK ? left : CHUNK;
    for (uint64_t i = 0; i < steps; i++)
        memcpy(s->x + i * d, s->net->params[0].w + (size_t)s->class_of[s->tokens.ids[first + i]] * d,
               d * sizeof(float));
    woi_lstm_forward(&s->lstm, s->slice, (size_t)steps, s->x, NULL, s->hidden);
    for (uint64_t i = 0; i < steps; i++) {
        if (!is_chosen(s)) continue;
        memcpy(s->q + s->n * d, s->hidden + i * d, d * sizeof(float));
        const uint64_t at = first + i;
        wo_status status = take_words(s, at + 1, at + 1 + s->options.next, at, err);
        if (status) return status;
    }
    return WO_OK;
}

/* ---- Outside ----------------------------------------------------------------------------------------------- */

wo_status woi_queries_open(const woi_network *net, const char *path, const woi_queries_options *options,
                           woi_queries **result, wo_error *err)
{
    if (options->distinct && net->arch != WOI_ARCH_W2V)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_NONE, "distinct",
                              "is a network of kind %s, expected w2v, whose queries are single words",
                              woi_arch_name(net->arch));
    woi_queries *s = woi_alloc_zero(1, sizeof *s, err);
    if (!s) return WO_ERR_MEMORY;
    s->net = net;
    s->options = *options;
    s->options.threads = woi_team_threads(s->options.threads);
    s->lines = (woi_fasttext_lines){.net = net, .threads = s->options.threads};
    wo_status status = WO_ERR_MEMORY;
    if (!(s->q = woi_alloc(CHUNK * net->d, sizeof(float), err))) goto done;
    if ((status = woi_grow(&s->indptr, &s->indptr_room, 0, 1, sizeof(int64_t), err)) ||
        (status = woi_grow(&s->row_indptr, &s->row_room, 0, 1, sizeof(int64_t), err)))
        goto done;
    s->indptr[0] = s->row_indptr[0] = 0;
    status = net->arch == WOI_ARCH_XC         ? open_xc(s, path, err)
             : net->arch == WOI_ARCH_FASTTEXT ? open_lines(s, path, err)
                                              : open_tokens(s, path, err);
    if (status) goto done;
    const uint64_t most = s->options.max_queries;
    s->n_chosen = most && most < s->n_examples ? most : s->n_examples;
    *result = s;
    s = NULL;
done:
    woi_queries_free(s);
    return status;
}

uint64_t woi_queries_n(const woi_queries *s)
{
    return s->n_chosen;
}

wo_status woi_queries_next(woi_queries *s, woi_query_batch *batch, bool *more, wo_error *err)
{
    s->n = 0;
    wo_status status = s->net->arch == WOI_ARCH_XC         ? next_xc(s, err)
                       : s->net->arch == WOI_ARCH_FASTTEXT ? next_lines(s, err)
                       : s->net->arch == WOI_ARCH_W2V      ? next_w2v(s, err)
                                                           : next_lm(s, err);
    *batch = (woi_query_batch){s->n, s->q, s->indptr, s->labels, s->asked, s->counts, s->label_counts};
    *more = s->at < s->n_examples;
    return status;
}

wo_status woi_queries_rewind(woi_queries *s, wo_error *err)
{
    s->at = s->taken = 0;
    if (s->slice) woi_lstm_slice_reset(s->slice);
    return s->xc ? woi_xc_rewind(s->xc, err) : s->text ? woi_text_rewind(s->text, err) : WO_OK;
}

void woi_queries_free(woi_queries *s)
{
    if (!s) return;
    woi_xc_free(s->xc);
    woi_text_free(s->text);
    woi_fasttext_free(&s->lines);
    woi_tokens_close(&s->tokens);
    woi_lstm_slice_free(s->slice);
    void *const owned[] = {s->q,        s->indptr,   s->labels,       s->row_indptr, s->features, s->values,
                           s->class_of, s->distinct, s->starts,       s->places,     s->seen,     s->last,
                           s->near,     s->counts,   s->label_counts, s->asked,      s->x,        s->hidden};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(s);
}
