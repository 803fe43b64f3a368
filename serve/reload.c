/* When the files are opened again: at SIGHUP, for POST /admin/reload, when they are overwritten, or when they change.
 * All of it happens on the thread that waits for signals, one reload after the other. Those who asked over HTTP sleep
 * until theirs is done. */
#include "server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Asking ------------------------------------------------------------------------------------------------ */

static void wait_for_reload(woi_server *server, woi_ticket *ticket)
{
    pthread_mutex_lock(&server->lock);
    const bool fine = server->may_reload;
    if (fine) {
        ticket->next = server->reloaders;
        server->reloaders = ticket;
    }
    pthread_mutex_unlock(&server->lock);
    if (fine)
        kill(getpid(), SIGHUP); /* blocked everywhere: the thread that waits for it has it */
    else {
        woi_refusal(&ticket->reply, 503, "the server is about to leave");
        ticket->done(ticket);
    }
}

void woi_admin_reload(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)server;
    (void)request;
    reply->later = wait_for_reload;
}

static woi_ticket *take_waiting(woi_server *server, bool more)
{
    pthread_mutex_lock(&server->lock);
    woi_ticket *waiting = server->reloaders;
    server->reloaders = NULL;
    server->may_reload = more;
    pthread_mutex_unlock(&server->lock);
    return waiting;
}

void woi_reload_refuse(woi_server *server)
{
    for (woi_ticket *t = take_waiting(server, false), *next; t; t = next) {
        next = t->next;
        woi_refusal(&t->reply, 503, "the server is about to leave");
        t->done(t);
    }
}

/* ---- Doing it ---------------------------------------------------------------------------------------------- */

static bool is_whole(woi_server *server)
{
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const bool whole = woi_snapshot_whole(lease.snapshot);
    woi_snapshot_give(server, &lease);
    return whole;
}

/* The digits of what is current. */
static void current_digits(woi_server *server, char digits[17])
{
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    memcpy(digits, lease.snapshot->digits, 17);
    woi_snapshot_give(server, &lease);
}

static void damage(woi_server *server)
{
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    atomic_store(&lease.snapshot->damaged, true);
    woi_snapshot_give(server, &lease);
}

void woi_reload(woi_server *server, bool touched)
{
    woi_ticket *waiting = take_waiting(server, true);
    char before[17], after[17];
    const char *at = NULL;
    wo_error err;
    current_digits(server, before);
    const wo_status status = woi_snapshot_load(server, &at, &err);
    current_digits(server, after);
    if (touched && status && status != WO_ERR_IO && status != WO_ERR_MEMORY) damage(server);
    atomic_fetch_add(status ? &server->metrics.failed_reloads : &server->metrics.reloads, 1);
    if (status)
        woi_say("%s: %s; index %s stays", at ? at : "reload", err.text, before);
    else if (!server->options.quiet)
        woi_say("index %s is served, %s before", after, before);
    if (status && !is_whole(server)) woi_say("%s; nobody is answered until another is opened", woi_damaged);
    for (woi_ticket *t = waiting, *next; t; t = next) {
        next = t->next;
        woi_reply *reply = &t->reply;
        if (status)
            woi_refusal(reply, 500, "%s: %s; index %s stays", at ? at : "reload", err.text, before);
        else {
            reply->status = 200;
            reply->type = woi_type_json;
            woi_out_format(&reply->body, "{\"index\": \"%s\", \"before\": \"%s\"}\n", after, before);
        }
        t->done(t);
    }
}

/* ---- Watching ---------------------------------------------------------------------------------------------- */

static bool same_state(const woi_file_state *a, const woi_file_state *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

void woi_watch_begin(woi_watch *watch, const woi_serve_options *options)
{
    watch->loaded = watch->seen = woi_files_look(options);
}

bool woi_watch_changed(woi_watch *watch, const woi_serve_options *options)
{
    const woi_file_state now = woi_files_look(options);
    const bool settled = same_state(&now, &watch->seen);
    watch->seen = now;
    if (!settled || same_state(&now, &watch->loaded)) return false;
    watch->loaded = now;
    return true;
}

/* The same files, sizes and times of content, and still something was done to one. */
static bool was_touched(const woi_file_state *now, const woi_file_state *before)
{
    bool touched = false;
    for (size_t i = 0; i < WOI_FILES; i++) {
        const uint64_t *a = now->words[i], *b = before->words[i];
        if (memcmp(a, b, WOI_CONTENT_WORDS * sizeof *a) == 0) touched |= memcmp(a, b, sizeof now->words[i]) != 0;
    }
    return touched;
}

bool woi_watch_overwritten(woi_watch *watch, woi_server *server, bool *touched)
{
    const woi_file_state now = woi_files_look(&server->options);
    *touched = was_touched(&now, &watch->loaded);
    if (same_state(&now, &watch->loaded) || (!*touched && is_whole(server))) return false;
    watch->loaded = watch->seen = now;
    return true;
}
