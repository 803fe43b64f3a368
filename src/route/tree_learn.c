/* Learning a tree: the principal coordinates of the queries; k-means over all of them makes the nodes; k-means below
 * each node its leaves, as many as its share of the queries; then rounds over all leaves at once, where a query goes to
 * the nearest leaf that routing finds for it, whatever its node: leaves at the border of two nodes then divide the
 * queries between them as flat k-means would. */
#include "base/error.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "route/kmeans.h"
#include "route/tree.h"

#include <math.h>
#include <string.h>

enum {
    SAMPLE = 1 << 19,      /* queries that are learned from, at most */
    NODE_SAMPLE = 1 << 16, /* of those, for the coordinates and the nodes */
    POWER_ROUNDS = 20,     /* of the subspace iteration */
    WIDE = 4096,           /* numbers of a query: of longer ones no second moments are kept, of these 128 MiB */
    WIDE_SAMPLE = 1 << 26, /* numbers of all queries that the coordinates are then learned from, at most */
    COLUMNS_AT_ONCE = 16,
    MIN_FAN = 16,
    REFINE_BEAM = 8, /* nodes that a query looks into while leaves are refined */
    STEPS = 3,       /* that are reported */
};
enum { STREAM_SAMPLE = 5000, STREAM_BASIS = 5001, STREAM_NODES = 5002, STREAM_LEAVES = 6000 };

/* The queries that are learned from, in random order; or points alone. */
typedef struct sample {
    size_t n, d, r;
    const float *q; /* NULL: points x are what is learned from */
    size_t *picks;  /* (n) */
    double *over;   /* (n): 1 / |q| */
    float *x;       /* (n, r) */
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
    double *moments;     /* (d, d); NULL: queries are wide */
    double *along;       /* (n, r), where they are: what the directions have along v */
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

/* The same without moments, which are X^T X, where X has a direction in each row: along = X v, then X^T along. Moments
 * of d numbers take 8 d^2 bytes (d = 20,000: 3.2 GB), these 8 n r. */
static void take_along(void *own, int worker, size_t i)
{
    const axes *x = own;
    const size_t d = x->s->d, r = x->r;
    const float *row = x->s->q + x->s->picks[i] * d;
    double *to = x->along + i * r;
    (void)worker;
    memset(to, 0, r * sizeof *to);
    for (size_t a = 0; a < d; a++)
        for (size_t c = 0; c < r; c++) to[c] += row[a] * x->v[a * r + c];
    for (size_t c = 0; c < r; c++) to[c] *= x->s->over[i] * x->s->over[i];
}

static void gather_columns(void *own, int worker, size_t block)
{
    const axes *x = own;
    const size_t d = x->s->d, r = x->r, first = block * COLUMNS_AT_ONCE;
    const size_t n = d - first < COLUMNS_AT_ONCE ? d - first : COLUMNS_AT_ONCE;
    double *to = x->product + first * r;
    (void)worker;
    memset(to, 0, n * r * sizeof *to);
    for (size_t i = 0; i < x->n; i++) {
        const float *row = x->s->q + x->s->picks[i] * d + first;
        for (size_t a = 0; a < n; a++)
            for (size_t c = 0; c < r; c++) to[a * r + c] += row[a] * x->along[i * r + c];
    }
}

/* product = moments v */
static void multiply(axes *x, int threads)
{
    if (x->moments) {
        woi_team_for(threads, x->s->d, multiply_row, x);
        return;
    }
    woi_team_for(threads, x->n, take_along, x);
    woi_team_for(threads, (x->s->d + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE, gather_columns, x);
}

/* Directions that the axes are learned from. Of wide queries fewer: so that time does not grow with d. */
static size_t n_for_axes(const sample *s, size_t r)
{
    const size_t most = s->d > WIDE ? clamp(WIDE_SAMPLE / s->d, 2 * r, NODE_SAMPLE) : NODE_SAMPLE;
    return s->n < most ? s->n : most;
}

/* The r axes that hold most of the directions, by subspace iteration. */
static wo_status find_basis(const woi_kernels *kernels, sample *s, const woi_tree_options *o, woi_tree *tree,
                            wo_error *err)
{
    const size_t d = s->d, r = tree->r, n = n_for_axes(s, r);
    const bool wide = d > WIDE;
    double *table = woi_alloc(wide ? n * r : d * d, sizeof *table, err), *v = woi_alloc(d * r, sizeof *v, err),
           *product = woi_alloc(d * r, sizeof *product, err);
    float *axis = woi_alloc(d, sizeof *axis, err);
    int8_t *codes = woi_alloc(d, 1, err);
    const bool there = table && v && product && axis && codes;
    if (there) {
        axes x = {s, n, r, wide ? NULL : table, wide ? table : NULL, v, product};
        if (!wide) measure_spread(&x, o->threads);
        for (size_t i = 0; i < d * r; i++) v[i] = woi_rng_normal(o->seed, STREAM_BASIS, i);
        for (int round = 0; round < POWER_ROUNDS; round++) {
            orthonormalise(v, d, r);
            multiply(&x, o->threads);
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
    woi_free(table);
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
static wo_status turn_all(const woi_tree *tree, const woi_tree_options *o, sample *s, wo_error *err)
{
    turning t = {woi_kernels_get(err), tree, s, NULL, woi_tree_scratch(tree, 1, 1)};
    if (!(t.scratch = woi_alloc((size_t)o->threads, t.each, err))) return WO_ERR_MEMORY;
    woi_range_run(o->together, o->threads, s->n, WOI_POINTS_AT_ONCE, turn_range, &t);
    woi_free(t.scratch);
    return woi_range_gather(o->together, s->x, s->n, s->r * sizeof *s->x, err);
}

/* Where centres in the form of the tree go: `room` places, those beyond k not used. */
typedef struct quantised {
    size_t room;
    uint8_t *codes;          /* (4 fours, room) */
    float *scales, *offsets; /* (room) */
} quantised;

static void quantise_centres(const woi_kernels *kernels, const woi_centres *c, int8_t *x8, const quantised *to)
{
    const size_t r = c->r, fours = (r + 3) / 4, room = to->room;
    memset(to->codes, 128, 4 * fours * room);
    for (size_t i = 0; i < room; i++) {
        to->scales[i] = 0;
        to->offsets[i] = -INFINITY;
        if (i >= c->k || c->offsets[i] == -INFINITY) continue;
        to->scales[i] = kernels->quantise(c->at + i * r, r, x8);
        double square = 0; /* of the centre as it has become */
        for (size_t j = 0; j < r; j++) {
            square += (double)x8[j] * x8[j];
            to->codes[(j / 4 * room + i) * 4 + j % 4] = (uint8_t)(x8[j] + 128);
        }
        to->offsets[i] = (float)(-(double)to->scales[i] * (double)to->scales[i] * square / 2);
    }
}

/* ---- The tree ---------------------------------------------------------------------------------------------- */

/* What both levels are learned with. */
typedef struct level {
    const woi_kernels *kernels;
    const sample *s;
    const woi_tree_options *o;
    woi_tree *tree;
    woi_bench *benches; /* (threads) */
    woi_centres nodes;
    woi_centres leaves;         /* (cells), node after node; places that are not used have offset -INFINITY */
    uint32_t *of;               /* (n): the node, or the cell, of each point */
    uint32_t *starts, *members; /* the points of node a are members[starts[a] .. starts[a+1]) */
    size_t n_points;            /* of all nodes */
    double n_leaves;            /* that they share */
    wo_status *statuses;        /* (threads) */
    wo_error err;               /* of worker 0 */
} level;

static woi_centres leaves_of(const level *l, size_t a, uint32_t k)
{
    const uint32_t start = l->tree->starts[a];
    return (woi_centres){l->leaves.r, k, l->leaves.at + start * l->leaves.r, l->leaves.offsets + start};
}

/* As many leaves as node a has a share of the points; 1 at least. */
static size_t share_of(const level *l, size_t a)
{
    const size_t n = l->starts[a + 1] - l->starts[a];
    return clamp((size_t)((double)n / (double)l->n_points * l->n_leaves + 0.5), 1, WOI_MAX_FAN);
}

/* The leaves below node a, as many as its share of the points. One node alone has all threads, else each has one. */
static void learn_leaves(void *own, int worker, size_t a)
{
    level *l = own;
    const size_t start = l->starts[a], n = l->starts[a + 1] - start;
    const woi_points p = {l->s->x, l->members + start, n, l->of + start};
    const size_t share = share_of(l, a), most = n < WOI_MAX_FAN ? n : WOI_MAX_FAN;
    const woi_centres c = leaves_of(l, a, (uint32_t)(share < most ? share : most));
    const int threads = l->o->nodes == 1 ? l->o->threads : 1;
    const wo_collective *together = l->o->nodes == 1 ? l->o->together : NULL;
    const woi_lloyd own_rounds = {l->o->rounds, l->o->seed,          STREAM_LEAVES + a, false,
                                  threads,      &l->benches[worker], together};
    wo_error err;
    if (!n || !woi_learn_centres(l->kernels, &p, &own_rounds, &c, &err)) return;
    l->statuses[worker] = err.status;
    if (worker == 0) l->err = err;
}

static void quantise_leaves(void *own, int worker, size_t a)
{
    const level *l = own;
    const woi_tree *tree = l->tree;
    const size_t start = tree->starts[a], room = tree->starts[a + 1] - start, bytes = 4 * woi_tree_fours(tree);
    const woi_centres c = leaves_of(l, a, (uint32_t)room);
    quantise_centres(
        l->kernels, &c, l->benches[worker].x8,
        &(quantised){room, tree->leaves + start * bytes, tree->leaf_scales + start, tree->leaf_offsets + start});
}

/* The tree's int8 centres from those in float. */
static void quantise_all(level *l)
{
    woi_tree *tree = l->tree;
    quantise_centres(l->kernels, &l->nodes, l->benches[0].x8,
                     &(quantised){tree->A, tree->nodes, tree->node_scales, tree->node_offsets});
    woi_team_for(l->o->threads, tree->A, quantise_leaves, l);
}

static void route_range(void *own, int worker, size_t first, size_t end)
{
    const level *l = own;
    const sample *s = l->s;
    uint32_t found[WOI_POINTS_AT_ONCE];
    woi_tree_route(l->tree, l->kernels,
                   &(woi_routing){.x = s->x + first * s->r,
                                  .n = end - first,
                                  .probes = 1,
                                  .cells = l->of + first,
                                  .n_cells = found,
                                  .scratch = l->benches[worker].route,
                                  .margin = INFINITY});
}

/* One round over all leaves: every point goes where routing finds it, leaves and nodes to the means of their points.
 * A leaf that no point finds any more is given up. sums, counts: of all cells. */
static wo_status refine(level *l, double *sums, uint32_t *counts, wo_error *err)
{
    const woi_tree *tree = l->tree;
    const woi_points p = {l->s->x, NULL, l->s->n, l->of};
    woi_range_run(l->o->together, l->o->threads, p.n, WOI_POINTS_AT_ONCE, route_range, l);
    const wo_status status = woi_range_gather(l->o->together, l->of, p.n, sizeof *l->of, err);
    if (status) return status;
    woi_move_centres(&p, &l->leaves, sums, counts);
    for (size_t c = 0; c < l->leaves.k; c++)
        if (!counts[c]) l->leaves.offsets[c] = -INFINITY;
    for (size_t a = 0; a < l->nodes.k; a++) {
        uint64_t n = 0;
        double square = 0;
        for (size_t c = tree->starts[a]; c < tree->starts[a + 1]; c++) n += counts[c];
        l->nodes.offsets[a] = -INFINITY;
        if (!n) continue; /* it would take a place in the beam for nothing */
        for (size_t j = 0; j < l->nodes.r; j++) {
            double sum = 0;
            for (size_t c = tree->starts[a]; c < tree->starts[a + 1]; c++) sum += sums[c * l->nodes.r + j];
            l->nodes.at[a * l->nodes.r + j] = (float)(sum / (double)n);
            square += sum / (double)n * (sum / (double)n);
        }
        l->nodes.offsets[a] = (float)(-square / 2);
    }
    return WO_OK;
}

static wo_status refine_all(level *l, wo_error *err)
{
    woi_tree *tree = l->tree;
    const uint32_t beam = tree->beam;
    wo_status status = WO_OK;
    double *sums = woi_alloc(l->leaves.k * l->leaves.r, sizeof *sums, err);
    uint32_t *counts = woi_alloc(l->leaves.k, sizeof *counts, err);
    tree->beam = REFINE_BEAM;
    if (!sums || !counts) status = WO_ERR_MEMORY;
    for (int t = 0; !status && t < l->o->threads; t++)
        if (!(l->benches[t].route = woi_alloc(1, woi_tree_scratch(tree, WOI_POINTS_AT_ONCE, 1), err)))
            status = WO_ERR_MEMORY;
    for (uint32_t round = 0; !status && round < l->o->refine; round++) {
        if ((status = refine(l, sums, counts, err))) break;
        quantise_all(l);
        woi_free(tree->n_leaves);
        status = woi_tree_count_leaves(tree, err);
    }
    tree->beam = beam;
    woi_free(sums);
    woi_free(counts);
    return status;
}

wo_status woi_tree_begin(const woi_tree_options *o, size_t d, woi_tree *tree, wo_error *err)
{
    *tree = (woi_tree){.d = d,
                       .r = o->r && o->r < d ? o->r : d,
                       .A = (uint32_t)round_up(o->nodes),
                       .beam = o->beam,
                       .margin = INFINITY};
    if (d > WOI_MAX_I8)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "queries of %zu numbers are too long for a tree: at most %d", d, WOI_MAX_I8);
    if (!(tree->starts = woi_alloc_zero((size_t)tree->A + 1, sizeof *tree->starts, err))) return WO_ERR_MEMORY;
    if (tree->r == d) return WO_OK;
    tree->basis = woi_alloc(tree->r, (d + 3) / 4 * 4, err);
    tree->basis_scales = woi_alloc(tree->r, sizeof *tree->basis_scales, err);
    return tree->basis && tree->basis_scales ? WO_OK : WO_ERR_MEMORY;
}

wo_status woi_tree_room(woi_tree *tree, wo_error *err)
{
    const size_t A = tree->A, cells = tree->starts[A], bytes = 4 * woi_tree_fours(tree);
    tree->nodes = woi_alloc(A, bytes, err);
    tree->node_scales = woi_alloc(A, sizeof *tree->node_scales, err);
    tree->node_offsets = woi_alloc(A, sizeof *tree->node_offsets, err);
    tree->leaves = woi_alloc(cells, bytes, err);
    tree->leaf_scales = woi_alloc(cells, sizeof *tree->leaf_scales, err);
    tree->leaf_offsets = woi_alloc(cells, sizeof *tree->leaf_offsets, err);
    return tree->nodes && tree->node_scales && tree->node_offsets && tree->leaves && tree->leaf_scales &&
                   tree->leaf_offsets
               ? WO_OK
               : WO_ERR_MEMORY;
}

/* Where the leaves of each node begin, once its points are known, and room for the centres. */
static wo_status create_tree(level *l, wo_error *err)
{
    woi_tree *tree = l->tree;
    const size_t A = tree->A;
    tree->starts[0] = 0;
    for (size_t a = 0; a < A; a++) {
        const size_t own = l->starts[a + 1] > l->starts[a] ? share_of(l, a) : 0;
        tree->starts[a + 1] = tree->starts[a] + (uint32_t)round_up(own);
    }
    const wo_status status = woi_tree_room(tree, err);
    if (status) return status;
    const size_t cells = tree->starts[A];
    l->leaves = (woi_centres){tree->r, (uint32_t)cells, woi_alloc(cells, tree->r * sizeof(float), err),
                              woi_alloc(cells, sizeof(float), err)};
    if (!l->leaves.at || !l->leaves.offsets) return WO_ERR_MEMORY;
    for (size_t c = 0; c < cells; c++) l->leaves.offsets[c] = -INFINITY;
    return WO_OK;
}

/* The nodes of points x (n, r), and the points of each, which are to share so many leaves. */
static wo_status learn_nodes(level *l, const float *x, size_t n, double n_leaves, wo_error *err)
{
    const size_t A = l->tree->A;
    const woi_points some = {x, NULL, n < NODE_SAMPLE ? n : NODE_SAMPLE, l->of}, all = {x, NULL, n, l->of};
    const woi_lloyd rounds = {l->o->rounds, l->o->seed, STREAM_NODES, false, l->o->threads, l->benches, l->o->together};
    wo_status status = woi_learn_centres(l->kernels, &some, &rounds, &l->nodes, err);
    if (!status) status = woi_assign(l->kernels, &l->nodes, &all, &rounds, err);
    if (status) return status;
    l->n_points = n;
    l->n_leaves = n_leaves;
    for (size_t i = 0; i < n; i++) l->starts[l->of[i]]++;
    for (size_t a = 1; a <= A; a++) l->starts[a] += l->starts[a - 1];
    for (size_t i = n; i-- > 0;) l->members[--l->starts[l->of[i]]] = (uint32_t)i;
    for (size_t a = 0; a < l->nodes.k; a++) /* as the second of two equal ones is */
        if (l->starts[a + 1] == l->starts[a]) l->nodes.offsets[a] = -INFINITY;
    return WO_OK;
}

static void learn_own_node(void *own, int worker, size_t part)
{
    const level *l = own;
    learn_leaves(own, worker, woi_range_own(l->o->together, l->tree->A).first + part);
}

/* The leaves below the nodes of this process. */
static void learn_own_nodes(level *l)
{
    const woi_range own = woi_range_own(l->o->together, l->tree->A);
    woi_team_for(l->o->threads, own.end - own.first, learn_own_node, l);
}

/* Those below the others' nodes too. */
static wo_status gather_leaves(level *l, wo_error *err)
{
    const wo_collective *together = l->o->together;
    const uint32_t *starts = l->tree->starts;
    const size_t size = together ? (size_t)together->size : 1, A = l->tree->A;
    if (size == 1) return WO_OK;
    const struct {
        void *data;
        size_t bytes;
    } parts[] = {{l->leaves.at, l->leaves.r * sizeof(float)}, {l->leaves.offsets, sizeof(float)}};
    size_t *each = woi_alloc(size, sizeof *each, err);
    wo_status status = each ? WO_OK : WO_ERR_MEMORY;
    for (int i = 0; !status && i < 2; i++) {
        for (size_t r = 0; r < size; r++)
            each[r] =
                (size_t)(starts[woi_part_start(r + 1, size, A)] - starts[woi_part_start(r, size, A)]) * parts[i].bytes;
        const char *own = (const char *)parts[i].data + starts[woi_range_own(together, A).first] * parts[i].bytes;
        status = together->gather(together->ctx, own, each, parts[i].data, err);
    }
    woi_free(each);
    return status;
}

/* From the root down: the nodes, then the leaves below each. */
static wo_status learn_down(level *l, wo_error *err)
{
    const woi_tree_options *o = l->o;
    wo_status status = learn_nodes(l, l->s->x, l->s->n, (double)o->nodes * (double)o->leaves, err);
    if (!status) status = woi_progress(o->progress, "learning the tree", 1, STEPS, err);
    if (!status) status = create_tree(l, err);
    if (status) return status;
    if (o->nodes == 1)
        learn_leaves(l, 0, 0);
    else
        learn_own_nodes(l);
    if (l->statuses[0] && err) *err = l->err;
    if (l->statuses[0]) return l->statuses[0];
    for (int t = 1; t < o->threads; t++)
        if (l->statuses[t]) return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory");
    return o->nodes > 1 ? gather_leaves(l, err) : WO_OK;
}

/* From the leaves up: centres of all points that start apart, then the nodes of these. */
static wo_status learn_up(level *l, wo_error *err)
{
    const woi_tree_options *o = l->o;
    const size_t n = l->s->n, r = l->tree->r, most = (size_t)o->nodes * o->leaves, k = most < n ? most : n;
    const woi_centres all = {r, (uint32_t)k, woi_alloc(k, r * sizeof(float), err), woi_alloc(k, sizeof(float), err)};
    const woi_points p = {l->s->x, NULL, n, l->of};
    const woi_lloyd rounds = {o->rounds, o->seed, STREAM_LEAVES, true, o->threads, l->benches, o->together};
    wo_status status = all.at && all.offsets ? WO_OK : WO_ERR_MEMORY;
    if (!status) status = woi_learn_centres(l->kernels, &p, &rounds, &all, err);
    if (!status) status = woi_progress(o->progress, "learning the tree", 1, STEPS, err);
    if (!status) status = learn_nodes(l, all.at, k, (double)k, err);
    if (!status) status = create_tree(l, err);
    for (size_t a = 0; !status && a < l->nodes.k; a++)
        for (uint32_t i = l->starts[a]; i < l->starts[a + 1]; i++) {
            const size_t place = l->tree->starts[a] + i - l->starts[a];
            memcpy(l->leaves.at + place * r, all.at + l->members[i] * r, r * sizeof *all.at);
            l->leaves.offsets[place] = all.offsets[l->members[i]];
        }
    woi_free(all.at);
    woi_free(all.offsets);
    return status;
}

static wo_status learn_all(level *l, wo_error *err)
{
    const woi_tree_options *o = l->o;
    wo_status status = woi_progress(o->progress, "learning the tree", 0, STEPS, err);
    if (!status) status = l->s->q ? learn_down(l, err) : learn_up(l, err);
    if (status) return status;
    quantise_all(l);
    status = woi_tree_count_leaves(l->tree, err);
    if (!status && o->refine) status = woi_progress(o->progress, "learning the tree", 2, STEPS, err);
    return status ? status : refine_all(l, err);
}

static wo_status learn_levels(const sample *s, const woi_tree_options *o, woi_tree *tree, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    const size_t A = tree->A, threads = (size_t)o->threads;
    level l = {
        .kernels = kernels,
        .s = s,
        .o = o,
        .tree = tree,
        .benches = woi_alloc_zero(threads, sizeof *l.benches, err),
        .nodes = {tree->r, o->nodes, woi_alloc(A, tree->r * sizeof(float), err), woi_alloc(A, sizeof(float), err)},
        .of = woi_alloc(s->n, sizeof *l.of, err),
        .starts = woi_alloc_zero(A + 1, sizeof *l.starts, err),
        .members = woi_alloc(s->n, sizeof *l.members, err),
        .statuses = woi_alloc_zero(threads, sizeof *l.statuses, err)};
    wo_status status = l.benches && l.nodes.at && l.nodes.offsets && l.of && l.starts && l.members && l.statuses
                           ? WO_OK
                           : WO_ERR_MEMORY;
    for (size_t t = 0; !status && t < threads; t++) status = woi_bench_make(s->r, &l.benches[t], err);
    if (!status) status = learn_all(&l, err);
    for (size_t t = 0; l.benches && t < threads; t++) woi_bench_free(&l.benches[t]);
    void *const owned[] = {l.benches, l.nodes.at, l.nodes.offsets, l.leaves.at, l.leaves.offsets,
                           l.of,      l.starts,   l.members,       l.statuses};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) woi_free(owned[i]);
    return status;
}

void woi_tree_fan_outs(size_t n, uint32_t queries_a_leaf, uint32_t *nodes, uint32_t *leaves)
{
    const size_t all = clamp(n / queries_a_leaf, MIN_FAN, (size_t)WOI_MAX_NODES * WOI_MAX_NODES);
    if (!*nodes) *nodes = (uint32_t)clamp(round_up((size_t)sqrt((double)all)), MIN_FAN, WOI_MAX_NODES);
    if (!*leaves) *leaves = (uint32_t)clamp(all / *nodes, 1, WOI_MAX_FAN);
}

/* The tree, its axes, and the sample of queries that these are of, s->n being how many s->q has. */
static wo_status take_sample(const woi_tree_options *o, woi_tree *tree, sample *s, wo_error *err)
{
    const size_t all = s->n, d = s->d;
    const woi_kernels *kernels = woi_kernels_get(err);
    wo_status status = woi_tree_begin(o, d, tree, err);
    if (!kernels) status = WO_ERR_UNSUPPORTED;
    s->r = tree->r;
    if (s->n > SAMPLE) s->n = SAMPLE;
    if (!status) status = draw(all, s->n, o->seed, &s->picks, err);
    if (!status && !(s->over = woi_alloc(s->n, sizeof *s->over, err))) status = WO_ERR_MEMORY;
    for (size_t i = 0; !status && i < s->n; i++) {
        const float *q = s->q + s->picks[i] * d;
        double square = 0;
        for (size_t j = 0; j < d; j++) square += (double)q[j] * q[j];
        s->over[i] = square > 0 ? 1 / sqrt(square) : 0;
    }
    if (!status && tree->r < d) status = find_basis(kernels, s, o, tree, err);
    return status;
}

static void sample_free(sample *s)
{
    woi_free(s->picks);
    woi_free(s->over);
    woi_free(s->x);
}

wo_status woi_tree_learn(const float *q, size_t n, size_t d, const woi_tree_options *options, woi_tree *tree,
                         wo_error *err)
{
    woi_tree_options o = *options;
    sample s = {.n = n, .d = d, .q = q};
    o.threads = woi_team_threads(o.threads);
    wo_status status = take_sample(&o, tree, &s, err);
    if (!status && !(s.x = woi_alloc(s.n * s.r, sizeof *s.x, err))) status = WO_ERR_MEMORY;
    if (!status) status = turn_all(tree, &o, &s, err);
    if (!status) status = learn_levels(&s, &o, tree, err);
    sample_free(&s);
    if (status) woi_tree_free(tree);
    return status;
}

wo_status woi_tree_find_axes(const float *q, size_t n, size_t d, const woi_tree_options *options, woi_tree *tree,
                             wo_error *err)
{
    woi_tree_options o = *options;
    sample s = {.n = n, .d = d, .q = q};
    o.threads = woi_team_threads(o.threads);
    const wo_status status = take_sample(&o, tree, &s, err);
    sample_free(&s);
    if (status) woi_tree_free(tree);
    return status;
}

wo_status woi_tree_learn_points(const float *x, size_t n, const woi_tree_options *options, woi_tree *tree,
                                wo_error *err)
{
    woi_tree_options o = *options;
    o.threads = woi_team_threads(o.threads);
    const sample s = {.n = n, .d = tree->d, .r = tree->r, .x = (float *)x};
    const wo_status status = learn_levels(&s, &o, tree, err);
    if (status) woi_tree_free(tree);
    return status;
}
