/* Names by line: see text/names_text.h. */
#include "text/names_text.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/text.h"

#include <inttypes.h>

wo_status woi_names_print(const woi_names *names, woi_outfile *out, wo_error *err)
{
    wo_status status = WO_OK;
    for (int32_t i = 0; !status && i < names->n; i++) {
        status = woi_outfile_write(out, woi_names_get(names, i), woi_names_bytes(names, i), err);
        if (!status) status = woi_outfile_write(out, "\n", 1, err);
    }
    return status;
}

wo_status woi_names_read(const char *path, woi_names *names, wo_error *err)
{
    woi_text *text = NULL;
    wo_status status = woi_text_open(path, &text, err);
    while (!status) {
        char *line;
        size_t bytes;
        if ((status = woi_text_line(text, &line, &bytes, err)) || !line) break;
        status = woi_utf8_valid(line, bytes) ? woi_names_append(names, line, bytes, err)
                                             : woi_fail(err, WO_ERR_FORMAT, woi_text_offset(text),
                                                        "line %" PRIu64 " is not UTF-8", woi_text_line_number(text));
    }
    woi_text_free(text);
    if (status) woi_names_free(names);
    return status;
}
