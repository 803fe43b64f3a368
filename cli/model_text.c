/* Other people's models, as 'wideout info' shows them. */
#include "model_text.h"

#include "store/store.h"

#include <inttypes.h>
#include <jansson.h>

/* ---- fastText ---------------------------------------------------------------------------------------------- */

static json_t *matrix_json(const woi_tensor *t)
{
    return json_pack("{s:s, s:s, s:[I, I], s:I, s:I}", "name", t->name, "dtype", woi_dtype_name(t->dtype), "shape",
                     (json_int_t)t->shape[0], (json_int_t)t->shape[1], "bytes", (json_int_t)t->bytes, "offset",
                     (json_int_t)t->offset);
}

static json_t *fasttext_json(const woi_fasttext *ft)
{
    return json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:[o, o]}", "format", "fasttext", "loss",
                     woi_fasttext_loss_name(ft->loss), "d", (json_int_t)ft->d, "words", ft->n_words, "labels",
                     ft->n_labels, "word_ngrams", ft->word_ngrams, "minn", ft->minn, "maxn", ft->maxn, "bucket",
                     ft->bucket, "tensors", matrix_json(&ft->input), matrix_json(&ft->output));
}

static void print_matrix(const woi_tensor *t)
{
    char shape[64];
    snprintf(shape, sizeof shape, "%s x %s", cli_number(t->shape[0]), cli_number(t->shape[1]));
    cli_print_tensor(woi_dtype_name(t->dtype), shape, cli_bytes(t->bytes));
    printf("%s\n", t->name);
}

int cli_fasttext_info(const char *path, bool json)
{
    woi_fasttext ft;
    wo_error err;
    int code;
    if (woi_fasttext_open(path, &ft, &err)) return cli_fail(path, &err);
    if (json) {
        code = cli_print_json(fasttext_json(&ft));
    } else {
        cli_print_text(stdout, path);
        printf(": fastText, supervised, %s\n  %s, %s, %s\n", woi_fasttext_loss_name(ft.loss),
               cli_count((uint64_t)ft.n_words, "word"), cli_count((uint64_t)ft.n_labels, "label"),
               cli_count(ft.d, "dimension"));
        if (ft.word_ngrams > 1) printf("  n-grams of up to %" PRId32 " words\n", ft.word_ngrams);
        if (ft.maxn > 0) printf("  n-grams of %" PRId32 " to %" PRId32 " letters\n", ft.minn, ft.maxn);
        if (ft.bucket > 0) printf("  %s for n-grams\n", cli_count((uint64_t)ft.bucket, "bucket"));
        print_matrix(&ft.input);
        print_matrix(&ft.output);
        code = cli_end();
    }
    woi_fasttext_close(&ft);
    return code;
}

/* ---- GGUF -------------------------------------------------------------------------------------------------- */

/* What a GGUF file says of tensors that are not read may be any number: one that is no json_int_t is a real. */
static json_t *size_json(uint64_t n)
{
    return n <= INT64_MAX ? json_integer((json_int_t)n) : json_real((double)n);
}

static json_t *gguf_tensor_json(const woi_gguf_tensor *t)
{
    json_t *shape = json_array(); /* rows first, as everywhere else */
    for (int i = t->n_dims; i-- > 0;) json_array_append_new(shape, size_json(t->shape[i]));
    return json_pack("{s:o, s:s, s:o, s:o, s:o}", "name", cli_json_bytes(t->name, t->name_bytes), "dtype",
                     woi_gguf_type_name(t->type), "shape", shape, "bytes", size_json(t->bytes), "offset",
                     size_json(t->offset));
}

static json_t *gguf_json(const woi_gguf *gguf)
{
    json_t *tensors = json_array();
    for (size_t i = 0; i < gguf->n_tensors; i++) json_array_append_new(tensors, gguf_tensor_json(&gguf->tensors[i]));
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:I, s:o}", "format", "gguf", "version", (json_int_t)gguf->version,
                     "architecture", cli_json_bytes(gguf->architecture, gguf->architecture_bytes), "metadata",
                     size_json(gguf->n_pairs), "tokens", size_json(gguf->n_tokens), "alignment",
                     (json_int_t)gguf->alignment, "tensors", tensors);
}

static void gguf_print(const char *path, const woi_gguf *gguf)
{
    cli_print_text(stdout, path);
    printf(": GGUF version %" PRIu32, gguf->version);
    if (gguf->architecture) {
        printf(", ");
        cli_print_bytes(stdout, gguf->architecture, gguf->architecture_bytes);
    }
    printf("\n  %s, %s, %s of metadata\n", cli_count(gguf->n_tensors, "tensor"), cli_count(gguf->n_tokens, "token"),
           cli_count(gguf->n_pairs, "line"));
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const woi_gguf_tensor *t = &gguf->tensors[i];
        char shape[128] = "scalar";
        size_t used = 0;
        for (int j = t->n_dims; j-- > 0;)
            used +=
                (size_t)snprintf(shape + used, sizeof shape - used, "%s%s", used ? " x " : "", cli_number(t->shape[j]));
        cli_print_tensor(woi_gguf_type_name(t->type), shape, t->bytes ? cli_bytes(t->bytes) : "");
        cli_print_bytes(stdout, t->name, t->name_bytes);
        printf("\n");
    }
}

int cli_gguf_info(const char *path, bool json)
{
    woi_gguf gguf;
    wo_error err;
    int code;
    if (woi_gguf_open(path, &gguf, &err)) return cli_fail(path, &err);
    if (json) {
        code = cli_print_json(gguf_json(&gguf));
    } else {
        gguf_print(path, &gguf);
        code = cli_end();
    }
    woi_gguf_close(&gguf);
    return code;
}
