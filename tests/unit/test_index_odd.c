/* index/open.c: files with odd numbers that are opened, and files that get other bytes while they are open, do no harm.
 */
#include "index_files.h"

/* ---- Odd numbers ------------------------------------------------------------------------------------------- */

/* Rows are not looked through when an index is opened. A class whose row is not a number is never answered, and the
 * others are answered as if it were not there. */
static void a_row_of_nan_is_never_answered(void **state)
{
    (void)state;
    enum { M = 200, D = 20, N = 40, K = 7, TURNS = 5 };
    static const struct {
        wo_weights weights;
        const char *name;
        bool hidden; /* from the screen, which softmax has not, nor FULL: its row is all right */
    } turns[TURNS] = {{WO_WEIGHTS_F32, "weight", false},
                      {WO_WEIGHTS_BF16, "weight", false},
                      {WO_WEIGHTS_INT8, "weight", false},
                      {WO_WEIGHTS_INT8, "weight.scales", true},
                      {WO_WEIGHTS_F32, "bias", false}};
    wo_error err;
    scene s = make_scene(M, D, N, true, 9);
    int32_t ids[N * K], expected[N * K];
    float scores[N * K], right[N * K];
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        const bool softmax = turn % 2, hidden = turns[turn / 2].hidden;
        wo_build_options o = small_options(WO_METHOD_POPULAR);
        o.n_popular = M; /* one cell: all classes that occur */
        o.weights = turns[turn / 2].weights;
        wo_index *index = build(&s, &o);
        save(index, scratch("whole"));
        asker *searcher = create(index, NULL), *other;
        assert_int_equal(ask(searcher, s.q, N, K, (answers){ids, scores, NULL}, &err), WO_OK);
        free_asker(searcher);
        const int32_t class = ids[0]; /* the best answer of some query */
        assert_true(class >= 0);
        /* That class's numbers are NaN. */
        woi_st *st = NULL;
        assert_int_equal(woi_st_open(scratch("whole"), &st, &err), WO_OK);
        const woi_tensor *t = woi_st_find(st, turns[turn / 2].name);
        char *data = room(t->bytes, 1);
        memcpy(data, t->data, t->bytes);
        memset(data + t->bytes / M * (size_t) class, 0xff, t->bytes / M);
        edit e = {.name = turns[turn / 2].name, .dtype = t->dtype, .n_dims = t->n_dims, .data = data};
        memcpy(e.shape, t->shape, sizeof e.shape);
        wo_index *opened = open_index(rewrite(scratch("whole"), &e), NULL);
        asked so = {.scores = softmax ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS};
        searcher = create(opened, &so);
        so.forbidden = &class;
        so.n_forbidden = 1;
        other = create(index, &so);
        for (int exact = 0; exact < 2; exact++) {
            if (exact && o.weights == WO_WEIGHTS_BF16) continue; /* no rows to answer exactly with */
            if (hidden && (exact || softmax)) continue;
            assert_int_equal((exact ? ask_exact : ask)(searcher, s.q, N, K, (answers){ids, scores, NULL}, &err), WO_OK);
            assert_int_equal((exact ? ask_exact : ask)(other, s.q, N, K, (answers){expected, right, NULL}, &err),
                             WO_OK);
            assert_memory_equal(ids, expected, sizeof ids);
            for (size_t i = 0; i < N * K; i++)
                assert_true(fabsf(scores[i] - right[i]) <= 1e-5F * fabsf(right[i]) + 1e-6F);
        }
        free_asker(searcher);
        free_asker(other);
        wo_index_free(opened);
        wo_index_free(index);
        woi_st_free(st);
        free(data);
    }
    free_scene(&s);
}

/* Numbers that no learner would give are not looked for: they lead to some answer, and nowhere else. */
static void planes_and_rows_of_any_value_are_searched(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(6, 2, 30, true, 9);
    wo_build_options o = small_options(WO_METHOD_SLIDE);
    o.K = 2;
    o.L = 1;
    o.probes = 3;
    wo_index *index = build(&s, &o);
    save(index, scratch("whole"));
    float odd[32];
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < 32; i++) odd[i] = (float[]){NAN, INFINITY, 3e38F}[(turn + i) % 3];
        const edit edits[] = {
            {.name = "router.planes", .dtype = WOI_F32, .n_dims = 2, .shape = {2, 16}, .data = odd},
            {.name = "router.offsets", .dtype = WOI_F32, .n_dims = 1, .shape = {16}, .data = odd},
            {.name = "weight", .dtype = WOI_F32, .n_dims = 2, .shape = {6, 2}, .data = odd},
            {.name = "bias", .dtype = WOI_F32, .n_dims = 1, .shape = {6}, .data = odd},
        };
        for (size_t i = 0; i < 4; i++) {
            wo_index *opened = open_index(rewrite(scratch("whole"), &edits[i]), NULL);
            asked so = {0};
            so.scores = turn % 2 ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS;
            asker *searcher = create(opened, &so);
            int32_t ids[30 * 4];
            float scores[30 * 4];
            assert_int_equal(ask(searcher, s.q, 30, 4, (answers){ids, scores, NULL}, &err), WO_OK);
            for (size_t j = 0; j < 30 * 4; j++) assert_true(ids[j] >= -1 && ids[j] < 6);
            assert_int_equal(ask_exact(searcher, s.q, 30, 4, (answers){ids, scores, NULL}, &err), WO_OK);
            for (size_t j = 0; j < 30 * 4; j++) assert_true(ids[j] >= -1 && ids[j] < 6);
            free_asker(searcher);
            wo_index_free(opened);
        }
    }
    wo_index_free(index);
    free_scene(&s);
}

/* ---- Files that are written over --------------------------------------------------------------------------- */

/* Other bytes into a tensor of a file, in place: all the same, or (fill 1) any. */
static void write_over(const char *path, const char *name, int fill)
{
    woi_st *st = NULL;
    wo_error err;
    assert_int_equal(woi_st_open(path, &st, &err), WO_OK);
    const woi_tensor *t = woi_st_find(st, name);
    assert_non_null(t);
    unsigned char *data = room(t->bytes, 1);
    for (size_t i = 0; i < t->bytes; i++)
        data[i] = (unsigned char)(fill == 1 ? woi_rng_u64(5, t->bytes, i) : (uint64_t)fill);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)t->offset, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, t->bytes, file), t->bytes);
    assert_int_equal(fclose(file), 0);
    free(data);
    woi_st_free(st);
}

static void assert_safe(const scene *s, const wo_index *index)
{
    int32_t *ids = room(s->n * 7, sizeof *ids), all[40];
    float *scores = room(s->n * 7, sizeof *scores);
    wo_error err;
    asker *a = create(index, NULL);
    assert_int_equal(ask(a, s->q, s->n, 7, (answers){ids, scores, NULL}, &err), WO_OK);
    for (size_t i = 0; i < s->n * 7; i++) assert_true(ids[i] >= -1 && ids[i] < (int32_t)s->m);
    for (size_t i = 0; i < s->n; i++) {
        size_t n = 0;
        assert_int_equal(ask_candidates(a, s->q + i * s->d, all, s->m, &n, &err), WO_OK);
        assert_true(n <= s->m);
        for (size_t j = 0; j < n; j++) assert_true(all[j] >= 0 && all[j] < (int32_t)s->m);
    }
    free_asker(a);
    free(ids);
    free(scores);
}

/* An index in use whose file gets other bytes in place (cp, rsync --inplace): what it answers is nobody's business, but
 * ids are classes, and nothing is read or written elsewhere. Also with nothing verified. */
static void an_index_that_is_written_over_is_safe(void **state)
{
    (void)state;
    static const int fills[] = {0xff, 0x7f, 1, 0};
    for (size_t turn = 0; turn < 2 * N_METHODS; turn++) {
        scene s = make_scene(40, 20, 60, true, 300 + turn);
        wo_build_options o = small_options(methods[turn / 2]);
        wo_error err;
        o.lambda = 0.2;
        if (o.method == WO_METHOD_EVIDENCE && turn % 2) o.prior = 0.5;
        if (o.method == WO_METHOD_EVIDENCE) o.fallback = 3;
        wo_index *index = build(&s, &o), *served = NULL;
        save(index, scratch("kept"));
        woi_st *kept = NULL;
        assert_int_equal(woi_st_open(scratch("kept"), &kept, &err), WO_OK);
        for (size_t i = 0; i < woi_st_n_tensors(kept); i++)
            for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
                const wo_open_options how = {.struct_size = sizeof how,
                                             .verify = f % 2 ? WO_VERIFY_NONE : WO_VERIFY_ALL};
                save(index, scratch("served"));
                if (wo_index_open(scratch("served"), &how, &served, &err)) fail_msg("%s", err.text);
                write_over(scratch("served"), woi_st_tensor(kept, i)->name, fills[f]);
                assert_safe(&s, served);
                wo_index_free(served);
            }
        woi_st_free(kept);
        wo_index_free(index);
        free_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_of_nan_is_never_answered),
        cmocka_unit_test(planes_and_rows_of_any_value_are_searched),
        cmocka_unit_test(an_index_that_is_written_over_is_safe),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
