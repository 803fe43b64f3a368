/* index/centres: what FULL finds best at the centre of each cell, by its definition; what cells hold otherwise stays.
 */
#include "engine.h"

#include "base/ids.h"
#include "index/build_evidence.h"

/* Whether class `id` is among the k best at `mean`, ties to the lower id. */
static bool is_best(const scene *s, const double *mean, size_t k, int32_t id)
{
    double logits[200];
    size_t better = 0;
    for (size_t c = 0; c < s->m; c++) {
        logits[c] = s->b ? (double)s->b[c] : 0;
        for (size_t j = 0; j < s->d; j++) logits[c] += mean[j] * (double)s->w[c * s->d + j];
    }
    for (size_t c = 0; c < s->m; c++)
        better += logits[c] > logits[id] + 1e-4 || (fabs(logits[c] - logits[id]) <= 1e-4 && (int32_t)c < id);
    return better < k;
}

static bool holds(const woi_cells *cells, size_t c, int32_t id)
{
    return woi_ids_find(cells->ids + cells->offsets[c], cells->offsets[c + 1] - cells->offsets[c], id);
}

static void cells_hold_the_best_at_their_centres(void **state)
{
    (void)state;
    enum { M = 150, D = 6, N = 400 };
    for (uint64_t turn = 0; turn < 8; turn++) {
        scene s = make_scene(M, D, N, turn % 2, turn);
        wo_build_options o = small_options(EVIDENCE_BY_TREE);
        o.nodes = 3;
        o.leaves = 5;
        o.beam = 3;
        o.source = WO_SOURCE_LABELS;
        o.cap = 4;
        o.spread = turn / 2 % 2 ? 2 : 0;
        o.prior = turn / 4 ? 1 : 0;
        wo_index *without = build(&s, &o);
        o.centre_k = turn == 5 ? 1000 : 7;
        wo_index *with = build(&s, &o);
        o.threads = 2;
        wo_index *again = build(&s, &o);
        const woi_cells *before = &without->cells, *cells = &with->cells;
        const size_t n_cells = cells->n;
        assert_int_equal(before->n, n_cells);
        assert_memory_equal(again->cells.offsets, cells->offsets, (n_cells + 1) * sizeof *cells->offsets);
        assert_memory_equal(again->cells.ids, cells->ids, cells->offsets[n_cells] * sizeof *cells->ids);

        uint32_t of[N];
        wo_error err;
        const woi_filing filing = {.each = 1, .cells = of};
        assert_int_equal(woi_tree_file(&with->tree, s.q, N, 1, &filing, &err), WO_OK);
        for (size_t c = 0; c < n_cells; c++) {
            double mean[D] = {0};
            size_t n = 0;
            for (size_t i = 0; i < N; i++) {
                if (of[i] != c) continue;
                n++;
                for (size_t j = 0; j < D; j++) mean[j] += (double)s.q[i * D + j];
            }
            for (size_t j = 0; n && j < D; j++) mean[j] /= (double)n;
            const size_t k = !n ? 0 : o.centre_k < M ? o.centre_k : M;
            size_t expected = 0;
            for (int32_t id = 0; id < M; id++) {
                const bool wanted = holds(before, c, id) || (k && is_best(&s, mean, k, id));
                expected += wanted;
                assert_int_equal(holds(cells, c, id), wanted);
            }
            assert_int_equal(cells->offsets[c + 1] - cells->offsets[c], expected); /* each once */
            for (uint32_t at = cells->offsets[c]; cells->shares && at < cells->offsets[c + 1]; at++) {
                const int32_t *own = before->ids + before->offsets[c];
                const int32_t *place = woi_ids_find(own, before->offsets[c + 1] - before->offsets[c], cells->ids[at]);
                assert_int_equal(cells->shares[at], place ? before->shares[place - before->ids] : 0);
            }
        }
        wo_index_free(again);
        wo_index_free(with);
        wo_index_free(without);
        free_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cells_hold_the_best_at_their_centres)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
