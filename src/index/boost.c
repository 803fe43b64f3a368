/* The boost learner: see boost.h. */
#include "index/boost.h"

#include <string.h>

/* Queries by cell: those of cell c of table l are members[starts[c] .. starts[c+1]). */
static void group(const uint32_t *of, size_t n, uint32_t K, uint32_t L, uint32_t l, uint32_t *starts, uint32_t *members)
{
    const size_t n_cells = (size_t)1 << K, base = (size_t)l << K;
    for (size_t i = 0; i < n; i++)
        if (of[i * L + l] != UINT32_MAX) starts[of[i * L + l] - base]++;
    for (size_t c = 1; c <= n_cells; c++) starts[c] += starts[c - 1];
    for (size_t i = n; i-- > 0;)
        if (of[i * L + l] != UINT32_MAX) members[--starts[of[i * L + l] - base]] = (uint32_t)i;
}

/* One cell: its n queries, and the evidence of each neuron (zeros, left as zeros). */
static void find_in_cell(const woi_sparse *needs, const uint32_t *members, uint32_t n, const woi_boost_options *options,
                         float *evidence, bool *found)
{
    const double others = n - 1 > options->thin ? n - 1 : options->thin, bar = options->lambda * others;
    for (uint32_t i = 0; i < n; i++)
        for (int64_t at = needs->indptr[members[i]]; at < needs->indptr[members[i] + 1]; at++)
            evidence[needs->ids[at]] += needs->weights[at];
    for (uint32_t i = 0; i < n; i++)
        for (int64_t at = needs->indptr[members[i]]; at < needs->indptr[members[i] + 1]; at++) {
            const float without = evidence[needs->ids[at]] - needs->weights[at]; /* exact: weights are 1 or 2 */
            if (without > 0 && without >= bar) found[at] = true;
        }
    for (uint32_t i = 0; i < n; i++)
        for (int64_t at = needs->indptr[members[i]]; at < needs->indptr[members[i] + 1]; at++)
            evidence[needs->ids[at]] = 0;
}

wo_status woi_boost_find(const woi_sparse *needs, const uint32_t *of, uint32_t K, uint32_t L, uint32_t l,
                         const woi_boost_options *options, bool *found, wo_error *err)
{
    const size_t n_cells = (size_t)1 << K;
    size_t n_ids = 0;
    for (int64_t at = 0; at < needs->indptr[needs->n]; at++)
        if ((size_t)needs->ids[at] >= n_ids) n_ids = (size_t)needs->ids[at] + 1;
    uint32_t *starts = woi_alloc_zero(n_cells + 1, sizeof *starts, err);
    uint32_t *members = woi_alloc(needs->n, sizeof *members, err);
    float *evidence = woi_alloc_zero(n_ids, sizeof *evidence, err);
    const bool there = starts && members && evidence;
    if (there) {
        group(of, needs->n, K, L, l, starts, members);
        for (size_t c = 0; c < n_cells; c++)
            if (starts[c + 1] > starts[c])
                find_in_cell(needs, members + starts[c], starts[c + 1] - starts[c], options, evidence, found);
    }
    woi_free(starts);
    woi_free(members);
    woi_free(evidence);
    return there ? WO_OK : WO_ERR_MEMORY;
}

void woi_boost_weigh(const woi_sparse *needs, const bool *found, float *weights)
{
    const int64_t pairs = needs->indptr[needs->n];
    double before = 0, after = 0;
    for (int64_t at = 0; at < pairs; at++) {
        before += needs->weights[at];
        after += needs->weights[at] * (found[at] ? WOI_BOOST_FOUND : 1);
    }
    const double scale = after > 0 ? before / after : 1;
    for (int64_t at = 0; at < pairs; at++)
        weights[at] = (float)(needs->weights[at] * (found[at] ? WOI_BOOST_FOUND : 1) * scale);
}

wo_status woi_boost_learn(const float *q, const woi_sparse *needs, const woi_boost_options *options,
                          const wo_progress *progress, woi_hash *hash, wo_error *err)
{
    const size_t pairs = (size_t)needs->indptr[needs->n];
    woi_sparse weighted = *needs; /* its own weights; the rest is borrowed */
    weighted.weights = woi_alloc(pairs, sizeof *weighted.weights, err);
    bool *found = woi_alloc_zero(pairs, sizeof *found, err);
    uint32_t *of = woi_alloc(needs->n, hash->L * sizeof *of, err);
    wo_status status = weighted.weights && found && of ? WO_OK : WO_ERR_MEMORY;
    if (!status) memcpy(weighted.weights, needs->weights, pairs * sizeof *weighted.weights);
    for (uint32_t l = 0; !status && l < hash->L; l++) {
        status = woi_mix_learn_table(q, &weighted, &options->mix, l, progress, hash, err);
        if (status || l + 1 == hash->L) break;
        status = woi_hash_queries(hash, q, needs->n, options->mix.threads, of, err);
        if (!status) status = woi_boost_find(needs, of, hash->K, hash->L, l, options, found, err);
        if (!status) woi_boost_weigh(needs, found, weighted.weights);
    }
    woi_free(weighted.weights);
    woi_free(found);
    woi_free(of);
    return status;
}
