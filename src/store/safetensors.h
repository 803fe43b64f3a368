/* What reader and writer of our own safetensors files agree on.
 *
 * A file is ours when its __metadata__ has "wideout.format": MAJOR or MAJOR.MINOR. Another major version is not read; a
 * later minor one is, unless "wideout.needs" names a feature that the reader does not have: "a,b". It then has "kind",
 * "wideout.version", "xxh3.NAME" for every tensor and "xxh3.header" for the header itself: 16 hexadecimal digits each,
 * XXH3 with 64 bits. The header's checksum is taken over the JSON, spaces after it included, with its own digits as
 * zeros. */
#ifndef WOI_STORE_SAFETENSORS_H
#define WOI_STORE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>

#define WOI_ST_METADATA "__metadata__"
#define WOI_ST_FORMAT "wideout.format"
#define WOI_ST_FORMAT_VERSION "1"
#define WOI_ST_VERSION "wideout.version"
#define WOI_ST_NEEDS "wideout.needs"
#define WOI_ST_CHECKSUM "xxh3."
#define WOI_ST_DIGITS 16
#define WOI_ST_ALIGN 64
#define WOI_ST_MAX_HEADER 100000000u /* bytes: the limit of the format's own reader */

void woi_st_checksum(const void *data, size_t bytes, char digits[WOI_ST_DIGITS + 1]);

/* As 16 digits, the way they stand in the file. */
void woi_st_checksum_digits(unsigned long long hash, char digits[WOI_ST_DIGITS + 1]);

/* Where the header's own 16 digits stand in its JSON; NULL where they do not. */
const char *woi_st_header_digits(const char *header, size_t bytes);

/* The checksum that the header should state; false, with empty digits, where it has no place for it. */
bool woi_st_header_checksum(const char *header, size_t bytes, char digits[WOI_ST_DIGITS + 1]);

#endif
