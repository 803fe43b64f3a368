/* layer/: opening wide layers from every source, and the sentences where that fails. */
#include "failing_json.h"
#include "networks.h"

#include "layer/layer.h"

#include <jansson.h>

enum { ROWS = 5, COLUMNS = 3 };

static float weight[ROWS * COLUMNS], bias[ROWS];

static int make_values(void **state)
{
    for (int i = 0; i < ROWS * COLUMNS; i++) weight[i] = (float)i - 6.5f; /* exact in every float type */
    for (int i = 0; i < ROWS; i++) bias[i] = 0.25f * (float)i;
    return scratch_setup(state);
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

/* A safetensors file of someone else's: a header and its data; `spaces` in front of the data move them. */
static void write_foreign(const char *name, const char *header, int spaces, const void *data, size_t bytes)
{
    char file[4096];
    uint64_t length = strlen(header) + (size_t)spaces;
    assert_true(8 + length + bytes <= sizeof file);
    memcpy(file, &length, 8);
    memset(file + 8, ' ', length);
    memcpy(file + 8, header, strlen(header));
    if (bytes) memcpy(file + 8 + length, data, bytes);
    scratch_write(name, file, 8 + length + bytes);
}

/* One of ours, with `weight` and `bias` under these names; NULL: without. */
static void write_own(const char *name, const char *kind, const char *weight_name, const char *bias_name, size_t bias_n,
                      size_t n_names)
{
    wo_error err = {0};
    woi_st_writer *writer = NULL;
    woi_names names = {0};
    char text[32];
    for (size_t i = 0; i < n_names; i++) {
        snprintf(text, sizeof text, "class %zu", i);
        assert_int_equal(woi_names_append(&names, text, strlen(text), NULL), WO_OK);
    }
    wo_status status = woi_st_create(scratch(name), kind, &writer, &err);
    if (!status && weight_name)
        status = woi_st_declare(writer, weight_name, WOI_F32, 2, (uint64_t[]){ROWS, COLUMNS}, &err);
    if (!status && bias_name) status = woi_st_declare(writer, bias_name, WOI_F32, 1, (uint64_t[]){bias_n}, &err);
    if (!status && n_names) status = woi_names_declare(writer, "labels", &names, &err);
    if (!status && weight_name) status = woi_st_append(writer, weight, sizeof weight, &err);
    if (!status && bias_name) status = woi_st_append(writer, bias, bias_n * sizeof *bias, &err);
    if (!status && n_names) status = woi_names_write(writer, &names, &err);
    if (!status) status = woi_st_finish(writer, &err);
    if (status) fail_msg("%s", err.text);
    woi_st_writer_free(writer);
    woi_names_free(&names);
}

static void write_npy(const char *name, const char *descr, bool fortran, const char *shape, const void *data,
                      size_t bytes)
{
    char file[1024];
    memset(file, ' ', 128);
    memcpy(file, "\x93NUMPY\1\0\x76\0", 10);
    const int used = snprintf(file + 10, 118, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr,
                              fortran ? "True" : "False", shape);
    file[10 + used] = ' ';
    file[127] = '\n';
    memcpy(file + 128, data, bytes);
    scratch_write(name, file, 128 + bytes);
}

/* ---- Opening ----------------------------------------------------------------------------------------------- */

static wo_layer *open_layer(const char *name, wo_layer_options options)
{
    wo_layer *layer = NULL;
    wo_error err = {0};
    options.struct_size = sizeof options;
    if (wo_layer_open(scratch(name), &options, &layer, &err)) fail_msg("%s", err.text);
    assert_non_null(layer);
    return layer;
}

static void refuse(const char *name, wo_layer_options options, wo_status status, const char *sentence)
{
    wo_layer *layer = NULL;
    wo_error err = {0};
    options.struct_size = sizeof options;
    assert_int_equal(wo_layer_open(scratch(name), &options, &layer, &err), status);
    assert_string_equal(err.text, sentence);
    assert_int_equal(err.status, status);
    assert_null(layer);
}

static uint64_t wrapped_checksum(const float *b)
{
    wo_layer *layer = NULL;
    assert_int_equal(wo_layer_wrap(weight, b, ROWS, COLUMNS, &layer, NULL), WO_OK);
    const uint64_t checksum = layer->checksum;
    wo_layer_free(layer);
    return checksum;
}

/* It is the layer of `weight` and `bias`, has that many names, and was mapped, or copied. */
static void assert_layer(wo_layer *layer, const float *b, int32_t n_names, bool copied)
{
    assert_int_equal(wo_layer_m(layer), ROWS);
    assert_int_equal(wo_layer_d(layer), COLUMNS);
    assert_memory_equal(layer->dense.w, weight, sizeof weight);
    assert_int_equal(layer->dense.b != NULL, b != NULL);
    if (b) assert_memory_equal(layer->dense.b, b, sizeof bias);
    assert_int_equal(layer->labels.n, n_names);
    assert_int_equal(layer->copy_w != NULL, copied);
    assert_true(layer->checksum == wrapped_checksum(b));
    wo_layer_free(layer);
}

#define PLAIN ((wo_layer_options){0})

static void arrays_of_the_caller(void **state)
{
    (void)state;
    wo_layer *layer = NULL;
    assert_int_equal(wo_layer_wrap(weight, bias, ROWS, COLUMNS, &layer, NULL), WO_OK);
    assert_ptr_equal(layer->dense.w, weight);
    assert_ptr_equal(layer->dense.b, bias);
    assert_layer(layer, bias, 0, false);
    wo_layer_free(NULL);
}

static void checksums_tell_layers_apart(void **state)
{
    (void)state;
    static const float zeros[ROWS];
    assert_true(wrapped_checksum(NULL) == wrapped_checksum(zeros));
    assert_true(wrapped_checksum(NULL) != wrapped_checksum(bias));
    wo_layer *turned = NULL, *large = NULL, *large_zero = NULL;
    assert_int_equal(wo_layer_wrap(weight, zeros, COLUMNS, ROWS, &turned, NULL), WO_OK);
    assert_true(turned->checksum != wrapped_checksum(zeros));
    const size_t m = 10000; /* more zeros than are hashed at once */
    float *w = calloc(2 * m, sizeof *w);
    assert_non_null(w);
    assert_int_equal(wo_layer_wrap(w, NULL, m, 1, &large, NULL), WO_OK);
    assert_int_equal(wo_layer_wrap(w, w + m, m, 1, &large_zero, NULL), WO_OK);
    assert_true(large->checksum == large_zero->checksum);
    wo_layer_free(turned);
    wo_layer_free(large);
    wo_layer_free(large_zero);
    free(w);
}

static void files_of_our_own(void **state)
{
    (void)state;
    write_own("layer", "layer", "weight", "bias", ROWS, 0);
    assert_layer(open_layer("layer", PLAIN), bias, 0, false);
    write_own("named", "layer", "weight", "bias", ROWS, ROWS);
    assert_layer(open_layer("named", PLAIN), bias, ROWS, false);
    write_own("bare", "layer", "weight", NULL, 0, 0);
    assert_layer(open_layer("bare", PLAIN), NULL, 0, false);
    write_own("index", "index", "weight", "bias", ROWS, ROWS);
    assert_layer(open_layer("index", PLAIN), bias, ROWS, false);
    wo_layer *layer = NULL;
    assert_int_equal(wo_layer_open(scratch("layer"), NULL, &layer, NULL), WO_OK);
    assert_int_equal((uintptr_t)layer->dense.w % 64, 0);
    assert_layer(layer, bias, 0, false);
}

/* One pass does it all; a changed bit is called that, not what it has made of a number. */
static void what_is_verified_is_the_callers_choice(void **state)
{
    (void)state;
    static const wo_layer_options plain = {.struct_size = sizeof plain};
    wo_error err;
    woi_network *net = make_network(WOI_ARCH_XC, false);
    save_network(net, "net");
    size_t bytes, n_used = 0;
    char *data = slurp(scratch("net"), &bytes);
    woi_st *st = NULL, *other = NULL;
    assert_int_equal(woi_st_open(scratch("net"), &st, &err), WO_OK);
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        const bool number = strncmp(t->name, "output.", 7) == 0, name = strncmp(t->name, "names.labels", 12) == 0;
        char *last = data + t->offset + t->bytes - 4, kept[4];
        memcpy(kept, last, 4);
        memset(last, 0xff, 4); /* NaN */
        n_used += number || name;
        for (int verify = WO_VERIFY_ALL; verify <= WO_VERIFY_NONE; verify++) {
            wo_layer *layer = NULL;
            const bool seen = verify == WO_VERIFY_ALL || (verify == WO_VERIFY_USED && (number || name));
            assert_int_equal(woi_st_open_memory(data, bytes, &other, &err), WO_OK);
            const wo_layer_options o = {.struct_size = sizeof o, .verify = (wo_verify)verify};
            assert_int_equal(woi_layer_read(other, &o, &layer, &err), seen             ? WO_ERR_CHECKSUM
                                                                      : number || name ? WO_ERR_FORMAT
                                                                                       : WO_OK);
            wo_layer_free(layer);
        }
        memcpy(last, kept, 4);
    }
    assert_int_equal(n_used, 4);
    woi_st_free(st);
    for (int verify = WO_VERIFY_ALL; verify <= WO_VERIFY_NONE; verify++) {
        wo_layer *layer = NULL;
        assert_int_equal(woi_st_open_memory(data, bytes, &other, &err), WO_OK);
        const wo_layer_options o = {.struct_size = sizeof o, .verify = (wo_verify)verify};
        assert_int_equal(woi_layer_read(other, &o, &layer, &err), WO_OK);
        wo_layer *mapped = open_layer("net", PLAIN);
        assert_true(layer->checksum == mapped->checksum && layer->labels.n == M);
        wo_layer_free(mapped);
        wo_layer_free(layer);
    }
    free(data);
    woi_network_free(net);
}

static int stop_at_once(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx;
    assert_string_equal(stage, "reading");
    assert_true(done <= total && total > 0);
    return 1;
}

static void reading_can_be_stopped(void **state)
{
    (void)state;
    static const wo_layer_options plain = {.struct_size = sizeof plain};
    write_own("layer", "layer", "weight", "bias", ROWS, 0);
    for (int verify = WO_VERIFY_ALL; verify <= WO_VERIFY_NONE; verify++) {
        woi_st *st = NULL;
        wo_layer *layer = NULL;
        wo_error err;
        assert_int_equal(woi_st_open(scratch("layer"), &st, &err), WO_OK);
        const wo_layer_options o = {
            .struct_size = sizeof o, .verify = (wo_verify)verify, .progress = {stop_at_once, NULL}};
        assert_int_equal(woi_layer_read(st, &o, &layer, &err), WO_ERR_CANCELLED);
        assert_null(layer);
    }
}

/* The output of a network by itself, and any matrix of it by name; names that belong to another one are left out. */
static void networks(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, false);
    save_network(net, "net");
    const woi_dense output = woi_network_output(net);
    wo_layer *layer = open_layer("net", PLAIN);
    assert_int_equal(wo_layer_m(layer), M);
    assert_int_equal(wo_layer_d(layer), D);
    assert_memory_equal(layer->dense.w, output.w, M * D * sizeof(float));
    assert_memory_equal(layer->dense.b, output.b, M * sizeof(float));
    assert_int_equal(layer->labels.n, M);
    wo_layer_free(layer);
    layer = open_layer("net", (wo_layer_options){.weight_name = "output.weight"});
    assert_non_null(layer->dense.b);
    assert_int_equal(layer->labels.n, M);
    wo_layer_free(layer);
    layer = open_layer("net", (wo_layer_options){.weight_name = "embed.weight"});
    assert_int_equal(wo_layer_m(layer), FEATURES);
    assert_null(layer->dense.b);
    assert_int_equal(layer->labels.n, 0);
    wo_layer_free(layer);
    woi_network_free(net);
}

static void the_golden_layer(void **state)
{
    (void)state;
    wo_layer *layer = NULL;
    wo_error err = {0};
    if (wo_layer_open("tests/golden/layer-v1.safetensors", NULL, &layer, &err)) fail_msg("%s", err.text);
    assert_true(wo_layer_m(layer) > 0 && wo_layer_d(layer) > 0);
    wo_layer_free(layer);
}

#define F32_WEIGHT(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[5,3],\"data_offsets\":[0,60]}"
#define F32_BIAS(name) ",\"" name "\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[60,80]}"

static void models_of_other_people(void **state)
{
    (void)state;
    float both[ROWS * COLUMNS + ROWS];
    memcpy(both, weight, sizeof weight);
    memcpy(both + ROWS * COLUMNS, bias, sizeof bias);
    static const char *const known[] = {F32_WEIGHT("output.weight") F32_BIAS("output.bias") "}",
                                        F32_WEIGHT("weight") F32_BIAS("bias") "}",
                                        F32_WEIGHT("lm_head.weight") F32_BIAS("lm_head.bias") "}"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        write_foreign("model", known[i], (int)(-strlen(known[i]) % 8 + 8) % 8, both, sizeof both);
        assert_layer(open_layer("model", PLAIN), bias, 0, false);
        write_foreign("model", known[i], (int)(-strlen(known[i]) % 8 + 8) % 8 + 1, both, sizeof both); /* not aligned */
        assert_layer(open_layer("model", PLAIN), bias, 0, true);
    }
    /* A vector called "weight" is no second choice. */
    static const char *const norm = F32_WEIGHT("lm_head.weight") F32_BIAS("weight") "}";
    write_foreign("model", norm, 0, both, sizeof both);
    wo_layer *layer = open_layer("model", PLAIN);
    assert_null(layer->dense.b);
    wo_layer_free(layer);
    /* By name; the bias too, where its name is not the weight's. */
    write_foreign("model", F32_WEIGHT("decoder.weight") F32_BIAS("decoder.bias") "}", 0, both, sizeof both);
    layer = open_layer("model", (wo_layer_options){.weight_name = "decoder.weight"});
    assert_memory_equal(layer->dense.b, bias, sizeof bias);
    wo_layer_free(layer);
    write_foreign("model", F32_WEIGHT("W") F32_BIAS("b") "}", 0, both, sizeof both);
    layer = open_layer("model", (wo_layer_options){.weight_name = "W"});
    assert_null(layer->dense.b);
    wo_layer_free(layer);
    layer = open_layer("model", (wo_layer_options){.weight_name = "W", .bias_name = "b"});
    assert_memory_equal(layer->dense.b, bias, sizeof bias);
    wo_layer_free(layer);
}

static void shards(void **state)
{
    (void)state;
    write_foreign("one", F32_WEIGHT("output.weight") "}", 0, weight, sizeof weight);
    write_foreign("two", "{\"output.bias\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}", 0, bias,
                  sizeof bias);
    scratch_text("model.json", "{\"weight_map\":{\"output.weight\":\"one\",\"output.bias\":\"two\"}}");
    wo_layer *layer = open_layer("model.json", PLAIN);
    assert_memory_equal(layer->dense.w, weight, sizeof weight);
    assert_memory_equal(layer->dense.b, bias, sizeof bias);
    wo_layer_free(layer);
}

static void other_types_become_floats(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{\"weight\":{\"dtype\":\"F16\",\"shape\":[5,3],\"data_offsets\":[0,30]}}  ",
        "{\"weight\":{\"dtype\":\"BF16\",\"shape\":[5,3],\"data_offsets\":[0,30]}} ",
        "{\"weight\":{\"dtype\":\"F64\",\"shape\":[5,3],\"data_offsets\":[0,120]}} ",
    };
    uint16_t half[ROWS * COLUMNS], brain[ROWS * COLUMNS];
    double wide[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        wide[i] = (double)weight[i];
        brain[i] = woi_f32_to_bf16(weight[i]);
        half[i] = 0; /* the one that means it, by search */
        while (woi_f16_to_f32(half[i]) != weight[i]) half[i]++;
    }
    write_foreign("f16", headers[0], 0, half, sizeof half);
    write_foreign("bf16", headers[1], 0, brain, sizeof brain);
    write_foreign("f64", headers[2], 0, wide, sizeof wide);
    assert_layer(open_layer("f16", PLAIN), NULL, 0, true);
    assert_layer(open_layer("bf16", PLAIN), NULL, 0, true);
    assert_layer(open_layer("f64", PLAIN), NULL, 0, true);
}

static void arrays_of_numpy(void **state)
{
    (void)state;
    char bias_path[256];
    float turned[ROWS * COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) turned[j * ROWS + i] = weight[i * COLUMNS + j];
    write_npy("w.npy", "<f4", false, "(5, 3)", weight, sizeof weight);
    write_npy("turned.npy", "<f4", true, "(5, 3)", turned, sizeof turned);
    write_npy("b.npy", "<f4", false, "(5,)", bias, sizeof bias);
    snprintf(bias_path, sizeof bias_path, "%s", scratch("b.npy"));
    assert_layer(open_layer("w.npy", PLAIN), NULL, 0, false);
    assert_layer(open_layer("w.npy", (wo_layer_options){.bias_path = bias_path}), bias, 0, false);
    assert_layer(open_layer("turned.npy", (wo_layer_options){.bias_path = bias_path}), bias, 0, true);
}

/* ---- What is refused --------------------------------------------------------------------------------------- */

static void names_and_what_was_found(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "", "b", "\xc3\xa4"};
    wo_layer *layer = NULL;
    wo_error err = {0};
    wo_layer_info info = {.struct_size = sizeof info};
    write_own("l", "layer", "weight", "bias", ROWS, 0);
    assert_int_equal(wo_layer_open(scratch("l"), NULL, &layer, NULL), WO_OK);
    assert_int_equal(wo_layer_describe(layer, &info), WO_OK);
    assert_true(info.has_bias && !info.has_names && !info.unused_bias && info.m == ROWS && info.d == COLUMNS);
    assert_string_equal(info.weight_name, "weight");
    assert_string_equal(info.bias_name, "bias");
    assert_int_equal(wo_layer_set_names(layer, names, ROWS - 1, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "there are 4 names, but 5 classes");
    assert_int_equal(wo_layer_set_names(layer, (const char *const[]){"a", NULL, "d", "e", "f"}, ROWS, &err),
                     WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "name 1 is NULL");
    assert_int_equal(wo_layer_set_names(layer, (const char *const[]){"a", "b\nc", "d", "e", "f"}, ROWS, &err),
                     WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "name 1 is not one line of UTF-8");
    assert_int_equal(layer->labels.n, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(wo_layer_set_names(layer, names, ROWS, &err), WO_OK);
    assert_int_equal(layer->labels.n, ROWS);
    assert_memory_equal(woi_names_get(&layer->labels, 4), "\xc3\xa4", 2);
    assert_int_equal(wo_layer_describe(layer, &info), WO_OK);
    assert_true(info.has_names);
    wo_layer_free(layer);
    assert_int_equal(wo_layer_wrap(weight, NULL, ROWS, COLUMNS, &layer, NULL), WO_OK);
    assert_int_equal(wo_layer_describe(layer, &info), WO_OK);
    assert_true(!info.has_bias && !info.weight_name && !info.bias_name);
    info.struct_size = 0;
    assert_int_equal(wo_layer_describe(layer, &info), WO_ERR_ARGUMENT);
    wo_layer_free(layer);
}

static void bad_arrays_are_refused(void **state)
{
    (void)state;
    wo_layer *layer = NULL;
    wo_error err;
    assert_int_equal(wo_layer_wrap(NULL, bias, ROWS, COLUMNS, &layer, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_layer_wrap(weight, bias, 0, COLUMNS, &layer, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "a layer of 0 classes and 3 dimensions cannot be: expected at least 1, and at most "
                                  "2147483647 and 536870911");
    assert_int_equal(wo_layer_wrap(weight, bias, ROWS, 0, &layer, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_layer_wrap(weight, bias, (size_t)1 << 31, 1, &layer, &err), WO_ERR_ARGUMENT);
    float bad[ROWS * COLUMNS];
    memcpy(bad, weight, sizeof bad);
    bad[7] = -NAN;
    bad[11] = INFINITY;
    assert_int_equal(wo_layer_wrap(bad, bias, ROWS, COLUMNS, &layer, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "'weight': row 2, column 1 is nan, expected a finite number");
    assert_int_equal(wo_layer_wrap(weight, bad + 9, ROWS, COLUMNS, &layer, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "'bias': element 2 is inf, expected a finite number");
    assert_null(layer);
    assert_int_equal(wo_layer_open(NULL, NULL, &layer, &err), WO_ERR_ARGUMENT);
    assert_int_equal(wo_layer_open("x", &(wo_layer_options){.struct_size = 3}, &layer, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the layer options have a struct_size of 3: it is not set");
}

static void bad_files_of_our_own_are_refused(void **state)
{
    (void)state;
    refuse("nowhere", PLAIN, WO_ERR_IO, "the file cannot be opened: No such file or directory");
    scratch_text("text", "1 2 3\n0 1:1\n");
    refuse("text", PLAIN, WO_ERR_FORMAT, "the file is no layer: expected safetensors, .npy, GGUF or fastText");
    write_own("log", "log", "weight", "bias", ROWS, 0);
    refuse("log", PLAIN, WO_ERR_FORMAT, "the file is of kind 'log': expected a layer, a network, an index or a model");
    write_own("index", "index", NULL, NULL, 0, ROWS);
    refuse("index", PLAIN, WO_ERR_FORMAT,
           "the file is an index without rows: the layer that it was built from has them");
    write_own("layer", "layer", "rows", "bias", ROWS, 0);
    refuse("layer", PLAIN, WO_ERR_FORMAT, "the file has no tensor 'weight': its matrices are rows (5 x 3)");
    write_own("layer", "layer", "weight", "bias", ROWS - 1, 0);
    refuse("layer", PLAIN, WO_ERR_FORMAT,
           "tensor 'bias' has 1 dimensions, 4 elements of F32: expected 5 floats, one for each class");
    write_own("layer", "layer", "weight", "bias", ROWS, 4);
    refuse("layer", PLAIN, WO_ERR_FORMAT, "the file has 4 names of labels, expected 5");
    write_own("layer", "layer", "weight", "bias", ROWS, 0);
    size_t bytes;
    char *file = slurp(scratch("layer"), &bytes);
    file[bytes - 1] ^= 1;
    scratch_write("layer", file, bytes);
    free(file);
    wo_layer *layer = NULL;
    assert_int_equal(wo_layer_open(scratch("layer"), NULL, &layer, NULL), WO_ERR_CHECKSUM);
    assert_null(layer);
}

static void bad_models_are_refused(void **state)
{
    (void)state;
    float both[ROWS * COLUMNS + ROWS] = {0};
    write_foreign("model", F32_WEIGHT("decoder.weight") F32_BIAS("decoder.bias") "}", 0, both, sizeof both);
    refuse("model", PLAIN, WO_ERR_FORMAT,
           "no tensor has the name of a layer, and none was chosen: the matrices are decoder.weight (5 x 3)");
    refuse("model", (wo_layer_options){.weight_name = "head"}, WO_ERR_FORMAT,
           "the file has no tensor 'head': its matrices are decoder.weight (5 x 3)");
    refuse("model", (wo_layer_options){.weight_name = "decoder.weight", .bias_name = "b"}, WO_ERR_FORMAT,
           "the file has no tensor 'b' for the biases");
    refuse("model", (wo_layer_options){.weight_name = "decoder.bias"}, WO_ERR_FORMAT,
           "tensor 'decoder.bias' has 1 dimensions, 5 elements of F32: expected a matrix of floats, classes x "
           "dimensions");
    refuse("model", (wo_layer_options){.weight_name = "decoder.weight", .bias_path = "b.npy"}, WO_ERR_ARGUMENT,
           "the file is no .npy file, and only beside one do biases have a file of their own");
    write_foreign("model",
                  F32_WEIGHT("weight") ",\"output.weight\":{\"dtype\":\"F32\",\"shape\":[5,1],\"data_offsets\":"
                                       "[60,80]}}",
                  0, both, sizeof both);
    refuse("model", PLAIN, WO_ERR_FORMAT, "the file has both 'output.weight' and 'weight', and one was not chosen");
    write_foreign("model", "{\"weight\":{\"dtype\":\"I32\",\"shape\":[5,4],\"data_offsets\":[0,80]}}", 0, both,
                  sizeof both);
    refuse("model", (wo_layer_options){.weight_name = "weight"}, WO_ERR_FORMAT,
           "tensor 'weight' has 2 dimensions, 20 elements of I32: expected a matrix of floats, classes x dimensions");
    refuse("model", PLAIN, WO_ERR_FORMAT,
           "no tensor has the name of a layer, and none was chosen: the matrices are none");
    write_foreign("model", "{\"weight\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[0,0]}}", 0, both, 0);
    refuse(
        "model", PLAIN, WO_ERR_FORMAT,
        "a layer of 0 classes and 4 dimensions cannot be: expected at least 1, and at most 2147483647 and 536870911");
    both[4] = INFINITY;
    write_foreign("model", F32_WEIGHT("weight") F32_BIAS("bias") "}", 0, both, sizeof both);
    refuse("model", PLAIN, WO_ERR_FORMAT, "'weight': row 1, column 1 is inf, expected a finite number");
    both[4] = 0;
    both[17] = NAN;
    write_foreign("model", F32_WEIGHT("weight") F32_BIAS("bias") "}", 3, both, sizeof both);
    refuse("model", PLAIN, WO_ERR_FORMAT, "'bias': element 2 is nan, expected a finite number");
}

/* The widest first, as many as fit. */
static void a_choice_of_tensors_is_listed(void **state)
{
    (void)state;
    static const char *const header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                                      "\"b\":{\"dtype\":\"F32\",\"shape\":[4,1],\"data_offsets\":[16,32]},"
                                      "\"c\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[32,48]},"
                                      "\"d\":{\"dtype\":\"F32\",\"shape\":[4,1],\"data_offsets\":[48,64]},"
                                      "\"e\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[64,76]}}";
    static const char zeros[152];
    write_foreign("model", header, 0, zeros, 76);
    refuse("model", PLAIN, WO_ERR_FORMAT,
           "no tensor has the name of a layer, and none was chosen: the matrices are b (4 x 1), d (4 x 1), e (3 x 1) "
           "and 1 more");
#define LONG "model.transformer.layers.block.0123456789."
    write_foreign("model",
                  "{\"" LONG "a\":{\"dtype\":\"F32\",\"shape\":[3,4],\"data_offsets\":[0,48]},"
                  "\"" LONG "b\":{\"dtype\":\"F32\",\"shape\":[3,4],\"data_offsets\":[48,96]},"
                  "\"" LONG "c\":{\"dtype\":\"F32\",\"shape\":[14,1],\"data_offsets\":[96,152]}}",
                  0, zeros, 152);
    refuse("model", PLAIN, WO_ERR_FORMAT,
           "no tensor has the name of a layer, and none was chosen: the matrices are "
           "model.transformer.layers.block.012345678... (14 x 1) "
           "and 2 more");
}

static void bad_numpy_arrays_are_refused(void **state)
{
    (void)state;
    char path[256];
    write_npy("w.npy", "<f4", false, "(15,)", weight, sizeof weight);
    refuse("w.npy", PLAIN, WO_ERR_FORMAT, "the array has 1 dimensions, expected 2: classes x dimensions");
    write_npy("w.npy", "<i4", false, "(5, 3)", weight, sizeof weight);
    refuse("w.npy", PLAIN, WO_ERR_UNSUPPORTED, "I32 elements cannot be read as floats");
    write_npy("w.npy", "<f4", false, "(5, 3)", weight, sizeof weight);
    refuse("w.npy", (wo_layer_options){.weight_name = "weight"}, WO_ERR_ARGUMENT,
           "the file is a .npy file, which has no tensor 'weight': its arrays have no names");
    write_npy("b.npy", "<f4", false, "(4,)", bias, 4 * sizeof *bias);
    snprintf(path, sizeof path, "%s", scratch("b.npy"));
    refuse("w.npy", (wo_layer_options){.bias_path = path}, WO_ERR_FORMAT,
           "the array of biases has 1 dimensions, 4 elements: expected 5, one for each class");
    snprintf(path, sizeof path, "%s", scratch("none.npy"));
    refuse("w.npy", (wo_layer_options){.bias_path = path}, WO_ERR_IO,
           "the file cannot be opened: No such file or directory");
}

/* ---- Without memory ---------------------------------------------------------------------------------------- */

/* Fails the 1st, 2nd, ... allocation until the file opens; each time all that was taken is given back. */
static void fail_each(const char *name, wo_layer_options options, long at_least)
{
    options.struct_size = sizeof options;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    json_set_alloc_funcs(json_alloc, json_release);
    long n = 0;
    for (wo_status status = WO_ERR_MEMORY; status != WO_OK; n++) {
        assert_true(n < 10000);
        wo_error err = {0};
        wo_layer *layer = NULL;
        allocations_left = n;
        allocations_alive = 0;
        jansson_failed = false;
        status = wo_layer_open(scratch(name), &options, &layer, &err);
        wo_layer_free(layer);
        allocations_left = -1;
        assert_int_equal(allocations_alive, 0);
        assert_int_equal(layer == NULL, status != WO_OK);
        /* jansson's parser calls a failed allocation inside a string a syntax error. */
        if (status == WO_OK || (jansson_failed && status == WO_ERR_FORMAT)) continue;
        if (status != WO_ERR_MEMORY) fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        assert_non_null(strstr(err.text, "memory"));
    }
    json_set_alloc_funcs(malloc, free);
    wo_allocator_set(NULL);
    assert_true(n > at_least);
}

static void allocations_that_fail(void **state)
{
    (void)state;
    char path[256];
    double wide[ROWS] = {0};
    float turned[ROWS * COLUMNS] = {0};
    write_own("named", "layer", "weight", "bias", ROWS, ROWS);
    fail_each("named", PLAIN, 20);
    write_foreign("moved", F32_WEIGHT("weight") "} ", 3, weight, sizeof weight);
    fail_each("moved", PLAIN, 10);
    write_npy("turned.npy", "<f4", true, "(5, 3)", turned, sizeof turned);
    write_npy("b.npy", "<f8", false, "(5,)", wide, sizeof wide);
    snprintf(path, sizeof path, "%s", scratch("b.npy"));
    fail_each("turned.npy", (wo_layer_options){.bias_path = path}, 2);
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_left = 0;
    wo_layer *layer = NULL;
    assert_int_equal(wo_layer_wrap(weight, bias, ROWS, COLUMNS, &layer, NULL), WO_ERR_MEMORY);
    assert_null(layer);
    allocations_left = -1;
    wo_allocator_set(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_the_caller),
        cmocka_unit_test(checksums_tell_layers_apart),
        cmocka_unit_test(files_of_our_own),
        cmocka_unit_test(what_is_verified_is_the_callers_choice),
        cmocka_unit_test(reading_can_be_stopped),
        cmocka_unit_test(networks),
        cmocka_unit_test(the_golden_layer),
        cmocka_unit_test(models_of_other_people),
        cmocka_unit_test(shards),
        cmocka_unit_test(other_types_become_floats),
        cmocka_unit_test(arrays_of_numpy),
        cmocka_unit_test(names_and_what_was_found),
        cmocka_unit_test(bad_arrays_are_refused),
        cmocka_unit_test(bad_files_of_our_own_are_refused),
        cmocka_unit_test(bad_models_are_refused),
        cmocka_unit_test(a_choice_of_tensors_is_listed),
        cmocka_unit_test(bad_numpy_arrays_are_refused),
        cmocka_unit_test(allocations_that_fail),
    };
    return cmocka_run_group_tests(tests, make_values, scratch_teardown);
}
