/* A file mapped read-only. */
#ifndef WOI_STORE_MAP_H
#define WOI_STORE_MAP_H

#include "wideout.h"

/* Opens for reading, refusing directories and other things that are not plain files; gives the descriptor and the
 * size. */
wo_status woi_open_plain(const char *path, int *fd, uint64_t *size, wo_error *err);

/* Maps a whole, non-empty file. A file that somebody shortens in place while it is mapped raises SIGBUS, as any mapped
 * file does; the program may have a handler (cli/vanished.c), the library never sets one. Files replaced by rename, as
 * ours are, are safe. */
wo_status woi_map(const char *path, const void **data, size_t *bytes, wo_error *err);
void woi_unmap(const void *data, size_t bytes);

#endif
