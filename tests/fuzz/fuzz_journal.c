/* Any bytes as a journal: refused with a sentence, or a log whose labels can be read; and one that can be gone on with.
 */
#include "fuzz.h"

#include "store/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[32];
    int fd = fuzz_file(data, bytes, path);
    wo_log *log = NULL;
    wo_journal *journal = NULL;
    wo_error err = {0};
    size_t n = 0, d = 1;
    const wo_status status = wo_log_open(path, &log, &err);
    if (status != WO_OK && !err.text[0]) abort();
    if (status == WO_OK) {
        const int64_t *indptr;
        const int32_t *labels = wo_log_labels(log, &indptr);
        n = wo_log_n(log);
        d = wo_log_d(log);
        for (int64_t i = 0; indptr && i < indptr[n]; i++)
            if (labels[i] < 0) abort();
    }
    const float *query = calloc(d, sizeof *query);
    if (!query) abort();
    if (wo_journal_open(path, d, &journal, &err) == WO_OK) {
        wo_log *again = NULL;
        if (log && log->file.queries) abort(); /* another file than a journal is not written to */
        if (wo_journal_append(journal, query, 1, (int64_t[]){0, 1}, (int32_t[]){7}, &err) != WO_OK) abort();
        if (wo_log_open(path, &again, &err) != WO_OK || wo_log_n(again) != n + 1) abort();
        wo_log_free(again);
    }
    wo_journal_free(journal);
    wo_log_free(log);
    free((void *)(uintptr_t)query);
    close(fd);
    return 0;
}
