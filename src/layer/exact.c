/* Exact top-k: tiles of queries, blocks of classes; a tile's logits for a block stay in the second-level cache while
 * they are scanned. Tiles are independent, so they are what threads share. */
#include "layer/exact.h"

#include "base/error.h"
#include "base/mem.h"
#include "layer/blas.h"

#include <omp.h>
#include <stdint.h>

enum { TILE = 256, BLOCK = 512 }; /* 256 x 512 floats: 512 KiB */

static void answer_tile(const woi_kernels *kernels, const woi_dense *layer, const float *q, size_t n, size_t k,
                        float *logits, int32_t *ids, float *scores)
{
    woi_topk top[TILE];
    for (size_t i = 0; i < n; i++) top[i] = (woi_topk){k, 0, scores + i * k, ids + i * k};
    for (size_t first = 0; first < layer->m; first += BLOCK) {
        size_t width = layer->m - first < BLOCK ? layer->m - first : BLOCK;
        woi_gemm_nt(n, width, layer->d, q, layer->d, layer->w + first * layer->d, layer->d, 0, logits, width);
        for (size_t i = 0; i < n; i++) {
            float *row = logits + i * width;
            if (layer->b)
                for (size_t j = 0; j < width; j++) row[j] += layer->b[first + j];
            kernels->topk_scan(row, width, (int32_t)first, &top[i]);
        }
    }
    for (size_t i = 0; i < n; i++) woi_topk_finish(&top[i]);
}

wo_status woi_exact_topk(const woi_dense *layer, const float *q, size_t n, size_t k, int threads, int32_t *ids,
                         float *scores, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    if (layer->m > INT32_MAX || layer->d > INT32_MAX / 4)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "a layer of %zu x %zu is too large", layer->m, layer->d);
    size_t n_tiles = (n + TILE - 1) / TILE;
    if (threads < 1) threads = omp_get_max_threads();
    if ((size_t)threads > n_tiles) threads = n_tiles ? (int)n_tiles : 1;
    float *logits = woi_alloc((size_t)threads * TILE, BLOCK * sizeof *logits, err);
    if (!logits) return WO_ERR_MEMORY;
    int before = woi_blas_single();
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (size_t tile = 0; tile < n_tiles; tile++) {
        size_t first = tile * TILE, count = n - first < TILE ? n - first : TILE;
        answer_tile(kernels, layer, q + first * layer->d, count, k,
                    logits + (size_t)omp_get_thread_num() * TILE * BLOCK, ids + first * k, scores + first * k);
    }
    woi_blas_restore(before);
    woi_free(logits);
    return WO_OK;
}
