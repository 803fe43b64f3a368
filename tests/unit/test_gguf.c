/* GGUF: one block of each type, worked out by hand, read as a layer of one class. */
#include "testing.h"

#include "layer/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/wideout-test-gguf-XXXXXX";

static void put(FILE *to, uint64_t value, size_t bytes)
{
    assert_int_equal(fwrite(&value, 1, bytes, to), bytes);
}

/* A file of one tensor, `output.weight`, with one row of n numbers. */
static void write_model(uint32_t type, uint64_t n, const void *data, size_t bytes)
{
    static const char name[] = "output.weight";
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    fputs("GGUF", to);
    put(to, 3, 4);
    put(to, 1, 8);
    put(to, 0, 8);
    put(to, sizeof name - 1, 8);
    fputs(name, to);
    put(to, 2, 4);
    put(to, n, 8);
    put(to, 1, 8);
    put(to, type, 4);
    put(to, 0, 8);
    while (ftell(to) % 32) put(to, 0, 1);
    assert_int_equal(fwrite(data, 1, bytes, to), bytes);
    assert_int_equal(fclose(to), 0);
}

/* The floats of such a file, to be freed with the layer. */
static const float *read_model(uint32_t type, uint64_t n, const void *data, size_t bytes, wo_layer **layer)
{
    wo_error err = {0};
    write_model(type, n, data, bytes);
    if (wo_layer_open(path, NULL, layer, &err)) fail_msg("%s", err.text);
    assert_int_equal(wo_layer_m(*layer), 1);
    assert_int_equal(wo_layer_d(*layer), n);
    return (*layer)->dense.w;
}

/* Numbers by themselves: 1, -2, 0.5 in each type. */
static void single_numbers(void **state)
{
    static const float f32[] = {1, -2, 0.5f};
    static const uint16_t f16[] = {0x3c00, 0xc000, 0x3800}, bf16[] = {0x3f80, 0xc000, 0x3f00};
    static const struct {
        uint32_t type;
        const void *data;
        size_t bytes;
    } all[] = {{0, f32, sizeof f32}, {1, f16, sizeof f16}, {30, bf16, sizeof bf16}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        wo_layer *layer = NULL;
        const float *x = read_model(all[i].type, 3, all[i].data, all[i].bytes, &layer);
        for (int j = 0; j < 3; j++) assert_true(x[j] == f32[j]);
        wo_layer_free(layer);
    }
}

/* Two blocks: d = 0.5 (0x3800) and d = -2 (0xc000); q = i - 16 in both. */
static void q8_0(void **state)
{
    unsigned char blocks[2 * 34] = {0x00, 0x38};
    wo_layer *layer = NULL;
    (void)state;
    blocks[35] = 0xc0;
    for (int i = 0; i < 32; i++) blocks[2 + i] = blocks[36 + i] = (unsigned char)(i - 16);
    const float *x = read_model(8, 64, blocks, sizeof blocks, &layer);
    for (int i = 0; i < 32; i++) {
        assert_true(x[i] == 0.5f * (float)(i - 16));
        assert_true(x[32 + i] == -2 * (float)(i - 16));
    }
    wo_layer_free(layer);
}

/* d = 1 (0x3c00), dmin = 0.5 (0x3800).
 *
 *   scales    1  2  3  4 | 20 = 1 4   33 = 2 1   47 = 2 15   63 = 3 15     (upper 2 bits, lower 4)
 *   minima    5  6  7  8 |  9 = 0 9   18 = 1 2   36 = 2 4    63 = 3 15
 *
 *   bytes 0-3    scale of the first four, upper bits of the scale of the last four: 1 | 1 << 6 = 41, 82, 83, c4
 *   bytes 4-7    the same of the minima: 5 | 0 << 6 = 05, 46, 87, c8
 *   bytes 8-11   lower bits of the last four, scale | minimum << 4: 4 | 9 << 4 = 94, 21, 4f, ff
 *
 * Byte i of q has i % 16 in its low half, and 15 - i % 16 in its high one: groups 0, 2, 4, 6 count up, the others down.
 */
static void q4_k(void **state)
{
    static const unsigned char head[16] = {0x00, 0x3c, 0x00, 0x38, 0x41, 0x82, 0x83, 0xc4,
                                           0x05, 0x46, 0x87, 0xc8, 0x94, 0x21, 0x4f, 0xff};
    static const int scale[8] = {1, 2, 3, 4, 20, 33, 47, 63}, minimum[8] = {5, 6, 7, 8, 9, 18, 36, 63};
    unsigned char block[144];
    wo_layer *layer = NULL;
    (void)state;
    memcpy(block, head, sizeof head);
    for (int i = 0; i < 128; i++) block[16 + i] = (unsigned char)(i % 16 | (15 - i % 16) << 4);
    const float *x = read_model(12, 256, block, sizeof block, &layer);
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 32; i++) {
            const int q = g % 2 ? 15 - i % 16 : i % 16;
            assert_true(x[32 * g + i] == (float)(scale[g] * q) - 0.5f * (float)minimum[g]);
        }
    wo_layer_free(layer);
}

/* d = 0.25 (0x3400); the scale of group k, of 16 numbers, is k - 8.
 *
 * All low bytes are 21 and all high bytes e4 = 3 2 1 0. So the four quarters of each half have
 *   q = 1 | 0 << 4 = 1,   1 | 1 << 4 = 17,   2 | 2 << 4 = 34,   2 | 3 << 4 = 50,   less 32: -31, -15, 2, 18
 * but for three bytes:
 *   low 40 = 0f     first half, place 8 of quarters 1 and 3: 15 | 1 << 4 = 31 (-1) and 0 | 3 << 4 = 48 (16)
 *   low 70 = 9c     second half, place 6 of quarters 0 and 2: 12 | 0 << 4 = 12 (-20) and 9 | 2 << 4 = 41 (9)
 *   high 35 = 1b = 0 1 2 3     second half, place 3: 1 | 3 << 4 = 49 (17), 33 (1), 2 | 1 << 4 = 18 (-14), 2 (-30) */
static void q6_k(void **state)
{
    static const int usual[4] = {-31, -15, 2, 18};
    static const struct {
        int at, q;
    } others[] = {{32 + 8, -1},  {96 + 8, 16},      {128 + 6, -20},      {128 + 64 + 6, 9},
                  {128 + 3, 17}, {128 + 32 + 3, 1}, {128 + 64 + 3, -14}, {128 + 96 + 3, -30}};
    unsigned char block[210];
    wo_layer *layer = NULL;
    (void)state;
    memset(block, 0x21, 128);
    memset(block + 128, 0xe4, 64);
    block[40] = 0x0f;
    block[70] = 0x9c;
    block[128 + 35] = 0x1b;
    for (int k = 0; k < 16; k++) block[192 + k] = (unsigned char)(k - 8);
    block[208] = 0x00;
    block[209] = 0x34;
    const float *x = read_model(14, 256, block, sizeof block, &layer);
    for (int i = 0; i < 256; i++) {
        int q = usual[i % 128 / 32];
        for (size_t j = 0; j < sizeof others / sizeof others[0]; j++)
            if (others[j].at == i) q = others[j].q;
        assert_true(x[i] == 0.25f * (float)((i / 16 - 8) * q));
    }
    wo_layer_free(layer);
}

/* Types that are not read are told by name; so are numbers that are not finite. */
static void refused(void **state)
{
    static const uint16_t f16[] = {0x3c00, 0x7e00};
    unsigned char block[176] = {0};
    wo_layer *layer = NULL;
    wo_error err = {0};
    (void)state;
    write_model(13, 256, block, sizeof block);
    assert_int_equal(wo_layer_open(path, NULL, &layer, &err), WO_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "tensor 'output.weight' is of type Q5_K (13), which is not read: expected F32, F16, "
                                  "BF16, Q8_0, Q4_K or Q6_K");
    write_model(99, 256, block, sizeof block);
    assert_int_equal(wo_layer_open(path, NULL, &layer, &err), WO_ERR_UNSUPPORTED);
    write_model(1, 2, f16, sizeof f16);
    assert_int_equal(wo_layer_open(path, NULL, &layer, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "'output.weight': row 0, column 1 is nan, expected a finite number");
    assert_null(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_numbers), cmocka_unit_test(q8_0),    cmocka_unit_test(q4_k),
        cmocka_unit_test(q6_k),           cmocka_unit_test(refused),
    };
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
