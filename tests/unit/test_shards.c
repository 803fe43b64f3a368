/* Shards: layers in parts, indexes that several ranks build together, and one index made of them. */
#include "index_files.h"
#include "together.h"
#include "search/routed.h"
#include "signing.h"

#include <sys/resource.h>
#include <sys/stat.h>

/* ---- Layers ------------------------------------------------------------------------------------------------ */

static void a_part_is_a_range(void **state)
{
    (void)state;
    scene s = make_scene(10, 4, 20, true, 1);
    wo_error err;
    wo_layer_info info = {.struct_size = sizeof info};
    wo_layer_describe(s.layer, &info);
    const uint64_t checksum = info.checksum;
    name_classes(&s);
    assert_int_equal(wo_layer_take_part(s.layer, 3, 3, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "there is no part 3 of 3");
    assert_int_equal(wo_layer_take_part(s.layer, 0, 11, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_layer_take_part(s.layer, 1, 3, &err), WO_OK);
    wo_layer_describe(s.layer, &info);
    assert_int_equal(info.m, 3);
    assert_int_equal(info.m_whole, 10);
    assert_int_equal(info.shard, 1);
    assert_int_equal(info.n_shards, 3);
    assert_true(info.checksum == checksum);
    assert_int_equal(s.layer->shard.classes[0], 3);
    assert_ptr_equal(s.layer->dense.w, s.w + 3 * 4);
    assert_memory_equal(woi_names_get(&s.layer->labels, 1), "class 16", 8);
    assert_int_equal(wo_layer_take_part(s.layer, 0, 2, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the layer is shard 2 of 3 already");
    free_scene(&s);
}

static uint64_t dealing_of(const char *path)
{
    wo_layer *layer = NULL;
    wo_error err;
    wo_layer_info info = {.struct_size = sizeof info};
    if (wo_layer_open(path, NULL, &layer, &err)) fail_msg("%s", err.text);
    wo_layer_describe(layer, &info);
    wo_layer_free(layer);
    return info.dealing;
}

/* A file in BF16, opened as a part: the copy has the rows of the part alone, and all is as of a part that was taken. */
static void a_part_is_converted_alone(void **state)
{
    (void)state;
    enum { M = 1000, D = 24, FIRST = 333, N = 333 };
    static uint16_t halves[M * D], biases[M];
    static float w[M * D], b[M];
    for (int i = 0; i < M * D; i++) halves[i] = (uint16_t)(0x3f80 + i % 97);
    for (int i = 0; i < M; i++) biases[i] = (uint16_t)(0x3f00 + i % 31);
    for (int i = 0; i < M * D; i++) memcpy(&w[i], &(uint32_t){(uint32_t)halves[i] << 16}, sizeof *w);
    for (int i = 0; i < M; i++) memcpy(&b[i], &(uint32_t){(uint32_t)biases[i] << 16}, sizeof *b);
    char path[96];
    snprintf(path, sizeof path, "%s/halves", scratch_folder);
    woi_st_writer *writer = NULL;
    wo_error err;
    wo_layer *whole = NULL, *part = NULL;
    const char *names[M];
    for (int i = 0; i < M; i++) names[i] = i == FIRST + 1 ? "the second" : "another";
    assert_int_equal(woi_st_create(path, "layer", &writer, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "weight", WOI_BF16, 2, (const uint64_t[]){M, D}, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "bias", WOI_BF16, 1, (const uint64_t[]){M}, &err), WO_OK);
    assert_int_equal(woi_st_append(writer, halves, sizeof halves, &err), WO_OK);
    assert_int_equal(woi_st_append(writer, biases, sizeof biases, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    const wo_layer_options o = {.struct_size = sizeof o, .part = 1, .n_parts = 3};
    if (wo_layer_open(path, &o, &part, &err)) fail_msg("%s", err.text);
    assert_int_equal(wo_layer_open(path, NULL, &whole, &err), WO_OK);
    assert_true(part->part_w && part->part_b);
    assert_ptr_equal(part->dense.w, part->copy_w);
    assert_int_equal(part->dense.m, N);
    assert_memory_equal(part->dense.w, w + FIRST * D, N * D * sizeof *w);
    assert_memory_equal(part->dense.b, b + FIRST, N * sizeof *b);
    assert_true(part->checksum == whole->checksum);
    assert_int_equal(wo_layer_set_names(part, names, M, &err), WO_OK);
    assert_int_equal(wo_layer_set_names(whole, names, M, &err), WO_OK);
    assert_memory_equal(woi_names_get(&part->labels, 1), "the second", 10);
    assert_int_equal(wo_layer_take_part(whole, 1, 3, &err), WO_OK);
    assert_true(part->shard.dealing == whole->shard.dealing);
    wo_layer_free(part);
    const wo_layer_options many = {.struct_size = sizeof many, .part = 1, .n_parts = M + 1};
    assert_int_equal(wo_layer_open(path, &many, &part, &err), WO_ERR_ARGUMENT);
    assert_null(part);

    /* Who reads all of it finds what each part finds that reads its own rows. */
    uint64_t found[3] = {0}, parts[3] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        wo_layer_options one = {.struct_size = sizeof one, .part = i, .n_parts = 3, .part_checksums = found};
        assert_int_equal(wo_layer_open(path, &one, &part, &err), WO_OK);
        wo_layer_free(part);
        one.part_checksums = parts;
        one.checksum = whole->checksum;
        assert_int_equal(wo_layer_open(path, &one, &part, &err), WO_OK);
        wo_layer_free(part);
        assert_true(parts[i] == found[i] && found[i] != found[(i + 1) % 3]);
        for (uint32_t j = i + 1; j < 3; j++) assert_int_equal(parts[j], 0);
    }

    /* With the checksum of the whole the other rows are not looked at: here one of them has changed. */
    const wo_layer_options told = {
        .struct_size = sizeof told, .part = 1, .n_parts = 3, .checksum = whole->checksum, .part_checksums = parts};
    struct stat about;
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &about), 0);
    assert_int_equal(fseek(file, about.st_size - (long)(sizeof halves + sizeof biases) + 8, SEEK_SET), 0);
    assert_int_equal(fputc(0x55, file), 0x55);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(wo_layer_open(path, &o, &part, &err), WO_ERR_CHECKSUM);
    if (wo_layer_open(path, &told, &part, &err)) fail_msg("%s", err.text);
    assert_memory_equal(part->dense.w, w + FIRST * D, N * D * sizeof *w);
    assert_memory_equal(part->dense.b, b + FIRST, N * sizeof *b);
    assert_true(part->checksum == whole->checksum && parts[1] == found[1]);
    wo_layer_free(part);
    /* Of its own rows a change is seen in their checksum: of a row, of a bias. */
    const long before_end[] = {(long)sizeof biases + (long)((M - FIRST) * D) * 2 - 8, (long)(M - FIRST) * 2 - 8};
    for (int i = 0; i < 2; i++) {
        assert_non_null(file = fopen(path, "r+"));
        assert_int_equal(fseek(file, about.st_size - before_end[i], SEEK_SET), 0);
        assert_int_equal(fputc(0x55, file), 0x55);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(wo_layer_open(path, &told, &part, &err), WO_OK);
        wo_layer_free(part);
        assert_true(parts[1] != found[1]);
        found[1] = parts[1];
    }
    wo_layer_free(whole);
}

/* Calls that were stopped are repeated: what is complete, and of this dealing, stays as it is. */
static void complete_shards_stay(void **state)
{
    (void)state;
    scene s = make_scene(7, 4, 0, true, 1);
    char paths[3][96];
    wo_error err;
    struct stat before[3], after[3];
    for (int i = 0; i < 3; i++) snprintf(paths[i], sizeof paths[i], "%s/kept%d", scratch_folder, i);
    const char *const to[] = {paths[0], paths[1], paths[2]};
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 3, 1, &err), WO_OK);
    FILE *file = fopen(paths[1], "r+b"); /* the last number of another one is not what its checksum says */
    fseek(file, -1, SEEK_END);
    fputc(0x55, file);
    fclose(file);
    unlink(paths[2]);
    for (int i = 0; i < 2; i++) stat(paths[i], &before[i]);
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 3, 1, &err), WO_OK);
    for (int i = 0; i < 3; i++) stat(paths[i], &after[i]);
    assert_true(before[0].st_ino == after[0].st_ino && before[1].st_ino != after[1].st_ino);
    for (int i = 0; i < 3; i++) assert_true(dealing_of(paths[i]) == dealing_of(paths[0]));
    name_classes(&s); /* another dealing */
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 3, 1, &err), WO_OK);
    stat(paths[0], &before[0]);
    assert_true(before[0].st_ino != after[0].st_ino);
    free_scene(&s);
}

/* What cannot be is said before the first file is written. */
static void outputs_are_checked_before_work(void **state)
{
    (void)state;
    enum { MANY = 60 };
    scene s = make_scene(MANY, 4, 0, true, 1);
    char paths[MANY][96], twice[4][128];
    const char *to[MANY];
    wo_error err;
    for (int i = 0; i < MANY; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/many%d", scratch_folder, i);
        to[i] = paths[i];
    }
    /* One file under four names: its own, one more slash, through a link to it and to its folder. */
    snprintf(twice[0], sizeof twice[0], "%s/many5", scratch_folder);
    snprintf(twice[1], sizeof twice[1], "%s//many5", scratch_folder);
    snprintf(twice[2], sizeof twice[2], "%s/link", scratch_folder);
    snprintf(twice[3], sizeof twice[3], "%s/folder/many5", scratch_folder);
    assert_int_equal(symlink(paths[5], twice[2]), 0);
    char folder[96];
    snprintf(folder, sizeof folder, "%s/folder", scratch_folder);
    assert_int_equal(symlink(".", folder), 0);
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 8, 0, &err), WO_OK); /* a link leads to a file */
    for (int i = 0; i < 8; i++) unlink(paths[i]);
    for (int i = 0; i < 8; i++) {
        FILE *file = i == 2 ? fopen(paths[5], "w") : NULL;
        if (file) fclose(file);
        to[7] = twice[i % 4];
        assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 8, i / 4, &err), WO_ERR_ARGUMENT);
        assert_string_equal(err.text, "outputs 6 and 8 of 8 are one file: one would replace the other");
        assert_int_equal(err.about, WO_ABOUT_OUTPUT);
        assert_int_not_equal(access(paths[0], F_OK), 0);
    }
    to[7] = NULL;
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 8, 0, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the name of output 8 is NULL");
    to[7] = paths[7];
    /* Fewer descriptors than files; with `resume` there is one file at a time. */
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = MANY;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, MANY, 0, &err), WO_ERR_IO);
    assert_non_null(strstr(err.text, "60 files are to be open at once, until all are complete, but of the 60 desc"));
    assert_int_not_equal(access(paths[0], F_OK), 0);
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, MANY, 1, &err), WO_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, MANY, 0, &err), WO_OK);
    free_scene(&s);
}

static void frequent_classes_are_dealt_out_first(void **state)
{
    (void)state;
    scene s = make_scene(7, 4, 0, true, 1);
    const float q[4 * 4] = {0};
    const int64_t indptr[] = {0, 3, 5, 6, 7};
    const int32_t labels[] = {5, 2, 6, 5, 2, 5, 0}; /* 5 three times, 2 twice, 0 and 6 once */
    wo_log *log = NULL;
    wo_error err;
    assert_int_equal(wo_log_wrap(q, 4, 4, indptr, labels, &log, &err), WO_OK);
    char paths[2][96];
    for (int i = 0; i < 2; i++) snprintf(paths[i], sizeof paths[i], "%s/part%d", scratch_folder, i);
    const char *const to[] = {paths[0], paths[1]};
    assert_int_equal(wo_layer_save_shards(s.layer, log, to, 2, 0, &err), WO_OK);
    /* The order is 5 2 0 6 1 3 4. */
    const int32_t expected[2][4] = {{0, 1, 4, 5}, {2, 3, 6}};
    for (int i = 0; i < 2; i++) {
        wo_layer *part = NULL;
        if (wo_layer_open(to[i], NULL, &part, &err)) fail_msg("%s", err.text);
        assert_int_equal(wo_layer_m(part), 4 - i);
        assert_memory_equal(part->shard.classes, expected[i], (size_t)(4 - i) * sizeof(int32_t));
        assert_true(part->checksum == s.layer->checksum);
        for (int j = 0; j < 4 - i; j++) {
            assert_memory_equal(part->dense.w + j * 4, s.w + expected[i][j] * 4, 4 * sizeof(float));
            assert_true(part->dense.b[j] == s.b[expected[i][j]]);
        }
        wo_layer_free(part);
    }
    /* Two dealings have two digests, and so has one with names. */
    const uint64_t first = dealing_of(to[0]);
    assert_true(first && first == dealing_of(to[1]));
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 2, 0, &err), WO_OK);
    const uint64_t second = dealing_of(to[0]);
    name_classes(&s);
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 2, 0, &err), WO_OK);
    assert_true(second && second != first && dealing_of(to[1]) != second);
    /* A shard's file takes the names of all classes: those that have them again are of one dealing again. */
    const char *names[7];
    char texts[7][24];
    uint64_t renamed[2];
    for (int i = 0; i < 7; i++) {
        snprintf(texts[i], sizeof texts[i], "number %d", i);
        names[i] = texts[i];
    }
    for (int i = 0; i < 2; i++) {
        wo_layer *part = NULL;
        wo_layer_info info = {.struct_size = sizeof info};
        assert_int_equal(wo_layer_open(to[i], NULL, &part, &err), WO_OK);
        assert_int_equal(wo_layer_set_names(part, names, wo_layer_m(part), &err), WO_ERR_ARGUMENT);
        assert_int_equal(wo_layer_set_names(part, names, 7, &err), WO_OK);
        for (int32_t j = 0; j < part->labels.n; j++)
            assert_memory_equal(woi_names_get(&part->labels, j), texts[part->shard.classes[j]], 8);
        assert_int_equal(part->labels.n, wo_layer_m(part));
        wo_layer_describe(part, &info);
        renamed[i] = info.dealing;
        wo_layer_free(part);
    }
    assert_true(renamed[0] && renamed[0] == renamed[1] && renamed[0] != dealing_of(to[0]));
    assert_int_equal(wo_layer_save_shards(s.layer, NULL, to, 8, 0, &err), WO_ERR_ARGUMENT);
    wo_log_free(log);
    free_scene(&s);
}

/* ---- Answers ----------------------------------------------------------------------------------------------- */

typedef struct merging {
    int32_t ids[3][4];
    float scores[3][4];
    double sums[3][4];
    wo_status statuses[3];
} merging;

static void merge_work(const wo_collective *calls, void *ctx)
{
    merging *m = ctx;
    const int r = calls->rank;
    m->statuses[r] = wo_merge_best(calls,
                                   &(wo_answers){.struct_size = sizeof(wo_answers),
                                                 .n = 2,
                                                 .k = 2,
                                                 .ids = m->ids[r],
                                                 .scores = m->scores[r],
                                                 .log_sums = m->sums[r]},
                                   NULL);
}

static void the_best_of_all_are_kept(void **state)
{
    (void)state;
    merging m = {.ids = {{8, 1, -1, -1}, {3, 4, 7, -1}, {2, -1, -1, -1}},
                 .scores = {{5, 1, -INFINITY, -INFINITY}, {5, 2, -3, -INFINITY}, {4, -INFINITY, -INFINITY, -INFINITY}},
                 .sums = {{5, 0, -INFINITY, 0}, {4, 1, -3, 0}, {4, 0, -INFINITY, 0}}};
    run_together(3, merge_work, &m);
    const double sum = log(exp(5) + exp(5) + exp(4));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(m.statuses[r], WO_OK);
        const int32_t ids[] = {3, 8, 7, -1}; /* of equal scores the lower id */
        const float scores[] = {5, 5, -3, -INFINITY};
        assert_memory_equal(m.ids[r], ids, sizeof ids);
        assert_memory_equal(m.scores[r], scores, sizeof scores);
        assert_true(fabs(m.sums[r][0] + m.sums[r][1] - sum) < 1e-12);
        assert_true(m.sums[r][2] + m.sums[r][3] == -3);
    }
}

/* ---- Indexes ----------------------------------------------------------------------------------------------- */

typedef struct building {
    const scene *s;
    wo_build_options o;
    /* Of rank 1's shard: by how much its first class is another, how many of the last ones are missing, how many more
     * its layer is said to have. */
    int32_t shift;
    size_t fewer, more;
    char paths[MOST_RANKS][96];
    wo_status statuses[MOST_RANKS];
    wo_error errs[MOST_RANKS];
} building;

static void build_work(const wo_collective *calls, void *ctx)
{
    building *b = ctx;
    const int r = calls->rank;
    wo_error *err = &b->errs[r];
    wo_build_options o = b->o;
    wo_layer *layer = NULL;
    wo_index *index = NULL;
    o.together = calls;
    wo_status status = wo_layer_wrap(b->s->w, b->s->b, b->s->m, b->s->d, &layer, err);
    if (!status) status = wo_layer_take_part(layer, (uint32_t)r, (uint32_t)calls->size, err);
    if (!status && r == 1) {
        layer->shard.owned[0] += b->shift;
        layer->dense.m -= b->fewer;
        layer->shard.m += b->more;
    }
    if (!status) status = wo_index_build(layer, b->s->log, &o, &index, err);
    if (!status) status = wo_index_save_together(index, b->paths[r], calls, err);
    wo_index_free(index);
    wo_layer_free(layer);
    b->statuses[r] = status;
}

static void build_together(building *b, int size)
{
    for (int r = 0; r < size; r++)
        snprintf(b->paths[r], sizeof b->paths[r], "%s/index-%d-of-%d", scratch_folder, r, size);
    run_together(size, build_work, b);
    for (int r = 0; r < size; r++)
        if (b->statuses[r]) fail_msg("rank %d: %s", r, b->errs[r].text);
}

static wo_build_options options_of(int method)
{
    wo_build_options o;
    wo_build_defaults(method == EVIDENCE_BY_TREE ? WO_METHOD_EVIDENCE : (wo_method)method, &o, sizeof o);
    o.threads = 1;
    o.K = 4;
    o.L = 3;
    o.iterations = 60;
    o.n_popular = 9;
    o.router = method == EVIDENCE_BY_TREE ? WO_ROUTER_TREE : WO_ROUTER_HASH;
    if (method == EVIDENCE_BY_TREE) {
        o.route_d = 16;
        o.nodes = 3;
        o.leaves = 5;
        o.prior = 0.5;
        o.cap = 4;
        o.spread = 1;
    }
    return o;
}

static void shards_joined_are_the_index_of_one_process(void **state)
{
    (void)state;
    scene s = make_scene(61, 20, 300, true, 3);
    wo_error err;
    for (size_t i = 0; i < N_METHODS; i++) {
        building b = {.s = &s, .o = options_of(methods[i])};
        wo_index *one = build(&s, &b.o);
        save(one, scratch("one"));
        for (int size = 1; size <= 4; size++) {
            build_together(&b, size);
            const char *paths[MOST_RANKS];
            for (int r = 0; r < size; r++) paths[r] = b.paths[size - 1 - r]; /* in any order */
            if (size == 1) {
                assert_same_file(scratch("one"), paths[0]);
                continue;
            }
            if (wo_index_join(paths, (size_t)size, scratch("joined"), &err)) fail_msg("%s", err.text);
            assert_same_file(scratch("one"), scratch("joined"));
        }
        wo_index_free(one);
    }
    free_scene(&s);
}

/* Each shard by itself: classes of the whole layer, in answers and in what is asked. */
static void a_shard_speaks_of_the_whole_layer(void **state)
{
    (void)state;
    scene s = make_scene(30, 6, 40, true, 4);
    building b = {.s = &s, .o = options_of(WO_METHOD_FULL)};
    wo_error err;
    build_together(&b, 3);
    wo_index *shard = open_index(b.paths[1], NULL);
    wo_index_info info = {.struct_size = sizeof info};
    wo_index_describe(shard, &info);
    assert_int_equal(info.m, 10);
    assert_int_equal(info.m_whole, 30);
    assert_int_equal(info.shard, 1);
    assert_int_equal(info.n_shards, 3);
    wo_searcher *searcher = NULL;
    assert_int_equal(wo_searcher_create(shard, NULL, &searcher, &err), WO_OK);
    int32_t ids[10];
    float scores[10];
    const int32_t forbidden[] = {3, 12, 29};
    double sums[2];
    wo_search_call call = {.struct_size = sizeof call,
                           .queries = s.q,
                           .n = 1,
                           .k = 10,
                           .ids = ids,
                           .scores = scores,
                           .log_sums = sums,
                           .forbidden = forbidden,
                           .n_forbidden = 3};
    assert_int_equal(wo_search_run(searcher, &call, &err), WO_OK);
    double sum = 0;
    assert_int_equal(ids[9], -1);
    for (int i = 0; i < 9; i++) {
        assert_in_range(ids[i], 10, 19);
        assert_int_not_equal(ids[i], 12);
        assert_true((double)scores[i] == logit(&s, s.q, (size_t)ids[i]));
        sum += exp((double)scores[i]);
    }
    assert_true(fabs(sums[0] + sums[1] - log(sum)) < 1e-6);
    int32_t listed[10];
    size_t n;
    assert_int_equal(wo_search_candidates(searcher,
                                          &(wo_search_call){.struct_size = sizeof call, .queries = s.q, .n = 1}, listed,
                                          10, &n, &err),
                     WO_OK);
    assert_int_equal(n, 10);
    assert_int_equal(listed[0], 10);
    call.n_forbidden = 0;
    call.mandatory = forbidden;
    call.n_mandatory = 1;
    assert_int_equal(wo_search_run(searcher, &call, &err), WO_OK); /* FULL scores all, and 3 is another shard's */
    call.logit_bias = scores;
    assert_int_equal(wo_search_run(searcher, &call, &err), WO_ERR_UNSUPPORTED);
    assert_int_equal(wo_score(searcher, s.q, forbidden, 1, scores, &err), WO_ERR_UNSUPPORTED);
    /* Its rows beside those of a whole layer: a sample alone, as nothing can be judged. */
    wo_layer_check c = {.struct_size = sizeof c, .sample = 1000};
    assert_int_equal(wo_index_check_layer(shard, s.layer, 1, &c, &err), WO_OK);
    assert_true(c.n_changed == 0 && c.n_added == 0);
    for (size_t row = 5; row < 15; row++) s.w[row * s.d] += 1;
    assert_int_equal(wo_index_check_layer(shard, s.layer, 1, &c, &err), WO_OK);
    assert_true(c.n_changed == 5 && c.n_added == 0);
    c.sample = 0;
    assert_int_equal(wo_index_check_layer(shard, s.layer, 1, &c, &err), WO_ERR_UNSUPPORTED);
    wo_searcher_free(searcher);
    wo_index_free(shard);
    free_scene(&s);
}

static void what_does_not_go_together(void **state)
{
    (void)state;
    scene s = make_scene(30, 6, 40, true, 4), other = make_scene(30, 6, 40, true, 5);
    wo_error err;
    building b = {.s = &s, .o = options_of(EVIDENCE_BY_TREE)}, two = b, layer = b;
    b.o.route_d = two.o.route_d = layer.o.route_d = 6;
    two.o.lambda = 0.3;
    layer.s = &other;
    build_together(&b, 2);
    char kept[96];
    snprintf(kept, sizeof kept, "%s/kept", scratch_folder);
    assert_int_equal(rename(b.paths[0], kept), 0);
    build_together(&two, 2);
    const char *mixed[] = {kept, two.paths[1]}, *twice[] = {kept, kept};
    assert_int_equal(wo_index_join(mixed, 2, scratch("x"), &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "the shard is of another build than the first one: lambda differs"));
    assert_int_equal(wo_index_join(twice, 2, scratch("x"), &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "shard 1 of 2 is there already"));
    assert_int_equal(wo_index_join(mixed, 1, scratch("x"), &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "the index is shard 1 of 2, but 1 file was given"));
    build_together(&layer, 2);
    const char *layers[] = {kept, layer.paths[1]};
    assert_int_equal(wo_index_join(layers, 2, scratch("x"), &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "the shard is of another layer"));
    assert_int_equal(access(scratch("x"), F_OK), -1);
    /* A shard alone is not built from. */
    wo_index *index = NULL;
    assert_int_equal(wo_layer_take_part(s.layer, 0, 2, &err), WO_OK);
    assert_int_equal(wo_index_build(s.layer, s.log, &b.o, &index, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the layer is shard 1 of 2, but this is process 1 of 1 that build together");
    assert_int_equal(wo_index_tune(s.layer, s.log, NULL, NULL, &index, &err), WO_ERR_UNSUPPORTED);
    wo_eval_result result = {.struct_size = sizeof result};
    wo_index *shard = open_index(kept, NULL);
    assert_int_equal(wo_evaluate(shard, NULL, s.log, NULL, &result, &err), WO_ERR_UNSUPPORTED);
    wo_index_free(shard);
    free_scene(&s);
    free_scene(&other);
}

/* ---- Searches in two steps --------------------------------------------------------------------------------- */

enum { ASKED = 300, OF_EACH = 5 };

typedef struct answered {
    int32_t ids[ASKED * OF_EACH];
    float scores[ASKED * OF_EACH];
    double sums[ASKED * 2];
    wo_query_stats stats[ASKED];
} answered;

/* Records are made in two halves, and answered from. */
static void search_in_two_steps(wo_index *index, const scene *s, wo_search_call call)
{
    static answered whole, stepped;
    wo_searcher *searcher = NULL;
    wo_error err;
    size_t words = 0;
    assert_int_equal(
        wo_searcher_create(
            index, &(wo_searcher_options){.struct_size = sizeof(wo_searcher_options), .threads = 1, .max_probes = 2},
            &searcher, &err),
        WO_OK);
    call.struct_size = sizeof call;
    assert_int_equal(woi_search_words(searcher, &call, &words, &err), WO_OK);
    call.queries = s->q;
    call.n = ASKED;
    call.k = OF_EACH;
    call.ids = whole.ids;
    call.scores = whole.scores;
    call.stats = whole.stats;
    call.stats_bytes = sizeof *whole.stats;
    call.log_sums = whole.sums;
    assert_int_equal(wo_search_run(searcher, &call, &err), WO_OK);
    const bool routed = (index->tree.A || index->hash.K) && (call.by != WO_BY_FULL || index->options.prior > 0);
    assert_int_equal(words > 0, routed);
    uint32_t *routes = malloc(ASKED * words * sizeof *routes + 1);
    for (size_t half = 0; words && half < 2; half++) {
        wo_search_call part = call;
        part.queries = s->q + half * ASKED / 2 * s->d;
        part.n = ASKED / 2;
        assert_int_equal(woi_search_route(searcher, &part, routes + half * ASKED / 2 * words, &err), WO_OK);
    }
    call.ids = stepped.ids;
    call.scores = stepped.scores;
    call.stats = stepped.stats;
    call.log_sums = stepped.sums;
    assert_int_equal(woi_search_routed(searcher, &call, words ? routes : NULL, &err), WO_OK);
    assert_memory_equal(whole.ids, stepped.ids, sizeof whole.ids);
    assert_memory_equal(whole.scores, stepped.scores, sizeof whole.scores);
    assert_memory_equal(whole.sums, stepped.sums, sizeof whole.sums);
    assert_memory_equal(whole.stats, stepped.stats, sizeof whole.stats);
    free(routes);
    wo_searcher_free(searcher);
}

static void answers_by_records_are_the_same(void **state)
{
    (void)state;
    scene s = make_scene(61, 20, ASKED, true, 3);
    s.q[7 * 20 + 3] = NAN;
    for (size_t i = 0; i < N_METHODS; i++) {
        wo_build_options o = options_of(methods[i]);
        if (methods[i] == WO_METHOD_EVIDENCE) o.fallback = 60;
        const float kept = s.q[7 * 20 + 3];
        s.q[7 * 20 + 3] = 0;
        wo_index *index = build(&s, &o);
        s.q[7 * 20 + 3] = kept;
        search_in_two_steps(index, &s, (wo_search_call){.probes = 2});
        search_in_two_steps(index, &s, (wo_search_call){.by = WO_BY_FULL});
        search_in_two_steps(index, &s, (wo_search_call){.no_prior = 1, .exact_fallback = 1});
        wo_index_free(index);
    }
    free_scene(&s);
}

/* ---- Files from strangers ---------------------------------------------------------------------------------- */

/* Replaces `was` in the header by `is`, of the same length, signs again, and opens. */
static wo_status open_changed(const char *path, const char *was, const char *is, wo_error *err)
{
    size_t bytes;
    char *data = slurp(path, &bytes), *at = memmem(data, bytes, was, strlen(was));
    assert_non_null(at);
    memcpy(at, is, strlen(is));
    assert_true(sign((unsigned char *)data, bytes));
    const char *changed = scratch_write("changed", data, bytes);
    free(data);
    wo_index *index = NULL;
    wo_layer *layer = NULL;
    const wo_status status = wo_index_open(changed, NULL, &index, err);
    wo_error other;
    assert_int_equal(wo_layer_open(changed, NULL, &layer, &other) != WO_OK, status != WO_OK); /* by the same reader */
    wo_index_free(index);
    wo_layer_free(layer);
    return status;
}

/* A shard as ours are, but without a class. */
static void an_empty_shard(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } lines[] = {{"shard.number", "1"}, {"shard.count", "2"}, {"shard.m", "9"}, {"layer.xxh3", "0123456789abcdef"}};
    char path[96];
    woi_st_writer *writer = NULL;
    wo_layer *layer = NULL;
    wo_error err;
    snprintf(path, sizeof path, "%s/empty", scratch_folder);
    assert_int_equal(woi_st_create(path, "layer", &writer, &err), WO_OK);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(woi_st_set_meta(writer, lines[i].key, lines[i].value, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "weight", WOI_F32, 2, (const uint64_t[]){0, 4}, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "classes", WOI_I32, 1, (const uint64_t[]){0}, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    assert_int_equal(wo_layer_open(path, NULL, &layer, &err), WO_ERR_FORMAT);
    assert_non_null(strstr(err.text, "a layer of 0 classes and 4 dimensions cannot be"));
    assert_null(layer);
}

static void shards_of_strangers(void **state)
{
    (void)state;
    scene s = make_scene(9, 4, 10, true, 6);
    building b = {.s = &s, .o = options_of(WO_METHOD_FULL)};
    wo_error err;
    build_together(&b, 3);
    const char *path = b.paths[1];
    assert_int_equal(open_changed(path, "\"shard.number\":\"1\"", "\"shard.number\":\"2\"", &err), WO_OK);
    assert_int_equal(open_changed(path, "\"shard.number\":\"1\"", "\"shard.number\":\"3\"", &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "shard 3 of 3, with 3 of 9 classes, cannot be");
    assert_int_equal(open_changed(path, "\"shard.count\":\"3\"", "\"shard.count\":\"0\"", &err), WO_ERR_FORMAT);
    assert_int_equal(open_changed(path, "\"shard.count\":\"3\"", "\"shard.count\":\"x\"", &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "'shard.count' is \"x\", expected a number up to 99999");
    assert_int_equal(open_changed(path, "\"shard.count\"", "\"shard.kount\"", &err), WO_ERR_FORMAT);
    assert_int_equal(open_changed(path, "\"shard.m\":\"9\"", "\"shard.m\":\"2\"", &err), WO_ERR_FORMAT);
    assert_int_equal(open_changed(path, "\"shard.m\":\"9\"", "\"shard.m\":\"5\"", &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "'classes' has 5 at 2: expected rising numbers below 5");
    /* The classes themselves: 3, 4, 5. */
    const int32_t was[] = {3, 4, 5}, bad[][3] = {{3, 3, 5}, {5, 4, 3}, {-1, 4, 5}, {3, 4, 9}};
    for (size_t i = 0; i < 4; i++) {
        size_t bytes;
        char *data = slurp(path, &bytes), *at = memmem(data, bytes, was, sizeof was);
        assert_non_null(at);
        memcpy(at, bad[i], sizeof was);
        assert_true(sign((unsigned char *)data, bytes));
        wo_index *index = NULL;
        assert_int_equal(wo_index_open(scratch_write("changed", data, bytes), NULL, &index, &err), WO_ERR_FORMAT);
        assert_non_null(strstr(err.text, "expected rising numbers below 9"));
        free(data);
    }
    free_scene(&s);
}

#define EACH_ONCE ": each class of a layer is in one of its shards"

/* Ranks whose classes are not those of a layer, each once, build nothing: all of them say why. */
static void ranks_share_a_class(void **state)
{
    (void)state;
    scene s = make_scene(130, 6, 400, true, 4);
    const struct {
        int32_t shift;
        size_t fewer, more;
        const char *text;
    } cases[] = {
        {-1, 0, 0, "class 64 is in shard 1 and in shard 2" EACH_ONCE},
        {0, 1, 0, "class 129 is in no shard" EACH_ONCE},
        {0, 0, 1, "the layer has 130 classes on rank 0, but 131 on rank 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        building b = {.s = &s, .o = options_of(EVIDENCE_BY_TREE)};
        b.shift = cases[i].shift;
        b.fewer = cases[i].fewer;
        b.more = cases[i].more;
        b.o.route_d = 6;
        b.o.rows = 4;
        b.o.cap = 60;
        run_together(2, build_work, &b);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(b.statuses[r], WO_ERR_ARGUMENT);
            assert_string_equal(b.errs[r].text, cases[i].text);
        }
    }
    free_scene(&s);
}

/* Shards' files with one class changed, and signed again, are not joined; what was there stays. */
static void files_share_a_class(void **state)
{
    (void)state;
    scene s = make_scene(130, 6, 400, true, 4);
    static const struct {
        int32_t was, is;
        const char *text;
    } changes[] = {{65, 64, "class 64 is in shard 1 and in shard 2" EACH_ONCE},
                   {129, 130, "class 129 is in no shard" EACH_ONCE}};
    static const wo_weights weights[] = {WO_WEIGHTS_F32, WO_WEIGHTS_BF16};
    for (size_t i = 0; i < 2; i++) {
        building b = {.s = &s, .o = options_of(EVIDENCE_BY_TREE)};
        wo_error err;
        b.o.route_d = 6;
        b.o.weights = weights[i];
        build_together(&b, 2);
        for (size_t k = 0; k < 2; k++) {
            char paths[2][96];
            const char *both[2];
            for (int r = 0; r < 2; r++) {
                size_t bytes;
                char *data = slurp(b.paths[r], &bytes), *at;
                int32_t own[65];
                for (int32_t c = 0; c < 65; c++) own[c] = 65 * r + c;
                assert_non_null(at = memmem(data, bytes, own, sizeof own));
                if (r == 1) memcpy(at + (size_t)(changes[k].was - 65) * sizeof *own, &changes[k].is, sizeof *own);
                if (k == 1) { /* a layer of one class more, so that 130 may be one */
                    assert_non_null(at = memmem(data, bytes, "\"shard.m\":\"130\"", 15));
                    memcpy(at + 11, "131", 3);
                }
                assert_true(sign((unsigned char *)data, bytes));
                both[r] = strcpy(paths[r], scratch_write(r ? "second" : "first", data, bytes));
                free(data);
            }
            scratch_write("good", "good", 4);
            assert_int_equal(wo_index_join(both, 2, scratch("good"), &err), WO_ERR_ARGUMENT);
            assert_string_equal(err.text, changes[k].text);
            size_t bytes;
            char *data = slurp(scratch("good"), &bytes);
            assert_int_equal(bytes, 4);
            assert_memory_equal(data, "good", 4);
            free(data);
        }
    }
    free_scene(&s);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    scene s = make_scene(9, 4, 30, true, 6);
    wo_error err;
    name_classes(&s);
    building b = {.s = &s, .o = options_of(WO_METHOD_POPULAR)};
    build_together(&b, 2);
    char paths[2][96], joined[96];
    for (int i = 0; i < 2; i++) snprintf(paths[i], sizeof paths[i], "%s/part%d", scratch_folder, i);
    snprintf(joined, sizeof joined, "%s/whole", scratch_folder);
    const char *const from[] = {b.paths[0], b.paths[1]}, *const to[] = {paths[0], paths[1]};
    for (int what = 0; what < 3; what++) {
        wo_status status = WO_ERR_MEMORY;
        for (long left = 0; status && left < 1000; left++) {
            wo_layer *layer = NULL;
            if (what == 2) assert_int_equal(wo_layer_wrap(s.w, s.b, s.m, s.d, &layer, &err), WO_OK);
            assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
            allocations_alive = 0;
            allocations_left = left;
            if (what == 0) status = wo_index_join(from, 2, joined, &err);
            if (what == 1) status = wo_layer_save_shards(s.layer, s.log, to, 2, 0, &err);
            if (what == 2) status = wo_layer_take_part(layer, 1, 2, &err);
            if (status) assert_int_equal(status, WO_ERR_MEMORY);
            if (what < 2 || status) assert_int_equal(allocations_alive, 0);
            assert_int_equal(wo_allocator_set(NULL), WO_OK);
            wo_layer_free(layer);
        }
        assert_int_equal(status, WO_OK);
    }
    allocations_left = -1;
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_a_range),
        cmocka_unit_test(a_part_is_converted_alone),
        cmocka_unit_test(complete_shards_stay),
        cmocka_unit_test(outputs_are_checked_before_work),
        cmocka_unit_test(frequent_classes_are_dealt_out_first),
        cmocka_unit_test(the_best_of_all_are_kept),
        cmocka_unit_test(shards_joined_are_the_index_of_one_process),
        cmocka_unit_test(a_shard_speaks_of_the_whole_layer),
        cmocka_unit_test(what_does_not_go_together),
        cmocka_unit_test(answers_by_records_are_the_same),
        cmocka_unit_test(an_empty_shard),
        cmocka_unit_test(shards_of_strangers),
        cmocka_unit_test(ranks_share_a_class),
        cmocka_unit_test(files_share_a_class),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
