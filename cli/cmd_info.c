/* wideout info: what is in a file. */
#include "cli.h"
#include "curve_text.h"
#include "index_text.h"
#include "layer_options.h"
#include "model_text.h"
#include "names_summary.h"
#include "store/log.h"
#include "store/store.h"
#include "text/names_text.h"
#include "text/table.h"
#include "text/unpack.h"
#include "text/xc.h"
#include "xc_options.h"
#include "xc_summary.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct arguments {
    cli_common common;
    cli_xc xc;
    cli_layer layer;
    bool trace, curve;
} arguments;

static const cli_option options[] = {
    {"trace", 0, CLI_FLAG, offsetof(arguments, trace), NULL, "of an index: how its learning went, as CSV", false},
    {"curve", 0, CLI_FLAG, offsetof(arguments, curve), NULL, "of a tuned index: all that was tried, as CSV", false},
    CLI_LAYER_OPTIONS(arguments, layer, "of an index without rows: its layer"),
    CLI_XC_OPTIONS(arguments, xc),
    {0},
};

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

static int st_json(const woi_st *st, const cli_index *index, const wo_curve *curve)
{
    json_t *tensors = json_array(), *metadata = json_object();
    for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
        const woi_tensor *t = woi_st_tensor(st, i);
        json_array_append_new(tensors, json_pack("{s:s, s:s, s:o, s:I, s:I, s:o}", "name", t->name, "dtype",
                                                 woi_dtype_name(t->dtype), "shape", shape_json(t->shape, t->n_dims),
                                                 "bytes", (json_int_t)t->bytes, "offset", (json_int_t)t->offset, "file",
                                                 cli_json_text(woi_st_shard_name(st, t->shard))));
    }
    void *cursor = NULL;
    const char *key, *value;
    while (woi_st_meta_next(st, &cursor, &key, &value)) json_object_set_new(metadata, key, json_string(value));
    const char *kind = woi_st_kind(st);
    return cli_print_json(json_pack("{s:s, s:s?, s:s, s:I, s:o*, s:o*, s:o, s:o}", "format", "safetensors", "kind",
                                    kind, "checksums", kind ? "ok" : "none", "shards", (json_int_t)woi_st_n_shards(st),
                                    "index", index ? cli_index_json(index) : NULL, "tuning",
                                    curve ? cli_curve_json(curve) : NULL, "metadata", metadata, "tensors", tensors));
}

static void st_print(const char *path, const woi_st *st, const cli_index *index, const wo_curve *curve)
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
    if (index) printf("%s", cli_index_kind(index));
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += woi_st_tensor(st, i)->bytes;
    printf("\n  %s, %s; checksums: %s\n", cli_count(n, "tensor"), cli_bytes(bytes),
           kind ? "ok" : "none, not a file of wideout's");
    if (index) cli_index_print(index, "  ");
    if (curve) cli_curve_print(curve, "  ");
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
        cli_print_tensor(woi_dtype_name(t->dtype), shape_text(t->shape, t->n_dims, text), cli_bytes(t->bytes));
        cli_print_text(stdout, t->name);
        if (n_shards > 1) {
            printf("  (");
            cli_print_text(stdout, woi_st_shard_name(st, t->shard));
            printf(")");
        }
        printf("\n");
    }
}

/* ---- The trace of an index --------------------------------------------------------------------------------- */

static json_t *trace_json(const wo_trace *trace)
{
    json_t *columns = json_array(), *rows = json_array();
    for (size_t c = 0; c < trace->columns; c++) json_array_append_new(columns, json_string(trace->names[c]));
    for (size_t r = 0; r < trace->rows; r++) {
        json_t *row = json_array();
        for (size_t c = 0; c < trace->columns; c++) {
            const double value = trace->values[r * trace->columns + c];
            json_array_append_new(row, isfinite(value) ? json_real(value) : json_null());
        }
        json_array_append_new(rows, row);
    }
    return json_pack("{s:o, s:o}", "columns", columns, "rows", rows);
}

/* A number that is not there (the loss before the first step) is an empty field. */
static void trace_csv(const wo_trace *trace)
{
    for (size_t c = 0; c < trace->columns; c++) printf("%s%s", c ? "," : "", trace->names[c]);
    printf("\n");
    for (size_t i = 0; i < trace->rows * trace->columns; i++) {
        const bool last = (i + 1) % trace->columns == 0;
        if (isfinite(trace->values[i])) printf("%.9g", trace->values[i]);
        putchar(last ? '\n' : ',');
    }
}

static int print_trace(const char *path, const wo_index *index, bool json)
{
    wo_trace trace = {.struct_size = sizeof trace};
    wo_error err;
    if (!index || !wo_index_trace(index, &trace)) {
        cli_set_error(&err, WO_ERR_ARGUMENT,
                      index ? "has no trace: its method does not learn, or kept none"
                            : "is not an index: nothing else has a trace");
        return cli_fail(path, &err);
    }
    if (json) return cli_print_json(trace_json(&trace));
    trace_csv(&trace);
    return cli_end();
}

static int print_curve(const char *path, const wo_index *index, bool json)
{
    wo_curve curve = {.struct_size = sizeof curve};
    wo_error err;
    if (!index || !wo_index_curve(index, &curve)) {
        cli_set_error(&err, WO_ERR_ARGUMENT,
                      index ? "has no curve: it was not tuned" : "is not an index: nothing else has a curve");
        return cli_fail(path, &err);
    }
    if (json) return cli_print_json(cli_curve_json(&curve));
    cli_curve_csv(&curve);
    return cli_end();
}

/* ---- Files of ours ----------------------------------------------------------------------------------------- */

/* A log, ours or anyone's, is more than tensors: its labels must fit its queries. */
static wo_status check_log(const woi_st *st, wo_error *err)
{
    const char *kind = woi_st_kind(st);
    if (kind ? strcmp(kind, "log") != 0
             : !woi_st_find(st, "queries") || !(woi_st_find(st, "labels.indptr") || woi_st_find(st, "labels")))
        return WO_OK;
    woi_log log;
    wo_status status = woi_log_read(st, &log, err);
    if (!status) woi_log_close(&log);
    return status;
}

/* An index is opened as a search would open it. *index stays NULL for other files, and for an index without rows
 * whose layer was not given: its tensors and its metadata are then all there is to tell. */
static wo_status check_index(const char *path, const woi_st *st, const wo_layer *layer, bool needed, wo_index **index,
                             wo_error *err)
{
    const char *kind = woi_st_kind(st), *weights = woi_st_meta(st, "index.weights");
    if (!kind || strcmp(kind, "index") != 0) return WO_OK;
    if (!layer && !needed && weights && strcmp(weights, "none") == 0) return WO_OK;
    const wo_open_options o = {.struct_size = sizeof o, .layer = layer};
    return wo_index_open(path, &o, index, err);
}

static int info_st(const cli_command *self, const char *path, const arguments *args)
{
    woi_st *st = NULL;
    wo_layer *layer = NULL;
    wo_index *index = NULL;
    cli_index info;
    wo_error err;
    if (args->layer.path && cli_layer_open(self, &args->layer, &layer)) return CLI_FAILED;
    if (woi_st_open(path, &st, &err)) {
        wo_layer_free(layer);
        return cli_fail(path, &err);
    }
    wo_progress progress = cli_progress(&args->common);
    int code;
    if (woi_st_verify(st, &progress, &err) || check_log(st, &err) ||
        check_index(path, st, layer, args->trace || args->curve, &index, &err)) {
        code = err.about == WO_ABOUT_NONE
                   ? cli_fail(path, &err)
                   : cli_blame(self, &(cli_files){.layer = args->layer.path, .index = path, .log = path}, &err);
    } else {
        cli_progress_end();
        wo_curve curve = {.struct_size = sizeof curve};
        const bool tuned = index && wo_index_curve(index, &curve);
        if (index) info = cli_index_of(index);
        if (args->trace) {
            code = print_trace(path, index, args->common.json);
        } else if (args->curve) {
            code = print_curve(path, index, args->common.json);
        } else if (args->common.json) {
            code = st_json(st, index ? &info : NULL, tuned ? &curve : NULL);
        } else {
            st_print(path, st, index ? &info : NULL, tuned ? &curve : NULL);
            code = cli_end();
        }
    }
    wo_index_free(index);
    wo_layer_free(layer);
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

/* ---- journals ---------------------------------------------------------------------------------------------- */

static int info_journal(const char *path, const arguments *args)
{
    wo_log *log = NULL;
    wo_error err;
    if (wo_log_open(path, &log, &err)) return cli_fail(path, &err);
    const int64_t n_labels = log->indptr[log->n];
    int code;
    if (args->common.json) {
        code = cli_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I}", "format", "journal", "queries", (json_int_t)log->n,
                                        "d", (json_int_t)log->d, "labels", (json_int_t)n_labels, "torn_bytes",
                                        (json_int_t)log->torn_bytes));
    } else {
        cli_print_text(stdout, path);
        printf(": journal, %s of %zu numbers, %s, checksums ok\n", cli_count(log->n, "query"), log->d,
               cli_count((uint64_t)n_labels, "label"));
        if (log->torn_bytes)
            printf("  its last %s are half a record, which is left out\n", cli_count(log->torn_bytes, "byte"));
        code = cli_end();
    }
    wo_log_free(log);
    return code;
}

/* ---- text -------------------------------------------------------------------------------------------------- */

static int info_xc(const char *path, const arguments *args)
{
    woi_xc_options xc = cli_xc_options(&args->xc);
    wo_progress progress = cli_progress(&args->common);
    xc_summary summary;
    wo_error err;
    const bool plain = !args->xc.lenient && !args->xc.one_based;
    const char between = plain ? woi_table_look(path) : 0;
    if (between) {
        cli_set_error(&err, WO_ERR_UNSUPPORTED,
                      "looks like a table, with %s between its values: numbers are read from .npy, which numpy.save "
                      "writes of what numpy.loadtxt reads, and names from lines of their own",
                      between == '\t'  ? "tabs"
                      : between == ';' ? "semicolons"
                                       : "commas");
        return cli_fail(path, &err);
    }
    if (plain && woi_names_look(path)) return cli_names_info(path, args->common.json);
    if (xc_summarise(path, &xc, &progress, &summary, &err)) return cli_fail(path, &err);
    if (args->common.json) return cli_print_json(xc_summary_json(&summary));
    xc_print_summary(path, &summary);
    return cli_end();
}

/* Whether what is packed begins as no text does: safetensors and .npy have NUL bytes there. */
static bool packs_no_text(const char *path)
{
    char head[16];
    size_t n = 0;
    woi_unpack *unpack = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool found = fd >= 0 && !woi_unpack_open(fd, &unpack, NULL) &&
                       !woi_unpack_read(unpack, head, sizeof head, &n, NULL) && memchr(head, 0, n);
    woi_unpack_free(unpack);
    return found;
}

static int info_gzip(const char *path, const arguments *args)
{
    wo_error err;
    if (!packs_no_text(path)) return info_xc(path, args);
    cli_set_error(&err, WO_ERR_UNSUPPORTED,
                  "is compressed with gzip, and no text inside: unpack it first with gzip -d");
    return cli_fail(path, &err);
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n != 1) return cli_usage(self, "expected one file, found %d", n);
    if (cli_layer_refuse_parts(self, &args->layer)) return CLI_USAGE;
    woi_file_kind kind;
    wo_error err;
    if (woi_file_recognise(rest[0], &kind, &err)) return cli_fail(rest[0], &err);
    if (args->trace && args->curve) return cli_usage(self, "--trace and --curve are two tables: give one");
    if (args->trace && kind != WOI_FILE_SAFETENSORS) return print_trace(rest[0], NULL, false);
    if (args->curve && kind != WOI_FILE_SAFETENSORS) return print_curve(rest[0], NULL, false);
    switch (kind) {
    case WOI_FILE_SAFETENSORS:
    case WOI_FILE_SHARD_INDEX: return info_st(self, rest[0], args);
    case WOI_FILE_NPY: return info_npy(rest[0], args);
    case WOI_FILE_GGUF: return cli_gguf_info(rest[0], args->common.json);
    case WOI_FILE_JOURNAL: return info_journal(rest[0], args);
    case WOI_FILE_FASTTEXT: return cli_fasttext_info(rest[0], args->common.json);
    case WOI_FILE_XC: return info_xc(rest[0], args);
    case WOI_FILE_GZIP: return info_gzip(rest[0], args);
    }
    return CLI_FAILED;
}

const cli_command cli_cmd_info = {
    "info",
    "[options] FILE",
    "what is in a file: kind, tensors, counts, checksums",
    "Recognises a file by its content, whatever its name, checks all of it and says what is in it:\n"
    "safetensors (one file, or the index JSON of a sharded model), journals, npy, GGUF, fastText's\n"
    "supervised models, extreme-classification text, plain or gzip, with a histogram of how often its\n"
    "labels occur, and names, one a line, as in labels.txt of 'wideout data'. Files that wideout wrote\n"
    "are compared with their checksums. Of an index it prints the method, its options and what the cells\n"
    "hold; with --trace, the numbers that were taken while its hyperplanes were learned. Of a tuned index\n"
    "it shows what was best for its time; with --curve, all that was tried.\n"
    "\n"
    "  wideout info model.safetensors\n"
    "  wideout info model.safetensors.index.json\n"
    "  wideout info model.gguf\n"
    "  wideout info train.txt.gz\n"
    "  wideout info --trace index.safetensors > trace.csv\n"
    "  wideout info --lenient --one-based=features rcv1.svm",
    options,
    sizeof(arguments),
    run,
};
