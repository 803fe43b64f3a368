/* Reporting progress from inside a long loop. */
#ifndef WOI_BASE_PROGRESS_H
#define WOI_BASE_PROGRESS_H

#include "base/error.h"

/* Tells the caller; WO_ERR_CANCELLED when it wants to stop. `progress` may be NULL. */
static inline wo_status woi_progress(const wo_progress *progress, const char *stage, uint64_t done, uint64_t total,
                                     wo_error *err)
{
    if (!progress || !progress->fn || !progress->fn(progress->ctx, stage, done, total)) return WO_OK;
    return woi_fail(err, WO_ERR_CANCELLED, WO_NO_OFFSET, "stopped while %s", stage);
}

#endif
