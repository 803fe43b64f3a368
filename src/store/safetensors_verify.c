/* Verifying: the checksums of a file's tensors beside those that its metadata state. */
#include "store/safetensors.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
