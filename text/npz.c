/* Archives of NumPy's. What is in one is listed at its end, and read from there:
 *
 *   ... "PK\1\2" method, crc, sizes, name, place ... | "PK\5\6" entries, bytes and place of that list, comment
 *
 * and at its place each has a header of its own, "PK\3\4", whose length alone matters here. */
#include "text/npz.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/size.h"
#include "store/log.h"
#include "store/map.h"
#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum {
    END_BYTES = 22,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_BYTES = 65535,
    MOST_PACKED = 1032, /* bytes that one byte of deflate can become */
    MOST_GROWTH = 200,  /* and all of a file together, beyond UNPACKED_ANYWAY: padded tables of labels reach 60 */
    UNPACKED_ANYWAY = 64 << 20,
    MOST_SPARE = 2,       /* indices that SciPy may have put aside, beside those that the rows use */
    MOST_USED = 8,        /* members that are read of one archive: 5 of a matrix */
    HEADER_BYTES = 65546, /* before the numbers of a .npy file of version 1, at most */
    NUMBER_BYTES = 32,    /* of the widest type of NumPy's */
    STORED = 0,
    DEFLATED = 8
};

typedef struct archive {
    const unsigned char *map;
    size_t bytes;
    size_t list, n_entries; /* where the list begins; how many it has */
    size_t file_bytes;      /* of all of it */
    /* what was read so far */
    struct range {
        const unsigned char *from, *to;
    } used[MOST_USED];
    size_t n_used, unpacked;
} archive;

/* One file of an archive. */
typedef struct member {
    const char *name; /* not terminated, with its ".npy" */
    size_t name_bytes;
    const unsigned char *packed;
    size_t packed_bytes, bytes;
    uint64_t most_bytes; /* that it may have, by what was read before it */
    uint32_t crc, method;
} member;

/* A member in memory, as an array. */
typedef struct unpacked {
    unsigned char *bytes;
    size_t n_bytes;
    woi_npy npy;
} unpacked;

static uint32_t number(const unsigned char *at, size_t bytes)
{
    uint32_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

/* ---- The archive ------------------------------------------------------------------------------------------- */

static wo_status find_list(archive *zip, wo_error *err)
{
    const size_t least = zip->bytes > END_BYTES + COMMENT_BYTES ? zip->bytes - END_BYTES - COMMENT_BYTES : 0;
    for (size_t at = zip->bytes >= END_BYTES ? zip->bytes - END_BYTES + 1 : 0; at-- > least;) {
        const unsigned char *end = zip->map + at;
        if (memcmp(end, "PK\5\6", 4) != 0) continue;
        const uint32_t list_bytes = number(end + 12, 4), list = number(end + 16, 4);
        if (list > at || list_bytes > at - list)
            return woi_fail(err, WO_ERR_UNSUPPORTED, at,
                            "the list of the archive has %" PRIu32 " bytes at %" PRIu32
                            ", which is beyond its end at %zu, or the archive is larger than 4 GiB",
                            list_bytes, list, at);
        zip->list = list;
        zip->n_entries = number(end + 10, 2);
        zip->bytes = at; /* nothing of use is behind it */
        return WO_OK;
    }
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the archive has no end: it is truncated, or no .npz file");
}

/* The entry at *at of the list, which then is the next one. */
static wo_status take_member(const archive *zip, size_t *at, member *m, wo_error *err)
{
    const unsigned char *entry = zip->map + *at;
    if (zip->bytes - *at < ENTRY_BYTES || memcmp(entry, "PK\1\2", 4) != 0)
        return woi_fail(err, WO_ERR_FORMAT, *at, "the list of the archive is damaged: expected an entry");
    m->name = (const char *)entry + ENTRY_BYTES;
    m->name_bytes = number(entry + 28, 2);
    const size_t all = ENTRY_BYTES + m->name_bytes + number(entry + 30, 2) + number(entry + 32, 2);
    if (all > zip->bytes - *at)
        return woi_fail(err, WO_ERR_FORMAT, *at, "the list of the archive is damaged: an entry of %zu bytes", all);
    m->method = number(entry + 10, 2);
    m->crc = number(entry + 16, 4);
    m->packed_bytes = number(entry + 20, 4);
    m->bytes = number(entry + 24, 4);
    const size_t place = number(entry + 42, 4);
    char quoted[WOI_QUOTE_BYTES];
    woi_quote(quoted, m->name, m->name_bytes);
    if (place > zip->bytes || zip->bytes - place < LOCAL_BYTES || memcmp(zip->map + place, "PK\3\4", 4) != 0)
        return woi_fail(err, WO_ERR_FORMAT, *at, "'%s' should lie at byte %zu of the archive, and does not", quoted,
                        place);
    const unsigned char *local = zip->map + place;
    const size_t skip = LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2), left = zip->bytes - place;
    if (skip > left || m->packed_bytes > left - skip)
        return woi_fail(err, WO_ERR_FORMAT, *at, "'%s' takes %zu bytes at %zu, more than the archive has", quoted,
                        m->packed_bytes, place);
    if (number(entry + 8, 2) & 1 || (m->method != STORED && m->method != DEFLATED))
        return woi_fail(err, WO_ERR_UNSUPPORTED, *at,
                        "'%s' is encrypted, or packed by method %" PRIu32 ": expected stored or deflated", quoted,
                        m->method);
    if (m->method == STORED ? m->bytes != m->packed_bytes : m->bytes / MOST_PACKED > m->packed_bytes)
        return woi_fail(err, WO_ERR_FORMAT, *at, "'%s' has %zu bytes, which its %zu packed ones cannot be", quoted,
                        m->bytes, m->packed_bytes);
    m->packed = local + skip;
    m->most_bytes = UINT64_MAX;
    *at += all;
    return WO_OK;
}

/* *found is false where there is none. */
static wo_status find_member(const archive *zip, const char *name, member *m, bool *found, wo_error *err)
{
    size_t at = zip->list;
    *found = false;
    for (size_t i = 0; i < zip->n_entries; i++) {
        const wo_status status = take_member(zip, &at, m, err);
        if (status) return status;
        *found = !name || (m->name_bytes == strlen(name) && memcmp(m->name, name, m->name_bytes) == 0);
        if (*found) return WO_OK;
    }
    return WO_OK;
}

/* Whether a member may be unpacked. An honest archive has its members one after the other, and what is in them comes
 * to some times its own bytes. */
static wo_status claim(archive *zip, const member *m, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    woi_quote(quoted, m->name, m->name_bytes);
    const struct range own = {m->packed, m->packed + m->packed_bytes};
    if (m->bytes > m->most_bytes)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "'%s' has %zu bytes, more than the numbers that belong there take", quoted, m->bytes);
    for (size_t i = 0; i < zip->n_used; i++)
        if (own.from < zip->used[i].to && zip->used[i].from < own.to)
            return woi_fail(err, WO_ERR_FORMAT, (uint64_t)(own.from - zip->map),
                            "'%s' lies where another array of the archive does", quoted);
    const size_t most = UNPACKED_ANYWAY + MOST_GROWTH * zip->file_bytes;
    if (m->bytes > most - zip->unpacked)
        return woi_fail(
            err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
            "the archive of %zu bytes has more than %zu when it is unpacked: save it without compression, if "
            "it is meant",
            zip->file_bytes, most);
    assert(zip->n_used < MOST_USED);
    zip->used[zip->n_used++] = own;
    zip->unpacked += m->bytes;
    return WO_OK;
}

static wo_status unpack(archive *zip, const member *m, unsigned char **to, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    const wo_status status = claim(zip, m, err);
    if (status) return status;
    if (!(*to = woi_alloc(m->bytes + 1, 1, err))) return WO_ERR_MEMORY;
    if (m->method == STORED) memcpy(*to, m->packed, m->bytes);
    if (m->method == DEFLATED) {
        z_stream z = {.next_in = (unsigned char *)(uintptr_t)m->packed,
                      .avail_in = (uInt)m->packed_bytes,
                      .next_out = *to,
                      .avail_out = (uInt)m->bytes};
        if (inflateInit2(&z, -15) != Z_OK)
            return woi_fail(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory while unpacking");
        const int end = inflate(&z, Z_FINISH);
        const bool whole = end == Z_STREAM_END && z.total_out == m->bytes;
        inflateEnd(&z);
        if (!whole)
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "'%s' cannot be unpacked to its %zu bytes",
                            woi_quote(quoted, m->name, m->name_bytes), m->bytes);
    }
    const uint32_t crc = (uint32_t)crc32(0, *to, (uInt)m->bytes);
    if (crc == m->crc) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "'%s' was changed: its checksum is %08" PRIx32 ", not %08" PRIx32,
                    woi_quote(quoted, m->name, m->name_bytes), crc, m->crc);
}

static void unpacked_free(unpacked *u)
{
    woi_npy_close(&u->npy);
    woi_free(u->bytes);
}

/* Puts the member's name before a failure. */
static wo_status at_member(const member *m, wo_status status, wo_error *err)
{
    char quoted[WOI_QUOTE_BYTES];
    if (status) woi_error_prefix(err, woi_quote(quoted, m->name, m->name_bytes));
    return status;
}

/* Integers of a member of n_dims dimensions at most. */
static wo_status open_integers(archive *zip, const member *m, int n_dims, unpacked *u, wo_error *err)
{
    wo_status status = unpack(zip, m, &u->bytes, err);
    u->n_bytes = m->bytes;
    if (status) return status;
    if ((status = woi_npy_open_memory(u->bytes, m->bytes, &u->npy, err))) return at_member(m, status, err);
    if (u->npy.n_dims < 1 || u->npy.n_dims > n_dims || (u->npy.dtype != WOI_I32 && u->npy.dtype != WOI_I64))
        status =
            woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the array has %d dimensions, of %s: expected %s of I32 or I64",
                     u->npy.n_dims, woi_dtype_name(u->npy.dtype), n_dims == 1 ? "1" : "1 or 2");
    return at_member(m, status, err);
}

/* ---- Labels ------------------------------------------------------------------------------------------------ */

static wo_status take_label(woi_label_lists *lists, size_t *n, size_t row, int64_t label, wo_error *err)
{
    if (label < 0 || label > INT32_MAX)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the label of query %zu is %" PRId64 ", expected 0 to %d",
                        row, label, INT32_MAX);
    lists->labels[(*n)++] = (int32_t)label;
    return WO_OK;
}

/* One array, as in a .npy file. */
static wo_status read_table(archive *zip, const member *m, woi_label_lists *lists, wo_error *err)
{
    unpacked u = {0};
    int64_t *table = NULL;
    size_t used = 0;
    wo_status status = open_integers(zip, m, 2, &u, err);
    if (status) goto done;
    const size_t n = (size_t)u.npy.shape[0], columns = u.npy.n_dims == 2 ? (size_t)u.npy.shape[1] : 1;
    status = WO_ERR_MEMORY;
    if (columns == 0) { /* any number of such rows has no bytes */
        status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the array has rows of no label");
        goto done;
    }
    if (!(table = woi_alloc((size_t)u.npy.n, sizeof *table, err)) ||
        !(lists->indptr = woi_alloc(n + 1, sizeof *lists->indptr, err)) ||
        !(lists->labels = woi_alloc((size_t)u.npy.n, sizeof *lists->labels, err)) ||
        (status = woi_npy_read_i64(&u.npy, table, err)) || (status = woi_labels_no_flags(table, n, columns, err)))
        goto done;
    lists->n = n;
    lists->indptr[0] = 0;
    for (size_t i = 0; !status && i < n; i++) {
        for (size_t c = 0; !status && c < columns; c++) {
            const int64_t label = table[i * columns + c];
            if (label != -1 && label != -100) status = take_label(lists, &used, i, label, err);
        }
        lists->indptr[i + 1] = (int64_t)used;
    }
done:
    woi_free(table);
    unpacked_free(&u);
    return status;
}

/* The four arrays of a CSR matrix that matter. */
typedef struct csr {
    unpacked shape, indptr, indices;
    unsigned char *data; /* of any type: what has no bit set is zero */
    size_t data_bytes, data_start;
    int64_t sizes[2];
    int64_t *starts, *columns;
} csr;

static void csr_free(csr *c)
{
    unpacked_free(&c->shape);
    unpacked_free(&c->indptr);
    unpacked_free(&c->indices);
    woi_free(c->data);
    woi_free(c->starts);
    woi_free(c->columns);
}

/* Bytes of a .npy file of so many numbers, at most; a member has less than 2^32 in any case. */
static uint64_t most_bytes(uint64_t n, size_t number_bytes)
{
    return n > UINT32_MAX ? UINT64_MAX : HEADER_BYTES + n * number_bytes;
}

/* Integers, n of them at most. */
static wo_status open_named(archive *zip, const char *name, uint64_t n, unpacked *u, wo_error *err)
{
    member m;
    bool found;
    wo_status status = find_member(zip, name, &m, &found, err);
    if (!status && !found)
        status =
            woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the archive is no matrix of SciPy's: it has no '%s'", name);
    m.most_bytes = most_bytes(n, sizeof(int64_t));
    return status ? status : open_integers(zip, &m, 1, u, err);
}

/* Whether the header of an array says that it has n numbers in one dimension. How long a number is nobody asks: four of
 * a byte each would be taken for one of four bytes, and labels whose last bytes are zero be lost. */
static bool has_numbers(const char *header, size_t bytes, uint64_t n)
{
    static const char key[] = "'shape':";
    char shape[32];
    const int length = snprintf(shape, sizeof shape, "(%" PRIu64 ",", n);
    const char *at = memmem(header, bytes, key, sizeof key - 1), *end = header + bytes;
    if (!at) return false;
    for (at += sizeof key - 1; at < end && *at == ' ';) at++;
    return end - at > length && memcmp(at, shape, (size_t)length) == 0 && at[length] == ')';
}

/* The numbers of the matrix: any type, as many as there are columns. */
static wo_status open_data(archive *zip, csr *c, wo_error *err)
{
    member m;
    bool found;
    wo_status status = find_member(zip, "data.npy", &m, &found, err);
    if (!status && !found)
        status =
            woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "the archive is no matrix of SciPy's: it has no 'data.npy'");
    m.most_bytes = most_bytes(c->indices.npy.n, NUMBER_BYTES);
    if (!status) status = unpack(zip, &m, &c->data, err);
    if (status) return status;
    const size_t length = m.bytes < 12      ? 0
                          : c->data[6] == 1 ? 10 + number(c->data + 8, 2)
                                            : 12 + (size_t)number(c->data + 8, 4);
    const uint64_t n = c->indices.npy.n;
    if (m.bytes < 12 || length > m.bytes || !has_numbers((const char *)c->data + 10, length - 10, n) ||
        (n ? m.bytes == length || (m.bytes - length) % n : m.bytes > length))
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "'data.npy' of %zu bytes has no number for each of the %" PRIu64 " indices", m.bytes, n);
    c->data_start = length;
    c->data_bytes = n ? (m.bytes - length) / n : 0;
    return WO_OK;
}

static bool is_zero(const csr *c, size_t i)
{
    const unsigned char *at = c->data + c->data_start + i * c->data_bytes;
    for (size_t j = 0; j < c->data_bytes; j++)
        if (at[j]) return false;
    return true;
}

/* Each array says how long the next may be, before that is unpacked. */
static wo_status read_csr_arrays(archive *zip, csr *c, wo_error *err)
{
    wo_status status;
    if ((status = open_named(zip, "shape.npy", 2, &c->shape, err))) return status;
    if (c->shape.npy.n != 2)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "'shape.npy' has %" PRIu64 " numbers, expected 2",
                        c->shape.npy.n);
    if ((status = woi_npy_read_i64(&c->shape.npy, c->sizes, err)) ||
        (status = open_named(zip, "indptr.npy", c->sizes[0] < 0 ? 1 : (uint64_t)c->sizes[0] + 1, &c->indptr, err)))
        return status;
    const uint64_t rows = c->indptr.npy.n;
    if (c->sizes[0] < 0 || rows == 0 || (uint64_t)c->sizes[0] != rows - 1)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "'indptr.npy' has %" PRIu64 " numbers, expected one more than the %" PRId64 " rows", rows,
                        c->sizes[0]);
    if (!(c->starts = woi_alloc((size_t)rows, sizeof *c->starts, err))) return WO_ERR_MEMORY;
    if ((status = woi_npy_read_i64(&c->indptr.npy, c->starts, err))) return status;
    const int64_t last = c->starts[rows - 1];
    if ((status = open_named(zip, "indices.npy", last < 0 ? 0 : MOST_SPARE * (uint64_t)last, &c->indices, err)) ||
        (status = open_data(zip, c, err)))
        return status;
    if (!(c->columns = woi_alloc((size_t)c->indices.npy.n, sizeof *c->columns, err))) return WO_ERR_MEMORY;
    return woi_npy_read_i64(&c->indices.npy, c->columns, err);
}

static wo_status read_csr(archive *zip, woi_label_lists *lists, wo_error *err)
{
    csr c = {0};
    wo_status status = read_csr_arrays(zip, &c, err);
    if (status) goto done;
    const size_t n = (size_t)c.sizes[0];
    const int64_t n_indices = (int64_t)c.indices.npy.n;
    size_t used = 0;
    status = WO_ERR_MEMORY;
    if (!(lists->indptr = woi_alloc(n + 1, sizeof *lists->indptr, err)) ||
        !(lists->labels = woi_alloc((size_t)n_indices, sizeof *lists->labels, err)))
        goto done;
    status = WO_OK;
    lists->n = n;
    lists->indptr[0] = 0;
    for (size_t i = 0; !status && i < n; i++) {
        const int64_t from = c.starts[i], to = c.starts[i + 1];
        if (from < 0 || to < from || to > n_indices || (i == 0 && from != 0))
            status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                              "row %zu of the matrix goes from %" PRId64 " to %" PRId64 " of %" PRId64 " indices", i,
                              from, to, n_indices);
        for (int64_t j = from; !status && j < to; j++) {
            if (c.columns[j] >= c.sizes[1])
                status = woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                                  "row %zu has column %" PRId64 ", which is not below the %" PRId64 " of the matrix", i,
                                  c.columns[j], c.sizes[1]);
            else if (!is_zero(&c, (size_t)j))
                status = take_label(lists, &used, i, c.columns[j], err);
        }
        lists->indptr[i + 1] = (int64_t)used;
    }
done:
    csr_free(&c);
    return status;
}

/* "csr": an array of letters, which ends its file. */
static wo_status check_format(archive *zip, member *m, wo_error *err)
{
    unsigned char *bytes = NULL;
    char quoted[WOI_QUOTE_BYTES];
    m->most_bytes = most_bytes(1, NUMBER_BYTES);
    wo_status status = unpack(zip, m, &bytes, err);
    const size_t n = m->bytes < 3 ? m->bytes : 3;
    const char *format = status ? "" : (const char *)bytes + m->bytes - n;
    if (!status && (n < 3 || memcmp(format, "csr", 3) != 0))
        status = woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET,
                          "the matrix has the format '%s', expected 'csr': save it with .tocsr()",
                          woi_quote(quoted, format, n));
    woi_free(bytes);
    return status;
}

static wo_status read_archive(archive *zip, woi_label_lists *lists, wo_error *err)
{
    member m;
    bool found;
    wo_status status = find_list(zip, err);
    if (!status) status = find_member(zip, "format.npy", &m, &found, err);
    if (status) return status;
    if (found) {
        status = check_format(zip, &m, err);
        return status ? status : read_csr(zip, lists, err);
    }
    if (zip->n_entries != 1)
        return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                        "the archive has %zu arrays: expected one, of labels, or a CSR matrix of SciPy's",
                        zip->n_entries);
    if ((status = find_member(zip, NULL, &m, &found, err))) return status;
    return read_table(zip, &m, lists, err);
}

/* ---- Outside ----------------------------------------------------------------------------------------------- */

bool woi_npz_look(const char *path)
{
    const void *map = NULL;
    size_t bytes = 0;
    if (woi_map(path, &map, &bytes, NULL)) return false;
    const bool zip = bytes >= 4 && (memcmp(map, "PK\3\4", 4) == 0 || memcmp(map, "PK\5\6", 4) == 0);
    woi_unmap(map, bytes);
    return zip;
}

wo_status woi_npz_labels(const char *path, woi_label_lists *lists, wo_error *err)
{
    const void *map = NULL;
    archive zip = {0};
    memset(lists, 0, sizeof *lists);
    wo_status status = woi_map(path, &map, &zip.bytes, err);
    if (status) return status;
    zip.map = map;
    const size_t bytes = zip.file_bytes = zip.bytes;
    status = read_archive(&zip, lists, err);
    woi_unmap(map, bytes);
    if (status) woi_label_lists_free(lists);
    return status;
}

void woi_label_lists_free(woi_label_lists *lists)
{
    woi_free(lists->indptr);
    woi_free(lists->labels);
    memset(lists, 0, sizeof *lists);
}
