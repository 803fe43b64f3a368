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
    routed->of = woi_alloc(log->n, sizeof *routed->of, err);
    routed->near = woi_alloc(woi_tree_n_cells(&index->tree), NEAR * sizeof *routed->near, err);
    if (!routed->of || !routed->near) return WO_ERR_MEMORY;
    status = woi_tree_queries(&index->tree, log->queries, log->n, o->threads, routed->of, err);
    if (!status) status = woi_evidence_set_reach(log, o->beam, o->probes, index, routed, err);
    return status ? status : woi_tree_neighbours(&index->tree, NEAR, o->threads, routed->near, err);
}

wo_status woi_evidence_set_reach(const wo_log *log, uint32_t beam, uint32_t probes, wo_index *index, woi_routed *routed,
                                 wo_error *err)
{
    woi_tree *tree = &index->tree;
    const int threads = index->options.threads;
    const bool moved = tree->beam != beam; /* their own leaf does not depend on the probes */
    index->options.beam = tree->beam = beam;
    index->options.probes = probes;
    const wo_status status = moved ? woi_tree_queries(tree, log->queries, log->n, threads, routed->of, err) : WO_OK;
    return status ? status : woi_tree_learn_margin(tree, log->queries, log->n, probes, threads, err);
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

wo_status woi_evidence_fill(const woi_sparse *needs, const woi_routed *routed, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    const bool tree = woi_uses_tree(o);
    const woi_evidence_options fill = {.K = tree ? 0 : o->K,
                                       .L = tree ? 1 : o->L,
                                       .n_cells = woi_tree_n_cells(&index->tree),
                                       .near = routed->near,
                                       .n_near = NEAR,
                                       .lambda = o->lambda,
                                       .thin = o->thin,
                                       .floor = 1,
                                       .cap = o->cap,
                                       .shares = o->prior > 0,
                                       .threads = o->threads,
                                       .progress = &o->progress};
    woi_cells_free(&index->cells);
    return woi_fill_evidence(needs, routed->of, &fill, index->rows.m, &index->cells, err);
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
