/* XXH3 checksums of tensors and of the header that holds them. */
#include "store/safetensors.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL /* no state to allocate, no library call to fail */
#include <xxhash.h>

void woi_st_checksum_digits(unsigned long long hash, char digits[WOI_ST_DIGITS + 1])
{
    snprintf(digits, WOI_ST_DIGITS + 1, "%016llx", hash);
}

void woi_st_checksum(const void *data, size_t bytes, char digits[WOI_ST_DIGITS + 1])
{
    woi_st_checksum_digits(XXH3_64bits(data, bytes), digits);
}

const char *woi_st_header_digits(const char *header, size_t bytes)
{
    /* Quotes inside a JSON string are escaped, so this sequence can only be the key and the start of its value. */
    static const char key[] = "\"" WOI_ST_CHECKSUM "header\":\"";
    const char *at = memmem(header, bytes, key, sizeof key - 1);
    if (!at) return NULL;
    at += sizeof key - 1;
    return (size_t)(header + bytes - at) > WOI_ST_DIGITS ? at : NULL;
}

bool woi_st_header_checksum(const char *header, size_t bytes, char digits[WOI_ST_DIGITS + 1])
{
    const char *own = woi_st_header_digits(header, bytes);
    digits[0] = '\0';
    if (!own) return false;
    static const char zeros[WOI_ST_DIGITS + 1] = "0000000000000000";
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, header, (size_t)(own - header));
    XXH3_64bits_update(&state, zeros, WOI_ST_DIGITS);
    own += WOI_ST_DIGITS;
    XXH3_64bits_update(&state, own, (size_t)(header + bytes - own));
    woi_st_checksum_digits(XXH3_64bits_digest(&state), digits);
    return true;
}

/* ---- Verifying --------------------------------------------------------------------------------------------- */

static wo_status compare(const woi_st *st, const woi_tensor *tensor, const char *digits, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES], said[WOI_QUOTE_BYTES], *key = NULL;
    const size_t key_bytes = sizeof WOI_ST_CHECKSUM + strlen(tensor->name);
    if (!(key = woi_alloc(key_bytes, 1, err))) return WO_ERR_MEMORY;
    snprintf(key, key_bytes, "%s%s", WOI_ST_CHECKSUM, tensor->name);
    const char *stated = woi_st_meta(st, key);
    woi_free(key);
    if (stated && strcmp(stated, digits) == 0) return WO_OK;
    if (!stated) stated = "nothing";
    return woi_fail(err, WO_ERR_CHECKSUM, tensor->offset,
                    "tensor '%s' (%zu bytes at byte %" PRIu64 ") was changed: its checksum is %s, the file says %s",
                    woi_quote(quoted, tensor->name, strlen(tensor->name)), tensor->bytes, tensor->offset, digits,
                    woi_quote(said, stated, strlen(stated)));
}

wo_status woi_st_verify_hash(const woi_st *st, const woi_tensor *tensor, uint64_t hash, wo_error *err)
{
    char digits[WOI_ST_DIGITS + 1];
    if (!woi_st_kind(st)) return WO_OK;
    woi_st_checksum_digits(hash, digits);
    return compare(st, tensor, digits, err);
}

wo_status woi_st_verify_tensor(const woi_st *st, const woi_tensor *tensor, wo_error *err)
{
    char digits[WOI_ST_DIGITS + 1];
    if (!woi_st_kind(st)) return WO_OK;
    woi_st_checksum(tensor->data, tensor->bytes, digits);
    return compare(st, tensor, digits, err);
}

wo_status woi_st_verify(const woi_st *st, const wo_progress *progress, wo_error *err)
{
    if (!woi_st_kind(st)) return WO_OK;
    uint64_t done = 0, total = 0;
    const size_t n = woi_st_n_tensors(st);
    for (size_t i = 0; i < n; i++) total += woi_st_tensor(st, i)->bytes;
    for (size_t i = 0; i < n; i++) {
        wo_status status = woi_progress(progress, "verifying", done, total, err);
        if (!status) status = woi_st_verify_tensor(st, woi_st_tensor(st, i), err);
        if (status) return status;
        done += woi_st_tensor(st, i)->bytes;
    }
    return woi_progress(progress, "verifying", done, total, err);
}
