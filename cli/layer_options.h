/* The options of every command that opens a wide layer. */
#ifndef WOI_CLI_LAYER_OPTIONS_H
#define WOI_CLI_LAYER_OPTIONS_H

#include "blame.h"

typedef struct cli_layer {
    const char *path, *weight_name, *bias_name, *bias_path;
    uint32_t part, n_parts; /* these and the next as in wo_layer_options */
    uint64_t checksum, *part_checksums;
} cli_layer;

#define CLI_LAYER_OPTIONS(args_type, member, help)                                                             \
    {"layer", 0, CLI_TEXT_ONCE, offsetof(args_type, member) + offsetof(cli_layer, path), "FILE", help, false}, \
        {"weight-name", 0,                                                                                     \
         CLI_TEXT_ONCE, offsetof(args_type, member) + offsetof(cli_layer, weight_name),                        \
         "NAME",        "its tensor of weights, (m, d)",                                                       \
         false},                                                                                               \
        {"bias-name",   0,                                                                                     \
         CLI_TEXT_ONCE, offsetof(args_type, member) + offsetof(cli_layer, bias_name),                          \
         "NAME",        "its tensor of biases, (m)",                                                           \
         false},                                                                                               \
    {                                                                                                          \
        "bias", 0, CLI_TEXT_ONCE, offsetof(args_type, member) + offsetof(cli_layer, bias_path), "FILE",        \
            "beside a .npy file of weights: the one of biases", false                                          \
    }

/* CLI_USAGE, after saying so, where tensors or a file of a layer are named and the layer is not. */
static inline int cli_layer_refuse_parts(const cli_command *self, const cli_layer *given)
{
    if (given->path || !(given->weight_name || given->bias_name || given->bias_path)) return CLI_OK;
    return cli_usage(self, "--weight-name, --bias-name and --bias go with --layer");
}

static inline wo_layer_info cli_layer_about(const wo_layer *layer)
{
    wo_layer_info info = {.struct_size = sizeof info};
    wo_layer_describe(layer, &info);
    return info;
}

/* Opens it; where that fails, prints why and returns CLI_FAILED. */
static inline int cli_layer_open(const cli_command *self, const cli_layer *given, wo_layer **layer)
{
    const wo_layer_options o = {.struct_size = sizeof o,
                                .weight_name = given->weight_name,
                                .bias_name = given->bias_name,
                                .bias_path = given->bias_path,
                                .part = given->part,
                                .n_parts = given->n_parts,
                                .checksum = given->checksum,
                                .part_checksums = given->part_checksums};
    wo_error err;
    if (wo_layer_open(given->path, &o, layer, &err))
        return cli_blame(self, &(cli_files){.layer = given->path, .bias = given->bias_path}, &err);
    const wo_layer_info info = cli_layer_about(*layer);
    if (info.unused_bias) cli_warn_bias(given->path, info.unused_bias);
    return CLI_OK;
}

#endif
