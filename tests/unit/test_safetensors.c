/* store/: safetensors written and read, sharded models, checksums, output that is complete or absent. */
#include "testing.h"

#include "base/rng.h"
#include "store/log.h"

#include <errno.h>
#include <sys/stat.h>

/* Writes a file of several types and sizes, its data in pieces of `piece` bytes. */
static void write_sample(const char *path, size_t piece)
{
    static const struct {
        const char *name;
        woi_dtype dtype;
        int n_dims;
        uint64_t shape[3];
    } tensors[] = {
        {"weight", WOI_F32, 2, {7, 5}}, {"bias", WOI_F32, 1, {7}},      {"empty", WOI_I64, 2, {0, 9}},
        {"half", WOI_BF16, 1, {3}},     {"scalar", WOI_F64, 0, {0}},    {"ids", WOI_I32, 1, {11}},
        {"bytes", WOI_U8, 1, {200}},    {"cube", WOI_I8, 3, {2, 3, 4}}, {"last empty", WOI_U8, 1, {0}},
    };
    woi_st_writer *writer = NULL;
    wo_error err;
    assert_int_equal(woi_st_create(path, "layer", &writer, &err), WO_OK);
    assert_int_equal(woi_st_set_meta(writer, "note", "with \"quotes\" and \xc3\xa9", &err), WO_OK);
    size_t total = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        size_t bytes = woi_dtype_bytes(tensors[i].dtype);
        for (int d = 0; d < tensors[i].n_dims; d++) bytes *= tensors[i].shape[d];
        total += bytes;
        assert_int_equal(
            woi_st_declare(writer, tensors[i].name, tensors[i].dtype, tensors[i].n_dims, tensors[i].shape, &err),
            WO_OK);
    }
    unsigned char *data = malloc(total);
    for (size_t i = 0; i < total; i++) data[i] = (unsigned char)woi_rng_u64(1, 9, i);
    for (size_t at = 0; at < total; at += piece)
        assert_int_equal(woi_st_append(writer, data + at, total - at < piece ? total - at : piece, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    free(data);
}

static void what_is_written_can_be_read(void **state)
{
    (void)state;
    const char *path = scratch("sample");
    write_sample(path, 1000);
    woi_st *st = NULL;
    wo_error err;
    assert_int_equal(woi_st_open(path, &st, &err), WO_OK);
    assert_string_equal(woi_st_kind(st), "layer");
    assert_string_equal(woi_st_meta(st, "note"), "with \"quotes\" and \xc3\xa9");
    assert_string_equal(woi_st_meta(st, "wideout.version"), wo_version());
    assert_null(woi_st_meta(st, "absent"));
    assert_null(woi_st_find(st, "absent"));
    const woi_tensor *weight = woi_st_find(st, "weight"), *cube = woi_st_find(st, "cube");
    assert_non_null(weight);
    assert_int_equal(weight->n_dims, 2);
    assert_int_equal(weight->shape[0], 7);
    assert_int_equal(weight->shape[1], 5);
    assert_int_equal(cube->n, 24);
    assert_int_equal(woi_st_find(st, "scalar")->n, 1);
    assert_int_equal(woi_st_find(st, "empty")->n, 0);
    uint64_t at = 0; /* the data, tensor after tensor, padding left out, are the stream that was written */
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        const unsigned char *byte = t->data;
        if (strncmp(t->name, "padding.", 8) == 0) {
            for (size_t j = 0; j < t->bytes; j++) assert_int_equal(byte[j], 0);
            continue;
        }
        if (t->bytes) assert_int_equal((uintptr_t)t->data % 64, 0);
        for (size_t j = 0; j < t->bytes; j++) assert_int_equal(byte[j], (unsigned char)woi_rng_u64(1, 9, at++));
    }
    assert_int_equal(at, 7 * 5 * 4 + 7 * 4 + 3 * 2 + 8 + 11 * 4 + 200 + 24);
    assert_int_equal(woi_st_verify(st, NULL, &err), WO_OK);
    woi_st_free(st);
}

static void pieces_do_not_change_the_bytes(void **state)
{
    (void)state;
    size_t first_bytes, bytes;
    write_sample(scratch("whole"), 1000);
    char *first = slurp(scratch("whole"), &first_bytes);
    for (size_t piece = 1; piece < 130; piece += 9) {
        write_sample(scratch("pieces"), piece);
        char *again = slurp(scratch("pieces"), &bytes);
        assert_int_equal(bytes, first_bytes);
        assert_memory_equal(again, first, bytes);
        free(again);
    }
    free(first);
}

/* Read, write again with what was read: the same bytes. */
static void round_trip_is_byte_identical(void **state)
{
    (void)state;
    const char *path = scratch("one"), *copy = scratch("two");
    write_sample(path, 1000);
    woi_st *st = NULL;
    woi_st_writer *writer = NULL;
    wo_error err;
    assert_int_equal(woi_st_open(path, &st, &err), WO_OK);
    assert_int_equal(woi_st_create(copy, woi_st_kind(st), &writer, &err), WO_OK);
    void *cursor = NULL;
    const char *key, *value;
    while (woi_st_meta_next(st, &cursor, &key, &value))
        if (strncmp(key, "xxh3.", 5) != 0) assert_int_equal(woi_st_set_meta(writer, key, value, &err), WO_OK);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
            const woi_tensor *t = woi_st_tensor(st, i);
            if (strncmp(t->name, "padding.", 8) == 0) continue;
            if (pass == 0)
                assert_int_equal(woi_st_declare(writer, t->name, t->dtype, t->n_dims, t->shape, &err), WO_OK);
            else
                assert_int_equal(woi_st_append(writer, t->data, t->bytes, &err), WO_OK);
        }
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    woi_st_free(st);
    size_t a_bytes, b_bytes;
    char *a = slurp(path, &a_bytes), *b = slurp(copy, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    free(a);
    free(b);
}

/* The file of version 0.1.0 that is kept in the tree must stay readable, and today's writer must still make it. */
static void golden_file_is_unchanged(void **state)
{
    (void)state;
    write_sample(scratch("now"), 1000);
    size_t bytes, golden_bytes;
    char *now = slurp(scratch("now"), &bytes), *golden = slurp("tests/golden/layer-v1.safetensors", &golden_bytes);
    woi_st *st = NULL;
    wo_error err;
    assert_int_equal(woi_st_open("tests/golden/layer-v1.safetensors", &st, &err), WO_OK);
    assert_int_equal(woi_st_verify(st, NULL, &err), WO_OK);
    if (strcmp(woi_st_meta(st, "wideout.version"), wo_version()) == 0) {
        assert_int_equal(bytes, golden_bytes);
        assert_memory_equal(now, golden, bytes);
    }
    woi_st_free(st);
    free(now);
    free(golden);
}

/* Flip every bit of every byte in turn: each is noticed, by open or by verify. */
static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    write_sample(scratch("good"), 1000);
    size_t bytes, noticed = 0;
    char *good = slurp(scratch("good"), &bytes);
    for (size_t i = 0; i < bytes; i++) {
        int bit = (int)(i % 8);
        good[i] ^= (char)(1 << bit);
        const char *path = scratch_write("flipped", good, bytes);
        good[i] ^= (char)(1 << bit);
        woi_st *st = NULL;
        wo_error err;
        wo_status status = woi_st_open(path, &st, &err);
        if (!status) status = woi_st_verify(st, NULL, &err);
        noticed += status != WO_OK;
        woi_st_free(st);
    }
    assert_int_equal(noticed, bytes);
    free(good);
}

static void every_truncation_is_noticed(void **state)
{
    (void)state;
    write_sample(scratch("good"), 1000);
    size_t bytes;
    char *good = slurp(scratch("good"), &bytes);
    for (size_t n = 0; n < bytes; n++) {
        woi_st *st = NULL;
        wo_error err = {0};
        assert_int_not_equal(woi_st_open(scratch_write("short", good, n), &st, &err), WO_OK);
        assert_true(strlen(err.text) > 0);
        assert_null(st);
    }
    free(good);
}

/* ---- The writer's own checks ------------------------------------------------------------------------------- */

static void a_writer_that_is_not_finished_leaves_nothing(void **state)
{
    (void)state;
    const char *path = scratch_text("kept", "the old file");
    woi_st_writer *writer = NULL;
    wo_error err;
    const uint64_t shape[] = {4};
    assert_int_equal(woi_st_create(path, "log", &writer, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "a", WOI_F32, 1, shape, &err), WO_OK);
    assert_int_equal(woi_st_append(writer, "0123456789", 10, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "tensor 'a' got 10 of its 16 bytes");
    woi_st_writer_free(writer);
    size_t bytes;
    char *text = slurp(path, &bytes);
    assert_string_equal(text, "the old file");
    free(text);
    char command[160];
    snprintf(command, sizeof command, "test -z \"$(ls %s | grep tmp)\"", scratch_folder);
    assert_int_equal(system(command), 0);
}

static void wrong_declarations_are_refused(void **state)
{
    (void)state;
    woi_st_writer *writer = NULL;
    wo_error err;
    const uint64_t one[] = {1}, huge[] = {1ull << 40, 1ull << 40};
    assert_int_equal(woi_st_create(scratch("w"), "log", &writer, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "a", WOI_U8, 1, one, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "a", WOI_U8, 1, one, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "tensor 'a' is declared twice");
    assert_int_equal(woi_st_declare(writer, "header", WOI_U8, 1, one, &err), WO_ERR_ARGUMENT);
    assert_int_equal(woi_st_declare(writer, "__metadata__", WOI_U8, 1, one, &err), WO_ERR_ARGUMENT);
    assert_int_equal(woi_st_declare(writer, "padding.7", WOI_U8, 1, one, &err), WO_ERR_ARGUMENT);
    assert_int_equal(woi_st_declare(writer, "b", WOI_F32, 2, huge, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "tensor 'b' is too large for a file");
    assert_int_equal(woi_st_declare(writer, "b", WOI_U8, 9, one, &err), WO_ERR_ARGUMENT);
    assert_int_equal(woi_st_set_meta(writer, "bad", "\xff\xfe", &err), WO_ERR_ARGUMENT);
    assert_int_equal(woi_st_append(writer, "ab", 2, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "1 bytes were written past the last tensor");
    assert_int_equal(woi_st_declare(writer, "c", WOI_U8, 1, one, &err), WO_ERR_ARGUMENT);
    woi_st_writer_free(writer);
}

static void places_that_cannot_be_written_are_sentences(void **state)
{
    (void)state;
    woi_outfile *out = NULL;
    wo_error err;
    assert_int_equal(woi_outfile_create("/nonexistent/x", &out, &err), WO_ERR_IO);
    assert_string_equal(err.text, "the file cannot be created: No such file or directory");
    assert_int_equal(woi_outfile_create(scratch_folder, &out, &err), WO_ERR_IO);
    assert_string_equal(err.text, "the output exists and is not a plain file");
    assert_null(out);
}

static void output_follows_the_umask(void **state)
{
    (void)state;
    mode_t before = umask(027);
    write_sample(scratch("mode"), 1000);
    umask(before);
    struct stat about;
    assert_int_equal(stat(scratch("mode"), &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
}

/* ---- Other people's files ---------------------------------------------------------------------------------- */

/* A file as PyTorch users write it: no checksums, data at any byte. */
static const char *write_foreign(const char *name, const char *header, const char *data)
{
    char file[4096];
    uint64_t length = strlen(header);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, data, strlen(data));
    return scratch_write(name, file, 8 + length + strlen(data));
}

static void foreign_files_open_unaligned(void **state)
{
    (void)state;
    const char *path = write_foreign("foreign",
                                     "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]},"
                                     "\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                                     "x\1\2\3\4");
    woi_st *st = NULL;
    wo_error err;
    assert_int_equal(woi_st_open(path, &st, &err), WO_OK);
    assert_null(woi_st_kind(st));
    assert_int_equal(woi_st_verify(st, NULL, &err), WO_OK);
    assert_string_equal(woi_st_tensor(st, 0)->name, "a");
    float value, expected;
    memcpy(&expected, "\1\2\3\4", 4);
    const woi_tensor *b = woi_st_find(st, "b");
    assert_int_equal(woi_convert_f32(b->dtype, b->data, 1, &value, &err), WO_OK);
    assert_memory_equal(&value, &expected, 4);
    assert_int_equal(woi_convert_f32(woi_st_find(st, "a")->dtype, b->data, 1, &value, &err), WO_ERR_UNSUPPORTED);
    woi_st_free(st);
}

static void shards_look_like_one_file(void **state)
{
    (void)state;
    write_foreign("s1", "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "ab");
    write_foreign("s2", "{\"y\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", "cde");
    const char *path =
        scratch_text("index.json", "{\"metadata\":{\"total_size\":5},\"weight_map\":{\"x\":\"s1\",\"y\":\"s2\"}}");
    woi_st *st = NULL;
    wo_error err;
    assert_int_equal(woi_st_open(path, &st, &err), WO_OK);
    assert_int_equal(woi_st_n_shards(st), 2);
    assert_int_equal(woi_st_n_tensors(st), 2);
    assert_memory_equal(woi_st_find(st, "x")->data, "ab", 2);
    assert_memory_equal(woi_st_find(st, "y")->data, "cde", 3);
    assert_string_equal(woi_st_shard_name(st, woi_st_find(st, "y")->shard), "s2");
    woi_st_free(st);
}

static void logs_are_checked_and_read(void **state)
{
    (void)state;
    const char *path = scratch("log");
    const float queries[6] = {1, 2, 3, 4, 5, 6};
    const int64_t indptr[4] = {0, 2, 2, 3};
    const int32_t labels[3] = {7, 40, 9};
    woi_st_writer *writer = NULL;
    woi_log log;
    wo_error err;
    assert_int_equal(woi_st_create(path, "log", &writer, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "queries", WOI_F32, 2, (uint64_t[]){3, 2}, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "labels.indptr", WOI_I64, 1, (uint64_t[]){4}, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "labels.indices", WOI_I32, 1, (uint64_t[]){3}, &err), WO_OK);
    assert_int_equal(woi_st_append(writer, queries, sizeof queries, &err), WO_OK);
    assert_int_equal(woi_st_append(writer, indptr, sizeof indptr, &err), WO_OK);
    assert_int_equal(woi_st_append(writer, labels, sizeof labels, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    assert_int_equal(woi_log_open(path, &log, &err), WO_OK);
    assert_true(log.n == 3 && log.d == 2 && log.max_label == 40);
    assert_memory_equal(log.indptr, indptr, sizeof indptr);
    assert_memory_equal(log.labels, labels, sizeof labels);
    assert_memory_equal(log.queries->data, queries, sizeof queries);
    woi_log_close(&log);
    woi_log_close(&log); /* twice is fine */

    write_foreign("unlabelled", "{\"queries\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}", "abcd");
    assert_int_equal(woi_log_open(scratch("unlabelled"), &log, &err), WO_OK);
    assert_true(log.n == 1 && log.d == 2 && log.max_label == -1 && !log.indptr);
    woi_log_close(&log);
}

/* ---- Element types ----------------------------------------------------------------------------------------- */

/* The defining formula, for every half there is. */
static void every_half_converts(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
        double expected = exponent == 31  ? (mantissa ? __builtin_nan("") : __builtin_inf())
                          : exponent == 0 ? __builtin_ldexp(mantissa, -24)
                                          : __builtin_ldexp(1024 + mantissa, exponent - 25);
        if (half & 0x8000) expected = -expected;
        float got = woi_f16_to_f32((uint16_t)half);
        if (exponent == 31 && mantissa)
            assert_true(got != got);
        else
            assert_true((double)got == expected && !__builtin_signbit(got) == !__builtin_signbit(expected));
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t bits;
        uint16_t expected;
    } cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
                 {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000},
                 {0x7f800001, 0x7fc0}, {0x00000001, 0x0000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float value;
        memcpy(&value, &cases[i].bits, 4);
        assert_int_equal(woi_f32_to_bf16(value), cases[i].expected);
    }
}

static void integers_and_doubles_convert(void **state)
{
    (void)state;
    wo_error err;
    int64_t out[2];
    float f;
    assert_int_equal(woi_convert_i64(WOI_I32, (int32_t[]){-5, 7}, 2, out, &err), WO_OK);
    assert_true(out[0] == -5 && out[1] == 7);
    assert_int_equal(woi_convert_i64(WOI_I8, (int8_t[]){-128, 127}, 2, out, &err), WO_OK);
    assert_true(out[0] == -128 && out[1] == 127);
    assert_int_equal(woi_convert_i64(WOI_U8, (uint8_t[]){0, 255}, 2, out, &err), WO_OK);
    assert_true(out[0] == 0 && out[1] == 255);
    assert_int_equal(woi_convert_f32(WOI_F64, (double[]){0.1}, 1, &f, &err), WO_OK);
    assert_true(f == 0.1f);
    assert_int_equal(woi_convert_i64(WOI_F32, &f, 1, out, &err), WO_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "F32 elements cannot be read as integers");
}

static void streams_grow_and_keep_their_room(void **state)
{
    (void)state;
    wo_error err;
    const float two[] = {1, 2};
    /* As large as planned: the bytes are those of a file whose sizes were known. */
    for (int streamed = 0; streamed < 2; streamed++) {
        woi_st_writer *writer = NULL;
        assert_int_equal(woi_st_create(scratch(streamed ? "stream" : "plain"), "log", &writer, &err), WO_OK);
        assert_int_equal(woi_st_declare(writer, "a", WOI_F32, 2, (uint64_t[]){3, 1}, &err), WO_OK);
        assert_int_equal(woi_st_declare(writer, "b", WOI_F32, 1, (uint64_t[]){2}, &err), WO_OK);
        if (streamed) {
            assert_int_equal(woi_st_stream(writer, 0, &err), WO_OK);
            assert_int_equal(woi_st_declare(writer, "a", WOI_F32, 2, (uint64_t[]){0, 1}, &err), WO_OK);
            assert_int_equal(woi_st_append(writer, two, 4, &err), WO_ERR_ARGUMENT);
            assert_string_equal(err.text, "4 bytes were written past the last tensor");
            assert_int_equal(woi_st_grow(writer, UINT64_MAX / 2, &err), WO_ERR_ARGUMENT);
            assert_string_equal(err.text, "tensor 'a' is too large for a file");
            assert_int_equal(woi_st_grow(writer, 2, &err), WO_OK);
            assert_int_equal(woi_st_declare(writer, "b", WOI_F32, 1, (uint64_t[]){2}, &err), WO_ERR_ARGUMENT);
            assert_string_equal(err.text, "tensor 'a' got 0 of its 8 bytes");
        }
        assert_int_equal(woi_st_append(writer, two, 8, &err), WO_OK);
        if (streamed) assert_int_equal(woi_st_grow(writer, 1, &err), WO_OK);
        assert_int_equal(woi_st_append(writer, two, 4, &err), WO_OK);
        if (streamed) assert_int_equal(woi_st_declare(writer, "b", WOI_F32, 1, (uint64_t[]){2}, &err), WO_OK);
        assert_int_equal(woi_st_append(writer, two, 8, &err), WO_OK);
        if (woi_st_finish(writer, &err)) fail_msg("%s", err.text);
        woi_st_writer_free(writer);
    }
    size_t plain_bytes, stream_bytes;
    char *plain = slurp(scratch("plain"), &plain_bytes), *stream = slurp(scratch("stream"), &stream_bytes);
    assert_int_equal(plain_bytes, stream_bytes);
    assert_memory_equal(plain, stream, plain_bytes);
    free(plain);
    free(stream);

    /* More tensors than room was kept for. */
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_create(scratch("crowded"), "log", &writer, &err), WO_OK);
    assert_int_equal(woi_st_stream(writer, 0, &err), WO_OK);
    for (char name[] = "a"; *name < 'f'; ++*name)
        assert_int_equal(woi_st_declare(writer, name, WOI_F32, 1, (uint64_t[]){0}, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "room was kept for"));
    woi_st_writer_free(writer);
    assert_int_equal(access(scratch("crowded"), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_grow_and_keep_their_room),
        cmocka_unit_test(what_is_written_can_be_read),
        cmocka_unit_test(pieces_do_not_change_the_bytes),
        cmocka_unit_test(round_trip_is_byte_identical),
        cmocka_unit_test(golden_file_is_unchanged),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(every_truncation_is_noticed),
        cmocka_unit_test(a_writer_that_is_not_finished_leaves_nothing),
        cmocka_unit_test(wrong_declarations_are_refused),
        cmocka_unit_test(places_that_cannot_be_written_are_sentences),
        cmocka_unit_test(output_follows_the_umask),
        cmocka_unit_test(foreign_files_open_unaligned),
        cmocka_unit_test(shards_look_like_one_file),
        cmocka_unit_test(logs_are_checked_and_read),
        cmocka_unit_test(every_half_converts),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(integers_and_doubles_convert),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
