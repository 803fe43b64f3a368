/* A search in two steps: the cells that queries open, then their answers. Several processes that have the same router
 * can each do the first step of some queries, hand the records round, and do the second of all, each with its own
 * classes. Answers are those of wo_search_run, bit for bit: a router says the same of a query whatever is beside it.
 *
 *   record   [ cells opened, cell, cell, ...  (score, score, ...) ]   4 bytes each; all records of a call have the same
 *            length. Scores of cells are there where the prior goes by them. A query that is not finite opens none
 *
 * A query that knows little opens more cells (fallback) only in the second step. */
#ifndef WOI_SEARCH_ROUTED_H
#define WOI_SEARCH_ROUTED_H

#include "wideout.h"

/* The words of a record for calls like this one, whose queries and answers do not matter; 0: they open no cells that
 * would have to be found. Fails where wo_search_run would. */
wo_status woi_search_words(wo_searcher *searcher, const wo_search_call *call, size_t *words, wo_error *err);

/* Records of the call's queries: routes (n, words). Answers do not matter. From one thread at a time, as every search.
 */
wo_status woi_search_route(wo_searcher *searcher, const wo_search_call *call, uint32_t *routes, wo_error *err);

/* The call by these records, (n, words) of a call with the same probes and prior; NULL: cells are found first. */
wo_status woi_search_routed(wo_searcher *searcher, const wo_search_call *call, const uint32_t *routes, wo_error *err);

#endif
