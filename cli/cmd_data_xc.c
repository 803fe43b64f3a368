/* wideout data xc: check, convert, join and split files of the extreme-classification format. */
#include "cli.h"
#include "inputs.h"
#include "outputs.h"
#include "xc_options.h"
#include "xc_summary.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct arguments {
    cli_common common;
    cli_xc xc;
    const char *output;
    bool split_files;
} arguments;

static const cli_option options[] = {
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "FILE", "write the result here", false},
    {"split-files", 0, CLI_FLAG, offsetof(arguments, split_files), NULL,
     "write the two-file form: FILE_X_Xf.txt and FILE_X_Y.txt", false},
    CLI_XC_OPTIONS(arguments, xc),
    {0},
};

/* ---- Check ------------------------------------------------------------------------------------------------- */

static int check(const char *path, const arguments *args)
{
    woi_xc_options xc = cli_xc_options(&args->xc);
    wo_progress progress = cli_progress(&args->common);
    xc_summary s;
    wo_error err;
    if (xc_summarise(path, &xc, &progress, &s, &err)) return cli_fail(path, &err);
    if (args->common.json) return cli_print_json(xc_summary_json(&s));
    cli_print_text(stdout, path);
    printf(": ok, %s, %s %s", cli_count(s.shape.n, "row"), cli_number(s.shape.n_features),
           s.shape.matrix ? "columns" : "features");
    if (!s.shape.matrix) printf(", %s", cli_count(s.shape.n_labels, "label"));
    printf("; read %s in %.3f s, %.0f MB/s\n", cli_bytes(s.text_bytes), s.seconds,
           s.seconds > 0 ? (double)s.text_bytes / 1e6 / s.seconds : 0.0);
    return cli_end();
}

/* ---- Join and split ---------------------------------------------------------------------------------------- */

/* One or two files in, one or two out, row by row. */
typedef struct conversion {
    const char *in[2]; /* in[1]: the labels of the two-file form, or NULL */
    cli_outputs out;   /* the second: the same for the result */
    woi_xc *reader[2];
    uint64_t n, n_features, n_labels;
    woi_xc_options options;
    wo_progress progress;
} conversion;

/* Opens one input and learns its counts, by reading it once where it has no header. */
static wo_status open_input(conversion *c, int i, woi_xc_shape *shape)
{
    c->out.at = c->in[i];
    woi_xc_options xc = c->options;
    /* The columns of the second file are labels. */
    if (i == 1 && xc.base == WOI_XC_ONE_BASED_FEATURES) xc.base = WOI_XC_ZERO_BASED;
    wo_status status = woi_xc_open(c->in[i], &xc, &c->reader[i], &c->out.err);
    if (status) return status;
    *shape = *woi_xc_get_shape(c->reader[i]);
    if (shape->has_header) return WO_OK;
    xc_summary summary;
    status = xc_summarise_reader(c->reader[i], &c->progress, &summary, &c->out.err);
    if (!status) status = woi_xc_rewind(c->reader[i], &c->out.err);
    *shape = summary.shape;
    return status;
}

static wo_status open_inputs(conversion *c)
{
    woi_xc_shape x, y;
    wo_status status = open_input(c, 0, &x);
    if (status) return status;
    c->n = x.n;
    c->n_features = x.n_features;
    c->n_labels = x.n_labels;
    if (!c->in[1])
        return x.matrix
                   ? cli_outputs_fail(&c->out, c->in[0], "is one half of the two-file form: give both, features first")
                   : WO_OK;
    if ((status = open_input(c, 1, &y))) return status;
    for (int i = 0; i < 2; i++)
        if (!(i ? y : x).matrix)
            return cli_outputs_fail(&c->out, c->in[i], "is not of the two-file form: expected a header 'rows cols'");
    if (x.n != y.n)
        return cli_outputs_fail(&c->out, c->in[1], "has %" PRIu64 " rows, '%s' has %" PRIu64, y.n, c->in[0], x.n);
    c->n_labels = y.n_features;
    return WO_OK;
}

static wo_status open_outputs(conversion *c)
{
    const uint64_t one_file[] = {c->n, c->n_features, c->n_labels}, features[] = {c->n, c->n_features},
                   labels[] = {c->n, c->n_labels};
    for (int i = 0; i < c->out.n; i++) {
        wo_status status = cli_outputs_create(&c->out, i);
        if (!status)
            status = c->out.n == 1 ? woi_xc_write_header(c->out.file[0], one_file, 3, &c->out.err)
                                   : woi_xc_write_header(c->out.file[i], i ? labels : features, 2, &c->out.err);
        if (status) return status;
    }
    return WO_OK;
}

/* A row of the label matrix: columns are the labels, values must say no more than "yes". */
static wo_status labels_from_columns(conversion *c, uint64_t row_number, const woi_xc_row *columns, woi_xc_row *row)
{
    for (size_t i = 0; i < columns->n_features; i++)
        if (columns->values[i] != 1 && !c->options.lenient)
            return cli_outputs_fail(
                &c->out, c->in[1],
                "row %" PRIu64 ": label %" PRId32 " has the value %g, expected 1 (--lenient drops values)", row_number,
                columns->features[i] + (c->options.base == WOI_XC_ONE_BASED), (double)columns->values[i]);
    row->labels = columns->features;
    row->n_labels = columns->n_features;
    return WO_OK;
}

static wo_status copy_rows(conversion *c)
{
    for (uint64_t n = 0;; n++) {
        woi_xc_row row, columns;
        bool more, more_labels;
        c->out.at = c->in[0];
        wo_status status = woi_xc_next(c->reader[0], &row, &more, &c->out.err);
        if (status) return status;
        if (c->reader[1]) {
            c->out.at = c->in[1];
            if ((status = woi_xc_next(c->reader[1], &columns, &more_labels, &c->out.err))) return status;
            if ((status = labels_from_columns(c, n + 1, &columns, &row))) return status;
        }
        if (!more) return WO_OK;
        c->out.at = c->out.path[0];
        if (c->out.n == 2) {
            if ((status = woi_xc_write_features(c->out.file[0], &row, &c->out.err))) return status;
            c->out.at = c->out.path[1];
            status = woi_xc_write_labels(c->out.file[1], &row, &c->out.err);
        } else {
            status = woi_xc_write_row(c->out.file[0], &row, &c->out.err);
        }
        if (status) return status;
        if (n % 4096 == 0) {
            uint64_t done, total;
            woi_xc_position(c->reader[0], &done, &total);
            if (c->progress.fn(c->progress.ctx, "converting", done, total))
                return cli_outputs_fail(&c->out, c->in[0], "stopped at row %" PRIu64 ", nothing was written", n + 1);
        }
    }
}

static int report(const conversion *c, const cli_common *common)
{
    if (common->json)
        return cli_print_json(json_pack("{s:I, s:I, s:I, s:[o, o*]}", "rows", (json_int_t)c->n, "features",
                                        (json_int_t)c->n_features, "labels", (json_int_t)c->n_labels, "files",
                                        cli_json_text(c->out.path[0]),
                                        c->out.n > 1 ? cli_json_text(c->out.path[1]) : NULL));
    printf("wrote ");
    for (int i = 0; i < c->out.n; i++) {
        if (i) printf(" and ");
        cli_print_text(stdout, c->out.path[i]);
    }
    printf(": %s, %s, %s\n", cli_count(c->n, "row"), cli_count(c->n_features, "feature"),
           cli_count(c->n_labels, "label"));
    return cli_end();
}

/* To FILE; or, split, to PREFIX_X_Xf.txt and PREFIX_X_Y.txt, the names of the extreme-classification repository; inside
 * a folder "DIR/" without the underscore. */
static wo_status name_outputs(conversion *c, const char *given, bool split)
{
    static const char *const endings[] = {"X_Xf.txt", "X_Y.txt"};
    struct stat about;
    const bool folder = stat(given, &about) == 0 && S_ISDIR(about.st_mode);
    const size_t length = strlen(given);
    const char *joint = length && given[length - 1] == '/' ? "" : folder ? "/" : "_";
    wo_status status = WO_OK;
    for (int i = 0; !status && i < 1 + split; i++)
        status = split ? cli_outputs_name(&c->out, given, joint, endings[i]) : cli_outputs_name(&c->out, given, "", "");
    return status;
}

static int convert(const cli_command *self, conversion *c, const arguments *args)
{
    int code = CLI_OK;
    c->progress = cli_progress(&args->common);
    wo_status status = name_outputs(c, args->output, args->split_files);
    for (int i = 0; !status && !code && i < c->out.n; i++) {
        code = cli_refuse_inputs(self, c->out.path[i], c->in, 2);
        if (!code && cli_output_try(c->out.path[i])) code = CLI_FAILED;
    }
    if (code) goto done;
    if (!status) status = open_inputs(c);
    if (!status) status = open_outputs(c);
    if (!status) status = copy_rows(c);
    if (!status) status = cli_outputs_commit(&c->out);
    cli_progress_end();
    code = status ? cli_fail(c->out.at, &c->out.err) : report(c, &args->common);
done:
    for (int i = 0; i < 2; i++) woi_xc_free(c->reader[i]);
    cli_outputs_free(&c->out);
    return code;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n < 1 || n > 2) return cli_usage(self, "expected one or two files, found %d", n);
    if (n == 2 && args->split_files) return cli_usage(self, "--split-files takes one file, found two");
    if (n == 2 && !args->output) return cli_usage(self, "two files are joined into one: name it with -o FILE");
    if (args->split_files && !args->output)
        return cli_usage(self, "--split-files needs -o, the start of the two names");
    if (!args->output) return check(rest[0], args);
    conversion c = {.in = {rest[0], n == 2 ? rest[1] : NULL}, .options = cli_xc_options(&args->xc)};
    return convert(self, &c, args);
}

const cli_command cli_cmd_data_xc = {
    "data xc",
    "[options] FILE [LABELS]",
    "check, clean, join or split extreme-classification text",
    "The text format of the extreme-classification repository, plain or gzip: a header 'N F L', then a\n"
    "row a line, 'l1,l2 f:v f:v', ids from 0; a row without labels begins with a space. The newer form\n"
    "has two files, features and labels, each with a header 'rows cols' and rows 'c:v c:v'.\n"
    "\n"
    "  wideout data xc train.txt                             check every byte\n"
    "  wideout data xc trn_X_Xf.txt trn_X_Y.txt -o train.txt join the two-file form\n"
    "  wideout data xc train.txt --split-files -o trn        the reverse\n"
    "  wideout data xc --lenient --one-based=features a.svm -o a.txt\n"
    "                                                        make a canonical file of a LIBSVM copy\n"
    "\n"
    "Reading is strict: a wrong count, an id out of order, a double space is an error. --lenient accepts\n"
    "what the dialects do: no header, CRLF, tabs and extra spaces, ids unsorted or repeated (sorted;\n"
    "values of the same feature are added), features without a value (taken as 1), blank lines.",
    options,
    sizeof(arguments),
    run,
};
