/* Which kernels this process runs: the processor's best, unless WIDEOUT_CPU lowers it. Chosen once, at first use. */
#include "base/cpu.h"
#include "base/error.h"
#include "base/sized.h"
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of woi_level: what a level adds to the ones below, and what its dot products of bytes add to that. */
static const struct {
    const char *name;
    void (*use)(woi_kernels *table), (*use_dot)(woi_kernels *table);
} levels[WOI_N_LEVELS] = {
    {"ref", woi_kernels_use_ref, NULL},
#if defined(__x86_64__)
    {"avx2", woi_kernels_use_avx2, NULL},
    {"avx512", woi_kernels_use_avx512, woi_kernels_use_avx512vnni},
#elif defined(__aarch64__)
    {"neon", woi_kernels_use_neon, woi_kernels_use_neondot},
#endif
};

#if defined(__x86_64__)
#define LEVEL_NAMES "ref, avx2 or avx512"
#elif defined(__aarch64__)
#define LEVEL_NAMES "ref or neon"
#else
#define LEVEL_NAMES "ref"
#endif

static const char *const kernel_names[] = {
#define WOI_KERNEL(ret, name, params) #name,
#include "kernels/kernels.def"
#undef WOI_KERNEL
};

/* Written by choose() under `once`, then constant. */
static struct {
    woi_cpu cpu;
    woi_kernels table;
    woi_level level, best;
    char reason[64];
    wo_error refusal; /* its status is WO_OK when there is a table */
} chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static woi_level best_level(const woi_cpu *cpu)
{
#if defined(__x86_64__)
    return cpu->avx512 ? WOI_LEVEL_AVX512 : cpu->avx2 ? WOI_LEVEL_AVX2 : WOI_LEVEL_REF;
#elif defined(__aarch64__)
    return cpu->neon ? WOI_LEVEL_NEON : WOI_LEVEL_REF;
#else
    (void)cpu;
    return WOI_LEVEL_REF;
#endif
}

static bool has_dot(const woi_cpu *cpu, woi_level level)
{
    return levels[level].use_dot && (cpu->avx512vnni || cpu->neondot);
}

static void fill(woi_level level, bool with_dot, woi_kernels *table)
{
    for (int l = 0; l <= (int)level; l++) levels[l].use(table);
    if (with_dot) levels[level].use_dot(table);
}

const char *woi_level_name(woi_level level)
{
    return levels[level].name;
}

static wo_status read_wish(const char *wish, woi_level best, woi_level *level, wo_error *err)
{
    unsigned asked = 0;
    while (asked < WOI_N_LEVELS && strcmp(wish, levels[asked].name) != 0) asked++;
    if (asked == WOI_N_LEVELS) {
        char quoted[WOI_QUOTE_BYTES];
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "WIDEOUT_CPU is '%s', but it must be " LEVEL_NAMES ": correct it or unset it",
                        woi_quote(quoted, wish, strlen(wish)));
    }
    if (asked > (unsigned)best)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "WIDEOUT_CPU is '%s', but the best that this machine can run is %s: lower it or unset it", wish,
                        levels[best].name);
    *level = (woi_level)asked;
    return WO_OK;
}

static void choose(void)
{
    woi_cpu_detect(&chosen.cpu);
    chosen.level = chosen.best = best_level(&chosen.cpu);
    const char *wish = getenv("WIDEOUT_CPU");
    if (wish && *wish && read_wish(wish, chosen.best, &chosen.level, &chosen.refusal)) return;
    if (chosen.level < chosen.best)
        snprintf(chosen.reason, sizeof chosen.reason, "lowered by WIDEOUT_CPU=%s", wish);
    else
        snprintf(chosen.reason, sizeof chosen.reason, "the best this machine has");
    fill(chosen.level, has_dot(&chosen.cpu, chosen.level), &chosen.table);
}

const woi_kernels *woi_kernels_get(wo_error *err)
{
    pthread_once(&once, choose);
    if (chosen.refusal.status == WO_OK) return &chosen.table;
    if (err) *err = chosen.refusal;
    return NULL;
}

int woi_kernels_at(woi_level level, int with_dot, woi_kernels *table)
{
    woi_cpu cpu;
    woi_cpu_detect(&cpu);
    if (level > best_level(&cpu) || (with_dot && !has_dot(&cpu, level))) return 0;
    fill(level, with_dot, table);
    return 1;
}

wo_status wo_cpu_query(wo_cpu_info *info, wo_error *err)
{
    if (!info) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "wo_cpu_query has nowhere to write: info is NULL");
    if (!woi_kernels_get(err)) return chosen.refusal.status;
    const wo_cpu_info about = {sizeof about,  levels[chosen.level].name, levels[chosen.best].name,
                               chosen.reason, chosen.cpu.model,          chosen.cpu.features};
    if (woi_sized_give(info, &about, sizeof about))
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "struct_size of the processor's description is not set");
    return WO_OK;
}

int wo_cpu_kernel(size_t i, const char **name, const char **path)
{
    const woi_kernels *table = woi_kernels_get(NULL);
    if (!table || i >= WOI_N_KERNELS) return 0;
    *name = kernel_names[i];
    *path = table->path[i];
    return 1;
}
