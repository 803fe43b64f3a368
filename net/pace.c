/* Which rate an epoch has, from the precisions of those before it. */
#include "net/pace.h"

/* Rates are shares of the peak. With one epoch of patience at the peak a run would end at the first dip, which is noise
 * as long as P@1 moves by less than the validation part can tell. */
static const double FIRST = 0.04, FACTOR = 0.3, LEAST = 0.02;
enum { PATIENCE_AT_PEAK = 2, PATIENCE_BELOW = 1 };

woi_pace woi_pace_after(const woi_history *history)
{
    woi_pace pace = {.from = FIRST, .to = 1};
    double best = -1, share = 1;
    uint64_t idle = 0; /* epochs at this rate without a gain */
    for (uint64_t i = 0; i < history->n; i++) {
        idle++;
        if (history->p_at_1[i] > best) {
            best = history->p_at_1[i];
            pace.kept = i + 1;
            idle = 0;
        }
        pace.back = idle >= (share == 1 ? PATIENCE_AT_PEAK : PATIENCE_BELOW);
        if (pace.back) {
            share *= FACTOR;
            idle = 0;
        }
        pace.from = pace.to = share;
    }
    pace.over = share < LEAST || history->n >= WOI_PACE_EPOCHS;
    return pace;
}

double woi_pace_rate(const woi_pace *pace, double part)
{
    return pace->from + (pace->to - pace->from) * part;
}
