/* Who may ask what.
 *
 *   for all       health
 *   for clients   searches and metrics: whoever brings the token; everyone, where there is none
 *   for admins    what changes the server: whoever brings the token; without one only this machine
 *
 * A browser is on this machine too, and any page that it shows can make it ask. So what is for admins is refused where
 * a request names another origin than the server itself; and without a token, where the server was not asked by an
 * address of this machine, which a name that leads here (DNS rebinding) is not, or where a proxy says that it passes it
 * on. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_TOKEN = 4096, PIPE_MS = 2000 };

/* The first line of the file. A pipe, as of a shell's <(...), is waited for as long, and not for ever: the server does
 * not hear signals meanwhile. */
static bool read_line(const char *path, char *line, size_t room, char *why, size_t why_room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const double end = woi_now_s() + 1e-3 * PIPE_MS;
    ssize_t got = fd < 0 ? -1 : 1;
    size_t n = 0;
    *why = '\0';
    while (got > 0 && n + 1 < room && !memchr(line, '\n', n)) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        const double left = end - woi_now_s();
        if (poll(&ready, 1, left > 0 ? (int)(1e3 * left) : 0) == 0) {
            snprintf(why, why_room, "cannot be read: nothing came out of it within %d seconds", PIPE_MS / 1000);
            break;
        }
        got = read(fd, line + n, room - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (got < 0) snprintf(why, why_room, "cannot be read: %s", strerror(errno));
    line[n] = '\0';
    if (fd >= 0) close(fd);
    return !*why;
}

wo_status woi_token_read(const char *path, char **token, wo_error *err)
{
    char line[LONGEST_TOKEN + 2] = "";
    *err = (wo_error){.offset = WO_NO_OFFSET};
    if (!read_line(path, line, sizeof line, err->text, sizeof err->text)) return err->status = WO_ERR_IO;
    const size_t bytes = strcspn(line, "\r\n");
    line[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++)
        if (line[i] <= ' ' || line[i] > '~') {
            snprintf(err->text, sizeof err->text, "the token has a space, or what is no ASCII, at place %zu", i);
            return err->status = WO_ERR_FORMAT;
        }
    if (bytes < 16 || bytes > LONGEST_TOKEN) {
        snprintf(err->text, sizeof err->text, "the token has %zu characters, expected 16 to %d", bytes, LONGEST_TOKEN);
        return err->status = WO_ERR_FORMAT;
    }
    if ((*token = strdup(line))) return WO_OK;
    snprintf(err->text, sizeof err->text, "out of memory");
    return err->status = WO_ERR_MEMORY;
}

/* Takes as long for a token that is nearly right as for one that is not at all. */
static bool same_secret(const char *expected, const char *given)
{
    const size_t n = strlen(expected), m = strlen(given);
    volatile unsigned char differs = n != m;
    for (size_t i = 0; i < m; i++) differs = differs | (unsigned char)(given[i] ^ expected[i % n]);
    return !differs;
}

static bool has_token(const woi_server *server, const woi_request *request)
{
    static const char scheme[] = "Bearer ";
    const char *given = request->header(request->ctx, "Authorization");
    return server->token && given && strncasecmp(given, scheme, sizeof scheme - 1) == 0 &&
           same_secret(server->token, given + sizeof scheme - 1);
}

/* "127.0.0.1:8080", "[::1]", "localhost" */
static bool names_loopback(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; host && i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) != 0) continue;
        const char *rest = host + n;
        if (!*rest || (*rest == ':' && !rest[1 + strspn(rest + 1, "0123456789")])) return true;
    }
    return false;
}

/* Whether the page that makes a request, if it is one, came from here. */
static bool own_origin(const char *origin, const char *host)
{
    if (!origin) return true;
    const char *rest = strstr(origin, "://");
    return rest && host && strcasecmp(rest + 3, host) == 0;
}

/* Whether a proxy says that it passes the request on. */
static bool passed_on(const woi_request *request)
{
    static const char *const names[] = {"Forwarded",        "Via",
                                        "X-Real-IP",        "X-Client-IP",
                                        "True-Client-IP",   "CF-Connecting-IP",
                                        "Fastly-Client-IP", "X-Cluster-Client-IP"};
    static const char prefix[] = "X-Forwarded-";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (request->header(request->ctx, names[i])) return true;
    const char *name;
    for (size_t i = 0; (name = request->name_at(request->ctx, WOI_HEADERS, i)); i++)
        if (strncasecmp(name, prefix, sizeof prefix - 1) == 0) return true;
    return false;
}

/* Whether a browser says that another site made it ask. */
static bool of_other_site(const woi_request *request)
{
    const char *site = request->header(request->ctx, "Sec-Fetch-Site");
    return site && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0;
}

static bool may_admin(const woi_server *server, const woi_request *request, woi_reply *reply)
{
    const char *host = request->header(request->ctx, "Host");
    if (!own_origin(request->header(request->ctx, "Origin"), host) || of_other_site(request))
        return woi_refuse(reply, 403, "a page of another origin may not ask for this");
    if (server->token) return true;
    return (request->loopback && names_loopback(host) && !passed_on(request)) ||
           woi_refuse(reply, 403, "without a token this machine alone may ask for this, by its loopback address");
}

bool woi_may(const woi_server *server, const woi_request *request, woi_access access, woi_reply *reply)
{
    if (access == WOI_FOR_ALL) return true;
    if (server->token && !has_token(server, request))
        return woi_refuse(reply, 401,
                          "the request needs the header 'Authorization: Bearer TOKEN' with the right token");
    return access == WOI_FOR_CLIENTS || may_admin(server, request, reply);
}
