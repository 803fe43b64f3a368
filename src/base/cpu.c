/* x86-64: CPUID says what the processor has; XCR0 says which registers the operating system saves. Both must agree: a
 * kernel (or a hypervisor) that does not save ZMM state would corrupt it at the next context switch.
 *
 * 64-bit Arm: Linux hands every process a word with both in one, AT_HWCAP. */
#include "base/cpu.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) || defined(__aarch64__)
static void add_feature(woi_cpu *cpu, bool present, const char *name)
{
    if (!present) return;
    size_t used = strlen(cpu->features);
    snprintf(cpu->features + used, sizeof cpu->features - used, "%s%s", used ? " " : "", name);
}
#endif

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static void brand_string(char out[64])
{
    uint32_t word[12] = {0};
    uint32_t most = __get_cpuid_max(0x80000000u, NULL);
    if (most < 0x80000004u) return;
    for (uint32_t i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &word[4 * i], &word[4 * i + 1], &word[4 * i + 2], &word[4 * i + 3]);
    char raw[49];
    memcpy(raw, word, 48);
    raw[48] = '\0';
    const char *start = raw + strspn(raw, " ");
    size_t n = strlen(start);
    while (n > 0 && start[n - 1] == ' ') n--;
    if (n > 0) snprintf(out, 64, "%.*s", (int)n, start);
}

void woi_cpu_detect(woi_cpu *cpu)
{
    memset(cpu, 0, sizeof *cpu);
    memcpy(cpu->model, "unknown", 8);
    brand_string(cpu->model);

    uint32_t a, b = 0, c, d, b7 = 0, c7 = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    bool osxsave = c & bit_OSXSAVE;
    uint64_t xcr0 = osxsave ? read_xcr0() : 0;
    bool ymm = (xcr0 & 0x6) == 0x6;   /* SSE and AVX state */
    bool zmm = (xcr0 & 0xe6) == 0xe6; /* and opmask, ZMM_Hi256, Hi16_ZMM */
    bool fma = ymm && (c & bit_FMA), f16c = ymm && (c & bit_F16C);
    uint32_t d7;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return;
    bool avx2 = ymm && (b7 & bit_AVX2);
    bool f = zmm && (b7 & bit_AVX512F), bw = zmm && (b7 & bit_AVX512BW), dq = zmm && (b7 & bit_AVX512DQ),
         vl = zmm && (b7 & bit_AVX512VL), vnni = zmm && (c7 & bit_AVX512VNNI);

    cpu->avx2 = avx2 && fma && f16c;
    cpu->avx512 = cpu->avx2 && f && bw && dq && vl;
    cpu->avx512vnni = cpu->avx512 && vnni;
    add_feature(cpu, avx2, "avx2");
    add_feature(cpu, fma, "fma");
    add_feature(cpu, f16c, "f16c");
    add_feature(cpu, f, "avx512f");
    add_feature(cpu, bw, "avx512bw");
    add_feature(cpu, dq, "avx512dq");
    add_feature(cpu, vl, "avx512vl");
    add_feature(cpu, vnni, "avx512vnni");
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* The value of a line "key : value" of /proc/cpuinfo. */
static bool cpuinfo_value(const char *line, const char *key, char out[64])
{
    const size_t length = strlen(key);
    if (strncmp(line, key, length) != 0 || !strchr("\t :", line[length])) return false;
    const char *value = line + length + strspn(line + length, "\t :");
    const size_t n = strcspn(value, "\n");
    snprintf(out, 64, "%.*s", n < 63 ? (int)n : 63, value);
    return n > 0;
}

/* Few kernels know an Arm processor by name; the others give its maker and part as numbers. */
static void model_name(char out[64])
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    char line[256], name[64] = "", maker[64] = "", part[64] = "";
    while (!*name && !(*maker && *part) && fgets(line, sizeof line, file))
        if (!cpuinfo_value(line, "model name", name) && !cpuinfo_value(line, "CPU implementer", maker))
            cpuinfo_value(line, "CPU part", part);
    fclose(file);
    if (*name)
        memcpy(out, name, 64);
    else if (*maker && *part)
        snprintf(out, 64, "Arm, implementer %.16s, part %.16s", maker, part);
}

void woi_cpu_detect(woi_cpu *cpu)
{
    enum { ASIMD = 1 << 1, ASIMDDP = 1 << 20 }; /* Linux' HWCAP_ASIMD and HWCAP_ASIMDDP */
    memset(cpu, 0, sizeof *cpu);
    memcpy(cpu->model, "unknown", 8);
    model_name(cpu->model);
    const unsigned long has = getauxval(AT_HWCAP);
    cpu->neon = has & ASIMD;
    cpu->neondot = cpu->neon && (has & ASIMDDP);
    add_feature(cpu, cpu->neon, "asimd");
    add_feature(cpu, cpu->neondot, "asimddp");
}

#else

void woi_cpu_detect(woi_cpu *cpu)
{
    memset(cpu, 0, sizeof *cpu);
    memcpy(cpu->model, "unknown", 8);
}

#endif
