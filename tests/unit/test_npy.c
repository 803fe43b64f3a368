/* store/: npy files of every version, order, byte order and type. */
#include "testing.h"

#include "store/store.h"

static const char *write_npy(int version, const char *header, const void *data, size_t data_bytes)
{
    unsigned char file[4096] = "\x93NUMPY";
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    file[6] = (unsigned char)version;
    file[7] = 0;
    for (size_t i = 8; i < start; i++) file[i] = (unsigned char)(length >> 8 * (i - 8));
    memcpy(file + start, header, length);
    memcpy(file + start + length, data, data_bytes);
    return scratch_write("a.npy", file, start + length + data_bytes);
}

static void reverse(void *data, size_t n, size_t size)
{
    unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < size / 2; j++) {
            unsigned char swap = bytes[i * size + j];
            bytes[i * size + j] = bytes[i * size + size - 1 - j];
            bytes[i * size + size - 1 - j] = swap;
        }
}

/* Element (i, j, k) of a 2 x 3 x 4 array is 100 i + 10 j + k, in every type, order and byte order. */
static void every_layout_reads_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"f4", 4}, {"f8", 8}, {"i4", 4}, {"i8", 8}, {"f2", 2}};
    for (size_t type = 0; type < 5; type++)
        for (int fortran = 0; fortran < 2; fortran++)
            for (int big = 0; big < 2; big++)
                for (int version = 1; version <= 3; version++) {
                    unsigned char data[24 * 8];
                    for (int i = 0; i < 2; i++)
                        for (int j = 0; j < 3; j++)
                            for (int k = 0; k < 4; k++) {
                                int place = fortran ? i + 2 * j + 6 * k : 12 * i + 4 * j + k;
                                int value = 100 * i + 10 * j + k;
                                unsigned char *to = data + (size_t)place * types[type].bytes;
                                switch (type) {
                                case 0: memcpy(to, &(float){(float)value}, 4); break;
                                case 1: memcpy(to, &(double){value}, 8); break;
                                case 2: memcpy(to, &(int32_t){value}, 4); break;
                                case 3: memcpy(to, &(int64_t){value}, 8); break;
                                default: { /* a half: value * 2^-24 as a subnormal */
                                    memcpy(to, &(uint16_t){(uint16_t)value}, 2);
                                }
                                }
                            }
                    if (big) reverse(data, 24, types[type].bytes);
                    char header[128];
                    snprintf(header, sizeof header, "{'descr': '%c%s', 'fortran_order': %s, 'shape': (2, 3, 4), }   \n",
                             big ? '>' : '<', types[type].name, fortran ? "True" : "False");
                    woi_npy npy;
                    wo_error err;
                    assert_int_equal(woi_npy_open(write_npy(version, header, data, 24 * types[type].bytes), &npy, &err),
                                     WO_OK);
                    assert_int_equal(npy.version, version);
                    assert_int_equal(npy.n, 24);
                    assert_int_equal(npy.n_dims, 3);
                    float floats[24];
                    int64_t integers[24];
                    bool is_integer = types[type].name[0] == 'i';
                    assert_int_equal(woi_npy_read_f32(&npy, floats, &err), is_integer ? WO_ERR_UNSUPPORTED : WO_OK);
                    assert_int_equal(woi_npy_read_i64(&npy, integers, &err), is_integer ? WO_OK : WO_ERR_UNSUPPORTED);
                    for (int n = 0; n < 24; n++) {
                        int value = 100 * (n / 12) + 10 * (n / 4 % 3) + n % 4;
                        if (is_integer)
                            assert_int_equal(integers[n], value);
                        else
                            assert_true(floats[n] == (type == 4 ? (float)value * 0x1p-24f : (float)value));
                    }
                    woi_npy_close(&npy);
                }
}

static void shapes_of_all_ranks(void **state)
{
    (void)state;
    woi_npy npy;
    wo_error err;
    const float one = 1;
    assert_int_equal(
        woi_npy_open(write_npy(1, "{'descr':'<f4','fortran_order':False,'shape':()}", &one, 4), &npy, &err), WO_OK);
    assert_int_equal(npy.n_dims, 0);
    assert_int_equal(npy.n, 1);
    woi_npy_close(&npy);
    assert_int_equal(
        woi_npy_open(write_npy(1, "{\"shape\": (1,), \"fortran_order\": True, \"descr\": \"<f4\"}", &one, 4), &npy,
                     &err),
        WO_OK);
    assert_int_equal(npy.n_dims, 1);
    float value;
    assert_int_equal(woi_npy_read_f32(&npy, &value, &err), WO_OK);
    assert_true(value == 1);
    woi_npy_close(&npy);
    assert_int_equal(
        woi_npy_open(write_npy(1, "{'descr':'<f4','fortran_order':True,'shape':(0, 5)}", "", 0), &npy, &err), WO_OK);
    assert_int_equal(npy.n, 0);
    assert_int_equal(woi_npy_read_f32(&npy, &value, &err), WO_OK);
    woi_npy_close(&npy);
    woi_npy_close(&npy); /* twice is fine */
}

static void every_truncation_is_noticed(void **state)
{
    (void)state;
    const float data[6] = {1, 2, 3, 4, 5, 6};
    size_t bytes;
    char *good = slurp(write_npy(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", data, 24), &bytes);
    for (size_t n = 0; n < bytes; n++) {
        woi_npy npy;
        wo_error err = {0};
        assert_int_not_equal(woi_npy_open(scratch_write("short.npy", good, n), &npy, &err), WO_OK);
        assert_true(strlen(err.text) > 0);
    }
    free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_reads_the_same),
        cmocka_unit_test(shapes_of_all_ranks),
        cmocka_unit_test(every_truncation_is_noticed),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
