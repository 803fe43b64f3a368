/* What the server says on standard error. Names of files, and sentences about what is in them, may have been chosen by
 * somebody else: nothing of them is obeyed by a terminal, or begins a line of a log. */
#include "server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void woi_say(const char *format, ...)
{
    woi_out line = {0};
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int bytes = vasprintf(&text, format, args);
    va_end(args);
    if (bytes < 0) return;
    woi_out_text(&line, "wideout serve: ");
    woi_out_clean(&line, text, (size_t)bytes);
    woi_out_text(&line, "\n");
    if (!line.failed && write(STDERR_FILENO, line.text, line.bytes) < 0) errno = 0; /* nobody to tell */
    woi_out_free(&line);
    free(text);
}
