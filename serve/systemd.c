/* What systemd and a program say to each other, without its library: sockets that it hands over, and that we are ready.
 */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_GIVEN = 3 };

wo_status woi_listen_given(int *listening, wo_error *err)
{
    *listening = -1;
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid() || strtol(n, NULL, 10) < 1) return WO_OK;
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (getsockopt(FIRST_GIVEN, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens) {
        *err = (wo_error){.status = WO_ERR_ARGUMENT,
                          .offset = WO_NO_OFFSET,
                          .text = "the descriptor that LISTEN_FDS speaks of is no socket that listens"};
        return WO_ERR_ARGUMENT;
    }
    fcntl(FIRST_GIVEN, F_SETFD, FD_CLOEXEC);
    fcntl(FIRST_GIVEN, F_SETFL, fcntl(FIRST_GIVEN, F_GETFL) | O_NONBLOCK);
    *listening = FIRST_GIVEN;
    return WO_OK;
}

void woi_notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || strlen(path) < 2 || strlen(path) >= sizeof to.sun_path) return;
    memcpy(to.sun_path, path, strlen(path));
    if (*path == '@') to.sun_path[0] = '\0'; /* a name that is in no folder */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to, bytes) < 0) errno = 0; /* nobody hears */
    close(fd);
}
