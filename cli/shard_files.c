/* The names of shards. */
#include "shard_files.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *cli_shard_file(const char *prefix, uint64_t number, uint64_t count)
{
    char *path = NULL;
    if (asprintf(&path, "%s-%05" PRIu64 "-of-%05" PRIu64 ".safetensors", prefix, number + 1, count) < 0) return NULL;
    return path;
}

/* Whether `name` is of this form: 0 is one digit, 9 one or more. */
static bool has_form(const char *name, const char *form)
{
    for (; *form; form++) {
        if (*form != '0' && *form != '9' && *form != *name) return false;
        if ((*form == '0' || *form == '9') && !isdigit((unsigned char)*name)) return false;
        name++;
        while (*form == '9' && isdigit((unsigned char)*name)) name++;
    }
    return !*name;
}

void cli_shard_sweep(const char *prefix)
{
    const char *slash = strrchr(prefix, '/'), *base = slash ? slash + 1 : prefix;
    char *folder = slash ? strndup(prefix, (size_t)(slash + 1 - prefix)) : strdup(".");
    DIR *list = folder ? opendir(folder) : NULL;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (strncmp(entry->d_name, base, strlen(base)) != 0) continue;
        const char *rest = entry->d_name + strlen(base);
        if (has_form(rest, "-00000-of-00000.safetensors.tmp.9.9") || has_form(rest, ".checkpoint.tmp.9.9"))
            unlinkat(dirfd(list), entry->d_name, 0);
    }
    if (list) closedir(list);
    free(folder);
}

int cli_shard_refuse_device(const cli_command *self, const char *prefix)
{
    struct stat about;
    if (stat(prefix, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) return CLI_OK;
    return cli_usage(self, "-o '%s' is no plain file, and files are written whose names begin so", prefix);
}
