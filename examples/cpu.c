/* Which instruction set will wideout use on this machine?
 *
 *   cc cpu.c $(pkg-config --cflags --libs wideout) && ./a.out */
#include <stdio.h>
#include <wideout.h>

int main(void)
{
    wo_cpu_info info = {.struct_size = sizeof info};
    wo_error err;
    if (wo_cpu_query(&info, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("wideout %s on %s runs %s: %s\n", wo_version(), info.model, info.level, info.reason);
    const char *name, *path;
    for (size_t i = 0; wo_cpu_kernel(i, &name, &path); i++) printf("  %-12s %s\n", name, path);
    return 0;
}
