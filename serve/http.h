/* The port: connections, requests that come over them, and a watch on those that come too slowly. */
#ifndef WOI_SERVE_HTTP_H
#define WOI_SERVE_HTTP_H

#include "server.h"

typedef struct woi_http woi_http;

/* Takes requests from now on, on threads of its own. The socket listens already; it is closed in any case. */
wo_status woi_http_start(woi_server *server, int listening, woi_http **http, wo_error *err);
/* Ends requests and connections whose time is over: to be called about every second. */
void woi_http_watch(woi_http *http);
/* Takes no new connections. */
void woi_http_quiesce(woi_http *http);
void woi_http_stop(woi_http *http);

/* listen.c: a socket that listens at "ADDRESS:PORT". */
wo_status woi_listen(const char *where, int *listening, wo_error *err);
/* systemd.c: the socket that it hands over (LISTEN_FDS), -1 where it does not; and a word to it, where it wants to hear
 * (NOTIFY_SOCKET). */
wo_status woi_listen_given(int *listening, wo_error *err);
void woi_notify(const char *text);
/* ready.c: a file that says where, in one line; what is no plain file is written to and stays. It is opened before
 * anyone is told where, and then written. */
typedef struct woi_ready_file {
    const char *path;
    char beside[4096]; /* the name of the file that is made, until it has that of the path; "": none is */
    int fd;            /* of that file, open as long as it may have to be known again; -1: there is none */
} woi_ready_file;
wo_status woi_ready_open(woi_ready_file *ready, const char *path, wo_error *err);
wo_status woi_ready_write(woi_ready_file *ready, const char *address, wo_error *err);
void woi_ready_remove(const woi_ready_file *ready); /* where it still is ours */
/* Where a socket listens, with the port that it has, and whether this machine alone can reach it. */
enum { WOI_ADDRESS_BYTES = 96 };
void woi_listen_describe(int listening, char address[WOI_ADDRESS_BYTES], bool *loopback);
struct sockaddr;
bool woi_is_loopback(const struct sockaddr *address);

#endif
