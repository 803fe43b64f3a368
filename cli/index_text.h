/* What an index is, for people and for programs: shared by the commands. */
#ifndef WOI_CLI_INDEX_TEXT_H
#define WOI_CLI_INDEX_TEXT_H

#include "cli.h"

struct json_t;

/* What the library says of an index. */
typedef struct cli_index {
    wo_index_info info;
    wo_build_options options;
    bool judged; /* lss kept its best step, and this is how it was judged: */
    double kept_step, kept_recall, kept_neurons;
    bool within; /* max_neurons */
} cli_index;

cli_index cli_index_of(const wo_index *index);

/* ": this is FULL, the exact layer", ": a screen: ...", or "", of an index of cells. */
const char *cli_index_kind(const cli_index *index);

/* "evidence, K 10, L 4, lambda 0.1, ..." and a line of counts; each line begins with `indent`. */
void cli_index_print(const cli_index *index, const char *indent);

/* The same in "method", "options", "m", "d", "cells", ...: NULL where memory ran out. */
struct json_t *cli_index_json(const cli_index *index);

/* Warnings: that all classes were removed, and that --exact-fallback was given to an index without a threshold. */
void cli_index_warn(const char *path, const cli_index *index, bool exact_fallback);

/* CLI_USAGE, after saying so, where --probes was given and the index opens no cells by it. */
int cli_index_refuse_probes(const cli_command *self, const char *path, const cli_index *index, uint64_t probes);

enum { CLI_EVAL_BATCH = 1024 }; /* what 'wideout eval' judges where no batch is named */

/* Whether FULL answers batches of so many queries, as a tuner found it to be faster there. */
bool cli_index_by_full(const wo_index_info *info, uint64_t batch);

/* Where more answers are asked for than the index was made for, a warning, and what makes one for so many. */
void cli_index_warn_k(const char *path, const wo_index *index, uint64_t k);

/* Where FULL's best answer is a label of none of `n` labelled queries of a log, or of no more than the log's most
 * frequent label is, n being enough to wonder, a warning with the likely cause. `log` may be NULL where FULL has no
 * hit.
 */
void cli_warn_of_hits(const char *path, const wo_log *log, uint64_t n, double full_p_at_1);

#endif
