/* What the parts of the report share: the results as read, what is picked out of them, and text for the page.
 *
 *   report ── sets[]: a data set, from one file of wideout-bench or from several of 'wideout eval --json'
 *          │      rows[]: one configuration of one method ── timings[]: (batch, threads) -> us
 *          │      traces[]: learning, step by step
 *          └─ series[]: the methods of all data sets; a row names its own by number, so that a method has one colour
 *                       and one mark on the whole page
 *
 * report_read.c fills this in, report_pick.c chooses, report_figures.c, report_key.c and report_plot.c draw,
 * report_page.c writes. A
 * number that was not measured is NAN. Strings are borrowed from the JSON, which `files` keeps alive. */
#ifndef BENCH_REPORT_DATA_H
#define BENCH_REPORT_DATA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    REPORT_ERROR_BYTES = 512,
    REPORT_COLOURS = 13, /* --s0 .. --s12 of the style */
    REPORT_INK = -1,     /* of text; FULL's */
    REPORT_MUTED = -2,
    REPORT_MAX_SERIES = 64, /* methods on a page */
    REPORT_MAX_KEYS = REPORT_MAX_SERIES + 2,
    REPORT_MAX_TIMINGS = 16, /* of a row */
    REPORT_MAX_ROWS = 4096,  /* of a file */
    REPORT_MAX_TRACES = 4096,
    REPORT_MAX_COLUMNS = 32, /* of a trace */
};

typedef enum report_family { REPORT_OURS, REPORT_BASELINE, REPORT_PEER, REPORT_EXACT } report_family;

typedef struct report_cost {
    uint32_t batch, threads;
} report_cost;

typedef struct report_timing {
    report_cost at;
    double us, full_us, speedup; /* microseconds a query; FULL's in the same run; the second over the first */
} report_timing;

typedef struct report_row {
    const char *label, *chosen; /* chosen: by the tuner, or NULL */
    int series;                 /* of the report; -1: this is FULL itself */
    double p_at_1, p_at_3, p_at_5, label_recall, sample_size;
    double build_s, index_bytes, cpu_s_per_1000, energy_j_per_1000;
    const char *dial; /* its name, or NULL */
    double dial_value;
    size_t n_timings;
    report_timing timings[REPORT_MAX_TIMINGS];
} report_row;

typedef struct report_trace {
    const char *label;
    size_t n_columns, n; /* values (n, n_columns); column 0 is the step */
    const char *columns[REPORT_MAX_COLUMNS];
    double *values; /* owned */
} report_trace;

typedef struct report_set {
    const char *name, *title;
    uint64_t m, d, n;
    double full_p_at_1, full_p_at_3, full_p_at_5;
    report_row *rows; /* owned */
    size_t n_rows;
    report_trace *traces; /* owned */
    size_t n_traces;
    bool evaluated; /* from files of 'wideout eval --json', not of wideout-bench */
} report_set;

/* A file: what it says about how it was made. */
typedef struct report_source {
    size_t set;          /* of the report */
    const json_t *about; /* borrowed: commit, version, date, machine, compiler, packages, command, threads */
} report_source;

typedef struct report_series {
    const char *method, *variant; /* "lss", "margin" or NULL */
    report_family family;
    int colour; /* 0 .. REPORT_COLOURS - 1 */
    int mark;   /* gnuplot's point type */
} report_series;

typedef struct report {
    json_t *files;    /* owned: an array of all that was read */
    report_set *sets; /* owned */
    size_t n_sets;
    report_source *sources; /* owned: a file each */
    size_t n_sources;
    report_series series[REPORT_MAX_SERIES];
    int n_series;
} report;

/* ---- Reading: report_read.c, report_json.c ------------------------------------------------------------------- */

typedef enum report_read_result { REPORT_READ, REPORT_OTHER, REPORT_FAILED } report_read_result;

/* Adds a file. REPORT_OTHER: JSON, but not of a kind that belongs on the page; REPORT_FAILED: one sentence, without the
 * path, in error. The report stays valid in all three cases. */
report_read_result report_read(report *r, const char *path, char error[REPORT_ERROR_BYTES]);

/* After the last file: puts the series in order, ours first, and gives them colours and marks. */
void report_finish(report *r);

void report_free(report *r);

/* The numbers that a member may have, from low to high. */
typedef struct report_numbers {
    bool required;
    double low, high;
} report_numbers;

typedef struct report_counts {
    bool required;
    uint64_t low, high;
} report_counts;

/* Typed members of an object. `where` is the object's place in the file, "rows[3]." or "". Each returns false with the
 * sentence in error; an absent or null member is false only where it is `required`, and otherwise leaves *out as it
 * is. */
bool report_get_number(const json_t *object, const char *where, const char *key, report_numbers expected, double *out,
                       char error[REPORT_ERROR_BYTES]);
bool report_get_count(const json_t *object, const char *where, const char *key, report_counts expected, uint64_t *out,
                      char error[REPORT_ERROR_BYTES]);
bool report_get_text(const json_t *object, const char *where, const char *key, bool required, const char **out,
                     char error[REPORT_ERROR_BYTES]);
/* An array of at most `most`, or an object; *out NULL where it is absent. */
bool report_get_array(const json_t *object, const char *where, const char *key, size_t most, json_t **out,
                      char error[REPORT_ERROR_BYTES]);
bool report_get_object(const json_t *object, const char *where, const char *key, json_t **out,
                       char error[REPORT_ERROR_BYTES]);

/* Reads the file as JSON; NULL with the sentence in error. The caller owns the result. */
json_t *report_load(const char *path, char error[REPORT_ERROR_BYTES]);

/* ---- Choosing: report_pick.c ------------------------------------------------------------------------------- */

extern const double report_floor; /* the share of FULL's P@1 that methods are compared at: 0.995 */

/* The pairs of batch and threads that a data set was timed at, ascending; returns how many, at most
 * REPORT_MAX_TIMINGS. */
size_t report_costs(const report_set *set, report_cost out[REPORT_MAX_TIMINGS]);

/* Where throughput is judged: batch 1,024 with the most threads, or else the largest batch. And where latency is: batch
 * 1 on the fewest threads. False where the data set has no such timing. */
bool report_bulk(const report_set *set, report_cost *out);
bool report_single(const report_set *set, report_cost *out);

double report_us(const report_row *row, report_cost at); /* NAN where it was not timed */
double report_speedup(const report_row *row, report_cost at);
double report_full_us(const report_set *set, report_cost at); /* the median over the rows that were timed beside it */

/* The row of a series with the least us at `at` among those whose P@1 is at least `share` of FULL's; series -1: of any
 * series of the family. NULL where none reaches it. */
const report_row *report_fastest(const report *r, const report_set *set, int series, report_family family, double share,
                                 report_cost at);

/* The highest P@1 of a series, or, for -1, of a family; NAN where it has no row. */
double report_best_p_at_1(const report *r, const report_set *set, int series, report_family family);

/* The series of a method; -1 where there is none. */
int report_find_series(const report *r, const char *method);

/* ---- Drawing: report_plot.c runs gnuplot, report_figures.c says what ---------------------------------------- */

/* A picture for a file of its own. */
typedef struct report_picture {
    char name[128]; /* "debian-p1-batch-1024" */
    char *text;     /* owned: an SVG */
    size_t bytes;
} report_picture;

typedef struct report_plotter {
    char problem[160]; /* why there are no plots, a sentence; empty while gnuplot works */
    bool keeps;        /* pictures are wanted, too */
    report_picture *pictures;
    size_t n_pictures;
} report_plotter;

void report_plotter_free(report_plotter *plotter);

/* A line of a legend. */
typedef struct report_key {
    char text[96];
    int colour;               /* of the style, REPORT_INK or REPORT_MUTED */
    int mark;                 /* gnuplot's point type; 0: none */
    const char *width, *dash; /* dash NULL: none */
} report_key;

/* What a picture has around the plot when it stands alone. */
typedef struct report_frame {
    char name[128];
    const char *title, *subtitle; /* of a file, or ours */
    const report_key *keys;
    size_t n_keys;
} report_frame;

/* What is drawn. */
typedef struct report_drawing {
    const char *script;
    const char *const *labels;
    size_t n_labels;
    const char *alt; /* what the picture shows, in words */
    const report_frame *frame;
} report_drawing;

/* Runs gnuplot on the script and writes its picture to `page` as an inline SVG whose colours are the style's variables.
 * A text "@7" in the picture becomes labels[7]: no text of a file ever reaches gnuplot. Where the plotter keeps
 * pictures, one with the frame, in the light colours upon a ground of its own, is kept. False, with the problem, where
 * gnuplot is absent or fails; nothing is written then. */
bool report_plot(report_plotter *plotter, const report_drawing *drawing, FILE *page);

/* The definitions of gnuplot's marks, once per page. */
void report_put_marks(FILE *page);

/* The colour of a series for a script: "#c2410c"; REPORT_INK and REPORT_MUTED, too. */
const char *report_colour(int colour);

/* Each writes whole <figure>s, or nothing where there is nothing to show or gnuplot does not work. */
void report_figure_curves(const report *r, const report_set *set, report_plotter *plotter, FILE *page);
void report_figure_bars(const report *r, const report_set *set, report_plotter *plotter, FILE *page);
void report_figure_traces(const report *r, const report_set *set, report_plotter *plotter, FILE *page);
void report_figure_sizes(const report *r, report_plotter *plotter, FILE *page); /* with its legend */

/* Legends: report_key.c. report_set_keys: the data set's methods, FULL and the floor; returns how many. */
report_key report_series_key(const report_series *series);
report_key report_full_key(void);
size_t report_set_keys(const report *r, const report_set *set, report_key keys[REPORT_MAX_KEYS]);
void report_put_keys(const report_key *keys, size_t n, FILE *page);
/* In a picture so wide, from `top` on downwards. */
int report_keys_height(const report_key *keys, size_t n, int width);
void report_draw_keys(const report_key *keys, size_t n, int width, int top, FILE *out);

/* ---- Writing: report_page.c, report_table.c, report_text.c --------------------------------------------------- */

/* The whole page. False where memory runs out. */
bool report_page(const report *r, const char *title, report_plotter *plotter, FILE *page);

/* The headline over all data sets, and all rows of one. */
void report_put_headline(const report *r, FILE *page);
void report_put_rows(const report *r, const report_set *set, FILE *page);

/* The glossary, of what is on this page: report_words.c; how it was made: report_made.c. */
void report_put_words(const report *r, FILE *page);
void report_put_made(const report *r, FILE *page);

extern const char *const report_style[]; /* the CSS, rule by rule; ends with NULL */

/* Text of a file, fit for HTML: markup escaped, controls and marks that turn the writing direction made '?'. */
void report_put_text(FILE *page, const char *text);

/* The same, cut after `most` characters with an ellipsis. */
void report_put_short(FILE *page, const char *text, size_t most);

void report_put_series(FILE *page, const report_series *series); /* "lss margin" */

/* Numbers for people; NAN is a dash. Each returns one of sixteen rotating buffers. */
const char *report_count(double value);               /* 45,000 */
const char *report_fixed(double value, int decimals); /* 0.8123 */
const char *report_digits(double value);              /* three digits: 0.0123, 1.23, 12.3, 1,234 */
const char *report_times(double value);               /* 0.87×, 9.4×, 143× */

#endif
