/* One line of JSON for each request, written in one piece: lines of several threads do not mix. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A pipe that nobody reads would keep the server waiting, deaf to signals: it is refused. One whose reader is slow
 * loses lines, because no request waits for it. -1: errno says why. */
static int open_log(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

wo_status woi_access_open(woi_server *server, wo_error *err)
{
    const char *path = server->options.access_log;
    server->access_log = -1;
    if (!path) return WO_OK;
    server->access_log = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open_log(path);
    if (server->access_log >= 0) return WO_OK;
    *err = (wo_error){.status = WO_ERR_IO, .offset = WO_NO_OFFSET};
    snprintf(err->text, sizeof err->text, "cannot be written: %s",
             errno == ENXIO ? "it is a pipe that nobody reads" : strerror(errno));
    return WO_ERR_IO;
}

void woi_access_reopen(woi_server *server)
{
    const char *path = server->options.access_log;
    if (!path || strcmp(path, "-") == 0) return;
    const int fd = open_log(path);
    if (fd < 0) return;           /* the old one goes on */
    dup2(fd, server->access_log); /* in one step: whoever writes has one or the other */
    close(fd);
}

void woi_access_write(woi_server *server, const woi_access_line *line, const woi_reply *reply)
{
    if (server->access_log < 0) return;
    const double now = woi_clock(CLOCK_REALTIME);
    const time_t second = (time_t)now;
    struct tm parts;
    char when[32];
    gmtime_r(&second, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    woi_out out = {0};
    woi_out_format(&out, "{\"time\": \"%s.%06ldZ\", \"peer\": ", when, (long)(1e6 * (now - (double)second)));
    woi_out_json_text(&out, line->peer);
    woi_out_text(&out, ", \"method\": ");
    woi_out_json_text(&out, line->method);
    woi_out_text(&out, ", \"path\": ");
    woi_out_json_text(&out, line->path);
    woi_out_format(&out, ", \"status\": %d, \"queries\": %zu, \"k\": %zu, \"bytes_in\": %zu, \"bytes_out\": %zu, ",
                   reply->status, reply->n_queries, reply->n_k, line->bytes_in, line->bytes_out);
    woi_out_format(&out, "\"us\": %.1f", 1e6 * line->seconds);
    if (reply->checksum) woi_out_format(&out, ", \"index\": \"%016" PRIx64 "\"", reply->checksum);
    woi_out_text(&out, "}\n");
    if (!out.failed && write(server->access_log, out.text, out.bytes) < 0) errno = 0; /* a full disk ends no request */
    woi_out_free(&out);
}
