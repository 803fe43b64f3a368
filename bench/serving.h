/* A server that a program of the bench starts, asks over loopback, and stops. */
#ifndef WOI_BENCH_SERVING_H
#define WOI_BENCH_SERVING_H

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline int connect_to(int port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) != 0) return -1;
    return fd;
}

typedef struct server {
    pid_t pid;
    int port;
} server;

/* wideout serve with these arguments, the last NULL, on two threads: as long as this process lives. */
static inline server start_server(const char *tool, const char *const *arguments)
{
    enum { MOST = 32 };
    char ready[] = "/tmp/wideout-load-XXXXXX", line[64] = "";
    const char *command[MOST + 10] = {tool,        "serve", "-q",           "--listen", "127.0.0.1:0",
                                      "--threads", "2",     "--ready-file", ready};
    for (int i = 0; i < MOST && arguments[i]; i++) command[9 + i] = arguments[i];
    const int fd = mkstemp(ready);
    if (fd < 0) die("temporary file");
    close(fd);
    unlink(ready);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* no server outlives this program */
        execv(tool, (char *const *)(uintptr_t)command);
        _exit(127);
    }
    FILE *file = NULL;
    for (int i = 0; i < 3000 && !file; i++, usleep(10000)) {
        file = fopen(ready, "r");
        if (waitpid(pid, NULL, WNOHANG) == pid) break;
    }
    if (!file || !fgets(line, sizeof line, file)) die("the server does not start");
    fclose(file);
    return (server){pid, (int)strtol(strrchr(line, ':') + 1, NULL, 10)};
}

static inline int stop_server(server s)
{
    int status = 0;
    kill(s.pid, SIGTERM);
    waitpid(s.pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
