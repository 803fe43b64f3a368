/* A language model that reads one word at a time and keeps its state: what generating text takes. */
#ifndef WOI_NET_READER_H
#define WOI_NET_READER_H

#include "net/network.h"

typedef struct woi_reader woi_reader;

/* `network` must live as long. WO_ERR_ARGUMENT: it is no language model, or has no vocabulary. */
wo_status woi_reader_create(const woi_network *network, woi_reader **reader, wo_error *err);
void woi_reader_free(woi_reader *reader);

void woi_reader_reset(woi_reader *reader); /* nothing was read */

/* Reads a word, by its number below n_inputs: the query (d) that is to find the next one, valid until the next call. */
const float *woi_reader_take(woi_reader *reader, int32_t word);

/* Reads a text, words with white space between them; one that the network does not know is <unk>. *query as above,
 * *n_words: how many. Fails for a text without words or that is not UTF-8, and where there is no <unk>. */
wo_status woi_reader_read(woi_reader *reader, const char *text, const float **query, size_t *n_words, wo_error *err);

#endif
