/* 'train xc' as wideout and wideout-mpi have it. */
#ifndef WOI_CLI_TRAIN_H
#define WOI_CLI_TRAIN_H

#include "cli.h"
#include "net/net.h"
#include "xc_options.h"

struct json_t;

typedef struct cli_train_arguments {
    cli_common common;
    cli_xc xc;
    const char *train, *valid, *test, *output, *label_names, *feature_names;
    uint64_t d, epochs, batch, sampled, window, drop_top, steps;
    double lr, dropout, clip;
    bool resume;
    uint64_t time_steps;
    int counts, normalize; /* CLI_CHOICE */
} cli_train_arguments;

extern const cli_option cli_train_xc_options[];

/* What a job of several processes adds: its calls; whether another rank failed, so that nothing is to be said here; who
 * is told of phases; and what --json says of them. */
typedef struct cli_job {
    const wo_collective *calls;
    bool (*failed_elsewhere)(void);
    void (*phase)(const char *name);
    struct json_t *(*phases_json)(void);
} cli_job;

/* The command on one rank; rank 0 prints. `rest` are the words that are no options, n of them. */
int cli_train_xc(const cli_command *self, const cli_train_arguments *args, int n, char **rest, const cli_job *job);

#endif
