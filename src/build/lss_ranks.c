/* The logit of a given rank, for every query of a log: the thresholds t1 and t2 of Algorithm 1.
 *
 * One exact pass over the log before learning: 46,552 queries of Debian's 50,778 classes in 8 s, where all logits of
 * every batch would be made 8 times over. A tile of queries has all its logits at once, (TILE, m); the rank is found by
 * counting: 11, 11 and 10 bits of the floats in their order. */
#include "build/lss.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "kernels/gemm.h"

#include <math.h>
#include <string.h>

enum { TILE = 32, CHUNK = 2048 };

/* Floats as integers that rise in the same order. */
static inline uint32_t key_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u ^ ((u >> 31) ? 0xffffffffU : 0x80000000U);
}

static inline float value_of(uint32_t key)
{
    const uint32_t u = key ^ ((key >> 31) ? 0x80000000U : 0xffffffffU);
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The rank-th highest of n numbers, 1 <= rank <= n. */
static float of_rank(const float *x, size_t n, size_t rank)
{
    static const struct {
        uint32_t shift, bits;
    } digits[] = {{21, 11}, {10, 11}, {0, 10}};
    uint32_t prefix = 0, known = 0; /* the leading bits of the answer, and which they are */
    for (int i = 0; i < 3; i++) {
        uint32_t count[2048] = {0};
        const uint32_t shift = digits[i].shift, mask = (1U << digits[i].bits) - 1;
        for (size_t j = 0; j < n; j++) {
            const uint32_t key = key_of(x[j]);
            if ((key & known) == prefix) count[key >> shift & mask]++;
        }
        uint32_t digit = mask;
        for (; rank > count[digit]; digit--) rank -= count[digit];
        prefix |= digit << shift;
        known |= mask << shift;
    }
    return value_of(prefix);
}

/* 0: no threshold. */
static size_t rank_of(double t, size_t m)
{
    const double rank = t < 1 ? t * (double)m : t;
    return rank < 1 ? 0 : rank < (double)m ? (size_t)rank : m;
}

/* A chunk of the log, from its query `first` on. */
typedef struct ranking {
    const woi_dense *rows;
    const wo_log *log;
    size_t rank1, rank2; /* 0: not asked for */
    const woi_kernels *kernels;
    float *memory; /* of each thread: WOI_GEMM_SCRATCH, and logits (TILE, m) */
    float *above, *below;
    size_t first;
} ranking;

static void rank_tile(void *own, int worker, size_t tile_first, size_t tile_end)
{
    const ranking *r = own;
    const woi_dense *rows = r->rows;
    const size_t m = rows->m, d = rows->d, first = r->first + tile_first, n = tile_end - tile_first;
    float *scratch = r->memory + (size_t)worker * (WOI_GEMM_SCRATCH + TILE * m), *z = scratch + WOI_GEMM_SCRATCH;
    const woi_operand q = {r->log->queries + first * d, d, WOI_BY_ROWS}, w = {rows->w, d, WOI_BY_ROWS};
    woi_gemm(r->kernels, &(woi_product){n, m, d, q, w, z, m, false, rows->b}, scratch);
    for (size_t i = 0; i < n; i++) {
        const float *row = z + i * m;
        if (r->rank1) r->above[first + i] = of_rank(row, m, r->rank1);
        if (r->rank2) r->below[first + i] = of_rank(row, m, r->rank2);
    }
}

wo_status woi_lss_thresholds(const woi_dense *rows, const wo_log *log, const wo_build_options *o, float *above,
                             float *below, wo_error *err)
{
    const size_t m = rows->m;
    const size_t rank1 = rank_of(o->t1, m) < m ? rank_of(o->t1, m) : 0, rank2 = rank_of(o->t2, m);
    for (size_t i = 0; i < log->n; i++) {
        above[i] = -INFINITY;
        below[i] = INFINITY;
    }
    if (!rank1 && !rank2) return WO_OK;
    const int threads = woi_team_threads(o->threads);
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    float *memory = woi_alloc((size_t)threads, (WOI_GEMM_SCRATCH + TILE * m) * sizeof *memory, err);
    if (!memory) return WO_ERR_MEMORY;
    wo_status status = WO_OK;
    ranking r = {rows, log, rank1, rank2, kernels, memory, above, below, 0};
    for (; r.first < log->n && !status; r.first += CHUNK) {
        if ((status = woi_progress(&o->progress, "ranking logits", r.first, log->n, err))) break;
        woi_team_ranges(threads, log->n - r.first < CHUNK ? log->n - r.first : CHUNK, TILE, rank_tile, &r);
    }
    woi_free(memory);
    return status;
}
