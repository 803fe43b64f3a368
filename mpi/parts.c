/* Each rank's part: see parts.h. */
#include "parts.h"

#include "../cli/class_names.h"
#include "../cli/shard_files.h"
#include "index/together.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int part_blame(const cli_command *self, const cli_files *files, const wo_error *err)
{
    return job_failed_elsewhere_by(err) ? CLI_FAILED : cli_blame(self, files, err);
}

char *part_file(const char *given)
{
    if (access(given, F_OK) == 0) return strdup(given);
    return cli_shard_file(given, (uint64_t)job_rank(), (uint64_t)job_size());
}

/* "the layer is shard 2 of 4, but this is rank 0 of 2" */
static wo_status check_number(const char *what, uint32_t shard, uint32_t n_shards, wo_error *err)
{
    if (n_shards == (uint32_t)job_size() && shard == (uint32_t)job_rank()) return WO_OK;
    if (n_shards <= 1 && job_size() == 1) return WO_OK;
    if (!n_shards)
        return cli_set_error(err, WO_ERR_ARGUMENT,
                             "it is a whole %s, but this is a job of %d processes: each has a shard", what, job_size());
    return cli_set_error(err, WO_ERR_ARGUMENT, "it is shard %u of %u, but rank %d of %d wants shard %d of %d",
                         shard + 1, n_shards, job_rank(), job_size(), job_rank() + 1, job_size());
}

/* Opens the file at `path`, of which this rank has its range where it is a whole layer. */
static int open_layer(const cli_command *self, const cli_layer *given, const char *names, wo_layer **layer)
{
    wo_error err;
    const int code = cli_layer_open(self, given, layer);
    if (code) return code;
    const wo_layer_info info = cli_layer_about(*layer);
    if (check_number("layer", info.shard, info.n_shards, &err)) return cli_fail(given->path, &err);
    return names ? cli_names_give(names, *layer) : CLI_OK;
}

/* Shards of two dealings may have a class twice and lack another: this says it plainly. The classes themselves are
 * compared when an index is built, or opened. Whether there are names decides what ranks say to each other, and is
 * compared itself: a file may not tell its dealing. */
static wo_status same_dealing(uint64_t dealing, int has_names, wo_error *err)
{
    const uint64_t both[] = {dealing, (uint64_t)has_names};
    return job_same("the dealing of classes to shards, or what they are called,", both, sizeof both, err);
}

/* Rank 0 reads all of a whole layer and tells the others what is `known`: the checksum of all of it, then that of each
 * rank's rows. They read their own rows and put down what they found there. Of shards each has its own: nobody waits.
 */
static int open_told(const cli_command *self, cli_layer *own, const char *names, uint64_t *known, wo_layer **layer)
{
    const wo_collective *calls = job_calls();
    const size_t of_parts = (size_t)calls->size * sizeof *known, bytes = sizeof *known + of_parts;
    const bool told = own->part_checksums && calls->rank > 0;
    wo_error err;
    wo_status status = told ? calls->broadcast(calls->ctx, known, bytes, 0, &err) : WO_OK;
    own->checksum = known[0];
    const int code = status ? CLI_FAILED : open_layer(self, own, names, layer);
    if (!code) {
        const wo_layer_info info = cli_layer_about(*layer);
        const uint64_t same[] = {info.checksum, info.m_whole, info.d};
        known[0] = info.checksum;
        if (!told) status = calls->broadcast(calls->ctx, known, bytes, 0, &err);
        if (!status) status = job_same("the layer", same, sizeof same, &err);
        if (!status) status = job_same("the layer", known + 1, of_parts, &err);
        if (!status) status = same_dealing(info.dealing, info.has_names, &err);
    }
    return status ? part_blame(self, &(cli_files){0}, &err) : code;
}

int part_open_layer(const cli_command *self, const cli_layer *given, const char *names, wo_layer **layer)
{
    wo_error err;
    cli_layer own = *given;
    char *path = part_file(given->path);
    uint64_t *known = calloc(1 + (size_t)job_size(), sizeof *known);
    const bool whole = path && strcmp(path, given->path) == 0;
    int code;
    if (!path || !known) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        code = cli_fail(NULL, &err);
    } else if (names && !whole) {
        code = cli_usage(self, "--names goes with a whole layer: 'wideout shard --names' gives them to shards");
    } else {
        own.path = path;
        own.part = (uint32_t)job_rank();
        own.n_parts = (uint32_t)job_size();
        own.part_checksums = whole ? known + 1 : NULL;
        code = open_told(self, &own, names, known, layer);
    }
    free(known);
    free(path);
    return code;
}

/* The options of an index, its layer and its router: whether the files of all ranks are of one build. */
static wo_status same_build(const wo_index *index, wo_error *err)
{
    wo_index_info info = {.struct_size = sizeof info};
    wo_build_options o = {.struct_size = sizeof o};
    wo_option_info option = {.struct_size = sizeof option};
    char text[2048];
    size_t used = 0;
    wo_index_describe(index, &info);
    wo_index_options(index, &o);
    for (size_t i = 0; wo_option_at(i, &option) && used < sizeof text; i++)
        if (wo_build_uses(&o, option.name)) used += wo_build_get(&o, option.name, text + used, sizeof text - used);
    const uint64_t layer[] = {info.layer_checksum, info.m_whole, info.d};
    const uint64_t router[] = {info.router_checksum, info.n_cells};
    wo_status status = job_same("the layer of the index", layer, sizeof layer, err);
    if (!status) status = same_dealing(info.dealing, info.has_names, err);
    if (!status) status = job_same("the build of the index, by its options,", text, strnlen(text, sizeof text), err);
    return status ? status : job_same("the build of the index, by its router,", router, sizeof router, err);
}

int part_open_index(const cli_command *self, const char *given, const wo_layer *layer, wo_index **index)
{
    wo_error err;
    char *path = part_file(given);
    const wo_open_options o = {.struct_size = sizeof o, .layer = layer};
    wo_index_info info = {.struct_size = sizeof info};
    int code = CLI_OK;
    if (!path) {
        cli_set_error(&err, WO_ERR_MEMORY, "out of memory");
        return cli_fail(NULL, &err);
    }
    const wo_status status = wo_index_open(path, &o, index, &err);
    if (!status) wo_index_describe(*index, &info);
    if (status)
        code = cli_blame(self, &(cli_files){.index = path, .layer = "--layer"}, &err);
    else if (check_number("index", info.shard, info.n_shards, &err))
        code = cli_fail(path, &err);
    else if (same_build(*index, &err) || woi_index_whole(job_calls(), *index, &err))
        code = part_blame(self, &(cli_files){0}, &err);
    free(path);
    return code;
}
