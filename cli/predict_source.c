/* Queries for `predict`, from files that hold them or from raw examples. */
#include "predict_source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 1024 };
#define TRANSPOSED ": is it transposed? Its rows are queries"

/* ---- Files of queries -------------------------------------------------------------------------------------- */

static wo_status open_npy(cli_source *s, const char *path, wo_error *err)
{
    woi_npy npy;
    wo_status status = woi_npy_open(path, &npy, err);
    if (status) return status;
    const uint64_t columns = npy.n_dims ? npy.shape[npy.n_dims - 1] : 0;
    const bool turned = npy.n_dims == 2 && npy.shape[0] == s->d;
    if (npy.n_dims < 1 || npy.n_dims > 2 || columns != s->d)
        status = cli_set_error(err, WO_ERR_FORMAT,
                               "has %d dimensions, the last of %" PRIu64 ", expected (n, %zu) or (%zu)%s", npy.n_dims,
                               columns, s->d, s->d, turned ? TRANSPOSED : "");
    else if (!(s->array = malloc((size_t)npy.n * sizeof *s->array + 1)))
        status = cli_set_error(err, WO_ERR_MEMORY, "out of memory: %" PRIu64 " numbers", npy.n);
    else
        status = woi_npy_read_f32(&npy, s->array, err);
    s->q = s->array;
    s->n = (size_t)npy.n / s->d;
    woi_npy_close(&npy);
    return status;
}

static wo_status open_log(cli_source *s, const char *path, wo_error *err)
{
    wo_status status = wo_log_open(path, &s->log, err);
    if (status) return status;
    s->n = wo_log_n(s->log);
    s->q = wo_log_queries(s->log);
    if (wo_log_d(s->log) == s->d) return WO_OK;
    return cli_set_error(err, WO_ERR_FORMAT, "has queries of %zu numbers, the index takes %zu%s", wo_log_d(s->log),
                         s->d, s->n == s->d ? TRANSPOSED : "");
}

/* ---- Which it is ------------------------------------------------------------------------------------------- */

/* /dev/null, by whatever name. */
static bool is_null(const struct stat *about)
{
    struct stat null;
    return S_ISCHR(about->st_mode) && stat("/dev/null", &null) == 0 && null.st_rdev == about->st_rdev;
}

/* A pipe that has a name, as <(rows) is /dev/fd/63, becomes standard input: it is opened once, as what is read of it is
 * gone. So does /dev/null, which is no plain file either. `path` becomes "-" then. */
static wo_status take_pipe(const char **path, wo_error *err)
{
    struct stat about;
    int fd;
    if (strcmp(*path, "-") == 0 || stat(*path, &about) != 0 || !(S_ISFIFO(about.st_mode) || is_null(&about)))
        return WO_OK;
    do fd = open(*path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    const bool taken = fd >= 0 && dup2(fd, STDIN_FILENO) >= 0;
    const int errnum = errno;
    if (fd > STDIN_FILENO) close(fd);
    if (!taken) return cli_set_error(err, WO_ERR_IO, "the file cannot be opened: %s", strerror(errnum));
    *path = "-";
    return WO_OK;
}

/* A file can be mapped, also where it is standard input; a pipe cannot. */
static const char *file_of(const char *path)
{
    struct stat about;
    if (strcmp(path, "-") != 0) return path;
    return fstat(STDIN_FILENO, &about) == 0 && S_ISREG(about.st_mode) ? "/dev/stdin" : NULL;
}

/* The first bytes of a pipe or socket, which stay in it: how many; -1 where nobody can tell. */
static ssize_t peek(int fd, void *head, size_t bytes)
{
    int ends[2];
    ssize_t got;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    do got = tee(fd, ends[1], bytes, 0);
    while (got < 0 && errno == EINTR);
    got = got < 0 ? recv(fd, head, bytes, MSG_PEEK) : read(ends[0], head, (size_t)got);
    close(ends[0]);
    close(ends[1]);
    return got;
}

/* Whether nothing comes, of which nothing can be made. */
static bool is_empty(const char *file)
{
    struct stat about;
    char first;
    if (file) return stat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0;
    if (fstat(STDIN_FILENO, &about) == 0 && is_null(&about)) return true;
    return !isatty(STDIN_FILENO) && peek(STDIN_FILENO, &first, 1) == 0;
}

/* Of a terminal nobody knows before someone types. */
static wo_status recognise(const char *file, woi_file_kind *kind, wo_error *err)
{
    unsigned char head[WOI_HEAD_BYTES];
    *kind = WOI_FILE_XC;
    if (file) return woi_file_recognise(file, kind, err);
    const ssize_t n = isatty(STDIN_FILENO) ? 0 : peek(STDIN_FILENO, head, sizeof head);
    return n > 0 ? woi_head_recognise(head, (size_t)n, kind, err) : WO_OK;
}

/* Arrays are mapped: all that standard input brings, as a file in memory. */
static wo_status keep_input(cli_source *s, wo_error *err)
{
    char bytes[1 << 16];
    const int fd = memfd_create("queries", MFD_CLOEXEC);
    if (fd < 0) return cli_set_error(err, WO_ERR_IO, "what comes cannot be kept: %s", strerror(errno));
    snprintf(s->kept, sizeof s->kept, "/proc/self/fd/%d", fd);
    for (;;) {
        const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
        if (got == 0) return WO_OK;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cli_set_error(err, WO_ERR_IO, "the file cannot be read: %s", strerror(errno));
        for (ssize_t at = 0; at < got;) {
            const ssize_t wrote = write(fd, bytes + at, (size_t)(got - at));
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote < 0) return cli_set_error(err, WO_ERR_IO, "what comes cannot be kept: %s", strerror(errno));
            at += wrote;
        }
    }
}

/* Why queries do not come without a network. */
static wo_status refuse(woi_file_kind kind, wo_error *err)
{
    return cli_set_error(err, WO_ERR_ARGUMENT,
                         kind == WOI_FILE_GZIP ? "is compressed with gzip: unpack it first (gunzip), or name "
                                                 "the network that reads it as text with --net FILE"
                                               : "is text: name the network that makes queries of it with --net FILE");
}

static wo_status open_examples(cli_source *s, const char *path, const cli_source_options *o, const char **at,
                               wo_error *err)
{
    const woi_network *net = o->net;
    static const woi_raw raws[] = {[CLI_FORMAT_AUTO] = WOI_RAW_AUTO,
                                   [CLI_FORMAT_XC] = WOI_RAW_XC,
                                   [CLI_FORMAT_TEXT] = WOI_RAW_TEXT,
                                   [CLI_FORMAT_DEB822] = WOI_RAW_DEB822};
    if (net->d != s->d) {
        *at = o->net_path;
        return cli_set_error(err, WO_ERR_ARGUMENT, "makes queries of %zu numbers, the index takes %zu", net->d, s->d);
    }
    const woi_examples_options options = {.raw = raws[o->format], .base = o->base, .threads = o->threads};
    wo_status status = woi_examples_open(net, path, &options, &s->examples, err);
    if (status == WO_ERR_ARGUMENT) *at = o->net_path;
    return status;
}

wo_status cli_source_open(cli_source *s, const char *path, const cli_source_options *options, const char **at,
                          wo_error *err)
{
    cli_source_options o = *options;
    *s = (cli_source){.d = o.d};
    *at = strcmp(path, "-") == 0 ? "standard input" : path;
    wo_status status = take_pipe(&path, err);
    if (status) return status;
    const char *file = file_of(path);
    /* Text without a line has no answers, as of any filter; queries are at least a header. */
    const bool empty = is_empty(file);
    if (empty && (!o.net || o.format == CLI_FORMAT_LOG || o.format == CLI_FORMAT_NPY))
        return cli_set_error(err, WO_ERR_ARGUMENT, "is empty: expected queries");
    if (o.format == CLI_FORMAT_AUTO && !empty) {
        woi_file_kind kind;
        if ((status = recognise(file, &kind, err))) return status;
        if (kind == WOI_FILE_NPY)
            o.format = CLI_FORMAT_NPY;
        else if (kind == WOI_FILE_SAFETENSORS || kind == WOI_FILE_SHARD_INDEX || kind == WOI_FILE_JOURNAL)
            o.format = CLI_FORMAT_LOG;
        else if (!o.net)
            return refuse(kind, err);
    }
    if (o.format != CLI_FORMAT_LOG && o.format != CLI_FORMAT_NPY) return open_examples(s, path, &o, at, err);
    if (!file && (status = keep_input(s, err))) return status;
    if (!file) file = s->kept;
    return o.format == CLI_FORMAT_LOG ? open_log(s, file, err) : open_npy(s, file, err);
}

/* ---- Batches ----------------------------------------------------------------------------------------------- */

wo_status cli_source_next(cli_source *s, cli_query_batch *batch, bool *more, wo_error *err)
{
    if (s->examples) {
        woi_example_batch got;
        wo_status status = woi_examples_next(s->examples, &got, more, err);
        if (!status) *batch = (cli_query_batch){got.n, got.q, got.lines, got.known};
        return status;
    }
    const size_t left = s->n - s->at, n = left < BATCH ? left : BATCH;
    *batch = (cli_query_batch){n, s->q + s->at * s->d, NULL, NULL};
    *more = n > 0;
    s->at += n;
    return WO_OK;
}

void cli_source_free(cli_source *s)
{
    wo_log_free(s->log);
    woi_examples_free(s->examples);
    free(s->array);
}
