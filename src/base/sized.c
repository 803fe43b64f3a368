/* See sized.h. */
#include "base/sized.h"

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

/* No struct of ours is nearly as large: a size beyond was never set. */
enum { LARGEST = 4096 };

static bool is_set(size_t bytes)
{
    return bytes >= sizeof bytes && bytes <= LARGEST;
}

/* 0 where there is none. */
static size_t size_of(const void *sized)
{
    size_t bytes;
    if (!sized) return 0;
    memcpy(&bytes, sized, sizeof bytes);
    return bytes;
}

bool woi_sized_set(const void *sized)
{
    return is_set(size_of(sized));
}

wo_status woi_sized_take(void *to, size_t to_bytes, const void *given, const char *what, wo_error *err)
{
    if (!given) return WO_OK;
    const size_t bytes = size_of(given);
    if (!is_set(bytes))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "struct_size", "the %s have a struct_size of %zu: it is not set",
                               what, bytes);
    for (size_t i = to_bytes; i < bytes; i++)
        if (((const unsigned char *)given)[i])
            return woi_fail_option(
                err, WO_ERR_UNSUPPORTED, "struct_size",
                "the %s have %zu bytes, and byte %zu is not 0: this version of the library knows %zu", what, bytes, i,
                to_bytes);
    memcpy((char *)to + sizeof bytes, (const char *)given + sizeof bytes,
           (bytes < to_bytes ? bytes : to_bytes) - sizeof bytes);
    return WO_OK;
}

static void put(void *to, size_t to_bytes, const void *from, size_t from_bytes)
{
    const size_t both = to_bytes < from_bytes ? to_bytes : from_bytes;
    memcpy(to, from, both);
    memset((char *)to + both, 0, to_bytes - both);
    memcpy(to, &to_bytes, sizeof to_bytes < to_bytes ? sizeof to_bytes : to_bytes);
}

wo_status woi_sized_give(void *to, const void *result, size_t result_bytes)
{
    const size_t bytes = size_of(to);
    if (!is_set(bytes)) return WO_ERR_ARGUMENT;
    put(to, bytes, result, result_bytes);
    return WO_OK;
}

void woi_sized_defaults(void *to, size_t to_bytes, const void *defaults, size_t defaults_bytes)
{
    put(to, to_bytes, defaults, defaults_bytes);
}
