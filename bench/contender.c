/* Building and searching, ours and theirs. */
#include "contender.h"

#include "../cli/cli.h"

#include <math.h>
#include <string.h>

static wo_status build_ours(bench_contender *c, int threads, const wo_progress *progress, wo_error *err)
{
    wo_build_options o = c->config->options.build;
    o.threads = threads;
    o.progress = *progress;
    if (o.method != WO_METHOD_FULL && o.method != WO_METHOD_SLIDE && o.method != WO_METHOD_SCREEN && !c->data->train)
        return cli_set_error(err, WO_ERR_UNSUPPORTED, "there is no training log to learn from");
    wo_status status = wo_index_build(c->data->layer, c->data->train, &o, &c->index, err);
    if (status) return status;
    wo_index_info info = {.struct_size = sizeof info};
    wo_index_describe(c->index, &info);
    c->index_bytes = info.index_bytes;
    return WO_OK;
}

/* Chosen on the validation log: queries that the network was trained on flatter every index. */
static wo_status build_tuned(bench_contender *c, int threads, const wo_progress *progress, wo_error *err)
{
    const bench_options *given = &c->config->options;
    wo_build_options build;
    wo_build_defaults(WO_METHOD_EVIDENCE, &build, sizeof build);
    build.seed = given->build.seed;
    build.threads = threads;
    build.progress = *progress;
    wo_tune_options o;
    wo_tune_defaults(&o, sizeof o);
    o.build = &build;
    o.target = given->target;
    if (o.target5 > o.target) o.target5 = o.target; /* as 'wideout build' does */
    o.batch = given->tune_batch;
    o.max_time_s = given->seconds;
    o.k = BENCH_K;
    if (!c->data->train) return cli_set_error(err, WO_ERR_UNSUPPORTED, "there is no training log to learn from");
    if (!c->data->valid) return cli_set_error(err, WO_ERR_UNSUPPORTED, "there is no validation log to tune on");
    wo_status status = wo_index_tune(c->data->layer, c->data->train, c->data->valid, &o, &c->index, err);
    if (status) return status;
    wo_index_info info = {.struct_size = sizeof info};
    wo_curve curve = {.struct_size = sizeof curve};
    wo_index_describe(c->index, &info);
    c->index_bytes = info.index_bytes;
    const bool by_full = info.full_from && o.batch >= info.full_from && (!info.full_to || o.batch <= info.full_to);
    if (info.full_from > 1 && !by_full) c->most_at_once = info.full_from - 1;
    if (wo_index_curve(c->index, &curve)) wo_curve_text(&curve, curve.chosen, c->chosen, sizeof c->chosen);
    return WO_OK;
}

static wo_status build_peer(bench_contender *c, int threads, wo_error *err)
{
    const bench_options *o = &c->config->options;
    const woi_dense *rows = c->data->rows;
    const peer_kind kind = (peer_kind)c->config->method->which;
    char error[PEER_ERROR_BYTES];
    peer_options po;
    if (peer_missing(kind)) return cli_set_error(err, WO_ERR_UNSUPPORTED, "%s", peer_missing(kind));
    peer_defaults(kind, rows->m, rows->d, &po);
    if (o->links) po.links = o->links;
    if (o->ef_construction) po.ef_construction = o->ef_construction;
    if (o->list_factor) po.n_lists = (size_t)fmin((double)rows->m, o->list_factor * sqrt((double)rows->m));
    if (o->part) po.pq_parts = (rows->d + o->part - 1) / o->part;
    if (o->metric) po.l2 = o->metric == 2;
    po.threads = threads;
    const peer_layer layer = {.w = rows->w, .b = rows->b, .m = rows->m, .d = rows->d};
    if (peer_build(kind, &layer, &po, &c->peer, error)) return cli_set_error(err, WO_ERR_UNSUPPORTED, "%s", error);
    c->index_bytes = peer_bytes(c->peer);
    return WO_OK;
}

wo_status bench_contender_build(const bench_config *config, const bench_data *data, int threads,
                                const wo_progress *progress, bench_contender *contender, wo_error *err)
{
    bench_contender c = {.config = config, .data = data};
    const double start = woi_now_s();
    wo_status status = config->method->kind == BENCH_OURS    ? build_ours(&c, threads, progress, err)
                       : config->method->kind == BENCH_TUNED ? build_tuned(&c, threads, progress, err)
                       : config->method->kind == BENCH_PEER  ? build_peer(&c, threads, err)
                                                             : bench_torch_start(data, &c.torch, err);
    c.build_s = woi_now_s() - start;
    if (status)
        bench_contender_free(&c);
    else
        *contender = c;
    return status;
}

void bench_contender_turn(bench_contender *contender, const bench_config *config)
{
    contender->config = config;
    wo_searcher_free(contender->searcher); /* it may have other probes */
    contender->searcher = NULL;
}

void bench_contender_free(bench_contender *c)
{
    wo_searcher_free(c->searcher);
    wo_index_free(c->index);
    peer_free(c->peer);
    bench_torch_stop(c->torch);
    *c = (bench_contender){0};
}

wo_status bench_contender_prepare(bench_contender *c, int threads, wo_error *err)
{
    if (!c->index || (c->searcher && c->searcher_threads == threads)) return WO_OK;
    const wo_searcher_options so = {
        .struct_size = sizeof so, .threads = threads, .max_probes = c->config->options.build.probes};
    c->searcher_threads = threads;
    wo_searcher_free(c->searcher);
    c->searcher = NULL;
    return wo_searcher_create(c->index, &so, &c->searcher, err);
}

wo_status bench_contender_ask(bench_contender *c, wo_search_call call, wo_error *err)
{
    call.struct_size = sizeof call;
    call.probes = c->config->options.build.probes;
    return wo_search_run(c->searcher, &call, err);
}

wo_status bench_contender_search(bench_contender *c, const bench_call *call, bench_took *took, wo_error *err)
{
    if (c->torch) return bench_torch_search(c->torch, call, took, err);
    const float *q = c->data->judged.queries + call->first * c->data->rows->d;
    const wo_search_call ours = {.queries = q, .n = call->n, .k = call->k, .ids = call->ids, .scores = call->scores};
    const peer_batch theirs = {.q = q,
                               .n = call->n,
                               .k = call->k,
                               .dial = c->config->options.dial,
                               .threads = call->threads,
                               .ids = call->ids,
                               .scores = call->scores};
    char error[PEER_ERROR_BYTES];
    wo_status status = WO_OK;
    const double cpu = woi_cpu_s(), wall = woi_now_s(); /* the former is slow to read */
    if (c->index)
        status = bench_contender_ask(c, ours, err);
    else if (peer_search(c->peer, &theirs, error))
        status = cli_set_error(err, WO_ERR_UNSUPPORTED, "%s", error);
    took->wall_s = woi_now_s() - wall;
    took->cpu_s = woi_cpu_s() - cpu;
    return status;
}
