/* Models of fastText's as networks, and the rows of their embedding that a line of text takes. What comes out is what
 * fastText itself computes, but for the order in which floats are added.
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

/* What a line has. A zeroed one is empty; it grows with the longest line. */
typedef struct woi_fasttext_line {
    int32_t *rows, *labels; /* as they come, perhaps several times */
    size_t n_rows, n_labels;
    size_t n_known;  /* of the rows: those that words of the line brought; of a line without words, its end's */
    int32_t *hashes; /* of its words */
    size_t n_hashes, rows_room, labels_room, hashes_room;
} woi_fasttext_line;

void woi_fasttext_line_free(woi_fasttext_line *line);

/* Reads text[0..bytes) into `line`, in place of what was there. `ended`: a line end follows. */
wo_status woi_fasttext_read(const woi_network *network, const char *text, size_t bytes, bool ended,
                            woi_fasttext_line *line, wo_error *err);

#endif
