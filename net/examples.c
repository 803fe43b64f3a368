/* Raw examples to queries: lines or stanzas in, names looked up, hidden layers computed for a batch at a time. */
#include "net/examples.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/team.h"
#include "base/utf8.h"
#include "net/fasttext.h"
#include "text/deb822.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024, STEPS = 256, ROWS_FOR_THREADS = 64, LONG_ENOUGH = 1 << 16 };

typedef struct entry {
    int32_t id;
    float value;
} entry;

struct woi_examples {
    const woi_network *net;
    woi_raw raw;
    int threads;
    woi_text *text; /* the reader's, where there is one */
    woi_xc *xc;
    woi_deb822 *deb822;
    bool finished;
    wo_error bad; /* found behind the examples of the last batch; status 0: nothing */
    /* the batch */
    size_t n;
    float *q;
    uint64_t *lines;
    uint32_t *known;
    /* the bags of an xc network: example i has features[indptr[i] .. indptr[i+1]) */
    int64_t *indptr;
    int32_t *features;
    float *values;
    entry *entries; /* of the example that is read */
    size_t n_entries, features_room, values_room, entries_room;
    woi_fasttext_lines words; /* the lines of a fasttext network */
    /* lm */
    woi_lstm lstm;
    woi_lstm_slice *slice;
    float *x, *hidden; /* (STEPS, d) */
    size_t n_steps;    /* words in x */
};

/* ---- Reading without waiting ------------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether the next example can be taken from what has been read. */
static bool is_ready(const woi_examples *s)
{
    const char *text;
    size_t bytes;
    woi_text_unread(s->text, &text, &bytes);
    while (bytes > 0 && is_space(*text)) text++, bytes--;
    return woi_text_at_end(s->text) || memmem(text, bytes, "\n\n", s->raw == WOI_RAW_DEB822 ? 2 : 1);
}

/* Passes over blank lines, so that the number of the line after them is known. A line that comes in many pieces is
 * looked at once: what is known to be blank stays so. */
static wo_status skip_blank(woi_examples *s, wo_error *err)
{
    for (size_t blank = 0;;) {
        const char *text;
        char *line;
        size_t bytes;
        woi_text_unread(s->text, &text, &bytes);
        while (blank < bytes && text[blank] != '\n' && is_space(text[blank])) blank++;
        if (blank < bytes && text[blank] != '\n') return WO_OK;
        if (blank == bytes && woi_text_at_end(s->text)) {
            woi_text_take(s->text, bytes);
            return WO_OK;
        }
        const bool whole = blank < bytes || bytes > WOI_TEXT_LINE_BYTES; /* or too long, which the reader says */
        wo_status status =
            whole ? woi_text_line(s->text, &line, &bytes, err) : woi_text_fill(s->text, &text, &bytes, err);
        if (status) return status;
        if (whole) blank = 0;
    }
}

/* ---- Bags -------------------------------------------------------------------------------------------------- */

static wo_status add_entry(woi_examples *s, int32_t id, float value, wo_error *err)
{
    wo_status status = woi_grow(&s->entries, &s->entries_room, s->n_entries, s->n_entries + 1, sizeof(entry), err);
    if (!status) s->entries[s->n_entries++] = (entry){id, value};
    return status;
}

/* A woi_name_fn: names that the network does not know are left out. */
static wo_status add_feature(void *ctx, const char *name, size_t bytes, wo_error *err)
{
    woi_examples *s = ctx;
    const int32_t id = woi_names_find(&s->net->features, name, bytes);
    return id < 0 ? WO_OK : add_entry(s, id, 1, err);
}

static int by_id(const void *a, const void *b)
{
    const int32_t x = ((const entry *)a)->id, y = ((const entry *)b)->id;
    return (x > y) - (x < y);
}

/* The entries as the next row: ids that rise, values of the same added up, as a data file has them. */
static wo_status end_bag(woi_examples *s, wo_error *err)
{
    const size_t begin = (size_t)s->indptr[s->n];
    size_t end = begin;
    wo_status status;
    if ((status = woi_grow(&s->features, &s->features_room, begin, begin + s->n_entries, sizeof(int32_t), err)) ||
        (status = woi_grow(&s->values, &s->values_room, begin, begin + s->n_entries, sizeof(float), err)))
        return status;
    if (s->n_entries > 1) qsort(s->entries, s->n_entries, sizeof(entry), by_id);
    for (size_t i = 0; i < s->n_entries; i++) {
        if (end > begin && s->features[end - 1] == s->entries[i].id) {
            s->values[end - 1] += s->entries[i].value;
            continue;
        }
        s->features[end] = s->entries[i].id;
        s->values[end++] = s->entries[i].value;
    }
    s->indptr[s->n + 1] = (int64_t)end;
    s->known[s->n] = (uint32_t)(end - begin);
    return WO_OK;
}

static wo_status take_xc(woi_examples *s, bool *more, wo_error *err)
{
    woi_xc_row row;
    wo_status status = woi_xc_next(s->xc, &row, more, err);
    if (status || !*more) return status;
    const uint64_t line = woi_text_line_number(s->text);
    if (row.n_features && (size_t)row.features[row.n_features - 1] >= s->net->n_inputs)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "line %" PRIu64 ": feature %" PRId32 ", counting from 0, is not below the network's %zu", line,
                        row.features[row.n_features - 1], s->net->n_inputs);
    for (size_t i = 0; !status && i < row.n_features; i++) {
        if (s->net->input.log1p && row.values[i] <= -1)
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                            "line %" PRIu64 ": feature %" PRId32
                            " has the value %g, which is no count, and the network takes log1p",
                            line, row.features[i], (double)row.values[i]);
        status = add_entry(s, row.features[i], row.values[i], err);
    }
    s->lines[s->n] = line;
    return status ? status : end_bag(s, err);
}

static wo_status take_stanza(woi_examples *s, bool *more, wo_error *err)
{
    woi_stanza stanza;
    wo_status status = skip_blank(s, err);
    s->lines[s->n] = woi_text_line_number(s->text) + 1;
    if (!status) status = woi_deb822_next(s->deb822, &stanza, more, err);
    if (!status && *more) status = woi_deb822_features(&stanza, add_feature, s, err);
    return status || !*more ? status : end_bag(s, err);
}

/* ---- Words ------------------------------------------------------------------------------------------------- */

/* Takes the next word off a line; false when none is left. */
static bool take_word(woi_span *rest, woi_span *word)
{
    while (rest->bytes > 0 && is_space(*rest->text)) rest->text++, rest->bytes--;
    *word = (woi_span){rest->text, 0};
    while (word->bytes < rest->bytes && !is_space(rest->text[word->bytes])) word->bytes++;
    rest->text += word->bytes;
    rest->bytes -= word->bytes;
    return word->bytes > 0;
}

/* A word that is no feature as it stands ("Fisheries,") is cut into runs of letters and digits in lower case. */
static wo_status words_to_bag(woi_examples *s, woi_span line, wo_error *err)
{
    if (strcmp(s->net->extractor, "deb822") == 0) return woi_deb822_words("desc:", line, add_feature, s, err);
    woi_span word;
    wo_status status = WO_OK;
    while (!status && take_word(&line, &word)) {
        const int32_t id = woi_names_find(&s->net->features, word.text, word.bytes);
        status = id >= 0 ? add_entry(s, id, 1, err) : woi_deb822_words("", word, add_feature, s, err);
    }
    return status;
}

/* The embedding of a word, perhaps that of <unk>. */
static wo_status look_up(woi_examples *s, woi_span word, const float **row, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    int32_t id = woi_names_find(&s->net->labels, word.text, word.bytes);
    s->known[s->n] += id >= 0;
    if (id < 0) id = woi_names_find(&s->net->labels, "<unk>", 5);
    if (id < 0)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "line %" PRIu64 ": the word '%s' is not in the network's vocabulary, which has no <unk>",
                        s->lines[s->n], woi_quote(quoted, word.text, word.bytes));
    *row = s->net->params[0].w + (size_t)id * s->net->d;
    return WO_OK;
}

static void run_lstm(woi_examples *s)
{
    woi_lstm_forward(&s->lstm, s->slice, s->n_steps, s->x, NULL, s->hidden);
}

/* The state after the last word of a line that begins from nothing. */
static wo_status words_to_state(woi_examples *s, woi_span line, wo_error *err)
{
    const size_t d = s->net->d;
    woi_span word;
    woi_lstm_slice_reset(s->slice);
    for (s->n_steps = 0; take_word(&line, &word); s->n_steps++) {
        const float *row;
        wo_status status = look_up(s, word, &row, err);
        if (status) return status;
        if (s->n_steps == STEPS) {
            run_lstm(s);
            s->n_steps = 0;
        }
        memcpy(s->x + s->n_steps * d, row, d * sizeof *row);
    }
    run_lstm(s);
    memcpy(s->q + s->n * d, s->hidden + (s->n_steps - 1) * d, d * sizeof *s->q);
    return WO_OK;
}

static wo_status word_to_query(woi_examples *s, woi_span line, wo_error *err)
{
    woi_span word, other;
    const float *row;
    char quoted[WOI_QUOTE_BYTES];
    take_word(&line, &word);
    if (take_word(&line, &other))
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "line %" PRIu64 ": expected one word, found '%s' behind it",
                        s->lines[s->n], woi_quote(quoted, other.text, other.bytes));
    wo_status status = look_up(s, word, &row, err);
    for (size_t j = 0; !status && j < s->net->d; j++) s->q[s->n * s->net->d + j] = row[j] > 0 ? row[j] : 0;
    return status;
}

static wo_status words_to_mean(woi_examples *s, woi_span text, wo_error *err)
{
    wo_status status = woi_fasttext_read(&s->words, text.text, text.bytes, woi_text_line_ended(s->text), err);
    if (!status) s->known[s->n] = (uint32_t)s->words.n_known;
    return status;
}

static wo_status take_line(woi_examples *s, bool *more, wo_error *err)
{
    char *line;
    size_t bytes;
    const bool fasttext = s->net->arch == WOI_ARCH_FASTTEXT; /* for which any line will do */
    wo_status status = fasttext ? WO_OK : skip_blank(s, err);
    if (!status) status = woi_text_line(s->text, &line, &bytes, err);
    if (status) return status;
    *more = line != NULL;
    if (!line) return WO_OK;
    s->lines[s->n] = woi_text_line_number(s->text);
    if (!fasttext && !woi_utf8_valid(line, bytes))
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "line %" PRIu64 ": is not UTF-8", s->lines[s->n]);
    const woi_span span = {line, bytes};
    switch (s->net->arch) {
    case WOI_ARCH_W2V: return word_to_query(s, span, err);
    case WOI_ARCH_LM: return words_to_state(s, span, err);
    case WOI_ARCH_FASTTEXT: return words_to_mean(s, span, err);
    default: break;
    }
    status = words_to_bag(s, span, err);
    return status ? status : end_bag(s, err);
}

/* ---- Opening ----------------------------------------------------------------------------------------------- */

/* Rows such as "3,5 1:0.5 7:1", and the header above them. */
static bool looks_like_xc(const char *line, size_t bytes)
{
    bool numbers = memchr(line, ' ', bytes), feature = false,
         digit = false; /* numbers alone: the header, two or more */
    for (size_t i = 0; i < bytes; i++) {
        if (!strchr("0123456789,:.eE+- \t\r", line[i]) || line[i] == '\0') return false;
        numbers = numbers && strchr("0123456789 \t\r", line[i]);
        digit = digit || (line[i] >= '0' && line[i] <= '9');
        feature = feature || (line[i] == ':' && i > 0 && line[i - 1] >= '0' && line[i - 1] <= '9');
    }
    return feature || (numbers && digit);
}

static bool looks_like_stanza(const char *line, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && ((line[n] >= 'a' && line[n] <= 'z') || (line[n] >= 'A' && line[n] <= 'Z') || line[n] == '-'))
        n++;
    return (n > 0 && n < bytes && line[n] == ':') || (bytes > 0 && *line == '#');
}

/* What the first line is. Nothing of the text is taken. */
static wo_status guess(woi_examples *s, wo_error *err)
{
    s->raw = WOI_RAW_TEXT;
    if (s->net->arch != WOI_ARCH_XC) return WO_OK;
    s->raw = WOI_RAW_XC;
    if (s->net->features.n == 0) return WO_OK;
    const char *text = NULL, *end = NULL;
    size_t bytes, first = 0, searched = 0; /* where the line begins; where no end of it is */
    for (woi_text_unread(s->text, &text, &bytes);;) {
        while (first < bytes && is_space(text[first]) && text[first] != ' ') first++;
        if (searched < first) searched = first;
        end = memchr(text + searched, '\n', bytes - searched);
        searched = bytes;
        if (end || woi_text_at_end(s->text) || bytes > LONG_ENOUGH) break;
        wo_status status = woi_text_fill(s->text, &text, &bytes, err);
        if (status) return status;
    }
    const char *line = text + first;
    bytes = end ? (size_t)(end - line) : bytes - first;
    if (!looks_like_xc(line, bytes)) {
        const bool stanzas = strcmp(s->net->extractor, "deb822") == 0 && looks_like_stanza(line, bytes);
        s->raw = stanzas ? WOI_RAW_DEB822 : WOI_RAW_TEXT;
    }
    return WO_OK;
}

/* Whether the network can read this at all. */
static wo_status check_format(const woi_network *net, woi_raw raw, wo_error *err)
{
    if (net->arch != WOI_ARCH_XC && raw != WOI_RAW_TEXT && raw != WOI_RAW_AUTO)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "is a network of words, which takes text only");
    if (net->arch != WOI_ARCH_XC && net->labels.n == 0)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "has no vocabulary: it cannot read words");
    if (raw == WOI_RAW_DEB822 && strcmp(net->extractor, "deb822") != 0)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "was not trained on package stanzas ('data deb822')");
    if (net->arch == WOI_ARCH_XC && raw == WOI_RAW_TEXT && net->features.n == 0)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "has no names of features: it takes extreme-classification lines, not text");
    return WO_OK;
}

static wo_status make_room(woi_examples *s, wo_error *err)
{
    const size_t d = s->net->d;
    if (!(s->q = woi_alloc(CHUNK * d, sizeof(float), err)) || !(s->lines = woi_alloc(CHUNK, sizeof(uint64_t), err)) ||
        !(s->known = woi_alloc(CHUNK, sizeof(uint32_t), err)) ||
        !(s->indptr = woi_alloc_zero(CHUNK + 1, sizeof(int64_t), err)))
        return WO_ERR_MEMORY;
    if (s->net->arch != WOI_ARCH_LM) return WO_OK;
    s->lstm = woi_network_lstm(s->net);
    if (!(s->x = woi_alloc(STEPS * d, sizeof(float), err)) || !(s->hidden = woi_alloc(STEPS * d, sizeof(float), err)))
        return WO_ERR_MEMORY;
    return woi_lstm_slice_create(d, STEPS, 1, &s->slice, err);
}

/* Opens the reader that goes with the format. It owns the text from then on, but we go on looking at it. */
static wo_status open_reader(woi_examples *s, woi_xc_base base, wo_error *err)
{
    woi_text *text = s->text;
    wo_status status = WO_OK;
    if (s->raw == WOI_RAW_TEXT) return WO_OK;
    s->text = NULL;
    if (s->raw == WOI_RAW_XC) /* what a person types has no header and is not sorted */
        status = woi_xc_open_text(text, &(woi_xc_options){.lenient = true, .base = base}, &s->xc, err);
    else
        status = woi_deb822_open_text(text, &s->deb822, err);
    if (!status) s->text = text;
    return status;
}

/* Takes the text over, on failure too. */
static wo_status open_text(const woi_network *net, woi_text *from, const woi_examples_options *options,
                           woi_examples **result, wo_error *err)
{
    woi_examples *s = woi_alloc_zero(1, sizeof *s, err);
    if (!s) {
        woi_text_free(from);
        return WO_ERR_MEMORY;
    }
    s->net = net;
    s->raw = options->raw;
    s->threads = woi_team_threads(options->threads);
    s->words = (woi_fasttext_lines){.net = net, .threads = s->threads};
    s->text = from;
    const char *text = NULL;
    size_t bytes = 0;
    wo_status status = make_room(s, err);
    if (!status) status = woi_text_fill(s->text, &text, &bytes, err);
    if (!status && s->raw == WOI_RAW_AUTO) status = guess(s, err);
    s->finished = bytes == 0; /* a pipe that brings nothing has no example: that is no failure */
    if (!status && !s->finished) status = open_reader(s, options->base, err);
    if (status)
        woi_examples_free(s);
    else
        *result = s;
    return status;
}

wo_status woi_examples_open(const woi_network *net, const char *path, const woi_examples_options *options,
                            woi_examples **result, wo_error *err)
{
    woi_text *text = NULL;
    wo_status status = check_format(net, options->raw, err);
    if (!status) status = woi_text_open(path, &text, err);
    return status ? status : open_text(net, text, options, result, err);
}

wo_status woi_examples_open_memory(const woi_network *net, const char *from, size_t bytes,
                                   const woi_examples_options *options, woi_examples **result, wo_error *err)
{
    woi_text *text = NULL;
    wo_status status = check_format(net, options->raw, err);
    if (!status) status = woi_text_open_memory(from, bytes, &text, err);
    return status ? status : open_text(net, text, options, result, err);
}

void woi_examples_free(woi_examples *s)
{
    if (!s) return;
    if (!s->xc && !s->deb822) woi_text_free(s->text);
    woi_xc_free(s->xc);
    woi_deb822_free(s->deb822);
    woi_lstm_slice_free(s->slice);
    woi_fasttext_free(&s->words);
    void *const owned[] = {s->q, s->lines, s->known, s->indptr, s->features, s->values, s->entries, s->x, s->hidden};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) woi_free(owned[i]);
    woi_free(s);
}

/* ---- Batches ----------------------------------------------------------------------------------------------- */

woi_raw woi_examples_raw(const woi_examples *s)
{
    return s->raw;
}

static wo_status take_example(woi_examples *s, bool *more, wo_error *err)
{
    s->n_entries = 0;
    s->known[s->n] = 0;
    switch (s->raw) {
    case WOI_RAW_XC: return take_xc(s, more, err);
    case WOI_RAW_DEB822: return take_stanza(s, more, err);
    default: return take_line(s, more, err);
    }
}

wo_status woi_examples_next(woi_examples *s, woi_example_batch *batch, bool *more, wo_error *err)
{
    wo_error bad = s->bad;
    s->bad.status = WO_OK;
    s->n = 0;
    woi_fasttext_begin(&s->words, s->q);
    while (!bad.status && !s->finished && s->n < CHUNK && (s->n == 0 || is_ready(s))) {
        const uint64_t line = woi_text_line_number(s->text);
        bool found = false;
        if (take_example(s, &found, &bad)) { /* nothing to go on with where the line itself could not be had */
            s->finished = s->raw == WOI_RAW_DEB822 || woi_text_line_number(s->text) == line;
            break;
        }
        s->n += found;
        s->finished = !found;
    }
    if (bad.status && s->n == 0) {
        if (err) *err = bad;
        return bad.status;
    }
    s->bad = bad;
    if (s->net->arch == WOI_ARCH_FASTTEXT) woi_fasttext_end(&s->words);
    if (s->net->arch == WOI_ARCH_XC && s->n) {
        const woi_bag bag = woi_network_bag(s->net);
        const woi_bag_rows rows = {s->n, s->indptr, s->features, s->values};
        woi_bag_forward(&bag, &s->net->input, &rows, s->n < ROWS_FOR_THREADS ? 1 : s->threads, s->q);
    }
    *batch = (woi_example_batch){s->n, s->q, s->lines, s->known};
    *more = s->n > 0;
    return WO_OK;
}
