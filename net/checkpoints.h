/* Where the checkpoints of a run are, and which one counts.
 *
 *   one process     OUTPUT.checkpoint, replaced after every epoch
 *   rank 0, 1, ...  OUTPUT.checkpoint, OUTPUT.checkpoint.1, ...: each its own; beside it, until all ranks have theirs,
 *                   the next one: OUTPUT.checkpoint.next, OUTPUT.checkpoint.1.next
 *
 * Were each rank to replace its file by itself, a job that is killed would leave different epochs on different ranks.
 * So the new one is written beside the old one, and takes its place when all ranks have written theirs; at every moment
 * there is an epoch that all of them have, under one name or the other. Resuming looks for the latest such epoch. */
#ifndef WOI_NET_CHECKPOINTS_H
#define WOI_NET_CHECKPOINTS_H

#include "net/network.h"

typedef struct woi_checkpoints {
    const wo_collective *ranks; /* NULL: one process, which has no `next` */
    char *path, *next;
} woi_checkpoints;

/* The names. On failure there is nothing to free. */
wo_status woi_checkpoints_create(const char *output, const wo_collective *ranks, woi_checkpoints *checkpoints,
                                 wo_error *err);
void woi_checkpoints_free(woi_checkpoints *checkpoints);

/* Whether they can be written: the folder is there, and what stands under the names is a checkpoint of ours. Nothing
 * else is ever replaced or deleted. */
wo_status woi_checkpoints_try(const woi_checkpoints *checkpoints, wo_error *err);

/* Saving: check, write woi_checkpoints_target, then hand over how that went. With several processes the failure of one
 * is that of all, and the last checkpoints stay. */
wo_status woi_checkpoints_check(const woi_checkpoints *checkpoints, wo_error *err);
const char *woi_checkpoints_target(const woi_checkpoints *checkpoints);
wo_status woi_checkpoints_written(const woi_checkpoints *checkpoints, wo_status written, wo_error *err);

/* Resuming: which file to load, borrowed; and, after all ranks have loaded theirs, that it is the one to keep. */
wo_status woi_checkpoints_find(const woi_checkpoints *checkpoints, const woi_network *network, const char *fingerprint,
                               const char **found, wo_error *err);
wo_status woi_checkpoints_loaded(const woi_checkpoints *checkpoints, const char *found, wo_status loaded,
                                 wo_error *err);

/* The run is over. */
void woi_checkpoints_remove(const woi_checkpoints *checkpoints);

#endif
