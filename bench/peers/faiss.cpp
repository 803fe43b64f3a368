/* PQ, IVF and SQ8: Faiss's flat codes and inverted lists.
 *
 *   PQ    IndexPQ of [w | b]: d / pq_parts weights to a code, the bias in a code of its own; every code is summed
 *         up for every query, by inner product or by L2 after the transform of peers.h
 *   SQ8   IndexScalarQuantizer of [w, b]: a byte for each weight, a range for each column
 *   IVF   IndexIVFFlat of [w, b] with f32 rows in the lists; k-means in L2 after the transform, or spherical, Faiss's
 *         choice for inner products, without it
 *
 * PQ and SQ8 give candidates to IndexRefineFlat, which scores them with f32 rows.
 *
 * Debian's library is compiled for any x86-64 (SSE2) and picks nothing at run time; peer_version says so. */
#include "library.h"

#include <dlfcn.h>
#include <faiss/IndexFlat.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/IndexPQ.h>
#include <faiss/IndexRefine.h>
#include <faiss/IndexScalarQuantizer.h>
#include <faiss/utils/utils.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#ifndef FAISS_PACKAGE
#define FAISS_PACKAGE "no package"
#endif

namespace
{

/* A function of the OpenBLAS that Faiss brings; NULL where it brings another BLAS. */
template <typename function> function *of_openblas(const char *name)
{
    return reinterpret_cast<function *>(dlsym(RTLD_DEFAULT, name));
}

/* Faiss takes OpenMP's setting and BLAS its own: both are set for a call and put back. */
struct thread_setting {
    int (*const get)() = of_openblas<int()>("openblas_get_num_threads");
    void (*const set)(int) = of_openblas<void(int)>("openblas_set_num_threads");
    int omp = omp_get_max_threads(), blas = get ? get() : 1;

    explicit thread_setting(int threads)
    {
        omp_set_num_threads(threads);
        if (set) set(threads);
    }
    ~thread_setting()
    {
        omp_set_num_threads(omp);
        if (set) set(blas);
    }
    thread_setting(const thread_setting &) = delete;
    thread_setting &operator=(const thread_setting &) = delete;
};

struct codes {
    peer_space space;
    size_t m, bytes;
    std::unique_ptr<faiss::Index> coarse, index; /* coarse: the centroids of IVF */
    std::unique_ptr<faiss::IndexRefineFlat> refine;
    faiss::IndexIVF *ivf; /* index, where it is one */
    std::vector<float> queries;
    std::vector<double> norms2;
    std::vector<int64_t> ids;
};

size_t up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Fewer points than Faiss would like for a centroid are fine, and it says so on stderr otherwise. */
void set_clustering(faiss::ClusteringParameters &cp, const peer_options *options)
{
    cp.seed = (int)options->seed;
    cp.min_points_per_centroid = 1;
}

int build(peer_kind kind, const peer_layer *layer, const peer_options *options, void **out, char *error)
{
    return peer_guard("Faiss", error, [&] {
        const thread_setting setting(options->threads);
        const size_t m = layer->m, d = layer->d;
        auto c = std::make_unique<codes>();
        c->m = m;
        c->ivf = nullptr;
        /* A part of PQ is coded as one; elsewhere a column stands alone. */
        const size_t part = kind == PEER_PQ ? (d + options->pq_parts - 1) / options->pq_parts : 1, bias = up(d, part);
        const bool l2 = options->l2 && kind != PEER_SQ8;
        const auto metric = l2 ? faiss::METRIC_L2 : faiss::METRIC_INNER_PRODUCT;
        c->space = {d, bias, l2 ? bias + part : 0, bias + (l2 ? 2 : 1) * part, 0};
        if (l2) peer_space_measure(&c->space, layer);
        const size_t dim = c->space.dim;
        std::vector<float> points(m * dim);
        for (size_t i = 0; i < m; i++) peer_space_point(&c->space, layer, i, &points[i * dim]);

        if (kind == PEER_PQ) {
            auto pq = std::make_unique<faiss::IndexPQ>((int)dim, dim / part, options->pq_bits, metric);
            set_clustering(pq->pq.cp, options);
            /* Of Faiss's 256: training takes 31 s of CPU instead of 84 (50,778 x 128, 17 parts), recall is no lower. */
            pq->pq.cp.max_points_per_centroid = 64;
            c->bytes = m * pq->pq.code_size + (dim << options->pq_bits) * sizeof(float);
            c->index = std::move(pq);
        } else if (kind == PEER_SQ8) {
            c->index = std::make_unique<faiss::IndexScalarQuantizer>((int)dim, faiss::ScalarQuantizer::QT_8bit, metric);
            c->bytes = m * dim + 2 * dim * sizeof(float);
        } else {
            c->coarse = std::make_unique<faiss::IndexFlat>(dim, metric);
            auto ivf = std::make_unique<faiss::IndexIVFFlat>(c->coarse.get(), dim, options->n_lists, metric);
            set_clustering(ivf->cp, options);
            c->bytes = m * (dim * sizeof(float) + sizeof(int64_t)) + options->n_lists * dim * sizeof(float);
            c->ivf = ivf.get();
            c->index = std::move(ivf);
        }
        c->index->train((int64_t)m, points.data());
        c->index->add((int64_t)m, points.data());
        if (kind != PEER_IVF) {
            c->refine = std::make_unique<faiss::IndexRefineFlat>(c->index.get(), points.data());
            c->bytes += m * dim * sizeof(float);
        }
        *out = c.release();
    });
}

int search(void *index, const peer_batch *batch, char *error)
{
    return peer_guard("Faiss", error, [&] {
        const thread_setting setting(batch->threads);
        codes &c = *static_cast<codes *>(index);
        const size_t n = batch->n, k = batch->k, dim = c.space.dim;
        c.queries.resize(n * dim);
        c.norms2.resize(n);
        c.ids.resize(n * k);
        for (size_t i = 0; i < n; i++)
            c.norms2[i] = peer_space_query(&c.space, batch->q + i * c.space.d, &c.queries[i * dim]);

        faiss::Index *by = c.index.get();
        const size_t scanned = faiss::indexIVF_stats.ndis;
        if (c.ivf)
            c.ivf->nprobe = std::clamp<size_t>(batch->dial, 1, c.ivf->nlist);
        else if (batch->dial) {
            /* Faiss cuts k * k_factor off to an integer: half an answer more keeps rounding from losing one. */
            const double depth = std::min(std::max<double>(batch->dial, (double)k) + 0.5, (double)c.m);
            c.refine->k_factor = (float)(depth / (double)k);
            by = c.refine.get();
        }
        by->search((int64_t)n, c.queries.data(), (int64_t)k, batch->scores, c.ids.data());
        for (size_t i = 0; i < n * k; i++) {
            batch->ids[i] = (int32_t)c.ids[i];
            if (c.ids[i] < 0)
                batch->scores[i] = -INFINITY;
            else if (c.space.extra)
                batch->scores[i] = peer_space_logit(&c.space, c.norms2[i / k], batch->scores[i]);
        }
        if (batch->scored)
            *batch->scored = c.ivf ? (double)(faiss::indexIVF_stats.ndis - scanned) / (double)n : (double)c.m;
    });
}

size_t bytes(const void *index)
{
    return static_cast<const codes *>(index)->bytes;
}

const char *version()
{
    static const std::string text = "Faiss " + std::to_string(FAISS_VERSION_MAJOR) + "." +
                                    std::to_string(FAISS_VERSION_MINOR) + "." + std::to_string(FAISS_VERSION_PATCH) +
                                    " (" FAISS_PACKAGE "), compiled with " + faiss::get_compile_options();
    return text.c_str();
}

void release(void *index)
{
    delete static_cast<codes *>(index);
}

} // namespace

const peer_library peer_faiss = {build, search, bytes, version, release};
