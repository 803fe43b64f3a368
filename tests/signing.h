/* A file of ours with checksums that are right again after it was changed: what an attacker does, who knows the format
 * as well as we do. Checksums find accidents; whatever passes them must still be safe to open. */
#ifndef WO_SIGNING_H
#define WO_SIGNING_H

#include "store/safetensors.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void sign_header(char *header, size_t bytes)
{
    char digits[WOI_ST_DIGITS + 1];
    const char *at = woi_st_header_digits(header, bytes);
    if (at && woi_st_header_checksum(header, bytes, digits)) memcpy(header + (at - header), digits, WOI_ST_DIGITS);
}

/* Signs the file at `data`, which begins at a multiple of 8 bytes. False where it is no file of ours any more. */
static inline bool sign(unsigned char *data, size_t bytes)
{
    uint64_t header_bytes;
    if (bytes < 8) return false;
    memcpy(&header_bytes, data, 8);
    if (header_bytes > bytes - 8) return false;
    char *header = (char *)data + 8;
    sign_header(header, header_bytes);
    woi_st *st = NULL;
    if (woi_st_open_memory(data, bytes, &st, NULL)) return false;
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        char key[128], digits[WOI_ST_DIGITS + 1];
        const int length = snprintf(key, sizeof key, "\"" WOI_ST_CHECKSUM "%s\":\"", t->name);
        char *at = length < (int)sizeof key ? memmem(header, header_bytes, key, (size_t)length) : NULL;
        if (!at || header + header_bytes - at < length + WOI_ST_DIGITS) continue;
        woi_st_checksum(t->data, t->bytes, digits);
        memcpy(at + length, digits, WOI_ST_DIGITS);
    }
    const bool ours = woi_st_kind(st) != NULL;
    woi_st_free(st);
    sign_header(header, header_bytes);
    return ours;
}

#endif
