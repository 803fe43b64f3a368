/* When the files are opened again: at SIGHUP, for POST /admin/reload, when they are overwritten, or when they change.
 * All of it happens on the thread that waits for signals, one reload after the other. Those who asked over HTTP sleep
 * until theirs is done. */
#include "server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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

/* ---- Looking at files -------------------------------------------------------------------------------------- */

woi_file_state woi_files_look(const woi_serve_options *o)
{
    const char *const files[] = {o->index, o->net, o->layer, o->bias_path};
    woi_file_state state = {{0}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat about;
        if (!files[i] || stat(files[i], &about) != 0) continue;
        uint64_t *words = state.words + 4 * i;
        words[0] = (uint64_t)about.st_dev ^ (uint64_t)about.st_ino << 8;
        words[1] = (uint64_t)about.st_size;
        words[2] = (uint64_t)about.st_mtim.tv_sec;
        words[3] = (uint64_t)about.st_mtim.tv_nsec;
    }
    return state;
}

static bool same_state(const woi_file_state *a, const woi_file_state *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Whether a file that is served has been written to where it lies: the same file, and not as it was opened. */
static bool is_overwritten(const woi_snapshot *served, const woi_file_state *now)
{
    const uint64_t *before = served->files.words;
    for (size_t i = 0; i < sizeof now->words / sizeof *before; i += 4)
        if (now->words[i] == before[i] && memcmp(now->words + i, before + i, 4 * sizeof *before) != 0) return true;
    return false;
}

/* ---- Doing it ---------------------------------------------------------------------------------------------- */

/* No answer is given out of files that were overwritten. */
static void mind_overwritten(woi_server *server)
{
    const woi_file_state now = woi_files_look(&server->options);
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    if (is_overwritten(lease.snapshot, &now) && !atomic_exchange(&lease.snapshot->damaged, true))
        fprintf(stderr, "wideout serve: %s; nobody is answered until another is opened\n", woi_damaged);
    woi_snapshot_give(server, &lease);
}

/* The digits of what is current. */
static void current_digits(woi_server *server, char digits[17])
{
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    memcpy(digits, lease.snapshot->digits, 17);
    woi_snapshot_give(server, &lease);
}

void woi_reload(woi_server *server)
{
    woi_ticket *waiting = take_waiting(server, true);
    char before[17], after[17];
    const char *at = NULL;
    wo_error err;
    current_digits(server, before);
    const wo_status status = woi_snapshot_load(server, &at, &err);
    current_digits(server, after);
    atomic_fetch_add(status ? &server->metrics.failed_reloads : &server->metrics.reloads, 1);
    if (status)
        fprintf(stderr, "wideout serve: %s: %s; index %s stays\n", at ? at : "reload", err.text, before);
    else if (!server->options.quiet)
        fprintf(stderr, "wideout serve: index %s is served, %s before\n", after, before);
    if (status) mind_overwritten(server);
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

bool woi_watch_overwritten(woi_watch *watch, woi_server *server)
{
    const woi_file_state now = woi_files_look(&server->options);
    if (same_state(&now, &watch->loaded)) return false;
    woi_lease lease;
    woi_snapshot_take(server, &lease);
    const bool overwritten = is_overwritten(lease.snapshot, &now);
    woi_snapshot_give(server, &lease);
    if (overwritten) watch->loaded = watch->seen = now;
    return overwritten;
}
