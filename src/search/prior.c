/* Uniting cells with their shares: see prior.h. */
#include "search/prior.h"

#include "base/bf16.h"

#include <math.h>
#include <string.h>

/* The share that each cell has in the whole. */
static void weigh(const wo_index *index, woi_opened opened, float *weights)
{
    float sum = 0;
    for (uint32_t c = 0; c < opened.n; c++) {
        const float behind = opened.scores ? opened.scores[0] - opened.scores[c] : 0;
        weights[c] = behind > 0 ? expf((float)-index->options.focus * behind) : 1;
        sum += weights[c];
    }
    for (uint32_t c = 0; c < opened.n; c++) weights[c] /= sum;
}

/* A spot is a class's place in the union, counted on from the union before, so that nothing is cleared between queries
 * but when numbers end. */
static void new_union(const wo_index *index, woi_worker *w)
{
    const size_t m = index->rows.m;
    if (w->first_spot && w->next_spot <= UINT32_MAX - m) {
        w->first_spot = w->next_spot;
    } else {
        memset(w->spots, 0, m * sizeof *w->spots);
        w->first_spot = 1;
    }
}

size_t woi_prior_unite(const wo_index *index, woi_worker *w, woi_opened opened)
{
    const woi_cells *cells = &index->cells;
    new_union(index, w);
    w->next_spot = w->first_spot;
    if (!opened.n) return 0;
    weigh(index, opened, w->cell_weights);
    uint32_t *spots = w->spots;
    const uint32_t first = w->first_spot;
    int32_t *ids = w->ids;
    float *extra = w->extra;
    uint32_t n = 0;
    for (uint32_t end = cells->offsets[*opened.cells + 1], at = cells->offsets[*opened.cells]; at < end; at++, n++) {
        ids[n] = cells->ids[at]; /* of one cell all are new */
        extra[n] = w->cell_weights[0] * woi_bf16_to_f32(cells->shares[at]);
        spots[ids[n]] = first + n;
    }
    for (uint32_t c = 1; c < opened.n; c++) {
        const uint32_t end = cells->offsets[opened.cells[c] + 1];
        const float weight = w->cell_weights[c];
        for (uint32_t at = cells->offsets[opened.cells[c]]; at < end; at++) {
            const int32_t id = cells->ids[at];
            const bool known = spots[id] >= first;
            const uint32_t spot = known ? spots[id] : first + n;
            ids[n] = id; /* written always, kept when new: no branch to guess */
            extra[n] = 0;
            n += !known;
            spots[id] = spot;
            extra[spot - first] += weight * woi_bf16_to_f32(cells->shares[at]);
        }
    }
    w->next_spot = first + n;
    return n;
}

size_t woi_prior_add(woi_worker *w, int32_t id, size_t n)
{
    if (w->spots[id] >= w->first_spot) return n;
    w->ids[n] = id;
    w->extra[n] = 0;
    w->spots[id] = w->next_spot++;
    return n + 1;
}
