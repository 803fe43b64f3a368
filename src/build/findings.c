/* The checkpoint of a build: see findings.h. */
#include "build/findings.h"

#include "base/error.h"
#include "base/ids.h"
#include "index/options.h"
#include "index/together.h"
#include "store/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL /* no library call to fail */
#include <xxhash.h>

#define MAGIC "\x89WOB\r\n\x1a\n"
#define REMEDY ": remove it, or build without resume"
enum { MAGIC_BYTES = 8, MOST_OPTIONS = 64, WORD_BYTES = 32 };

/* What is built. */
typedef struct header {
    char magic[MAGIC_BYTES];
    uint64_t seed;
    double options[MOST_OPTIONS]; /* in the order of the table; 0: not used */
    uint64_t layer, m, d;
    uint64_t log;
    char instructions[WORD_BYTES], version[WORD_BYTES];
    uint64_t hash;
} header;

struct woi_findings {
    const wo_collective *together;
    const char *path;
    header own;
    uint64_t n, at; /* good records; the next one */
    uint64_t place; /* where it begins */
    uint64_t last;  /* the one that was looked at last, from 1 on */
    int fd;         /* -1: not open for writing. This and what follows is rank 0's */
    const void *data;
    size_t bytes;
};

static bool is_first(const woi_findings *c)
{
    return !c->together || c->together->rank == 0;
}

/* The option names the file that a failure is about. */
static wo_status blame(wo_error *err, wo_status status)
{
    if (status) woi_error_option(err, WO_ABOUT_OPTION, "checkpoint");
    return status;
}

wo_status woi_findings_damaged(const woi_findings *c, wo_error *err)
{
    return blame(err, woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                               "the checkpoint is damaged: result %llu is none of this build" REMEDY,
                               (unsigned long long)c->last));
}

/* ---- What is built ----------------------------------------------------------------------------------------- */

static wo_status describe(const wo_index *index, const wo_log *log, header *own, wo_error *err)
{
    const wo_build_options *o = &index->options;
    wo_cpu_info cpu = {.struct_size = sizeof cpu};
    const wo_status status = wo_cpu_query(&cpu, err);
    if (status) return status;
    *own = (header){.magic = MAGIC,
                    .seed = o->seed,
                    .layer = index->layer_checksum,
                    .m = woi_shard_whole(&index->shard, index->rows.m),
                    .d = index->rows.d,
                    .log = woi_log_hash(log)};
    for (size_t i = 0; i < MOST_OPTIONS && woi_options[i].name; i++)
        if (woi_option_used(&woi_options[i], o)) own->options[i] = woi_option_value(&woi_options[i], o);
    strncpy(own->instructions, cpu.level, WORD_BYTES - 1);
    strncpy(own->version, wo_version(), WORD_BYTES - 1);
    own->hash = XXH3_64bits(own, offsetof(header, hash));
    return WO_OK;
}

static wo_status compare(const header *file, const header *own, wo_error *err)
{
    for (size_t i = 0; i < MOST_OPTIONS && woi_options[i].name; i++)
        if (file->options[i] != own->options[i])
            return woi_fail(
                err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                "the checkpoint is of a build with other options, and does not go on with these: %s differs",
                woi_options[i].name);
    const char *what = file->seed != own->seed                                               ? "seed"
                       : file->layer != own->layer || file->m != own->m || file->d != own->d ? "layer"
                       : file->log != own->log                                               ? "log"
                       : strncmp(file->instructions, own->instructions, WORD_BYTES) != 0     ? "instruction set"
                       : strncmp(file->version, own->version, WORD_BYTES) != 0               ? "version of wideout"
                                                                                             : NULL;
    if (!what) return WO_OK;
    return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET,
                    "the checkpoint is of a build with another %s, and does not go on with this", what);
}

/* ---- The file ---------------------------------------------------------------------------------------------- */

/* The bytes of the record at `at`, without its frame; 0: there is no good one. */
static uint64_t record_bytes(const char *data, size_t bytes, uint64_t at, uint64_t number)
{
    uint64_t size, hash;
    if (bytes - at < 2 * sizeof size) return 0;
    memcpy(&size, data + at, sizeof size);
    if (size > bytes - at - 2 * sizeof size) return 0;
    memcpy(&hash, data + at + sizeof size + size, sizeof hash);
    return XXH3_64bits_withSeed(data + at, sizeof size + size, number) == hash ? size : 0;
}

/* Maps the file at c->path, which there may be: *data NULL where there is none. Fails where it is nothing of ours. */
static wo_status open_ours(const char *path, const void **data, size_t *bytes, wo_error *err)
{
    *data = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT) return WO_OK;
    const wo_status status = woi_map(path, data, bytes, NULL);
    if (!status && *bytes >= MAGIC_BYTES && memcmp(*data, MAGIC, MAGIC_BYTES) == 0) return WO_OK;
    if (!status) woi_unmap(*data, *bytes);
    *data = NULL;
    return woi_fail(err, WO_ERR_IO, WO_NO_OFFSET,
                    "the file exists and is no checkpoint of a build of wideout's: move it away");
}

/* Finds the good records of a file that is there. */
static wo_status take_up(woi_findings *c, wo_error *err)
{
    header file;
    if (c->bytes < sizeof file)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the checkpoint is damaged: its header is cut off" REMEDY);
    memcpy(&file, c->data, sizeof file);
    if (file.hash != XXH3_64bits(&file, offsetof(header, hash)))
        return woi_fail(err, WO_ERR_CHECKSUM, WO_NO_OFFSET,
                        "the checkpoint is damaged: the checksum of its header differs" REMEDY);
    const wo_status status = compare(&file, &c->own, err);
    if (status) return status;
    uint64_t end = sizeof file;
    for (uint64_t size; (size = record_bytes(c->data, c->bytes, end, c->n)); c->n++) end += size + 2 * sizeof size;
    c->fd = open(c->path, O_WRONLY | O_CLOEXEC);
    if (c->fd < 0) return woi_fail_errno(err, "the checkpoint cannot be opened", errno);
    return WO_OK;
}

/* A new one, under its name when its header is complete. */
static wo_status begin(woi_findings *c, wo_error *err)
{
    woi_outfile *out = NULL;
    wo_status status = woi_outfile_create(c->path, &out, err);
    if (!status) status = woi_outfile_write(out, &c->own, sizeof c->own, err);
    if (!status) status = woi_outfile_commit(out, err);
    woi_outfile_free(out);
    if (status) return status;
    c->fd = open(c->path, O_WRONLY | O_CLOEXEC);
    return c->fd < 0 ? woi_fail_errno(err, "the checkpoint cannot be opened", errno) : WO_OK;
}

static wo_status open_first(woi_findings *c, bool resume, wo_error *err)
{
    wo_status status = open_ours(c->path, &c->data, &c->bytes, err);
    if (!status && c->data && resume) status = take_up(c, err);
    return blame(err, status);
}

wo_status woi_findings_open(const wo_index *index, const wo_log *log, woi_findings **findings, wo_error *err)
{
    const wo_build_options *o = &index->options;
    *findings = NULL;
    if (!o->checkpoint || !log) return WO_OK;
    woi_findings *c = woi_alloc_zero(1, sizeof *c, err);
    if (!c) return WO_ERR_MEMORY;
    c->together = o->together;
    c->path = o->checkpoint;
    c->fd = -1;
    c->place = sizeof c->own;
    wo_status status = is_first(c) ? describe(index, log, &c->own, err) : WO_OK;
    if (!status && is_first(c)) status = open_first(c, o->resume, err);
    status = woi_together_agree(c->together, status, err);
    if (!status && c->together) status = c->together->broadcast(c->together->ctx, &c->n, sizeof c->n, 0, err);
    if (status)
        woi_findings_free(c);
    else
        *findings = c;
    return status;
}

void woi_findings_free(woi_findings *c)
{
    if (!c) return;
    if (c->data) woi_unmap(c->data, c->bytes);
    if (c->fd >= 0) close(c->fd);
    woi_free(c);
}

/* ---- Records ----------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const woi_piece *pieces, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (pieces[i].data) bytes += pieces[i].bytes;
    return bytes;
}

bool woi_findings_has(const woi_findings *c)
{
    return c && c->at < c->n;
}

/* How many bytes the next record has, on all ranks. Its checksum is compared again: the file may have been written over
 * since it was mapped. */
static wo_status measure(woi_findings *c, uint64_t *bytes, wo_error *err)
{
    c->last = c->at + 1;
    if (is_first(c)) *bytes = record_bytes(c->data, c->bytes, c->place, c->at);
    return c->together ? c->together->broadcast(c->together->ctx, bytes, sizeof *bytes, 0, err) : WO_OK;
}

/* The next record's first bytes into the pieces: rank 0's out of the file, then everybody's. */
static wo_status take(const woi_findings *c, const woi_piece *pieces, size_t n, wo_error *err)
{
    wo_status status = WO_OK;
    const char *from = is_first(c) ? (const char *)c->data + c->place + sizeof(uint64_t) : NULL;
    for (size_t i = 0; !status && i < n; i++) {
        const woi_piece *p = &pieces[i];
        if (!p->data) continue;
        if (from) {
            memcpy(p->data, from, p->bytes);
            from += p->bytes;
        }
        if (c->together) status = c->together->broadcast(c->together->ctx, p->data, p->bytes, 0, err);
    }
    return status;
}

wo_status woi_findings_peek(woi_findings *c, const woi_piece *piece, uint64_t *bytes, wo_error *err)
{
    wo_status status = measure(c, bytes, err);
    if (!status && *bytes < piece->bytes) status = woi_findings_damaged(c, err);
    return status ? status : take(c, piece, 1, err);
}

wo_status woi_findings_recall(woi_findings *c, const woi_piece *pieces, size_t n, bool *found, wo_error *err)
{
    *found = woi_findings_has(c);
    if (!*found) return WO_OK;
    uint64_t bytes = 0;
    wo_status status = measure(c, &bytes, err);
    if (!status && bytes != bytes_of(pieces, n)) status = woi_findings_damaged(c, err);
    if (status) return status;
    status = take(c, pieces, n, err);
    c->place += bytes + 2 * sizeof bytes;
    c->at++;
    return status;
}

static wo_status put(woi_findings *c, const void *data, size_t bytes, wo_error *err)
{
    const char *from = data;
    while (bytes) {
        const ssize_t wrote = pwrite(c->fd, from, bytes, (off_t)c->place);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return woi_fail_errno(err, "the checkpoint cannot be written", errno);
        from += wrote;
        bytes -= (size_t)wrote;
        c->place += (uint64_t)wrote;
    }
    return WO_OK;
}

wo_status woi_findings_keep(woi_findings *c, const woi_piece *pieces, size_t n, wo_error *err)
{
    if (!c || !is_first(c)) return WO_OK;
    const uint64_t bytes = bytes_of(pieces, n);
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, c->at++);
    XXH3_64bits_update(&state, &bytes, sizeof bytes);
    wo_status status = c->fd < 0 ? begin(c, err) : WO_OK;
    if (!status) status = put(c, &bytes, sizeof bytes, err);
    for (size_t i = 0; !status && i < n; i++) {
        if (!pieces[i].data) continue;
        XXH3_64bits_update(&state, pieces[i].data, pieces[i].bytes);
        status = put(c, pieces[i].data, pieces[i].bytes, err);
    }
    const uint64_t hash = XXH3_64bits_digest(&state);
    if (!status) status = put(c, &hash, sizeof hash, err);
    return blame(err, status);
}

/* ---- FULL -------------------------------------------------------------------------------------------------- */

/* Whether these are k different classes of m, ascending, after -1 where there are fewer. */
static bool are_best(const int32_t *ids, size_t k, size_t m)
{
    int32_t before = -1;
    for (size_t i = 0; i < k; before = ids[i++])
        if (ids[i] < before || (ids[i] >= 0 && (ids[i] == before || (size_t)ids[i] >= m))) return false;
    return true;
}

wo_status woi_exact_found(const woi_exact_call *call, const woi_shard *shard, const wo_collective *together,
                          woi_findings *c, wo_error *err)
{
    const size_t n = call->n * call->k, m = shard ? woi_shard_whole(shard, call->layer->m) : call->layer->m;
    const woi_piece ids = {call->ids, n * sizeof *call->ids};
    bool found;
    wo_status status = woi_findings_recall(c, &ids, 1, &found, err);
    for (size_t i = 0; !status && found && i < call->n; i++)
        if (!are_best(call->ids + i * call->k, call->k, m)) status = woi_findings_damaged(c, err);
    if (status || found) return status;
    status = woi_exact_of_all(call, shard, together, err);
    for (size_t i = 0; !status && i < call->n; i++) woi_ids_sort(call->ids + i * call->k, call->k);
    return status ? status : woi_findings_keep(c, &ids, 1, err);
}

wo_status wo_build_forget(const char *path, wo_error *err)
{
    const void *data;
    size_t bytes;
    const wo_status status = open_ours(path, &data, &bytes, err);
    if (status || !data) return blame(err, status);
    woi_unmap(data, bytes);
    return unlink(path) ? blame(err, woi_fail_errno(err, "the checkpoint cannot be removed", errno)) : WO_OK;
}
