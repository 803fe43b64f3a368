/* Any bytes as an npy file: refused with a sentence, or all elements readable. */
#include "fuzz.h"

#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[32];
    int fd = fuzz_file(data, bytes, path);
    woi_npy npy;
    wo_error err = {0};
    if (woi_npy_open(path, &npy, &err) == WO_OK) {
        void *room = malloc(npy.n * 8 + 1);
        if (!room) abort();
        if (woi_npy_read_f32(&npy, room, &err) != WO_OK && woi_npy_read_i64(&npy, room, &err) != WO_OK) abort();
        free(room);
        woi_npy_close(&npy);
    } else if (!err.text[0]) {
        abort();
    }
    close(fd);
    return 0;
}
