/* Reading the extreme-classification text format, plain or gzip, a row at a time.
 *
 *   one file:   "N F L", then rows  "l1,l2 f:v f:v"   (a row that begins with a space has no labels)
 *   two files:  "rows cols", then rows  "c:v c:v"     (one for features, one for labels; an empty line is an empty row)
 *
 * Strict by default: one space between items, ids that rise, '\n' line ends, a header that tells the truth. `lenient`
 * accepts the dialects that occur: no header, CRLF, tabs and repeated or trailing spaces, ids in any order or repeated
 * (sorted; values of the same feature are added up), features without a value (1), blank lines.
 *
 * Lines come whole from text.c, each ended by '\n': so the parser below needs no bounds, a digit loop stops at the
 * line's end by itself. */
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "store/store.h"
#include "text/text.h"
#include "text/xc_value.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sortable {
    int32_t id;
    float value;
    size_t place;
} sortable;

struct woi_xc {
    woi_xc_options options;
    woi_xc_shape shape;
    woi_text *text;
    char *line;           /* the one last taken; ends at '\n' */
    size_t line_bytes;    /* without that */
    uint64_t line_offset; /* in the unpacked text */
    uint64_t n_rows;      /* rows handed out */
    bool complete, again; /* the last row was read; this is a pass over a file whose whole shape is known */
    char *first;          /* a lenient file's first line, when it was a row and not a header */
    int32_t *labels, *features;
    float *values;
    sortable *sort;
    size_t labels_capacity, features_capacity, values_capacity, sort_capacity;
};

/* ---- Lines ------------------------------------------------------------------------------------------------- */

static wo_status fail_line(const woi_xc *xc, const char *at, wo_error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "line 12: ..." */
static wo_status fail_line(const woi_xc *xc, const char *at, wo_error *err, const char *format, ...)
{
    if (!err) return WO_ERR_FORMAT;
    char rest[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(rest, sizeof rest, format, args);
    va_end(args);
    return woi_fail(err, WO_ERR_FORMAT, xc->line_offset + (uint64_t)(at - xc->line), "line %" PRIu64 ": %s",
                    woi_text_line_number(xc->text), rest);
}

/* Hands the failure on, of what lenient reading takes. */
static wo_status strictly(wo_status status, wo_error *err)
{
    woi_error_option(err, WO_ABOUT_NONE, "lenient");
    return status;
}

/* What stands at `at`, up to the next space, for a sentence. */
static const char *item(const char *at, char quoted[WOI_QUOTE_BYTES])
{
    size_t n = *at == ' ';
    while (at[n] != ' ' && at[n] != '\n') n++;
    return woi_quote(quoted, at, n);
}

/* The next line, ended by '\n'; NULL at the end of the text. */
static wo_status next_line(woi_xc *xc, char **line, wo_error *err)
{
    xc->line_offset = woi_text_offset(xc->text);
    wo_status status = woi_text_line(xc->text, &xc->line, &xc->line_bytes, err);
    *line = xc->line;
    if (status || !*line) return status;
    if (xc->line[xc->line_bytes] == '\r') {
        if (!xc->options.lenient)
            return strictly(fail_line(xc, xc->line + xc->line_bytes, err, "ends in CRLF, expected LF"), err);
        xc->line[xc->line_bytes] = '\n';
    }
    return WO_OK;
}

/* ---- The header -------------------------------------------------------------------------------------------- */

/* Two or three whole numbers and nothing else; returns how many there are, 0 for a line of another kind. */
static int read_counts(const char *p, bool lenient, uint64_t counts[3])
{
    int n = 0;
    while (n < 4) {
        if (lenient) p += strspn(p, " \t");
        if (*p == '\n') break;
        if (n == 3 || !woi_is_digit(*p)) return 0;
        uint64_t value = 0;
        for (; woi_is_digit(*p); p++)
            if (value < UINT64_MAX / 100) value = value * 10 + (uint64_t)(*p - '0');
        counts[n++] = value;
        if (!lenient && *p == ' ' && woi_is_digit(p[1])) p++;
    }
    return n >= 2 ? n : 0;
}

/* Whether a line has "2:1" in it, as rows do. */
static bool has_feature(const char *line)
{
    for (const char *at = line; (at = strchr(at, ':')) != NULL; at++)
        if (at > line && isdigit((unsigned char)at[-1]) && isdigit((unsigned char)at[1])) return true;
    return false;
}

static wo_status refuse_fasttext(woi_xc *xc, const char *line, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    const wo_status status =
        fail_line(xc, line, err, "'%s' is fastText's text, which has words: expected numbers, 'l1,l2 f:v f:v'",
                  woi_quote(quoted, line, xc->line_bytes));
    woi_error_option(err, WO_ABOUT_NONE, "fasttext");
    return status;
}

static wo_status read_header(woi_xc *xc, wo_error *err)
{
    char *line, quoted[WOI_QUOTE_BYTES];
    wo_status status = next_line(xc, &line, err);
    if (status) return status;
    if (!line) return woi_fail(err, WO_ERR_FORMAT, 0, "the file is empty");
    if (strncmp(line, "__label__", 9) == 0) return refuse_fasttext(xc, line, err);
    uint64_t counts[3] = {0};
    int n = read_counts(line, xc->options.lenient, counts);
    if (n == 0 && !xc->options.lenient) {
        status = fail_line(xc, line, err, "expected the header 'N F L' (or 'rows cols'), found '%s'",
                           woi_quote(quoted, line, xc->line_bytes));
        return has_feature(line) ? strictly(status, err) : status;
    }
    if (n == 0) {
        xc->first = line;
        return WO_OK;
    }
    for (int i = 0; i < 3; i++)
        if (counts[i] > INT32_MAX)
            return fail_line(xc, line, err, "a count in the header '%s' is more than %d",
                             woi_quote(quoted, line, xc->line_bytes), INT32_MAX);
    xc->shape = (woi_xc_shape){n == 2, true, counts[0], counts[1], counts[2]};
    return WO_OK;
}

/* Said before anything else: of a picture, "line 1 ends in CRLF" would be true and no help. */
static wo_status check_text(woi_xc *xc, wo_error *err)
{
    const char *head;
    size_t bytes;
    woi_text_unread(xc->text, &head, &bytes);
    wo_status status = bytes ? WO_OK : woi_text_fill(xc->text, &head, &bytes, err);
    if (status) return status;
    if (memchr(head, '\0', bytes < 512 ? bytes : 512))
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "path", "is not text, it has NUL bytes");
    if (woi_utf8_mark(head, bytes))
        return woi_fail(err, WO_ERR_FORMAT, 0, "begins with a byte order mark, expected the header 'N F L'");
    return WO_OK;
}

#define CHANGED "changed while it was read: run it again when the file is at rest"

wo_status woi_xc_rewind(woi_xc *xc, wo_error *err)
{
    const woi_xc_shape before = xc->shape;
    const bool complete = xc->complete || xc->again;
    xc->shape = (woi_xc_shape){0};
    xc->n_rows = 0;
    xc->first = NULL;
    xc->complete = xc->again = false;
    wo_status status = woi_text_rewind(xc->text, err);
    if (!status) status = check_text(xc, err);
    if (!status) status = read_header(xc, err);
    if (status) return status;
    const woi_xc_shape *now = &xc->shape;
    if (now->has_header != before.has_header || now->matrix != before.matrix ||
        (now->has_header &&
         (now->n != before.n || now->n_features != before.n_features || now->n_labels != before.n_labels)))
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, CHANGED);
    xc->again = complete;
    if (complete) xc->shape = before;
    return WO_OK;
}

wo_status woi_xc_open(const char *path, const woi_xc_options *options, woi_xc **result, wo_error *err)
{
    /* Some commands read a file twice, so standard input is not for this format: "-" is a name like any other. */
    woi_text *text = NULL;
    wo_status status = woi_text_open(strcmp(path, "-") == 0 ? "./-" : path, &text, err);
    return status ? status : woi_xc_open_text(text, options, result, err);
}

wo_status woi_xc_open_text(woi_text *text, const woi_xc_options *options, woi_xc **result, wo_error *err)
{
    woi_xc *xc = woi_alloc_zero(1, sizeof *xc, err);
    if (!xc) {
        woi_text_free(text);
        return WO_ERR_MEMORY;
    }
    xc->options = *options;
    xc->text = text;
    wo_status status = check_text(xc, err);
    if (!status) status = read_header(xc, err);
    if (status)
        woi_xc_free(xc);
    else
        *result = xc;
    return status;
}

void woi_xc_free(woi_xc *xc)
{
    if (!xc) return;
    woi_text_free(xc->text);
    woi_free(xc->labels);
    woi_free(xc->features);
    woi_free(xc->values);
    woi_free(xc->sort);
    woi_free(xc);
}

/* ---- Rows -------------------------------------------------------------------------------------------------- */

/* An id below `limit`, as the file counts; -1, with the sentence, where there is none. */
static int32_t take_id(woi_xc *xc, char **at, const char *what, bool one_based, uint64_t limit, wo_error *err)
{
    char *p = *at, quoted[WOI_QUOTE_BYTES];
    uint64_t id = 0;
    for (; woi_is_digit(*p); p++) {
        id = id * 10 + (uint64_t)(*p - '0');
        if (id > UINT32_MAX) id = UINT32_MAX; /* too large anyway, but do not wrap */
    }
    if (p == *at) {
        fail_line(xc, p, err, "expected a %s number, found '%s'", what, item(p, quoted));
        return -1;
    }
    if (one_based && id == 0) {
        fail_line(xc, *at, err, "%s 0 in a file whose %ss count from 1", what, what);
        return -1;
    }
    id -= one_based;
    if (id >= limit) {
        if (xc->again)
            (void)woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, CHANGED);
        else if (xc->shape.has_header)
            fail_line(xc, *at, err, "%s %s is not below the %" PRIu64 " %ss of the header", what,
                      woi_quote(quoted, *at, (size_t)(p - *at)), limit, what);
        else
            fail_line(xc, *at, err, "%s %s is too large", what, woi_quote(quoted, *at, (size_t)(p - *at)));
        return -1;
    }
    *at = p;
    return (int32_t)id;
}

static uint64_t limit_of(const woi_xc *xc, uint64_t counted)
{
    return xc->shape.has_header || xc->again ? counted : INT32_MAX;
}

static wo_status fail_order(const woi_xc *xc, const char *at, const char *what, int32_t id, int32_t before,
                            wo_error *err)
{
    bool one_based = xc->options.base == WOI_XC_ONE_BASED ||
                     (xc->options.base == WOI_XC_ONE_BASED_FEATURES && strcmp(what, "label") != 0);
    return strictly(fail_line(xc, at, err, "%s %d %s", what, id + one_based,
                              id == before ? "is repeated" : "comes after a larger one"),
                    err);
}

/* "3,17,4": ends at the separator after it. */
static wo_status take_labels(woi_xc *xc, char **at, woi_xc_row *row, wo_error *err)
{
    const bool lenient = xc->options.lenient, one_based = xc->options.base == WOI_XC_ONE_BASED;
    const uint64_t limit = limit_of(xc, xc->shape.n_labels);
    size_t n = 0;
    for (char *p = *at;; p++) {
        char *start = p;
        if (*p == ',' || ((*p == ' ' || *p == '\n') && n > 0))
            return fail_line(xc, p, err, "an empty item in the label list");
        int32_t id = take_id(xc, &p, "label", one_based, limit, err);
        if (id < 0) return WO_ERR_FORMAT;
        if (!lenient && n > 0 && id <= xc->labels[n - 1])
            return fail_order(xc, start, "label", id, xc->labels[n - 1], err);
        wo_status status = woi_grow(&xc->labels, &xc->labels_capacity, n, n + 1, sizeof *xc->labels, err);
        if (status) return status;
        xc->labels[n++] = id;
        if (*p == ',') continue;
        *at = p;
        break;
    }
    row->n_labels = n;
    return WO_OK;
}

/* "12:0.5 13:1": from the first character of the first item to the '\n'. */
static wo_status take_features(woi_xc *xc, char *p, woi_xc_row *row, wo_error *err)
{
    const bool lenient = xc->options.lenient, one_based = xc->options.base != WOI_XC_ZERO_BASED;
    const char *what = xc->shape.matrix ? "column" : "feature";
    const uint64_t limit = limit_of(xc, xc->shape.n_features);
    char quoted[WOI_QUOTE_BYTES];
    int32_t before = -1;
    size_t n = 0;
    for (;;) {
        if (lenient) p += strspn(p, " \t");
        if (*p == '\n') break;
        char *start = p;
        int32_t id = take_id(xc, &p, what, one_based, limit, err);
        if (id < 0) return WO_ERR_FORMAT;
        float value = 1;
        if (*p == ':') {
            const char *end = woi_xc_parse_value_fast(p + 1, &value);
            if (!end || (*end != ' ' && *end != '\n' && !(lenient && *end == '\t')))
                return fail_line(xc, p + 1, err, "the value of %s %s is '%s', expected a finite number", what,
                                 woi_quote(quoted, start, (size_t)(p - start)),
                                 item(p + 1, (char[WOI_QUOTE_BYTES]){0}));
            p += end - p;
        } else if (!lenient || (*p != ' ' && *p != '\n' && *p != '\t')) {
            return fail_line(xc, start, err, "'%s' has no colon, expected %s:value", item(start, quoted), what);
        }
        if (id <= before && !lenient) return fail_order(xc, start, what, id, before, err);
        before = id;
        if (n == xc->features_capacity) {
            wo_status status = woi_grow(&xc->features, &xc->features_capacity, n, n + 1, sizeof *xc->features, err);
            if (status) return status;
        }
        if (n == xc->values_capacity) {
            wo_status status = woi_grow(&xc->values, &xc->values_capacity, n, n + 1, sizeof *xc->values, err);
            if (status) return status;
        }
        xc->features[n] = id;
        xc->values[n++] = value;
        if (*p == ' ' && !lenient) {
            p++;
            if (!woi_is_digit(*p)) {
                if (*p == '\n') return strictly(fail_line(xc, p, err, "a space at the end"), err);
                if (*p == ' ') return strictly(fail_line(xc, p, err, "two spaces in a row"), err);
            }
        }
    }
    row->n_features = n;
    return WO_OK;
}

static int by_id(const void *a, const void *b)
{
    const sortable *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* Lenient ids may come in any order: sorts them, and makes one of those that are repeated, adding up their values.
 * `values` is NULL for labels. */
static wo_status sort_ids(woi_xc *xc, int32_t *ids, float *values, size_t *n, wo_error *err)
{
    size_t sorted = 1;
    while (sorted < *n && ids[sorted - 1] < ids[sorted]) sorted++;
    if (sorted >= *n) return WO_OK;
    wo_status status = woi_grow(&xc->sort, &xc->sort_capacity, 0, *n, sizeof *xc->sort, err);
    if (status) return status;
    for (size_t i = 0; i < *n; i++) xc->sort[i] = (sortable){ids[i], values ? values[i] : 0, i};
    qsort(xc->sort, *n, sizeof *xc->sort, by_id);
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        bool repeated = kept > 0 && ids[kept - 1] == xc->sort[i].id;
        if (!repeated) ids[kept++] = xc->sort[i].id;
        if (values) values[kept - 1] = xc->sort[i].value + (repeated ? values[kept - 1] : 0);
        if (values && !isfinite(values[kept - 1]))
            return fail_line(xc, xc->line, err, "the values of feature %d add up to infinity",
                             ids[kept - 1] + (xc->options.base != WOI_XC_ZERO_BASED));
    }
    *n = kept;
    return WO_OK;
}

/* "l1,l2 f:v f:v" or " f:v f:v". */
static wo_status take_row(woi_xc *xc, char *p, woi_xc_row *row, wo_error *err)
{
    const bool lenient = xc->options.lenient;
    char quoted[WOI_QUOTE_BYTES];
    if (*p == '\n' && !lenient)
        return strictly(fail_line(xc, p, err, "is empty: a row without labels begins with a space"), err);
    bool blank = *p == ' ' || (lenient && (*p == '\t' || *p == '\n'));
    bool feature_first = !blank && p[strspn(p, "0123456789")] == ':';
    if (feature_first && !lenient)
        return fail_line(xc, p, err, "begins with the feature '%s': a row without labels begins with a space",
                         item(p, quoted));
    if (!blank && !feature_first) {
        wo_status status = take_labels(xc, &p, row, err);
        if (status) return status;
        if (*p != ' ' && *p != '\n' && !(lenient && *p == '\t'))
            return fail_line(xc, p, err, "expected ',' or a space after a label, found '%s'", item(p, quoted));
    }
    if (*p == ' ') {
        p++;
        if (*p == ' ' && !lenient) return strictly(fail_line(xc, p, err, "two spaces in a row"), err);
    }
    return take_features(xc, p, row, err);
}

/* A file without a header has as many rows, features and labels as were seen. */
static void count_seen(woi_xc_shape *shape, const woi_xc_row *row)
{
    shape->n++;
    if (row->n_labels && (uint64_t)row->labels[row->n_labels - 1] >= shape->n_labels)
        shape->n_labels = (uint64_t)row->labels[row->n_labels - 1] + 1;
    if (row->n_features && (uint64_t)row->features[row->n_features - 1] >= shape->n_features)
        shape->n_features = (uint64_t)row->features[row->n_features - 1] + 1;
}

wo_status woi_xc_next(woi_xc *xc, woi_xc_row *row, bool *more, wo_error *err)
{
    const bool lenient = xc->options.lenient;
    woi_xc_shape *shape = &xc->shape;
    memset(row, 0, sizeof *row);
    char *line = xc->first;
    xc->first = NULL;
    wo_status status = line ? WO_OK : next_line(xc, &line, err);
    /* Blank lines behind the last row, and anywhere in a file without a header, are no rows. */
    while (!status && line && lenient && (!shape->has_header || xc->n_rows == shape->n) &&
           line[strspn(line, " \t")] == '\n')
        status = next_line(xc, &line, err);
    *more = line != NULL;
    if (status) return status;
    if (!line) {
        if (xc->again && xc->n_rows < shape->n) return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, CHANGED);
        xc->complete = true;
        if (shape->has_header && xc->n_rows < shape->n)
            return woi_fail(err, WO_ERR_FORMAT, woi_xc_text_bytes(xc),
                            "ends after %" PRIu64 " rows, the header says %" PRIu64, xc->n_rows, shape->n);
        return WO_OK;
    }
    if (xc->again && xc->n_rows == shape->n) return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, CHANGED);
    if (shape->has_header && xc->n_rows == shape->n)
        return fail_line(xc, line, err, "more rows than the %" PRIu64 " of the header", shape->n);

    status = shape->matrix ? take_features(xc, line, row, err) : take_row(xc, line, row, err);
    if (!status && lenient) status = sort_ids(xc, xc->labels, NULL, &row->n_labels, err);
    if (!status && lenient) status = sort_ids(xc, xc->features, xc->values, &row->n_features, err);
    if (status) return status;
    row->labels = xc->labels;
    row->features = xc->features;
    row->values = xc->values;
    xc->n_rows++;
    if (!shape->has_header && !xc->again) count_seen(shape, row);
    return WO_OK;
}

const woi_xc_shape *woi_xc_get_shape(const woi_xc *xc)
{
    return &xc->shape;
}

uint64_t woi_xc_text_bytes(const woi_xc *xc)
{
    return woi_text_offset(xc->text);
}

void woi_xc_position(const woi_xc *xc, uint64_t *done, uint64_t *total)
{
    woi_text_position(xc->text, done, total);
}
