/* net/: networks and checkpoints on disk, ours and other people's. */
#include "net/memory.h"
#include "networks.h"
#include "signing.h"

#include <sys/stat.h>

static void assert_same_names(const woi_names *a, const woi_names *b)
{
    assert_int_equal(a->n, b->n);
    if (a->n == 0) return;
    assert_memory_equal(a->indptr, b->indptr, ((size_t)a->n + 1) * sizeof *a->indptr);
    assert_memory_equal(a->bytes, b->bytes, (size_t)a->indptr[a->n]);
}

static void assert_same_file(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    char *first = slurp(scratch(a), &a_bytes), *second = slurp(scratch(b), &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(first, second, a_bytes);
    free(first);
    free(second);
}

/* Changes one byte of a file, counted from its end. */
static void damage(const char *name, size_t from_end)
{
    size_t bytes;
    char *data = slurp(scratch(name), &bytes);
    data[bytes - from_end] ^= 1;
    scratch_write(name, data, bytes);
    free(data);
}

/* ---- Files of networks ------------------------------------------------------------------------------------- */

static void networks_come_back(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        woi_network *net = make_network((woi_arch)arch, false);
        if (arch == WOI_ARCH_XC) net->input = (woi_bag_input){false, true, true};
        save_network(net, "net");
        woi_network *back = open_network("net");
        assert_int_equal(back->arch, arch);
        assert_int_equal(back->m, net->m);
        assert_int_equal(back->d, net->d);
        assert_int_equal(back->n_inputs, net->n_inputs);
        assert_int_equal(back->n_params, net->n_params);
        assert_int_equal(back->n_params, arch == WOI_ARCH_LM ? 11 : 3);
        for (size_t i = 0; i < net->n_params; i++) {
            const woi_param *a = &net->params[i], *b = woi_network_param(back, a->name);
            assert_non_null(b);
            assert_int_equal(a->n, b->n);
            assert_memory_equal(a->w, b->w, a->n * sizeof(float));
            assert_null(b->m);
        }
        assert_null(woi_network_param(back, "lstm.weight_ih_l2"));
        assert_same_names(&net->labels, &back->labels);
        assert_same_names(&net->features, &back->features);
        assert_memory_equal(net->is_label, back->is_label, M);
        assert_int_equal(back->window, net->window);
        assert_int_equal(back->drop_top, net->drop_top);
        assert_string_equal(back->extractor, net->extractor);
        if (arch == WOI_ARCH_XC) assert_memory_equal(&back->input, &net->input, sizeof net->input);
        save_network(back, "again");
        assert_same_file("net", "again");
        woi_network_free(net);
        woi_network_free(back);
    }
}

static void the_record_is_kept(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, false);
    const woi_meta record[] = {{"train.epochs", "7"}, {"train.lr", "0.002"}};
    wo_error err;
    assert_int_equal(woi_network_save(net, scratch("net"), record, 2, &err), WO_OK);
    woi_st *st = NULL;
    assert_int_equal(woi_st_open(scratch("net"), &st, &err), WO_OK);
    assert_string_equal(woi_st_kind(st), "network");
    assert_string_equal(woi_st_meta(st, "arch"), "xc");
    assert_string_equal(woi_st_meta(st, "train.epochs"), "7");
    assert_string_equal(woi_st_meta(st, "train.lr"), "0.002");
    assert_int_equal(woi_st_find(st, "output.weight")->shape[0], M);
    woi_st_free(st);
    woi_network_free(net);
}

static void refuse_network(const char *sentence)
{
    woi_network *net = NULL;
    wo_error err;
    assert_int_not_equal(woi_network_open(scratch("net"), &net, &err), WO_OK);
    assert_null(net);
    assert_begins(err.text, sentence);
}

static void bad_networks_are_refused(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_W2V, false);
    net->params[0].w[9] = NAN;
    save_network(net, "net");
    refuse_network("tensor 'embed.weight': element 9 is nan");
    net->params[0].w[9] = 0;
    net->params[2].w[22] = -INFINITY;
    save_network(net, "net");
    refuse_network("tensor 'output.bias': element 22 is -inf");
    net->params[2].w[22] = 0;
    save_network(net, "net");
    damage("net", 1);
    refuse_network("tensor 'is_label' (23 bytes at byte ");

    assert_int_equal(woi_names_append(&net->labels, "more", 4, NULL), WO_OK);
    save_network(net, "net");
    refuse_network("has 24 names of labels, expected 23");
    woi_network_free(net);

    assert_int_equal(
        woi_network_create(&(woi_network_plan){.arch = WOI_ARCH_W2V, .m = 5, .d = 2, .n_inputs = 4}, &net, NULL),
        WO_OK);
    save_network(net, "net"); /* a word in that has no embedding would be read beyond its end */
    refuse_network("has 4 words in and 5 out: such a network has the same");
    woi_network_free(net);

    scratch_text("net", "0 1:1\n");
    refuse_network("");
    woi_network *none = NULL;
    wo_error err;
    assert_int_equal(woi_network_open("tests/golden/layer-v1.safetensors", &none, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "is not a network of wideout's");
    static const size_t shapes[][3] = {{0, 2, 3}, {2, 0, 3}, {2, 3, 0}, {2, 65537, 2}, {(size_t)1 << 31, 2, 2}};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(woi_network_create(&(woi_network_plan){.arch = WOI_ARCH_LM,
                                                                .m = shapes[i][0],
                                                                .d = shapes[i][1],
                                                                .n_inputs = shapes[i][2],
                                                                .trained = true,
                                                                .seed = 1},
                                            &none, &err),
                         WO_ERR_ARGUMENT);
    assert_null(none);
}

/* What no memory holds is refused before any is taken. */
static void beyond_memory(void **state)
{
    (void)state;
    woi_network *net = NULL;
    wo_error err;
    const size_t most = INT32_MAX;
    const woi_network_plan plan = {.arch = WOI_ARCH_XC, .m = most, .d = 65536, .n_inputs = most, .trained = true};
    assert_int_equal(woi_network_create(&plan, &net, &err), WO_ERR_MEMORY);
    assert_null(net);
    const char *begin = "training a network of 2147483647 features, 65536 dimensions and 2147483647 labels takes "
                        "3377727636242419 bytes of memory, and there are ";
    assert_memory_equal(err.text, begin, strlen(begin));
    const uint64_t there = woi_memory_there();
    assert_true(there > 1 << 20 && there < (uint64_t)1 << 51);
    assert_int_equal(strtoull(err.text + strlen(begin), NULL, 10), there);
}

/* The least limit of a group and of those around it. */
static void memory_of_a_group(void **state)
{
    (void)state;
    static const struct {
        const char *groups, *outer, *inner;
        uint64_t least;
    } cases[] = {
        {"0::/outer/inner\n", "max\n", "max\n", UINT64_MAX},
        {"0::/outer/inner\n", "max\n", "1000000\n", 1000000},
        {"12:cpu:/\n0::/outer/inner\n", "2000000\n", "3000000\n", 2000000},
        {"0::/outer\n", "max\n", "1000000\n", UINT64_MAX},
        {"4:memory:/outer/inner\n", "1\n", "1\n", UINT64_MAX},
        {"0::/\n", "1\n", "1\n", UINT64_MAX},
        {"0::/outer/inner\n", "", "", UINT64_MAX},
    };
    char groups[300], root[300];
    snprintf(root, sizeof root, "%s", scratch("root"));
    mkdir(root, 0700);
    mkdir(scratch("root/outer"), 0700);
    mkdir(scratch("root/outer/inner"), 0700);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch_text("groups", cases[i].groups);
        scratch_text("root/outer/memory.max", cases[i].outer);
        scratch_text("root/outer/inner/memory.max", cases[i].inner);
        snprintf(groups, sizeof groups, "%s", scratch("groups"));
        assert_int_equal(woi_memory_of_group(groups, root), cases[i].least);
    }
    assert_int_equal(woi_memory_of_group(scratch("none"), root), UINT64_MAX);
}

/* Where training starts: embeddings N(0, 0.1), the rest within 1/sqrt(d), another network for another seed. */
static void starting_values(void **state)
{
    (void)state;
    woi_network *net = NULL, *other = NULL;
    wo_error err;
    assert_int_equal(
        woi_network_create(
            &(woi_network_plan){.arch = WOI_ARCH_LM, .m = 500, .d = 64, .n_inputs = 500, .trained = true, .seed = 1},
            &net, &err),
        WO_OK);
    assert_int_equal(
        woi_network_create(
            &(woi_network_plan){.arch = WOI_ARCH_LM, .m = 500, .d = 64, .n_inputs = 500, .trained = true, .seed = 2},
            &other, &err),
        WO_OK);
    double square = 0;
    for (size_t i = 0; i < net->params[0].n; i++) square += pow((double)net->params[0].w[i], 2);
    assert_true(fabs(sqrt(square / (500 * 64)) - 0.1) < 0.002);
    for (size_t p = 1; p < net->n_params; p++) {
        double most = 0;
        for (size_t i = 0; i < net->params[p].n; i++) most = fmax(most, fabs((double)net->params[p].w[i]));
        assert_true(most <= 0.125 && most > 0.11);
        assert_memory_not_equal(net->params[p].w, other->params[p].w, net->params[p].n * sizeof(float));
        for (size_t i = 0; i < net->params[p].n; i++) assert_true(net->params[p].m[i] == 0 && net->params[p].v[i] == 0);
    }
    woi_network_free(net);
    woi_network_free(other);
}

/* ---- Checkpoints ------------------------------------------------------------------------------------------- */

static void refuse_checkpoint(woi_network *net, const char *fingerprint, const char *sentence)
{
    uint64_t done;
    double loss;
    wo_error err;
    assert_int_not_equal(woi_checkpoint_load(net, scratch("point"), fingerprint, &done, &loss, &err), WO_OK);
    assert_begins(err.text, sentence);
}

static void checkpoints_come_back(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        woi_network *net = make_network((woi_arch)arch, true), *back = NULL;
        wo_error err;
        uint64_t done = 0;
        double loss = 0;
        if (woi_checkpoint_save(net, scratch("point"), "data-options", 3, 4.1, &err)) fail_msg("%s", err.text);
        assert_int_equal(
            woi_network_create(
                &(woi_network_plan){
                    .arch = (woi_arch)arch, .m = M, .d = D, .n_inputs = net->n_inputs, .trained = true, .seed = 9},
                &back, &err),
            WO_OK);
        if (woi_checkpoint_load(back, scratch("point"), "data-options", &done, &loss, &err)) fail_msg("%s", err.text);
        assert_int_equal(done, 3);
        assert_true(loss == 4.1);
        for (size_t i = 0; i < net->n_params; i++) {
            const woi_param *a = &net->params[i], *b = &back->params[i];
            assert_memory_equal(a->w, b->w, a->n * sizeof(float));
            assert_memory_equal(a->m, b->m, a->n * sizeof(float));
            assert_memory_equal(a->v, b->v, a->n * sizeof(float));
        }
        refuse_checkpoint(back, "data-other", "belongs to another network, other data or other options");
        refuse_checkpoint(back, "", "belongs to another network, other data or other options");
        woi_network_free(net);
        woi_network_free(back);
    }
}

static void bad_checkpoints_are_refused(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, true), *other = NULL;
    unlink(scratch("point"));
    refuse_checkpoint(net, "f", "the file cannot be opened: No such file");
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    damage("point", 1);
    refuse_checkpoint(net, "f", "tensor 'output.bias.adam_v' (92 bytes at byte ");
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    assert_int_equal(truncate(scratch("point"), 3000), 0);
    refuse_checkpoint(net, "f", "");
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    assert_int_equal(woi_network_create(
                         &(woi_network_plan){
                             .arch = WOI_ARCH_XC, .m = M + 1, .d = D, .n_inputs = FEATURES, .trained = true, .seed = 9},
                         &other, NULL),
                     WO_OK);
    refuse_checkpoint(other, "f", "tensor 'output.weight' has 138 elements, expected 24 x 6");
    woi_network_free(other);
    assert_int_equal(
        woi_network_create(
            &(woi_network_plan){.arch = WOI_ARCH_LM, .m = M, .d = D, .n_inputs = FEATURES, .trained = true, .seed = 9},
            &other, NULL),
        WO_OK);
    refuse_checkpoint(other, "f", "is not such a network: it has no tensor 'lstm.weight_ih_l0'");
    woi_network_free(other);
    assert_int_equal(woi_network_save(net, scratch("point"), NULL, 0, NULL), WO_OK);
    refuse_checkpoint(net, "f", "is not a checkpoint of wideout's");
    woi_network_free(net);
}

/* Files that were written on purpose: every checksum is right. */
static void hostile_checkpoints_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *sentence;
    } cases[] = {
        {"\"epochs_done\":\"123\"", "\"epochs_done\":\"abc\"", "has 'abc' epochs done, expected a number"},
        {"\"epochs_done\":\"123\"", "\"epochs_done\":\"-12\"", "has '-12' epochs done, expected a number"},
        {"\"epochs_done\":\"123\"", "\"epochs_done\":\"12 \"", "has '12 ' epochs done, expected a number"},
        {"\"loss\":\"0x1p+1\"", "\"loss\":\"  nan \"", "has a loss of '  nan ', expected a number"},
        {"\"loss\":\"0x1p+1\"", "\"loss\":\"0x1p+z\"", "has a loss of '0x1p+z', expected a number"},
    };
    woi_network *net = make_network(WOI_ARCH_XC, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 123, 2, NULL), WO_OK);
        size_t bytes;
        char *data = slurp(scratch("point"), &bytes);
        char *at = memmem(data, bytes, cases[i].old, strlen(cases[i].old));
        assert_non_null(at);
        memcpy(at, cases[i].new, strlen(cases[i].new));
        assert_true(sign((unsigned char *)data, bytes));
        scratch_write("point", data, bytes);
        free(data);
        refuse_checkpoint(net, "f", cases[i].sentence);
    }
    woi_network_free(net);
}

static void assert_state(const woi_network *net, const woi_kept *kept)
{
    for (size_t i = 0; i < net->n_params; i++) {
        const woi_param *p = &net->params[i];
        assert_memory_equal(p->w, kept->state[3 * i], p->n * sizeof(float));
        assert_memory_equal(p->m, kept->state[3 * i + 1], p->n * sizeof(float));
        assert_memory_equal(p->v, kept->state[3 * i + 2], p->n * sizeof(float));
    }
}

/* Those of a run without a fixed end: two states and a history, or one state that is both. */
static void checkpoints_with_a_best_epoch(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        woi_network *net = make_network((woi_arch)arch, true), *back = make_network((woi_arch)arch, true);
        woi_kept kept = {0}, read = {0};
        woi_history history = {.n = WOI_PACE_EPOCHS}, again;
        wo_error err;
        for (int i = 0; i < WOI_PACE_EPOCHS; i++) {
            history.p_at_1[i] = 1 / (i + 3.0);
            history.loss[i] = -1e300 / (i + 7.0);
        }
        assert_int_equal(woi_kept_create(net, &kept, NULL), WO_OK);
        assert_int_equal(woi_kept_create(net, &read, NULL), WO_OK);
        woi_kept_take(&kept, net);
        assert_state(net, &kept);
        net->params[0].w[3] += 1;
        net->params[1].m[2] += 1;
        net->params[2].v[1] += 1;
        if (woi_checkpoint_save_auto(net, &kept, scratch("point"), "f", &history, &err)) fail_msg("%s", err.text);
        if (woi_checkpoint_load_auto(back, &read, scratch("point"), "f", &again, &err)) fail_msg("%s", err.text);
        assert_memory_equal(&again, &history, sizeof again);
        for (size_t i = 0; i < 3 * net->n_params; i++)
            assert_memory_equal(read.state[i], kept.state[i], net->params[i / 3].n * sizeof(float));
        woi_kept_take(&read, net);
        assert_state(back, &read);
        woi_kept_give(&kept, back);
        assert_state(back, &kept);

        history.n = 2;
        assert_int_equal(woi_checkpoint_save_auto(net, NULL, scratch("point"), "f", &history, NULL), WO_OK);
        if (woi_checkpoint_load_auto(back, &read, scratch("point"), "f", &again, &err)) fail_msg("%s", err.text);
        assert_int_equal(again.n, 2);
        assert_state(back, &read);
        assert_state(net, &read);
        damage("point", 1);
        assert_int_not_equal(woi_checkpoint_load_auto(back, &read, scratch("point"), "f", &again, &err), WO_OK);
        assert_begins(err.text, "tensor 'output.bias.adam_v' (");
        assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 2, 1, NULL), WO_OK);
        assert_int_equal(woi_checkpoint_load_auto(back, &read, scratch("point"), "f", &again, &err), WO_ERR_FORMAT);
        assert_string_equal(err.text, "its 'valid_p_at_1' is not a list of 2 numbers");
        assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", WOI_PACE_EPOCHS + 1, 1, NULL), WO_OK);
        assert_int_equal(woi_checkpoint_load_auto(back, &read, scratch("point"), "f", &again, &err), WO_ERR_FORMAT);
        assert_string_equal(err.text, "has 61 epochs done, expected 1 to 60");
        woi_network_free(net);
        woi_network_free(back);
        woi_kept_free(&kept);
        woi_kept_free(&read);
    }
}

static void values_that_are_not_finite_are_not_saved(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, true);
    wo_error err;
    uint64_t done = 0;
    double loss;
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    net->params[1].v[5] = INFINITY;
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 2, 2, &err), WO_ERR_ARGUMENT);
    assert_begins(err.text, "would have inf as element 5 of 'output.weight.adam_v', and is not saved");
    assert_int_equal(woi_checkpoint_load(net, scratch("point"), "f", &done, &loss, NULL), WO_OK);
    assert_int_equal(done, 1);
    woi_network_free(net);
}

/* ---- Other people's state dicts ---------------------------------------------------------------------------- */

typedef struct foreign {
    const woi_network *net;
    const char *without; /* a tensor that is left out */
    const char *dtype;   /* BF16 or I32 */
    uint64_t embed_rows, columns_off;
} foreign;

/* The parameters from..to as a safetensors file without any metadata, and their lines of the index. */
static void write_shard(const foreign *f, const char *name, size_t from, size_t to, char *index)
{
    char header[4096] = "{";
    static uint16_t halves[1 << 20];
    size_t n = 0;
    const size_t bytes = strcmp(f->dtype, "BF16") == 0 ? 2 : 4;
    for (size_t i = from; i < to; i++) {
        const woi_param *p = &f->net->params[i];
        if (f->without && strcmp(p->name, f->without) == 0) continue;
        uint64_t rows = i == 0 ? f->embed_rows : p->shape[0], columns = p->shape[1] + (i == 0 ? f->columns_off : 0);
        const size_t elements = rows * (p->n_dims == 2 ? columns : 1), begin = bytes * n;
        char shape[64];
        snprintf(shape, sizeof shape, p->n_dims == 2 ? "%llu,%llu" : "%llu", (unsigned long long)rows,
                 (unsigned long long)columns);
        for (size_t j = 0; j < elements; j++) halves[n++] = woi_f32_to_bf16(j < p->n ? p->w[j] : 0);
        snprintf(header + strlen(header), sizeof header - strlen(header),
                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", header[1] ? "," : "", p->name,
                 f->dtype, shape, begin, bytes * n);
        snprintf(index + strlen(index), 128, "%s\"%s\":\"%s\"", index[0] ? "," : "", p->name, name);
    }
    strcat(header, "}");
    const uint64_t length = strlen(header);
    FILE *file = fopen(scratch(name), "wb");
    assert_non_null(file);
    fwrite(&length, 8, 1, file);
    fwrite(header, 1, length, file);
    fwrite(halves, bytes, n, file);
    assert_int_equal(fclose(file), 0);
}

static wo_status open_foreign(const foreign *f, size_t n_words, woi_network **net, wo_error *err)
{
    char index[4096] = "", json[8192], words[4096] = "";
    write_shard(f, "one.safetensors", 0, 6, index);
    write_shard(f, "two.safetensors", 6, f->net->n_params, index);
    snprintf(json, sizeof json, "{\"metadata\":{},\"weight_map\":{%s}}", index);
    scratch_text("index.json", json);
    for (size_t i = 0; i < n_words; i++) snprintf(words + strlen(words), 32, "w%zu\n", i);
    scratch_text("vocab.txt", words);
    return woi_network_open_lm(scratch("index.json"), scratch("vocab.txt"), net, err);
}

static void a_sharded_state_dict_opens(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_LM, false), *back = NULL;
    wo_error err;
    if (open_foreign(&(foreign){net, NULL, "BF16", M, 0}, M, &back, &err)) fail_msg("%s", err.text);
    assert_int_equal(back->arch, WOI_ARCH_LM);
    assert_int_equal(back->m, M);
    assert_int_equal(back->d, D);
    for (size_t i = 0; i < net->n_params; i++)
        for (size_t j = 0; j < net->params[i].n; j++) {
            const uint32_t bits = (uint32_t)woi_f32_to_bf16(net->params[i].w[j]) << 16;
            float rounded;
            memcpy(&rounded, &bits, sizeof rounded);
            assert_true(back->params[i].w[j] == rounded);
        }
    assert_same_names(&net->labels, &back->labels);
    for (size_t i = 0; i < M; i++) assert_int_equal(back->is_label[i], 1);
    save_network(back, "net"); /* and becomes one of ours */
    woi_network *ours = open_network("net");
    assert_memory_equal(ours->params[4].w, back->params[4].w, back->params[4].n * sizeof(float));
    woi_network_free(ours);
    woi_network_free(back);
    woi_network_free(net);
}

static void bad_state_dicts_are_refused(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_LM, false), *none = NULL;
    const struct {
        foreign f;
        size_t n_words;
        const char *sentence;
    } cases[] = {
        {{net, NULL, "BF16", M, 0}, M - 1, "has 23 words, "},
        {{net, NULL, "BF16", M, 0}, M + 1, "has 23 words, "},
        {{net, NULL, "BF16", M, 0}, 0, "has 23 words, "},
        {{net, "lstm.bias_hh_l1", "BF16", M, 0}, M, "is not such a network: it has no tensor 'lstm.bias_hh_l1'"},
        {{net, "embed.weight", "BF16", M, 0}, M, "is not a network: it lacks embed.weight or output.weight"},
        {{net, NULL, "BF16", M, 1}, M, "embed.weight has 7 columns, output.weight 6"},
        {{net, NULL, "BF16", M + 1, 0}, M, "has 24 words in and 23 out"},
        {{net, NULL, "I32", M, 0}, M, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wo_error err;
        assert_int_not_equal(open_foreign(&cases[i].f, cases[i].n_words, &none, &err), WO_OK);
        assert_null(none);
        assert_begins(err.text, cases[i].sentence);
    }
    wo_error err;
    assert_int_equal(open_foreign(&(foreign){net, NULL, "BF16", M, 0}, M, &none, NULL), WO_OK);
    woi_network_free(none);
    none = NULL;
    assert_int_equal(woi_network_open_lm(scratch("index.json"), scratch("nowhere"), &none, &err), WO_ERR_IO);
    assert_non_null(strstr(err.text, "nowhere: the file cannot be opened"));
    woi_network_free(net);

    /* 16 GB of LSTM are not asked for before its tensors are seen. */
    assert_int_equal(
        woi_network_create(&(woi_network_plan){.arch = WOI_ARCH_W2V, .m = 2, .d = 32000, .n_inputs = 2}, &net, NULL),
        WO_OK);
    char index[256] = "";
    write_shard(&(foreign){net, NULL, "BF16", 2, 0}, "large", 0, 3, index);
    scratch_text("vocab.txt", "a\nb\n");
    assert_int_equal(woi_network_open_lm(scratch("large"), scratch("vocab.txt"), &none, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "is not such a network: it has no tensor 'lstm.weight_ih_l0'");
    woi_network_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_come_back),
        cmocka_unit_test(the_record_is_kept),
        cmocka_unit_test(bad_networks_are_refused),
        cmocka_unit_test(beyond_memory),
        cmocka_unit_test(memory_of_a_group),
        cmocka_unit_test(starting_values),
        cmocka_unit_test(checkpoints_come_back),
        cmocka_unit_test(bad_checkpoints_are_refused),
        cmocka_unit_test(hostile_checkpoints_are_refused),
        cmocka_unit_test(checkpoints_with_a_best_epoch),
        cmocka_unit_test(values_that_are_not_finite_are_not_saved),
        cmocka_unit_test(a_sharded_state_dict_opens),
        cmocka_unit_test(bad_state_dicts_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
