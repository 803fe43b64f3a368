/* The end of a top-k scan: the heap becomes a sorted list. Scanning is a kernel (topk_scan); the heap is in topk.h. */
#include "kernels/topk.h"

void woi_topk_finish(woi_topk *top)
{
    /* Heapsort: the worst leaves the top for the last place, then the next worst for the place before it. */
    for (size_t n = top->n; n > 1; n--) {
        float score = top->scores[n - 1];
        int32_t id = top->ids[n - 1];
        woi_topk_put(top, n - 1, top->scores[0], top->ids[0]);
        woi_topk_replace(top, n - 1, score, id);
    }
    woi_topk_pad(top);
}
