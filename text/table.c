/* Whether text looks like a table: see text/table.h. */
#include "text/table.h"

#include "text/text.h"

#include <string.h>

/* The values of a line, and whether all are made of what numbers are made of. */
static size_t count_values(const char *line, size_t bytes, char between, bool *numbers)
{
    size_t n = 1;
    bool digits = false;
    *numbers = true;
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] == between) {
            *numbers = *numbers && digits;
            digits = false;
            n++;
        } else if (line[i] >= '0' && line[i] <= '9') {
            digits = true;
        } else if (!memchr("+-.eE \r", line[i], 7)) {
            *numbers = false;
        }
    }
    *numbers = *numbers && digits;
    return n;
}

static bool is_named(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && (strcmp(path + n - 4, ".csv") == 0 || strcmp(path + n - 4, ".tsv") == 0);
}

char woi_table_look(const char *path)
{
    static const char between[] = {',', ';', '\t'};
    enum { KINDS = sizeof between };
    woi_text *text = NULL;
    char *line = NULL, found = 0;
    size_t bytes = 0, values[KINDS];
    bool numbers;
    if (woi_text_open(path, &text, NULL) || woi_text_line(text, &line, &bytes, NULL) || !line) goto done;
    for (size_t i = 0; i < KINDS; i++) values[i] = count_values(line, bytes, between[i], &numbers);
    if (woi_text_line(text, &line, &bytes, NULL) || !line) goto done;
    for (size_t i = 0; i < KINDS && !found; i++) {
        const size_t n = count_values(line, bytes, between[i], &numbers);
        if (values[i] > 1 && n > 1 && ((numbers && n == values[i]) || is_named(path))) found = between[i];
    }
done:
    woi_text_free(text);
    return found;
}
