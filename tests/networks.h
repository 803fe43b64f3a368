/* Small networks with random values, for the tests of what is made of them. */
#ifndef WO_TEST_NETWORKS_H
#define WO_TEST_NETWORKS_H

#include "testing.h"

#include "base/rng.h"
#include "net/net.h"

#include <math.h>
#include <stdbool.h>

enum { M = 23, D = 6, FEATURES = 31 };

static inline void add_names(woi_names *names, const char *prefix, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%zu", prefix, i);
        assert_int_equal(woi_names_append(names, name, strlen(name), NULL), WO_OK);
    }
}

/* Larger values than training starts from, so that the layers are not nearly linear. */
static inline woi_network *make_network(woi_arch arch, bool trained)
{
    woi_network *net = NULL;
    wo_error err;
    if (woi_network_create(&(woi_network_plan){.arch = arch,
                                               .m = M,
                                               .d = D,
                                               .n_inputs = arch == WOI_ARCH_XC ? FEATURES : M,
                                               .trained = trained,
                                               .seed = 3},
                           &net, &err))
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

static inline void save_network(const woi_network *net, const char *name)
{
    wo_error err;
    if (woi_network_save(net, scratch(name), NULL, 0, &err)) fail_msg("%s", err.text);
}

static inline woi_network *open_network(const char *name)
{
    woi_network *net = NULL;
    wo_error err;
    if (woi_network_open(scratch(name), &net, &err)) fail_msg("%s", err.text);
    return net;
}

static inline void assert_begins(const char *text, const char *beginning)
{
    if (strncmp(text, beginning, strlen(beginning)) != 0) fail_msg("\"%s\", expected \"%s...\"", text, beginning);
}

/* A token file, "data". */
static inline void write_token_file(const int32_t *ids, size_t n, const woi_names *words)
{
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_create(scratch("data"), "tokens", &writer, NULL), WO_OK);
    assert_int_equal(woi_st_declare(writer, "tokens", WOI_I32, 1, (uint64_t[]){n}, NULL), WO_OK);
    assert_int_equal(woi_names_declare(writer, "labels", words, NULL), WO_OK);
    assert_int_equal(woi_st_append(writer, ids, n * sizeof *ids, NULL), WO_OK);
    assert_int_equal(woi_names_write(writer, words, NULL), WO_OK);
    assert_int_equal(woi_st_finish(writer, NULL), WO_OK);
    woi_st_writer_free(writer);
}

static inline int stop_in(void *stage_to_stop, const char *stage, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return strcmp(stage, stage_to_stop) == 0;
}

#endif
