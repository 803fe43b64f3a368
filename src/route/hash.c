/* Hashing: one projection of the query on all planes, then K bits for each table. */
#include "route/hash.h"

#include "base/error.h"
#include "base/finite.h"
#include "base/mem.h"
#include "base/team.h"

#include <math.h>
#include <string.h>

wo_status woi_hash_create(uint32_t K, uint32_t L, size_t d, bool with_neurons, woi_hash *hash, wo_error *err)
{
    *hash = (woi_hash){.K = K, .L = L, .d = d, .n_planes = ((size_t)K * L + 15) / 16 * 16};
    hash->planes = woi_alloc_zero(d, hash->n_planes * sizeof *hash->planes, err);
    hash->offsets = woi_alloc_zero(hash->n_planes, sizeof *hash->offsets, err);
    if (with_neurons) hash->bias_planes = woi_alloc_zero(hash->n_planes, sizeof *hash->bias_planes, err);
    if (hash->planes && hash->offsets && (!with_neurons || hash->bias_planes)) return WO_OK;
    woi_hash_free(hash);
    return WO_ERR_MEMORY;
}

void woi_hash_free(woi_hash *hash)
{
    woi_free(hash->planes);
    woi_free(hash->offsets);
    woi_free(hash->bias_planes);
    *hash = (woi_hash){0};
}

/* z, then the bits with room for reading 8 bytes from any of them. */
size_t woi_hash_scratch(const woi_hash *hash, size_t n)
{
    return n * (hash->n_planes + hash->n_planes / 32 + 1) + 16;
}

/* K bits from bit `at` on. */
static inline uint32_t code_at(const void *bits, size_t at, uint32_t K)
{
    uint64_t word;
    memcpy(&word, (const char *)bits + at / 8, sizeof word);
    return (uint32_t)(word >> at % 8) & ((1U << K) - 1);
}

/* Sets of planes to cross, in the order of the sum of their margins (Lv et al., "Multi-probe LSH", 2007). With planes
 * sorted by margin, every set follows from a cheaper one by moving its last plane one on, or by adding the next. */
typedef struct crossing {
    float cost;
    uint32_t last, flips; /* place of the last plane in the sorted order; bits of the code */
} crossing;

static void push_crossing(crossing *heap, size_t *n, crossing c)
{
    size_t at = (*n)++;
    for (size_t up; at > 0 && c.cost < heap[up = (at - 1) / 2].cost; at = up) heap[at] = heap[up];
    heap[at] = c;
}

static crossing pop_crossing(crossing *heap, size_t *n)
{
    const crossing top = heap[0], last = heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && heap[child + 1].cost < heap[child].cost) child++;
        if (!(heap[child].cost < last.cost)) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* cells[1 .. probes) of a table whose own code is `code`; z: its K projections. */
static void probe_table(const float *z, uint32_t K, uint32_t code, uint32_t base, uint32_t probes, uint32_t *cells)
{
    uint32_t order[WOI_MAX_BITS] = {0};
    float margin[WOI_MAX_BITS] = {0};
    for (uint32_t k = 0; k < K; k++) {
        const float value = fabsf(z[k]);
        uint32_t at = k;
        for (; at > 0 && value < margin[at - 1]; at--) {
            margin[at] = margin[at - 1];
            order[at] = order[at - 1];
        }
        margin[at] = value;
        order[at] = k;
    }
    crossing heap[2 * WOI_MAX_PROBES];
    size_t n = 1;
    heap[0] = (crossing){margin[0], 0, 1U << order[0]};
    for (uint32_t p = 1; p < probes; p++) {
        const crossing c = pop_crossing(heap, &n);
        cells[p] = base + (code ^ c.flips);
        if (c.last + 1 == K) continue;
        const uint32_t next = c.last + 1, bit = 1U << order[next];
        push_crossing(heap, &n, (crossing){c.cost + margin[next], next, c.flips | bit});
        push_crossing(heap, &n,
                      (crossing){c.cost - margin[c.last] + margin[next], next, (c.flips ^ 1U << order[c.last]) | bit});
    }
}

void woi_hash_route(const woi_hash *hash, const woi_kernels *kernels, const woi_routing *asked)
{
    const uint32_t K = hash->K, L = hash->L, probes = asked->probes;
    const size_t n = asked->n;
    const float *q = asked->q;
    uint32_t *cells = asked->cells, *n_cells = asked->n_cells;
    float *z = asked->scratch;
    uint16_t *bits = (void *)(z + n * hash->n_planes);
    kernels->project(q, n, hash->planes, hash->offsets, hash->d, hash->n_planes, z, bits);
    for (size_t i = 0; i < n; i++, z += hash->n_planes, bits += hash->n_planes / 16, cells += (size_t)L * probes) {
        /* A query that is not finite leaves no finite projection; large finite ones may overflow. */
        n_cells[i] = isfinite(z[0]) || woi_all_finite(q + i * hash->d, hash->d) ? L * probes : 0;
        for (uint32_t l = 0; n_cells[i] && l < L; l++) {
            const uint32_t base = l << K, code = code_at(bits, (size_t)l * K, K);
            cells[(size_t)l * probes] = base + code;
            if (probes > 1) probe_table(z + (size_t)l * K, K, code, base, probes, cells + (size_t)l * probes);
        }
    }
}

/* Each row has its own start of z: offsets + b[i] bias_planes. A query is a neuron without b. */
typedef struct hashing {
    const woi_hash *hash;
    const woi_kernels *kernels;
    const woi_neurons *rows;
    float *scratch; /* (threads, each) */
    size_t each;
    uint32_t *cells;
} hashing;

static void hash_range(void *own, int worker, size_t first, size_t end)
{
    const hashing *h = own;
    const woi_hash *hash = h->hash;
    const float *b = h->rows->b;
    float *z = h->scratch + (size_t)worker * h->each, *start = z + woi_hash_scratch(hash, 1);
    void *bits = z + hash->n_planes;
    for (size_t i = first; i < end; i++) {
        for (size_t p = 0; p < hash->n_planes; p++)
            start[p] = hash->offsets[p] + (b && hash->bias_planes ? b[i] * hash->bias_planes[p] : 0);
        const float *row = h->rows->w + i * hash->d;
        h->kernels->project(row, 1, hash->planes, start, hash->d, hash->n_planes, z, bits);
        const bool usable = isfinite(z[0]) || woi_all_finite(row, hash->d);
        for (uint32_t l = 0; l < hash->L; l++)
            h->cells[i * hash->L + l] =
                usable ? (l << hash->K) + code_at(bits, (size_t)l * hash->K, hash->K) : UINT32_MAX;
    }
}

wo_status woi_hash_neurons(const woi_hash *hash, const woi_neurons *rows, int threads, uint32_t *cells, wo_error *err)
{
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    enum { ROWS_AT_ONCE = 256 };
    threads = woi_team_threads(threads);
    const size_t each = (woi_hash_scratch(hash, 1) + hash->n_planes + 15) / 16 * 16;
    float *scratch = woi_alloc((size_t)threads, each * sizeof *scratch, err);
    if (!scratch) return WO_ERR_MEMORY;
    memset(scratch, 0, (size_t)threads * each * sizeof *scratch);
    woi_team_ranges(threads, rows->m, ROWS_AT_ONCE, hash_range, &(hashing){hash, kernels, rows, scratch, each, cells});
    woi_free(scratch);
    return WO_OK;
}

wo_status woi_hash_queries(const woi_hash *hash, const float *q, size_t n, int threads, uint32_t *cells, wo_error *err)
{
    return woi_hash_neurons(hash, &(woi_neurons){n, q, NULL}, threads, cells, err);
}

wo_status woi_hash_check(const uint32_t *cells, size_t n, wo_about about, wo_error *err)
{
    const bool log = about == WO_ABOUT_LOG;
    for (size_t i = 0; i < n; i++)
        if (cells[i] == UINT32_MAX)
            return woi_fail_about(err, WO_ERR_ARGUMENT, about, "",
                                  "a %s is not finite any more: the %s has changed meanwhile", log ? "query" : "row",
                                  log ? "log" : "layer");
    return WO_OK;
}
