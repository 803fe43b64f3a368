/* update/adapter: cells against a recomputation from their definition, and against a build from both logs by the same
 * router; cells that nothing was observed in; what is refused; fading; searchers that move; memory that ends. */
#include "testing.h"

#include "base/rng.h"
#include "build/build_evidence.h"
#include "search/searcher.h"

#include <math.h>
#include <time.h>

enum { M = 400, D = 8, A = 1500, B = 1500, N = A + B, GROUPS = 12, LABELS = 2 };

/* Queries around the directions of groups; those of the second half need other classes of their group. */
typedef struct world {
    float w[M * D], q[N * D];
    int64_t indptr[N + 1];
    int32_t labels[N * LABELS];
    wo_layer *layer;
    wo_log *first, *all;
} world;

static world *make_world(void)
{
    world *p = calloc(1, sizeof *p);
    wo_error err;
    assert_non_null(p);
    for (uint64_t i = 0; i < M * D; i++) p->w[i] = 0.4f * woi_rng_normal(1, 1, i);
    for (uint64_t i = 0; i < N; i++) {
        const uint64_t group = woi_rng_below(1, 3, i, GROUPS);
        for (uint64_t j = 0; j < D; j++)
            p->q[i * D + j] = 2 * woi_rng_normal(1, 4, group * D + j) + 0.5f * woi_rng_normal(1, 5, i * D + j);
        for (uint64_t l = 0; l < LABELS; l++) {
            const uint64_t drawn = woi_rng_below(1, 6, i * LABELS + l, 10);
            p->labels[i * LABELS + l] = (int32_t)((group * 30 + drawn + (i < A ? 0 : 6)) % M);
        }
        p->indptr[i + 1] = (int64_t)((i + 1) * LABELS);
    }
    if (wo_layer_wrap(p->w, NULL, M, D, &p->layer, &err) ||
        wo_log_wrap(p->q, A, D, p->indptr, p->labels, &p->first, &err) ||
        wo_log_wrap(p->q, N, D, p->indptr, p->labels, &p->all, &err))
        fail_msg("%s", err.text);
    return p;
}

static void free_world(world *p)
{
    wo_log_free(p->first);
    wo_log_free(p->all);
    wo_layer_free(p->layer);
    free(p);
}

static wo_build_options options_of(wo_router router)
{
    wo_build_options o;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    o.router = router;
    o.K = 4;
    o.L = 3;
    o.nodes = 4;
    o.leaves = 16;
    o.probes = 2;
    o.iterations = 20;
    o.source = WO_SOURCE_LABELS;
    o.thin = 0;
    o.lambda = 0;
    o.prior = 0.5;
    return o;
}

static wo_index *build(const world *p, const wo_build_options *o)
{
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(p->layer, p->first, o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static wo_adapter *adapter_of(const wo_index *base, double half_life)
{
    wo_adapter *a = NULL;
    wo_error err;
    const wo_adapter_options o = {.struct_size = sizeof o, .half_life = half_life};
    if (wo_adapter_create(base, &o, &a, &err)) fail_msg("%s", err.text);
    return a;
}

/* Queries first .. first + n - 1 of the world. */
static void observe(wo_adapter *a, const world *p, size_t first, size_t n)
{
    wo_error err;
    if (wo_adapter_observe(a, p->q + first * D, n, p->indptr, p->labels + first * LABELS, &err))
        fail_msg("%s", err.text);
}

static wo_index *publish(wo_adapter *a)
{
    wo_index *next = NULL;
    wo_error err;
    if (wo_adapter_publish(a, &next, &err)) fail_msg("%s", err.text);
    return next;
}

static double from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void assert_same_cells(const woi_cells *a, const woi_cells *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->offsets, b->offsets, (a->n + 1) * sizeof *a->offsets);
    assert_memory_equal(a->ids, b->ids, a->offsets[a->n] * sizeof *a->ids);
    assert_memory_equal(a->queries, b->queries, a->n * sizeof *a->queries);
    if (a->shares) assert_memory_equal(a->shares, b->shares, a->offsets[a->n] * sizeof *a->shares);
}

/* ---- Against a build --------------------------------------------------------------------------------------- */

/* The cells that a build from both logs would give with the router of `base`. */
static woi_cells cells_of_both(const world *p, const wo_index *base)
{
    wo_index other = *base;
    wo_error err;
    woi_sparse needs = {0};
    const uint32_t each = woi_uses_tree(&base->options) ? 1 + base->options.spread : base->options.L;
    woi_routed routed = {.each = each, .of = malloc(N * each * sizeof(uint32_t))};
    const woi_filing filing = {.each = each, .cells = routed.of};
    other.cells = (woi_cells){0};
    const woi_needs_call call = {.rows = &base->rows, .log = p->all, .source = WO_SOURCE_LABELS, .threads = 1};
    wo_status status = woi_needs_of(&call, &needs, &err);
    if (!status)
        status = woi_uses_tree(&base->options) ? woi_tree_file(&base->tree, p->q, N, 1, &filing, &err)
                                               : woi_hash_queries(&base->hash, p->q, N, 1, routed.of, &err);
    if (!status) status = woi_evidence_fill((woi_evidence){&needs, &needs}, &routed, &other, &err);
    if (status) fail_msg("%s", err.text);
    woi_sparse_free(&needs);
    free(routed.of);
    return other.cells;
}

/* Where lambda and cap leave nothing out, all that the base counted is known, but for the digits of shares. Whole
 * numbers below 256 are known exactly. */
static void as_a_build_from_both_logs(void **state)
{
    (void)state;
    world *p = make_world();
    for (int router = 0; router < 2; router++) {
        const wo_build_options o = options_of(router ? WO_ROUTER_TREE : WO_ROUTER_HASH);
        wo_index *base = build(p, &o);
        wo_adapter *a = adapter_of(base, 0);
        observe(a, p, A, B);
        wo_index *next = publish(a);
        woi_cells both = cells_of_both(p, base);
        assert_same_cells(&next->cells, &both);
        woi_cells_free(&both);
        wo_index_free(next);
        wo_adapter_free(a);
        wo_index_free(base);
    }
    free_world(p);
}

/* With a spread the parts that a cell had are known on average alone: classes are the same, shares near. */
static void as_a_build_with_spread(void **state)
{
    (void)state;
    world *p = make_world();
    wo_build_options o = options_of(WO_ROUTER_TREE);
    o.spread = 3;
    wo_index *base = build(p, &o);
    wo_adapter *a = adapter_of(base, 0);
    observe(a, p, A, B);
    wo_index *next = publish(a);
    woi_cells both = cells_of_both(p, base);
    assert_memory_equal(next->cells.offsets, both.offsets, (both.n + 1) * sizeof *both.offsets);
    assert_memory_equal(next->cells.ids, both.ids, both.offsets[both.n] * sizeof *both.ids);
    double off = 0, all = 0;
    for (uint32_t i = 0; i < both.offsets[both.n]; i++) {
        off += fabs(from_bf16(next->cells.shares[i]) - from_bf16(both.shares[i]));
        all += from_bf16(both.shares[i]);
    }
    assert_true(off < 0.1 * all);
    woi_cells_free(&both);
    wo_index_free(next);
    wo_adapter_free(a);
    wo_index_free(base);
    free_world(p);
}

/* ---- Against the definition -------------------------------------------------------------------------------- */

/* What a cell counts, class by class. */
typedef struct naive {
    double n, own, counts[M], needs[M];
    bool known[M];
} naive;

/* The definition, with half-life h (0: none), after `seen` queries were observed from A on. */
static void count_naively(const world *p, const wo_index *base, size_t cell, size_t seen, double h, naive *to)
{
    const wo_build_options *o = &base->options;
    const bool tree = woi_uses_tree(o);
    const uint32_t each = tree ? 1 + o->spread : o->L;
    uint32_t of[16];
    double whole = 0, mass = 0;
    wo_error err;
    memset(to, 0, sizeof *to);
    for (uint32_t r = 0; r < each; r++) whole += tree ? 1 / sqrt(r + 1) : 0;
    for (size_t i = A; i < A + seen; i++) {
        const woi_filing filing = {.each = each, .cells = of};
        assert_int_equal(tree ? woi_tree_file(&base->tree, p->q + i * D, 1, 1, &filing, &err)
                              : woi_hash_queries(&base->hash, p->q + i * D, 1, 1, of, &err),
                         WO_OK);
        for (uint32_t r = 0; r < each; r++) {
            if (of[r] != cell) continue;
            const double left = h > 0 ? pow(2, -(double)(A + seen - i) / h) : 1;
            const double part = (tree ? 1 / sqrt(r + 1) : 1) * left;
            mass += part;
            to->own += !tree || r == 0 ? left : 0;
            const int32_t *labels = p->labels + i * LABELS;
            for (int l = 0; l < LABELS; l++) {
                if (l && labels[l] == labels[0]) continue;
                to->counts[labels[l]] += part;
                to->needs[labels[l]] += part;
                to->known[labels[l]] = true;
            }
        }
    }
    const double left = h > 0 ? pow(2, -(double)seen / h) : 1;
    const double own = base->cells.queries[cell] * (tree ? whole : 1);
    const uint32_t start = base->cells.offsets[cell], end = base->cells.offsets[cell + 1];
    double borrowed = end > start && own < o->thin ? o->thin - own - mass : 0;
    if (borrowed < 0) borrowed = 0;
    for (uint32_t at = start; at < end; at++) {
        const int32_t id = base->cells.ids[at];
        const double likely = fmax(1, 2 * o->lambda * own);
        const double share = base->cells.shares ? from_bf16(base->cells.shares[at]) : o->lambda;
        double count = base->cells.shares ? share * own : likely;
        if (base->cells.shares && own >= o->thin && !o->spread && o->source == WO_SOURCE_LABELS) count = round(count);
        to->counts[id] += count * left + share * borrowed;
        to->needs[id] += (o->source == WO_SOURCE_BOTH ? fmax(count, likely) : count) * left + share * borrowed;
        to->known[id] = true;
    }
    to->n = own * left + borrowed + mass;
    to->own += base->cells.queries[cell] * left;
}

/* Whether the cell holds what the counts say; classes whose place is decided by the last digits may be either way. */
static void assert_cell(const wo_index *base, const wo_index *next, size_t cell, const naive *by)
{
    const wo_build_options *o = &base->options;
    const int32_t *ids = next->cells.ids + next->cells.offsets[cell];
    const size_t n = next->cells.offsets[cell + 1] - next->cells.offsets[cell];
    size_t clear = 0, near = 0, known = 0;
    for (int32_t id = 0; id < M; id++) {
        bool held = false;
        size_t before = 0;
        for (size_t i = 0; i < n; i++) held |= ids[i] == id;
        if (!by->known[id]) {
            assert_false(held);
            continue;
        }
        known++;
        const double bar = o->lambda * by->n;
        for (int32_t other = 0; other < M; other++)
            before += by->known[other] && by->needs[other] > by->needs[id] + 1e-4;
        const bool sure = by->needs[id] > bar + 1e-4, never = by->needs[id] < bar - 1e-4;
        clear += sure;
        near += !sure && !never;
        if (held) assert_true((!never || n == 1) && (!o->cap || before < o->cap));
        if (sure && !o->cap) assert_true(held);
    }
    assert_true(n <= (clear + near > 0 ? clear + near : known > 0));
    if (o->cap) assert_true(n <= o->cap && (n == o->cap || n >= clear));
    for (size_t i = 0; next->cells.shares && i < n; i++) {
        const double share = from_bf16(next->cells.shares[next->cells.offsets[cell] + i]);
        assert_true(fabs(share - by->counts[ids[i]] / by->n) <= share / 128 + 1e-6);
    }
    assert_true(fabs(next->cells.queries[cell] - by->own) <= 0.501);
}

static void by_the_definition(void **state)
{
    (void)state;
    world *p = make_world();
    naive *by = malloc(sizeof *by);
    enum { SEEN = 400 };
    const struct {
        wo_router router;
        uint32_t spread, cap, thin;
        double lambda, prior, half_life;
        wo_source source;
    } cases[] = {
        {WO_ROUTER_HASH, 0, 0, 0, 0.05, 0.5, 0, WO_SOURCE_LABELS},
        {WO_ROUTER_HASH, 0, 6, 16, 0.05, 0.5, 0, WO_SOURCE_LABELS},
        {WO_ROUTER_HASH, 0, 0, 16, 0.1, 0, 0, WO_SOURCE_LABELS},
        {WO_ROUTER_TREE, 0, 0, 16, 0.05, 0.5, 300, WO_SOURCE_LABELS},
        {WO_ROUTER_TREE, 3, 8, 16, 0.02, 0.5, 0, WO_SOURCE_LABELS},
        {WO_ROUTER_TREE, 2, 0, 40, 0.05, 0, 200, WO_SOURCE_LABELS},
        {WO_ROUTER_TREE, 0, 0, 16, 0.1, 0.5, 0, WO_SOURCE_BOTH},
        {WO_ROUTER_TREE, 0, 0, 16, 0.1, 0, 0, WO_SOURCE_TOP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wo_build_options o = options_of(cases[i].router);
        o.spread = cases[i].spread;
        o.cap = cases[i].cap;
        o.thin = cases[i].thin;
        o.lambda = cases[i].lambda;
        o.prior = cases[i].prior;
        o.source = cases[i].source;
        wo_index *base = build(p, &o);
        wo_adapter *a = adapter_of(base, cases[i].half_life);
        observe(a, p, A, SEEN);
        wo_index *next = publish(a);
        for (size_t c = 0; c < base->cells.n; c++) {
            count_naively(p, base, c, SEEN, cases[i].half_life, by);
            const double before =
                base->cells.queries[c] * (cases[i].half_life > 0 ? pow(2, -SEEN / cases[i].half_life) : 1);
            if (by->own > before + 1e-9) assert_cell(base, next, c, by);
        }
        wo_index_free(next);
        wo_adapter_free(a);
        wo_index_free(base);
    }
    free(by);
    free_world(p);
}

/* ---- What stays -------------------------------------------------------------------------------------------- */

static void other_cells_stay(void **state)
{
    (void)state;
    world *p = make_world();
    wo_build_options o = options_of(WO_ROUTER_TREE);
    o.thin = 16;
    wo_index *base = build(p, &o);
    wo_adapter *a = adapter_of(base, 0);
    assert_null(publish(a));
    observe(a, p, A, 1);
    uint32_t own;
    wo_error err;
    assert_int_equal(woi_tree_file(&base->tree, p->q + A * D, 1, 1, &(woi_filing){1, &own}, &err), WO_OK);
    wo_index *next = publish(a);
    assert_non_null(next);
    assert_null(publish(a)); /* nothing since */
    assert_int_equal(next->cells.queries[own], base->cells.queries[own] + 1);
    for (size_t c = 0; c < base->cells.n; c++) {
        if (c == own) continue;
        const uint32_t x = base->cells.offsets[c], y = next->cells.offsets[c], n = base->cells.offsets[c + 1] - x;
        assert_int_equal(next->cells.offsets[c + 1] - y, n);
        assert_memory_equal(next->cells.ids + y, base->cells.ids + x, n * sizeof(int32_t));
        assert_memory_equal(next->cells.shares + y, base->cells.shares + x, n * sizeof(uint16_t));
    }
    assert_ptr_equal(next->rows.w, base->rows.w);
    assert_ptr_equal(next->tree.leaves, base->tree.leaves);
    wo_adapter_info info = {.struct_size = sizeof info};
    assert_int_equal(wo_adapter_describe(a, &info), WO_OK);
    assert_int_equal(info.queries, 1);
    assert_int_equal(info.cells, 1);
    assert_int_equal(info.publications, 1);
    assert_int_equal(info.entries_added - info.entries_left,
                     next->cells.offsets[next->cells.n] - base->cells.offsets[base->cells.n]);
    wo_index_free(next);
    wo_adapter_free(a);
    wo_index_free(base);
    free_world(p);
}

/* One call or many, publications between them or none: the same cells. */
static void pieces_do_not_matter(void **state)
{
    (void)state;
    world *p = make_world();
    for (int router = 0; router < 2; router++) {
        wo_build_options o = options_of(router ? WO_ROUTER_TREE : WO_ROUTER_HASH);
        o.lambda = 0.03;
        o.spread = router ? 2 : 0;
        wo_index *base = build(p, &o);
        wo_adapter *a = adapter_of(base, 0), *b = adapter_of(base, 0);
        observe(a, p, A, 500);
        for (size_t i = 0; i < 500; i += 7) {
            observe(b, p, A + i, 500 - i < 7 ? 500 - i : 7);
            if (i % 3 == 0) wo_index_free(publish(b));
        }
        observe(b, p, A, 0);
        wo_index *x = publish(a), *y = publish(b);
        if (y) assert_same_cells(&x->cells, &y->cells);
        wo_index_free(x);
        wo_index_free(y);
        wo_adapter_free(a);
        wo_adapter_free(b);
        wo_index_free(base);
    }
    free_world(p);
}

/* ---- Fading ------------------------------------------------------------------------------------------------ */

static bool holds(const wo_index *index, const float *q, int32_t id)
{
    uint32_t own;
    wo_error err;
    assert_int_equal(woi_tree_file(&index->tree, q, 1, 1, &(woi_filing){1, &own}, &err), WO_OK);
    for (uint32_t at = index->cells.offsets[own]; at < index->cells.offsets[own + 1]; at++)
        if (index->cells.ids[at] == id) return true;
    return false;
}

static void what_does_not_come_back_leaves(void **state)
{
    (void)state;
    world *p = make_world();
    wo_build_options o = options_of(WO_ROUTER_TREE);
    o.lambda = 0.1;
    wo_index *base = build(p, &o);
    wo_adapter *a = adapter_of(base, 20);
    const int32_t first = M - 1, second = M - 2;
    wo_error err;
    for (int i = 0; i < 60; i++)
        assert_int_equal(wo_adapter_observe(a, p->q, 1, (int64_t[]){0, 1}, &first, &err), WO_OK);
    wo_index *next = publish(a);
    assert_true(holds(next, p->q, first));
    wo_index_free(next);
    for (int i = 0; i < 400; i++)
        assert_int_equal(wo_adapter_observe(a, p->q, 1, (int64_t[]){0, 1}, &second, &err), WO_OK);
    next = publish(a);
    assert_false(holds(next, p->q, first));
    assert_true(holds(next, p->q, second));
    wo_index_free(next);
    wo_adapter_free(a);
    wo_index_free(base);
    free_world(p);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------- */

static void bad_calls_are_refused_whole(void **state)
{
    (void)state;
    world *p = make_world();
    const wo_build_options o = options_of(WO_ROUTER_HASH);
    wo_index *base = build(p, &o), *popular = NULL;
    wo_adapter *a = adapter_of(base, 0), *none = NULL;
    wo_error err;
    float q[2 * D];
    memcpy(q, p->q, sizeof q);
    const int64_t indptr[] = {0, 1, 2}, falling[] = {0, 2, 1}, late[] = {1, 1, 2};
    const int32_t labels[] = {1, 2}, beyond[] = {1, M}, below[] = {1, -1};
    assert_int_equal(wo_adapter_observe(a, q, 2, indptr, beyond, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "label 400 at place 1 is not one of the 400 classes");
    assert_int_equal(wo_adapter_observe(a, q, 2, indptr, below, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_adapter_observe(a, q, 2, falling, labels, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_adapter_observe(a, q, 2, late, labels, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_adapter_observe(a, q, 2, NULL, labels, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_adapter_observe(a, q, 2, indptr, NULL, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_adapter_observe(a, NULL, 2, indptr, labels, &err), WO_ERR_ARGUMENT);
    q[D + 3] = NAN;
    assert_int_equal(wo_adapter_observe(a, q, 2, indptr, labels, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "query 1 is not finite");
    q[D + 3] = INFINITY;
    assert_int_equal(wo_adapter_observe(a, q, 2, indptr, labels, &err), WO_ERR_ARGUMENT);
    assert_null(publish(a));
    wo_adapter_info info = {.struct_size = sizeof info};
    assert_int_equal(wo_adapter_describe(a, &info), WO_OK);
    assert_int_equal(info.queries, 0);
    info.struct_size = 0;
    assert_int_equal(wo_adapter_describe(a, &info), WO_ERR_ARGUMENT);

    const wo_adapter_options odd = {.struct_size = sizeof odd, .half_life = NAN};
    assert_int_equal(wo_adapter_create(base, &odd, &none, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.option, "half_life");
    wo_build_options other;
    wo_build_defaults(WO_METHOD_POPULAR, &other, sizeof other);
    assert_int_equal(wo_index_build(p->layer, p->first, &other, &popular, &err), WO_OK);
    assert_int_equal(wo_adapter_create(popular, NULL, &none, &err), WO_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "an index of method popular learns nothing from queries: evidence does");
    assert_null(none);
    wo_index_free(popular);
    wo_adapter_free(a);
    wo_index_free(base);
    wo_adapter_free(NULL);
    free_world(p);
}

/* ---- Searching --------------------------------------------------------------------------------------------- */

static double precision(wo_searcher *s, const world *p)
{
    size_t hits = 0;
    wo_error err;
    for (size_t i = A; i < N; i++) {
        int32_t id;
        float score;
        assert_int_equal(wo_search(s, p->q + i * D, 1, 1, &id, &score, &err), WO_OK);
        hits += id == p->labels[i * LABELS] || id == p->labels[i * LABELS + 1];
    }
    return (double)hits / B;
}

static void searchers_move(void **state)
{
    (void)state;
    world *p = make_world();
    wo_build_options o = options_of(WO_ROUTER_TREE);
    o.lambda = 0.02;
    o.prior = 1;
    wo_index *base = build(p, &o), *stranger = build(p, &o);
    wo_adapter *a = adapter_of(base, 0);
    wo_searcher *moved = NULL, *fresh = NULL;
    wo_error err;
    assert_int_equal(wo_searcher_create(base, NULL, &moved, &err), WO_OK);
    const double before = precision(moved, p);
    observe(a, p, A, B);
    wo_index *next = publish(a);
    assert_int_equal(wo_searcher_create(next, NULL, &fresh, &err), WO_OK);
    assert_int_equal(wo_searcher_move(moved, next, &err), WO_OK);
    for (size_t i = 0; i < N; i++) {
        int32_t x[5], y[5];
        float sx[5], sy[5];
        assert_int_equal(wo_search(moved, p->q + i * D, 1, 5, x, sx, &err), WO_OK);
        assert_int_equal(wo_search(fresh, p->q + i * D, 1, 5, y, sy, &err), WO_OK);
        assert_memory_equal(x, y, sizeof x);
        assert_memory_equal(sx, sy, sizeof sx);
    }
    assert_true(precision(moved, p) > before + 0.02);
    assert_int_equal(wo_searcher_move(moved, stranger, &err), WO_ERR_ARGUMENT);
    assert_true(precision(moved, p) > before + 0.02);
    assert_int_equal(wo_searcher_move(moved, base, &err), WO_OK);
    assert_true(fabs(precision(moved, p) - before) < 1e-9);
    assert_int_equal(wo_searcher_move(fresh, base, &err), WO_OK); /* one that was made for what was published, too */
    wo_searcher_free(fresh);
    wo_index_free(next);
    wo_searcher_free(moved);
    wo_adapter_free(a);
    wo_index_free(base);
    wo_index_free(stranger);
    free_world(p);
}

static void what_was_learned_can_be_saved(void **state)
{
    (void)state;
    world *p = make_world();
    wo_build_options o = options_of(WO_ROUTER_TREE);
    o.spread = 1;
    wo_index *built = build(p, &o), *base = NULL, *again = NULL, *more = NULL;
    wo_error err;
    assert_int_equal(wo_index_save(built, scratch("base"), &err), WO_OK);
    assert_int_equal(wo_index_open(scratch("base"), NULL, &base, &err), WO_OK);
    wo_adapter *a = adapter_of(base, 0);
    observe(a, p, A, 300);
    wo_index *next = publish(a);
    if (wo_index_save(next, scratch("learned"), &err) || wo_index_open(scratch("learned"), NULL, &again, &err))
        fail_msg("%s", err.text);
    assert_same_cells(&next->cells, &again->cells);
    wo_index_info info = {.struct_size = sizeof info};
    assert_int_equal(wo_index_describe(next, &info), WO_OK);
    assert_int_equal(info.checksum, 0);
    wo_adapter *second = adapter_of(next, 0); /* of what was published: goes on from there */
    observe(second, p, A + 300, 300);
    more = publish(second);
    assert_non_null(more);
    assert_ptr_equal(more->base, base);
    wo_adapter_free(second);
    wo_index_free(next);
    wo_searcher *s = NULL;
    assert_int_equal(wo_searcher_create(more, NULL, &s, &err), WO_OK);
    assert_true(precision(s, p) > 0);
    wo_searcher_free(s);
    wo_index_free(more);
    wo_index_free(again);
    wo_adapter_free(a);
    wo_index_free(base);
    wo_index_free(built);
    free_world(p);
}

/* The label counts for nothing, its query does; so what was learned can be saved and opened. */
static void removed_classes_stay_away(void **state)
{
    (void)state;
    world *p = make_world();
    wo_build_options o = options_of(WO_ROUTER_TREE);
    o.lambda = 0.02;
    wo_index *built = build(p, &o), *base = NULL, *again = NULL;
    wo_error err;
    const int32_t gone = p->labels[A * LABELS];
    const wo_update_options less = {.struct_size = sizeof less, .remove = &gone, .n_remove = 1};
    assert_int_equal(wo_index_update(built, &less, &base, &err), WO_OK);
    wo_adapter *a = adapter_of(base, 0);
    observe(a, p, A, B);
    wo_index *next = publish(a);
    for (size_t i = 0; i < next->cells.offsets[next->cells.n]; i++) assert_int_not_equal(next->cells.ids[i], gone);
    if (wo_index_save(next, scratch("less"), &err) || wo_index_open(scratch("less"), NULL, &again, &err))
        fail_msg("%s", err.text);
    wo_searcher *s = NULL;
    assert_int_equal(wo_searcher_create(again, NULL, &s, &err), WO_OK);
    for (size_t i = A; i < N; i++) {
        int32_t ids[20];
        float scores[20];
        assert_int_equal(wo_search(s, p->q + i * D, 1, 20, ids, scores, &err), WO_OK);
        for (int j = 0; j < 20; j++) assert_int_not_equal(ids[j], gone);
    }
    wo_adapter_info info = {.struct_size = sizeof info};
    assert_int_equal(wo_adapter_describe(a, &info), WO_OK);
    assert_int_equal(info.queries, B);
    wo_searcher_free(s);
    wo_index_free(again);
    wo_index_free(next);
    wo_adapter_free(a);
    wo_index_free(base);
    wo_index_free(built);
    free_world(p);
}

/* ---- Time -------------------------------------------------------------------------------------------------- */

enum { MANY = 400000, EACH = 1000, DIMS = 4 };

/* n labels, EACH a query, all in the same cells: the highest first, or the lowest. Seconds of CPU. */
static double observe_many(wo_adapter *a, size_t n, bool highest_first)
{
    const size_t queries = n / EACH;
    float *q = calloc(queries * DIMS, sizeof *q);
    int64_t *indptr = calloc(queries + 1, sizeof *indptr);
    int32_t *labels = malloc(n * sizeof *labels);
    wo_error err;
    assert_true(q && indptr && labels);
    for (size_t i = 0; i < queries; i++) {
        const size_t from = (highest_first ? queries - 1 - i : i) * EACH;
        for (size_t j = 0; j < DIMS; j++) q[i * DIMS + j] = 1;
        for (size_t j = 0; j < EACH; j++) labels[i * EACH + j] = (int32_t)(from + j);
        indptr[i + 1] = (int64_t)((i + 1) * EACH);
    }
    const clock_t begin = clock();
    if (wo_adapter_observe(a, q, queries, indptr, labels, &err)) fail_msg("%s", err.text);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    free(q);
    free(indptr);
    free(labels);
    return seconds;
}

/* Eight times as many labels take about eight times as long, in whichever order they come: 64 times where each moves
 * all classes above it. The rest is room for a busy machine. */
static void time_is_in_proportion_to_labels(void **state)
{
    (void)state;
    float *w = malloc((size_t)MANY * DIMS * sizeof *w), q[100 * DIMS];
    int64_t indptr[101] = {0};
    int32_t labels[100];
    wo_error err;
    wo_layer *layer;
    wo_log *log;
    wo_index *base;
    assert_non_null(w);
    for (uint64_t i = 0; i < (uint64_t)MANY * DIMS; i++) w[i] = woi_rng_normal(1, 8, i);
    for (uint64_t i = 0; i < 100 * DIMS; i++) q[i] = woi_rng_normal(1, 9, i);
    for (int i = 0; i < 100; i++) labels[i] = i, indptr[i + 1] = i + 1;
    wo_build_options o = options_of(WO_ROUTER_HASH);
    o.K = 1;
    o.L = 2;
    o.iterations = 3;
    if (wo_layer_wrap(w, NULL, MANY, DIMS, &layer, &err) || wo_log_wrap(q, 100, DIMS, indptr, labels, &log, &err) ||
        wo_index_build(layer, log, &o, &base, &err))
        fail_msg("%s", err.text);
    double few = INFINITY, many = INFINITY;
    for (int turn = 0; turn < 3; turn++) {
        wo_adapter *a = adapter_of(base, 0), *b = adapter_of(base, 0), *small = adapter_of(base, 0);
        few = fmin(few, observe_many(small, MANY / 8, true));
        many = fmin(many, observe_many(a, MANY, true));
        observe_many(b, MANY, false);
        wo_index *x = publish(a), *y = publish(b);
        assert_same_cells(&x->cells, &y->cells);
        wo_index_free(x);
        wo_index_free(y);
        wo_adapter_free(a);
        wo_adapter_free(b);
        wo_adapter_free(small);
        if (many < 24 * few) break;
    }
    assert_true(many < 24 * few);
    wo_index_free(base);
    wo_log_free(log);
    wo_layer_free(layer);
    free(w);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    world *p = make_world();
    wo_build_options o = options_of(WO_ROUTER_TREE);
    o.spread = 2;
    wo_index *base = build(p, &o);
    const long alive = allocations_alive;
    bool through = false;
    long n = 0;
    for (; !through; n++) {
        assert_true(n < 20000);
        wo_adapter *a = NULL;
        wo_index *first = NULL, *second = NULL;
        wo_searcher *s = NULL;
        wo_error err;
        allocations_left = n;
        wo_status status = wo_adapter_create(base, NULL, &a, &err);
        if (!status) status = wo_searcher_create(base, NULL, &s, &err);
        if (!status) status = wo_adapter_observe(a, p->q + A * D, 20, p->indptr, p->labels + A * LABELS, &err);
        if (!status) status = wo_adapter_publish(a, &first, &err);
        if (!status) status = wo_adapter_observe(a, p->q, 30, p->indptr, p->labels, &err);
        if (!status) status = wo_adapter_publish(a, &second, &err);
        if (!status) status = wo_searcher_move(s, second, &err);
        if (status) assert_int_equal(status, WO_ERR_MEMORY);
        through = !status;
        allocations_left = -1;
        if (a && s && !through) { /* what failed can be done again; a failed call counted nothing */
            wo_adapter_info info = {.struct_size = sizeof info};
            assert_int_equal(wo_adapter_describe(a, &info), WO_OK);
            assert_true(info.queries == 0 || info.queries == 20 || info.queries == 50);
            int32_t id;
            float score;
            assert_int_equal(wo_search(s, p->q, 1, 1, &id, &score, &err), WO_OK);
        }
        wo_searcher_free(s);
        wo_index_free(first);
        wo_index_free(second);
        wo_adapter_free(a);
        assert_int_equal(allocations_alive, alive);
    }
    assert_true(n > 30);
    wo_index_free(base);
    free_world(p);
    wo_allocator_set(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_build_from_both_logs),
        cmocka_unit_test(as_a_build_with_spread),
        cmocka_unit_test(by_the_definition),
        cmocka_unit_test(other_cells_stay),
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(what_does_not_come_back_leaves),
        cmocka_unit_test(bad_calls_are_refused_whole),
        cmocka_unit_test(searchers_move),
        cmocka_unit_test(what_was_learned_can_be_saved),
        cmocka_unit_test(removed_classes_stay_away),
        cmocka_unit_test(time_is_in_proportion_to_labels),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
