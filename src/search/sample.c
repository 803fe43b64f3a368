/* Drawing a class from the answers of a search: see wo_sample.
 *
 * The answers come best first, so that what is cut off is a tail. Of the others the one with the largest
 *
 *   score / temperature + g,   g = -log(-log(u)),   u uniform by seed, position and class
 *
 * is drawn, which has the odds exp(score / temperature) (the Gumbel-max trick). A single u and a walk along the sums
 * would do for one list. So two lists with the same scores, an index's and FULL's, draw the same class unless one of
 * them lacks it: whatever else they lack does not matter. */
#include "base/error.h"
#include "base/rng.h"
#include "base/sized.h"

#include <math.h>

enum { STREAM = 0x73616d70 }; /* of the seed */

static double gumbel(uint64_t seed, uint64_t position, int32_t id)
{
    const uint64_t bits = woi_rng_u64(seed, (uint64_t)STREAM << 32 | (uint32_t)id, position) >> 11;
    return -log(-log(((double)bits + 0.5) * 0x1p-53));
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
    double best = -INFINITY;
    size_t at = 0;
    for (size_t j = 0; j <= last; j++) {
        const double value = (double)scores[j] / c->temperature + gumbel(c->seed, c->position + i, ids[j]);
        if (!(value > best)) continue;
        best = value;
        at = j;
    }
    return ids[at];
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
