/* wideout cpu: which instruction set runs, and why; how fast the exact layer is beside what the machine can do. */
#include "cli.h"

#include <inttypes.h>
#include <jansson.h>

static int print_json(const wo_cpu_info *info, const wo_cpu_rates *rates)
{
    json_t *kernels = json_object();
    const char *name, *path;
    for (size_t i = 0; wo_cpu_kernel(i, &name, &path); i++) json_object_set_new(kernels, name, json_string(path));
    return cli_print_json(json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:i, s:i, s:f, s:f, s:f}, s:o}", "level", info->level, "best", info->best,
        "reason", info->reason, "model", info->model, "features", info->features, "product", "tile", rates->tile,
        "rows", (int)rates->tile_rows, "columns", (int)rates->tile_columns, "gflops", rates->product_gflops,
        "peak_gflops", rates->peak_gflops, "read_gb_s", rates->read_gb_s, "kernels", kernels));
}

static int run(const cli_command *self, void *args, int n, char **rest)
{
    const cli_common *common = args;
    if (n > 0) return cli_usage(self, "takes no file, found '%s'", rest[0]);
    wo_cpu_info info = {.struct_size = sizeof info};
    wo_cpu_rates rates = {.struct_size = sizeof rates};
    wo_error err;
    if (wo_cpu_query(&info, &err) || wo_cpu_measure(&rates, &err)) return cli_fail(NULL, &err);
    if (common->json) return print_json(&info, &rates);
    printf("processor  %s\n", info.model);
    printf("features   %s\n", *info.features ? info.features : "none that matter here");
    printf("runs       %s: %s\n", info.level, info.reason);
    printf("product    %s, tiles of %" PRIu32 " x %" PRIu32
           ": %.0f GFLOP/s on one thread, %.0f%% of the peak of %.0f\n",
           rates.tile, rates.tile_rows, rates.tile_columns, rates.product_gflops,
           100 * rates.product_gflops / rates.peak_gflops, rates.peak_gflops);
    printf("reads      %.1f GB/s on one thread\n", rates.read_gb_s);
    printf("kernels\n");
    const char *name, *path;
    for (size_t i = 0; wo_cpu_kernel(i, &name, &path); i++) printf("  %-12s %s\n", name, path);
    return cli_end();
}

const cli_command cli_cmd_cpu = {
    "cpu",
    "[options]",
    "which instruction set the kernels use here, and why",
    "Prints what the processor offers, what the kernels use of it, and why; then how fast the exact\n"
    "layer's product is beside the multiply-adds that the machine can do at most, and how fast it reads\n"
    "memory: measured here, on one thread, for some 0.2 s.\n"
    "\n"
    "WIDEOUT_CPU in the environment lowers the choice: ref, avx2 or avx512 on x86-64, ref or neon on\n"
    "64-bit Arm. Asking for more than the machine has is an error.\n"
    "\n"
    "  wideout cpu\n"
    "  WIDEOUT_CPU=ref wideout cpu",
    NULL,
    sizeof(cli_common),
    run,
};
