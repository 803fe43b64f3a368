/* Using log Z: see partition.h. */
#include "search/partition.h"

#include <math.h>
#include <string.h>

double woi_log_add(double a, double b)
{
    const double high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

double woi_length_of(const woi_kernels *kernels, const float *q, size_t d)
{
    float square;
    kernels->dot_f32(q, q, 1, d, d, &square);
    return sqrt((double)square);
}

double woi_partition_tail(const wo_searcher *searcher, const float *q, woi_opened opened, double of_candidates)
{
    const wo_index *index = searcher->index;
    const woi_partition *p = &index->partition;
    const size_t d = index->rows.d;
    const float *x = p->numbers;
    if (of_candidates == -INFINITY) of_candidates = (double)x[WOI_LOG_Z_TYPICAL];
    float along;
    searcher->kernels->dot_f32(q, p->direction, 1, d, d, &along);
    double of_cells = 0;
    for (uint32_t c = 0; c < opened.n; c++) of_cells += (double)p->of_cell[opened.cells[c]];
    return (double)x[WOI_LOG_Z_INTERCEPT] + (double)x[WOI_LOG_Z_OF_LENGTH] * woi_length_of(searcher->kernels, q, d) +
           (double)x[WOI_LOG_Z_OF_CANDIDATES] * of_candidates + (double)along + of_cells / (double)opened.n;
}

void woi_partition_see(const woi_seen *seen, size_t i, woi_opened opened, double of_candidates)
{
    const uint32_t n = opened.n < seen->room ? opened.n : (uint32_t)seen->room;
    seen->of_candidates[i] = of_candidates;
    seen->n_cells[i] = n;
    memcpy(seen->cells + i * seen->room, opened.cells, n * sizeof *opened.cells);
}
