/* Builds that are stopped and go on: the same bytes, nothing asked twice, and nothing taken from another build. */
#include "index_files.h"
#include "together.h"

#include "index/findings.h"

/* A build by some ranks. Every rank has a layer of its own, whose rows are spoiled where FULL must not be asked. */
typedef struct job {
    const scene *s;
    wo_build_options o;
    const char *folder; /* of the index: where there is none, saving fails */
    bool spoilt;
    char paths[MOST_RANKS][128];
    wo_status statuses[MOST_RANKS];
    wo_error errs[MOST_RANKS];
} job;

static void work(const wo_collective *calls, void *ctx)
{
    job *j = ctx;
    const int r = calls->rank;
    wo_error *err = &j->errs[r];
    wo_build_options o = j->o;
    wo_layer *layer = NULL;
    wo_index *index = NULL;
    const size_t bytes = j->s->m * j->s->d * sizeof *j->s->w;
    float *w = room(1, bytes);
    memcpy(w, j->s->w, bytes);
    o.together = calls;
    if (r) o.progress = (wo_progress){0};
    wo_status status = wo_layer_wrap(w, j->s->b, j->s->m, j->s->d, &layer, err);
    if (j->spoilt) memset(w, 0, bytes);
    if (!status && calls->size > 1) status = wo_layer_take_part(layer, (uint32_t)r, (uint32_t)calls->size, err);
    if (!status) status = wo_index_build(layer, j->s->log, &o, &index, err);
    if (!status) status = wo_index_save_together(index, j->paths[r], calls, err);
    wo_index_free(index);
    wo_layer_free(layer);
    free(w);
    j->statuses[r] = status;
}

/* What rank 0 says of it. */
static wo_status run(job *j, int size)
{
    for (int r = 0; r < size; r++) snprintf(j->paths[r], sizeof j->paths[r], "%s/index-%d-of-%d", j->folder, r, size);
    run_together(size, work, j);
    return j->statuses[0];
}

static int stop_at(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    int *left = ctx;
    (void)stage;
    (void)done;
    (void)total;
    return --*left < 0;
}

static char *checkpoint_path(void)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/checkpoint", scratch_folder);
    return path;
}

static job job_of(const scene *s, int which)
{
    job j = {.s = s, .folder = scratch_folder};
    wo_build_options *o = &j.o;
    wo_build_defaults(which == 3 ? WO_METHOD_POPULAR : WO_METHOD_EVIDENCE, o, sizeof *o);
    o->threads = 1;
    o->weights = WO_WEIGHTS_NONE;
    o->K = 4;
    o->L = 3;
    o->iterations = 20;
    o->n_popular = 9;
    if (which == 1 || which == 2) {
        o->router = WO_ROUTER_TREE;
        o->nodes = 3;
        o->leaves = 5;
    }
    if (which == 2) o->route_d = 16, o->nodes = 1, o->spread = 1;
    o->checkpoint = checkpoint_path();
    return j;
}

enum { N_JOBS = 4 };

/* More than one block of the log, and of what is kept. */
static scene make_log(void)
{
    return make_scene(29, 20, 4200, true, 3);
}

static void assert_whole(const job *j, int size, const char *one)
{
    const char *paths[MOST_RANKS];
    wo_error err;
    for (int r = 0; r < size; r++) paths[r] = j->paths[r];
    for (int r = 0; r < size; r++)
        if (j->statuses[r]) fail_msg("rank %d of %d: %s", r, size, j->errs[r].text);
    char joined[128];
    snprintf(joined, sizeof joined, "%s/joined", scratch_folder);
    if (size > 1 && wo_index_join(paths, (size_t)size, joined, &err)) fail_msg("%s", err.text);
    assert_same_file(one, size > 1 ? joined : paths[0]);
}

/* The index of one process that nobody stops and that keeps nothing, of all rows, so that shards can be joined. */
static void build_one(job j, const char *path)
{
    j.o.checkpoint = NULL;
    assert_int_equal(run(&j, 1), WO_OK);
    assert_int_equal(rename(j.paths[0], path), 0);
}

static void stopped_anywhere_the_bytes_are_the_same(void **state)
{
    (void)state;
    scene s = make_log();
    char one[128];
    snprintf(one, sizeof one, "%s/one", scratch_folder);
    for (int which = 0; which < N_JOBS; which++) {
        job j = job_of(&s, which);
        j.o.weights = WO_WEIGHTS_F32;
        build_one(j, one);
        int stopped = 0;
        for (bool done = false; !done; stopped++) {
            int left = stopped;
            j.o.progress = (wo_progress){stop_at, &left};
            j.o.resume = 0;
            done = run(&j, 2) == WO_OK;
            if (!done) assert_int_equal(j.statuses[0], WO_ERR_CANCELLED);
            j.o.progress = (wo_progress){0};
            j.o.resume = 1;
            const int size = stopped % 3 + 1;
            run(&j, size);
            assert_whole(&j, size, one);
            assert_int_equal(wo_build_forget(j.o.checkpoint, NULL), WO_OK);
            assert_int_equal(access(j.o.checkpoint, F_OK), -1);
        }
        assert_true(stopped > (which == 3 ? 3 : 6));
    }
    free_scene(&s);
}

/* How often the tree is said to be learned. */
static int count_learning(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    *(int *)ctx += strcmp(stage, "learning the tree") == 0;
    return 0;
}

/* A tree that is learned from rows is kept as others are; where rows lie follows from it and is found again. */
static void a_tree_of_rows_goes_on_too(void **state)
{
    (void)state;
    scene s = make_log();
    char one[128];
    snprintf(one, sizeof one, "%s/one", scratch_folder);
    for (uint32_t nodes = 1; nodes <= 3; nodes += 2) {
        job j = job_of(&s, 1);
        j.o.weights = WO_WEIGHTS_F32;
        j.o.rows = 2;
        j.o.nodes = nodes;
        j.o.route_d = nodes == 1 ? 16 : 20;
        build_one(j, one);
        int stopped = 0;
        for (bool done = false; !done; stopped++) {
            int left = stopped;
            j.o.progress = (wo_progress){stop_at, &left};
            j.o.resume = 0;
            done = run(&j, 1) == WO_OK;
            if (!done) assert_int_equal(j.statuses[0], WO_ERR_CANCELLED);
            j.o.progress = (wo_progress){0};
            j.o.resume = 1;
            run(&j, 1);
            assert_whole(&j, 1, one);
        }
        assert_true(stopped > 6);
        int learned = 0;
        j.o.progress = (wo_progress){count_learning, &learned};
        run(&j, 1);
        assert_whole(&j, 1, one);
        assert_int_equal(learned, 0);
        j.o.resume = 0;
        run(&j, 1);
        assert_int_not_equal(learned, 0);
        assert_int_equal(wo_build_forget(j.o.checkpoint, NULL), WO_OK);
    }
    free_scene(&s);
}

/* Rows that have become zeros: whoever asked FULL once more would get other answers. */
static void nothing_is_asked_twice(void **state)
{
    (void)state;
    scene s = make_log();
    char one[128];
    snprintf(one, sizeof one, "%s/one", scratch_folder);
    for (int which = 0; which < N_JOBS; which++) {
        job j = job_of(&s, which);
        build_one(j, one);
        j.folder = "/nowhere"; /* all is found, and then it cannot be saved */
        assert_int_equal(run(&j, 2), WO_ERR_IO);
        j.folder = scratch_folder;
        j.o.resume = 1;
        j.spoilt = true;
        assert_int_equal(run(&j, 1), WO_OK);
        assert_same_file(one, j.paths[0]);
        j.o.resume = 0;
        assert_int_equal(run(&j, 1), WO_OK);
        size_t n[2];
        char *files[] = {slurp(one, &n[0]), slurp(j.paths[0], &n[1])};
        assert_true(which == 3 || n[0] != n[1] || memcmp(files[0], files[1], n[0]) != 0);
        free(files[0]);
        free(files[1]);
    }
    free_scene(&s);
}

/* What was cut off, or is not what was written, is found once more, and all before it is kept. */
static void a_torn_record_is_found_again(void **state)
{
    (void)state;
    scene s = make_log();
    job j = job_of(&s, 1);
    char one[128];
    snprintf(one, sizeof one, "%s/one", scratch_folder);
    build_one(j, one);
    assert_int_equal(run(&j, 2), WO_OK);
    size_t bytes;
    char *whole = slurp(j.o.checkpoint, &bytes);
    j.o.resume = 1;
    for (size_t cut = bytes; cut > bytes / 30; cut -= bytes / 9) {
        scratch_write("checkpoint", whole, cut);
        if (run(&j, 2)) {
            assert_non_null(strstr(j.errs[0].text, "checkpoint: it is damaged: its header is cut off"));
            break;
        }
        assert_int_equal(run(&j, 1), WO_OK);
        assert_same_file(one, j.paths[0]);
        size_t again;
        char *mended = slurp(j.o.checkpoint, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(mended, whole, bytes);
        free(mended);
    }
    for (size_t at = bytes / 2; at < bytes; at += bytes / 8) {
        whole[at] ^= 1;
        scratch_write("checkpoint", whole, bytes);
        whole[at] ^= 1;
        assert_int_equal(run(&j, 1), WO_OK);
        assert_same_file(one, j.paths[0]);
    }
    whole[20] ^= 1;
    scratch_write("checkpoint", whole, bytes);
    assert_int_equal(run(&j, 2), WO_ERR_CHECKSUM);
    assert_non_null(strstr(j.errs[0].text, "checkpoint: it is damaged: the checksum of its header differs"));
    free(whole);
    free_scene(&s);
}

static void refused(job j, const char *sentence)
{
    char expected[256];
    snprintf(expected, sizeof expected, "%s: %s", j.o.checkpoint, sentence);
    if (run(&j, 2) != WO_ERR_ARGUMENT || strcmp(j.errs[0].text, expected) != 0)
        fail_msg("%d: \"%s\", expected \"%s\"", j.statuses[0], j.errs[0].text, expected);
    assert_int_equal(j.statuses[1], WO_ERR_CANCELLED);
}

static void another_build_is_refused(void **state)
{
    (void)state;
    scene s = make_scene(29, 20, 300, true, 3), layer = make_scene(29, 20, 300, true, 4), log = s;
    wo_error err;
    job j = job_of(&s, 1);
    assert_int_equal(run(&j, 2), WO_OK);
    j.o.resume = 1;
    job other = j;
    other.o.lambda = 0.3;
    refused(other, "it is of a build with other options, and does not go on with these: lambda differs");
    other = j;
    other.o.seed = (1ULL << 60) + 1;
    refused(other, "it is of a build with other options, and does not go on with these: seed differs");
    other = j;
    other.s = &layer;
    refused(other, "it is of a build with another layer, and does not go on with this");
    other = j;
    other.s = &log;
    if (wo_log_wrap(s.q, 299, 20, s.indptr, s.labels, &log.log, &err)) fail_msg("%s", err.text);
    refused(other, "it is of a build with another log, and does not go on with this");
    /* Without resume it begins anew, and takes the other one's place. */
    other.o.resume = 0;
    assert_int_equal(run(&other, 2), WO_OK);
    refused(j, "it is of a build with another log, and does not go on with this");
    wo_log_free(log.log);
    free_scene(&s);
    free_scene(&layer);
}

static void what_is_not_ours_stays(void **state)
{
    (void)state;
    scene s = make_scene(29, 20, 300, true, 3);
    job j = job_of(&s, 0);
    wo_error err;
    for (int empty = 0; empty < 2; empty++)
        for (int resume = 0; resume < 2; resume++) {
            j.o.resume = (uint8_t)resume;
            scratch_write("checkpoint", "a letter", empty ? 0 : 8);
            assert_int_equal(run(&j, 2), WO_ERR_IO);
            assert_non_null(strstr(j.errs[0].text, "checkpoint: exists and is no checkpoint of a build of wideout's"));
            assert_int_equal(wo_build_forget(j.o.checkpoint, &err), WO_ERR_IO);
            size_t bytes;
            free(slurp(j.o.checkpoint, &bytes));
            assert_int_equal(bytes, empty ? 0 : 8);
        }
    assert_int_equal(unlink(j.o.checkpoint), 0);
    assert_int_equal(wo_build_forget(j.o.checkpoint, &err), WO_OK);
    j.o.checkpoint = "/nowhere/checkpoint";
    assert_int_equal(run(&j, 2), WO_ERR_IO);
    assert_string_equal(j.errs[0].text, "/nowhere/checkpoint: cannot create: No such file or directory");
    assert_int_equal(j.errs[0].about, WO_ABOUT_NONE);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_anywhere_the_bytes_are_the_same),
        cmocka_unit_test(a_tree_of_rows_goes_on_too),
        cmocka_unit_test(nothing_is_asked_twice),
        cmocka_unit_test(a_torn_record_is_found_again),
        cmocka_unit_test(another_build_is_refused),
        cmocka_unit_test(what_is_not_ours_stays),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
