/* Where the queries of `predict` come from: a log or .npy file, or raw examples through a network. */
#ifndef WOI_CLI_PREDICT_SOURCE_H
#define WOI_CLI_PREDICT_SOURCE_H

#include "cli.h"
#include "net/net.h"

typedef enum cli_format {
    CLI_FORMAT_AUTO,
    CLI_FORMAT_LOG,
    CLI_FORMAT_NPY,
    CLI_FORMAT_XC,
    CLI_FORMAT_TEXT,
    CLI_FORMAT_DEB822
} cli_format;

/* A zeroed one is empty. */
typedef struct cli_source {
    wo_log *log;
    float *array;   /* of a .npy file, ours */
    const float *q; /* (n, d): the queries of either */
    size_t n, d, at;
    char kept[32];          /* what standard input brought: a file in memory, until the process ends */
    woi_examples *examples; /* or these, which come as they are read */
} cli_source;

/* At most 1,024 queries (n, d), valid until the next call; the arrays are NULL for log and .npy. */
typedef struct cli_query_batch {
    size_t n;
    const float *q;
    const uint64_t *lines; /* (n): where each example stands */
    const uint32_t *known; /* (n): features or words that the network knows */
} cli_query_batch;

typedef struct cli_source_options {
    cli_format format;
    const woi_network *net; /* NULL where the queries are ready */
    const char *net_path;
    woi_xc_base base;
    int threads;
    size_t d; /* of a query, as the index takes it */
} cli_source_options;

/* "-" is standard input. *at receives the name that a failure is about. */
wo_status cli_source_open(cli_source *source, const char *path, const cli_source_options *options, const char **at,
                          wo_error *err);

/* After a failure of WO_ERR_FORMAT the next call goes on behind the bad line, or says that there is no more. */
wo_status cli_source_next(cli_source *source, cli_query_batch *batch, bool *more, wo_error *err);
void cli_source_free(cli_source *source);

#endif
