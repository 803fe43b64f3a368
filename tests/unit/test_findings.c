/* Builds that are stopped and go on: the same bytes, nothing asked twice, and nothing taken from another build. */
#include "index_files.h"
#include "together.h"

#include "build/findings.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

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
            assert_non_null(
                strstr(j.errs[0].text,
                       "the checkpoint is damaged: its header is cut off: remove it, or build without resume"));
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
    assert_non_null(strstr(j.errs[0].text, "the checkpoint is damaged: the checksum of its header differs: remove it, "
                                           "or build without resume"));
    free(whole);
    free_scene(&s);
}

static void refused(job j, const char *sentence)
{
    if (run(&j, 2) != WO_ERR_ARGUMENT || strcmp(j.errs[0].text, sentence) != 0)
        fail_msg("%d: \"%s\", expected \"%s\"", j.statuses[0], j.errs[0].text, sentence);
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
    refused(other, "the checkpoint is of a build with other options, and does not go on with these: lambda differs");
    other = j;
    other.o.seed = (1ULL << 60) + 1;
    refused(other, "the checkpoint is of a build with other options, and does not go on with these: seed differs");
    other = j;
    other.s = &layer;
    refused(other, "the checkpoint is of a build with another layer, and does not go on with this");
    other = j;
    other.s = &log;
    if (wo_log_wrap(s.q, 299, 20, s.indptr, s.labels, &log.log, &err)) fail_msg("%s", err.text);
    refused(other, "the checkpoint is of a build with another log, and does not go on with this");
    /* Without resume it begins anew, and takes the other one's place. */
    other.o.resume = 0;
    assert_int_equal(run(&other, 2), WO_OK);
    refused(j, "the checkpoint is of a build with another log, and does not go on with this");
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
            assert_non_null(strstr(j.errs[0].text, "the file exists and is no checkpoint of a build of wideout's"));
            assert_int_equal(wo_build_forget(j.o.checkpoint, &err), WO_ERR_IO);
            size_t bytes;
            free(slurp(j.o.checkpoint, &bytes));
            assert_int_equal(bytes, empty ? 0 : 8);
        }
    assert_int_equal(unlink(j.o.checkpoint), 0);
    assert_int_equal(wo_build_forget(j.o.checkpoint, &err), WO_OK);
    j.o.checkpoint = "/nowhere/checkpoint";
    assert_int_equal(run(&j, 2), WO_ERR_IO);
    assert_string_equal(j.errs[0].text, "the file cannot be created: No such file or directory");
    assert_int_equal(j.errs[0].about, WO_ABOUT_OPTION);
    assert_string_equal(j.errs[0].option, "checkpoint");
    free_scene(&s);
}

/* ---- Files that are signed, and not what a build wrote ------------------------------------------------------- */

enum { HEADER = 632, FRAME = sizeof(uint64_t), ROUTER = 1 };

/* A record of a file: where its bytes are, and how many. */
typedef struct record {
    char *data;
    uint64_t bytes;
} record;

static record record_of(char *file, size_t bytes, size_t number)
{
    record r = {file + HEADER - FRAME, 0};
    for (size_t i = 0; i <= number; i++) {
        r.data += r.bytes + 2 * FRAME;
        if (r.data >= file + bytes) return (record){NULL, 0};
        memcpy(&r.bytes, r.data - FRAME, sizeof r.bytes);
    }
    return r;
}

/* The checkpoint with all before that record, and in its place another one of `size` bytes of data. */
static void forge(char *file, size_t bytes, size_t number, const char *data, uint64_t size)
{
    const record old = record_of(file, bytes, number);
    const size_t before = (size_t)(old.data - file) - FRAME;
    char *made = room(1, before + size + 2 * FRAME);
    memcpy(made, file, before);
    memcpy(made + before, &size, FRAME);
    memcpy(made + before + FRAME, data, size);
    const uint64_t hash = XXH3_64bits_withSeed(made + before, FRAME + size, number);
    memcpy(made + before + FRAME + size, &hash, FRAME);
    scratch_write("checkpoint", made, before + size + 2 * FRAME);
    free(made);
}

static void assert_damaged(job j, size_t number, int size)
{
    char expected[256];
    snprintf(expected, sizeof expected,
             "the checkpoint is damaged: result %zu is none of this build: remove it, or build without resume",
             number + 1);
    run(&j, size);
    for (int r = 0; r < size; r++) {
        if (j.statuses[r] != WO_ERR_FORMAT || strcmp(j.errs[r].text, expected) != 0)
            fail_msg("rank %d: %d: \"%s\", expected \"%s\"", r, j.statuses[r], j.errs[r].text, expected);
        assert_int_equal(j.errs[r].about, WO_ABOUT_OPTION);
        assert_string_equal(j.errs[r].option, "checkpoint");
    }
}

/* The checkpoint of a build, all of it; the caller frees it. */
static char *finished(job *j, size_t *bytes)
{
    j->o.resume = 0;
    assert_int_equal(run(j, 1), WO_OK);
    j->o.resume = 1;
    return slurp(j->o.checkpoint, bytes);
}

static void a_record_has_the_bytes_that_are_asked_for(void **state)
{
    (void)state;
    scene s = make_scene(29, 20, 300, true, 3);
    for (int which = 0; which < N_JOBS; which++) {
        job j = job_of(&s, which);
        char one[128];
        snprintf(one, sizeof one, "%s/one", scratch_folder);
        build_one(j, one);
        size_t bytes, n = 0;
        char *file = finished(&j, &bytes);
        for (record r; (r = record_of(file, bytes, n)).data; n++) {
            char *longer = room(1, r.bytes + 4);
            memcpy(longer, r.data, r.bytes);
            forge(file, bytes, n, longer, r.bytes + 4);
            assert_damaged(j, n, 2);
            forge(file, bytes, n, longer, r.bytes - 4);
            assert_damaged(j, n, 2);
            forge(file, bytes, n, longer, 1);
            assert_damaged(j, n, 1);
            forge(file, bytes, n, longer, r.bytes);
            assert_int_equal(run(&j, 1), WO_OK);
            assert_same_file(one, j.paths[0]);
            free(longer);
        }
        assert_true(n >= (which == 3 ? 1 : 3));
        free(file);
    }
    free_scene(&s);
}

/* The arrays of a router's record. */
typedef enum part { STARTS, BASIS_SCALES, NODE_SCALES, NODE_OFFSETS, LEAF_SCALES, LEAF_OFFSETS, PLANES, OFFSETS } part;

enum { A = 16, N_PLANES = 16 }; /* of the jobs' routers: 1 or 3 nodes, and 12 planes, rounded up */

/* Where they begin: see woi_router_pieces. */
static char *part_of(const job *j, int which, record r, part p)
{
    const size_t d = j->s->d, axes = which == 2 ? j->o.route_d : d;
    if (which == 0) {
        assert_int_equal(r.bytes, (d + 1) * N_PLANES * sizeof(float));
        return r.data + (p == OFFSETS ? d * N_PLANES * sizeof(float) : 0);
    }
    uint32_t cells;
    memcpy(&cells, r.data + A * sizeof cells, sizeof cells);
    const size_t sizes[] = {(A + 1) * sizeof cells,
                            which == 2 ? axes * d : 0,
                            which == 2 ? axes * sizeof(float) : 0,
                            A * axes,
                            A * sizeof(float),
                            A * sizeof(float),
                            cells * axes,
                            cells * sizeof(float),
                            cells * sizeof(float),
                            sizeof(float)};
    static const size_t before[] = {
        [STARTS] = 0, [BASIS_SCALES] = 2, [NODE_SCALES] = 4, [NODE_OFFSETS] = 5, [LEAF_SCALES] = 7, [LEAF_OFFSETS] = 8};
    size_t at = 0, all = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (i == before[p]) at = all;
        all += sizes[i];
    }
    assert_int_equal(r.bytes, all); /* each array once */
    return r.data + at;
}

static void a_router_that_nobody_learned_is_refused(void **state)
{
    (void)state;
    scene s = make_scene(29, 20, 300, true, 3);
    const struct {
        int which;
        part p;
        size_t first, n; /* numbers that are another */
        double value;
    } cases[] = {
        {1, STARTS, 0, 1, 16},
        {1, STARTS, 1, 1, 1},
        {1, STARTS, 1, 1, 1 << 20},
        {1, STARTS, 16, 1, 0},
        {1, STARTS, 16, 1, 65536},
        {1, STARTS, 0, 17, 0},
        {1, NODE_SCALES, 0, 1, NAN},
        {1, NODE_SCALES, 0, 1, -0.001},
        {1, NODE_SCALES, 15, 1, INFINITY},
        {1, NODE_OFFSETS, 0, 1, NAN},
        {1, NODE_OFFSETS, 0, 1, INFINITY},
        {1, NODE_OFFSETS, 0, 1, -1e30},
        {1, NODE_OFFSETS, 0, 1, -INFINITY},
        {1, NODE_OFFSETS, 15, 1, 0},
        {1, NODE_OFFSETS, 0, 16, -INFINITY},
        {1, LEAF_SCALES, 0, 1, NAN},
        {1, LEAF_SCALES, 0, 1, 1e30},
        {1, LEAF_OFFSETS, 0, 1, NAN},
        {1, LEAF_OFFSETS, 0, 1, 1},
        {1, LEAF_OFFSETS, 0, 16, -INFINITY},
        {2, BASIS_SCALES, 0, 1, NAN},
        {2, BASIS_SCALES, 15, 1, 1e30},
        {2, LEAF_OFFSETS, 0, 1, NAN},
        {0, PLANES, 0, 1, NAN},
        {0, PLANES, 319, 1, INFINITY},
        {0, OFFSETS, 0, 1, NAN},
        {0, OFFSETS, 15, 1, -INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = job_of(&s, cases[i].which);
        size_t bytes;
        char *file = finished(&j, &bytes);
        const record r = record_of(file, bytes, ROUTER);
        char *at = part_of(&j, cases[i].which, r, cases[i].p) + 4 * cases[i].first;
        for (size_t k = 0; k < cases[i].n; k++, at += 4) {
            const float number = (float)cases[i].value;
            const uint32_t start = cases[i].p == STARTS ? (uint32_t)cases[i].value : 0;
            memcpy(at, cases[i].p == STARTS ? (const void *)&start : &number, 4);
        }
        forge(file, bytes, ROUTER, r.data, r.bytes);
        assert_damaged(j, ROUTER, 1);
        free(file);
    }
    free_scene(&s);
}

/* FULL's best of a query are different classes: cells would have one twice. */
static void classes_that_stand_twice_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(29, 20, 300, true, 3);
    job j = job_of(&s, 1);
    size_t bytes;
    char *file = finished(&j, &bytes);
    const record r = record_of(file, bytes, 0);
    const int32_t values[] = {29, -2, 0};
    for (size_t i = 0; i < 3; i++) {
        int32_t ids[3];
        memcpy(ids, r.data, sizeof ids);
        const int32_t old = ids[1];
        ids[1] = i == 2 ? ids[0] : values[i];
        memcpy(r.data, ids, sizeof ids);
        forge(file, bytes, 0, r.data, r.bytes);
        assert_damaged(j, 0, 1);
        ids[1] = old;
        memcpy(r.data, ids, sizeof ids);
    }
    free(file);
    free_scene(&s);
}

static size_t largest; /* allocation so far */

static void *noting_alloc(void *ctx, size_t bytes, size_t align)
{
    if (bytes > largest) largest = bytes;
    return failing_alloc(ctx, bytes, align);
}

/* Starts may claim millions of leaves: a record has not the bytes for them. */
static void memory_is_in_proportion_to_a_record(void **state)
{
    (void)state;
    assert_int_equal(wo_allocator_set(&(wo_allocator){noting_alloc, failing_release, NULL}), WO_OK);
    scene s = make_scene(29, 20, 300, true, 3);
    job j = job_of(&s, 1);
    size_t bytes;
    char *file = finished(&j, &bytes);
    const size_t usual = largest;
    const record r = record_of(file, bytes, ROUTER);
    for (uint32_t a = 0; a <= A; a++) {
        const uint32_t start = a * 65536;
        memcpy(r.data + a * sizeof start, &start, sizeof start);
    }
    forge(file, bytes, ROUTER, r.data, r.bytes);
    assert_damaged(j, ROUTER, 1);
    assert_int_equal(largest, usual);
    free(file);
    free_scene(&s);
    wo_allocator_set(NULL);
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
        cmocka_unit_test(a_record_has_the_bytes_that_are_asked_for),
        cmocka_unit_test(a_router_that_nobody_learned_is_refused),
        cmocka_unit_test(classes_that_stand_twice_are_refused),
        cmocka_unit_test(memory_is_in_proportion_to_a_record),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
