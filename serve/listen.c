/* Where the server listens: "127.0.0.1:8080", "[::1]:8080", "localhost:0". */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static wo_status fail(wo_error *err, wo_status status, const char *what, const char *why)
{
    *err = (wo_error){.status = status, .offset = WO_NO_OFFSET};
    snprintf(err->text, sizeof err->text, "%s%s%s", what, why ? ": " : "", why ? why : "");
    return status;
}

/* "HOST:PORT" in two; brackets around an address with colons are taken off. */
static bool split(const char *where, char host[WOI_ADDRESS_BYTES], const char **port)
{
    const char *colon = strrchr(where, ':');
    size_t bytes = colon ? (size_t)(colon - where) : 0;
    if (!bytes || bytes >= WOI_ADDRESS_BYTES || strspn(colon + 1, "0123456789") != strlen(colon + 1) || !colon[1])
        return false;
    const bool brackets = where[0] == '[' && where[bytes - 1] == ']';
    if (!brackets && memchr(where, ':', bytes)) return false;
    if (brackets) where++, bytes -= 2;
    memcpy(host, where, bytes);
    host[bytes] = '\0';
    *port = colon + 1;
    return bytes > 0;
}

static int listen_at(const struct addrinfo *at)
{
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

void woi_listen_describe(int listening, char address[WOI_ADDRESS_BYTES], bool *loopback)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    char host[64] = "?", port[16] = "?";
    if (getsockname(listening, (struct sockaddr *)&at, &bytes) == 0)
        getnameinfo((struct sockaddr *)&at, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(address, WOI_ADDRESS_BYTES, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    *loopback = woi_is_loopback((struct sockaddr *)&at);
}

bool woi_is_loopback(const struct sockaddr *at)
{
    if (at->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24 == 127;
    if (at->sa_family != AF_INET6) return at->sa_family == AF_UNIX;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)at)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

wo_status woi_listen(const char *where, int *listening, wo_error *err)
{
    char host[WOI_ADDRESS_BYTES];
    const char *port;
    if (!split(where, host, &port))
        return fail(err, WO_ERR_ARGUMENT, "expected an address and a port, as 127.0.0.1:8080 or [::1]:8080", NULL);
    if (strlen(port) > 5 || strtol(port, NULL, 10) > 65535) /* getaddrinfo would take what is left of 16 bits */
        return fail(err, WO_ERR_ARGUMENT, "a port is at most 65535", NULL);
    const struct addrinfo how = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const int code = getaddrinfo(host, port, &how, &found);
    if (code) return fail(err, WO_ERR_ARGUMENT, "there is no such address", gai_strerror(code));
    *listening = -1;
    for (const struct addrinfo *at = found; at && *listening < 0; at = at->ai_next) *listening = listen_at(at);
    const int why = errno;
    freeaddrinfo(found);
    return *listening < 0 ? fail(err, WO_ERR_IO, "cannot listen there", strerror(why)) : WO_OK;
}
