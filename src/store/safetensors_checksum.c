/* XXH3 checksums of tensors and of the header that holds them. */
#include "store/safetensors.h"

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
