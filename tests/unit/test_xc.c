/* text/: the extreme-classification format: values against strtof, rows against a plain parser, dialects, both forms.
 */
#include "testing.h"

#include "base/rng.h"
#include "store/store.h"
#include "text/xc_value.h"

#include <locale.h>
#include <math.h>
#include <zlib.h>

/* ---- Values ------------------------------------------------------------------------------------------------ */

static int64_t ordered(float value)
{
    int32_t bits;
    memcpy(&bits, &value, 4);
    return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
}

static void check_value(const char *text)
{
    float expected = strtof(text, NULL), got = 0, fast = 0;
    char line[128];
    int n = snprintf(line, sizeof line, "%s ", text);
    const char *end = woi_xc_parse_value(line, &got);
    if (!isfinite(expected)) {
        /* Just below the largest float a rounding may tip either way. */
        assert_true(end == NULL || ordered(got) >= ordered(3.4028234e38f) - 1);
        return;
    }
    assert_ptr_equal(end, line + n - 1);
    if (llabs(ordered(got) - ordered(expected)) > 1) fail_msg("%s: %.9g, strtof says %.9g", text, got, expected);
    assert_ptr_equal(woi_xc_parse_value_fast(line, &fast), end);
    assert_memory_equal(&fast, &got, 4);
}

static void values_are_within_an_ulp_of_strtof(void **state)
{
    (void)state;
    static const char *const cases[] = {"0",
                                        "1",
                                        "-1",
                                        "+1",
                                        "0.1",
                                        ".5",
                                        "5.",
                                        "-.25",
                                        "1e3",
                                        "1E-3",
                                        "1e+2",
                                        "0.000001",
                                        "123456789",
                                        "3.4028235e38",
                                        "3.4028234663852886e38",
                                        "-3.4028235e38",
                                        "1.17549435e-38",
                                        "1e-40",
                                        "1.4e-45",
                                        "1e-46",
                                        "1e-400",
                                        "0e999",
                                        "0.0",
                                        "16777217",
                                        "16777219",
                                        "0.30000001192092896",
                                        "9007199254740993",
                                        "123456789012345678901234567890",
                                        "0.00000000000000000000000000000000000012345678901234567890123",
                                        "1e0000000000000000005",
                                        "00000000000000000000001",
                                        "4.9406564584124654e-324",
                                        "1e-5",
                                        "0.1581",
                                        "2.5e-1",
                                        "179769313486231570000000000000000000000e-10"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_value(cases[i]);
    for (uint64_t i = 0; i < 400000; i++) {
        char text[96];
        uint32_t bits = (uint32_t)woi_rng_u64(5, 0, i);
        float value;
        memcpy(&value, &bits, 4);
        if (!isfinite(value)) continue;
        switch (i % 4) {
        case 0: snprintf(text, sizeof text, "%.9g", (double)value); break;
        case 1: snprintf(text, sizeof text, "%.*f", (int)(bits % 12), (double)woi_rng_uniform(5, 1, i)); break;
        case 2: snprintf(text, sizeof text, "%.*e", (int)(bits % 25), (double)value); break;
        default: snprintf(text, sizeof text, "%u.%u", bits % 1000, bits / 1000); break;
        }
        check_value(text);
    }
}

static void what_is_not_a_finite_number_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {"",    "-",    "+",   ".",        "e5",    "1e",    "1e+",    "nan",
                                        "inf", "-inf", "NaN", "infinity", "1e999", "-1e39", "3.5e38", "x"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[32];
        float value;
        snprintf(line, sizeof line, "%s ", cases[i]);
        assert_null(woi_xc_parse_value(line, &value));
        assert_null(woi_xc_parse_value_fast(line, &value));
    }
    float value;
    const char *hex = "0x10 ";
    assert_ptr_equal(woi_xc_parse_value(hex, &value), hex + 1); /* the caller sees the 'x' that is left */
}

static void written_values_read_back(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } cases[] = {{1, "1"}, {-0.5f, "-0.5"}, {0.1f, "0.1"},          {0.035f, "0.035"},   {100, "100"},
                 {0, "0"}, {-0.0f, "-0"},   {16777216, "16777216"}, {1e-6f, "0.000001"}, {0.3333333f, "0.3333333"}};
    char text[WOI_XC_VALUE_BYTES + 1];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        text[woi_xc_format_value(cases[i].value, text)] = '\0';
        assert_string_equal(text, cases[i].text);
    }
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)woi_rng_u64(6, 0, i);
        float value, back;
        memcpy(&value, &bits, 4);
        if (i % 2) value = woi_rng_normal(6, 1, i);
        if (!isfinite(value)) continue;
        size_t n = woi_xc_format_value(value, text);
        text[n] = '\n';
        assert_ptr_equal(woi_xc_parse_value(text, &back), text + n);
        if (fabsf(value) > 1e-15f && fabsf(value) < 9e15f)
            assert_memory_equal(&back, &value, 4);
        else
            assert_true(llabs(ordered(back) - ordered(value)) <= 1);
    }
}

/* ---- Rows -------------------------------------------------------------------------------------------------- */

/* A row of random data, known without parsing. */
typedef struct row {
    int32_t labels[8], features[40];
    float values[40];
    int n_labels, n_features;
} row;

static row make_row(uint64_t i)
{
    row r = {0};
    int n_labels = (int)woi_rng_below(2, 0, i, 6), n_features = (int)woi_rng_below(2, 1, i, 40);
    int32_t id = -1;
    for (int j = 0; j < n_labels; j++) {
        id += 1 + (int32_t)woi_rng_below(2, 2, i * 64 + (uint64_t)j, 30);
        r.labels[r.n_labels++] = id;
    }
    id = -1;
    for (int j = 0; j < n_features; j++) {
        id += 1 + (int32_t)woi_rng_below(2, 3, i * 64 + (uint64_t)j, 100);
        r.values[r.n_features] = roundf(woi_rng_normal(2, 4, i * 64 + (uint64_t)j) * 1e4f) / 1e4f;
        r.features[r.n_features++] = id;
    }
    return r;
}

enum { N_ROWS = 3000, N_FEATURES = 4000, N_LABELS = 200 };

static void write_rows(const char *path)
{
    woi_outfile *out = NULL;
    wo_error err;
    assert_int_equal(woi_outfile_create(path, &out, &err), WO_OK);
    assert_int_equal(woi_xc_write_header(out, (uint64_t[]){N_ROWS, N_FEATURES, N_LABELS}, 3, &err), WO_OK);
    for (uint64_t i = 0; i < N_ROWS; i++) {
        row r = make_row(i);
        woi_xc_row view = {(size_t)r.n_labels, (size_t)r.n_features, r.labels, r.features, r.values};
        assert_int_equal(woi_xc_write_row(out, &view, &err), WO_OK);
    }
    assert_int_equal(woi_outfile_commit(out, &err), WO_OK);
    woi_outfile_free(out);
}

static void check_loaded(const char *path)
{
    woi_xc_data data;
    wo_error err;
    assert_int_equal(woi_xc_load(path, &(woi_xc_options){0}, NULL, &data, &err), WO_OK);
    assert_int_equal(data.n, N_ROWS);
    assert_int_equal(data.n_features, N_FEATURES);
    assert_int_equal(data.n_labels, N_LABELS);
    for (uint64_t i = 0; i < N_ROWS; i++) {
        row r = make_row(i);
        assert_int_equal(data.label_indptr[i + 1] - data.label_indptr[i], r.n_labels);
        assert_int_equal(data.feature_indptr[i + 1] - data.feature_indptr[i], r.n_features);
        if (r.n_labels) assert_memory_equal(data.labels + data.label_indptr[i], r.labels, (size_t)r.n_labels * 4);
        if (r.n_features) {
            assert_memory_equal(data.features + data.feature_indptr[i], r.features, (size_t)r.n_features * 4);
            for (int j = 0; j < r.n_features; j++) assert_true(data.values[data.feature_indptr[i] + j] == r.values[j]);
        }
    }
    woi_xc_data_free(&data);
}

static void rows_survive_plain_and_gzip(void **state)
{
    (void)state;
    const char *plain = scratch("rows.txt"), *packed = scratch("rows.gz");
    write_rows(plain);
    check_loaded(plain);
    size_t bytes;
    char *text = slurp(plain, &bytes);
    /* Two gzip members in one file, as 'cat a.gz b.gz' makes them. */
    for (int part = 0; part < 2; part++) {
        gzFile file = gzopen(packed, part ? "ab" : "wb");
        size_t start = part ? bytes / 2 : 0, end = part ? bytes : bytes / 2;
        assert_int_equal(gzwrite(file, text + start, (unsigned)(end - start)), end - start);
        assert_int_equal(gzclose(file), Z_OK);
    }
    check_loaded(packed);
    /* No line end after the last row is fine, a truncated gzip file is not. */
    check_loaded(scratch_write("no-newline.txt", text, bytes - 1));
    free(text);
    text = slurp(packed, &bytes);
    for (size_t cut = 1; cut < 40; cut += 3) {
        woi_xc_data data;
        wo_error err;
        assert_int_equal(
            woi_xc_load(scratch_write("cut.gz", text, bytes - cut), &(woi_xc_options){0}, NULL, &data, &err),
            WO_ERR_FORMAT);
        assert_non_null(strstr(err.text, "truncated"));
    }
    free(text);
}

/* A line longer than the reader's piece of 1 MiB, between short ones. */
static void long_lines_are_read(void **state)
{
    (void)state;
    enum { WIDE = 400000 };
    char *text = malloc(WIDE * 12 + 100), *to = text;
    to += sprintf(to, "3 %d 2\n0 0:1\n1 ", WIDE);
    for (int i = 0; i < WIDE; i++) to += sprintf(to, i ? " %d:.5" : "%d:.5", i);
    to += sprintf(to, "\n0,1 7:2\n");
    const char *path = scratch_write("long.txt", text, (size_t)(to - text));
    woi_xc *xc = NULL;
    woi_xc_row r;
    bool more;
    wo_error err;
    assert_int_equal(woi_xc_open(path, &(woi_xc_options){0}, &xc, &err), WO_OK);
    assert_int_equal(woi_xc_next(xc, &r, &more, &err), WO_OK);
    assert_int_equal(r.n_features, 1);
    assert_int_equal(woi_xc_next(xc, &r, &more, &err), WO_OK);
    assert_int_equal(r.n_features, WIDE);
    for (int i = 0; i < WIDE; i++) assert_true(r.features[i] == i && r.values[i] == 0.5f);
    assert_int_equal(woi_xc_next(xc, &r, &more, &err), WO_OK);
    assert_true(more && r.n_labels == 2 && r.values[0] == 2);
    assert_int_equal(woi_xc_next(xc, &r, &more, &err), WO_OK);
    assert_false(more);
    assert_int_equal(woi_xc_text_bytes(xc), to - text);
    woi_xc_free(xc);
    free(text);
}

/* Reads one text and prints it as "labels|features:values;" per row. */
static const char *flatten(const char *text, woi_xc_options options)
{
    static char out[1000];
    woi_xc *xc = NULL;
    wo_error err;
    char *to = out;
    *to = '\0';
    if (woi_xc_open(scratch_text("t.txt", text), &options, &xc, &err)) return strcpy(out, err.text);
    for (;;) {
        woi_xc_row r;
        bool more;
        if (woi_xc_next(xc, &r, &more, &err)) {
            strcpy(out, err.text);
            break;
        }
        if (!more) break;
        for (size_t i = 0; i < r.n_labels; i++) to += sprintf(to, i ? ",%d" : "%d", r.labels[i]);
        to += sprintf(to, "|");
        for (size_t i = 0; i < r.n_features; i++) to += sprintf(to, i ? " %d:%g" : "%d:%g", r.features[i], r.values[i]);
        to += sprintf(to, ";");
    }
    if (*out && strchr(out, '|'))
        to += sprintf(to, "%d %d %d", (int)woi_xc_get_shape(xc)->n, (int)woi_xc_get_shape(xc)->n_features,
                      (int)woi_xc_get_shape(xc)->n_labels);
    woi_xc_free(xc);
    return out;
}

static void strict_rows(void **state)
{
    (void)state;
    const woi_xc_options strict = {0};
    assert_string_equal(flatten("2 5 3\n0,2 1:0.5 4:1\n1 0:2\n", strict), "0,2|1:0.5 4:1;1|0:2;2 5 3");
    assert_string_equal(flatten("3 5 3\n 1:1\n2 \n \n", strict), "|1:1;2|;|;3 5 3");
    assert_string_equal(flatten("1 5 3\n2\n", strict), "2|;1 5 3");
    assert_string_equal(flatten("3 4\n0:1 3:2\n\n1:1\n", strict), "|0:1 3:2;|;|1:1;3 4 0");
}

static void lenient_dialects(void **state)
{
    (void)state;
    const woi_xc_options lenient = {.lenient = true};
    assert_string_equal(flatten("2 5 3\r\n2,0,2 4:1  1:0.5\t\r\n 3\r\n", lenient), "0,2|1:0.5 4:1;|3:1;2 5 3");
    assert_string_equal(flatten("1 9 1\n0 5:1 2:3 5:0.5 2\n\n\n", lenient), "0|2:4 5:1.5;1 9 1");
    assert_string_equal(flatten("0,2 1:1 7:2\n\n3:1\n5 2:1", lenient), "0,2|1:1 7:2;|3:1;5|2:1;3 8 6");
    assert_string_equal(flatten("3 4 5\n0 1:1\n\n0 1:1\n", lenient), "0|1:1;|;0|1:1;3 4 5");
    const woi_xc_options svm = {.lenient = true, .base = WOI_XC_ONE_BASED},
                         features = {.lenient = true, .base = WOI_XC_ONE_BASED_FEATURES};
    assert_string_equal(flatten("1,3 1:1 7:2\n", svm), "0,2|0:1 6:2;1 7 3");
    assert_string_equal(flatten("0,3 1:1 7:2\n", features), "0,3|0:1 6:2;1 7 4");
    assert_string_equal(flatten("0,3 1:1 7:2\n", svm), "line 1: label 0 in a file whose labels count from 1");
}

static int cancel_at_once(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx, (void)stage;
    return done <= total;
}

static void loading_can_be_cancelled(void **state)
{
    (void)state;
    char text[5000 * 2 + 20], *to = text;
    to += sprintf(to, "5000 1 1\n");
    for (int i = 0; i < 5000; i++) to += sprintf(to, " \n");
    woi_xc_data data;
    wo_error err;
    assert_int_equal(woi_xc_load(scratch_text("c.txt", text), &(woi_xc_options){0},
                                 &(wo_progress){cancel_at_once, NULL}, &data, &err),
                     WO_ERR_CANCELLED);
    assert_null(data.labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_within_an_ulp_of_strtof),
        cmocka_unit_test(what_is_not_a_finite_number_is_refused),
        cmocka_unit_test(written_values_read_back),
        cmocka_unit_test(rows_survive_plain_and_gzip),
        cmocka_unit_test(long_lines_are_read),
        cmocka_unit_test(strict_rows),
        cmocka_unit_test(lenient_dialects),
        cmocka_unit_test(loading_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
