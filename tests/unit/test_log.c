/* store/log.c and log_write.c: a log comes back as it was written, whatever the pieces; what cannot be right is refused
 * with its place; a writer that fails leaves nothing. */
#include "failing_json.h"
#include "testing.h"

#include "store/log.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { N = 1003, D = 7 };

typedef struct made {
    float q[N * D];
    int64_t indptr[N + 1];
    int32_t labels[3 * N];
} made;

static made *make(void)
{
    made *m = calloc(1, sizeof *m);
    assert_non_null(m);
    for (size_t i = 0; i < N * D; i++) m->q[i] = (float)(i * 2654435761U % 10007) / 64 - 70;
    for (size_t i = 0; i < N; i++) { /* 0 to 3 labels */
        m->indptr[i + 1] = m->indptr[i] + (int64_t)(i % 4);
        for (int64_t j = m->indptr[i]; j < m->indptr[i + 1]; j++) m->labels[j] = (int32_t)(i * 31 % 977);
    }
    return m;
}

static wo_log_writer *begin(const char *path, wo_log_writer_options o)
{
    wo_log_writer *writer = NULL;
    wo_error err;
    o.struct_size = sizeof o;
    o.d = D;
    if (wo_log_writer_create(path, &o, &writer, &err)) fail_msg("%s", err.text);
    return writer;
}

/* Queries first .. first + n, with indptr from 0. */
static wo_status add(wo_log_writer *writer, const made *m, size_t first, size_t n, bool labels, wo_error *err)
{
    int64_t indptr[N + 1];
    for (size_t i = 0; i <= n; i++) indptr[i] = m->indptr[first + i] - m->indptr[first];
    return wo_log_append(writer, m->q + first * D, n, labels ? indptr : NULL,
                         labels ? m->labels + m->indptr[first] : NULL, err);
}

static void write_log(const char *path, const made *m, wo_log_writer_options o, size_t piece)
{
    wo_log_writer *writer = begin(path, o);
    wo_error err;
    for (size_t first = 0; first < N; first += piece)
        if (add(writer, m, first, N - first < piece ? N - first : piece, o.labels, &err)) fail_msg("%s", err.text);
    if (wo_log_finish(writer, &err)) fail_msg("%s", err.text);
    wo_log_writer_free(writer);
}

static void assert_same_file(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    char *one = slurp(a, &a_bytes), *two = slurp(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(one, two, a_bytes);
    free(one);
    free(two);
}

/* Files in the scratch folder. */
static int count_files(void)
{
    DIR *folder = opendir(scratch_folder);
    assert_non_null(folder);
    int n = 0;
    for (const struct dirent *e; (e = readdir(folder));) n += e->d_name[0] != '.';
    closedir(folder);
    return n;
}

static void pieces_do_not_matter(void **state)
{
    (void)state;
    made *m = make();
    const wo_log_writer_options kinds[] = {{.labels = 1},
                                           {.labels = 0},
                                           {.labels = 1, .bf16 = 1},
                                           {.labels = 1, .n = N},
                                           {.labels = 1, .n = N, .n_labels = (uint64_t)m->indptr[N]},
                                           {.bf16 = 1, .n = N}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        write_log(scratch("one"), m, kinds[k], N);
        const size_t pieces[] = {1, 2, 64, 1002};
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            write_log(scratch("many"), m, kinds[k], pieces[p]);
            assert_same_file(scratch("one"), scratch("many"));
        }
        wo_log *log = NULL;
        wo_error err;
        if (wo_log_open(scratch("one"), &log, &err)) fail_msg("%s", err.text);
        assert_int_equal(wo_log_n(log), N);
        assert_int_equal(wo_log_d(log), D);
        for (size_t i = 0; i < N * D; i++) {
            const uint32_t half = (uint32_t)woi_f32_to_bf16(m->q[i]) << 16;
            float rounded;
            memcpy(&rounded, &half, sizeof rounded);
            assert_true(wo_log_queries(log)[i] == (kinds[k].bf16 ? rounded : m->q[i]));
        }
        assert_true((log->indptr != NULL) == (kinds[k].labels != 0));
        if (kinds[k].labels) {
            assert_memory_equal(log->indptr, m->indptr, sizeof m->indptr);
            assert_memory_equal(log->labels, m->labels, (size_t)m->indptr[N] * sizeof *m->labels);
        }
        wo_log_free(log);
    }
    assert_int_equal(count_files(), 2);
    free(m);
}

static void empty_pieces_and_empty_logs_are_fine(void **state)
{
    (void)state;
    wo_error err;
    for (int labels = 0; labels < 2; labels++) {
        wo_log_writer *writer = begin(scratch("empty"), (wo_log_writer_options){.labels = labels});
        assert_int_equal(wo_log_append(writer, NULL, 0, NULL, NULL, &err), WO_OK);
        assert_int_equal(wo_log_finish(writer, &err), WO_OK);
        wo_log_writer_free(writer);
        woi_log log;
        assert_int_equal(woi_log_open(scratch("empty"), &log, &err), WO_OK);
        assert_int_equal(log.n, 0);
        assert_int_equal(log.d, D);
        assert_true((log.indptr != NULL) == (labels != 0));
        woi_log_close(&log);
    }
    /* Labels that nobody has need no array. */
    wo_log_writer *writer = begin(scratch("empty"), (wo_log_writer_options){.labels = 1});
    assert_int_equal(wo_log_append(writer, (float[D]){0}, 1, (int64_t[]){0, 0}, NULL, &err), WO_OK);
    assert_int_equal(wo_log_finish(writer, &err), WO_OK);
    wo_log_writer_free(writer);
    wo_log_writer_free(NULL);
}

static void refuse(wo_status got, const wo_error *err, wo_about about, const char *option, const char *sentence)
{
    assert_int_equal(got, WO_ERR_ARGUMENT);
    assert_string_equal(err->text, sentence);
    assert_int_equal(err->about, about);
    assert_string_equal(err->option, option);
}

/* Counted once a query, however often it is given there. */
static void the_most_frequent_label_is_found(void **state)
{
    (void)state;
    static const float q[6];
    static const int64_t indptr[] = {0, 3, 3, 4, 6, 7, 8}, none[7];
    static const int32_t labels[] = {9, 9, 9, 4, 7, 4, 0, 4};
    const struct {
        const int64_t *indptr;
        double share;
    } cases[] = {{indptr, 3.0 / 5}, {none, NAN}, {NULL, NAN}};
    for (size_t i = 0; i < 3; i++) {
        wo_log *log = NULL;
        assert_int_equal(wo_log_wrap(q, 6, 1, cases[i].indptr, cases[i].indptr ? labels : NULL, &log, NULL), WO_OK);
        const double found = wo_log_most_frequent(log);
        assert_true(isnan(cases[i].share) ? isnan(found) : found == cases[i].share);
        wo_log_free(log);
    }
}

static void bad_arrays_are_refused_with_their_place(void **state)
{
    (void)state;
    made *m = make();
    wo_error err;
    write_log(scratch("good"), m, (wo_log_writer_options){.labels = 1}, N);
    wo_log_writer *w = begin(scratch("log"), (wo_log_writer_options){.labels = 1});
    assert_int_equal(add(w, m, 0, 1000, true, &err), WO_OK);
    const float *q = m->q;
    const int32_t bad[] = {4, -1, 2};
    refuse(wo_log_append(w, NULL, 2, NULL, NULL, &err), &err, WO_ABOUT_QUERY, "", "2 queries of 7 numbers cannot be");
    refuse(wo_log_append(w, q, SIZE_MAX / 2, NULL, NULL, &err), &err, WO_ABOUT_QUERY, "",
           "9223372036854775807 queries of 7 numbers cannot be");
    refuse(wo_log_append(w, q, 2, NULL, NULL, &err), &err, WO_ABOUT_LOG, "labels",
           "the log has labels, but query 1000 comes without");
    refuse(wo_log_append(w, q, 2, (int64_t[]){0, 1, 1}, NULL, &err), &err, WO_ABOUT_LOG, "",
           "labels and their indptr go together");
    refuse(wo_log_append(w, q, 2, (int64_t[]){1, 1, 1}, bad, &err), &err, WO_ABOUT_LOG, "",
           "indptr starts at 1, not at 0");
    refuse(wo_log_append(w, q, 2, (int64_t[]){0, 1, 0}, bad, &err), &err, WO_ABOUT_LOG, "",
           "indptr falls from 1 to 0 at query 1001");
    refuse(wo_log_append(w, q, 2, (int64_t[]){0, 1, 3}, bad, &err), &err, WO_ABOUT_LOG, "",
           "label -1 at place 1 is negative");
    /* None of these was added. */
    assert_int_equal(add(w, m, 1000, 3, true, &err), WO_OK);
    assert_int_equal(wo_log_finish(w, &err), WO_OK);
    wo_log_writer_free(w);
    assert_same_file(scratch("good"), scratch("log"));

    w = begin(scratch("log"), (wo_log_writer_options){.labels = 0});
    refuse(wo_log_append(w, q, 1, (int64_t[]){0, 1}, bad, &err), &err, WO_ABOUT_LOG, "labels",
           "the log has no labels, but query 0 comes with some");
    wo_log_writer_free(w);
    free(m);
}

static void what_was_said_must_come_true(void **state)
{
    (void)state;
    made *m = make();
    wo_error err;
    scratch_text("log", "old");
    wo_log_writer *w = begin(scratch("log"), (wo_log_writer_options){.labels = 1, .n = 5, .n_labels = 6});
    assert_int_equal(add(w, m, 0, 4, true, &err), WO_OK);
    refuse(add(w, m, 4, 2, true, &err), &err, WO_ABOUT_LOG, "n",
           "the log has 4 queries and gets 2 more, but is to have 5");
    refuse(wo_log_finish(w, &err), &err, WO_ABOUT_LOG, "n", "the log has 4 queries, but is to have 5");
    assert_int_equal(add(w, m, 5, 1, true, &err), WO_OK);
    refuse(wo_log_finish(w, &err), &err, WO_ABOUT_LOG, "n_labels", "the log has 7 labels, but is to have 6");
    wo_log_writer_free(w);
    size_t bytes;
    char *text = slurp(scratch("log"), &bytes);
    assert_string_equal(text, "old");
    free(text);
    free(m);
}

static void calls_out_of_order_are_refused(void **state)
{
    (void)state;
    made *m = make();
    wo_error err;
    wo_log_writer *w = begin(scratch("log"), (wo_log_writer_options){.labels = 1});
    assert_int_equal(add(w, m, 0, 4, true, &err), WO_OK);
    assert_int_equal(wo_log_finish(w, &err), WO_OK);
    const char *closed = "the log is finished, or failed to be written";
    refuse(add(w, m, 4, 1, true, &err), &err, WO_ABOUT_OUTPUT, "", closed);
    refuse(wo_log_finish(w, &err), &err, WO_ABOUT_OUTPUT, "", closed);
    wo_log_writer_free(w);
    wo_log *log = NULL;
    assert_int_equal(wo_log_open(scratch("log"), &log, &err), WO_OK);
    assert_int_equal(wo_log_n(log), 4);
    wo_log_free(log);
    free(m);
}

static void options_are_checked(void **state)
{
    (void)state;
    wo_error err;
    wo_log_writer *w = (wo_log_writer *)&w;
    wo_log_writer_options o = {.struct_size = sizeof o};
    refuse(wo_log_writer_create(scratch("log"), &o, &w, &err), &err, WO_ABOUT_OPTION, "d",
           "queries of 0 numbers cannot be: expected 1 to 536870911");
    assert_null(w);
    refuse(wo_log_writer_create(scratch("log"), NULL, &w, &err), &err, WO_ABOUT_OPTION, "d",
           "queries of 0 numbers cannot be: expected 1 to 536870911");
    o.d = D;
    o.n_labels = 3;
    refuse(wo_log_writer_create(scratch("log"), &o, &w, &err), &err, WO_ABOUT_OPTION, "n_labels",
           "3 labels are expected, but the log is to have none");
    o.struct_size = 0;
    assert_int_equal(wo_log_writer_create(scratch("log"), &o, &w, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.option, "struct_size");
    o = (wo_log_writer_options){.struct_size = sizeof o, .d = D};
    assert_int_equal(wo_log_writer_create(scratch("no/log"), &o, &w, &err), WO_ERR_IO);
    assert_int_equal(err.about, WO_ABOUT_OUTPUT);
    assert_null(w);

    /* An older caller, whose struct ends behind d. */
    o.struct_size = offsetof(wo_log_writer_options, n);
    o.labels = 1;
    assert_int_equal(wo_log_writer_create(scratch("log"), &o, &w, &err), WO_OK);
    assert_int_equal(wo_log_append(w, (float[D]){0}, 1, NULL, NULL, &err), WO_OK);
    wo_log_writer_free(w);
}

/* ---- Failures ---------------------------------------------------------------------------------------------- */

static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    made *m = make();
    size_t whole;
    write_log(scratch("whole"), m, (wo_log_writer_options){.labels = 1}, N);
    free(slurp(scratch("whole"), &whole));
    unlink(scratch("whole"));
    scratch_text("log", "old");
    const int before = count_files();
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    size_t failed = 0;
    for (size_t room = 0; room < whole; room += 997) {
        wo_error err = {0};
        wo_log_writer *w = begin(scratch("log"), (wo_log_writer_options){.labels = 1});
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){room, limit.rlim_max}), 0);
        wo_status status = add(w, m, 0, N, true, &err);
        if (status) assert_int_equal(wo_log_finish(w, NULL), WO_ERR_ARGUMENT);
        if (!status) status = wo_log_finish(w, &err);
        wo_log_writer_free(w);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(status, WO_ERR_IO);
        assert_string_equal(err.text, "the file cannot be written: File too large");
        assert_int_equal(err.about, WO_ABOUT_OUTPUT);
        assert_int_equal(count_files(), before);
        failed++;
    }
    signal(SIGXFSZ, handler);
    assert_true(failed > 20);
    size_t bytes;
    char *text = slurp(scratch("log"), &bytes);
    assert_string_equal(text, "old");
    free(text);
    free(m);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    made *m = make();
    scratch_text("log", "old");
    const int before = count_files();
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    json_set_alloc_funcs(json_alloc, json_release);
    long n = 0;
    for (wo_status status = WO_ERR_MEMORY; status; n++) {
        assert_true(n < 10000);
        wo_error err = {0};
        wo_log_writer *w = NULL;
        const wo_log_writer_options o = {.struct_size = sizeof o, .d = D, .labels = 1, .bf16 = 1};
        allocations_left = n;
        allocations_alive = 0;
        status = wo_log_writer_create(scratch("log"), &o, &w, &err);
        if (!status) status = add(w, m, 0, 500, true, &err);
        if (!status) status = add(w, m, 500, N - 500, true, &err);
        if (!status) status = wo_log_finish(w, &err);
        wo_log_writer_free(w);
        allocations_left = -1;
        assert_int_equal(allocations_alive, 0);
        assert_int_equal(count_files(), before);
        if (!status) break;
        if (status != WO_ERR_MEMORY) fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        size_t bytes;
        char *text = slurp(scratch("log"), &bytes);
        assert_string_equal(text, "old");
        free(text);
    }
    json_set_alloc_funcs(malloc, free);
    wo_allocator_set(NULL);
    assert_true(n > 20);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(empty_pieces_and_empty_logs_are_fine),
        cmocka_unit_test(the_most_frequent_label_is_found),
        cmocka_unit_test(bad_arrays_are_refused_with_their_place),
        cmocka_unit_test(what_was_said_must_come_true),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(a_full_disk_leaves_nothing),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
