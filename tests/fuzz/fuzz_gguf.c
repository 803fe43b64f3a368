/* Any bytes as a GGUF file: refused with a sentence, or all that its header names can be had, and its layer or a
 * sentence why not. */
#include "fuzz.h"

#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[32];
    const int fd = fuzz_file(data, bytes, path);
    woi_gguf gguf;
    wo_layer *layer = NULL;
    wo_error err = {0};
    if (woi_gguf_open(path, &gguf, &err) == WO_OK) {
        const char *entry = gguf.tokens;
        volatile char sink = 0;
        for (uint64_t i = 0; entry && i < gguf.n_tokens; i++) {
            size_t n;
            const char *token = woi_gguf_token(&entry, &n);
            if (n) sink = token[n - 1];
        }
        for (size_t i = 0; i < gguf.n_tensors; i++) {
            const woi_gguf_tensor *t = &gguf.tensors[i];
            float *room = t->bytes ? malloc(t->n * sizeof *room + 1) : NULL;
            if (t->bytes && (!room || woi_gguf_read(t, room, &err))) abort();
            free(room);
        }
        woi_gguf_close(&gguf);
        (void)sink;
        err.text[0] = '\0';
        if (wo_layer_open(path, NULL, &layer, &err) && !err.text[0]) abort();
        wo_layer_free(layer);
    } else if (!err.text[0]) {
        abort();
    }
    close(fd);
    return 0;
}
