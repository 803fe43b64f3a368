/* Names of classes, from text: see class_names.h. */
#include "class_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int cli_names_read(const char *path, size_t m, woi_names *names)
{
    wo_error err;
    if (woi_names_read(path, names, &err)) return cli_fail(path, &err);
    if ((size_t)names->n == m) return CLI_OK;
    cli_set_error(&err, WO_ERR_FORMAT, "has %" PRId32 " name%s, one a line, but there are %zu classes", names->n,
                  names->n == 1 ? "" : "s", m);
    woi_names_free(names);
    return cli_fail(path, &err);
}

int cli_names_give(const char *path, wo_layer *layer)
{
    woi_names names = {0};
    wo_error err;
    wo_layer_info about = {.struct_size = sizeof about};
    wo_layer_describe(layer, &about);
    int code = cli_names_read(path, about.m_whole, &names); /* a shard takes those of all */
    if (code) return code;
    /* The library takes terminated strings: the lines one after the other, with an end each. */
    const size_t n = (size_t)names.n, bytes = (size_t)names.indptr[names.n];
    char *text = malloc(bytes + n), *to = text;
    const char **list = malloc(n * sizeof *list);
    if (!text || !list) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory: %zu names", n);
        code = cli_fail(path, &err);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t own = woi_names_bytes(&names, (int32_t)i);
        if (memchr(woi_names_get(&names, (int32_t)i), '\0', own)) {
            cli_set_error(&err, WO_ERR_FORMAT, "line %zu has a NUL byte, which no name has", i + 1);
            code = cli_fail(path, &err);
            goto done;
        }
        memcpy(to, woi_names_get(&names, (int32_t)i), own);
        to[own] = '\0';
        list[i] = to;
        to += own + 1;
    }
    if (wo_layer_set_names(layer, list, n, &err)) code = cli_fail(path, &err);
done:
    free(list);
    free(text);
    woi_names_free(&names);
    return code;
}
