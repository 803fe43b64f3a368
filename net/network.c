/* Networks: parameters in memory and on disk. */
#include "net/network.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/team.h"
#include "layer/layer.h"
#include "net/fasttext.h"
#include "net/memory.h"
#include "text/names_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const arch_names[] = {"xc", "w2v", "lm", "fasttext"};

const char *woi_arch_name(woi_arch arch)
{
    return arch_names[arch];
}

/* ---- Parameters -------------------------------------------------------------------------------------------- */

static void add_param(woi_network *net, const char *name, uint64_t rows, uint64_t columns)
{
    net->params[net->n_params++] = (woi_param){.name = name, .n_dims = columns ? 2 : 1, .shape = {rows, columns}};
}

static void list_params(woi_network *net)
{
    static const char *const lstm[WOI_LSTM_DEPTH][4] = {
        {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0", "lstm.bias_hh_l0"},
        {"lstm.weight_ih_l1", "lstm.weight_hh_l1", "lstm.bias_ih_l1", "lstm.bias_hh_l1"},
    };
    add_param(net, "embed.weight", net->n_inputs, net->d);
    for (int layer = 0; net->arch == WOI_ARCH_LM && layer < WOI_LSTM_DEPTH; layer++)
        for (int i = 0; i < 4; i++) add_param(net, lstm[layer][i], 4 * net->d, i < 2 ? net->d : 0);
    const size_t rows = woi_portion_of(net->ranks, net->m).n;
    add_param(net, "output.weight", rows, net->d);
    add_param(net, "output.bias", rows, 0);
}

static bool is_spread(const woi_network *net, size_t i)
{
    return net->ranks && i >= net->n_params - 2;
}

/* Elements of a row. */
static size_t width_of(const woi_param *param)
{
    return param->n_dims == 2 ? (size_t)param->shape[1] : 1;
}

typedef struct starting {
    const woi_network *net;
    size_t i; /* which parameter */
    uint64_t seed;
    woi_portion rows; /* of it that are here: a row starts the same in whatever process it is */
} starting;

static void start_range(void *own, int worker, size_t first, size_t end)
{
    const starting *s = own;
    const size_t i = s->i;
    const float reach = 1 / sqrtf((float)s->net->d);
    const size_t width = width_of(&s->net->params[i]);
    (void)worker;
    for (size_t j = first; j < end; j++) {
        const size_t at = (s->rows.first + j / width * s->rows.stride) * width + j % width;
        s->net->params[i].w[j] =
            i == 0 ? 0.1f * woi_rng_normal(s->seed, i, at) : (2 * woi_rng_uniform(s->seed, i, at) - 1) * reach;
    }
}

static void start_values(const woi_network *net, size_t i, uint64_t seed)
{
    enum { NUMBERS_AT_ONCE = 32768 };
    const woi_portion rows = woi_portion_of(is_spread(net, i) ? net->ranks : NULL, net->m);
    woi_team_ranges(woi_team_threads(0), net->params[i].n, NUMBERS_AT_ONCE, start_range,
                    &(starting){net, i, seed, rows});
}

/* The sizes of what is trained come from a header, which may name any number in a few bytes. Where the system gives out
 * memory that it does not have, the process would be ended when it is used, and others with it. */
static wo_status check_memory(const woi_network *net, wo_error *err)
{
    enum { STATES = 3 }; /* the numbers and Adam's two moments */
    uint64_t bytes = net->m;
    for (size_t i = 0; i < net->n_params; i++)
        bytes += STATES * sizeof(float) * net->params[i].shape[0] * width_of(&net->params[i]);
    const uint64_t there = woi_memory_there();
    if (bytes <= there) return WO_OK;
    return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET,
                    "training a network of %zu features, %zu dimensions and %zu labels takes %" PRIu64
                    " bytes of memory, and there are %" PRIu64,
                    net->n_inputs, net->d, net->m, bytes, there);
}

wo_status woi_network_create(const woi_network_plan *plan, woi_network **result, wo_error *err)
{
    const size_t m = plan->m, d = plan->d, n_inputs = plan->n_inputs;
    if (m == 0 || d == 0 || n_inputs == 0 || m > INT32_MAX || n_inputs > INT32_MAX || d > 65536)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                        "a network of %zu inputs, %zu dimensions and %zu classes cannot be", n_inputs, d, m);
    woi_network *net = woi_alloc_zero(1, sizeof *net, err);
    if (!net) return WO_ERR_MEMORY;
    net->arch = plan->arch;
    net->m = m;
    net->d = d;
    net->n_inputs = n_inputs;
    net->ranks = plan->ranks;
    snprintf(net->extractor, sizeof net->extractor, "none");
    list_params(net);
    if ((plan->trained && check_memory(net, err)) || !(net->is_label = woi_alloc(m, 1, err))) {
        woi_network_free(net);
        return WO_ERR_MEMORY;
    }
    memset(net->is_label, 1, m);
    for (size_t i = 0; i < net->n_params; i++) {
        woi_param *param = &net->params[i];
        param->n = (size_t)param->shape[0] * width_of(param);
        if (!(param->w = woi_alloc_zero(param->n, sizeof(float), err)) ||
            (plan->trained && (!(param->m = woi_alloc_zero(param->n, sizeof(float), err)) ||
                               !(param->v = woi_alloc_zero(param->n, sizeof(float), err))))) {
            woi_network_free(net);
            return WO_ERR_MEMORY;
        }
        if (plan->trained) start_values(net, i, plan->seed);
    }
    *result = net;
    return WO_OK;
}

void woi_network_free(woi_network *net)
{
    if (!net) return;
    for (size_t i = 0; i < net->n_params; i++) {
        woi_free(net->params[i].w);
        woi_free(net->params[i].m);
        woi_free(net->params[i].v);
    }
    woi_names_free(&net->labels);
    woi_names_free(&net->features);
    woi_free(net->is_label);
    woi_free(net);
}

woi_param *woi_network_param(woi_network *net, const char *name)
{
    for (size_t i = 0; i < net->n_params; i++)
        if (strcmp(net->params[i].name, name) == 0) return &net->params[i];
    return NULL;
}

woi_dense woi_network_output(const woi_network *net)
{
    const woi_param *w = &net->params[net->n_params - 2], *b = &net->params[net->n_params - 1];
    return (woi_dense){(size_t)w->shape[0], net->d, w->w, b->w};
}

bool woi_network_is_other(const woi_network *net, const wo_index *index)
{
    enum { ROWS = 2048 };
    const wo_layer layer = {.dense = woi_network_output(net)}; /* not wrapped: that looks through all of it */
    wo_layer_check check = {.struct_size = sizeof check, .sample = ROWS};
    const wo_status status = wo_index_check_layer(index, &layer, 1, &check, NULL);
    return status == WO_ERR_ARGUMENT || (!status && (check.n_changed || check.n_added));
}

woi_wide woi_network_wide(woi_network *net)
{
    const woi_param *w = &net->params[net->n_params - 2], *b = &net->params[net->n_params - 1];
    return (woi_wide){(size_t)w->shape[0], net->d, w->w, w->m, w->v, b->w, b->m, b->v};
}

woi_bag woi_network_bag(const woi_network *net)
{
    return (woi_bag){net->n_inputs, net->d, net->params[0].w, net->params[0].m, net->params[0].v};
}

woi_lstm woi_network_lstm(const woi_network *net)
{
    woi_lstm lstm = {.d = net->d};
    for (int l = 0; l < WOI_LSTM_DEPTH; l++) {
        const woi_param *first = &net->params[1 + 4 * l];
        lstm.w_ih[l] = first[0].w;
        lstm.w_hh[l] = first[1].w;
        lstm.b_ih[l] = first[2].w;
        lstm.b_hh[l] = first[3].w;
    }
    return lstm;
}

/* ---- Writing ----------------------------------------------------------------------------------------------- */

static wo_status set_number(woi_st_writer *writer, const char *key, uint64_t value, wo_error *err)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return woi_st_set_meta(writer, key, text, err);
}

static wo_status set_options(woi_st_writer *writer, const woi_network *net, wo_error *err)
{
    wo_status status = woi_st_set_meta(writer, "arch", woi_arch_name(net->arch), err);
    if (net->arch == WOI_ARCH_XC) {
        if (!status) status = woi_st_set_meta(writer, "counts", net->input.log1p ? "log1p" : "raw", err);
        if (!status) status = woi_st_set_meta(writer, "normalize", net->input.l2 ? "l2" : "none", err);
        if (!status) status = woi_st_set_meta(writer, "extractor", net->extractor, err);
    }
    if (net->arch == WOI_ARCH_W2V) {
        if (!status) status = set_number(writer, "window", net->window, err);
        if (!status) status = set_number(writer, "drop_top", net->drop_top, err);
    }
    return status;
}

static wo_status declare_params(woi_st_writer *writer, const woi_network *net, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < net->n_params; i++) {
        const woi_param *param = &net->params[i];
        const uint64_t shape[] = {is_spread(net, i) ? net->m : param->shape[0], param->shape[1]};
        status = woi_st_declare(writer, param->name, WOI_F32, param->n_dims, shape, err);
    }
    return status;
}

/* All but the parameters' numbers, up to those. */
static wo_status begin_file(woi_st_writer *writer, const woi_network *net, const woi_meta *record, size_t n_record,
                            wo_error *err)
{
    wo_status status = set_options(writer, net, err);
    for (size_t i = 0; !status && i < n_record; i++)
        status = woi_st_set_meta(writer, record[i].key, record[i].value, err);
    if (!status) status = declare_params(writer, net, err);
    if (!status && net->labels.n > 0) status = woi_names_declare(writer, "labels", &net->labels, err);
    if (!status && net->features.n > 0) status = woi_names_declare(writer, "features", &net->features, err);
    if (!status && net->drop_top > 0) status = woi_st_declare(writer, "is_label", WOI_U8, 1, (uint64_t[]){net->m}, err);
    return status;
}

static wo_status append_floats(void *ctx, const float *data, size_t n, wo_error *err)
{
    return woi_st_append(ctx, data, n * sizeof *data, err);
}

/* The numbers; rank 0 alone has a writer. */
static wo_status append_params(woi_st_writer *writer, const woi_network *net, wo_error *err)
{
    wo_status status = WO_OK;
    for (size_t i = 0; i < net->n_params; i++) {
        const woi_param *param = &net->params[i];
        const woi_spread spread = {param->w, net->m, width_of(param), append_floats, writer};
        if (!is_spread(net, i)) {
            if (writer && !status) status = append_floats(writer, param->w, param->n, err);
            continue;
        }
        if ((status = woi_ranks_agree(net->ranks, status, NULL, err))) break;
        status = woi_ranks_collect(net->ranks, &spread, err);
    }
    return status;
}

static wo_status end_file(woi_st_writer *writer, const woi_network *net, wo_error *err)
{
    wo_status status = WO_OK;
    if (net->labels.n > 0) status = woi_names_write(writer, &net->labels, err);
    if (!status && net->features.n > 0) status = woi_names_write(writer, &net->features, err);
    if (!status && net->drop_top > 0) status = woi_st_append(writer, net->is_label, net->m, err);
    return status ? status : woi_st_finish(writer, err);
}

wo_status woi_network_save(const woi_network *net, const char *path, const woi_meta *record, size_t n_record,
                           wo_error *err)
{
    const bool here = woi_ranks_first(net->ranks);
    woi_st_writer *writer = NULL;
    wo_status status = here ? woi_st_create(path, "network", &writer, err) : WO_OK;
    if (here && !status) status = begin_file(writer, net, record, n_record, err);
    status = woi_ranks_agree(net->ranks, status, NULL, err);
    if (!status) status = append_params(writer, net, err);
    if (here && !status) status = end_file(writer, net, err);
    woi_st_writer_free(writer);
    return woi_ranks_agree(net->ranks, status, NULL, err);
}

/* ---- Reading ----------------------------------------------------------------------------------------------- */

/* The tensor of a parameter is there and has its shape. */
static wo_status check_param(const woi_st *st, const char *name, const woi_param *param, wo_error *err)
{
    const woi_tensor *t = woi_st_find(st, name);
    if (!t) return woi_fail(err, WO_ERR_FORMAT, 8, "is not such a network: it has no tensor '%s'", name);
    bool same = t->n_dims == param->n_dims;
    for (int i = 0; same && i < t->n_dims; i++) same = t->shape[i] == param->shape[i];
    if (!same)
        return woi_fail(err, WO_ERR_FORMAT, t->offset,
                        "tensor '%s' has %" PRIu64 " elements, expected %" PRIu64 " x %" PRIu64, name, t->n,
                        param->shape[0], param->n_dims == 2 ? param->shape[1] : 1);
    return WO_OK;
}

wo_status woi_param_read(const woi_st *st, const char *name, const woi_param *param, float *to, wo_error *err)
{
    wo_status status = check_param(st, name, param, err);
    if (status) return status;
    const woi_tensor *t = woi_st_find(st, name);
    if ((status = woi_convert_f32(t->dtype, t->data, (size_t)t->n, to, err))) return status;
    for (size_t i = 0; i < param->n; i++)
        if (!isfinite(to[i]))
            return woi_fail(err, WO_ERR_FORMAT, t->offset, "tensor '%s': element %zu is %g", name, i, (double)to[i]);
    return WO_OK;
}

/* A network of the sizes that its tensors have, filled. All of them are looked at before memory is taken: that of an
 * LSTM grows with the square of d. */
static wo_status read_params(const woi_st *st, woi_arch arch, woi_network **net, wo_error *err)
{
    const woi_tensor *embed = woi_st_find(st, "embed.weight"), *output = woi_st_find(st, "output.weight");
    if (!embed || !output || embed->n_dims != 2 || output->n_dims != 2)
        return woi_fail(err, WO_ERR_FORMAT, 8, "is not a network: it lacks embed.weight or output.weight as a matrix");
    if (embed->shape[1] != output->shape[1])
        return woi_fail(err, WO_ERR_FORMAT, 8, "embed.weight has %" PRIu64 " columns, output.weight %" PRIu64,
                        embed->shape[1], output->shape[1]);
    woi_network stated = {.arch = arch,
                          .m = (size_t)output->shape[0],
                          .d = (size_t)output->shape[1],
                          .n_inputs = (size_t)embed->shape[0]};
    if (arch != WOI_ARCH_XC && stated.n_inputs != stated.m)
        return woi_fail(err, WO_ERR_FORMAT, 8, "has %zu words in and %zu out: such a network has the same",
                        stated.n_inputs, stated.m);
    wo_status status = WO_OK;
    list_params(&stated);
    for (size_t i = 0; !status && i < stated.n_params; i++)
        status = check_param(st, stated.params[i].name, &stated.params[i], err);
    if (!status)
        status = woi_network_create(
            &(woi_network_plan){.arch = arch, .m = stated.m, .d = stated.d, .n_inputs = stated.n_inputs}, net, err);
    for (size_t i = 0; !status && i < (*net)->n_params; i++)
        status = woi_param_read(st, (*net)->params[i].name, &(*net)->params[i], (*net)->params[i].w, err);
    return status;
}

static wo_status check_names(const woi_names *names, size_t expected, const char *what, wo_error *err)
{
    if (names->n == 0 || (size_t)names->n == expected) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has %" PRId32 " names of %s, expected %zu", names->n, what,
                    expected);
}

static bool is_meta(const woi_st *st, const char *key, const char *value)
{
    const char *found = woi_st_meta(st, key);
    return found && strcmp(found, value) == 0;
}

/* A line that is missing is 0. */
static wo_status read_number(const woi_st *st, const char *key, uint64_t most, uint64_t *value, wo_error *err)
{
    const char *text = woi_st_meta(st, key);
    char *end = NULL, quoted[WOI_QUOTE_BYTES];
    *value = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (!text || (end && !*end && strlen(text) < 12 && *value <= most)) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, 8, "'%s' is \"%s\", expected a number up to %" PRIu64, key,
                    woi_quote(quoted, text, strlen(text)), most);
}

static wo_status read_network(const woi_st *st, woi_network **result, wo_error *err)
{
    if (!woi_st_kind(st) || strcmp(woi_st_kind(st), "network") != 0)
        return woi_fail(err, WO_ERR_FORMAT, 8, "is not a network of wideout's");
    const char *arch = woi_st_meta(st, "arch");
    int which = 0;
    while (which < WOI_N_ARCHS && (!arch || strcmp(arch, arch_names[which]) != 0)) which++;
    if (which == WOI_N_ARCHS)
        return woi_fail(err, WO_ERR_UNSUPPORTED, 8, "arch '%.40s' is not one of xc, w2v, lm", arch ? arch : "");
    wo_status status = woi_st_verify(st, NULL, err);
    if (!status) status = read_params(st, (woi_arch)which, result, err);
    if (status) return status;
    woi_network *net = *result;
    net->input = (woi_bag_input){is_meta(st, "counts", "log1p"), is_meta(st, "normalize", "l2"), true};
    if (net->arch == WOI_ARCH_W2V && ((status = read_number(st, "window", WOI_MOST_WINDOW, &net->window, err)) ||
                                      (status = read_number(st, "drop_top", net->m, &net->drop_top, err))))
        return status;
    const char *extractor = woi_st_meta(st, "extractor");
    snprintf(net->extractor, sizeof net->extractor, "%s", extractor ? extractor : "none");
    if (woi_st_find(st, "names.labels.bytes") && (status = woi_names_load(st, "labels", &net->labels, err)))
        return status;
    if (woi_st_find(st, "names.features.bytes") && (status = woi_names_load(st, "features", &net->features, err)))
        return status;
    const woi_tensor *is_label = woi_st_find(st, "is_label");
    if (is_label && (is_label->dtype != WOI_U8 || is_label->n != net->m))
        return woi_fail(err, WO_ERR_FORMAT, is_label->offset, "tensor 'is_label' does not have one U8 for each class");
    if (is_label) memcpy(net->is_label, is_label->data, net->m);
    if ((status = check_names(&net->labels, net->m, "labels", err))) return status;
    return check_names(&net->features, net->n_inputs, "features", err);
}

wo_status woi_network_open(const char *path, woi_network **result, wo_error *err)
{
    woi_st *st = NULL;
    woi_network *net = NULL;
    woi_file_kind kind;
    wo_status status = woi_file_recognise(path, &kind, err);
    if (!status && kind == WOI_FILE_FASTTEXT) return woi_fasttext_network(path, result, err);
    if (!status) status = woi_st_open(path, &st, err);
    if (!status) status = read_network(st, &net, err);
    woi_st_free(st);
    if (status)
        woi_network_free(net);
    else
        *result = net;
    return status;
}

wo_status woi_network_open_lm(const char *path, const char *vocabulary, woi_network **result, wo_error *err)
{
    woi_st *st = NULL;
    woi_network *net = NULL;
    wo_status status = woi_st_open(path, &st, err);
    if (!status) status = read_params(st, WOI_ARCH_LM, &net, err);
    woi_st_free(st);
    if (!status && (status = woi_names_read(vocabulary, &net->labels, err))) woi_error_prefix(err, vocabulary);
    if (!status && (size_t)net->labels.n != net->m)
        status =
            woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has %zu words, %s %" PRId32, net->m, vocabulary, net->labels.n);
    if (status)
        woi_network_free(net);
    else
        *result = net;
    return status;
}
