/* Token files: reading them with all checks, and making them of text. */
#include "text/tokens.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/utf8.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EOS "<eos>"
#define UNK "<unk>"
#define MAX_WORD_BYTES ((size_t)64 << 10)

static const char *const part_names[WOI_CORPUS_PARTS] = {"train", "valid", "test"};

/* ---- Reading token files ----------------------------------------------------------------------------------- */

static wo_status check_ids(const woi_tensor *tensor, const int32_t *ids, int32_t n_words, wo_error *err)
{
    for (uint64_t i = 0; i < tensor->n; i++)
        if (ids[i] < 0 || ids[i] >= n_words)
            return woi_fail(err, WO_ERR_FORMAT, tensor->offset + 4 * i,
                            "tokens[%" PRIu64 "] is %" PRId32 ", expected 0 to %" PRId32, i, ids[i], n_words - 1);
    return WO_OK;
}

static wo_status read_tokens(const woi_st *st, woi_tokens *tokens, wo_error *err)
{
    const char *kind = woi_st_kind(st);
    char quoted[WOI_QUOTE_BYTES];
    if (!kind || strcmp(kind, "tokens") != 0)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "tokens", "is %s%s, expected a token file",
                              kind ? "of kind " : "not a file of wideout's",
                              kind ? woi_quote(quoted, kind, strlen(kind)) : "");
    const woi_tensor *ids = woi_st_find(st, "tokens");
    if (!ids || ids->n_dims != 1 || ids->dtype != WOI_I32)
        return woi_fail(err, WO_ERR_FORMAT, ids ? ids->offset : WO_NO_OFFSET, "has no tensor 'tokens' of I32");
    wo_status status = woi_names_load(st, "labels", &tokens->words, err);
    if (status) return status;
    if (tokens->words.n < 2)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has a vocabulary of %" PRId32 " words, expected 2 or more",
                        tokens->words.n);
    tokens->n = ids->n;
    if (!(tokens->ids = woi_alloc((size_t)ids->n, sizeof *tokens->ids, err))) return WO_ERR_MEMORY;
    if (ids->n) memcpy(tokens->ids, ids->data, ids->bytes); /* which may lie anywhere: anyone can say that it is ours */
    tokens->eos = woi_names_find(&tokens->words, EOS, strlen(EOS));
    tokens->unk = woi_names_find(&tokens->words, UNK, strlen(UNK));
    return check_ids(ids, tokens->ids, tokens->words.n, err);
}

wo_status woi_tokens_open(const char *path, woi_tokens *tokens, wo_error *err)
{
    memset(tokens, 0, sizeof *tokens);
    woi_st *st = NULL;
    woi_file_kind kind;
    if (!woi_file_recognise(path, &kind, NULL) && kind == WOI_FILE_XC) /* text, most likely */
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "tokens", "is no token file");
    wo_status status = woi_st_open(path, &st, err);
    if (!status) status = woi_st_verify(st, NULL, err);
    if (!status) status = read_tokens(st, tokens, err);
    woi_st_free(st);
    if (status) woi_tokens_close(tokens);
    return status;
}

void woi_tokens_close(woi_tokens *tokens)
{
    woi_free(tokens->ids);
    woi_names_free(&tokens->words);
    memset(tokens, 0, sizeof *tokens);
}

/* ---- Reading text ------------------------------------------------------------------------------------------ */

void woi_corpus_free(woi_corpus *corpus)
{
    woi_names_free(&corpus->words);
    woi_free(corpus->ids);
    memset(corpus, 0, sizeof *corpus);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Words are checked once, when they are new. */
static wo_status check_word(const char *word, size_t bytes, uint64_t offset, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    if (!woi_utf8_valid(word, bytes))
        return woi_fail(err, WO_ERR_FORMAT, offset, "byte %" PRIu64 " of the text: a word that is not UTF-8", offset);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)word[i] < 0x20)
            return woi_fail(err, WO_ERR_FORMAT, offset,
                            "byte %" PRIu64 " of the text: the control character 0x%02x in the word '%s'", offset,
                            (unsigned)word[i], woi_quote(quoted, word, bytes));
    return WO_OK;
}

static wo_status add_word(woi_corpus *corpus, const char *word, size_t bytes, uint64_t offset, wo_error *err)
{
    int32_t id, known = corpus->words.n;
    wo_status status = woi_grow(&corpus->ids, &corpus->capacity, corpus->n, corpus->n + 1, sizeof *corpus->ids, err);
    if (!status) status = woi_names_add(&corpus->words, word, bytes, &id, err);
    if (!status && id == known) status = check_word(word, bytes, offset, err);
    if (status) return status;
    corpus->ids[corpus->n++] = id;
    return WO_OK;
}

/* A piece of a text. */
typedef struct piece {
    const char *text;
    size_t bytes;
    uint64_t offset;
    bool last;
} piece;

/* Adds all whole words of a piece of text; *taken is where the last, perhaps unfinished one begins. */
static wo_status add_words(woi_corpus *corpus, const piece *p, woi_eos eos, size_t *taken, wo_error *err)
{
    const char *text = p->text;
    const size_t bytes = p->bytes;
    const uint64_t offset = p->offset;
    uint64_t *n_lines = &corpus->n_lines[corpus->n_texts];
    size_t at = 0;
    for (;;) {
        for (; at < bytes && is_space(text[at]); at++) {
            if (text[at] != '\n') continue;
            ++*n_lines;
            wo_status status = eos == WOI_EOS_OFF ? WO_OK : add_word(corpus, EOS, strlen(EOS), offset, err);
            if (status) return status;
        }
        size_t begin = at;
        while (at < bytes && !is_space(text[at])) at++;
        *taken = begin;
        if (at - begin > MAX_WORD_BYTES)
            return woi_fail(err, WO_ERR_FORMAT, offset + begin,
                            "byte %" PRIu64 " of the text: a word of more than %zu bytes", offset + begin,
                            MAX_WORD_BYTES);
        if (at == begin || (at == bytes && !p->last)) return WO_OK;
        wo_status status = add_word(corpus, text + begin, at - begin, offset + begin, err);
        if (status) return status;
    }
}

/* The last line may lack its line end, but not its "<eos>". */
static wo_status end_text(woi_corpus *corpus, char last_character, woi_eos eos, wo_error *err)
{
    if (last_character != '\n') {
        corpus->n_lines[corpus->n_texts]++;
        wo_status status = eos == WOI_EOS_OFF ? WO_OK : add_word(corpus, EOS, strlen(EOS), 0, err);
        if (status) return status;
    }
    corpus->end[corpus->n_texts++] = corpus->n;
    return WO_OK;
}

wo_status woi_corpus_read(woi_corpus *corpus, const char *path, woi_eos eos, const wo_progress *progress, wo_error *err)
{
    woi_text *text = NULL;
    wo_status status = woi_text_open(path, &text, err);
    char last_character = '\n';
    for (bool last = false; !status && !last;) {
        piece p;
        size_t taken;
        uint64_t at, total;
        if ((status = woi_text_fill(text, &p.text, &p.bytes, err))) break;
        p.offset = woi_text_offset(text);
        p.last = last = woi_text_at_end(text);
        if (p.bytes > 0) last_character = p.text[p.bytes - 1];
        if ((status = add_words(corpus, &p, eos, &taken, err))) break;
        woi_text_take(text, taken);
        woi_text_position(text, &at, &total);
        status = woi_progress(progress, "reading", at, total, err);
    }
    if (!status) {
        corpus->text_bytes += woi_text_offset(text);
        status = woi_text_offset(text) > 0 ? end_text(corpus, last_character, eos, err)
                                           : woi_fail(err, WO_ERR_FORMAT, 0, "the text is empty");
    }
    woi_text_free(text);
    return status;
}

/* ---- Vocabulary -------------------------------------------------------------------------------------------- */

/* Every text ends in "<eos>"; where none has a second line, that is all there are. */
static void drop_eos(woi_corpus *corpus)
{
    size_t n = 0, from = 0;
    for (int i = 0; i < corpus->n_texts; i++) {
        size_t words = corpus->end[i] - 1 - from;
        memmove(corpus->ids + n, corpus->ids + from, words * sizeof *corpus->ids);
        from = corpus->end[i];
        corpus->end[i] = n += words;
    }
    corpus->n = n;
}

/* The id of the word in the new vocabulary, added at its first appearance. */
static wo_status renumber(woi_corpus *corpus, const uint64_t *counts, uint64_t min_count, woi_names *words,
                          int32_t *final, wo_error *err)
{
    const woi_names *old = &corpus->words;
    const int32_t eos = woi_names_find(old, EOS, strlen(EOS)), unk = woi_names_find(old, UNK, strlen(UNK));
    for (int32_t i = 0; i < old->n; i++) final[i] = -1;
    for (size_t i = 0; i < corpus->n; i++) {
        int32_t id = corpus->ids[i];
        bool rare = counts[id] < min_count && id != eos && id != unk;
        corpus->n_unknown += rare;
        if (final[id] < 0) {
            wo_status status =
                rare ? woi_names_add(words, UNK, strlen(UNK), &final[id], err)
                     : woi_names_add(words, woi_names_get(old, id), woi_names_bytes(old, id), &final[id], err);
            if (status) return status;
        }
        corpus->ids[i] = final[id];
    }
    return WO_OK;
}

wo_status woi_corpus_finish(woi_corpus *corpus, woi_eos eos, uint64_t min_count, wo_error *err)
{
    woi_names words = {0};
    uint64_t *counts = NULL;
    int32_t *final = NULL;
    bool lines = false;
    for (int i = 0; i < corpus->n_texts; i++) lines |= corpus->n_lines[i] > 1;
    corpus->eos = eos == WOI_EOS_ON || (eos == WOI_EOS_AUTO && lines);
    if (eos == WOI_EOS_AUTO && !lines) drop_eos(corpus);

    wo_status status = WO_ERR_MEMORY;
    if (!(counts = woi_alloc_zero((size_t)corpus->words.n, sizeof *counts, err)) ||
        !(final = woi_alloc((size_t)corpus->words.n, sizeof *final, err)))
        goto done;
    for (size_t i = 0; i < corpus->n; i++) counts[corpus->ids[i]]++;
    if ((status = renumber(corpus, counts, min_count, &words, final, err))) goto done;
    woi_names_free(&corpus->words);
    corpus->words = words;
    words = (woi_names){0};
    char quoted[WOI_QUOTE_BYTES];
    if (corpus->words.n == 0)
        status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the text has no words");
    else if (corpus->words.n == 1)
        status =
            woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the vocabulary has one word only, '%s': nothing to predict",
                     woi_quote(quoted, woi_names_get(&corpus->words, 0), woi_names_bytes(&corpus->words, 0)));
done:
    woi_names_free(&words);
    woi_free(counts);
    woi_free(final);
    return status;
}

wo_status woi_corpus_split(woi_corpus *corpus, const uint64_t shares[WOI_CORPUS_PARTS], wo_error *err)
{
    const long double all = (long double)shares[0] + (long double)shares[1] + (long double)shares[2];
    size_t begin = 0;
    uint64_t before = 0;
    for (int i = 0; i < WOI_CORPUS_PARTS; i++) {
        before += shares[i];
        size_t end =
            i == WOI_CORPUS_PARTS - 1 ? corpus->n : (size_t)((long double)corpus->n * (long double)before / all);
        if (end <= begin)
            return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "shares", "has %zu tokens: too few for a %s part",
                                  corpus->n, part_names[i]);
        corpus->end[i] = begin = end;
    }
    corpus->n_texts = WOI_CORPUS_PARTS;
    return WO_OK;
}

/* ---- Writing ----------------------------------------------------------------------------------------------- */

wo_status woi_corpus_write(const woi_corpus *corpus, int part, uint64_t min_count, const char *path,
                           woi_st_writer **result, wo_error *err)
{
    const size_t begin = part ? corpus->end[part - 1] : 0;
    const uint64_t n = corpus->end[part] - begin;
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, min_count);
    woi_st_writer *writer = NULL;
    wo_status status;
    if ((status = woi_st_create(path, "tokens", &writer, err)) ||
        (status = woi_st_set_meta(writer, "part", part_names[part], err)) ||
        (status = woi_st_set_meta(writer, "min_count", text, err)) ||
        (status = woi_st_set_meta(writer, "eos", corpus->eos ? "on" : "off", err)) ||
        (status = woi_st_declare(writer, "tokens", WOI_I32, 1, &n, err)) ||
        (status = woi_names_declare(writer, "labels", &corpus->words, err)) ||
        (status = woi_st_append(writer, corpus->ids + begin, (size_t)n * sizeof *corpus->ids, err)) ||
        (status = woi_names_write(writer, &corpus->words, err)))
        woi_st_writer_free(writer);
    else
        *result = writer;
    return status;
}
