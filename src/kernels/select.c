/* Which kernels this process runs: the processor's best, unless WIDEOUT_CPU lowers it. Chosen once, at first use. */
#include "base/cpu.h"
#include "base/error.h"
#include "base/sized.h"
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = {"ref", "avx2", "avx512"};
enum { N_LEVELS = sizeof level_names / sizeof *level_names };

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
    return cpu->avx512 ? WOI_LEVEL_AVX512 : cpu->avx2 ? WOI_LEVEL_AVX2 : WOI_LEVEL_REF;
}

static void fill(woi_level level, bool with_vnni, woi_kernels *table)
{
    woi_kernels_use_ref(table);
#if defined(__x86_64__)
    if (level >= WOI_LEVEL_AVX2) woi_kernels_use_avx2(table);
    if (level >= WOI_LEVEL_AVX512) woi_kernels_use_avx512(table);
    if (level >= WOI_LEVEL_AVX512 && with_vnni) woi_kernels_use_avx512vnni(table);
#else
    (void)level;
    (void)with_vnni;
#endif
}

static wo_status read_wish(const char *wish, woi_level best, woi_level *level, wo_error *err)
{
    unsigned asked = 0;
    while (asked < N_LEVELS && strcmp(wish, level_names[asked]) != 0) asked++;
    if (asked == N_LEVELS) {
        char quoted[WOI_QUOTE_BYTES];
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "WIDEOUT_CPU is '%s', but it must be ref, avx2 or avx512: correct it or unset it",
                        woi_quote(quoted, wish, strlen(wish)));
    }
    if (asked > (unsigned)best)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                        "WIDEOUT_CPU is '%s', but the best that this machine can run is %s: lower it or unset it", wish,
                        level_names[best]);
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
    fill(chosen.level, chosen.cpu.avx512vnni, &chosen.table);
}

const woi_kernels *woi_kernels_get(wo_error *err)
{
    pthread_once(&once, choose);
    if (chosen.refusal.status == WO_OK) return &chosen.table;
    if (err) *err = chosen.refusal;
    return NULL;
}

int woi_kernels_at(woi_level level, int with_vnni, woi_kernels *table)
{
    woi_cpu cpu;
    woi_cpu_detect(&cpu);
    if (level > best_level(&cpu) || (with_vnni && !cpu.avx512vnni)) return 0;
    fill(level, with_vnni, table);
    return 1;
}

wo_status wo_cpu_query(wo_cpu_info *info, wo_error *err)
{
    if (!info) return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "wo_cpu_query has nowhere to write: info is NULL");
    if (!woi_kernels_get(err)) return chosen.refusal.status;
    const wo_cpu_info about = {sizeof about,  level_names[chosen.level], level_names[chosen.best],
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
