/* Searching a tree: see tree.h. */
#include "route/tree.h"

#include "base/error.h"
#include "base/finite.h"
#include "base/mem.h"
#include "base/team.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void woi_tree_free(woi_tree *tree)
{
    woi_free(tree->basis);
    woi_free(tree->basis_scales);
    woi_free(tree->nodes);
    woi_free(tree->node_scales);
    woi_free(tree->node_offsets);
    woi_free(tree->leaves);
    woi_free(tree->leaf_scales);
    woi_free(tree->leaf_offsets);
    woi_free(tree->n_leaves);
    woi_free(tree->starts);
    *tree = (woi_tree){0};
}

wo_status woi_tree_check_starts(const woi_tree *tree, wo_error *err)
{
    uint32_t before = 0;
    for (size_t a = 0; a <= tree->A; a++) {
        const uint32_t start = tree->starts[a];
        if (start < before || (a == 0 && start) || start % 16 || start - before > WOI_MAX_FAN || start > INT32_MAX)
            return woi_fail(err, WO_ERR_FORMAT, 8,
                            "tree.starts: node %zu begins at %" PRIu32 ", the one before at %" PRIu32, a, start,
                            before);
        before = start;
    }
    return WO_OK;
}

wo_status woi_tree_count_leaves(woi_tree *tree, wo_error *err)
{
    if (!(tree->n_leaves = woi_alloc(tree->A, sizeof *tree->n_leaves, err))) return WO_ERR_MEMORY;
    tree->widest = 0;
    for (size_t a = 0; a < tree->A; a++) {
        const uint32_t start = tree->starts[a], room = tree->starts[a + 1] - start;
        uint32_t n = room;
        while (n > 0 && tree->leaf_offsets[start + n - 1] == -INFINITY) n--;
        tree->n_leaves[a] = (n + 15) / 16 * 16;
        if (room > tree->widest) tree->widest = room;
    }
    return WO_OK;
}

enum { SIDE = 16 }; /* queries that go side by side through a projection */

/* What routing n queries needs, each array on 64 bytes:
 *
 *   scaled (d), zeros (r)             a small query made larger; the offsets of the basis
 *   q8, over (SIDE)                   queries in int8, in whole fours, and one by their lengths
 *   x (SIDE, r)                       their directions
 *   x8 (n, r), scales (n)             all directions in int8, in whole fours
 *   z (SIDE, or beam; A or widest)    the scores of one level
 *   nodes, node_scores (n, beam)      the nodes that each query looks at, best first; n_nodes (n)
 *   starts (A + 1), lookers           the queries that look at each node
 *   near8, near_scales (SIDE)         x8 and scales of some of them
 *   scores, leaves (n, probes)        the best leaves so far: heaps of n_leaves (n) */
typedef struct parts {
    float *scaled, *zeros;
    int8_t *q8;
    float *over, *x;
    int8_t *x8;
    float *scales, *z;
    int32_t *nodes;
    float *node_scores;
    uint32_t *n_nodes, *starts, *lookers;
    int8_t *near8;
    float *near_scales;
    float *scores;
    int32_t *leaves;
    size_t *n_leaves;
} parts;

static void *next_part(char **at, size_t bytes)
{
    char *here = *at;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static parts part(const woi_tree *tree, size_t n, uint32_t probes, void *scratch, size_t *total)
{
    const size_t r = tree->r, fours = woi_tree_fours(tree), side = n < SIDE ? n : SIDE;
    const size_t most = (size_t)tree->beam * tree->widest, cells = woi_tree_n_cells(tree);
    const size_t z = larger(side * larger(tree->A, tree->widest), most < cells ? most : cells);
    const size_t f = sizeof(float), u = sizeof(uint32_t);
    char *at = scratch;
    parts p = {.scaled = next_part(&at, tree->d * f), .zeros = next_part(&at, r * f)};
    p.q8 = next_part(&at, side * (tree->d + 3));
    p.over = next_part(&at, side * f);
    p.x = next_part(&at, side * r * f);
    p.x8 = next_part(&at, n * 4 * fours);
    p.scales = next_part(&at, n * f);
    p.z = next_part(&at, z * f);
    p.nodes = next_part(&at, n * tree->beam * u);
    p.node_scores = next_part(&at, n * tree->beam * f);
    p.n_nodes = next_part(&at, n * u);
    p.starts = next_part(&at, (tree->A + 1) * u);
    p.lookers = next_part(&at, n * tree->beam * u);
    p.near8 = next_part(&at, side * 4 * fours);
    p.near_scales = next_part(&at, side * f);
    p.scores = next_part(&at, n * probes * f);
    p.leaves = next_part(&at, n * probes * u);
    p.n_leaves = next_part(&at, n * sizeof *p.n_leaves);
    if (total) *total = (size_t)(at - (char *)scratch);
    return p;
}

size_t woi_tree_scratch(const woi_tree *tree, size_t n, uint32_t probes)
{
    size_t total;
    part(tree, n, probes, (void *)64, &total); /* where from does not matter */
    return total;
}

/* In int8, with zeros up to a multiple of four; returns the scale. */
static float encode(const woi_kernels *kernels, const float *x, size_t n, int8_t *codes)
{
    for (size_t j = n; j % 4; j++) codes[j] = 0;
    return kernels->quantise(x, n, codes);
}

/* One query in int8; returns one by its length as that, NaN where it is not finite. */
static float encode_query(const woi_tree *tree, const woi_kernels *kernels, const float *q, float *scaled, int8_t *q8)
{
    const size_t d = tree->d;
    const float one = 1, scale = encode(kernels, q, d, q8);
    float square;
    if (isnan(scale)) return scale;
    if (scale == 0) { /* all zeros, or too small for a good float */
        double most = 0;
        for (size_t j = 0; j < d; j++) most = fmax(most, fabs((double)q[j]));
        for (size_t j = 0; j < d; j++) scaled[j] = most > 0 ? (float)(q[j] / most) : 0;
        encode(kernels, scaled, d, q8);
    }
    kernels->dot_i8(q8, 1, q8, &one, 1, d, d, &square);
    return square > 0 ? 1 / sqrtf(square) : 0;
}

/* p.x and p.over of up to SIDE queries. */
static void turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, size_t n, parts p)
{
    const size_t d = tree->d, r = tree->r, fours = (d + 3) / 4;
    for (size_t i = 0; i < n; i++) p.over[i] = encode_query(tree, kernels, q + i * d, p.scaled, p.q8 + i * 4 * fours);
    if (tree->basis) {
        memset(p.zeros, 0, r * sizeof *p.zeros);
        kernels->project_i8(p.q8, p.over, n, tree->basis, tree->basis_scales, p.zeros, fours, r, r, p.x);
    } else {
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < d; j++) p.x[i * d + j] = (float)p.q8[i * 4 * fours + j] * p.over[i];
    }
}

bool woi_tree_turn(const woi_tree *tree, const woi_kernels *kernels, const float *q, void *scratch, float *x)
{
    const parts p = part(tree, 1, 1, scratch, NULL);
    turn(tree, kernels, q, 1, p);
    if (isnan(p.over[0])) return false;
    memcpy(x, p.x, tree->r * sizeof *x);
    return true;
}

void woi_tree_axes(const woi_tree *tree, float *axes)
{
    const size_t d = tree->d, r = tree->r;
    for (size_t c = 0; c < r; c++)
        for (size_t j = 0; j < d; j++)
            axes[c * d + j] = tree->basis ? (float)woi_tree_coordinate(tree->basis, r, c, j) * tree->basis_scales[c]
                                          : (float)(c == j);
}

/* The nodes that queries look at, from query `first` on, up to SIDE of them. */
static void choose_nodes(const woi_tree *tree, const woi_kernels *kernels, const woi_routing *asked, size_t first,
                         parts p)
{
    const size_t fours = woi_tree_fours(tree), beam = tree->beam, A = tree->A;
    const size_t n = asked->n - first < SIDE ? asked->n - first : SIDE;
    int8_t *x8 = p.x8 + first * 4 * fours;
    float *scales = p.scales + first;
    const float *x = asked->x ? asked->x + first * tree->r : p.x;
    if (!asked->x) turn(tree, kernels, asked->q + first * tree->d, n, p);
    for (size_t i = 0; i < n; i++) scales[i] = encode(kernels, x + i * tree->r, tree->r, x8 + i * 4 * fours);
    kernels->project_i8(x8, scales, n, tree->nodes, tree->node_scales, tree->node_offsets, fours, A, A, p.z);
    for (size_t i = 0; i < n; i++) {
        const size_t at = (first + i) * beam;
        uint32_t *n_nodes = &p.n_nodes[first + i];
        *n_nodes = 0;
        if (!asked->x && isnan(p.over[i])) continue;
        *n_nodes = (uint32_t)kernels->pick(p.z + i * A, NULL, A, beam, p.node_scores + at, p.nodes + at);
        const float least = p.node_scores[at] - asked->margin;
        while (*n_nodes > 1 && p.node_scores[at + *n_nodes - 1] < least) --*n_nodes;
    }
}

/* Directions of n queries in int8, with their scales. */
typedef struct encoded {
    const int8_t *x8;
    const float *scales;
    size_t n;
} encoded;

/* The leaves below a node, for n queries: z (n, as many as there are). Returns their number. */
static size_t score_leaves(const woi_tree *tree, const woi_kernels *kernels, size_t node, encoded x, float *z)
{
    const size_t fours = woi_tree_fours(tree), first = tree->starts[node], n_leaves = tree->n_leaves[node];
    kernels->project_i8(x.x8, x.scales, x.n, tree->leaves + first * 4 * fours, tree->leaf_scales + first,
                        tree->leaf_offsets + first, fours, n_leaves, tree->starts[node + 1] - first, z);
    return n_leaves;
}

/* The nodes in ascending order, so that of equal leaves the lower cell comes first. */
static void sort_nodes(int32_t *nodes, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const int32_t node = nodes[i];
        size_t at = i;
        for (; at > 0 && node < nodes[at - 1]; at--) nodes[at] = nodes[at - 1];
        nodes[at] = node;
    }
}

/* The best leaves of query i, all of its nodes at once. */
static uint32_t find_leaves(const woi_tree *tree, const woi_kernels *kernels, size_t i, uint32_t probes, parts p,
                            uint32_t *cells)
{
    const size_t n_nodes = p.n_nodes[i];
    int32_t *nodes = p.nodes + i * tree->beam, *leaves = p.leaves + i * probes;
    float *scores = p.scores + i * probes;
    const encoded x = {p.x8 + i * 4 * woi_tree_fours(tree), p.scales + i, 1};
    sort_nodes(nodes, n_nodes);
    size_t n_leaves = 0;
    for (size_t b = 0; b < n_nodes; b++) n_leaves += score_leaves(tree, kernels, (size_t)nodes[b], x, p.z + n_leaves);
    const size_t found = kernels->pick(p.z, NULL, n_leaves, probes, scores, leaves);
    uint32_t n = 0;
    for (; n < found && scores[n] > -INFINITY; n++) { /* the others are not used */
        uint32_t leaf = (uint32_t)leaves[n];
        const int32_t *node = nodes;
        for (; leaf >= tree->n_leaves[*node]; node++) leaf -= tree->n_leaves[*node];
        cells[n] = tree->starts[*node] + leaf;
    }
    return n;
}

/* The queries of each node, of those that look there as their `from`-th to before their `to`-th: a counting sort. */
static void group(const woi_tree *tree, size_t n, size_t from, size_t to, parts p)
{
    const size_t A = tree->A, beam = tree->beam;
    memset(p.starts, 0, (A + 1) * sizeof *p.starts);
    for (size_t i = 0; i < n; i++)
        for (size_t b = from; b < to && b < p.n_nodes[i]; b++) p.starts[p.nodes[i * beam + b]]++;
    for (size_t a = 1; a <= A; a++) p.starts[a] += p.starts[a - 1];
    for (size_t i = n; i-- > 0;)
        for (size_t b = from; b < to && b < p.n_nodes[i]; b++)
            p.lookers[--p.starts[p.nodes[i * beam + b]]] = (uint32_t)i;
}

/* Offers a query the leaves of a node, `first` and on, of which z has the scores. */
static void offer(const woi_kernels *kernels, float *z, size_t n_leaves, int32_t first, woi_topk *top)
{
    if (top->n) {
        kernels->topk_scan(z, n_leaves, first, top);
    } else { /* the worst first: a heap */
        float best[WOI_MAX_LEAVES];
        int32_t ids[WOI_MAX_LEAVES];
        top->n = kernels->pick(z, NULL, n_leaves, top->k, best, ids);
        for (size_t j = 0; j < top->n; j++) {
            top->scores[j] = best[top->n - 1 - j];
            top->ids[j] = first + ids[top->n - 1 - j];
        }
    }
}

/* The leaves of every node for the queries that look there, some at a time. */
static void look(const woi_tree *tree, const woi_kernels *kernels, uint32_t probes, parts p)
{
    const size_t bytes = 4 * woi_tree_fours(tree);
    for (size_t a = 0; a < tree->A; a++)
        for (size_t at = p.starts[a], n; at < p.starts[a + 1]; at += n) {
            n = p.starts[a + 1] - at < SIDE ? p.starts[a + 1] - at : SIDE;
            for (size_t i = 0; i < n; i++) {
                memcpy(p.near8 + i * bytes, p.x8 + p.lookers[at + i] * bytes, bytes);
                p.near_scales[i] = p.scales[p.lookers[at + i]];
            }
            const size_t n_leaves = score_leaves(tree, kernels, a, (encoded){p.near8, p.near_scales, n}, p.z);
            for (size_t i = 0; i < n; i++) {
                const size_t query = p.lookers[at + i];
                woi_topk top = {probes, p.n_leaves[query], p.scores + query * probes, p.leaves + query * probes};
                offer(kernels, p.z + i * n_leaves, n_leaves, (int32_t)tree->starts[a], &top);
                p.n_leaves[query] = top.n;
            }
        }
}

/* The same for n queries, node by node. Every query looks at its nearest node first: few leaves of its other nodes are
 * then nearer than those that it has. */
static void find_together(const woi_tree *tree, const woi_kernels *kernels, const woi_routing *asked, parts p)
{
    const size_t n = asked->n;
    const uint32_t probes = asked->probes;
    uint32_t *cells = asked->cells, *n_cells = asked->n_cells;
    memset(p.n_leaves, 0, n * sizeof *p.n_leaves);
    group(tree, n, 0, 1, p);
    look(tree, kernels, probes, p);
    group(tree, n, 1, tree->beam, p);
    look(tree, kernels, probes, p);
    for (size_t i = 0; i < n; i++) {
        woi_topk top = {probes, p.n_leaves[i], p.scores + i * probes, p.leaves + i * probes};
        woi_topk_finish(&top);
        for (n_cells[i] = 0; n_cells[i] < top.n && top.scores[n_cells[i]] > -INFINITY; n_cells[i]++)
            cells[i * probes + n_cells[i]] = (uint32_t)top.ids[n_cells[i]];
    }
}

void woi_tree_route(const woi_tree *tree, const woi_kernels *kernels, const woi_routing *asked)
{
    const size_t n = asked->n;
    const uint32_t probes = asked->probes;
    const parts p = part(tree, n, probes, asked->scratch, NULL);
    for (size_t i = 0; i < n; i += SIDE) choose_nodes(tree, kernels, asked, i, p);
    if (n > 1 && tree->beam >= WOI_WIDE_BEAM)
        find_together(tree, kernels, asked, p);
    else
        for (size_t i = 0; i < n; i++)
            asked->n_cells[i] = find_leaves(tree, kernels, i, probes, p, asked->cells + i * probes);
    if (asked->scores) memcpy(asked->scores, p.scores, n * probes * sizeof *asked->scores); /* both leave them so */
}

enum { TOGETHER = 256 }; /* queries of a log that are routed at once */

/* What many threads do with one tree. */
typedef struct shared {
    const woi_tree *tree;
    const woi_kernels *kernels;
    const float *q;
    size_t n, used; /* queries; of which so many are looked at */
    uint32_t probes, n_near;
    char *scratch; /* (threads, each) */
    size_t each;
    uint32_t *cells, *near;
    float *gaps;
} shared;

static void route_range(void *own, int worker, size_t first, size_t end)
{
    const shared *s = own;
    uint32_t found[TOGETHER];
    const woi_routing asked = {.q = s->q + first * s->tree->d,
                               .n = end - first,
                               .probes = s->probes,
                               .cells = s->cells + first * s->probes,
                               .n_cells = found,
                               .scratch = s->scratch + (size_t)worker * s->each,
                               .margin = INFINITY};
    woi_tree_route(s->tree, s->kernels, &asked);
    for (size_t i = 0; i < asked.n; i++)
        for (uint32_t l = asked.n_cells[i]; l < s->probes; l++) asked.cells[i * s->probes + l] = UINT32_MAX;
}

wo_status woi_tree_file(const woi_tree *tree, const float *q, size_t n, int threads, const woi_filing *filing,
                        wo_error *err)
{
    threads = woi_team_threads(threads);
    shared s = {.tree = tree, .kernels = woi_kernels_get(err), .q = q, .probes = filing->each, .cells = filing->cells};
    if (!s.kernels) return WO_ERR_UNSUPPORTED;
    s.each = woi_tree_scratch(tree, TOGETHER, s.probes);
    if (!(s.scratch = woi_alloc((size_t)threads, s.each, err))) return WO_ERR_MEMORY;
    woi_team_ranges(threads, n, TOGETHER, route_range, &s);
    woi_free(s.scratch);
    return WO_OK;
}

/* How far the node of each leaf that a query opens is behind the query's best: gaps (probes); returns their number. */
static size_t find_gaps(const woi_tree *tree, const woi_kernels *kernels, const float *q, uint32_t probes,
                        void *scratch, float *gaps)
{
    const parts p = part(tree, 1, probes, scratch, NULL);
    int32_t nodes[WOI_MAX_BEAM] = {0};
    uint32_t cells[WOI_MAX_LEAVES];
    choose_nodes(tree, kernels, &(woi_routing){.q = q, .n = 1, .margin = INFINITY}, 0, p);
    const size_t n_nodes = p.n_nodes[0];
    memcpy(nodes, p.nodes, n_nodes * sizeof *nodes); /* best first, as the scores are; they are sorted now */
    const uint32_t n = find_leaves(tree, kernels, 0, probes, p, cells);
    for (uint32_t i = 0; i < n; i++) {
        size_t node = 0;
        while (node + 1 < n_nodes &&
               (cells[i] < tree->starts[nodes[node]] || cells[i] >= tree->starts[nodes[node] + 1]))
            node++;
        gaps[i] = p.node_scores[0] - p.node_scores[node];
    }
    return n;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void find_gaps_range(void *own, int worker, size_t first, size_t end)
{
    const shared *s = own;
    for (size_t i = first; i < end; i++) {
        float *gaps = s->gaps + i * s->probes;
        const size_t found = find_gaps(s->tree, s->kernels, s->q + s->n * i / s->used * s->tree->d, s->probes,
                                       s->scratch + (size_t)worker * s->each, gaps);
        for (size_t j = found; j < s->probes; j++) gaps[j] = INFINITY; /* not there: behind all others */
    }
}

wo_status woi_tree_learn_margin(woi_tree *tree, const float *q, size_t n, uint32_t probes, int threads, wo_error *err)
{
    enum { ENOUGH = 8192, AT_ONCE = 64 }; /* queries */
    const double kept = 0.995;            /* of the leaves that they open without a margin */
    threads = woi_team_threads(threads);
    const size_t used = n < ENOUGH ? n : ENOUGH;
    shared s = {.tree = tree, .kernels = woi_kernels_get(err), .q = q, .n = n, .used = used, .probes = probes};
    if (!s.kernels) return WO_ERR_UNSUPPORTED;
    s.each = woi_tree_scratch(tree, 1, probes);
    float *gaps = s.gaps = woi_alloc(used, probes * sizeof *gaps, err);
    s.scratch = woi_alloc((size_t)threads, s.each, err);
    tree->margin = INFINITY;
    wo_status status = gaps && s.scratch ? WO_OK : WO_ERR_MEMORY;
    if (!status) {
        woi_team_ranges(threads, used, AT_ONCE, find_gaps_range, &s);
        size_t all = 0;
        for (size_t i = 0; i < used * probes; i++) all += gaps[i] < INFINITY;
        qsort(gaps, used * probes, sizeof *gaps, by_size);
        if (all)
            tree->margin = gaps[(size_t)((double)(all - 1) * kept)];
        else if (used) /* they were finite before */
            status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                              woi_all_finite(q, n * tree->d)
                                  ? "no query finds a way through the tree: their numbers are too large for its sums"
                                  : "no query is finite any more: the log has changed meanwhile");
    }
    woi_free(gaps);
    woi_free(s.scratch);
    return status;
}

/* Puts (score, id) into the best `room` so far, `n` of them, best first, where it belongs; equal scores: the earlier
 * stays before. Returns the new n. */
static inline size_t insert(float score, uint32_t id, float *scores, uint32_t *ids, size_t n, size_t room)
{
    if (n == room && !(score > scores[n - 1])) return n;
    size_t at = n < room ? n++ : n - 1;
    for (; at > 0 && score > scores[at - 1]; at--) {
        scores[at] = scores[at - 1];
        ids[at] = ids[at - 1];
    }
    scores[at] = score;
    ids[at] = id;
    return n;
}

/* The neighbours of the leaves below node a. */
static void find_neighbours(void *own, int worker, size_t a)
{
    const shared *s = own;
    const woi_tree *tree = s->tree;
    const uint32_t start = tree->starts[a], room = tree->starts[a + 1] - start, n_near = s->n_near;
    const size_t fours = woi_tree_fours(tree);
    float *z = (float *)(void *)(s->scratch + (size_t)worker * s->each), *scores = z + tree->widest;
    int8_t *x = (void *)(scores + n_near);
    const uint8_t *leaves = tree->leaves + start * 4 * fours;
    const float *scales = tree->leaf_scales + start, *offsets = tree->leaf_offsets + start;
    for (uint32_t b = 0; b < room; b++) {
        uint32_t *near = s->near + (size_t)(start + b) * n_near;
        size_t n = 0;
        if (offsets[b] == -INFINITY) { /* not used: it has no neighbours */
            for (uint32_t i = 0; i < n_near; i++) near[i] = UINT32_MAX;
            continue;
        }
        for (size_t j = 0; j < 4 * fours; j++) x[j] = (int8_t)woi_tree_coordinate(leaves, room, b, j);
        s->kernels->project_i8(x, &scales[b], 1, leaves, scales, offsets, fours, room, room, z);
        for (uint32_t other = 0; other < room; other++)
            if (other != b && z[other] > -INFINITY) n = insert(z[other], start + other, scores, near, n, n_near);
        for (; n < n_near; n++) near[n] = UINT32_MAX;
    }
}

wo_status woi_tree_neighbours(const woi_tree *tree, uint32_t n_near, int threads, uint32_t *near, wo_error *err)
{
    threads = woi_team_threads(threads);
    shared s = {.tree = tree, .kernels = woi_kernels_get(err), .n_near = n_near, .near = near};
    if (!s.kernels) return WO_ERR_UNSUPPORTED;
    s.each = (woi_tree_fours(tree) + tree->widest + n_near + 15) / 16 * 16 * sizeof(float);
    if (!(s.scratch = woi_alloc((size_t)threads, s.each, err))) return WO_ERR_MEMORY;
    woi_team_for(threads, tree->A, find_neighbours, &s);
    woi_free(s.scratch);
    return WO_OK;
}
