/* wideout data split: a validation file for sets that come without one. */
#include "cli.h"
#include "inputs.h"
#include "net/net.h"
#include "outputs.h"
#include "xc_options.h"
#include "xc_summary.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

typedef struct arguments {
    cli_common common;
    cli_xc xc;
    const char *output;
    double valid;
    bool last;
} arguments;

static const cli_option options[] = {
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "DIR", "the folder to write to, made where it is missing",
     false},
    {"valid", 0, CLI_REAL, offsetof(arguments, valid), "0-1", "share of the rows that go to valid.txt (default: 0.05)",
     false},
    {"last", 0, CLI_FLAG, offsetof(arguments, last), NULL, "the last rows go to valid.txt: for files in order of time",
     false},
    CLI_XC_OPTIONS(arguments, xc),
    {0},
};

enum { TRAIN, VALID, ROWS_PER_REPORT = 4096 };
static const char *const names[] = {"train.txt", "valid.txt", NULL};

typedef struct splitting {
    const char *path;
    woi_xc_options options;
    uint64_t seed;
    double valid;
    bool last;
    wo_progress progress;
    woi_xc_shape shape;
    uint64_t n[2]; /* rows of each part */
    cli_outputs outputs;
} splitting;

/* By number alone, whatever is in the row. */
static int part_of(const splitting *s, uint64_t row)
{
    if (!s->last) return woi_split_row(s->seed, row, s->valid);
    return row >= s->shape.n - (uint64_t)llround(s->valid * (double)s->shape.n) ? VALID : TRAIN;
}

/* The rows that each part will have. */
static wo_status count_rows(splitting *s)
{
    if (s->shape.matrix)
        return cli_outputs_fail(&s->outputs, s->path,
                                "is one half of the two-file form: join it with 'wideout data xc' first");
    for (uint64_t i = 0; i < s->shape.n; i++) s->n[part_of(s, i)]++;
    for (int part = TRAIN; part <= VALID; part++)
        if (s->n[part] == 0)
            return cli_outputs_fail(&s->outputs, s->path, "with --valid %g none of its %" PRIu64 " rows goes to %s",
                                    s->valid, s->shape.n, names[part]);
    return WO_OK;
}

static wo_status write_rows(splitting *s, woi_xc *reader)
{
    cli_outputs *o = &s->outputs;
    for (uint64_t i = 0;; i++) {
        woi_xc_row row;
        bool more;
        uint64_t done, total;
        o->at = s->path;
        wo_status status = woi_xc_next(reader, &row, &more, &o->err);
        if (status || !more) return status;
        if (i % ROWS_PER_REPORT == 0) {
            woi_xc_position(reader, &done, &total);
            if (s->progress.fn(s->progress.ctx, "splitting", done, total))
                return cli_outputs_fail(o, s->path, "stopped at row %" PRIu64 ", nothing was written", i + 1);
        }
        int part = part_of(s, i);
        o->at = o->path[part];
        if ((status = woi_xc_write_row(o->file[part], &row, &o->err))) return status;
    }
}

static wo_status split(splitting *s, const char *folder)
{
    cli_outputs *o = &s->outputs;
    woi_xc *reader = NULL;
    o->at = s->path;
    wo_status status = woi_xc_open(s->path, &s->options, &reader, &o->err);
    if (status) return status;
    s->shape = *woi_xc_get_shape(reader);
    if (!s->shape.has_header) { /* then only reading all of it tells its counts */
        xc_summary summary;
        status = xc_summarise_reader(reader, &s->progress, &summary, &o->err);
        if (!status) status = woi_xc_rewind(reader, &o->err);
        s->shape = summary.shape;
    }
    if (!status) status = count_rows(s);
    if (!status) status = cli_outputs_open(o, folder, names);
    for (int part = TRAIN; !status && part <= VALID; part++) {
        const uint64_t header[] = {s->n[part], s->shape.n_features, s->shape.n_labels};
        status = cli_outputs_create(o, part);
        if (!status) status = woi_xc_write_header(o->file[part], header, 3, &o->err);
    }
    if (!status) status = write_rows(s, reader);
    if (!status) status = cli_outputs_commit(o);
    woi_xc_free(reader);
    return status;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n != 1) return cli_usage(self, "expected one file, found %d", n);
    if (!args->output) return cli_usage(self, "needs -o DIR, the folder to write to");
    const int refused = cli_refuse_inputs_in(self, args->output, names, (const char *const *)rest, 1);
    if (refused) return refused;
    if (cli_output_try_folder(args->output, names)) return CLI_FAILED;
    splitting s = {.path = rest[0],
                   .options = cli_xc_options(&args->xc),
                   .seed = args->common.seed,
                   .valid = isnan(args->valid) ? 0.05 : args->valid,
                   .last = args->last,
                   .progress = cli_progress(&args->common)};
    wo_status status = split(&s, args->output);
    cli_progress_end();
    int code = CLI_FAILED;
    if (status) {
        cli_fail(s.outputs.at, &s.outputs.err);
    } else if (args->common.json) {
        code = cli_print_json(json_pack("{s:I, s:I, s:I, s:I}", "train", (json_int_t)s.n[TRAIN], "valid",
                                        (json_int_t)s.n[VALID], "features", (json_int_t)s.shape.n_features, "labels",
                                        (json_int_t)s.shape.n_labels));
    } else {
        printf("wrote ");
        cli_print_text(stdout, args->output);
        printf(": %s to train.txt, %s to valid.txt\n", cli_count(s.n[TRAIN], "row"), cli_number(s.n[VALID]));
        code = cli_end();
    }
    cli_outputs_free(&s.outputs);
    return code;
}

const cli_command cli_cmd_data_split = {
    "data split",
    "[options] -o DIR FILE",
    "split a validation file off extreme-classification text",
    "Splits a file of the extreme-classification format, plain or gzip, into DIR/train.txt and\n"
    "DIR/valid.txt, for sets that come without a validation file.\n"
    "\n"
    "  wideout data split train.txt --valid 0.1 --seed 7 -o parts\n"
    "  wideout data split train.txt.gz --last -o diginetica\n"
    "\n"
    "Each row goes by a hash of its number and --seed: the same seed gives the same files, and the share\n"
    "holds nearly, not to the row. With --last the end of the file is split off instead. Use it where\n"
    "rows are in order of time, or neighbours belong together (clicks of a session, parts of a\n"
    "document): validation rows would otherwise be more like the training rows than queries to come.\n"
    "Rows stay in their order; both files keep the counts of features and labels. Neither file is\n"
    "replaced unless both are complete.",
    options,
    sizeof(arguments),
    run,
};
