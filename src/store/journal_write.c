/* Writing journals: see journal.h. A call's records go to the system before it returns, so that a process that is
 * killed afterwards loses nothing. What a disk that loses power has is what was synced. */
#include "base/error.h"
#include "base/mem.h"
#include "store/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct wo_journal {
    int fd;
    char *path;
    size_t d;
    uint64_t bytes; /* that are good */
    unsigned char *buffer;
    size_t room;
};

static wo_status fail_output(wo_error *err, const char *what, int errnum)
{
    return woi_about(err, WO_ABOUT_OUTPUT, woi_fail_errno(err, what, errnum));
}

/* Whether the file is what was written, under its name: a record behind a hole is not read again, nor is one in a file
 * that nobody finds. */
static wo_status check_place(const wo_journal *j, wo_error *err)
{
    struct stat own, named;
    if (fstat(j->fd, &own) != 0) return fail_output(err, "the file cannot be looked at", errno);
    if (stat(j->path, &named) != 0 || named.st_dev != own.st_dev || named.st_ino != own.st_ino)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_OUTPUT, "",
                              "the journal was removed, moved or replaced while it was in use");
    if ((uint64_t)own.st_size != j->bytes)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_OUTPUT, "",
                              "the journal was changed while it was in use: it has %lld bytes, %llu were written",
                              (long long)own.st_size, (unsigned long long)j->bytes);
    return WO_OK;
}

/* All of it at the end of the file, or nothing. */
static wo_status write_end(wo_journal *j, const void *data, size_t bytes, wo_error *err)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t wrote = pwrite(j->fd, (const char *)data + done, bytes - done, (off_t)(j->bytes + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            const wo_status status = fail_output(err, "the file cannot be written", wrote < 0 ? errno : ENOSPC);
            if (ftruncate(j->fd, (off_t)j->bytes) != 0) errno = 0; /* a torn tail: readers leave it out */
            return status;
        }
        done += (size_t)wrote;
    }
    j->bytes += bytes;
    return WO_OK;
}

/* What is there: checked, and its torn tail cut off. */
static wo_status take_over(wo_journal *j, size_t bytes, wo_error *err)
{
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, j->fd, 0);
    if (data == MAP_FAILED) return fail_output(err, "the file cannot be mapped", errno);
    unsigned char header[WOI_JOURNAL_HEADER_BYTES];
    woi_journal_header(j->d, header);
    woi_journal_extent extent = {0};
    wo_status status = WO_OK;
    /* One that was killed before its header was whole has no record. */
    if (bytes >= sizeof header || memcmp(data, header, bytes) != 0)
        status = woi_journal_scan(data, bytes, &extent, err);
    munmap(data, bytes);
    if (!status && extent.d && extent.d != j->d)
        status = woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "the journal's queries have %zu numbers, expected %zu",
                          extent.d, j->d);
    if (status) return woi_about(err, WO_ABOUT_OUTPUT, status);
    j->bytes = extent.bytes;
    if (extent.bytes < bytes && ftruncate(j->fd, (off_t)extent.bytes) != 0)
        return fail_output(err, "the journal cannot be cut to its good records", errno);
    return WO_OK;
}

static wo_status open_file(const char *path, wo_journal *j, wo_error *err)
{
    j->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (j->fd < 0) return fail_output(err, "the file cannot be opened", errno);
    struct stat about;
    if (fstat(j->fd, &about) != 0) return fail_output(err, "the file cannot be looked at", errno);
    if (!S_ISREG(about.st_mode))
        return woi_fail_about(err, WO_ERR_IO, WO_ABOUT_OUTPUT, "", "the path is not a plain file");
    if (flock(j->fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? woi_fail_about(err, WO_ERR_IO, WO_ABOUT_OUTPUT, "", "another process writes to the journal")
                   : fail_output(err, "the file cannot be locked", errno);
    const wo_status status = about.st_size ? take_over(j, (size_t)about.st_size, err) : WO_OK;
    if (status || j->bytes) return status;
    unsigned char header[WOI_JOURNAL_HEADER_BYTES];
    woi_journal_header(j->d, header);
    return write_end(j, header, sizeof header, err);
}

wo_status wo_journal_open(const char *path, size_t d, wo_journal **journal, wo_error *err)
{
    *journal = NULL;
    if (d < 1 || d > UINT32_MAX)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "d", "queries of %zu numbers are none", d);
    wo_journal *j = woi_alloc_zero(1, sizeof *j, err);
    if (!j) return WO_ERR_MEMORY;
    j->fd = -1;
    j->d = d;
    j->path = woi_copy_text(path, strlen(path), err);
    const wo_status status = j->path ? open_file(path, j, err) : WO_ERR_MEMORY;
    if (status)
        wo_journal_free(j);
    else
        *journal = j;
    return status;
}

wo_status wo_journal_append(wo_journal *j, const float *queries, size_t n, const int64_t *indptr, const int32_t *labels,
                            wo_error *err)
{
    int64_t most;
    if (!n) return WO_OK;
    wo_status status = woi_labelled_check(queries, n, indptr, labels, &most, err);
    size_t bytes = 0;
    for (size_t i = 0; !status && i < n; i++) {
        const size_t n_labels = (size_t)(indptr[i + 1] - indptr[i]);
        bytes += woi_journal_record_bytes(j->d, n_labels);
        if (n_labels > WOI_JOURNAL_MOST_LABELS)
            status = woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_QUERY, "", "query %zu has %zu labels, at most %d", i,
                                    n_labels, WOI_JOURNAL_MOST_LABELS);
    }
    if (!status) status = woi_grow(&j->buffer, &j->room, 0, bytes, 1, err);
    if (!status) status = check_place(j, err);
    if (status) return status;
    unsigned char *to = j->buffer;
    for (size_t i = 0; i < n; i++) {
        const woi_journal_record record = {queries + i * j->d, labels ? labels + indptr[i] : NULL,
                                           (size_t)(indptr[i + 1] - indptr[i])};
        woi_journal_put(&record, j->d, j->bytes + (uint64_t)(to - j->buffer), to);
        to += woi_journal_record_bytes(j->d, record.n_labels);
    }
    return write_end(j, j->buffer, bytes, err);
}

wo_status wo_journal_sync(wo_journal *j, wo_error *err)
{
    const wo_status status = check_place(j, err);
    if (status) return status;
    return fdatasync(j->fd) == 0 ? WO_OK : fail_output(err, "the file cannot be brought to the disk", errno);
}

void wo_journal_free(wo_journal *j)
{
    if (!j) return;
    if (j->fd >= 0) close(j->fd);
    woi_free(j->buffer);
    woi_free(j->path);
    woi_free(j);
}
