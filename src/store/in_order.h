/* Bytes that are read in order, none beyond the end: for headers that are no table of offsets. */
#ifndef WOI_STORE_IN_ORDER_H
#define WOI_STORE_IN_ORDER_H

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

typedef struct woi_in_order {
    const char *start, *at, *end;
} woi_in_order;

static inline uint64_t woi_in_order_place(const woi_in_order *in)
{
    return (uint64_t)(in->at - in->start);
}

static inline size_t woi_in_order_left(const woi_in_order *in)
{
    return (size_t)(in->end - in->at);
}

/* The next bytes; `what` they are is said where the file ends before. */
static inline wo_status woi_in_order_take(woi_in_order *in, void *to, size_t bytes, const char *what, wo_error *err)
{
    if (woi_in_order_left(in) < bytes)
        return woi_fail(err, WO_ERR_FORMAT, woi_in_order_place(in), "the file ends at byte %" PRIu64 ", inside %s",
                        (uint64_t)(in->end - in->start), what);
    memcpy(to, in->at, bytes);
    in->at += bytes;
    return WO_OK;
}

#endif
