/* Journals: logs that grow a query at a time, and survive the end of the process that writes them.
 *
 *   header   magic (8 bytes) | version u32 | d u32 | XXH3 of the 16 bytes before, u64
 *   record   mark u32 | labels u32 | query (d) F32 | labels I32 | XXH3 of the record so far, seeded with its offset,
 * u64
 *
 * All little-endian, records one behind the other. A process that is killed leaves at most one record in part, at the
 * end: a torn tail, which readers leave out and a writer cuts off. A record that is not what was written and has a good
 * one behind it is no torn tail: the file is damaged, and refused. */
#ifndef WOI_STORE_JOURNAL_H
#define WOI_STORE_JOURNAL_H

#include "store/log.h"

#define WOI_JOURNAL_MAGIC "\x89WOJ\r\n\x1a\n"
enum {
    WOI_JOURNAL_MAGIC_BYTES = 8,
    WOI_JOURNAL_HEADER_BYTES = 24,
    WOI_JOURNAL_VERSION = 1,
    WOI_JOURNAL_MOST_LABELS = 1 << 20 /* of a record */
};

/* What a file holds, as far as it is good. */
typedef struct woi_journal_extent {
    size_t d, n, n_labels;
    size_t bytes; /* the header and all good records; a torn tail lies behind */
} woi_journal_extent;

wo_status woi_journal_scan(const void *data, size_t bytes, woi_journal_extent *extent, wo_error *err);

/* A journal as a log: queries and labels are copies. `log` is zeroed before; on failure too it is to be
 * freed. */
wo_status woi_journal_read(const char *path, wo_log *log, wo_error *err);

/* A header for queries of d numbers; and a record's size, its bytes (of room enough) at an offset of the file. */
void woi_journal_header(size_t d, unsigned char header[WOI_JOURNAL_HEADER_BYTES]);

typedef struct woi_journal_record {
    const float *query;
    const int32_t *labels;
    size_t n_labels;
} woi_journal_record;
size_t woi_journal_record_bytes(size_t d, size_t n_labels);
void woi_journal_put(const woi_journal_record *record, size_t d, uint64_t offset, unsigned char *to);

#endif
