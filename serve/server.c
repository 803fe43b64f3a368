/* What a server is made of, without a port: files, a token, a log. */
#include "server.h"

#include <stdlib.h>
#include <unistd.h>

wo_status woi_server_open(woi_server *server, const woi_serve_options *options, const char **at, wo_error *err)
{
    *server = (woi_server){.options = *options, .started_s = woi_now_s()};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    server->threads = options->threads > 0 ? options->threads : cores > 0 ? (int)cores : 1;
    server->access_log = -1;
    server->may_reload = true;
    pthread_mutex_init(&server->lock, NULL);
    woi_guard_set();
    wo_status status = WO_OK;
    if (options->token_file) {
        *at = options->token_file;
        status = woi_token_read(options->token_file, &server->token, err);
    }
    if (!status) {
        *at = options->access_log;
        status = woi_access_open(server, err);
    }
    if (!status && options->shards) {
        *at = NULL;
        status = woi_shards_open(server, at, err);
    }
    return status ? status : woi_snapshot_load(server, at, err);
}

void woi_server_close(woi_server *server)
{
    woi_snapshot_drop(server);
    woi_shards_free(server);
    free(server->token);
    if (server->access_log >= 0) close(server->access_log);
    pthread_mutex_destroy(&server->lock);
}
