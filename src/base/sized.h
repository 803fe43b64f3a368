/* Structs that begin with their size: how a caller of another version is served.
 *
 *   options   smaller: an older caller, whose missing fields have their defaults. Larger: a newer one, which is served
 *             as long as all that this version does not know is zero.
 *   results   as much as the caller has room for is written; what it has beyond is set to zero. */
#ifndef WOI_BASE_SIZED_H
#define WOI_BASE_SIZED_H

#include "wideout.h"

#include <stdbool.h>

/* Copies given options over `to`, which holds the defaults (to_bytes). `given` may be NULL: the defaults stay. Its size
 * becomes to_bytes. `what` is for the sentence: "build options". */
wo_status woi_sized_take(void *to, size_t to_bytes, const void *given, const char *what, wo_error *err);

/* Whether the caller has set the size of a struct. */
bool woi_sized_set(const void *sized);

/* Copies a result to the caller's struct, whose size is set; WO_ERR_ARGUMENT where it is not. */
wo_status woi_sized_give(void *to, const void *result, size_t result_bytes);

/* Fills the caller's options (to_bytes) with defaults, and sets their size. */
void woi_sized_defaults(void *to, size_t to_bytes, const void *defaults, size_t defaults_bytes);

#endif
