/* Drawing a class from the answers of a search: see wo_sample.
 *
 * The answers come best first, so that what is cut off is a tail, and a number from 0 to 1 finds its class by adding up
 * from the best. */
#include "base/error.h"
#include "base/rng.h"
#include "base/sized.h"

#include <math.h>

enum { STREAM = 0x73616d70 }; /* of the seed */

/* From 0 to 1, without 1; 53 bits. */
static double uniform(uint64_t seed, uint64_t position)
{
    return (double)(woi_rng_u64(seed, STREAM, position) >> 11) * 0x1p-53;
}

/* The odds of an answer, of the best 1. */
static double odds(const wo_sample_call *c, const float *scores, size_t j)
{
    return j == 0 ? 1 : exp(((double)scores[j] - (double)scores[0]) / c->temperature);
}

static int32_t draw(const wo_sample_call *c, size_t i)
{
    const int32_t *ids = c->ids + i * c->k;
    const float *scores = c->scores + i * c->k;
    const size_t most = c->top_k && c->top_k < c->k ? c->top_k : c->k;
    size_t n = 0;
    double all = 0;
    for (; n < most && ids[n] >= 0 && !isnan(scores[n]); n++) all += c->temperature > 0 ? odds(c, scores, n) : 0;
    if (n == 0) return -1;
    if (c->temperature == 0 || !isfinite(all)) return ids[0];
    double kept = 0; /* the odds of those that stay */
    size_t last = 0;
    for (; last < n; last++) {
        kept += odds(c, scores, last);
        if (kept >= c->top_p * all) break;
    }
    if (last == n) last = n - 1; /* top_p 1, and a sum that was rounded */
    double left = uniform(c->seed, c->position + i) * kept;
    for (size_t j = 0; j < last; j++)
        if ((left -= odds(c, scores, j)) < 0) return ids[j];
    return ids[last];
}

wo_status wo_sample(const wo_sample_call *call, int32_t *drawn, wo_error *err)
{
    wo_sample_call c = {.struct_size = sizeof c};
    wo_status status = woi_sized_take(&c, sizeof c, call, "sample call", err);
    if (!status) status = woi_check_range("temperature", c.temperature, 0, 1e6, err);
    if (!status) status = woi_check_range("top_p", c.top_p, 0, 1, err);
    if (!status) status = woi_check_range("reserved", c.reserved, 0, 0, err);
    if (status) return status;
    if (c.k < 1) return woi_fail_option(err, WO_ERR_ARGUMENT, "k", "k is 0: there are no answers to draw from");
    if (c.n && (!c.ids || !c.scores || !drawn))
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "ids, scores or drawn are NULL");
    for (size_t i = 0; i < c.n; i++) drawn[i] = draw(&c, i);
    return WO_OK;
}
