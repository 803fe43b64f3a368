/* k-means: see kmeans.h. */
#include "route/kmeans.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/gemm.h"

#include <math.h>
#include <string.h>

enum {
    CENTRES_AT_ONCE = 256,
    TRIES = 16,         /* points of which the best is where a centre starts */
    POINTS_A_START = 8, /* that are looked at for it */
};

static void put_centre(const woi_centres *c, uint32_t which, const float *x)
{
    double square = 0;
    for (size_t j = 0; j < c->r; j++) {
        c->at[which * c->r + j] = x[j];
        square += (double)x[j] * x[j];
    }
    c->offsets[which] = (float)(-square / 2);
}

void woi_bench_free(woi_bench *b)
{
    woi_free(b->points);
    woi_free(b->z);
    woi_free(b->product);
    woi_free(b->x8);
    woi_free(b->route);
}

wo_status woi_bench_make(size_t r, woi_bench *b, wo_error *err)
{
    *b = (woi_bench){.points = woi_alloc(WOI_POINTS_AT_ONCE * r, sizeof *b->points, err),
                     .z = woi_alloc((size_t)WOI_POINTS_AT_ONCE * CENTRES_AT_ONCE, sizeof *b->z, err),
                     .product = woi_alloc(WOI_GEMM_SCRATCH, sizeof *b->product, err),
                     .x8 = woi_alloc(r, 1, err)};
    return b->points && b->z && b->product && b->x8 ? WO_OK : WO_ERR_MEMORY;
}

static const float *point_at(const woi_points *p, size_t i, size_t r)
{
    return p->x + (p->members ? p->members[i] : i) * r;
}

typedef struct assigning {
    const woi_kernels *kernels;
    const woi_centres *c;
    const woi_points *p;
    woi_bench *benches; /* (threads) */
} assigning;

static void assign_range(void *own, int worker, size_t first, size_t end)
{
    const assigning *a = own;
    const woi_bench *b = &a->benches[worker];
    const size_t r = a->c->r, n = end - first;
    float best[WOI_POINTS_AT_ONCE];
    uint32_t *of = a->p->of + first;
    for (size_t i = 0; i < n; i++) memcpy(b->points + i * r, point_at(a->p, first + i, r), r * sizeof *b->points);
    for (uint32_t from = 0; from < a->c->k; from += CENTRES_AT_ONCE) {
        const uint32_t some = a->c->k - from < CENTRES_AT_ONCE ? a->c->k - from : CENTRES_AT_ONCE;
        woi_gemm(a->kernels,
                 &(woi_product){.n = n,
                                .m = some,
                                .k = r,
                                .a = {b->points, r, WOI_BY_ROWS},
                                .b = {a->c->at + from * r, r, WOI_BY_ROWS},
                                .c = b->z,
                                .ldc = CENTRES_AT_ONCE,
                                .start = a->c->offsets + from},
                 b->product);
        for (size_t i = 0; i < n; i++) {
            const float *z = b->z + i * CENTRES_AT_ONCE;
            uint32_t at = 0;
            for (uint32_t j = 1; j < some; j++)
                if (z[j] > z[at]) at = j;
            if (from && !(z[at] > best[i])) continue;
            best[i] = z[at];
            of[i] = from + at;
        }
    }
}

wo_status woi_assign(const woi_kernels *kernels, const woi_centres *c, const woi_points *p, const woi_lloyd *l,
                     wo_error *err)
{
    woi_range_run(l->together, l->threads, p->n, WOI_POINTS_AT_ONCE, assign_range,
                  &(assigning){kernels, c, p, l->benches});
    return woi_range_gather(l->together, p->of, p->n, sizeof *p->of, err);
}

void woi_move_centres(const woi_points *p, const woi_centres *c, double *sums, uint32_t *counts)
{
    const size_t r = c->r;
    memset(sums, 0, c->k * r * sizeof *sums);
    memset(counts, 0, c->k * sizeof *counts);
    for (size_t i = 0; i < p->n; i++) {
        const float *point = point_at(p, i, r);
        double *sum = sums + p->of[i] * r;
        for (size_t j = 0; j < r; j++) sum[j] += point[j];
        counts[p->of[i]]++;
    }
    for (uint32_t i = 0; i < c->k; i++) {
        double square = 0;
        if (!counts[i]) continue;
        for (size_t j = 0; j < r; j++) {
            const double value = sums[i * r + j] / counts[i];
            c->at[i * r + j] = (float)value;
            square += value * value;
        }
        c->offsets[i] = (float)(-square / 2);
    }
}

/* ---- Starts that lie apart ---------------------------------------------------------------------------------- */

/* What finding them works on. */
typedef struct starting {
    const woi_kernels *kernels;
    const woi_centres *c;
    woi_bench *benches;
    const float *x; /* (n, r) */
    size_t n;
    float *squares;          /* (n): of the points' lengths */
    float *near;             /* (n): squares of their distances from the nearest start */
    float *far;              /* (n, TRIES): ... from each of those that are tried */
    double *left;            /* (blocks, TRIES): the sum of `near` that would be left */
    float tried[TRIES], *at; /* squares of their lengths; (TRIES, r) */
    size_t taken;            /* of those tried before; TRIES: none was */
} starting;

/* Takes what was chosen, then measures what is tried next. */
static void try_range(void *own, int worker, size_t first, size_t end)
{
    const starting *s = own;
    const woi_bench *b = &s->benches[worker];
    double *left = s->left + first / WOI_POINTS_AT_ONCE * TRIES;
    for (size_t i = first; s->taken < TRIES && i < end; i++)
        s->near[i] = fminf(s->near[i], s->far[i * TRIES + s->taken]);
    woi_gemm(s->kernels,
             &(woi_product){.n = end - first,
                            .m = TRIES,
                            .k = s->c->r,
                            .a = {s->x + first * s->c->r, s->c->r, WOI_BY_ROWS},
                            .b = {s->at, s->c->r, WOI_BY_ROWS},
                            .c = b->z,
                            .ldc = TRIES},
             b->product);
    for (size_t t = 0; t < TRIES; t++) left[t] = 0;
    for (size_t i = first; i < end; i++)
        for (size_t t = 0; t < TRIES; t++) {
            const float far = fmaxf(s->squares[i] + s->tried[t] - 2 * b->z[(i - first) * TRIES + t], 0);
            s->far[i * TRIES + t] = far;
            left[t] += (double)fminf(s->near[i], far);
        }
}

/* A point, with a probability in proportion to its `near`, once what was taken is. */
static size_t draw_far(const starting *s, double u, double total)
{
    const size_t t = s->taken, n_blocks = (s->n + WOI_POINTS_AT_ONCE - 1) / WOI_POINTS_AT_ONCE;
    double below = u * total;
    size_t block = 0;
    while (block + 1 < n_blocks && below >= s->left[block * TRIES + t]) below -= s->left[block++ * TRIES + t];
    size_t i = block * WOI_POINTS_AT_ONCE;
    const size_t end = i + WOI_POINTS_AT_ONCE < s->n ? i + WOI_POINTS_AT_ONCE : s->n;
    for (; i + 1 < end; i++) {
        const double near = (double)fminf(s->near[i], s->far[i * TRIES + t]);
        if (below < near) break;
        below -= near;
    }
    return i;
}

/* Of what was tried the one that leaves least; *total: how much. */
static size_t choose_start(const starting *s, double *total)
{
    const size_t n_blocks = (s->n + WOI_POINTS_AT_ONCE - 1) / WOI_POINTS_AT_ONCE;
    size_t best = 0;
    for (size_t t = 0; t < TRIES; t++) {
        double left = 0;
        for (size_t block = 0; block < n_blocks; block++) left += s->left[block * TRIES + t];
        if (t == 0 || left < *total) {
            best = t;
            *total = left;
        }
    }
    return best;
}

static void put_starts(starting *s, const woi_lloyd *l)
{
    const size_t r = s->c->r;
    double total = 0;
    for (size_t i = 0; i < s->n; i++) s->near[i] = INFINITY;
    for (uint32_t at = 0; at < s->c->k; at++) {
        for (uint64_t t = 0; t < TRIES; t++) {
            const uint64_t place = (uint64_t)at * TRIES + t;
            const double u = (double)(woi_rng_u64(l->seed, l->stream, place) >> 11) * 0x1p-53;
            const size_t i = total > 0 ? draw_far(s, u, total) : (size_t)(u * (double)s->n);
            memcpy(s->at + t * r, s->x + i * r, r * sizeof *s->at);
            s->tried[t] = s->squares[i];
        }
        woi_team_ranges(l->threads, s->n, WOI_POINTS_AT_ONCE, try_range, s);
        s->taken = choose_start(s, &total);
        put_centre(s->c, at, s->at + s->taken * r);
    }
}

static wo_status start_apart(const woi_kernels *kernels, const woi_points *p, const woi_lloyd *l, const woi_centres *c,
                             wo_error *err)
{
    const size_t r = c->r, n = p->n / POINTS_A_START < c->k ? p->n : (size_t)c->k * POINTS_A_START;
    const size_t n_blocks = (n + WOI_POINTS_AT_ONCE - 1) / WOI_POINTS_AT_ONCE;
    float *x = woi_alloc(n * r, sizeof *x, err);
    starting s = {.kernels = kernels,
                  .c = c,
                  .benches = l->benches,
                  .x = x,
                  .n = n,
                  .squares = woi_alloc(n, sizeof *s.squares, err),
                  .near = woi_alloc(n, sizeof *s.near, err),
                  .far = woi_alloc(n, TRIES * sizeof *s.far, err),
                  .left = woi_alloc(n_blocks, TRIES * sizeof *s.left, err),
                  .at = woi_alloc(TRIES * r, sizeof *s.at, err),
                  .taken = TRIES};
    const bool there = x && s.squares && s.near && s.far && s.left && s.at;
    for (size_t i = 0; there && i < n; i++) { /* from all of them alike, whatever their order */
        const size_t low = woi_part_start(i, n, p->n), high = woi_part_start(i + 1, n, p->n);
        const uint64_t place = (uint64_t)c->k * TRIES + i;
        double square = 0;
        memcpy(x + i * r, point_at(p, low + (size_t)woi_rng_below(l->seed, l->stream, place, high - low), r),
               r * sizeof *x);
        for (size_t j = 0; j < r; j++) square += (double)x[i * r + j] * (double)x[i * r + j];
        s.squares[i] = (float)square;
    }
    if (there) put_starts(&s, l);
    void *const owned[] = {x, s.squares, s.near, s.far, s.left, s.at};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
    return there ? WO_OK : WO_ERR_MEMORY;
}

/* ---- Rounds -------------------------------------------------------------------------------------------------- */

wo_status woi_learn_centres(const woi_kernels *kernels, const woi_points *p, const woi_lloyd *l, const woi_centres *c,
                            wo_error *err)
{
    const size_t r = c->r;
    double *sums = woi_alloc(c->k * r, sizeof *sums, err);
    uint32_t *counts = woi_alloc(c->k, sizeof *counts, err);
    wo_status status = sums && counts ? WO_OK : WO_ERR_MEMORY;
    if (!status && l->apart) status = start_apart(kernels, p, l, c, err);
    for (uint32_t i = 0; !status && !l->apart && i < c->k; i++)
        put_centre(c, i, point_at(p, woi_rng_below(l->seed, l->stream, i, p->n), r));
    for (uint32_t round = 0; !status && round < l->rounds; round++) {
        if ((status = woi_assign(kernels, c, p, l, err))) break;
        woi_move_centres(p, c, sums, counts);
        for (uint32_t i = 0; i < c->k; i++) /* no point is nearest to this centre: it starts again at a random one */
            if (!counts[i]) {
                const size_t pick = woi_rng_below(l->seed, l->stream, ((uint64_t)round + 1) * c->k + i, p->n);
                put_centre(c, i, point_at(p, pick, r));
            }
    }
    woi_free(sums);
    woi_free(counts);
    return status;
}
