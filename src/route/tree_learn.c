/* Learning a tree: the principal coordinates of the queries, then k-means over all of them, then below each node. */
#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/team.h"
#include "route/tree.h"

#include <math.h>
#include <string.h>

enum {
    SAMPLE = 1 << 19,      /* queries that are learned from, at most */
    NODE_SAMPLE = 1 << 16, /* of those, for the coordinates and the nodes */
    QUERIES_A_LEAF = 40,   /* where the fan-outs follow from the data */
    POWER_ROUNDS = 20,     /* of the subspace iteration */
    MIN_FAN = 16,
    POINTS_AT_ONCE = 256, /* that a thread takes */
};
enum { STREAM_SAMPLE = 5000, STREAM_BASIS = 5001, STREAM_NODES = 5002, STREAM_LEAVES = 6000 };

/* The queries that are learned from, in random order. */
typedef struct sample {
    size_t n, d, r;
    const float *q;
    size_t *picks; /* (n) */
    double *over;  /* (n): 1 / |q| */
    float *x;      /* (n, r) */
} sample;

static size_t round_up(size_t n)
{
    return (n + 15) / 16 * 16;
}

static size_t clamp(size_t n, size_t low, size_t high)
{
    return n < low ? low : n > high ? high : n;
}

/* The first `take` places of a random permutation of 0 .. n-1. */
static wo_status draw(size_t n, size_t take, uint64_t seed, size_t **picks, wo_error *err)
{
    size_t *places = woi_alloc(n, sizeof *places, err);
    if (!places) return WO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) places[i] = i;
    for (size_t i = 0; i < take; i++) {
        const size_t other = i + woi_rng_below(seed, STREAM_SAMPLE, i, n - i), kept = places[i];
        places[i] = places[other];
        places[other] = kept;
    }
    *picks = places;
    return WO_OK;
}

/* ---- Coordinates ------------------------------------------------------------------------------------------- */

/* What finding the axes works on. */
typedef struct axes {
    const sample *s;
    size_t n, r;         /* directions that are looked at; axes */
    double *moments;     /* (d, d) */
    double *v, *product; /* (d, r) */
} axes;

static void measure_row(void *own, int worker, size_t a)
{
    const axes *x = own;
    const size_t d = x->s->d;
    double *moments = x->moments + a * d;
    (void)worker;
    for (size_t i = 0; i < x->n; i++) {
        const float *row = x->s->q + x->s->picks[i] * d;
        const double weight = row[a] * x->s->over[i] * x->s->over[i];
        for (size_t b = 0; b <= a; b++) moments[b] += weight * row[b];
    }
}

/* Second moments of the first n directions. */
static void measure_spread(axes *x, int threads)
{
    const size_t d = x->s->d;
    double *moments = x->moments;
    memset(moments, 0, d * d * sizeof *moments);
    woi_team_for(threads, d, measure_row, x);
    for (size_t a = 0; a < d; a++)
        for (size_t b = 0; b <= a; b++) moments[b * d + a] = moments[a * d + b];
}

/* Columns of v (d, r) made orthonormal, one after the other. What is left of a column that depends on those before is
 * rounding: it becomes zero, where there are fewer independent queries than columns. The second pass takes out what the
 * rounding of the first left. */
static void orthonormalise(double *v, size_t d, size_t r)
{
    for (size_t c = 0; c < r; c++) {
        double whole = 0, rest = 0;
        for (size_t j = 0; j < d; j++) whole += v[j * r + c] * v[j * r + c];
        for (int pass = 0; pass < 2; pass++)
            for (size_t before = 0; before < c; before++) {
                double dot = 0;
                for (size_t j = 0; j < d; j++) dot += v[j * r + c] * v[j * r + before];
                for (size_t j = 0; j < d; j++) v[j * r + c] -= dot * v[j * r + before];
            }
        for (size_t j = 0; j < d; j++) rest += v[j * r + c] * v[j * r + c];
        const double over = rest > 1e-24 * whole ? 1 / sqrt(rest) : 0;
        for (size_t j = 0; j < d; j++) v[j * r + c] *= over;
    }
}

static void multiply_row(void *own, int worker, size_t a)
{
    const axes *x = own;
    const size_t d = x->s->d, r = x->r;
    double *to = x->product + a * r;
    (void)worker;
    memset(to, 0, r * sizeof *to);
    for (size_t b = 0; b < d; b++)
        for (size_t c = 0; c < r; c++) to[c] += x->moments[a * d + b] * x->v[b * r + c];
}

/* The r axes that hold most of the directions, by subspace iteration. */
static wo_status find_basis(const woi_kernels *kernels, sample *s, const woi_tree_options *o, woi_tree *tree,
                            wo_error *err)
{
    const size_t d = s->d, r = tree->r, n = s->n < NODE_SAMPLE ? s->n : NODE_SAMPLE;
    double *moments = woi_alloc(d * d, sizeof *moments, err), *v = woi_alloc(d * r, sizeof *v, err),
           *product = woi_alloc(d * r, sizeof *product, err);
    float *axis = woi_alloc(d, sizeof *axis, err);
    int8_t *codes = woi_alloc(d, 1, err);
    tree->basis = woi_alloc(r, (d + 3) / 4 * 4, err);
    tree->basis_scales = woi_alloc(r, sizeof *tree->basis_scales, err);
    const bool there = moments && v && product && axis && codes && tree->basis && tree->basis_scales;
    if (there) {
        axes x = {s, n, r, moments, v, product};
        measure_spread(&x, o->threads);
        for (size_t i = 0; i < d * r; i++) v[i] = woi_rng_normal(o->seed, STREAM_BASIS, i);
        for (int round = 0; round < POWER_ROUNDS; round++) {
            orthonormalise(v, d, r);
            woi_team_for(o->threads, d, multiply_row, &x);
            memcpy(v, product, d * r * sizeof *v);
        }
        orthonormalise(v, d, r);
        memset(tree->basis, 128, r * ((d + 3) / 4 * 4));
        for (size_t c = 0; c < r; c++) {
            for (size_t j = 0; j < d; j++) axis[j] = (float)v[j * r + c];
            tree->basis_scales[c] = kernels->quantise(axis, d, codes);
            for (size_t j = 0; j < d; j++) tree->basis[(j / 4 * r + c) * 4 + j % 4] = (uint8_t)(codes[j] + 128);
        }
    }
    woi_free(axis);
    woi_free(codes);
    woi_free(moments);
    woi_free(v);
    woi_free(product);
    return there ? WO_OK : WO_ERR_MEMORY;
}

typedef struct turning {
    const woi_kernels *kernels;
    const woi_tree *tree;
    const sample *s;
    char *scratch; /* (threads, each) */
    size_t each;
} turning;

static void turn_range(void *own, int worker, size_t first, size_t end)
{
    const turning *t = own;
    const sample *s = t->s;
    for (size_t i = first; i < end; i++)
        woi_tree_turn(t->tree, t->kernels, s->q + s->picks[i] * s->d, t->scratch + (size_t)worker * t->each,
                      s->x + i * s->r);
}

/* x: the sample's directions in the tree's coordinates. */
static wo_status turn_all(const woi_kernels *kernels, const woi_tree *tree, int threads, sample *s, wo_error *err)
{
    turning t = {kernels, tree, s, NULL, woi_tree_scratch(tree, 1, 1)};
    if (!(t.scratch = woi_alloc((size_t)threads, t.each, err))) return WO_ERR_MEMORY;
    woi_team_ranges(threads, s->n, POINTS_AT_ONCE, turn_range, &t);
    woi_free(t.scratch);
    return WO_OK;
}

/* ---- k-means ----------------------------------------------------------------------------------------------- */

/* k of `room` places for centres, d-major with their offsets; the places beyond k are never nearest. */
typedef struct centres {
    size_t r, room;
    uint32_t k;
    float *at;      /* (r, room) */
    float *offsets; /* (room) */
} centres;

static void put_centre(centres *c, uint32_t which, const float *x)
{
    double square = 0;
    for (size_t j = 0; j < c->r; j++) {
        c->at[j * c->room + which] = x[j];
        square += (double)x[j] * x[j];
    }
    c->offsets[which] = (float)(-square / 2);
}

static uint32_t nearest(const woi_kernels *kernels, const centres *c, const float *x, float *z, uint16_t *bits)
{
    kernels->project(x, 1, c->at, c->offsets, c->r, c->room, z, bits);
    uint32_t best = 0;
    for (uint32_t i = 1; i < c->k; i++)
        if (z[i] > z[best]) best = i;
    return best;
}

/* A thread's memory. */
typedef struct bench {
    float *at, *offsets; /* centres, d-major */
    double *sums;
    uint32_t *counts;
    float *x;
    int8_t *x8;
} bench;

static void bench_free(bench *b)
{
    woi_free(b->at);
    woi_free(b->offsets);
    woi_free(b->sums);
    woi_free(b->counts);
    woi_free(b->x);
    woi_free(b->x8);
}

static wo_status bench_make(size_t r, size_t room, bench *b, wo_error *err)
{
    *b = (bench){woi_alloc(r * room, sizeof *b->at, err),   woi_alloc(room, sizeof *b->offsets, err),
                 woi_alloc(r * room, sizeof *b->sums, err), woi_alloc(room, sizeof *b->counts, err),
                 woi_alloc(r, sizeof *b->x, err),           woi_alloc(r, 1, err)};
    return b->at && b->offsets && b->sums && b->counts && b->x && b->x8 ? WO_OK : WO_ERR_MEMORY;
}

/* Points to find centres for. */
typedef struct points {
    const float *x;          /* (.., r) */
    const uint32_t *members; /* of x that belong to them; NULL: the first n */
    size_t n;
    uint32_t *of; /* (n): the nearest centre of each */
} points;

static const float *point_at(const points *p, size_t i, size_t r)
{
    return p->x + (p->members ? p->members[i] : i) * r;
}

typedef struct assigning {
    const woi_kernels *kernels;
    const centres *c;
    const points *p;
} assigning;

static void assign_range(void *own, int worker, size_t first, size_t end)
{
    const assigning *a = own;
    float z[WOI_MAX_FAN];
    uint16_t bits[WOI_MAX_FAN / 16];
    (void)worker;
    for (size_t i = first; i < end; i++) a->p->of[i] = nearest(a->kernels, a->c, point_at(a->p, i, a->c->r), z, bits);
}

/* The nearest centre of each of the points. */
static void assign(const woi_kernels *kernels, const centres *c, const points *p, int threads)
{
    woi_team_ranges(threads, p->n, POINTS_AT_ONCE, assign_range, &(assigning){kernels, c, p});
}

/* How centres are learned: in so many rounds, from these random numbers. */
typedef struct lloyd {
    uint32_t rounds;
    uint64_t seed, stream;
    int threads;
} lloyd;

/* Lloyd's rounds from k random points. The bench has the scratch; p->of is scratch too. */
static void learn_centres(const woi_kernels *kernels, const points *p, const lloyd *l, const bench *b, centres *c)
{
    const size_t r = c->r;
    double *sums = b->sums;
    uint32_t *counts = b->counts;
    for (size_t i = 0; i < c->room; i++) c->offsets[i] = -INFINITY;
    memset(c->at, 0, r * c->room * sizeof *c->at);
    for (uint32_t i = 0; i < c->k; i++) {
        const size_t pick = woi_rng_below(l->seed, l->stream, i, p->n);
        put_centre(c, i, point_at(p, pick, r));
    }
    for (uint32_t round = 0; round < l->rounds; round++) {
        assign(kernels, c, p, l->threads);
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
            if (!counts[i]) { /* no point is nearest to this centre: it starts again at a random one */
                const size_t pick = woi_rng_below(l->seed, l->stream, ((uint64_t)round + 1) * c->k + i, p->n);
                put_centre(c, i, point_at(p, pick, r));
                continue;
            }
            for (size_t j = 0; j < r; j++) {
                const double value = sums[i * r + j] / counts[i];
                c->at[j * c->room + i] = (float)value;
                square += value * value;
            }
            c->offsets[i] = (float)(-square / 2);
        }
    }
}

/* Where centres in the form of the tree go. */
typedef struct quantised {
    uint8_t *codes;          /* (4 fours, room) */
    float *scales, *offsets; /* (room) */
} quantised;

static void quantise_centres(const woi_kernels *kernels, const centres *c, const bench *b, const quantised *to)
{
    const size_t r = c->r, fours = (r + 3) / 4;
    uint8_t *codes = to->codes;
    float *x = b->x, *scales = to->scales, *offsets = to->offsets;
    int8_t *x8 = b->x8;
    memset(codes, 128, 4 * fours * c->room);
    for (size_t i = 0; i < c->room; i++) {
        scales[i] = 0;
        offsets[i] = -INFINITY;
        if (c->offsets[i] == -INFINITY) continue;
        for (size_t j = 0; j < r; j++) x[j] = c->at[j * c->room + i];
        scales[i] = kernels->quantise(x, r, x8);
        double square = 0; /* of the centre as it has become */
        for (size_t j = 0; j < r; j++) {
            square += (double)x8[j] * x8[j];
            codes[(j / 4 * c->room + i) * 4 + j % 4] = (uint8_t)(x8[j] + 128);
        }
        offsets[i] = (float)(-(double)scales[i] * (double)scales[i] * square / 2);
    }
}

/* ---- The tree ---------------------------------------------------------------------------------------------- */

/* The second level: the points of node a are members[starts[a] .. starts[a+1]). */
typedef struct level {
    const woi_kernels *kernels;
    const sample *s;
    const woi_tree_options *o;
    const uint32_t *starts, *members;
    double leaf_size;
    bench *benches; /* (threads) */
    uint32_t *of;
    woi_tree *tree;
} level;

/* The leaves below node a. */
static void learn_leaves(void *own, int worker, size_t a)
{
    const level *l = own;
    woi_tree *tree = l->tree;
    bench *b = &l->benches[worker];
    const size_t B = tree->B, bytes = 4 * woi_tree_fours(tree), start = l->starts[a], n = l->starts[a + 1] - start;
    centres c = {tree->r, B, 0, b->at, b->offsets};
    c.k = (uint32_t)clamp((size_t)((double)n / l->leaf_size + 0.5), 1, n < B ? n : B);
    const points p = {l->s->x, l->members + start, n, l->of + start};
    if (n)
        learn_centres(l->kernels, &p, &(lloyd){l->o->rounds, l->o->seed, STREAM_LEAVES + a, 1}, b, &c);
    else /* a node without points, as the second of two equal ones is, would take a place in the beam for nothing */
        for (size_t i = 0; i < B; i++) c.offsets[i] = tree->node_offsets[a] = -INFINITY;
    quantise_centres(l->kernels, &c, b,
                     &(quantised){tree->leaves + a * B * bytes, tree->leaf_scales + a * B, tree->leaf_offsets + a * B});
}

static wo_status create_tree(woi_tree *tree, wo_error *err)
{
    const size_t A = tree->A, leaves = A * tree->B, bytes = 4 * woi_tree_fours(tree);
    tree->nodes = woi_alloc(A, bytes, err);
    tree->node_scales = woi_alloc(A, sizeof *tree->node_scales, err);
    tree->node_offsets = woi_alloc(A, sizeof *tree->node_offsets, err);
    tree->leaves = woi_alloc(leaves, bytes, err);
    tree->leaf_scales = woi_alloc(leaves, sizeof *tree->leaf_scales, err);
    tree->leaf_offsets = woi_alloc(leaves, sizeof *tree->leaf_offsets, err);
    return tree->nodes && tree->node_scales && tree->node_offsets && tree->leaves && tree->leaf_scales &&
                   tree->leaf_offsets
               ? WO_OK
               : WO_ERR_MEMORY;
}

static wo_status learn_levels(const sample *s, const woi_tree_options *o, double leaf_size, woi_tree *tree,
                              wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const size_t A = tree->A, n_nodes = s->n < NODE_SAMPLE ? s->n : NODE_SAMPLE, threads = (size_t)o->threads;
    bench *benches = woi_alloc_zero(threads, sizeof *benches, err);
    uint32_t *of = woi_alloc(s->n, sizeof *of, err), *starts = woi_alloc_zero(A + 1, sizeof *starts, err),
             *members = woi_alloc(s->n, sizeof *members, err);
    wo_status status = benches && of && starts && members ? create_tree(tree, err) : WO_ERR_MEMORY;
    for (size_t t = 0; !status && t < threads; t++)
        status = bench_make(tree->r, A > tree->B ? A : tree->B, &benches[t], err);
    if (!status) status = woi_progress(o->progress, "learning the tree", 0, 2, err);
    if (!status) {
        bench *b = &benches[0];
        centres c = {tree->r, A, (uint32_t)A, b->at, b->offsets};
        const points some = {s->x, NULL, n_nodes, of}, all = {s->x, NULL, s->n, of};
        learn_centres(kernels, &some, &(lloyd){o->rounds, o->seed, STREAM_NODES, o->threads}, b, &c);
        assign(kernels, &c, &all, o->threads);
        quantise_centres(kernels, &c, b, &(quantised){tree->nodes, tree->node_scales, tree->node_offsets});
        for (size_t i = 0; i < s->n; i++) starts[of[i]]++;
        for (size_t a = 1; a <= A; a++) starts[a] += starts[a - 1];
        for (size_t i = s->n; i-- > 0;) members[--starts[of[i]]] = (uint32_t)i;
        status = woi_progress(o->progress, "learning the tree", 1, 2, err);
    }
    if (!status)
        woi_team_for(o->threads, A, learn_leaves,
                     &(level){kernels, s, o, starts, members, leaf_size, benches, of, tree});
    if (!status) status = woi_tree_count_leaves(tree, err);
    for (size_t t = 0; benches && t < threads; t++) bench_free(&benches[t]);
    woi_free(benches);
    woi_free(of);
    woi_free(starts);
    woi_free(members);
    return status;
}

void woi_tree_fan_outs(size_t n, uint32_t queries_a_leaf, uint32_t *A, uint32_t *B)
{
    const size_t leaves = clamp(n / queries_a_leaf, MIN_FAN, (size_t)WOI_MAX_FAN * WOI_MAX_FAN);
    if (!*A) *A = (uint32_t)clamp(round_up((size_t)sqrt((double)leaves)), MIN_FAN, WOI_MAX_FAN);
    if (!*B) *B = (uint32_t)clamp(round_up(leaves * 3 / 2 / *A), MIN_FAN, WOI_MAX_FAN);
}

wo_status woi_tree_learn(const float *q, size_t n, size_t d, const woi_tree_options *options, woi_tree *tree,
                         wo_error *err)
{
    woi_tree_options o = *options;
    o.threads = woi_team_threads(o.threads);
    if (d > WOI_MAX_I8)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "queries of %zu numbers are too long for a tree: at most %d", d, WOI_MAX_I8);
    woi_tree_fan_outs(n, QUERIES_A_LEAF, &o.A, &o.B);
    *tree = (woi_tree){.d = d, .r = o.r && o.r < d ? o.r : d, .A = o.A, .B = o.B, .beam = o.beam, .margin = INFINITY};
    sample s = {.n = n < SAMPLE ? n : SAMPLE, .d = d, .r = tree->r, .q = q};
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    wo_status status = draw(n, s.n, o.seed, &s.picks, err);
    if (!status && (!(s.over = woi_alloc(s.n, sizeof *s.over, err)) || !(s.x = woi_alloc(s.n * s.r, sizeof *s.x, err))))
        status = WO_ERR_MEMORY;
    for (size_t i = 0; !status && i < s.n; i++) {
        double square = 0;
        for (size_t j = 0; j < d; j++) square += (double)q[s.picks[i] * d + j] * q[s.picks[i] * d + j];
        s.over[i] = square > 0 ? 1 / sqrt(square) : 0;
    }
    if (!status && tree->r < d) status = find_basis(kernels, &s, &o, tree, err);
    if (!status) status = turn_all(kernels, tree, o.threads, &s, err);
    if (!status) status = learn_levels(&s, &o, (double)s.n / ((double)o.A * o.B / 1.5), tree, err);
    woi_free(s.picks);
    woi_free(s.over);
    woi_free(s.x);
    if (status) woi_tree_free(tree);
    return status;
}
