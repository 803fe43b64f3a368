/* Bytes from a file or a pipe, unpacked where they are gzip (by content), handed on as they are where not. */
#ifndef WOI_TEXT_UNPACK_H
#define WOI_TEXT_UNPACK_H

#include "wideout.h"

typedef struct woi_unpack woi_unpack;

/* Takes the descriptor over, also on failure. */
wo_status woi_unpack_open(int fd, woi_unpack **unpack, wo_error *err);
void woi_unpack_free(woi_unpack *unpack);

/* Up to `room` bytes, at least one unless the end is reached: *got is then 0. Truncated or damaged gzip data, and bytes
 * after it that are not gzip, are WO_ERR_FORMAT with the reason as the sentence. */
wo_status woi_unpack_read(woi_unpack *unpack, void *to, size_t room, size_t *got, wo_error *err);

/* From the start again: the same file, also where another has taken its name. Not for a pipe. */
wo_status woi_unpack_rewind(woi_unpack *unpack, wo_error *err);

uint64_t woi_unpack_position(const woi_unpack *unpack); /* bytes of the file that were used */

#endif
