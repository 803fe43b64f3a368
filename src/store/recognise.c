/* What kind of file is this? Decided by the first bytes, so that any name is allowed. */
#include "base/error.h"
#include "store/journal.h"
#include "store/map.h"
#include "store/safetensors.h"
#include "store/store.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static bool starts_with(const unsigned char *head, size_t n, const char *magic, size_t magic_bytes)
{
    return n >= magic_bytes && memcmp(head, magic, magic_bytes) == 0;
}

wo_status woi_refuse_gzip(const void *head, size_t bytes, wo_error *err)
{
    if (!starts_with(head, bytes, "\x1f\x8b", 2)) return WO_OK;
    return woi_fail(err, WO_ERR_UNSUPPORTED, 0,
                    "the file is compressed with gzip: unpack it first (gunzip), only text is read so");
}

/* What packs files, and what unpacks them again. */
static wo_status refuse_packed(const unsigned char *head, size_t n, wo_error *err)
{
    static const struct packer {
        const char *magic;
        size_t bytes;
        const char *name, *unpacks;
    } packers[] = {{"\xfd"
                    "7zXZ",
                    6, "xz", "unxz"},
                   {"\x28\xb5\x2f\xfd", 4, "zstd", "unzstd"},
                   {"BZh91AY&SY", 10, "bzip2", "bunzip2"}};
    for (size_t i = 0; i < sizeof packers / sizeof *packers; i++)
        if (starts_with(head, n, packers[i].magic, packers[i].bytes))
            return woi_fail(err, WO_ERR_UNSUPPORTED, 0, "the file is compressed with %s: unpack it first (%s)",
                            packers[i].name, packers[i].unpacks);
    return WO_OK;
}

wo_status woi_file_recognise(const char *path, woi_file_kind *kind, wo_error *err)
{
    int fd;
    uint64_t size;
    wo_status status = woi_open_plain(path, &fd, &size, err);
    if (status) return status;
    unsigned char head[WOI_HEAD_BYTES];
    size_t n = 0;
    for (ssize_t got = 1; got != 0 && n < sizeof head; n += (size_t)got) { /* a read may be interrupted, or short */
        do got = read(fd, head + n, sizeof head - n);
        while (got < 0 && errno == EINTR);
        const int errnum = errno;
        if (got >= 0) continue;
        close(fd);
        return woi_fail_errno(err, "the file cannot be read", errnum);
    }
    close(fd);
    return woi_head_recognise(head, n, kind, err);
}

wo_status woi_head_recognise(const void *bytes, size_t n, woi_file_kind *kind, wo_error *err)
{
    unsigned char head[WOI_HEAD_BYTES] = {0};
    size_t first = 0;
    if (n == 0) return woi_fail(err, WO_ERR_FORMAT, 0, "the file is empty");
    memcpy(head, bytes, n);
    while (first < n && head[first] && strchr(" \t\r\n", head[first])) first++;
    uint64_t length;
    uint32_t magic;
    wo_status status;
    memcpy(&length, head, 8);
    memcpy(&magic, head, 4);
    if (n > 8 && head[8] == '{' && length <= WOI_ST_MAX_HEADER) {
        /* First: the low byte of a header length may be the first of any other format. */
        *kind = WOI_FILE_SAFETENSORS;
    } else if (memcmp(head, "\x93NUMPY", n < 6 ? n : 6) == 0) {
        *kind = WOI_FILE_NPY;
    } else if (starts_with(head, n, WOI_JOURNAL_MAGIC, WOI_JOURNAL_MAGIC_BYTES)) {
        *kind = WOI_FILE_JOURNAL;
    } else if (n >= 4 && magic == WOI_FASTTEXT_MAGIC) {
        *kind = WOI_FILE_FASTTEXT;
    } else if (starts_with(head, n, "GGUF", 4) && memchr(head, 0, n)) { /* text has no NUL */
        *kind = WOI_FILE_GGUF;
    } else if (starts_with(head, n, "\x1f\x8b", 2)) {
        *kind = WOI_FILE_GZIP;
    } else if ((status = refuse_packed(head, n, err))) {
        return status;
    } else if (starts_with(head, n, "PK\x03\x04", 4)) {
        return woi_fail(err, WO_ERR_UNSUPPORTED, 0,
                        "the file is a zip archive (.npz or PyTorch .pt): save the arrays as .npy or as safetensors");
    } else if (head[0] == 0x80 && n > 1 && head[1] >= 2 && head[1] <= 5) {
        return woi_fail(err, WO_ERR_UNSUPPORTED, 0, "the file is a pickle, which could run code: save as safetensors");
    } else if (memchr(head, 0, n < 8 ? n : 8)) {
        /* Text has no NUL, a header length below 2^56 has one. */
        *kind = WOI_FILE_SAFETENSORS;
    } else if (first < n && head[first] == '{') {
        *kind = WOI_FILE_SHARD_INDEX;
    } else if (n > 8 && head[8] == '{') {
        *kind = WOI_FILE_SAFETENSORS; /* with a length that its reader will refuse */
    } else {
        *kind = WOI_FILE_XC;
    }
    return WO_OK;
}
