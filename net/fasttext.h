/* Models of fastText's as networks, and the rows of their embedding that a line of text takes. What comes out is what
 * fastText itself computes: floats are added in its order, and then divided.
 *
 *   q = mean of E[r] over the rows r of the line
 *
 * Rows are, for each word that the model knows, the word's own; with maxn > 0, for every word, those of its letter
 * n-grams, of minn to maxn letters of "<word>"; with words > 1, those of n-grams of that many words at most. N-grams
 * have no names: a hash says which of the `bucket` rows behind those of the words is theirs. The end of a line is the
 * word "</s>". Labels of a line are words that the model has as labels; others that begin with "__label__" are passed
 * over. */
#ifndef WOI_NET_FASTTEXT_H
#define WOI_NET_FASTTEXT_H

#include "net/network.h"

/* Opens a model as a network. */
wo_status woi_fasttext_network(const char *path, woi_network **network, wo_error *err);

/* The lines of a batch, and their queries. A zeroed one with `net` and `threads` set is empty; to be freed. Its memory
 * does not grow with the rows of a line: they are summed as soon as WOI_FASTTEXT_ROWS of them wait. */
enum { WOI_FASTTEXT_ROWS = 1 << 21 };
typedef struct woi_fasttext_lines {
    const woi_network *net;
    int threads;
    float *q; /* (lines, d) of the caller's: sums until the end, then means */
    size_t n; /* lines that were read */
    /* the last one */
    int32_t *labels; /* as they come, perhaps several times */
    size_t n_labels;
    size_t n_known;  /* of its rows: those that its words brought; of a line without words, its end's */
    int32_t *hashes; /* of its words */
    size_t n_hashes;
    /* rows that are not in a sum yet: line `first` and those behind it have rows[starts[line] ..], up to the next */
    int32_t *rows;
    size_t n_rows, first;
    size_t *starts, *counts; /* by line; `counts` has all its rows */
    size_t rows_room, labels_room, hashes_room, starts_room, counts_room;
} woi_fasttext_lines;

void woi_fasttext_free(woi_fasttext_lines *lines);

/* A new batch, whose queries go into `q`. */
void woi_fasttext_begin(woi_fasttext_lines *lines, float *q);

/* Reads text[0..bytes) as the next line. `ended`: a line end follows. After a failure the batch is as it was before. */
wo_status woi_fasttext_read(woi_fasttext_lines *lines, const char *text, size_t bytes, bool ended, wo_error *err);

/* The batch is whole: q has the queries of its n lines. */
void woi_fasttext_end(woi_fasttext_lines *lines);

#endif
