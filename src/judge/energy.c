/* RAPL counters through powercap. Nothing here is an estimate: what cannot be read is not measured. */
#include "judge/energy.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "intel-rapl:";

__attribute__((format(printf, 2, 3))) static bool give_up(woi_energy *energy, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(energy->reason, sizeof energy->reason, format, args);
    va_end(args);
    energy->n = 0;
    return false;
}

/* The first line of a domain's file; false, with errno, where there is none. */
static bool read_line(const woi_energy *energy, const char *domain, const char *file, char *line, int line_bytes)
{
    char path[384];
    snprintf(path, sizeof path, "%s/%s/%s", energy->folder, domain, file);
    FILE *in = fopen(path, "re");
    if (!in) return false;
    errno = 0;
    const bool read = fgets(line, line_bytes, in) != NULL;
    const int why = errno ? errno : ENODATA;
    fclose(in);
    errno = why;
    if (read) line[strcspn(line, "\n")] = '\0';
    return read;
}

static bool read_counter(woi_energy *energy, const char *domain, const char *file, uint64_t *value)
{
    char line[64], reason[WOI_ERRNO_BYTES], *end;
    if (!read_line(energy, domain, file, line, sizeof line))
        return give_up(energy, "%s/%s cannot be read: %s%s", domain, file, woi_errno_text(errno, reason),
                       errno == EACCES ? " (needs root)" : "");
    errno = 0;
    *value = strtoull(line, &end, 10);
    if (line[0] < '0' || line[0] > '9' || *end || errno)
        return give_up(energy, "%s/%s does not hold a number", domain, file);
    return true;
}

/* Whether a folder of powercap is a domain that counts. */
static bool counts(const woi_energy *energy, const char *domain)
{
    char name[64];
    return strncmp(domain, prefix, sizeof prefix - 1) == 0 && read_line(energy, domain, "name", name, sizeof name) &&
           (strncmp(name, "package", 7) == 0 || strcmp(name, "dram") == 0);
}

bool woi_energy_open(woi_energy *energy)
{
    *energy = (woi_energy){0};
    const char *given = getenv("WIDEOUT_POWERCAP");
    snprintf(energy->folder, sizeof energy->folder, "%s", given && *given ? given : "/sys/class/powercap");
    DIR *folder = opendir(energy->folder);
    char reason[WOI_ERRNO_BYTES];
    if (!folder) return give_up(energy, "%.80s cannot be opened: %s", energy->folder, woi_errno_text(errno, reason));
    bool fine = true;
    int n = 0;
    for (const struct dirent *entry; fine && (entry = readdir(folder));) {
        if (!counts(energy, entry->d_name)) continue;
        if (n == WOI_MAX_DOMAINS || strlen(entry->d_name) >= sizeof energy->domains[0].name) {
            fine = give_up(energy, "more or longer domains than expected in %.80s", energy->folder);
            break;
        }
        memcpy(energy->domains[n].name, entry->d_name, strlen(entry->d_name) + 1);
        fine = read_counter(energy, entry->d_name, "max_energy_range_uj", &energy->domains[n].range) &&
               read_counter(energy, entry->d_name, "energy_uj", &energy->domains[n].last);
        n++;
    }
    closedir(folder);
    if (fine && n == 0) fine = give_up(energy, "no RAPL package in %.80s", energy->folder);
    if (fine) energy->n = n;
    return fine;
}

bool woi_energy_read(woi_energy *energy, double *joules)
{
    for (int i = 0; i < energy->n; i++) {
        uint64_t now = 0, last = energy->domains[i].last, range = energy->domains[i].range;
        if (!read_counter(energy, energy->domains[i].name, "energy_uj", &now)) return false;
        energy->joules += 1e-6 * (double)(now >= last ? now - last : now + (range > last ? range - last : 0));
        energy->domains[i].last = now;
    }
    *joules = energy->joules;
    return energy->n > 0;
}
