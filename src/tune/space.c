/* The settings that a tuner tries: for each kind of router a small grid, and where in it the search starts: a cheap
 * place, and one for data where that does not reach the goal. The starts and the ranges are what did best, or nearly,
 * on the data sets of docs/EXPERIMENTS.md. */
#include "tune/tune.h"

#include "index/options.h"

typedef struct axis {
    unsigned fix;       /* names the option, and fixes it */
    int n, start, wide; /* values, and those that the starts have */
    uint32_t values[10];
} axis;

enum {
    ALL = 0x7fffffff,
    BY_SIZE = -1,        /* a start by the log's size: the smallest cells of which there are no more than */
    MANY_LEAVES = 30000, /* so many. Smaller cells did better; more of them take long to learn */
};

/* WO_FIX_TREE: training queries a leaf. Probes, beam and spread come first: a tree need not be learned again for them.
 */
static const axis tree_axes[] = {{WO_FIX_PROBES, 10, 1, 3, {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}},
                                 {WO_FIX_BEAM, 7, 1, 4, {1, 2, 4, 6, 8, 12, 16}},
                                 {WO_FIX_SPREAD, 3, 0, 0, {0, 1, 3}},
                                 {WO_FIX_TREE, 3, 1, 0, {20, 40, 80}},
                                 {WO_FIX_ROUTE_D, 4, 1, 2, {16, 32, 64, ALL}}};
/* The same for small cells, of which more are opened. */
static const axis labels_axes[] = {{WO_FIX_PROBES, 10, 1, 3, {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}},
                                   {WO_FIX_BEAM, 7, 2, 4, {1, 2, 4, 8, 16, 32, 64}},
                                   {WO_FIX_SPREAD, 4, 3, 3, {0, 1, 3, 7}},
                                   {WO_FIX_TREE, 5, BY_SIZE, BY_SIZE, {3, 6, 12, 24, 48}},
                                   {WO_FIX_ROUTE_D, 4, 2, 3, {16, 32, 64, ALL}}};
static const axis hash_axes[] = {
    {WO_FIX_PROBES, 2, 0, 1, {1, 2}}, {WO_FIX_L, 3, 1, 2, {2, 4, 8}}, {WO_FIX_K, 3, 1, 2, {8, 10, 12}}};
static const axis table_axes[] = {
    {WO_FIX_PROBES, 3, 0, 2, {1, 2, 4}}, {WO_FIX_L, 3, 2, 2, {1, 4, 10}}, {WO_FIX_K, 3, 0, 0, {4, 6, 8}}};

static const struct {
    const axis *axes;
    int n;
} kinds[] = {
    [WOI_LABELS] = {labels_axes, 5}, [WOI_TREE] = {tree_axes, 5}, [WOI_HASH] = {hash_axes, 3},
    [WOI_TABLES] = {table_axes, 3},  [WOI_POPULAR] = {NULL, 0},   [WOI_SCREEN] = {NULL, 0},
    [WOI_FULL] = {NULL, 0},
};

int woi_space_axes(woi_kind kind)
{
    return kinds[kind].n;
}

woi_place woi_space_start(const woi_tune *t, woi_kind kind, bool wide)
{
    woi_place place = {.kind = kind};
    for (int i = 0; i < kinds[kind].n; i++) {
        const axis *a = &kinds[kind].axes[i];
        place.at[i] = wide ? a->wide : a->start;
        /* A row that stands for many queries has evidence of its own, which that of others would blur. */
        if (a->fix == WO_FIX_SPREAD && t->train.counts) place.at[i] = 0;
        if (place.at[i] != BY_SIZE) continue;
        place.at[i] = 0;
        while (place.at[i] + 1 < a->n && t->train.n / a->values[place.at[i]] > MANY_LEAVES) place.at[i]++;
    }
    return place;
}

bool woi_space_step(const wo_tune_options *o, woi_place *place, int axis_number, int step)
{
    const axis *a = &kinds[place->kind].axes[axis_number];
    const int to = place->at[axis_number] + step;
    if (o->fixed & a->fix || to < 0 || to >= a->n) return false;
    place->at[axis_number] = to;
    return true;
}

static bool step_all(const wo_tune_options *o, woi_place *place, unsigned fix, int step)
{
    bool moved = false;
    for (int i = 0; i < kinds[place->kind].n; i++)
        if (kinds[place->kind].axes[i].fix & fix) moved |= woi_space_step(o, place, i, step);
    return moved;
}

bool woi_space_widen(const wo_tune_options *o, woi_place *place)
{
    return step_all(o, place, WO_FIX_PROBES | WO_FIX_BEAM, 1);
}

bool woi_space_narrow(const wo_tune_options *o, woi_place *place)
{
    return step_all(o, place, WO_FIX_PROBES | WO_FIX_BEAM | WO_FIX_ROUTE_D, -1);
}

/* Whether the precision of rows is left to choose. Then it is bf16 first: half the bytes are read, which counts most
 * when others fill the machine's caches. Where that does not do, many classes are needed: int8 finds the best of them,
 * f32 scores these exactly. */
static bool has_precision(const woi_tune *t)
{
    return !(t->o.fixed & WO_FIX_WEIGHTS) && t->build.weights != WO_WEIGHTS_NONE;
}

static const wo_weights precisions[] = {WO_WEIGHTS_BF16, WO_WEIGHTS_INT8, WO_WEIGHTS_F32};

void woi_space_begin(woi_tune *t)
{
    t->no_bf16 = woi_small_check(&t->layer->dense, NULL) != WO_OK;
    if (t->no_bf16) woi_space_refine(t);
}

bool woi_space_refine(woi_tune *t)
{
    if (!has_precision(t) || precisions[t->refined] == WO_WEIGHTS_F32) return false;
    t->refined++;
    if (precisions[t->refined] == WO_WEIGHTS_INT8 && t->layer->dense.d > WOI_MAX_I8) t->refined++;
    return true;
}

wo_build_options woi_space_of_method(const woi_tune *t, wo_method method)
{
    const wo_build_options *given = &t->build;
    wo_build_options o = *given;
    if (method != given->method) {
        o = woi_build_defaults(method);
        o.source = given->source;
        o.source_k = given->source_k;
        o.thin = given->thin;
        o.weights = given->weights;
        o.seed = given->seed;
        if (given->method == WO_METHOD_EVIDENCE || given->method == WO_METHOD_POPULAR) o.keep = given->keep;
    }
    const bool exact = method == WO_METHOD_FULL || method == WO_METHOD_SCREEN;
    if (exact && o.weights != WO_WEIGHTS_NONE) o.weights = WO_WEIGHTS_F32; /* as it answers with */
    o.threads = t->threads;
    o.progress = t->progress;
    return o;
}

wo_build_options woi_space_options(const woi_tune *t, const woi_place *place)
{
    const wo_method given = t->build.method;
    const wo_method method = place->kind == WOI_FULL      ? WO_METHOD_FULL
                             : place->kind == WOI_SCREEN  ? WO_METHOD_SCREEN
                             : place->kind == WOI_POPULAR ? WO_METHOD_POPULAR
                             : place->kind == WOI_TABLES  ? given
                                                          : WO_METHOD_EVIDENCE;
    wo_build_options o = woi_space_of_method(t, method);
    if (place->kind == WOI_TREE || place->kind == WOI_LABELS) o.router = WO_ROUTER_TREE;
    if (place->kind == WOI_LABELS) {
        o.source = WO_SOURCE_LABELS;
        o.lambda = 0;
        o.thin = 0;
        o.fallback = t->o.fixed & WO_FIX_FALLBACK ? o.fallback : 0;
    } else if (method == WO_METHOD_EVIDENCE && !(t->o.fixed & WO_FIX_PRIOR)) {
        o.prior = o.focus = 0;
    }
    if (place->kind == WOI_HASH) o.router = WO_ROUTER_HASH;
    if ((place->kind == WOI_TREE || place->kind == WOI_HASH) && t->top_alone) o.source = WO_SOURCE_TOP;
    const double *best = t->best < t->n_rows ? woi_row(t, t->best) : NULL;
    if (method == WO_METHOD_EVIDENCE && has_precision(t)) {
        o.weights = precisions[t->refined];
        if (best && best[WOI_CURVE_METHOD] == method) o.weights = (wo_weights)best[WOI_CURVE_WEIGHTS];
    }
    const uint32_t d = (uint32_t)t->train.d;
    uint32_t queries_a_leaf = 0;
    for (int i = 0; i < kinds[place->kind].n; i++) {
        const axis *a = &kinds[place->kind].axes[i];
        const uint32_t value = a->values[place->at[i]];
        if (!(t->o.fixed & a->fix)) switch (a->fix) {
            case WO_FIX_PROBES: o.probes = value; break;
            case WO_FIX_K: o.K = value; break;
            case WO_FIX_L: o.L = value; break;
            case WO_FIX_BEAM: o.beam = value; break;
            case WO_FIX_SPREAD: o.spread = value; break;
            case WO_FIX_ROUTE_D: o.route_d = value < d ? value : d; break;
            case WO_FIX_TREE: queries_a_leaf = value; break;
            default: break;
            }
    }
    if (queries_a_leaf) {
        o.nodes = o.leaves = 0;
        woi_tree_fan_outs(t->train.n, queries_a_leaf, &o.nodes, &o.leaves);
    }
    if (woi_uses_hash(&o) && o.probes > 1U << o.K) o.probes = 1U << o.K; /* a fixed K may be small */
    return o;
}
