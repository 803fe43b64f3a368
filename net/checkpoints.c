/* Checkpoints as files of a run: names, replacing, finding. What is in one is net/network_state.c's. */
#include "net/checkpoints.h"

#include "base/error.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

wo_status woi_checkpoints_create(const char *output, const wo_collective *ranks, woi_checkpoints *c, wo_error *err)
{
    const size_t room = strlen(output) + 48;
    *c = (woi_checkpoints){.ranks = ranks};
    if (!(c->path = woi_alloc(room, 1, err)) || (ranks && !(c->next = woi_alloc(room, 1, err)))) {
        woi_checkpoints_free(c);
        return WO_ERR_MEMORY;
    }
    if (woi_ranks_first(ranks))
        snprintf(c->path, room, "%s.checkpoint", output);
    else
        snprintf(c->path, room, "%s.checkpoint.%d", output, ranks->rank);
    if (ranks) snprintf(c->next, room, "%s.next", c->path);
    return WO_OK;
}

void woi_checkpoints_free(woi_checkpoints *c)
{
    woi_free(c->path);
    woi_free(c->next);
    c->path = c->next = NULL;
}

static void blame(const woi_checkpoints *c, wo_error *err)
{
    char text[48];
    snprintf(text, sizeof text, "its checkpoint of rank %d", c->ranks ? c->ranks->rank : 0);
    woi_error_prefix(err, c->ranks ? text : "its checkpoint");
}

static wo_status check_one(const char *path, wo_error *err)
{
    woi_st *st = NULL;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENAMETOOLONG)) return WO_OK;
    const wo_status status = woi_st_open(path, &st, err);
    if (status == WO_ERR_MEMORY) return status; /* that says nothing about the file */
    const char *kind = status ? NULL : woi_st_kind(st);
    const bool ours = kind && strcmp(kind, "checkpoint") == 0;
    woi_st_free(st);
    if (ours) return WO_OK;
    return woi_fail(err, WO_ERR_IO, WO_NO_OFFSET, "exists and is no checkpoint of wideout's: move it away");
}

wo_status woi_checkpoints_check(const woi_checkpoints *c, wo_error *err)
{
    wo_status status = check_one(c->path, err);
    return status || !c->next ? status : check_one(c->next, err);
}

const char *woi_checkpoints_target(const woi_checkpoints *c)
{
    return c->next ? c->next : c->path;
}

wo_status woi_checkpoints_try(const woi_checkpoints *c, wo_error *err)
{
    woi_outfile *out = NULL;
    wo_status status = woi_checkpoints_check(c, err);
    if (!status) status = woi_outfile_create(woi_checkpoints_target(c), &out, err);
    if (status) blame(c, err);
    woi_outfile_free(out);
    return status;
}

static wo_status take_place(const woi_checkpoints *c, wo_error *err)
{
    if (rename(c->next, c->path) == 0) return WO_OK;
    wo_status status = woi_fail_errno(err, "the file cannot be renamed", errno);
    blame(c, err);
    return status;
}

wo_status woi_checkpoints_written(const woi_checkpoints *c, wo_status written, wo_error *err)
{
    if (written) blame(c, err);
    if (!c->ranks) return written;
    bool all = false;
    wo_status status = woi_ranks_all(c->ranks, !written, &all, err);
    if (status) return status; /* a rank is gone: others may have put theirs in place, so this one stays */
    if (all) return take_place(c, err);
    if (!written) unlink(c->next);
    return woi_ranks_agree(c->ranks, written, NULL, err);
}

/* ---- Resuming ---------------------------------------------------------------------------------------------- */

/* The epochs of the two files; 0 where there is none that fits. */
typedef struct epochs {
    uint64_t path, next;
} epochs;

/* The latest epoch that all ranks have: one of rank 0's two. 0: none. */
static wo_status common_epoch(const wo_collective *ranks, epochs own, uint64_t *common, wo_error *err)
{
    epochs first = own;
    wo_status status = ranks->broadcast(ranks->ctx, &first, sizeof first, 0, err);
    const uint64_t tries[] = {first.path > first.next ? first.path : first.next,
                              first.path > first.next ? first.next : first.path};
    *common = 0;
    for (size_t i = 0; !status && i < 2 && !*common; i++) {
        bool all = false;
        status = woi_ranks_all(ranks, tries[i] && (own.path == tries[i] || own.next == tries[i]), &all, err);
        if (all) *common = tries[i];
    }
    return status;
}

wo_status woi_checkpoints_find(const woi_checkpoints *c, const woi_network *net, const char *fingerprint,
                               const char **found, wo_error *err)
{
    *found = c->path;
    if (!c->ranks) return WO_OK;
    epochs own = {0};
    uint64_t common = 0;
    wo_status status = woi_checkpoint_peek(net, c->path, fingerprint, &own.path, err);
    if (woi_checkpoint_peek(net, c->next, fingerprint, &own.next, NULL) == WO_OK)
        status = WO_OK;
    else
        own.next = 0;
    if (status) blame(c, err);
    if ((status = woi_ranks_agree(c->ranks, status, NULL, err)) || (status = common_epoch(c->ranks, own, &common, err)))
        return status;
    if (!common)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "its checkpoints are of different epochs, and none is there of all %d ranks", c->ranks->size);
    if (own.path != common) *found = c->next;
    return WO_OK;
}

wo_status woi_checkpoints_loaded(const woi_checkpoints *c, const char *found, wo_status loaded, wo_error *err)
{
    if (loaded) blame(c, err);
    const wo_status status = woi_ranks_agree(c->ranks, loaded, NULL, err);
    return status || found != c->next ? status : take_place(c, err);
}

void woi_checkpoints_remove(const woi_checkpoints *c)
{
    if (!check_one(c->path, NULL)) unlink(c->path);
    if (c->next && !check_one(c->next, NULL)) unlink(c->next);
}
