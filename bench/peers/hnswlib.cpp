/* ip-NSW and Graph Decoder: hnswlib's graph over inner products, and over L2 after the transform of peers.h.
 *
 * hnswlib is headers only and chooses its distance when it is compiled: the Makefile gives this file -O3 -march=native.
 * Its headers define functions, so no second file can include them. */
#include "library.h"

#include <hnswlib/hnswlib.h>
#include <omp.h>

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#ifndef HNSWLIB_VERSION
#define HNSWLIB_VERSION "of unknown version" /* its headers do not say; the Makefile asks dpkg */
#endif

namespace
{

using hnsw = hnswlib::HierarchicalNSW<float>;

struct graph {
    peer_space space;
    std::unique_ptr<hnswlib::SpaceInterface<float>> metric; /* hnsw points into it */
    std::unique_ptr<hnsw> index;
    std::vector<std::vector<float>> points; /* one for each thread */

    void reserve(int threads)
    {
        while (points.size() < (size_t)threads) points.emplace_back(space.dim);
    }
};

/* body(i, thread) for i from begin to end. hnswlib throws, and nothing may leave an OpenMP loop: the first exception
 * waits until it has ended. */
template <class F> void each(size_t begin, size_t end, int threads, F body)
{
    if (threads == 1) { /* starts nothing */
        for (size_t i = begin; i < end; i++) body(i, 0);
        return;
    }
    std::exception_ptr thrown;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 8)
    for (size_t i = begin; i < end; i++) {
        try {
            body(i, omp_get_thread_num());
        } catch (...) {
#pragma omp critical(peer_hnswlib)
            if (!thrown) thrown = std::current_exception();
        }
    }
    if (thrown) std::rethrow_exception(thrown);
}

int build(peer_kind kind, const peer_layer *layer, const peer_options *options, void **out, char *error)
{
    return peer_guard("hnswlib", error, [&] {
        auto g = std::make_unique<graph>();
        const bool l2 = kind == PEER_GRAPH_DECODER;
        const size_t d = layer->d;
        /* Without padding: up to a multiple of 4 or 16 floats the search took 0.92 to 1.3 times as long. */
        g->space = {d, d, l2 ? d + 1 : 0, d + (l2 ? 2 : 1), 0};
        if (l2) peer_space_measure(&g->space, layer);
        if (l2)
            g->metric = std::make_unique<hnswlib::L2Space>(g->space.dim);
        else
            g->metric = std::make_unique<hnswlib::InnerProductSpace>(g->space.dim);
        g->index =
            std::make_unique<hnsw>(g->metric.get(), layer->m, options->links, options->ef_construction, options->seed);
        g->reserve(options->threads);
        const auto add = [&](size_t i, int thread) {
            float *point = g->points[thread].data();
            peer_space_point(&g->space, layer, i, point);
            g->index->addPoint(point, i);
        };
        add(0, 0); /* the entry point, before there are threads */
        each(1, layer->m, options->threads, add);
        *out = g.release();
    });
}

/* ---- Counting ---------------------------------------------------------------------------------------------- */

/* hnswlib's own metric_distance_computations adds up the links of the points it passes, also those to points that it
 * has scored before and skips: here that is 1.4 to 3.2 times too many. So its distance function, a public member, is
 * replaced by one that counts. */
thread_local size_t n_distances;

struct counter {
    hnsw &index;
    hnswlib::DISTFUNC<float> distance;
    void *param;

    explicit counter(hnsw &of) : index(of), distance(of.fstdistfunc_), param(of.dist_func_param_)
    {
        index.fstdistfunc_ = count;
        index.dist_func_param_ = this;
    }
    ~counter()
    {
        index.fstdistfunc_ = distance;
        index.dist_func_param_ = param;
    }
    counter(const counter &) = delete;
    counter &operator=(const counter &) = delete;

    static float count(const void *a, const void *b, const void *self)
    {
        const counter *c = static_cast<const counter *>(self);
        n_distances++;
        return c->distance(a, b, c->param);
    }
};

/* ---- Searching --------------------------------------------------------------------------------------------- */

void search_one(graph &g, const peer_batch &batch, size_t i, float *query)
{
    const double norm2 = peer_space_query(&g.space, batch.q + i * g.space.d, query);
    auto found = g.index->searchKnn(query, batch.k);
    int32_t *ids = batch.ids + i * batch.k;
    float *scores = batch.scores + i * batch.k;
    for (size_t at = found.size(); at < batch.k; at++) {
        ids[at] = -1;
        scores[at] = -INFINITY;
    }
    for (size_t at = found.size(); at-- > 0; found.pop()) { /* the worst comes first */
        const auto &[distance, label] = found.top();
        ids[at] = (int32_t)label;
        scores[at] = g.space.extra ? peer_space_logit(&g.space, norm2, distance) : 1 - distance;
    }
}

int search(void *index, const peer_batch *batch, char *error)
{
    return peer_guard("hnswlib", error, [&] {
        graph &g = *static_cast<graph *>(index);
        g.reserve(batch->threads);
        g.index->setEf(batch->dial); /* hnswlib takes k where that is more */
        if (!batch->scored) {
            each(0, batch->n, batch->threads,
                 [&](size_t i, int thread) { search_one(g, *batch, i, g.points[thread].data()); });
            return;
        }
        std::atomic<size_t> sum{0};
        counter counting(*g.index);
        each(0, batch->n, batch->threads, [&](size_t i, int thread) {
            const size_t before = n_distances;
            search_one(g, *batch, i, g.points[thread].data());
            sum += n_distances - before;
        });
        *batch->scored = (double)sum / (double)batch->n;
    });
}

/* Rows, labels and links, as a saved file would hold them. */
size_t bytes(const void *index)
{
    const hnsw &h = *static_cast<const graph *>(index)->index;
    size_t sum = h.cur_element_count * (h.size_data_per_element_ + sizeof(unsigned));
    for (size_t i = 0; i < h.cur_element_count; i++) sum += h.element_levels_[i] * h.size_links_per_element_;
    return sum;
}

const char *version()
{
#if defined(USE_AVX512)
    return "hnswlib " HNSWLIB_VERSION ", compiled here, AVX-512";
#elif defined(USE_AVX)
    return "hnswlib " HNSWLIB_VERSION ", compiled here, AVX";
#else
    return "hnswlib " HNSWLIB_VERSION ", compiled here, without AVX";
#endif
}

void release(void *index)
{
    delete static_cast<graph *>(index);
}

} // namespace

const peer_library peer_hnswlib = {build, search, bytes, version, release};
