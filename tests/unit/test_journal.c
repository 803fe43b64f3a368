/* store/journal: what is written is read; every length of a file, every byte of it changed; two writers; disks that
 * are full; logs joined. */
#include "testing.h"

#include "store/journal.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { D = 3, N = 5 };

static const float queries[N * D] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const int64_t indptr[N + 1] = {0, 1, 1, 3, 4, 6};
static const int32_t labels[] = {7, 8, 9, 10, 11, 12};

/* A journal of all queries, in one call each. */
static const char *make(const char *name)
{
    const char *path = scratch(name);
    wo_journal *j = NULL;
    wo_error err;
    unlink(path);
    if (wo_journal_open(path, D, &j, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < N; i++) {
        const int64_t own[] = {0, indptr[i + 1] - indptr[i]};
        if (wo_journal_append(j, queries + i * D, 1, own, labels + indptr[i], &err)) fail_msg("%s", err.text);
    }
    assert_int_equal(wo_journal_sync(j, &err), WO_OK);
    wo_journal_free(j);
    return path;
}

static void assert_first(const char *path, size_t n)
{
    wo_log *log = NULL;
    wo_error err;
    if (wo_log_open(path, &log, &err)) fail_msg("%s", err.text);
    assert_int_equal(log->n, n);
    assert_int_equal(log->d, D);
    assert_memory_equal(log->queries, queries, n * D * sizeof *queries);
    assert_memory_equal(log->indptr, indptr, (n + 1) * sizeof *indptr);
    assert_memory_equal(log->labels, labels, (size_t)indptr[n] * sizeof *labels);
    assert_int_equal(log->max_label, n ? labels[indptr[n] - 1] : -1);
    wo_log_free(log);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    assert_first(make("j"), N);
    wo_journal *j = NULL;
    wo_error err;
    unlink(scratch("one"));
    assert_int_equal(wo_journal_open(scratch("one"), D, &j, &err), WO_OK); /* all at once: the same bytes */
    assert_first(scratch("one"), 0);
    assert_int_equal(wo_journal_append(j, queries, N, indptr, labels, &err), WO_OK);
    assert_int_equal(wo_journal_append(j, queries, 0, indptr, labels, &err), WO_OK);
    wo_journal_free(j);
    wo_journal_free(NULL);
    size_t x, y;
    char *a = slurp(scratch("j"), &x), *b = slurp(scratch("one"), &y);
    assert_int_equal(x, y);
    assert_memory_equal(a, b, x);
    free(a);
    free(b);
}

/* The journal of version 1, which every later version reads, and this one writes. */
static void as_the_golden_one(void **state)
{
    (void)state;
    size_t x, y;
    assert_first("tests/golden/log.journal", N);
    char *a = slurp(make("j"), &x), *b = slurp("tests/golden/log.journal", &y);
    assert_int_equal(x, y);
    assert_memory_equal(a, b, x);
    free(a);
    free(b);
}

/* A kill may leave any number of bytes: as many queries as are whole are read, and writing goes on behind them. */
static void every_length(void **state)
{
    (void)state;
    size_t bytes;
    char *whole = slurp(make("j"), &bytes);
    size_t ends[N + 1] = {WOI_JOURNAL_HEADER_BYTES};
    for (size_t i = 0; i < N; i++)
        ends[i + 1] = ends[i] + woi_journal_record_bytes(D, (size_t)(indptr[i + 1] - indptr[i]));
    assert_int_equal(ends[N], bytes);
    for (size_t cut = 0; cut <= bytes; cut++) {
        const char *path = scratch_write("cut", whole, cut);
        size_t n = 0;
        while (n < N && ends[n + 1] <= cut) n++;
        wo_log *log = NULL;
        wo_journal *j = NULL;
        wo_error err;
        if (cut < WOI_JOURNAL_HEADER_BYTES) {
            assert_int_not_equal(wo_log_open(path, &log, &err), WO_OK);
        } else {
            assert_first(path, n);
        }
        if (wo_journal_open(path, D, &j, &err)) fail_msg("%zu bytes: %s", cut, err.text);
        const int64_t own[] = {0, n < N ? indptr[n + 1] - indptr[n] : 0};
        if (n < N) assert_int_equal(wo_journal_append(j, queries + n * D, 1, own, labels + indptr[n], &err), WO_OK);
        wo_journal_free(j);
        assert_first(path, n < N ? n + 1 : N);
    }
    free(whole);
}

/* A byte that changed: in the last record it is a torn tail, before it damage; nothing that is read is wrong. */
static void every_byte(void **state)
{
    (void)state;
    size_t bytes;
    char *whole = slurp(make("j"), &bytes);
    const size_t last = bytes - woi_journal_record_bytes(D, 2);
    for (size_t at = 0; at < bytes; at++) {
        whole[at] ^= 0x10;
        const char *path = scratch_write("bad", whole, bytes);
        wo_log *log = NULL;
        wo_journal *j = NULL;
        wo_error err = {0};
        if (at >= last) {
            assert_first(path, N - 1);
        } else {
            assert_int_not_equal(wo_log_open(path, &log, &err), WO_OK);
            if (at >= WOI_JOURNAL_HEADER_BYTES) {
                assert_int_equal(err.status, WO_ERR_CHECKSUM);
                assert_non_null(strstr(err.text, "of the journal is damaged: others follow it"));
            }
            assert_int_not_equal(wo_journal_open(path, D, &j, &err), WO_OK); /* and nothing is cut off */
            struct stat about;
            assert_int_equal(stat(path, &about), 0);
            assert_int_equal(about.st_size, bytes);
        }
        whole[at] ^= 0x10;
    }
    free(whole);
}

static void refusals(void **state)
{
    (void)state;
    wo_journal *j = NULL, *second = NULL;
    wo_error err;
    const char *path = make("j");
    assert_int_equal(wo_journal_open(path, D + 1, &j, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the journal's queries have 3 numbers, expected 4");
    assert_int_equal(wo_journal_open(scratch("new"), 0, &j, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_journal_open(scratch_text("text", "some words of a text\n"), D, &j, &err), WO_ERR_FORMAT);
    assert_int_equal(wo_journal_open(scratch_folder, D, &j, &err), WO_ERR_IO);
    assert_null(j);
    assert_int_equal(wo_journal_open(path, D, &j, &err), WO_OK);
    assert_int_equal(wo_journal_open(path, D, &second, &err), WO_ERR_IO);
    assert_string_equal(err.text, "another process writes to the journal");
    assert_int_equal(wo_journal_append(j, queries, 1, (int64_t[]){0, 1}, (int32_t[]){-1}, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_journal_append(j, queries, 1, NULL, NULL, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_journal_append(j, NULL, 1, (int64_t[]){0, 0}, NULL, &err), WO_ERR_ARGUMENT);
    wo_journal_free(j);
    assert_first(path, N);
}

/* A record that no longer fits is not there at all. */
static void a_full_disk(void **state)
{
    (void)state;
    wo_journal *j = NULL;
    wo_error err;
    const char *path = make("j");
    struct stat about;
    struct rlimit before;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(wo_journal_open(path, D, &j, &err), WO_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {(rlim_t)about.st_size + 10, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(wo_journal_append(j, queries, 1, (int64_t[]){0, 1}, labels, &err), WO_ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    struct stat after;
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_size, about.st_size);
    wo_journal_free(j);
    assert_first(path, N);
}

/* What others do to the file while it is written is noticed by the next call, and opening it anew is enough. */
static void changed_by_others(void **state)
{
    static const char *const gone = "the journal was removed, moved or replaced while it was in use";
    (void)state;
    for (int how = 0; how < 5; how++) {
        wo_journal *j = NULL;
        wo_error err;
        char moved[4200];
        const char *path = make("j");
        snprintf(moved, sizeof moved, "%s.moved", path);
        assert_int_equal(wo_journal_open(path, D, &j, &err), WO_OK);
        if (how == 0) assert_int_equal(truncate(path, 0), 0);
        if (how == 1) assert_int_equal(truncate(path, 100), 0); /* within a record */
        if (how == 2) assert_int_equal(unlink(path), 0);
        if (how == 3) assert_int_equal(rename(path, moved), 0);
        if (how == 4) assert_int_equal(truncate(path, 1000), 0); /* longer */
        assert_int_equal(wo_journal_sync(j, &err), WO_ERR_FORMAT);
        assert_int_equal(wo_journal_append(j, queries, 1, indptr, labels, &err), WO_ERR_FORMAT);
        if (how == 0)
            assert_string_equal(err.text,
                                "the journal was changed while it was in use: it has 0 bytes, 188 were written");
        if (how == 2 || how == 3) assert_string_equal(err.text, gone);
        wo_journal_free(j);
        if (how == 3) assert_first(moved, N);
        assert_int_equal(wo_journal_open(path, D, &j, &err), WO_OK);
        assert_int_equal(wo_journal_append(j, queries, N, indptr, labels, &err), WO_OK);
        assert_int_equal(wo_journal_sync(j, &err), WO_OK);
        wo_journal_free(j);
        wo_log *log = NULL;
        assert_int_equal(wo_log_open(path, &log, &err), WO_OK);
        assert_int_equal(wo_log_n(log), how == 1 ? N + 2 : how == 4 ? 2 * N : N);
        wo_log_free(log);
    }
}

static void joined(void **state)
{
    (void)state;
    wo_log *a = NULL, *b = NULL, *c = NULL, *all = NULL;
    wo_error err;
    const int64_t rest[] = {0, 2, 3, 5};
    assert_int_equal(wo_log_wrap(queries, 2, D, indptr, labels, &a, &err), WO_OK);
    assert_int_equal(wo_log_wrap(queries + 2 * D, 3, D, rest, labels + 1, &b, &err), WO_OK);
    assert_int_equal(wo_log_join((const wo_log *[]){a, b}, 2, &all, &err), WO_OK);
    assert_int_equal(all->n, N);
    assert_memory_equal(all->queries, queries, sizeof queries);
    assert_memory_equal(all->indptr, indptr, sizeof indptr);
    assert_memory_equal(all->labels, labels, sizeof labels);
    assert_int_equal(all->max_label, 12);
    wo_log_free(all);
    assert_int_equal(wo_log_wrap(queries, 2, D + 1, indptr, labels, &c, &err), WO_OK);
    assert_int_equal(wo_log_join((const wo_log *[]){a, c}, 2, &all, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "log 2 has queries of 4 numbers, the first of 3: they do not go together");
    wo_log_free(c);
    assert_int_equal(wo_log_wrap(queries, 2, D, NULL, NULL, &c, &err), WO_OK);
    assert_int_equal(wo_log_join((const wo_log *[]){a, c}, 2, &all, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "log 2 has no labels, the first has its own: they do not go together");
    assert_int_equal(wo_log_join((const wo_log *[]){c, a}, 2, &all, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_log_join((const wo_log *[]){c, c}, 2, &all, &err), WO_OK);
    assert_null(all->indptr);
    wo_log_free(all);
    assert_int_equal(wo_log_join(NULL, 0, &all, &err), WO_ERR_ARGUMENT);
    assert_null(all);
    wo_log_free(a);
    wo_log_free(b);
    wo_log_free(c);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *path = make("j");
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    bool through = false;
    for (long n = 0; !through; n++) {
        wo_journal *j = NULL;
        wo_log *log = NULL, *both = NULL;
        wo_error err;
        allocations_left = n;
        allocations_alive = 0;
        wo_status status = wo_journal_open(path, D, &j, &err);
        if (!status) status = wo_journal_append(j, queries, 1, (int64_t[]){0, 0}, NULL, &err);
        wo_journal_free(j);
        if (!status) status = wo_log_open(path, &log, &err);
        if (!status) status = wo_log_join((const wo_log *[]){log, log}, 2, &both, &err);
        through = !status;
        if (status) assert_int_equal(status, WO_ERR_MEMORY);
        allocations_left = -1;
        wo_log_free(log);
        wo_log_free(both);
        assert_int_equal(allocations_alive, 0);
        assert_true(n < 100);
    }
    wo_allocator_set(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(as_the_golden_one),
        cmocka_unit_test(every_length),
        cmocka_unit_test(every_byte),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(changed_by_others),
        cmocka_unit_test(joined),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
