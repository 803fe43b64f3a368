/* net/ over several processes, with threads for processes (tests/together.h): the same as one process alone. */
#include "testing.h"
#include "together.h"

#include "base/rng.h"
#include "net/net.h"
#include "net/ranks.h"

#include <math.h>
#include <limits.h>
#include <stdatomic.h>

/* The path of a scratch file that stays, unlike scratch's. */
static const char *lasting(const char *name)
{
    static char paths[32][256];
    static size_t n;
    for (size_t i = 0; i < n; i++)
        if (strcmp(paths[i], scratch(name)) == 0) return paths[i];
    assert_true(n < 32);
    snprintf(paths[n], sizeof paths[n], "%s", scratch(name));
    return paths[n++];
}

/* ---- Rows --------------------------------------------------------------------------------------------------- */

static void every_class_is_one_rank_s(void **state)
{
    (void)state;
    for (size_t m = 1; m < 30; m++)
        for (int size = 1; size <= 5; size++) {
            size_t rows = 0;
            for (int class = 0; (size_t) class < m; class ++) {
                int owners = 0;
                for (int rank = 0; rank < size; rank++) {
                    const woi_portion p = woi_portion_of(&(wo_collective){.rank = rank, .size = size}, m);
                    const int32_t row = woi_portion_row(&p, class);
                    owners += row >= 0;
                    if (row >= 0) assert_true((size_t)row < p.n && p.first + (size_t)row * p.stride == (size_t) class);
                }
                assert_int_equal(owners, 1);
            }
            for (int rank = 0; rank < size; rank++)
                rows += woi_portion_of(&(wo_collective){.rank = rank, .size = size}, m).n;
            assert_int_equal(rows, m);
        }
    assert_int_equal(woi_portion_of(NULL, 7).n, 7);
}

/* ---- The wide layer ----------------------------------------------------------------------------------------- */

enum { M = 1301, D = 12, N = 9 };

typedef struct layer_case {
    size_t sampled;
    bool weighted, keep; /* keep: the gradient is applied later, and its squares are asked for */
    float w[M * D], b[M], q[N * D];
    int64_t indptr[N + 1];
    int32_t ids[3 * N];
    float weights[N];
    uint32_t frequency[M];
    /* found by each rank */
    double loss[MOST_RANKS], square[MOST_RANKS];
    float dq[MOST_RANKS][N * D];
    float dw[M * D], db[M], after[M * D]; /* by class, each rank its own */
    wo_status status[MOST_RANKS];
} layer_case;

static void fill_case(layer_case *c)
{
    for (size_t i = 0; i < M * D; i++) c->w[i] = 0.5f * woi_rng_normal(1, 1, i);
    for (size_t i = 0; i < M; i++) {
        c->b[i] = 0.5f * woi_rng_normal(1, 2, i);
        c->frequency[i] = (uint32_t)(M / (i + 1));
    }
    for (size_t i = 0; i < N * D; i++) c->q[i] = woi_rng_normal(1, 3, i);
    for (int i = 0; i < N; i++) {
        c->indptr[i + 1] = c->indptr[i] + i % 4;
        c->weights[i] = 1 + (float)i;
        for (int64_t j = c->indptr[i]; j < c->indptr[i + 1]; j++)
            c->ids[j] = (int32_t)(400 * (j - c->indptr[i]) + 7 * i);
    }
}

/* One step of the rows that this rank has. ranks NULL: of all. */
static void step_layer(const wo_collective *ranks, void *ctx)
{
    static const woi_adam_step look = {.beta1 = 0, .beta2 = 0.5f, .rate = 0, .root_scale = 1, .epsilon = 1e-8f};
    static const woi_adam_step move = {.beta1 = 0.9f, .beta2 = 0.99f, .rate = 0.1f, .root_scale = 1, .epsilon = 1e-8f};
    layer_case *c = ctx;
    const int rank = ranks ? ranks->rank : 0;
    const woi_portion own = woi_portion_of(ranks, M);
    float *x = calloc(6 * own.n * (D + 1), sizeof *x), *q = malloc(sizeof c->q);
    woi_wide wide = {own.n, D, x, x + own.n * D, x + 2 * own.n * D, 0, 0, 0};
    wide.b = x + 3 * own.n * D;
    wide.b_m = wide.b + own.n;
    wide.b_v = wide.b_m + own.n;
    for (size_t i = 0; i < own.n; i++) {
        const size_t class = own.first + i * own.stride;
        memcpy(wide.w + i * D, c->w + class * D, D * sizeof *x);
        wide.b[i] = c->b[class];
    }
    memcpy(q, c->q, sizeof c->q);
    woi_softmax *softmax = NULL;
    wo_status status =
        woi_softmax_create(M, &(woi_sampling){c->sampled, c->frequency, 5}, (woi_workers){1, ranks}, &softmax, NULL);
    const woi_targets targets = {c->indptr, c->ids, NULL, c->weighted ? c->weights : NULL};
    const woi_step step = {q, N, &targets, 3, c->keep ? NULL : &look, c->dq[rank], &c->loss[rank], &c->square[rank]};
    if (!status) status = woi_softmax_step(softmax, &wide, &step, NULL);
    if (!status && c->keep) woi_softmax_apply(softmax, &wide, 0.5f, &move);
    for (size_t i = 0; i < own.n; i++) {
        const size_t class = own.first + i * own.stride;
        memcpy(c->dw + class * D, wide.w_m + i * D, D * sizeof *x);
        memcpy(c->after + class * D, wide.w + i * D, D * sizeof *x);
        c->db[class] = wide.b_m[i];
    }
    c->status[rank] = status;
    woi_softmax_free(softmax);
    free(x);
    free(q);
}

/* Within 2e-6 of the largest: the ranks add in another order. */
static void assert_near(const float *a, const float *b, size_t n, const char *what)
{
    double most = 0, apart = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i])) fail_msg("%s: element %zu is %g", what, i, (double)a[i]);
        most = fmax(most, fabs((double)b[i]));
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
    }
    if (!(apart <= 2e-6 * most + 1e-9)) fail_msg("%s: %g apart, the largest is %g", what, apart, most);
}

static void a_shared_layer_steps_as_one(void **state)
{
    (void)state;
    static layer_case one, many;
    for (int variant = 0; variant < 12; variant++) {
        /* one class drawn: most ranks have none but labels, and with few labels none at all */
        const size_t sampled[] = {0, 200, 1};
        memset(&one, 0, sizeof one);
        one.sampled = sampled[variant % 3];
        one.weighted = variant / 3 % 2;
        one.keep = variant / 6;
        fill_case(&one);
        if (one.sampled == 1)
            for (int i = 0; i <= N; i++) one.indptr[i] = i > 4; /* one label in all */
        step_layer(NULL, &one);
        assert_int_equal(one.status[0], WO_OK);
        for (int size = 1; size <= 4; size++) {
            many = one;
            memset(many.loss, 0, sizeof many.loss);
            memset(many.dw, 0, sizeof many.dw);
            run_together(size, step_layer, &many);
            for (int r = 0; r < size; r++) {
                assert_int_equal(many.status[r], WO_OK);
                assert_true(isfinite(many.loss[r]) && many.loss[r] == many.loss[0]);
                assert_memory_equal(many.dq[r], many.dq[0], sizeof many.dq[0]);
                if (one.keep) assert_true(many.square[r] == many.square[0]);
            }
            assert_float_equal(many.loss[0], one.loss[0], 1e-6 * fabs(one.loss[0]));
            assert_near(many.dq[0], one.dq[0], N * D, "dq");
            assert_near(many.dw, one.dw, M * D, "dW");
            assert_near(many.db, one.db, M, "db");
            if (!one.keep) continue;
            assert_float_equal(many.square[0], one.square[0], 1e-6 * one.square[0]);
            for (size_t i = 0; i < M * D; i++) /* Adam divides by the gradient's size, however small that is */
                assert_float_equal(many.after[i], one.after[i], 1e-4);
        }
    }
}

/* ---- The bag ------------------------------------------------------------------------------------------------- */

enum { BAG_ROWS = 7, BAG_FEATURES = 23 };

typedef struct bag_case {
    woi_bag_input input;
    float e[MOST_RANKS][3 * BAG_FEATURES * D], q[MOST_RANKS][BAG_ROWS * D];
    double square[MOST_RANKS];
    wo_status status[MOST_RANKS];
} bag_case;

/* Three steps of one batch: its rows have 0 to 6 features. */
static void step_bag(const wo_collective *ranks, void *ctx)
{
    static const woi_adam_step move = {.beta1 = 0.9f, .beta2 = 0.99f, .rate = 0.1f, .root_scale = 1, .epsilon = 1e-8f};
    bag_case *c = ctx;
    const int rank = ranks ? ranks->rank : 0;
    float *e = c->e[rank], dq[BAG_ROWS * D], values[BAG_ROWS * BAG_ROWS];
    int32_t features[BAG_ROWS * BAG_ROWS];
    int64_t indptr[BAG_ROWS + 1] = {0};
    for (int i = 0; i < BAG_ROWS; i++) {
        indptr[i + 1] = indptr[i] + i;
        for (int64_t j = indptr[i]; j < indptr[i + 1]; j++) {
            features[j] = (int32_t)((j * 7 + i) % BAG_FEATURES);
            values[j] = 1 + (float)(j % 3);
        }
    }
    for (uint64_t i = 0; i < BAG_FEATURES * D; i++) e[i] = woi_rng_normal(1, 4, i);
    const woi_bag bag = {BAG_FEATURES, D, e, e + BAG_FEATURES * D, e + 2 * BAG_FEATURES * D};
    const woi_bag_rows rows = {BAG_ROWS, indptr, features, values};
    const woi_bag_options options = {.input = c->input, .dropout = 0.3, .seed = 8, .threads = 1, .ranks = ranks};
    woi_bag_trainer *trainer = NULL;
    wo_status status = woi_bag_trainer_create(&bag, &options, &trainer, NULL);
    for (uint64_t step = 0; !status && step < 3; step++) {
        for (uint64_t i = 0; i < BAG_ROWS * D; i++) dq[i] = woi_rng_normal(1, 5 + step, i);
        status = woi_bag_train_forward(trainer, &rows, step, c->q[rank], NULL);
        if (!status) status = woi_bag_train_backward(trainer, &rows, dq, &c->square[rank], NULL);
        if (!status) woi_bag_train_apply(trainer, 1, &move);
    }
    woi_bag_trainer_free(trainer);
    c->status[rank] = status;
}

/* Whichever rank sums what: the bits of the hidden layer and of the embedding, its moments too, are those of one. */
static void a_shared_bag_has_the_bits_of_one(void **state)
{
    (void)state;
    static bag_case one, many;
    for (int kind = 0; kind < 8; kind++) {
        one = (bag_case){.input = {kind & 1, kind & 2, kind & 4}};
        step_bag(NULL, &one);
        assert_int_equal(one.status[0], WO_OK);
        assert_true(one.square[0] > 0);
        for (int size = 1; size <= MOST_RANKS; size++) { /* at the end more ranks than rows */
            many = (bag_case){.input = one.input};
            run_together(size, step_bag, &many);
            for (int r = 0; r < size; r++) {
                assert_int_equal(many.status[r], WO_OK);
                assert_true(many.square[r] == one.square[0]);
                assert_memory_equal(many.q[r], one.q[0], sizeof one.q[0]);
                assert_memory_equal(many.e[r], one.e[0], sizeof one.e[0]);
            }
        }
    }
}

/* ---- Networks ----------------------------------------------------------------------------------------------- */

typedef struct network_case {
    size_t m, d;
    const char *path;
    wo_status status[MOST_RANKS];
    wo_error err[MOST_RANKS];
} network_case;

static void save_one(const wo_collective *ranks, void *ctx)
{
    network_case *c = ctx;
    const int rank = ranks ? ranks->rank : 0;
    woi_network *net = NULL;
    const woi_network_plan plan = {WOI_ARCH_XC, c->m, c->d, 7, true, 3, ranks};
    wo_status status = woi_network_create(&plan, &net, &c->err[rank]);
    if (!status) status = woi_network_save(net, c->path, &(woi_meta){"train.seed", "3"}, 1, &c->err[rank]);
    woi_network_free(net);
    c->status[rank] = status;
}

static void assert_same_files(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    char *in_a = slurp(a, &a_bytes), *in_b = slurp(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(in_a, in_b, a_bytes);
    free(in_a);
    free(in_b);
}

/* A row starts the same wherever it is, and the file is the same whoever has the rows; 600 rows of 4,096 numbers are
 * several blocks. */
static void ranks_write_one_file(void **state)
{
    (void)state;
    const size_t shapes[][2] = {{23, 6}, {4, 1}, {600, 4096}};
    for (size_t i = 0; i < 3; i++) {
        network_case one = {.m = shapes[i][0], .d = shapes[i][1], .path = lasting("one.net")}, many = one;
        save_one(NULL, &one);
        assert_int_equal(one.status[0], WO_OK);
        many.path = lasting("many.net");
        for (int size = 1; size <= 4; size++) {
            run_together(size, save_one, &many);
            for (int r = 0; r < size; r++) assert_int_equal(many.status[r], WO_OK);
            assert_same_files(one.path, many.path);
            assert_int_equal(unlink(many.path), 0);
        }
    }
}

/* What only rank 0 sees is a failure of all, in the same words. */
static void a_failed_write_fails_everywhere(void **state)
{
    (void)state;
    network_case c = {.m = 23, .d = 6, .path = lasting("no/such/folder.net")};
    run_together(3, save_one, &c);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(c.status[r], WO_ERR_IO);
        assert_string_equal(c.err[r].text, "the file cannot be created: No such file or directory");
    }
    c.path = "/dev/full";
    run_together(3, save_one, &c);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(c.status[r], c.status[0]);
        assert_true(c.status[r] != WO_OK);
        assert_string_equal(c.err[r].text, c.err[0].text);
    }
}

/* ---- Training ----------------------------------------------------------------------------------------------- */

enum { CLASSES = 40, FEATURES = 60, ROWS = 400 };

/* Every class has features of its own, so that there is something to learn. */
static void write_data(const char *name, uint64_t stream, int rows)
{
    FILE *file = fopen(scratch(name), "w");
    assert_non_null(file);
    fprintf(file, "%d %d %d\n", rows, FEATURES, CLASSES);
    for (uint64_t i = 0; i < (uint64_t)rows; i++) {
        const int class = (int)woi_rng_below(9, stream, 2 * i, CLASSES);
        const int noise = CLASSES + (int)woi_rng_below(9, stream, 2 * i + 1, FEATURES - CLASSES);
        fprintf(file, "%d", class);
        if (i % 3 == 0 && class + 5 < CLASSES) fprintf(file, ",%d", class + 5);
        fprintf(file, " %d:1 %d:%d\n", class, noise, 1 + (int)(i % 3));
    }
    fclose(file);
}

typedef struct training {
    woi_arch arch;
    woi_train_options o;
    uint64_t stop_at; /* in this epoch one rank asks to stop; 0: none */
    uint64_t stop_rank;
    int odd_rank; /* a rank with another seed; 0: none */
    const char *odd_train;
    woi_train_result result[MOST_RANKS];
    wo_status status[MOST_RANKS];
    wo_error err[MOST_RANKS];
    const char *at[MOST_RANKS];
    double curve[MOST_RANKS][64]; /* the mean loss after each epoch */
} training;

typedef struct watcher {
    training *t;
    int rank;
} watcher;

static int watch(void *ctx, const woi_train_report *report)
{
    const watcher *w = ctx;
    if (report->epoch < 64) w->t->curve[w->rank][report->epoch] = report->loss;
    return w->t->stop_at && report->epoch == w->t->stop_at && (uint64_t)w->rank == w->t->stop_rank;
}

static void train_one(const wo_collective *ranks, void *ctx)
{
    training *t = ctx;
    const int rank = ranks ? ranks->rank : 0;
    woi_train_options o = t->o;
    o.ranks = ranks;
    if (t->odd_rank && rank == t->odd_rank) o.seed = 77;
    if (t->odd_rank && rank == t->odd_rank && t->odd_train) o.train = t->odd_train;
    watcher w = {t, rank};
    t->err[rank] = (wo_error){0};
    t->status[rank] = woi_train(t->arch, &o, (woi_train_watch){.fn = watch, .ctx = &w}, &t->result[rank], &t->at[rank],
                                &t->err[rank]);
}

static void free_results(training *t)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        woi_train_result_free(&t->result[r]);
        t->result[r] = (woi_train_result){0};
    }
}

static training training_of(const char *output)
{
    write_data("train.txt", 1, ROWS);
    write_data("valid.txt", 2, 90);
    training t = {.o = woi_train_defaults(WOI_ARCH_XC)};
    t.o.train = lasting("train.txt");
    t.o.valid = t.o.test = lasting("valid.txt");
    t.o.output = lasting(output);
    t.o.d = 16;
    t.o.batch = 32;
    t.o.dropout = 0.1;
    t.o.epochs = 6;
    t.o.lr = 0.05;
    t.o.threads = 1;
    return t;
}

static void assert_trained(const training *t, int size)
{
    for (int r = 0; r < size; r++)
        if (t->status[r]) fail_msg("rank %d: %s", r, t->err[r].text);
}

static void a_shared_run_has_the_same_curve(void **state)
{
    (void)state;
    for (int variant = 0; variant < 3; variant++) {
        training one = training_of("one.net");
        one.o.sampled = variant == 1 ? 16 : 0;
        one.o.auto_epochs = variant == 2;
        training many = one;
        train_one(NULL, &one);
        assert_trained(&one, 1);
        if (one.result[0].valid.p_at_1 < 0.8)
            fail_msg("P@1 %.3f", one.result[0].valid.p_at_1); /* it has learned something */
        many.o.output = lasting("many.net");
        for (int size = 1; size <= 4; size++) {
            run_together(size, train_one, &many);
            assert_trained(&many, size);
            for (int r = 0; r < size; r++) {
                const woi_train_result *got = &many.result[r], *want = &one.result[0];
                assert_int_equal(got->epochs, want->epochs);
                assert_int_equal(got->kept, want->kept);
                assert_int_equal(got->m, CLASSES);
                assert_float_equal(got->loss, want->loss, 1e-4 * want->loss);
                for (uint64_t e = 1; e <= want->epochs; e++)
                    assert_float_equal(many.curve[r][e], one.curve[0][e], 1e-4 * one.curve[0][e]);
                assert_true(got->has_valid && got->has_test && got->valid.n == 90);
                assert_float_equal(got->valid.p_at_1, want->valid.p_at_1, 1.01 / 90);
                assert_float_equal(got->valid.p_at_5, want->valid.p_at_5, 1.01 / 90);
            }
            if (size == 1) assert_same_files(one.o.output, many.o.output);
            woi_network *net = NULL;
            assert_int_equal(woi_network_open(many.o.output, &net, NULL), WO_OK);
            assert_int_equal(net->m, CLASSES);
            woi_precision p;
            const woi_queries_options options = {.threads = 1};
            assert_int_equal(woi_evaluate(net, many.o.valid, &options, NULL, &p, NULL), WO_OK);
            assert_true(p.p_at_1 == many.result[0].test.p_at_1 && p.p_at_5 == many.result[0].test.p_at_5);
            woi_network_free(net);
            free_results(&many);
        }
        free_results(&one);
    }
}

/* ---- Checkpoints -------------------------------------------------------------------------------------------- */

static const char *checkpoint_of(const training *t, int rank, const char *ending)
{
    static char paths[4][300];
    static unsigned next;
    char *path = paths[next++ % 4], number[16] = "";
    if (rank) snprintf(number, sizeof number, ".%d", rank);
    snprintf(path, sizeof paths[0], "%s.checkpoint%s%s", t->o.output, number, ending);
    return path;
}

static void copy_file(const char *from, const char *to)
{
    size_t bytes;
    char *data = slurp(from, &bytes);
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    free(data);
}

static bool there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Stops in an epoch, on the word of one rank, and puts the checkpoints aside: "RANK.EPOCH". */
static void stop_in(training *t, uint64_t epoch, int size)
{
    t->stop_at = epoch;
    t->stop_rank = (uint64_t)size - 1;
    run_together(size, train_one, t);
    t->stop_at = 0;
    for (int r = 0; r < size; r++) {
        assert_int_equal(t->status[r], WO_ERR_CANCELLED);
        assert_true(there(checkpoint_of(t, r, "")) && !there(checkpoint_of(t, r, ".next")));
        char aside[32];
        snprintf(aside, sizeof aside, "%d.%d", r, (int)epoch - 1);
        copy_file(checkpoint_of(t, r, ""), scratch(aside));
    }
    assert_false(there(t->o.output));
}

/* What ranks have: epochs under the name and under ".next", 0 for none. */
typedef struct had {
    int path, next;
} had;

static void put(const training *t, const had *epochs, int size)
{
    for (int r = 0; r < size; r++)
        for (int which = 0; which < 2; which++) {
            const int epoch = which ? epochs[r].next : epochs[r].path;
            const char *to = checkpoint_of(t, r, which ? ".next" : "");
            char aside[32];
            unlink(to);
            snprintf(aside, sizeof aside, "%d.%d", r, epoch);
            if (epoch) copy_file(scratch(aside), to);
        }
}

static void assert_all_say(const training *t, int size, const char *sentence)
{
    for (int r = 0; r < size; r++) {
        assert_true(t->status[r] != WO_OK);
        assert_string_equal(t->err[r].text, sentence);
    }
}

static void resumed_runs_write_the_same(void **state)
{
    (void)state;
    enum { SIZE = 3 };
    for (int automatic = 0; automatic < 2; automatic++) {
        training t = training_of("stopped.net"), whole = t;
        t.o.auto_epochs = whole.o.auto_epochs = automatic;
        whole.o.output = lasting("whole.net");
        run_together(SIZE, train_one, &whole);
        assert_trained(&whole, SIZE);
        assert_true(whole.result[0].epochs >= 4);
        stop_in(&t, 3, SIZE);
        stop_in(&t, 2, SIZE);

        /* A job that was killed while ranks replaced their checkpoints, at different moments. */
        const had found[][SIZE] = {{{2, 0}, {2, 0}, {2, 0}}, {{2, 0}, {1, 2}, {1, 2}}, {{1, 2}, {1, 0}, {1, 2}},
                                   {{1, 2}, {2, 0}, {1, 2}}, {{2, 1}, {2, 2}, {2, 0}}, {{1, 0}, {1, 2}, {2, 1}}};
        t.o.resume = true;
        for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
            put(&t, found[i], SIZE);
            run_together(SIZE, train_one, &t);
            assert_trained(&t, SIZE);
            assert_same_files(t.o.output, whole.o.output);
            for (int r = 0; r < SIZE; r++)
                assert_false(there(checkpoint_of(&t, r, "")) || there(checkpoint_of(&t, r, ".next")));
            unlink(t.o.output);
            free_results(&t);
        }

        /* One that goes on and is stopped again must leave what can be gone on from. */
        put(&t, found[1], SIZE);
        t.stop_at = 3;
        run_together(SIZE, train_one, &t);
        t.stop_at = 0;
        for (int r = 0; r < SIZE; r++) assert_false(there(checkpoint_of(&t, r, ".next")));
        run_together(SIZE, train_one, &t);
        assert_trained(&t, SIZE);
        assert_same_files(t.o.output, whole.o.output);
        unlink(t.o.output);
        free_results(&t);

        put(&t, (const had[]){{2, 0}, {1, 0}, {2, 0}}, SIZE);
        run_together(SIZE, train_one, &t);
        assert_all_say(&t, SIZE, "its checkpoints are of different epochs, and none is there of all 3 ranks");
        put(&t, (const had[]){{2, 0}, {2, 0}, {0, 0}}, SIZE);
        run_together(SIZE, train_one, &t);
        assert_all_say(&t, SIZE, "its checkpoint of rank 2: the file cannot be opened: No such file or directory");
        assert_true(there(checkpoint_of(&t, 0, "")));

        put(&t, (const had[]){{2, 0}, {2, 0}, {2, 0}}, SIZE);
        run_together(2, train_one, &t);
        assert_all_say(&t, 2,
                       "its checkpoint of rank 0: is share '0 of 3' of a run, expected 0 of 2: resume with as many "
                       "processes");
        train_one(NULL, &t);
        assert_all_say(&t, 1,
                       "its checkpoint: is share '0 of 3' of a run, expected 0 of 1: resume with as many processes");
        t.o.lr = 0.03;
        run_together(SIZE, train_one, &t);
        assert_all_say(&t, SIZE, "its checkpoint of rank 0: belongs to another network, other data or other options");
        assert_true(there(checkpoint_of(&t, 0, "")) && there(checkpoint_of(&t, 2, "")));
        put(&t, (const had[SIZE]){{0}}, SIZE);
        free_results(&whole);
    }
}

static void a_checkpoint_of_one_is_none_of_two(void **state)
{
    (void)state;
    training t = training_of("alone.net");
    t.stop_at = 3;
    train_one(NULL, &t);
    assert_int_equal(t.status[0], WO_ERR_CANCELLED);
    t.stop_at = 0;
    t.o.resume = true;
    run_together(2, train_one, &t);
    assert_all_say(&t, 2,
                   "its checkpoint of rank 0: is share '0 of 1' of a run, expected 0 of 2: resume with as many "
                   "processes");
    run_together(1, train_one, &t);
    assert_trained(&t, 1);
    free_results(&t);
}

static void what_cannot_be_is_said_by_all(void **state)
{
    (void)state;
    training t = training_of("bad.net");
    t.odd_rank = 2;
    run_together(3, train_one, &t);
    assert_all_say(&t, 3, "rank 2 has other files or options than rank 0");

    t.odd_train = lasting("nowhere.txt");
    run_together(3, train_one, &t);
    assert_all_say(&t, 3, "the file cannot be opened: No such file or directory");
    for (int r = 0; r < 3; r++)
        if (r != 2) assert_string_equal(t.at[r], t.o.train);

    t.odd_rank = 0;
    scratch_text("few.txt", "2 3 2\n0 0:1\n1 2:1\n");
    t.o.train = t.o.valid = t.o.test = lasting("few.txt");
    run_together(3, train_one, &t);
    assert_all_say(&t, 3, "has 2 classes for 3 processes: each needs one");
    assert_false(there(t.o.output) || there(checkpoint_of(&t, 0, "")) || there(checkpoint_of(&t, 1, "")));

    t.arch = WOI_ARCH_LM;
    run_together(2, train_one, &t);
    assert_all_say(&t, 2, "several processes train a bag network (xc), not lm");

    training notes = training_of("notes.net");
    scratch_text("notes.net.checkpoint.1.next", "my notes");
    run_together(2, train_one, &notes);
    assert_all_say(&notes, 2, "its checkpoint of rank 1: exists and is no checkpoint of wideout's: move it away");
}

/* ---- Memory ------------------------------------------------------------------------------------------------- */

static atomic_long memory_left, memory_alive;

static void *shared_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    if (atomic_fetch_sub(&memory_left, 1) <= 0) return NULL;
    atomic_fetch_add(&memory_alive, 1);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void shared_release(void *ctx, void *memory)
{
    (void)ctx;
    atomic_fetch_sub(&memory_alive, 1);
    free(memory);
}

/* Whichever allocation is the last to succeed, on whichever rank: both end, nothing is lost, and no network is there
 * unless it is whole. */
static void no_memory_ends_all(void **state)
{
    (void)state;
    enum { SIZE = 2 };
    training t = training_of("memory.net");
    scratch_text("small.txt", "4 3 3\n0 0:1\n1 2:1\n2 1:1\n0,2 0:1 1:2\n");
    t.o.train = t.o.valid = t.o.test = lasting("small.txt");
    t.o.epochs = 2;
    t.o.d = 2;
    assert_int_equal(wo_allocator_set(&(wo_allocator){shared_alloc, shared_release, NULL}), WO_OK);
    bool done = false;
    for (long n = 0; !done; n += 1 + n / 20) {
        atomic_store(&memory_left, n);
        run_together(SIZE, train_one, &t);
        done = !t.status[0] && !t.status[1];
        free_results(&t);
        assert_int_equal(atomic_load(&memory_alive), 0);
        if (done || !there(t.o.output)) continue;
        woi_network *net = NULL;
        atomic_store(&memory_left, LONG_MAX);
        assert_int_equal(woi_network_open(t.o.output, &net, NULL), WO_OK);
        woi_network_free(net);
        unlink(t.o.output);
    }
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class_is_one_rank_s),        cmocka_unit_test(a_shared_layer_steps_as_one),
        cmocka_unit_test(a_shared_bag_has_the_bits_of_one), cmocka_unit_test(ranks_write_one_file),
        cmocka_unit_test(a_failed_write_fails_everywhere),  cmocka_unit_test(a_shared_run_has_the_same_curve),
        cmocka_unit_test(resumed_runs_write_the_same),      cmocka_unit_test(a_checkpoint_of_one_is_none_of_two),
        cmocka_unit_test(what_cannot_be_is_said_by_all),    cmocka_unit_test(no_memory_ends_all),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
