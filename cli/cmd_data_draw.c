/* wideout data draw: a log of some of the queries of another. */
#include "blame.h"
#include "cli.h"
#include "inputs.h"
#include "outputs.h"
#include "store/log.h"
#include "text/split.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

typedef struct arguments {
    cli_common common;
    const char *output;
    uint64_t n;
} arguments;

static const cli_option options[] = {
    {"queries", 'n', CLI_SIZE, offsetof(arguments, n), "N", "how many queries to draw", false},
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "FILE", "the log to write", false},
    {0},
};

/* Adds query `row` of a log, with its labels where the log has some. */
static wo_status add(const wo_log *log, size_t row, wo_log_writer *writer, wo_error *err)
{
    if (!log->indptr) return wo_log_append(writer, log->queries + row * log->d, 1, NULL, NULL, err);
    const int64_t first = log->indptr[row], indptr[] = {0, log->indptr[row + 1] - first};
    const woi_log_rows one = {.n = 1,
                              .queries = log->queries + row * log->d,
                              .indptr = indptr,
                              .labels = log->labels + first,
                              .counts = log->counts ? log->counts + row : NULL,
                              .label_counts = log->counts ? log->label_counts + first : NULL};
    return woi_log_append_rows(writer, &one, err);
}

/* Each query is taken with as many chances as there are places left, of as many as there are queries left: all draws
 * are alike likely. *n_labels: how many labels they have. */
static wo_status draw(const wo_log *log, const arguments *args, uint64_t *n_labels, wo_error *err)
{
    const bool bf16 =
        log->file.queries && log->file.queries->dtype == WOI_BF16; /* an array of NumPy's is no file of ours */
    const wo_log_writer_options o = {
        .struct_size = sizeof o, .d = log->d, .n = args->n, .labels = log->indptr != NULL, .bf16 = bf16};
    wo_log_writer *writer = NULL;
    wo_status status = wo_log_writer_create(args->output, &o, &writer, err);
    if (!status && log->counts) status = woi_log_set_counted(writer, args->output, err);
    uint64_t left = args->n;
    for (size_t row = 0; !status && left; row++) {
        if (!woi_draw_row(args->common.seed, row, left, log->n - row)) continue;
        left--;
        if (log->indptr) *n_labels += (uint64_t)(log->indptr[row + 1] - log->indptr[row]);
        status = add(log, row, writer, err);
    }
    if (!status) status = wo_log_finish(writer, err);
    wo_log_writer_free(writer);
    return status;
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n != 1) return cli_usage(self, "expected one log, found %d", n);
    if (!args->n) return cli_usage(self, "needs -n N, how many queries to draw");
    if (!args->output) return cli_usage(self, "needs -o FILE for the log");
    int code = cli_refuse_inputs(self, args->output, (const char *const *)rest, 1);
    if (!code) code = cli_output_try(args->output);
    if (code) return code;
    wo_log *log = NULL;
    wo_error err;
    uint64_t n_labels = 0;
    if (wo_log_open_labelled(rest[0], NULL, &log, &err)) return cli_blame(self, &(cli_files){.log = rest[0]}, &err);
    const uint64_t all = log->n;
    if (args->n > all) {
        cli_set_error(&err, WO_ERR_ARGUMENT, "has %s, fewer than the %" PRIu64 " to draw", cli_count(all, "query"),
                      args->n);
        code = cli_fail(rest[0], &err);
    } else if (draw(log, args, &n_labels, &err)) {
        code = cli_fail(args->output, &err);
    } else if (args->common.json) {
        code = cli_print_json(json_pack("{s:I, s:I, s:I}", "queries", (json_int_t)args->n, "of", (json_int_t)all,
                                        "labels", (json_int_t)n_labels));
    } else {
        printf("wrote ");
        cli_print_text(stdout, args->output);
        printf(": %s of %s, with %s\n", cli_number(args->n), cli_count(all, "query"), cli_count(n_labels, "label"));
        code = cli_end();
    }
    wo_log_free(log);
    return code;
}

const cli_command cli_cmd_data_draw = {
    "data draw",
    "[options] -n N -o FILE LOG",
    "draw queries of a log, by a seed",
    "Writes a log of N queries that are drawn from another, with their labels, in their order. Use it to\n"
    "see what fewer queries would do, for learning or for tuning:\n"
    "\n"
    "  wideout data draw valid.log -n 300 --seed 2 -o valid-300.log\n"
    "\n"
    "The same seed draws the same queries. Every set of N is as likely as any other. Queries in bf16\n"
    "stay in bf16; those in f16 become f32.",
    options,
    sizeof(arguments),
    run,
};
