/* Using the mixture: see mixture.h. */
#include "search/mixture.h"

#include <math.h>
#include <string.h>

/* Of shares as they are. */
typedef struct part {
    double mass, scale;
} part;

static part part_of(const float *shares, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)shares[i];
    return sum > 1 ? (part){1, 1 / sum} : (part){sum, 1};
}

double woi_mixture_apply(const wo_searcher *searcher, woi_log_sum log_z, float *shares, float *logits, size_t n)
{
    /* exp(-log p) is a float's for all that a share can be added to: below this a class has its share alone. */
    static const float least = -60;
    const double mix = searcher->index->options.mix;
    const part whole = part_of(shares, n);
    const double rest = log1p(-mix * whole.mass);
    float odds[64];
    for (size_t first = 0; first < n; first += 64) {
        const size_t count = n - first < 64 ? n - first : 64;
        float *log_p = logits + first, *gain = shares + first;
        for (size_t i = 0; i < count; i++) {
            log_p[i] = (float)(woi_relative(log_p[i], log_z) + rest);
            if (gain[i] > 0 && log_p[i] < least) log_p[i] = least;
            odds[i] = gain[i] > 0 ? -log_p[i] : 0;
        }
        searcher->kernels->exp_sum(odds, count, 0, odds);
        for (size_t i = 0; i < count; i++) gain[i] = gain[i] > 0 ? gain[i] * odds[i] : 0;
        searcher->kernels->scaled_log(gain, count, (float)(mix * whole.scale), 1);
        for (size_t i = 0; i < count; i++) log_p[i] += gain[i];
    }
    return rest;
}

void woi_mixture_see(const woi_labels_seen *seen, size_t i, const woi_worker *w, size_t n)
{
    const part whole = part_of(w->extra, n);
    for (size_t at = seen->starts[i]; at < seen->starts[i + 1]; at++) {
        const uint32_t spot = w->spots[seen->labels[at]];
        const bool held = spot >= w->first_spot && spot < w->next_spot;
        seen->shares[at] = held ? (float)whole.scale * w->extra[spot - w->first_spot] : 0;
        seen->mass[at] = (float)whole.mass;
    }
}
