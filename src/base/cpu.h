/* What the processor can do and the operating system lets it do. */
#ifndef WOI_BASE_CPU_H
#define WOI_BASE_CPU_H

#include <stdbool.h>

typedef struct woi_cpu {
    bool avx2;       /* AVX2, FMA and F16C, with YMM state saved by the OS */
    bool avx512;     /* AVX-512 F, BW, DQ and VL besides, with ZMM and mask state saved by the OS */
    bool avx512vnni; /* and VNNI */
    bool neon;       /* Arm's ASIMD */
    bool neondot;    /* and its dot products of bytes, ASIMDDP */
    char model[64];  /* the processor's name, trimmed; "unknown" where there is none */
    char features[128];
} woi_cpu;

/* Asks CPUID and XCR0 on x86-64, the kernel's AT_HWCAP on 64-bit Arm. On other processors every flag is false. */
void woi_cpu_detect(woi_cpu *cpu);

#endif
