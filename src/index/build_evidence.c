/* The stages of an evidence index: see build_evidence.h. */
#include "index/build_evidence.h"

#include "base/error.h"
#include "route/mix.h"

enum {
    NEAR = 32,           /* leaves that a thin one may borrow from */
    QUERIES_A_LEAF = 40, /* where the number of leaves follows from the data */
};

void woi_routed_free(woi_routed *routed)
{
    woi_free(routed->of);
    woi_free(routed->filed);
    woi_free(routed->near);
    *routed = (woi_routed){0};
}

static wo_status learn_tree(const wo_log *log, wo_index *index, woi_routed *routed, wo_error *err)
{
    wo_build_options *o = &index->options;
    if (o->route_d < log->d && o->route_d % 16)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "route_d", "route_d is %u, expected a multiple of 16, or all %zu",
                               o->route_d, log->d);
    woi_tree_options tree = {.r = o->route_d ? o->route_d : 32,
                             .nodes = o->nodes,
                             .leaves = o->leaves,
                             .beam = o->beam,
                             .rounds = 10,
                             .refine = 4,
                             .seed = o->seed,
                             .threads = o->threads,
                             .progress = &o->progress};
    woi_tree_fan_outs(log->n, QUERIES_A_LEAF, &tree.nodes, &tree.leaves);
    wo_status status = woi_tree_learn(log->queries, log->n, log->d, &tree, &index->tree, err);
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
        woi_free(routed->filed);
        routed->filed = NULL;
        routed->each = each;
        routed->of = woi_alloc(log->n, each * sizeof *routed->of, err);
        if (!routed->of || (each > 1 && !(routed->filed = woi_alloc(log->n, each * sizeof *routed->filed, err))))
            return WO_ERR_MEMORY;
        const woi_filing filing = {.each = each, .cells = routed->of, .weights = routed->filed};
        status = woi_tree_file(tree, log->queries, log->n, threads, &filing, err);
    }
    return status ? status : woi_tree_learn_margin(tree, log->queries, log->n, to->probes, threads, err);
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
                                 .threads = o->threads};
    wo_status status = woi_hash_create(o->K, o->L, log->d, false, &index->hash, err);
    if (!status) status = woi_mix_learn(log->queries, needs, &mix, &o->progress, &index->hash, err);
    routed->each = o->L;
    if (!status && !(routed->of = woi_alloc(log->n, o->L * sizeof *routed->of, err))) status = WO_ERR_MEMORY;
    if (!status) status = woi_hash_queries(&index->hash, log->queries, log->n, o->threads, routed->of, err);
    return status;
}

wo_status woi_evidence_route(const wo_log *log, const woi_sparse *needs, wo_index *index, woi_routed *routed,
                             wo_error *err)
{
    *routed = (woi_routed){0};
    const wo_status status = woi_uses_tree(&index->options) ? learn_tree(log, index, routed, err)
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

wo_status woi_evidence_fill(const woi_sparse *needs, const woi_routed *routed, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const bool tree = woi_uses_tree(o);
    const woi_evidence_options fill = {.K = tree ? 0 : o->K,
                                       .L = routed->each,
                                       .n_cells = woi_tree_n_cells(&index->tree),
                                       .near = routed->near,
                                       .n_near = NEAR,
                                       .filed = routed->filed,
                                       .lambda = o->lambda,
                                       .thin = o->thin,
                                       .floor = 1,
                                       .cap = o->cap,
                                       .shares = o->prior > 0,
                                       .threads = o->threads,
                                       .progress = &o->progress};
    woi_cells_free(&index->cells);
    const wo_status status = woi_fill_evidence(needs, routed->of, &fill, index->rows.m, &index->cells, err);
    return status ? status : make_screen(index, err);
}

wo_status woi_build_evidence(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    woi_routed routed;
    woi_sparse needs;
    wo_status status = woi_needs_of(&(woi_needs_call){.rows = &layer->dense,
                                                      .log = log,
                                                      .source = o->source,
                                                      .k = o->source_k,
                                                      .threads = o->threads,
                                                      .progress = &o->progress},
                                    &needs, err);
    if (status) return status;
    status = woi_evidence_route(log, &needs, index, &routed, err);
    if (!status) {
        status = woi_evidence_fill(&needs, &routed, index, err);
        woi_routed_free(&routed);
    }
    woi_sparse_free(&needs);
    return status;
}
