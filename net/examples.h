/* What a network makes of raw examples, as they come: queries for prediction, without labels.
 *
 *   xc       a line of extreme-classification text, with or without a header above; labels are passed over
 *   text     a line of words: for lm the words so far, for w2v one word, for xc words that are features. A network of
 *            package stanzas takes it as a short description, one of fastText's as fastText does
 *   deb822   a package stanza
 *
 * Blank lines are no examples, but for fastText's networks, whose word for the end of a line they have. Reads from a
 * file or from a pipe, and never waits for more while it has an example to hand out. */
#ifndef WOI_NET_EXAMPLES_H
#define WOI_NET_EXAMPLES_H

#include "net/network.h"
#include "text/xc.h"

typedef enum woi_raw { WOI_RAW_AUTO, WOI_RAW_XC, WOI_RAW_TEXT, WOI_RAW_DEB822 } woi_raw;

/* Valid until the next call. */
typedef struct woi_example_batch {
    size_t n;              /* at most 1,024 */
    const float *q;        /* (n, d) */
    const uint64_t *lines; /* (n): where each example begins, from 1 */
    const uint32_t *known; /* (n): features or words that the network knows */
} woi_example_batch;

typedef struct woi_examples_options {
    woi_raw raw;      /* WOI_RAW_AUTO goes by the network and the first line */
    woi_xc_base base; /* of features in extreme-classification text */
    int threads;      /* below 1: all cores */
} woi_examples_options;

typedef struct woi_examples woi_examples;
/* "-" is standard input; plain or gzip. `network` must live as long. WO_ERR_ARGUMENT: the network does not take that
 * format. */
wo_status woi_examples_open(const woi_network *network, const char *path, const woi_examples_options *options,
                            woi_examples **examples, wo_error *err);
/* The same of text in memory, which is copied. */
wo_status woi_examples_open_memory(const woi_network *network, const char *text, size_t bytes,
                                   const woi_examples_options *options, woi_examples **examples, wo_error *err);
woi_raw woi_examples_raw(const woi_examples *examples); /* never WOI_RAW_AUTO */

/* The next examples: all that can be read without waiting, at least one; *more is false, and the batch empty, after
 * the last. Examples before a bad line are handed out first, then the sentence; the call after that goes on behind the
 * line (not in deb822, where a stanza would be torn). */
wo_status woi_examples_next(woi_examples *examples, woi_example_batch *batch, bool *more, wo_error *err);
void woi_examples_free(woi_examples *examples);

#endif
