/* jansson's memory through the counters of testing.h's failing allocator: json_set_alloc_funcs(json_alloc,
 * json_release). */
#ifndef WO_FAILING_JSON_H
#define WO_FAILING_JSON_H

#include "testing.h"

#include <jansson.h>
#include <stdbool.h>

static bool jansson_failed; /* the allocation that failed was jansson's */

static void *json_alloc(size_t bytes)
{
    void *memory = failing_alloc(NULL, bytes ? bytes : 1, 16);
    jansson_failed |= memory == NULL;
    return memory;
}

static void json_release(void *memory)
{
    if (memory) failing_release(NULL, memory);
}

#endif
