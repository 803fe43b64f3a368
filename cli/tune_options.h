/* The options of `build` that ask for tuning. */
#ifndef WOI_CLI_TUNE_OPTIONS_H
#define WOI_CLI_TUNE_OPTIONS_H

#include "cli.h"

typedef struct cli_tune {
    const char *log, *labels, *max_time, *target;
    double target5, target_agree, target_us;
    uint64_t k, batch;
} cli_tune;

#define CLI_TUNE_FIELD(args_type, member, field) (offsetof(args_type, member) + offsetof(cli_tune, field))

#define CLI_TUNE_OPTIONS(args_type, member)                                                                           \
    {"tune-log",    0,                                                                                                \
     CLI_TEXT_ONCE, CLI_TUNE_FIELD(args_type, member, log),                                                           \
     "FILE",        "tune: other queries to judge on (default: a tenth of the log)",                                  \
     false},                                                                                                          \
        {"tune-labels", 0,                                                                                            \
         CLI_TEXT_ONCE, CLI_TUNE_FIELD(args_type, member, labels),                                                    \
         "FILE",        "tune: their labels as .npy or .npz, where they have none",                                   \
         false},                                                                                                      \
        {"target",                                                                                                    \
         0,                                                                                                           \
         CLI_TEXT,                                                                                                    \
         CLI_TUNE_FIELD(args_type, member, target),                                                                   \
         "0-2|best",                                                                                                  \
         "tune: the share of FULL's P@1 to reach (default: 0.995); best:\nthe best quality within --target-us, or a " \
         "tenth of FULL's time",                                                                                      \
         false},                                                                                                      \
        {"target5", 0,                                                                                                \
         CLI_REAL,  CLI_TUNE_FIELD(args_type, member, target5),                                                       \
         "0-2",     "tune: and of its P@5 (default: 0.99, --target if less)",                                         \
         false},                                                                                                      \
        {"target-agree", 0,                                                                                           \
         CLI_REAL,       CLI_TUNE_FIELD(args_type, member, target_agree),                                             \
         "0-1",          "tune: instead, the share of FULL's own best to reach",                                      \
         false},                                                                                                      \
        {"target-us", 0,                                                                                              \
         CLI_REAL,    CLI_TUNE_FIELD(args_type, member, target_us),                                                   \
         "0-1e9",     "tune: instead, the best within so many us a query",                                            \
         false},                                                                                                      \
        {"top", 'k', CLI_SIZE, CLI_TUNE_FIELD(args_type, member, k), "N", "tune: answers asked for (default: 5)",     \
         false},                                                                                                      \
        {"batch",  'b',                                                                                               \
         CLI_SIZE, CLI_TUNE_FIELD(args_type, member, batch),                                                          \
         "N",      "tune: queries a call when timing (default: 1)",                                                   \
         false},                                                                                                      \
    {                                                                                                                 \
        "max-time", 0, CLI_TEXT, CLI_TUNE_FIELD(args_type, member, max_time), "TIME",                                 \
            "tune: 90s, 5m: how long, the last build counted (default: 3m;\n5s at least)", false                      \
    }

/* Whether a goal was given. */
bool cli_tune_asked(const cli_tune *given);

/* The first option that is for tuning only and was given, or NULL. */
const char *cli_tune_given(const cli_tune *given);

/* Checks what was given and sets it; CLI_USAGE, after saying why, where it cannot be. */
int cli_tune_read(const cli_command *self, const cli_tune *given, wo_tune_options *options);

#endif
