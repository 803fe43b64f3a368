/* wideout info: what is in a file. */
#include "cli.h"
#include "store/store.h"
#include "xc_options.h"
#include "xc_summary.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

typedef struct arguments {
    cli_common common;
    cli_xc xc;
} arguments;

static const cli_option options[] = {CLI_XC_OPTIONS(arguments, xc), {0}};

static json_t *shape_json(const uint64_t *shape, int n_dims)
{
    json_t *list = json_array();
    for (int i = 0; i < n_dims; i++) json_array_append_new(list, json_integer((json_int_t)shape[i]));
    return list;
}

/* "50,778 x 128", "scalar" */
static const char *shape_text(const uint64_t *shape, int n_dims, char text[256])
{
    size_t used = 0;
    text[0] = '\0';
    if (n_dims == 0) return "scalar";
    for (int i = 0; i < n_dims && used < 200; i++)
        used += (size_t)snprintf(text + used, 256 - used, "%s%s", i ? " x " : "", cli_number(shape[i]));
    return text;
}

/* ---- safetensors ------------------------------------------------------------------------------------------- */

static bool is_checksum(const char *key)
{
    return strncmp(key, "xxh3.", 5) == 0;
}

static int st_json(const woi_st *st)
{
    json_t *tensors = json_array(), *metadata = json_object();
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        json_array_append_new(tensors, json_pack("{s:s, s:s, s:o, s:I, s:I, s:s}", "name", t->name, "dtype",
                                                 woi_dtype_name(t->dtype), "shape", shape_json(t->shape, t->n_dims),
                                                 "bytes", (json_int_t)t->bytes, "offset", (json_int_t)t->offset, "file",
                                                 woi_st_shard_name(st, t->shard)));
    }
    void *cursor = NULL;
    const char *key, *value;
    while (woi_st_meta_next(st, &cursor, &key, &value)) json_object_set_new(metadata, key, json_string(value));
    const char *kind = woi_st_kind(st);
    return cli_print_json(json_pack("{s:s, s:s?, s:s, s:I, s:o, s:o}", "format", "safetensors", "kind", kind,
                                    "checksums", kind ? "ok" : "none", "shards", (json_int_t)woi_st_n_shards(st),
                                    "metadata", metadata, "tensors", tensors));
}

static void st_print(const char *path, const woi_st *st)
{
    const char *kind = woi_st_kind(st);
    size_t n = woi_st_n_tensors(st), n_shards = woi_st_n_shards(st);
    cli_print_text(stdout, path);
    printf(": safetensors");
    if (kind) {
        printf(", kind ");
        cli_print_text(stdout, kind);
    }
    if (n_shards > 1) printf(", %s shards", cli_number(n_shards));
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += woi_st_tensor(st, i)->bytes;
    printf("\n  %s tensors, %s; checksums: %s\n", cli_number(n), cli_bytes(bytes),
           kind ? "ok" : "none, not a file of wideout's");
    void *cursor = NULL;
    const char *key, *value;
    while (woi_st_meta_next(st, &cursor, &key, &value)) {
        if (is_checksum(key)) continue;
        printf("  ");
        cli_print_text(stdout, key);
        printf(": ");
        cli_print_text(stdout, value);
        printf("\n");
    }
    for (size_t i = 0; i < n; i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        char text[256];
        printf("  %-8s %20s %10s  ", woi_dtype_name(t->dtype), shape_text(t->shape, t->n_dims, text),
               cli_bytes(t->bytes));
        cli_print_text(stdout, t->name);
        if (n_shards > 1) {
            printf("  (");
            cli_print_text(stdout, woi_st_shard_name(st, t->shard));
            printf(")");
        }
        printf("\n");
    }
}

/* A log, ours or anyone's, is more than tensors: its labels must fit its queries. */
static wo_status check_log(const woi_st *st, wo_error *err)
{
    const char *kind = woi_st_kind(st);
    if (kind ? strcmp(kind, "log") != 0 : !woi_st_find(st, "queries") || !woi_st_find(st, "labels.indptr"))
        return WO_OK;
    woi_log log;
    wo_status status = woi_log_read(st, &log, err);
    if (!status) woi_log_close(&log);
    return status;
}

static int info_st(const char *path, const arguments *args)
{
    woi_st *st = NULL;
    wo_error err;
    if (woi_st_open(path, &st, &err)) return cli_fail(path, &err);
    wo_progress progress = cli_progress(&args->common);
    int code;
    if (woi_st_verify(st, &progress, &err) || check_log(st, &err)) {
        code = cli_fail(path, &err);
    } else {
        cli_progress_end();
        if (args->common.json) {
            code = st_json(st);
        } else {
            st_print(path, st);
            code = cli_end();
        }
    }
    woi_st_free(st);
    return code;
}

/* ---- npy --------------------------------------------------------------------------------------------------- */

static int info_npy(const char *path, const arguments *args)
{
    woi_npy npy;
    wo_error err;
    if (woi_npy_open(path, &npy, &err)) return cli_fail(path, &err);
    const char *order = npy.fortran ? "fortran" : "c", *endian = npy.swapped ? "big" : "little";
    int code;
    if (args->common.json) {
        code = cli_print_json(json_pack("{s:s, s:i, s:s, s:o, s:s, s:s}", "format", "npy", "version", npy.version,
                                        "dtype", woi_dtype_name(npy.dtype), "shape", shape_json(npy.shape, npy.n_dims),
                                        "order", order, "byte_order", endian));
    } else {
        char text[256];
        cli_print_text(stdout, path);
        printf(": npy version %d\n  %s, %s, %s order, %s-endian\n", npy.version, woi_dtype_name(npy.dtype),
               shape_text(npy.shape, npy.n_dims, text), npy.fortran ? "Fortran" : "C", endian);
        code = cli_end();
    }
    woi_npy_close(&npy);
    return code;
}

/* ---- text -------------------------------------------------------------------------------------------------- */

static int info_xc(const char *path, const arguments *args)
{
    woi_xc_options xc = cli_xc_options(&args->xc);
    wo_progress progress = cli_progress(&args->common);
    xc_summary summary;
    wo_error err;
    if (xc_summarise(path, &xc, &progress, &summary, &err)) return cli_fail(path, &err);
    if (args->common.json) return cli_print_json(xc_summary_json(&summary));
    xc_print_summary(path, &summary);
    return cli_end();
}

static int run(const cli_command *self, void *args, int n, char **rest)
{
    if (n != 1) return cli_usage(self, "expected one file, found %d", n);
    woi_file_kind kind;
    wo_error err;
    if (woi_file_recognise(rest[0], &kind, &err)) return cli_fail(rest[0], &err);
    switch (kind) {
    case WOI_FILE_SAFETENSORS:
    case WOI_FILE_SHARD_INDEX: return info_st(rest[0], args);
    case WOI_FILE_NPY: return info_npy(rest[0], args);
    case WOI_FILE_XC: return info_xc(rest[0], args);
    }
    return CLI_FAILED;
}

const cli_command cli_cmd_info = {
    "info",
    "[options] FILE",
    "what is in a file: kind, tensors, counts, checksums",
    "Recognises a file by its content, whatever its name, checks all of it and says what is in it:\n"
    "safetensors (one file, or the index JSON of a sharded model), npy, and extreme-classification\n"
    "text, plain or gzip, with a histogram of how often its labels occur. Files that wideout wrote\n"
    "are compared with their checksums.\n"
    "\n"
    "  wideout info model.safetensors\n"
    "  wideout info model.safetensors.index.json\n"
    "  wideout info train.txt.gz\n"
    "  wideout info --lenient --one-based=features rcv1.svm",
    options,
    sizeof(arguments),
    run,
};
