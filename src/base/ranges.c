/* Ranges of places, one for each process. */
#include "base/ranges.h"

#include "base/mem.h"

wo_status woi_range_gather(const wo_collective *together, void *data, size_t n, size_t bytes, wo_error *err)
{
    if (!together || together->size == 1) return WO_OK;
    const size_t size = (size_t)together->size;
    size_t *each = woi_alloc(size, sizeof *each, err);
    if (!each) return WO_ERR_MEMORY;
    for (size_t r = 0; r < size; r++) each[r] = (woi_part_start(r + 1, size, n) - woi_part_start(r, size, n)) * bytes;
    const char *own = (const char *)data + woi_range_own(together, n).first * bytes;
    const wo_status status = together->gather(together->ctx, own, each, data, err);
    woi_free(each);
    return status;
}

typedef struct shifted {
    woi_range_fn fn;
    void *ctx;
    size_t first;
} shifted;

static void run_shifted(void *own, int worker, size_t first, size_t end)
{
    const shifted *s = own;
    s->fn(s->ctx, worker, s->first + first, s->first + end);
}

void woi_range_run(const wo_collective *together, int threads, size_t n, size_t at_once, woi_range_fn fn, void *ctx)
{
    const woi_range own = woi_range_own(together, n);
    woi_team_ranges(threads, own.end - own.first, at_once, run_shifted, &(shifted){fn, ctx, own.first});
}
