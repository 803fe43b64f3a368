/* Joules that the processor's packages and memory took: RAPL counters, read through powercap.
 *
 *   /sys/class/powercap/intel-rapl:0/      name "package-0"    energy_uj, max_energy_range_uj
 *   /sys/class/powercap/intel-rapl:0:1/    name "dram"         the same
 *
 * Domains named package-* and dram are added up; core and uncore are parts of a package, psys holds everything once
 * more. AMD's processors use the same names. The environment variable WIDEOUT_POWERCAP names another folder. A counter
 * goes back to 0 beyond its range; readings further apart than a whole range (40 minutes or more) would lose one. */
#ifndef WOI_JUDGE_ENERGY_H
#define WOI_JUDGE_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

enum { WOI_MAX_DOMAINS = 64 };

typedef struct woi_energy {
    int n; /* domains; 0: not measured */
    char folder[256];
    struct {
        char name[32];        /* "intel-rapl:0:1" */
        uint64_t last, range; /* microjoules */
    } domains[WOI_MAX_DOMAINS];
    double joules;    /* since woi_energy_open */
    char reason[160]; /* why nothing is measured: one sentence, or empty */
} woi_energy;

/* Finds the domains and takes the first reading. False, with the reason, where a counter is absent or cannot be read:
 * a part of the energy would be taken for all of it. */
bool woi_energy_open(woi_energy *energy);

/* Joules since woi_energy_open. False, with the reason, when a counter can no longer be read; n is 0 then. */
bool woi_energy_read(woi_energy *energy, double *joules);

#endif
