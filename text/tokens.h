/* Text as word ids: corpora in memory, and token files.
 *
 * A token file is a safetensors file of kind `tokens`: `tokens` I32 [n], the ids, and the vocabulary as
 * `names.labels.bytes` and `names.labels.indptr`. All parts of a corpus carry the same vocabulary. */
#ifndef WOI_TEXT_TOKENS_H
#define WOI_TEXT_TOKENS_H

#include "store/names.h"

/* ---- Token files ------------------------------------------------------------------------------------------- */

typedef struct woi_tokens {
    uint64_t n;
    int32_t *
        ids; /* each 0 to words.n - 1; a copy, since ids are addresses and whoever writes to a file changes a mapping */
    woi_names words;
    int32_t eos, unk; /* the ids of "<eos>" and "<unk>", or -1 */
} woi_tokens;

/* Opens and checks everything: checksums, the ids, the vocabulary of two words or more. */
wo_status woi_tokens_open(const char *path, woi_tokens *tokens, wo_error *err);
void woi_tokens_close(woi_tokens *tokens); /* a zeroed or closed one is fine */

/* ---- Corpora ----------------------------------------------------------------------------------------------- */

typedef enum woi_eos { WOI_EOS_AUTO, WOI_EOS_ON, WOI_EOS_OFF } woi_eos;

enum { WOI_CORPUS_PARTS = 3 }; /* train, valid, test */

/* A zeroed one is empty. */
typedef struct woi_corpus {
    woi_names words; /* by first appearance */
    int32_t *ids;    /* all texts, one after the other */
    size_t n, capacity;
    size_t end[WOI_CORPUS_PARTS]; /* of each text in ids */
    uint64_t n_lines[WOI_CORPUS_PARTS];
    int n_texts;
    bool eos;            /* "<eos>" was added at line ends */
    uint64_t n_unknown;  /* occurrences of rare words that became "<unk>" */
    uint64_t text_bytes; /* unpacked */
} woi_corpus;

/* Appends the words of a text, plain or gzip: what stands between spaces, tabs and line ends. Line ends become "<eos>"
 * unless `eos` is WOI_EOS_OFF. At most WOI_CORPUS_PARTS texts. */
wo_status woi_corpus_read(woi_corpus *corpus, const char *path, woi_eos eos, const wo_progress *progress,
                          wo_error *err);

/* After the last text: WOI_EOS_AUTO drops "<eos>" where no text has more than one line; words that occur less than
 * `min_count` times, counted over all texts, become "<unk>"; ids go by first appearance in what results. Fails where no
 * word, or one only, is left. */
wo_status woi_corpus_finish(woi_corpus *corpus, woi_eos eos, uint64_t min_count, wo_error *err);

/* Cuts one text into three by position, in proportion to `shares` (each 1 or more); fails where a part would be empty.
 */
wo_status woi_corpus_split(woi_corpus *corpus, const uint64_t shares[WOI_CORPUS_PARTS], wo_error *err);

/* Writes a part as a token file, all but woi_st_finish. */
wo_status woi_corpus_write(const woi_corpus *corpus, int part, uint64_t min_count, const char *path,
                           woi_st_writer **writer, wo_error *err);

void woi_corpus_free(woi_corpus *corpus);

#endif
