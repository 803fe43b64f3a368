/* What is specific first: an order of answers that frequent classes do not lead by being frequent.
 *
 * A class that many queries need has a high score for all of them. What a query says about a class c beyond that is
 *
 *   log p(c | q) - log p(c) = score(c) - log Z - log(count(c) + 1) + a constant,
 *
 * and log Z and the constant are the same for all classes of a query. count(c) is how often c is a label of a log; the
 * 1 is for classes that are none. The answers stay the k best by score: among all classes that difference is largest
 * for some rare class of which nothing is known. */
#ifndef WOI_CLI_SPECIFIC_H
#define WOI_CLI_SPECIFIC_H

#include "cli.h"

typedef struct cli_ranked {
    double gain;  /* what the query says beyond the class's frequency */
    size_t place; /* by score */
    int32_t id;
    float score;
} cli_ranked;

/* A zeroed one is empty. */
typedef struct cli_specific {
    uint32_t *counts; /* (m): how often each class is a label; NULL: answers stay as they are */
    cli_ranked *list; /* (k): scratch */
} cli_specific;

/* Counts the labels of a log file, which must have some, all below m, and queries of d numbers; for lists of at most
 * k answers. */
wo_status cli_specific_open(const char *log, size_t m, size_t d, size_t k, cli_specific *specific, wo_error *err);
void cli_specific_free(cli_specific *specific);

/* Orders the answers of one query, which come best first and padded with -1: ids and scores (k). Equals keep their
 * order. */
void cli_specific_order(const cli_specific *specific, wo_scores kind, int32_t *ids, float *scores, size_t k);

#endif
