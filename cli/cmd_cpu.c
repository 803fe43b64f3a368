/* wideout cpu: which instruction set runs, and why. */
#include "cli.h"

#include <jansson.h>

static int print_json(const wo_cpu_info *info)
{
    json_t *kernels = json_object();
    const char *name, *path;
    for (size_t i = 0; wo_cpu_kernel(i, &name, &path); i++) json_object_set_new(kernels, name, json_string(path));
    return cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "level", info->level, "best", info->best,
                                    "reason", info->reason, "model", info->model, "features", info->features, "kernels",
                                    kernels));
}

static int run(const cli_command *self, void *args, int n, char **rest)
{
    const cli_common *common = args;
    if (n > 0) return cli_usage(self, "takes no file, found '%s'", rest[0]);
    wo_cpu_info info = {.struct_size = sizeof info};
    wo_error err;
    if (wo_cpu_query(&info, &err)) return cli_fail(NULL, &err);
    if (common->json) return print_json(&info);
    printf("processor  %s\n", info.model);
    printf("features   %s\n", *info.features ? info.features : "none that matter here");
    printf("runs       %s: %s\n", info.level, info.reason);
    printf("kernels\n");
    const char *name, *path;
    for (size_t i = 0; wo_cpu_kernel(i, &name, &path); i++) printf("  %-12s %s\n", name, path);
    return cli_end();
}

const cli_command cli_cmd_cpu = {
    "cpu",
    "[options]",
    "which instruction set the kernels use here, and why",
    "Prints what the processor offers, what the kernels use of it, and why.\n"
    "\n"
    "WIDEOUT_CPU=ref, avx2 or avx512 in the environment lowers the choice; asking for more than the\n"
    "machine has is an error.\n"
    "\n"
    "  wideout cpu\n"
    "  WIDEOUT_CPU=avx2 wideout cpu",
    NULL,
    sizeof(cli_common),
    run,
};
