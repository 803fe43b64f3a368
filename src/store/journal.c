/* Journals as bytes, and as logs: see journal.h. */
#include "store/journal.h"

#include "base/error.h"
#include "base/mem.h"
#include "store/map.h"

#include <inttypes.h>
#include <string.h>

#define XXH_INLINE_ALL /* no library call to fail */
#include <xxhash.h>

#define MARK 0x724a4f57U /* "WOJr" */
enum { FRAME_BYTES = 16, MOST_HASHED = 8 };

/* ---- Bytes ------------------------------------------------------------------------------------------------- */

static uint32_t get32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void put64(unsigned char *to, uint64_t value)
{
    memcpy(to, &value, sizeof value);
}

void woi_journal_header(size_t d, unsigned char header[WOI_JOURNAL_HEADER_BYTES])
{
    const uint32_t numbers[] = {WOI_JOURNAL_VERSION, (uint32_t)d};
    memcpy(header, WOI_JOURNAL_MAGIC, WOI_JOURNAL_MAGIC_BYTES);
    memcpy(header + 8, numbers, sizeof numbers);
    put64(header + 16, XXH3_64bits(header, 16));
}

size_t woi_journal_record_bytes(size_t d, size_t n_labels)
{
    return FRAME_BYTES + 4 * (d + n_labels);
}

void woi_journal_put(const woi_journal_record *record, size_t d, uint64_t offset, unsigned char *to)
{
    const uint32_t head[] = {MARK, (uint32_t)record->n_labels};
    const size_t bytes = woi_journal_record_bytes(d, record->n_labels);
    memcpy(to, head, sizeof head);
    memcpy(to + 8, record->query, 4 * d);
    if (record->n_labels) memcpy(to + 8 + 4 * d, record->labels, 4 * record->n_labels);
    put64(to + bytes - 8, XXH3_64bits_withSeed(to, bytes - 8, offset));
}

/* The bytes of the record at `at`; 0: there is no whole one. */
static size_t record_at(const unsigned char *data, size_t bytes, size_t d, size_t at)
{
    if (bytes - at < FRAME_BYTES || get32(data + at) != MARK) return 0;
    const uint64_t n_labels = get32(data + at + 4), size = FRAME_BYTES + 4 * ((uint64_t)d + n_labels);
    if (n_labels > WOI_JOURNAL_MOST_LABELS || size > bytes - at) return 0;
    const uint64_t sum = get64(data + at + size - 8);
    return XXH3_64bits_withSeed(data + at, (size_t)size - 8, at) == sum ? (size_t)size : 0;
}

/* Whether there is a good record behind a bad one. A file made to take long to look through has none that counts. */
static bool good_behind(const unsigned char *data, size_t bytes, size_t d, size_t at)
{
    uint64_t hashed = 0;
    for (at += 4; at < bytes && bytes - at >= FRAME_BYTES && hashed / MOST_HASHED <= bytes; at += 4) {
        if (get32(data + at) != MARK) continue;
        if (record_at(data, bytes, d, at)) return true;
        hashed += FRAME_BYTES + 4 * ((uint64_t)d + get32(data + at + 4));
    }
    return false;
}

wo_status woi_journal_scan(const void *from, size_t bytes, woi_journal_extent *extent, wo_error *err)
{
    const unsigned char *data = from;
    *extent = (woi_journal_extent){0};
    if (bytes < WOI_JOURNAL_MAGIC_BYTES || memcmp(data, WOI_JOURNAL_MAGIC, WOI_JOURNAL_MAGIC_BYTES) != 0)
        return woi_fail(err, WO_ERR_FORMAT, 0, "the file is no journal: it begins otherwise");
    if (bytes < WOI_JOURNAL_HEADER_BYTES)
        return woi_fail(err, WO_ERR_FORMAT, 8, "the journal has %zu bytes, its header alone has %d", bytes,
                        WOI_JOURNAL_HEADER_BYTES);
    if (get64(data + 16) != XXH3_64bits(data, 16))
        return woi_fail(err, WO_ERR_CHECKSUM, 16, "the header of the journal is damaged: its checksum differs");
    if (get32(data + 8) != WOI_JOURNAL_VERSION)
        return woi_fail(err, WO_ERR_UNSUPPORTED, 8, "the journal has version %" PRIu32 ", this program reads %d",
                        get32(data + 8), WOI_JOURNAL_VERSION);
    const size_t d = extent->d = get32(data + 12);
    if (!d) return woi_fail(err, WO_ERR_FORMAT, 12, "the journal's queries have no numbers");
    size_t at = WOI_JOURNAL_HEADER_BYTES;
    for (size_t size; at < bytes && (size = record_at(data, bytes, d, at)); at += size) {
        const size_t n_labels = get32(data + at + 4);
        for (size_t i = 0; i < n_labels; i++) {
            const int32_t label = (int32_t)get32(data + at + 8 + 4 * (d + i));
            if (label < 0)
                return woi_fail(err, WO_ERR_FORMAT, at + 8 + 4 * (d + i),
                                "record %zu has label %" PRId32 ", expected 0 or more", extent->n, label);
        }
        extent->n++;
        extent->n_labels += n_labels;
    }
    extent->bytes = at;
    if (at < bytes && good_behind(data, bytes, d, at))
        return woi_fail(err, WO_ERR_CHECKSUM, at, "record %zu of the journal is damaged: others follow it", extent->n);
    return WO_OK;
}

/* ---- As a log ---------------------------------------------------------------------------------------------- */

static wo_status take(const unsigned char *data, const woi_journal_extent *extent, wo_log *log, wo_error *err)
{
    const size_t d = extent->d;
    woi_log *own = &log->file;
    log->n = extent->n;
    log->d = d;
    log->max_label = -1;
    log->queries = log->copy = woi_alloc(extent->n, d * sizeof *log->copy, err);
    log->indptr = own->indptr = woi_alloc(extent->n + 1, sizeof *own->indptr, err);
    log->labels = own->labels = woi_alloc(extent->n_labels, sizeof *own->labels, err);
    if (!log->copy || !own->indptr || !own->labels) return WO_ERR_MEMORY;
    const unsigned char *at = data + WOI_JOURNAL_HEADER_BYTES;
    own->indptr[0] = 0;
    for (size_t i = 0; i < extent->n; i++) {
        const size_t n_labels = get32(at + 4);
        int32_t *labels = own->labels + own->indptr[i];
        memcpy(log->copy + i * d, at + 8, 4 * d);
        if (n_labels) memcpy(labels, at + 8 + 4 * d, 4 * n_labels);
        for (size_t j = 0; j < n_labels; j++)
            if (labels[j] > log->max_label) log->max_label = labels[j];
        own->indptr[i + 1] = own->indptr[i] + (int64_t)n_labels;
        at += woi_journal_record_bytes(d, n_labels);
    }
    return WO_OK;
}

wo_status woi_journal_read(const char *path, wo_log *log, wo_error *err)
{
    const void *data = NULL;
    size_t bytes = 0;
    woi_journal_extent extent;
    wo_status status = woi_map(path, &data, &bytes, err);
    if (status) return status;
    status = woi_journal_scan(data, bytes, &extent, err);
    if (!status) status = take(data, &extent, log, err);
    if (!status) log->torn_bytes = bytes - extent.bytes;
    woi_unmap(data, bytes);
    return status;
}
