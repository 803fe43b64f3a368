/* In place of shards.c, fanout.c and merge.c where the tool is built without libcurl: there are no shards, and whoever
 * asks for them hears why. */
#include "server.h"

#include <stdio.h>

wo_status woi_shards_open(woi_server *server, const char **at, wo_error *err)
{
    (void)server;
    (void)at;
    *err = (wo_error){.status = WO_ERR_UNSUPPORTED, .offset = WO_NO_OFFSET};
    snprintf(err->text, sizeof err->text,
             "this wideout was built without shards: install libcurl4-openssl-dev and build it again");
    return WO_ERR_UNSUPPORTED;
}

wo_status woi_shards_describe(woi_server *server, woi_snapshot *s, wo_error *err)
{
    (void)s;
    return woi_shards_open(server, NULL, err);
}

wo_status woi_shards_start(woi_server *server, wo_error *err)
{
    (void)server;
    (void)err;
    return WO_OK;
}

bool woi_shards_take(woi_server *server, woi_work *work, woi_reply *reply)
{
    (void)server;
    (void)work;
    return woi_refuse(reply, 500, "there are no shards");
}

bool woi_shards_ready(woi_server *server, const char **why)
{
    (void)server;
    (void)why;
    return true;
}

void woi_members_free(struct woi_members *members)
{
    (void)members;
}

void woi_shards_stop(woi_server *server)
{
    (void)server;
}

void woi_shards_free(woi_server *server)
{
    (void)server;
}

void woi_shards_info(woi_server *server, woi_out *out)
{
    (void)server;
    (void)out;
}

void woi_shards_metrics(woi_server *server, woi_out *out)
{
    (void)server;
    (void)out;
}
