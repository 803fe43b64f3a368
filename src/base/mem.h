/* Memory for the library: 64-byte aligned, from the allocator that wo_allocator_set chose. */
#ifndef WOI_BASE_MEM_H
#define WOI_BASE_MEM_H

#include "wideout.h"

#include <stdbool.h>

#define WOI_ALIGN 64 /* a cache line, and the width of an AVX-512 register */

/* n elements of `size` bytes each, uninitialised; NULL, with the sentence in `err`, when there is no such memory.
 * n = 0 gives a valid pointer. */
void *woi_alloc(size_t n, size_t size, wo_error *err);

/* The same, filled with zero bytes. */
void *woi_alloc_zero(size_t n, size_t size, wo_error *err);

/* A copy of text[0..bytes), terminated. */
char *woi_copy_text(const char *text, size_t bytes, wo_error *err);

/* Makes room for at least `need` elements in a growing array: *items (may be NULL), *capacity in elements, `used` of
 * them in use and kept. Grows by half again, so that appending is linear. On failure the array stays as it was. */
wo_status woi_grow(void *items, size_t *capacity, size_t used, size_t need, size_t size, wo_error *err);

void woi_free(void *memory);

#endif
