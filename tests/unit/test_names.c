/* store/names, text/names_text: names and their ids; their tensors; their text. */
#include "testing.h"

#include "text/names_text.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void add(woi_names *names, const char *text, int32_t expected)
{
    int32_t id;
    assert_int_equal(woi_names_add(names, text, strlen(text), &id, NULL), WO_OK);
    assert_int_equal(id, expected);
}

static void assert_name(const woi_names *names, int32_t id, const char *expected)
{
    assert_int_equal(woi_names_bytes(names, id), strlen(expected));
    assert_memory_equal(woi_names_get(names, id), expected, strlen(expected));
}

static void ids_count_in_the_order_of_adding(void **state)
{
    (void)state;
    woi_names names = {0};
    assert_int_equal(woi_names_find(&names, "a", 1), -1);
    add(&names, "a", 0);
    add(&names, "", 1);
    add(&names, "aa", 2);
    add(&names, "a", 0);
    add(&names, "", 1);
    assert_int_equal(woi_names_find(&names, "aaa", 3), -1);
    assert_int_equal(woi_names_find(&names, "aaa", 2), 2);
    assert_int_equal(woi_names_append(&names, "a", 1, NULL), WO_OK);
    assert_int_equal(names.n, 4);
    assert_name(&names, 3, "a");
    assert_int_equal(woi_names_find(&names, "a", 1), 0);
    woi_names_free(&names);
    assert_int_equal(names.n, 0);
}

/* A stranger's file may have names that all want the same few slots of a table with a hash that he knows. */
static void names_of_a_stranger_do_not_collide(void **state)
{
    (void)state;
    enum { NAMES = 2000, SLOTS = 4096, MOST = 64 };
    woi_names names = {0};
    for (uint64_t next = 0; names.n < NAMES; next++) {
        int32_t id;
        if ((XXH3_64bits(&next, sizeof next) & (SLOTS - 1)) < 4)
            assert_int_equal(woi_names_add(&names, (const char *)&next, sizeof next, &id, NULL), WO_OK);
    }
    assert_int_equal(names.n_slots, SLOTS);
    for (size_t i = 0; i < SLOTS; i++)
        if (names.slots[i].id >= 0) assert_in_range((i - names.slots[i].tag) & (SLOTS - 1), 0, MOST);
    woi_names_free(&names);
}

static void many_names_are_all_found(void **state)
{
    (void)state;
    woi_names names = {0};
    char text[32];
    for (int round = 0; round < 2; round++)
        for (int32_t i = 0; i < 100000; i++) {
            snprintf(text, sizeof text, "name %d", i * 7919);
            add(&names, text, i);
        }
    assert_int_equal(names.n, 100000);
    woi_names_free(&names);
}

/* A table without a byte: there is a place to compare with all the same. */
static void empty_names_are_names(void **state)
{
    (void)state;
    const uint64_t counts[] = {1, 1, 1};
    woi_names names = {0};
    int32_t id = -1, order[3];
    wo_error err;
    assert_int_equal(woi_names_add(&names, "", 0, &id, &err), WO_OK);
    assert_int_equal(woi_names_append(&names, "", 0, &err), WO_OK);
    assert_int_equal(woi_names_append(&names, "", 0, &err), WO_OK);
    assert_int_equal(names.n, 3);
    assert_int_equal(woi_names_find(&names, "", 0), 0);
    assert_int_equal(woi_names_find(&names, "a", 1), -1);
    for (int32_t i = 0; i < 3; i++) assert_non_null(woi_names_get(&names, i));
    woi_names_sort(&names, counts, order);
    woi_names_free(&names);
}

static void sorting_goes_by_count_then_by_name(void **state)
{
    (void)state;
    woi_names names = {0};
    const char *const texts[] = {"b", "ab", "a", "c"};
    const uint64_t counts[] = {2, 2, 2, 5};
    for (int32_t i = 0; i < 4; i++) add(&names, texts[i], i);
    int32_t order[4];
    woi_names_sort(&names, counts, order);
    assert_memory_equal(order, ((int32_t[]){3, 2, 1, 0}), sizeof order);
    woi_names_free(&names);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------- */

static void write_tensors(const char *path, const woi_names *names)
{
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_create(path, "tokens", &writer, NULL), WO_OK);
    assert_int_equal(woi_names_declare(writer, "labels", names, NULL), WO_OK);
    assert_int_equal(woi_names_write(writer, names, NULL), WO_OK);
    assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
    woi_st_writer_free(writer);
}

static void tensors_give_the_names_back(void **state)
{
    (void)state;
    woi_names names = {0}, back = {0};
    woi_st *st = NULL;
    for (int round = 0; round < 2; round++) { /* without any name, then with three */
        write_tensors(scratch("names"), &names);
        assert_int_equal(woi_st_open(scratch("names"), &st, NULL), WO_OK);
        assert_int_equal(woi_names_load(st, "labels", &back, NULL), WO_OK);
        assert_int_equal(back.n, names.n);
        for (int32_t i = 0; i < names.n; i++)
            assert_int_equal(woi_names_find(&back, woi_names_get(&names, i), woi_names_bytes(&names, i)), i);
        woi_names_free(&back);
        woi_st_free(st);
        if (round) break;
        add(&names, "zwölf", 0);
        add(&names, "", 1);
        add(&names, "x", 2);
    }
    woi_names_free(&names);
}

static void damaged_tensors_get_one_sentence(void **state)
{
    (void)state;
    static const struct {
        int64_t indptr[3];
        const char *bytes, *sentence;
    } cases[] = {
        {{1, 2, 3}, "abc", "names.labels.indptr[0] is 1, expected 0 to 0"},
        {{0, -1, 3}, "abc", "names.labels.indptr[1] is -1, expected 0 to 3"},
        {{0, 4, 3}, "abc", "names.labels.indptr[1] is 4, expected 0 to 3"},
        {{0, 3, 2}, "abc", "names.labels.indptr[2] is 2, expected 3 to 3"},
        {{0, 1, 2}, "abc", "names.labels.indptr[2] is 2, expected 3 to 3"},
        {{0, 1, 3}, "a\xff\xfe", "names.labels: name 1 is not one line of UTF-8"},
        {{0, 1, 3}, "ab\n", "names.labels: name 1 is not one line of UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        woi_st_writer *writer = NULL;
        woi_st *st = NULL;
        woi_names names = {0};
        wo_error err;
        assert_int_equal(woi_st_create(scratch("bad"), "tokens", &writer, NULL), WO_OK);
        assert_int_equal(woi_st_declare(writer, "names.labels.bytes", WOI_U8, 1, (uint64_t[]){3}, NULL), WO_OK);
        assert_int_equal(woi_st_declare(writer, "names.labels.indptr", WOI_I64, 1, (uint64_t[]){3}, NULL), WO_OK);
        assert_int_equal(woi_st_append(writer, cases[i].bytes, 3, NULL), WO_OK);
        assert_int_equal(woi_st_append(writer, cases[i].indptr, 24, NULL), WO_OK);
        assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
        woi_st_writer_free(writer);
        assert_int_equal(woi_st_open(scratch("bad"), &st, NULL), WO_OK);
        assert_int_equal(woi_names_load(st, "labels", &names, &err), WO_ERR_FORMAT);
        assert_string_equal(err.text, cases[i].sentence);
        assert_int_equal(woi_names_load(st, "features", &names, &err), WO_ERR_FORMAT);
        assert_string_equal(err.text, "the file has no tensor 'names.features.bytes'");
        woi_st_free(st);
    }
}

/* ---- Text -------------------------------------------------------------------------------------------------- */

static void text_gives_the_names_back(void **state)
{
    (void)state;
    woi_names names = {0};
    woi_outfile *out = NULL;
    size_t bytes;
    assert_int_equal(woi_names_read(scratch_text("in.txt", "a b\r\n\na b\nlast"), &names, NULL), WO_OK);
    assert_int_equal(names.n, 4);
    assert_name(&names, 2, "a b");
    assert_int_equal(woi_outfile_create(scratch("out.txt"), &out, NULL), WO_OK);
    assert_int_equal(woi_names_print(&names, out, NULL), WO_OK);
    assert_int_equal(woi_outfile_commit(out, NULL), WO_OK);
    woi_outfile_free(out);
    char *text = slurp(scratch("out.txt"), &bytes);
    assert_string_equal(text, "a b\n\na b\nlast\n");
    free(text);
    woi_names_free(&names);

    /* A byte order mark is no part of the first name; elsewhere it is like any character. */
    assert_int_equal(woi_names_read(scratch_text("marked.txt", "\xef\xbb\xbf"
                                                               "a\n\xef\xbb\xbf"
                                                               "b\n"),
                                    &names, NULL),
                     WO_OK);
    assert_int_equal(names.n, 2);
    assert_name(&names, 0, "a");
    assert_name(&names, 1,
                "\xef\xbb\xbf"
                "b");
    woi_names_free(&names);

    wo_error err;
    assert_int_equal(woi_names_read(scratch_text("bad.txt", "a\n\xff\n"), &names, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "line 2 is not UTF-8");
    assert_int_equal(woi_names_read(scratch("absent"), &names, &err), WO_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_count_in_the_order_of_adding),   cmocka_unit_test(many_names_are_all_found),
        cmocka_unit_test(names_of_a_stranger_do_not_collide), cmocka_unit_test(empty_names_are_names),
        cmocka_unit_test(sorting_goes_by_count_then_by_name), cmocka_unit_test(tensors_give_the_names_back),
        cmocka_unit_test(damaged_tensors_get_one_sentence),   cmocka_unit_test(text_gives_the_names_back),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
