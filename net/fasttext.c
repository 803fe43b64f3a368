/* Models of fastText's: their words, n-grams and hashes. See net/fasttext.h. */
#include "net/fasttext.h"

#include "base/error.h"
#include "base/finite.h"
#include "base/mem.h"
#include "base/team.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Opening ----------------------------------------------------------------------------------------------- */

static wo_status take_names(const char *entry, int32_t n, woi_names *names, wo_error *err)
{
    wo_status status = WO_OK;
    for (int32_t i = 0; !status && i < n; i++) {
        size_t bytes;
        const char *name = woi_fasttext_name(&entry, &bytes);
        status = woi_names_append(names, name, bytes, err);
    }
    return status;
}

static wo_status take_matrix(const woi_tensor *from, const woi_param *to, wo_error *err)
{
    memcpy(to->w, from->data, from->bytes);
    if (woi_all_finite(to->w, to->n)) return WO_OK;
    size_t bad = 0;
    while (isfinite(to->w[bad])) bad++;
    return woi_fail(err, WO_ERR_FORMAT, from->offset + bad * sizeof(float),
                    "the %s matrix: row %zu, column %zu is not a finite number", from->name,
                    bad / (size_t)from->shape[1], bad % (size_t)from->shape[1]);
}

static wo_status read_model(const woi_fasttext *model, woi_network **result, wo_error *err)
{
    const woi_network_plan plan = {.arch = WOI_ARCH_FASTTEXT,
                                   .m = (size_t)model->n_labels,
                                   .d = model->d,
                                   .n_inputs = (size_t)model->input.shape[0]};
    if (plan.n_inputs == 0)
        return woi_fail(err, WO_ERR_FORMAT, model->input.offset, "the model knows no word: its input matrix is empty");
    wo_status status = woi_network_create(&plan, result, err);
    if (status) return status;
    woi_network *net = *result;
    net->grams = (woi_grams){model->word_ngrams, model->minn, model->maxn, model->bucket};
    if ((status = take_names(model->words, model->n_words, &net->features, err)) ||
        (status = take_names(model->labels, model->n_labels, &net->labels, err)) ||
        (status = take_matrix(&model->input, woi_network_param(net, "embed.weight"), err)))
        return status;
    return take_matrix(&model->output, woi_network_param(net, "output.weight"), err);
}

wo_status woi_fasttext_network(const char *path, woi_network **result, wo_error *err)
{
    woi_fasttext model;
    woi_network *net = NULL;
    wo_status status = woi_fasttext_open(path, &model, err);
    if (status) return status;
    status = read_model(&model, &net, err);
    woi_fasttext_close(&model);
    if (status)
        woi_network_free(net);
    else
        *result = net;
    return status;
}

/* ---- Sums -------------------------------------------------------------------------------------------------- */

/* Sums are this much smaller than those of the rows, which could be more than a float holds: a line has less than 2^32
 * rows, of WOI_TEXT_LINE_BYTES and WOI_FASTTEXT_MOST_GRAM. A power of two does not change the digits. */
static const float shrink = 0x1p-32f, grow_again = 0x1p32f;
enum { ROWS_FOR_THREADS = 4096 };

typedef struct summing {
    const woi_fasttext_lines *s;
    size_t n_lines;
} summing;

static void sum_line(void *own, int worker, size_t part)
{
    const summing *sum = own;
    const woi_fasttext_lines *s = sum->s;
    const size_t line = s->first + part, end = line + 1 < sum->n_lines ? s->starts[line + 1] : s->n_rows;
    const size_t d = s->net->d;
    float *restrict q = s->q + line * d;
    (void)worker;
    for (size_t i = s->starts[line]; i < end; i++) {
        const float *restrict e = s->net->params[0].w + (size_t)s->rows[i] * d;
#pragma omp simd
        for (size_t j = 0; j < d; j++) q[j] += shrink * e[j];
    }
}

/* The rows that wait go into the sums of their lines, of which there are n_lines. */
static void sum_rows(woi_fasttext_lines *s, size_t n_lines)
{
    const int threads = s->n_rows < ROWS_FOR_THREADS ? 1 : s->threads;
    woi_team_for(threads, n_lines - s->first, sum_line, &(summing){s, n_lines});
    s->first = s->n;
    s->n_rows = 0;
}

void woi_fasttext_begin(woi_fasttext_lines *s, float *q)
{
    s->q = q;
    s->n = s->first = s->n_rows = 0;
}

void woi_fasttext_end(woi_fasttext_lines *s)
{
    const size_t d = s->net->d;
    sum_rows(s, s->n);
    for (size_t i = 0; i < s->n; i++) {
        const float share = s->counts[i] ? 1 / (float)s->counts[i] * grow_again : 0;
        for (size_t j = 0; j < d; j++) s->q[i * d + j] *= share;
    }
}

/* ---- Lines ------------------------------------------------------------------------------------------------- */

static const char line_end[] = "</s>", label_prefix[] = "__label__";

/* FNV-1a. A byte is added as a signed number, as fastText does, where models of text beyond ASCII were trained so. */
enum { HASH_FACTOR = 16777619 };
static const uint32_t hash_start = 2166136261;

static inline uint32_t hash_byte(uint32_t hash, char byte)
{
    return (hash ^ (uint32_t)(int8_t)byte) * HASH_FACTOR;
}

static uint32_t hash_word(const char *word, size_t bytes)
{
    uint32_t hash = hash_start;
    for (size_t i = 0; i < bytes; i++) hash = hash_byte(hash, word[i]);
    return hash;
}

static inline bool is_separator(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

/* Not the first byte of a letter. */
static inline bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static wo_status add_row(woi_fasttext_lines *s, int32_t row, wo_error *err)
{
    if (s->n_rows == WOI_FASTTEXT_ROWS) {
        sum_rows(s, s->n + 1);
        s->starts[s->n] = 0;
    }
    wo_status status = woi_grow(&s->rows, &s->rows_room, s->n_rows, s->n_rows + 1, sizeof row, err);
    if (status) return status;
    s->rows[s->n_rows++] = row;
    s->counts[s->n]++;
    return WO_OK;
}

static wo_status add_hashed(woi_fasttext_lines *s, uint64_t hash, wo_error *err)
{
    return add_row(s, s->net->features.n + (int32_t)(hash % (uint64_t)s->net->grams.bucket), err);
}

/* "<word>" has two bytes more than the word. */
static inline char byte_at(const char *word, size_t bytes, size_t at)
{
    return at == 0 ? '<' : at == bytes + 1 ? '>' : word[at - 1];
}

/* All n-grams of letters that begin at one letter have one hash, which goes on from the shorter to the longer. */
static wo_status add_letters(woi_fasttext_lines *s, const char *word, size_t bytes, wo_error *err)
{
    const size_t end = bytes + 2;
    wo_status status = WO_OK;
    for (size_t i = 0; i < end; i++) {
        if (continues(byte_at(word, bytes, i))) continue;
        uint32_t hash = hash_start;
        size_t j = i;
        for (int32_t n = 1; !status && j < end && n <= s->net->grams.maxn; n++) {
            do hash = hash_byte(hash, byte_at(word, bytes, j++));
            while (j < end && continues(byte_at(word, bytes, j)));
            if (n >= s->net->grams.minn && !(n == 1 && (i == 0 || j == end))) status = add_hashed(s, hash, err);
        }
    }
    return status;
}

/* Hashes of words are signed numbers on their way into 64 bits. */
static wo_status add_words(woi_fasttext_lines *s, wo_error *err)
{
    const size_t most = (size_t)s->net->grams.words;
    wo_status status = WO_OK;
    for (size_t i = 0; i < s->n_hashes; i++) {
        uint64_t hash = (uint64_t)(int64_t)s->hashes[i];
        for (size_t j = i + 1; !status && j < s->n_hashes && j < i + most; j++) {
            hash = hash * 116049371 + (uint64_t)(int64_t)s->hashes[j];
            status = add_hashed(s, hash, err);
        }
    }
    return status;
}

static bool is_text(const char *word, size_t bytes, const char *text, size_t text_bytes)
{
    return bytes >= text_bytes && memcmp(word, text, text_bytes) == 0;
}

static wo_status add_word(woi_fasttext_lines *s, const char *word, size_t bytes, wo_error *err)
{
    const int32_t id = woi_names_find(&s->net->features, word, bytes);
    wo_status status = WO_OK;
    if (id < 0) {
        const int32_t label = woi_names_find(&s->net->labels, word, bytes);
        if (label >= 0 &&
            !(status = woi_grow(&s->labels, &s->labels_room, s->n_labels, s->n_labels + 1, sizeof label, err)))
            s->labels[s->n_labels++] = label;
        if (label >= 0 || is_text(word, bytes, label_prefix, sizeof label_prefix - 1)) return status;
    } else {
        status = add_row(s, id, err);
    }
    const bool is_end = bytes == sizeof line_end - 1 && is_text(word, bytes, line_end, bytes);
    if (!status && s->net->grams.maxn > 0 && !is_end) status = add_letters(s, word, bytes, err);
    if (status || s->net->grams.words < 2) return status;
    if ((status = woi_grow(&s->hashes, &s->hashes_room, s->n_hashes, s->n_hashes + 1, sizeof(int32_t), err)))
        return status;
    s->hashes[s->n_hashes++] = (int32_t)hash_word(word, bytes);
    return WO_OK;
}

static wo_status read_line(woi_fasttext_lines *s, const char *text, size_t bytes, bool ended, wo_error *err)
{
    wo_status status = WO_OK;
    bool found = false;
    for (size_t at = 0; !status && at < bytes;) {
        while (at < bytes && is_separator(text[at])) at++;
        const size_t begin = at;
        while (at < bytes && !is_separator(text[at])) at++;
        if (at > begin) status = add_word(s, text + begin, at - begin, err);
        found |= at > begin;
    }
    s->n_known = s->counts[s->n];
    if (!status && ended) status = add_word(s, line_end, sizeof line_end - 1, err);
    if (!found) s->n_known = s->counts[s->n];
    if (!status && s->net->grams.words > 1) status = add_words(s, err);
    return status;
}

wo_status woi_fasttext_read(woi_fasttext_lines *s, const char *text, size_t bytes, bool ended, wo_error *err)
{
    const size_t n = s->n, d = s->net->d;
    wo_status status;
    if ((status = woi_grow(&s->starts, &s->starts_room, n, n + 1, sizeof *s->starts, err)) ||
        (status = woi_grow(&s->counts, &s->counts_room, n, n + 1, sizeof *s->counts, err)))
        return status;
    s->starts[n] = s->n_rows;
    s->counts[n] = s->n_labels = s->n_hashes = 0;
    memset(s->q + n * d, 0, d * sizeof *s->q);
    if ((status = read_line(s, text, bytes, ended, err)))
        s->n_rows = s->starts[n];
    else
        s->n++;
    return status;
}

void woi_fasttext_free(woi_fasttext_lines *s)
{
    woi_free(s->rows);
    woi_free(s->labels);
    woi_free(s->hashes);
    woi_free(s->starts);
    woi_free(s->counts);
    memset(s, 0, sizeof *s);
}
