/* Any bytes as text: refused with a sentence, or a corpus whose words are those of the text, which comes back the same
 * from its token files. */
#include "fuzz.h"

#include "text/tokens.h"

#include <string.h>

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The token at `at` is this word, or stands for it. */
static void check_token(const woi_corpus *corpus, size_t at, const void *word, size_t bytes, uint64_t min_count)
{
    if (at >= corpus->n || corpus->ids[at] < 0 || corpus->ids[at] >= corpus->words.n) abort();
    const char *got = woi_names_get(&corpus->words, corpus->ids[at]);
    const size_t got_bytes = woi_names_bytes(&corpus->words, corpus->ids[at]);
    if (got_bytes == bytes && memcmp(got, word, bytes) == 0) return;
    if (min_count < 2 || got_bytes != 5 || memcmp(got, "<unk>", 5) != 0) abort();
}

/* Takes the text apart in the plainest way; returns the number of tokens up to its end. */
static size_t check_words(const woi_corpus *corpus, size_t n, const uint8_t *data, size_t bytes, uint64_t min_count)
{
    for (size_t i = 0; i < bytes;) {
        size_t end = i;
        while (end < bytes && !is_space(data[end])) end++;
        if (end > i) check_token(corpus, n++, data + i, end - i, min_count);
        if (end < bytes && data[end] == '\n' && corpus->eos) check_token(corpus, n++, "<eos>", 5, 1);
        i = end + 1;
    }
    if (data[bytes - 1] != '\n' && corpus->eos) check_token(corpus, n++, "<eos>", 5, 1);
    return n;
}

/* Writes each part and opens it again. */
static void check_files(const woi_corpus *corpus, uint64_t min_count)
{
    char path[64];
    fuzz_output(path);
    for (int part = 0; part < WOI_CORPUS_PARTS; part++) {
        const size_t begin = part ? corpus->end[part - 1] : 0, n = corpus->end[part] - begin;
        woi_st_writer *writer = NULL;
        woi_tokens tokens;
        if (woi_corpus_write(corpus, part, min_count, path, &writer, NULL) || woi_st_finish(writer, NULL)) abort();
        woi_st_writer_free(writer);
        if (woi_tokens_open(path, &tokens, NULL) || tokens.n != n || tokens.words.n != corpus->words.n) abort();
        if (n && memcmp(tokens.ids, corpus->ids + begin, n * sizeof *tokens.ids) != 0) abort();
        for (int32_t i = 0; i < tokens.words.n; i++)
            if (woi_names_find(&corpus->words, woi_names_get(&tokens.words, i), woi_names_bytes(&tokens.words, i)) != i)
                abort();
        woi_tokens_close(&tokens);
    }
    unlink(path);
}

/* The text once, then cut, or three times. */
static void read_text(const char *path, const uint8_t *data, size_t bytes, int n_texts, woi_eos eos, uint64_t min_count)
{
    const uint64_t shares[WOI_CORPUS_PARTS] = {65, 5, 30};
    const bool gzip = bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    woi_corpus corpus = {0};
    wo_error err = {0};
    wo_status status = WO_OK;
    for (int i = 0; !status && i < n_texts; i++) status = woi_corpus_read(&corpus, path, eos, NULL, &err);
    if (!status) status = woi_corpus_finish(&corpus, eos, min_count, &err);
    if (!status) {
        size_t n = 0;
        for (int i = 0; !gzip && i < n_texts; i++)
            if ((n = check_words(&corpus, n, data, bytes, min_count)) != corpus.end[i]) abort();
        if (n_texts == 1) status = woi_corpus_split(&corpus, shares, &err);
    }
    if (status && (!err.text[0] || strchr(err.text, '\n'))) abort();
    if (!status) check_files(&corpus, min_count);
    woi_corpus_free(&corpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[32];
    int fd = fuzz_file(data, bytes, path);
    read_text(path, data, bytes, 1, WOI_EOS_AUTO, 1);
    read_text(path, data, bytes, WOI_CORPUS_PARTS, WOI_EOS_AUTO, 4);
    read_text(path, data, bytes, 1, WOI_EOS_ON, 2);
    read_text(path, data, bytes, 1, WOI_EOS_OFF, 1);
    close(fd);
    return 0;
}
