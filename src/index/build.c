/* Building an index: the options are checked, then each method joins its router and its fill. */
#include "index/index.h"

#include "base/error.h"
#include "base/hits.h"
#include "base/progress.h"
#include "base/sized.h"
#include "index/build_evidence.h"

#include <inttypes.h>
#include <math.h>

static const char *const method_names[] = {"full", "popular", "slide", "lss", "evidence"};
enum { N_METHODS = sizeof method_names / sizeof *method_names };

const char *woi_method_name(wo_method method)
{
    return (unsigned)method < N_METHODS ? method_names[method] : "unknown";
}

wo_build_options woi_build_defaults(wo_method method)
{
    wo_build_options o = {
        .struct_size = sizeof o,
        .method = method,
        .probes = 1,
        .n_popular = 500,
        .learner = WO_LEARNER_MIX,
        .source = WO_SOURCE_BOTH,
        .source_k = 5,
        .lambda = 0.1,
        .thin = 16,
        .loss = WO_LOSS_PAPER,
        .init = WO_INIT_RANDOM,
        .optimiser = WO_OPTIMISER_ADAM,
        .trace_points = 50,
        .weights = WO_WEIGHTS_F32,
        .seed = 1,
    };
    if (method == WO_METHOD_EVIDENCE) {
        o.K = 10;
        o.L = 4;
        o.beam = 2;
        o.iterations = 300;
        o.rate = 0.02;
        o.batch = 1024;
    } else if (method == WO_METHOD_LSS || method == WO_METHOD_SLIDE) {
        o.K = 4;
        o.L = 10;
        o.iterations = 1500;
        o.rate = 0.015;
        o.batch = 256;
    }
    return o;
}

void wo_build_defaults(wo_method method, wo_build_options *options, size_t options_bytes)
{
    const wo_build_options o = woi_build_defaults(method);
    woi_sized_defaults(options, options_bytes, &o, sizeof o);
}

wo_status woi_build_take(const wo_build_options *given, wo_build_options *options, wo_error *err)
{
    wo_method method = WO_METHOD_EVIDENCE;
    if (given && given->struct_size >= offsetof(wo_build_options, method) + sizeof method) method = given->method;
    *options = woi_build_defaults(method);
    const wo_status status = woi_sized_take(options, sizeof *options, given, "build options", err);
    return status ? status : woi_build_check(options, err);
}

/* ---- Checks ------------------------------------------------------------------------------------------------ */

wo_status woi_check_range(const char *name, double value, double low, double high, wo_error *err)
{
    if (value >= low && value <= high) return WO_OK;
    return woi_fail_option(err, WO_ERR_ARGUMENT, name, "%s is %.10g, expected %.10g to %.10g", name, value, low, high);
}

wo_status woi_build_check(const wo_build_options *o, wo_error *err)
{
    wo_status status;
    const bool hashed = woi_uses_hash(o);
    const bool learned = o->method == WO_METHOD_LSS || (hashed && o->method == WO_METHOD_EVIDENCE && o->learner);
    if ((unsigned)o->method >= N_METHODS)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "method", "%d is no method", (int)o->method);
    if (hashed) {
        if ((status = woi_check_range("K", o->K, 1, WOI_MAX_BITS, err)) ||
            (status = woi_check_range("L", o->L, 1, WOI_MAX_TABLES, err)) ||
            (status = woi_check_range("probes", o->probes, 1, WOI_MAX_PROBES, err)))
            return status;
        if (o->probes > 1U << o->K)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "probes", "%u probes are more than the %u cells of a table",
                                   o->probes, 1U << o->K);
        if ((uint64_t)o->L << o->K > (uint64_t)1 << 28)
            return woi_fail_option(err, WO_ERR_ARGUMENT, "L", "%u tables of %u cells are too many", o->L, 1U << o->K);
    }
    if (woi_uses_tree(o)) {
        if ((status = woi_check_range("probes", o->probes, 1, WOI_MAX_LEAVES, err)) ||
            (status = woi_check_range("nodes", o->nodes, 0, WOI_MAX_FAN, err)) ||
            (status = woi_check_range("leaves", o->leaves, 0, WOI_MAX_FAN, err)) ||
            (status = woi_check_range("beam", o->beam, 1, WOI_MAX_BEAM, err)))
            return status;
        if (o->nodes % 16 || o->leaves % 16)
            return woi_fail_option(err, WO_ERR_ARGUMENT, o->nodes % 16 ? "nodes" : "leaves",
                                   "%u nodes and %u leaves: expected multiples of 16", o->nodes, o->leaves);
    }
    if (learned && ((status = woi_check_range("iterations", o->iterations, 0, 1e7, err)) ||
                    (status = woi_check_range("rate", o->rate, 1e-9, 1e3, err)) ||
                    (status = woi_check_range("batch", o->batch, 1, 1 << 20, err))))
        return status;
    if (o->method == WO_METHOD_EVIDENCE && (status = woi_check_range("lambda", o->lambda, 0, 2, err))) return status;
    if ((o->method == WO_METHOD_EVIDENCE || o->method == WO_METHOD_POPULAR) &&
        (status = woi_check_range("source_k", o->source_k, 1, 1000, err)))
        return status;
    if (o->method == WO_METHOD_LSS && (status = woi_check_range("trace_points", o->trace_points, 0, 1e5, err)))
        return status;
    if (o->method != WO_METHOD_EVIDENCE && o->fallback)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "fallback", "fallback is %u, but method %s counts no evidence",
                               o->fallback, woi_method_name(o->method));
    /* Whatever the method: a file names them all. */
    if ((status = woi_check_range("source", o->source, WO_SOURCE_LABELS, WO_SOURCE_BOTH, err)) ||
        (status = woi_check_range("router", o->router, WO_ROUTER_HASH, WO_ROUTER_TREE, err)) ||
        (status = woi_check_range("learner", o->learner, WO_LEARNER_NONE, WO_LEARNER_MIX, err)) ||
        (status = woi_check_range("loss", o->loss, WO_LOSS_PAPER, WO_LOSS_MARGIN, err)) ||
        (status = woi_check_range("init", o->init, WO_INIT_RANDOM, WO_INIT_MEAN, err)) ||
        (status = woi_check_range("optimiser", o->optimiser, WO_OPTIMISER_ADAM, WO_OPTIMISER_SGD, err)) ||
        (status = woi_check_range("threads", o->threads, 0, WOI_MAX_THREADS, err)))
        return status;
    if (o->method == WO_METHOD_FULL && (o->weights == WO_WEIGHTS_BF16 || o->weights == WO_WEIGHTS_INT8))
        return woi_fail_option(err, WO_ERR_ARGUMENT, "weights", "method full answers with f32 rows, not with %s",
                               o->weights == WO_WEIGHTS_BF16 ? "bf16" : "int8");
    if (o->method == WO_METHOD_POPULAR && (status = woi_check_range("n_popular", o->n_popular, 1, INT32_MAX, err)))
        return status;
    return woi_check_range("weights", o->weights, WO_WEIGHTS_F32, WO_WEIGHTS_NONE, err);
}

wo_status woi_log_check(const wo_log *log, size_t m, size_t d, wo_error *err)
{
    if (log->d != d)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the log's queries have %zu numbers, the layer's rows %zu",
                        log->d, d);
    if (log->max_label >= (int64_t)m)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the log has label %" PRId64 ", the layer %zu classes",
                        log->max_label, m);
    return WO_OK;
}

wo_status woi_queries_check(const wo_log *log, wo_error *err)
{
    if (log->n == 0) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the log has no queries");
    for (size_t i = 0; i < log->n * log->d; i++)
        if (!isfinite(log->queries[i]))
            return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "query %zu of the log has %g at place %zu", i / log->d,
                            (double)log->queries[i], i % log->d);
    return WO_OK;
}

/* ---- Methods ----------------------------------------------------------------------------------------------- */

static wo_status build_popular(const wo_layer *layer, const wo_log *log, wo_index *index, wo_error *err)
{
    const wo_build_options *o = &index->options;
    /* The most frequent labels; without labels, what the exact layer answers most often. */
    woi_sparse needs;
    wo_status status = woi_needs_of(&layer->dense, log, log->indptr ? WO_SOURCE_LABELS : WO_SOURCE_TOP, o->source_k,
                                    o->threads, &o->progress, &needs, err);
    if (status) return status;
    status = woi_fill_popular(&needs, layer->dense.m, o->n_popular, &index->cells, err);
    woi_sparse_free(&needs);
    return status;
}

wo_status wo_index_build(const wo_layer *layer, const wo_log *log, const wo_build_options *given, wo_index **index,
                         wo_error *err)
{
    *index = NULL;
    wo_build_options taken;
    wo_status status = woi_build_take(given, &taken, err);
    if (status) return status;
    const wo_build_options *options = &taken;
    const bool needs_log = options->method != WO_METHOD_FULL && options->method != WO_METHOD_SLIDE;
    if (!log && needs_log)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_LOG, "",
                              "method %s is built from a log of queries, none was given",
                              woi_method_name(options->method));
    if (log && (status = woi_log_check(log, layer->dense.m, layer->dense.d, err)))
        return woi_about(err, WO_ABOUT_LOG, status);
    if (needs_log && (status = woi_queries_check(log, err))) return woi_about(err, WO_ABOUT_LOG, status);
    wo_index *made = woi_alloc_zero(1, sizeof *made, err);
    if (!made) return WO_ERR_MEMORY;
    made->options = *options;
    made->rows = layer->dense;
    made->layer_checksum = layer->checksum;
    status = woi_names_copy(&layer->labels, &made->labels, err);
    if (!status) switch (options->method) {
        case WO_METHOD_FULL: break;
        case WO_METHOD_POPULAR: status = build_popular(layer, log, made, err); break;
        case WO_METHOD_SLIDE: status = woi_build_slide(layer, made, err); break;
        case WO_METHOD_LSS: status = woi_build_lss(layer, log, made, err); break;
        case WO_METHOD_EVIDENCE: status = woi_build_evidence(layer, log, made, err); break;
        }
    if (!status) status = woi_small_make(&made->rows, options->weights, options->threads, &made->small, err);
    if (status) {
        wo_index_free(made);
        return status;
    }
    made->options.progress = (wo_progress){0};
    made->options.threads = 0;
    woi_index_measure(made);
    if ((status = woi_small_measure(made, log, err))) {
        wo_index_free(made);
        return status;
    }
    *index = made;
    return WO_OK;
}

wo_status woi_small_measure(wo_index *index, const wo_log *log, wo_error *err)
{
    enum { MOST = 2000, K = 5 };
    index->same_best = index->same_five = NAN;
    if ((!index->small.bf16 && !index->small.i8) || !index->rows.w || !log || !log->n) return WO_OK;
    wo_index own = *index, plain = *index; /* tables alone, and the same with f32 rows */
    own.full = plain.full = (woi_batches){0};
    plain.small = (woi_small){0};
    const wo_index *both[] = {&own, &plain};
    wo_searcher *searchers[2] = {NULL, NULL};
    wo_status status = WO_OK;
    for (int i = 0; !status && i < 2; i++) status = wo_searcher_create(both[i], NULL, &searchers[i], err);
    const size_t n = log->n < MOST ? log->n : MOST;
    size_t best = 0, five = 0, all = 0;
    for (size_t i = 0; !status && i < n; i++) {
        int32_t ids[2][K], sorted[K];
        float scores[K];
        for (int side = 0; !status && side < 2; side++)
            status = wo_search(searchers[side], log->queries + log->n * i / n * log->d, 1, K, ids[side], scores, err);
        if (status) break;
        best += ids[0][0] == ids[1][0];
        const woi_agreement a = woi_agree(ids[0], ids[1], K, sorted);
        five += a.common;
        all += a.all;
    }
    if (!status) index->same_best = (double)best / (double)n;
    if (!status && all) index->same_five = (double)five / (double)all;
    for (int i = 0; i < 2; i++) wo_searcher_free(searchers[i]);
    return status;
}

void woi_index_measure(wo_index *index)
{
    const woi_cells *cells = &index->cells;
    index->n_empty = index->largest = 0;
    for (size_t c = 0; c < cells->n; c++) {
        const uint32_t size = cells->offsets[c + 1] - cells->offsets[c];
        index->n_empty += size == 0;
        if (size > index->largest) index->largest = size;
    }
}

wo_status wo_index_describe(const wo_index *index, wo_index_info *info)
{
    const woi_cells *cells = &index->cells;
    const size_t planes = index->hash.n_planes * (index->hash.d + 1 + (index->hash.bias_planes != NULL));
    wo_index_info about = {
        .method = index->options.method,
        .method_name = woi_method_name(index->options.method),
        .m = index->rows.m,
        .d = index->rows.d,
        .n_cells = cells->n,
        .n_entries = cells->n ? cells->offsets[cells->n] : 0,
        .n_empty = index->n_empty,
        .largest = index->largest,
        .has_names = index->labels.n > 0,
        .full_from = index->full.from,
        .full_to = index->full.to,
        .same_best = index->same_best,
        .same_five = index->same_five,
    };
    const woi_tree *tree = &index->tree;
    const size_t centres = tree->A + tree->A * (size_t)tree->B;
    about.index_bytes = sizeof(float) * planes + centres * (4 * woi_tree_fours(tree) + 2 * sizeof(float));
    if (tree->basis) about.index_bytes += tree->r * ((tree->d + 3) / 4 * 4 + sizeof(float));
    if (cells->n) about.index_bytes += sizeof *cells->offsets * (cells->n + 1) + sizeof *cells->ids * about.n_entries;
    if (cells->queries) about.index_bytes += sizeof *cells->queries * cells->n;
    return woi_sized_give(info, &about, sizeof about);
}

wo_status wo_index_options(const wo_index *index, wo_build_options *options)
{
    return woi_sized_give(options, &index->options, sizeof index->options);
}

size_t wo_index_m(const wo_index *index)
{
    return index->rows.m;
}

size_t wo_index_d(const wo_index *index)
{
    return index->rows.d;
}

const char *wo_index_label(const wo_index *index, int32_t id, size_t *name_bytes)
{
    if (id < 0 || id >= index->labels.n) return NULL;
    *name_bytes = woi_names_bytes(&index->labels, id);
    return woi_names_get(&index->labels, id);
}

const char *const woi_trace_names[WOI_TRACE_COLUMNS] = {"step",        "loss",         "cp_positive",
                                                        "cp_negative", "sample_size",  "label_recall",
                                                        "empty_cells", "largest_cell", "entropy"};

int wo_index_trace(const wo_index *index, wo_trace *trace)
{
    if (!index->n_trace) return 0;
    const wo_trace found = {sizeof found, index->n_trace, WOI_TRACE_COLUMNS, index->trace, woi_trace_names};
    return woi_sized_give(trace, &found, sizeof found) == WO_OK;
}

void wo_index_free(wo_index *index)
{
    if (!index) return;
    if (index->st) { /* all else lies in the mapped file */
        woi_free(index->tree.n_leaves);
    } else {
        woi_hash_free(&index->hash);
        woi_tree_free(&index->tree);
        woi_cells_free(&index->cells);
        woi_free(index->trace);
        woi_free(index->curve);
        woi_small_free(&index->small);
    }
    woi_names_free(&index->labels);
    woi_st_free(index->st);
    woi_free(index);
}
