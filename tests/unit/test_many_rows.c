/* What a search does where rows are many: queries of a block go by their cells, biases lie beside the cells' ids. The
 * answers are those of each query alone, and of biases by class. */
#include "engine.h"

enum { M = 40000, D = 112, N = 600, TOP = 5 };

static void answers_are_the_same(void **state)
{
    (void)state;
    scene s = make_scene(M, D, N, true, 5);
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    o.source = WO_SOURCE_LABELS;
    o.nodes = 1;
    o.leaves = 40;
    o.beam = 4;
    o.rows = 1;
    o.weights = WO_WEIGHTS_INT8;
    o.keep = 0;
    wo_index *index = build(&s, &o);
    assert_true((size_t)M * D >= 1 << 22);
    assert_non_null(index->cells.biases);
    asker *one = create(index, NULL);
    int32_t *ids = room((size_t)N * TOP, sizeof *ids), alone[TOP];
    float *scores = room((size_t)N * TOP, sizeof *scores), own[TOP];
    assert_int_equal(wo_search(one->searcher, s.q, N, TOP, ids, scores, NULL), WO_OK);
    float *biases = index->cells.biases;
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(wo_search(one->searcher, s.q + i * D, 1, TOP, alone, own, NULL), WO_OK);
            assert_memory_equal(ids + i * TOP, alone, sizeof alone);
            assert_memory_equal(scores + i * TOP, own, sizeof own);
        }
        index->cells.biases = NULL;
    }
    index->cells.biases = biases;
    free(ids);
    free(scores);
    free_asker(one);
    wo_index_free(index);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
