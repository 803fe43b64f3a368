/* The stages of an evidence index: see build_evidence.h. */
#include "build/build_evidence.h"

#include "base/error.h"
#include "base/finite.h"
#include "base/rng.h"
#include "build/findings.h"
#include "build/held.h"
#include "build/mixture_learn.h"
#include "index/together.h"
#include "route/mix.h"

#include <math.h>
#include <string.h>

enum {
    NEAR = 32,               /* leaves that a thin one may borrow from */
    QUERIES_A_LEAF = 40,     /* where the number of leaves follows from the data */
    HELD_OUT = 10,           /* every tenth query is one that a mixture is chosen by, */
    MOST_HELD = 10000,       /* or so many of them */
    STREAM_MIX = 0x6d697874, /* of the seed */
};

void woi_routed_free(woi_routed *routed)
{
    woi_free(routed->of);
    woi_free(routed->near);
    woi_expected_free(&routed->expected);
    woi_placed_free(&routed->placed);
    *routed = (woi_routed){0};
}

wo_status woi_route_d_check(const wo_build_options *o, size_t d, wo_error *err)
{
    if (!woi_uses_tree(o) || o->route_d >= d || o->route_d % 16 == 0) return WO_OK;
    return woi_fail_option(err, WO_ERR_ARGUMENT, "route_d", "route_d is %u, expected a multiple of 16, or all %zu",
                           o->route_d, d);
}

static wo_status recall_router(wo_index *index, bool *known, wo_error *err)
{
    woi_piece pieces[WOI_ROUTER_PIECES];
    const size_t n = woi_router_pieces(index, pieces);
    return woi_findings_recall(index->findings, pieces, n, known, err);
}

static wo_status keep_router(const wo_index *index, wo_error *err)
{
    woi_piece pieces[WOI_ROUTER_PIECES];
    const size_t n = woi_router_pieces(index, pieces);
    return woi_findings_keep(index->findings, pieces, n, err);
}

/* Centres are means of directions, whose lengths are 1 but for rounding: their scales and |c|^2 / 2 are below this. */
static const float FAR = 2;
/* Points of rows may lie anywhere: this much leaves products with them finite. */
static const float FAR_OF_ROWS = 1e30F;

static bool are_scales(const float *x, size_t n, float far)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && x[i] <= far)) return false;
    return true;
}

/* Whether these are offsets of n centres, some of which are used, or none. */
static bool are_offsets(const float *x, size_t n, float far, bool some)
{
    bool used = false;
    for (size_t i = 0; i < n; i++) {
        if (x[i] == -INFINITY) continue;
        if (!(x[i] >= -far && x[i] <= 0)) return false;
        used = true;
    }
    return used == some;
}

/* Whether a recalled tree could have been learned: then a node is used where a leaf below it is, and each
 * query of the log finds one. */
static bool is_learned(const woi_tree *tree, float far)
{
    if (!are_scales(tree->basis_scales, tree->basis ? tree->r : 0, FAR) ||
        !are_scales(tree->node_scales, tree->A, far) || !are_scales(tree->leaf_scales, woi_tree_n_cells(tree), far) ||
        !are_offsets(tree->node_offsets, tree->A, far, true))
        return false;
    for (size_t a = 0; a < tree->A; a++) {
        const uint32_t start = tree->starts[a];
        const bool used = tree->node_offsets[a] != -INFINITY;
        if (!are_offsets(tree->leaf_offsets + start, tree->starts[a + 1] - start, far, used)) return false;
    }
    return true;
}

static wo_status recall_tree(const woi_tree_options *o, size_t d, wo_index *index, bool *known, wo_error *err)
{
    woi_tree *tree = &index->tree;
    if (!woi_findings_has(index->findings)) return WO_OK;
    wo_status status = woi_tree_begin(o, d, tree, err);
    const woi_piece starts = {tree->starts, ((size_t)tree->A + 1) * sizeof *tree->starts};
    const size_t leaf = 4 * woi_tree_fours(tree) + 2 * sizeof(float);
    uint64_t bytes = 0;
    if (!status) status = woi_findings_peek(index->findings, &starts, &bytes, err);
    if (!status && (woi_tree_check_starts(tree, NULL) || woi_tree_n_cells(tree) > bytes / leaf))
        status = woi_findings_damaged(index->findings, err);
    if (!status) status = woi_tree_room(tree, err);
    if (!status) status = recall_router(index, known, err);
    if (!status && !is_learned(tree, index->options.rows ? FAR_OF_ROWS : FAR))
        status = woi_findings_damaged(index->findings, err);
    return status ? status : woi_tree_count_leaves(tree, err);
}

/* With rows only the axes are the queries': leaves are learned from the points of rows, which a tree that was recalled
 * gives once more. */
static wo_status make_tree(const wo_log *log, const woi_sparse *needs, const woi_tree_options *options, wo_index *index,
                           woi_routed *routed, wo_error *err)
{
    const bool rows = index->options.rows;
    bool known = false;
    wo_status status = recall_tree(options, log->d, index, &known, err);
    if (!status && !known)
        status = (rows ? woi_tree_find_axes : woi_tree_learn)(log->queries, log->n, log->d, options, &index->tree, err);
    if (!status && rows) status = woi_expected_learn(index, log, needs, &routed->expected, err);
    if (!status && rows && !known) status = woi_rows_learn(index, &routed->expected, options, err);
    return status || known ? status : keep_router(index, err);
}

static wo_status learn_tree(const wo_log *log, const woi_sparse *needs, wo_index *index, woi_routed *routed,
                            wo_error *err)
{
    wo_build_options *o = &index->options;
    woi_tree_options tree = {.r = o->route_d ? o->route_d : 32,
                             .nodes = o->nodes,
                             .leaves = o->leaves,
                             .beam = o->beam,
                             .rounds = 10,
                             .refine = 4,
                             .seed = o->seed,
                             .threads = o->threads,
                             .progress = &o->progress,
                             .together = o->together};
    if (o->rows) { /* flat, since nodes that are too few lose clusters; cells of as many classes as there are cells */
        const double m = (double)woi_shard_whole(&index->shard, index->rows.m);
        if (!tree.nodes) tree.nodes = 1;
        if (!tree.leaves) tree.leaves = (uint32_t)fmin(fmax(sqrt(m) / tree.nodes, 1), WOI_MAX_FAN);
    }
    woi_tree_fan_outs(log->n, QUERIES_A_LEAF, &tree.nodes, &tree.leaves);
    wo_status status = make_tree(log, needs, &tree, index, routed, err);
    if (status) return status;
    o->nodes = tree.nodes; /* what was chosen */
    o->leaves = tree.leaves;
    o->route_d = (uint32_t)index->tree.r;
    routed->near = woi_alloc(woi_tree_n_cells(&index->tree), NEAR * sizeof *routed->near, err);
    if (!routed->near) return WO_ERR_MEMORY;
    status = woi_evidence_set_reach(log, o, index, routed, err);
    return status ? status : woi_tree_neighbours(&index->tree, NEAR, o->threads, routed->near, err);
}

wo_status woi_evidence_set_reach(const wo_log *log, const wo_build_options *to, wo_index *index, woi_routed *routed,
                                 wo_error *err)
{
    woi_tree *tree = &index->tree;
    const int threads = index->options.threads;
    const uint32_t each = 1 + to->spread;
    const bool moved = !routed->of || tree->beam != to->beam || routed->each != each; /* probes do not matter here */
    index->options.beam = tree->beam = to->beam;
    index->options.probes = to->probes;
    index->options.spread = to->spread;
    wo_status status = WO_OK;
    if (moved) {
        woi_free(routed->of);
        routed->each = each;
        if (!(routed->of = woi_alloc(log->n, each * sizeof *routed->of, err))) return WO_ERR_MEMORY;
        const woi_filing filing = {.each = each, .cells = routed->of};
        status = woi_tree_file(tree, log->queries, log->n, threads, &filing, err);
        if (!status && routed->expected.d) status = woi_rows_place(index, &routed->expected, &routed->placed, err);
    }
    return status ? status : woi_tree_learn_margin(tree, log->queries, log->n, to->probes, threads, err);
}

static bool is_finite(const woi_hash *hash)
{
    return woi_all_finite(hash->planes, hash->d * hash->n_planes) && woi_all_finite(hash->offsets, hash->n_planes);
}

static wo_status learn_hash(const wo_log *log, const woi_sparse *needs, wo_index *index, woi_routed *routed,
                            wo_error *err)
{
    const wo_build_options *o = &index->options;
    const woi_mix_options mix = {.steps = o->learner == WO_LEARNER_NONE ? 0 : o->iterations,
                                 .batch = o->batch,
                                 .rate = o->rate,
                                 .max_queries = 50000,
                                 .seed = o->seed,
                                 .threads = o->threads,
                                 .together = o->together};
    bool known = false;
    wo_status status = woi_hash_create(o->K, o->L, log->d, false, &index->hash, err);
    if (!status) status = recall_router(index, &known, err);
    if (!status && known && !is_finite(&index->hash)) status = woi_findings_damaged(index->findings, err);
    if (!status && !known) status = woi_mix_learn(log->queries, needs, &mix, &o->progress, &index->hash, err);
    if (!status && !known) status = keep_router(index, err);
    routed->each = o->L;
    if (!status && !(routed->of = woi_alloc(log->n, o->L * sizeof *routed->of, err))) status = WO_ERR_MEMORY;
    if (!status) status = woi_hash_queries(&index->hash, log->queries, log->n, o->threads, routed->of, err);
    return status;
}

wo_status woi_evidence_route(const wo_log *log, const woi_sparse *needs, wo_index *index, woi_routed *routed,
                             wo_error *err)
{
    *routed = (woi_routed){0};
    const wo_status status = woi_uses_tree(&index->options) ? learn_tree(log, needs, index, routed, err)
                                                            : learn_hash(log, needs, index, routed, err);
    if (status) woi_routed_free(routed);
    return status;
}

/* The screen of queries that know little, where it is asked for. */
static wo_status make_screen(wo_index *index, wo_error *err)
{
    const bool wanted = woi_screens_little(&index->options);
    if (!wanted) woi_screen_free(&index->screen);
    if (!wanted || index->screen.rows) return WO_OK;
    const wo_status status = woi_screen_make(&index->rows, index->options.threads, &index->screen, err);
    if (status == WO_ERR_ARGUMENT) woi_error_option(err, WO_ABOUT_OPTION, "fallback_by");
    return status;
}

void woi_evidence_parts(float *parts)
{
    for (uint32_t r = 0; r < WOI_MOST_FILED; r++) parts[r] = 1 / sqrtf((float)(r + 1));
}

/* Cells of the whole layer's classes become those of the rows here, and rows join them. */
static wo_status join_rows(const woi_routed *routed, wo_index *index, wo_error *err)
{
    woi_cells *cells = &index->cells;
    uint32_t *whole = woi_alloc(cells->n, sizeof *whole, err);
    if (!whole) return WO_ERR_MEMORY;
    for (size_t c = 0; c < cells->n; c++) whole[c] = cells->offsets[c + 1] - cells->offsets[c];
    woi_shard_cells(&index->shard, index->rows.m, cells);
    const woi_joined call = {index->rows.m, &index->options, &index->shard, whole};
    const wo_status status = woi_rows_join(&routed->placed, &call, cells, err);
    woi_free(whole);
    return status;
}

wo_status woi_evidence_fill(woi_evidence by, const woi_routed *routed, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const bool tree = woi_uses_tree(o);
    float parts[WOI_MOST_FILED];
    woi_evidence_parts(parts);
    const woi_evidence_options fill = {.K = tree ? 0 : o->K,
                                       .L = routed->each,
                                       .n_cells = woi_tree_n_cells(&index->tree),
                                       .near = routed->near,
                                       .n_near = NEAR,
                                       .parts = tree && routed->each > 1 ? parts : NULL,
                                       .lambda = o->lambda,
                                       .thin = o->thin,
                                       .floor = 1,
                                       .cap = o->cap,
                                       .shares = woi_has_shares(o) || woi_lacks_mix(o),
                                       .shares_of = by.labels,
                                       .threads = o->threads,
                                       .progress = &o->progress};
    woi_cells_free(&index->cells);
    const size_t m = index->rows.m, whole = woi_shard_whole(&index->shard, m);
    wo_status status = woi_fill_evidence(by.needs, routed->of, &fill, whole, &index->cells, err);
    if (!status && routed->placed.each)
        status = join_rows(routed, index, err);
    else if (!status)
        woi_shard_cells(&index->shard, m, &index->cells);
    return status ? status : make_screen(index, err);
}

/* Queries whose needs fill no cell meanwhile. */
typedef struct hidden {
    size_t n;
    size_t *picks; /* (n): borrowed */
    uint32_t *own; /* (n, each): the cells that they lie in */
} hidden;

static wo_status hide(hidden *held, woi_routed *routed, wo_error *err)
{
    const size_t each = routed->each;
    if (!(held->own = woi_alloc(held->n * each, sizeof *held->own, err))) return WO_ERR_MEMORY;
    for (size_t i = 0; i < held->n; i++) {
        uint32_t *of = routed->of + held->picks[i] * each;
        memcpy(held->own + i * each, of, each * sizeof *of);
        for (size_t c = 0; c < each; c++) of[c] = UINT32_MAX;
    }
    return WO_OK;
}

static void show(hidden *held, woi_routed *routed)
{
    const size_t each = routed->each;
    for (size_t i = 0; held->own && i < held->n; i++)
        memcpy(routed->of + held->picks[i] * each, held->own + i * each, each * sizeof *held->own);
    woi_free(held->own);
}

/* Cells of the others; the index can then be searched. */
static wo_status fill_without(hidden *held, woi_evidence by, woi_routed *routed, wo_index *index, wo_error *err)
{
    wo_status status = hide(held, routed, err);
    if (!status) status = woi_evidence_fill(by, routed, index, err);
    woi_index_count(index);
    show(held, routed);
    return status;
}

wo_status woi_evidence_choose_mix(const wo_log *log, woi_evidence by, woi_routed *routed, wo_index *index,
                                  wo_error *err)
{
    wo_build_options *o = &index->options;
    const size_t n = log->n / HELD_OUT < MOST_HELD ? log->n / HELD_OUT : MOST_HELD;
    if (!woi_lacks_mix(o)) return WO_OK;
    if (!log->indptr || !n) {
        o->mix = 0;
        return WO_OK;
    }
    double mix = 0;
    hidden held = {.n = n, .picks = woi_held_pick(index, log, n, STREAM_MIX, err)};
    wo_status status = held.picks ? fill_without(&held, by, routed, index, err) : WO_ERR_MEMORY;
    if (!status) {
        const woi_mixture_call call = {
            .log = log, .picks = held.picks, .n = n, .threads = o->threads, .progress = &o->progress};
        status = woi_mixture_choose(index, &call, &mix, err);
    }
    o->mix = mix;
    woi_free(held.picks);
    return status;
}

/* What the others' cells are worth on some queries, where that is asked for. The cells are to be filled again. */
static wo_status judge(const wo_log *log, woi_evidence by, woi_routed *routed, wo_index *index, wo_error *err)
{
    hidden held = {.n = woi_held_size(index, log, &index->options)};
    if (!held.n) return WO_OK;
    held.picks = woi_held_pick(index, log, held.n, WOI_HELD_STREAM, err);
    wo_status status = held.picks ? fill_without(&held, by, routed, index, err) : WO_ERR_MEMORY;
    if (!status) status = woi_held_judge(index, log, held.picks, held.n, index->options.threads, err);
    woi_free(held.picks);
    return status;
}

wo_status woi_needs_by(const wo_index *index, const wo_layer *layer, const wo_log *log, wo_source source,
                       woi_sparse *needs, wo_error *err)
{
    const wo_build_options *o = &index->options;
    return woi_needs_of(&(woi_needs_call){.rows = &layer->dense,
                                          .log = log,
                                          .source = source,
                                          .k = o->source_k,
                                          .threads = o->threads,
                                          .progress = &o->progress,
                                          .shard = &layer->shard,
                                          .together = o->together,
                                          .findings = index->findings},
                        needs, err);
}

wo_status woi_build_evidence(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    woi_routed routed = {0};
    woi_sparse needs = {0}, labels = {0};
    wo_status status = woi_needs_by(index, layer, log, o->source, &needs, err);
    const bool apart = woi_labels_are_apart(o, log);
    if (!status && apart) status = woi_needs_by(index, layer, log, WO_SOURCE_LABELS, &labels, err);
    const woi_evidence by = {&needs, apart ? &labels : &needs};
    if (!status) status = woi_evidence_route(log, &needs, index, &routed, err);
    if (!status) status = woi_evidence_choose_mix(log, by, &routed, index, err);
    if (!status) status = judge(log, by, &routed, index, err);
    if (!status) status = woi_evidence_fill(by, &routed, index, err);
    woi_routed_free(&routed);
    woi_sparse_free(&needs);
    woi_sparse_free(&labels);
    return status;
}
