/* net/: networks and checkpoints on disk; what queries, evaluation and embedding make of data, against slow and obvious
 * code in double. */
#include "testing.h"

#include "base/rng.h"
#include "net/net.h"

#include <math.h>
#include <stdbool.h>

enum { M = 23, D = 6, FEATURES = 31 };

/* ---- Networks to test with --------------------------------------------------------------------------------- */

static void add_names(woi_names *names, const char *prefix, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%zu", prefix, i);
        assert_int_equal(woi_names_append(names, name, strlen(name), NULL), WO_OK);
    }
}

/* Larger values than training starts from, so that the layers are not nearly linear. */
static woi_network *make_network(woi_arch arch, bool trained)
{
    woi_network *net = NULL;
    wo_error err;
    if (woi_network_create(arch, M, D, arch == WOI_ARCH_XC ? FEATURES : M, trained, 3, &net, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < net->n_params; i++)
        for (size_t j = 0; j < net->params[i].n; j++) {
            net->params[i].w[j] = woi_rng_normal(4, i, j);
            if (trained) net->params[i].m[j] = woi_rng_normal(5, i, j);
            if (trained) net->params[i].v[j] = woi_rng_uniform(6, i, j);
        }
    net->input = (woi_bag_input){true, true, true};
    add_names(&net->labels, arch == WOI_ARCH_XC ? "label " : "w", M);
    if (arch == WOI_ARCH_XC) {
        add_names(&net->features, "desc:\xc3\xa9", FEATURES);
        snprintf(net->extractor, sizeof net->extractor, "deb822");
    }
    if (arch == WOI_ARCH_W2V) {
        net->window = 4;
        net->drop_top = 2;
        net->is_label[0] = net->is_label[7] = 0;
    }
    return net;
}

static void save_network(const woi_network *net, const char *name)
{
    wo_error err;
    if (woi_network_save(net, scratch(name), NULL, 0, &err)) fail_msg("%s", err.text);
}

static woi_network *open_network(const char *name)
{
    woi_network *net = NULL;
    wo_error err;
    if (woi_network_open(scratch(name), &net, &err)) fail_msg("%s", err.text);
    return net;
}

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

static void assert_begins(const char *text, const char *beginning)
{
    if (strncmp(text, beginning, strlen(beginning)) != 0) fail_msg("\"%s\", expected \"%s...\"", text, beginning);
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

    assert_int_equal(woi_network_create(WOI_ARCH_W2V, 5, 2, 4, false, 1, &net, NULL), WO_OK);
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
        assert_int_equal(
            woi_network_create(WOI_ARCH_LM, shapes[i][0], shapes[i][1], shapes[i][2], true, 1, &none, &err),
            WO_ERR_ARGUMENT);
    assert_null(none);
}

/* Where training starts: embeddings N(0, 0.1), the rest within 1/sqrt(d), another network for another seed. */
static void starting_values(void **state)
{
    (void)state;
    woi_network *net = NULL, *other = NULL;
    wo_error err;
    assert_int_equal(woi_network_create(WOI_ARCH_LM, 500, 64, 500, true, 1, &net, &err), WO_OK);
    assert_int_equal(woi_network_create(WOI_ARCH_LM, 500, 64, 500, true, 2, &other, &err), WO_OK);
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
        assert_int_equal(woi_network_create((woi_arch)arch, M, D, net->n_inputs, true, 9, &back, &err), WO_OK);
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
    refuse_checkpoint(net, "f", "cannot open: No such file");
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    damage("point", 1);
    refuse_checkpoint(net, "f", "tensor 'output.bias.adam_v' (92 bytes at byte ");
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    assert_int_equal(truncate(scratch("point"), 3000), 0);
    refuse_checkpoint(net, "f", "");
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    assert_int_equal(woi_network_create(WOI_ARCH_XC, M + 1, D, FEATURES, true, 9, &other, NULL), WO_OK);
    refuse_checkpoint(other, "f", "tensor 'output.weight' has 138 elements, expected 24 x 6");
    woi_network_free(other);
    assert_int_equal(woi_network_create(WOI_ARCH_LM, M, D, FEATURES, true, 9, &other, NULL), WO_OK);
    refuse_checkpoint(other, "f", "is not such a network: it has no tensor 'lstm.weight_ih_l0'");
    woi_network_free(other);
    net->params[1].v[5] = NAN;
    assert_int_equal(woi_checkpoint_save(net, scratch("point"), "f", 1, 2, NULL), WO_OK);
    refuse_checkpoint(net, "f", "tensor 'output.weight.adam_v': element 5 is nan");
    assert_int_equal(woi_network_save(net, scratch("point"), NULL, 0, NULL), WO_OK);
    refuse_checkpoint(net, "f", "is not a checkpoint of wideout's");
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
    assert_non_null(strstr(err.text, "nowhere: cannot open"));
    woi_network_free(net);

    /* 16 GB of LSTM are not asked for before its tensors are seen. */
    assert_int_equal(woi_network_create(WOI_ARCH_W2V, 2, 32000, 2, false, 1, &net, NULL), WO_OK);
    char index[256] = "";
    write_shard(&(foreign){net, NULL, "BF16", 2, 0}, "large", 0, 3, index);
    scratch_text("vocab.txt", "a\nb\n");
    assert_int_equal(woi_network_open_lm(scratch("large"), scratch("vocab.txt"), &none, &err), WO_ERR_FORMAT);
    assert_string_equal(err.text, "is not such a network: it has no tensor 'lstm.weight_ih_l0'");
    woi_network_free(net);
}

/* ---- Queries, slowly --------------------------------------------------------------------------------------- */

/* Everything that a network should make of a file. */
typedef struct expectation {
    size_t n;
    double *q;           /* (n, D) */
    unsigned char *have; /* (n, M): whether a class is a label */
} expectation;

static expectation expect(size_t n)
{
    expectation e = {n, calloc(n * D + 1, sizeof *e.q), calloc(n * M + 1, 1)};
    assert_true(e.q && e.have);
    return e;
}

static void free_expectation(expectation *e)
{
    free(e->q);
    free(e->have);
}

enum { ROWS = 2300, TOKENS = 2500 }; /* both over two chunks of 1024 */

/* Text with rows of 0 to 4 features and 0 to 3 labels, and what the network makes of it. */
static expectation write_rows(const woi_network *net)
{
    expectation e = expect(ROWS);
    FILE *file = fopen(scratch("data"), "w");
    assert_non_null(file);
    fprintf(file, "%d %d %d\n", ROWS, FEATURES, M);
    for (size_t i = 0; i < ROWS; i++) {
        double square = 0, x[FEATURES] = {0}, *q = e.q + i * D;
        const uint64_t n_labels = woi_rng_below(7, 1, i, 4), n_features = woi_rng_below(7, 2, i, 5);
        for (uint64_t j = 0; j < n_labels; j++) e.have[i * M + woi_rng_below(7, 10 + j, i, M)] = 1;
        for (uint64_t j = 0; j < n_features; j++) {
            const uint64_t value = 1 + woi_rng_below(7, 30 + j, i, 9);
            x[woi_rng_below(7, 20 + j, i, FEATURES)] = (double)value;
        }
        const char *gap = "";
        for (int label = 0; label < M; label++)
            if (e.have[i * M + (size_t)label]) fprintf(file, "%s%d", gap, label), gap = ",";
        if (!*gap) fputs(" ", file);
        gap = *gap ? " " : "";
        for (int f = 0; f < FEATURES; f++)
            if (x[f] > 0) fprintf(file, "%s%d:%g", gap, f, x[f]), gap = " ";
        if (n_features == 0 && *gap) fputs(" ", file);
        fputs("\n", file);
        for (size_t f = 0; f < FEATURES; f++) {
            x[f] = net->input.log1p ? log1p(x[f]) : x[f];
            square += x[f] * x[f];
            for (size_t j = 0; j < D; j++) q[j] += x[f] * (double)net->params[0].w[f * D + j];
        }
        for (size_t j = 0; j < D; j++) {
            if (net->input.l2 && square > 0) q[j] /= sqrt(square);
            q[j] = fmax(q[j], 0);
        }
    }
    assert_int_equal(fclose(file), 0);
    return e;
}

static int32_t tokens[TOKENS];

/* A token file whose vocabulary is the network's in another order, with one word more that the network calls "<unk>":
 * here w1. tokens[] are the network's ids, of which n go into the file. */
static void write_tokens(woi_network *net, size_t n)
{
    woi_names words = {0};
    int32_t ids[TOKENS];
    char name[32];
    for (int i = M - 1; i >= 0; i--) {
        snprintf(name, sizeof name, "w%d", i);
        assert_int_equal(woi_names_append(&words, i == 1 ? "strange" : name, i == 1 ? 7 : strlen(name), NULL), WO_OK);
    }
    for (size_t i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)(woi_rng_uniform(8, 1, i) * woi_rng_uniform(8, 2, i) * M);
        ids[i] = M - 1 - tokens[i];
    }
    woi_names_free(&net->labels);
    for (int i = 0; i < M; i++) {
        snprintf(name, sizeof name, "w%d", i);
        assert_int_equal(woi_names_append(&net->labels, i == 1 ? "<unk>" : name, i == 1 ? 5 : strlen(name), NULL),
                         WO_OK);
    }
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_create(scratch("data"), "tokens", &writer, NULL), WO_OK);
    assert_int_equal(woi_st_declare(writer, "tokens", WOI_I32, 1, (uint64_t[]){n}, NULL), WO_OK);
    assert_int_equal(woi_names_declare(writer, "labels", &words, NULL), WO_OK);
    assert_int_equal(woi_st_append(writer, ids, n * sizeof *ids, NULL), WO_OK);
    assert_int_equal(woi_names_write(writer, &words, NULL), WO_OK);
    assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
    woi_st_writer_free(writer);
    woi_names_free(&words);
}

static expectation expect_words(const woi_network *net)
{
    expectation e = expect(TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        for (size_t j = 0; j < D; j++)
            e.q[(size_t)i * D + j] = fmax((double)net->params[0].w[(size_t)tokens[i] * D + j], 0);
        for (int at = i - (int)net->window; at <= i + (int)net->window; at++)
            if (at != i && at >= 0 && at < TOKENS && net->is_label[tokens[at]])
                e.have[(size_t)i * M + (size_t)tokens[at]] = 1;
    }
    return e;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static expectation expect_lstm(const woi_network *net, size_t next)
{
    expectation e = expect(TOKENS - next);
    const woi_lstm lstm = woi_network_lstm(net);
    double h[WOI_LSTM_DEPTH][D] = {{0}}, c[WOI_LSTM_DEPTH][D] = {{0}};
    for (size_t i = 0; i < e.n; i++) {
        double x[D];
        for (size_t j = 0; j < D; j++) x[j] = (double)net->params[0].w[(size_t)tokens[i] * D + j];
        for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
            double gate[4 * D];
            for (size_t g = 0; g < 4 * D; g++) {
                gate[g] = (double)lstm.b_ih[l][g] + (double)lstm.b_hh[l][g];
                for (size_t j = 0; j < D; j++)
                    gate[g] += (double)lstm.w_ih[l][g * D + j] * x[j] + (double)lstm.w_hh[l][g * D + j] * h[l][j];
            }
            for (size_t j = 0; j < D; j++) {
                c[l][j] = sigmoid(gate[D + j]) * c[l][j] + sigmoid(gate[j]) * tanh(gate[2 * D + j]);
                h[l][j] = sigmoid(gate[3 * D + j]) * tanh(c[l][j]);
            }
            memcpy(x, h[l], sizeof x);
        }
        memcpy(e.q + i * D, x, sizeof x);
        for (size_t j = 1; j <= next; j++) e.have[i * M + (size_t)tokens[i + j]] = 1;
    }
    return e;
}

/* The file "data" and what should come of it. */
static expectation make_data(woi_network *net, size_t next)
{
    if (net->arch == WOI_ARCH_XC) return write_rows(net);
    write_tokens(net, TOKENS);
    return net->arch == WOI_ARCH_W2V ? expect_words(net) : expect_lstm(net, next);
}

static bool same_query(const expectation *e, size_t i, const float *q)
{
    for (size_t j = 0; q && j < D; j++)
        if (fabs((double)q[j] - e->q[i * D + j]) > 1e-4) return false;
    return true;
}

static bool same_labels(const expectation *e, size_t i, const int32_t *labels, int64_t n)
{
    int64_t at = 0;
    for (int32_t class = 0; class < M; class ++)
        if (e->have[i * M + (size_t) class] && (at == n || labels[at++] != class)) return false;
    return at == n;
}

/* Reads all batches: each query must be the next of the expected ones, or, of a sample, a later one. `places` receives
 * which they were (unless NULL). */
static size_t read_all(woi_queries *queries, const expectation *e, bool labels_only, bool sample, size_t *places)
{
    size_t taken = 0, at = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        wo_error err;
        if (woi_queries_next(queries, labels_only, &batch, &more, &err)) fail_msg("%s", err.text);
        assert_true(labels_only == (batch.q == NULL));
        assert_int_equal(batch.indptr[0], 0);
        for (size_t i = 0; i < batch.n; i++, at++, taken++) {
            const float *q = batch.q ? batch.q + i * D : NULL;
            const int32_t *labels = batch.labels + batch.indptr[i];
            const int64_t n = batch.indptr[i + 1] - batch.indptr[i];
            while (sample && at < e->n && !(same_query(e, at, q) && same_labels(e, at, labels, n))) at++;
            assert_true(at < e->n);
            if (!same_query(e, at, q)) fail_msg("query %zu is another", at);
            if (!same_labels(e, at, labels, n)) fail_msg("the labels of query %zu are others", at);
            if (places) places[taken] = at;
        }
    }
    return taken;
}

static void check_queries(woi_arch arch, size_t next)
{
    woi_network *net = make_network(arch, false);
    expectation e = make_data(net, next);
    woi_queries *queries = NULL;
    wo_error err;
    for (int threads = 1; threads < 3; threads++) {
        const woi_queries_options all = {.next = next, .seed = 1, .threads = threads};
        if (woi_queries_open(net, scratch("data"), &all, &queries, &err)) fail_msg("%s", err.text);
        assert_int_equal(woi_queries_n(queries), e.n);
        assert_int_equal(read_all(queries, &e, false, false, NULL), e.n);
        assert_int_equal(woi_queries_rewind(queries, &err), WO_OK);
        assert_int_equal(read_all(queries, &e, true, false, NULL), e.n);
        assert_int_equal(woi_queries_rewind(queries, &err), WO_OK);
        assert_int_equal(read_all(queries, &e, false, false, NULL), e.n);
        woi_queries_free(queries);
    }
    size_t first[300], again[300], other[300];
    woi_queries_options some = {.max_queries = 300, .next = next, .seed = 1, .threads = 2};
    if (woi_queries_open(net, scratch("data"), &some, &queries, &err)) fail_msg("%s", err.text);
    assert_int_equal(woi_queries_n(queries), 300);
    assert_int_equal(read_all(queries, &e, false, true, first), 300);
    assert_int_equal(woi_queries_rewind(queries, &err), WO_OK);
    assert_int_equal(read_all(queries, &e, false, true, again), 300);
    woi_queries_free(queries);
    assert_memory_equal(first, again, sizeof first);
    some.seed = 2;
    if (woi_queries_open(net, scratch("data"), &some, &queries, &err)) fail_msg("%s", err.text);
    assert_int_equal(read_all(queries, &e, false, true, other), 300);
    assert_memory_not_equal(first, other, sizeof first);
    woi_queries_free(queries);
    free_expectation(&e);
    woi_network_free(net);
}

static void bag_queries(void **state)
{
    (void)state;
    check_queries(WOI_ARCH_XC, 0);
}

static void word_queries(void **state)
{
    (void)state;
    check_queries(WOI_ARCH_W2V, 0);
}

static void lstm_queries(void **state)
{
    (void)state;
    check_queries(WOI_ARCH_LM, 1);
    check_queries(WOI_ARCH_LM, 4);
}

/* Chunks of 1024 words carry the state on: one long run gives the same. */
static void chunks_carry_the_state(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_LM, false);
    write_tokens(net, TOKENS);
    woi_queries *queries = NULL;
    woi_lstm_slice *slice = NULL;
    const woi_lstm lstm = woi_network_lstm(net);
    float *x = malloc(TOKENS * D * sizeof *x), *hidden = malloc(TOKENS * D * sizeof *hidden);
    assert_true(x && hidden);
    for (size_t i = 0; i < TOKENS * D; i++) x[i] = net->params[0].w[(size_t)tokens[i / D] * D + i % D];
    assert_int_equal(woi_lstm_slice_create(D, TOKENS, 1, &slice, NULL), WO_OK);
    woi_lstm_forward(&lstm, slice, TOKENS, x, 0, 0, 0, hidden);
    assert_int_equal(woi_queries_open(net, scratch("data"), &(woi_queries_options){.threads = 1}, &queries, NULL),
                     WO_OK);
    size_t at = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        assert_int_equal(woi_queries_next(queries, false, &batch, &more, NULL), WO_OK);
        for (size_t i = 0; i < batch.n * D; i++, at++) assert_true(fabsf(batch.q[i] - hidden[at]) < 1e-5f);
    }
    assert_int_equal(at, (TOKENS - 1) * D);
    woi_queries_free(queries);
    woi_lstm_slice_free(slice);
    free(x);
    free(hidden);
    woi_network_free(net);
}

static void refuse_data(const woi_network *net, const char *sentence)
{
    woi_precision precision;
    wo_error err;
    assert_int_equal(woi_evaluate(net, scratch("data"), &(woi_queries_options){.threads = 1}, NULL, &precision, &err),
                     WO_ERR_FORMAT);
    assert_begins(err.text, sentence);
}

static void data_must_fit_the_network(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, false);
    scratch_text("data", "1 31 24\n0 1:1\n");
    refuse_data(net, "has 24 labels, the network 23");
    scratch_text("data", "1 32 23\n0 1:1\n");
    refuse_data(net, "has 32 features, the network 31");
    scratch_text("data", "1 3\n1:1\n");
    refuse_data(net, "is one half of the two-file form");
    scratch_text("data", "2 31 23\n0 1:1\n1 3:-1\n");
    refuse_data(net, "row 2: feature 3 has the value -1, which is no count, and the network takes log1p");
    scratch_text("data", "2 31 23\n0 1:1\n1 3:-1\n");
    net->input.log1p = false;
    woi_precision precision;
    assert_int_equal(woi_evaluate(net, scratch("data"), &(woi_queries_options){0}, NULL, &precision, NULL), WO_OK);
    assert_int_equal(precision.n, 2);
    scratch_text("data", "3 31 23\n0 1:1\n");
    refuse_data(net, "ends after 1 rows, the header says 3");
    scratch_text("data", "1 31 23\n0 1:1\n0 1:1\n");
    refuse_data(net, "");
    woi_network_free(net);

    net = make_network(WOI_ARCH_LM, false);
    refuse_data(net, "");
    write_tokens(net, TOKENS);
    woi_names_free(&net->labels);
    add_names(&net->labels, "w", M);
    refuse_data(net, "the word 'strange' is not in the network's vocabulary, which has no <unk>");
    woi_queries *queries = NULL;
    wo_error err;
    write_tokens(net, TOKENS);
    assert_int_equal(woi_queries_open(net, scratch("data"), &(woi_queries_options){.next = TOKENS}, &queries, &err),
                     WO_ERR_FORMAT);
    assert_string_equal(err.text, "has 2500 words, expected more than 2500");
    assert_null(queries);
    woi_network_free(net);
}

/* ---- Precision and logs ------------------------------------------------------------------------------------ */

/* The best five of a row of logits, by looking through all of them five times. */
static woi_precision count_by_hand(const woi_network *net, const expectation *e)
{
    const woi_dense layer = woi_network_output(net);
    woi_precision p = {.n = e->n};
    double first = 0, hits = 0;
    for (size_t i = 0; i < e->n; i++) {
        double logits[M];
        p.unlabelled += memchr(e->have + i * M, 1, M) == NULL;
        for (size_t j = 0; j < M; j++) {
            logits[j] = (double)layer.b[j];
            for (size_t k = 0; k < D; k++) logits[j] += (double)layer.w[j * D + k] * e->q[i * D + k];
        }
        for (int k = 0; k < 5; k++) {
            size_t best = 0;
            for (size_t j = 1; j < M; j++)
                if (logits[j] > logits[best]) best = j;
            hits += e->have[i * M + best];
            first += k == 0 && e->have[i * M + best];
            logits[best] = -INFINITY;
        }
    }
    p.p_at_1 = first / (double)(p.n - p.unlabelled);
    p.p_at_5 = hits / (double)(p.n - p.unlabelled) / 5;
    return p;
}

static void precision_is_that_counted_by_hand(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++)
        for (size_t next = 1; next < 4; next += 2) {
            woi_network *net = make_network((woi_arch)arch, false);
            expectation e = make_data(net, next);
            const woi_precision expected = count_by_hand(net, &e);
            woi_precision got;
            wo_error err;
            const woi_queries_options options = {.next = next, .seed = 1, .threads = 2};
            if (woi_evaluate(net, scratch("data"), &options, NULL, &got, &err)) fail_msg("%s", err.text);
            assert_int_equal(got.n, expected.n);
            assert_int_equal(got.unlabelled, expected.unlabelled);
            assert_true(expected.p_at_5 > 0.01);
            assert_true(arch != WOI_ARCH_XC || expected.unlabelled > 100);
            assert_true(fabs(got.p_at_1 - expected.p_at_1) < 1e-9);
            assert_true(fabs(got.p_at_5 - expected.p_at_5) < 1e-9);
            free_expectation(&e);
            woi_network_free(net);
        }
}

static void check_log(woi_arch arch, woi_dtype dtype, uint64_t max_queries)
{
    woi_network *net = make_network(arch, false);
    expectation e = make_data(net, 1);
    const woi_queries_options options = {.max_queries = max_queries, .seed = 1, .threads = 2};
    woi_precision with_log, alone;
    woi_queries *queries = NULL;
    woi_log log;
    wo_error err;
    const char *at = NULL;
    uint64_t n = 0;
    if (woi_embed(net, scratch("data"), &options, dtype, scratch("log"), NULL, &n, &with_log, &at, &err))
        fail_msg("%s: %s", at, err.text);
    assert_int_equal(woi_evaluate(net, scratch("data"), &options, NULL, &alone, &err), WO_OK);
    assert_int_equal(with_log.n, alone.n);
    assert_int_equal(with_log.unlabelled, alone.unlabelled);
    assert_true(with_log.p_at_1 == alone.p_at_1 && with_log.p_at_5 == alone.p_at_5);
    if (woi_log_open(scratch("log"), &log, &err)) fail_msg("%s", err.text);
    assert_int_equal(log.n, max_queries ? max_queries : e.n);
    assert_int_equal(log.n, n);
    assert_int_equal(log.d, D);
    assert_int_equal(log.queries->dtype, dtype);
    assert_true(log.max_label < M);
    assert_string_equal(woi_st_meta(log.st, "arch"), woi_arch_name(arch));
    assert_int_equal(woi_queries_open(net, scratch("data"), &options, &queries, &err), WO_OK);
    size_t row = 0;
    for (bool more = true; more;) {
        woi_query_batch batch;
        assert_int_equal(woi_queries_next(queries, false, &batch, &more, &err), WO_OK);
        for (size_t i = 0; i < batch.n; i++, row++) {
            const int64_t labels = batch.indptr[i + 1] - batch.indptr[i];
            assert_int_equal(labels, log.indptr[row + 1] - log.indptr[row]);
            for (int64_t j = 0; j < labels; j++)
                assert_int_equal(batch.labels[batch.indptr[i] + j], log.labels[log.indptr[row] + j]);
            if (dtype == WOI_F32)
                assert_memory_equal(batch.q + i * D, (const float *)log.queries->data + row * D, D * sizeof(float));
            for (size_t j = 0; dtype == WOI_BF16 && j < D; j++)
                assert_int_equal(woi_f32_to_bf16(batch.q[i * D + j]),
                                 ((const uint16_t *)log.queries->data)[row * D + j]);
        }
    }
    assert_int_equal(row, n);
    woi_queries_free(queries);
    woi_log_close(&log);
    free_expectation(&e);
    woi_network_free(net);
}

static void logs_hold_the_queries(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        check_log((woi_arch)arch, WOI_F32, 0);
        check_log((woi_arch)arch, WOI_BF16, 0);
        check_log((woi_arch)arch, WOI_F32, 77);
    }
}

static int stop_at_once(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx, (void)stage, (void)done, (void)total;
    return 1;
}

static void a_stopped_embedding_keeps_the_old_log(void **state)
{
    (void)state;
    woi_network *net = make_network(WOI_ARCH_XC, false);
    expectation e = make_data(net, 1);
    const char *at = NULL;
    uint64_t n;
    wo_error err;
    scratch_text("log", "old");
    assert_int_equal(woi_embed(net, scratch("data"), &(woi_queries_options){.threads = 1}, WOI_F32, scratch("log"),
                               &(wo_progress){stop_at_once, NULL}, &n, NULL, &at, &err),
                     WO_ERR_CANCELLED);
    size_t bytes;
    char *text = slurp(scratch("log"), &bytes);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(woi_embed(net, scratch("no such data"), &(woi_queries_options){.threads = 1}, WOI_F32,
                               scratch("log"), NULL, &n, NULL, &at, &err),
                     WO_ERR_IO);
    assert_non_null(strstr(at, "no such data"));
    free_expectation(&e);
    woi_network_free(net);
}

/* ---- No memory --------------------------------------------------------------------------------------------- */

static woi_arch oom_arch;

static wo_status embed_all(wo_error *err)
{
    woi_network *net = NULL;
    const char *at;
    uint64_t n;
    woi_precision precision;
    wo_status status = woi_network_open(scratch("net"), &net, err);
    if (!status)
        status = woi_embed(net, scratch("data"), &(woi_queries_options){.max_queries = 20, .threads = 1}, WOI_BF16,
                           scratch("log"), NULL, &n, &precision, &at, err);
    woi_network_free(net);
    return status;
}

static wo_status train_all(wo_error *err)
{
    woi_train_options o = woi_train_defaults(oom_arch);
    char train[256], output[256];
    snprintf(train, sizeof train, "%s/data", scratch_folder);
    snprintf(output, sizeof output, "%s/net", scratch_folder);
    o.train = o.valid = o.test = train;
    o.output = output;
    o.d = 4;
    o.epochs = 1;
    o.batch = 20;
    o.steps = 2;
    o.threads = 1;
    o.sampled = oom_arch == WOI_ARCH_W2V ? 0 : 10;
    woi_train_result result;
    const char *at;
    return woi_train(oom_arch, &o, NULL, NULL, &result, &at, err);
}

/* Fails the 1st, 2nd, ... allocation until the operation gets through. */
static void fail_each(wo_status (*operation)(wo_error *))
{
    long n = 0;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    for (wo_status status = WO_ERR_MEMORY; status; n++) {
        wo_error err = {0};
        assert_true(n < 5000);
        allocations_left = n;
        allocations_alive = 0;
        status = operation(&err);
        allocations_left = -1;
        assert_int_equal(allocations_alive, 0);
        if (status && status != WO_ERR_MEMORY) fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        if (status) assert_non_null(strstr(err.text, "memory"));
    }
    assert_true(n > 20);
    wo_allocator_set(NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int arch = 0; arch < WOI_N_ARCHS; arch++) {
        woi_network *net = make_network((woi_arch)arch, false);
        if (arch == WOI_ARCH_XC)
            scratch_text("data", "3 31 23\n0,5 1:1 30:2\n22 3:1\n 4:1\n");
        else
            write_tokens(net, 60);
        save_network(net, "net");
        oom_arch = (woi_arch)arch;
        fail_each(embed_all);
        fail_each(train_all);
        woi_network_free(net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_come_back),
        cmocka_unit_test(the_record_is_kept),
        cmocka_unit_test(bad_networks_are_refused),
        cmocka_unit_test(starting_values),
        cmocka_unit_test(checkpoints_come_back),
        cmocka_unit_test(bad_checkpoints_are_refused),
        cmocka_unit_test(a_sharded_state_dict_opens),
        cmocka_unit_test(bad_state_dicts_are_refused),
        cmocka_unit_test(bag_queries),
        cmocka_unit_test(word_queries),
        cmocka_unit_test(lstm_queries),
        cmocka_unit_test(chunks_carry_the_state),
        cmocka_unit_test(data_must_fit_the_network),
        cmocka_unit_test(precision_is_that_counted_by_hand),
        cmocka_unit_test(logs_hold_the_queries),
        cmocka_unit_test(a_stopped_embedding_keeps_the_old_log),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
