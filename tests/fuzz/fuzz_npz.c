/* Any bytes as labels in an archive of NumPy's: refused with a sentence, or lists that a log can have. Checksums would
 * stop nearly every mutation of a packed array, so the same bytes are tried once more with those of the members made
 * right. */
#include "fuzz.h"

#include "text/npz.h"

#include <string.h>
#include <zlib.h>

static void check(const uint8_t *data, size_t bytes)
{
    char path[32];
    const int fd = fuzz_file(data, bytes, path);
    woi_label_lists lists;
    wo_error err = {0};
    if (woi_npz_labels(path, &lists, &err) == WO_OK) {
        if (lists.indptr[0] != 0) abort();
        for (size_t i = 0; i < lists.n; i++)
            if (lists.indptr[i + 1] < lists.indptr[i]) abort();
        for (int64_t i = 0; i < lists.indptr[lists.n]; i++)
            if (lists.labels[i] < 0) abort();
        woi_label_lists_free(&lists);
    } else if (!err.text[0]) {
        abort();
    }
    close(fd);
}

/* Where a member is stored as it is, its checksum can be had from its bytes. */
static void sign(uint8_t *data, size_t bytes)
{
    for (size_t at = 0; at + 46 <= bytes; at++) {
        uint8_t *entry = data + at;
        uint32_t n, place, crc;
        uint16_t name, extra;
        if (memcmp(entry, "PK\1\2", 4) != 0) continue;
        memcpy(&n, entry + 20, 4);
        memcpy(&place, entry + 42, 4);
        if (place > bytes || bytes - place < 30) continue;
        memcpy(&name, data + place + 26, 2);
        memcpy(&extra, data + place + 28, 2);
        const size_t from = (size_t)place + 30 + name + extra;
        if (from > bytes || n > bytes - from) continue;
        crc = (uint32_t)crc32(0, data + from, n);
        memcpy(entry + 16, &crc, 4);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    check(data, bytes);
    uint8_t *copy = malloc(bytes + 1);
    if (!copy) abort();
    memcpy(copy, data, bytes);
    sign(copy, bytes);
    check(copy, bytes);
    free(copy);
    return 0;
}
