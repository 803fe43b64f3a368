/* Any bytes as a safetensors file, an index JSON or a log: refused with a sentence, or readable to the last byte. */
#include "fuzz.h"

#include "store/log.h"

#include <string.h>

static volatile unsigned char sink; /* so that every byte is read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[32];
    int fd = fuzz_file(data, bytes, path);
    woi_st *st = NULL;
    wo_error err = {0};
    if (woi_st_open(path, &st, &err) == WO_OK) {
        for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
            const woi_tensor *t = woi_st_tensor(st, i);
            for (size_t j = 0; j < t->bytes; j++) sink ^= ((const unsigned char *)t->data)[j];
            if (woi_st_find(st, t->name) != t) abort();
        }
        (void)woi_st_verify(st, NULL, &err);
        woi_st_free(st);
    } else if (!err.text[0] || strchr(err.text, '\n')) {
        abort();
    }
    woi_log log;
    if (woi_log_open(path, &log, &err) == WO_OK) woi_log_close(&log);
    close(fd);
    return 0;
}
