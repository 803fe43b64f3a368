/* An output is never an input, and an input is given once. */
#include "inputs.h"

#include "store/store.h"

#include <stdlib.h>
#include <string.h>

/* Whether `output` is one of the files that the JSON at `path` lists as the shards of a model. What cannot be opened
 * is no matter here: its command says so when it reads it. */
static bool is_shard(const char *output, const char *path)
{
    woi_file_kind kind;
    woi_st *st = NULL;
    if (woi_file_recognise(path, &kind, NULL) || kind != WOI_FILE_SHARD_INDEX || woi_st_open(path, &st, NULL))
        return false;
    const char *slash = strrchr(path, '/');
    const int folder = slash ? (int)(slash - path) + 1 : 0;
    bool found = false;
    for (size_t i = 0; !found && i < woi_st_n_shards(st); i++) {
        char *shard = NULL;
        if (asprintf(&shard, "%.*s%s", folder, path, woi_st_shard_name(st, i)) < 0) break;
        found = cli_same_file(output, shard);
        free(shard);
    }
    woi_st_free(st);
    return found;
}

bool cli_is_part(const char *output, const char *input)
{
    return cli_same_file(output, input) || is_shard(output, input);
}

static int fail_memory(void)
{
    wo_error err;
    cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
    return cli_fail(NULL, &err);
}

int cli_refuse_inputs(const cli_command *self, const char *output, const char *const *inputs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!inputs[i]) continue;
        const char *input = strcmp(inputs[i], "-") == 0 ? "/dev/stdin" : inputs[i];
        if (cli_same_file(output, inputs[i]) || cli_is_part(output, input))
            return cli_usage(self, "-o '%s' would replace what is read", output);
    }
    return CLI_OK;
}

int cli_refuse_twice(const cli_command *self, const char *option, const cli_texts *names)
{
    for (size_t i = 1; i < names->n; i++)
        for (size_t j = 0; j < i; j++)
            if (cli_same_file(names->of[i], names->of[j]))
                return cli_usage(self,
                                 "%s '%s' is given twice: its queries would count twice, and be held out from "
                                 "themselves",
                                 option, names->of[i]);
    return CLI_OK;
}

int cli_refuse_inputs_in(const cli_command *self, const char *folder, const char *const *names,
                         const char *const *inputs, size_t n)
{
    int code = CLI_OK;
    const char *joint = *folder && folder[strlen(folder) - 1] == '/' ? "" : "/";
    for (; !code && *names; names++) {
        char *path = NULL;
        if (asprintf(&path, "%s%s%s", folder, joint, *names) < 0) return fail_memory();
        code = cli_refuse_inputs(self, path, inputs, n);
        free(path);
    }
    return code;
}
